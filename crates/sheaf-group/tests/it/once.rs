//! Open, one operation and close in one call: what a call for each does.
use crate::cluster::{Cluster, SHAPES, run};
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, OFlags};
use sheaf_group::flags::{O_BESTEFFORT, O_PARTIAL, O_UNIQUE};
use sheaf_group::message::{DataAggregation, OpenMessage, Operation, Whence};
use sheaf_group::{Client, GroupError, Outcome, Reading, Stat, Value};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;

/// What a host may have under the name that is opened.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Nothing,
    File,
    Other,
    Directory,
    Link,
    LinkToDirectory,
    Dangling,
    Pipe,
}

const KINDS: &[Kind] = &[
    Kind::File,
    Kind::File,
    Kind::Other,
    Kind::Nothing,
    Kind::Directory,
    Kind::Link,
    Kind::LinkToDirectory,
    Kind::Dangling,
    Kind::Pipe,
];

const FLAGS: &[u32] = &[
    OFlags::CREATE.bits(),
    OFlags::EXCL.bits(),
    OFlags::TRUNC.bits(),
    OFlags::APPEND.bits(),
    OFlags::DIRECTORY.bits(),
    OFlags::NOFOLLOW.bits(),
    OFlags::PATH.bits(),
    OFlags::DSYNC.bits(),
    O_BESTEFFORT,
    O_BESTEFFORT,
    O_PARTIAL,
    O_UNIQUE,
];

const PATHS: &[&str] = &["/d/f", "/d/f", "/d/*", "/d/{f,g}", "/d/made"];

/// Every host has `/d` with the file `g`, and something that is called `f`. The pipes are held
/// open, so that what is in them stays.
fn populate(kinds: &[Kind]) -> (Cluster, Vec<(u32, File)>) {
    let cluster = Cluster::new(kinds.len() as u32);
    let mut pipes = Vec::new();
    for (leaf, kind) in (0..).zip(kinds) {
        cluster.write(leaf, "d/g", "1 2\n");
        let path = cluster.path(leaf, "d/f");
        match kind {
            Kind::Nothing => {}
            Kind::File => cluster.write(leaf, "d/f", "3 4\n5\n"),
            Kind::Other => cluster.write(leaf, "d/f", format!("{leaf}\n")),
            Kind::Directory => std::fs::create_dir(path).unwrap(),
            Kind::Link => symlink("g", path).unwrap(),
            Kind::LinkToDirectory => symlink("/d", path).unwrap(),
            Kind::Dangling => symlink("new", path).unwrap(),
            Kind::Pipe => {
                rustix::fs::mknodat(CWD, &path, FileType::Fifo, 0o600.into(), 0).unwrap();
                let nonblocking = OFlags::NONBLOCK.bits() as i32;
                let mut pipe = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .custom_flags(nonblocking)
                    .open(path)
                    .unwrap();
                pipe.write_all(b"6 7\n").unwrap();
                pipes.push((leaf, pipe));
            }
        }
    }
    (cluster, pipes)
}

/// Everything that can be seen of the hosts' files, and what is left in pipes.
fn snapshot(cluster: &Cluster, pipes: Vec<(u32, File)>) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for (leaf, mut pipe) in pipes {
        let mut bytes = vec![0; 1 << 16];
        let got = pipe.read(&mut bytes).unwrap_or(0);
        bytes.truncate(got);
        all.insert(format!("{leaf}:pipe"), (0, bytes));
    }
    for leaf in 0..cluster.hosts {
        for entry in std::fs::read_dir(cluster.path(leaf, "d")).unwrap() {
            let path = entry.unwrap().path();
            all.insert(format!("{leaf}:{}", path.file_name().unwrap().display()), look(&path));
        }
    }
    all
}

fn look(path: &Path) -> (u32, Vec<u8>) {
    let metadata = path.symlink_metadata().unwrap();
    let content = match metadata.file_type() {
        kind if kind.is_file() => std::fs::read(path).unwrap(),
        kind if kind.is_symlink() => {
            std::fs::read_link(path).unwrap().into_os_string().into_encoded_bytes()
        }
        _ => Vec::new(),
    };
    (metadata.mode(), content)
}

/// The three calls.
async fn in_turn(
    client: &Client,
    cluster: &Cluster,
    open: OpenMessage,
    operation: Operation,
    data: &[u8],
) -> Result<(Reading, Outcome), GroupError> {
    let group = client.gopen_with(&cluster.everyone(), open).await?;
    let opened = group.opened().clone();
    let reading = match group.operate(operation, data).await {
        Err(GroupError::Members(mut outcome)) => {
            outcome.merge_failures(opened);
            return Err(GroupError::Members(outcome));
        }
        Err(GroupError::Differ { classes, mut outcome }) => {
            outcome.merge_failures(opened);
            return Err(GroupError::Differ { classes, outcome });
        }
        reading => reading?,
    };
    let closed = group.close().await?.outcome;
    let mut outcome = reading.outcome.clone();
    outcome.merge_failures(opened);
    outcome.merge_failures(closed);
    Ok((reading, outcome))
}

/// Everything that a caller can see of the result.
fn told(operation: &Operation, result: Result<(Reading, Outcome), GroupError>) -> String {
    let (reading, mut outcome) = match result {
        Ok(told) => told,
        Err(GroupError::Members(mut outcome)) => {
            outcome.errors.sort_by_key(|error| (error.errno, error.path.clone()));
            return format!("failed: {outcome:?}");
        }
        Err(GroupError::Differ { classes, mut outcome }) => {
            outcome.errors.sort_by_key(|error| (error.errno, error.path.clone()));
            return format!("{classes} differ: {outcome:?}");
        }
        Err(error) => return format!("failed: {error:?}"),
    };
    outcome.errors.sort_by_key(|error| (error.errno, error.path.clone()));
    let value = match reading.value {
        Value::Packed(items) if matches!(operation, Operation::Fstat { .. }) => {
            let shape = |(index, bytes): (u64, Vec<u8>)| {
                let stat = Stat::from_bytes(&bytes).unwrap();
                (index, stat.mode, stat.size, stat.nlink)
            };
            format!("{:?}", items.into_iter().map(shape).collect::<Vec<_>>())
        }
        Value::Lines(merged) => format!("{:?}", merged.sorted()),
        value => format!("{value:?}"),
    };
    format!("{}, {value}, {outcome:?}", reading.status)
}

fn data() -> impl Strategy<Value = DataAggregation> {
    const NAMES: &[&str] = &[
        "concatenate",
        "packed",
        "max",
        "equal",
        "zero",
        "count",
        "contents",
        "lines",
        "checksum",
    ];
    (prop::sample::select(NAMES), prop::sample::select(&[1u64 << 20, 1 << 20, 6][..]))
        .prop_map(|(name, bytes_max)| DataAggregation::by_name(name, &[], bytes_max, 1).unwrap())
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (0u64..9, data()).prop_map(|(count, data)| Operation::Read { count, data }),
        2 => (0u64..9, 0u64..4, data()).prop_map(|(count, offset, data)| Operation::Pread { count, offset, data }),
        2 => Just(Operation::Write),
        1 => (0u64..9).prop_map(|offset| Operation::Pwrite { offset }),
        1 => Just(Operation::WriteAll),
        1 => (0u64..9).prop_map(|offset| Operation::PwriteAll { offset }),
        1 => (0i64..9).prop_map(|offset| Operation::Lseek { offset, whence: Whence::End }),
        1 => Just(Operation::Fstat { data: DataAggregation::Packed { bytes_max: 1 << 20 } }),
        1 => (0u64..9).prop_map(|length| Operation::Ftruncate { length }),
        1 => (0u32..0o1000).prop_map(|mode| Operation::Fchmod { mode: mode | 0o600 }),
        1 => Just(Operation::Fsync),
        1 => Just(Operation::Fdatasync),
    ]
}

fn open() -> impl Strategy<Value = OpenMessage> {
    let flags = prop::collection::vec(prop::sample::select(FLAGS), 0..5);
    let path = prop::sample::select(PATHS);
    (path, prop::bool::weighted(0.2), 0u32..4, flags).prop_map(|(path, entries, access, flags)| {
        let path = if entries { "/d" } else { path };
        let flags = flags.into_iter().fold(access, |all, flag| all | flag);
        let paths = vec![path.to_owned()];
        if entries {
            OpenMessage::entries_of(paths, flags, 0o640)
        } else {
            OpenMessage::new(paths, flags, 0o640)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn one_call_does_what_three_do(
        // Mostly alike, so that groups do open.
        common in prop::sample::select(KINDS),
        others in prop::collection::vec(prop::option::weighted(0.2, prop::sample::select(KINDS)), 1..6),
        shape in prop::sample::select(SHAPES),
        open in open(),
        operation in operation(),
        input in "[a-c1 \n]{0,6}",
    ) {
        let kinds: Vec<Kind> = others.into_iter().map(|other| other.unwrap_or(common)).collect();
        let ((cluster, pipes), (copy, copies_pipes)) = (populate(&kinds), populate(&kinds));
        let (once, apart) = run(async {
            let (client, other) = (cluster.client(shape), copy.client(shape));
            let once = client.once(&cluster.everyone(), open.clone(), operation.clone(), input.as_bytes()).await;
            let once = once.map(|reading| {
                let outcome = reading.outcome.clone();
                (reading, outcome)
            });
            let apart = in_turn(&other, &copy, open.clone(), operation.clone(), input.as_bytes()).await;
            (told(&operation, once), told(&operation, apart))
        });
        prop_assert_eq!(once, apart);
        prop_assert_eq!(snapshot(&cluster, pipes), snapshot(&copy, copies_pipes));
    }
}

#[test]
fn nothing_is_changed_unless_the_group_opens() {
    let create = (OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL).bits();
    for (flags, has_file) in [(create, 1), (create | O_PARTIAL, 1), (2, 3), (2 | O_PARTIAL, 3)] {
        let cluster = Cluster::new(5);
        (0..has_file).for_each(|leaf| cluster.write(leaf, "f", "old"));
        run(async {
            let client = cluster.client("k-ary:2");
            let open = OpenMessage::new(vec!["/f".into()], flags, 0o600);
            let once = client.once(&cluster.everyone(), open, Operation::Write, b"new").await;
            assert!(matches!(once, Err(GroupError::Members(_))), "{once:?}");
        });
        for leaf in 0..5 {
            let content = std::fs::read_to_string(cluster.path(leaf, "f")).ok();
            assert_eq!(content.as_deref(), (leaf < has_file).then_some("old"), "{flags:o}");
        }
    }
}

#[test]
fn members_that_all_fail_are_an_error_unless_partial() {
    let cluster = Cluster::new(3);
    (0..3).for_each(|leaf| std::fs::create_dir(cluster.path(leaf, "f")).unwrap());
    run(async {
        let client = cluster.client("flat");
        let read = Operation::Read { count: 9, data: DataAggregation::Count };
        let once = async |path: &str, flags| {
            let open = OpenMessage::new(vec![path.into()], flags, 0);
            client.once(&cluster.everyone(), open, read.clone(), b"").await
        };
        assert!(matches!(once("/f", O_BESTEFFORT).await, Err(GroupError::Members(_))));
        assert_eq!(once("/f", O_BESTEFFORT | O_PARTIAL).await.unwrap().outcome.failed_count(), 3);
        assert!(matches!(once("/none", O_PARTIAL).await, Err(GroupError::Members(_))));
        assert!(matches!(
            once("/none", O_PARTIAL | O_BESTEFFORT).await,
            Err(GroupError::Members(_))
        ));
    });
}

#[test]
fn pipe_is_read_only_when_the_group_opens() {
    let (cluster, pipes) = populate(&[Kind::Pipe, Kind::Nothing, Kind::File]);
    let read = Operation::Read { count: 9, data: DataAggregation::Packed { bytes_max: 99 } };
    let once = async |client: &Client, flags| {
        let open = OpenMessage::new(vec!["/d/f".into()], flags, 0);
        client.once(&cluster.everyone(), open, read.clone(), b"").await
    };
    run(async {
        let client = cluster.client("flat");
        assert!(matches!(once(&client, 0).await, Err(GroupError::Members(_))));
        let reading = once(&client, O_BESTEFFORT).await.unwrap();
        assert!(
            matches!(reading.value, Value::Packed(items) if items.len() == 2 && items[0].1 == b"6 7\n")
        );
    });
    assert_eq!(snapshot(&cluster, pipes)["0:pipe"].1, b"");
}
