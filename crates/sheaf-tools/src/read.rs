//! One group read, its answers combined by an aggregation.
use crate::target::{Target, ToolError, by_members};
use sheaf_core::{MemberSet, RangeSet};
use sheaf_file::is_pattern;
use sheaf_group::aggregate::{ClassDigest, NumberAt};
use sheaf_group::entry::Merged;
use sheaf_group::flags::{O_BESTEFFORT, O_PARTIAL, O_READY};
use sheaf_group::message::{DataAggregation, OpenMessage, Operation, READ_BYTES_MAX};
use sheaf_group::tool::Tools;
use sheaf_group::{Class, Client, GroupError, Outcome, Reading, Value};
use std::collections::BTreeMap;

mod long;
mod through;

/// Makes the leaves' part known to servers.
pub(crate) fn register(tools: &mut Tools) {
    through::register(tools);
}

/// Decodes `data` as what the leaves are told, for fuzzing.
pub(crate) fn decode_any(data: &[u8]) {
    drop(postcard::from_bytes::<through::ReadParams>(data));
}

/// What to read and how to combine it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOptions {
    /// An aggregation as [`DataAggregation::by_name`] knows them.
    pub aggregate: String,
    /// Columns of numbers, counted from 1; empty: every field that is a number.
    pub columns: Vec<u32>,
    /// The most bytes of each file; `None`: all of it, and a concatenation has no gaps.
    pub count: Option<u64>,
    /// Where to start in each file.
    pub offset: u64,
}

/// What one set of hosts gave.
#[derive(Debug)]
pub struct Readout {
    /// The hosts that were asked.
    pub members: RangeSet,
    /// The hosts whose files are in the answer.
    pub contributors: RangeSet,
    /// Paths or patterns.
    pub paths: Vec<String>,
    /// The group's status: how many bytes were read in all.
    pub status: i64,
    /// The combined answer.
    pub data: Combined,
    /// Who contributed and who did not.
    pub outcome: Outcome,
}

/// Files by path, with the hosts that have them.
pub type FilesOfHosts = Vec<(String, RangeSet)>;

/// A combined answer.
#[derive(Debug)]
pub enum Combined {
    /// Nothing was wanted but the status.
    None,
    /// Bytes: a concatenation, or the content that all have.
    Bytes(Vec<u8>),
    /// Leaf, path and content of each member, in the group's order.
    Packed(Vec<(u32, String, Vec<u8>)>),
    /// A number for each place where a file has one.
    Numbers(Vec<NumberAt>),
    /// How many members have data.
    Count(u64),
    /// Members by content.
    Classes(Vec<Content>),
    /// Lines and who has them.
    Lines(Box<Merged>),
}

/// A content and who has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The files.
    pub files: FilesOfHosts,
    /// BLAKE3 digest.
    pub digest: ClassDigest,
    /// Bytes.
    pub len: u64,
    /// The content itself, unless only digests were wanted or it is lost.
    pub body: Option<Vec<u8>>,
}

/// Reads `targets`, one group for each set of hosts.
///
/// # Errors
/// [`ToolError::Usage`] for an aggregation that does not exist, [`GroupError::TooLarge`] for an
/// answer beyond the session's bound, [`GroupError::Differ`] when contents had to be equal. What
/// fails on a host is in [`Readout::outcome`].
pub async fn read(
    client: &Client,
    targets: &[Target],
    options: &ReadOptions,
) -> Result<Vec<Readout>, ToolError> {
    let mut readouts = Vec::new();
    for (members, paths) in by_members(targets) {
        readouts.push(read_group(client, members, paths, options).await?);
    }
    Ok(readouts)
}

async fn read_group(
    client: &Client,
    members: RangeSet,
    paths: Vec<String>,
    options: &ReadOptions,
) -> Result<Readout, ToolError> {
    let aggregate = aggregation(client, &members, options)?;
    if through::is_through(&aggregate) {
        return through::read(client, members, paths, options, &aggregate).await;
    }
    if options.count.is_some_and(|count| count > READ_BYTES_MAX) {
        let text =
            format!("a count is at most {READ_BYTES_MAX}, but with checksum, count and zero");
        return Err(ToolError::Usage(text));
    }
    let (operation, joined) = operation(client, aggregate.clone(), options);
    let open = OpenMessage::new(paths.clone(), O_PARTIAL | O_BESTEFFORT | O_READY, 0);
    // With one path on every host the names are known, and one trip does it all.
    let only = match &paths[..] {
        [path] if !is_pattern(path) => Some(path.clone()),
        _ => None,
    };
    let read = match only {
        Some(path) => client
            .once(&members, open, operation, b"")
            .await
            .map(|read| (read, ShownNames::All(path))),
        None => read_open(client, &members, open, operation).await,
    };
    let (reading, names) = match read {
        Ok(read) => read,
        Err(GroupError::Members(outcome)) => {
            let contributors = RangeSet::new();
            let (data, outcome) = (Combined::None, *outcome);
            return Ok(Readout { members, contributors, paths, status: 0, data, outcome });
        }
        Err(error) => return Err(error.into()),
    };
    if options.count.is_none() && reading.outcome.status.max >= READ_BYTES_MAX {
        return match long::is_for(&aggregate, options) {
            true => long::read(client, members, paths, options, &aggregate).await,
            false => Err(too_long(&reading, &names)),
        };
    }
    let (status, outcome, contributors) =
        (reading.status, reading.outcome.clone(), reading.contributors.clone());
    let data = combined(reading, &names, joined)?;
    Ok(Readout { members, contributors, paths, status, data, outcome })
}

async fn read_open(
    client: &Client,
    members: &RangeSet,
    open: OpenMessage,
    operation: Operation,
) -> Result<(Reading, ShownNames), GroupError> {
    let group = client.gopen_with(members, open).await?;
    let mut reading = group.operate(operation, b"").await?;
    reading.outcome.merge_failures(group.opened().clone());
    let named = matches!(reading.value, Value::Packed(_) | Value::Classes(_));
    let names =
        if named { ShownNames::Each(group.paths().await?) } else { ShownNames::All(String::new()) };
    Ok((reading, names))
}

/// What becomes of the contents.
fn aggregation(
    client: &Client,
    members: &RangeSet,
    options: &ReadOptions,
) -> Result<DataAggregation, ToolError> {
    let eager = members.first().unwrap_or(0);
    let bytes_max = client.limits().bytes_max;
    let aggregate =
        DataAggregation::by_name(&options.aggregate, &options.columns, bytes_max, eager);
    aggregate
        .ok_or_else(|| ToolError::Usage(format!("there is no aggregation {:?}", options.aggregate)))
}

/// The operation, and whether its data are to be joined without gaps.
fn operation(
    client: &Client,
    mut data: DataAggregation,
    options: &ReadOptions,
) -> (Operation, bool) {
    let joined = options.count.is_none() && matches!(data, DataAggregation::Concatenate { .. });
    if joined {
        data = DataAggregation::Packed { bytes_max: client.limits().bytes_max };
    }
    let count = options.count.unwrap_or(READ_BYTES_MAX);
    // A plain read works also where there are no offsets.
    match options.offset {
        0 => (Operation::Read { count, data }, joined),
        offset => (Operation::Pread { count, offset, data }, joined),
    }
}

/// How members are named.
enum ShownNames {
    /// All have this path.
    All(String),
    /// Leaf and path by index.
    Each(Vec<(u32, Vec<u8>)>),
}

impl ShownNames {
    fn path(&self, index: u64) -> String {
        match self {
            Self::All(path) => path.clone(),
            Self::Each(names) => {
                let named = usize::try_from(index).ok().and_then(|index| names.get(index));
                named
                    .map(|(_, path)| String::from_utf8_lossy(path).into_owned())
                    .unwrap_or_default()
            }
        }
    }

    fn files(&self, members: &MemberSet, reading: &Reading) -> FilesOfHosts {
        if let Self::All(path) = self {
            return vec![(path.clone(), members.leaves())];
        }
        let mut files: BTreeMap<String, RangeSet> = BTreeMap::new();
        for (local, leaves) in members.by_local() {
            for leaf in leaves.iter() {
                if let Some(index) = reading.index(leaf, *local) {
                    files.entry(self.path(index)).or_default().insert(leaf);
                }
            }
        }
        files.into_iter().collect()
    }
}

/// Says which file is longer than one read may be, as far as the answer tells.
fn too_long(reading: &Reading, names: &ShownNames) -> ToolError {
    let paths: Vec<String> = match &reading.value {
        Value::Packed(items) => {
            let long = items.iter().filter(|(_, bytes)| bytes.len() as u64 >= READ_BYTES_MAX);
            long.map(|(index, _)| names.path(*index)).collect()
        }
        Value::Classes(classes) => {
            let long = classes.iter().filter(|class| class.len >= READ_BYTES_MAX);
            long.flat_map(|class| names.files(&class.members, reading))
                .map(|(path, _)| path)
                .collect()
        }
        _ => vec![names.path(0)],
    };
    let path = paths.into_iter().find(|path| !path.is_empty());
    ToolError::TooLong { path: path.unwrap_or_else(|| "a file".to_owned()) }
}

fn combined(mut reading: Reading, names: &ShownNames, joined: bool) -> Result<Combined, ToolError> {
    Ok(match std::mem::replace(&mut reading.value, Value::None) {
        Value::None => Combined::None,
        Value::Concatenated(bytes) | Value::Equal(bytes) => Combined::Bytes(bytes),
        Value::Packed(items) if joined => {
            Combined::Bytes(items.into_iter().flat_map(|(_, bytes)| bytes).collect())
        }
        Value::Packed(items) => {
            let member =
                |(index, bytes)| Some((reading.member(index)?.0, names.path(index), bytes));
            Combined::Packed(items.into_iter().filter_map(member).collect())
        }
        Value::Numbers(numbers) => Combined::Numbers(numbers),
        Value::Count(count) => Combined::Count(count),
        Value::Classes(classes) => {
            let content = |class: Class| {
                let Class { members, digest, len, body } = class;
                Content { files: names.files(&members, &reading), digest, len, body }
            };
            Combined::Classes(classes.into_iter().map(content).collect())
        }
        Value::Lines(merged) => Combined::Lines(merged),
        _ => return Err(ToolError::Protocol),
    })
}
