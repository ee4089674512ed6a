//! Who is let in at a node's door: children it has started, and orphans from below.
use super::family::{Kin, watch};
use crate::driver::{Peer, Shared};
use crate::link::door::Host;
use crate::link::hello::Hello;
use crate::link::wire::Channel;
use crate::topology::Topology;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, RangeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::task::AbortHandle;

/// A child that has been started and has not connected.
struct Expected {
    link: usize,
    is_leaf: bool,
    kin: Option<Kin>,
    /// Looks whether its process ends before it connects.
    watch: Option<AbortHandle>,
}

/// The nodes below one node, as far as doors are concerned.
pub(super) struct Nursery {
    shared: Weak<Shared>,
    topology: Topology,
    expected: Mutex<FxHashMap<u32, Expected>>,
    /// Processes of the children.
    kin: Mutex<FxHashMap<u32, Kin>>,
    /// Links of nodes that were taken in.
    adopted: Mutex<Vec<usize>>,
    /// Leaves that may come although no link waits for them, with what each is told first.
    late: Mutex<FxHashMap<u32, Bytes>>,
    /// The links of children that have come.
    members: Mutex<FxHashMap<u32, usize>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Nursery {
    pub fn new(shared: &Arc<Shared>, topology: &Topology) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::downgrade(shared),
            topology: topology.clone(),
            expected: Mutex::default(),
            kin: Mutex::default(),
            adopted: Mutex::default(),
            late: Mutex::default(),
            members: Mutex::default(),
        })
    }

    /// The child `rank` is to connect, for `link`. When its process (if it is known) ends before
    /// that, it is lost.
    pub fn expect(self: &Arc<Self>, rank: u32, link: usize, is_leaf: bool, kin: Option<Kin>) {
        let watch = kin.clone().map(|kin| {
            let nursery = Arc::downgrade(self);
            let watch = tokio::spawn(async move {
                let how = kin.ended().await;
                if let Some(nursery) = nursery.upgrade() {
                    nursery.give_up(rank, Errno::HOSTDOWN, &how);
                }
            });
            watch.abort_handle()
        });
        if let Some(kin) = &kin {
            self.started(rank, kin);
        }
        lock(&self.expected).insert(rank, Expected { link, is_leaf, kin, watch });
    }

    /// The leaf `rank` may come, although it was lost or given up; `frame` is what it is told.
    pub fn expect_late(&self, rank: u32, frame: Bytes) {
        lock(&self.late).insert(rank, frame);
    }

    /// Whether a link waits for the child `rank`.
    pub fn waits_for(&self, rank: u32) -> bool {
        lock(&self.expected).contains_key(&rank)
    }

    /// Whether the child `rank` is connected.
    pub fn has(&self, rank: u32) -> bool {
        let Some(shared) = self.shared.upgrade() else { return false };
        let link = lock(&self.members).get(&rank).copied();
        link.is_some_and(|link| shared.peek(|core| core.has_socket(0, link)))
    }

    /// The child `rank` is this process.
    pub fn started(&self, rank: u32, kin: &Kin) {
        lock(&self.kin).insert(rank, kin.clone());
    }

    /// Whether every child has connected or is lost.
    pub fn is_complete(&self) -> bool {
        lock(&self.expected).is_empty()
    }

    /// Nobody waits for children that have not connected by now.
    pub fn give_up_all(&self, cause: &str) {
        let late: Vec<u32> = lock(&self.expected).keys().copied().collect();
        late.into_iter().for_each(|rank| self.give_up(rank, Errno::TIMEDOUT, cause));
    }

    /// The child will not connect.
    pub fn give_up(&self, rank: u32, errno: Errno, cause: &str) {
        let Some(late) = lock(&self.expected).remove(&rank) else { return };
        if let Some(shared) = self.shared.upgrade() {
            shared.run(|core, now| {
                core.nodes[0].child_dead(now, late.link, errno, cause);
                core.touch(0);
            });
        }
    }

    /// Whether a node that was taken in is still connected.
    pub fn has_adopted(&self) -> bool {
        let Some(shared) = self.shared.upgrade() else { return false };
        let adopted = lock(&self.adopted);
        shared.peek(|core| adopted.iter().any(|&link| core.has_socket(0, link)))
    }

    /// Takes in a leaf that comes late, or again.
    fn admit_late(&self, shared: &Arc<Shared>, rank: u32, channel: Channel) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        let frame = lock(&self.late).remove(&rank).ok_or_else(gone)?;
        let leaf = self.topology.node(rank).ok_or_else(gone)?;
        let leaves = RangeSet::from_range(leaf.leaves().start, leaf.leaves().end);
        let link = shared.run(|core, now| {
            let link = core.nodes[0].child_link(now, rank, &leaves)?;
            core.nodes[0].send_first(link, frame);
            core.touch(0);
            Ok(link)
        });
        let link =
            link.map_err(|violation: crate::proto::Violation| io::Error::other(violation.to_string()))?;
        lock(&self.members).insert(rank, link);
        shared.attach(0, link, channel, None)
    }

    /// What can be known of the process of a node that has come from elsewhere.
    fn peer(&self, rank: u32, is_leaf: bool, channel: &Channel) -> Option<Peer> {
        let own = lock(&self.kin).get(&rank).map(Kin::autopsy);
        let autopsy = own.or_else(|| watch(&channel.fd))?;
        Some(Peer { autopsy, is_leaf })
    }
}

impl Host for Nursery {
    fn expects(&self, hello: &Hello) -> bool {
        if !hello.orphan {
            return self.waits_for(hello.rank) || lock(&self.late).contains_key(&hello.rank);
        }
        hello.rank != self.topology.root().rank() && self.topology.node(hello.rank).is_some()
    }

    fn admit(&self, hello: &Hello, channel: Channel) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        let shared = self.shared.upgrade().ok_or_else(gone)?;
        if !hello.orphan {
            let child = lock(&self.expected).remove(&hello.rank);
            let Some(child) = child else { return self.admit_late(&shared, hello.rank, channel) };
            lock(&self.members).insert(hello.rank, child.link);
            child.watch.inspect(AbortHandle::abort);
            let is_leaf = child.is_leaf;
            let peer = child.kin.map(|kin| Peer { autopsy: kin.autopsy(), is_leaf });
            return shared.attach(0, child.link, channel, peer);
        }
        let node = self.topology.node(hello.rank).ok_or_else(gone)?;
        let leaves = RangeSet::from_range(node.leaves().start, node.leaves().end);
        let link = shared.run(|core, now| core.nodes[0].child_link(now, hello.rank, &leaves));
        let link = link.map_err(|violation| io::Error::other(violation.to_string()))?;
        let peer = self.peer(hello.rank, node.leaf_index().is_some(), &channel);
        let mut adopted = lock(&self.adopted);
        if !adopted.contains(&link) {
            adopted.push(link);
        }
        drop(adopted);
        shared.attach(0, link, channel, peer)
    }
}
