//! Reads with every aggregation.
use crate::cp::cluster::{Cluster, SHAPES, run};
use sheaf_core::{Errno, RangeSet};
use sheaf_group::aggregate::Number;
use sheaf_group::{Client, GroupError, Limits};
use sheaf_tools::read::{Combined, ReadOptions, Readout, read, read as read_all};
use sheaf_tools::{Target, ToolError};

fn options(aggregate: &str) -> ReadOptions {
    ReadOptions { aggregate: aggregate.to_owned(), ..ReadOptions::default() }
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
        assert!(matches!(differ, Err(ToolError::Group(GroupError::Differ { classes: 2, .. }))));
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
fn addresses_are_one_group_of_distinct_files() {
    let cluster = Cluster::new(4);
    for (leaf, text) in [(0, "5\n"), (1, "7\n"), (2, "5\n")] {
        cluster.write(leaf, "f", text);
    }
    cluster.write(2, "g", "5\n");
    let of = |leaf, path: &str| Target { members: RangeSet::single(leaf), path: path.into() };
    for shape in SHAPES {
        run(async {
            let client = cluster.client(shape);
            let all = async |targets: &[Target], aggregate: &str| {
                read(&client, targets, &options(aggregate)).await.map(|mut all| {
                    assert_eq!(all.len(), 1, "{aggregate}");
                    all.remove(0)
                })
            };
            let differ = all(&[of(0, "/f"), of(1, "/f")], "equal").await;
            assert!(matches!(differ, Err(ToolError::Group(GroupError::Differ { classes: 2, .. }))));
            let differ = all(&[of(0, "/f"), of(1, "/f*"), of(2, "/g")], "equal").await;
            assert!(matches!(differ, Err(ToolError::Group(GroupError::Differ { classes: 2, .. }))));
            let equal = all(&[of(0, "/f"), of(2, "/g"), of(2, "/f")], "equal").await.unwrap();
            let Combined::Bytes(bytes) = equal.data else { panic!() };
            assert_eq!(bytes, b"5\n");
            // A file of a host is one member, by whatever addresses it is named.
            let both = Target { members: RangeSet::full(2), path: "/f".into() };
            let twice = [of(0, "/f"), both.clone(), of(0, "/f*"), of(2, "/[g]")];
            for (aggregate, expected) in
                [("sum", "17"), ("avg", "5.666666666666667"), ("min", "5"), ("max", "7")]
            {
                let Combined::Numbers(numbers) = all(&twice, aggregate).await.unwrap().data else {
                    panic!()
                };
                assert_eq!((numbers.len(), numbers[0].count), (1, 3), "{aggregate}");
                assert_eq!(numbers[0].number.to_string(), expected);
            }
            let Combined::Count(3) = all(&twice, "count").await.unwrap().data else { panic!() };
            assert_eq!(all(&twice, "zero").await.unwrap().status, 6);
            for aggregate in ["classes", "checksum"] {
                let readout = all(&twice, aggregate).await.unwrap();
                let Combined::Classes(classes) = readout.data else { panic!() };
                let files = classes.iter().map(|class| class.files.clone());
                let two = vec![
                    ("/f".to_owned(), RangeSet::single(0)),
                    ("/g".to_owned(), RangeSet::single(2)),
                ];
                let one = vec![("/f".to_owned(), RangeSet::single(1))];
                assert_eq!(files.collect::<Vec<_>>(), [two, one], "{aggregate}");
                assert_eq!((readout.paths.len(), readout.outcome.status.count), (3, 3));
            }
            let Combined::Lines(lines) = all(&twice, "lines").await.unwrap().data else { panic!() };
            assert_eq!(lines.sorted().len(), 3);
            // A pattern is missed where none of its hosts has anything.
            let missed = all(&[both, of(3, "/f*"), of(2, "/z*")], "count").await.unwrap();
            let errors: Vec<_> =
                missed.outcome.errors.iter().map(|error| (error.errno, &error.path[..])).collect();
            assert_eq!(errors, [(Errno::NOENT, "/f*"), (Errno::NOENT, "/z*")]);
            let missed = all(&[of(0, "/f"), of(3, "/f*"), of(2, "/z*")], "sum").await.unwrap();
            let mut errors: Vec<_> =
                missed.outcome.errors.iter().map(|error| (error.errno, &error.path[..])).collect();
            errors.sort();
            assert_eq!(errors, [(Errno::NOENT, "/f*"), (Errno::NOENT, "/z*")]);
        });
    }
}

#[test]
fn contents_side_by_side_keep_the_order_of_arguments() {
    let cluster = Cluster::new(2);
    (0..2).for_each(|leaf| cluster.write(leaf, "f", format!("{leaf}")));
    run(async {
        let client = cluster.client("flat");
        let of = |leaf| Target { members: RangeSet::single(leaf), path: "/f".into() };
        let readouts = read(&client, &[of(1), of(0)], &options("concatenate")).await.unwrap();
        let bytes: Vec<_> = readouts.into_iter().map(|readout| readout.data).collect();
        assert!(
            matches!(&bytes[..], [Combined::Bytes(a), Combined::Bytes(b)] if a == b"1" && b == b"0")
        );
    });
}

#[test]
fn shared_text_stands_beside_numbers() {
    let cluster = Cluster::new(3);
    for leaf in 0..3u64 {
        let vendor = if leaf == 2 { "other" } else { "same" };
        let extra = if leaf == 1 { "Extra: 1 kB\n" } else { "" };
        let text = format!(
            "# no numbers\nMemTotal: {} kB\n{vendor} 4 x\n{extra}MemFree: {leaf} kB\n",
            leaf + 10
        );
        cluster.write(leaf as u32, "meminfo", text);
    }
    for shape in SHAPES {
        run(async {
            let client = cluster.client(shape);
            let read = async |options| one(&client, cluster.target("/meminfo"), options).await;
            let texts = |readout: &Readout| -> Vec<String> {
                let text = |label: &sheaf_group::aggregate::LabelAt| {
                    let text = String::from_utf8_lossy(&label.text);
                    format!("{},{} {text}", label.line, label.column)
                };
                readout.labels.iter().map(text).collect()
            };
            let all = read(ReadOptions { remarks: true, ..options("sum") }).await;
            // The fourth line of one host is another; a line without a number has no text.
            assert_eq!(texts(&all), ["2,1 MemTotal:", "2,3 kB", "3,3 x", "4,3 kB"]);
            assert_eq!(texts(&read(options("sum")).await), [""; 0]);
            let chosen = ReadOptions {
                remarks: true,
                lines: Some("^Mem(Free|Total):".to_owned()),
                ..options("sum")
            };
            let chosen = read(chosen).await;
            assert_eq!(texts(&chosen), ["1,1 MemTotal:", "1,3 kB", "2,1 MemFree:", "2,3 kB"]);
            let Combined::Numbers(numbers) = chosen.data else { panic!() };
            let numbers: Vec<_> = numbers.iter().map(|at| at.number.to_string()).collect();
            assert_eq!(numbers, ["33", "3"]);
            let none =
                read(ReadOptions { lines: Some("^Swap".to_owned()), ..options("sum") }).await;
            assert_eq!(none.outcome.errors[0].errno, Errno::BADMSG);
            let bad = read(ReadOptions { lines: Some("(".to_owned()), ..options("sum") }).await;
            assert_eq!(bad.outcome.errors[0].errno, Errno::INVAL);
        });
    }
}

#[test]
fn contents_that_lines_do_not_tell_apart_are_named() {
    let cluster = Cluster::new(6);
    for (leaf, text) in
        [(0, "a\nb\n"), (1, "b\na\n"), (2, "a\nb\nb\n"), (3, "a\nb"), (4, "a\n"), (5, "a\n")]
    {
        cluster.write(leaf, "f", text);
    }
    run(async {
        let client = cluster.client("k-ary:2");
        let remarks = || ReadOptions { remarks: true, ..options("lines") };
        let readout = one(&client, cluster.target("/f"), remarks()).await;
        assert_eq!(readout.hidden, [("/f".to_owned(), RangeSet::full(4))]);
        let same = Target { members: (4..6).collect(), path: "/f".into() };
        assert_eq!(one(&client, same, remarks()).await.hidden, []);
        assert_eq!(one(&client, cluster.target("/f"), options("lines")).await.hidden, []);
    });
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
            matches!(differ, Err(ToolError::Group(GroupError::Differ { classes: 2, .. }))),
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
