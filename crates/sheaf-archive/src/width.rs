//! How many do the same work at once: as many as there are processors while the data is at hand, and
//! more while they mostly wait for it.
use std::time::Duration;

/// Waiters at most, unless somebody says another number.
pub const WIDTH_MAX: usize = 32;
/// Time that all workers together have spent between two decisions, by the number of workers.
const DECIDED_AFTER: Duration = Duration::from_millis(25);
/// Of their time, in percent, that workers wait: more is wider, and less is narrower.
const WAIT_WIDER: u128 = 50;
const WAIT_NARROWER: u128 = 15;

/// A width that follows what is measured of the work.
///
/// The rule is of waits, and not of rates: a rate says nothing where other programs have the same disk,
/// and who waits takes no processor from anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveWidth {
    least: usize,
    most: usize,
    now: usize,
    worked: Duration,
    computed: Duration,
}

impl AdaptiveWidth {
    /// A width of at least `least`, with which it begins, and at most `most`.
    #[must_use]
    pub fn new(least: usize, most: usize) -> Self {
        let least = least.max(1);
        let (worked, computed) = (Duration::ZERO, Duration::ZERO);
        Self { least, most: most.max(least), now: least, worked, computed }
    }

    /// A width from the number of processors to [`WIDTH_MAX`].
    #[must_use]
    pub fn of_machine() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self::new(cores.max(2), WIDTH_MAX)
    }

    /// How many may work now.
    #[must_use]
    pub fn now(&self) -> usize {
        self.now
    }

    /// A piece of work has taken so long, of which a processor had to do for `computed`.
    pub fn observe(&mut self, worked: Duration, computed: Duration) {
        self.worked += worked;
        self.computed += computed.min(worked);
        let round = DECIDED_AFTER * u32::try_from(self.now).unwrap_or(u32::MAX);
        if self.worked < round {
            return;
        }
        let waited = (self.worked - self.computed).as_nanos() * 100 / self.worked.as_nanos();
        // Who waits for a processor waits, too: so there are never many more than can be of use, and
        // narrowing goes by halves as widening goes by doubles.
        if waited > WAIT_WIDER {
            self.now = (self.now * 2).min(self.most);
        } else if waited < WAIT_NARROWER {
            self.now = (self.now / 2).max(self.least);
        }
        (self.worked, self.computed) = (Duration::ZERO, Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second's work, of which so many percent are waits.
    fn work(width: &mut AdaptiveWidth, waits: u64) {
        let worked = Duration::from_secs(1);
        width.observe(worked, worked - Duration::from_millis(waits * 10));
    }

    #[test]
    fn adaptive_width_grows_with_waiting_shrinks_with_computing() {
        let mut width = AdaptiveWidth::new(2, 32);
        let mut wide = Vec::new();
        for waits in [90, 90, 90, 90, 90, 30, 30, 5, 5, 5, 5, 5, 90] {
            work(&mut width, waits);
            wide.push(width.now());
        }
        assert_eq!(wide, [4, 8, 16, 32, 32, 32, 32, 16, 8, 4, 2, 2, 4]);
    }

    #[test]
    fn short_piece_of_work_decides_nothing() {
        let mut width = AdaptiveWidth::new(4, 32);
        width.observe(Duration::from_millis(99), Duration::ZERO);
        assert_eq!(width.now(), 4);
        width.observe(Duration::from_millis(1), Duration::ZERO);
        assert_eq!(width.now(), 8);
    }

    #[test]
    fn bounds_hold_whatever_is_asked() {
        for (least, most) in [(0, 0), (8, 2), (3, 5)] {
            let mut width = AdaptiveWidth::new(least, most);
            for waits in [99, 99, 99, 0, 0, 0] {
                work(&mut width, waits);
                assert!((least.max(1)..=most.max(least.max(1))).contains(&width.now()));
            }
        }
    }
}
