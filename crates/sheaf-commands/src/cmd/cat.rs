//! `sheaf cat`: the content of files, equal contents printed once.
use anyhow::Result;
use clap::Args;
use sheaf_cli::addresses::Addresses;
use sheaf_cli::exit::Exit;
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::json::put_text;
use sheaf_cli::output::{Heads, Layout, Printer, is_over};
use sheaf_cli::session::{self, Ended, Opening};
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
        let mut numbers = LineNumbers::default();
        let mut print = |piece: Piece<'_>| {
            if is_over() {
                return Err(ErrorKind::BrokenPipe.into());
            }
            if output.json {
                return print_json(&mut printer, &piece);
            }
            if piece.at == 0 {
                numbers = LineNumbers::default();
                let layout = printer.layout();
                if layout == Layout::Heading || (layout == Layout::Flat && !piece.same_hosts) {
                    printer.content_heading(piece.leaves, piece.path)?;
                }
            }
            let numbered = if args.number { numbers.put(piece.bytes) } else { Vec::new() };
            let bytes = if args.number { &numbered } else { piece.bytes };
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

/// Numbers lines that come in pieces, as `cat -n` does.
#[derive(Default)]
struct LineNumbers {
    line: u64,
    within_line: bool,
}

impl LineNumbers {
    fn put(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut numbered = Vec::with_capacity(bytes.len() * 2);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !self.within_line {
                self.line += 1;
                numbered.extend_from_slice(format!("{:6}\t", self.line).as_bytes());
            }
            numbered.extend_from_slice(line);
            self.within_line = !line.ends_with(b"\n");
        }
        numbered
    }
}

fn print_json(printer: &mut Printer<'_>, piece: &Piece<'_>) -> std::io::Result<()> {
    let mut object = serde_json::Map::new();
    object.insert("offset".to_owned(), piece.at.into());
    object.insert("last".to_owned(), piece.is_last.into());
    put_text(&mut object, "text", piece.bytes);
    printer.json(piece.leaves, piece.path, object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_across_pieces() {
        let mut numbers = LineNumbers::default();
        let text: Vec<u8> = ["a\nb", "c\n", "\n", "d"]
            .iter()
            .flat_map(|piece| numbers.put(piece.as_bytes()))
            .collect();
        assert_eq!(String::from_utf8(text).unwrap(), "     1\ta\n     2\tbc\n     3\t\n     4\td");
    }
}
