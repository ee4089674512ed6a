//! Reading ahead of a walk: what it comes to next is asked of the catalog for many directories at once,
//! and indexes are read and decoded by threads.
//!
//! A walk comes to directories, and to packs by their first names, in one order, which is that of
//! paths. So what is read is a queue, and what the walk does not ask for is dropped when it asks
//! for something behind it. What is not there, or is of another generation, it reads itself. Only
//! what it reads itself can fail, so nothing depends on what is here.
use crate::archive::Archive;
use crate::catalog::{ArchivedPack, DirectoryRows};
use crate::pack::index::PackIndex;
use crate::pack::member::PackId;
use crate::path::ArchivePath;
use sheaf_core::lock;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, PoisonError};

/// Directories that are asked of the catalog at once.
const DIRECTORIES_AT_ONCE: usize = 64;
/// Bytes of indexes that are read before the walk has come to them; decoded, they have thrice as many.
const AHEAD_BYTES_MAX: u64 = 8 << 20;
/// Directories and objects that are known and that the walk has not come to: with so many, no more are
/// asked for.
const ROWS_MAX: usize = 8192;
/// Threads at most, of a store that is to be kept busy.
const THREADS_MAX: usize = 32;

/// When a walk comes to something: to a directory, or to the first name of a pack, which is in another
/// place of the order where a directory is left before those in it are entered.
type AheadKey = (ArchivePath, Option<(Vec<u8>, PackId)>);

/// In which order a walk comes to what is below a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AheadOrder {
    /// By names: each directory is entered where its name is.
    #[default]
    Names,
    /// By directories: each is read to its end before the next is.
    Directories,
}

impl AheadOrder {
    fn pack(self, directory: &ArchivePath, pack: &ArchivedPack) -> AheadKey {
        match self {
            Self::Names => (directory.join(&pack.first), Some((Vec::new(), pack.id))),
            Self::Directories => (directory.clone(), Some((pack.first.clone(), pack.id))),
        }
    }
}

pub(super) struct ReadAhead<'a> {
    archive: &'a Archive,
    from: &'a ArchivePath,
    order: AheadOrder,
    state: Mutex<AheadState>,
    changed: Condvar,
}

#[derive(Default)]
struct AheadState {
    /// What the walk comes to next, the first first.
    coming: VecDeque<(AheadKey, KnownAhead)>,
    /// How many of them somebody has begun with.
    begun: usize,
    /// Bytes of indexes that somebody has begun with.
    bytes: u64,
    /// How many directories and objects these are.
    rows: usize,
    /// Packs whose first names come behind the last directory that is known.
    packs: BTreeMap<AheadKey, ArchivedPack>,
    /// The last directory that is known.
    last: Option<ArchivePath>,
    /// Somebody asks the catalog; nothing more is asked of it, or of anything.
    is_listing: bool,
    is_listed: bool,
    is_over: bool,
}

enum KnownAhead {
    Directory(DirectoryRows),
    /// An index that nobody has read yet.
    Pack(ArchivedPack),
    /// One that somebody reads.
    Reading(u64),
    /// One that was read; nothing where it cannot be.
    Index(u64, Option<PackIndex>),
}

impl KnownAhead {
    /// How many directories and objects it is.
    fn rows(&self) -> usize {
        if let Self::Directory(rows) = self { 1 + rows.objects.len() } else { 0 }
    }

    /// Bytes of its index, once that is being read.
    fn bytes(&self) -> u64 {
        match self {
            Self::Directory(_) | Self::Pack(_) => 0,
            Self::Reading(bytes) | Self::Index(bytes, _) => *bytes,
        }
    }
}

impl<'a> ReadAhead<'a> {
    /// Reads ahead from this directory on while `walk` is done.
    pub fn run<R>(
        archive: &'a Archive,
        (from, order): (&'a ArchivePath, AheadOrder),
        walk: impl FnOnce(&Self) -> R,
    ) -> R {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let ahead = Self { archive, from, order, state, changed };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = archive.store().calls_at_once().clamp(cores, THREADS_MAX.max(cores));
        std::thread::scope(|scope| {
            let over = EndsAhead(&ahead);
            for number in 0..threads {
                let thread = std::thread::Builder::new().name(format!("ahead-{number}"));
                if thread.spawn_scoped(scope, || ahead.work()).is_err() {
                    // Without any, the walk reads itself.
                    ahead.update(|state| state.is_over |= number == 0);
                    break;
                }
            }
            let done = walk(&ahead);
            drop(over);
            done
        })
    }

    fn update<R>(&self, change: impl FnOnce(&mut AheadState) -> R) -> R {
        let done = change(&mut lock(&self.state));
        self.changed.notify_all();
        done
    }

    /// What is known of a directory, if it was asked for.
    pub fn rows(&self, path: &ArchivePath) -> Option<DirectoryRows> {
        match self.take(&(path.clone(), None))? {
            KnownAhead::Directory(rows) => Some(rows),
            _ => None,
        }
    }

    /// The index of a pack of a directory, if it was read.
    pub fn index(&self, directory: &ArchivePath, pack: &ArchivedPack) -> Option<PackIndex> {
        match self.take(&self.order.pack(directory, pack))? {
            KnownAhead::Index(_, index) => {
                index.filter(|index| (index.id, index.generation) == (pack.id, pack.generation))
            }
            _ => None,
        }
    }

    /// What is in a place; nothing where it is not known of. Waits until it has been read.
    fn take(&self, key: &AheadKey) -> Option<KnownAhead> {
        let mut state = lock(&self.state);
        loop {
            match state.coming.front() {
                _ if state.is_over => return None,
                // It was not listed, so the walk reads it itself.
                Some((at, _)) if at > key => return None,
                Some((at, KnownAhead::Directory(_) | KnownAhead::Index(..))) if at == key => {
                    return self.drop_first(&mut state);
                }
                Some((at, _)) if at < key => drop(self.drop_first(&mut state)),
                None if state.is_listed => return None,
                // It is being read.
                Some(_) | None => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn drop_first(&self, state: &mut AheadState) -> Option<KnownAhead> {
        let (_, first) = state.coming.pop_front()?;
        state.bytes -= first.bytes();
        state.rows -= first.rows();
        // The walk may drop what no thread has begun with.
        state.begun = state.begun.saturating_sub(1);
        self.changed.notify_all();
        Some(first)
    }

    /// Reads what comes next, until the walk is over.
    fn work(&self) {
        let _over = EndsAhead(self);
        let mut state = lock(&self.state);
        while !state.is_over {
            let Some(work) = state.next() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            // The walk asks once more for what cannot be read, and tells why.
            match work {
                AheadWork::List(last) => {
                    let catalog = self.archive.catalog();
                    let next = catalog.rows_below(self.from, last.as_ref(), DIRECTORIES_AT_ONCE);
                    drop(catalog);
                    self.update(|state| state.add(self.order, next.unwrap_or_default()));
                }
                AheadWork::Read(key, pack) => {
                    let index = self.archive.index(&pack).ok();
                    self.update(|state| state.put(&key, pack.index_bytes, index));
                }
            }
            state = lock(&self.state);
        }
    }
}

enum AheadWork {
    /// The directories behind this one.
    List(Option<ArchivePath>),
    /// An index.
    Read(AheadKey, ArchivedPack),
}

impl AheadState {
    /// What is to be read next; nothing as long as enough is there.
    fn next(&mut self) -> Option<AheadWork> {
        while let Some((key, ahead)) = self.coming.get_mut(self.begun) {
            if let KnownAhead::Pack(pack) = ahead {
                if self.bytes > AHEAD_BYTES_MAX {
                    return None;
                }
                let work = AheadWork::Read(key.clone(), pack.clone());
                self.begun += 1;
                self.bytes += pack.index_bytes;
                *ahead = KnownAhead::Reading(pack.index_bytes);
                return Some(work);
            }
            self.begun += 1;
        }
        if self.is_listed || self.is_listing || self.rows >= ROWS_MAX {
            return None;
        }
        self.is_listing = true;
        Some(AheadWork::List(self.last.clone()))
    }

    /// Has an index that was read, if the walk is not behind it.
    fn put(&mut self, key: &AheadKey, bytes: u64, index: Option<PackIndex>) {
        if let Ok(at) = self.coming.binary_search_by(|(at, _)| at.cmp(key)) {
            self.coming[at].1 = KnownAhead::Index(bytes, index);
        }
    }

    /// Has the next directories that the catalog knows, none if there are no more, and their packs.
    fn add(&mut self, order: AheadOrder, next: Vec<(ArchivePath, DirectoryRows)>) {
        (self.is_listing, self.is_listed) = (false, next.is_empty());
        for (path, rows) in next {
            let key = (path, None);
            // The walk comes to these packs before it comes to this directory.
            let behind = self.packs.split_off(&key);
            let before = std::mem::replace(&mut self.packs, behind);
            self.coming.extend(before.into_iter().map(|(key, pack)| (key, KnownAhead::Pack(pack))));
            self.packs
                .extend(rows.packs.iter().map(|pack| (order.pack(&key.0, pack), pack.clone())));
            self.last = Some(key.0.clone());
            let directory = KnownAhead::Directory(rows);
            self.rows += directory.rows();
            self.coming.push_back((key, directory));
        }
        if self.is_listed {
            let packs = std::mem::take(&mut self.packs);
            self.coming.extend(packs.into_iter().map(|(key, pack)| (key, KnownAhead::Pack(pack))));
        }
    }
}

/// Ends the reading, however the walk or a reader ends.
struct EndsAhead<'a, 'b>(&'b ReadAhead<'a>);

impl Drop for EndsAhead<'_, '_> {
    fn drop(&mut self) {
        self.0.update(|state| state.is_over = true);
    }
}
