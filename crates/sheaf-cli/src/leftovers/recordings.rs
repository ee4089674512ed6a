//! The directories of recordings: `sheaf-trace-RANDOM` of `trace record`, and `sheaf-trace-UID` of
//! `trace record --served` and of the server that collects what is recorded there.
use super::directory::{OpenDirectory, bytes_of, is_directory};
use super::{LeftoverKind, Sweep, YOUNG};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use sheaf_log::served::{LeftSegments, left_segments};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const KIND: LeftoverKind = LeftoverKind::Recording;
const PREFIX: &[u8] = b"sheaf-trace-";
/// The files of such a directory, beside those that [`is_of_recording`] knows by their ends.
const FILES: [&[u8]; 9] = [
    b"trace",
    b"libsheaf_trace.so",
    b"snapshots.failed",
    b"dropped",
    b"spool.part",
    b"client.lock",
    b"life",
    b"collected",
    b"stored",
];

pub fn sweep(sweep: &mut Sweep, buffers: &Path) {
    let place = match OpenDirectory::open(buffers) {
        Ok(Some(place)) => place,
        Ok(None) => return,
        Err(error) => return sweep.fail(KIND, buffers.to_owned(), &error),
    };
    let names = match place.names() {
        Ok(names) => names,
        Err(error) => return sweep.fail(KIND, buffers.to_owned(), &error),
    };
    for name in names.iter().filter(|name| is_name(name.as_bytes())) {
        if let Err(error) = sweep_one(sweep, &place, name) {
            sweep.fail(KIND, place.path().join(name), &error);
        }
    }
}

/// Whether a directory of this name may be of a recording: what follows the prefix is a user's number or
/// made at random. A directory that a user named usually has another name, such as that of a crate.
fn is_name(name: &[u8]) -> bool {
    let rest = name.strip_prefix(PREFIX);
    rest.is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_alphanumeric))
}

/// Whether recordings make a file of this name in their directory.
fn is_of_recording(name: &[u8]) -> bool {
    name.ends_with(b".segment")
        || name.starts_with(b"damaged-")
        || name.starts_with(b"new.")
        || FILES.contains(&name)
}

fn sweep_one(sweep: &mut Sweep, place: &OpenDirectory, name: &OsStr) -> io::Result<()> {
    let path = place.path().join(name);
    let Some(stat) = place.stat(name)? else { return Ok(()) };
    // Other users record in the same place.
    if stat.st_uid != geteuid().as_raw() {
        return Ok(());
    }
    if !is_directory(&stat) {
        return Ok(());
    }
    let directory = place.open_within(name)?;
    for name in directory.names()? {
        let is_file = directory.stat(&name)?.is_none_or(|stat| !is_directory(&stat));
        if !is_file || !is_of_recording(name.as_bytes()) {
            let why = format!("it contains {}, which no recording makes", name.display());
            sweep.keep(KIND, path, why);
            return Ok(());
        }
    }
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            sweep.keep(KIND, path, "a process records there");
            return Ok(());
        }
        Err(errno) => return Err(errno.into()),
    }
    let unstored = match left_segments(&directory.stable_path()).map_err(io::Error::other)? {
        LeftSegments::Used(why) => {
            sweep.keep(KIND, path, why);
            return Ok(());
        }
        LeftSegments::Left(unstored) => unstored,
    };
    if sweep.is_young(&stat) {
        sweep.keep(KIND, path, YOUNG);
    } else if unstored > 0 && !sweep.removal.recordings {
        let why = format!(
            "{unstored} operations in it are in no trace: sheaf trace recover stores them, \
             --recordings removes them"
        );
        sweep.keep(KIND, path, why);
    } else {
        let bytes = bytes_of(&stat) + directory.bytes()?;
        sweep.remove(KIND, (path, bytes), || {
            directory.remove_all()?;
            place.remove_empty(name)
        });
    }
    Ok(())
}
