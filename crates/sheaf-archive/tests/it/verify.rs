//! Damage anywhere is found and named, and the rest is still read.
use crate::crash::in_memory;
use crate::round::{Place, path};
use crate::trees::make_everything;
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, ArchivedFile, Catalog, FetchOptions, LocalStore,
    RepairOptions, SaveOptions, Store, StoreKey, StoredObject, TreeWalk, TreeWalkOptions,
    VerifyOptions, VerifyReport, fetch, repair, save, verify,
};
use sheaf_core::lock;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn verified(archive: &Archive, options: VerifyOptions) -> (VerifyReport, Vec<String>) {
    let told = Mutex::new(Vec::new());
    let tell = |error: ArchiveError| lock(&told).push(error.to_string());
    let report = verify(archive, &ArchivePath::ROOT, options, &tell).unwrap();
    (report, told.into_inner().unwrap())
}

/// Objects of a store whose keys begin so.
fn objects(place: &Place, kind: &str) -> Vec<PathBuf> {
    let walk = TreeWalk::new(&place.path("store/objects").join(kind), TreeWalkOptions::default());
    walk.filter(|entry| entry.found.as_ref().unwrap().is_file()).map(|entry| entry.path).collect()
}

#[test]
fn verify_of_an_intact_archive_reports_no_damage() {
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
fn flipped_byte_of_any_object_is_found_and_the_rest_is_read() {
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
fn catalog_that_says_something_else_than_the_log_is_named() {
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

/// The tables go on while they are compared.
#[test]
fn catalog_that_others_write_to_is_no_other_than_the_log() {
    let place = Place::new();
    for name in ["a", "b", "c"] {
        fs::create_dir_all(place.path(&format!("tree/{name}"))).unwrap();
    }
    place.save("tree", SaveOptions::default());
    let store = Arc::new(LocalStore::open(&place.path("store")).unwrap());
    let other = Archive::new(store, Catalog::open(&place.path("catalog")).unwrap()).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..60 {
                for name in ["a", "c"] {
                    fs::write(place.path(&format!("tree/{name}/{number}")), "x").unwrap();
                }
                place.save("tree", SaveOptions::default());
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
            let (report, told) = verified(&other, VerifyOptions::default());
            assert_eq!(report.damaged, 0, "{told:?}");
        }
    });
}

/// Files that are stored one by one, each by a commit of its own or several.
fn stored_one_by_one(place: &Place) {
    for name in ["a", "b", "c", "d"] {
        fs::create_dir(place.path(name)).unwrap();
        fs::write(place.path(name).join("file"), name).unwrap();
        place.save(name, SaveOptions::default());
    }
}

fn log_key(number: u64) -> StoreKey {
    StoreKey::new(&format!("log/{number:020}")).unwrap()
}

fn emptied(store: &dyn Store, key: &StoreKey) {
    store.remove(key).unwrap();
    store.create(key).unwrap().commit().unwrap();
}

#[test]
fn commits_that_are_lost_are_damage_and_the_rest_is_verified() {
    for place in Place::all() {
        stored_one_by_one(&place);
        let (store, last) = (place.open_store(), place.archive.catalog().applied().unwrap());
        assert!(last > 4);
        store.remove(&log_key(2)).unwrap();
        emptied(&*store, &log_key(4));
        let (report, told) = verified(&place.archive, VerifyOptions::default());
        assert_eq!((report.damaged, told.len(), report.directories), (2, 2, 5));
        let text = "commit 2 of the archive's log is missing, and later ones are there, from 3 on";
        assert!(told[0].starts_with(text), "{told:?}");
        assert!(told[1].starts_with("commit 4 of the archive's log is damaged: "), "{told:?}");
        // While somebody looks, the last one goes.
        store.remove(&log_key(2)).unwrap_err();
        for number in 3..=last {
            store.remove(&log_key(number)).unwrap();
        }
        let (report, told) = verified(&place.archive, VerifyOptions::default());
        assert_eq!((report.damaged, told.len(), report.directories), (1, 1, 5));
        assert!(told[0].contains(&format!("lost, from commit 2 to {last}")), "{told:?}");
    }
}

/// Without a catalog: what is before is read, and nothing is written or removed.
#[test]
fn log_is_read_up_to_its_damage_and_nothing_is_removed() {
    for is_gap in [true, false] {
        for place in Place::all() {
            stored_one_by_one(&place);
            let (store, last) = (place.open_store(), place.archive.catalog().applied().unwrap());
            let at = last - u64::from(is_gap);
            if is_gap {
                store.remove(&log_key(at)).unwrap();
            } else {
                emptied(&*store, &log_key(at));
            }
            let all = || {
                let mut keys = Vec::new();
                let mut each = |object: StoredObject| {
                    keys.push(object.key);
                    Ok(())
                };
                store.list(&[], &mut each).unwrap();
                keys
            };
            let (before, begins) = (all(), format!("commit {at} of the archive's log is "));
            // The second finds the tables of the first.
            for _ in 0..2 {
                let catalog = || Catalog::open(&place.path("again")).unwrap();
                let error = Archive::new(place.open_store(), catalog()).err().unwrap().to_string();
                assert!(error.starts_with(&begins), "{error}");
                let (archive, error) = Archive::to_read(place.open_store(), catalog()).unwrap();
                assert!(error.unwrap().to_string().starts_with(&begins));
                let tell = |_| {};
                let to = tempfile::tempdir().unwrap();
                let options = FetchOptions::default;
                fetch(&archive, &path("/a"), to.path(), options(), &tell).unwrap();
                assert_eq!(fs::read(to.path().join("a/file")).unwrap(), b"a");
                let old = RepairOptions { age: Duration::ZERO, dry_run: false };
                let error = repair(&archive, old).unwrap_err().to_string();
                assert!(error.starts_with(&begins), "{error}");
                let (report, told) = verified(&archive, VerifyOptions::default());
                assert!(report.damaged == 1 && told[0].starts_with(&begins), "{told:?}");
                let report =
                    save(&archive, &[place.path("a")], &path("/a"), SaveOptions::default(), &tell);
                assert!(report.is_err_and(|error| error.to_string().starts_with(&begins)));
                let kept = all();
                assert!(before.iter().all(|key| kept.contains(key)));
                assert_eq!(
                    kept.iter().filter(|key| key.as_str().starts_with("log/")).count() as u64,
                    last - u64::from(is_gap)
                );
            }
        }
    }
}

/// All that can still be fetched of a tree, by the names that it has there.
fn readable(archive: &Archive, to: &std::path::Path) -> Vec<(PathBuf, Vec<u8>)> {
    let tell = |_| {};
    fetch(archive, &path("/tree"), to, FetchOptions::default(), &tell).unwrap();
    let walk = TreeWalk::new(to, TreeWalkOptions::default());
    let files = walk.filter(|entry| entry.found.as_ref().unwrap().is_file());
    files
        .map(|entry| {
            (entry.path.strip_prefix(to).unwrap().to_owned(), fs::read(&entry.path).unwrap())
        })
        .collect()
}

#[test]
fn flipped_byte_anywhere_is_named_and_all_else_is_read() {
    let place = in_memory();
    let (at, tree) = (place.path(), place.path().join("tree"));
    let all = ["a", "d/b", "d/c", "e/f", "e/large"];
    for name in all {
        let file = tree.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let bytes = if name == "e/large" { 1_100_000 } else { 600 };
        fs::write(file, name.repeat(bytes / name.len())).unwrap();
    }
    let open = |catalog: &str| {
        let store = LocalStore::create(&at.join("store")).unwrap();
        Archive::new(Arc::new(store), Catalog::open(&at.join(catalog)).unwrap())
    };
    let archive = open("catalog").unwrap();
    let fail = |event| panic!("{event:?}");
    save(&archive, std::slice::from_ref(&tree), &ArchivePath::ROOT, SaveOptions::default(), &fail)
        .unwrap();
    let walk = TreeWalk::new(&at.join("store/objects"), TreeWalkOptions::default());
    let files = walk.filter(|entry| entry.found.as_ref().unwrap().is_file());
    let objects: Vec<_> = files.map(|entry| entry.path).collect();
    assert!(objects.len() > 7, "{objects:?}");
    let mut flips = 0;
    for object in objects {
        let whole = fs::read(&object).unwrap();
        let key = object.strip_prefix(at.join("store/objects")).unwrap().display().to_string();
        // Each third byte of what is small, and about a hundred of what is large.
        for flip in (0..whole.len()).step_by(whole.len().div_ceil(120).max(3)) {
            flips += 1;
            let mut damaged = whole.clone();
            damaged[flip] ^= 1 << (flip % 8);
            fs::write(&object, &damaged).unwrap();
            let (report, told) = verified(&archive, VerifyOptions::default());
            assert!(report.damaged > 0 && !told.is_empty(), "{key}: {flip}");
            // The object is named, or the file that it has.
            let id = key.rsplit('/').next().unwrap().split('.').next().unwrap();
            let number = id.trim_start_matches('0');
            let is_named = told.iter().any(|text| {
                text.contains(id)
                    || key.starts_with("log/") && text.contains(&format!("commit {number} "))
                    || all.iter().any(|name| text.starts_with(&format!("/tree/{name}: ")))
            });
            assert!(is_named, "{key}: {flip}: {told:?}");
            let to = at.join("back");
            let read = readable(&archive, &to);
            for (name, content) in &read {
                assert_eq!(*content, fs::read(at.join(name)).unwrap(), "{key}: {flip}: {name:?}");
            }
            // A pack's members but one, or all of them where it is the index that is damaged.
            let lost = match key.split('/').next().unwrap() {
                "log" => 0,
                "packs" if !key.ends_with(".tar") => 2,
                _ => 1,
            };
            assert!(read.len() + lost >= all.len(), "{key}: {flip}: {read:?}");
            fs::remove_dir_all(&to).unwrap();
        }
        fs::write(&object, &whole).unwrap();
    }
    assert!(flips > 500, "{flips}");
    assert_eq!(verified(&archive, VerifyOptions::default()).0.damaged, 0);
}

#[test]
fn flipped_byte_of_a_catalog_is_named_and_another_is_made() {
    let place = in_memory();
    let (at, tree) = (place.path(), place.path().join("tree"));
    fs::create_dir_all(tree.join("d")).unwrap();
    fs::write(tree.join("a"), "a").unwrap();
    fs::write(tree.join("d/b"), "b").unwrap();
    let open = |catalog: &str| -> Result<Archive, ArchiveError> {
        let store = LocalStore::create(&at.join("store"))?;
        Archive::new(Arc::new(store), Catalog::open(&at.join(catalog))?)
    };
    let archive = open("catalog").unwrap();
    let fail = |event| panic!("{event:?}");
    save(&archive, std::slice::from_ref(&tree), &ArchivePath::ROOT, SaveOptions::default(), &fail)
        .unwrap();
    let rows =
        |archive: &Archive| archive.catalog().rows_below(&ArchivePath::ROOT, None, 1000).unwrap();
    let expected = rows(&archive);
    drop(archive);
    let whole = fs::read(at.join("catalog")).unwrap();
    let (mut named, mut unseen) = (0, 0);
    // Much of the file is free, and zeros.
    let used = |at: &usize| whole[*at] != 0 || at.is_multiple_of(97);
    let used: Vec<_> = (0..whole.len()).filter(used).collect();
    for flip in used.iter().copied().step_by(used.len().div_ceil(600)) {
        let mut damaged = whole.clone();
        damaged[flip] ^= 1 << (flip % 8);
        fs::write(at.join("damaged"), damaged).unwrap();
        let told = Mutex::new(Vec::new());
        let tell = |error: ArchiveError| lock(&told).push(error.to_string());
        let seen = open("damaged").and_then(|archive| {
            verify(&archive, &ArchivePath::ROOT, VerifyOptions::default(), &tell)?;
            Ok(archive)
        });
        match seen {
            // What is free in the file is nobody's.
            Ok(archive) if lock(&told).is_empty() => {
                unseen += 1;
                assert_eq!(rows(&archive), expected, "{flip}");
            }
            Ok(_) => {
                named += 1;
                assert!(lock(&told)[0].starts_with("the catalog /"), "{flip}: {told:?}");
            }
            Err(error) => {
                named += 1;
                let told = lock(&told);
                let first = told.first().cloned().unwrap_or(error.to_string());
                assert!(first.starts_with("the catalog /"), "{flip}: {first}");
            }
        }
        for suffix in ["", "-wal", "-shm"] {
            let file = at.join(format!("damaged{suffix}"));
            if file.exists() {
                fs::remove_file(file).unwrap();
            }
        }
    }
    assert!(named > 20 && unseen > 20, "{named} {unseen}");
    let again = open("again").unwrap();
    assert_eq!(rows(&again), expected);
    assert_eq!(verified(&again, VerifyOptions::default()).0.damaged, 0);
}

/// Pages of a catalog that are not whole: it is not opened, or says all that it said, or is not believed
/// where something is removed by it.
#[test]
fn damaged_catalog_has_nothing_removed() {
    let place = in_memory();
    let (at, tree) = (place.path(), place.path().join("tree"));
    for directory in 0..30 {
        let directory = tree.join(format!("d{directory}"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..6 {
            fs::write(directory.join(format!("f{file}")), [file]).unwrap();
        }
        fs::write(directory.join("large"), vec![7; 1100 << 10]).unwrap();
    }
    let open = |catalog: &str| -> Result<Archive, ArchiveError> {
        let store = LocalStore::create(&at.join("store"))?;
        Archive::new(Arc::new(store), Catalog::open(&at.join(catalog))?)
    };
    let archive = open("catalog").unwrap();
    let fail = |event| panic!("{event:?}");
    save(&archive, std::slice::from_ref(&tree), &ArchivePath::ROOT, SaveOptions::default(), &fail)
        .unwrap();
    let names = |archive: &Archive| archive.walk(&ArchivePath::ROOT).unwrap().flatten().count();
    let count = names(&archive);
    drop(archive);
    let whole = fs::read(at.join("catalog")).unwrap();
    let sectors = (0..whole.len() / 512).map(|sector| {
        let mut damaged = whole.clone();
        damaged[sector * 512..(sector + 1) * 512].fill(0);
        damaged
    });
    let cuts = (1..whole.len() / 1024).map(|cut| whole[..whole.len() - cut * 1024].to_vec());
    let options = RepairOptions { age: Duration::ZERO, dry_run: false };
    let (mut refused, mut whole_ones) = (0, 0);
    for damaged in sectors.chain(cuts) {
        fs::write(at.join("damaged"), damaged).unwrap();
        match open("damaged") {
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("remove the file, and it is made again"), "{text}");
                refused += 1;
            }
            Ok(archive) => {
                whole_ones += u64::from(names(&archive) == count);
                let _ = repair(&archive, options);
            }
        }
        for end in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(at.join(format!("damaged{end}")));
        }
    }
    assert!(refused > 20 && whole_ones > 0, "{refused} {whole_ones}");
    let archive = open("another").unwrap();
    let fail = |error| panic!("{error}");
    let verified = verify(&archive, &ArchivePath::ROOT, VerifyOptions::default(), &fail).unwrap();
    assert_eq!((verified.damaged, verified.objects, names(&archive)), (0, 30, count));
}

/// A bit of a row is not what another owner or mode is made of: what cannot be true is not told.
#[test]
fn flipped_bit_of_a_row_is_told_and_gives_no_other_attributes() {
    let place = in_memory();
    let (at, tree) = (place.path(), place.path().join("tree"));
    for name in ["d/a", "d/b", "e/c"] {
        fs::create_dir_all(tree.join(name).parent().unwrap()).unwrap();
        fs::write(tree.join(name), name).unwrap();
    }
    fs::hard_link(tree.join("d/a"), tree.join("e/a")).unwrap();
    let open = |catalog: &str| -> Result<Archive, ArchiveError> {
        let store = LocalStore::create(&at.join("store"))?;
        Archive::new(Arc::new(store), Catalog::open(&at.join(catalog))?)
    };
    let archive = open("catalog").unwrap();
    let fail = |event| panic!("{event:?}");
    let sources = std::slice::from_ref(&tree);
    save(&archive, sources, &ArchivePath::ROOT, SaveOptions::default(), &fail).unwrap();
    let names = ["tree", "tree/d", "tree/e", "tree/d/a", "tree/d/b", "tree/e/a", "tree/e/c"];
    // A name that is not found is one that the damage is in, which verify tells.
    let look = |archive: &Archive| -> Vec<Option<ArchivedFile>> {
        names.iter().map(|name| archive.look_up(&path(name)).unwrap_or_default()).collect()
    };
    let expected = look(&open("catalog").unwrap());
    assert!(expected.iter().all(Option::is_some));
    drop(archive);
    let whole = fs::read(at.join("catalog")).unwrap();
    let used: Vec<_> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    let mut told = 0;
    for flip in used.iter().copied().step_by(used.len().div_ceil(900)) {
        let mut damaged = whole.clone();
        damaged[flip] ^= 1 << (flip % 8);
        fs::write(at.join("damaged"), damaged).unwrap();
        if let Ok(archive) = open("damaged") {
            for (is, was) in look(&archive).iter().zip(&expected) {
                told += u64::from(is.is_none());
                assert!(is.is_none() || is == was, "{flip}: {is:?}");
            }
        }
        for suffix in ["", "-wal", "-shm"] {
            let file = at.join(format!("damaged{suffix}"));
            if file.exists() {
                fs::remove_file(file).unwrap();
            }
        }
    }
    assert!(told > 20, "{told}");
}
