//! `stat`.
use super::human;
use super::owners::Owners;
use super::time;
use crate::paths::PerPath;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_file::{FileKind, Metadata, Timestamp};
use sheaf_group::entry::{Answer, Entry, EntryKind, Sink};
use sheaf_group::tool::Host;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

mod file_system;
mod format;

use format::{Directive, FormatPart, Pad};

/// What to show.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatOptions {
    /// A format with the `%` letters of GNU stat; `None`: several lines, each of which is an
    /// entry.
    pub format: Option<String>,
    /// Follow symbolic links.
    pub dereference: bool,
    /// Show the file system of a file; the letters of a format are others then.
    pub file_system: bool,
}

impl StatOptions {
    /// Checks the format.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        match self.format.as_deref() {
            Some(format) => format::parse(format, self.file_system).map(drop),
            None => Ok(()),
        }
    }
}

/// The lines that are shown without a format.
const LINES: &[&str] = &[
    "  File: %P",
    "  Size: %-10s\tBlocks: %-10b IO Block: %-6o %F",
    "Device: %Hd,%Ld\tInode: %-11i Links: %h",
    "Access: (%04a/%10A)  Uid: (%5u/%8U)   Gid: (%5g/%8G)",
    "Access: %x",
    "Modify: %y",
    "Change: %z",
    " Birth: %w",
];

/// The lines that are shown of a file system.
const FILE_SYSTEM_LINES: &[&str] = &[
    "  File: \"%n\"",
    "    ID: %-8i Namelen: %-7l Type: %T",
    "Block size: %-10s Fundamental block size: %S",
    "Blocks: Total: %-10b Free: %-10f Available: %a",
    "Inodes: Total: %-10c Free: %d",
];

/// The third line of a device file.
const DEVICE_LINE: &str = "Device: %Hd,%Ld\tInode: %-11i Links: %-5h Device type: %Hr,%Lr";

/// A piece of an entry's text.
#[derive(Debug, Serialize, Deserialize)]
enum Segment {
    Text(Vec<u8>),
    /// A time, which is written out where it is read.
    Time(Timestamp, Pad),
}

/// Writes out the text of an entry.
#[must_use]
pub fn text(entry: &[u8], zone: &TimeZone) -> Vec<u8> {
    let Ok(segments) = postcard::from_bytes::<Vec<Segment>>(entry) else { return entry.to_vec() };
    let mut text = Vec::new();
    for segment in segments {
        match segment {
            Segment::Text(bytes) => text.extend_from_slice(&bytes),
            Segment::Time(at, pad) => {
                pad.put(time::full(at.seconds, at.nanoseconds, zone).as_bytes(), &mut text);
            }
        }
    }
    text
}

pub(super) struct Stats {
    dereference: bool,
    file_system: bool,
    lines: Vec<Vec<FormatPart>>,
    device_line: Option<Vec<FormatPart>>,
    owners: Owners,
}

impl Stats {
    pub fn new(options: StatOptions) -> Result<Self, Errno> {
        let file_system = options.file_system;
        let parse = |format: &str| format::parse(format, file_system).map_err(|_| Errno::INVAL);
        let (lines, device_line) = match &options.format {
            Some(format) => (vec![parse(format)?], None),
            None if file_system => {
                let lines = FILE_SYSTEM_LINES.iter().map(|line| parse(line));
                (lines.collect::<Result<_, _>>()?, None)
            }
            None => {
                let lines = LINES.iter().map(|line| parse(line)).collect::<Result<_, _>>()?;
                (lines, Some(parse(DEVICE_LINE)?))
            }
        };
        let (dereference, owners) = (options.dereference, Owners::default());
        Ok(Self { dereference, file_system, lines, device_line, owners })
    }
}

impl PerPath for Stats {
    fn begin(&mut self, path: &Path, answer: &mut Answer, host: &Host) -> Result<(), Errno> {
        if self.file_system {
            let found = host.export.file_system(path)?;
            answer.path(path.as_os_str().as_bytes());
            for line in &self.lines {
                let text = file_system::text(line, path, &found);
                let text =
                    postcard::to_stdvec(&vec![Segment::Text(text)]).map_err(|_| Errno::INVAL)?;
                let _ = answer.entry(Entry::new(EntryKind::Line, &text));
            }
            return Ok(());
        }
        let metadata =
            if self.dereference { host.export.stat(path)? } else { host.export.lstat(path)? };
        let link = match metadata.kind {
            FileKind::Symlink => {
                Some(host.export.read_link(path)?.into_os_string().into_encoded_bytes())
            }
            _ => None,
        };
        let shows_mount_point = self.lines.iter().flatten().any(FormatPart::is_mount_point);
        let mount_point = match shows_mount_point {
            true => mount_point(host, path, &metadata)?,
            false => Vec::new(),
        };
        let path_bytes = path.as_os_str().as_bytes();
        let file = File { path: path_bytes, metadata: &metadata, link, mount_point };
        let is_device = matches!(metadata.kind, FileKind::CharDevice | FileKind::BlockDevice);
        answer.path(file.path);
        for (at, line) in self.lines.iter().enumerate() {
            let line = self.device_line.as_ref().filter(|_| at == 2 && is_device).unwrap_or(line);
            let mut segments = vec![Segment::Text(Vec::new())];
            line.iter().for_each(|part| file.put(part, &mut self.owners, &mut segments));
            let text = postcard::to_stdvec(&segments).map_err(|_| Errno::INVAL)?;
            let _ = answer.entry(Entry::new(EntryKind::Line, &text));
        }
        Ok(())
    }
}

struct File<'a> {
    path: &'a [u8],
    metadata: &'a Metadata,
    link: Option<Vec<u8>>,
    /// Where its file system is mounted, if a format shows it.
    mount_point: Vec<u8>,
}

/// The directory below which all is on the file system of this file, as GNU stat finds it: the last one
/// towards the root that is on it.
fn mount_point(host: &Host, path: &Path, metadata: &Metadata) -> Result<Vec<u8>, Errno> {
    // A name in a directory is on the file system of the directory, if it is not mounted on itself.
    let mut at = if metadata.is_dir() { path.to_owned() } else { parent(path) };
    if !metadata.is_dir() && host.export.stat(&at)?.dev != metadata.dev {
        return Ok(path.as_os_str().as_bytes().to_vec());
    }
    at = std::path::absolute(Path::new("/").join(at)).map_err(|_| Errno::INVAL)?;
    loop {
        let above = parent(&at);
        if above == at || host.export.stat(&above)?.dev != metadata.dev {
            return Ok(at.into_os_string().into_encoded_bytes());
        }
        at = above;
    }
}

fn parent(path: &Path) -> PathBuf {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("/")).into()
}

impl File<'_> {
    fn put(&self, part: &FormatPart, owners: &mut Owners, out: &mut Vec<Segment>) {
        let (directive, pad) = match part {
            FormatPart::Literal(text) => return put_text(text.as_bytes(), out),
            FormatPart::Directive(directive, pad) => (*directive, *pad),
        };
        let time = match directive {
            Directive::AccessTime => Some(self.metadata.atime),
            Directive::ModifyTime => Some(self.metadata.mtime),
            Directive::ChangeTime => Some(self.metadata.ctime),
            Directive::BirthTime => self.metadata.btime,
            _ => None,
        };
        if let Some(time) = time {
            return out.push(Segment::Time(time, pad));
        }
        let mut padded = Vec::new();
        pad.put(&self.value(directive, owners), &mut padded);
        put_text(&padded, out);
    }

    fn value(&self, directive: Directive, owners: &mut Owners) -> Vec<u8> {
        let metadata = self.metadata;
        let seconds = |time: Timestamp, digits: u32| seconds(time, digits);
        match directive {
            Directive::Path => self.path.to_vec(),
            Directive::PathWithTarget => self.with_target(|name| name.to_vec()),
            Directive::QuotedName => self.with_target(quoted),
            Directive::Mode => format!("{:o}", metadata.mode).into_bytes(),
            Directive::ModeText => human::mode(metadata).into_bytes(),
            Directive::RawMode => format!("{:x}", metadata.raw_mode()).into_bytes(),
            Directive::Kind => kind(metadata).into(),
            Directive::User => owners.user(metadata.uid).into(),
            Directive::Group => owners.group(metadata.gid).into(),
            Directive::Number(number) => number.of(metadata).to_string().into_bytes(),
            Directive::Hex(number) => format!("{:x}", number.of(metadata)).into_bytes(),
            Directive::AccessSeconds(digits) => seconds(metadata.atime, digits).into_bytes(),
            Directive::ModifySeconds(digits) => seconds(metadata.mtime, digits).into_bytes(),
            Directive::ChangeSeconds(digits) => seconds(metadata.ctime, digits).into_bytes(),
            Directive::BirthSeconds(digits) => {
                metadata.btime.map_or_else(|| "0".into(), |at| seconds(at, digits)).into_bytes()
            }
            Directive::MountPoint => self.mount_point.clone(),
            // Only of a file system.
            Directive::OfFileSystem(_) => Vec::new(),
            // Times are no text here; only a birth that is not known comes this far.
            Directive::AccessTime
            | Directive::ModifyTime
            | Directive::ChangeTime
            | Directive::BirthTime => b"-".to_vec(),
        }
    }

    fn with_target(&self, name: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let mut text = name(self.path);
        if let Some(target) = &self.link {
            text.extend_from_slice(b" -> ");
            text.extend(name(target));
        }
        text
    }
}

/// Seconds since 1970 with so many digits after the point, rounded towards the past as GNU stat does.
fn seconds(time: Timestamp, digits: u32) -> String {
    if digits == 0 {
        return time.seconds.to_string();
    }
    let digits = digits as usize;
    // Nanoseconds count forward, also before 1970.
    let (negative, whole, nanoseconds) = match (time.seconds < 0, time.nanoseconds) {
        (true, 1..) => (true, time.seconds + 1, 1_000_000_000 - time.nanoseconds),
        (is_negative, nanoseconds) => (is_negative, time.seconds, nanoseconds),
    };
    let fraction = format!("{nanoseconds:09}");
    let mut shown: String = fraction.chars().take(digits).collect();
    shown.extend(std::iter::repeat_n('0', digits - shown.len()));
    let sign = if negative { "-" } else { "" };
    format!("{sign}{}.{shown}", whole.unsigned_abs())
}

fn put_text(bytes: &[u8], out: &mut Vec<Segment>) {
    match out.last_mut() {
        Some(Segment::Text(text)) => text.extend_from_slice(bytes),
        _ => out.push(Segment::Text(bytes.to_vec())),
    }
}

/// A name in single quotes, as a shell reads it.
fn quoted(name: &[u8]) -> Vec<u8> {
    let mut text = vec![b'\''];
    for &byte in name {
        if byte == b'\'' {
            text.extend_from_slice(b"'\\'");
        }
        text.push(byte);
    }
    text.push(b'\'');
    text
}

fn kind(metadata: &Metadata) -> &'static str {
    match metadata.kind {
        FileKind::File if metadata.size == 0 => "regular empty file",
        FileKind::File => "regular file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "character special file",
        FileKind::BlockDevice => "block special file",
        FileKind::Unknown => "weird file",
    }
}
