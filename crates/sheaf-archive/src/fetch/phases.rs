//! The phases of fetching: directories are asked of the catalog and made, what is in them is looked up,
//! and files are transferred, by a schedule.
use super::directory::FetchWorker;
use super::{DIRECTORIES_AT_ONCE, FetchReport, FetchShared};
use crate::archive::{Archive, ArchiveError};
use crate::catalog::{ArchivedObject, DirectoryRows};
use crate::path::ArchivePath;
use crate::schedule::pool::SchedulePool;
use crate::schedule::{
    GrantId, Needs, Phase, ScheduleSettings, ScheduleStats, Task, TaskKind, TaskPlace,
};
use crate::width::{AdaptiveWidth, WIDTH_MAX};
use sheaf_core::lock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes that wait for a phase at most.
const QUEUE_BYTES_MAX: u64 = 32 << 20;
/// Of a limit of memory, what waits for a phase is one part of so many.
const QUEUE_PARTS: u64 = 16;
/// Bytes of a name of a directory, and of what is known of one, as they wait.
const NAME_BYTES: u64 = 1 << 10;
const ROWS_BYTES: u64 = 64 << 10;
/// Memory of one who fills a directory: of a file's content, and of a pack's index.
const TRANSFER_BYTES: u64 = 4 << 20;
/// How much more an index takes in memory than in the store.
const INDEX_FACTOR: u64 = 4;
/// What a directory costs to look up, and a file to write, before that is measured.
const LOOK_US: u64 = 30;
const FILE_US: u64 = 25;
/// The longest object that is fetched with the others of its directory.
const LARGE_BYTES: u64 = 16 << 20;

/// What a directory that somebody has given is in hand by, until all of it is done.
pub(super) type HeldDirectory<'a> = Option<Arc<dyn Send + Sync + 'a>>;

/// Who gives what is to be fetched, in the place of a catalog.
pub(super) trait FetchGiver<'a>: Sync {
    /// What is next; waits for it. What is no directory is done by it.
    fn next(&self, worker: &mut FetchWorker<'_>) -> GivenFetch<'a>;

    /// Nobody wants it any more.
    fn is_over(&self) -> bool;
}

/// What was given.
pub(super) enum GivenFetch<'a> {
    /// A directory, which may have been made just now, and is to be filled.
    Directory { path: ArchivePath, rows: DirectoryRows, is_new: bool, held: HeldDirectory<'a> },
    /// Something that is done.
    Done,
    /// There is no more.
    Over,
}

/// Where it is known what is archived.
enum FetchSource<'a> {
    /// In an archive: this, and what is below it.
    Archive(&'a Archive, &'a ArchivePath),
    Given(&'a dyn FetchGiver<'a>),
}

/// What is to be done.
enum FetchTask<'a> {
    /// The next directories, behind this one.
    List(Option<ArchivePath>),
    /// What is in a directory, which may have been made just now.
    Look(ArchivePath, bool),
    /// What is given next.
    TakeUp,
    /// Its files.
    Fill(ArchivePath, DirectoryRows, bool, HeldDirectory<'a>),
    /// One that is large.
    Large(ArchivePath, ArchivedObject, HeldDirectory<'a>),
}

pub(super) struct FetchPool<'a> {
    shared: &'a FetchShared<'a>,
    source: FetchSource<'a>,
    pool: SchedulePool<FetchTask<'a>, ArchiveError>,
    /// Numbers and buffers of those who write, which are used again: so are names of parts of files.
    rooms: Mutex<Vec<(usize, Vec<u8>)>>,
    writers: AtomicUsize,
    directories: AtomicU32,
}

impl<'a> FetchPool<'a> {
    pub fn new(shared: &'a FetchShared<'a>, archive: &'a Archive, from: &'a ArchivePath) -> Self {
        Self::of(shared, FetchSource::Archive(archive, from))
    }

    /// One that takes up what is given until all is over. Whoever waits for that is one more at work.
    pub fn given(shared: &'a FetchShared<'a>, giver: &'a dyn FetchGiver<'a>) -> Self {
        Self::of(shared, FetchSource::Given(giver))
    }

    fn of(shared: &'a FetchShared<'a>, source: FetchSource<'a>) -> Self {
        let is_given = matches!(source, FetchSource::Given(_));
        let workers = shared.options.workers.max(1) + usize::from(is_given);
        let most = WIDTH_MAX.max(workers);
        let settings = ScheduleSettings {
            hosts: vec![shared.options.limits.of_tasks()],
            // One lists: a directory is made before those that are in it.
            widths: [1, most, most],
            width: AdaptiveWidth::new(workers, most),
            queue_bytes_max: shared.options.limits.memory_part(QUEUE_PARTS, QUEUE_BYTES_MAX),
        };
        Self {
            shared,
            source,
            pool: SchedulePool::new(settings),
            rooms: Mutex::default(),
            writers: AtomicUsize::new(0),
            directories: AtomicU32::new(0),
        }
    }

    /// Makes the directories and fills them.
    pub fn run(
        &self,
        watch: &(dyn Fn(&FetchReport, &ScheduleStats) + Sync),
    ) -> Result<(), ArchiveError> {
        self.walk(
            None,
            match self.source {
                FetchSource::Archive(..) => FetchTask::List(None),
                FetchSource::Given(_) => FetchTask::TakeUp,
            },
        );
        let job = |_: &SchedulePool<_, _>, id, _, task| self.task(id, task);
        self.pool.run("fetch", &job, &|stats| {
            watch(&self.shared.counters.report(), &self.shared.moved.with(stats));
        })
    }

    fn place(&self) -> TaskPlace {
        [self.directories.fetch_add(1, Ordering::Relaxed)].into()
    }

    fn add(
        &self,
        from: Option<GrantId>,
        (phase, kind): (Phase, TaskKind),
        place: TaskPlace,
        needs: Needs,
        work: FetchTask<'a>,
    ) {
        let (queue_bytes, makes_bytes) = match phase {
            Phase::Walk => (NAME_BYTES, NAME_BYTES * DIRECTORIES_AT_ONCE as u64),
            Phase::Directory => (NAME_BYTES, ROWS_BYTES),
            Phase::Transfer => (ROWS_BYTES, 0),
        };
        if phase == Phase::Transfer {
            self.shared.moved.found(needs.disk_bytes);
        }
        let (host, lane) = (None, None);
        let task = Task { phase, kind, host, place, lane, needs, queue_bytes, makes_bytes, work };
        self.pool.push(from, task);
    }

    /// Has directories asked for.
    fn walk(&self, from: Option<GrantId>, work: FetchTask<'a>) {
        let walk = (Phase::Walk, TaskKind::List);
        self.add(from, walk, self.place(), Needs::default(), work);
    }

    fn task(&self, id: GrantId, task: FetchTask<'a>) -> Result<Needs, ArchiveError> {
        if let FetchSource::Given(giver) = self.source
            && giver.is_over()
        {
            return Ok(Needs::default());
        }
        // What is given is taken up all the same: the root waits for its end.
        if self.shared.is_stopped() && !matches!(task, FetchTask::TakeUp) {
            return Ok(Needs::default());
        }
        match (task, &self.source) {
            (FetchTask::List(behind), FetchSource::Archive(archive, from)) => {
                self.list(id, (archive, from), behind.as_ref())
            }
            (FetchTask::Look(path, is_new), FetchSource::Archive(archive, _)) => {
                self.look(id, archive, path, is_new);
                Ok(Needs { disk_operations: 1, ..Needs::default() })
            }
            (FetchTask::TakeUp, FetchSource::Given(giver)) => {
                self.take_up(id, *giver);
                Ok(Needs::default())
            }
            // `_held` is dropped when the files are there: then the directory counts as done.
            (FetchTask::Fill(path, rows, is_new, _held), _) => {
                let used = fetched_needs(&rows);
                self.worker(|worker| worker.fill(&path, &rows, is_new));
                Ok(used)
            }
            (FetchTask::Large(path, object, _held), _) => {
                let used = needs(1, object.stored_bytes());
                self.worker(|worker| worker.large(&path, &object));
                Ok(used)
            }
            (FetchTask::List(_) | FetchTask::Look(..) | FetchTask::TakeUp, _) => {
                unreachable!("what is given is not looked for")
            }
        }
    }

    /// Takes up what is given next, and has somebody take up what comes then.
    fn take_up(&self, id: GrantId, giver: &dyn FetchGiver<'a>) {
        match self.worker(|worker| giver.next(worker)) {
            GivenFetch::Over => return,
            GivenFetch::Done => {}
            GivenFetch::Directory { path, rows, is_new, held } => {
                self.transfer(id, (path, is_new), rows, &held);
            }
        }
        self.walk(Some(id), FetchTask::TakeUp);
    }

    /// Makes the next directories, and has what is in them looked up.
    fn list(
        &self,
        id: GrantId,
        (archive, from): (&Archive, &ArchivePath),
        behind: Option<&ArchivePath>,
    ) -> Result<Needs, ArchiveError> {
        let next = archive.catalog().below(from, behind, DIRECTORIES_AT_ONCE)?;
        let Some((last, _)) = next.last() else { return Ok(Needs::default()) };
        let last = last.clone();
        FetchShared::recall(archive, next.iter().map(|(path, _)| path))?;
        let directories = next.len() as u64;
        for (path, _) in next {
            if self.shared.exclude.fits_directory(&path) {
                continue;
            }
            if let Some(is_new) = self.shared.begin(&path) {
                let needs = Needs { cpu_us: LOOK_US, disk_operations: 1, ..Needs::default() };
                let look = FetchTask::Look(path, is_new);
                self.add(
                    Some(id),
                    (Phase::Directory, TaskKind::Compare),
                    self.place(),
                    needs,
                    look,
                );
            }
        }
        self.walk(Some(id), FetchTask::List(Some(last)));
        Ok(Needs { disk_operations: directories, ..Needs::default() })
    }

    fn look(&self, id: GrantId, archive: &Archive, path: ArchivePath, is_new: bool) {
        match archive.catalog().rows_of(&path) {
            Ok(rows) => self.transfer(id, (path, is_new), rows, &None),
            Err(error) => self.shared.left_out(1, error.into()),
        }
    }

    /// Has what is in a directory fetched.
    fn transfer(
        &self,
        id: GrantId,
        (path, is_new): (ArchivePath, bool),
        mut rows: DirectoryRows,
        held: &HeldDirectory<'a>,
    ) {
        let place = self.place();
        let is_large =
            |object: &ArchivedObject| object.link.is_none() && object.stored_bytes() > LARGE_BYTES;
        let (large, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut rows.objects).into_iter().partition(is_large);
        rows.objects = others;
        for object in large {
            let needs = needs(1, object.stored_bytes());
            let task = FetchTask::Large(path.clone(), object, held.clone());
            self.add(
                Some(id),
                (Phase::Transfer, TaskKind::TransferLarge),
                place.clone(),
                needs,
                task,
            );
        }
        if !rows.packs.is_empty() || !rows.objects.is_empty() {
            let needs = fetched_needs(&rows);
            let task = FetchTask::Fill(path, rows, is_new, held.clone());
            self.add(Some(id), (Phase::Transfer, TaskKind::Transfer), place, needs, task);
        }
    }

    /// Has somebody write who has a buffer and a name for parts of files of their own.
    fn worker<T>(&self, work: impl FnOnce(&mut FetchWorker<'_>) -> T) -> T {
        let used_before = lock(&self.rooms).pop();
        let new = || (self.writers.fetch_add(1, Ordering::Relaxed), Vec::new());
        let (number, room) = used_before.unwrap_or_else(new);
        let mut worker = FetchWorker::new(self.shared, number, room);
        let done = work(&mut worker);
        lock(&self.rooms).push((number, worker.into_room()));
        done
    }
}

/// What fetching all files of a directory needs.
fn fetched_needs(rows: &DirectoryRows) -> Needs {
    let packed = rows.packs.iter().map(|pack| (u64::from(pack.members), pack.content_bytes));
    let alone = rows.objects.iter().map(|object| (1, object.stored_bytes()));
    let (files, bytes) = packed
        .chain(alone)
        .fold((0, 0), |(files, bytes): (u64, u64), of| (files + of.0, bytes.saturating_add(of.1)));
    let index = rows.packs.iter().map(|pack| pack.index_bytes).max().unwrap_or(0);
    let mut needs = needs(files, bytes);
    needs.memory_bytes += index.saturating_mul(INDEX_FACTOR);
    needs
}

/// What fetching so many files needs that have so many bytes: as much is read as is written.
fn needs(files: u64, bytes: u64) -> Needs {
    Needs {
        memory_bytes: TRANSFER_BYTES,
        cpu_us: files * FILE_US,
        disk_bytes: bytes,
        disk_operations: files.saturating_mul(4),
        network_bytes: bytes,
        store_connections: 1,
        devices: 0,
    }
}
