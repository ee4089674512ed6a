//! Changes, against what coreutils do to copies of the same files.
mod write;

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
    Edit::Chmod {
        mode: NewMode::Change(ModeChange::parse(change, 0o022).unwrap()),
        recursive,
        preserve_root: false,
    }
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

/// The start of a recursive change is followed, as by GNU; a link that leads nowhere is no success.
#[test]
fn recursive_chmod_of_a_dangling_link_fails() {
    let cluster = Cluster::new(1);
    cluster.write(0, "d/f", "");
    for (target, link) in [("nowhere", "dangling"), ("dangling", "twice"), ("gone", "d/inner")] {
        symlink(target, cluster.path(0, link)).unwrap();
    }
    run(async {
        let client = cluster.client("flat");
        for (path, expected) in
            [("/dangling", Some(Errno::NOENT)), ("/twice", Some(Errno::NOENT)), ("/d", None)]
        {
            let (_, outcome) = apply(&client, cluster.target(path), &chmod("755", true)).await;
            assert_eq!(outcome.errors.first().map(|error| error.errno), expected, "{path}");
        }
    });
}

#[test]
fn chown_does_what_gnu_chown_does() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let chown = |owner: &str, recursive, follow| Edit::Chown {
        owner: NewOwner::Named(owner.into()),
        from: None,
        recursive,
        follow,
        preserve_root: false,
    };
    let from = |from: &str| Edit::Chown {
        owner: NewOwner::Named("7:8".into()),
        from: Some(from.into()),
        recursive: true,
        follow: true,
        preserve_root: false,
    };
    for owner in ["0", "0:0", ":0", "5", "0:5", ":5"] {
        compare(&from(owner), "d", "chown", &["-R", "--from", owner, "7:8", "d"]);
    }
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
    let of = |reference: &str| {
        let reference = Some(reference.to_owned());
        Edit::Truncate { size: None, reference, create: true }
    };
    compare(&of("/top"), "d/f", "truncate", &["-r", "top", "d/f"]);
    compare(&of("/d/sub"), "d/f", "truncate", &["-r", "d/sub", "d/f"]);
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
#[expect(clippy::too_many_lines, reason = "one scenario")]
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
            Edit::Chown { owner, from: None, recursive: false, follow: true, preserve_root: false },
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
    let reference = |path, recursive| Edit::Chmod {
        mode: NewMode::Reference(of(path)),
        recursive,
        preserve_root: false,
    };
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
    // The size of a pipe is none.
    let pipe = cluster.path(0, "pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let before = cluster.read(0, "d/f");
    let size = |path| Edit::Truncate { size: None, reference: Some(of(path)), create: true };
    run(async {
        let client = cluster.client("flat");
        let target = cluster.target("/d/f");
        let (_, outcome) = apply(&client, target, &size("/pipe")).await;
        assert!(!outcome.is_ok());
    });
    assert_eq!(cluster.read(0, "d/f"), before);
    run(async {
        let client = cluster.client("flat");
        let owner = NewOwner::Reference(of("/top"));
        for change in [
            reference("/top", false),
            Edit::Chown { owner, from: None, recursive: false, follow: true, preserve_root: false },
        ] {
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

/// A new directory in a set-gid directory is one, unless the mode speaks of the bit.
#[test]
fn mkdir_keeps_the_inherited_set_gid_bit() {
    for mode in [
        "770",
        "0770",
        "00770",
        "u=rwx,go=rx",
        "g-s",
        "1777",
        "g=u,o=",
        "+t",
        "u-s",
        "g-s,a+x",
        "o-w",
        "g+s",
        "=755",
        "g=o",
        "-w",
        "+w",
        "u=s",
        "u=rwx",
        "u=rwx,g=u-w",
        "u=,g+s",
        "a=u",
        "+X",
    ] {
        for (parents, above, group) in [
            (false, 0o2775, None),
            (true, 0o2775, None),
            (false, 0o755, None),
            (false, 0o2775, Some(0)),
            (true, 0o755, Some(5)),
            (false, 0o1777, Some(7)),
        ] {
            let cluster = Cluster::new(1);
            let sh = cluster.path(0, "sh");
            std::fs::create_dir(&sh).unwrap();
            std::fs::set_permissions(&sh, PermissionsExt::from_mode(above)).unwrap();
            if let Some(group) = group.filter(|group| !set_default_list(&sh, *group)) {
                sheaf_testing::skipped(&format!("no access lists here (of {group})"));
                continue;
            }
            let change = Some(ModeChange::parse(mode, 0o022).unwrap());
            run(async {
                let client = cluster.client("flat");
                let mkdir = Edit::Mkdir { parents, mode: change };
                let (_, outcome) = apply(&client, cluster.target("/sh/a"), &mkdir).await;
                assert!(outcome.is_ok());
            });
            let made = Command::new("mkdir").args(["-m", mode]).arg(sh.join("g")).status();
            assert!(made.unwrap().success());
            let [own, gnu] = ["a", "g"].map(|name| sh.join(name).metadata().unwrap().mode());
            assert_eq!(own, gnu, "{mode} in {above:o} with a list of {group:?}");
        }
    }
}

/// The list that new files get: all for the owner and user 7, this for the group, and nothing for others. Whether the
/// file system has such lists.
fn set_default_list(dir: &Path, group: u16) -> bool {
    let entry = |(tag, may, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &may.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    let all = [(1, 7, none), (2, 7, 7), (4, group, none), (0x10, 7, none), (0x20, 0, none)];
    let list = [2u32.to_le_bytes().to_vec(), all.map(entry).concat()].concat();
    let flags = rustix::fs::XattrFlags::empty();
    let set = rustix::fs::setxattr(dir, "system.posix_acl_default", &list, flags);
    assert!(matches!(set, Ok(()) | Err(rustix::io::Errno::OPNOTSUPP)), "{set:?}");
    set.is_ok()
}

/// What a dry run refuses by the path, and for what reason, the change refuses, too.
#[test]
fn dry_run_refuses_the_paths_that_the_change_refuses() {
    let cluster = Cluster::new(1);
    cluster.write(0, "file", "");
    symlink("nowhere", cluster.path(0, "dangling")).unwrap();
    let mkdir = |parents| Edit::Mkdir { parents, mode: None };
    let (size, reference, create) = (Some(SizeChange::To(3)), None, true);
    let truncate = Edit::Truncate { size, reference, create };
    run(async {
        let client = cluster.client("flat");
        for path in
            ["/none/x", "/none/", "/file/", "/file/x", "/dangling/", "/dangling/x", "/dangling"]
        {
            for edit in [mkdir(false), mkdir(true), truncate.clone()] {
                let errors = async |options| {
                    let (_, edited) =
                        apply_with(&client, &[cluster.target(path)], &edit, options).await;
                    edited.outcome.errors.iter().map(|error| error.errno).collect::<Vec<_>>()
                };
                let dry = errors(DRY).await;
                assert_eq!(dry, errors(VERBOSE).await, "{path} {edit:?}");
                let _ = std::fs::remove_file(cluster.path(0, "nowhere"));
                let _ = std::fs::remove_dir_all(cluster.path(0, "none"));
            }
        }
    });
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

/// Changes that are not the same when they are made twice.
#[test]
fn file_that_is_named_twice_is_changed_once() {
    let cluster = Cluster::new(3);
    populate(&cluster);
    let [one, other, third] = [0, 1, 2].map(|leaf| cluster.path(leaf, "top"));
    run(async {
        let client = cluster.client("1x1x60");
        let mut targets = ["top", "t*", "top"].map(|path| cluster.target(path));
        targets[2].members = RangeSet::single(1);
        let grow =
            Edit::Truncate { size: Some(SizeChange::Grow(4)), reference: None, create: true };
        let (lines, edited) = apply_with(&client, &targets, &grow, VERBOSE).await;
        assert!(edited.outcome.is_ok() && lines.len() == 1, "{lines:?} {edited:?}");
        assert_eq!(edited.files(), 3);
        std::fs::set_permissions(&one, PermissionsExt::from_mode(0o741)).unwrap();
        apply_with(&client, &targets, &chmod("u=g,g=o,o=u", false), VERBOSE).await;
        assert_eq!(std::fs::metadata(&one).unwrap().mode() & 0o7777, 0o414);
        std::fs::set_permissions(&one, PermissionsExt::from_mode(0o644)).unwrap();
        for way in [WriteWay::Append, WriteWay::At(2), WriteWay::InPlace, WriteWay::Replace] {
            let options = WriteOptions { way, ..WriteOptions::default() };
            let source = Box::new(Cursor::new(b"12".to_vec()));
            let written =
                write(&client, &targets, &options, VERBOSE, source, &mut |_| Ok(())).await.unwrap();
            assert!(written.outcome.is_ok(), "{written:?}");
            assert_eq!(written.outcome.status.count, 3, "{way:?}");
            let content = std::fs::read(&one).unwrap();
            let expected: &[u8] = match way {
                WriteWay::Append => b"content\0\0\0\x0012",
                WriteWay::At(_) => b"co12ent\0\0\0\x0012",
                _ => b"12",
            };
            assert_eq!(content, expected, "{way:?}");
            assert_eq!(
                [&other, &third].map(|file| std::fs::read(file).unwrap()),
                [content.clone(), content]
            );
        }
    });
}
