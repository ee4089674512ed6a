//! `sha -c`: files compared with a list of digests.
//!
//! A host reads the list line by line and says for each file whether it is as the list says; the
//! list is the path of what it says, so that the order is the list's. Nothing of a list is kept but
//! the line at hand, however long it is.
use crate::paths::PerPath;
use line::{CheckLine, Form};
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_file::Algorithm;
use sheaf_group::Outcome;
use sheaf_group::entry::{Answer, Entry, EntryKind, EntryStats, Merged, Sink};
use sheaf_group::tool::Host;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

mod line;

/// Lists that have no line in the form of the wanted digest fail with this.
pub const NO_LINE: Errno = Errno::NOMSG;

/// Lists of whose files not one is there fail with this, where those may be missing.
pub const NO_FILE: Errno = Errno::NODATA;

/// The longest line of a list: the longest path, each byte of it escaped, and a digest fit.
const LINE_BYTES_MAX: usize = 16 << 10;

/// How lists are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckOptions {
    /// What the digests are.
    pub algorithm: Algorithm,
    /// Files that are missing are passed over.
    pub ignore_missing: bool,
    /// Each line that is improperly formatted is named.
    pub warn: bool,
}

/// What is said of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked<'a> {
    /// A file, and what became of it.
    File(CheckVerdict, &'a [u8]),
    /// So many lines are improperly formatted.
    Malformed(u64),
    /// The line of this number is improperly formatted.
    MalformedLine(u64),
}

/// What became of a file of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckVerdict {
    /// Its digest is that of the list.
    Same,
    /// Its digest is another.
    Differs,
    /// It could not be read, for this reason.
    Unread(Errno),
}

impl CheckVerdict {
    /// As `sha256sum -c` says it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Same => "OK",
            Self::Differs => "FAILED",
            Self::Unread(_) => "FAILED open or read",
        }
    }

    /// What is in front of the path. The error goes with its file: were it told by itself, it would
    /// part the list's entries, and their order would be lost.
    fn head(self) -> Vec<u8> {
        match self {
            Self::Same => b"=".to_vec(),
            Self::Differs => b"!".to_vec(),
            Self::Unread(errno) => format!("{}\0", errno.0).into_bytes(),
        }
    }

    fn split(text: &[u8]) -> Option<(Self, &[u8])> {
        match text {
            [b'=', path @ ..] => Some((Self::Same, path)),
            [b'!', path @ ..] => Some((Self::Differs, path)),
            _ => {
                let end = text.iter().position(|&byte| byte == 0)?;
                let errno = std::str::from_utf8(&text[..end]).ok()?.parse().ok()?;
                Some((Self::Unread(Errno(errno)), &text[end + 1..]))
            }
        }
    }
}

impl<'a> Checked<'a> {
    /// Reads an entry of [`ReportChoice::Check`](super::ReportChoice::Check). What no host says is
    /// `None`.
    #[must_use]
    pub fn read(entry: &Entry<'a>) -> Option<Self> {
        match entry.kind {
            EntryKind::Line if entry.text.first() == Some(&b'?') => {
                let number = std::str::from_utf8(&entry.text[1..]).ok()?.parse().ok()?;
                Some(Self::MalformedLine(number))
            }
            EntryKind::Line => {
                CheckVerdict::split(entry.text).map(|(verdict, path)| Self::File(verdict, path))
            }
            EntryKind::Count => {
                Some(Self::Malformed(std::str::from_utf8(entry.text).ok()?.parse().ok()?))
            }
            _ => None,
        }
    }
}

/// Counts files that could not be read as failed.
pub(super) fn add_unread(merged: &Merged, outcome: &mut Outcome) {
    for entry in merged.sorted() {
        let (path, errno) = match Checked::read(&entry.entry) {
            Some(Checked::File(CheckVerdict::Unread(errno), path)) => (path, errno),
            // What a host says and nobody can read is no verdict.
            None if matches!(entry.entry.kind, EntryKind::Line | EntryKind::Count) => {
                (entry.path, Errno::BADMSG)
            }
            _ => continue,
        };
        outcome.add_path_error(errno, &String::from_utf8_lossy(path), entry.leaves.clone());
    }
}

pub(super) struct Checks {
    options: CheckOptions,
    list: Option<List>,
}

/// A list that is being read.
struct List {
    path: PathBuf,
    reader: BufReader<File>,
    form: Form,
    /// The line at hand, without its end.
    line: Vec<u8>,
    line_number: u64,
    proper: u64,
    malformed: u64,
    verified: u64,
}

impl Checks {
    pub fn new(options: CheckOptions) -> Self {
        Self { options, list: None }
    }
}

impl PerPath for Checks {
    fn counts_paths(&self) -> bool {
        // It is the files that are counted, not their lists.
        false
    }

    fn begin(&mut self, path: &Path, _: &mut Answer, host: &Host) -> Result<(), Errno> {
        let reader = BufReader::new(host.export.open_ready(path)?);
        self.list = Some(List {
            path: path.to_owned(),
            reader,
            form: Form::new(self.options.algorithm),
            line: Vec::new(),
            line_number: 0,
            proper: 0,
            malformed: 0,
            verified: 0,
        });
        Ok(())
    }

    fn go_on(&mut self, answer: &mut Answer, host: &Host) -> bool {
        let Some(list) = &mut self.list else { return false };
        match list.next(host) {
            Ok(Some(CheckLine::Nothing)) => {}
            Ok(Some(CheckLine::Malformed)) => {
                list.malformed += 1;
                if self.options.warn {
                    let text = format!("?{}", list.line_number);
                    answer.path(list.path.as_os_str().as_bytes());
                    let _ = answer.entry(Entry::new(EntryKind::Line, text.as_bytes()));
                }
            }
            Ok(Some(CheckLine::File { digest, name })) => {
                list.check(&digest, &name, self.options, answer, host)
            }
            Ok(None) => {
                list.end(self.options, answer);
                self.list = None;
            }
            Err(errno) => {
                answer.error(list.path.as_os_str().as_bytes(), errno);
                self.list = None;
            }
        }
        self.list.is_some()
    }
}

impl List {
    /// The next line; `None` at the end.
    fn next(&mut self, host: &Host) -> Result<Option<CheckLine>, Errno> {
        self.line.clear();
        let (mut begun, mut is_long) = (false, false);
        loop {
            if let Some(errno) = host.stopped() {
                return Err(errno);
            }
            let buffer = match self.reader.fill_buf() {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other?,
            };
            let end = buffer.iter().position(|&byte| byte == b'\n');
            if end.is_none() && buffer.is_empty() && !begun {
                return Ok(None);
            }
            let part = &buffer[..end.unwrap_or(buffer.len())];
            // Read to its end all the same: the next line begins behind it.
            is_long |= self.line.len() + part.len() > LINE_BYTES_MAX;
            if !is_long {
                self.line.extend_from_slice(part);
            }
            let (is_end, used) =
                (end.is_some() || buffer.is_empty(), part.len() + usize::from(end.is_some()));
            self.reader.consume(used);
            begun = true;
            if is_end {
                self.line_number += 1;
                return Ok(Some(if is_long {
                    CheckLine::Malformed
                } else {
                    self.form.read(&self.line)
                }));
            }
        }
    }

    fn check(
        &mut self,
        digest: &[u8],
        name: &[u8],
        options: CheckOptions,
        answer: &mut Answer,
        host: &Host,
    ) {
        self.proper += 1;
        let path = self.place(name);
        let file = host.export.open_ready(&path);
        let found =
            file.and_then(|file| sheaf_file::digest(&mut host.attentive(file), options.algorithm));
        let verdict = match found {
            Err(Errno::NOENT) if options.ignore_missing => return,
            Err(errno) => CheckVerdict::Unread(errno),
            Ok(found) => {
                self.verified += 1;
                answer.stats(EntryStats { members: 1, ..EntryStats::default() });
                let is_same = found.to_string().as_bytes().eq_ignore_ascii_case(digest);
                if is_same { CheckVerdict::Same } else { CheckVerdict::Differs }
            }
        };
        let text = [&verdict.head(), path.as_os_str().as_bytes()].concat();
        answer.path(self.path.as_os_str().as_bytes());
        // An answer that is full ends the batch, not the check.
        let _ = answer.entry(Entry::new(EntryKind::Line, &text));
    }

    /// The file that the list calls so: what is relative begins where the list is.
    fn place(&self, name: &[u8]) -> PathBuf {
        let plain = name.strip_prefix(b"./").filter(|rest| !rest.is_empty()).unwrap_or(name);
        self.path.parent().unwrap_or(Path::new("")).join(OsStr::from_bytes(plain))
    }

    fn end(&self, options: CheckOptions, answer: &mut Answer) {
        let path = self.path.as_os_str().as_bytes();
        if self.proper == 0 {
            return answer.error(path, NO_LINE);
        }
        if self.malformed > 0 {
            answer.path(path);
            let _ =
                answer.entry(Entry::new(EntryKind::Count, self.malformed.to_string().as_bytes()));
        }
        if options.ignore_missing && self.verified == 0 {
            answer.error(path, NO_FILE);
        }
    }
}
