//! Changes, against what coreutils do to copies of the same files.
use crate::cp::cluster::{Cluster, SHAPES, run};
use sheaf_core::{Errno, RangeSet};
use sheaf_file::ModeChange;
use sheaf_group::{Client, Outcome};
use sheaf_tools::edit::{
    Edit, EditOptions, Edited, NewMode, NewOwner, SizeChange, WriteOptions, WriteWay, edit, write,
};
use sheaf_tools::entry::{EntryKind, Merged};
use sheaf_tools::{Target, ToolError};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

const VERBOSE: EditOptions = EditOptions { verbose: true, dry_run: false };
const DRY: EditOptions = EditOptions { verbose: false, dry_run: true };

async fn apply(client: &Client, target: Target, change: &Edit) -> (Vec<String>, Outcome) {
    let (lines, edited) = apply_with(client, &[target], change, VERBOSE).await;
    (lines, edited.outcome)
}

async fn apply_with(
    client: &Client,
    targets: &[Target],
    change: &Edit,
    options: EditOptions,
) -> (Vec<String>, Edited) {
    let mut lines = Vec::new();
    let edited = edit(client, targets, change, options, &mut |merged| {
        lines.extend(told(merged));
        Ok(())
    })
    .await;
    (lines, edited.unwrap())
}

/// What was said, and by whom.
fn told(merged: &Merged) -> Vec<String> {
    let entries = merged.sorted().into_iter().filter(|entry| entry.entry.kind == EntryKind::Line);
    entries
        .map(|entry| {
            let (path, text) =
                (String::from_utf8_lossy(entry.path), String::from_utf8_lossy(entry.entry.text));
            format!("{}:{path}: {text}", entry.leaves)
        })
        .collect()
}

/// Who failed, of each path.
fn failures(outcome: &Outcome) -> Vec<String> {
    let name = |errno: Errno| errno.name().unwrap_or_default();
    let errors = outcome.errors.iter();
    errors
        .map(|error| format!("{}: {} {}", error.path, name(error.errno), error.members.leaves()))
        .collect()
}

fn populate(cluster: &Cluster) {
    for leaf in 0..cluster.hosts {
        for (path, mode) in [
            ("d/f", 0o644),
            ("d/x", 0o755),
            ("d/sub/g", 0o600),
            ("d/sub/deep/h", 0o4711),
            ("top", 0o640),
        ] {
            cluster.write(leaf, path, "content");
            std::fs::set_permissions(cluster.path(leaf, path), PermissionsExt::from_mode(mode))
                .unwrap();
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
            let (mode, uid, gid, links) =
                (metadata.mode(), metadata.uid(), metadata.gid(), metadata.nlink());
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
        let client = cluster.client("1x1x60");
        let (_, outcome) = apply(&client, cluster.target(path), change).await;
        let status =
            Command::new(program).args(args).current_dir(copy.path(0, "")).output().unwrap().status;
        assert_eq!(outcome.is_ok(), status.success(), "{change:?} {outcome:?}");
    });
    for leaf in 0..3 {
        assert_eq!(tree(&cluster.path(leaf, "")), tree(&copy.path(0, "")), "{program} {args:?}");
    }
}

fn chmod(change: &str, recursive: bool) -> Edit {
    Edit::Chmod { mode: NewMode::Change(ModeChange::parse(change, 0o022).unwrap()), recursive }
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
    let chown = |owner: &str, recursive, follow| Edit::Chown {
        owner: NewOwner::Named(owner.into()),
        recursive,
        follow,
    };
    compare(&chown("1234:2345", false, true), "d/f", "chown", &["1234:2345", "d/f"]);
    compare(&chown(":77", true, true), "d", "chown", &["-R", ":77", "d"]);
    compare(&chown("5", false, true), "d/link", "chown", &["5", "d/link"]);
    compare(&chown("5", false, false), "d/link", "chown", &["-h", "5", "d/link"]);
    let cluster = Cluster::new(2);
    populate(&cluster);
    run(async {
        let client = cluster.client("flat");
        let (_, outcome) =
            apply(&client, cluster.target("/d"), &chown("no-such-user", false, true)).await;
        assert_eq!(
            (outcome.errors[0].errno, outcome.errors[0].members.leaves()),
            (Errno::INVAL, RangeSet::full(2))
        );
    });
}

#[test]
fn truncate_does_what_gnu_truncate_does() {
    let truncate = |size, create| Edit::Truncate { size: Some(size), reference: None, create };
    compare(&truncate(SizeChange::To(3), true), "d/f", "truncate", &["-s", "3", "d/f"]);
    compare(
        &truncate(SizeChange::Grow(5), false),
        "d/{f,x}",
        "truncate",
        &["-c", "-s", "+5", "d/f", "d/x"],
    );
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
    let remove = |recursive, force, empty_dirs| Edit::Remove {
        recursive,
        force,
        empty_dirs,
        preserve_root: true,
    };
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
        let client = cluster.client("flat");
        let remove = |preserve_root| Edit::Remove {
            recursive: true,
            force: true,
            empty_dirs: false,
            preserve_root,
        };
        for path in ["/", ".", "..", "//./.."] {
            let refused =
                edit(&client, &[cluster.target(path)], &remove(true), VERBOSE, &mut |_| Ok(()))
                    .await;
            assert!(matches!(refused, Err(ToolError::Usage(_))), "{path}");
        }
        // Names on the way, and patterns, are found out on the hosts.
        for path in ["/d/..", "/d/sub/../../", "/*", "/**", "/d/../*", "/./?*", "/{d,*}", "*"] {
            let (lines, outcome) = apply(&client, cluster.target(path), &remove(true)).await;
            assert_eq!((lines.len(), outcome.status.count), (0, 0), "{path}");
            assert_eq!(
                (outcome.errors[0].errno, outcome.errors[0].path.as_str()),
                (Errno::BUSY, path)
            );
            assert!(cluster.path(0, "d/f").exists() && cluster.path(1, "top").exists(), "{path}");
        }
        let (_, edited) =
            apply_with(&client, &[cluster.target("/*")], &remove(false), VERBOSE).await;
        assert!(edited.outcome.is_ok());
        assert_eq!((edited.files(), edited.hosts()), (20, RangeSet::full(2)));
        assert_eq!(std::fs::read_dir(cluster.path(0, "")).unwrap().count(), 0);
        cluster.write(0, "new", "");
        let (_, edited) =
            apply_with(&client, &[cluster.target("/")], &remove(false), VERBOSE).await;
        assert_eq!(
            (edited.outcome.is_ok(), edited.changed),
            (true, vec![(1, RangeSet::single(0))])
        );
        assert_eq!(std::fs::read_dir(cluster.path(0, "")).unwrap().count(), 0);
    });
}

/// A dry run says of each file what the change then says it has done, and changes nothing.
#[test]
fn dry_run_says_what_would_be_done() {
    let remove =
        Edit::Remove { recursive: true, force: false, empty_dirs: false, preserve_root: true };
    let link =
        |force| Edit::Link { target: b"f".into(), symbolic: true, force, no_dereference: true };
    let mkdir = |parents| Edit::Mkdir { parents, mode: None };
    let truncate =
        |create| Edit::Truncate { size: Some(SizeChange::To(3)), reference: None, create };
    let owner = NewOwner::Reference("/d/f".to_owned());
    for (path, change, said, files) in [
        (
            "/d/f",
            chmod("600", false),
            "mode would change from 0644 (rw-r--r--) to 0600 (rw-------)",
            1,
        ),
        ("/d", remove.clone(), "would be removed, 9 names", 9),
        ("/d/f", remove.clone(), "would be removed", 1),
        ("/d/f", truncate(false), "size would change from 7 to 3", 1),
        ("/new", truncate(true), "would be created, 3 bytes", 1),
        ("/new", truncate(false), "", 0),
        ("/d/a", mkdir(true), "directory would be created", 1),
        ("/d", mkdir(true), "", 0),
        ("/new", link(false), "would be made, -> f", 1),
        ("/top", link(true), "would be replaced, -> f", 1),
        (
            "/d/f",
            Edit::Chown { owner, recursive: false, follow: true },
            "ownership would be retained",
            1,
        ),
    ] {
        let cluster = Cluster::new(3);
        populate(&cluster);
        std::fs::remove_dir_all(cluster.path(2, "")).unwrap();
        std::fs::create_dir(cluster.path(2, "")).unwrap();
        let before = tree(cluster.dir.path());
        run(async {
            let client = cluster.client("flat");
            let targets = [Target { members: RangeSet::full(2), path: path.to_owned() }];
            let (lines, planned) = apply_with(&client, &targets, &change, DRY).await;
            assert_eq!(tree(cluster.dir.path()), before, "{change:?}");
            assert!(planned.outcome.is_ok(), "{change:?}: {planned:?}");
            if said.is_empty() {
                assert_eq!(lines, Vec::<String>::new());
            } else {
                assert!(lines[0].starts_with(&format!("0-1:{path}: {said}")), "{lines:?}");
            }
            assert_eq!(planned.files(), 2 * files, "{change:?}");
            let (_, edited) = apply_with(&client, &targets, &change, VERBOSE).await;
            assert_eq!(
                (edited.changed, edited.outcome.is_ok()),
                (planned.changed, true),
                "{change:?}"
            );
        });
    }
    // What would fail is said to.
    for (path, change, errno) in [
        ("/none", remove.clone(), Errno::NOENT),
        (
            "/d",
            Edit::Remove { recursive: false, force: false, empty_dirs: false, preserve_root: true },
            Errno::ISDIR,
        ),
        (
            "/d",
            Edit::Remove { recursive: false, force: false, empty_dirs: true, preserve_root: true },
            Errno::NOTEMPTY,
        ),
        ("/", remove.clone(), Errno::BUSY),
        ("/d", mkdir(false), Errno::EXIST),
        ("/a/b", mkdir(false), Errno::NOENT),
        ("/top/b", mkdir(true), Errno::NOTDIR),
        ("/top", link(false), Errno::EXIST),
        ("/d/sub", truncate(true), Errno::ISDIR),
        ("/none", chmod("600", false), Errno::NOENT),
    ] {
        let cluster = Cluster::new(1);
        populate(&cluster);
        run(async {
            let client = cluster.client("flat");
            let target = cluster.target(if path == "/" { "/d/.." } else { path });
            let (_, planned) = apply_with(&client, &[target], &change, DRY).await;
            assert_eq!(
                (planned.outcome.errors[0].errno, planned.files()),
                (errno, 0),
                "{change:?}"
            );
        });
    }
}

#[test]
fn modes_owners_and_sizes_are_taken_from_a_file() {
    let of = |path: &str| path.to_owned();
    let reference = |path, recursive| Edit::Chmod { mode: NewMode::Reference(of(path)), recursive };
    compare(&reference("/d/x", false), "d/f", "chmod", &["--reference", "d/x", "d/f"]);
    compare(
        &reference("/d/sub/deep/h", true),
        "d/sub",
        "chmod",
        &["-R", "--reference", "d/sub/deep/h", "d/sub"],
    );
    let size = |size| Edit::Truncate { size, reference: Some(of("/d/f")), create: true };
    compare(&size(None), "new", "truncate", &["-r", "d/f", "new"]);
    compare(&size(Some(SizeChange::Grow(3))), "top", "truncate", &["-r", "d/f", "-s", "+3", "top"]);
    let cluster = Cluster::new(2);
    populate(&cluster);
    std::fs::remove_file(cluster.path(1, "top")).unwrap();
    run(async {
        let client = cluster.client("flat");
        let owner = NewOwner::Reference(of("/top"));
        for change in
            [reference("/top", false), Edit::Chown { owner, recursive: false, follow: true }]
        {
            let (_, edited) =
                apply_with(&client, &[cluster.target("/d/f")], &change, VERBOSE).await;
            let error = &edited.outcome.errors[0];
            assert_eq!(
                (error.errno, error.path.as_str(), edited.outcome.errors.len()),
                (Errno::NOENT, "/top", 1)
            );
            assert_eq!(edited.changed, [(1, RangeSet::single(0))]);
        }
    });
}

/// What is named later happens later, on every host by itself.
#[test]
fn order_of_arguments_is_kept() {
    let cluster = Cluster::new(3);
    run(async {
        let client = cluster.client("flat");
        let on = |start, end, path: &str| Target {
            members: RangeSet::from_range(start, end),
            path: path.into(),
        };
        let targets =
            [on(0, 1, "/a"), on(0, 3, "/b"), on(1, 3, "/a"), on(0, 1, "/b/c"), on(0, 3, "/a/d")];
        let mkdir = Edit::Mkdir { parents: false, mode: None };
        let (_, edited) = apply_with(&client, &targets, &mkdir, VERBOSE).await;
        assert!(edited.outcome.is_ok(), "{edited:?}");
        assert_eq!((edited.files(), edited.hosts()), (10, RangeSet::full(3)));
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
    compare(
        &mkdir(false, None),
        "d/*/new",
        "sh",
        &["-c", "for dir in d/*/; do mkdir $dir/new; done"],
    );
}

/// As `mkdir -pv`, and so does a dry run; several arguments make what they share once.
#[test]
fn every_directory_that_is_made_is_named() {
    for (options, text) in [(DRY, "directory would be created"), (VERBOSE, "created directory")] {
        let cluster = Cluster::new(2);
        std::fs::create_dir(cluster.path(1, "a")).unwrap();
        cluster.write(1, "a/file", "");
        run(async {
            let client = cluster.client("flat");
            let targets = ["/a/b/c", "/a/b/d", "/a"].map(|path| cluster.target(path));
            let mkdir = Edit::Mkdir { parents: true, mode: None };
            let (lines, edited) = apply_with(&client, &targets, &mkdir, options).await;
            let told = ["0:/a", "0-1:/a/b", "0-1:/a/b/c", "0-1:/a/b/d"]
                .map(|made| format!("{made}: {text}"));
            assert_eq!((edited.outcome.is_ok(), lines), (true, told.to_vec()), "{options:?}");
            assert_eq!((edited.files(), edited.hosts()), (7, RangeSet::full(2)));
        });
    }
    // What was made counts, also where the last is not.
    let cluster = Cluster::new(1);
    run(async {
        let client = cluster.client("flat");
        let target = cluster.target(&format!("/a/{}", "n".repeat(256)));
        let mkdir = Edit::Mkdir { parents: true, mode: None };
        let (lines, edited) = apply_with(&client, &[target], &mkdir, VERBOSE).await;
        assert_eq!((edited.files(), lines), (1, vec!["0:/a: created directory".to_owned()]));
        assert_eq!(edited.outcome.errors[0].errno, Errno::NAMETOOLONG);
    });
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
        let client = cluster.client("flat");
        let (_, outcome) =
            apply(&client, cluster.target("d/same"), &link("d/f", false, true, false)).await;
        assert!(outcome.is_ok());
        assert_eq!(std::fs::read_dir(cluster.path(0, "d")).unwrap().count(), 6);
    });
}

#[test]
fn edit_results_and_failures_are_folded_over_hosts() {
    for shape in SHAPES {
        let cluster = Cluster::new(30);
        populate(&cluster);
        std::fs::remove_file(cluster.path(4, "d/f")).unwrap();
        std::fs::set_permissions(cluster.path(9, "d/f"), PermissionsExt::from_mode(0o600)).unwrap();
        run(async {
            let client = cluster.client(shape);
            let (lines, outcome) =
                apply(&client, cluster.target("/d/f"), &chmod("600", false)).await;
            assert_eq!(
                lines,
                [
                    "0-3,5-8,10-29:/d/f: mode changed from 0644 (rw-r--r--) to 0600 (rw-------)",
                    "9:/d/f: mode retained as 0600 (rw-------)",
                ]
            );
            let error = &outcome.errors[0];
            assert_eq!(
                (error.errno, error.members.leaves().to_string()),
                (Errno::NOENT, "4".into())
            );
            assert_eq!((outcome.status.count, outcome.member_count()), (29, 30));
        });
    }
}

async fn put(
    client: &Client,
    target: Target,
    options: &WriteOptions,
    data: Vec<u8>,
) -> (u64, Outcome) {
    let source = Box::new(Cursor::new(data));
    let written =
        write(client, &[target], options, EditOptions::default(), source, &mut |_| Ok(())).await;
    let written = written.unwrap();
    let files: u64 = written.changed.iter().map(|(files, hosts)| files * hosts.len()).sum();
    assert_eq!(files, written.outcome.status.count);
    (written.bytes, written.outcome)
}

fn way(way: WriteWay) -> WriteOptions {
    WriteOptions { way, ..WriteOptions::default() }
}

#[test]
fn bytes_of_any_size_reach_every_file() {
    let cluster = Cluster::new(7);
    populate(&cluster);
    let data = |size: usize| (0..size).map(|n| (n * 7 / 3) as u8).collect::<Vec<u8>>();
    run(async {
        let client = cluster.client("k-ary:2");
        let create =
            |way| WriteOptions { way, create: true, mode: 0o640, ..WriteOptions::default() };
        for size in [0, 1, 256 << 10, (256 << 10) + 1, 3_500_000] {
            for way in [WriteWay::Replace, WriteWay::InPlace] {
                let (bytes, outcome) =
                    put(&client, cluster.target("/new"), &create(way), data(size)).await;
                assert_eq!((bytes, outcome.is_ok(), outcome.status.count), (size as u64, true, 7));
                assert!((0..7).all(|leaf| cluster.read(leaf, "new") == data(size)), "{size}");
            }
        }
        assert_eq!(std::fs::metadata(cluster.path(3, "new")).unwrap().mode() & 0o777, 0o640);
        put(&client, cluster.target("/top"), &way(WriteWay::Append), b" more".to_vec()).await;
        put(&client, cluster.target("/top"), &way(WriteWay::At(2)), b"NN".to_vec()).await;
        put(&client, cluster.target("/top"), &way(WriteWay::At(0)), b"C".to_vec()).await;
        assert!((0..7).all(|leaf| cluster.read(leaf, "top") == b"CoNNent more"));
        put(&client, cluster.target("/top"), &way(WriteWay::At(1)), data(2_000_000)).await;
        assert!((0..7).all(|leaf| cluster.read(leaf, "top")[1..] == data(2_000_000)));
        put(&client, cluster.target("/top"), &way(WriteWay::InPlace), b"short".to_vec()).await;
        assert!((0..7).all(|leaf| cluster.read(leaf, "top") == b"short"));
    });
}

/// Whoever has the file open keeps reading what it was; links, mode and owner stay.
#[test]
fn file_is_replaced_whole() {
    let cluster = Cluster::new(2);
    populate(&cluster);
    let file = |path: &str| cluster.path(0, path);
    std::fs::set_permissions(file("top"), PermissionsExt::from_mode(0o4751)).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(file("top"), Some(1234), Some(2345)).unwrap();
        std::fs::set_permissions(file("top"), PermissionsExt::from_mode(0o4751)).unwrap();
    }
    let before = std::fs::metadata(file("top")).unwrap();
    let mut reader = std::fs::File::open(file("top")).unwrap();
    run(async {
        let client = cluster.client("flat");
        // By the name of a link to it.
        let (_, outcome) =
            put(&client, cluster.target("/d/link"), &way(WriteWay::Replace), b"new".to_vec()).await;
        assert!(outcome.is_ok());
        let mut old = String::new();
        std::io::Read::read_to_string(&mut reader, &mut old).unwrap();
        assert_eq!((old.as_str(), cluster.read(0, "top")), ("content", b"new".to_vec()));
        let after = std::fs::metadata(file("top")).unwrap();
        assert_ne!(after.ino(), before.ino());
        assert_eq!(
            (after.mode(), after.uid(), after.gid()),
            (before.mode(), before.uid(), before.gid())
        );
        assert!(std::fs::symlink_metadata(file("d/link")).unwrap().is_symlink());
        // In place it stays the same file.
        put(&client, cluster.target("/top"), &way(WriteWay::InPlace), b"newer".to_vec()).await;
        assert_eq!(
            (std::fs::metadata(file("top")).unwrap().ino(), cluster.read(0, "top")),
            (after.ino(), b"newer".to_vec())
        );
        // A directory is no file, and nothing is left beside.
        let (_, outcome) =
            put(&client, cluster.target("/d"), &way(WriteWay::Replace), b"x".to_vec()).await;
        assert_eq!(outcome.errors[0].errno, Errno::ISDIR);
        assert_eq!(std::fs::read_dir(file("")).unwrap().count(), 2);
    });
}

/// A source that fails after some pieces: what was to be replaced is as it was.
#[test]
fn half_a_source_replaces_nothing() {
    struct Breaks(usize);
    impl std::io::Read for Breaks {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.0 == 0 {
                return Err(std::io::Error::from_raw_os_error(5));
            }
            let length = buffer.len().min(self.0);
            buffer[..length].fill(b'z');
            self.0 -= length;
            Ok(length)
        }
    }
    let cluster = Cluster::new(3);
    populate(&cluster);
    run(async {
        let client = cluster.client("flat");
        let (options, sink) = (way(WriteWay::Replace), &mut |_: &Merged| Ok(()));
        let source = Box::new(Breaks(1 << 20));
        let broken = write(
            &client,
            &[cluster.target("/top")],
            &options,
            EditOptions::default(),
            source,
            sink,
        )
        .await;
        assert!(matches!(broken, Err(ToolError::Local { errno: Errno::IO, .. })), "{broken:?}");
        // Another command of the same session finds the files as they were.
        let (_, outcome) = put(&client, cluster.target("/d/f"), &options, b"x".to_vec()).await;
        assert!(outcome.is_ok());
    });
    assert!((0..3).all(|leaf| cluster.read(leaf, "top") == b"content"));
}

#[test]
fn dry_run_of_a_write_reads_nothing_and_writes_nothing() {
    struct Untouched;
    impl std::io::Read for Untouched {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            unreachable!("a dry run needs no source")
        }
    }
    let cluster = Cluster::new(3);
    populate(&cluster);
    std::fs::remove_file(cluster.path(2, "top")).unwrap();
    let before = tree(cluster.dir.path());
    run(async {
        let client = cluster.client("flat");
        let create = WriteOptions { create: true, ..WriteOptions::default() };
        for (options, told_of) in [
            (way(WriteWay::Replace), &["0-1:/top: would be replaced"][..]),
            (way(WriteWay::Append), &["0-1:/top: would be appended to"]),
            (way(WriteWay::At(3)), &["0-1:/top: would be written"]),
            (create, &["0-1:/top: would be replaced", "2:/top: would be created"]),
        ] {
            let mut lines = Vec::new();
            let mut sink = |merged: &Merged| {
                lines.extend(told(merged));
                Ok(())
            };
            let targets = [cluster.target("/top")];
            let planned = write(&client, &targets, &options, DRY, Box::new(Untouched), &mut sink)
                .await
                .unwrap();
            assert_eq!(planned.outcome.is_ok(), options.create);
            lines.sort();
            assert_eq!(lines, told_of);
        }
    });
    assert_eq!(tree(cluster.dir.path()), before);
}

#[test]
fn file_that_is_not_there_fails_by_itself() {
    let cluster = Cluster::new(6);
    populate(&cluster);
    std::fs::remove_file(cluster.path(2, "top")).unwrap();
    for size in [4, 2_500_000] {
        run(async {
            let client = cluster.client("flat");
            let (_, outcome) =
                put(&client, cluster.target("/top"), &WriteOptions::default(), vec![b'z'; size])
                    .await;
            let error = &outcome.errors[0];
            assert_eq!(
                (error.errno, error.members.leaves().to_string()),
                (Errno::NOENT, "2".into())
            );
            assert_eq!((outcome.status.count, outcome.member_count()), (5, 6));
            assert!(cluster.read(5, "top").starts_with(b"zzzz"));
            let nothing =
                put(&client, cluster.target("/q*"), &WriteOptions::default(), vec![b'z'; size])
                    .await
                    .1;
            assert_eq!((nothing.errors[0].errno, nothing.status.count), (Errno::NOENT, 0));
        });
    }
}

#[test]
fn exclusive_writes_happen_everywhere_or_nowhere() {
    let cluster = Cluster::new(6);
    cluster.write(4, "lock", "held");
    run(async {
        let client = cluster.client("k-ary:2");
        let exclusive = WriteOptions { exclusive: true, mode: 0o600, ..WriteOptions::default() };
        let halves = [(0, 3), (3, 6)].map(|(start, end)| Target {
            members: RangeSet::from_range(start, end),
            path: "/lock".to_owned(),
        });
        for targets in [&[cluster.target("/lock")][..], &halves] {
            let source = Box::new(Cursor::new(b"mine".to_vec()));
            let (options, sink) = (EditOptions::default(), &mut |_: &Merged| Ok(()));
            let written = write(&client, targets, &exclusive, options, source, sink).await.unwrap();
            assert_eq!(
                (written.outcome.errors[0].errno, written.outcome.status.count),
                (Errno::EXIST, 0)
            );
            // Who was given up because of that is named, and told apart.
            let told = failures(&written.outcome);
            assert_eq!(told, ["/lock: EEXIST 4", "/lock: ECANCELED 0-3,5"]);
            assert_eq!((written.outcome.failed_count(), written.changed), (6, vec![]));
            let there: Vec<u32> =
                (0..6).filter(|leaf| cluster.path(*leaf, "lock").exists()).collect();
            assert_eq!(there, [4]);
        }
        // Of a pattern each path is named; a dry run refuses what the change refuses.
        let targets = [cluster.target("/{lock,other}")];
        for options in [EditOptions::default(), DRY] {
            let mut lines = Vec::new();
            let mut sink = |merged: &Merged| {
                lines.extend(told(merged));
                Ok(())
            };
            let source = Box::new(Cursor::new(b"mine".to_vec()));
            let written =
                write(&client, &targets, &exclusive, options, source, &mut sink).await.unwrap();
            let mut failures = failures(&written.outcome);
            failures.sort();
            assert_eq!(
                failures,
                ["/lock: ECANCELED 0-3,5", "/lock: EEXIST 4", "/other: ECANCELED 0-5"]
            );
            assert_eq!(
                (written.outcome.member_count(), written.changed.len(), lines.len()),
                (12, 0, 0)
            );
        }
        let source = Box::new(std::io::empty());
        let mut lines = Vec::new();
        let mut sink = |merged: &Merged| {
            lines.extend(told(merged));
            Ok(())
        };
        let planned =
            write(&client, &halves[..1], &exclusive, DRY, source, &mut sink).await.unwrap();
        assert_eq!(
            (planned.outcome.is_ok(), &lines[..]),
            (true, &["0-2:/lock: would be created".to_owned()][..])
        );
        let (_, outcome) = put(&client, halves[0].clone(), &exclusive, b"mine".to_vec()).await;
        assert_eq!(
            (outcome.is_ok(), outcome.status.count, cluster.read(1, "lock")),
            (true, 3, b"mine".to_vec())
        );
    });
}
