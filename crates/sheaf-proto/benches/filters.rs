//! What one packet and one fold cost.
//!
//! `cargo bench -p sheaf-tree --bench filters`. The sums are of 64 children, as an inner node
//! folds them; divide by 64 for one fold (`items/s` does).
#![allow(missing_docs)]
use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use sheaf_proto::filter::{Emit, Input, NodeInfo, Registry};
use sheaf_proto::packet::{Fields, PacketValue, pack, scalar, unpack};

const CHILDREN: usize = 64;

fn main() {
    divan::main();
}

fn wave(bencher: Bencher<'_, '_>, filter: &str, packets: &[Vec<u8>]) {
    let mut wave = Registry::with_builtins()
        .instantiate(filter, b"", &NodeInfo::default())
        .unwrap()
        .accumulator();
    let mut out = Vec::with_capacity(1 << 20);
    bencher.counter(ItemsCount::new(packets.len())).bench_local(|| {
        for (child, payload) in packets.iter().enumerate() {
            wave.fold(Input {
                child: child as u32,
                raw: true,
                payload: black_box(payload),
                ..Input::default()
            })
            .unwrap();
        }
        out.clear();
        wave.finish(Emit::Partial, &mut out).unwrap();
        black_box(out.len())
    });
}

fn packets(value: impl Fn(usize) -> PacketValue) -> Vec<Vec<u8>> {
    (0..CHILDREN).map(|child| pack(&[value(child)]).unwrap()).collect()
}

#[divan::bench(args = ["min", "sum", "avg", "count"])]
fn scalar_d(bencher: Bencher<'_, '_>, filter: &str) {
    wave(bencher, filter, &packets(|child| PacketValue::I32(child as i32)));
}

#[divan::bench(args = ["min", "sum", "avg", "count"])]
fn scalar_ld(bencher: Bencher<'_, '_>, filter: &str) {
    wave(bencher, filter, &packets(|child| PacketValue::I64(child as i64)));
}

#[divan::bench(args = ["min", "sum", "avg", "count"])]
fn scalar_lf(bencher: Bencher<'_, '_>, filter: &str) {
    wave(bencher, filter, &packets(|child| PacketValue::F64(child as f64)));
}

#[divan::bench(args = ["min", "sum"])]
fn array_of_1024_ld(bencher: Bencher<'_, '_>, filter: &str) {
    wave(bencher, filter, &packets(|child| vec![child as i64; 1024].into()));
}

#[divan::bench(args = ["min", "sum"])]
fn array_of_1024_d(bencher: Bencher<'_, '_>, filter: &str) {
    wave(bencher, filter, &packets(|child| vec![child as i32; 1024].into()));
}

fn eleven_fields() -> Vec<PacketValue> {
    let mut values: Vec<PacketValue> = (0..8).map(PacketValue::I64).collect();
    values.extend(["n[1-64]".into(), 2.5f64.into(), vec![7u32; 16].into()]);
    values
}

#[divan::bench]
fn pack_11_fields(bencher: Bencher<'_, '_>) {
    let values = eleven_fields();
    bencher.bench_local(|| pack(black_box(&values)).unwrap());
}

#[divan::bench]
fn unpack_11_fields(bencher: Bencher<'_, '_>) {
    let packet = pack(&eleven_fields()).unwrap();
    bencher.bench_local(|| unpack(black_box(&packet)).unwrap());
}

#[divan::bench]
fn borrow_11_fields(bencher: Bencher<'_, '_>) {
    let packet = pack(&eleven_fields()).unwrap();
    bencher.bench_local(|| {
        Fields::new(black_box(&packet)).unwrap().map(|field| field.unwrap().count()).sum::<usize>()
    });
}

#[divan::bench]
fn read_scalar_ld(bencher: Bencher<'_, '_>) {
    let packet = pack(&[PacketValue::I64(7)]).unwrap();
    bencher.bench_local(|| scalar::<i64>(black_box(&packet)));
}

#[divan::bench]
fn unpack_array_of_1_mib(bencher: Bencher<'_, '_>) {
    let packet = pack(&[vec![7u8; 1 << 20].into()]).unwrap();
    bencher
        .counter(BytesCount::new(packet.len()))
        .bench_local(|| unpack(black_box(&packet)).unwrap());
}
