//! What tasks need, and what a host has of it.
use crate::store::Store;
use std::time::Duration;

/// Something that a host has only so much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Bytes of memory.
    Memory,
    /// Microseconds of processors.
    Cpu,
    /// Bytes that disks read or write.
    DiskBytes,
    /// Calls that disks answer.
    DiskOperations,
    /// Bytes that go through the network.
    NetworkBytes,
    /// Requests to the store.
    StoreConnections,
    /// Tape drives, and whatever else is had alone.
    Devices,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Memory,
        Self::Cpu,
        Self::DiskBytes,
        Self::DiskOperations,
        Self::NetworkBytes,
        Self::StoreConnections,
        Self::Devices,
    ];

    /// What a user calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::DiskBytes => "disk",
            Self::DiskOperations => "disk-operations",
            Self::NetworkBytes => "network",
            Self::StoreConnections => "connections",
            Self::Devices => "devices",
        }
    }

    /// Whether a task uses it up, and more comes with time; else it has it until it ends.
    #[must_use]
    pub fn is_rate(self) -> bool {
        matches!(self, Self::Cpu | Self::DiskBytes | Self::DiskOperations | Self::NetworkBytes)
    }
}

/// An amount of each resource: what a task needs, or has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of memory, while it runs.
    pub memory_bytes: u64,
    /// Microseconds of a processor.
    pub cpu_us: u64,
    /// Bytes of disks.
    pub disk_bytes: u64,
    /// Calls to disks.
    pub disk_operations: u64,
    /// Bytes through the network.
    pub network_bytes: u64,
    /// Requests to the store at once.
    pub store_connections: u64,
    /// Drives.
    pub devices: u64,
}

impl Needs {
    /// How much of one.
    #[must_use]
    pub fn of(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Memory => self.memory_bytes,
            Resource::Cpu => self.cpu_us,
            Resource::DiskBytes => self.disk_bytes,
            Resource::DiskOperations => self.disk_operations,
            Resource::NetworkBytes => self.network_bytes,
            Resource::StoreConnections => self.store_connections,
            Resource::Devices => self.devices,
        }
    }

    pub(super) fn of_mut(&mut self, resource: Resource) -> &mut u64 {
        match resource {
            Resource::Memory => &mut self.memory_bytes,
            Resource::Cpu => &mut self.cpu_us,
            Resource::DiskBytes => &mut self.disk_bytes,
            Resource::DiskOperations => &mut self.disk_operations,
            Resource::NetworkBytes => &mut self.network_bytes,
            Resource::StoreConnections => &mut self.store_connections,
            Resource::Devices => &mut self.devices,
        }
    }
}

/// How much a host has: at once, or each second where it is a rate. What has no limit is not counted
/// against one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ScheduleLimits {
    of: [Option<u64>; Resource::ALL.len()],
}

impl ScheduleLimits {
    /// With a limit; one of 0 would let nothing run, and is 1.
    #[must_use]
    pub fn with(mut self, resource: Resource, limit: u64) -> Self {
        self.of[resource as usize] = Some(limit.max(1));
        self
    }

    /// What of a limit of memory tasks may have: the program itself, its catalog and its threads take some, too.
    pub(crate) fn of_tasks(&self) -> Self {
        match self.of(Resource::Memory) {
            Some(limit) => self.with(Resource::Memory, limit - PROGRAM_BYTES.min(limit / 2)),
            None => *self,
        }
    }

    /// Leaves a store its part of the memory that tasks may have. How much each of its writers takes of the rest.
    pub(crate) fn leave_to(&mut self, store: &dyn Store) -> u64 {
        let (Some(limit), Some(tasks)) =
            (self.of(Resource::Memory), self.of_tasks().of(Resource::Memory))
        else {
            return 0;
        };
        let memory = store.share_memory(tasks);
        *self = self.with(Resource::Memory, limit.saturating_sub(memory.shared_bytes));
        memory.writer_bytes
    }

    /// A part of the memory that tasks may have, up to so many bytes.
    pub(crate) fn memory_part(&self, parts: u64, most: u64) -> u64 {
        self.of_tasks().of(Resource::Memory).map_or(most, |limit| most.min((limit / parts).max(1)))
    }

    /// The limit of a resource.
    #[must_use]
    pub fn of(&self, resource: Resource) -> Option<u64> {
        self.of[resource as usize]
    }
}

/// Memory of the program beside its tasks.
const PROGRAM_BYTES: u64 = 24 << 20;
/// Of a rate, what may be used at once after a time of rest.
const BURST: Duration = Duration::from_millis(250);
const SECOND_NS: i128 = 1_000_000_000;

/// What is used of a host.
#[derive(Clone, Debug)]
pub(super) struct HostUse {
    limits: ScheduleLimits,
    /// What running tasks have.
    held: Needs,
    holders: [u64; Resource::ALL.len()],
    tasks: usize,
    /// What is left of rates, in parts of 10⁻⁹; negative where a task has used more than there was.
    left: [i128; Resource::ALL.len()],
    refilled: Duration,
    /// How often each was granted, and how often it was the reason not to grant.
    pub granted: Needs,
    pub refused: Needs,
    /// What was used of it, as far as it was measured.
    pub used: Needs,
}

impl HostUse {
    pub fn new(limits: ScheduleLimits) -> Self {
        let left = Resource::ALL.map(|resource| burst(limits.of(resource).unwrap_or(0)));
        Self {
            limits,
            held: Needs::default(),
            holders: [0; Resource::ALL.len()],
            tasks: 0,
            left,
            refilled: Duration::ZERO,
            granted: Needs::default(),
            refused: Needs::default(),
            used: Needs::default(),
        }
    }

    pub fn limits(&self) -> &ScheduleLimits {
        &self.limits
    }

    pub fn held(&self) -> &Needs {
        &self.held
    }

    /// Tasks that run on it.
    pub fn tasks(&self) -> usize {
        self.tasks
    }

    /// Time has gone on.
    pub fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.refilled).as_nanos().cast_signed();
        self.refilled = self.refilled.max(now);
        for (resource, left) in Resource::ALL.into_iter().zip(&mut self.left) {
            if let Some(limit) = self.limits.of(resource).filter(|_| resource.is_rate()) {
                *left = (*left + i128::from(limit) * passed).min(burst(limit));
            }
        }
    }

    /// The first resource of which there is not enough; of those that are claimed there is nothing.
    pub fn lacks(&self, needs: &Needs, claimed: &ResourceClaims) -> Option<Resource> {
        Resource::ALL.into_iter().find(|&resource| {
            let Some(limit) = self.limits.of(resource) else { return false };
            let need = needs.of(resource);
            if need == 0 {
                return false;
            }
            let is_short = if resource.is_rate() {
                self.left[resource as usize] < asked(need, limit)
            } else {
                // What needs more than there is has it alone.
                self.holders[resource as usize] > 0 && self.held.of(resource) + need > limit
            };
            claimed.0[resource as usize] || is_short
        })
    }

    /// When there will be enough of a rate of which there is not enough now.
    pub fn enough_at(&self, resource: Resource, needs: &Needs) -> Option<Duration> {
        let limit = self.limits.of(resource).filter(|_| resource.is_rate())?;
        let missing = asked(needs.of(resource), limit) - self.left[resource as usize];
        if missing <= 0 {
            return None;
        }
        // Rounded up: woken too early, it would find too little once more.
        let wait = u64::try_from(missing / i128::from(limit) + 1).unwrap_or(u64::MAX);
        Some(self.refilled.saturating_add(Duration::from_nanos(wait)))
    }

    pub fn grant(&mut self, needs: &Needs) {
        self.tasks += 1;
        for resource in Resource::ALL {
            let need = needs.of(resource);
            if need > 0 {
                *self.granted.of_mut(resource) += 1;
                *self.held.of_mut(resource) += need;
                self.holders[resource as usize] += 1;
                self.left[resource as usize] -= i128::from(need) * SECOND_NS;
            }
        }
    }

    /// A task has ended, to which `needs` was granted. Of rates it is what was used that counts.
    pub fn release(&mut self, needs: &Needs, used: &Needs) {
        self.tasks -= 1;
        for resource in Resource::ALL {
            let need = needs.of(resource);
            *self.used.of_mut(resource) += used.of(resource);
            self.left[resource as usize] +=
                (i128::from(need) - i128::from(used.of(resource))) * SECOND_NS;
            if need > 0 {
                *self.held.of_mut(resource) -= need;
                self.holders[resource as usize] -= 1;
            }
        }
        for (resource, left) in Resource::ALL.into_iter().zip(&mut self.left) {
            if let Some(limit) = self.limits.of(resource) {
                // Tasks that use less than they were granted save up no more than a burst.
                *left = (*left).min(burst(limit));
            }
        }
    }

    /// What must hold: nothing is held beyond its limit, but by one that needs more than there is.
    #[cfg(any(test, debug_assertions))]
    pub fn check(&self) -> Result<(), String> {
        for resource in Resource::ALL.into_iter().filter(|resource| !resource.is_rate()) {
            let (held, holders) = (self.held.of(resource), self.holders[resource as usize]);
            if self.limits.of(resource).is_some_and(|limit| held > limit && holders > 1) {
                return Err(format!("{} is oversubscribed: {held}", resource.name()));
            }
            if holders == 0 && held != 0 {
                return Err(format!("{} is held by nobody: {held}", resource.name()));
            }
        }
        Ok(())
    }
}

/// What may be used at once, in parts of 10⁻⁹.
fn burst(limit: u64) -> i128 {
    (i128::from(limit) * BURST.as_nanos().cast_signed()).max(SECOND_NS)
}

/// What must be left for a task: what needs more than a burst waits for a whole one, and leaves a debt.
fn asked(need: u64, limit: u64) -> i128 {
    (i128::from(need) * SECOND_NS).min(burst(limit))
}

/// Resources that are kept for a task that comes before others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResourceClaims([bool; Resource::ALL.len()]);

impl ResourceClaims {
    pub fn claim(&mut self, resource: Resource) {
        self.0[resource as usize] = true;
    }
}
