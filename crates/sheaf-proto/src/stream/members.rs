//! Who takes part in a stream, and through which children.
use crate::links::LinkId;
use sheaf_core::{Errno, RangeSet};
use std::borrow::Cow;
use std::fmt;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// A child of a stream at this node: its place among them, for as long as the stream is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChildId(u32);

impl ChildId {
    pub fn new(place: usize) -> Self {
        Self(place as u32)
    }

    #[inline]
    pub fn place(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ChildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a child has to do with a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildState {
    /// Waves wait for it, and packets are sent to it.
    Here,
    /// Waves wait for it, and nothing is sent: its link is lost and its leaves may come back, or
    /// its node has not said how far it is.
    Away,
    /// It takes no part until the next packet begins.
    Joining,
    /// It takes no part.
    Gone,
}

/// A child, as waves see it.
pub(crate) struct Member {
    pub link: LinkId,
    pub rank: u32,
    pub state: ChildState,
    /// The leaves it speaks for now. Those of all children together are the stream's members.
    pub leaves: Arc<RangeSet>,
    /// Some of its leaves are below another child now, but it may still name them.
    pub moved: bool,
    /// Leaves that it had, and may still count in what it sends as from all of its leaves.
    pub left: RangeSet,
    /// The first wave that it contributes to: it joined then, here or at a parent that it had
    /// before.
    pub since: u64,
    /// Why it takes no part, or what became of its leaves before that wave.
    pub lost: Errno,
}

impl Member {
    /// One that takes part from the stream's beginning on.
    pub fn new(link: LinkId, rank: u32, state: ChildState, leaves: RangeSet) -> Self {
        let leaves = Arc::new(leaves);
        let left = RangeSet::new();
        Self { link, rank, state, leaves, moved: false, left, since: 0, lost: Errno::HOSTDOWN }
    }

    /// One without leaves so far; what it contributed to elsewhere may name leaves that it has no
    /// more.
    fn empty(link: LinkId, rank: u32) -> Self {
        Self { moved: true, ..Self::new(link, rank, ChildState::Gone, RangeSet::new()) }
    }

    /// The leaves that it may speak for, in what it sends as from all of its leaves.
    pub fn spoken_for(&self) -> Cow<'_, RangeSet> {
        if self.left.is_empty() {
            return Cow::Borrowed(&self.leaves);
        }
        let mut all = RangeSet::clone(&self.leaves);
        all.union_with(&self.left);
        Cow::Owned(all)
    }

    /// Whether waves wait for it.
    #[inline]
    pub fn takes_part(&self) -> bool {
        matches!(self.state, ChildState::Here | ChildState::Away)
    }

    /// Whether packets are sent to it.
    #[inline]
    pub fn is_here(&self) -> bool {
        self.state == ChildState::Here
    }

    pub fn is_joining(&self) -> bool {
        self.state == ChildState::Joining
    }

    /// Whether something may come of it for `wave`.
    #[inline]
    pub fn contributes_to(&self, wave: u64) -> bool {
        self.takes_part() && self.since <= wave
    }
}

/// The members of a stream below a node.
pub(crate) struct Members {
    all: Arc<RangeSet>,
    ever: Arc<RangeSet>,
    children: Vec<Member>,
    /// Place among the children by link; `u32::MAX`: not on this stream.
    by_link: Vec<u32>,
}

impl Index<ChildId> for Members {
    type Output = Member;

    #[inline]
    fn index(&self, child: ChildId) -> &Member {
        &self.children[child.place()]
    }
}

impl IndexMut<ChildId> for Members {
    #[inline]
    fn index_mut(&mut self, child: ChildId) -> &mut Member {
        &mut self.children[child.place()]
    }
}

impl Members {
    /// These leaves, below these children.
    pub fn new(all: RangeSet, children: Vec<Member>) -> Self {
        let all = Arc::new(all);
        let mut members = Self { ever: Arc::clone(&all), all, children, by_link: Vec::new() };
        for at in members.ids() {
            members.note_link(at);
        }
        members
    }

    fn note_link(&mut self, child: ChildId) {
        let place = self[child].link.place();
        if self.by_link.len() <= place {
            self.by_link.resize(place + 1, u32::MAX);
        }
        self.by_link[place] = child.0;
    }

    /// The leaves.
    pub fn all(&self) -> &Arc<RangeSet> {
        &self.all
    }

    /// Those that it had when it was opened here: contributions may still name them.
    pub fn ever(&self) -> &RangeSet {
        &self.ever
    }

    #[inline]
    pub fn child(&self, link: LinkId) -> Option<ChildId> {
        self.by_link
            .get(link.place())
            .filter(|&&child| child != u32::MAX)
            .map(|&child| ChildId(child))
    }

    pub fn len(&self) -> usize {
        self.children.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = ChildId> + use<> {
        (0..self.children.len()).map(ChildId::new)
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Member> {
        self.children.iter()
    }

    /// Whether some child takes part, or soon will.
    pub fn any_left(&self) -> bool {
        self.children.iter().any(|member| member.takes_part() || member.is_joining())
    }

    /// A place for the child on `link`, without leaves so far.
    pub(super) fn add(&mut self, link: LinkId, rank: u32) -> ChildId {
        let child = ChildId::new(self.children.len());
        self.children.push(Member::empty(link, rank));
        self.note_link(child);
        child
    }

    /// Another node is in the place of a child that has no leaves any more.
    pub(super) fn replace(&mut self, child: ChildId, rank: u32) {
        self[child] = Member::empty(self[child].link, rank);
    }

    /// Moves leaves from one child to another. Whether the first has none left.
    pub(super) fn shift(&mut self, from: ChildId, to: ChildId, leaves: &RangeSet) -> bool {
        Arc::make_mut(&mut self[to].leaves).union_with(leaves);
        let old = &mut self[from];
        old.left.union_with(&old.leaves.intersection(leaves));
        old.leaves = Arc::new(old.leaves.difference(leaves));
        old.moved = true;
        old.leaves.is_empty()
    }

    /// These leaves are no members below here any more. Gives the children that have none left.
    pub(super) fn drop_leaves(&mut self, leaves: &RangeSet) -> Vec<ChildId> {
        self.all = Arc::new(self.all.difference(leaves));
        let mut emptied = Vec::new();
        for (at, member) in self.children.iter_mut().enumerate() {
            if member.leaves.is_disjoint(leaves) {
                continue;
            }
            member.left.union_with(&member.leaves.intersection(leaves));
            member.leaves = Arc::new(member.leaves.difference(leaves));
            member.moved = true;
            if member.leaves.is_empty() {
                member.state = ChildState::Gone;
                emptied.push(ChildId::new(at));
            }
        }
        emptied
    }
}
