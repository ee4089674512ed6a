//! From hosts back to the groups they are in.
use super::{Groups, HostSet, ParseError};
use crate::hostset::fold::FoldOptions;
use std::collections::BTreeSet;

/// A group that shares hosts with a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The group's name, without `@` and source.
    pub group: String,
    /// The group's hosts.
    pub hosts: HostSet,
    /// Those of them that are in the set.
    pub shared: HostSet,
}

/// The groups of a source that share hosts with `set`, ordered by name.
///
/// # Errors
/// When the source is not known or one of its groups is malformed.
pub fn memberships(
    set: &HostSet,
    source: Option<&str>,
    groups: &dyn Groups,
) -> Result<Vec<Membership>, ParseError> {
    let names = told(set, source, groups).transpose().unwrap_or_else(|| groups.list(source));
    shared(set, source, names, groups)
}

fn shared(
    set: &HostSet,
    source: Option<&str>,
    names: Result<Vec<String>, String>,
    groups: &dyn Groups,
) -> Result<Vec<Membership>, ParseError> {
    let mut out = Vec::new();
    for group in names.map_err(|problem| ParseError::unplaced(&problem))? {
        let name = group_name(source, &group);
        let hosts = HostSet::parse_with(&name, groups)?;
        let shared = set.intersection(&hosts);
        if !shared.is_empty() {
            out.push(Membership { group, hosts, shared });
        }
    }
    out.sort_by(|a, b| a.group.cmp(&b.group));
    Ok(out)
}

/// The groups of the hosts of `set`, if the source can tell them without being looked through.
fn told(
    set: &HostSet,
    source: Option<&str>,
    groups: &dyn Groups,
) -> Result<Option<Vec<String>>, String> {
    let mut found = BTreeSet::new();
    for host in set.iter() {
        match groups.groups_of(source, &host)? {
            Some(names) => found.extend(names),
            None => return Ok(None),
        }
    }
    Ok(Some(found.into_iter().collect()))
}

/// All groups of the source; of one that does not list any, those that it tells for the hosts.
fn listed(set: &HostSet, source: Option<&str>, groups: &dyn Groups) -> Result<Vec<String>, String> {
    match groups.list(source) {
        Ok(names) if !names.is_empty() => Ok(names),
        listed => told(set, source, groups).transpose().unwrap_or(listed),
    }
}

/// `@group` or `@source:group`.
fn group_name(source: Option<&str>, group: &str) -> String {
    match source {
        Some(source) => format!("@{source}:{group}"),
        None => format!("@{group}"),
    }
}

impl HostSet {
    /// The set written with the names of groups that are wholly in it, the largest first, and the
    /// hosts that are left. `with_source` writes `@source:group`.
    ///
    /// # Errors
    /// As [`memberships`].
    pub fn regroup(
        &self,
        source: Option<&str>,
        with_source: bool,
        groups: &dyn Groups,
        options: &FoldOptions,
    ) -> Result<String, ParseError> {
        let mut whole = shared(self, source, listed(self, source, groups), groups)?;
        whole.retain(|member| member.shared.len() == member.hosts.len());
        whole.sort_by(|a, b| b.hosts.len().cmp(&a.hosts.len()).then_with(|| a.group.cmp(&b.group)));
        let mut rest = self.clone();
        let mut names = Vec::new();
        for member in whole {
            if !rest.is_empty() && member.hosts.is_subset(&rest) {
                rest = rest.difference(&member.hosts);
                names.push(group_name(source.filter(|_| with_source), &member.group));
            }
        }
        let names: HostSet = names.into_iter().collect();
        let parts = [names.to_string(), rest.fold(options)];
        Ok(parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(","))
    }
}
