//! Changes of names: directories, links, renames; and of length.

use crate::export::ExportPlace;
use crate::{Export, Result};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use sheaf_core::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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

    /// Makes a directory and those above it that are missing; one that exists already is no error.
    /// `made` is told of each that was made, also when one below it then fails. The umask applies;
    /// those above can always be entered by their owner.
    ///
    /// # Errors
    /// Those of `mkdir(2)`; `ENOTDIR` where something else stands in the way.
    pub fn create_dirs(&self, path: &Path, mode: Mode, made: &mut dyn FnMut(&Path)) -> Result<()> {
        let bytes = path.as_os_str().as_bytes();
        let is_end =
            |at: usize| bytes[at] != b'/' && bytes.get(at + 1).is_none_or(|&next| next == b'/');
        let ends: Vec<usize> = (0..bytes.len()).filter(|&at| is_end(at)).map(|at| at + 1).collect();
        for &end in &ends {
            let above = Path::new(OsStr::from_bytes(&bytes[..end]));
            let is_last = Some(&end) == ends.last();
            match self.resolve(above, OFlags::DIRECTORY) {
                Ok(_) => continue,
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
            let mode = if is_last { mode } else { Mode::from_raw_mode(0o777) };
            match self.create_dir(above, mode) {
                // Somebody else made it meanwhile, or a link leads nowhere.
                Err(Errno::EXIST) => drop(self.resolve(above, OFlags::DIRECTORY)?),
                done => {
                    done?;
                    made(above);
                }
            }
        }
        if ends.is_empty() { self.resolve(path, OFlags::DIRECTORY).map(drop) } else { Ok(()) }
    }

    /// Makes a symbolic link whose text is `target`, which is not looked at.
    ///
    /// # Errors
    /// Those of `symlink(2)`.
    pub fn symlink(&self, target: &Path, link: &Path) -> Result<()> {
        let link = self.new_place(link)?;
        Ok(rustix::fs::symlinkat(target, &link.dir, &link.name)?)
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
