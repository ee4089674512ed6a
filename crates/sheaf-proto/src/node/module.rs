//! Modules of filters on their way down: every node keeps them, and passes each part on before it
//! has the next.
//!
//! A WebAssembly module wants the engine that runs it, which many hosts have beside the program. A
//! child says, when it is ready or asks to be taken, whether it does; one that does not say so is
//! sent the engine before its first WebAssembly module, as a module with a mark. It stays there:
//! whoever passes modules on decides anew for each child.
//!
//! Modules are frames of the tree and no service of it, as what they need is the order of one link:
//! a module goes ahead of the first stream that names it, and a newcomer is sent those it lacks
//! ahead of the streams that it continues, by whoever takes it in and in the same step. Streams of
//! a service have no order between each other (each has a window, which a long module fills while
//! another stream's opening overtakes it), and begin at the root. So opening a stream would have to
//! wait for an answer of every node; and whoever takes a node in would have to hold each stream
//! back until the root has heard who came and sent the modules there: a state more in adoption, a
//! deadline more, and a race with the next loss, in place of one kind of frame.
use crate::config::{NodeConfig, NodeRole};
use crate::filter::{FilterError, MODULES_BYTES_MAX, ModuleId, Modules, Registry};
use crate::frame::{self, CHUNK_BYTES, HEADER_BYTES, Header, Kind, Violation, flag};
use crate::links::{LinkId, LinkWay, Links};
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
    is_engine: bool,
}

/// Where a module passes: the node's own copies, and its links.
pub(super) struct Here<'a> {
    pub config: &'a NodeConfig,
    pub registry: &'a Registry,
    pub links: &'a mut Links,
}

impl Here<'_> {
    /// A leaf combines nothing; its service may.
    fn is_idle(&self) -> bool {
        is_idle(self.config, self.registry)
    }

    /// Whoever is being taken in gets all of it when that is done.
    fn passes_on_to(&self, link: LinkId) -> bool {
        let link = &self.links[link];
        link.way == LinkWay::Down && link.is_member()
    }

    fn pass_on(&mut self, frame: &Bytes) {
        for at in self.links.ids() {
            if self.passes_on_to(at) {
                self.links.send(at, frame.clone());
            }
        }
    }

    /// Sends the engine to those of `links` that want it.
    fn send_engine(&mut self, links: impl IntoIterator<Item = LinkId>) {
        // Read and cut once, if somebody wants it.
        let mut engine: Option<Vec<Bytes>> = None;
        for link in links {
            if std::mem::replace(&mut self.links[link].has_engine, true) {
                continue;
            }
            let parts =
                engine.get_or_insert_with(|| engine_frames(self.registry, self.config.rank));
            parts.iter().for_each(|frame| self.links.send(link, frame));
        }
    }

    fn send_engine_to_all(&mut self) {
        let links = self.links.ids().filter(|&at| self.passes_on_to(at)).collect::<Vec<_>>();
        self.send_engine(links);
    }
}

fn is_idle(config: &NodeConfig, registry: &Registry) -> bool {
    config.role == NodeRole::Leaf && !registry.modules().are_at_leaves()
}

/// A header that says whether this node wants no engine for WebAssembly.
pub(super) fn with_engine(config: &NodeConfig, registry: &Registry, kind: Kind) -> Header {
    let wants_none = is_idle(config, registry) || registry.modules().has_engine();
    let flags = if wants_none { flag::ready::ENGINE } else { 0 };
    Header { flags, ..Header::new(kind) }
}

impl Passed {
    /// The hashes of the modules that are here as a whole.
    pub fn hashes(&self) -> Vec<[u8; 32]> {
        self.whole.iter().map(|id| id.0).collect()
    }

    /// Keeps a module of this process, and sends it down the tree.
    pub fn add(&mut self, mut here: Here<'_>, bytes: &Bytes) -> Result<ModuleId, FilterError> {
        let id = ModuleId::of(bytes);
        if bytes.is_empty() {
            return Err(FilterError::new(Errno::INVAL, "a module without bytes"));
        }
        if self.whole.contains(&id) {
            return Ok(id);
        }
        here.registry.modules().add(id, bytes.clone())?;
        self.whole.push(id);
        if Modules::need_engine(bytes) {
            here.send_engine_to_all();
        }
        for frame in frames(Header::new(Kind::Module), id, bytes.len(), bytes) {
            here.pass_on(&frame);
        }
        Ok(id)
    }

    /// Sends `link` what is here and is not `known` there.
    pub fn send_to(&self, mut here: Here<'_>, link: LinkId, known: &[[u8; 32]]) {
        let lacking = self.whole.iter().filter(|id| !known.contains(&id.0));
        let whole = lacking.filter_map(|&id| Some((id, here.registry.modules().bytes(id)?)));
        let whole: Vec<(ModuleId, Bytes)> = whole.collect();
        // What is still arriving goes on with the parts that come.
        let arriving = self.arriving.iter().filter(|part| !part.is_engine);
        let header = Header::new(Kind::Module);
        let mut queued: Vec<Bytes> =
            whole.iter().flat_map(|(id, bytes)| frames(header, *id, bytes.len(), bytes)).collect();
        let mut wanted = whole.iter().any(|(_, bytes)| Modules::need_engine(bytes));
        for part in arriving {
            wanted |= Modules::need_engine(&part.bytes);
            queued.extend(frames(header, part.id, part.total, &part.bytes));
        }
        if wanted {
            here.send_engine([link]);
        }
        queued.into_iter().for_each(|frame| here.links.send(link, frame));
    }

    /// Part of a module, in order; another parent may begin it again.
    ///
    /// Whoever wants the engine is sent it before the first part that needs it goes on. A module
    /// that cannot be kept is no fault of the sender: streams that name it say that it is not here.
    ///
    /// May come again, in whole or in part, from another parent: what is here is passed over, and
    /// what is not whole is taken from its beginning. Afterwards the part was passed on once to
    /// each child that had those before it, and the module is here when it is whole and is what its
    /// hash says. Costs a copy of the part.
    pub fn on_module(
        &mut self,
        mut here: Here<'_>,
        header: &Header,
        frame: &Bytes,
    ) -> Result<(), Violation> {
        if here.is_idle() {
            return Ok(());
        }
        let body = &frame[HEADER_BYTES..];
        let (hash, part) =
            body.split_first_chunk::<HASH_BYTES>().ok_or(Violation::Body(Kind::Module))?;
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
        if header.has(flag::module::ENGINE) {
            if !here.registry.modules().has_engine()
                && self.take(id, offset, total, part, true)
                && last
            {
                self.arrived(&here, id)?;
            }
            return Ok(());
        }
        if self.whole.contains(&id) {
            return Ok(());
        }
        // Whoever wants the engine has it before the module that needs it.
        if offset == 0 && Modules::need_engine(part) {
            here.send_engine_to_all();
        }
        if here.registry.modules().bytes(id).is_some() {
            // Another node of this process has it, so that here it only passes through.
            here.pass_on(frame);
            if last {
                self.whole.push(id);
            }
            return Ok(());
        }
        if self.take(id, offset, total, part, false) {
            here.pass_on(frame);
            if last {
                self.arrived(&here, id)?;
            }
        }
        Ok(())
    }

    fn arrived(&mut self, here: &Here<'_>, id: ModuleId) -> Result<(), Violation> {
        let Some(at) = self.arriving.iter().position(|part| part.id == id) else { return Ok(()) };
        let Arriving { bytes, is_engine, .. } = self.arriving.swap_remove(at);
        let bytes = Bytes::from(bytes);
        if ModuleId::of(&bytes) != id {
            return Err(Violation::Bound("a module is not what its hash says"));
        }
        if is_engine {
            here.registry.modules().keep_engine(bytes);
            return Ok(());
        }
        match here.registry.modules().add(id, bytes) {
            Ok(()) => self.whole.push(id),
            // Streams that want it say that it is not here.
            Err(error) => {
                tracing::warn!(rank = here.config.rank, %id, "a module was not kept: {error}")
            }
        }
        Ok(())
    }

    /// Takes a part; returns whether it is the next one of its module.
    fn take(
        &mut self,
        id: ModuleId,
        offset: usize,
        total: usize,
        part: &[u8],
        is_engine: bool,
    ) -> bool {
        let mut at = self.arriving.iter().position(|arriving| arriving.id == id);
        if offset == 0 {
            // It begins, or begins anew because another parent sends it.
            if let Some(at) = at {
                self.arriving.swap_remove(at);
            }
            // Counts the announced lengths, because these are what the peer can make this node
            // hold.
            let under_way: usize = self.arriving.iter().map(|arriving| arriving.total).sum();
            if self.arriving.len() >= ARRIVING_MAX || under_way + total > MODULES_BYTES_MAX {
                return false;
            }
            // Without capacity: a peer could announce much and send little.
            self.arriving.push(Arriving { id, total, bytes: Vec::new(), is_engine });
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

/// The engine as it is sent. Where it cannot be had, those that want it say that they have none.
fn engine_frames(registry: &Registry, rank: u32) -> Vec<Bytes> {
    match registry.modules().engine() {
        Ok(engine) if engine.len() <= MODULES_BYTES_MAX => {
            let header = Header { flags: flag::module::ENGINE, ..Header::new(Kind::Module) };
            frames(header, ModuleId::of(&engine), engine.len(), &engine)
        }
        Ok(engine) => {
            let bytes = engine.len();
            tracing::warn!(
                rank,
                bytes,
                "the engine is longer than a module may be ({MODULES_BYTES_MAX})"
            );
            Vec::new()
        }
        Err(error) => {
            tracing::warn!(rank, "no engine for nodes below that have none: {error}");
            Vec::new()
        }
    }
}

/// The frames of the first bytes of a module.
fn frames(header: Header, id: ModuleId, total: usize, bytes: &[u8]) -> Vec<Bytes> {
    let parts = bytes.chunks(CHUNK_BYTES).enumerate().map(|(at, part)| {
        let wave = (total as u64) << 32 | (at * CHUNK_BYTES) as u64;
        frame::encode_parts(Header { wave, ..header }, &[&id.0, part])
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::super::Node;
    use super::*;
    use crate::config::{Child, Time, Tuning};
    use crate::control;
    use crate::filter::{Linked, Linker, MakeLinker};
    use sheaf_core::RangeSet;
    use std::sync::OnceLock;

    const NOW: Time = Time(0);

    fn node(role: NodeRole, children: u32) -> Node {
        let child = |rank| Child { rank, leaves: RangeSet::single(rank) };
        let config = NodeConfig {
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
        from.output(LinkId::new(link))
            .take()
            .into_iter()
            .try_for_each(|frame| to.receive(NOW, LinkId::new(up), &frame))
    }

    fn bytes(len: usize) -> Bytes {
        (0..len).map(|at| (at / 7) as u8).collect::<Vec<u8>>().into()
    }

    #[test]
    fn module_goes_down_and_a_later_child_gets_it_too() {
        let (mut root, mut inner, mut below) =
            (node(NodeRole::Root, 2), node(NodeRole::Inner, 1), node(NodeRole::Inner, 1));
        let ids =
            [1, CHUNK_BYTES, 3 * CHUNK_BYTES + 5].map(|len| root.add_module(&bytes(len)).unwrap());
        pass(&mut root, 0, &mut inner).unwrap();
        pass(&mut inner, 0, &mut below).unwrap();
        assert_eq!(below.modules(), ids.map(|id| id.0));
        assert_eq!(below.registry.modules().bytes(ids[2]), Some(bytes(3 * CHUNK_BYTES + 5)));

        let mut late = node(NodeRole::Inner, 1);
        late.add_module(&bytes(1)).unwrap();
        root.output(LinkId::new(1)).take();
        let known = late.modules();
        root.send_modules(LinkId::new(1), &known);
        assert_eq!(root.output(LinkId::new(1)).take().len(), 1 + 4, "what it knows is not sent");
        root.send_modules(LinkId::new(1), &known);
        pass(&mut root, 1, &mut late).unwrap();
        assert_eq!(late.modules(), ids.map(|id| id.0));
        root.send_modules(LinkId::new(1), &late.modules());
        assert!(root.output(LinkId::new(1)).is_empty());
    }

    /// A child that comes while a module is under way gets its beginning at once and the rest as it
    /// arrives; one whose parent changes in the middle takes it from the beginning.
    #[test]
    fn module_under_way_reaches_a_child_that_comes_in_the_middle() {
        let (mut root, mut inner) = (node(NodeRole::Root, 1), node(NodeRole::Inner, 2));
        let (mut early, mut late) = (node(NodeRole::Inner, 1), node(NodeRole::Inner, 1));
        let id = root.add_module(&bytes(5 * CHUNK_BYTES)).unwrap();
        let parts: Vec<Bytes> = root.output(LinkId::new(0)).take().into();
        for part in &parts[..2] {
            inner.receive(NOW, LinkId::new(2), part).unwrap();
        }
        pass(&mut inner, 0, &mut early).unwrap();
        inner.output(LinkId::new(1)).take();
        inner.send_modules(LinkId::new(1), &[]);
        for part in &parts[2..4] {
            inner.receive(NOW, LinkId::new(2), part).unwrap();
        }
        pass(&mut inner, 1, &mut late).unwrap();
        assert_eq!(late.modules(), [[0; 32]; 0]);
        for part in parts.iter().chain(&parts[4..]) {
            inner.receive(NOW, LinkId::new(2), part).unwrap();
        }
        pass(&mut inner, 0, &mut early).unwrap();
        pass(&mut inner, 1, &mut late).unwrap();
        assert_eq!((early.modules(), late.modules()), (vec![id.0], vec![id.0]));
        assert!(late.modules.arriving.is_empty() && inner.modules.arriving.is_empty());
    }

    #[test]
    fn false_modules_are_refused() {
        let mut inner = node(NodeRole::Inner, 1);
        let (good, id) = (bytes(100), ModuleId::of(&bytes(100)));
        let frame = |id: ModuleId, offset: u64, total: u64, part: &[u8]| {
            let header = Header { wave: total << 32 | offset, ..Header::new(Kind::Module) };
            frame::encode_parts(header, &[&id.0, part])
        };
        let mut refused = |frame: Bytes| inner.receive(NOW, LinkId::new(1), &frame).is_err();
        assert!(refused(frame(id, 0, 100, &[7; 100])), "another content than the hash says");
        assert!(refused(frame(id, 50, 100, &good[..60])), "longer than announced");
        assert!(refused(frame(id, 0, u64::from(u32::MAX), &good)), "too long");
        assert!(refused(frame(id, 0, 100, &[])), "an empty part");
        assert!(
            !refused(frame(id, 50, 100, &good[50..])),
            "a part without its beginning is nobody's"
        );
        for at in 0..40u8 {
            let other = ModuleId([at; 32]);
            assert!(
                !refused(frame(other, 0, 8 << 20, &good)),
                "more than can be under way are dropped"
            );
        }
        assert!(inner.modules.arriving.len() <= 8);
        assert_eq!(inner.modules(), [[0; 32]; 0]);
        let mut leaf = node(NodeRole::Leaf, 0);
        leaf.receive(NOW, LinkId::new(0), &frame(id, 0, 100, &good)).unwrap();
        assert!(leaf.modules().is_empty(), "a leaf combines nothing");
        leaf.registry.keep_modules_at_leaves();
        leaf.receive(NOW, LinkId::new(0), &frame(id, 0, 100, &good)).unwrap();
        assert_eq!(leaf.modules(), [id.0], "its service may want to");
    }

    /// Has an engine from the beginning, or the one that it is sent.
    struct Engine(OnceLock<Bytes>);

    impl Linker for Engine {
        fn link(&self, _: &[u8]) -> Result<Box<dyn Linked>, FilterError> {
            Err(FilterError::new(Errno::NOEXEC, "it links nothing"))
        }

        fn has_engine(&self) -> bool {
            self.0.get().is_some()
        }

        fn keep_engine(&self, bytes: Bytes) {
            assert!(self.0.set(bytes).is_ok(), "it is sent once");
        }

        fn engine(&self) -> Result<Bytes, FilterError> {
            self.0.get().cloned().ok_or_else(|| FilterError::new(Errno::NOENT, "there is none"))
        }
    }

    fn linked(role: NodeRole, children: u32, make: MakeLinker) -> Node {
        let node = node(role, children);
        node.registry.link_modules_with(make);
        node
    }

    fn bare(role: NodeRole) -> Node {
        linked(role, 1, || Box::new(Engine(OnceLock::new())))
    }

    fn equipped(role: NodeRole, children: u32) -> Node {
        linked(role, children, || Box::new(Engine(OnceLock::from(bytes(CHUNK_BYTES * 5 + 7)))))
    }

    fn engine_bytes(frames: impl IntoIterator<Item = Bytes>) -> usize {
        let engine =
            frames.into_iter().filter(|frame| frame::flags(frame) & flag::module::ENGINE != 0);
        engine.map(|frame| frame.len() - HEADER_BYTES - HASH_BYTES).sum()
    }

    /// Two levels without an engine get it before the module that wants it, from the root, which
    /// has it beside it; who says that it has one, or is a leaf, gets none, and nobody gets it
    /// twice.
    #[test]
    fn engine_goes_before_the_module_to_those_that_lack_it() {
        let module = Bytes::from_static(b"\0asm\x01\0\0\0");
        let (mut root, mut inner, mut below, leaf) = (
            equipped(NodeRole::Root, 3),
            bare(NodeRole::Inner),
            bare(NodeRole::Inner),
            bare(NodeRole::Leaf),
        );
        let whole = root.registry.modules().engine().unwrap();
        for (link, child) in [(0, &inner), (1, &equipped(NodeRole::Inner, 1)), (2, &leaf)] {
            let ready = control::Ready { leaves: RangeSet::new(), machines: Vec::new() };
            let frame = control::control(child.with_engine(Kind::Ready), &ready);
            root.receive(NOW, LinkId::new(link), &frame).unwrap();
        }
        let wants: Vec<bool> = root.links.iter().take(3).map(|link| !link.has_engine).collect();
        assert_eq!(wants, [true, false, false]);
        let first = root.add_module(&module).unwrap();
        assert_eq!([1, 2].map(|link| engine_bytes(root.output(LinkId::new(link)).take())), [0, 0]);
        pass(&mut root, 0, &mut inner).unwrap();
        pass(&mut inner, 0, &mut below).unwrap();
        for node in [&inner, &below] {
            assert_eq!(node.registry.modules().engine().unwrap(), whole);
            assert_eq!(node.modules(), [first.0], "the engine is no module of the user's");
            assert_eq!(node.with_engine(Kind::Adopt).flags, flag::ready::ENGINE);
        }
        root.add_module(&Bytes::from_static(b"\0asm\x01\0\0\0\0\0")).unwrap();
        assert_eq!(engine_bytes(root.output(LinkId::new(0)).take()), 0, "it has been sent");
        // Who comes later and lacks it gets it with the modules.
        root.links[LinkId::new(0)].has_engine = false;
        root.send_modules(LinkId::new(0), &[first.0]);
        let mut late = bare(NodeRole::Inner);
        pass(&mut root, 0, &mut late).unwrap();
        assert_eq!((late.modules().len(), late.registry.modules().engine().unwrap()), (1, whole));
    }
}
