//! Leases: small objects in the store that say which commands write to it or remove from it just now.
//!
//! A command that writes packs or objects holds a lease from before the first of them until its last
//! commit. [`repair`](crate::repair) and [`repack`](crate::repack) remove nothing that such a command
//! may still commit. Readers need no lease.
//!
//! A lease is the objects `leases/KIND-ID-N`. Its first is there as long as the lease is held; every
//! [`LeaseTimes::renewal`] the holder writes the next number and removes the one before. All times are
//! those that the store gives its objects, so clocks of machines do not matter: a lease has ended when
//! its newest object is older than [`LeaseTimes::term`], compared with an object that is new.
//!
//! The lease of a command that was stopped can end while the command does not know. A command that
//! removes objects therefore removes the first object of each ended lease before anything else, and a
//! writer looks for its own before and after each commit ([`LeasingStore::commit`]). A writer that does
//! not find it takes a new lease, and then looks for commands that remove and for its objects. Such
//! commands put their own lease first and look for writers afterwards, so one of the two sees the other.
//!
//! The first object of a lease has number 0, and shows since when it is held. Of a writer that has lost
//! one before it has number 1: all leftovers may be of that writer.
mod alone;
mod found;
mod holder;
mod removal;
mod writing;

pub(crate) use removal::{Removal, StoreClock};
pub(crate) use writing::{LeasingStore, Writing, written_by};

use crate::archive::random_id;
use crate::pack::member::PackId;
use crate::store::{Store, StoreError, StoreKey};
use holder::{Holder, Holders};
use sheaf_core::{Errno, lock};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// What the keys of leases begin with.
const LEASES: &str = "leases";

/// How long a lease lasts, and how often it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// A lease that was not renewed for so long has ended.
    pub term: Duration,
    /// Time between two renewals.
    pub renewal: Duration,
}

impl Default for LeaseTimes {
    fn default() -> Self {
        Self { term: Duration::from_secs(30 * 60), renewal: Duration::from_secs(2 * 60) }
    }
}

/// What a command does that holds a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseKind {
    Writer,
    Remover,
    /// None: an object that only shows the time.
    Clock,
}

impl LeaseKind {
    fn word(self) -> &'static str {
        match self {
            Self::Writer => "writer",
            Self::Remover => "remover",
            Self::Clock => "clock",
        }
    }
}

fn lease_key(kind: LeaseKind, id: PackId, number: u64) -> StoreKey {
    let (word, id) = (kind.word(), u128::from_be_bytes(id.0));
    let text = format!("{LEASES}/{word}-{id:032x}-{number}");
    StoreKey::new(&text).expect("words and digits are parts of a key")
}

/// A lease of this process. Dropped, it is given up.
struct Lease {
    core: Arc<LeaseCore>,
    stop: Arc<(Mutex<bool>, Condvar)>,
    renewer: Option<JoinHandle<()>>,
}

struct LeaseCore {
    store: Arc<dyn Store>,
    kind: LeaseKind,
    id: PackId,
    text: Vec<u8>,
    /// The first object.
    first: u64,
    /// The newest object.
    number: Mutex<u64>,
}

impl Lease {
    /// Takes a lease, whose first object has this number, and renews it from now on. With it, when that
    /// was by the clock of the store.
    fn take(
        store: Arc<dyn Store>,
        kind: LeaseKind,
        times: LeaseTimes,
        first: u64,
    ) -> Result<(Self, SystemTime), StoreError> {
        let id = random_id()?;
        let text = Holder::this_process().text().into_bytes();
        let number = Mutex::new(first);
        let core = Arc::new(LeaseCore { store, kind, id, text, first, number });
        // Before it is in the store: nobody may take it for one of a process that has ended.
        Holders::enter(id);
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let mut lease = Self { core, stop, renewer: None };
        let now = lease.core.put(first)?;
        let (core, stop) = (lease.core.clone(), lease.stop.clone());
        let renewer = std::thread::Builder::new().name("lease".to_owned()).spawn(move || {
            let (is_over, changed) = &*stop;
            let mut over = lock(is_over);
            while !*over {
                let waited = changed.wait_timeout(over, times.renewal);
                over = waited.unwrap_or_else(PoisonError::into_inner).0;
                if !*over {
                    drop(over);
                    // It is tried again, and ends by itself where that is in vain: a commit sees it.
                    let _ = core.renew();
                    over = lock(is_over);
                }
            }
        });
        let renewer = renewer.map_err(|error| StoreError {
            place: lease.core.key(first).to_string(),
            doing: "no thread can be started that renews it",
            errno: Errno::from_io(&error),
        })?;
        lease.renewer = Some(renewer);
        Ok((lease, now))
    }
}

impl LeaseCore {
    fn key(&self, number: u64) -> StoreKey {
        lease_key(self.kind, self.id, number)
    }

    fn put(&self, number: u64) -> Result<SystemTime, StoreError> {
        self.store.put_passing(&self.key(number), &self.text)
    }

    /// Writes its next object, and removes the one before. When that was by the clock of the store.
    fn renew(&self) -> Result<SystemTime, StoreError> {
        let mut number = lock(&self.number);
        let next = *number + 1;
        let now = match self.put(next) {
            // An earlier try that got no answer may have written it.
            Err(error) if error.errno == Errno::EXIST => {
                *number = next;
                drop(number);
                return self.renew();
            }
            put => put?,
        };
        let before = std::mem::replace(&mut *number, next);
        if before > self.first {
            // What stays is removed with the lease, or by `repair`.
            let _ = self.store.remove(&self.key(before));
        }
        Ok(now)
    }

    /// Whether no other command has taken the lease for one that has ended.
    fn is_held(&self) -> Result<bool, StoreError> {
        // A file is opened, because a network file system then asks the server whether it is there.
        match self.store.read(&self.key(self.first), 0..self.text.len() as u64) {
            Ok(read) => Ok(read == self.text),
            Err(error) if matches!(error.errno, Errno::NOENT | Errno::NODATA | Errno::STALE) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let (is_over, changed) = &*self.stop;
        *lock(is_over) = true;
        changed.notify_all();
        if let Some(renewer) = self.renewer.take() {
            // It has nothing to say.
            let _ = renewer.join();
        }
        let (first, number) = (self.core.first, *lock(&self.core.number));
        // The first last: without it all leftovers count as this writer's.
        let newest = (number > first).then_some(number);
        for number in newest.into_iter().chain([first]) {
            // A lease that stays in the store ends by itself.
            let _ = self.core.store.remove(&self.core.key(number));
        }
        Holders::leave(self.core.id);
    }
}

/// What a fuzz target says in the place of a lease's text: nothing of it leads a terminal astray.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(data: &[u8]) {
    if let Some(holder) = Holder::of(data) {
        assert!(holder.to_string().bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()));
        assert_eq!(Holder::of(holder.text().as_bytes()), Some(holder.clone()));
        let _ = holder.has_ended(PackId::default());
    }
}
