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
use std::path::Path;

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
}

impl StatOptions {
    /// Checks the format.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        self.format.as_deref().map_or(Ok(()), |format| format::parse(format).map(drop))
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
    lines: Vec<Vec<FormatPart>>,
    device_line: Option<Vec<FormatPart>>,
    owners: Owners,
}

impl Stats {
    pub fn new(options: StatOptions) -> Result<Self, Errno> {
        let parse = |format: &str| format::parse(format).map_err(|_| Errno::INVAL);
        let (lines, device_line) = match &options.format {
            Some(format) => (vec![parse(format)?], None),
            None => {
                let lines = LINES.iter().map(|line| parse(line)).collect::<Result<_, _>>()?;
                (lines, Some(parse(DEVICE_LINE)?))
            }
        };
        Ok(Self { dereference: options.dereference, lines, device_line, owners: Owners::default() })
    }
}

impl PerPath for Stats {
    fn begin(&mut self, path: &Path, answer: &mut Answer, host: &Host) -> Result<(), Errno> {
        let metadata =
            if self.dereference { host.export.stat(path)? } else { host.export.lstat(path)? };
        let link = match metadata.kind {
            FileKind::Symlink => {
                Some(host.export.read_link(path)?.into_os_string().into_encoded_bytes())
            }
            _ => None,
        };
        let file = File { path: path.as_os_str().as_bytes(), metadata: &metadata, link };
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
        let seconds = |time: Timestamp| time.seconds.to_string();
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
            Directive::AccessSeconds => seconds(metadata.atime).into_bytes(),
            Directive::ModifySeconds => seconds(metadata.mtime).into_bytes(),
            Directive::ChangeSeconds => seconds(metadata.ctime).into_bytes(),
            Directive::BirthSeconds => {
                metadata.btime.map_or_else(|| "0".into(), seconds).into_bytes()
            }
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
