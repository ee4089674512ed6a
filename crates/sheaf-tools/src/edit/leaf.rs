//! Changes at a leaf: one path after the other, one file of a tree a step.
use super::{Edit, EditOptions, NewMode, NewOwner, SizeChange, link};
use crate::paths::{AtWork, PerPath};
use crate::report::human;
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_file::{
    Attributes, FileKind, Follow, FoundFile, Globbed, Metadata, Mode, ModeChange, OFlags, Owner,
    PathError, Pattern, Removal, RemoveOptions, Walk, WalkOptions, acts_as_owner, group_name,
    user_name,
};
use sheaf_group::audit::Change;
use sheaf_group::entry::{Answer, Entry, EntryKind, Sink};
use sheaf_group::tool::{Host, Running, Tool};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Name of the tool.
pub const NAME: &str = "edit";

/// Files of a tree that are changed in one step.
const STEP_FILES: usize = 256;

/// What every leaf is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct EditParams {
    pub edit: Edit,
    /// Paths and patterns beneath the export.
    pub paths: Vec<String>,
    pub options: EditOptions,
}

pub struct EditTool;

impl Tool for EditTool {
    fn change(&self, params: &[u8]) -> Option<Change> {
        let EditParams { edit, paths, options } = postcard::from_bytes(params).ok()?;
        (!options.dry_run).then(|| Change::new(edit.command(), paths))
    }

    fn start(&self, params: &[u8], host: &Host) -> Result<Box<dyn Running>, Errno> {
        let EditParams { edit, paths, options } =
            postcard::from_bytes(params).map_err(|_| Errno::PROTO)?;
        let reference = match &edit {
            Edit::Chmod { mode: NewMode::Reference(path), .. }
            | Edit::Chown { owner: NewOwner::Reference(path), .. }
            | Edit::Truncate { reference: Some(path), .. } => Some(path.clone()),
            _ => None,
        };
        let reference = reference.map(|path| match host.export.stat(Path::new(&path)) {
            // The size of a directory says nothing about a file.
            Ok(found) if found.is_dir() && matches!(edit, Edit::Truncate { .. }) => {
                Err((path, Errno::ISDIR))
            }
            // Nor does that of a pipe or a device, which is 0 whatever it holds.
            Ok(found) if !found.is_file() && matches!(edit, Edit::Truncate { .. }) => {
                Err((path, Errno::SPIPE))
            }
            Ok(metadata) => Ok(metadata),
            Err(errno) => Err((path, errno)),
        });
        let (reference, refused) = match reference {
            Some(Err(error)) => (None, Some(error)),
            found => (found.and_then(Result::ok), None),
        };
        let owner = match (&edit, &reference) {
            (Edit::Chown { owner: NewOwner::Named(owner), .. }, _) => Owner::resolve(owner),
            (_, Some(file)) => Ok(Owner { uid: Some(file.uid), gid: Some(file.gid) }),
            _ => Ok(Owner::default()),
        };
        let from = match &edit {
            Edit::Chown { from: Some(from), .. } => Owner::resolve(from),
            _ => Ok(Owner::default()),
        };
        // Without the file that says what to do, nothing is done.
        let paths = if refused.is_some() { Vec::new() } else { paths };
        let editor = Editor {
            edit,
            owner,
            from,
            reference,
            refused,
            options,
            changed: 0,
            planned: BTreeSet::new(),
            walk: None,
            removal: None,
        };
        Ok(Box::new(AtWork::new(Box::new(editor), paths)))
    }
}

struct Editor {
    edit: Edit,
    /// The owner of a `Chown`, as this host numbers it, if it knows it.
    owner: Result<Owner, Errno>,
    /// The owner that files of a `Chown` must have.
    from: Result<Owner, Errno>,
    /// The file that gives mode, owner or size.
    reference: Option<Metadata>,
    /// Why there is none, when there is to be one.
    refused: Option<(String, Errno)>,
    options: EditOptions,
    /// Files that were changed, or would be.
    changed: u64,
    /// Directories that a dry run has said would be made.
    planned: BTreeSet<PathBuf>,
    walk: Option<Walk>,
    /// What is being removed, by its path.
    removal: Option<(PathBuf, Removal)>,
}

/// What was done to one path.
pub(super) struct Done {
    pub text: String,
    /// How many files that changed.
    pub files: u64,
}

impl Done {
    pub fn one(text: impl Into<String>) -> Self {
        Self { text: text.into(), files: 1 }
    }

    const NOTHING: Self = Self { text: String::new(), files: 0 };
}

impl PerPath for Editor {
    fn expand(&self, pattern: &str, host: &Host) -> Globbed {
        if self.edit.spared_root().is_some()
            && let Ok(parsed) = Pattern::new(pattern)
            && let Some(errno) = host
                .export
                .sweeps_root(&parsed)
                .map_or_else(Some, |sweeps| sweeps.then_some(Errno::BUSY))
        {
            let errors = vec![PathError { path: pattern.into(), errno }];
            return Globbed { errors, ..Globbed::default() };
        }
        let makes = matches!(
            self.edit,
            Edit::Mkdir { .. } | Edit::Link { .. } | Edit::Truncate { create: true, .. }
        );
        let mut found = if makes { host.expand_new(pattern) } else { host.expand(pattern) };
        if let Edit::Remove { force: true, .. } | Edit::Truncate { create: false, .. } = self.edit {
            found.errors.retain(|error| error.errno != Errno::NOMATCH);
        }
        found
    }

    fn takes_once(&self) -> bool {
        true
    }

    fn begin(&mut self, path: &Path, answer: &mut Answer, host: &Host) -> Result<(), Errno> {
        let (new_owner, from) = (self.owner?, self.from?);
        let is_dry = self.options.dry_run;
        let done = match &self.edit {
            Edit::Chmod { recursive: true, .. } | Edit::Chown { recursive: true, .. } => {
                return self.start_walk(path, host);
            }
            Edit::Chmod { mode, .. } => self.chmod(mode, &host.export.find(path, true)?)?,
            Edit::Chown { follow, .. } => {
                chown(new_owner, from, &host.export.find(path, *follow)?, is_dry)?
            }
            Edit::Truncate { size, create, .. } => self.truncate(*size, *create, path, host)?,
            Edit::Remove { .. } => {
                self.removal = Some((path.to_owned(), host.export.removal(path, self.removing())?));
                return Ok(());
            }
            Edit::Mkdir { parents, mode } => {
                let mut made = Vec::new();
                let result = match is_dry {
                    true => would_make_dir(path, *parents, &self.planned, host, &mut made),
                    false => make_dir(path, *parents, mode.as_ref(), host, &mut made),
                };
                return self.say_made(made, result, answer);
            }
            Edit::Link { target, symbolic, force, no_dereference } => {
                if !symbolic && let Err(errno) = link::check_target(target, host) {
                    answer.error(target, errno);
                    return Ok(());
                }
                link::link(target, path, *symbolic, *force, *no_dereference, is_dry, host)?
            }
        };
        self.say(path, &done, answer);
        Ok(())
    }

    fn go_on(&mut self, answer: &mut Answer, host: &Host) -> bool {
        if self.removal.is_some() {
            return self.go_on_removing(answer, host);
        }
        for _ in 0..STEP_FILES {
            // Whoever ends it hears soon how far it came.
            if host.should_stop() {
                return true;
            }
            let Some(walk) = &mut self.walk else { return false };
            let (path, result) = match walk.next() {
                None => {
                    self.walk = None;
                    return false;
                }
                Some(Err(error)) => (error.path, Err(error.errno)),
                Some(Ok(entry)) => {
                    // The file is looked up once, in the directory that was read: a link that takes
                    // its place is not followed, and a mode depends on this very file's old one.
                    let found = walk.found(&entry);
                    let result = found.and_then(|file| match &self.edit {
                        // The start is followed; as a link it leads nowhere.
                        Edit::Chmod { .. } if file.metadata().kind == FileKind::Symlink => {
                            if entry.depth == 0 { Err(Errno::NOENT) } else { Ok(Done::NOTHING) }
                        }
                        Edit::Chmod { mode, .. } => self.chmod(mode, &file),
                        _ => chown(self.owner?, self.from?, &file, self.options.dry_run),
                    });
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

    fn so_far(&mut self, answer: &mut Answer, is_over: bool) {
        let under_way = self.removal.as_ref().map_or(0, |(_, removal)| removal.removed().names);
        let files = self.changed + under_way;
        // Hosts that are about as far are told as one.
        say_count(if is_over { files } else { rounded(files) }, answer);
    }

    fn conclude(&mut self, answer: &mut Answer, _: &Host) {
        if let Some((path, errno)) = &self.refused {
            answer.error(path.as_bytes(), *errno);
        }
        say_count(self.changed, answer);
    }
}

/// The power of two that is not beyond a number.
pub(super) fn rounded(files: u64) -> u64 {
    files.checked_ilog2().map_or(0, |log| 1 << log)
}

/// Says how many files were changed, if any were.
pub(super) fn say_count(files: u64, answer: &mut Answer) {
    if files > 0 {
        answer.path(b"");
        let _ = answer.entry(Entry::new(EntryKind::Count, files.to_string().as_bytes()));
    }
}

impl Editor {
    fn start_walk(&mut self, path: &Path, host: &Host) -> Result<(), Errno> {
        host.export.lstat(path)?;
        let is_chown = matches!(self.edit, Edit::Chown { .. });
        let options = WalkOptions {
            follow: if is_chown { Follow::Never } else { Follow::Start },
            // A new owner of a directory could put links to other files into it.
            dirs_last: is_chown,
            ..WalkOptions::default()
        };
        // A link at the end is followed by `chmod` alone.
        if self.edit.spared_root().is_some() && host.export.leads_to_root(path, !is_chown) {
            return Err(Errno::BUSY);
        }
        self.walk = Some(host.export.walk(path, options));
        Ok(())
    }

    fn say(&mut self, path: &Path, done: &Done, answer: &mut Answer) {
        self.changed += done.files;
        if (self.options.verbose || self.options.dry_run) && !done.text.is_empty() {
            answer.path(path.as_os_str().as_bytes());
            let _ = answer.entry(Entry::new(EntryKind::Line, done.text.as_bytes()));
        }
    }

    /// Says which directories were made, also where the last of them was not.
    fn say_made(
        &mut self,
        made: Vec<PathBuf>,
        result: Result<(), Errno>,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let is_dry = self.options.dry_run;
        let text = if is_dry { "directory would be created" } else { "created directory" };
        for path in made {
            self.say(&path, &Done::one(text), answer);
            if is_dry {
                self.planned.insert(path);
            }
        }
        result
    }

    fn chmod(&self, new: &NewMode, file: &FoundFile) -> Result<Done, Errno> {
        let old = file.metadata();
        let mode = match (new, &self.reference) {
            (NewMode::Change(change), _) => change.apply(old.mode, old.is_dir()),
            (NewMode::Reference(_), Some(file)) => file.mode,
            (NewMode::Reference(_), None) => return Err(Errno::INVAL),
        };
        if !self.options.dry_run {
            file.set_attributes(&Attributes { mode: Some(mode), ..Attributes::default() })?;
        } else if !acts_as_owner(old.uid)? {
            return Err(Errno::PERM);
        }
        let text = |mode: u32| format!("{mode:04o} ({})", human::permissions(mode));
        let did = |did: &str, would: &str| {
            if self.options.dry_run { would.to_owned() } else { did.to_owned() }
        };
        Ok(Done::one(match mode == old.mode {
            true => format!("mode {} as {}", did("retained", "would be retained"), text(mode)),
            false => {
                let change = did("changed", "would change");
                format!("mode {change} from {} to {}", text(old.mode), text(mode))
            }
        }))
    }

    fn truncate(
        &self,
        change: Option<SizeChange>,
        create: bool,
        path: &Path,
        host: &Host,
    ) -> Result<Done, Errno> {
        let size = |old: u64| {
            let from = self.reference.as_ref().map_or(old, |file| file.size);
            change.map_or(Some(from), |change| change.apply(from)).ok_or(Errno::FBIG)
        };
        if self.options.dry_run {
            return would_truncate(size, create, path, host);
        }
        // To open a pipe would wait for its other end.
        let mut flags = OFlags::WRONLY | OFlags::NONBLOCK;
        if create {
            flags |= OFlags::CREATE;
        }
        let file = match host.export.open_file(path, flags, Mode::from_raw_mode(0o666)) {
            Err(Errno::NOENT) if !create => return Ok(Done::NOTHING),
            opened => opened?,
        };
        let old = file.metadata()?.len();
        let new = size(old)?;
        file.set_len(new)?;
        Ok(Done::one(format!("size changed from {old} to {new}")))
    }

    /// How the files of a `Remove` are removed.
    fn removing(&self) -> RemoveOptions {
        let Edit::Remove { recursive, force, empty_dirs, preserve_root } = self.edit else {
            return RemoveOptions { dry_run: true, ..RemoveOptions::default() };
        };
        RemoveOptions {
            recursive,
            empty_dirs,
            missing_ok: force,
            one_file_system: false,
            mounts_too: !preserve_root,
            dry_run: self.options.dry_run,
        }
    }

    /// Removes some names more, so that whoever waits can stop it.
    fn go_on_removing(&mut self, answer: &mut Answer, host: &Host) -> bool {
        let Some((path, mut removal)) = self.removal.take() else { return false };
        if (0..STEP_FILES).all(|_| host.should_stop() || removal.step()) {
            self.removal = Some((path, removal));
            return true;
        }
        let removed = removal.removed();
        for error in &removed.errors {
            answer.error(error.path.as_os_str().as_bytes(), error.errno);
        }
        if removed.further_errors > 0 {
            answer.error(path.as_os_str().as_bytes(), Errno::NOTEMPTY);
        }
        let would = if self.options.dry_run { "would be " } else { "" };
        let text = match removed.names {
            0 => String::new(),
            1 => format!("{would}removed"),
            names => format!("{would}removed, {names} names"),
        };
        self.say(&path, &Done { text, files: removed.names }, answer);
        false
    }
}

/// Changes the owner of a file that has the owner and group `from`, as far as that names them.
fn chown(owner: Owner, from: Owner, file: &FoundFile, is_dry: bool) -> Result<Done, Errno> {
    let old = file.metadata();
    if from.uid.is_some_and(|uid| uid != old.uid) || from.gid.is_some_and(|gid| gid != old.gid) {
        return Ok(Done::NOTHING);
    }
    if !is_dry {
        file.set_attributes(&Attributes { owner, ..Attributes::default() })?;
    }
    let (uid, gid) = (owner.uid.unwrap_or(old.uid), owner.gid.unwrap_or(old.gid));
    let name = |uid: u32, gid: u32| {
        let user = user_name(uid).unwrap_or_else(|| uid.to_string());
        format!("{user}:{}", group_name(gid).unwrap_or_else(|| gid.to_string()))
    };
    let (retained, changed) =
        if is_dry { ("would be retained", "would change") } else { ("retained", "changed") };
    Ok(Done::one(match (uid, gid) == (old.uid, old.gid) {
        true => format!("ownership {retained} as {}", name(uid, gid)),
        false => {
            format!("ownership {changed} from {} to {}", name(old.uid, old.gid), name(uid, gid))
        }
    }))
}

/// That a file which is not there can be made, by its path alone.
fn would_make_file(path: &Path, host: &Host) -> Result<(), Errno> {
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(Errno::ISDIR);
    }
    let mut path = path.to_owned();
    // A link that leads nowhere is followed.
    for _ in 0..LINKS_MAX {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let above = above.unwrap_or(Path::new(".")).to_owned();
        if !host.export.stat(&above)?.is_dir() {
            return Err(Errno::NOTDIR);
        }
        match host.export.read_link(&path) {
            Ok(target) => path = above.join(target),
            Err(_) => return Ok(()),
        }
    }
    Err(Errno::LOOP)
}

/// The most links that are followed, as by the kernel.
const LINKS_MAX: u32 = 40;

fn would_truncate(
    size: impl Fn(u64) -> Result<u64, Errno>,
    create: bool,
    path: &Path,
    host: &Host,
) -> Result<Done, Errno> {
    match host.export.stat(path) {
        Err(Errno::NOENT) if !create => Ok(Done::NOTHING),
        Err(Errno::NOENT | Errno::NOTDIR) if create => {
            would_make_file(path, host)?;
            Ok(Done::one(format!("would be created, {} bytes", size(0)?)))
        }
        Ok(old) if old.is_dir() => Err(Errno::ISDIR),
        old => {
            let old = old?.size;
            Ok(Done::one(format!("size would change from {old} to {}", size(old)?)))
        }
    }
}

/// Makes a directory, and adds to `made` all that were made.
fn make_dir(
    path: &Path,
    parents: bool,
    mode: Option<&ModeChange>,
    host: &Host,
    made: &mut Vec<PathBuf>,
) -> Result<(), Errno> {
    if parents && host.export.stat(path).is_ok_and(|metadata| metadata.is_dir()) {
        return Ok(());
    }
    // Until it has its mode, no user may enter it who may not enter it in the end.
    let first = mode.map_or(0o777, |change| change.apply(0o777, true));
    let first = Mode::from_raw_mode(first & 0o777);
    let dir = if parents {
        host.export.make_dirs(path, first, &mut |path| made.push(path.to_owned()))?
    } else {
        let dir = host.export.make_dir(path, first)?;
        made.push(path.to_owned());
        Some(dir)
    };
    let (Some(dir), Some(change)) = (dir, mode) else { return Ok(()) };
    // A directory inherits the set-gid bit, which only a mode that speaks of it takes away.
    let inherited = dir.metadata().mode;
    // The umask has no say in a mode that was asked for; a default access list has.
    let left = if dir.has_default_list()? { inherited & 0o777 } else { 0o777 };
    let exact = change.apply_to_new_dir(inherited, left);
    if exact == inherited {
        return Ok(());
    }
    dir.set_attributes(&Attributes { mode: Some(exact), ..Attributes::default() })
}

/// Adds to `made` the directories that would be made, without those that others would have made
/// before.
fn would_make_dir(
    path: &Path,
    parents: bool,
    planned: &BTreeSet<PathBuf>,
    host: &Host,
    made: &mut Vec<PathBuf>,
) -> Result<(), Errno> {
    match host.export.stat(path) {
        Ok(there) if parents && there.is_dir() => return Ok(()),
        Err(Errno::NOENT) if parents && planned.contains(path) => return Ok(()),
        _ if planned.contains(path) => return Err(Errno::EXIST),
        _ => {}
    }
    // A slash at the end is no part of the name.
    let name: PathBuf = path.components().collect();
    if host.export.lstat(&name).is_ok() {
        return match host.export.stat(path) {
            Err(errno) if parents => Err(errno),
            _ => Err(Errno::EXIST),
        };
    }
    let mut missing = vec![path.to_owned()];
    for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
        if planned.contains(above) {
            break;
        }
        match host.export.stat(above) {
            Ok(metadata) if metadata.is_dir() => break,
            Ok(_) => return Err(Errno::NOTDIR),
            // A link that leads nowhere is in the way.
            Err(Errno::NOENT) if parents && host.export.lstat(above).is_ok() => {
                return Err(Errno::NOENT);
            }
            Err(Errno::NOENT) if parents => missing.push(above.to_owned()),
            Err(errno) => return Err(errno),
        }
    }
    made.extend(missing.into_iter().rev());
    Ok(())
}
