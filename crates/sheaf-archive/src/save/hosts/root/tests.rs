//! Hosts that lie.
use super::*;
use crate::catalog::{
    ArchivedDirectory, ArchivedObject, ArchivedPack, Catalog, ContentPlace, TreeSource,
};
use crate::pack::member::{MemberAttributes, MemberKind, PackId};
use crate::store::LocalStore;

/// The host that lies, and another one.
const LIAR: usize = 0;
const OTHER: usize = 1;

fn root(below: &std::path::Path, is_shared: bool) -> SaveRoot {
    root_of(below, is_shared, 2)
}

fn root_of(below: &std::path::Path, is_shared: bool, hosts: usize) -> SaveRoot {
    let store = LocalStore::create(&below.join("store")).unwrap();
    let catalog = Catalog::open(&below.join("catalog")).unwrap();
    let archive = Arc::new(Archive::new(Arc::new(store), catalog).unwrap());
    let options = SaveRootOptions {
        store: Vec::new(),
        sources: vec![PathBuf::from("/t")],
        to: ArchivePath::ROOT,
        is_shared,
        workers: 1,
        member_bytes_max: 1 << 20,
        pack_bytes: 1 << 20,
        part_bytes: 1 << 20,
        zstd: None,
        checksum: false,
        ignores: FileIgnores::default(),
        dry_run: false,
        tell_names: false,
        one_file_system: false,
        limits: ScheduleLimits::default(),
        exclude: SaveExclude::default(),
        numbers: false,
    };
    let hosts = (1..=hosts).map(|number| format!("n{number}")).collect();
    SaveRoot::new(archive, options, hosts).unwrap()
}

/// Has a host begin, and returns the number and the place of its directory.
fn begin(root: &SaveRoot, host: usize) -> (u64, ArchivePath) {
    let is = SourceIs { is_directory: true, ino: 1 };
    assert!(matches!(root.next(host).unwrap(), HostStep::Ask(_)));
    root.answered(host, &encoded(&FromHost::Begun(Ok(vec![Ok(is)])))).unwrap();
    let HostStep::Ask(asked) = root.next(host).unwrap() else { panic!("it has nothing to do") };
    let Ok(ToHost::Go { works, .. }) = postcard::from_bytes(&asked) else { panic!("no work") };
    (works[0].id, works[0].to.clone())
}

fn say(root: &SaveRoot, host: usize, records: &[HostRecord]) {
    let records = records.iter().map(encoded).collect();
    root.answered(host, &encoded(&FromHost::Went { records, wants: 0 })).unwrap();
}

fn directory() -> ArchivedDirectory {
    let (uid, gid, mtime_s, mtime_ns) = Default::default();
    ArchivedDirectory { mode: 0o755, uid, gid, mtime_s, mtime_ns, xattrs: Vec::new() }
}

fn change(id: u64, change: DirectoryChange, report: SaveReport) -> HostRecord {
    let change = ReplacingChange { change, replaced: Vec::new() };
    HostRecord::Change { id, change, report }
}

fn object(extents: Vec<std::ops::Range<u64>>) -> ArchivedObject {
    ArchivedObject {
        attributes: MemberAttributes::new(FileName::new(*b"f").unwrap(), MemberKind::File, 0o644),
        size: 9,
        digest: [7; 32],
        place: Some(ContentPlace::Object(PackId([7; 16]))),
        extents: Some(extents),
        link: None,
    }
}

#[test]
fn host_changes_its_own_directory_only() {
    type Lie = fn(&ArchivePath) -> DirectoryChange;
    let moved = |path: &ArchivePath| {
        let tree = Some(TreeSource::Moved(ArchivePath::ROOT.join(b"n2")));
        DirectoryChange { path: path.clone(), tree, ..DirectoryChange::default() }
    };
    let elsewhere = |_: &ArchivePath| {
        let path = ArchivePath::ROOT.join(b"n2");
        DirectoryChange { path, directory: Some(directory()), ..DirectoryChange::default() }
    };
    let removed = |path: &ArchivePath| DirectoryChange {
        path: path.clone(),
        removed: true,
        ..DirectoryChange::default()
    };
    let nameless = |path: &ArchivePath| {
        let packs = vec![ArchivedPack { members: 1, files: 1, ..ArchivedPack::default() }];
        DirectoryChange { path: path.clone(), packs, ..DirectoryChange::default() }
    };
    let backwards = |path: &ArchivePath| {
        let range = std::ops::Range { start: 5, end: 2 };
        let objects = vec![object(vec![range])];
        DirectoryChange { path: path.clone(), objects, ..DirectoryChange::default() }
    };
    let nothing =
        |path: &ArchivePath| DirectoryChange { path: path.clone(), ..DirectoryChange::default() };
    let lies: [Lie; 6] = [moved, elsewhere, removed, nameless, backwards, nothing];
    for (at, lie) in lies.into_iter().enumerate() {
        let below = tempfile::tempdir().unwrap();
        let root = root(below.path(), false);
        let (id, path) = begin(&root, LIAR);
        let (other, _) = begin(&root, OTHER);
        say(&root, LIAR, &[HostRecord::Begun { id, is: directory() }]);
        say(&root, LIAR, &[change(id, lie(&path), SaveReport::default())]);
        assert!(matches!(root.next(LIAR).unwrap(), HostStep::Over), "lie {at}");
        let told = root.told();
        let told: Vec<_> = told.iter().map(|(host, _)| *host).collect();
        assert_eq!(told, [LIAR], "lie {at}");
        // The other one goes on.
        say(&root, OTHER, &[HostRecord::Begun { id: other, is: directory() }]);
        say(&root, OTHER, &[HostRecord::Done { id: other, report: SaveReport::default() }]);
        assert!(matches!(root.next(OTHER).unwrap(), HostStep::Over), "lie {at}");
        let (report, refused) = root.finish().unwrap();
        assert!(report.failed == 1 && refused.is_empty(), "lie {at}: {report:?}");
    }
}

#[test]
fn totals_of_a_host_hide_nothing_of_others() {
    let below = tempfile::tempdir().unwrap();
    let root = root(below.path(), false);
    let most = SaveReport { failed: u64::MAX, stored: u64::MAX, ..SaveReport::default() };
    for host in [LIAR, OTHER] {
        let (id, _) = begin(&root, host);
        say(&root, host, &[HostRecord::Begun { id, is: directory() }]);
        let report = SaveReport { failed: 1, ..SaveReport::default() };
        let report = if host == LIAR { most } else { report };
        say(&root, host, &[HostRecord::Done { id, report }]);
    }
    assert!(root.so_far().is_some());
    assert_eq!(root.finish().unwrap().0.failed, u64::MAX);
}

#[test]
fn directory_that_cannot_be_and_links_of_nobody_cost_their_host() {
    for is_link in [false, true] {
        let below = tempfile::tempdir().unwrap();
        let root = root(below.path(), false);
        let (id, _) = begin(&root, LIAR);
        let is = ArchivedDirectory { mode: u32::MAX, ..directory() };
        let key = postcard::from_bytes(&[1, 1, 1, 1, 2]).unwrap();
        let lie =
            if is_link { HostRecord::Link { ask: 1, key } } else { HostRecord::Begun { id, is } };
        say(&root, LIAR, &[lie]);
        assert!(matches!(root.next(LIAR).unwrap(), HostStep::Over));
    }
}

#[test]
fn host_that_finds_directories_without_end_is_lost() {
    let below = tempfile::tempdir().unwrap();
    // Of many hosts each may have 8 MiB in memory.
    let root = root_of(below.path(), false, 128);
    let (id, _) = begin(&root, LIAR);
    let (other, _) = begin(&root, OTHER);
    say(&root, LIAR, &[HostRecord::Begun { id, is: directory() }]);
    let name = |number: usize| format!("{number:0>255}").into_bytes();
    for first in (0..(10 << 20) / 255).step_by(1000) {
        let found = (first..first + 1000).map(|at| HostRecord::Found { id, name: name(at) });
        say(&root, LIAR, &found.collect::<Vec<_>>());
    }
    assert!(matches!(root.next(LIAR).unwrap(), HostStep::Over));
    let told = root.told();
    let [(LIAR, HostTold::Said(why))] = &told[..] else { panic!("{} were told", told.len()) };
    assert!(why.starts_with(TOO_MANY), "{why}");
    say(&root, OTHER, &[HostRecord::Begun { id: other, is: directory() }]);
    say(&root, OTHER, &[HostRecord::Done { id: other, report: SaveReport::default() }]);
    assert!(matches!(root.next(OTHER).unwrap(), HostStep::Over));
}
