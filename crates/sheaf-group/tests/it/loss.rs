//! Hosts that are gone, and users who do not want to wait.
use crate::cluster::{Cluster, SHAPES, run};
use crate::concurrent::polled;
use sheaf_core::{Errno, RangeSet};
use sheaf_group::flags::{O_BESTEFFORT, O_PARTIAL};
use sheaf_group::message::{DataAggregation, OpenMessage, Operation};
use sheaf_group::{GroupError, Limits, Value};
use std::time::Duration;

#[test]
fn lost_hosts_are_named_and_the_others_answer() {
    for shape in SHAPES {
        let cluster = Cluster::new(24);
        cluster.write_all("f", "text\n");
        let lost: RangeSet = [3, 4, 17].into_iter().collect();
        lost.iter().for_each(|leaf| cluster.lose(leaf));
        run(async {
            let client = cluster.client(shape);
            let all = cluster.everyone();
            let Err(GroupError::Members(outcome)) = client.gopenat(&all, "/f", 0, 0).await else {
                panic!()
            };
            assert_eq!((outcome.missing_hosts(), outcome.failed_count()), (lost.clone(), 3));
            let flags = O_PARTIAL | O_BESTEFFORT;
            let open = OpenMessage::new(vec!["/f".into()], flags, 0);
            let operation = Operation::Read {
                count: 9,
                data: DataAggregation::Lines { eager: 3, digests: false },
            };
            let once = client.once(&all, open, operation, b"").await.unwrap();
            assert_eq!(
                (once.outcome.missing_hosts(), once.outcome.member_count()),
                (lost.clone(), 24)
            );
            assert_eq!(once.contributors, all.difference(&lost));
            let Value::Lines(merged) = once.value else { panic!() };
            assert_eq!(*merged.sorted()[0].leaves, all.difference(&lost));
            // With best effort they are not members, and later operations do not miss them.
            let group = client.gopenat(&all, "/f", O_BESTEFFORT, 0).await.unwrap();
            assert_eq!((group.size(), group.opened().missing_hosts()), (21, lost.clone()));
            let reading = group.read(9, DataAggregation::Contents { eager: 0 }).await.unwrap();
            assert!(reading.outcome.is_ok());
            assert_eq!(group.files().await.unwrap().len(), 21);
            assert_eq!(group.statuses().await.unwrap(), [5; 21]);
            assert!(group.close().await.unwrap().outcome.is_ok());
        });
    }
}

#[test]
fn interrupted_session_answers_at_once() {
    let cluster = Cluster::new(5);
    cluster.write_all("f", "x");
    run(async {
        let client = cluster.client("flat");
        let group = client.gopenat(&cluster.everyone(), "/f", O_PARTIAL, 0).await.unwrap();
        client.interrupt();
        let reading = group.read(9, DataAggregation::Count).await.unwrap();
        // Who had not answered yet is silent, whether it was told to stop or only waited for.
        let outcome = reading.outcome;
        assert!(outcome.silent.iter().all(|(errno, _)| *errno == Errno::CANCELED), "{outcome:?}");
        assert!(outcome.failed.is_empty() && outcome.errors.is_empty(), "{outcome:?}");
        assert_eq!(outcome.member_count(), 5);
        // The user may change their mind: what is asked from then on is done.
        assert!(client.is_interrupted());
        client.resume();
        assert!(!client.is_interrupted());
        let reading = group.read(9, DataAggregation::Count).await.unwrap();
        assert!(reading.outcome.is_ok());
        // What was under way when the session was interrupted ends, also when that is taken back.
        let mut waiting = Box::pin(client.interrupted());
        assert!(polled(&mut waiting, 1).await.is_none());
        client.interrupt();
        client.resume();
        waiting.await;
    });
}

#[test]
fn late_hosts_are_silent_because_the_time_is_over() {
    let cluster = Cluster::new(5);
    cluster.write_all("f", "x");
    run(async {
        let client = cluster.client("flat");
        let hasty = client.with_limits(Limits::default().with_timeout(Duration::ZERO));
        let Err(GroupError::Members(outcome)) =
            hasty.gopenat(&cluster.everyone(), "/f", 0, 0).await
        else {
            panic!()
        };
        assert_eq!(outcome.silent, [(Errno::TIMEDOUT, cluster.everyone())]);
        assert!(outcome.failed.is_empty() && outcome.errors.is_empty());
    });
}
