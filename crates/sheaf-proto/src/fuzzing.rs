//! What the fuzz targets in `fuzz/` run: every decoder of this crate, and whole nodes under
//! sequences of frames. No part of the API.
#![allow(missing_docs)]
use crate::config::{Child, NodeConfig, NodeRole, Time, Tuning};
use crate::control::{self, Assign, Caller, Notice, Open, Ready, Sync};
use crate::coverage::Coverage;
use crate::filter::{Emit, Input, ModuleId, Registry, packets as lists};
use crate::frame::{self, Header, Kind};
use crate::links::LinkId;
use crate::node::{Event, Node, Outgoing};
use crate::packet::{self, Format};
use crate::report;
use crate::topology::{Page, Spec, Topology};
use bytes::Bytes;
use sheaf_core::fuzzing::FuzzTarget;
use sheaf_core::{Errno, RangeSet};
use std::collections::VecDeque;
use std::time::Duration;

/// The targets of this crate.
pub const TARGETS: &[FuzzTarget] = &[
    ("frame_header", frame_header),
    ("control", control),
    ("coverage", coverage),
    ("packets", packets),
    ("topology_wire", topology_wire),
    ("topology_file", topology_file),
    ("filters", filters),
    ("modules", modules),
    ("node_root", node_root),
    ("node_inner", node_inner),
    ("node_leaf", node_leaf),
];

/// Steps of one sequence.
const STEPS_MAX: usize = 400;
/// The most bytes that a node may hold after a sequence: its bounds are far below.
const QUEUED_BYTES_MAX: u64 = 64 << 20;
/// A drawing of a larger tree takes longer than it is worth here.
const DRAWN_NODES_MAX: u32 = 4096;

/// Takes numbers and bytes off the fuzzer's input; zeros when it is used up.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// Small numbers mostly, and each of the far ones now and then.
    fn wave(&mut self) -> u64 {
        match self.byte() {
            byte @ 0..=0xef => u64::from(byte % 16),
            0xff => u64::MAX,
            _ => u64::from(self.word()),
        }
    }

    fn bytes(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        let (head, rest) = self.0.split_at(len);
        self.0 = rest;
        head
    }
}

pub fn frame_header(data: &[u8]) {
    if let Ok(Some(header)) = Header::parse(data) {
        assert_eq!(Header::parse(&header.to_bytes()), Ok(Some(header)));
    }
}

/// Bodies of control frames: one that decodes comes back from its own bytes.
pub fn control(data: &[u8]) {
    let mut script = Script(data);
    match script.byte() % 18 {
        0 => round_trip::<Open>(script.0),
        1 => round_trip::<Assign>(script.0),
        3 => round_trip::<Ready>(script.0),
        4 => round_trip::<Notice>(script.0),
        6 => round_trip::<control::Adopt>(script.0),
        7 => round_trip::<control::Adopted>(script.0),
        8 => round_trip::<control::Release>(script.0),
        9 => round_trip::<control::Released>(script.0),
        10 => round_trip::<control::Ack>(script.0),
        11 => drop(report::Bundle::decode(script.0)),
        12 => round_trip::<control::Take>(script.0),
        13 => round_trip::<control::Ancestor>(script.0),
        14 => round_trip::<control::DoorAddress>(script.0),
        15 => round_trip::<control::Verdict>(script.0),
        17 => round_trip::<control::Admission>(script.0),
        _ => drop(report::Bundle::decode(script.0)),
    }
}

fn round_trip<T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(
    data: &[u8],
) {
    let Ok(body) = control::decode::<T>(Kind::Open, data) else { return };
    let frame = control::control(Header::new(Kind::Open), &body);
    let back = control::decode::<T>(Kind::Open, &frame[frame::HEADER_BYTES..]);
    assert_eq!(back.as_ref(), Ok(&body));
}

pub fn coverage(data: &[u8]) {
    let within = RangeSet::full(64);
    let mut input = data;
    let Ok(cover) = Coverage::decode(&mut input, &within) else { return };
    let named = cover.ok.len() + cover.missing().len();
    assert!(named <= 64, "{cover:?} counts a leaf twice");
    let mut bytes = Vec::new();
    cover.encode(&mut bytes);
    assert_eq!(Coverage::decode(&mut &bytes[..], &within).as_ref(), Ok(&cover));
}

pub fn packets(data: &[u8]) {
    if let Ok(values) = packet::unpack(data) {
        let packed = packet::pack(&values).expect("what was unpacked can be packed");
        assert_eq!(packet::unpack(&packed).map(|back| back.len()), Ok(values.len()));
    }
    let _ = packet::unpack_shared(&Bytes::copy_from_slice(data));
    if let Ok(format) = std::str::from_utf8(data)
        .map_err(|_| ())
        .and_then(|text| Format::parse(text).map_err(|_| ()))
    {
        assert_eq!(Format::parse(&format.to_string()).as_ref(), Ok(&format));
    }
}

pub fn topology_wire(data: &[u8]) {
    let Ok(tree) = Topology::decode(&mut &data[..]) else { return };
    let mut bytes = Vec::new();
    tree.encode(&mut bytes);
    let back = Topology::decode(&mut &bytes[..]).expect("what was encoded decodes");
    assert_eq!(back.nodes_len(), tree.nodes_len());
    draw(&tree);
    let children = tree.root().children().map(|child| child.rank()).take(4);
    for rank in children {
        assert!(tree.subtree(rank).is_some(), "child {rank} has no sub-tree");
    }
}

pub fn topology_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = Spec::parse(text.lines().next().unwrap_or(""));
    let Ok(tree) = Topology::from_file(text) else { return };
    let back = Topology::from_file(&tree.to_file()).expect("what was written can be read");
    assert_eq!(back.to_file(), tree.to_file());
    draw(&tree);
}

fn draw(tree: &Topology) {
    if tree.nodes_len() <= DRAWN_NODES_MAX {
        let drawn = [tree.draw(Page::default()), tree.to_dot(), tree.to_svg()];
        assert!(drawn.iter().all(|text| !text.is_empty()));
    }
}

/// Each built-in filter, with forged parameters and contributions.
pub fn filters(data: &[u8]) {
    let mut script = Script(data);
    let registry = Registry::with_builtins();
    let names = registry.names();
    let name = names[usize::from(script.byte()) % names.len()];
    let Ok(filter) = registry.instantiate(name, script.bytes(), &Default::default()) else {
        return;
    };
    let mut accumulator = filter.accumulator();
    for child in 0..4 {
        let raw = script.byte() % 2 == 0;
        let _ = accumulator.fold(Input { child, raw, payload: script.bytes(), ..Input::default() });
    }
    let (mut partial, mut result) = (Vec::new(), Vec::new());
    if accumulator.finish(Emit::Partial, &mut partial).is_ok() {
        let input = Input { payload: &partial, ..Input::default() };
        let folded = filter.accumulator().fold(input);
        assert!(
            folded.is_ok() || name == "clock-skew",
            "{name} cannot read its own partial: {folded:?}"
        );
    }
    let _ = accumulator.finish(Emit::Result, &mut result);
}

/// Modules of filters on their way through a node: parts in any order, of contents that are what
/// their hash says and of others; then streams that name their functions. What is a shared object
/// is announced and kept, but not linked: that is the system's work, and runs it.
pub fn modules(data: &[u8]) {
    const MODULES_KEPT_MAX: usize = 1 << 20;
    let mut play = Play::new(NodeRole::Inner, data);
    let parent = LinkId::new(play.links - 1);
    for _ in 0..STEPS_MAX {
        if play.script.0.is_empty() {
            break;
        }
        let (kind, content) = (play.script.byte(), play.script.bytes());
        let id = if kind & 1 == 0 { ModuleId::of(content) } else { ModuleId([kind; 32]) };
        let cut = usize::from(play.script.byte()).min(content.len());
        let parts = [(0, &content[..cut]), (cut, &content[cut..]), (0, content), (cut, content)];
        for (offset, part) in if kind & 2 == 0 { &parts[..2] } else { &parts[2..] } {
            let total = if kind & 4 == 0 { content.len() as u64 } else { play.script.wave() };
            let header = Header { wave: total << 32 | *offset as u64, ..Header::new(Kind::Module) };
            play.receive(parent, frame::encode_parts(header, &[&id.0, part]).to_vec());
        }
        play.drain();
        let function = String::from_utf8_lossy(content).into_owned();
        for name in [id.filter(&function), format!("module:{function}")] {
            if !content.starts_with(b"\x7fELF") {
                let made = play.node.registry().instantiate(&name, content, &Default::default());
                assert!(made.is_err(), "{name:?} is no function of any module");
            }
        }
    }
    let kept = play.node.modules();
    assert!(kept.len() <= STEPS_MAX && play.node.queued_bytes() < MODULES_KEPT_MAX as u64);
    for hash in kept {
        let bytes = play.node.registry().modules().bytes(ModuleId(hash));
        assert_eq!(bytes.map(|bytes| ModuleId::of(&bytes).0), Some(hash));
    }
    let _ = std::str::from_utf8(data).map(|text| text.parse::<ModuleId>());
    if let Ok(list) = lists::decode(data) {
        let owned: Vec<(i32, Vec<u8>)> =
            list.iter().map(|(tag, bytes)| (*tag, bytes.to_vec())).collect();
        assert_eq!(lists::decode(&lists::encode(&owned)).as_ref(), Ok(&list));
    }
}

pub fn node_root(data: &[u8]) {
    Play::new(NodeRole::Root, data).run();
}

pub fn node_inner(data: &[u8]) {
    Play::new(NodeRole::Inner, data).run();
}

pub fn node_leaf(data: &[u8]) {
    Play::new(NodeRole::Leaf, data).run();
}

/// A node, and what its peers and its own process do to it.
struct Play<'a> {
    node: Node,
    links: usize,
    now: Time,
    /// Parts of packets that the service has not dealt with: stream and bytes.
    packets: VecDeque<(u32, usize)>,
    script: Script<'a>,
}

impl<'a> Play<'a> {
    fn new(role: NodeRole, data: &'a [u8]) -> Self {
        let ranges = [(0, 2), (3, 3), (4, 9)];
        let child = |(at, (first, last)): (usize, (u32, u32))| {
            let mut leaves = RangeSet::new();
            leaves.insert_range(first, last);
            Child { rank: 2 + at as u32, leaves }
        };
        let children: Vec<Child> = match role {
            NodeRole::Leaf => Vec::new(),
            _ => ranges.into_iter().enumerate().map(child).collect(),
        };
        let config = NodeConfig {
            rank: 1,
            role,
            depth: u32::from(role != NodeRole::Root),
            leaves: if role == NodeRole::Leaf { RangeSet::single(7) } else { RangeSet::full(10) },
            children,
            stream_base: 0,
            place: Default::default(),
            tuning: Tuning { window_bytes: 4096, packet_bytes_max: 1 << 16, ..Tuning::default() },
        };
        let mut node = Node::new(config, Registry::with_builtins(), Time(0));
        let parent = node.add_parent(Time(0));
        for link in 0..parent.place() {
            node.attach(Time(0), LinkId::new(link));
        }
        Self {
            node,
            links: parent.place() + 1,
            now: Time(0),
            packets: VecDeque::new(),
            script: Script(data),
        }
    }

    fn run(mut self) {
        for _ in 0..STEPS_MAX {
            if self.script.0.is_empty() {
                break;
            }
            match self.script.byte() {
                0..=0xaf => self.frame(),
                0xb0..=0xbf => self.garbage(),
                0xc0..=0xcf => self.time_passes(),
                0xd0..=0xf3 => self.act(),
                _ => {
                    let link = self.link();
                    self.node.link_lost(self.now, link, Errno::HOSTDOWN, "it is gone");
                }
            }
            self.drain();
        }
        assert!(self.node.queued_bytes() < QUEUED_BYTES_MAX);
    }

    fn link(&mut self) -> LinkId {
        LinkId::new(usize::from(self.script.byte()) % self.links)
    }

    /// A well-formed frame with forged contents, whole or in two pieces.
    fn frame(&mut self) {
        let link = self.link();
        let kind = self.script.byte();
        let flags = self.script.byte();
        let stream = u32::from(self.script.byte() % 4);
        let tag = self.script.word() as i32;
        let wave = self.script.wave();
        let body = match (kind % 16, self.script.byte() % 4) {
            (4, 1..) => self.open_body(),
            (2, 1..) => {
                let ready = Ready { leaves: RangeSet::full(3), machines: Vec::new() };
                postcard::to_stdvec(&ready).unwrap_or_default()
            }
            _ => self.script.bytes().to_vec(),
        };
        let mut bytes =
            Header { flags, stream, tag, wave, ..Header::new(Kind::Heartbeat) }.to_bytes().to_vec();
        bytes[0..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
        bytes[4] = kind % 32;
        bytes.extend_from_slice(&body);
        let cut = usize::from(self.script.byte()).min(bytes.len());
        let rest = bytes.split_off(cut);
        for piece in [bytes, rest] {
            self.receive(link, piece);
        }
    }

    fn open_body(&mut self) -> Vec<u8> {
        const FILTERS: [&str; 4] = ["sum", "null", "count", "no such"];
        let choice = self.script.byte();
        let sync = match choice >> 4 & 3 {
            0 => Sync::DontWait,
            1 => Sync::TimeOut(Duration::from_millis(u64::from(choice))),
            _ => Sync::WaitForAll,
        };
        let members = (0..10)
            .filter(|leaf| self.script.0.first().is_none_or(|mask| mask >> (leaf % 8) & 1 == 1));
        let open = Open {
            old: 0,
            service: "files".to_owned(),
            caller: Caller::Owner,
            number: 1,
            members: members.collect(),
            filter: FILTERS[usize::from(choice) % FILTERS.len()].to_owned(),
            params: Vec::new(),
            sync,
            window_bytes: 1 << (choice % 16),
            offset: u64::from(choice >> 6),
            wave_base: u64::from(choice >> 6),
        };
        postcard::to_stdvec(&open).unwrap_or_default()
    }

    fn garbage(&mut self) {
        let (link, bytes) = (self.link(), self.script.bytes().to_vec());
        self.receive(link, bytes);
    }

    fn receive(&mut self, link: LinkId, bytes: Vec<u8>) {
        if let Err(violation) = self.node.receive(self.now, link, &Bytes::from(bytes)) {
            self.node.link_lost(self.now, link, Errno::PROTO, &violation.to_string());
        }
    }

    fn time_passes(&mut self) {
        self.now = self.now + Duration::from_millis(u64::from(self.script.byte()) * 10);
        self.node.tick(self.now);
    }

    /// The process of the node uses it.
    fn act(&mut self) {
        let (what, stream) = (self.script.byte(), u32::from(self.script.byte() % 4));
        let wave = self.script.wave();
        let leaf = self.node.config().role == NodeRole::Leaf;
        match (leaf, what % 6) {
            (true, 0) => self.node.reply(stream, wave, 1, self.script.bytes()),
            (true, 1) => self.node.fail(stream, wave, Errno::IO),
            (true, 2) => {
                let _ = self.node.post(stream, 1, self.script.bytes());
            }
            (true, _) => {
                if let Some((stream, frame_bytes)) = self.packets.pop_front() {
                    self.node.consumed(stream, frame_bytes);
                }
            }
            (false, 0) => {
                let _ = self.node.open(
                    "files",
                    RangeSet::full(u32::from(what)),
                    "sum",
                    b"",
                    Sync::WaitForAll,
                );
            }
            (false, 1 | 2) if self.node.has_room(stream) => {
                let expect = (!wave.is_multiple_of(3)).then(|| Duration::from_millis(wave % 1000));
                let mut outgoing = Outgoing::new(1, self.script.bytes(), expect);
                while !self.node.send_part(self.now, stream, &mut outgoing) {}
            }
            (false, 3) => drop(self.node.take(stream)),
            (false, 4) => self.node.cancel(self.now, stream, wave),
            (false, _) => self.node.close(stream),
        }
    }

    /// The driver's part: events are taken, and what is to be written is written.
    fn drain(&mut self) {
        while let Some(event) = self.node.poll_event() {
            if let Event::Packet(packet) = event {
                self.packets.push_back((packet.stream, packet.frame_bytes));
            }
        }
        while let Some(link) = self.node.next_dirty() {
            loop {
                let written = self.node.output(link).take().iter().map(Bytes::len).sum();
                self.node.wrote(self.now, link, written);
                if !self.node.refill(link) {
                    break;
                }
            }
        }
        while self.node.next_dead().is_some() {}
        let mut fresh = Vec::new();
        self.node.take_fresh(&mut fresh);
    }
}
