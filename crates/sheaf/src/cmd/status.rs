//! `sheaf status`: the sessions there are.
use crate::cli::GlobalArgs;
use crate::cmd::tree::event;
use crate::cmd::tree::show::state::TreeState;
use crate::exit::{Exit, of_error, one_line};
use crate::output::{Nobody, Output, Report};
use crate::session;
use crate::session::Ended;
use anyhow::Result;
use clap::Args;
use serde_json::json;
use sheaf_core::RangeSet;
use sheaf_session::gates;
use sheaf_session::{Environment, Lookup, Session, Sessions};
use sheaf_tools::Target;
use sheaf_tools::about::{About, about};
use sheaf_tree::Notice;
use std::io::Write;
use std::time::Duration;

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

/// How the tree says that a host is still expected, or a job of Slurm that waits.
const NOT_JOINED: [&str; 2] = ["it has not joined", "not started: srun: "];

/// How long nodes may take to say how they are linked.
const LINKS_TIME: Duration = Duration::from_secs(1);

/// The most events shown of a session; `--json` has all that are kept.
const EVENTS_MAX: usize = 10;

/// Shows the sessions.
pub fn run(args: &StatusArgs, global: &GlobalArgs) -> Result<Exit> {
    let environment = Environment::of_this_process();
    let sessions = Sessions::of(&environment);
    // Those of which this host has a server; where they are kept, they are among those that run.
    let here = gates::here(&environment)?;
    let asked = args.name.as_ref().or(global.session.as_ref());
    let names = match asked {
        Some(name) => vec![name.clone()],
        None => {
            let mut names = sessions.running()?;
            names.extend(
                here.iter().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>(),
            );
            names
        }
    };
    let output = Output::new(global);
    let runtime = session::runtime()?;
    let seen = names.clone();
    let (mut exits, mut summaries) = (Vec::new(), Vec::new());
    for name in names {
        let global = GlobalArgs { session: Some(name.clone()), ..global.clone() };
        let config = session::config_to_join(&global)?;
        let shown = runtime.block_on(async {
            let absent = || Err(sessions.absent(&name, Some("sheaf status")).into());
            if !sessions.is_running(&name) && !here.contains(&name) {
                return absent();
            }
            match Session::find(config, &sheaf_session::registry())? {
                Lookup::Session(session) => show(&name, &session, &output).await,
                Lookup::Nothing(_) => absent(),
            }
        });
        match shown {
            // What has ended since it was listed is no news.
            Err(_)
                if asked.is_none()
                    && !sessions.is_running(&name)
                    && !gates::here(&environment)?.contains(&name) => {}
            // One session that cannot be asked does not hide the others.
            Err(error) if asked.is_none() => {
                show_failure(&error, &output)?;
                exits.push(of_error(&error));
            }
            shown => {
                let (exit, summary) = shown?;
                exits.push(exit);
                summaries.push(summary);
            }
        }
    }
    if asked.is_none() {
        for ended in sessions.sweep(&seen)? {
            output.note(Some(&ended))?;
        }
        exits.extend(show_gone(&environment, &seen, &output)?);
    }
    let Some(first) = exits.first() else { return nothing_runs(&output) };
    let exit = if exits.iter().all(|exit| exit == first) { *first } else { Exit::Partial };
    if output.json {
        let mut out = crate::output::stdout();
        for mut summary in summaries {
            summary["exit"] = json!(exit as u8);
            output.records.write(&mut out, summary)?;
        }
    }
    Ok(exit)
}

/// Says that there is no session to ask.
fn nothing_runs(output: &Output) -> Result<Exit> {
    if output.json {
        let nobody = Report::default().to_json(&Nobody);
        output.records.write(&mut crate::output::stdout(), nobody)?;
    } else if !output.quiet {
        crate::output::tell("no session is running; start one with: sheaf up");
    }
    Ok(Exit::Success)
}

/// Says which sessions this host is in that cannot be joined here, beside those that were asked.
fn show_gone(environment: &Environment, asked: &[String], output: &Output) -> Result<Vec<Exit>> {
    let mut exits = Vec::new();
    for (_, error) in gates::gone(environment)?.into_iter().filter(|gone| !asked.contains(&gone.0))
    {
        let error = error.into();
        show_failure(&error, output)?;
        exits.push(of_error(&error));
    }
    Ok(exits)
}

/// Says why a session cannot be asked.
fn show_failure(error: &anyhow::Error, output: &Output) -> Result<()> {
    let (mut out, error) = (crate::output::stdout(), one_line(error));
    if output.json {
        output.records.write(&mut out, json!({ "type": "error", "error": error }))?;
    } else {
        writeln!(out, "{error}")?;
    }
    Ok(())
}

/// What is still worth telling: that a host had not joined is not, once it has.
fn news(notices: &[Notice]) -> Vec<Notice> {
    let mut news: Vec<Notice> = Vec::new();
    for notice in notices {
        if let Notice::Joined { leaves: joined, .. } = notice {
            for older in &mut news {
                match older {
                    Notice::Lost { leaves, cause, .. }
                        if NOT_JOINED.iter().any(|not| cause.starts_with(not)) =>
                    {
                        *leaves = leaves.difference(joined);
                    }
                    _ => {}
                }
            }
            news.retain(|older| !matches!(older, Notice::Lost { leaves, .. } if leaves.is_empty()));
        }
        news.push(notice.clone());
    }
    news
}

/// Asks every host of a session and prints what it says; returns how that ends, and its summary.
async fn show(name: &str, joined: &Session, output: &Output) -> Result<(Exit, serde_json::Value)> {
    let (client, config) = (joined.client(), joined.config());
    let everyone = client.network().everyone();
    // Both wait for who does not answer.
    let links = client.network().survey(LINKS_TIME);
    let (asked, survey) = tokio::join!(about(client, &everyone), links);
    let (servers, outcome) = asked?;
    let answered: RangeSet = servers.iter().map(|(leaf, _)| *leaf).collect();
    let missing = everyone.difference(&answered);
    let notices = news(&client.network().notices());
    let state = TreeState::new(joined.topology(), survey, Vec::new());
    let asked_of = AskedStatus { name, joined, notices: &notices, state: &state };
    if output.json {
        asked_of.write_json(&servers, (&answered, &missing), output)?;
    } else {
        asked_of.write_text((&answered, &everyone))?;
    }
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

/// A session that was asked.
struct AskedStatus<'a> {
    name: &'a str,
    joined: &'a Session,
    notices: &'a [Notice],
    state: &'a TreeState,
}

impl AskedStatus<'_> {
    /// A record for each event and each host, and one for the session.
    fn write_json(
        &self,
        servers: &[(u32, About)],
        (answered, missing): (&RangeSet, &RangeSet),
        output: &Output,
    ) -> Result<()> {
        let (mut out, client, name) = (crate::output::stdout(), self.joined.client(), self.name);
        for mut line in self.notices.iter().filter_map(|notice| event::json(notice, self.joined)) {
            line["session"] = json!(name);
            output.records.write(&mut out, line)?;
        }
        let carriers = self.state.carriers();
        for (leaf, About { pid, rss_bytes, cpu_us }) in servers {
            let host = client.host(*leaf);
            let link = host.as_deref().and_then(|host| carriers.get(host));
            let line = json!({
                "type": "host", "session": name, "host": host, "pid": pid, "rss_bytes": rss_bytes,
                "cpu_us": cpu_us, "link": link,
            });
            output.records.write(&mut out, line)?;
        }
        let mut line = serde_json::to_value(self.joined.about())?;
        line["type"] = json!("session");
        line["name"] = json!(name);
        line["answered"] = json!(client.fold(answered));
        line["missing"] = json!(client.fold(missing));
        line["peer_links"] = json!(self.state.peers_lines());
        Ok(output.records.write(&mut out, line)?)
    }

    /// Who answers, what the session is, and what happened last.
    fn write_text(&self, (answered, everyone): (&RangeSet, &RangeSet)) -> Result<()> {
        let Self { name, joined, notices, state } = self;
        // Whoever is joined says what it is.
        let Some(told) = joined.about() else { return Ok(()) };
        let mut out = crate::output::stdout();
        let up = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |now| now.as_secs().saturating_sub(told.since));
        let colon = if answered.is_empty() { "" } else { ": " };
        writeln!(
            out,
            "session {name}: {} of {} hosts answer{colon}{}",
            answered.len(),
            everyone.len(),
            joined.client().fold(answered)
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
        let links = state.links_line().into_iter().chain(state.peers_lines());
        for line in links.chain(event::started_from_here(notices, joined)) {
            writeln!(out, "  {line}")?;
        }
        for (why, count) in &told.refused {
            let connections = if *count == 1 { "connection was" } else { "connections were" };
            writeln!(out, "  {count} {connections} refused: {why}")?;
        }
        for (hosts, why) in &told.shut {
            writeln!(out, "  programs on {hosts} cannot use it: {why}")?;
        }
        let events: Vec<String> =
            notices.iter().filter_map(|notice| event::text(notice, joined)).collect();
        if events.len() > EVENTS_MAX {
            writeln!(out, "  {} events, of which the last {EVENTS_MAX}:", events.len())?;
        }
        for event in &events[events.len().saturating_sub(EVENTS_MAX)..] {
            writeln!(out, "  {event}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_core::Errno;

    #[test]
    fn who_has_joined_is_no_longer_said_not_to_have() {
        let lost = |leaves: RangeSet, cause: &str| {
            let cause = cause.to_owned();
            Notice::Lost { by: 0, rank: 1, leaves, errno: Errno::TIMEDOUT, cause }
        };
        let joined = |leaf| Notice::Joined { by: 0, rank: 1, leaves: RangeSet::single(leaf) };
        let crash = lost(RangeSet::single(0), "its process ended with signal 9");
        let all = [lost(RangeSet::full(2), NOT_JOINED[0]), joined(0), crash.clone(), joined(0)];
        let left = [lost(RangeSet::single(1), NOT_JOINED[0]), joined(0), crash, joined(0)];
        assert_eq!(news(&all), left);
        assert_eq!(news(&[lost(RangeSet::single(1), NOT_JOINED[0]), joined(1)]), [joined(1)]);
    }
}
