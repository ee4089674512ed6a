//! Catalogs: what writers commit, what others see of it, and what is made of the log again.
use crate::made::named;
use proptest::prelude::*;
use sheaf_archive::{
    ArchivePath, ArchivedDirectory, ArchivedObject, ArchivedPack, Catalog, CatalogError, Commit,
    DirectoryChange, LocalStore, MemberAttributes, MemberKind, PackId, PostgresUrl, Store,
    StoreKey, TreeSource,
};
use sheaf_core::Errno;
use sheaf_testing::postgres::PostgresServer;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Barrier, Mutex};

fn path(text: &str) -> ArchivePath {
    ArchivePath::new(text.as_bytes()).unwrap()
}

fn directory(mode: u32) -> ArchivedDirectory {
    ArchivedDirectory { mode, uid: 1, gid: 2, mtime_s: -3, mtime_ns: 4, xattrs: Vec::new() }
}

pub fn pack(number: u8) -> ArchivedPack {
    ArchivedPack {
        id: PackId([number; 16]),
        generation: 0,
        index_bytes: 512,
        members: 2,
        content_bytes: 1,
        files: 2,
        tar_bytes: 2048,
        zstd_bytes: None,
        first: b"a".to_vec(),
        last: b"a".to_vec(),
        classes: None,
    }
}

pub fn object(name: &str) -> ArchivedObject {
    let attributes = MemberAttributes::new(named(name.as_bytes()), MemberKind::File, 0o600);
    let digest = *blake3::hash(b"").as_bytes();
    ArchivedObject { attributes, size: 0, digest, place: None, extents: None, link: None }
}

/// A directory that is not there yet.
pub fn new(at: &str, mode: u32) -> DirectoryChange {
    DirectoryChange { path: path(at), directory: Some(directory(mode)), ..Default::default() }
}

pub fn commit_of(change: DirectoryChange) -> Commit {
    Commit { changes: vec![change] }
}

/// All that a catalog says of what is in the root.
pub fn said(
    catalog: &Catalog,
) -> Vec<(ArchivePath, ArchivedDirectory, Vec<ArchivedPack>, Vec<ArchivedObject>)> {
    let below = catalog.below(&ArchivePath::ROOT, None, usize::MAX).unwrap();
    let below = below.into_iter().filter(|(path, _)| *path != ArchivePath::ROOT);
    let all = below.map(|(path, directory)| {
        let packs = catalog.packs(&path).unwrap();
        let objects = catalog.objects(&path).unwrap();
        (path, directory, packs, objects)
    });
    all.collect()
}

/// What a catalog's tables stand on.
enum Tables {
    Sqlite,
    /// A database for each name.
    Postgres(Arc<PostgresServer>, Mutex<BTreeMap<String, String>>),
}

struct Made {
    place: tempfile::TempDir,
    store: LocalStore,
    tables: Tables,
}

impl Made {
    fn new() -> Self {
        Self::on(Tables::Sqlite)
    }

    /// A store for each kind of catalog that there is.
    fn all() -> Vec<Self> {
        let server = PostgresServer::shared();
        let postgres = server.map(|server| Tables::Postgres(server, Mutex::default()));
        std::iter::once(Tables::Sqlite).chain(postgres).map(Self::on).collect()
    }

    fn on(tables: Tables) -> Self {
        let place = tempfile::tempdir().unwrap();
        let store = LocalStore::create(&place.path().join("store")).unwrap();
        let made = Self { place, store, tables };
        made.catalog("first").commit(&made.store, &commit_of(new("/", 0o755))).unwrap();
        made
    }

    /// A catalog of this name, empty until it has caught up.
    fn catalog(&self, name: &str) -> Catalog {
        match &self.tables {
            Tables::Sqlite => Catalog::open(&self.file(name)).unwrap(),
            Tables::Postgres(..) => Catalog::connect(&self.url(name)).unwrap(),
        }
    }

    /// The database of this name.
    fn url(&self, name: &str) -> PostgresUrl {
        let Tables::Postgres(server, urls) = &self.tables else { panic!("has no databases") };
        let mut urls = urls.lock().unwrap();
        let url = urls.entry(name.to_owned()).or_insert_with(|| server.new_database());
        PostgresUrl::parse(url).unwrap()
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.place.path().join(name)
    }

    /// Where the store keeps a commit.
    fn log(&self, number: u64) -> std::path::PathBuf {
        self.place.path().join(format!("store/objects/log/{number:020}"))
    }
}

#[test]
fn catalog_commit_is_visible_to_others_after_catch_up() {
    for made in &Made::all() {
        let (mut one, mut other) = (made.catalog("one"), made.catalog("other"));
        let mut first = new("/home", 0o755);
        first.packs = vec![pack(1), pack(2)];
        first.objects = vec![object("x"), object("y")];
        let commit = Commit { changes: vec![new("/tmp", 0o700), first] };
        assert_eq!(one.commit(&made.store, &commit).unwrap(), 2);
        assert!(said(&other).is_empty());
        assert_eq!(other.catch_up(&made.store).unwrap(), 2);
        assert_eq!(said(&one), said(&other));
        assert_eq!(other.changed(&path("/home")).unwrap(), 2);

        let change = DirectoryChange {
            path: path("/home"),
            since: 2,
            packs_removed: vec![PackId([1; 16])],
            objects_removed: vec![named(b"x")],
            packs: vec![ArchivedPack { generation: 1, ..pack(2) }],
            objects: vec![ArchivedObject { size: 0, ..object("z") }],
            ..Default::default()
        };
        assert_eq!(other.commit(&made.store, &commit_of(change)).unwrap(), 3);
        one.catch_up(&made.store).unwrap();
        assert_eq!(said(&one), said(&other));
        let home = said(&one).remove(0);
        assert_eq!(home.1, directory(0o755), "what is not said anew stays");
        assert_eq!(home.2, [ArchivedPack { generation: 1, ..pack(2) }]);
        assert_eq!(home.3, [object("y"), object("z")]);
    }
}

#[test]
fn second_writer_to_one_directory_is_told_and_changes_nothing() {
    for made in &Made::all() {
        let (mut one, mut other) = (made.catalog("one"), made.catalog("other"));
        one.commit(&made.store, &commit_of(new("/home", 0o755))).unwrap();
        let both = Commit { changes: vec![new("/tmp", 0o777), new("/home", 0o700)] };
        let refused = other.commit(&made.store, &both).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "/home: another writer has changed it meanwhile: try again"
        );
        assert!(refused.retry_can_help());
        assert_eq!(said(&other), said(&one));
        assert_eq!(other.directory(&path("/tmp")).unwrap(), None);
        // Elsewhere nobody was in its way.
        other.commit(&made.store, &commit_of(new("/tmp", 0o777))).unwrap();
    }
}

#[test]
fn removed_directory_takes_its_packs_along_and_may_come_again() {
    for made in &Made::all() {
        let mut catalog = made.catalog("catalog");
        let mut home = new("/home", 0o755);
        (home.packs, home.objects) = (vec![pack(1)], vec![object("x")]);
        catalog.commit(&made.store, &commit_of(home)).unwrap();
        let gone =
            DirectoryChange { path: path("/home"), since: 2, removed: true, ..Default::default() };
        catalog.commit(&made.store, &commit_of(gone)).unwrap();
        assert!(said(&catalog).is_empty());
        assert!(catalog.packs(&path("/home")).unwrap().is_empty());
        catalog.commit(&made.store, &commit_of(new("/home", 0o700))).unwrap();
        assert!(catalog.objects(&path("/home")).unwrap().is_empty());
    }
}

/// Whoever opens a file of tables first makes them, however many do so at once.
#[test]
fn catalog_may_be_made_by_many_at_once() {
    let made = Made::new();
    for round in 0..20 {
        let name = format!("catalog-{round}");
        std::thread::scope(|scope| {
            let opened: Vec<_> =
                (0..6).map(|_| scope.spawn(|| drop(made.catalog(&name)))).collect();
            opened.into_iter().for_each(|opened| opened.join().unwrap());
        });
    }
}

#[test]
fn many_writers_at_once_lose_nothing_and_agree() {
    const WRITERS: usize = 4;
    const COMMITS: usize = 12;
    for made in &Made::all() {
        let begin = Barrier::new(WRITERS);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let begin = &begin;
                scope.spawn(move || {
                    // Two of them have one file.
                    let mut catalog = made.catalog(&format!("catalog-{}", writer / 2));
                    begin.wait();
                    for number in 0..COMMITS {
                        let own = new(&format!("/{writer}-{number}"), 0o700);
                        catalog.commit(&made.store, &commit_of(own)).unwrap();
                    }
                });
            }
        });
        let mut all = made.catalog("all");
        assert_eq!(all.catch_up(&made.store).unwrap(), (WRITERS * COMMITS + 1) as u64);
        assert_eq!(said(&all).len(), WRITERS * COMMITS);
        let mut one = made.catalog("catalog-0");
        one.catch_up(&made.store).unwrap();
        assert_eq!(said(&one), said(&all));
    }
}

#[test]
fn of_many_writers_at_once_to_one_directory_one_wins_each_time() {
    const WRITERS: usize = 4;
    for made in &Made::all() {
        let begin = Barrier::new(WRITERS);
        let won = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let begin = &begin;
                    scope.spawn(move || {
                        let mut catalog = made.catalog(&format!("catalog-{writer}"));
                        begin.wait();
                        match catalog.commit(&made.store, &commit_of(new("/home", writer as u32))) {
                            Ok(_) => Some(writer as u32),
                            Err(CatalogError::Changed { .. }) => None,
                            Err(error) => panic!("{error}"),
                        }
                    })
                })
                .collect();
            writers.into_iter().filter_map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
        });
        let [won] = won[..] else { panic!("{} have won", won.len()) };
        let mut catalog = made.catalog("catalog");
        catalog.catch_up(&made.store).unwrap();
        assert_eq!(catalog.directory(&path("/home")).unwrap(), Some(directory(won)));
    }
}

#[test]
fn lost_catalog_is_made_of_the_log_again() {
    let made = Made::new();
    let mut lost = made.catalog("lost");
    for number in 0..5 {
        let mut change = new(&format!("/{number}"), 0o700);
        change.packs = vec![pack(number)];
        lost.commit(&made.store, &commit_of(change)).unwrap();
    }
    let before = said(&lost);
    drop(lost);
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(made.file(&format!("lost{suffix}")));
    }
    let mut again = made.catalog("lost");
    assert!(said(&again).is_empty());
    again.catch_up(&made.store).unwrap();
    assert_eq!(said(&again), before);
}

#[test]
fn damaged_commit_is_named_and_those_before_it_are_taken_in() {
    let made = Made::new();
    let mut one = made.catalog("one");
    one.commit(&made.store, &commit_of(new("/1", 0o700))).unwrap();
    one.commit(&made.store, &commit_of(new("/2", 0o700))).unwrap();
    let log = made.log(3);
    let whole = std::fs::read(&log).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x40;
        std::fs::write(&log, &damaged).unwrap();
        let mut other = made.catalog(&format!("other-{at}"));
        let error = other.catch_up(&made.store).unwrap_err();
        assert!(error.to_string().starts_with("commit 3 of the archive's log"), "{at}: {error}");
        assert_eq!(said(&other).len(), 1, "{at}");
    }
    for length in 0..whole.len() {
        std::fs::write(&log, &whole[..length]).unwrap();
        let mut other = made.catalog("cut");
        let error = other.catch_up(&made.store).unwrap_err();
        assert_eq!(error.errno(), Errno::BADMSG, "{length}: {error}");
    }
    // One that is whole, in the place of another.
    std::fs::copy(made.log(2), &log).unwrap();
    let error = made.catalog("moved").catch_up(&made.store).unwrap_err();
    assert_eq!(
        error.to_string(),
        "commit 3 of the archive's log is damaged: it is another one: bring \
         log/00000000000000000003 back from a copy of the store"
    );
    // A later version ends as this one does: else its number may be what is damaged.
    let mut later = whole;
    later[8] = 9;
    later.truncate(later.len() - 32);
    let digest = blake3::hash(&later);
    later.extend_from_slice(digest.as_bytes());
    std::fs::write(&log, &later).unwrap();
    let error = made.catalog("later").catch_up(&made.store).unwrap_err();
    assert_eq!(
        error.to_string(),
        "commit 3 of the archive's log has format version 9, and this Sheaf knows them up to 3: use \
         a later one"
    );
}

#[test]
fn log_with_a_gap_is_not_written_to_and_each_time_that_is_told() {
    for (gone, later) in [(&[2][..], 3), (&[3][..], 4), (&[2, 3][..], 4), (&[1][..], 2)] {
        for made in &Made::all() {
            let mut one = made.catalog("one");
            for number in 2..=4 {
                one.commit(&made.store, &commit_of(new(&format!("/{number}"), 0o700))).unwrap();
            }
            for number in gone {
                std::fs::rename(made.log(*number), made.file(&number.to_string())).unwrap();
            }
            let key = StoreKey::new(&format!("log/{:020}", gone[0])).unwrap();
            let text = format!(
                "commit {} of the archive's log is missing, and later ones are there, from {later} \
                 on: bring {key} back from a copy of the store",
                gone[0]
            );
            // Also with the tables that the first one has begun.
            for _ in 0..2 {
                let mut other = made.catalog("other");
                assert_eq!(other.catch_up(&made.store).unwrap_err().to_string(), text);
                assert_eq!(said(&other).len() as u64, gone[0].saturating_sub(2));
                let refused = other.commit(&made.store, &commit_of(new("/x", 0o700))).unwrap_err();
                assert_eq!(refused.to_string(), text);
                assert!(!made.log(gone[0]).exists());
            }
            // Who knows more goes on; tables on a server are found by the first commit.
            let mut known = if gone[0] == 1 { one } else { made.catalog("one") };
            assert_eq!(known.catch_up(&made.store).unwrap(), 4);
            assert_eq!(known.commit(&made.store, &commit_of(new("/5", 0o700))).unwrap(), 5);
            for number in gone {
                std::fs::rename(made.file(&number.to_string()), made.log(*number)).unwrap();
            }
            let mut other = made.catalog("other");
            assert_eq!(other.catch_up(&made.store).unwrap(), 5);
            assert_eq!(said(&other), said(&known));
        }
    }
}

/// A catalog that has seen commits before they were lost, and writes.
#[test]
fn gap_behind_what_a_catalog_knows_is_found_before_a_commit() {
    let made = Made::new();
    let (mut one, mut other) = (made.catalog("one"), made.catalog("other"));
    other.catch_up(&made.store).unwrap();
    drop(other);
    for number in 2..=6 {
        one.commit(&made.store, &commit_of(new(&format!("/{number}"), 0o700))).unwrap();
    }
    for number in 2..=4 {
        std::fs::remove_file(made.log(number)).unwrap();
    }
    let refused =
        made.catalog("other").commit(&made.store, &commit_of(new("/x", 0o700))).unwrap_err();
    assert!(matches!(refused, CatalogError::Missing { number: 2, later: 5 }), "{refused}");
    assert!(!made.log(2).exists());
    let told = made.catalog("other").catch_up(&made.store).unwrap_err();
    assert!(matches!(told, CatalogError::Missing { number: 2, later: 5 }), "{told}");
}

#[test]
fn commit_that_was_written_behind_another_one_is_refused() {
    let (made, foreign) = (Made::new(), Made::new());
    for (of, name) in [(&made, "/a"), (&foreign, "/b")] {
        let mut catalog = of.catalog("one");
        catalog.commit(&of.store, &commit_of(new(name, 0o700))).unwrap();
        catalog.commit(&of.store, &commit_of(new("/c", 0o700))).unwrap();
    }
    std::fs::copy(foreign.log(2), made.log(2)).unwrap();
    let mut other = made.catalog("other");
    let error = other.catch_up(&made.store).unwrap_err();
    assert!(matches!(error, CatalogError::Unconnected { number: 3 }), "{error}");
    assert!(error.to_string().contains("does not continue commit 2"), "{error}");
}

#[test]
fn file_that_is_no_catalog_is_left_alone_and_named() {
    let made = Made::new();
    std::fs::write(
        made.file("text"),
        "something else, and long enough to be a header\n".repeat(99),
    )
    .unwrap();
    let error = Catalog::open(&made.file("text")).unwrap_err();
    assert!(error.to_string().contains("file is not a database"), "{error}");
    let error = Catalog::open(Path::new("/nowhere/at/all")).unwrap_err();
    assert!(error.to_string().starts_with("the catalog /nowhere/at/all: "), "{error}");
}

#[test]
fn commit_in_the_log_counts_if_its_writer_was_killed_after_it() {
    for made in &Made::all() {
        let mut one = made.catalog("one");
        one.commit(&made.store, &commit_of(new("/1", 0o700))).unwrap();
        let mut other = made.catalog("other");
        other.commit(&made.store, &commit_of(new("/2", 0o700))).unwrap();
        // Its own table has never heard of the second, as that of a writer who was killed.
        assert_eq!(one.applied().unwrap(), 2);
        let again = one.commit(&made.store, &commit_of(new("/2", 0o755))).unwrap_err();
        assert!(matches!(again, CatalogError::Changed { .. }), "{again}");
        assert_eq!(said(&one), said(&other));
        let key = StoreKey::new(&format!("log/{:020}", 3)).unwrap();
        assert!(made.store.size(&key).is_ok());
    }
}

fn components() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let byte = prop_oneof![1..=3u8, b'.'..=b'0', 0xfe..=0xffu8];
    let name = proptest::collection::vec(byte.prop_filter("no slash", |&byte| byte != b'/'), 1..4)
        .prop_filter("no dots", |name| !matches!(&name[..], b"." | b".."));
    proptest::collection::vec(name, 0..4)
}

proptest! {
    #[test]
    fn paths_are_in_the_serial_order_of_a_tree(one in components(), other in components()) {
        let of = |parts: &[Vec<u8>]| ArchivePath::new(&parts.join(&b'/')).unwrap();
        let (path_one, path_other) = (of(&one), of(&other));
        prop_assert_eq!(path_one.cmp(&path_other), one.cmp(&other));
        prop_assert_eq!(path_one.is_within(&path_other), one.starts_with(&other));
        prop_assert_eq!(path_one.depth(), one.len());
        let mut joined = ArchivePath::ROOT;
        for part in &one {
            let next = joined.join(part);
            prop_assert_eq!(next.split(), Some((joined, &part[..])));
            joined = next;
        }
        prop_assert_eq!(joined, path_one);
    }
}

#[test]
fn catalog_below_returns_only_the_subtree_in_pages() {
    for made in &Made::all() {
        let mut catalog = made.catalog("catalog");
        let all = ["/a", "/a/b", "/a/b/c", "/a-b", "/a\u{1}", "/ab", "/b"];
        let changes = all.iter().map(|at| new(at, 0o700)).collect();
        catalog.commit(&made.store, &Commit { changes }).unwrap();
        let mut found = Vec::new();
        loop {
            let next = catalog.below(&path("/a"), found.last(), 2).unwrap();
            if next.is_empty() {
                break;
            }
            found.extend(next.into_iter().map(|(path, _)| path));
        }
        assert_eq!(found, ["/a", "/a/b", "/a/b/c"].map(path));
        let everything = catalog.below(&ArchivePath::ROOT, None, 100).unwrap();
        let expected = ["/", "/a", "/a/b", "/a/b/c", "/a\u{1}", "/a-b", "/ab", "/b"].map(path);
        assert_eq!(everything.into_iter().map(|(path, _)| path).collect::<Vec<_>>(), expected);
    }
}

/// A store that forges its log can leave out the directory that another one is in.
#[test]
fn directory_without_the_one_above_is_an_error() {
    for made in &Made::all() {
        made.catalog("one").commit(&made.store, &commit_of(new("/zXb", 0o700))).unwrap();
        let (log, digest_bytes) = (made.log(2), 32);
        let mut bytes = std::fs::read(&log).unwrap();
        bytes.truncate(bytes.len() - digest_bytes);
        let at = bytes.windows(4).position(|window| window == b"zXb\0").unwrap();
        bytes[at + 1] = 0;
        let digest = *blake3::hash(&bytes).as_bytes();
        bytes.extend_from_slice(&digest);
        std::fs::write(&log, bytes).unwrap();
        let mut other = made.catalog("other");
        other.catch_up(&made.store).unwrap();
        for behind in [None, Some(&b"b"[..])] {
            assert!(other.directory_behind(&ArchivePath::ROOT, behind).is_err());
        }
        let (name, _) = other.directory_behind(&path("/z"), None).unwrap().unwrap();
        assert_eq!(name, b"b");
    }
}

#[test]
fn each_directory_is_in_one() {
    for made in &Made::all() {
        let mut one = made.catalog("one");
        let refused = one.commit(&made.store, &commit_of(new("/a/b", 0o700))).unwrap_err();
        assert!(matches!(refused, CatalogError::Changed { path: at } if at == path("/a/b")));
        let both = Commit { changes: vec![new("/a/b", 0o700), new("/a", 0o700)] };
        one.commit(&made.store, &both).unwrap();

        // Who removes a directory does not remove what another has put there.
        let mut other = made.catalog("other");
        other.catch_up(&made.store).unwrap();
        one.commit(&made.store, &commit_of(new("/a/b/c", 0o700))).unwrap();
        let gone = |at: &str| DirectoryChange {
            path: path(at),
            since: 2,
            removed: true,
            ..Default::default()
        };
        let removal = Commit { changes: vec![gone("/a"), gone("/a/b")] };
        let refused = other.commit(&made.store, &removal).unwrap_err();
        assert!(matches!(refused, CatalogError::Changed { .. }), "{refused}");
        assert_eq!(said(&other).len(), 3);
        let last = DirectoryChange { since: 3, ..gone("/a/b/c") };
        let removal = Commit { changes: vec![gone("/a"), gone("/a/b"), last] };
        other.commit(&made.store, &removal).unwrap();
        assert!(said(&other).is_empty());

        // And who puts something there that goes at the same time is told.
        let refused = one.commit(&made.store, &commit_of(new("/a/b/d", 0o700))).unwrap_err();
        assert!(matches!(refused, CatalogError::Changed { .. }), "{refused}");
    }
}

/// A directory that comes from elsewhere.
fn tree(at: &str, tree: TreeSource) -> DirectoryChange {
    DirectoryChange { path: path(at), tree: Some(tree), ..Default::default() }
}

/// A tree with names of any bytes, with packs and with objects, two of which are one file.
fn tree_to_move(made: &Made) -> Catalog {
    let mut catalog = made.catalog("catalog");
    let mut one = new("/a/b\u{1}\u{fd}", 0o700);
    one.path = path("/a").join(b"\xff\x01\xfe");
    one.packs = vec![pack(1), pack(2)];
    let linked = |name: &str| ArchivedObject { link: Some(PackId([7; 16])), ..object(name) };
    one.objects = vec![linked("x"), object("y"), linked("z")];
    let (mut a, mut beside) = (new("/a", 0o711), new("/ab", 0o755));
    a.packs = vec![pack(3)];
    beside.packs = vec![pack(4)];
    let changes = vec![a, one, new("/a/empty", 0o700), beside, new("/b", 0o755)];
    catalog.commit(&made.store, &Commit { changes }).unwrap();
    catalog
}

#[test]
fn tree_moves_and_is_copied_by_one_small_change() {
    for made in &Made::all() {
        let mut catalog = tree_to_move(made);
        let before = said(&catalog);
        let moved = tree("/b/c", TreeSource::Moved(path("/a")));
        let number = catalog.commit(&made.store, &commit_of(moved)).unwrap();
        let within = |all: &[(ArchivePath, _, Vec<_>, Vec<_>)], at: &str| {
            let at = path(at);
            let all = all.iter().filter_map(|(path, is, packs, objects)| {
                let (is, packs, objects): (&ArchivedDirectory, _, _) = (is, packs, objects);
                Some((path.within(&at)?, is.clone(), packs.clone(), objects.clone()))
            });
            all.collect::<Vec<_>>()
        };
        assert_eq!(within(&said(&catalog), "/b/c"), within(&before, "/a"));
        assert!(within(&said(&catalog), "/a").is_empty());
        assert_eq!(within(&said(&catalog), "/ab"), within(&before, "/ab"));
        assert_eq!(catalog.changed(&path("/b/c/empty")).unwrap(), number);
        assert!(std::fs::metadata(made.log(number)).unwrap().len() < 132);

        // A copy has files of its own, with as many names.
        let copied = tree("/a", TreeSource::Copied(path("/b/c")));
        catalog.commit(&made.store, &commit_of(copied)).unwrap();
        let both = [within(&said(&catalog), "/a"), within(&said(&catalog), "/b/c")];
        let links = |all: &[(_, _, _, Vec<ArchivedObject>)]| {
            let _: &[(ArchivePath, ArchivedDirectory, Vec<ArchivedPack>, _)] = all;
            all.iter().flat_map(|of| of.3.iter().map(|object| object.link)).collect::<Vec<_>>()
        };
        let (copies, originals) = (links(&both[0]), links(&both[1]));
        assert_eq!(originals, [Some(PackId([7; 16])), None, Some(PackId([7; 16]))]);
        assert_eq!(copies, [copies[0], None, copies[0]]);
        assert!(copies[0].is_some() && copies[0] != originals[0]);
        assert_eq!(both[0].len(), 3);
        assert_eq!(both[0][2].2, both[1][2].2);

        // Whoever reads the log comes to the same, and finds it in pieces.
        let mut other = made.catalog("other");
        other.catch_up(&made.store).unwrap();
        assert_eq!(said(&other), said(&catalog));
        assert!(catalog.differs(&made.store).unwrap().is_none());
        let mut last = None;
        let mut found = Vec::new();
        loop {
            let next = catalog.rows_below(&path("/b"), last.as_ref(), 2).unwrap();
            let Some((behind, _)) = next.last() else { break };
            last = Some(behind.clone());
            found.extend(next);
        }
        assert_eq!(found.len(), 4);
        for (path, rows) in found {
            assert_eq!(rows, catalog.rows_of(&path).unwrap(), "{path}");
        }
    }
}

#[test]
fn tree_goes_only_where_nothing_is_and_only_once() {
    for made in &Made::all() {
        let mut catalog = tree_to_move(made);
        let before = said(&catalog);
        let (moved, copied) =
            (|at: &str| TreeSource::Moved(path(at)), |at: &str| TreeSource::Copied(path(at)));
        for changes in [
            vec![tree("/b", moved("/a"))],
            vec![DirectoryChange { since: 2, ..tree("/a", moved("/b")) }],
            vec![tree("/c", moved("/none"))],
            vec![tree("/none/c", copied("/a"))],
            vec![tree("/a/empty/c", moved("/a"))],
            vec![tree("/a/c", copied("/a"))],
            vec![tree("/c", moved("/a")), tree("/d", moved("/a"))],
            vec![tree("/c", moved("/a")), tree("/d", moved("/a/empty"))],
            vec![tree("/c", copied("/a")), tree("/d", moved("/a/empty"))],
            vec![tree("/c", copied("/a")), new("/c/d", 0o700)],
            vec![tree("/c", moved("/a")), tree("/a/empty/b", moved("/b"))],
            vec![tree("/c", moved("/a")), new("/a/d", 0o700)],
        ] {
            let refused = catalog.commit(&made.store, &Commit { changes: changes.clone() });
            assert!(
                matches!(refused, Err(CatalogError::Changed { .. })),
                "{changes:?}: {refused:?}"
            );
            assert_eq!(said(&catalog), before);
        }
        // What is empty gives way; and two copies may be made at once.
        let replaced = DirectoryChange { since: 2, ..tree("/b", moved("/a")) };
        let twice = vec![tree("/c", copied("/ab")), tree("/d", copied("/ab")), replaced];
        catalog.commit(&made.store, &Commit { changes: twice }).unwrap();
        let all: Vec<_> = said(&catalog).into_iter().map(|of| of.0.to_string()).collect();
        let odd = path("/b").join(b"\xff\x01\xfe").to_string();
        assert_eq!(all, ["/ab", "/b", "/b/empty", &odd, "/c", "/d"]);
        assert!(catalog.differs(&made.store).unwrap().is_none());
    }
}
