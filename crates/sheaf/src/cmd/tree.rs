//! `sheaf tree`: the tree planned, shown, measured and simulated.
use crate::cli::GlobalArgs;
use crate::config::Config;
use crate::exit::Exit;
use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};

/// Plan, show, measure or simulate the tree
#[derive(Args, Debug)]
pub struct TreeArgs {
    #[command(subcommand)]
    pub command: TreeCommand,
}

/// What to do with the tree.
#[derive(Debug, Subcommand)]
pub enum TreeCommand {
    Plan(PlanArgs),
    Show(ShowArgs),
    Bench(BenchArgs),
    Simulate(SimulateArgs),
}

/// Draw the tree that would be started, and start nothing
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf tree plan --embedded 1024
  sheaf tree plan -C lab --tree 1x8x8 --format dot | dot -Tsvg > lab.svg")]
pub struct PlanArgs {
    /// How to write it
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: PlanFormat,
}

/// How a tree is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// Levels and fan-outs, indented
    Text,
    /// MRNet's topology file
    Top,
    /// Graphviz
    Dot,
    Svg,
}

/// Show the live tree: who is connected, round trips, bytes, last errors
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// Show every leaf, not those in trouble alone
    #[arg(short, long)]
    pub all: bool,
}

/// Measure the tree: start, round trips, waves, broadcast
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf tree bench --processes 64 --tree 1x8x8")]
pub struct BenchArgs {
    /// Round trips to measure
    #[arg(long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rounds: u32,

    /// Waves to send one behind the other
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub waves: u32,

    /// Bytes to broadcast (K, M, G understood)
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = crate::size::bytes)]
    pub broadcast: u64,
}

/// Run the real node code under a simulated network and clock
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf tree simulate --leaves 32768 --fan-out 32
  sheaf tree simulate --leaves 1000 --seed 7 --lose 3")]
pub struct SimulateArgs {
    /// Number of leaves
    #[arg(long, value_name = "N", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub leaves: u32,

    /// Most children of a node
    #[arg(long, value_name = "N", default_value_t = 32)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=65_536))]
    pub fan_out: u32,

    /// Waves of each kind
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub waves: u32,

    /// Where random delays and losses start from; the same seed gives the same run
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    /// Nodes to lose on the way
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub lose: u32,
}

/// Does what the sub-command says.
pub fn run(args: &TreeArgs, global: &GlobalArgs) -> Result<Exit> {
    let name = match &args.command {
        TreeCommand::Plan(_) => "tree plan",
        TreeCommand::Show(_) => "tree show",
        TreeCommand::Bench(_) => "tree bench",
        TreeCommand::Simulate(_) => "tree simulate",
    };
    Config::load(global)?;
    super::needs_a_tree(name)
}
