//! What each host says of a path, and of the names in a directory.
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Timestamp};
use sheaf_file::{DirEntries, Export};
use sheaf_group::entry::{Entry, EntryKind, Sink};
use sheaf_group::tool::{Host, Reply, Running, Step, Tool, Tools};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The tool's name.
pub(super) const NAME: &str = "view";
/// Names that are told before it is looked whether anybody still wants them.
const NAMES_AT_ONCE: usize = 4096;

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ViewParams {
    /// Beneath the export.
    pub path: Vec<u8>,
    /// The names in it; what it is otherwise.
    pub names: bool,
}

/// What a host has there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HostHas {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub size: u64,
    pub blocks: u64,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// Where a symbolic link leads.
    pub link: Option<Vec<u8>>,
}

/// A name in a directory, and what it is: a digit and the name.
pub(super) fn entry_text(kind: FileKind, name: &[u8]) -> Vec<u8> {
    [&[kind as u8][..], name].concat()
}

/// The reverse.
pub(super) fn entry_of(text: &[u8]) -> Option<(FileKind, &[u8])> {
    let (kind, name) = text.split_first()?;
    let all = [
        FileKind::File,
        FileKind::Directory,
        FileKind::Symlink,
        FileKind::Fifo,
        FileKind::Socket,
        FileKind::CharDevice,
        FileKind::BlockDevice,
        FileKind::Unknown,
    ];
    all.into_iter().find(|one| *one as u8 == *kind).map(|kind| (kind, name))
}

/// Makes it known to servers.
pub fn register(tools: &mut Tools) {
    tools.register(NAME, ViewTool);
}

struct ViewTool;

impl Tool for ViewTool {
    fn only_reads(&self) -> bool {
        true
    }

    fn start(&self, params: &[u8], _: &Host) -> Result<Box<dyn Running>, Errno> {
        let params: ViewParams = postcard::from_bytes(params).map_err(|_| Errno::BADMSG)?;
        Ok(Box::new(ViewAtWork { params, names: None }))
    }
}

struct ViewAtWork {
    params: ViewParams,
    /// Those that are still to be told.
    names: Option<DirEntries>,
}

impl ViewAtWork {
    fn begin(&mut self, answer: &mut Reply, host: &Host) -> Result<Step, Errno> {
        let path = Path::new(OsStr::from_bytes(&self.params.path));
        if self.params.names {
            self.names = Some(host.export.entries(path)?);
            return Ok(Step::More);
        }
        let has = HostHas::of(&host.export, path)?;
        let text = postcard::to_stdvec(&has).map_err(|_| Errno::NOMEM)?;
        let _ = answer.entries().entry(Entry::new(EntryKind::Line, &text));
        Ok(Step::Done)
    }
}

impl Running for ViewAtWork {
    fn step(&mut self, answer: &mut Reply, host: &Host) -> Step {
        let Some(names) = &mut self.names else {
            answer.entries().path(b"");
            return match self.begin(answer, host) {
                Ok(step) => step,
                // It is not there, which is no error: others may have it.
                Err(Errno::NOENT | Errno::NOTDIR) => Step::Done,
                Err(errno) => {
                    answer.entries().error(&self.params.path, errno);
                    Step::Done
                }
            };
        };
        let entries = answer.entries();
        entries.path(b"");
        for _ in 0..NAMES_AT_ONCE {
            match names.next() {
                None => return Step::Done,
                Some(Ok(name)) => {
                    let text = entry_text(name.kind, name.name.as_bytes());
                    let _ = entries.entry(Entry::new(EntryKind::Line, &text));
                }
                Some(Err(errno)) => {
                    entries.error(&self.params.path, errno);
                    return Step::Done;
                }
            }
        }
        match host.stopped() {
            None => Step::More,
            Some(errno) => {
                entries.error(&self.params.path, errno);
                Step::Done
            }
        }
    }
}

impl HostHas {
    fn of(export: &Export, path: &Path) -> Result<Self, Errno> {
        let found = export.lstat(path)?;
        let link = match found.kind {
            FileKind::Symlink => {
                Some(export.read_link(path)?.into_os_string().into_encoded_bytes())
            }
            _ => None,
        };
        Ok(Self {
            mode: found.raw_mode(),
            uid: found.uid,
            gid: found.gid,
            rdev: found.rdev,
            size: found.size,
            blocks: found.blocks,
            mtime: found.mtime,
            ctime: found.ctime,
            link,
        })
    }
}
