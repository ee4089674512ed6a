//! `sheaf doctor`: what keeps servers from starting, on this machine or on hosts.
use super::config::{ConfigProblems, problems};
use anyhow::Result;
use clap::Args;
use sheaf_cli::doctor::{
    Examination, Examined, Finding, FoldedFinding, RootListener, Wanted, fold, here, listener,
};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{Output, printable, stdout};
use sheaf_cli::session::{self, Opening};
use sheaf_core::{Errno, RangeSet, lock};
use sheaf_records::{Area, Severity};
use sheaf_session::config::{Hosts, Launch};
use sheaf_session::{Config, Environment, raise_descriptor_limit};
use sheaf_tree::launch::Ssh;
use std::io::Write;
use std::net::{IpAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Find out what keeps servers from starting, and how to mend it
///
/// Examines this machine and the configuration, or with -w or -C each of those
/// hosts over ssh: login, shell, cache, processor and C library, sudo, ports,
/// clock, free space, versions. A host needs a POSIX shell and no server.
/// Nothing is installed or changed. To see whether files can be written and
/// programs run, it makes a file where the program is kept, and removes it.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
A finding is a problem (servers do not start, or not as configured), a note,
or ok. Equal findings of several hosts are printed once.

Exit status: 0 no problem; 1 problems were found; 3 no host answered; 4 some
hosts could not be examined.

Examples:
  sheaf doctor
  sheaf doctor -w 'n[1-64]' --sudo
  sheaf doctor -C lab --all")]
pub struct DoctorArgs {
    /// Print what is well, too (also with -v)
    #[arg(short, long)]
    pub all: bool,

    /// Be the program on a host that tries to reach the root's machine
    #[arg(long, hide = true, num_args = 2, value_names = ["ADDRESS", "PORT"])]
    pub reach: Option<Vec<String>>,
}

/// Examines.
pub fn run(args: &DoctorArgs, global: &GlobalArgs) -> Result<Exit> {
    if let Some(to) = &args.reach {
        return reach(to);
    }
    let GlobalArgs { cluster, on_hosts, exclude_hosts, session, .. } = global;
    let is_for_hosts = cluster.is_some() || session.is_some() || !on_hosts.is_empty();
    let report = if is_for_hosts || !exclude_hosts.is_empty() {
        examine_hosts(global)?
    } else {
        examine_here(global)?
    };
    report.print(args.all || global.verbose > 0, global)
}

fn reach(to: &[String]) -> Result<Exit> {
    let usage = || Stop::usage("--reach ADDRESS PORT");
    let [address, port] = to else { return Err(usage().into()) };
    let (address, port) =
        (address.parse::<IpAddr>().map_err(|_| usage())?, port.parse().map_err(|_| usage())?);
    writeln!(stdout(), "{}", listener::reach(address, port)?)?;
    Ok(Exit::Success)
}

/// Everything that was found.
struct Report {
    here: Vec<Finding>,
    /// This machine was examined, or failed to be.
    own: Option<Examined>,
    hosts: Option<HostsReport>,
    is_interrupted: bool,
}

struct HostsReport {
    names: Hosts,
    examined: Vec<(u32, Examined)>,
}

/// Examines this machine and its configuration.
fn examine_here(global: &GlobalArgs) -> Result<Report> {
    let ConfigProblems { file, mut problems, .. } = problems(global)?;
    // Without a default, each cluster may be meant.
    let names: Vec<Option<String>> = if file.is_unchosen() {
        file.clusters.keys().cloned().map(Some).collect()
    } else {
        vec![None]
    };
    let mut configs = Vec::new();
    for cluster in names {
        match session::config(&GlobalArgs { cluster, ..global.clone() }) {
            Ok(config) => configs.push(config),
            Err(_) if !problems.is_empty() => {}
            Err(error) => problems.push(sheaf_session::one_line(&error)),
        }
    }
    let problem = |text: String, remedy: &str| {
        Finding::new(Severity::Problem, Area::Configuration, text).mended_by(remedy)
    };
    let mut here: Vec<Finding> = Vec::new();
    if problems.is_empty() {
        let text = format!("{}: no problems; clusters: {}", file.name(), file.clusters.len());
        here.push(Finding::new(Severity::Ok, Area::Configuration, text));
    }
    let remedy = "correct it, and see: sheaf config check";
    here.extend(problems.into_iter().map(|text| problem(text, remedy)));
    here.extend(here::of_sessions(&Environment::of_this_process()));
    here.extend(here::of_companions());
    let (runtime, mut first) = (session::runtime()?, None);
    for config in &configs {
        here.extend(listener::listen(config).err());
        match session::server_program()?.ssh(config) {
            Ok(ssh) => {
                here.extend(runtime.block_on(here::of_client(&ssh.command)));
                first.get_or_insert((config, ssh));
            }
            Err(error) => {
                let text = sheaf_session::one_line(&error);
                here.push(problem(text, "correct the setting ssh"));
            }
        }
    }
    let own = match first {
        Some((config, ssh)) => {
            let examination = examination(config, &ssh, None);
            Some(runtime.block_on(examination.of_this_machine()))
        }
        None => None,
    };
    Ok(Report { here, own, hosts: None, is_interrupted: false })
}

fn examination(config: &Config, ssh: &Ssh, root: Option<RootListener>) -> Examination {
    Examination {
        wanted: Wanted::new(&ssh.content, Path::new("/proc/self/exe")),
        directories: ssh.content.directories(),
        sudo: config.cluster.sudo.as_ref().is_some_and(|sudo| sudo.value),
        root,
    }
}

/// Examines the hosts that the options name.
fn examine_hosts(global: &GlobalArgs) -> Result<Report> {
    if global.session.is_none() {
        let config = session::config(global)?;
        let output = Output::new(global);
        output.announce(config.announcement.as_deref());
        output.note(config.note.as_deref())?;
        if config.launch() != Launch::Ssh {
            let (name, launch) = (&config.cluster.name.value, config.launch());
            return Err(Stop::usage(format!(
                "doctor examines hosts over ssh, and cluster {name} has launch = {launch}: add \
                 --launch ssh if ssh leads to its hosts"
            ))
            .into());
        }
        return examine(&config, global.timeout);
    }
    let opening = Opening::begin(global)?;
    examine(opening.config(), global.timeout)
}

fn examine(config: &Config, patience: Option<Duration>) -> Result<Report> {
    let (all, leaves) = (config.hosts()?, config.everyone()?);
    let leaves: Vec<u32> = leaves.iter().collect();
    let hosts: Arc<[String]> =
        leaves.iter().map(|leaf| all.names()[*leaf as usize].clone()).collect();
    let ssh = session::server_program()?.ssh(config)?;
    // Each login has some.
    raise_descriptor_limit();
    let mut here = Vec::new();
    let (root, socket) = match listener::listen(config) {
        Ok(root) => root.unzip(),
        Err(finding) => {
            here.push(finding);
            (None, None)
        }
    };
    let token = root.as_ref().map(|root| root.token.clone());
    let examination = Arc::new(examination(config, &ssh, root));
    let found = Arc::new(Mutex::new(hosts.iter().map(|_| None).collect::<Vec<_>>()));
    let ended = session::runtime()?.block_on(async {
        let work = examination.of_hosts(ssh, &hosts, &found);
        until_ended(work, socket.zip(token), patience).await
    })?;
    let untried = || match ended {
        End::Late => Examined::untried(Errno::TIMEDOUT, "not examined in the time of --timeout"),
        End::Interrupted => {
            Examined::untried(Errno::CANCELED, "interrupted before it was examined")
        }
        End::Done => Examined::untried(Errno::IO, "its examination broke off in this program"),
    };
    let found = std::mem::take(&mut *lock(&found));
    let examined = found.into_iter().map(|found| found.unwrap_or_else(untried));
    let examined = leaves.into_iter().zip(examined).collect();
    let names = Hosts::new(all.names().to_vec());
    let is_interrupted = ended == End::Interrupted;
    Ok(Report { here, own: None, hosts: Some(HostsReport { names, examined }), is_interrupted })
}

/// How the examination of hosts has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Done,
    Late,
    Interrupted,
}

/// Works until the work is done, the time is over, or a signal comes. Hosts are answered meanwhile
/// that try to reach this machine.
async fn until_ended(
    work: impl Future<Output = ()>,
    root: Option<(TcpListener, String)>,
    patience: Option<Duration>,
) -> Result<End> {
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let answer = async {
        if let Some((socket, token)) = root {
            listener::answer(socket, &token).await;
        }
        std::future::pending::<()>().await;
    };
    let late = async {
        match patience {
            Some(patience) => tokio::time::sleep(patience).await,
            None => std::future::pending().await,
        }
    };
    Ok(tokio::select! {
        () = work => End::Done,
        () = late => End::Late,
        () = answer => End::Done,
        _ = interrupt.recv() => End::Interrupted,
        _ = terminate.recv() => End::Interrupted,
    })
}

impl Report {
    /// Prints the findings. `all`: also those that are well.
    fn print(&self, all: bool, global: &GlobalArgs) -> Result<Exit> {
        let mut here = self.here.clone();
        here.extend(self.own.iter().flat_map(|own| own.findings.clone()));
        let hosts: Vec<(u32, &Examined)> = self
            .hosts
            .iter()
            .flat_map(|hosts| hosts.examined.iter().map(|(leaf, examined)| (*leaf, examined)))
            .collect();
        let folded = fold(&here, &hosts, global.json);
        let count =
            |severity| folded.iter().filter(|one| one.finding.severity == severity).count() as u64;
        let (problems, notes) = (count(Severity::Problem), count(Severity::Note));
        let each = || hosts.iter().map(|(_, host)| *host).chain(&self.own);
        let failed = each().filter(|one| !one.is_whole()).count() as u64;
        let examined = each().count() as u64 - failed;
        let exit = match () {
            () if self.is_interrupted => Exit::Interrupted,
            () if !hosts.is_empty() && hosts.iter().all(|(_, host)| !host.has_answered) => {
                Exit::Unreachable
            }
            () if failed > 0 => Exit::Partial,
            () if problems > 0 => Exit::Unmatched,
            () => Exit::Success,
        };
        let shown = folded.iter().filter(|one| all || one.finding.severity != Severity::Ok);
        let (output, mut out) = (Output::new(global), stdout());
        for one in shown {
            if global.json {
                output.records.write(&mut out, &self.record(one))?;
            } else {
                self.write_finding(one, &output, &mut out)?;
            }
        }
        let all_hosts = self
            .hosts
            .as_ref()
            .map(|hosts| hosts.names.fold(&hosts.examined.iter().map(|(leaf, _)| *leaf).collect()));
        if global.json {
            let record = sheaf_records::Examined {
                hosts: all_hosts,
                examined,
                failed,
                problems,
                notes,
                exit,
            };
            output.records.write(&mut out, &record)?;
        } else {
            let number = |count: u64, noun: &str| {
                format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
            };
            let place = match all_hosts {
                Some(_) if failed > 0 => {
                    format!("{} examined, {failed} not", number(examined, "host"))
                }
                Some(_) => format!("{} examined", number(examined, "host")),
                None => "this machine".to_owned(),
            };
            writeln!(out, "{place}: {}, {}", number(problems, "problem"), number(notes, "note"))?;
        }
        out.flush()?;
        Ok(exit)
    }

    /// The folded hosts of a finding, their number, and the name for `%h` in its texts.
    fn place(&self, leaves: Option<&RangeSet>) -> (Option<(String, u64)>, String) {
        let Some((leaves, hosts)) = leaves.zip(self.hosts.as_ref()) else {
            return (None, "localhost".to_owned());
        };
        let (folded, count) = (hosts.names.fold(leaves), leaves.len());
        let name = if count == 1 { folded.clone() } else { "HOST".to_owned() };
        (Some((folded, count)), name)
    }

    fn record(&self, one: &FoldedFinding) -> sheaf_records::Finding {
        let (place, name) = self.place(one.leaves.as_ref());
        let ((hosts, count), (text, remedy)) = (place.unzip(), one.texts(&name));
        let Finding { severity, area, errno, measure, .. } = one.finding;
        sheaf_records::Finding {
            hosts,
            count,
            severity,
            area,
            text,
            remedy,
            errno: errno.map(errno_name),
            value: measure.map(|measure| measure.value),
            uncertainty: measure.map(|measure| measure.uncertainty).filter(|value| *value > 0.0),
        }
    }

    /// `n[1-4]: problem: login: …`, and the remedy on a line of its own.
    fn write_finding(
        &self,
        one: &FoldedFinding,
        output: &Output,
        out: &mut dyn Write,
    ) -> Result<()> {
        let (place, name) = self.place(one.leaves.as_ref());
        let place = place.map_or("this machine".to_owned(), |(hosts, _)| printable(&hosts));
        let (text, remedy) = one.texts(&name);
        let (host, error) = (output.stdout.hosts, output.stdout.error);
        let severity = match one.finding.severity {
            Severity::Problem => format!("{error}problem{error:#}"),
            Severity::Note => "note".to_owned(),
            Severity::Ok => "ok".to_owned(),
        };
        let values = one.values().map(|values| format!(" ({values})")).unwrap_or_default();
        let errno = one.finding.errno.map(|errno| format!(" ({})", errno_name(errno)));
        let (area, errno) = (area_name(one.finding.area), errno.unwrap_or_default());
        let text = printable(&text);
        writeln!(out, "{host}{place}{host:#}: {severity}: {area}: {text}{values}{errno}")?;
        if let Some(remedy) = remedy {
            writeln!(out, "  {}", printable(&remedy))?;
        }
        Ok(())
    }
}

fn errno_name(errno: Errno) -> String {
    errno.name().map_or_else(|| errno.0.to_string(), str::to_owned)
}

fn area_name(area: Area) -> String {
    // Records have the same names.
    serde_json::to_value(area)
        .ok()
        .and_then(|name| Some(name.as_str()?.to_owned()))
        .unwrap_or_default()
}
