//! The machines that leaves are on: one that is among the leaves twice serves as one of them.
//!
//! ```text
//! leaf   ── Ready or Adopt, with its machine ──> node
//!                                                node   ── Notice::Machine ──> root
//! leaf   <─ Admission ── node   <── Admission ── root
//! serves, or: ── Notice::Lost ──>   if another leaf that is there has the machine
//! ```
//! Until the leaf has its answer, its service is told nothing. That costs no time at the start: the
//! root answers before it opens a stream. A leaf that has looked for a parent asks again, since its
//! machine may be another's by then.
use super::{Event, Node};
use crate::config::NodeRole;
use crate::control::{self, Admission, Machine, MachineId, Notice};
use crate::frame::{Header, Kind, Violation};
use crate::links::LinkId;
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, RangeSet};

/// The longest name of a host in a [`Machine`].
const HOST_BYTES_MAX: usize = 1024;

/// What a leaf is found by whose machine another one may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Boot([u8; 16]),
    Name([u8; 16]),
    /// The name of a machine whose boot is hidden.
    NameAlone([u8; 16]),
}

impl Key {
    /// What a leaf is found by.
    fn of(id: &MachineId) -> impl Iterator<Item = Self> {
        let alone = id.names.into_iter().filter(|_| id.boot.is_none()).map(Self::NameAlone);
        id.boot.map(Self::Boot).into_iter().chain(alone).chain(id.names.map(Self::Name))
    }

    /// What others are found by that have the same machine. Where both see their boots, the names are not
    /// compared.
    fn of_others(id: &MachineId) -> impl Iterator<Item = Self> {
        let name = if id.boot.is_some() { Self::NameAlone } else { Self::Name };
        id.boot.map(Self::Boot).into_iter().chain(id.names.map(name))
    }
}

/// What a node knows of the machines of the leaves below it.
#[derive(Debug, Default)]
pub(super) struct Machines {
    /// Of each leaf that has said it, the last; at a leaf its own.
    of_leaves: FxHashMap<u32, Machine>,
    /// At the root: the leaves that are admitted, by what they are known by. Some may be lost.
    admitted: FxHashMap<Key, RangeSet>,
    /// At a leaf: it has a machine, and no answer yet.
    is_leaf: bool,
    waiting: bool,
    /// At a leaf: why it is not to serve.
    refused: Option<String>,
}

impl Machines {
    /// Those of `leaves` that are known, in order.
    pub fn of(&self, leaves: &RangeSet) -> Vec<(u32, Machine)> {
        let known = self.of_leaves.iter().filter(|(leaf, _)| leaves.contains(**leaf));
        let mut known: Vec<_> = known.map(|(&leaf, machine)| (leaf, machine.clone())).collect();
        known.sort_unstable_by_key(|(leaf, _)| *leaf);
        known
    }

    /// At a leaf with a machine: from here on it waits for an answer.
    pub fn wait(&mut self) {
        self.waiting = self.is_leaf;
    }

    pub fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Forgets what a leaf was on.
    fn forget(&mut self, leaf: u32) {
        let Some(machine) = self.of_leaves.remove(&leaf) else { return };
        for key in Key::of(&machine.id) {
            let Some(admitted) = self.admitted.get_mut(&key) else { continue };
            *admitted = admitted.difference(&RangeSet::single(leaf));
            if admitted.is_empty() {
                self.admitted.remove(&key);
            }
        }
    }

    /// The leaf that has a machine, of those that are not lost.
    fn holder(&self, id: &MachineId, lost: &RangeSet) -> Option<u32> {
        let admitted = Key::of_others(id).filter_map(|key| self.admitted.get(&key));
        admitted.filter_map(|leaves| leaves.difference(lost).first()).next()
    }
}

/// Whether a node below may say this: of leaves of its own, each at most once.
pub(super) fn check_machines(
    machines: &[(u32, Machine)],
    claim: &RangeSet,
) -> Result<(), Violation> {
    let rises = machines.is_sorted_by(|(one, _), (next, _)| one < next);
    if !rises || !machines.iter().all(|(leaf, _)| claim.contains(*leaf)) {
        return Err(Violation::Bound("a node speaks of machines of leaves that are not below it"));
    }
    if machines.iter().any(|(_, machine)| machine.host.len() > HOST_BYTES_MAX) {
        return Err(Violation::Bound("the name of a host is too long"));
    }
    Ok(())
}

impl Node {
    /// At a leaf that begins: the machine that it is on. Where several leaves are to be on one, none
    /// says so.
    pub fn set_machine(&mut self, machine: Machine) {
        let leaves = self.config.leaves.iter();
        self.machines.of_leaves.extend(leaves.map(|leaf| (leaf, machine.clone())));
        self.machines.is_leaf = true;
        self.machines.wait();
    }

    /// These leaves are there, or are about to be let in. Tells the root; there it settles who
    /// serves.
    pub(super) fn hear_of_machines(&mut self, machines: Vec<(u32, Machine)>) {
        for (leaf, machine) in machines {
            self.machines.forget(leaf);
            self.machines.of_leaves.insert(leaf, machine.clone());
            match self.config.role {
                NodeRole::Root => self.settle(leaf),
                _ => self.notice(Header::new(Kind::Notice), Notice::Machine { leaf, machine }),
            }
        }
    }

    /// Gives the machine of a leaf to it, unless another has it that is there. Tells the leaf.
    fn settle(&mut self, leaf: u32) {
        let Some(machine) = self.machines.of_leaves.get(&leaf) else { return };
        // One that comes anew was forgotten, and is not among them.
        let holder = self.machines.holder(&machine.id, &self.below.lost);
        let refused = holder.map(|other| {
            let host = self.machines.of_leaves.get(&other).map_or("", |other| &other.host);
            format!("this machine is in the session as {host}")
        });
        let (rank, id) = (machine.rank, machine.id);
        match &refused {
            Some(cause) => {
                let cause = cause.clone();
                self.machines.forget(leaf);
                self.lose_refused(rank, leaf, cause);
            }
            None => {
                for key in Key::of(&id) {
                    self.machines.admitted.entry(key).or_default().insert(leaf);
                }
            }
        }
        self.admit(&Admission { leaf, refused });
    }

    /// At the root: a leaf that is not to serve is lost from here on, whenever it says so itself.
    fn lose_refused(&mut self, rank: u32, leaf: u32, cause: String) {
        let leaves = RangeSet::single(leaf);
        if !self.config.leaves.contains(leaf) || self.below.lost.contains(leaf) {
            return;
        }
        self.below.lost.union_with(&leaves);
        let lost = Notice::Lost { by: rank, rank, leaves, errno: Errno::NOTUNIQ, cause };
        self.notice(Header::new(Kind::Notice), lost);
    }

    /// At a leaf that was not to serve: why.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.machines.refused.as_deref()
    }

    /// Passes the answer on. A leaf that is not there any more asks again when it comes back.
    fn admit(&mut self, admission: &Admission) {
        let frame = control::control(Header::new(Kind::Admission), admission);
        for link in self.links.holding(&RangeSet::single(admission.leaf)) {
            if self.links[link].is_live_child() && self.links[link].is_member() {
                self.links.send(link, frame.clone());
            }
        }
    }

    /// From the parent, or from an ancestor that was asked. A leaf that is not to serve says so to
    /// all above, and ends.
    pub(super) fn on_admission(&mut self, link: LinkId, body: &[u8]) -> Result<(), Violation> {
        let admission: Admission = control::decode(Kind::Admission, body)?;
        if self.recovery.parent != Some(link) && self.recovery.asking != Some(link) {
            return Err(Violation::OutOfPlace(Kind::Admission));
        }
        if self.config.role != NodeRole::Leaf {
            self.admit(&admission);
            return Ok(());
        }
        if !self.config.leaves.contains(admission.leaf) {
            return Err(Violation::Bound("a leaf is told what another is to do"));
        }
        let Some(cause) = admission.refused else {
            self.machines.waiting = false;
            return Ok(());
        };
        self.machines.refused = Some(cause.clone());
        let (rank, leaves) = (self.config.rank, self.config.leaves.clone());
        let lost = Notice::Lost { by: rank, rank, leaves, errno: Errno::NOTUNIQ, cause };
        self.links.send(link, control::control(Header::new(Kind::Notice), &lost));
        self.recovery.dismissed = true;
        self.events.push_back(Event::ParentLost);
        Ok(())
    }

    /// The next event, at a leaf that waits for its answer: nothing of a stream.
    pub(super) fn event_of_no_stream(&mut self) -> Option<Event> {
        let is_of_stream = |event: &Event| {
            use Event::{Cancelled, Closed, Opened, Packet};
            matches!(event, Packet(_) | Opened { .. } | Cancelled { .. } | Closed { .. })
        };
        let at = self.events.iter().position(|event| !is_of_stream(event))?;
        self.events.remove(at)
    }
}
