//! GNU tar, bsdtar and Python read packs as Sheaf does.
use crate::made::{Made, file, members, named, packed, whole_content};
use proptest::prelude::*;
use sheaf_archive::{INDEX_NAME, MemberAttributes, MemberKind};
use sheaf_core::files::Timestamp;
use sheaf_testing::program::have;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};

const XATTR: &[u8] = b"user.sheaf";
const ACL: &[u8] = b"system.posix_acl_access";
/// Only GNU tar reads the name of this one as it writes it.
const ODD_XATTR: &[u8] = b"user.sheaf=50%25";

/// Members of all kinds, with attributes that have no room in a plain header.
fn everything() -> Vec<Made> {
    let is_root = rustix::process::geteuid().is_root();
    let owner = if is_root { (3_000_000, 54321) } else { here() };
    let mut members = BTreeMap::new();
    let mut add = |name: &[u8], kind: MemberKind, mtime: (i64, u32), content: &[u8]| {
        let (mut made, _) = file(name, b"");
        made.mtime = Timestamp { seconds: mtime.0, nanoseconds: mtime.1 };
        (made.kind, made.uid, made.gid) = (kind, owner.0, owner.1);
        members.insert(name.to_owned(), (made, content.to_owned()));
    };
    add(b"plain", MemberKind::File, (1_600_000_000, 0), b"content\n");
    add(b"empty", MemberKind::File, (1_600_000_000, 1), b"");
    add(b"before 1970", MemberKind::File, (-86_400, 250_000_000), b"old");
    add(b"before 1970 whole", MemberKind::File, (-1_000, 0), b"old");
    add(b"after 2242", MemberKind::File, (0o100_000_000_000, 999_999_999), b"new");
    add(b"-rf *\n\t'\"\\", MemberKind::File, (7, 7), &[0, 255, 10]);
    add(&[b'n'; 255], MemberKind::File, (1, 0), &[b'x'; 513]);
    add(&[b'n'; 100], MemberKind::File, (1, 0), &[b'x'; 512]);
    add(&"é".repeat(60).into_bytes(), MemberKind::File, (1, 0), b"utf-8");
    add(b"\xff\xfe not utf-8", MemberKind::File, (1, 0), b"bytes");
    add(&[0xe9; 255], MemberKind::File, (1, 0), b"long and not utf-8");
    // Holes before, between and behind what is there; and nothing else.
    let hole = [0; 64 << 10];
    let pieces = [&hole[..], &[1; 512], &hole, &[2; 1536], &hole];
    add(b"sparse", MemberKind::File, (3, 3), &pieces.concat());
    add(
        b"sparse to a rest",
        MemberKind::File,
        (3, 3),
        &[&[1; 512], &hole[..], b"the end"].concat(),
    );
    add(&[b's'; 255], MemberKind::File, (3, 0), &pieces.concat());
    add(b"sparse \xff", MemberKind::File, (3, 0), &pieces.concat());
    add(b"hole", MemberKind::File, (3, 0), &hole);
    let many: Vec<u8> = (0..600).flat_map(|at| [(at % 2) as u8; 512]).collect();
    add(b"sparse of many pieces", MemberKind::File, (3, 0), &many);
    add(b"sparse, once more", MemberKind::HardLink { to: named(b"sparse") }, (3, 3), b"");
    add(b"listed", MemberKind::File, (4, 0), b"with an access control list");
    add(b"plain's other name", MemberKind::HardLink { to: named(b"plain") }, (1, 0), b"");
    add(b"link", MemberKind::Symlink { target: b"../gone/\xff".to_vec() }, (5, 5), b"");
    add(b"long link", MemberKind::Symlink { target: [b'l'; 200].to_vec() }, (5, 5), b"");
    add(b"pipe", MemberKind::Fifo, (5, 500_000_000), b"");
    if is_root {
        add(b"null", MemberKind::CharDevice { major: 1, minor: 3 }, (9, 0), b"");
        add(b"disk", MemberKind::BlockDevice { major: 259, minor: 1_048_575 }, (9, 0), b"");
    }
    if takes(&std::env::temp_dir(), ACL, &acl()) {
        members.get_mut(&b"listed"[..]).unwrap().0.xattrs = vec![(ACL.to_vec(), acl())];
    } else {
        println!("SKIPPED 1 test: the file system of this test has no access control lists");
    }
    let noted: &mut Made = members.get_mut(&b"plain"[..]).unwrap();
    let value = vec![0, b'\n', 255];
    noted.0.xattrs = vec![(XATTR.to_vec(), value.clone()), (ODD_XATTR.to_vec(), value)];
    // The attributes of one file are those that its last name has.
    let shared = noted.0.clone();
    let other = members.get_mut(&b"plain's other name"[..]).unwrap();
    let kind = other.0.kind.clone();
    other.0 = MemberAttributes { name: other.0.name.clone(), kind, ..shared };
    members.into_values().collect()
}

fn here() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// What a program that takes tars apart can do.
#[derive(Clone, Copy, PartialEq)]
enum Program {
    GnuTar,
    /// libarchive takes the fraction of a time before 1970 for one that counts forwards.
    Bsdtar,
    /// Times are floating-point numbers, and those of links stay; there are no extended attributes.
    Python,
}

impl Program {
    /// How many nanoseconds the time of a file may be off; nothing where it is not set.
    fn time_slack_ns(self, of: &MemberAttributes) -> Option<i128> {
        let is_before_1970 = of.mtime.seconds < 0 && of.mtime.nanoseconds != 0;
        match self {
            Self::Bsdtar if is_before_1970 => Some(2_000_000_000),
            Self::GnuTar | Self::Bsdtar => Some(0),
            Self::Python => (!matches!(of.kind, MemberKind::Symlink { .. })).then_some(2_000),
        }
    }
}

fn compare(dir: &Path, members: &[Made], program: Program, said: &Output) {
    let has_ended_well = said.status.success();
    let said = String::from_utf8_lossy(&said.stderr);
    assert!(has_ended_well, "{said}");
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut found: Vec<_> = entries.map(OsStringExt::into_vec).collect();
    found.retain(|name| name != INDEX_NAME);
    found.sort();
    let names: Vec<_> = members.iter().map(|(of, _)| of.name.to_vec()).collect();
    assert_eq!(found, names, "{said}");
    let (tar, index) = packed(members);
    let has_xattrs = program != Program::Python && takes_xattrs(dir);
    for member in &index.members {
        let of = &member.attributes;
        let (path, name) = (dir.join(OsStr::from_bytes(&of.name)), of.name.escape_ascii());
        let is = std::fs::symlink_metadata(&path).unwrap();
        let (kind, device) = match of.kind {
            MemberKind::File | MemberKind::HardLink { .. } => (0o100_000, 0),
            MemberKind::Symlink { .. } => (0o120_000, 0),
            MemberKind::Fifo => (0o010_000, 0),
            MemberKind::CharDevice { major, minor } => {
                (0o020_000, rustix::fs::makedev(major, minor))
            }
            MemberKind::BlockDevice { major, minor } => {
                (0o060_000, rustix::fs::makedev(major, minor))
            }
        };
        // A link has no permissions of its own.
        let mode = if kind == 0o120_000 { 0o777 } else { of.mode };
        assert_eq!((is.mode(), is.rdev()), (kind | mode, device), "{name}");
        assert_eq!((is.uid(), is.gid()), (of.uid, of.gid), "{name}");
        let ns = |seconds: i64, more: i64| i128::from(seconds) * 1_000_000_000 + i128::from(more);
        let time = ns(of.mtime.seconds, i64::from(of.mtime.nanoseconds));
        let off = (ns(is.mtime(), is.mtime_nsec()) - time).abs();
        let slack = program.time_slack_ns(of);
        assert!(slack.is_none_or(|slack| off <= slack), "{name}: {off} ns off");
        match &of.kind {
            MemberKind::Symlink { target } => {
                assert_eq!(std::fs::read_link(&path).unwrap().as_os_str().as_bytes(), target);
            }
            MemberKind::HardLink { to } => {
                let to = std::fs::symlink_metadata(dir.join(OsStr::from_bytes(to))).unwrap();
                assert_eq!((is.ino(), is.nlink()), (to.ino(), 2), "{name}");
            }
            MemberKind::File => {
                let (read, content) = (std::fs::read(&path).unwrap(), whole_content(&tar, member));
                assert!(read == content, "{name}: another content");
                let pieces = member.stored_extents();
                // File systems know of holes of a few blocks.
                let has_holes =
                    pieces.len() < 10 && member.size - member.stored_bytes() >= 64 << 10;
                assert!(!has_holes || is.blocks() * 512 < is.size(), "{name} has no holes");
            }
            _ => {}
        }
        for (xattr, value) in of.xattrs.iter().filter(|_| has_xattrs) {
            if program == Program::Bsdtar && xattr == ODD_XATTR {
                continue;
            }
            let mut is = [0; 64];
            let length = rustix::fs::getxattr(&path, OsStr::from_bytes(xattr), &mut is[..]);
            assert_eq!(&is[..length.unwrap()], value, "{name}");
        }
    }
}

/// Takes a pack of everything apart in a directory of its own.
fn taken_apart(command: &mut Command, program: Program) {
    let members = everything();
    let dir = tempfile::tempdir().unwrap();
    let (pack, out) = (dir.path().join("pack.tar"), dir.path().join("out"));
    std::fs::write(&pack, packed(&members).0).unwrap();
    std::fs::create_dir(&out).unwrap();
    let said = command.arg(&pack).current_dir(&out).env("LC_ALL", "C.UTF-8").output().unwrap();
    compare(&out, &members, program, &said);
}

/// Whether the file system here has extended attributes of users.
fn takes_xattrs(dir: &Path) -> bool {
    takes(dir, XATTR, b"x")
}

fn takes(dir: &Path, xattr: &[u8], value: &[u8]) -> bool {
    let file = tempfile::NamedTempFile::new_in(dir).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(file.path(), OsStr::from_bytes(xattr), value, flags).is_ok()
}

/// As the system has it: `user::rw-,user:1000:r--,group::r--,group:7:---,mask::r--,other::---`.
fn acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 6] = [
        (1, 6, u32::MAX),
        (2, 4, 1000),
        (4, 4, u32::MAX),
        (8, 0, 7),
        (16, 4, u32::MAX),
        (32, 0, u32::MAX),
    ];
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&permissions.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    acl
}

#[test]
fn gnu_tar_takes_packs_apart() {
    if have("tar") {
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--same-permissions", "--acls"]);
        tar.args(["--xattrs", "--xattrs-include=*", "--file"]);
        taken_apart(&mut tar, Program::GnuTar);
    }
}

#[test]
fn bsdtar_takes_packs_apart() {
    if have("bsdtar") {
        let mut tar = Command::new("bsdtar");
        tar.args(["-x", "-p", "--acls", "-f"]);
        taken_apart(&mut tar, Program::Bsdtar);
    }
}

#[test]
fn python_takes_packs_apart() {
    if have("python3") {
        let mut python = Command::new("python3");
        // Later versions take only what is harmless, unless they are told.
        let all = "import sys, tarfile; tar = tarfile.open(sys.argv[1]); \
                   tar.extraction_filter = lambda member, path: member; tar.extractall()";
        python.args(["-c", all]);
        taken_apart(&mut python, Program::Python);
    }
}

/// What `tar --list` prints is each member, and the index.
#[test]
fn pack_is_listed_in_order() {
    if !have("tar") {
        return;
    }
    let members: Vec<_> =
        (0..500).map(|number| file(format!("file-{number:03}").as_bytes(), b"content")).collect();
    let dir = tempfile::tempdir().unwrap();
    let pack = dir.path().join("pack.tar");
    std::fs::write(&pack, packed(&members).0).unwrap();
    let listed = Command::new("tar").arg("--list").arg("--file").arg(&pack).output().unwrap();
    assert!(listed.status.success() && listed.stderr.is_empty(), "{listed:?}");
    let expected: String = (0..500).map(|number| format!("file-{number:03}\n")).collect();
    assert_eq!(String::from_utf8(listed.stdout).unwrap(), format!("{expected}.sheaf-index\n"));
}

/// Takes a tar apart, with modes, and without what not everybody can set.
const PYTHON_ALL: &str = "import sys, tarfile
tar = tarfile.open(sys.argv[1])
for member in tar.getmembers():
    member.uid = member.gid = member.mtime = 0
tar.extraction_filter = lambda member, path: member
tar.extractall()
";

/// The same content and kind of each member, whatever there is of names and attributes.
fn compare_random(out: &Path, members: &[Made], said: &Output) -> Result<(), TestCaseError> {
    prop_assert!(said.status.success(), "{said:?}");
    let entries = std::fs::read_dir(out).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = entries.map(OsStringExt::into_vec).collect();
    names.retain(|name| name != INDEX_NAME);
    names.sort();
    let expected: Vec<_> = members.iter().map(|(of, _)| of.name.to_vec()).collect();
    prop_assert_eq!(names, expected, "{:?}", said);
    for (of, content) in members {
        let at = out.join(OsStr::from_bytes(&of.name));
        let is = std::fs::symlink_metadata(&at).unwrap();
        let mode = match &of.kind {
            MemberKind::File | MemberKind::HardLink { .. } => 0o100_000,
            MemberKind::Symlink { .. } => 0o120_000,
            MemberKind::Fifo => 0o010_000,
            MemberKind::CharDevice { .. } => 0o020_000,
            MemberKind::BlockDevice { .. } => 0o060_000,
        };
        prop_assert_eq!(is.mode() & 0o170_000, mode, "{:?}", of);
        match &of.kind {
            MemberKind::File => {
                prop_assert!(std::fs::read(&at).unwrap() == *content, "{:?}", of);
                // In a file system a list and a mode say the same; here they are made up.
                let has_list = of.xattrs.iter().any(|(name, _)| name == ACL);
                if is.nlink() == 1 && !has_list {
                    // Whoever does not set the owner may leave out what would act for it.
                    prop_assert_eq!(is.mode() & 0o1777, of.mode & 0o1777, "{:?}", of);
                }
            }
            MemberKind::Symlink { target } => {
                let text = std::fs::read_link(&at).unwrap().into_os_string().into_vec();
                prop_assert_eq!(&text, target);
            }
            MemberKind::HardLink { to } => {
                let to = std::fs::symlink_metadata(out.join(OsStr::from_bytes(to))).unwrap();
                prop_assert_eq!(to.ino(), is.ino(), "{:?}", of);
            }
            _ => {}
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn random_packs_are_taken_apart_by_all(members in members()) {
        let is_root = rustix::process::geteuid().is_root();
        let is_device = |of: &MemberAttributes| {
            matches!(of.kind, MemberKind::CharDevice { .. } | MemberKind::BlockDevice { .. })
        };
        // Only root makes devices, and a link that is too long for the system is none.
        let members: Vec<_> = members
            .into_iter()
            .filter(|(of, _)| is_root || !is_device(of))
            .filter(|(of, _)| !matches!(&of.kind, MemberKind::Symlink { target } if target.len() > 4000))
            .collect();
        let programs: [(&str, &[&str]); 3] = [
            ("tar", &["-x", "-p", "-m", "--no-same-owner", "-f"]),
            ("bsdtar", &["-x", "-P", "-p", "-m", "--no-same-owner", "--no-xattrs", "--no-acls", "-f"]),
            ("python3", &["-c", PYTHON_ALL]),
        ];
        for (program, options) in programs.into_iter().filter(|(program, _)| have(program)) {
            let dir = tempfile::tempdir().unwrap();
            let (pack, out) = (dir.path().join("pack.tar"), dir.path().join("out"));
            std::fs::write(&pack, packed(&members).0).unwrap();
            std::fs::create_dir(&out).unwrap();
            let mut command = Command::new(program);
            let command = command.args(options).arg(&pack).current_dir(&out);
            let said = command.env("LC_ALL", "C.UTF-8").output().unwrap();
            compare_random(&out, &members, &said)?;
        }
    }
}
