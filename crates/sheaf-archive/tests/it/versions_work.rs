//! Versions beside all other work: a long random one, and one that is stopped at each of its writes.
use crate::crash::{EVER, archive, in_memory};
use crate::round::{Place, path};
use crate::stores::StorePlace;
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, Catalog, FetchOptions, PackId, RelocateKeep, RepackOptions,
    RepairOptions, SaveOptions, Store, StoreError, StoreKey, StoreWriter, StoredObject, TreeWalk,
    TreeWalkOptions, VerifyOptions, Version, copy_tree, fetch, forget_versions, mark_version,
    move_tree, remove, repack, repair, save, verify, versions,
};
use sheaf_core::Errno;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How many works are done, and in one archive: the longer its log is the longer takes each.
const WORKS: u64 = 320;
const WORKS_IN_ONE: u64 = 64;
/// Files that are archived at once, about.
const FILES_MAX: usize = 50;
/// Versions that are kept at once.
const VERSIONS_MAX: usize = 6;

/// The files of a tree by their paths in it: modes and contents.
type Files = BTreeMap<String, (u32, Vec<u8>)>;

fn files_of(at: &Path) -> Files {
    let mut found = Files::new();
    for entry in TreeWalk::new(at, TreeWalkOptions::default()) {
        let facts = entry.found.unwrap();
        if !facts.is_dir() {
            let name = entry.path.strip_prefix(at).unwrap().to_str().unwrap().to_owned();
            found.insert(name, (facts.mode & 0o777, fs::read(&entry.path).unwrap()));
        }
    }
    found
}

/// What is archived below `/tree`.
fn archived(archive: &Archive) -> Files {
    if archive.look_up(&path("/tree")).unwrap().is_none() {
        return Files::new();
    }
    let to = in_memory();
    let fail = |event| panic!("{event:?}");
    fetch(archive, &path("/tree"), to.path(), FetchOptions::default(), &fail).unwrap();
    files_of(&to.path().join("tree"))
}

fn at_version(archive: &Archive, id: PackId) -> Files {
    let all = versions(archive).unwrap();
    let of: Vec<_> = all.iter().filter(|found| found.id == id).collect();
    let [found] = &of[..] else { panic!("{all:?}") };
    archived(&archive.at(found).unwrap())
}

fn mark(archive: &Archive) -> PackId {
    mark_version(archive, Version { host: "n7".to_owned(), ..Version::default() }).unwrap()
}

/// Forgets versions, and fails where one cannot be forgotten.
fn forgotten(
    archive: &Archive,
    ids: &[PackId],
    told: &mut Vec<PackId>,
) -> Result<(), ArchiveError> {
    let mut failed = Ok(());
    forget_versions(archive, ids, &mut |id, done| match done {
        Ok(()) => told.push(id),
        error => failed = error,
    })?;
    failed
}

fn assert_verified(archive: &Archive) -> u64 {
    let damaged = |error| panic!("{error}");
    let report = verify(archive, &ArchivePath::ROOT, VerifyOptions::default(), &damaged).unwrap();
    assert_eq!(report.damaged, 0);
    report.unreferred
}

fn repaired(archive: &Archive) -> Result<u64, ArchiveError> {
    let options = RepairOptions { age: Duration::ZERO, ..RepairOptions::default() };
    let report = repair(archive, options)?;
    assert_eq!((report.indexes, report.indexes_lost), (0, 0));
    Ok(report.leftovers)
}

fn repacked(archive: &Archive) -> Result<(), ArchiveError> {
    let options =
        RepackOptions { min_dead_percent: 1, small_packs_min: 2, ..RepackOptions::default() };
    let report = repack(archive, &ArchivePath::ROOT, options, &|error| panic!("{error}"))?;
    assert_eq!(report.failed, 0);
    Ok(())
}

/// Numbers that look random, the same for one seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % end as u64) as usize
    }
}

/// An archive, and what is known of it.
struct Known {
    place: Place,
    random: Random,
    home: Files,
    archived: Files,
    kept: BTreeMap<PackId, Files>,
}

impl Known {
    /// Changes files at home, stores them, and makes a version.
    fn store(&mut self) -> String {
        let (tree, random) = (self.place.path("tree"), &mut self.random);
        fs::create_dir_all(&tree).unwrap();
        for _ in 0..random.below(10) {
            let directory = ["", "a/", "a/b/", "c/"][random.below(4)];
            let name = format!("{directory}f{}", random.below(9));
            let file = tree.join(&name);
            if random.below(4) == 0 {
                // It stays archived.
                let _ = fs::remove_file(&file);
                self.home.remove(&name);
                continue;
            }
            let length = random.below(9000);
            let (mode, content) = (
                [0o600, 0o644][random.below(2)],
                (0..length).map(|_| random.below(7) as u8 * 31).collect::<Vec<u8>>(),
            );
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, &content).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            self.home.insert(name, (mode, content));
        }
        let zstd = (random.below(2) == 0).then_some(1);
        let options = SaveOptions {
            member_bytes_max: 6000,
            pack_bytes: 12_000,
            zstd,
            ..SaveOptions::default()
        };
        let (saved, told) = self.place.save("tree", options);
        assert_eq!((saved.failed, told), (0, Vec::new()));
        self.archived.extend(self.home.clone());
        self.kept.insert(mark(&self.place.archive), self.archived.clone());
        format!("stores {} and leaves {}", saved.stored, saved.unchanged)
    }

    /// A directory of the archive, or nothing.
    fn directory(&mut self) -> Option<String> {
        let mut all: Vec<String> = self
            .archived
            .keys()
            .filter_map(|name| Some(name.split_once('/')?.0.to_owned()))
            .collect();
        all.dedup();
        (!all.is_empty()).then(|| all.swap_remove(self.random.below(all.len())))
    }

    fn within(&self, directory: &str) -> Files {
        let below = format!("{directory}/");
        let of = self.archived.iter();
        of.filter_map(|(name, file)| Some((name.strip_prefix(&below)?.to_owned(), file.clone())))
            .collect()
    }

    fn work(&mut self, number: u64) -> String {
        // What is copied often is removed again.
        let is_much = self.archived.len() > FILES_MAX;
        match if is_much { 1 } else { self.random.below(12) } {
            _ if number == 0 => self.store(),
            0 if !self.archived.is_empty() => {
                let name =
                    self.archived.keys().nth(self.random.below(self.archived.len())).unwrap();
                let name = name.clone();
                remove(&self.place.archive, &path(&format!("/tree/{name}"))).unwrap();
                self.archived.remove(&name);
                format!("removes {name}")
            }
            1 | 2 => {
                let Some(from) = self.directory() else { return self.store() };
                let what = if is_much { 0 } else { self.random.below(3) };
                let of = self.within(&from);
                let archive = &self.place.archive;
                let (full, to) = (path(&format!("/tree/{from}")), format!("k{number}"));
                let new = path(&format!("/tree/{to}"));
                match what {
                    0 => drop(remove(archive, &full).unwrap()),
                    1 => move_tree(archive, &full, &new).map(drop).unwrap(),
                    _ => {
                        copy_tree(archive, &full, &new, RelocateKeep::default()).map(drop).unwrap()
                    }
                }
                if what < 2 {
                    self.archived.retain(|name, _| !name.starts_with(&format!("{from}/")));
                }
                if what > 0 {
                    let new = of.into_iter().map(|(name, file)| (format!("{to}/{name}"), file));
                    self.archived.extend(new);
                }
                format!("{} {from} to {to}", ["removes", "moves", "copies"][what])
            }
            3 => self.forget(2),
            4 | 5 => {
                repacked(&self.place.archive).unwrap();
                "repacks".to_owned()
            }
            6 => format!("repairs {}", repaired(&self.place.archive).unwrap()),
            7 => {
                let store = self.place.open_store();
                self.place.archive = Archive::new(store, Catalog::in_memory().unwrap()).unwrap();
                "comes from another machine".to_owned()
            }
            _ => self.store(),
        }
    }

    /// Forgets one of so many of the versions.
    fn forget(&mut self, of: usize) -> String {
        let random = &mut self.random;
        let gone: Vec<_> = self.kept.keys().copied().filter(|_| random.below(of) == 0).collect();
        let mut told = Vec::new();
        forgotten(&self.place.archive, &gone, &mut told).unwrap();
        assert_eq!(told, gone);
        self.kept.retain(|id, _| !gone.contains(id));
        format!("forgets {} of {}", gone.len(), gone.len() + self.kept.len())
    }

    /// Verifies all, and compares versions: all of them behind what removes objects.
    fn check(&mut self, is_all: bool) {
        assert_verified(&self.place.archive);
        assert_eq!(versions(&self.place.archive).unwrap().len(), self.kept.len());
        let one = self.random.below(self.kept.len().max(1));
        for (id, files) in
            self.kept.iter().enumerate().filter(|(at, _)| is_all || *at == one).map(|(_, of)| of)
        {
            assert!(at_version(&self.place.archive, *id) == *files, "version {id}");
        }
        assert!(archived(&self.place.archive) == self.archived, "what is archived");
    }
}

/// After each of many works all is verified, and versions are what was archived when they were made.
/// `SHEAF_WORKS` says another number of works, after each of which all versions are compared.
fn work_for_long(store: StorePlace, seed: u64, works: u64) {
    let said = std::env::var("SHEAF_WORKS");
    let is_told = said.is_ok();
    let works = said.map_or(works, |works| works.parse().unwrap());
    let mut known = Known {
        place: Place::at(store),
        random: Random(seed),
        home: Files::new(),
        archived: Files::new(),
        kept: BTreeMap::new(),
    };
    for number in 0..works {
        let mut done = known.work(number);
        while known.kept.len() > VERSIONS_MAX {
            done += &format!(", {}", known.forget(3));
        }
        eprintln!("seed {seed}, work {number}: {done}");
        known.check(is_told || done.contains("repacks") || done.contains("repairs"));
    }
    known.forget(1);
    repacked(&known.place.archive).unwrap();
    repaired(&known.place.archive).unwrap();
    assert_eq!(assert_verified(&known.place.archive), 0);
    known.check(true);
}

#[test]
fn versions_stay_whole_over_hundreds_of_works() {
    for seed in 0..WORKS.div_ceil(WORKS_IN_ONE) {
        let store = StorePlace { directory: in_memory(), ..StorePlace::local() };
        work_for_long(store, seed, WORKS_IN_ONE);
    }
}

#[test]
fn versions_stay_whole_in_other_kinds_of_stores() {
    work_for_long(StorePlace::tape(), 6, 24);
    if let Some(bucket) = StorePlace::s3() {
        work_for_long(bucket, 7, 24);
    }
}

/// What there is before a work that is stopped: three versions, of which the last is what is archived.
fn three_versions(at: &Path) -> Vec<(PackId, Files)> {
    let (archive, _) = archive(at, "first", EVER, false);
    let tree = at.join("tree");
    let options =
        SaveOptions { member_bytes_max: 6000, pack_bytes: 12_000, ..SaveOptions::default() };
    let mut made = Vec::new();
    for round in 0..3_u8 {
        fs::create_dir_all(tree.join("d")).unwrap();
        for number in 0..9 {
            let name = format!("d/{number}");
            if number % 3 == round {
                fs::write(tree.join(&name), vec![round + 1; 1000 + usize::from(number) * 900])
                    .unwrap();
            }
        }
        if round > 0 {
            let gone = format!("d/{}", round - 1);
            fs::remove_file(tree.join(&gone)).unwrap();
            remove(&archive, &path(&format!("/tree/{gone}"))).unwrap();
        }
        let fail = |event| panic!("{event:?}");
        let store =
            || save(&archive, std::slice::from_ref(&tree), &ArchivePath::ROOT, options, &fail);
        // Packs that the last version alone has, and that may become one.
        for number in 0..if round == 2 { 4 } else { 0 } {
            fs::create_dir_all(tree.join("e")).unwrap();
            fs::write(tree.join(format!("e/{number}")), "small").unwrap();
            store().unwrap();
        }
        store().unwrap();
        made.push((mark(&archive), files_of(&tree)));
    }
    made
}

/// Checks what of versions is there, and that there are at least so many.
fn check(archive: &Archive, made: &[(PackId, Files)]) -> usize {
    assert_verified(archive);
    let there: Vec<_> = versions(archive).unwrap().iter().map(|found| found.id).collect();
    for (id, files) in made {
        if there.contains(id) {
            assert!(at_version(archive, *id) == *files, "version {id}");
        }
    }
    assert!(there.iter().all(|id| made.iter().any(|(known, _)| known == id)), "{there:?}");
    there.len()
}

/// Does a work that is stopped at each of its writes in turn; then others look at what is there, and the
/// work is done again.
fn stop_at_each(
    work: impl Fn(&Archive, &[(PackId, Files)]) -> Result<(), ArchiveError>,
    kept: usize,
) {
    for is_deaf in [false, true] {
        let mut stop = 0;
        loop {
            let place = in_memory();
            let at = place.path();
            let made = three_versions(at);
            let (stopped, left): (_, Arc<AtomicI64>) = archive(at, "first", EVER, is_deaf);
            left.store(stop, Ordering::SeqCst);
            let worked = work(&stopped, &made);
            drop(stopped);
            let is_stopped = left.load(Ordering::SeqCst) < 0;
            assert_eq!(worked.is_err(), is_stopped, "{stop}: {worked:?}");
            let (after, _) = archive(at, "other", EVER, false);
            assert!(check(&after, &made) >= kept);
            repaired(&after).unwrap();
            assert!(check(&after, &made) >= kept, "{stop}");
            work(&after, &made).unwrap();
            assert_eq!(check(&after, &made), kept, "{stop}");
            repaired(&after).unwrap();
            assert_eq!(check(&after, &made), kept, "{stop}");
            assert_eq!(assert_verified(&after), 0);
            let marks = crate::store::keys(after.store(), &["versions"]);
            assert_eq!(marks.len(), kept, "{marks:?}");
            if !is_stopped {
                assert!(stop > 2, "it has stopped nowhere");
                break;
            }
            stop += 1;
        }
    }
}

#[test]
fn forget_is_stopped_anywhere_and_done_again() {
    let forget = |archive: &Archive, made: &[(PackId, Files)]| {
        forgotten(archive, &[made[0].0, made[1].0], &mut Vec::new())
    };
    stop_at_each(forget, 1);
}

#[test]
fn repack_is_stopped_anywhere_and_versions_stay() {
    stop_at_each(|archive, _| repacked(archive), 3);
    let forget_and_repack = |archive: &Archive, made: &[(PackId, Files)]| {
        forgotten(archive, &[made[0].0, made[1].0], &mut Vec::new())?;
        repacked(archive)
    };
    stop_at_each(forget_and_repack, 1);
}

/// A store from which one object cannot be removed.
struct StuckStore {
    store: Arc<dyn Store>,
    stuck: Mutex<String>,
}

impl Store for StuckStore {
    fn create(&self, key: &StoreKey) -> Result<Box<dyn StoreWriter>, StoreError> {
        self.store.create(key)
    }

    fn open(&self, key: &StoreKey, from: u64) -> Result<Box<dyn Read + Send>, StoreError> {
        self.store.open(key, from)
    }

    fn read(&self, key: &StoreKey, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        self.store.read(key, range)
    }

    fn size(&self, key: &StoreKey) -> Result<u64, StoreError> {
        self.store.size(key)
    }

    fn list(
        &self,
        parts: &[&str],
        each: &mut dyn FnMut(StoredObject) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.store.list(parts, each)
    }

    fn remove(&self, key: &StoreKey) -> Result<(), StoreError> {
        if key.as_str().contains(&*self.stuck.lock().unwrap()) {
            let (place, doing) = (key.to_string(), "cannot be removed");
            return Err(StoreError { place, doing, errno: Errno::PERM });
        }
        self.store.remove(key)
    }
}

#[test]
fn version_that_cannot_be_removed_leaves_the_others() {
    let place = in_memory();
    let made = three_versions(place.path());
    let ids: Vec<_> = made.iter().map(|(id, _)| *id).collect();
    let store = StorePlace { directory: place, ..StorePlace::local() };
    let stuck = Mutex::new(ids[1].to_string());
    let stuck = Arc::new(StuckStore { store: store.open().unwrap(), stuck });
    let archive = Archive::new(stuck.clone(), Catalog::in_memory().unwrap()).unwrap();
    let (mut told, mut failed) = (Vec::new(), Vec::new());
    forget_versions(&archive, &ids, &mut |id, done| match done {
        Ok(()) => told.push(id),
        Err(error) => failed.push((id, error.to_string())),
    })
    .unwrap();
    told.sort_unstable();
    let mut others = vec![ids[0], ids[2]];
    others.sort_unstable();
    assert_eq!(told, others);
    assert!(failed.len() == 1 && failed[0].0 == ids[1], "{failed:?}");
    assert!(failed[0].1.contains(&ids[1].to_string()), "{failed:?}");
    assert_eq!(check(&archive, &made), 1);
    repaired(&archive).unwrap();
    assert_eq!(check(&archive, &made), 1);
    "nothing".clone_into(&mut stuck.stuck.lock().unwrap());
    forgotten(&archive, &ids, &mut told).unwrap();
    assert_eq!(check(&archive, &made), 0);
}
