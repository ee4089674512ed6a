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
use std::time::Duration;

fn mark(archive: &Archive) -> PackId {
    mark_version(archive, Version { host: "n7".to_owned(), ..Version::default() }).unwrap()
}

fn found(archive: &Archive, id: PackId) -> FoundVersion {
    versions(archive).unwrap().into_iter().find(|found| found.id == id).unwrap()
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
                assert_eq!(forget_versions(&place.archive, &gone).unwrap(), gone.len() as u64);
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
    forget_versions(&place.archive, &kept.into_keys().collect::<Vec<_>>()).unwrap();
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
    let before = bytes(&place.archive);
    // The first version has all of the pack.
    repacked(&place.archive);
    assert_eq!(repaired(&place.archive), 0);
    assert_eq!(bytes(&place.archive), before);
    assert_eq!(forget_versions(&place.archive, &[first]).unwrap(), 1);
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
    assert!(error.to_string().contains("forget it"), "{error}");
    assert_eq!(error.errno(), Errno::BADMSG);
    let all: Vec<_> = versions(&place.archive).unwrap().iter().map(|found| found.id).collect();
    assert_eq!(forget_versions(&place.archive, &all).unwrap(), 2);
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
                }
            });
        }
    });
    let all = versions(&place.archive).unwrap();
    assert_eq!(all.len(), 20);
    for found in &all {
        let at = place.archive.at(found).unwrap();
        verify(&at, &path("/"), VerifyOptions::default(), &|error| panic!("{error}")).unwrap();
    }
}
