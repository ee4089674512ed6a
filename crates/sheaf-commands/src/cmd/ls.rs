//! `sheaf ls`: directories listed, equal listings printed once.
use super::per_path;
use anyhow::Result;
use clap::{Args, ValueEnum};
use jiff::tz::TimeZone;
use serde_json::Value;
use sheaf_cli::addresses::Addresses;
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::json::put_text;
use sheaf_cli::output::{Heads, Layout, Line, Printer};
use sheaf_tools::entry::MergedEntry;
use sheaf_tools::report::ReportChoice;
use sheaf_tools::report::list::{Hidden, ListOptions, ListRow, Marks, Sort};
use sheaf_tools::report::time::{self, Clock};

/// List directories and files, equal listings once
#[derive(Args, Debug)]
#[command(after_help = "\
Names that the same hosts have stand together: where hosts differ, a directory
is shown in several blocks, each headed by its hosts.

Examples:
  sheaf ls -l /etc/ssh
  sheaf ls -1tr 'n[1-64]:/var/spool/*'")]
pub struct LsArgs {
    #[command(flatten)]
    pub files: Addresses,

    /// Long format: mode, links, owner, group, size, time
    #[arg(short)]
    pub long: bool,

    /// Long format with the numbers of owners and groups
    #[arg(short, long)]
    pub numeric_uid_gid: bool,

    /// Put a mark of its kind behind each name: / directory, @ link, * program,
    /// | pipe, = socket
    #[arg(short = 'F', long, overrides_with = "slashes")]
    pub classify: bool,

    /// Put / behind the names of directories
    #[arg(short = 'p', overrides_with = "classify")]
    pub slashes: bool,

    /// Show entries whose name starts with a dot, too
    #[arg(short, long, overrides_with = "almost_all")]
    pub all: bool,

    /// Show them, but not . and ..
    #[arg(short = 'A', long, overrides_with = "all")]
    pub almost_all: bool,

    /// Show the number of each inode
    #[arg(short, long)]
    pub inode: bool,

    /// List directories below, too
    #[arg(short = 'R', long)]
    pub recursive: bool,

    /// List directories themselves, not what is in them
    #[arg(short, long)]
    pub directory: bool,

    /// Sizes as 4.0K, 234M, 2.1G
    #[arg(short = 'h', long)]
    pub human_readable: bool,

    /// Sort by time, newest first
    #[arg(short = 't', overrides_with_all = SORTS)]
    pub by_time: bool,

    /// Sort by size, largest first
    #[arg(short = 'S', overrides_with_all = SORTS)]
    pub by_size: bool,

    /// Sort by the last part of the name, from its last dot on
    #[arg(short = 'X', overrides_with_all = SORTS)]
    pub by_extension: bool,

    /// Do not sort
    #[arg(short = 'U', overrides_with_all = SORTS)]
    pub unsorted: bool,

    /// Sort by name, time, size, extension, version (numbers by value), or none of
    /// them
    #[arg(long, value_name = "WORD", overrides_with_all = SORTS, hide_possible_values = true)]
    pub sort: Option<SortBy>,

    /// Sort the other way round
    #[arg(short, long)]
    pub reverse: bool,

    /// One entry on each line
    #[arg(short = '1')]
    pub one_per_line: bool,

    /// How -l shows times: full-iso, long-iso, iso, locale
    #[arg(long, value_name = "STYLE", default_value = "long-iso", hide_possible_values = true)]
    pub time_style: TimeStyleArg,

    /// As -l --time-style full-iso
    #[arg(long)]
    pub full_time: bool,

    #[command(flatten)]
    pub heads: Heads,
}

/// Options that say how to sort: the last one counts.
const SORTS: [&str; 5] = ["by_time", "by_size", "by_extension", "unsorted", "sort"];

/// What to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SortBy {
    Name,
    Time,
    Size,
    Extension,
    Version,
    None,
}

/// How times are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimeStyleArg {
    /// `2026-01-31 18:04:05.000000000 +0000`.
    FullIso,
    /// `2026-01-31 18:04`.
    LongIso,
    /// `01-31 18:04`, or the date alone when long ago.
    Iso,
    /// `Jan 31 18:04`, or with the year when long ago.
    Locale,
}

/// Lists the files.
pub fn run(args: &LsArgs, global: &GlobalArgs) -> Result<Exit> {
    let mut options = args.options();
    // As JSON, sizes are numbers of bytes, and times whole.
    options.human &= !global.json;
    options.full_time |= global.json;
    let style = match args.time_style {
        _ if global.json || args.full_time => time::TimeStyle::FullIso,
        TimeStyleArg::FullIso => time::TimeStyle::FullIso,
        TimeStyleArg::LongIso => time::TimeStyle::LongIso,
        TimeStyleArg::Iso => time::TimeStyle::Iso,
        TimeStyleArg::Locale => time::TimeStyle::Locale,
    };
    let clock = Clock { zone: TimeZone::system(), now: jiff::Timestamp::now() };
    per_path::report(
        global,
        (&args.files, args.heads),
        &ReportChoice::List(options.clone()),
        &mut |printer, mut entries| {
            ListRow::sort(&options, &mut entries);
            for section in entries.chunk_by(|a, b| a.path == b.path) {
                let rows: Vec<ListRow> = section
                    .iter()
                    .map(|entry| ListRow::read(&options, style, &clock, entry.entry.text))
                    .collect();
                let lines = ListRow::align(&rows).into_iter().zip(section);
                let lines = lines.map(|(text, entry)| Line {
                    path: entry.path,
                    leaves: entry.leaves,
                    text,
                });
                match printer.layout() {
                    Layout::Json => print_json(printer, &options, section, &rows)?,
                    Layout::Flat if !options.long && !options.inode => {
                        printer.names(lines.collect())?
                    }
                    Layout::Heading if !options.long && !options.inode && !args.one_per_line => {
                        printer.columns(lines.collect())?;
                    }
                    _ => printer.sections(lines.collect())?,
                }
            }
            Ok(())
        },
    )
}

impl LsArgs {
    fn options(&self) -> ListOptions {
        ListOptions {
            long: self.long || self.numeric_uid_gid || self.full_time,
            numeric: self.numeric_uid_gid,
            marks: match (self.classify, self.slashes) {
                (true, _) => Marks::All,
                (false, true) => Marks::Directories,
                (false, false) => Marks::None,
            },
            inode: self.inode,
            hidden: match (self.all, self.almost_all) {
                (true, _) => Hidden::Show,
                (false, true) => Hidden::Almost,
                (false, false) => Hidden::Skip,
            },
            recursive: self.recursive,
            directory: self.directory,
            human: self.human_readable,
            sort: match self {
                Self { by_time: true, .. } | Self { sort: Some(SortBy::Time), .. } => Sort::Time,
                Self { by_size: true, .. } | Self { sort: Some(SortBy::Size), .. } => Sort::Size,
                Self { by_extension: true, .. } | Self { sort: Some(SortBy::Extension), .. } => {
                    Sort::Extension
                }
                Self { sort: Some(SortBy::Version), .. } => Sort::Version,
                Self { unsorted: true, .. } | Self { sort: Some(SortBy::None), .. } => Sort::None,
                _ => Sort::Name,
            },
            reverse: self.reverse,
            full_time: self.full_time || self.time_style == TimeStyleArg::FullIso,
        }
    }
}

fn print_json(
    printer: &mut Printer<'_>,
    options: &ListOptions,
    entries: &[MergedEntry<'_>],
    rows: &[ListRow],
) -> std::io::Result<()> {
    let mut names: Vec<&str> = if options.inode { vec!["inode"] } else { Vec::new() };
    names.extend(["mode", "links", "owner", "group", "size", "time"]);
    for (entry, row) in entries.iter().zip(rows) {
        let mut object = serde_json::Map::new();
        for (name, (text, _)) in names.iter().zip(&row.columns) {
            let number = ["inode", "links", "size"].contains(name).then(|| text.parse::<u64>());
            let (name, value) = match number {
                Some(Ok(number)) => (*name, number.into()),
                // Devices have two numbers where others have their size.
                Some(Err(_)) => ("device", text.as_str().into()),
                None => (*name, Value::from(text.trim_end())),
            };
            object.insert(name.to_owned(), value);
        }
        put_text(&mut object, "name", &row.name);
        if let Some(target) = &row.target {
            put_text(&mut object, "target", target);
        }
        printer.json(entry.leaves, entry.path, object)?;
    }
    Ok(())
}
