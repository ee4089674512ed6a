//! Each test is a front end and a back end in C++ (`tests/cpp`), run as real processes.
use crate::tools::{Workshop, front, succeeds};

/// Compiles a pair `NAME_fe.cpp`, `NAME_be.cpp` and runs it on a tree; gives what it printed.
fn pair(name: &str, levels: &[usize]) -> Option<String> {
    let shop = Workshop::open()?;
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
fn filters_of_the_user_run_in_the_tree() {
    let Some(shop) = Workshop::open() else { return };
    let so = shop.compile("filters_so.cpp", "c++11", &["-shared", "-fPIC"]);
    let fe = shop.compile("filters_fe.cpp", "c++17", &[]);
    let be = shop.compile("filters_be.cpp", "c++11", &[]);
    let printed = succeeds(front(&fe).arg(shop.topology(&[2, 2])).args([&be, &so]));
    assert_eq!(printed, "(0/2 x (2/2 x x))\n");
}
