//! Opening in two steps, with `open(2)` itself as the oracle.

use crate::tree;
use rustix::fs::CWD;
use sheaf_core::Errno;
use sheaf_file::{Export, Mode, OFlags};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const PATHS: &[&str] = &[
    "file",
    "dir",
    "none",
    "link",
    "dangling",
    "chain",
    "loop",
    "dirlink",
    "fifo",
    "file/",
    "none/",
    "link/",
    "dir/none",
    "none/none",
    ".",
    "dir/..",
    "file/x",
];

/// Besides the access mode.
const FLAGS: &[OFlags] = &[
    OFlags::CREATE,
    OFlags::EXCL,
    OFlags::TRUNC,
    OFlags::DIRECTORY,
    OFlags::NOFOLLOW,
    OFlags::PATH,
];

fn files() -> (TempDir, Export) {
    let (dir, export) = tree(&[
        "file",
        "dir/inside",
        "link -> file",
        "dangling -> dir/made",
        "chain -> dangling",
        "loop -> loop",
        "dirlink -> dir",
    ]);
    rustix::fs::mknodat(CWD, dir.path().join("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    (dir, export)
}

/// Kind, mode, and content or target of everything in a directory.
fn snapshot(dir: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for entry in ["", "dir"].iter().flat_map(|below| std::fs::read_dir(dir.join(below)).unwrap()) {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        let content = match metadata.file_type() {
            kind if kind.is_file() => std::fs::read(&path).unwrap(),
            kind if kind.is_symlink() => {
                std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            }
            _ => Vec::new(),
        };
        let name = path.strip_prefix(dir).unwrap().to_str().unwrap();
        all.insert(name.to_owned(), (metadata.mode(), content));
    }
    all
}

/// How often, and after how long, a pipe is looked at again.
const PIPE_TRIES: u32 = 100;
const PIPE_PAUSE: Duration = Duration::from_millis(10);

fn combinations() -> impl Iterator<Item = OFlags> {
    (0..4u32 << FLAGS.len()).map(|bits| {
        let chosen = FLAGS.iter().enumerate().filter(|(at, _)| bits >> (at + 2) & 1 == 1);
        // A pipe must not keep the test waiting.
        let mut access = OFlags::from_bits_retain(bits & 3) | OFlags::NONBLOCK;
        if bits.count_ones() % 2 == 1 {
            // With a bit that means nothing.
            access |= OFlags::APPEND | OFlags::from_bits_retain(1 << 26);
        }
        chosen.fold(access, |flags, (_, flag)| flags | *flag)
    })
}

/// What an open file is open for, and what it is.
fn opened(file: impl AsFd) -> (OFlags, u32) {
    let stat = rustix::fs::fstat(&file).unwrap();
    (rustix::fs::fcntl_getfl(file).unwrap(), stat.st_mode)
}

#[test]
fn open_and_settle_equal_open_and_undo_leaves_no_trace() {
    let (dir, export) = files();
    let (oracle, _) = files();
    let fresh = snapshot(dir.path());
    let mode = Mode::from_raw_mode(0o640);
    for flags in combinations() {
        for path in PATHS {
            let case = format!("{path} with {flags:?}");
            let is_pipe = *path == "fifo";
            let expect = || {
                let expected = rustix::fs::openat(CWD, oracle.path().join(path), flags, mode);
                expected.map(opened).map_err(Errno::from)
            };
            let mut expected = expect();

            let tried = export.open_tentative(Path::new(path), flags, mode);
            if let Ok(tentative) = &tried {
                tentative.undo(&export).unwrap();
            }
            assert_eq!(snapshot(dir.path()), fresh, "{case}, undone");

            let open = || {
                export.open_tentative(Path::new(path), flags, mode).map(|mut tentative| {
                    tentative.settle().unwrap();
                    opened(&tentative.file)
                })
            };
            let mut done = open();
            // From its fork to its exec, a child of another test has a pipe open that is open here.
            for _ in 0..PIPE_TRIES {
                if !is_pipe || done == expected {
                    break;
                }
                std::thread::park_timeout(PIPE_PAUSE);
                (expected, done) = (expect(), open());
            }
            assert_eq!(done, expected, "{case}");
            assert_eq!(snapshot(dir.path()), snapshot(oracle.path()), "{case}, done");
            assert!(is_pipe || tried.is_ok() == done.is_ok(), "{case}");
            for root in [dir.path(), oracle.path()].into_iter().filter(|_| done.is_ok()) {
                std::fs::write(root.join("file"), "file").unwrap();
                ["none", "dir/made", "dir/none"]
                    .iter()
                    .for_each(|made| drop(std::fs::remove_file(root.join(made))));
            }
        }
    }
}

#[test]
fn undo_removes_only_what_the_opening_made() {
    let (dir, export) = tree(&["victim", "other/made", "other/new"]);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let make = |path: &str| {
        export.open_tentative(Path::new(path), flags, Mode::from_raw_mode(0o600)).unwrap()
    };
    let at = |path: &str| dir.path().join(path);

    // Somebody else's file of the same name.
    let made = make("made");
    std::fs::rename(at("made"), at("elsewhere")).unwrap();
    std::fs::write(at("made"), "theirs").unwrap();
    made.undo(&export).unwrap();
    assert_eq!(std::fs::read(at("made")).unwrap(), b"theirs");

    // A link, to another file and to the one that was made.
    for target in ["victim", "moved"] {
        let made = make("linked");
        std::fs::rename(at("linked"), at("moved")).unwrap();
        std::os::unix::fs::symlink(target, at("linked")).unwrap();
        made.undo(&export).unwrap();
        assert_eq!(std::fs::read_link(at("linked")).unwrap(), Path::new(target));
        assert!(at(target).exists());
        std::fs::remove_file(at("linked")).unwrap();
    }

    // A directory on the way, which has become a link.
    std::fs::create_dir(at("way")).unwrap();
    let made = make("way/new");
    std::fs::rename(at("way"), at("gone")).unwrap();
    std::os::unix::fs::symlink("other", at("way")).unwrap();
    made.undo(&export).unwrap();
    assert_eq!(std::fs::read(at("other/new")).unwrap(), b"other/new");

    // What is gone needs no undoing.
    let made = make("short");
    std::fs::remove_file(at("short")).unwrap();
    made.undo(&export).unwrap();
}

#[test]
fn file_that_may_not_be_emptied_is_refused_before_any_is() {
    let (dir, export) = tree(&["log"]);
    let status =
        std::process::Command::new("chattr").arg("+a").arg(dir.path().join("log")).output();
    if !status.is_ok_and(|output| output.status.success()) {
        return crate::skipped("no file can be made append-only here");
    }
    for access in [OFlags::RDONLY, OFlags::WRONLY | OFlags::APPEND] {
        let opened = export.open_tentative(Path::new("log"), access | OFlags::TRUNC, Mode::empty());
        assert_eq!(opened.err(), Some(Errno::PERM));
    }
    let output =
        std::process::Command::new("chattr").arg("-a").arg(dir.path().join("log")).output();
    assert!(output.unwrap().status.success());
}
