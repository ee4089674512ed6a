//! `sheaf up`: a session that stays.
use crate::cli::GlobalArgs;
use crate::config::Config;
use crate::exit::Exit;
use anyhow::Result;
use clap::Args;

/// Start a session that later commands use
#[derive(Args, Debug)]
#[command(after_help = "\
The session listens on a unix socket that only its user can open. It is named
after its cluster, or by --session.

Examples:
  sheaf up lab
  sheaf up --processes 64 --session try")]
pub struct UpArgs {
    /// The cluster, as with --cluster
    #[arg(value_name = "CLUSTER", conflicts_with_all = ["cluster", "embedded", "processes"])]
    pub name: Option<String>,

    /// Stay in the foreground until interrupted
    #[arg(long)]
    pub foreground: bool,
}

/// Starts the session.
pub fn run(args: &UpArgs, global: &GlobalArgs) -> Result<Exit> {
    let mut global = global.clone();
    global.cluster = args.name.clone().or(global.cluster);
    Config::load(&global)?.launch()?;
    super::needs_a_tree("up")
}
