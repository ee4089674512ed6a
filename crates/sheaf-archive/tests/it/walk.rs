//! A tree is found whole and in order, however many read it.
use sheaf_archive::{TreeEntry, TreeWalk, TreeWalkOptions};
use sheaf_core::Errno;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Few threads and little room, many and much, and none beside this one.
const WAYS: [TreeWalkOptions; 5] =
    [way(0, 0, 0), way(1, 1, 1), way(2, 32, 1 << 20), way(8, 8, 4000), way(32, 32, 1 << 20)];

const fn way(workers: usize, workers_max: usize, waiting_bytes_max: usize) -> TreeWalkOptions {
    TreeWalkOptions { workers, workers_max, waiting_bytes_max, follows_start: false }
}

/// The same by the standard library, one directory after the other.
fn one_by_one(path: &Path, out: &mut Vec<(PathBuf, u64)>) {
    out.push((path.to_owned(), std::fs::symlink_metadata(path).unwrap().ino()));
    if std::fs::symlink_metadata(path).unwrap().is_dir() {
        let mut names: Vec<_> =
            std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
        names.iter().for_each(|path| one_by_one(path, out));
    }
}

fn walked(path: &Path, options: TreeWalkOptions) -> Vec<(PathBuf, u64)> {
    let inode = |entry: TreeEntry| (entry.path, entry.found.unwrap().ino);
    TreeWalk::new(path, options).map(inode).collect()
}

/// Directories of many shapes: deep, wide, empty, longer than what is read at once, names that sort
/// otherwise with a slash behind them, links, and what is no file.
fn grown() -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    let root = tree.path();
    let mut random = 7u64;
    for wide in 0..40 {
        let directory = root.join(format!("wide-{wide}"));
        std::fs::create_dir(&directory).unwrap();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        for file in 0..(random >> 33) % 60 {
            let name = directory.join(format!("{file}"));
            if file % 5 == 3 {
                std::fs::create_dir_all(name.join("a/b")).unwrap();
                std::fs::write(name.join("a.b"), "").unwrap();
                std::fs::write(name.join("a/b/c"), "").unwrap();
            } else {
                std::fs::write(name, "").unwrap();
            }
        }
    }
    let long = root.join("long");
    std::fs::create_dir(&long).unwrap();
    for file in 0..3_000 {
        if file % 100 == 0 {
            std::fs::create_dir(long.join(format!("{file:04}"))).unwrap();
            std::fs::write(long.join(format!("{file:04}/in")), "").unwrap();
        } else {
            std::fs::write(long.join(format!("{file:04}")), "").unwrap();
        }
    }
    let mut deep = root.join("deep");
    for _ in 0..60 {
        std::fs::create_dir(&deep).unwrap();
        std::fs::write(deep.join("e"), "").unwrap();
        deep.push("f");
    }
    symlink("..", root.join("up")).unwrap();
    symlink("nowhere", root.join("gone")).unwrap();
    tree
}

#[test]
fn tree_is_found_in_order_however_many_read_it() {
    let tree = grown();
    let mut expected = Vec::new();
    one_by_one(tree.path(), &mut expected);
    assert!(expected.len() > 4_000);
    for way in WAYS {
        for _ in 0..5 {
            assert_eq!(walked(tree.path(), way), expected, "{way:?}");
        }
    }
}

#[test]
fn file_alone_is_a_tree_and_nothing_is_told_as_that() {
    let tree = tempfile::tempdir().unwrap();
    let (file, link) = (tree.path().join("file"), tree.path().join("link"));
    std::fs::write(&file, "").unwrap();
    symlink(".", &link).unwrap();
    for way in WAYS {
        assert_eq!(walked(&file, way).len(), 1);
        assert_eq!(walked(&link, way).len(), 1);
        let gone = tree.path().join("gone");
        let mut walk = TreeWalk::new(&gone, way);
        assert_eq!(walk.next(), Some(TreeEntry { path: gone.clone(), found: Err(Errno::NOENT) }));
        assert_eq!(walk.next(), None);
    }
}

/// A path may be longer than the kernel takes.
#[test]
fn path_may_be_longer_than_4096_bytes() {
    let tree = tempfile::tempdir().unwrap();
    let name = "n".repeat(200);
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY;
    let mode = rustix::fs::Mode::from_raw_mode(0o755);
    let mut at = rustix::fs::open(tree.path(), flags, mode).unwrap();
    for _ in 0..30 {
        rustix::fs::mkdirat(&at, &*name, mode).unwrap();
        at = rustix::fs::openat(&at, &*name, flags, mode).unwrap();
    }
    for way in WAYS {
        let all: Vec<_> = TreeWalk::new(tree.path(), way).collect();
        assert!(all.len() == 31 && all.iter().all(|entry| entry.found.is_ok()), "{way:?}");
        assert!(all[30].path.as_os_str().len() > 6_000);
    }
}

#[test]
fn directory_that_cannot_be_read_costs_what_is_in_it() {
    let tree = tempfile::tempdir().unwrap();
    std::fs::set_permissions(tree.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for name in ["a", "b", "c"] {
        std::fs::create_dir(tree.path().join(name)).unwrap();
        std::fs::write(tree.path().join(name).join("in"), "").unwrap();
    }
    let closed = tree.path().join("closed");
    std::fs::DirBuilder::new().mode(0o700).create(&closed).unwrap();
    std::fs::write(closed.join("in"), "").unwrap();
    sheaf_testing::as_nobody(|| {
        for way in WAYS {
            let all: Vec<_> = TreeWalk::new(tree.path(), way).collect();
            let told = |entry: &TreeEntry| {
                let path = entry.path.strip_prefix(tree.path()).unwrap().display().to_string();
                (path, entry.found.as_ref().err().copied())
            };
            let ok = |path: &str| (path.to_owned(), None);
            let expected = [
                ok(""),
                ok("a"),
                ok("a/in"),
                ok("b"),
                ok("b/in"),
                ok("c"),
                ok("c/in"),
                ok("closed"),
                ("closed".to_owned(), Some(Errno::ACCES)),
            ];
            assert_eq!(all.iter().map(told).collect::<Vec<_>>(), expected, "{way:?}");
        }
    });
}

/// Who asks for little gets little, and leaves no threads behind that wait.
#[test]
fn walk_that_is_dropped_is_over() {
    let tree = grown();
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| std::fs::read(task.unwrap().path().join("comm")).ok());
        names.filter(|name| name == b"dropped\n").count()
    };
    let run = || {
        for way in WAYS {
            for asked in [0, 1, 100] {
                assert_eq!(TreeWalk::named("dropped", tree.path(), way).take(asked).count(), asked);
            }
        }
    };
    run();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while threads() != 0 {
        assert!(std::time::Instant::now() < end, "{} threads are still there", threads());
        std::thread::yield_now();
    }
}

/// What comes and goes meanwhile is there or not; what stays is there, in order.
#[test]
fn walk_finds_stable_entries_while_others_come_and_go() {
    let tree = tempfile::tempdir().unwrap();
    for number in 0..1_500 {
        let stays = tree.path().join(format!("{number:04}-stays"));
        std::fs::create_dir(&stays).unwrap();
        std::fs::write(stays.join("in"), "").unwrap();
    }
    let goes = |number: usize| tree.path().join(format!("{number:04}-goes"));
    let is_over = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let end = Over(is_over.clone());
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for number in (0..1_500).step_by(7) {
                    std::fs::create_dir(goes(number)).unwrap();
                }
                for number in (0..1_500).step_by(7) {
                    std::fs::remove_dir(goes(number)).unwrap();
                }
            }
        });
        for round in 0..15 {
            let all = TreeWalk::new(tree.path(), WAYS[round % WAYS.len()]).map(|entry| entry.path);
            let mut all: Vec<_> = all.collect();
            assert!(all.is_sorted());
            all.retain(|path| !path.to_str().unwrap().ends_with("goes"));
            assert_eq!(all.len(), 3_001);
        }
        drop(end);
    });
}

/// Ends what goes on beside a test, also where that fails.
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
