//! A line or a record for a file, wherever it is.
pub mod times;

use super::ls::ArchiveLsArgs;
use jiff::tz::TimeZone;
use sheaf_cli::output::{Output, printable};
use sheaf_core::lock;
use sheaf_records::{FileFields, FileKind, text};
use sheaf_tools::report::human;
use sheaf_tools::report::time::{Clock, TimeStyle};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Mutex;
use times::TimeFormat;

/// Times from here on have offsets of whole minutes in every zone, so that one text is that of a minute.
const WHOLE_MINUTES_SINCE_S: i64 = 100_000_000;

/// What is shown of a file.
pub struct ShownFile<'a> {
    pub kind: char,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub mtime: (i64, u32),
    /// The time that is shown.
    pub time: (i64, u32),
    pub link: Option<&'a [u8]>,
    /// What a link leads to, with its mode, if that is known.
    pub target: Option<(char, u32)>,
    pub inode: u64,
    /// Bytes on the disk, or of the content of what is archived.
    pub room: u64,
}

/// What marks the kind of a file behind its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KindMarks {
    #[default]
    None,
    /// Directories have a slash.
    Slashes,
    /// All kinds but plain files have one.
    All,
}

impl KindMarks {
    fn of(self, kind: char, mode: u32) -> &'static [u8] {
        match (self, kind) {
            (Self::None, _) => b"",
            (_, 'd') => b"/",
            (Self::Slashes, _) => b"",
            (Self::All, 'l') => b"@",
            (Self::All, 'p') => b"|",
            (Self::All, 's') => b"=",
            (Self::All, '-') if mode & 0o111 != 0 => b"*",
            (Self::All, _) => b"",
        }
    }
}

/// How lines are written. Any number of threads may write.
pub struct EntryFormat {
    pub output: Output,
    pub long: bool,
    pub marks: KindMarks,
    pub has_inodes: bool,
    pub has_rooms: bool,
    numeric: bool,
    human: bool,
    has_owners: bool,
    has_groups: bool,
    times: TimeFormat,
    clock: Clock,
    owners: Mutex<HashMap<u32, String>>,
    groups: Mutex<HashMap<u32, String>>,
}

/// What the lines before were about.
#[derive(Default)]
pub struct EntryMemory {
    owner: Option<(u32, String)>,
    group: Option<(u32, String)>,
    /// By minutes, or by seconds and nanoseconds.
    time: Option<((bool, i64, u32), String)>,
}

impl EntryFormat {
    pub fn new(args: &ArchiveLsArgs, output: Output) -> Self {
        Self {
            output,
            long: args.is_long(),
            marks: match args {
                _ if args.classify => KindMarks::All,
                _ if args.slashes => KindMarks::Slashes,
                _ => KindMarks::None,
            },
            has_inodes: args.inode,
            has_rooms: args.blocks,
            has_owners: !args.no_owner,
            has_groups: !args.no_group && !args.no_group_long,
            times: match &args.time_style {
                _ if args.full_time => TimeFormat::Style(TimeStyle::FullIso),
                Some(times) => times.clone(),
                None => TimeFormat::Style(TimeStyle::LongIso),
            },
            numeric: args.numeric_uid_gid,
            human: args.human_readable,
            clock: Clock { zone: TimeZone::system(), now: jiff::Timestamp::now() },
            owners: Mutex::default(),
            groups: Mutex::default(),
        }
    }

    /// Puts the line of a file behind what is there.
    pub fn put(
        &self,
        memory: &mut EntryMemory,
        out: &mut Vec<u8>,
        name: &[u8],
        shown: &ShownFile<'_>,
    ) {
        if self.has_inodes {
            write!(out, "{:>8} ", shown.inode).expect("a vector takes all");
        }
        if self.has_rooms {
            let room = if self.human {
                human::size(shown.room)
            } else {
                shown.room.div_ceil(1024).to_string()
            };
            write!(out, "{room:>5} ").expect("a vector takes all");
        }
        if self.long {
            out.extend_from_slice(self.long(memory, shown).as_bytes());
        }
        self.name(out, name);
        if let Some(link) = shown.link.filter(|_| self.long) {
            out.extend_from_slice(b" -> ");
            self.name(out, link);
            let target = shown.target.map_or(&b""[..], |(kind, mode)| self.marks.of(kind, mode));
            out.extend_from_slice(target);
        } else {
            out.extend_from_slice(self.marks.of(shown.kind, shown.mode));
        }
        out.push(b'\n');
    }

    /// A name as it is, but where a terminal would take some of it for a command.
    fn name(&self, out: &mut Vec<u8>, name: &[u8]) {
        if self.output.stdout_is_terminal {
            out.extend_from_slice(printable(&String::from_utf8_lossy(name)).as_bytes());
        } else {
            out.extend_from_slice(name);
        }
    }

    /// Mode, owner, group, size and time.
    fn long(&self, memory: &mut EntryMemory, shown: &ShownFile<'_>) -> String {
        let size = if self.human { human::size(shown.size) } else { shown.size.to_string() };
        let mode = human::permissions(shown.mode);
        let mut line = format!("{}{mode} ", shown.kind);
        if self.has_owners {
            let owner = remembered(&mut memory.owner, shown.uid, |uid| self.owner(uid));
            write!(line, "{owner:<8} ").expect("a string takes all");
        }
        if self.has_groups {
            let group = remembered(&mut memory.group, shown.gid, |gid| self.group(gid));
            write!(line, "{group:<8} ").expect("a string takes all");
        }
        let (seconds, nanoseconds) = shown.time;
        let is_minute = seconds >= WHOLE_MINUTES_SINCE_S && self.times.is_of_minutes();
        let key = match is_minute {
            true => (true, seconds / 60, 0),
            false => (false, seconds, nanoseconds),
        };
        let time =
            remembered(&mut memory.time, key, |_| self.times.format(shown.time, &self.clock));
        write!(line, "{size:>10} {time} ").expect("a string takes all");
        line
    }

    fn owner(&self, uid: u32) -> String {
        if self.numeric {
            return uid.to_string();
        }
        let find = || sheaf_file::user_name(uid).unwrap_or_else(|| uid.to_string());
        lock(&self.owners).entry(uid).or_insert_with(find).clone()
    }

    fn group(&self, gid: u32) -> String {
        if self.numeric {
            return gid.to_string();
        }
        let find = || sheaf_file::group_name(gid).unwrap_or_else(|| gid.to_string());
        lock(&self.groups).entry(gid).or_insert_with(find).clone()
    }
}

/// The text of a key, which is that of the last one if it is the same.
fn remembered<K: Copy + PartialEq>(
    last: &mut Option<(K, String)>,
    key: K,
    find: impl FnOnce(K) -> String,
) -> &str {
    if last.as_ref().is_none_or(|(last, _)| *last != key) {
        *last = Some((key, find(key)));
    }
    last.as_ref().map_or("", |(_, text)| text)
}

/// The kind of a file in records.
pub fn kind(shown: &ShownFile<'_>) -> FileKind {
    match shown.kind {
        'd' => FileKind::Directory,
        'l' => FileKind::Symlink,
        'p' => FileKind::Fifo,
        's' => FileKind::Socket,
        'c' => FileKind::CharDevice,
        'b' => FileKind::BlockDevice,
        _ => FileKind::File,
    }
}

/// The attributes of a file in records.
pub fn fields(path: &[u8], shown: &ShownFile<'_>) -> FileFields {
    let (path, path_base64) = text(path);
    let (target, target_base64) = shown.link.map_or((None, None), text);
    FileFields {
        path,
        path_base64,
        mode: format!("{:04o}", shown.mode),
        uid: u64::from(shown.uid),
        gid: u64::from(shown.gid),
        size: shown.size,
        mtime_s: shown.mtime.0,
        mtime_ns: u64::from(shown.mtime.1),
        target,
        target_base64,
    }
}
