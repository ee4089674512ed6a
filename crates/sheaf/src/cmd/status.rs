//! `sheaf status`: the sessions there are.
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use anyhow::Result;
use clap::Args;

/// Show running sessions and which of their hosts answer
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf status
  sheaf status lab --json")]
pub struct StatusArgs {
    /// This session alone
    #[arg(value_name = "SESSION", conflicts_with = "session")]
    pub name: Option<String>,
}

/// Shows the sessions.
pub fn run(_args: &StatusArgs, _global: &GlobalArgs) -> Result<Exit> {
    super::needs_a_tree("status")
}
