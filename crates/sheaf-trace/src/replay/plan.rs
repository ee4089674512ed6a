//! What has to be there before a replay begins.
use super::target::ReplayTarget;
use rustix::fs::OFlags;
use rustix::io::Errno;
use sheaf_log::{TraceError, TraceRow};
use sheaf_recorder::IoOp;
use std::collections::BTreeMap;

/// Paths for which is kept what they need; for others nothing is made.
pub const REPLAY_PATHS_MAX: usize = 1 << 20;

/// What a path was before the first operation on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// It was opened, and perhaps made by that.
    Unknown,
    Absent,
    File,
    Directory,
}

#[derive(Debug)]
struct PlannedPath {
    before: Before,
    /// How long it has to be before, in bytes.
    size: i64,
    /// How long the operations so far have made it.
    written: i64,
    /// Where writes and reads without an offset are: of a file that is open twice, for each, they
    /// are apart.
    place: i64,
    read: i64,
    /// It was cut off: no more is there than was written since.
    is_cut: bool,
    /// Streams write at its end.
    appends: StreamEnd,
    /// It was taken away: what comes later says nothing of what it was.
    is_gone: bool,
    /// What the path was before whose file was moved here: reads say of that what it was.
    origin: Option<Vec<u8>>,
}

impl PlannedPath {
    fn new(before: Before) -> Self {
        Self {
            before,
            size: 0,
            written: 0,
            place: 0,
            read: 0,
            is_cut: false,
            appends: StreamEnd::default(),
            is_gone: false,
            origin: None,
        }
    }

    /// Nothing is known to have been written to it, or to be there in its place.
    fn is_as_before(&self) -> bool {
        self.written == 0 && !self.is_cut && !self.is_gone && self.origin.is_none()
    }

    /// How long it is by now.
    fn len(&self) -> i64 {
        if self.is_cut { self.written } else { self.written.max(self.size) }
    }

    /// It is so long from now on.
    fn cut(&mut self, len: i64) {
        (self.written, self.is_cut) = (len, true);
    }
}

/// Files and directories that were made.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    pub files: u64,
    pub directories: u64,
    pub bytes: u128,
    /// Those in directories that the trace itself makes.
    pub unmade: u64,
}

#[derive(Debug, Default)]
pub(super) struct ReplayPlan {
    paths: BTreeMap<Vec<u8>, PlannedPath>,
    unplanned: u64,
}

impl ReplayPlan {
    /// Operations on paths that had no room.
    pub fn unplanned(&self) -> u64 {
        self.unplanned
    }

    /// Looks at an operation on a path, or on two where something is moved.
    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    pub fn add(
        &mut self,
        op: IoOp,
        (path, new_path): (&[u8], Option<&[u8]>),
        row: &TraceRow,
        is_stdio: bool,
    ) {
        match rustix_errno(row.errno) {
            None => {}
            Some(Errno::NOENT) => {
                self.seen(path, Before::Absent);
                return;
            }
            Some(Errno::EXIST) if op == IoOp::MakeDirectory => {
                self.above(path);
                self.directory(path);
                return;
            }
            Some(_) => return,
        }
        self.above(path);
        match op {
            IoOp::MakeDirectory | IoOp::MakeNode | IoOp::SymLink => {
                self.seen(path, Before::Absent);
            }
            IoOp::OpenDirectory
            | IoOp::ReadDirectory
            | IoOp::CloseDirectory
            | IoOp::RemoveDirectory
            | IoOp::ChangeDirectory => self.directory(path),
            IoOp::ReadLink => {}
            IoOp::Open => {
                let flags = open_flags(row);
                let is_new = flags.contains(OFlags::CREATE | OFlags::EXCL);
                let before = if is_new { Before::Absent } else { Before::Unknown };
                if let Some(planned) = self.seen(path, before) {
                    let begins = opened_at(row, is_stdio);
                    (planned.place, planned.read) = (begins.unwrap_or(0), begins.unwrap_or(0));
                    planned.appends.open(flags, begins.is_some());
                    if begins.is_none()
                        && let Some(length) = row.offset
                        && planned.is_as_before()
                    {
                        planned.size = planned.size.max(length);
                    }
                    if is_new || flags.contains(OFlags::TRUNC) {
                        planned.cut(0);
                    }
                }
            }
            IoOp::Seek => {
                if let Some(planned) = self.seen(path, Before::File) {
                    if let Some(at) = row.offset.filter(|_| is_stdio) {
                        (planned.place, planned.read) = (at, at);
                    }
                    planned.appends.seek();
                }
            }
            op if op.moves_data() => self.transfer(op, path, row, is_stdio),
            IoOp::Truncate => {
                if let Some(planned) = self.seen(path, Before::File) {
                    planned.cut(row.asked);
                }
            }
            IoOp::Allocate => {
                if let Some(planned) = self.seen(path, Before::Unknown) {
                    let end = row.offset.unwrap_or(0).saturating_add(row.asked);
                    planned.written = planned.written.max(end);
                }
            }
            IoOp::Link => {
                let len = self.seen(path, Before::File).map(|planned| planned.len());
                let new = new_path.and_then(|new_path| {
                    self.above(new_path);
                    self.seen(new_path, Before::Absent)
                });
                if let (Some(len), Some(planned)) = (len, new) {
                    planned.cut(len);
                }
            }
            IoOp::Stat | IoOp::Access | IoOp::SetAttributes | IoOp::Xattr => {
                self.seen(path, Before::File);
            }
            IoOp::Rename => {
                if let Some(new_path) = new_path {
                    self.rename(path, new_path);
                }
            }
            IoOp::Unlink => {
                if let Some(planned) = self.seen(path, Before::File) {
                    (planned.is_gone, planned.origin) = (true, None);
                }
            }
            // Nothing has opened it: it was open before.
            _ => drop(self.seen(path, Before::File)),
        }
    }

    fn transfer(&mut self, op: IoOp, path: &[u8], row: &TraceRow, is_stdio: bool) {
        let Some(planned) = self.seen(path, Before::File) else { return };
        let is_ordered = matches!(op, IoOp::AsyncRead | IoOp::AsyncWrite);
        let bytes = if is_ordered { row.asked } else { row.bytes }.max(0);
        let offset = if is_stdio { None } else { row.offset };
        let begin = match offset {
            Some(offset) => offset,
            // Such a write is appended.
            None if op.writes() && (!is_stdio || planned.appends.is_so()) => planned.len(),
            None if op.writes() => planned.place,
            None => planned.read,
        };
        let end = begin.saturating_add(bytes);
        *(if op.writes() { &mut planned.place } else { &mut planned.read }) = end;
        if op.writes() {
            planned.written = planned.written.max(end);
        } else if bytes > 0 && end > planned.written {
            // A read beyond all that was written shows how long the file was before.
            let was = match planned.origin.clone() {
                Some(origin) => self.paths.get_mut(&origin),
                None => Some(planned).filter(|planned| !planned.is_gone),
            };
            if let Some(was) = was {
                was.size = was.size.max(end);
            }
        }
    }

    /// What was at a path is at another one from now on.
    fn rename(&mut self, path: &[u8], new_path: &[u8]) {
        let Some(planned) = self.seen(path, Before::File) else { return };
        let written = planned.len();
        let is_as_before = !planned.is_gone && planned.before != Before::Absent;
        let origin = planned.origin.take().or_else(|| is_as_before.then(|| path.to_owned()));
        planned.is_gone = true;
        self.above(new_path);
        if let Some(planned) = self.seen(new_path, Before::Absent) {
            planned.cut(written);
            (planned.place, planned.read) = (0, 0);
            (planned.is_gone, planned.origin) = (true, origin);
        }
    }

    /// What is kept of a path, if there is room; one that is new was `before`.
    fn seen(&mut self, path: &[u8], before: Before) -> Option<&mut PlannedPath> {
        if !self.paths.contains_key(path) {
            if self.paths.len() >= REPLAY_PATHS_MAX {
                self.unplanned += 1;
                return None;
            }
            self.paths.insert(path.to_owned(), PlannedPath::new(before));
        }
        self.paths.get_mut(path)
    }

    fn directory(&mut self, path: &[u8]) {
        if let Some(planned) = self.seen(path, Before::Directory)
            && matches!(planned.before, Before::Unknown | Before::File)
        {
            planned.before = Before::Directory;
        }
    }

    /// The directories above a path were there, or were made.
    fn above(&mut self, path: &[u8]) {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        slashes.for_each(|(slash, _)| self.directory(&path[..slash]));
    }

    /// Takes away what the trace makes itself, and makes what it finds.
    pub fn prepare(&self, target: &ReplayTarget) -> Result<Prepared, TraceError> {
        let is_made = |planned: &PlannedPath| match planned.before {
            Before::Absent => false,
            Before::Unknown => planned.size > 0,
            Before::File | Before::Directory => true,
        };
        // What is in a directory comes behind it.
        for (path, planned) in self.paths.iter().rev() {
            if !is_made(planned) && &path[..] != b"." {
                clear(target, path).map_err(|errno| failed(target, path, errno))?;
            }
        }
        let mut prepared = Prepared::default();
        for (path, planned) in self.paths.iter().filter(|(_, planned)| is_made(planned)) {
            let made = if planned.before == Before::Directory || &path[..] == b"." {
                make_directory(target, path, &mut prepared)
            } else {
                make_file(target, path, planned, &mut prepared)
            };
            match made {
                Err(Errno::NOENT) => prepared.unmade += 1,
                made => made.map_err(|errno| failed(target, path, errno))?,
            }
        }
        Ok(prepared)
    }
}

fn rustix_errno(errno: i32) -> Option<Errno> {
    const ERRNO_MAX: i32 = 4095;
    (errno != 0).then(|| Errno::from_raw_os_error(errno.clamp(1, ERRNO_MAX)))
}

fn failed(target: &ReplayTarget, path: &[u8], errno: Errno) -> TraceError {
    TraceError::io(&target.full(path))(errno.into())
}

fn clear(target: &ReplayTarget, path: &[u8]) -> rustix::io::Result<()> {
    match target.remove(path) {
        Err(Errno::ISDIR) => target.remove_directory(path),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        done => done,
    }
}

fn make_directory(
    target: &ReplayTarget,
    path: &[u8],
    prepared: &mut Prepared,
) -> rustix::io::Result<()> {
    match target.make_directory(path) {
        Ok(()) => prepared.directories += 1,
        Err(Errno::EXIST) => drop(target.directory(path)?),
        Err(errno) => return Err(errno),
    }
    Ok(())
}

fn make_file(
    target: &ReplayTarget,
    path: &[u8],
    planned: &PlannedPath,
    prepared: &mut Prepared,
) -> rustix::io::Result<()> {
    let file = target.file(path, OFlags::RDWR | OFlags::CREATE)?;
    // What an earlier replay has written goes: holes are read again.
    rustix::fs::ftruncate(&file, 0)?;
    rustix::fs::ftruncate(&file, planned.size.unsigned_abs())?;
    prepared.files += 1;
    prepared.bytes += u128::from(planned.size.unsigned_abs());
    Ok(())
}

/// Whether what a stream writes is at the end of its file, wherever that is by then: others may
/// have its descriptor, too, and go on where it ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// It writes where it is.
    #[default]
    No,
    /// It began with nothing, and was not placed anew.
    Yet,
    /// It was opened to append.
    Always,
}

impl StreamEnd {
    /// Opened with these flags; `goes_on`: what was open before becomes a stream.
    pub fn open(&mut self, flags: OFlags, goes_on: bool) {
        *self = if flags.contains(OFlags::APPEND) {
            Self::Always
        } else if flags.intersects(OFlags::TRUNC | OFlags::EXCL) {
            Self::Yet
        } else if goes_on {
            *self
        } else {
            Self::No
        };
    }

    /// Placed anew.
    pub fn seek(&mut self) {
        if *self == Self::Yet {
            *self = Self::No;
        }
    }

    pub fn is_so(self) -> bool {
        self != Self::No
    }
}

/// Where a descriptor was that became a stream: of its flags none but `O_APPEND` is told. What any
/// other has for an offset is how long it was.
pub(super) fn opened_at(row: &TraceRow, is_stdio: bool) -> Option<i64> {
    let is_of_descriptor = is_stdio && open_flags(row).difference(OFlags::APPEND).is_empty();
    row.offset.filter(|_| is_of_descriptor)
}

/// The flags that a file was opened with, as far as they are recorded.
pub(super) fn open_flags(row: &TraceRow) -> OFlags {
    OFlags::from_bits_retain(u32::try_from(row.asked).unwrap_or(0))
}
