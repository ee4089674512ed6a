//! `sheaf down`: a session ended.
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use crate::output::Records;
use crate::session::daemon;
use anyhow::Result;
use clap::Args;
use serde_json::json;

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
pub fn run(args: &DownArgs, global: &GlobalArgs) -> Result<Exit> {
    if args.all {
        for name in daemon::running()? {
            daemon::down(&name)?;
            told(&name, global)?;
        }
        return Ok(Exit::Success);
    }
    let name = daemon::named(args.name.as_ref(), global)?;
    if daemon::down(&name)? {
        told(&name, global)?;
        return Ok(Exit::Success);
    }
    Err(daemon::absent(&name, Some("sheaf down"))?.into())
}

fn told(name: &str, global: &GlobalArgs) -> Result<()> {
    if global.json {
        let record = json!({ "type": "ended", "session": name });
        Records::new(global).write(&mut crate::output::stdout(), record)?;
    }
    Ok(())
}
