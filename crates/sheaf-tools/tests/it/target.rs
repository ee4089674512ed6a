//! What a pattern stands for on each host, and what cannot be looked for.
use crate::cp::cluster::{Cluster, run};
use sheaf_core::Errno;
use sheaf_file::{Algorithm, ModeChange};
use sheaf_group::entry::{AnswerForm, Entry, EntryKind, Merged, Sink};
use sheaf_group::tool::{Host, Reply, Running, Step, Tool, Tools};
use sheaf_group::{Client, Outcome};
use sheaf_testing::as_nobody;
use sheaf_tools::cp::{CopyOptions, get};
use sheaf_tools::edit::{Edit, EditOptions, NewMode, WriteOptions, WriteWay, edit, write};
use sheaf_tools::grep::{GrepOptions, GrepOutput, grep};
use sheaf_tools::read::{ReadOptions, read};
use sheaf_tools::report::list::ListOptions;
use sheaf_tools::report::stat::StatOptions;
use sheaf_tools::report::{ReportChoice, UsageReportOptions, cat, report};
use sheaf_tools::{Target, ToolError};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn errors(outcome: &Outcome) -> Vec<(Errno, &str, String)> {
    let errors = outcome.errors.iter();
    let mut errors: Vec<_> = errors
        .map(|error| (error.errno, error.path.as_str(), error.members.leaves().to_string()))
        .collect();
    errors.sort();
    errors
}

/// Every tool's outcome of the same target, by name.
async fn all(
    client: &Client,
    target: &Target,
    here: &Path,
) -> Result<Vec<(&'static str, Outcome)>, ToolError> {
    let (mut all, targets) = (Vec::new(), [target.clone()]);
    let reports = [
        ("ls", ReportChoice::List(ListOptions::default())),
        ("stat", ReportChoice::Stat(StatOptions::default())),
        ("du", ReportChoice::Usage(UsageReportOptions::default())),
        ("sha", ReportChoice::Digest(Algorithm::Sha256)),
    ];
    for (name, what) in reports {
        all.push((name, report(client, &targets, &what, &mut |_| Ok(())).await?));
    }
    all.push(("cat", cat(client, &targets, false, &mut |_| Ok(())).await?));
    let options = GrepOptions { patterns: vec!["x".to_owned()], ..GrepOptions::default() };
    all.push(("grep", grep(client, &targets, &options, &mut |_| Ok(())).await?.outcome));
    let change = ModeChange::parse("u+r", 0).unwrap();
    let change =
        Edit::Chmod { mode: NewMode::Change(change), recursive: false, preserve_root: true };
    let quietly = EditOptions::default();
    all.push(("chmod", edit(client, &targets, &change, quietly, &mut |_| Ok(())).await?.outcome));
    // Whoever is nobody may not put a file beside.
    let options = WriteOptions { way: WriteWay::InPlace, ..WriteOptions::default() };
    let source = Box::new(&b"new"[..]);
    let written = write(client, &targets, &options, quietly, source, &mut |_| Ok(())).await?;
    all.push(("write", written.outcome));
    let options = ReadOptions { aggregate: "count".to_owned(), ..ReadOptions::default() };
    for readout in read(client, &targets, &options).await? {
        all.push(("read", readout.outcome));
    }
    let options = CopyOptions { sync: false, ..CopyOptions::default() };
    all.push((
        "cp",
        get(client, &targets, &here.join("got"), &options, &mut |_| {}).await?.outcome,
    ));
    Ok(all)
}

#[test]
fn pattern_that_cannot_be_evaluated_fails_in_every_tool() {
    let here = tempfile::tempdir().unwrap();
    let cluster = Cluster::new(4);
    mode(here.path(), 0o777);
    mode(cluster.dir.path(), 0o755);
    for leaf in 0..4 {
        cluster.write(leaf, "d/file", "x");
        mode(&cluster.path(leaf, "d/file"), 0o666);
        let _ = std::os::unix::fs::chown(cluster.path(leaf, "d/file"), Some(65534), None);
    }
    mode(&cluster.path(1, "d"), 0o700);
    mode(&cluster.path(2, "d"), 0o711);
    as_nobody(|| {
        run(async {
            let client = cluster.client("1x2x2");
            for (name, outcome) in
                all(&client, &cluster.target("/d/f*"), here.path()).await.unwrap()
            {
                assert_eq!(errors(&outcome), [(Errno::ACCES, "/d", "1-2".to_owned())], "{name}");
                assert!(outcome.status.count > 0, "{name}: {outcome:?}");
            }
            for (name, outcome) in
                all(&client, &cluster.target("/*/file"), here.path()).await.unwrap()
            {
                assert_eq!(errors(&outcome), [(Errno::ACCES, "/d/file", "1".to_owned())], "{name}");
            }
        });
    });
}

#[test]
fn names_in_braces_are_asked_for_by_name() {
    let here = tempfile::tempdir().unwrap();
    let cluster = Cluster::new(3);
    for leaf in 0..3 {
        cluster.write(leaf, "a", "x");
    }
    cluster.write(0, "b", "x");
    run(async {
        let client = cluster.client("flat");
        let cases = [
            ("/{a,missing}", vec![(Errno::NOENT, "/missing", "0-2".to_owned())]),
            ("/{a,b}", vec![(Errno::NOENT, "/b", "1-2".to_owned())]),
            // Something must match somewhere, not everywhere.
            ("/{a,b*}", vec![]),
            ("/b*", vec![]),
            ("/z*", vec![(Errno::NOENT, "/z*", "0-2".to_owned())]),
        ];
        for (pattern, expected) in cases {
            for (name, outcome) in
                all(&client, &cluster.target(pattern), here.path()).await.unwrap()
            {
                assert_eq!(errors(&outcome), expected, "{name} {pattern}");
            }
        }
        // A name that looks like a pattern is no pattern's failure on the hosts that lack it.
        cluster.write(0, "b*", "x");
        for (name, outcome) in all(&client, &cluster.target("/b\\*"), here.path()).await.unwrap() {
            assert_eq!(errors(&outcome), [(Errno::NOENT, "/b*", "1-2".to_owned())], "{name}");
        }
    });
}

/// One of several patterns that matches nowhere is not hidden by the others.
#[test]
fn each_pattern_matches_somewhere_or_is_named() {
    let cluster = Cluster::new(3);
    (0..3).for_each(|leaf| cluster.write(leaf, "a", "1\n"));
    run(async {
        let client = cluster.client("flat");
        let targets = [cluster.target("/a*"), cluster.target("/z*")];
        let options = ReadOptions { aggregate: "sum".to_owned(), ..ReadOptions::default() };
        let readouts = read(&client, &targets, &options).await.unwrap();
        let expected = [(Errno::NOENT, "/z*", "0-2".to_owned())];
        assert_eq!(
            readouts.iter().map(|one| errors(&one.outcome)).collect::<Vec<_>>(),
            [expected.to_vec()]
        );
        let said =
            report(&client, &targets, &ReportChoice::Digest(Algorithm::Sha256), &mut |_| Ok(()))
                .await
                .unwrap();
        assert_eq!(errors(&said), expected);
    });
}

/// `grep -o -v` has nothing to print, and looks at every file all the same.
#[test]
fn search_without_output_misses_no_failure() {
    let cluster = Cluster::new(2);
    (0..2).for_each(|leaf| cluster.write(leaf, "a", "line\n"));
    run(async {
        let options = GrepOptions {
            patterns: vec!["zzz".to_owned()],
            invert: true,
            output: GrepOutput::Parts,
            ..GrepOptions::default()
        };
        let targets = [cluster.target("/a"), cluster.target("/missing")];
        let found =
            grep(&cluster.client("flat"), &targets, &options, &mut |_| Ok(())).await.unwrap();
        assert!(found.matched);
        assert_eq!(errors(&found.outcome), [(Errno::NOENT, "/missing", "0-1".to_owned())]);
    });
}

#[test]
fn mkdir_creates_names_in_all_matching_directories() {
    let cluster = Cluster::new(2);
    cluster.write(0, "d1/f", "");
    cluster.write(0, "d2/f", "");
    cluster.write(1, "d3/f", "");
    run(async {
        let client = cluster.client("flat");
        let mkdir = Edit::Mkdir { parents: false, mode: None };
        let (targets, quietly) = ([cluster.target("/d*/{x,y}")], EditOptions::default());
        let made = edit(&client, &targets, &mkdir, quietly, &mut |_| Ok(())).await.unwrap().outcome;
        assert_eq!((errors(&made), made.status.count), (vec![], 6));
        assert!(cluster.path(0, "d2/x").is_dir() && cluster.path(1, "d3/y").is_dir());
    });
}

/// A host that answers with these entries, whatever it is asked.
struct Liar(Vec<(EntryKind, &'static str)>);

impl Tool for Liar {
    fn start(&self, _: &[u8], host: &Host) -> Result<Box<dyn Running>, Errno> {
        if host.leaf == 1 { Ok(Box::new(Self(self.0.clone()))) } else { Err(Errno::NOENT) }
    }
}

impl Running for Liar {
    fn step(&mut self, answer: &mut Reply, _: &Host) -> Step {
        let answer = answer.entries_with(AnswerForm::default());
        answer.path(b"/f");
        for (kind, text) in self.0.drain(..) {
            let _ = answer.entry(Entry::new(kind, text.as_bytes()));
        }
        Step::Done
    }
}

/// What is shown as it comes cannot be another host's line, nor anything for the terminal.
#[test]
fn entries_that_are_none_fail_their_host() {
    const DIGEST: &str = "d2a84f4b8b650937ec8f73cd8be2c74add5a911ba64df27458ed8229da804a26";
    let lines = GrepOptions { patterns: vec!["x".to_owned()], ..GrepOptions::default() };
    let counts = GrepOptions { output: GrepOutput::Count, ..lines.clone() };
    let cases = [
        (None, EntryKind::Line, DIGEST, true),
        (None, EntryKind::Line, "d2\u{1b}]0;x\u{7}\nd2", false),
        (None, EntryKind::Line, &DIGEST[1..], false),
        (Some(&lines), EntryKind::Line, "a line", true),
        (Some(&lines), EntryKind::Line, "a line\nn1:/f:x", false),
        (Some(&lines), EntryKind::Count, "7", false),
        (Some(&counts), EntryKind::Count, "7", true),
        (Some(&counts), EntryKind::Count, "7\u{1b}[2J", false),
        (Some(&counts), EntryKind::Line, "a line", false),
    ];
    for (options, kind, text, is_answer) in cases {
        let cluster = Cluster::new(2);
        let mut tools = Tools::default();
        tools.register(if options.is_some() { "grep" } else { "report" }, Liar(vec![(kind, text)]));
        run(async {
            let client = cluster.session_with("flat", tools);
            let targets = [cluster.target("/f")];
            let mut shown = 0;
            let mut show = |merged: &Merged| {
                shown += merged.sorted().len();
                Ok(())
            };
            let outcome = match options {
                Some(options) => grep(&client, &targets, options, &mut show).await.unwrap().outcome,
                None => {
                    let choice = ReportChoice::Digest(Algorithm::Sha256);
                    report(&client, &targets, &choice, &mut show).await.unwrap()
                }
            };
            let failed =
                outcome.failed.iter().any(|(errno, of)| *errno == Errno::PROTO && of.contains(1));
            assert_eq!((shown, failed), (usize::from(is_answer), !is_answer), "{kind:?} {text:?}");
        });
    }
}
