//! `sheaf write`: the same bytes into the same file of many hosts.
use super::Addresses;
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use crate::{mode, size};
use anyhow::Result;
use clap::Args;
use std::ffi::OsString;

/// Write standard input, or --data, into files
#[derive(Args, Debug)]
#[command(after_help = "\
The file must exist unless --create is given. Without --offset, --append or
--truncate, bytes are written over the start of the file.

Examples:
  echo 1 | sheaf write /proc/sys/net/ipv4/ip_forward
  sheaf write --create --append --data 'n9 is retired' '@web:/etc/motd'")]
pub struct WriteArgs {
    #[command(flatten)]
    pub files: Addresses,

    /// Write this in place of standard input
    #[arg(long, value_name = "TEXT")]
    pub data: Option<OsString>,

    /// Write at the end of each file
    #[arg(short, long, conflicts_with = "offset")]
    pub append: bool,

    /// Write this many bytes into each file
    #[arg(long, value_name = "BYTES", value_parser = size::bytes)]
    pub offset: Option<u64>,

    /// Create files that do not exist
    #[arg(long)]
    pub create: bool,

    /// Create, and fail everywhere if the file exists anywhere
    #[arg(long)]
    pub excl: bool,

    /// Empty the files first
    #[arg(long, conflicts_with_all = ["append", "offset"])]
    pub truncate: bool,

    /// Mode of the files created, in octal
    #[arg(long, value_name = "MODE", value_parser = mode::octal, default_value = "0644")]
    pub mode: u32,
}

/// Writes.
pub fn run(args: &WriteArgs, global: &GlobalArgs) -> Result<Exit> {
    args.files.resolve(&crate::config::Config::load(global)?)?;
    super::needs_a_tree("write")
}
