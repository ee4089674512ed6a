//! Modules of filters on their way down: every node keeps them, and passes each part on before it
//! has the next.
use super::super::Role;
use super::super::frame::{self, CHUNK_BYTES, HEADER_BYTES, Header, Kind, Violation};
use super::super::link::{Stage, Way};
use super::super::stream::mark;
use super::Node;
use crate::filter::{FilterError, MODULES_BYTES_MAX, ModuleId};
use bytes::Bytes;
use sheaf_core::Errno;

/// A part begins with the hash of its module; its place and the length of the whole are in the
/// header's `wave`, 32 bits each.
const HASH_BYTES: usize = 32;

/// The most modules that may be on their way to a node at once.
const ARRIVING_MAX: usize = 16;

/// What has passed through a node.
#[derive(Default)]
pub(super) struct Passed {
    /// Here as a whole, in the order they came.
    whole: Vec<ModuleId>,
    arriving: Vec<Arriving>,
}

/// A module of which the first parts are here.
struct Arriving {
    id: ModuleId,
    total: usize,
    bytes: Vec<u8>,
}

impl Node {
    /// Sends a module down the tree from here. Streams that are opened after this may name its
    /// functions.
    ///
    /// # Errors
    /// `ENOSPC` when this node keeps as much as it may.
    pub fn add_module(&mut self, bytes: &Bytes) -> Result<ModuleId, FilterError> {
        let id = ModuleId::of(bytes);
        if bytes.is_empty() {
            return Err(FilterError::new(Errno::INVAL, "a module without bytes"));
        }
        if self.modules.whole.contains(&id) {
            return Ok(id);
        }
        self.registry.modules().add(id, bytes.clone())?;
        self.modules.whole.push(id);
        for frame in frames(id, bytes.len(), bytes) {
            self.pass_on(&frame);
        }
        Ok(id)
    }

    /// The hashes of the modules that are here as a whole.
    #[must_use]
    pub fn modules(&self) -> Vec<[u8; 32]> {
        self.modules.whole.iter().map(|id| id.0).collect()
    }

    /// Sends to `link`, which is new or has found its way back, the modules that are here and that
    /// it does not have: those that are `known` there it has. To be called before any stream is
    /// opened on the link.
    pub fn send_modules(&mut self, link: usize, known: &[[u8; 32]]) {
        let lacking = self.modules.whole.iter().filter(|id| !known.contains(&id.0));
        let whole = lacking.filter_map(|&id| Some((id, self.registry.modules().bytes(id)?)));
        let mut queued: Vec<Bytes> = whole.flat_map(|(id, bytes)| frames(id, bytes.len(), &bytes)).collect();
        // What is still arriving goes on with the parts that come.
        for part in &self.modules.arriving {
            queued.extend(frames(part.id, part.total, &part.bytes));
        }
        if !queued.is_empty() {
            queued.into_iter().for_each(|frame| self.links[link].out.push(frame));
            mark(&mut self.links, &mut self.dirty, link);
        }
    }

    pub(super) fn on_module(&mut self, header: &Header, frame: &Bytes) -> Result<(), Violation> {
        // A leaf combines nothing; its service may.
        if self.config.role == Role::Leaf && !self.registry.modules().are_at_leaves() {
            return Ok(());
        }
        let body = &frame[HEADER_BYTES..];
        let (hash, part) = body.split_first_chunk::<HASH_BYTES>().ok_or(Violation::Body(Kind::Module))?;
        let (offset, total) = (header.wave as u32 as usize, (header.wave >> 32) as usize);
        if total > MODULES_BYTES_MAX
            || part.is_empty()
            || part.len() > CHUNK_BYTES
            || offset + part.len() > total
        {
            return Err(Violation::Bound("a part of a module is out of bounds"));
        }
        let id = ModuleId(*hash);
        let last = offset + part.len() == total;
        if self.modules.whole.contains(&id) {
            return Ok(());
        }
        if self.registry.modules().bytes(id).is_some() {
            // Another node of this process has it, so that here it only passes through.
            self.pass_on(frame);
            if last {
                self.modules.whole.push(id);
            }
            return Ok(());
        }
        if self.modules.take(id, offset, total, part) {
            self.pass_on(frame);
            if last {
                self.module_arrived(id)?;
            }
        }
        Ok(())
    }

    fn module_arrived(&mut self, id: ModuleId) -> Result<(), Violation> {
        let Some(at) = self.modules.arriving.iter().position(|part| part.id == id) else { return Ok(()) };
        let bytes = Bytes::from(self.modules.arriving.swap_remove(at).bytes);
        if ModuleId::of(&bytes) != id {
            return Err(Violation::Bound("a module is not what its hash says"));
        }
        match self.registry.modules().add(id, bytes) {
            Ok(()) => self.modules.whole.push(id),
            // Streams that want it say that it is not here.
            Err(error) => tracing::warn!(rank = self.config.rank, %id, "a module was not kept: {error}"),
        }
        Ok(())
    }

    fn pass_on(&mut self, frame: &Bytes) {
        for at in 0..self.links.len() {
            // Who is being taken in gets all of it when that is done.
            let member = matches!(self.links[at].stage, Stage::Member);
            if self.links[at].way == Way::Down && self.links[at].alive && member {
                self.links[at].out.push(frame.clone());
                mark(&mut self.links, &mut self.dirty, at);
            }
        }
    }
}

impl Passed {
    /// Takes a part; returns whether it is the next one of its module.
    fn take(&mut self, id: ModuleId, offset: usize, total: usize, part: &[u8]) -> bool {
        let mut at = self.arriving.iter().position(|arriving| arriving.id == id);
        if offset == 0 {
            // It begins, or begins anew because another parent sends it.
            if let Some(at) = at {
                self.arriving.swap_remove(at);
            }
            let under_way: usize = self.arriving.iter().map(|arriving| arriving.total).sum();
            if self.arriving.len() >= ARRIVING_MAX || under_way + total > MODULES_BYTES_MAX {
                return false;
            }
            self.arriving.push(Arriving { id, total, bytes: Vec::new() });
            at = Some(self.arriving.len() - 1);
        }
        let Some(arriving) = at.map(|at| &mut self.arriving[at]) else { return false };
        if arriving.bytes.len() != offset || arriving.total != total {
            return false;
        }
        arriving.bytes.extend_from_slice(part);
        true
    }
}

/// The frames of the first bytes of a module.
fn frames(id: ModuleId, total: usize, bytes: &[u8]) -> Vec<Bytes> {
    let parts = bytes.chunks(CHUNK_BYTES).enumerate().map(|(at, part)| {
        let wave = (total as u64) << 32 | (at * CHUNK_BYTES) as u64;
        frame::encode_parts(Header { wave, ..Header::new(Kind::Module) }, &[&id.0, part])
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Registry;
    use crate::proto::{Child, Config, Time, Tuning};
    use sheaf_core::RangeSet;

    const NOW: Time = Time(0);

    fn node(role: Role, children: u32) -> Node {
        let child = |rank| Child { rank, leaves: RangeSet::single(rank) };
        let config = Config {
            rank: 0,
            role,
            depth: 1,
            leaves: RangeSet::full(children.max(1)),
            children: (0..children).map(child).collect(),
            stream_base: 0,
            place: Default::default(),
            tuning: Tuning::default(),
        };
        let mut node = Node::new(config, Registry::with_builtins(), NOW);
        node.add_parent(NOW);
        node
    }

    /// Gives what waits on `link` of one node to the last link of the other, its parent's.
    fn pass(from: &mut Node, link: usize, to: &mut Node) -> Result<(), Violation> {
        let up = to.config.children.len();
        from.output(link).take().into_iter().try_for_each(|frame| to.receive(NOW, up, &frame))
    }

    fn bytes(len: usize) -> Bytes {
        (0..len).map(|at| (at / 7) as u8).collect::<Vec<u8>>().into()
    }

    #[test]
    fn a_module_goes_down_and_a_later_child_gets_it_too() {
        let (mut root, mut inner, mut below) =
            (node(Role::Root, 2), node(Role::Inner, 1), node(Role::Inner, 1));
        let ids = [1, CHUNK_BYTES, 3 * CHUNK_BYTES + 5].map(|len| root.add_module(&bytes(len)).unwrap());
        pass(&mut root, 0, &mut inner).unwrap();
        pass(&mut inner, 0, &mut below).unwrap();
        assert_eq!(below.modules(), ids.map(|id| id.0));
        assert_eq!(below.registry.modules().bytes(ids[2]), Some(bytes(3 * CHUNK_BYTES + 5)));

        let mut late = node(Role::Inner, 1);
        late.add_module(&bytes(1)).unwrap();
        root.output(1).take();
        let known = late.modules();
        root.send_modules(1, &known);
        assert_eq!(root.output(1).take().len(), 1 + 4, "what it knows is not sent");
        root.send_modules(1, &known);
        pass(&mut root, 1, &mut late).unwrap();
        assert_eq!(late.modules(), ids.map(|id| id.0));
        root.send_modules(1, &late.modules());
        assert!(root.output(1).is_empty());
    }

    /// A child that comes while a module is under way gets its beginning at once and the rest as it
    /// arrives; one whose parent changes in the middle takes it from the beginning.
    #[test]
    fn a_module_under_way_reaches_a_child_that_comes_in_the_middle() {
        let (mut root, mut inner) = (node(Role::Root, 1), node(Role::Inner, 2));
        let (mut early, mut late) = (node(Role::Inner, 1), node(Role::Inner, 1));
        let id = root.add_module(&bytes(5 * CHUNK_BYTES)).unwrap();
        let parts: Vec<Bytes> = root.output(0).take().into();
        for part in &parts[..2] {
            inner.receive(NOW, 2, part).unwrap();
        }
        pass(&mut inner, 0, &mut early).unwrap();
        inner.output(1).take();
        inner.send_modules(1, &[]);
        for part in &parts[2..4] {
            inner.receive(NOW, 2, part).unwrap();
        }
        pass(&mut inner, 1, &mut late).unwrap();
        assert_eq!(late.modules(), [[0; 32]; 0]);
        for part in parts.iter().chain(&parts[4..]) {
            inner.receive(NOW, 2, part).unwrap();
        }
        pass(&mut inner, 0, &mut early).unwrap();
        pass(&mut inner, 1, &mut late).unwrap();
        assert_eq!((early.modules(), late.modules()), (vec![id.0], vec![id.0]));
        assert!(late.modules.arriving.is_empty() && inner.modules.arriving.is_empty());
    }

    #[test]
    fn false_modules_are_refused() {
        let mut inner = node(Role::Inner, 1);
        let (good, id) = (bytes(100), ModuleId::of(&bytes(100)));
        let frame = |id: ModuleId, offset: u64, total: u64, part: &[u8]| {
            let header = Header { wave: total << 32 | offset, ..Header::new(Kind::Module) };
            frame::encode_parts(header, &[&id.0, part])
        };
        let mut refused = |frame: Bytes| inner.receive(NOW, 1, &frame).is_err();
        assert!(refused(frame(id, 0, 100, &[7; 100])), "another content than the hash says");
        assert!(refused(frame(id, 50, 100, &good[..60])), "longer than announced");
        assert!(refused(frame(id, 0, u64::from(u32::MAX), &good)), "too long");
        assert!(refused(frame(id, 0, 100, &[])), "an empty part");
        assert!(!refused(frame(id, 50, 100, &good[50..])), "a part without its beginning is nobody's");
        for at in 0..40u8 {
            let other = ModuleId([at; 32]);
            assert!(!refused(frame(other, 0, 8 << 20, &good)), "more than can be under way are dropped");
        }
        assert!(inner.modules.arriving.len() <= 8);
        assert_eq!(inner.modules(), [[0; 32]; 0]);
        let mut leaf = node(Role::Leaf, 0);
        leaf.receive(NOW, 0, &frame(id, 0, 100, &good)).unwrap();
        assert!(leaf.modules().is_empty(), "a leaf combines nothing");
        leaf.registry.keep_modules_at_leaves();
        leaf.receive(NOW, 0, &frame(id, 0, 100, &good)).unwrap();
        assert_eq!(leaf.modules(), [id.0], "its service may want to");
    }
}
