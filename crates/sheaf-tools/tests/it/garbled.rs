//! A host whose answers are malformed fails alone and by name.
use crate::cp::cluster::{Cluster, run};
use sheaf_core::{Errno, RangeSet};
use sheaf_file::Algorithm;
use sheaf_group::entry::{AnswerForm, Entry, EntryKind, Merged, Sink};
use sheaf_group::tool::{Host, Reply, Running, Step, Tool, Tools};
use sheaf_group::{Client, Outcome};
use sheaf_tools::about::about;
use sheaf_tools::cp::{CopyOptions, get};
use sheaf_tools::grep::{GrepOptions, grep};
use sheaf_tools::report::{ReportChoice, report};
use sheaf_tree::Notice;
use std::sync::Arc;

/// The tools that a liar has in place of those of Sheaf.
const NAMES: [&str; 4] = ["grep", "report", "cp.manifest", "about"];

/// How a host lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// Many bytes that are no answer.
    Long,
    /// Few bytes, which travel with their digest.
    Short,
    /// An answer of the other form.
    Mixed,
    /// An end without a word.
    Nothing,
}

/// The tool of this name, which lies on one host.
struct Liar {
    name: &'static str,
    real: Arc<Tools>,
    host: u32,
    lie: Lie,
}

struct Lying {
    lie: Lie,
}

impl Tool for Liar {
    fn start(&self, params: &[u8], host: &Host) -> Result<Box<dyn Running>, Errno> {
        if host.leaf == self.host {
            return Ok(Box::new(Lying { lie: self.lie }));
        }
        self.real.get(self.name)?.start(params, host)
    }
}

impl Running for Lying {
    fn step(&mut self, answer: &mut Reply, _: &Host) -> Step {
        match self.lie {
            Lie::Long => answer.bytes().extend_from_slice(&[0xff; 5000]),
            Lie::Short => answer.bytes().extend_from_slice(&[0xff; 40]),
            Lie::Mixed => {
                let answer = answer.entries_with(AnswerForm { ordered: true, stats: false });
                answer.path(b"/file");
                let _ = answer.entry(Entry::new(EntryKind::Line, b"a lie"));
            }
            Lie::Nothing => {}
        }
        Step::Done
    }
}

fn client(cluster: &Cluster, shape: &str, host: u32, lie: Lie) -> Client {
    let (mut tools, real) = (sheaf_tools::tools(), Arc::new(sheaf_tools::tools()));
    for name in NAMES {
        tools.register(name, Liar { name, real: Arc::clone(&real), host, lie });
    }
    cluster.session_with(shape, tools)
}

fn assert_alone(outcome: &Outcome, host: u32, what: &str) {
    let expected = [(Errno::PROTO, RangeSet::single(host))];
    assert_eq!(outcome.failed, expected, "{what}: {outcome:?}");
    assert!(outcome.silent.is_empty() && outcome.errors.is_empty(), "{what}: {outcome:?}");
}

/// Each command that decodes answers, with a liar at each place of trees of these shapes.
async fn ask(cluster: &Cluster, client: &Client, host: u32, lie: Lie) {
    let targets = [cluster.target("/file")];
    let others = RangeSet::full(cluster.hosts).difference(&RangeSet::single(host));
    let mut lines = Vec::new();
    let options = GrepOptions { patterns: vec!["needle".to_owned()], ..GrepOptions::default() };
    let mut sink = |merged: &Merged| {
        lines.extend(merged.sorted().iter().map(|entry| entry.leaves.clone()));
        Ok(())
    };
    let found = grep(client, &targets, &options, &mut sink).await.unwrap();
    assert_eq!(lines, std::slice::from_ref(&others), "{lie:?} {host}");
    assert_alone(&found.outcome, host, "grep");
    let mut lines = RangeSet::new();
    let mut sink = |merged: &Merged| {
        merged.sorted().iter().for_each(|entry| lines.union_with(entry.leaves));
        Ok(())
    };
    let digest = ReportChoice::Digest(Algorithm::Sha256);
    let outcome = report(client, &targets, &digest, &mut sink).await.unwrap();
    assert_alone(&outcome, host, "sha");
    assert_eq!(lines, others);
    if lie == Lie::Mixed {
        return;
    }
    if lie != Lie::Nothing {
        let (servers, outcome) = about(client, &RangeSet::full(cluster.hosts)).await.unwrap();
        assert_eq!(servers.len() as u64, others.len());
        assert_alone(&outcome, host, "about");
    }
    let to = tempfile::tempdir().unwrap();
    let quick = CopyOptions { sync: false, ..CopyOptions::default() };
    let got = get(client, &targets, to.path(), &quick, &mut |_| {}).await.unwrap();
    assert_alone(&got.outcome, host, "cp");
    assert_eq!((got.files, got.outcome.status.count), (others.len(), others.len()));
}

/// It would be missing among the answers, with exit status 0.
#[test]
fn host_that_says_nothing_of_its_paths_has_failed() {
    let cluster = Cluster::new(5);
    cluster.write_all("file", "needle\n");
    for shape in ["flat", "k-ary:2"] {
        for host in [0, 4] {
            run(async {
                let client = client(&cluster, shape, host, Lie::Nothing);
                ask(&cluster, &client, host, Lie::Nothing).await;
            });
        }
    }
}

#[test]
fn malformed_answer_fails_its_own_host_alone() {
    let cluster = Cluster::new(5);
    cluster.write_all("file", "needle\n");
    for lie in [Lie::Long, Lie::Short, Lie::Mixed] {
        for shape in ["flat", "k-ary:2", "1x1x5"] {
            for host in [0, 2, 4] {
                run(async {
                    let client = client(&cluster, shape, host, lie);
                    ask(&cluster, &client, host, lie).await;
                    let told = |notice: &Notice| {
                        matches!(notice, Notice::Garbled { leaves, .. }
                            if *leaves == RangeSet::single(host))
                    };
                    let notices = client.network().notices();
                    let told = notices.iter().filter(|notice| told(notice)).count();
                    assert!(told > 0, "{lie:?} {shape} {host}: {notices:?}");
                });
            }
        }
    }
}
