//! The part of a host: it stores what the root gives it.
use super::message::{
    BeginSave, ContentItem, FromHost, HostRecord, SaveItem, SourceIs, ToHost, encoded,
};
use super::work::{HostDesk, HostWork};
use crate::archive::{ArchiveError, ArchiveEvent};
use crate::hosts::{HostFiles, HostStore, ToldNumbers};
use crate::save::directory::{DirectorySave, SourceName, object_for_other};
use crate::save::phases::{GivenWork, SavePool, WorkGiver};
use crate::save::{
    SaveCounters, SaveExclude, SaveOptions, SaveReport, SaveShared, SaveWork, file_error, source,
};
use crate::schedule::MovedBytes;
use crate::store::Store;
use crate::walk::names::{self, Directory};
use sheaf_core::Errno;
use sheaf_core::files::FileKind;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A host that stores. Dropped, it ends what it is at; what was not handed in was not done.
#[derive(Default)]
pub struct SaveHost {
    begun: Option<Arc<HostShared>>,
}

struct HostShared {
    store: Arc<dyn Store>,
    sources: Vec<Option<HostSource>>,
    options: SaveOptions,
    exclude: SaveExclude,
    desk: HostDesk,
    numbers: ToldNumbers,
}

/// A file or directory of the host that is to be stored.
struct HostSource {
    path: PathBuf,
    /// The directory itself, or that of the file.
    base: Arc<OwnedFd>,
    is: SourceIs,
}

impl SaveHost {
    /// Does what the root asks, and answers within about `patience`.
    ///
    /// # Errors
    /// `EBADMSG` when it is none of its requests.
    pub fn answer(
        &mut self,
        request: &[u8],
        of: &dyn HostFiles,
        patience: Duration,
    ) -> Result<Vec<u8>, Errno> {
        let request: ToHost = postcard::from_bytes(request).map_err(|_| Errno::BADMSG)?;
        let answer = match request {
            ToHost::Begin(begin) => FromHost::Begun(self.begin(&begin, of)),
            ToHost::Go { works, answers, contents } => {
                let shared = self.begun.as_ref().ok_or(Errno::BADMSG)?;
                shared.desk.take(works, answers, contents);
                let workers = u32::try_from(shared.options.workers).unwrap_or(u32::MAX);
                let (records, wants) = shared.desk.records(patience, workers);
                FromHost::Went { records, wants }
            }
            ToHost::Numbers => {
                let shared = self.begun.as_ref().ok_or(Errno::BADMSG)?;
                FromHost::Numbers(shared.numbers.next(patience))
            }
        };
        Ok(encoded(&answer))
    }

    fn begin(
        &mut self,
        begin: &BeginSave,
        of: &dyn HostFiles,
    ) -> Result<Vec<Result<SourceIs, Errno>>, String> {
        let HostStore { store, directory: left_out } = of.store(OsStr::from_bytes(&begin.store))?;
        begin.mark.check(&*store)?;
        let sources: Vec<_> = begin.sources.iter().map(|path| HostSource::open(path, of)).collect();
        let are = sources.iter().map(|source| source.as_ref().map(|source| source.is));
        let are = are.map(|is| is.map_err(|errno| *errno)).collect();
        let mut options = SaveOptions {
            member_bytes_max: begin.member_bytes_max,
            pack_bytes: begin.pack_bytes,
            part_bytes: begin.part_bytes,
            zstd: begin.zstd,
            left_out,
            checksum: begin.checksum,
            ignores: begin.ignores,
            dry_run: begin.dry_run,
            tell_names: begin.tell_names,
            one_file_system: begin.one_file_system,
            limits: begin.limits,
            ..SaveOptions::default()
        };
        options.workers = options.workers.max(store.calls_at_once());
        if begin.workers > 0 {
            options.workers = begin.workers as usize;
        }
        let exclude = SaveExclude::new(&begin.exclude).map_err(|error| error.to_string())?;
        let sources = sources.into_iter().map(Result::ok).collect();
        let desk = HostDesk::new(begin.is_shared);
        let numbers = ToldNumbers::default();
        let shared = Arc::new(HostShared { store, sources, options, exclude, desk, numbers });
        // Answers have to come within `patience`, so a thread of its own stores.
        let at_work = shared.clone();
        let thread = std::thread::Builder::new().name("save".to_owned());
        thread
            .spawn(move || at_work.work())
            .map_err(|error| format!("no thread stores anything: {error}"))?;
        self.begun = Some(shared);
        Ok(are)
    }
}

impl Drop for SaveHost {
    fn drop(&mut self) {
        if let Some(shared) = &self.begun {
            shared.desk.end();
        }
    }
}

impl HostSource {
    fn open(path: &[u8], of: &dyn HostFiles) -> Result<Self, Errno> {
        let path = PathBuf::from(OsString::from_vec(path.to_vec()));
        let file = of.open(&path)?;
        let found = source::status(file.as_fd())?;
        let is = SourceIs { is_directory: found.kind == FileKind::Directory, ino: found.ino };
        // With `.`, a link is followed: the file is in the directory that it leads to.
        let base = match path.parent() {
            Some(above) if !is.is_directory => of.open(&above.join("."))?,
            _ => file,
        };
        Ok(Self { path, base: Arc::new(base), is })
    }
}

/// What the root gives, to whom stores it.
struct GivenByRoot<'a> {
    of: &'a HostShared,
    shared: &'a SaveShared<'a>,
}

impl<'a> WorkGiver<'a> for GivenByRoot<'a> {
    fn next(&self) -> Option<GivenWork<'a>> {
        let (of, shared) = (self.of, self.shared);
        loop {
            let mut item = match of.desk.next()? {
                HostWork::Directory(item) => item,
                HostWork::Content(item) => {
                    return Some(GivenWork::Files(Box::new(move || of.content(shared, &item))));
                }
            };
            if let Some(files) = item.files.take() {
                return Some(GivenWork::Files(Box::new(move || of.files(shared, &item, &files))));
            }
            match of.directory(item) {
                Ok(None) => {}
                Ok(Some(work)) => return Some(GivenWork::Directory(work)),
                Err(error) => {
                    self.broken(&error);
                    return None;
                }
            }
        }
    }

    fn broken(&self, error: &ArchiveError) {
        // After that there is nothing that could be refused.
        drop(self.of.desk.push(&HostRecord::Broken { text: error.to_string() }));
        self.of.desk.end();
    }
}

impl HostShared {
    /// Stores what is given until all is over.
    fn work(&self) {
        let told = |event| self.told(&event);
        let mut options = self.options;
        let writer_bytes = options.limits.leave_to(&*self.store);
        let shared = SaveShared {
            store: &*self.store,
            desk: &self.desk,
            options,
            writer_bytes,
            exclude: &self.exclude,
            told: &told,
            replaced: None,
            moved: MovedBytes::new(&self.options.limits),
            counters: SaveCounters::default(),
        };
        let given = GivenByRoot { of: self, shared: &shared };
        // What goes wrong has been told when it did.
        let _ = SavePool::given(&shared, &given).run(&|_, stats| self.numbers.tell(stats));
    }

    /// A directory to be stored, if it is there.
    fn directory(&self, item: SaveItem) -> Result<Option<SaveWork>, ArchiveError> {
        let is_source = item.path.depth() == 0;
        let Some(source) = self.source(item.source) else {
            return self.left(&item, None).map(|()| None);
        };
        let path = source.path.join(item.path.as_relative());
        match Directory::beneath(&source.base, &item.path) {
            Ok(from) => {
                // As many numbers as names below what was named, which is counted itself.
                let place = vec![0; item.path.depth() + 1].into();
                Ok(Some(SaveWork { from, path, to: item.to, above: None, is_source, place }))
            }
            // It was taken away since.
            Err(Errno::NOENT) if !is_source => self.left(&item, None).map(|()| None),
            Err(errno) => {
                let error = file_error(&path, "cannot be read", errno);
                self.left(&item, Some(error)).map(|()| None)
            }
        }
    }

    fn files(
        &self,
        shared: &SaveShared<'_>,
        item: &SaveItem,
        files: &[u32],
    ) -> Result<(), ArchiveError> {
        let mut names = Vec::new();
        for source in files.iter().filter_map(|&number| self.source(number)) {
            let Some(name) = source.path.file_name() else { continue };
            let (directory, path) = (source.base.as_fd(), &*source.path);
            let found = names::lstat_at(directory, name);
            names.push(SourceName { name, directory, opened: name, path, found });
        }
        if names.is_empty() {
            return self.left(item, None);
        }
        DirectorySave::files(shared, &item.to, names)
    }

    /// Stores a large file of a directory that another host has.
    fn content(&self, shared: &SaveShared<'_>, item: &ContentItem) -> Result<(), ArchiveError> {
        let object = self.source(item.source).and_then(|source| {
            let name = OsStr::from_bytes(&item.name);
            let open = Directory::beneath(&source.base, &item.path).and_then(|from| from.open());
            let path = source.path.join(item.path.as_relative()).join(name);
            object_for_other(shared, open.ok()?.file(), (name, item.part), &path)
        });
        self.desk.stored(item.id, object)
    }

    /// A directory is not stored, by an error or because it is not there any more.
    fn left(&self, item: &SaveItem, error: Option<ArchiveError>) -> Result<(), ArchiveError> {
        let failed = u64::from(error.is_some());
        if let Some(error) = error {
            self.told(&ArchiveEvent::Failed(error));
        }
        let report = SaveReport { failed, ..SaveReport::default() };
        self.desk.push(&HostRecord::Done { id: item.id, report })?;
        self.desk.finished(&item.to);
        Ok(())
    }

    fn source(&self, number: u32) -> Option<&HostSource> {
        self.sources.get(number as usize)?.as_ref()
    }

    fn told(&self, event: &ArchiveEvent) {
        let record = match event {
            ArchiveEvent::Stores { path } => {
                HostRecord::Stores { path: path.as_os_str().as_bytes().to_vec() }
            }
            event => HostRecord::told(event.to_string()),
        };
        if self.desk.push(&record).is_err() {
            self.desk.end();
        }
    }
}
