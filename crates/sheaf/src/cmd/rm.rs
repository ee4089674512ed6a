//! `sheaf rm`: files and directories removed.
use super::{Changed, per_path};
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use anyhow::Result;
use clap::Args;
use sheaf_tools::edit::Edit;

/// Remove files
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf rm ':/var/tmp/job-*.log'
  sheaf rm -rf 'n[1-64]:/scratch/old'")]
pub struct RmArgs {
    #[command(flatten)]
    pub files: Changed,

    /// Remove directories and what is in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,

    /// Take files that do not exist as removed
    #[arg(short, long)]
    pub force: bool,

    /// Remove empty directories, too
    #[arg(short = 'd', long)]
    pub dir: bool,
}

/// Removes.
pub fn run(args: &RmArgs, global: &GlobalArgs) -> Result<Exit> {
    let edit = Edit::Remove { recursive: args.recursive, force: args.force, empty_dirs: args.dir };
    per_path::edit(global, "rm", &args.files.addrs, |_| Ok(edit))
}
