//! `sheaf demo`: a guided tour on servers of this machine.
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use anyhow::Result;
use clap::Args;

/// A guided tour on servers of this machine
///
/// It changes nothing outside a temporary directory.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct DemoArgs {
    /// How many servers
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub servers: u32,

    /// Print the commands, and run none
    #[arg(long)]
    pub dry_run: bool,
}

/// Gives the tour.
pub fn run(_args: &DemoArgs, _global: &GlobalArgs) -> Result<Exit> {
    super::needs_a_tree("demo")
}
