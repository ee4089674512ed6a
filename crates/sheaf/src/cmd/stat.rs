//! `sheaf stat`: what the file system says of a file, equal answers printed once.
use super::{Addresses, per_path};
use crate::cli::GlobalArgs;
use crate::exit::{Exit, Stop};
use crate::output::json::put_text;
use crate::output::{Heads, Line, Printer};
use anyhow::Result;
use clap::Args;
use jiff::tz::TimeZone;
use serde_json::Map;
use sheaf_tools::entry::MergedEntry;
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
    let as_fields = global.json && args.format.is_none();
    let format = if as_fields { Some(FIELDS_FORMAT.to_owned()) } else { args.format.clone() };
    let options = StatOptions { format, dereference: args.dereference };
    options.check().map_err(|problem| Stop::usage(format!("--format: {problem}")))?;
    let zone = TimeZone::system();
    per_path::report(global, (&args.files, args.heads), &Report::Stat(options), &mut |printer, entries| {
        if as_fields {
            return entries.iter().try_for_each(|entry| print_json(printer, entry, &zone));
        }
        let lines = entries.into_iter().map(|entry| Line {
            path: entry.path,
            leaves: entry.leaves,
            text: stat::text(entry.entry.text, &zone),
        });
        printer.sections(lines.collect())
    })
}

/// What JSON has of a file, in the order of [`FIELDS_FORMAT`].
const FIELDS: &[&str] = &[
    "size",
    "blocks",
    "block_bytes",
    "io_block",
    "device",
    "inode",
    "links",
    "uid",
    "gid",
    "kind",
    "mode",
    "user",
    "group",
    "accessed",
    "modified",
    "changed",
    "born",
    "target",
];
const FIELDS_FORMAT: &str = "%s\t%b\t%B\t%o\t%d\t%i\t%h\t%u\t%g\t%F\t%04a\t%U\t%G\t%x\t%y\t%z\t%w\t%P";
/// So many of them are numbers.
const FIELDS_NUMBERS: usize = 9;

fn print_json(printer: &mut Printer<'_>, entry: &MergedEntry<'_>, zone: &TimeZone) -> std::io::Result<()> {
    let text = stat::text(entry.entry.text, zone);
    let mut object = Map::new();
    for (at, (name, value)) in FIELDS.iter().zip(text.splitn(FIELDS.len(), |&byte| byte == b'\t')).enumerate()
    {
        let value = match *name {
            // The name comes first, and is there already.
            "target" => match value.strip_prefix(entry.path).and_then(|rest| rest.strip_prefix(b" -> ")) {
                Some(target) => target,
                None => continue,
            },
            // A file system may not know when a file was born.
            "born" if value == b"-" => continue,
            _ => value,
        };
        match std::str::from_utf8(value).ok().filter(|_| at < FIELDS_NUMBERS).map(str::parse::<u64>) {
            Some(Ok(number)) => drop(object.insert((*name).to_owned(), number.into())),
            _ => put_text(&mut object, name, value),
        }
    }
    printer.json(entry.leaves, entry.path, object)
}
