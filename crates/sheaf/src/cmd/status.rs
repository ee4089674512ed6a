//! `sheaf status`: the sessions there are.
use crate::cli::GlobalArgs;
use crate::cmd::tree::event;
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::session::{Connected, Ended, daemon};
use crate::{output::Output, session};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use sheaf_core::RangeSet;
use sheaf_tools::Target;
use sheaf_tools::about::{About, about};
use std::io::Write;

/// Show running sessions, which hosts answer, and what happened
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

/// The most events shown of a session; `--json` has all that are kept.
const EVENTS_MAX: usize = 10;

/// Shows the sessions.
pub fn run(args: &StatusArgs, global: &GlobalArgs) -> Result<Exit> {
    let asked = args.name.as_ref().or(global.session.as_ref());
    let names = match asked {
        Some(name) => vec![name.clone()],
        None => daemon::running()?,
    };
    if names.is_empty() {
        if !global.quiet && !global.json {
            eprintln!("no session is running; start one with: sheaf up");
        }
        return Ok(Exit::Success);
    }
    let runtime = session::runtime()?;
    let mut all_well = true;
    for name in names {
        let global = GlobalArgs { session: Some(name.clone()), ..global.clone() };
        let config = Config::load(&global)?;
        let well = runtime.block_on(async {
            let Some((joined, told)) = daemon::join_with_about(&config)? else {
                return Err(Stop::unreachable(format!("no session {name} is running")).into());
            };
            show(&name, &joined, &told, &config, &Output::new(&global)).await
        })?;
        all_well &= well;
    }
    Ok(if all_well { Exit::Success } else { Exit::Partial })
}

/// Asks every host of a session and prints what it says; returns whether all answered.
async fn show(
    name: &str,
    joined: &Connected,
    told: &session::wire::About,
    config: &Config,
    output: &Output,
) -> Result<bool> {
    let session = &joined.session;
    let everyone = session.network().everyone();
    let (servers, outcome) = about(session, &everyone).await?;
    let answered: RangeSet = servers.iter().map(|(leaf, _)| *leaf).collect();
    let missing = everyone.difference(&answered);
    let notices = session.network().notices();
    let mut out = std::io::stdout().lock();
    if output.json {
        for mut line in notices.iter().filter_map(|notice| event::json(notice, joined)) {
            line["session"] = json!(name);
            writeln!(out, "{line}")?;
        }
        for (leaf, About { pid, rss_bytes, cpu_us }) in &servers {
            let host = session.host(*leaf);
            let line = json!({ "type": "host", "session": name, "host": host, "pid": pid, "rss_bytes": rss_bytes, "cpu_us": cpu_us });
            writeln!(out, "{line}")?;
        }
        let mut line = serde_json::to_value(told)?;
        line["type"] = json!("session");
        line["name"] = json!(name);
        line["answered"] = json!(session.fold(&answered));
        line["missing"] = json!(session.fold(&missing));
        writeln!(out, "{line}")?;
    } else {
        let up = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |now| now.as_secs().saturating_sub(told.since));
        writeln!(
            out,
            "session {name}: {} of {} hosts answer: {}",
            answered.len(),
            everyone.len(),
            session.fold(&answered)
        )?;
        writeln!(
            out,
            "  process {}, {} h {:02} min, launch {}, tree {}, export {}",
            told.pid,
            up / 3600,
            up / 60 % 60,
            told.launch,
            told.tree,
            told.export
        )?;
        let events: Vec<String> = notices.iter().filter_map(|notice| event::text(notice, joined)).collect();
        if events.len() > EVENTS_MAX {
            writeln!(out, "  {} events, of which the last {EVENTS_MAX}:", events.len())?;
        }
        for event in &events[events.len().saturating_sub(EVENTS_MAX)..] {
            writeln!(out, "  {event}")?;
        }
        drop(out);
        let asked = [Target { members: everyone, path: String::new() }];
        session::finish(joined, config, output, &Ended::new(&asked, &outcome))?;
    }
    Ok(missing.is_empty())
}
