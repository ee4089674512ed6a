//! A store whose every object may say anything, with right checksums: whatever is fetched of it stays within
//! its target, nothing panics, and memory stays within its bounds.
//!
//! `SHEAF_HOSTILE` is how many stores are tried of each kind.
use crate::crash::in_memory;
use crate::grep::Numbers;
use crate::round::{path, settle};
use crate::trees::make_everything;
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, Catalog, FetchOptions, LocalStore, SaveOptions, TreeWalk,
    TreeWalkOptions, VerifyOptions, fetch, move_tree, remove, save, verify,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const ROUNDS: u64 = 60;
const DIGEST_BYTES: usize = 32;
/// BLAKE3, length and magic at the end of an index.
const INDEX_END_BYTES: usize = 48;

/// What a mutation may put somewhere.
const EVIL: [&[u8]; 12] = [
    b"..",
    b"../../x",
    b"/etc/x",
    b"\0",
    b"/",
    b"",
    &[0xff; 8],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
    &[0; 16],
    &[0x80, 0x80, 0x80, 0x80, 0x10],
    b"\x05../..",
];

fn mutate(body: &mut Vec<u8>, numbers: &mut Numbers) {
    for _ in 0..=numbers.below(3) {
        let at = numbers.below(body.len());
        let evil = EVIL[numbers.below(EVIL.len())];
        match numbers.below(5) {
            0 => body[at] = numbers.below(256) as u8,
            1 => body[at] ^= 1 << numbers.below(8),
            2 => {
                let end = (at + evil.len()).min(body.len());
                body[at..end].copy_from_slice(&evil[..end - at]);
            }
            3 => drop(body.splice(at..at, evil.iter().copied())),
            _ => drop(body.drain(at..(at + 1 + numbers.below(4)).min(body.len()))),
        }
        if body.is_empty() {
            body.push(0);
        }
    }
}

/// Changes a commit, and has those behind it continue it.
fn forge_commit(log: &[PathBuf], numbers: &mut Numbers) {
    let chosen = numbers.below(log.len());
    let mut before: Option<[u8; DIGEST_BYTES]> = None;
    for (at, file) in log.iter().enumerate().skip(chosen) {
        let mut bytes = fs::read(file).unwrap();
        bytes.truncate(bytes.len() - DIGEST_BYTES);
        if at == chosen {
            // Its number and version stay, mostly.
            let from = if numbers.below(16) == 0 { 0 } else { 20.min(bytes.len()) };
            let mut body = bytes.split_off(from);
            mutate(&mut body, numbers);
            bytes.extend(body);
        } else if let Some(digest) = before {
            let end = bytes.len() - DIGEST_BYTES;
            bytes[end..].copy_from_slice(&digest);
        }
        let digest = *blake3::hash(&bytes).as_bytes();
        bytes.extend_from_slice(&digest);
        before = Some(digest);
        fs::write(file, bytes).unwrap();
    }
}

/// Changes an index, of which the length stays as the catalog knows it.
fn forge_index(file: &Path, numbers: &mut Numbers) {
    let mut bytes = fs::read(file).unwrap();
    let body = bytes.len() - INDEX_END_BYTES;
    let mut changed = bytes[..body].to_vec();
    mutate(&mut changed, numbers);
    changed.resize(body, 0);
    bytes[..body].copy_from_slice(&changed);
    let digest = *blake3::hash(&bytes[..body]).as_bytes();
    bytes[body..body + DIGEST_BYTES].copy_from_slice(&digest);
    fs::write(file, bytes).unwrap();
}

fn files(at: &Path) -> Vec<PathBuf> {
    let walk = TreeWalk::new(at, TreeWalkOptions::default());
    let found = walk.filter(|entry| entry.found.as_ref().is_ok_and(|found| found.is_file()));
    let mut files: Vec<_> = found.map(|entry| entry.path).collect();
    files.sort();
    files
}

/// All that is outside of the target, with its content.
fn outside(at: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut seen = BTreeMap::new();
    for name in ["target/canary", "target", "etc"] {
        for entry in fs::read_dir(at.join(name)).unwrap() {
            let path = entry.unwrap().path();
            seen.insert(path.clone(), fs::read(path).ok());
        }
    }
    seen
}

/// What a user of a store may do with it.
fn use_it(at: &Path, options: SaveOptions) -> Result<(), ArchiveError> {
    let store = Arc::new(LocalStore::open(&at.join("store"))?);
    let (archive, _) = Archive::to_read(store.clone(), Catalog::in_memory()?)?;
    let overwrite = FetchOptions { overwrite: true, ..FetchOptions::default() };
    for options in [FetchOptions::default(), overwrite] {
        let _ = fetch(&archive, &path("/tree"), &at.join("target/within"), options, &drop);
        let _ = fetch(&archive, &ArchivePath::ROOT, &at.join("target/within"), options, &drop);
    }
    let _ = verify(&archive, &ArchivePath::ROOT, VerifyOptions::default(), &drop);
    for found in archive.walk(&ArchivePath::ROOT)?.take(10_000) {
        let _ = found.map(|(path, _)| path.to_string());
    }
    let archive = Archive::new(store, Catalog::in_memory()?)?;
    let _ = save(&archive, &[at.join("more")], &path("/tree"), options, &drop);
    let _ = move_tree(&archive, &path("/tree/d"), &path("/tree/moved"));
    remove(&archive, &path("/tree/moved")).map(drop)
}

fn peak_kibibytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

fn hostile(seed: u64, options: SaveOptions) {
    let place = in_memory();
    let tree = place.path().join("tree");
    make_everything(&tree);
    // Long paths and files cost time alone.
    for name in ["holes", "d/large"] {
        fs::remove_file(tree.join(name)).unwrap();
    }
    fs::create_dir(place.path().join("more")).unwrap();
    fs::write(place.path().join("more/new"), "new").unwrap();
    settle();
    let store = Arc::new(LocalStore::create(&place.path().join("store")).unwrap());
    let archive = Archive::new(store, Catalog::in_memory().unwrap()).unwrap();
    let fail = |event| panic!("{event:?}");
    for _ in 0..2 {
        save(&archive, std::slice::from_ref(&tree), &ArchivePath::ROOT, options, &fail).unwrap();
        fs::write(tree.join("d/text"), "another text").unwrap();
        settle();
    }
    remove(&archive, &path("/tree/zero")).unwrap();
    drop(archive);
    let rounds = std::env::var("SHEAF_HOSTILE").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let mut numbers = Numbers(seed);
    let mut reached = 0;
    for round in 0..rounds {
        let at = in_memory();
        for directory in ["target/within", "target/canary", "etc"] {
            fs::create_dir_all(at.path().join(directory)).unwrap();
        }
        fs::write(at.path().join("target/canary/file"), "untouched").unwrap();
        fs::write(at.path().join("etc/passwd"), "untouched").unwrap();
        let mut cp = Command::new("cp");
        cp.arg("-a").args(["store", "more"].map(|name| place.path().join(name))).arg(at.path());
        assert!(cp.status().unwrap().success());
        let before = outside(at.path());
        let objects = at.path().join("store/objects");
        for _ in 0..=numbers.below(2) {
            let packs = files(&objects.join("packs"));
            let indexes: Vec<_> =
                packs.iter().filter(|file| file.to_str().unwrap().contains(".idx.")).collect();
            match numbers.below(3) {
                0 if !indexes.is_empty() => {
                    forge_index(indexes[numbers.below(indexes.len())], &mut numbers);
                }
                1 if !packs.is_empty() => {
                    let file = &packs[numbers.below(packs.len())];
                    let mut bytes = fs::read(file).unwrap();
                    mutate(&mut bytes, &mut numbers);
                    fs::write(file, bytes).unwrap();
                }
                _ => forge_commit(&files(&objects.join("log")), &mut numbers),
            }
        }
        reached += u32::from(use_it(at.path(), options).is_ok());
        assert_eq!(outside(at.path()), before, "{seed}, {round}");
        // Nothing that another user may run is planted, either.
        assert!(!at.path().join("x").exists() && !Path::new("/etc/x").exists(), "{seed}, {round}");
    }
    assert!(reached > 0, "no store could be used");
    let peak = peak_kibibytes();
    assert!(peak < 2 << 20, "{peak} KiB");
}

#[test]
fn random_store_of_packs_writes_within_the_target_alone() {
    hostile(1, SaveOptions { member_bytes_max: 1 << 20, ..SaveOptions::default() });
}

#[test]
fn random_store_of_objects_writes_within_the_target_alone() {
    hostile(2, SaveOptions { member_bytes_max: 0, ..SaveOptions::default() });
}

#[test]
fn random_store_of_compressed_packs_stays_in_the_target() {
    hostile(3, SaveOptions { zstd: Some(1), ..SaveOptions::default() });
}
