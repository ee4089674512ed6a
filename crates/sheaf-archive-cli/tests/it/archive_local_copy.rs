//! `sheaf archive cp` of trees of this machine, beside GNU cp.
use rustix::fs::XattrFlags;
use sheaf_testing::as_nobody;
use sheaf_testing::built;
use sheaf_testing::home::{Home, Run};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ACL: &str = "system.posix_acl_access";
const DEFAULT_ACL: &str = "system.posix_acl_default";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// An access control list that lets one user more read.
fn acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, !0), (2, 5, 12345), (4, 5, !0), (0x10, 5, !0), (0x20, 0, !0)];
    let entries = entries.iter().flat_map(|(tag, mode, id)| {
        [&tag.to_le_bytes()[..], &mode.to_le_bytes(), &id.to_le_bytes()].concat()
    });
    2u32.to_le_bytes().into_iter().chain(entries).collect()
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) -> bool {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).is_ok()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// All kinds of files, in `tree`.
fn make(tree: &Path) {
    for directory in ["sub/.hidden/deep", "sub.d", "empty", "many", "closed", "links/other"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    let longest: Vec<u8> = (0..255).map(|at| b"ab\xff \x01*"[at % 6]).collect();
    let names: [&[u8]; 9] = [
        b"a",
        b".dot",
        b"sub/b",
        b"sub/.hidden/c",
        b"sub/.hidden/deep/d",
        b"sub/ ",
        b"sub/\xff\xfe",
        b"sub.d/a\nb",
        &[b"sub/", &*longest].concat(),
    ];
    for (at, name) in names.into_iter().enumerate() {
        let path = tree.join(OsStr::from_bytes(name));
        fs::write(&path, vec![at as u8; at * at * 3000]).unwrap();
        set_mode(&path, [0o644, 0o600, 0o755, 0o444, 0o4755, 0o2711, 0o777, 0o640, 0o664][at]);
    }
    for number in 0..200 {
        fs::write(tree.join(format!("many/{number}")), format!("{number}\n")).unwrap();
    }
    fs::write(tree.join("large"), (0..1_500_000u32).map(|at| (at / 7) as u8).collect::<Vec<_>>())
        .unwrap();
    let holes = fs::File::create(tree.join("holes")).unwrap();
    holes.write_all_at(b"at the beginning", 0).unwrap();
    holes.write_all_at(&[7; 100_000], 1 << 20).unwrap();
    holes.set_len(2 << 20).unwrap();
    fs::File::create(tree.join("only-a-hole")).unwrap().set_len(1 << 20).unwrap();
    for other in ["sub/b-again", "links/other/b", "links/z"] {
        fs::hard_link(tree.join("sub/b"), tree.join(other)).unwrap();
    }
    symlink("nowhere", tree.join("broken")).unwrap();
    symlink("sub", tree.join("link")).unwrap();
    fs::hard_link(tree.join("link"), tree.join("links/link")).unwrap();
    std::os::unix::net::UnixListener::bind(tree.join("s")).unwrap();
    assert!(Command::new("mkfifo").arg("-m640").arg(tree.join("fifo")).status().unwrap().success());
    set_xattr(&tree.join("a"), "user.of.a", b"some\0text");
    set_xattr(&tree.join("sub"), "user.of.sub", &[b'x'; 3000]);
    set_xattr(&tree.join("sub/ "), ACL, &acl());
    set_xattr(&tree.join("sub.d"), ACL, &acl());
    set_xattr(&tree.join("sub.d"), DEFAULT_ACL, &acl());
    if is_root() {
        for (at, name) in ["a", "sub", "link", "fifo", "many/7", "holes"].iter().enumerate() {
            let (uid, gid) = (Some(1000 + at as u32), Some(2000 + at as u32));
            std::os::unix::fs::lchown(tree.join(name), uid, gid).unwrap();
        }
        let mut device = Command::new("mknod");
        device.arg(tree.join("device")).args(["c", "1", "3"]);
        if !device.status().is_ok_and(|status| status.success()) {
            sheaf_testing::skipped("no devices can be made here");
        }
        set_mode(&tree.join("a"), 0o4755);
    }
    age(tree, 1);
    set_mode(&tree.join("closed"), 0o500);
    set_mode(&tree.join("empty"), 0o1777);
    set_mode(&tree.join("sub"), 0o2750);
}

/// Gives all files below times of long ago, each another one.
fn age(path: &Path, number: u64) -> u64 {
    let mut next = number;
    let found = fs::symlink_metadata(path).unwrap();
    if found.is_dir() {
        for entry in sorted(path) {
            next = age(&entry, next + 1);
        }
    }
    let time = |more: u64| rustix::fs::Timespec {
        tv_sec: (1_000_000_000 + number * 1000 + more).cast_signed(),
        tv_nsec: (123_456_789 + number.cast_signed() * 17 % 1000) + more.cast_signed(),
    };
    let times =
        rustix::fs::Timestamps { last_access: time(number % 5), last_modification: time(0) };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
    next
}

fn sorted(path: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

/// All there is to know of a tree, by paths in it.
fn describe(top: &Path, has_times: bool) -> BTreeMap<String, String> {
    let (mut all, mut inodes) = (BTreeMap::new(), BTreeMap::new());
    describe_below(top, top, has_times, &mut all, &mut inodes);
    all
}

fn describe_below(
    top: &Path,
    path: &Path,
    has_times: bool,
    all: &mut BTreeMap<String, String>,
    inodes: &mut BTreeMap<u64, String>,
) {
    let found = fs::symlink_metadata(path).unwrap();
    let name = path.strip_prefix(top).unwrap().as_os_str().as_bytes().escape_ascii().to_string();
    let first = inodes.entry(found.ino()).or_insert_with(|| name.clone());
    let kind = found.file_type();
    let mut text = format!("{:o} {}:{} of {first}", found.mode(), found.uid(), found.gid());
    if kind.is_file() {
        let digest = blake3::hash(&fs::read(path).unwrap());
        // Holes are holes, but for some blocks at their edges.
        let is_sparse = found.blocks() * 512 + (64 << 10) < found.len();
        text += &format!(" {} {} {digest} {is_sparse}", found.len(), found.nlink());
    } else if kind.is_symlink() {
        text += &format!(" -> {:?} {}", fs::read_link(path).unwrap(), found.nlink());
    } else if kind.is_char_device() {
        text += &format!(" device {:x}", found.rdev());
    }
    if has_times {
        text += &format!(" {}.{:09}", found.mtime(), found.mtime_nsec());
    }
    let mut names = vec![0; 4096];
    if let Ok(bytes) = rustix::fs::llistxattr(path, &mut names[..]) {
        let mut names: Vec<_> = names[..bytes].split(|byte| *byte == 0).collect();
        names.sort_unstable();
        for name in names.into_iter().filter(|name| !name.is_empty()) {
            let mut value = vec![0; 4096];
            let read = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..]);
            let value = blake3::hash(&value[..read.unwrap()]);
            text += &format!(" {}={:.8}", name.escape_ascii(), value.to_hex().as_str());
        }
    }
    all.insert(name, text);
    if kind.is_dir() {
        for entry in sorted(path) {
            describe_below(top, &entry, has_times, all, inodes);
        }
    }
}

/// Runs a program with a mask of modes, in a directory.
fn masked(program: &Path, args: &[&str], directory: &Path) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 027; exec \"$@\"", "sh"]).arg(program).args(args);
    command.current_dir(directory).env("LC_ALL", "C").env_remove("SHEAF_ARCHIVE");
    command.output().unwrap()
}

fn ours(args: &[&str], directory: &Path) -> Output {
    let args = [&["archive", "cp"], args].concat();
    masked(Path::new(built("sheaf")), &args, directory)
}

#[track_caller]
fn assert_same(ours: &Path, theirs: &Path, has_times: bool, of: &dyn std::fmt::Debug) {
    let (ours, theirs) = (describe(ours, has_times), describe(theirs, has_times));
    for (name, is) in &theirs {
        assert_eq!(ours.get(name), Some(is), "{of:?}: {name}");
    }
    assert_eq!(ours.len(), theirs.len(), "{of:?}");
}

/// Each program has a directory with the same in it. Times of what is new are those of now.
fn beside(args: &[&str], keeps_times: bool, fill: impl Fn(&Path)) {
    let home = Home::new();
    for place in ["ours", "theirs"] {
        let place = home.path().join(place);
        fs::create_dir(&place).unwrap();
        make(&place.join("tree"));
        fill(&place);
    }
    let theirs = masked(Path::new("cp"), args, &home.path().join("theirs"));
    let run = ours(args, &home.path().join("ours"));
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.success(), theirs.status.success(), "{args:?}: {run:?} {theirs:?}");
    let (one, other) = (home.path().join("ours"), home.path().join("theirs"));
    // Of the directories that are copied into, times are those of now.
    let both = |name: &str| one.join(name).exists() || other.join(name).exists();
    let mut names = vec!["new", "d/tree", "d/sub", "d", "there"];
    // GNU cp begins to copy a directory into itself before it notices.
    names.extend(theirs.status.success().then_some("tree"));
    for name in names.into_iter().filter(|name| both(name)) {
        let has_times = keeps_times && !matches!(name, "d" | "there" | "tree");
        assert_same(&one.join(name), &other.join(name), has_times, &(args, &said));
    }
}

#[test]
fn tree_of_this_machine_is_copied_as_by_cp() {
    for (args, keeps_times) in [
        (&["-a", "tree", "new"][..], true),
        (&["-r", "tree", "new"], false),
        (&["-rp", "tree", "new"], true),
        (&["-a", "tree", "d"], true),
        (&["-aT", "tree", "d"], true),
        (&["-a", "tree/.", "d"], true),
        (&["-a", "tree/sub", "tree/sub.d", "tree/links", "d"], false),
        (&["-R", "tree/", "new/"], false),
    ] {
        beside(args, keeps_times, |place| fs::create_dir(place.join("d")).unwrap());
    }
}

#[test]
fn times_owners_and_all_are_those_of_the_source() {
    let home = Home::new();
    make(&home.path().join("tree"));
    let before = describe_times(&home.path().join("tree"));
    let run = ours(&["-a", "tree", "new"], home.path());
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    assert_eq!(describe_times(&home.path().join("new")), before);
    let names = before.len();
    let directories = 10;
    let text = format!("sheaf: copied {} files (", names - directories);
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(said.starts_with(&text), "{said}");
    assert!(said.ends_with(&format!(") and {directories} directories\n")), "{said}");
}

/// Times of all files, by paths.
fn describe_times(top: &Path) -> BTreeMap<PathBuf, [i64; 4]> {
    let mut all = BTreeMap::new();
    let mut next = vec![top.to_owned()];
    while let Some(path) = next.pop() {
        let found = fs::symlink_metadata(&path).unwrap();
        let times = [found.atime(), found.atime_nsec(), found.mtime(), found.mtime_nsec()];
        // Who lists a directory reads it.
        let times = if found.is_dir() { [0, 0, times[2], times[3]] } else { times };
        all.insert(path.strip_prefix(top).unwrap().to_owned(), times);
        if found.is_dir() {
            next.extend(sorted(&path));
        }
    }
    all
}

#[test]
fn existing_destination_files_are_handled_as_by_cp() {
    let fill = |place: &Path| {
        let there = place.join("d/tree");
        fs::create_dir_all(there.join("sub")).unwrap();
        fs::create_dir_all(there.join("many")).unwrap();
        // Written into, with its own mode, or not where all is kept.
        fs::write(there.join("a"), vec![b'o'; 50_000]).unwrap();
        set_mode(&there.join("a"), 0o606);
        fs::hard_link(there.join("a"), place.join("other-a")).unwrap();
        set_xattr(&there.join("a"), ACL, &acl());
        fs::write(there.join("sub/b"), "other").unwrap();
        fs::write(there.join("many/7"), "other").unwrap();
        symlink("elsewhere", there.join("link")).unwrap();
        fs::write(there.join("broken"), "a file").unwrap();
        fs::write(there.join("fifo"), "a file").unwrap();
        fs::write(there.join("not-in-the-source"), "stays").unwrap();
        set_mode(&there.join("sub"), 0o710);
        age(&there, 5000);
    };
    beside(&["-a", "tree", "d"], true, fill);
    beside(&["-r", "tree", "d"], false, fill);
    beside(&["-rp", "tree", "d"], true, fill);
    beside(&["-rn", "tree", "d"], false, fill);
    beside(&["-an", "tree", "d"], true, fill);
    // A directory and a file do not replace each other.
    let crossed = |place: &Path| {
        fs::create_dir_all(place.join("d/tree/a")).unwrap();
        fs::write(place.join("d/tree/sub"), "file").unwrap();
        symlink("many", place.join("d/tree/links")).unwrap();
    };
    beside(&["-a", "tree", "d"], false, crossed);
}

#[test]
fn files_that_are_named_are_copied_as_by_cp() {
    let fill = |place: &Path| {
        fs::create_dir(place.join("d")).unwrap();
        fs::write(place.join("there"), "there").unwrap();
        symlink("there", place.join("to-there")).unwrap();
        symlink("tree/a", place.join("to-a")).unwrap();
    };
    for args in [
        &["tree/a", "new"][..],
        &["-p", "tree/a", "new"],
        &["tree/a", "tree/sub/b", "tree/holes", "d"],
        &["-p", "tree/sub/ ", "d"],
        &["to-a", "new"],
        &["-r", "to-a", "new"],
        &["-a", "tree/link", "d"],
        &["tree", "new"],
        &["tree/none", "tree/a", "d"],
        &["tree/a", "new/"],
        &["tree/a", "tree/sub/b", "new"],
        &["-T", "tree/a", "d"],
        &["-r", "tree/sub", "there"],
        &["tree/a", "tree/a"],
        &["tree/sub/b", "tree/links/z"],
        &["-a", "tree/sub", "tree/sub/.hidden/deep"],
        &["-r", "tree/.", "tree/links"],
        &["-aT", "tree", "tree"],
    ] {
        beside(args, args.contains(&"-p") || args.contains(&"-a"), fill);
    }
    // Through a link that is named, into the file.
    let home = Home::new();
    fill(home.path());
    fs::write(home.path().join("a"), "new text").unwrap();
    assert_eq!(ours(&["a", "to-there"], home.path()).status.code(), Some(0));
    assert_eq!(fs::read(home.path().join("there")).unwrap(), b"new text");
    fs::remove_file(home.path().join("there")).unwrap();
    let run = ours(&["a", "to-there"], home.path());
    assert_eq!(run.status.code(), Some(4), "{run:?}");
    assert!(!home.path().join("there").exists());
}

fn told(run: &Run) -> Vec<&str> {
    let mut lines: Vec<_> = run.stderr.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn nothing_goes_into_itself_or_over_what_was_just_made() {
    let home = Home::new();
    fs::create_dir_all(home.path().join("a/in/deep")).unwrap();
    fs::create_dir_all(home.path().join("other/a")).unwrap();
    fs::create_dir_all(home.path().join("d")).unwrap();
    for name in ["a/f", "other/f", "other/a/g", "other/a/f", "f"] {
        fs::write(home.path().join(name), name).unwrap();
    }
    symlink("../a", home.path().join("d/to-a")).unwrap();
    let before = describe(&home.path().join("a"), true);
    for args in [
        ["-r", "a", "a"],
        ["-r", "a", "a/in"],
        ["-r", "a", "a/in/new"],
        ["-a", "a", "d/to-a"],
        ["-a", "a/.", "a/in/deep"],
        ["-r", "a", "."],
    ] {
        let run = home.run(&[&["archive", "cp"], &args[..]].concat());
        assert_eq!(run.code, Some(4), "{args:?} {run:?}");
        assert_eq!(describe(&home.path().join("a"), true), before, "{args:?}");
    }
    let run = home.run(&["archive", "cp", "-r", "a", "a/in/new"]);
    assert_eq!(
        told(&run),
        [
            "sheaf: a: a directory is not copied into itself: Invalid argument (EINVAL)",
            "sheaf: copied 0 files (0) and 0 directories, 1 failed",
        ]
    );
    // The first of a name stays, and directories are joined.
    let run = home.run(&["archive", "cp", "-r", "f", "a", "other/f", "other/a", "d"]);
    assert_eq!(run.code, Some(4), "{run:?}");
    let line = "sheaf: d/f: was made just now of another source: File exists (EEXIST)";
    assert!(told(&run).contains(&line), "{run:?}");
    assert_eq!(fs::read(home.path().join("d/f")).unwrap(), b"f");
    assert_eq!(fs::read(home.path().join("d/a/f")).unwrap(), b"other/a/f");
    assert_eq!(fs::read(home.path().join("d/a/g")).unwrap(), b"other/a/g");
    assert!(home.path().join("d/a/in/deep").is_dir());
}

#[test]
fn no_link_leads_a_copy_out_of_its_target() {
    let home = Home::new();
    let at = |name: &str| home.path().join(name);
    fs::create_dir_all(at("tree/sub")).unwrap();
    fs::write(at("tree/sub/f"), "new").unwrap();
    fs::write(at("tree/g"), "new").unwrap();
    fs::create_dir_all(at("elsewhere")).unwrap();
    fs::write(at("elsewhere/g"), "old").unwrap();
    fs::create_dir_all(at("d/tree")).unwrap();
    symlink(at("elsewhere"), at("d/tree/sub")).unwrap();
    symlink(at("elsewhere/g"), at("d/tree/g")).unwrap();
    for how in ["-r", "-a"] {
        let run = home.run(&["archive", "cp", how, "tree", "d"]);
        assert_eq!(run.code, Some(4), "{run:?}");
        assert_eq!(
            told(&run)[1],
            "sheaf: d/tree/sub: a directory does not replace a file: Not a directory (ENOTDIR)"
        );
        assert_eq!(fs::read(at("elsewhere/g")).unwrap(), b"old");
        assert_eq!(fs::read_dir(at("elsewhere")).unwrap().count(), 1);
        assert_eq!(fs::read(at("d/tree/g")).unwrap(), b"new");
        fs::remove_file(at("d/tree/g")).unwrap();
        symlink(at("elsewhere/g"), at("d/tree/g")).unwrap();
    }
    // A pipe or device is nothing to write a file to.
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    let run = home.run(&["archive", "cp", "tree/g", "pipe"]);
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(fs::symlink_metadata(at("pipe")).unwrap().file_type().is_fifo());
}

#[test]
fn two_sources_for_two_names_of_one_file_are_not_mixed() {
    let home = Home::new();
    for directory in ["tree", "d/tree"] {
        fs::create_dir_all(home.path().join(directory)).unwrap();
    }
    let place = |name: &str| home.path().join(name);
    fs::write(place("d/tree/00"), "there").unwrap();
    // Each long enough to be a job of its own.
    for number in 0..12u8 {
        let bytes = vec![number; 1_100_000 + usize::from(number) * 50_000];
        fs::write(place(&format!("tree/{number:02}")), bytes).unwrap();
        if number > 0 {
            fs::hard_link(place("d/tree/00"), place(&format!("d/tree/{number:02}"))).unwrap();
        }
    }
    for _ in 0..5 {
        assert_eq!(ours(&["-r", "tree", "d"], home.path()).status.code(), Some(0));
        let found = fs::read(place("d/tree/00")).unwrap();
        let source = fs::read(place(&format!("tree/{:02}", found[0]))).unwrap();
        assert!(found == source, "{} of {} bytes", found.len(), source.len());
    }
}

#[test]
fn unprivileged_copy_reports_unreadable_and_unwritable_paths() {
    let home = Home::new();
    let tree = home.path().join("tree");
    make(&tree);
    for path in [home.path(), &tree] {
        set_mode(path, 0o755);
    }
    set_mode(&tree.join("sub"), 0o700);
    set_mode(&tree.join("many/7"), 0o000);
    let to = home.path().join("to");
    fs::create_dir(&to).unwrap();
    set_mode(&to, 0o777);
    fs::create_dir(home.path().join("not-mine")).unwrap();
    // Whoever may not come to where the program was built runs it as it was opened here.
    let open = fs::File::open(built("sheaf-archive")).unwrap();
    let program = format!("/proc/self/fd/{}", open.as_raw_fd());
    let command = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["archive", "cp"]).args(args).current_dir(home.path());
        command.env_clear().env("HOME", home.path());
        command
    };
    let (mut first, mut second) =
        (command(&["-a", "tree", "to"]), command(&["-r", "tree", "not-mine"]));
    as_nobody(move || {
        let run = first.output().unwrap();
        assert_eq!(run.status.code(), Some(4), "{run:?}");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        for line in [
            "sheaf: tree/sub: cannot be read: Permission denied (EACCES)\n",
            "sheaf: tree/many/7: cannot be read: Permission denied (EACCES)\n",
        ] {
            assert!(said.contains(line), "{said}");
        }
        let run = second.output().unwrap();
        assert_eq!(run.status.code(), Some(4), "{run:?}");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        let line = "sheaf: not-mine/tree: cannot be written: Permission denied (EACCES)\n";
        assert!(said.starts_with(line), "{said}");
    });
    let copied = fs::metadata(to.join("tree/many/8")).unwrap();
    let source = fs::metadata(tree.join("many/8")).unwrap();
    assert_eq!((copied.mtime(), copied.mtime_nsec()), (source.mtime(), source.mtime_nsec()));
    assert_eq!(copied.mode(), source.mode());
    assert_eq!(fs::metadata(to.join("tree/closed")).unwrap().mode() & 0o7777, 0o500);
    assert!(!to.join("tree/many/7").exists());
}

#[test]
fn full_disk_is_named_and_nothing_half_stays() {
    let home = Home::new();
    let (tree, full) = (home.path().join("tree"), home.path().join("full"));
    fs::create_dir(&tree).unwrap();
    fs::create_dir(&full).unwrap();
    for number in 0..20 {
        fs::write(tree.join(format!("{number:02}")), vec![1; 100_000]).unwrap();
    }
    fs::write(tree.join("small"), "small").unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(&full);
    if !mount.output().is_ok_and(|output| output.status.success()) {
        return sheaf_testing::skipped("this user may mount nothing");
    }
    let run = home.run(&["archive", "cp", "-a", "tree", "full"]);
    let mut copied: Vec<_> =
        sorted(&full.join("tree")).iter().map(|path| fs::metadata(path).unwrap().len()).collect();
    Command::new("umount").arg(&full).status().unwrap();
    assert_eq!(run.code, Some(4), "{run:?}");
    let full = run.stderr.lines().filter(|line| {
        line.starts_with("sheaf: full/tree/")
            && line.ends_with(": cannot be written: No space left on device (ENOSPC)")
    });
    let failed = full.count();
    assert!(run.stderr.ends_with(&format!(", {failed} failed\n")) && failed > 8, "{run:?}");
    assert_eq!(copied.len() + failed, 21);
    copied.retain(|size| !matches!(size, 5 | 100_000));
    assert_eq!(copied, Vec::<u64>::new());
}

/// With a list, the group's bits are the most that anybody of the list may.
#[test]
fn access_list_that_is_lost_is_named_and_narrows_the_mode() {
    let home = Home::new();
    let (file, full) = (home.write("tree/f", "content"), home.path().join("ram"));
    fs::create_dir(&full).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut list = Command::new("setfacl");
    list.args(["-m", "u:12345:rw"]).arg(&file);
    if !list.output().is_ok_and(|output| output.status.success()) {
        return sheaf_testing::skipped("there is no setfacl");
    }
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o660);
    let mut mount = Command::new("mount");
    mount.args(["-t", "ramfs", "none"]).arg(&full);
    if !mount.output().is_ok_and(|output| output.status.success()) {
        return sheaf_testing::skipped("this user may mount nothing");
    }
    let run = home.run(&["archive", "cp", "-a", "tree", "ram"]);
    let copied = fs::metadata(full.join("tree/f")).map(|copied| copied.mode() & 0o777);
    Command::new("umount").arg(&full).status().unwrap();
    assert_eq!((run.code, copied.unwrap()), (Some(0), 0o600), "{run:?}");
    let told = "sheaf: ram/tree/f: its attribute system.posix_acl_access cannot be set: \
                Operation not supported (EOPNOTSUPP); of other files this is only counted\n";
    assert!(run.stderr.starts_with(told), "{run:?}");
    assert!(run.stderr.ends_with(", 1 attributes not kept\n"), "{run:?}");
}

#[test]
fn dry_run_copies_nothing_and_counts_the_same() {
    for how in ["-a", "-an"] {
        let home = Home::new();
        make(&home.path().join("tree"));
        fs::create_dir_all(home.path().join("d/tree/sub")).unwrap();
        fs::write(home.path().join("d/tree/a"), "there").unwrap();
        let before = describe(&home.path().join("d"), true);
        let dry = home.run(&["archive", "cp", how, "--dry-run", "tree", "d"]);
        assert_eq!(dry.code, Some(0), "{dry:?}");
        assert_eq!(describe(&home.path().join("d"), true), before);
        let wet = home.command(&["archive", "cp", "-v", how, "tree", "d"]).output().unwrap();
        // Not all names are text.
        let (said, told) =
            (String::from_utf8_lossy(&wet.stdout), String::from_utf8(wet.stderr).unwrap());
        assert_eq!(wet.status.code(), Some(0), "{told}");
        let files = |text: &str| text.split(" files ").next().unwrap().to_owned();
        let same = dry.stderr.replace("would copy", "copied");
        let same = same.strip_prefix("sheaf: tree -> d/tree\n").unwrap();
        assert_eq!(files(same), files(&told));
        assert!(told.starts_with("sheaf: copied "), "{told}");
        assert!(said.contains("'tree/sub/b' -> 'd/tree/sub/b'\n"), "{said}");
        assert_eq!(told.ends_with(", 1 kept as they were\n"), how == "-an", "{told}");
    }
}

#[test]
fn names_of_an_archive_and_paths_are_not_copied_to_each_other() {
    let home = Home::new();
    fs::create_dir(home.path().join("tree")).unwrap();
    assert_eq!(home.run(&["archive", "store", "--create", "tree", "s::"]).code, Some(0));
    for args in [["tree", "s::x"], ["s::tree", "x"]] {
        let run = home.run(&[&["archive", "cp", "-r"], &args[..]].concat());
        assert_eq!(run.code, Some(2), "{run:?}");
        let text = "sheaf: files of this machine or of hosts go into an archive by store, and out of it by \
                    get\n";
        assert_eq!(run.stderr, text);
    }
    let run = home.run(&["archive", "cp", "tree", "tree", "none"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    let run = home.run(&["archive", "cp", "-r", "--local", "tree", "odd::name"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(home.path().join("odd::name").is_dir());
}

/// A link that is copied to where it leads would leave nothing of either; and what has no content takes the
/// place of a link that is named, and not of what that leads to.
#[test]
fn link_does_not_take_the_place_of_what_it_leads_to() {
    const NAMES: [&str; 7] = ["real", "farm", "other", "file", "link", "elsewhere", "source"];
    let make = |at: &Path| {
        for directory in ["real", "farm", "other"] {
            fs::create_dir_all(at.join(directory)).unwrap();
        }
        for file in ["file", "real/a", "real/b", "other/t"] {
            fs::write(at.join(file), file).unwrap();
        }
        symlink("file", at.join("link")).unwrap();
        symlink("other/t", at.join("elsewhere")).unwrap();
        symlink("nowhere", at.join("source")).unwrap();
        for file in ["a", "b"] {
            symlink(at.join("real").join(file), at.join("farm").join(file)).unwrap();
        }
    };
    for args in [
        &["-a", "link", "file"][..],
        &["-rP", "link", "./file"],
        &["-a", "farm/.", "real"],
        &["-a", "farm/a", "real/b"],
        &["-a", "source", "elsewhere"],
        &["-a", "farm/a", "elsewhere"],
        &["-a", "link", "link"],
        &["-a", "link", "elsewhere"],
    ] {
        let (ours, theirs) = (Home::new(), Home::new());
        make(ours.path());
        make(theirs.path());
        let run = ours.run(&[&["archive", "cp"], args].concat());
        let mut cp = Command::new("cp");
        let gnu = cp.args(args).current_dir(theirs.path()).output().unwrap();
        assert_eq!(run.code == Some(0), gnu.status.success(), "{args:?}: {run:?} {gnu:?}");
        let listed = |at: &Path| {
            let mut find = Command::new("find");
            let found =
                find.args(NAMES).args(["-printf", "%p %y\\n"]).current_dir(at).output().unwrap();
            let mut lines: Vec<_> = found.stdout.split(|byte| *byte == b'\n').collect();
            lines.sort();
            lines.join(&b'\n')
        };
        assert_eq!(listed(ours.path()), listed(theirs.path()), "{args:?}");
        for file in ["file", "real/a", "real/b", "other/t"] {
            let is = |at: &Path| fs::read(at.join(file)).ok();
            assert_eq!(is(ours.path()), is(theirs.path()), "{args:?}: {file}");
        }
    }
}
