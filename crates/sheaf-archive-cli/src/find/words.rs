//! What tests ask of this machine, and how it writes what is formatted.
use jiff::tz::TimeZone;
use sheaf_archive::{FindNames, FindTime, FindWords};
use sheaf_cli::output::printable;
use sheaf_core::files::Timestamp;
use sheaf_core::lock;
use sheaf_tools::report::time::{Clock, TimeStyle};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;

/// Owners and times as this machine knows them.
pub struct SystemNames;

impl FindNames for SystemNames {
    fn uid(&self, name: &str) -> Option<u32> {
        sheaf_file::Owner::resolve(name).ok()?.uid
    }

    fn gid(&self, name: &str) -> Option<u32> {
        sheaf_file::Owner::resolve(&format!(":{name}")).ok()?.gid
    }

    fn time(&self, text: &str) -> Option<Timestamp> {
        let text = text.trim();
        if let Ok(time) = text.parse::<jiff::Timestamp>() {
            return timestamp(time);
        }
        let local: jiff::civil::DateTime = text.parse().ok().or_else(|| {
            let date: jiff::civil::Date = text.parse().ok()?;
            Some(date.at(0, 0, 0, 0))
        })?;
        timestamp(local.to_zoned(TimeZone::system()).ok()?.timestamp())
    }

    fn time_of(&self, path: &str, which: FindTime) -> Option<Timestamp> {
        let found = std::fs::symlink_metadata(path).ok()?;
        let (seconds, nanoseconds) = match which {
            FindTime::Accessed => (found.atime(), found.atime_nsec()),
            FindTime::Changed => (found.ctime(), found.ctime_nsec()),
            FindTime::Modified => (found.mtime(), found.mtime_nsec()),
        };
        Some(Timestamp { seconds, nanoseconds: u32::try_from(nanoseconds).ok()? })
    }
}

fn timestamp(time: jiff::Timestamp) -> Option<Timestamp> {
    // Before 1970 both parts count down.
    let nanoseconds = time.as_nanosecond();
    let seconds = i64::try_from(nanoseconds.div_euclid(1_000_000_000)).ok()?;
    let nanoseconds = u32::try_from(nanoseconds.rem_euclid(1_000_000_000)).ok()?;
    Some(Timestamp { seconds, nanoseconds })
}

/// Owners by name, and times of this machine's zone.
pub struct SystemWords {
    clock: Clock,
    is_terminal: bool,
    users: Mutex<HashMap<u32, String>>,
    groups: Mutex<HashMap<u32, String>>,
}

impl SystemWords {
    /// For a terminal, names are without what it would take for a command.
    pub fn new(is_terminal: bool) -> Self {
        let clock = Clock { zone: TimeZone::system(), now: jiff::Timestamp::now() };
        Self { clock, is_terminal, users: Mutex::default(), groups: Mutex::default() }
    }
}

impl FindWords for SystemWords {
    fn put_name(&self, name: &[u8], out: &mut Vec<u8>) {
        if self.is_terminal {
            let shown = printable(&String::from_utf8_lossy(name)).to_string();
            out.extend_from_slice(shown.as_bytes());
        } else {
            out.extend_from_slice(name);
        }
    }

    fn user(&self, uid: u32) -> String {
        let find = || sheaf_file::user_name(uid).unwrap_or_else(|| uid.to_string());
        lock(&self.users).entry(uid).or_insert_with(find).clone()
    }

    fn group(&self, gid: u32) -> String {
        let find = || sheaf_file::group_name(gid).unwrap_or_else(|| gid.to_string());
        lock(&self.groups).entry(gid).or_insert_with(find).clone()
    }

    fn time(&self, time: Timestamp, letter: char) -> String {
        let Timestamp { seconds, nanoseconds } = time;
        // GNU find has ten digits.
        let parts = format!(".{nanoseconds:09}0");
        let format = match letter {
            '@' => return format!("{seconds}{parts}"),
            's' => return seconds.to_string(),
            '+' => format!("%Y-%m-%d+%H:%M:%S{parts}"),
            'c' => format!("%a %b %e %H:%M:%S{parts} %Y"),
            'C' => "%a %b %e %H:%M:%S %Y".to_owned(),
            'S' => format!("%S{parts}"),
            'T' | 'X' => format!("%H:%M:%S{parts}"),
            'r' => "%I:%M:%S %p".to_owned(),
            'x' => "%m/%d/%y".to_owned(),
            letter => format!("%{letter}"),
        };
        let known = i32::try_from(nanoseconds).ok();
        let known = known.and_then(|nanoseconds| jiff::Timestamp::new(seconds, nanoseconds).ok());
        // What is beyond all calendars is a number.
        let Some(known) = known else { return seconds.to_string() };
        known.to_zoned(self.clock.zone.clone()).strftime(&format).to_string()
    }

    fn list_time(&self, time: Timestamp) -> String {
        TimeStyle::Locale.format(time.seconds, time.nanoseconds, &self.clock)
    }
}
