//! What can be wrong with a search before it starts.
use sheaf_core::Errno;

/// Why a search cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrepError {
    /// A pattern is not a regular expression.
    #[error("pattern '{pattern}': {message}, at character {}", position + 1)]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong.
        message: String,
        /// Which character of the pattern is wrong, from 0.
        position: usize,
        /// How many characters are wrong, at least 1.
        width: usize,
    },
    /// The patterns cannot be used together or at all.
    #[error("the patterns cannot be searched for: {0}")]
    Unsearchable(String),
    /// A glob of `--include` or `--exclude`.
    #[error("glob '{glob}': {message}")]
    Glob {
        /// The glob.
        glob: String,
        /// What is wrong.
        message: String,
    },
}

impl GrepError {
    /// The errno for it.
    #[must_use]
    pub fn errno(&self) -> Errno {
        Errno::INVAL
    }

    /// The pattern and, on a second line, carets under what is wrong.
    #[must_use]
    pub fn caret(&self) -> Option<String> {
        let Self::Pattern { pattern, position, width, .. } = self else { return None };
        Some(format!("{pattern}\n{}{}", " ".repeat(*position), "^".repeat(*width)))
    }
}
