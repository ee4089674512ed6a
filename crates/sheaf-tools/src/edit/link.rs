//! Links.
use super::leaf::Done;
use sheaf_core::Errno;
use sheaf_file::{RemoveOptions, TEMP_PREFIX};
use sheaf_group::tool::Host;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Names that are tried for the link while the old file is still there.
const TEMP_NAMES_MAX: u32 = 100;

/// What a hard link needs is there; what is wrong with it is no fault of the link's own path.
pub fn check_target(target: &[u8], host: &Host) -> Result<(), Errno> {
    host.export.lstat(Path::new(OsStr::from_bytes(target))).map(drop)
}

/// Makes a link to `target` at `path`, or in it if it is a directory.
pub fn link(
    target: &[u8],
    path: &Path,
    symbolic: bool,
    force: bool,
    no_dereference: bool,
    is_dry: bool,
    host: &Host,
) -> Result<Done, Errno> {
    let target = Path::new(OsStr::from_bytes(target));
    let found = if no_dereference { host.export.lstat(path) } else { host.export.stat(path) };
    let path = match found {
        Ok(metadata) if metadata.is_dir() => path.join(target.file_name().ok_or(Errno::EXIST)?),
        _ => path.to_owned(),
    };
    let make = |at: &Path| {
        if symbolic { host.export.symlink(target, at) } else { host.export.hard_link(target, at) }
    };
    let arrow = if symbolic { "->" } else { "=>" };
    if is_dry {
        return match host.export.lstat(&path) {
            Ok(there) if !force || there.is_dir() => Err(Errno::EXIST),
            Ok(_) => Ok(Done::one(format!("would be replaced, {arrow} {}", target.display()))),
            Err(Errno::NOENT) => {
                Ok(Done::one(format!("would be made, {arrow} {}", target.display())))
            }
            Err(errno) => Err(errno),
        };
    }
    match make(&path) {
        Err(Errno::EXIST) if force => replace(&path, &make, host)?,
        made => made?,
    }
    Ok(Done::one(format!("{arrow} {}", target.display())))
}

/// Makes the link beside the old file and then takes its place: there is always one of the two.
fn replace(
    path: &Path,
    make: &dyn Fn(&Path) -> Result<(), Errno>,
    host: &Host,
) -> Result<(), Errno> {
    let temp = temp(path, make, host)?;
    let renamed = host.export.rename(&temp, path, true);
    // Between two names of one file, a rename does nothing and leaves both.
    let left = RemoveOptions { missing_ok: true, ..RemoveOptions::default() };
    host.export.remove(&temp, left)?;
    renamed
}

fn temp(
    path: &Path,
    make: &dyn Fn(&Path) -> Result<(), Errno>,
    host: &Host,
) -> Result<PathBuf, Errno> {
    for number in 0..TEMP_NAMES_MAX {
        let temp = path.with_file_name(format!("{TEMP_PREFIX}ln-{}-{number}", host.leaf));
        match make(&temp) {
            Err(Errno::EXIST) => {}
            made => return made.map(|()| temp),
        }
    }
    Err(Errno::EXIST)
}
