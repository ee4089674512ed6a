//! The phases of storing a directory: its names are listed, compared with what is archived, and what is
//! new or has changed is transferred.
//!
//! [`SavePool`] has them done by a schedule, many at once. A directory's own are in its order: names are
//! compared, and files packed, as they come.
use super::compare::DISK_BLOCK_BYTES;
use super::compare::{ComparedPiece, DirectoryCompare};
use super::directory::DirectorySave;
use super::replace::{FileStamp, Replacement};
use super::{SaveCounters, SaveReport, SaveShared, SaveWork, SavedDirectory, file_error, source};
use crate::archive::{ArchiveError, ArchiveEvent};
use crate::catalog::ArchivedDirectory;
use crate::path::ArchivePath;
use crate::schedule::pool::SchedulePool;
use crate::schedule::{
    GrantId, Needs, Phase, ScheduleSettings, ScheduleStats, Task, TaskKind, TaskPlace,
};
use crate::walk::names::{self, NamedFile, OpenDirectory};
use crate::width::{AdaptiveWidth, WIDTH_MAX};
use sheaf_core::{Errno, lock};
use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes that a directory takes that waits, or some of its names, at most: it is open, too.
const PIECE_BYTES: u64 = 256 << 10;
/// Bytes that wait for a phase at most, which is how many pieces wait.
const QUEUE_BYTES_MAX: u64 = 64 * PIECE_BYTES;
/// Of a limit of memory, what waits for a phase is one part of so many.
const QUEUE_PARTS: u64 = 16;
/// Memory of one who stores: of a pack's writer, and of a file's content.
const TRANSFER_BYTES: u64 = 4 << 20;
/// What a name costs to look at, before that is measured.
const LIST_US: u64 = 3;
const COMPARE_US: u64 = 1;
/// What a file costs to store, and each MiB of it.
const FILE_US: u64 = 15;
const MEBIBYTE_US: u64 = 1000;

/// A directory that is being stored, as all tasks of it know it.
pub(super) struct SavingDirectory<'a> {
    pub shared: &'a SaveShared<'a>,
    pub of: Arc<SavedDirectory>,
    /// It is open as long as something in it is to be looked at.
    pub file: Arc<OwnedFd>,
    /// Where it is, as its user calls it.
    pub path: PathBuf,
    pub place: TaskPlace,
    /// What was done since the last change.
    pub counters: Arc<SaveCounters>,
    compare: Mutex<DirectoryCompare>,
    save: Mutex<DirectorySave<'a>>,
    /// Tasks of it that have not ended.
    left: AtomicUsize,
    number: u64,
    /// Another file system is mounted here, and what is in it is not asked for.
    is_elsewhere: bool,
}

/// What is to be done of a directory.
pub(super) enum SaveTask<'a> {
    Open(SaveWork),
    List(Arc<SavingDirectory<'a>>, Box<OpenDirectory>),
    Compare(Arc<SavingDirectory<'a>>, Vec<NamedFile>),
    Transfer(Arc<SavingDirectory<'a>>, ComparedPiece),
    TransferLarge(Arc<SavingDirectory<'a>>, NamedFile),
    /// What somebody gives is taken up, as soon as there is something.
    TakeUp,
    Given(GivenFiles<'a>),
}

/// Files of which the storing is given as a whole.
type GivenFiles<'a> = Box<dyn FnOnce() -> Result<(), ArchiveError> + Send + 'a>;

/// What somebody gives who says one after the other what is to be stored.
pub(super) enum GivenWork<'a> {
    Directory(SaveWork),
    Files(GivenFiles<'a>),
}

/// Who does so.
pub(super) trait WorkGiver<'a>: Sync {
    /// The next, when there is one; nothing when all is over.
    fn next(&self) -> Option<GivenWork<'a>>;

    /// Nothing more can be stored, and nobody waits for the next.
    fn broken(&self, error: &ArchiveError);
}

impl<'a> SavingDirectory<'a> {
    /// Begins with a directory; nothing if it is not there any more, or cannot be read, which is told.
    fn begin(
        shared: &'a SaveShared<'a>,
        work: SaveWork,
    ) -> Result<Option<(Arc<Self>, OpenDirectory)>, ArchiveError> {
        let opened = opened(&work);
        // What was named is stored, also where another file system is mounted there.
        let is_asked = shared.options.one_file_system && work.place.len() > 1;
        let (open, is, is_elsewhere) = match opened.and_then(|opened| {
            let Some((open, is)) = opened else { return Ok(None) };
            let is_elsewhere = is_asked && is_mounted(open.file(), &work.path)?;
            Ok(Some((open, is, is_elsewhere)))
        }) {
            Ok(Some(opened)) => opened,
            not => {
                let failed = u64::from(not.is_err());
                if let Err(error) = not {
                    (shared.told)(ArchiveEvent::Failed(error));
                }
                let report = SaveReport { failed, ..SaveReport::default() };
                shared.counters.add(&report);
                shared.desk.done(&work.to, report);
                return Ok(None);
            }
        };
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let rows = shared.desk.rows_of(&work.to)?;
        // What it is already is no change.
        let is_another = rows.directory.as_ref() != Some(&is);
        let of = SavedDirectory::new(work.to, work.above, is.clone(), rows.changed);
        let (of, counters) = (Arc::new(of), Arc::new(SaveCounters::default()));
        shared.desk.begun(&of);
        let compare = Mutex::new(DirectoryCompare::new(&rows, shared.options.checksum));
        let mut save = DirectorySave::new(shared, of.clone(), rows, counters.clone());
        if is_another {
            save.is(is);
        }
        let directory = Self {
            shared,
            of,
            file: open.shared().clone(),
            path: work.path,
            place: work.place,
            counters,
            compare,
            save: Mutex::new(save),
            // The listing itself, which ends when the last name has come.
            left: AtomicUsize::new(1),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            is_elsewhere,
        };
        if is_elsewhere {
            directory.skipped(&directory.path, "another file system is mounted there");
        }
        Ok(Some((Arc::new(directory), open)))
    }

    /// The next of its names; nothing behind the last.
    fn list(&self, open: &mut OpenDirectory) -> Option<Vec<NamedFile>> {
        if self.is_elsewhere {
            return None;
        }
        match open.next()? {
            Ok(named) => Some(named),
            Err(errno) => {
                // The names that came before are stored all the same.
                self.left_out(file_error(&self.path, "cannot be read", errno));
                None
            }
        }
    }

    fn compare(&self, named: Vec<NamedFile>) -> Result<ComparedPiece, ArchiveError> {
        lock(&self.compare).piece(self, named)
    }

    fn transfer(&self, piece: ComparedPiece) -> Result<(), ArchiveError> {
        lock(&self.save).piece(self, piece)
    }

    fn transfer_large(&self, file: &NamedFile) -> Result<(), ArchiveError> {
        DirectorySave::alone(&self.save, self, file)
    }

    /// Nothing of it is left to do.
    fn finish(&self) -> Result<(), ArchiveError> {
        self.counters.directories.fetch_add(1, Ordering::Relaxed);
        let mut save = lock(&self.save);
        save.drop_lost()?;
        save.flush()?;
        drop(save);
        let report = self.counters.take();
        self.shared.counters.add(&report);
        self.shared.desk.done(&self.of.path, report);
        Ok(())
    }

    /// A task of it has ended.
    fn ended(&self) -> Result<(), ArchiveError> {
        // The last one sees what all others did before they counted down.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 { self.finish() } else { Ok(()) }
    }

    /// A file or directory is none that is archived.
    pub fn skipped(&self, path: &Path, why: &'static str) {
        self.counters.skipped.fetch_add(1, Ordering::Relaxed);
        (self.shared.told)(ArchiveEvent::Skipped { path: path.to_owned(), why });
    }

    /// Whether a directory that is archived as a file takes the place of that, later.
    pub fn replaces(&self, name: &OsStr, to: &ArchivePath, number: u32, was: FileStamp) -> bool {
        let place = self.place.iter().copied().chain([number]).collect();
        let (above, path, to) = (self.file.clone(), self.path.join(name), to.clone());
        let name = name.to_owned();
        let replaced = self.shared.replaced;
        replaced.is_some_and(|all| all.push(Replacement { above, name, path, to, place, was }))
    }

    /// A file or directory is left out by an error.
    pub fn left_out(&self, error: ArchiveError) {
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
        (self.shared.told)(ArchiveEvent::Failed(error));
    }

    /// The same, of a name in it.
    pub fn failed(&self, name: &OsStr, doing: &'static str, errno: Errno) {
        self.left_out(file_error(&self.path.join(name), doing, errno));
    }
}

/// Nothing if it was taken away since it was found.
fn opened(work: &SaveWork) -> Result<Option<(OpenDirectory, ArchivedDirectory)>, ArchiveError> {
    let failed = |errno| file_error(&work.path, "cannot be read", errno);
    let open = match work.from.open() {
        // It was taken away since.
        Err(Errno::NOENT) if !work.is_source => return Ok(None),
        open => open.map_err(failed)?,
    };
    let found = source::status(open.file()).map_err(failed)?;
    let is = ArchivedDirectory {
        mode: found.mode,
        uid: found.uid,
        gid: found.gid,
        mtime_s: found.mtime.seconds,
        mtime_ns: found.mtime.nanoseconds,
        xattrs: source::xattrs_of(open.file()).map_err(failed)?,
    };
    Ok(Some((open, is)))
}

/// Whether a directory is on another file system than the one it is in.
fn is_mounted(directory: BorrowedFd<'_>, path: &Path) -> Result<bool, ArchiveError> {
    let both = source::status(directory)
        .and_then(|found| Ok(found.dev != names::lstat_at(directory, "..")?.dev));
    both.map_err(|errno| file_error(path, "cannot be read", errno))
}

/// The tasks of storing, as a schedule has them done.
pub(super) struct SavePool<'a> {
    shared: &'a SaveShared<'a>,
    giver: Option<&'a dyn WorkGiver<'a>>,
    pool: SchedulePool<SaveTask<'a>, ArchiveError>,
}

impl<'a> SavePool<'a> {
    pub fn new(shared: &'a SaveShared<'a>) -> Self {
        Self::of(shared, None)
    }

    /// One that takes up what is given until all is over. Whoever waits for that is one more at work.
    pub fn given(shared: &'a SaveShared<'a>, giver: &'a dyn WorkGiver<'a>) -> Self {
        let this = Self::of(shared, Some(giver));
        this.take_up(None);
        this
    }

    fn of(shared: &'a SaveShared<'a>, giver: Option<&'a dyn WorkGiver<'a>>) -> Self {
        let options = &shared.options;
        let workers = options.workers + usize::from(giver.is_some());
        let most = WIDTH_MAX.max(workers);
        let settings = ScheduleSettings {
            hosts: vec![options.limits.of_tasks()],
            widths: [most; Phase::ALL.len()],
            width: AdaptiveWidth::new(workers, most),
            queue_bytes_max: options.limits.memory_part(QUEUE_PARTS, QUEUE_BYTES_MAX),
        };
        Self { shared, giver, pool: SchedulePool::new(settings) }
    }

    /// The next that is given is to be taken up.
    fn take_up(&self, from: Option<GrantId>) {
        let task = Task {
            phase: Phase::Walk,
            kind: TaskKind::List,
            host: None,
            place: [0].into(),
            lane: None,
            needs: Needs::default(),
            queue_bytes: PIECE_BYTES / 64,
            makes_bytes: PIECE_BYTES / 16,
            work: SaveTask::TakeUp,
        };
        self.pool.push(from, task);
    }

    /// Files are to be stored that were given as a whole.
    pub fn push_files(&self, from: Option<GrantId>, files: GivenFiles<'a>) {
        let task = Task {
            phase: Phase::Transfer,
            kind: TaskKind::Transfer,
            host: None,
            place: [0].into(),
            lane: None,
            needs: self.shared.needs(&[], 0),
            queue_bytes: PIECE_BYTES / 64,
            makes_bytes: 0,
            work: SaveTask::Given(files),
        };
        self.pool.push(from, task);
    }

    /// A directory is to be stored.
    pub fn push(&self, from: Option<GrantId>, work: SaveWork) {
        let task = Task {
            phase: Phase::Walk,
            kind: TaskKind::List,
            host: None,
            place: work.place.clone(),
            lane: None,
            needs: Needs { cpu_us: 64 * LIST_US, disk_operations: 64, ..Needs::default() },
            queue_bytes: PIECE_BYTES / 64,
            makes_bytes: PIECE_BYTES,
            work: SaveTask::Open(work),
        };
        self.pool.push(from, task);
    }

    /// Does all that is to be done.
    pub fn run(
        &self,
        watch: &(dyn Fn(&SaveReport, &ScheduleStats) + Sync),
    ) -> Result<(), ArchiveError> {
        let job = |_: &SchedulePool<_, _>, id, _, task| {
            let done = self.task(id, task);
            // Else the worker in `TakeUp` would wait for more, and the pool would not end.
            if let (Err(error), Some(giver)) = (&done, self.giver) {
                giver.broken(error);
            }
            done
        };
        self.pool.run("save", &job, &|stats| {
            watch(&self.shared.counters.now(), &self.shared.moved.with(stats));
        })
    }

    /// Does a task; what it has used.
    fn task(&self, id: GrantId, task: SaveTask<'a>) -> Result<Needs, ArchiveError> {
        match task {
            SaveTask::Open(work) => match SavingDirectory::begin(self.shared, work)? {
                Some((directory, open)) => self.list(id, &directory, Box::new(open)),
                None => Ok(Needs::default()),
            },
            SaveTask::TakeUp => {
                let given = self.giver.and_then(WorkGiver::next);
                // One is always queued or at work: without a task the pool would end, though more
                // is to come.
                if given.is_some() {
                    self.take_up(Some(id));
                }
                match given {
                    Some(GivenWork::Directory(work)) => self.push(Some(id), work),
                    Some(GivenWork::Files(files)) => self.push_files(Some(id), files),
                    None => {}
                }
                Ok(Needs::default())
            }
            SaveTask::Given(files) => files().map(|()| Needs::default()),
            SaveTask::List(directory, open) => self.list(id, &directory, open),
            SaveTask::Compare(directory, named) => self.compare(id, &directory, named),
            SaveTask::Transfer(directory, piece) => {
                let used = self.shared.needs(&piece.files, self.shared.member_bytes_max());
                directory.transfer(piece)?;
                directory.ended()?;
                Ok(used)
            }
            SaveTask::TransferLarge(directory, file) => {
                directory.transfer_large(&file)?;
                directory.ended()?;
                Ok(self.shared.needs(std::slice::from_ref(&file), 0))
            }
        }
    }

    fn list(
        &self,
        id: GrantId,
        directory: &Arc<SavingDirectory<'a>>,
        mut open: Box<OpenDirectory>,
    ) -> Result<Needs, ArchiveError> {
        let Some(named) = directory.list(&mut open) else {
            directory.ended()?;
            return Ok(Needs { disk_operations: 1, ..Needs::default() });
        };
        let names = named.len() as u64;
        // Before the task is queued: it may end before this one does, and would finish the
        // directory.
        directory.left.fetch_add(1, Ordering::Relaxed);
        let compare = SaveTask::Compare(directory.clone(), named);
        let needs =
            Needs { cpu_us: names * COMPARE_US, memory_bytes: PIECE_BYTES, ..Needs::default() };
        self.add(id, directory, Phase::Directory, TaskKind::Compare, (needs, PIECE_BYTES), compare);
        if open.is_at_end() {
            directory.ended()?;
        } else {
            let needs =
                Needs { cpu_us: names * LIST_US, disk_operations: names, ..Needs::default() };
            let list = SaveTask::List(directory.clone(), open);
            self.add(id, directory, Phase::Walk, TaskKind::List, (needs, PIECE_BYTES), list);
        }
        Ok(Needs { disk_operations: names, ..Needs::default() })
    }

    fn compare(
        &self,
        id: GrantId,
        directory: &Arc<SavingDirectory<'a>>,
        named: Vec<NamedFile>,
    ) -> Result<Needs, ArchiveError> {
        let mut piece = directory.compare(named)?;
        for work in std::mem::take(&mut piece.directories) {
            self.push(Some(id), work);
        }
        for file in std::mem::take(&mut piece.large) {
            directory.left.fetch_add(1, Ordering::Relaxed);
            let needs = (self.shared.needs(std::slice::from_ref(&file), 0), PIECE_BYTES);
            let transfer = SaveTask::TransferLarge(directory.clone(), file);
            self.add(id, directory, Phase::Transfer, TaskKind::TransferLarge, needs, transfer);
        }
        if !piece.files.is_empty() {
            directory.left.fetch_add(1, Ordering::Relaxed);
            let needs =
                (self.shared.needs(&piece.files, self.shared.member_bytes_max()), PIECE_BYTES);
            let transfer = SaveTask::Transfer(directory.clone(), piece);
            self.add(id, directory, Phase::Transfer, TaskKind::Transfer, needs, transfer);
        }
        directory.ended()?;
        Ok(Needs { memory_bytes: PIECE_BYTES, ..Needs::default() })
    }

    fn add(
        &self,
        id: GrantId,
        of: &SavingDirectory<'a>,
        phase: Phase,
        kind: TaskKind,
        (needs, queue_bytes): (Needs, u64),
        work: SaveTask<'a>,
    ) {
        // What a directory's names have in their order is done in it.
        let lane = (kind != TaskKind::TransferLarge).then_some(of.number);
        let makes_bytes = if phase == Phase::Transfer { 0 } else { PIECE_BYTES };
        self.shared.moved.found(needs.disk_bytes);
        let (host, place) = (None, of.place.clone());
        let task = Task { phase, kind, host, place, lane, needs, queue_bytes, makes_bytes, work };
        self.pool.push(Some(id), task);
    }
}

impl SaveShared<'_> {
    /// What storing files needs: what they have beside holes is read, and as much is written.
    fn needs(&self, files: &[NamedFile], member_bytes_max: u64) -> Needs {
        let found = files.iter().filter_map(|file| file.found.as_ref().ok());
        let longest =
            found.clone().map(|found| found.size).filter(|size| *size <= member_bytes_max);
        let longest = longest.max().unwrap_or(0);
        let bytes =
            found.map(|found| found.size.min(found.blocks.saturating_mul(DISK_BLOCK_BYTES)));
        let bytes = bytes.fold(0, u64::saturating_add);
        let files = files.len() as u64;
        Needs {
            memory_bytes: TRANSFER_BYTES + self.writer_bytes + longest,
            cpu_us: files * FILE_US + (bytes >> 20) * MEBIBYTE_US,
            disk_bytes: bytes,
            disk_operations: files.saturating_mul(3),
            network_bytes: bytes,
            store_connections: 1,
            devices: 0,
        }
    }
}
