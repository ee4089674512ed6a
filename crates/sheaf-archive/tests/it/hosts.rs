//! Storing by many hosts, each of them a thread here: nothing is missing and nothing is there twice,
//! whoever is lost on the way.
use crate::round::{Place, path, settle};
use crate::trees::{assert_same, make_everything};
use sheaf_archive::{
    Archive, ArchivePath, Catalog, FetchHost, FetchNames, FetchOptions, FetchRoot,
    FetchRootOptions, FileIgnores, HostFiles, HostNumbers, HostStep, HostStore, HostTold,
    HostsRoot, LocalStore, RepairOptions, Resource, SaveExclude, SaveHost, SaveOptions, SaveReport,
    SaveRoot, SaveRootOptions, ScheduleLimits, VerifyOptions, fetch, repair, verify,
};
use sheaf_core::{Errno, lock};
use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_millis(100);

/// A host whose files are below a directory.
struct TestHost {
    below: PathBuf,
    /// What happens at which of its answers.
    fault: Option<(usize, Fault)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It does what was asked, and its answer does not come.
    Lost,
    /// It says something else.
    Garbled,
    /// It has no store, from the beginning.
    NoStore,
    /// Its store of this name is another one.
    OtherStore,
}

impl HostFiles for TestHost {
    fn store(&self, name: &OsStr) -> Result<HostStore, String> {
        if self.fault.is_some_and(|(_, fault)| fault == Fault::NoStore) {
            return Err("there is no such store here".to_owned());
        }
        let other = self.fault.is_some_and(|(_, fault)| fault == Fault::OtherStore);
        let name = if other { self.below.join("store").into_os_string() } else { name.to_owned() };
        let name = &name;
        let store = LocalStore::open(Path::new(name)).map_err(|error| error.to_string())?;
        let found = fs::metadata(name).unwrap();
        Ok(HostStore { store: Arc::new(store), directory: Some((found.dev(), found.ino())) })
    }

    fn make_directory(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let at = self.below.join(path.strip_prefix("/").unwrap());
        fs::create_dir_all(at).unwrap();
        self.open(path)
    }

    fn open(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let path = self.below.join(path.strip_prefix("/").unwrap());
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::NOFOLLOW;
        rustix::fs::open(path, flags, rustix::fs::Mode::empty())
            .map_err(|errno| Errno(errno.raw_os_error()))
    }
}

/// An archive that hosts store into.
struct Many {
    place: Place,
}

/// What was done, told, and by whom.
struct Done {
    report: SaveReport,
    told: Vec<String>,
    answers: Vec<usize>,
    /// Bytes of contents that each host has moved.
    moved: Vec<u64>,
}

fn said((host, told): (usize, HostTold)) -> String {
    match told {
        HostTold::Said(text) => format!("n{host}: {text}"),
        HostTold::Stores(path) => panic!("nobody has asked for {path:?}"),
    }
}

impl Many {
    fn new() -> Self {
        Self { place: Place::new() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path(name)
    }

    fn archive(&self) -> Archive {
        let store = Arc::new(LocalStore::open(&self.at("store")).unwrap());
        Archive::new(store, Catalog::open(&self.at("catalog")).unwrap()).unwrap()
    }

    fn root(
        &self,
        sources: &[&str],
        is_shared: bool,
        hosts: Vec<String>,
        limits: ScheduleLimits,
    ) -> SaveRoot {
        let options = SaveRootOptions {
            store: self.at("store").as_os_str().as_bytes().to_vec(),
            sources: sources.iter().map(PathBuf::from).collect(),
            to: path("/dest"),
            is_shared,
            workers: 2,
            member_bytes_max: 1 << 20,
            // Several packs in a directory.
            pack_bytes: 16 << 10,
            part_bytes: 1 << 20,
            zstd: is_shared.then_some(1),
            checksum: false,
            ignores: FileIgnores::default(),
            dry_run: false,
            tell_names: false,
            one_file_system: false,
            limits,
            exclude: SaveExclude::default(),
            numbers: true,
        };
        SaveRoot::new(Arc::new(self.archive()), options, hosts).unwrap()
    }

    fn store(&self, sources: &[&str], is_shared: bool, hosts: Vec<TestHost>) -> Done {
        self.store_at(sources, is_shared, hosts, ScheduleLimits::default())
    }

    fn store_at(
        &self,
        sources: &[&str],
        is_shared: bool,
        hosts: Vec<TestHost>,
        limits: ScheduleLimits,
    ) -> Done {
        let names = (0..hosts.len()).map(|number| format!("n{number}")).collect();
        let root = self.root(sources, is_shared, names, limits);
        let answers = Mutex::new(vec![0; hosts.len()]);
        std::thread::scope(|scope| {
            for (number, host) in hosts.iter().enumerate() {
                let (root, answers) = (&root, &answers);
                scope.spawn(move || drive(root, number, host, answers));
            }
        });
        let told: Vec<String> = root.told().into_iter().map(said).collect();
        let numbers = root.numbers();
        assert_told(&numbers, &told, hosts.len());
        let moved = numbers.iter().map(|(_, numbers)| {
            let mut counters = numbers.counters.iter();
            counters.find(|(name, _)| name == "sheaf_archive_moved_bytes_total").unwrap().1
        });
        let moved = moved.collect();
        let (report, refused) = root.finish().unwrap();
        assert!(refused.is_empty(), "{refused:?}");
        Done { report, told, answers: answers.into_inner().unwrap(), moved }
    }

    fn assert_archived_file(&self, archived: &str, there: &Path) {
        let fail = |event| panic!("{event:?}");
        let (from, to) = (path(archived), self.at("single"));
        fetch(&self.archive(), &from, &to, FetchOptions::default(), &fail).unwrap();
        let name = there.file_name().unwrap();
        assert_eq!(fs::read(to.join(name)).unwrap(), fs::read(there).unwrap());
        fs::remove_dir_all(to).unwrap();
    }

    /// Whether what is archived of a path is what is there.
    fn assert_archived(&self, archived: &str, there: &Path) {
        let archive = self.archive();
        let to = tempfile::tempdir_in(self.place.directory.path()).unwrap();
        let fail = |event| panic!("{event:?}");
        let from = path(archived);
        fetch(&archive, &from, to.path(), FetchOptions::default(), &fail).unwrap();
        let name = from.split().unwrap().1.to_vec();
        assert_same(there, &to.path().join(OsStr::from_bytes(&name)));
        let damaged = |error| panic!("{error}");
        let verified = verify(&archive, &ArchivePath::ROOT, VerifyOptions::default(), &damaged);
        assert_eq!(verified.unwrap().damaged, 0);
    }
}

fn drive(root: &SaveRoot, number: usize, host: &TestHost, answers: &Mutex<Vec<usize>>) {
    let mut save = SaveHost::default();
    for count in 0.. {
        match root.next(number).unwrap() {
            HostStep::Over => break,
            HostStep::Wait => std::thread::sleep(Duration::from_millis(1)),
            HostStep::Ask(request) => {
                let answer = save.answer(&request, host, PATIENCE).unwrap();
                lock(answers)[number] += 1;
                match host.fault {
                    Some((at, Fault::Lost)) if count >= at => {
                        root.lost(number, "its process ended").unwrap();
                    }
                    Some((at, Fault::Garbled)) if count >= at => {
                        root.answered(number, b"\xff\xff nothing").unwrap();
                    }
                    _ => root.answered(number, &answer).unwrap(),
                }
            }
        }
    }
}

fn hosts(below: &Path, count: usize) -> Vec<TestHost> {
    (0..count).map(|_| TestHost { below: below.to_owned(), fault: None }).collect()
}

/// Where all went well, each host has told its numbers, and all of them what was transferred.
fn assert_told(numbers: &[(usize, HostNumbers)], told: &[String], hosts: usize) {
    if !told.is_empty() {
        return;
    }
    let of: Vec<usize> = numbers.iter().map(|(number, _)| *number).collect();
    assert_eq!(of, (0..hosts).collect::<Vec<_>>());
    let counters = numbers.iter().flat_map(|(_, numbers)| &numbers.counters);
    let done = counters.filter(|(name, _)| name == "sheaf_archive_transfer_done_total");
    assert!(done.map(|(_, count)| count).sum::<u64>() > 0, "{numbers:?}");
}

/// What each host fetches, with what is told.
fn fetch_by(
    many: &Many,
    froms: &[&str],
    hosts: &[TestHost],
) -> (sheaf_archive::FetchReport, Vec<String>) {
    let options = FetchRootOptions {
        store: many.at("store").as_os_str().as_bytes().to_vec(),
        to: "/to/here".into(),
        overwrite: false,
        contents: false,
        names: FetchNames::default(),
        limits: ScheduleLimits::default().with(Resource::StoreConnections, 2),
        numbers: true,
    };
    let froms = froms.iter().map(|from| Some(path(from))).collect();
    let root = FetchRoot::new(Arc::new(many.archive()), options, froms).unwrap();
    std::thread::scope(|scope| {
        for (number, host) in hosts.iter().enumerate() {
            let root = &root;
            scope.spawn(move || {
                let mut fetch = FetchHost::default();
                for count in 0.. {
                    match root.next(number).unwrap() {
                        HostStep::Over => break,
                        HostStep::Wait => std::thread::sleep(Duration::from_millis(1)),
                        HostStep::Ask(request) => {
                            let answer = fetch.answer(&request, host, PATIENCE).unwrap();
                            match host.fault {
                                Some((at, _)) if count >= at => {
                                    root.lost(number, "it is down").unwrap()
                                }
                                _ => root.answered(number, &answer).unwrap(),
                            }
                        }
                    }
                }
            });
        }
    });
    let told: Vec<String> = root.told().into_iter().map(said).collect();
    assert_told(&root.numbers(), &told, hosts.len());
    (root.report(), told)
}

#[test]
fn hosts_get_what_is_archived() {
    let many = Many::new();
    make_wide(&many.at("files/tree"));
    settle();
    let stored = many.store(&["/tree"], true, hosts(&many.at("files"), 2));
    let mut to: Vec<TestHost> = Vec::new();
    for number in 0..3 {
        to.push(TestHost { below: many.at(&format!("host{number}")), fault: None });
    }
    to[2].fault = Some((2, Fault::Lost));
    let (report, told) = fetch_by(&many, &["/dest/tree"; 3], &to);
    assert_eq!((&told[..], report.failed), (&["n2: it is down".to_owned()][..], 1));
    assert!(report.fetched >= 2 * stored.report.stored);
    for number in 0..2 {
        assert_same(&many.at("files/tree"), &many.at(&format!("host{number}/to/here/tree")));
    }
    // Once more, and the one that was lost: nothing is written twice.
    to[2].fault = None;
    let (again, told) = fetch_by(&many, &["/dest/tree"; 3], &to);
    assert_eq!((again.failed, &told[..]), (0, &[][..]));
    assert!(again.unchanged >= 2 * stored.report.stored);
    assert_same(&many.at("files/tree"), &many.at("host2/to/here/tree"));

    let (one, told) = fetch_by(&many, &["/dest/tree/wide/0/0/3", "/dest/nothing"], &to[..2]);
    assert_eq!(told, ["n1: /dest/nothing: is not in the archive"]);
    assert_eq!((one.fetched, one.failed), (1, 1));
    let content = fs::read(many.at("host0/to/here/3")).unwrap();
    assert_eq!(content, fs::read(many.at("files/tree/wide/0/0/3")).unwrap());
}

/// A tree of some hundred directories, with names that are linked across them.
fn make_wide(at: &Path) {
    make_everything(at);
    for number in 0..60 {
        let directory = at.join(format!("wide/{}/{number}", number % 7));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..12 {
            let content = format!("{number} {file}\n").repeat(200);
            fs::write(directory.join(format!("{file}")), content).unwrap();
        }
        if number > 0 {
            let first = at.join("wide/0/0/linked");
            fs::hard_link(first, directory.join("linked")).unwrap();
        } else {
            fs::write(directory.join("linked"), vec![1; 50_000]).unwrap();
        }
    }
}

/// What a machine alone makes of it.
fn alone(tree: &Path) -> SaveReport {
    let place = Place::new();
    let fail = |event| panic!("{event:?}");
    let (options, sources) = (SaveOptions::default(), [tree.to_owned()]);
    sheaf_archive::save(&place.archive, &sources, &path("/dest"), options, &fail).unwrap()
}

#[test]
fn each_host_stores_its_own() {
    let many = Many::new();
    let mut hosts = Vec::new();
    for number in 0..3 {
        let below = many.at(&format!("host{number}"));
        make_everything(&below.join("srv/tree"));
        fs::write(below.join("srv/tree/own"), format!("of {number}")).unwrap();
        fs::write(below.join("srv/single"), format!("file of {number}")).unwrap();
        hosts.push(TestHost { below, fault: None });
    }
    fs::remove_file(many.at("host1/srv/single")).unwrap();
    settle();
    let done = many.store(&["/srv/tree", "/srv/single"], false, hosts);
    assert_eq!(
        done.told,
        ["n1: /srv/single: cannot be stored: No such file or directory (ENOENT)"]
    );
    assert_eq!(done.report.failed, 1);
    let one = alone(&many.at("host0/srv/tree"));
    assert_eq!(done.report.stored, 3 * one.stored + 2);
    assert_eq!(done.report.directories, 3 * one.directories);
    for number in 0..3 {
        let there = many.at(&format!("host{number}/srv"));
        many.assert_archived(&format!("/dest/n{number}/tree"), &there.join("tree"));
        if number != 1 {
            many.assert_archived_file(&format!("/dest/n{number}/single"), &there.join("single"));
        }
    }
}

#[test]
fn file_that_was_a_directory_replaces_it_on_hosts() {
    let many = Many::new();
    make_wide(&many.at("files/tree"));
    fs::create_dir_all(many.at("files/tree/plain/below/it")).unwrap();
    fs::write(many.at("files/tree/plain/below/it/file"), "a file").unwrap();
    settle();
    many.store(&["/tree/."], false, hosts(&many.at("files"), 2));
    fs::remove_dir_all(many.at("files/tree/plain/below")).unwrap();
    fs::write(many.at("files/tree/plain/below"), "a file now").unwrap();
    settle();
    let done = many.store(&["/tree/."], false, hosts(&many.at("files"), 2));
    assert_eq!((done.report.stored, done.report.failed), (2, 0), "{:?}", done.told);
    assert!(done.told.iter().all(|told| told.contains("was archived as a directory")));
    assert_eq!(done.told.len(), 2);
    for host in ["/dest/n0", "/dest/n1"] {
        many.assert_archived(host, &many.at("files/tree"));
    }
    fs::write(many.at("files/tree/plain/new"), "new").unwrap();
    settle();
    let again = many.store(&["/tree/."], false, hosts(&many.at("files"), 2));
    assert_eq!((again.report.stored, again.told.len()), (2, 0));
}

#[test]
fn directory_that_was_a_file_replaces_it_on_hosts() {
    for is_shared in [false, true] {
        let many = Many::new();
        make_wide(&many.at("files/tree"));
        fs::create_dir_all(many.at("files/tree/plain")).unwrap();
        fs::write(many.at("files/tree/plain/turned"), "a file").unwrap();
        settle();
        many.store(&["/tree/."], is_shared, hosts(&many.at("files"), 2));
        fs::remove_file(many.at("files/tree/plain/turned")).unwrap();
        fs::create_dir_all(many.at("files/tree/plain/turned/below")).unwrap();
        fs::write(many.at("files/tree/plain/turned/below/file"), "a file").unwrap();
        fs::write(many.at("files/tree/plain/beside"), "new").unwrap();
        settle();
        let done = many.store(&["/tree/."], is_shared, hosts(&many.at("files"), 2));
        let many_times = if is_shared { 1 } else { 2 };
        assert_eq!(
            (done.report.stored, done.report.failed),
            (2 * many_times, 0),
            "{:?}",
            done.told
        );
        assert!(done.told.iter().all(|told| told.contains("was archived as a file")));
        assert_eq!(done.told.len() as u64, many_times);
        let places: &[&str] = if is_shared { &["/dest"] } else { &["/dest/n0", "/dest/n1"] };
        for place in places {
            many.assert_archived(place, &many.at("files/tree"));
        }
        fs::write(many.at("files/tree/plain/new"), "new").unwrap();
        settle();
        let again = many.store(&["/tree/."], is_shared, hosts(&many.at("files"), 2));
        assert_eq!((again.report.stored, again.report.failed), (many_times, 0));
        assert_eq!(again.told, [""; 0]);
    }
}

#[test]
fn root_of_hosts_that_store_holds_a_lease() {
    let many = Many::new();
    let writers = || {
        let options = RepairOptions { age: Duration::ZERO, dry_run: false };
        repair(&many.archive(), options).unwrap().writers
    };
    let root = many.root(&["/tree"], false, vec!["n0".to_owned()], ScheduleLimits::default());
    assert_eq!(writers(), 1);
    drop(root);
    assert_eq!(writers(), 0);
}

#[test]
fn unchanged_files_are_not_stored_again_by_hosts() {
    let many = Many::new();
    make_wide(&many.at("files/tree"));
    settle();
    let first = many.store(&["/tree/."], false, hosts(&many.at("files"), 2));
    assert_eq!(first.told, [""; 0]);
    fs::write(many.at("files/tree/wide/3/3/new"), "new").unwrap();
    settle();
    let again = many.store(&["/tree/."], false, hosts(&many.at("files"), 2));
    assert_eq!((again.report.stored, again.report.failed), (2, 0));
    assert_eq!(again.report.unchanged, first.report.stored);
    many.assert_archived("/dest/n1", &many.at("files/tree"));
}

#[test]
fn hosts_share_the_work_and_store_nothing_twice() {
    let many = Many::new();
    make_wide(&many.at("files/tree"));
    settle();
    let done = many.store(&["/tree"], true, hosts(&many.at("files"), 4));
    assert_eq!(done.told, [""; 0]);
    assert_eq!(done.report, alone(&many.at("files/tree")));
    // Nobody was idle all the time.
    assert!(done.answers.iter().all(|&answers| answers > 1), "{:?}", done.answers);
    many.assert_archived("/dest/tree", &many.at("files/tree"));
    assert_linked_once(&many);
}

/// All names of the file with many are one file, whose content is in the store once.
fn assert_linked_once(many: &Many) {
    let archive = many.archive();
    let mut places = std::collections::BTreeSet::new();
    let mut names = 0;
    for number in 0..60 {
        let directory = path(&format!("/dest/tree/wide/{}/{number}", number % 7));
        for object in archive.catalog().rows_of(&directory).unwrap().objects {
            places.insert(format!("{:?} {:?}", object.place, object.link));
            names += 1;
        }
    }
    assert_eq!((places.len(), names), (1, 60), "{places:?}");
}

/// A directory of large files, at a rate at which one host would take a second for them.
fn make_large(at: &Path) -> ScheduleLimits {
    fs::create_dir_all(at.join("shared/large")).unwrap();
    for number in 0..12u8 {
        let content: Vec<u8> = (0..1_500_000u32).map(|at| (at / 7) as u8 ^ number).collect();
        fs::write(at.join(format!("shared/large/{number}")), content).unwrap();
    }
    settle();
    ScheduleLimits::default().with(Resource::DiskBytes, 18_000_000)
}

#[test]
fn large_files_of_one_directory_are_shared_between_hosts() {
    let many = Many::new();
    let limits = make_large(&many.at(""));
    let done = many.store_at(&["/shared"], true, hosts(&many.at(""), 4), limits);
    assert_eq!((done.report.stored, done.report.failed), (12, 0), "{:?}", done.told);
    // Some may be stored twice where a host is slow, and none by nobody.
    assert!(done.moved.iter().sum::<u64>() >= 12 * 1_500_000, "{:?}", done.moved);
    let at_work = done.moved.iter().filter(|bytes| **bytes > 0).count();
    assert!(at_work > 1, "{:?}", done.moved);
    many.assert_archived("/dest/shared", &many.at("shared"));
    fs::write(many.at("shared/small"), "new").unwrap();
    let again = many.store(&["/shared"], true, hosts(&many.at(""), 4));
    assert_eq!((again.report.stored, again.report.unchanged), (1, 12));
}

#[test]
fn parts_of_one_large_file_are_shared_between_hosts() {
    for fault in [None, Some((3, Fault::Lost))] {
        let many = Many::new();
        let limits = make_large(&many.at(""));
        fs::remove_dir_all(many.at("shared")).unwrap();
        fs::create_dir(many.at("shared")).unwrap();
        let content: Vec<u8> = (0..18_000_000u32).map(|at| (at / 7) as u8).collect();
        fs::write(many.at("shared/one"), content).unwrap();
        settle();
        let mut hosts = hosts(&many.at(""), 4);
        hosts[2].fault = fault;
        let done = many.store_at(&["/shared"], true, hosts, limits);
        assert_eq!((done.report.stored, done.report.failed), (1, 0), "{:?}", done.told);
        if fault.is_none() {
            let at_work = done.moved.iter().filter(|bytes| **bytes > 0).count();
            assert!(at_work > 1, "{:?}", done.moved);
        }
        many.assert_archived("/dest/shared", &many.at("shared"));
    }
}

#[test]
fn large_files_that_a_lost_host_had_are_stored_by_others() {
    for at in [2, 4, 8] {
        let many = Many::new();
        let limits = make_large(&many.at(""));
        let mut hosts = hosts(&many.at(""), 3);
        hosts[1].fault = Some((at, Fault::Lost));
        hosts[2].fault = Some((at + 1, Fault::Garbled));
        let done = many.store_at(&["/shared"], true, hosts, limits);
        assert_eq!((done.report.stored, done.report.failed), (12, 0), "{:?}", done.told);
        many.assert_archived("/dest/shared", &many.at("shared"));
    }
}

#[test]
fn others_do_what_lost_hosts_had_in_hand() {
    for fault in [Fault::Lost, Fault::Garbled] {
        for at in [0, 2, 5] {
            let many = Many::new();
            make_wide(&many.at("files/tree"));
            settle();
            let mut hosts = hosts(&many.at("files"), 3);
            hosts[0].fault = Some((at, fault));
            hosts[1].fault = Some((at + 2, fault));
            let done = many.store(&["/tree"], true, hosts);
            let one = alone(&many.at("files/tree"));
            let lost =
                done.told.iter().filter(|told| told.ends_with("; the other hosts do its part"));
            assert!(lost.count() == done.told.len() && done.told.len() <= 2, "{:?}", done.told);
            assert_eq!(done.report.failed, 0);
            // What was handed in is counted, and what was found so is no more than that.
            assert_eq!(done.report.stored + done.report.unchanged, one.stored, "{:?}", done.report);
            assert_eq!(done.report.directories, one.directories);
            many.assert_archived("/dest/tree", &many.at("files/tree"));
        }
    }
}

#[test]
fn host_without_the_store_or_with_other_files_is_named() {
    let many = Many::new();
    make_wide(&many.at("files/tree"));
    fs::create_dir_all(many.at("other/tree/elsewhere")).unwrap();
    settle();
    let mut hosts = hosts(&many.at("files"), 2);
    hosts[0].fault = Some((0, Fault::NoStore));
    let done = many.store(&["/tree"], true, hosts);
    assert_eq!(done.told, ["n0: there is no such store here; the other hosts do its part"]);
    assert_eq!(done.report, alone(&many.at("files/tree")));

    LocalStore::create(&many.at("files/store")).unwrap();
    let mut hosts = self::hosts(&many.at("files"), 2);
    hosts[1].fault = Some((0, Fault::OtherStore));
    let done = many.store(&["/tree"], true, hosts);
    let why = "n1: its store of this name is another one; the other hosts do its part";
    assert_eq!((&done.told[..], done.report.failed), (&[why.to_owned()][..], 0));

    let other = TestHost { below: many.at("other"), fault: None };
    let files = || TestHost { below: many.at("files"), fault: None };
    let done = many.store(&["/tree"], true, vec![files(), other, files()]);
    // Who answers first says which files are meant.
    let mut others: Vec<_> = done.told.iter().map(|told| told.split_once(": ").unwrap()).collect();
    others.sort_unstable();
    assert!(others.iter().all(|(_, why)| why.contains("sees other files")), "{others:?}");
    let names: Vec<_> = others.iter().map(|(name, _)| *name).collect();
    assert!([&["n1"][..], &["n0", "n2"]].contains(&&names[..]), "{names:?}");

    let nobody = TestHost { below: many.at("files"), fault: Some((0, Fault::NoStore)) };
    let done = many.store(&["/tree"], true, vec![nobody]);
    assert_eq!(done.told, ["n0: there is no such store here"]);
    assert_eq!((done.report.failed, done.report.stored), (1, 0));
}

#[test]
fn lost_host_alone_costs_what_it_had() {
    let many = Many::new();
    make_wide(&many.at("files/tree"));
    settle();
    let mut hosts = hosts(&many.at("files"), 2);
    hosts[0].fault = Some((3, Fault::Lost));
    let done = many.store(&["/tree"], false, hosts);
    assert_eq!(done.told, ["n0: its process ended"]);
    assert!(done.report.failed > 0);
    many.assert_archived("/dest/n1/tree", &many.at("files/tree"));
    // Who comes back goes on where it was.
    let again = many.store(&["/tree"], false, self::hosts(&many.at("files"), 2));
    assert_eq!(again.report.failed, 0);
    many.assert_archived("/dest/n0/tree", &many.at("files/tree"));
}
