//! `sheaf tree`: the tree planned, shown, measured and simulated.
mod bench;
pub mod event;
mod plan;
pub mod show;
mod simulate;

use crate::cli::GlobalArgs;
use crate::exit::Exit;
use anyhow::Result;
use clap::{Args, Subcommand};

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
