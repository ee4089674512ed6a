//! Trees of every kind of file, and their strict comparison.
use sheaf_archive::{TreeWalk, TreeWalkOptions};
use sheaf_core::files::{FileKind, Metadata};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A tree with every kind of file and name that there is, so far as this user may make them.
pub fn make_everything(at: &Path) {
    fs::create_dir_all(at.join("d/e")).unwrap();
    fs::create_dir(at.join("empty")).unwrap();
    fs::write(at.join("zero"), "").unwrap();
    fs::write(at.join("d/text"), "some text\n").unwrap();
    fs::write(at.join("d/block"), [7; 512]).unwrap();
    fs::write(at.join("d/large"), vec![42; 3 << 20]).unwrap();
    make_names(at);
    make_links(at);
    make_sparse(at);
    make_attributes(at);
    if is_root() {
        make_owned(at);
    }
    // A path that is longer than the system takes at once: parts of it are made one after the other.
    let mut deep = rustix::fs::open(at, dir_flags(), rustix::fs::Mode::empty()).unwrap();
    for _ in 0..20 {
        let name = "x".repeat(250);
        rustix::fs::mkdirat(&deep, &name, rustix::fs::Mode::RWXU).unwrap();
        deep = rustix::fs::openat(&deep, &name, dir_flags(), rustix::fs::Mode::empty()).unwrap();
    }
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    let file = rustix::fs::openat(&deep, "deep", flags, rustix::fs::Mode::RUSR).unwrap();
    File::from(file).write_all_at(b"far down", 0).unwrap();
    // Times last.
    set_time(&at.join("d/text"), SystemTime::UNIX_EPOCH - Duration::new(86_400 * 365, 250_000_001));
    set_time(&at.join("zero"), SystemTime::UNIX_EPOCH + Duration::new(1, 999_999_999));
    set_time(&at.join("empty"), SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5));
}

fn dir_flags() -> rustix::fs::OFlags {
    rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::PATH
}

fn make_names(at: &Path) {
    let longest: Vec<u8> = (0..255).map(|at| b"ab\n\xff \x01*"[at % 7]).collect();
    let names: [&[u8]; 8] = [
        &longest,
        b"\xff\xfe",
        b"new\nline",
        b" ",
        b"-rf",
        "Übergrößen".as_bytes(),
        b".sheaf-index",
        b"back\\slash",
    ];
    for name in names {
        fs::write(at.join("d").join(OsStr::from_bytes(name)), name).unwrap();
    }
}

fn make_links(at: &Path) {
    symlink("text", at.join("d/link")).unwrap();
    symlink("/nowhere/at/all", at.join("d/broken")).unwrap();
    symlink(OsString::from_vec(vec![b'\xf0'; 4000]), at.join("d/long-link")).unwrap();
    let made = Command::new("mkfifo").arg(at.join("d/fifo")).status().unwrap();
    assert!(made.success());
    fs::write(at.join("d/one"), "a file with three names").unwrap();
    fs::hard_link(at.join("d/one"), at.join("d/another")).unwrap();
    fs::hard_link(at.join("d/one"), at.join("d/e/elsewhere")).unwrap();
    fs::hard_link(at.join("d/link"), at.join("d/e/link")).unwrap();
    fs::write(at.join("d/same"), "a file with three names here").unwrap();
    fs::hard_link(at.join("d/same"), at.join("d/Same")).unwrap();
    fs::hard_link(at.join("d/same"), at.join("d/same too")).unwrap();
    fs::hard_link(at.join("d/fifo"), at.join("d/another fifo")).unwrap();
}

fn make_sparse(at: &Path) {
    let holes = File::create(at.join("holes")).unwrap();
    holes.write_all_at(b"in the middle", 5 << 20).unwrap();
    holes.write_all_at(b"later", 9 << 20).unwrap();
    holes.set_len(20 << 30).unwrap();
    File::create(at.join("hole")).unwrap().set_len(1 << 20).unwrap();
    let small = File::create(at.join("small-hole")).unwrap();
    small.write_all_at(b"end", 100_000).unwrap();
    fs::hard_link(at.join("small-hole"), at.join("the same hole")).unwrap();
}

fn make_attributes(at: &Path) {
    for (name, mode) in [("d/m0", 0o000), ("d/m4", 0o400), ("d/m7", 0o7755), ("d/e", 0o2750)] {
        // Only root reads what nobody may.
        if mode == 0 && !is_root() {
            continue;
        }
        let path = at.join(name);
        if !path.exists() {
            fs::write(&path, name).unwrap();
        }
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    let set = |path: &str, name: &str, value: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        match rustix::fs::setxattr(at.join(path), name, value, flags) {
            Err(rustix::io::Errno::OPNOTSUPP) => {
                eprintln!("skipped: the file system of this test has no {name}");
            }
            set => set.unwrap(),
        }
    };
    fs::write(at.join("d/attributes"), "with attributes").unwrap();
    set("d/attributes", "user.empty", b"");
    set("d/attributes", "user.name=with%signs", b"\0\n=\xff");
    set("d/attributes", "user.long", &[b'v'; 2000]);
    set("d", "user.of a directory", b"value");
    set("holes", "user.of an object", b"value");
    // user::rw-, user:1000:r--, group::r--, mask::r--, other::---
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, u32::MAX), (2, 4, 1000), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&permissions.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    set("d/attributes", "system.posix_acl_access", &acl);
    set("d", "system.posix_acl_default", &acl);
}

fn make_owned(at: &Path) {
    let mknod = |name: &str, kind, device| {
        let mode = rustix::fs::Mode::from_raw_mode(0o640);
        rustix::fs::mknodat(rustix::fs::CWD, at.join(name), kind, mode, device).unwrap();
    };
    mknod("d/char", rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    mknod("d/block-device", rustix::fs::FileType::BlockDevice, rustix::fs::makedev(4095, 0xf_ffff));
    let own = |name: &str, user, group| {
        std::os::unix::fs::lchown(at.join(name), Some(user), Some(group)).unwrap();
    };
    own("d/block", 12_345, 54_321);
    own("d/broken", 3_000_000_000, 4_000_000_000);
    own("d/e", 77, 78);
    // The owner takes set-id bits away, and a capability is gone with it, too.
    fs::write(at.join("d/capable"), "program").unwrap();
    own("d/capable", 1, 1);
    fs::set_permissions(at.join("d/capable"), Permissions::from_mode(0o6711)).unwrap();
    let capability = [&[0, 0, 0, 2][..], &[0, 4, 0, 0], &[0; 12]].concat();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(at.join("d/capable"), "security.capability", &capability, flags).unwrap();
    rustix::fs::lsetxattr(at.join("d/broken"), "trusted.of a link", b"value", flags).unwrap();
}

fn set_time(path: &Path, time: SystemTime) {
    File::open(path).unwrap().set_modified(time).unwrap();
}

/// All that is to be the same of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    kind: FileKind,
    mode: u32,
    owner: (u32, u32),
    rdev: u64,
    size: u64,
    mtime: sheaf_core::files::Timestamp,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// BLAKE3 of what a file has, or a link's text.
    content: Vec<u8>,
    /// All names of this file, if it has several.
    names: Vec<PathBuf>,
}

impl Seen {
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    pub fn names(&self) -> &[PathBuf] {
        &self.names
    }
}

/// A tree by relative paths.
pub fn seen(at: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut names: HashMap<(u64, u64), Vec<PathBuf>> = HashMap::new();
    let mut found = Vec::new();
    for entry in TreeWalk::new(at, TreeWalkOptions::default()) {
        let metadata = entry.found.unwrap_or_else(|error| panic!("{:?}: {error}", entry.path));
        let path = entry.path.strip_prefix(at).unwrap().to_owned();
        if metadata.nlink > 1 && !metadata.is_dir() {
            names.entry(metadata.id()).or_default().push(path.clone());
        }
        found.push((path, metadata));
    }
    let all = found.into_iter().map(|(path, metadata)| {
        let names = names.get(&metadata.id()).cloned().unwrap_or_default();
        (path.clone(), see(at, &path, &metadata, names))
    });
    all.collect()
}

fn see(at: &Path, path: &Path, metadata: &Metadata, names: Vec<PathBuf>) -> Seen {
    // A path that is too long for the system is gone step by step.
    let mut above = rustix::fs::open(at, dir_flags(), rustix::fs::Mode::empty()).unwrap();
    for part in path.parent().unwrap_or(Path::new("")) {
        above = rustix::fs::openat(&above, part, dir_flags(), rustix::fs::Mode::empty()).unwrap();
    }
    let name = path.file_name().unwrap_or(OsStr::new("."));
    let here = |name: &OsStr| {
        use std::os::fd::AsRawFd;
        PathBuf::from(format!("/proc/self/fd/{}", above.as_raw_fd())).join(name)
    };
    let content = match metadata.kind {
        FileKind::File => {
            let mut digest = blake3::Hasher::new();
            let mut file = File::open(here(name)).unwrap();
            if metadata.size < 1 << 30 {
                std::io::copy(&mut file, &mut digest).unwrap();
            } else {
                // A large one is all hole but its beginning.
                std::io::copy(&mut file.take(16 << 20), &mut digest).unwrap();
                assert!(metadata.blocks < 1 << 10, "{path:?} has no holes");
            }
            digest.finalize().as_bytes().to_vec()
        }
        FileKind::Symlink => fs::read_link(here(name)).unwrap().into_os_string().into_vec(),
        _ => Vec::new(),
    };
    let mut room = vec![0; 1 << 16];
    let listed = rustix::fs::llistxattr(here(name), &mut room[..]).unwrap();
    let listed = room[..listed].to_vec();
    let xattrs = listed.split(|&byte| byte == 0).filter(|name| !name.is_empty()).map(|xattr| {
        let bytes =
            rustix::fs::lgetxattr(here(name), OsStr::from_bytes(xattr), &mut room[..]).unwrap();
        (xattr.to_vec(), room[..bytes].to_vec())
    });
    Seen {
        kind: metadata.kind,
        mode: metadata.mode,
        owner: (metadata.uid, metadata.gid),
        rdev: metadata.rdev,
        size: if metadata.is_dir() { 0 } else { metadata.size },
        mtime: metadata.mtime,
        xattrs: xattrs.collect(),
        content,
        names,
    }
}

/// Asserts that two trees are the same in everything.
pub fn assert_same(one: &Path, other: &Path) {
    let (one, other) = (seen(one), seen(other));
    for (path, seen) in &one {
        assert_eq!(Some(seen), other.get(path), "{path:?}");
    }
    let more: Vec<_> = other.keys().filter(|path| !one.contains_key(*path)).collect();
    assert!(more.is_empty(), "there are more: {more:?}");
}
