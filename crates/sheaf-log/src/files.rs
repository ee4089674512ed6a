//! Files and directories of traces: opened, removed, checked for their owner.
use crate::error::TraceError;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Removes a file if it exists.
///
/// # Errors
/// When the file exists and cannot be removed.
pub fn remove(path: &Path) -> Result<(), TraceError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(TraceError::io(path)(error)),
        _ => Ok(()),
    }
}

/// Opens a regular file for reading. Anything else is refused, because opening a pipe would wait for
/// its writer.
///
/// # Errors
/// When the path is not a regular file, or it cannot be opened.
pub fn open(path: &Path) -> Result<File, TraceError> {
    const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let opened = File::options().read(true).custom_flags(NONBLOCK).open(path);
    let file = opened.map_err(TraceError::io(path))?;
    if !file.metadata().map_err(TraceError::io(path))?.is_file() {
        return Err(TraceError::damaged(path, "it is no file"));
    }
    Ok(file)
}

/// Checks that this user owns a directory. The paths that a trace contains are trusted only then,
/// because files at these paths are removed.
///
/// # Errors
/// When it is not a directory or another user owns it.
pub fn check_own(directory: &Path) -> Result<(), TraceError> {
    let about = std::fs::symlink_metadata(directory).map_err(TraceError::io(directory))?;
    if !about.is_dir() || about.uid() != rustix::process::geteuid().as_raw() {
        return Err(TraceError::damaged(directory, "it is no directory of this user's"));
    }
    Ok(())
}

/// Checks that this user owns a directory and that no other user can write to it.
///
/// # Errors
/// When it is not a directory, another user owns it, or its mode lets others write.
pub fn check_private(directory: &Path) -> Result<(), TraceError> {
    const OTHERS_WRITE: u32 = 0o022;
    check_own(directory)?;
    let about = std::fs::symlink_metadata(directory).map_err(TraceError::io(directory))?;
    if about.mode() & OTHERS_WRITE != 0 {
        return Err(TraceError::damaged(directory, "others than its owner may write there"));
    }
    Ok(())
}
