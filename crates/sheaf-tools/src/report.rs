//! What the file system says: `ls`, `stat`, `du` and digests.
//!
//! Hosts answer with entries, line by line, so that lines that are equal on many hosts are one with
//! the set of those hosts, and only what differs is there more than once. Columns are not yet
//! aligned and times not yet written out in an entry's text (alignment would make every line of a
//! directory differ where one file is larger; a time's text depends on the reader's zone):
//! [`list::ListRow`] and [`stat::text`] do that at the root.
use crate::target::{Target, ToolError};
use serde::{Deserialize, Serialize};
use sheaf_file::Algorithm;
use sheaf_group::Client;
use sheaf_group::Outcome;
use sheaf_group::entry::{Entry, EntryKind, Merged};
use sheaf_group::tool::Tools;

pub mod check;
mod contents;
mod digest;
pub mod human;
mod leaf;
pub mod list;
mod owners;
pub mod stat;
pub mod time;
mod usage;

pub use contents::{Piece, cat};
pub(crate) use contents::{Summary, fetch};
pub use usage::{UsageReportOptions, UsageUnit};

/// Makes the leaves' part known to servers.
pub fn register(tools: &mut Tools) {
    tools.register(leaf::NAME, leaf::ReportTool);
}

/// What is asked of each path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportChoice {
    /// `ls`: the entries of a path are the rows of that directory; those of the empty path are
    /// files that were named themselves. See [`list::ListRow`].
    List(list::ListOptions),
    /// `stat`: see [`stat::text`].
    Stat(stat::StatOptions),
    /// `du`: the entries of a path are `SIZE<tab>PATH`, or `SIZE<tab>TIME<tab>PATH` with times as
    /// seconds since 1970, for it and what lies beneath it; the total
    /// is a [`Count`](sheaf_group::entry::EntryKind::Count) of the empty path.
    Usage(UsageReportOptions),
    /// `sha256sum` and others: the digest in hexadecimal digits.
    Digest(Algorithm),
    /// Small files' contents and large ones' digests; see [`cat`].
    Contents,
    /// `sha -c`: the paths are lists of digests; see [`check::Checked`].
    Check(check::CheckOptions),
}

impl ReportChoice {
    /// Whether this can be in the answer of a host. What is shown as it comes must be what it is taken for.
    fn may_say(&self, entry: &Entry<'_>) -> bool {
        match self {
            Self::Digest(algorithm) => {
                let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
                entry.text.len() == algorithm.digits() && entry.text.iter().all(is_digit)
            }
            Self::Usage(options) if matches!(entry.kind, EntryKind::Line | EntryKind::Count) => {
                options.may_say(entry.text)
            }
            _ => true,
        }
    }
}

/// Asks every host of `targets`; equal entries of different hosts reach `sink` as one. It is
/// called again where hosts have more to say than is held back.
///
/// # Errors
/// What `sink` returns, and answers that do not decode or fit. What fails on hosts is in the
/// outcome, whose status counts the paths that were reported.
pub async fn report(
    client: &Client,
    targets: &[Target],
    report: &ReportChoice,
    sink: &mut dyn FnMut(&Merged) -> std::io::Result<()>,
) -> Result<Outcome, ToolError> {
    let params = |paths| leaf::ReportParams { report: report.clone(), paths };
    if !matches!(report, ReportChoice::Check(_)) {
        let is_answer = |entry: &Entry<'_>| report.may_say(entry);
        return Ok(crate::paths::run_checked(
            client,
            targets,
            (leaf::NAME, crate::paths::Effect::Reads),
            &is_answer,
            params,
            sink,
        )
        .await?
        .outcome);
    }
    let mut unread = Outcome::default();
    let mut hear = |merged: &Merged| {
        check::add_unread(merged, &mut unread);
        sink(merged)
    };
    let mut outcome = crate::paths::run(
        client,
        targets,
        (leaf::NAME, crate::paths::Effect::Reads),
        params,
        &mut hear,
    )
    .await?
    .outcome;
    outcome.merge(unread);
    Ok(outcome)
}

/// Decodes `data` as each thing that crosses the tree here, for fuzzing.
#[cfg(feature = "fuzzing")]
pub(crate) fn decode_any(data: &[u8]) {
    drop(postcard::from_bytes::<leaf::ReportParams>(data));
    drop(stat::text(data, &jiff::tz::TimeZone::UTC));
    drop(postcard::from_bytes::<Summary>(data));
}
