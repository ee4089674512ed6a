//! Names that become files, links and directories in turn: what is archived of a tree is what was found there
//! last, and each name is archived once.
use crate::round::{Place, path, settle};
use sheaf_archive::{
    ArchivePath, Catalog, FetchOptions, Resource, SaveOptions, ScheduleLimits, TreeWalk,
    TreeWalkOptions, VerifyOptions, verify,
};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// `SHEAF_KINDS` is another number.
const ROUNDS: u64 = 12;

/// Numbers that are the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Has some names of a directory be something else, down to a depth.
fn mutate(directory: &Path, depth: u32, numbers: &mut Numbers) {
    for name in NAMES {
        let at = directory.join(name);
        let is_directory = at.symlink_metadata().is_ok_and(|found| found.is_dir());
        if is_directory && numbers.below(3) > 0 {
            mutate(&at, depth - 1, numbers);
            continue;
        }
        let what = numbers.below(8);
        if what == 7 {
            continue;
        }
        if is_directory {
            fs::remove_dir_all(&at).unwrap();
        } else {
            let _ = fs::remove_file(&at);
        }
        match what {
            0 | 1 if depth > 0 => {
                fs::create_dir(&at).unwrap();
                mutate(&at, depth - 1, numbers);
            }
            2 => symlink(format!("to {}", numbers.below(100)), &at).unwrap(),
            // Alone, in no pack.
            3 => fs::write(&at, vec![numbers.below(256) as u8; 20_000]).unwrap(),
            4 => {
                // A name of another file.
                fs::write(&at, format!("linked {}", numbers.below(1000))).unwrap();
                let other = directory.join("linked");
                let _ = fs::remove_file(&other);
                fs::hard_link(&at, other).unwrap();
            }
            5 => {}
            _ => fs::write(&at, format!("file {}", numbers.below(1000))).unwrap(),
        }
    }
}

/// What each name is: nothing for a directory, a link's text, a file's content.
fn seen(tree: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut seen = BTreeMap::new();
    for entry in TreeWalk::new(tree, TreeWalkOptions::default()) {
        let found = entry.found.unwrap();
        let is = if found.is_dir() {
            None
        } else if found.is_file() {
            Some(fs::read(&entry.path).unwrap())
        } else {
            Some(fs::read_link(&entry.path).unwrap().into_os_string().into_encoded_bytes())
        };
        let name = entry.path.strip_prefix(tree).unwrap().to_str().unwrap().to_owned();
        seen.insert(name, is);
    }
    seen
}

/// Puts a tree over what is known of it: names that are gone stay.
fn overlay(known: &mut BTreeMap<String, Option<Vec<u8>>>, tree: &Path) {
    for (name, is) in seen(tree) {
        if is.is_some() {
            let below = format!("{name}/");
            known.retain(|other, _| !other.starts_with(&below));
        }
        known.insert(name, is);
    }
}

#[test]
fn names_that_change_their_kind_are_archived_as_the_last() {
    let small = SaveOptions { member_bytes_max: 8192, pack_bytes: 2048, ..SaveOptions::default() };
    let narrow = ScheduleLimits::default().with(Resource::DiskOperations, 10_000);
    for (seed, options) in [
        (1, small),
        (2, SaveOptions { limits: narrow, ..small }),
        (3, SaveOptions { member_bytes_max: 0, ..small }),
    ] {
        let place = Place::new();
        let tree = place.path("tree");
        fs::create_dir(&tree).unwrap();
        let (mut numbers, mut known) = (Numbers(seed ^ 0x9e37_79b9_7f4a_7c15), BTreeMap::new());
        let rounds = std::env::var("SHEAF_KINDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
        for round in 0..rounds {
            mutate(&tree, 3, &mut numbers);
            settle();
            let dry = place.save("tree", SaveOptions { dry_run: true, ..options }).0;
            let (report, told) = place.save("tree", options);
            assert_eq!((dry.failed, report.failed), (0, 0), "{seed}, {round}: {told:?}");
            assert!(told.iter().all(|told| told.starts_with("Replaced")), "{told:?}");
            overlay(&mut known, &tree);
            let fail = |error| panic!("{seed}, {round}: {error}");
            verify(&place.archive, &ArchivePath::ROOT, VerifyOptions::default(), &fail).unwrap();
            let (fetched, told) = place.fetch("/tree", "back", FetchOptions::default());
            assert_eq!(fetched.failed, 0, "{seed}, {round}: {told:?}");
            assert_eq!(seen(&place.path("back/tree")), known, "{seed}, {round}");
            fs::remove_dir_all(place.path("back")).unwrap();
            let (again, told) = place.save("tree", options);
            assert_eq!((again.stored, told), (0, Vec::new()), "{seed}, {round}");
        }
        // The log says the same.
        let made = sheaf_archive::Archive::new(place.open_store(), Catalog::in_memory().unwrap());
        let below = |archive: &sheaf_archive::Archive| {
            archive.catalog().rows_below(&path("/tree"), None, 100_000).unwrap()
        };
        assert_eq!(below(&made.unwrap()), below(&place.archive));
    }
}
