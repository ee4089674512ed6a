//! Integration tests.
mod arrows;
mod filters;
#[path = "../../../sheaf-proto/tests/it/oracle.rs"]
#[allow(dead_code)]
mod oracle;
#[path = "../../../../fuzz/seeds.rs"]
mod seeds;
mod services;

#[test]
fn seeds_of_fuzz_targets_pass() {
    seeds::pass(sheaf_tree::fuzzing::TARGETS);
}
