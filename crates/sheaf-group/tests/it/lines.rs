//! Equal contents and lines cross the tree once, and differences are never lost.
use crate::cluster::{Cluster, SHAPES, run};
use proptest::prelude::*;
use sheaf_core::{Errno, RangeSet};
use sheaf_group::flags::O_PARTIAL;
use sheaf_group::message::{DataAggregation, OpenMessage, Operation};
use sheaf_group::{Client, GroupError, Limits, Reading, Value};

async fn read(client: &Client, members: &RangeSet, data: DataAggregation) -> Reading {
    let open = OpenMessage::new(vec!["/f".into()], 0, 0);
    client.once(members, open, Operation::Read { count: 1 << 20, data }, b"").await.unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]
    #[test]
    fn contents_and_lines_when_some_of_many_differ(
        odd in prop::collection::btree_map(0u32..300, 0usize..3, 0..9),
        shape in prop::sample::select(SHAPES),
        long in any::<bool>(),
        eager in 0u32..300,
    ) {
        let common: String = (0..if long { 200 } else { 3 }).map(|line| format!("line {line}\n")).collect();
        let variants = [common.clone() + "more\n", common.replace("line 1\n", "changed\n"), String::new()];
        let cluster = Cluster::new(300);
        cluster.write_all("f", &common);
        odd.iter().for_each(|(leaf, variant)| cluster.write(*leaf, "f", &variants[*variant]));
        let content = |leaf: u32| odd.get(&leaf).map_or(&common, |variant| &variants[*variant]);
        let having = |test: &dyn Fn(&str) -> bool| (0..300).filter(|leaf| test(content(*leaf))).collect::<RangeSet>();
        run(async {
            let client = cluster.client(shape);
            let all = cluster.everyone();
            let Value::Classes(classes) = read(&client, &all, DataAggregation::Contents { eager }).await.value else { panic!() };
            let mut total = 0;
            for class in &classes {
                let body = String::from_utf8(class.body.clone().unwrap()).unwrap();
                assert_eq!(class.members.leaves(), having(&|text| text == body));
                total += class.members.len();
            }
            assert_eq!(total, 300);
            let Value::Lines(merged) = read(&client, &all, DataAggregation::Lines { eager, digests: false }).await.value else { panic!() };
            let mut seen = 0;
            for entry in merged.sorted() {
                let line = std::str::from_utf8(entry.entry.text).unwrap();
                assert_eq!(*entry.leaves, having(&|text| text.lines().any(|other| other == line)), "{line}");
                seen += 1;
            }
            let distinct: std::collections::BTreeSet<&str> = (0..300).flat_map(|leaf| content(leaf).lines()).collect();
            assert_eq!(seen, distinct.len());
        });
    }
}

#[test]
fn bytes_at_the_root_do_not_grow_with_equal_members() {
    let text: String = (0..500).map(|line| format!("service {line}/udp\n")).collect();
    let bytes = |hosts: u32| {
        let cluster = Cluster::new(hosts);
        cluster.write_all("f", &text);
        run(async {
            let client = cluster.client("1x2x2x100");
            let before = client.network().counters();
            read(&client, &cluster.everyone(), DataAggregation::Lines { eager: 0, digests: false })
                .await;
            let after = client.network().counters();
            after.bytes_in - before.bytes_in
        })
    };
    let (few, many) = (bytes(8), bytes(256));
    assert!(many < few + 64, "{few} bytes from 8 members, {many} from 256");
}

#[test]
fn lines_beyond_what_a_host_answers_are_refused_and_never_cut() {
    const LEN: u64 = 40 << 20;
    let cluster = Cluster::new(2);
    for (leaf, name) in [(0, "a"), (0, "b"), (1, "a")] {
        let line = |number: u8| [&[b'a' + number; (1 << 20) - 1][..], b"\n"].concat();
        cluster.write(leaf, &format!("d/{name}"), (0..40).flat_map(line).collect::<Vec<u8>>());
    }
    run(async {
        let client = cluster.client("flat");
        let all = cluster.everyone();
        let lines = DataAggregation::by_name("lines", &[], 64 << 20, 0).unwrap();
        let group = client.gopenat(&all, "/d/*", 0, 0).await.unwrap();
        let Err(error) = group.pread(LEN, 0, lines.clone()).await else { panic!() };
        assert!(matches!(error, GroupError::TooManyLines { bytes_max: 67_108_864 }), "{error}");
        assert_eq!(error.errno(), Errno::MSGSIZE);
        let status = [LEN as i64, Errno::MSGSIZE.status(), LEN as i64];
        assert_eq!(group.statuses().await.unwrap(), status);
        // The others have all their lines, and the outcome says whose are missing.
        let group = client.gopenat(&all, "/d/*", O_PARTIAL, 0).await.unwrap();
        let reading = group.pread(LEN, 0, lines).await.unwrap();
        assert_eq!(reading.outcome.failed_count(), 1);
        let error = &reading.outcome.errors[0];
        assert_eq!(
            (error.errno, error.path.as_str(), error.members.leaves()),
            (Errno::MSGSIZE, "/d/b", RangeSet::single(0))
        );
        let Value::Lines(merged) = reading.value else { panic!() };
        assert!(merged.sorted().iter().all(|entry| entry.path == b"/d/a" && *entry.leaves == all));
        assert_eq!((merged.len(), merged.errors().len()), (40, 0));
    });
}

#[test]
fn bound_of_a_call_holds_for_lines() {
    let cluster = Cluster::new(5);
    for leaf in 0..5 {
        // Of each host two lines that all have, and one of its own.
        cluster.write(leaf, "f", format!("{}\n{}\n{}\n", "a".repeat(300), "b".repeat(300), leaf));
    }
    run(async {
        // A path of two bytes, 300 + 300 and five times one.
        for (bytes_max, fits) in [(607, true), (606, false)] {
            let client = cluster.client("k-ary:2");
            let client = client.with_limits(Limits::default().with_bytes_max(bytes_max));
            let lines = DataAggregation::by_name("lines", &[], bytes_max, 9).unwrap();
            let group = client.gopenat(&cluster.everyone(), "/f", 0, 0).await.unwrap();
            match group.pread(1000, 0, lines).await {
                Ok(_) => assert!(fits),
                Err(error) => {
                    assert!(
                        !fits && matches!(error, GroupError::TooLarge { bytes_max: 606 }),
                        "{error}"
                    );
                }
            }
        }
    });
}
