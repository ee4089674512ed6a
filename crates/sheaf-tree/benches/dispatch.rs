//! What it costs to hand a packet to the service of its stream, over calling that service.
//!
//! `cargo bench -p sheaf-tree --bench dispatch`.
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use sheaf_tree::Packet;
use sheaf_tree::filter::Registry;
use sheaf_tree::service::handing::Handing;
use sheaf_tree::service::{Leaf, LeafHandle, Service, Services, Site};
use std::time::Duration;

/// A clock has a resolution, so packets are timed by the thousand.
const PACKETS: u64 = 1000;

fn main() {
    divan::main();
}

/// Takes no notice.
struct Idle;

impl Service for Idle {
    fn packet(&mut self, packet: Packet, _: &mut Leaf<'_>) {
        black_box(packet.wave);
    }
}

fn handing(streams: u32) -> Handing {
    let idle = |_: &Site<'_>, _: LeafHandle| Ok(Box::new(Idle) as Box<dyn Service>);
    let services = Services::new(Registry::with_builtins()).with("idle", idle);
    Handing::new(&services, "idle", streams, Box::new(Idle)).expect("it can be made")
}

fn packet(wave: u64, streams: u32) -> Packet {
    Packet {
        stream: wave as u32 % streams,
        wave,
        tag: 0,
        first: true,
        last: true,
        expect: Some(Duration::from_secs(1)),
        payload: bytes::Bytes::from_static(b"a request"),
        frame_bytes: 64,
    }
}

fn time(bencher: Bencher<'_, '_>, streams: u32, act: impl Fn(&mut Handing, Packet) + Sync) {
    bencher.counter(ItemsCount::new(PACKETS)).with_inputs(|| handing(streams)).bench_local_refs(
        |handing| {
            (0..PACKETS).for_each(|wave| act(handing, packet(black_box(wave), streams)));
        },
    );
}

#[divan::bench(args = [1, 64, 1024])]
fn called(bencher: Bencher<'_, '_>, streams: u32) {
    time(bencher, streams, Handing::call);
}

#[divan::bench(args = [1, 64, 1024])]
fn handed_over(bencher: Bencher<'_, '_>, streams: u32) {
    time(bencher, streams, Handing::hand);
}
