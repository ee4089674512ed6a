//! Many at once on one group, and futures that are dropped: each has its own answer.
use crate::cluster::{Cluster, run};
use proptest::prelude::*;
use sheaf_core::RangeSet;
use sheaf_group::message::{DataAggregation, Whence};
use sheaf_group::{Group, Limits, Reading, Value, blocking};
use sheaf_tree::topology::{Names, Spec};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

const HOSTS: u32 = 7;
const LINE: u64 = 64;
const LINES: u64 = 256;
const PACKED: DataAggregation = DataAggregation::Packed { bytes_max: 1 << 24 };

/// Polls a future so often, then drops it.
pub async fn polled<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let (mut future, mut left) = (Box::pin(future), polls);
    poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// What the file of a host holds: no two places are alike, and every third host has the same.
fn content(leaf: u32) -> Vec<u8> {
    (0..LINES).flat_map(|line| format!("{:>8} {line:>54}\n", leaf % 3).into_bytes()).collect()
}

fn cluster() -> Cluster {
    let cluster = Cluster::new(HOSTS);
    (0..HOSTS).for_each(|leaf| cluster.write(leaf, "f", content(leaf)));
    cluster
}

fn aggregation(kind: u64) -> DataAggregation {
    match kind % 6 {
        0 => DataAggregation::Concatenate { bytes_max: 1 << 24 },
        1 => DataAggregation::Contents { eager: (kind / 6) as u32 % 9 },
        2 => DataAggregation::by_name("lines", &[], 1 << 24, (kind / 6) as u32 % 9).unwrap(),
        3 => DataAggregation::Checksum,
        _ => PACKED,
    }
}

/// Whether this is the answer to `pread(count, offset)` of all hosts.
fn check(reading: Reading, count: u64, offset: u64) {
    let of = |leaf: u32| content(leaf)[offset as usize..(offset + count) as usize].to_vec();
    assert!(reading.outcome.is_ok());
    assert_eq!(reading.status, (count * u64::from(HOSTS)) as i64);
    match reading.value {
        Value::Packed(items) => {
            assert_eq!(
                items,
                (0..HOSTS).map(|leaf| (u64::from(leaf), of(leaf))).collect::<Vec<_>>()
            );
        }
        Value::Concatenated(bytes) => {
            assert_eq!(bytes, (0..HOSTS).flat_map(of).collect::<Vec<_>>())
        }
        Value::Classes(classes) => {
            assert_eq!(classes.len(), 3);
            for class in classes {
                for leaf in class.members.leaves().iter() {
                    assert_eq!(*blake3::hash(&of(leaf)).as_bytes(), class.digest);
                }
                if let Some(body) = &class.body {
                    assert_eq!(*blake3::hash(body).as_bytes(), class.digest);
                }
            }
        }
        Value::Lines(merged) => {
            let mut lines: BTreeMap<Vec<u8>, BTreeSet<u32>> = BTreeMap::new();
            for leaf in 0..HOSTS {
                for line in of(leaf).split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                    lines.entry(line.to_vec()).or_default().insert(leaf);
                }
            }
            let found = merged.sorted().into_iter();
            let found: BTreeMap<_, BTreeSet<u32>> = found
                .map(|entry| (entry.entry.text.to_vec(), entry.leaves.iter().collect()))
                .collect();
            assert_eq!(found, lines);
        }
        other => panic!("{other:?}"),
    }
}

/// So many reads, one after the other; every third is dropped after some polls.
async fn read_and_drop(group: Arc<Group>, seed: u64, operations: u64) -> u64 {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut dropped = 0;
    for _ in 0..operations {
        let lines = rng.u64(1..12);
        let (count, offset) = (lines * LINE, rng.u64(0..=LINES - lines) * LINE);
        let read = group.pread(count, offset, aggregation(rng.u64(..)));
        let polls = if rng.u8(0..3) == 0 { rng.usize(0..6) } else { usize::MAX };
        match polled(read, polls).await {
            Some(reading) => check(reading.unwrap(), count, offset),
            None => dropped += 1,
        }
    }
    dropped
}

#[test]
fn each_of_many_tasks_has_its_own_answer() {
    const TASKS: u64 = 24;
    let cluster = cluster();
    run(async {
        let client = cluster.client("k-ary:2");
        let group = Arc::new(client.gopenat(&cluster.everyone(), "/f", 0, 0).await.unwrap());
        let tasks = (0..TASKS).map(|task| {
            // Ten thousand in all.
            tokio::spawn(read_and_drop(Arc::clone(&group), task, 10_000 / TASKS + 1))
        });
        let mut dropped = 0;
        for task in tasks.collect::<Vec<_>>() {
            dropped += task.await.unwrap();
        }
        assert!(dropped > 1000, "{dropped}");
        assert_eq!(group.statuses().await.unwrap().len(), HOSTS as usize);
        assert_eq!(Arc::into_inner(group).unwrap().close().await.unwrap().status, 0);
    });
}

#[test]
fn threads_of_a_blocking_session_have_their_own_answers() {
    let cluster = cluster();
    let names: Names = (1..=HOSTS).map(|n| format!("n{n}")).collect();
    let launch =
        || cluster.network(&Spec::parse("k-ary:2").unwrap(), names.clone(), Default::default());
    let client = blocking::BlockingClient::start(names.clone(), Limits::default(), launch).unwrap();
    let group = client.gopenat(&client.everyone(), "/f", 0, 0).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let group = &group;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                for _ in 0..100 {
                    let lines = rng.u64(1..12);
                    let (count, offset) = (lines * LINE, rng.u64(0..=LINES - lines) * LINE);
                    check(
                        group.pread(count, offset, aggregation(rng.u64(..))).unwrap(),
                        count,
                        offset,
                    );
                }
            });
        }
    });
    assert_eq!(group.close().unwrap().status, 0);
}

#[test]
fn blocking_session_can_be_dropped_inside_a_runtime() {
    let cluster = cluster();
    let names: Names = (1..=HOSTS).map(|n| format!("n{n}")).collect();
    let launch =
        || cluster.network(&Spec::parse("flat").unwrap(), names.clone(), Default::default());
    let client = blocking::BlockingClient::start(names.clone(), Limits::default(), launch).unwrap();
    let group = client.gopenat(&client.everyone(), "/f", 0, 0).unwrap();
    run(async move {
        drop(client);
        drop(group);
    });
    let few = names.slice(1..HOSTS);
    run(async move {
        let Err(error) = blocking::BlockingClient::start(few, Limits::default(), launch) else {
            panic!()
        };
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    /// Reads and writes that move offsets are in one order at all members, whoever is dropped.
    #[test]
    fn dropped_operation_is_done_by_all_or_by_none(
        steps in prop::collection::vec((0u8..3, 1u64..9, 0usize..5), 1..30),
    ) {
        let cluster = cluster();
        run(async {
            let client = cluster.client("1x2x40");
            let group = client.gopenat(&cluster.everyone(), "/f", 2, 0).await.unwrap();
            let mut at = 0;
            for (kind, count, polls) in steps {
                let done = match kind {
                    0 => polled(group.read(count, DataAggregation::Contents { eager: 9 }), polls).await.is_some(),
                    1 => polled(group.write(&vec![b'x'; count as usize]), polls).await.is_some(),
                    _ => polled(group.lseek(count as i64, Whence::Current), polls).await.is_some(),
                };
                let now = group.lseek(0, Whence::Current).await.unwrap();
                assert!(now == at + count as i64 || now == at && !done, "{at} + {count} is {now}");
                at = now;
            }
        });
    }
}

/// A write that is longer than what may be under way, dropped while the members are busy.
#[test]
fn long_request_dropped_midway_is_done_by_nobody() {
    // Members that are busy beside other tests are not to be given up.
    const TIMEOUT: Duration = Duration::from_secs(10);
    let cluster = Cluster::new(HOSTS);
    const BUSY: u64 = 60 << 20;
    cluster.write_all("big", "x");
    for host in 0..HOSTS {
        let big = std::fs::OpenOptions::new().write(true).open(cluster.path(host, "big")).unwrap();
        big.set_len(BUSY).unwrap();
    }
    // Made beforehand: the members are not busy for long.
    let long = vec![b'y'; 24 << 20];
    run(async {
        let client = cluster.client("1x2x40").with_limits(Limits::default().with_timeout(TIMEOUT));
        let group = client.gopenat(&cluster.everyone(), "/big", 2, 0).await.unwrap();
        let begun = Instant::now();
        let mut midway = 0;
        for _ in 0..3 {
            let mut busy = Box::pin(group.pread(BUSY, 0, DataAggregation::Checksum));
            assert!(polled(&mut busy, 1).await.is_none());
            let written = polled(group.pwrite(&long, 0), 1).await;
            let Value::Classes(classes) = busy.await.unwrap().value else { panic!() };
            assert_eq!(classes.len(), 1);
            let Value::Packed(first) = group.pread(1, 0, PACKED).await.unwrap().value else {
                panic!()
            };
            assert_eq!(first.len(), HOSTS as usize);
            let is_new = first[0].1 == b"y";
            assert!(first.iter().all(|(_, byte)| *byte == first[0].1));
            midway += usize::from(written.is_none() && !is_new);
        }
        assert!(midway > 0, "no request was dropped midway");
        // Nobody was given up for the answer that never came.
        while begun.elapsed() < TIMEOUT + Duration::from_secs(1) {
            let reading = group.pwrite(b"z", 0).await.unwrap();
            assert_eq!((reading.status, reading.outcome.is_ok()), (i64::from(HOSTS), true));
            tokio::time::sleep(TIMEOUT / 20).await;
        }
        let everyone: RangeSet = (0..HOSTS).collect();
        assert_eq!(*group.hosts(), everyone);
    });
}
