//! Reads with every aggregation.
use crate::cp::cluster::{Cluster, SHAPES, run};
use sheaf_core::{Errno, RangeSet};
use sheaf_group::aggregate::Number;
use sheaf_group::{Client, GroupError, Limits};
use sheaf_tools::read::{Combined, ReadOptions, Readout, read, read as read_all};
use sheaf_tools::{Target, ToolError};

fn options(aggregate: &str) -> ReadOptions {
    ReadOptions { aggregate: aggregate.to_owned(), columns: Vec::new(), count: None, offset: 0 }
}

async fn one(client: &Client, target: Target, options: ReadOptions) -> Readout {
    read(client, &[target], &options).await.unwrap().remove(0)
}

/// Six hosts; `f` is the same but on the fourth, and the last has none.
fn cluster() -> Cluster {
    let cluster = Cluster::new(6);
    (0..5)
        .for_each(|leaf| cluster.write(leaf, "f", if leaf == 3 { "7 x\n" } else { "1 x\n2 y\n" }));
    cluster.write(1, "f2", "7 x\n");
    cluster
}

#[test]
fn every_aggregation_answers() {
    let cluster = cluster();
    run(async {
        let client = cluster.client("k-ary:2");
        let read =
            async |aggregate: &str| one(&client, cluster.target("/f"), options(aggregate)).await;
        for aggregate in [
            "concatenate",
            "packed",
            "sum",
            "average",
            "min",
            "max",
            "zero",
            "count",
            "contents",
            "lines",
            "checksum",
            "columns",
        ] {
            let readout = read(aggregate).await;
            assert_eq!(readout.status, 4 * 8 + 4, "{aggregate}");
            assert_eq!(
                (readout.outcome.failed_count(), readout.outcome.errors[0].errno),
                (1, Errno::NOENT)
            );
            assert_eq!(readout.contributors, RangeSet::full(5), "{aggregate}");
        }
        let Combined::Bytes(bytes) = read("concatenate").await.data else { panic!() };
        assert_eq!(bytes, b"1 x\n2 y\n1 x\n2 y\n1 x\n2 y\n7 x\n1 x\n2 y\n");
        let Combined::Packed(items) = read("packed").await.data else { panic!() };
        assert_eq!(items[3], (3, "/f".to_owned(), b"7 x\n".to_vec()));
        assert_eq!(items[4].0, 4);
        let Combined::Numbers(numbers) = read("avg").await.data else { panic!() };
        let texts: Vec<String> = numbers.iter().map(|at| at.number.to_string()).collect();
        assert_eq!(texts, ["2.2", "2"]);
        assert_eq!([numbers[0].without, numbers[1].without], [0, 1]);
        assert_eq!(numbers[1].without_members.leaves(), RangeSet::single(3));
        let Combined::Count(5) = read("count").await.data else { panic!() };
        let Combined::Classes(classes) = read("contents").await.data else { panic!() };
        let sets: Vec<_> = classes
            .iter()
            .map(|class| (class.files[0].1.to_string(), class.body.clone().unwrap()))
            .collect();
        assert_eq!(
            sets,
            [("0-2,4".to_owned(), b"1 x\n2 y\n".to_vec()), ("3".to_owned(), b"7 x\n".to_vec())]
        );
        let Combined::Lines(lines) = read("lines").await.data else { panic!() };
        assert_eq!(lines.sorted().len(), 3);
        let Combined::Classes(sums) = read("checksum").await.data else { panic!() };
        assert_eq!((sums[1].len, sums[1].body.as_ref()), (4, None));
        assert_eq!(sums[1].digest, *blake3::hash(b"7 x\n").as_bytes());
    });
}

#[test]
fn equal_contents_or_an_error() {
    let cluster = cluster();
    run(async {
        let client = cluster.client("flat");
        let two = Target { members: RangeSet::full(2), path: "/f".into() };
        let Combined::Bytes(bytes) = one(&client, two, options("equal")).await.data else {
            panic!()
        };
        assert_eq!(bytes, b"1 x\n2 y\n");
        let differ = read(&client, &[cluster.target("/f")], &options("equal")).await;
        assert!(matches!(differ, Err(ToolError::Group(GroupError::Differ { classes: 2 }))));
    });
}

#[test]
fn patterns_name_every_member() {
    let cluster = cluster();
    for shape in SHAPES {
        run(async {
            let client = cluster.client(shape);
            let readout = one(&client, cluster.target("/f*"), options("contents")).await;
            assert!(readout.outcome.is_ok());
            let Combined::Classes(classes) = readout.data else { panic!() };
            let named = classes.iter().map(|class| {
                class
                    .files
                    .iter()
                    .map(|(path, leaves)| format!("{leaves}:{path}"))
                    .collect::<Vec<_>>()
                    .join(" ")
            });
            assert_eq!(named.collect::<Vec<_>>(), ["0-2,4:/f", "3:/f 1:/f2"]);
            let nothing = one(&client, cluster.target("/g*"), options("contents")).await;
            assert_eq!(nothing.outcome.errors[0].errno, Errno::NOENT);
            assert_eq!(nothing.outcome.errors[0].path, "/g*");
        });
    }
}

#[test]
fn count_and_offset_and_bound() {
    let cluster = cluster();
    run(async {
        let client = cluster.client("flat");
        let four = Target { members: RangeSet::full(4), path: "/f".into() };
        let cut = ReadOptions { count: Some(5), offset: 2, ..options("concatenate") };
        let Combined::Bytes(bytes) = one(&client, four.clone(), cut).await.data else { panic!() };
        assert_eq!(bytes, b"x\n2 yx\n2 yx\n2 yx\n\0\0\0");
        let narrow = client.with_limits(Limits::default().with_bytes_max(20));
        let refused = read(&narrow, &[four], &options("packed")).await;
        assert!(matches!(refused, Err(ToolError::Group(GroupError::TooLarge { bytes_max: 20 }))));
        let unknown = read(&client, &[cluster.target("/f")], &options("medium")).await;
        assert!(matches!(unknown, Err(ToolError::Usage(_))));
    });
}

#[test]
fn load_average_of_all_hosts() {
    let cluster = Cluster::new(8);
    (0..8).for_each(|leaf| {
        cluster.write(leaf, "proc/loadavg", format!("{leaf}.50 0.10 0.05 2/345 6789\n"))
    });
    run(async {
        let client = cluster.client("k-ary:2");
        let column = ReadOptions { columns: vec![1], ..options("avg") };
        let Combined::Numbers(numbers) =
            one(&client, cluster.target("/proc/loadavg"), column).await.data
        else {
            panic!()
        };
        assert_eq!(numbers[0].number, Number::Float(4.0));
    });
}

#[test]
fn checksums_count_and_zero_take_files_of_any_length() {
    const LEN: u64 = (64 << 20) + 5;
    let cluster = Cluster::new(3);
    for leaf in 0..3 {
        cluster.write(leaf, "f", "");
        let file = std::fs::OpenOptions::new().write(true).open(cluster.path(leaf, "f")).unwrap();
        file.set_len(LEN).unwrap();
        cluster.write(leaf, "g", format!("{leaf}"));
    }
    let mut hasher = blake3::Hasher::new();
    (0..LEN).step_by(1 << 20).for_each(|at| {
        hasher.update(&vec![0; usize::try_from((LEN - at).min(1 << 20)).unwrap()]);
    });
    run(async {
        let client = cluster.client("k-ary:2");
        let read =
            async |aggregate: &str| one(&client, cluster.target("/[fg]"), options(aggregate)).await;
        let Combined::Classes(classes) = read("checksum").await.data else { panic!() };
        assert_eq!(
            (classes.len(), classes[0].len, classes[0].digest),
            (4, LEN, *hasher.finalize().as_bytes())
        );
        assert_eq!(classes[0].files, [("/f".to_owned(), RangeSet::full(3))]);
        assert_eq!(classes[2].files, [("/g".to_owned(), RangeSet::single(1))]);
        let Combined::Count(6) = read("count").await.data else { panic!() };
        assert_eq!(read("zero").await.status, 3 * LEN as i64 + 3);
        // Contents need room, as much as is allowed, and none where they differ.
        let wide = client.with_limits(Limits::default().with_bytes_max(LEN));
        let f = |hosts| Target { members: RangeSet::full(hosts), path: "/f".into() };
        let Combined::Bytes(bytes) = one(&wide, f(1), options("equal")).await.data else {
            panic!()
        };
        assert!(bytes.len() as u64 == LEN && bytes.iter().all(|&byte| byte == 0));
        let refused = read_all(&client, &[f(1)], &options("equal")).await;
        let bytes_max = Limits::default().bytes_max;
        assert!(
            matches!(refused, Err(ToolError::Group(GroupError::TooLarge { bytes_max: bound })) if bound == bytes_max)
        );
        let file = std::fs::OpenOptions::new().append(true).open(cluster.path(1, "f")).unwrap();
        std::io::Write::write_all(&mut &file, b"x").unwrap();
        let differ = read_all(&wide, &[f(2)], &options("equal")).await;
        assert!(
            matches!(differ, Err(ToolError::Group(GroupError::Differ { classes: 2 }))),
            "{differ:?}"
        );
        file.set_len(LEN).unwrap();
        // Other aggregations take so much of a file and no more, and name the one that is longer.
        let refused = read_all(&wide, &[f(1)], &options("packed")).await.unwrap_err();
        assert!(refused.to_string().starts_with("/f: longer than 64 MiB"), "{refused}");
        let cut = ReadOptions { count: Some(3), offset: LEN - 2, ..options("zero") };
        assert_eq!(one(&client, cluster.target("/f"), cut).await.status, 6);
        let long = ReadOptions { count: Some(1 << 40), ..options("classes") };
        assert!(matches!(
            read_all(&client, &[cluster.target("/g")], &long).await,
            Err(ToolError::Usage(_))
        ));
    });
}
