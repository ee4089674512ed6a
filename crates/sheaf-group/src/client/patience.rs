//! How long hosts are waited for.
use super::Client;
use sheaf_core::{Errno, RangeSet};
use std::time::{Duration, Instant};

/// How long hosts have for what they are asked just before the deadline.
const LAST_WAIT: Duration = Duration::from_millis(100);

/// How long after the deadline, at which it is cancelled, a change would be given up. Nothing waits
/// so long.
const CANCEL_TIME: Duration = Duration::from_secs(1);

/// How long hosts have to say what they have done: after the deadline, and after an interrupt.
const LAST_WORDS_LATE: Duration = Duration::from_millis(250);
const LAST_WORDS: Duration = Duration::from_secs(1);

impl Client {
    /// Why nothing more is to be begun: `ECANCELED` after an interrupt, `ETIMEDOUT` after the
    /// deadline.
    #[must_use]
    pub fn is_over(&self) -> Option<Errno> {
        if self.is_interrupted() {
            return Some(Errno::CANCELED);
        }
        self.limits
            .deadline
            .is_some_and(|deadline| deadline <= Instant::now())
            .then_some(Errno::TIMEDOUT)
    }

    /// Waits until [`Client::is_over`] says why.
    pub async fn over(&self) -> Errno {
        let late = async {
            match self.limits.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.interrupted() => Errno::CANCELED,
            () = late => Errno::TIMEDOUT,
        }
    }

    /// How long an answer is waited for from now on. What is asked for shortly before the deadline
    /// has a moment; afterwards nothing is waited for.
    pub(super) fn patience(&self) -> Duration {
        let least = if self.is_over() == Some(Errno::TIMEDOUT) {
            Duration::from_millis(1)
        } else {
            LAST_WAIT
        };
        let left =
            self.limits.deadline.map(|at| at.saturating_duration_since(Instant::now()).max(least));
        left.map_or(self.limits.timeout, |left| left.min(self.limits.timeout))
    }

    /// How long the answer to a change is waited for that is cancelled at the deadline.
    pub(super) fn patience_with_change(&self) -> Duration {
        let left = self.limits.deadline.map(|at| at.saturating_duration_since(Instant::now()));
        match left {
            Some(left) if left <= self.limits.timeout => left + CANCEL_TIME,
            _ => self.limits.timeout,
        }
    }

    /// How long it is waited for what hosts say they have done.
    pub(super) fn patience_with_last_words(&self) -> Duration {
        if self.is_over() == Some(Errno::TIMEDOUT) { LAST_WORDS_LATE } else { LAST_WORDS }
    }

    /// How long input waits for hosts that are being started, where the time is bounded: half of it.
    pub(super) fn patience_with_starting(&self) -> Option<Duration> {
        self.limits.deadline.map(|_| self.patience() / 2)
    }

    /// How long a host may take nothing of what is sent to all. Where the time is bounded, half of
    /// it is left for the others, and most of it where others of `members` are being started still: they have had
    /// their half.
    pub(super) fn patience_with_input(&self, members: &RangeSet) -> Duration {
        let patience = self.patience();
        match self.limits.deadline {
            None => self.limits.timeout,
            Some(_) => match self.are_starting(members) {
                Some(true) => patience / 8 * 7,
                Some(false) => patience / 4,
                None => patience / 2,
            },
        }
    }

    /// Whether all of `members` are being started; nothing if none is.
    #[must_use]
    pub fn are_starting(&self, members: &RangeSet) -> Option<bool> {
        let starting = self.network().starting();
        (!starting.is_disjoint(members)).then(|| members.is_subset(&starting))
    }
}
