//! Integration tests.
mod ahead;
mod apart;
mod flow;
mod machines;
mod near;
mod oracle;
mod order;
mod recovery;
mod runs;
#[path = "../../../../fuzz/seeds.rs"]
mod seeds;
mod sim;
mod stateful;
mod taps;
mod waves;

#[test]
fn seeds_of_fuzz_targets_pass() {
    seeds::pass(sheaf_proto::fuzzing::TARGETS);
}
