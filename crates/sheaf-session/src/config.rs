//! The configuration in force: what `sheaf.toml` says, what options change, and where each value
//! came from.
mod file;
mod hosts;
mod link;
pub(crate) mod names;
mod said;
mod selection;
mod tree;
mod tuning;

pub use file::{ClusterSection, File};
pub(crate) use hosts::without_mark;
pub use hosts::{Hosts, own_name};
pub use link::Link;
pub use names::user as user_name;
pub use tuning::{SETTINGS, Tuning};

use crate::choices::Choices;
use crate::environment::Environment;
use crate::error::SessionError;
use crate::groups::GroupSources;
use crate::sessions::Sessions;
use said::Said;
use selection::ClusterGroups;
use sheaf_core::RangeSet;
use sheaf_core::hostset::HostSet;
use sheaf_tree::topology::Topology;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How the processes of a cluster are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// Inside this process.
    Embedded,
    /// As processes of this machine.
    Processes,
    /// On other hosts, over ssh.
    Ssh,
    /// On the nodes of a job of Slurm.
    Slurm,
    /// By somebody else: hosts come by themselves.
    Attach,
}

impl Launch {
    /// Every way there is, by its name in `sheaf.toml`.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("embedded", Self::Embedded),
        ("processes", Self::Processes),
        ("ssh", Self::Ssh),
        ("slurm", Self::Slurm),
        ("attach", Self::Attach),
    ];
}

impl FromStr for Launch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        one_of(text, &Self::NAMES)
    }
}

/// What has this name, or which names there are.
fn one_of<T: Copy>(text: &str, known: &[(&str, T)]) -> Result<T, String> {
    let found = known.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        format!("there are {}", names.join(", "))
    })
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, launch)| launch == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody says it.
    Default,
    /// An option of the command line.
    Option(&'static str),
    /// A line of a file, counted from 1.
    File(Arc<Path>, usize),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Option(option) => f.write_str(option),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
        }
    }
}

/// A value that remembers where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it came from.
    pub origin: Origin,
}

impl<T> Sourced<T> {
    /// What holds where nothing is said.
    pub const fn default(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }

    fn option(value: T, option: &'static str) -> Self {
        Self { value, origin: Origin::Option(option) }
    }
}

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
    pub link: Option<Sourced<Link>>,
    /// The address at which the root listens for other hosts.
    pub listen: Option<Sourced<SocketAddr>>,
    /// The client and its options, in place of `ssh`.
    pub ssh: Option<Sourced<String>>,
    /// The launcher and its options, in place of `srun`.
    pub srun: Option<Sourced<String>>,
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
        hosts::find(&self.hosts, &groups, environment)
            .map_err(|text| SessionError::Hosts(format!("{}: {}", self.whose_hosts(), groups.told(text))))
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
            SessionError::Hosts(format!("inner hosts of cluster {}: {}", self.name.value, groups.told(text)))
        })
    }
}

/// Everything a command needs to know before it starts a tree.
#[derive(Debug)]
pub struct Config {
    /// The cluster that is meant.
    pub cluster: Cluster,
    /// Limits and intervals.
    pub tuning: Tuning,
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
    /// The hosts that are said are some of those that the cluster has in its file.
    selects: bool,
    /// What the options mean that the user may not expect; whoever starts or joins a tree says it.
    pub note: Option<String>,
    excluded: OnceLock<HostSet>,
    everyone: OnceLock<RangeSet>,
}

impl Config {
    /// Reads `sheaf.toml`, if there is one, and applies the options.
    ///
    /// # Errors
    /// When the file or the choices are wrong.
    pub fn load(choices: &Choices, environment: &Environment) -> Result<Self, SessionError> {
        Self::of_file(choices, environment, File::find(choices.config.as_deref(), environment)?)
    }

    /// [`Config::load`] for who joins a running session. Whoever names it need not choose a cluster of the
    /// file, too: the session is what it is.
    ///
    /// # Errors
    /// When the file or the choices are wrong.
    pub fn load_to_join(choices: &Choices, environment: &Environment) -> Result<Self, SessionError> {
        let file = File::find(choices.config.as_deref(), environment)?;
        if choices.session.is_none() || choices.cluster.is_some() || !file.is_unchosen() {
            return Self::of_file(choices, environment, file);
        }
        let has_cluster = choices.session.as_ref().is_some_and(|name| file.clusters.contains_key(name));
        let mut config = Self::of_file(choices, environment, file.without_clusters())?;
        config.start_words = Some(if has_cluster { "sheaf up" } else { "sheaf up CLUSTER --session" });
        Ok(config)
    }

    /// What `file` says, with the choices applied.
    ///
    /// # Errors
    /// When either is wrong.
    pub fn of_file(
        choices: &Choices,
        environment: &Environment,
        mut file: File,
    ) -> Result<Self, SessionError> {
        file.check()?;
        let groups = GroupSources::new(std::mem::take(&mut file.groups), environment);
        let Said { cluster, selects, note } = choose(&file, &groups, choices, environment)?;
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
            selects,
            note,
            excluded: OnceLock::new(),
            everyone: OnceLock::new(),
        })
    }

    /// The tree: of the session that was joined, or else planned at the first call.
    pub fn topology(&self) -> Result<&Topology, SessionError> {
        if let Some(topology) = self.topology.get() {
            return Ok(topology);
        }
        let planned = tree::plan(self)?;
        Ok(self.topology.get_or_init(|| planned))
    }

    /// The hosts by leaf, as the tree has them.
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

    /// The option that says how servers are started, if there is one: it is of no use once they run.
    pub fn says_login(&self) -> Option<&'static str> {
        match (&self.cluster.user, &self.cluster.sudo) {
            (Some(_), _) => Some("--user"),
            (_, Some(_)) => Some("--sudo"),
            _ => None,
        }
    }

    /// The option that says what a session is to be, if there is one: a running one is what it is. Its
    /// hosts may be said, to choose among them.
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

    /// Whether the cluster is this machine alone, with all its files, because nothing says otherwise:
    /// no option, no file, no session.
    pub fn is_this_machine(&self) -> bool {
        let Cluster { hosts, launch, export, .. } = &self.cluster;
        let origins = [&hosts.origin, &launch.origin, &export.origin];
        !self.is_joined() && origins.iter().all(|origin| **origin == Origin::Default)
    }

    /// The name of the session that is meant: the one that was chosen, or that of the cluster.
    #[must_use]
    pub fn session_name(&self) -> &str {
        self.session.as_deref().unwrap_or(&self.cluster.name.value)
    }

    /// The command that starts the session that is meant.
    pub(crate) fn start_words(&self) -> String {
        format!("{} {}", self.start_words.unwrap_or("sheaf up --session"), self.session_name())
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
    pub fn link(&self) -> Option<Link> {
        self.cluster.link.as_ref().map(|link| link.value)
    }

    /// The hosts for inner nodes, when they have some of their own.
    pub fn inner_hosts(&self) -> Result<Option<Hosts>, SessionError> {
        self.cluster.find_inner_hosts(&self.groups, &self.environment)
    }
}

/// The groups alone, for commands that need no cluster.
///
/// # Errors
/// When the file is wrong.
pub fn groups(
    config: Option<&Path>,
    groups_conf: Option<&Path>,
    environment: &Environment,
) -> Result<GroupSources, SessionError> {
    let file = File::find(config, environment)?;
    file.check()?;
    Ok(GroupSources::new(file.groups, environment).with_file(groups_conf))
}

/// The cluster the options and the file mean, with the options' changes.
fn choose(
    file: &File,
    groups: &GroupSources,
    choices: &Choices,
    environment: &Environment,
) -> Result<Said, SessionError> {
    let hosts = (!choices.on_hosts.is_empty()).then(|| choices.on_hosts.join(","));
    let made = |cluster| Said { cluster, selects: false, note: None };
    let mut said = match (choices.embedded, choices.processes, hosts) {
        (None, None, Some(hosts)) => said::find(file, &said::Around { groups, environment }, choices, hosts)?,
        (None, None, None) => made(match named(file, choices)? {
            Some((name, section)) => section.cluster(name),
            None => this_machine(),
        }),
        (_, _, hosts) if hosts.is_some() || choices.launch.is_some() => {
            let text = "--embedded N and --processes N say what the hosts are and how they are started: \
                        write --hosts HOSTSET --launch processes for hosts of other names";
            return Err(SessionError::Choice(text.to_owned()));
        }
        (Some(count), _, _) => made(numbered(count, Launch::Embedded, "--embedded")),
        (_, Some(count), _) => made(numbered(count, Launch::Processes, "--processes")),
    };
    let cluster = &mut said.cluster;
    if let Some(launch) = choices.launch {
        cluster.launch = Sourced::option(launch, "--launch");
    }
    if let Some(user) = &choices.user {
        cluster.user = Some(Sourced::option(user.clone(), "--user"));
    }
    if choices.sudo {
        cluster.sudo = Some(Sourced::option(true, "--sudo"));
    }
    if let Some(tree) = &choices.tree {
        cluster.tree = Sourced::option(tree.clone(), "--tree");
    }
    if let Some(export) = &choices.export {
        cluster.export = Sourced::option(export.clone(), "--export");
    }
    if let Some(hosts) = &choices.inner_hosts {
        cluster.inner_hosts = Some(Sourced::option(hosts.clone(), "--inner-hosts"));
    }
    if let Some(link) = choices.link {
        cluster.link = Some(Sourced::option(link, "--link"));
    }
    Ok(said)
}

/// The section of the file that is meant: by option, by the file's `default`, or as its only one.
fn named<'a>(
    file: &'a File,
    choices: &Choices,
) -> Result<Option<(Sourced<String>, &'a ClusterSection)>, SessionError> {
    let asked = match &choices.cluster {
        Some(name) => Some(Sourced::option(name.clone(), "--cluster")),
        None => file.default.clone(),
    };
    if let Some(name) = asked {
        return match file.clusters.get(&name.value) {
            Some(section) => Ok(Some((name, section))),
            None => Err(unknown_cluster(file, &name.value)),
        };
    }
    let mut sections = file.clusters.iter();
    match (sections.next(), sections.next()) {
        (None, _) => Ok(None),
        (Some((name, section)), None) => {
            Ok(Some((Sourced { value: name.clone(), origin: section.origin.clone() }, section)))
        }
        (Some((first, _)), Some(_)) => Err(SessionError::Cluster(format!(
            "{} has {} clusters ({}): choose one with --cluster, or by default = {first:?} in the file",
            file.name(),
            file.clusters.len(),
            some_of(file.clusters.keys())
        ))),
    }
}

fn unknown_cluster(file: &File, name: &str) -> SessionError {
    let Some(path) = &file.path else {
        return SessionError::Cluster(format!(
            "no cluster {name}: no sheaf.toml was found; see sheaf config --help"
        ));
    };
    let known = file.clusters.keys().map(String::as_str);
    SessionError::Cluster(match nearest(name, known) {
        Some(near) => format!("no cluster {name} in {}; did you mean {near}?", path.display()),
        None if file.clusters.is_empty() => format!("no cluster {name} in {}: it names none", path.display()),
        None => {
            let are = if file.clusters.len() == 1 { "is" } else { "are" };
            format!("no cluster {name} in {}; there {are} {}", path.display(), some_of(file.clusters.keys()))
        }
    })
}

/// The cluster of `--embedded N` and `--processes N`.
fn numbered(count: u32, launch: Launch, option: &'static str) -> Cluster {
    let hosts = if count == 1 { "n1".to_owned() } else { format!("n[1-{count}]") };
    Cluster { hosts: Sourced::option(hosts, option), ..ad_hoc(&launch.to_string(), launch, option) }
}

/// A cluster that no file names, without its hosts.
fn ad_hoc(name: &str, launch: Launch, option: &'static str) -> Cluster {
    Cluster {
        name: Sourced::option(name.to_owned(), option),
        hosts: Sourced::option(String::new(), option),
        launch: Sourced::option(launch, option),
        tree: Sourced::default(TREE_DEFAULT.to_owned()),
        export: Sourced::default(EXPORT_DEFAULT.to_owned()),
        inner_hosts: None,
        link: None,
        listen: None,
        ssh: None,
        srun: None,
        user: None,
        sudo: None,
    }
}

/// The cluster there is without any configuration.
fn this_machine() -> Cluster {
    Cluster {
        name: Sourced::default("local".to_owned()),
        hosts: Sourced::default(own_name()),
        launch: Sourced::default(Launch::Embedded),
        tree: Sourced::default(TREE_DEFAULT.to_owned()),
        export: Sourced::default(EXPORT_DEFAULT.to_owned()),
        inner_hosts: None,
        link: None,
        listen: None,
        ssh: None,
        srun: None,
        user: None,
        sudo: None,
    }
}

const TREE_DEFAULT: &str = "auto";
const EXPORT_DEFAULT: &str = "/";
/// The most names a message lists.
const NAMES_SHOWN_MAX: usize = 8;

/// Names in a message, of which there may be many.
pub fn some_of<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    let more = names.len().saturating_sub(NAMES_SHOWN_MAX);
    let shown: Vec<&str> = names.take(NAMES_SHOWN_MAX).map(String::as_str).collect();
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{tail}", shown.join(", "))
}

/// The known name that `name` was most likely meant to be, when one is close.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance_max = (name.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|candidate| (strsim::osa_distance(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= distance_max || is_plural(name, candidate))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn is_plural(a: &str, b: &str) -> bool {
    a.strip_suffix('s') == Some(b) || b.strip_suffix('s') == Some(a)
}

/// The files `sheaf.toml` is looked for in, in this order, when no option names one; each with the
/// variable of the environment that leads there, if one does.
fn search_path(environment: &Environment) -> Vec<(PathBuf, Option<&'static str>)> {
    let mut path = vec![(PathBuf::from("sheaf.toml"), None)];
    let home = environment
        .path("XDG_CONFIG_HOME")
        .map(|home| (home, Some("XDG_CONFIG_HOME")))
        .or_else(|| environment.path("HOME").map(|home| (home.join(".config"), Some("HOME"))));
    path.extend(home.map(|(home, variable)| (home.join("sheaf/sheaf.toml"), variable)));
    path.push((PathBuf::from("/etc/sheaf/sheaf.toml"), None));
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_close() {
        assert_eq!(nearest("host", ["hosts", "launch"]), Some("hosts"));
        assert_eq!(nearest("lunch", ["hosts", "launch"]), Some("launch"));
        assert_eq!(nearest("classs", ["classes", "lines"]), Some("classes"));
        assert_eq!(nearest("xyz", ["hosts", "launch"]), None);
    }

    #[test]
    fn options_make_clusters_of_their_own() {
        let choices = Choices { embedded: Some(4), tree: Some("flat".into()), ..Choices::default() };
        let (file, groups) = (File::default(), GroupSources::default());
        let cluster = choose(&file, &groups, &choices, &Environment::default()).unwrap().cluster;
        assert_eq!(cluster.hosts.value, "n[1-4]");
        assert_eq!(cluster.launch.value, Launch::Embedded);
        assert_eq!(cluster.tree, Sourced::option("flat".to_owned(), "--tree"));
        assert_eq!(cluster.export.origin, Origin::Default);
    }
}
