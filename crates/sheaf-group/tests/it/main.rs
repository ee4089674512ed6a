//! Groups and tools on whole trees, against the loop that a program without them would write.
mod cluster;
mod concurrent;
mod group;
mod kernel;
mod lines;
mod loss;
mod numbers;
mod observer;
mod once;
mod opening;
mod oracle;
mod rights;
#[path = "../../../../fuzz/seeds.rs"]
mod seeds;
mod session;
mod shares;
mod silence;
mod tools;

#[test]
fn seeds_of_fuzz_targets_pass() {
    seeds::pass(sheaf_group::fuzzing::TARGETS);
}
