//! Grep at the root.
use super::GrepOptions;
use super::tool::{GrepParams, NAME};
use crate::paths::{self, Hearing};
use crate::target::{Target, ToolError};
use sheaf_group::entry::{Entry, Merged};
use sheaf_group::{Client, Outcome};

/// Distinct entries are held back and folded up to this size; beyond, what is there is passed on,
/// and a line that comes again later is passed on again.
pub const HELD_BYTES: usize = paths::HELD_BYTES;

/// What a search came to, beside its lines.
#[derive(Debug, Default)]
pub struct Found {
    /// Whether anything was selected on any host.
    pub matched: bool,
    /// Lines were passed on before all had come, so equal ones may have been passed on twice.
    pub partial_folds: bool,
    /// Who failed and who was silent; files that could not be read are errors. The status counts
    /// the paths that were named and searched whole.
    pub outcome: Outcome,
}

/// Searches `targets`; equal entries of different hosts reach `sink` as one.
///
/// # Errors
/// A malformed pattern ([`ToolError::Grep`]), before any host is asked, or what `sink` returns.
pub async fn grep(
    client: &Client,
    targets: &[Target],
    options: &GrepOptions,
    sink: &mut dyn FnMut(&Merged) -> std::io::Result<()>,
) -> Result<Found, ToolError> {
    options.compile()?;
    options.path_filter()?;
    let mut matched = false;
    let params = |paths| GrepParams { options: options.clone(), paths };
    let mut pass_on = |merged: &Merged| {
        matched |= options.has_selected(merged);
        sink(merged)
    };
    let is_answer = |entry: &Entry<'_>| options.may_say(entry);
    let hearing = Hearing::new(&mut pass_on).ordered(options.each).of(&is_answer);
    let tool = (NAME, paths::Effect::Reads);
    let said = paths::run_with(client, targets, tool, hearing, params).await?;
    Ok(Found { matched, partial_folds: said.in_parts, outcome: said.outcome })
}
