//! `sheaf archive du`: how much is archived.
use super::hosts;
use super::local;
use super::place::{self, ArchivedName, NamedPlace};
use crate::cli::GlobalArgs;
use crate::exit::{Exit, Stop};
use crate::output::json::put_text;
use crate::output::{self, Output, printable};
use anyhow::Result;
use clap::Args;
use serde_json::{Map, Value};
use sheaf_archive::{
    ArchiveError, ArchivePath, ArchivedUsage, LocalUsageOptions, LocalUsageSum, TreeWalkOptions,
    UsageSum,
};
use sheaf_tools::report::human;
use std::ffi::OsString;
use std::io::{BufWriter, Write};

/// Show how much is archived in directories, or takes room on this machine
///
/// Sizes are in KiB, rounded up: of what is archived those of the files' contents, of
/// paths of this machine what they take on the disk.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf archive du -sh '/backup::/home/*'
  sheaf archive du -c -d 1 /backup::
  sheaf archive du -xsh / /home")]
pub struct ArchiveDuArgs {
    /// Archived files and directories, paths of this machine, or HOSTSET:PATH
    #[arg(value_name = "STORE::PATH|PATH", required = true)]
    pub names: Vec<OsString>,

    /// One total for each name, nothing below it
    #[arg(short, long, conflicts_with = "max_depth")]
    pub summarize: bool,

    /// Print nothing deeper than N levels below the name
    #[arg(short = 'd', long, value_name = "N")]
    pub max_depth: Option<usize>,

    /// End with the total of all
    #[arg(short = 'c', long)]
    pub total: bool,

    /// Sizes as 4.0K, 234M, 2.1G
    #[arg(short = 'h', long, overrides_with = "bytes")]
    pub human_readable: bool,

    /// Sizes of contents in bytes
    #[arg(short, long, overrides_with = "human_readable")]
    pub bytes: bool,

    /// Sizes of contents, not what they take on the disk
    #[arg(long)]
    pub apparent_size: bool,

    /// Each file of this machine, too, not directories alone
    #[arg(short, long, conflicts_with = "summarize")]
    pub all: bool,

    /// Leave out what is mounted below a path of this machine
    #[arg(short = 'x', long)]
    pub one_file_system: bool,

    /// Take each name for a path of this machine, even with `:` or `::` in it
    #[arg(long)]
    pub local: bool,
}

/// Sums up what is archived, or is on this machine.
pub fn run(args: &ArchiveDuArgs, global: &GlobalArgs) -> Result<Exit> {
    if hosts::are_on_hosts(&args.names, args.local)? {
        return hosts::tools::du(args, global);
    }
    let names = NamedPlace::parse_all(&args.names, args.local)?;
    if args.all && names.iter().any(|name| matches!(name, NamedPlace::Archived(_))) {
        return Err(
            Stop::usage("--all is for paths of this machine: find tells archived files").into()
        );
    }
    let depth_max = if args.summarize { 0 } else { args.max_depth.unwrap_or(usize::MAX) };
    let (out, output) = (output::stdout_in_blocks(), Output::new(global));
    let mut printer = UsagePrinter { args, out, output, depth_max, has_failed: false };
    let mut sum = LocalUsageSum::new(LocalUsageOptions {
        tells_files: args.all,
        one_file_system: args.one_file_system,
        walk: TreeWalkOptions::default(),
    });
    let mut all = ShownUsage::default();
    for name in names {
        let usage = match name {
            NamedPlace::Archived(name) => archived(&name, &mut printer)?,
            NamedPlace::Local(path) => local::usage::add(&mut sum, &path, &mut printer)?,
        };
        all.files += usage.files;
        all.bytes += usage.bytes;
    }
    if args.total {
        printer.print("archive_usage", b"total", all)?;
    }
    printer.out.flush()?;
    Ok(if printer.has_failed { Exit::Partial } else { Exit::Success })
}

fn archived(name: &ArchivedName, printer: &mut UsagePrinter<'_>) -> Result<ShownUsage> {
    let archive = place::open_to_read(&name.store)?;
    let mut sum = UsageSum::new(&archive);
    let mut all = ArchivedUsage::default();
    let shown = |usage: ArchivedUsage| ShownUsage { files: usage.files, bytes: usage.bytes };
    for path in name.paths(&archive)? {
        let is_file = std::cell::Cell::new(true);
        let mut each = |below: &ArchivePath, usage| -> Result<()> {
            is_file.set(false);
            if below.depth() - path.depth() > printer.depth_max {
                return Ok(());
            }
            printer.print("archive_usage", &below.as_bytes(), shown(usage))
        };
        match sum.add(&path, &mut each) {
            Ok(usage) => {
                if is_file.get() {
                    printer.print("archive_usage", &path.as_bytes(), shown(usage))?;
                }
                all += usage;
            }
            Err(error) if error.is::<ArchiveError>() => printer.failed(&error.to_string()),
            Err(error) => return Err(error),
        }
    }
    Ok(shown(all))
}

/// Files, and bytes of their contents or on the disk.
#[derive(Clone, Copy, Default)]
pub struct ShownUsage {
    pub files: u64,
    pub bytes: u64,
}

/// Tells how much there is.
pub struct UsagePrinter<'a> {
    pub args: &'a ArchiveDuArgs,
    out: BufWriter<output::Stdout>,
    output: Output,
    /// Levels that are told of.
    pub depth_max: usize,
    has_failed: bool,
}

impl UsagePrinter<'_> {
    /// Tells what went wrong.
    pub fn failed(&mut self, text: &str) {
        self.has_failed = true;
        output::tell(format_args!("sheaf: {}", printable(text)));
    }

    /// Tells of a file or directory.
    pub fn print(&mut self, kind: &str, name: &[u8], usage: ShownUsage) -> Result<()> {
        if self.output.json {
            let mut record = Map::new();
            record.insert("type".to_owned(), kind.into());
            put_text(&mut record, "path", name);
            record.insert("files".to_owned(), usage.files.into());
            record.insert("bytes".to_owned(), usage.bytes.into());
            return Ok(self.output.records.write(&mut self.out, Value::Object(record))?);
        }
        let size = if self.args.human_readable {
            human::size(usage.bytes)
        } else if self.args.bytes {
            usage.bytes.to_string()
        } else {
            usage.bytes.div_ceil(1024).to_string()
        };
        write!(self.out, "{size}\t")?;
        if self.output.stdout_is_terminal {
            write!(self.out, "{}", printable(&String::from_utf8_lossy(name)))?;
        } else {
            self.out.write_all(name)?;
        }
        Ok(self.out.write_all(b"\n")?)
    }
}
