//! Two who write the same at once: one of two results, never a mixture, and who has lost is told.
use crate::crash::in_memory;
use crate::round::path;
use sheaf_archive::{
    Archive, ArchiveError, ArchiveEvent, ArchivePath, Catalog, CatalogError, FetchOptions,
    LocalStore, PostgresUrl, SaveOptions, VerifyOptions, fetch, remove, save, verify,
};
use sheaf_core::lock;
use sheaf_testing::postgres::PostgresServer;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

const FILES: usize = 12;

/// Where catalogs of two writers are.
enum Catalogs {
    /// One file for both.
    File,
    /// A file for each.
    Files,
    /// One database for both.
    Database(Box<PostgresUrl>),
}

impl Catalogs {
    fn open(&self, at: &Path, writer: usize) -> Catalog {
        match self {
            Self::File => Catalog::open(&at.join("catalog")).unwrap(),
            Self::Files => Catalog::open(&at.join(format!("catalog-{writer}"))).unwrap(),
            Self::Database(url) => Catalog::connect(url).unwrap(),
        }
    }

    fn all() -> Vec<Self> {
        let server = PostgresServer::shared();
        // The server goes on as long as this test has it.
        let database = server.as_ref().map(|server| {
            Self::Database(Box::new(PostgresUrl::parse(&server.new_database()).unwrap()))
        });
        [Self::File, Self::Files].into_iter().chain(database).collect()
    }
}

fn archive(at: &Path, catalogs: &Catalogs, writer: usize) -> Archive {
    let store = Arc::new(LocalStore::create(&at.join("store")).unwrap());
    Archive::new(store, catalogs.open(at, writer)).unwrap()
}

/// A tree of which each file says whose it is.
fn write_tree(at: &Path, writer: usize) {
    for directory in ["", "d", "d/e"] {
        fs::create_dir_all(at.join(directory)).unwrap();
        for number in 0..FILES {
            let content = format!("{writer} {number}\n").repeat(50);
            fs::write(at.join(directory).join(format!("{number}")), content).unwrap();
        }
    }
}

/// What a writer does; whether it was told that it has lost.
fn store(archive: &Archive, tree: &Path) -> bool {
    let told = Mutex::new(Vec::new());
    let tell = |event: ArchiveEvent| lock(&told).push(event);
    // Several packs of a directory.
    let options = SaveOptions { pack_bytes: 4096, ..SaveOptions::default() };
    let saved = save(archive, &[tree.to_owned()], &ArchivePath::ROOT, options, &tell);
    let told = told.into_inner().unwrap();
    let is_loss =
        |error: &ArchiveError| matches!(error, ArchiveError::Catalog(CatalogError::Changed { .. }));
    let saved = match saved {
        Ok(saved) => saved,
        Err(error) if is_loss(&error) => return true,
        Err(error) => panic!("{error}"),
    };
    for event in &told {
        assert!(matches!(event, ArchiveEvent::Failed(error) if is_loss(error)), "{event:?}");
    }
    assert_eq!(saved.failed > 0, !told.is_empty());
    !told.is_empty()
}

/// Whose files are in a directory.
fn owners(at: &Path) -> BTreeSet<String> {
    let owner = |number| {
        let read = fs::read_to_string(at.join(format!("{number}"))).unwrap();
        let owner = read.split(' ').next().unwrap().to_owned();
        assert_eq!(read, format!("{owner} {number}\n").repeat(50));
        owner
    };
    (0..FILES).map(owner).collect()
}

fn fetched(archive: &Archive, to: &Path) {
    let fail = |event: ArchiveEvent| panic!("{event:?}");
    fetch(archive, &path("/tree"), to, FetchOptions::default(), &fail).unwrap();
}

/// Waits for less than a writer takes.
fn wait(seed: &mut u64) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    std::thread::sleep(Duration::from_micros(*seed % 8000));
}

#[test]
fn of_two_who_store_the_same_directory_each_directory_is_of_one() {
    let _server = PostgresServer::shared();
    for catalogs in Catalogs::all() {
        let place = in_memory();
        let at = place.path();
        let (mut lost, mut seed) = (0, 0x9e37_79b9_7f4a_7c15);
        for round in 0..12 {
            let trees = [0, 1].map(|writer| at.join(format!("{round}-{writer}/tree")));
            trees.iter().enumerate().for_each(|(writer, tree)| write_tree(tree, writer));
            let archives = [0, 1].map(|writer| archive(at, &catalogs, writer));
            let begin = Barrier::new(2);
            let waits = [0, 1].map(|_| {
                wait(&mut seed);
                Duration::from_micros(seed % 4000)
            });
            let told = std::thread::scope(|scope| {
                let work = |writer: usize| {
                    let (archive, tree, begin) = (&archives[writer], &trees[writer], &begin);
                    scope.spawn(move || {
                        begin.wait();
                        std::thread::sleep(waits[writer]);
                        store(archive, tree)
                    })
                };
                let both = [work(0), work(1)];
                both.map(|writer| writer.join().unwrap())
            });
            lost += told.iter().filter(|told| **told).count();
            let after = archive(at, &catalogs, 2);
            let damaged = |error| panic!("{error}");
            verify(&after, &ArchivePath::ROOT, VerifyOptions::default(), &damaged).unwrap();
            let back = at.join(format!("back-{round}"));
            fetched(&after, &back);
            for directory in ["", "d", "d/e"] {
                let owners = owners(&back.join("tree").join(directory));
                assert_eq!(owners.len(), 1, "round {round}, {directory:?}: {owners:?}");
            }
            // Who has lost does it again, and has all of it.
            for writer in [0, 1].into_iter().filter(|&writer| told[writer]) {
                let again = archive(at, &catalogs, writer);
                assert!(!store(&again, &trees[writer]));
                let back = at.join(format!("again-{round}-{writer}"));
                fetched(&again, &back);
                for directory in ["", "d", "d/e"] {
                    let owners = owners(&back.join("tree").join(directory));
                    assert_eq!(owners, BTreeSet::from([writer.to_string()]));
                }
            }
        }
        assert!(lost > 0, "they have never met");
    }
}

#[test]
fn writers_to_the_same_names_of_one_pack_mix_nothing() {
    let _server = PostgresServer::shared();
    for catalogs in Catalogs::all() {
        let place = in_memory();
        let (at, tree) = (place.path(), place.path().join("0/tree"));
        write_tree(&tree, 0);
        for round in 0..8 {
            store(&archive(at, &catalogs, 0), &tree);
            // One removes names of the pack that the other stores again.
            let other = at.join(format!("{round}-1/tree"));
            write_tree(&other, 1);
            let begin = Barrier::new(2);
            let archives = [0, 1].map(|writer| archive(at, &catalogs, writer));
            let (removed, is_told) = std::thread::scope(|scope| {
                let removal = scope.spawn(|| {
                    begin.wait();
                    (0..FILES)
                        .filter(|number| {
                            let name = path(&format!("/tree/d/{number}"));
                            match remove(&archives[0], &name) {
                                Ok(removed) => removed.files == 1,
                                Err(ArchiveError::Catalog(CatalogError::Changed { .. })) => false,
                                Err(error) => panic!("{error}"),
                            }
                        })
                        .count()
                });
                let storing = scope.spawn(|| {
                    begin.wait();
                    store(&archives[1], &other)
                });
                (removal.join().unwrap(), storing.join().unwrap())
            });
            let after = archive(at, &catalogs, 2);
            let damaged = |error| panic!("{error}");
            verify(&after, &ArchivePath::ROOT, VerifyOptions::default(), &damaged).unwrap();
            let back = at.join(format!("back-{round}"));
            fetched(&after, &back);
            let mut left = BTreeSet::new();
            for number in 0..FILES {
                let name = back.join(format!("tree/d/{number}"));
                if let Ok(read) = fs::read_to_string(name) {
                    let owner = read.split(' ').next().unwrap().to_owned();
                    assert_eq!(read, format!("{owner} {number}\n").repeat(50));
                    left.insert(owner);
                } else {
                    assert!(removed > 0);
                }
            }
            assert!(left.len() <= 1, "round {round}: {left:?}");
            if is_told {
                assert!(!left.contains("1"), "round {round}: it was told that it has lost");
            }
            assert_eq!(owners(&back.join("tree/d/e")).len(), 1);
        }
    }
}
