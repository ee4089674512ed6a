//! Large contents in several objects: what was stored is found again, and each object is verified.
use crate::round::{Place, path, settle};
use sheaf_archive::{
    Archive, ArchiveEvent, ArchivePath, Catalog, FetchOptions, LocalStore, RepairOptions,
    SaveOptions, SaveReport, Store, StoreError, StoreKey, StoreWriter, StoredObject, VerifyOptions,
    fetch, repair, save, verify,
};
use sheaf_core::{Errno, lock};
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A store that takes so many objects of contents, and counts them.
struct FullStore {
    inner: LocalStore,
    left: AtomicU64,
    made: Arc<AtomicU64>,
}

impl Store for FullStore {
    fn create(&self, key: &StoreKey) -> Result<Box<dyn StoreWriter>, StoreError> {
        if key.as_str().starts_with("data/") {
            if self.left.load(Ordering::Relaxed) == 0 {
                let place = key.to_string();
                return Err(StoreError { place, doing: "cannot be written", errno: Errno::NOSPC });
            }
            self.left.fetch_sub(1, Ordering::Relaxed);
            self.made.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.create(key)
    }

    fn open(&self, key: &StoreKey, from: u64) -> Result<Box<dyn Read + Send>, StoreError> {
        self.inner.open(key, from)
    }

    fn read(&self, key: &StoreKey, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        self.inner.read(key, range)
    }

    fn size(&self, key: &StoreKey) -> Result<u64, StoreError> {
        self.inner.size(key)
    }

    fn list(
        &self,
        parts: &[&str],
        each: &mut dyn FnMut(StoredObject) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.inner.list(parts, each)
    }

    fn remove(&self, key: &StoreKey) -> Result<(), StoreError> {
        self.inner.remove(key)
    }
}

struct Parted {
    place: Place,
    made: Arc<AtomicU64>,
}

impl Parted {
    fn new() -> Self {
        Self { place: Place::new(), made: Arc::default() }
    }

    fn archive(&self, objects: u64) -> Archive {
        let inner = LocalStore::open(&self.place.path("store")).unwrap();
        let store = FullStore { inner, left: AtomicU64::new(objects), made: self.made.clone() };
        Archive::new(Arc::new(store), Catalog::in_memory().unwrap()).unwrap()
    }

    /// Stores a file, of which so many objects have room; how many were made.
    fn save(&self, name: &str, objects: u64) -> (Option<SaveReport>, u64) {
        self.made.store(0, Ordering::Relaxed);
        let options = SaveOptions { part_bytes: MIB, ..SaveOptions::default() };
        let sources = [self.place.path(name)];
        let report = save(&self.archive(objects), &sources, &ArchivePath::ROOT, options, &drop);
        (report.ok(), self.made.load(Ordering::Relaxed))
    }

    fn assert_archived(&self, name: &str) {
        let to = self.place.path("back");
        let fail = |event| panic!("{event:?}");
        let archive = self.archive(0);
        fetch(&archive, &path(name), &to, FetchOptions::default(), &fail).unwrap();
        let last = name.rsplit('/').next().unwrap();
        assert!(fs::read(to.join(last)).unwrap() == fs::read(self.place.path(name)).unwrap());
        fs::remove_dir_all(to).unwrap();
    }

    fn faults(&self) -> Vec<String> {
        let told = Mutex::new(Vec::new());
        let tell = |error: sheaf_archive::ArchiveError| lock(&told).push(error.to_string());
        verify(&self.archive(0), &ArchivePath::ROOT, VerifyOptions::default(), &tell).unwrap();
        told.into_inner().unwrap()
    }

    fn objects(&self, kind: &str) -> Vec<std::path::PathBuf> {
        let mut all = Vec::new();
        let store = LocalStore::open(&self.place.path("store")).unwrap();
        let listed = store.list(&[kind], &mut |object| {
            all.push(self.place.path("store/objects").join(object.key.as_str()));
            Ok(())
        });
        listed.unwrap();
        all
    }
}

fn content(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at / 5 % 251) as u8).collect()
}

#[test]
fn large_file_that_was_broken_off_is_stored_from_there_on() {
    let parted = Parted::new();
    fs::create_dir(parted.place.path("tree")).unwrap();
    fs::write(parted.place.path("tree/large"), content(7 * MIB + 77)).unwrap();
    settle();
    let (report, made) = parted.save("tree", 5);
    assert_eq!((report, made), (None, 5));
    assert_eq!(parted.objects("resume").len(), 5);
    let (report, made) = parted.save("tree", 99);
    assert_eq!((report.unwrap().stored, made), (1, 3));
    parted.assert_archived("tree/large");
    assert!(parted.faults().is_empty());
    assert!(parted.objects("resume").is_empty(), "notes are for what is not archived");
    let (report, made) = parted.save("tree", 99);
    assert_eq!((report.unwrap().unchanged, made), (1, 0));
    // Of another time or mode only, the content is compared.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(parted.place.path("tree/large"), mode).unwrap();
    settle();
    let (report, made) = parted.save("tree", 99);
    assert_eq!((report.unwrap().stored, made), (1, 0));
    parted.assert_archived("tree/large");
    // A note that says nothing true costs nothing but time.
    fs::write(parted.place.path("tree/large"), content(6 * MIB)).unwrap();
    settle();
    parted.save("tree", 3);
    let notes = parted.objects("resume");
    fs::write(&notes[0], "").unwrap();
    let bytes = fs::read(&notes[1]).unwrap();
    fs::write(&notes[1], [&bytes[..20], &[!bytes[20]], &bytes[21..]].concat()).unwrap();
    let (report, made) = parted.save("tree", 99);
    assert_eq!((report.unwrap().stored, made), (1, 5));
    parted.assert_archived("tree/large");
    let options = RepairOptions { age: Duration::ZERO, ..RepairOptions::default() };
    repair(&parted.archive(0), options).unwrap();
    parted.assert_archived("tree/large");
    assert_eq!(parted.objects("data").len(), 6);
}

#[test]
fn file_that_has_changed_since_is_stored_as_a_whole() {
    let parted = Parted::new();
    fs::write(parted.place.path("large"), content(7 * MIB)).unwrap();
    settle();
    parted.save("large", 5);
    let file = fs::File::options().write(true).open(parted.place.path("large")).unwrap();
    file.write_all_at(b"other", 10).unwrap();
    drop(file);
    settle();
    let (report, made) = parted.save("large", 99);
    assert_eq!((report.unwrap().stored, made), (1, 7));
    parted.assert_archived("large");
    // What was noted of the file as it was is a leftover.
    let options = RepairOptions { age: Duration::ZERO, ..RepairOptions::default() };
    assert_eq!(repair(&parted.archive(0), options).unwrap().leftovers, 10);
    assert!(parted.objects("resume").is_empty());
    parted.assert_archived("large");
}

#[test]
fn parts_of_a_file_with_holes_come_back() {
    let parted = Parted::new();
    let file = fs::File::create(parted.place.path("holes")).unwrap();
    file.write_all_at(&content(2 * MIB + 4096), MIB).unwrap();
    file.write_all_at(&content(3 * MIB), 9 * MIB).unwrap();
    file.set_len(20 * MIB).unwrap();
    drop(file);
    settle();
    parted.save("holes", 2);
    let (report, made) = parted.save("holes", 99);
    assert_eq!((report.unwrap().stored, made), (1, 4));
    parted.assert_archived("holes");
    assert!(parted.faults().is_empty());
}

#[test]
fn lost_or_damaged_part_is_named_and_stored_again() {
    let parted = Parted::new();
    fs::write(parted.place.path("large"), content(4 * MIB)).unwrap();
    settle();
    parted.save("large", 99);
    let whole: Vec<_> =
        parted.objects("data").into_iter().map(|at| (fs::read(&at).unwrap(), at)).collect();
    assert_eq!(whole.len(), 4);
    for (bytes, at) in &whole {
        let mut flipped = bytes.clone();
        flipped[7777] ^= 1;
        for damage in [Some(&flipped[..]), Some(&bytes[1..]), None] {
            match damage {
                Some(damage) => fs::write(at, damage).unwrap(),
                None => fs::remove_file(at).unwrap(),
            }
            assert_eq!(parted.faults().len(), 1);
            fs::write(at, bytes).unwrap();
        }
    }
    assert!(parted.faults().is_empty());
    fs::remove_file(&whole[2].1).unwrap();
    let options = SaveOptions { part_bytes: MIB, checksum: true, ..SaveOptions::default() };
    let sources = [parted.place.path("large")];
    let told = Mutex::new(Vec::new());
    let tell = |event: ArchiveEvent| lock(&told).push(event.to_string());
    let report = save(&parted.archive(99), &sources, &ArchivePath::ROOT, options, &tell).unwrap();
    assert_eq!(report.stored, 1, "{:?}", lock(&told));
    assert!(parted.faults().is_empty());
    parted.assert_archived("large");
}

#[test]
fn commits_are_of_a_version_that_knows_versions() {
    let parted = Parted::new();
    fs::write(parted.place.path("large"), content(4 * MIB)).unwrap();
    fs::write(parted.place.path("small"), content(2 * MIB)).unwrap();
    settle();
    parted.save("small", 99);
    parted.save("large", 99);
    let logs = parted.objects("log");
    let versions: Vec<u8> = logs.iter().map(|log| fs::read(log).unwrap()[8]).collect();
    assert!(versions.iter().all(|version| *version == 3), "{versions:?}");
}
