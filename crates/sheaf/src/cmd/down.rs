//! `sheaf down`: a session ended.
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use anyhow::Result;
use clap::Args;

/// End a session that `sheaf up` started
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf down lab
  sheaf down --all")]
pub struct DownArgs {
    /// The session, as with --session
    #[arg(value_name = "SESSION", conflicts_with_all = ["session", "all"])]
    pub name: Option<String>,

    /// End every session of this user
    #[arg(long)]
    pub all: bool,
}

/// Ends the session.
pub fn run(_args: &DownArgs, _global: &GlobalArgs) -> Result<Exit> {
    super::needs_a_tree("down")
}
