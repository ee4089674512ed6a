//! `sheaf chmod`: the permissions of files.
use super::{Changed, per_path};
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use crate::mode;
use anyhow::Result;
use clap::Args;
use sheaf_file::ModeChange;
use sheaf_tools::edit::Edit;

/// Change the mode of files
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf chmod 0640 @all:/etc/shadow
  sheaf chmod -R u=rwX,go-w 'n[1-64]:/srv/app'")]
pub struct ChmodArgs {
    /// Octal (0644) or symbolic (u+x,go-w)
    #[arg(value_name = "MODE", value_parser = mode::change, allow_hyphen_values = true)]
    pub mode: ModeChange,

    #[command(flatten)]
    pub files: Changed,

    /// Change directories and what is in them
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

/// Changes modes.
pub fn run(args: &ChmodArgs, global: &GlobalArgs) -> Result<Exit> {
    let edit = Edit::Chmod { change: args.mode.clone(), recursive: args.recursive };
    per_path::edit(global, "chmod", &args.files.addrs, |_| Ok(edit))
}
