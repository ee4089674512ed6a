//! Replacing a file as a whole: write beside it, verify, rename over it.

mod content;
mod place;
mod way;

use crate::Result;
use crate::attributes::{Attributes, Subject, Xattr, apply};
use crate::digest::{Algorithm, Digest, digest};
use crate::export::Export;
use crate::identity::FileIdentity;
use content::{HashInOrder, StagedContent};
use place::{Destination, StageKind};
use rustix::fd::AsFd;
use sheaf_core::Errno;
use sheaf_core::files::Metadata;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

/// A file that is to be on the disk in the end is brought there in pieces of so many bytes: each
/// takes the disk a moment, all of a large file at once might take minutes without a sign of life.
const SYNC_BYTES: u64 = 64 << 20;

pub(crate) use place::link as link_open;
pub use place::{TEMP_PREFIX, is_made_up, temp_name};
pub(crate) use way::walk;

/// How to stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StageOptions {
    /// Permissions of a new file, before the umask. A file that is replaced hands on its own
    /// permissions, owner and access control list.
    pub mode: u32,
    /// Leave holes where whole blocks of zeros are written.
    pub sparse: bool,
    /// Wait until the contents are on disk before the name changes, and for the name after it.
    pub sync: bool,
    /// Write into the destination itself, as `cp` does: no new inode, but no atomicity either.
    pub in_place: bool,
    /// Replace a file this user may not write, where the directory allows it.
    pub force: bool,
    /// Replace a symbolic link, a pipe or a device at the destination, and do not write into it or into
    /// what it leads to.
    pub over_special: bool,
    /// Follow no symbolic link that another user could have laid, unless the file that it leads to is that
    /// user's. Those are the owners of the links on the way and of the directories that it leads
    /// through, and everybody where all may make names. Groups that may write are trusted. A pipe or device of
    /// another user is not written to, nor one that another user could have put there.
    pub wary: bool,
}

impl Default for StageOptions {
    fn default() -> Self {
        Self {
            mode: 0o666,
            sparse: false,
            sync: true,
            in_place: false,
            force: false,
            over_special: false,
            wary: false,
        }
    }
}

/// A file that is being written and does not have its name yet.
///
/// Until [`Staged::commit`] the destination stays as it is; a `Staged` that is dropped, or whose
/// process is killed, leaves nothing: the new file has no name (`O_TMPFILE`). Only where the file
/// system cannot do that, it is called [`TEMP_PREFIX`]`…` meanwhile, and a kill leaves it.
///
/// A symbolic link at the destination stays and its target, within the export, is replaced, unless
/// [`StageOptions::over_special`] says otherwise. Devices
/// and named pipes, files of `/proc` and `/sys`, and with [`StageOptions::in_place`] all files, are
/// written directly.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use sheaf_file::{Attributes, Export, StageOptions, Staged};
/// use std::path::Path;
///
/// let export = Export::open(dir.path())?;
/// let mut staged = Staged::create(&export, Path::new("motd"), StageOptions::default())?;
/// staged.write_at(0, b"hello")?;
/// assert!(export.stat(Path::new("motd")).is_err());
/// staged.commit(&Attributes::default(), None)?;
/// assert_eq!(export.stat(Path::new("motd"))?.size, 5);
/// # Ok::<(), sheaf_core::Errno>(())
/// ```
#[derive(Debug)]
pub struct Staged {
    destination: Destination,
    content: StagedContent,
    hash: HashInOrder,
    options: StageOptions,
    /// Bytes written since the disk was last waited for.
    unsynced: u64,
}

impl Staged {
    /// Begins to replace `path`, which need not exist.
    ///
    /// # Errors
    /// `EISDIR` for a directory; `EACCES` for a file this user may not write, and for a link that is not followed; those of `open(2)` in
    /// the directory of the destination; `ENXIO` for a named pipe that nobody reads.
    pub fn create(export: &Export, path: &Path, options: StageOptions) -> Result<Self> {
        Self::create_apart(export, path, options, None)
    }

    /// As [`Staged::create`], of a copy of `source`: with [`StageOptions::in_place`], a `path` that
    /// is the source itself is refused before it is emptied.
    ///
    /// # Errors
    /// Those of [`Staged::create`]; `ESAMEFILE` for the source.
    pub fn create_apart(
        export: &Export,
        path: &Path,
        options: StageOptions,
        source: Option<&FileIdentity>,
    ) -> Result<Self> {
        let (destination, file) = Destination::open(export, path, &options, source)?;
        let content = match destination.kind {
            StageKind::Stream => StagedContent::stream(file),
            _ => StagedContent::file(file, options.sparse),
        };
        Ok(Self { destination, content, hash: HashInOrder::new(), options, unsynced: 0 })
    }

    /// Writes all of `data` at `offset`. Bytes that are never written are zero.
    ///
    /// # Errors
    /// Those of `pwrite(2)`. A device or a pipe takes its bytes in order only (`ESPIPE`), and
    /// `ETIMEDOUT` says that it took none for a while.
    pub fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.content.write_at(offset, data)?;
        self.hash.write_at(offset, data);
        self.unsynced += data.len() as u64;
        if self.options.sync && self.unsynced >= SYNC_BYTES {
            self.unsynced = 0;
            if let Some(file) = self.content.seekable() {
                sync(file)?;
            }
        }
        Ok(())
    }

    /// Makes the contents at least `size` bytes long, as for a hole at the end.
    ///
    /// # Errors
    /// `ESPIPE` for a device or a pipe.
    pub fn extend(&mut self, size: u64) -> Result<()> {
        self.content.extend(size)
    }

    /// How long the contents are so far, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.content.size()
    }

    /// Whether it is written directly: what was written so far stays, whatever follows.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        matches!(self.destination.kind, StageKind::InPlace | StageKind::Stream)
    }

    /// The BLAKE3 digest of the contents so far. It was computed while they were written, or if
    /// they did not come in order, is read from the new file.
    ///
    /// # Errors
    /// Those of reading; `ESPIPE` for a device or a pipe that was not written.
    pub fn digest(&mut self) -> Result<Digest> {
        if let Some(digest) = self.hash.finish(self.content.size()) {
            return Ok(digest);
        }
        self.content.set_length()?;
        let mut file: &File = self.content.seekable().ok_or(Errno::SPIPE)?;
        file.seek(SeekFrom::Start(0))?;
        digest(&mut file, Algorithm::Blake3)
    }

    /// Sets one extended attribute at once. Whoever wants only those that the file system takes
    /// tries each with this, and commits with the rest: a change of owner removes some.
    ///
    /// # Errors
    /// Those of `fsetxattr(2)`.
    pub fn set_xattr(&self, xattr: &Xattr) -> Result<()> {
        let one = Attributes { xattrs: vec![xattr.clone()], ..Attributes::default() };
        apply(Subject::Open(self.content.raw().as_fd()), &one)
    }

    /// Gives the new file its attributes and its name, in that order, and says what it is now.
    ///
    /// With `expected`, contents with another digest are refused (`EBADMSG`). After an error the
    /// old file is intact and nothing of the new one is left (unless it was written directly); only
    /// an error of waiting for the disk after the renaming comes too late for that.
    ///
    /// # Errors
    /// Those of `fchown(2)`, `fsetxattr(2)`, `fchmod(2)`, `fsync(2)` and `rename(2)`; `EBUSY` for a
    /// destination that is a mount point, which [`StageOptions::in_place`] can write.
    pub fn commit(
        mut self,
        attributes: &Attributes,
        expected: Option<&Digest>,
    ) -> Result<Metadata> {
        if let Some(expected) = expected
            && self.digest()? != *expected
        {
            return Err(Errno::BADMSG);
        }
        self.content.set_length()?;
        let file = self.content.raw();
        if self.destination.kind == StageKind::Stream {
            return crate::export::fd_metadata(file.as_fd());
        }
        // Attributes before the name: the new file is never seen with other permissions.
        self.destination.inherit(file, attributes)?;
        apply(Subject::Open(file.as_fd()), attributes)?;
        // Contents before the name: after a crash the name is that of the old file or of the whole
        // new one.
        if self.options.sync {
            sync(file)?;
        }
        self.destination.publish(file)?;
        if self.options.sync {
            self.destination.sync_dir()?;
        }
        crate::export::fd_metadata(file.as_fd())
    }
}

/// Waits for the disk; files of `/proc` and the like have none.
///
/// # Errors
/// Those of `fsync(2)`.
pub fn sync(file: &File) -> Result<()> {
    match rustix::fs::fsync(file) {
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::ROFS) | Ok(()) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
