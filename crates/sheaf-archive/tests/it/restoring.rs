//! A log that is written again, by one that is broken off at any of its writes: nothing of what it would have kept is
//! lost, nobody takes the archive for whole meanwhile, and the next one does the rest.
use crate::crash::{EVER, in_memory, stopping};
use crate::round::path;
use sheaf_archive::{
    Archive, ArchiveError, ArchiveEvent, ArchivePath, Catalog, CatalogError, FoundVersion,
    LocalStore, RepairOptions, SaveOptions, Store, StoreError, StoreKey, StoreWriter, StoredObject,
    VerifyOptions, Version, mark_version, repair, save, verify, versions,
};
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tempfile::TempDir;

const VERSIONS: usize = 6;

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
}

fn store_of(at: &Path) -> Arc<LocalStore> {
    Arc::new(LocalStore::create(at).unwrap())
}

/// A store with a version after each of some commits, and catalogs of after each.
struct Grown {
    place: TempDir,
    /// The number of the last commit at each version, from the first on.
    numbers: Vec<u64>,
}

impl Grown {
    fn new() -> Self {
        let place = in_memory();
        let at = |name: &str| place.path().join(name);
        let mut numbers = Vec::new();
        for number in 1..=VERSIONS {
            let directory = at("tree").join(format!("d{number}"));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("f"), format!("{number}\n")).unwrap();
            let catalog = Catalog::open(&at("catalog")).unwrap();
            let archive = Archive::new(store_of(&at("store")), catalog).unwrap();
            let fail = |event| panic!("{event:?}");
            let options = SaveOptions::default();
            save(&archive, &[at("tree")], &ArchivePath::ROOT, options, &fail).unwrap();
            let version = Version {
                host: "n7".to_owned(),
                name: Some(format!("v{number}")),
                ..Version::default()
            };
            let id = mark_version(&archive, version).unwrap();
            let found = versions(&archive).unwrap().into_iter().find(|found| found.id == id);
            numbers.push(found.unwrap().number);
            drop(archive);
            copy(&at("catalog"), &at(&format!("catalog-{number}")));
        }
        Self { place, numbers }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// The same store without the last commits of these versions.
    fn without(&self, lost: &[usize]) {
        let store = self.at("tried");
        fs::remove_dir_all(&store).or_else(|_| fs::create_dir(&store)).unwrap();
        let _ = fs::remove_dir(&store);
        copy(&self.at("store"), &store);
        for version in lost {
            let number = self.numbers[version - 1];
            fs::remove_file(store.join(format!("objects/log/{number:020}"))).unwrap();
        }
    }

    /// Has the log be written again by a catalog of a version, and stops that after so many writes. Whether it was
    /// stopped.
    fn restore(&self, known: usize, left: i64, is_deaf: bool) -> Result<bool, ArchiveError> {
        let catalog = self.at("of-it");
        let _ = fs::remove_dir_all(&catalog).or_else(|_| fs::remove_file(&catalog));
        copy(&self.at(&format!("catalog-{known}")), &catalog);
        let (store, left) = stopping(&self.at("tried"), left, is_deaf);
        let archive = Archive::as_known(store, Catalog::open(&catalog)?)?;
        let restored = archive.restore_log(false);
        let was_stopped = left.load(Ordering::SeqCst) < 0;
        drop(archive);
        // Its process is gone.
        let _ = fs::remove_dir_all(self.at("tried/objects/leases"));
        if was_stopped {
            return Ok(true);
        }
        restored.map(|_| false)
    }

    /// That the archive has these versions, each with its directories, and no others, and is whole.
    fn check(&self, left: &[usize], context: &str) {
        let archive = Archive::new(store_of(&self.at("tried")), Catalog::in_memory().unwrap());
        let archive = archive.unwrap_or_else(|error| panic!("{context}: {error}"));
        let age = Duration::ZERO;
        repair(&archive, RepairOptions { age, ..RepairOptions::default() }).unwrap();
        let damaged = |error| panic!("{context}: {error}");
        verify(&archive, &ArchivePath::ROOT, VerifyOptions::default(), &damaged).unwrap();
        let found = versions(&archive).unwrap();
        let named: Vec<usize> = found
            .iter()
            .map(|found| {
                found.version.as_ref().unwrap().name.as_ref().unwrap()[1..].parse().unwrap()
            })
            .collect();
        assert_eq!(named, left, "{context}");
        for (version, found) in named.iter().zip(&found) {
            let at = archive.at(found).unwrap();
            let directories = at.catalog().below(&path("/tree"), None, 100).unwrap();
            assert_eq!(directories.len(), version + 1, "{context}: v{version}");
        }
        let now = archive.catalog().below(&path("/tree"), None, 100).unwrap();
        assert_eq!(now.len(), VERSIONS + 1, "{context}");
    }

    /// Nobody takes it for whole, unless nothing was done yet that matters, or all.
    fn is_refused(&self) -> bool {
        let open = || store_of(&self.at("tried"));
        let written = Archive::new(open(), Catalog::in_memory().unwrap());
        let (_, read) = Archive::to_read(open(), Catalog::in_memory().unwrap()).unwrap();
        assert_eq!(written.is_err(), read.is_some(), "{read:?}");
        written.is_err()
    }
}

/// The catalog is of a version; the last commits of others are lost, and versions are left.
fn stopped_anywhere(grown: &Grown, known: usize, lost: &[usize], left: &[usize]) {
    let mut refused = 0;
    for is_deaf in [false, true] {
        for writes in 0.. {
            let context = format!("{known} {lost:?} {writes} {is_deaf}");
            grown.without(lost);
            let was_stopped = grown.restore(known, writes, is_deaf).unwrap();
            refused += u64::from(grown.is_refused());
            // Again, and by the catalog of another machine where there is a plan.
            let store = store_of(&grown.at("tried"));
            let plan = grown.at("tried/objects/restoring/plan");
            let is_planned = plan.exists() || plan.with_file_name("plan-copy").exists();
            assert!(!is_planned || Catalog::check_restored(&*store).is_err());
            match grown.restore(if is_planned { VERSIONS } else { known }, EVER, false) {
                Ok(was_stopped) => assert!(!was_stopped),
                Err(ArchiveError::Catalog(CatalogError::InOrder { .. })) => assert!(!is_planned),
                // The log is another one by now than this catalog knows.
                Err(error) => assert!(!is_planned && !grown.is_refused(), "{context}: {error}"),
            }
            grown.check(left, &context);
            assert!(
                fs::read_dir(grown.at("tried/objects/restoring")).map_or(0, Iterator::count) == 0
            );
            if !was_stopped {
                assert!(writes > 10, "{context}");
                break;
            }
        }
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn log_that_is_written_again_is_whole_or_planned() {
    let grown = Grown::new();
    // The catalog knows the lost commit alone, or one before the last, or all.
    stopped_anywhere(&grown, 1, &[1], &[1, 2, 3, 4, 5, 6]);
    stopped_anywhere(&grown, 3, &[2], &[1, 3, 4, 5, 6]);
    stopped_anywhere(&grown, 5, &[2, 5], &[1, 5, 6]);
    stopped_anywhere(&grown, 6, &[3, 6], &[1, 2, 6]);
}

#[test]
fn plan_that_is_damaged_is_named_and_changes_nothing() {
    let grown = Grown::new();
    grown.without(&[2]);
    let mut writes = 0;
    let plan = grown.at("tried/objects/restoring/plan");
    let plan_copy = plan.with_file_name("plan-copy");
    while !plan_copy.exists() {
        writes += 1;
        grown.without(&[2]);
        grown.restore(3, writes, false).unwrap();
    }
    let good = fs::read(&plan).unwrap();
    let log = || fs::read_dir(grown.at("tried/objects/log")).unwrap().count();
    let before = log();
    for at in (0..good.len()).step_by(7) {
        let mut bad = good.clone();
        bad[at] ^= 0x20;
        fs::write(&plan, &bad).unwrap();
        fs::write(&plan_copy, &bad[..at]).unwrap();
        let failed = grown.restore(3, EVER, false).unwrap_err();
        let is_named = matches!(failed, ArchiveError::Catalog(CatalogError::Plan { .. }));
        assert!(is_named && grown.is_refused() && log() == before, "{at}: {failed}");
    }
    // One of the two is enough. A commit that is to be written and is not there is named, too.
    fs::write(&plan_copy, &good).unwrap();
    let pieces: Vec<PathBuf> = fs::read_dir(plan.parent().unwrap())
        .unwrap()
        .map(|piece| piece.unwrap().path())
        .filter(|piece| {
            piece.metadata().unwrap().len() > 0
                && !piece.starts_with(plan.parent().unwrap().join("plan"))
        })
        .filter(|piece| *piece != plan && *piece != plan_copy)
        .collect();
    assert!(!pieces.is_empty());
    let piece = fs::read(&pieces[0]).unwrap();
    fs::write(&pieces[0], b"x").unwrap();
    let failed = grown.restore(3, EVER, false).unwrap_err();
    assert!(matches!(failed, ArchiveError::Catalog(CatalogError::Plan { .. })), "{failed}");
    assert!(grown.is_refused());
    fs::write(&pieces[0], piece).unwrap();
    assert!(!grown.restore(3, EVER, false).unwrap());
    grown.check(&[1, 3, 4, 5, 6], "");
}

/// A pack whose last index is lost, behind removals: what is at home is stored again, what is not comes back of the pack,
/// and all commands are as before.
#[test]
fn pack_whose_last_index_is_lost_is_filled_again() {
    for (generations, at_home, damage) in
        [(1, true, false), (1, false, true), (2, true, true), (2, false, false)]
    {
        let context = format!("{generations} {at_home} {damage}");
        let place = in_memory();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("tree/d")).unwrap();
        for number in 1..=6 {
            fs::write(at("tree/d").join(format!("f{number}")), format!("{number}\n").repeat(100))
                .unwrap();
        }
        let open = || {
            Archive::new(store_of(&at("store")), Catalog::open(&at("catalog")).unwrap()).unwrap()
        };
        let store_all = || {
            let (archive, told) = (open(), std::sync::Mutex::new(0));
            let fail = |_| *told.lock().unwrap() += 1;
            let options = SaveOptions::default();
            let saved = save(&archive, &[at("tree")], &ArchivePath::ROOT, options, &fail).unwrap();
            (saved.failed, *told.lock().unwrap())
        };
        assert_eq!(store_all(), (0, 0));
        for number in 1..=generations {
            fs::remove_file(at("tree/d").join(format!("f{number}"))).unwrap();
            let gone = path(&format!("/tree/d/f{number}"));
            sheaf_archive::remove(&open(), &gone).unwrap();
        }
        let index = found_below(&at("store/objects/packs"), &format!("*.idx.{generations}"));
        if damage {
            fs::write(&index, "x").unwrap()
        } else {
            fs::remove_file(&index).unwrap()
        }
        if !at_home {
            fs::remove_dir_all(at("tree")).unwrap();
            fs::create_dir_all(at("tree/other")).unwrap();
        }
        let stored = store_all();
        assert_eq!(stored.0 > 0, at_home, "{context}: {stored:?}");
        let repaired = repair(&open(), RepairOptions::default()).unwrap();
        assert_eq!((repaired.refilled, repaired.indexes_lost), (1, 0), "{context}: {repaired:?}");
        let damaged = |error| panic!("{context}: {error}");
        verify(&open(), &ArchivePath::ROOT, VerifyOptions::default(), &damaged).unwrap();
        assert_eq!(store_all(), (0, 0), "{context}");
        let back = at("back");
        let fail = |event| panic!("{event:?}");
        let options = sheaf_archive::FetchOptions::default();
        sheaf_archive::fetch(&open(), &path("/tree/d"), &back, options, &fail).unwrap();
        for number in 1..=6 {
            let file = fs::read_to_string(back.join(format!("d/f{number}"))).unwrap();
            assert_eq!(file, format!("{number}\n").repeat(100), "{context}");
        }
        let again = repair(&open(), RepairOptions::default()).unwrap();
        assert_eq!((again.refilled, again.indexes_lost), (0, 0), "{context}");
    }
}

/// The one file of this name.
fn found_below(directory: &Path, name: &str) -> PathBuf {
    let found = Command::new("find").arg(directory).args(["-name", name]).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    assert_eq!(found.lines().count(), 1, "{name}: {found}");
    PathBuf::from(found.trim())
}

/// A store whose objects are created when somebody else has done something.
struct Between {
    store: LocalStore,
    at: u64,
    created: std::sync::atomic::AtomicU64,
    act: Box<dyn Fn() + Send + Sync>,
}

impl Store for Between {
    fn create(&self, key: &StoreKey) -> Result<Box<dyn StoreWriter>, StoreError> {
        if self.created.fetch_add(1, Ordering::SeqCst) == self.at {
            (self.act)();
        }
        self.store.create(key)
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
        self.store.remove(key)
    }
}

/// An archive of another machine, whose catalog knows all.
fn opened(grown: &Grown, store: Arc<dyn Store>) -> Option<Archive> {
    let catalog = grown.at("of-another");
    let _ = fs::remove_dir_all(&catalog).or_else(|_| fs::remove_file(&catalog));
    copy(&grown.at(&format!("catalog-{VERSIONS}")), &catalog);
    Archive::new(store, Catalog::open(&catalog).unwrap()).ok()
}

/// Stores a directory as a version; whether that is said to be done.
fn stores(grown: &Grown, archive: &Archive) -> bool {
    let source = grown.at("meanwhile");
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("f"), "meanwhile").unwrap();
    let fail = |event: ArchiveEvent| panic!("{event:?}");
    let options = SaveOptions::default();
    let saved = save(archive, &[source], &ArchivePath::ROOT, options, &fail);
    let name = Some("meanwhile".to_owned());
    let version = Version { host: "n7".to_owned(), name, ..Version::default() };
    saved.is_ok() && mark_version(archive, version).is_ok()
}

/// Writes the log again that has lost a commit, or gives up its end.
fn changes(grown: &Grown, store: Arc<dyn Store>, drops: bool) {
    let catalog = grown.at("of-it");
    let known = if drops { VERSIONS - 1 } else { VERSIONS };
    let _ = fs::remove_dir_all(&catalog).or_else(|_| fs::remove_file(&catalog));
    copy(&grown.at(&format!("catalog-{known}")), &catalog);
    let archive = Archive::as_known(store, Catalog::open(&catalog).unwrap()).unwrap();
    let _ = match drops {
        true => archive.drop_log(grown.numbers[VERSIONS - 1], false).map(drop),
        false => archive.restore_log(false).map(drop),
    };
}

/// What is done when.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// The log is changed within a store.
    Changing,
    /// Something is stored while the log is changed.
    Storing,
    /// The same, by one that was opened before.
    StoringOpen,
}

/// Does one within the other, and the change again at the end. Whether it was said to be stored, and is there.
fn both(grown: &Arc<Grown>, order: Order, drops: bool, at: u64) -> bool {
    let context = format!("{order:?} {drops} {at}");
    // The catalog of whoever stores knows what is lost, or it is lost behind that.
    grown.without(&[if drops { VERSIONS } else { 3 }]);
    let was_stored = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let before = match order {
        Order::StoringOpen => opened(grown, store_of(&grown.at("tried"))),
        _ => None,
    };
    let act: Box<dyn Fn() + Send + Sync> = {
        let (grown, was_stored) = (grown.clone(), was_stored.clone());
        Box::new(move || match order {
            Order::Changing => changes(&grown, store_of(&grown.at("tried")), drops),
            _ => {
                let now = opened(&grown, store_of(&grown.at("tried")));
                let archive = before.as_ref().or(now.as_ref());
                let done = archive.is_some_and(|archive| stores(&grown, archive));
                was_stored.store(done, Ordering::SeqCst);
            }
        })
    };
    let store = LocalStore::create(&grown.at("tried")).unwrap();
    let between = Arc::new(Between { store, at, created: Default::default(), act });
    match order {
        Order::Changing => {
            let archive = opened(grown, between);
            let done = archive.is_some_and(|archive| stores(grown, &archive));
            was_stored.store(done, Ordering::SeqCst);
        }
        _ => changes(grown, between, drops),
    }
    // Whatever was refused may be done now.
    changes(grown, store_of(&grown.at("tried")), drops);
    let archive = Archive::new(store_of(&grown.at("tried")), Catalog::in_memory().unwrap());
    let archive = archive.unwrap_or_else(|error| panic!("{context}: {error}"));
    repair(&archive, RepairOptions { age: Duration::ZERO, ..RepairOptions::default() }).unwrap();
    let damaged = |error| panic!("{context}: {error}");
    verify(&archive, &ArchivePath::ROOT, VerifyOptions::default(), &damaged).unwrap();
    let was_stored = was_stored.load(Ordering::SeqCst);
    if was_stored {
        assert!(archive.catalog().directory(&path("/meanwhile")).unwrap().is_some(), "{context}");
        let is_marked = |found: &&FoundVersion| {
            found.version.as_ref().unwrap().name.as_deref() == Some("meanwhile")
        };
        assert_eq!(versions(&archive).unwrap().iter().filter(is_marked).count(), 1, "{context}");
    }
    was_stored
}

/// Whoever stores while the log is changed, or changes it while somebody stores, at whatever moment: what is said to be
/// stored is there, and the log goes on.
#[test]
fn store_and_restoring_exclude_each_other() {
    let grown = Arc::new(Grown::new());
    for order in [Order::Changing, Order::Storing, Order::StoringOpen] {
        let mut stored = 0;
        for drops in [false, true] {
            for at in 0..14 {
                stored += u64::from(both(&grown, order, drops, at));
            }
        }
        eprintln!("{order:?}: {stored} of 28 were stored");
        assert!(order == Order::Storing || stored > 0, "{order:?}");
    }
}

/// Two packs of a directory have one name, and both have lost their last index: the later content stays, whichever of them
/// comes first.
#[test]
fn of_two_packs_without_their_indexes_the_later_content_stays() {
    for round in 0..8 {
        let place = in_memory();
        let at = |name: &str| place.path().join(name);
        let open = || {
            Archive::new(store_of(&at("store")), Catalog::open(&at("catalog")).unwrap()).unwrap()
        };
        fs::create_dir_all(at("tree/d")).unwrap();
        let fail = |event: ArchiveEvent| panic!("{event:?}");
        for (content, names) in [("old", ["a", "f", "x"]), ("new", ["b", "f", "y"])] {
            for name in names {
                fs::write(at("tree/d").join(name), format!("{content} {name}")).unwrap();
            }
            crate::round::settle();
            let options = SaveOptions::default();
            save(&open(), &[at("tree")], &ArchivePath::ROOT, options, &fail).unwrap();
        }
        // Each pack has a later index then.
        for name in ["x", "y"] {
            sheaf_archive::remove(&open(), &path(&format!("/tree/d/{name}"))).unwrap();
        }
        let mut find = Command::new("find");
        let found =
            find.arg(at("store/objects/packs")).args(["-name", "*.idx.*"]).output().unwrap();
        let indexes = String::from_utf8(found.stdout).unwrap();
        for index in indexes.lines().filter(|index| !index.ends_with(".idx.0")) {
            fs::remove_file(index).unwrap();
        }
        let repaired = repair(&open(), RepairOptions::default()).unwrap();
        assert_eq!((repaired.refilled, repaired.indexes_lost), (2, 0), "{round}: {repaired:?}");
        let damaged = |error| panic!("{round}: {error}");
        verify(&open(), &ArchivePath::ROOT, VerifyOptions::default(), &damaged).unwrap();
        let back = at("back");
        let fail = |event| panic!("{event:?}");
        let options = sheaf_archive::FetchOptions::default();
        sheaf_archive::fetch(&open(), &path("/tree/d"), &back, options, &fail).unwrap();
        for (name, content) in [("a", "old a"), ("b", "new b"), ("f", "new f")] {
            let read = fs::read_to_string(back.join("d").join(name)).unwrap();
            assert_eq!(read, content, "{round}");
        }
    }
}
