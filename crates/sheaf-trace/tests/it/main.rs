//! From segments to files and back.
mod store;
