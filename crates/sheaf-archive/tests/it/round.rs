//! What is stored and fetched again is the same.
use crate::stores::{self, StorePlace};
use crate::trees::{assert_same, is_root, make_everything};
use sheaf_archive::{
    Archive, ArchiveEvent, ArchivePath, Catalog, FetchOptions, FetchReport, SaveOptions,
    SaveReport, Store, TreeWalk, TreeWalkOptions, fetch, save,
};
use sheaf_core::lock;
use sheaf_testing::program::have;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An archive of a test's own, and a directory for what is stored and fetched.
pub struct Place {
    pub directory: tempfile::TempDir,
    pub archive: Archive,
    pub at: StorePlace,
}

impl Place {
    /// In the directory itself, as `store`.
    pub fn new() -> Self {
        Self::at(StorePlace::local())
    }

    /// One in a store of each kind.
    pub fn all() -> impl Iterator<Item = Self> {
        StorePlace::all().into_iter().map(Self::at)
    }

    /// One in this store.
    pub fn at(mut at: StorePlace) -> Self {
        let store = at.create().unwrap();
        let directory = if at.server.is_some() || at.is_tape {
            tempfile::tempdir().unwrap()
        } else {
            std::mem::replace(&mut at.directory, tempfile::tempdir().unwrap())
        };
        let catalog = Catalog::open(&directory.path().join("catalog")).unwrap();
        let archive = Archive::new(store, catalog).unwrap();
        Self { directory, archive, at }
    }

    /// Its store, opened once more.
    pub fn open_store(&self) -> Arc<dyn Store> {
        match self.at.server {
            _ if self.at.is_tape => self.at.open().unwrap(),
            Some(_) => self.at.open().unwrap(),
            None => stores::open(&self.path("store").display().to_string()).unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Stores a file or directory in the root; what was told.
    pub fn save(&self, name: &str, options: SaveOptions) -> (SaveReport, Vec<String>) {
        let told = Mutex::new(Vec::new());
        let tell = |event: ArchiveEvent| lock(&told).push(format!("{event:?}"));
        let sources = [self.path(name)];
        let report = save(&self.archive, &sources, &ArchivePath::ROOT, options, &tell).unwrap();
        (report, told.into_inner().unwrap())
    }

    /// Stores a file or directory of another directory in the root, and nothing is to be told.
    pub fn save_from(&self, above: &Path, name: &str, options: SaveOptions) -> SaveReport {
        let fail = |event: ArchiveEvent| panic!("{event:?}");
        save(&self.archive, &[above.join(name)], &ArchivePath::ROOT, options, &fail).unwrap()
    }

    /// Fetches something into a directory; what was told.
    pub fn fetch(&self, from: &str, to: &str, options: FetchOptions) -> (FetchReport, Vec<String>) {
        let told = Mutex::new(Vec::new());
        let tell = |event: ArchiveEvent| lock(&told).push(format!("{event:?}"));
        let report = fetch(&self.archive, &path(from), &self.path(to), options, &tell).unwrap();
        (report, told.into_inner().unwrap())
    }
}

pub fn path(text: &str) -> ArchivePath {
    ArchivePath::new(text.as_bytes()).unwrap()
}

/// Files that are as old as that are known to be unchanged.
pub fn settle() {
    std::thread::sleep(Duration::from_millis(50));
}

fn round(options: SaveOptions) {
    Place::all().for_each(|place| round_in(&place, options));
}

fn round_in(place: &Place, options: SaveOptions) {
    make_everything(&place.path("tree"));
    settle();
    let (saved, told) = place.save("tree", options);
    assert_eq!((saved.failed, &told[..]), (0, &[][..]));
    let (fetched, told) = place.fetch("/tree", "back", FetchOptions::default());
    assert_eq!((fetched.failed, fetched.attributes_left, &told[..]), (0, 0, &[][..]));
    assert_eq!(fetched.fetched, saved.stored);
    assert_eq!(fetched.directories, saved.directories);
    assert_same(&place.path("tree"), &place.path("back/tree"));

    // Once more, nothing is to be done, and nothing is committed.
    let commits = place.archive.catalog().applied().unwrap();
    let (again, _) = place.save("tree", options);
    assert_eq!((again.stored, again.unchanged), (0, saved.stored));
    assert_eq!(again.directories, saved.directories);
    assert_eq!(place.archive.catalog().applied().unwrap(), commits);
    let (again, _) = place.fetch("/tree", "back", FetchOptions::default());
    assert_eq!((again.fetched, again.unchanged), (0, fetched.fetched));
    assert_same(&place.path("tree"), &place.path("back/tree"));
}

#[test]
fn tree_of_everything_comes_back_as_it_was() {
    round(SaveOptions::default());
}

#[test]
fn without_packs_it_does_too() {
    round(SaveOptions { member_bytes_max: 0, ..SaveOptions::default() });
}

#[test]
fn with_many_small_packs_it_does_too() {
    round(SaveOptions { pack_bytes: 4096, workers: 8, ..SaveOptions::default() });
}

/// The same, by one who is not root.
#[test]
fn tree_round_trip_works_for_an_unprivileged_user() {
    if !is_root() || !have("setpriv") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // What is built is maybe not where others may go.
    let program = directory.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    for test in ["tree_of_everything_comes_back_as_it_was", "without_packs_it_does_too"] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(&program).arg(format!("round::{test}")).arg("--exact");
        let command = command.env("TMPDIR", directory.path()).current_dir(directory.path());
        let said = command.output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout);
        assert!(said.status.success() && text.contains("1 passed"), "{said:?}");
    }
}

#[test]
fn only_what_has_changed_is_stored_and_the_rest_stays() {
    Place::all().for_each(|place| only_what_has_changed_is_stored(&place));
}

fn only_what_has_changed_is_stored(place: &Place) {
    let tree = place.path("tree");
    fs::create_dir(&tree).unwrap();
    for number in 0..100 {
        fs::write(tree.join(format!("{number:02}")), format!("first {number}")).unwrap();
    }
    settle();
    let (first, _) = place.save("tree", SaveOptions::default());
    assert_eq!(first.stored, 100);
    fs::write(tree.join("07"), "other text").unwrap();
    fs::remove_file(tree.join("08")).unwrap();
    fs::write(tree.join("new"), "new text").unwrap();
    // One that is replaced by another of the same size and time is another inode.
    let time = fs::metadata(tree.join("50")).unwrap().modified().unwrap();
    fs::write(tree.join("other"), "FIRST 50").unwrap();
    fs::File::open(tree.join("other")).unwrap().set_modified(time).unwrap();
    fs::rename(tree.join("other"), tree.join("50")).unwrap();
    settle();
    let (second, _) = place.save("tree", SaveOptions::default());
    assert_eq!((second.stored, second.unchanged), (3, 97));

    let rows = place.archive.catalog().rows_of(&path("/tree")).unwrap();
    let members: Vec<_> = rows.packs.iter().map(|pack| pack.members).collect();
    assert_eq!(members.iter().sum::<u32>(), 101, "{members:?}");
    place.fetch("/tree", "back", FetchOptions::default());
    let read = |name: &str| fs::read_to_string(place.path("back/tree").join(name)).unwrap();
    assert_eq!(read("07"), "other text");
    assert_eq!(read("08"), "first 8", "what is gone from the source stays in the archive");
    assert_eq!(read("50"), "FIRST 50");
    assert_eq!(read("new"), "new text");
    assert_eq!(read("99"), "first 99");
}

#[test]
fn fetch_keeps_newer_files_and_replaces_older_ones() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    fs::write(place.path("tree/a"), "archived").unwrap();
    fs::write(place.path("tree/b"), "archived").unwrap();
    place.save("tree", SaveOptions::default());
    place.fetch("/tree", "back", FetchOptions::default());
    let newer = place.path("back/tree/a");
    fs::write(&newer, "newer").unwrap();
    // A clock whose ticks are long would not tell.
    let time = std::time::SystemTime::now() + Duration::from_secs(1);
    fs::File::open(&newer).unwrap().set_modified(time).unwrap();
    let older = place.path("back/tree/b");
    fs::write(&older, "older").unwrap();
    let time = std::time::SystemTime::UNIX_EPOCH;
    fs::File::open(&older).unwrap().set_modified(time).unwrap();
    let (report, told) = place.fetch("/tree", "back", FetchOptions::default());
    assert_eq!((report.newer, report.fetched, told.len()), (1, 1, 1), "{told:?}");
    assert_eq!(fs::read_to_string(&newer).unwrap(), "newer");
    assert_eq!(fs::read_to_string(&older).unwrap(), "archived");
    let options = FetchOptions { overwrite: true, ..FetchOptions::default() };
    place.fetch("/tree", "back", options);
    assert_eq!(fs::read_to_string(&newer).unwrap(), "archived");
}

#[test]
fn no_link_leads_out_of_the_target() {
    let place = Place::new();
    fs::create_dir_all(place.path("tree/d")).unwrap();
    fs::write(place.path("tree/d/file"), "archived").unwrap();
    fs::write(place.path("tree/other"), "archived").unwrap();
    place.save("tree", SaveOptions::default());
    for (link, to) in [("back/tree/d", "outside"), ("back/tree/other", "outside/victim")] {
        let outside = place.path("outside");
        let _ = fs::remove_dir_all(place.path("back"));
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("victim"), "untouched").unwrap();
        fs::create_dir_all(place.path("back/tree")).unwrap();
        symlink(place.path(to), place.path(link)).unwrap();
        let options = FetchOptions { overwrite: true, ..FetchOptions::default() };
        let (report, told) = place.fetch("/tree", "back", options);
        let expected = u64::from(link.ends_with("/d"));
        assert!(report.failed >= expected, "{told:?}");
        assert_eq!(fs::read_to_string(outside.join("victim")).unwrap(), "untouched");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        if expected == 0 {
            assert!(!place.path(link).is_symlink(), "the file is in the place of the link");
        }
    }
}

#[test]
fn one_file_is_fetched_alone_and_what_is_not_there_is_said() {
    Place::all().for_each(|place| one_file_is_fetched_alone(&place));
}

fn one_file_is_fetched_alone(place: &Place) {
    fs::create_dir(place.path("tree")).unwrap();
    fs::write(place.path("tree/a"), "one").unwrap();
    fs::write(place.path("tree/b"), vec![1; 2 << 20]).unwrap();
    place.save("tree", SaveOptions::default());
    for name in ["a", "b"] {
        let (report, _) = place.fetch(&format!("/tree/{name}"), "alone", FetchOptions::default());
        assert_eq!((report.fetched, report.directories), (1, 0));
        let fetched = fs::read(place.path("alone").join(name)).unwrap();
        assert_eq!(fetched, fs::read(place.path("tree").join(name)).unwrap());
    }
    let to = place.path("alone");
    for name in ["/tree/c", "/c", "/tree/a/c"] {
        let options = FetchOptions::default();
        let error = fetch(&place.archive, &path(name), &to, options, &drop).unwrap_err();
        assert_eq!(error.to_string(), format!("{name}: is not in the archive"));
    }
}

/// What is found in a tree takes the place of what was archived there, of whatever kind.
#[test]
fn directory_replaces_a_file_and_a_file_a_directory() {
    let place = Place::new();
    fs::create_dir_all(place.path("tree/x/below")).unwrap();
    fs::write(place.path("tree/x/below/f"), "f").unwrap();
    for name in ["y", "z", "closed"] {
        fs::write(place.path("tree").join(name), name).unwrap();
    }
    settle();
    place.save("tree", SaveOptions::default());
    fs::remove_dir_all(place.path("tree/x")).unwrap();
    fs::write(place.path("tree/x"), "file").unwrap();
    for name in ["y", "closed"] {
        fs::remove_file(place.path("tree").join(name)).unwrap();
    }
    fs::create_dir_all(place.path("tree/y/deep")).unwrap();
    fs::write(place.path("tree/y/deep/g"), "g").unwrap();
    settle();
    let dry = SaveOptions { dry_run: true, ..SaveOptions::default() };
    let (_, told) = place.save("tree", dry);
    assert!(told.iter().any(|told| told.starts_with("Replaced")), "{told:?}");
    assert!(place.archive.catalog().directory(&path("/tree/y")).unwrap().is_none());
    let (report, told) = place.save("tree", SaveOptions::default());
    assert_eq!((report.failed, report.stored, report.unchanged), (0, 2, 1), "{told:?}");
    assert_eq!(told.iter().filter(|told| told.starts_with("Replaced")).count(), 2, "{told:?}");
    assert!(place.archive.catalog().directory(&path("/tree/x/below")).unwrap().is_none());
    let fail = |error| panic!("{error}");
    let options = sheaf_archive::VerifyOptions::default();
    let verified = sheaf_archive::verify(&place.archive, &ArchivePath::ROOT, options, &fail);
    assert_eq!(verified.unwrap().damaged, 0);
    place.fetch("/tree", "back", FetchOptions::default());
    assert_same(&place.path("tree/y"), &place.path("back/tree/y"));
    assert_eq!(fs::read_to_string(place.path("back/tree/x")).unwrap(), "file");
    // Nothing is left to be done, or to be told.
    let (again, told) = place.save("tree", SaveOptions::default());
    assert_eq!((again.failed, again.stored, told), (0, 0, Vec::new()));
    // One that is named itself does not, as it may go elsewhere.
    place.save("tree/z", SaveOptions::default());
    fs::remove_file(place.path("tree/z")).unwrap();
    fs::create_dir(place.path("tree/z")).unwrap();
    let (report, told) = place.save("tree/z", SaveOptions::default());
    assert_eq!((report.failed, report.directories), (1, 0), "{told:?}");
    assert!(place.archive.catalog().directory(&path("/z")).unwrap().is_none());
    fs::write(place.path("tree/tree"), "another one").unwrap();
    let (report, told) = place.save("tree/tree", SaveOptions::default());
    assert_eq!((report.failed, report.stored), (1, 0), "{told:?}");
    assert!(place.archive.catalog().directory(&path("/tree/y/deep")).unwrap().is_some());
}

#[test]
fn store_is_not_stored_in_itself_and_sockets_are_said() {
    let place = Place::new();
    let root = place.directory.path();
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    fs::write(root.join("file"), "file").unwrap();
    let store = fs::metadata(root.join("store")).unwrap();
    let left_out = Some((store.dev(), store.ino()));
    let (report, told) = place.save(".", SaveOptions { left_out, ..SaveOptions::default() });
    assert_eq!(report.skipped, 2, "{told:?}");
    assert_eq!(report.failed, 0, "{told:?}");
    assert!(place.archive.catalog().directory(&path("/store")).unwrap().is_none());
}

#[test]
fn lost_catalog_is_made_again_and_all_comes_back() {
    for place in Place::all() {
        make_everything(&place.path("tree"));
        place.save("tree", SaveOptions::default());
        let catalog = Catalog::open(&place.path("another")).unwrap();
        let archive = Archive::new(place.open_store(), catalog).unwrap();
        let to = place.path("back");
        let report = fetch(&archive, &path("/tree"), &to, FetchOptions::default(), &drop).unwrap();
        assert_eq!(report.failed, 0);
        assert_same(&place.path("tree"), &to.join("tree"));
    }
}

#[test]
fn store_and_catalog_are_readable_only_by_the_owner() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    fs::write(place.path("tree/secret"), "secret").unwrap();
    fs::write(place.path("tree/large"), vec![1; 2 << 20]).unwrap();
    place.save("tree", SaveOptions::default());
    let catalog = fs::metadata(place.path("catalog")).unwrap();
    assert_eq!(catalog.mode() & 0o077, 0);
    for entry in TreeWalk::new(&place.path("store/objects"), TreeWalkOptions::default()) {
        assert_eq!(entry.found.unwrap().mode & 0o077, 0, "{:?}", entry.path);
    }
}

/// What a directory hands down to what is made in it is not what was archived.
#[test]
fn fetched_files_do_not_inherit_a_default_acl() {
    let place = Place::new();
    fs::create_dir_all(place.path("tree/sub")).unwrap();
    for (name, mode) in [("f", 0o640), ("sub/g", 0o604), ("large", 0o600)] {
        let length = if name == "large" { 2 << 20 } else { 5 };
        fs::write(place.path("tree").join(name), vec![b'x'; length]).unwrap();
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(place.path("tree").join(name), mode).unwrap();
    }
    let pipe = Command::new("mkfifo").arg(place.path("tree/pipe")).status();
    assert!(pipe.unwrap().success());
    symlink("f", place.path("tree/link")).unwrap();
    settle();
    place.save("tree", SaveOptions::default());
    fs::create_dir(place.path("back")).unwrap();
    // user::rwx user:65534:rwx group::r-x mask::rwx other::r-x
    let mut list = 2u32.to_le_bytes().to_vec();
    let no_id = u32::MAX;
    for (tag, bits, id) in
        [(1u16, 7u16, no_id), (2, 7, 65534), (4, 5, no_id), (16, 7, no_id), (32, 5, no_id)]
    {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&bits.to_le_bytes());
        list.extend_from_slice(&id.to_le_bytes());
    }
    let name = "system.posix_acl_default";
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(place.path("back"), name, &list, flags).is_err() {
        return sheaf_testing::skipped("this file system has no access control lists");
    }
    for again in [false, true] {
        if again {
            // A directory that is there already, and has got a list since.
            fs::remove_file(place.path("back/tree/sub/g")).unwrap();
            rustix::fs::setxattr(place.path("back/tree/sub"), name, &list, flags).unwrap();
        }
        let (fetched, told) = place.fetch("/tree", "back", FetchOptions::default());
        assert_eq!((fetched.failed, fetched.attributes_left), (0, 0), "{told:?}");
        assert_same(&place.path("tree"), &place.path("back/tree"));
    }
}

/// Who reads sees one state, whatever others change meanwhile.
#[test]
fn frozen_reader_sees_one_snapshot_despite_changes() {
    for place in Place::all() {
        for directory in 0..40 {
            fs::create_dir_all(place.path(&format!("tree/{directory}"))).unwrap();
            fs::write(place.path(&format!("tree/{directory}/f")), "x").unwrap();
        }
        settle();
        place.save("tree", SaveOptions::default());
        let catalog = Catalog::open(&place.path("catalog")).unwrap();
        let reader = Archive::new(place.open_store(), catalog).unwrap();
        reader.freeze().unwrap();
        reader.freeze().unwrap();
        sheaf_archive::remove(&place.archive, &path("/tree")).unwrap();
        assert!(place.archive.walk(&path("/tree")).is_err());
        assert_eq!(reader.walk(&path("/tree")).unwrap().flatten().count(), 81);
        let (fail, options) = (|event| panic!("{event:?}"), FetchOptions::default());
        let to = place.path("back");
        let fetched = fetch(&reader, &path("/tree"), &to, options, &fail).unwrap();
        assert_eq!((fetched.fetched, fetched.directories, fetched.failed), (40, 41, 0));
        assert_same(&place.path("tree"), &to.join("tree"));
        let fail = |error| panic!("{error}");
        let options = sheaf_archive::VerifyOptions::default();
        let verified = sheaf_archive::verify(&reader, &ArchivePath::ROOT, options, &fail).unwrap();
        assert_eq!(verified.damaged, 0);
    }
}

/// What says that it is empty and is not is told, and not taken for stored.
#[test]
fn file_that_has_more_than_it_says_is_told_each_time() {
    for member_bytes_max in [0, 1 << 20] {
        for checksum in [false, true] {
            let place = Place::new();
            let told = Mutex::new(0);
            let tell = |event: ArchiveEvent| match event {
                ArchiveEvent::Changing { .. } => *lock(&told) += 1,
                event => panic!("{event:?}"),
            };
            let options = SaveOptions { member_bytes_max, checksum, ..SaveOptions::default() };
            for _ in 0..2 {
                let sources = ["/proc/version".into()];
                let report =
                    save(&place.archive, &sources, &ArchivePath::ROOT, options, &tell).unwrap();
                assert_eq!((report.changing, report.unchanged), (1, 0));
            }
            assert_eq!(*lock(&told), 2);
        }
    }
}
