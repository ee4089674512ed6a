//! The client: one call, all members, one answer.
use crate::aggregate::{Data, ErrorClass, FILTER, Partial};
use crate::error::GroupError;
use hosts::MemberHosts;
use interrupt::Interrupts;
use sheaf_core::hostset::HostSet;
use sheaf_core::{Errno, RangeSet};
use sheaf_tree::topology::Names;
use sheaf_tree::{Network, Stream, Sync, WaveResult};
use std::sync::Arc;
use std::time::{Duration, Instant};

mod ask;
mod call;
mod fetch;
mod garbled;
mod group;
mod hosts;
mod interrupt;
mod layout;
mod opening;
mod outcome;
mod patience;
mod times;

pub use call::{Call, Unfinished};
pub use group::{Group, Reading, Value};
pub use outcome::Outcome;
pub use times::RequestTimes;

/// Members with one content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// The leaves (of a tool's answer) or members (of a group's data) that have it.
    pub members: sheaf_core::MemberSet,
    /// BLAKE3 digest of the content.
    pub digest: crate::aggregate::ClassDigest,
    /// Bytes of the content.
    pub len: u64,
    /// The content, unless only digests were wanted or nobody who has it could be asked.
    pub body: Option<Vec<u8>>,
}

/// Bounds of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// How long members may be silent. It bounds one request of a group operation; a tool may take
    /// longer, as long as its host shows that it is at work.
    pub timeout: Duration,
    /// When everything is to be over, whatever the hosts are at: who has not answered by then is
    /// silent with `ETIMEDOUT`.
    pub deadline: Option<Instant>,
    /// The most data that may gather at the root for one call.
    pub bytes_max: u64,
}

impl Limits {
    /// The same with another deadline.
    #[must_use]
    pub fn with_deadline(self, deadline: Option<Instant>) -> Self {
        Self { deadline, ..self }
    }

    /// The same with another timeout.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The same with another bound of data.
    #[must_use]
    pub fn with_bytes_max(self, bytes_max: u64) -> Self {
        Self { bytes_max, ..self }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(60), deadline: None, bytes_max: 64 << 20 }
    }
}

/// The side of group operations that asks: a running tree with the names of its hosts.
///
/// Cheap to clone; all clones are the same client.
#[derive(Clone)]
pub struct Client {
    inner: Arc<ClientInner>,
    limits: Limits,
}

struct ClientInner {
    network: Network,
    hosts: MemberHosts,
    interrupts: Interrupts,
    times: times::TimesCount,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("hosts", self.hosts())
            .field("limits", &self.limits)
            .field("is_interrupted", &self.is_interrupted())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client of `network`; `names` are those of its leaves, in the order of the leaves.
    ///
    /// # Errors
    /// [`GroupError::Names`] when there are more or fewer names than leaves,
    /// [`GroupError::NamedTwice`] when two leaves have one name.
    pub fn new(network: Network, names: Names, limits: Limits) -> Result<Self, GroupError> {
        let hosts = MemberHosts::new(names, network.leaf_count())?;
        let interrupts = Interrupts::new();
        let inner = ClientInner { network, hosts, interrupts, times: Default::default() };
        Ok(Self { inner: Arc::new(inner), limits })
    }

    /// The same client with other bounds.
    #[must_use]
    pub fn with_limits(&self, limits: Limits) -> Self {
        Self { limits, ..self.clone() }
    }

    /// What was asked so far by all clones, and how long was waited for it.
    #[must_use]
    pub fn times(&self) -> RequestTimes {
        self.inner.times.so_far()
    }

    /// The bounds of its calls.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The tree.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.inner.network
    }

    /// The hosts. Their order as a set need not be that of the leaves: [`Client::host`] names a
    /// leaf.
    #[must_use]
    pub fn hosts(&self) -> &HostSet {
        self.inner.hosts.set()
    }

    /// The names of the hosts in the order of the leaves.
    #[must_use]
    pub fn names(&self) -> &Names {
        self.inner.hosts.names()
    }

    /// The name of the host that is this leaf.
    #[must_use]
    pub fn host(&self, leaf: u32) -> Option<String> {
        self.names().get(leaf)
    }

    /// The leaf that is the host of this name.
    #[must_use]
    pub fn leaf(&self, host: &str) -> Option<u32> {
        self.inner.hosts.leaf(host)
    }

    /// The leaves of these hosts.
    ///
    /// # Errors
    /// [`GroupError::UnknownHost`] with the first that is not of the session.
    pub fn leaves(&self, hosts: &HostSet) -> Result<RangeSet, GroupError> {
        if hosts == self.hosts() {
            return Ok(self.inner.network.everyone());
        }
        let leaf = |name: String| self.leaf(&name).ok_or(GroupError::UnknownHost(name));
        hosts.iter().map(leaf).collect()
    }

    /// A set of leaves as a folded host set.
    #[must_use]
    pub fn fold(&self, leaves: &RangeSet) -> String {
        self.inner.hosts.fold(leaves)
    }

    /// A line for each reason why members or whole hosts did not succeed:
    /// `n[3,7]:/etc/app.conf: No such file or directory (ENOENT)`.
    #[must_use]
    pub fn failures(&self, outcome: &Outcome) -> Vec<String> {
        let members = outcome.errors.iter().map(|error| {
            let hosts = self.fold(&error.members.leaves());
            let more = match error.more {
                0 => String::new(),
                more => format!(", and {more} more members"),
            };
            match &*error.path {
                "" => format!("{hosts}: {}{more}", error.errno),
                path => format!("{hosts}:{path}: {}{more}", error.errno),
            }
        });
        let hosts = outcome.failed.iter().chain(&outcome.silent);
        let hosts = hosts.map(|(errno, leaves)| format!("{}: {errno}", self.fold(leaves)));
        members.chain(hosts).collect()
    }

    /// Ends every operation under way with what it has, and those to come at once, until
    /// [`Client::resume`]: the members that have not answered are silent with `ECANCELED`.
    pub fn interrupt(&self) {
        self.inner.interrupts.interrupt();
    }

    /// Takes the interrupt back: what is asked from now on is done. What was under way when the
    /// client was interrupted has ended.
    pub fn resume(&self) {
        self.inner.interrupts.resume();
    }

    /// Whether [`Client::interrupt`] was called, and not taken back.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.inner.interrupts.is_interrupted()
    }

    /// Waits until [`Client::interrupt`] is called. Dropping the future has no effect.
    pub async fn interrupted(&self) {
        self.inner.interrupts.begin().interrupted().await;
    }

    fn stream(&self, service: &str, members: &RangeSet) -> Result<Stream, GroupError> {
        self.check(members)?;
        Ok(self.inner.network.open(service, members.clone(), FILTER, &[], Sync::WaitForAll))
    }

    /// Whether all of these leaves exist.
    fn check(&self, members: &RangeSet) -> Result<(), GroupError> {
        let leaves = self.inner.network.leaf_count();
        match members.ranges().last() {
            Some(&(_, last)) if last >= leaves => {
                Err(GroupError::UnknownLeaf { leaf: last, leaves })
            }
            _ => Ok(()),
        }
    }
}

/// Whether data could not be combined within the bound. A single host of several that are `asked` each for its own has
/// failed by itself.
fn too_large(partial: &Partial, wave: &WaveResult, asked: Option<&RangeSet>) -> bool {
    let exceeded = matches!(&partial.data, Data::Packed(packed) if packed.exceeded.is_some());
    let failed = wave.coverage.failed.iter().filter(|(errno, _)| *errno == Errno::MSGSIZE);
    let failed: u64 = failed.map(|(_, leaves)| leaves.len()).sum();
    exceeded || failed > u64::from(asked.is_some_and(|asked| asked.len() > 1))
}

fn errors_of(partial: &mut Partial) -> Vec<ErrorClass> {
    std::mem::take(&mut partial.errors)
}
