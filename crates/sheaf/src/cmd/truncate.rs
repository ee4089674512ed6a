//! `sheaf truncate`: the size of files.
use super::{Changed, per_path};
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use crate::size;
use anyhow::Result;
use clap::Args;
use sheaf_tools::edit::{Edit, SizeChange};

/// Set the size of files
#[derive(Args, Debug)]
#[command(after_help = "\
SIZE is a number of bytes, with K, M, G, T for powers of 1024 and KB, MB, GB,
TB for powers of 1000. In front of it: + to grow by, - to shrink by, < at most,
> at least, / down to a multiple of, % up to a multiple of.

Examples:
  sheaf truncate -s 0 :/var/log/app.log
  sheaf truncate -s '<100M' 'n[1-64]:/var/tmp/trace'")]
pub struct TruncateArgs {
    #[command(flatten)]
    pub files: Changed,

    /// The new size, or the change of size; see below
    #[arg(short, long, value_name = "SIZE", value_parser = size::change, allow_hyphen_values = true)]
    pub size: SizeChange,

    /// Leave out files that do not exist; they are created otherwise
    #[arg(short = 'c', long)]
    pub no_create: bool,
}

/// Sets sizes.
pub fn run(args: &TruncateArgs, global: &GlobalArgs) -> Result<Exit> {
    let edit = Edit::Truncate { size: args.size, create: !args.no_create };
    per_path::edit(global, "truncate", &args.files.addrs, |_| Ok(edit))
}
