//! Nothing leads out of an export.

use crate::tree;
use proptest::prelude::*;
use sheaf_core::Errno;
use sheaf_file::{Export, Follow, OFlags, Pattern, WalkOptions};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

fn read(export: &Export, path: &str) -> Result<String, Errno> {
    let mut text = String::new();
    export.open_read(Path::new(path))?.read_to_string(&mut text)?;
    Ok(text)
}

#[test]
fn dots_and_absolute_links_are_taken_within() {
    let (_dir, export) = tree(&[
        "etc/passwd",
        "abs -> /etc/passwd",
        "etc/up -> ../../../../etc/passwd",
        "chain -> /two",
        "two -> three/../etc/up",
        "three/",
        "out -> /",
        "loop -> loop",
    ]);
    for path in [
        "/etc/passwd",
        "etc/passwd",
        "../../etc/passwd",
        "/../../../etc/passwd",
        "abs",
        "/etc/up",
        "chain",
        "out/out/out/etc/passwd",
        "etc/../../..//./out/etc/up",
    ] {
        assert_eq!(read(&export, path).as_deref(), Ok("etc/passwd"), "{path}");
    }
    assert_eq!(read(&export, "../../etc/hostname"), Err(Errno::NOENT));
    assert_eq!(read(&export, "loop"), Err(Errno::LOOP));
    assert_eq!(read(&export, "out"), Err(Errno::ISDIR));
    assert_eq!(read(&export, ""), Err(Errno::NOENT));
    assert_eq!(read(&export, "etc/passwd/x"), Err(Errno::NOTDIR));
    assert_eq!(read(&export, "a\0b"), Err(Errno::INVAL));
    // Longer than the kernel takes at once is no reason by itself; a name that is too long is.
    assert_eq!(read(&export, &"x/".repeat(3000)), Err(Errno::NOENT));
    assert_eq!(read(&export, &"x".repeat(300)), Err(Errno::NAMETOOLONG));
}

#[test]
fn magic_links_are_refused() {
    let (_dir, own) = tree(&["secret"]);
    let export = Export::open(Path::new("/")).unwrap();
    let open = std::fs::File::open("/").unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&open);
    for path in [
        "/proc/self/root/etc".to_owned(),
        "/proc/self/cwd/.".to_owned(),
        "/proc/self/exe".to_owned(),
        format!("/proc/self/fd/{fd}"),
        format!("/proc/self/fd/{fd}/etc"),
        "/proc/self/ns/mnt".to_owned(),
        "/dev/../proc/self/root/..".to_owned(),
    ] {
        assert_eq!(export.open_read(Path::new(&path)).unwrap_err(), Errno::LOOP, "{path}");
        assert_eq!(export.stat(Path::new(&path)).unwrap_err(), Errno::LOOP, "{path}");
    }
    // The link itself may be looked at, and ordinary files of /proc work like others.
    assert_eq!(
        export.lstat(Path::new("/proc/self/root")).unwrap().kind,
        sheaf_file::FileKind::Symlink
    );
    assert!(read(&export, "/proc/self/status").unwrap().starts_with("Name:"));
    assert!(
        !read(&export, "/sys/kernel/mm/transparent_hugepage/enabled")
            .unwrap_or("x".into())
            .is_empty()
    );
    drop(own);
}

#[test]
fn pipe_without_writer_does_not_block() {
    let (dir, export) = tree(&[]);
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("pipe"), rustix::fs::Mode::RWXU).unwrap();
    assert_eq!(read(&export, "pipe").as_deref(), Ok(""));
}

#[test]
fn thousand_servers_share_one_descriptor() {
    let (_dir, export) = tree(&["file"]);
    let fds = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = fds();
    let servers: Vec<Export> = (0..1024).map(|_| export.clone()).collect();
    // Other tests open files meanwhile, but not a thousand of them.
    assert!(fds() < before + 512);
    assert_eq!(servers.last().unwrap().stat(Path::new("file")).unwrap().size, 4);
}

#[test]
fn export_must_be_a_directory() {
    let (dir, _) = tree(&["file"]);
    assert_eq!(Export::open(&dir.path().join("file")).unwrap_err(), Errno::NOTDIR);
    assert_eq!(Export::open(&dir.path().join("none")).unwrap_err(), Errno::NOENT);
}

/// Paths made of names that exist, of dots and of links that lead everywhere.
fn path() -> impl Strategy<Value = String> {
    let name =
        prop::sample::select(vec!["a", "b", "c", "up", "abs", "far", "dir", "..", ".", "", "none"]);
    (any::<bool>(), prop::collection::vec(name, 1..8)).prop_map(|(absolute, names)| {
        format!("{}{}", if absolute { "/" } else { "" }, names.join("/"))
    })
}

/// Every inode beneath a directory, by the standard library.
fn inodes(dir: &Path, found: &mut Vec<(u64, u64)>) {
    let stat = std::fs::symlink_metadata(dir).unwrap();
    found.push((stat.dev(), stat.ino()));
    if stat.is_dir() {
        std::fs::read_dir(dir).unwrap().for_each(|entry| inodes(&entry.unwrap().path(), found));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever the path, what is found lies in the export.
    #[test]
    fn every_path_stays_within(paths in prop::collection::vec(path(), 1..20)) {
        let (dir, export) = tree(&[
            "a/b/c", "b/c", "a/up -> ../../..", "up -> ..", "abs -> /a", "a/abs -> /up/up/a/../b",
            "far -> ../../../../../../../etc", "dir/a -> /dir/../../dir", "dir/b -> ../../b/../../a",
        ]);
        let mut within = Vec::new();
        inodes(dir.path(), &mut within);
        for path in &paths {
            let path = Path::new(path);
            for found in [export.stat(path), export.lstat(path)].into_iter().flatten() {
                prop_assert!(within.contains(&found.id()), "{path:?}");
            }
            for entry in export.walk(path, WalkOptions { follow: Follow::Always, metadata: true, ..Default::default() }) {
                if let Some(found) = entry.ok().and_then(|entry| entry.metadata) {
                    prop_assert!(within.contains(&found.id()), "{path:?}");
                }
            }
            let pattern = Pattern::new(&format!("{}/*", path.display())).unwrap();
            for found in export.glob(&pattern).unwrap().paths {
                prop_assert!(within.contains(&export.lstat(&found).unwrap().id()), "{found:?}");
            }
        }
    }

    /// Paths without links and leading dots mean what they mean to the standard library.
    #[test]
    fn plain_paths_resolve_as_in_the_standard_library(
        names in prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "."]), 1..6)
    ) {
        let (dir, export) = tree(&["a/b/c", "b/c", "a/c/a/b/"]);
        let path: PathBuf = names.iter().collect();
        let expected = std::fs::metadata(dir.path().join(&path)).map(|stat| (stat.dev(), stat.ino(), stat.size()));
        let found = export.stat(&path).map(|stat| (stat.dev, stat.ino, stat.size));
        prop_assert_eq!(found, expected.map_err(Errno::from));
        let opened = export.open_file(&path, OFlags::RDONLY, sheaf_file::Mode::empty());
        prop_assert_eq!(opened.is_ok(), found.is_ok());
    }
}
