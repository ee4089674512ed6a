//! What is read from the files of a group.
use super::{GroupBinding, GroupFile};
use crate::own::Snapshot;
use jiff::tz::TimeZone;
use sheaf_core::{Errno, RangeSet};
use sheaf_group::aggregate::NumberAt;
use sheaf_group::entry::{Merged, MergedEntry};
use sheaf_group::flags::O_BESTEFFORT;
use sheaf_group::message::OpenMessage;
use sheaf_group::{Client, GroupError, Outcome, Target};
use sheaf_tools::ToolError;
use sheaf_tools::read::{Combined, FilesOfHosts, ReadOptions, Readout, read};
use sheaf_tools::report::stat::{self, StatOptions};
use sheaf_tools::report::{ReportChoice, report};
use std::os::unix::ffi::OsStrExt;

/// What `stat` shows of a file: mode, owner, group, bytes and when it was changed.
const STAT_FORMAT: &str = "%A %U %G %s %y";

/// What stands where a column has no number.
const NO_NUMBER: &str = "-";

/// What came of looking for it.
pub(super) struct GroupContents {
    pub bytes: Vec<u8>,
    pub outcome: Outcome,
    /// What more there is to say.
    pub notes: Vec<String>,
}

/// Reads what `file` shows of the files that `targets` name.
pub(super) async fn contents(
    client: &Client,
    file: GroupFile,
    targets: &[Target],
    binding: &GroupBinding,
) -> Result<GroupContents, ToolError> {
    let with =
        |aggregate: &str| GroupBinding { aggregate: aggregate.to_owned(), columns: Vec::new() };
    match file {
        GroupFile::Files | GroupFile::Size => members(client, file, targets).await,
        GroupFile::Stat => stats(client, targets).await,
        GroupFile::Lines => combined(client, targets, with("lines")).await,
        GroupFile::Sum => combined(client, targets, with("sum")).await,
        GroupFile::Data | GroupFile::Ctl | GroupFile::Status => {
            combined(client, targets, binding.clone()).await
        }
    }
}

/// The names of members, one in each line, or how many they are.
async fn members(
    client: &Client,
    file: GroupFile,
    targets: &[Target],
) -> Result<GroupContents, ToolError> {
    let (mut bytes, mut outcome, mut count) = (Vec::new(), Outcome::default(), 0);
    for (hosts, paths) in by_members(targets) {
        let flags = rustix::fs::OFlags::PATH.bits() | O_BESTEFFORT;
        let group = match client.gopen_with(&hosts, OpenMessage::new(paths, flags, 0)).await {
            Ok(group) => group,
            Err(GroupError::Members(failed)) => {
                outcome.merge(*failed);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        outcome.merge(group.opened().clone());
        count += group.size();
        if file == GroupFile::Files {
            for name in group.files().await? {
                bytes.extend_from_slice(name.as_bytes());
                bytes.push(b'\n');
            }
        }
        group.close().await?;
    }
    if file == GroupFile::Size {
        bytes = format!("{count}\n").into_bytes();
    }
    Ok(GroupContents { bytes, outcome, notes: Vec::new() })
}

/// Targets of the same hosts together, as one group each.
pub(super) fn by_members(targets: &[Target]) -> Vec<(RangeSet, Vec<String>)> {
    let mut groups: Vec<(RangeSet, Vec<String>)> = Vec::new();
    for target in targets {
        match groups.iter_mut().find(|(members, _)| *members == target.members) {
            Some((_, paths)) => paths.push(target.path.clone()),
            None => groups.push((target.members.clone(), vec![target.path.clone()])),
        }
    }
    groups
}

/// Attributes, equal ones once.
async fn stats(client: &Client, targets: &[Target]) -> Result<GroupContents, ToolError> {
    let options =
        StatOptions { format: Some(STAT_FORMAT.to_owned()), dereference: true, file_system: false };
    let (mut bytes, zone) = (Vec::new(), TimeZone::system());
    let mut sink = |merged: &Merged| {
        put_entries(client, merged, &mut bytes, true, |entry| stat::text(entry.entry.text, &zone));
        Ok(())
    };
    let outcome = report(client, targets, &ReportChoice::Stat(options), &mut sink).await?;
    Ok(GroupContents { bytes, outcome, notes: Vec::new() })
}

/// The hosts of each entry, its path if it is wanted, and its text.
fn put_entries(
    client: &Client,
    merged: &Merged,
    out: &mut Vec<u8>,
    with_paths: bool,
    text: impl Fn(&MergedEntry<'_>) -> Vec<u8>,
) {
    for entry in merged.sorted() {
        out.extend_from_slice(client.fold(entry.leaves).as_bytes());
        if with_paths {
            out.push(b':');
            out.extend_from_slice(entry.path);
        }
        out.extend_from_slice(b": ");
        out.extend_from_slice(&text(&entry));
        out.push(b'\n');
    }
}

/// The data, as is bound.
async fn combined(
    client: &Client,
    targets: &[Target],
    binding: GroupBinding,
) -> Result<GroupContents, ToolError> {
    let GroupBinding { aggregate, columns } = binding;
    let options = ReadOptions { aggregate, columns: columns.clone(), ..ReadOptions::default() };
    let readouts = read(client, targets, &options).await?;
    let mut all =
        GroupContents { bytes: Vec::new(), outcome: Outcome::default(), notes: Vec::new() };
    for readout in readouts {
        put(client, &readout, &columns, &mut all);
        all.outcome.merge(readout.outcome);
    }
    Ok(all)
}

/// Numbers at the places that they have in the files: a line for each, and `-` where no file has a number.
fn table(numbers: &[NumberAt], columns: &[u32]) -> String {
    let mut text = String::new();
    for line in numbers.chunk_by(|one, next| one.line == next.line) {
        let mut at = line.iter().peekable();
        let last = line.iter().map(|at| at.column).max().unwrap_or(0);
        let all: Vec<u32> =
            if columns.is_empty() { (1..=last).collect() } else { columns.to_vec() };
        let cells = all.iter().map(|column| match at.next_if(|at| at.column == *column) {
            Some(at) => at.number.to_string(),
            None => NO_NUMBER.to_owned(),
        });
        text += &cells.collect::<Vec<_>>().join(" ");
        text.push('\n');
    }
    text
}

fn put(client: &Client, readout: &Readout, columns: &[u32], all: &mut GroupContents) {
    let out = &mut all.bytes;
    match &readout.data {
        Combined::None if readout.outcome.status.count == 0 => {}
        Combined::None => out.extend_from_slice(format!("{}\n", readout.status).as_bytes()),
        Combined::Bytes(bytes) => out.extend_from_slice(bytes),
        Combined::Count(count) => out.extend_from_slice(format!("{count}\n").as_bytes()),
        Combined::Numbers(numbers) => {
            out.extend_from_slice(table(numbers, columns).as_bytes());
            let gaps = numbers.iter().filter(|at| at.without > 0);
            all.notes.extend(gaps.map(|at| {
                let hosts = client.fold(&at.without_members.leaves());
                format!("{hosts}: no number in line {}, column {}", at.line, at.column)
            }));
        }
        Combined::Packed(items) => {
            for (leaf, path, bytes) in items {
                let host = client.host(*leaf).unwrap_or_default();
                out.extend_from_slice(format!("==> {host}:{path} <==\n").as_bytes());
                out.extend_from_slice(bytes);
            }
        }
        Combined::Classes(classes) => {
            for class in classes {
                let files = shown(client, &class.files);
                match &class.body {
                    Some(body) => {
                        out.extend_from_slice(format!("==> {files} <==\n").as_bytes());
                        out.extend_from_slice(body);
                    }
                    None => {
                        let digest = class.digest.iter().map(|byte| format!("{byte:02x}"));
                        let digest: String = digest.collect();
                        out.extend_from_slice(format!("{digest}  {files}\n").as_bytes());
                    }
                }
            }
        }
        Combined::Lines(merged) => {
            let with_paths = readout.paths.len() > 1 || readout.paths.iter().any(is_pattern);
            put_entries(client, merged, out, with_paths, |entry| entry.entry.text.to_vec());
        }
    }
}

fn is_pattern(path: impl AsRef<str>) -> bool {
    sheaf_file::is_pattern(path.as_ref())
}

fn shown(client: &Client, files: &FilesOfHosts) -> String {
    let one = |(path, leaves): &(String, RangeSet)| format!("{}:{path}", client.fold(leaves));
    files.iter().map(one).collect::<Vec<_>>().join(" ")
}

impl GroupContents {
    /// As it is read: whole, or with `EIO` where a part is missing. Nothing at all is an error at once.
    pub fn into_snapshot(self) -> Result<Snapshot, Errno> {
        let is_whole = self.outcome.is_ok() && self.notes.is_empty();
        if !is_whole && self.bytes.is_empty() {
            return Err(errno_of(&self.outcome));
        }
        Ok(Snapshot { bytes: self.bytes, end: (!is_whole).then_some(Errno::IO) })
    }
}

/// What programs are told: what all that failed have failed with, or that something has.
pub(crate) fn errno_of(outcome: &Outcome) -> Errno {
    let mut all = outcome.errnos();
    let first = all.next().unwrap_or(Errno::IO);
    if all.all(|errno| errno == first) { first } else { Errno::IO }
}

/// What became of an operation, in words: a line, and one for each way in which members have failed.
pub(crate) fn told(client: &Client, what: &str, outcome: &Outcome, notes: &[String]) -> String {
    let (all, failed) = (outcome.member_count(), outcome.failed_count());
    let mut lines = vec![match failed {
        0 if all == 1 => format!("{what}: 1 file"),
        0 => format!("{what}: {all} files"),
        failed => format!("{what}: {failed} of {all} failed"),
    }];
    for error in &outcome.errors {
        let hosts = client.fold(&error.members.leaves());
        let colon = if error.path.is_empty() { "" } else { ":" };
        lines.push(format!("{hosts}{colon}{}: {}", error.path, error.errno));
    }
    for (errno, leaves) in outcome.failed.iter().chain(&outcome.silent) {
        lines.push(format!("{}: {errno}", client.fold(leaves)));
    }
    lines.extend(notes.iter().cloned());
    lines.join("\n") + "\n"
}

/// Why there is nothing, and which setting bounds it.
pub(super) fn said(client: &Client, error: &ToolError) -> String {
    match error {
        ToolError::Group(GroupError::TooLarge { bytes_max })
            if *bytes_max == client.limits().bytes_max =>
        {
            format!(
                "all together need more than {bytes_max} bytes: raise concatenate_bytes_max in [tuning] of \
                 sheaf.toml, or bind another aggregation"
            )
        }
        error => error.to_string(),
    }
}
