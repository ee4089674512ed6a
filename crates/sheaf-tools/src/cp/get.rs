//! Copying from hosts.
