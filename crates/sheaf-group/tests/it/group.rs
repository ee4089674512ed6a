//! Opening, and what the published design leaves open.
use crate::cluster::{Cluster, SHAPES, run};
use sheaf_core::{Errno, RangeSet};
use sheaf_group::flags::{O_BESTEFFORT, O_PARTIAL, O_UNIQUE};
use sheaf_group::message::{DataAggregation, OpenMessage, Operation, READ_BYTES_MAX, Whence};
use sheaf_group::{GroupError, Limits, Outcome, Value};

const O_RDONLY: u32 = 0;
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;
const O_CREAT: u32 = 0o100;
const O_EXCL: u32 = 0o200;
const O_APPEND: u32 = 0o2000;

const PACKED: DataAggregation = DataAggregation::Packed { bytes_max: 1 << 20 };

fn members<T>(result: Result<T, GroupError>) -> Outcome {
    match result {
        Err(GroupError::Members(outcome)) => {
            assert_eq!(GroupError::Members(outcome.clone()).errno(), Errno::GROUP);
            *outcome
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("members should have failed"),
    }
}

fn failed(outcome: &Outcome) -> Vec<(Errno, String, String)> {
    let errors = outcome.errors.iter();
    errors
        .map(|error| (error.errno, error.path.clone(), error.members.leaves().to_string()))
        .collect()
}

#[test]
fn excl_fails_everywhere_and_removes_what_it_created() {
    for shape in SHAPES {
        let cluster = Cluster::new(20);
        cluster.write(7, "lock", "mine");
        run(async {
            let client = cluster.client(shape);
            let opened = client
                .gopenat(&cluster.everyone(), "/lock", O_WRONLY | O_CREAT | O_EXCL, 0o600)
                .await;
            assert_eq!(failed(&members(opened)), [(Errno::EXIST, "/lock".into(), "7".into())]);
        });
        for leaf in 0..20 {
            let content = std::fs::read_to_string(cluster.path(leaf, "lock")).ok();
            assert_eq!(content.as_deref(), (leaf == 7).then_some("mine"));
        }
    }
}

#[test]
fn failed_creation_keeps_the_files_that_were_there() {
    let cluster = Cluster::new(9);
    cluster.write(2, "f", "old");
    std::fs::create_dir(cluster.path(5, "f")).unwrap();
    run(async {
        let client = cluster.client("k-ary:2");
        let opened = client.gopenat(&cluster.everyone(), "/f", O_WRONLY | O_CREAT, 0o600).await;
        assert_eq!(failed(&members(opened)), [(Errno::ISDIR, "/f".into(), "5".into())]);
    });
    let there: Vec<u32> = (0..9).filter(|leaf| cluster.path(*leaf, "f").exists()).collect();
    assert_eq!(there, [2, 5]);
    assert_eq!(std::fs::read(cluster.path(2, "f")).unwrap(), b"old");
}

#[test]
fn unique_takes_a_file_with_two_names_once() {
    let cluster = Cluster::new(3);
    for leaf in 0..3 {
        cluster.write(leaf, "d/a", "x");
        std::fs::hard_link(cluster.path(leaf, "d/a"), cluster.path(leaf, "d/b")).unwrap();
        std::os::unix::fs::symlink("a", cluster.path(leaf, "d/c")).unwrap();
    }
    run(async {
        let client = cluster.client("flat");
        let size =
            async |flags| client.gopen(&cluster.everyone(), "/d", flags, 0).await.unwrap().size();
        assert_eq!((size(O_RDONLY).await, size(O_RDONLY | O_UNIQUE).await), (9, 3));
    });
}

#[test]
fn besteffort_opens_what_there_is() {
    let cluster = Cluster::new(12);
    (0..12)
        .filter(|leaf| leaf % 3 == 0)
        .for_each(|leaf| cluster.write(leaf, "f", format!("{leaf}")));
    run(async {
        let client = cluster.client("1x2x1x6");
        assert_eq!(
            failed(&members(client.gopenat(&cluster.everyone(), "/f", O_RDONLY, 0).await)).len(),
            1
        );
        let group =
            client.gopenat(&cluster.everyone(), "/f", O_RDONLY | O_BESTEFFORT, 0).await.unwrap();
        assert_eq!(group.size(), 4);
        assert_eq!(group.opened().failed_count(), 8);
        let reading = group.read(9, PACKED).await.unwrap();
        assert!(reading.outcome.is_ok());
        let Value::Packed(items) = reading.value else { panic!() };
        let texts: Vec<_> =
            items.into_iter().map(|(at, bytes)| (at, String::from_utf8(bytes).unwrap())).collect();
        assert_eq!(texts, [(0, "0".into()), (1, "3".into()), (2, "6".into()), (3, "9".into())]);
        let unmatched = client.gopenat(&cluster.everyone(), "/g*", O_RDONLY, 0).await;
        assert_eq!(failed(&members(unmatched)), [(Errno::NOENT, "/g*".into(), "0-11".into())]);
        let none =
            client.gopenat(&cluster.everyone(), "/nothing", O_RDONLY | O_BESTEFFORT, 0).await;
        assert_eq!(members(none).failed_count(), 12);
    });
}

#[test]
fn member_that_fails_fails_the_operation_unless_partial() {
    let cluster = Cluster::new(10);
    for leaf in 0..10 {
        match leaf {
            4 => std::fs::create_dir(cluster.path(leaf, "f")).unwrap(),
            _ => cluster.write(leaf, "f", "text"),
        }
    }
    run(async {
        let client = cluster.client("k-ary:3");
        let group = client.gopenat(&cluster.everyone(), "/f", O_RDONLY, 0).await.unwrap();
        let outcome = members(group.read(9, PACKED).await);
        assert_eq!(failed(&outcome), [(Errno::ISDIR, "/f".into(), "4".into())]);
        assert_eq!((outcome.status.count, outcome.member_count()), (9, 10));
        assert_eq!(group.statuses().await.unwrap(), [4, 4, 4, 4, -21, 4, 4, 4, 4, 4]);
        let group =
            client.gopenat(&cluster.everyone(), "/f", O_RDONLY | O_PARTIAL, 0).await.unwrap();
        let reading = group.read(9, DataAggregation::Equal).await.unwrap();
        assert!(matches!(reading.value, Value::Equal(text) if text == b"text"));
        assert_eq!((reading.status, reading.outcome.failed_count()), (36, 1));
    });
}

#[test]
fn names_and_indices_are_those_of_host_order() {
    let cluster = Cluster::new(30);
    for leaf in (0..30).filter(|leaf| *leaf != 11) {
        (0..leaf % 4).for_each(|name| cluster.write(leaf, &format!("d/{name}"), "x"));
    }
    run(async {
        let client = cluster.client("k-nomial:2");
        let group = client.gopenat(&cluster.everyone(), "/d/*", O_RDONLY, 0).await.unwrap();
        let files = group.files().await.unwrap();
        let expected = (0..30)
            .filter(|leaf| *leaf != 11)
            .flat_map(|leaf| (0..leaf % 4).map(move |name| (leaf, name)));
        let expected: Vec<String> =
            expected.map(|(leaf, name)| format!("n{}:/d/{name}", leaf + 1)).collect();
        assert_eq!(files, expected.iter().map(String::as_str).collect::<Vec<_>>());
        for at in [0, 1, 17, files.len() - 1] {
            assert_eq!(group.index(&files[at]).await.unwrap(), at as u64);
        }
        for name in ["n1:/d/0", "n4:/d/9", "n99:/d/0", "none", "n12:/d/0"] {
            assert!(matches!(group.index(name).await, Err(GroupError::UnknownMember(_))), "{name}");
        }
    });
}

#[test]
fn group_is_a_snapshot() {
    let cluster = Cluster::new(4);
    cluster.write_all("d/a", "one");
    run(async {
        let client = cluster.client("flat");
        let group = client.gopen(&cluster.everyone(), "/d", O_RDONLY, 0).await.unwrap();
        cluster.write_all("d/b", "two");
        std::fs::remove_file(cluster.path(1, "d/a")).unwrap();
        assert_eq!(group.size(), 4);
        assert_eq!(group.read(9, DataAggregation::Count).await.unwrap().status, 12);
    });
}

#[test]
fn offsets_are_each_members_own_and_append_holds_per_member() {
    let cluster = Cluster::new(3);
    (0..3).for_each(|leaf| cluster.write(leaf, "f", "x".repeat(leaf as usize)));
    run(async {
        let client = cluster.client("1x1x1x3");
        let group = client.gopenat(&cluster.everyone(), "/f", O_RDWR | O_APPEND, 0).await.unwrap();
        assert_eq!(group.lseek(0, Whence::End).await.unwrap(), -1);
        assert_eq!(group.lseek(0, Whence::Start).await.unwrap(), 0);
        assert_eq!(group.write(b"yy").await.unwrap().status, 6);
        assert_eq!(group.pwrite(b"", 0).await.unwrap().status, 0);
        group.fsync().await.unwrap();
        group.ftruncate(3).await.unwrap();
        group.fchmod(0o640).await.unwrap();
        group.fchown(None, None).await.unwrap();
        assert!(
            group
                .fstat()
                .await
                .unwrap()
                .iter()
                .all(|(_, stat)| (stat.size, stat.mode & 0o777) == (3, 0o640))
        );
        group.close().await.unwrap();
    });
    let contents: Vec<_> =
        (0..3).map(|leaf| std::fs::read(cluster.path(leaf, "f")).unwrap()).collect();
    assert_eq!(contents, [b"yy\0", b"xyy", b"xxy"]);
}

#[test]
fn results_beyond_the_bound_are_refused_and_at_it_are_not() {
    let cluster = Cluster::new(8);
    (0..8).for_each(|leaf| cluster.write(leaf, "f", [leaf as u8; 100]));
    run(async {
        let client = cluster.client("k-ary:2");
        let group = client.gopenat(&cluster.everyone(), "/f", O_RDONLY, 0).await.unwrap();
        let refused = async |count, data: DataAggregation| match group.pread(count, 0, data).await {
            Err(GroupError::TooLarge { bytes_max }) => Some(bytes_max),
            Err(error) => panic!("{error}"),
            Ok(_) => None,
        };
        assert_eq!(refused(100, DataAggregation::Concatenate { bytes_max: 799 }).await, Some(799));
        assert_eq!(refused(100, DataAggregation::Concatenate { bytes_max: 800 }).await, None);
        assert_eq!(refused(100, DataAggregation::Packed { bytes_max: 799 }).await, Some(799));
        assert_eq!(refused(100, DataAggregation::Packed { bytes_max: 800 }).await, None);
        assert_eq!(refused(u64::MAX, PACKED).await, Some(READ_BYTES_MAX));
        let open = |path: &str| OpenMessage::new(vec![path.into()], 0, 0);
        for bytes_max in [99, 100] {
            let operation =
                Operation::Read { count: 100, data: DataAggregation::Packed { bytes_max } };
            let once = client.once(&RangeSet::single(3), open("/f"), operation, b"").await;
            assert_eq!(once.is_ok(), bytes_max == 100);
        }
        let narrow = client.with_limits(Limits::default().with_bytes_max(799));
        let contents = Operation::Read { count: 100, data: DataAggregation::Contents { eager: 0 } };
        let once = narrow.once(&cluster.everyone(), open("/f"), contents, b"").await;
        assert!(matches!(once, Err(GroupError::TooLarge { bytes_max: 799 })));
    });
}

#[test]
fn compound_trip_is_open_read_close() {
    let cluster = Cluster::new(40);
    (0..40).for_each(|leaf| cluster.write(leaf, "f", format!("{} {}\n", leaf % 5, leaf)));
    run(async {
        for shape in SHAPES {
            let client = cluster.client(shape);
            let open = OpenMessage::new(vec!["/f".into()], O_RDONLY, 0);
            for name in [
                "concatenate",
                "packed",
                "sum",
                "avg",
                "min",
                "max",
                "zero",
                "count",
                "contents",
                "lines",
                "checksum",
            ] {
                let data = DataAggregation::by_name(name, &[1], 1 << 20, 0).unwrap();
                let operation = Operation::Read { count: 64, data: data.clone() };
                let once =
                    client.once(&cluster.everyone(), open.clone(), operation, b"").await.unwrap();
                let group = client.gopenat(&cluster.everyone(), "/f", O_RDONLY, 0).await.unwrap();
                let apart = group.read(64, data).await.unwrap();
                assert_eq!((once.status, &once.outcome), (apart.status, &apart.outcome), "{name}");
                match (once.value, apart.value) {
                    (Value::Lines(once), Value::Lines(apart)) => {
                        assert_eq!(once.sorted(), apart.sorted())
                    }
                    (once, apart) => {
                        assert_eq!(format!("{once:?}"), format!("{apart:?}"), "{name}")
                    }
                }
            }
        }
    });
}

#[test]
fn numbers_of_columns() {
    let cluster = Cluster::new(4);
    (0..4).for_each(|leaf| {
        cluster.write(leaf, "loadavg", format!("{} 1.0 2.0 1/99 {leaf}\n", 0.25 * f64::from(leaf)))
    });
    run(async {
        let client = cluster.client("k-ary:2");
        let group =
            client.gopenat(&cluster.everyone(), "/loadavg", O_RDONLY | O_PARTIAL, 0).await.unwrap();
        let numbers = async |name, columns: &[u32]| {
            let data = DataAggregation::by_name(name, columns, 0, 0).unwrap();
            match group.pread(64, 0, data).await.unwrap().value {
                Value::Numbers(numbers) => {
                    numbers.iter().map(|at| at.number.to_float()).collect::<Vec<_>>()
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(numbers("avg", &[1]).await, [0.375]);
        assert_eq!(numbers("max", &[5, 1]).await, [3.0, 0.75]);
        assert_eq!(numbers("sum", &[2]).await, [4.0]);
        assert_eq!(numbers("min", &[1]).await, [0.0]);
        cluster.write(2, "loadavg", "broken\n");
        let data = DataAggregation::by_name("avg", &[1], 0, 0).unwrap();
        let reading = group.pread(64, 0, data).await.unwrap();
        assert_eq!(failed(&reading.outcome), [(Errno::BADMSG, "/loadavg".into(), "2".into())]);
        assert_eq!(reading.contributors.to_string(), "0-1,3");
    });
}

#[test]
fn empty_host_set_opens_a_group_without_members() {
    let cluster = Cluster::new(3);
    run(async {
        let client = cluster.client("flat");
        let group = client.gopenat(&RangeSet::new(), "/f", O_RDONLY, 0).await.unwrap();
        assert_eq!((group.size(), group.read(9, PACKED).await.unwrap().status), (0, 0));
        assert_eq!(group.lseek(7, Whence::Start).await.unwrap(), 0);
    });
}

#[test]
fn pipe_without_a_writer_holds_nobody_up() {
    let cluster = Cluster::new(2);
    cluster.write(0, "f", "text");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        cluster.path(1, "f"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    run(async {
        let client = cluster.client("flat");
        let group = client.gopenat(&cluster.everyone(), "/f", O_RDONLY, 0).await.unwrap();
        assert_eq!(group.read(9, PACKED).await.unwrap().status, 4);
    });
}

#[test]
fn names_that_are_not_utf_8_stay_apart() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let cluster = Cluster::new(2);
    for name in [b"\xfe", b"\xff"] {
        std::fs::write(cluster.path(1, "").join(OsStr::from_bytes(name)), name).unwrap();
    }
    run(async {
        let client = cluster.client("flat");
        let group = client.gopen(&RangeSet::single(1), "/", O_RDONLY, 0).await.unwrap();
        let files = group.files().await.unwrap();
        let names: Vec<Vec<u8>> = files.iter().map(|name| name.clone().into_vec()).collect();
        assert_eq!(names, [b"n2:/\xfe", b"n2:/\xff"]);
        for (index, name) in files.iter().enumerate() {
            assert_eq!(group.index(name).await.unwrap(), index as u64);
        }
        assert_eq!(
            format!("{group:?}").split(", opened").next(),
            Some("Group { size: 2, hosts: \"n2\"")
        );
        assert!(format!("{client:?}").starts_with("Client { hosts: {n[1-2]}"));
    });
}

#[test]
fn files_that_fail_to_open_are_counted_exactly() {
    const LOOPS: u32 = 3_000;
    let cluster = Cluster::new(3);
    for leaf in 0..3 {
        cluster.write(leaf, "d/file", "x");
        for link in 0..LOOPS {
            // Beyond the paths that are named one by one, on one host and on all together.
            let path = cluster.path(leaf, &format!("d/l{leaf}-{link}"));
            std::os::unix::fs::symlink(path.file_name().unwrap(), &path).unwrap();
        }
    }
    run(async {
        for shape in ["flat", "1x1x2x4"] {
            let client = cluster.client(shape);
            let outcome = members(client.gopenat(&cluster.everyone(), "/d/*", O_RDONLY, 0).await);
            assert_eq!((outcome.failed_count(), outcome.status.count), (u64::from(LOOPS) * 3, 3));
            assert!(outcome.errnos().all(|errno| errno == Errno::LOOP));
            assert!(outcome.errors.len() <= 4096 + 1);
            let group = client.gopenat(&cluster.everyone(), "/d/*", O_BESTEFFORT, 0).await.unwrap();
            assert_eq!((group.size(), group.opened().failed_count()), (3, u64::from(LOOPS) * 3));
            assert_eq!(group.opened().member_count(), u64::from(LOOPS) * 3 + 3);
        }
    });
}

#[test]
fn error_says_why() {
    use std::error::Error;
    let cluster = Cluster::new(3);
    cluster.write(1, "f", "x");
    run(async {
        let client = cluster.client("flat");
        let Err(error) = client.gopenat(&cluster.everyone(), "/f", O_RDONLY, 0).await else {
            panic!()
        };
        assert_eq!(
            error.to_string(),
            "2 of 3 members failed: /f: No such file or directory (ENOENT)"
        );
        let mut source: &dyn Error = &error;
        while let Some(next) = source.source() {
            source = next;
        }
        assert_eq!(source.downcast_ref::<Errno>(), Some(&Errno::NOENT));
    });
}
