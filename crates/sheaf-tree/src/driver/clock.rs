//! The nodes' time, which stands still while this process does.
use crate::proto::Time;
use std::time::{Duration, Instant};

/// Who comes this much later than it was to be woken was stopped, or had no processor.
const STOOD_STILL_MIN: Duration = Duration::from_secs(1);

/// A process that was stopped (a terminal's Ctrl-Z, a debugger, a frozen cgroup) finds all of its
/// deadlines over when it goes on, and in its sockets the answers that have come meanwhile. They
/// are read before anybody is called silent: what it could not see does not count.
pub(super) struct DriverClock {
    started: Instant,
    /// How long it stood still since.
    still: Duration,
    last: Time,
}

impl DriverClock {
    pub fn start() -> Self {
        Self { started: Instant::now(), still: Duration::ZERO, last: Time(0) }
    }

    /// What it said last.
    pub fn last(&self) -> Time {
        self.last
    }

    /// The time now. The process was to be woken at `armed`, at the latest.
    pub fn read(&mut self, armed: Option<Time>) -> Time {
        self.at(self.started.elapsed(), armed)
    }

    fn at(&mut self, elapsed: Duration, armed: Option<Time>) -> Time {
        let nanos = elapsed.saturating_sub(self.still).as_nanos();
        let mut now = Time(u64::try_from(nanos).unwrap_or(u64::MAX));
        if let Some(armed) = armed {
            let awake = self.last.max(armed);
            let late = if now > awake { now - awake } else { Duration::ZERO };
            if late >= STOOD_STILL_MIN {
                self.still += late;
                now = awake;
            }
        }
        self.last = self.last.max(now);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stands_still_while_the_process_does() {
        let mut clock = DriverClock::start();
        let (at, due) = (Duration::from_millis, |ms| Some(Time(0) + Duration::from_millis(ms)));
        let mut read = |elapsed: u64, armed| clock.at(at(elapsed), armed).0 / 1_000_000;
        assert_eq!(read(500, None), 500);
        assert_eq!(read(50_000, None), 50_000, "with nothing due it may have slept");
        assert_eq!(read(51_000, due(51_500)), 51_000);
        assert_eq!(read(52_400, due(51_500)), 52_400, "late, as on a busy machine");
        assert_eq!(read(90_000, due(52_500)), 52_500, "it was stopped");
        assert_eq!(read(90_100, due(52_500)), 52_600);
        assert_eq!(read(90_900, due(53_000)), 53_400);
        // Who was awake after it was to be woken has not stood still all that time.
        assert_eq!(read(190_900, due(53_000)), 53_400);
        assert_eq!(read(191_000, due(60_000)), 53_500);
    }
}
