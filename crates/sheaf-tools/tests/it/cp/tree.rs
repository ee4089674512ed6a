//! Trees of files: random ones, and what they look like.
use proptest::prelude::*;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug, Clone)]
pub enum Kind {
    Dir,
    File {
        len: usize,
        seed: u8,
    },
    Sparse {
        len: u64,
    },
    Symlink {
        target: usize,
    },
    /// Another name of an earlier file, link or pipe.
    Hardlink {
        of: usize,
    },
    Fifo,
}

/// One entry, in one of the directories made before it.
#[derive(Debug, Clone)]
pub struct Node {
    pub dir: usize,
    pub name: usize,
    pub kind: Kind,
    pub mode: u32,
    pub mtime: i64,
    pub xattr: bool,
}

const NAMES: &[&[u8]] = &[
    b"a",
    b"b",
    b"c.txt",
    b"two words",
    b"line\nbreak",
    b"\xff\xfe",
    b"-dash",
    b"\xc3\xa9",
    b".hidden",
    b"~",
    b"a.b",
    b"'",
];
const TARGETS: &[&str] = &["a", "../b", "/absolute", "missing", ".", "two words"];

pub fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let kind = prop_oneof![
        3 => Just(Kind::Dir),
        6 => (prop_oneof![Just(0), 1..200usize, 4000..9000usize, 200_000..600_000usize], any::<u8>())
            .prop_map(|(len, seed)| Kind::File { len, seed }),
        1 => (1..4_000_000u64).prop_map(|len| Kind::Sparse { len }),
        2 => (0..TARGETS.len()).prop_map(|target| Kind::Symlink { target }),
        2 => any::<usize>().prop_map(|of| Kind::Hardlink { of }),
        1 => Just(Kind::Fifo),
    ];
    let mode =
        prop_oneof![Just(0o644), Just(0o600), Just(0o755), Just(0o444), Just(0o4755), Just(0o500)];
    let node = (
        any::<usize>(),
        0..NAMES.len(),
        kind,
        mode,
        1_000_000_000..1_700_000_000i64,
        any::<bool>(),
    );
    let node = node.prop_map(|(dir, name, kind, mode, mtime, xattr)| Node {
        dir,
        name,
        kind,
        mode,
        mtime,
        xattr,
    });
    proptest::collection::vec(node, 0..25)
}

/// Makes the tree `top`.
pub fn build(top: &Path, nodes: &[Node]) {
    std::fs::create_dir_all(top).unwrap();
    let (mut dirs, mut files) = (vec![top.to_owned()], Vec::<PathBuf>::new());
    let mut set = Vec::new();
    for node in nodes {
        let name = OsString::from_vec(NAMES[node.name].to_vec());
        let path = dirs[node.dir % dirs.len()].join(name);
        if path.symlink_metadata().is_ok() {
            continue;
        }
        match node.kind {
            Kind::Dir => {
                std::fs::create_dir(&path).unwrap();
                dirs.push(path.clone());
            }
            Kind::File { len, seed } => {
                let content: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(seed)).collect();
                std::fs::write(&path, content).unwrap();
                files.push(path.clone());
            }
            Kind::Sparse { len } => {
                let file = std::fs::File::create(&path).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, b"x", len / 2).unwrap();
                file.set_len(len).unwrap();
                files.push(path.clone());
            }
            Kind::Symlink { target } => {
                std::os::unix::fs::symlink(TARGETS[target], &path).unwrap();
                files.push(path.clone());
            }
            Kind::Hardlink { of } if !files.is_empty() => {
                std::fs::hard_link(&files[of % files.len()], &path).unwrap();
                continue;
            }
            Kind::Hardlink { .. } => continue,
            Kind::Fifo => {
                let mode = rustix::fs::Mode::from_raw_mode(0o644);
                rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
                files.push(path.clone());
            }
        }
        set.push((path, node));
    }
    // Innermost first: setting something in a directory changes its time.
    for (path, node) in set.iter().rev() {
        let is_link = matches!(node.kind, Kind::Symlink { .. });
        if !is_link {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(node.mode)).unwrap();
            if node.xattr && matches!(node.kind, Kind::File { .. } | Kind::Dir) {
                // Where the file system has none, none is compared.
                let _ = rustix::fs::setxattr(
                    path,
                    "user.sheaf",
                    b"value",
                    rustix::fs::XattrFlags::empty(),
                );
            }
        }
        let time = Timespec { tv_sec: node.mtime, tv_nsec: 123_456_789 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// What can be seen of one file.
#[derive(Debug, PartialEq, Eq)]
pub struct Facts {
    pub mode: u32,
    pub owner: (u32, u32),
    pub mtime: Option<(i64, i64)>,
    /// Length and digest.
    pub content: Option<(u64, blake3::Hash)>,
    pub link: Option<PathBuf>,
    pub xattr: Option<Vec<u8>>,
    /// The first path of the same file.
    pub same_as: PathBuf,
    /// Whether less is on disk than its size.
    pub has_holes: bool,
}

/// Everything at and beneath `top`.
pub fn look(top: &Path, times: bool) -> BTreeMap<PathBuf, Facts> {
    let mut seen = BTreeMap::new();
    let mut facts = BTreeMap::new();
    let mut waiting = vec![PathBuf::new()];
    let mut all = Vec::new();
    while let Some(relative) = waiting.pop() {
        let path =
            if relative.as_os_str().is_empty() { top.to_owned() } else { top.join(&relative) };
        if path.symlink_metadata().unwrap_or_else(|error| panic!("{path:?}: {error}")).is_dir() {
            waiting.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| relative.join(entry.unwrap().file_name())),
            );
        }
        all.push((relative, path));
    }
    all.sort();
    for (relative, path) in all {
        let metadata = path.symlink_metadata().unwrap();
        let mut value = [0; 64];
        let xattr = rustix::fs::lgetxattr(&path, "user.sheaf", &mut value[..])
            .ok()
            .map(|len| value[..len].to_vec());
        let same_as = seen
            .entry((metadata.dev(), metadata.ino()))
            .or_insert_with(|| relative.clone())
            .clone();
        let fact = Facts {
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            mtime: times.then(|| (metadata.mtime(), metadata.mtime_nsec())),
            content: metadata
                .is_file()
                .then(|| (metadata.size(), blake3::hash(&std::fs::read(&path).unwrap()))),
            link: path.read_link().ok(),
            xattr,
            same_as,
            has_holes: metadata.is_file()
                && metadata.size() > 1 << 16
                && metadata.blocks() * 512 < metadata.size() / 2,
        };
        facts.insert(relative, fact);
    }
    facts
}

/// What `cp` makes.
pub fn gnu_cp(options: &[&str], from: &Path, to: &Path) {
    let done = Command::new("cp").args(options).arg(from).arg(to).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}
