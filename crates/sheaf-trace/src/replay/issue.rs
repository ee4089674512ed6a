//! Operations done again.
use super::ReplaySkip;
use super::call_time::{self, timed, untimed};
use super::crew::ReplayJob;
use super::outcome::ReplayTally;
use super::plan::{StreamEnd, open_flags, opened_at};
use super::target::ReplayTarget;
use rustix::fd::OwnedFd;
use rustix::fs::{Dir, FallocateFlags, OFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags, Result};
use sheaf_recorder::IoOp;
use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// Files that are open at once; further ones are not opened.
pub const REPLAY_OPEN_MAX: usize = 768;
/// The kernel moves no more by one call, in bytes.
const CALL_BYTES_MAX: u64 = 0x7fff_f000;
/// What is moved by one call here at most, in bytes: more takes several.
const PIECE_BYTES_MAX: usize = 1 << 20;
/// What a stream of the C library keeps, in bytes.
const STREAM_BYTES: u64 = 4096;
/// The byte at an offset is what is left when it is divided by this: nothing that blocks divide.
const PATTERN_BYTES: usize = 251;

/// What is written, made once.
static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    (0..PIECE_BYTES_MAX + PATTERN_BYTES).map(|at| (at % PATTERN_BYTES) as u8).collect()
});

static OPEN: AtomicUsize = AtomicUsize::new(0);

/// An open file, counted.
struct CountedFile(OwnedFd);

impl CountedFile {
    fn new(open: impl FnOnce() -> Result<OwnedFd>) -> std::result::Result<Self, ReplayStop> {
        // Counted before the open, so that two threads cannot both take the last place.
        if OPEN.fetch_add(1, Ordering::Relaxed) >= REPLAY_OPEN_MAX {
            OPEN.fetch_sub(1, Ordering::Relaxed);
            return Err(ReplayStop::Skip(ReplaySkip::TooManyOpen));
        }
        open().map(Self).map_err(|errno| {
            OPEN.fetch_sub(1, Ordering::Relaxed);
            ReplayStop::Failed(errno)
        })
    }
}

impl Drop for CountedFile {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why an operation moved nothing.
enum ReplayStop {
    Skip(ReplaySkip),
    Failed(Errno),
}

impl From<Errno> for ReplayStop {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

type ReplayIssued = std::result::Result<i64, ReplayStop>;

/// A path of a process: what is open of it, and where accesses without an offset are.
#[derive(Default)]
struct OpenPath {
    files: Vec<Arc<CountedFile>>,
    /// Opened for operations on it, as the trace has no open.
    unopened: Option<Arc<CountedFile>>,
    directories: Vec<(Dir, CountedFile)>,
    /// Where they write, and where they read: of a file that is open twice, for each, they are apart.
    place: u64,
    read: u64,
    appends: StreamEnd,
    /// Of a stream: bytes before its place that are not written, and behind it that are read.
    unwritten: u64,
    ahead: u64,
}

type OpenPaths = HashMap<Arc<[u8]>, Arc<Mutex<OpenPath>>>;

/// What a recorded process has open.
pub(super) struct ReplayProcess {
    target: Arc<ReplayTarget>,
    paths: Mutex<OpenPaths>,
}

/// What a panicking thread has left here is whole: it is changed after the calls.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReplayProcess {
    pub fn new(target: Arc<ReplayTarget>) -> Self {
        Self { target, paths: Mutex::default() }
    }

    fn path(&self, path: &Arc<[u8]>) -> Arc<Mutex<OpenPath>> {
        lock(&self.paths).entry(path.clone()).or_default().clone()
    }

    /// Writes what streams have kept: the process has ended.
    pub fn end(&self, tally: &mut ReplayTally) {
        let mut issuer = ReplayIssuer::default();
        for path in lock(&self.paths).values() {
            let mut open = lock(path);
            let file = open.files.last().or(open.unopened.as_ref()).cloned();
            if let Some(file) = file {
                tally.flushes_failed += u64::from(issuer.flush(&mut open, &file.0).is_err());
            }
        }
    }
}

/// What a thread needs to do operations.
pub(super) struct ReplayIssuer {
    pattern: &'static [u8],
    room: Vec<u8>,
}

impl Default for ReplayIssuer {
    /// All of it is there before the first operation, whose time it is not.
    fn default() -> Self {
        // Ones and not zeros, which the system would make page by page when they are first written.
        Self { pattern: &PATTERN, room: vec![1; PIECE_BYTES_MAX] }
    }
}

impl ReplayIssuer {
    /// Does an operation and counts what came of it.
    pub fn issue(&mut self, job: &ReplayJob, tally: &mut ReplayTally) {
        let path = job.process.path(&job.path);
        call_time::take();
        let done =
            if job.op.moves_data() { self.transfer(job, &path) } else { self.operate(job, &path) };
        let took = call_time::take();
        let (errno, bytes) = match done {
            Ok(bytes) => (0, bytes),
            Err(ReplayStop::Failed(errno)) => (errno.raw_os_error(), 0),
            Err(ReplayStop::Skip(why)) => return tally.skip(why, job.op.word().to_owned()),
        };
        // When an asynchronous access was ordered, nobody knew what would come of it.
        let compares = job.op.moves_data() && !matches!(job.op, IoOp::AsyncRead | IoOp::AsyncWrite);
        tally.did((job.op, &job.row, &job.path), (errno, bytes), compares, took);
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    fn operate(&mut self, job: &ReplayJob, path: &Mutex<OpenPath>) -> ReplayIssued {
        let target = &job.process.target;
        let name = &job.path;
        match job.op {
            IoOp::Open => return self.open(job, path),
            IoOp::Close => return self.close(job, path),
            IoOp::CloseDirectory => {
                let mut open = lock(path);
                let directory = open.directories.pop();
                let file = if directory.is_none() { open.files.pop() } else { None };
                if directory.is_none() && file.is_none() {
                    return Err(ReplayStop::Skip(ReplaySkip::NotOpen));
                }
                timed(|| drop((directory, file)));
            }
            IoOp::Dup => {
                let mut open = lock(path);
                let Some(file) = open.files.last().cloned() else {
                    return Err(ReplayStop::Skip(ReplaySkip::NotOpen));
                };
                let dup = || timed(|| rustix::io::fcntl_dupfd_cloexec(&file.0, 0));
                open.files.push(Arc::new(CountedFile::new(dup)?));
            }
            IoOp::Seek => {
                let file = file_of(job, path, OFlags::empty())?;
                if job.is_stdio {
                    let mut open = lock(path);
                    self.flush(&mut open, &file.0)?;
                    open.ahead = 0;
                    let place = job.row.offset.and_then(|at| u64::try_from(at).ok());
                    if let Some(place) = place {
                        (open.place, open.read) = (place, place);
                    }
                    open.appends.seek();
                }
                // Moves nothing, and is made for its time: all accesses here name their offset.
                timed(|| rustix::fs::seek(&file.0, SeekFrom::Current(0)))?;
            }
            IoOp::Flush => {
                // A stream that has kept something has a file.
                let mut open = lock(path);
                if let Some(file) = open.files.last().or(open.unopened.as_ref()).cloned() {
                    self.flush(&mut open, &file.0)?;
                }
            }
            IoOp::Sync | IoOp::AsyncSync => {
                let file = file_of(job, path, OFlags::empty())?;
                timed(|| rustix::fs::fsync(&file.0))?;
            }
            IoOp::Truncate => {
                let file = file_of(job, path, OFlags::empty())?;
                let len = job.row.asked.max(0).unsigned_abs();
                timed(|| rustix::fs::ftruncate(&file.0, len))?;
            }
            IoOp::Allocate => {
                let file = file_of(job, path, OFlags::CREATE)?;
                let (at, len) = (job.row.offset.unwrap_or(0), job.row.asked);
                let (at, len) = (at.max(0).unsigned_abs(), len.max(0).unsigned_abs());
                timed(|| rustix::fs::fallocate(&file.0, FallocateFlags::empty(), at, len))?;
            }
            IoOp::Stat | IoOp::Access => {
                // One that is open and taken away can be looked at by its descriptor.
                let file = lock(path).files.last().cloned();
                match (target.stat(name), file) {
                    (Err(Errno::NOENT), Some(file)) if job.row.errno == 0 => {
                        timed(|| rustix::fs::fstat(&file.0))?
                    }
                    (stat, _) => stat?,
                };
            }
            IoOp::OpenDirectory => {
                let directory = directory(job)?;
                lock(path).directories.push(directory);
            }
            IoOp::ReadDirectory => {
                let mut open = lock(path);
                if open.directories.is_empty() {
                    open.directories.push(untimed(|| directory(job))?);
                }
                let (directory, _) = open.directories.last_mut().expect("just put there");
                let entry = timed(|| directory.read()).transpose()?;
                return Ok(i64::from(entry.is_some()));
            }
            IoOp::MakeDirectory => target.make_directory(name)?,
            IoOp::RemoveDirectory => target.remove_directory(name)?,
            IoOp::Unlink => match target.remove(name) {
                // It takes directories, too, if it is told so.
                Err(Errno::ISDIR) if job.row.errno == 0 => target.remove_directory(name)?,
                done => done?,
            },
            IoOp::Rename => {
                let Some(new_name) = &job.new_path else {
                    return Err(ReplayStop::Skip(ReplaySkip::TargetNotRecorded));
                };
                target.rename(name, new_name)?;
            }
            IoOp::Link => {
                let Some(new_name) = &job.new_path else {
                    return Err(ReplayStop::Skip(ReplaySkip::TargetNotRecorded));
                };
                let len = untimed(|| target.stat(name))?.st_size;
                let file = target.file(new_name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
                rustix::fs::ftruncate(&file, u64::try_from(len).unwrap_or(0))?;
            }
            _ => return Err(ReplayStop::Skip(ReplaySkip::NotOfFile)),
        }
        Ok(0)
    }

    /// Opens as the trace says: of its flags what becomes of the file, and to read and to write, as
    /// others of this path may go on with it.
    fn open(&mut self, job: &ReplayJob, path: &Mutex<OpenPath>) -> ReplayIssued {
        let asked = open_flags(&job.row);
        let flags = match job.row.errno {
            // Whether it was there is not known for all.
            0 => OFlags::CREATE | (asked & OFlags::TRUNC),
            errno if errno == Errno::EXIST.raw_os_error() => OFlags::CREATE | OFlags::EXCL,
            _ => OFlags::empty(),
        };
        let begins = opened_at(&job.row, job.is_stdio).and_then(|at| u64::try_from(at).ok());
        if let Some(place) = begins {
            file_of(job, path, flags)?;
            let mut open = lock(path);
            (open.place, open.read) = (place, place);
            open.appends.open(asked, true);
            return Ok(0);
        }
        let file = opened(job, flags)?;
        if job.row.errno == 0 {
            let mut open = lock(path);
            // What another stream of this path has kept.
            if let Some(other) = open.files.last().or(open.unopened.as_ref()).cloned() {
                self.flush(&mut open, &other.0)?;
            }
            (open.place, open.read, open.ahead, open.unwritten) = (0, 0, 0, 0);
            open.appends.open(asked, false);
            open.files.push(Arc::new(file));
        }
        Ok(0)
    }

    fn close(&mut self, job: &ReplayJob, path: &Mutex<OpenPath>) -> ReplayIssued {
        let mut open = lock(path);
        let Some(file) = open.files.pop().or_else(|| open.unopened.take()) else {
            return Err(ReplayStop::Skip(ReplaySkip::NotOpen));
        };
        if job.is_stdio {
            self.flush(&mut open, &file.0)?;
        }
        open.ahead = 0;
        timed(|| drop(file));
        Ok(0)
    }

    fn transfer(&mut self, job: &ReplayJob, path: &Mutex<OpenPath>) -> ReplayIssued {
        let writes = job.op.writes();
        let file = file_of(job, path, if writes { OFlags::CREATE } else { OFlags::empty() })?;
        let row = &job.row;
        if job.is_stdio {
            return self.stream(job, &mut lock(path), &file.0);
        }
        let asked = row.asked.max(0).unsigned_abs().min(CALL_BYTES_MAX);
        let offset = row.offset.map(u64::try_from).transpose();
        let offset = offset.map_err(|_| ReplayStop::Skip(ReplaySkip::ArgumentsNotRecorded))?;
        let moved = match (writes, offset) {
            (true, at) => self.write(&file.0, at, asked)?,
            (false, Some(at)) => self.read(&file.0, at, asked)?,
            (false, None) => {
                // Not locked during the call, so that threads of one process read at the same time.
                let at = lock(path).read;
                let moved = self.read(&file.0, at, asked)?;
                lock(path).read = at.saturating_add(moved);
                moved
            }
        };
        Ok(i64::try_from(moved).unwrap_or(i64::MAX))
    }

    /// Reads or writes as a stream of the C library: so much as was moved, since what was asked
    /// for (a line) depends on the data.
    fn stream(&mut self, job: &ReplayJob, open: &mut OpenPath, file: &OwnedFd) -> ReplayIssued {
        let (asked, bytes) = (job.row.asked.max(0), job.row.bytes.max(0));
        // An access that moved nothing asks for one byte, so that a read at the end finds the end.
        let amount = if bytes == 0 { asked.min(1) } else { bytes }.unsigned_abs();
        if job.op.writes() {
            // A stream forgets what it has read ahead before it writes.
            open.ahead = 0;
            open.place = open.place.saturating_add(amount);
            open.unwritten = open.unwritten.saturating_add(amount);
            if open.unwritten >= STREAM_BYTES {
                self.flush(open, file)?;
            }
            return Ok(amount as i64);
        }
        self.flush(open, file)?;
        if amount > open.ahead {
            let from = open.read.saturating_add(open.ahead);
            open.ahead += self.read(file, from, (amount - open.ahead).max(STREAM_BYTES))?;
        }
        let moved = amount.min(open.ahead);
        open.ahead -= moved;
        open.read = open.read.saturating_add(moved);
        Ok(moved as i64)
    }

    /// Writes what a stream has kept.
    fn flush(&mut self, open: &mut OpenPath, file: &OwnedFd) -> Result<()> {
        let len = std::mem::take(&mut open.unwritten);
        if len > 0 {
            let at = open.place.saturating_sub(len);
            self.write(file, (!open.appends.is_so()).then_some(at), len)?;
        }
        Ok(())
    }

    /// Writes at an offset, or at the end.
    fn write(&mut self, file: &OwnedFd, at: Option<u64>, len: u64) -> Result<u64> {
        in_pieces(len, |done, len| {
            let at = at.map(|at| at.saturating_add(done));
            let from = (at.unwrap_or(done) % PATTERN_BYTES as u64) as usize;
            let piece = &self.pattern[from..from + len];
            match at {
                Some(at) => timed(|| rustix::io::pwrite(file, piece, at)),
                None => {
                    let pieces = [IoSlice::new(piece)];
                    timed(|| rustix::io::pwritev2(file, &pieces, 0, ReadWriteFlags::APPEND))
                }
            }
        })
    }

    fn read(&mut self, file: &OwnedFd, at: u64, len: u64) -> Result<u64> {
        in_pieces(len, |done, len| {
            timed(|| rustix::io::pread(file, &mut self.room[..len], at.saturating_add(done)))
        })
    }
}

/// Moves so much by calls of bounded size; one that moves less is the last.
fn in_pieces(len: u64, mut call: impl FnMut(u64, usize) -> Result<usize>) -> Result<u64> {
    let mut done = 0;
    loop {
        let piece = (len - done).min(PIECE_BYTES_MAX as u64) as usize;
        match call(done, piece) {
            Ok(moved) => {
                done += moved as u64;
                if moved < piece || done >= len {
                    return Ok(done);
                }
            }
            Err(Errno::INTR) => {}
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => return Ok(done),
        }
    }
}

fn opened(job: &ReplayJob, flags: OFlags) -> std::result::Result<CountedFile, ReplayStop> {
    let target = &job.process.target;
    CountedFile::new(|| match target.file(&job.path, OFlags::RDWR | flags) {
        Err(Errno::ISDIR) if job.row.errno == 0 => target.directory(&job.path),
        done => done,
    })
}

/// The file that the process has opened last by this path, or one that is opened for this.
fn file_of(
    job: &ReplayJob,
    path: &Mutex<OpenPath>,
    flags: OFlags,
) -> std::result::Result<Arc<CountedFile>, ReplayStop> {
    let mut open = lock(path);
    if let Some(file) = open.files.last().or(open.unopened.as_ref()) {
        return Ok(file.clone());
    }
    let file = Arc::new(untimed(|| opened(job, flags))?);
    open.unopened = Some(file.clone());
    // Others have it, too, and each goes on where the one before has ended.
    open.appends = StreamEnd::Yet;
    Ok(file)
}

fn directory(job: &ReplayJob) -> std::result::Result<(Dir, CountedFile), ReplayStop> {
    let file = CountedFile::new(|| job.process.target.directory(&job.path))?;
    Ok((Dir::read_from(&file.0)?, file))
}
