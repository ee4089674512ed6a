//! The directories of `sheaf demo`: `sheaf-demo-PID`, of which a tour that was killed leaves its own.
use super::directory::{OpenDirectory, bytes_of};
use super::{LeftoverKind, Sweep, YOUNG};
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

const KIND: LeftoverKind = LeftoverKind::Demo;

/// The directory of the tour of a process, in the directory for temporary files.
#[must_use]
pub fn directory_of(temporary: &Path, process: u32) -> PathBuf {
    temporary.join(format!("{PREFIX}{process}"))
}

const PREFIX: &str = "sheaf-demo-";
/// The file that a tour makes in its directory, and has locked while it runs.
const MARK: &str = ".tour";

/// Marks a directory as that of a tour, which ends when the file is closed.
///
/// # Errors
/// Those of creating and locking the file.
pub fn mark(directory: &Path) -> std::io::Result<File> {
    let file = File::create_new(directory.join(MARK))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

pub(super) fn sweep(sweep: &mut Sweep, temporary: &Path) {
    let place = match OpenDirectory::open(temporary) {
        Ok(Some(place)) => place,
        Ok(None) => return,
        Err(error) => return sweep.fail(KIND, temporary.to_owned(), &error),
    };
    let names = match place.names() {
        Ok(names) => names,
        Err(error) => return sweep.fail(KIND, temporary.to_owned(), &error),
    };
    for name in names {
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if process.is_none() {
            continue;
        }
        if let Err(error) = sweep_one(sweep, &place, &name) {
            sweep.fail(KIND, place.path().join(&name), &error);
        }
    }
}

fn sweep_one(sweep: &mut Sweep, place: &OpenDirectory, name: &OsStr) -> std::io::Result<()> {
    let path = place.path().join(name);
    let Some(stat) = place.stat(name)? else { return Ok(()) };
    // Other users have theirs in the same place.
    if stat.st_uid != geteuid().as_raw() {
        return Ok(());
    }
    let directory = place.open_within(name)?;
    // Without the mark it is of a user who has chosen the name.
    let mark = match directory.open_file(MARK.as_ref()) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        mark => mark?,
    };
    if flock(&mark, FlockOperation::NonBlockingLockExclusive).is_err() {
        sweep.keep(KIND, path, "a tour runs");
        return Ok(());
    }
    if sweep.is_young(&stat) {
        sweep.keep(KIND, path, YOUNG);
        return Ok(());
    }
    let bytes = bytes_of(&stat) + directory.bytes()?;
    sweep.remove(KIND, (path, bytes), || {
        directory.remove_all()?;
        place.remove_empty(name)
    });
    Ok(())
}
