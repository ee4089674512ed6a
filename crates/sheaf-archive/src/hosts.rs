//! Work of many hosts for one that has the catalog, which is the *root*.
//!
//! They speak in requests and answers, of which the root has the first word. Who carries them, and
//! notices who does not answer, is no matter of this crate.
use crate::archive::{Archive, ArchiveError};
use crate::catalog::log_key;
use crate::schedule::{Resource, ScheduleStats};
use crate::store::{Store, StoreError};
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, lock};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a store may take to show a host what another has just written there.
const SHOWS_MAX: Duration = Duration::from_secs(3);

/// A store of a host.
pub struct HostStore {
    /// Where objects are.
    pub store: Arc<dyn Store>,
    /// Device and inode of the directory that it is, if it is one.
    pub directory: Option<(u64, u64)>,
}

/// What a host knows of its own files and stores.
pub trait HostFiles: Send + Sync {
    /// The store of this name.
    ///
    /// # Errors
    /// Why this host cannot use it, in words.
    fn store(&self, name: &OsStr) -> Result<HostStore, String>;

    /// Opens a file of the host by its absolute path, as a mere path (`O_PATH`). A link that it ends
    /// with is opened itself.
    ///
    /// # Errors
    /// Those of `open(2)`.
    fn open(&self, path: &Path) -> Result<OwnedFd, Errno>;

    /// Opens a directory of the host by its absolute path, which is made if it is not there, with those
    /// above it.
    ///
    /// # Errors
    /// Those of `mkdir(2)` and `open(2)`.
    fn make_directory(&self, path: &Path) -> Result<OwnedFd, Errno>;
}

/// What is to be done next with a host.
#[derive(Debug, PartialEq, Eq)]
pub enum HostStep {
    /// Ask it this.
    Ask(Vec<u8>),
    /// There is nothing for it just now.
    Wait,
    /// There is nothing for it any more.
    Over,
}

/// What the root does with hosts, each by its number. Any number of threads may call at once.
pub trait HostsRoot: Send + Sync {
    /// What is to be done next with a host.
    ///
    /// # Errors
    /// When the catalog cannot be read: then all is over.
    fn next(&self, host: usize) -> Result<HostStep, ArchiveError>;

    /// Takes the answer of a host to what it was asked last.
    ///
    /// # Errors
    /// When nothing can be committed: then all is over.
    fn answered(&self, host: usize, answer: &[u8]) -> Result<(), ArchiveError>;

    /// Nothing more comes of a host.
    ///
    /// # Errors
    /// When nothing can be committed: then all is over.
    fn lost(&self, host: usize, why: &str) -> Result<(), ArchiveError>;

    /// What is to be told of hosts since the last time, by their numbers.
    fn told(&self) -> Vec<(usize, HostTold)>;

    /// Files and bytes that are done by now, where that is counted.
    fn so_far(&self) -> Option<(u64, u64)> {
        None
    }
}

/// What is to be told of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostTold {
    /// This is said.
    Said(String),
    /// It stores, or would store, this file.
    Stores(PathBuf),
}

/// What a host has done its part with, as numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostNumbers {
    /// What has limited its work, as [`Limiting::name`](crate::Limiting::name).
    pub limiting: String,
    /// As [`ScheduleStats::counters`].
    pub counters: Vec<(String, u64)>,
    /// Kinds of tasks by their names: how many have ended, and microseconds that they ran and computed.
    pub kinds: Vec<(String, u64, u64, u64)>,
    /// Resources by their names, and how often tasks waited for them.
    pub waits: Vec<(String, u64)>,
}

impl HostNumbers {
    fn of(stats: &ScheduleStats) -> Self {
        let kinds = stats.kinds.iter().filter(|kind| kind.done > 0);
        let mut waits = Vec::new();
        for (resource, host) in
            Resource::ALL.into_iter().flat_map(|of| stats.hosts.iter().map(move |host| (of, host)))
        {
            waits.push((resource.name().to_owned(), host.refused.of(resource)));
        }
        waits.retain(|(_, count)| *count > 0);
        Self {
            limiting: stats.limiting.name().to_owned(),
            counters: stats.counters(),
            kinds: kinds
                .map(|of| (of.name.to_owned(), of.done, of.ran_us, of.used.cpu_us))
                .collect(),
            waits,
        }
    }
}

/// The numbers of a host, which is asked for them once.
#[derive(Default)]
pub(crate) enum AskedNumbers {
    #[default]
    New,
    Asked,
    Told(HostNumbers),
}

impl AskedNumbers {
    pub fn are_to_be_asked(&mut self) -> bool {
        let is_new = matches!(self, Self::New);
        if is_new {
            *self = Self::Asked;
        }
        is_new
    }

    pub fn take(&mut self) -> Option<HostNumbers> {
        match std::mem::replace(self, Self::Asked) {
            Self::Told(numbers) => Some(numbers),
            _ => None,
        }
    }
}

/// The numbers of a schedule as they were told last.
#[derive(Default)]
pub(crate) struct ToldNumbers {
    told: Mutex<(u64, ScheduleStats)>,
    changed: Condvar,
}

impl ToldNumbers {
    pub fn tell(&self, stats: &ScheduleStats) {
        let mut told = lock(&self.told);
        *told = (told.0 + 1, stats.clone());
        self.changed.notify_all();
    }

    /// The first that are told from now on, or within `patience` the last.
    pub fn next(&self, patience: Duration) -> HostNumbers {
        let told = lock(&self.told);
        let before = told.0;
        let waited = self.changed.wait_timeout_while(told, patience, |told| told.0 == before);
        let (told, _) = waited.unwrap_or_else(PoisonError::into_inner);
        HostNumbers::of(&told.1)
    }
}

/// A commit of a store, by which a host sees that its store of this name is the same.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct StoreMark {
    number: u64,
    digest: [u8; 32],
}

impl StoreMark {
    /// The last that is known.
    pub fn of(archive: &Archive) -> Result<Self, ArchiveError> {
        let number = archive.catalog().applied()?;
        let digest = if number == 0 { [0; 32] } else { digest_of(archive.store(), number)? };
        Ok(Self { number, digest })
    }

    /// Whether a store has it; why not, in words.
    pub fn check(&self, store: &dyn Store) -> Result<(), String> {
        let begun = Instant::now();
        // A store without a commit has nothing that it could be known by.
        if self.number == 0 {
            return Ok(());
        }
        loop {
            match digest_of(store, self.number) {
                Ok(digest) if digest == self.digest => return Ok(()),
                Err(error) if error.errno != Errno::NOENT => return Err(error.to_string()),
                Err(_) if begun.elapsed() < SHOWS_MAX => {
                    std::thread::sleep(Duration::from_millis(100));
                }
                _ => return Err("its store of this name is another one".to_owned()),
            }
        }
    }
}

fn digest_of(store: &dyn Store, number: u64) -> Result<[u8; 32], StoreError> {
    let key = log_key(number);
    let bytes = store.size(&key)?;
    Ok(*blake3::hash(&store.read(&key, 0..bytes)?).as_bytes())
}
