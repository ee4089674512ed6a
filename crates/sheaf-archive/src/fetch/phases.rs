//! The phases of fetching: directories are asked of the catalog and made, what is in them is looked up,
//! and files are transferred, by a schedule.
use super::directory::FetchWorker;
use super::{DIRECTORIES_AT_ONCE, FetchReport, FetchShared};
use crate::schedule::pool::SchedulePool;
use crate::schedule::{
    GrantId, Needs, Phase, ScheduleSettings, ScheduleStats, Task, TaskKind, TaskPlace,
};
use crate::width::{AdaptiveWidth, WIDTH_MAX};
use crate::{Archive, ArchiveError, ArchivePath, ArchivedObject, DirectoryRows};
use sheaf_core::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Bytes that wait for a phase at most.
const QUEUE_BYTES_MAX: u64 = 32 << 20;
/// Bytes of a name of a directory, and of what is known of one, as they wait.
const NAME_BYTES: u64 = 1 << 10;
const ROWS_BYTES: u64 = 64 << 10;
/// Memory of one who fills a directory: of a file's content, and of a pack's index.
const TRANSFER_BYTES: u64 = 4 << 20;
/// What a directory costs to look up, and a file to write, before that is measured.
const LOOK_US: u64 = 30;
const FILE_US: u64 = 25;
/// The longest object that is fetched with the others of its directory.
const LARGE_BYTES: u64 = 16 << 20;

/// What is to be done.
enum FetchTask {
    /// The next directories, behind this one.
    List(Option<ArchivePath>),
    /// What is in a directory, which may have been made just now.
    Look(ArchivePath, bool),
    /// Its files.
    Fill(ArchivePath, DirectoryRows, bool),
    /// One that is large.
    Large(ArchivePath, ArchivedObject),
}

pub(super) struct FetchPool<'a> {
    shared: &'a FetchShared<'a>,
    archive: &'a Archive,
    from: &'a ArchivePath,
    pool: SchedulePool<FetchTask, ArchiveError>,
    /// Numbers and buffers of those who write, which are used again: so are names of parts of files.
    rooms: Mutex<Vec<(usize, Vec<u8>)>>,
    writers: AtomicUsize,
    directories: AtomicU32,
}

impl<'a> FetchPool<'a> {
    pub fn new(shared: &'a FetchShared<'a>, archive: &'a Archive, from: &'a ArchivePath) -> Self {
        let workers = shared.options.workers.max(1);
        let most = WIDTH_MAX.max(workers);
        let settings = ScheduleSettings {
            hosts: vec![shared.options.limits],
            widths: [1, most, most],
            width: AdaptiveWidth::new(workers, most),
            queue_bytes_max: QUEUE_BYTES_MAX,
        };
        Self {
            shared,
            archive,
            from,
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
        self.add(
            None,
            (Phase::Walk, TaskKind::List),
            self.place(),
            Needs::default(),
            FetchTask::List(None),
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
        work: FetchTask,
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

    fn task(&self, id: GrantId, task: FetchTask) -> Result<Needs, ArchiveError> {
        match task {
            FetchTask::List(behind) => self.list(id, behind.as_ref()),
            FetchTask::Look(path, is_new) => self.look(id, path, is_new),
            FetchTask::Fill(path, rows, is_new) => {
                let used = fetched_needs(&rows);
                self.worker(|worker| worker.fill(&path, &rows, is_new));
                Ok(used)
            }
            FetchTask::Large(path, object) => {
                let used = needs(1, object.stored_bytes());
                self.worker(|worker| worker.large(&path, &object));
                Ok(used)
            }
        }
    }

    /// Makes the next directories, and has what is in them looked up.
    fn list(&self, id: GrantId, behind: Option<&ArchivePath>) -> Result<Needs, ArchiveError> {
        let next = self.archive.catalog().below(self.from, behind, DIRECTORIES_AT_ONCE)?;
        let Some((last, _)) = next.last() else { return Ok(Needs::default()) };
        let last = last.clone();
        FetchShared::recall(self.archive, next.iter().map(|(path, _)| path))?;
        let directories = next.len() as u64;
        for (path, _) in next {
            if self.shared.exclude.fits_directory(&path) {
                continue;
            }
            if let Some(is_new) = self.shared.make(&path) {
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
        let list = FetchTask::List(Some(last));
        self.add(Some(id), (Phase::Walk, TaskKind::List), self.place(), Needs::default(), list);
        Ok(Needs { disk_operations: directories, ..Needs::default() })
    }

    fn look(&self, id: GrantId, path: ArchivePath, is_new: bool) -> Result<Needs, ArchiveError> {
        let mut rows = match (self.shared.rows_of)(&path) {
            Ok(rows) => rows,
            Err(error) => {
                self.shared.left_out(1, error);
                return Ok(Needs::default());
            }
        };
        let place = self.place();
        let is_large =
            |object: &ArchivedObject| object.link.is_none() && object.stored_bytes() > LARGE_BYTES;
        let (large, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut rows.objects).into_iter().partition(is_large);
        rows.objects = others;
        for object in large {
            let needs = needs(1, object.stored_bytes());
            let task = FetchTask::Large(path.clone(), object);
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
            let task = FetchTask::Fill(path, rows, is_new);
            self.add(Some(id), (Phase::Transfer, TaskKind::Transfer), place, needs, task);
        }
        Ok(Needs { disk_operations: 1, ..Needs::default() })
    }

    /// Has somebody write who has a buffer and a name for parts of files of their own.
    fn worker(&self, work: impl FnOnce(&mut FetchWorker<'_>)) {
        let used_before = lock(&self.rooms).pop();
        let new = || (self.writers.fetch_add(1, Ordering::Relaxed), Vec::new());
        let (number, room) = used_before.unwrap_or_else(new);
        let mut worker = FetchWorker::with_room(self.shared, number, room);
        work(&mut worker);
        lock(&self.rooms).push((number, worker.into_room()));
    }
}

/// What fetching all files of a directory needs.
fn fetched_needs(rows: &DirectoryRows) -> Needs {
    let packed = rows.packs.iter().map(|pack| (u64::from(pack.members), pack.content_bytes));
    let alone = rows.objects.iter().map(|object| (1, object.stored_bytes()));
    let (files, bytes) = packed
        .chain(alone)
        .fold((0, 0), |(files, bytes): (u64, u64), of| (files + of.0, bytes.saturating_add(of.1)));
    needs(files, bytes)
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
