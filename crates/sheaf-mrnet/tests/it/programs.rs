//! Each test is a front end and a back end in C++ (`tests/cpp`), run as real processes.
use crate::tools::{front, workshop};
use sheaf_testing::program::succeeds;
use std::process::Command;

/// Compiles `NAME_fe.cpp` and runs it with back ends that send back what they get.
fn with_echo(name: &str, levels: &[usize]) {
    let Some(shop) = workshop() else { return };
    let fe = shop.compile(&format!("{name}_fe.cpp"), "c++17", &[]);
    let be = shop.compile("echo_be.cpp", "c++11", &[]);
    succeeds(front(&fe).arg(shop.topology(levels)).arg(be).arg(shop.path("")));
}

/// The values of packets are read in C, by the headers; here with checks of every access.
#[test]
fn forged_packets_are_read_within_their_bytes() {
    let Some(shop) = workshop() else { return };
    let checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    succeeds(&mut Command::new(shop.compile("forged.cpp", "c++17", &checks)));
}

#[test]
fn every_type_comes_back() {
    with_echo("types", &[2, 2]);
}

#[test]
fn built_in_filters_combine_every_type() {
    with_echo("builtin", &[2, 3]);
}

#[test]
fn streams_are_independent() {
    with_echo("streams", &[2, 2]);
}

#[test]
fn topology_and_events_are_reported() {
    with_echo("events", &[2, 2]);
}

/// Compiles a pair `NAME_fe.cpp`, `NAME_be.cpp` and runs it on a tree; gives what it printed.
fn pair(name: &str, levels: &[usize]) -> Option<String> {
    let shop = workshop()?;
    let mut printed = String::new();
    for standard in ["c++11", "c++17"] {
        let fe = shop.compile(&format!("{name}_fe.cpp"), standard, &[]);
        let be = shop.compile(&format!("{name}_be.cpp"), standard, &[]);
        printed = succeeds(front(&fe).arg(shop.topology(levels)).arg(be));
    }
    Some(printed)
}

#[test]
fn integers_are_added() {
    if let Some(printed) = pair("sum", &[4, 4]) {
        assert_eq!(printed, "sums of 16 back ends\n");
    }
}

#[test]
fn nothing_stays_behind_when_back_ends_leave() {
    let Some(shop) = workshop() else { return };
    let fe = shop.compile("last_fe.cpp", "c++11", &[]);
    let be = shop.compile("last_be.cpp", "c++11", &[]);
    for levels in [&[3][..], &[2, 2]] {
        succeeds(front(&fe).arg(shop.topology(levels)).arg(&be));
    }
}

#[test]
fn back_end_may_be_in_c() {
    let Some(shop) = workshop() else { return };
    let fe = shop.compile("sum_fe.cpp", "c++11", &[]);
    let be = shop.compile("light_be.c", "gnu99", &[]);
    succeeds(front(&fe).arg(shop.topology(&[2, 2])).arg(be));
}

#[test]
fn threads_attach_themselves_as_back_ends() {
    let Some(shop) = workshop() else { return };
    for levels in [&[2][..], &[1, 2]] {
        let fe = shop.compile("attach_fe.cpp", "c++17", &[]);
        let be = shop.compile("attach_be.cpp", "c++11", &[]);
        let so = shop.compile("filters_so.cpp", "c++11", &["-shared", "-fPIC"]);
        succeeds(front(&fe).arg(shop.topology(levels)).args([&be, &so]));
    }
}

#[test]
fn filters_of_the_user_run_in_the_tree() {
    let Some(shop) = workshop() else { return };
    let so = shop.compile("filters_so.cpp", "c++11", &["-shared", "-fPIC"]);
    let fe = shop.compile("filters_fe.cpp", "c++17", &[]);
    let be = shop.compile("filters_be.cpp", "c++11", &[]);
    let printed = succeeds(front(&fe).arg(shop.topology(&[2, 2])).args([&be, &so]));
    assert_eq!(printed, "(0/2 x (2/2 x x))\n");
}

#[test]
fn filter_that_cannot_be_loaded_is_an_error_of_recv() {
    let Some(shop) = workshop() else { return };
    let so = shop.compile("unloadable_so.cpp", "c++11", &["-shared", "-fPIC"]);
    let fe = shop.compile("unloadable_fe.cpp", "c++17", &["-rdynamic"]);
    let be = shop.compile("echo_be.cpp", "c++11", &[]);
    succeeds(front(&fe).arg(shop.topology(&[2, 2])).args([&be, &so]));
}

#[test]
fn performance_data_is_what_was_sent() {
    with_echo("perf", &[2, 2]);
}

/// Runs `NAME_fe.cpp` with echoing back ends and the shared object of filters.
fn with_filters(name: &str, levels: &[usize]) {
    let Some(shop) = workshop() else { return };
    let so = shop.compile("filters_so.cpp", "c++11", &["-shared", "-fPIC"]);
    let fe = shop.compile(&format!("{name}_fe.cpp"), "c++17", &[]);
    let be = shop.compile("echo_be.cpp", "c++11", &[]);
    succeeds(front(&fe).arg(shop.topology(levels)).args([&be, &so]));
}

#[test]
fn filters_run_on_the_way_down() {
    with_filters("down", &[2, 2]);
}

#[test]
fn stream_that_changes_loses_nothing() {
    with_filters("change", &[2, 2]);
}

#[test]
fn filter_s_state_goes_to_the_adopter() {
    with_filters("state", &[1, 2, 2]);
}
