//! What is damaged in a store is stored again, where its source is.
use crate::round::{Place, path, settle};
use crate::trees::{assert_same, make_everything};
use sheaf_archive::{
    ArchivePath, FetchOptions, RepairOptions, SaveOptions, TreeWalk, TreeWalkOptions,
    VerifyOptions, VerifyReport, remove, repair, verify,
};
use sheaf_core::lock;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

fn checked() -> SaveOptions {
    SaveOptions { checksum: true, ..SaveOptions::default() }
}

fn verified(place: &Place) -> (VerifyReport, Vec<String>) {
    let told = Mutex::new(Vec::new());
    let tell = |error: sheaf_archive::ArchiveError| lock(&told).push(error.to_string());
    let report =
        verify(&place.archive, &ArchivePath::ROOT, VerifyOptions::default(), &tell).unwrap();
    (report, told.into_inner().unwrap())
}

/// Objects of the store of this kind, packs without their indexes.
fn objects(place: &Place, kind: &str) -> Vec<PathBuf> {
    let walk = TreeWalk::new(&place.path("store/objects").join(kind), TreeWalkOptions::default());
    let files = walk.filter(|entry| entry.found.as_ref().unwrap().is_file());
    let files = files.map(|entry| entry.path);
    files.filter(|path| !path.to_string_lossy().contains(".idx")).collect()
}

const VERSION: usize = 100;
const NO_FILE: usize = 101;

/// Each way to damage a file, by the byte that is another one; nothing where it goes as a whole.
fn damage(object: &Path, way: usize) {
    let whole = fs::read(object).unwrap();
    match way {
        0 => fs::remove_file(object).unwrap(),
        1 => fs::write(object, &whole[..whole.len() - 1]).unwrap(),
        2 => fs::write(object, b"").unwrap(),
        // As one of a later version.
        VERSION => {
            let mut bytes = whole;
            bytes[9] ^= 1;
            fs::write(object, bytes).unwrap();
        }
        NO_FILE => {
            fs::remove_file(object).unwrap();
            rustix::fs::mkfifoat(rustix::fs::CWD, object, 0o600.into()).unwrap();
        }
        way => {
            let mut bytes = whole;
            let at = (bytes.len() - 1) * (way - 3) / 2;
            bytes[at] ^= 1;
            fs::write(object, bytes).unwrap();
        }
    }
}

/// Damages each object of a store of everything in each way; what heals it, and that nothing else does.
fn heals(options: SaveOptions, ways: &[usize]) {
    let place = Place::new();
    make_everything(&place.path("tree"));
    fs::write(place.path("tree/large"), vec![7; 1_100_000]).unwrap();
    settle();
    let (stored, _) = place.save("tree", options);
    let with_checksum = SaveOptions { checksum: true, ..options };
    for &way in ways {
        for object in ["packs", "data"].iter().flat_map(|kind| objects(&place, kind)) {
            let whole = fs::read(&object).unwrap();
            // What was emptied before was stored again, and nothing refers to it.
            if whole.is_empty() {
                continue;
            }
            damage(&object, way);
            let (before, _) = verified(&place);
            let dry = SaveOptions { dry_run: true, ..with_checksum };
            let (would, _) = place.save("tree", dry);
            let (healed, told) = place.save("tree", with_checksum);
            let at = format!("{object:?}, way {way}: {told:?}");
            assert_eq!((would.stored, would.unchanged), (healed.stored, healed.unchanged), "{at}");
            assert_eq!(healed.stored + healed.unchanged, stored.stored, "{at}");
            assert_eq!((healed.stored > 0, healed.failed), (before.damaged > 0, 0), "{at}");
            assert_eq!(
                told.iter().filter(|told| told.starts_with("Again")).count() as u64,
                healed.stored
            );
            let (after, told) = verified(&place);
            assert_eq!(after.damaged, 0, "{at}: {told:?}");
            if before.damaged == 0 {
                // It may be a pipe.
                let _ = fs::remove_file(&object);
                fs::write(&object, whole).unwrap();
            }
        }
        let (again, told) = place.save("tree", with_checksum);
        assert_eq!((again.stored, &told[..]), (0, &[][..]));
        let back = format!("back-{way}");
        place.fetch("/tree", &back, FetchOptions::default());
        assert_same(&place.path("tree"), &place.path(&back).join("tree"));
    }
}

#[test]
fn damaged_objects_are_stored_again() {
    heals(SaveOptions::default(), &[0, 1, 2, 3, 4, 5, NO_FILE]);
}

#[test]
fn damaged_compressed_objects_are_stored_again() {
    heals(SaveOptions { zstd: Some(3), ..SaveOptions::default() }, &[0, 4]);
}

#[test]
fn heal_stores_the_damaged_member_alone_if_it_has_a_source() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    for name in ["a", "b", "c", "d", "e"] {
        fs::write(place.path("tree").join(name), name.repeat(700)).unwrap();
    }
    settle();
    place.save("tree", SaveOptions::default());
    let [tar] = &objects(&place, "packs")[..] else { panic!("one pack") };
    let mut bytes = fs::read(tar).unwrap();
    let at = bytes.windows(700).position(|bytes| bytes == "b".repeat(700).as_bytes()).unwrap();
    bytes[at] ^= 1;
    fs::write(tar, bytes).unwrap();
    // It is not looked at where contents are not compared.
    assert_eq!(place.save("tree", SaveOptions::default()).0.stored, 0);
    let (healed, told) = place.save("tree", checked());
    assert_eq!((healed.stored, healed.unchanged), (1, 4), "{told:?}");
    assert!(told[0].contains("tree/b\"") && told[0].contains("its content is damaged"), "{told:?}");
    assert_eq!(verified(&place).0.damaged, 0);

    // All of the pack but b: a has no source any more.
    fs::remove_file(tar).unwrap();
    fs::remove_file(place.path("tree/a")).unwrap();
    let (report, told) = verified(&place);
    assert_eq!(report.damaged, 1);
    assert!(
        told[0].ends_with(": the files in it: /tree/a, /tree/c, /tree/d and 1 more"),
        "{told:?}"
    );
    let (fetched, told) = place.fetch("/tree", "back", FetchOptions::default());
    assert_eq!((fetched.fetched, fetched.failed, told.len()), (1, 4, 1), "{told:?}");
    let (healed, told) = place.save("tree", checked());
    assert_eq!((healed.stored, healed.unchanged), (3, 1), "{told:?}");
    let (report, told) = verified(&place);
    assert_eq!(report.damaged, 1);
    assert!(told[0].ends_with(": the files in it: /tree/a"), "{told:?}");
    remove(&place.archive, &path("/tree/a")).unwrap();
    assert_eq!(verified(&place).0.damaged, 0);
}

#[test]
fn named_file_whose_pack_is_missing_is_stored_again() {
    let place = Place::new();
    fs::write(place.path("a"), "a").unwrap();
    settle();
    place.save("a", SaveOptions::default());
    fs::remove_file(&objects(&place, "packs")[0]).unwrap();
    assert_eq!(place.save("a", SaveOptions::default()).0.stored, 0);
    let (healed, told) = place.save("a", checked());
    assert_eq!(healed.stored, 1);
    assert!(told[0].contains("its pack is missing"), "{told:?}");
    assert_eq!(verified(&place).0.damaged, 0);
    assert_eq!(place.save("a", checked()).0.unchanged, 1);
}

#[test]
fn index_that_is_lost_is_made_again_of_its_pack() {
    for way in [0, 2, 4] {
        let place = Place::new();
        fs::create_dir(place.path("tree")).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(place.path("tree").join(name), name).unwrap();
        }
        settle();
        place.save("tree", SaveOptions::default());
        // What has no source any more is in the pack, and stays there.
        fs::remove_file(place.path("tree/b")).unwrap();
        let tar = &objects(&place, "packs")[0];
        damage(&tar.with_extension("idx.0"), way);
        assert_eq!(verified(&place).0.damaged, 1);
        let (healed, told) = place.save("tree", checked());
        assert_eq!((healed.stored, healed.failed), (2, 0), "{told:?}");
        assert!(told[0].contains("the index of its pack is lost"), "{told:?}");
        assert_eq!(verified(&place).1, Vec::<String>::new());
        let (fetched, _) = place.fetch("/tree", "back", FetchOptions::default());
        assert_eq!((fetched.fetched, fetched.failed), (3, 0));
        assert_eq!(fs::read(place.path("back/tree/b")).unwrap(), b"b");
    }
}

#[test]
fn lost_index_is_read_from_its_pack_and_rewritten_by_repair() {
    for way in [0, 1, 2, 4, VERSION, NO_FILE] {
        let place = Place::new();
        make_everything(&place.path("tree"));
        settle();
        place.save("tree", SaveOptions::default());
        let indexes: Vec<_> =
            objects(&place, "packs").iter().map(|tar| tar.with_extension("idx.0")).collect();
        let whole: Vec<_> = indexes.iter().map(|index| fs::read(index).unwrap()).collect();
        for index in &indexes {
            damage(index, way);
        }
        assert_eq!(verified(&place).0.damaged, indexes.len() as u64);
        // What is new is stored beside it.
        fs::write(place.path("tree/new"), "new").unwrap();
        let (saved, _) = place.save("tree", SaveOptions::default());
        assert_eq!((saved.failed, saved.stored), (0, 1), "{way}");
        let (fetched, told) = place.fetch("/tree", "back", FetchOptions::default());
        assert_eq!((fetched.failed, &told[..]), (0, &[][..]));
        assert_same(&place.path("tree"), &place.path("back/tree"));
        let options = RepairOptions { dry_run: true, ..RepairOptions::default() };
        let would = repair(&place.archive, options).unwrap();
        assert_eq!(would.indexes, indexes.len() as u64);
        assert!(verified(&place).0.damaged > 0, "nothing was written");
        let made = repair(&place.archive, RepairOptions::default()).unwrap();
        assert_eq!(made.indexes, indexes.len() as u64);
        assert_eq!(verified(&place).1, Vec::<String>::new());
        let again: Vec<_> = indexes.iter().map(|index| fs::read(index).unwrap()).collect();
        assert_eq!(again, whole);
        assert_eq!(repair(&place.archive, RepairOptions::default()).unwrap().indexes, 0);
    }
}

/// Which members are left, a pack does not say: `repair` alone has all of them archived again.
#[test]
fn later_index_is_not_taken_from_its_pack() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(place.path("tree").join(name), name).unwrap();
    }
    settle();
    place.save("tree", SaveOptions::default());
    remove(&place.archive, &path("/tree/b")).unwrap();
    fs::remove_file(objects(&place, "packs")[0].with_extension("idx.1")).unwrap();
    let (fetched, told) = place.fetch("/tree", "back", FetchOptions::default());
    assert_eq!((fetched.fetched, fetched.failed), (0, 2), "{told:?}");
    let repaired = repair(&place.archive, RepairOptions::default()).unwrap();
    assert_eq!((repaired.indexes, repaired.indexes_lost, repaired.refilled), (0, 0, 1));
    let (fetched, told) = place.fetch("/tree", "all", FetchOptions::default());
    assert_eq!((fetched.fetched, fetched.failed), (3, 0), "{told:?}");
}

/// What its pack still has is kept, where no source is left.
#[test]
fn pack_without_its_index_is_kept() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(place.path("tree").join(name), name).unwrap();
    }
    settle();
    place.save("tree", SaveOptions::default());
    remove(&place.archive, &path("/tree/b")).unwrap();
    let pack = objects(&place, "packs").remove(0);
    fs::remove_file(pack.with_extension("idx.1")).unwrap();
    for name in ["a", "b", "c"] {
        fs::remove_file(place.path("tree").join(name)).unwrap();
    }
    fs::write(place.path("tree/new"), "new").unwrap();
    settle();
    let (saved, told) = place.save("tree", checked());
    assert_eq!((saved.stored, saved.failed), (1, 1), "{told:?}");
    let all = RepairOptions { age: std::time::Duration::ZERO, dry_run: false };
    repair(&place.archive, all).unwrap();
    assert!(pack.exists());
    assert_eq!(verified(&place).0.damaged, 0);
    let (fetched, told) = place.fetch("/tree", "back", FetchOptions::default());
    assert_eq!((fetched.fetched, fetched.failed), (4, 0), "{told:?}");
}

#[test]
fn bytes_behind_an_index_are_damage() {
    let place = Place::new();
    fs::write(place.path("a"), "a").unwrap();
    settle();
    place.save("a", SaveOptions::default());
    let index = objects(&place, "packs")[0].with_extension("idx.0");
    let whole = fs::read(&index).unwrap();
    fs::write(&index, [&whole[..], b"x"].concat()).unwrap();
    assert_eq!(verified(&place).0.damaged, 1);
}

/// With the modes that it was written with: those of now are in the catalog.
#[test]
fn index_is_made_again_of_a_pack_whose_modes_were_changed() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(place.path("tree").join(name), name).unwrap();
    }
    settle();
    place.save("tree", SaveOptions::default());
    let change = |mode, is_directory| if is_directory { mode } else { 0o600 };
    let change = sheaf_archive::RightsChange::Mode(&change);
    let options = sheaf_archive::RightsOptions { recursive: true, ..Default::default() };
    sheaf_archive::change_rights(&place.archive, &path("/tree"), &change, options).unwrap();
    let index = objects(&place, "packs")[0].with_extension("idx.0");
    let whole = fs::read(&index).unwrap();
    fs::write(&index, "no index").unwrap();
    assert_eq!(repair(&place.archive, RepairOptions::default()).unwrap().indexes, 1);
    assert_eq!(fs::read(&index).unwrap(), whole);
    assert_eq!(verified(&place).1, Vec::<String>::new());
    assert_eq!(repair(&place.archive, RepairOptions::default()).unwrap().indexes, 0);
}

/// Nights after an index or a pack was lost: that costs the files in it, which are stored again, and no
/// other directory; `--checksum` ends it.
#[test]
fn lost_index_costs_no_other_directory() {
    for (lost, can_be_made_again) in
        [(&[".idx.1"][..], true), (&[".idx.1", ".tar"], false), (&[".idx.0", ".tar"], false)]
    {
        let place = Place::new();
        for directory in 0..6 {
            let at = place.path("tree").join(format!("d{directory}"));
            fs::create_dir_all(&at).unwrap();
            fs::write(at.join("f"), format!("f {directory}")).unwrap();
            fs::write(at.join("g"), format!("g {directory}")).unwrap();
        }
        settle();
        place.save("tree", SaveOptions::default());
        fs::write(place.path("tree/d3/f"), "changed").unwrap();
        settle();
        place.save("tree", SaveOptions::default());
        // All that has the name of one pack: of the one with a later index, or of the first.
        let walk = TreeWalk::new(&place.path("store/objects/packs"), TreeWalkOptions::default());
        let files = walk.filter(|entry| entry.found.as_ref().unwrap().is_file());
        let files: Vec<_> = files.map(|entry| entry.path.display().to_string()).collect();
        // A pack that has a later index, too, does not need the first.
        let has_later = |file: &str| files.contains(&file.replace(".idx.0", ".idx.1"));
        let is_it =
            |file: &&String| file.ends_with(lost[0]) && (lost[0] != ".idx.0" || !has_later(file));
        let with = files.iter().find(is_it).unwrap();
        let pack = with.strip_suffix(lost[0]).unwrap();
        for end in lost {
            fs::remove_file(format!("{pack}{end}")).unwrap();
        }
        for directory in 0..6 {
            fs::write(place.path("tree").join(format!("d{directory}/new")), "new").unwrap();
        }
        settle();
        let failed = u64::from(!can_be_made_again);
        let (first, told) = place.save("tree", SaveOptions::default());
        assert_eq!(first.failed, failed, "{lost:?}: {told:?}");
        assert!(first.stored >= 6, "{lost:?}: {first:?}");
        assert_eq!(told.is_empty(), can_be_made_again, "{told:?}");
        let (second, told) = place.save("tree", SaveOptions::default());
        assert_eq!((second.stored, second.failed), (0, failed), "{lost:?}: {told:?}");
        let (_, told) = place.save("tree", checked());
        let (after, damaged) = verified(&place);
        assert_eq!(after.damaged, 0, "{lost:?}: {told:?}, {damaged:?}");
        let (last, told) = place.save("tree", SaveOptions::default());
        assert_eq!((last.stored, last.failed), (0, 0), "{lost:?}: {told:?}");
        place.fetch("/tree", "back", FetchOptions::default());
        assert_same(&place.path("tree"), &place.path("back/tree"));
    }
}
