//! What a schedule has done and does, as numbers.
use super::resources::{Needs, Resource, ScheduleLimits};
use super::throttle::Throttle;
use super::{Phase, Schedule, TaskKind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Why no more is begun than is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Limiting {
    /// Nothing is to be done.
    #[default]
    Nothing,
    /// All work that there is has been begun.
    Work,
    /// All workers have to do.
    Workers,
    /// They compute.
    Processors,
    /// They wait for files to be read or written.
    Files,
    /// The queue of this phase is full.
    Phase(Phase),
    /// A resource of a host, by its number.
    Resource(usize, Resource),
}

impl Limiting {
    /// What a user calls it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Work => "work",
            Self::Workers => "workers",
            Self::Processors => "cpu",
            Self::Files => "files",
            Self::Phase(phase) => phase.name(),
            Self::Resource(_, resource) => resource.name(),
        }
    }
}

/// One phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseStats {
    /// Which one.
    pub phase: Phase,
    /// Tasks that wait.
    pub waiting: usize,
    /// Bytes that these have.
    pub waiting_bytes: u64,
    /// Tasks that run.
    pub running: usize,
    /// Tasks that have ended.
    pub done: u64,
    /// Tasks that were begun because nothing of this phase ran.
    pub by_floor: u64,
    /// Tasks at once at most.
    pub width: usize,
    /// How often its full queue has stopped the phase before.
    pub stopped: u64,
}

/// One host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostStats {
    /// What it has.
    pub limits: ScheduleLimits,
    /// What running tasks have of it.
    pub held: Needs,
    /// How often each was granted.
    pub granted: Needs,
    /// How often each was the reason not to begin a task.
    pub refused: Needs,
    /// What was used of it.
    pub used: Needs,
}

/// One kind of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindStats {
    /// What it is called.
    pub name: &'static str,
    /// Tasks that have ended.
    pub done: u64,
    /// How long these ran, in microseconds.
    pub ran_us: u64,
    /// What they have used.
    pub used: Needs,
    /// By how much what they declare is multiplied, in parts of a thousand.
    pub factors: Needs,
}

/// All numbers of a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduleStats {
    /// The phases in their order.
    pub phases: Vec<PhaseStats>,
    /// The hosts by their numbers.
    pub hosts: Vec<HostStats>,
    /// The kinds of tasks.
    pub kinds: Vec<KindStats>,
    /// Tasks at once at most, over all phases.
    pub width: usize,
    /// What limits the work.
    pub limiting: Limiting,
    /// Bytes of contents that were read or written by now, of files that are not done yet, too.
    pub moved_bytes: u64,
    /// Bytes of contents that are to be, as far as they have been found.
    pub found_bytes: u64,
}

/// Contents on their way, as they are counted while they are. Their rates are kept here.
pub(crate) struct MovedBytes {
    moved: AtomicU64,
    found: AtomicU64,
    throttle: Throttle,
}

impl MovedBytes {
    pub fn new(limits: &ScheduleLimits) -> Self {
        let (moved, found) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { moved, found, throttle: Throttle::new(limits) }
    }

    /// So much is to be read or written.
    pub fn found(&self, bytes: u64) {
        self.found.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So much was. Where that is beyond a rate, this waits.
    pub fn moved(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        self.throttle.take(bytes);
    }

    /// So much was there already.
    pub fn skipped(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So much was read, and goes nowhere.
    pub fn read(&self, bytes: u64) {
        self.throttle.take(bytes);
    }

    /// Puts both with the other numbers.
    pub fn with(&self, stats: &ScheduleStats) -> ScheduleStats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (moved_bytes, found_bytes) = (of(&self.moved), of(&self.found));
        ScheduleStats { moved_bytes, found_bytes, ..stats.clone() }
    }
}

impl ScheduleStats {
    /// Each number under a name that a monitor takes: those that only grow end with `_total`.
    #[must_use]
    pub fn counters(&self) -> Vec<(String, u64)> {
        let mut all = vec![
            ("sheaf_archive_width".to_owned(), self.width as u64),
            ("sheaf_archive_moved_bytes_total".to_owned(), self.moved_bytes),
            ("sheaf_archive_found_bytes_total".to_owned(), self.found_bytes),
        ];
        for of in &self.phases {
            let mut push = |what, value| {
                all.push((format!("sheaf_archive_{}_{what}", of.phase.name()), value));
            };
            push("waiting", of.waiting as u64);
            push("waiting_bytes", of.waiting_bytes);
            push("running", of.running as u64);
            push("width", of.width as u64);
            push("done_total", of.done);
            push("by_floor_total", of.by_floor);
            push("queue_full_total", of.stopped);
        }
        for (number, host) in self.hosts.iter().enumerate() {
            let on = if self.hosts.len() > 1 { format!("host{number}_") } else { String::new() };
            for resource in Resource::ALL {
                let name = resource.name().replace('-', "_");
                let mut push = |what: &str, value| {
                    all.push((format!("sheaf_archive_{on}{name}_{what}"), value));
                };
                if let Some(limit) = host.limits.of(resource) {
                    push("limit", limit);
                }
                if !resource.is_rate() {
                    push("held", host.held.of(resource));
                }
                push("granted_total", host.granted.of(resource));
                push("refused_total", host.refused.of(resource));
                push("used_total", host.used.of(resource));
            }
        }
        for kind in &self.kinds {
            let mut push = |what: &str, value| {
                all.push((format!("sheaf_archive_{}_{what}", kind.name), value));
            };
            push("tasks_total", kind.done);
            push("task_microseconds_total", kind.ran_us);
            push("task_cpu_microseconds_total", kind.used.cpu_us);
            for resource in Resource::ALL.into_iter().filter(|resource| resource.is_rate()) {
                let name = resource.name().replace('-', "_");
                push(&format!("task_{name}_correction_permille"), kind.factors.of(resource));
            }
        }
        all
    }
}

impl<T> Schedule<T> {
    /// The numbers as they are.
    pub fn stats(&self) -> ScheduleStats {
        let phases = Phase::ALL.into_iter().zip(&self.phases).map(|(phase, state)| PhaseStats {
            phase,
            waiting: state.queue.len(),
            waiting_bytes: state.queue.bytes(),
            running: state.running,
            done: state.done,
            by_floor: state.by_floor,
            width: self.settings.widths[phase as usize],
            stopped: state.stopped,
        });
        let hosts = self.hosts.iter().map(|host| HostStats {
            limits: *host.limits(),
            held: *host.held(),
            granted: host.granted,
            refused: host.refused,
            used: host.used,
        });
        let kinds = TaskKind::ALL.into_iter().map(|kind| {
            let cost = self.costs.of(kind);
            let mut factors = Needs::default();
            for resource in Resource::ALL {
                *factors.of_mut(resource) = cost.factors[resource as usize];
            }
            let (name, done, used) = (kind.name(), cost.done, cost.used);
            KindStats { name, done, ran_us: cost.ran_us, used, factors }
        });
        ScheduleStats {
            phases: phases.collect(),
            hosts: hosts.collect(),
            kinds: kinds.collect(),
            width: self.settings.width.now(),
            limiting: self.limiting.most(),
            moved_bytes: 0,
            found_bytes: 0,
        }
    }
}
