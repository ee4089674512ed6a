//! The grace period after an owner's server was restarted: clients claim the locks again that they held at the server
//! before, and no other lock is set or tested meanwhile.
//!
//! | who | does what |
//! |---|---|
//! | the owner's kernel | keeps locks, for as long as the owner's server runs and the client is connected |
//! | the client | remembers its locks, asks each 0.5 s whether the owner still has them, and claims them again |
//! | the owner's server | sets claimed locks for [`GRACE`] after its first client has come, and no others |
//! | a client that lost locks | has all of its open files of that owner fail (`EIO`) until they are closed |
//!
//! A client that was cut off has lost its locks: other clients may have had them since. So claims are refused except in
//! the grace period of a server that was started in the place of another.
use std::time::{Duration, Instant};

/// How long clients may claim locks.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// Whether clients may claim locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Grace {
    /// No client has come yet.
    #[default]
    Unknown,
    /// They may not: no server was here before.
    Never,
    /// They may, until this moment.
    Until(Instant),
}

impl Grace {
    /// A client has come. `is_successor` says whether another server was here before.
    pub fn client_came(&mut self, is_successor: impl FnOnce() -> bool, now: Instant) {
        if *self == Self::Unknown {
            *self = if is_successor() { Self::Until(now + GRACE) } else { Self::Never };
        }
    }

    /// Whether it is on.
    pub fn is_on(self, now: Instant) -> bool {
        matches!(self, Self::Until(end) if now < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_begins_with_the_first_client_of_a_successor() {
        let now = Instant::now();
        let mut grace = Grace::default();
        assert!(!grace.is_on(now));
        grace.client_came(|| true, now);
        assert!(grace.is_on(now) && grace.is_on(now + GRACE / 2));
        grace.client_came(|| true, now + GRACE / 2);
        assert!(!grace.is_on(now + GRACE), "it is bounded");
        let mut first = Grace::default();
        first.client_came(|| false, now);
        first.client_came(|| true, now);
        assert!(!first.is_on(now));
    }
}
