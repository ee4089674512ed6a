//! `sheaf du`: the space files take.
use super::per_path;
use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use jiff::tz::TimeZone;
use sheaf_cli::addresses::Addresses;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{Heads, Layout, Printer};
use sheaf_file::{NameFilter, UsageTime};
use sheaf_records::Entry;
use sheaf_tools::entry::{EntryKind, MergedEntry};
use sheaf_tools::report::time::{Clock, TimeStyle};
use sheaf_tools::report::{ReportChoice, UsageReportOptions, UsageUnit};

/// Show the space that directories and files take
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf du -sh /var/log
  sheaf du -c -d 1 'n[1-64]:/home'")]
pub struct DuArgs {
    #[command(flatten)]
    pub files: Addresses,

    /// One total for each address, nothing below it
    #[arg(short, long, conflicts_with_all = ["all", "max_depth"])]
    pub summarize: bool,

    /// Count files, too, not directories alone
    #[arg(short, long)]
    pub all: bool,

    /// Print nothing deeper than N levels below the address
    #[arg(short = 'd', long, value_name = "N")]
    pub max_depth: Option<u32>,

    /// Stay on the file system of each address
    #[arg(short = 'x', long)]
    pub one_file_system: bool,

    /// End with the total of all
    #[arg(short = 'c', long)]
    pub total: bool,

    /// Count the bytes files hold, not the blocks they take
    #[arg(long)]
    pub apparent_size: bool,

    /// Count a file with several names once for each of them
    #[arg(short = 'l', long)]
    pub count_links: bool,

    /// Follow symbolic links
    #[arg(short = 'L', long)]
    pub dereference: bool,

    /// Do not count files and directories whose names match; a pattern with / is compared with
    /// the path below the address
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,

    /// Show when a file in the directory was last changed, or the last of these times:
    /// atime, ctime, mtime
    #[arg(long, value_name = "WORD", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "mtime", hide_possible_values = true)]
    pub time: Option<UsageTimeWord>,

    #[command(flatten)]
    pub unit: Unit,

    #[command(flatten)]
    pub heads: Heads,
}

/// A time of a file, by the words of GNU du.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UsageTimeWord {
    #[value(alias = "access", alias = "use")]
    Atime,
    #[value(alias = "status")]
    Ctime,
    Mtime,
}

/// How sizes are written: as the last of the options for it says.
#[derive(Debug, Default)]
pub struct Unit {
    human_readable: bool,
    unit: UsageUnit,
    /// `-b` was given, also where it is not the last.
    apparent: bool,
}

impl Args for Unit {
    fn augment_args(command: Command) -> Command {
        let flag = |id: &'static str, short| Arg::new(id).short(short).action(ArgAction::SetTrue);
        command
            .arg(
                flag("human_readable", 'h')
                    .long("human-readable")
                    .help("Sizes as 4.0K, 234M, 2.1G"),
            )
            .arg(
                flag("bytes", 'b')
                    .long("bytes")
                    .help("Sizes in bytes: --apparent-size, and no rounding to KiB"),
            )
            .arg(flag("kibibytes", 'k').help("Sizes in KiB (the default)"))
            .arg(flag("mebibytes", 'm').help("Sizes in MiB, rounded up"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Unit {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let place = |id| matches.get_flag(id).then(|| matches.indices_of(id)?.max()).flatten();
        let (human, bytes) = (place("human_readable"), place("bytes"));
        let units = [
            (place("kibibytes"), UsageUnit::Kibibyte),
            (bytes, UsageUnit::Byte),
            (place("mebibytes"), UsageUnit::Mebibyte),
        ];
        let (last, unit) = units.into_iter().max_by_key(|(at, _)| *at).unwrap_or_default();
        let human_readable = human > last;
        let unit = if last > human { unit } else { UsageUnit::default() };
        Ok(Self { human_readable, unit, apparent: bytes.is_some() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Measures the files.
pub fn run(args: &DuArgs, global: &GlobalArgs) -> Result<Exit> {
    let options = UsageReportOptions {
        // As JSON, sizes are numbers of bytes.
        human: args.unit.human_readable && !global.json,
        unit: if global.json { UsageUnit::Byte } else { args.unit.unit },
        count_links: args.count_links,
        dereference: args.dereference,
        exclude: args.exclude.clone(),
        time: args.time.map(|word| match word {
            UsageTimeWord::Atime => UsageTime::Accessed,
            UsageTimeWord::Ctime => UsageTime::Changed,
            UsageTimeWord::Mtime => UsageTime::Modified,
        }),
        all: args.all,
        max_depth: if args.summarize { Some(0) } else { args.max_depth },
        one_file_system: args.one_file_system,
        total: args.total,
        apparent: args.apparent_size || args.unit.apparent,
    };
    NameFilter::new(&args.exclude)
        .map_err(|problem| Stop::usage(format!("--exclude: {problem}")))?;
    let clock = Clock { zone: TimeZone::system(), now: jiff::Timestamp::now() };
    per_path::report(
        global,
        (&args.files, args.heads),
        &ReportChoice::Usage(options),
        &mut |printer, entries| {
            // The totals come first, because they have no path, and are shown last.
            let (totals, files): (Vec<_>, Vec<_>) =
                entries.into_iter().partition(|entry| entry.entry.kind == EntryKind::Count);
            for entry in files.iter().chain(&totals) {
                let tab = entry.entry.text.iter().position(|byte| *byte == b'\t').unwrap_or(0);
                let (size, path) = entry.entry.text.split_at(tab);
                let path = path.get(1..).unwrap_or_default();
                let (time, path) =
                    if args.time.is_some() { split_time(path) } else { (None, path) };
                if printer.layout() == Layout::Json {
                    print_json(printer, entry, (size, args.time.zip(time)), path)?;
                    continue;
                }
                let mut text = size.to_vec();
                if let Some(seconds) = time {
                    text.push(b'\t');
                    text.extend(TimeStyle::LongIso.format(seconds, 0, &clock).as_bytes());
                }
                printer.behind(&text, b"\t", entry.leaves, path)?;
            }
            Ok(())
        },
    )
}

/// Splits `SECONDS<tab>PATH`.
fn split_time(text: &[u8]) -> (Option<i64>, &[u8]) {
    let tab = text.iter().position(|byte| *byte == b'\t').unwrap_or(0);
    let (seconds, path) = text.split_at(tab);
    let seconds = std::str::from_utf8(seconds).ok().and_then(|seconds| seconds.parse().ok());
    (seconds, path.get(1..).unwrap_or_default())
}

fn print_json(
    printer: &mut Printer<'_>,
    entry: &MergedEntry<'_>,
    (size, time): (&[u8], Option<(UsageTimeWord, i64)>),
    path: &[u8],
) -> std::io::Result<()> {
    let size: Option<u64> = std::str::from_utf8(size).ok().and_then(|size| size.parse().ok());
    let is_total = entry.entry.kind == EntryKind::Count;
    let zone = TimeZone::system();
    let mut record = Entry { size, total: is_total.then_some(true), ..Entry::default() };
    if let Some((word, seconds)) = time {
        let text = Some(sheaf_tools::report::time::full(seconds, 0, &zone));
        match word {
            UsageTimeWord::Atime => record.accessed = text,
            UsageTimeWord::Ctime => record.changed = text,
            UsageTimeWord::Mtime => record.modified = text,
        }
    }
    printer.json(entry.leaves, if is_total { b"" } else { path }, record)
}
