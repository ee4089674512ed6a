//! Links.
use super::leaf::Done;
use sheaf_core::Errno;
use sheaf_file::{Export, RemoveOptions};
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
    // The link, its temporary name and the rename are of one directory.
    let export = &host.export.holding(directory_of(&path), true)?;
    if force && is_target(export, target, &path, symbolic) {
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

/// Whether the file at `path`, which the link is to replace, is the last or the same name of what
/// the link would lead to, as GNU ln decides it: replaced, the file would be lost.
fn is_target(export: &Export, target: &Path, path: &Path, symbolic: bool) -> bool {
    let from = if symbolic { &directory_of(path).join(target) } else { target };
    let there = export.lstat(path);
    let leads_to = if symbolic { export.stat(from) } else { export.lstat(from) };
    let (Ok(there), Ok(leads_to)) = (there, leads_to) else { return false };
    there.id() == leads_to.id() && (there.nlink <= 1 || is_same_name(export, from, path))
}

/// Whether two paths are one name in one directory.
fn is_same_name(export: &Export, one: &Path, other: &Path) -> bool {
    let dir = |path: &Path| export.stat(directory_of(path)).map(|dir| dir.id());
    one.file_name() == other.file_name() && dir(one).is_ok_and(|id| dir(other) == Ok(id))
}

/// The directory that the last name of a path is in.
fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ if path.is_absolute() => Path::new("/"),
        _ => Path::new("."),
    }
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
