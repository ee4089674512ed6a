//! `sheaf cat`: the content of files, equal contents printed once.
use anyhow::Result;
use clap::Args;
use sheaf_cli::addresses::Addresses;
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{Heads, Layout, Printer, is_over};
use sheaf_cli::session::{self, Ended, Opening};
use sheaf_records::{Entry, text};
use sheaf_tools::report::{self, Piece};
use std::io::ErrorKind;

/// Print the content of files, equal contents once
#[derive(Args, Debug)]
#[command(after_help = "\
Hosts stand above contents on a terminal, and wherever not all that is printed
is of the same hosts; --no-heading leaves them out.

Examples:
  sheaf cat /etc/hostname
  sheaf cat --label /etc/machine-id
  sheaf cat --each 'n[1-4]:/etc/fstab'")]
pub struct CatArgs {
    #[command(flatten)]
    pub files: Addresses,

    /// Print each host's content by itself, in host order
    #[arg(long)]
    pub each: bool,

    /// Number the lines
    #[arg(short, long)]
    pub number: bool,

    /// Number the lines that are not empty
    #[arg(short = 'b', long, overrides_with = "number")]
    pub number_nonblank: bool,

    /// Print one empty line where several follow each other
    #[arg(short, long)]
    pub squeeze_blank: bool,

    /// As -vET
    #[arg(short = 'A', long)]
    pub show_all: bool,

    /// Print $ at the end of each line
    #[arg(short = 'E', long)]
    pub show_ends: bool,

    /// Print tabs as ^I
    #[arg(short = 'T', long)]
    pub show_tabs: bool,

    /// Print other bytes that are not ASCII text as ^X and M-X
    #[arg(short = 'v', long)]
    pub show_nonprinting: bool,

    /// As -vE
    #[arg(short = 'e')]
    pub nonprinting_and_ends: bool,

    /// As -vT
    #[arg(short = 't')]
    pub nonprinting_and_tabs: bool,

    #[command(flatten)]
    pub heads: Heads,
}

/// Prints the files.
pub fn run(args: &CatArgs, global: &GlobalArgs) -> Result<Exit> {
    let opening = Opening::new(global)?;
    let targets = args.files.resolve(opening.config())?;
    opening.run(async |session, config, output| {
        let hosts = config.hosts()?;
        let mut printer = Printer::with_heads(output, hosts, args.heads);
        printer.label_paths(&targets);
        let show = args.show();
        let mut shown = ShownLines::default();
        let mut print = |piece: Piece<'_>| {
            if is_over() {
                return Err(ErrorKind::BrokenPipe.into());
            }
            if output.json {
                return print_json(&mut printer, &piece);
            }
            if piece.at == 0 {
                shown = ShownLines::default();
                let layout = printer.layout();
                if layout == Layout::Heading || (layout == Layout::Flat && !piece.same_hosts) {
                    printer.content_heading(piece.leaves, piece.path)?;
                }
            }
            let changed = if show.is_plain() { Vec::new() } else { shown.put(show, &piece) };
            let bytes = if show.is_plain() { piece.bytes } else { &changed };
            match printer.layout() {
                Layout::Label => printer.labelled(bytes, piece.leaves, piece.path, piece.at == 0),
                _ => printer.raw(bytes),
            }
        };
        let outcome = report::cat(session.client(), &targets, args.each, &mut print).await;
        let outcome = outcome.map_err(sheaf_cli::addresses::stop)?;
        printer.flush()?;
        session::finish(session, config, output, &Ended::new(&targets, &outcome))
    })
}

impl CatArgs {
    fn show(&self) -> Show {
        let nonprinting = self.show_nonprinting || self.nonprinting_and_ends;
        Show {
            number: self.number || self.number_nonblank,
            number_nonblank: self.number_nonblank,
            squeeze: self.squeeze_blank,
            ends: self.show_ends || self.show_all || self.nonprinting_and_ends,
            tabs: self.show_tabs || self.show_all || self.nonprinting_and_tabs,
            nonprinting: nonprinting || self.show_all || self.nonprinting_and_tabs,
        }
    }
}

/// What is shown beside the bytes themselves.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Show {
    number: bool,
    number_nonblank: bool,
    squeeze: bool,
    ends: bool,
    tabs: bool,
    nonprinting: bool,
}

impl Show {
    fn is_plain(self) -> bool {
        self == Self::default()
    }
}

/// Lines that come in pieces, shown as by `cat -nbsvET`.
#[derive(Default)]
struct ShownLines {
    line: u64,
    within_line: bool,
    /// Empty lines that follow each other.
    blank: u64,
    /// A carriage return that the next byte decides about.
    pending_return: bool,
}

impl ShownLines {
    fn put(&mut self, show: Show, piece: &Piece<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.bytes.len() * 2);
        for &byte in piece.bytes {
            self.put_byte(show, byte, &mut out);
        }
        if piece.is_last && std::mem::take(&mut self.pending_return) {
            out.push(b'\r');
        }
        out
    }

    fn put_byte(&mut self, show: Show, byte: u8, out: &mut Vec<u8>) {
        let is_blank = byte == b'\n' && !self.within_line;
        if is_blank {
            self.blank += 1;
            if show.squeeze && self.blank > 1 {
                return;
            }
        } else {
            self.blank = 0;
        }
        if !self.within_line && show.number && !(is_blank && show.number_nonblank) {
            self.line += 1;
            out.extend_from_slice(format!("{:6}\t", self.line).as_bytes());
        }
        self.within_line = byte != b'\n';
        if std::mem::take(&mut self.pending_return) {
            out.extend_from_slice(if byte == b'\n' { b"^M" } else { b"\r" });
        }
        match byte {
            b'\n' => out.extend_from_slice(if show.ends { b"$\n" } else { b"\n" }),
            b'\t' if show.tabs => out.extend_from_slice(b"^I"),
            b'\t' => out.push(byte),
            _ if show.nonprinting => put_visibly(byte, out),
            b'\r' if show.ends => self.pending_return = true,
            _ => out.push(byte),
        }
    }
}

/// A byte as text of ASCII: `^X` for a control character, `M-X` for a byte with its highest bit set.
fn put_visibly(byte: u8, out: &mut Vec<u8>) {
    if byte >= 0x80 {
        out.extend_from_slice(b"M-");
    }
    match byte & 0x7f {
        low @ 0..0x20 => out.extend_from_slice(&[b'^', low + 0x40]),
        0x7f => out.extend_from_slice(b"^?"),
        low => out.push(low),
    }
}

fn print_json(printer: &mut Printer<'_>, piece: &Piece<'_>) -> std::io::Result<()> {
    let (text, base64) = text(piece.bytes);
    let (offset, last) = (Some(piece.at), Some(piece.is_last));
    let record = Entry { offset, last, text, base64, ..Entry::default() };
    printer.json(piece.leaves, piece.path, record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_core::RangeSet;

    #[test]
    fn lines_are_numbered_across_pieces() {
        let mut shown = ShownLines::default();
        let show = Show { number: true, ..Show::default() };
        let leaves = RangeSet::new();
        let piece = |at, bytes| Piece {
            leaves: &leaves,
            path: b"/f",
            at,
            bytes,
            same_hosts: true,
            is_last: false,
        };
        let text: Vec<u8> = ["a\nb", "c\n", "\n", "d"]
            .iter()
            .flat_map(|text| shown.put(show, &piece(0, text.as_bytes())))
            .collect();
        assert_eq!(String::from_utf8(text).unwrap(), "     1\ta\n     2\tbc\n     3\t\n     4\td");
    }
}
