//! The real binary, as a user runs it.
mod config;
mod errors;
mod generated;
mod help;
mod hosts;
mod support;
