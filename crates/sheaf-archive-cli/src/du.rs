//! `sheaf archive du`: how much is archived.
use super::hosts;
use super::local;
use super::place::{self, NamedPlace};
use super::size_unit::{self, SizeUnit, UsageUnit};
use super::version::AtArgs;
use anyhow::{Context, Result};
use clap::Args;
use sheaf_archive::{
    Archive, ArchiveError, ArchivePath, ArchivedUsage, LocalUsageOptions, LocalUsageSum,
    TreeWalkOptions, UsageExclude, UsageSum, UsageSumOptions,
};
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use sheaf_records::{ArchiveUsage, LocalUsage, UsageFields, text};
use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// Show how much is archived in directories, or takes room on this machine
///
/// Sizes are in KiB, rounded up: of what is archived those of the contents that are
/// stored, without holes, of paths of this machine what they take on the disk.
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

    #[command(flatten)]
    pub version: AtArgs,

    /// One total for each name, nothing below it
    #[arg(short, long, conflicts_with = "max_depth")]
    pub summarize: bool,

    /// Print nothing deeper than N levels below the name
    #[arg(short = 'd', long, value_name = "N")]
    pub max_depth: Option<usize>,

    /// End with the total of all
    #[arg(short = 'c', long)]
    pub total: bool,

    #[command(flatten)]
    pub unit: UsageUnit,

    /// Sizes of contents with their holes, not what is stored or on the disk
    #[arg(long)]
    pub apparent_size: bool,

    /// Each file of this machine, too, not directories alone
    #[arg(short, long, conflicts_with = "summarize")]
    pub all: bool,

    /// Of directories, tell what is in them without the directories in them
    #[arg(short = 'S', long)]
    pub separate_dirs: bool,

    /// Count files and directories, not bytes
    #[arg(long)]
    pub inodes: bool,

    /// Count a file by each name that it has
    #[arg(short = 'l', long)]
    pub count_links: bool,

    /// Tell only what is SIZE or more, or with - before it SIZE or less
    #[arg(short, long, value_name = "SIZE", value_parser = size_unit::threshold)]
    #[arg(allow_hyphen_values = true)]
    pub threshold: Option<i64>,

    /// Leave out files and directories whose path, or its end, fits a pattern
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,

    /// End each line with a NUL
    #[arg(short = '0', long)]
    pub null: bool,

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
    let exclude = UsageExclude::new(&args.exclude);
    let mut printer = UsagePrinter { args, out, output, depth_max, has_failed: false };
    let mut sum = LocalUsageSum::new(LocalUsageOptions {
        tells_files: args.all,
        one_file_system: args.one_file_system,
        separates: args.separate_dirs,
        counts_names: args.count_links,
        exclude: exclude.clone(),
        walk: TreeWalkOptions::default(),
    });
    let mut archives: Vec<(PathBuf, Archive)> = Vec::new();
    for name in &names {
        if let NamedPlace::Archived(name) = name
            && !archives.iter().any(|(store, _)| *store == name.store)
        {
            archives.push((name.store.clone(), place::open_to_read(&name.store)?));
        }
    }
    let options = UsageSumOptions {
        separates: args.separate_dirs,
        counts_names: args.count_links,
        counts_holes: args.apparent_size || args.unit.is_apparent,
        exclude: exclude.clone(),
    };
    let mut sums: Vec<_> = archives
        .iter()
        .map(|(store, archive)| (store, archive, UsageSum::with(archive, options.clone())))
        .collect();
    let mut all = ShownUsage::default();
    for name in names {
        let usage = match name {
            NamedPlace::Archived(name) => {
                let sum = sums.iter_mut().find(|(store, ..)| **store == name.store);
                let (_, archive, sum) = sum.context("each store was opened")?;
                archived(&name.paths(archive)?, sum, &exclude, &mut printer)?
            }
            NamedPlace::Local(path) => local::usage::add(&mut sum, &path, &mut printer)?,
        };
        all.files += usage.files;
        all.directories += usage.directories;
        all.bytes += usage.bytes;
    }
    if args.total {
        printer.total(all)?;
    }
    printer.out.flush()?;
    Ok(if printer.has_failed { Exit::Partial } else { Exit::Success })
}

fn archived(
    paths: &[ArchivePath],
    sum: &mut UsageSum<'_>,
    exclude: &UsageExclude,
    printer: &mut UsagePrinter<'_>,
) -> Result<ShownUsage> {
    let mut all = ArchivedUsage::default();
    let shown = |usage: ArchivedUsage| ShownUsage {
        files: usage.files,
        directories: usage.directories,
        bytes: usage.bytes,
    };
    for path in paths {
        if exclude.fits(&path.as_bytes()) {
            continue;
        }
        let is_file = std::cell::Cell::new(true);
        let mut each = |below: &ArchivePath, usage| -> Result<()> {
            is_file.set(false);
            if below.depth() - path.depth() > printer.depth_max {
                return Ok(());
            }
            printer.print(UsageOf::Archive, &below.as_bytes(), shown(usage))
        };
        match sum.add(path, &mut each) {
            // It was counted before.
            Ok(usage) if usage == ArchivedUsage::default() => {}
            Ok(usage) => {
                if is_file.get() {
                    printer.print(UsageOf::Archive, &path.as_bytes(), shown(usage))?;
                }
                all += usage;
            }
            Err(error) if error.is::<ArchiveError>() => printer.failed(&error.to_string()),
            Err(error) => return Err(error),
        }
    }
    Ok(shown(all))
}

/// Files and directories, and bytes of contents or on the disk.
#[derive(Clone, Copy, Default)]
pub struct ShownUsage {
    pub files: u64,
    pub directories: u64,
    pub bytes: u64,
}

/// Where the files are.
#[derive(Clone, Copy)]
pub enum UsageOf {
    Archive,
    /// On this machine.
    Here,
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

    /// Tells of a file or directory, if it is one of the sizes that are to be told.
    pub fn print(&mut self, of: UsageOf, name: &[u8], usage: ShownUsage) -> Result<()> {
        let size = i128::from(self.size(usage));
        let is_told = match self.args.threshold.map(i128::from) {
            None => true,
            Some(most) if most < 0 => size <= -most,
            Some(least) => size >= least,
        };
        if is_told { self.line(of, name, usage) } else { Ok(()) }
    }

    /// Tells of all.
    fn total(&mut self, usage: ShownUsage) -> Result<()> {
        self.line(UsageOf::Archive, b"total", usage)
    }

    /// What is counted.
    fn size(&self, usage: ShownUsage) -> u64 {
        if self.args.inodes { usage.files + usage.directories } else { usage.bytes }
    }

    fn line(&mut self, of: UsageOf, name: &[u8], usage: ShownUsage) -> Result<()> {
        if self.output.json {
            let ShownUsage { files, directories, bytes } = usage;
            let (path, path_base64) = text(name);
            let usage = UsageFields { path, path_base64, files, directories, bytes };
            let (records, out) = (self.output.records, &mut self.out);
            match of {
                UsageOf::Archive => records.write(out, &ArchiveUsage { usage })?,
                UsageOf::Here => records.write(out, &LocalUsage { usage })?,
            }
            return Ok(());
        }
        let size = match &self.args.unit.unit {
            SizeUnit::Blocks { .. } if self.args.inodes => self.size(usage).to_string(),
            unit => unit.format(self.size(usage)),
        };
        write!(self.out, "{size}\t")?;
        if self.output.stdout_is_terminal && !self.args.null {
            write!(self.out, "{}", printable(&String::from_utf8_lossy(name)))?;
        } else {
            self.out.write_all(name)?;
        }
        Ok(self.out.write_all(if self.args.null { b"\0" } else { b"\n" })?)
    }
}
