//! Integration tests: a program in C against the header and the shared library.
use libsheaf::back::Back;
use libsheaf::event::{CLASS_ERROR, error::SYSTEM};
use libsheaf::front::{Create, Front};
use libsheaf::plan::GUESTS_MAX;
use sheaf_testing::Workshop;
use sheaf_testing::program::succeeds;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

#[path = "../../../../fuzz/seeds.rs"]
mod seeds;

#[test]
fn seeds_of_fuzz_targets_pass() {
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

/// A front end with one node, to which back ends attach themselves.
fn front_of_one_node() -> std::sync::Arc<Front> {
    let create = Create {
        topology: "localhost:0 => localhost:1 ;".to_owned(),
        back_end: None,
        args: Vec::new(),
        inner: env!("CARGO_BIN_EXE_sheaf-node").into(),
        remote_shell: Vec::new(),
        startup_timeout: Duration::from_secs(60),
    };
    Front::create(&create).unwrap()
}

/// A node takes so many back ends in the life of a session.
#[test]
fn back_ends_that_are_not_let_in_are_told_why() {
    let front = front_of_one_node();
    let port = front.plan().place(1).unwrap().port.to_string();
    let attach = |host: &str, rank: u32| {
        let back = Back::attach(&["localhost", &port, "1", host, &rank.to_string()]);
        back.map_err(|error| error.message)
    };
    let refused = |host: &str, rank: u32, why: &str| {
        let told = format!("the node at port {port} does not take rank {rank}: {why}");
        assert_eq!(attach(host, rank).err(), Some(told));
    };
    refused("localhost", 0, "the tree has a node of that rank, on localhost");
    refused(&"h".repeat(201), 100, "a host's name of 201 bytes is longer than 200");
    let first = attach("localhost", 100).unwrap();
    refused("localhost", 100, "a back end of that rank is here");
    for rank in 101..100 + GUESTS_MAX {
        drop(attach("localhost", rank).unwrap());
    }
    let full = "it has had 128 back ends, as many as a node takes in the life of a session, those \
                that have left among them (here now: 1)";
    // It is seen a moment later that the last one has left.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !attach("localhost", 300).is_err_and(|told| told.ends_with(full)) {
        assert!(Instant::now() < deadline, "{:?}", attach("localhost", 300).err());
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(first);
    front.shut_down();
}

/// A node without descriptors says so to the front end, and lets in who waits once it has some.
#[test]
fn node_that_can_let_no_back_ends_in_is_named() {
    let front = front_of_one_node();
    let port = front.plan().place(1).unwrap().port;
    let node = listener_at(port);
    let limit = |soft: u64| {
        let limit = format!("--nofile={soft}:");
        succeeds(Command::new("prlimit").args(["--pid", &node.to_string(), &limit]));
    };
    // It has more than so few.
    limit(3);
    let waiting = std::thread::spawn(move || {
        Back::attach(&["localhost", &port.to_string(), "1", "localhost", "100"]).is_ok()
    });
    let told = "no back end can attach itself at node 1: Too many open files (os error 24)";
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let event = front.events.next();
        if let Some(event) = event.filter(|event| event.class == CLASS_ERROR) {
            assert_eq!((event.text.as_str(), event.kind, event.rank), (told, SYSTEM, 1));
            break;
        }
        assert!(Instant::now() < deadline && !waiting.is_finished());
        std::thread::sleep(Duration::from_millis(10));
    }
    limit(1024);
    assert!(waiting.join().unwrap());
    front.shut_down();
}

/// The process that listens for back ends at `port`.
fn listener_at(port: u16) -> i32 {
    use std::os::linux::net::SocketAddrExt;
    let uid = rustix::process::geteuid().as_raw();
    let name = format!("sheaf-attach-{uid}-{port}");
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    let socket = std::os::unix::net::UnixStream::connect_addr(&address).unwrap();
    sheaf_tree::link::peer::socket_owner(&socket).unwrap().pid.unwrap().as_raw_pid()
}

#[test]
fn program_of_inner_nodes_says_who_starts_it() {
    let output = Command::new(env!("CARGO_BIN_EXE_sheaf-node")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "sheaf-node: is started by the node above it, not by hand\n");
}
