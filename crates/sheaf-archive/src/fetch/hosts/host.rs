//! The part of a host: it fetches what the root says.
use super::message::{BeginFetch, FetchStep, FromFetchHost, ToFetchHost};
use crate::archive::{ArchiveError, ArchiveEvent};
use crate::fetch::directory::{FetchLinks, FetchWorker};
use crate::fetch::exclude::{FetchExclude, FetchNames};
use crate::fetch::phases::{FetchGiver, FetchPool, GivenFetch};
use crate::fetch::target::FetchTarget;
use crate::fetch::{FetchCounters, FetchOptions, FetchShared, InTheWay};
use crate::hosts::{HostFiles, HostStore, ToldNumbers};
use crate::left::LeftTold;
use crate::path::ArchivePath;
use crate::save::SaveExclude;
use crate::schedule::MovedBytes;
use crate::store::Store;
use sheaf_core::{Errno, lock};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Steps for each worker that a host has in hand.
const STEPS_AHEAD: usize = 4;
/// Texts that wait for the root; beyond that workers wait.
const TOLD_MAX: usize = 1024;
/// How long a worker waits for the root.
const ROOT_WAIT_MAX: Duration = Duration::from_secs(600);

/// A host that fetches. Dropped, it ends with what it is at.
#[derive(Default)]
pub struct FetchHost {
    begun: Option<Arc<FetchInHand>>,
}

/// What a host has in hand.
struct FetchInHand {
    state: Mutex<FetchState>,
    changed: Condvar,
    counters: Arc<FetchCounters>,
    numbers: ToldNumbers,
    workers: usize,
}

#[derive(Default)]
struct FetchState {
    steps: VecDeque<FetchStep>,
    /// Steps that were begun and are not done.
    busy: usize,
    told: VecDeque<String>,
    is_over: bool,
}

impl FetchHost {
    /// Does what the root asks, and answers within about `patience`.
    ///
    /// # Errors
    /// `EBADMSG` when it is none of its requests.
    pub fn answer(
        &mut self,
        request: &[u8],
        of: &dyn HostFiles,
        patience: Duration,
    ) -> Result<Vec<u8>, Errno> {
        let request: ToFetchHost = postcard::from_bytes(request).map_err(|_| Errno::BADMSG)?;
        let answer = match request {
            ToFetchHost::Begin(begin) => FromFetchHost::Begun(self.begin(&begin, of)),
            ToFetchHost::Go(steps) => {
                let in_hand = self.begun.as_ref().ok_or(Errno::BADMSG)?;
                in_hand.go(steps, patience)
            }
            ToFetchHost::Numbers => {
                let in_hand = self.begun.as_ref().ok_or(Errno::BADMSG)?;
                FromFetchHost::Numbers(in_hand.numbers.next(patience))
            }
        };
        postcard::to_stdvec(&answer).map_err(|_| Errno::NOMEM)
    }

    fn begin(&mut self, begin: &BeginFetch, of: &dyn HostFiles) -> Result<(), String> {
        self.end();
        let HostStore { store, .. } = of.store(OsStr::from_bytes(&begin.store))?;
        begin.mark.check(&*store)?;
        let to = PathBuf::from(OsString::from_vec(begin.to.clone()));
        let base = of
            .make_directory(&to)
            .map_err(|errno| format!("{}: cannot be written: {errno}", to.display()))?;
        let mut options = FetchOptions {
            overwrite: begin.overwrite,
            limits: begin.limits,
            ..FetchOptions::default()
        };
        options.workers = options.workers.max(store.calls_at_once());
        let patterns =
            |globs: &[String]| SaveExclude::new(globs).map_err(|error| error.to_string());
        let (include, exclude) = (patterns(&begin.include)?, patterns(&begin.exclude)?);
        let exclude = FetchExclude::new(FetchNames { include, exclude }, begin.depth as usize);
        let in_hand = Arc::new(FetchInHand {
            state: Mutex::default(),
            changed: Condvar::new(),
            counters: Arc::default(),
            numbers: ToldNumbers::default(),
            workers: options.workers,
        });
        let (at_work, above) = (in_hand.clone(), begin.above.clone());
        let work =
            move || at_work.work(&*store, (options, exclude), FetchTarget::of(base), to, above);
        let thread = std::thread::Builder::new().name("fetch".to_owned()).spawn(work);
        thread.map_err(|error| format!("no thread fetches anything: {error}"))?;
        self.begun = Some(in_hand);
        Ok(())
    }

    fn end(&mut self) {
        if let Some(in_hand) = self.begun.take() {
            in_hand.state().is_over = true;
            in_hand.changed.notify_all();
        }
    }
}

impl Drop for FetchHost {
    fn drop(&mut self) {
        self.end();
    }
}

impl FetchInHand {
    fn state(&self) -> MutexGuard<'_, FetchState> {
        lock(&self.state)
    }

    /// Takes steps; what was done, when there is something to say.
    fn go(&self, steps: Vec<FetchStep>, patience: Duration) -> FromFetchHost {
        let (begun, mut state) = (Instant::now(), self.state());
        state.steps.extend(steps);
        self.changed.notify_all();
        let ahead = self.workers * STEPS_AHEAD;
        loop {
            let in_hand = state.in_hand();
            let left = patience.saturating_sub(begun.elapsed());
            // It answers with half of its steps left, so the next ones come before it is idle.
            if in_hand <= ahead / 2 || !state.told.is_empty() || state.is_over || left.is_zero() {
                break;
            }
            state = self.wait(state, left);
        }
        let told = std::mem::take(&mut state.told).into();
        self.changed.notify_all();
        let in_hand = state.in_hand();
        let wants = u32::try_from(ahead.saturating_sub(in_hand)).unwrap_or(u32::MAX);
        FromFetchHost::Went { told, report: self.counters.report(), wants, is_idle: in_hand == 0 }
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, FetchState>,
        time: Duration,
    ) -> MutexGuard<'a, FetchState> {
        self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Does the steps until all is over.
    fn work(
        &self,
        store: &dyn Store,
        (options, exclude): (FetchOptions, FetchExclude),
        target: FetchTarget,
        to: PathBuf,
        above: ArchivePath,
    ) {
        let told = |event| self.told(&event);
        let shared = FetchShared {
            store,
            // The root has the catalog.
            rows_now: &|_| Ok(None),
            options,
            told: &told,
            exclude,
            target,
            to,
            above,
            links: FetchLinks::default(),
            moved: MovedBytes::new(&options.limits),
            is_full: AtomicBool::new(false),
            attributes_told: LeftTold::default(),
            in_the_way: InTheWay::default(),
            counters: self.counters.clone(),
        };
        let given = StepsOfRoot { of: self, shared: &shared };
        // Nothing that fails is more than a file's, and that is told.
        let _ = FetchPool::given(&shared, &given).run(&|_, stats| self.numbers.tell(stats));
    }

    /// The next step, which may be done now.
    fn next_step(&self) -> Option<FetchStep> {
        let mut state = self.state();
        loop {
            if state.is_over {
                return None;
            }
            let waits = match state.steps.front() {
                None => true,
                // A directory gets its mode and time when nothing more is put anywhere.
                Some(FetchStep::Finish { .. } | FetchStep::Sync) => state.busy > 0,
                Some(_) => false,
            };
            if !waits {
                state.busy += 1;
                return state.steps.pop_front();
            }
            // Who has nothing to do waits as long as there is a root: who drops this ends it.
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Has a text told, once there is room for it.
    fn told(&self, event: &ArchiveEvent) {
        let (begun, mut state) = (Instant::now(), self.state());
        while state.told.len() >= TOLD_MAX && !state.is_over {
            let left = ROOT_WAIT_MAX.saturating_sub(begun.elapsed());
            if left.is_zero() {
                // There is no root that could be told of anything.
                state.is_over = true;
                break;
            }
            state = self.wait(state, left);
        }
        state.told.push_back(event.to_string());
        self.changed.notify_all();
    }
}

impl FetchState {
    fn in_hand(&self) -> usize {
        self.steps.len() + self.busy
    }
}

/// The root's steps, as they are taken up.
struct StepsOfRoot<'a> {
    of: &'a FetchInHand,
    shared: &'a FetchShared<'a>,
}

/// A step that was begun; dropped, it is done.
struct StepInHand<'a>(&'a FetchInHand);

impl Drop for StepInHand<'_> {
    fn drop(&mut self) {
        self.0.state().busy -= 1;
        self.0.changed.notify_all();
    }
}

impl<'a> FetchGiver<'a> for StepsOfRoot<'a> {
    fn next(&self, worker: &mut FetchWorker<'_>) -> GivenFetch<'a> {
        let Some(step) = self.of.next_step() else { return GivenFetch::Over };
        let (held, shared) = (StepInHand(self.of), self.shared);
        match step {
            FetchStep::Fill { path, .. } | FetchStep::Finish { path, .. }
                if shared.exclude.fits_directory(&path) => {}
            FetchStep::Fill { path, rows } => {
                if let Some(is_new) = shared.begin(&path) {
                    return GivenFetch::Directory {
                        path,
                        rows,
                        is_new,
                        held: Some(Arc::new(held)),
                    };
                }
            }
            FetchStep::One { above, name, rows } => match worker.one(&above, &name, rows) {
                Ok(true) => {}
                Ok(false) => {
                    let path = above.join(&name);
                    shared.left_out(1, ArchiveError::NotArchived { path });
                }
                Err(error) => shared.left_out(1, error),
            },
            FetchStep::Finish { path, is } => shared.finish(&path, &is),
            FetchStep::Sync => shared.sync(),
        }
        GivenFetch::Done
    }

    fn is_over(&self) -> bool {
        self.of.state().is_over
    }
}
