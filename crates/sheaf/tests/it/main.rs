//! The real binary, as a user runs it.
mod bad_input;
mod behaviour;
mod cluster;
mod config;
mod errors;
mod files;
mod generated;
mod help;
mod hosts;
mod interrupts;
mod lost_hosts;
mod reports;
mod sessions;
mod strangers;
mod support;
mod tree_show;
