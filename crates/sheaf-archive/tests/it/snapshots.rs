//! Snapshots of the log: a machine without a catalog reads one, and what comes behind it.
use crate::catalog::{commit_of, new, said};
use sheaf_archive::{
    Archive, Catalog, CatalogError, Commit, DirectoryChange, LocalStore, RepairOptions, drop_log,
    repair,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

struct Made {
    place: tempfile::TempDir,
    store: LocalStore,
    catalog: Catalog,
}

impl Made {
    /// An archive with so many commits.
    fn new(commits: u64) -> Self {
        let place = tempfile::tempdir().unwrap();
        let store = LocalStore::create(&place.path().join("store")).unwrap();
        let mut made = Self { place, store, catalog: Catalog::in_memory().unwrap() };
        made.catalog.commit(&made.store, &commit_of(new("/", 0o755))).unwrap();
        for number in 1..commits {
            made.commit(&format!("/{number}"));
        }
        made
    }

    /// A directory with a pack and an object.
    fn commit(&mut self, path: &str) {
        let change = DirectoryChange {
            packs: vec![crate::catalog::pack(1), crate::catalog::pack(2)],
            objects: vec![crate::catalog::object("x"), crate::catalog::object("y")],
            ..new(path, 0o700)
        };
        self.catalog.commit(&self.store, &Commit { changes: vec![change] }).unwrap();
    }

    fn object(&self, kind: &str, number: u64) -> PathBuf {
        self.place.path().join(format!("store/objects/{kind}/{number:020}"))
    }

    fn snapshots(&self) -> Vec<u64> {
        let Ok(found) = fs::read_dir(self.place.path().join("store/objects/snapshots")) else {
            return Vec::new();
        };
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut all: Vec<_> =
            found.map(|entry| name(entry).into_string().unwrap().parse().unwrap()).collect();
        all.sort_unstable();
        all
    }

    fn faults(&self) -> Vec<CatalogError> {
        let mut faults = Vec::new();
        Catalog::snapshot_faults(&self.store, &mut |fault| faults.push(fault)).unwrap();
        faults
    }
}

/// What a machine knows that has no catalog.
fn read_anew(made: &Made) -> Catalog {
    let mut catalog = Catalog::in_memory().unwrap();
    catalog.catch_up_whole(&made.store).unwrap();
    catalog
}

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    let at = at % bytes.len();
    bytes[at] ^= 0x10;
    fs::write(file, bytes).unwrap();
}

#[test]
fn new_catalog_reads_a_snapshot_and_not_the_log_before_it() {
    let mut made = Made::new(127);
    assert!(!made.catalog.write_snapshot(&made.store).unwrap());
    made.commit("/more");
    assert!(made.catalog.write_snapshot(&made.store).unwrap());
    assert!(!made.catalog.write_snapshot(&made.store).unwrap(), "it is there");
    made.commit("/behind");
    assert_eq!(made.snapshots(), [128]);
    // Nothing before it is read: it may as well not be there.
    for number in 1..=127 {
        let from = made.object("log", number);
        fs::rename(&from, from.with_extension("away")).unwrap();
    }
    let catalog = read_anew(&made);
    assert_eq!(catalog.applied().unwrap(), 129);
    assert_eq!(said(&catalog), said(&made.catalog));
    for path in ["/", "/5", "/more", "/behind"] {
        let path = crate::round::path(path);
        assert_eq!(catalog.changed(&path).unwrap(), made.catalog.changed(&path).unwrap());
    }
}

#[test]
fn old_snapshots_go_when_new_ones_are_written() {
    let mut made = Made::new(128);
    for round in 0..3 {
        assert!(made.catalog.write_snapshot(&made.store).unwrap());
        for number in 0..128 {
            made.commit(&format!("/{round}-{number}"));
        }
    }
    assert_eq!(made.snapshots(), [256, 384]);
    assert_eq!(said(&read_anew(&made)), said(&made.catalog));
}

#[test]
fn damaged_snapshot_is_named_and_costs_nothing() {
    let mut made = Made::new(130);
    assert!(made.catalog.write_snapshot(&made.store).unwrap());
    assert!(made.faults().is_empty());
    let file = made.object("snapshots", 130);
    let (whole, known) = (fs::read(&file).unwrap(), said(&made.catalog));
    for at in (0..whole.len()).step_by(whole.len() / 60) {
        fs::write(&file, &whole).unwrap();
        flip(&file, at);
        assert_eq!(said(&read_anew(&made)), known, "byte {at}");
        // Of which commit it is stands in the log, too.
        let is_named = made.faults().len() == 1;
        assert!(is_named, "byte {at}");
    }
    for bytes in [&whole[..whole.len() - 1], &whole[..60], b"", &[&whole[..52], &[255; 4]].concat()]
    {
        fs::write(&file, bytes).unwrap();
        assert_eq!(said(&read_anew(&made)), known);
        assert_eq!(made.faults().len(), 1);
    }
    let archive = Archive::new(Arc::new(made.store.clone()), read_anew(&made)).unwrap();
    assert_eq!(repair(&archive, RepairOptions::default()).unwrap().leftovers, 1);
    assert!(made.snapshots().is_empty());
}

#[test]
fn snapshot_of_another_log_is_not_taken() {
    let mut made = Made::new(130);
    let mut other = Made::new(131);
    assert!(other.catalog.write_snapshot(&other.store).unwrap());
    assert!(made.catalog.write_snapshot(&made.store).unwrap());
    other.commit("/other");
    fs::copy(other.object("snapshots", 131), made.object("snapshots", 131)).unwrap();
    made.commit("/made");
    assert_eq!(said(&read_anew(&made)), said(&made.catalog));
}

#[test]
fn snapshots_of_commits_that_are_given_up_go_with_them() {
    let mut made = Made::new(130);
    assert!(made.catalog.write_snapshot(&made.store).unwrap());
    fs::write(made.object("log", 129), "").unwrap();
    assert_eq!(drop_log(&made.store, 129, false).unwrap(), 2);
    assert!(made.snapshots().is_empty());
    assert_eq!(read_anew(&made).applied().unwrap(), 128);
}
