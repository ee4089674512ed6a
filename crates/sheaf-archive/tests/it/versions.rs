//! Versions: each comes back as the tree was when it was made, whatever was stored, removed, forgotten,
//! repaired and repacked since.
use crate::round::{Place, path, settle};
use crate::trees::assert_same;
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, Catalog, FetchOptions, FoundVersion, PackId, RepackOptions,
    RepairOptions, SaveOptions, StoreKey, StoredObject, VerifyOptions, Version, VersionError,
    fetch, forget_versions, mark_version, remove, repack, repair, verify, versions,
};
use sheaf_core::Errno;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

fn mark(archive: &Archive) -> PackId {
    mark_version(archive, Version { host: "n7".to_owned(), ..Version::default() }).unwrap()
}

fn found(archive: &Archive, id: PackId) -> FoundVersion {
    versions(archive).unwrap().into_iter().find(|found| found.id == id).unwrap()
}

fn forget(archive: &Archive, ids: &[PackId]) -> u64 {
    let mut count = 0;
    let mut told = |_, done: Result<(), ArchiveError>| {
        done.unwrap();
        count += 1;
    };
    forget_versions(archive, ids, &mut told).unwrap();
    count
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
}

/// A version comes back as this tree.
fn check(archive: &Archive, id: PackId, tree: &Path) {
    let back = tempfile::tempdir().unwrap();
    let at = archive.at(&found(archive, id)).unwrap();
    let fail = |event| panic!("{event:?}");
    fetch(&at, &path("/tree"), back.path(), FetchOptions::default(), &fail).unwrap();
    assert_same(tree, &back.path().join("tree"));
}

fn repaired(archive: &Archive) -> u64 {
    let options = RepairOptions { age: Duration::ZERO, ..RepairOptions::default() };
    repair(archive, options).unwrap().leftovers
}

fn repacked(archive: &Archive) {
    let options = RepackOptions { min_dead_percent: 1, ..RepackOptions::default() };
    let fail = |error| panic!("{error}");
    repack(archive, &ArchivePath::ROOT, options, &fail).unwrap();
}

fn bytes(archive: &Archive) -> u64 {
    let mut bytes = 0;
    for kind in ["packs", "data"] {
        let mut each = |object: StoredObject| {
            bytes += object.bytes;
            Ok(())
        };
        archive.store().list(&[kind], &mut each).unwrap();
    }
    bytes
}

/// Numbers that look random, the same for one seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Changes files of a tree, and removes some there and in the archive.
fn change(place: &Place, tree: &Path, random: &mut Random) {
    for _ in 0..random.below(12) + 1 {
        let directory = tree.join(format!("d{}", random.below(3)));
        let (name, length) = (random.below(16), random.below(9000));
        let file = directory.join(format!("f{name}"));
        match random.below(8) {
            0 => {
                let inside = path(&format!("/tree/{}", file.strip_prefix(tree).unwrap().display()));
                let is_gone = fs::remove_file(&file).is_ok();
                let removed = remove(&place.archive, &inside);
                assert!(
                    !is_gone
                        || removed.is_ok()
                        || place.archive.look_up(&inside).unwrap().is_none()
                );
            }
            1 if directory.exists() => {
                let inside =
                    path(&format!("/tree/{}", directory.file_name().unwrap().to_str().unwrap()));
                fs::remove_dir_all(&directory).unwrap();
                if place.archive.look_up(&inside).unwrap().is_some() {
                    remove(&place.archive, &inside).unwrap();
                }
            }
            _ => {
                fs::create_dir_all(&directory).unwrap();
                let content: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
                fs::write(&file, content).unwrap();
            }
        }
    }
}

fn random_versions(place: &Place, rounds: usize, seed: u64) {
    let mut random = Random(seed);
    let (tree, copies) = (place.path("tree"), tempfile::tempdir().unwrap());
    fs::create_dir(&tree).unwrap();
    let mut kept: BTreeMap<PackId, PathBuf> = BTreeMap::new();
    let options =
        SaveOptions { member_bytes_max: 6000, pack_bytes: 20_000, ..SaveOptions::default() };
    for round in 0..rounds {
        change(place, &tree, &mut random);
        settle();
        let (saved, told) = place.save("tree", options);
        assert_eq!((saved.failed, &told[..]), (0, &[][..]), "seed {seed}, round {round}");
        let at = copies.path().join(round.to_string());
        copy(&tree, &at);
        kept.insert(mark(&place.archive), at);
        match random.below(4) {
            0 => {
                let gone: Vec<_> = kept.keys().copied().filter(|_| random.below(2) == 0).collect();
                assert_eq!(forget(&place.archive, &gone), gone.len() as u64);
                kept.retain(|id, _| !gone.contains(id));
            }
            1 => {
                repaired(&place.archive);
            }
            2 => repacked(&place.archive),
            _ => {}
        }
        for (id, tree) in &kept {
            check(&place.archive, *id, tree);
        }
    }
    // Another machine, which knows nothing but the store.
    let other = Archive::new(place.open_store(), Catalog::in_memory().unwrap()).unwrap();
    for (id, tree) in &kept {
        check(&other, *id, tree);
    }
    forget(&place.archive, &kept.into_keys().collect::<Vec<_>>());
    repacked(&place.archive);
    repaired(&place.archive);
    assert_eq!(repaired(&place.archive), 0);
    place.fetch("/tree", "back", FetchOptions::default());
    assert_same(&tree, &place.path("back/tree"));
}

#[test]
fn versions_come_back_after_random_work() {
    for seed in 0..6 {
        random_versions(&Place::new(), 14, seed);
    }
}

#[test]
fn versions_come_back_from_every_kind_of_store() {
    Place::all().for_each(|place| random_versions(&place, 4, 77));
}

#[test]
fn repack_moves_the_version_that_is_what_is_archived() {
    let place = Place::new();
    let tree = place.path("tree");
    fs::create_dir(&tree).unwrap();
    for number in 0..20 {
        fs::write(tree.join(format!("f{number:02}")), vec![number; 4000]).unwrap();
    }
    settle();
    place.save("tree", SaveOptions::default());
    let first = mark(&place.archive);
    for number in 0..10 {
        fs::remove_file(tree.join(format!("f{number:02}"))).unwrap();
        remove(&place.archive, &path(&format!("/tree/f{number:02}"))).unwrap();
    }
    place.save("tree", SaveOptions::default());
    let second = mark(&place.archive);
    // The first version has all of the pack, and indexes between the versions are of none.
    repacked(&place.archive);
    assert_eq!(repaired(&place.archive), 0);
    let before = bytes(&place.archive);
    repacked(&place.archive);
    assert_eq!(bytes(&place.archive), before);
    assert_eq!(forget(&place.archive, &[first]), 1);
    repacked(&place.archive);
    assert!(bytes(&place.archive) < before * 2 / 3);
    assert_eq!(repaired(&place.archive), 0);
    check(&place.archive, second, &tree);
    verify(&place.archive, &ArchivePath::ROOT, VerifyOptions::default(), &|error| {
        panic!("{error}")
    })
    .unwrap();
}

#[test]
fn damaged_versions_keep_what_they_refer_to() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    fs::write(place.path("tree/a"), vec![1; 5000]).unwrap();
    settle();
    place.save("tree", SaveOptions::default());
    let id = mark(&place.archive);
    let store = place.archive.store();
    let mut keys = Vec::new();
    let mut each = |object: StoredObject| {
        keys.push(object.key);
        Ok(())
    };
    store.list(&["versions"], &mut each).unwrap();
    let [key] = &keys[..] else { panic!("{keys:?}") };
    let replace = |key: &StoreKey, bytes: &[u8]| {
        let _ = store.remove(key);
        let mut object = store.create(key).unwrap();
        object.write_all(bytes).unwrap();
        object.commit().unwrap();
    };
    let mut bytes = store.read(key, 0..store.size(key).unwrap()).unwrap();
    bytes[40] ^= 1;
    replace(key, &bytes);
    remove(&place.archive, &path("/tree")).unwrap();
    assert_eq!(repaired(&place.archive), 0);
    let error = place.archive.at(&found(&place.archive, id)).err().unwrap();
    assert!(matches!(error, ArchiveError::Version(VersionError::Damaged { .. })), "{error}");
    // A commit that the log does not have: nothing is removed until that is forgotten.
    let other = format!("versions/{:020}-{}", 999, "ab".repeat(16));
    replace(&StoreKey::new(&other).unwrap(), &bytes);
    let options = RepairOptions { age: Duration::ZERO, ..RepairOptions::default() };
    let error = repair(&place.archive, options).unwrap_err();
    assert!(error.to_string().contains("or forget the version"), "{error}");
    assert_eq!(error.errno(), Errno::BADMSG);
    let all: Vec<_> = versions(&place.archive).unwrap().iter().map(|found| found.id).collect();
    assert_eq!(forget(&place.archive, &all), 2);
    assert!(repaired(&place.archive) > 0);
}

#[test]
fn versions_of_writers_at_once_are_of_commits_of_the_log() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    place.save("tree", SaveOptions::default());
    std::thread::scope(|scope| {
        for number in 0..4 {
            let place = &place;
            scope.spawn(move || {
                let archive =
                    Archive::new(place.open_store(), Catalog::in_memory().unwrap()).unwrap();
                let from = tempfile::tempdir().unwrap();
                for round in 0..5 {
                    let own = from.path().join(format!("own{number}"));
                    fs::create_dir_all(&own).unwrap();
                    fs::write(own.join("file"), format!("{number} {round}")).unwrap();
                    let fail = |event| panic!("{event:?}");
                    let options = SaveOptions::default();
                    sheaf_archive::save(&archive, &[own], &ArchivePath::ROOT, options, &fail)
                        .unwrap();
                    let id = mark(&archive);
                    let at = archive.at(&found(&archive, id)).unwrap();
                    assert!(at.look_up(&path(&format!("/own{number}/file"))).unwrap().is_some());
                    // Nobody's version loses what it refers to.
                    if number == 0 {
                        repaired(&archive);
                    }
                    if number == 1 && round % 2 == 0 {
                        assert_eq!(forget(&archive, &[id]), 1);
                    }
                }
            });
        }
    });
    let all = versions(&place.archive).unwrap();
    assert_eq!(all.len(), 17);
    for found in &all {
        let at = place.archive.at(found).unwrap();
        verify(&at, &path("/"), VerifyOptions::default(), &|error| panic!("{error}")).unwrap();
    }
}

/// A tree with a file that a version alone has, and its pack.
fn with_removed(place: &Place) -> (PackId, PathBuf) {
    fs::create_dir_all(place.path("tree/gone")).unwrap();
    fs::write(place.path("tree/gone/a"), vec![1; 5000]).unwrap();
    place.save("tree", SaveOptions::default());
    let rows = place.archive.catalog().rows_of(&path("/tree/gone")).unwrap();
    let pack = place.path("store/objects").join(rows.packs[0].key().as_str());
    let id = mark(&place.archive);
    copy(&place.path("tree"), &place.path("copy"));
    fs::remove_dir_all(place.path("tree/gone")).unwrap();
    remove(&place.archive, &path("/tree/gone")).unwrap();
    fs::write(place.path("tree/b"), "b").unwrap();
    place.save("tree", SaveOptions::default());
    mark(&place.archive);
    (id, pack)
}

fn faults(archive: &Archive) -> Vec<String> {
    let told = Mutex::new(Vec::new());
    let tell = |error: ArchiveError| told.lock().unwrap().push(error);
    let report = verify(archive, &ArchivePath::ROOT, VerifyOptions::default(), &tell).unwrap();
    let told = told.into_inner().unwrap();
    assert_eq!(report.damaged, told.len() as u64, "{told:?}");
    told.iter().map(ToString::to_string).collect()
}

#[test]
fn damage_of_what_a_version_alone_has_is_told() {
    let place = Place::new();
    let (id, pack) = with_removed(&place);
    assert_eq!(faults(&place.archive), [""; 0]);
    let mut bytes = fs::read(&pack).unwrap();
    bytes[2000] ^= 1;
    fs::remove_file(&pack).unwrap();
    fs::write(&pack, &bytes).unwrap();
    let told = faults(&place.archive);
    let [one] = &told[..] else { panic!("{told:?}") };
    assert!(one.starts_with(&format!("version {id}: /tree/gone/a: its content")), "{one}");
    // The files of a lost pack are named, and what is archived now is not harmed.
    fs::remove_file(&pack).unwrap();
    let told = faults(&place.archive);
    assert!(told.len() == 1 && told[0].contains("/tree/gone/a"), "{told:?}");
    place.fetch("/tree", "back", FetchOptions::default());
    assert_same(&place.path("tree"), &place.path("back/tree"));
}

#[test]
fn index_that_a_version_alone_has_is_made_again() {
    let place = Place::new();
    let (id, pack) = with_removed(&place);
    let name = pack.file_name().unwrap().to_str().unwrap().split('.').next().unwrap();
    let index = pack.with_file_name(format!("{name}.idx.0"));
    fs::remove_file(&index).unwrap();
    assert_eq!(faults(&place.archive).len(), 1);
    let options = RepairOptions { age: Duration::ZERO, ..RepairOptions::default() };
    let report = repair(&place.archive, options).unwrap();
    assert_eq!((report.indexes, report.leftovers), (1, 0));
    assert_eq!(faults(&place.archive), [""; 0]);
    check(&place.archive, id, &place.path("copy"));
}

/// A snapshot of the log saves reading the commits before it, where the version is not older.
#[test]
fn versions_are_read_from_snapshots_of_the_log() {
    let place = Place::new();
    let tree = place.path("tree");
    let mut made = Vec::new();
    for number in 0..140 {
        fs::create_dir_all(tree.join(format!("{number}"))).unwrap();
        place.save(&format!("tree/{number}"), SaveOptions::default());
        if [3, 137].contains(&number) {
            made.push(mark(&place.archive));
        }
        if number == 135 {
            assert!(place.archive.compact_log().unwrap());
        }
    }
    let [old, new] = made[..] else { panic!() };
    let count = |id| {
        let at = place.archive.at(&found(&place.archive, id)).unwrap();
        at.walk(&ArchivePath::ROOT).unwrap().flatten().count()
    };
    assert_eq!((count(old), count(new)), (5, 139));
    let early = place.path("store/objects/log/00000000000000000003");
    fs::rename(&early, early.with_extension("away")).unwrap();
    assert_eq!(count(new), 139, "commits before the snapshot are not read");
    let error = place.archive.at(&found(&place.archive, old)).err().unwrap();
    assert!(error.to_string().contains("has another one or none"), "{error}");
    fs::rename(early.with_extension("away"), &early).unwrap();
    // A damaged snapshot is none.
    for snapshot in fs::read_dir(place.path("store/objects/snapshots")).unwrap() {
        fs::write(snapshot.unwrap().path(), "damaged").unwrap();
    }
    assert_eq!((count(old), count(new)), (5, 139));
}

/// Who reads a version that is forgotten meanwhile is told what is gone, and gets the rest.
#[test]
fn version_that_is_forgotten_while_it_is_read_is_told() {
    let place = Place::new();
    let (id, _) = with_removed(&place);
    let reader = place.archive.at(&found(&place.archive, id)).unwrap();
    assert_eq!(forget(&place.archive, &[id]), 1);
    assert!(repaired(&place.archive) > 0);
    let (to, told) = (place.path("back"), Mutex::new(Vec::new()));
    let tell = |event| told.lock().unwrap().push(format!("{event:?}"));
    let report = fetch(&reader, &path("/tree"), &to, FetchOptions::default(), &tell).unwrap();
    let told = told.into_inner().unwrap();
    assert!(report.failed > 0 && told.iter().any(|told| told.contains("NOENT")), "{told:?}");
    assert_eq!(faults(&place.archive), [""; 0]);
}

#[test]
fn same_versions_are_forgotten_twice_at_once() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    let mut all = Vec::new();
    for number in 0..12 {
        fs::write(place.path("tree/a"), format!("{number}")).unwrap();
        place.save("tree", SaveOptions::default());
        all.push(mark(&place.archive));
    }
    let kept = all.pop().unwrap();
    let counts: Vec<u64> = std::thread::scope(|scope| {
        let forget = |_| {
            let (place, all) = (&place, &all);
            scope.spawn(move || {
                let store = place.open_store();
                forget(&Archive::new(store, Catalog::in_memory().unwrap()).unwrap(), all)
            })
        };
        let forgets: Vec<_> = (0..2).map(forget).collect();
        forgets.into_iter().map(|forget| forget.join().unwrap()).collect()
    });
    // Each was forgotten by one of them.
    assert_eq!(counts.iter().sum::<u64>(), 11, "{counts:?}");
    let left: Vec<_> = versions(&place.archive).unwrap().iter().map(|found| found.id).collect();
    assert_eq!(left, [kept]);
}

/// A move that was cut off leaves two marks of one version: it is one, and ends as one.
#[test]
fn version_with_two_marks_is_one() {
    let place = Place::new();
    let (id, _) = with_removed(&place);
    let store = place.archive.store();
    let keys = || crate::store::keys(store, &["versions"]);
    let key = keys().into_iter().map(|(key, _)| key).find(|key| key.contains(&id.to_string()));
    let key = StoreKey::new(&key.unwrap()).unwrap();
    let read = store.read(&key, 0..store.size(&key).unwrap()).unwrap();
    let mark_of = |number: u64| {
        // The bytes of a mark of another commit, as its writer would have them.
        let from = StoreKey::new(&format!("versions/{number:020}-{id}")).unwrap();
        let log = fs::read(place.path(&format!("store/objects/log/{number:020}"))).unwrap();
        let mut bytes = read[..read.len() - 32].to_vec();
        bytes[12..20].copy_from_slice(&number.to_le_bytes());
        bytes[36..68].copy_from_slice(&log[log.len() - 32..]);
        bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
        (from, bytes)
    };
    let last = place.archive.catalog().applied().unwrap();
    let (later, bytes) = mark_of(last);
    crate::store::put(store, later.as_str(), &bytes).unwrap();
    assert_eq!((keys().len(), versions(&place.archive).unwrap().len()), (3, 2));
    assert_eq!(found(&place.archive, id).number, last);
    repaired(&place.archive);
    assert_eq!(keys().len(), 2);
    assert_eq!(found(&place.archive, id).number, last);
    // The later one is of a commit that the log does not have: the earlier one stays.
    let (earlier, bytes) = mark_of(1);
    crate::store::put(store, earlier.as_str(), &bytes).unwrap();
    let mut bytes = store.read(&later, 0..store.size(&later).unwrap()).unwrap();
    store.remove(&later).unwrap();
    let end = bytes.len() - 32;
    bytes[40] ^= 1;
    let digest = blake3::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(digest.as_bytes());
    crate::store::put(store, later.as_str(), &bytes).unwrap();
    let options = RepairOptions { age: Duration::ZERO, ..RepairOptions::default() };
    let error = repair(&place.archive, options).unwrap_err();
    assert!(error.to_string().contains("or forget the version"), "{error}");
    assert_eq!(keys().len(), 3);
    let told = faults(&place.archive);
    assert!(told.len() == 1 && told[0].contains("or forget the version"), "{told:?}");
    assert_eq!(forget(&place.archive, &[id]), 1);
    assert_eq!(keys().len(), 1);
    assert_eq!(faults(&place.archive), [""; 0]);
}

/// What is below `versions` and is no mark of one harms nothing.
#[test]
fn hostile_marks_are_told_and_forgotten() {
    let place = Place::new();
    with_removed(&place);
    let directory = place.path("store/objects/versions");
    let real = fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path();
    let real = fs::read(real).unwrap();
    let id = |digit: u8| format!("{digit:02x}").repeat(16);
    let name = |number: u64, digit| format!("{number:020}-{}", id(digit));
    let mut long = real.clone();
    long.resize(1 << 20, 7);
    for (name, bytes) in [
        ("readme".to_owned(), &b"hello"[..]),
        (name(1, 1), b""),
        (name(1, 2), &real),
        (name(1, 3), &long),
        (name(0, 4), &real),
        (name(u64::MAX, 5), &real),
        (format!("1-{}", id(6)), &real),
    ] {
        fs::write(directory.join(name), bytes).unwrap();
    }
    let made = Command::new("mkfifo").arg(directory.join(name(1, 7))).status();
    assert!(made.unwrap().success());
    let all = versions(&place.archive).unwrap();
    let damaged: Vec<_> = all.iter().filter(|found| found.version.is_err()).collect();
    assert!((3..=4).contains(&damaged.len()), "{all:?}");
    for found in &damaged {
        let error = place.archive.at(found).err().unwrap();
        assert!(error.to_string().contains("is damaged"), "{error}");
    }
    assert_eq!(faults(&place.archive).len(), damaged.len());
    repaired(&place.archive);
    let gone: Vec<_> = damaged.iter().map(|found| found.id).collect();
    assert_eq!(forget(&place.archive, &gone), gone.len() as u64);
    assert_eq!(versions(&place.archive).unwrap().len(), 2);
}

/// What versions are of has to be known before anything is removed.
#[test]
fn lost_log_keeps_what_versions_refer_to() {
    let place = Place::new();
    let (_, pack) = with_removed(&place);
    fs::remove_dir_all(place.path("store/objects/log")).unwrap();
    let refused = Archive::new(place.open_store(), Catalog::in_memory().unwrap()).err().unwrap();
    assert!(refused.to_string().contains("as a version or a snapshot"), "{refused}");
    let (archive, cut) =
        Archive::to_read(place.open_store(), Catalog::in_memory().unwrap()).unwrap();
    assert!(cut.is_some());
    let options = RepairOptions { age: Duration::ZERO, ..RepairOptions::default() };
    assert!(repair(&archive, options).is_err());
    assert!(pack.exists());
    assert_eq!(versions(&archive).unwrap().len(), 2);
    let found = versions(&archive).unwrap();
    assert!(archive.at(&found[0]).is_err());
    // A new log in its place is another one.
    fs::remove_dir_all(place.path("store/objects/packs")).unwrap();
    fs::rename(place.path("store/objects/versions"), place.path("away")).unwrap();
    let archive = Archive::new(place.open_store(), Catalog::in_memory().unwrap()).unwrap();
    let fail = |event| panic!("{event:?}");
    let sources = [place.path("tree")];
    for to in ["a", "b", "c", "d"] {
        let to = ArchivePath::ROOT.join(to.as_bytes());
        sheaf_archive::save(&archive, &sources, &to, SaveOptions::default(), &fail).unwrap();
    }
    assert!(archive.catalog().applied().unwrap() >= found[0].number);
    fs::rename(place.path("away"), place.path("store/objects/versions")).unwrap();
    let error = archive.at(&found[0]).err().unwrap();
    assert!(error.to_string().contains("has another one or none"), "{error}");
}

/// Marks of commits that are given up go with them.
#[test]
fn marks_go_with_the_commits_that_are_given_up() {
    let place = Place::new();
    let (id, _) = with_removed(&place);
    let last = place.archive.catalog().applied().unwrap();
    let damaged = place.path("store/objects").join(format!("log/{last:020}"));
    fs::remove_file(&damaged).unwrap();
    fs::write(&damaged, "damaged").unwrap();
    let store = place.open_store();
    assert!(sheaf_archive::drop_log(&*store, last, false).unwrap() > 0);
    let archive = Archive::new(store, Catalog::in_memory().unwrap()).unwrap();
    let left: Vec<_> = versions(&archive).unwrap().iter().map(|found| found.id).collect();
    assert_eq!(left, [id]);
    check(&archive, id, &place.path("copy"));
    let options = RepairOptions { age: Duration::ZERO, ..RepairOptions::default() };
    repair(&archive, options).unwrap();
    check(&archive, id, &place.path("copy"));
}

/// An earlier Sheaf would remove what versions refer to: it reads no log that has them.
#[test]
fn version_of_an_earlier_archive_ends_its_log_for_earlier_ones() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    fs::write(place.path("tree/a"), "a").unwrap();
    place.save("tree", SaveOptions::default());
    let log = |number: u64| place.path(&format!("store/objects/log/{number:020}"));
    // The commits, as an earlier Sheaf has written them.
    let (mut last, mut before) = (0, [0; 32]);
    while let Ok(mut bytes) = fs::read(log(last + 1)) {
        last += 1;
        let end = bytes.len() - 32;
        bytes[8] = 1;
        if last > 1 {
            bytes[end - 32..end].copy_from_slice(&before);
        }
        before = *blake3::hash(&bytes[..end]).as_bytes();
        bytes[end..].copy_from_slice(&before);
        fs::remove_file(log(last)).unwrap();
        fs::write(log(last), bytes).unwrap();
    }
    let open = || Archive::new(place.open_store(), Catalog::in_memory().unwrap()).unwrap();
    let archive = open();
    assert_eq!(versions(&archive).unwrap().len(), 0);
    for _ in 0..2 {
        let id = mark(&archive);
        assert_eq!(found(&archive, id).number, last + 1);
        assert_eq!(fs::read(log(last + 1)).unwrap()[8], 3);
        check(&open(), id, &place.path("tree"));
    }
    assert!(!log(last + 2).exists());
    assert_eq!(faults(&archive), [""; 0]);
}
