//! The service of a host: it stores its files, and fetches some, as the root says.
use super::work::{HostWorker, WORK};
use crate::place;
use rustix::fs::{Mode, OFlags};
use sheaf_archive::{FetchHost, HostFiles, HostStore, SaveHost};
use sheaf_cli::companion::ARCHIVE;
use sheaf_cli::companion::host::{self, PartSite, PartWorker};
use sheaf_core::Errno;
use sheaf_file::Export;
use sheaf_tree::service::Services;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// Tags of its requests.
pub const SAVE: i32 = 1;
/// The same, of those that fetch.
pub const FETCH: i32 = 2;

/// How long a host gathers what it has to say.
const PATIENCE: Duration = Duration::from_millis(500);

/// `services` with that of archives, for the nodes of this process.
pub fn register(services: Services) -> Services {
    match ARCHIVE.service {
        Some(service) => services.with(service, host::within(open)),
        None => services,
    }
}

/// Makes what works for a stream. Its site says which directory is exported.
pub fn open(site: &PartSite) -> Result<Box<dyn PartWorker>, Errno> {
    Ok(Box::new(Mover::new(site)?))
}

/// What a host does for one root.
struct Mover {
    files: ExportedFiles,
    save: SaveHost,
    fetch: FetchHost,
    work: HostWorker,
}

impl Mover {
    fn new(site: &PartSite) -> Result<Self, Errno> {
        // A session of another program says nothing of it.
        let export = str::from_utf8(&site.config).ok().filter(|export| !export.is_empty());
        let export = export.ok_or(Errno::NOSYS)?.replace("%h", &site.host);
        let files = ExportedFiles { export: Export::open(Path::new(&export))? };
        let work = HostWorker::new(&site.host, files.export.clone());
        Ok(Self { files, save: SaveHost::default(), fetch: FetchHost::default(), work })
    }
}

impl PartWorker for Mover {
    fn answer(&mut self, tag: i32, payload: &[u8]) -> Result<Vec<u8>, Errno> {
        match tag {
            SAVE => self.save.answer(payload, &self.files, PATIENCE),
            FETCH => self.fetch.answer(payload, &self.files, PATIENCE),
            WORK => self.work.answer(payload, PATIENCE),
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
        // A link that takes the place of what was made is not followed.
        if let Some(made) = self.export.make_dirs(path, Mode::from_raw_mode(0o777), &mut |_| {})? {
            return Ok(made.into_descriptor());
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        Ok(self.export.open_file(path, flags, Mode::empty())?.into())
    }
}
