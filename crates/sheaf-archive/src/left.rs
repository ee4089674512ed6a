//! Extended attributes that a file was to have and has not.
use sheaf_core::{Errno, lock};
use std::collections::HashSet;
use std::sync::Mutex;

/// Attributes of which one file is named each at most; beyond that they are counted.
const TOLD_MAX: usize = 16;

/// The attributes of a file that could not be set, by their names.
pub(crate) type LeftAttributes = Vec<(Vec<u8>, Errno)>;

/// The names of lost attributes that were reported.
#[derive(Default)]
pub(crate) struct LeftTold(Mutex<HashSet<Vec<u8>>>);

impl LeftTold {
    /// The attributes of a file whose names were not reported before.
    pub fn first(&self, left: LeftAttributes) -> LeftAttributes {
        let mut told = lock(&self.0);
        let is_first =
            |(name, _): &(Vec<u8>, Errno)| told.len() < TOLD_MAX && told.insert(name.clone());
        left.into_iter().filter(is_first).collect()
    }
}

/// Whether a file has failed by that. What its file system does not have, or this user may not set, was not to be
/// expected.
pub(crate) fn is_failure(errno: Errno) -> bool {
    !matches!(errno, Errno::OPNOTSUPP | Errno::PERM)
}
