//! How far another host's clock is from this one's.
//!
//! The offset of a host's clock is an interval: the offset that is added to its times lies within
//! the bounds of every exchange. Only the root knows the offset, so the root applies it, and the
//! trace records the width of the interval. Inner nodes merge by time only for the order within one
//! round. A watermark that held rows back would delay all hosts for the slowest one. Rows are
//! ordered when a trace is read, from sorted parts.
use std::time::Duration;

/// Clocks drift apart by no more than one in so many: the worst quartz is half as bad.
const DRIFT: i64 = 10_000;

/// An exchange with a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSample {
    /// When it was asked, by the clock here, in ns since 1970.
    pub sent_ns: i64,
    /// When it had been asked, by its own clock.
    pub heard_ns: i64,
    /// When it answered, by its own clock.
    pub answered_ns: i64,
    /// When the answer was here.
    pub came_ns: i64,
}

/// What is to be added to the times of a host's clock: it lies in an interval, which each exchange
/// narrows. (It cannot have heard before it was asked, nor can the answer have come before it was
/// sent.)
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostClock {
    bounds: Option<(i64, i64)>,
}

impl HostClock {
    /// Takes an exchange in; `since` is how long ago the last one was. What contradicts all before
    /// is believed alone: somebody has set the clock.
    pub fn add(&mut self, sample: ClockSample, since: Duration) {
        let low = sample.sent_ns.saturating_sub(sample.heard_ns);
        let high = sample.came_ns.saturating_sub(sample.answered_ns);
        if low > high {
            // The clock was set while it was asked.
            self.bounds = None;
            return;
        }
        let drift = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX) / DRIFT;
        let narrowed = self.bounds.map(|(least, most)| {
            (low.max(least.saturating_sub(drift)), high.min(most.saturating_add(drift)))
        });
        self.bounds = Some(narrowed.filter(|(low, high)| low <= high).unwrap_or((low, high)));
    }

    /// What is to be added, and how far off that is at most, in ns; `None` where nothing is known.
    #[must_use]
    pub fn offset(&self) -> Option<(i64, i64)> {
        let (low, high) = self.bounds?;
        let half = high.saturating_sub(low) / 2;
        Some((low.saturating_add(half), half + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An exchange with a host whose clock is `ahead`, by ways of these lengths.
    fn exchange(at: i64, ahead: i64, there: i64, back: i64) -> ClockSample {
        let (heard_ns, answered_ns) = (at + there + ahead, at + there + 500 + ahead);
        ClockSample { sent_ns: at, heard_ns, answered_ns, came_ns: at + there + 500 + back }
    }

    #[test]
    fn exchanges_narrow_what_a_clock_can_be() {
        let mut clock = HostClock::default();
        assert_eq!(clock.offset(), None);
        let ahead = 7_000_000_000;
        clock.add(exchange(1_000_000, ahead, 900_000, 100_000), Duration::ZERO);
        let (offset, error) = clock.offset().unwrap();
        assert_eq!((offset, error), (-ahead - 400_000, 500_001));
        // The other way is the quick one now: both ends of the interval are near the truth.
        clock.add(exchange(2_000_000, ahead, 100_000, 900_000), Duration::ZERO);
        let (offset, error) = clock.offset().unwrap();
        assert!((offset + ahead).abs() <= error && error < 110_000, "{offset} {error}");
        // Time makes it less certain, and no more than the drift.
        clock.add(exchange(9_000_000_000, ahead, 5_000_000, 5_000_000), Duration::from_secs(9));
        let (offset, error) = clock.offset().unwrap();
        assert!((offset + ahead).abs() <= error && error < 1_110_000, "{offset} {error}");
    }

    #[test]
    fn clock_that_is_set_is_believed() {
        let mut clock = HostClock::default();
        clock.add(exchange(0, 1_000, 10_000, 10_000), Duration::ZERO);
        clock.add(exchange(1_000_000, 60_000_000_000, 10_000, 10_000), Duration::from_millis(1));
        let (offset, error) = clock.offset().unwrap();
        assert!((offset + 60_000_000_000).abs() <= error, "{offset} {error}");
        let set_meanwhile = ClockSample { answered_ns: -5_000_000_000, ..exchange(0, 0, 1, 1) };
        clock.add(ClockSample { came_ns: -9_000_000_000, ..set_meanwhile }, Duration::ZERO);
        assert_eq!(clock.offset(), None);
    }
}
