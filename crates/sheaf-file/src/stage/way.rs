//! The way that a symbolic link leads, and who could have laid it.
use super::place::{LINKS_MAX, final_place};
use crate::Result;
use crate::export::{Export, ExportPlace, fd_metadata};
use rustix::fd::AsFd;
use rustix::fs::OFlags;
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// In a directory with this bit everybody may make names.
const ANYBODY: u32 = 0o0002;
/// In one with this bit its group may.
const GROUP: u32 = 0o0020;
/// With this one, too, each may remove its own only.
const STICKY: u32 = 0o1000;

/// Who could have chosen where a path leads.
#[derive(Default)]
pub(crate) struct Makers {
    users: Vec<u32>,
    /// Anybody at all.
    anybody: bool,
}

impl Makers {
    /// Whether none of them gets anything by it that it does not have: a file of `owner` is
    /// written, or there is none yet.
    pub fn may_lead_to(&self, owner: Option<u32>) -> bool {
        let own = rustix::process::geteuid().as_raw();
        !self.anybody
            && self.users.iter().all(|user| [Some(own), Some(0), owner].contains(&Some(*user)))
    }

    /// A name was looked up in a directory, and this was found.
    fn add(&mut self, dir: &Metadata, found: Option<&Metadata>, has_list: &dyn Fn() -> bool) {
        self.users.push(dir.uid);
        if dir.mode & ANYBODY != 0 {
            // Whoever may not write to a directory cannot move it there, but may move a link or a file.
            let is_kept = |found: &&Metadata| {
                dir.mode & STICKY != 0 && found.is_dir() && !is_others_to_move(found, has_list)
            };
            match found.filter(is_kept) {
                Some(found) => self.users.push(found.uid),
                None => self.anybody = true,
            }
        }
        if let Some(link) = found.filter(|found| found.kind == FileKind::Symlink) {
            self.users.push(link.uid);
        }
    }
}

/// Whether a directory may be written to by others than its owner. A group of the number of the caller is the caller's
/// alone; with an access list a group's rights are those of all whom it names.
fn is_others_to_move(found: &Metadata, has_list: &dyn Fn() -> bool) -> bool {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let is_of_others = || (found.gid, group) != (user, user) || has_list();
    found.mode & ANYBODY != 0 || (found.mode & GROUP != 0 && is_of_others())
}

/// As [`final_place`], and who could have made the path lead there: nobody, where no link is followed.
/// Each directory on the way is opened in the one before, so that the way which is judged is the way that
/// is gone.
pub(super) fn judged_place(export: &Export, path: &Path) -> Result<(ExportPlace, Makers)> {
    let place = match export.place(path) {
        Err(Errno::INVAL) => return Ok((final_place(export, path)?, Makers::default())),
        place => place?,
    };
    if place.link_to_follow()?.is_none() {
        return Ok((place, Makers::default()));
    }
    // Only the kernel knows a magic link, and what it forbids is not done by way of the text.
    if let Err(errno) = export.resolve(path, OFlags::empty())
        && errno != Errno::NOENT
    {
        return Err(errno);
    }
    walk(export, path)
}

pub(crate) fn walk(export: &Export, path: &Path) -> Result<(ExportPlace, Makers)> {
    let (mut dirs, mut makers, mut links) = (vec![export.top()?], Makers::default(), 0);
    let mut rest = names(path);
    while let Some(name) = rest.pop() {
        let is_last = rest.is_empty();
        match name.as_bytes() {
            b"/" => dirs.truncate(1),
            b".." if dirs.len() > 1 => drop(dirs.pop()),
            b"." | b".." | b"" => {}
            _ => {
                let dir = &dirs[dirs.len() - 1];
                let about = fd_metadata(dir.as_fd())?;
                let found = match export.step(dir, &name) {
                    Err(Errno::NOENT) if is_last => None,
                    found => Some(found?),
                };
                let metadata =
                    found.as_ref().map(|found| fd_metadata(found.as_fd())).transpose()?;
                let has_list = || found.as_ref().is_some_and(crate::held::has_access_list);
                makers.add(&about, metadata.as_ref(), &has_list);
                if let (Some(link), Some(FileKind::Symlink)) =
                    (&found, metadata.as_ref().map(|found| found.kind))
                {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Errno::LOOP);
                    }
                    rest.extend(names(&crate::export::link_target(link)?));
                } else if is_last {
                    let dir = dirs.pop().ok_or(Errno::NOENT)?;
                    return Ok((ExportPlace { dir, name, must_be_dir: false }, makers));
                } else {
                    dirs.push(found.ok_or(Errno::NOENT)?);
                }
            }
        }
    }
    // No name is left.
    Err(Errno::ISDIR)
}

/// The names of a path, the last one first; a slash at its end asks for the directory.
fn names(path: &Path) -> Vec<OsString> {
    let bytes = path.as_os_str().as_bytes();
    let from_root = bytes.starts_with(b"/").then_some(&b"/"[..]);
    let at_end = bytes.ends_with(b"/").then_some(&b"."[..]);
    let names = bytes.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
    let all = from_root.into_iter().chain(names).chain(at_end);
    let mut all: Vec<OsString> = all.map(|name| OsStr::from_bytes(name).to_owned()).collect();
    all.reverse();
    all
}
