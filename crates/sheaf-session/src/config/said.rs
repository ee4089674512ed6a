//! What the hosts of `-w` are to the configuration: hosts of a cluster that it has, or hosts that
//! no file has to know, over ssh.
//!
//! Whoever has a default cluster means its hosts, by whatever way they are reached, when naming
//! some of them, and whoever has none but is on a host of a running session those of that: never
//! another file of the same path on the same machine, because ssh leads to its real `/`.
use super::choose::{EXPORT_DEFAULT, ad_hoc, named};
use super::hosts::{self, Hosts, fold};
use super::selection::{ClusterGroups, padded};
use super::{Cluster, Config, ConfigFile, Origin, Sourced};
use crate::choices::Choices;
use crate::config::Launch;
use crate::environment::Environment;
use crate::error::SessionError;
use crate::groups::GroupSources;
use sheaf_core::RangeSet;

/// The cluster that hosts of the command line belong to.
pub struct Said {
    pub cluster: Cluster,
    /// All of them are hosts that the cluster has in its file, and are chosen among those.
    pub selects: bool,
    /// No file has a cluster that they could belong to.
    pub is_free: bool,
    /// What the user may not expect.
    pub note: Option<String>,
    /// Why nothing may be changed: only some of the hosts are the cluster's, or they lie outside of
    /// a cluster with an export, which a path typed for the cluster would leave.
    pub mixture: Option<String>,
}

/// Where hosts are looked up.
pub struct Around<'a> {
    pub groups: &'a GroupSources,
    pub environment: &'a Environment,
}

/// The cluster of the hosts that `-w` says.
pub fn find(
    file: &ConfigFile,
    around: &Around<'_>,
    choices: &Choices,
    said: String,
) -> Result<Said, SessionError> {
    let said = Sourced::option(said, "--hosts");
    let outside = |note| {
        let cluster = Cluster { hosts: said.clone(), ..ad_hoc("ssh", Launch::Ssh, "--hosts") };
        Said { cluster, selects: false, is_free: false, note, mixture: None }
    };
    if choices.cluster.is_some() {
        return of_named(file, around, choices, &said);
    }
    // Whoever says how to start servers, or which session to ask, says that it is not the default.
    if choices.launch.is_some() || (choices.session.is_some() && !choices.begins) {
        return Ok(outside(None));
    }
    let has_default = file.default.is_some() || file.clusters.len() == 1;
    let Some((name, section)) = has_default.then(|| named(file, choices)).transpose()?.flatten()
    else {
        return Ok(Said { is_free: file.clusters.is_empty(), ..outside(None) });
    };
    let cluster = section.cluster(name);
    let known = cluster.find_hosts(around.groups, around.environment).map_err(|why| {
        let name = &cluster.name.value;
        SessionError::Hosts(format!(
            "{why}; --launch ssh reaches hosts over ssh, outside of cluster {name}"
        ))
    })?;
    let (meant, unknown) = compare(&said, &known, around)?;
    if unknown.is_empty() {
        return Ok(selected(cluster, &meant));
    }
    let near = padded(&unknown, &known, &RangeSet::full(known.len()));
    let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    let are = format!(
        "{} {} of cluster {}",
        fold(&unknown),
        if unknown.len() == 1 { "is no host" } else { "are no hosts" },
        cluster.name.value
    );
    let is_mixed = unknown.len() < meant.len();
    let all = if is_mixed { format!("all of {} ", fold(&meant)) } else { String::new() };
    // What is the whole of each host in the cluster, or said for this command, is no surprise.
    let export = match (&choices.export, cluster.export.value.as_str()) {
        (Some(_), _) | (None, EXPORT_DEFAULT) => String::new(),
        (None, export) => format!(", where its export {export} does not hold"),
    };
    let note = format!("{are}: {all}over ssh, outside of it{export}{near}");
    let lost = if is_mixed { "" } else { export.as_str() };
    let mixture = (is_mixed || !export.is_empty()).then(|| {
        format!(
            "{are} ({}){lost}: nothing is changed{near}; --launch ssh means hosts outside of it: all of \
             {}, over ssh",
            known.everyone(),
            fold(&meant)
        )
    });
    Ok(Said { mixture, ..outside(Some(note)) })
}

/// With `-C` they are the hosts of that cluster, whether its section has them or not.
fn of_named(
    file: &ConfigFile,
    around: &Around<'_>,
    choices: &Choices,
    said: &Sourced<String>,
) -> Result<Said, SessionError> {
    let Some((name, section)) = named(file, choices)? else {
        return Err(SessionError::Cluster("no cluster is named".to_owned()));
    };
    let cluster = section.cluster(name);
    // What its section says of hosts need not hold here, such as those of a job of Slurm.
    if let Ok(known) = cluster.find_hosts(around.groups, around.environment)
        && let (meant, unknown) = compare(said, &known, around)?
        && unknown.is_empty()
        && choices.launch.is_none()
    {
        return Ok(selected(cluster, &meant));
    }
    let cluster = Cluster { hosts: said.clone(), ..cluster };
    Ok(Said { cluster, selects: false, is_free: false, note: None, mixture: None })
}

fn selected(cluster: Cluster, meant: &[String]) -> Said {
    let hosts = Sourced { value: fold(meant), origin: Origin::Option("--hosts") };
    let cluster = Cluster { hosts, ..cluster };
    Said { cluster, selects: true, is_free: false, note: None, mixture: None }
}

impl Config {
    /// Whether hosts are said, and nothing else that says what they belong to or how they are
    /// reached: they may be those of a session that this host is in.
    pub(crate) fn says_free_hosts(&self) -> bool {
        self.says_free_hosts && self.says_login().is_none() && self.says_start().is_none()
    }

    /// The option beside hosts that has them reached by a tree of its own, where no export is said: their
    /// files would be others than those of a session that this host is in.
    pub(crate) fn says_free_hosts_with(&self) -> Option<&'static str> {
        let has_export = matches!(self.cluster.export.origin, Origin::Option("--export"));
        let option = self.says_login().or_else(|| self.says_start());
        option.filter(|_| self.says_free_hosts && !has_export)
    }

    /// Takes the hosts that are said from the session that was joined, and has all of them.
    pub(crate) fn take_from_session(&mut self) -> Result<(), SessionError> {
        let around = Around { groups: &self.groups, environment: &self.environment };
        let known = self.hosts()?;
        let (meant, unknown) = compare(&self.cluster.hosts, known, &around)?;
        if unknown.is_empty() {
            self.cluster.hosts.value = fold(&meant);
            // They are started already.
            self.cluster.launch = Sourced::default(Launch::Ssh);
            (self.selects, self.says_free_hosts) = (true, false);
            return Ok(());
        }
        let near = padded(&unknown, known, &RangeSet::full(known.len()));
        let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        Err(SessionError::UnknownHosts(format!(
            "{} {} of session {}, which this host is in ({}){near}; --launch ssh reaches hosts \
             over ssh, outside of it",
            fold(&unknown),
            if unknown.len() == 1 { "is no host" } else { "are no hosts" },
            self.session_name(),
            known.everyone(),
        )))
    }
}

/// The hosts that are said, and those of them that the cluster does not have.
fn compare(
    said: &Sourced<String>,
    known: &Hosts,
    around: &Around<'_>,
) -> Result<(Vec<String>, Vec<String>), SessionError> {
    let groups = ClusterGroups::new(around.groups, known.everyone());
    let meant = hosts::find(said, &groups, around.environment)
        .map_err(|text| SessionError::Hosts(format!("-w: {}", groups.told(text))))?;
    let meant = meant.names().to_vec();
    let unknown = meant.iter().filter(|name| known.leaf(name).is_none()).cloned().collect();
    Ok((meant, unknown))
}
