//! Each byte of an archive against what was said of it when it was stored.
//!
//! The catalog is compared with the log, a pack with its index (tar headers, contents, the index
//! within, the end), an object with its digest, and no name is archived twice.
use crate::archive::{
    Archive, ArchiveError, index_key, is_described, read_index, read_index_beside,
};
use crate::catalog::{
    ArchivedObject, ArchivedPack, Catalog, CatalogError, ContentPlace, DirectoryRows,
};
use crate::error::PackError;
use crate::name::FileName;
use crate::pack::index::PackIndex;
use crate::pack::verify::{Difference, verify_pack_by};
use crate::path::ArchivePath;
use crate::reader::PackReader;
use crate::repair::referred_by;
use crate::store::Store;
use crate::version::{FoundVersion, add_versions, each_version, versions};
use sheaf_core::lock;
use std::cell::Cell;
use std::collections::HashSet;
use std::ops::AddAssign;
use std::sync::{Mutex, PoisonError};

/// Directories that are asked of the catalog at once.
const DIRECTORIES_AT_ONCE: usize = 256;
const READ_BYTES: usize = 1 << 20;
const PARTS: u64 = 1_000_000;

/// How to verify.
#[derive(Clone, Copy, Debug)]
pub struct VerifyOptions {
    /// Directories at once.
    pub workers: usize,
    /// How many packs and objects of a million are read, picked at random; the others are only looked
    /// for. Indexes and the catalog are always read.
    pub sample_of_million: u64,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(2, usize::from);
        Self { workers, sample_of_million: PARTS }
    }
}

/// What was verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Directories.
    pub directories: u64,
    /// Packs of which each byte was read.
    pub packs: u64,
    /// Objects of which each byte was read.
    pub objects: u64,
    /// Bytes of both.
    pub bytes: u64,
    /// Packs and objects that were not picked: they are there.
    pub unread: u64,
    /// What is not as it was stored: each was told.
    pub damaged: u64,
    /// Packs, indexes and objects that no commit refers to, if they were looked for: left by who was cut off
    /// or has removed something, or of commits that are lost.
    pub unreferred: u64,
    /// Their bytes.
    pub unreferred_bytes: u64,
}

impl AddAssign for VerifyReport {
    fn add_assign(&mut self, other: Self) {
        self.directories += other.directories;
        self.packs += other.packs;
        self.objects += other.objects;
        self.bytes += other.bytes;
        self.unread += other.unread;
        self.damaged += other.damaged;
        self.unreferred += other.unreferred;
        self.unreferred_bytes += other.unreferred_bytes;
    }
}

/// Verifies a directory and all that is below it, and the catalog as a whole; with the path `/` also what
/// versions of the archive have and it has no longer. Where others may write
/// meanwhile the archive is to be [frozen](Archive::freeze). What is damaged is told
/// and counted.
///
/// # Errors
/// When there is no such directory, or the catalog cannot be read.
pub fn verify(
    archive: &Archive,
    from: &ArchivePath,
    options: VerifyOptions,
    told: &(dyn Fn(ArchiveError) + Sync),
) -> Result<VerifyReport, ArchiveError> {
    let mut report = VerifyReport::default();
    for error in catalog_faults(archive)? {
        report.damaged += 1;
        told(error.into());
    }
    // Of an archive in which nothing is stored yet there is no root.
    if *from != ArchivePath::ROOT && archive.catalog().directory(from)?.is_none() {
        return Err(ArchiveError::NotArchived { path: from.clone() });
    }
    let verifier = Verifier { archive, options, told };
    let (mut last, mut above): (Option<ArchivePath>, Vec<ArchivePath>) = (None, Vec::new());
    loop {
        let next = archive.catalog().below(from, last.as_ref(), DIRECTORIES_AT_ONCE)?;
        let Some((path, _)) = next.last() else { break };
        // No command would find what is in a directory whose own is not there.
        for missing in next.iter().filter_map(|(path, _)| missing_above(&mut above, path, from)) {
            verifier.damaged(&mut report, ArchiveError::NotArchived { path: missing });
        }
        last = Some(path.clone());
        report += at_once(options, next, &|(path, _)| verifier.directory(&path));
    }
    if *from == ArchivePath::ROOT {
        let versions = versions_of(&verifier, &mut report).and_then(|are_known| {
            let all = options.sample_of_million == PARTS;
            if all && are_known { unreferred(archive, &mut report) } else { Ok(()) }
        });
        match versions {
            // What is wrong with the log is told once.
            Err(ArchiveError::Catalog(error)) if error.is_of_log() => {}
            Err(error) => verifier.damaged(&mut report, error),
            Ok(()) => {}
        }
    }
    Ok(report)
}

/// The directory that one is in, where it is not there. Directories come in the order of their keys, each behind
/// the one that it is in; `above` are those on the way to the last.
fn missing_above(
    above: &mut Vec<ArchivePath>,
    path: &ArchivePath,
    top: &ArchivePath,
) -> Option<ArchivePath> {
    let parent = path.split().map(|(parent, _)| parent).filter(|_| path != top);
    while above.last().is_some_and(|last| last.depth() >= path.depth()) {
        above.pop();
    }
    let is_there = above.last() == parent.as_ref();
    above.push(path.clone());
    parent.filter(|_| !is_there)
}

/// Does the same with each of several things, with so many workers as the options say.
fn at_once<T: Send>(
    options: VerifyOptions,
    all: Vec<T>,
    work: &(dyn Fn(T) -> VerifyReport + Sync),
) -> VerifyReport {
    let (queue, report) = (Mutex::new(all.into_iter()), Mutex::new(VerifyReport::default()));
    std::thread::scope(|scope| {
        let work = || {
            loop {
                let next = lock(&queue).next();
                let Some(next) = next else { break };
                let verified = work(next);
                *lock(&report) += verified;
            }
        };
        for number in 1..options.workers {
            let worker = std::thread::Builder::new().name(format!("verify-{number}"));
            if worker.spawn_scoped(scope, work).is_err() {
                // Where there are no more threads the same is done, and takes longer.
                break;
            }
        }
        work();
    });
    report.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Verifies marks of versions, and what versions have and the archive has no longer.
fn versions_of(verifier: &Verifier<'_>, report: &mut VerifyReport) -> Result<bool, ArchiveError> {
    let archive = verifier.archive;
    // A log that is lost as a whole is told elsewhere.
    if archive.catalog().applied()? == 0 {
        return Ok(true);
    }
    for found in versions(archive)? {
        if let Err(error) = found.version {
            verifier.damaged(report, error.into());
        }
    }
    let mut seen = HashSet::new();
    let lost = Cell::new(0);
    let mut look = |catalog: &Catalog, found: &FoundVersion, since| {
        let told = |error| {
            let (id, why) = (found.id.to_string(), Box::new(error));
            (verifier.told)(ArchiveError::OfVersion { id, why });
        };
        let verifier = Verifier { told: &told, ..*verifier };
        let mut last: Option<ArchivePath> = None;
        loop {
            let mut next = catalog.rows_since(since, last.as_ref(), DIRECTORIES_AT_ONCE)?;
            let Some((path, _)) = next.last() else { return Ok(()) };
            last = Some(path.clone());
            for (path, rows) in &mut next {
                if archive.catalog().changed(path)? == rows.changed {
                    *rows = DirectoryRows::default();
                    continue;
                }
                let now = archive.catalog().rows_of(path)?;
                rows.packs.retain(|pack| {
                    !now.packs.contains(pack) && seen.insert((pack.id, pack.generation))
                });
                rows.objects.retain(|object| !now.objects.contains(object));
            }
            *report += at_once(verifier.options, next, &|(path, rows)| verifier.rows(&path, &rows));
        }
    };
    each_version(archive.store(), &[], &mut look, &mut |error| {
        (verifier.told)(error);
        lost.set(lost.get() + 1);
        Ok(())
    })?;
    report.damaged += lost.get();
    Ok(lost.get() == 0)
}

/// Counts what nothing refers to.
fn unreferred(archive: &Archive, report: &mut VerifyReport) -> Result<(), ArchiveError> {
    let mut referred = referred_by(&archive.catalog())?;
    // A log that is lost as a whole is told below.
    if archive.catalog().applied()? > 0 {
        add_versions(archive.store(), &mut referred, &[])?;
    }
    for kind in ["packs", "data"] {
        archive.store().list(&[kind], &mut |object| {
            if !referred.has(&object.key) {
                report.unreferred += 1;
                report.unreferred_bytes += object.bytes;
            }
            Ok(())
        })?;
    }
    // A log that is lost as a whole looks like that of a store in which nothing was stored yet.
    let is_empty = report.directories == 0 && archive.catalog().applied()? == 0;
    report.damaged += u64::from(is_empty && report.unreferred > 0);
    Ok(())
}

/// What is wrong with the log, or else with the catalog, and with snapshots of the log.
fn catalog_faults(archive: &Archive) -> Result<Vec<CatalogError>, ArchiveError> {
    let mut faults = log_faults(archive)?;
    Catalog::snapshot_faults(archive.store(), &mut |fault| faults.push(fault))?;
    Ok(faults)
}

fn log_faults(archive: &Archive) -> Result<Vec<CatalogError>, ArchiveError> {
    let differs = archive.catalog().differs(archive.store());
    let error = match differs {
        Err(error) if error.is_of_log() => error,
        differs => return Ok(differs?.into_iter().collect()),
    };
    // A catalog that has taken in the log before it was damaged still says where all is.
    let mut faults = Vec::new();
    Catalog::log_faults(archive.store(), &mut |fault| faults.push(fault))?;
    if faults.is_empty() {
        faults.push(error);
    }
    Ok(faults)
}

#[derive(Clone, Copy)]
struct Verifier<'a> {
    archive: &'a Archive,
    options: VerifyOptions,
    told: &'a (dyn Fn(ArchiveError) + Sync),
}

impl Verifier<'_> {
    fn directory(&self, path: &ArchivePath) -> VerifyReport {
        let mut report = VerifyReport { directories: 1, ..VerifyReport::default() };
        let rows = match self.archive.catalog().rows_of(path) {
            Ok(rows) => rows,
            Err(error) => {
                self.damaged(&mut report, error.into());
                return report;
            }
        };
        let mut names = HashSet::new();
        self.contents(&mut report, path, &rows, &mut names);
        self.directories(&mut report, path, &rows, &names);
        report
    }

    /// What a directory had at a version, which is counted as none.
    fn rows(&self, path: &ArchivePath, rows: &DirectoryRows) -> VerifyReport {
        let mut report = VerifyReport::default();
        self.contents(&mut report, path, rows, &mut HashSet::new());
        report
    }

    /// The packs and objects of a directory.
    fn contents(
        &self,
        report: &mut VerifyReport,
        path: &ArchivePath,
        rows: &DirectoryRows,
        names: &mut HashSet<FileName>,
    ) {
        for object in &rows.objects {
            names.insert(object.attributes.name.clone());
            let at = path.join(&object.attributes.name);
            if let Err(error) = self.object(report, &at, object) {
                self.damaged(report, error);
            }
        }
        for pack in &rows.packs {
            match self.index(pack) {
                Ok(index) => self.pack(report, path, pack, &index, names),
                // What the tar itself has of it says as much, and the files are there.
                Err(error) => match read_index(self.archive.store(), pack) {
                    Ok(index) => {
                        self.damaged(report, error);
                        self.pack(report, path, pack, &index, names);
                    }
                    Err(_) => self.damaged(report, error.of_lost_pack(path, pack)),
                },
            }
        }
    }

    fn damaged(&self, report: &mut VerifyReport, error: ArchiveError) {
        report.damaged += 1;
        (self.told)(error);
    }

    /// A directory does not have the name of a file beside it.
    fn directories(
        &self,
        report: &mut VerifyReport,
        path: &ArchivePath,
        rows: &DirectoryRows,
        names: &HashSet<FileName>,
    ) {
        if rows.objects.is_empty() && rows.packs.is_empty() {
            return;
        }
        let mut last: Option<Vec<u8>> = None;
        loop {
            let next = self.archive.catalog().directory_behind(path, last.as_deref());
            match next {
                Ok(Some((name, _))) => {
                    if names.contains(&name[..]) {
                        self.damaged(report, ArchiveError::Twice { path: path.join(&name) });
                    }
                    last = Some(name);
                }
                Ok(None) => return,
                Err(error) => return self.damaged(report, error.into()),
            }
        }
    }

    fn is_picked(&self) -> Result<bool, ArchiveError> {
        if self.options.sample_of_million >= PARTS {
            return Ok(true);
        }
        let random = crate::archive::new_id()?.0;
        let random = u64::from_le_bytes(*random.first_chunk().expect("it has 16 bytes"));
        Ok(random % PARTS < self.options.sample_of_million)
    }

    /// A pack's index, as the catalog knows it.
    fn index(&self, pack: &ArchivedPack) -> Result<PackIndex, ArchiveError> {
        let index = read_index_beside(self.archive.store(), pack)?;
        let key = index_key(pack.id, pack.generation);
        // An index is read as far as the catalog knows it, so more behind it would not be seen.
        if self.archive.store().size(&key)? != pack.index_bytes {
            let why = PackError::damaged("something is behind its index");
            return Err(ArchiveError::Pack { place: key, why });
        }
        if !is_described(pack, &index) {
            let why = PackError::damaged("its index is not the one that the catalog knows");
            return Err(ArchiveError::Pack { place: pack.key(), why });
        }
        Ok(index)
    }

    fn pack(
        &self,
        report: &mut VerifyReport,
        path: &ArchivePath,
        pack: &ArchivedPack,
        index: &PackIndex,
        names: &mut HashSet<FileName>,
    ) {
        for member in &index.members {
            let name = &member.attributes.name;
            if !names.insert(name.clone()) {
                self.damaged(report, ArchiveError::Twice { path: path.join(name) });
            }
        }
        let key = pack.key();
        let store = self.archive.store();
        let found = self.is_picked().and_then(|is_picked| match is_picked {
            true => differences_of(store, pack, index).map(Some),
            false => pack_reader(store, pack).map(|_| None),
        });
        let differences = match found {
            Ok(Some(differences)) => differences,
            Ok(None) => return report.unread += 1,
            Err(error) => {
                let names = index.members.iter().map(|member| &member.attributes.name[..]);
                return self.damaged(report, error.with_files(path, names));
            }
        };
        report.packs += 1;
        report.bytes += pack.tar_bytes;
        for difference in differences {
            let error = match difference.name() {
                Some(name) => ArchiveError::Member {
                    path: path.join(name),
                    place: key.clone(),
                    what: difference.what(),
                },
                None => ArchiveError::Pack {
                    place: key.clone(),
                    why: PackError::damaged(
                        "its end, or the index in it, is not as it was written",
                    ),
                },
            };
            self.damaged(report, error);
        }
    }

    fn object(
        &self,
        report: &mut VerifyReport,
        path: &ArchivePath,
        object: &ArchivedObject,
    ) -> Result<(), ArchiveError> {
        let store = self.archive.store();
        let Some((reader, from)) = content_reader(store, path, object)? else { return Ok(()) };
        if !self.is_picked()? {
            report.unread += 1;
            return Ok(());
        }
        let is_same = has_digest(reader, from, object)?;
        report.objects += 1;
        report.bytes += object.stored_bytes();
        if is_same { Ok(()) } else { Err(ArchiveError::Content { path: path.clone() }) }
    }
}

/// What of a pack is not as its index says.
///
/// # Errors
/// When it cannot be read, or not as far as it was written.
pub(crate) fn differences_of(
    store: &dyn Store,
    pack: &ArchivedPack,
    index: &PackIndex,
) -> Result<Vec<Difference>, ArchiveError> {
    let mut reader = pack_reader(store, pack)?;
    verify_pack_by(pack.tar_bytes, |from, into| reader.read(from, into), index)
}

/// Who reads a pack, which is there and as long as it was written.
fn pack_reader<'a>(
    store: &'a dyn Store,
    pack: &ArchivedPack,
) -> Result<PackReader<'a>, ArchiveError> {
    let place = pack.key();
    if store.size(&place)? != pack.stored_bytes() {
        let why = PackError::damaged("it is not as long as it was written");
        return Err(ArchiveError::Pack { place, why });
    }
    Ok(PackReader::new(store, pack))
}

/// Who reads the content of a file that is an object, which is as long as it was written, and where it
/// begins; nothing where there is no content.
fn content_reader<'a>(
    store: &'a dyn Store,
    path: &ArchivePath,
    object: &ArchivedObject,
) -> Result<Option<(PackReader<'a>, u64)>, ArchiveError> {
    let stored = object.stored_bytes();
    let (mut reader, from) = match &object.place {
        None if stored == 0 => return Ok(None),
        None => return Err(ArchiveError::Content { path: path.clone() }),
        Some(place) => PackReader::of(store, place),
    };
    let is_whole = match &object.place {
        Some(ContentPlace::Object(_) | ContentPlace::Parts { .. }) => reader.bytes()? == stored,
        _ => reader.bytes()? >= from.saturating_add(stored),
    };
    let damaged = || ArchiveError::Content { path: path.clone() };
    is_whole.then_some(Some((reader, from))).ok_or_else(damaged)
}

/// Whether the content of an object, from this byte on, is as it was written.
fn has_digest(
    mut reader: PackReader<'_>,
    from: u64,
    object: &ArchivedObject,
) -> Result<bool, ArchiveError> {
    let (mut digest, mut room) = (blake3::Hasher::new(), Vec::new());
    let (mut at, end) = (from, from + object.stored_bytes());
    while at < end {
        room.resize((end - at).min(READ_BYTES as u64) as usize, 0);
        reader.read(at, &mut room)?;
        digest.update(&room);
        at += room.len() as u64;
    }
    Ok(digest.finalize() == object.digest)
}

/// Whether the content of an object can be read and is as it was written.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn verify_content(
    store: &dyn Store,
    path: &ArchivePath,
    object: &ArchivedObject,
) -> Result<bool, ArchiveError> {
    match content_reader(store, path, object)? {
        Some((reader, from)) => has_digest(reader, from, object),
        None => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_that_is_in_none_is_found() {
        let path = |text: &str| ArchivePath::new(text.as_bytes()).unwrap();
        let missing = |top: &str, all: &[&str]| {
            let (mut above, top) = (Vec::new(), path(top));
            let missing = all.iter().filter_map(|at| missing_above(&mut above, &path(at), &top));
            missing.map(|path| path.to_string()).collect::<Vec<_>>()
        };
        let whole = ["/", "/a", "/a/b", "/a/b/c", "/a/d", "/e", "/e/f"];
        assert_eq!(missing("/", &whole), Vec::<String>::new());
        assert_eq!(missing("/a", &["/a", "/a/b", "/a/b/c"]), Vec::<String>::new());
        assert_eq!(missing("/", &["/a", "/a/b"]), ["/"]);
        assert_eq!(missing("/", &["/", "/a", "/a/b/c", "/a/d", "/e/f"]), ["/a/b", "/e"]);
    }
}
