//! What can go wrong besides one errno.

use sheaf_core::Errno;
use std::path::PathBuf;

/// One path of a larger operation failed; the operation went on with the others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {errno}", path.display())]
pub struct PathError {
    /// The path, in the form the caller addressed it.
    pub path: PathBuf,
    /// Why.
    pub errno: Errno,
}

/// A pattern that cannot be understood. A retry never helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// The text is longer than a pattern may be.
    #[error("the pattern has {length} bytes, more than {max}")]
    TooLong {
        /// Bytes of the pattern.
        length: usize,
        /// The bound.
        max: usize,
    },
    /// Braces multiply to too many alternatives.
    #[error("the braces of the pattern expand to more than {max} alternatives")]
    TooManyAlternatives {
        /// The bound.
        max: usize,
    },
    /// A range such as `[z-a]`.
    #[error("the range {from}-{to} in the pattern runs backwards")]
    BackwardRange {
        /// Its first character.
        from: char,
        /// Its last character.
        to: char,
    },
    /// A class such as `[[:letter:]]`.
    #[error("the pattern names the unknown character class [:{name}:]")]
    UnknownClass {
        /// The name between the colons.
        name: String,
    },
}

impl PatternError {
    /// Every malformed pattern is `EINVAL`.
    #[must_use]
    pub fn errno(&self) -> Errno {
        Errno::INVAL
    }
}

impl From<PatternError> for Errno {
    fn from(error: PatternError) -> Self {
        error.errno()
    }
}
