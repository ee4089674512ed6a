//! Files and directories of an export, with `std::fs` as the oracle.

use crate::{add, tree};
use rustix::fs::{CWD, FileType, Mode};
use sheaf_core::Errno;
use sheaf_file::{Export, FileKind, Metadata};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

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

/// Everything beneath `dir`, by way of `entries`.
fn walk(export: &Export, dir: &Path, found: &mut BTreeMap<PathBuf, u64>) {
    for entry in export.entries(dir).unwrap() {
        let entry = entry.unwrap();
        let path = dir.join(&entry.name);
        assert_eq!(export.lstat(&path).unwrap().kind, entry.kind, "{path:?}");
        if entry.kind == FileKind::Directory {
            walk(export, &path, found);
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
fn content(export: &Export, path: &Path) -> Vec<u8> {
    let (file, mut content, mut piece) = (export.open_read(path).unwrap(), Vec::new(), [0; 7]);
    loop {
        match file.read_at(&mut piece, content.len() as u64).unwrap() {
            0 => break,
            bytes => content.extend_from_slice(&piece[..bytes]),
        }
    }
    assert_eq!(expected(&file.metadata().unwrap()), told(&export.stat(path).unwrap()));
    content
}

#[test]
fn files_of_an_export_are_what_the_system_says() {
    let (dir, export) = tree(&[
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
    let mut found = BTreeMap::new();
    walk(&export, Path::new("/"), &mut found);
    assert_eq!(found, all);
    for path in all.keys() {
        let real = dir.path().join(path.strip_prefix("/").unwrap());
        let there = std::fs::symlink_metadata(&real).unwrap();
        assert_eq!(told(&export.lstat(path).unwrap()), expected(&there), "{path:?}");
        let target = std::fs::metadata(&real).map_err(Errno::from);
        let same = target.as_ref().map(expected).map_err(|errno| *errno);
        let stat = export.stat(path);
        assert_eq!(stat.as_ref().map(told).map_err(|errno| *errno), same, "{path:?}");
        let link = std::fs::read_link(&real).map_err(Errno::from);
        assert_eq!(export.read_link(path), link, "{path:?}");
        if target.is_ok_and(|target| target.is_file()) {
            assert_eq!(content(&export, path), std::fs::read(&real).unwrap(), "{path:?}");
        }
    }
}

#[test]
fn errors_of_an_export_are_those_of_the_system() {
    let (dir, export) = tree(&["f", "d/g", "loop -> loop", "to -> d"]);
    rustix::fs::mknodat(CWD, dir.path().join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let open = |path: &str| export.open_read(Path::new(path)).err();
    let list = |path: &str| export.entries(Path::new(path)).err();
    let stat = |path: &str| export.stat(Path::new(path)).err();
    assert_eq!([open(""), list(""), stat("")], [Some(Errno::NOENT); 3]);
    assert_eq!([open("n"), list("/n"), stat("n")], [Some(Errno::NOENT); 3]);
    assert_eq!([open("f/n"), list("f"), stat("f/")], [Some(Errno::NOTDIR); 3]);
    assert_eq!([open("loop"), list("loop"), stat("loop")], [Some(Errno::LOOP); 3]);
    assert_eq!([open("d"), open("/to"), open("/")], [Some(Errno::ISDIR); 3]);
    assert_eq!([open("//d//g"), list("to"), stat("//")], [None; 3]);
    assert_eq!(export.read_link(Path::new("f")), Err(Errno::INVAL));
    assert_eq!(export.read_link(Path::new("d")), Err(Errno::INVAL));
}

#[test]
fn open_file_stays_what_it_was() {
    let (dir, export) = tree(&["f", "other"]);
    let file = export.open_read(Path::new("f")).unwrap();
    std::fs::rename(dir.path().join("other"), dir.path().join("f")).unwrap();
    let mut buffer = *b"....";
    assert_eq!((file.read_at(&mut buffer, 0).unwrap(), &buffer), (1, b"f..."));
    assert_eq!(file.metadata().unwrap().nlink(), 0);
}

#[test]
fn absolute_links_of_an_export_stay_beneath_it() {
    let (dir, _export) = tree(&["in/f", "f"]);
    std::os::unix::fs::symlink(dir.path().join("f"), dir.path().join("in/absolute")).unwrap();
    let export = Export::open(&dir.path().join("in")).unwrap();
    assert_eq!(export.open_read(Path::new("absolute")).err(), Some(Errno::NOENT));
    assert_eq!(content(&export, Path::new("../f")), b"in/f");
}
