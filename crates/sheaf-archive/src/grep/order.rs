//! Who searches what, and in which order what was found is shown.
use super::worker::{GrepJob, GrepTask, GrepWorker, TaskFile, TaskFound};
use super::{ArchiveGrep, ArchiveGrepOutput, GrepEvent, GrepPlace, engine};
use crate::archive::{Archive, ArchiveError};
use crate::catalog::DirectoryRows;
use crate::list::ArchivedFile;
use crate::pack::member::MemberKind;
use crate::path::ArchivePath;
use sheaf_core::lock;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

/// Tasks that may be done before their turn comes to be shown.
const AHEAD_MAX: usize = 16;
/// Directories that are asked of the catalog at once.
const DIRECTORIES_AT_ONCE: usize = 256;
/// What of a file is passed on at once.
const PASSED_BYTES: usize = 64 << 10;

/// A task, and where what is found will be.
type TaskAhead<'a> = (GrepTask<'a>, Receiver<TaskFound>);

pub(super) fn search<E: From<ArchiveError>>(
    grep: &ArchiveGrep,
    places: &[GrepPlace<'_>],
    each: &mut dyn FnMut(GrepEvent<'_>) -> Result<(), E>,
) -> Result<bool, E> {
    let stop = AtomicBool::new(false);
    let workers = match grep.options.workers {
        0 => {
            let cores = std::thread::available_parallelism().map_or(2, usize::from);
            let calls = places.iter().map(|place| match place {
                GrepPlace::Archived(archive, _) | GrepPlace::ArchivedAs(archive, ..) => {
                    archive.store().calls_at_once()
                }
                GrepPlace::Local(_) | GrepPlace::LocalAs(..) => 1,
            });
            calls.fold(cores, usize::max)
        }
        workers => workers,
    };
    let (to_show, shown) = sync_channel::<Result<TaskAhead<'_>, ArchiveError>>(AHEAD_MAX + workers);
    let (to_work, work) = sync_channel::<(GrepTask<'_>, SyncSender<TaskFound>)>(AHEAD_MAX);
    let work = Mutex::new(work);
    std::thread::scope(|scope| {
        let (stop, work) = (&stop, &work);
        let mut have_worker = false;
        for number in 0..workers {
            let worker = std::thread::Builder::new().name(format!("grep-{number}"));
            let started = worker.spawn_scoped(scope, move || {
                let mut worker = GrepWorker::new(grep, stop);
                loop {
                    let next = lock(work).recv();
                    let Ok((task, found)) = next else { break };
                    // Nobody waits for it any longer if that fails.
                    let _ = found.send(worker.task(&task, None));
                }
            });
            have_worker |= started.is_ok();
        }
        let finder = TaskFinder { grep, stop, to_show, to_work };
        let started = std::thread::Builder::new()
            .name("grep-find".to_owned())
            .spawn_scoped(scope, move || finder.all(places));
        if !have_worker || started.is_err() {
            stop.store(true, Ordering::Relaxed);
            let errno = sheaf_core::Errno::AGAIN;
            let (path, doing) = ("grep".into(), "no thread can be started");
            return Err(ArchiveError::File { path, doing, errno }.into());
        }
        let worker = GrepWorker::new(grep, stop);
        let mut shower = InOrder {
            grep,
            worker,
            each,
            stop,
            active: Vec::new(),
            has_shown: false,
            selected: false,
        };
        let done = shower.all(&shown);
        stop.store(true, Ordering::Relaxed);
        // Who waits to send to it is told that nobody takes it.
        drop(shown);
        done?;
        Ok(shower.selected)
    })
}

/// Finds what is to be searched, in the order of the tree.
pub(super) struct TaskFinder<'a> {
    pub grep: &'a ArchiveGrep,
    stop: &'a AtomicBool,
    to_show: SyncSender<Result<TaskAhead<'a>, ArchiveError>>,
    to_work: SyncSender<(GrepTask<'a>, SyncSender<TaskFound>)>,
}

/// Nobody waits for more.
pub(super) struct IsOver;

impl<'a> TaskFinder<'a> {
    fn all(&self, places: &[GrepPlace<'a>]) {
        for (named, place) in places.iter().enumerate() {
            let done = match place {
                GrepPlace::Archived(archive, path) => {
                    self.named((named, &Arc::default()), archive, path)
                }
                GrepPlace::ArchivedAs(archive, path, store) => {
                    self.named((named, &Arc::from(&store[..])), archive, path)
                }
                GrepPlace::Local(path) => self.local(named, path, path.as_os_str().as_bytes()),
                GrepPlace::LocalAs(path, shown) => self.local(named, path, shown),
            };
            match done {
                Ok(Ok(())) => {}
                Ok(Err(IsOver)) => return,
                Err(error) => {
                    if self.failed(error).is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Something cannot be searched, which is told when its turn comes.
    pub fn failed(&self, error: ArchiveError) -> Result<(), IsOver> {
        self.to_show.send(Err(error)).map_err(|_| IsOver)
    }

    fn named(
        &self,
        (named, store): (usize, &Arc<[u8]>),
        archive: &'a Archive,
        path: &ArchivePath,
    ) -> Result<Result<(), IsOver>, ArchiveError> {
        let file = archive.look_up(path)?;
        let missing = || ArchiveError::NotArchived { path: path.clone() };
        let task = |above: ArchivePath, job| GrepTask {
            named,
            store: store.clone(),
            directory: Arc::new(above),
            job,
        };
        match file.ok_or_else(missing)? {
            ArchivedFile::Directory(_) => self.tree((named, store), archive, path),
            ArchivedFile::Object(object) => {
                let (above, name) = path.split().ok_or_else(missing)?;
                if !is_searched(&object.attributes.kind) || !self.grep.wants(name) {
                    return Ok(Ok(()));
                }
                let job = GrepJob::Object { archive, object };
                Ok(self.send(task(above, job)))
            }
            ArchivedFile::Member { pack: id, .. } => {
                let (above, name) = path.split().ok_or_else(missing)?;
                let packs = archive.catalog().packs(&above)?;
                let pack = packs.into_iter().find(|pack| pack.id == id).ok_or_else(missing)?;
                let job = GrepJob::Pack { archive, pack, only: Some(name.to_vec()) };
                Ok(self.send(task(above, job)))
            }
        }
    }

    /// Packs and objects of all directories from one on, by their first names in the order of the tree.
    fn tree(
        &self,
        (named, store): (usize, &Arc<[u8]>),
        archive: &'a Archive,
        top: &ArchivePath,
    ) -> Result<Result<(), IsOver>, ArchiveError> {
        // What comes behind directories that are to come.
        let mut later: Vec<GrepTask<'a>> = Vec::new();
        let mut last: Option<ArchivePath> = None;
        loop {
            let catalog = archive.catalog();
            let next = catalog.rows_below(top, last.as_ref(), DIRECTORIES_AT_ONCE)?;
            drop(catalog);
            let Some((behind, _)) = next.last() else { break };
            last = Some(behind.clone());
            for (path, rows) in next {
                while later.last().is_some_and(|task| task.first_key() < path) {
                    if self.send(later.pop().expect("it was looked at")).is_err() {
                        return Ok(Err(IsOver));
                    }
                }
                if !self.is_left_out(&path, top) {
                    later.extend(self.in_directory((named, store), archive, path, rows));
                }
            }
        }
        while let Some(task) = later.pop() {
            if self.send(task).is_err() {
                return Ok(Err(IsOver));
            }
        }
        Ok(Ok(()))
    }

    fn is_left_out(&self, path: &ArchivePath, top: &ArchivePath) -> bool {
        let globs = &self.grep.exclude_directories;
        let below = path.within(top);
        !globs.is_empty()
            && below.is_some_and(|below| below.parts().any(|part| super::fits(globs, part)))
    }

    /// What is in a directory, the last first. All of it comes before what is there already, as that is
    /// behind the directory as a whole.
    fn in_directory(
        &self,
        (named, store): (usize, &Arc<[u8]>),
        archive: &'a Archive,
        path: ArchivePath,
        rows: DirectoryRows,
    ) -> Vec<GrepTask<'a>> {
        let directory = Arc::new(path);
        let packs = rows.packs.into_iter().map(|pack| GrepJob::Pack { archive, pack, only: None });
        let wanted = rows.objects.into_iter().filter(|object| {
            is_searched(&object.attributes.kind) && self.grep.wants(&object.attributes.name)
        });
        let jobs = packs.chain(wanted.map(|object| GrepJob::Object { archive, object }));
        let task = |job| {
            let (store, directory) = (store.clone(), directory.clone());
            GrepTask { named, store, directory, job }
        };
        let mut tasks: Vec<GrepTask<'a>> = jobs.map(task).collect();
        tasks.sort_by(|one, other| other.job.first().cmp(one.job.first()));
        tasks
    }

    pub fn send(&self, task: GrepTask<'a>) -> Result<(), IsOver> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(IsOver);
        }
        // With a place for the result: a worker does not wait until it is shown.
        let (found, wait) = sync_channel(1);
        // First to where it is shown: that keeps the order, in whichever one workers end.
        let shown = self.to_show.send(Ok((task.clone(), wait)));
        shown.map_err(|_| IsOver)?;
        self.to_work.send((task, found)).map_err(|_| IsOver)
    }
}

fn is_searched(kind: &MemberKind) -> bool {
    matches!(kind, MemberKind::File | MemberKind::HardLink { .. })
}

impl GrepJob<'_> {
    fn first(&self) -> &[u8] {
        match self {
            Self::Pack { only: Some(name), .. } => name,
            Self::Pack { pack, .. } => &pack.first,
            Self::Object { object, .. } => &object.attributes.name,
            Self::Files(files) => files.names.first().map_or(b"", |name| name),
        }
    }
}

impl GrepTask<'_> {
    /// The path of its first file.
    fn first_key(&self) -> ArchivePath {
        match self.job.first() {
            b"" => (*self.directory).clone(),
            name => self.directory.join(name),
        }
    }
}

/// Of what was found in a task, what is not shown yet.
struct ToShow<'a> {
    task: GrepTask<'a>,
    found: TaskFound,
    /// Which of its files comes next, and where what was found in it begins.
    next: usize,
    at: usize,
    key: Option<(usize, ArchivePath)>,
}

impl<'a> ToShow<'a> {
    fn new(task: GrepTask<'a>, found: TaskFound) -> Self {
        let mut active = Self { task, found, next: 0, at: 0, key: None };
        active.key = active.next_key();
        active
    }

    fn next_key(&self) -> Option<(usize, ArchivePath)> {
        let file = self.found.files.get(self.next).map(|file| &file.name);
        let name = file.or(self.found.rest.as_ref())?;
        Some((self.task.named, self.task.directory.join(name)))
    }
}

/// Shows what was found.
struct InOrder<'a, E> {
    grep: &'a ArchiveGrep,
    worker: GrepWorker<'a>,
    each: &'a mut dyn FnMut(GrepEvent<'_>) -> Result<(), E>,
    stop: &'a AtomicBool,
    active: Vec<ToShow<'a>>,
    has_shown: bool,
    selected: bool,
}

impl<'a, E: From<ArchiveError>> InOrder<'a, E> {
    fn all(&mut self, shown: &Receiver<Result<TaskAhead<'a>, ArchiveError>>) -> Result<(), E> {
        let is_quiet = self.grep.options.output == ArchiveGrepOutput::Quiet;
        for ahead in shown {
            let (task, found) = match ahead {
                Ok(ahead) => ahead,
                Err(error) => {
                    self.up_to(None)?;
                    (self.each)(GrepEvent::Failed(error))?;
                    continue;
                }
            };
            // A worker that is gone has told why on its way.
            let Ok(found) = found.recv() else { break };
            let before = (task.named, task.first_key());
            self.up_to(Some(&before))?;
            self.take(task, found)?;
            if self.selected && is_quiet {
                return Ok(());
            }
        }
        self.up_to(None)
    }

    fn take(&mut self, task: GrepTask<'a>, mut found: TaskFound) -> Result<(), E> {
        self.selected |= found.selected;
        for error in std::mem::take(&mut found.failed) {
            (self.each)(GrepEvent::Failed(error))?;
        }
        let active = ToShow::new(task, found);
        if active.key.is_some() {
            self.active.push(active);
        }
        Ok(())
    }

    /// Shows all that comes before a path.
    fn up_to(&mut self, end: Option<&(usize, ArchivePath)>) -> Result<(), E> {
        loop {
            let keys = self.active.iter().enumerate();
            let Some((least, _)) = keys.min_by(|(_, one), (_, other)| one.key.cmp(&other.key))
            else {
                return Ok(());
            };
            if end.is_some_and(|end| self.active[least].key.as_ref() >= Some(end)) {
                return Ok(());
            }
            let mut active = self.active.swap_remove(least);
            if let Some(file) = active.found.files.get_mut(active.next) {
                let failed = file.failed.take();
                let mut file = TaskFile { name: std::mem::take(&mut file.name), failed, ..*file };
                let bytes = active.at..file.end;
                self.file(&active.task, &mut file, &active.found.bytes[bytes])?;
                (active.next, active.at) = (active.next + 1, file.end);
                active.key = active.next_key();
                if active.key.is_some() {
                    self.active.push(active);
                }
            } else if let Some(rest) = active.found.rest.take() {
                // Its output is freed before there is more.
                active.found = TaskFound::default();
                let found = self.worker.task(&active.task, Some(&rest));
                self.take(active.task, found)?;
            }
        }
    }

    fn file(&mut self, task: &GrepTask<'a>, file: &mut TaskFile, bytes: &[u8]) -> Result<(), E> {
        let mut is_binary = file.is_binary;
        if let Some(error) = file.failed.take() {
            (self.each)(GrepEvent::Failed(error))?;
        }
        if file.is_too_much {
            let mut failed = None;
            let (each, has_shown) = (&mut *self.each, &mut self.has_shown);
            let mut held = Vec::new();
            let mut pass = |bytes: &[u8]| {
                held.extend_from_slice(bytes);
                if held.len() < PASSED_BYTES && !bytes.is_empty() {
                    return true;
                }
                let shown = show(each, &self.grep.options, has_shown, &held);
                held.clear();
                failed = shown.err();
                failed.is_none()
            };
            let searched = self.worker.one(task, &file.name, &mut pass);
            pass(&[]);
            if let Some(failed) = failed {
                return Err(failed);
            }
            match searched {
                Ok(searched) => is_binary = searched.is_binary,
                Err(error) => (self.each)(GrepEvent::Failed(error))?,
            }
        } else {
            show(&mut *self.each, &self.grep.options, &mut self.has_shown, bytes)?;
        }
        if is_binary {
            // Its lines count as shown.
            self.has_shown = true;
            let path = task.shown(&file.name);
            (self.each)(GrepEvent::Binary(&path))?;
        }
        if self.stop.load(Ordering::Relaxed) {
            // Enough is found; nothing more is waited for.
            self.active.clear();
        }
        Ok(())
    }
}

/// Shows some bytes. Groups of lines are separated; the first one is from nothing.
fn show<E>(
    each: &mut dyn FnMut(GrepEvent<'_>) -> Result<(), E>,
    options: &super::ArchiveGrepOptions,
    has_shown: &mut bool,
    bytes: &[u8],
) -> Result<(), E> {
    let has_context = options.before.is_some() || options.after.is_some();
    let is_lines = matches!(options.output, ArchiveGrepOutput::Lines | ArchiveGrepOutput::Parts);
    let is_first = !std::mem::replace(has_shown, *has_shown || !bytes.is_empty());
    let mut bytes = bytes;
    if is_first && has_context && is_lines {
        bytes = bytes.strip_prefix(&engine::separator(options)[..]).unwrap_or(bytes);
    }
    if bytes.is_empty() { Ok(()) } else { each(GrepEvent::Output(bytes)) }
}
