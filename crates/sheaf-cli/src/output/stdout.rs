//! Standard output, whose trouble is no end of the command: what is done is done, and is reported.
use crate::exit::io_text;
use crate::stdio;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, StdoutLock, Write};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Why nothing more is printed.
static FAILED: OnceLock<Failed> = OnceLock::new();

struct Failed {
    /// Whoever read us has seen enough.
    reader_left: bool,
    text: String,
}

/// Standard output, locked. Once it has failed, it takes everything and prints nothing:
/// [`stdout_error`] tells why, [`is_over`] that it does.
pub struct Stdout {
    out: StdoutLock<'static>,
    /// What is written arrives.
    prints: bool,
}

/// Locks standard output.
pub fn stdout() -> Stdout {
    Stdout { out: io::stdout().lock(), prints: stdio::prints() }
}

/// Bytes that are written at once where there is much to print.
const BLOCK_BYTES: usize = 64 << 10;

/// Locks standard output for one who prints much: where nobody watches, lines go out many at once.
pub fn stdout_in_blocks() -> BufWriter<Stdout> {
    let room = if io::stdout().is_terminal() { 0 } else { BLOCK_BYTES };
    BufWriter::with_capacity(room, stdout())
}

/// Prints the help, or the version, that was asked for.
pub fn print_help(asked: &clap::Error) {
    let printed = if stdio::prints() { asked.print() } else { Err(rustix::io::Errno::BADF.into()) };
    if let Err(error) = printed.and_then(|()| io::stdout().flush()) {
        fail(&error);
    }
}

/// Why standard output is not whole, unless its reader went away, which is no error (`sheaf … |
/// head`).
pub fn stdout_error() -> Option<&'static str> {
    FAILED.get().filter(|failed| !failed.reader_left).map(|failed| failed.text.as_str())
}

/// How long printing has taken, in nanoseconds, if somebody wants to know.
static PRINTING_NS: AtomicU64 = AtomicU64::new(0);

/// How long printing has taken, with `-v`.
pub fn printing_time() -> Duration {
    Duration::from_nanos(PRINTING_NS.load(Ordering::Relaxed))
}

/// Does what prints, and counts its time where that is told.
fn timed<T>(print: impl FnOnce() -> T) -> T {
    let begun = tracing::enabled!(tracing::Level::INFO).then(Instant::now);
    let done = print();
    if let Some(begun) = begun {
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        PRINTING_NS.fetch_add(ns, Ordering::Relaxed);
    }
    done
}

/// Whether nothing more is printed, so that what would only be printed need not be fetched.
pub fn is_over() -> bool {
    FAILED.get().is_some()
}

fn fail(error: &io::Error) {
    let text = io_text(Path::new("standard output"), error);
    // The first one counts.
    let _ = FAILED.set(Failed { reader_left: error.kind() == ErrorKind::BrokenPipe, text });
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() || is_over() {
            return Ok(bytes.len());
        }
        super::wipe();
        let written = if self.prints {
            timed(|| self.out.write(bytes))
        } else {
            Err(rustix::io::Errno::BADF.into())
        };
        match written {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                fail(&error);
                Ok(bytes.len())
            }
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match timed(|| self.out.flush()) {
            Err(error) if !is_over() => fail(&error),
            _ => {}
        }
        Ok(())
    }
}
