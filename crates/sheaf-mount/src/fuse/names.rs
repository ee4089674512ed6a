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
use super::device::WatchedDevice;
use super::recent::{Known, may_have};
use super::reply::{ReplyAs, reply_kept};
use super::request::KernelRequest;
use super::{Remote, View};
use crate::message::{
    FileAnswer, FileCall, FileCaller, FileNews, NewsOf, NodeAttributes, NodeName, NodeOp, decoded,
    encoded,
};
use crate::owner::LOAN_TERM;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use sheaf_core::{Errno, lock};
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Nodes that are kept.
const KEPT_MAX: usize = 1 << 14;
/// Threads that are remembered.
const REFUSED_MAX: usize = 256;
/// Threads of other PID namespaces have no number, and none of them is told from the others. When a file was not opened
/// to one of them, the owner is asked for all names that they look up, for so long.
const REFUSED_TERM: Duration = Duration::from_millis(200);
/// Names and nodes are counted in so many slots.
const SLOTS: usize = 1 << 11;
/// Names of a directory that were looked up at the owner before all of its names are asked for.
const MISSES_MIN: u32 = 3;
/// After a directory has changed elsewhere, its names are not asked for for so long.
const AHEAD_PAUSE: Duration = Duration::from_secs(1);
/// The kernel keeps attributes for so long, and is told when they change. It may still be about to create an inode for
/// so long after it has received one.
const SHOWN: Duration = Duration::from_secs(1);
const MADE: Duration = Duration::from_millis(20);
/// How long a change of which the owner has not said what became of it may still be carried out.
const UNSETTLED: Duration = Duration::from_secs(60);
/// Bytes of names that are asked for together, as a kernel counts them.
const AHEAD_BYTES: u32 = 256 << 10;
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
    /// Threads to which a file was not opened under the name by which it was found. They look the name up again.
    refused: FxHashSet<u32>,
    /// The same of threads that have no number, and when it was.
    unnumbered_refused: Option<Instant>,
    /// Slots of changes that may still be carried out.
    unsettled: Vec<(Instant, Vec<usize>)>,
    /// The owner's word is trusted until then, and whose word that is.
    trusted: Option<Instant>,
    lender: Option<u64>,
    is_used: bool,
}

struct KeptNode {
    found: NodeAttributes,
    asked: Instant,
    is_known: bool,
    /// The kernel has found it by a name that is kept here. The owner has not looked for that name since.
    is_found_here: bool,
    /// When the kernel was given attributes to keep.
    shown: Option<Instant>,
    /// How much more often the owner has given the node than the kernel has received it.
    spare: i64,
}

#[derive(Default)]
struct KeptDirectory {
    names: FxHashMap<Box<[u8]>, KeptName>,
    /// Lookups that the owner has answered, and when all names may be asked for.
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
    name: Option<NodeName>,
    who: (u32, u32),
    /// It changes something.
    changes: bool,
    /// The owner lends its answer.
    pub keeps: bool,
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
        let (nodes, directories, owed, refused, unsettled) = Default::default();
        let (last, trusted, lender, is_used) = (0, None, None, false);
        let unnumbered_refused = None;
        let state = NamesState {
            last,
            slots,
            nodes,
            directories,
            owed,
            refused,
            unnumbered_refused,
            unsettled,
            trusted,
            lender,
            is_used,
        };
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
            NodeOp::GetXattr { node, name, .. } => match state.attributes(*node, now, self.time) {
                Some(found) if !may_have(&found, name) => Known::NoXattr,
                _ => Known::Nothing,
            },
            _ => Known::Nothing,
        }
    }

    /// Whether this thread looks a name up again that led elsewhere when the file was to be opened.
    fn looks_again(&self, thread: u32, now: Instant) -> bool {
        let since = |at| now.saturating_duration_since(at);
        thread == 0 && self.state().unnumbered_refused.is_some_and(|at| since(at) < REFUSED_TERM)
    }

    /// A request is about to be sent. Whether its answer may be kept, or is to be known here.
    pub fn begin(
        &self,
        op: &NodeOp,
        (node, thread): (u64, u32),
        who: (u32, u32),
    ) -> Option<NamesAsked> {
        if !self.is_on() {
            return None;
        }
        let is_to_check = match op {
            NodeOp::Open { node, .. } | NodeOp::OpenLent { node, .. } => {
                let mut state = self.state();
                !state.refused.remove(&thread) && state.is_found_here(*node)
            }
            _ => false,
        };
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
            NodeOp::Open { .. } | NodeOp::OpenLent { .. } if is_to_check => {
                return Some(self.asking(None, who));
            }
            NodeOp::Write { .. } | NodeOp::WriteLent { .. } | NodeOp::Allocate { .. } => {
                (vec![node], vec![])
            }
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
        let keeps = is_to_check || !matches!(op, NodeOp::Open { .. });
        Some(NamesAsked { keeps, ..self.state().begin(nodes, &names, who) })
    }

    fn asking(&self, name: Option<NodeName>, who: (u32, u32)) -> NamesAsked {
        let mut state = self.state();
        state.is_used = true;
        let (at, seen, slots, nodes) = (Instant::now(), state.last, Vec::new(), Vec::new());
        NamesAsked { at, seen, slots, nodes, name, who, changes: false, keeps: true }
    }

    /// The owner has answered a request to this node. `given` says whether the kernel does not receive the nodes of the
    /// answer.
    pub fn answered(
        &self,
        asked: &NamesAsked,
        node: u64,
        answer: &FileAnswer,
        given: bool,
    ) -> Forgotten {
        let mut state = self.state();
        state.end(&asked.slots);
        let (answer, after) = match answer {
            FileAnswer::After(answer, after) => (&**answer, &after[..]),
            answer => (answer, &[][..]),
        };
        let mut forgotten = Vec::new();
        let name = asked.name.as_ref().map(|at| (at.parent, &*at.name));
        match answer {
            FileAnswer::Node(found) | FileAnswer::Created(found, _) => {
                forgotten = state.keep(asked, name, *found, given);
            }
            FileAnswer::Entries(entries) => {
                for entry in entries {
                    if let Some(found) = entry.attributes {
                        let name = Some((node, &*entry.name));
                        forgotten.extend(state.keep(asked, name, found, given));
                    }
                }
            }
            _ => {}
        }
        for found in after {
            if !asked.nodes.contains(&found.node) {
                state.node_changed(found.node);
            } else if found.nlink > 0 {
                forgotten.extend(state.keep(asked, None, *found, false));
            }
        }
        // What was asked for meanwhile may be of before.
        asked.slots.iter().for_each(|slot| state.count(*slot));
        forgotten
    }

    /// The owner has refused a request to this node.
    pub fn refused(&self, asked: &NamesAsked, (node, thread): (u64, u32), errno: Errno) {
        let mut state = self.state();
        state.end(&asked.slots);
        asked.slots.iter().for_each(|slot| state.count(*slot));
        // It was found under a name that leads elsewhere by now.
        if errno == Errno::STALE {
            state.node_changed(node);
            if thread == 0 {
                state.unnumbered_refused = Some(Instant::now());
                return;
            }
            if state.refused.len() >= REFUSED_MAX {
                state.refused.clear();
            }
            state.refused.insert(thread);
        }
    }

    /// What has become of a request is not known.
    pub fn unsettled(&self, asked: NamesAsked) {
        if asked.changes {
            self.state().unsettled.push((Instant::now(), asked.slots));
        }
    }

    /// How long the kernel may keep attributes that it is given now.
    pub fn shown(&self, node: u64, now: Instant) -> Duration {
        if !self.is_on() {
            return Duration::ZERO;
        }
        let mut state = self.state();
        if state.attributes(node, now, self.time).is_none() {
            return Duration::ZERO;
        }
        let trusted = state.trusted;
        let Some(kept) = state.nodes.get_mut(&node) else { return Duration::ZERO };
        kept.shown = Some(now);
        let trusted = trusted.max(Some(kept.asked + TRUST)).unwrap_or(now);
        SHOWN.min(trusted.min(kept.asked + self.time).saturating_duration_since(now))
    }

    /// Whether all names of a directory are to be asked for, after one was looked up at the owner.
    pub fn wants_ahead(&self, parent: u64, now: Instant) -> bool {
        let mut state = self.state();
        let directory = state.directories.entry(parent).or_default();
        directory.misses += 1;
        let is_due = directory.ahead.is_none_or(|at| at <= now);
        if directory.misses < MISSES_MIN || !is_due {
            return false;
        }
        (directory.misses, directory.ahead) = (0, Some(now + self.time));
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

    /// The owner has answered a request for recalls that was sent at this moment. Nodes of which the kernel may keep
    /// attributes that change, and whether it may not have their inodes yet.
    pub fn heed(
        &self,
        lender: u64,
        asked: Instant,
        news: &[FileNews],
    ) -> (Forgotten, Vec<(u64, bool)>) {
        if !self.is_on() {
            return (Vec::new(), Vec::new());
        }
        let mut state = self.state();
        if state.lender.replace(lender).is_some_and(|before| before != lender) {
            return (state.clear(), Vec::new());
        }
        let (now, mut shown) = (Instant::now(), Vec::new());
        for one in news {
            if let NewsOf::Names(node) = one.of {
                let at = state.nodes.get_mut(&node).and_then(|kept| kept.shown.take());
                shown.extend(at.map(|at| (node, at + MADE > now)));
                state.recalled(node, now);
            }
        }
        state.trusted = state.trusted.max(Some(asked + TRUST));
        let forgotten = if news.is_empty() { state.rest(self.time) } else { Vec::new() };
        (forgotten, shown)
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
        let kept = self.nodes.get_mut(&found.node)?;
        (kept.spare, kept.is_found_here) = (kept.spare - 1, true);
        Some(found)
    }

    fn is_found_here(&self, node: u64) -> bool {
        self.nodes.get(&node).is_some_and(|kept| kept.is_found_here)
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
    fn recalled(&mut self, node: u64, now: Instant) {
        self.node_changed(node);
        self.count(Slot::Names(node).at());
        if let Some(directory) = self.directories.get_mut(&node) {
            directory.names.clear();
            (directory.misses, directory.ahead) = (0, Some(now + AHEAD_PAUSE));
        }
    }

    fn begin(&mut self, mut nodes: Vec<u64>, names: &[&NodeName], who: (u32, u32)) -> NamesAsked {
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
        NamesAsked { at, seen, slots, nodes, name, who, changes: true, keeps: true }
    }

    /// A change is over.
    fn end(&mut self, slots: &[usize]) {
        for slot in slots {
            self.slots[*slot].1 = self.slots[*slot].1.saturating_sub(1);
        }
    }

    /// Keeps attributes of an answer, with the name of what was asked for, or of an entry of a directory, if none of that
    /// has changed since it was asked for.
    fn keep(
        &mut self,
        asked: &NamesAsked,
        name: Option<(u64, &[u8])>,
        found: NodeAttributes,
        given: bool,
    ) -> Forgotten {
        let is_as_it_was = |slot: &Slot<'_>| {
            let (last, under_way) = self.slots[slot.at()];
            last <= asked.seen && under_way == 0
        };
        let is_kept = found.is_lent
            && !found.is_mounted
            && is_as_it_was(&Slot::Node(found.node))
            && name.is_none_or(|(parent, name)| {
                is_as_it_was(&Slot::Name(parent, name)) && is_as_it_was(&Slot::Names(parent))
            });
        let mut forgotten = Vec::new();
        if !is_kept {
            match self.nodes.get_mut(&found.node) {
                Some(kept) if given => kept.spare += 1,
                None if given => forgotten.push((found.node, 1)),
                _ => {}
            }
            return forgotten;
        }
        if self.nodes.len() >= KEPT_MAX && !self.nodes.contains_key(&found.node) {
            forgotten = self.clear();
        }
        let (at, is_known) = (asked.at, true);
        if let Some(kept) = self.nodes.get_mut(&found.node) {
            let spare = kept.spare + i64::from(given);
            let (is_found_here, shown) = (kept.is_found_here && name.is_none(), kept.shown);
            *kept = KeptNode { found, asked: at, is_known, is_found_here, spare, shown };
        } else {
            let owed = self.owed.remove(&found.node).unwrap_or_default();
            let spare = i64::from(given) - owed.cast_signed();
            let (is_found_here, shown) = (false, None);
            let kept = KeptNode { found, asked: at, is_known, is_found_here, spare, shown };
            self.nodes.insert(found.node, kept);
        }
        if let Some((parent, name)) = name {
            let kept = KeptName { node: found.node, who: asked.who, asked: at };
            self.directories.entry(parent).or_default().names.insert(name.into(), kept);
        }
        forgotten
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
            !directory.names.is_empty() || directory.ahead.is_some_and(|at| at > now)
        });
        let mut forgotten = Vec::new();
        for node in gone {
            if let Some(kept) = self.nodes.remove(&node) {
                forgotten.extend(self.dropped(node, &kept));
                self.directories.remove(&node);
            }
        }
        let old = |(at, _): &mut (Instant, Vec<usize>)| *at + UNSETTLED <= now;
        let settled: Vec<_> = self.unsettled.extract_if(.., old).collect();
        for (_, slots) in settled {
            self.end(&slots);
            slots.iter().for_each(|slot| self.count(*slot));
        }
        forgotten
    }
}

impl<R: Remote> View<R> {
    /// Answers what needs nobody because names and attributes are kept. Whether that was possible.
    pub(super) fn answers_by_names(
        &self,
        (device, unique): (&WatchedDevice, u64),
        how: &ReplyAs,
        request: &KernelRequest<'_>,
        op: &NodeOp,
    ) -> Result<bool, Errno> {
        // The kernel compares what it has of such a file with what is open.
        let is_mapped = |op: &NodeOp| matches!(op, NodeOp::Attributes { handle: Some(handle), .. } if self.borrowed.is_cached(*handle));
        let now = Instant::now();
        if matches!(op, NodeOp::Lookup(_)) && self.names.looks_again(request.pid(), now) {
            return Ok(false);
        }
        match self.names.known(op, request.user_and_group(), now) {
            Known::Attributes(found) if !is_mapped(op) => {
                let kept = self.names.shown(found.node, now);
                if let NodeOp::Lookup(at) = op {
                    self.places.found(&found, at.clone());
                }
                let answer = self.remote.ids().answer(FileAnswer::Node(found));
                reply_kept((device, unique), how, answer, &[], kept)?;
                Ok(true)
            }
            Known::NoXattr => Err(Errno::NODATA),
            _ => Ok(false),
        }
    }

    /// A request is about to be sent. What of names is to be known when it is answered.
    pub(super) fn begin_names(
        self: &Arc<Self>,
        device: &Arc<WatchedDevice>,
        request: &KernelRequest<'_>,
        op: &NodeOp,
    ) -> Option<NamesAsked> {
        let of = (request.node(), request.pid());
        let names = self.names.begin(op, of, request.user_and_group());
        if names.is_some() && self.borrowed.must_heed() {
            self.begin_heeding(device);
        }
        names
    }

    /// Notes what the owner has answered, or refused.
    pub(super) fn note_names(
        self: &Arc<Self>,
        asked: Option<(NamesAsked, FileCaller)>,
        (node, pid): (u64, u32),
        answer: Result<FileAnswer, Errno>,
    ) -> Result<FileAnswer, Errno> {
        let Some((asked, who)) = asked else { return answer };
        let answer = match answer {
            Ok(answer) => answer,
            Err(errno) => {
                self.names.refused(&asked, (node, pid), errno);
                return Err(errno);
            }
        };
        self.forget_at_owner(self.names.answered(&asked, node, &answer, false));
        if let (Some(at), false, FileAnswer::Node(_)) = (&asked.name, asked.changes, &answer)
            && self.names.wants_ahead(at.parent, Instant::now())
        {
            let view = self.clone();
            sheaf_tree::task::spawn(view.names_ahead(at.parent, (who, pid), asked.who));
        }
        Ok(match answer {
            FileAnswer::After(answer, _) => *answer,
            answer => answer,
        })
    }

    /// Asks for all names of a directory.
    async fn names_ahead(
        self: Arc<Self>,
        node: u64,
        (who, pid): (FileCaller, u32),
        user: (u32, u32),
    ) {
        let asked = self.names.asking(None, user);
        let op = NodeOp::Names { node, size: AHEAD_BYTES };
        let Ok(call) = encoded(&FileCall { who, pid, keeps_names: true, op }, &[]) else { return };
        let Ok(all) = self.remote.call(call).await else { return };
        // Whoever may not list the directory looks its names up.
        if let Ok((Ok(answer), _)) = decoded::<Result<FileAnswer, Errno>>(&all) {
            self.forget_at_owner(self.names.answered(&asked, node, &answer, true));
        }
    }

    /// Drops names and attributes that other hosts are about to change.
    pub(super) async fn heed_names(
        self: &Arc<Self>,
        device: &WatchedDevice,
        (lender, asked): (u64, Instant),
        news: &[FileNews],
    ) {
        let (forgotten, shown) = self.names.heed(lender, asked, news);
        self.forget_at_owner(forgotten);
        for (node, is_new) in shown {
            let until = Instant::now() + MADE;
            while !device.drop_attributes(node) && is_new && Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests;
