//! One file copied from a directory to another.
use super::attributes::KeptFile;
use super::content::{ContentCopier, CopySide};
use super::target::status;
use super::tree::CopyRoot;
use super::{LocalCopyKeep, LocalCopyOptions};
use crate::left::LeftAttributes;
use crate::path::ArchivePath;
use crate::walk::names::{lstat_at, open_beneath};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use sheaf_core::files::{FileKind, Metadata};
use sheaf_core::{Errno, lock};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};

/// Bits of a mode that a new file has of its source, whatever is kept.
const ACCESS_BITS: u32 = 0o777;

/// What came of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileCopied {
    /// It was copied: its bytes, and the attributes that it lost.
    Copied { bytes: u64, left: LeftAttributes },
    /// What was there stays.
    Skipped,
}

/// Why a file was not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Uncopied {
    /// The source is to blame, and not the target.
    pub is_source: bool,
    pub doing: &'static str,
    pub errno: Errno,
}

impl Uncopied {
    pub fn read(errno: Errno) -> Self {
        Self { is_source: true, doing: "cannot be read", errno }
    }

    pub fn written(errno: Errno) -> Self {
        Self { is_source: false, doing: "cannot be written", errno }
    }

    /// It is there, but not as it was to be.
    pub fn unlike(errno: Errno) -> Self {
        Self { is_source: false, doing: "owner, mode or times cannot be kept", errno }
    }

    /// Another file of that name may be written all the same.
    fn is_denied(&self) -> bool {
        !self.is_source && matches!(self.errno, Errno::ACCES | Errno::PERM | Errno::TXTBSY)
    }

    fn in_the_way(doing: &'static str, errno: Errno) -> Self {
        Self { is_source: false, doing, errno }
    }
}

impl From<CopySide> for Uncopied {
    fn from(side: CopySide) -> Self {
        match side {
            CopySide::From(errno) => Self::read(errno),
            CopySide::To(errno) => Self::written(errno),
        }
    }
}

/// A name in a directory.
#[derive(Clone, Copy)]
pub(super) struct NameIn<'a> {
    pub directory: BorrowedFd<'a>,
    pub name: &'a OsStr,
    /// The directory was made just now, and has nothing that was not copied.
    pub is_in_new: bool,
}

impl<'a> NameIn<'a> {
    pub fn new(directory: &'a OwnedFd, name: &'a [u8]) -> Self {
        Self { directory: directory.as_fd(), name: OsStr::from_bytes(name), is_in_new: false }
    }

    fn find(&self) -> Result<Option<Metadata>, Errno> {
        match lstat_at(self.directory, self.name) {
            Err(Errno::NOENT) => Ok(None),
            found => found.map(Some),
        }
    }

    /// What a link leads to, if anything.
    fn leads_to(&self) -> Result<Option<Metadata>, Uncopied> {
        let flags = AtFlags::NO_AUTOMOUNT;
        match rustix::fs::statx(self.directory, self.name, flags, StatxFlags::BASIC_STATS) {
            Ok(found) => Ok(Some(found.into())),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
                Ok(None)
            }
            // Where it cannot be told, it may be.
            Err(errno) => Err(Uncopied::read(errno.into())),
        }
    }

    fn remove(&self) -> Result<(), Errno> {
        Ok(rustix::fs::unlinkat(self.directory, self.name, AtFlags::empty())?)
    }

    fn open(&self, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        rustix::fs::openat(self.directory, self.name, flags | OFlags::CLOEXEC, mode)
    }
}

/// Where a copy is: below the beginning of its tree, in a directory, under a name.
pub(super) struct CopiedName {
    pub root: Arc<CopyRoot>,
    pub below: ArchivePath,
    pub name: Vec<u8>,
}

/// The first copy of a file that has several names.
type FirstCopy = Arc<Mutex<Option<CopiedName>>>;

/// Copies files, in any number of threads.
pub(super) struct FileCopier {
    options: LocalCopyOptions,
    is_root: bool,
    content: ContentCopier,
    /// Files with several names of which some are yet to come, and how many.
    links: Mutex<HashMap<(u64, u64), (u32, FirstCopy)>>,
    /// Held while a file is written into that has several names already.
    linked_targets: Mutex<()>,
}

impl FileCopier {
    pub fn new(options: LocalCopyOptions) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        Self {
            options,
            is_root,
            content: ContentCopier::new(),
            links: Mutex::default(),
            linked_targets: Mutex::default(),
        }
    }

    /// Copies what was found under a name. A file that is written has a new name, or is emptied first, as
    /// by `cp`.
    pub fn copy(
        &self,
        from: NameIn<'_>,
        found: &Metadata,
        to: NameIn<'_>,
        at: impl FnOnce() -> CopiedName,
        room: &mut Vec<u8>,
    ) -> Result<FileCopied, Uncopied> {
        let there = if to.is_in_new { None } else { to.find().map_err(Uncopied::written)? };
        if there.is_some() && self.options.no_clobber {
            return Ok(FileCopied::Skipped);
        }
        let is_kept = self.options.update
            && there.as_ref().is_some_and(|there| is_kept_by_update(found, there));
        if !is_kept && let Some(there) = &there {
            in_the_way(found, there)?;
            // A link in place of the file that it leads to would leave nothing of that.
            let is_link = found.kind == FileKind::Symlink && there.kind != FileKind::Symlink;
            if is_link && from.leads_to()?.is_some_and(|led| led.id() == there.id()) {
                return Err(Uncopied::in_the_way("source and target are one file", Errno::EXIST));
            }
        }
        if self.options.dry_run {
            if is_kept {
                return Ok(FileCopied::Skipped);
            }
            let bytes = if found.kind == FileKind::File { found.size } else { 0 };
            return Ok(FileCopied::Copied { bytes, left: Vec::new() });
        }
        if self.options.keeps_links() && found.nlink > 1 {
            // Whoever comes meanwhile waits for the first.
            let first = self.first_copy(found);
            let mut first = lock(&first);
            if let Some(first) = &*first
                && link(first, to, there.as_ref()).map_err(Uncopied::written)?
            {
                return Ok(FileCopied::Copied { bytes: 0, left: Vec::new() });
            }
            if is_kept {
                // Names that come are names of what stays.
                *first = Some(at());
                return Ok(FileCopied::Skipped);
            }
            // Also where the first copy has as many names as it can: the next ones are names of
            // this one.
            let copied = self.single(from, found, to, there, room)?;
            *first = Some(at());
            return Ok(copied);
        }
        if is_kept {
            return Ok(FileCopied::Skipped);
        }
        self.single(from, found, to, there, room)
    }

    /// Sets what a directory is like. Those attributes that could not be kept.
    pub fn finish(&self, kept: &KeptFile<'_>) -> Result<LeftAttributes, Errno> {
        if self.options.keep == LocalCopyKeep::Nothing {
            return Ok(Vec::new());
        }
        kept.set(self.options.keep, self.is_root)
    }

    /// The first copy of a file, which is known as long as there are names of it to come.
    fn first_copy(&self, found: &Metadata) -> FirstCopy {
        let mut links = lock(&self.links);
        let (left, first) =
            links.entry(found.id()).or_insert_with(|| (found.nlink, FirstCopy::default()));
        *left = left.saturating_sub(1);
        let (is_last, first) = (*left == 0, first.clone());
        if is_last {
            links.remove(&found.id());
        }
        first
    }

    fn single(
        &self,
        from: NameIn<'_>,
        found: &Metadata,
        to: NameIn<'_>,
        there: Option<Metadata>,
        room: &mut Vec<u8>,
    ) -> Result<FileCopied, Uncopied> {
        if found.kind == FileKind::File {
            return self.regular(from, to, there, room);
        }
        let file = self.open_source(from, OFlags::PATH, found.kind)?;
        if there.is_some() {
            to.remove().map_err(Uncopied::written)?;
        }
        self.special(file.as_fd(), found, to)
    }

    /// Opens a source, which is what it was.
    fn open_source(
        &self,
        from: NameIn<'_>,
        flags: OFlags,
        kind: FileKind,
    ) -> Result<OwnedFd, Uncopied> {
        // A link that was named is followed.
        let follows = self.options.follows_named() && kind == FileKind::File;
        let flags = if follows { flags } else { flags | OFlags::NOFOLLOW };
        let file = from.open(flags, Mode::empty());
        file.map_err(|errno| Uncopied::read(errno.into()))
    }

    fn regular(
        &self,
        from: NameIn<'_>,
        to: NameIn<'_>,
        there: Option<Metadata>,
        room: &mut Vec<u8>,
    ) -> Result<FileCopied, Uncopied> {
        // A pipe may have the name by now: to open it would wait for its other end.
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK;
        let source = File::from(self.open_source(from, flags, FileKind::File)?);
        let found = status(source.as_fd()).map_err(Uncopied::read)?;
        if found.kind != FileKind::File {
            return Err(Uncopied::read(Errno::AGAIN));
        }
        // Two sources may be written into two names of one file: into one after the other.
        let is_linked = there.as_ref().is_some_and(|there| there.nlink > 1);
        let _turn = is_linked.then(|| lock(&self.linked_targets));
        let (file, is_new) = self.made(&found, to, there)?;
        let bytes = match self.content.copy(&source, &file, &found, room) {
            Ok(bytes) => bytes,
            Err(side) => {
                if is_new {
                    // Nothing half stays; the first error is told.
                    let _ = to.remove();
                }
                return Err(side.into());
            }
        };
        let kept = KeptFile { from: source.as_fd(), to: file.as_fd(), found: &found };
        let left = self.finish(&kept).map_err(Uncopied::unlike)?;
        Ok(FileCopied::Copied { bytes, left })
    }

    /// An empty file of a name, and whether it is new. What is no regular file gives way to it.
    fn made(
        &self,
        found: &Metadata,
        to: NameIn<'_>,
        there: Option<Metadata>,
    ) -> Result<(File, bool), Uncopied> {
        if let Some(there) = there {
            // Which of a source's names comes first is nothing that a copy may depend on.
            let is_linked = there.nlink > 1 || found.nlink > 1;
            let is_replaced = self.options.keeps_links() && is_linked;
            if there.kind == FileKind::File && !is_replaced {
                match emptied(found, to) {
                    Err(error) if self.options.force && error.is_denied() => {}
                    file => return Ok((file?, false)),
                }
            }
            to.remove().map_err(Uncopied::written)?;
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = to.open(flags, self.new_mode(found));
        let file = file.map_err(|errno| Uncopied::written(errno.into()))?;
        Ok((file.into(), true))
    }

    /// With which mode something is made.
    fn new_mode(&self, found: &Metadata) -> Mode {
        match self.options.keep {
            LocalCopyKeep::Nothing => Mode::from_raw_mode(found.mode & ACCESS_BITS),
            // The mode comes behind the owner: before that, others may not read it.
            _ => Mode::RUSR | Mode::WUSR,
        }
    }

    /// Makes what has no content.
    fn special(
        &self,
        source: BorrowedFd<'_>,
        found: &Metadata,
        to: NameIn<'_>,
    ) -> Result<FileCopied, Uncopied> {
        let written = |errno: rustix::io::Errno| Uncopied::written(errno.into());
        let node = |kind| {
            let (mode, device) = (self.new_mode(found), found.rdev);
            rustix::fs::mknodat(to.directory, to.name, kind, mode, device).map_err(written)
        };
        match found.kind {
            FileKind::Symlink => {
                let text = rustix::fs::readlinkat(source, c"", Vec::new());
                let text = text.map_err(|errno| Uncopied::read(errno.into()))?;
                rustix::fs::symlinkat(text, to.directory, to.name).map_err(written)?;
            }
            FileKind::Fifo => node(FileType::Fifo)?,
            FileKind::Socket => node(FileType::Socket)?,
            FileKind::CharDevice => node(FileType::CharacterDevice)?,
            FileKind::BlockDevice => node(FileType::BlockDevice)?,
            FileKind::File | FileKind::Directory | FileKind::Unknown => {
                return Err(Uncopied::read(Errno::AGAIN));
            }
        }
        if self.options.keep == LocalCopyKeep::Nothing {
            return Ok(FileCopied::Copied { bytes: 0, left: Vec::new() });
        }
        let file = to.open(OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).map_err(written)?;
        let kept = KeptFile { from: source, to: file.as_fd(), found };
        let left = self.finish(&kept).map_err(Uncopied::unlike)?;
        Ok(FileCopied::Copied { bytes: 0, left })
    }
}

/// Whether what is there is not older than the source, and is another file.
fn is_kept_by_update(found: &Metadata, there: &Metadata) -> bool {
    let time = |of: &Metadata| (of.mtime.seconds, of.mtime.nanoseconds);
    there.id() != found.id() && time(there) >= time(found)
}

/// What cannot be replaced by this.
fn in_the_way(found: &Metadata, there: &Metadata) -> Result<(), Uncopied> {
    if there.is_dir() {
        return Err(Uncopied::in_the_way("a file does not replace a directory", Errno::ISDIR));
    }
    if there.id() == found.id() {
        return Err(Uncopied::in_the_way("source and target are one file", Errno::EXIST));
    }
    let is_plain = matches!(there.kind, FileKind::File | FileKind::Symlink);
    if found.kind == FileKind::File && !is_plain {
        let doing = "a file does not replace a device, pipe or socket";
        return Err(Uncopied::in_the_way(doing, Errno::EXIST));
    }
    Ok(())
}

/// Opens a file that is there, and empties it, but for the source itself.
fn emptied(found: &Metadata, to: NameIn<'_>) -> Result<File, Uncopied> {
    // Without `O_TRUNC`: what is opened may be the source by now, and is looked at before.
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::NONBLOCK;
    let file = to.open(flags, Mode::empty());
    let file = file.map_err(|errno| Uncopied::written(errno.into()))?;
    let there = status(file.as_fd()).map_err(Uncopied::written)?;
    in_the_way(found, &there)?;
    if there.kind != FileKind::File {
        return Err(Uncopied::written(Errno::AGAIN));
    }
    rustix::fs::ftruncate(&file, 0).map_err(|errno| Uncopied::written(errno.into()))?;
    Ok(file.into())
}

/// Gives a file another name, in place of what has it. Says whether it has; it may have as many as it
/// can.
fn link(first: &CopiedName, to: NameIn<'_>, there: Option<&Metadata>) -> Result<bool, Errno> {
    let Some(root) = &first.root.to else { return Ok(false) };
    let directory = open_beneath(root.as_fd(), &first.below)?;
    let old = NameIn::new(&directory, &first.name);
    if let Some(there) = there {
        let is_same = old.find()?.is_some_and(|found| found.id() == there.id());
        if is_same {
            return Ok(true);
        }
        to.remove()?;
    }
    let flags = AtFlags::empty();
    match rustix::fs::linkat(old.directory, old.name, to.directory, to.name, flags) {
        Err(rustix::io::Errno::MLINK) => Ok(false),
        linked => Ok(linked.map(|()| true)?),
    }
}
