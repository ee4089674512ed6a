//! From a configuration to a running tree, and what happens around a command that uses one.
use crate::companion;
use crate::exit::{Exit, Stop};
use crate::leftovers;
use crate::notices::started_from_here;
use crate::options::GlobalArgs;
use crate::output::{Changes, Failure, Output, Report};
use anyhow::{Context, Result};
use narrator::Narrator;
use sheaf_core::{Errno, RangeSet};
use sheaf_group::{Client, Outcome, THREADS_MAX, USER_THREADS_MAX};
use sheaf_session::config::Launch;
use sheaf_session::log::LogPlace;
use sheaf_session::{
    Choices, Config, Environment, Lookup, ServerProgram, Session, SessionError, SessionIdentity,
    Sessions, Start, registry,
};
use sheaf_tools::Target;
use sheaf_tree::service::{Configs, Services};
use sheaf_tree::topology::Topology;
use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

pub mod background;
pub mod causes;
pub mod deadline;
pub mod elsewhere;
mod narrator;
mod selected;
mod waiting;

/// How long servers of this process have, once its session is over, to undo what is half done.
pub const UNDO_TIME: Duration = Duration::from_millis(200);

/// The configuration of a command.
pub fn config(global: &GlobalArgs) -> Result<Config, SessionError> {
    Config::load(&global.choices(), &Environment::of_this_process())
}

/// The configuration of a session that is to begin.
pub fn config_to_begin(global: &GlobalArgs) -> Result<Config, SessionError> {
    let environment = Environment::of_this_process();
    let choices =
        Choices { begins: true, ..selected::with_variable(global, &environment).choices() };
    Config::load(&choices, &environment)
}

/// Where the session of this configuration keeps its log.
pub fn log_of(config: &Config) -> Result<LogPlace> {
    let sessions = Sessions::of(config.environment());
    sessions.make_directory()?;
    Ok(LogPlace::new(sessions.log(config.session_name())))
}

/// The configuration of a command that joins a running session.
pub fn config_to_join(global: &GlobalArgs) -> Result<Config, SessionError> {
    Config::load_to_join(&global.choices(), &Environment::of_this_process())
}

/// What a command does with files of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    Read,
    Change,
    /// Mount a view, in which each user acts as itself.
    View,
    /// The same of one directory, whose host is said.
    ViewOfOne,
}

/// A command before its tree runs: addresses can be resolved, nothing has been started.
pub struct Opening {
    found: Lookup,
    pub output: Output,
    runtime: tokio::runtime::Runtime,
    begun: Instant,
    /// That sessions run that are not used.
    unused: Option<String>,
}

impl Opening {
    /// Reads the configuration and joins the running session that is meant, if there is one: its
    /// hosts are then the cluster's. For a command that changes no file of theirs.
    pub fn new(global: &GlobalArgs) -> Result<Self> {
        let opening = Self::begin(global)?;
        opening.begin_to(Intent::Read)?;
        Ok(opening)
    }

    /// [`Opening::new`] for a command that changes files, which is refused where others than meant
    /// could be.
    pub fn to_change(global: &GlobalArgs) -> Result<Self> {
        let opening = Self::begin(global)?;
        opening.begin_to(Intent::Change)?;
        Ok(opening)
    }

    /// Before it is known what the command does; [`Opening::begin_to`] follows.
    pub fn begin(global: &GlobalArgs) -> Result<Self> {
        let begun = Instant::now();
        let environment = Environment::of_this_process();
        selected::check(global, &environment)?;
        let chosen = selected::with_variable(global, &environment);
        let (config, output) = (config_to_join(&chosen)?, Output::new(global));
        let runtime = runtime()?;
        let found = runtime
            .block_on(async { Session::find(config, &registry()) })
            .map_err(|error| selected::explain(error, global, &environment))?;
        let is_joined = matches!(found, Lookup::Session(_));
        let unused = (!is_joined).then(|| selected::unused(global, &environment)).flatten();
        Ok(Self { found, output, runtime, begun, unused })
    }

    /// Says what the user may not expect, or refuses what could change files that are not meant.
    pub fn begin_to(&self, deed: Intent) -> Result<()> {
        let session = match &self.found {
            Lookup::Session(session) => Some(session),
            Lookup::Nothing(_) => None,
        };
        if let Some(session) = session {
            check_rights(session, deed)?;
        }
        let other = session.and_then(|session| session.other_settings());
        if let (Intent::Change, Some(why)) =
            (deed, self.config().mixture.as_ref().or(other.as_ref()))
        {
            return Err(Stop::usage(why.clone()).into());
        }
        self.output.announce(self.config().announcement.as_deref());
        self.output.note(self.config().note.as_deref())?;
        self.output.note(self.unused.as_deref())?;
        if deed != Intent::ViewOfOne {
            self.output.note(session.and_then(|session| by_gate(session)).as_deref())?;
        }
        Ok(self.output.note(other.as_deref())?)
    }

    /// Whether a running session was joined, so that no tree has to be started.
    pub fn is_joined(&self) -> bool {
        matches!(self.found, Lookup::Session(_))
    }

    /// The configuration, with the hosts of the session that was joined.
    pub fn config(&self) -> &Config {
        match &self.found {
            Lookup::Session(session) => session.config(),
            Lookup::Nothing(config) => config,
        }
    }

    /// Lets the command take as long as it likes.
    pub fn lift_deadline(&mut self) {
        match &mut self.found {
            Lookup::Session(session) => session.lift_deadline(),
            Lookup::Nothing(config) => config.deadline = None,
        }
    }

    /// Runs `act` in the session that was joined, or in one of its own that ends with it.
    ///
    /// Ctrl-C (or a request to end) once lets every operation end with what it has; twice ends
    /// the program. Servers notice the end of their session by themselves.
    pub fn run<T>(
        self,
        act: impl AsyncFnOnce(&Session, &Config, &Output) -> Result<T>,
    ) -> Result<T> {
        let Self { found, output, runtime, begun, unused: _ } = self;
        let servers = Serving::default();
        let result = runtime.block_on(async {
            // Before the first process starts, so that none is left behind at any moment.
            let signals = Signals::listen()?;
            let session = match found {
                Lookup::Session(joined) => *joined,
                Lookup::Nothing(config) => start(*config, 0, &servers).await?,
            };
            let interrupts = sheaf_tree::task::spawn(signals.heed(session.client().clone()));
            let narrator = Narrator::begin(session.client().clone());
            // Of a session that runs, others have been told.
            let waiting = session.is_own().then(|| waiting::tell_of(&session, &output));
            let waiting = waiting.map(tokio::spawn);
            let phases = Phases { begun, there: begun.elapsed() };
            let result = act(&session, session.config(), &output).await;
            narrator.end().await;
            waiting.inspect(JoinHandle::abort);
            crate::output::wipe();
            phases.tell(&session);
            // Of records the summary is the last.
            if session.is_own() && !output.json {
                let notices = session.client().network().notices();
                output.note(started_from_here(&notices, &session).as_deref())?;
            }
            session.end().await;
            interrupts.abort();
            result
        });
        runtime.shutdown_background();
        // A file operation that hangs must not keep the command.
        servers.settle(UNDO_TIME / 2);
        result
    }
}

/// Refuses what no host would do for a client that joined on a host of the session.
fn check_rights(session: &Session, deed: Intent) -> Result<()> {
    let Some(host) = session.gate() else { return Ok(()) };
    let (name, rights) = (session.name(), session.rights());
    let head = session.kept_by().unwrap_or("the machine that started it");
    let refuse = |why: String, setting: &str| {
        let how = format!("type it on {head}, or set {setting} there and start the session again");
        Err(Stop::usage(format!("session {name}: {why}: {how}")).into())
    };
    if deed == Intent::Change && !rights.may_write {
        let why = format!("clients on {host} may read files and change none (EPERM)");
        return refuse(why, "clients_may = \"write\"");
    }
    let is_root = rustix::process::geteuid().is_root();
    if !matches!(deed, Intent::View | Intent::ViewOfOne) && is_root && !rights.may_be_root {
        let why = format!("root of {host} is not root on its other hosts (EPERM)");
        return refuse(why, "clients_root = true");
    }
    Ok(())
}

/// How long a session that was just joined has to say which hosts run.
const HOSTS_WAIT: Duration = Duration::from_secs(5);

/// Whether a session still runs, with hosts: the caller has lost its link to it. The log says why not.
pub async fn has_hosts(global: &GlobalArgs, of: &SessionIdentity) -> bool {
    let global = selected::with_variable(global, &Environment::of_this_process());
    let found = config_to_join(&global).and_then(|config| Session::find(config, &registry()));
    match found {
        Ok(Lookup::Session(session)) => {
            let is_same = session.identity() == *of;
            let there = session.client().network().ready(HOSTS_WAIT).await;
            session.end().await;
            is_same && there.is_some_and(|hosts| !hosts.is_empty())
        }
        Ok(Lookup::Nothing(_)) => false,
        Err(error) => {
            tracing::info!(%error, "no session is joined");
            false
        }
    }
}

/// What a command has taken its time for.
struct Phases {
    begun: Instant,
    /// When the session was joined or begun.
    there: Duration,
}

impl Phases {
    fn tell(&self, session: &Session) {
        let (all, times) = (self.begun.elapsed(), session.client().times());
        let printing = crate::output::printing_time();
        let (opening, asking) = (times.opening, times.asking);
        // What is asked side by side is waited for once.
        let known = self.there + opening + asking + printing;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        tracing::info!(
            "done: {:.1} ms: {} {:.1}, open {:.1}, ask {:.1} ({} request{}), print {:.1}, combine \
             and else {:.1}",
            ms(all),
            if session.is_own() { "start" } else { "join" },
            ms(self.there),
            ms(opening),
            ms(asking),
            times.requests,
            if times.requests == 1 { "" } else { "s" },
            ms(printing),
            ms(all.saturating_sub(known))
        );
        if tracing::enabled!(tracing::Level::TRACE) {
            for link in session.client().network().own_report().links {
                let to =
                    link.child.map_or("the node above".to_owned(), |rank| format!("node {rank}"));
                tracing::trace!(
                    "link to {to}, {}, {}: {} frames, {} bytes came, {} bytes went",
                    link.via.word(),
                    link.state.word(),
                    link.frames_in,
                    link.bytes_in,
                    link.bytes_out
                );
            }
        }
    }
}

/// What whoever has not asked for a session may not expect: that this host is in one, and which
/// hosts are meant.
fn by_gate(session: &Session) -> Option<String> {
    let (host, config) = (session.gate()?, session.config());
    // Hosts that are said wrong are told where they are looked for.
    let meant = config.everyone().ok()?;
    let (name, hosts) = (session.name(), session.client().fold(meant));
    let file = config.silent_file().map(|file| file + ", and ").unwrap_or_default();
    Some(match (config.says_hosts(), meant.len()) {
        (true, _) => {
            format!("{file}{host} is in session {name}: {hosts} are meant as hosts of it")
        }
        (false, count) => {
            format!("{file}{host} is in session {name}: its {count} hosts are meant ({hosts})")
        }
    })
}

/// That the session of this name is one of the cluster that was said, if one was.
///
/// # Errors
/// When it is of another, or does not say of which.
pub fn check_cluster(name: &str, global: &GlobalArgs) -> Result<()> {
    if global.cluster.is_none() || !Sessions::of(&Environment::of_this_process()).is_running(name) {
        return Ok(());
    }
    let mut global = global.clone();
    global.session = Some(name.to_owned());
    Opening::begin(&global).map(drop)
}

/// The name of the session that is meant, by its name alone or by the configuration.
pub fn named(name: Option<&String>, global: &GlobalArgs) -> Result<String> {
    match name.or(global.session.as_ref()) {
        Some(name) => Ok(name.clone()),
        None => match selected::with_variable(global, &Environment::of_this_process()).session {
            Some(name) => Ok(name),
            None => Ok(config(global)?.session_name().to_owned()),
        },
    }
}

/// The descriptors that a runtime and its signals need, which panics without them.
const RUNTIME_DESCRIPTORS: usize = 6;

/// One thread runs everything; files are worked on by threads that are none of the runtime's.
///
/// # Errors
/// When the limit of descriptors leaves too few to begin with.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    let built = (0..RUNTIME_DESCRIPTORS)
        .map(|_| std::fs::File::open("/dev/null"))
        .collect::<io::Result<Vec<_>>>()
        .and_then(|free| {
            drop(free);
            tokio::runtime::Builder::new_current_thread().enable_all().build()
        });
    built.map_err(|error| {
        let error = crate::exit::io_text("cannot start".as_ref(), &error);
        Stop::unreachable(format!("{error}; ulimit -n says how many descriptors there may be"))
            .into()
    })
}

/// The program that serves on hosts.
pub fn server_program() -> Result<ServerProgram, SessionError> {
    let lost = |source| SessionError::Io { what: "cannot find sheaf itself".to_owned(), source };
    Ok(match companion::this() {
        Some(_) => ServerProgram::new(companion::sheaf().map_err(lost)?, ["serve"]),
        None => {
            let path = std::env::current_exe().map_err(lost)?;
            ServerProgram::of_this_process(path, ["serve"])
        }
    })
}

/// Starts a session. `depth`: levels that are to come above its tree. `servers`: those of this
/// process, if it is to have any.
pub async fn start(config: Config, depth: u32, servers: &Serving) -> Result<Session> {
    // Inside this process none is started.
    let program = match config.launch() {
        Launch::Embedded => None,
        _ => Some(server_program()?),
    };
    let services = &servers.services();
    let export = config.cluster.export.value.clone().into_bytes();
    let configs = companion::COMPANIONS
        .iter()
        .filter_map(|companion| companion.service)
        .map(|service| (service.to_owned(), export.clone()))
        .collect::<Configs>();
    let start = Start { services, configs, program, umask: Some(crate::mode::umask()), depth };
    Ok(start.start(config).await?)
}

/// Where tokens go, for hosts that come by themselves.
pub struct TokenFile {
    pub path: PathBuf,
    /// How often the one token may be used; `None` for one token for each host.
    pub uses: Option<u32>,
}

impl TokenFile {
    /// Has the tokens made for hosts that come to this session, if any may.
    pub fn write(&self, session: &Session) -> Result<()> {
        let Some(desk) = session.desk() else { return Ok(()) };
        let mut text = String::new();
        match self.uses {
            Some(uses) => text = format!("{}\n", desk.issue(uses)?),
            None => {
                for _ in 0..hosts_of(session.topology()) {
                    text += &format!("{}\n", desk.issue(1)?);
                }
            }
        }
        crate::secret::write_secret(&self.path, &text)
    }
}

/// How many hosts a tree has beside the root's.
fn hosts_of(topology: &Topology) -> usize {
    let hosts: HashSet<String> = topology.nodes().skip(1).map(|node| node.host()).collect();
    hosts.len()
}

/// The services of this program's nodes.
pub struct Serving(sheaf_session::Serving);

impl Default for Serving {
    fn default() -> Self {
        Self(sheaf_session::Serving::with_tools(leftovers::hosts::register))
    }
}

impl Serving {
    /// By name, with their filters.
    pub fn services(&self) -> Services {
        companion::register(self.0.services(&Environment::of_this_process()))
    }

    /// [`sheaf_session::Serving::settle`].
    pub fn settle(&self, patience: Duration) {
        self.0.settle(patience);
    }
}

/// Signals that follow each other so soon are one: who ends a group of processes may signal each of
/// them for itself and in the group, and the report of what was done until then must not be lost by
/// that.
const ONE_SIGNAL: Duration = Duration::from_millis(250);

/// Whether whoever has started this process has it ignore a signal.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// The signals that ask a command to end.
struct Signals(Vec<tokio::signal::unix::Signal>);

impl Signals {
    /// Those of a command, which goes with its terminal.
    fn listen() -> Result<Self> {
        Self::with_hangup(true)
    }

    /// Those of a session that stays. A terminal that goes away takes the session along that has
    /// it, in the foreground; to any other the signal says nothing: there is nothing that it could
    /// read again.
    fn of_session(foreground: bool) -> Result<Self> {
        Self::with_hangup(foreground && std::fs::File::open("/dev/tty").is_ok())
    }

    fn with_hangup(ends: bool) -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate()];
        // Whoever starts a program by nohup has said that it goes on.
        if !is_ignored(SignalKind::hangup().as_raw_value()) {
            kinds.push(SignalKind::hangup());
        }
        let heard = kinds.iter().map(|&kind| signal(kind)).collect::<Result<Vec<_>, _>>();
        let mut heard = heard.context("cannot listen for signals")?;
        if !ends {
            // What nobody listens to any more does nothing, as long as the process lives.
            heard.truncate(2);
        }
        Ok(Self(heard))
    }

    /// Ends the operations of `session` at the first signal, the program at the second.
    async fn heed(mut self, session: Client) {
        self.heard().await;
        let first = Instant::now();
        session.interrupt();
        while first.elapsed() < ONE_SIGNAL {
            self.heard().await;
        }
        crate::output::wipe();
        std::process::exit(Exit::Interrupted as i32);
    }

    /// Waits for the next signal.
    async fn heard(&mut self) {
        std::future::poll_fn(|cx| {
            let heard = self.0.iter_mut().any(|signal| signal.poll_recv(cx).is_ready());
            if heard { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}

/// Has a command of this machine alone say something and end, when a signal asks it to. Where nobody can
/// listen for one, it ends without a word, as programs do.
pub fn end_at_signal(says: &'static str) {
    let heed = move || -> Result<()> {
        let runtime = runtime()?;
        runtime.block_on(async {
            Signals::listen()?.heard().await;
            anyhow::Ok(())
        })?;
        crate::output::wipe();
        crate::output::tell(format_args!("sheaf: {says}"));
        std::process::exit(Exit::Interrupted as i32)
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    let _ = thread.spawn(heed);
}

/// What there is to say of failures, whatever the command.
const HINTS: [(Errno, &str); 1] =
    [(Errno::AGAIN, "it is a pipe or a device, which is not waited for, or its file system hangs")];

/// The same for a user whom another user's session lets in.
const GUEST_HINTS: [(Errno, &str); 2] = [
    (Errno::MFILE, "one user has at most half of the descriptors of its server (ulimit -n)"),
    (Errno::NOMEM, "one user has at most 256 MiB of its server: open or read less at a time"),
];

/// What a command came to.
pub struct Ended<'a> {
    /// What was asked for, of whom.
    pub targets: &'a [Target],
    pub outcome: &'a Outcome,
    /// Failures that the outcome does not have, or has in other words.
    pub extra: &'a [Failure],
    /// Files of this machine that failed.
    pub failed_here: u64,
    /// Members that failed because of this machine alone.
    pub lost_here: u64,
    /// Members that answered lack something that others have, and were named for it.
    pub incomplete: bool,
    /// Nothing matched.
    pub unmatched: bool,
    /// Failures are counted and not named.
    pub hushed: bool,
    /// What was changed, by commands that change files.
    pub changes: Option<Changes>,
    /// What can be done about failures of a kind.
    pub hints: &'a [(Errno, &'a str)],
}

impl<'a> Ended<'a> {
    /// `targets` were asked, and `outcome` says the rest.
    pub fn new(targets: &'a [Target], outcome: &'a Outcome) -> Self {
        Self {
            targets,
            outcome,
            extra: &[],
            failed_here: 0,
            lost_here: 0,
            incomplete: false,
            unmatched: false,
            hushed: false,
            changes: None,
            hints: &[],
        }
    }
}

/// Ends a command: who failed and who was silent, in words or as JSON, and the exit code of both.
pub fn finish(
    session: &Session,
    config: &Config,
    output: &Output,
    ended: &Ended<'_>,
) -> Result<Exit> {
    let report = report(session, config, ended);
    Ok(output.finish(&report, config.hosts()?)?)
}

/// The report of an outcome, with what the tree knows of the hosts that were lost.
pub fn report(session: &Session, config: &Config, ended: &Ended<'_>) -> Report {
    let Ended {
        targets,
        outcome,
        extra,
        failed_here,
        lost_here,
        incomplete,
        unmatched,
        hushed,
        hints,
        ..
    } = *ended;
    let changes = ended.changes.clone();
    let mut outcome = outcome.clone();
    outcome.count_once();
    let mut asked = RangeSet::new();
    targets.iter().for_each(|target| asked.union_with(&target.members));
    let interrupted = session.client().is_interrupted();
    let succeeded = outcome.status.count;
    let mut report = Report {
        asked,
        succeeded,
        failed_here,
        lost_here,
        incomplete,
        unmatched,
        interrupted,
        hushed,
        changes,
        ..Report::default()
    };
    let own = if session.is_guest() { &GUEST_HINTS[..] } else { &[] };
    let of = |hints: &[(Errno, &str)], errno| {
        hints.iter().find(|(of, _)| *of == errno).map(|(_, text)| (*text).to_owned())
    };
    let hint = |errno| of(own, errno).or_else(|| of(hints, errno)).or_else(|| of(&HINTS, errno));
    for error in &outcome.errors {
        report.failures.push(Failure::of(error, hint(error.errno)));
    }
    add_failed_hosts(&mut report, session, targets, &outcome, hint);
    let in_own_words = |failure: &Failure| {
        let detail = of(own, failure.errno).or_else(|| failure.detail.clone());
        Failure { detail, ..failure.clone() }
    };
    report.failures.extend(extra.iter().map(in_own_words));
    let mut gone = session.gone();
    gone.extend(session.untried().into_iter().chain(session.starting()));
    let waited = waited(config);
    for (errno, leaves) in &outcome.silent {
        causes::add(&mut report, *errno, leaves, &gone, waited);
    }
    if report.changes.is_none() {
        report.heard = outcome.heard.clone();
        report.tell_heard();
    }
    report.tell_unfinished();
    report
}

/// How long a host that was silent was waited for: with a deadline some are given up before it, so that others have time.
fn waited(config: &Config) -> Duration {
    let (timeout, Some(deadline)) = (config.timeout.value, config.deadline) else {
        return config.timeout.value;
    };
    let left = deadline.saturating_duration_since(Instant::now());
    if left < timeout / 10 {
        return timeout;
    }
    let tenths = timeout.saturating_sub(left).as_millis() / 100;
    Duration::from_millis(u64::try_from(tenths).unwrap_or(0) * 100)
}

/// Adds hosts that failed as a whole: the paths that they were asked for are known.
fn add_failed_hosts(
    report: &mut Report,
    session: &Session,
    targets: &[Target],
    outcome: &Outcome,
    hint: impl Fn(Errno) -> Option<String>,
) {
    for (errno, leaves) in &outcome.failed {
        let theirs = targets.iter().filter(|target| !target.members.is_disjoint(leaves));
        let mut paths: Vec<&str> = theirs.map(|target| target.path.as_str()).collect();
        paths.dedup();
        let path = if let [path] = paths[..] { path.to_owned() } else { String::new() };
        if *errno == Errno::NOSYS {
            let network = session.client().network();
            let mut rest = leaves.clone();
            for (service, lack) in network.lacking(leaves) {
                let lack = lack.intersection(&rest);
                rest = rest.difference(&lack);
                let detail = format!(
                    "its server lacks the service {service:?}, or a part of it: it is another \
                     program, or another version"
                );
                report.failures.push(Failure::new(lack, path.clone(), *errno, Some(detail)));
            }
            if rest.is_empty() {
                continue;
            }
        }
        let detail = match *errno {
            Errno::AGAIN if session.is_guest() => Some(format!(
                "its server has no thread for it: one user has at most {USER_THREADS_MAX} of its \
                 {THREADS_MAX}, all of which hang, or 1024 streams, all of which are open"
            )),
            Errno::AGAIN => Some(format!(
                "its server has no thread for it: {THREADS_MAX} hang, or the system gives it none \
                 (ulimit -u)"
            )),
            errno => hint(errno),
        };
        report.failures.push(Failure::new(leaves.clone(), path, *errno, detail));
    }
}
