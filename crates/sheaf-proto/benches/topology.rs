//! What a tree of a million leaves costs to plan and to hand out.
//!
//! `cargo bench -p sheaf-tree --bench topology`.
use divan::{Bencher, black_box};
use sheaf_proto::topology::{Names, Page, Placement, Spec, Topology};

const LEAVES: u32 = 1 << 20;

fn main() {
    divan::main();
}

fn hosts() -> Names {
    (0..LEAVES).map(|at| format!("n{at:07}")).collect()
}

fn tree() -> Topology {
    Topology::build(&Spec::KAry(32), "login", hosts(), Placement::LeafHosts).unwrap()
}

#[divan::bench]
fn names_of_a_million() -> Names {
    hosts()
}

#[divan::bench(args = ["auto", "k-ary:32", "k-nomial:2"])]
fn build_a_million(bencher: Bencher<'_, '_>, spec: &str) {
    let (spec, hosts) = (Spec::parse(spec).unwrap(), hosts());
    bencher.bench_local(|| {
        Topology::build(&spec, "login", hosts.clone(), Placement::LeafHosts).unwrap()
    });
}

#[divan::bench]
fn subtree_of_32768_encoded(bencher: Bencher<'_, '_>) {
    let tree = tree();
    bencher.bench_local(|| {
        let mut wire = Vec::new();
        black_box(&tree).subtree(7).unwrap().encode(&mut wire);
        wire
    });
}

#[divan::bench]
fn draw_a_million(bencher: Bencher<'_, '_>) {
    let tree = tree();
    bencher.bench_local(|| black_box(&tree).draw(Page::default()));
}
