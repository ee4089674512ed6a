//! What the owner does, without a mount.
use crate::support::Served;
use rustix::fs::{CWD, FileType, OFlags};
use sheaf_core::Errno;
use sheaf_core::files::FileKind;
use sheaf_mount::{
    FILES, FileAnswer, FileClient, NodeMaking, NodeName, NodeOp, ROOT, ViewAudit, service,
};
use sheaf_tree::filter::Registry;
use sheaf_tree::service::{ClientRights, Services};
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
    let wrote =
        asker.ask_with(NodeOp::Write { handle, offset: 5, flags: 0 }, b" and more").unwrap().0;
    assert_eq!(wrote, FileAnswer::Count(9));
    assert_eq!(asker.ask_with(read.clone(), &[]).unwrap().1, b"first and more");
    // It is gone with the last who has it.
    asker.ask(NodeOp::Release { node: ROOT, handle, owner: None }).unwrap();
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

/// A kernel has a file made where it found none. What is there by then is opened, if it is a file; what is not one
/// the kernel looks up again.
#[test]
fn create_opens_a_file_made_meanwhile_and_nothing_else() {
    let served = Served::new();
    let path = |name: &str| served.path(name);
    fs::write(path("file"), "x").unwrap();
    fs::create_dir(path("directory")).unwrap();
    symlink("file", path("link")).unwrap();
    symlink("none", path("dangling")).unwrap();
    rustix::fs::mknodat(CWD, path("pipe"), FileType::Fifo, 0o600.into(), 0).unwrap();
    let mut asker = served.asker(1);
    let mut create = |name: &str, flags: i32| {
        let with = NodeMaking { mode: 0o100_444, umask: 0 };
        let flags = (libc::O_CREAT | flags).cast_unsigned();
        asker.ask(NodeOp::Create { at: at(ROOT, name.as_bytes()), with, flags })
    };
    for flags in [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR | libc::O_NONBLOCK] {
        for (name, errno) in [
            ("directory", Errno::STALE),
            ("link", Errno::STALE),
            ("dangling", Errno::STALE),
            ("pipe", Errno::STALE),
        ] {
            assert_eq!(create(name, flags), Err(errno), "{name}");
            assert_eq!(create(name, flags | libc::O_EXCL), Err(Errno::EXIST), "{name}");
        }
        assert!(matches!(create("file", flags), Ok(FileAnswer::Created(..))));
        assert_eq!(create("file", flags | libc::O_EXCL), Err(Errno::EXIST));
        let FileAnswer::Created(made, _) = create("new", flags).unwrap() else { panic!() };
        assert_eq!(made.mode & 0o777, 0o444);
        fs::remove_file(path("new")).unwrap();
    }
    assert_eq!(fs::read(path("file")).unwrap(), b"x");
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
    // To run a file takes another right than to read it.
    const TO_RUN: i32 = 0x20;
    for (name, mode, may_run) in [("x", 0o711, true), ("r", 0o744, false), ("g", 0o654, false)] {
        fs::write(served.path(name), name).unwrap();
        fs::set_permissions(served.path(name), fs::Permissions::from_mode(mode)).unwrap();
        let opened = asker.open(name, libc::O_RDONLY | TO_RUN).map(|_| ());
        assert_eq!(opened, if may_run { Ok(()) } else { Err(Errno::ACCES) }, "{mode:o}");
        // No kernel writes to what it runs; another host may say so.
        for writes in [libc::O_WRONLY, libc::O_RDWR, libc::O_TRUNC] {
            let opened = asker.open(name, writes | TO_RUN).map(|_| ());
            assert_eq!(opened, Err(Errno::ACCES), "{mode:o} {writes:o}");
        }
        assert_eq!(fs::read_to_string(served.path(name)).unwrap(), name);
    }
    fs::create_dir(served.path("way")).unwrap();
    fs::set_permissions(served.path("way"), fs::Permissions::from_mode(0o711)).unwrap();
    let listed = asker.open("way", libc::O_RDONLY | libc::O_DIRECTORY | TO_RUN).map(|_| ());
    assert_eq!(listed, Err(Errno::ACCES));
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
        let services =
            Services::new(Registry::with_builtins()).with(FILES, service(ViewAudit::default()));
        let network = launch::embedded(&tree, &services, &launch::Options::default());
        let open = || network.open(FILES, network.everyone(), "sum", &[], Sync::WaitForAll);
        let stream = std::thread::scope(|scope| scope.spawn(open).join().unwrap());
        stream.send(1, b"", Some(Duration::from_secs(20))).await;
        let failed = stream.recv().await.coverage.failed;
        // There is no export here, and the service says so: it has not panicked.
        assert_eq!(failed.iter().map(|(errno, _)| *errno).collect::<Vec<_>>(), [Errno::NOSYS]);
    });
}

#[test]
fn host_that_may_read_changes_nothing() {
    let served = Served::new();
    fs::write(served.path("f"), "kept").unwrap();
    let rights = ClientRights { may_write: false, may_be_root: true };
    let mut asker = served.asker_with(1, rights);
    let node = asker.node("f").unwrap().node;
    let handle = asker.open("f", 0).unwrap();
    let (_, read) = asker.ask_with(NodeOp::Read { handle, offset: 0, size: 9 }, &[]).unwrap();
    assert_eq!(read, b"kept");
    for flags in [OFlags::WRONLY, OFlags::RDWR, OFlags::TRUNC, OFlags::CREATE] {
        assert_eq!(asker.open("f", flags.bits().cast_signed()), Err(Errno::ROFS), "{flags:?}");
    }
    let with = NodeMaking { mode: 0o100_644, umask: 0 };
    for op in [
        NodeOp::Write { handle, offset: 0, flags: 0 },
        NodeOp::Make { at: at(ROOT, b"new"), with, rdev: 0 },
        NodeOp::Create { at: at(ROOT, b"new"), with, flags: 0 },
        NodeOp::Symlink { at: at(ROOT, b"new"), target: b"f".to_vec() },
        NodeOp::Link { node, to: at(ROOT, b"new") },
        NodeOp::Rename { from: at(ROOT, b"f"), to: at(ROOT, b"new"), flags: 0 },
        NodeOp::Remove { at: at(ROOT, b"f"), is_directory: false },
        NodeOp::SetAttributes { node, handle: None, set: Default::default() },
        NodeOp::Allocate { handle, mode: 0, offset: 0, length: 9 },
        NodeOp::RemoveXattr { node, name: b"user.a".to_vec() },
    ] {
        let said = asker.ask_with(op.clone(), b"lost").map(drop);
        assert_eq!(said, Err(Errno::ROFS), "{op:?}");
    }
    assert_eq!(fs::read(served.path("f")).unwrap(), b"kept");
    assert_eq!(fs::read_dir(served.path("")).unwrap().count(), 1);
}

#[test]
fn root_of_a_host_without_the_right_is_nobody_here() {
    if !rustix::process::geteuid().is_root() {
        return sheaf_testing::skipped("other users need root");
    }
    let served = Served::new();
    for (name, mode) in [("secret", 0o600), ("public", 0o644)] {
        fs::write(served.path(name), "x").unwrap();
        fs::set_permissions(served.path(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    for path in ["", "new"] {
        fs::create_dir_all(served.path(path)).unwrap();
        fs::set_permissions(served.path(path), PermissionsExt::from_mode(0o777)).unwrap();
    }
    let limited = ClientRights { may_write: true, may_be_root: false };
    let mut asker = served.asker_with(1, limited);
    assert_eq!(asker.open("secret", 0), Err(Errno::ACCES));
    assert!(asker.open("public", 0).is_ok());
    let parent = asker.node("new").unwrap().node;
    let with = NodeMaking { mode: 0o100_644, umask: 0 };
    asker.ask(NodeOp::Make { at: at(parent, b"f"), with, rdev: 0 }).unwrap();
    let made = fs::metadata(served.path("new/f")).unwrap();
    assert_eq!((made.uid(), made.gid()), (65_534, 65_534));
    // A view of one directory does not lead past one that nobody may not enter.
    fs::create_dir_all(served.path("closed/open")).unwrap();
    fs::set_permissions(served.path("closed"), PermissionsExt::from_mode(0o700)).unwrap();
    let top = |number, top: &str| {
        NodeOp::Join(FileClient { number, top: top.into(), ..FileClient::default() })
    };
    assert_eq!(asker.ask(top(7, "closed/open")), Err(Errno::ACCES));
    assert!(asker.ask(top(8, "new")).is_ok());
    assert!(served.asker(9).ask(top(10, "closed/open")).is_ok());
    asker = served.asker_with(1, limited);
    // Root's group is not given to other users either.
    asker.who.uid = 1001;
    asker.who.gids = vec![0];
    fs::set_permissions(served.path("secret"), PermissionsExt::from_mode(0o640)).unwrap();
    assert_eq!(asker.open("secret", 0), Err(Errno::ACCES));
    let mut full = served.asker(2);
    assert!(full.open("secret", 0).is_ok());
}
