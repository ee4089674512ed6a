//! Of what is fetched some names alone, and a target that has nothing else behind it: compared with rsync.
use crate::grep::Numbers;
use crate::round::{Place, path};
use crate::trees::seen;
use sheaf_archive::{
    ArchiveError, ArchiveEvent, FetchNames, FetchOptions, FetchReport, SaveExclude, SaveOptions,
    fetch_watched,
};
use sheaf_core::lock;
use sheaf_testing::program::have;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

const ROUNDS: u64 = 40;
const NAMES: [&str; 8] = ["a", "b.o", "c.c", "cache", "d", "e.c", "f", "x y"];

/// A tree of these names. Where names say the kind, what has a point is a file and all else a directory.
fn make_tree(at: &Path, depth: usize, by_name: bool, numbers: &mut Numbers) {
    fs::create_dir(at).unwrap();
    for name in NAMES {
        let (at, chance) = (at.join(name), numbers.below(12));
        let is_directory = if by_name { !name.contains('.') } else { chance < 3 };
        match chance {
            6.. => {}
            _ if is_directory && depth > 0 => make_tree(&at, depth - 1, by_name, numbers),
            5 if !by_name => symlink(["a", "/tmp", "nothing"][numbers.below(3)], at).unwrap(),
            _ if !is_directory => fs::write(at, vec![b'x'; numbers.below(3)]).unwrap(),
            _ => {}
        }
    }
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

fn get(place: &Place, to: &Path, options: FetchOptions, names: &FetchNames) -> Got {
    let told = Mutex::new(Vec::new());
    let tell = |event: ArchiveEvent| lock(&told).push(event);
    let options = FetchOptions { contents: true, overwrite: true, delete: true, ..options };
    let tree = path("/tree");
    let report =
        fetch_watched(&place.archive, &tree, to, options, names, &tell, &|_, _| ()).unwrap();
    Got { report, told: told.into_inner().unwrap() }
}

struct Got {
    report: FetchReport,
    told: Vec<ArchiveEvent>,
}

impl Got {
    fn removed(&self) -> BTreeSet<&Path> {
        let removed = self.told.iter().filter_map(|event| match event {
            ArchiveEvent::Removes { path, .. } => Some(path.as_path()),
            _ => None,
        });
        removed.collect()
    }
}

fn names(include: &[&str], exclude: &[&str]) -> FetchNames {
    let of = |globs| SaveExclude::new(globs).unwrap();
    FetchNames { include: of(include), exclude: of(exclude) }
}

/// Names, and what is to be the same of them. rsync leaves the times of some links, and those of directories in
/// which something stays are other ones.
fn shown(at: &Path, directories: bool) -> Vec<String> {
    let of = |path: PathBuf| {
        let found = fs::symlink_metadata(at.join(&path)).unwrap();
        if found.is_dir() {
            return directories.then(|| format!("{path:?}/"));
        }
        if found.is_symlink() {
            return Some(format!("{path:?} -> {:?}", fs::read_link(at.join(&path)).unwrap()));
        }
        let content = fs::read(at.join(&path)).unwrap();
        let time = (found.mtime(), found.mtime_nsec());
        Some(format!("{path:?} {content:?} {:o} {time:?}", found.mode()))
    };
    seen(at).into_keys().filter_map(of).collect()
}

#[test]
fn deletes_in_the_target_what_rsync_deletes() {
    if !have("rsync") {
        return;
    }
    let sets: [&[&str]; 8] =
        [&[], &[], &["*.o"], &["cache"], &["d/"], &["/a/d", "f"], &["cache/", "x y"], &["d/f"]];
    let mut removed = 0;
    for seed in 1..=ROUNDS {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let place = Place::new();
        make_tree(&place.path("tree"), 3, false, &mut numbers);
        make_tree(&place.path("ours"), 3, false, &mut numbers);
        copy(&place.path("ours"), &place.path("theirs"));
        copy(&place.path("ours"), &place.path("dry"));
        let globs = sets[numbers.below(sets.len())];
        place.save("tree", SaveOptions::default());
        let mut rsync = Command::new("rsync");
        rsync.args(["-a", "-I", "--delete"]);
        rsync.args(globs.iter().map(|glob| format!("--exclude={glob}")));
        rsync.arg(place.path("tree/")).arg(place.path("theirs"));
        let rsync = rsync.output().unwrap();
        let dry = FetchOptions { dry_run: true, ..FetchOptions::default() };
        let would = get(&place, &place.path("dry"), dry, &names(&[], globs));
        assert_eq!(shown(&place.path("ours"), true), shown(&place.path("dry"), true), "{seed}");
        let got = get(&place, &place.path("ours"), FetchOptions::default(), &names(&[], globs));
        assert_eq!(got.report.failed > 0, !rsync.status.success(), "{seed} {:?}", got.told);
        let (ours, theirs) = (shown(&place.path("ours"), true), shown(&place.path("theirs"), true));
        let missing: Vec<_> = theirs.iter().filter(|name| !ours.contains(name)).collect();
        let more: Vec<_> = ours.iter().filter(|name| !theirs.contains(name)).collect();
        assert!(missing.is_empty(), "{seed} {globs:?} {missing:?}");
        // Of an excluded directory in the way of a file rsync removes what it can, and fails all the same.
        assert!(more.is_empty() || !rsync.status.success(), "{seed} {globs:?} {more:?}");
        let in_ours =
            |path: &Path| place.path("ours").join(path.strip_prefix(place.path("dry")).unwrap());
        let would: BTreeSet<_> = would.removed().into_iter().map(in_ours).collect();
        let did: BTreeSet<_> = got.removed().into_iter().map(Path::to_owned).collect();
        assert_eq!(would, did, "{seed} {globs:?}");
        assert_eq!(got.report.removed, did.len() as u64);
        removed += did.len();
    }
    assert!(removed > 300, "{removed}");
}

#[test]
fn included_files_alone_come_and_go_as_with_rsync() {
    if !have("rsync") {
        return;
    }
    let sets: [(&[&str], &[&str]); 4] =
        [(&["*.c"], &[]), (&["*.c", "b.o"], &["e.c"]), (&["c.c"], &["d"]), (&["d/e.c"], &[])];
    for seed in 1..=ROUNDS {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let place = Place::new();
        make_tree(&place.path("tree"), 3, true, &mut numbers);
        make_tree(&place.path("ours"), 3, true, &mut numbers);
        copy(&place.path("ours"), &place.path("theirs"));
        let (include, exclude) = sets[numbers.below(sets.len())];
        let pack = SaveOptions {
            member_bytes_max: [0, 1 << 20][numbers.below(2)],
            ..SaveOptions::default()
        };
        place.save("tree", pack);
        let mut rsync = Command::new("rsync");
        rsync.args(["-a", "-I", "--delete"]);
        rsync.args(exclude.iter().map(|glob| format!("--exclude={glob}")));
        rsync.arg("--include=*/").args(include.iter().map(|glob| format!("--include={glob}")));
        rsync.arg("--exclude=*").arg(place.path("tree/")).arg(place.path("theirs"));
        assert!(rsync.status().unwrap().success());
        let got =
            get(&place, &place.path("ours"), FetchOptions::default(), &names(include, exclude));
        assert_eq!(got.report.failed, 0, "{seed} {:?}", got.told);
        let (ours, theirs) = (place.path("ours"), place.path("theirs"));
        assert_eq!(shown(&ours, false), shown(&theirs, false), "{seed} {include:?} {exclude:?}");
    }
}

#[test]
fn directories_come_with_what_is_included_in_them() {
    let place = Place::new();
    let tree = place.path("tree");
    for name in ["a/b/x.c", "a/e/x.o", "doc/deep/y.o", "z.c"] {
        fs::create_dir_all(tree.join(name).parent().unwrap()).unwrap();
        fs::write(tree.join(name), name).unwrap();
    }
    fs::create_dir(tree.join("doc/empty")).unwrap();
    place.save("tree", SaveOptions::default());
    let got = |include: &[&str], to: &str| {
        let options = FetchOptions { dry_run: true, ..FetchOptions::default() };
        let would = get(&place, &place.path(to), options, &names(include, &[]));
        let got = get(&place, &place.path(to), FetchOptions::default(), &names(include, &[]));
        assert_eq!(would.report, got.report, "{include:?}");
        let all = seen(&place.path(to)).into_keys().filter(|path| path.components().count() > 0);
        all.map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(got(&["*.c"], "one"), "a a/b a/b/x.c z.c");
    assert_eq!(got(&["doc"], "two"), "doc doc/deep doc/deep/y.o doc/empty");
    assert_eq!(got(&["/a/e/"], "three"), "a a/e a/e/x.o");
    assert_eq!(got(&["tree"], "four").split(' ').count(), 10);
    // Times of directories are those of the archive, as far as something came into them.
    let mtime = |path: PathBuf| fs::metadata(path).unwrap().mtime_nsec();
    assert_eq!(mtime(place.path("one/a/b")), mtime(tree.join("a/b")));
}

#[test]
fn nothing_is_deleted_where_the_archive_cannot_be_read() {
    for kind in ["packs", "index"] {
        let place = Place::new();
        fs::create_dir_all(place.path("tree/sub")).unwrap();
        fs::write(place.path("tree/sub/a"), "a").unwrap();
        fs::write(place.path("tree/b"), "b").unwrap();
        place.save("tree", SaveOptions::default());
        let lost = Command::new("sh")
            .args(["-c", "find . -type f -path '*packs*' | sort | head -n $0 | xargs rm"])
            .arg(if kind == "packs" { "99" } else { "2" })
            .current_dir(place.path("store/objects"))
            .status()
            .unwrap();
        assert!(lost.success());
        let to = place.path("to");
        fs::create_dir_all(to.join("sub")).unwrap();
        fs::write(to.join("extra"), "stays").unwrap();
        fs::write(to.join("sub/extra"), "stays").unwrap();
        let got = get(&place, &to, FetchOptions::default(), &FetchNames::default());
        assert!(got.report.failed > 0 && got.report.removed == 0, "{:?}", got.report);
        assert!(to.join("extra").exists() && to.join("sub/extra").exists());
        let is_said = |event: &ArchiveEvent| {
            matches!(event, ArchiveEvent::Failed(ArchiveError::NothingRemoved { .. }))
        };
        assert!(got.told.iter().any(is_said), "{:?}", got.told);
    }
}

#[test]
fn nothing_behind_a_link_and_no_store_is_deleted() {
    let place = Place::new();
    fs::create_dir_all(place.path("tree/link")).unwrap();
    fs::write(place.path("tree/link/a"), "a").unwrap();
    place.save("tree", SaveOptions::default());
    let (to, outside) = (place.path("to"), place.path("outside"));
    fs::create_dir_all(outside.join("sub")).unwrap();
    fs::write(outside.join("sub/kept"), "kept").unwrap();
    fs::create_dir_all(to.join("deep/er")).unwrap();
    // In the way of a directory, in one that goes, and as one that goes.
    for link in ["link", "deep/er/link", "extra"] {
        symlink(&outside, to.join(link)).unwrap();
    }
    fs::create_dir_all(to.join("of/store")).unwrap();
    fs::write(to.join("of/store/object"), "kept").unwrap();
    fs::write(to.join("of/other"), "goes").unwrap();
    let id = fs::metadata(to.join("of/store")).unwrap();
    let options = FetchOptions { kept: Some((id.dev(), id.ino())), ..FetchOptions::default() };
    let got = get(&place, &to, options, &FetchNames::default());
    assert!(outside.join("sub/kept").exists());
    let there: Vec<_> = seen(&to).into_keys().map(|path| path.display().to_string()).collect();
    assert_eq!(there.join(" "), " link link/a of of/store of/store/object", "{:?}", got.told);
    assert_eq!((got.report.failed, got.report.fetched), (1, 1), "{:?}", got.told);
    let said = format!("{:?}", got.told);
    assert!(said.contains("is the store, in which nothing is removed"), "{said}");
}

#[test]
fn deep_directories_that_are_not_archived_are_deleted() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    place.save("tree", SaveOptions::default());
    let made = Command::new("sh")
        .args(["-c", "mkdir to; cd to; for i in $(seq 600); do mkdir directory-$i; cd directory-$i; done; echo x >x"])
        .current_dir(place.directory.path())
        .status()
        .unwrap();
    assert!(made.success());
    let got = get(&place, &place.path("to"), FetchOptions::default(), &FetchNames::default());
    assert_eq!((got.report.removed, got.report.failed), (601, 0), "{:?}", got.told);
    assert_eq!(fs::read_dir(place.path("to")).unwrap().count(), 0);
}
