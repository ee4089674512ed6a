//! Writing files, directories, links and special files at one place, on a host or here.
use super::message::{Attrs, Special};
use super::{CopyMode, CopyOptions};
use crate::paths::{directory_of, leads_to_itself};
use sheaf_core::Errno;
use sheaf_file::{
    ACCESS_LIST, Attributes, Digest, Export, FileIdentity, FileKind, Metadata, Mode, OFlags, Owner,
    SetTime, StageOptions, Staged, Timestamp, Xattr, mode_without_list,
};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What may become of a path.
pub(super) const PLANS: [&[u8]; 3] = [b"enter", b"create", b"replace"];

/// How many temporary names are tried before `EEXIST` is given up to.
const TEMP_TRIES_MAX: usize = 64;

/// Where copies are written, and how.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    pub export: Export,
    sparse: bool,
    sync: bool,
    in_place: bool,
    preserve: bool,
    lenient: bool,
    /// It writes into a directory in which others may have put links where nobody has typed the file's name.
    within_tree: bool,
    dereference: bool,
    hard_links: bool,
    /// The files are this machine's, and no host's.
    is_here: bool,
    /// A tree may have been copied here before, and what is a link may be that host's.
    follows_none: bool,
    /// The directory beneath which all of the host's files go, if it is not where paths begin.
    top: Option<PathBuf>,
    chmod: Option<CopyMode>,
    /// What a change of modes begins without.
    umask: u32,
    chown: Owner,
    user: Arc<User>,
}

/// Who writes, and so which owners can be given.
#[derive(Debug)]
struct User {
    uid: u32,
    groups: HashSet<u32>,
}

/// Device, inode and the time when it was made, if the file system says so.
pub(super) type DirId = ((u64, u64), Option<Timestamp>);

/// Where a symbolic link comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LinkSource {
    pub name: Vec<u8>,
    /// Its directory, if that is of this machine.
    pub dir: Option<PathBuf>,
}

impl LinkSource {
    /// A link at `relative` beneath a source, which is called `name` and is this directory of this machine, or
    /// if it is a link itself, in this directory.
    pub fn beneath(dir: Option<&Path>, name: &[u8], relative: &[u8]) -> Self {
        let relative = Path::new(OsStr::from_bytes(relative));
        let above = relative.parent().unwrap_or(Path::new(""));
        let name = relative.file_name().map_or(name, OsStr::as_bytes).to_vec();
        Self { name, dir: dir.map(|dir| dir.join(above)) }
    }
}

/// A directory that is there now, and what to do when everything in it is.
#[derive(Debug)]
pub(super) struct Dir {
    /// Writes into this very directory, whatever takes its place.
    pub writer: Writer,
    /// Attributes to set once nothing more comes into it.
    pub closing: Option<Attributes>,
    /// It was not there before.
    pub is_new: bool,
}

impl Writer {
    /// A writer to `export`.
    ///
    /// # Errors
    /// `EINVAL` when this host does not know the owner to give.
    pub fn new(export: &Export, options: &CopyOptions) -> Result<Self, Errno> {
        let groups = rustix::process::getgroups().unwrap_or_default();
        let own = rustix::process::getegid();
        Ok(Self {
            export: export.clone(),
            sparse: options.sparse,
            sync: options.sync,
            in_place: options.in_place,
            preserve: options.preserve,
            lenient: options.lenient,
            within_tree: false,
            umask: if options.chmod.is_some() { sheaf_file::umask() } else { 0 },
            dereference: options.dereference,
            hard_links: options.hard_links,
            is_here: false,
            top: None,
            follows_none: false,
            chmod: options.chmod.clone(),
            chown: options.chown.as_deref().map(Owner::resolve).transpose()?.unwrap_or_default(),
            user: Arc::new(User {
                uid: rustix::process::geteuid().as_raw(),
                groups: groups.into_iter().chain([own]).map(rustix::fs::Gid::as_raw).collect(),
            }),
        })
    }

    /// This writer with a directory held; see [`Export::holding`].
    pub fn hold(&self, path: &Path, follow: bool) -> Result<Self, Errno> {
        Ok(self.at(&self.export.holding(path, follow)?))
    }

    /// This writer with a directory held that another one may have taken the place of (`ESTALE`).
    pub fn hold_again(&self, path: &Path, id: DirId) -> Result<Self, Errno> {
        let writer = self.hold(path, false)?;
        if writer.dir_id(path)? == id { Ok(writer) } else { Err(Errno::STALE) }
    }

    /// This writer with a directory held, by a path on which there is no link, as there was none when
    /// each directory on it was made or found (`ESTALE`).
    pub fn hold_straight(&self, path: &Path) -> Result<Self, Errno> {
        match self.export.holding_straight(path) {
            Ok(held) => Ok(self.at(&held)),
            Err(Errno::LOOP | Errno::NOTDIR) => Err(Errno::STALE),
            Err(errno) => Err(errno),
        }
    }

    pub fn dir_id(&self, path: &Path) -> Result<DirId, Errno> {
        let metadata = self.export.lstat(path)?;
        Ok((metadata.id(), metadata.btime))
    }

    /// This writer, in a directory of a tree that is copied, or to which files are copied.
    pub fn within_tree(self) -> Self {
        Self { within_tree: true, ..self }
    }

    /// This writer, which gives what it makes nothing that a source has.
    pub fn keeping_nothing(self) -> Self {
        Self { preserve: false, ..self }
    }

    /// This writer, for files of this machine.
    pub fn here(self) -> Self {
        Self { is_here: true, ..self }
    }

    /// This writer, which writes through no link.
    pub fn following_none(self) -> Self {
        Self { follows_none: true, ..self }
    }

    /// This writer, of a path whose links may not lead out of `top`, the first directory on it.
    pub fn beneath(self, top: &Path) -> Self {
        Self { top: Some(top.to_owned()), ..self }
    }

    /// This writer in another place.
    pub fn at(&self, export: &Export) -> Self {
        Self { export: export.clone(), ..self.clone() }
    }

    /// Begins a file; blocks of zeros become holes if that is wanted for this or for all files. It
    /// is not written in place if it is the `source` itself.
    pub fn begin(
        &self,
        path: &Path,
        attrs: &Attrs,
        sparse: bool,
        source: Option<&FileIdentity>,
    ) -> Result<Staged, Errno> {
        self.check_link(path)?;
        // Nobody is to see more of it before it gets its mode than afterwards.
        let rights = if self.sets_mode(false) { 0o600 } else { 0o777 };
        let options = StageOptions {
            mode: attrs.mode & rights,
            sparse: self.sparse || sparse,
            sync: self.sync,
            in_place: self.in_place && !self.is_replaced(path) && !self.has_other_names(path),
            over_special: self.is_over_special(),
            wary: self.within_tree,
            force: false,
        };
        Staged::create_apart(&self.export, path, options, source)
    }

    /// Whether a file takes the place of a link, pipe or device that is there: in a tree of which these and
    /// names of one file are copied as such, each name gets its own content.
    fn is_over_special(&self) -> bool {
        self.within_tree && self.hard_links
    }

    fn is_replaced(&self, path: &Path) -> bool {
        self.is_over_special()
            && self.export.lstat(path).is_ok_and(|there| there.kind != FileKind::File)
    }

    /// Whether what has this name, or is what a link of this name leads to, is a file with others, and names are copied as
    /// such: each gets its own content then, as with GNU `cp -a`.
    fn has_other_names(&self, path: &Path) -> bool {
        self.hard_links
            && self
                .export
                .stat(path)
                .is_ok_and(|there| there.kind == FileKind::File && there.nlink > 1)
    }

    /// The file that would be written in place, if there is one.
    pub fn in_place(&self, path: &Path) -> Result<Option<FileIdentity>, Errno> {
        if !self.in_place || self.is_replaced(path) {
            return Ok(None);
        }
        match self.export.find(path, true) {
            Ok(there) => FileIdentity::of(&there),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Refuses to write a file into its own source (`ESAMEFILE`), which [`Self::begin`] does, too.
    pub fn check_file(&self, path: &Path, source: Option<&FileIdentity>) -> Result<(), Errno> {
        let Some(source) = source.filter(|_| self.in_place) else { return Ok(()) };
        if self.is_replaced(path) {
            return Ok(());
        }
        match self.export.find(path, true) {
            Ok(there) if source.is(&there)? => Err(Errno::SAMEFILE),
            _ => Ok(()),
        }
    }

    /// Refuses to copy a directory into itself (`EINTOSELF`), and with files written in place, onto
    /// itself (`ESAMEFILE`). Files that are replaced whole may replace themselves.
    pub fn check_tree(&self, path: &Path, source: Option<&FileIdentity>) -> Result<(), Errno> {
        let Some(source) = source else { return Ok(()) };
        match self.export.find(path, true) {
            Ok(there) if source.is(&there)? && self.in_place => Err(Errno::SAMEFILE),
            Ok(there) if source.is(&there)? => Ok(()),
            Ok(there) if source.is_above(&there)? => Err(Errno::INTOSELF),
            Ok(_) => Ok(()),
            // What cannot be made in its place fails by itself.
            Err(_) => match self.export.find(directory_of(path), true) {
                Ok(above) if source.is_above(&above)? => Err(Errno::INTOSELF),
                _ => Ok(()),
            },
        }
    }

    /// Refuses a link that leads to no file (`EEXIST`), as `cp` does: what would be made is
    /// anybody's choice who may write to the directory. And one of this machine that leads out of what is copied
    /// into (`EACCES`): what comes from hosts goes beneath it alone.
    pub fn check_link(&self, path: &Path) -> Result<(), Errno> {
        if self.is_over_special() {
            return Ok(());
        }
        let is_link = self.export.lstat(path).is_ok_and(|there| there.kind == FileKind::Symlink);
        if is_link && (self.follows_none || self.is_here && self.leads_out(path)?) {
            return Err(Errno::ACCES);
        }
        if is_link && self.export.stat(path).is_err_and(|errno| errno == Errno::NOENT) {
            return Err(Errno::EXIST);
        }
        Ok(())
    }

    fn leads_out(&self, path: &Path) -> Result<bool, Errno> {
        let below = self.top.as_ref().and_then(|top| Some((top, path.strip_prefix(top).ok()?)));
        match below {
            Some((top, below)) => Ok(self.export.subdirectory(top.as_os_str())?.leads_out(below)),
            None => Ok(self.export.leads_out(path)),
        }
    }

    /// Gives a file its attributes and its name.
    pub fn finish(
        &self,
        staged: Staged,
        attrs: &Attrs,
        digest: &[u8; 32],
    ) -> Result<Metadata, Errno> {
        let mut attributes = self.attributes(attrs);
        if self.lenient {
            keep_possible(&mut attributes, |xattr| staged.set_xattr(xattr).is_ok());
        }
        staged.commit(&attributes, Some(&Digest(digest.to_vec())))
    }

    /// Makes a directory, unless it is there. A link to a directory is in the way of one, unless it
    /// is `named` as what things are copied into.
    pub fn make_dir(&self, path: &Path, attrs: &Attrs, named: bool) -> Result<Dir, Errno> {
        // Files are still to be made in it, so its owner has all rights until it is closed. Others
        // have none before that if it is to get a mode of its own.
        let rights = if self.sets_mode(true) { 0 } else { attrs.mode & 0o1777 };
        let mode = Mode::from_raw_mode(rights | 0o700);
        // From here on it is this directory, whatever takes its place.
        let (writer, made) = match self.export.make_dir(path, mode) {
            Ok(new) => {
                let mode = new.metadata().mode;
                (self.at(&self.export.holding_found(path, new)), Some(mode))
            }
            Err(Errno::EXIST) => {
                self.check_dir(path, named)?;
                (self.hold(path, named)?, None)
            }
            Err(errno) => return Err(errno),
        };
        let (writer, is_new) = (writer.within_tree(), made.is_some());
        let closing = self.dir_attributes(attrs, made);
        let closing = (closing != Attributes::default()).then_some(closing);
        Ok(Dir { writer, closing, is_new })
    }

    fn check_dir(&self, path: &Path, named: bool) -> Result<(), Errno> {
        let there = if named { self.export.stat(path) } else { self.export.lstat(path) };
        if there?.is_dir() { Ok(()) } else { Err(Errno::NOTDIR) }
    }

    /// Sets what [`Dir::closing`] says; [`Dir::writer`] does it.
    pub fn close_dir(&self, path: &Path, mut attributes: Attributes) -> Result<(), Errno> {
        if self.lenient {
            keep_possible(&mut attributes, |xattr| {
                let one = Attributes { xattrs: vec![xattr.clone()], ..Attributes::default() };
                self.export.set_attributes(path, &one, true).is_ok()
            });
        }
        self.export.set_attributes(path, &attributes, true)
    }

    /// Makes a symbolic link, in place of any other that is no directory, and says which file it is.
    /// It does not take the place of the file that it would lead to (`ESAMEFILE`).
    pub fn symlink(
        &self,
        path: &Path,
        target: &[u8],
        attrs: &Attrs,
        source: &LinkSource,
    ) -> Result<(u64, u64), Errno> {
        let target = Path::new(OsStr::from_bytes(target));
        if self.is_meant_by(target, source, path) {
            return Err(Errno::SAMEFILE);
        }
        let attributes = Attributes { mode: None, sole_lists: false, ..self.attributes(attrs) };
        self.replace(path, |name| {
            let made = self.export.make_link(target, name)?;
            match made.set_attributes(&attributes) {
                // Few users may give a link extended attributes, and few file systems keep them.
                Err(_) if self.lenient && !attributes.xattrs.is_empty() => {
                    made.set_attributes(&Attributes { xattrs: Vec::new(), ..attributes.clone() })?;
                }
                done => done?,
            }
            Ok(made.metadata().id())
        })
    }

    /// Whether the file at `path` is what a link leads to that is to take its place, there or where it
    /// comes from: the file would be lost.
    fn is_meant_by(&self, target: &Path, source: &LinkSource, path: &Path) -> bool {
        // One that leads to itself where it comes from means no file.
        if source.name == target.as_os_str().as_bytes() {
            return false;
        }
        let there = match self.export.lstat(path) {
            Ok(there) if there.kind != FileKind::Symlink && !there.is_dir() => there,
            _ => return false,
        };
        let there_too = || self.export.meant_in(directory_of(path), target).ok();
        let at_source = || sheaf_file::meant_at(source.dir.as_deref()?, target).ok();
        // A file with other names is not lost.
        let is_last = there.nlink <= 1;
        leads_to_itself(&self.export, target, path, true)
            || is_last && [there_too(), at_source()].contains(&Some(there.id()))
    }

    /// Gives `file` another name. If it is known which file that is, another one that has taken its
    /// place is refused (`ESTALE`).
    pub fn hard_link(
        &self,
        file: &Path,
        path: &Path,
        expected: Option<(u64, u64)>,
    ) -> Result<(u64, u64), Errno> {
        let file = &self.export.find(file, false)?;
        let id = file.metadata().id();
        if expected.is_some_and(|expected| expected != id) {
            return Err(Errno::STALE);
        }
        if self.export.lstat(path).is_ok_and(|there| there.id() == id) {
            // To rename one name of a file to another would leave both.
            return Ok(id);
        }
        self.replace(path, |name| self.export.hard_link_found(file, name).map(|()| id))
    }

    /// Makes a named pipe or a device, and says which file it is.
    pub fn node(
        &self,
        path: &Path,
        kind: Special,
        rdev: u64,
        attrs: &Attrs,
    ) -> Result<(u64, u64), Errno> {
        let kind = match kind {
            Special::Fifo => FileKind::Fifo,
            Special::CharDevice => FileKind::CharDevice,
            Special::BlockDevice => FileKind::BlockDevice,
        };
        let attributes = self.attributes(attrs);
        // As with GNU cp, which replaces by links and pipes only where it follows no links.
        if self.dereference && self.export.lstat(path).is_ok() {
            return Err(Errno::EXIST);
        }
        self.replace(path, |name| {
            // Nobody opens it before it has its owner, its lists and its mode.
            let rights = if self.sets_mode(false) { 0o600 } else { 0o7777 };
            let mode = Mode::from_raw_mode(attrs.mode & rights);
            let made = self.export.make_node(name, kind, mode, rdev)?;
            made.set_attributes(&attributes)?;
            Ok(made.metadata().id())
        })
    }

    /// Lets `make` make something at `path`: at once, or in the way of what is there, under a
    /// temporary name that then replaces it.
    fn replace(
        &self,
        path: &Path,
        make: impl Fn(&Path) -> Result<(u64, u64), Errno>,
    ) -> Result<(u64, u64), Errno> {
        match self.export.lstat(path) {
            Ok(there) if there.is_dir() => return Err(Errno::ISDIR),
            Ok(_) => {}
            Err(Errno::NOENT) => return make(path),
            Err(errno) => return Err(errno),
        }
        let temp = self.temp_name(path)?;
        let made = make(&temp).and_then(|id| self.export.rename(&temp, path, true).map(|()| id));
        if made.is_err() {
            // It may not have been made at all.
            let _ = self.export.remove(&temp, sheaf_file::RemoveOptions::default());
        }
        made
    }

    fn temp_name(&self, path: &Path) -> Result<PathBuf, Errno> {
        for _ in 0..TEMP_TRIES_MAX {
            let temp = path.with_file_name(sheaf_file::temp_name());
            match self.export.lstat(&temp) {
                Err(Errno::NOENT) => return Ok(temp),
                Err(errno) => return Err(errno),
                Ok(_) => {}
            }
        }
        Err(Errno::EXIST)
    }

    /// What [`Self::make_dir`] would do, without doing it.
    pub fn plan_dir(&self, path: &Path, named: bool) -> Result<&'static [u8], Errno> {
        match self.check_dir(path, named) {
            Ok(()) => Ok(b"enter"),
            Err(Errno::NOENT) => self.plan_new(path),
            Err(errno) => Err(errno),
        }
    }

    /// What would become of `path`, which is to be no directory, without doing it.
    pub fn plan(&self, path: &Path) -> Result<&'static [u8], Errno> {
        match self.export.lstat(path) {
            Ok(there) if there.is_dir() => Err(Errno::ISDIR),
            Ok(there) => {
                if there.kind == FileKind::File {
                    self.export.open_file(
                        path,
                        OFlags::WRONLY | OFlags::NONBLOCK,
                        Mode::empty(),
                    )?;
                }
                Ok(b"replace")
            }
            Err(Errno::NOENT) => self.plan_new(path),
            Err(errno) => Err(errno),
        }
    }

    fn plan_new(&self, path: &Path) -> Result<&'static [u8], Errno> {
        self.check_dir(directory_of(path), true).map(|()| &b"create"[..])
    }

    /// Whether new files or directories get a mode in the end, and not that which the umask leaves.
    fn sets_mode(&self, is_dir: bool) -> bool {
        self.preserve || self.chmod.as_ref().is_some_and(|change| change.concerns(is_dir))
    }

    /// What to set of a file in the end.
    fn attributes(&self, attrs: &Attrs) -> Attributes {
        let (owner, kept_mode) = self.kept(attrs);
        let owner = Owner { uid: self.chown.uid.or(owner.uid), gid: self.chown.gid.or(owner.gid) };
        let mode = match self.chmod.as_ref().filter(|change| change.concerns(false)) {
            Some(change) if self.preserve => Some(change.apply(kept_mode, false)),
            Some(change) => Some(change.apply(attrs.mode & 0o777 & !self.umask, false)),
            None => self.preserve.then_some(kept_mode),
        };
        // A mode that is given is all there is to it, as in the source.
        Attributes { sole_lists: mode.is_some(), ..attributes(attrs, owner, mode) }
    }

    /// What to set of a directory in the end. `made` is the mode that a new one has got from its
    /// parent and the umask. One that was there is no copy: it keeps its mode and owner, unless
    /// those of the source are to be kept.
    fn dir_attributes(&self, attrs: &Attrs, made: Option<u32>) -> Attributes {
        if made.is_none() && !self.preserve {
            return attributes(attrs, Owner::default(), None);
        }
        let (owner, kept_mode) = self.kept(attrs);
        let owner = Owner { uid: self.chown.uid.or(owner.uid), gid: self.chown.gid.or(owner.gid) };
        let change = self.chmod.as_ref().filter(|change| change.concerns(true));
        let mode = match (change, made) {
            (Some(change), _) if self.preserve => Some(change.apply(kept_mode, true)),
            // A new directory has the set-gid bit from the one that it is in.
            (Some(change), Some(made)) => {
                Some(change.apply(attrs.mode & 0o1777 & !self.umask | made & 0o6000, true))
            }
            (None, Some(made)) if !self.preserve => {
                // As the umask left it, without the rights that were added to fill it.
                let added = 0o700 & !attrs.mode;
                (added != 0).then_some(made & !added)
            }
            _ => Some(kept_mode),
        };
        Attributes { sole_lists: self.preserve, ..attributes(attrs, owner, mode) }
    }

    /// Owner and mode of a source, as far as this user may give them.
    fn kept(&self, attrs: &Attrs) -> (Owner, u32) {
        let (mut owner, mut mode) = (attrs.owner, attrs.mode);
        if self.user.uid != 0 {
            // Only the superuser gives files away; set-id bits would then be those of another user.
            if owner.uid.is_some_and(|uid| uid != self.user.uid) {
                mode &= !0o4000;
            }
            if owner.gid.is_some_and(|gid| !self.user.groups.contains(&gid)) {
                mode &= !0o2000;
                owner.gid = None;
            }
            owner.uid = None;
        }
        (owner, mode)
    }
}

fn attributes(attrs: &Attrs, owner: Owner, mode: Option<u32>) -> Attributes {
    Attributes {
        mode,
        owner,
        atime: attrs.atime.map(SetTime::At),
        mtime: attrs.mtime.map(SetTime::At),
        xattrs: attrs.xattrs.clone(),
        sole_lists: false,
    }
}

/// Leaves the extended attributes that could be set. A mode whose access control list could not be
/// set gives the group no more than the list did.
fn keep_possible(attributes: &mut Attributes, mut set: impl FnMut(&Xattr) -> bool) {
    let mode = &mut attributes.mode;
    attributes.xattrs.retain(|xattr| {
        let is_set = set(xattr);
        if !is_set && xattr.name == ACCESS_LIST {
            *mode = mode.map(|mode| mode_without_list(mode, &xattr.value));
        }
        is_set
    });
}
