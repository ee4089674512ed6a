//! `sheaf ls`: directories listed, equal listings printed once.
use super::per_path;
use anyhow::Result;
use clap::{Args, ValueEnum};
use jiff::tz::TimeZone;
use sheaf_cli::addresses::Addresses;
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{Heads, Layout, Line, Printer, printable, tell};
use sheaf_records::{Device, Entry, text};
use sheaf_tools::entry::MergedEntry;
use sheaf_tools::report::ReportChoice;
use sheaf_tools::report::list::{Hidden, ListOptions, ListRow, ListTime, Marks, Sort};
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

    /// Sort by name, numbers in it by their value
    #[arg(short = 'v', overrides_with_all = SORTS)]
    pub by_version: bool,

    /// Do not sort
    #[arg(short = 'U', overrides_with_all = SORTS)]
    pub unsorted: bool,

    /// Sort by name, time, size, extension, version (numbers by value), or none of
    /// them
    #[arg(long, value_name = "WORD", overrides_with_all = SORTS, hide_possible_values = true)]
    pub sort: Option<SortBy>,

    /// Use the time of the last access: show it with -l, sort by it with -t or without -l
    #[arg(short = 'u', overrides_with_all = TIMES)]
    pub accessed: bool,

    /// Use the time of the last change of the status in the same way
    #[arg(short = 'c', overrides_with_all = TIMES)]
    pub changed: bool,

    /// Use this time in the same way: atime, ctime, mtime, birth
    #[arg(long, value_name = "WORD", overrides_with_all = TIMES, hide_possible_values = true)]
    pub time: Option<TimeWord>,

    /// Sort the other way round
    #[arg(short, long)]
    pub reverse: bool,

    /// One entry on each line
    #[arg(short = '1')]
    pub one_per_line: bool,

    /// How -l shows times: full-iso, long-iso (the default), iso, locale. TIME_STYLE is the same
    #[arg(long, value_name = "STYLE", hide_possible_values = true)]
    pub time_style: Option<TimeStyleArg>,

    /// As -l --time-style full-iso
    #[arg(long)]
    pub full_time: bool,

    #[command(flatten)]
    pub heads: Heads,
}

/// Options that say how to sort: the last one counts.
const SORTS: [&str; 6] = ["by_time", "by_size", "by_extension", "by_version", "unsorted", "sort"];

/// Options that say which time is used: the last one counts.
const TIMES: [&str; 3] = ["accessed", "changed", "time"];

/// A time of a file, by the words of GNU ls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimeWord {
    #[value(alias = "access", alias = "use")]
    Atime,
    #[value(alias = "status")]
    Ctime,
    #[value(alias = "modification")]
    Mtime,
    #[value(alias = "creation")]
    Birth,
}

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

/// The variable of GNU ls for the style of times.
const TIME_STYLE: &str = "TIME_STYLE";

impl TimeStyleArg {
    /// The style of `TIME_STYLE`; a style that only GNU ls knows is stated and has no effect.
    fn of_environment(global: &GlobalArgs) -> Option<Self> {
        let value = std::env::var(TIME_STYLE).ok().filter(|value| !value.is_empty())?;
        let word = value.strip_prefix("posix-").unwrap_or(&value);
        let style = Self::from_str(word, false).ok();
        if style.is_none() && !global.quiet {
            let words = "full-iso, long-iso, iso or locale";
            let value = printable(&value);
            tell(format_args!("sheaf: {TIME_STYLE}={value} is ignored: it is not {words}"));
        }
        style
    }
}

/// Lists the files.
pub fn run(args: &LsArgs, global: &GlobalArgs) -> Result<Exit> {
    let mut options = args.options();
    // As JSON, sizes are numbers of bytes, and times whole.
    options.human &= !global.json;
    options.full_time |= global.json;
    let time_style = args.time_style.or_else(|| TimeStyleArg::of_environment(global));
    let time_style = time_style.unwrap_or(TimeStyleArg::LongIso);
    options.full_time |= time_style == TimeStyleArg::FullIso;
    let style = match time_style {
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
                if printer.layout() == Layout::Json {
                    print_json(printer, &options, section, &rows)?;
                    continue;
                }
                let aligned = ListRow::align(&rows).into_iter();
                let mut lines = Vec::new();
                for ((text, row), entry) in aligned.zip(&rows).zip(section) {
                    let (path, leaves) = (entry.path, entry.leaves);
                    if !row.name.is_empty() {
                        lines.push(Line { path, leaves, text });
                    } else if printer.layout() == Layout::Heading {
                        printer.heading(leaves, path)?;
                    }
                }
                match printer.layout() {
                    Layout::Flat if !options.long && !options.inode => printer.names(lines)?,
                    Layout::Heading if !options.long && !options.inode && !args.one_per_line => {
                        printer.columns(lines)?;
                    }
                    _ => printer.sections(lines)?,
                }
            }
            Ok(())
        },
    )
}

impl LsArgs {
    fn is_long(&self) -> bool {
        self.long || self.numeric_uid_gid || self.full_time
    }

    fn names_time(&self) -> bool {
        self.accessed || self.changed || self.time.is_some()
    }

    fn options(&self) -> ListOptions {
        ListOptions {
            long: self.is_long(),
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
                Self { by_version: true, .. } | Self { sort: Some(SortBy::Version), .. } => {
                    Sort::Version
                }
                Self { unsorted: true, .. } | Self { sort: Some(SortBy::None), .. } => Sort::None,
                Self { sort: Some(SortBy::Name), .. } => Sort::Name,
                // As with GNU ls, a time that is named and not shown is what to sort by.
                _ if self.names_time() && !self.is_long() => Sort::Time,
                _ => Sort::Name,
            },
            time: match self {
                Self { accessed: true, .. } | Self { time: Some(TimeWord::Atime), .. } => {
                    ListTime::Accessed
                }
                Self { changed: true, .. } | Self { time: Some(TimeWord::Ctime), .. } => {
                    ListTime::Changed
                }
                Self { time: Some(TimeWord::Birth), .. } => ListTime::Born,
                _ => ListTime::Modified,
            },
            reverse: self.reverse,
            full_time: self.full_time,
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
        // Of an empty directory there is no name.
        let is_empty = row.name.is_empty();
        let (name, name_base64) = if is_empty { (None, None) } else { text(&row.name) };
        let (target, target_base64) = row.target.as_deref().map_or((None, None), text);
        let mut record = Entry { name, name_base64, target, target_base64, ..Entry::default() };
        for (name, (text, _)) in names.iter().zip(&row.columns) {
            let number = text.parse::<u64>();
            let word = Some(text.trim_end().to_owned());
            match (*name, number) {
                ("inode", Ok(number)) => record.inode = Some(number),
                ("links", Ok(number)) => record.links = Some(number),
                ("size", Ok(number)) => record.size = Some(number),
                // Devices have two numbers where others have their size.
                ("inode" | "links" | "size", Err(_)) => {
                    record.device = Some(Device::Numbers(text.clone()))
                }
                ("mode", _) => record.mode = word,
                ("owner", _) => record.owner = word,
                ("group", _) => record.group = word,
                _ => record.time = word,
            }
        }
        printer.json(entry.leaves, entry.path, record)?;
    }
    Ok(())
}
