//! What a session was started with, against what the file says now: whoever has edited it must not
//! work on files of the old settings without a word.
use crate::config::{Cluster, Config, Hosts, Launch, Origin};
use crate::error::SessionError;
use crate::session::Session;
use crate::wire::{SessionInfo, StartSettings};
use sheaf_core::hostset::HostSet;

/// Hosts longer than this are told by their number.
const HOSTS_CHARS_MAX: usize = 60;

/// What of the settings of a session decides which files a command means.
pub fn of_start(config: &Config) -> Result<StartSettings, SessionError> {
    let Cluster { hosts, launch, export, .. } = &config.cluster;
    let said = config.section().map_or(hosts, |section| &section.hosts);
    Ok(StartSettings {
        export: served(&export.value, launch.value),
        hosts: said.value.clone(),
        chosen: config.says_hosts(),
        left_out: config.left_out()?,
        login: login(&config.cluster).to_owned(),
    })
}

/// The export as it is from wherever a command is run.
fn served(export: &str, launch: Launch) -> String {
    let is_here = matches!(launch, Launch::Embedded | Launch::Processes);
    let absolute = is_here.then(|| std::path::absolute(export).ok()).flatten();
    absolute.and_then(|path| path.into_os_string().into_string().ok()).unwrap_or(export.to_owned())
}

/// What logs in to the hosts.
fn login(cluster: &Cluster) -> &str {
    let (program, default) = match cluster.launch.value {
        Launch::Ssh => (&cluster.ssh, "ssh"),
        Launch::Slurm => (&cluster.srun, "srun"),
        Launch::Embedded | Launch::Processes | Launch::Attach => return "",
    };
    program.as_ref().map_or(default, |program| &program.value)
}

impl Session {
    /// That this session was started with other settings than the file has by which it was joined,
    /// in a line that says which, and what to do; `None` where they are the same, and where the
    /// session was named and not a cluster of a file.
    #[must_use]
    pub fn other_settings(&self) -> Option<String> {
        self.other_settings_than(&self.config)
    }

    /// The same of the file by which whoever does not name this session would join it.
    #[must_use]
    pub fn other_settings_than(&self, file: &Config) -> Option<String> {
        let (about, section) = (self.about()?, file.section()?);
        let differences = differences(&self.config, section, about);
        if differences.is_empty() {
            return None;
        }
        let (name, differences) = (self.name(), differences.join("; "));
        let start = match &section.name {
            cluster if cluster.origin == Origin::Option("--cluster") => {
                format!("sheaf up {}", cluster.value)
            }
            _ => "sheaf up".to_owned(),
        };
        Some(format!(
            "session {name} was started with other settings ({differences}): `sheaf down {name}` \
             and `{start}` to use the new ones, --session {name} to use the old"
        ))
    }
}

/// What the session has, and what the file says instead.
fn differences(config: &Config, section: &Cluster, about: &SessionInfo) -> Vec<String> {
    let told = |what: &str, had: &str, origin: &Origin, now: &str| match origin {
        Origin::Default => format!("{what} {had}, without a word in the file {now}"),
        origin => format!("{what} {had}, {origin} says {now}"),
    };
    let (mut all, launch, was) = (Vec::new(), &section.launch, &about.settings);
    let has_launch = about.launch == launch.value.to_string();
    let now = served(&section.export.value, launch.value);
    if was.export != now {
        all.push(told("export", &was.export, &section.export.origin, &now));
    }
    if !has_launch {
        all.push(told("launch", &about.launch, &launch.origin, &launch.value.to_string()));
    } else if was.login != login(section) {
        let program = section.ssh.as_ref().filter(|_| launch.value == Launch::Ssh);
        let origin = program.or(section.srun.as_ref()).map_or(&Origin::Default, |it| &it.origin);
        let what = if launch.value == Launch::Ssh { "ssh" } else { "srun" };
        all.push(told(what, &was.login, origin, login(section)));
    }
    if let Some((had, now)) = other_hosts(config, section, was) {
        all.push(told("hosts", &had, &section.hosts.origin, &now));
    }
    all
}

/// The hosts of the session and those of the file, where they are others.
fn other_hosts(
    config: &Config,
    section: &Cluster,
    was: &StartSettings,
) -> Option<(String, String)> {
    let said = &section.hosts.value;
    let is_source = ["@command:", "@slurm"].iter().any(|source| said.starts_with(source));
    // The same words are the same hosts, but for those of groups and files. What a command or a
    // job would say now is not asked for.
    if *said == was.hosts && (is_source || !said.contains('@')) {
        return None;
    }
    let now = match config.hosts_of(section) {
        Ok(now) => now,
        // As where the file names those of a job, and this is none of its hosts. That they are the
        // same cannot be said of other words.
        Err(error) if *said != was.hosts => {
            return Some((
                was.hosts.clone(),
                format!("{said}, which cannot be found out: {error}"),
            ));
        }
        Err(error) => {
            tracing::debug!("the hosts of the file cannot be compared with the session's: {error}");
            return None;
        }
    };
    let had = match config.hosts() {
        Ok(had) => had,
        Err(error) => {
            return Some((format!("that cannot be found out ({error})"), said.clone()));
        }
    };
    // Where that cannot be read, more hosts count as missing, and changes are refused.
    let left_out = HostSet::parse(&was.left_out).unwrap_or_default();
    let is_kept = |name: &String| had.leaf(name).is_some() || left_out.contains(name);
    let is_known = |name: &String| now.leaf(name).is_some();
    let is_same = had.names().iter().all(is_known)
        // Of hosts that were chosen as it was started no more can be said.
        && (was.chosen || now.names().iter().all(is_kept));
    (!is_same).then(|| (shown(had), shown(&now)))
}

fn shown(hosts: &Hosts) -> String {
    let folded = hosts.everyone();
    if folded.len() <= HOSTS_CHARS_MAX { folded } else { format!("{} of them", hosts.len()) }
}
