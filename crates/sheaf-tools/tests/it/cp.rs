//! Copying to hosts and from hosts, against what `cp` does.
pub mod cluster;
mod get;
mod put;
mod rights;
mod tree;
