//! The built-in filters.
use super::Registry;

/// Registers all of them.
pub(super) fn register(_registry: &mut Registry) {}
