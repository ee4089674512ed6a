//! Links.
use super::leaf::Done;
use crate::paths::{directory_of, leads_to_itself, name_of};
use sheaf_core::Errno;
use sheaf_file::{Export, RemoveOptions};
use sheaf_group::tool::Host;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Names that are tried for the link while the old file is still there.
const TEMP_NAMES_MAX: u32 = 100;

/// The last name of a path, unless it ends in a dot or two.
fn last_name(path: &Path) -> Option<&OsStr> {
    let name = name_of(path);
    if name.is_empty() { None } else { Some(OsStr::from_bytes(name)) }
}

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
        Ok(metadata) if metadata.is_dir() => path.join(last_name(target).ok_or(Errno::EXIST)?),
        _ => path.to_owned(),
    };
    // The link, its temporary name and the rename are of one directory.
    let export = &host.export.holding(directory_of(&path), true)?;
    if force && leads_to_itself(export, target, &path, symbolic) {
        return Err(Errno::SAMEFILE);
    }
    let make = |at: &Path| {
        if symbolic { export.symlink(target, at) } else { export.hard_link(target, at) }
    };
    let arrow = if symbolic { "->" } else { "=>" };
    if is_dry {
        return match export.lstat(&path) {
            Ok(there) if !force || there.is_dir() => Err(Errno::EXIST),
            Ok(_) => Ok(Done::one(format!("would be replaced, {arrow} {}", target.display()))),
            Err(Errno::NOENT) => {
                Ok(Done::one(format!("would be made, {arrow} {}", target.display())))
            }
            Err(errno) => Err(errno),
        };
    }
    match make(&path) {
        Err(Errno::EXIST) if force => replace(&path, &make, export)?,
        made => made?,
    }
    Ok(Done::one(format!("{arrow} {}", target.display())))
}

/// Makes the link beside the old file and then takes its place: there is always one of the two.
fn replace(
    path: &Path,
    make: &dyn Fn(&Path) -> Result<(), Errno>,
    export: &Export,
) -> Result<(), Errno> {
    let temp = temp(path, make)?;
    let renamed = export.rename(&temp, path, true);
    // Between two names of one file, a rename does nothing and leaves both.
    let left = RemoveOptions { missing_ok: true, ..RemoveOptions::default() };
    export.remove(&temp, left)?;
    renamed
}

fn temp(path: &Path, make: &dyn Fn(&Path) -> Result<(), Errno>) -> Result<PathBuf, Errno> {
    for _ in 0..TEMP_NAMES_MAX {
        let temp = path.with_file_name(sheaf_file::temp_name());
        match make(&temp) {
            Err(Errno::EXIST) => {}
            made => return made.map(|()| temp),
        }
    }
    Err(Errno::EXIST)
}
