//! Who is asked before a name goes, and the names that are gone.
use super::ArchiveRmArgs;
use crate::counted;
use anyhow::{Result, anyhow};
use sheaf_cli::options::GlobalArgs;
use sheaf_cli::output::{self, Output, printable};
use std::io::{self, BufRead, BufWriter, Write};

/// More names than these are asked about with `-I`.
const UNASKED_NAMES_MAX: usize = 3;

/// Asks on standard error, and reads the answers of standard input, a line each.
#[derive(Clone, Copy)]
pub struct RemoveAsker;

impl RemoveAsker {
    /// Asks of each name with `-i`; nobody otherwise.
    pub fn of_each(args: &ArchiveRmArgs) -> Option<Self> {
        (args.interactive && !args.dry_run).then_some(Self)
    }

    /// Asks once of all with `-I`, where they are many or `-r` is given. Says whether to go on.
    pub fn goes_on(args: &ArchiveRmArgs, has_patterns: bool) -> Result<bool> {
        let count = args.names.len();
        let are_many = count > UNASKED_NAMES_MAX || args.recursive || has_patterns;
        if !args.once || args.dry_run || count == 0 || !are_many {
            return Ok(true);
        }
        let arguments = counted(count as u64, "argument", "arguments");
        let how = if args.recursive { " recursively" } else { "" };
        ask(&format!("remove {arguments}{how}"))
    }

    /// Asks whether a name goes, or whether to look at what is in a directory. `kind` is as `ls -l` has
    /// it, with whether nothing is in it.
    pub fn asks(self, path: &[u8], kind: (char, bool), descends: bool) -> Result<bool> {
        let what = match kind {
            ('d', _) if descends => "descend into directory",
            ('d', _) => "remove directory",
            ('l', _) => "remove symbolic link",
            ('p', _) => "remove fifo",
            ('s', _) => "remove socket",
            ('c', _) => "remove character special file",
            ('b', _) => "remove block special file",
            (_, true) => "remove regular empty file",
            _ => "remove regular file",
        };
        ask(&format!("{what} '{}'", String::from_utf8_lossy(path)))
    }
}

fn ask(question: &str) -> Result<bool> {
    let question = format!("sheaf: {}? ", printable(question));
    let unasked = |error| anyhow!("cannot ask, so nothing more is removed: {error}");
    io::stderr().write_all(question.as_bytes()).map_err(unasked)?;
    Ok(matches!(first_of_line(&mut io::stdin().lock())?, Some(b'y' | b'Y')))
}

/// Reads a line, however long it is, and has its first byte; nothing at the end.
fn first_of_line(from: &mut dyn BufRead) -> io::Result<Option<u8>> {
    let mut first = None;
    loop {
        let read = match from.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        first = first.or(read.first().copied());
        let end = read.iter().position(|byte| *byte == b'\n');
        let is_over = end.is_some() || read.is_empty();
        let bytes = end.map_or(read.len(), |at| at + 1);
        from.consume(bytes);
        if is_over {
            return Ok(first);
        }
    }
}

/// Prints the names that are gone, or would be.
pub struct GoneNames {
    out: BufWriter<output::Stdout>,
    is_terminal: bool,
    dry_run: bool,
    /// Each is seen before the next question.
    at_once: bool,
}

impl GoneNames {
    pub fn new(args: &ArchiveRmArgs, global: &GlobalArgs) -> Self {
        Self {
            out: output::stdout_in_blocks(),
            is_terminal: Output::new(global).stdout_is_terminal,
            dry_run: args.dry_run,
            at_once: args.interactive,
        }
    }

    /// What is gone is said as by `rm -v`, and what would go is a list of names.
    pub fn put(&mut self, path: &[u8], is_directory: bool) -> Result<()> {
        let quote = if self.dry_run { "" } else { "'" };
        if !self.dry_run {
            write!(self.out, "removed {}", if is_directory { "directory " } else { "" })?;
        }
        self.out.write_all(quote.as_bytes())?;
        if self.is_terminal {
            write!(self.out, "{}", printable(&String::from_utf8_lossy(path)))?;
        } else {
            self.out.write_all(path)?;
        }
        writeln!(self.out, "{quote}")?;
        if self.at_once { self.flush() } else { Ok(()) }
    }

    pub fn flush(&mut self) -> Result<()> {
        Ok(self.out.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_lines() {
        let mut answers = &b"yes\n\nY\n no\ny"[..];
        let mut next = || first_of_line(&mut answers).unwrap();
        let firsts: Vec<_> = (0..6).map(|_| next()).collect();
        assert_eq!(firsts, [Some(b'y'), Some(b'\n'), Some(b'Y'), Some(b' '), Some(b'y'), None]);
    }
}
