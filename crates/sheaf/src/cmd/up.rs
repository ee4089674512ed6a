//! `sheaf up`: a session that stays.
use crate::cli::GlobalArgs;
use crate::config::Config;
use crate::exit::Exit;
use crate::session::{self, daemon};
use anyhow::Result;
use clap::Args;
use std::ffi::OsString;

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
    let config = Config::load(&global)?;
    config.launch()?;
    // What cannot be planned is refused here, not by a process in the background.
    let topology = session::plan(&config)?;
    if args.foreground {
        daemon::run(&config)?;
        return Ok(Exit::Success);
    }
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    arguments.push("--foreground".into());
    let started = daemon::up(&config, &arguments)?;
    if !global.quiet {
        let name = daemon::name(&config);
        eprintln!(
            "session {name}: {} of {} hosts, process {}",
            started.hosts,
            topology.leaves_len(),
            started.pid
        );
    }
    Ok(if started.hosts == u64::from(topology.leaves_len()) { Exit::Success } else { Exit::Failed })
}
