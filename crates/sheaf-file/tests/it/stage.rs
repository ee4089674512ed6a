//! Replacing files: all or nothing.

use crate::tree;
use proptest::prelude::*;
use sheaf_core::Errno;
use sheaf_file::{
    Algorithm, Attributes, Digest, Export, Mode, OFlags, SetTime, StageOptions, Staged,
    TEMP_PREFIX, Timestamp, digest,
};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

fn p(path: &str) -> &Path {
    Path::new(path)
}

fn stage(export: &Export, path: &str, data: &[u8], options: StageOptions) -> Result<(), Errno> {
    let mut staged = Staged::create(export, p(path), options)?;
    staged.write_at(0, data)?;
    staged.commit(&Attributes::default(), None).map(drop)
}

fn names(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.unwrap().file_name().into_string().unwrap()
    };
    let mut names: Vec<String> = std::fs::read_dir(dir).unwrap().map(name).collect();
    names.sort();
    names
}

fn blake3(mut data: &[u8]) -> Digest {
    digest(&mut data, Algorithm::Blake3).unwrap()
}

#[test]
fn old_file_stays_until_commit() {
    let (dir, export) = tree(&["file"]);
    let mut staged = Staged::create(&export, p("file"), StageOptions::default()).unwrap();
    staged.write_at(0, b"new").unwrap();
    assert_eq!(names(dir.path()), ["file"]);
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"file");
    assert_eq!(staged.digest().unwrap(), blake3(b"new"));
    let expected = staged.digest().unwrap();
    let metadata = staged.commit(&Attributes::default(), Some(&expected)).unwrap();
    assert_eq!(metadata.id(), export.stat(p("file")).unwrap().id());
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"new");
    assert_eq!(names(dir.path()), ["file"]);
}

/// Whatever `fs.protected_symlinks` says, and whoever follows: root above all.
#[test]
fn link_of_another_user_is_not_followed_where_all_make_names() {
    if !rustix::process::geteuid().is_root() {
        return sheaf_testing::skipped("only root makes links of other users");
    }
    let (dir, export) = tree(&["precious", "tmp/own", "shared/x"]);
    for (name, mode) in [("tmp", 0o1777), ("shared", 0o777)] {
        let path = dir.path().join(name);
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    let link = |name: &str, target: &str, user| {
        let link = dir.path().join(name);
        std::os::unix::fs::symlink(target, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(user), None).unwrap();
    };
    link("tmp/theirs", "../precious", 65534);
    link("tmp/nowhere", "../new", 65534);
    link("tmp/mine", "own", 0);
    link("shared/theirs", "x", 65534);
    let in_place = StageOptions { in_place: true, ..StageOptions::default() };
    for options in [StageOptions::default(), in_place] {
        for path in ["tmp/theirs", "tmp/nowhere"] {
            assert_eq!(stage(&export, path, b"new", options), Err(Errno::ACCES), "{path}");
        }
        for path in ["tmp/mine", "shared/theirs"] {
            assert_eq!(stage(&export, path, b"new", options), Ok(()), "{path}");
        }
    }
    let create = Mode::from_raw_mode(0o644);
    let made = export.open_tentative(p("tmp/nowhere"), OFlags::WRONLY | OFlags::CREATE, create);
    assert_eq!(made.err(), Some(Errno::ACCES));
    assert_eq!(std::fs::read(dir.path().join("precious")).unwrap(), b"precious");
    assert!(!dir.path().join("new").exists());
}

#[test]
fn staged_file_dropped_or_refused_leaves_nothing() {
    let (dir, export) = tree(&["file", "d/x"]);
    drop(Staged::create(&export, p("new"), StageOptions::default()).unwrap());
    let mut staged = Staged::create(&export, p("file"), StageOptions::default()).unwrap();
    staged.write_at(0, b"wrong").unwrap();
    assert_eq!(staged.commit(&Attributes::default(), Some(&blake3(b"right"))), Err(Errno::BADMSG));
    let mut staged = Staged::create(&export, p("file"), StageOptions::default()).unwrap();
    staged.write_at(0, b"wrong").unwrap();
    let time = Some(SetTime::At(Timestamp { seconds: 0, nanoseconds: u32::MAX }));
    assert_eq!(
        staged.commit(&Attributes { mtime: time, ..Default::default() }, None),
        Err(Errno::INVAL)
    );
    std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
    for (path, errno) in [
        ("link/", Errno::ISDIR),
        ("d", Errno::ISDIR),
        ("/", Errno::ISDIR),
        ("d/..", Errno::ISDIR),
        ("file/x", Errno::NOTDIR),
        ("file/", Errno::NOTDIR),
        ("none/x", Errno::NOENT),
        ("new/", Errno::ISDIR),
        ("", Errno::NOENT),
    ] {
        assert_eq!(stage(&export, path, b"", StageOptions::default()), Err(errno), "{path}");
    }
    std::fs::remove_file(dir.path().join("link")).unwrap();
    // A directory that takes the name meanwhile cannot be replaced, and no temporary name stays.
    for path in ["file", "new"] {
        let staged = Staged::create(&export, p(path), StageOptions::default()).unwrap();
        let _ = std::fs::remove_file(dir.path().join(path));
        std::fs::create_dir(dir.path().join(path)).unwrap();
        assert_eq!(staged.commit(&Attributes::default(), None), Err(Errno::ISDIR));
    }
    assert_eq!(names(dir.path()), ["d", "file", "new"]);
    // A directory that is removed meanwhile takes nothing.
    let staged = Staged::create(&export, p("d/y"), StageOptions::default()).unwrap();
    std::fs::remove_dir_all(dir.path().join("d")).unwrap();
    assert_eq!(staged.commit(&Attributes::default(), None), Err(Errno::NOENT));
}

/// Where the killed process of the next test stages a file.
const KILLED_DIR: &str = "SHEAF_TEST_KILLED_DIR";

#[test]
fn killed_process_leaves_nothing() {
    if let Some(dir) = std::env::var_os(KILLED_DIR) {
        let export = Export::open(Path::new(&dir)).unwrap();
        let mut staged = Staged::create(&export, p("file"), StageOptions::default()).unwrap();
        staged.write_at(0, &[1; 100_000]).unwrap();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
            .unwrap();
        unreachable!("a process that killed itself");
    }
    let (dir, _) = tree(&["file"]);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "stage::killed_process_leaves_nothing"])
        .env(KILLED_DIR, dir.path())
        .output()
        .unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.status), Some(9));
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"file");
    let left = names(dir.path());
    if left.iter().any(|name| name.starts_with(TEMP_PREFIX)) {
        return crate::skipped("the temporary directory has no files without names");
    }
    assert_eq!(left, ["file"]);
}

#[test]
fn read_only_directory_or_file_is_refused() {
    let export = Export::open(p("/")).unwrap();
    for path in ["/proc/new-file", "/sys/new-file", "/proc/self/new-file"] {
        assert!(stage(&export, path, b"x", StageOptions::default()).is_err(), "{path}");
    }
    // No user may write this one, root included, and it must not be replaced either.
    assert!(stage(&export, "/proc/version", b"x", StageOptions::default()).is_err());
    assert_eq!(stage(&export, "/proc/self/fd/1", b"x", StageOptions::default()), Err(Errno::LOOP));
    assert_eq!(stage(&export, "/proc/self/exe", b"x", StageOptions::default()), Err(Errno::LOOP));
}

#[test]
fn full_file_system_leaves_the_old_file() {
    let (dir, export) = tree(&["m/"]);
    let mount = dir.path().join("m");
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(&mount).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return crate::skipped("a small file system cannot be mounted");
    }
    let check = || {
        stage(&export, "m/file", b"old", StageOptions::default())?;
        let full = stage(&export, "m/file", &[1; 1 << 20], StageOptions::default());
        let device_boundary = export.rename(p("m/file"), p("file"), true);
        let mut text = String::new();
        export.open_read(p("m/file"))?.read_to_string(&mut text)?;
        Ok((full, device_boundary, text, names(&mount)))
    };
    let found: Result<_, Errno> = check();
    assert!(Command::new("umount").arg(&mount).status().unwrap().success());
    let expected = (Err(Errno::NOSPC), Err(Errno::XDEV), "old".to_owned(), vec!["file".to_owned()]);
    assert_eq!(found, Ok(expected));
}

#[test]
fn devices_and_pipes_are_written_directly() {
    let (dir, _) = tree(&[]);
    let export = Export::open(p("/")).unwrap();
    assert_eq!(stage(&export, "/dev/null", b"gone", StageOptions::default()), Ok(()));
    assert_eq!(stage(&export, "/dev/full", b"x", StageOptions::default()), Err(Errno::NOSPC));
    let mut staged = Staged::create(&export, p("/dev/null"), StageOptions::default()).unwrap();
    staged.write_at(0, b"abc").unwrap();
    assert_eq!(staged.write_at(2, b"x"), Err(Errno::SPIPE));
    assert_eq!(staged.digest().unwrap(), blake3(b"abc"));
    staged.write_at(9000, b"x").unwrap();
    assert_eq!(staged.digest().unwrap(), blake3(&[b"abc", &[0; 8997][..], b"x"].concat()));
    assert_eq!(staged.write_at(1 << 60, b"x"), Err(Errno::SPIPE));

    let export = Export::open(dir.path()).unwrap();
    let pipe = dir.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RWXU).unwrap();
    assert_eq!(stage(&export, "pipe", b"x", StageOptions::default()), Err(Errno::NXIO));
    let hole = vec![0; 20_000];
    let data = [vec![7; 300_000], hole.clone(), vec![8; 5], hole].concat();
    let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
    // The reader may not have opened the pipe yet.
    let mut done = Err(Errno::NXIO);
    while done == Err(Errno::NXIO) {
        done =
            Staged::create(&export, p("pipe"), StageOptions::default()).and_then(|mut staged| {
                staged.write_at(0, &data[..300_000])?;
                staged.write_at(320_000, &[8; 5])?;
                staged.extend(340_005)?;
                staged.commit(&Attributes::default(), None).map(drop)
            });
        std::thread::yield_now();
    }
    assert_eq!((done, reader.join().unwrap()), (Ok(()), data));
}

#[test]
fn links_stay_and_their_targets_are_replaced_within() {
    let (dir, export) = tree(&[
        "real/file",
        "l -> /real/file",
        "real/up -> ../l",
        "gone -> /real/new",
        "loop -> loop",
        "out -> /../../../tmp-x",
    ]);
    stage(&export, "real/up", b"new", StageOptions::default()).unwrap();
    assert_eq!(std::fs::read(dir.path().join("real/file")).unwrap(), b"new");
    assert!(dir.path().join("l").is_symlink() && dir.path().join("real/up").is_symlink());
    stage(&export, "gone", b"made", StageOptions::default()).unwrap();
    assert_eq!(std::fs::read(dir.path().join("real/new")).unwrap(), b"made");
    stage(&export, "out", b"in", StageOptions::default()).unwrap();
    assert_eq!(std::fs::read(dir.path().join("tmp-x")).unwrap(), b"in");
    assert_eq!(stage(&export, "loop", b"", StageOptions::default()), Err(Errno::LOOP));
}

#[test]
fn new_file_inherits_and_attributes_override() {
    let (dir, export) = tree(&["file"]);
    let path = dir.path().join("file");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    let is_root = export.stat(p("file")).unwrap().uid == 0;
    if is_root {
        std::os::unix::fs::chown(&path, Some(4711), Some(4712)).unwrap();
    }
    let before = std::fs::metadata(&path).unwrap();
    stage(&export, "file", b"2", StageOptions::default()).unwrap();
    let after = std::fs::metadata(&path).unwrap();
    assert_eq!(
        (after.mode(), after.uid(), after.gid()),
        (before.mode(), before.uid(), before.gid())
    );
    assert_ne!(after.ino(), before.ino());

    let mut staged = Staged::create(&export, p("file"), StageOptions::default()).unwrap();
    staged.write_at(0, b"3").unwrap();
    let mtime = Some(SetTime::At(Timestamp { seconds: 12, nanoseconds: 34 }));
    let wanted = Attributes { mode: Some(0o4711), mtime, ..Default::default() };
    let metadata = staged.commit(&wanted, None).unwrap();
    assert_eq!(
        (metadata.mode, metadata.mtime.seconds, metadata.mtime.nanoseconds),
        (0o4711, 12, 34)
    );

    let in_place = StageOptions { in_place: true, ..Default::default() };
    let inode = std::fs::metadata(&path).unwrap().ino();
    stage(&export, "file", b"4", in_place).unwrap();
    assert_eq!(
        (std::fs::metadata(&path).unwrap().ino(), std::fs::read(&path).unwrap()),
        (inode, b"4".to_vec())
    );
}

/// In a tree that others write to, links of theirs lead to files of theirs alone.
#[test]
fn wary_stage_follows_only_links_that_give_their_maker_nothing() {
    if !rustix::process::geteuid().is_root() {
        return sheaf_testing::skipped("only root can make links of other users");
    }
    let (dir, export) = tree(&["roots", "users"]);
    let at = |name: &str| dir.path().join(name);
    std::os::unix::fs::chown(at("users"), Some(4711), None).unwrap();
    for (name, to, owner) in [
        ("a", "roots", 4711),
        ("b", "users", 4711),
        ("c", "roots", 0),
        ("d", "a", 0),
        ("e", "new", 4711),
    ] {
        std::os::unix::fs::symlink(to, at(name)).unwrap();
        std::os::unix::fs::lchown(at(name), Some(owner), None).unwrap();
    }
    for in_place in [false, true] {
        let plain = StageOptions { in_place, sync: false, ..StageOptions::default() };
        let wary = StageOptions { wary: true, ..plain };
        for (name, expected) in [
            ("a", Err(Errno::ACCES)),
            ("b", Ok(())),
            ("c", Ok(())),
            // A link of root that leads to one of a user.
            ("d", Err(Errno::ACCES)),
            ("e", Err(Errno::ACCES)),
            ("roots", Ok(())),
            ("users", Ok(())),
        ] {
            assert_eq!(stage(&export, name, b"x", wary), expected, "{name}");
        }
        assert_eq!(stage(&export, "a", b"x", plain), Ok(()));
    }
    assert!(!at("new").exists());
}

/// Links, where they lead, and whose they are.
const LAID: [(&str, &str, u32); 17] = [
    ("home/t/moved", "/secret/f", 0),
    ("home/t/through", "z/f", 0),
    ("home/t/z", "../../secret", 4711),
    ("home/t/twice", "../../roots/t/to", 0),
    ("home/t/new", "not-there", 0),
    ("home/t/mine", "own", 0),
    ("roots/t/to", "/secret/f", 0),
    ("roots/t/home", "/home/t/z/f", 0),
    ("roots/t/own", "/home/t/own", 0),
    ("roots/t/new", "not-there", 0),
    ("roots/t/up", "../../../../../secret/./f", 0),
    ("roots/t/dir", "../../secret/f/", 0),
    ("roots/t/round", "round", 0),
    ("open/t/to", "/secret/f", 0),
    ("sticky/t/to", "/secret/f", 0),
    ("sticky/to", "/secret/f", 0),
    // Everybody may write to that directory, and so could have moved it there.
    ("sticky/open/to", "/secret/f", 0),
];

/// What comes of writing to them.
const FOLLOWED: [(&str, Result<(), Errno>); 21] = [
    ("home/t/moved", Err(Errno::ACCES)),
    ("home/t/through", Err(Errno::ACCES)),
    ("home/t/twice", Err(Errno::ACCES)),
    ("home/t/new", Err(Errno::ACCES)),
    ("home/t/mine", Ok(())),
    ("home/t/pipe", Err(Errno::ACCES)),
    ("home/t/moved-pipe", Err(Errno::ACCES)),
    ("roots/t/pipe", Ok(())),
    ("sticky/pipe", Err(Errno::ACCES)),
    ("sticky/t/pipe", Ok(())),
    ("roots/t/to", Ok(())),
    ("roots/t/home", Err(Errno::ACCES)),
    ("roots/t/own", Ok(())),
    ("roots/t/new", Ok(())),
    ("roots/t/up", Ok(())),
    ("roots/t/dir", Err(Errno::NOTDIR)),
    ("roots/t/round", Err(Errno::LOOP)),
    ("open/t/to", Err(Errno::ACCES)),
    ("sticky/t/to", Ok(())),
    ("sticky/to", Err(Errno::ACCES)),
    ("sticky/open/to", Err(Errno::ACCES)),
];

/// Links are root's, and a user could have moved them, or what they lead through.
#[test]
fn wary_stage_follows_no_way_that_others_could_have_laid() {
    if !rustix::process::geteuid().is_root() {
        return sheaf_testing::skipped("only root can make files of other users");
    }
    let (dir, export) =
        tree(&["secret/f", "home/t/own", "open/t/x", "sticky/t/x", "sticky/open/x", "roots/t/x"]);
    let at = |name: &str| dir.path().join(name);
    let give = |name: &str, mode: u32, owner: u32| {
        std::fs::set_permissions(at(name), PermissionsExt::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(at(name), Some(owner), None).unwrap();
    };
    for name in ["home", "home/t", "home/t/own"] {
        give(name, 0o755, 4711);
    }
    let pipes = [
        ("home/t/pipe", 4711),
        ("home/t/moved-pipe", 0),
        ("roots/t/pipe", 0),
        ("sticky/pipe", 0),
        ("sticky/t/pipe", 0),
    ];
    let _readers = pipes.map(|(name, owner)| {
        let mode = Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(rustix::fs::CWD, at(name), rustix::fs::FileType::Fifo, mode, 0)
            .unwrap();
        give(name, 0o644, owner);
        std::fs::OpenOptions::new().read(true).write(true).open(at(name)).unwrap()
    });
    give("open", 0o777, 0);
    give("sticky", 0o1777, 0);
    give("sticky/open", 0o1777, 0);
    for (name, to, owner) in LAID {
        std::os::unix::fs::symlink(to, at(name)).unwrap();
        std::os::unix::fs::lchown(at(name), Some(owner), None).unwrap();
    }
    for (in_place, held) in [(false, false), (true, false), (false, true), (true, true)] {
        let wary = StageOptions { in_place, wary: true, sync: false, ..StageOptions::default() };
        for (name, expected) in FOLLOWED {
            std::fs::write(at("secret/f"), "old").unwrap();
            let export = if held {
                export.holding(Path::new(name).parent().unwrap(), false).unwrap()
            } else {
                export.clone()
            };
            assert_eq!(stage(&export, name, b"x", wary), expected, "{name} {in_place} {held}");
            let is_written = std::fs::read(at("secret/f")).unwrap() == b"x";
            let leads_there = ["roots/t/to", "roots/t/up", "sticky/t/to"].contains(&name);
            assert_eq!(is_written, leads_there, "{name}");
        }
        std::fs::remove_file(at("roots/t/not-there")).unwrap();
    }
}

/// A user who writes over a file leaves it the mode that cp leaves it, and fails where cp does.
#[test]
fn modes_of_replaced_files_are_those_that_cp_leaves() {
    let root = tempfile::tempdir().unwrap();
    crate::open_to_all(root.path());
    let (ours, theirs) = (root.path().join("ours"), root.path().join("theirs"));
    // Who owns the file, and its mode: oneself, or somebody else whose group or others one is.
    let modes = [
        0o644, 0o600, 0o664, 0o666, 0o444, 0o200, 0o222, 0o000, 0o1644, 0o4755, 0o4700, 0o2755,
        0o2644, 0o6777, 0o606,
    ];
    let owners = [(65534, 65534), (0, 65534), (0, 0)];
    let cases: Vec<_> =
        owners.iter().flat_map(|owner| modes.iter().map(move |mode| (*owner, *mode))).collect();
    for dir in [&ours, &theirs] {
        std::fs::create_dir(dir).unwrap();
        std::fs::set_permissions(dir, PermissionsExt::from_mode(0o777)).unwrap();
        for (at, ((uid, gid), mode)) in cases.iter().enumerate() {
            let path = dir.join(at.to_string());
            std::fs::write(&path, "old").unwrap();
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(&path, Some(*uid), Some(*gid)).unwrap();
            }
            std::fs::set_permissions(&path, PermissionsExt::from_mode(*mode)).unwrap();
        }
    }
    std::fs::write(root.path().join("new"), "new").unwrap();
    let (export, source) = (Export::open(&ours).unwrap(), root.path().join("new"));
    for in_place in [false, true] {
        crate::as_nobody(|| {
            for (at, case) in cases.iter().enumerate() {
                let name = at.to_string();
                let cp = Command::new("cp").arg(&source).arg(theirs.join(&name)).output().unwrap();
                let done =
                    stage(&export, &name, b"new", StageOptions { in_place, ..Default::default() });
                assert_eq!(done.is_ok(), cp.status.success(), "{case:?} {done:?}");
            }
        });
        for (at, (owner, mode)) in cases.iter().enumerate() {
            let facts = |dir: &Path| {
                let path = dir.join(at.to_string());
                (std::fs::metadata(&path).unwrap().mode() & 0o7777, std::fs::read(&path).unwrap())
            };
            let mut expected = facts(&theirs);
            // What becomes one's own has the set-id bits of nobody else.
            if !in_place && owner.0 == 0 && expected.1 == b"new" {
                expected.0 &= 0o1777;
            }
            assert_eq!(facts(&ours), expected, "{owner:?} {mode:o} in place: {in_place}");
        }
    }
}

#[test]
fn holes_are_kept() {
    let (dir, export) = tree(&[]);
    let mut data = vec![0; 1 << 20];
    data[500_000] = 1;
    let sparse = StageOptions { sparse: true, ..Default::default() };
    stage(&export, "sparse", &data, sparse).unwrap();
    stage(&export, "full", &data, StageOptions::default()).unwrap();
    assert_eq!(std::fs::read(dir.path().join("sparse")).unwrap(), data);
    let (holes, full) = (export.stat(p("sparse")).unwrap(), export.stat(p("full")).unwrap());
    assert_eq!((holes.size, full.size), (1 << 20, 1 << 20));
    assert!(holes.blocks < full.blocks, "{} {}", holes.blocks, full.blocks);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Positioned writes in any order give what they give in memory, with its digest.
    #[test]
    fn positioned_writes_are_exact(
        sparse: bool,
        in_place: bool,
        extend in 0..40_000u64,
        writes in prop::collection::vec((0..20_000usize, prop_oneof![Just(0u8), any::<u8>()], 0..10_000usize), 0..12),
    ) {
        let (dir, export) = tree(&[]);
        let options = StageOptions { sparse, in_place, sync: false, ..Default::default() };
        let mut staged = Staged::create(&export, p("file"), options).unwrap();
        let mut expected = Vec::new();
        for (offset, byte, length) in writes {
            let data = vec![byte; length];
            staged.write_at(offset as u64, &data).unwrap();
            if length > 0 {
                expected.resize(expected.len().max(offset + length), 0);
                expected[offset..offset + length].copy_from_slice(&data);
            }
            prop_assert_eq!(staged.size(), expected.len() as u64);
        }
        staged.extend(extend).unwrap();
        expected.resize(expected.len().max(extend as usize), 0);
        prop_assert_eq!(staged.digest().unwrap(), blake3(&expected));
        staged.commit(&Attributes::default(), Some(&blake3(&expected))).unwrap();
        prop_assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), expected);
    }
}
