//! `ls`.
use super::human;
use super::owners::Owners;
use super::time::{Clock, TimeStyle};
use crate::paths::PerPath;
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_file::{Export, FileKind, Metadata, Timestamp};
use sheaf_group::entry::{Answer, Entry, EntryKind, MergedEntry, Sink};
use sheaf_group::tool::Host;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

mod order;
mod version;

/// What to list and how.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListOptions {
    /// Rows with mode, links, owner, group, size and time.
    pub long: bool,
    /// The inode's number in front.
    pub inode: bool,
    /// Names with a dot in front, too.
    pub hidden: Hidden,
    /// Directories below, too.
    pub recursive: bool,
    /// Directories themselves, not what is in them.
    pub directory: bool,
    /// Sizes as 4.0K, 234M.
    pub human: bool,
    /// Numbers of owners and groups, not names.
    pub numeric: bool,
    /// Which names have a mark of their kind behind them.
    pub marks: Marks,
    /// In which order.
    pub sort: Sort,
    /// The other way round.
    pub reverse: bool,
    /// Which time is shown and sorted by.
    pub time: ListTime,
    /// Times to the nanosecond; to the minute otherwise, so that rows that look the same are.
    pub full_time: bool,
}

impl ListOptions {
    /// How many columns stand before the name.
    fn columns(&self) -> usize {
        usize::from(self.inode) + if self.long { 6 } else { 0 }
    }
}

/// A time of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListTime {
    /// The last change of the content.
    #[default]
    Modified,
    /// The last access.
    Accessed,
    /// The last change of the status.
    Changed,
    /// The creation; not every file system knows it.
    Born,
}

impl ListTime {
    fn of(self, metadata: &Metadata) -> Option<Timestamp> {
        match self {
            Self::Modified => Some(metadata.mtime),
            Self::Accessed => Some(metadata.atime),
            Self::Changed => Some(metadata.ctime),
            Self::Born => metadata.btime,
        }
    }
}

/// Names that begin with a dot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hidden {
    /// Are left out.
    #[default]
    Skip,
    /// Are shown, but `.` and `..` are not (`-A`).
    Almost,
    /// Are shown (`-a`).
    Show,
}

/// Marks of kinds: `/` for directories, `@` links, `*` what can be run, `|` pipes, `=` sockets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Marks {
    /// None.
    #[default]
    None,
    /// Those of directories (`-p`).
    Directories,
    /// All of them (`-F`); in long rows that of a link is that of what it leads to.
    All,
}

impl Marks {
    fn of(self, metadata: &Metadata) -> Option<u8> {
        match (self, metadata.kind) {
            (Self::None, _) => None,
            (_, FileKind::Directory) => Some(b'/'),
            (Self::Directories, _) => None,
            (Self::All, FileKind::Symlink) => Some(b'@'),
            (Self::All, FileKind::Fifo) => Some(b'|'),
            (Self::All, FileKind::Socket) => Some(b'='),
            (Self::All, FileKind::File) if metadata.mode & 0o111 != 0 => Some(b'*'),
            (Self::All, _) => None,
        }
    }
}

/// What rows are sorted by; by name where that is equal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sort {
    /// Bytewise by name.
    #[default]
    Name,
    /// Newest first.
    Time,
    /// Largest first.
    Size,
    /// By what is behind the last dot of the name.
    Extension,
    /// By name, numbers in it by their value.
    Version,
    /// Not at all.
    None,
}

/// A row as it is shown: columns to be aligned, then the name. One without a name says that there
/// is nothing in the directory to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRow {
    /// Text of each column, and whether it is aligned to the right.
    pub columns: Vec<(String, bool)>,
    /// The name.
    pub name: Vec<u8>,
    /// What it leads to, if it is a link and the row is long.
    pub target: Option<Vec<u8>>,
    /// The mark of its kind, if there is one.
    pub mark: Vec<u8>,
}

impl ListRow {
    /// Reads the text of an entry.
    #[must_use]
    pub fn read(options: &ListOptions, style: TimeStyle, clock: &Clock, text: &[u8]) -> Self {
        let count = options.columns();
        // A name may have tabs of its own: it is all that is left.
        let mut fields: Vec<&[u8]> = text.splitn(count + 1, |&byte| byte == b'\t').collect();
        // No name has a NUL.
        let mut names = fields.pop().unwrap_or_default().splitn(3, |&byte| byte == 0);
        let name = names.next().unwrap_or_default().to_vec();
        let target = names.next().filter(|target| !target.is_empty()).map(<[u8]>::to_vec);
        let mark = names.next().unwrap_or_default().to_vec();
        let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
        let mut columns: Vec<(String, bool)> =
            fields.iter().map(|field| (text(field), true)).collect();
        if options.long && columns.len() == count {
            let first = count - 6;
            for left in [first, first + 2, first + 3] {
                columns[left].1 = false;
            }
            columns[first + 5] = (shown_time(&columns[first + 5].0, style, clock), false);
        }
        Self { columns, name, target, mark }
    }

    /// Puts entries of all hosts into order: files that were named, then directories as `ls` sorts
    /// them, each with those below it in the order of its rows. Entries that say nothing but by
    /// what to sort are left out.
    pub fn sort(options: &ListOptions, entries: &mut Vec<MergedEntry<'_>>) {
        order::sort(options, entries);
    }

    /// Rows below each other: every column as wide as its widest text, one space between.
    #[must_use]
    pub fn align(rows: &[Self]) -> Vec<Vec<u8>> {
        let count = rows.iter().map(|row| row.columns.len()).max().unwrap_or(0);
        let width = |at: usize| {
            rows.iter().filter_map(|row| Some(row.columns.get(at)?.0.chars().count())).max()
        };
        let widths: Vec<usize> = (0..count).map(|at| width(at).unwrap_or(0)).collect();
        let line = |row: &Self| {
            let mut line = Vec::new();
            for ((text, right), width) in row.columns.iter().zip(&widths) {
                let text =
                    if *right { format!("{text:>width$} ") } else { format!("{text:<width$} ") };
                line.extend_from_slice(text.as_bytes());
            }
            line.extend_from_slice(&row.name);
            if let Some(target) = &row.target {
                line.extend_from_slice(b" -> ");
                line.extend_from_slice(target);
            }
            line.extend_from_slice(&row.mark);
            line
        };
        rows.iter().map(line).collect()
    }
}

/// What is behind the last dot of a name, with the dot.
fn extension(name: &[u8]) -> &[u8] {
    name.iter().rposition(|&byte| byte == b'.').map_or(b"", |dot| &name[dot..])
}

fn shown_time(text: &str, style: TimeStyle, clock: &Clock) -> String {
    let (seconds, nanoseconds) = text.split_once('.').unwrap_or((text, "0"));
    match (seconds.parse(), nanoseconds.parse()) {
        (Ok(seconds), Ok(nanoseconds)) => style.format(seconds, nanoseconds, clock),
        _ => text.to_owned(),
    }
}

/// Rows said in one step.
const STEP_ROWS: usize = 512;

/// How many levels of directories are kept open for those that are still to be read in them.
const DIRS_HELD_MAX: usize = 32;

pub(super) struct Lister {
    options: ListOptions,
    owners: Owners,
    /// Files that were named themselves; they come in the end, sorted.
    named: Vec<ListItem>,
    /// Directories that are still to be read, the next one last.
    dirs: Vec<ListedDir>,
    /// The directory that is being listed, and its rows that have not been said.
    section: PathBuf,
    rows: VecDeque<ListItem>,
}

/// A directory that is to be listed.
struct ListedDir {
    path: PathBuf,
    /// The export with the directory held in which it was found. A link that has taken its place is
    /// not followed, unlike one that was named.
    above: Option<Export>,
    depth: usize,
}

struct ListItem {
    name: OsString,
    path: PathBuf,
    metadata: Option<Metadata>,
}

impl Lister {
    pub fn new(options: ListOptions) -> Self {
        let owners = Owners::default();
        Self {
            options,
            owners,
            named: Vec::new(),
            dirs: Vec::new(),
            section: PathBuf::new(),
            rows: VecDeque::new(),
        }
    }

    fn needs_metadata(&self) -> bool {
        let sorts = matches!(self.options.sort, Sort::Time | Sort::Size);
        self.options.long || self.options.inode || sorts || self.options.marks != Marks::None
    }

    /// Reads the next directory into rows; those below it come right after it.
    fn read(&mut self, listed: ListedDir, host: &Host) -> Result<Vec<(PathBuf, Errno)>, Errno> {
        let ListedDir { path: dir, above, depth } = listed;
        let (mut items, mut failed, mut below) = (Vec::new(), Vec::new(), Vec::new());
        let mut names: Vec<(OsString, FileKind)> = Vec::new();
        if self.options.hidden == Hidden::Show {
            names.extend([".", ".."].map(|name| (name.into(), FileKind::Directory)));
        }
        // Names and what is said of them are of one directory, whatever takes its place.
        let here = match &above {
            Some(above) => above.holding(&dir, false)?,
            None => host.export.holding(&dir, depth == 0)?,
        };
        let above = (depth < DIRS_HELD_MAX).then(|| here.clone());
        let entries = here.read_dir(&dir)?;
        names.extend(entries.into_iter().map(|entry| (entry.name, entry.kind)));
        for (at, (name, mut kind)) in names.into_iter().enumerate() {
            if self.options.hidden == Hidden::Skip && name.as_bytes().first() == Some(&b'.') {
                continue;
            }
            if host.should_stop() {
                return Err(Errno::CANCELED);
            }
            let path = dir.join(&name);
            let asked =
                self.needs_metadata() || (kind == FileKind::Unknown && self.options.recursive);
            let metadata = match asked.then(|| here.lstat(&path)) {
                None => None,
                Some(Ok(metadata)) => Some(metadata),
                Some(Err(errno)) => {
                    failed.push((path, errno));
                    continue;
                }
            };
            kind = metadata.as_ref().map_or(kind, |metadata| metadata.kind);
            let is_dot = self.options.hidden == Hidden::Show && at < 2;
            if self.options.recursive && kind == FileKind::Directory && !is_dot {
                let above = above.clone();
                below.push(ListedDir { path: path.clone(), above, depth: depth + 1 });
            }
            items.push(ListItem { name, path, metadata });
        }
        self.sort(&mut items);
        if self.options.recursive {
            let place: rustc_hash::FxHashMap<&Path, usize> =
                items.iter().enumerate().map(|(at, item)| (item.path.as_path(), at)).collect();
            below.sort_by_key(|dir| Reverse(place.get(dir.path.as_path()).copied()));
            self.dirs.append(&mut below);
        }
        self.rows = items.into();
        self.section = dir;
        Ok(failed)
    }

    fn sort(&self, items: &mut [ListItem]) {
        let metadata = |item: &ListItem| {
            item.metadata.as_ref().map(|metadata| (self.options.time.of(metadata), metadata.size))
        };
        match self.options.sort {
            Sort::None => {}
            Sort::Name => items.sort_by(|a, b| a.name.cmp(&b.name)),
            Sort::Version => {
                items.sort_by(|a, b| version::compare(a.name.as_bytes(), b.name.as_bytes()))
            }
            Sort::Extension => items.sort_by_cached_key(|item| {
                (extension(item.name.as_bytes()).to_vec(), item.name.clone())
            }),
            Sort::Time => items.sort_by_key(|item| {
                (Reverse(metadata(item).map(|(time, _)| time)), item.name.clone())
            }),
            Sort::Size => items.sort_by_key(|item| {
                (Reverse(metadata(item).map(|(_, size)| size)), item.name.clone())
            }),
        }
        if self.options.reverse && self.options.sort != Sort::None {
            items.reverse();
        }
    }

    /// One row of the directory `section`.
    fn say(&mut self, section: &[u8], item: &ListItem, answer: &mut Answer, host: &Host) {
        let mut text = Vec::new();
        if let Some(metadata) = &item.metadata {
            self.columns(metadata, &mut text);
        }
        text.extend_from_slice(item.name.as_bytes());
        let is_link =
            item.metadata.as_ref().is_some_and(|metadata| metadata.kind == FileKind::Symlink);
        let target = (self.options.long && is_link).then(|| host.export.read_link(&item.path));
        let mark = item.metadata.as_ref().and_then(|metadata| self.options.marks.of(metadata));
        let mark = match &target {
            // What a link leads to has its own mark; a link that leads nowhere has none.
            Some(_) if self.options.marks == Marks::All => {
                host.export.stat(&item.path).ok().and_then(|found| self.options.marks.of(&found))
            }
            Some(_) => None,
            None => mark,
        };
        if target.is_some() || mark.is_some() {
            text.push(0);
        }
        if let Some(Ok(target)) = &target {
            text.extend_from_slice(target.as_os_str().as_bytes());
        }
        if let Some(mark) = mark {
            text.extend_from_slice(&[0, mark]);
        }
        let _ = answer.entry(Entry::new(EntryKind::Line, &text));
        if let Some(Err(errno)) = target {
            answer.error(item.path.as_os_str().as_bytes(), errno);
            // The error was at another path.
            answer.path(section);
        }
    }

    fn columns(&mut self, metadata: &Metadata, text: &mut Vec<u8>) {
        if self.options.inode {
            text.extend_from_slice(format!("{}\t", metadata.ino).as_bytes());
        }
        if !self.options.long {
            return;
        }
        let size = match metadata.kind {
            FileKind::CharDevice | FileKind::BlockDevice => {
                let (major, minor) = human::device(metadata.rdev);
                format!("{major}, {minor}")
            }
            _ if self.options.human => human::size(metadata.size),
            _ => metadata.size.to_string(),
        };
        let time = match (self.options.time.of(metadata), self.options.full_time) {
            (None, _) => "?".to_owned(),
            (Some(time), true) => format!("{}.{}", time.seconds, time.nanoseconds),
            (Some(time), false) => human::to_the_minute(time.seconds).to_string(),
        };
        let (mode, nlink) = (human::mode(metadata), metadata.nlink);
        let (owner, group) = match self.options.numeric {
            true => (metadata.uid.to_string(), metadata.gid.to_string()),
            false => (
                self.owners.user(metadata.uid).to_owned(),
                self.owners.group(metadata.gid).to_owned(),
            ),
        };
        text.extend_from_slice(
            format!("{mode}\t{nlink}\t{owner}\t{group}\t{size}\t{time}\t").as_bytes(),
        );
    }
}

impl PerPath for Lister {
    fn begin(&mut self, path: &Path, answer: &mut Answer, host: &Host) -> Result<(), Errno> {
        // A link to a directory is listed as that, unless the row would show where it leads, or
        // that it does.
        let shows_links = self.options.long || self.options.marks == Marks::All;
        let follows = !shows_links && !self.options.directory;
        let metadata = match follows.then(|| host.export.stat(path)) {
            Some(Ok(metadata)) if metadata.is_dir() => metadata,
            // Only of a link that leads nowhere it is known that it leads to no directory.
            Some(Err(errno)) if errno != Errno::NOENT => return Err(errno),
            _ => host.export.lstat(path)?,
        };
        if metadata.is_dir() && !self.options.directory {
            let key = match self.options.sort {
                Sort::Time => {
                    self.options.time.of(&metadata).map(|time| (time.seconds, time.nanoseconds))
                }
                Sort::Size => Some((i64::try_from(metadata.size).unwrap_or(i64::MAX), 0)),
                _ => None,
            };
            if let Some(key) = key {
                answer.path(path.as_os_str().as_bytes());
                let _ = answer.entry(Entry::new(EntryKind::Path, order::key_text(key).as_bytes()));
            }
            self.dirs.push(ListedDir { path: path.to_owned(), above: None, depth: 0 });
        } else {
            let metadata = self.needs_metadata().then_some(metadata);
            self.named.push(ListItem {
                name: path.as_os_str().to_owned(),
                path: path.to_owned(),
                metadata,
            });
        }
        Ok(())
    }

    fn go_on(&mut self, answer: &mut Answer, host: &Host) -> bool {
        if self.rows.is_empty() {
            let Some(listed) = self.dirs.pop() else { return false };
            let dir = listed.path.clone();
            match self.read(listed, host) {
                Ok(failed) => {
                    failed.iter().for_each(|(path, errno)| {
                        answer.error(path.as_os_str().as_bytes(), *errno)
                    });
                    // Of what could not be looked at nobody knows that nothing is there.
                    if self.rows.is_empty() && failed.is_empty() {
                        answer.path(dir.as_os_str().as_bytes());
                        let _ = answer.entry(Entry::new(EntryKind::Line, b""));
                    }
                }
                Err(errno) => answer.error(dir.as_os_str().as_bytes(), errno),
            }
        }
        let section = self.section.clone();
        answer.path(section.as_os_str().as_bytes());
        for _ in 0..STEP_ROWS {
            let Some(item) = self.rows.pop_front() else { break };
            self.say(section.as_os_str().as_bytes(), &item, answer, host);
        }
        true
    }

    fn conclude(&mut self, answer: &mut Answer, host: &Host) {
        let mut named = std::mem::take(&mut self.named);
        self.sort(&mut named);
        answer.path(b"");
        named.iter().for_each(|item| self.say(b"", item, answer, host));
    }
}
