//! Changes, against what coreutils do to copies of the same files.
use crate::cp::cluster::{Cluster, SHAPES, run};
use sheaf_core::{Errno, RangeSet};
use sheaf_file::ModeChange;
use sheaf_group::{Outcome, Session};
use sheaf_tools::edit::{Edit, SizeChange, WriteOptions, edit, write};
use sheaf_tools::{Target, ToolError};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

async fn apply(session: &Session, target: Target, change: &Edit) -> (Vec<String>, Outcome) {
    let mut lines = Vec::new();
    let outcome = edit(session, &[target], change, true, &mut |merged| {
        for entry in merged.sorted().iter().filter(|entry| !entry.entry.text.is_empty()) {
            let (path, text) =
                (String::from_utf8_lossy(entry.path), String::from_utf8_lossy(entry.entry.text));
            lines.push(format!("{}:{path}: {text}", entry.leaves));
        }
        Ok(())
    })
    .await
    .unwrap();
    (lines, outcome)
}

fn populate(cluster: &Cluster) {
    for leaf in 0..cluster.hosts {
        for (path, mode) in
            [("d/f", 0o644), ("d/x", 0o755), ("d/sub/g", 0o600), ("d/sub/deep/h", 0o4711), ("top", 0o640)]
        {
            cluster.write(leaf, path, "content");
            std::fs::set_permissions(cluster.path(leaf, path), PermissionsExt::from_mode(mode)).unwrap();
        }
        symlink("../top", cluster.path(leaf, "d/link")).unwrap();
        std::fs::create_dir(cluster.path(leaf, "d/empty")).unwrap();
    }
}

/// Everything beneath a directory: kind and mode, owner, size, and where links lead.
fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let metadata = std::fs::symlink_metadata(&path).unwrap();
            let size = if metadata.is_dir() { 0 } else { metadata.size() };
            let target = std::fs::read_link(&path).unwrap_or_default();
            let (mode, uid, gid, links) = (metadata.mode(), metadata.uid(), metadata.gid(), metadata.nlink());
            let links = if metadata.is_dir() { 0 } else { links };
            let said = format!("{mode:o} {uid}:{gid} {size} {links} {}", target.display());
            all.insert(path.strip_prefix(root).unwrap().display().to_string(), said);
            if metadata.is_dir() {
                dirs.push(path);
            }
        }
    }
    all
}

/// Does a change on three hosts and, with coreutils, on a fourth directory.
fn compare(change: &Edit, path: &str, program: &str, args: &[&str]) {
    let (cluster, copy) = (Cluster::new(3), Cluster::new(1));
    populate(&cluster);
    populate(&copy);
    run(async {
        let session = cluster.session("1x1x60");
        let (_, outcome) = apply(&session, cluster.target(path), change).await;
        let status = Command::new(program).args(args).current_dir(copy.path(0, "")).output().unwrap().status;
        assert_eq!(outcome.is_ok(), status.success(), "{change:?} {outcome:?}");
    });
    for leaf in 0..3 {
        assert_eq!(tree(&cluster.path(leaf, "")), tree(&copy.path(0, "")), "{program} {args:?}");
    }
}

fn chmod(change: &str, recursive: bool) -> Edit {
    Edit::Chmod { change: ModeChange::parse(change, 0o022).unwrap(), recursive }
}

#[test]
fn chmod_does_what_gnu_chmod_does() {
    compare(&chmod("600", false), "d/f", "chmod", &["600", "d/f"]);
    compare(&chmod("u+s,go-r", false), "d/*", "sh", &["-c", "chmod u+s,go-r d/*"]);
    compare(&chmod("g=u,o+X", true), "d", "chmod", &["-R", "g=u,o+X", "d"]);
    compare(&chmod("0750", true), "d/sub", "chmod", &["-R", "0750", "d/sub"]);
    compare(&chmod("a+w", false), "d/link", "chmod", &["a+w", "d/link"]);
    compare(&chmod("a+w", false), "nothing", "chmod", &["a+w", "nothing"]);
}

#[test]
fn chown_does_what_gnu_chown_does() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let chown = |owner: &str, recursive, follow| Edit::Chown { owner: owner.into(), recursive, follow };
    compare(&chown("1234:2345", false, true), "d/f", "chown", &["1234:2345", "d/f"]);
    compare(&chown(":77", true, true), "d", "chown", &["-R", ":77", "d"]);
    compare(&chown("5", false, true), "d/link", "chown", &["5", "d/link"]);
    compare(&chown("5", false, false), "d/link", "chown", &["-h", "5", "d/link"]);
    let cluster = Cluster::new(2);
    populate(&cluster);
    run(async {
        let session = cluster.session("flat");
        let (_, outcome) = apply(&session, cluster.target("/d"), &chown("no-such-user", false, true)).await;
        assert_eq!(
            (outcome.errors[0].errno, outcome.errors[0].members.leaves()),
            (Errno::INVAL, RangeSet::full(2))
        );
    });
}

#[test]
fn truncate_does_what_gnu_truncate_does() {
    let truncate = |size, create| Edit::Truncate { size, create };
    compare(&truncate(SizeChange::To(3), true), "d/f", "truncate", &["-s", "3", "d/f"]);
    compare(&truncate(SizeChange::Grow(5), false), "d/{f,x}", "truncate", &["-c", "-s", "+5", "d/f", "d/x"]);
    compare(&truncate(SizeChange::Shrink(100), true), "d/f", "truncate", &["-s", "-100", "d/f"]);
    compare(&truncate(SizeChange::UpTo(4), true), "top", "truncate", &["-s", "%4", "top"]);
    compare(&truncate(SizeChange::DownTo(4), true), "top", "truncate", &["-s", "/4", "top"]);
    compare(&truncate(SizeChange::AtMost(4), true), "top", "truncate", &["-s", "<4", "top"]);
    compare(&truncate(SizeChange::AtLeast(40), true), "top", "truncate", &["-s", ">40", "top"]);
    compare(&truncate(SizeChange::To(9), true), "made", "truncate", &["-s", "9", "made"]);
    compare(&truncate(SizeChange::To(9), false), "made", "truncate", &["-c", "-s", "9", "made"]);
    compare(&truncate(SizeChange::To(9), true), "d/sub", "truncate", &["-s", "9", "d/sub"]);
}

#[test]
fn rm_does_what_gnu_rm_does() {
    let remove = |recursive, force, empty_dirs| Edit::Remove { recursive, force, empty_dirs };
    compare(&remove(false, false, false), "d/f", "rm", &["d/f"]);
    compare(&remove(false, false, false), "d/link", "rm", &["d/link"]);
    compare(&remove(false, false, false), "d/sub", "rm", &["d/sub"]);
    compare(&remove(false, false, false), "none", "rm", &["none"]);
    compare(&remove(false, true, false), "none", "rm", &["-f", "none"]);
    compare(&remove(false, true, false), "none*", "sh", &["-c", "rm -f none*"]);
    compare(&remove(false, false, true), "d/empty", "rm", &["-d", "d/empty"]);
    compare(&remove(false, false, true), "d/sub", "rm", &["-d", "d/sub"]);
    compare(&remove(true, false, false), "d/sub", "rm", &["-r", "d/sub"]);
    compare(&remove(true, true, false), "d/*", "sh", &["-c", "rm -rf d/*"]);
}

#[test]
fn everything_a_host_serves_is_not_removed() {
    let cluster = Cluster::new(2);
    populate(&cluster);
    run(async {
        let session = cluster.session("flat");
        let remove = Edit::Remove { recursive: true, force: true, empty_dirs: false };
        for path in ["/", ".", "..", "//./.."] {
            let refused = edit(&session, &[cluster.target(path)], &remove, false, &mut |_| Ok(())).await;
            assert!(matches!(refused, Err(ToolError::Usage(_))), "{path}");
        }
        // A name on the way does not help.
        let (_, outcome) = apply(&session, cluster.target("/d/.."), &remove).await;
        assert_eq!(outcome.errors[0].errno, Errno::INVAL);
        assert!(cluster.path(0, "d/f").exists());
    });
}

#[test]
fn mkdir_does_what_gnu_mkdir_does() {
    let mkdir = |parents, mode: Option<&str>| Edit::Mkdir {
        parents,
        mode: mode.map(|mode| ModeChange::parse(mode, 0o022).unwrap()),
    };
    compare(&mkdir(false, None), "new", "mkdir", &["new"]);
    compare(&mkdir(false, None), "d", "mkdir", &["d"]);
    compare(&mkdir(false, None), "a/b/c", "mkdir", &["a/b/c"]);
    compare(&mkdir(true, None), "a/b/c", "mkdir", &["-p", "a/b/c"]);
    compare(&mkdir(true, None), "d/sub", "mkdir", &["-p", "d/sub"]);
    compare(&mkdir(false, Some("1777")), "new", "mkdir", &["-m", "1777", "new"]);
    compare(&mkdir(true, Some("go-rx")), "a/b", "mkdir", &["-p", "-m", "go-rx", "a/b"]);
    compare(&mkdir(false, None), "d/*/new", "sh", &["-c", "for dir in d/*/; do mkdir $dir/new; done"]);
}

#[test]
fn ln_does_what_gnu_ln_does() {
    let link = |target: &str, symbolic, force, no_dereference| Edit::Link {
        target: target.into(),
        symbolic,
        force,
        no_dereference,
    };
    compare(&link("d/f", true, false, false), "new", "ln", &["-s", "d/f", "new"]);
    compare(&link("d/f", false, false, false), "new", "ln", &["d/f", "new"]);
    compare(&link("d/f", true, false, false), "top", "ln", &["-s", "d/f", "top"]);
    compare(&link("d/f", true, true, false), "top", "ln", &["-sf", "d/f", "top"]);
    compare(&link("d/f", false, true, false), "top", "ln", &["-f", "d/f", "top"]);
    compare(&link("../top", true, false, false), "d/sub", "ln", &["-s", "../top", "d/sub"]);
    compare(&link("sub", true, true, true), "d/link", "ln", &["-sfn", "sub", "d/link"]);
    compare(&link("d/sub", false, false, false), "new", "ln", &["d/sub", "new"]);
    let cluster = Cluster::new(1);
    populate(&cluster);
    std::fs::hard_link(cluster.path(0, "d/f"), cluster.path(0, "d/same")).unwrap();
    run(async {
        let session = cluster.session("flat");
        let (_, outcome) = apply(&session, cluster.target("d/same"), &link("d/f", false, true, false)).await;
        assert!(outcome.is_ok());
        assert_eq!(std::fs::read_dir(cluster.path(0, "d")).unwrap().count(), 6);
    });
}

#[test]
fn what_was_done_and_what_failed_folds() {
    for shape in SHAPES {
        let cluster = Cluster::new(30);
        populate(&cluster);
        std::fs::remove_file(cluster.path(4, "d/f")).unwrap();
        std::fs::set_permissions(cluster.path(9, "d/f"), PermissionsExt::from_mode(0o600)).unwrap();
        run(async {
            let session = cluster.session(shape);
            let (lines, outcome) = apply(&session, cluster.target("/d/f"), &chmod("600", false)).await;
            assert_eq!(
                lines,
                [
                    "0-3,5-8,10-29:/d/f: mode changed from 0644 (rw-r--r--) to 0600 (rw-------)",
                    "9:/d/f: mode retained as 0600 (rw-------)",
                ]
            );
            let error = &outcome.errors[0];
            assert_eq!((error.errno, error.members.leaves().to_string()), (Errno::NOENT, "4".into()));
            assert_eq!((outcome.status.count, outcome.member_count()), (29, 30));
        });
    }
}

async fn put(session: &Session, target: Target, options: &WriteOptions, data: Vec<u8>) -> (u64, Outcome) {
    let written = write(session, &[target], options, Box::new(Cursor::new(data))).await.unwrap();
    (written.bytes, written.outcome)
}

#[test]
fn bytes_of_any_size_reach_every_file() {
    let cluster = Cluster::new(7);
    populate(&cluster);
    let data = |size: usize| (0..size).map(|n| (n * 7 / 3) as u8).collect::<Vec<u8>>();
    run(async {
        let session = cluster.session("k-ary:2");
        let create = WriteOptions { create: true, truncate: true, mode: 0o640, ..WriteOptions::default() };
        for size in [0, 1, 1 << 20, (1 << 20) + 1, 3_500_000] {
            let (bytes, outcome) = put(&session, cluster.target("/new"), &create, data(size)).await;
            assert_eq!((bytes, outcome.is_ok(), outcome.status.count), (size as u64, true, 7));
            assert!((0..7).all(|leaf| cluster.read(leaf, "new") == data(size)), "{size}");
        }
        assert_eq!(std::fs::metadata(cluster.path(3, "new")).unwrap().mode() & 0o777, 0o640);
        let append = WriteOptions { append: true, ..WriteOptions::default() };
        put(&session, cluster.target("/top"), &append, b" more".to_vec()).await;
        let offset = WriteOptions { offset: Some(2), ..WriteOptions::default() };
        put(&session, cluster.target("/top"), &offset, b"NN".to_vec()).await;
        put(&session, cluster.target("/top"), &WriteOptions::default(), b"C".to_vec()).await;
        assert!((0..7).all(|leaf| cluster.read(leaf, "top") == b"CoNNent more"));
        let long = WriteOptions { offset: Some(1), ..WriteOptions::default() };
        put(&session, cluster.target("/top"), &long, data(2_000_000)).await;
        assert!((0..7).all(|leaf| cluster.read(leaf, "top")[1..] == data(2_000_000)));
    });
}

#[test]
fn a_file_that_is_not_there_fails_by_itself() {
    let cluster = Cluster::new(6);
    populate(&cluster);
    std::fs::remove_file(cluster.path(2, "top")).unwrap();
    for size in [4, 2_500_000] {
        run(async {
            let session = cluster.session("flat");
            let (_, outcome) =
                put(&session, cluster.target("/top"), &WriteOptions::default(), vec![b'z'; size]).await;
            let error = &outcome.errors[0];
            assert_eq!((error.errno, error.members.leaves().to_string()), (Errno::NOENT, "2".into()));
            assert_eq!((outcome.status.count, outcome.member_count()), (5, 6));
            assert!(cluster.read(5, "top").starts_with(b"zzzz"));
            let nothing =
                put(&session, cluster.target("/q*"), &WriteOptions::default(), vec![b'z'; size]).await.1;
            assert_eq!((nothing.errors[0].errno, nothing.status.count), (Errno::NOENT, 0));
        });
    }
}

#[test]
fn exclusive_writes_happen_everywhere_or_nowhere() {
    let cluster = Cluster::new(6);
    cluster.write(4, "lock", "held");
    run(async {
        let session = cluster.session("k-ary:2");
        let exclusive = WriteOptions { exclusive: true, mode: 0o600, ..WriteOptions::default() };
        let halves = [(0, 3), (3, 6)].map(|(start, end)| Target {
            members: RangeSet::from_range(start, end),
            path: "/lock".to_owned(),
        });
        for targets in [&[cluster.target("/lock")][..], &halves] {
            let source = Box::new(Cursor::new(b"mine".to_vec()));
            let written = write(&session, targets, &exclusive, source).await.unwrap();
            assert_eq!((written.outcome.errors[0].errno, written.outcome.status.count), (Errno::EXIST, 0));
            let there: Vec<u32> = (0..6).filter(|leaf| cluster.path(*leaf, "lock").exists()).collect();
            assert_eq!(there, [4]);
        }
        let (_, outcome) = put(&session, halves[0].clone(), &exclusive, b"mine".to_vec()).await;
        assert_eq!(
            (outcome.is_ok(), outcome.status.count, cluster.read(1, "lock")),
            (true, 3, b"mine".to_vec())
        );
    });
}
