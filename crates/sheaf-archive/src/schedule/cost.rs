//! What kinds of tasks really use, by which what they declare is corrected.
use super::TaskKind;
use super::resources::{Needs, Resource};

/// Parts of a thousand: declared needs are taken as they are.
const AS_DECLARED: u64 = 1000;
/// However wrong a declaration is, it counts for so much, and for no more.
const FACTOR_MIN: u64 = AS_DECLARED / 16;
const FACTOR_MAX: u64 = AS_DECLARED * 16;
/// How much of a factor the last task makes: one part of so many.
const LAST_PARTS: u64 = 8;

/// What is known of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct KindCost {
    /// Tasks that have ended.
    pub done: u64,
    /// By how much what they declare is multiplied, in parts of a thousand.
    pub factors: [u64; Resource::ALL.len()],
    /// What they have used in all.
    pub used: Needs,
    /// How long they ran in all, in microseconds.
    pub ran_us: u64,
}

impl Default for KindCost {
    fn default() -> Self {
        let factors = [AS_DECLARED; Resource::ALL.len()];
        Self { done: 0, factors, used: Needs::default(), ran_us: 0 }
    }
}

/// What is known of all kinds.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs([KindCost; TaskKind::ALL.len()]);

impl Costs {
    pub fn of(&self, kind: TaskKind) -> &KindCost {
        &self.0[kind as usize]
    }

    /// What a task will need, by what it declares. What is counted in pieces is as it is declared.
    pub fn corrected(&self, kind: TaskKind, declared: &Needs) -> Needs {
        let mut needs = *declared;
        for resource in Resource::ALL.into_iter().filter(|resource| is_measured(*resource)) {
            let factor = self.of(kind).factors[resource as usize];
            let need = needs.of_mut(resource);
            if *need > 0 {
                // With 0 it would not count as a user of the resource at all.
                *need = (need.saturating_mul(factor) / AS_DECLARED).max(1);
            }
        }
        needs
    }

    /// A task has ended.
    pub fn measured(&mut self, kind: TaskKind, declared: &Needs, used: &Needs, ran_us: u64) {
        let cost = &mut self.0[kind as usize];
        cost.done += 1;
        cost.ran_us += ran_us;
        for resource in Resource::ALL {
            *cost.used.of_mut(resource) += used.of(resource);
            let (declared, used) = (declared.of(resource), used.of(resource));
            // What was not measured is no measure.
            if declared > 0 && used > 0 && is_measured(resource) {
                let last =
                    (used.saturating_mul(AS_DECLARED) / declared).clamp(FACTOR_MIN, FACTOR_MAX);
                let factor = &mut cost.factors[resource as usize];
                // Rounded up: it comes to rest at or above what was used, and not below.
                *factor = (*factor * (LAST_PARTS - 1) + last).div_ceil(LAST_PARTS);
            }
        }
    }
}

/// Memory is as it is declared, which is the most that a task takes: an average would be exceeded.
fn is_measured(resource: Resource) -> bool {
    resource.is_rate()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_costs_correct_declared_needs() {
        let mut costs = Costs::default();
        let declared = Needs { cpu_us: 1000, memory_bytes: 4096, devices: 1, ..Needs::default() };
        let used = Needs { cpu_us: 3000, memory_bytes: 1024, devices: 9, ..Needs::default() };
        for _ in 0..60 {
            costs.measured(TaskKind::Transfer, &declared, &used, 1);
        }
        let needs = costs.corrected(TaskKind::Transfer, &declared);
        assert!((2900..=3100).contains(&needs.cpu_us), "{needs:?}");
        assert_eq!(needs.memory_bytes, 4096, "a peak is no average");
        assert_eq!((needs.devices, needs.disk_bytes), (1, 0));
        // Another kind's are as they were.
        assert_eq!(costs.corrected(TaskKind::List, &declared), declared);
    }

    #[test]
    fn unmeasured_costs_leave_declared_needs_unchanged() {
        let mut costs = Costs::default();
        let declared = Needs { disk_bytes: 77, ..Needs::default() };
        costs.measured(TaskKind::Compare, &declared, &Needs::default(), 1);
        assert_eq!(costs.corrected(TaskKind::Compare, &declared), declared);
    }
}
