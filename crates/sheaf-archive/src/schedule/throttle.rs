//! Rates of a host that tasks keep while they run: a schedule begins a task, and a large one would use at
//! once what it was granted.
use super::resources::{Resource, ScheduleLimits};
use sheaf_core::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The rates of contents. What is read of a file is written to the store, or the other way round, and counts
/// once.
const RATES: [Resource; 2] = [Resource::DiskBytes, Resource::NetworkBytes];
/// Of a rate, what may be used at once after a time of rest.
const BURST: Duration = Duration::from_millis(100);

/// A bucket for each rate. Whoever takes more than there is waits for it.
#[derive(Debug)]
pub(crate) struct Throttle {
    buckets: Option<Mutex<[Bucket; RATES.len()]>>,
    start: Instant,
}

/// When all that was taken has been paid for, at a rate in bytes a second.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    rate: Option<u64>,
    paid_at: Duration,
}

impl Throttle {
    pub fn new(limits: &ScheduleLimits) -> Self {
        let buckets = RATES.map(|of| Bucket { rate: limits.of(of), paid_at: Duration::ZERO });
        let is_any = buckets.iter().any(|bucket| bucket.rate.is_some());
        Self { buckets: is_any.then(|| Mutex::new(buckets)), start: Instant::now() }
    }

    /// Takes so many bytes of each rate, and waits until they are paid for.
    pub fn take(&self, bytes: u64) {
        let Some(buckets) = &self.buckets else { return };
        let now = self.start.elapsed();
        let wait = lock(buckets).iter_mut().map(|bucket| bucket.take(now, bytes)).max();
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            std::thread::sleep(wait);
        }
    }
}

impl Bucket {
    /// How long one has to wait who takes so many bytes now.
    fn take(&mut self, now: Duration, bytes: u64) -> Duration {
        let Some(rate) = self.rate else { return Duration::ZERO };
        let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        let cost = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        let from = self.paid_at.max(now.saturating_sub(BURST));
        self.paid_at = from.saturating_add(cost);
        self.paid_at.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_a_rate_are_waited_for() {
        let limits = ScheduleLimits::default().with(Resource::DiskBytes, 1000);
        let throttle = Throttle::new(&limits);
        let mut bucket = lock(throttle.buckets.as_ref().unwrap())[0];
        let ms = Duration::from_millis;
        // At the beginning nothing is saved up.
        assert_eq!(bucket.take(ms(0), 10), ms(10));
        // One behind another: what was taken is paid for first.
        assert_eq!(bucket.take(ms(0), 500), ms(510));
        assert_eq!(bucket.take(ms(200), 0), ms(310));
        // A rest saves up a burst, and no more.
        assert_eq!(bucket.take(ms(10_000), 100), ms(0));
        assert_eq!(bucket.take(ms(10_000), 100), ms(100));
        // Whatever is asked for, the sum keeps the rate.
        let mut now = ms(20_000);
        for _ in 0..100 {
            now += bucket.take(now, 77);
        }
        assert!(now >= ms(20_000 + 7700 - 100), "{now:?}");
    }

    #[test]
    fn without_a_limit_nothing_is_waited_for() {
        assert!(Throttle::new(&ScheduleLimits::default()).buckets.is_none());
        assert_eq!(Bucket::default().take(Duration::ZERO, u64::MAX), Duration::ZERO);
    }
}
