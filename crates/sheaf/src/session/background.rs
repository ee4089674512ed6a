//! A session that stays: a process of its own, started and waited for by `sheaf up`.
use super::{Signals, TokenFile, deadline, runtime, start};
use crate::cmd::tree::event::started_from_here;
use crate::exit::{Exit, Stop};
use anyhow::{Context, Result};
use sheaf_session::config::Launch;
use sheaf_session::{Config, Reachable, Reserved, Session, SessionError, Sessions, started};
use std::cell::Cell;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

/// A session that was started.
pub struct Started {
    pub pid: u32,
    /// How many hosts run.
    pub hosts: u64,
    /// What is to be told of how they were started.
    pub note: Option<String>,
}

/// Starts a session in the background and waits until it listens.
pub fn up(config: &Config, arguments: &[std::ffi::OsString]) -> Result<Started> {
    let name = config.session_name();
    Sessions::of(config.environment()).check_free(name)?;
    let cannot =
        |source| SessionError::Io { what: "cannot start the session's process".to_owned(), source };
    let (mut said, ours) = std::io::pipe().map_err(cannot)?;
    let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
    // Errors come here and are told in one line. Once the session runs nobody reads them: it must
    // not hold on to this command's standard error, which may be a pipe that somebody reads to
    // its end.
    command.args(arguments).stdin(Stdio::null()).stdout(OwnedFd::from(ours)).stderr(Stdio::piped());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let child = command.spawn().map_err(cannot)?;
    drop(command);
    let mut ready = String::new();
    said.read_to_string(&mut ready).map_err(cannot)?;
    let (hosts, note) = ready.split_once('\n').unwrap_or((&ready, ""));
    let note = Some(note.trim()).filter(|note| !note.is_empty()).map(ToOwned::to_owned);
    match hosts.trim().parse() {
        Ok(hosts) => Ok(Started { pid: child.id(), hosts, note }),
        Err(_) => Err(not_started(name, child)),
    }
}

/// Why a session's process ended before it listened: something cannot be meant, or there is no
/// session to be had.
fn not_started(name: &str, child: Child) -> anyhow::Error {
    let output = match child.wait_with_output() {
        Ok(output) => output,
        Err(error) => return error.into(),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let cause = said.lines().find_map(|line| line.strip_prefix("sheaf: "));
    let cause = cause.map_or_else(|| output.status.to_string(), ToOwned::to_owned);
    let text = format!("session {name} did not start: {cause}");
    match output.status.code() {
        Some(code) if code == Exit::Usage as i32 => Stop::usage(text).into(),
        _ => Stop::unreachable(text).into(),
    }
}

/// Goes to `/`: a session that stays must not keep the directory that it was started in.
///
/// # Errors
/// When there are no hosts to be found, which may be listed by a file that is named from here, or the
/// directory cannot be told that an export is named from.
pub fn leave_directory(config: &mut Config) -> Result<()> {
    // Their words may name files from here whenever a host is logged in to again.
    let has_words = config.cluster.ssh.is_some() || config.cluster.srun.is_some();
    if has_words || !Sessions::of(config.environment()).directory().is_absolute() {
        return Ok(());
    }
    config.hosts()?;
    let export = &mut config.cluster.export.value;
    let is_here = matches!(config.cluster.launch.value, Launch::Embedded | Launch::Processes);
    if is_here && !export.is_empty() {
        // From `/` another directory would be served.
        let absolute = std::path::absolute(&*export).with_context(|| format!("export {export}"))?;
        let text = absolute.into_os_string().into_string();
        let why = "the working directory's name is not UTF-8: name the export from /";
        *export = text.map_err(|_| Stop::usage(why))?;
    }
    std::env::set_current_dir("/").context("/")
}

/// How a session runs.
pub struct Staying<'a> {
    pub tokens: Option<&'a TokenFile>,
    /// How many hosts are waited for, if that was said.
    pub wait: Option<u64>,
    /// Its process is the one that was called.
    pub foreground: bool,
}

/// Runs a session until it is asked to end. Once it listens, `listening` is given the number of its
/// hosts, and what is to be told of how they were started.
pub fn run(
    config: Config,
    staying: &Staying<'_>,
    listening: impl FnOnce(&Config, u64, Option<String>) -> Result<()>,
) -> Result<()> {
    let runtime = runtime()?;
    let servers = super::servers();
    let result = runtime.block_on(async {
        let mut signals = Signals::of_session(staying.foreground)?;
        let post = Reserved::take(&config)?;
        let mut session = start(config, 1, &servers).await?;
        if let Some(tokens) = staying.tokens {
            tokens.write(&session)?;
        }
        let open = post.open(&session)?;
        let narrator = tokio::spawn(super::narrate(session.client().clone()));
        tracing::info!("session {} begins: {} hosts", session.name(), session.hosts().len());
        let (network, listens) = (session.client().network(), Cell::new(false));
        let listening = |config: &Config, hosts, note| {
            listens.set(true);
            listening(config, hosts, note)
        };
        let served = tokio::select! {
            biased;
            why = network.deserted() => Err(ended(session.config(), &why, listens.get())),
            served = serve(&open, &session, staying.wait, listening) => served,
            () = signals.heard() => Ok(()),
        };
        narrator.abort();
        tracing::info!("session {} ends", session.name());
        // The name goes first, so that nobody connects to a session that ends.
        drop(open);
        session.lift_deadline();
        session.end().await;
        served
    });
    runtime.shutdown_background();
    servers.settle(super::UNDO_TIME);
    result
}

/// The error of a session whose hosts were ended by others. Of one that has run, later commands are
/// told.
fn ended(config: &Config, why: &str, has_run: bool) -> anyhow::Error {
    if !has_run {
        return Stop::unreachable(why.to_owned()).into();
    }
    let name = config.session_name();
    if let Err(error) = Sessions::of(config.environment()).keep_end(name, why) {
        tracing::warn!(%error, "why the session has ended cannot be kept");
    }
    Stop::unreachable(format!("session {name} has ended: {why}")).into()
}

async fn serve(
    open: &Reachable,
    session: &Session,
    wait: Option<u64>,
    listening: impl FnOnce(&Config, u64, Option<String>) -> Result<()>,
) -> Result<()> {
    let begin = async {
        let hosts = started(session, wait).await;
        let note = started_from_here(&session.client().network().notices(), session);
        listening(session.config(), hosts, note)?;
        deadline::lift();
        anyhow::Ok(())
    };
    if wait.is_none() {
        begin.await?;
        return Ok(open.serve(session).await?);
    }
    // It may take long until they have come: commands can ask meanwhile who has.
    let begin_and_stay = async {
        begin.await?;
        std::future::pending::<Result<()>>().await
    };
    tokio::select! {
        served = open.serve(session) => Ok(served?),
        failed = begin_and_stay => failed,
    }
}

/// Says on standard output that the session runs, and closes it: the process that waits for it goes
/// on.
pub fn announce(leaves: u64, note: Option<&str>) -> Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{leaves}\n{}", note.unwrap_or_default())?;
    out.flush()?;
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}
