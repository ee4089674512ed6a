//! The tree that a configuration asks for. It decides which leaf is which host: a set of hosts has
//! no order of its own, and a file of a tree may name them in any.
use super::hosts::{Hosts, fold, without_mark};
use super::{Cluster, Config, Launch, LinkChoice, Origin, names};
use crate::error::{SessionError, io_text};
use sheaf_tree::topology::{Names, Placement, Spec, Topology, TopologyError};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The most bytes of a tree's file: more than a million hosts need.
const TREE_BYTES_MAX: u64 = 64 << 20;

/// The tree of the configuration's cluster.
pub fn plan(config: &Config) -> Result<Topology, SessionError> {
    check_link(config)?;
    let Cluster { hosts, launch, .. } = &config.cluster;
    let is_said = matches!(launch.origin, Origin::Option(_)) && launch.value == Launch::Ssh;
    if is_said && hosts.origin == Origin::Default {
        let text = "--launch ssh is for hosts that are named: add -w HOSTS";
        return Err(SessionError::Choice(text.to_owned()));
    }
    // What a file says may be for another way to start the same cluster.
    let says_link =
        config.cluster.link.as_ref().is_some_and(|link| matches!(link.origin, Origin::Option(_)));
    if config.launch() == Launch::Embedded && says_link {
        let text = "--link is for processes of their own: not with launch = embedded";
        return Err(SessionError::Choice(text.to_owned()));
    }
    check_login(config)?;
    let hosts =
        config.without_excluded(config.cluster.find_hosts(&config.groups, &config.environment)?)?;
    let said = &config.cluster.tree;
    let place = match &said.origin {
        Origin::File(..) => format!("{}: ", said.origin),
        _ => String::new(),
    };
    let usage = |error: TopologyError| SessionError::Tree(format!("{place}tree: {error}"));
    let spec = Spec::parse(&said.value).map_err(usage)?;
    if let Spec::File(path) = &spec {
        let text = read_bounded(path.as_ref(), TREE_BYTES_MAX)
            .map_err(|error| SessionError::Tree(io_text(path.as_ref(), &error)))?;
        let topology =
            from_file(config, &text).map_err(|why| SessionError::Tree(format!("{path}: {why}")))?;
        return match difference(&topology.leaf_hosts(), &hosts) {
            None => Ok(topology),
            Some(difference) => {
                let cluster = &config.cluster.name.value;
                Err(SessionError::Tree(not_its_hosts(path, cluster, &difference)))
            }
        };
    }
    let inner = config.inner_hosts()?;
    let inner: Option<Names> = inner.map(|hosts| hosts.names().iter().cloned().collect());
    let placement = inner.as_ref().map_or(Placement::LeafHosts, Placement::InnerHosts);
    let names: Names = hosts.names().iter().cloned().collect();
    Topology::build(&spec, "root", names, placement).map_err(usage)
}

/// Whether this is a tree, and where it is one of hosts that are named, of these.
pub fn check(tree: &str, cluster: &str, hosts: Option<&Hosts>) -> Result<(), String> {
    let usage = |error: TopologyError| format!("tree: {error}");
    let spec = Spec::parse(tree).map_err(usage)?;
    let Spec::File(path) = &spec else {
        let Some(hosts) = hosts else { return Ok(()) };
        let names: Names = hosts.names().iter().cloned().collect();
        return Topology::build(&spec, "root", names, Placement::LeafHosts)
            .map(drop)
            .map_err(usage);
    };
    let text = read_bounded(path.as_ref(), TREE_BYTES_MAX)
        .map_err(|error| io_text(path.as_ref(), &error))?;
    let topology = parsed(&text).map_err(|why| format!("{path}: {why}"))?;
    match hosts.and_then(|hosts| difference(&topology.leaf_hosts(), hosts)) {
        None => Ok(()),
        Some(difference) => Err(not_its_hosts(path, cluster, &difference)),
    }
}

fn not_its_hosts(path: &str, cluster: &str, difference: &str) -> String {
    format!("{path}: its leaves are not the hosts of cluster {cluster}: {difference}")
}

/// The text of a file that may be no longer than that.
fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    let read = File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if read as u64 > bytes_max {
        let text = format!("it is longer than {bytes_max} bytes, and too long for a tree");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text (UTF-8)"))
}

/// The tree of a file.
fn parsed(text: &str) -> Result<Topology, String> {
    let topology = Topology::from_file(without_mark(text)).map_err(|error| error.to_string())?;
    if let Some(problem) = topology.nodes().find_map(|node| names::host_problem(&node.host())) {
        return Err(problem);
    }
    Ok(topology)
}

/// The tree of a file, without the hosts of `-x`.
fn from_file(config: &Config, text: &str) -> Result<Topology, String> {
    let mut topology = parsed(text)?;
    if let Some(excluded) = config.excluded.get() {
        topology =
            topology.without(&|host| excluded.contains(host)).map_err(|error| match error {
                TopologyError::NotSpared { .. } => {
                    format!(
                        "{error}, which stay; leave these out as well, or give them another node \
                         in the file"
                    )
                }
                error => error.to_string(),
            })?;
    }
    Ok(topology)
}

/// Not every way to start nodes has every link.
fn check_link(config: &Config) -> Result<(), SessionError> {
    let (launch, Some(link)) = (config.launch(), config.link()) else { return Ok(()) };
    let text = match (launch, link) {
        (Launch::Ssh | Launch::Slurm | Launch::Attach, LinkChoice::Tcp | LinkChoice::Unix) => {
            format!("link = {link} does not lead to other hosts: launch = {launch} needs tls")
        }
        (Launch::Slurm | Launch::Attach, LinkChoice::Ssh) => {
            format!("link = ssh is for hosts that ssh starts: launch = {launch} needs tls")
        }
        (Launch::Processes, LinkChoice::Ssh) => "link = ssh is for hosts that ssh starts: launch \
                                                 = processes has unix, tcp and tls"
            .to_owned(),
        _ => return Ok(()),
    };
    Err(SessionError::Choice(text))
}

/// `--user` is for ssh to log in with, and `--sudo` for servers that are started from here.
fn check_login(config: &Config) -> Result<(), SessionError> {
    let launch = config.launch();
    let in_vain = match config.says_login() {
        Some("--user") if launch != Launch::Ssh => "--user is for hosts that ssh logs in to",
        Some(_)
            if config.cluster.sudo.is_some()
                && !matches!(launch, Launch::Ssh | Launch::Processes) =>
        {
            "--sudo is for servers that are started here or over ssh"
        }
        _ => return Ok(()),
    };
    Err(SessionError::Choice(format!("{in_vain}: not with launch = {launch}")))
}

/// In what the leaves of a file and the hosts of a cluster differ, if they do.
fn difference(leaves: &Names, hosts: &Hosts) -> Option<String> {
    let (mut seen, mut unknown, mut repeated) = (HashSet::new(), Vec::new(), Vec::new());
    for name in leaves.iter() {
        if !seen.insert(name.clone()) {
            repeated.push(name);
        } else if hosts.leaf(&name).is_none() {
            unknown.push(name);
        }
    }
    let missing: Vec<String> =
        hosts.names().iter().filter(|name| !seen.contains(*name)).cloned().collect();
    let parts = [
        (unknown, "only in the file"),
        (missing, "only in the cluster"),
        (repeated, "more than once in the file"),
    ];
    let told: Vec<String> = parts
        .iter()
        .filter(|(names, _)| !names.is_empty())
        .map(|(names, what)| format!("{} {what}", fold(names)))
        .collect();
    (!told.is_empty()).then(|| told.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(leaves: &[&str], hosts: &[&str]) -> Option<String> {
        let hosts = Hosts::new(hosts.iter().map(ToString::to_string).collect());
        difference(&leaves.iter().collect(), &hosts)
    }

    #[test]
    fn leaves_match_hosts_in_any_order_or_the_difference_is_told() {
        assert_eq!(told(&["n3", "n1", "n2"], &["n1", "n2", "n3"]), None);
        assert_eq!(told(&["n1", "n2"], &["n1", "n2", "n3"]).unwrap(), "n3 only in the cluster");
        let other = told(&["n1", "n4", "n5", "n1", "n3"], &["n1", "n2", "n3"]).unwrap();
        assert_eq!(
            other,
            "n[4-5] only in the file; n2 only in the cluster; n1 more than once in the file"
        );
        // Equal in number, not in name.
        let same = told(&["n01"], &["n1"]).unwrap();
        assert_eq!(same, "n01 only in the file; n1 only in the cluster");
    }
}
