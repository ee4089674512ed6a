//! Values that remember where they came from.
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody says it.
    Default,
    /// An option of the command line.
    Option(&'static str),
    /// A line of a file, counted from 1.
    File(Arc<Path>, usize),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Option(option) => f.write_str(option),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
        }
    }
}

/// A value that remembers where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it came from.
    pub origin: Origin,
}

impl<T> Sourced<T> {
    /// What holds where nothing is said.
    pub const fn default(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }

    pub(super) fn option(value: T, option: &'static str) -> Self {
        Self { value, origin: Origin::Option(option) }
    }
}
