//! Standard output, whose errors say that they are its own.
use crate::exit::io_text;
use std::io::{self, StdoutLock, Write};
use std::path::Path;

/// Standard output, locked.
pub struct Stdout(StdoutLock<'static>);

/// Locks standard output.
pub fn stdout() -> Stdout {
    Stdout(io::stdout().lock())
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

/// The same kind of error, so that a reader who left is known as one.
fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), io_text(Path::new("standard output"), &error))
}
