//! Copying to hosts and from hosts, against what `cp` does.
pub mod cluster;
mod put;
mod tree;
