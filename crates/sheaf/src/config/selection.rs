//! Which hosts of its cluster a command is for: not those of `-x`, and of a running session those of
//! `-w`.
use super::hosts::{Hosts, fold};
use super::{Config, Origin, nearest};
use crate::exit::Stop;
use crate::groups::GroupSources;
use sheaf_core::RangeSet;
use sheaf_core::hostset::{Groups, HostSet};
use std::cell::OnceCell;
use std::collections::BTreeSet;

/// The groups of the configuration, and `@all` for every host of the cluster that the command is for.
pub(super) struct ClusterGroups<'a> {
    groups: &'a GroupSources,
    everyone: String,
    /// Why a group that was asked for is none.
    missing: OnceCell<String>,
}

impl<'a> ClusterGroups<'a> {
    pub(super) fn new(groups: &'a GroupSources, everyone: String) -> Self {
        Self { groups, everyone, missing: OnceCell::new() }
    }

    /// Why a group that was asked for is none, if that was so.
    pub(super) fn missing(&self) -> Option<&str> {
        self.missing.get().map(String::as_str)
    }

    /// The host set of a group. A name that no group has is an error here, though nodeset takes it for
    /// an empty group: whoever mistypes one must not be told of an empty set.
    fn find(&self, source: Option<&str>, group: &str) -> Result<String, String> {
        let found = self.groups.resolve(source, group);
        if found.as_ref().is_ok_and(|nodes| !nodes.is_empty()) {
            return found;
        }
        match self.groups.missing(source, group) {
            None => found,
            Some(text) => Err(self.missing.get_or_init(|| text).clone()),
        }
    }
}

impl Groups for ClusterGroups<'_> {
    fn resolve(&self, source: Option<&str>, group: &str) -> Result<String, String> {
        match (source, group) {
            (None, "all") => Ok(self.everyone.clone()),
            _ => self.find(source, group),
        }
    }

    fn list(&self, source: Option<&str>) -> Result<Vec<String>, String> {
        self.groups.list(source)
    }

    /// Wildcards match against the cluster, not against whatever other hosts a source knows.
    fn all(&self, source: Option<&str>) -> Result<String, String> {
        match source {
            None => Ok(self.everyone.clone()),
            Some(_) => self.groups.all(source),
        }
    }

    fn sources(&self) -> Vec<String> {
        self.groups.sources()
    }
}

impl Config {
    /// The leaves that are meant where no hosts are said.
    pub fn everyone(&self) -> Result<&RangeSet, Stop> {
        if let Some(everyone) = self.everyone.get() {
            return Ok(everyone);
        }
        let hosts = self.hosts()?;
        let mut leaves = RangeSet::full(hosts.len());
        if self.is_joined.get() {
            if let Origin::Option("--hosts") = self.cluster.hosts.origin {
                leaves = self.leaves_of(&self.cluster.hosts.value, hosts, &leaves)?;
            }
            // What is planned has been planned without them.
            let excluded = self.find_excluded(hosts)?;
            let out: RangeSet = excluded.iter().filter_map(|name| hosts.leaf(&name)).collect();
            leaves = leaves.difference(&out);
            let _ = self.excluded.set(excluded);
        }
        if leaves.is_empty() {
            return Err(nobody_left());
        }
        Ok(self.everyone.get_or_init(|| leaves))
    }

    /// The folded hosts that are meant where no hosts are said.
    pub fn everyone_folded(&self) -> Result<String, Stop> {
        Ok(self.hosts()?.fold(self.everyone()?))
    }

    /// Whether the command line says which hosts the command is for.
    pub fn says_hosts(&self) -> bool {
        matches!(self.cluster.hosts.origin, Origin::Option("--hosts"))
    }

    /// The leaves of a host set; all of it must be hosts the command is for, or left out by `-x`.
    pub fn leaves(&self, expression: &str) -> Result<RangeSet, Stop> {
        self.leaves_of(expression, self.hosts()?, self.everyone()?)
    }

    fn leaves_of(&self, expression: &str, hosts: &Hosts, everyone: &RangeSet) -> Result<RangeSet, Stop> {
        let groups = ClusterGroups::new(&self.groups, hosts.fold(everyone));
        let set = parse(expression, &groups)?;
        if set.is_empty() {
            return Err(Stop::usage(format!("{expression}: no host is in this set")));
        }
        let (mut leaves, mut unknown) = (RangeSet::new(), Vec::new());
        for name in set.iter() {
            match hosts.leaf(&name).filter(|leaf| everyone.contains(*leaf)) {
                Some(leaf) => leaves.insert(leaf),
                None if self.excluded.get().is_some_and(|excluded| excluded.contains(&name)) => {}
                None => unknown.push(name),
            }
        }
        if !unknown.is_empty() && self.is_this_machine() {
            return Err(nobody_is_named(&unknown, &groups.everyone));
        }
        if !unknown.is_empty() {
            return Err(self.unknown(&unknown, hosts, &groups.everyone));
        }
        if leaves.is_empty() {
            return Err(Stop::usage(format!(
                "{expression}: every host of it is left out by --exclude-hosts"
            )));
        }
        Ok(leaves)
    }

    /// `hosts` without those of `-x`, before a tree is planned.
    pub(super) fn without_excluded(&self, hosts: Hosts) -> Result<Hosts, Stop> {
        let excluded = self.find_excluded(&hosts)?;
        if excluded.is_empty() {
            return Ok(hosts);
        }
        let left: Vec<String> =
            hosts.names().iter().filter(|name| !excluded.contains(name)).cloned().collect();
        let _ = self.excluded.set(excluded);
        if left.is_empty() { Err(nobody_left()) } else { Ok(Hosts::new(left)) }
    }

    /// The hosts of `-x`. Names must be hosts of the cluster, so that none is spared by mistake; groups
    /// may hold others as well.
    fn find_excluded(&self, hosts: &Hosts) -> Result<HostSet, Stop> {
        let groups = ClusterGroups::new(&self.groups, hosts.everyone());
        let mut excluded = HostSet::new();
        for expression in &self.exclude_hosts {
            if let Ok(names) = HostSet::parse(expression) {
                let unknown: Vec<String> = names.iter().filter(|name| hosts.leaf(name).is_none()).collect();
                if !unknown.is_empty() {
                    return Err(self.unknown(&unknown, hosts, &groups.everyone));
                }
            }
            excluded = excluded.union(&parse(expression, &groups)?);
        }
        Ok(excluded)
    }

    /// The error of names that are no hosts.
    fn unknown(&self, unknown: &[String], hosts: &Hosts, everyone: &str) -> Stop {
        let verb = if unknown.len() == 1 { "is no host" } else { "are no hosts" };
        let near = unknown.first().and_then(|first| similar(first, hosts));
        let hint = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        let (folded, cluster) = (fold(unknown), &self.cluster.name.value);
        Stop::usage(format!("{folded} {verb} of cluster {cluster} ({everyone}){hint}"))
    }
}

fn parse(expression: &str, groups: &ClusterGroups<'_>) -> Result<HostSet, Stop> {
    HostSet::parse_with(expression, groups).map_err(|error| match groups.missing.get() {
        Some(missing) => Stop::usage(missing),
        None => Stop::usage(format!("{expression}: {error}")),
    })
}

/// The error of hosts where no configuration names any.
fn nobody_is_named(hosts: &[String], own: &str) -> Stop {
    // As for ssh: USER@HOST.
    let parts: Vec<_> = hosts.iter().map(|host| host.rsplit_once('@').unwrap_or(("", host))).collect();
    let users: BTreeSet<&str> = parts.iter().map(|(user, _)| *user).filter(|user| !user.is_empty()).collect();
    let names: Vec<String> = parts.iter().map(|(_, host)| (*host).to_owned()).collect();
    let user: String = users.iter().map(|user| format!(" -l {user}")).collect();
    Stop::usage(format!(
        "no configuration names hosts, so there is only this machine ({own}): give them with -w '{}'{user}, or \
         write a sheaf.toml",
        fold(&names)
    ))
}

fn nobody_left() -> Stop {
    Stop::usage("--exclude-hosts leaves no host")
}

/// The host whose name is nearest; none when only the number is beyond the cluster's, which the
/// cluster's own host set says better.
fn similar<'a>(name: &str, hosts: &'a Hosts) -> Option<&'a str> {
    let letters = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let near = nearest(name, hosts.names().iter().map(String::as_str))?;
    (name[..letters(name)] != near[..letters(near)]).then_some(near)
}
