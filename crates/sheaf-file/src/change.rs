//! Changes of names: directories, links, renames; and of length.

use crate::Result;
use crate::attributes::Attributes;
use crate::export::{Export, ExportPlace};
use crate::held::FoundFile;
use crate::made::{Making, open_in};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use sheaf_core::Errno;
use sheaf_core::files::FileKind;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

impl Export {
    /// Makes a directory. The umask applies.
    ///
    /// # Errors
    /// Those of `mkdir(2)`.
    pub fn create_dir(&self, path: &Path, mode: Mode) -> Result<()> {
        match self.place(path) {
            Ok(place) => Ok(rustix::fs::mkdirat(&place.dir, &place.name, mode)?),
            // `/`, and paths that end in a dot or two, name directories that exist if anything.
            Err(Errno::INVAL) => self.resolve(path, OFlags::DIRECTORY).and(Err(Errno::EXIST)),
            Err(errno) => Err(errno),
        }
    }

    /// Makes a directory, and returns the directory that has its name now: its mode can be set
    /// whatever becomes of the path. The umask applies.
    ///
    /// # Errors
    /// Those of `mkdir(2)`; `ENOTDIR` or `ESTALE` if something else has taken its place already.
    pub fn make_dir(&self, path: &Path, mode: Mode) -> Result<FoundFile> {
        let place = match self.place(path) {
            // As in `create_dir`.
            Err(Errno::INVAL) => {
                return self.resolve(path, OFlags::DIRECTORY).and(Err(Errno::EXIST));
            }
            place => place?,
        };
        make_in(&place.dir, &place.name, mode)
    }

    /// Makes a directory and those above it that are missing; one that exists already is no error.
    /// `made` is told of each that was made, also when one below it then fails. The umask applies;
    /// those above can always be entered by their owner.
    ///
    /// # Errors
    /// Those of `mkdir(2)`; `ENOTDIR` where something else stands in the way.
    pub fn create_dirs(&self, path: &Path, mode: Mode, made: &mut dyn FnMut(&Path)) -> Result<()> {
        self.make_dirs(path, mode, made).map(drop)
    }

    /// As [`Export::create_dirs`], and returns the last directory if this call has made it.
    ///
    /// # Errors
    /// Those of [`Export::create_dirs`].
    pub fn make_dirs(
        &self,
        path: &Path,
        mode: Mode,
        made: &mut dyn FnMut(&Path),
    ) -> Result<Option<FoundFile>> {
        let look = |path: &Path| self.resolve(path, OFlags::DIRECTORY).map(drop);
        make_each(
            path,
            (Mode::from_raw_mode(0o777), mode),
            made,
            (&look, &|path, mode| self.make_dir(path, mode)),
        )
    }

    /// Makes a symbolic link whose text is `target`, which is not looked at.
    ///
    /// # Errors
    /// Those of `symlink(2)`.
    pub fn symlink(&self, target: &Path, link: &Path) -> Result<()> {
        let link = self.new_place(link)?;
        Ok(rustix::fs::symlinkat(target, &link.dir, &link.name)?)
    }

    /// As [`Export::symlink`], and returns the link.
    ///
    /// # Errors
    /// Those of `symlink(2)`; `ESTALE` if something else has taken its place already.
    pub fn make_link(&self, target: &Path, link: &Path) -> Result<FoundFile> {
        let link = self.new_place(link)?;
        let making = Making::in_dir(&link.dir)?;
        rustix::fs::symlinkat(target, &link.dir, &link.name)?;
        making.made_link(&link.name, target)
    }

    /// Makes a named pipe or a device, and returns it. The umask applies.
    ///
    /// # Errors
    /// Those of `mknod(2)`; `EINVAL` for another kind of file; `ESTALE` if something else has taken its place already.
    pub fn make_node(
        &self,
        path: &Path,
        kind: FileKind,
        mode: Mode,
        rdev: u64,
    ) -> Result<FoundFile> {
        let place = self.new_place(path)?;
        let file_type = match kind {
            FileKind::Fifo => FileType::Fifo,
            FileKind::CharDevice => FileType::CharacterDevice,
            FileKind::BlockDevice => FileType::BlockDevice,
            _ => return Err(Errno::INVAL),
        };
        let making = Making::in_dir(&place.dir)?;
        rustix::fs::mknodat(&place.dir, &place.name, file_type, mode, rdev)?;
        making.made_node(&place.name, kind, mode, rdev)
    }

    /// Gives a file another name. A symbolic link is not followed but linked itself.
    ///
    /// # Errors
    /// Those of `link(2)`.
    pub fn hard_link(&self, file: &Path, link: &Path) -> Result<()> {
        let file = self.place(file)?;
        file.check_kind()?;
        let link = self.new_place(link)?;
        Ok(rustix::fs::linkat(&file.dir, &file.name, &link.dir, &link.name, AtFlags::empty())?)
    }

    /// Gives a file that was found another name, whatever became of its own.
    ///
    /// # Errors
    /// Those of `link(2)`.
    pub fn hard_link_found(&self, file: &FoundFile, link: &Path) -> Result<()> {
        let link = self.new_place(link)?;
        Ok(crate::stage::link_open(file, &link.dir, &link.name)?)
    }

    /// Renames a file or directory; what has the new name already is replaced only with `replace`.
    ///
    /// # Errors
    /// Those of `rename(2)`; `EEXIST` without `replace`.
    pub fn rename(&self, from: &Path, to: &Path, replace: bool) -> Result<()> {
        let from = self.place(from)?;
        from.check_kind()?;
        let to = self.place(to)?;
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        Ok(rustix::fs::renameat_with(&from.dir, &from.name, &to.dir, &to.name, flags)?)
    }

    /// Cuts or extends a regular file to `size` bytes.
    ///
    /// # Errors
    /// Those of `open(2)` and `ftruncate(2)`.
    pub fn truncate(&self, path: &Path, size: u64) -> Result<()> {
        let file = self.open_file(path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty())?;
        Ok(rustix::fs::ftruncate(&file, size)?)
    }

    /// A place for something that is no directory, so a slash at the end is an error.
    fn new_place(&self, path: &Path) -> Result<ExportPlace> {
        let place = self.place(path)?;
        if place.must_be_dir { Err(Errno::NOENT) } else { Ok(place) }
    }
}

impl ExportPlace {
    /// Fails with `ENOTDIR` if the path asks for a directory and the name is something else.
    pub(crate) fn check_kind(&self) -> Result<()> {
        if self.must_be_dir && !crate::export::name_metadata(self.dir.as_fd(), &self.name)?.is_dir()
        {
            return Err(Errno::NOTDIR);
        }
        Ok(())
    }
}

/// Makes a directory of this machine, outside of any export, with this mode, and those above it that are missing, with the
/// first one; nothing where it is there. A link that takes the place of one that was made is not followed.
///
/// # Errors
/// Those of `mkdir(2)`; `ENOTDIR` where something else stands in the way.
pub fn make_directories(
    path: &Path,
    (above_mode, mode): (Mode, Mode),
) -> Result<Option<FoundFile>> {
    let open = |path: &Path| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
    };
    let make = |path: &Path, mode| match (path.parent(), path.file_name()) {
        (Some(above), Some(name)) if above == Path::new("") => make_in(CWD, name, mode),
        (Some(above), Some(name)) => make_in(open(above)?, name, mode),
        _ => Err(Errno::EXIST),
    };
    // A dot at the end names the directory that is made.
    let path: PathBuf = path.components().collect();
    make_each(&path, (above_mode, mode), &mut |_| {}, (&|path| open(path).map(drop), &make))
}

/// Looks whether a directory is there.
type LookForDirectory<'a> = dyn Fn(&Path) -> Result<()> + 'a;
/// Makes a directory, and opens it.
type MakeDirectory<'a> = dyn Fn(&Path, Mode) -> Result<FoundFile> + 'a;

/// What the owner of a directory needs to make another in it, whatever the umask says.
const ENTERED: u32 = 0o300;

/// As [`Export::make_dirs`], for paths of which the first part is looked up and made like this.
fn make_each(
    path: &Path,
    (above_mode, mode): (Mode, Mode),
    made: &mut dyn FnMut(&Path),
    (look, make): (&LookForDirectory<'_>, &MakeDirectory<'_>),
) -> Result<Option<FoundFile>> {
    let bytes = path.as_os_str().as_bytes();
    let is_end =
        |at: usize| bytes[at] != b'/' && bytes.get(at + 1).is_none_or(|&next| next == b'/');
    let ends: Vec<usize> = (0..bytes.len()).filter(|&at| is_end(at)).map(|at| at + 1).collect();
    // The last one that was made: what is beneath it is made by its descriptor, so that a link which takes its
    // place is not followed.
    let mut within: Option<FoundFile> = None;
    for &end in &ends {
        let above = Path::new(OsStr::from_bytes(&bytes[..end]));
        let mode = if Some(&end) == ends.last() { mode } else { above_mode };
        let start = bytes[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let name = match &bytes[start..end] {
            b"." if within.is_some() => continue,
            // It leads out of what was made.
            b".." => {
                within = None;
                None
            }
            name => Some(OsStr::from_bytes(name)),
        };
        let new = match (&within, name) {
            (Some(dir), Some(name)) => make_in(dir, name, mode),
            _ => match look(above) {
                Ok(()) => continue,
                Err(Errno::NOENT) => make(above, mode),
                Err(errno) => return Err(errno),
            },
        };
        within = match (new, &within, name) {
            // Another process made it meanwhile, or a link leads nowhere.
            (Err(Errno::EXIST), Some(dir), Some(name)) => {
                Some(open_in(dir, name, OFlags::DIRECTORY)?)
            }
            (Err(Errno::EXIST), ..) => {
                look(above)?;
                None
            }
            (new, ..) => {
                let new = new?;
                made(above);
                if Some(&end) == ends.last() {
                    return Ok(Some(new));
                }
                let mode = new.metadata().mode & 0o7777;
                if mode & ENTERED != ENTERED {
                    let mode = Some(mode | ENTERED);
                    new.set_attributes(&Attributes { mode, ..Attributes::default() })?;
                }
                Some(new)
            }
        };
    }
    if ends.is_empty() {
        look(path)?;
    }
    Ok(None)
}

/// Makes a directory in an open one.
fn make_in(dir: impl AsFd, name: &OsStr, mode: Mode) -> Result<FoundFile> {
    let making = Making::in_dir(&dir)?;
    rustix::fs::mkdirat(&dir, name, mode)?;
    making.made_dir(name)
}
