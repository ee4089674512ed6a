//! Walking, with `std::fs` as the oracle.

use crate::tree;
use proptest::prelude::*;
use sheaf_core::Errno;
use sheaf_file::{FileKind, Follow, NameFilter, WalkOptions};
use std::path::{Path, PathBuf};

fn paths(export: &sheaf_file::Export, start: &str, options: WalkOptions) -> Vec<String> {
    let show = |item: Result<sheaf_file::WalkEntry, sheaf_file::PathError>| match item {
        Ok(entry) => entry.path.display().to_string(),
        Err(error) => format!("{}!{:?}", error.path.display(), error.errno),
    };
    export.walk(Path::new(start), options).map(show).collect()
}

#[test]
fn files_come_in_the_order_of_their_paths() {
    let (_dir, export) = tree(&["d/a/x", "d/a.b", "d/a/y/z", "d/b"]);
    assert_eq!(
        paths(&export, "/d", WalkOptions::default()),
        ["/d", "/d/a.b", "/d/a", "/d/a/x", "/d/a/y", "/d/a/y/z", "/d/b"]
    );
    assert_eq!(paths(&export, "d/b", WalkOptions::default()), ["d/b"]);
    assert_eq!(paths(&export, "none", WalkOptions::default()), ["none!ENOENT"]);
    assert_eq!(paths(&export, "d/a/../a/y/..", WalkOptions::default()).len(), 4);
    assert_eq!(paths(&export, "/", WalkOptions::default()).len(), 8);
}

#[test]
fn directory_is_read_in_order() {
    let (_dir, export) = tree(&["d/b", "d/a/", "d/a.b", "d/.h", "d/l -> a"]);
    let read = export.read_dir(Path::new("/d")).unwrap();
    let found: Vec<_> =
        read.iter().map(|entry| (entry.name.to_str().unwrap(), entry.kind)).collect();
    let (file, dir, link) = (FileKind::File, FileKind::Directory, FileKind::Symlink);
    assert_eq!(found, [(".h", file), ("a", dir), ("a.b", file), ("b", file), ("l", link)]);
    assert_eq!(read[3].ino, export.stat(Path::new("d/b")).unwrap().ino);
    assert_eq!(export.read_dir(Path::new("d/b")), Err(Errno::NOTDIR));
}

#[test]
fn links_are_followed_as_asked() {
    let (_dir, export) = tree(&["d/a/x", "d/up -> ..", "d/l -> a", "d/gone -> /none", "s -> /d"]);
    assert_eq!(paths(&export, "s", WalkOptions::default()), ["s"]);
    let start = WalkOptions { follow: Follow::Start, ..Default::default() };
    assert_eq!(paths(&export, "s", start), ["s", "s/a", "s/a/x", "s/gone", "s/l", "s/up"]);
    let always = WalkOptions { follow: Follow::Always, ..Default::default() };
    let found = paths(&export, "s", always);
    assert_eq!(found[..6], ["s", "s/a", "s/a/x", "s/gone", "s/l", "s/l/x"]);
    // `up` is the export's root here, which holds `d` and `s`, the start again.
    assert_eq!(found[6..], ["s/up", "s/up/d", "s/up/d!ELOOP", "s/up/s", "s/up/s!ELOOP"]);
}

/// A link to what nobody may look at is not taken for a link that leads nowhere.
#[test]
fn link_that_cannot_be_followed_is_an_error() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, export) =
        tree(&["d/l -> ../closed/x", "d/loop -> loop", "d/gone -> none", "closed/x"]);
    crate::open_to_all(dir.path());
    std::fs::set_permissions(dir.path().join("closed"), PermissionsExt::from_mode(0o700)).unwrap();
    let always = || WalkOptions { follow: Follow::Always, ..Default::default() };
    crate::as_nobody(|| {
        assert_eq!(paths(&export, "d", always()), ["d", "d/gone", "d/l!EACCES", "d/loop!ELOOP"]);
    });
}

#[test]
fn filters_prune() {
    let (_dir, export) =
        tree(&["d/a.c", "d/a.h", "d/b.rs", "d/.git/x.c", "d/sub/c.c", "d/sub/d.c"]);
    let filter = |patterns: &[&str]| {
        NameFilter::new(&patterns.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
    };
    let options = WalkOptions {
        include: filter(&["*.{c,h}"]),
        exclude: filter(&["sub/d.*"]),
        exclude_dir: filter(&[".git"]),
        ..Default::default()
    };
    assert_eq!(paths(&export, "d", options), ["d", "d/a.c", "d/a.h", "d/sub", "d/sub/c.c"]);
    let mut walk = export.walk(Path::new("d"), WalkOptions::default());
    assert_eq!(walk.next().unwrap().unwrap().kind, FileKind::Directory);
    walk.skip_dir();
    assert!(walk.next().is_none());
}

#[test]
fn deep_trees_need_few_descriptors() {
    let (dir, export) = tree(&[]);
    let mut path = dir.path().to_owned();
    for depth in 0..200 {
        path.push("d");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join(format!("z{depth}")), "").unwrap();
    }
    let found: Vec<_> =
        export.walk(Path::new("/d"), WalkOptions::default()).collect::<Result<_, _>>().unwrap();
    assert_eq!(found.len(), 400);
    assert_eq!(found.iter().filter(|entry| entry.kind == FileKind::File).count(), 200);
}

/// Names that are longer together than a path may be, each in the one before, and a file in each.
fn beyond_a_path(dir: &Path) -> PathBuf {
    use rustix::fs::{Mode, OFlags};
    let name = "d".repeat(200);
    let mut open = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    for depth in 0..50 {
        rustix::fs::mkdirat(&open, &name, Mode::from_raw_mode(0o755)).unwrap();
        open = rustix::fs::openat(&open, &name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
            .unwrap();
        let file = rustix::fs::openat(
            &open,
            "z",
            OFlags::WRONLY | OFlags::CREATE,
            Mode::from_raw_mode(0o644),
        );
        rustix::io::write(file.unwrap(), depth.to_string().as_bytes()).unwrap();
    }
    rustix::fs::symlinkat("z", &open, "near").unwrap();
    rustix::fs::symlinkat("/top", &open, "absolute").unwrap();
    rustix::fs::symlinkat(format!("{}top", "../".repeat(50)), &open, "up").unwrap();
    std::iter::repeat_n(name, 50).collect()
}

#[test]
fn paths_may_be_longer_than_the_kernel_takes_at_once() {
    let (dir, export) = tree(&["top"]);
    let deepest = beyond_a_path(dir.path());
    let options = WalkOptions { metadata: true, ..WalkOptions::default() };
    let found: Vec<_> = export.walk(Path::new("/"), options).collect::<Result<_, _>>().unwrap();
    assert_eq!(found.len(), 1 + 1 + 50 + 50 + 3);
    let file = deepest.join("z");
    assert_eq!(
        (export.stat(&file).unwrap().size, export.stat(&deepest.join("near")).unwrap().size),
        (2, 2)
    );
    let mut text = String::new();
    std::io::Read::read_to_string(&mut export.open_read(&file).unwrap(), &mut text).unwrap();
    assert_eq!(text, "49");
    let names: Vec<_> =
        export.read_dir(&deepest).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["absolute", "near", "up", "z"]);
    // What a link means that leads above the last piece only the whole path can tell.
    for link in
        ["absolute", "up", "../../../../../../../../../../../../../../../../../../../../../../top"]
    {
        assert_eq!(export.stat(&deepest.join(link)), Err(Errno::NAMETOOLONG), "{link}");
    }
    assert_eq!(export.read_link(&deepest.join("absolute")).unwrap(), Path::new("/top"));
    export.create_dir(&deepest.join("new"), sheaf_file::Mode::from_raw_mode(0o755)).unwrap();
    assert!(export.stat(&deepest.join("new///")).unwrap().is_dir());
    export.rename(&deepest.join("new"), Path::new("/out"), false).unwrap();
    assert_eq!(export.stat(&deepest.join("new")), Err(Errno::NOENT));
    assert_eq!(export.stat(Path::new(&"n".repeat(5000))), Err(Errno::NAMETOOLONG));
    let globbed = export.expand("/**/z");
    assert_eq!((globbed.paths.len(), globbed.errors.len()), (50, 0));
    export
        .remove(
            Path::new(&"d".repeat(200)),
            sheaf_file::RemoveOptions { recursive: true, ..Default::default() },
        )
        .unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn directory_exchanged_meanwhile_is_an_error_not_a_detour() {
    let (dir, export) = tree(&["other/secret"]);
    let deep: PathBuf = std::iter::repeat_n("d", 40).collect();
    std::fs::create_dir_all(dir.path().join(&deep)).unwrap();
    std::fs::write(dir.path().join("d/z"), "").unwrap();
    let mut walk = export.walk(Path::new("d"), WalkOptions::default());
    while walk.next().unwrap().unwrap().depth < 39 {}
    // The top was closed by now; coming back, the walk must not end up in `other`.
    std::fs::rename(dir.path().join("d"), dir.path().join("moved")).unwrap();
    std::os::unix::fs::symlink("other", dir.path().join("d")).unwrap();
    let rest: Vec<_> = walk.collect();
    assert!(rest.iter().all(|item| item.is_err()), "{rest:?}");
    assert!(
        rest.iter()
            .all(|item| matches!(item, Err(e) if [Errno::NOENT, Errno::STALE].contains(&e.errno)))
    );
}

#[test]
fn file_of_a_walk_is_found_in_the_directory_that_was_read() {
    use std::os::unix::fs::{MetadataExt, symlink};
    let (dir, export) = tree(&["etc/f", "home/d/f", "home/d/g", "home/d/sub/f"]);
    let at = |path: &str| dir.path().join(path);
    let ino = |path: &str| at(path).symlink_metadata().unwrap().ino();
    let mut walk = export.walk(Path::new("/home"), WalkOptions::default());
    let entry = loop {
        let entry = walk.next().unwrap().unwrap();
        if entry.path == Path::new("/home/d/f") {
            break entry;
        }
    };
    std::fs::rename(at("home/d"), at("home/old")).unwrap();
    symlink("/etc", at("home/d")).unwrap();
    assert_eq!(walk.found(&entry).unwrap().metadata().ino, ino("home/old/f"));
    assert_eq!(walk.open_ready(&entry).unwrap().metadata().unwrap().ino(), ino("home/old/f"));
    // Nor is a link followed that takes the place of the file itself.
    let entry = walk.next().unwrap().unwrap();
    std::fs::remove_file(at("home/old/g")).unwrap();
    symlink("/etc/f", at("home/old/g")).unwrap();
    assert_eq!(walk.found(&entry).unwrap().metadata().ino, ino("home/old/g"));
    assert_eq!(walk.open_ready(&entry).err(), Some(Errno::LOOP));
    // What is beneath is read from the directory that was found, too.
    assert!(walk.all(|entry| entry.is_ok()));
}

#[test]
fn directories_come_last_if_asked_for() {
    let (_dir, export) = tree(&["d/a", "d/sub/b", "d/sub/empty/", "d/z", "d/link -> sub"]);
    let options = WalkOptions { dirs_last: true, ..WalkOptions::default() };
    let expected = ["d/a", "d/link", "d/sub/b", "d/sub/empty", "d/sub", "d/z", "d"];
    assert_eq!(paths(&export, "d", options.clone()), expected);
    let mut walk = export.walk(Path::new("d"), options);
    while let Some(entry) = walk.next() {
        let entry = entry.unwrap();
        assert_eq!(walk.found(&entry).unwrap().metadata(), &export.lstat(&entry.path).unwrap());
    }
}

/// All paths beneath a directory with their kinds, by the standard library.
fn oracle(root: &Path, dir: &Path, found: &mut Vec<(PathBuf, bool, u64)>) {
    let stat = std::fs::symlink_metadata(dir).unwrap();
    found.push((dir.strip_prefix(root).unwrap().to_owned(), stat.is_dir(), stat.len()));
    if stat.is_dir() {
        std::fs::read_dir(dir)
            .unwrap()
            .for_each(|entry| oracle(root, &entry.unwrap().path(), found));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn walk_sees_what_the_standard_library_sees(
        names in prop::collection::vec("[ab.]{1,3}(/[ab!~]{1,3}){0,4}", 0..20),
    ) {
        let (dir, export) = tree(&["x/"]);
        let root = dir.path().join("x");
        for name in names.iter().filter(|name| !name.starts_with('.')) {
            let path = root.join(name);
            if std::fs::create_dir_all(path.parent().unwrap()).is_ok() {
                let _ = std::fs::write(path, name);
            }
        }
        let mut expected = Vec::new();
        oracle(&root, &root, &mut expected);
        expected.sort();
        let options = WalkOptions { metadata: true, ..Default::default() };
        let walked: Vec<_> = export.walk(Path::new("x"), options).collect::<Result<_, _>>().unwrap();
        let files: Vec<_> = walked.iter().filter(|entry| entry.kind == FileKind::File).map(|entry| entry.path.as_os_str()).collect();
        prop_assert!(files.is_sorted());
        let mut found: Vec<_> = walked
            .into_iter()
            .map(|entry| (entry.relative, entry.kind == FileKind::Directory, entry.metadata.unwrap().size))
            .collect();
        found.sort();
        prop_assert_eq!(found, expected);
    }
}
