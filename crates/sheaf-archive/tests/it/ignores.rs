//! Files whose time of change or inode says nothing.
use crate::round::{Place, settle};
use sheaf_archive::{FileIgnores, SaveOptions, SaveReport};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Replaces each file by a copy with its times, as a server does that numbers files anew.
fn renumber(tree: &Path) {
    for file in fs::read_dir(tree).unwrap() {
        let file = file.unwrap().path();
        let copy = file.with_extension("copy");
        fs::copy(&file, &copy).unwrap();
        let time = fs::metadata(&file).unwrap().modified().unwrap();
        File::options().write(true).open(&copy).unwrap().set_modified(time).unwrap();
        fs::rename(copy, file).unwrap();
    }
}

/// Changes nothing but times of change.
fn touch_inodes(tree: &Path) {
    for file in fs::read_dir(tree).unwrap() {
        let file = file.unwrap().path();
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode ^ 0o200)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    }
}

#[test]
fn ignored_times_of_change_and_inodes_store_nothing_again() {
    for member_bytes_max in [0, 1 << 20] {
        let place = Place::new();
        let tree = place.path("tree");
        fs::create_dir(&tree).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(tree.join(name), name).unwrap();
        }
        settle();
        let save = |ctime, inode| -> SaveReport {
            let ignores = FileIgnores::of(ctime, inode);
            let options = SaveOptions { member_bytes_max, ignores, ..SaveOptions::default() };
            place.save("tree", options).0
        };
        assert_eq!(save(false, false).stored, 3);
        settle();
        touch_inodes(&tree);
        settle();
        assert_eq!(save(true, false).stored, 0, "{member_bytes_max}");
        assert_eq!(save(false, true).stored, 0, "{member_bytes_max}");
        assert_eq!(save(false, false).stored, 3, "{member_bytes_max}");
        settle();
        renumber(&tree);
        settle();
        assert_eq!(save(false, true).stored, 0, "{member_bytes_max}");
        assert_eq!(save(true, false).stored, 3, "{member_bytes_max}");
        // Size, time, mode and owner count all the same.
        settle();
        fs::write(tree.join("a"), "other").unwrap();
        fs::set_permissions(tree.join("b"), fs::Permissions::from_mode(0o600)).unwrap();
        File::options().write(true).open(tree.join("c")).unwrap();
        settle();
        assert_eq!(save(true, true).stored, 2, "{member_bytes_max}");
    }
}
