//! `sheaf status`: the sessions there are.
mod mounts;

use crate::cmd::tree::show::state::TreeState;
use anyhow::Result;
use clap::Args;
use sheaf_cli::exit::{Exit, of_error, one_line};
use sheaf_cli::notices;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{Nobody, Output, Report, Silent};
use sheaf_cli::session;
use sheaf_cli::session::Ended;
use sheaf_core::{Errno, RangeSet};
use sheaf_group::Outcome;
use sheaf_records::{CommandError, Host, Note, Summary};
use sheaf_session::gates;
use sheaf_session::{Config, Environment, Lookup, Session, Sessions};
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
  sheaf status lab --json
  sheaf status --mounts                        # requests of mounted views")]
pub struct StatusArgs {
    /// This session alone
    #[arg(value_name = "SESSION", conflicts_with = "session")]
    pub name: Option<String>,

    /// Show the views that are mounted on this host, and calls that hang
    #[arg(long, conflicts_with_all = ["name", "session"])]
    pub mounts: bool,
}

/// How the tree says that a host is still expected, or a job of Slurm that waits.
const NOT_JOINED: [&str; 2] = ["it has not joined", "not started: srun: "];

/// How a session is started whose hosts join it by themselves.
const ATTACH: &str = "attach";

/// How long nodes may take to say how they are linked.
const LINKS_TIME: Duration = Duration::from_secs(1);

/// The most events shown of a session; `--json` has all that are kept.
const EVENTS_MAX: usize = 10;

/// Shows the sessions.
pub fn run(args: &StatusArgs, global: &GlobalArgs) -> Result<Exit> {
    if args.mounts {
        return mounts::show(&Output::new(global));
    }
    let environment = Environment::of_this_process();
    let sessions = Sessions::of(&environment);
    // Those of which this host has a server; where they are kept, they are among those that run.
    let here = gates::here(&environment)?;
    let asked = args.name.as_ref().or(global.session.as_ref());
    let names = match asked {
        Some(name) => vec![name.clone()],
        None => {
            let mut names = Sessions::names(&environment)?;
            names.extend(
                here.iter().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>(),
            );
            names
        }
    };
    let output = Output::new(global);
    // First: of a name that another session has, too, the one that runs is asked then.
    // What is not told is not forgotten.
    if asked.is_none() && !global.quiet {
        Sessions::forget_killed(&environment, |_| true, |ended| output.note_arrives(ended))?;
    }
    let seen = names.clone();
    let (mut exits, mut summaries) = (Vec::new(), Vec::new());
    let runs = |name: &str| Sessions::runs_anywhere(&environment, name);
    let ask = |name: &str| {
        let absent = || sessions.absent(name, Some("sheaf status")).into();
        if !runs(name) && !here.iter().any(|here| here == name) {
            return Err(absent());
        }
        ask(name, global, &output)?.ok_or_else(absent)
    };
    for (name, shown) in names.iter().zip(ask_all(&names, &ask)) {
        match shown {
            // What has ended since it was listed is no news.
            Err(_)
                if asked.is_none() && !runs(name) && !gates::here(&environment)?.contains(name) => {
            }
            // One session that cannot be asked does not hide the others.
            Err(error) if asked.is_none() => {
                show_failure(&error, &output)?;
                exits.push(of_error(&error));
            }
            shown => {
                let shown = shown?;
                sheaf_cli::output::stdout().write_all(&shown.out)?;
                // What cannot be said on stderr still shows in the exit code.
                let _ = std::io::stderr().lock().write_all(&shown.errors);
                exits.push(shown.exit);
                summaries.push(shown.summary);
            }
        }
    }
    if asked.is_none() {
        exits.extend(show_gone(&environment, &seen, &output)?);
    }
    let Some(first) = exits.first() else { return nothing_runs(&output) };
    let exit = if exits.iter().all(|exit| exit == first) { *first } else { Exit::Partial };
    if output.json {
        let mut out = sheaf_cli::output::stdout();
        for mut summary in summaries {
            summary.exit = exit;
            output.records.write(&mut out, &summary)?;
        }
    }
    Ok(exit)
}

/// Asks all sessions at once, so that one that does not answer keeps no time from the others.
fn ask_all(
    names: &[String],
    ask: &(dyn Fn(&str) -> Result<ShownStatus> + Sync),
) -> Vec<Result<ShownStatus>> {
    std::thread::scope(|scope| {
        let (last, others) =
            names.split_last().map_or((None, &[][..]), |(last, others)| (Some(last), others));
        let apart = |name| std::thread::Builder::new().spawn_scoped(scope, move || ask(name));
        let others: Vec<_> = others.iter().map(|name| (name, apart(name))).collect();
        let last = last.map(|name| ask(name));
        let stopped = |_| Err(anyhow::anyhow!("a session could not be asked"));
        let join = |(name, thread): (&String, std::io::Result<_>)| match thread {
            Ok(thread) => std::thread::ScopedJoinHandle::join(thread).unwrap_or_else(stopped),
            // The system has no thread for it.
            Err(_) => ask(name),
        };
        others.into_iter().map(join).chain(last).collect()
    })
}

/// Says that there is no session to ask.
fn nothing_runs(output: &Output) -> Result<Exit> {
    if output.json {
        let nobody = Report::default().record(&Nobody);
        output.records.write(&mut sheaf_cli::output::stdout(), &nobody)?;
    } else if !output.quiet {
        sheaf_cli::output::tell("no session is running; start one with: sheaf up");
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
    let (mut out, error) = (sheaf_cli::output::stdout(), one_line(error));
    if output.json {
        output.records.write(&mut out, &CommandError { error, path: None, exit: None })?;
    } else {
        writeln!(out, "{error}")?;
    }
    Ok(())
}

/// A notice, and when it came in seconds since 1970.
type TimedNotice = (u64, Notice);

/// What is still worth telling: that a host had not joined is not, once it has; nor that one is
/// lost which was before.
fn news(notices: &[TimedNotice]) -> Vec<TimedNotice> {
    let (mut news, mut gone): (Vec<TimedNotice>, _) = (Vec::new(), RangeSet::new());
    for (at, notice) in notices {
        let mut notice = notice.clone();
        if let Notice::Lost { leaves, .. } = &mut notice {
            let told = leaves.difference(&gone);
            if told.is_empty() && !leaves.is_empty() {
                continue;
            }
            gone.union_with(leaves);
            *leaves = told;
        }
        if let Notice::Joined { leaves: joined, .. } = &notice {
            gone = gone.difference(joined);
            for (_, older) in &mut news {
                match older {
                    Notice::Lost { leaves, cause, .. }
                        if NOT_JOINED.iter().any(|not| cause.starts_with(not)) =>
                    {
                        *leaves = leaves.difference(joined);
                    }
                    _ => {}
                }
            }
            let is_over =
                |older: &Notice| matches!(older, Notice::Lost { leaves, .. } if leaves.is_empty());
            news.retain(|(_, older)| !is_over(older));
        }
        news.push((*at, notice));
    }
    news
}

/// Events that are alike and follow each other so soon are one.
const FOLD_TIME_S: u64 = 60;

/// Events that are alike, of one node or of several.
struct FoldedEvent {
    /// The last one.
    at: u64,
    notice: Notice,
    nodes: usize,
}

/// Events, with those in one that are of one kind and cause and follow each other.
fn folded(events: &[TimedNotice]) -> Vec<FoldedEvent> {
    let mut all: Vec<FoldedEvent> = Vec::new();
    for (at, notice) in events {
        let last = all.last_mut().filter(|last| at.saturating_sub(last.at) <= FOLD_TIME_S);
        if let Some(last) = last
            && fold_into(&mut last.notice, notice)
        {
            (last.at, last.nodes) = (*at, last.nodes + 1);
            continue;
        }
        all.push(FoldedEvent { at: *at, notice: notice.clone(), nodes: 1 });
    }
    all
}

/// Takes in the hosts of an event that is like this one; whether it is.
fn fold_into(notice: &mut Notice, other: &Notice) -> bool {
    let (into, leaves) = match (notice, other) {
        (Notice::Lost { leaves: into, cause, .. }, Notice::Lost { leaves, cause: same, .. })
            if cause == same =>
        {
            (into, leaves)
        }
        (Notice::Joined { leaves: into, .. }, Notice::Joined { leaves, .. })
        | (Notice::Left { leaves: into, .. }, Notice::Left { leaves, .. })
        | (Notice::Garbled { leaves: into, .. }, Notice::Garbled { leaves, .. }) => (into, leaves),
        _ => return false,
    };
    // Of a host that comes and goes each time is told.
    let is_new = into.is_disjoint(leaves) && !into.is_empty() && !leaves.is_empty();
    if is_new {
        into.union_with(leaves);
    }
    is_new
}

/// What a session has said.
struct ShownStatus {
    exit: Exit,
    summary: Summary,
    out: Vec<u8>,
    errors: Vec<u8>,
}

/// Joins a session and asks it; `None` where there is none.
fn ask(name: &str, global: &GlobalArgs, output: &Output) -> Result<Option<ShownStatus>> {
    let global = GlobalArgs { session: Some(name.to_owned()), ..global.clone() };
    let config = session::config_to_join(&global)?;
    session::runtime()?.block_on(async {
        match Session::find(config, &sheaf_session::registry())? {
            Lookup::Session(session) => {
                let other =
                    by_file(name, &global).and_then(|file| session.other_settings_than(&file));
                show(name, &session, other.as_deref(), output).await.map(Some)
            }
            Lookup::Nothing(_) => Ok(None),
        }
    })
}

/// The configuration by which whoever does not name this session would join it, if there is one.
fn by_file(name: &str, global: &GlobalArgs) -> Option<Config> {
    let by = |cluster| {
        let global = GlobalArgs { session: None, cluster, ..global.clone() };
        session::config_to_join(&global).ok().filter(|config| config.session_name() == name)
    };
    by(global.cluster.clone()).or_else(|| by(Some(name.to_owned())))
}

/// What servers say of themselves, and how the asking ended.
type AskedServers = (Vec<(u32, About)>, Outcome);

/// Asks every host, and how the tree is. Who has not come yet is not waited for.
async fn servers(joined: &Session, everyone: &RangeSet) -> Result<(AskedServers, TreeState)> {
    let client = joined.client();
    let state = |survey| TreeState::new(joined.topology(), survey, Vec::new());
    let mut survey = std::pin::pin!(client.network().survey(LINKS_TIME));
    let mut asked = Box::pin(about(client, everyone));
    // Both wait for who does not answer.
    let survey = tokio::select! {
        asked = &mut asked => return Ok((asked?, state(survey.await))),
        survey = &mut survey => survey,
    };
    let state = state(survey);
    let waiting = state.waiting();
    if waiting.is_empty() {
        return Ok((asked.await?, state));
    }
    drop(asked);
    let there = everyone.difference(&waiting);
    let asked = if there.is_empty() { Default::default() } else { about(client, &there).await? };
    Ok((asked, state))
}

/// What the tree has noticed, and when.
fn events(joined: &Session) -> Vec<TimedNotice> {
    let times = joined.about().map(|told| told.event_times.as_slice()).unwrap_or_default();
    // What has come since this program joined.
    let own = joined.client().network().notice_times();
    let notices = joined.client().network().notices().into_iter().enumerate();
    let at = |index: usize| times.get(index).or(own.get(index)).copied().unwrap_or(0);
    notices.map(|(index, notice)| (at(index), notice)).collect()
}

/// The time of day of an event.
fn clock(at: u64) -> String {
    let at = i64::try_from(at).ok().and_then(|at| jiff::Timestamp::from_second(at).ok());
    let at = at.map(|at| at.to_zoned(jiff::tz::TimeZone::system()));
    at.map_or("?".to_owned(), |at| at.strftime("%H:%M:%S").to_string())
}

/// Asks every host of a session, and gives what it says.
async fn show(
    name: &str,
    joined: &Session,
    other: Option<&str>,
    output: &Output,
) -> Result<ShownStatus> {
    let (client, config) = (joined.client(), joined.config());
    let everyone = client.network().everyone();
    let ((servers, mut outcome), state) = servers(joined, &everyone).await?;
    let mut answered: RangeSet = servers.iter().map(|(leaf, _)| *leaf).collect();
    let mut squashed = None;
    if let Some(host) = joined.gate().filter(|_| is_squashed(joined)) {
        // A server that refuses root of this host has answered.
        let refused = |(errno, _): &mut (Errno, RangeSet)| *errno == Errno::PERM;
        for (_, leaves) in outcome.failed.extract_if(.., refused) {
            answered.union_with(&leaves);
            squashed = Some(format!(
                "root of {host} is not root on its other hosts: clients_root = true of the cluster allows it"
            ));
        }
    }
    let waiting = state.waiting().difference(&answered);
    let missing = everyone.difference(&answered);
    let events = news(&events(joined));
    let asked_of = AskedStatus { name, joined, other, squashed, events: &events, state: &state };
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    if output.json {
        asked_of.write_json(&servers, (&answered, &missing), output, &mut out)?;
    } else {
        asked_of.write_text((&answered, &everyone, &waiting), &mut out)?;
    }
    let asked = [Target { members: everyone, path: String::new() }];
    let mut report = session::report(joined, config, &Ended::new(&asked, &outcome));
    let told: RangeSet = report.silent.iter().flat_map(|silent| silent.leaves.iter()).collect();
    let waiting = waiting.difference(&told);
    if !waiting.is_empty() {
        let is_attach = joined.about().is_some_and(|told| told.launch == ATTACH);
        let why = session::causes::not_come(is_attach);
        report.silent.push(Silent { leaves: waiting, why });
    }
    let hosts = config.hosts()?;
    if !output.json && !output.quiet {
        report.write_text(hosts, &output.stderr, &mut errors)?;
    }
    let summary = Summary { session: Some(name.to_owned()), ..report.record(hosts) };
    Ok(ShownStatus { exit: report.exit(), summary, out, errors })
}

/// Whether servers refuse what this process asks for, because it is root.
fn is_squashed(joined: &Session) -> bool {
    rustix::process::geteuid().is_root() && !joined.rights().may_be_root
}

/// A session that was asked.
struct AskedStatus<'a> {
    name: &'a str,
    joined: &'a Session,
    /// That its settings are not those of the file any more.
    other: Option<&'a str>,
    /// That root of this host may do nothing on others.
    squashed: Option<String>,
    events: &'a [TimedNotice],
    state: &'a TreeState,
}

impl AskedStatus<'_> {
    /// A record for each event and each host, and one for the session.
    fn write_json(
        &self,
        servers: &[(u32, About)],
        (answered, missing): (&RangeSet, &RangeSet),
        output: &Output,
        mut out: &mut Vec<u8>,
    ) -> Result<()> {
        let (client, name) = (self.joined.client(), self.name);
        for note in self.other.into_iter().chain(self.squashed.as_deref()) {
            output.records.write(&mut out, &Note { note: note.to_owned() })?;
        }
        for (at, notice) in self.events {
            notices::write(notice, self.joined, Some((name, *at)), output.records, &mut out)?;
        }
        let carriers = self.state.carriers();
        for (leaf, About { pid, rss_bytes, cpu_us }) in servers {
            let host = client.host(*leaf);
            let link = host.as_deref().and_then(|host| carriers.get(host));
            let record = Host {
                session: name.to_owned(),
                link: link.map(|link| (*link).to_owned()),
                host,
                pid: u64::from(*pid),
                rss_bytes: *rss_bytes,
                cpu_us: *cpu_us,
            };
            output.records.write(&mut out, &record)?;
        }
        // A session that runs has said what it is.
        let Some(about) = self.joined.about().cloned() else { return Ok(()) };
        let some = |list: Vec<(String, String)>| (!list.is_empty()).then_some(list);
        let record = sheaf_records::Session {
            name: name.to_owned(),
            cluster: about.cluster,
            hosts: about.hosts,
            launch: about.launch,
            tree: about.tree,
            export: about.export,
            pid: u64::from(about.pid),
            kept_by: about.kept_by,
            since: about.since,
            answered: client.fold(answered),
            missing: client.fold(missing),
            refused: about.refused,
            refused_at: (!about.refused_at.is_empty()).then_some(about.refused_at),
            shut: some(about.shut),
            shut_to_others: some(about.shut_to_others),
            unaudited: some(about.unaudited),
            unlogged: about.unlogged,
            peer_links: self.state.peers_lines(),
        };
        Ok(output.records.write(&mut out, &record)?)
    }

    /// Who answers, what the session is, and what happened last.
    fn write_text(
        &self,
        (answered, everyone, waiting): (&RangeSet, &RangeSet, &RangeSet),
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let Self { name, joined, other, squashed, events, state } = self;
        // Whoever is joined says what it is.
        let Some(told) = joined.about() else { return Ok(()) };
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
        for line in other.iter().copied().chain(squashed.as_deref()) {
            writeln!(out, "  {line}")?;
        }
        if !waiting.is_empty() {
            let all = everyone.len();
            let line = match told.launch == ATTACH {
                true => format!("{} of {all} hosts have joined yet", all - waiting.len()),
                false => format!("starting: {}", joined.client().fold(waiting)),
            };
            writeln!(out, "  {line}")?;
        }
        let notices: Vec<Notice> = events.iter().map(|(_, notice)| notice.clone()).collect();
        let links = state.links_line().into_iter().chain(state.peers_lines());
        for line in links.chain(notices::started_from_here(&notices, joined)) {
            writeln!(out, "  {line}")?;
        }
        for (index, (why, count)) in told.refused.iter().enumerate() {
            let connections = if *count == 1 { "connection was" } else { "connections were" };
            let at = told.refused_at.get(index).filter(|at| **at > 0);
            let last = at.map_or(String::new(), |at| format!(", last at {}", clock(*at)));
            writeln!(out, "  {count} {connections} refused: {why}{last}")?;
        }
        for (hosts, why) in &told.shut {
            writeln!(out, "  programs on {hosts} cannot use it: {why}")?;
        }
        for (hosts, why) in &told.shut_to_others {
            writeln!(out, "  other users' programs on {hosts} cannot use it: {why}")?;
        }
        for (hosts, why) in &told.unaudited {
            writeln!(out, "  changes on {hosts} are in no file of the host: {why}")?;
        }
        if let Some(why) = &told.unlogged {
            writeln!(out, "  its log is not written: {why}")?;
        }
        let line = |folded: &FoldedEvent| {
            let text = notices::text(&folded.notice, joined, folded.nodes)?;
            Some(format!("{} {text}", clock(folded.at)))
        };
        let events: Vec<String> = folded(events).iter().filter_map(line).collect();
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

    #[test]
    fn joined_hosts_are_no_longer_listed_as_not_joined() {
        let lost = |leaves: RangeSet, cause: &str| {
            let cause = cause.to_owned();
            Notice::Lost { by: 0, rank: 1, leaves, errno: Errno::TIMEDOUT, cause }
        };
        let joined = |leaf| Notice::Joined { by: 0, rank: 1, leaves: RangeSet::single(leaf) };
        let crash = lost(RangeSet::single(0), "its process ended with signal 9");
        let all = [lost(RangeSet::full(2), NOT_JOINED[0]), joined(0), crash.clone(), joined(0)];
        let left = [lost(RangeSet::single(1), NOT_JOINED[0]), joined(0), crash.clone(), joined(0)];
        let at =
            |notices: &[Notice]| notices.iter().map(|one| (7, one.clone())).collect::<Vec<_>>();
        assert_eq!(news(&at(&all)), at(&left));
        let late = lost(RangeSet::single(1), NOT_JOINED[0]);
        assert_eq!(news(&at(&[late, joined(1)])), at(&[joined(1)]));
        let one = |leaf| lost(RangeSet::single(leaf), "its process ended with signal 9");
        let many = [(7, one(0)), (8, one(1)), (90, one(2)), (90, joined(2)), (91, joined(0))];
        let told = folded(&many);
        let of = |folded: &FoldedEvent| match &folded.notice {
            Notice::Lost { leaves, .. } | Notice::Joined { leaves, .. } => leaves.clone(),
            _ => RangeSet::new(),
        };
        let told: Vec<_> = told.iter().map(|one| (one.at, one.nodes, of(one))).collect();
        let both = [0, 2].into_iter().collect();
        assert_eq!(told, [(8, 2, RangeSet::full(2)), (90, 1, RangeSet::single(2)), (91, 2, both)]);
        // Whoever is lost already is not lost again, until it has come back.
        let again = [crash.clone(), crash.clone(), joined(0), crash.clone()];
        assert_eq!(news(&at(&again)), at(&[crash.clone(), joined(0), crash]));
    }
}
