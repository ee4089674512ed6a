//! `sheaf write`: the same bytes into the same file of many hosts.
use super::{Changed, resolve};
use crate::address::Purpose;
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use crate::session::{self, Ended, Opening};
use crate::{mode, size, stdin};
use anyhow::Result;
use clap::Args;
use sheaf_tools::edit::{self, WriteOptions};
use std::ffi::OsString;
use std::io::{Cursor, Read};
use std::os::unix::ffi::OsStrExt;

/// Write standard input, or --data, into files
#[derive(Args, Debug)]
#[command(after_help = "\
The file must exist unless --create is given. Without --offset, --append or
--truncate, bytes are written over the start of the file.

Examples:
  echo 1 | sheaf write :/proc/sys/net/ipv4/ip_forward
  sheaf write --create --append --data 'n9 is retired' '@web:/etc/motd'")]
pub struct WriteArgs {
    #[command(flatten)]
    pub files: Changed,

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
    let options = WriteOptions {
        append: args.append,
        offset: args.offset,
        create: args.create,
        exclusive: args.excl,
        truncate: args.truncate,
        mode: args.mode,
    };
    let opening = Opening::new(global)?;
    let targets = resolve(&args.files.addrs, &opening.config, Purpose::Change("write"))?;
    opening.run(async |connected, config, output| {
        let source: Box<dyn Read + Send> = match &args.data {
            Some(data) => Box::new(Cursor::new(data.as_bytes().to_vec())),
            None => Box::new(stdin::open()?),
        };
        let written =
            edit::write(&connected.session, &targets, &options, source).await.map_err(super::stop)?;
        session::finish(connected, config, output, &Ended::new(&targets, &written.outcome))
    })
}
