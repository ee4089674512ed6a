//! How a commit of the log changes the tables.
use super::tables::{Many, RowValue};
use super::whole::as_value;
use super::{
    ArchivedObject, Catalog, CatalogError, Checked, Commit, DirectoryChange, TreeSource, rows,
};
use crate::path::ArchivePath;
use std::collections::{BTreeMap, BTreeSet};

/// A row by the path of its directory, and what it is known by there.
type RowKey<'a> = (&'a [u8], &'a [u8]);

const DIRECTORIES_GONE: Many = Many {
    sqlite: "DELETE FROM directory WHERE path = ?1",
    postgres: "DELETE FROM directory WHERE path = ANY(?1::BLOB[])",
};
const ALL_PACKS_GONE: Many = Many {
    sqlite: "DELETE FROM pack WHERE path = ?1",
    postgres: "DELETE FROM pack WHERE path = ANY(?1::BLOB[])",
};
const ALL_OBJECTS_GONE: Many = Many {
    sqlite: "DELETE FROM object WHERE path = ?1",
    postgres: "DELETE FROM object WHERE path = ANY(?1::BLOB[])",
};
const PACKS_GONE: Many = Many {
    sqlite: "DELETE FROM pack WHERE path = ?1 AND id = ?2",
    postgres: "DELETE FROM pack USING unnest(?1::BLOB[], ?2::BLOB[]) AS gone(path, id)
        WHERE pack.path = gone.path AND pack.id = gone.id",
};
const OBJECTS_GONE: Many = Many {
    sqlite: "DELETE FROM object WHERE path = ?1 AND name = ?2",
    postgres: "DELETE FROM object USING unnest(?1::BLOB[], ?2::BLOB[]) AS gone(path, name)
        WHERE object.path = gone.path AND object.name = gone.name",
};
pub(super) const PACKS: Many = Many {
    sqlite: "INSERT OR REPLACE INTO pack VALUES (?1, ?2, ?3)",
    postgres: "INSERT INTO pack SELECT * FROM unnest(?1::BLOB[], ?2::BLOB[], ?3::BLOB[])
        ON CONFLICT (path, id) DO UPDATE SET row = excluded.row",
};
pub(super) const OBJECTS: Many = Many {
    sqlite: "INSERT OR REPLACE INTO object VALUES (?1, ?2, ?3)",
    postgres: "INSERT INTO object SELECT * FROM unnest(?1::BLOB[], ?2::BLOB[], ?3::BLOB[])
        ON CONFLICT (path, name) DO UPDATE SET row = excluded.row",
};
pub(super) const DIRECTORIES: Many = Many {
    sqlite: "INSERT OR REPLACE INTO directory VALUES (?1, ?2, ?3)",
    postgres: "INSERT INTO directory SELECT * FROM unnest(?1::BLOB[], ?2::BIGINT[], ?3::BLOB[])
        ON CONFLICT (path) DO UPDATE SET changed = excluded.changed, row = excluded.row",
};
const TOUCHED: Many = Many {
    sqlite: "UPDATE directory SET changed = ?2 WHERE path = ?1",
    postgres: "UPDATE directory SET changed = now.changed
        FROM unnest(?1::BLOB[], ?2::BIGINT[]) AS now(path, changed)
        WHERE directory.path = now.path",
};

/// Changes of different directories, which are made together.
#[derive(Default)]
pub(super) struct RowChanges<'a> {
    paths: BTreeSet<&'a [u8]>,
    gone: BTreeSet<&'a [u8]>,
    packs_gone: BTreeSet<RowKey<'a>>,
    objects_gone: BTreeSet<RowKey<'a>>,
    packs: BTreeMap<RowKey<'a>, Vec<u8>>,
    objects: BTreeMap<RowKey<'a>, Vec<u8>>,
    directories: BTreeMap<&'a [u8], Vec<u8>>,
    touched: BTreeSet<&'a [u8]>,
}

impl<'a> RowChanges<'a> {
    /// Makes the changes of a commit.
    pub fn apply(to: &Catalog, number: u64, commit: &'a Commit) -> Result<(), CatalogError> {
        let mut batch = Self::default();
        for change in &commit.changes {
            // A batch is applied in an order of its own: trees, and a directory that changes twice,
            // begin another one.
            if change.tree.is_some() || batch.paths.contains(change.path.key()) {
                std::mem::take(&mut batch).make(to, number)?;
            }
            if let Some(tree) = &change.tree
                && !change.removed
            {
                apply_tree(to, number, &change.path, tree)?;
            }
            batch.push(change);
        }
        batch.make(to, number)
    }

    fn push(&mut self, change: &'a DirectoryChange) {
        let path = change.path.key();
        self.paths.insert(path);
        if change.removed {
            self.gone.insert(path);
            return;
        }
        self.packs_gone.extend(change.packs_removed.iter().map(|id| (path, &id.0[..])));
        self.objects_gone.extend(change.objects_removed.iter().map(|name| (path, &name[..])));
        let packs = change.packs.iter().map(|pack| ((path, &pack.id.0[..]), encoded(pack)));
        self.packs.extend(packs);
        let name = |object: &'a ArchivedObject| &object.attributes.name[..];
        let objects = change.objects.iter().map(|of| ((path, name(of)), encoded(of)));
        self.objects.extend(objects);
        match &change.directory {
            Some(directory) => {
                self.directories.insert(path, encoded(directory));
            }
            None => {
                self.touched.insert(path);
            }
        }
    }

    fn make(self, to: &Catalog, number: u64) -> Result<(), CatalogError> {
        let number = RowValue::Number(as_value(number));
        let gone: Vec<_> = self.gone.iter().map(|path| [RowValue::Bytes(path)]).collect();
        for many in [&DIRECTORIES_GONE, &ALL_PACKS_GONE, &ALL_OBJECTS_GONE] {
            run(to, many, &gone)?;
        }
        // Before the insertions, because a change may remove a name and write it again.
        for (many, keys) in [(&PACKS_GONE, self.packs_gone), (&OBJECTS_GONE, self.objects_gone)] {
            let keys: Vec<_> = keys
                .iter()
                .map(|(path, key)| [RowValue::Bytes(path), RowValue::Bytes(key)])
                .collect();
            run(to, many, &keys)?;
        }
        for (many, rows) in [(&PACKS, self.packs), (&OBJECTS, self.objects)] {
            let rows: Vec<_> = rows
                .iter()
                .map(|((path, key), row)| {
                    [RowValue::Bytes(path), RowValue::Bytes(key), RowValue::Bytes(row)]
                })
                .collect();
            run(to, many, &rows)?;
        }
        let directories = self
            .directories
            .iter()
            .map(|(path, row)| [RowValue::Bytes(path), number, RowValue::Bytes(row)]);
        run(to, &DIRECTORIES, &directories.collect::<Vec<_>>())?;
        let touched: Vec<_> =
            self.touched.iter().map(|path| [RowValue::Bytes(path), number]).collect();
        run(to, &TOUCHED, &touched)
    }
}

pub(super) fn run<const VALUES: usize>(
    on: &Catalog,
    many: &Many,
    rows: &[[RowValue<'_>; VALUES]],
) -> Result<(), CatalogError> {
    let rows: Vec<&[RowValue<'_>]> = rows.iter().map(|values| &values[..]).collect();
    on.run_many(many, &rows)
}

/// Has all that is within one directory be within another one, by its keys alone.
fn apply_tree(
    on: &Catalog,
    number: u64,
    to: &ArchivePath,
    tree: &TreeSource,
) -> Result<(), CatalogError> {
    let from = tree.from();
    // SQL counts from 1.
    let from_byte = i64::try_from(from.key().len() + 1).expect("a path has fewer bytes than 2⁶³");
    // Only the directory itself: nothing is below it (`Catalog::refused`).
    on.run("DELETE FROM directory WHERE path = ?1", &[RowValue::Bytes(to.key())])?;
    // What is joined is a text to SQLite, of the same bytes.
    let path = "CAST(?1 || substr(path, CAST(CAST(?2 AS BIGINT) AS INTEGER)) AS BLOB)";
    let behind = from.key_behind();
    let mut values =
        vec![RowValue::Bytes(to.key()), RowValue::Number(from_byte), RowValue::Bytes(from.key())];
    let (within, commit) = match &behind {
        Some(behind) => {
            values.push(RowValue::Bytes(behind));
            ("path >= ?3 AND path < ?4", "CAST(?5 AS BIGINT)")
        }
        None => ("path >= ?3", "CAST(?4 AS BIGINT)"),
    };
    let with_commit = [&values[..], &[RowValue::Number(as_value(number))]].concat();
    if let TreeSource::Moved(_) = tree {
        let sql = format!("UPDATE directory SET path = {path}, changed = {commit} WHERE {within}");
        on.run(&sql, &with_commit)?;
        for table in ["pack", "object"] {
            on.run(&format!("UPDATE {table} SET path = {path} WHERE {within}"), &values)?;
        }
        return Ok(());
    }
    let sql =
        format!("INSERT INTO directory SELECT {path}, {commit}, row FROM directory WHERE {within}");
    on.run(&sql, &with_commit)?;
    for (table, name) in [("pack", "id"), ("object", "name")] {
        let sql =
            format!("INSERT INTO {table} SELECT {path}, {name}, row FROM {table} WHERE {within}");
        on.run(&sql, &values)?;
    }
    copy_links(on, number, to)
}

/// Gives files of a copied tree that have several names something in common that is theirs.
fn copy_links(on: &Catalog, number: u64, to: &ArchivePath) -> Result<(), CatalogError> {
    let behind = to.key_behind();
    let (within, values) = match &behind {
        Some(behind) => {
            ("path >= ?1 AND path < ?2", vec![RowValue::Bytes(to.key()), RowValue::Bytes(behind)])
        }
        None => ("path >= ?1", vec![RowValue::Bytes(to.key())]),
    };
    let mut copies: Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> = Vec::new();
    let sql = format!("SELECT path, name, row FROM object WHERE {within}");
    on.tables.each(&sql, &values, &mut |found| {
        // One that cannot be read is told when it is looked at.
        let object = on.row::<ArchivedObject>(on.bytes(found, 2)?);
        let Ok(mut object) = object else { return Ok(()) };
        if let Some(link) = object.link {
            object.link = Some(rows::copied_link(link, number, to));
            let (path, name) = (on.bytes(found, 0)?.to_owned(), on.bytes(found, 1)?.to_owned());
            copies.push((path, name, encoded(&object)));
        }
        Ok(())
    })?;
    let copies = copies.iter().map(|(path, name, row)| {
        [RowValue::Bytes(path), RowValue::Bytes(name), RowValue::Bytes(row)]
    });
    run(on, &OBJECTS, &copies.collect::<Vec<_>>())
}

/// Bytes of a row's checksum, which stands behind it: tables have none of their own.
const CHECK_BYTES: usize = 8;

pub(super) fn encoded(row: &impl serde::Serialize) -> Vec<u8> {
    let mut bytes = postcard::to_stdvec(row).expect("memory takes what it is given");
    bytes.extend_from_slice(&check_of(&bytes));
    bytes
}

/// What a row says, if it is as it was written, and can be.
pub(super) fn decoded<T: serde::de::DeserializeOwned + Checked>(row: &[u8]) -> Option<T> {
    let (row, check) = row.split_last_chunk()?;
    let row = (check_of(row) == *check).then_some(row)?;
    postcard::from_bytes(row).ok().filter(T::is_valid)
}

fn check_of(row: &[u8]) -> [u8; CHECK_BYTES] {
    *blake3::hash(row).as_bytes().first_chunk().expect("a digest is longer")
}
