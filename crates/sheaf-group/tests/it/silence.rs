//! A deadline bounds silence, not work: hosts that hang are given up, hosts that are at work are
//! not.
use crate::cluster::{Cluster, run};
use bytes::Bytes;
use sheaf_core::{Errno, RangeSet};
use sheaf_file::{Mode, OFlags};
use sheaf_group::entry::{Entry, EntryKind, Merged, Sink};
use sheaf_group::tool::{Host, Reply, Running, Step, Tool, Tools};
use sheaf_group::{Client, GroupError, Limits, THREADS_MAX};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Takes input in. The host with this leaf first opens a pipe that nobody writes to: it hangs in a
/// system call, as on a disk that is frozen.
struct Hang;
struct Hanging {
    hangs: bool,
    input: Vec<u8>,
}

const HUNG: u32 = 2;

impl Tool for Hang {
    fn start(&self, _: &[u8], host: &Host) -> Result<Box<dyn Running>, Errno> {
        Ok(Box::new(Hanging { hangs: host.leaf == HUNG, input: Vec::new() }))
    }
}

impl Hanging {
    fn hang(&mut self, host: &Host) {
        if std::mem::take(&mut self.hangs) {
            let opened = host.export.open_file(Path::new("pipe"), OFlags::RDONLY, Mode::empty());
            drop(opened);
        }
    }
}

impl Running for Hanging {
    fn feed(&mut self, data: Bytes, host: &Host) {
        if data.starts_with(b"hang") {
            self.hang(host);
        }
        self.input.extend_from_slice(&data);
    }

    fn step(&mut self, answer: &mut Reply, host: &Host) -> Step {
        self.hang(host);
        answer.bytes().append(&mut self.input);
        Step::Done
    }
}

/// One long step that shows that it is at work, or many short ones.
struct Work;
struct Working {
    ends: Instant,
    short: bool,
    said: bool,
}

/// How long it works, which is many times what a host may be silent.
const WORK: Duration = Duration::from_millis(2500);
const SILENCE: Duration = Duration::from_millis(500);
/// How long one that hangs may be silent: on a machine that has much to do the others must not seem
/// to.
const HUNG_SILENCE: Duration = Duration::from_secs(3);

impl Tool for Work {
    fn start(&self, params: &[u8], host: &Host) -> Result<Box<dyn Running>, Errno> {
        // One of them is done at once.
        let work = if host.leaf == 1 { Duration::ZERO } else { WORK };
        Ok(Box::new(Working {
            ends: Instant::now() + work,
            short: params == b"short",
            said: false,
        }))
    }
}

impl Running for Working {
    fn step(&mut self, answer: &mut Reply, host: &Host) -> Step {
        let answer = answer.entries();
        answer.path(b"/work");
        if !std::mem::replace(&mut self.said, true) {
            let _ = answer.entry(Entry::new(EntryKind::Line, b"begun"));
        }
        while Instant::now() < self.ends && !host.should_stop() {
            std::thread::sleep(Duration::from_millis(2));
            if self.short {
                return Step::More;
            }
        }
        if Instant::now() < self.ends {
            return Step::More;
        }
        let _ = answer.entry(Entry::new(EntryKind::Line, b"done"));
        Step::Done
    }
}

/// Takes each packet of its input in slowly, and shows that it is at it; answers with how much it was, and how many
/// packets.
struct Slow;
#[derive(Default)]
struct SlowInput(usize, u8);

impl Tool for Slow {
    fn start(&self, _: &[u8], _: &Host) -> Result<Box<dyn Running>, Errno> {
        Ok(Box::new(SlowInput::default()))
    }
}

impl Running for SlowInput {
    fn feed(&mut self, data: Bytes, host: &Host) {
        for _ in 0..25 {
            std::thread::sleep(Duration::from_millis(5));
            assert!(!host.should_stop());
        }
        (self.0, self.1) = (self.0 + data.len(), self.1 + 1);
    }

    fn step(&mut self, answer: &mut Reply, _: &Host) -> Step {
        answer.bytes().extend([self.0 as u8, self.1]);
        Step::Done
    }
}

fn tools() -> Tools {
    let mut tools = Tools::default();
    tools.register("hang", Hang);
    tools.register("work", Work);
    tools.register("slow", Slow);
    tools
}

fn client(cluster: &Cluster, shape: &str, limits: Limits) -> Client {
    cluster.session_with(shape, tools()).with_limits(limits)
}

/// Lets go whoever hangs at the pipe, or the test would not end.
struct Release(PathBuf);

impl Drop for Release {
    fn drop(&mut self) {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = OFlags::NONBLOCK.bits() as i32;
        // Nobody reads it if nobody hangs there.
        let _ = std::fs::OpenOptions::new().write(true).custom_flags(flags).open(&self.0);
    }
}

fn with_pipe(hosts: u32) -> (Cluster, PathBuf) {
    let cluster = Cluster::new(hosts);
    let pipe = cluster.path(HUNG, "pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    (cluster, pipe)
}

/// Everybody else's answer is whole, and the one that hangs is named.
fn only_one_is_missing(
    classes: &[sheaf_group::Class],
    outcome: &sheaf_group::Outcome,
    input: &[u8],
    hosts: u32,
) {
    let silent: RangeSet = RangeSet::single(HUNG);
    assert_eq!(outcome.silent, [(Errno::TIMEDOUT, silent.clone())]);
    assert_eq!((outcome.status.count, outcome.failed_count()), (u64::from(hosts) - 1, 1));
    let whole: Vec<_> = classes.iter().filter(|class| class.len > 0).collect();
    assert_eq!(whole.len(), 1);
    assert_eq!(whole[0].members.leaves(), RangeSet::full(hosts).difference(&silent));
    assert!(whole[0].body.as_deref() == Some(input));
}

#[test]
fn host_that_hangs_holds_no_input_back() {
    for shape in ["flat", "k-ary:2"] {
        let (cluster, pipe) = with_pipe(5);
        run(async {
            let _release = Release(pipe);
            let limits = Limits::default().with_timeout(HUNG_SILENCE);
            let client = client(&cluster, shape, limits);
            let mut call = client.call(&cluster.everyone(), "hang", b"").unwrap();
            // Many times what may be under way; it hangs in the middle.
            let mut input = Vec::new();
            for at in 0..24u8 {
                let mut packet = vec![at; 1 << 20];
                packet[..4].copy_from_slice(if at == 3 { b"hang" } else { b"more" });
                call.feed(&packet).await;
                input.extend_from_slice(&packet);
            }
            assert!(call.has_hosts());
            let classes = call.next_bodies().await.unwrap();
            only_one_is_missing(&classes, call.outcome(), &input, 5);
        });
    }
}

#[test]
fn input_in_tiny_packets_reaches_everybody() {
    let (cluster, pipe) = with_pipe(4);
    run(async {
        let _release = Release(pipe);
        let limits = Limits::default().with_timeout(HUNG_SILENCE);
        let client = client(&cluster, "flat", limits);
        let mut call = client.call(&cluster.everyone(), "hang", b"").unwrap();
        let mut input = Vec::new();
        for at in 0..5000u32 {
            let packet = if at == 100 { b"hang".to_vec() } else { at.to_be_bytes().to_vec() };
            call.feed(&packet).await;
            input.extend_from_slice(&packet);
        }
        let classes = call.next_bodies().await.unwrap();
        only_one_is_missing(&classes, call.outcome(), &input, 4);
    });
}

#[test]
fn host_that_hangs_over_its_answer_loses_nobody_elses() {
    for shape in ["flat", "1x1x300", "k-ary:2"] {
        let (cluster, pipe) = with_pipe(5);
        run(async {
            let _release = Release(pipe);
            let limits = Limits::default().with_timeout(HUNG_SILENCE);
            let client = client(&cluster, shape, limits);
            let mut call = client.call(&cluster.everyone(), "hang", b"").unwrap();
            call.feed(b"text").await;
            let begun = Instant::now();
            let classes = call.next_bodies().await.unwrap();
            assert!(begun.elapsed() >= HUNG_SILENCE / 2);
            only_one_is_missing(&classes, call.outcome(), b"text", 5);
        });
    }
}

/// Each thread that hangs is one less, and nobody notices before the last.
#[test]
fn requests_that_hang_hold_no_other_up_until_no_thread_is_left() {
    let (cluster, pipe) = with_pipe(HUNG + 1);
    cluster.write_all("f", "text");
    run(async {
        let release = Release(pipe);
        let client =
            client(&cluster, "flat", Limits::default().with_timeout(Duration::from_secs(120)));
        let hung = RangeSet::single(HUNG);
        let hang = |count: usize| {
            for _ in 0..count {
                let mut call = client.call(&hung, "hang", b"").unwrap();
                tokio::spawn(async move { call.next_bodies().await.map(drop) });
            }
        };
        hang(THREADS_MAX - 2);
        let everyone = cluster.everyone();
        let group = client.gopenat(&everyone, "/f", 0, 0).await.unwrap();
        assert_eq!(group.size(), everyone.len());
        hang(2);
        let begun = Instant::now();
        let outcome = loop {
            match client.gopenat(&hung, "/f", 0, 0).await {
                Err(GroupError::Members(outcome)) => break outcome,
                // The last two may be on their way.
                other => {
                    assert!(other.is_ok() && begun.elapsed() < Duration::from_secs(60), "{other:?}")
                }
            }
        };
        assert_eq!(outcome.failed, [(Errno::AGAIN, hung.clone())]);
        let mut call = client.call(&hung, "work", b"").unwrap();
        let mut merged = Merged::new();
        while call.next_entries(&mut merged).await.unwrap() {}
        assert_eq!(call.finish().failed, [(Errno::AGAIN, hung.clone())]);
        drop(release);
        assert_eq!(client.gopenat(&hung, "/f", 0, 0).await.unwrap().size(), 1);
    });
}

#[test]
fn hosts_at_work_are_waited_for() {
    let cluster = Cluster::new(6);
    for (shape, params) in [("k-ary:2", &b"long"[..]), ("flat", b"short"), ("1x1x300", b"long")] {
        run(async {
            let limits = Limits::default().with_timeout(SILENCE);
            let client = client(&cluster, shape, limits);
            let mut call = client.call(&cluster.everyone(), "work", params).unwrap();
            let (mut merged, mut batches, begun) = (Merged::new(), 1, Instant::now());
            while call.next_entries(&mut merged).await.unwrap() {
                batches += 1;
            }
            assert!(begun.elapsed() >= WORK);
            assert!(batches > 2, "{batches}");
            let outcome = call.finish();
            assert!(outcome.is_ok(), "{shape} {params:?}: {outcome:?}");
            let said: Vec<_> = merged
                .sorted()
                .iter()
                .map(|entry| (entry.entry.text.to_vec(), entry.leaves.clone()))
                .collect();
            let everyone = cluster.everyone();
            assert_eq!(said, [(b"begun".to_vec(), everyone.clone()), (b"done".to_vec(), everyone)]);
        });
    }
}

/// All of it may be under way to them, and takes many times what a host may be silent.
#[test]
fn hosts_that_take_input_slowly_are_waited_for() {
    let cluster = Cluster::new(3);
    for shape in ["flat", "1x1x300"] {
        run(async {
            let limits = Limits::default().with_timeout(SILENCE);
            let client = client(&cluster, shape, limits);
            let mut call = client.call(&cluster.everyone(), "slow", b"").unwrap();
            let begun = Instant::now();
            for _ in 0..20 {
                call.feed(b"x").await;
            }
            assert!(begun.elapsed() < WORK, "nobody waits for room");
            let mut classes = call.next_bodies().await.unwrap();
            while call.has_more() {
                classes.extend(call.next_bodies().await.unwrap());
            }
            assert!(begun.elapsed() >= WORK);
            assert!(call.outcome().is_ok(), "{:?}", call.outcome());
            // On a busy machine they end at different times, and so come apart.
            let mut heard = RangeSet::new();
            for class in classes.iter().filter(|class| class.len > 0) {
                assert_eq!(class.body.as_deref(), Some(&[20, 20][..]));
                heard.union_with(&class.members.leaves());
            }
            assert_eq!(heard, cluster.everyone());
        });
    }
}

#[test]
fn interrupt_ends_work_that_was_answered_early() {
    let cluster = Cluster::new(3);
    run(async {
        let limits = Limits::default().with_timeout(SILENCE);
        let client = client(&cluster, "flat", limits);
        let mut call = client.call(&cluster.everyone(), "work", b"long").unwrap();
        let mut merged = Merged::new();
        assert!(call.next_entries(&mut merged).await.unwrap());
        let begun = Instant::now();
        client.interrupt();
        while call.next_entries(&mut merged).await.unwrap() {}
        assert!(begun.elapsed() < WORK - SILENCE, "{:?}", begun.elapsed());
        let outcome = call.finish();
        let errnos: Vec<Errno> = outcome.errnos().collect();
        assert_eq!((errnos, outcome.failed_count()), (vec![Errno::CANCELED], 2));
    });
}

#[test]
fn deadline_ends_everything() {
    let cluster = Cluster::new(3);
    cluster.write_all("f", "text");
    run(async {
        let begun = Instant::now();
        let deadline = Some(begun + Duration::from_millis(700));
        let client = client(&cluster, "k-ary:2", Limits::default().with_deadline(deadline));
        let group = client.gopenat(&cluster.everyone(), "/f", 0, 0).await.unwrap();
        let mut call = client.call(&cluster.everyone(), "work", b"long").unwrap();
        let mut merged = Merged::new();
        while call.next_entries(&mut merged).await.unwrap() {}
        let outcome = call.finish();
        assert_eq!(
            (outcome.errnos().collect(), outcome.failed_count()),
            (vec![Errno::TIMEDOUT], 2)
        );
        assert_eq!(client.over().await, Errno::TIMEDOUT);
        assert_eq!(client.is_over(), Some(Errno::TIMEDOUT));
        // What is asked for now is waited for no more.
        assert_eq!(group.statuses().await.unwrap().len(), 3);
        assert!(begun.elapsed() < Duration::from_millis(1900), "{:?}", begun.elapsed());
    });
}
