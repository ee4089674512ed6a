//! Sheaf.
