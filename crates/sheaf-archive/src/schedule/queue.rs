//! The tasks of one phase that wait, in the order in which they are to be done.
use super::{HostId, Task, TaskPlace};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Where a task comes in its queue: by its place, and of one place by when it came.
type QueuePlace = (TaskPlace, u64);

/// Tasks of one lane behind the one that is ready or runs.
type PhaseLane<T> = VecDeque<Task<T>>;

pub(super) struct PhaseQueue<T> {
    /// Tasks that may be begun, of each host, and of any.
    ready: BTreeMap<Option<HostId>, BTreeMap<QueuePlace, Task<T>>>,
    /// A lane is here as long as one of its tasks is ready or runs.
    lanes: HashMap<u64, PhaseLane<T>>,
    came: u64,
    tasks: usize,
    bytes: u64,
}

impl<T> Default for PhaseQueue<T> {
    fn default() -> Self {
        let (ready, lanes) = (BTreeMap::new(), HashMap::new());
        Self { ready, lanes, came: 0, tasks: 0, bytes: 0 }
    }
}

impl<T> PhaseQueue<T> {
    pub fn len(&self) -> usize {
        self.tasks
    }

    /// Bytes of what waits.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn push(&mut self, task: Task<T>) {
        self.tasks += 1;
        self.bytes += task.queue_bytes;
        self.admit(task);
    }

    fn admit(&mut self, task: Task<T>) {
        if let Some(lane) = task.lane {
            match self.lanes.get_mut(&lane) {
                Some(waiting) => return waiting.push_back(task),
                None => drop(self.lanes.insert(lane, PhaseLane::new())),
            }
        }
        self.came += 1;
        let place = (task.place.clone(), self.came);
        self.ready.entry(task.host).or_default().insert(place, task);
    }

    /// The first task of each host and of any, in their order.
    pub fn heads(&self) -> impl Iterator<Item = &Task<T>> {
        let mut heads: Vec<_> = self.ready.values().filter_map(BTreeMap::first_key_value).collect();
        heads.sort_by_key(|(place, _)| *place);
        heads.into_iter().map(|(_, task)| task)
    }

    /// Takes the first task of a host, or of any.
    pub fn take(&mut self, host: Option<HostId>) -> Option<Task<T>> {
        let ready = self.ready.get_mut(&host)?;
        let (_, task) = ready.pop_first()?;
        if ready.is_empty() {
            self.ready.remove(&host);
        }
        self.tasks -= 1;
        self.bytes -= task.queue_bytes;
        Some(task)
    }

    /// A task of a lane has ended: the next may be begun.
    pub fn leave(&mut self, lane: u64) {
        let Some(mut waiting) = self.lanes.remove(&lane) else { return };
        if let Some(next) = waiting.pop_front() {
            // The lane was taken out, so `admit` makes this one ready; the rest goes back behind
            // it.
            self.admit(next);
            self.lanes.insert(lane, waiting);
        }
    }

    /// What must hold: what is counted is what is there.
    #[cfg(any(test, debug_assertions))]
    pub fn check(&self) -> Result<(), String> {
        let ready = self.ready.values().flat_map(BTreeMap::values);
        let all = ready.chain(self.lanes.values().flatten());
        let (tasks, bytes) =
            all.fold((0, 0), |(tasks, bytes), task| (tasks + 1, bytes + task.queue_bytes));
        if (tasks, bytes) != (self.tasks, self.bytes) {
            return Err(format!("{tasks} tasks wait, and {} are counted", self.tasks));
        }
        Ok(())
    }
}
