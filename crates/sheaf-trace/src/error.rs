use sheaf_core::Errno;
use std::path::{Path, PathBuf};

/// Why a trace cannot be collected, stored or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The kernel says so of a file.
    #[error("{}: {}", path.display(), in_words(source))]
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

/// As failures of hosts are told: with the name of the error in place of its number.
fn in_words(error: &std::io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |errno| Errno(errno).to_string())
}

impl TraceError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    pub(crate) fn damaged(path: &Path, why: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), why: why.to_string() }
    }
}
