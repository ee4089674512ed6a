//! Integration tests: a program in C against the header and the shared library.
use sheaf_testing::Workshop;
use sheaf_testing::program::succeeds;
use std::path::Path;
use std::process::Command;

#[path = "../../../../fuzz/seeds.rs"]
mod seeds;

#[test]
fn the_seeds_of_fuzz_targets_pass() {
    seeds::pass(libsheaf::fuzzing::TARGETS);
}

/// Nothing says where the inner nodes' program is: the library finds it beside itself.
#[test]
fn front_and_back_ends_need_this_library_alone() {
    let built = Path::new(env!("CARGO_BIN_EXE_sheaf-node")).parent().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let Some(shop) = Workshop::open(sources, built) else { return };
    let front = shop.compile("front.c", "c99", &[]);
    let back = shop.compile("back.c", "c99", &[]);
    let printed = succeeds(Command::new(&front).arg(shop.topology(&[2, 2])).arg(&back));
    assert_eq!(printed, "10 waves of 4 back ends\n");
}

#[test]
fn the_program_of_inner_nodes_says_who_starts_it() {
    let output = Command::new(env!("CARGO_BIN_EXE_sheaf-node")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "sheaf-node: is started by the node above it, not by hand\n");
}
