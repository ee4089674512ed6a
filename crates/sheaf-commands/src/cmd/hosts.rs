//! `sheaf hosts`: computing with host sets, as ClusterShell's `nodeset` does.
mod compute;
mod format;
mod groups;
mod operands;
mod set;

use anyhow::Result;
use clap::{ArgAction, Args};
use compute::{SetReader, compute};
use format::HostsFormat;
use groups::Rebased;
use operands::Operands;
use set::Set;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::Records;
use sheaf_core::hostset::{AUTOSTEP_OFF, FoldOptions, Groups, NumberSet};
use sheaf_records::{HostIndex, HostList, Hosts};
use sheaf_session::Environment;
use sheaf_session::groups::GroupSources;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::str::FromStr;

/// Compute with host sets: fold, expand, count, group
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
EXPR is a host set: n[1-64], n[001-128/2], rack[1-4]n[1-16], @group,
@source:group, @* (all hosts), n* (all hosts so called), joined by , (union)
! (difference) & (intersection) ^ (symmetric difference), from left to right.
`-` stands for sets read from standard input, which is also read when there is
no EXPR. -x, -i and -X act at their place among the EXPRs.
@all and -a are every host of the default cluster of sheaf.toml, or of -C, as in
an address; without one, and with -s, those of the group source, as with nodeset.
A blank within an EXPR belongs to a name, as with nodeset: write n1,n2 for two.
A group that its source does not list is an error; nodeset takes it for empty.

Exit codes: 0; 1 an EXPR, a format or a source of groups is wrong, as with
nodeset; 2 the options are.

Examples:
  sheaf hosts n1 n2 n3 n7                    n[1-3,7]
  sheaf hosts -e 'n[1-3]!n2'                 n1 n3
  sheaf hosts --split 2 'n[1-5]'             n[1-3], then n[4-5]
  sheaf hosts -c @gpu -x n7                  how many, n7 left out")]
pub struct HostsArgs {
    #[command(flatten)]
    operands: Operands,

    /// Print the set folded into ranges (the default)
    #[arg(short, long, group = "command")]
    fold: bool,

    /// Print every host
    #[arg(short, long, group = "command")]
    expand: bool,

    /// Print the number of hosts
    #[arg(short, long, group = "command")]
    count: bool,

    /// List groups: with EXPR those of its hosts; -ll with their hosts, -lll with counts
    #[arg(short, long, group = "command", action = ArgAction::Count)]
    list: u8,

    /// List the groups of all sources, as -l does
    #[arg(short = 'L', long, group = "command", action = ArgAction::Count)]
    list_all: u8,

    /// Print the set with the names of the groups that are wholly in it
    #[arg(short, long, group = "command", conflicts_with = "rangeset")]
    regroup: bool,

    /// List the sources of groups
    #[arg(long, group = "command", visible_alias = "groupsources")]
    list_sources: bool,

    /// Print the position of HOST in the result, counted from 0; exit 1 if HOST is not in it
    #[arg(long, group = "command", value_name = "HOST", conflicts_with = "pick")]
    index: Option<String>,

    /// Begin with all hosts
    #[arg(short, long, conflicts_with = "rangeset")]
    all: bool,

    /// The source of groups that are named without one
    #[arg(short = 's', long, value_name = "SOURCE")]
    groupsource: Option<String>,

    /// Read ClusterShell's groups from this groups.conf
    #[arg(long, value_name = "FILE")]
    groupsconf: Option<PathBuf>,

    /// Give no warnings, and mark no default source
    #[arg(short)]
    quiet_answers: bool,

    /// Accepted for nodeset's sake: there is no more to say than -v does
    #[arg(short, long, hide = true)]
    debug: bool,

    /// Leave the source out of groups' names
    #[arg(short = 'G', long)]
    groupbase: bool,

    /// Compute with sets of numbers, such as 1,5,18-31
    #[arg(short = 'R', long)]
    rangeset: bool,

    /// Give each EXPR an answer of its own
    #[arg(long, conflicts_with_all = ["list", "list_all"])]
    each_of: bool,

    /// Print what stands between expanded hosts; knows \n and \t
    #[arg(short = 'S', long, value_name = "TEXT", default_value = " ", allow_hyphen_values = true)]
    separator: String,

    /// Print hosts, sets or counts in this format
    #[arg(
        short = 'O',
        long,
        value_name = "FORMAT",
        default_value = "%s",
        allow_hyphen_values = true
    )]
    output_format: String,

    /// Keep the hosts at these positions, counted from 0
    #[arg(short = 'I', long, value_name = "RANGES", allow_hyphen_values = true)]
    slice: Option<String>,

    /// Split the result into N sets of about equal size
    #[arg(long, value_name = "N", conflicts_with = "contiguous", allow_negative_numbers = true)]
    split: Option<i64>,

    /// Split the result into sets without gaps
    #[arg(long)]
    contiguous: bool,

    /// Keep N hosts taken at random
    #[arg(long, value_name = "N")]
    pick: Option<u32>,

    /// Write a-b/step for at least N equally spaced hosts, N % of them, or `auto`
    #[arg(long, value_name = "N|P%|auto", allow_hyphen_values = true)]
    autostep: Option<Autostep>,

    /// Fold these numbers of a name only, counted from 1, or one from -1 backwards
    #[arg(long, value_name = "RANGES", allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["rangeset", "expand", "count", "list", "list_all", "regroup"])]
    axis: Option<String>,
}

/// Where a run reads and writes, beside its answers.
struct InputStreams<'s> {
    /// What `-` stands for.
    input: &'s mut dyn BufRead,
    /// Where the answers go.
    out: &'s mut dyn Write,
    /// Where warnings go; `None` keeps quiet.
    warnings: Option<&'s mut dyn Write>,
    /// One JSON object per line in place of text.
    json: Option<Records>,
}

/// Runs the command with the groups of the configuration and the global options.
pub fn run(args: &HostsArgs, global: &GlobalArgs) -> Result<Exit> {
    if !global.on_hosts.is_empty() {
        let hosts = global.on_hosts.join(",");
        let text = format!("hosts computes with the sets behind its name: sheaf hosts '{hosts}'");
        return Err(Stop::usage(text).into());
    }
    let groups = groups_of(global, args)?;
    let (mut input, mut out) =
        (BufReader::new(sheaf_cli::stdio::StandardInput::new()), sheaf_cli::output::stdout());
    let mut stderr = std::io::stderr();
    let warnings: Option<&mut dyn Write> =
        if global.quiet || args.quiet_answers { None } else { Some(&mut stderr) };
    let mut out = std::io::BufWriter::new(&mut out);
    let mut streams = InputStreams {
        input: &mut input,
        out: &mut out,
        warnings,
        json: global.json.then(|| Records::new(global)),
    };
    // As with nodeset, whatever is wrong beyond the options ends with 1.
    let exit =
        run_on(args, &groups, &mut streams).map_err(|error| match error.downcast::<Stop>() {
            Ok(stop) => Stop::Unmatched(stop.to_string()).into(),
            // Only an answer that cannot be written is another matter.
            Err(error) if error.is::<std::io::Error>() => error,
            Err(error) => Stop::Unmatched(sheaf_cli::exit::one_line(&error)).into(),
        });
    let exit = match exit {
        Ok(exit) => exit,
        Err(error) => {
            // What came before the trouble is an answer.
            streams.out.flush()?;
            return Err(error);
        }
    };
    out.flush()?;
    Ok(exit)
}

/// The groups of the configuration.
fn groups_of(global: &GlobalArgs, args: &HostsArgs) -> Result<GroupSources> {
    let environment = Environment::of_this_process();
    let (config, groups_conf) = (global.config.as_deref(), args.groupsconf.as_deref());
    let cluster = global.cluster.as_deref();
    Ok(sheaf_session::config::groups(config, groups_conf, cluster, &environment)?)
}

/// Runs the command on these groups and streams.
fn run_on(args: &HostsArgs, groups: &dyn Groups, streams: &mut InputStreams<'_>) -> Result<Exit> {
    let groups = Rebased::new(groups, args.groupsource.as_deref())?;
    if args.list_sources {
        groups::list_sources(&groups, !args.quiet_answers, streams)?;
        return Ok(Exit::Success);
    }
    if args.rangeset && args.groupsource.is_some() {
        streams.warn("the group source is ignored with --rangeset")?;
    }
    let printer = HostsPrinter::new(args)?;
    let mut reader = SetReader::new(&groups);
    if args.each_of {
        for exprs in args.operands.each() {
            let set = compute(args, &exprs, &mut reader, streams)?;
            printer.print(args, set, &groups, streams)?;
        }
        return Ok(Exit::Success);
    }
    let set = compute(args, &args.operands, &mut reader, streams)?;
    if args.list > 0 || args.list_all > 0 {
        return groups::list(args, &set, &groups, streams);
    }
    printer.print(args, set, &groups, streams)?;
    Ok(Exit::Success)
}

impl InputStreams<'_> {
    fn warn(&mut self, text: &str) -> Result<()> {
        if let Some(warnings) = &mut self.warnings {
            writeln!(warnings, "sheaf: warning: {text}")?;
        }
        Ok(())
    }
}

/// The options that shape the answer, read once.
struct HostsPrinter {
    slice: Option<NumberSet>,
    axes: Option<Vec<i64>>,
    separator: String,
    format: HostsFormat,
}

impl HostsPrinter {
    fn new(args: &HostsArgs) -> Result<Self> {
        let usage = |error: anyhow::Error| Stop::usage(error.to_string());
        let ranges = |name: &str, text: &str| {
            NumberSet::parse(text)
                .map_err(|error| Stop::usage(format!("--{name} {text}: {}", error.problem())))
        };
        let slice = args.slice.as_deref().map(|text| ranges("slice", text)).transpose()?;
        let axes = match args.axis.as_deref() {
            None => None,
            Some(text) if text.starts_with('-') => {
                let axis = text
                    .parse()
                    .map_err(|_| Stop::usage(format!("--axis {text}: not one number")))?;
                Some(vec![axis])
            }
            Some(text) => {
                let wanted = ranges("axis", text)?;
                let last = wanted.value_ranges().map(|(_, last)| last).max().unwrap_or(0);
                // Names have no axes beyond the limit, so what is asked there asks for nothing.
                let axes = 1..=last.min(sheaf_core::hostset::AXES_MAX as i64);
                let is_wanted =
                    |axis: &i64| wanted.value_ranges().any(|(from, to)| (from..=to).contains(axis));
                Some(axes.filter(is_wanted).map(|axis| axis - 1).collect())
            }
        };
        let separator = format::separator(&args.separator).map_err(usage)?;
        let format = HostsFormat::parse(&args.output_format).map_err(usage)?;
        Ok(Self { slice, axes, separator, format })
    }

    fn print(
        &self,
        args: &HostsArgs,
        mut set: Set,
        groups: &Rebased<'_>,
        streams: &mut InputStreams<'_>,
    ) -> Result<()> {
        if let Some(wanted) = &self.slice {
            set = set.slice(wanted);
        }
        let autostep = args.autostep.map_or(AUTOSTEP_OFF, |autostep| autostep.hosts_min(set.len()));
        let mut options = FoldOptions { autostep, axes: self.axes.clone() };
        if let Some(count) = args.pick.filter(|&count| count > 0) {
            set = set.pick(count as usize);
        }
        if let (true, Set::Hosts(hosts)) = (args.folds() && !self.format.is_plain(), &set) {
            // The format makes new names, which fold anew.
            let names: Result<_> = hosts.iter().map(|name| self.format.name(&name)).collect();
            set = Set::Hosts(names?);
            options.axes = None;
        }
        if let Some(host) = &args.index {
            return print_index(host, &set, streams);
        }
        let parts = match args.split {
            _ if set.is_empty() => vec![set],
            _ if args.contiguous => set.contiguous(),
            Some(count) if count > 1 => set.split(usize::try_from(count).unwrap_or(usize::MAX)),
            _ => vec![set],
        };
        for part in &parts {
            self.print_part(args, part, &options, groups, streams)?;
        }
        Ok(())
    }

    fn print_part(
        &self,
        args: &HostsArgs,
        part: &Set,
        options: &FoldOptions,
        groups: &Rebased<'_>,
        streams: &mut InputStreams<'_>,
    ) -> Result<()> {
        if let Some(records) = streams.json {
            let hosts = if args.regroup {
                groups.regroup(part, args.groupbase, options)?
            } else {
                part.fold(options)
            };
            let host_list = args.expand.then(|| HostList(part.names().collect()));
            records.write(streams.out, &Hosts { hosts, count: part.len() as u64, host_list })?;
            return Ok(());
        }
        let line = if args.expand {
            let names: Result<Vec<String>> =
                part.names().map(|name| self.format.name(&name)).collect();
            names?.join(&self.separator)
        } else if args.count {
            self.format.count(part.len())?
        } else if args.regroup {
            self.format.name(&groups.regroup(part, args.groupbase, options)?)?
        } else if matches!(part, Set::Hosts(_)) {
            part.fold(options)
        } else {
            self.format.name(&part.fold(options))?
        };
        writeln!(streams.out, "{line}")?;
        Ok(())
    }
}

/// Prints the position of a host in a set.
fn print_index(host: &str, set: &Set, streams: &mut InputStreams<'_>) -> Result<()> {
    let Some(index) = set.names().position(|name| name == host) else {
        let of = set.fold(&FoldOptions::default());
        return Err(Stop::usage(format!("{host:?} is not in {of:?}")).into());
    };
    match streams.json {
        Some(records) => records.write(streams.out, &HostIndex { index: index as u64 })?,
        None => writeln!(streams.out, "{index}")?,
    }
    Ok(())
}

impl HostsArgs {
    fn folds(&self) -> bool {
        !(self.expand || self.count || self.regroup || self.index.is_some())
    }
}

/// When equally spaced numbers are written with a step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Autostep {
    Hosts(u64),
    Percent(f64),
    Auto,
}

impl Autostep {
    fn hosts_min(self, len: usize) -> u64 {
        match self {
            Self::Hosts(count) => count,
            Self::Percent(percent) => (len as f64 * percent / 100.0).ceil() as u64,
            Self::Auto => len.max(3) as u64,
        }
    }
}

impl FromStr for Autostep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = text.split_once('%').and_then(|(number, _)| number.parse().ok());
        match (text, percent) {
            ("auto", _) => Ok(Self::Auto),
            (_, Some(percent)) => Ok(Self::Percent(percent)),
            _ => text
                .parse::<i64>()
                .map(|count| Self::Hosts(count.max(0) as u64))
                .map_err(|_| "should be a number of hosts, a percentage or 'auto'".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
