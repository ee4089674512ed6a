//! Packs with dead space, and many small ones, are written anew: nothing of what is archived changes, and
//! the store has so much less in it as is said.
use crate::round::{Place, path, settle};
use crate::trees::assert_same;
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, ArchivedFile, Catalog, Commit, ContentPlace,
    DirectoryChange, FetchOptions, LocalStore, RelocateKeep, Relocation, RepackOptions,
    RepackReport, RepairOptions, SaveOptions, Store, StoreError, StoreKey, StoreWriter,
    StoredObject, TreeSource, VerifyOptions, relocate_files, remove, repack, repair, verify,
};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn wanted() -> RepackOptions {
    RepackOptions { min_dead_percent: 1, ..RepackOptions::default() }
}

fn no_error(error: ArchiveError) {
    panic!("{error}")
}

fn run(archive: &Archive, options: RepackOptions) -> RepackReport {
    repack(archive, &ArchivePath::ROOT, options, &no_error).unwrap()
}

/// All packs' objects, and their bytes.
fn objects(archive: &Archive) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let mut each = |object: StoredObject| {
        found.insert(object.key.to_string(), object.bytes);
        Ok(())
    };
    archive.store().list(&["packs"], &mut each).unwrap();
    found
}

fn bytes(archive: &Archive) -> u64 {
    objects(archive).values().sum()
}

/// Everything is verified, as it was, and without leftovers.
fn check(place: &Place, to: &str) {
    verify(&place.archive, &ArchivePath::ROOT, VerifyOptions::default(), &no_error).unwrap();
    place.fetch("/tree", to, FetchOptions::default());
    assert_same(&place.path("tree"), &place.path(to).join("tree"));
    let dry = RepairOptions { age: Duration::ZERO, dry_run: true };
    assert_eq!(repair(&place.archive, dry).unwrap().leftovers, 0);
}

fn write(place: &Place, name: &str, bytes: usize) {
    let content = name.bytes().cycle().take(bytes).collect::<Vec<u8>>();
    fs::write(place.path("tree").join(name), content).unwrap();
}

fn place() -> Place {
    let place = Place::new();
    fs::create_dir_all(place.path("tree/d")).unwrap();
    for number in 0..50 {
        write(&place, &format!("{number:02}"), 3000 + number);
        write(&place, &format!("d/{number:02}"), number);
    }
    settle();
    place.save("tree", SaveOptions::default());
    place
}

/// Removes a file here and there. The time of its directory stays, as it does there.
fn remove_both(place: &Place, name: &str) {
    remove_here(place, name);
    remove(&place.archive, &path(&format!("/tree/{name}"))).unwrap();
}

fn remove_here(place: &Place, name: &str) {
    let file = place.path("tree").join(name);
    let directory = fs::File::open(file.parent().unwrap()).unwrap();
    let time = directory.metadata().unwrap().modified().unwrap();
    fs::remove_file(&file).unwrap();
    directory.set_modified(time).unwrap();
}

fn remove_some(place: &Place, which: impl Fn(usize) -> bool) {
    for number in (0..50).filter(|&number| which(number)) {
        remove_both(place, &format!("{number:02}"));
    }
}

#[test]
fn repack_frees_the_space_of_removed_members() {
    let place = place();
    remove_some(&place, |number| number % 3 > 0);
    let before = bytes(&place.archive);
    let dry = run(&place.archive, RepackOptions { dry_run: true, ..wanted() });
    assert_eq!(bytes(&place.archive), before);
    let report = run(&place.archive, wanted());
    assert_eq!((report.directories, report.packs, report.packs_new), (1, 1, 1));
    assert_eq!((report.members, report.failed, report.packs_shared), (17, 0, 0));
    assert_eq!((dry.packs, dry.packs_new, dry.members), (1, 1, 17));
    assert_eq!(bytes(&place.archive), before + report.bytes_written - report.bytes_removed);
    assert!(report.bytes_removed > report.bytes_written + 33 * 3000, "{report:?}");
    // Indexes of each generation are gone, too.
    assert_eq!(report.indexes_old, 33);
    assert!(
        objects(&place.archive).keys().all(|key| !key.contains(".idx.") || key.ends_with(".0"))
    );
    check(&place, "back");
    assert_eq!(run(&place.archive, wanted()), RepackReport::default());
    // What is stored again has not changed, by its times and inode.
    let (again, _) = place.save("tree", SaveOptions::default());
    assert_eq!(again.stored, 0);
}

#[test]
fn packs_that_are_compressed_stay_so() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    for number in 0..50 {
        write(&place, &format!("{number:02}"), 3000 + number);
    }
    settle();
    place.save("tree", SaveOptions { zstd: Some(1), ..SaveOptions::default() });
    remove_some(&place, |number| number % 3 > 0);
    let before = bytes(&place.archive);
    let report = run(&place.archive, wanted());
    assert_eq!((report.packs, report.packs_new, report.members), (1, 1, 17));
    assert_eq!(bytes(&place.archive), before + report.bytes_written - report.bytes_removed);
    assert!(objects(&place.archive).keys().any(|key| key.ends_with(".tar.zst")));
    check(&place, "back");
}

#[test]
fn less_dead_space_than_is_asked_for_stays_and_old_indexes_go() {
    let place = place();
    remove_some(&place, |number| number < 5);
    let report = run(&place.archive, RepackOptions::default());
    assert_eq!((report.packs, report.packs_new, report.indexes_old), (0, 0, 5));
    assert!(report.bytes_removed > 0);
    check(&place, "back");
    let report = run(&place.archive, RepackOptions { min_dead_percent: 10, ..wanted() });
    assert_eq!((report.packs, report.packs_new, report.members), (1, 1, 45));
    check(&place, "again");
}

#[test]
fn many_small_packs_become_one_in_the_order_of_names() {
    let place = place();
    for round in 0..5 {
        for number in 0..4 {
            write(&place, &format!("{}{round}", number * 9 + 10), 500 + round);
        }
        settle();
        place.save("tree", SaveOptions::default());
    }
    let rows = |place: &Place| place.archive.catalog().packs(&path("/tree")).unwrap();
    assert_eq!(rows(&place).len(), 6);
    let few = RepackOptions { small_packs_min: 7, ..wanted() };
    assert_eq!(run(&place.archive, few).packs, 0);
    let report = run(&place.archive, RepackOptions::default());
    assert_eq!((report.packs, report.packs_new, report.members), (6, 1, 70));
    assert_eq!(rows(&place).len(), 1);
    check(&place, "back");
    // New packs are as long as they may be.
    let small = RepackOptions { pack_bytes: 40_000, small_packs_min: 1, ..wanted() };
    assert_eq!(run(&place.archive, small).packs, 0);
    remove_some(&place, |number| number == 30);
    let report = run(&place.archive, RepackOptions { min_dead_percent: 0, ..small });
    assert!(report.packs_new > 3, "{report:?}");
    check(&place, "again");
}

#[test]
fn names_of_one_file_and_holes_stay_what_they_are() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    for name in ["a", "b", "c", "gone", "z"] {
        write(&place, name, 5000);
    }
    for (from, to) in [("b", "linked"), ("gone", "heir"), ("gone", "other")] {
        fs::hard_link(place.path("tree").join(from), place.path("tree").join(to)).unwrap();
    }
    let sparse = fs::File::create(place.path("tree/sparse")).unwrap();
    sparse.write_all_at(b"begin", 0).unwrap();
    sparse.write_all_at(b"end", 1 << 20).unwrap();
    drop(sparse);
    settle();
    place.save("tree", SaveOptions::default());
    for name in ["a", "gone"] {
        remove_both(&place, name);
    }
    let report = run(&place.archive, wanted());
    assert_eq!((report.packs, report.packs_new, report.members), (1, 1, 7), "{report:?}");
    check(&place, "back");
    let inode = |name: &str| fs::metadata(place.path("back/tree").join(name)).unwrap().ino();
    assert_eq!(inode("b"), inode("linked"));
    assert_eq!(inode("heir"), inode("other"));
    let sparse = fs::metadata(place.path("back/tree/sparse")).unwrap();
    assert!(sparse.blocks() * 512 < 1 << 19, "{sparse:?}");
}

#[test]
fn repack_keeps_shared_packs_until_references_are_removed() {
    let place = place();
    // Another directory with the same pack, and a file of another one that is a member of it.
    let copy = DirectoryChange {
        path: path("/copy"),
        tree: Some(TreeSource::Copied(path("/tree"))),
        ..DirectoryChange::default()
    };
    let commit = |change| {
        let commit = Commit { changes: vec![change] };
        place.archive.catalog().commit(place.archive.store(), &commit).unwrap();
    };
    commit(copy);
    let found = place.archive.look_up(&path("/tree/d/40")).unwrap();
    let Some(ArchivedFile::Member { member, pack }) = found else { panic!() };
    let since = place.archive.catalog().changed(&ArchivePath::ROOT).unwrap();
    let object = sheaf_archive::ArchivedObject {
        attributes: member.attributes.clone(),
        size: member.size,
        digest: member.digest,
        place: Some(ContentPlace::Pack { id: pack, at: member.content_at(), zstd: false }),
        extents: None,
        link: None,
    };
    commit(DirectoryChange {
        path: ArchivePath::ROOT,
        since,
        objects: vec![object],
        ..DirectoryChange::default()
    });
    remove_some(&place, |number| number > 9);
    for number in 0..39 {
        remove_both(&place, &format!("d/{number:02}"));
    }
    let of_tree = |options| repack(&place.archive, &path("/tree"), options, &no_error).unwrap();
    let report = of_tree(wanted());
    assert_eq!((report.packs, report.packs_new, report.packs_shared), (0, 0, 2));
    assert_eq!(report.bytes_written, 0);
    check(&place, "back");
    place.fetch("/copy", "back", FetchOptions::default());
    assert_eq!(fs::read_dir(place.path("back/copy")).unwrap().count(), 51);
    place.fetch("/40", "back", FetchOptions::default());
    assert_eq!(fs::read(place.path("back/40")).unwrap().len(), 40);
    // Later nobody refers to them.
    remove(&place.archive, &path("/copy")).unwrap();
    remove(&place.archive, &path("/40")).unwrap();
    let report = of_tree(wanted());
    assert_eq!((report.packs, report.packs_new, report.packs_shared), (2, 2, 0));
    assert!(report.bytes_removed > report.bytes_written);
    let age = Duration::ZERO;
    assert_eq!(repair(&place.archive, RepairOptions { age, dry_run: false }).unwrap().leftovers, 0);
    check(&place, "again");
}

#[test]
fn directory_with_damage_stays_as_it_is() {
    let place = place();
    remove_some(&place, |number| number % 2 == 0);
    let rows = place.archive.catalog().packs(&path("/tree")).unwrap();
    let key = place.archive.pack_space(&rows[0]).unwrap().tar;
    let file = place.path("store/objects").join(key.as_str());
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let tar = fs::File::options().write(true).open(&file).unwrap();
    let found = place.archive.look_up(&path("/tree/33")).unwrap();
    let Some(ArchivedFile::Member { member, .. }) = found else { panic!() };
    tar.write_all_at(b"?", member.content_at() + 7).unwrap();
    let before = objects(&place.archive);
    let told = std::cell::RefCell::new(Vec::new());
    let tell = |error: ArchiveError| told.borrow_mut().push(error.to_string());
    let report = repack(&place.archive, &ArchivePath::ROOT, wanted(), &tell).unwrap();
    assert_eq!((report.failed, report.packs, report.packs_new), (1, 0, 0));
    let text = format!("/tree/33: its content is damaged, in {key}");
    assert_eq!(told.into_inner(), [text]);
    assert_eq!(objects(&place.archive), before);
}

/// A store that has somebody else do something once, when an object of some kind is written or read.
struct MeddledStore {
    store: LocalStore,
    other: Archive,
    when: &'static str,
    meddle: fn(&Archive),
    is_done: AtomicBool,
}

impl MeddledStore {
    fn look(&self, key: &StoreKey) {
        if key.as_str().contains(self.when) && !self.is_done.swap(true, Ordering::SeqCst) {
            (self.meddle)(&self.other);
        }
    }
}

/// The archive, in which somebody meddles.
fn meddled(place: &Place, when: &'static str, meddle: fn(&Archive)) -> Archive {
    let store = LocalStore::open(&place.path("store")).unwrap();
    let catalog = |name: &str| Catalog::open(&place.path(name)).unwrap();
    let other = Archive::new(Arc::new(store.clone()), catalog("other")).unwrap();
    let is_done = AtomicBool::new(false);
    let store = MeddledStore { store, other, when, meddle, is_done };
    Archive::new(Arc::new(store), catalog("third")).unwrap()
}

impl Store for MeddledStore {
    fn create(&self, key: &StoreKey) -> Result<Box<dyn StoreWriter>, StoreError> {
        if key.as_str().ends_with(".tar") {
            self.look(key);
        }
        self.store.create(key)
    }

    fn open(&self, key: &StoreKey, from: u64) -> Result<Box<dyn Read + Send>, StoreError> {
        self.store.open(key, from)
    }

    fn read(&self, key: &StoreKey, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let read = self.store.read(key, range);
        self.look(key);
        read
    }

    fn size(&self, key: &StoreKey) -> Result<u64, StoreError> {
        self.store.size(key)
    }

    fn list(
        &self,
        parts: &[&str],
        each: &mut dyn FnMut(StoredObject) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.store.list(parts, each)
    }

    fn remove(&self, key: &StoreKey) -> Result<(), StoreError> {
        self.store.remove(key)
    }
}

#[test]
fn repack_retries_after_a_concurrent_commit() {
    let place = place();
    remove_some(&place, |number| number % 2 == 0);
    let meddle = |other: &Archive| {
        remove(other, &path("/tree/01")).unwrap();
    };
    let archive = meddled(&place, ".tar", meddle);
    let report = run(&archive, wanted());
    assert_eq!((report.packs, report.packs_new, report.members), (1, 1, 24));
    remove_here(&place, "01");
    let place = Place { archive, ..place };
    check(&place, "back");
}

#[test]
fn copy_that_was_begun_before_refers_to_nothing_that_is_gone() {
    let place = place();
    remove_some(&place, |number| number % 2 == 0);
    let meddle = |other: &Archive| {
        run(other, wanted());
    };
    let archive = meddled(&place, ".idx.", meddle);
    let names = [(b"33".to_vec(), b"33".to_vec())];
    let (from, to) = (path("/tree"), ArchivePath::ROOT);
    let copied =
        relocate_files(&archive, (&from, &to), &names, Relocation::Copy, RelocateKeep::Nothing)
            .unwrap();
    assert_eq!(copied.files, 1);
    let place = Place { archive, ..place };
    check(&place, "back");
    place.fetch("/33", "back", FetchOptions::default());
    assert_eq!(fs::read(place.path("back/33")).unwrap().len(), 3033);
}
