//! Copying to hosts and from hosts, against what `cp` does.
mod cluster;
mod put;
