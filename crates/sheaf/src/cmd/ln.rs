//! `sheaf ln`: links made.
use crate::address::Address;
use crate::cli::GlobalArgs;
use crate::config::Config;
use crate::exit::Exit;
use anyhow::Result;
use clap::Args;
use std::ffi::OsString;

/// Make links
#[derive(Args, Debug)]
#[command(after_help = "\
TARGET is a path on each host, without a host set; LINK says on which hosts.

Examples:
  sheaf ln -s releases/42 :/srv/app/current
  sheaf ln -sfn releases/42 'n[1-64]:/srv/app/current'")]
pub struct LnArgs {
    /// What the link leads to
    #[arg(value_name = "TARGET")]
    pub target: OsString,

    /// The link: HOSTSET:PATH, or PATH alone for every host
    // The name `link` is the global option's.
    #[arg(id = "name", value_name = "LINK")]
    pub link: OsString,

    /// Make a symbolic link
    #[arg(short, long)]
    pub symbolic: bool,

    /// Replace a file that is there
    #[arg(short, long)]
    pub force: bool,

    /// Replace a symbolic link to a directory, not what is in it
    #[arg(short, long)]
    pub no_dereference: bool,
}

/// Makes the link.
pub fn run(args: &LnArgs, global: &GlobalArgs) -> Result<Exit> {
    let config = Config::load(global)?;
    Address::parse(&args.link)?.resolve(&config)?;
    super::needs_a_tree("ln")
}
