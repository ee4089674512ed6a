//! Sheaf group.
