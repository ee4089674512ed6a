//! Grep at the root.
use super::GrepOptions;
use super::tool::{NAME, Params};
use crate::target::{Target, ToolError, by_members, drop_unmatched};
use sheaf_group::entry::Merged;
use sheaf_group::{Outcome, Session};

/// Distinct entries are held back and folded up to this size; beyond, what is there is passed on,
/// and a line that comes again later is passed on again.
pub const HELD_BYTES: usize = 64 << 20;

/// What a search came to, beside its lines.
#[derive(Debug, Default)]
pub struct Found {
    /// Whether anything was selected on any host.
    pub matched: bool,
    /// Lines were passed on before all had come, so equal ones may have been passed on twice.
    pub partial_folds: bool,
    /// Who failed and who was silent; files that could not be read are errors. The status counts
    /// the files that were searched: as members that failed are files, too, or whole hosts.
    pub outcome: Outcome,
}

/// Searches `targets`; equal entries of different hosts reach `sink` as one.
///
/// # Errors
/// A malformed pattern ([`ToolError::Grep`]), before any host is asked, or what `sink` returns.
pub async fn grep(
    session: &Session,
    targets: &[Target],
    options: &GrepOptions,
    sink: &mut dyn FnMut(&Merged) -> std::io::Result<()>,
) -> Result<Found, ToolError> {
    options.compile()?;
    options.path_filter()?;
    let mut found = Found::default();
    for (members, paths) in by_members(targets) {
        let params = Params { options: options.clone(), paths };
        let params = postcard::to_stdvec(&params).map_err(|_| ToolError::Protocol)?;
        let mut call = session.call(&members, NAME, &params)?;
        let mut merged = Merged::new();
        let (mut searched, mut errors) = (0, Outcome::default());
        loop {
            let more = call.next_entries(&mut merged).await?;
            if more && merged.bytes() < HELD_BYTES {
                continue;
            }
            found.partial_folds |= more;
            found.matched |= merged.has_selected();
            for (path, errno, leaves) in merged.errors() {
                let path = String::from_utf8_lossy(path);
                errors.add_path_error(errno, &path, leaves.clone());
            }
            searched += merged.stats().map_or(0, |stats| stats.files);
            sink(&merged).map_err(ToolError::Sink)?;
            merged.clear();
            if !more {
                break;
            }
        }
        let mut said = errors;
        said.merge(call.finish());
        drop_unmatched(&mut said, &members);
        said.status.count = searched;
        found.outcome.merge(said);
    }
    Ok(found)
}
