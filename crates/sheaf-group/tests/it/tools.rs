//! Calls of tools.
use crate::cluster::{Cluster, run};
use crate::concurrent::polled;
use bytes::Bytes;
use sheaf_core::{Errno, RangeSet};
use sheaf_group::GroupError;
use sheaf_group::entry::{AnswerForm, Entry, EntryKind, EntryStats, Merged, Sink};
use sheaf_group::tool::{Host, Reply, Running, Step, Tool, Tools};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Answers with this many lines of a kilobyte, some of them its host's own.
struct Talk;
struct Talking {
    left: u32,
}

impl Tool for Talk {
    fn start(&self, params: &[u8], host: &Host) -> Result<Box<dyn Running>, Errno> {
        match params {
            [tens, refuser] if u32::from(*refuser) != host.leaf => {
                Ok(Box::new(Talking { left: u32::from(*tens) * 100 }))
            }
            _ => Err(Errno::ACCES),
        }
    }
}

impl Running for Talking {
    fn step(&mut self, answer: &mut Reply, host: &Host) -> Step {
        self.left -= 1;
        let own = if self.left % 1000 == 500 { host.leaf } else { 0 };
        let text = format!("{own} {:>1000}", self.left);
        let answer = answer.entries_with(AnswerForm { ordered: false, stats: true });
        answer.stats(EntryStats { files: 1, ..EntryStats::default() });
        answer.path(b"/talk");
        let _ = answer.entry(Entry::new(EntryKind::Line, text.as_bytes()));
        if self.left == 0 { Step::Done } else { Step::More }
    }
}

/// Answers with what it was fed.
struct Echo;
#[derive(Default)]
struct Echoing(Vec<u8>);

impl Tool for Echo {
    fn start(&self, params: &[u8], host: &Host) -> Result<Box<dyn Running>, Errno> {
        if params.first().is_some_and(|leaf| u32::from(*leaf) == host.leaf) {
            return Err(Errno::ROFS);
        }
        Ok(Box::new(Echoing::default()))
    }
}

impl Running for Echoing {
    fn feed(&mut self, data: Bytes, _: &Host) {
        self.0.extend_from_slice(&data);
    }

    fn step(&mut self, answer: &mut Reply, _: &Host) -> Step {
        answer.bytes().append(&mut self.0);
        Step::Done
    }
}

/// Goes on until it is told to stop.
#[derive(Default)]
struct Forever {
    begun: Arc<AtomicU32>,
    ended: Arc<AtomicU32>,
}

impl Tool for Forever {
    fn start(&self, _: &[u8], _: &Host) -> Result<Box<dyn Running>, Errno> {
        Ok(Box::new(Self { begun: Arc::clone(&self.begun), ended: Arc::clone(&self.ended) }))
    }
}

impl Running for Forever {
    fn step(&mut self, _: &mut Reply, host: &Host) -> Step {
        self.begun.fetch_add(1, Ordering::SeqCst);
        while !host.should_stop() {
            std::thread::yield_now();
        }
        self.ended.fetch_add(1, Ordering::SeqCst);
        Step::More
    }
}

/// Takes no input before it may, and must not be asked for an answer.
#[derive(Clone, Default)]
struct Hold(Arc<AtomicBool>);

impl Tool for Hold {
    fn start(&self, _: &[u8], _: &Host) -> Result<Box<dyn Running>, Errno> {
        Ok(Box::new(self.clone()))
    }
}

impl Running for Hold {
    fn feed(&mut self, data: Bytes, _: &Host) {
        assert_eq!(&data[..], b"first");
        while !self.0.load(Ordering::SeqCst) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    fn step(&mut self, _: &mut Reply, _: &Host) -> Step {
        panic!("asked for an answer to a part of its input");
    }
}

/// Has a fault on the host with leaf 1.
struct Fault;
struct Faulty;

impl Tool for Fault {
    fn start(&self, _: &[u8], _: &Host) -> Result<Box<dyn Running>, Errno> {
        Ok(Box::new(Faulty))
    }
}

impl Running for Faulty {
    fn step(&mut self, _: &mut Reply, host: &Host) -> Step {
        assert_ne!(host.leaf, 1, "a fault");
        Step::Done
    }
}

#[test]
fn fault_of_a_tool_is_an_error_of_its_host_at_once() {
    let cluster = Cluster::new(3);
    run(async {
        let mut tools = tools();
        tools.register("fault", Fault);
        let client = cluster.session_with("flat", tools);
        for _ in 0..2 {
            let begun = Instant::now();
            let mut call = client.call(&cluster.everyone(), "fault", b"").unwrap();
            while call.next_entries(&mut Merged::new()).await.unwrap() {}
            let outcome = call.finish();
            assert_eq!(outcome.failed, [(Errno::IO, RangeSet::single(1))], "{outcome:?}");
            assert!(outcome.silent.is_empty() && begun.elapsed() < Duration::from_secs(20));
        }
    });
}

fn tools() -> Tools {
    let mut tools = Tools::default();
    tools.register("talk", Talk);
    tools.register("echo", Echo);
    tools
}

#[test]
fn long_answers_come_in_batches() {
    let cluster = Cluster::new(6);
    for shape in ["1x1x300", "k-ary:2"] {
        run(async {
            let client = cluster.session_with(shape, tools());
            let mut call = client.call(&cluster.everyone(), "talk", &[90, 2]).unwrap();
            let (mut merged, mut batches) = (Merged::new(), 1);
            while call.next_entries(&mut merged).await.unwrap() {
                batches += 1;
            }
            assert_eq!(batches, 3);
            let outcome = call.finish();
            assert_eq!((outcome.status.count, outcome.member_count()), (5, 6));
            assert_eq!(outcome.failed, [(Errno::ACCES, [2].into_iter().collect())]);
            let sets: Vec<String> =
                merged.sorted().iter().map(|entry| entry.leaves.to_string()).collect();
            assert_eq!(sets.iter().filter(|set| *set == "0-1,3-5").count(), 9000 - 9);
            assert_eq!(sets.iter().filter(|set| set.len() == 1).count(), 9 * 5);
            assert_eq!(merged.stats().map(|stats| stats.files), Some(9000 * 5));
            let number = |text: &[u8]| -> u32 {
                std::str::from_utf8(&text[2..]).unwrap().trim().parse().unwrap()
            };
            let order: Vec<u32> =
                merged.sorted().iter().map(|entry| number(entry.entry.text)).collect();
            assert!(order.is_sorted_by(|a, b| a >= b), "batches follow each other");
        });
    }
}

#[test]
fn input_reaches_every_host_whole() {
    let cluster = Cluster::new(10);
    let input: Vec<u8> = (0..5u32 << 18).flat_map(u32::to_le_bytes).collect();
    run(async {
        let client = cluster.session_with("k-ary:3", tools());
        let mut call = client.call(&cluster.everyone(), "echo", &[7]).unwrap();
        // Some are longer than what may be under way at a time.
        let (start, rest) = input.split_at(3_000_000);
        for piece in [start].into_iter().chain(rest.chunks(1_200_000)) {
            call.feed(piece).await;
        }
        let classes = call.next_bodies().await.unwrap();
        assert!(!call.has_more());
        assert_eq!(classes.len(), 1);
        assert_eq!(classes[0].members.leaves().to_string(), "0-6,8-9");
        assert!(classes[0].body.as_ref().unwrap() == &input);
        let outcome = call.finish();
        assert_eq!(
            (outcome.status.count, outcome.failed),
            (9, vec![(Errno::ROFS, [7].into_iter().collect())])
        );
    });
}

#[test]
fn unknown_tool_is_an_error_of_every_host() {
    let cluster = Cluster::new(3);
    run(async {
        let client = cluster.client("flat");
        let mut call = client.call(&cluster.everyone(), "none", b"").unwrap();
        assert!(!call.next_entries(&mut Merged::new()).await.unwrap());
        assert_eq!(call.finish().failed, [(Errno::NOSYS, cluster.everyone())]);
    });
}

#[test]
fn interrupt_stops_the_tool_on_its_hosts() {
    let cluster = Cluster::new(4);
    let forever = Forever::default();
    let (begun, ended) = (Arc::clone(&forever.begun), Arc::clone(&forever.ended));
    let mut tools = tools();
    tools.register("forever", forever);
    run(async {
        let client = cluster.session_with("k-ary:2", tools);
        let mut call = client.call(&cluster.everyone(), "forever", b"").unwrap();
        let other = client.clone();
        let interrupt = async {
            while begun.load(Ordering::SeqCst) < 4 {
                tokio::task::yield_now().await;
            }
            other.interrupt();
        };
        let mut merged = Merged::new();
        let (answer, ()) = tokio::join!(call.next_entries(&mut merged), interrupt);
        answer.unwrap();
        assert_eq!(call.finish().member_count(), 4);
        while ended.load(Ordering::SeqCst) < 4 {
            tokio::task::yield_now().await;
        }
    });
}

/// Whatever the poll at which it is dropped, a call whose answer is not whole never looks so.
#[test]
fn call_whose_future_is_dropped_is_over_and_never_complete() {
    let cluster = Cluster::new(6);
    run(async {
        let hold = Hold::default();
        let fed = Arc::clone(&hold.0);
        let mut tools = tools();
        tools.register("hold", hold);
        let client = cluster.session_with("k-ary:2", tools);
        for polls in 0..12 {
            let mut call = client.call(&cluster.everyone(), "talk", &[50, 2]).unwrap();
            let mut merged = Merged::new();
            if polled(call.next_entries(&mut merged), polls).await.is_some() {
                assert!(polls > 0);
                continue;
            }
            if polls == 0 {
                // It was never begun.
                assert!(call.outcome().is_ok() && call.has_more());
                while call.next_entries(&mut merged).await.unwrap() {}
                assert_eq!(merged.len(), 5000 - 5 + 5 * 5);
                continue;
            }
            assert!(call.has_more() && !call.outcome().is_ok());
            assert!(matches!(call.next_entries(&mut merged).await, Err(GroupError::Torn)));
            assert!(matches!(call.next_bodies().await, Err(GroupError::Torn)));
            assert!(call.has_more());
            assert_eq!(call.finish().silent, [(Errno::CANCELED, cluster.everyone())]);
        }
        // Nothing follows input that was dropped, so that no tool takes the rest for the whole.
        let mut call = client.call(&cluster.everyone(), "hold", b"").unwrap();
        call.feed(b"first").await;
        let long = vec![1; 12 << 20];
        assert!(
            polled(call.feed(&long), 1).await.is_none(),
            "there is room for all while nothing is taken"
        );
        fed.store(true, Ordering::SeqCst);
        call.feed(b"rest").await;
        assert!(matches!(call.next_bodies().await, Err(GroupError::Torn)));
        assert_eq!(call.finish().missing_hosts(), cluster.everyone());
    });
}

/// Counts its steps; on the first host it hangs after some.
#[derive(Default, Clone)]
struct Counting {
    /// Hosts that have come far enough, and whether who hangs may go on.
    far: Arc<AtomicUsize>,
    released: Arc<AtomicBool>,
}

struct CountingOn {
    tool: Counting,
    leaf: u32,
    steps: u64,
}

const FAR: u64 = 10;

impl Tool for Counting {
    fn start(&self, _: &[u8], host: &Host) -> Result<Box<dyn Running>, Errno> {
        Ok(Box::new(CountingOn { tool: self.clone(), leaf: host.leaf, steps: 0 }))
    }
}

impl Running for CountingOn {
    fn step(&mut self, _: &mut Reply, _: &Host) -> Step {
        self.steps += 1;
        if self.steps < FAR {
            return Step::Pause;
        }
        if self.steps == FAR {
            self.tool.far.fetch_add(1, Ordering::SeqCst);
        }
        while self.leaf == 0 && !self.tool.released.load(Ordering::SeqCst) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Step::More
    }

    fn so_far(&mut self, answer: &mut Reply, is_over: bool) {
        let steps = if is_over { self.steps } else { self.steps.min(FAR - 1) };
        let answer = answer.entries();
        answer.path(b"");
        let _ = answer.entry(Entry::new(EntryKind::Count, steps.to_string().as_bytes()));
    }
}

/// Who ends a change hears from the hosts what they have done; of one that hangs it is known what
/// it had said.
#[test]
fn change_that_is_ended_says_how_far_it_came() {
    for by_deadline in [false, true] {
        let cluster = Cluster::new(4);
        let counting = Counting::default();
        let (far, released) = (Arc::clone(&counting.far), Arc::clone(&counting.released));
        let mut tools = tools();
        tools.register("count", counting);
        run(async {
            let client = cluster.session_with("k-ary:2", tools);
            let deadline = by_deadline.then(|| Instant::now() + Duration::from_secs(3));
            let client = client.with_limits(client.limits().with_deadline(deadline));
            let mut call =
                client.call(&cluster.everyone(), "count", b"").unwrap().that_changes().await;
            let other = client.clone();
            let interrupt = async {
                while far.load(Ordering::SeqCst) < 4 {
                    tokio::task::yield_now().await;
                }
                if !by_deadline {
                    other.interrupt();
                }
            };
            let mut merged = Merged::new();
            let hear = async { while call.next_entries(&mut merged).await.unwrap() {} };
            tokio::join!(hear, interrupt);
            let (outcome, unfinished) = call.conclude(&mut merged).await.unwrap();
            released.store(true, Ordering::SeqCst);
            assert_eq!(outcome.missing_hosts(), cluster.everyone());
            assert_eq!(unfinished.heard.to_string(), "1-3");
            assert_eq!(unfinished.unknown.to_string(), "0");
            let most = |leaf: u32| {
                let said = merged.sorted().into_iter().filter(|entry| entry.leaves.contains(leaf));
                said.map(|entry| String::from_utf8_lossy(entry.entry.text).parse::<u64>().unwrap())
                    .max()
            };
            assert_eq!(most(0), Some(FAR - 1));
            (1..4).for_each(|leaf| assert!(most(leaf) >= Some(FAR), "{leaf}: {:?}", most(leaf)));
        });
    }
}
