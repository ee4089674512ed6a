//! Standard output, whose errors say that they are its own.
use crate::exit::io_text;
use crate::stdio;
use std::io::{self, StdoutLock, Write};
use std::path::Path;

/// Standard output, locked.
pub struct Stdout {
    out: StdoutLock<'static>,
    /// What is written arrives.
    prints: bool,
}

/// Locks standard output.
pub fn stdout() -> Stdout {
    Stdout { out: io::stdout().lock(), prints: stdio::prints() }
}

/// Prints the help, or the version, that was asked for.
pub fn print_help(asked: &clap::Error) -> io::Result<()> {
    let mut out = stdout();
    if !out.prints {
        return out.write_all(b"help");
    }
    drop(out);
    asked.print().and_then(|()| io::stdout().flush()).map_err(named)
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.prints || bytes.is_empty() {
            true => self.out.write(bytes).map_err(named),
            false => Err(named(io::Error::from(rustix::io::Errno::BADF))),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush().map_err(named)
    }
}

/// The same kind of error, so that a reader who left is known as one.
fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), io_text(Path::new("standard output"), &error))
}
