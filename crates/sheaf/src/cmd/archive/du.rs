//! `sheaf archive du`: how much is archived.
use super::place::{self, ArchivedName};
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use crate::output::json::put_text;
use crate::output::{self, Output, printable};
use anyhow::Result;
use clap::Args;
use serde_json::{Map, Value};
use sheaf_archive::{ArchiveError, ArchivePath, ArchivedUsage, UsageSum};
use sheaf_tools::report::human;
use std::ffi::OsString;
use std::io::Write;

/// Show how much is archived in directories
///
/// Sizes are those of the files' contents, in KiB, rounded up.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sheaf archive du -sh '/backup::/home/*'
  sheaf archive du -c -d 1 /backup::")]
pub struct ArchiveDuArgs {
    /// Archived files and directories
    #[arg(value_name = "STORE::PATH", required = true)]
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

    /// Sizes in bytes
    #[arg(short, long, overrides_with = "human_readable")]
    pub bytes: bool,
}

/// Sums up what is archived.
pub fn run(args: &ArchiveDuArgs, global: &GlobalArgs) -> Result<Exit> {
    let names: Result<Vec<_>> = args.names.iter().map(|name| ArchivedName::parse(name)).collect();
    let mut printer = UsagePrinter { args, out: output::stdout(), output: Output::new(global) };
    let (mut all, mut exit) = (ArchivedUsage::default(), Exit::Success);
    let depth_max = if args.summarize { 0 } else { args.max_depth.unwrap_or(usize::MAX) };
    for name in names? {
        let archive = place::open(&name.store, false)?;
        let mut sum = UsageSum::new(&archive);
        for path in name.paths(&archive)? {
            let is_file = std::cell::Cell::new(true);
            let mut each = |below: &ArchivePath, usage| -> Result<()> {
                is_file.set(false);
                if below.depth() - path.depth() > depth_max {
                    return Ok(());
                }
                printer.print(&below.as_bytes(), usage)
            };
            match sum.add(&path, &mut each) {
                Ok(usage) => {
                    if is_file.get() {
                        printer.print(&path.as_bytes(), usage)?;
                    }
                    all += usage;
                }
                Err(error) if error.is::<ArchiveError>() => {
                    exit = Exit::Partial;
                    output::tell(format_args!("sheaf: {}", printable(&error.to_string())));
                }
                Err(error) => return Err(error),
            }
        }
    }
    if args.total {
        printer.print(b"total", all)?;
    }
    printer.out.flush()?;
    Ok(exit)
}

struct UsagePrinter<'a> {
    args: &'a ArchiveDuArgs,
    out: output::Stdout,
    output: Output,
}

impl UsagePrinter<'_> {
    fn print(&mut self, name: &[u8], usage: ArchivedUsage) -> Result<()> {
        if self.output.json {
            let mut record = Map::new();
            record.insert("type".to_owned(), "archive_usage".into());
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
