//! A session that stays: a process of its own, started and waited for by `sheaf up`.
use super::narrator::Narrator;
use super::{Signals, TokenFile, causes, deadline, runtime, start};
use crate::doctor::command_for;
use crate::exit::{Exit, Stop, one_line};
use crate::notices::started_from_here;
use crate::output::{Palette, Report, Silent, tell};
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use sheaf_core::{Errno, RangeSet};
use sheaf_records::SilentHosts;
use sheaf_session::config::Launch;
use sheaf_session::log::LogPlace;
use sheaf_session::{
    Come, Config, Reachable, Reserved, Session, SessionError, Sessions, is_hopeless, started,
};
use std::cell::Cell;
use std::io::{PipeReader, Read};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

/// What a session's process says once it listens.
#[derive(Default)]
pub struct ReadySession {
    /// How many hosts run.
    pub hosts: u64,
    /// What is to be told of how they were started.
    pub note: Option<String>,
    /// The hosts that do not, folded.
    pub missing: String,
    /// Why, as a line for each reason.
    pub reasons: String,
    /// The same as records have it.
    pub silent: Vec<SilentHosts>,
}

impl ReadySession {
    /// What there is to say of a session for whose hosts was waited for so long.
    fn of(session: &Session, come: &Come, waited: Duration) -> Result<Self> {
        let hosts = session.config().hosts()?;
        let mut report =
            Report { asked: session.client().network().everyone(), ..Report::default() };
        let waited = Duration::from_secs_f64((waited.as_secs_f64() * 10.0).round() / 10.0);
        let gone = session.gone();
        let mut asked = come.missing.clone();
        // Where all who run have answered, the others have not come.
        if session.client().network().present() <= come.count {
            let mut known = RangeSet::new();
            gone.iter().for_each(|gone| known.union_with(&gone.leaves));
            let leaves = asked.difference(&known);
            asked = asked.intersection(&known);
            if !leaves.is_empty() {
                let why = causes::not_come(session.config().launch() == Launch::Attach);
                report.silent.push(Silent { leaves, why });
            }
        }
        causes::add(&mut report, Errno::TIMEDOUT, &asked, &gone, waited);
        let mut reasons = Vec::new();
        report.write_reasons(hosts, &Palette::default(), &mut reasons)?;
        let is_whole = come.missing.is_empty();
        Ok(Self {
            hosts: come.count,
            note: started_from_here(&session.client().network().notices(), session),
            missing: if is_whole { String::new() } else { hosts.fold(&come.missing) },
            reasons: String::from_utf8(reasons)?,
            silent: report.record(hosts).silent,
        })
    }

    /// What [`announce`] has written; `None` of a process that has not come so far.
    fn parse(line: &[u8]) -> Option<Self> {
        let told: Value = serde_json::from_slice(line).ok()?;
        let text = |key: &str| told[key].as_str().map(ToOwned::to_owned);
        Some(Self {
            hosts: told["hosts"].as_u64()?,
            note: text("note"),
            missing: text("missing")?,
            reasons: text("reasons")?,
            silent: serde_json::from_value(told["silent"].clone()).ok()?,
        })
    }
}

/// Starts a session in the background and waits until it listens. Gives its process, and what that
/// says.
pub fn up(config: &Config, arguments: &[std::ffi::OsString]) -> Result<(u32, ReadySession)> {
    let name = config.session_name();
    // Whatever becomes of this one: nobody is told of them again.
    for ended in Sessions::check_free_anywhere(config.environment(), name)? {
        tell(ended);
    }
    let cannot =
        |source| SessionError::Io { what: "cannot start the session's process".to_owned(), source };
    let (said, ours) = std::io::pipe().map_err(cannot)?;
    let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
    // Errors come here and are told in one line, and so does what `-v` asks for. Once the session
    // runs nobody reads them: it must not hold on to this command's standard error, which may be a
    // pipe that somebody reads to its end.
    command.args(arguments).stdin(Stdio::null()).stdout(OwnedFd::from(ours)).stderr(Stdio::piped());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().map_err(cannot)?;
    drop(command);
    let Some(errors) = child.stderr.take() else { unreachable!("it was asked for as a pipe") };
    let mut errors = Errors::new(errors);
    let ready = errors.tell_until_end_of(said).map_err(cannot)?;
    match ReadySession::parse(&ready) {
        Some(ready) => {
            errors.tell_rest();
            // Two may have looked before either listened: each that sees the other ends then.
            if let Err(error) = Sessions::check_alone(config.environment(), name, child.id()) {
                Sessions::of(config.environment()).end(name)?;
                return Err(error.into());
            }
            Ok((child.id(), ready))
        }
        None => Err(not_started(name, child, errors)),
    }
}

/// What a session's process says on standard error until it listens.
struct Errors {
    pipe: ChildStderr,
    /// The beginning of a line.
    part: Vec<u8>,
    /// A line that may be the last, which says why there is no session.
    last: Option<String>,
}

impl Errors {
    fn new(pipe: ChildStderr) -> Self {
        Self { pipe, part: Vec::new(), last: None }
    }

    /// Tells what comes here as it comes, until `said` has ended: what came there.
    fn tell_until_end_of(&mut self, mut said: PipeReader) -> std::io::Result<Vec<u8>> {
        let (mut ready, mut buffer, mut is_open) = (Vec::new(), [0; 4096], true);
        loop {
            let (is_said, is_error) = {
                let errors = is_open.then(|| PollFd::new(&self.pipe, PollFlags::IN));
                let mut fds: Vec<_> =
                    [PollFd::new(&said, PollFlags::IN)].into_iter().chain(errors).collect();
                match poll(&mut fds, None) {
                    Err(rustix::io::Errno::INTR) => continue,
                    polled => drop(polled?),
                }
                let is_ready =
                    |fd: Option<&PollFd<'_>>| fd.is_some_and(|fd| !fd.revents().is_empty());
                (is_ready(fds.first()), is_ready(fds.get(1)))
            };
            if is_error {
                is_open = self.take()?;
            }
            if is_said {
                match said.read(&mut buffer)? {
                    0 => break,
                    len => ready.extend_from_slice(&buffer[..len]),
                }
            }
        }
        // It has written what it had to say before; others may hold the pipe for long.
        while is_open && self.has_more()? {
            is_open = self.take()?;
        }
        Ok(ready)
    }

    fn has_more(&self) -> std::io::Result<bool> {
        let mut fds = [PollFd::new(&self.pipe, PollFlags::IN)];
        Ok(poll(&mut fds, Some(&Timespec::default()))? > 0)
    }

    /// Takes what there is; whether more may come.
    fn take(&mut self) -> std::io::Result<bool> {
        let mut buffer = [0; 4096];
        let len = self.pipe.read(&mut buffer)?;
        self.part.extend_from_slice(&buffer[..len]);
        while let Some(end) = self.part.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.part.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]).into_owned();
            if line.starts_with("sheaf: [") {
                // With `-v`: what happens.
                tell(line);
            } else if line.starts_with("sheaf: ") {
                self.last.replace(line).into_iter().for_each(tell);
            }
        }
        Ok(len > 0)
    }

    /// Tells what was no error.
    fn tell_rest(&mut self) {
        self.last.take().into_iter().for_each(tell);
    }
}

/// Why a session's process ended before it listened: something cannot be meant, or there is no
/// session to be had.
fn not_started(name: &str, mut child: Child, mut errors: Errors) -> anyhow::Error {
    let mut wait = || {
        while errors.take()? {}
        child.wait()
    };
    let status = match wait() {
        Ok(status) => status,
        Err(error) => return error.into(),
    };
    let cause = errors.last.as_deref().and_then(|line| line.strip_prefix("sheaf: "));
    let cause = cause.map_or_else(|| status.to_string(), ToOwned::to_owned);
    let text = format!("session {name} did not start: {cause}");
    match status.code() {
        Some(code) if code == Exit::Usage as i32 => Stop::usage(text).into(),
        _ => Stop::unreachable(text).into(),
    }
}

/// Goes to `/`: a session that stays must not keep the directory that it was started in.
///
/// # Errors
/// When there are no hosts to be found, which may be listed by a file that is named from here, or
/// the directory cannot be told that an export is named from.
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
    /// Where it keeps a log, if it does.
    pub log: Option<LogPlace>,
}

/// Runs a session until it is asked to end. Once it listens, `listening` is given what there is to
/// say of its hosts.
pub fn run(
    config: Config,
    staying: &Staying<'_>,
    listening: impl FnOnce(&Config, &ReadySession) -> Result<()>,
) -> Result<()> {
    let runtime = runtime()?;
    let servers = super::Serving::default();
    let result = runtime.block_on(async {
        let mut signals = Signals::of_session(staying.foreground)?;
        let post = Reserved::take(&config)?;
        let name = config.session_name().to_owned();
        let mut session = start(config, 1, &servers).await.inspect_err(|error| {
            tracing::error!("session {name} ends: {}", one_line(error));
        })?;
        if let Some(tokens) = staying.tokens {
            tokens.write(&session)?;
        }
        let open = post.open(&session)?.logged(staying.log.clone());
        let narrator = Narrator::begin(session.client().clone());
        tracing::info!("session {} begins: {} hosts", session.name(), session.hosts().len());
        let (network, listens) = (session.client().network(), Cell::new(false));
        let listening = |config: &Config, ready: &ReadySession| {
            listens.set(true);
            listening(config, ready)
        };
        let served = tokio::select! {
            biased;
            why = network.deserted() => Err(ended(session.config(), &why, listens.get())),
            served = serve(&open, &session, staying.wait, listening) => served,
            () = signals.heard() => Ok(()),
        };
        narrator.end().await;
        match &served {
            Ok(()) => tracing::info!("session {name} ends"),
            Err(error) => tracing::error!("session {name} ends: {}", one_line(error)),
        }
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
    listening: impl FnOnce(&Config, &ReadySession) -> Result<()>,
) -> Result<()> {
    let begin = async {
        let begun = Instant::now();
        let come = started(session, wait).await;
        // Who says what became of hosts goes first.
        tokio::task::yield_now().await;
        let ready = ReadySession::of(session, &come, begun.elapsed())?;
        if is_hopeless(session, &come) {
            // A session without hosts would hide that nothing was started.
            let reasons: Vec<&str> = ready.reasons.lines().collect();
            let mut why = format!("no host can be started: {}", reasons.join("; "));
            if let Some(command) = command_for(session.config(), &ready.missing) {
                why += &format!("; to find out why: {command}");
            }
            return Err(Stop::unreachable(why).into());
        }
        tracing::info!("session {} listens", session.name());
        listening(session.config(), &ready)?;
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
pub fn announce(ready: &ReadySession) -> Result<()> {
    use std::io::Write;
    let ReadySession { hosts, note, missing, reasons, silent } = ready;
    let told = json!({
        "hosts": hosts, "note": note, "missing": missing, "reasons": reasons, "silent": silent,
    });
    let mut out = std::io::stdout().lock();
    writeln!(out, "{told}")?;
    out.flush()?;
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    // What is said from now on nobody reads.
    rustix::stdio::dup2_stderr(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}
