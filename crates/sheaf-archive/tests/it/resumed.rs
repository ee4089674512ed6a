//! What was fetched outlasts a loss of power, and large files that were broken off go on where they were.
use crate::round::{Place, path, settle};
use sheaf_archive::{
    Archive, ArchiveEvent, Catalog, FetchOptions, FetchReport, LocalStore, SaveOptions, Store,
    StoreError, StoreKey, StoreWriter, StoredObject, fetch,
};
use sheaf_core::{Errno, lock};
use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const MIB: u64 = 1 << 20;
/// What a large file has, between 10 MiB of holes.
const DATA: u64 = 40 * MIB;

/// A store of which contents end after so many bytes; what was read of them is counted.
struct BrokenStore {
    inner: LocalStore,
    left: Arc<AtomicU64>,
    read: Arc<AtomicU64>,
}

struct BrokenReader {
    inner: Box<dyn Read + Send>,
    left: Arc<AtomicU64>,
    read: Arc<AtomicU64>,
}

impl Read for BrokenReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(io::Error::from_raw_os_error(Errno::TIMEDOUT.0));
        }
        let most = to.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = self.inner.read(&mut to[..most])?;
        self.left.fetch_sub(count as u64, Ordering::Relaxed);
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl Store for BrokenStore {
    fn create(&self, key: &StoreKey) -> Result<Box<dyn StoreWriter>, StoreError> {
        self.inner.create(key)
    }

    fn open(&self, key: &StoreKey, from: u64) -> Result<Box<dyn Read + Send>, StoreError> {
        let inner = self.inner.open(key, from)?;
        let (left, read) = (self.left.clone(), self.read.clone());
        Ok(Box::new(BrokenReader { inner, left, read }))
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

struct Broken {
    place: Place,
    left: Arc<AtomicU64>,
    read: Arc<AtomicU64>,
}

impl Broken {
    /// A large file with holes is archived.
    fn new() -> Self {
        let place = Place::new();
        let file = fs::File::create(place.path("large")).unwrap();
        let half = vec![5; (DATA / 2) as usize];
        file.write_all_at(&half, 5 * MIB).unwrap();
        file.write_all_at(&half, 5 * MIB + DATA / 2 + 4 * MIB).unwrap();
        file.write_all_at(b"another", 20 * MIB).unwrap();
        file.set_len(DATA + 10 * MIB).unwrap();
        drop(file);
        settle();
        assert_eq!(place.save("large", SaveOptions::default()).0.stored, 1);
        Self { place, left: Arc::default(), read: Arc::default() }
    }

    /// Fetches it, of which so many bytes come; what was told, and what was read.
    fn fetch(&self, bytes: u64) -> (FetchReport, Vec<String>, u64) {
        self.left.store(bytes, Ordering::Relaxed);
        self.read.store(0, Ordering::Relaxed);
        let inner = LocalStore::open(&self.place.path("store")).unwrap();
        let (left, read) = (self.left.clone(), self.read.clone());
        let store = Arc::new(BrokenStore { inner, left, read });
        let archive = Archive::new(store, Catalog::in_memory().unwrap()).unwrap();
        let told = Mutex::new(Vec::new());
        let tell = |event: ArchiveEvent| lock(&told).push(event.to_string());
        let (from, to) = (path("/large"), self.place.path("to"));
        let report = fetch(&archive, &from, &to, FetchOptions::default(), &tell).unwrap();
        (report, told.into_inner().unwrap(), self.read.load(Ordering::Relaxed))
    }

    fn names(&self) -> Vec<PathBuf> {
        fs::read_dir(self.place.path("to")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    fn assert_same(&self) {
        assert_eq!(self.names(), [self.place.path("to/large")]);
        let [there, here] =
            ["to/large", "large"].map(|name| fs::read(self.place.path(name)).unwrap());
        assert!(there == here);
    }
}

#[test]
fn large_file_goes_on_where_its_fetch_was_broken_off() {
    let broken = Broken::new();
    let (report, told, _) = broken.fetch(30 * MIB);
    assert_eq!((report.fetched, report.failed), (0, 1), "{told:?}");
    assert_eq!(broken.names().len(), 1, "its part stays: {:?}", broken.names());
    assert!(!broken.place.path("to/large").exists());
    let (report, told, read) = broken.fetch(u64::MAX);
    assert_eq!((report.fetched, report.failed), (1, 0), "{told:?}");
    assert!(read <= 15 * MIB, "{read} bytes were read again");
    broken.assert_same();
}

#[test]
fn wrong_beginning_of_a_large_file_is_fetched_again() {
    let broken = Broken::new();
    broken.fetch(30 * MIB);
    let part = broken.names().remove(0);
    // As a loss of power may leave it.
    fs::File::options().write(true).open(&part).unwrap().write_all_at(&[0; 9], 7 * MIB).unwrap();
    let (report, told, read) = broken.fetch(u64::MAX);
    assert_eq!((report.fetched, report.failed), (1, 0), "{told:?}");
    assert!(read >= DATA, "{read}");
    broken.assert_same();
}

#[test]
fn part_of_a_large_file_is_not_taken_from_another_name() {
    let broken = Broken::new();
    broken.fetch(30 * MIB);
    let part = broken.names().remove(0);
    fs::remove_file(&part).unwrap();
    let secret = broken.place.path("secret");
    fs::write(&secret, "secret").unwrap();
    std::os::unix::fs::symlink(&secret, &part).unwrap();
    let (report, told, _) = broken.fetch(u64::MAX);
    assert_eq!((report.fetched, report.failed), (1, 0), "{told:?}");
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
    fs::remove_file(&part).unwrap();
    fs::remove_file(broken.place.path("to/large")).unwrap();
    // A hard link is a file of another name.
    fs::hard_link(&secret, &part).unwrap();
    let (report, told, _) = broken.fetch(u64::MAX);
    assert_eq!((report.fetched, report.failed), (1, 0), "{told:?}");
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
}

/// Copies of a disk at the moment when a fetch has ended, as a loss of power leaves it.
#[test]
fn fetched_files_outlast_a_loss_of_power() {
    let place = Place::new();
    fs::create_dir_all(place.path("tree/below")).unwrap();
    for number in 0..50 {
        fs::write(place.path(&format!("tree/below/{number}")), vec![number; 5000]).unwrap();
    }
    settle();
    place.save("tree", SaveOptions::default());
    let (image, copy) = (place.path("image"), place.path("copy"));
    fs::File::create(&image).unwrap().set_len(64 * MIB).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).output();
    let Some(mounted) = made
        .ok()
        .filter(|made| made.status.success())
        .and_then(|_| Mounted::new(&image, &place.path("mounted")))
    else {
        return sheaf_testing::skipped("a disk of its own needs root, mkfs.ext4 and loop devices");
    };
    let (report, told) = place.fetch("/tree", "mounted", FetchOptions::default());
    assert_eq!((report.fetched, report.failed), (50, 0), "{told:?}");
    fs::copy(&image, &copy).unwrap();
    drop(mounted);
    let after = Mounted::new(&copy, &place.path("after")).unwrap();
    for number in 0..50 {
        let file = after.0.join(format!("tree/below/{number}"));
        assert!(fs::read(&file).unwrap_or_default() == [number; 5000], "{}", file.display());
    }
}

/// An image of a disk that is mounted.
struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Path, at: &Path) -> Option<Self> {
        fs::create_dir(at).unwrap();
        let mut mount = Command::new("mount");
        let ended = mount.args(["-o", "loop"]).arg(image).arg(at).output().ok()?;
        ended.status.success().then(|| Self(at.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}
