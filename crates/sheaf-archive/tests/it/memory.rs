//! What works on many names does not take more memory for more of them: many directories, and one that has
//! very many. Each work is a process of its own, whose peak the system says.
use crate::crash::in_memory;
use crate::round::{path, settle};
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, ArchivedFile, ArchivedUsage, Catalog, FetchOptions,
    LocalStore, SaveOptions, UsageSum, VerifyOptions, fetch, save, verify,
};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// What the tests below ask a process of their own to do.
const WORK: &str = "SHEAF_TEST_MEMORY";
/// Names of a directory that is wide.
const WIDE: usize = 100_000;
const IN_EACH: usize = 500;
/// What works may take beside what they take for a tree of nothing, in KiB.
const TAKEN_MAX: u64 = 64 << 10;

/// Run by the test below, as a process of its own: what it has done is counted.
#[test]
fn as_one_whose_memory_is_seen() {
    let Ok(said) = std::env::var(WORK) else { return };
    let (work, at) = said.split_once(' ').unwrap();
    let at = Path::new(at);
    let store = Arc::new(LocalStore::create(&at.join("store")).unwrap());
    let archive = Archive::new(store, Catalog::open(&at.join("catalog")).unwrap()).unwrap();
    let fail = |event| panic!("{event:?}");
    let from = path("/tree");
    let count = match work {
        "store" => {
            // Packs that are full at some time.
            let options = SaveOptions { pack_bytes: 4 << 20, ..SaveOptions::default() };
            let sources = [at.join("tree")];
            save(&archive, &sources, &ArchivePath::ROOT, options, &fail).unwrap().stored
        }
        "store-again" => {
            let options = SaveOptions::default();
            let sources = [at.join("tree")];
            save(&archive, &sources, &ArchivePath::ROOT, options, &fail).unwrap().unchanged
        }
        "walk" => files_of(archive.walk(&from).unwrap().map(|found| found.unwrap())),
        "walk-ahead" => {
            archive.walk_ahead(&from, |walk| files_of(walk.map(|found| found.unwrap()))).unwrap()
        }
        "du" => {
            let sum = |path: &ArchivePath, _: ArchivedUsage| {
                assert!(path.is_within(&from));
                Ok::<(), ArchiveError>(())
            };
            UsageSum::new(&archive).add(&from, &mut { sum }).unwrap().files
        }
        "verify" => {
            let damaged = |error| panic!("{error}");
            verify(&archive, &from, VerifyOptions::default(), &damaged).unwrap();
            0
        }
        "fetch" => {
            let to = at.join("back");
            fetch(&archive, &from, &to, FetchOptions::default(), &fail).unwrap().fetched
        }
        work => panic!("{work}"),
    };
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("\nhas done {count} {}", peak.trim().trim_end_matches(" kB"));
}

/// How many files there are, in their order.
fn files_of(walk: impl Iterator<Item = (ArchivePath, ArchivedFile)>) -> u64 {
    let (mut files, mut last) = (0, None);
    for (path, file) in walk {
        assert!(last.as_ref().is_none_or(|last| *last < path), "{path}");
        files += u64::from(!matches!(file, ArchivedFile::Directory(_)));
        last = Some(path);
    }
    files
}

/// Has a process do some work; how many files that were, and its peak in KiB.
fn peak(work: &str, at: &Path) -> (u64, u64) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "memory::as_one_whose_memory_is_seen", "--nocapture"])
        .env(WORK, format!("{work} {}", at.display()))
        .output()
        .unwrap();
    let text = String::from_utf8(child.stdout).unwrap();
    let told = text.lines().find_map(|line| line.strip_prefix("has done "));
    let error = String::from_utf8_lossy(&child.stderr);
    let told = told.unwrap_or_else(|| panic!("{work}: {text}{error}"));
    let (done, kilobytes) = told.split_once(' ').unwrap();
    (done.parse().unwrap(), kilobytes.parse().unwrap())
}

const WORKS: [&str; 7] = ["store", "store-again", "walk", "walk-ahead", "du", "verify", "fetch"];

/// Makes an archive of an own tree of so many files in so many directories, and looks at all works.
fn peaks(directories: usize, files: usize) -> [u64; WORKS.len()] {
    let place = in_memory();
    for directory in 0..directories {
        let within = place.path().join("tree").join(format!("{directory:05}"));
        fs::create_dir_all(&within).unwrap();
        for file in 0..files {
            File::create(within.join(format!("a-file-{file}"))).unwrap();
        }
    }
    settle();
    WORKS.map(|work| {
        let (done, peak) = peak(work, place.path());
        let expected = if work == "verify" { 0 } else { directories * files };
        assert_eq!(done, expected as u64, "{work}");
        peak
    })
}

#[test]
fn very_many_names_take_no_more_memory() {
    let few = peaks(1, 10);
    for (directories, files) in [(1, WIDE), (WIDE / IN_EACH, IN_EACH)] {
        let many = peaks(directories, files);
        eprintln!("{directories} directories of {files}: {few:?} {many:?}");
        for ((work, few), many) in WORKS.iter().zip(few).zip(many) {
            let took = many.saturating_sub(few);
            assert!(took < TAKEN_MAX, "{work} of {directories} times {files} took {took} KiB");
        }
    }
}
