//! What is an export and what is a directory, seen as `Files`, with `std::fs` as the oracle.

use crate::{add, tree};
use rustix::fs::{CWD, FileType, Mode};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Files, Metadata};
use sheaf_file::{Export, LocalDirectory};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The directory under both of its faces.
fn faces(root: &Path) -> [(&'static str, Box<dyn Files>); 2] {
    let (export, local) = (Export::open(root).unwrap(), LocalDirectory::open(root).unwrap());
    [("export", Box::new(export)), ("directory", Box::new(local))]
}

/// What `std::fs` says of a file, as far as it is compared.
fn expected(found: &std::fs::Metadata) -> [i64; 9] {
    let numbers = [
        found.ino(),
        found.dev(),
        found.mode().into(),
        found.nlink(),
        found.size(),
        found.blocks(),
    ];
    let [a, b, c, d, e, f] = numbers.map(|number| number as i64);
    [a, b, c, d, e, f, found.uid().into(), found.mtime(), found.mtime_nsec()]
}

fn told(found: &Metadata) -> [i64; 9] {
    let (mode, links) = (found.raw_mode().into(), found.nlink.into());
    let [a, b, c, d] = [found.ino, found.dev, found.size, found.blocks].map(|number| number as i64);
    [a, b, mode, links, c, d, found.uid.into(), found.mtime.seconds, found.mtime.nanoseconds.into()]
}

/// Everything beneath `dir`, by way of `list`.
fn walk(files: &dyn Files, dir: &Path, found: &mut BTreeMap<PathBuf, u64>) {
    for entry in files.list(dir).unwrap() {
        let entry = entry.unwrap();
        let path = dir.join(&entry.name);
        assert_eq!(files.lstat(&path).unwrap().kind, entry.kind, "{path:?}");
        if entry.kind == FileKind::Directory {
            walk(files, &path, found);
        }
        assert!(found.insert(path, entry.ino).is_none());
    }
}

fn oracle(root: &Path, dir: &Path, found: &mut BTreeMap<PathBuf, u64>) {
    for entry in std::fs::read_dir(root.join(dir.strip_prefix("/").unwrap())).unwrap() {
        let entry = entry.unwrap();
        let path = dir.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            oracle(root, &path, found);
        }
        found.insert(path, entry.metadata().unwrap().ino());
    }
}

/// All of a file, in pieces.
fn content(files: &dyn Files, path: &Path) -> Vec<u8> {
    let (file, mut content, mut piece) = (files.open(path).unwrap(), Vec::new(), [0; 7]);
    loop {
        match file.read_at(&mut piece, content.len() as u64).unwrap() {
            0 => break,
            bytes => content.extend_from_slice(&piece[..bytes]),
        }
    }
    assert_eq!(told(&file.metadata().unwrap()), told(&files.stat(path).unwrap()));
    content
}

#[test]
fn both_faces_of_a_directory_are_what_the_system_says() {
    let (dir, _export) = tree(&[
        "a",
        "d/e/f/a longer name than others",
        "d/empty/",
        "d/link -> e",
        "d/e/up -> ../../a",
        "dangling -> nowhere",
    ]);
    std::fs::write(dir.path().join(OsStr::from_bytes(b"\xff\n")), vec![7; 100_000]).unwrap();
    std::fs::hard_link(dir.path().join("a"), dir.path().join("d/same")).unwrap();
    rustix::fs::mknodat(CWD, dir.path().join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    (0..2000).for_each(|at| add(dir.path(), &format!("many/{at}")));

    let mut all = BTreeMap::new();
    oracle(dir.path(), Path::new("/"), &mut all);
    assert_eq!(all.len(), 2000 + 13);
    for (face, files) in faces(dir.path()) {
        let files = &*files;
        let mut found = BTreeMap::new();
        walk(files, Path::new("/"), &mut found);
        assert_eq!(found, all, "{face}");
        for path in all.keys() {
            let real = dir.path().join(path.strip_prefix("/").unwrap());
            let there = std::fs::symlink_metadata(&real).unwrap();
            assert_eq!(told(&files.lstat(path).unwrap()), expected(&there), "{face} {path:?}");
            let target = std::fs::metadata(&real).map_err(Errno::from);
            let same = target.as_ref().map(expected).map_err(|errno| *errno);
            assert_eq!(
                files.stat(path).as_ref().map(told).map_err(|errno| *errno),
                same,
                "{face} {path:?}"
            );
            let link = std::fs::read_link(&real).map_err(Errno::from);
            assert_eq!(files.read_link(path), link, "{face} {path:?}");
            if target.is_ok_and(|target| target.is_file()) {
                assert_eq!(content(files, path), std::fs::read(&real).unwrap(), "{face} {path:?}");
            }
        }
    }
}

#[test]
fn both_faces_fail_alike() {
    let (dir, _export) = tree(&["f", "d/g", "loop -> loop", "to -> d"]);
    rustix::fs::mknodat(CWD, dir.path().join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    for (face, files) in faces(dir.path()) {
        let open = |path: &str| files.open(Path::new(path)).err();
        let list = |path: &str| files.list(Path::new(path)).err();
        let stat = |path: &str| files.stat(Path::new(path)).err();
        assert_eq!([open(""), list(""), stat("")], [Some(Errno::NOENT); 3], "{face}");
        assert_eq!([open("n"), list("/n"), stat("n")], [Some(Errno::NOENT); 3], "{face}");
        assert_eq!([open("f/n"), list("f"), stat("f/")], [Some(Errno::NOTDIR); 3], "{face}");
        assert_eq!([open("loop"), list("loop"), stat("loop")], [Some(Errno::LOOP); 3], "{face}");
        assert_eq!([open("d"), open("/to"), open("/")], [Some(Errno::ISDIR); 3], "{face}");
        assert_eq!([open("//d//g"), list("to"), stat("//")], [None; 3], "{face}");
        assert_eq!(files.read_link(Path::new("f")), Err(Errno::INVAL), "{face}");
        assert_eq!(files.read_link(Path::new("d")), Err(Errno::INVAL), "{face}");

        let pipe = files.open(Path::new("pipe")).unwrap();
        assert_eq!(pipe.read_at(&mut [0], 0), Err(Errno::SPIPE), "{face}");
        let file = files.open(Path::new("f")).unwrap();
        assert_eq!(file.read_at(&mut [0], 1 << 40), Ok(0), "{face}");
        assert_eq!(file.read_at(&mut [0], u64::MAX), Err(Errno::INVAL), "{face}");
    }
}

#[test]
fn open_file_stays_what_it_was() {
    for face in 0..2 {
        let (dir, _export) = tree(&["f", "other"]);
        let files = &faces(dir.path())[face].1;
        let file = files.open(Path::new("f")).unwrap();
        std::fs::rename(dir.path().join("other"), dir.path().join("f")).unwrap();
        let mut buffer = *b"....";
        assert_eq!((file.read_at(&mut buffer, 0), &buffer), (Ok(1), b"f..."));
        assert_eq!(file.metadata().unwrap().nlink, 0);
    }
}

#[test]
fn only_an_export_keeps_links_beneath_it() {
    let (dir, _export) = tree(&["in/f", "f"]);
    std::os::unix::fs::symlink(dir.path().join("f"), dir.path().join("in/absolute")).unwrap();
    let [(_, export), (_, directory)] = faces(&dir.path().join("in"));
    assert_eq!(content(&*directory, Path::new("absolute")), b"f");
    assert_eq!(content(&*directory, Path::new("../f")), b"f");
    assert_eq!(export.open(Path::new("absolute")).err(), Some(Errno::NOENT));
    assert_eq!(content(&*export, Path::new("../f")), b"in/f");
}
