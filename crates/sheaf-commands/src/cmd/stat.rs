//! `sheaf stat`: what the file system says of a file, equal answers printed once.
use super::per_path;
use anyhow::Result;
use clap::Args;
use jiff::tz::TimeZone;
use serde_json::Map;
use sheaf_cli::addresses::Addresses;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::json::put_text;
use sheaf_cli::output::{Heads, Layout, Line, Printer};
use sheaf_tools::entry::MergedEntry;
use sheaf_tools::report::ReportChoice;
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
    #[arg(short = 'c', long, value_name = "FORMAT", overrides_with = "printf")]
    pub format: Option<String>,

    /// As --format, with \n, \t, \ooo and the like, and no newline but those
    #[arg(long, value_name = "FORMAT", overrides_with = "format")]
    pub printf: Option<String>,

    /// Follow symbolic links
    #[arg(short = 'L', long)]
    pub dereference: bool,

    #[command(flatten)]
    pub heads: Heads,
}

/// Shows the files.
pub fn run(args: &StatArgs, global: &GlobalArgs) -> Result<Exit> {
    let printf = args.printf.as_deref().map(unescaped).transpose()?;
    let is_raw = printf.is_some();
    let as_fields = global.json && args.format.is_none() && printf.is_none();
    let format =
        if as_fields { Some(FIELDS_FORMAT.to_owned()) } else { printf.or(args.format.clone()) };
    let options = StatOptions { format, dereference: args.dereference };
    options.check().map_err(|problem| Stop::usage(format!("--format: {problem}")))?;
    let zone = TimeZone::system();
    per_path::report(
        global,
        (&args.files, args.heads),
        &ReportChoice::Stat(options),
        &mut |printer, entries| {
            if as_fields {
                return entries.iter().try_for_each(|entry| print_json(printer, entry, &zone));
            }
            // One answer into a pipe is what stat itself would print.
            let is_one = printer.layout() == Layout::Flat && entries.len() == 1;
            if is_raw && (is_one || printer.layout() == Layout::Bare) {
                return entries
                    .iter()
                    .try_for_each(|entry| printer.raw(&stat::text(entry.entry.text, &zone)));
            }
            let lines = entries.into_iter().map(|entry| Line {
                path: entry.path,
                leaves: entry.leaves,
                text: {
                    let text = stat::text(entry.entry.text, &zone);
                    if is_raw {
                        text.strip_suffix(b"\n").map_or(text.clone(), <[u8]>::to_vec)
                    } else {
                        text
                    }
                },
            });
            printer.sections(lines.collect())
        },
    )
}

/// A format with its escapes taken for what they stand for; a percent sign stands for itself then.
fn unescaped(format: &str) -> Result<String, Stop> {
    let (mut text, mut chars) = (String::new(), format.chars().peekable());
    while let Some(char) = chars.next() {
        if char != '\\' {
            text.push(char);
            continue;
        }
        let simple =
            |letter| "\\\"abefnrtv".find(letter).map(|at| b"\\\"\x07\x08\x1b\x0c\n\r\t\x0b"[at]);
        let (radix, most) = match chars.peek() {
            Some('0'..='7') => (8, 3),
            Some('x') => (16, 2),
            Some(&letter) => {
                chars.next();
                text.push(simple(letter).map_or(letter, char::from));
                continue;
            }
            None => {
                return Err(Stop::usage(
                    "--printf: a backslash in the end stands for nothing; write \\\\",
                ));
            }
        };
        if radix == 16 {
            chars.next();
        }
        let mut digits = String::new();
        while digits.len() < most
            && let Some(digit) = chars.next_if(|char| char.is_digit(radix))
        {
            digits.push(digit);
        }
        match u8::from_str_radix(&digits, radix) {
            Ok(b'%') => text += "%%",
            Ok(byte) if byte.is_ascii() => text.push(char::from(byte)),
            _ => return Err(Stop::usage(format!("--printf: \\{digits} is no character of ASCII"))),
        }
    }
    Ok(text)
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
const FIELDS_FORMAT: &str =
    "%s\t%b\t%B\t%o\t%d\t%i\t%h\t%u\t%g\t%F\t%04a\t%U\t%G\t%x\t%y\t%z\t%w\t%P";
/// So many of them are numbers.
const FIELDS_NUMBERS: usize = 9;

fn print_json(
    printer: &mut Printer<'_>,
    entry: &MergedEntry<'_>,
    zone: &TimeZone,
) -> std::io::Result<()> {
    let text = stat::text(entry.entry.text, zone);
    let mut object = Map::new();
    for (at, (name, value)) in
        FIELDS.iter().zip(text.splitn(FIELDS.len(), |&byte| byte == b'\t')).enumerate()
    {
        let value = match *name {
            // The name comes first, and is there already.
            "target" => {
                match value.strip_prefix(entry.path).and_then(|rest| rest.strip_prefix(b" -> ")) {
                    Some(target) => target,
                    None => continue,
                }
            }
            // A file system may not know when a file was born.
            "born" if value == b"-" => continue,
            _ => value,
        };
        match std::str::from_utf8(value).ok().filter(|_| at < FIELDS_NUMBERS).map(str::parse::<u64>)
        {
            Some(Ok(number)) => drop(object.insert((*name).to_owned(), number.into())),
            _ => put_text(&mut object, name, value),
        }
    }
    printer.json(entry.leaves, entry.path, object)
}
