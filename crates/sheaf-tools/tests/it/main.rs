//! Integration tests.
mod check;
mod cp;
mod edit;
mod garbled;
mod gnu_grep;
mod long_grep;
mod long_paths;
mod members;
mod merge;
mod print;
mod read;
mod report;
mod same_file;
#[path = "../../../../fuzz/seeds.rs"]
mod seeds;
mod silence;
mod swapped;
mod target;

#[test]
fn seeds_of_fuzz_targets_pass() {
    seeds::pass(sheaf_tools::fuzzing::TARGETS);
}
