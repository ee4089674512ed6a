//! `sheaf stat`: what the file system says of a file, equal answers printed once.
use super::{Addresses, per_path};
use crate::cli::GlobalArgs;
use crate::exit::{Exit, Stop};
use crate::output::{Heads, Line};
use anyhow::Result;
use clap::Args;
use jiff::tz::TimeZone;
use sheaf_tools::report::Report;
use sheaf_tools::report::stat::{self, StatOptions};

/// Show size, mode, owner and times of files, equal answers once
#[derive(Args, Debug)]
#[command(after_help = "\
Format: %n name, %s size in bytes, %a mode in octal, %A mode as ls shows it,
%F kind of file, %u %U owner, %g %G group, %h links, %i inode, %d device,
%b blocks, %B block size, %x %X access, %y %Y change of content, %z %Z change
of status (time, or seconds since 1970), %N name with the target of a link,
%% a percent sign.

Examples:
  sheaf stat -c '%a %U:%G %s' /etc/passwd
  sheaf stat -L 'n[1-8]:/etc/localtime'")]
pub struct StatArgs {
    #[command(flatten)]
    pub files: Addresses,

    /// Print this in place of the usual table; see below
    #[arg(short = 'c', long, value_name = "FORMAT")]
    pub format: Option<String>,

    /// Follow symbolic links
    #[arg(short = 'L', long)]
    pub dereference: bool,

    #[command(flatten)]
    pub heads: Heads,
}

/// Shows the files.
pub fn run(args: &StatArgs, global: &GlobalArgs) -> Result<Exit> {
    let options = StatOptions { format: args.format.clone(), dereference: args.dereference };
    options.check().map_err(|problem| Stop::usage(format!("--format: {problem}")))?;
    let zone = TimeZone::system();
    per_path::report(global, (&args.files, args.heads), &Report::Stat(options), &mut |printer, entries| {
        let lines = entries.into_iter().map(|entry| Line {
            path: entry.path,
            leaves: entry.leaves,
            text: stat::text(entry.entry.text, &zone),
        });
        printer.sections(lines.collect())
    })
}
