//! Commands that write: their leases, and what is checked when they commit.
use super::removal::others;
use super::{Lease, LeaseKind, LeaseTimes};
use crate::archive::index_key;
use crate::catalog::{Catalog, CatalogError, Commit, DirectoryChange, is_begun};
use crate::path::ArchivePath;
use crate::store::{
    Store, StoreCosts, StoreError, StoreKey, StoreMemory, StoreWriter, StoredObject,
};
use sheaf_core::{Errno, lock};
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

/// A store in which a lease is taken before the first object of a command is written.
pub(crate) struct LeasingStore {
    inner: Arc<dyn Store>,
    state: Mutex<LeaseState>,
    /// Objects that were written and not seen since: they are looked for before they are committed.
    unseen: Arc<Mutex<HashSet<StoreKey>>>,
    /// The lease had ended once: what was written before may be gone.
    was_lost: AtomicBool,
    /// Nothing was committed yet with the lease that is held: before it the log may have been changed.
    is_new: AtomicBool,
}

#[derive(Default)]
struct LeaseState {
    times: LeaseTimes,
    /// Works that may write.
    works: usize,
    lease: Option<Arc<Lease>>,
}

/// A work that may write; the lease is held as long as there is one.
pub(crate) struct Writing(Arc<LeasingStore>);

impl LeasingStore {
    pub fn new(inner: Arc<dyn Store>) -> Self {
        let (state, unseen) = (Mutex::default(), Arc::default());
        let is_new = AtomicBool::new(false);
        Self { inner, state, unseen, was_lost: AtomicBool::new(false), is_new }
    }

    pub fn inner(&self) -> Arc<dyn Store> {
        self.inner.clone()
    }

    pub fn times(&self) -> LeaseTimes {
        lock(&self.state).times
    }

    pub fn set_times(&self, times: LeaseTimes) {
        lock(&self.state).times = times;
    }

    /// Begins a work that may write.
    pub fn begin(self: &Arc<Self>) -> Writing {
        lock(&self.state).works += 1;
        Writing(self.clone())
    }

    /// Takes the lease, if a work has begun and none is held.
    fn hold(&self) -> Result<(), StoreError> {
        let mut state = lock(&self.state);
        if state.works > 0 && state.lease.is_none() {
            let (lease, _) = Lease::take(self.inner.clone(), LeaseKind::Writer, state.times, 0)?;
            // Who changes the log sees the lease from here on, or has said so before.
            refuse_changing(&*self.inner)?;
            state.lease = Some(Arc::new(lease));
            self.was_lost.store(false, Ordering::Relaxed);
            self.is_new.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes changes, whose objects are in the store before and after.
    ///
    /// # Errors
    /// As [`Catalog::commit`]; [`CatalogError::Removed`] where objects of a directory are not there:
    /// nothing was changed then; [`CatalogError::LeaseEnded`] where another command may have removed
    /// them.
    pub fn commit(&self, catalog: &mut Catalog, commit: &Commit) -> Result<u64, CatalogError> {
        if !self.is_held()? {
            self.hold_again()?;
        }
        self.check_log(catalog)?;
        // What was written before the lease was lost may be gone.
        let all = self.was_lost.load(Ordering::Relaxed);
        if let Some(path) = self.missing(commit, all)? {
            return Err(CatalogError::Removed { path });
        }
        let number = catalog.commit(self, commit)?;
        // The process may have been stopped between.
        if !self.is_held()? {
            self.hold_again()?;
            if self.missing(commit, true)?.is_some() {
                return Err(CatalogError::LeaseEnded { holder: "another command".to_owned() });
            }
        }
        Ok(number)
    }

    /// Has a catalog look whether the log is the one that it knows, once for each lease: as long as that is held nobody
    /// writes another one.
    pub fn check_log(&self, catalog: &mut Catalog) -> Result<(), CatalogError> {
        self.hold()?;
        if self.is_new.swap(false, Ordering::Relaxed) {
            catalog.check_again();
        }
        Ok(())
    }

    /// Whether the lease is held still, if there is one.
    fn is_held(&self) -> Result<bool, StoreError> {
        let lease = lock(&self.state).lease.clone();
        lease.map_or(Ok(true), |lease| lease.core.is_held())
    }

    /// Takes another lease in the place of one that has ended.
    fn hold_again(&self) -> Result<(), CatalogError> {
        self.was_lost.store(true, Ordering::Relaxed);
        let times = self.times();
        let (lease, now) = Lease::take(self.inner.clone(), LeaseKind::Writer, times, 1)?;
        refuse_changing(&*self.inner)?;
        let ended = lock(&self.state).lease.replace(Arc::new(lease));
        drop(ended);
        self.is_new.store(true, Ordering::Relaxed);
        // Whoever begins to remove from now on sees it.
        match others(&*self.inner, now, times)?.pop() {
            Some((_, holder)) => Err(CatalogError::LeaseEnded { holder }),
            None => Ok(()),
        }
    }

    /// The first directory of which an object is not there. Objects that were seen already are looked for
    /// only with `all`.
    fn missing(&self, commit: &Commit, all: bool) -> Result<Option<ArchivePath>, StoreError> {
        for change in &commit.changes {
            for (key, bytes) in written_by(change) {
                let is_unseen = all || lock(&self.unseen).contains(&key);
                if is_unseen && !is_there(self, &key, bytes)? {
                    return Ok(Some(change.path.clone()));
                }
            }
        }
        Ok(None)
    }
}

/// That nobody changes the log.
fn refuse_changing(store: &dyn Store) -> Result<(), StoreError> {
    if !is_begun(store)? {
        return Ok(());
    }
    let doing = "says that the archive's log is being changed, or was until that was broken off (then sheaf archive \
                 repair --restore-log does the rest): nothing is written";
    Err(StoreError { place: "restoring/begun".to_owned(), doing, errno: Errno::BUSY })
}

/// Whether an object is in a store with this length.
fn is_there(store: &dyn Store, key: &StoreKey, bytes: u64) -> Result<bool, StoreError> {
    match store.size(key) {
        Ok(size) => Ok(size == bytes),
        Err(error) if matches!(error.errno, Errno::NOENT | Errno::NODATA) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Objects that may have been written for a change of a directory, and how long each is.
pub(crate) fn written_by(change: &DirectoryChange) -> impl Iterator<Item = (StoreKey, u64)> {
    let packs = change.packs.iter().flat_map(|pack| {
        let index = (index_key(pack.id, pack.generation), pack.index_bytes);
        // A later index is of a pack that was there before, and may be lost.
        let tar = (pack.generation == 0).then(|| (pack.key(), pack.stored_bytes()));
        tar.into_iter().chain([index])
    });
    let objects = change.objects.iter().flat_map(|object| {
        let place = object.place.as_ref();
        place.map_or_else(Vec::new, |place| place.own_objects(object.stored_bytes()))
    });
    packs.chain(objects)
}

impl Writing {
    /// Takes the lease now: others write what is committed here.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn hold(&self) -> Result<(), StoreError> {
        self.0.hold()
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.works -= 1;
        if state.works == 0 {
            // It is given up without the lock, since the store may be slow.
            let lease = state.lease.take();
            drop(state);
            drop(lease);
            lock(&self.0.unseen).clear();
        }
    }
}

impl Store for LeasingStore {
    fn create(&self, key: &StoreKey) -> Result<Box<dyn StoreWriter>, StoreError> {
        // What the log does not refer to is never taken for a leftover.
        if !["packs/", "data/"].iter().any(|kind| key.as_str().starts_with(kind)) {
            return self.inner.create(key);
        }
        self.hold()?;
        let inner = self.inner.create(key)?;
        Ok(Box::new(LeasedWriter { inner, key: key.clone(), unseen: self.unseen.clone() }))
    }

    fn open(&self, key: &StoreKey, from: u64) -> Result<Box<dyn Read + Send>, StoreError> {
        self.inner.open(key, from)
    }

    fn read(&self, key: &StoreKey, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        self.inner.read(key, range)
    }

    fn size(&self, key: &StoreKey) -> Result<u64, StoreError> {
        let size = self.inner.size(key)?;
        lock(&self.unseen).remove(key);
        Ok(size)
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

    fn put_passing(&self, key: &StoreKey, bytes: &[u8]) -> Result<SystemTime, StoreError> {
        self.inner.put_passing(key, bytes)
    }

    fn unfinished(
        &self,
        each: &mut dyn FnMut(SystemTime, u64) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        self.inner.unfinished(each)
    }

    fn recall(&self, keys: &mut dyn Iterator<Item = StoreKey>) -> Result<(), StoreError> {
        self.inner.recall(keys)
    }

    fn calls_at_once(&self) -> usize {
        self.inner.calls_at_once()
    }

    fn share_memory(&self, bytes: u64) -> StoreMemory {
        self.inner.share_memory(bytes)
    }

    fn costs(&self) -> Option<StoreCosts> {
        self.inner.costs()
    }
}

/// An object on its way to a store.
struct LeasedWriter {
    inner: Box<dyn StoreWriter>,
    key: StoreKey,
    unseen: Arc<Mutex<HashSet<StoreKey>>>,
}

impl Write for LeasedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl StoreWriter for LeasedWriter {
    fn commit(self: Box<Self>) -> Result<(), StoreError> {
        self.inner.commit()?;
        lock(&self.unseen).insert(self.key);
        Ok(())
    }
}
