//! Where `@group` names come from.
use std::collections::BTreeMap;

/// Knows named groups of hosts. A source is a name space of groups; `None` is the default one.
///
/// Answers are host-set expressions, which may name other groups; errors are one line of text.
pub trait Groups {
    /// The hosts of a group.
    ///
    /// # Errors
    /// When the source or the group is not known or cannot be asked.
    fn resolve(&self, source: Option<&str>, group: &str) -> Result<String, String>;

    /// The names of the groups of a source.
    ///
    /// # Errors
    /// When the source is not known or cannot list.
    fn list(&self, source: Option<&str>) -> Result<Vec<String>, String>;

    /// All hosts of a source: what `@*` stands for and wildcards are matched against. Unless the
    /// source knows better, the hosts of all its groups.
    ///
    /// # Errors
    /// When the source is not known or cannot tell.
    fn all(&self, source: Option<&str>) -> Result<String, String> {
        let groups = self.list(source)?;
        let exprs: Result<Vec<String>, String> =
            groups.iter().map(|group| self.resolve(source, group)).collect();
        Ok(exprs?.into_iter().filter(|expr| !expr.trim().is_empty()).collect::<Vec<_>>().join(","))
    }

    /// The groups that a host is in, where the source can tell by itself; `None` where one has to
    /// look through all its groups.
    ///
    /// # Errors
    /// When the source is not known or cannot tell.
    fn groups_of(&self, source: Option<&str>, host: &str) -> Result<Option<Vec<String>>, String> {
        let _ = (source, host);
        Ok(None)
    }

    /// The names of the sources, the default one first.
    fn sources(&self) -> Vec<String>;
}

/// No groups at all: every `@group` and every wildcard is an error.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoGroups;

impl Groups for NoGroups {
    fn resolve(&self, _source: Option<&str>, group: &str) -> Result<String, String> {
        Err(format!("no groups are known, so '@{group}' is not"))
    }

    fn list(&self, _source: Option<&str>) -> Result<Vec<String>, String> {
        Err("no groups are known".into())
    }

    fn sources(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Groups kept in memory.
///
/// ```
/// use sheaf_core::hostset::{GroupTable, HostSet};
/// let mut groups = GroupTable::new("lab");
/// groups.insert("lab", "gpu", "n[1-4]");
/// groups.insert("lab", "all", "n[1-64]");
/// let rest = HostSet::parse_with("@*!@gpu", &groups).unwrap();
/// assert_eq!(rest.to_string(), "n[5-64]");
/// ```
#[derive(Clone, Debug, Default)]
pub struct GroupTable {
    default_source: String,
    sources: BTreeMap<String, BTreeMap<String, String>>,
}

impl GroupTable {
    /// A table with one empty source, which is the default.
    #[must_use]
    pub fn new(default_source: &str) -> Self {
        let sources = BTreeMap::from([(default_source.to_owned(), BTreeMap::new())]);
        Self { default_source: default_source.to_owned(), sources }
    }

    /// Sets a group's hosts. The group called `all` is what [`Groups::all`] answers.
    pub fn insert(&mut self, source: &str, group: &str, hosts: &str) {
        self.sources
            .entry(source.to_owned())
            .or_default()
            .insert(group.to_owned(), hosts.to_owned());
    }

    fn source(&self, source: Option<&str>) -> Result<&BTreeMap<String, String>, String> {
        let name = source.unwrap_or(&self.default_source);
        self.sources.get(name).ok_or_else(|| format!("unknown group source '{name}'"))
    }
}

impl Groups for GroupTable {
    fn resolve(&self, source: Option<&str>, group: &str) -> Result<String, String> {
        self.source(source)?.get(group).cloned().ok_or_else(|| format!("unknown group '@{group}'"))
    }

    fn list(&self, source: Option<&str>) -> Result<Vec<String>, String> {
        Ok(self.source(source)?.keys().cloned().collect())
    }

    fn all(&self, source: Option<&str>) -> Result<String, String> {
        let groups = self.source(source)?;
        let all = groups.get("all").cloned();
        Ok(all.unwrap_or_else(|| {
            let exprs: Vec<&str> = groups
                .values()
                .map(String::as_str)
                .filter(|expr| !expr.trim().is_empty())
                .collect();
            exprs.join(",")
        }))
    }

    fn sources(&self) -> Vec<String> {
        let others = self.sources.keys().filter(|name| **name != self.default_source);
        std::iter::once(&self.default_source).chain(others).cloned().collect()
    }
}
