//! Files and directories of traces: opened, removed, checked for their owner.
use crate::error::TraceError;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
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
    const NONBLOCK: i32 = OFlags::NONBLOCK.bits() as i32;
    let opened = File::options().read(true).custom_flags(NONBLOCK).open(path);
    let file = opened.map_err(TraceError::io(path))?;
    if !file.metadata().map_err(TraceError::io(path))?.is_file() {
        return Err(TraceError::damaged(path, "it is no file"));
    }
    Ok(file)
}

/// Opens a regular file of this user's as `options` say. It is not followed if it is a link, and
/// neither a pipe nor a lease makes the caller wait: a server opens files in directories where users
/// put what they like.
///
/// # Errors
/// When it is not a regular file of this user's, or it cannot be opened.
pub fn open_own(path: &Path, options: &mut OpenOptions) -> Result<File, TraceError> {
    const FLAGS: i32 = OFlags::NONBLOCK.union(OFlags::NOFOLLOW).bits() as i32;
    let file = options.custom_flags(FLAGS).open(path).map_err(TraceError::io(path))?;
    let about = file.metadata().map_err(TraceError::io(path))?;
    if !about.is_file() || about.uid() != rustix::process::geteuid().as_raw() {
        return Err(TraceError::damaged(path, "it is no regular file of this user's"));
    }
    Ok(file)
}

/// The text of a file of this user's that has no more than so many bytes; `None` if there is none.
///
/// # Errors
/// As [`open_own`]; when it is longer, or no text.
pub fn read_small(path: &Path, bytes_max: u64) -> Result<Option<String>, TraceError> {
    let file = match open_own(path, File::options().read(true)) {
        Err(TraceError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            return Ok(None);
        }
        opened => opened?,
    };
    let mut text = String::new();
    let read = file.take(bytes_max + 1).read_to_string(&mut text);
    if read.map_err(TraceError::io(path))? as u64 > bytes_max {
        return Err(TraceError::damaged(path, format!("it has more than {bytes_max} bytes")));
    }
    Ok(Some(text))
}

/// Replaces the text of a file, which is complete or not there at any moment.
///
/// # Errors
/// When it cannot be written.
pub fn replace(path: &Path, text: &str) -> Result<(), TraceError> {
    let part = path.with_extension("part");
    remove(&part)?;
    let made = File::options().write(true).create_new(true).mode(0o600).open(&part);
    let written = made.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(TraceError::io(&part))?;
    std::fs::rename(&part, path).map_err(TraceError::io(path))
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
