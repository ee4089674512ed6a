//! Processes that are killed (`kill -9`) at any moment of their work: what they have told of is there, what
//! they were at is there as a whole or not at all, it is done again, and nothing is left over. Meanwhile
//! another process removes leftovers of any age.
//!
//! `SHEAF_KILLS` is how often, for each kind of archive.
use crate::crash::in_memory;
use crate::round::path;
use crate::stores::{self, StorePlace, files};
use sheaf_archive::{
    Archive, ArchiveError, ArchiveEvent, ArchivePath, Catalog, FetchOptions, PostgresUrl,
    RepackOptions, RepairOptions, SaveOptions, TreeWalk, TreeWalkOptions, VerifyOptions, fetch,
    move_tree, remove, repack, repair, save, verify,
};
use sheaf_testing::postgres::PostgresServer;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How often one is killed in each kind of archive.
const KILLS: u64 = 34;
/// How often in one archive.
const KILLS_IN_ONE: u64 = 12;
const SEED: u64 = 0x5851_f42d_4c95_7f2d;
const DIRECTORIES: [&str; 4] = ["", "d/", "d/e/", "f/"];
const FILES: u64 = 6;

/// What is in an archive or a tree: by a file's name, the name and version that its content is of.
type Files = BTreeMap<String, (String, u64)>;

/// One of the works that are done one after the other.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// These files are written anew, and the tree is stored.
    Store(BTreeSet<String>),
    /// A file or a directory is removed from the archive.
    Remove(String),
    /// A directory of the archive gets another name.
    Move { from: String, to: String },
    /// Packs are written anew.
    Repack,
    /// The archive is fetched.
    Fetch,
}

/// What is there before a step.
#[derive(Clone, Default)]
struct State {
    number: u64,
    tree: Files,
    archived: Files,
}

/// Numbers that are the same each time.
fn random(of: u64, other: u64) -> u64 {
    let mut number = SEED ^ of.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ other.rotate_left(32);
    for _ in 0..3 {
        number = (number ^ (number >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    number ^ (number >> 29)
}

fn content(name: &str, version: u64) -> Vec<u8> {
    let line = format!("{name} {version}\n");
    let bytes = match name {
        "large" => 40_000,
        // It is sent in several parts.
        "huge" => 6_000_000,
        _ => 800,
    };
    line.repeat(bytes / line.len()).into_bytes()
}

impl State {
    /// What is there before the first of the steps of a seed that is not done.
    fn before(seed: u64, number: u64) -> Self {
        let mut state = Self::default();
        while state.number < number {
            state = state.after(&state.step(seed));
        }
        state
    }

    /// The next step.
    fn step(&self, seed: u64) -> Step {
        let number = self.number;
        let random = |of| random(seed ^ number << 8, of);
        let directories: BTreeSet<&str> = self
            .archived
            .keys()
            .filter_map(|name| name.rsplit_once('/').map(|(directory, _)| directory))
            .collect();
        match random(0) % 10 {
            4 | 5 if number > 0 => {
                // A directory goes less often than a file.
                let names: Vec<&str> = self.archived.keys().map(String::as_str).collect();
                let all = [&names[..], &Vec::from_iter(directories)].concat();
                Step::Remove(all[random(1) as usize % all.len()].to_owned())
            }
            6 if directories.contains("f") => {
                Step::Move { from: "f".to_owned(), to: format!("kept-{number}") }
            }
            7 | 8 if number > 0 => Step::Repack,
            9 if number > 0 => Step::Fetch,
            _ => {
                let small = DIRECTORIES
                    .iter()
                    .flat_map(|above| (0..FILES).map(move |file| format!("{above}{file}")));
                let is_written = |of: usize| number == 0 || random(2 + of as u64) % 3 == 0;
                let mut written: BTreeSet<String> = small
                    .chain(["large".to_owned()])
                    .enumerate()
                    .filter(|(at, _)| is_written(*at))
                    .map(|(_, name)| name)
                    .collect();
                if random(100) % 6 == 0 {
                    written.insert("huge".to_owned());
                }
                Step::Store(written)
            }
        }
    }

    fn after(&self, step: &Step) -> Self {
        let mut after = self.clone();
        after.number += 1;
        match step {
            Step::Store(written) => {
                let version = self.number;
                after
                    .tree
                    .extend(written.iter().map(|name| (name.clone(), (name.clone(), version))));
                after.archived.extend(after.tree.clone());
            }
            Step::Remove(gone) => {
                let below = format!("{gone}/");
                after.archived.retain(|name, _| name != gone && !name.starts_with(&below));
            }
            Step::Move { from, to } => {
                let below = format!("{from}/");
                let renamed = self.archived.iter().map(|(name, is)| {
                    let within = name.strip_prefix(&below);
                    (within.map_or(name.clone(), |within| format!("{to}/{within}")), is.clone())
                });
                after.archived = renamed.collect();
            }
            Step::Repack | Step::Fetch => {}
        }
        after
    }
}

/// Where an archive is, for whoever opens it.
struct KilledPlace<'a> {
    store: &'a str,
    /// A file, or the URL of a database.
    catalog: &'a str,
    /// Its `tree` is stored.
    at: &'a Path,
}

impl KilledPlace<'_> {
    fn open(&self) -> Archive {
        let catalog = if self.catalog.starts_with("postgresql:") {
            Catalog::connect(&PostgresUrl::parse(self.catalog).unwrap()).unwrap()
        } else {
            Catalog::open(Path::new(self.catalog)).unwrap()
        };
        Archive::new(stores::create(self.store).unwrap(), catalog).unwrap()
    }

    /// Does a step, or does again what of it was not done.
    fn run(&self, archive: &Archive, state: &State, step: &Step) {
        match step {
            Step::Store(_) => {
                let tree = self.at.join("tree");
                for (name, (_, version)) in &state.after(step).tree {
                    let (file, content) = (tree.join(name), content(name, *version));
                    fs::create_dir_all(file.parent().unwrap()).unwrap();
                    if fs::read(&file).ok().as_ref() != Some(&content) {
                        fs::write(&file, content).unwrap();
                    }
                }
                let options = SaveOptions {
                    member_bytes_max: 8192,
                    // Several packs of a directory.
                    pack_bytes: 4096,
                    zstd: state.number.is_multiple_of(3).then_some(1),
                    ..SaveOptions::default()
                };
                save(archive, &[tree], &ArchivePath::ROOT, options, &failed).unwrap();
            }
            Step::Remove(name) => {
                let name = path(&format!("/tree/{name}"));
                // One that was killed may have removed it.
                if archive.look_up(&name).unwrap().is_some() {
                    remove(archive, &name).unwrap();
                }
            }
            Step::Move { from, to } => {
                let from = path(&format!("/tree/{from}"));
                if archive.look_up(&from).unwrap().is_some() {
                    move_tree(archive, &from, &path(&format!("/tree/{to}"))).unwrap();
                }
            }
            Step::Repack => {
                let options =
                    RepackOptions { min_dead_percent: 1, small_packs_min: 2, ..Default::default() };
                let told = |error| panic!("{error}");
                let report = repack(archive, &path("/tree"), options, &told).unwrap();
                assert_eq!(report.failed, 0);
            }
            Step::Fetch => {
                let to = self.at.join(format!("fetch-{}", state.number));
                fetch(archive, &path("/tree"), &to, FetchOptions::default(), &failed).unwrap();
            }
        }
    }
}

fn failed(event: ArchiveEvent) {
    panic!("{event:?}");
}

/// Run by the tests, as a process of its own, which is killed.
#[test]
fn as_one_that_is_killed() {
    let Ok(said) = std::env::var("SHEAF_TEST_KILLED") else { return };
    let [seed, number, store, catalog, at] = said.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{said}")
    };
    let place = KilledPlace { store, catalog, at: Path::new(at) };
    let seed: u64 = seed.parse().unwrap();
    println!("opens");
    let archive = place.open();
    let mut state = State::before(seed, number.parse().unwrap());
    loop {
        let step = state.step(seed);
        place.run(&archive, &state, &step);
        state = state.after(&step);
        println!("has done {}", state.number);
    }
}

/// A process that ends with the test.
struct KilledChild(Child);

impl Drop for KilledChild {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Has another process work on from a step, and kills it after a time; how many steps are done then.
fn killed(place: &KilledPlace<'_>, seed: u64, number: u64, after: Duration) -> u64 {
    let KilledPlace { store, catalog, at } = place;
    let at = at.display();
    let mut killed = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::as_one_that_is_killed", "--nocapture"])
        .env("SHEAF_TEST_KILLED", format!("{seed} {number} {store} {catalog} {at}"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(killed.stdout.take().unwrap());
    let mut killed = KilledChild(killed);
    let mut line = String::new();
    while !line.ends_with("opens\n") {
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "{line}");
    }
    clean_up_beside(place, seed, after);
    killed.0.kill().unwrap();
    let status = killed.0.wait().unwrap();
    line.clear();
    said.read_to_string(&mut line).unwrap();
    assert_eq!(status.signal(), Some(9), "it has ended by itself: {line}");
    let done = line.lines().filter_map(|line| line.split("has done ").nth(1)).next_back();
    done.map_or(number, |done| done.parse().unwrap())
}

/// Removes leftovers of any age for a time, beside a process that works there, as a command that sees
/// another time.
fn clean_up_beside(place: &KilledPlace<'_>, seed: u64, during: Duration) {
    let end = Instant::now() + during;
    let pause = Duration::from_micros(random(seed, during.as_micros() as u64) % 20_000);
    loop {
        std::thread::sleep(pause.min(end.saturating_duration_since(Instant::now())));
        if Instant::now() >= end {
            return;
        }
        let ahead = [-400, 0, 400][during.as_micros() as usize % 3] * 24 * 3600;
        // The other may not have made it yet.
        let Ok(store) = stores::open(place.store) else { continue };
        let store = crate::leases::with_clock(store, ahead);
        let archive = Archive::new(store, Catalog::in_memory().unwrap()).unwrap();
        match repair(&archive, RepairOptions { age: Duration::ZERO, dry_run: false }) {
            // The other repacks just now.
            Err(ArchiveError::Busy { .. }) => {}
            repaired => assert!(repaired.is_ok(), "{repaired:?}"),
        }
    }
}

/// The files of a directory, each of which is whole and of a version; but for those of nobody's name.
fn read(at: &Path) -> Files {
    let mut found = Files::new();
    if !at.exists() {
        return found;
    }
    for entry in TreeWalk::new(at, TreeWalkOptions::default()) {
        let name = entry.path.strip_prefix(at).unwrap().to_str().unwrap().to_owned();
        if entry.found.unwrap().is_dir() || name.contains(".sheaf-") {
            continue;
        }
        let read = fs::read(&entry.path).unwrap();
        let line = read.split(|byte| *byte == b'\n').next().unwrap();
        let line = str::from_utf8(line).unwrap();
        let (of, version) = line.split_once(' ').unwrap_or_else(|| panic!("{name}: {line:?}"));
        let version = version.parse().unwrap();
        assert!(read == content(of, version), "{name} is not whole");
        found.insert(name, (of.to_owned(), version));
    }
    found
}

/// All that is archived, by a new fetch.
fn archived(archive: &Archive, to: &Path) -> Files {
    if archive.look_up(&path("/tree")).unwrap().is_none() {
        return Files::new();
    }
    fetch(archive, &path("/tree"), to, FetchOptions::default(), &failed).unwrap();
    let found = read(&to.join("tree"));
    assert_eq!(files(to), found.len(), "and no other files");
    fs::remove_dir_all(to).unwrap();
    found
}

fn assert_verified(archive: &Archive) {
    let damaged = |error| panic!("{error}");
    let report = verify(archive, &ArchivePath::ROOT, VerifyOptions::default(), &damaged).unwrap();
    assert_eq!(report.damaged, 0);
}

/// Asserts that what is there is as before a step, or as after it, file by file.
fn assert_between(found: &Files, state: &State, step: &Step) {
    let (before, after) = (&state.archived, &state.after(step).archived);
    if !matches!(step, Step::Store(_) | Step::Remove(_)) {
        assert!(found == before || found == after, "{step:?}: {found:?}");
    }
    let names: BTreeSet<_> = before.keys().chain(after.keys()).chain(found.keys()).collect();
    for name in names {
        let is = found.get(name);
        let is_known = is == before.get(name) || is == after.get(name);
        assert!(is_known, "{step:?}: {name} is {is:?}");
    }
}

/// Removes leftovers, and asserts that the store has what the catalog knows, and nothing else.
fn assert_nothing_is_left_over(archive: &Archive) {
    let options = |dry_run| RepairOptions { age: Duration::ZERO, dry_run };
    let found = repair(archive, options(true)).unwrap();
    assert_eq!(repair(archive, options(false)).unwrap(), found);
    let again = repair(archive, options(true)).unwrap();
    assert_eq!((again.leftovers, again.young), (0, 0));
    let rows = archive.catalog().rows_below(&ArchivePath::ROOT, None, usize::MAX >> 1).unwrap();
    let (mut packs, mut objects) = (BTreeSet::new(), 0);
    for (_, rows) in &rows {
        packs.extend(rows.packs.iter().map(|pack| pack.key().to_string()));
        packs.extend(rows.packs.iter().map(|pack| {
            let tar = pack.key().to_string();
            format!("{}.idx.{}", tar.split('.').next().unwrap(), pack.generation)
        }));
        objects += rows.objects.len();
    }
    let keys = |kind: &str| crate::store::keys(archive.store(), &[kind]);
    let there: BTreeSet<_> = keys("packs").into_iter().map(|(key, _)| key).collect();
    assert_eq!(there, packs);
    assert_eq!(keys("data").len(), objects);
}

/// Kills one after the other in an archive of a kind.
fn kill_many(store: &StorePlace, catalog: &str, at: &Path, seed: u64, kills: u64, longest: u64) {
    let name = store.name();
    let place = KilledPlace { store: &name, catalog, at };
    let (mut number, mut last) = (0, 0);
    for round in 0..kills {
        // Some are killed at once, and some come far.
        let longest = [longest / 8, longest / 2, longest][round as usize % 3];
        let after = Duration::from_micros(random(seed, 1000 + round) % longest);
        number = killed(&place, seed, number, after);
        wait_for_the_server(store);
        let state = State::before(seed, number);
        let step = state.step(seed);
        let context = format!("seed {seed}, round {round}, {after:?}, step {number}");
        eprintln!("{context}: {step:?}");
        let archive = place.open();
        assert_verified(&archive);
        assert_between(&archived(&archive, &at.join("back")), &state, &step);
        let fetched = at.join(format!("fetch-{number}"));
        for (name, is) in read(&fetched.join("tree")) {
            assert_eq!(state.archived.get(&name), Some(&is), "{name} is fetched");
        }
        // Every other time, before the step is done again: it may need what seems to be left over.
        if round % 2 == 0 {
            assert_nothing_is_left_over(&archive);
            assert_verified(&archive);
        }
        place.run(&archive, &state, &step);
        let after = state.after(&step);
        assert_verified(&archive);
        assert_eq!(archived(&archive, &at.join("back")), after.archived, "{step:?}");
        assert_nothing_is_left_over(&archive);
        if step == Step::Fetch {
            assert_eq!(read(&fetched.join("tree")), after.archived);
            assert_eq!(files(&fetched), after.archived.len(), "no names of nobody's stay");
        }
        if store.server.is_none() {
            let root = store.root();
            assert_eq!(
                files(&if store.is_tape { root.join("disk/tmp") } else { root.join("tmp") }),
                0
            );
        }
        assert_eq!(archived(&archive, &at.join("back")), after.archived, "{step:?}");
        number = after.number;
        assert!(number > last);
        last = number;
        forget_fetched(at);
    }
}

/// A server goes on for a moment with what it was asked for.
fn wait_for_the_server(store: &StorePlace) {
    let Some(server) = &store.server else { return };
    let deadline = Instant::now() + Duration::from_secs(30);
    let (mut before, mut same) = (0, 0);
    while same < 4 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        let there = files(&server.bucket());
        same = if there == before { same + 1 } else { 0 };
        before = there;
    }
}

/// What other steps have fetched is of no use.
fn forget_fetched(at: &Path) {
    for entry in fs::read_dir(at).unwrap() {
        let entry: PathBuf = entry.unwrap().path();
        if entry.file_name().unwrap().to_str().unwrap().starts_with("fetch-") {
            fs::remove_dir_all(entry).unwrap();
        }
    }
}

/// Archives in which so many are killed, each by its number.
fn shares(kills: u64) -> impl Iterator<Item = (u64, u64)> {
    let kills = std::env::var("SHEAF_KILLS").map_or(kills, |kills| kills.parse().unwrap());
    let begins = (0..kills).step_by(KILLS_IN_ONE as usize);
    begins.map(move |begin| (begin, KILLS_IN_ONE.min(kills - begin)))
}

fn in_memory_store() -> StorePlace {
    StorePlace { directory: in_memory(), ..StorePlace::local() }
}

#[test]
fn in_a_directory_nothing_is_lost() {
    for (seed, kills) in shares(KILLS) {
        let (store, at) = (in_memory_store(), in_memory());
        let catalog = at.path().join("catalog").display().to_string();
        kill_many(&store, &catalog, at.path(), seed, kills, 120_000);
    }
}

#[test]
fn in_a_bucket_nothing_is_lost() {
    for (seed, kills) in shares(KILLS) {
        let Some(store) = StorePlace::s3() else { return };
        let at = in_memory();
        let catalog = at.path().join("catalog").display().to_string();
        kill_many(&store, &catalog, at.path(), 1_000_000 + seed, kills, 400_000);
    }
}

#[test]
fn on_tapes_nothing_is_lost() {
    for (seed, kills) in shares(KILLS_IN_ONE) {
        let (store, at) = (StorePlace { is_tape: true, ..in_memory_store() }, in_memory());
        let catalog = at.path().join("catalog").display().to_string();
        kill_many(&store, &catalog, at.path(), 3_000_000 + seed, kills, 200_000);
    }
}

#[test]
fn with_a_database_nothing_is_lost() {
    let Some(server) = PostgresServer::shared() else { return };
    for (seed, kills) in shares(KILLS) {
        let (store, at) = (in_memory_store(), in_memory());
        let catalog = server.new_database();
        kill_many(&store, &catalog, at.path(), 2_000_000 + seed, kills, 300_000);
    }
}

/// Where files must have names before they are whole, those of a writer that was killed go, too.
#[test]
fn files_of_nobody_s_name_are_left_over() {
    let place = in_memory();
    let store = place.path().join("store");
    // A making that was cut off in the middle.
    fs::create_dir_all(store.join("tmp")).unwrap();
    fs::write(store.join("tmp/1-0"), "sheaf arch").unwrap();
    let catalog = place.path().join("catalog").display().to_string();
    let name = store.display().to_string();
    let archive = KilledPlace { store: &name, catalog: &catalog, at: place.path() }.open();
    fs::write(store.join("tmp/4711-3"), "half of an object").unwrap();
    fs::write(store.join("tmp/another's"), "").unwrap();
    let young = repair(&archive, RepairOptions::default()).unwrap();
    assert_eq!((young.leftovers, young.bytes, young.young), (0, 0, 2));
    let options = |dry_run| RepairOptions { age: Duration::ZERO, dry_run };
    let found = repair(&archive, options(true)).unwrap();
    assert_eq!((found.leftovers, found.bytes, found.young), (2, 27, 0));
    assert_eq!(files(&store.join("tmp")), 3);
    assert_eq!(repair(&archive, options(false)).unwrap(), found);
    assert_eq!(repair(&archive, options(false)).unwrap().leftovers, 0);
    assert_eq!(files(&store.join("tmp")), 1);
    assert_verified(&archive);
}
