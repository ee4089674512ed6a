//! Where an archive lies: objects by their keys, each written once as a whole.
mod key;
mod local;
#[cfg(feature = "s3")]
mod s3;
#[cfg(feature = "tape")]
mod tape;

pub use key::StoreKey;
pub use local::LocalStore;
#[cfg(feature = "s3")]
pub use s3::{S3Access, S3Credentials, S3Encryption, S3Identity, S3Limits, S3Place, S3Store};
#[cfg(feature = "tape")]
pub use tape::{TapeCounters, TapeSettings, TapeStore};

use crate::archive::unwritten;
use sheaf_core::Errno;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A place for objects. None is ever changed: what is there under a key stays until it is removed.
///
/// Calls take as long as the store needs, and any number of threads may call at once.
pub trait Store: Send + Sync {
    /// Begins an object. Nobody sees it before its [commit](StoreWriter::commit).
    ///
    /// # Errors
    /// When there is no place where it could be written.
    fn create(&self, key: &StoreKey) -> Result<Box<dyn StoreWriter>, StoreError>;

    /// Reads an object from a byte on, to its end.
    ///
    /// # Errors
    /// `ENOENT` where there is none.
    fn open(&self, key: &StoreKey, from: u64) -> Result<Box<dyn Read + Send>, StoreError>;

    /// These bytes of an object, all of them.
    ///
    /// # Errors
    /// `ENOENT` where there is none, `ENODATA` where it is shorter.
    fn read(&self, key: &StoreKey, range: Range<u64>) -> Result<Vec<u8>, StoreError>;

    /// How many bytes an object has.
    ///
    /// # Errors
    /// `ENOENT` where there is none.
    fn size(&self, key: &StoreKey) -> Result<u64, StoreError>;

    /// Calls `each` with all objects whose keys begin with some parts, as they are found, in the
    /// order of their keys. What is written or removed meanwhile may be among them or not.
    ///
    /// # Errors
    /// When they cannot be listed, and what `each` returns: nothing more is listed then.
    fn list(
        &self,
        parts: &[&str],
        each: &mut dyn FnMut(StoredObject) -> Result<(), StoreError>,
    ) -> Result<(), StoreError>;

    /// Removes an object.
    ///
    /// # Errors
    /// `ENOENT` where there is none.
    fn remove(&self, key: &StoreKey) -> Result<(), StoreError>;

    /// Writes a short object that need not outlive a crash of the machine which the store is on. When it
    /// was written, by the clock of the store.
    ///
    /// # Errors
    /// `EEXIST` where somebody else's has its key; when it cannot be written.
    fn put_passing(&self, key: &StoreKey, bytes: &[u8]) -> Result<SystemTime, StoreError> {
        let mut object = self.create(key)?;
        object.write_all(bytes).map_err(|error| unwritten(key, &error))?;
        object.commit()?;
        let (above, _) = key.as_str().rsplit_once('/').unwrap_or_default();
        let mut written = None;
        self.list(&[above], &mut |object| {
            if object.key == *key {
                written = Some(object.written);
            }
            Ok(())
        })?;
        let (place, doing) = (key.to_string(), "was written, and is not there");
        written.ok_or(StoreError { place, doing, errno: Errno::NOENT })
    }

    /// Calls `each` with what writers that were cut off have left and that is no object: when it was
    /// written to, and how many bytes it has. It is removed if that says so. A store whose server keeps
    /// such things by itself has none.
    ///
    /// # Errors
    /// When it cannot be listed or removed, and what `each` returns.
    fn unfinished(
        &self,
        each: &mut dyn FnMut(SystemTime, u64) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let _ = each;
        Ok(())
    }

    /// Says that these objects will be read soon, in any order. A store that they are far away in may
    /// bring them near in an order of its own, as many as there is room for; others do not even ask
    /// which ones they are.
    ///
    /// # Errors
    /// When none can be brought near. Of one that is not there, or is damaged, who reads it is told.
    fn recall(&self, keys: &mut dyn Iterator<Item = StoreKey>) -> Result<(), StoreError> {
        let _ = keys;
        Ok(())
    }

    /// How many calls at once it takes to keep it busy: more than there are processors where it is the
    /// store that they wait for.
    fn calls_at_once(&self) -> usize {
        1
    }

    /// Keeps to a limit: of so much memory, what its writers take, and what is on its way.
    fn share_memory(&self, bytes: u64) -> StoreMemory {
        let _ = bytes;
        StoreMemory::default()
    }

    /// What its objects cost; nothing where an object more costs little.
    fn costs(&self) -> Option<StoreCosts> {
        None
    }
}

/// Functions that open and create the store of a simulated tape library, given its directory.
pub struct TapeSimulator {
    /// Opens a library that exists.
    pub open: fn(&Path) -> Result<Arc<dyn Store>, StoreError>,
    /// Creates a library with default settings.
    pub create: fn(&Path) -> Result<Arc<dyn Store>, StoreError>,
}

/// Returns the tape simulator if this crate is built with the feature `tape`.
#[must_use]
pub fn tape_simulator() -> Option<TapeSimulator> {
    #[cfg(feature = "tape")]
    return Some(TapeSimulator {
        open: |directory| Ok(Arc::new(TapeStore::open(directory)?)),
        create: |directory| Ok(Arc::new(TapeStore::create(directory, TapeSettings::default())?)),
    });
    #[cfg(not(feature = "tape"))]
    None
}

/// What a store takes of a limit of memory, beside what writes to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreMemory {
    /// Bytes that one writer has at once.
    pub writer_bytes: u64,
    /// Bytes of all that is on its way, and of the store itself.
    pub shared_bytes: u64,
}

/// What objects of a store cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreCosts {
    /// How long an object takes beside its bytes.
    pub latency: Duration,
    /// Bytes a second of one object that is read or written.
    pub bytes_per_second: u64,
}

impl StoreCosts {
    /// Bytes that go to and fro in the time that an object more takes.
    #[must_use]
    pub fn latency_bytes(&self) -> u64 {
        let bytes = self.latency.as_nanos() * u128::from(self.bytes_per_second) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// An object that is being written. Dropped, it was never there.
pub trait StoreWriter: Write + Send {
    /// Makes it an object: durable, whole, and there for everybody.
    ///
    /// # Errors
    /// `EEXIST` where somebody else's has its key, which stays as it is; when it cannot be written.
    fn commit(self: Box<Self>) -> Result<(), StoreError>;
}

/// An object that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    /// Its key.
    pub key: StoreKey,
    /// How many bytes it has.
    pub bytes: u64,
    /// When it was written, by the clock of the store.
    pub written: SystemTime,
}

/// Why a store did not do something.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{place}: {doing}: {errno}")]
pub struct StoreError {
    /// The store and the object, as its user knows them.
    pub place: String,
    /// What was to be done.
    pub doing: &'static str,
    /// Why it was not.
    pub errno: Errno,
}

impl StoreError {
    /// Whether the same may be done a little later.
    #[must_use]
    pub fn retry_can_help(&self) -> bool {
        let passing = [Errno::INTR, Errno::AGAIN, Errno::NFILE, Errno::MFILE, Errno::TIMEDOUT];
        passing.contains(&self.errno)
    }
}
