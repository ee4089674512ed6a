//! What a host does with its own files: it finds some, or searches them, and says what there is bit by
//! bit, as it is asked for more.
use super::is_special;
use crate::find::{SystemNames, SystemWords};
use crate::local::find::LocalFind;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use sheaf_archive::{
    ArchiveError, ArchiveGrep, ArchiveGrepOptions, ArchiveGrepOutput, FindError, FindExpression,
    FindNames, FindSettings, FindTime, GrepEvent, GrepPlace, LocalCopyEvent, LocalCopyOptions,
    LocalCopyReport, attribute_left, copy_local,
};
use sheaf_cli::output::json::Records;
use sheaf_cli::output::{Output, Palette, printable};
use sheaf_core::Errno;
use sheaf_core::files::{FileKind, Timestamp};
use sheaf_file::{Export, PathError};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Tag of requests to work.
pub const WORK: i32 = 3;

/// Bytes of one answer, about.
const ANSWER_BYTES: usize = 256 << 10;
/// Bytes that are passed on at once.
const PASSED_BYTES: usize = 64 << 10;
/// Files and directories to search that are open at once.
const OPEN_MAX: usize = 128;
/// What is found and not asked for yet, in pieces.
const PIECES_AHEAD: usize = 16;

/// What a host is asked for.
#[derive(Serialize, Deserialize)]
pub enum WorkRequest {
    /// To begin with this.
    Begin(HostWork),
    /// What else there is.
    More,
}

/// What a host does.
#[derive(Clone, Serialize, Deserialize)]
pub enum HostWork {
    /// Finds files.
    Find {
        /// Absolute paths, or patterns of them.
        paths: Vec<String>,
        tests: Vec<String>,
        now: Timestamp,
        json: bool,
        is_terminal: bool,
    },
    /// Copies files to other places of the host.
    Copy {
        /// Absolute paths, or patterns of them.
        sources: Vec<String>,
        to: PathBuf,
        options: LocalCopyOptions,
        /// Each source is told.
        says: bool,
    },
    /// Searches files for lines.
    Grep {
        /// Absolute paths, or patterns of them.
        paths: Vec<String>,
        options: ArchiveGrepOptions,
    },
}

/// What a host says.
#[derive(Default, Serialize, Deserialize)]
pub struct WorkAnswer {
    /// Whole lines.
    pub text: Vec<u8>,
    /// What is told of files.
    pub told: Vec<WorkTold>,
    /// There is no more.
    pub is_over: bool,
    /// A line is selected.
    pub is_selected: bool,
    /// What was copied.
    pub copied: LocalCopyReport,
}

/// What is told of a file.
#[derive(Debug, Serialize, Deserialize)]
pub enum WorkTold {
    /// Something about it could not be done.
    Failed(String),
    /// It is begun.
    Begun(String),
    /// It is no text, and has what is looked for.
    Binary(String),
}

/// What comes of the work.
enum WorkPiece {
    Text(Vec<u8>),
    Told(WorkTold),
    Over { is_selected: bool, copied: LocalCopyReport },
}

/// Nobody wants more.
struct Unwanted;

impl From<ArchiveError> for Unwanted {
    fn from(_: ArchiveError) -> Self {
        Self
    }
}

/// The work of a host for one root.
pub struct HostWorker {
    host: String,
    export: Export,
    pieces: Option<Receiver<WorkPiece>>,
}

impl HostWorker {
    pub fn new(host: &str, export: Export) -> Self {
        Self { host: host.to_owned(), export, pieces: None }
    }

    /// Answers within `patience`, with nothing if there is nothing until then.
    pub fn answer(&mut self, request: &[u8], patience: Duration) -> Result<Vec<u8>, Errno> {
        let request: WorkRequest = postcard::from_bytes(request).map_err(|_| Errno::BADMSG)?;
        if let WorkRequest::Begin(work) = request {
            let (to, pieces) = sync_channel(PIECES_AHEAD);
            self.pieces = Some(pieces);
            let worker = WorkThread { host: self.host.clone(), export: self.export.clone(), to };
            let thread = std::thread::Builder::new().name("archive-work".to_owned());
            thread.spawn(move || worker.work(&work)).map_err(|error| Errno::from_io(&error))?;
        }
        let answer = self.gathered(patience)?;
        postcard::to_allocvec(&answer).map_err(|_| Errno::NOMEM)
    }

    fn gathered(&mut self, patience: Duration) -> Result<WorkAnswer, Errno> {
        let pieces = self.pieces.as_ref().ok_or(Errno::INVAL)?;
        let (begun, mut answer) = (Instant::now(), WorkAnswer::default());
        let mut bytes = 0;
        while bytes < ANSWER_BYTES {
            match pieces.recv_timeout(patience.saturating_sub(begun.elapsed())) {
                Ok(WorkPiece::Text(text)) => {
                    bytes += text.len();
                    answer.text.extend_from_slice(&text);
                }
                Ok(WorkPiece::Told(told)) => {
                    bytes += 256;
                    answer.told.push(told);
                }
                Ok(WorkPiece::Over { is_selected, copied }) => {
                    (answer.is_over, answer.is_selected) = (true, is_selected);
                    answer.copied = copied;
                    self.pieces = None;
                    break;
                }
                Err(RecvTimeoutError::Timeout) => break,
                // It ended without a word.
                Err(RecvTimeoutError::Disconnected) => return Err(Errno::IO),
            }
        }
        Ok(answer)
    }
}

/// Who works.
struct WorkThread {
    host: String,
    export: Export,
    to: SyncSender<WorkPiece>,
}

/// Where a path leads within the export, and what keeps it open.
struct OpenStart {
    _open: Rc<OwnedFd>,
    path: PathBuf,
}

/// The directories above what was opened: names that a pattern stands for are often of one.
type DirectoriesAbove = HashMap<PathBuf, Rc<OwnedFd>>;

impl WorkThread {
    fn work(&self, work: &HostWork) {
        let mut copied = LocalCopyReport::default();
        let done = match work {
            HostWork::Find { paths, .. } => self.find(paths, work).map(|()| false),
            HostWork::Grep { paths, options } => self.grep(paths, options),
            HostWork::Copy { sources, to, options, says } => {
                self.copy(sources, to, *options, *says).map(|report| {
                    copied = report;
                    false
                })
            }
        };
        if let Ok(is_selected) = done {
            // Who does not wait for it knows.
            let _ = self.to.send(WorkPiece::Over { is_selected, copied });
        }
    }

    fn send(&self, piece: WorkPiece) -> Result<(), Unwanted> {
        self.to.send(piece).map_err(|_| Unwanted)
    }

    fn text(&self, text: &[u8]) -> Result<(), Unwanted> {
        text.chunks(PASSED_BYTES).try_for_each(|text| self.send(WorkPiece::Text(text.to_vec())))
    }

    fn failed(&self, text: impl Into<String>) -> Result<(), Unwanted> {
        self.send(WorkPiece::Told(WorkTold::Failed(text.into())))
    }

    /// The paths that are meant, those of each in their order, and how many could not be looked at, which are told.
    fn expanded(&self, said: &[String]) -> Result<(Vec<PathBuf>, u64), Unwanted> {
        let (mut paths, mut failed) = (Vec::new(), 0);
        for said in said {
            if !is_special(said) {
                paths.push(PathBuf::from(said));
                continue;
            }
            let found = self.export.expand(said);
            failed += found.errors.len() as u64;
            for PathError { path, errno } in found.errors {
                self.failed(format!("{}: {errno}", path.display()))?;
            }
            paths.extend(found.paths);
        }
        Ok((paths, failed))
    }

    /// Opens what a path leads to, or a link that it ends with.
    fn start(
        &self,
        path: &Path,
        follows: bool,
        above: &mut DirectoriesAbove,
    ) -> Result<OpenStart, Errno> {
        let open = |path: &Path, flags| -> Result<OwnedFd, Errno> {
            Ok(self.export.open_file(path, OFlags::PATH | flags, Mode::empty())?.into())
        };
        let place = |file: &OwnedFd| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) if !follows => {
                let file = match above.get(parent) {
                    Some(file) => file.clone(),
                    None => Rc::new(open(parent, OFlags::DIRECTORY)?),
                };
                above.entry(parent.to_owned()).or_insert_with(|| file.clone());
                Ok(OpenStart { path: place(&file).join(name), _open: file })
            }
            (_, None) if !follows => {
                let file = open(path, OFlags::DIRECTORY)?;
                Ok(OpenStart { path: place(&file).join("."), _open: Rc::new(file) })
            }
            _ => {
                let file = open(path, OFlags::empty())?;
                Ok(OpenStart { path: place(&file), _open: Rc::new(file) })
            }
        }
    }

    fn find(&self, said: &[String], work: &HostWork) -> Result<(), Unwanted> {
        let HostWork::Find { tests, now, json, is_terminal, .. } = work else { return Ok(()) };
        let expression = match self.expression(tests, *now, *is_terminal) {
            Ok(expression) => Arc::new(expression),
            Err(error) => return self.failed(error.to_string()),
        };
        let output = Output {
            json: *json,
            records: Records::default(),
            quiet: false,
            stdout: Palette::default(),
            stderr: Palette::default(),
            stdout_is_terminal: *is_terminal,
            stderr_is_terminal: false,
        };
        let (paths, _) = self.expanded(said)?;
        for path in &paths {
            // One is open at a time.
            let start = match self.start(path, false, &mut DirectoriesAbove::new()) {
                Ok(start) => start,
                Err(errno) => {
                    self.failed(format!("{}: {errno}", path.display()))?;
                    continue;
                }
            };
            let (host, told) = (Some(self.host.clone()), path.as_os_str().as_bytes());
            let find = LocalFind::new(expression.clone(), output, host, told);
            let has_quit = find.walk::<Unwanted>(&start.path, &mut |told| {
                self.text(&told.text)?;
                told.errors.into_iter().try_for_each(|error| self.failed(error))?;
                Ok(true)
            })?;
            if has_quit {
                break;
            }
        }
        Ok(())
    }

    fn expression(
        &self,
        tests: &[String],
        now: Timestamp,
        is_terminal: bool,
    ) -> Result<FindExpression, FindError> {
        let names = &ExportedNames { export: &self.export };
        let words = Arc::new(SystemWords::new(is_terminal));
        let expression = FindExpression::new(tests, &FindSettings { names, words, now })?;
        // Who asks has been given leave to look, not to remove.
        expression.check_hosts()?;
        Ok(expression)
    }

    fn copy(
        &self,
        said: &[String],
        to: &Path,
        options: LocalCopyOptions,
        says: bool,
    ) -> Result<LocalCopyReport, Unwanted> {
        let mut left_out = LocalCopyReport::default();
        let (mut opened, mut shown) = (Vec::new(), Vec::new());
        let (paths, failed) = self.expanded(said)?;
        left_out.failed += failed;
        let mut above = DirectoriesAbove::new();
        for path in &paths {
            match self.start(path, options.follows_named(), &mut above) {
                Ok(start) => opened.push((start, path)),
                Err(errno) => {
                    left_out.failed += 1;
                    self.failed(format!("{}: cannot be read: {errno}", path.display()))?;
                }
            }
        }
        drop(above);
        let target = match self.target(to, options.no_target_directory) {
            Ok(target) => target,
            Err(errno) => {
                left_out.failed += 1;
                self.failed(format!("{}: cannot be written: {errno}", to.display()))?;
                return Ok(left_out);
            }
        };
        shown.extend(opened.iter().map(|(start, path)| (start.path.clone(), (*path).clone())));
        shown.push((target.path.clone(), to.to_owned()));
        let told = |event: LocalCopyEvent<'_>| {
            let told = match event {
                LocalCopyEvent::Begin { from, to } if says => {
                    let (from, to) = (own_path(&shown, from), own_path(&shown, to));
                    WorkTold::Begun(format!("{} -> {}", from.display(), to.display()))
                }
                LocalCopyEvent::Begin { .. } | LocalCopyEvent::Copied { .. } => return,
                LocalCopyEvent::Failed(ArchiveError::File { path, doing, errno }) => {
                    let path = own_path(&shown, &path);
                    WorkTold::Failed(format!("{}: {doing}: {errno}", path.display()))
                }
                LocalCopyEvent::Failed(error) => WorkTold::Failed(error.to_string()),
                // Whether it is a failure stands in the report.
                LocalCopyEvent::AttributeLeft { path, name, errno } => {
                    WorkTold::Begun(attribute_left(&own_path(&shown, &path), &name, errno))
                }
            };
            // A copy that nobody waits for is done all the same.
            let _ = self.to.send(WorkPiece::Told(told));
        };
        let sources: Vec<PathBuf> = opened.iter().map(|(start, _)| start.path.clone()).collect();
        if sources.is_empty() {
            return Ok(left_out);
        }
        match copy_local(&sources, &target.path, options, &told) {
            Ok(report) => left_out += report,
            Err(error) => {
                left_out.failed += 1;
                let text = error.to_string();
                let text = text.split_once(": ").map_or("", |(_, text)| text);
                self.failed(format!("{}: {text}", to.display()))?;
            }
        }
        Ok(left_out)
    }

    /// Where a copy goes: a directory, or a name in one, which is no link.
    fn target(&self, to: &Path, no_target_directory: bool) -> Result<OpenStart, Errno> {
        let is_directory = self.export.stat(to).is_ok_and(|found| found.is_dir());
        if is_directory && !no_target_directory {
            return self.start(to, true, &mut DirectoriesAbove::new());
        }
        match self.export.lstat(to) {
            Ok(found) if found.kind == FileKind::Symlink => return Err(Errno::LOOP),
            _ => {}
        }
        self.start(to, false, &mut DirectoriesAbove::new())
    }

    fn grep(&self, said: &[String], options: &ArchiveGrepOptions) -> Result<bool, Unwanted> {
        let grep = match ArchiveGrep::new(options.clone()) {
            Ok(grep) => grep,
            Err(error) => return self.failed(error.to_string()).map(|()| false),
        };
        let (paths, _) = self.expanded(said)?;
        let mut is_selected = false;
        for paths in paths.chunks(OPEN_MAX) {
            is_selected |= self.grep_some(&grep, paths)?;
            if is_selected && options.output == ArchiveGrepOutput::Quiet {
                break;
            }
        }
        Ok(is_selected)
    }

    fn grep_some(&self, grep: &ArchiveGrep, paths: &[PathBuf]) -> Result<bool, Unwanted> {
        // Those are open as long as they are searched.
        let (mut places, mut open) = (Vec::new(), Vec::new());
        for path in paths {
            let shown = [self.host.as_bytes(), b":", path.as_os_str().as_bytes()].concat();
            match self.start(path, true, &mut DirectoriesAbove::new()) {
                Ok(start) => {
                    places.push(GrepPlace::LocalAs(start.path.clone(), shown));
                    open.push(start);
                }
                Err(errno) => {
                    self.failed(format!("{}: cannot be read: {errno}", path.display()))?;
                }
            }
        }
        let own = format!("{}:", self.host);
        let without_host = |text: &str| text.strip_prefix(&own).unwrap_or(text).to_owned();
        grep.search(&places, &mut |event| match event {
            GrepEvent::Output(text) => self.text(text),
            GrepEvent::Binary(path) => {
                let path = without_host(&String::from_utf8_lossy(path));
                self.send(WorkPiece::Told(WorkTold::Binary(path)))
            }
            GrepEvent::Failed(error) => self.failed(without_host(&error.to_string())),
            _ => Ok(()),
        })
    }
}

/// Owners as the host knows them, and files that it serves.
struct ExportedNames<'a> {
    export: &'a Export,
}

impl FindNames for ExportedNames<'_> {
    fn uid(&self, name: &str) -> Option<u32> {
        SystemNames.uid(name)
    }

    fn gid(&self, name: &str) -> Option<u32> {
        SystemNames.gid(name)
    }

    fn time(&self, text: &str) -> Option<Timestamp> {
        SystemNames.time(text)
    }

    fn time_of(&self, path: &str, which: FindTime) -> Option<Timestamp> {
        let found = self.export.lstat(Path::new(OsStr::new(path))).ok()?;
        Some(match which {
            FindTime::Accessed => found.atime,
            FindTime::Changed => found.ctime,
            FindTime::Modified => found.mtime,
        })
    }
}

/// The path of the host that is meant by one of what is open.
fn own_path(shown: &[(PathBuf, PathBuf)], path: &Path) -> PathBuf {
    let own = shown.iter().find_map(|(open, own)| {
        let below = path.strip_prefix(open).ok()?;
        Some(if below.as_os_str().is_empty() { own.clone() } else { own.join(below) })
    });
    own.unwrap_or_else(|| path.to_owned())
}

impl WorkTold {
    /// As it is told.
    pub fn text(&self) -> String {
        match self {
            Self::Failed(text) | Self::Begun(text) => text.clone(),
            Self::Binary(path) => format!("{}: binary file matches", printable(path)),
        }
    }
}
