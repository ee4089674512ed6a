//! Files as they are read.
use super::file_error;
use crate::archive::ArchiveError;
use crate::name::FileName;
use crate::pack::member::{MemberAttributes, MemberKind, Xattrs};
use rustix::fs::{AtFlags, Mode, OFlags, SeekFrom, StatxFlags};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata, Timestamp};
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// Clocks of file systems step so far at most: what was changed within it may change again unseen.
const CLOCK_STEP: Duration = Duration::from_millis(20);
/// The same of file systems whose times are whole seconds, or even ones.
const CLOCK_STEP_SECONDS: Duration = Duration::from_secs(2);

/// A file that was opened.
pub(super) struct SourceFile {
    file: File,
    pub found: Metadata,
    pub attributes: MemberAttributes,
    /// More can be read than its length says, as of files of /proc, or of one that grows.
    pub has_more: bool,
    /// It ended before that.
    is_short: bool,
}

impl SourceFile {
    /// Opens a file of a directory. `path` is what it is called where something is told.
    pub fn open(
        directory: BorrowedFd<'_>,
        name: &OsStr,
        path: &Path,
        kind: FileKind,
    ) -> Result<Self, ArchiveError> {
        let failed = |errno| file_error(path, "cannot be read", errno);
        // Nothing but a file is opened for reading: a pipe would wait, and a device may do anything.
        let flags = match kind {
            FileKind::File => OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK,
            _ => OFlags::PATH,
        };
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, name, flags, Mode::empty())
            .map_err(|errno| failed(of(errno)))?;
        let found = status(file.as_fd()).map_err(failed)?;
        // It was replaced since it was listed. Flags were chosen for the kind that it had.
        if found.kind != kind {
            return Err(failed(Errno::AGAIN));
        }
        let attributes = attributes_of(&file, name, &found).map_err(failed)?;
        Ok(Self { file: file.into(), found, attributes, has_more: false, is_short: false })
    }

    /// Its whole content, if it is not longer than it says; else nothing.
    pub fn read_whole(&mut self, into: &mut Vec<u8>) -> Result<bool, Errno> {
        let limit = usize::try_from(self.found.size).map_err(|_| Errno::FBIG)?;
        // A byte more than it says that it has: less than that is all that there is.
        into.resize(limit + 1, 0);
        let mut at = 0;
        while at <= limit {
            let read = self.read_at(&mut into[at..], at as u64)?;
            at += read;
            if read == 0 || at == limit {
                break;
            }
        }
        into.truncate(at);
        self.has_more = at > limit;
        Ok(!self.has_more)
    }

    /// Sees whether more can be read than its length says.
    pub fn see_more(&mut self) -> Result<(), Errno> {
        self.has_more = self.read_at(&mut [0; 1], self.found.size)? > 0;
        Ok(())
    }

    /// Bytes that are not holes; nothing if all are.
    pub fn extents(&self) -> Result<Option<Vec<Range<u64>>>, Errno> {
        let size = self.found.size;
        // It has as many blocks as bytes, so no hole is worth a search.
        if self.found.blocks.saturating_mul(512) >= size {
            return Ok(None);
        }
        let (mut extents, mut at) = (Vec::new(), 0);
        while at < size {
            let from = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(from) if from < size => from,
                // There is no more data; or the file is shorter by now.
                Ok(_) | Err(rustix::io::Errno::NXIO) => break,
                // The file system knows of no holes.
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => return Ok(None),
                Err(errno) => return Err(of(errno)),
            };
            let end = rustix::fs::seek(&self.file, SeekFrom::Hole(from)).map_err(of)?.min(size);
            extents.push(from..end);
            at = end;
        }
        let is_whole = extents.len() == 1 && extents[0] == (0..size);
        Ok((!is_whole).then_some(extents))
    }

    /// What is in these pieces of it, one behind the other; nothing if it is shorter.
    pub fn read_pieces(&self, pieces: &[Range<u64>], into: &mut Vec<u8>) -> Result<bool, Errno> {
        into.clear();
        for piece in pieces {
            let mut at = piece.start;
            while at < piece.end {
                let (from, left) = (into.len(), (piece.end - at) as usize);
                into.resize(from + left, 0);
                let read = self.read_at(&mut into[from..], at)?;
                if read == 0 {
                    return Ok(false);
                }
                into.truncate(from + read);
                at += read as u64;
            }
        }
        Ok(true)
    }

    /// Some bytes of it, as many as there are up to the length of `into`.
    pub fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize, Errno> {
        loop {
            match self.file.read_at(into, at) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                read => return read.map_err(|error| Errno::from_io(&error)),
            }
        }
    }

    /// Whether it is as it was when it was opened.
    pub fn is_same(&self) -> Result<bool, Errno> {
        let now = status(self.file.as_fd())?;
        let of = &self.found;
        // A program can set the time of modification back, but not that of the change.
        Ok((now.size, now.mtime, now.ctime) == (of.size, of.mtime, of.ctime))
    }

    /// Notes that reading ended before the file's length. Files of `/proc` and `/sys` may state any length.
    pub fn ended_early(&mut self) {
        self.is_short = !sheaf_file::is_made_up(&self.file).unwrap_or(false);
        self.forget();
    }

    /// Whether its length is not that of what was read.
    pub fn is_of_another_length(&self) -> bool {
        self.has_more || self.is_short
    }

    /// It was written to while it was read, so it is to be stored again the next time.
    pub fn forget(&mut self) {
        self.attributes.ctime_ns = 0;
    }
}

/// A time in nanoseconds, modulo 2⁶⁴.
pub(super) fn nanoseconds(time: Timestamp) -> u64 {
    let seconds = time.seconds.cast_unsigned();
    seconds.wrapping_mul(1_000_000_000).wrapping_add(u64::from(time.nanoseconds))
}

pub(crate) fn status(file: BorrowedFd<'_>) -> Result<Metadata, Errno> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted);
    found.map(Metadata::from).map_err(of)
}

fn attributes_of(
    file: &OwnedFd,
    name: &OsStr,
    found: &Metadata,
) -> Result<MemberAttributes, Errno> {
    let (major, minor) = (rustix::fs::major(found.rdev), rustix::fs::minor(found.rdev));
    let kind = match found.kind {
        FileKind::File => MemberKind::File,
        FileKind::Symlink => {
            let target = rustix::fs::readlinkat(file, c"", Vec::new()).map_err(of)?;
            MemberKind::Symlink { target: target.into_bytes() }
        }
        FileKind::Fifo => MemberKind::Fifo,
        FileKind::CharDevice => MemberKind::CharDevice { major, minor },
        FileKind::BlockDevice => MemberKind::BlockDevice { major, minor },
        FileKind::Directory | FileKind::Socket | FileKind::Unknown => return Err(Errno::INVAL),
    };
    let ctime_ns = nanoseconds(found.ctime);
    Ok(MemberAttributes {
        // A file that was named is opened by its path.
        name: Path::new(name)
            .file_name()
            .and_then(|name| FileName::new(name.as_bytes()))
            .ok_or(Errno::INVAL)?,
        kind,
        mode: found.mode,
        uid: found.uid,
        gid: found.gid,
        mtime: found.mtime,
        ctime_ns: archived_ctime(ctime_ns),
        ino: found.ino,
        xattrs: match found.kind {
            FileKind::File => xattrs_of_file(file.as_fd())?,
            _ => xattrs_of(file.as_fd())?,
        },
    })
}

/// A time of change as it is archived with a file that is read from now on.
fn archived_ctime(ctime_ns: u64) -> u64 {
    // 0 matches no file, so the next run stores it again.
    if ctime_ns > i64::MAX as u64 {
        return 0;
    }
    // The kernel's own clock: it is that of file systems, also where this program sees another one.
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let now = Timestamp { seconds: now.tv_sec, nanoseconds: now.tv_nsec as u32 };
    if is_recent(ctime_ns, nanoseconds(now)) { !ctime_ns } else { ctime_ns }
}

/// Whether a file may be changed after it was read and have the same time of change all the same. A time to
/// come is one of a server with another clock.
fn is_recent(ctime_ns: u64, now_ns: u64) -> bool {
    let is_whole = ctime_ns.is_multiple_of(1_000_000_000);
    let step = if is_whole { CLOCK_STEP_SECONDS + CLOCK_STEP } else { CLOCK_STEP };
    now_ns.saturating_sub(ctime_ns) < step.as_nanos() as u64
}

/// Extended attributes of a file that is open for reading: a file without any takes one call.
fn xattrs_of_file(file: BorrowedFd<'_>) -> Result<Xattrs, Errno> {
    // Any other answer, even that there is no room, says that there are some.
    match rustix::fs::flistxattr(file, &mut [0u8; 512][..]) {
        Ok(0) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(Vec::new()),
        _ => xattrs_of(file),
    }
}

/// Extended attributes of what is open, also where it is open as a mere path, sorted by name.
pub(crate) fn xattrs_of(file: BorrowedFd<'_>) -> Result<Xattrs, Errno> {
    // `fgetxattr` refuses what was opened with `O_PATH`, and links are opened so.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut room = Vec::new();
    let names = match grown(&mut room, |room| rustix::fs::listxattr(&path, room)) {
        Ok(bytes) => room[..bytes].to_vec(),
        // The file system has none.
        Err(rustix::io::Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(errno) => return Err(of(errno)),
    };
    let mut all = Vec::new();
    for name in names.split_inclusive(|&byte| byte == 0) {
        let name = CStr::from_bytes_with_nul(name).map_err(|_| Errno::IO)?;
        match grown(&mut room, |room| rustix::fs::getxattr(&path, name, room)) {
            Ok(bytes) => all.push((name.to_bytes().to_vec(), room[..bytes].to_vec())),
            // It was taken away since.
            Err(rustix::io::Errno::NODATA) => {}
            Err(errno) => return Err(of(errno)),
        }
    }
    // File systems list them in any order; unchanged directories have to compare as equal.
    all.sort();
    Ok(all)
}

/// Calls until there is room.
fn grown(
    room: &mut Vec<u8>,
    mut call: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<usize> {
    const XATTRS_MAX: usize = 1 << 20;
    room.resize(room.len().max(1024), 0);
    loop {
        match call(&mut room[..]) {
            Err(rustix::io::Errno::RANGE) if room.len() < XATTRS_MAX => {
                room.resize(room.len() * 4, 0);
            }
            called => return called,
        }
    }
}

pub(super) fn of(errno: rustix::io::Errno) -> Errno {
    Errno(errno.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_changed_within_a_step_of_their_clock_are_recent() {
        const SECOND: u64 = 1_000_000_000;
        let now = 1_700_000_000 * SECOND + 500_000_000;
        for (ctime, is) in [
            (now, true),
            (now - 19_000_001, true),
            (now - 21_000_001, false),
            (now + 5 * SECOND + 1, true),
            (now - 500_000_000, true),
            (now - SECOND - 500_000_000, true),
            (now - 2 * SECOND - 500_000_000, false),
        ] {
            assert_eq!(is_recent(ctime, now), is, "{ctime}");
        }
        let name = FileName::new("a").unwrap();
        let mut of = MemberAttributes::new(name, MemberKind::File, 0o600);
        assert_eq!(of.ctime(), None);
        of.ctime_ns = archived_ctime(now);
        assert_eq!(of.ctime(), Some((now, false)));
        let future = 5_000_000_000 * SECOND;
        of.ctime_ns = archived_ctime(future);
        assert_eq!(of.ctime(), Some((future, true)));
        assert_eq!(archived_ctime(nanoseconds(Timestamp { seconds: -1, nanoseconds: 0 })), 0);
    }
}
