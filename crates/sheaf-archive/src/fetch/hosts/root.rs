//! The part of the root: it has the catalog, and says what is archived.
use super::message::{BeginFetch, FetchStep, FromFetchHost, ToFetchHost};
use crate::archive::{Archive, ArchiveError};
use crate::fetch::{FetchNames, FetchReport, above_of};
use crate::hosts::{AskedNumbers, HostNumbers, HostStep, HostTold, HostsRoot, StoreMark};
use crate::path::ArchivePath;
use crate::schedule::ScheduleLimits;
use sheaf_core::lock;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Steps in one message at most.
const STEPS_MAX: usize = 256;
/// Bytes after which a message is long enough. One step of it may be longer.
const MESSAGE_BYTES: usize = 256 << 10;

/// What hosts fetch, and where it goes.
#[derive(Clone, Debug)]
pub struct FetchRootOptions {
    /// The store, as hosts are to call it.
    pub store: Vec<u8>,
    /// An absolute path on hosts: the directory that it goes to, under its name.
    pub to: PathBuf,
    /// Whether what is newer than the archived is written over.
    pub overwrite: bool,
    /// As in [`FetchOptions`](crate::FetchOptions).
    pub contents: bool,
    /// What is left out.
    pub names: FetchNames,
    /// As in [`FetchOptions`](crate::FetchOptions), for each host by itself.
    pub limits: ScheduleLimits,
    /// Hosts are asked for their numbers at the end.
    pub numbers: bool,
}

/// What is archived on its way to many hosts, at the root.
pub struct FetchRoot {
    archive: Arc<Archive>,
    mark: StoreMark,
    options: FetchRootOptions,
    hosts: Vec<Mutex<FetchingHost>>,
    told: Mutex<Vec<(usize, HostTold)>>,
}

/// A host, and how far it is.
struct FetchingHost {
    from: Option<ArchivePath>,
    at: FetchStage,
    wants: u32,
    is_idle: bool,
    report: FetchReport,
    numbers: AskedNumbers,
}

/// How far a host is; in the last directory that it was given.
enum FetchStage {
    New,
    Asked,
    Filling(Option<ArchivePath>),
    Finishing(Option<ArchivePath>),
    Syncing,
    /// All is given.
    Given,
    Over,
}

impl FetchRoot {
    /// Of hosts, each of which gets a file or directory, or nothing.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn new(
        archive: Arc<Archive>,
        options: FetchRootOptions,
        hosts: Vec<Option<ArchivePath>>,
    ) -> Result<Self, ArchiveError> {
        let mark = StoreMark::of(&archive)?;
        let host = |from: Option<ArchivePath>| {
            let at = if from.is_some() { FetchStage::New } else { FetchStage::Over };
            let report = FetchReport::default();
            let numbers = AskedNumbers::default();
            Mutex::new(FetchingHost { from, at, wants: 0, is_idle: true, report, numbers })
        };
        let hosts = hosts.into_iter().map(host).collect();
        Ok(Self { archive, mark, options, hosts, told: Mutex::default() })
    }

    /// What was done.
    #[must_use]
    pub fn report(&self) -> FetchReport {
        let mut all = FetchReport::default();
        for host in &self.hosts {
            all += lock(host).report;
        }
        all
    }

    /// What hosts have told of what they did it with, by their numbers.
    pub fn numbers(&self) -> Vec<(usize, HostNumbers)> {
        let hosts = self.hosts.iter().enumerate();
        hosts.filter_map(|(number, host)| Some((number, lock(host).numbers.take()?))).collect()
    }

    fn tell(&self, host: usize, text: String) {
        lock(&self.told).push((host, HostTold::Said(text)));
    }

    /// The next steps of a host.
    fn steps(&self, host: &mut FetchingHost) -> Result<Vec<FetchStep>, ArchiveError> {
        let (mut steps, mut bytes) = (Vec::new(), 0);
        let many = (host.wants as usize).min(STEPS_MAX);
        while steps.len() < many && bytes < MESSAGE_BYTES {
            let Some(step) = self.step(host)? else { break };
            bytes += postcard::to_stdvec(&step).map_or(MESSAGE_BYTES, |bytes| bytes.len());
            steps.push(step);
        }
        Ok(steps)
    }

    /// The next one.
    fn step(&self, host: &mut FetchingHost) -> Result<Option<FetchStep>, ArchiveError> {
        let Some(from) = &host.from else { return Ok(None) };
        let catalog = self.archive.catalog();
        loop {
            match &mut host.at {
                FetchStage::Filling(last) => {
                    if let Some((path, _)) = catalog.below(from, last.as_ref(), 1)?.pop() {
                        *last = Some(path.clone());
                        let rows = catalog.rows_of(&path)?;
                        return Ok(Some(FetchStep::Fill { path, rows }));
                    }
                    if last.is_none()
                        && let Some((above, name)) = from.split()
                    {
                        // It is no directory, or nothing at all, which the host finds out.
                        let (name, rows) = (name.to_vec(), catalog.rows_of(&above)?);
                        host.at = FetchStage::Syncing;
                        return Ok(Some(FetchStep::One { above, name, rows }));
                    }
                    host.at = FetchStage::Finishing(None);
                }
                FetchStage::Finishing(last) => {
                    if let Some((path, is)) = catalog.below_from_end(from, last.as_ref(), 1)?.pop()
                    {
                        *last = Some(path.clone());
                        return Ok(Some(FetchStep::Finish { path, is }));
                    }
                    host.at = FetchStage::Syncing;
                }
                FetchStage::Syncing => {
                    host.at = FetchStage::Given;
                    return Ok(Some(FetchStep::Sync));
                }
                _ => return Ok(None),
            }
        }
    }
}

impl HostsRoot for FetchRoot {
    fn so_far(&self) -> Option<(u64, u64)> {
        let report = self.report();
        Some((report.fetched.saturating_add(report.unchanged), report.fetched_bytes))
    }

    fn next(&self, number: usize) -> Result<HostStep, ArchiveError> {
        let mut host = lock(&self.hosts[number]);
        let asked = match (&host.at, &host.from) {
            (FetchStage::Over, _) | (_, None) => return Ok(HostStep::Over),
            (FetchStage::New, Some(from)) => {
                let is_directory = self.archive.catalog().directory(from)?.is_some();
                let above = above_of(from, self.options.contents && is_directory);
                let of = &self.options;
                let depth = u32::try_from(from.depth()).unwrap_or(u32::MAX);
                let asked = ToFetchHost::Begin(Box::new(BeginFetch {
                    store: of.store.clone(),
                    mark: self.mark,
                    to: of.to.as_os_str().as_bytes().to_vec(),
                    above,
                    depth,
                    overwrite: of.overwrite,
                    limits: of.limits,
                    exclude: of.names.exclude.globs().to_vec(),
                    include: of.names.include.globs().to_vec(),
                }));
                host.at = FetchStage::Asked;
                asked
            }
            _ => {
                let steps = self.steps(&mut host)?;
                let is_given = matches!(host.at, FetchStage::Given);
                // What a host has in hand may still fail, and its report is not the last.
                let is_over = is_given && steps.is_empty() && host.is_idle;
                match is_over && self.options.numbers && host.numbers.are_to_be_asked() {
                    true => ToFetchHost::Numbers,
                    false if is_over => {
                        host.at = FetchStage::Over;
                        return Ok(HostStep::Over);
                    }
                    false => ToFetchHost::Go(steps),
                }
            }
        };
        Ok(HostStep::Ask(postcard::to_stdvec(&asked).expect("memory takes what it is given")))
    }

    fn answered(&self, number: usize, answer: &[u8]) -> Result<(), ArchiveError> {
        let mut host = lock(&self.hosts[number]);
        match (postcard::from_bytes(answer), &host.at) {
            (Ok(FromFetchHost::Begun(Ok(()))), FetchStage::Asked) => {
                // How much it wants it says with its first answer, which needs a step to come.
                (host.at, host.wants) = (FetchStage::Filling(None), 1);
            }
            (Ok(FromFetchHost::Begun(Err(why))), _) => {
                // `lost` takes this lock, too.
                drop(host);
                return self.lost(number, &why);
            }
            (Ok(FromFetchHost::Went { told, report, wants, is_idle }), _) => {
                (host.report, host.wants, host.is_idle) = (report, wants, is_idle);
                drop(host);
                told.into_iter().for_each(|text| self.tell(number, text));
            }
            (Ok(FromFetchHost::Numbers(numbers)), _) => host.numbers = AskedNumbers::Told(numbers),
            _ => {
                drop(host);
                return self.lost(number, "its answer is none: it is another version");
            }
        }
        Ok(())
    }

    fn lost(&self, number: usize, why: &str) -> Result<(), ArchiveError> {
        let mut host = lock(&self.hosts[number]);
        if !matches!(host.at, FetchStage::Over) {
            host.at = FetchStage::Over;
            host.report.failed = host.report.failed.saturating_add(1);
            drop(host);
            self.tell(number, why.to_owned());
        }
        Ok(())
    }

    fn told(&self) -> Vec<(usize, HostTold)> {
        std::mem::take(&mut lock(&self.told))
    }
}
