//! Changes at a leaf: one path after the other, one file of a tree a step.
use super::{Edit, SizeChange, link};
use crate::paths::{AtWork, PerPath};
use crate::report::human;
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_file::{
    Attributes, FileKind, Follow, Globbed, Metadata, Mode, ModeChange, OFlags, Owner, RemoveOptions, Walk,
    WalkOptions, group_name, user_name,
};
use sheaf_group::entry::{Answer, Entry, EntryKind, Sink};
use sheaf_group::tool::{Host, Running, Tool};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Name of the tool.
pub const NAME: &str = "edit";

/// Files of a tree that are changed in one step.
const STEP_FILES: usize = 256;

/// What every leaf is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct Params {
    pub edit: Edit,
    /// Paths and patterns beneath the export.
    pub paths: Vec<String>,
    /// Say what was done.
    pub verbose: bool,
}

pub struct EditTool;

impl Tool for EditTool {
    fn start(&self, params: &[u8], _: &Host) -> Result<Box<dyn Running>, Errno> {
        let Params { edit, paths, verbose } = postcard::from_bytes(params).map_err(|_| Errno::PROTO)?;
        let owner = match &edit {
            Edit::Chown { owner, .. } => Owner::resolve(owner),
            _ => Ok(Owner::default()),
        };
        Ok(Box::new(AtWork::new(Box::new(Editor { edit, owner, verbose, walk: None }), paths)))
    }
}

struct Editor {
    edit: Edit,
    /// The owner of a `Chown`, as this host numbers it, if it knows it.
    owner: Result<Owner, Errno>,
    verbose: bool,
    walk: Option<Walk>,
}

impl PerPath for Editor {
    fn expand(&self, pattern: &str, host: &Host) -> Globbed {
        let makes =
            matches!(self.edit, Edit::Mkdir { .. } | Edit::Link { .. } | Edit::Truncate { create: true, .. });
        let mut found = if makes { host.export.expand_new(pattern) } else { host.export.expand(pattern) };
        if let Edit::Remove { force: true, .. } | Edit::Truncate { create: false, .. } = self.edit {
            found.errors.retain(|error| error.errno != Errno::NOMATCH);
        }
        found
    }

    fn begin(&mut self, path: &Path, answer: &mut Answer, host: &Host) -> Result<(), Errno> {
        let new_owner = self.owner?;
        let done = match &self.edit {
            Edit::Chmod { recursive: true, .. } => return self.start_walk(path, Follow::Start, host),
            Edit::Chown { recursive: true, .. } => return self.start_walk(path, Follow::Never, host),
            Edit::Chmod { change, .. } => chmod(change, path, &host.export.stat(path)?, true, host)?,
            Edit::Chown { follow, .. } => {
                let old = if *follow { host.export.stat(path)? } else { host.export.lstat(path)? };
                chown(new_owner, path, &old, *follow, host)?
            }
            Edit::Truncate { size, create } => truncate(*size, *create, path, host)?,
            Edit::Remove { .. } => self.remove(path, answer, host)?,
            Edit::Mkdir { parents, mode } => make_dir(path, *parents, mode.as_ref(), host)?,
            Edit::Link { target, symbolic, force, no_dereference } => {
                link::link(target, path, *symbolic, *force, *no_dereference, host)?
            }
        };
        self.say(path, &done, answer);
        Ok(())
    }

    fn go_on(&mut self, answer: &mut Answer, host: &Host) -> bool {
        for _ in 0..STEP_FILES {
            let Some(walk) = &mut self.walk else { return false };
            let (path, result) = match walk.next() {
                None => {
                    self.walk = None;
                    return false;
                }
                Some(Err(error)) => (error.path, Err(error.errno)),
                Some(Ok(entry)) => {
                    let Some(old) = &entry.metadata else { continue };
                    let result = match &self.edit {
                        Edit::Chmod { .. } if old.kind == FileKind::Symlink => continue,
                        // Where the walk began, a link was followed on purpose.
                        Edit::Chmod { change, .. } => chmod(change, &entry.path, old, entry.depth == 0, host),
                        _ => self.owner.and_then(|owner| chown(owner, &entry.path, old, false, host)),
                    };
                    (entry.path, result)
                }
            };
            match result {
                Ok(done) => self.say(&path, &done, answer),
                Err(errno) => answer.error(path.as_os_str().as_bytes(), errno),
            }
        }
        true
    }
}

impl Editor {
    fn start_walk(&mut self, path: &Path, follow: Follow, host: &Host) -> Result<(), Errno> {
        host.export.lstat(path)?;
        self.walk =
            Some(host.export.walk(path, WalkOptions { follow, metadata: true, ..WalkOptions::default() }));
        Ok(())
    }

    fn say(&self, path: &Path, done: &str, answer: &mut Answer) {
        if self.verbose && !done.is_empty() {
            answer.path(path.as_os_str().as_bytes());
            let _ = answer.entry(Entry::new(EntryKind::Line, done.as_bytes()));
        }
    }

    fn remove(&self, path: &Path, answer: &mut Answer, host: &Host) -> Result<String, Errno> {
        let Edit::Remove { recursive, force, empty_dirs } = self.edit else { return Err(Errno::INVAL) };
        let options = RemoveOptions { recursive, empty_dirs, missing_ok: force, one_file_system: false };
        let removed = host.export.remove(path, options)?;
        for error in &removed.errors {
            answer.error(error.path.as_os_str().as_bytes(), error.errno);
        }
        if removed.further_errors > 0 {
            answer.error(path.as_os_str().as_bytes(), Errno::NOTEMPTY);
        }
        Ok(match removed.names {
            0 => String::new(),
            1 => "removed".to_owned(),
            names => format!("removed {names} names"),
        })
    }
}

fn chmod(
    change: &ModeChange,
    path: &Path,
    old: &Metadata,
    follow: bool,
    host: &Host,
) -> Result<String, Errno> {
    let mode = change.apply(old.mode, old.is_dir());
    let attributes = Attributes { mode: Some(mode), ..Attributes::default() };
    host.export.set_attributes(path, &attributes, follow)?;
    let text = |mode: u32| format!("{mode:04o} ({})", human::permissions(mode));
    Ok(match mode == old.mode {
        true => format!("mode retained as {}", text(mode)),
        false => format!("mode changed from {} to {}", text(old.mode), text(mode)),
    })
}

fn chown(owner: Owner, path: &Path, old: &Metadata, follow: bool, host: &Host) -> Result<String, Errno> {
    host.export.set_owner(path, owner, follow)?;
    let (uid, gid) = (owner.uid.unwrap_or(old.uid), owner.gid.unwrap_or(old.gid));
    let name = |uid: u32, gid: u32| {
        let user = user_name(uid).unwrap_or_else(|| uid.to_string());
        format!("{user}:{}", group_name(gid).unwrap_or_else(|| gid.to_string()))
    };
    Ok(match (uid, gid) == (old.uid, old.gid) {
        true => format!("ownership retained as {}", name(uid, gid)),
        false => format!("ownership changed from {} to {}", name(old.uid, old.gid), name(uid, gid)),
    })
}

fn truncate(size: SizeChange, create: bool, path: &Path, host: &Host) -> Result<String, Errno> {
    let mut flags = OFlags::WRONLY | OFlags::NONBLOCK;
    if create {
        flags |= OFlags::CREATE;
    }
    let file = match host.export.open_file(path, flags, Mode::from_raw_mode(0o666)) {
        Err(Errno::NOENT) if !create => return Ok(String::new()),
        opened => opened?,
    };
    let old = file.metadata()?.len();
    let new = size.apply(old).ok_or(Errno::FBIG)?;
    file.set_len(new)?;
    Ok(format!("size changed from {old} to {new}"))
}

fn make_dir(path: &Path, parents: bool, mode: Option<&ModeChange>, host: &Host) -> Result<String, Errno> {
    if parents && host.export.stat(path).is_ok_and(|metadata| metadata.is_dir()) {
        return Ok(String::new());
    }
    let exact = mode.map(|change| change.apply(0o777, true));
    // Until it has its mode, nobody may enter that must not in the end.
    let first = Mode::from_raw_mode(exact.unwrap_or(0o777) & 0o777);
    host.export.create_dir(path, first, parents)?;
    if let Some(mode) = exact {
        host.export.set_mode(path, mode)?;
    }
    Ok("created directory".to_owned())
}
