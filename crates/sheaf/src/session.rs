//! From a configuration to a running tree, and what happens around a command that uses one.
use crate::cli::{GlobalArgs, Link};
use crate::config::{Config, Launch, Sourced};
use crate::exit::{Exit, Stop};
use crate::output::{Changes, Failure, Output, Report};
use crate::probe::{self, PROBE};
use anyhow::{Context, Result};
use sheaf_core::{Errno, RangeSet};
use sheaf_group::{Limits, Outcome, Servers, Session, THREADS_MAX};
use sheaf_tools::Target;
use sheaf_tree::filter::Registry;
use sheaf_tree::launch::{self, Carrier, Content, Desk, Program, Srun, Ssh, Starter};
use sheaf_tree::link::Listen;
use sheaf_tree::service::Services;
use sheaf_tree::topology::Topology;
use sheaf_tree::{Network, Tuning};
use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

mod causes;
pub mod daemon;
pub mod deadline;
pub mod tokens;
pub mod wire;

/// How long servers of this process have, once its session is over, to undo what is half done.
pub const UNDO_TIME: Duration = Duration::from_millis(200);

/// A command's session with what it was made from.
pub struct Connected {
    pub session: Session,
    pub topology: Topology,
    /// Where hosts that come by themselves are taken in, if any are.
    pub desk: Option<Arc<Desk>>,
    /// The tree was started for this command.
    own: bool,
}

/// A command before its tree runs: addresses can be resolved, nothing has been started.
pub struct Opening {
    pub config: Config,
    pub output: Output,
    runtime: tokio::runtime::Runtime,
    joined: Option<Connected>,
}

impl Opening {
    /// Reads the configuration and joins the running session that is meant, if there is one: its
    /// hosts are then the cluster's.
    pub fn new(global: &GlobalArgs) -> Result<Self> {
        let (config, output) = (Config::load_to_join(global)?, Output::new(global));
        output.note(config.note.as_deref())?;
        let runtime = runtime()?;
        let joined = runtime.block_on(async { daemon::join(&config) })?;
        Ok(Self { config, output, runtime, joined })
    }

    /// Whether a running session was joined, so that no tree has to be started.
    pub fn is_joined(&self) -> bool {
        self.joined.is_some()
    }

    /// Runs `act` in the session that was joined, or in one of its own that ends with it.
    ///
    /// Ctrl-C (or a request to end) once lets every operation end with what it has; twice ends
    /// the program. Servers notice the end of their session by themselves.
    pub fn run<T>(self, act: impl AsyncFnOnce(&Connected, &Config, &Output) -> Result<T>) -> Result<T> {
        let Self { config, output, runtime, joined } = self;
        let servers = servers();
        let result = runtime.block_on(async {
            // Before the first process starts, so that none is left behind at any moment.
            let signals = Signals::listen()?;
            let connected = match joined {
                Some(joined) => joined,
                None => connect(&config, 0, None, &servers).await?,
            };
            let interrupts = tokio::spawn(signals.heed(connected.session.clone()));
            let result = act(&connected, &config, &output).await;
            connected.end(&config).await;
            interrupts.abort();
            result
        });
        runtime.shutdown_background();
        // A file operation that hangs must not keep the command.
        servers.settle(UNDO_TIME / 2);
        result
    }
}

impl Connected {
    /// Ends the tree, if it is this command's own; a session that was joined goes on.
    async fn end(&self, config: &Config) {
        if !self.own {
            return;
        }
        let ended = self.session.network().clone().shutdown();
        match config.deadline {
            // Processes that take longer end by themselves.
            Some(deadline) => {
                drop(tokio::time::timeout_at((deadline + deadline::END_TIME).into(), ended).await)
            }
            None => ended.await,
        }
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
        Stop::unreachable(format!("{error}; ulimit -n says how many descriptors there may be")).into()
    })
}

/// Starts the tree. `depth`: levels that are to come above it.
/// `tokens`: where those go that hosts need to come by themselves. `servers`: those of this process, if it
/// is to have any.
pub async fn connect(
    config: &Config,
    depth: u32,
    tokens: Option<&TokenFile>,
    servers: &Serving,
) -> Result<Connected> {
    let topology = config.topology()?.clone();
    let (network, desk) = start(config, &topology, depth, tokens, servers).await?;
    Ok(Connected {
        session: Session::new(network, topology.leaf_hosts(), limits(config))?,
        topology,
        desk: desk.map(Arc::new),
        own: true,
    })
}

async fn start(
    config: &Config,
    topology: &Topology,
    depth: u32,
    tokens: Option<&TokenFile>,
    servers: &Serving,
) -> Result<(Network, Option<Desk>)> {
    let options = launch::Options {
        tuning: tuning(config),
        configs: sheaf_group::service_config(&config.cluster.export.value, Some(crate::mode::umask())),
        depth,
    };
    let services = servers.services();
    raise_descriptor_limit();
    let (network, desk) = match config.launch() {
        Launch::Embedded => {
            return Ok((launch::embedded(topology, &services, &options), None));
        }
        Launch::Processes => {
            let mut program = program(config)?;
            program.sudo = config.cluster.sudo.is_some();
            let network = launch::processes(topology, &services, &options, &program).await?;
            return Ok((network, None));
        }
        Launch::Ssh => {
            let mut program = other_hosts(config)?;
            program.starter = Starter::Ssh(ssh(config)?);
            program.sudo = config.cluster.sudo.is_some();
            launch::over_ssh(topology, &services, &options, &program, listen(config)).await?
        }
        Launch::Slurm => slurm(config, topology, &services, &options).await?,
        // A session that ends with its command is over before anybody comes.
        Launch::Attach if depth == 0 => {
            let text = format!("cluster {}: start its session first: sheaf up", config.cluster.name.value);
            return Err(Stop::unreachable(text).into());
        }
        Launch::Attach => {
            let (at, patience) = (listen(config), start_timeout(config));
            let program = other_hosts(config)?;
            launch::attached(topology, &services, &options, &program, at, patience).await?
        }
    };
    if let Some(tokens) = tokens {
        tokens.write(&desk, topology)?;
    }
    Ok((network, Some(desk)))
}

/// This program again, as a server or inner node.
pub fn program(config: &Config) -> Result<Program> {
    let carrier = match config.link() {
        Some(Link::Tcp) => Carrier::Tcp,
        Some(Link::Tls) => Carrier::Tls,
        Some(Link::Unix) | None => Carrier::Unix,
    };
    let path = std::env::current_exe().context("cannot find this program")?;
    let mut program = Program::new(path, vec!["serve".to_owned()]);
    program.carrier = carrier;
    Ok(program)
}

/// One `srun` with a server on every node.
async fn slurm(
    config: &Config,
    topology: &Topology,
    services: &Services,
    options: &launch::Options,
) -> Result<(Network, Desk)> {
    let command = config.cluster.srun.as_ref().map_or("srun", |srun| &srun.value);
    let command = command.split_whitespace().map(ToOwned::to_owned).collect();
    let program = other_hosts(config)?;
    let srun = Srun { command, program: program.path.clone() };
    let at = listen(config);
    let name = if at.ip().is_unspecified() { crate::config::own_name() } else { at.ip().to_string() };
    // What the job waits for is told before the command's time is over, and instead of that.
    let left = config.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()) * 9 / 10);
    let patience = left.map_or(start_timeout(config), |left| left.min(start_timeout(config)));
    let program = (&program, &srun);
    Ok(launch::slurm(topology, services, options, program, (at, &name), patience).await?)
}

fn start_timeout(config: &Config) -> Duration {
    Duration::from_millis(config.tuning.start_timeout_ms.value)
}

/// This program for nodes on other hosts: only TLS leads there.
fn other_hosts(config: &Config) -> Result<Program> {
    let mut program = program(config)?;
    program.carrier = Carrier::Tls;
    program.listen = Listen::Address(listen(config).ip());
    Ok(program)
}

/// Where tokens go, for hosts that come by themselves.
pub struct TokenFile {
    pub path: PathBuf,
    /// How often the one token may be used; `None` for one token for each host.
    pub uses: Option<u32>,
}

impl TokenFile {
    fn write(&self, desk: &Desk, topology: &Topology) -> Result<()> {
        let mut text = String::new();
        match self.uses {
            Some(uses) => text = format!("{}\n", desk.issue(uses)?),
            None => {
                for _ in 0..hosts_of(topology) {
                    text += &format!("{}\n", desk.issue(1)?);
                }
            }
        }
        crate::cmd::token::write_secret(&self.path, &text)
    }
}

/// How many hosts a tree has beside the root's.
fn hosts_of(topology: &Topology) -> usize {
    let hosts: HashSet<String> = topology.nodes().skip(1).map(|node| node.host()).collect();
    hosts.len()
}

/// Where other hosts come to: at every address and a port of the system's choice, if it is not said.
fn listen(config: &Config) -> SocketAddr {
    let anywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    config.cluster.listen.as_ref().map_or(anywhere, |listen| listen.value)
}

/// How the configuration wants hosts to be logged in to.
fn ssh(config: &Config) -> Result<Ssh> {
    let content = Content::of_this_program().context("cannot read this program")?;
    let settings = &config.tuning;
    let milliseconds = |setting: &Sourced<u64>| Duration::from_millis(setting.value);
    let mut ssh = Ssh::new(content);
    if let Some(command) = &config.cluster.ssh {
        ssh.command = command.value.split_whitespace().map(ToOwned::to_owned).collect();
    }
    if let Some(user) = &config.cluster.user {
        // Of an option that is given twice, ssh takes the first.
        let is_ssh = |word: &String| Path::new(word).file_name().is_some_and(|name| name == "ssh");
        let at = ssh.command.iter().position(is_ssh).map_or(ssh.command.len(), |at| at + 1);
        ssh.command.splice(at..at, ["-l".to_owned(), user.value.clone()]);
    }
    ssh.connect_timeout = milliseconds(&settings.ssh_connect_timeout_ms);
    ssh.login_timeout = milliseconds(&settings.ssh_login_timeout_ms);
    // The bounds of both settings are far below.
    ssh.retries = u32::try_from(settings.ssh_retries.value).unwrap_or(u32::MAX);
    ssh.starts_max = u32::try_from(settings.ssh_starts_max.value).unwrap_or(u32::MAX);
    ssh.relaunch = Some(milliseconds(&settings.relaunch_ms)).filter(|pause| !pause.is_zero());
    Ok(ssh)
}

/// The filters that every node of a session knows.
pub fn registry() -> Registry {
    #[cfg(feature = "wasm")]
    sheaf_tree::filter::use_engine(&sheaf_wasm::ENGINE);
    let mut registry = Registry::with_builtins();
    sheaf_group::aggregate::register(&mut registry);
    registry
}

/// What the nodes of this program do.
pub struct Serving(Servers);

impl Serving {
    /// By name, with their filters.
    pub fn services(&self) -> Services {
        self.0.register(Services::new(registry()).with(PROBE, probe::provide))
    }

    /// [`Servers::settle`].
    pub fn settle(&self, patience: Duration) {
        self.0.settle(patience);
    }
}

/// What the nodes of this program do: group operations, tools, probes.
pub fn servers() -> Serving {
    Serving(Servers::new(sheaf_tools::tools()))
}

/// How long those below a node that is lost may take to find another parent once they notice; they and
/// the node above may notice two heartbeats apart. Whoever asks meanwhile waits for it.
const SEARCH_TIME: Duration = Duration::from_millis(800);

fn tuning(config: &Config) -> Tuning {
    let settings = &config.tuning;
    let interval = Duration::from_millis(settings.heartbeat_ms.value);
    let timeout = interval * u32::try_from(settings.heartbeats_lost_max.value).unwrap_or(u32::MAX);
    // Whoever will not wait long for an answer will not wait longer for a stopped host to be given
    // up: until then it holds back whatever is sent to all.
    let patience = (config.timeout.value / 2).max(Duration::from_secs(1));
    let heartbeat_timeout = timeout.min(patience);
    let heartbeat_interval = interval.min(heartbeat_timeout / 4);
    Tuning {
        heartbeat_interval,
        heartbeat_timeout,
        adoption_grace: (heartbeat_interval * 2 + SEARCH_TIME).min(Tuning::default().adoption_grace),
        window_bytes: u32::try_from(settings.window_bytes.value).unwrap_or(u32::MAX),
        ..Tuning::default()
    }
}

pub fn limits(config: &Config) -> Limits {
    Limits::default()
        .with_timeout(config.timeout.value)
        .with_bytes_max(config.tuning.concatenate_bytes_max.value)
        .with_deadline(config.deadline)
}

/// Many servers in one process hold many files open, and a root many links.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Where it cannot be raised, opening says so when it comes to that.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Signals that follow each other so soon are one: who ends a group of processes may signal each of them
/// for itself and in the group, and the report of what was done until then must not be lost by that.
const ONE_SIGNAL: Duration = Duration::from_millis(250);

/// The signals that ask a command to end.
struct Signals(Vec<tokio::signal::unix::Signal>);

impl Signals {
    fn listen() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        Ok(Self(
            kinds.into_iter().map(signal).collect::<Result<_, _>>().context("cannot listen for signals")?,
        ))
    }

    /// Ends the operations of `session` at the first signal, the program at the second.
    async fn heed(mut self, session: Session) {
        self.heard().await;
        let first = Instant::now();
        session.interrupt();
        while first.elapsed() < ONE_SIGNAL {
            self.heard().await;
        }
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

/// What there is to say of failures, whatever the command.
const HINTS: [(Errno, &str); 1] = [(Errno::AGAIN, "it is a pipe or a device, which is not waited for")];

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
pub fn finish(connected: &Connected, config: &Config, output: &Output, ended: &Ended<'_>) -> Result<Exit> {
    let report = report(connected, config, ended);
    Ok(output.finish(&report, config.hosts()?)?)
}

/// The report of an outcome, with what the tree knows of the hosts that were lost.
pub fn report(connected: &Connected, config: &Config, ended: &Ended<'_>) -> Report {
    let Ended {
        targets, outcome, extra, failed_here, lost_here, incomplete, unmatched, hushed, hints, ..
    } = *ended;
    let changes = ended.changes.clone();
    let mut outcome = outcome.clone();
    outcome.count_once();
    let mut asked = RangeSet::new();
    targets.iter().for_each(|target| asked.union_with(&target.members));
    let interrupted = connected.session.is_interrupted();
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
    let hint = |errno: Errno| {
        hints.iter().chain(&HINTS).find(|(of, _)| *of == errno).map(|(_, text)| (*text).to_owned())
    };
    for error in &outcome.errors {
        report.failures.push(Failure::of(error, hint(error.errno)));
    }
    for (errno, leaves) in &outcome.failed {
        // Of a host that failed as a whole it is at least known what it was asked for.
        let theirs = targets.iter().filter(|target| !target.members.is_disjoint(leaves));
        let mut paths: Vec<&str> = theirs.map(|target| target.path.as_str()).collect();
        paths.dedup();
        let path = if let [path] = paths[..] { path.to_owned() } else { String::new() };
        let detail = match *errno {
            Errno::AGAIN => Some(format!(
                "its server has no thread for it: {THREADS_MAX} hang, or the system gives it none (ulimit -u)"
            )),
            errno => hint(errno),
        };
        report.failures.push(Failure::new(leaves.clone(), path, *errno, detail));
    }
    report.failures.extend(extra.iter().cloned());
    let notices = connected.session.network().notices();
    for (errno, leaves) in &outcome.silent {
        causes::add(&mut report, *errno, leaves, &notices, connected, config.timeout.value);
    }
    report.tell_unfinished();
    report
}
