//! Errors of decoders, told apart from those of reading: the file is damaged, or ends too early.
use sheaf_core::Errno;
use std::error::Error;
use std::io::{self, Read};

/// What a decoder gives, with [`Errno::DAMAGED`] or [`Errno::TRUNCATED`] for its own errors.
pub(super) struct Decoded<R>(pub R);

impl<R: Read> Read for Decoded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out).map_err(named)
    }
}

/// An error of a decoder by its name. One with an error number is of the file that is read.
pub(super) fn named(error: io::Error) -> io::Error {
    use io::ErrorKind::{Interrupted, InvalidData, InvalidInput, OutOfMemory, UnexpectedEof};
    let errno = match error.kind() {
        _ if error.raw_os_error().is_some() => return error,
        Interrupted | OutOfMemory => return error,
        UnexpectedEof => Errno::TRUNCATED,
        InvalidData | InvalidInput | io::ErrorKind::Other => {
            let cause = cause(&error);
            match cause.and_then(io::Error::raw_os_error) {
                Some(errno) => Errno(errno),
                None if cause.is_some_and(|cause| cause.kind() == UnexpectedEof) => {
                    Errno::TRUNCATED
                }
                None => Errno::DAMAGED,
            }
        }
        _ => return error,
    };
    io::Error::from_raw_os_error(errno.0)
}

/// The error of reading that a decoder's error was made of.
fn cause(error: &io::Error) -> Option<&io::Error> {
    let mut next: Option<&(dyn Error + 'static)> = Some(error.get_ref()?);
    while let Some(cause) = next {
        if let Some(error) = cause.downcast_ref() {
            return Some(error);
        }
        next = cause.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::decompress::{self, tests::compressed};
    use super::*;
    use std::io::Write;

    fn errno(data: &[u8]) -> Option<Errno> {
        let read = || -> io::Result<()> {
            let mut out = Vec::new();
            Decoded(decompress::reader(data, b"file").map_err(named)?)
                .read_to_end(&mut out)
                .map(drop)
        };
        read().err().map(|error| Errno::from_io(&error))
    }

    #[test]
    fn damaged_and_truncated_files_are_told_apart() {
        let data: Vec<u8> =
            (0..60_000u32).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        for program in ["gzip", "bzip2", "xz", "zstd"] {
            let Some(file) = compressed(program, &data) else {
                let _ = writeln!(io::stderr(), "SKIPPED 1 test: {program} is not installed");
                continue;
            };
            assert_eq!(errno(&file), None, "{program}");
            for part in [file.len() / 4, file.len() / 2, file.len() - 3] {
                assert_eq!(errno(&file[..part]), Some(Errno::TRUNCATED), "{program} {part}");
            }
            let mut damaged = file.clone();
            let middle = file.len() / 2;
            damaged[middle..middle + 40].fill(0xa5);
            assert_eq!(errno(&damaged), Some(Errno::DAMAGED), "{program}");
        }
    }

    #[test]
    fn error_of_reading_keeps_its_number() {
        let error = named(io::Error::from_raw_os_error(5));
        assert_eq!(Errno::from_io(&error), Errno::IO);
        let inside = io::Error::other(io::Error::from_raw_os_error(110));
        assert_eq!(Errno::from_io(&named(inside)), Errno::TIMEDOUT);
    }
}
