//! Directories of this machine listed.
use super::{ToldFiles, TreePrinter};
use crate::entry::times::ShownTime;
use crate::entry::{EntryFormat, EntryMemory, KindMarks, ShownFile, fields, kind};
use crate::sorted::{EntrySort, SortedEntries};
use anyhow::Result;
use rustix::fs::{AtFlags, StatxFlags};
use sheaf_archive::{
    FileFacts, TreeOrder, TreeStep, TreeVisitor, TreeWalkOptions, VisitWalk, VisitedFile,
    WalkedDirectory,
};
use sheaf_cli::output::{self, printable};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Metadata};
use sheaf_records::LocalFile;
use sheaf_tools::report::human;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Lists directories of this machine.
pub struct LocalListing {
    pub format: Arc<EntryFormat>,
    pub all: bool,
    pub recursive: bool,
    /// Directories are told themselves, not what is in them.
    pub directory: bool,
    pub time: ShownTime,
    pub sort: EntrySort,
}

/// Lines of some files of one directory.
#[derive(Default)]
pub struct ListedFiles {
    told: ToldFiles,
    memory: EntryMemory,
    sorted: SortedEntries,
}

impl TreeVisitor for LocalListing {
    type Piece = ListedFiles;

    fn facts(&self) -> FileFacts {
        let format = &self.format;
        let is_shown = format.long || format.has_inodes || format.has_rooms;
        let is_known = is_shown || format.marks == KindMarks::All || format.output.json;
        if is_known || !self.sort.is_none() { FileFacts::Status } else { FileFacts::Kind }
    }

    fn order(&self) -> TreeOrder {
        TreeOrder::Listings
    }

    fn visit(&self, piece: &mut ListedFiles, file: &VisitedFile<'_>) -> bool {
        let is_start = file.depth == 0;
        if is_start && file.kind == FileKind::Directory && !self.directory {
            return true;
        }
        let is_hidden = file.name.as_bytes().starts_with(b".") && !self.all && !is_start;
        if !is_hidden && let Err(errno) = self.tell(piece, file) {
            let mut path = Vec::new();
            file.put_path(&mut path);
            piece.told.failed(&path, errno);
        }
        !is_hidden && self.recursive && !is_start
    }

    fn failed(&self, piece: &mut ListedFiles, directory: &WalkedDirectory, errno: Errno) {
        piece.told.failed_directory(directory, errno);
    }

    fn bytes(&self, piece: &ListedFiles) -> usize {
        piece.told.bytes() + piece.sorted.bytes()
    }
}

impl LocalListing {
    fn tell(&self, piece: &mut ListedFiles, file: &VisitedFile<'_>) -> Result<(), Errno> {
        let ListedFiles { told, memory, sorted } = piece;
        let is_json = self.format.output.json;
        let link = if self.format.long || is_json { link_of(file)? } else { None };
        let status = match file.found {
            Some(Err(errno)) if self.format.long || is_json || file.depth == 0 => {
                return Err(*errno);
            }
            Some(Ok(found)) => Some(found),
            _ => None,
        };
        let target = if self.format.long && self.format.marks == KindMarks::All {
            target_of(file)
        } else {
            None
        };
        let shown = ShownFile {
            time: shown_time(self.time, status),
            target,
            ..shown(file.kind, status, link.as_deref())
        };
        let from = told.text.len();
        if is_json {
            let mut path = Vec::new();
            file.put_path(&mut path);
            let record = local_file(&path, &shown);
            let written = self.format.output.records.write(&mut told.text, &record);
            written.map_err(|error| Errno::from_io(&error))?;
        } else {
            self.format.put(memory, &mut told.text, file.told, &shown);
        }
        if !self.sort.is_none() {
            sorted.add(self.sort, &shown, &told.text[from..]);
            told.text.truncate(from);
        }
        Ok(())
    }
}

/// Prints a listing. Says whether it is whole.
pub fn print(
    listing: LocalListing,
    start: &Path,
    out: &mut dyn Write,
    has_heads: bool,
    is_first: &mut bool,
) -> Result<bool> {
    let is_terminal = listing.format.output.stdout_is_terminal;
    // A link that is named is shown itself only where something is said of it.
    let is_marked = listing.format.marks == KindMarks::All;
    let follows_start = !listing.format.long && !listing.directory && !is_marked;
    let options = TreeWalkOptions { follows_start, ..TreeWalkOptions::default() };
    let (sort, mut sorted) = (listing.sort, SortedEntries::default());
    let mut printer = TreePrinter::new(out);
    for step in VisitWalk::new("ls", start, listing, options) {
        if output::is_over() {
            break;
        }
        let piece = match &step {
            TreeStep::Piece(piece) => Some(piece),
            TreeStep::Enter(_) | TreeStep::Leave(_) => None,
        };
        match piece {
            Some(piece) => sorted.append(&piece.sorted),
            None => sorted.write(sort, &mut printer)?,
        }
        match step {
            TreeStep::Piece(piece) => printer.piece(&piece.told)?,
            TreeStep::Enter(directory) if has_heads => {
                printer.text(if std::mem::take(is_first) { b"" } else { b"\n" })?;
                if is_terminal {
                    let path = String::from_utf8_lossy(directory.path());
                    printer.text(printable(&path).as_bytes())?;
                } else {
                    printer.text(directory.path())?;
                }
                printer.text(b":\n")?;
            }
            TreeStep::Enter(_) | TreeStep::Leave(_) => {}
        }
    }
    sorted.write(sort, &mut printer)?;
    printer.end()
}

/// The record of a file of this machine.
///
/// # Errors
/// What `lstat` and `readlink` say.
pub fn local_record(path: &[u8], file: &VisitedFile<'_>) -> Result<LocalFile, Errno> {
    let found = match file.found {
        Some(Ok(found)) => found,
        Some(Err(errno)) => return Err(*errno),
        None => return Err(Errno::INVAL),
    };
    let link = link_of(file)?;
    Ok(local_file(path, &shown(file.kind, Some(found), link.as_deref())))
}

fn local_file(path: &[u8], shown: &ShownFile<'_>) -> LocalFile {
    LocalFile { host: None, kind: kind(shown), file: fields(path, shown) }
}

/// What a symbolic link says.
fn link_of(file: &VisitedFile<'_>) -> Result<Option<Vec<u8>>, Errno> {
    if file.kind != FileKind::Symlink {
        return Ok(None);
    }
    let link = rustix::fs::readlinkat(file.directory, file.name, Vec::new());
    let link = link.map_err(|errno| Errno(errno.raw_os_error()))?;
    Ok(Some(link.into_bytes()))
}

/// What a symbolic link leads to, if it is somewhere.
fn target_of(file: &VisitedFile<'_>) -> Option<(char, u32)> {
    if file.kind != FileKind::Symlink {
        return None;
    }
    let (flags, what) = (AtFlags::empty(), StatxFlags::BASIC_STATS);
    // One that leads nowhere has no mark.
    let found = rustix::fs::statx(file.directory, file.name, flags, what).ok()?;
    let found = Metadata::from(found);
    Some((human::kind(found.kind), found.mode))
}

/// The time that is shown.
fn shown_time(which: ShownTime, status: Option<&Metadata>) -> (i64, u32) {
    let time = status.map(|status| match which {
        ShownTime::Content => status.mtime,
        ShownTime::Inode => status.ctime,
        ShownTime::Access => status.atime,
    });
    time.map_or((0, 0), |time| (time.seconds, time.nanoseconds))
}

fn shown<'a>(kind: FileKind, status: Option<&Metadata>, link: Option<&'a [u8]>) -> ShownFile<'a> {
    let of = |of: fn(&Metadata) -> u32| status.map_or(0, of);
    ShownFile {
        kind: human::kind(kind),
        mode: of(|status| status.mode),
        uid: of(|status| status.uid),
        gid: of(|status| status.gid),
        size: status.map_or(0, |status| status.size),
        mtime: shown_time(ShownTime::Content, status),
        time: shown_time(ShownTime::Content, status),
        link,
        target: None,
        inode: status.map_or(0, |status| status.ino),
        room: status.map_or(0, |status| status.blocks.saturating_mul(512)),
    }
}
