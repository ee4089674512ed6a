//! Trees of this machine changed, beside what coreutils do.
use crate::trees::{make_everything, seen};
use sheaf_archive::{
    LocalModes, LocalRemoveError, LocalRemoveOptions, LocalRemoveStep, LocalRemoved, ModesTold,
    TreeWalk, TreeWalkOptions, change_local_modes, remove_local,
};
use sheaf_core::Errno;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const RECURSIVE: LocalRemoveOptions = LocalRemoveOptions {
    recursive: true,
    empty_directories: false,
    force: false,
    tells_names: true,
    root_too: false,
    dry_run: false,
};

/// What was removed, its names and its errors.
fn removed(
    path: &Path,
    options: LocalRemoveOptions,
) -> (LocalRemoved, Vec<PathBuf>, Vec<(PathBuf, LocalRemoveError)>) {
    use std::os::unix::ffi::OsStrExt;
    let path_of = |path: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(path));
    let (mut names, mut errors) = (Vec::new(), Vec::new());
    let done = remove_local(path, options, &mut |step| {
        match step {
            LocalRemoveStep::Removed { path, .. } => names.push(path_of(path)),
            LocalRemoveStep::Failed { path, why } => errors.push((path_of(path), why)),
        }
        Ok::<_, std::convert::Infallible>(())
    });
    (done.unwrap(), names, errors)
}

#[test]
fn tree_is_removed_whole_and_no_link_is_followed() {
    let place = tempfile::tempdir().unwrap();
    let (tree, outside) = (place.path().join("tree"), place.path().join("outside"));
    make_everything(&tree);
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("stays"), "").unwrap();
    symlink(&outside, tree.join("d/to-outside")).unwrap();
    let mut expected: Vec<_> =
        TreeWalk::new(&tree, TreeWalkOptions::default()).map(|entry| entry.path).collect();
    let (done, mut names, errors) = removed(&tree, RECURSIVE);
    assert_eq!(errors, []);
    assert_eq!((done.files + done.directories) as usize, expected.len());
    assert_eq!(names.last(), Some(&tree), "a directory goes behind what is in it");
    expected.sort();
    names.sort();
    assert_eq!(names, expected);
    assert!(!tree.exists() && outside.join("stays").exists());
    // A link to a directory goes itself, and not by the name of what it leads to.
    let link = place.path().join("link");
    symlink(&outside, &link).unwrap();
    let with_slash = place.path().join("link/");
    let not = LocalRemoveError::System(Errno::NOTDIR);
    assert_eq!(removed(&with_slash, RECURSIVE).2, [(with_slash.clone(), not)]);
    assert_eq!(removed(&link, RECURSIVE).0.files, 1);
    assert!(outside.join("stays").exists() && link.symlink_metadata().is_err());
}

#[test]
fn local_remove_refuses_root_dot_and_missing_paths() {
    let place = tempfile::tempdir().unwrap();
    let here = place.path();
    fs::create_dir(here.join("d")).unwrap();
    for (path, why) in [
        (PathBuf::from("/"), LocalRemoveError::Root),
        ("//".into(), LocalRemoveError::Root),
        ("/usr/../".into(), LocalRemoveError::Dots),
        (here.join("."), LocalRemoveError::Dots),
        (here.join("d/.."), LocalRemoveError::Dots),
        (here.join("d/./"), LocalRemoveError::Dots),
        (here.join("none"), LocalRemoveError::System(Errno::NOENT)),
    ] {
        let (done, names, errors) = removed(&path, RECURSIVE);
        assert_eq!((done.failed, names), (1, Vec::new()));
        assert_eq!(errors, [(path, why)]);
    }
    let plain = LocalRemoveOptions { recursive: false, ..RECURSIVE };
    assert_eq!(removed(&here.join("d"), plain).2[0].1, LocalRemoveError::Directory);
    let forced = LocalRemoveOptions { force: true, ..RECURSIVE };
    assert_eq!(removed(&here.join("none"), forced).2, []);
    assert!(here.join("d").exists());
}

#[test]
fn unremovable_files_are_reported_once_and_the_rest_removed() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    fs::create_dir_all(tree.join("a/closed")).unwrap();
    fs::create_dir_all(tree.join("a/unread")).unwrap();
    fs::create_dir_all(tree.join("b")).unwrap();
    for name in ["a/closed/1", "a/closed/2", "a/unread/3", "a/4", "b/5"] {
        fs::write(tree.join(name), "").unwrap();
    }
    for path in [place.path(), &tree, &tree.join("a"), &tree.join("b")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    fs::set_permissions(tree.join("a/closed"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(tree.join("a/unread"), fs::Permissions::from_mode(0o700)).unwrap();
    let done = sheaf_testing::as_nobody(|| removed(&tree, RECURSIVE));
    let Some((done, _, errors)) = done else { return };
    let no = |path: &str, errno| (tree.join(path), LocalRemoveError::System(errno));
    let expected = [
        no("a/closed/1", Errno::ACCES),
        no("a/closed/2", Errno::ACCES),
        no("a/unread", Errno::ACCES),
    ];
    assert_eq!(errors, expected);
    assert_eq!(done, LocalRemoved { files: 2, directories: 1, failed: 3 });
    assert!(tree.join("a/unread/3").exists() && !tree.join("b").exists());
}

#[test]
fn modes_are_changed_as_by_chmod_and_only_where_they_differ() {
    let place = tempfile::tempdir().unwrap();
    let (ours, theirs) = (place.path().join("ours"), place.path().join("theirs"));
    make_everything(&ours);
    // `cp` takes no path as long as that of what is here.
    assert_eq!(removed(&ours.join("x".repeat(250)), RECURSIVE).0.failed, 0);
    let outside = place.path().join("outside");
    fs::write(&outside, "").unwrap();
    let before = fs::metadata(&outside).unwrap();
    symlink(&outside, ours.join("d/to-outside")).unwrap();
    let copied = Command::new("cp").args(["-a"]).args([&ours, &theirs]).status().unwrap();
    assert!(copied.success());
    // go-w,u+rwX
    let mode = |old: u32, is_directory: bool| {
        let x = if is_directory || old & 0o111 != 0 { 0o700 } else { 0o600 };
        (old & !0o022) | x
    };
    let change = |dry_run| {
        let tells = ModesTold::Nothing;
        let modes = LocalModes { mode: Box::new(mode), recursive: true, dry_run, tells };
        let done = change_local_modes(&ours, modes, &mut |step| Err(format!("{step:?}")));
        done.unwrap()
    };
    let would = change(true);
    let done = change(false);
    assert_eq!(would, done);
    assert!(done.changed > 0 && done.unchanged > 0);
    let chmod = Command::new("chmod").args(["-R", "go-w,u+rwX"]).arg(&theirs).status().unwrap();
    assert!(chmod.success());
    assert_eq!(seen(&ours), seen(&theirs));
    let again = change(false);
    assert_eq!((again.changed, again.unchanged), (0, done.changed + done.unchanged));
    let now = fs::metadata(&outside).unwrap();
    assert_eq!(before.permissions(), now.permissions(), "a link below is not followed");
}

/// What the test below asks a process of its own to walk.
const WALKED_BY_CHILD: &str = "SHEAF_TEST_WALKED";

#[test]
fn walk_takes_little_memory_whatever_the_tree() {
    if let Some(path) = std::env::var_os(WALKED_BY_CHILD) {
        let count = TreeWalk::new(Path::new(&path), TreeWalkOptions::default()).count();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        println!("\nwalked {count} {}", peak.trim().trim_end_matches(" kB"));
        return;
    }
    const IN_ONE: usize = 150_000;
    let shm = Path::new("/dev/shm");
    let place = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.unwrap();
    let peak = |path: &Path, count: usize| -> u64 {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "local::walk_takes_little_memory_whatever_the_tree", "--nocapture"])
            .env(WALKED_BY_CHILD, path)
            .output()
            .unwrap();
        let text = String::from_utf8(child.stdout).unwrap();
        let told = text.lines().find_map(|line| line.strip_prefix("walked ")).unwrap().to_owned();
        let (walked, kilobytes) = told.split_once(' ').unwrap();
        assert_eq!(walked.parse(), Ok(count));
        kilobytes.parse().unwrap()
    };
    let nothing = place.path().join("nothing");
    fs::create_dir(&nothing).unwrap();
    let base = peak(&nothing, 1);
    // Many in one directory, and as many in several.
    let (one, many) = (place.path().join("one"), place.path().join("many"));
    fs::create_dir(&one).unwrap();
    for number in 0..IN_ONE {
        fs::File::create(one.join(format!("a-file-{number}"))).unwrap();
    }
    for directory in 0..IN_ONE / 500 {
        let directory = many.join(directory.to_string());
        fs::create_dir_all(&directory).unwrap();
        for number in 0..500 {
            fs::File::create(directory.join(format!("a-file-{number}"))).unwrap();
        }
    }
    // 32 MiB wait for their turn at most, and names take some 25 bytes where they are in one directory.
    for (path, count) in [(&one, IN_ONE + 1), (&many, IN_ONE + IN_ONE / 500 + 1)] {
        let took = peak(path, count) - base;
        assert!(took < 64 << 10, "{count} names took {took} KiB");
    }
}
