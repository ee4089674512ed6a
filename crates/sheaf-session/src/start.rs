//! From a configuration to a running tree.
use crate::clients;
use crate::config::{Config, Launch, LinkChoice, Sourced, own_name};
use crate::error::SessionError;
use crate::gates;
use crate::session::Session;
use sheaf_group::{Client, Limits};
use sheaf_tree::launch::{self, Carrier, Desk, Program, ProgramContent, Srun, Ssh, Starter};
use sheaf_tree::link::Listen;
use sheaf_tree::service::{Configs, Services};
use sheaf_tree::topology::Topology;
use sheaf_tree::{Network, Tuning};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The program for nodes that are processes of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerProgram {
    path: PathBuf,
    arguments: Vec<String>,
    /// It is the one that runs now, whatever became of its file.
    is_running: bool,
}

impl ServerProgram {
    /// The one at this path, which serves when it is given these arguments.
    pub fn new<S: Into<String>>(
        path: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = S>,
    ) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Self { path: path.into(), arguments, is_running: false }
    }

    /// The program that runs now, which is at this path.
    pub fn of_this_process<S: Into<String>>(
        path: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = S>,
    ) -> Self {
        Self { is_running: true, ..Self::new(path, arguments) }
    }

    /// How the configuration reaches hosts: its ssh, and what it would send or start there.
    ///
    /// # Errors
    /// A client that cannot be run, or a program that cannot be read.
    pub fn ssh(&self, config: &Config) -> Result<Ssh, SessionError> {
        config.cluster.check_ssh(config.environment())?;
        Ok(ssh(config, self.content_on_hosts(config)?))
    }

    /// The program as hosts are sent it, or have it.
    fn content_on_hosts(&self, config: &Config) -> Result<ProgramContent, SessionError> {
        let said = |path: &Option<Sourced<String>>| path.as_ref().map(|path| path.value.clone());
        let content = self.content()?.installed_at(said(&config.cluster.program));
        Ok(content.kept_below(said(&config.cluster.remote_dir)))
    }

    /// What is sent to hosts that lack it.
    fn content(&self) -> Result<ProgramContent, SessionError> {
        if self.is_running {
            return ProgramContent::of_this_program()
                .map_err(SessionError::io("cannot read this program"));
        }
        ProgramContent::of_program(&self.path)
            .map_err(|error| SessionError::file(&self.path, error))
    }
}

/// How a session is started from a configuration: who serves at its leaves.
pub struct Start<'a> {
    /// What the nodes of this process do.
    pub services: &'a Services,
    /// What services beside those of [`services`](crate::services) are told, by their names.
    pub configs: Configs,
    /// The program for nodes that are processes of their own; none is needed where there are none.
    pub program: Option<ServerProgram>,
    /// The umask for files that servers make; without one they keep their own.
    pub umask: Option<u32>,
    /// Levels that are to come above the tree: 1 when clients are to join.
    pub depth: u32,
}

impl Start<'_> {
    /// Starts the session of the configuration.
    ///
    /// # Errors
    /// When it cannot be planned, or not be started. Hosts that do not come are none.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(&self, config: Config) -> Result<Session, SessionError> {
        let topology = config.topology()?.clone();
        let (cluster, hosts) = (&config.cluster, topology.leaves_len());
        tracing::info!(
            "cluster {}: starts {hosts} hosts, launch {}, tree {}",
            cluster.name.value,
            cluster.launch.value,
            cluster.tree.value
        );
        let begun = Instant::now();
        let (network, desk) = self.network(&config, &topology).await?;
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        tracing::debug!(
            "{} nodes are planned, and those below the root begun: {ms:.1} ms",
            topology.nodes_len()
        );
        let client = Client::new(network, topology.leaf_hosts(), limits(&config))?;
        let desk = desk.map(Arc::new);
        let (about, gate, is_guest) = (None, None, false);
        Ok(Session { client, config, topology, desk, about, gate, is_guest })
    }

    async fn network(
        &self,
        config: &Config,
        topology: &Topology,
    ) -> Result<(Network, Option<Desk>), SessionError> {
        let mut configs = sheaf_group::service_config(&config.cluster.export.value, self.umask);
        // Whoever is on a host of a session that stays can use it there.
        let is_here = matches!(config.launch(), Launch::Embedded | Launch::Processes);
        if self.depth > 0 {
            let audit = config.cluster.client_settings.audit();
            configs.extend(if is_here {
                gates::config_here(config.session_name(), audit)
            } else {
                clients::check(config)?;
                let users = config.cluster.users.as_ref().map(|users| &users.value);
                gates::config(config.session_name(), users, audit)
            });
        }
        #[cfg(feature = "full")]
        for service in [sheaf_mount::FILES, sheaf_log::served::TRACE_SERVICE] {
            configs.insert(service.to_owned(), config.cluster.export.value.clone().into_bytes());
        }
        configs.extend(self.configs.clone());
        let options = launch::Options { tuning: tuning(config), configs, depth: self.depth };
        raise_descriptor_limit();
        let (network, desk) = match config.launch() {
            Launch::Embedded => {
                return Ok((launch::embedded(topology, self.services, &options), None));
            }
            Launch::Processes => {
                let mut program = self.program(config)?;
                program.sudo = config.cluster.sudo.is_some();
                let network =
                    launch::processes(topology, self.services, &options, &program).await?;
                return Ok((network, None));
            }
            Launch::Ssh => {
                let mut program = self.other_hosts(config)?;
                program.starter = Starter::Ssh(self.server()?.ssh(config)?);
                program.sudo = config.cluster.sudo.is_some();
                launch::over_ssh(topology, self.services, &options, &program, listen(config))
                    .await?
            }
            Launch::Slurm => self.slurm(config, topology, &options).await?,
            // A session that ends with its command is over before anybody comes.
            Launch::Attach if self.depth == 0 => {
                let name = &config.cluster.name.value;
                let start = config.start_cluster_words();
                let text = format!(
                    "the hosts of cluster {name} come by themselves, to a session: start it \
                     first: {start} --tokens FILE"
                );
                return Err(SessionError::Absent(text));
            }
            Launch::Attach => {
                let (at, patience) = (listen(config), start_timeout(config));
                let program = self.other_hosts(config)?;
                launch::attached(topology, self.services, &options, &program, at, patience).await?
            }
        };
        Ok((network, Some(desk)))
    }

    fn server(&self) -> Result<&ServerProgram, SessionError> {
        self.program
            .as_ref()
            .ok_or_else(|| SessionError::Choice("no program is named that serves".to_owned()))
    }

    /// The program as a server or inner node of this machine.
    fn program(&self, config: &Config) -> Result<Program, SessionError> {
        let carrier = match config.link() {
            Some(LinkChoice::Tcp) => Carrier::Tcp,
            Some(LinkChoice::Tls) => Carrier::Tls,
            Some(LinkChoice::Unix | LinkChoice::Auto | LinkChoice::Ssh) | None => Carrier::Unix,
        };
        let ServerProgram { path, arguments, .. } = self.server()?.clone();
        let mut program = Program::new(path, arguments);
        program.carrier = carrier;
        program.ports = config.cluster.ports.as_ref().map(|ports| ports.value);
        Ok(program)
    }

    /// The program for nodes on other hosts: TLS leads there, or ssh does.
    fn other_hosts(&self, config: &Config) -> Result<Program, SessionError> {
        let mut program = self.program(config)?;
        program.carrier = match (config.launch(), config.link()) {
            (Launch::Ssh, Some(LinkChoice::Ssh)) => Carrier::Ssh,
            (Launch::Ssh, Some(LinkChoice::Auto) | None) => Carrier::Auto,
            _ => Carrier::Tls,
        };
        program.listen = Listen::Address(listen(config).ip());
        Ok(program)
    }

    /// One `srun` with a server on every node.
    async fn slurm(
        &self,
        config: &Config,
        topology: &Topology,
        options: &launch::Options,
    ) -> Result<(Network, Desk), SessionError> {
        config.cluster.check_srun(config.environment())?;
        let command = config.cluster.srun.as_ref().map_or("srun", |srun| &srun.value);
        let command = command.split_whitespace().map(ToOwned::to_owned).collect();
        let program = self.other_hosts(config)?;
        let srun = Srun { command, program: program.path.clone() };
        let at = listen(config);
        let name = match at.ip() {
            any if any.is_unspecified() => own_name(),
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        // What the job waits for is told before the command's time is over, and instead of that.
        let left = config
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()) * 9 / 10);
        let patience = left.map_or(start_timeout(config), |left| left.min(start_timeout(config)));
        let program = (&program, &srun);
        Ok(launch::slurm(topology, self.services, options, program, (at, &name), patience).await?)
    }
}

fn start_timeout(config: &Config) -> Duration {
    Duration::from_millis(config.tuning.start_timeout_ms.value)
}

/// Where other hosts come to: at every address and a port of the system's choice, if it is not
/// said.
fn listen(config: &Config) -> SocketAddr {
    config
        .cluster
        .listen
        .as_ref()
        .map_or_else(|| SocketAddr::new(sheaf_tree::link::anywhere(), 0), |listen| listen.value)
}

/// How the configuration wants hosts to be logged in to.
fn ssh(config: &Config, content: ProgramContent) -> Ssh {
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
    ssh
}

/// How long those below a node that is lost may take to find another parent once they notice; they
/// and the node above may notice two heartbeats apart. Whoever asks meanwhile waits for it.
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
        adoption_grace: (heartbeat_interval * 2 + SEARCH_TIME)
            .min(Tuning::default().adoption_grace),
        window_bytes: u32::try_from(settings.window_bytes.value).unwrap_or(u32::MAX),
        ..Tuning::default()
    }
}

/// The bounds of calls that the configuration asks for.
#[must_use]
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
