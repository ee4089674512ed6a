//! Trees whose paths are longer than the kernel takes at once.
use crate::cp::cluster::{Cluster, run};
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};
use sheaf_core::RangeSet;
use sheaf_file::{Algorithm, Export, ModeChange, WalkOptions};
use sheaf_tools::cp::{CopyOptions, Source, get, put};
use sheaf_tools::edit::{Edit, EditOptions, NewMode, edit};
use sheaf_tools::grep::{GrepOptions, grep};
use sheaf_tools::report::list::ListOptions;
use sheaf_tools::report::{ReportChoice, UsageReportOptions, cat, report};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How many directories lie in one another.
const DEPTH: usize = 30;

/// Makes directories with names of 200 bytes in one another and a file in each: `z`, the last of
/// them too long to come along with an answer.
fn beyond_a_path(dir: &Path) {
    let name = "d".repeat(200);
    // All was changed at one time: hosts' rows of a list are equal whenever they were made.
    let time = Timespec { tv_sec: 1_700_000_000, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    let mut directories = Vec::new();
    let mut open = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    for depth in 1..=DEPTH {
        rustix::fs::mkdirat(&open, &name, Mode::from_raw_mode(0o755)).unwrap();
        open = rustix::fs::openat(&open, &name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
            .unwrap();
        let file = rustix::fs::openat(
            &open,
            "z",
            OFlags::WRONLY | OFlags::CREATE,
            Mode::from_raw_mode(0o644),
        );
        let text = format!("level {depth}\n").repeat(if depth == DEPTH { 20_000 } else { 1 });
        let mut file = std::fs::File::from(file.unwrap());
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        rustix::fs::futimens(&file, &times).unwrap();
        directories.push(open.try_clone().unwrap());
    }
    rustix::fs::symlinkat("z", &open, "link").unwrap();
    rustix::fs::utimensat(&open, "link", &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    directories.iter().for_each(|directory| rustix::fs::futimens(directory, &times).unwrap());
}

/// Every path beneath a directory, with what is in files and the mode of all.
fn contents(dir: &Path) -> BTreeMap<PathBuf, (u32, Option<String>)> {
    let export = Export::open(dir).unwrap();
    let options = WalkOptions { metadata: true, ..WalkOptions::default() };
    let entries = export.walk(Path::new("/"), options).map(|entry| {
        let entry = entry.unwrap();
        let text =
            export.open_read(&entry.path).ok().map(|file| std::io::read_to_string(file).unwrap());
        (entry.path, (entry.metadata.unwrap().mode, text))
    });
    entries.collect()
}

#[test]
fn tools_reach_what_lies_beyond_a_path() {
    let cluster = Cluster::new(2);
    (0..2).for_each(|leaf| beyond_a_path(&cluster.path(leaf, "")));
    let expected = contents(&cluster.path(0, ""));
    assert_eq!(expected.len(), 1 + 2 * DEPTH + 1);
    run(async {
        let client = cluster.client("flat");
        let targets = [cluster.target("/")];
        let list = ReportChoice::List(ListOptions {
            recursive: true,
            long: true,
            ..ListOptions::default()
        });
        let usage =
            ReportChoice::Usage(UsageReportOptions { all: true, ..UsageReportOptions::default() });
        for (what, lines) in [(list, 2 * DEPTH + 1), (usage, 2 * DEPTH + 2)] {
            let mut said = 0;
            let outcome = report(&client, &targets, &what, &mut |merged| {
                said += merged.sorted().len();
                Ok(())
            })
            .await
            .unwrap();
            assert!(outcome.is_ok());
            assert_eq!(said, lines);
        }
        let options = GrepOptions {
            patterns: vec!["level".to_owned()],
            recursive: true,
            ..GrepOptions::default()
        };
        let mut lines = 0;
        let found = grep(&client, &targets, &options, &mut |merged| {
            lines += merged.sorted().len();
            Ok(())
        })
        .await
        .unwrap();
        assert!(found.outcome.is_ok());
        assert_eq!(lines, DEPTH);
        let files = [cluster.target("/**/z")];
        let digest = ReportChoice::Digest(Algorithm::Sha256);
        let outcome = report(&client, &files, &digest, &mut |_| Ok(())).await.unwrap();
        assert!(outcome.is_ok() && outcome.status.count == 2 * DEPTH as u64, "{outcome:?}");
        let mut bytes = 0;
        let outcome = cat(&client, &files, false, &mut |piece| {
            bytes += piece.bytes.len();
            Ok(())
        })
        .await
        .unwrap();
        assert!(outcome.is_ok());
        let files = expected.iter().filter(|(path, _)| path.ends_with("z"));
        assert_eq!(
            bytes,
            files.filter_map(|(_, (_, text))| text.as_ref()).map(String::len).sum::<usize>()
        );
    });
}

#[test]
fn copies_and_changes_reach_what_lies_beyond_a_path() {
    let here = tempfile::tempdir().unwrap();
    beyond_a_path(here.path());
    let expected = contents(here.path());
    let options = CopyOptions { sync: false, ..CopyOptions::archive() };
    let cluster = Cluster::new(2);
    run(async {
        let client = cluster.client("flat");
        let sources = vec![Source::Path(here.path().to_owned())];
        let done =
            put(&client, sources, &cluster.target("/to"), &options, &mut |_| {}).await.unwrap();
        assert!(
            done.outcome.is_ok() && done.errors.is_empty(),
            "{:?} {:?}",
            done.outcome,
            done.errors
        );
        assert!(contents(&cluster.path(1, "to")) == expected);
        let back = tempfile::tempdir().unwrap();
        let got = get(&client, &[cluster.target("/to/.")], back.path(), &options, &mut |_| {})
            .await
            .unwrap();
        assert!(got.outcome.is_ok() && got.errors.is_empty(), "{:?} {:?}", got.outcome, got.errors);
        assert!(contents(&back.path().join("n2")) == expected);
        let change = ModeChange::parse("go=", 0).unwrap();
        let change =
            Edit::Chmod { mode: NewMode::Change(change), recursive: true, preserve_root: true };
        let quietly = EditOptions::default();
        assert!(
            edit(&client, &[cluster.target("/to")], &change, quietly, &mut |_| Ok(()))
                .await
                .unwrap()
                .outcome
                .is_ok()
        );
        let modes = contents(&cluster.path(0, "to"));
        assert_eq!(modes.values().filter(|(mode, _)| mode & 0o077 == 0).count(), 2 * DEPTH + 1);
        let remove =
            Edit::Remove { recursive: true, force: false, empty_dirs: false, preserve_root: true };
        let one = sheaf_tools::Target { members: RangeSet::single(0), ..cluster.target("/to") };
        assert!(
            edit(&client, &[one], &remove, quietly, &mut |_| Ok(())).await.unwrap().outcome.is_ok()
        );
        assert!(!cluster.path(0, "to").exists() && cluster.path(1, "to").exists());
    });
}
