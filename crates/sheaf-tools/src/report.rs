//! What the file system says: `ls`, `stat`, `du` and digests.
//!
//! Hosts answer with entries, line by line, so that lines that are equal on many hosts are one with
//! the set of those hosts, and only what differs is there more than once. Columns are not yet
//! aligned and times not yet written out in an entry's text (alignment would make every line of a
//! directory differ where one file is larger; a time's text depends on the reader's zone):
//! [`list::Row`] and [`stat::text`] do that at the root.
use crate::target::{Target, ToolError, by_members, drop_unmatched};
use serde::{Deserialize, Serialize};
use sheaf_file::Algorithm;
use sheaf_group::Outcome;
use sheaf_group::Session;
use sheaf_group::entry::Merged;
use sheaf_group::tool::Tools;

mod contents;
mod digest;
mod human;
mod leaf;
pub mod list;
mod owners;
pub mod stat;
pub mod time;
mod usage;

pub use contents::{Piece, cat};
pub use usage::UsageOptions;

/// Distinct entries are held back and folded up to this size; beyond, what is there is passed on.
const HELD_BYTES: usize = 64 << 20;

/// Makes the leaves' part known to servers.
pub fn register(tools: &mut Tools) {
    tools.register(leaf::NAME, leaf::ReportTool);
}

/// What is asked of each path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// `ls`: the entries of a path are the rows of that directory; those of the empty path are
    /// files that were named themselves. See [`list::Row`].
    List(list::ListOptions),
    /// `stat`: see [`stat::text`].
    Stat(stat::StatOptions),
    /// `du`: the entries of a path are `SIZE<tab>PATH` for it and what lies beneath it; the total
    /// is a [`Count`](sheaf_group::entry::EntryKind::Count) of the empty path.
    Usage(UsageOptions),
    /// `sha256sum` and others: the digest in hexadecimal digits.
    Digest(Algorithm),
    /// Small files' contents and large ones' digests; see [`cat`].
    Contents,
}

/// Asks every host of `targets`; equal entries of different hosts reach `sink` as one. It is
/// called again where hosts have more to say than is held back.
///
/// # Errors
/// What `sink` returns, and answers that do not decode or fit. What fails on hosts is in the
/// outcome, whose status counts the paths that were reported.
pub async fn report(
    session: &Session,
    targets: &[Target],
    report: &Report,
    sink: &mut dyn FnMut(&Merged) -> std::io::Result<()>,
) -> Result<Outcome, ToolError> {
    let mut outcome = Outcome::default();
    for (members, paths) in by_members(targets) {
        let params = leaf::Params { report: report.clone(), paths };
        let params = postcard::to_stdvec(&params).map_err(|_| ToolError::Protocol)?;
        let mut call = session.call(&members, leaf::NAME, &params);
        let mut merged = Merged::new();
        let (mut paths_done, mut said) = (0, Outcome::default());
        loop {
            let more = call.next_entries(&mut merged).await?;
            if more && merged.bytes() < HELD_BYTES {
                continue;
            }
            paths_done += merged.stats().map_or(0, |stats| stats.files);
            for (path, errno, leaves) in merged.errors() {
                said.add_path_error(errno, &String::from_utf8_lossy(path), leaves.clone());
            }
            sink(&merged).map_err(ToolError::Sink)?;
            merged.clear();
            if !more {
                break;
            }
        }
        said.merge(call.finish());
        said.status.count = paths_done;
        drop_unmatched(&mut said, &members);
        outcome.merge(said);
    }
    Ok(outcome)
}
