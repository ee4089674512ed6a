//! `sheaf.toml` read: every key known, every value checked, every problem with its line.
use super::choose::check_export;
use super::{
    Cluster, EXPORT_DEFAULT, FILE_NAME, Launch, LinkChoice, Origin, SETTINGS, Settings, Sourced,
    TREE_DEFAULT, nearest,
};
use crate::audit::AuditMode;
use crate::awaited::LocalWait;
use crate::clients::{ClientSettings, ClientsMay};
use crate::environment::Environment;
use crate::error::SessionError;
use crate::trust::{self, NotTrusted};
use crate::trusted::Trusted;
use crate::users::Users;
use sheaf_tree::launch::is_path_of_hosts;
use sheaf_tree::link::Ports;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The largest file read as configuration.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// The most problems kept of one file.
const PROBLEMS_MAX: usize = 100;

const TOP_KEYS: [&str; 4] = ["cluster", "default", "groups", "tuning"];
const CLUSTER_KEYS: [&str; 17] = [
    "hosts",
    "launch",
    "tree",
    "export",
    "inner_hosts",
    "link",
    "listen",
    "ports",
    "program",
    "remote_dir",
    "ssh",
    "srun",
    "users",
    "clients",
    "clients_may",
    "clients_root",
    "audit",
];

/// What one file says. Without a file, nothing.
#[derive(Debug, Default)]
pub struct ConfigFile {
    /// Where it is; `None` when there is none.
    pub path: Option<Arc<Path>>,
    /// An option or the environment names it.
    pub(super) is_named: bool,
    /// It was found in the working directory.
    pub(super) is_here: bool,
    /// Why it does not count, though it was found.
    pub distrust: Option<String>,
    /// The cluster that is meant when none is chosen.
    pub default: Option<Sourced<String>>,
    /// The clusters by name.
    pub clusters: BTreeMap<String, ClusterSection>,
    /// Host sets by the names of groups.
    pub groups: BTreeMap<String, Sourced<String>>,
    /// Limits and intervals.
    pub tuning: Settings,
    /// What is wrong, by line.
    pub problems: Vec<Problem>,
}

/// One `[cluster.NAME]`.
#[derive(Debug)]
pub struct ClusterSection {
    /// Where it begins.
    pub origin: Origin,
    hosts: Option<Sourced<String>>,
    launch: Option<Sourced<Launch>>,
    tree: Option<Sourced<String>>,
    export: Option<Sourced<String>>,
    inner_hosts: Option<Sourced<String>>,
    link: Option<Sourced<LinkChoice>>,
    listen: Option<Sourced<SocketAddr>>,
    ports: Option<Sourced<Ports>>,
    program: Option<Sourced<String>>,
    remote_dir: Option<Sourced<String>>,
    ssh: Option<Sourced<String>>,
    srun: Option<Sourced<String>>,
    users: Option<Sourced<Users>>,
    client_settings: ClientSettings,
}

impl ClusterSection {
    /// Its hosts, as they are written.
    pub(super) fn hosts(&self) -> Option<&str> {
        self.hosts.as_ref().map(|hosts| hosts.value.as_str())
    }

    fn new(origin: Origin) -> Self {
        Self {
            origin,
            hosts: None,
            launch: None,
            tree: None,
            export: None,
            inner_hosts: None,
            link: None,
            listen: None,
            ports: None,
            program: None,
            remote_dir: None,
            ssh: None,
            srun: None,
            users: None,
            client_settings: ClientSettings::default(),
        }
    }

    /// The cluster this section describes, with defaults for what it leaves out. Hosts that are
    /// named are taken for other machines unless `launch` says that they are not.
    pub fn cluster(&self, name: Sourced<String>) -> Cluster {
        let or_default = |value: &Option<Sourced<String>>, default: &str| {
            value.clone().unwrap_or_else(|| Sourced::default(default.to_owned()))
        };
        Cluster {
            name,
            hosts: or_default(&self.hosts, ""),
            launch: self.launch.clone().unwrap_or(Sourced::default(Launch::Ssh)),
            tree: or_default(&self.tree, TREE_DEFAULT),
            export: or_default(&self.export, EXPORT_DEFAULT),
            inner_hosts: self.inner_hosts.clone(),
            link: self.link.clone(),
            listen: self.listen.clone(),
            ports: self.ports.clone(),
            program: self.program.clone(),
            remote_dir: self.remote_dir.clone(),
            ssh: self.ssh.clone(),
            srun: self.srun.clone(),
            users: self.users.clone(),
            client_settings: self.client_settings.clone(),
            user: None,
            sudo: None,
        }
    }
}

/// Something wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// In which.
    pub path: Arc<Path>,
    /// Counted from 1.
    pub line: usize,
    /// What it is, and what is likely meant.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.text)
    }
}

impl ConfigFile {
    /// The file in force: the one named, `$SHEAF_CONFIG`, or the first of the search path. A file
    /// that was named must exist. One in the working directory counts only in or below a trusted
    /// directory ([`Trusted`]).
    ///
    /// # Errors
    /// When it cannot be read, or is not to be trusted.
    pub fn find(named: Option<&Path>, environment: &Environment) -> Result<Self, SessionError> {
        let file = Self::find_to_check(named, environment)?;
        match file.distrust {
            Some(why) => Err(SessionError::Configuration(why)),
            None => Ok(file),
        }
    }

    /// [`ConfigFile::find`] for a caller that runs nothing: a file that does not count is read, too,
    /// with the reason in [`ConfigFile::distrust`].
    ///
    /// # Errors
    /// When it cannot be read, or another user could have written it.
    pub fn find_to_check(
        named: Option<&Path>,
        environment: &Environment,
    ) -> Result<Self, SessionError> {
        let variable = environment.path("SHEAF_CONFIG");
        if let Some(path) = named.map(Path::to_path_buf).or(variable) {
            return Self::read(&path, trust::open_named)
                .map(|file| Self { is_named: true, ..file })
                .map_err(|why| SessionError::Configuration(why.text(&path)));
        }
        for (path, variable) in super::search_path(environment) {
            match Self::read(&path, trust::open) {
                Ok(file) if variable.is_none() && path == Path::new(FILE_NAME) => {
                    let distrust = distrust(&path, environment)?;
                    return Ok(Self { is_here: true, distrust, ..file });
                }
                Ok(file) => return Ok(file),
                Err(why) if why.is_absence() => {}
                // A directory that does not exist any more has no file.
                Err(why) if why.is_stale() && path == Path::new(FILE_NAME) => {
                    tracing::warn!(
                        "the working directory does not exist any more (ESTALE): no {FILE_NAME} is read there"
                    );
                }
                Err(why) => {
                    let hint = match variable.filter(|_| why.is_denied()) {
                        Some(variable) => format!("; set {variable}, or name a file with --config"),
                        None => String::new(),
                    };
                    return Err(SessionError::Configuration(why.text(&path) + &hint));
                }
            }
        }
        Ok(Self::default())
    }

    fn read(
        path: &Path,
        open: fn(&Path) -> Result<std::fs::File, NotTrusted>,
    ) -> Result<Self, NotTrusted> {
        use std::io::{Error, ErrorKind, Read};
        let _awaited = LocalWait::file(path);
        let mut text = String::new();
        let read = open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
        if read as u64 > FILE_BYTES_MAX {
            let long =
                Error::new(ErrorKind::FileTooLarge, format!("more than {FILE_BYTES_MAX} bytes"));
            return Err(long.into());
        }
        Ok(Self::parse(path, &text))
    }

    /// Reads `text` as the content of `path`; what is wrong is in [`ConfigFile::problems`].
    pub fn parse(path: &Path, text: &str) -> Self {
        let path: Arc<Path> = path.into();
        let mut reader = ConfigReader { path: Arc::clone(&path), text, problems: Vec::new() };
        let mut file = Self { path: Some(path), ..Self::default() };
        match DeTable::parse(text) {
            Ok(table) => reader.top(table.get_ref(), &mut file),
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                let message = error.message().lines().collect::<Vec<_>>().join(", ");
                reader.problem(at, format!("not TOML: {message}"));
            }
        }
        file.problems = reader.problems;
        file.problems.sort_by_key(|problem| problem.line);
        file
    }

    /// Fails with the first problem, and says how many more there are.
    ///
    /// # Errors
    /// The first problem.
    pub fn check(&self) -> Result<(), SessionError> {
        let Some(first) = self.problems.first() else { return Ok(()) };
        let more = match self.problems.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more: sheaf config check)"),
        };
        Err(SessionError::Configuration(format!("{first}{more}")))
    }

    /// Whether there are several clusters and nothing says which of them is meant.
    pub fn is_unchosen(&self) -> bool {
        self.default.is_none() && self.clusters.len() > 1
    }

    /// The file without its clusters.
    pub(super) fn without_clusters(mut self) -> Self {
        self.clusters.clear();
        self
    }

    /// How messages call this file.
    pub fn name(&self) -> String {
        self.path.as_ref().map_or("no configuration".to_owned(), |path| path.display().to_string())
    }
}

/// Why the `sheaf.toml` of the working directory does not count; `None` where it does.
fn distrust(path: &Path, environment: &Environment) -> Result<Option<String>, SessionError> {
    let failed = |error| SessionError::file(path, error);
    let here = Path::new(".").canonicalize().map_err(failed)?;
    // In a directory of configuration it is the file that would be found anyway.
    let real = path.canonicalize().map_err(failed)?;
    let mut others = super::search_path(environment).into_iter().skip(1);
    if others
        .any(|(other, _)| other.is_absolute() && other.canonicalize().is_ok_and(|at| at == real))
    {
        return Ok(None);
    }
    let trusted = Trusted::read(environment)?;
    if trusted.covers(&here) {
        return Ok(distrust_of_way(path, &here, &real, &trusted));
    }
    Ok(Some(format!(
        "{}: its directory {} is not trusted, and the file can make you run commands: it is not \
         used; read it, then run: sheaf config trust; or name a file with --config",
        path.display(),
        here.display()
    )))
}

/// Why a `sheaf.toml` of a trusted directory does not count: another user could have put it there.
fn distrust_of_way(path: &Path, here: &Path, real: &Path, trusted: &Trusted) -> Option<String> {
    let place = real.parent().unwrap_or(real);
    if !trusted.covers(place) {
        return Some(format!(
            "{}: this link leads to {}, out of the trusted directories, and the file can make you \
             run commands: it is not used; read it, then run: sheaf config trust {}",
            path.display(),
            real.display(),
            place.display()
        ));
    }
    let checked = trust::check_way(here).and_then(|()| trust::check_way(place));
    checked.err().map(|why| why.text(here))
}

/// Walks the tables of one file and collects what is wrong with them.
struct ConfigReader<'a> {
    path: Arc<Path>,
    text: &'a str,
    problems: Vec<Problem>,
}

type TomlValue<'a> = Spanned<DeValue<'a>>;

impl ConfigReader<'_> {
    fn top(&mut self, table: &DeTable<'_>, file: &mut ConfigFile) {
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "cluster" => {
                    for (name, section) in self.table("cluster", value) {
                        let read = self.cluster(name.get_ref(), name.span().start, section);
                        file.clusters.insert(name.get_ref().to_string(), read);
                    }
                }
                "default" => file.default = self.string("default", value),
                "groups" => {
                    for (name, value) in self.table("groups", value) {
                        if name.get_ref() == "all" {
                            let text = "a group cannot be called all: @all stands for every host of the cluster";
                            self.problem(name.span().start, text.to_owned());
                        }
                        let nodes = self.string(name.get_ref(), value);
                        file.groups.extend(nodes.map(|nodes| (name.get_ref().to_string(), nodes)));
                    }
                }
                "tuning" => {
                    for (name, value) in self.table("tuning", value) {
                        self.setting(name.get_ref(), name.span().start, value, &mut file.tuning);
                    }
                }
                unknown => self.unknown(unknown, key.span().start, "", &TOP_KEYS),
            }
        }
        let missing = file.default.as_ref().filter(|name| !file.clusters.contains_key(&name.value));
        if let Some(Sourced { value, origin: Origin::File(_, line) }) = missing {
            let text = format!("default = {value:?}, but there is no [cluster.{value}]");
            self.problems.push(Problem { path: Arc::clone(&self.path), line: *line, text });
        }
    }

    fn cluster(&mut self, name: &str, at: usize, section: &TomlValue<'_>) -> ClusterSection {
        let origin = self.origin(at);
        let mut read = ClusterSection::new(origin);
        let before = self.problems.len();
        for (key, value) in self.table(&format!("cluster.{name}"), section) {
            match key.get_ref().as_ref() {
                "hosts" => read.hosts = self.string("hosts", value),
                "launch" => read.launch = self.launch(value),
                "tree" => read.tree = self.string("tree", value),
                "export" => read.export = self.export(value),
                "inner_hosts" => read.inner_hosts = self.string("inner_hosts", value),
                "link" => read.link = self.link(value),
                "listen" => read.listen = self.address("listen", value),
                "ports" => read.ports = self.ports(value),
                "program" => read.program = self.path_of_hosts("program", value),
                "remote_dir" => read.remote_dir = self.path_of_hosts("remote_dir", value),
                "ssh" => read.ssh = self.string("ssh", value),
                "srun" => read.srun = self.string("srun", value),
                "users" => read.users = self.users(value),
                "clients" | "clients_may" | "clients_root" | "audit" => {
                    self.clients(key.get_ref(), value, &mut read.client_settings);
                }
                unknown => {
                    let section = format!(" in [cluster.{name}]");
                    self.unknown(unknown, key.span().start, &section, &CLUSTER_KEYS);
                }
            }
        }
        if read.hosts.is_none() && self.problems.len() == before {
            self.problem(at, format!("[cluster.{name}] says no hosts"));
        }
        read
    }

    fn export(&mut self, value: &TomlValue<'_>) -> Option<Sourced<String>> {
        let said = self.string("export", value)?;
        if let Err(why) = check_export(&said.value) {
            self.problem(value.span().start, format!("export = {:?}: {why}", said.value));
            return None;
        }
        Some(said)
    }

    fn users(&mut self, value: &TomlValue<'_>) -> Option<Sourced<Users>> {
        let Sourced { value: said, origin } = self.string("users", value)?;
        match said.parse() {
            Ok(value) => Some(Sourced { value, origin }),
            Err(why) => {
                self.problem(value.span().start, format!("users = {said:?}: {why}"));
                None
            }
        }
    }

    fn clients(&mut self, key: &str, value: &TomlValue<'_>, settings: &mut ClientSettings) {
        match key {
            "clients" => settings.clients = self.string(key, value),
            "clients_may" => settings.clients_may = self.one_of(key, value, &ClientsMay::NAMES),
            "clients_root" => settings.clients_root = self.boolean(key, value),
            _ => settings.audit = self.one_of(key, value, &AuditMode::NAMES),
        }
    }

    fn boolean(&mut self, name: &str, value: &TomlValue<'_>) -> Option<Sourced<bool>> {
        let at = value.span().start;
        let said = value.get_ref().as_bool();
        if said.is_none() {
            self.problem(at, format!("{name} must be true or false"));
        }
        said.map(|value| Sourced { value, origin: self.origin(at) })
    }

    fn launch(&mut self, value: &TomlValue<'_>) -> Option<Sourced<Launch>> {
        self.one_of("launch", value, &Launch::NAMES)
    }

    fn link(&mut self, value: &TomlValue<'_>) -> Option<Sourced<LinkChoice>> {
        self.one_of("link", value, &LinkChoice::NAMES)
    }

    fn one_of<T: Copy>(
        &mut self,
        key: &str,
        value: &TomlValue<'_>,
        known: &[(&str, T)],
    ) -> Option<Sourced<T>> {
        let Sourced { value: name, origin } = self.string(key, value)?;
        let found = known.iter().find(|(known, _)| *known == name);
        if found.is_none() {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            let hint = match nearest(&name, names.iter().copied()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("there are {}", names.join(", ")),
            };
            self.problem(value.span().start, format!("{key} = {name:?} is not known; {hint}"));
        }
        found.map(|(_, value)| Sourced { value: *value, origin })
    }

    fn setting(&mut self, name: &str, at: usize, value: &TomlValue<'_>, tuning: &mut Settings) {
        let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
            let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
            return self.unknown(name, at, " in [tuning]", &names);
        };
        let number = value.get_ref().as_integer();
        let number =
            number.and_then(|number| u64::from_str_radix(number.as_str(), number.radix()).ok());
        let within = number.filter(|number| (setting.min..=setting.max).contains(number));
        match (within, tuning.get_mut(name)) {
            (Some(value), Some(slot)) => *slot = Sourced { value, origin: self.origin(at) },
            _ => {
                let text = format!(
                    "{name} must be a whole number from {} to {}",
                    setting.min, setting.max
                );
                self.problem(value.span().start, text);
            }
        }
    }

    /// The entries of a table; none, and a problem, when the value is something else.
    fn table<'t, 'i>(&mut self, name: &str, value: &'t TomlValue<'i>) -> Vec<TableEntry<'t, 'i>> {
        match value.get_ref().as_table() {
            Some(table) => table.iter().collect(),
            None => {
                self.problem(value.span().start, format!("{name} must be a table: [{name}…]"));
                Vec::new()
            }
        }
    }

    fn string(&mut self, name: &str, value: &TomlValue<'_>) -> Option<Sourced<String>> {
        let at = value.span().start;
        let text = value.get_ref().as_str().filter(|text| !text.trim().is_empty());
        if text.is_none() {
            self.problem(at, format!("{name} must be a text in quotes that is not empty"));
        }
        text.map(|text| Sourced { value: text.to_owned(), origin: self.origin(at) })
    }

    /// An address of this machine, with a port or without.
    fn address(&mut self, name: &str, value: &TomlValue<'_>) -> Option<Sourced<SocketAddr>> {
        let Sourced { value: text, origin } = self.string(name, value)?;
        let alone = || text.parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, 0));
        let address = text.parse().ok().or_else(alone);
        if address.is_none() {
            let text =
                format!("{name} = {text:?} is no address such as \"10.0.0.1\" or \"0.0.0.0:7440\"");
            self.problem(value.span().start, text);
        }
        address.map(|value| Sourced { value, origin })
    }

    /// Ports of this machine and of hosts.
    fn ports(&mut self, value: &TomlValue<'_>) -> Option<Sourced<Ports>> {
        let Sourced { value: text, origin } = self.string("ports", value)?;
        let ports = text.parse();
        if ports.is_err() {
            let text = format!("ports = {text:?} are no ports such as \"7440-7460\"");
            self.problem(value.span().start, text);
        }
        ports.ok().map(|value| Sourced { value, origin })
    }

    /// A path on hosts, as it can stand in a command there.
    fn path_of_hosts(&mut self, name: &str, value: &TomlValue<'_>) -> Option<Sourced<String>> {
        let said = self.string(name, value)?;
        if is_path_of_hosts(&said.value) {
            return Some(said);
        }
        let text = format!(
            "{name} = {:?} must be an absolute path of ASCII letters, digits and /._-+=@,",
            said.value
        );
        self.problem(value.span().start, text);
        None
    }

    fn unknown(&mut self, key: &str, at: usize, section: &str, known: &[&str]) {
        let hint = match nearest(key, known.iter().copied()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("there are {}", known.join(", ")),
        };
        self.problem(at, format!("unknown key {key:?}{section}; {hint}"));
    }

    fn problem(&mut self, at: usize, text: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Problem { path: Arc::clone(&self.path), line: self.line(at), text });
        }
    }

    fn origin(&self, at: usize) -> Origin {
        Origin::File(Arc::clone(&self.path), self.line(at))
    }

    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or(self.text.as_bytes());
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }
}

type TableEntry<'t, 'i> = (&'t Spanned<std::borrow::Cow<'i, str>>, &'t TomlValue<'i>);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn problems(text: &str) -> Vec<String> {
        ConfigFile::parse(Path::new("sheaf.toml"), text)
            .problems
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn full_file_is_read() {
        let text = "default = \"lab\"\n[cluster.lab]\nhosts = \"n[1-4]\"\nlaunch = \"processes\"\n\
                    [groups]\nweb = \"n[1-2]\"\n[tuning]\nheartbeat_ms = 500\n";
        let file = ConfigFile::parse(Path::new("sheaf.toml"), text);
        assert_eq!(file.problems, []);
        let lab = file.clusters["lab"].cluster(file.default.clone().unwrap());
        assert_eq!((lab.hosts.value.as_str(), lab.launch.value), ("n[1-4]", Launch::Processes));
        assert_eq!(lab.launch.origin.to_string(), "sheaf.toml:4");
        assert_eq!(file.groups["web"].value, "n[1-2]");
        assert_eq!(file.tuning.heartbeat_ms.value, 500);
        assert_eq!(file.tuning.heartbeat_ms.origin.to_string(), "sheaf.toml:8");
    }

    #[test]
    fn every_problem_is_named_with_its_line() {
        let text = "colour = 1\n[cluster.lab]\nhost = \"n1\"\nlaunch = \"shh\"\n[cluster.b]\ntree = 3\n\
                    [tuning]\nheartbeat_ms = 1\nheart = 5\n[cluster.c]\ntree = \"flat\"\n";
        insta::assert_snapshot!(problems(text).join("\n"), @r#"
        sheaf.toml:1: unknown key "colour"; there are cluster, default, groups, tuning
        sheaf.toml:3: unknown key "host" in [cluster.lab]; did you mean "hosts"?
        sheaf.toml:4: launch = "shh" is not known; did you mean "ssh"?
        sheaf.toml:6: tree must be a text in quotes that is not empty
        sheaf.toml:8: heartbeat_ms must be a whole number from 20 to 60000
        sheaf.toml:9: unknown key "heart" in [tuning]; there are timeout_ms, start_timeout_ms, heartbeat_ms, heartbeats_lost_max, window_bytes, concatenate_bytes_max, ssh_connect_timeout_ms, ssh_login_timeout_ms, ssh_retries, ssh_starts_max, relaunch_ms
        sheaf.toml:10: [cluster.c] says no hosts
        "#);
    }

    #[test]
    fn path_of_hosts_is_one_that_no_shell_changes() {
        let keys = |path: &str| {
            let text = "[cluster.a]\nhosts = \"n1\"\n";
            problems(&format!("{text}program = \"{path}\"\nremote_dir = \"{path}\"\n"))
        };
        assert_eq!(keys("/usr/bin/sheaf"), Vec::<String>::new());
        let told = keys("/a b");
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("sheaf.toml:3: program = \"/a b\" must be an absolute path"));
    }

    #[test]
    fn syntax_error_has_a_line() {
        insta::assert_snapshot!(problems("[cluster.lab]\nhosts = n1\n").join("\n"), @"sheaf.toml:2: not TOML: invalid float, expected `nan`");
        insta::assert_snapshot!(problems("default = \"x\"\n").join("\n"), @r#"sheaf.toml:1: default = "x", but there is no [cluster.x]"#);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in "[\\[\\]a-z=.\"\n0-9# ]{0,80}", any in ".{0,80}") {
            ConfigFile::parse(Path::new("x"), &text);
            ConfigFile::parse(Path::new("x"), &any);
        }
    }
}
