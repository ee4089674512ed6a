//! What a frame costs an inner node with 8 children, without sockets.
//!
//! `cargo bench -p sheaf-tree --bench node`. Sums come in batches of 64 waves, as they do when a
//! reader finds many frames in its socket; items are the children's frames.
#![allow(missing_docs)]
use bytes::Bytes;
use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use sheaf_core::{Errno, RangeSet};
use sheaf_proto::control::{self, Adopt, AdoptStream};
use sheaf_proto::filter::Registry;
use sheaf_proto::frame::{self, CHUNK_BYTES, Header, Kind, flag};
use sheaf_proto::packet::put_scalar;
use sheaf_proto::sim::Shape;
use sheaf_proto::{LinkId, Node, Sync, Time, Tuning};

const CHILDREN: usize = 8;
const WAVES: u64 = 64;
const STREAM: u32 = 1;
const NOW: Time = Time(0);

fn main() {
    divan::main();
}

/// Rank 1 of the tree 1x1x8, and the stream that its parent has opened.
struct Inner {
    node: Node,
    sent_up: u64,
    sent_down: u64,
}

/// The link to its parent, behind those to its children.
const PARENT: LinkId = LinkId::new(CHILDREN);

impl Inner {
    fn new(filter: &str) -> Self {
        let shape = Shape::balanced(&[1, CHILDREN as u32]);
        let tuning = Tuning { window_bytes: 16 << 20, ..Tuning::default() };
        let mut root = Node::new(shape.config(0, tuning), Registry::with_builtins(), NOW);
        root.attach_quiet(LinkId::new(0));
        let params = if filter == "sum" { &b"%uld"[..] } else { b"" };
        let stream =
            root.open("", RangeSet::full(CHILDREN as u32), filter, params, Sync::WaitForAll);
        assert_eq!(stream, STREAM);
        let mut node = Node::new(shape.config(1, tuning), Registry::with_builtins(), NOW);
        node.add_parent(NOW);
        (0..=CHILDREN).map(LinkId::new).for_each(|link| node.attach_quiet(link));
        for frame in root.output(LinkId::new(0)).take() {
            node.receive(NOW, PARENT, &frame).unwrap();
        }
        let mut inner = Self { node, sent_up: 0, sent_down: 0 };
        inner.drain();
        inner
    }

    /// Takes what the node has written, as its driver would.
    fn drain(&mut self) {
        while let Some(link) = self.node.next_dirty() {
            let bytes: usize =
                self.node.output(link).take().iter().map(|piece| black_box(piece).len()).sum();
            if link == PARENT {
                self.sent_up += bytes as u64;
            }
            self.node.refill(link);
        }
    }

    fn credit(&mut self, link: LinkId, flags: u8, total: u64) {
        let header = Header { flags, stream: STREAM, wave: total, ..Header::new(Kind::Credit) };
        self.node.receive(NOW, link, &frame::encode(header, &[])).unwrap();
    }
}

/// One child's contributions to waves from `first` on.
fn contributions(first: u64) -> Bytes {
    let mut batch = Vec::new();
    for wave in first..first + WAVES {
        let mut body = Vec::new();
        put_scalar(wave, &mut body);
        let flags =
            flag::part::FIRST | flag::part::LAST | flag::up::FULL | flag::up::FINAL | flag::up::RAW;
        let header = Header { flags, stream: STREAM, wave, ..Header::new(Kind::Up) };
        batch.extend_from_slice(&frame::encode(header, &body));
    }
    batch.into()
}

#[divan::bench(sample_count = 500, args = ["sum", "count"])]
fn up_frames_of_64_waves(bencher: Bencher<'_, '_>, filter: &str) {
    let mut inner = Inner::new(filter);
    let mut next = 0;
    bencher
        .counter(ItemsCount::new(CHILDREN as u64 * WAVES))
        .with_inputs(|| {
            next += WAVES;
            contributions(next - WAVES)
        })
        .bench_local_values(|batch| {
            for link in (0..CHILDREN).map(LinkId::new) {
                inner.node.receive(NOW, link, &batch).unwrap();
            }
            inner.drain();
            let total = inner.sent_up;
            inner.credit(PARENT, flag::credit::UPWARD, total);
        });
}

#[divan::bench(sample_count = 500, sample_size = 50)]
fn one_wave_at_a_time(bencher: Bencher<'_, '_>) {
    let mut inner = Inner::new("sum");
    let mut batch = contributions(0);
    let mut next = 0;
    let frame_bytes = batch.len() / WAVES as usize;
    bencher.counter(ItemsCount::new(CHILDREN as u64)).bench_local(|| {
        if batch.is_empty() {
            next += WAVES;
            batch = contributions(next);
        }
        let frame = batch.split_to(frame_bytes);
        for link in (0..CHILDREN).map(LinkId::new) {
            inner.node.receive(NOW, link, &frame).unwrap();
        }
        inner.drain();
        let total = inner.sent_up;
        inner.credit(PARENT, flag::credit::UPWARD, total);
    });
}

#[divan::bench(sample_count = 500, sample_size = 50)]
fn forward_64_kib_to_8_children(bencher: Bencher<'_, '_>) {
    let mut inner = Inner::new("count");
    let header = Header {
        flags: flag::part::FIRST | flag::part::LAST,
        stream: STREAM,
        ..Header::new(Kind::Down)
    };
    let chunk = frame::encode(header, &vec![7; CHUNK_BYTES]);
    bencher.counter(BytesCount::new(CHUNK_BYTES)).bench_local(|| {
        inner.node.receive(NOW, PARENT, &chunk).unwrap();
        inner.drain();
        inner.sent_down += chunk.len() as u64;
        for link in (0..CHILDREN).map(LinkId::new) {
            let total = inner.sent_down;
            inner.credit(link, 0, total);
        }
    });
}

/// All children of a node are lost at once, and as many nodes that were below them come to it.
#[divan::bench(sample_count = 5, args = [256, 1024, 4096])]
fn orphans_that_come_at_once(bencher: Bencher<'_, '_>, count: u32) {
    let shape = Shape::balanced(&[16, count / 16]);
    bencher
        .counter(ItemsCount::new(count))
        .with_inputs(|| {
            let tuning = Tuning::default();
            let mut root = Node::new(shape.config(0, tuning), Registry::with_builtins(), NOW);
            (0..16).map(LinkId::new).for_each(|link| root.attach(NOW, link));
            root.open("", shape.everyone(), "sum", b"%uld", Sync::WaitForAll);
            (0..16)
                .map(LinkId::new)
                .for_each(|link| root.link_lost(NOW, link, Errno::CONNRESET, "gone"));
            root
        })
        .bench_local_values(|mut root| {
            for leaf in 0..count {
                let (rank, leaves) = (17 + leaf, RangeSet::single(leaf));
                let link = root.child_link(NOW, rank, &leaves).unwrap();
                root.attach(NOW, link);
                let stream =
                    AdoptStream { id: STREAM, received: 0, acked: 0, since: 0, state: None };
                let adopt = Adopt {
                    rank,
                    epoch: 1,
                    leaves: leaves.clone(),
                    lost: RangeSet::new(),
                    away: RangeSet::new(),
                    ready: Some(leaves),
                    streams: vec![stream],
                    born: None,
                    machines: Vec::new(),
                    modules: Vec::new(),
                    gave: RangeSet::new(),
                };
                root.receive(NOW, link, &control::control(Header::new(Kind::Adopt), &adopt))
                    .unwrap();
            }
            assert!(root.is_alive(LinkId::new(16)), "the first one is taken");
            root
        });
}
