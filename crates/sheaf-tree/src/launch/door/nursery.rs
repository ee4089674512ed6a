//! Who is let in at a node's door: children it has started, newcomers, and orphans from below.
//!
//! A newcomer knows no more than the root's door. From there it is sent down, a node at a time, to
//! the place that the plan has for it; where a node on the way is lost, the one above takes it in.
//! A server reports the host for which it was started, and is never given the place of another
//! host.
use super::reception::Reception;
use crate::driver::{Core, Death, OwnFault, Shared, SocketPeer};
use crate::launch::start::family::{Kin, death, watch};
use crate::link::door::DoorHost;
use crate::link::hello::Hello;
use crate::link::wire::{Channel, Wire};
use crate::link::{Ancestor, Refusal};
use crate::proto::control;
use crate::proto::frame::{Header, Kind};
use crate::proto::{HandOver, LinkId, Time};
use crate::status::SURVEY;
use crate::topology::{NodeRef, Topology};
use children::{Awaited, Children};
use lines::Lines;
use sheaf_core::{Errno, RangeSet, lock};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;

mod children;
mod instead;
mod lines;
mod relay;

pub(in crate::launch) use instead::not_started;
pub(in crate::launch) use relay::run_errands;

/// How often it is looked whether adopted children can go where their places are.
const HAND_OVER_PAUSE: Duration = Duration::from_millis(500);
/// How often it is looked whether newcomers who wait at the door can be sent on.
const HELD_LOOK: Duration = Duration::from_millis(50);
/// How long sending one on may take.
const SEND_ON_TIMEOUT: Duration = Duration::from_secs(5);

/// The nodes below one node, as far as doors are concerned.
pub(in crate::launch) struct Nursery {
    shared: Weak<Shared>,
    topology: Topology,
    /// What newcomers are told; `None` where there are none.
    reception: Option<Reception>,
    children: Mutex<Children>,
    /// Of the ssh connections to other hosts.
    lines: Lines,
}

/// Where a newcomer's place is.
enum PlaceWay {
    /// Directly below this node.
    Here,
    /// Below this child.
    Below(Ancestor),
    /// Below a child that has not come yet.
    Later,
}

pub(in crate::launch) fn leaves_of(node: NodeRef<'_>) -> RangeSet {
    node.all_leaves()
}

fn gone() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl Nursery {
    pub fn new(
        shared: &Arc<Shared>,
        topology: &Topology,
        reception: Option<Reception>,
    ) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::downgrade(shared),
            topology: topology.clone(),
            reception,
            children: Mutex::default(),
            lines: Lines::default(),
        })
    }

    /// The tree from this node down.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What newcomers are told.
    pub fn reception(&self) -> Option<&Reception> {
        self.reception.as_ref()
    }

    /// The nodes below. A thread that holds this lock never waits for the driver's.
    fn children(&self) -> MutexGuard<'_, Children> {
        lock(&self.children)
    }

    /// The driver, while the session lasts.
    pub fn shared(&self) -> Option<Arc<Shared>> {
        self.shared.upgrade()
    }

    /// The child `rank` is to connect, for `link`. When its process (if it is known) ends before
    /// that, it is lost.
    pub fn expect(self: &Arc<Self>, rank: u32, link: LinkId, is_leaf: bool, kin: Option<Kin>) {
        let watch = kin.clone().map(|kin| {
            let nursery = Arc::downgrade(self);
            let watch = crate::task::spawn(async move {
                let how = kin.ended().await;
                if let Some(nursery) = nursery.upgrade() {
                    nursery.give_up(rank, Errno::HOSTDOWN, &how);
                }
            });
            watch.abort_handle()
        });
        self.children().expect(rank, Awaited { link, is_leaf, watch }, kin);
    }

    /// Whether the node `rank` is connected here.
    pub fn has(&self, rank: u32) -> bool {
        self.shared
            .upgrade()
            .is_some_and(|shared| shared.peek(|core| self.link_of(core, rank).is_some()))
    }

    /// Whether the node `rank`, which was lost, is connected here again.
    pub fn is_back(&self, rank: u32) -> bool {
        !self.children().is_expected(rank) && self.has(rank)
    }

    /// When the node `rank` came here last.
    pub fn came(&self, rank: u32) -> Option<std::time::Instant> {
        self.children().came(rank)
    }

    /// When the node `rank`, if it is connected here, was last heard.
    pub fn heard(&self, rank: u32) -> Option<Time> {
        let shared = self.shared.upgrade()?;
        shared.peek(|core| self.link_of(core, rank).map(|link| core.nodes[0].heard(link)))
    }

    /// The node `rank` has come again while its last connection is still here.
    pub fn supersede(&self, rank: u32) {
        let Some(shared) = self.shared.upgrade() else { return };
        shared.run(|core, now| {
            let Some(link) = self.link_of(core, rank) else { return };
            core.nodes[0].link_lost(now, link, Errno::CONNRESET, "its host has come again");
            core.touch(0);
        });
    }

    /// The link of a node that is connected here.
    fn link_of(&self, core: &Core, rank: u32) -> Option<LinkId> {
        let link = self.children().link(rank)?;
        // The place of a node that is gone may be another's by now.
        (core.has_socket(0, link) && core.nodes[0].peer_rank(link) == rank).then_some(link)
    }

    /// The node `rank` is this process.
    pub fn started(&self, rank: u32, kin: &Kin) {
        self.children().set_kin(rank, kin.clone());
    }

    /// The processes that this one has started.
    pub fn take_kin(&self) -> Vec<Kin> {
        self.children().take_kin()
    }

    /// How many children have not connected and are not lost.
    pub fn expected_len(&self) -> usize {
        self.children().expected().count()
    }

    /// Whether any node below this one has ever come.
    pub fn has_begun(&self) -> bool {
        self.children().has_members()
    }

    /// Whether no leaf below this node runs or is waited for.
    pub fn is_deserted(&self) -> bool {
        self.shared.upgrade().is_none_or(|shared| shared.peek(|core| core.nodes[0].is_deserted()))
    }

    /// Those of them whose processes are stopped.
    pub fn stopped(&self) -> Vec<u32> {
        let expected = self.children().expected_kin();
        expected.into_iter().filter(|(_, kin)| kin.is_stopped()).map(|(rank, _)| rank).collect()
    }

    /// Nobody waits for children that have not connected by now.
    pub fn give_up_all(&self, errno: Errno, cause: &str) {
        let late: Vec<u32> = self.children().expected().collect();
        late.into_iter().for_each(|rank| self.give_up(rank, errno, cause));
    }

    /// Whether any command is under way that asks hosts for more than how they are.
    pub fn is_asked(&self) -> bool {
        let is_asked = |core: &mut Core| core.nodes[0].has_streams_except(SURVEY);
        self.shared.upgrade().is_some_and(|shared| shared.peek(is_asked))
    }

    /// The expected children will not connect, except those below which a node waits at the door.
    pub fn give_up_absent(&self, errno: Errno, cause: &str) {
        let late: Vec<u32> = {
            let children = self.children();
            let held = children.held().filter_map(|rank| self.topology.node(rank));
            let awaited: Vec<u32> = held.filter_map(|node| self.child_above(node)).collect();
            children.expected().filter(|rank| !awaited.contains(rank)).collect()
        };
        late.into_iter().for_each(|rank| self.give_up(rank, errno, cause));
    }

    /// The child will not connect.
    pub fn give_up(&self, rank: u32, errno: Errno, cause: &str) {
        let late = self.children().take_expected(rank);
        self.lose(late, errno, cause);
    }

    /// A child that was awaited is lost.
    fn lose(&self, late: Option<Awaited>, errno: Errno, cause: &str) {
        let Some(Awaited { link, .. }) = late else { return };
        if let Some(shared) = self.shared.upgrade() {
            shared.run(|core, now| {
                core.nodes[0].child_dead(now, link, errno, cause);
                core.touch(0);
            });
        }
    }

    /// Whether a node that was taken in is still connected.
    pub fn has_adopted(&self) -> bool {
        let Some(shared) = self.shared.upgrade() else { return false };
        let adopted = self.children().adopted().to_vec();
        shared.peek(|core| adopted.iter().any(|&link| core.has_socket(0, link)))
    }

    /// Where the place of a newcomer is.
    fn way_to(&self, shared: &Shared, node: NodeRef<'_>) -> PlaceWay {
        let leaves = leaves_of(node);
        let Some(rank) = self.child_above(node) else { return PlaceWay::Here };
        if self.children().is_expected(rank) {
            return PlaceWay::Later;
        }
        shared.peek(|core| {
            let Some(link) = self.link_of(core, rank) else { return PlaceWay::Here };
            match (core.nodes[0].speaks_for(link, &leaves), core.membership.doors.get(&rank)) {
                (Some(false), _) => PlaceWay::Here,
                (Some(true), Some(address)) => {
                    PlaceWay::Below(Ancestor { rank, address: address.clone() })
                }
                _ => PlaceWay::Later,
            }
        })
    }

    /// Takes in a newcomer, sends it on, or lets it wait.
    fn place(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        rank: u32,
        channel: Channel,
    ) -> io::Result<()> {
        let node = self.topology.node(rank).ok_or_else(gone)?;
        match self.way_to(shared, node) {
            PlaceWay::Here => {
                let kin = self.children().kin(rank);
                let peer = kin.map(|kin| kin.as_peer(node.leaf_index().is_some()));
                self.lines.unwire(rank);
                self.admit_newcomer(shared, node, channel, peer)
            }
            PlaceWay::Below(to) => {
                crate::task::spawn(send_on(channel, to));
                Ok(())
            }
            PlaceWay::Later => {
                let is_first = self.children().hold(rank, channel);
                if is_first {
                    crate::task::spawn(settle(Arc::downgrade(self)));
                }
                Ok(())
            }
        }
    }

    /// Looks again at those who wait; whether any still do.
    fn settle(self: &Arc<Self>) -> bool {
        let Some(shared) = self.shared.upgrade() else { return false };
        let waiting: Vec<u32> = self.children().held().collect();
        for rank in waiting {
            let Some(node) = self.topology.node(rank) else { continue };
            if matches!(self.way_to(&shared, node), PlaceWay::Later) {
                continue;
            }
            let channel = self.children().take_held(rank);
            let Some(channel) = channel else { continue };
            if let Err(error) = self.place(&shared, rank, channel) {
                tracing::debug!(rank, %error, "a newcomer that waited is not there any more");
            }
        }
        self.children().has_held()
    }

    /// Sends children that this node has adopted to where their places are, as far as the nodes in
    /// between are there.
    fn hand_over(&self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let members = self.children().members_that_may_go(Instant::now());
        let going = members.into_iter().filter_map(|(rank, from)| {
            // Whoever came over the ssh connection that has started it reaches nobody else.
            let node = self.topology.node(rank).filter(|_| !self.lines.has(rank))?;
            Some((rank, from, self.child_above(node)?))
        });
        let going: Vec<_> = going.collect();
        if going.is_empty() {
            return;
        }
        shared.run(|core, _| {
            let children = going.into_iter().filter_map(|(rank, from, below)| {
                let place =
                    Ancestor { rank: below, address: core.membership.doors.get(&below)?.clone() };
                let to = self.link_of(core, below).filter(|_| core.has_socket(0, from))?;
                Some(HandOver { from, rank, to, place })
            });
            let children = children.collect();
            core.nodes[0].hand_over(children);
            core.touch(0);
        });
    }

    /// The child of this node below which another node's place is; `None` for a child.
    fn child_above(&self, node: NodeRef<'_>) -> Option<u32> {
        let leaves = leaves_of(node);
        let mut children = self.topology.root().children();
        let child = children.find(|child| leaves.is_subset(&leaves_of(*child)))?;
        (child.rank() != node.rank()).then(|| child.rank())
    }

    fn admit_newcomer(
        &self,
        shared: &Arc<Shared>,
        node: NodeRef<'_>,
        channel: Channel,
        peer: Option<SocketPeer>,
    ) -> io::Result<()> {
        let reception = self.reception.as_ref().ok_or_else(gone)?;
        let epoch = shared.peek(|core| core.nodes[0].last_epoch(node.rank()));
        let frame = reception.assignment(&self.topology, node, epoch)?;
        let leaves = leaves_of(node);
        let link = shared.run(|core, now| {
            let link = core.nodes[0].child_link(now, node.rank(), &leaves)?;
            core.nodes[0].send_first(link, frame);
            core.touch(0);
            Ok(link)
        });
        let link = link.map_err(|violation: crate::proto::Violation| {
            io::Error::other(violation.to_string())
        })?;
        self.entered(shared, node.rank(), link);
        shared.attach(0, link, channel, peer)
    }

    /// A node below, which combines, has ended on another host. That its link is lost is seen
    /// beside, perhaps before.
    fn has_ended(&self, shared: &Shared, rank: u32, death: Death) {
        if death.fault == OwnFault::No {
            return;
        }
        let link = self.children().link(rank);
        shared.run(|core, _| {
            // The place of a link may be another's by now.
            let link = link.filter(|&link| core.nodes[0].peer_rank(link) == rank);
            core.nodes[0].crashed(rank, link, &death.how, death.fault == OwnFault::Yes);
            core.touch(0);
        });
    }

    /// The node `rank` is on this link from now on.
    fn entered(&self, shared: &Shared, rank: u32, link: LinkId) {
        self.children().enter(rank, link);
        shared.peek(|core| core.membership.doors.remove(&rank));
    }

    /// What can be known of the process of a node that has come from elsewhere.
    fn peer(&self, rank: u32, is_leaf: bool, channel: &Channel) -> Option<SocketPeer> {
        let own = self.children().kin(rank).map(|kin| kin.as_peer(is_leaf));
        own.or_else(|| watch(&channel.fd, is_leaf))
    }
}

/// Looks after newcomers who wait at a door, until none does.
async fn settle(nursery: Weak<Nursery>) {
    loop {
        tokio::time::sleep(HELD_LOOK).await;
        if !nursery.upgrade().is_some_and(|nursery| nursery.settle()) {
            return;
        }
    }
}

/// Hands adopted children over for as long as the session lasts.
pub(in crate::launch) async fn hand_over(nursery: Weak<Nursery>) {
    loop {
        tokio::time::sleep(HAND_OVER_PAUSE).await;
        match nursery.upgrade() {
            Some(nursery) => nursery.hand_over(),
            None => return,
        }
    }
}

/// Tells a newcomer where its place is.
async fn send_on(channel: Channel, to: Ancestor) {
    let frame = control::control(Header::new(Kind::Go), &to);
    let sent = async { Wire::from_channel(channel)?.write_all(&frame).await };
    if !matches!(tokio::time::timeout(SEND_ON_TIMEOUT, sent).await, Ok(Ok(()))) {
        tracing::debug!(rank = to.rank, "a newcomer could not be sent on");
    }
}

/// The nursery as a node's door sees it.
pub(in crate::launch) struct Doorway(pub Arc<Nursery>);

impl DoorHost for Doorway {
    fn expects(&self, hello: &Hello) -> Result<(), Refusal> {
        let nursery = &self.0;
        let rank = hello.rank;
        let node = nursery.topology.node(rank).filter(|_| rank != nursery.topology.root().rank());
        let node = node.ok_or(Refusal::Unexpected)?;
        if hello.end.is_some() {
            let is_it = hello.host == node.host() && node.leaf_index().is_none();
            return if is_it { Ok(()) } else { Err(Refusal::Unexpected) };
        }
        let expected = || nursery.children().is_expected(rank);
        if !(hello.orphan || expected() || (nursery.reception.is_some() && !nursery.has(rank))) {
            return Err(Refusal::Unexpected);
        }
        if hello.host != node.host() {
            // It has proved to be this node: nobody else comes in its place.
            let cause = format!(
                "it was started for {}, and the tree has {} there",
                hello.host,
                node.host()
            );
            nursery.give_up(rank, Errno::PROTO, &cause);
            return Err(Refusal::Name);
        }
        Ok(())
    }

    fn admit(&self, hello: &Hello, channel: Channel) -> io::Result<()> {
        let nursery = &self.0;
        let shared = nursery.shared.upgrade().ok_or_else(gone)?;
        if let Some(status) = hello.end {
            nursery.has_ended(&shared, hello.rank, death(ExitStatus::from_raw(status)));
            return Ok(());
        }
        if !hello.orphan {
            let (child, kin) = nursery.children().arrive(hello.rank);
            let Some(child) = child else { return nursery.place(&shared, hello.rank, channel) };
            nursery.lines.unwire(hello.rank);
            nursery.entered(&shared, hello.rank, child.link);
            child.watch.inspect(AbortHandle::abort);
            let peer = kin.map(|kin| kin.as_peer(child.is_leaf));
            return shared.attach(0, child.link, channel, peer);
        }
        let node = nursery.topology.node(hello.rank).ok_or_else(gone)?;
        let leaves = leaves_of(node);
        let link = shared.run(|core, now| core.nodes[0].child_link(now, hello.rank, &leaves));
        let link = link.map_err(|violation| io::Error::other(violation.to_string()))?;
        let peer = nursery.peer(hello.rank, node.leaf_index().is_some(), &channel);
        nursery.children().adopt(link);
        nursery.lines.unwire(hello.rank);
        nursery.entered(&shared, hello.rank, link);
        nursery.children().begin_stay(hello.rank, Instant::now());
        shared.attach(0, link, channel, peer)
    }
}
