//! What the work waits for.
use super::stats::Limiting;
use std::collections::HashMap;
use std::time::Duration;

/// How long something counts: after this time, half as much.
const HALF_LIFE: Duration = Duration::from_secs(2);
/// Of the time that tasks run, in percent, that processors have to do for it to be they who limit.
const COMPUTING: u128 = 70;

/// For how long each was the reason that no more was begun; what is long ago counts less.
#[derive(Clone, Debug, Default)]
pub(super) struct LimitingTimes {
    reason: Option<Limiting>,
    since: Duration,
    times: HashMap<Limiting, f64>,
    worked: f64,
    computed: f64,
}

impl LimitingTimes {
    /// Time has gone on with the reason as it was.
    pub fn pass(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.since);
        self.since = self.since.max(now);
        if passed.is_zero() {
            return;
        }
        let fade = 0.5f64.powf(passed.as_secs_f64() / HALF_LIFE.as_secs_f64());
        for time in self.times.values_mut() {
            *time *= fade;
        }
        self.worked *= fade;
        self.computed *= fade;
        if let Some(reason) = self.reason {
            *self.times.entry(reason).or_default() += passed.as_secs_f64();
        }
    }

    /// The reason from now on.
    pub fn is(&mut self, reason: Limiting) {
        self.reason = Some(reason);
    }

    /// A task has run so long, of which a processor had to do for `computed`.
    pub fn worked(&mut self, ran: Duration, computed: Duration) {
        self.worked += ran.as_secs_f64();
        self.computed += computed.as_secs_f64().min(ran.as_secs_f64());
    }

    /// The reason for most of the last seconds. Where it is that all workers have to do, or that there
    /// is no more work, it is said what they do: compute, or wait for files.
    pub fn most(&self) -> Limiting {
        let longest = self.times.iter().max_by(|one, other| {
            one.1.total_cmp(other.1).then_with(|| one.0.name().cmp(other.0.name()))
        });
        match longest.map(|(reason, _)| *reason) {
            None | Some(Limiting::Nothing) => Limiting::Nothing,
            Some(Limiting::Workers | Limiting::Work | Limiting::Phase(_)) if self.worked > 0.0 => {
                let computed = (self.computed * 100.0 / self.worked) as u128;
                if computed >= COMPUTING { Limiting::Processors } else { Limiting::Files }
            }
            Some(other) => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Resource;

    #[test]
    fn reason_of_most_of_the_last_time_is_told() {
        let second = Duration::from_secs;
        let mut times = LimitingTimes::default();
        assert_eq!(times.most(), Limiting::Nothing);
        let memory = Limiting::Resource(0, Resource::Memory);
        let network = Limiting::Resource(0, Resource::NetworkBytes);
        times.is(memory);
        times.pass(second(10));
        times.is(network);
        times.pass(second(11));
        assert_eq!(times.most(), memory);
        times.pass(second(20));
        assert_eq!(times.most(), network);
        times.is(Limiting::Workers);
        times.pass(second(40));
        times.worked(second(10), second(9));
        assert_eq!(times.most(), Limiting::Processors);
        times.worked(second(10), second(1));
        assert_eq!(times.most(), Limiting::Files);
    }
}
