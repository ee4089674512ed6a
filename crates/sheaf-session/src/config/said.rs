//! What the hosts of `-w` are to the configuration: hosts of a cluster that it has, or hosts that
//! no file has to know, over ssh.
//!
//! Whoever has a default cluster means its hosts, by whatever way they are reached, when naming
//! some of them: never another file of the same path on the same machine, because ssh leads to its
//! real `/`.
use super::choose::{ad_hoc, named};
use super::hosts::{self, Hosts, fold};
use super::selection::{ClusterGroups, padded};
use super::{Cluster, ConfigFile, Origin, Sourced};
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
    /// What the user may not expect.
    pub note: Option<String>,
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
        Said { cluster, selects: false, note }
    };
    if choices.cluster.is_some() {
        return of_named(file, around, choices, &said);
    }
    // Whoever says how to start servers, or which session to ask, says that it is not the default.
    if choices.launch.is_some() || choices.session.is_some() {
        return Ok(outside(None));
    }
    let has_default = file.default.is_some() || file.clusters.len() == 1;
    let Some((name, section)) = has_default.then(|| named(file, choices)).transpose()?.flatten()
    else {
        return Ok(outside(None));
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
    let (are, name) =
        (if unknown.len() == 1 { "is no host" } else { "are no hosts" }, &cluster.name.value);
    let all = if unknown.len() < meant.len() {
        format!("all of {} ", fold(&meant))
    } else {
        String::new()
    };
    let near = padded(&unknown, &known, &RangeSet::full(known.len()));
    let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    let unknown = fold(&unknown);
    Ok(outside(Some(format!(
        "{unknown} {are} of cluster {name}: {all}over ssh, outside of it{near}"
    ))))
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
    Ok(Said { cluster: Cluster { hosts: said.clone(), ..cluster }, selects: false, note: None })
}

fn selected(cluster: Cluster, meant: &[String]) -> Said {
    let hosts = Sourced { value: fold(meant), origin: Origin::Option("--hosts") };
    Said { cluster: Cluster { hosts, ..cluster }, selects: true, note: None }
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
