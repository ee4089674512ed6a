//! Each object of a store flipped, cut short and lost in turn: `verify` names it, `store` and the other
//! commands go on with all else, everything else reads back, and what is still at home is stored again.
use crate::crash::in_memory;
use crate::round::{path, settle};
use sheaf_archive::{
    Archive, ArchiveError, ArchiveEvent, ArchivePath, Catalog, CatalogError, FetchOptions,
    LocalStore, RepackOptions, RepairOptions, RightsChange, RightsOptions, SaveOptions, SaveReport,
    TreeWalk, TreeWalkOptions, VerifyOptions, change_rights, fetch, move_tree, remove, repack,
    repair, save, verify,
};
use sheaf_core::lock;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DIRECTORIES: [&str; 5] = ["plain", "packed", "later", "chosen", "objects"];

type Files = BTreeMap<String, Vec<u8>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Flipped,
    Short,
    Lost,
}

impl Damage {
    fn put(self, file: &Path) {
        let mut bytes = fs::read(file).unwrap();
        match self {
            Self::Flipped => {
                // Of a pack it is in a content.
                let at = 600.min(bytes.len() / 2);
                bytes[at] ^= 4;
                fs::write(file, bytes).unwrap();
            }
            Self::Short => fs::write(file, &bytes[..bytes.len() / 2]).unwrap(),
            Self::Lost => fs::remove_file(file).unwrap(),
        }
    }
}

/// A place that can be copied: a store, its catalog, and the tree.
struct Spot(tempfile::TempDir);

impl Spot {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The same once more. The tree is the one of the original, so that nothing in it has changed.
    fn copy(&self) -> Self {
        let copy = Self(in_memory());
        for name in ["store", "catalog"] {
            let mut cp = Command::new("cp");
            let copied = cp.arg("-a").arg(self.path(name)).arg(copy.0.path()).status().unwrap();
            assert!(copied.success());
        }
        copy
    }

    fn archive(&self) -> Result<Archive, ArchiveError> {
        let store = LocalStore::open(&self.path("store")).unwrap();
        Archive::new(Arc::new(store), Catalog::open(&self.path("catalog")).unwrap())
    }

    fn objects(&self) -> Vec<String> {
        let objects = self.path("store/objects");
        let mut names: Vec<String> = files(&objects).into_keys().collect();
        names.retain(|name| !name.starts_with("leases/"));
        names
    }
}

/// All files of a directory, by their paths in it.
fn files(at: &Path) -> Files {
    let mut files = Files::new();
    for entry in TreeWalk::new(at, TreeWalkOptions::default()) {
        if entry.found.unwrap().is_file() {
            let name = entry.path.strip_prefix(at).unwrap().to_str().unwrap().to_owned();
            files.insert(name, fs::read(&entry.path).unwrap());
        }
    }
    files
}

fn options() -> SaveOptions {
    SaveOptions { member_bytes_max: 8192, ..SaveOptions::default() }
}

fn store(archive: &Archive, tree: &Path, options: SaveOptions) -> (SaveReport, Vec<String>) {
    let told = Mutex::new(Vec::new());
    let tell = |event: ArchiveEvent| lock(&told).push(event.to_string());
    let saved = save(archive, &[tree.to_owned()], &ArchivePath::ROOT, options, &tell);
    (saved.unwrap(), told.into_inner().unwrap())
}

/// What can be got.
fn got(archive: &Archive, spot: &Spot) -> Files {
    let to = spot.path("back");
    fetch(archive, &path("/tree"), &to, FetchOptions::default(), &drop).unwrap();
    let found = files(&to.join("tree"));
    fs::remove_dir_all(to).unwrap();
    found
}

/// What is told to be damaged.
fn damaged(archive: &Archive) -> Vec<String> {
    let told = Mutex::new(Vec::new());
    let tell = |error: ArchiveError| lock(&told).push(error.to_string());
    verify(archive, &ArchivePath::ROOT, VerifyOptions::default(), &tell).unwrap();
    told.into_inner().unwrap()
}

/// An archive with packs of both kinds, a later index, modes that were changed, and objects.
fn make(spot: &Spot) -> PathBuf {
    let tree = spot.path("tree");
    for directory in DIRECTORIES {
        fs::create_dir_all(tree.join(directory)).unwrap();
        for name in ["a", "b", "c"] {
            let bytes = if directory == "objects" { 20_000 } else { 900 };
            let line = format!("{directory} {name}\n");
            fs::write(tree.join(directory).join(name), line.repeat(bytes / line.len())).unwrap();
        }
    }
    LocalStore::create(&spot.path("store")).unwrap();
    settle();
    let archive = spot.archive().unwrap();
    store(&archive, &tree, options());
    let packed = SaveOptions { zstd: Some(1), ..options() };
    fs::write(tree.join("packed/d"), "packed d\n".repeat(90)).unwrap();
    fs::write(tree.join("later/b"), "another\n".repeat(90)).unwrap();
    settle();
    store(&archive, &tree, packed);
    let all = RepairOptions { age: Duration::ZERO, dry_run: false };
    repair(&archive, all).unwrap();
    tree
}

/// Names in one directory of the tree; those of others are as they were.
fn assert_costs_one_directory(found: &Files, all: &Files, context: &str) {
    let mut directories: Vec<&str> = Vec::new();
    for (name, content) in all {
        match found.get(name) {
            Some(is) => assert!(is == content, "{context}: {name} is another one"),
            None => directories.extend(name.split('/').next()),
        }
    }
    directories.dedup();
    assert!(directories.len() <= 1, "{context}: {directories:?}");
    assert!(found.keys().all(|name| all.contains_key(name)), "{context}");
}

#[test]
fn damaged_pack_or_object_costs_its_files_alone() {
    let spot = Spot(in_memory());
    let tree = make(&spot);
    let all = files(&tree);
    let objects = spot.objects();
    let of_data = objects.iter().filter(|name| !name.starts_with("log/"));
    let mut kinds = BTreeMap::<&str, u32>::new();
    for object in of_data {
        for damage in [Damage::Flipped, Damage::Short, Damage::Lost] {
            let context = format!("{object}: {damage:?}");
            let copy = spot.copy();
            damage.put(&copy.path("store/objects").join(object));
            let archive = copy.archive().unwrap();
            let told = damaged(&archive);
            let name = object.rsplit('/').next().unwrap();
            let id = name.split('.').next().unwrap();
            // Of a content it is the file's name that is told.
            let is_named = |told: &String| told.contains(id) || told.contains("/tree/");
            assert!(told.iter().any(is_named), "{context}: {told:?}");
            assert_costs_one_directory(&got(&archive, &copy), &all, &context);
            *kinds.entry(if name.contains(".idx.") { "index" } else { "data" }).or_default() += 1;

            // New files of all directories are stored, and later what is at home.
            let home = copy.path("tree");
            let cp = Command::new("cp").arg("-a").args([&tree, &home]).status().unwrap();
            assert!(cp.success());
            for directory in DIRECTORIES {
                fs::write(home.join(directory).join("new"), directory).unwrap();
            }
            settle();
            let (report, _) = store(&archive, &home, options());
            assert!(report.failed <= 1, "{context}: {report:?}");
            let found = got(&archive, &copy);
            for directory in DIRECTORIES {
                let new = found.get(&format!("{directory}/new"));
                assert_eq!(new.unwrap(), directory.as_bytes(), "{context}");
            }
            let (_, told) = store(&archive, &home, SaveOptions { checksum: true, ..options() });
            let again = damaged(&archive);
            assert!(again.is_empty(), "{context}: {told:?}, {again:?}");
            assert_eq!(got(&archive, &copy), files(&home), "{context}");
            let (last, told) = store(&archive, &home, options());
            assert_eq!((last.failed, told), (0, Vec::new()), "{context}");
        }
    }
    assert!(kinds["index"] >= 15 && kinds["data"] >= 24, "{kinds:?}");
}

#[test]
fn other_commands_go_on_beside_damage() {
    let spot = Spot(in_memory());
    let tree = make(&spot);
    let all = files(&tree);
    for object in spot.objects().iter().filter(|name| name.starts_with("packs/")) {
        for damage in [Damage::Flipped, Damage::Lost] {
            let context = format!("{object}: {damage:?}");
            let copy = spot.copy();
            damage.put(&copy.path("store/objects").join(object));
            let archive = copy.archive().unwrap();
            let told = Mutex::new(0);
            let packed =
                RepackOptions { min_dead_percent: 1, small_packs_min: 2, ..Default::default() };
            let count = |_| *lock(&told) += 1;
            let report = repack(&archive, &path("/tree"), packed, &count).unwrap();
            assert!(report.failed <= 1 && report.failed == *lock(&told), "{context}: {report:?}");
            assert_costs_one_directory(&got(&archive, &copy), &all, &context);
            let change = RightsChange::Owner { uid: None, gid: Some(7) };
            let recursive = RightsOptions { recursive: true, ..RightsOptions::default() };
            let changed = change_rights(&archive, &path("/tree"), &change, recursive).unwrap();
            assert!(changed.changed > 0, "{context}");
            assert_costs_one_directory(&got(&archive, &copy), &all, &context);
            for directory in DIRECTORIES {
                let to = path(&format!("/tree/{directory}-moved"));
                move_tree(&archive, &path(&format!("/tree/{directory}")), &to).unwrap();
            }
            let moved: Files = all
                .iter()
                .map(|(name, is)| (name.replacen('/', "-moved/", 1), is.clone()))
                .collect();
            assert_costs_one_directory(&got(&archive, &copy), &moved, &context);
            // A directory goes without a look at what is in it.
            for directory in DIRECTORIES {
                remove(&archive, &path(&format!("/tree/{directory}-moved"))).unwrap();
            }
            assert_eq!(damaged(&archive), [""; 0], "{context}");
            let (report, told) = store(&archive, &tree, options());
            assert_eq!((report.stored, told), (all.len() as u64, Vec::new()), "{context}");
            assert_eq!(got(&archive, &copy), all, "{context}");
        }
    }
}

#[test]
fn damaged_commit_is_named_and_a_catalog_goes_on() {
    let spot = Spot(in_memory());
    let tree = make(&spot);
    let all = files(&tree);
    let objects = spot.objects();
    let log: Vec<_> = objects.iter().filter(|name| name.starts_with("log/")).collect();
    assert!(log.len() >= 3, "{log:?}");
    for (at, object) in log.iter().enumerate() {
        for damage in [Damage::Flipped, Damage::Short, Damage::Lost] {
            let context = format!("{object}: {damage:?}");
            let copy = spot.copy();
            damage.put(&copy.path("store/objects").join(object));
            let archive = match copy.archive() {
                Ok(archive) => archive,
                // The end of the log is lost, and the catalog has it.
                Err(ArchiveError::Catalog(CatalogError::Lost { .. })) if at + 1 == log.len() => {
                    let store = LocalStore::open(&copy.path("store")).unwrap();
                    let mut catalog = Catalog::open(&copy.path("catalog")).unwrap();
                    catalog.restore_log(&store, false).unwrap();
                    Archive::new(Arc::new(store), catalog).unwrap()
                }
                // It is not known what the last commit said, where that is what is damaged.
                Err(ArchiveError::Catalog(error)) if at + 1 == log.len() => {
                    assert!(error.is_of_log(), "{context}: {error}");
                    continue;
                }
                Err(error) => panic!("{context}: {error}"),
            };
            assert_eq!(got(&archive, &copy), all, "{context}");
            let is_restored = damage == Damage::Lost && at + 1 == log.len();
            let number = object.rsplit('0').next().unwrap();
            let told = damaged(&archive);
            let is_named = told.iter().any(|told| told.contains(&format!("commit {number}")));
            assert_eq!(is_named, !is_restored, "{context}: {told:?}");
            // Without the catalog what came before is read.
            let store = Arc::new(LocalStore::open(&copy.path("store")).unwrap());
            let made = Archive::to_read(store, Catalog::in_memory().unwrap()).unwrap();
            assert_eq!(made.1.is_some(), !is_restored, "{context}");
        }
    }
}
