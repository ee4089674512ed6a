//! Sheaf file.
