//! Work on whole trees of this machine, by many at once.
pub(crate) mod usage;
