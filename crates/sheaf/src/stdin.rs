//! Standard input, for commands that copy it.
use crate::exit::Stop;
use anyhow::Result;
use rustix::fs::{OFlags, fcntl_getfl, fstat, major, minor};
use std::fs::File;
use std::os::fd::AsFd;

/// The device `/dev/null`.
const NULL: (u32, u32) = (1, 3);

/// Standard input as a file, which tells every error of reading; the standard library's own reader
/// takes an input that is not open for an empty one.
///
/// # Errors
/// A usage error when it is closed. The runtime has then opened `/dev/null` in its place, for reading
/// and writing; who redirects it there opens it for reading.
pub fn open() -> Result<File> {
    let stdin = std::io::stdin();
    let closed = || Stop::usage("standard input is closed; < /dev/null is an empty one");
    let flags = fcntl_getfl(stdin.as_fd()).map_err(|_| closed())?;
    let stat = fstat(stdin.as_fd())?;
    let is_device = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_char_device();
    if is_device && (major(stat.st_rdev), minor(stat.st_rdev)) == NULL && flags.contains(OFlags::RDWR) {
        return Err(closed().into());
    }
    Ok(stdin.as_fd().try_clone_to_owned()?.into())
}
