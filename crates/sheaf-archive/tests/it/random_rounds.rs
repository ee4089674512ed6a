//! Trees of random files that change at random are stored, and come back as they are: in every kind of store,
//! by every way to store, over what was fetched before and where nothing is.
use crate::round::{Place, path, settle};
use crate::stores::StorePlace;
use crate::trees::{assert_same, is_root};
use crate::versions_work::Random;
use sheaf_archive::{
    Archive, ArchivePath, Catalog, FetchOptions, PostgresUrl, RepackOptions, RepairOptions,
    SaveOptions, TreeWalk, TreeWalkOptions, VerifyOptions, remove, repack, repair, verify,
};
use sheaf_testing::postgres::PostgresServer;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Rounds in one archive. `SHEAF_ROUNDS` is how many times as many archives there are, `SHEAF_ROUNDS_SEED` one
/// of them.
const ROUNDS_IN_ONE: u64 = 10;
/// Changes between two rounds.
const CHANGES_MAX: usize = 16;
/// Files and directories of a tree, about.
const NAMES_MAX: usize = 60;

impl Random {
    fn of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        (!all.is_empty()).then(|| &all[self.below(all.len())])
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        // Half of all can be compressed.
        let end = if self.below(2) == 0 { 256 } else { 3 };
        (0..length).map(|_| self.below(end) as u8).collect()
    }

    fn length(&mut self) -> usize {
        let edges = [0, 1, 511, 512, 513, 4095, 4096, 4097, 10_240, 65_536, 150_000, 1 << 20];
        if self.below(3) == 0 { *self.of(&edges).unwrap() } else { self.below(2000) }
    }

    fn name(&mut self) -> Vec<u8> {
        let long = [b'n'; 255];
        let names: [&[u8]; 14] = [
            b"a",
            b"b",
            b"c",
            b"d",
            b"e",
            b"f",
            b"\xff",
            b"new\nline",
            b" ",
            b"-rf",
            b".sheaf-index",
            "Über".as_bytes(),
            b"back\\slash",
            &long,
        ];
        self.of(&names).unwrap().to_vec()
    }
}

/// A tree that changes at random.
struct Tree {
    root: PathBuf,
    random: Random,
}

impl Tree {
    fn names(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let all = TreeWalk::new(&self.root, TreeWalkOptions::default());
        let mut all: Vec<_> =
            all.map(|entry| (entry.path, entry.found.unwrap().is_dir())).collect();
        all.sort();
        let (directories, files): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, is)| *is);
        let paths = |all: Vec<(PathBuf, bool)>| all.into_iter().map(|(path, _)| path).collect();
        (paths(directories), paths(files))
    }

    /// A name in one of the directories, at which nothing is.
    fn new_name(&mut self, directories: &[PathBuf]) -> Option<PathBuf> {
        let directory = self.random.of(directories).unwrap();
        // A path of five of the longest names is near what a system call takes.
        if directory.as_os_str().len() > 1500 {
            return None;
        }
        let name = directory.join(OsStr::from_bytes(&self.random.name()));
        name.symlink_metadata().is_err().then_some(name)
    }

    /// One change; what it was.
    fn change(&mut self) -> String {
        let (directories, files) = self.names();
        let is_full = directories.len() + files.len() > NAMES_MAX;
        let what = if is_full { self.random.below(3) } else { self.random.below(20) };
        let file = self.random.of(&files).cloned();
        let said = |what: &str, path: &Path| format!("{what} {path:?}");
        if what < 3 {
            let gone = if what == 0 { self.random.of(&directories[1..]).cloned() } else { file };
            let Some(gone) = gone else { return String::new() };
            let is_directory = gone.symlink_metadata().unwrap().is_dir();
            let removed =
                if is_directory { fs::remove_dir_all(&gone) } else { fs::remove_file(&gone) };
            removed.unwrap();
            return said("remove", &gone);
        }
        if what >= 11 {
            let old = if self.random.below(6) == 0 {
                self.random.of(&directories).cloned()
            } else {
                file
            };
            let Some(old) = old else { return String::new() };
            return self.alter(what, &old).map_or(String::new(), |what| said(what, &old));
        }
        let Some(new) = self.new_name(&directories) else { return String::new() };
        let random = &mut self.random;
        let what = match what {
            3 | 4 => {
                let length = random.length();
                fs::write(&new, random.bytes(length)).unwrap();
                "write"
            }
            5 => {
                let holes = File::create(&new).unwrap();
                for _ in 0..random.below(4) {
                    let at = random.below(1 << 20) as u64;
                    holes.write_all_at(&random.bytes(700), at).unwrap();
                }
                holes.set_len(random.below(2 << 20) as u64).unwrap();
                "holes"
            }
            6 => {
                fs::create_dir(&new).unwrap();
                "mkdir"
            }
            7 => {
                symlink(OsStr::from_bytes(&random.name()), &new).unwrap();
                "symlink"
            }
            8 => {
                use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
                let kinds = [FileType::Fifo, FileType::CharacterDevice, FileType::BlockDevice];
                let kind = if is_root() { kinds[random.below(3)] } else { FileType::Fifo };
                let device =
                    if kind == FileType::Fifo { 0 } else { makedev(7, random.below(999) as u32) };
                mknodat(CWD, &new, kind, Mode::RUSR, device).unwrap();
                "mknod"
            }
            9 => {
                let Some(old) = file else { return String::new() };
                fs::hard_link(&old, &new).unwrap();
                "link"
            }
            _ => {
                let Some(old) = file else { return String::new() };
                fs::rename(&old, &new).unwrap();
                "rename"
            }
        };
        said(what, &new)
    }

    /// Changes something of what is there.
    fn alter(&mut self, what: usize, old: &Path) -> Option<&'static str> {
        let random = &mut self.random;
        let found = old.symlink_metadata().unwrap();
        match what {
            11 | 12 if !found.is_symlink() => {
                let least = if is_root() { 0 } else { 0o700 };
                let mode = random.below(0o10_000) as u32 | least;
                fs::set_permissions(old, Permissions::from_mode(mode)).unwrap();
                Some("chmod")
            }
            13 if is_root() => {
                let (uid, gid) = (random.below(5) as u32, random.below(5) as u32);
                std::os::unix::fs::lchown(old, Some(uid), Some(gid)).unwrap();
                Some("chown")
            }
            14 if found.is_file() || found.is_dir() => {
                let flags = rustix::fs::XattrFlags::empty();
                let name = *random.of(&["user.a", "user.b=c", "user.ü"]).unwrap();
                let value_bytes = random.below(300);
                let value = random.bytes(value_bytes);
                if random.below(3) == 0 {
                    rustix::fs::removexattr(old, name).ok()?;
                } else {
                    rustix::fs::setxattr(old, name, &value, flags).ok()?;
                }
                Some("attribute")
            }
            15 if found.is_file() || found.is_dir() => {
                let seconds = random.below(4_000_000_000) as u64;
                let part = *random.of(&[0, 1, 999_999_999]).unwrap();
                let since = Duration::new(seconds, part);
                let epoch = SystemTime::UNIX_EPOCH;
                let is_before = random.below(8) == 0 && seconds < 2_000_000_000;
                let time = if is_before { epoch - since } else { epoch + since };
                File::open(old).unwrap().set_modified(time).unwrap();
                Some("time")
            }
            // Of the same size, and often of the same time of change as well.
            16 | 17 if found.is_file() && found.len() > 0 => {
                let file = File::options().read(true).write(true).open(old).unwrap();
                let at = random.below(found.len() as usize) as u64;
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).unwrap();
                file.write_all_at(&[byte[0] ^ 1], at).unwrap();
                if random.below(2) == 0 {
                    file.set_modified(found.modified().unwrap()).unwrap();
                }
                Some("flip")
            }
            18 if found.is_file() => {
                let length = random.length() as u64;
                File::options().write(true).open(old).unwrap().set_len(length).unwrap();
                Some("truncate")
            }
            19 if found.is_file() => {
                let mut bytes = fs::read(old).unwrap();
                bytes.truncate(300_000);
                fs::remove_file(old).unwrap();
                fs::write(old, bytes).unwrap();
                Some("another file of this content")
            }
            _ => None,
        }
    }
}

/// What has gone from the tree is removed from the archive, by its uppermost names.
fn remove_what_is_gone(archive: &Archive, before: &BTreeSet<PathBuf>, tree: &Path) {
    let mut gone: Option<&Path> = None;
    for name in before {
        let is_below = gone.is_some_and(|gone| name.starts_with(gone));
        if is_below || tree.join(name).symlink_metadata().is_ok() {
            continue;
        }
        // A name that was below a directory which is now a file went with it.
        let above = name.parent().unwrap();
        let is_in = tree.join(above).symlink_metadata().is_ok_and(|found| found.is_dir());
        let archived = [b"/tree/", name.as_os_str().as_bytes()].concat();
        if is_in {
            remove(archive, &ArchivePath::new(&archived).unwrap()).unwrap();
        }
        gone = Some(name);
    }
}

fn save_options(random: &mut Random) -> SaveOptions {
    let default = SaveOptions::default();
    SaveOptions {
        workers: 1 + random.below(4),
        member_bytes_max: *random.of(&[default.member_bytes_max, 0, 4096]).unwrap(),
        pack_bytes: *random.of(&[default.pack_bytes, 2048, 100_000]).unwrap(),
        part_bytes: *random.of(&[default.part_bytes, 1 << 18]).unwrap(),
        zstd: *random.of(&[None, Some(1), Some(3), Some(9)]).unwrap(),
        checksum: random.below(4) == 0,
        ..default
    }
}

/// The rounds of one archive.
fn rounds(place: &Place, seed: u64) {
    let mut tree = Tree { root: place.path("tree"), random: Random(seed) };
    fs::create_dir(&tree.root).unwrap();
    let mut before = BTreeSet::new();
    for round in 0..ROUNDS_IN_ONE {
        let changes = 1 + tree.random.below(CHANGES_MAX);
        let changed: Vec<_> = (0..changes).map(|_| tree.change()).collect();
        if tree.random.below(2) == 0 {
            settle();
        }
        let options = save_options(&mut tree.random);
        let context =
            format!("{}, seed {seed}, round {round}: {changed:?} {options:?}", place.at.said());
        println!("{context}");
        remove_what_is_gone(&place.archive, &before, &tree.root);
        let (saved, mut told) = place.save("tree", options);
        told.retain(|told| !told.starts_with("Replaced"));
        assert_eq!((saved.failed, saved.skipped, &told[..]), (0, 0, &[][..]), "{context}");
        match tree.random.below(8) {
            0 => {
                let options = RepairOptions { age: Duration::ZERO, ..RepairOptions::default() };
                repair(&place.archive, options).unwrap();
            }
            1 => {
                let options = RepackOptions {
                    min_dead_percent: 1,
                    small_packs_min: 2,
                    ..RepackOptions::default()
                };
                repack(&place.archive, &ArchivePath::ROOT, options, &|error| {
                    panic!("{context}: {error}")
                })
                .unwrap();
            }
            _ => {}
        }
        let damaged = |error| panic!("{context}: {error}");
        verify(&place.archive, &path("/"), VerifyOptions::default(), &damaged).unwrap();
        // Over what was there before, of which some has been changed, and where nothing is.
        let over = FetchOptions { overwrite: true, delete: true, ..FetchOptions::default() };
        let fresh = format!("back-{round}");
        for (back, options) in [("back", over), (&fresh[..], FetchOptions::default())] {
            let (fetched, mut told) = place.fetch("/tree", back, options);
            told.retain(|told| !told.starts_with("Removes"));
            let failed = (fetched.failed, fetched.attributes_left, &told[..]);
            assert_eq!(failed, (0, 0, &[][..]), "{context}: {back}");
            println!("{back}: {fetched:?}");
            assert_same(&tree.root, &place.path(back).join("tree"));
        }
        fs::remove_dir_all(place.path(&fresh)).unwrap();
        let mut there = Tree { root: place.path("back/tree"), random: Random(tree.random.0) };
        (0..3).for_each(|_| drop(there.change()));
        let (directories, files) = tree.names();
        let within = |path: &PathBuf| path.strip_prefix(&tree.root).unwrap().to_owned();
        before = directories[1..].iter().chain(&files).map(within).collect();
    }
}

fn archives(count: u64, place: impl Fn() -> Option<Place>) {
    let times = std::env::var("SHEAF_ROUNDS").map_or(1, |times| times.parse().unwrap());
    let seeds = match std::env::var("SHEAF_ROUNDS_SEED") {
        Ok(seed) => seed.parse().map(|seed| seed..seed + 1).unwrap(),
        Err(_) => 0..count * times,
    };
    for seed in seeds {
        let Some(place) = place() else { return };
        rounds(&place, seed);
    }
}

#[test]
fn random_trees_come_back_from_a_directory() {
    archives(12, || Some(Place::new()));
}

#[test]
fn random_trees_come_back_from_tapes() {
    archives(3, || Some(Place::at(StorePlace::tape())));
}

#[test]
fn random_trees_come_back_from_a_bucket() {
    archives(3, || StorePlace::s3().map(Place::at));
}

#[test]
fn random_trees_come_back_by_a_database() {
    let Some(server) = PostgresServer::shared() else { return };
    archives(2, || {
        let mut place = Place::new();
        let url = PostgresUrl::parse(&server.new_database()).unwrap();
        place.archive = Archive::new(place.open_store(), Catalog::connect(&url).unwrap()).unwrap();
        Some(place)
    });
}
