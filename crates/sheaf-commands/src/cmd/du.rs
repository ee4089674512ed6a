//! `sheaf du`: the space files take.
use super::per_path;
use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde_json::{Map, Value};
use sheaf_cli::addresses::Addresses;
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{Heads, Layout, Printer};
use sheaf_tools::entry::{EntryKind, MergedEntry};
use sheaf_tools::report::{ReportChoice, UsageReportOptions};

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

    #[command(flatten)]
    pub unit: Unit,

    #[command(flatten)]
    pub heads: Heads,
}

/// How sizes are written: as the last of the options for it says.
#[derive(Debug, Default)]
pub struct Unit {
    human_readable: bool,
    bytes: bool,
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
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Unit {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let place = |id| matches.get_flag(id).then(|| matches.indices_of(id)?.max()).flatten();
        let (human, bytes) = (place("human_readable"), place("bytes"));
        Ok(Self { human_readable: human > bytes, bytes: bytes > human, apparent: bytes.is_some() })
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
        bytes: args.unit.bytes || global.json,
        all: args.all,
        max_depth: if args.summarize { Some(0) } else { args.max_depth },
        one_file_system: args.one_file_system,
        total: args.total,
        apparent: args.apparent_size || args.unit.apparent,
    };
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
                if printer.layout() == Layout::Json {
                    print_json(printer, entry, size, path)?;
                } else {
                    printer.behind(size, b"\t", entry.leaves, path)?;
                }
            }
            Ok(())
        },
    )
}

fn print_json(
    printer: &mut Printer<'_>,
    entry: &MergedEntry<'_>,
    size: &[u8],
    path: &[u8],
) -> std::io::Result<()> {
    let size: Option<u64> = std::str::from_utf8(size).ok().and_then(|size| size.parse().ok());
    let mut object = Map::from_iter([("size".to_owned(), Value::from(size))]);
    if entry.entry.kind == EntryKind::Count {
        object.insert("total".to_owned(), true.into());
        return printer.json(entry.leaves, b"", object);
    }
    printer.json(entry.leaves, path, object)
}
