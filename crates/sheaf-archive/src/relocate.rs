//! Copies and other names of what is archived: contents stay where they are in the store.
//!
//! A tree goes by one small change, whatever is in it. A file that was a member of a pack becomes an
//! object that says at which byte of it its content is.
//!
//! PSI, sections 6.3 and 8.3, copies whole aggregates and their indexes within the archive. Here a
//! copy refers to the same content, so no content is copied.
use crate::archive::{Archive, ArchiveError};
use crate::catalog::{
    ArchivedObject, CatalogError, Commit, DirectoryChange, DirectoryRows, TreeSource,
};
use crate::name::FileName;
use crate::pack::member::PackId;
use crate::path::ArchivePath;
use crate::save::old::OldFiles;
use sheaf_core::files::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Directories that are looked at at once where a tree is copied into another one.
const DIRECTORIES_AT_ONCE: usize = 512;
/// How often one begins anew where others write meanwhile.
const TRIES_MAX: u32 = 8;

/// Whether what has a new name keeps the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relocation {
    /// It has both.
    Copy,
    /// It has the new one.
    Move,
}

/// Which files stay that have the name of what goes there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RelocateKeep {
    /// None: they are replaced.
    #[default]
    Nothing,
    /// All.
    Present,
    /// Those that are not older.
    Newer,
}

/// A name that a file has, and the one that it gets.
type NewName = (Vec<u8>, Vec<u8>);

/// What was copied or moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelocateReport {
    /// Files, each by itself.
    pub files: u64,
    /// Directories with all that is in them, by one change each.
    pub trees: u64,
    /// Files that were left out, as something of their name is there.
    pub skipped: u64,
}

impl std::ops::AddAssign for RelocateReport {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.trees += other.trees;
        self.skipped += other.skipped;
    }
}

/// Gives files of one directory names in another one, or in the same. A file that has such a name is
/// replaced, or stays as `keep` says. All are done by one commit.
///
/// # Errors
/// When one of them or the other directory is not there, or a directory has the name; when the
/// catalog or an index cannot be read or written. Nothing is changed then.
pub fn relocate_files(
    archive: &Archive,
    (from, to): (&ArchivePath, &ArchivePath),
    names: &[NewName],
    how: Relocation,
    keep: RelocateKeep,
) -> Result<RelocateReport, ArchiveError> {
    let _writing = archive.writing();
    let mut tries = 0;
    loop {
        match FileRelocation::new(archive, from, to, how, keep)?.run(names) {
            Err(ArchiveError::Catalog(CatalogError::Changed { .. })) if tries < TRIES_MAX => {
                tries += 1;
            }
            done => return done,
        }
    }
}

/// Gives a directory with all that is in it another name. What has that name may be an empty directory.
///
/// # Errors
/// When it is not there, or would be within itself, or something else has the name; when the catalog
/// cannot be read or written.
pub fn move_tree(
    archive: &Archive,
    from: &ArchivePath,
    to: &ArchivePath,
) -> Result<RelocateReport, ArchiveError> {
    let is_empty = |rows: &DirectoryRows, archive: &Archive| -> Result<bool, ArchiveError> {
        // The directory itself is the first of them.
        let below = archive.catalog().below(to, None, 2)?.len();
        Ok(rows.packs.is_empty() && rows.objects.is_empty() && below < 2)
    };
    let rows = begin_tree(archive, from, to)?;
    if rows.directory.is_some() && !is_empty(&rows, archive)? {
        let what = "a directory that is not empty";
        return Err(ArchiveError::InTheWay { path: to.clone(), what });
    }
    commit_tree(archive, to, rows.changed, TreeSource::Moved(from.clone()))
}

/// Copies a directory with all that is in it. Where there is a directory of that name, what is in both
/// is in it afterwards: files of one name are replaced, or stay as `keep` says.
///
/// # Errors
/// As [`move_tree`]. What was copied until then is there.
pub fn copy_tree(
    archive: &Archive,
    from: &ArchivePath,
    to: &ArchivePath,
    keep: RelocateKeep,
) -> Result<RelocateReport, ArchiveError> {
    let rows = begin_tree(archive, from, to)?;
    if rows.directory.is_none() {
        return commit_tree(archive, to, 0, TreeSource::Copied(from.clone()));
    }
    let (mut report, mut last) = (RelocateReport::default(), None::<ArchivePath>);
    let mut copied: Option<ArchivePath> = None;
    loop {
        let next = archive.catalog().below(from, last.as_ref(), DIRECTORIES_AT_ONCE)?;
        let Some((behind, _)) = next.last() else { return Ok(report) };
        last = Some(behind.clone());
        for (path, _) in next {
            // It has come with the tree above it.
            if copied.as_ref().is_some_and(|copied| path.is_within(copied)) {
                continue;
            }
            let within = path.within(from).expect("it was listed there");
            let target = within.parts().fold(to.clone(), |path, part| path.join(part));
            let rows = begin_tree(archive, &path, &target)?;
            if rows.directory.is_none() {
                report += commit_tree(archive, &target, 0, TreeSource::Copied(path.clone()))?;
                copied = Some(path);
            } else {
                report += copy_files(archive, &path, &target, keep)?;
                copy_attributes(archive, &path, &target)?;
            }
        }
    }
}

/// Copies all files of a directory into another one.
fn copy_files(
    archive: &Archive,
    from: &ArchivePath,
    to: &ArchivePath,
    keep: RelocateKeep,
) -> Result<RelocateReport, ArchiveError> {
    let rows = archive.catalog().rows_of(from)?;
    let mut names: Vec<Vec<u8>> =
        rows.objects.into_iter().map(|object| object.attributes.name.into()).collect();
    for pack in &rows.packs {
        names.extend(
            archive.index(pack)?.members.into_iter().map(|of| Vec::from(of.attributes.name)),
        );
    }
    let names: Vec<_> = names.into_iter().map(|name| (name.clone(), name)).collect();
    if names.is_empty() {
        return Ok(RelocateReport::default());
    }
    relocate_files(archive, (from, to), &names, Relocation::Copy, keep)
}

/// Gives a directory the mode, owner, times and attributes of another one.
fn copy_attributes(
    archive: &Archive,
    from: &ArchivePath,
    to: &ArchivePath,
) -> Result<(), ArchiveError> {
    let mut catalog = archive.catalog();
    let is = catalog.directory(from)?;
    if is.is_none() {
        return Err(ArchiveError::NotArchived { path: from.clone() });
    }
    if is == catalog.directory(to)? {
        return Ok(());
    }
    let since = catalog.changed(to)?;
    let change = DirectoryChange { path: to.clone(), since, directory: is, ..Default::default() };
    archive.commit_in(&mut catalog, &Commit { changes: vec![change] })?;
    Ok(())
}

/// What is known of a tree's new place, if it may go there.
fn begin_tree(
    archive: &Archive,
    from: &ArchivePath,
    to: &ArchivePath,
) -> Result<DirectoryRows, ArchiveError> {
    let catalog = archive.catalog();
    if catalog.directory(from)?.is_none() {
        return Err(ArchiveError::NotArchived { path: from.clone() });
    }
    if to.is_within(from) {
        return Err(ArchiveError::IntoItself { path: from.clone(), to: to.clone() });
    }
    let rows = catalog.rows_of(to)?;
    if rows.directory.is_none() {
        let missing = || ArchiveError::NotArchived { path: to.clone() };
        let (above, _) = to.split().ok_or_else(missing)?;
        if catalog.directory(&above)?.is_none() {
            return Err(ArchiveError::NotArchived { path: above });
        }
        // `look_up` takes this lock, too.
        drop(catalog);
        if archive.look_up(to)?.is_some() {
            return Err(ArchiveError::InTheWay { path: to.clone(), what: "a file" });
        }
    }
    Ok(rows)
}

fn commit_tree(
    archive: &Archive,
    to: &ArchivePath,
    since: u64,
    tree: TreeSource,
) -> Result<RelocateReport, ArchiveError> {
    let change =
        DirectoryChange { path: to.clone(), since, tree: Some(tree), ..Default::default() };
    archive.commit(&Commit { changes: vec![change] })?;
    Ok(RelocateReport { trees: 1, ..RelocateReport::default() })
}

/// Files on their way from one directory into another one, or within one.
struct FileRelocation<'a> {
    archive: &'a Archive,
    from: &'a ArchivePath,
    to: &'a ArchivePath,
    how: Relocation,
    keep: RelocateKeep,
    source: DirectoryRows,
    /// Nothing where it is the same directory.
    target: Option<DirectoryRows>,
}

impl<'a> FileRelocation<'a> {
    fn new(
        archive: &'a Archive,
        from: &'a ArchivePath,
        to: &'a ArchivePath,
        how: Relocation,
        keep: RelocateKeep,
    ) -> Result<Self, ArchiveError> {
        let rows_of = |path: &ArchivePath| -> Result<DirectoryRows, ArchiveError> {
            let rows = archive.catalog().rows_of(path)?;
            let missing = || ArchiveError::NotArchived { path: path.clone() };
            if rows.directory.is_none() { Err(missing()) } else { Ok(rows) }
        };
        let source = rows_of(from)?;
        let target = if from == to { None } else { Some(rows_of(to)?) };
        Ok(Self { archive, from, to, how, keep, source, target })
    }

    fn run(&self, names: &[NewName]) -> Result<RelocateReport, ArchiveError> {
        let (names, skipped) = self.meant(names)?;
        let mut into_source = changed(self.from, &self.source);
        let sources: BTreeSet<&[u8]> = names.iter().map(|(from, _)| &from[..]).collect();
        let targets: BTreeMap<&[u8], &[u8]> =
            names.iter().map(|(from, to)| (&to[..], &from[..])).collect();
        if targets.len() < names.len() {
            let path = self.to.clone();
            return Err(ArchiveError::InTheWay { path, what: "another one that goes there" });
        }
        let mut found = self.take(&sources, &targets, &mut into_source)?;
        let mut into_target = match &self.target {
            Some(rows) => {
                let mut into = changed(self.to, rows);
                let mut old = OldFiles::new(rows.packs.clone(), rows.objects.clone());
                for name in targets.keys() {
                    if old.find(self.archive.store(), name, &mut into)?.is_some() {
                        old.retire(name, &mut into);
                    }
                }
                old.settle(self.archive.store(), &mut into)?;
                Some(into)
            }
            None => None,
        };
        let objects = &mut into_target.as_mut().unwrap_or(&mut into_source).objects;
        for (to, from) in &targets {
            let mut object = found.remove(*from).ok_or_else(|| self.missing(from))?;
            object.attributes.name = FileName::new(*to).ok_or_else(|| self.missing(from))?;
            objects.push(object);
        }
        // A source that stays as it is has its number in it all the same: had it been changed meanwhile,
        // what is referred to might be gone from the store.
        let changes = [into_target, Some(into_source)];
        let changes = changes.into_iter().flatten().collect();
        self.archive.commit(&Commit { changes })?;
        Ok(RelocateReport { files: names.len() as u64, trees: 0, skipped })
    }

    fn missing(&self, name: &[u8]) -> ArchiveError {
        ArchiveError::NotArchived { path: self.from.join(name) }
    }

    /// The names without those that would replace something that is to stay.
    fn meant(&self, names: &[NewName]) -> Result<(Vec<NewName>, u64), ArchiveError> {
        let rows = self.target.as_ref().unwrap_or(&self.source);
        let mut old = OldFiles::new(rows.packs.clone(), rows.objects.clone());
        let mut none = DirectoryChange::default();
        let mut all = names.to_vec();
        // `find` takes names in their order.
        all.sort_by(|one, other| one.1.cmp(&other.1));
        let (mut meant, mut there) = (Vec::new(), Vec::new());
        for (from, to) in all {
            let path = self.to.join(&to);
            if self.archive.catalog().directory(&path)?.is_some() {
                return Err(ArchiveError::InTheWay { path, what: "a directory" });
            }
            if self.keep == RelocateKeep::Nothing {
                meant.push((from, to));
                continue;
            }
            match old.find(self.archive.store(), &to, &mut none)?.map(|is| is.attributes.mtime) {
                Some(mtime) => there.push(((from, to), mtime)),
                None => meant.push((from, to)),
            }
        }
        let count = there.len();
        let newer = self.newer(there)?;
        let skipped = (count - newer.len()) as u64;
        meant.extend(newer);
        Ok((meant, skipped))
    }

    /// Those that are newer than what is there, if such are meant.
    fn newer(&self, mut there: Vec<(NewName, Timestamp)>) -> Result<Vec<NewName>, ArchiveError> {
        if self.keep != RelocateKeep::Newer {
            return Ok(Vec::new());
        }
        let mut old = OldFiles::new(self.source.packs.clone(), self.source.objects.clone());
        let mut none = DirectoryChange::default();
        // In another order now, as `find` goes through the sources here.
        there.sort_by(|((one, _), _), ((other, _), _)| one.cmp(other));
        let mut newer = Vec::new();
        for ((from, to), mtime) in there {
            let source = old.find(self.archive.store(), &from, &mut none)?;
            let source = source.ok_or_else(|| self.missing(&from))?.attributes.mtime;
            let time = |of: Timestamp| (of.seconds, of.nanoseconds);
            if time(source) > time(mtime) {
                newer.push((from, to));
            }
        }
        Ok(newer)
    }

    /// What is archived of some names, as objects; where they go from the directory, or are replaced in
    /// it, `into` says so.
    fn take(
        &self,
        sources: &BTreeSet<&[u8]>,
        targets: &BTreeMap<&[u8], &[u8]>,
        into: &mut DirectoryChange,
    ) -> Result<HashMap<Vec<u8>, ArchivedObject>, ArchiveError> {
        let store = self.archive.store();
        let mut old = OldFiles::new(self.source.packs.clone(), self.source.objects.clone());
        let is_same = self.target.is_none();
        let mut links: HashMap<PackId, PackId> = HashMap::new();
        let mut found = HashMap::new();
        let mut names = sources.clone();
        // Files that are replaced are retired in the same pass: `find` does not go back.
        if is_same {
            names.extend(targets.keys());
        }
        for name in names {
            let is_source = sources.contains(name);
            let Some(mut object) = old.object(store, name, into)? else {
                if is_source {
                    return Err(self.missing(name));
                }
                continue;
            };
            let goes = is_source && self.how == Relocation::Move;
            if goes {
                // The names of one file are members of one pack. If one of them goes, the others
                // become objects that refer to the content.
                let stays = |name: &Vec<u8>| {
                    let is_replaced = is_same && targets.contains_key(&name[..]);
                    !sources.contains(&name[..]) && !is_replaced
                };
                for other in old.other_names(name).into_iter().filter(stays) {
                    into.objects.extend(old.open_object(&other));
                    old.retire(&other, into);
                }
            }
            if goes || is_same && targets.contains_key(name) {
                old.retire(name, into);
            }
            if !is_source {
                continue;
            }
            if let Some(link) = object.link.filter(|_| self.how == Relocation::Copy) {
                // Copies are hard links of each other, and not of the originals.
                let new = match links.get(&link) {
                    Some(new) => *new,
                    None => *links.entry(link).or_insert(crate::archive::new_id()?),
                };
                object.link = Some(new);
            }
            found.insert(name.to_vec(), object);
        }
        old.settle(store, into)?;
        Ok(found)
    }
}

fn changed(path: &ArchivePath, rows: &DirectoryRows) -> DirectoryChange {
    DirectoryChange { path: path.clone(), since: rows.changed, ..Default::default() }
}
