//! `sheaf tree plan`: the tree that would be.
use anyhow::Result;
use clap::{Args, ValueEnum};
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::Records;
use sheaf_cli::session;
use sheaf_records::Tree;
use sheaf_tree::topology::{Page, Topology};
use std::io::{IsTerminal, Write};

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

/// Draws the tree that would be.
pub fn run(args: &PlanArgs, global: &GlobalArgs) -> Result<Exit> {
    let config = session::config(global)?;
    let topology = config.topology()?;
    let mut out = sheaf_cli::output::stdout();
    if global.json {
        Records::new(global).write(&mut out, &describe(topology))?;
        return Ok(Exit::Success);
    }
    let text = match args.format {
        PlanFormat::Text => topology.draw(page()),
        PlanFormat::Top => topology.to_file(),
        PlanFormat::Dot => topology.to_dot(),
        PlanFormat::Svg => topology.to_svg(),
    };
    out.write_all(text.as_bytes())?;
    Ok(Exit::Success)
}

/// The record of a planned tree.
pub(super) fn describe(topology: &Topology) -> Tree {
    let stats = topology.stats();
    Tree {
        nodes: topology.nodes_len() as u64,
        leaves: u64::from(topology.leaves_len()),
        depth: u64::from(topology.depth()),
        inner_share: stats.inner_share(),
        hosts: topology.fold_leaves(0..topology.leaves_len()),
        topology: topology.to_file(),
        running: None,
    }
}

/// The terminal's size, or 80 by 24.
pub(super) fn page() -> Page {
    let stdout = std::io::stdout();
    match rustix::termios::tcgetwinsize(&stdout) {
        Ok(size) if stdout.is_terminal() && size.ws_col > 0 && size.ws_row > 0 => {
            Page { columns: usize::from(size.ws_col), rows: usize::from(size.ws_row) }
        }
        _ => Page::default(),
    }
}
