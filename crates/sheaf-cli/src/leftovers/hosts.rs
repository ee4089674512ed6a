//! Leftovers on the hosts of a session: each host's server removes those of its own machine.
use super::{Leftover, LeftoverPlaces, LeftoverState, Removal, remove};
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, RangeSet};
use sheaf_group::audit::Change;
use sheaf_group::entry::{AnswerForm, Entry, EntryKind, EntryStats, Merged, Sink};
use sheaf_group::tool::{Host, Reply, Running, Step, Tool, Tools};
use sheaf_group::{Client, Outcome};
use sheaf_records::LeftoverKind;
use sheaf_tools::ToolError;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

const NAME: &str = "clean";
const FORM: AnswerForm = AnswerForm { ordered: false, stats: true };

/// What hosts are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanRequest {
    pub removal: Removal,
    /// The directory in which recordings have theirs.
    pub buffers: PathBuf,
}

/// A leftover as it crosses the tree: equal ones of several hosts are one.
#[derive(Serialize, Deserialize)]
struct LeftoverText {
    kind: LeftoverKind,
    bytes: u64,
    state: LeftoverState,
}

/// The leftovers of a path that are equal on these hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLeftover {
    pub leaves: RangeSet,
    pub leftover: Leftover,
}

/// Makes the tool known to servers.
pub fn register(tools: &mut Tools) {
    tools.register(NAME, CleanTool);
}

struct CleanTool;

impl Tool for CleanTool {
    fn change(&self, params: &[u8]) -> Option<Change> {
        let request = postcard::from_bytes::<CleanRequest>(params).ok()?;
        (!request.removal.dry_run).then(|| Change::new(NAME, []))
    }

    fn start(&self, params: &[u8], _: &Host) -> Result<Box<dyn Running>, Errno> {
        let request = postcard::from_bytes(params).map_err(|_| Errno::INVAL)?;
        Ok(Box::new(CleanRun { request }))
    }
}

struct CleanRun {
    request: CleanRequest,
}

impl Running for CleanRun {
    fn step(&mut self, answer: &mut Reply, _: &Host) -> Step {
        let places = LeftoverPlaces::of_this_process(&self.request.buffers);
        let answer = answer.entries_with(FORM);
        let mut members = 1;
        for Leftover { kind, path, bytes, state } in remove(&places, self.request.removal) {
            let path = path.as_os_str().as_bytes();
            let Ok(text) = postcard::to_stdvec(&LeftoverText { kind, bytes, state }) else {
                answer.error(path, Errno::IO);
                members = 0;
                continue;
            };
            answer.path(path);
            if answer.entry(Entry::new(EntryKind::Line, &text)).is_break() {
                break;
            }
        }
        answer.stats(EntryStats { members, ..EntryStats::default() });
        Step::Done
    }
}

/// Removes the leftovers of `members`. Returns every one that was found, sorted by path.
///
/// A leftover that does not decode is an error of the host that sent it.
///
/// # Errors
/// An answer that does not decode as a whole, or a session that has ended.
pub async fn remove_on_hosts(
    client: &Client,
    members: &RangeSet,
    request: &CleanRequest,
) -> Result<(Vec<HostLeftover>, Outcome), ToolError> {
    let params = postcard::to_stdvec(request).map_err(|_| ToolError::Protocol)?;
    let mut call = client.call(members, NAME, &params)?;
    if !request.removal.dry_run {
        call = call.that_changes().await;
    }
    let mut merged = Merged::new();
    while call.next_entries(&mut merged).await? {}
    let (mut outcome, _) = call.conclude(&mut merged).await?;
    outcome.status.count = merged.stats().map_or(0, |stats| stats.members);
    outcome.add_errors(&merged);
    let mut found = Vec::new();
    for entry in merged.sorted().iter().filter(|entry| entry.entry.kind == EntryKind::Line) {
        let Ok(text) = postcard::from_bytes(entry.entry.text) else {
            let path = String::from_utf8_lossy(entry.path);
            outcome.add_path_error(Errno::PROTO, &path, entry.leaves.clone());
            continue;
        };
        let LeftoverText { kind, bytes, state } = text;
        let path = PathBuf::from(OsStr::from_bytes(entry.path));
        let leftover = Leftover { kind, path, bytes, state };
        found.push(HostLeftover { leaves: entry.leaves.clone(), leftover });
    }
    Ok((found, outcome))
}
