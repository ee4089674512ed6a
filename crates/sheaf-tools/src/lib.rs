//! Sheaf tools.
