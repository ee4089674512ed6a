//! The program of the paper's Figure 1: a loop over all files, one operation after the other. What
//! a group does must be what it does.
use crate::cluster::{Cluster, SHAPES, run};
use proptest::prelude::*;
use sheaf_core::Errno;
use sheaf_group::flags::{O_BESTEFFORT, O_PARTIAL};
use sheaf_group::message::{DataAggregation, Operation, Whence};
use sheaf_group::{Group, GroupError, Reading, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

mod many;

const O_RDWR: u32 = 2;
const NAMES: &[&str] = &["a", "b.txt", "z"];
/// Texts that contents are made of: some are numbers, some are the same.
const TEXTS: &[&str] = &["a\n", "b\n", "1 2\n", "3.5 x\n", "\n", "no end"];

/// What a member's operation gave: its result and its data.
type Outcome = Result<(u64, Vec<u8>), Errno>;

struct Loop {
    members: Vec<(u32, String, File)>,
}

impl Loop {
    /// Opens what each host has in `d`, hosts in order and names bytewise.
    fn open(cluster: &Cluster) -> Self {
        let mut members = Vec::new();
        for leaf in 0..cluster.hosts {
            let Ok(entries) = std::fs::read_dir(cluster.path(leaf, "d")) else { continue };
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            for name in names {
                let path = format!("/d/{name}");
                let file =
                    OpenOptions::new().read(true).write(true).open(cluster.path(leaf, &path));
                members.push((leaf, path, file.unwrap()));
            }
        }
        Self { members }
    }

    fn all(&mut self, operation: &Operation, input: &[u8]) -> Vec<Outcome> {
        self.members
            .iter_mut()
            .map(|(_, _, file)| one(file, operation, input).map_err(Errno::from))
            .collect()
    }
}

fn one(file: &mut File, operation: &Operation, input: &[u8]) -> std::io::Result<(u64, Vec<u8>)> {
    let mut data = Vec::new();
    let status = match operation {
        Operation::Read { count, .. } => file.take(*count).read_to_end(&mut data)? as u64,
        Operation::Pread { count, offset, .. } => {
            data = vec![0; *count as usize];
            let got = file.read_at(&mut data, *offset)?;
            data.truncate(got);
            got as u64
        }
        Operation::Write => file.write(input)? as u64,
        Operation::Pwrite { offset } => file.write_at(input, *offset)? as u64,
        Operation::Lseek { offset, whence: Whence::Start } => {
            file.seek(SeekFrom::Start(*offset as u64))?
        }
        Operation::Lseek { offset, whence: Whence::Current } => {
            file.seek(SeekFrom::Current(*offset))?
        }
        Operation::Lseek { offset, whence: Whence::End } => file.seek(SeekFrom::End(*offset))?,
        Operation::Ftruncate { length } => file.set_len(*length).map(|()| 0)?,
        Operation::Fchmod { mode } => {
            file.set_permissions(PermissionsExt::from_mode(*mode)).map(|()| 0)?
        }
        Operation::Fsync | Operation::Fdatasync => file.sync_all().map(|()| 0)?,
        other => panic!("the loop has no {other:?}"),
    };
    Ok((status, data))
}

/// Compares what the members came to last with what the loop did.
async fn check_statuses(group: &Group, done: &[Outcome]) {
    let statuses: Vec<i64> = done
        .iter()
        .map(|one| one.as_ref().map_or_else(|e| e.status(), |(s, _)| *s as i64))
        .collect();
    assert_eq!(group.statuses().await.unwrap(), statuses);
}

/// Compares what the group gave with what the loop did.
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn check_result(
    group: &Group,
    program: &Loop,
    operation: &Operation,
    done: &[Outcome],
    got: Result<Reading, GroupError>,
) {
    let contents: Vec<(usize, &[u8])> = done
        .iter()
        .enumerate()
        .filter_map(|(at, one)| Some((at, one.as_ref().ok()?.1.as_slice())))
        .collect();
    let distinct: BTreeSet<&[u8]> = contents.iter().map(|(_, content)| *content).collect();
    let (data, count) = match operation {
        Operation::Read { data, count } | Operation::Pread { data, count, .. } => (data, *count),
        _ => (&DataAggregation::Zero, 0),
    };
    if *data == DataAggregation::Equal && distinct.len() > 1 {
        assert!(
            matches!(got, Err(GroupError::Differ { classes, .. }) if classes == distinct.len()),
            "{got:?}"
        );
        return;
    }
    let got = got.unwrap();
    check_errors(program, done, &got);
    check_status(operation, done, got.status);
    let done_by = done.iter().zip(&program.members).filter(|(one, _)| one.is_ok());
    assert_eq!(got.contributors, done_by.map(|(_, (leaf, _, _))| *leaf).collect());
    match (data, got.value) {
        (DataAggregation::Concatenate { .. }, Value::Concatenated(bytes)) => {
            let mut all = vec![0; done.len() * count as usize];
            for (at, content) in contents {
                all[at * count as usize..][..content.len()].copy_from_slice(content);
            }
            assert_eq!(bytes, all);
        }
        (DataAggregation::Packed { .. }, Value::Packed(items)) => {
            let all: Vec<_> =
                contents.iter().map(|(at, content)| (*at as u64, content.to_vec())).collect();
            assert_eq!(items, all);
        }
        (DataAggregation::Contents { .. } | DataAggregation::Checksum, Value::Classes(classes)) => {
            let mut all: BTreeMap<Vec<u8>, Vec<u64>> = BTreeMap::new();
            for (at, content) in &contents {
                all.entry(blake3::hash(content).as_bytes().to_vec()).or_default().push(*at as u64);
            }
            assert_eq!(classes.len(), all.len());
            for class in classes {
                assert_eq!(all[&class.digest[..]], indices(group, &class.members));
                if *data != DataAggregation::Checksum {
                    assert_eq!(*blake3::hash(&class.body.unwrap()).as_bytes(), class.digest);
                }
            }
        }
        (DataAggregation::Lines { .. }, Value::Lines(merged)) => {
            let mut all: BTreeMap<(&str, &[u8]), BTreeSet<u32>> = BTreeMap::new();
            for (at, content) in contents.iter().filter(|(_, content)| !content.is_empty()) {
                let (leaf, path, _) = &program.members[*at];
                let text = content.strip_suffix(b"\n").unwrap_or(content);
                for line in text.split(|byte| *byte == b'\n') {
                    all.entry((path.as_str(), line)).or_default().insert(*leaf);
                }
            }
            let found = merged.sorted().into_iter();
            let found: BTreeMap<_, _> = found
                .map(|e| {
                    (
                        (std::str::from_utf8(e.path).unwrap(), e.entry.text),
                        e.leaves.iter().collect(),
                    )
                })
                .collect();
            assert_eq!(found, all);
        }
        (DataAggregation::Equal, Value::Equal(content)) => {
            assert_eq!(content, distinct.first().copied().unwrap_or_default());
        }
        (DataAggregation::Count, Value::Count(count)) => assert_eq!(count, contents.len() as u64),
        (DataAggregation::Zero, Value::None) => {}
        (data, value) => panic!("{data:?} gave {value:?}"),
    }
}

fn indices(group: &Group, members: &sheaf_core::MemberSet) -> Vec<u64> {
    let strided = group.indices(members).into_iter();
    strided
        .flat_map(|(start, stride, count)| (0..count).map(move |at| start + stride * at))
        .collect()
}

fn check_errors(program: &Loop, done: &[Outcome], got: &Reading) {
    let mut failed: BTreeSet<(Errno, String, u32)> = BTreeSet::new();
    for ((leaf, path, _), one) in program.members.iter().zip(done) {
        if let Err(errno) = one {
            failed.insert((*errno, path.clone(), *leaf));
        }
    }
    let mut said = BTreeSet::new();
    for error in &got.outcome.errors {
        said.extend(
            error.members.leaves().iter().map(|leaf| (error.errno, error.path.clone(), leaf)),
        );
    }
    assert_eq!(said, failed);
    assert!(got.outcome.failed.is_empty() && got.outcome.silent.is_empty());
    assert_eq!(got.outcome.member_count(), done.len() as u64);
}

fn check_status(operation: &Operation, done: &[Outcome], status: i64) {
    let good: Vec<i64> = done.iter().filter_map(|one| Some(one.as_ref().ok()?.0 as i64)).collect();
    let expected = match operation {
        Operation::Read { .. }
        | Operation::Pread { .. }
        | Operation::Write
        | Operation::Pwrite { .. } => good.iter().sum(),
        Operation::Lseek { .. } => match good.first() {
            Some(first) if good.iter().all(|status| status == first) => *first,
            _ => -1,
        },
        _ => 0,
    };
    assert_eq!(status, expected);
}

/// What each host has of each name: texts by number, often repeated to be long.
type Files = Vec<[Option<(Vec<usize>, bool)>; NAMES.len()]>;

fn files() -> impl Strategy<Value = Files> {
    let content = (prop::collection::vec(0..TEXTS.len(), 0..3), prop::bool::weighted(0.2));
    let content = prop::option::weighted(0.8, content);
    prop::collection::vec([content.clone(), content.clone(), content], 1..24)
}

fn aggregation() -> impl Strategy<Value = DataAggregation> {
    prop_oneof![
        Just(DataAggregation::Concatenate { bytes_max: 1 << 30 }),
        Just(DataAggregation::Packed { bytes_max: 1 << 30 }),
        (0u32..30).prop_map(|eager| DataAggregation::Contents { eager }),
        (0u32..30).prop_map(|eager| DataAggregation::Lines { eager, digests: false }),
        Just(DataAggregation::Checksum),
        Just(DataAggregation::Equal),
        Just(DataAggregation::Count),
        Just(DataAggregation::Zero),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let whence = prop_oneof![Just(Whence::Start), Just(Whence::Current), Just(Whence::End)];
    prop_oneof![
        4 => (0u64..2000, aggregation()).prop_map(|(count, data)| Operation::Read { count, data }),
        4 => (0u64..2000, 0u64..8, aggregation()).prop_map(|(count, offset, data)| Operation::Pread { count, offset, data }),
        1 => Just(Operation::Write),
        1 => (0u64..9).prop_map(|offset| Operation::Pwrite { offset }),
        2 => (-4i64..5, whence).prop_map(|(offset, whence)| match whence {
            Whence::Start => Operation::Lseek { offset: offset.abs(), whence },
            _ => Operation::Lseek { offset, whence },
        }),
        1 => (0u64..9).prop_map(|length| Operation::Ftruncate { length }),
        1 => (0u32..0o1000).prop_map(|mode| Operation::Fchmod { mode: mode | 0o600 }),
        1 => Just(Operation::Fsync),
    ]
}

fn populate(files: &Files) -> Cluster {
    let cluster = Cluster::new(files.len() as u32);
    for (leaf, files) in files.iter().enumerate() {
        for (name, file) in NAMES.iter().zip(files) {
            let Some((texts, is_long)) = file else { continue };
            let text: String = texts.iter().map(|text| TEXTS[*text]).collect();
            cluster.write(
                leaf as u32,
                &format!("d/{name}"),
                if *is_long { text.repeat(100) } else { text },
            );
        }
    }
    cluster
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn group_does_what_the_loop_does(
        files in files(),
        shape in prop::sample::select(SHAPES),
        operations in prop::collection::vec((operation(), "[a-c1 \n]{0,6}"), 1..8),
    ) {
        let (cluster, copy) = (populate(&files), populate(&files));
        run(async {
            let client = cluster.client(shape);
            let mut program = Loop::open(&copy);
            let flags = O_RDWR | O_BESTEFFORT | O_PARTIAL;
            let group = match client.gopen(&cluster.everyone(), "/d", flags, 0).await {
                Ok(group) => group,
                Err(GroupError::Members(outcome)) => {
                    assert!(program.members.is_empty() && outcome.errnos().all(|errno| errno == Errno::NOENT));
                    return;
                }
                Err(error) => panic!("{error}"),
            };
            let names = program.members.iter().map(|(leaf, path, _)| format!("n{}:{path}", leaf + 1).into());
            assert_eq!(group.files().await.unwrap(), names.collect::<Vec<std::ffi::OsString>>());
            assert_eq!(group.size(), program.members.len() as u64);
            for (operation, input) in &operations {
                let done = program.all(operation, input.as_bytes());
                let got = group.operate(operation.clone(), input.as_bytes()).await;
                check_statuses(&group, &done).await;
                check_result(&group, &program, operation, &done, got);
            }
            let stats = group.fstat().await.unwrap();
            assert_eq!(stats.len(), program.members.len());
            for ((_, stat), (_, _, file)) in stats.iter().zip(&program.members) {
                let metadata = file.metadata().unwrap();
                assert_eq!((stat.size, stat.mode, stat.uid), (metadata.size(), metadata.mode(), metadata.uid()));
            }
            assert_eq!(group.close().await.unwrap().status, 0);
            for (leaf, path, _) in &program.members {
                let content = |cluster: &Cluster| std::fs::read(cluster.path(*leaf, path)).unwrap();
                assert_eq!(content(&cluster), content(&copy));
            }
        });
    }
}
