//! The configuration in force: what `sheaf.toml` says, what options change, and where each value
//! came from.
mod check;
mod choose;
mod file;
mod hosts;
mod launch;
mod link;
pub(crate) mod names;
mod near;
mod said;
mod selection;
mod source;
mod tree;
mod tuning;
mod words;

pub use file::{ClusterSection, ConfigFile};
pub(crate) use hosts::without_mark;
pub use hosts::{Hosts, own_name};
pub use launch::Launch;
pub use link::LinkChoice;
pub use names::user as user_name;
pub use near::{nearest, some_of};
pub use source::{Origin, Sourced};
pub use tuning::{SETTINGS, Settings};
pub(crate) use words::unbracketed;

use crate::choices::Choices;
use crate::clients::ClientSettings;
use crate::environment::Environment;
use crate::error::SessionError;
use crate::groups::GroupSources;
use crate::sessions::Sessions;
use crate::users::Users;
use choose::{EXPORT_DEFAULT, TREE_DEFAULT, choose};
use said::Said;
use selection::ClusterGroups;
use sheaf_core::RangeSet;
use sheaf_core::hostset::HostSet;
use sheaf_tree::link::Ports;
use sheaf_tree::topology::Topology;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a session can be called whose hosts are in no file.
const ATTACHED_NAME: &str = "pods";

/// One cluster, as it would be started.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Its name in the file, or what it was made up from.
    pub name: Sourced<String>,
    /// A host set, or one of `@file:`, `@command:`, `@slurm`; see [`Config::hosts`].
    pub hosts: Sourced<String>,
    /// How its servers are started.
    pub launch: Sourced<Launch>,
    /// The shape of its tree.
    pub tree: Sourced<String>,
    /// The directory that each server serves.
    pub export: Sourced<String>,
    /// Where inner nodes run, when not on hosts of their leaves.
    pub inner_hosts: Option<Sourced<String>>,
    /// What joins nodes, when it is said.
    pub link: Option<Sourced<LinkChoice>>,
    /// The address at which the root listens for other hosts.
    pub listen: Option<Sourced<SocketAddr>>,
    /// The ports at which nodes listen for others, when it is said.
    pub ports: Option<Sourced<Ports>>,
    /// Where the program is installed on hosts, which then are not sent it.
    pub program: Option<Sourced<String>>,
    /// Where hosts keep the program that they are sent, if they can.
    pub remote_dir: Option<Sourced<String>>,
    /// The client and its options, in place of `ssh`.
    pub ssh: Option<Sourced<String>>,
    /// The launcher and its options, in place of `srun`.
    pub srun: Option<Sourced<String>>,
    /// Who else may use a session whose servers run as root, when it is said.
    pub users: Option<Sourced<Users>>,
    /// The hosts of a session that have clients, and what these may do.
    pub client_settings: ClientSettings,
    /// Whom ssh logs in as, when it is said.
    pub user: Option<Sourced<String>>,
    /// Whether servers are started through `sudo`, when it is said.
    pub sudo: Option<Sourced<bool>>,
}

impl Cluster {
    /// Finds out what the hosts are: reads the file or runs the command that lists them.
    ///
    /// # Errors
    /// When they cannot be found out.
    pub fn find_hosts(
        &self,
        groups: &GroupSources,
        environment: &Environment,
    ) -> Result<Hosts, SessionError> {
        let groups = ClusterGroups::alone(groups);
        hosts::find(&self.hosts, &groups, environment).map_err(|text| {
            SessionError::Hosts(format!("{}: {}", self.whose_hosts(), groups.told(text)))
        })
    }

    /// How messages call what says the hosts.
    fn whose_hosts(&self) -> String {
        match self.hosts.origin {
            Origin::Option("--hosts") => "-w".to_owned(),
            _ => format!("hosts of cluster {}", self.name.value),
        }
    }

    /// The hosts for inner nodes, when they have some of their own.
    fn find_inner_hosts(
        &self,
        groups: &GroupSources,
        environment: &Environment,
    ) -> Result<Option<Hosts>, SessionError> {
        let Some(inner) = &self.inner_hosts else { return Ok(None) };
        let groups = ClusterGroups::alone(groups);
        hosts::find(inner, &groups, environment).map(Some).map_err(|text| {
            SessionError::Hosts(format!(
                "inner hosts of cluster {}: {}",
                self.name.value,
                groups.told(text)
            ))
        })
    }
}

/// Everything a command needs to know before it starts a tree.
#[derive(Debug)]
pub struct Config {
    /// The cluster that is meant.
    pub cluster: Cluster,
    /// Limits and intervals.
    pub tuning: Settings,
    /// Where groups of hosts are looked up.
    pub groups: GroupSources,
    /// The running session that was chosen by its name.
    pub session: Option<String>,
    /// How long a host may stay silent.
    pub timeout: Sourced<Duration>,
    /// When the command is to be over, if the user has said how long it may take.
    pub deadline: Option<Instant>,
    environment: Environment,
    topology: OnceLock<Topology>,
    hosts: OnceLock<Hosts>,
    /// A running session says what the tree is.
    is_joined: AtomicBool,
    /// What starts the session of the name that follows, where its cluster is not chosen.
    start_words: Option<&'static str>,
    /// Host sets that are left out.
    pub exclude_hosts: Vec<String>,
    /// What the names of hosts have to match, or must not.
    name_filters: Vec<words::NameFilter>,
    /// The hosts that are said are some of those that the cluster has in its file.
    selects: bool,
    /// The hosts that are said are in no file, as none has a cluster.
    says_free_hosts: bool,
    /// The cluster as its file has it, where the file says which session is meant.
    section: Option<Cluster>,
    /// The file that was named, where it has no cluster.
    silent_file: Option<String>,
    /// What the options mean that the user may not expect; whoever starts or joins a tree says it.
    pub note: Option<String>,
    /// That the file of the working directory is in force.
    pub announcement: Option<String>,
    /// Why nothing is to be changed on the hosts that are said.
    pub mixture: Option<String>,
    excluded: OnceLock<HostSet>,
    everyone: OnceLock<RangeSet>,
}

impl Config {
    /// Reads `sheaf.toml`, if there is one, and applies the options.
    ///
    /// # Errors
    /// When the file or the choices are wrong.
    pub fn load(choices: &Choices, environment: &Environment) -> Result<Self, SessionError> {
        Self::of_file(
            choices,
            environment,
            ConfigFile::find(choices.config.as_deref(), environment)?,
        )
    }

    /// [`Config::load`] for who joins a running session. Whoever names it need not choose a cluster
    /// of the file, too: the session is what it is.
    ///
    /// # Errors
    /// When the file or the choices are wrong.
    pub fn load_to_join(
        choices: &Choices,
        environment: &Environment,
    ) -> Result<Self, SessionError> {
        let file = ConfigFile::find(choices.config.as_deref(), environment)?;
        if choices.session.is_none() || choices.cluster.is_some() || !file.is_unchosen() {
            return Self::of_file(choices, environment, file);
        }
        let has_cluster =
            choices.session.as_ref().is_some_and(|name| file.clusters.contains_key(name));
        let mut config = Self::of_file(choices, environment, file.without_clusters())?;
        config.start_words =
            Some(if has_cluster { "sheaf up" } else { "sheaf up CLUSTER --session" });
        Ok(config)
    }

    /// What `file` says, with the choices applied.
    ///
    /// # Errors
    /// When either is wrong.
    pub fn of_file(
        choices: &Choices,
        environment: &Environment,
        mut file: ConfigFile,
    ) -> Result<Self, SessionError> {
        file.check()?;
        let (choices, name_filters) = &words::expand(choices, environment)?;
        let groups = GroupSources::new(std::mem::take(&mut file.groups), environment);
        let Said { cluster, selects, is_free, note, mixture } =
            choose(&file, &groups, choices, environment)?;
        let section = choose::section(&file, choices);
        let is_silent = file.is_named && file.clusters.is_empty() && choices.session.is_none();
        let silent_file = is_silent.then(|| file.name());
        let announcement =
            file.is_here.then(|| format!("configuration: ./{FILE_NAME}, in a trusted directory"));
        let tuning = file.tuning;
        let timeout = match choices.timeout {
            Some(timeout) => Sourced::option(timeout, "--timeout"),
            None => Sourced {
                value: Duration::from_millis(tuning.timeout_ms.value),
                origin: tuning.timeout_ms.origin.clone(),
            },
        };
        Ok(Self {
            cluster,
            tuning,
            groups,
            session: choices.session.clone(),
            timeout,
            deadline: choices.timeout.map(|timeout| Instant::now() + timeout),
            environment: environment.clone(),
            topology: OnceLock::new(),
            hosts: OnceLock::new(),
            is_joined: AtomicBool::new(false),
            start_words: None,
            exclude_hosts: choices.exclude_hosts.clone(),
            name_filters: name_filters.clone(),
            selects,
            says_free_hosts: is_free,
            section,
            silent_file,
            note,
            announcement,
            mixture,
            excluded: OnceLock::new(),
            everyone: OnceLock::new(),
        })
    }

    /// The tree: of the session that was joined, or else planned at the first call.
    ///
    /// # Errors
    /// When the hosts cannot be listed, or the tree cannot be planned.
    pub fn topology(&self) -> Result<&Topology, SessionError> {
        if let Some(topology) = self.topology.get() {
            return Ok(topology);
        }
        let planned = tree::plan(self)?;
        Ok(self.topology.get_or_init(|| planned))
    }

    /// The hosts by leaf, as the tree has them.
    ///
    /// # Errors
    /// As [`Config::topology`].
    pub fn hosts(&self) -> Result<&Hosts, SessionError> {
        if let Some(hosts) = self.hosts.get() {
            return Ok(hosts);
        }
        let names = self.topology()?.leaf_hosts();
        Ok(self.hosts.get_or_init(|| Hosts::new(names.iter().collect())))
    }

    /// The tree of a running session, which need not be that of the file any more.
    pub fn use_topology(&self, topology: &Topology) {
        self.is_joined.store(true, Ordering::Relaxed);
        // Only the first to say what the tree is is heard; a session is asked before anything.
        let _ = self.topology.set(topology.clone());
    }

    /// Whether a running session says what the tree is.
    fn is_joined(&self) -> bool {
        self.is_joined.load(Ordering::Relaxed)
    }

    /// The cluster as its file has it, where the file says which session is meant.
    pub(crate) fn section(&self) -> Option<&Cluster> {
        self.section.as_ref()
    }

    /// The hosts that the file gives a cluster.
    pub(crate) fn hosts_of(&self, section: &Cluster) -> Result<Hosts, SessionError> {
        section.find_hosts(&self.groups, &self.environment)
    }

    /// The hosts that the tree was planned without, folded.
    pub(crate) fn left_out(&self) -> Result<String, SessionError> {
        self.topology()?;
        Ok(self.excluded.get().map(ToString::to_string).unwrap_or_default())
    }

    /// The surroundings it was made in.
    #[must_use]
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Whether the cluster was made up on the command line, for this command alone.
    pub fn is_ad_hoc(&self) -> bool {
        let Cluster { hosts, launch, .. } = &self.cluster;
        let is_said = |origin: &Origin| matches!(origin, Origin::Option(_));
        is_said(&launch.origin) || (is_said(&hosts.origin) && !self.selects)
    }

    /// Whether options say the hosts, and where they are chosen among those of a cluster, what they serve.
    pub(crate) fn has_own_hosts(&self) -> bool {
        let Cluster { hosts, export, .. } = &self.cluster;
        let is_said = |origin: &Origin| matches!(origin, Origin::Option(_));
        is_said(&hosts.origin) && (!self.selects || is_said(&export.origin))
    }

    /// The option that says how servers are started, if there is one: it is of no use once they
    /// run.
    pub fn says_login(&self) -> Option<&'static str> {
        match (&self.cluster.user, &self.cluster.sudo) {
            (Some(_), _) => Some("--user"),
            (_, Some(_)) => Some("--sudo"),
            _ => None,
        }
    }

    /// The option that says what a session is to be, if there is one: a running one is what it is.
    /// Its hosts may be said, to choose among them.
    pub fn says_start(&self) -> Option<&'static str> {
        let Cluster { hosts, launch, tree, export, inner_hosts, link, .. } = &self.cluster;
        let origins = [&hosts.origin, &launch.origin, &tree.origin, &export.origin].into_iter();
        let origins = origins.chain(inner_hosts.iter().map(|value| &value.origin));
        let mut origins = origins.chain(link.iter().map(|value| &value.origin));
        origins.find_map(|origin| match origin {
            Origin::Option(option) if *option != "--hosts" => Some(*option),
            _ => None,
        })
    }

    /// Whether nothing says which hosts are meant: no option, no file, no session.
    pub(crate) fn says_no_hosts(&self) -> bool {
        let is_said = self.cluster.hosts.origin != Origin::Default;
        self.session.is_none() && !self.is_joined() && !is_said
    }

    /// That the file that was named says nothing of hosts, where nothing else does.
    pub fn silent_file(&self) -> Option<String> {
        let file = self.silent_file.as_ref()?;
        self.says_nothing().then(|| format!("{file} has no cluster"))
    }

    /// Whether nothing says which hosts a session is to have: no option, no file.
    pub fn says_nothing(&self) -> bool {
        self.cluster.hosts.origin == Origin::Default
    }

    /// Whether the cluster is this machine alone, with all its files, because nothing says
    /// otherwise: no option, no file, no session.
    pub fn is_this_machine(&self) -> bool {
        let Cluster { hosts, launch, export, .. } = &self.cluster;
        let origins = [&hosts.origin, &launch.origin, &export.origin];
        !self.is_joined() && origins.iter().all(|origin| **origin == Origin::Default)
    }

    /// Whether nothing says what the hosts are, so that they are this machine: how it is started may be
    /// said all the same.
    pub(crate) fn has_no_hosts(&self) -> bool {
        !self.is_joined() && self.cluster.hosts.origin == Origin::Default
    }

    /// The name of the session that is meant: the one that was chosen, or that of the cluster.
    #[must_use]
    pub fn session_name(&self) -> &str {
        self.session.as_deref().unwrap_or(&self.cluster.name.value)
    }

    /// The command that starts the session that is meant.
    pub(crate) fn start_words(&self) -> String {
        let name = self.session_name();
        let Cluster { hosts, launch, .. } = &self.cluster;
        match (self.start_words, &hosts.origin) {
            (Some(words), _) => format!("{words} {name}"),
            // Without any configuration it would be a session of this machine alone.
            (None, Origin::Default) if launch.origin == Origin::Default => {
                format!("sheaf up -w HOSTS --session {name}")
            }
            (None, Origin::Option("--hosts")) if !self.selects => {
                format!("sheaf up -w '{}' --session {name}", hosts.value)
            }
            _ => format!("sheaf up --session {name}"),
        }
    }

    /// The command that starts a session of the cluster that is meant.
    pub(crate) fn start_cluster_words(&self) -> String {
        let Cluster { name, hosts, launch, .. } = &self.cluster;
        let by = match launch.origin {
            Origin::Option(_) => format!(" --launch {}", launch.value),
            _ => String::new(),
        };
        match (&name.origin, self.says_hosts()) {
            (Origin::Option("--hosts"), _) => {
                format!("sheaf up{by} -w '{}' --session {ATTACHED_NAME}", hosts.value)
            }
            (_, true) => format!("sheaf up {}{by} -w '{}'", name.value, hosts.value),
            (_, false) => format!("sheaf up {}{by}", name.value),
        }
    }

    /// The sessions of whoever has this configuration.
    pub(crate) fn sessions(&self) -> Sessions {
        Sessions::of(&self.environment)
    }

    /// How to start the cluster.
    pub fn launch(&self) -> Launch {
        self.cluster.launch.value
    }

    /// What joins nodes, when it is said.
    pub fn link(&self) -> Option<LinkChoice> {
        self.cluster.link.as_ref().map(|link| link.value)
    }

    /// The hosts for inner nodes, when they have some of their own.
    ///
    /// # Errors
    /// When the hosts for inner nodes cannot be listed.
    pub fn inner_hosts(&self) -> Result<Option<Hosts>, SessionError> {
        self.cluster.find_inner_hosts(&self.groups, &self.environment)
    }

    /// The hosts of a set that a setting of this name gives.
    pub(crate) fn find_hosts_of(
        &self,
        said: &Sourced<String>,
        name: &str,
    ) -> Result<Hosts, SessionError> {
        let groups = ClusterGroups::alone(&self.groups);
        hosts::find(said, &groups, &self.environment).map_err(|text| {
            let cluster = &self.cluster.name.value;
            SessionError::Hosts(format!("{name} of cluster {cluster}: {}", groups.told(text)))
        })
    }

    /// Whether some hosts of the cluster were chosen, or left out.
    pub(crate) fn has_chosen_hosts(&self) -> bool {
        self.selects || !self.exclude_hosts.is_empty()
    }
}

/// The groups alone, for commands that need no cluster; all hosts are those of the cluster that is meant.
///
/// # Errors
/// When the file is wrong, or has no cluster of this name.
pub fn groups(
    config: Option<&Path>,
    groups_conf: Option<&Path>,
    cluster: Option<&str>,
    environment: &Environment,
) -> Result<GroupSources, SessionError> {
    let file = ConfigFile::find(config, environment)?;
    file.check()?;
    let choices = Choices { cluster: cluster.map(str::to_owned), ..Choices::default() };
    let meant = match cluster {
        Some(_) => choose::named(&file, &choices)?,
        // Of several none is meant, which only an address must have.
        None => choose::named(&file, &choices).unwrap_or_default(),
    };
    let everyone = meant.and_then(|(_, section)| section.hosts()).map(str::to_owned);
    let groups = GroupSources::new(file.groups, environment).with_file(groups_conf);
    Ok(groups.with_everyone(everyone.as_deref()))
}

/// The name of the file in the working directory.
const FILE_NAME: &str = "sheaf.toml";

/// The files `sheaf.toml` is looked for in, in this order, when no option names one; each with the
/// variable of the environment that leads there, if one does.
fn search_path(environment: &Environment) -> Vec<(PathBuf, Option<&'static str>)> {
    let mut path = vec![(PathBuf::from(FILE_NAME), None)];
    let home = environment
        .path("XDG_CONFIG_HOME")
        .map(|home| (home, Some("XDG_CONFIG_HOME")))
        .or_else(|| environment.path("HOME").map(|home| (home.join(".config"), Some("HOME"))));
    path.extend(home.map(|(home, variable)| (home.join("sheaf/sheaf.toml"), variable)));
    path.push((PathBuf::from("/etc/sheaf/sheaf.toml"), None));
    path
}
