//! Contents of files copied, by the kernel where it can.
use rustix::fs::SeekFrom;
use sheaf_core::Errno;
use sheaf_core::files::Metadata;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is not longer is read and written in one go: that takes less than to have it copied.
const SMALL_BYTES: u64 = 64 << 10;
/// Bytes that are read at once.
const ROOM_BYTES: usize = 256 << 10;
/// Bytes that the kernel is asked to copy at once.
const ASKED_BYTES: usize = 1 << 30;

/// Which of two files something is wrong with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopySide {
    From(Errno),
    To(Errno),
}

#[derive(Debug)]
pub(super) struct ContentCopier {
    /// The file system may let files share what is in them.
    shares: AtomicBool,
}

impl ContentCopier {
    pub fn new() -> Self {
        Self { shares: AtomicBool::new(true) }
    }

    /// Copies all there is from the beginning into a file that is empty. How many bytes were no holes.
    pub fn copy(
        &self,
        from: &File,
        to: &File,
        found: &Metadata,
        room: &mut Vec<u8>,
    ) -> Result<u64, CopySide> {
        room.resize(ROOM_BYTES, 0);
        let is_sparse = found.blocks.saturating_mul(512) < found.size;
        if found.size > 0 && self.share(from, to) {
            return Ok(found.size);
        }
        if is_sparse && let Some(copied) = copy_extents(from, to, found.size, room)? {
            return Ok(copied);
        }
        if found.size <= SMALL_BYTES {
            return copy_by_hand(from, to, room, 0);
        }
        match copy_range(from, to, 0..u64::MAX) {
            // Some files, of /proc for one, have nothing for the kernel to copy.
            Ok(0) => copy_by_hand(from, to, room, 0),
            Ok(copied) => Ok(copied),
            Err(CopyBroken { at, errno }) => {
                not_full(errno)?;
                copy_by_hand(from, to, room, at)
            }
        }
    }

    /// Has both files share what is in them, where the file system can.
    fn share(&self, from: &File, to: &File) -> bool {
        if !self.shares.load(Ordering::Relaxed) {
            return false;
        }
        let shared = rustix::fs::ioctl_ficlone(to, from).is_ok();
        if !shared {
            // Not tried again: each file would take a call more for nothing.
            self.shares.store(false, Ordering::Relaxed);
        }
        shared
    }
}

/// The kernel has stopped to copy.
struct CopyBroken {
    at: u64,
    errno: Errno,
}

/// An error that says that there is no room; after others reading and writing say what is wrong.
fn not_full(errno: Errno) -> Result<(), CopySide> {
    match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Err(CopySide::To(errno)),
        _ => Ok(()),
    }
}

/// Has the kernel copy a range, or up to the end of the file. How many bytes those were.
fn copy_range(from: &File, to: &File, range: std::ops::Range<u64>) -> Result<u64, CopyBroken> {
    let (mut at, mut into) = (range.start, range.start);
    while at < range.end {
        let asked = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(ASKED_BYTES);
        match rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut into), asked) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(CopyBroken { at, errno: errno.into() }),
        }
    }
    Ok(at - range.start)
}

/// Copies from an offset on by reading and writing. How many bytes there are from the beginning on.
fn copy_by_hand(mut from: &File, mut to: &File, room: &mut [u8], at: u64) -> Result<u64, CopySide> {
    let (from_failed, to_failed) = (of(CopySide::From), of(CopySide::To));
    // `copy_file_range` has moved neither of the two offsets.
    if at > 0 {
        rustix::fs::seek(from, SeekFrom::Start(at)).map_err(|e| CopySide::From(e.into()))?;
        rustix::fs::seek(to, SeekFrom::Start(at)).map_err(|e| CopySide::To(e.into()))?;
    }
    let mut copied = at;
    loop {
        let read = match from.read(room) {
            Ok(0) => return Ok(copied),
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(from_failed(error)),
        };
        to.write_all(&room[..read]).map_err(&to_failed)?;
        copied += read as u64;
    }
}

/// Copies what is no hole, and leaves as much room for holes. Nothing where the file system knows of
/// none.
fn copy_extents(
    from: &File,
    to: &File,
    size: u64,
    room: &mut [u8],
) -> Result<Option<u64>, CopySide> {
    let (mut copied, mut at) = (0, 0);
    let from_failed = |errno: rustix::io::Errno| CopySide::From(errno.into());
    loop {
        let start = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) if at == 0 => {
                return rewound(from).map(|()| None);
            }
            Err(errno) => return Err(from_failed(errno)),
        };
        let end = rustix::fs::seek(from, SeekFrom::Hole(start)).map_err(from_failed)?;
        let mut next = start;
        match copy_range(from, to, start..end) {
            Ok(bytes) => next += bytes,
            Err(CopyBroken { at, errno }) => {
                not_full(errno)?;
                next = at;
            }
        }
        // From where the kernel has stopped; nothing is left where it has copied all.
        next = copy_pieces(from, to, next..end, room)?;
        copied += next - start;
        at = end;
    }
    // A hole at the end is nothing that was written; the file may be longer by now than it was.
    to.set_len(size.max(at)).map_err(of(CopySide::To))?;
    Ok(Some(copied))
}

fn rewound(from: &File) -> Result<(), CopySide> {
    rustix::fs::seek(from, SeekFrom::Start(0)).map_err(|errno| CopySide::From(errno.into()))?;
    Ok(())
}

/// Copies a range by reading and writing. Where it ends, which is before its end if the file does.
fn copy_pieces(
    from: &File,
    to: &File,
    range: std::ops::Range<u64>,
    room: &mut [u8],
) -> Result<u64, CopySide> {
    let mut at = range.start;
    while at < range.end {
        let wanted = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(room.len());
        let read = match from.read_at(&mut room[..wanted], at) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(of(CopySide::From)(error)),
        };
        to.write_all_at(&room[..read], at).map_err(of(CopySide::To))?;
        at += read as u64;
    }
    Ok(at)
}

fn of(side: fn(Errno) -> CopySide) -> impl Fn(std::io::Error) -> CopySide {
    move |error| side(Errno::from_io(&error))
}
