//! A writer that is stopped at any of its writes: what was committed stays, nothing half is there, and
//! what was left over is found.
use crate::round::{path, settle};
use crate::trees::assert_same;
use sheaf_archive::{
    Archive, ArchiveError, ArchiveEvent, ArchivePath, ArchivedFile, Catalog, CatalogError,
    DirectoryRows, FetchOptions, LocalStore, PostgresUrl, RelocateKeep, Relocation, RepackOptions,
    RepairOptions, RightsChange, RightsOptions, SaveOptions, Store, StoreError, StoreKey,
    StoreWriter, StoredObject, VerifyOptions, change_rights, copy_tree, fetch, move_tree,
    relocate_files, remove, repack, repair, save, verify,
};
use sheaf_core::Errno;
use sheaf_testing::postgres::PostgresServer;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A store that stops after so many writes: it commits and removes nothing any longer.
struct StoppedStore {
    store: LocalStore,
    left: Arc<AtomicI64>,
    /// Whether the last write is done, and its writer does not hear of it.
    is_deaf: bool,
}

struct StoppedWriter {
    writer: Box<dyn StoreWriter>,
    left: Arc<AtomicI64>,
    is_deaf: bool,
}

fn stopped() -> StoreError {
    StoreError { place: "test".to_owned(), doing: "is stopped", errno: Errno::IO }
}

/// Does a write, if it is before the end.
fn counted<T>(
    left: &AtomicI64,
    is_deaf: bool,
    write: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    match left.fetch_sub(1, Ordering::SeqCst) {
        left if left > 0 => write(),
        0 if is_deaf => write().and(Err(stopped())),
        _ => Err(stopped()),
    }
}

impl Write for StoppedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl StoreWriter for StoppedWriter {
    fn commit(self: Box<Self>) -> Result<(), StoreError> {
        let writer = self.writer;
        counted(&self.left, self.is_deaf, || writer.commit())
    }
}

impl Store for StoppedStore {
    fn create(&self, key: &StoreKey) -> Result<Box<dyn StoreWriter>, StoreError> {
        let (writer, left) = (self.store.create(key)?, self.left.clone());
        Ok(Box::new(StoppedWriter { writer, left, is_deaf: self.is_deaf }))
    }

    fn open(&self, key: &StoreKey, from: u64) -> Result<Box<dyn Read + Send>, StoreError> {
        self.store.open(key, from)
    }

    fn read(&self, key: &StoreKey, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        self.store.read(key, range)
    }

    fn size(&self, key: &StoreKey) -> Result<u64, StoreError> {
        self.store.size(key)
    }

    fn list(
        &self,
        parts: &[&str],
        each: &mut dyn FnMut(StoredObject) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.store.list(parts, each)
    }

    fn remove(&self, key: &StoreKey) -> Result<(), StoreError> {
        // A lease that cannot be given up ends by itself.
        if key.as_str().starts_with("leases/") {
            let is_stopped = self.left.load(Ordering::SeqCst) <= 0;
            return if is_stopped { Err(stopped()) } else { self.store.remove(key) };
        }
        counted(&self.left, self.is_deaf, || self.store.remove(key))
    }
}

/// A store that stops after so many writes, and how many are left.
pub fn stopping(at: &Path, left: i64, is_deaf: bool) -> (Arc<dyn Store>, Arc<AtomicI64>) {
    let left = Arc::new(AtomicI64::new(left));
    let store = LocalStore::create(at).unwrap();
    (Arc::new(StoppedStore { store, left: left.clone(), is_deaf }), left)
}

/// An archive whose store stops after so many writes.
pub fn archive(at: &Path, catalog: &str, left: i64, is_deaf: bool) -> (Archive, Arc<AtomicI64>) {
    archive_with(at, Catalog::open(&at.join(catalog)).unwrap(), left, is_deaf)
}

fn archive_with(
    at: &Path,
    catalog: Catalog,
    left: i64,
    is_deaf: bool,
) -> (Archive, Arc<AtomicI64>) {
    let (store, left) = stopping(&at.join("store"), left, is_deaf);
    (Archive::new(store, catalog).unwrap(), left)
}

pub const EVER: i64 = i64::MAX;

fn options() -> SaveOptions {
    // Small packs, so that there are several in a directory.
    SaveOptions { pack_bytes: 4096, ..SaveOptions::default() }
}

fn store(archive: &Archive, tree: &Path) -> Result<(), ArchiveError> {
    let fail = |event: ArchiveEvent| panic!("{event:?}");
    save(archive, &[tree.to_owned()], &ArchivePath::ROOT, options(), &fail).map(drop)
}

/// The tree at first, or after it was changed.
fn write_tree(at: &Path, version: u8) {
    for directory in ["d", "d/e", "f"] {
        fs::create_dir_all(at.join(directory)).unwrap();
        for number in 0..6 {
            if version == 1 || number % 2 == 0 {
                let content = format!("{version} {directory} {number}\n").repeat(90);
                fs::write(at.join(directory).join(format!("{number}")), content).unwrap();
            }
        }
    }
    fs::write(at.join("large"), vec![version; 1_200_000]).unwrap();
    if version == 2 {
        fs::create_dir_all(at.join("new/below")).unwrap();
        fs::write(at.join("new/below/file"), "2 new\n").unwrap();
    }
    settle();
}

/// What is done when it is stopped.
#[derive(Clone, Copy)]
struct Work {
    /// What is done before, and is not stopped.
    before: fn(&Archive, &Path),
    run: fn(&Archive, &Path) -> Result<(), ArchiveError>,
    /// Whether a file may be gone, as far as the work has come.
    may_be_gone: fn(&str) -> bool,
    /// What is done when the rest of the work is done, so that storing the tree again makes it all of it.
    then: fn(&Archive, &Path),
}

/// Each file is as it was in one of the versions, or gone where it may be, and verified.
fn check(archive: &Archive, work: Work, to: &Path) {
    let damaged = |error| panic!("{error}");
    verify(archive, &ArchivePath::ROOT, VerifyOptions::default(), &damaged).unwrap();
    let fail = |event: ArchiveEvent| panic!("{event:?}");
    fetch(archive, &path("/tree"), to, FetchOptions::default(), &fail).unwrap();
    for directory in ["d", "d/e", "f"] {
        for number in 0..6 {
            let name = format!("{directory}/{number}");
            let read = fs::read_to_string(to.join("tree").join(&name));
            if read.is_err() && (work.may_be_gone)(&name) {
                continue;
            }
            let read = read.unwrap_or_else(|error| panic!("{name}: {error}"));
            let is_of = |version| read == format!("{version} {directory} {number}\n").repeat(90);
            assert!(is_of(1) || number % 2 == 0 && is_of(2), "{name}: {read:?}");
        }
    }
}

/// All that a catalog says.
fn said(catalog: &Catalog) -> Vec<(ArchivePath, DirectoryRows)> {
    catalog.rows_below(&ArchivePath::ROOT, None, 1000).unwrap()
}

/// Catalogs that have lost any number of the last commits come to the same again.
fn check_lost_commits(at: &Path) {
    let store = LocalStore::open(&at.join("store")).unwrap();
    let mut all = Catalog::open(&at.join("all")).unwrap();
    let last = all.catch_up(&store).unwrap();
    for kept in 0..last {
        let file = at.join(format!("kept-{kept}"));
        let cut = CutStore { store: LocalStore::open(&at.join("store")).unwrap(), kept };
        assert_eq!(Catalog::open(&file).unwrap().catch_up(&cut).unwrap(), kept);
        let mut short = Catalog::open(&file).unwrap();
        assert_eq!(short.catch_up(&store).unwrap(), last);
        assert_eq!(said(&short), said(&all), "{kept} of {last}");
    }
}

/// A store with the first commits of its log.
struct CutStore {
    store: LocalStore,
    kept: u64,
}

impl Store for CutStore {
    fn create(&self, key: &StoreKey) -> Result<Box<dyn StoreWriter>, StoreError> {
        self.store.create(key)
    }

    fn open(&self, key: &StoreKey, from: u64) -> Result<Box<dyn Read + Send>, StoreError> {
        self.store.open(key, from)
    }

    fn read(&self, key: &StoreKey, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        self.store.read(key, range)
    }

    fn size(&self, key: &StoreKey) -> Result<u64, StoreError> {
        let number = key.as_str().strip_prefix("log/").map(|digits| digits.parse().unwrap());
        if number.is_some_and(|number: u64| number > self.kept) {
            let place = key.to_string();
            return Err(StoreError { place, doing: "is cut off", errno: Errno::NOENT });
        }
        self.store.size(key)
    }

    fn list(
        &self,
        parts: &[&str],
        each: &mut dyn FnMut(StoredObject) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.store.list(parts, each)
    }

    fn remove(&self, key: &StoreKey) -> Result<(), StoreError> {
        self.store.remove(key)
    }
}

/// Opens a catalog of a test: a file's, or a database's.
type OpenCatalog<'a> = &'a dyn Fn(&Path) -> Catalog;

/// Stops the work at each of its writes, and looks at what is there then.
fn stop_at_each(work: Work, catalog: OpenCatalog<'_>) {
    for is_deaf in [false, true] {
        let mut stop = 0;
        while stop_at(work, catalog, stop, is_deaf) {
            stop += 1;
        }
        assert!(stop > 1, "it has stopped nowhere");
    }
}

/// A directory of a file system in memory where there is one: much is synced there.
pub fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// Stops the work at one of its writes. Whether it had so many.
fn stop_at(work: Work, catalog: OpenCatalog<'_>, stop: i64, is_deaf: bool) -> bool {
    let place = in_memory();
    let (at, tree) = (place.path(), place.path().join("tree"));
    write_tree(&tree, 1);
    let open = |left, is_deaf| archive_with(at, catalog(&at.join("catalog")), left, is_deaf);
    let (first, _) = open(EVER, false);
    store(&first, &tree).unwrap();
    drop(first);
    write_tree(&tree, 2);
    let (second, left) = open(EVER, is_deaf);
    (work.before)(&second, &tree);
    left.store(stop, Ordering::SeqCst);
    let worked = (work.run)(&second, &tree);
    drop(second);
    let is_stopped = left.load(Ordering::SeqCst) < 0;
    assert_eq!(worked.is_err(), is_stopped, "{stop}");

    // With the catalog that there is, and with one that is made again.
    let (after, _) = open(EVER, false);
    check(&after, work, &at.join("one"));
    let (again, _) = archive(at, "again", EVER, false);
    check(&again, work, &at.join("other"));
    assert_same(&at.join("one/tree"), &at.join("other/tree"));
    assert_eq!(said(&after.catalog()), said(&again.catalog()));
    check_lost_commits(at);
    let age = Duration::ZERO;
    let dry = RepairOptions { age, dry_run: true };
    let found = repair(&after, dry).unwrap();
    let removed = repair(&after, RepairOptions { age, dry_run: false }).unwrap();
    assert_eq!(found, removed);
    assert_eq!(repair(&after, dry).unwrap().leftovers, 0);
    check(&after, work, &at.join("repaired"));
    assert_same(&at.join("one/tree"), &at.join("repaired/tree"));
    // And it goes on.
    (work.run)(&after, &tree).unwrap();
    (work.then)(&after, &tree);
    store(&after, &tree).unwrap();
    let fail = |event: ArchiveEvent| panic!("{event:?}");
    fetch(&after, &path("/tree"), &at.join("whole"), FetchOptions::default(), &fail).unwrap();
    assert_same(&tree, &at.join("whole/tree"));
    is_stopped
}

const STORE: Work = Work { before: |_, _| (), run: store, may_be_gone: |_| false, then: |_, _| () };
const REPACK: Work = Work {
    before: |archive, tree| store(archive, tree).unwrap(),
    run: |archive, _| {
        let options =
            RepackOptions { min_dead_percent: 1, small_packs_min: 2, ..RepackOptions::default() };
        let damaged = |error| panic!("{error}");
        let report = repack(archive, &path("/tree/d/e"), options, &damaged)?;
        assert!(report.packs == 0 || report.packs > report.packs_new, "{report:?}");
        Ok(())
    },
    may_be_gone: |_| false,
    then: |_, _| (),
};
const REMOVE: Work = Work {
    before: |_, _| (),
    run: |archive, _| {
        // What is gone by then is so.
        for gone in ["/tree/d/e/3", "/tree/large", "/tree/d"] {
            if archive.look_up(&path(gone))?.is_some() {
                remove(archive, &path(gone))?;
            }
        }
        Ok(())
    },
    may_be_gone: |name| name.starts_with("d/"),
    then: |_, _| (),
};
/// Modes of a tree, and of a file of its own.
const MODES: Work = Work {
    before: |_, _| (),
    run: |archive, _| {
        let recursive = RightsOptions { recursive: true, ..RightsOptions::default() };
        let tree = RightsChange::Mode(&|mode, is_directory| {
            if is_directory { mode } else { mode & !0o077 }
        });
        let file = RightsChange::Mode(&|_, _| 0o400);
        change_rights(archive, &path("/tree/d/e/1"), &file, RightsOptions::default())?;
        change_rights(archive, &path("/tree"), &tree, recursive).map(drop)
    },
    may_be_gone: |_| false,
    then: |archive, _| {
        let mode = |name: &str| match archive.look_up(&path(name)).unwrap() {
            Some(ArchivedFile::Member { member, .. }) => member.attributes.mode,
            Some(ArchivedFile::Object(object)) => object.attributes.mode,
            other => panic!("{name}: {other:?}"),
        };
        let names = ["/tree/d/e/1", "/tree/d/e/2", "/tree/f/0", "/tree/large"];
        assert_eq!(names.map(mode), [0o400, 0o600, 0o600, 0o600]);
        // The tree's own again.
        remove(archive, &path("/tree")).unwrap();
    },
};
const NAMES: Work = Work {
    before: |_, _| (),
    run: |archive, _| {
        if archive.look_up(&path("/tree/d"))?.is_some() {
            move_tree(archive, &path("/tree/d"), &path("/tree/moved"))?;
        }
        copy_tree(archive, &path("/tree/f"), &path("/tree/copied"), RelocateKeep::Nothing)?;
        let name = (b"1".to_vec(), b"renamed".to_vec());
        let at = path("/tree/f");
        if archive.look_up(&path("/tree/f/1"))?.is_some() {
            relocate_files(archive, (&at, &at), &[name], Relocation::Move, RelocateKeep::Nothing)?;
        }
        Ok(())
    },
    may_be_gone: |name| name.starts_with("d/") || name == "f/1",
    then: |archive, _| {
        for gone in ["/tree/moved", "/tree/copied", "/tree/f/renamed"] {
            remove(archive, &path(gone)).unwrap();
        }
    },
};

fn in_file(at: &Path) -> Catalog {
    Catalog::open(at).unwrap()
}

/// Databases of the tests' server, one for each place.
fn in_databases(server: Arc<PostgresServer>) -> impl Fn(&Path) -> Catalog {
    let urls = Mutex::new(BTreeMap::new());
    move |at| {
        let mut urls = urls.lock().unwrap();
        let url = urls.entry(at.to_owned()).or_insert_with(|| server.new_database());
        Catalog::connect(&PostgresUrl::parse(url).unwrap()).unwrap()
    }
}

#[test]
fn store_that_stops_at_any_write_loses_nothing() {
    stop_at_each(STORE, &in_file);
}

#[test]
fn repack_that_stops_at_any_write_loses_nothing() {
    stop_at_each(REPACK, &in_file);
}

#[test]
fn removal_that_stops_at_any_write_loses_nothing_else() {
    stop_at_each(REMOVE, &in_file);
}

#[test]
fn change_of_modes_that_stops_at_any_write_loses_nothing() {
    stop_at_each(MODES, &in_file);
}

#[test]
fn change_of_names_that_stops_at_any_write_loses_nothing() {
    stop_at_each(NAMES, &in_file);
}

#[test]
fn with_a_database_nothing_is_lost_either() {
    let Some(server) = PostgresServer::shared() else { return };
    stop_at_each(REMOVE, &in_databases(server));
}

#[test]
fn database_that_loses_its_last_commits_has_them_again() {
    // What is not synced is lost in a crash.
    const SETTINGS: &[&str] = &["synchronous_commit=off", "wal_writer_delay=10s"];
    let Some(mut server) = PostgresServer::start(SETTINGS) else { return };
    let place = in_memory();
    let (at, tree) = (place.path(), place.path().join("tree"));
    let url = PostgresUrl::parse(&server.new_database()).unwrap();
    let mut have_lost = 0;
    for round in 0..3u8 {
        write_tree(&tree, 1 + round % 2);
        let (archive, _) = archive_with(at, Catalog::connect(&url).unwrap(), EVER, false);
        store(&archive, &tree).unwrap();
        let before = archive.catalog().applied().unwrap();
        server.crash(SETTINGS);
        let sql = |sql: &str| server.sql(url.database().unwrap(), sql).trim().to_owned();
        let schema = sql("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'sheaf%'");
        let number = || sql(&format!("SELECT number FROM {schema}.applied")).parse::<u64>();
        have_lost += u32::from(schema.is_empty() || number().unwrap() < before);
        // Who goes on is told once, and has all of it again then.
        let mut catalog = archive.catalog();
        let told = catalog.catch_up(archive.store()).unwrap_err();
        assert!(matches!(told, CatalogError::Server { .. }), "{told}");
        assert_eq!(catalog.catch_up(archive.store()).unwrap(), before);
        drop(catalog);
        let (after, _) = archive_with(at, Catalog::connect(&url).unwrap(), EVER, false);
        assert_eq!(after.catalog().applied().unwrap(), before);
        let damaged = |error| panic!("{error}");
        verify(&after, &ArchivePath::ROOT, VerifyOptions::default(), &damaged).unwrap();
        let fail = |event: ArchiveEvent| panic!("{event:?}");
        let to = at.join(format!("back-{round}"));
        fetch(&after, &path("/tree"), &to, FetchOptions::default(), &fail).unwrap();
        assert_same(&tree, &to.join("tree"));
    }
    assert!(have_lost > 0, "the server has lost nothing");
}

#[test]
fn leftovers_that_may_be_of_a_writer_that_goes_on_stay() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    write_tree(&tree, 1);
    let (stopped, _) = archive(place.path(), "catalog", 4, false);
    store(&stopped, &tree).unwrap_err();
    let (after, _) = archive(place.path(), "catalog", EVER, false);
    let found = repair(&after, RepairOptions::default()).unwrap();
    assert_eq!(found.leftovers, 0);
    assert!(found.young > 0);
    store(&after, &tree).unwrap();
    remove(&after, &path("/tree/d")).unwrap();
    let age = Duration::ZERO;
    let removed = repair(&after, RepairOptions { age, dry_run: false }).unwrap();
    assert!(removed.leftovers > found.young, "{removed:?}");
    let damaged = |error| panic!("{error}");
    verify(&after, &ArchivePath::ROOT, VerifyOptions::default(), &damaged).unwrap();
}
