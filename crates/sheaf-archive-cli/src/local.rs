//! Trees of this machine, as they are told of.
pub mod change;
pub mod copy;
pub mod find;
pub mod list;
pub mod usage;

use anyhow::Result;
use sheaf_archive::WalkedDirectory;
use sheaf_cli::output::{self, printable};
use sheaf_core::Errno;
use std::io::{self, Write};

/// Bytes that are printed at once.
const PRINTED_BYTES: usize = 64 << 10;

/// What some files of a directory are told as.
#[derive(Default)]
pub struct ToldFiles {
    /// For standard output.
    pub text: Vec<u8>,
    /// For standard error, each with its path.
    pub errors: Vec<String>,
}

impl ToldFiles {
    /// A file of which something is not known.
    pub fn failed(&mut self, path: &[u8], errno: Errno) {
        self.errors.push(format!("{}: {errno}", String::from_utf8_lossy(path)));
    }

    /// A directory of which something is not known.
    pub fn failed_directory(&mut self, directory: &WalkedDirectory, errno: Errno) {
        self.failed(directory.path(), errno);
    }

    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.errors.is_empty()
    }

    /// Bytes beside its own size.
    pub fn bytes(&self) -> usize {
        self.text.capacity() + self.errors.iter().map(String::capacity).sum::<usize>()
    }
}

/// Standard output in large parts.
pub struct TreePrinter<'a> {
    out: &'a mut dyn Write,
    text: Vec<u8>,
    has_failed: bool,
}

impl Write for TreePrinter<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(text);
        if self.text.len() >= PRINTED_BYTES {
            self.flush()?;
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.text)?;
        self.text.clear();
        Ok(())
    }
}

impl<'a> TreePrinter<'a> {
    /// Prints to standard output.
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self { out, text: Vec::new(), has_failed: false }
    }

    /// Prints what was made of some files.
    pub fn piece(&mut self, piece: &ToldFiles) -> Result<()> {
        self.text(&piece.text)?;
        for error in &piece.errors {
            self.has_failed = true;
            output::tell(format_args!("sheaf: {}", printable(error)));
        }
        Ok(())
    }

    /// Prints some text.
    pub fn text(&mut self, text: &[u8]) -> Result<()> {
        Ok(self.write_all(text)?)
    }

    /// Prints the rest. Says whether all was told.
    pub fn end(self) -> Result<bool> {
        self.out.write_all(&self.text)?;
        Ok(!self.has_failed)
    }
}
