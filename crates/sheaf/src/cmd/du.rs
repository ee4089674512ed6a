//! `sheaf du`: the space files take.
use super::{Addresses, per_path};
use crate::cli::GlobalArgs;
use crate::exit::Exit;
use anyhow::Result;
use clap::Args;
use sheaf_tools::entry::EntryKind;
use sheaf_tools::report::{Report, UsageOptions};

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

    /// Sizes as 4.0K, 234M, 2.1G
    #[arg(short = 'h', long)]
    pub human_readable: bool,

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

    /// Sizes in bytes: --apparent-size, and no rounding to KiB
    #[arg(short, long, conflicts_with = "human_readable")]
    pub bytes: bool,
}

/// Measures the files.
pub fn run(args: &DuArgs, global: &GlobalArgs) -> Result<Exit> {
    let options = UsageOptions {
        human: args.human_readable,
        bytes: args.bytes,
        all: args.all,
        max_depth: if args.summarize { Some(0) } else { args.max_depth },
        one_file_system: args.one_file_system,
        total: args.total,
        apparent: args.apparent_size || args.bytes,
    };
    per_path::report(global, &args.files, &Report::Usage(options), &mut |printer, merged| {
        // The totals come first, because they have no path, and are shown last.
        let (totals, files): (Vec<_>, Vec<_>) =
            per_path::said(merged).into_iter().partition(|entry| entry.entry.kind == EntryKind::Count);
        for entry in files.iter().chain(&totals) {
            let tab = entry.entry.text.iter().position(|byte| *byte == b'\t').unwrap_or(0);
            let (size, path) = entry.entry.text.split_at(tab);
            printer.behind(size, b"\t", entry.leaves, path.get(1..).unwrap_or_default(), "size")?;
        }
        Ok(())
    })
}
