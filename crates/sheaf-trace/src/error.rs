use std::path::{Path, PathBuf};

/// Why a trace cannot be collected, stored or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The kernel says so of a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it says.
        source: std::io::Error,
    },
    /// A file is no trace, or not a whole one.
    #[error("{}: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Whoever writes a trace has removed its oldest parts while it was read.
    #[error(
        "{}: {parts} of its oldest parts were removed while it was read (--keep): what was in them \
         is not here",
        path.display()
    )]
    Removed {
        /// The trace.
        path: PathBuf,
        /// How many parts.
        parts: u64,
    },
}

impl TraceError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    pub(crate) fn damaged(path: &Path, why: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), why: why.to_string() }
    }
}
