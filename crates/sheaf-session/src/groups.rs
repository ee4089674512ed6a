//! Named groups of hosts: `[groups]` of `sheaf.toml`, then the groups ClusterShell is set up with.
mod clustershell;
pub(crate) mod ini;
pub mod upcall;
pub(crate) mod yaml;

use crate::config::{Sourced, nearest};
use crate::environment::Environment;
use clustershell::ClusterShell;
use sheaf_core::hostset::Groups;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The name under which the groups of `sheaf.toml` are a source like any other: `@sheaf:web`.
pub const OWN_SOURCE: &str = "sheaf";

/// Where messages say that groups are defined.
const PLACES: &str = "[groups] of sheaf.toml, ClusterShell";
/// The group of all hosts.
const ALL: &str = "all";

/// What shows the groups there are.
const LISTED: &str = "sheaf hosts -l lists those there are";

/// Why a group cannot be told: one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SourceError(pub String);

impl SourceError {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// Where `@group` and `@source:group` are looked up.
#[derive(Debug, Default)]
pub struct GroupSources {
    own: BTreeMap<String, Sourced<String>>,
    /// Read at the first group that is not our own.
    shell: OnceLock<Result<ClusterShell, SourceError>>,
    /// Where ClusterShell looks for its files.
    directories: Vec<PathBuf>,
    /// The one `groups.conf` to read in place of those that would be found.
    file: Option<PathBuf>,
    /// Sources of ClusterShell run no command.
    is_quiet: bool,
    /// All hosts of a cluster, which `@all` is where no source is named.
    everyone: Option<String>,
}

impl GroupSources {
    /// Groups by name, before those of ClusterShell.
    pub fn new(own: BTreeMap<String, Sourced<String>>, environment: &Environment) -> Self {
        let directories = clustershell::configuration_directories(environment);
        Self { own, directories, is_quiet: !environment.runs_commands, ..Self::default() }
    }

    /// The same, with ClusterShell's groups out of this file.
    pub fn with_file(self, file: Option<&Path>) -> Self {
        Self { file: file.map(Path::to_owned), ..self }
    }

    /// The same, with these as all hosts. Those of a command or a job, and those that are `@all` themselves, are
    /// not known here.
    pub fn with_everyone(self, hosts: Option<&str>) -> Self {
        let is_set = |hosts: &&str| {
            !["@command:", "@slurm", "^"].iter().any(|form| hosts.starts_with(form))
                && !["@all", "@*", ":all", ":*"].iter().any(|all| hosts.contains(all))
        };
        Self { everyone: hosts.filter(is_set).map(union), ..self }
    }

    /// The groups of `sheaf.toml`, and where each is defined.
    pub fn own(&self) -> &BTreeMap<String, Sourced<String>> {
        &self.own
    }

    /// The host set that `group` stands for, white space meaning union.
    fn nodes(&self, source: Option<&str>, group: &str) -> Result<String, SourceError> {
        let own = self.own.get(group).filter(|_| source.is_none_or(|source| source == OWN_SOURCE));
        if let Some(nodes) = own {
            return Ok(nodes.value.clone());
        }
        let shell = self.shell()?;
        if source == Some(OWN_SOURCE) || (source.is_none() && shell.is_empty()) {
            return Err(self.unknown(group));
        }
        shell.source(source)?.map(group)
    }

    /// The host set of all hosts a source knows.
    fn every_node(&self, source: Option<&str>) -> Result<String, SourceError> {
        let shell = self.shell()?;
        if source == Some(OWN_SOURCE) || (source.is_none() && shell.is_empty()) {
            let all: Vec<&str> = self.own.values().map(|nodes| nodes.value.as_str()).collect();
            return Ok(all.join(" "));
        }
        shell.source(source)?.all()
    }

    /// The names of a source's groups.
    fn names(&self, source: Option<&str>) -> Result<Vec<String>, SourceError> {
        let shell = self.shell()?;
        let mut names: Vec<String> = match source {
            None | Some(OWN_SOURCE) => self.own.keys().cloned().collect(),
            Some(_) => Vec::new(),
        };
        if source != Some(OWN_SOURCE) && !(source.is_none() && shell.is_empty()) {
            names.extend(shell.source(source)?.list()?);
        }
        Ok(names)
    }

    /// The groups of a host, where its source can tell.
    fn names_of(
        &self,
        source: Option<&str>,
        host: &str,
    ) -> Result<Option<Vec<String>>, SourceError> {
        let shell = self.shell()?;
        let looks_through_own = match source {
            None => !self.own.is_empty() || shell.is_empty(),
            Some(source) => source == OWN_SOURCE,
        };
        if looks_through_own { Ok(None) } else { shell.source(source)?.groups_of(host) }
    }

    fn shell(&self) -> Result<&ClusterShell, SourceError> {
        let read = || match &self.file {
            Some(file) => ClusterShell::of_file(file),
            None => ClusterShell::find(&self.directories),
        };
        let read = || read().map(|shell| if self.is_quiet { shell.quiet() } else { shell });
        self.shell.get_or_init(read).as_ref().map_err(Clone::clone)
    }

    /// Why `group` is none, where its source lists its groups and this is not among them.
    pub fn missing(&self, source: Option<&str>, group: &str) -> Option<String> {
        // A source that cannot list its groups may know any; what is wrong with it resolving tells.
        let Ok(known) = self.names(source) else { return None };
        if known.iter().any(|name| name == group) {
            return None;
        }
        let of = source.map(|source| format!("{source}:")).unwrap_or_default();
        Some(match nearest(group, known.iter().map(String::as_str)) {
            Some(near) => format!("no group @{of}{group}; did you mean @{of}{near}?"),
            None if known.is_empty() && source.is_none() => {
                format!("no group @{group}: no groups are configured ({PLACES})")
            }
            None if source.is_none() => format!("no group @{group} ({PLACES}); {LISTED}"),
            None => format!("no group @{of}{group}; {LISTED} of all sources with -L"),
        })
    }

    fn unknown(&self, group: &str) -> SourceError {
        SourceError(match nearest(group, self.own.keys().map(String::as_str)) {
            Some(near) => format!("no group @{group}; did you mean @{near}?"),
            None if self.own.is_empty() => {
                format!("no group @{group}: no groups are configured ({PLACES})")
            }
            None => format!("no group @{group} ({PLACES}); {LISTED}"),
        })
    }
}

impl Groups for GroupSources {
    /// A name that no group has is an error here, though nodeset takes it for an empty group:
    /// whoever mistypes one must not be told of an empty set.
    fn resolve(&self, source: Option<&str>, group: &str) -> Result<String, String> {
        if let Some(everyone) = self.everyone.as_ref().filter(|_| source.is_none() && group == ALL)
        {
            return Ok(everyone.clone());
        }
        let found = self.nodes(source, group).map(|nodes| union(&nodes));
        match found {
            Ok(nodes) if !nodes.is_empty() => Ok(nodes),
            found => match self.missing(source, group) {
                Some(text) => Err(text),
                None => found.map_err(|error| error.to_string()),
            },
        }
    }

    fn list(&self, source: Option<&str>) -> Result<Vec<String>, String> {
        self.names(source).map_err(|error| error.to_string())
    }

    fn all(&self, source: Option<&str>) -> Result<String, String> {
        if let Some(everyone) = self.everyone.as_ref().filter(|_| source.is_none()) {
            return Ok(everyone.clone());
        }
        self.every_node(source).map(|nodes| union(&nodes)).map_err(|error| error.to_string())
    }

    fn groups_of(&self, source: Option<&str>, host: &str) -> Result<Option<Vec<String>>, String> {
        self.names_of(source, host).map_err(|error| error.to_string())
    }

    fn sources(&self) -> Vec<String> {
        let mut names = self.shell().map(ClusterShell::names).unwrap_or_default();
        if !self.own.is_empty() || names.is_empty() {
            names.push(OWN_SOURCE.to_owned());
        }
        names
    }
}

/// Whether an error is only that a command was not run ([`Environment::without_commands`]).
#[must_use]
pub fn is_not_run(error: &str) -> bool {
    error.contains(upcall::NOT_RUN)
}

/// Host sets apart by white space as one expression.
pub fn union(nodes: &str) -> String {
    let parts = nodes.split_whitespace().map(|part| part.trim_matches(','));
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(groups: &[(&str, &str)]) -> GroupSources {
        let groups =
            groups.iter().map(|(name, nodes)| ((*name).into(), Sourced::default((*nodes).into())));
        let shell = OnceLock::from(Ok(ClusterShell::default()));
        GroupSources { own: groups.collect(), shell, ..GroupSources::default() }
    }

    #[test]
    fn own_groups_are_the_default_source() {
        let groups = own(&[("web", "n[1-2] n4"), ("db", "n9")]);
        assert_eq!(groups.resolve(None, "web").unwrap(), "n[1-2],n4");
        assert_eq!(groups.resolve(Some("sheaf"), "db").unwrap(), "n9");
        assert_eq!(Groups::all(&groups, None).unwrap(), "n9,n[1-2],n4");
        assert_eq!(groups.sources(), ["sheaf"]);
        assert_eq!(groups.resolve(None, "wen").unwrap_err(), "no group @wen; did you mean @web?");
    }
}
