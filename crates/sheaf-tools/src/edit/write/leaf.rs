//! A host writes what is sent to it.
use super::WriteWay;
use crate::edit::EditOptions;
use crate::edit::leaf::{rounded, say_count};
use crate::paths::FORM;
use bytes::Bytes;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_file::{
    Attributes, Digest, FileIdentity, FileKind, Globbed, Mode, OFlags, StageOptions, Staged,
};
use sheaf_group::audit::Change;
use sheaf_group::entry::{Answer, Entry, EntryKind, EntryStats, Sink};
use sheaf_group::tool::{Host, Reply, Running, Step, Tool};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Name of the tool.
pub const NAME: &str = "write";

/// What every leaf is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct WriteParams {
    /// Paths and patterns beneath the export.
    pub paths: Vec<String>,
    pub way: WriteWay,
    pub create: bool,
    /// No file may exist; asked in dry runs alone.
    pub exclusive: bool,
    pub mode: u32,
    pub options: EditOptions,
    /// The file that the bytes come from: nothing is written into it while it is read.
    pub source: Option<FileIdentity>,
}

/// What is sent to every host.
#[derive(Debug, Serialize, Deserialize)]
pub enum WritePart<'a> {
    /// The next bytes.
    Data(&'a [u8]),
    /// Those were all. Without this, nothing is complete.
    End { size: u64, digest: &'a [u8] },
}

pub struct WriteTool;

impl Tool for WriteTool {
    fn change(&self, params: &[u8]) -> Option<Change> {
        let WriteParams { paths, options, .. } = postcard::from_bytes(params).ok()?;
        (!options.dry_run).then(|| Change::new(NAME, paths))
    }

    fn start(&self, params: &[u8], host: &Host) -> Result<Box<dyn Running>, Errno> {
        let params: WriteParams = postcard::from_bytes(params).map_err(|_| Errno::PROTO)?;
        let mut writing = Writing {
            files: VecDeque::new(),
            failures: Vec::new(),
            size: 0,
            end: None,
            planned: VecDeque::new(),
            changed: 0,
            params,
        };
        writing.begin(host);
        Ok(Box::new(writing))
    }
}

/// A write on its way in.
struct Writing {
    params: WriteParams,
    files: VecDeque<Writable>,
    failures: Vec<WriteFailure>,
    /// Bytes that have come.
    size: u64,
    /// The digest of all of them, once they are known to be all.
    end: Option<Digest>,
    /// What a dry run says of each path.
    planned: VecDeque<(PathBuf, &'static str)>,
    changed: u64,
}

/// A file that is being written.
struct Writable {
    path: PathBuf,
    is_new: bool,
    to: WrittenTo,
    /// Bytes that the file itself has got.
    written: u64,
}

/// A path that failed.
struct WriteFailure {
    path: PathBuf,
    errno: Errno,
    /// How many bytes the file got before, if it is not as it was.
    written: Option<u64>,
}

impl WriteFailure {
    fn untouched(path: PathBuf, errno: Errno) -> Self {
        Self { path, errno, written: None }
    }

    /// A file is given up.
    fn of(file: Writable, errno: Errno, way: WriteWay) -> Self {
        Self { written: file.cut(way), path: file.path, errno }
    }

    /// The bytes come before the error, as a number at the path.
    fn say(&self, answer: &mut Answer) {
        say_cut(&self.path, self.written, answer);
        answer.error(self.path.as_os_str().as_bytes(), self.errno);
    }
}

fn say_cut(path: &Path, written: Option<u64>, answer: &mut Answer) {
    if let Some(written) = written {
        answer.path(path.as_os_str().as_bytes());
        let _ = answer.entry(Entry::new(EntryKind::Count, written.to_string().as_bytes()));
    }
}

impl Writable {
    /// How many bytes it got, if it is not as it was.
    fn cut(&self, way: WriteWay) -> Option<u64> {
        let written = match &self.to {
            WrittenTo::File(_) => self.written,
            WrittenTo::Staged(staged) if staged.is_direct() => staged.size(),
            WrittenTo::Staged(_) => return None,
        };
        (self.is_new || way == WriteWay::InPlace || written > 0).then_some(written)
    }
}

enum WrittenTo {
    Staged(Box<Staged>),
    File(File),
}

impl Writing {
    fn begin(&mut self, host: &Host) {
        let mut named = FxHashSet::default();
        for pattern in std::mem::take(&mut self.params.paths) {
            let Globbed { paths, errors } = if self.params.create || self.params.exclusive {
                host.expand_new(&pattern)
            } else {
                host.expand(&pattern)
            };
            let failures =
                errors.into_iter().map(|error| WriteFailure::untouched(error.path, error.errno));
            self.failures.extend(failures);
            for path in paths {
                if !named.insert(path.clone()) {
                    continue;
                }
                if self.params.options.dry_run {
                    match self.plan(&path, host) {
                        Ok(plan) => self.planned.push_back((path, plan)),
                        Err(errno) => self.failures.push(WriteFailure::untouched(path, errno)),
                    }
                    continue;
                }
                match self.open(&path, host) {
                    Ok((is_new, to)) => {
                        self.files.push_back(Writable { path, is_new, to, written: 0 })
                    }
                    Err(errno) => self.failures.push(WriteFailure::untouched(path, errno)),
                }
            }
        }
    }

    /// The kind of the file at a path; none if there is none and one may be made.
    fn kind(&self, path: &Path, host: &Host) -> Result<Option<FileKind>, Errno> {
        match host.export.stat(path) {
            Ok(there) if there.is_dir() => Err(Errno::ISDIR),
            Ok(there) => Ok(Some(there.kind)),
            Err(Errno::NOENT) if self.params.create || self.params.exclusive => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Refuses to write into the file that is being read.
    fn check_source(&self, path: &Path, host: &Host) -> Result<(), Errno> {
        let Some(source) = self.params.source.as_ref() else { return Ok(()) };
        // A file that is replaced whole is read to its end before.
        if self.params.way == WriteWay::Replace {
            return Ok(());
        }
        match host.export.find(path, true) {
            Ok(there) if source.is(&there)? => Err(Errno::SAMEFILE),
            _ => Ok(()),
        }
    }

    fn open(&self, path: &Path, host: &Host) -> Result<(bool, WrittenTo), Errno> {
        let kind = self.kind(path, host)?;
        self.check_source(path, host)?;
        let is_stream = kind.is_some_and(|kind| kind != FileKind::File);
        // To open a pipe without a reader fails at once instead of waiting for one.
        let mut flags = OFlags::WRONLY | OFlags::NONBLOCK;
        flags |= match self.params.way {
            WriteWay::At(_) => OFlags::empty(),
            WriteWay::Append if !is_stream => OFlags::APPEND,
            WriteWay::InPlace if !is_stream => OFlags::TRUNC,
            // A pipe or device takes its bytes in order, whatever it is called.
            WriteWay::Replace | WriteWay::Append | WriteWay::InPlace => {
                let options = StageOptions { mode: self.params.mode, ..StageOptions::default() };
                return Ok((
                    kind.is_none(),
                    WrittenTo::Staged(Box::new(Staged::create(&host.export, path, options)?)),
                ));
            }
        };
        if self.params.create {
            flags |= OFlags::CREATE;
        }
        let file = host.export.open_file(path, flags, Mode::from_raw_mode(self.params.mode))?;
        Ok((kind.is_none(), WrittenTo::File(file)))
    }

    /// What would be done with a path.
    fn plan(&self, path: &Path, host: &Host) -> Result<&'static str, Errno> {
        let Some(kind) = self.kind(path, host)? else {
            // The directory has to be there.
            let above = path.parent().filter(|above| !above.as_os_str().is_empty());
            return match host.export.stat(above.unwrap_or(Path::new("."))) {
                Ok(above) if above.is_dir() => Ok("would be created"),
                Ok(_) => Err(Errno::NOTDIR),
                Err(errno) => Err(errno),
            };
        };
        if self.params.exclusive {
            return Err(Errno::EXIST);
        }
        self.check_source(path, host)?;
        if kind == FileKind::File {
            host.export.open_file(path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty())?;
        }
        Ok(match self.params.way {
            WriteWay::Replace if kind == FileKind::File => "would be replaced",
            WriteWay::Append => "would be appended to",
            WriteWay::Replace | WriteWay::InPlace | WriteWay::At(_) => "would be written",
        })
    }

    fn data(&mut self, data: &[u8], host: &Host) {
        let way = self.params.way;
        for mut file in std::mem::take(&mut self.files) {
            if host.should_stop() {
                self.failures.push(WriteFailure::of(file, Errno::CANCELED, way));
                continue;
            }
            let done = match &mut file.to {
                WrittenTo::Staged(staged) => staged.write_at(self.size, data),
                WrittenTo::File(to) => write_all(data, &mut file.written, |rest, done| match way {
                    WriteWay::At(offset) => to.write_at(rest, offset.saturating_add(done)),
                    _ => to.write(rest),
                }),
            };
            match done {
                Ok(()) => self.files.push_back(file),
                Err(errno) => self.failures.push(WriteFailure::of(file, errno, way)),
            }
        }
        self.size += data.len() as u64;
    }

    /// Gives a file its name, once all is written. Says what was done.
    fn finish(&mut self, file: Writable) -> Result<String, Errno> {
        let Some(digest) = &self.end else { return Err(Errno::CANCELED) };
        let is_staged = matches!(file.to, WrittenTo::Staged(_));
        match file.to {
            WrittenTo::Staged(staged) => {
                staged.commit(&Attributes::default(), Some(digest))?;
            }
            // What the disk does not take is told while somebody hears it.
            WrittenTo::File(file) => sheaf_file::sync(&file)?,
        }
        let bytes = self.size;
        Ok(match self.params.way {
            _ if file.is_new => format!("created with {bytes} bytes"),
            WriteWay::Replace if is_staged => format!("replaced with {bytes} bytes"),
            WriteWay::Append => format!("{bytes} bytes appended"),
            WriteWay::At(offset) => format!("{bytes} bytes written at {offset}"),
            WriteWay::Replace | WriteWay::InPlace => format!("{bytes} bytes written"),
        })
    }

    fn say(&mut self, path: &Path, text: &str, answer: &mut Answer) {
        self.changed += 1;
        answer.stats(EntryStats { members: 1, ..EntryStats::default() });
        if self.params.options.verbose || self.params.options.dry_run {
            answer.path(path.as_os_str().as_bytes());
            let _ = answer.entry(Entry::new(EntryKind::Line, text.as_bytes()));
        }
    }
}

/// Writes `data` behind the `written` bytes that are there, and counts on, also where it fails.
fn write_all(
    mut data: &[u8],
    written: &mut u64,
    mut write: impl FnMut(&[u8], u64) -> std::io::Result<usize>,
) -> Result<(), Errno> {
    while !data.is_empty() {
        match write(data, *written) {
            Ok(0) => return Err(Errno::IO),
            Ok(bytes) => {
                *written += bytes as u64;
                data = &data[bytes..];
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

impl Running for Writing {
    fn feed(&mut self, data: Bytes, host: &Host) {
        match postcard::from_bytes(&data) {
            Ok(WritePart::Data(data)) if self.end.is_none() => self.data(data, host),
            Ok(WritePart::End { size, digest }) if size == self.size => {
                self.end = Some(Digest(digest.to_vec()))
            }
            // What is not understood is not all there is: nothing gets its name.
            _ => {
                let way = self.params.way;
                let given_up =
                    self.files.drain(..).map(|file| WriteFailure::of(file, Errno::PROTO, way));
                self.failures.extend(given_up);
            }
        }
    }

    fn step(&mut self, answer: &mut Reply, _: &Host) -> Step {
        let answer = answer.entries_with(FORM);
        if let Some(failure) = self.failures.pop() {
            failure.say(answer);
            return Step::More;
        }
        if let Some((path, plan)) = self.planned.pop_front() {
            self.say(&path, plan, answer);
            return Step::More;
        }
        if let Some(file) = self.files.pop_front() {
            let path = file.path.clone();
            match self.finish(file) {
                Ok(text) => self.say(&path, &text, answer),
                Err(errno) => answer.error(path.as_os_str().as_bytes(), errno),
            }
            return Step::More;
        }
        say_count(self.changed, answer);
        Step::Done
    }

    /// A file that was not finished is told with its bytes, and without an error: it did not fail.
    fn so_far(&mut self, answer: &mut Reply, is_over: bool) {
        let answer = answer.entries_with(FORM);
        if is_over {
            let way = self.params.way;
            self.failures.drain(..).for_each(|failure| failure.say(answer));
            self.files.drain(..).for_each(|file| say_cut(&file.path, file.cut(way), answer));
        }
        say_count(if is_over { self.changed } else { rounded(self.changed) }, answer);
    }
}
