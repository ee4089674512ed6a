//! Changes of files on many hosts: `chmod`, `chown`, `truncate`, `rm`, `mkdir`, `ln`; and `write`.
//!
//! Each path fails or succeeds by itself on each host; equal failures fold over hosts.
use crate::paths;
use crate::target::{Target, ToolError};
use serde::{Deserialize, Serialize};
use sheaf_file::ModeChange;
use sheaf_group::entry::Merged;
use sheaf_group::tool::Tools;
use sheaf_group::{Outcome, Session};
use std::path::{Component, Path};

mod leaf;
mod link;
mod size;
mod write;

pub use size::SizeChange;
pub use write::{WriteOptions, Written, write};

/// Makes the leaves' part known to servers.
pub fn register(tools: &mut Tools) {
    tools.register(leaf::NAME, leaf::EditTool);
}

/// A change of each path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Edit {
    /// `chmod`; symbolic links are followed where they are named, and passed over below.
    Chmod {
        /// The change.
        change: ModeChange,
        /// Of what lies beneath directories, too.
        recursive: bool,
    },
    /// `chown`.
    Chown {
        /// `user`, `user:group`, `user:` or `:group`, by name or number, as the host knows them.
        owner: String,
        /// Of what lies beneath directories, too. Symbolic links are not followed then.
        recursive: bool,
        /// Of what a symbolic link leads to, not of the link.
        follow: bool,
    },
    /// `truncate`.
    Truncate {
        /// The new size.
        size: SizeChange,
        /// Make files that are missing; they are passed over otherwise.
        create: bool,
    },
    /// `rm`.
    Remove {
        /// Directories with all beneath them.
        recursive: bool,
        /// What does not exist counts as removed.
        force: bool,
        /// Empty directories, too.
        empty_dirs: bool,
    },
    /// `mkdir`.
    Mkdir {
        /// Directories above that are missing, too; one that exists is no error.
        parents: bool,
        /// Its mode; `None`: what the host's umask leaves.
        mode: Option<ModeChange>,
    },
    /// `ln`; the path is that of the link, or of a directory for it.
    Link {
        /// What it leads to.
        target: Vec<u8>,
        /// A symbolic link.
        symbolic: bool,
        /// In place of a file that is there.
        force: bool,
        /// A symbolic link to a directory is replaced itself, not filled.
        no_dereference: bool,
    },
}

/// Changes `targets` on their hosts. With `verbose`, what was done is in lines for `sink`; without,
/// there are none.
///
/// # Errors
/// [`ToolError::Usage`] for the removal of a host's whole export, what `sink` returns, and answers
/// that do not decode. What fails on hosts is in the outcome, whose status counts the paths that
/// were changed.
pub async fn edit(
    session: &Session,
    targets: &[Target],
    edit: &Edit,
    verbose: bool,
    sink: &mut dyn FnMut(&Merged) -> std::io::Result<()>,
) -> Result<Outcome, ToolError> {
    if matches!(edit, Edit::Remove { .. })
        && let Some(target) = targets.iter().find(|target| is_root(&target.path))
    {
        let text = format!("{}: this is everything a host serves, and is not removed", target.path);
        return Err(ToolError::Usage(text));
    }
    let params = |paths| leaf::Params { edit: edit.clone(), paths, verbose };
    Ok(paths::run(session, targets, leaf::NAME, params, sink).await?.outcome)
}

/// Whether a path can only be the root of an export, whatever a host has.
fn is_root(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|part| !matches!(part, Component::Normal(_)))
}

/// Decodes `data` as each thing that crosses the tree here, for fuzzing.
pub(crate) fn decode_any(data: &[u8]) {
    drop(postcard::from_bytes::<leaf::Params>(data));
}

#[cfg(test)]
mod tests {
    use super::is_root;

    #[test]
    fn roots_are_known_by_every_name() {
        for path in ["/", "//", ".", "..", "/..", "./", "/./.."] {
            assert!(is_root(path), "{path}");
        }
        for path in ["", "/a", "a", "/*", "a/..", ".a"] {
            assert!(!is_root(path), "{path}");
        }
    }
}
