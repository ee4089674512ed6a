//! `sheaf stat`: what the file system says of a file, equal answers printed once.
use super::per_path;
use anyhow::Result;
use clap::Args;
use jiff::tz::TimeZone;
use sheaf_cli::addresses::Addresses;
use sheaf_cli::exit::{Exit, Stop};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{Heads, Layout, Line, Printer};
use sheaf_records::{Device, Entry, FileSystem};
use sheaf_tools::entry::MergedEntry;
use sheaf_tools::report::ReportChoice;
use sheaf_tools::report::stat::{self, StatOptions};

/// Show size, mode, owner and times of files, equal answers once
#[derive(Args, Debug)]
#[command(after_help = "\
Format: %n name, %s size in bytes, %a mode in octal, %A mode as ls shows it,
%F kind of file, %u %U owner, %g %G group, %h links, %i inode, %d device,
%b blocks, %B block size, %x %X access, %y %Y change of content, %z %Z change
of status (time, or seconds since 1970; %.3X has milliseconds), %m mount point,
%N name with the target of a link, %% a percent sign.
Format with -f: %n name, %i ID, %l longest name, %t %T type, %s %S block sizes,
%b blocks, %f free, %a available, %c inodes, %d free inodes.

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

    /// Print one line of numbers, for programs
    #[arg(short, long, conflicts_with_all = ["format", "printf"])]
    pub terse: bool,

    /// Show the file system of the file, not the file
    #[arg(short = 'f', long)]
    pub file_system: bool,

    #[command(flatten)]
    pub heads: Heads,
}

impl StatArgs {
    /// The line of `--terse`, that of GNU stat.
    fn terse_format(&self) -> &'static str {
        if self.file_system {
            "%n %i %l %t %s %S %b %f %a %c %d"
        } else {
            "%n %s %b %f %u %g %D %i %h %t %T %X %Y %Z %W %o"
        }
    }

    fn fields_format(&self) -> &'static str {
        if self.file_system { FILE_SYSTEM_FORMAT } else { FIELDS_FORMAT }
    }
}

/// Shows the files.
pub fn run(args: &StatArgs, global: &GlobalArgs) -> Result<Exit> {
    let printf = args.printf.as_deref().map(unescaped).transpose()?;
    let is_raw = printf.is_some();
    let as_fields = global.json && args.format.is_none() && printf.is_none() && !args.terse;
    let format = if as_fields {
        Some(args.fields_format().to_owned())
    } else {
        printf.or(args.format.clone())
    };
    let options = StatOptions {
        format: format.or_else(|| args.terse.then(|| args.terse_format().to_owned())),
        dereference: args.dereference,
        file_system: args.file_system,
    };
    options.check().map_err(|problem| Stop::usage(format!("--format: {problem}")))?;
    let zone = TimeZone::system();
    per_path::report(
        global,
        (&args.files, args.heads),
        &ReportChoice::Stat(options),
        &mut |printer, entries| {
            if as_fields && args.file_system {
                return entries.iter().try_for_each(|entry| print_file_system(printer, entry));
            }
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

/// The fields of a record: their values, separated by tabs.
const FIELDS_FORMAT: &str =
    "%s\t%b\t%B\t%o\t%d\t%i\t%h\t%u\t%g\t%F\t%04a\t%U\t%G\t%x\t%y\t%z\t%w\t%P";
const FIELDS: usize = 18;

/// The fields of a record of a file system.
const FILE_SYSTEM_FORMAT: &str = "%i\t%l\t%T\t%s\t%S\t%b\t%f\t%a\t%c\t%d";
const FILE_SYSTEM_FIELDS: usize = 10;

fn print_file_system(printer: &mut Printer<'_>, entry: &MergedEntry<'_>) -> std::io::Result<()> {
    let text = stat::text(entry.entry.text, &TimeZone::UTC);
    let values: Vec<&[u8]> = text.splitn(FILE_SYSTEM_FIELDS, |&byte| byte == b'\t').collect();
    let value = |at: usize| values.get(at).copied().unwrap_or_default();
    let number = |at: usize| std::str::from_utf8(value(at)).ok()?.parse::<u64>().ok();
    let word = |at: usize| Some(String::from_utf8_lossy(value(at)).into_owned());
    let file_system = FileSystem {
        id: word(0),
        name_bytes_max: number(1),
        kind: word(2),
        block_bytes: number(3),
        fundamental_block_bytes: number(4),
        blocks: number(5),
        blocks_free: number(6),
        blocks_available: number(7),
        inodes: number(8),
        inodes_free: number(9),
    };
    let record = Entry { file_system: Some(file_system), ..Entry::default() };
    printer.json(entry.leaves, entry.path, record)
}

fn print_json(
    printer: &mut Printer<'_>,
    entry: &MergedEntry<'_>,
    zone: &TimeZone,
) -> std::io::Result<()> {
    let text = stat::text(entry.entry.text, zone);
    let values: Vec<&[u8]> = text.splitn(FIELDS, |&byte| byte == b'\t').collect();
    let value = |at: usize| values.get(at).copied().unwrap_or_default();
    let number = |at: usize| std::str::from_utf8(value(at)).ok()?.parse::<u64>().ok();
    let word = |at: usize| Some(String::from_utf8_lossy(value(at)).into_owned());
    // The name comes first, and is there already.
    let target = value(17).strip_prefix(entry.path).and_then(|rest| rest.strip_prefix(b" -> "));
    let (target, target_base64) = target.map_or((None, None), sheaf_records::text);
    let record = Entry {
        size: number(0),
        blocks: number(1),
        block_bytes: number(2),
        io_block: number(3),
        device: number(4).map(Device::Number),
        inode: number(5),
        links: number(6),
        uid: number(7),
        gid: number(8),
        kind: word(9),
        mode: word(10),
        user: word(11),
        group: word(12),
        accessed: word(13),
        modified: word(14),
        changed: word(15),
        // A file system may not know when a file was born.
        born: word(16).filter(|born| born != "-"),
        target,
        target_base64,
        ..Entry::default()
    };
    printer.json(entry.leaves, entry.path, record)
}
