//! Files that are changed again so shortly after they were stored that their times stay the same.
use crate::round::{Place, path, settle};
use sheaf_archive::{SaveOptions, write_content};
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const ROUNDS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test of this module with a file system whose times are whole seconds, which no other process
/// sees.
fn on_whole_seconds(test: &str) {
    let directory = tempfile::tempdir().unwrap();
    let script = "cd \"$1\" && truncate -s 16M image && PATH=$PATH:/usr/sbin:/sbin &&
        mkfs.ext4 -q -I 128 image 2>err && mkdir disk && mount -o loop image disk || exit 77
        shift; exec \"$@\"";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .arg(directory.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("SHEAF_TEST_SECONDS", directory.path().join("disk"))
        .output();
    match output {
        Ok(output) if output.status.success() => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains("1 passed"), "{said}");
        }
        Ok(output) if output.status.code() != Some(77) && crate::trees::is_root() => {
            panic!("{}", String::from_utf8_lossy(&output.stderr));
        }
        _ => sheaf_testing::skipped(
            "times in whole seconds need root, unshare, mkfs.ext4 and a loop device",
        ),
    }
}

/// The file system of a test that is run so.
fn disk() -> Option<PathBuf> {
    std::env::var_os("SHEAF_TEST_SECONDS").map(Into::into)
}

fn time(of: &Path) -> (i64, i64) {
    let found = fs::symlink_metadata(of).unwrap();
    assert_eq!((found.ctime_nsec(), found.mtime_nsec()), (0, 0), "its times are in seconds");
    (found.ctime(), found.mtime())
}

/// Does something, stores the tree, and changes it so that the times of a name stay, until that was so often
/// enough; then it is stored again and `check` is called.
fn race(
    tree: &Path,
    name: &str,
    options: SaveOptions,
    first: impl Fn(usize),
    then: impl Fn(usize),
    check: impl Fn(&Place, usize),
) {
    let (deadline, mut met) = (Instant::now() + PATIENCE, 0);
    for round in 0.. {
        let place = Place::new();
        first(round);
        let before = time(&tree.join(name));
        let stored = place.save_from(tree.parent().unwrap(), "tree", options);
        assert!(stored.stored > 0);
        then(round);
        // The second may have ended before.
        let is_met = time(&tree.join(name)) == before;
        place.save_from(tree.parent().unwrap(), "tree", options);
        check(&place, round);
        met += usize::from(is_met);
        if met == ROUNDS {
            return;
        }
        assert!(Instant::now() < deadline, "times have never stayed the same");
    }
}

fn archived(place: &Place, name: &str) -> Vec<u8> {
    let mut content = Vec::new();
    write_content(&place.archive, &path(name), &mut content).unwrap();
    content
}

fn contents(tree: &Path, options: SaveOptions) {
    let file = tree.join("f");
    race(
        tree,
        "f",
        options,
        |round| fs::write(&file, format!("one {round:04}\n")).unwrap(),
        |round| fs::write(&file, format!("two {round:04}\n")).unwrap(),
        |place, round| {
            assert_eq!(archived(place, "/tree/f"), format!("two {round:04}\n").into_bytes());
        },
    );
}

#[test]
fn file_rewritten_within_its_second_is_stored_again() {
    let test = "racy::file_rewritten_within_its_second_is_stored_again";
    let Some(disk) = disk() else { return on_whole_seconds(test) };
    let tree = disk.join("tree");
    fs::create_dir(&tree).unwrap();
    contents(&tree, SaveOptions::default());
    contents(&tree, SaveOptions { member_bytes_max: 0, ..SaveOptions::default() });
    contents(&tree, SaveOptions { member_bytes_max: 2, ..SaveOptions::default() });
}

#[test]
fn link_and_attribute_replaced_within_a_second_are_stored() {
    let test = "racy::link_and_attribute_replaced_within_a_second_are_stored";
    let Some(disk) = disk() else { return on_whole_seconds(test) };
    let tree = disk.join("tree");
    fs::create_dir(&tree).unwrap();
    let (link, file) = (tree.join("l"), tree.join("f"));
    for options in
        [SaveOptions::default(), SaveOptions { checksum: true, ..SaveOptions::default() }]
    {
        race(
            &tree,
            "l",
            options,
            |_| {
                let _ = fs::remove_file(&link);
                std::os::unix::fs::symlink("one", &link).unwrap();
            },
            |_| {
                fs::remove_file(&link).unwrap();
                std::os::unix::fs::symlink("two", &link).unwrap();
            },
            |place, _| {
                let found = place.archive.look_up(&path("/tree/l")).unwrap();
                assert!(format!("{found:?}").contains(&format!("{:?}", b"two")), "{found:?}");
            },
        );
    }
    let set = |value: &str| {
        let name = CString::new("user.test").unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&file, &name, value.as_bytes(), flags).unwrap();
    };
    fs::write(&file, "content").unwrap();
    race(
        &tree,
        "f",
        SaveOptions::default(),
        |_| set("one"),
        |_| set("two"),
        |place, _| {
            let found = place.archive.look_up(&path("/tree/f")).unwrap();
            assert!(format!("{found:?}").contains(&format!("{:?}", b"two")), "{found:?}");
        },
    );
}

/// What was stored right after it was written is read once more, and not stored once more.
#[test]
fn unchanged_file_that_may_have_changed_is_not_stored_twice() {
    let place = Place::new();
    let tree = place.path("tree");
    fs::create_dir(&tree).unwrap();
    settle();
    for round in 0..20 {
        fs::write(tree.join("f"), format!("content {round}")).unwrap();
        fs::hard_link(tree.join("f"), tree.join(format!("g{round}"))).unwrap();
        assert!(place.save("tree", SaveOptions::default()).0.stored > 0);
        let commits = place.archive.catalog().applied().unwrap();
        let (again, told) = place.save("tree", SaveOptions::default());
        assert_eq!((again.stored, again.unchanged, told), (0, round + 2, Vec::new()));
        assert_eq!(place.archive.catalog().applied().unwrap(), commits);
        assert_eq!(archived(&place, "/tree/f"), format!("content {round}").into_bytes());
    }
}
