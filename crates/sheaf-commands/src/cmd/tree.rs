//! `sheaf tree`: the tree planned, shown, measured and simulated.
mod bench;
mod plan;
pub mod show;
mod simulate;

use anyhow::Result;
use clap::{Args, Subcommand};
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;

/// Plan, show, measure or simulate the tree
#[derive(Args, Debug)]
pub struct TreeArgs {
    #[command(subcommand)]
    pub command: TreeCommand,
}

/// What to do with the tree.
#[derive(Debug, Subcommand)]
pub enum TreeCommand {
    Plan(plan::PlanArgs),
    Show(show::ShowArgs),
    Bench(bench::BenchArgs),
    Simulate(simulate::SimulateArgs),
}

/// Does what the sub-command says.
pub fn run(args: &TreeArgs, global: &GlobalArgs) -> Result<Exit> {
    match &args.command {
        TreeCommand::Plan(args) => plan::run(args, global),
        TreeCommand::Show(args) => show::run(args, global),
        TreeCommand::Bench(args) => bench::run(args, global),
        TreeCommand::Simulate(args) => simulate::run(args, global),
    }
}
