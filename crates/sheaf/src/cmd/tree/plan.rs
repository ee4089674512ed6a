//! `sheaf tree plan` and `sheaf tree show`: the tree that would be, and the one that is.
use crate::cli::GlobalArgs;
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::output::Output;
use crate::session::{self, daemon};
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::json;
use sheaf_core::RangeSet;
use sheaf_tree::Notice;
use sheaf_tree::topology::{Page, Topology};
use std::io::{IsTerminal, Write};
use std::time::Duration;

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

/// Show the tree of a running session, and who was lost and why
#[derive(Args, Debug)]
pub struct ShowArgs {}

/// Draws the tree that would be.
pub fn run(args: &PlanArgs, global: &GlobalArgs) -> Result<Exit> {
    let config = Config::load(global)?;
    let topology = session::plan(&config)?;
    let mut out = std::io::stdout().lock();
    if global.json {
        writeln!(out, "{}", describe(&topology))?;
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

/// Shows the tree that is.
pub fn show(_args: &ShowArgs, global: &GlobalArgs) -> Result<Exit> {
    let config = Config::load(global)?;
    let runtime = session::runtime()?;
    runtime.block_on(async {
        let Some(joined) = daemon::join(&config)? else {
            let text = format!("no session {} is running, so there is no tree to show; see: sheaf tree plan", daemon::name(&config));
            return Err(Stop::unreachable(text).into());
        };
        let network = joined.session.network();
        let ready = network.ready(Duration::from_millis(config.tuning.start_timeout_ms.value)).await;
        let mut lost = RangeSet::new();
        let notices = network.notices();
        let output = Output::new(global);
        let mut out = std::io::stdout().lock();
        if !output.json {
            out.write_all(joined.topology.draw(page()).as_bytes())?;
        }
        for notice in &notices {
            let Notice::Lost { by, rank, leaves, errno, cause } = notice else { continue };
            lost.union_with(leaves);
            let hosts = joined.session.fold(leaves);
            if output.json {
                let line = json!({ "type": "lost", "hosts": hosts, "rank": rank, "noticed_by": by, "errno": errno.name(), "cause": cause });
                writeln!(out, "{line}")?;
            } else {
                writeln!(out, "lost: {hosts}: {cause} (node {rank}, noticed by node {by})")?;
            }
        }
        let started = ready.map_or(0, |leaves| leaves.difference(&lost).len());
        if output.json {
            let mut line = describe(&joined.topology);
            line["running"] = json!(started);
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "{started} of {} leaves run", joined.topology.leaves_len())?;
        }
        Ok(if lost.is_empty() { Exit::Success } else { Exit::Failed })
    })
}

fn describe(topology: &Topology) -> serde_json::Value {
    let stats = topology.stats();
    json!({
        "type": "tree", "nodes": topology.nodes_len(), "leaves": topology.leaves_len(),
        "depth": topology.depth(), "inner_share": stats.inner_share(),
        "hosts": topology.fold_leaves(0..topology.leaves_len()), "topology": topology.to_file(),
    })
}

/// The terminal's size, or 80 by 24.
fn page() -> Page {
    let stdout = std::io::stdout();
    match rustix::termios::tcgetwinsize(&stdout) {
        Ok(size) if stdout.is_terminal() && size.ws_col > 0 && size.ws_row > 0 => {
            Page { columns: usize::from(size.ws_col), rows: usize::from(size.ws_row) }
        }
        _ => Page::default(),
    }
}
