//! A line or a record for a file, wherever it is.
use super::ls::ArchiveLsArgs;
use crate::output::json::put_text;
use crate::output::{Output, printable};
use jiff::tz::TimeZone;
use serde_json::{Map, Value};
use sheaf_core::lock;
use sheaf_tools::report::human;
use sheaf_tools::report::time::{Clock, TimeStyle};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Mutex;

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
    pub link: Option<&'a [u8]>,
}

/// How lines are written. Any number of threads may write.
pub struct EntryFormat {
    pub output: Output,
    pub long: bool,
    numeric: bool,
    human: bool,
    clock: Clock,
    owners: Mutex<HashMap<u32, String>>,
    groups: Mutex<HashMap<u32, String>>,
}

/// What the lines before were about.
#[derive(Default)]
pub struct EntryMemory {
    owner: Option<(u32, String)>,
    group: Option<(u32, String)>,
    /// By minutes, or by seconds.
    time: Option<((bool, i64), String)>,
}

impl EntryFormat {
    pub fn new(args: &ArchiveLsArgs, output: Output) -> Self {
        Self {
            output,
            long: args.long || args.numeric_uid_gid,
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
        if self.long {
            out.extend_from_slice(self.long(memory, shown).as_bytes());
        }
        self.name(out, name);
        if let Some(link) = shown.link.filter(|_| self.long) {
            out.extend_from_slice(b" -> ");
            self.name(out, link);
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
        let owner = remembered(&mut memory.owner, shown.uid, |uid| self.owner(uid));
        let group = remembered(&mut memory.group, shown.gid, |gid| self.group(gid));
        let (seconds, nanoseconds) = shown.mtime;
        let has_whole_minutes = seconds >= WHOLE_MINUTES_SINCE_S;
        let key = (has_whole_minutes, if has_whole_minutes { seconds / 60 } else { seconds });
        let time = remembered(&mut memory.time, key, |_| {
            TimeStyle::LongIso.format(seconds, nanoseconds, &self.clock)
        });
        write!(line, "{owner:<8} {group:<8} {size:>10} {time} ").expect("a string takes all");
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

/// The record of a file.
pub fn record(kind: &str, path: &[u8], shown: &ShownFile<'_>) -> Value {
    let mut record = Map::new();
    record.insert("type".to_owned(), kind.into());
    put_text(&mut record, "path", path);
    let kind = match shown.kind {
        'd' => "directory",
        'l' => "symlink",
        'p' => "fifo",
        's' => "socket",
        'c' => "char device",
        'b' => "block device",
        _ => "file",
    };
    record.insert("kind".to_owned(), kind.into());
    record.insert("mode".to_owned(), format!("{:04o}", shown.mode).into());
    record.insert("uid".to_owned(), shown.uid.into());
    record.insert("gid".to_owned(), shown.gid.into());
    record.insert("size".to_owned(), shown.size.into());
    record.insert("mtime_s".to_owned(), shown.mtime.0.into());
    record.insert("mtime_ns".to_owned(), shown.mtime.1.into());
    if let Some(link) = shown.link {
        put_text(&mut record, "target", link);
    }
    Value::Object(record)
}
