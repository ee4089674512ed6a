//! Groups on the command line: the chosen source, listing, regrouping.
use super::set::Set;
use super::{HostsArgs, InputStreams};
use anyhow::Result;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_core::hostset::{FoldOptions, Groups, HostSet, Membership, ParseError, memberships};
use sheaf_records::{Group, Source};

/// Groups whose default source is the one of `--groupsource`.
pub(super) struct Rebased<'g> {
    groups: &'g dyn Groups,
    source: Option<&'g str>,
}

impl<'g> Rebased<'g> {
    pub(super) fn new(groups: &'g dyn Groups, source: Option<&'g str>) -> Result<Self, Stop> {
        if let Some(source) =
            source.filter(|source| !groups.sources().iter().any(|known| known == source))
        {
            return Err(Stop::usage(format!("unknown group source '{source}'")));
        }
        Ok(Self { groups, source })
    }

    pub(super) fn all_hosts(&self) -> Result<HostSet> {
        HostSet::all(None, self).map_err(failed)
    }

    pub(super) fn regroup(
        &self,
        set: &Set,
        without_source: bool,
        options: &FoldOptions,
    ) -> Result<String> {
        match set {
            Set::Hosts(hosts) => {
                hosts.regroup(self.source, !without_source, self, options).map_err(failed)
            }
            Set::Numbers(numbers) => Ok(numbers.fold(options.autostep)),
        }
    }
}

impl Groups for Rebased<'_> {
    fn resolve(&self, source: Option<&str>, group: &str) -> Result<String, String> {
        self.groups.resolve(source.or(self.source), group)
    }

    fn list(&self, source: Option<&str>) -> Result<Vec<String>, String> {
        self.groups.list(source.or(self.source))
    }

    fn all(&self, source: Option<&str>) -> Result<String, String> {
        self.groups.all(source.or(self.source))
    }

    fn groups_of(&self, source: Option<&str>, host: &str) -> Result<Option<Vec<String>>, String> {
        self.groups.groups_of(source.or(self.source), host)
    }

    fn sources(&self) -> Vec<String> {
        let mut sources = self.groups.sources();
        if let Some(at) = sources.iter().position(|source| Some(source.as_str()) == self.source) {
            sources[..=at].rotate_right(1);
        }
        sources
    }
}

/// Prints the sources, the default one marked.
pub(super) fn list_sources(
    groups: &Rebased<'_>,
    marks: bool,
    streams: &mut InputStreams<'_>,
) -> Result<()> {
    for (at, source) in groups.sources().iter().enumerate() {
        let is_default = at == 0;
        if let Some(records) = streams.json {
            let record = Source { source: source.to_owned(), default: is_default };
            records.write(streams.out, &record)?;
        } else {
            writeln!(
                streams.out,
                "{source}{}",
                if is_default && marks { " (default)" } else { "" }
            )?;
        }
    }
    Ok(())
}

/// Prints the groups of one source or of all: those of the hosts of `set`, or all when no set is
/// given. Of all sources, those that cannot list are warned of, and the listing has then failed.
pub(super) fn list(
    args: &HostsArgs,
    set: &Set,
    groups: &Rebased<'_>,
    streams: &mut InputStreams<'_>,
) -> Result<Exit> {
    let level = args.list + args.list_all;
    let asks_for_hosts = args.all || !set.is_empty() || !args.operands.before.is_empty();
    let sources = if args.list_all > 0 { groups.sources() } else { vec![String::new()] };
    let mut exit = Exit::Success;
    for (at, source) in sources.iter().enumerate() {
        // The default source is not named, unless it was asked for by name.
        let source = if at == 0 { args.groupsource.as_deref() } else { Some(source.as_str()) };
        let shown = source.filter(|_| !args.groupbase);
        let hosts = match set {
            Set::Hosts(hosts) if asks_for_hosts => Some(hosts),
            _ => None,
        };
        // Names alone are listed without asking what they stand for.
        let resolves = level > 1 || streams.json.is_some();
        let mut print = || -> Result<(), ListError> {
            for row in rows(hosts, source, groups, resolves)? {
                row?.print(level, shown, streams)?;
            }
            Ok(())
        };
        match print() {
            Ok(()) => {}
            Err(ListError::Groups(error)) if args.list_all > 0 => {
                streams.warn(error.problem())?;
                exit = Exit::Unmatched;
            }
            Err(ListError::Groups(error)) => return Err(failed(error)),
            Err(ListError::Output(error)) => return Err(error),
        }
    }
    Ok(exit)
}

/// Why a list ends early.
enum ListError {
    /// The source cannot tell, or tells something malformed.
    Groups(ParseError),
    /// What it told could not be written.
    Output(anyhow::Error),
}

impl From<ParseError> for ListError {
    fn from(error: ParseError) -> Self {
        Self::Groups(error)
    }
}

impl From<anyhow::Error> for ListError {
    fn from(error: anyhow::Error) -> Self {
        Self::Output(error)
    }
}

/// A group in a list.
struct GroupRow {
    group: String,
    /// Empty where only names are listed.
    hosts: HostSet,
    /// How many hosts the whole group has, when `hosts` are those of a set.
    of: Option<usize>,
}

type GroupRows<'g> = Box<dyn Iterator<Item = Result<GroupRow, ParseError>> + 'g>;

fn rows<'g>(
    set: Option<&HostSet>,
    source: Option<&'g str>,
    groups: &'g Rebased<'_>,
    resolves: bool,
) -> Result<GroupRows<'g>, ParseError> {
    if let Some(set) = set {
        let found = memberships(set, source, groups)?.into_iter();
        let row = |member: Membership| GroupRow {
            group: member.group,
            of: Some(member.hosts.len()),
            hosts: member.shared,
        };
        return Ok(Box::new(found.map(move |member| Ok(row(member)))));
    }
    // As a host set, names come in the order in which hosts come.
    let names: HostSet = groups
        .list(source)
        .map_err(|problem| ParseError::unplaced(&problem))?
        .into_iter()
        .collect();
    let names: Vec<String> = names.iter().collect();
    Ok(Box::new(names.into_iter().map(move |group| {
        let name = source.map_or(format!("@{group}"), |source| format!("@{source}:{group}"));
        let hosts = if resolves { HostSet::parse_with(&name, groups)? } else { HostSet::new() };
        Ok(GroupRow { hosts, group, of: None })
    })))
}

impl GroupRow {
    fn print(&self, level: u8, source: Option<&str>, streams: &mut InputStreams<'_>) -> Result<()> {
        let Self { group, hosts, of } = self;
        let name = source.map_or(format!("@{group}"), |source| format!("@{source}:{group}"));
        if let Some(records) = streams.json {
            let record = Group {
                group: name,
                hosts: hosts.to_string(),
                count: hosts.len() as u64,
                of: of.map(|of| of as u64),
            };
            records.write(streams.out, &record)?;
            return Ok(());
        }
        match (level, of) {
            (1, _) => writeln!(streams.out, "{name}")?,
            (2, _) => writeln!(streams.out, "{name} {hosts}")?,
            (_, Some(of)) => writeln!(streams.out, "{name} {hosts} {}/{of}", hosts.len())?,
            (_, None) => writeln!(streams.out, "{name} {hosts} {}", hosts.len())?,
        }
        Ok(())
    }
}

fn failed(error: ParseError) -> anyhow::Error {
    Stop::usage(error.problem()).into()
}
