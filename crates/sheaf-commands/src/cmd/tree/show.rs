//! `sheaf tree show`: the tree that is. Every node is asked how it is; what does not answer is
//! named.
pub mod state;
mod write;

use anyhow::Result;
use clap::Args;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::Output;
use sheaf_cli::session::{Opening, deadline};
use sheaf_session::{Session, Sessions};
use state::TreeState;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Show the live tree: links, round trips, bytes, queues, torpid nodes
#[derive(Args, Debug)]
#[command(after_help = "\
A node is torpid when it misses heartbeats (late) or when what waits for it
does not move (stuck). CREDIT is the least that may still be sent on a stream.

Examples:
  sheaf tree show lab
  sheaf tree show lab --watch 2
  sheaf --processes 64 --tree 1x8x8 tree show --svg > tree.svg")]
pub struct ShowArgs {
    /// The running session, as with --session
    #[arg(value_name = "SESSION", conflicts_with = "session")]
    pub name: Option<String>,

    /// Write the tree for Graphviz, coloured by state
    #[arg(long, conflicts_with_all = ["svg", "watch"])]
    pub dot: bool,

    /// Draw the tree as a picture, coloured by state
    #[arg(long, conflicts_with = "watch")]
    pub svg: bool,

    /// Show it again every so many seconds, until interrupted
    #[arg(long, value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub watch: Option<u64>,
}

/// Of the time that is left for the command, what a survey may have in a hundredth: what is known
/// by then is shown in time.
const SURVEY_SHARE: u32 = 70;

/// The longest a survey waits, whatever `--timeout` says.
const SURVEY_TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// Shows the tree that is.
pub fn run(args: &ShowArgs, global: &GlobalArgs) -> Result<Exit> {
    let session = args.name.clone().or_else(|| global.session.clone());
    let mut opening = Opening::new(&GlobalArgs { session, ..global.clone() })?;
    if args.watch.is_some() {
        // Each survey has this long; the command goes on until it is interrupted.
        opening.lift_deadline();
        deadline::lift();
    }
    if !opening.is_joined() && !opening.config().is_ad_hoc() {
        let name = opening.config().session_name();
        let sessions = Sessions::of(opening.config().environment());
        if !sessions.running()?.is_empty() {
            return Err(sessions.absent(name, Some("sheaf tree show")).into());
        }
        let text = format!(
            "no session {name} is running, so there is no tree to show; see: sheaf tree plan"
        );
        return Err(Stop::unreachable(text).into());
    }
    opening.run(async |session, config, output| {
        let start_timeout = Duration::from_millis(config.tuning.start_timeout_ms.value);
        let left = || config.deadline.map(|end| end.saturating_duration_since(Instant::now()));
        // A session that runs is shown as it is.
        if session.is_own() {
            let patience = left().map_or(start_timeout, |left| start_timeout.min(left / 2));
            let _late = session.client().network().ready(patience).await;
        }
        let left = left().map_or(config.timeout.value, |left| left * SURVEY_SHARE / 100);
        let timeout = left.min(SURVEY_TIMEOUT_MAX);
        loop {
            let exit = once(args, session, config.session_name(), timeout, output).await?;
            let Some(seconds) = args.watch.filter(|_| !sheaf_cli::output::is_over()) else {
                return Ok(exit);
            };
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
                () = session.client().interrupted() => return Ok(Exit::Interrupted),
            }
        }
    })
}

async fn once(
    args: &ShowArgs,
    session: &Session,
    name: &str,
    timeout: Duration,
    output: &Output,
) -> Result<Exit> {
    let network = session.client().network();
    let survey = network.survey(timeout).await;
    let state = TreeState::new(session.topology(), survey, network.notices());
    let mut out = sheaf_cli::output::stdout();
    if args.dot || args.svg {
        let color = |rank| state.color(rank);
        let topology = session.topology();
        let text =
            if args.dot { topology.to_dot_with(&color) } else { topology.to_svg_with(&color) };
        out.write_all(text.as_bytes())?;
    } else if output.json {
        write::json(&state, session, output.records, &mut out)?;
    } else {
        if args.watch.is_some() && std::io::stdout().is_terminal() {
            // Home, and clear what is below.
            out.write_all(b"\x1b[H\x1b[J")?;
        }
        let page = super::plan::page();
        out.write_all(write::text(&state, session, name, page).as_bytes())?;
    }
    out.flush()?;
    Ok(state.exit())
}
