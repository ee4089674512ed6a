//! Which hosts of its cluster a command is for: not those of `-x`, and of a running session those
//! of `-w`.
use super::hosts::{Hosts, fold};
use super::{Config, Launch, Origin, nearest, some_of};
use crate::error::SessionError;
use crate::groups::GroupSources;
use crate::sessions::Sessions;
use sheaf_core::RangeSet;
use sheaf_core::hostset::{Groups, HostSet};
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};

/// The groups of the configuration, and `@all` for every host of the cluster that the command is
/// for.
pub(super) struct ClusterGroups<'a> {
    groups: &'a GroupSources,
    /// Nothing where it is still to be found out who they are.
    everyone: Option<String>,
    /// Why a group that was asked for is none.
    missing: OnceCell<String>,
}

impl<'a> ClusterGroups<'a> {
    pub(super) fn new(groups: &'a GroupSources, everyone: String) -> Self {
        Self { groups, everyone: Some(everyone), missing: OnceCell::new() }
    }

    /// The groups alone, to find out which hosts a cluster has.
    pub(super) fn alone(groups: &'a GroupSources) -> Self {
        Self { groups, everyone: None, missing: OnceCell::new() }
    }

    /// The error `text` of a host set, or that a group in it is none.
    pub(super) fn told(&self, text: String) -> String {
        self.missing.get().cloned().unwrap_or(text)
    }

    /// The host set of a group. A name that no group has is an error here, though nodeset takes it
    /// for an empty group: whoever mistypes one must not be told of an empty set.
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
        match (&self.everyone, source, group) {
            (Some(everyone), None, "all") => Ok(everyone.clone()),
            _ => self.find(source, group),
        }
    }

    fn list(&self, source: Option<&str>) -> Result<Vec<String>, String> {
        self.groups.list(source)
    }

    /// Wildcards match against the cluster, not against whatever other hosts a source knows.
    fn all(&self, source: Option<&str>) -> Result<String, String> {
        match (&self.everyone, source) {
            (Some(everyone), None) => Ok(everyone.clone()),
            _ => self.groups.all(source),
        }
    }

    fn sources(&self) -> Vec<String> {
        self.groups.sources()
    }
}

impl Config {
    /// The leaves that are meant where no hosts are said.
    ///
    /// # Errors
    /// When the hosts cannot be listed, or none of them is left.
    pub fn everyone(&self) -> Result<&RangeSet, SessionError> {
        if let Some(everyone) = self.everyone.get() {
            return Ok(everyone);
        }
        let hosts = self.hosts()?;
        let mut leaves = RangeSet::full(hosts.len());
        if self.is_joined() {
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
            return Err(self.nobody_left());
        }
        Ok(self.everyone.get_or_init(|| leaves))
    }

    /// The folded hosts that are meant where no hosts are said.
    ///
    /// # Errors
    /// As [`Config::everyone`].
    pub fn everyone_folded(&self) -> Result<String, SessionError> {
        Ok(self.hosts()?.fold(self.everyone()?))
    }

    /// Whether the command line says which hosts the command is for.
    pub fn says_hosts(&self) -> bool {
        matches!(self.cluster.hosts.origin, Origin::Option("--hosts"))
    }

    /// The leaves of a host set; all of it must be hosts the command is for, or left out by `-x`.
    ///
    /// # Errors
    /// When the expression is malformed, has no host, or names a host that the command is not for.
    pub fn leaves(&self, expression: &str) -> Result<RangeSet, SessionError> {
        self.leaves_of(expression, self.hosts()?, self.everyone()?)
    }

    fn leaves_of(
        &self,
        expression: &str,
        hosts: &Hosts,
        everyone: &RangeSet,
    ) -> Result<RangeSet, SessionError> {
        let everyone_folded = hosts.fold(everyone);
        let groups = ClusterGroups::new(&self.groups, everyone_folded.clone());
        let set = parse(expression, &groups)?;
        if set.is_empty() {
            return Err(SessionError::Hosts(format!("{expression}: no host is in this set")));
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
            // Advice, which without an answer is shorter.
            let running = Sessions::of(&self.environment).running().unwrap_or_default();
            return Err(nobody_is_named(&unknown, &everyone_folded, &running));
        }
        if !unknown.is_empty() {
            return Err(self.unknown(&unknown, hosts, everyone, true));
        }
        if leaves.is_empty() {
            return Err(SessionError::Hosts(format!(
                "{expression}: every host of it is left out by --exclude-hosts"
            )));
        }
        Ok(leaves)
    }

    fn nobody_left(&self) -> SessionError {
        let why = match self.name_filters.is_empty() {
            true => "--exclude-hosts leaves no host",
            false => "/REGEX/ of -w leaves no host",
        };
        SessionError::Hosts(why.to_owned())
    }

    /// `hosts` without those of `-x`, before a tree is planned.
    pub(super) fn without_excluded(&self, hosts: Hosts) -> Result<Hosts, SessionError> {
        let excluded = self.find_excluded(&hosts)?;
        if excluded.is_empty() {
            return Ok(hosts);
        }
        let left: Vec<String> =
            hosts.names().iter().filter(|name| !excluded.contains(name)).cloned().collect();
        let _ = self.excluded.set(excluded);
        if left.is_empty() { Err(self.nobody_left()) } else { Ok(Hosts::new(left)) }
    }

    /// The hosts of `-x`. Names must be hosts of the cluster, so that none is spared by mistake;
    /// groups may hold others as well.
    fn find_excluded(&self, hosts: &Hosts) -> Result<HostSet, SessionError> {
        let groups = ClusterGroups::new(&self.groups, hosts.everyone());
        let mut excluded = HostSet::new();
        for expression in &self.exclude_hosts {
            // An unset variable leaves nothing: whoever meant somebody would change him, too.
            if expression.trim().is_empty() {
                let why =
                    "-x (or - in -w) names no host to leave out; an unset variable leaves it empty";
                return Err(SessionError::Hosts(why.to_owned()));
            }
            if let Ok(names) = HostSet::parse(expression) {
                let unknown: Vec<String> =
                    names.iter().filter(|name| hosts.leaf(name).is_none()).collect();
                if !unknown.is_empty() {
                    return Err(self.unknown(&unknown, hosts, &RangeSet::full(hosts.len()), false));
                }
            }
            excluded = excluded.union(&parse(expression, &groups)?);
        }
        let admits = |name: &&String| self.name_filters.iter().all(|filter| filter.admits(name));
        let others: Vec<&str> =
            hosts.names().iter().filter(|name| !admits(name)).map(String::as_str).collect();
        if !others.is_empty() {
            excluded = excluded.union(&parse(&others.join(","), &groups)?);
        }
        Ok(excluded)
    }

    /// The error of names that are no hosts among `everyone`, which may be fewer than all `hosts`.
    /// The error of hosts that there are not; `asked`: something is wanted of them, so that they
    /// may be reached otherwise.
    fn unknown(
        &self,
        unknown: &[String],
        hosts: &Hosts,
        everyone: &RangeSet,
        asked: bool,
    ) -> SessionError {
        let is_one = unknown.len() == 1;
        let is_whole = everyone.len() == u64::from(hosts.len());
        let of = match &self.session {
            // Without a session the hosts of `-w` are all there are.
            _ if self.says_hosts() && !(self.is_joined() && is_whole) => {
                format!("{} not among the hosts of -w", if is_one { "is" } else { "are" })
            }
            session => {
                let verb = if is_one { "is no host" } else { "are no hosts" };
                match session {
                    Some(session) => format!("{verb} of session {session}"),
                    None => format!("{verb} of cluster {}", self.cluster.name.value),
                }
            }
        };
        let near =
            || unknown.first().and_then(|first| similar(first, hosts)).map(ToOwned::to_owned);
        let near = padded(unknown, hosts, everyone).or_else(near);
        let is_elsewhere = asked
            && self.session.is_none()
            && !self.says_hosts()
            && !matches!(self.launch(), Launch::Embedded | Launch::Processes);
        let hint = match near {
            Some(near) => format!("; did you mean {near}?"),
            None if is_elsewhere => {
                format!("; -w '{}' --launch ssh goes there over ssh", fold(unknown))
            }
            None => String::new(),
        };
        SessionError::UnknownHosts(format!(
            "{} {of} ({}){hint}",
            fold(unknown),
            hosts.fold(everyone)
        ))
    }
}

fn parse(expression: &str, groups: &ClusterGroups<'_>) -> Result<HostSet, SessionError> {
    HostSet::parse_with(expression, groups).map_err(|error| match groups.missing.get() {
        Some(missing) => SessionError::Hosts(missing.clone()),
        None => SessionError::Hosts(format!("{expression}: {error}")),
    })
}

/// The error of hosts where no configuration names any.
fn nobody_is_named(hosts: &[String], own: &str, running: &[String]) -> SessionError {
    // As for ssh: USER@HOST.
    let parts: Vec<_> =
        hosts.iter().map(|host| host.rsplit_once('@').unwrap_or(("", host))).collect();
    let users: BTreeSet<&str> =
        parts.iter().map(|(user, _)| *user).filter(|user| !user.is_empty()).collect();
    let names: Vec<String> = parts.iter().map(|(_, host)| (*host).to_owned()).collect();
    let user: String = users.iter().map(|user| format!(" -l {user}")).collect();
    let session = match running {
        [] => String::new(),
        [one] => format!(", say --session {one} for those of the session that runs"),
        several => format!(", say --session NAME (running: {})", some_of(several.iter())),
    };
    SessionError::UnknownHosts(format!(
        "no configuration names hosts, so there is only this machine ({own}): give them with -w \
         '{}'{user}{session}, or write a sheaf.toml",
        fold(&names)
    ))
}

/// The hosts among these whose names are `names` but for zeros before numbers, where there is one
/// for each.
pub(super) fn padded(names: &[String], hosts: &Hosts, among: &RangeSet) -> Option<String> {
    let mut plain: HashMap<String, &String> = HashMap::new();
    for name in among.iter().filter_map(|leaf| hosts.names().get(leaf as usize)) {
        plain.entry(without_padding(name)).or_insert(name);
    }
    let meant: Option<Vec<String>> = names
        .iter()
        .map(|name| plain.get(&without_padding(name)).map(|name| (*name).clone()))
        .collect();
    meant.map(|meant| fold(&meant))
}

fn without_padding(name: &str) -> String {
    let (mut out, mut within) = (String::with_capacity(name.len()), false);
    let mut rest = name.chars().peekable();
    while let Some(c) = rest.next() {
        let is_padding = c == '0' && !within && rest.peek().is_some_and(char::is_ascii_digit);
        if !is_padding {
            within = c.is_ascii_digit();
            out.push(c);
        }
    }
    out
}

/// The host whose name is nearest; none when only the number is beyond the cluster's, which the
/// cluster's own host set says better.
fn similar<'a>(name: &str, hosts: &'a Hosts) -> Option<&'a str> {
    let letters = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let near = nearest(name, hosts.names().iter().map(String::as_str))?;
    (name[..letters(name)] != near[..letters(near)]).then_some(near)
}
