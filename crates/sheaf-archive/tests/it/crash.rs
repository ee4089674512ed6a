//! A writer that is stopped at any of its writes: what was committed stays, nothing half is there, and
//! what was left over is found.
use crate::round::{path, settle};
use crate::trees::assert_same;
use sheaf_archive::{
    Archive, ArchiveEvent, ArchivePath, Catalog, FetchOptions, LocalStore, RepairOptions,
    SaveOptions, Store, StoreError, StoreKey, StoreWriter, StoredObject, VerifyOptions, fetch,
    remove, repair, save, verify,
};
use sheaf_core::Errno;
use std::fs;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
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
        counted(&self.left, self.is_deaf, || self.store.remove(key))
    }
}

/// An archive whose store stops after so many writes.
fn archive(at: &Path, catalog: &str, left: i64, is_deaf: bool) -> (Archive, Arc<AtomicI64>) {
    let left = Arc::new(AtomicI64::new(left));
    let store = LocalStore::create(&at.join("store")).unwrap();
    let store = StoppedStore { store, left: left.clone(), is_deaf };
    let catalog = Catalog::open(&at.join(catalog)).unwrap();
    (Archive::new(Arc::new(store), catalog).unwrap(), left)
}

const EVER: i64 = i64::MAX;

fn options() -> SaveOptions {
    // Small packs, so that there are several in a directory.
    SaveOptions { pack_bytes: 4096, ..SaveOptions::default() }
}

fn store(archive: &Archive, tree: &Path) -> Result<(), sheaf_archive::ArchiveError> {
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

/// Each file is as it was in one of the versions, and verified.
fn check(archive: &Archive, to: &Path) {
    let damaged = |error| panic!("{error}");
    verify(archive, &ArchivePath::ROOT, VerifyOptions::default(), &damaged).unwrap();
    let fail = |event: ArchiveEvent| panic!("{event:?}");
    fetch(archive, &path("/tree"), to, FetchOptions::default(), &fail).unwrap();
    for directory in ["d", "d/e", "f"] {
        for number in 0..6 {
            let read =
                fs::read_to_string(to.join("tree").join(directory).join(format!("{number}")));
            let read = read.unwrap();
            let is_of = |version| read == format!("{version} {directory} {number}\n").repeat(90);
            assert!(is_of(1) || number % 2 == 0 && is_of(2), "{directory}/{number}: {read:?}");
        }
    }
}

/// Stops the work at each of its writes, and looks at what is there then.
fn stop_at_each(work: impl Fn(&Archive, &Path) -> Result<(), sheaf_archive::ArchiveError>) {
    for is_deaf in [false, true] {
        let mut stop = 0;
        loop {
            let place = tempfile::tempdir().unwrap();
            let (at, tree) = (place.path(), place.path().join("tree"));
            write_tree(&tree, 1);
            let (first, _) = archive(at, "catalog", EVER, false);
            store(&first, &tree).unwrap();
            drop(first);
            write_tree(&tree, 2);
            let (second, left) = archive(at, "catalog", stop, is_deaf);
            let worked = work(&second, &tree);
            drop(second);
            let is_stopped = left.load(Ordering::SeqCst) < 0;
            assert_eq!(worked.is_err(), is_stopped, "{stop}");

            // With the catalog that there is, and with one that is made again.
            for (catalog, to) in [("catalog", "one"), ("again", "other")] {
                let (after, _) = archive(at, catalog, EVER, false);
                check(&after, &at.join(to));
            }
            assert_same(&at.join("one/tree"), &at.join("other/tree"));
            let (after, _) = archive(at, "catalog", EVER, false);
            let age = Duration::ZERO;
            let dry = RepairOptions { age, dry_run: true };
            let found = repair(&after, dry).unwrap();
            let removed = repair(&after, RepairOptions { age, dry_run: false }).unwrap();
            assert_eq!(found, removed);
            assert_eq!(repair(&after, dry).unwrap().leftovers, 0);
            check(&after, &at.join("one"));
            // And it goes on.
            store(&after, &tree).unwrap();
            let fail = |event: ArchiveEvent| panic!("{event:?}");
            fetch(&after, &path("/tree"), &at.join("whole"), FetchOptions::default(), &fail)
                .unwrap();
            assert_same(&tree, &at.join("whole/tree"));
            if !is_stopped {
                assert!(stop > 10, "it has stopped nowhere");
                break;
            }
            stop += 1;
        }
    }
}

#[test]
fn a_store_that_stops_at_any_write_loses_nothing() {
    stop_at_each(store);
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
