//! A flipped byte in any file of a store, or of a catalog that others have open: it is named, or the archive
//! is not opened, and all else is read; or it was of nothing, and then all is as it was.
use crate::crash::in_memory;
use crate::round::{path, settle};
use crate::stores::{self, StorePlace};
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, Catalog, FetchOptions, RepairOptions, SaveOptions,
    TreeWalk, TreeWalkOptions, VerifyOptions, fetch, move_tree, remove, repair, save, verify,
};
use sheaf_core::lock;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// Bytes of each file that are flipped; all of one that has fewer.
const FLIPS: usize = 40;
/// Where a server is asked for each.
const FLIPS_IN_A_BUCKET: usize = 8;

/// All regular files of a directory.
fn files(at: &Path) -> Vec<PathBuf> {
    let walk = TreeWalk::new(at, TreeWalkOptions::default());
    walk.filter(|entry| entry.found.as_ref().unwrap().is_file()).map(|entry| entry.path).collect()
}

/// All that can be fetched, by its names.
fn fetched(archive: &Archive, to: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let report = fetch(archive, &path("/tree"), to, FetchOptions::default(), &drop).unwrap();
    let found: BTreeMap<_, _> = files(to)
        .into_iter()
        .map(|file| (file.strip_prefix(to).unwrap().to_owned(), fs::read(&file).unwrap()))
        .collect();
    assert_eq!(report.fetched, found.len() as u64);
    fs::remove_dir_all(to).unwrap();
    found
}

/// What is told of an archive that is opened: nothing if all is as it was.
fn told(store: &StorePlace, catalog: &Path) -> Result<(Archive, Vec<String>), ArchiveError> {
    let archive = Archive::new(stores::open(&store.name())?, Catalog::open(catalog)?)?;
    let told = Mutex::new(Vec::new());
    let tell = |error: ArchiveError| lock(&told).push(error.to_string());
    let report = verify(&archive, &ArchivePath::ROOT, VerifyOptions::default(), &tell)?;
    let told = told.into_inner().unwrap();
    assert_eq!(report.damaged, told.len() as u64);
    Ok((archive, told))
}

/// An archive of packs of both kinds, with members that were removed and replaced, objects, and a
/// directory that was moved.
fn make(store: &StorePlace, at: &Path) -> Archive {
    let archive =
        Archive::new(store.create().unwrap(), Catalog::open(&at.join("catalog")).unwrap()).unwrap();
    let tree = at.join("tree");
    for (directory, names) in [("a", 3), ("b", 3), ("c/d", 3)] {
        fs::create_dir_all(tree.join(directory)).unwrap();
        for number in 0..names {
            let text = format!("{directory} {number}\n").repeat(50);
            fs::write(tree.join(directory).join(number.to_string()), text).unwrap();
        }
    }
    fs::write(tree.join("a/large"), "large\n".repeat(3000)).unwrap();
    let store = |zstd| {
        let fail = |event| panic!("{event:?}");
        let options = SaveOptions { member_bytes_max: 8192, zstd, ..SaveOptions::default() };
        save(&archive, std::slice::from_ref(&tree), &ArchivePath::ROOT, options, &fail).unwrap();
    };
    settle();
    store(None);
    fs::create_dir(tree.join("z")).unwrap();
    for number in 0..3 {
        fs::write(tree.join("z").join(number.to_string()), format!("z {number}\n").repeat(90))
            .unwrap();
    }
    fs::write(tree.join("b/1"), "another text\n".repeat(40)).unwrap();
    settle();
    store(Some(3));
    remove(&archive, &path("/tree/a/2")).unwrap();
    remove(&archive, &path("/tree/z/0")).unwrap();
    move_tree(&archive, &path("/tree/c/d"), &path("/tree/a/moved")).unwrap();
    // What nobody refers to may be anything.
    let all = RepairOptions { age: Duration::ZERO, dry_run: false };
    assert!(repair(&archive, all).unwrap().leftovers > 0);
    archive
}

/// Flips bytes of each file of a directory. How often it was named, and how often it was of nothing.
fn flip_each(
    store: &StorePlace,
    of: &Path,
    at: &Path,
    mut look: impl FnMut(&Path, usize, Option<(Archive, Vec<String>)>, String) -> bool,
) -> BTreeMap<String, (u32, u32)> {
    let mut counts = BTreeMap::<String, (u32, u32)>::new();
    for file in files(of) {
        let whole = fs::read(&file).unwrap();
        let name = file.strip_prefix(of).unwrap().display().to_string();
        let flips = if store.server.is_some() { FLIPS_IN_A_BUCKET } else { FLIPS };
        let step = whole.len().div_ceil(flips).max(1);
        // Not always the same of them: they begin somewhere by the file's number.
        let begin = counts.len() * 7 % step;
        for flip in (begin..whole.len()).step_by(step) {
            let mut damaged = whole.clone();
            damaged[flip] ^= 1 << (flip % 8);
            fs::write(&file, &damaged).unwrap();
            let catalog = at.join("catalog");
            let (seen, refused) = match told(store, &catalog) {
                Ok(seen) => (Some(seen), String::new()),
                Err(error) => (None, error.to_string()),
            };
            let is_named = look(&file, flip, seen, refused);
            let count = counts.entry(name.clone()).or_default();
            *(if is_named { &mut count.0 } else { &mut count.1 }) += 1;
        }
        fs::write(&file, &whole).unwrap();
    }
    counts
}

fn any_byte_of_a_store(store: &StorePlace, may_be_silent: impl Fn(&str) -> bool) {
    let place = in_memory();
    let at = place.path();
    drop(make(store, at));
    let (archive, _) = told(store, &at.join("catalog")).unwrap();
    let expected = fetched(&archive, &at.join("back"));
    drop(archive);
    assert_eq!(expected.len(), 11);
    let counts = flip_each(store, &store.root(), at, |file, flip, seen, refused| {
        let context = format!("{}: {flip}", file.display());
        let Some((archive, told)) = seen else {
            // Who is refused is told which store, and a store has its other bytes still.
            let own = ["sheaf-archive", "library"];
            assert!(own.iter().any(|own| file.ends_with(own)), "{context}: {refused}");
            assert!(refused.contains(&store.said().replace("tape:", "")), "{context}: {refused}");
            return true;
        };
        let found = fetched(&archive, &at.join("back"));
        for (name, content) in &found {
            assert!(expected.get(name) == Some(content), "{context}: {name:?} is another one");
        }
        if told.is_empty() {
            assert_eq!(found.len(), expected.len(), "{context}: nothing is told");
        }
        // A pack has three files here at most, and only the log's bytes are of all.
        assert!(found.len() + 3 >= expected.len(), "{context}: {told:?}");
        !told.is_empty()
    });
    for (name, (named, silent)) in &counts {
        // Of a pack, what were members that are removed; and of what is on tape, too, what made room on the
        // disk before anybody read it.
        let is_pack = name.contains("/packs/") && name.contains(".tar");
        let silent_max = if is_pack || name.starts_with("disk/") { named / 2 } else { 0 };
        let is_said = *silent <= silent_max || may_be_silent(name);
        assert!(is_said, "{name}: {named} named, {silent} not");
    }
    assert!(counts.len() > 12, "{counts:?}");
    let (archive, told) = told(store, &at.join("catalog")).unwrap();
    assert_eq!(told, [""; 0]);
    assert!(fetched(&archive, &at.join("back")) == expected);
}

#[test]
fn any_byte_of_a_directory_is_named() {
    any_byte_of_a_store(&StorePlace { directory: in_memory(), ..StorePlace::local() }, |_| false);
}

/// What is on tapes is in packs and objects of cartridges, and what drives are at is nobody's loss.
#[test]
fn any_byte_of_a_library_of_tapes_is_named() {
    let store = StorePlace { directory: in_memory(), ..StorePlace::tape() };
    any_byte_of_a_store(&store, |name| {
        name == "library" || name == "tapes/drives" || name.starts_with("tapes/cartridge-")
    });
}

#[test]
fn any_byte_of_a_bucket_is_named() {
    let Some(store) = StorePlace::s3() else { return };
    any_byte_of_a_store(&store, |_| false);
}

/// Commits that SQLite has not brought into its file yet: what is damaged of them comes from the log again.
#[test]
fn any_byte_of_a_catalog_s_own_log_is_of_no_account() {
    let place = in_memory();
    let at = place.path();
    let store = StorePlace { directory: in_memory(), ..StorePlace::local() };
    let open = make(&store, at);
    let rows = |archive: &Archive| {
        archive.catalog().rows_below(&ArchivePath::ROOT, None, usize::MAX >> 1).unwrap()
    };
    let expected = rows(&open);
    let whole = fs::read(at.join("catalog-wal")).unwrap();
    assert!(whole.len() > 50_000, "{}", whole.len());
    let mut fewer = 0;
    for flip in (0..whole.len()).step_by(whole.len() / 300) {
        let mut damaged = whole.clone();
        damaged[flip] ^= 1 << (flip % 8);
        let other = at.join("other");
        fs::create_dir(&other).unwrap();
        fs::copy(at.join("catalog"), other.join("catalog")).unwrap();
        fs::write(other.join("catalog-wal"), &damaged).unwrap();
        let catalog = Catalog::open(&other.join("catalog")).unwrap();
        fewer += u32::from(catalog.applied().unwrap() < open.catalog().applied().unwrap());
        drop(catalog);
        let (archive, told) = told(&store, &other.join("catalog")).unwrap();
        assert_eq!(told, [""; 0], "{flip}");
        assert_eq!(rows(&archive), expected, "{flip}");
        fs::remove_dir_all(other).unwrap();
    }
    assert!(fewer > 20, "no commit was lost");
}
