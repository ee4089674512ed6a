//! The three standard streams, as the caller handed them over.
//!
//! A stream that was closed looks open to a Rust program, since the runtime puts `/dev/null` in its
//! place: what is printed there is lost, and what is read there is an empty file. A caller who
//! means `/dev/null` opens it in the same way, so only a look before the runtime's start tells the
//! two apart.
use crate::exit::Stop;
use anyhow::Result;
use rustix::fs::{OFlags, fcntl_getfl};
use sheaf_file::FileIdentity;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, Ordering};

/// A bit for each of the three streams that was closed when the program began.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// The loader calls it before the runtime.
#[used]
#[allow(unsafe_code)]
// SAFETY: the section holds pointers to functions of the C ABI; this one needs nothing that a start
// prepares, and ignores the arguments it is called with.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for number in 0..3 {
        #[allow(unsafe_code)]
        // SAFETY: the descriptor is only asked about, and the answer may be that it is not open.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        if rustix::io::fcntl_getfd(fd).is_err() {
            CLOSED.fetch_or(1 << number, Ordering::Relaxed);
        }
    }
}

fn was_closed(number: u8) -> bool {
    CLOSED.load(Ordering::Relaxed) & 1 << number != 0
}

/// Has a program that replaces this one find closed what was closed here. The runtime's `/dev/null` would
/// look like an open stream to it.
pub fn close_before_exec() {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let streams = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    for (number, stream) in (0..).zip(streams).filter(|(number, _)| was_closed(*number)) {
        if let Err(error) = rustix::io::fcntl_setfd(stream, rustix::io::FdFlags::CLOEXEC) {
            tracing::warn!(%error, number, "a standard stream stays open");
        }
    }
}

/// Standard input as a file, which tells every error of reading; the standard library's own reader
/// takes an input that is not open for an empty one.
///
/// # Errors
/// A usage error when it is closed.
pub fn input() -> Result<File> {
    if was_closed(0) {
        return Err(Stop::usage("standard input is closed; < /dev/null is an empty one").into());
    }
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// The identity of the file that is standard input; `None` for a pipe or a terminal, and if the
/// stream is closed.
#[must_use]
pub fn input_identity() -> Option<FileIdentity> {
    // Reading reports what is wrong with the stream.
    (!was_closed(0)).then(|| FileIdentity::of(io::stdin()).ok().flatten()).flatten()
}

/// Standard input, for who may not read it at all: that it is closed shows at the first read.
#[derive(Default)]
pub struct StandardInput(Option<File>);

impl StandardInput {
    /// Reads nothing yet.
    pub fn new() -> Self {
        Self(None)
    }
}

impl Read for StandardInput {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.0.is_none() {
            let usage = |error: anyhow::Error| match error.downcast::<Stop>() {
                Ok(stop) => io::Error::other(stop),
                Err(error) => io::Error::other(error),
            };
            self.0 = Some(input().map_err(usage)?);
        }
        self.0.as_mut().map_or(Ok(0), |file| file.read(bytes))
    }
}

/// Whether what is printed arrives: standard output was open, for writing. The standard library
/// takes an output that is not for one that has taken everything.
pub fn prints() -> bool {
    let mode = |flags: OFlags| flags & OFlags::RWMODE;
    !was_closed(1)
        && fcntl_getfl(io::stdout().as_fd()).is_ok_and(|flags| mode(flags) != OFlags::RDONLY)
}
