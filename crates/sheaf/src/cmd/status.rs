//! `sheaf status`: the sessions there are.
use crate::cli::GlobalArgs;
use crate::cmd::tree::event;
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::output::{HostNames, Output, Report};
use crate::session;
use crate::session::{Connected, Ended, daemon};
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
    let output = Output::new(global);
    if names.is_empty() {
        if output.json {
            let nobody = Report::default().to_json(&Nobody);
            output.records.write(&mut std::io::stdout(), nobody)?;
        } else if !global.quiet {
            eprintln!("no session is running; start one with: sheaf up");
        }
        return Ok(Exit::Success);
    }
    let runtime = session::runtime()?;
    let (mut exits, mut summaries) = (Vec::new(), Vec::new());
    for name in names {
        let global = GlobalArgs { session: Some(name.clone()), ..global.clone() };
        let config = Config::load(&global)?;
        let (exit, summary) = runtime.block_on(async {
            let Some((joined, told)) = daemon::join_with_about(&config)? else {
                return Err(Stop::unreachable(format!("no session {name} is running")).into());
            };
            show(&name, &joined, &told, &config, &output).await
        })?;
        exits.push(exit);
        summaries.push(summary);
    }
    let same = exits.iter().all(|exit| *exit == exits[0]);
    let exit = if same { exits[0] } else { Exit::Partial };
    if output.json {
        let mut out = std::io::stdout().lock();
        for mut summary in summaries {
            summary["exit"] = json!(exit as u8);
            output.records.write(&mut out, summary)?;
        }
    }
    Ok(exit)
}

/// Asks every host of a session and prints what it says; returns how that ends, and its summary.
async fn show(
    name: &str,
    joined: &Connected,
    told: &session::wire::About,
    config: &Config,
    output: &Output,
) -> Result<(Exit, serde_json::Value)> {
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
            output.records.write(&mut out, line)?;
        }
        for (leaf, About { pid, rss_bytes, cpu_us }) in &servers {
            let host = session.host(*leaf);
            let line = json!({ "type": "host", "session": name, "host": host, "pid": pid, "rss_bytes": rss_bytes, "cpu_us": cpu_us });
            output.records.write(&mut out, line)?;
        }
        let mut line = serde_json::to_value(told)?;
        line["type"] = json!("session");
        line["name"] = json!(name);
        line["answered"] = json!(session.fold(&answered));
        line["missing"] = json!(session.fold(&missing));
        output.records.write(&mut out, line)?;
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
    }
    drop(out);
    let asked = [Target { members: everyone, path: String::new() }];
    let report = session::report(joined, config, &Ended::new(&asked, &outcome));
    let hosts = config.hosts()?;
    if !output.json {
        output.finish(&report, hosts)?;
    }
    let mut summary = report.to_json(hosts);
    summary["session"] = json!(name);
    Ok((report.exit(), summary))
}

/// The hosts of no session.
struct Nobody;

impl HostNames for Nobody {
    fn fold(&self, _: &RangeSet) -> String {
        String::new()
    }
}
