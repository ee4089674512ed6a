//! `get --overwrite`: what is in the target is afterwards as it is archived, whatever its size and time say,
//! and what is so already is not written.
use crate::round::{Place, settle};
use crate::trees::{assert_same, is_root, make_everything};
use sheaf_archive::{FetchOptions, SaveOptions, TreeWalk, TreeWalkOptions};
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const ROUNDS: u64 = 12;

/// Numbers that are the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn overwriting() -> FetchOptions {
    FetchOptions { overwrite: true, ..FetchOptions::default() }
}

/// All that is no directory, with what shows that it was written. What has a longer path than the system
/// takes is left out.
fn files(at: &Path) -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    for entry in TreeWalk::new(at, TreeWalkOptions::default()) {
        let found = entry.found.unwrap();
        if !found.is_dir() && entry.path.as_os_str().len() < 3000 {
            files.insert(entry.path.clone(), format!("{} {:?}", found.ino, found.ctime));
        }
    }
    files
}

/// Changes something of a file, and keeps its size and time; whether it did.
fn change(file: &Path, numbers: &mut Numbers) -> bool {
    let found = fs::symlink_metadata(file).unwrap();
    let time = found.modified().unwrap();
    let is_changed = match numbers.below(6) {
        0 if found.is_file() && found.len() > 0 => {
            let open = File::options().read(true).write(true).open(file).unwrap();
            // In a hole, too.
            let at = numbers.below(found.len());
            let mut byte = [0];
            open.read_exact_at(&mut byte, at).unwrap();
            open.write_all_at(&[byte[0] ^ 1], at).unwrap();
            true
        }
        1 if !found.is_symlink() => {
            let mode = found.permissions().mode() ^ 0o010;
            fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
            true
        }
        2 if is_root() => {
            std::os::unix::fs::lchown(file, Some(found.uid() + 1), None).unwrap();
            // Another owner takes bits away.
            true
        }
        3 if found.is_symlink() => {
            let target = fs::read_link(file).unwrap();
            let other = "y".repeat(target.as_os_str().len());
            fs::remove_file(file).unwrap();
            std::os::unix::fs::symlink(other, file).unwrap();
            true
        }
        4 if found.is_file() => {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(file, c"user.more", b"more", flags).is_ok()
        }
        5 if found.is_file() && found.nlink() > 1 => {
            let content = fs::read(file).unwrap();
            fs::remove_file(file).unwrap();
            fs::write(file, content).unwrap();
            true
        }
        _ => false,
    };
    if is_changed {
        let time = time.duration_since(std::time::UNIX_EPOCH).map_or_else(
            |before| {
                let before = before.duration();
                let (seconds, part) = (before.as_secs() as i64, i64::from(before.subsec_nanos()));
                if part == 0 { (-seconds, 0) } else { (-seconds - 1, 1_000_000_000 - part) }
            },
            |since| (since.as_secs() as i64, i64::from(since.subsec_nanos())),
        );
        let time = rustix::fs::Timespec { tv_sec: time.0, tv_nsec: time.1 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(rustix::fs::CWD, file, &times, flags).unwrap();
    }
    is_changed
}

#[test]
fn overwriting_get_restores_files_of_equal_size_and_time() {
    for options in
        [SaveOptions::default(), SaveOptions { member_bytes_max: 0, ..Default::default() }]
    {
        let place = Place::new();
        make_everything(&place.path("tree"));
        settle();
        place.save("tree", options);
        place.fetch("/tree", "back", overwriting());
        assert_same(&place.path("tree"), &place.path("back/tree"));
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        for round in 0..ROUNDS {
            let back = place.path("back/tree");
            let before = files(&back);
            let mut changed = 0;
            for file in before.keys() {
                changed += u64::from(numbers.below(3) == 0 && change(file, &mut numbers));
            }
            assert!(changed > 0);
            let dry = FetchOptions { dry_run: true, ..overwriting() };
            let would = place.fetch("/tree", "back", dry).0;
            let (report, told) = place.fetch("/tree", "back", overwriting());
            assert_eq!((report.failed, report.newer), (0, 0), "{round}: {told:?}");
            assert!(report.fetched > 0 && would.fetched > 1, "{round}: {report:?} {would:?}");
            assert_same(&place.path("tree"), &back);
            // What is as it is archived is not written again.
            let after = files(&back);
            let (report, _) = place.fetch("/tree", "back", overwriting());
            assert_eq!(files(&back), after);
            assert_eq!(report.fetched, 0, "{round}");
            // A path that is longer than the system takes is not looked at.
            assert_eq!(place.fetch("/tree", "back", dry).0.fetched, 1);
        }
    }
}

/// The same target, and what GNU tar makes of it.
#[test]
fn overwriting_get_leaves_what_gnu_tar_leaves() {
    let place = Place::new();
    let tree = place.path("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    fs::write(tree.join("d/file"), "content").unwrap();
    fs::write(tree.join("longer"), "archived").unwrap();
    fs::set_permissions(tree.join("d/file"), Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("target", tree.join("link")).unwrap();
    settle();
    place.save("tree", SaveOptions::default());
    let others = ["back", "tar"].map(|name| place.path(name));
    for other in &others {
        fs::create_dir(other).unwrap();
        let copied = Command::new("cp").arg("-a").args([&tree, other]).status().unwrap();
        assert!(copied.success());
        let other = other.join("tree");
        let time = fs::metadata(other.join("d/file")).unwrap().modified().unwrap();
        fs::write(other.join("d/file"), "CONTENT").unwrap();
        fs::set_permissions(other.join("d/file"), Permissions::from_mode(0o4777)).unwrap();
        File::options().write(true).open(other.join("d/file")).unwrap().set_modified(time).unwrap();
        fs::write(other.join("longer"), "newer and longer").unwrap();
        let own = other.join("d/of its own");
        fs::write(&own, "stays").unwrap();
        File::options().write(true).open(own).unwrap().set_modified(time).unwrap();
        fs::remove_file(other.join("link")).unwrap();
        fs::write(other.join("link"), "no link").unwrap();
    }
    let script = "tar --format=pax -C \"$1\" -cf - tree | tar -C \"$2\" -xpf -";
    let mut tar = Command::new("sh");
    tar.args(["-c", script, "sh"]).arg(place.directory.path()).arg(&others[1]);
    assert!(tar.status().unwrap().success());
    assert_eq!(place.fetch("/tree", "back", overwriting()).0.failed, 0);
    assert_same(&others[1].join("tree"), &others[0].join("tree"));
}
