//! A log that is written again, by one that is broken off at any of its writes: nothing of what it would have kept is
//! lost, nobody takes the archive for whole meanwhile, and the next one does the rest.
use crate::crash::{EVER, in_memory, stopping};
use crate::round::path;
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, Catalog, CatalogError, LocalStore, RepairOptions,
    SaveOptions, VerifyOptions, Version, mark_version, repair, save, verify, versions,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tempfile::TempDir;

const VERSIONS: usize = 6;

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
}

fn store_of(at: &Path) -> Arc<LocalStore> {
    Arc::new(LocalStore::create(at).unwrap())
}

/// A store with a version after each of some commits, and catalogs of after each.
struct Grown {
    place: TempDir,
    /// The number of the last commit at each version, from the first on.
    numbers: Vec<u64>,
}

impl Grown {
    fn new() -> Self {
        let place = in_memory();
        let at = |name: &str| place.path().join(name);
        let mut numbers = Vec::new();
        for number in 1..=VERSIONS {
            let directory = at("tree").join(format!("d{number}"));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("f"), format!("{number}\n")).unwrap();
            let catalog = Catalog::open(&at("catalog")).unwrap();
            let archive = Archive::new(store_of(&at("store")), catalog).unwrap();
            let fail = |event| panic!("{event:?}");
            let options = SaveOptions::default();
            save(&archive, &[at("tree")], &ArchivePath::ROOT, options, &fail).unwrap();
            let version = Version {
                host: "n7".to_owned(),
                name: Some(format!("v{number}")),
                ..Version::default()
            };
            let id = mark_version(&archive, version).unwrap();
            let found = versions(&archive).unwrap().into_iter().find(|found| found.id == id);
            numbers.push(found.unwrap().number);
            drop(archive);
            copy(&at("catalog"), &at(&format!("catalog-{number}")));
        }
        Self { place, numbers }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// The same store without the last commits of these versions.
    fn without(&self, lost: &[usize]) {
        let store = self.at("tried");
        fs::remove_dir_all(&store).or_else(|_| fs::create_dir(&store)).unwrap();
        let _ = fs::remove_dir(&store);
        copy(&self.at("store"), &store);
        for version in lost {
            let number = self.numbers[version - 1];
            fs::remove_file(store.join(format!("objects/log/{number:020}"))).unwrap();
        }
    }

    /// Has the log be written again by a catalog of a version, and stops that after so many writes. Whether it was
    /// stopped.
    fn restore(&self, known: usize, left: i64, is_deaf: bool) -> Result<bool, ArchiveError> {
        let catalog = self.at("of-it");
        let _ = fs::remove_dir_all(&catalog).or_else(|_| fs::remove_file(&catalog));
        copy(&self.at(&format!("catalog-{known}")), &catalog);
        let (store, left) = stopping(&self.at("tried"), left, is_deaf);
        let archive = Archive::as_known(store, Catalog::open(&catalog)?)?;
        let restored = archive.restore_log(false);
        let was_stopped = left.load(Ordering::SeqCst) < 0;
        drop(archive);
        // Its process is gone.
        let _ = fs::remove_dir_all(self.at("tried/objects/leases"));
        if was_stopped {
            return Ok(true);
        }
        restored.map(|_| false)
    }

    /// That the archive has these versions, each with its directories, and no others, and is whole.
    fn check(&self, left: &[usize], context: &str) {
        let archive = Archive::new(store_of(&self.at("tried")), Catalog::in_memory().unwrap());
        let archive = archive.unwrap_or_else(|error| panic!("{context}: {error}"));
        let age = Duration::ZERO;
        repair(&archive, RepairOptions { age, ..RepairOptions::default() }).unwrap();
        let damaged = |error| panic!("{context}: {error}");
        verify(&archive, &ArchivePath::ROOT, VerifyOptions::default(), &damaged).unwrap();
        let found = versions(&archive).unwrap();
        let named: Vec<usize> = found
            .iter()
            .map(|found| {
                found.version.as_ref().unwrap().name.as_ref().unwrap()[1..].parse().unwrap()
            })
            .collect();
        assert_eq!(named, left, "{context}");
        for (version, found) in named.iter().zip(&found) {
            let at = archive.at(found).unwrap();
            let directories = at.catalog().below(&path("/tree"), None, 100).unwrap();
            assert_eq!(directories.len(), version + 1, "{context}: v{version}");
        }
        let now = archive.catalog().below(&path("/tree"), None, 100).unwrap();
        assert_eq!(now.len(), VERSIONS + 1, "{context}");
    }

    /// Nobody takes it for whole, unless nothing was done yet that matters, or all.
    fn is_refused(&self) -> bool {
        let open = || store_of(&self.at("tried"));
        let written = Archive::new(open(), Catalog::in_memory().unwrap());
        let (_, read) = Archive::to_read(open(), Catalog::in_memory().unwrap()).unwrap();
        assert_eq!(written.is_err(), read.is_some(), "{read:?}");
        written.is_err()
    }
}

/// The catalog is of a version; the last commits of others are lost, and versions are left.
fn stopped_anywhere(grown: &Grown, known: usize, lost: &[usize], left: &[usize]) {
    let mut refused = 0;
    for is_deaf in [false, true] {
        for writes in 0.. {
            let context = format!("{known} {lost:?} {writes} {is_deaf}");
            grown.without(lost);
            let was_stopped = grown.restore(known, writes, is_deaf).unwrap();
            refused += u64::from(grown.is_refused());
            // Again, and by the catalog of another machine where there is a plan.
            let store = store_of(&grown.at("tried"));
            let is_planned = Catalog::check_restored(&*store).is_err();
            match grown.restore(if is_planned { VERSIONS } else { known }, EVER, false) {
                Ok(was_stopped) => assert!(!was_stopped),
                Err(ArchiveError::Catalog(CatalogError::InOrder { .. })) => assert!(!is_planned),
                // The log is another one by now than this catalog knows.
                Err(error) => assert!(!is_planned && !grown.is_refused(), "{context}: {error}"),
            }
            grown.check(left, &context);
            assert!(
                fs::read_dir(grown.at("tried/objects/restoring")).map_or(0, Iterator::count) == 0
            );
            if !was_stopped {
                assert!(writes > 10, "{context}");
                break;
            }
        }
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn log_that_is_written_again_is_whole_or_planned() {
    let grown = Grown::new();
    // The catalog knows the lost commit alone, or one before the last, or all.
    stopped_anywhere(&grown, 1, &[1], &[1, 2, 3, 4, 5, 6]);
    stopped_anywhere(&grown, 3, &[2], &[1, 3, 4, 5, 6]);
    stopped_anywhere(&grown, 5, &[2, 5], &[1, 5, 6]);
    stopped_anywhere(&grown, 6, &[3, 6], &[1, 2, 6]);
}

#[test]
fn plan_that_is_damaged_is_named_and_changes_nothing() {
    let grown = Grown::new();
    grown.without(&[2]);
    let mut writes = 0;
    let plan = grown.at("tried/objects/restoring/plan");
    while !plan.exists() {
        writes += 1;
        grown.without(&[2]);
        grown.restore(3, writes, false).unwrap();
    }
    let good = fs::read(&plan).unwrap();
    let log = || fs::read_dir(grown.at("tried/objects/log")).unwrap().count();
    let before = log();
    for at in (0..good.len()).step_by(7) {
        let mut bad = good.clone();
        bad[at] ^= 0x20;
        fs::write(&plan, &bad).unwrap();
        let failed = grown.restore(3, EVER, false).unwrap_err();
        let is_named = matches!(failed, ArchiveError::Catalog(CatalogError::Plan { .. }));
        assert!(is_named && grown.is_refused() && log() == before, "{at}: {failed}");
    }
    // So is a commit that is to be written.
    fs::write(&plan, &good).unwrap();
    let pieces: Vec<PathBuf> = fs::read_dir(plan.parent().unwrap())
        .unwrap()
        .map(|piece| piece.unwrap().path())
        .filter(|piece| *piece != plan)
        .collect();
    assert!(!pieces.is_empty());
    let piece = fs::read(&pieces[0]).unwrap();
    fs::write(&pieces[0], b"x").unwrap();
    let failed = grown.restore(3, EVER, false).unwrap_err();
    assert!(matches!(failed, ArchiveError::Catalog(CatalogError::Plan { .. })), "{failed}");
    assert!(grown.is_refused());
    fs::write(&pieces[0], piece).unwrap();
    assert!(!grown.restore(3, EVER, false).unwrap());
    grown.check(&[1, 3, 4, 5, 6], "");
}

/// A pack whose last index is lost, behind removals: what is at home is stored again, what is not comes back of the pack,
/// and all commands are as before.
#[test]
fn pack_whose_last_index_is_lost_is_filled_again() {
    for (generations, at_home, damage) in
        [(1, true, false), (1, false, true), (2, true, true), (2, false, false)]
    {
        let context = format!("{generations} {at_home} {damage}");
        let place = in_memory();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("tree/d")).unwrap();
        for number in 1..=6 {
            fs::write(at("tree/d").join(format!("f{number}")), format!("{number}\n").repeat(100))
                .unwrap();
        }
        let open = || {
            Archive::new(store_of(&at("store")), Catalog::open(&at("catalog")).unwrap()).unwrap()
        };
        let store_all = || {
            let (archive, told) = (open(), std::sync::Mutex::new(0));
            let fail = |_| *told.lock().unwrap() += 1;
            let options = SaveOptions::default();
            let saved = save(&archive, &[at("tree")], &ArchivePath::ROOT, options, &fail).unwrap();
            (saved.failed, *told.lock().unwrap())
        };
        assert_eq!(store_all(), (0, 0));
        for number in 1..=generations {
            fs::remove_file(at("tree/d").join(format!("f{number}"))).unwrap();
            let gone = path(&format!("/tree/d/f{number}"));
            sheaf_archive::remove(&open(), &gone).unwrap();
        }
        let index = found_below(&at("store/objects/packs"), &format!("*.idx.{generations}"));
        if damage {
            fs::write(&index, "x").unwrap()
        } else {
            fs::remove_file(&index).unwrap()
        }
        if !at_home {
            fs::remove_dir_all(at("tree")).unwrap();
            fs::create_dir_all(at("tree/other")).unwrap();
        }
        let stored = store_all();
        assert_eq!(stored.0 > 0, at_home, "{context}: {stored:?}");
        let repaired = repair(&open(), RepairOptions::default()).unwrap();
        assert_eq!((repaired.refilled, repaired.indexes_lost), (1, 0), "{context}: {repaired:?}");
        let damaged = |error| panic!("{context}: {error}");
        verify(&open(), &ArchivePath::ROOT, VerifyOptions::default(), &damaged).unwrap();
        assert_eq!(store_all(), (0, 0), "{context}");
        let back = at("back");
        let fail = |event| panic!("{event:?}");
        let options = sheaf_archive::FetchOptions::default();
        sheaf_archive::fetch(&open(), &path("/tree/d"), &back, options, &fail).unwrap();
        for number in 1..=6 {
            let file = fs::read_to_string(back.join(format!("d/f{number}"))).unwrap();
            assert_eq!(file, format!("{number}\n").repeat(100), "{context}");
        }
        let again = repair(&open(), RepairOptions::default()).unwrap();
        assert_eq!((again.refilled, again.indexes_lost), (0, 0), "{context}");
    }
}

/// The one file of this name.
fn found_below(directory: &Path, name: &str) -> PathBuf {
    let found = Command::new("find").arg(directory).args(["-name", name]).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    assert_eq!(found.lines().count(), 1, "{name}: {found}");
    PathBuf::from(found.trim())
}
