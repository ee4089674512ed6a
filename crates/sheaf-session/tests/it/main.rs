//! Sessions as a program without a command line has them.
mod door;
#[path = "../../../../fuzz/seeds.rs"]
mod seeds;
mod surroundings;

#[test]
fn seeds_of_fuzz_targets_pass() {
    seeds::pass(sheaf_session::fuzzing::TARGETS);
}
