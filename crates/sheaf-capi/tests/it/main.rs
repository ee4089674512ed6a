//! Integration tests: C and C++ programs against the headers and the shared library.
mod hosts;
mod install;
mod programs;
#[path = "../../../../fuzz/seeds.rs"]
mod seeds;
mod tools;

#[test]
fn the_seeds_of_fuzz_targets_pass() {
    seeds::pass(sheaf_capi::fuzzing::TARGETS);
}
