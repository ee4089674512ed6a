//! Whether a file of another process is the same file as one here.
//!
//! A command reads a file on the machine where it runs, and hosts write it. One of the hosts may be
//! that machine. The command therefore sends what identifies the file, and a host that would write
//! into the same file refuses.

use crate::Result;
use crate::export::fd_metadata;
use crate::stage::is_made_up;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use sheaf_core::boot_id;
use sheaf_core::files::{FileKind, Timestamp};

/// Directories above another, at most.
const DEPTH_MAX: usize = 4096;

/// File systems of several machines: nfs, lustre, gpfs, beegfs, ceph, cifs, smb2, afs, 9p, ocfs2,
/// gfs2, orangefs. All machines see one number of a file there.
const SHARED_FILE_SYSTEMS: [u32; 12] = [
    0x6969,
    0x0bd0_0bd0,
    0x4750_4653,
    0x1983_0326,
    0x00c3_6400,
    0xff53_4d42,
    0xfe53_4d42,
    0x6b41_4653,
    0x0102_1997,
    0x7461_636f,
    0x0116_1970,
    0x2003_0528,
];

/// File systems that show files of others under numbers of their own: overlayfs, and what programs
/// serve by FUSE (a view of Sheaf itself, sshfs).
const OVERLAY: u32 = 0x794c_7630;
const FUSE: u32 = 0x6573_5546;

/// How far the numbers of a file system's files reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Numbers {
    /// One machine.
    Machine,
    /// All machines that have it mounted.
    Shared,
    /// This mount of it: the same file has another number elsewhere on this machine.
    Overlay,
    /// This mount of it, and the file may be of any machine.
    Fuse,
}

impl Numbers {
    fn of(file_system: u32) -> Self {
        match file_system {
            OVERLAY => Self::Overlay,
            FUSE => Self::Fuse,
            kind if SHARED_FILE_SYSTEMS.contains(&kind) => Self::Shared,
            _ => Self::Machine,
        }
    }
}

/// What identifies a regular file or a directory, on its machine and on machines that share its
/// file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    /// The boot identifier of the kernel, if this process may read it.
    machine: Option<u128>,
    dev: u64,
    ino: u64,
    kind: FileKind,
    size: u64,
    mtime: Timestamp,
    ctime: Timestamp,
    numbers: Numbers,
}

impl FileIdentity {
    /// The identity of an open file; `O_PATH` is enough. `None` for devices and pipes, and for
    /// files of `/proc` and the like, which no write empties.
    ///
    /// # Errors
    /// Those of `statx(2)` and `fstatfs(2)`.
    pub fn of(file: impl AsFd) -> Result<Option<Self>> {
        let metadata = fd_metadata(file.as_fd())?;
        let is_kept = matches!(metadata.kind, FileKind::File | FileKind::Directory);
        if !is_kept || is_made_up(&file)? {
            return Ok(None);
        }
        Ok(Some(Self {
            machine: boot_id(),
            dev: metadata.dev,
            ino: metadata.ino,
            kind: metadata.kind,
            size: metadata.size,
            mtime: metadata.mtime,
            ctime: metadata.ctime,
            numbers: Numbers::of(rustix::fs::fstatfs(&file)?.f_type as u32),
        }))
    }

    /// The identities of a directory and of those above it, also outside of an export, as far as this
    /// user may go.
    ///
    /// # Errors
    /// Those of [`FileIdentity::of`].
    pub fn of_all_above(dir: impl AsFd) -> Result<Vec<Self>> {
        let mut all: Vec<Self> = Self::of(&dir)?.into_iter().collect();
        let mut at = fd_metadata(dir.as_fd())?.id();
        let mut above = up(dir.as_fd());
        while let Ok(next) = above
            && all.len() < DEPTH_MAX
        {
            let id = fd_metadata(next.as_fd())?.id();
            if id == at {
                break;
            }
            all.extend(Self::of(&next)?);
            (at, above) = (id, up(next.as_fd()));
        }
        Ok(all)
    }

    /// Whether `file` is this file. On a file system of several machines, number and time of the
    /// last change decide; where one of the two is on a file system with numbers of its own, size and times.
    ///
    /// # Errors
    /// Those of [`FileIdentity::of`].
    pub fn is(&self, file: impl AsFd) -> Result<bool> {
        Ok(Self::of(file)?.is_some_and(|other| self.is_same(&other)))
    }

    fn is_same(&self, other: &Self) -> bool {
        let is_of_one_machine = self.machine.is_some() && self.machine == other.machine;
        // Within one mount numbers decide, also where they are its own: files that were made within
        // one tick of the clock have the same times.
        if is_of_one_machine && self.dev == other.dev {
            return self.ino == other.ino;
        }
        match (self.numbers, other.numbers) {
            (Numbers::Shared, Numbers::Shared) => {
                (self.ino, self.ctime) == (other.ino, other.ctime)
            }
            (Numbers::Fuse, _) => self.looks_like(other),
            (_, Numbers::Fuse) => other.looks_like(self),
            (Numbers::Overlay, _) | (_, Numbers::Overlay) => {
                is_of_one_machine && self.looks_like(other)
            }
            _ => false,
        }
    }

    /// Whether size and times are those of `other`, which may have finer times.
    fn looks_like(&self, other: &Self) -> bool {
        // Some programs know whole seconds only, and no time of the last change.
        let is_coarse = self.numbers == Numbers::Fuse && self.mtime.nanoseconds == 0;
        let has_times = match is_coarse {
            true => self.mtime.seconds == other.mtime.seconds,
            false => (self.mtime, self.ctime) == (other.mtime, other.ctime),
        };
        (self.kind, self.size) == (other.kind, other.size) && has_times
    }

    /// Whether this directory is `dir` or one above it, also outside of the export. Above a
    /// directory that this user may not enter, the answer is no.
    ///
    /// # Errors
    /// Those of [`FileIdentity::of`].
    pub fn is_above(&self, dir: impl AsFd) -> Result<bool> {
        if self.is(&dir)? {
            return Ok(true);
        }
        let mut at = fd_metadata(dir.as_fd())?.id();
        let Ok(mut above) = up(dir.as_fd()) else { return Ok(false) };
        for _ in 0..DEPTH_MAX {
            let id = fd_metadata(above.as_fd())?.id();
            if id == at {
                return Ok(false);
            }
            if self.is(&above)? {
                return Ok(true);
            }
            let Ok(next) = up(above.as_fd()) else { return Ok(false) };
            (at, above) = (id, next);
        }
        Ok(false)
    }
}

fn up(dir: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(dir, "..", flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn identity_is_that_of_the_file_and_not_of_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("a"), "a").unwrap();
        std::fs::write(at("b"), "a").unwrap();
        std::fs::hard_link(at("a"), at("c")).unwrap();
        let open = |name: &str| File::open(at(name)).unwrap();
        let identity = FileIdentity::of(open("a")).unwrap().unwrap();
        let is = |name: &str| identity.is(open(name)).unwrap();
        assert_eq!((is("a"), is("b"), is("c")), (true, false, true));
        let other = FileIdentity { machine: Some(1), ..identity.clone() };
        assert!(!other.is(open("a")).unwrap());
        let unknown = FileIdentity { machine: None, ..identity.clone() };
        assert!(!unknown.is_same(&unknown));
        // Two machines see the same number and time, each with a device number of its own.
        let nfs = FileIdentity { numbers: Numbers::Shared, ..identity.clone() };
        let elsewhere = FileIdentity { machine: Some(1), dev: 7, ..nfs.clone() };
        assert!(nfs.is_same(&elsewhere));
        let later = Timestamp { seconds: 1, nanoseconds: 0 };
        assert!(!nfs.is_same(&FileIdentity { ctime: later, ..elsewhere }));
    }

    #[test]
    fn file_is_known_through_file_systems_with_other_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "contents").unwrap();
        let plain = FileIdentity::of(File::open(&file).unwrap()).unwrap().unwrap();
        let plain = FileIdentity { numbers: Numbers::Machine, ..plain };
        let through =
            |numbers, machine| FileIdentity { numbers, machine, dev: 77, ino: 3, ..plain.clone() };
        let other = Some(1);
        let both = |a: &FileIdentity, b: &FileIdentity| {
            assert_eq!(a.is_same(b), b.is_same(a));
            a.is_same(b)
        };
        assert!(!both(&plain, &through(Numbers::Machine, plain.machine)));
        assert!(both(&plain, &through(Numbers::Overlay, plain.machine)));
        assert!(!both(&plain, &through(Numbers::Overlay, other)));
        assert!(both(&plain, &through(Numbers::Fuse, other)));
        // Another file of the same mount, made in the same moment.
        let overlay = through(Numbers::Overlay, plain.machine);
        assert!(!both(&overlay, &FileIdentity { ino: 4, ..overlay.clone() }));
        let longer = FileIdentity { size: 9, ..through(Numbers::Fuse, other) };
        assert!(!both(&plain, &longer));
        // As sshfs shows it: whole seconds, and no time of the last change.
        let seconds = Timestamp { nanoseconds: 0, ..plain.mtime };
        let coarse =
            FileIdentity { mtime: seconds, ctime: seconds, ..through(Numbers::Fuse, other) };
        assert!(both(&plain, &coarse));
        let earlier = Timestamp { seconds: 5, nanoseconds: 0 };
        assert!(!both(&plain, &FileIdentity { mtime: earlier, ctime: earlier, ..coarse }));
        let changed = FileIdentity { ctime: earlier, ..through(Numbers::Fuse, other) };
        assert!(!both(&plain, &changed));
    }

    #[test]
    fn identity_of_kernel_files_and_pipes_does_not_exist() {
        assert_eq!(FileIdentity::of(File::open("/proc/self/stat").unwrap()), Ok(None));
        assert_eq!(FileIdentity::of(File::open("/dev/null").unwrap()), Ok(None));
    }

    #[test]
    fn directory_is_above_itself_and_what_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
        std::fs::create_dir_all(dir.path().join("ab")).unwrap();
        let open = |name: &str| File::open(dir.path().join(name)).unwrap();
        let identity = FileIdentity::of(open("a")).unwrap().unwrap();
        let is_above = |name: &str| identity.is_above(open(name)).unwrap();
        assert!(is_above("a") && is_above("a/b") && is_above("a/b/c"));
        assert!(!is_above(".") && !is_above("ab"));
        let root = FileIdentity::of(File::open("/").unwrap()).unwrap().unwrap();
        assert!(root.is_above(open("a")).unwrap());
    }
}
