//! Which task comes next: three phases of work, and what each task needs of each host.
//!
//! A tree is walked, its directories are compared with what is archived, and files are transferred.
//! Each of these phases has a queue and a width of its own. Work of a later phase comes first, so that
//! what was begun ends before more is begun; a phase of which nothing runs gets one task all the same,
//! so that none starves. A full queue stops the phases before it. Within a phase the order is that of
//! a serial walk.
//!
//! A task declares what it needs. It is begun when its host has that: nothing is oversubscribed,
//! and what a task lacks is kept for it from those that come behind it. What kinds of tasks have
//! used corrects what the next ones declare. Waiting tasks are bounded by their bytes, so memory is
//! bounded.
//!
//! This is the state machine: it takes the time and what has happened, and says what is to be done. It
//! starts no thread and reads no clock. [`pool`] is the threads around it.
//!
//! PSI, sections 4.1 (three phases, later ones first) and 4.2 (a resource estimate for each
//! thread). The paper estimates from a description of the hardware; here the estimate is corrected
//! by what tasks have used. The paper does not say how it keeps earlier phases from starving: here
//! each has a floor of one task, and a full queue stops the phases before it.
mod cost;
mod limiting;
pub(crate) mod pool;
mod queue;
mod resources;
#[cfg(test)]
mod simulated;
mod stats;
mod throttle;

pub use resources::{Needs, Resource, ScheduleLimits};
pub(crate) use stats::MovedBytes;
pub use stats::{HostStats, KindStats, Limiting, PhaseStats, ScheduleStats};

use crate::width::AdaptiveWidth;
use cost::Costs;
use limiting::LimitingTimes;
use queue::PhaseQueue;
use resources::{HostUse, ResourceClaims};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A phase of the work; each makes the tasks of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Directories are listed, and their names looked at.
    Walk,
    /// A directory is compared with what is archived of it.
    Directory,
    /// Contents are read and written.
    Transfer,
}

impl Phase {
    /// In their order.
    pub const ALL: [Self; 3] = [Self::Walk, Self::Directory, Self::Transfer];

    /// What a user calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Walk => "walk",
            Self::Directory => "directory",
            Self::Transfer => "transfer",
        }
    }

    fn next(self) -> Option<Self> {
        Self::ALL.get(self as usize + 1).copied()
    }
}

/// Tasks that need alike: by these, what is declared is corrected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TaskKind {
    /// Lists a directory, or looks at some of its names.
    List,
    /// Compares names with what is archived.
    Compare,
    /// Transfers many small files.
    Transfer,
    /// Transfers a large one.
    TransferLarge,
}

impl TaskKind {
    pub const ALL: [Self; 4] = [Self::List, Self::Compare, Self::Transfer, Self::TransferLarge];

    pub fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Compare => "compare",
            Self::Transfer => "transfer",
            Self::TransferLarge => "transfer_large",
        }
    }
}

/// One of the hosts that work is done on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostId(pub usize);

/// The place of a task in a serial walk: of each directory on the way, and of itself, the number of its
/// name.
pub(crate) type TaskPlace = Arc<[u32]>;

#[derive(Debug)]
pub(crate) struct Task<T> {
    pub phase: Phase,
    pub kind: TaskKind,
    /// Where; nothing where any host can.
    pub host: Option<HostId>,
    pub place: TaskPlace,
    /// Tasks of one lane are done one after the other, as they come.
    pub lane: Option<u64>,
    pub needs: Needs,
    /// Bytes that it has while it waits.
    pub queue_bytes: u64,
    /// Bytes of tasks of the next phase that it makes, at most.
    pub makes_bytes: u64,
    pub work: T,
}

/// A task that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GrantId(u64);

/// What is to be done next.
#[derive(Debug)]
pub(crate) enum Next<T> {
    /// This, on this host.
    Run(GrantId, HostId, T),
    /// Nothing, until a task ends or comes, or until then.
    Wait(Option<Duration>),
    /// Nothing, and nothing can come.
    Over,
}

#[derive(Clone, Debug)]
pub(crate) struct ScheduleSettings {
    /// What each host has.
    pub hosts: Vec<ScheduleLimits>,
    /// Tasks of a phase at once, at most.
    pub widths: [usize; Phase::ALL.len()],
    /// Tasks at once; beside these, one of a phase of which nothing runs.
    pub width: AdaptiveWidth,
    /// Bytes that wait for a phase, at most; the first is bounded by the order of its work.
    pub queue_bytes_max: u64,
}

struct Running {
    phase: Phase,
    kind: TaskKind,
    host: HostId,
    lane: Option<u64>,
    declared: Needs,
    granted: Needs,
    /// Of the bytes that it may make, those that it has not made.
    reserved: u64,
    began: Duration,
}

struct PhaseState<T> {
    queue: PhaseQueue<T>,
    running: usize,
    done: u64,
    /// Tasks that were begun because nothing of their phase ran.
    by_floor: u64,
    /// Bytes that running tasks of the phase before may still make.
    reserved: u64,
    /// How often a full queue has stopped the phase before.
    stopped: u64,
}

pub(crate) struct Schedule<T> {
    settings: ScheduleSettings,
    phases: [PhaseState<T>; Phase::ALL.len()],
    hosts: Vec<HostUse>,
    running: HashMap<GrantId, Running>,
    begun: u64,
    costs: Costs,
    limiting: LimitingTimes,
}

impl<T> Schedule<T> {
    pub fn new(settings: ScheduleSettings) -> Self {
        let hosts = settings.hosts.iter().map(|limits| HostUse::new(*limits)).collect();
        Self {
            settings,
            phases: Phase::ALL.map(|_| PhaseState {
                queue: PhaseQueue::default(),
                running: 0,
                done: 0,
                by_floor: 0,
                reserved: 0,
                stopped: 0,
            }),
            hosts,
            running: HashMap::new(),
            begun: 0,
            costs: Costs::default(),
            limiting: LimitingTimes::default(),
        }
    }

    /// Something is to be done, which a running task has made, or somebody else.
    pub fn push(&mut self, from: Option<GrantId>, task: Task<T>) {
        debug_assert!(task.host.is_none_or(|host| host.0 < self.hosts.len()));
        let state = &mut self.phases[task.phase as usize];
        if let Some(maker) = from.and_then(|from| self.running.get_mut(&from))
            && maker.phase.next() == Some(task.phase)
        {
            // These bytes were reserved when the maker began. They are in the queue now, and count
            // once.
            let made = task.queue_bytes.min(maker.reserved);
            maker.reserved -= made;
            state.reserved -= made;
        }
        state.queue.push(task);
    }

    /// What is to be done next.
    pub fn next(&mut self, now: Duration) -> Next<T> {
        self.limiting.pass(now);
        for host in &mut self.hosts {
            host.refill(now);
        }
        if !self.is_waiting() {
            self.limiting.is(if self.running.is_empty() {
                Limiting::Nothing
            } else {
                Limiting::Work
            });
            return if self.running.is_empty() { Next::Over } else { Next::Wait(None) };
        }
        let mut pass = Pass::new(self.hosts.len());
        // Phases of which nothing runs first, and of the rest the later ones.
        for floor in [true, false] {
            for phase in Phase::ALL.into_iter().rev() {
                if let Some((host, wanted)) = self.choose(phase, floor, &mut pass) {
                    return self.begin(now, phase, floor, host, wanted);
                }
            }
        }
        self.limiting.is(pass.why.unwrap_or(Limiting::Work));
        Next::Wait(pass.again)
    }

    /// A host for the first task of a phase that can be begun, and whose queue that task is in.
    fn choose(
        &mut self,
        phase: Phase,
        floor: bool,
        pass: &mut Pass,
    ) -> Option<(HostId, Option<HostId>)> {
        let state = &self.phases[phase as usize];
        // The first pass looks only at phases of which nothing runs, the second only at the others.
        if state.queue.len() == 0 || floor != (state.running == 0) {
            return None;
        }
        if !floor
            && (state.running >= self.settings.widths[phase as usize]
                || self.running.len() >= self.settings.width.now())
        {
            pass.because(Limiting::Workers);
            return None;
        }
        let (mut chosen, mut is_stopped) = (None, false);
        for task in state.queue.heads() {
            if let Some(next) = phase.next()
                && !self.has_room(next, task.makes_bytes)
            {
                pass.because(Limiting::Phase(next));
                is_stopped = true;
                break;
            }
            let needs = self.costs.corrected(task.kind, &task.needs);
            if let Some(host) = Self::host_for(&mut self.hosts, task.host, &needs, pass) {
                chosen = Some((host, task.host));
                break;
            }
        }
        if is_stopped && let Some(next) = phase.next() {
            self.phases[next as usize].stopped += 1;
        }
        chosen
    }

    /// Whether a queue takes so many bytes more. An empty one takes whatever comes.
    fn has_room(&self, phase: Phase, bytes: u64) -> bool {
        let state = &self.phases[phase as usize];
        let filled = state.queue.bytes() + state.reserved;
        bytes == 0 || filled == 0 || filled + bytes <= self.settings.queue_bytes_max
    }

    /// The host with enough of all; of several, the one with the fewest tasks. What is missing is kept
    /// from whoever comes behind.
    fn host_for(
        hosts: &mut [HostUse],
        on: Option<HostId>,
        needs: &Needs,
        pass: &mut Pass,
    ) -> Option<HostId> {
        let (mut chosen, mut refused) = (None, Vec::new());
        for (number, host) in hosts.iter().enumerate() {
            if on.is_some_and(|on| on.0 != number) {
                continue;
            }
            match host.lacks(needs, &pass.claims[number]) {
                None => {
                    let tasks = host.tasks();
                    if chosen.is_none_or(|(_, fewest)| tasks < fewest) {
                        chosen = Some((HostId(number), tasks));
                    }
                }
                Some(resource) => refused.push((number, resource)),
            }
        }
        // Where another host takes the task, nothing is kept for it here.
        if chosen.is_none() {
            for (number, resource) in refused {
                *hosts[number].refused.of_mut(resource) += 1;
                pass.claims[number].claim(resource);
                pass.because(Limiting::Resource(number, resource));
                if let Some(at) = hosts[number].enough_at(resource, needs) {
                    pass.again = Some(pass.again.map_or(at, |again| again.min(at)));
                }
            }
        }
        chosen.map(|(host, _)| host)
    }

    fn begin(
        &mut self,
        now: Duration,
        phase: Phase,
        floor: bool,
        host: HostId,
        of: Option<HostId>,
    ) -> Next<T> {
        let state = &mut self.phases[phase as usize];
        let task = state.queue.take(of).expect("its head was looked at just now");
        state.running += 1;
        state.by_floor += u64::from(floor);
        let granted = self.costs.corrected(task.kind, &task.needs);
        self.hosts[host.0].grant(&granted);
        let mut reserved = 0;
        if let Some(next) = phase.next() {
            // Several tasks at once must not overfill the next queue together.
            reserved = task.makes_bytes;
            self.phases[next as usize].reserved += reserved;
        }
        self.begun += 1;
        let id = GrantId(self.begun);
        let Task { kind, lane, needs: declared, .. } = task;
        let began = now;
        let running = Running { phase, kind, host, lane, declared, granted, reserved, began };
        self.running.insert(id, running);
        self.limiting.is(Limiting::Work);
        Next::Run(id, host, task.work)
    }

    /// A task has ended, and has used this.
    pub fn ended(&mut self, now: Duration, id: GrantId, used: &Needs) {
        self.limiting.pass(now);
        let Some(task) = self.running.remove(&id) else {
            debug_assert!(false, "a task ends once");
            return;
        };
        let ran = now.saturating_sub(task.began);
        let state = &mut self.phases[task.phase as usize];
        state.running -= 1;
        state.done += 1;
        if let Some(lane) = task.lane {
            state.queue.leave(lane);
        }
        if let Some(next) = task.phase.next() {
            // What it has not made by now it will not make.
            self.phases[next as usize].reserved -= task.reserved;
        }
        self.hosts[task.host.0].release(&task.granted, used);
        let ran_us = u64::try_from(ran.as_micros()).unwrap_or(u64::MAX);
        self.costs.measured(task.kind, &task.declared, used, ran_us);
        self.limiting.worked(ran, Duration::from_micros(used.cpu_us));
        self.settings.width.observe(ran, Duration::from_micros(used.cpu_us));
    }

    /// Whether something waits to be begun.
    pub fn is_waiting(&self) -> bool {
        self.phases.iter().any(|phase| phase.queue.len() > 0)
    }

    /// How many threads can be of use.
    pub fn threads_max(&self) -> usize {
        // Each phase may have one beyond the width.
        self.settings.width.now() + Phase::ALL.len() - 1
    }

    /// What must hold after every call.
    ///
    /// # Errors
    /// What does not.
    #[cfg(any(test, debug_assertions))]
    pub fn check(&self) -> Result<(), String> {
        for host in &self.hosts {
            host.check()?;
        }
        for (phase, state) in Phase::ALL.into_iter().zip(&self.phases) {
            state.queue.check()?;
            let running = self.running.values().filter(|task| task.phase == phase).count();
            if running != state.running || running > self.settings.widths[phase as usize].max(1) {
                return Err(format!("{running} tasks run in phase {}", phase.name()));
            }
            let makers = self.running.values().filter(|task| task.phase.next() == Some(phase));
            let reserved: u64 = makers.clone().map(|task| task.reserved).sum();
            if reserved != state.reserved {
                return Err(format!("{reserved} bytes may come to phase {}", phase.name()));
            }
        }
        Ok(())
    }
}

/// What one look for the next task has come to.
struct Pass {
    claims: Vec<ResourceClaims>,
    /// The first reason not to begin something.
    why: Option<Limiting>,
    /// When it may be otherwise.
    again: Option<Duration>,
}

impl Pass {
    fn new(hosts: usize) -> Self {
        Self { claims: vec![ResourceClaims::default(); hosts], why: None, again: None }
    }

    fn because(&mut self, why: Limiting) {
        self.why.get_or_insert(why);
    }
}
