//! Work on whole trees of this machine, by many at once.
pub(crate) mod copy;
pub(crate) mod modes;
pub(crate) mod remove;
pub(crate) mod usage;
pub(crate) mod within;
