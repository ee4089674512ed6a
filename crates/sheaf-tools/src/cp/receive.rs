//! A host takes in a copy: record after record, as they come.
use super::message::{Attrs, CopyRecord, PutParams, Totals, malformed, next_record};
use super::place::{Dir, DirId, LinkSource, Writer};
use crate::paths::directory_of;
use bytes::Bytes;
use sheaf_core::Errno;
use sheaf_file::{Attributes, FileIdentity, FileKind, Staged};
use sheaf_group::audit::Change;
use sheaf_group::entry::{Answer, AnswerForm, Entry, EntryKind, Sink};
use sheaf_group::tool::{Host, Reply, Running, Step, Tool};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most bytes of failures and of a dry run's lines that one host tells.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// How many directories are kept open while files are written beneath them.
const DIRS_HELD_MAX: usize = 32;

/// The most files with several names that are remembered.
const LINKED_FILES_MAX: usize = 1 << 20;

/// The leaf's side of [`put`](super::put::put).
pub(super) struct PutTool;

impl Tool for PutTool {
    fn change(&self, params: &[u8]) -> Option<Change> {
        let PutParams { destination, options, .. } = postcard::from_bytes(params).ok()?;
        (!options.dry_run).then(|| Change::new("cp", [destination]))
    }

    fn start(&self, params: &[u8], host: &Host) -> Result<Box<dyn Running>, Errno> {
        let params: PutParams = postcard::from_bytes(params).map_err(|_| Errno::PROTO)?;
        let writer = Writer::new(&host.export, &params.options);
        Ok(Box::new(Receiver::new(params, writer)))
    }
}

/// A copy on its way in.
struct Receiver {
    destination: PathBuf,
    dry_run: bool,
    /// The destination is a directory that sources come into.
    is_into: bool,
    /// The destination is the very name, also where it is a link.
    is_exact: bool,
    /// Why the destination can become nothing but a directory: it ends with a slash, and this is
    /// there.
    no_dir: Option<Errno>,
    /// Why nothing can be written at all.
    refused: Option<Errno>,
    writer: Option<Writer>,
    /// Where each source went.
    bases: Vec<PathBuf>,
    /// What the present one is called, and where it is, if it is of this machine.
    source_name: Vec<u8>,
    source_dir: Option<PathBuf>,
    file: Option<Incoming>,
    /// Files that are written in place and did not get all, with the bytes they got.
    cut: Vec<(PathBuf, u64)>,
    /// The directories above the present path, outermost first.
    dirs: Vec<OpenDir>,
    /// What is beneath this path is passed over: its directory failed.
    skipped: Option<Vec<u8>>,
    /// Files that failed and that others may be linked to.
    failed_links: HashMap<(u32, Vec<u8>), Errno>,
    /// Files that were written and that others may be linked to.
    linked: HashMap<(u32, Vec<u8>), (u64, u64)>,
    answer: Answer,
    totals: Totals,
    is_complete: bool,
}

/// The file that is coming in.
struct Incoming {
    relative: Vec<u8>,
    path: PathBuf,
    attrs: Attrs,
    is_linked: bool,
    staged: Staged,
}

struct OpenDir {
    relative: Vec<u8>,
    path: PathBuf,
    closing: Option<Attributes>,
    /// A dry run only imagines it.
    is_imagined: bool,
    held: HeldWriter,
}

/// The descriptor of a directory that is being filled.
enum HeldWriter {
    /// A dry run looks up each path.
    Nothing,
    Open(Writer),
    /// Closed while directories far beneath are filled, to be opened again if it is still this one.
    Closed(DirId),
}

impl Receiver {
    fn new(params: PutParams, writer: Result<Writer, Errno>) -> Self {
        let PutParams { destination, into, options } = params;
        let destination =
            PathBuf::from(if destination.is_empty() { ".".to_owned() } else { destination });
        let (mut writer, mut refused) = match writer {
            Ok(writer) => (Some(writer), None),
            Err(errno) => (None, Some(errno)),
        };
        let there = writer.as_ref().map(|writer| writer.export.stat(&destination));
        let is_dir = matches!(&there, Some(Ok(metadata)) if metadata.is_dir());
        let no_dir = match there {
            _ if is_dir => None,
            Some(Err(errno)) => Some(errno),
            _ => Some(Errno::NOTDIR),
        };
        if into {
            refused = refused.or(no_dir);
        }
        let is_into = is_dir && !options.exact_name;
        if let Some(writer) = &mut writer {
            // All that is copied comes into this very directory, or is made in it. What cannot be
            // made where there is none fails by itself.
            let dir = if is_into { &destination } else { directory_of(&destination) };
            match writer.hold(dir, true) {
                // Nobody has typed the names of what comes into it.
                Ok(held) => *writer = if is_into { held.within_tree() } else { held },
                Err(errno) if is_into => refused = refused.or(Some(errno)),
                Err(_) => {}
            }
        }
        let is_slashed = destination.as_os_str().as_bytes().ends_with(b"/");
        let mut answer = Answer::with_limit(AnswerForm::default(), ANSWER_BYTES_MAX);
        answer.of_member(destination.as_os_str().as_bytes());
        Self {
            destination,
            dry_run: options.dry_run,
            is_into,
            is_exact: options.exact_name,
            no_dir: no_dir.filter(|_| is_slashed),
            refused,
            writer,
            bases: Vec::new(),
            source_name: Vec::new(),
            source_dir: None,
            file: None,
            cut: Vec::new(),
            dirs: Vec::new(),
            skipped: None,
            failed_links: HashMap::new(),
            linked: HashMap::new(),
            answer,
            totals: Totals::default(),
            is_complete: false,
        }
    }

    fn take(&mut self, record: CopyRecord, data: &[u8]) {
        match record {
            CopyRecord::Source { name } => self.source(&name),
            CopyRecord::SourceDir { machine, path } => {
                let is_here = sheaf_core::boot_id() == Some(machine);
                let path = PathBuf::from(OsStr::from_bytes(&path));
                self.source_dir = Some(path).filter(|path| is_here && path.is_absolute());
            }
            CopyRecord::Data { offset, .. } => self.data(offset, data),
            CopyRecord::FileEnd { size, digest } => self.file_end(size, &digest),
            CopyRecord::FileAbort => self.drop_file(),
            CopyRecord::End => {
                self.leave_dirs(None);
                self.is_complete = true;
            }
            CopyRecord::Dir { path, attrs, source } => {
                if let Some(place) = self.enter(&path) {
                    self.dir(path, place, &attrs, source.as_ref());
                }
            }
            CopyRecord::File { path, attrs, linked, source, .. } => {
                if let Some(place) = self.enter_file(&path) {
                    self.begin_file(path, place, attrs, linked, source.as_ref());
                }
            }
            CopyRecord::Symlink { path, target, attrs, linked } => {
                let source =
                    LinkSource::beneath(self.source_dir.as_deref(), &self.source_name, &path);
                self.link(path, linked, |writer, place| {
                    writer.symlink(place, &target, &attrs, &source)
                });
            }
            CopyRecord::Node { path, kind, rdev, attrs, linked } => {
                self.link(path, linked, |writer, place| writer.node(place, kind, rdev, &attrs));
            }
            CopyRecord::Hardlink { path, source, target } => self.hard_link(path, source, target),
        }
    }

    fn source(&mut self, name: &[u8]) {
        self.leave_dirs(None);
        self.drop_file();
        self.skipped = None;
        (self.source_name, self.source_dir) = (name.to_vec(), None);
        let name = OsStr::from_bytes(name);
        let inside = self.is_into && !name.is_empty();
        self.bases.push(if inside {
            self.destination.join(name)
        } else {
            self.destination.clone()
        });
    }

    /// The place of a path of the present source, unless it is passed over.
    fn enter(&mut self, relative: &[u8]) -> Option<PathBuf> {
        self.drop_file();
        if self.refused.is_some()
            || self.skipped.as_ref().is_some_and(|dir| is_beneath(relative, dir))
        {
            return None;
        }
        self.skipped = None;
        self.leave_dirs(Some(relative));
        // A directory that is another one by now takes nothing.
        if self.skipped.is_some() {
            return None;
        }
        Some(place(self.bases.last()?, relative))
    }

    /// Writes into the present directory.
    fn writer(&self) -> Option<&Writer> {
        match self.dirs.last() {
            Some(OpenDir { held: HeldWriter::Open(writer), .. }) => Some(writer),
            _ => self.writer.as_ref(),
        }
    }

    /// The place of what is no directory.
    fn enter_file(&mut self, relative: &[u8]) -> Option<PathBuf> {
        let place = self.enter(relative)?;
        let Some(errno) = self.no_dir.filter(|_| relative.is_empty()) else { return Some(place) };
        self.fail(&place, errno);
        None
    }

    /// Closes the directories that `next` is not in.
    fn leave_dirs(&mut self, next: Option<&[u8]>) {
        while let Some(dir) =
            self.dirs.pop_if(|dir| !next.is_some_and(|next| is_beneath(next, &dir.relative)))
        {
            // A directory gets these last: each file that is written in it changes its times.
            if let (Some(attributes), HeldWriter::Open(writer)) = (dir.closing, dir.held)
                && let Err(errno) = writer.close_dir(&dir.path, attributes)
            {
                self.fail(&dir.path, errno);
            }
            self.reopen();
        }
    }

    /// Opens the present directory again if it was closed.
    fn reopen(&mut self) {
        let Some(writer) = &self.writer else { return };
        let Some(OpenDir { held, path, relative, closing, .. }) = self.dirs.last_mut() else {
            return;
        };
        let HeldWriter::Closed(id) = held else { return };
        match writer.hold_again(path, *id) {
            Ok(writer) => *held = HeldWriter::Open(writer.within_tree()),
            Err(errno) => {
                (*held, *closing) = (HeldWriter::Nothing, None);
                let (path, relative) = (path.clone(), relative.clone());
                self.fail(&path, errno);
                self.skipped = Some(relative);
            }
        }
    }

    /// Goes into a directory that is there now.
    fn push_dir(&mut self, dir: OpenDir) {
        self.dirs.push(dir);
        let Some(far) = self.dirs.len().checked_sub(DIRS_HELD_MAX + 1) else { return };
        let OpenDir { held, path, .. } = &mut self.dirs[far];
        if let HeldWriter::Open(writer) = held
            && let Ok(id) = writer.dir_id(path)
        {
            *held = HeldWriter::Closed(id);
        }
    }

    fn dir(
        &mut self,
        relative: Vec<u8>,
        path: PathBuf,
        attrs: &Attrs,
        source: Option<&FileIdentity>,
    ) {
        let Some(writer) = self.writer() else { return };
        let named = relative.is_empty() && !self.is_exact && path == self.destination;
        let apart = writer.check_tree(&path, source);
        if self.dry_run {
            let is_imagined = self.is_imagined();
            let plan = apart.and_then(|()| match is_imagined {
                true => Ok(&b"create"[..]),
                false => writer.plan_dir(&path, named),
            });
            let is_imagined = matches!(plan, Ok(b"create"));
            self.report(&path, plan);
            self.totals.dirs += u64::from(is_imagined);
            let held = HeldWriter::Nothing;
            match plan {
                Ok(_) => {
                    self.push_dir(OpenDir { relative, path, closing: None, is_imagined, held });
                }
                Err(_) => self.skipped = Some(relative),
            }
            return;
        }
        match apart.and_then(|()| writer.make_dir(&path, attrs, named)) {
            Ok(Dir { writer, closing, is_new }) => {
                self.totals.dirs += u64::from(is_new);
                let held = HeldWriter::Open(writer);
                self.push_dir(OpenDir { relative, path, closing, is_imagined: false, held });
            }
            Err(errno) => {
                self.fail(&path, errno);
                self.skipped = Some(relative);
            }
        }
    }

    fn begin_file(
        &mut self,
        relative: Vec<u8>,
        path: PathBuf,
        attrs: Attrs,
        is_linked: bool,
        source: Option<&FileIdentity>,
    ) {
        let Some(writer) = self.writer() else { return };
        if self.dry_run {
            return match writer.check_link(&path).and(writer.check_file(&path, source)) {
                Ok(()) => self.imagine(&path),
                Err(errno) => self.fail(&path, errno),
            };
        }
        match writer.begin(&path, &attrs, false, source) {
            Ok(staged) => self.file = Some(Incoming { relative, path, attrs, is_linked, staged }),
            Err(errno) => self.fail_file(relative, &path, is_linked, errno),
        }
    }

    fn data(&mut self, offset: u64, data: &[u8]) {
        let Some(file) = &mut self.file else { return };
        if let Err(errno) = file.staged.write_at(offset, data)
            && let Some(file) = self.file.take()
        {
            self.cut.extend(file.cut());
            let Incoming { relative, path, is_linked, .. } = file;
            self.fail_file(relative, &path, is_linked, errno);
        }
    }

    /// Gives up the file that is coming in: what was written in place stays.
    fn drop_file(&mut self) {
        self.cut.extend(self.file.take().and_then(|file| file.cut()));
    }

    fn file_end(&mut self, size: u64, digest: &[u8; 32]) {
        let Some(file) = self.file.take() else { return };
        let Some(writer) = self.writer() else { return };
        let cut = file.cut();
        let Incoming { relative, path, attrs, is_linked, mut staged } = file;
        // A hole at the end is in no piece.
        let extended = if size > staged.size() { staged.extend(size) } else { Ok(()) };
        // The digest is that of the source. A file with other contents does not get its name.
        match extended.and_then(|()| writer.finish(staged, &attrs, digest)) {
            Ok(written) => {
                // What an earlier try left in part is whole now.
                self.cut.retain(|(cut, _)| *cut != path);
                self.totals.files += 1;
                self.totals.bytes += size;
                let key = (self.bases.len() as u32 - 1, relative);
                if is_linked && written.kind != FileKind::File {
                    // What was written into a device that is there has no other names.
                    self.failed_links.insert(key, Errno::EXIST);
                } else if is_linked && self.linked.len() < LINKED_FILES_MAX {
                    self.linked.insert(key, written.id());
                }
            }
            Err(errno) => {
                self.cut.extend(cut);
                self.fail_file(relative, &path, is_linked, errno);
            }
        }
    }

    fn hard_link(&mut self, path: Vec<u8>, source: u32, target: Vec<u8>) {
        let Some(base) = self.bases.get(source as usize) else {
            return;
        };
        let file = place(base, &target);
        let key = (source, target);
        let failed = self.failed_links.get(&key).copied();
        let expected = self.linked.get(&key).copied();
        // It was not made, and what has its name is anything.
        let is_unknown = expected.is_none() && self.linked.len() < LINKED_FILES_MAX;
        self.link(path, false, |writer, place| match failed {
            // What has the name there is not what was to be linked to.
            Some(errno) => Err(errno),
            None if is_unknown => Err(Errno::NOENT),
            None => writer.hard_link(&file, place, expected),
        });
    }

    fn link(
        &mut self,
        path: Vec<u8>,
        is_linked: bool,
        make: impl FnOnce(&Writer, &Path) -> Result<(u64, u64), Errno>,
    ) {
        let Some(place) = self.enter_file(&path) else { return };
        if self.dry_run {
            return self.imagine(&place);
        }
        match self.writer().map(|writer| make(writer, &place)) {
            Some(Ok(id)) => {
                self.totals.links += 1;
                // Another name is one of this, and of nothing that takes its place.
                if is_linked && self.linked.len() < LINKED_FILES_MAX {
                    self.linked.insert((self.bases.len() as u32 - 1, path), id);
                }
            }
            Some(Err(errno)) => self.fail_file(path, &place, is_linked, errno),
            None => {}
        }
    }

    /// Tells what would become of a path that is no directory.
    fn imagine(&mut self, path: &Path) {
        let Some(writer) = self.writer() else { return };
        let plan = if self.is_imagined() { Ok(&b"create"[..]) } else { writer.plan(path) };
        self.totals.files += u64::from(plan.is_ok());
        self.report(path, plan);
    }

    /// Whether the present directory is one that a dry run would have made.
    fn is_imagined(&self) -> bool {
        self.dirs.last().is_some_and(|dir| dir.is_imagined)
    }

    fn report(&mut self, path: &Path, plan: Result<&'static [u8], Errno>) {
        match plan {
            Ok(text) => {
                self.answer.path(path.as_os_str().as_bytes());
                // Beyond its limit the answer says so itself.
                let _ = self.answer.entry(Entry::new(EntryKind::Line, text));
            }
            Err(errno) => self.fail(path, errno),
        }
    }

    fn fail_file(&mut self, relative: Vec<u8>, path: &Path, is_linked: bool, errno: Errno) {
        if is_linked {
            self.failed_links.insert((self.bases.len() as u32 - 1, relative), errno);
        }
        self.fail(path, errno);
    }

    fn fail(&mut self, path: &Path, errno: Errno) {
        self.totals.failed += 1;
        self.answer.error(path.as_os_str().as_bytes(), errno);
    }
}

impl Running for Receiver {
    fn changed(&self) -> Vec<String> {
        self.bases.iter().map(|base| base.to_string_lossy().into_owned()).collect()
    }

    fn feed(&mut self, data: Bytes, host: &Host) {
        let mut input = &data[..];
        while !host.should_stop() {
            match next_record(&mut input).map_err(malformed) {
                Ok(Some((record, data))) => self.take(record, data),
                Ok(None) => return,
                Err(errno) => {
                    self.refused.get_or_insert(errno);
                    break;
                }
            }
        }
        self.drop_file();
    }

    fn step(&mut self, answer: &mut Reply, _: &Host) -> Step {
        self.drop_file();
        if !self.is_complete {
            self.refused.get_or_insert(Errno::CANCELED);
        }
        if let Some(errno) = self.refused {
            let destination = self.destination.clone();
            self.fail(&destination, errno);
        }
        self.say(answer);
        Step::Done
    }

    fn so_far(&mut self, answer: &mut Reply, is_over: bool) {
        if is_over {
            self.drop_file();
            self.say(answer);
        }
    }
}

impl Receiver {
    /// Says what was done, and what went wrong since it was last said.
    fn say(&mut self, answer: &mut Reply) {
        for (path, bytes) in self.cut.drain(..) {
            self.answer.path(path.as_os_str().as_bytes());
            let _ = self.answer.entry(Entry::new(EntryKind::Part, bytes.to_string().as_bytes()));
        }
        let totals = postcard::to_stdvec(&self.totals).expect("numbers can be serialised");
        self.answer.path(self.destination.as_os_str().as_bytes());
        // Without room for the totals there is at least one error, which is what counts.
        let _ = self.answer.entry(Entry::new(EntryKind::Count, &totals));
        *answer =
            Reply::Entries(std::mem::replace(&mut self.answer, Answer::new(AnswerForm::default())));
    }
}

impl Incoming {
    /// It with the bytes that it got, if it is not as it was.
    fn cut(&self) -> Option<(PathBuf, u64)> {
        self.staged.is_direct().then(|| (self.path.clone(), self.staged.size()))
    }
}

/// Whether `path` is `dir` itself or in it; everything is in the source itself.
fn is_beneath(path: &[u8], dir: &[u8]) -> bool {
    dir.is_empty() || path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

fn place(base: &Path, relative: &[u8]) -> PathBuf {
    if relative.is_empty() { base.to_owned() } else { base.join(OsStr::from_bytes(relative)) }
}
