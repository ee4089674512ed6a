//! Writing files, directories, links and special files at one place, on a host or here.
use super::message::{Attrs, Special};
use super::{CopyMode, CopyOptions};
use rustix::fs::{FileType, Mode as RawMode};
use sheaf_core::Errno;
use sheaf_file::{
    Attributes, Digest, Export, FileKind, Mode, OFlags, Owner, SetTime, StageOptions, Staged,
    TEMP_PREFIX,
};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    chmod: Option<CopyMode>,
    chown: Owner,
    user: Arc<User>,
}

/// Who writes, and so which owners can be given.
#[derive(Debug)]
struct User {
    uid: u32,
    groups: HashSet<u32>,
}

/// A directory that is there now, and what to do when everything in it is.
#[derive(Debug)]
pub(super) struct Dir {
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
            chmod: options.chmod.clone(),
            chown: options.chown.as_deref().map(Owner::resolve).transpose()?.unwrap_or_default(),
            user: Arc::new(User {
                uid: rustix::process::geteuid().as_raw(),
                groups: groups.into_iter().chain([own]).map(rustix::fs::Gid::as_raw).collect(),
            }),
        })
    }

    /// This writer in another place.
    pub fn at(&self, export: &Export) -> Self {
        Self { export: export.clone(), ..self.clone() }
    }

    /// Begins a file; blocks of zeros become holes if that is wanted for this or for all files.
    pub fn begin(&self, path: &Path, attrs: &Attrs, sparse: bool) -> Result<Staged, Errno> {
        self.check_link(path)?;
        let options = StageOptions {
            mode: attrs.mode & 0o777,
            sparse: self.sparse || sparse,
            sync: self.sync,
            in_place: self.in_place,
            force: false,
        };
        Staged::create(&self.export, path, options)
    }

    /// Refuses a link that leads to no file (`EEXIST`), as `cp` does: what would be made is
    /// anybody's choice who may write to the directory.
    pub fn check_link(&self, path: &Path) -> Result<(), Errno> {
        let is_link = self.export.lstat(path).is_ok_and(|there| there.kind == FileKind::Symlink);
        if is_link && self.export.stat(path).is_err_and(|errno| errno == Errno::NOENT) {
            return Err(Errno::EXIST);
        }
        Ok(())
    }

    /// Gives a file its attributes and its name.
    pub fn finish(&self, staged: Staged, attrs: &Attrs, digest: &[u8; 32]) -> Result<(), Errno> {
        let mut attributes = self.attributes(attrs, false);
        if self.lenient {
            attributes.xattrs.retain(|xattr| staged.set_xattr(xattr).is_ok());
        }
        staged.commit(&attributes, Some(&Digest(digest.to_vec()))).map(drop)
    }

    /// Makes a directory, unless it is there. A link to a directory is in the way of one, unless it
    /// is `named` as what things are copied into.
    pub fn make_dir(&self, path: &Path, attrs: &Attrs, named: bool) -> Result<Dir, Errno> {
        let mode = Mode::from_raw_mode(attrs.mode & 0o777 | 0o700);
        let is_new = match self.export.create_dir(path, mode) {
            Ok(()) => true,
            Err(Errno::EXIST) => {
                self.check_dir(path, named)?;
                false
            }
            Err(errno) => return Err(errno),
        };
        let mut closing = self.attributes(attrs, true);
        if is_new && closing.mode.is_none() && attrs.mode & 0o700 != 0o700 {
            let made = self.export.stat(path)?.mode;
            closing.mode = Some(made & !(0o700 & !attrs.mode));
        }
        Ok(Dir { closing: (closing != Attributes::default()).then_some(closing), is_new })
    }

    fn check_dir(&self, path: &Path, named: bool) -> Result<(), Errno> {
        let there = if named { self.export.stat(path) } else { self.export.lstat(path) };
        if there?.is_dir() { Ok(()) } else { Err(Errno::NOTDIR) }
    }

    /// Sets what [`Dir::closing`] says.
    pub fn close_dir(&self, path: &Path, mut attributes: Attributes) -> Result<(), Errno> {
        if self.lenient {
            for xattr in std::mem::take(&mut attributes.xattrs) {
                let one = Attributes { xattrs: vec![xattr], ..Attributes::default() };
                // Whoever asks for all that can be kept does not ask for what cannot.
                let _ = self.export.set_attributes(path, &one, true);
            }
        }
        self.export.set_attributes(path, &attributes, true)
    }

    /// Makes a symbolic link, in place of any other that is no directory.
    pub fn symlink(&self, path: &Path, target: &[u8], attrs: &Attrs) -> Result<(), Errno> {
        let target = Path::new(OsStr::from_bytes(target));
        let mut attributes = Attributes { mode: None, ..self.attributes(attrs, false) };
        if self.lenient {
            attributes.xattrs.clear();
        }
        self.replace(path, |name| {
            self.export.symlink(target, name)?;
            if attributes == Attributes::default() {
                return Ok(());
            }
            self.export.set_attributes(name, &attributes, false)
        })
    }

    /// Gives `file` another name.
    pub fn hard_link(&self, file: &Path, path: &Path) -> Result<(), Errno> {
        let id = self.export.lstat(file)?.id();
        if self.export.lstat(path).is_ok_and(|there| there.id() == id) {
            // To rename one name of a file to another would leave both.
            return Ok(());
        }
        self.replace(path, |name| self.export.hard_link(file, name))
    }

    /// Makes a named pipe or a device.
    pub fn node(&self, path: &Path, kind: Special, rdev: u64, attrs: &Attrs) -> Result<(), Errno> {
        let kind = match kind {
            Special::Fifo => FileType::Fifo,
            Special::CharDevice => FileType::CharacterDevice,
            Special::BlockDevice => FileType::BlockDevice,
        };
        let attributes = self.attributes(attrs, false);
        self.replace(path, |name| {
            let (Some(parent), Some(name_only)) = (name.parent(), name.file_name()) else {
                return Err(Errno::INVAL);
            };
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let parent =
                self.export.open_file(parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
            let mode = RawMode::from_raw_mode(attrs.mode);
            rustix::fs::mknodat(&parent, name_only, kind, mode, rdev)?;
            self.export.set_attributes(name, &attributes, false)
        })
    }

    /// Lets `make` make something at `path`: at once, or in the way of what is there, under a
    /// temporary name that then replaces it.
    fn replace(&self, path: &Path, make: impl Fn(&Path) -> Result<(), Errno>) -> Result<(), Errno> {
        match self.export.lstat(path) {
            Ok(there) if there.is_dir() => return Err(Errno::ISDIR),
            Ok(_) => {}
            Err(Errno::NOENT) => return make(path),
            Err(errno) => return Err(errno),
        }
        let temp = self.temp_name(path)?;
        let made = make(&temp).and_then(|()| self.export.rename(&temp, path, true));
        if made.is_err() {
            // It may not have been made at all.
            let _ = self.export.remove(&temp, sheaf_file::RemoveOptions::default());
        }
        made
    }

    fn temp_name(&self, path: &Path) -> Result<PathBuf, Errno> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        for _ in 0..TEMP_TRIES_MAX {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let temp =
                path.with_file_name(format!("{TEMP_PREFIX}l{}-{number}", std::process::id()));
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
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        self.check_dir(parent.unwrap_or(Path::new(".")), true).map(|()| &b"create"[..])
    }

    /// What to set in the end.
    fn attributes(&self, attrs: &Attrs, is_dir: bool) -> Attributes {
        let mut owner = attrs.owner;
        let mut kept_mode = attrs.mode;
        if self.user.uid != 0 {
            // Only the superuser gives files away; set-id bits would then speak of somebody else.
            if owner.uid.is_some_and(|uid| uid != self.user.uid) {
                kept_mode &= !0o4000;
            }
            if owner.gid.is_some_and(|gid| !self.user.groups.contains(&gid)) {
                kept_mode &= !0o2000;
                owner.gid = None;
            }
            owner.uid = None;
        }
        let owner = Owner { uid: self.chown.uid.or(owner.uid), gid: self.chown.gid.or(owner.gid) };
        let mode = match &self.chmod {
            Some(change) => Some(
                change.apply(if self.preserve { kept_mode } else { attrs.mode & 0o777 }, is_dir),
            ),
            None => self.preserve.then_some(kept_mode),
        };
        Attributes {
            mode,
            owner,
            atime: attrs.atime.map(SetTime::At),
            mtime: attrs.mtime.map(SetTime::At),
            xattrs: attrs.xattrs.clone(),
        }
    }
}
