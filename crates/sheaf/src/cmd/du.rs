//! `sheaf du`: the space files take.
use super::Addresses;
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use anyhow::Result;
use clap::Args;

/// Show the space that directories and files take
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf du -sh /var/log
  sheaf du -c -d 1 'n[1-64]:/home'")]
pub struct DuArgs {
    #[command(flatten)]
    pub files: Addresses,

    /// One total for each address, nothing below it
    #[arg(short, long, conflicts_with_all = ["all", "max_depth"])]
    pub summarize: bool,

    /// Sizes as 4.0K, 234M, 2.1G
    #[arg(short = 'h', long)]
    pub human_readable: bool,

    /// Count files, too, not directories alone
    #[arg(short, long)]
    pub all: bool,

    /// Print nothing deeper than N levels below the address
    #[arg(short = 'd', long, value_name = "N")]
    pub max_depth: Option<u32>,

    /// Stay on the file system of each address
    #[arg(short = 'x', long)]
    pub one_file_system: bool,

    /// End with the total of all
    #[arg(short = 'c', long)]
    pub total: bool,

    /// Count the bytes files hold, not the blocks they take
    #[arg(long)]
    pub apparent_size: bool,

    /// Sizes in bytes: --apparent-size, and no rounding to KiB
    #[arg(short, long, conflicts_with = "human_readable")]
    pub bytes: bool,
}

/// Measures the files.
pub fn run(args: &DuArgs, global: &GlobalArgs) -> Result<Exit> {
    args.files.resolve(&crate::config::Config::load(global)?)?;
    super::needs_a_tree("du")
}
