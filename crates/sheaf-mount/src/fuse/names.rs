//! Names and attributes that a mount keeps (`--attribute-cache`).
//!
//! They are kept here and not by the kernel: FUSE drops a name only after it has locked the directory, which a
//! request that waits for the owner may have locked. So each look of the kernel is a request, answered here.
//!
//! The owner recalls what other clients are about to change (`owner/keeping.rs`). What this mount changes is not
//! recalled: from the beginning of such a request to its end nothing is answered or kept of the names and nodes that it
//! changes. Each change counts, and an answer is kept only if nothing that it tells has changed since it was requested.
//! What programs of the owner itself change is unknown here until the time is over.
//!
//! The owner counts how often it has given a node, and the kernel how often it has received one. The difference is
//! kept for each node, so that the owner keeps a node as long as the kernel or this cache has it.
use super::recent::{Known, may_have};
use crate::message::{FileNews, NewsOf, NodeAttributes, NodeName, NodeOp};
use crate::owner::LOAN_TERM;
use rustc_hash::{FxBuildHasher, FxHashMap};
use sheaf_core::{Errno, lock};
use std::hash::{BuildHasher, Hash};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Nodes that are kept.
const KEPT_MAX: usize = 1 << 14;
/// Names and nodes are counted in so many slots.
const SLOTS: usize = 1 << 11;
/// Names of a directory that were looked up at the owner before all of its names are asked for.
const MISSES_MIN: u32 = 3;
/// Bytes of names that are asked for together, as a kernel counts them.
pub(super) const AHEAD_BYTES: u32 = 256 << 10;
/// What is kept is trusted for so long without word from the owner.
const TRUST: Duration = LOAN_TERM.saturating_sub(Duration::from_millis(250));

/// See the module.
pub(super) struct KeptNames {
    /// How long something is kept; nothing is if this is zero.
    time: Duration,
    state: Mutex<NamesState>,
}

struct NamesState {
    /// Changes so far, and for each slot the last one and how many are under way.
    last: u64,
    slots: Vec<(u64, u32)>,
    nodes: FxHashMap<u64, KeptNode>,
    directories: FxHashMap<u64, KeptDirectory>,
    /// How much more often the kernel has received nodes that are not kept than the owner has given them.
    owed: FxHashMap<u64, u64>,
    /// The owner's word is trusted until then, and whose word that is.
    trusted: Option<Instant>,
    lender: Option<u64>,
    is_used: bool,
}

struct KeptNode {
    found: NodeAttributes,
    asked: Instant,
    is_known: bool,
    /// How much more often the owner has given the node than the kernel has received it.
    spare: i64,
}

#[derive(Default)]
struct KeptDirectory {
    names: FxHashMap<Box<[u8]>, KeptName>,
    /// Lookups that the owner has answered, and when all names were asked for.
    misses: u32,
    ahead: Option<Instant>,
}

struct KeptName {
    node: u64,
    /// The user and the group that have looked it up.
    who: (u32, u32),
    asked: Instant,
}

/// What changes.
#[derive(Hash)]
enum Slot<'a> {
    Node(u64),
    Name(u64, &'a [u8]),
    /// All names of a directory.
    Names(u64),
}

/// A request whose answer may be kept, or that changes what is kept.
pub(super) struct NamesAsked {
    at: Instant,
    /// Changes so far.
    seen: u64,
    slots: Vec<usize>,
    nodes: Vec<u64>,
    pub name: Option<NodeName>,
    pub who: (u32, u32),
    /// It changes something.
    changes: bool,
}

/// Nodes that the owner can forget, and how often it has given them.
pub(super) type Forgotten = Vec<(u64, u64)>;

impl Slot<'_> {
    fn at(&self) -> usize {
        let mut hash = FxBuildHasher.hash_one(self);
        hash ^= hash >> 32;
        hash as usize % SLOTS
    }
}

impl KeptNames {
    /// Nothing yet, and nothing ever without a time.
    pub fn new(time: Duration) -> Self {
        let slots = if time.is_zero() { Vec::new() } else { vec![(0, 0); SLOTS] };
        let (nodes, directories, owed) = Default::default();
        let (last, trusted, lender, is_used) = (0, None, None, false);
        let state =
            NamesState { last, slots, nodes, directories, owed, trusted, lender, is_used };
        Self { time, state: Mutex::new(state) }
    }

    pub fn is_on(&self) -> bool {
        !self.time.is_zero()
    }

    fn state(&self) -> MutexGuard<'_, NamesState> {
        lock(&self.state)
    }

    /// Whether recalls are to be asked for.
    pub fn is_used(&self) -> bool {
        self.is_on() && self.state().is_used
    }

    /// What is known of a request's answer.
    pub fn known(&self, op: &NodeOp, who: (u32, u32), now: Instant) -> Known {
        if !self.is_on() {
            return Known::Nothing;
        }
        let mut state = self.state();
        match op {
            NodeOp::Lookup(at) => {
                let found = state.look_up(at, who, now, self.time);
                found.map_or(Known::Nothing, Known::Attributes)
            }
            NodeOp::Attributes { node, .. } => {
                state.attributes(*node, now, self.time).map_or(Known::Nothing, Known::Attributes)
            }
            NodeOp::GetXattr { node, name, .. } => {
                match state.attributes(*node, now, self.time) {
                    Some(found) if !may_have(&found, name) => Known::NoXattr,
                    _ => Known::Nothing,
                }
            }
            _ => Known::Nothing,
        }
    }

    /// A request is about to be sent. Whether its answer may be kept, or is to be known here.
    pub fn begin(&self, op: &NodeOp, node: u64, who: (u32, u32)) -> Option<NamesAsked> {
        if !self.is_on() {
            return None;
        }
        let (nodes, names): (Vec<u64>, Vec<&NodeName>) = match op {
            NodeOp::Lookup(at) => return Some(self.asking(Some(at.clone()), who)),
            NodeOp::Attributes { .. } => return Some(self.asking(None, who)),
            NodeOp::ReadDirectory { with_attributes: true, .. } => {
                return Some(self.asking(None, who));
            }
            NodeOp::SetAttributes { node, .. }
            | NodeOp::SetXattr { node, .. }
            | NodeOp::RemoveXattr { node, .. } => (vec![*node], vec![]),
            NodeOp::Open { node, flags } if flags & libc::O_TRUNC as u32 != 0 => {
                (vec![*node], vec![])
            }
            NodeOp::Open { node, .. } if self.state().is_kept(*node) => {
                return Some(self.asking(None, who));
            }
            NodeOp::Write { .. } | NodeOp::Allocate { .. } => (vec![node], vec![]),
            NodeOp::Make { at, .. }
            | NodeOp::Symlink { at, .. }
            | NodeOp::Remove { at, .. }
            | NodeOp::Create { at, .. } => (vec![at.parent], vec![at]),
            NodeOp::Rename { from, to, .. } => (vec![from.parent, to.parent], vec![from, to]),
            NodeOp::Link { node, to } => (vec![*node, to.parent], vec![to]),
            NodeOp::Copy { .. } => {
                // Which node is written to is not known.
                self.state().all_changed();
                return None;
            }
            _ => return None,
        };
        Some(self.state().begin(nodes, &names, who))
    }

    fn asking(&self, name: Option<NodeName>, who: (u32, u32)) -> NamesAsked {
        let mut state = self.state();
        state.is_used = true;
        let (at, seen, changes) = (Instant::now(), state.last, false);
        NamesAsked { at, seen, slots: Vec::new(), nodes: Vec::new(), name, who, changes }
    }

    /// Names of a directory are about to be asked for.
    pub fn asking_ahead(&self, who: (u32, u32)) -> NamesAsked {
        self.asking(None, who)
    }

    /// The owner has answered. These nodes have changed as well.
    pub fn end(&self, asked: &NamesAsked, changed: &[u64]) -> Forgotten {
        if !asked.changes {
            return Vec::new();
        }
        self.state().end(asked, changed)
    }

    /// The owner does not open a node under the name by which it was found.
    pub fn is_stale(&self, node: u64) {
        if self.is_on() {
            self.state().node_changed(node);
        }
    }

    /// Attributes in an answer, with the name of what was asked for, or of an entry of a directory. `given` says
    /// whether the owner has given the node and the kernel does not receive it.
    pub fn keep(
        &self,
        asked: &NamesAsked,
        name: Option<(u64, &[u8])>,
        found: NodeAttributes,
        given: bool,
    ) -> Forgotten {
        let mut state = self.state();
        let is_new = |slot: &Slot<'_>, state: &NamesState| {
            let (last, under_way) = state.slots[slot.at()];
            last <= asked.seen && under_way == 0
        };
        let is_as_it_was = found.is_lent
            && !found.is_mounted
            && is_new(&Slot::Node(found.node), &state)
            && name.is_none_or(|(parent, name)| {
                is_new(&Slot::Name(parent, name), &state) && is_new(&Slot::Names(parent), &state)
            });
        let mut forgotten = Vec::new();
        if !is_as_it_was {
            match state.nodes.get_mut(&found.node) {
                Some(kept) if given => kept.spare += 1,
                None if given => forgotten.push((found.node, 1)),
                _ => {}
            }
            return forgotten;
        }
        if state.nodes.len() >= KEPT_MAX && !state.nodes.contains_key(&found.node) {
            forgotten = state.clear();
        }
        let owed = state.owed.remove(&found.node).unwrap_or_default();
        let new = KeptNode {
            found,
            asked: asked.at,
            is_known: true,
            spare: i64::from(given) - owed.cast_signed(),
        };
        match state.nodes.get_mut(&found.node) {
            Some(kept) => {
                let spare = kept.spare + i64::from(given);
                *kept = KeptNode { spare, ..new };
            }
            // Without a name it is found by nobody who has forgotten it.
            None => drop(state.nodes.insert(found.node, new)),
        }
        if let Some((parent, name)) = name {
            let kept = KeptName { node: found.node, who: asked.who, asked: asked.at };
            state.directories.entry(parent).or_default().names.insert(name.into(), kept);
        }
        forgotten
    }

    /// Whether all names of a directory are to be asked for, after one was looked up at the owner.
    pub fn wants_ahead(&self, parent: u64, now: Instant) -> bool {
        let mut state = self.state();
        let directory = state.directories.entry(parent).or_default();
        directory.misses += 1;
        let is_due = directory.ahead.is_none_or(|at| at + self.time <= now);
        if directory.misses < MISSES_MIN || !is_due {
            return false;
        }
        (directory.misses, directory.ahead) = (0, Some(now));
        true
    }

    /// The kernel does not need these nodes any more. What the owner is to forget.
    pub fn forget(&self, nodes: Forgotten) -> Forgotten {
        if !self.is_on() {
            return nodes;
        }
        let mut state = self.state();
        let NamesState { nodes: kept, owed, directories, .. } = &mut *state;
        let at_owner = |(node, times): (u64, u64)| {
            if let Some(kept) = kept.get_mut(&node) {
                kept.spare = kept.spare.saturating_add(times.cast_signed());
                return None;
            }
            directories.remove(&node);
            let mut left = times;
            if let Some(more) = owed.get_mut(&node) {
                let paid = left.min(*more);
                (left, *more) = (left - paid, *more - paid);
                if *more == 0 {
                    owed.remove(&node);
                }
            }
            (left > 0).then_some((node, left))
        };
        nodes.into_iter().filter_map(at_owner).collect()
    }

    /// The owner has answered a request for recalls that was sent at this moment.
    pub fn heed(&self, lender: u64, asked: Instant, news: &[FileNews]) -> Forgotten {
        if !self.is_on() {
            return Vec::new();
        }
        let mut state = self.state();
        if state.lender.replace(lender).is_some_and(|before| before != lender) {
            return state.clear();
        }
        for one in news {
            match one.of {
                NewsOf::Names(node) => state.recalled(node),
                NewsOf::Pages(_) | NewsOf::Size(..) => {}
            }
        }
        state.trusted = state.trusted.max(Some(asked + TRUST));
        if news.is_empty() { state.rest(self.time) } else { Vec::new() }
    }

    /// The owner says nothing any more.
    pub fn lost(&self) -> Forgotten {
        if !self.is_on() {
            return Vec::new();
        }
        let mut state = self.state();
        (state.is_used, state.lender, state.trusted) = (false, None, None);
        state.clear()
    }
}

impl NamesState {
    fn is_trusted(&self, asked: Instant, now: Instant, time: Duration) -> bool {
        let until = self.trusted.max(Some(asked + TRUST));
        until.is_some_and(|until| now < until) && now < asked + time
    }

    fn is_quiet(&self, slot: &Slot<'_>) -> bool {
        self.slots[slot.at()].1 == 0
    }

    fn attributes(&self, node: u64, now: Instant, time: Duration) -> Option<NodeAttributes> {
        let kept = self.nodes.get(&node)?;
        let is_known = kept.is_known
            && self.is_trusted(kept.asked, now, time)
            && self.is_quiet(&Slot::Node(node));
        is_known.then_some(kept.found)
    }

    fn look_up(
        &mut self,
        at: &NodeName,
        who: (u32, u32),
        now: Instant,
        time: Duration,
    ) -> Option<NodeAttributes> {
        let name = self.directories.get(&at.parent)?.names.get(&*at.name)?;
        let is_known = name.who == who
            && self.is_trusted(name.asked, now, time)
            && self.is_quiet(&Slot::Name(at.parent, &at.name));
        let found = self.attributes(name.node, now, time).filter(|_| is_known)?;
        self.nodes.get_mut(&found.node)?.spare -= 1;
        Some(found)
    }

    fn is_kept(&self, node: u64) -> bool {
        self.nodes.get(&node).is_some_and(|kept| kept.is_known)
    }

    fn count(&mut self, slot: usize) {
        self.last += 1;
        self.slots[slot].0 = self.last;
    }

    fn node_changed(&mut self, node: u64) {
        self.count(Slot::Node(node).at());
        if let Some(kept) = self.nodes.get_mut(&node) {
            kept.is_known = false;
        }
    }

    fn all_changed(&mut self) {
        self.last += 1;
        let last = self.last;
        self.slots.iter_mut().for_each(|slot| slot.0 = last);
        self.nodes.values_mut().for_each(|kept| kept.is_known = false);
        self.directories.clear();
    }

    /// Another client is about to change a node.
    fn recalled(&mut self, node: u64) {
        self.node_changed(node);
        self.count(Slot::Names(node).at());
        self.directories.remove(&node);
    }

    fn begin(
        &mut self,
        mut nodes: Vec<u64>,
        names: &[&NodeName],
        who: (u32, u32),
    ) -> NamesAsked {
        self.is_used = true;
        let mut slots = Vec::new();
        for at in names {
            slots.push(Slot::Name(at.parent, &at.name).at());
            let directory = self.directories.get_mut(&at.parent);
            let known = directory.and_then(|directory| directory.names.remove(&*at.name));
            nodes.extend(known.map(|name| name.node));
        }
        for node in &nodes {
            self.node_changed(*node);
            slots.push(Slot::Node(*node).at());
        }
        for slot in &slots {
            self.count(*slot);
            self.slots[*slot].1 += 1;
        }
        let name = names.last().map(|at| (*at).clone());
        let (at, seen) = (Instant::now(), self.last);
        NamesAsked { at, seen, slots, nodes, name, who, changes: true }
    }

    fn end(&mut self, asked: &NamesAsked, changed: &[u64]) -> Forgotten {
        for slot in &asked.slots {
            self.slots[*slot].1 = self.slots[*slot].1.saturating_sub(1);
        }
        // What was asked for meanwhile may be of before.
        for node in changed {
            if !asked.nodes.contains(node) {
                self.node_changed(*node);
            }
        }
        Vec::new()
    }

    /// The time of a request that changes something is over, and nothing was kept of its answer.
    fn settled(&mut self, slots: &[usize]) {
        for slot in slots {
            self.count(*slot);
        }
    }

    /// Drops all.
    fn clear(&mut self) -> Forgotten {
        self.all_changed();
        let nodes = std::mem::take(&mut self.nodes);
        nodes.into_iter().filter_map(|(node, kept)| self.dropped(node, &kept)).collect()
    }

    fn dropped(&mut self, node: u64, kept: &KeptNode) -> Option<(u64, u64)> {
        let spare = kept.spare.unsigned_abs();
        if kept.spare < 0 {
            self.owed.insert(node, spare);
        }
        (kept.spare > 0).then_some((node, spare))
    }

    /// Drops what is not trusted any more, or not known.
    fn rest(&mut self, time: Duration) -> Forgotten {
        let now = Instant::now();
        let old = |kept: &KeptNode| kept.asked + time <= now;
        let gone: Vec<u64> =
            self.nodes.iter().filter(|(_, kept)| old(kept)).map(|(node, _)| *node).collect();
        self.directories.retain(|_, directory| {
            directory.names.retain(|_, name| name.asked + time > now);
            !directory.names.is_empty() || directory.ahead.is_some_and(|at| at + time > now)
        });
        let mut forgotten = Vec::new();
        for node in gone {
            if let Some(kept) = self.nodes.remove(&node) {
                forgotten.extend(self.dropped(node, &kept));
            }
        }
        forgotten
    }
}
