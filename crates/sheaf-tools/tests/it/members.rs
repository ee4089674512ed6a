//! What a member is, and that each is counted once: random trees with parts that cannot be read,
//! against a count of our own.
use crate::cp::cluster::{Cluster, run};
use sheaf_core::RangeSet;
use sheaf_file::{Algorithm, ModeChange};
use sheaf_group::{Client, Outcome};
use sheaf_testing::as_nobody;
use sheaf_tools::cp::{CopyOptions, Source, get, put};
use sheaf_tools::edit::{Edit, EditOptions, NewMode, edit};
use sheaf_tools::grep::{GrepOptions, grep};
use sheaf_tools::read::{ReadOptions, read};
use sheaf_tools::report::list::ListOptions;
use sheaf_tools::report::stat::StatOptions;
use sheaf_tools::report::{ReportChoice, UsageReportOptions, cat, report};
use sheaf_tools::{Target, ToolError};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const HOSTS: u32 = 3;
const NOBODY: u32 = 65534;
/// Trees that are tried.
const ROUNDS: u64 = 24;

/// Runs `act` as somebody to whom not everything is open.
fn unprivileged(act: impl FnOnce() + Send) {
    if rustix::process::geteuid().is_root() {
        as_nobody(act);
    } else {
        act();
    }
}

/// Small numbers, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }
}

fn set(path: &Path, mode: u32, owner: Option<u32>) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    if owner.is_some() && rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(path, owner, None).unwrap();
    }
}

/// Something at `path`: a file, or a directory with more in it.
fn grow(path: &Path, depth: u32, dice: &mut Dice) {
    let owner = if dice.below(6) == 0 { None } else { Some(NOBODY) };
    if depth == 0 || dice.below(2) == 0 {
        std::fs::write(path, format!("text {}\n", dice.below(3))).unwrap();
        return set(path, if dice.below(5) == 0 { 0 } else { 0o666 }, owner);
    }
    std::fs::create_dir(path).unwrap();
    for name in ["a", "b", "c"] {
        if dice.below(2) == 0 {
            grow(&path.join(name), depth - 1, dice);
        }
    }
    set(path, if dice.below(4) == 0 { 0 } else { 0o777 }, owner);
}

/// All that can be seen at and beneath `path`, and whether that is all there is.
fn seen(path: &Path) -> (Vec<(PathBuf, Metadata)>, bool) {
    let (mut all, mut is_whole) = (Vec::new(), true);
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            match std::fs::read_dir(&path) {
                Ok(entries) => left.extend(entries.map(|entry| entry.unwrap().path())),
                Err(_) => is_whole = false,
            }
        }
        all.push((path, metadata));
    }
    (all, is_whole)
}

fn is_readable(path: &Path) -> bool {
    File::open(path).is_ok()
}

/// A file that can be read, and no directory.
fn is_readable_file(path: &Path) -> bool {
    !path.is_dir() && is_readable(path)
}

/// Everything at and beneath it can be read.
fn is_readable_tree(path: &Path) -> bool {
    let (all, is_whole) = seen(path);
    is_whole && all.iter().all(|(path, _)| is_readable(path))
}

type Expected = fn(&Path) -> bool;

/// Each command's outcome, and when a member succeeds. The last one removes everything.
async fn reads(
    client: &Client,
    targets: &[Target],
    here: &Path,
) -> Result<Vec<(&'static str, Outcome, Expected)>, ToolError> {
    let mut all: Vec<(_, _, Expected)> = Vec::new();
    let list = |long, recursive| {
        ReportChoice::List(ListOptions { long, recursive, ..ListOptions::default() })
    };
    let is_listable: Expected = |path| !path.is_dir() || is_readable(path);
    let reports: [(_, _, Expected); 6] = [
        ("ls", list(false, false), is_listable),
        ("ls -l", list(true, false), is_listable),
        ("ls -lR", list(true, true), |path| seen(path).1),
        ("du", ReportChoice::Usage(UsageReportOptions::default()), |path| seen(path).1),
        ("stat", ReportChoice::Stat(StatOptions::default()), |_| true),
        ("sha", ReportChoice::Digest(Algorithm::Sha256), is_readable_file),
    ];
    for (name, what, expected) in reports {
        all.push((name, report(client, targets, &what, &mut |_| Ok(())).await?, expected));
    }
    all.push(("cat", cat(client, targets, false, &mut |_| Ok(())).await?, is_readable_file));
    for (name, recursive) in [("grep", false), ("grep -r", true)] {
        let options =
            GrepOptions { patterns: vec!["text".to_owned()], recursive, ..GrepOptions::default() };
        let found = grep(client, targets, &options, &mut |_| Ok(())).await?;
        all.push((
            name,
            found.outcome,
            if recursive { is_readable_tree } else { is_readable_file },
        ));
    }
    for (name, recursive) in [("cp", false), ("cp -r", true)] {
        let options = CopyOptions { sync: false, recursive, ..CopyOptions::default() };
        let got = get(client, targets, &here.join(name), &options, &mut |_| {}).await?;
        assert_eq!((got.lost_here, got.errors.len()), (0, 0));
        all.push((name, got.outcome, if recursive { is_readable_tree } else { is_readable_file }));
    }
    let change = Edit::Chmod {
        mode: NewMode::Change(ModeChange::parse("a-w", 0).unwrap()),
        recursive: true,
        preserve_root: true,
    };
    let options = EditOptions { dry_run: true, ..EditOptions::default() };
    let edited = edit(client, targets, &change, options, &mut |_| Ok(())).await?;
    all.push(("chmod -R", edited.outcome, |path| {
        let (all, is_whole) = seen(path);
        let own = rustix::process::geteuid().as_raw();
        is_whole && all.iter().all(|(_, metadata)| metadata.uid() == own)
    }));
    Ok(all)
}

/// The members: host and path.
fn members(cluster: &Cluster, targets: &[Target]) -> BTreeSet<(u32, PathBuf)> {
    let mut all = BTreeSet::new();
    for target in targets {
        for leaf in target.members.iter() {
            let path = cluster.path(leaf, target.path.trim_end_matches("/*"));
            if target.path.ends_with("/*") {
                all.extend(
                    std::fs::read_dir(path).unwrap().map(|entry| (leaf, entry.unwrap().path())),
                );
            } else {
                all.insert((leaf, path));
            }
        }
    }
    all
}

/// Returns whether some succeeded, and whether some did not.
fn check(
    name: &str,
    outcome: &Outcome,
    members: &BTreeSet<(u32, PathBuf)>,
    is_good: impl Fn(&Path) -> bool,
) -> (bool, bool) {
    let good = members.iter().filter(|(_, path)| is_good(path)).count() as u64;
    let counted = (outcome.status.count, outcome.failed_count());
    assert_eq!(counted, (good, members.len() as u64 - good), "{name}: {outcome:#?}");
    (counted.0 > 0, counted.1 > 0)
}

#[test]
fn every_member_is_counted_once() {
    let mut met: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
    for seed in 0..ROUNDS {
        let mut dice = Dice(seed);
        let here = tempfile::tempdir().unwrap();
        let cluster = Cluster::new(HOSTS);
        set(here.path(), 0o777, None);
        set(cluster.dir.path(), 0o755, None);
        for leaf in 0..HOSTS {
            let dir = cluster.path(leaf, "d");
            std::fs::create_dir(&dir).unwrap();
            grow(&dir.join("always"), 3, &mut dice);
            for name in ["x", "y", "z"] {
                if dice.below(3) > 0 {
                    grow(&dir.join(name), 3, &mut dice);
                }
            }
            set(&dir, 0o777, Some(NOBODY));
        }
        let mut targets = vec![cluster.target("/d/*")];
        if dice.below(2) == 0 {
            // Once more by name, on some hosts.
            targets.push(Target { members: RangeSet::full(2), path: "/d/always".to_owned() });
        }
        unprivileged(|| {
            run(async {
                let client = cluster.client(["flat", "k-ary:2"][dice.below(2) as usize]);
                let all = members(&cluster, &targets);
                for (name, outcome, is_good) in reads(&client, &targets, here.path()).await.unwrap()
                {
                    let (good, bad) = check(&format!("{seed} {name}"), &outcome, &all, is_good);
                    let met = met.entry(name).or_default();
                    *met = (met.0 || good, met.1 || bad);
                }
                let options =
                    ReadOptions { aggregate: "count".to_owned(), ..ReadOptions::default() };
                for readout in read(&client, &targets[..1], &options).await.unwrap() {
                    let all = members(&cluster, &targets[..1]);
                    check(&format!("{seed} read"), &readout.outcome, &all, is_readable_file);
                }
                let rm = Edit::Remove {
                    recursive: true,
                    force: true,
                    empty_dirs: false,
                    preserve_root: true,
                };
                let rm =
                    edit(&client, &targets, &rm, EditOptions::default(), &mut |_| Ok(())).await;
                check(&format!("{seed} rm -r"), &rm.unwrap().outcome, &all, |path| !path.exists());
            });
        });
    }
    // Both have been met of each command, as far as there are both.
    let missing: Vec<_> =
        met.iter().filter(|(name, met)| **met != (true, **name != "stat")).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Of a copy to hosts the destination of each is its member, however many files fail in it.
#[test]
fn destination_is_the_member_of_a_copy_to_hosts() {
    let here = tempfile::tempdir().unwrap();
    set(here.path(), 0o755, None);
    let sources: Vec<PathBuf> = (0..5).map(|n| here.path().join(format!("f{n}"))).collect();
    sources.iter().for_each(|path| std::fs::write(path, "text").unwrap());
    let cluster = Cluster::new(HOSTS);
    set(cluster.dir.path(), 0o755, None);
    (0..HOSTS)
        .for_each(|leaf| set(&cluster.path(leaf, ""), if leaf == 1 { 0o755 } else { 0o777 }, None));
    // Where tests do not run as root, the directory is that user's own.
    if !rustix::process::geteuid().is_root() {
        set(&cluster.path(1, ""), 0o555, None);
    }
    unprivileged(|| {
        run(async {
            let client = cluster.client("flat");
            let copied = |paths: Vec<PathBuf>| {
                let sources = paths.into_iter().map(Source::Path).collect();
                let client = &client;
                let target = cluster.target("/");
                async move {
                    let options = CopyOptions { sync: false, ..CopyOptions::default() };
                    put(client, sources, &target, &options, &mut |_| {}).await.unwrap()
                }
            };
            let put = copied(sources.clone()).await;
            assert_eq!((put.outcome.errors.len(), put.errors.len()), (5, 0));
            assert_eq!((put.outcome.status.count, put.outcome.failed_count()), (2, 1));
            // What is not here is asked of no host.
            let put = copied(vec![here.path().join("missing")]).await;
            assert_eq!(
                (put.outcome.status.count, put.outcome.failed_count(), put.errors.len()),
                (0, 0, 1)
            );
        });
    });
}

/// What cannot be written here has not come, either.
#[test]
fn copy_that_cannot_be_written_here_is_no_success() {
    let here = tempfile::tempdir().unwrap();
    let cluster = Cluster::new(HOSTS);
    for leaf in 0..HOSTS {
        cluster.write(leaf, "d/a", "text");
        cluster.write(leaf, "d/b", "other");
    }
    // A file is where the directory of a host has to be, and a directory where a file has to be.
    std::fs::write(here.path().join("n1"), "").unwrap();
    std::fs::create_dir_all(here.path().join("n2/a")).unwrap();
    run(async {
        let client = cluster.client("flat");
        let options = CopyOptions { sync: false, ..CopyOptions::default() };
        let targets = [cluster.target("/d/*")];
        let got = get(&client, &targets, here.path(), &options, &mut |_| {}).await.unwrap();
        let counted =
            (got.outcome.status.count, got.outcome.failed_count(), got.lost_here, got.errors.len());
        assert_eq!(counted, (3, 0, 3, 3), "{got:?}");
    });
}
