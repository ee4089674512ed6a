//! The service of a host: it stores its files, and fetches some, as the root says.
use super::work::{HostWorker, WORK};
use crate::cmd::archive::place;
use rustix::fs::{Mode, OFlags};
use sheaf_archive::{FetchHost, HostFiles, HostStore, SaveHost};
use sheaf_core::Errno;
use sheaf_file::Export;
use sheaf_tree::service::{Blocking, ServiceRequest, Site, Worker};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// The service's name.
pub const ARCHIVE: &str = "archive";
/// Tags of its requests.
pub const SAVE: i32 = 1;
/// The same, of those that fetch.
pub const FETCH: i32 = 2;

/// How long a host gathers what it has to say.
const PATIENCE: Duration = Duration::from_millis(500);

/// The service, at leaves. It is told which directory is exported.
pub fn service() -> Blocking {
    Blocking::new(|site, _| Ok(Box::new(Mover::new(site)?)))
}

/// What a host does for one root.
struct Mover {
    files: ExportedFiles,
    save: SaveHost,
    fetch: FetchHost,
    work: HostWorker,
}

impl Mover {
    fn new(site: &Site<'_>) -> Result<Self, Errno> {
        // A session of another program says nothing of it.
        let export = str::from_utf8(site.config).ok().filter(|export| !export.is_empty());
        let export = export.ok_or(Errno::NOSYS)?.replace("%h", site.host);
        let files = ExportedFiles { export: Export::open(Path::new(&export))? };
        let work = HostWorker::new(site.host, files.export.clone());
        Ok(Self { files, save: SaveHost::default(), fetch: FetchHost::default(), work })
    }
}

impl Worker for Mover {
    fn request(&mut self, request: &ServiceRequest) -> Result<Vec<u8>, Errno> {
        match request.tag {
            SAVE => self.save.answer(&request.payload, &self.files, PATIENCE),
            FETCH => self.fetch.answer(&request.payload, &self.files, PATIENCE),
            WORK => self.work.answer(&request.payload, PATIENCE),
            _ => Err(Errno::NOSYS),
        }
    }
}

/// Files beneath the export, and stores of the host as a whole.
struct ExportedFiles {
    export: Export,
}

impl HostFiles for ExportedFiles {
    fn store(&self, name: &OsStr) -> Result<HostStore, String> {
        place::host_store(Path::new(name)).map_err(|error| format!("{error:#}"))
    }

    fn open(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        Ok(self.export.open_file(path, flags, Mode::empty())?.into())
    }

    fn make_directory(&self, path: &Path) -> Result<OwnedFd, Errno> {
        self.export.create_dirs(path, Mode::from_raw_mode(0o777), &mut |_| {})?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        Ok(self.export.open_file(path, flags, Mode::empty())?.into())
    }
}
