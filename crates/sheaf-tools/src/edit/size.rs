//! Sizes as `truncate` changes them.
use serde::{Deserialize, Serialize};

/// What to make of a file's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SizeChange {
    /// This size.
    To(u64),
    /// Longer by this.
    Grow(u64),
    /// Shorter by this, at least empty.
    Shrink(u64),
    /// No longer than this.
    AtMost(u64),
    /// No shorter than this.
    AtLeast(u64),
    /// Down to a multiple of this.
    DownTo(u64),
    /// Up to a multiple of this.
    UpTo(u64),
}

impl SizeChange {
    /// The size that a file of `old` bytes gets; `None` when it does not fit 63 bits, or a multiple
    /// of 0 is wanted.
    #[must_use]
    pub fn apply(self, old: u64) -> Option<u64> {
        let new = match self {
            Self::To(size) => Some(size),
            Self::Grow(by) => old.checked_add(by),
            Self::Shrink(by) => Some(old.saturating_sub(by)),
            Self::AtMost(size) => Some(old.min(size)),
            Self::AtLeast(size) => Some(old.max(size)),
            Self::DownTo(unit) => old.checked_rem(unit).map(|rest| old - rest),
            Self::UpTo(0) => None,
            Self::UpTo(unit) => old.checked_next_multiple_of(unit),
        };
        new.filter(|size| i64::try_from(*size).is_ok())
    }
}
