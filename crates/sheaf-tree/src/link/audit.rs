//! Who was let in at a node's door, and who was not.
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use sheaf_core::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// The most peers of which a refusal is logged; all are counted.
const PEERS_LOGGED_MAX: usize = 256;

/// Why a connection was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// It did not say who it is in time.
    Late,
    /// More came, and it had waited longest without saying who it is.
    Crowded,
    /// It went away before it had said who it is.
    Left,
    /// No TLS, or no certificate of this session.
    Handshake,
    /// Its first bytes are no greeting, or announce more than a greeting has.
    Greeting,
    /// Another version of the protocol.
    Version,
    /// Another session, or a wrong token.
    Token,
    /// Its certificate is not for the rank it claims.
    Rank,
    /// No such node is expected here.
    Unexpected,
    /// A process of another user.
    User,
    /// It was started for another host than the one that is expected here.
    Name,
    /// Its introduction was used before, or is late, or another's.
    Introduction,
    /// A host that asked to join went away before it showed a token: this is no session of its.
    NoToken,
    /// A host that asked to join has a token that this session has not made.
    ForeignToken,
    /// A host that asked to join has a token that has been used already.
    UsedToken,
    /// A host that asked to join is none of the session's.
    ForeignHost,
    /// A host that asked to join is there already.
    There,
    /// A host that asked to join could not be given its place.
    NoPlace,
}

/// All reasons, in the order in which they are counted.
pub const REFUSALS: [Refusal; 18] = [
    Refusal::Late,
    Refusal::Crowded,
    Refusal::Left,
    Refusal::Handshake,
    Refusal::Greeting,
    Refusal::Version,
    Refusal::Token,
    Refusal::Rank,
    Refusal::Unexpected,
    Refusal::User,
    Refusal::Name,
    Refusal::Introduction,
    Refusal::NoToken,
    Refusal::ForeignToken,
    Refusal::UsedToken,
    Refusal::ForeignHost,
    Refusal::There,
    Refusal::NoPlace,
];

impl Refusal {
    /// One phrase.
    #[must_use]
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Late => "it did not say who it is in time",
            Self::Crowded => "too many others came while it did not say who it is",
            Self::Left => "it went away without saying who it is",
            Self::Handshake => "no certificate of this session",
            Self::Greeting => "not the greeting of a node",
            Self::Version => "another version of the protocol",
            Self::Token => "another session or a wrong token",
            Self::Rank => "its certificate is another node's",
            Self::Unexpected => "no such node is expected here",
            Self::User => "a process of another user",
            Self::Name => "it was started for another host",
            Self::Introduction => "an introduction that is used, late or another's",
            Self::NoToken => "no token of this session was shown by who asked to join",
            Self::ForeignToken => "a host's token is not of this session",
            Self::UsedToken => "a host's token has been used already",
            Self::ForeignHost => "a host that is not one of the session's",
            Self::There => "a host that is there already",
            Self::NoPlace => "a host could not be given its place",
        }
    }
}

/// Counts at the door of one node; cheap to share.
#[derive(Debug, Default)]
pub struct Audit {
    accepted: AtomicU64,
    refused: [AtomicU64; REFUSALS.len()],
    /// When that was last, in seconds since 1970.
    refused_at: [AtomicU64; REFUSALS.len()],
    logged: Mutex<FxHashSet<(String, Refusal)>>,
}

/// What an [`Audit`] has counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditCounts {
    /// Connections that were let in.
    pub accepted: u64,
    /// Connections that were refused, by reason; only reasons that occurred.
    pub refused: Vec<(Refusal, u64)>,
}

impl AuditCounts {
    /// The counts by name, for the report of a node.
    #[must_use]
    pub(crate) fn named(&self) -> Vec<(String, u64)> {
        let refused =
            self.refused.iter().map(|(why, count)| (format!("{why:?}").to_lowercase(), *count));
        std::iter::once(("accepted".to_owned(), self.accepted)).chain(refused).collect()
    }

    /// Connections that were refused, for whatever reason.
    #[must_use]
    pub fn refused_total(&self) -> u64 {
        self.refused.iter().map(|(_, count)| count).sum()
    }
}

impl Audit {
    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> AuditCounts {
        let count = |refusal| (refusal, self.refused[refusal as usize].load(Ordering::Relaxed));
        let refused = REFUSALS.into_iter().map(count).filter(|(_, count)| *count > 0).collect();
        AuditCounts { accepted: self.accepted.load(Ordering::Relaxed), refused }
    }

    /// When a connection was last refused for this reason, in seconds since 1970; 0 for never.
    #[must_use]
    pub fn last_refused(&self, why: Refusal) -> u64 {
        self.refused_at[why as usize].load(Ordering::Relaxed)
    }

    pub(super) fn accept(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a refusal, and logs the first of this peer for this reason.
    pub(crate) fn refuse(&self, peer: &str, why: Refusal) {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_secs());
        self.refused_at[why as usize].store(now, Ordering::Relaxed);
        let mut logged = lock(&self.logged);
        if logged.len() < PEERS_LOGGED_MAX && logged.insert((peer.to_owned(), why)) {
            tracing::warn!(peer, reason = why.phrase(), "a connection was refused");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_a_counter_of_its_own() {
        let audit = Audit::default();
        for (at, refusal) in REFUSALS.into_iter().enumerate() {
            assert_eq!(refusal as usize, at);
            assert_eq!(audit.last_refused(refusal), 0);
            audit.refuse("somebody", refusal);
            assert!(audit.last_refused(refusal) > 0);
        }
        assert_eq!(audit.counts().refused, REFUSALS.map(|refusal| (refusal, 1)));
    }

    #[test]
    fn peers_remembered_for_the_audit_log_are_bounded() {
        let audit = Audit::default();
        for at in 0..10 * PEERS_LOGGED_MAX {
            audit.refuse(&at.to_string(), Refusal::Greeting);
        }
        assert_eq!(audit.logged.lock().unwrap().len(), PEERS_LOGGED_MAX);
        assert_eq!(audit.counts().refused_total(), 10 * PEERS_LOGGED_MAX as u64);
    }
}
