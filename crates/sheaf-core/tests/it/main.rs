//! Integration tests.
mod hostset;
#[path = "../../../../fuzz/seeds.rs"]
mod seeds;

#[test]
fn seeds_of_fuzz_targets_pass() {
    seeds::pass(sheaf_core::fuzzing::TARGETS);
}
