//! One group read, its answers combined by an aggregation.
use crate::target::{Target, ToolError, by_members};
use sheaf_core::{MemberSet, RangeSet};
use sheaf_file::is_pattern;
use sheaf_group::aggregate::{ClassDigest, LabelAt, NumberAt};
use sheaf_group::entry::{EntryKind, Merged};
use sheaf_group::flags::{O_BESTEFFORT, O_PARTIAL, O_READY};
use sheaf_group::message::{DataAggregation, OpenMessage, Operation, READ_BYTES_MAX};
use sheaf_group::tool::Tools;
use sheaf_group::{Class, Client, GroupError, Outcome, Reading, Value};
use std::collections::BTreeMap;

mod long;
mod through;

/// Bytes of the digest of a content that its lines come with.
const DIGEST_PART: usize = 16;

/// Makes the leaves' part known to servers.
pub(crate) fn register(tools: &mut Tools) {
    through::register(tools);
}

/// Decodes `data` as what the leaves are told, for fuzzing.
#[cfg(feature = "fuzzing")]
pub(crate) fn decode_any(data: &[u8]) {
    drop(postcard::from_bytes::<through::ReadParams>(data));
}

/// What to read and how to combine it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// An aggregation as [`DataAggregation::by_name`] knows them.
    pub aggregate: String,
    /// Columns of numbers, counted from 1; empty: every field that is a number.
    pub columns: Vec<u32>,
    /// The most bytes of each file; `None`: all of it, and a concatenation has no gaps.
    pub count: Option<u64>,
    /// Where to start in each file.
    pub offset: u64,
    /// A regular expression: numbers are taken only from lines in which it matches.
    pub lines: Option<String>,
    /// Say the text beside numbers ([`Readout::labels`]), where no columns are wanted, and where
    /// equal lines are of different contents ([`Readout::hidden`]).
    pub remarks: bool,
}

/// What a group of files gave.
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
    /// The text beside numbers that all members share.
    pub labels: Vec<LabelAt>,
    /// Files of which lines do not show that their contents differ: these have the same lines in
    /// another order or number, or lack the last newline.
    pub hidden: FilesOfHosts,
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

/// Reads `targets` as one group, of which a file that is named twice is one member. Contents side by
/// side (`concatenate`, `packed`) come in the order of the arguments instead: one group for each set
/// of hosts.
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
    let aggregate = aggregation(client, &RangeSet::new(), options)?;
    let side_by_side =
        matches!(aggregate, DataAggregation::Concatenate { .. } | DataAggregation::Packed { .. });
    if !side_by_side {
        return Ok(vec![read_group(client, &Addressed::new(targets), options).await?]);
    }
    let mut readouts = Vec::new();
    for (members, paths) in by_members(targets) {
        let of_one = Addressed { of_hosts: Vec::new(), members, paths };
        readouts.push(read_group(client, &of_one, options).await?);
    }
    Ok(readouts)
}

/// The files of one group.
struct Addressed {
    /// All hosts.
    members: RangeSet,
    /// All paths and patterns, each once.
    paths: Vec<String>,
    /// The paths of each host, if not all hosts have all of them, each as often as it is named.
    of_hosts: Vec<(RangeSet, String)>,
}

impl Addressed {
    fn new(targets: &[Target]) -> Self {
        let (mut members, mut paths) = (RangeSet::new(), Vec::new());
        for target in targets {
            members.union_with(&target.members);
            if !paths.contains(&target.path) {
                paths.push(target.path.clone());
            }
        }
        let of_host = |target: &Target| (target.members.clone(), target.path.clone());
        let of_hosts = targets.iter().map(of_host).collect();
        Self { members, paths, of_hosts }
    }

    /// The path that all hosts have, if there is one and it is no pattern.
    fn only(&self) -> Option<&String> {
        match &self.paths[..] {
            [path] if !is_pattern(path) => Some(path),
            _ => None,
        }
    }

    fn open(&self, flags: u32) -> OpenMessage {
        match self.only() {
            Some(path) => OpenMessage::new(vec![path.clone()], flags, 0),
            None if self.of_hosts.is_empty() => OpenMessage::new(self.paths.clone(), flags, 0),
            None => OpenMessage::of_hosts(self.of_hosts.clone(), flags, 0),
        }
    }

    /// The same as targets.
    fn targets(&self) -> Vec<Target> {
        if self.of_hosts.is_empty() {
            let target =
                |path: &String| Target { members: self.members.clone(), path: path.clone() };
            return self.paths.iter().map(target).collect();
        }
        let target = |(members, path): &(RangeSet, String)| Target {
            members: members.clone(),
            path: path.clone(),
        };
        self.of_hosts.iter().map(target).collect()
    }

    /// A readout of these files.
    fn readout(
        &self,
        contributors: RangeSet,
        status: i64,
        data: Combined,
        outcome: Outcome,
    ) -> Readout {
        let (members, paths) = (self.members.clone(), self.paths.clone());
        let (labels, hidden) = (Vec::new(), Vec::new());
        Readout { members, contributors, paths, status, data, labels, hidden, outcome }
    }
}

async fn read_group(
    client: &Client,
    files: &Addressed,
    options: &ReadOptions,
) -> Result<Readout, ToolError> {
    let members = &files.members;
    let aggregate = aggregation(client, members, options)?;
    if through::is_through(&aggregate) {
        return through::read(client, files, options, &aggregate).await;
    }
    if options.count.is_some_and(|count| count > READ_BYTES_MAX) {
        let text =
            format!("a count is at most {READ_BYTES_MAX}, but with checksum, count and zero");
        return Err(ToolError::Usage(text));
    }
    let (operation, joined) = operation(client, aggregate.clone(), options);
    let open = files.open(O_PARTIAL | O_BESTEFFORT | O_READY);
    // With one path on every host the names are known, and one trip does it all.
    let read = match files.only() {
        Some(path) => client
            .once(members, open, operation, b"")
            .await
            .map(|read| (read, ShownNames::All(path.clone()))),
        None => read_open(client, members, open, operation).await,
    };
    let (reading, names) = match read {
        Ok(read) => read,
        Err(GroupError::Members(outcome)) => {
            return Ok(files.readout(RangeSet::new(), 0, Combined::None, *outcome));
        }
        Err(error) => return Err(error.into()),
    };
    // What has filled the whole read may be longer.
    if options.count.is_none() && reading.outcome.status.max >= READ_BYTES_MAX {
        return match long::is_for(&aggregate, options) {
            true => long::read(client, files, options, &aggregate).await,
            false => Err(too_long(&reading, &names)),
        };
    }
    let (status, outcome, contributors) =
        (reading.status, reading.outcome.clone(), reading.contributors.clone());
    let labels = reading.labels.clone();
    let data = combined(reading, &names, joined)?;
    let hidden = match &data {
        Combined::Lines(merged) if options.remarks => hidden(merged)?,
        _ => Vec::new(),
    };
    Ok(Readout { labels, hidden, ..files.readout(contributors, status, data, outcome) })
}

/// Checks a regular expression for lines.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn check_lines(text: &str) -> Result<(), String> {
    match regex::bytes::Regex::new(text) {
        Ok(_) => Ok(()),
        // The last line says why, those before show where.
        Err(error) => {
            let error = error.to_string();
            let last = error.lines().last().unwrap_or_default();
            Err(last.strip_prefix("error: ").unwrap_or(last).to_owned())
        }
    }
}

/// Files with the same lines whose contents differ all the same.
fn hidden(merged: &Merged) -> Result<FilesOfHosts, ToolError> {
    type Contents<'a> = BTreeMap<&'a [u8], RangeSet>;
    let mut by_lines: BTreeMap<(&[u8], &[u8]), Contents<'_>> = BTreeMap::new();
    let entries = merged.sorted();
    for found in entries.iter().filter(|found| found.entry.kind == EntryKind::Path) {
        let (content, lines) =
            found.entry.text.split_at_checked(DIGEST_PART).ok_or(ToolError::Protocol)?;
        let contents = by_lines.entry((found.path, lines)).or_default();
        contents.entry(content).or_default().union_with(found.leaves);
    }
    let mut files: BTreeMap<String, RangeSet> = BTreeMap::new();
    for ((path, _), contents) in by_lines {
        if contents.len() > 1 {
            let leaves = files.entry(String::from_utf8_lossy(path).into_owned()).or_default();
            contents.values().for_each(|more| leaves.union_with(more));
        }
    }
    Ok(files.into_iter().collect())
}

async fn read_open(
    client: &Client,
    members: &RangeSet,
    open: OpenMessage,
    operation: Operation,
) -> Result<(Reading, ShownNames), GroupError> {
    let group = client.gopen_with(members, open).await?;
    let reading = group.operate(operation, b"").await;
    let mut reading = reading.map_err(|error| error.with_failures(group.opened().clone()))?;
    reading.outcome.merge_failures(group.opened().clone());
    // To ask for names takes a trip more, and only these values need them.
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
    let mut aggregate = aggregate.ok_or_else(|| {
        ToolError::Usage(format!("there is no aggregation {:?}", options.aggregate))
    })?;
    match &mut aggregate {
        DataAggregation::Numbers { lines, labels, columns, .. } => {
            lines.clone_from(&options.lines);
            *labels = options.remarks && columns.is_empty();
        }
        DataAggregation::Lines { digests, .. } => *digests = options.remarks,
        _ => {}
    }
    Ok(aggregate)
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
