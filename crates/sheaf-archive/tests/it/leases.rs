//! Commands that remove leftovers beside commands that write: what a command says that it has archived is
//! there, whatever the clocks of machines say, and one that was stopped for long does not say so.
use crate::crash::in_memory;
use crate::round::{path, settle};
use crate::stores::StorePlace;
use crate::trees::assert_same;
use rustix::process::{Pid, Signal, kill_process};
use sheaf_archive::{
    Archive, ArchiveError, ArchiveEvent, ArchivePath, Catalog, CatalogError, FetchOptions,
    LeaseTimes, LocalStore, RepackOptions, RepairOptions, RepairReport, SaveOptions, SaveReport,
    Store, StoreError, StoreKey, StoreWriter, StoredObject, VerifyOptions, fetch, remove, repack,
    repair, save, verify,
};
use sheaf_core::{Errno, lock};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

const DAY: i64 = 24 * 3600;
const AT_ANY_AGE: RepairOptions = RepairOptions { age: Duration::ZERO, dry_run: false };

type Hook = Box<dyn Fn(&StoreKey) + Send + Sync>;

/// A store with another clock than this machine, in which something happens before an object is begun.
struct OddStore {
    store: Arc<dyn Store>,
    /// Seconds that its clock is ahead.
    ahead: Arc<AtomicI64>,
    before: Option<Hook>,
    is_read_only: bool,
}

impl OddStore {
    fn shifted(&self, time: SystemTime) -> SystemTime {
        let ahead = self.ahead.load(Ordering::SeqCst);
        let by = Duration::from_secs(ahead.unsigned_abs());
        if ahead < 0 { time - by } else { time + by }
    }

    fn refuse(&self) -> Result<(), StoreError> {
        let error = StoreError { place: "test".to_owned(), doing: "is read", errno: Errno::ROFS };
        if self.is_read_only { Err(error) } else { Ok(()) }
    }
}

impl Store for OddStore {
    fn create(&self, key: &StoreKey) -> Result<Box<dyn StoreWriter>, StoreError> {
        self.refuse()?;
        self.before.iter().for_each(|before| before(key));
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
        self.store.list(parts, &mut |object| {
            each(StoredObject { written: self.shifted(object.written), ..object })
        })
    }

    fn remove(&self, key: &StoreKey) -> Result<(), StoreError> {
        self.refuse()?;
        self.store.remove(key)
    }

    fn put_passing(&self, key: &StoreKey, bytes: &[u8]) -> Result<SystemTime, StoreError> {
        self.refuse()?;
        Ok(self.shifted(self.store.put_passing(key, bytes)?))
    }
}

/// A store whose clock is so many seconds ahead.
pub fn with_clock(store: Arc<dyn Store>, ahead: i64) -> Arc<dyn Store> {
    let ahead = Arc::new(ahead.into());
    Arc::new(OddStore { store, ahead, before: None, is_read_only: false })
}

/// An archive in a directory.
struct Shop {
    directory: tempfile::TempDir,
    /// Seconds that the clock of the store is ahead.
    ahead: Arc<AtomicI64>,
}

impl Shop {
    fn new() -> Self {
        let shop = Self { directory: in_memory(), ahead: Arc::default() };
        LocalStore::create(&shop.path("store")).unwrap();
        shop
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(LocalStore::open(&self.path("store")).unwrap())
    }

    fn open(&self, before: Option<Hook>) -> Archive {
        self.open_with(before, LeaseTimes::default())
    }

    fn open_with(&self, before: Option<Hook>, times: LeaseTimes) -> Archive {
        let ahead = self.ahead.clone();
        let store = OddStore { store: self.store(), ahead, before, is_read_only: false };
        let archive = Archive::new(Arc::new(store), Catalog::in_memory().unwrap()).unwrap();
        archive.with_lease_times(times)
    }

    /// A tree with these directories, each of a few files.
    fn tree(&self, name: &str, directories: &[&str]) -> PathBuf {
        let tree = self.path(name);
        write(&tree, directories, 1);
        settle();
        tree
    }

    /// Puts a lease of another machine into the store.
    fn put_lease(&self, kind: &str) -> StoreKey {
        let key = format!("leases/{kind}-{:032x}-0", 77);
        let text =
            b"sheaf lease, version 1\nhost other\nboot b\nnamespace 7\nprocess 4711\nstarted 1\n";
        let key = StoreKey::new(&key).unwrap();
        self.store().put_passing(&key, text).unwrap();
        key
    }

    fn leases(&self) -> Vec<StoreKey> {
        let mut keys = Vec::new();
        self.store()
            .list(&["leases"], &mut |object| {
                keys.push(object.key);
                Ok(())
            })
            .unwrap();
        keys
    }

    /// All that is archived is whole, and is what is in a tree.
    fn assert_archived(&self, tree: &Path) {
        let archive = self.open(None);
        assert_whole(&archive);
        let to = self.path("back");
        let fail = |event: ArchiveEvent| panic!("{event:?}");
        let name = path(&format!("/{}", tree.file_name().unwrap().to_str().unwrap()));
        fetch(&archive, &name, &to, FetchOptions::default(), &fail).unwrap();
        assert_same(tree, &to.join(tree.file_name().unwrap()));
        fs::remove_dir_all(to).unwrap();
    }
}

fn write(tree: &Path, directories: &[&str], version: u32) {
    for directory in directories {
        fs::create_dir_all(tree.join(directory)).unwrap();
        for name in ["a", "b", "large"] {
            let bytes = if name == "large" { 30_000 } else { 500 };
            let line = format!("{directory} {name} {version}\n");
            fs::write(tree.join(directory).join(name), line.repeat(bytes / line.len())).unwrap();
        }
    }
}

fn assert_whole(archive: &Archive) {
    let damaged = |error| panic!("{error}");
    verify(archive, &ArchivePath::ROOT, VerifyOptions::default(), &damaged).unwrap();
}

/// One after the other, and large files alone.
fn options() -> SaveOptions {
    SaveOptions { workers: 1, member_bytes_max: 8192, ..SaveOptions::default() }
}

/// What storing a tree says, and tells.
fn store(archive: &Archive, tree: &Path) -> (Result<SaveReport, ArchiveError>, Vec<String>) {
    let told = Mutex::new(Vec::new());
    let tell = |event: ArchiveEvent| lock(&told).push(event.to_string());
    let saved = save(archive, &[tree.to_owned()], &ArchivePath::ROOT, options(), &tell);
    (saved, told.into_inner().unwrap())
}

/// Stores a tree; before each commit, and each object, something is done with the archive, as another.
fn store_beside(shop: &Arc<Shop>, tree: &Path, beside: fn(&Archive)) -> SaveReport {
    let other = shop.clone();
    let hook = move |key: &StoreKey| {
        if key.as_str().starts_with("log/") || key.as_str().contains(".idx.") {
            beside(&other.open(None));
        }
    };
    let (saved, told) = store(&shop.open(Some(Box::new(hook))), tree);
    assert_eq!(told, Vec::<String>::new());
    saved.unwrap()
}

#[test]
fn repair_at_any_age_spares_what_a_store_writes() {
    let shop = Arc::new(Shop::new());
    let tree = shop.tree("tree", &["d", "e"]);
    let report = store_beside(&shop, &tree, |other| {
        let found = repair(other, AT_ANY_AGE).unwrap();
        assert_eq!((found.leftovers, found.indexes), (0, 0));
        // Before the first object of a pack there is nothing to spare.
        assert!(found.writers == 1 || found.young == 0, "{found:?}");
    });
    assert_eq!((report.stored, report.failed), (6, 0));
    shop.assert_archived(&tree);
    // The writer has ended, and the same command is as free as before.
    remove(&shop.open(None), &path("/tree/d")).unwrap();
    let found = repair(&shop.open(None), AT_ANY_AGE).unwrap();
    assert!(found.leftovers > 0, "{found:?}");
    assert_eq!((found.young, found.writers), (0, 0));
    assert_eq!(shop.leases(), []);
}

#[test]
fn ages_are_those_of_the_store_s_clock() {
    for ahead in [2 * DAY, -2 * DAY, 400 * DAY] {
        let shop = Arc::new(Shop::new());
        shop.ahead.store(ahead, Ordering::SeqCst);
        let tree = shop.tree("tree", &["d", "e"]);
        store_beside(&shop, &tree, |other| {
            assert_eq!(repair(other, RepairOptions::default()).unwrap().leftovers, 0);
        });
        shop.assert_archived(&tree);
        remove(&shop.open(None), &path("/tree/d")).unwrap();
        let young = repair(&shop.open(None), RepairOptions::default()).unwrap();
        assert!(young.leftovers == 0 && young.young > 0, "{ahead}: {young:?}");
        // Two days later they are old, by whatever clock.
        for object in ["packs", "data"] {
            let old = SystemTime::now() - Duration::from_secs(2 * DAY.unsigned_abs());
            set_times(&shop.path("store/objects").join(object), old);
        }
        let dry = RepairOptions { dry_run: true, ..RepairOptions::default() };
        let old = repair(&shop.open(None), dry).unwrap();
        assert_eq!((old.leftovers, old.young), (young.young, 0), "{ahead}");
        assert_eq!(repair(&shop.open(None), RepairOptions::default()).unwrap(), old);
    }
}

fn set_times(directory: &Path, to: SystemTime) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            set_times(&path, to);
        } else {
            fs::File::open(&path).unwrap().set_modified(to).unwrap();
        }
    }
}

#[test]
fn writer_whose_lease_ended_does_not_commit_what_is_gone() {
    let shop = Arc::new(Shop::new());
    let tree = shop.tree("tree", &["d", "e"]);
    let (other, is_done) = (shop.clone(), AtomicBool::new(false));
    // The process is stopped when it has written a pack, for an hour.
    let hook = move |key: &StoreKey| {
        if key.as_str().contains(".idx.") && !is_done.swap(true, Ordering::SeqCst) {
            other.ahead.store(3600, Ordering::SeqCst);
            // The lease that it has is an hour old: only what is written from now on is not.
            set_times(&other.path("store/objects"), SystemTime::now() - Duration::from_secs(3600));
            let found = repair(&other.open(None), AT_ANY_AGE).unwrap();
            assert!(found.leftovers > 0 && found.writers == 0, "{found:?}");
        }
    };
    let (saved, told) = store(&shop.open(Some(Box::new(hook))), &tree);
    let saved = saved.unwrap();
    assert_eq!((saved.failed, saved.stored), (1, 3), "{told:?}");
    assert_eq!(
        told,
        [format!("{}", CatalogError::Removed { path: path("/tree/d") })],
        "it is the directory whose pack is gone"
    );
    assert_whole(&shop.open(None));
    assert_eq!(shop.leases(), []);
    let (again, told) = store(&shop.open(None), &tree);
    assert_eq!((again.unwrap().stored, told), (3, Vec::new()));
    shop.assert_archived(&tree);
}

#[test]
fn writer_stopped_during_its_commit_does_not_say_success() {
    let shop = Arc::new(Shop::new());
    let tree = shop.tree("tree", &["d"]);
    let (_, told) = store(&shop.open(None), &shop.tree("first", &["d"]));
    assert_eq!(told, Vec::<String>::new());
    let other = shop.clone();
    let hook = move |key: &StoreKey| {
        // What is checked before a commit was there.
        if key.as_str().starts_with("log/") {
            set_times(&other.path("store/objects"), SystemTime::now() - Duration::from_secs(3600));
            repair(&other.open(None), AT_ANY_AGE).unwrap();
        }
    };
    let (saved, _) = store(&shop.open(Some(Box::new(hook))), &tree);
    let error = saved.unwrap_err();
    let is_ended = |error: &ArchiveError| {
        matches!(error, ArchiveError::Catalog(CatalogError::LeaseEnded { .. }))
    };
    assert!(is_ended(&error), "{error}");
    assert!(error.to_string().contains("stopped for longer than its lease"), "{error}");
}

#[test]
fn writer_stopped_before_its_commit_commits_nothing_gone() {
    let shop = Arc::new(Shop::new());
    let tree = shop.tree("tree", &["d", "e"]);
    // What waits for a commit was looked for when it was written; the commit is that of the root.
    let (other, count) = (shop.clone(), AtomicI64::new(0));
    let hook = move |key: &StoreKey| {
        if key.as_str().contains(".idx.") && count.fetch_add(1, Ordering::SeqCst) == 1 {
            let old = SystemTime::now() - Duration::from_secs(3600);
            set_times(&other.path("store/objects"), old);
            assert!(repair(&other.open(None), AT_ANY_AGE).unwrap().leftovers > 2);
        }
    };
    let (saved, told) = store(&shop.open(Some(Box::new(hook))), &tree);
    let saved = saved.unwrap();
    assert_eq!((saved.failed, saved.stored, saved.stored_bytes), (2, 0, 0), "{told:?}");
    assert!(told.iter().all(|told| told.contains("has been removed from the store since")));
    let (again, told) = store(&shop.open(None), &tree);
    assert_eq!((again.unwrap().stored, told), (6, Vec::new()));
    shop.assert_archived(&tree);
}

#[test]
fn writer_whose_lease_ended_commits_what_is_still_there() {
    let shop = Arc::new(Shop::new());
    let tree = shop.tree("tree", &["d", "e"]);
    let other = shop.clone();
    let hook = move |key: &StoreKey| {
        if key.as_str().contains(".idx.") || key.as_str().starts_with("log/") {
            let old = SystemTime::now() - Duration::from_secs(3600);
            set_times(&other.path("store/objects"), old);
            // What is an hour old is too young for it.
            assert_eq!(repair(&other.open(None), RepairOptions::default()).unwrap().leftovers, 0);
        }
    };
    let (saved, told) = store(&shop.open(Some(Box::new(hook))), &tree);
    assert_eq!((saved.unwrap().stored, told), (6, Vec::new()));
    shop.assert_archived(&tree);
    assert_eq!(shop.leases(), []);
}

#[test]
fn writer_whose_lease_ended_stops_beside_a_repair() {
    let shop = Arc::new(Shop::new());
    let tree = shop.tree("tree", &["d"]);
    let other = shop.clone();
    let hook = move |key: &StoreKey| {
        if key.as_str().contains(".idx.") {
            other.leases().iter().for_each(|key| other.store().remove(key).unwrap());
            other.put_lease("remover");
        }
    };
    let (saved, _) = store(&shop.open(Some(Box::new(hook))), &tree);
    let error = saved.unwrap_err().to_string();
    assert!(error.contains("process 4711 of host other may have removed"), "{error}");
}

#[test]
fn lease_of_another_machine_counts_until_its_term_ends() {
    let shop = Shop::new();
    let tree = shop.tree("tree", &["d"]);
    store(&shop.open(None), &tree).0.unwrap();
    remove(&shop.open(None), &path("/tree")).unwrap();
    let lease = shop.put_lease("writer");
    let dry = RepairOptions { dry_run: true, ..AT_ANY_AGE };
    for options in [dry, AT_ANY_AGE] {
        let found = repair(&shop.open(None), options).unwrap();
        assert!(found.leftovers == 0 && found.young > 0, "{found:?}");
        assert_eq!((found.writers, &shop.leases()[..]), (1, &[lease.clone()][..]));
    }
    let old = SystemTime::now() - LeaseTimes::default().term - Duration::from_secs(5);
    set_times(&shop.path("store/objects/leases"), old);
    let found = repair(&shop.open(None), dry).unwrap();
    assert!(found.leftovers > 0 && found.writers == 0, "{found:?}");
    assert_eq!(shop.leases(), [lease]);
    assert_eq!(repair(&shop.open(None), AT_ANY_AGE).unwrap(), found);
    assert_eq!(shop.leases(), []);
}

#[test]
fn leases_are_renewed_as_long_as_a_command_writes() {
    let shop = Arc::new(Shop::new());
    let tree = shop.tree("tree", &["d", "e"]);
    let times = LeaseTimes { term: Duration::from_secs(2), renewal: Duration::from_millis(20) };
    let other = shop.clone();
    let hook = move |key: &StoreKey| {
        if key.as_str().contains(".idx.") {
            let numbers =
                || other.leases().iter().filter(|key| !key.as_str().ends_with("-0")).count();
            let deadline = std::time::Instant::now() + Duration::from_secs(60);
            while numbers() == 0 {
                assert!(std::time::Instant::now() < deadline, "it is not renewed");
                std::thread::sleep(Duration::from_millis(5));
            }
            // The first object alone would have ended.
            for lease in other.leases().iter().filter(|key| key.as_str().ends_with("-0")) {
                let file = other.path("store/objects").join(lease.as_str());
                let old = SystemTime::now() - Duration::from_secs(3);
                fs::File::open(file).unwrap().set_modified(old).unwrap();
            }
            let found = repair(&other.open_with(None, times), AT_ANY_AGE).unwrap();
            assert_eq!((found.leftovers, found.writers), (0, 1));
        }
    };
    let (saved, told) = store(&shop.open_with(Some(Box::new(hook)), times), &tree);
    assert_eq!((saved.unwrap().stored, told), (6, Vec::new()));
    shop.assert_archived(&tree);
    assert_eq!(shop.leases(), []);
}

#[test]
fn only_one_command_removes_at_a_time() {
    let shop = Shop::new();
    let tree = shop.tree("tree", &["d"]);
    store(&shop.open(None), &tree).0.unwrap();
    let lease = shop.put_lease("remover");
    let times = LeaseTimes { term: Duration::from_millis(300), ..LeaseTimes::default() };
    let far = LeaseTimes { term: Duration::from_secs(3600), ..times };
    // They wait for a while.
    let (error, of_forget) = std::thread::scope(|scope| {
        let forget = scope.spawn(|| {
            let ids = [sheaf_archive::PackId([7; 16])];
            sheaf_archive::forget_versions(&shop.open_with(None, far), &ids, &mut |_, _| {})
        });
        let error = repair(&shop.open_with(None, far), AT_ANY_AGE).unwrap_err();
        (error, forget.join().unwrap().unwrap_err())
    });
    assert!(matches!(of_forget, ArchiveError::Busy { .. }), "{of_forget}");
    assert!(matches!(error, ArchiveError::Busy { .. }), "{error}");
    assert!(error.to_string().contains("process 4711 of host other"), "{error}");
    assert_eq!(error.errno(), Errno::BUSY);
    assert_eq!(shop.leases(), [lease]);
    // The other has ended without a word: its term is over, and it is forgotten.
    repair(&shop.open_with(None, times), AT_ANY_AGE).unwrap();
    assert_eq!(shop.leases(), []);
    repack(
        &shop.open(None),
        &ArchivePath::ROOT,
        RepackOptions { min_dead_percent: 1, ..RepackOptions::default() },
        &|error| panic!("{error}"),
    )
    .unwrap();
    shop.assert_archived(&tree);
}

/// Forgetting takes marks alone: writers go on, and what may be theirs stays.
#[test]
fn versions_are_forgotten_beside_writers() {
    let shop = Shop::new();
    let tree = shop.tree("tree", &["d"]);
    let archive = shop.open(None);
    store(&archive, &tree).0.unwrap();
    let version =
        sheaf_archive::Version { host: "n7".to_owned(), ..sheaf_archive::Version::default() };
    let id = sheaf_archive::mark_version(&archive, version).unwrap();
    let lease = shop.put_lease("writer");
    sheaf_archive::forget_versions(&archive, &[id], &mut |_, done| done.unwrap()).unwrap();
    assert_eq!(shop.leases(), [lease]);
    assert_eq!(sheaf_archive::versions(&archive).unwrap().len(), 0);
    remove(&archive, &path("/tree")).unwrap();
    let report = repair(&archive, AT_ANY_AGE).unwrap();
    assert_eq!((report.leftovers, report.writers), (0, 1));
    assert!(report.young > 0);
}

/// The end of the log is given up, and written again, by one who has the archive alone.
#[test]
fn log_is_changed_only_where_nobody_writes() {
    let shop = Shop::new();
    let tree = shop.tree("tree", &["a", "b"]);
    let archive = shop.open(None);
    store(&archive, &tree).0.unwrap();
    let last = archive.catalog().applied().unwrap();
    let object = shop.path("store/objects").join(format!("log/{last:020}"));
    fs::remove_file(&object).unwrap();
    fs::write(&object, "damaged").unwrap();
    for kind in ["writer", "later"] {
        let lease = shop.put_lease(kind);
        for error in [
            archive.drop_log(last, false).unwrap_err(),
            archive.restore_log(false).map(drop).unwrap_err(),
        ] {
            assert!(error.to_string().contains("process 4711"), "{kind}: {error}");
            assert_eq!(error.errno(), Errno::BUSY);
        }
        assert_eq!(archive.drop_log(last, true).unwrap(), 1);
        assert_eq!(fs::read(&object).unwrap(), b"damaged");
        shop.store().remove(&lease).unwrap();
    }
    assert_eq!(archive.drop_log(last, false).unwrap(), 1);
    assert!(!object.exists());
    assert_eq!(archive.restore_log(false).unwrap().commits, 1);
    assert_eq!(shop.leases(), []);
    shop.assert_archived(&tree);
}

#[test]
fn store_that_cannot_be_written_is_looked_at() {
    let shop = Shop::new();
    let tree = shop.tree("tree", &["d"]);
    store(&shop.open(None), &tree).0.unwrap();
    let store_of =
        OddStore { store: shop.store(), ahead: Arc::default(), before: None, is_read_only: true };
    let archive = Archive::new(Arc::new(store_of), Catalog::in_memory().unwrap()).unwrap();
    let dry = RepairOptions { dry_run: true, ..AT_ANY_AGE };
    assert_eq!(repair(&archive, dry).unwrap(), RepairReport::default());
    assert_eq!(repair(&archive, AT_ANY_AGE).unwrap(), RepairReport::default());
    // Nothing is to be written, so no lease is needed.
    let (saved, told) = store(&archive, &tree);
    assert_eq!((saved.unwrap().stored, told), (0, Vec::new()));
    write(&tree, &["e"], 2);
    let error = store(&archive, &tree).0.unwrap_err();
    assert_eq!(error.errno(), Errno::ROFS);
    remove(&shop.open(None), &path("/tree/d")).unwrap();
    assert!(repair(&archive, dry).unwrap().leftovers > 0);
    assert_eq!(repair(&archive, AT_ANY_AGE).unwrap_err().errno(), Errno::ROFS);
}

#[test]
fn stores_of_each_kind_tell_the_time_by_their_clock() {
    for place in StorePlace::all() {
        let store = place.create().unwrap();
        let key = |number: u32| StoreKey::new(&format!("leases/clock-{number:032x}-0")).unwrap();
        let first = store.put_passing(&key(1), b"text").unwrap();
        assert_eq!(store.read(&key(1), 0..4).unwrap(), b"text");
        let again = store.put_passing(&key(1), b"other").unwrap_err();
        assert_eq!(again.errno, Errno::EXIST);
        let mut listed = Vec::new();
        store
            .list(&["leases"], &mut |object| {
                listed.push((object.key, object.written));
                Ok(())
            })
            .unwrap();
        assert_eq!(listed, [(key(1), first)]);
        assert!(store.put_passing(&key(2), b"").unwrap() >= first);
    }
}

/// Two who store, one who removes, and two who clean up at any age, of which one sees a clock that is
/// days ahead: what was said to be archived is there at the end.
#[test]
fn writers_beside_removers_with_other_clocks_lose_nothing() {
    let rounds = std::env::var("SHEAF_LEASE_ROUNDS").map_or(6, |rounds| rounds.parse().unwrap());
    for round in 0..rounds {
        let shop = Arc::new(Shop::new());
        let trees = [0, 1].map(|writer| shop.tree(&format!("tree-{writer}"), &["d", "e", "f/g"]));
        trees.iter().for_each(|tree| assert!(store(&shop.open(None), tree).0.is_ok()));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers = trees.each_ref().map(|tree| {
                let shop = &shop;
                scope.spawn(move || {
                    let archive = shop.open(None);
                    for version in 0..8 {
                        write(tree, &["d", "e", "f/g"], 10 + version);
                        let (saved, told) = store(&archive, tree);
                        assert_eq!((saved.unwrap().failed, told), (0, Vec::new()), "{version}");
                        if version == 4 {
                            let name = tree.file_name().unwrap().to_str().unwrap();
                            remove(&archive, &path(&format!("/{name}/e"))).unwrap();
                        }
                    }
                })
            });
            for ahead in [0, 3 * DAY] {
                let (shop, is_over) = (&shop, &is_over);
                scope.spawn(move || {
                    let store = with_clock(shop.store(), ahead);
                    let archive = Archive::new(store, Catalog::in_memory().unwrap()).unwrap();
                    let packed = RepackOptions {
                        min_dead_percent: 1,
                        small_packs_min: 2,
                        ..RepackOptions::default()
                    };
                    let mut step = round;
                    while !is_over.load(Ordering::SeqCst) {
                        step += 1;
                        let done = match step % 4 {
                            0 => repack(&archive, &ArchivePath::ROOT, packed, &|_| {}).map(drop),
                            _ => repair(&archive, AT_ANY_AGE).map(drop),
                        };
                        match done {
                            Err(ArchiveError::Busy { .. }) => {}
                            done => done.unwrap(),
                        }
                    }
                });
            }
            let ended = writers.map(|writer| writer.join());
            is_over.store(true, Ordering::SeqCst);
            ended.into_iter().for_each(|ended| ended.unwrap());
        });
        trees.iter().for_each(|tree| shop.assert_archived(tree));
        repair(&shop.open(None), AT_ANY_AGE).unwrap();
        assert_eq!(shop.leases(), []);
        trees.iter().for_each(|tree| shop.assert_archived(tree));
    }
}

/// Run by the next test, as a process of its own, which is stopped.
#[test]
fn as_one_that_is_stopped() {
    let Ok(at) = std::env::var("SHEAF_TEST_STOPPED") else { return };
    let at = PathBuf::from(at);
    let is_done = AtomicBool::new(false);
    let hook = move |key: &StoreKey| {
        if key.as_str().contains(".idx.") && !is_done.swap(true, Ordering::SeqCst) {
            println!("has written a pack");
            // Until it may go on.
            assert_eq!(std::io::stdin().read(&mut [0]).unwrap(), 0);
        }
    };
    let store_of = OddStore {
        store: Arc::new(LocalStore::open(&at.join("store")).unwrap()),
        ahead: Arc::default(),
        before: Some(Box::new(hook)),
        is_read_only: false,
    };
    let archive = Archive::new(Arc::new(store_of), Catalog::in_memory().unwrap()).unwrap();
    let (saved, told) = store(&archive, &at.join("tree"));
    let saved = saved.unwrap();
    println!("stored {} and failed {}: {told:?}", saved.stored, saved.failed);
}

#[test]
fn process_stopped_for_longer_than_its_lease_names_what_is_gone() {
    let shop = Shop::new();
    let tree = shop.tree("tree", &["d", "e"]);
    let mut stopped = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "leases::as_one_that_is_stopped", "--nocapture"])
        .env("SHEAF_TEST_STOPPED", shop.directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(stopped.stdout.take().unwrap());
    let mut line = String::new();
    while !line.ends_with("has written a pack\n") {
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "{line}");
    }
    let pid = Pid::from_child(&stopped);
    kill_process(pid, Signal::STOP).unwrap();
    // One that is stopped has not ended.
    let found = repair(&shop.open(None), AT_ANY_AGE).unwrap();
    assert!(found.leftovers == 0 && found.writers == 1, "{found:?}");
    let old = SystemTime::now() - Duration::from_secs(3600);
    set_times(&shop.path("store/objects"), old);
    let found = repair(&shop.open(None), AT_ANY_AGE).unwrap();
    assert!(found.leftovers > 0 && found.writers == 0, "{found:?}");
    kill_process(pid, Signal::CONT).unwrap();
    drop(stopped.stdin.take());
    line.clear();
    said.read_to_string(&mut line).unwrap();
    assert!(stopped.wait().unwrap().success(), "{line}");
    // Of the packs of the two, one or both were written by then: whichever were are gone.
    let gone =
        ["d", "e"].map(|name| format!("/tree/{name}: what was written for it has been removed"));
    let failed = gone.iter().filter(|gone| line.contains(*gone)).count();
    let told = format!("stored {} and failed {failed}", 3 * (2 - failed));
    assert!(failed > 0 && line.contains(&told), "{line}");
    assert_whole(&shop.open(None));
    assert_eq!(store(&shop.open(None), &tree).0.unwrap().stored, 3 * failed as u64);
    shop.assert_archived(&tree);
}
