//! `sheaf mkdir`: directories made.
use super::caution::Caution;
use super::per_path::{self, PathTask};
use anyhow::Result;
use clap::Args;
use sheaf_cli::addresses::Changed;
use sheaf_cli::exit::Exit;
use sheaf_cli::mode;
use sheaf_cli::options::GlobalArgs;
use sheaf_core::Errno;
use sheaf_file::ModeChange;
use sheaf_tools::edit::Edit;

/// Make directories
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf mkdir -p @all:/srv/app/releases
  sheaf mkdir -m 1777 'n[1-64]:/scratch'")]
pub struct MkdirArgs {
    #[command(flatten)]
    pub files: Changed,

    /// Make the directories above, too, and accept those that exist
    #[arg(short, long)]
    pub parents: bool,

    /// Mode of the directories, octal or symbolic; else what the session's umask leaves
    #[arg(short, long, value_name = "MODE", value_parser = mode::change, allow_hyphen_values = true)]
    pub mode: Option<ModeChange>,

    #[command(flatten)]
    pub caution: Caution,
}

/// Makes directories.
pub fn run(args: &MkdirArgs, global: &GlobalArgs) -> Result<Exit> {
    let edit = Edit::Mkdir { parents: args.parents, mode: args.mode.clone() };
    let task = PathTask {
        command: "mkdir",
        addrs: &args.files.addrs,
        caution: args.caution,
        asks: None,
        words: ("made", ("directory", "directories")),
        explained: &[(Errno::NOENT, "-p makes the directories above")],
    };
    per_path::edit(global, &task, |_| Ok(edit))
}
