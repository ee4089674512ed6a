//! What the owner does, without a mount.
use crate::support::Served;
use sheaf_core::Errno;
use sheaf_core::files::FileKind;
use sheaf_mount::{FILES, FileAnswer, NodeMaking, NodeName, NodeOp, ROOT, service};
use sheaf_tree::filter::Registry;
use sheaf_tree::service::Services;
use sheaf_tree::topology::{Names, Placement, Spec, Topology};
use sheaf_tree::{Sync, launch};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::Duration;

fn at(parent: u64, name: &[u8]) -> NodeName {
    NodeName { parent, name: name.to_vec() }
}

#[test]
fn no_name_leads_out_and_none_is_of_two_parts() {
    let served = Served::new();
    fs::create_dir(served.path("d")).unwrap();
    fs::write(served.path("d/f"), "x").unwrap();
    symlink("/etc", served.path("out")).unwrap();
    let mut asker = served.asker(1);
    for (name, errno) in [
        (&b".."[..], Errno::INVAL),
        (b".", Errno::INVAL),
        (b"", Errno::NOENT),
        (b"d/f", Errno::INVAL),
        (b"a\0b", Errno::INVAL),
        (b"none", Errno::NOENT),
        (&[b'n'; 256], Errno::NAMETOOLONG),
    ] {
        assert_eq!(asker.ask(NodeOp::Lookup(at(ROOT, name))), Err(errno), "{name:?}");
        let made = NodeOp::Make {
            at: at(ROOT, name),
            with: NodeMaking { mode: 0o100_644, umask: 0 },
            rdev: 0,
        };
        if errno != Errno::NOENT {
            assert_eq!(asker.ask(made), Err(errno), "{name:?}");
        }
    }
    // A link is a link, and is not gone into.
    let link = asker.node("out").unwrap();
    assert_eq!(link.mode & 0o170_000, 0o120_000);
    assert_eq!(asker.ask(NodeOp::Lookup(at(link.node, b"passwd"))), Err(Errno::NOTDIR));
    let (read, text) = asker.ask_with(NodeOp::ReadLink { node: link.node }, &[]).unwrap();
    assert_eq!((read, &text[..]), (FileAnswer::Bytes, &b"/etc"[..]));
    assert_eq!(asker.ask(NodeOp::Attributes { node: 12345, handle: None }), Err(Errno::STALE));
}

#[test]
fn node_is_one_file_whatever_becomes_of_its_names() {
    let served = Served::new();
    fs::write(served.path("a"), "first").unwrap();
    let mut asker = served.asker(1);
    let node = asker.node("a").unwrap();
    assert_eq!(node.node, fs::metadata(served.path("a")).unwrap().ino());
    fs::rename(served.path("a"), served.path("b")).unwrap();
    fs::write(served.path("a"), "another").unwrap();
    assert_ne!(asker.node("a").unwrap().node, node.node);
    let handle =
        match asker.ask(NodeOp::Open { node: node.node, flags: libc::O_RDWR as u32 }).unwrap() {
            FileAnswer::Opened(handle) => handle,
            other => panic!("{other:?}"),
        };
    fs::remove_file(served.path("b")).unwrap();
    let read = NodeOp::Read { handle, offset: 0, size: 100 };
    assert_eq!(asker.ask_with(read.clone(), &[]).unwrap().1, b"first");
    let wrote = asker.ask_with(NodeOp::Write { handle, offset: 5 }, b" and more").unwrap().0;
    assert_eq!(wrote, FileAnswer::Count(9));
    assert_eq!(asker.ask_with(read.clone(), &[]).unwrap().1, b"first and more");
    // It is gone with the last who has it.
    asker.ask(NodeOp::Release { handle, owner: None }).unwrap();
    assert_eq!(asker.ask_with(read, &[]), Err(Errno::IO));
    asker.ask(NodeOp::Forget(vec![(node.node, 1)])).unwrap();
    assert_eq!(asker.ask(NodeOp::Attributes { node: node.node, handle: None }), Err(Errno::STALE));
}

#[test]
fn more_files_are_known_than_may_be_open() {
    let served = Served::new();
    let count = 9000;
    for number in 0..count {
        fs::write(served.path(&format!("f{number}")), format!("{number}")).unwrap();
    }
    let mut asker = served.asker(1);
    let nodes: Vec<_> = (0..count).map(|n| asker.node(&format!("f{n}")).unwrap()).collect();
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(open() < count, "{}", open());
    for node in &nodes {
        let found = asker.ask(NodeOp::Attributes { node: node.node, handle: None }).unwrap();
        assert_eq!(found, FileAnswer::Node(*node));
    }
    // What is another file under the last name of one that is not open is not that one: it is found by another
    // name, or not at all by a user whom the system does not let do that.
    fs::rename(served.path("f0"), served.path("moved")).unwrap();
    fs::write(served.path("f0"), "another").unwrap();
    for node in &nodes[1..] {
        asker.ask(NodeOp::Attributes { node: node.node, handle: None }).unwrap();
    }
    let node = nodes[0].node;
    let found = asker.ask(NodeOp::Attributes { node, handle: None });
    let is_old =
        matches!(&found, Ok(FileAnswer::Node(found)) if (found.node, found.size) == (node, 1));
    assert!(is_old || found == Err(Errno::STALE), "{found:?}");
    drop(asker);
    assert!(open() < 1000, "{}", open());
}

#[test]
fn long_directory_is_listed_in_pieces_each_name_once() {
    let served = Served::new();
    let expected: BTreeSet<Vec<u8>> = (0..3000)
        .map(|number| format!("name-{number}-{}", "x".repeat(number % 200)).into())
        .collect();
    for name in &expected {
        let name = str::from_utf8(name).unwrap();
        fs::write(served.path(name), "").unwrap();
    }
    let mut asker = served.asker(1);
    for with_attributes in [false, true] {
        let open = NodeOp::Open { node: ROOT, flags: libc::O_DIRECTORY as u32 };
        let FileAnswer::Opened(handle) = asker.ask(open).unwrap() else { panic!() };
        let (mut names, mut offset) = (BTreeSet::new(), 0);
        loop {
            let list = NodeOp::ReadDirectory { handle, offset, size: 4096, with_attributes };
            let FileAnswer::Entries(entries) = asker.ask(list).unwrap() else { panic!() };
            let Some(last) = entries.last() else { break };
            offset = last.next;
            for entry in entries {
                let is_own = matches!(&entry.name[..], b"." | b"..");
                assert_eq!(entry.attributes.is_some(), with_attributes && !is_own);
                assert!(is_own || entry.kind == FileKind::File);
                assert!(is_own || names.insert(entry.name));
            }
        }
        assert_eq!(names, expected);
    }
}

#[test]
fn operations_run_as_the_requesting_user() {
    if !rustix::process::geteuid().is_root() {
        return sheaf_testing::skipped("only root acts for other users");
    }
    let served = Served::new();
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(served.directory.path(), open).unwrap();
    for (name, mode) in [("mine", 0o600), ("all", 0o666), ("group", 0o640)] {
        fs::write(served.path(name), name).unwrap();
        fs::set_permissions(served.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    std::os::unix::fs::chown(served.path("group"), None, Some(4711)).unwrap();
    fs::create_dir(served.path("closed")).unwrap();
    fs::set_permissions(served.path("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(served.path("closed/f"), "x").unwrap();
    let mut asker = served.asker(1);
    (asker.who.uid, asker.who.gid) = (65534, 65534);
    assert_eq!(asker.open("mine", libc::O_RDONLY), Err(Errno::ACCES));
    assert!(asker.open("all", libc::O_RDWR).is_ok());
    assert_eq!(asker.open("group", libc::O_RDONLY), Err(Errno::ACCES));
    asker.who.gids = vec![4711];
    assert!(asker.open("group", libc::O_RDONLY).is_ok());
    assert_eq!(asker.node("closed/f").map(|_| ()), Err(Errno::ACCES));
    let make = NodeOp::Make {
        at: at(ROOT, b"new"),
        with: NodeMaking { mode: 0o100_644, umask: 0 },
        rdev: 0,
    };
    assert_eq!(asker.ask(make.clone()), Err(Errno::ACCES));
    fs::set_permissions(served.directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let FileAnswer::Node(made) = asker.ask(make).unwrap() else { panic!() };
    assert_eq!((made.uid, made.gid, made.mode & 0o777), (65534, 65534, 0o644));
    let masked = NodeOp::Make {
        at: at(ROOT, b"m"),
        with: NodeMaking { mode: 0o100_666, umask: 0o27 },
        rdev: 0,
    };
    let FileAnswer::Node(made) = asker.ask(masked).unwrap() else { panic!() };
    assert_eq!(made.mode & 0o777, 0o640);
    let device = NodeOp::Make {
        at: at(ROOT, b"d"),
        with: NodeMaking { mode: 0o020_644, umask: 0 },
        rdev: 259,
    };
    assert_eq!(asker.ask(device), Err(Errno::PERM));
    // This thread is root again.
    assert!(rustix::process::geteuid().is_root());
    assert!(fs::read(served.path("mine")).is_ok());
}

#[test]
fn unprivileged_owner_refuses_requests_of_other_users() {
    sheaf_testing::as_nobody(|| {
        let served = Served::new();
        fs::write(served.path("f"), "x").unwrap();
        let mut asker = served.asker(1);
        assert!(asker.open("f", libc::O_RDONLY).is_ok());
        for uid in [0, 1, 65533] {
            asker.who.uid = uid;
            assert_eq!(asker.open("f", libc::O_RDONLY), Err(Errno::ACCES), "{uid}");
        }
    });
}

/// The nodes of one process are driven by whoever calls, which may be a thread without a runtime.
#[test]
fn stream_opened_by_a_thread_without_a_runtime_is_served() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let hosts: Names = (1..=2).map(|n| format!("n{n}")).collect();
        let spec = Spec::parse("flat").unwrap();
        let tree = Topology::build(&spec, "root", hosts, Placement::LeafHosts).unwrap();
        let services = Services::new(Registry::with_builtins()).with(FILES, service());
        let network = launch::embedded(&tree, &services, &launch::Options::default());
        let open = || network.open(FILES, network.everyone(), "sum", &[], Sync::WaitForAll);
        let stream = std::thread::scope(|scope| scope.spawn(open).join().unwrap());
        stream.send(1, b"", Some(Duration::from_secs(20))).await;
        let failed = stream.recv().await.coverage.failed;
        // There is no export here, and the service says so: it has not panicked.
        assert_eq!(failed.iter().map(|(errno, _)| *errno).collect::<Vec<_>>(), [Errno::NOSYS]);
    });
}
