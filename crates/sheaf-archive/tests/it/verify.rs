//! Damage anywhere is found and named, and the rest is still read.
use crate::round::{Place, path};
use crate::trees::make_everything;
use sheaf_archive::{
    Archive, ArchivePath, Catalog, FetchOptions, LocalStore, SaveOptions, TreeWalk,
    TreeWalkOptions, VerifyOptions, VerifyReport, verify,
};
use sheaf_core::lock;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

fn verified(archive: &Archive, options: VerifyOptions) -> (VerifyReport, Vec<String>) {
    let told = Mutex::new(Vec::new());
    let tell = |error: sheaf_archive::ArchiveError| lock(&told).push(error.to_string());
    let report = verify(archive, &ArchivePath::ROOT, options, &tell).unwrap();
    (report, told.into_inner().unwrap())
}

/// Objects of a store whose keys begin so.
fn objects(place: &Place, kind: &str) -> Vec<PathBuf> {
    let walk = TreeWalk::new(&place.path("store/objects").join(kind), TreeWalkOptions::default());
    walk.filter(|entry| entry.found.as_ref().unwrap().is_file()).map(|entry| entry.path).collect()
}

#[test]
fn what_is_whole_is_said_to_be() {
    let place = Place::new();
    make_everything(&place.path("tree"));
    let (saved, _) = place.save("tree", SaveOptions::default());
    let (report, told) = verified(&place.archive, VerifyOptions::default());
    assert_eq!((report.damaged, report.unread, &told[..]), (0, 0, &[][..]));
    // And the root.
    assert_eq!(report.directories, saved.directories + 1);
    assert!(report.packs > 0 && report.objects > 0);
    let options = VerifyOptions { sample_of_million: 0, ..VerifyOptions::default() };
    let (sampled, _) = verified(&place.archive, options);
    assert_eq!((sampled.packs, sampled.objects, sampled.bytes), (0, 0, 0));
    assert_eq!(sampled.unread, report.packs + report.objects);
}

#[test]
fn a_flipped_byte_of_any_object_is_found_and_the_rest_is_read() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(place.path("tree").join(name), name.repeat(700)).unwrap();
    }
    fs::write(place.path("tree/large"), vec![1; 1_100_000]).unwrap();
    place.save("tree", SaveOptions::default());
    for object in ["packs", "data"].iter().flat_map(|kind| objects(&place, kind)) {
        let whole = fs::read(&object).unwrap();
        // Each byte of a small one, some of a large one.
        let step = whole.len().div_ceil(400);
        for at in (0..whole.len()).step_by(step) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&object, &damaged).unwrap();
            let (report, told) = verified(&place.archive, VerifyOptions::default());
            assert!(report.damaged > 0, "{object:?}: {at}");
            assert_eq!(report.damaged, told.len() as u64);
        }
        fs::write(&object, &whole[..whole.len() - 1]).unwrap();
        assert!(verified(&place.archive, VerifyOptions::default()).0.damaged > 0, "{object:?}");
        fs::remove_file(&object).unwrap();
        let (report, told) = verified(&place.archive, VerifyOptions::default());
        assert_eq!(report.damaged, 1, "{told:?}");
        fs::write(&object, &whole).unwrap();
    }
    assert_eq!(verified(&place.archive, VerifyOptions::default()).0.damaged, 0);

    // Of a pack with a damaged member all others are fetched.
    let is_tar = |path: &PathBuf| path.extension().unwrap() == "tar";
    let tar = objects(&place, "packs").into_iter().find(is_tar).unwrap();
    let mut damaged = fs::read(&tar).unwrap();
    let at = damaged.windows(700).position(|bytes| bytes == "b".repeat(700).as_bytes()).unwrap();
    damaged[at] ^= 1;
    fs::write(&tar, damaged).unwrap();
    let (_, told) = verified(&place.archive, VerifyOptions::default());
    assert!(matches!(&told[..], [one] if one.starts_with("/tree/b: its content")), "{told:?}");
    let (report, told) = place.fetch("/tree", "back", FetchOptions::default());
    assert_eq!((report.fetched, report.failed), (3, 1), "{told:?}");
    assert!(!place.path("back/tree/b").exists());
}

#[test]
fn a_catalog_that_says_something_else_than_the_log_is_named() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    fs::write(place.path("tree/a"), "a").unwrap();
    place.save("tree", SaveOptions::default());
    let tables = rusqlite::Connection::open(place.path("catalog")).unwrap();
    assert_eq!(tables.execute("DELETE FROM pack", []).unwrap(), 1);
    let (report, told) = verified(&place.archive, VerifyOptions::default());
    assert_eq!(report.damaged, 1);
    assert!(told[0].contains("is not what the log says, at /tree: remove the file"), "{told:?}");

    fs::remove_file(place.path("catalog")).unwrap();
    let store = Arc::new(LocalStore::open(&place.path("store")).unwrap());
    let archive = Archive::new(store, Catalog::open(&place.path("again")).unwrap()).unwrap();
    assert_eq!(verified(&archive, VerifyOptions::default()).0.damaged, 0);
    assert!(archive.look_up(&path("/tree/a")).unwrap().is_some());
}
