//! Opening a file so that it can still be undone: `open(2)` in two steps.

use crate::Result;
use crate::export::{Export, fd_metadata, name_metadata, requested};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags};
use sheaf_core::Errno;
use sheaf_core::files::FileKind;
use std::fs::File;
use std::path::{Path, PathBuf};

/// How many symbolic links one after the other lead to a file that is to be made, as in the kernel.
const LINKS_MAX: usize = 40;

/// An open file that is not emptied yet, and that can be unmade if opening it has made it.
#[derive(Debug)]
pub struct Tentative {
    /// The file, open as it was asked for.
    pub file: File,
    /// Where opening it made it.
    created: Option<PathBuf>,
    cut: TentativeCut,
}

/// What `O_TRUNC` will do.
#[derive(Debug)]
enum TentativeCut {
    Nothing,
    /// The file can be emptied through its own descriptor.
    Itself,
    /// It is not open for writing; this descriptor of it is.
    Through(File),
}

impl Export {
    /// Opens a file as `open(2)` does, but for two things: with `O_TRUNC` it is not emptied before
    /// [`Tentative::settle`], and what was made can be unmade with [`Tentative::undo`]. Everything
    /// that can be wrong is found out here, that the file may not be emptied included.
    ///
    /// # Errors
    /// Those of `open(2)`; `ELOOP` when the path leads through a magic link; `ESTALE` when another
    /// file takes its place meanwhile.
    pub fn open_tentative(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<Tentative> {
        let flags = requested(flags);
        let now = flags - OFlags::TRUNC;
        let (file, created) = if flags.contains(OFlags::CREATE) {
            self.open_or_create(path, now, mode)?
        } else {
            (self.open_file(path, now, mode)?, None)
        };
        let empties = flags.contains(OFlags::TRUNC) && created.is_none();
        let cut = if empties { self.cut(path, flags, &file)? } else { TentativeCut::Nothing };
        Ok(Tentative { file, created, cut })
    }

    /// Opens a file with `O_CREAT`, and tells where it was made, if it was.
    fn open_or_create(
        &self,
        path: &Path,
        flags: OFlags,
        mode: Mode,
    ) -> Result<(File, Option<PathBuf>)> {
        let mut path = path.to_owned();
        if flags.contains(OFlags::EXCL) {
            return Ok((self.open_file(&path, flags, mode)?, Some(path)));
        }
        for _ in 0..=LINKS_MAX {
            // Only with `O_EXCL` does the kernel say who made a file.
            match self.open_file(&path, flags | OFlags::EXCL, mode) {
                Err(Errno::EXIST) => {}
                made => return Ok((made?, Some(path))),
            }
            match self.resolve(&path, flags & OFlags::NOFOLLOW) {
                Err(Errno::NOENT) => {}
                _ => return Ok((self.open_file(&path, flags, mode)?, None)),
            }
            // A link that leads nowhere: the file it names is the one to make. If there is no link
            // either, somebody has removed what was there.
            match self.place(&path).and_then(|place| place.link_to_follow()) {
                Ok(Some(target)) => path = path.parent().unwrap_or(Path::new("")).join(target),
                Ok(None) | Err(Errno::NOENT | Errno::INVAL) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::LOOP)
    }

    /// How the open file will be emptied: what the kernel does with `O_TRUNC` after it has opened
    /// it.
    fn cut(&self, path: &Path, flags: OFlags, file: &File) -> Result<TentativeCut> {
        let metadata = fd_metadata(file.as_fd())?;
        match metadata.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(Errno::ISDIR),
            _ => return Ok(TentativeCut::Nothing),
        }
        let attributes =
            rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::empty())?.stx_attributes;
        if attributes.contains(StatxAttributes::APPEND) {
            return Err(Errno::PERM);
        }
        if matches!(flags & OFlags::ACCMODE, OFlags::WRONLY | OFlags::RDWR) {
            return Ok(TentativeCut::Itself);
        }
        let through = OFlags::WRONLY | OFlags::NONBLOCK | flags & OFlags::NOFOLLOW;
        let through = self.open_file(path, through, Mode::empty())?;
        let same = fd_metadata(through.as_fd())?.id() == metadata.id();
        if same { Ok(TentativeCut::Through(through)) } else { Err(Errno::STALE) }
    }

    /// Removes the name `path` if it still stands for `file`.
    fn unmake(&self, path: &Path, file: &File) -> Result<()> {
        let place = self.place(path)?;
        // The file is open, so its inode cannot have become another's.
        let there = name_metadata(place.dir.as_fd(), &place.name)?;
        if there.id() == fd_metadata(file.as_fd())?.id() {
            rustix::fs::unlinkat(&place.dir, &place.name, AtFlags::empty())?;
        }
        Ok(())
    }
}

impl Tentative {
    /// Empties the file, if that was asked for.
    ///
    /// # Errors
    /// Those of `ftruncate(2)`.
    pub fn settle(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.cut, TentativeCut::Nothing) {
            TentativeCut::Nothing => Ok(()),
            TentativeCut::Itself => Ok(rustix::fs::ftruncate(&self.file, 0)?),
            TentativeCut::Through(file) => Ok(rustix::fs::ftruncate(file, 0)?),
        }
    }

    /// How many descriptors it takes.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        1 + usize::from(matches!(self.cut, TentativeCut::Through(_)))
    }

    /// Whether opening the file has made it.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.created.is_some()
    }

    /// Removes the file if opening it has made it, by the name under which it was made. Whatever
    /// else has that name by now stays, links included, as does a file that was renamed. (Between
    /// the last look and the removal there is a moment in which the kernel gives no help.)
    ///
    /// # Errors
    /// Those of `unlink(2)`, but that the file is gone is none.
    pub fn undo(&self, export: &Export) -> Result<()> {
        match &self.created {
            Some(path) => match export.unmake(path, &self.file) {
                Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
                done => done,
            },
            None => Ok(()),
        }
    }
}
