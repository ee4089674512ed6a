//! The nodes below one node by rank: their connections, processes and times.
//!
//! The listener, the starter and the hand-over look at the same entries, so one lock protects all
//! of them. A thread which holds that lock never waits for the driver's lock: the driver's lock is
//! the outer one.
use crate::launch::start::family::Kin;
use crate::link::wire::Channel;
use crate::proto::LinkId;
use rustc_hash::FxHashMap;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The shortest stay of an adopted child; doubled each time it comes back, up to the longest.
const STAY_MIN: Duration = Duration::from_millis(500);
const STAY_MAX: Duration = Duration::from_secs(60);
/// The pause before the root is asked for the same child again.
const ASKED_FOR: Duration = Duration::from_secs(10);

/// A child which has been started and has not connected.
pub(super) struct Awaited {
    pub link: LinkId,
    pub is_leaf: bool,
    /// Reports the child as lost if its process ends before it connects.
    pub watch: Option<AbortHandle>,
}

/// What is pending for a node. Only children are expected or stranded, and only nodes further down
/// are held.
///
/// A pending node may have a [`Member`] as well. A held node has a stale one if it was here before.
/// A stranded child may connect before its outcome is known. An expected child may connect as an
/// orphan.
#[derive(Default)]
enum ChildState {
    /// Nothing: the node is connected, was lost, or never came.
    #[default]
    Settled,
    /// It is to connect.
    Expected(Awaited),
    /// An inner node which does not connect, while its leaves are started by the root or by this
    /// node.
    Stranded(Awaited),
    /// It has connected, and waits for the node below which it has its place.
    Held(Channel),
}

/// A node which has come at least once.
struct Member {
    /// Its last link. After the node is lost, another node may have the link.
    link: LinkId,
    /// The time of its last arrival at the listener; `None` if it is linked through the ssh
    /// connection that started it.
    came: Option<std::time::Instant>,
}

/// How long an adopted child stays before it is sent to its place.
struct Stay {
    until: Instant,
    took: Duration,
    /// [`Children::arrivals`] when it began.
    arrivals: u64,
}

#[derive(Default)]
struct Child {
    state: ChildState,
    member: Option<Member>,
    /// Its process, if this one has started it. The process may end before or after the node's
    /// connection.
    kin: Option<Kin>,
    /// Outlives the connection: a child that was sent away may come back.
    stay: Option<Stay>,
    /// When the root was last asked for the node.
    asked: Option<Instant>,
}

/// The nodes below one node.
#[derive(Default)]
pub(super) struct Children {
    by_rank: FxHashMap<u32, Child>,
    /// Links of orphans that were taken in.
    adopted: Vec<LinkId>,
    /// How many nodes have come that are not orphans. Each makes earlier stays void: it may be the
    /// node to which others did not find the way.
    arrivals: u64,
}

impl ChildState {
    fn is_expected(&self) -> bool {
        matches!(self, Self::Expected(_))
    }

    fn is_stranded(&self) -> bool {
        matches!(self, Self::Stranded(_))
    }

    fn is_held(&self) -> bool {
        matches!(self, Self::Held(_))
    }
}

impl Children {
    fn entry(&mut self, rank: u32) -> &mut Child {
        self.by_rank.entry(rank).or_default()
    }

    fn is(&self, rank: u32, wanted: impl Fn(&ChildState) -> bool) -> bool {
        self.by_rank.get(&rank).is_some_and(|child| wanted(&child.state))
    }

    fn ranks(&self, wanted: impl Fn(&ChildState) -> bool) -> impl Iterator<Item = u32> {
        self.by_rank.iter().filter(move |(_, child)| wanted(&child.state)).map(|(&rank, _)| rank)
    }

    /// Settles the node if it is in the wanted state. Returns the state that ends.
    fn settle(&mut self, rank: u32, wanted: impl Fn(&ChildState) -> bool) -> ChildState {
        let child = self.by_rank.get_mut(&rank).filter(|child| wanted(&child.state));
        child.map_or(ChildState::Settled, |child| std::mem::take(&mut child.state))
    }

    /// The child, whose process is `kin` if it is known, is to connect.
    pub fn expect(&mut self, rank: u32, awaited: Awaited, kin: Option<Kin>) {
        let child = self.entry(rank);
        child.state = ChildState::Expected(awaited);
        if kin.is_some() {
            child.kin = kin;
        }
    }

    pub fn is_expected(&self, rank: u32) -> bool {
        self.is(rank, ChildState::is_expected)
    }

    /// The expected children.
    pub fn expected(&self) -> impl Iterator<Item = u32> {
        self.ranks(ChildState::is_expected)
    }

    /// The processes of the expected children, where they are known.
    pub fn expected_kin(&self) -> Vec<(u32, Kin)> {
        let expected = self.by_rank.iter().filter(|(_, child)| child.state.is_expected());
        expected.filter_map(|(&rank, child)| Some((rank, child.kin.clone()?))).collect()
    }

    /// Ends the wait for an expected child.
    pub fn take_expected(&mut self, rank: u32) -> Option<Awaited> {
        match self.settle(rank, ChildState::is_expected) {
            ChildState::Expected(awaited) => Some(awaited),
            _ => None,
        }
    }

    /// Ends the wait for an expected or a stranded child.
    pub fn take_awaited(&mut self, rank: u32) -> Option<Awaited> {
        match self.settle(rank, |state| state.is_expected() || state.is_stranded()) {
            ChildState::Expected(awaited) | ChildState::Stranded(awaited) => Some(awaited),
            _ => None,
        }
    }

    /// The child is stranded if it is expected.
    pub fn strand(&mut self, rank: u32) {
        if let Some(awaited) = self.take_expected(rank) {
            self.entry(rank).state = ChildState::Stranded(awaited);
        }
    }

    /// The link of a stranded child.
    pub fn stranded_link(&self, rank: u32) -> Option<LinkId> {
        match &self.by_rank.get(&rank)?.state {
            ChildState::Stranded(awaited) => Some(awaited.link),
            _ => None,
        }
    }

    /// Keeps the connection of a node until its place is known. Returns whether no other
    /// connection is held.
    pub fn hold(&mut self, rank: u32, channel: Channel) -> bool {
        let is_first = !self.has_held();
        self.entry(rank).state = ChildState::Held(channel);
        is_first
    }

    pub fn held(&self) -> impl Iterator<Item = u32> {
        self.ranks(ChildState::is_held)
    }

    pub fn has_held(&self) -> bool {
        self.held().next().is_some()
    }

    pub fn take_held(&mut self, rank: u32) -> Option<Channel> {
        match self.settle(rank, ChildState::is_held) {
            ChildState::Held(channel) => Some(channel),
            _ => None,
        }
    }

    /// The node has come to the listener and is on this link.
    pub fn enter(&mut self, rank: u32, link: LinkId) {
        let came = Some(std::time::Instant::now());
        self.entry(rank).member = Some(Member { link, came });
    }

    /// The node is on this link, which is the ssh connection that started it.
    pub fn enter_by_line(&mut self, rank: u32, link: LinkId) {
        let child = self.entry(rank);
        let came = child.member.as_ref().and_then(|member| member.came);
        child.member = Some(Member { link, came });
    }

    /// The last link of a node that has come. Another node may have it by now.
    pub fn link(&self, rank: u32) -> Option<LinkId> {
        Some(self.by_rank.get(&rank)?.member.as_ref()?.link)
    }

    /// When the node last came to the listener.
    pub fn came(&self, rank: u32) -> Option<std::time::Instant> {
        self.by_rank.get(&rank)?.member.as_ref()?.came
    }

    /// Whether any node has ever come.
    pub fn has_members(&self) -> bool {
        self.by_rank.values().any(|child| child.member.is_some())
    }

    /// All nodes that have ever come and whose stay, if any, has ended, with their last links.
    pub fn members_that_may_go(&self, now: Instant) -> Vec<(u32, LinkId)> {
        let members = self.by_rank.iter().filter(|(_, child)| !self.is_staying(child, now));
        members.filter_map(|(&rank, child)| Some((rank, child.member.as_ref()?.link))).collect()
    }

    pub fn set_kin(&mut self, rank: u32, kin: Kin) {
        self.entry(rank).kin = Some(kin);
    }

    pub fn kin(&self, rank: u32) -> Option<Kin> {
        self.by_rank.get(&rank)?.kin.clone()
    }

    pub fn take_kin(&mut self) -> Vec<Kin> {
        self.by_rank.values_mut().filter_map(|child| child.kin.take()).collect()
    }

    /// An orphan is taken in on this link.
    pub fn adopt(&mut self, link: LinkId) {
        if !self.adopted.contains(&link) {
            self.adopted.push(link);
        }
    }

    /// Links of orphans that were taken in. Other nodes may have them by now.
    pub fn adopted(&self) -> &[LinkId] {
        &self.adopted
    }

    /// A node has come that is not an orphan. If it was expected, it is not any more; returns it
    /// with its process.
    pub fn arrive(&mut self, rank: u32) -> (Option<Awaited>, Option<Kin>) {
        self.arrivals += 1;
        let awaited = self.take_expected(rank);
        let kin = awaited.as_ref().and_then(|_| self.kin(rank));
        (awaited, kin)
    }

    /// Begins the stay of an orphan: twice as long as its last one.
    pub fn begin_stay(&mut self, rank: u32, now: Instant) {
        let arrivals = self.arrivals;
        let child = self.entry(rank);
        let last = child.stay.as_ref().filter(|stay| stay.arrivals == arrivals);
        let took = last.map_or(STAY_MIN, |stay| (stay.took * 2).min(STAY_MAX));
        child.stay = Some(Stay { until: now + took, took, arrivals });
    }

    /// Whether the stay of a node has not ended.
    fn is_staying(&self, child: &Child, now: Instant) -> bool {
        let stay = child.stay.as_ref();
        stay.is_some_and(|stay| stay.arrivals == self.arrivals && stay.until > now)
    }

    /// Whether the root may be asked for the node, which was not done a short time ago. The answer
    /// `true` counts as asking.
    pub fn may_ask(&mut self, rank: u32, now: Instant) -> bool {
        let asked = &mut self.entry(rank).asked;
        let may = asked.is_none_or(|asked| now - asked >= ASKED_FOR);
        if may {
            *asked = Some(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn awaited(link: usize) -> Awaited {
        Awaited { link: LinkId::new(link), is_leaf: false, watch: None }
    }

    fn channel() -> Channel {
        let (one, _) = std::os::unix::net::UnixStream::pair().unwrap();
        Channel::from(std::os::fd::OwnedFd::from(one))
    }

    #[test]
    fn stranded_child_is_awaited_and_not_expected() {
        let mut children = Children::default();
        children.strand(1);
        assert_eq!(children.stranded_link(1), None, "it was not expected");
        children.expect(1, awaited(7), None);
        children.strand(1);
        assert!(!children.is_expected(1) && children.take_expected(1).is_none());
        assert_eq!(children.stranded_link(1), Some(LinkId::new(7)));
        assert_eq!(children.take_awaited(1).map(|child| child.link), Some(LinkId::new(7)));
        assert!(children.take_awaited(1).is_none() && children.stranded_link(1).is_none());
    }

    #[test]
    fn held_node_keeps_its_last_link() {
        let mut children = Children::default();
        children.enter(5, LinkId::new(2));
        assert!(children.hold(5, channel()) && !children.hold(6, channel()));
        assert_eq!(children.link(5), Some(LinkId::new(2)));
        assert!(children.take_held(5).is_some() && children.take_held(5).is_none());
        assert!(children.has_held() && children.came(5).is_some());
    }

    #[test]
    fn stay_is_doubled_until_a_node_arrives() {
        let (mut children, now) = (Children::default(), Instant::now());
        let stays = |children: &Children, now| children.members_that_may_go(now).is_empty();
        children.enter(3, LinkId::new(0));
        assert!(!stays(&children, now));
        children.begin_stay(3, now);
        assert!(stays(&children, now) && !stays(&children, now + STAY_MIN));
        children.begin_stay(3, now);
        assert!(stays(&children, now + STAY_MIN));
        children.arrive(4);
        assert!(!stays(&children, now));
        children.begin_stay(3, now);
        assert!(!stays(&children, now + STAY_MIN));
        (0..20).for_each(|_| children.begin_stay(3, now));
        assert!(!stays(&children, now + STAY_MAX));
    }

    #[test]
    fn link_over_ssh_does_not_count_as_arrival_at_the_listener() {
        let mut children = Children::default();
        children.enter_by_line(1, LinkId::new(0));
        assert_eq!((children.link(1), children.came(1)), (Some(LinkId::new(0)), None));
        children.enter(1, LinkId::new(1));
        let came = children.came(1);
        children.enter_by_line(1, LinkId::new(2));
        assert_eq!((children.link(1), children.came(1)), (Some(LinkId::new(2)), came));
    }
}
