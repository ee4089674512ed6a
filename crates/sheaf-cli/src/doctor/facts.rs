//! The lines of a host's examination, decoded. A host may print anything, so each value is bounded
//! and has a type that cannot hold a bad one.
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest text of a host that is kept.
const TEXT_CHARS_MAX: usize = 300;
/// The latest time that a clock may show: the year 9999.
const SECONDS_MAX: u64 = 253_402_300_799;

/// A line that the examination does not print.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed;

/// What one line says.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// What is examined next.
    At(String),
    Clock(HostTime),
    Account {
        uid: u32,
        user: String,
        shell: String,
    },
    System {
        os: String,
        machine: String,
        kernel: String,
    },
    Libc(HostLibc),
    /// The limits of open files; none is no limit.
    Files {
        soft: Option<u64>,
        hard: Option<u64>,
    },
    /// It has no `sha256sum`.
    Unchecked,
    Directory(Directory),
    Program(CachedProgram),
    Run {
        place: Place,
        path: String,
        outcome: Option<(u32, String)>,
    },
    /// `None`: it is not installed.
    Sudo(Option<(u32, String)>),
    Space {
        path: String,
        room: Option<Room>,
        exists: bool,
    },
    Sshd(String),
    Fuse {
        device: bool,
        helper: bool,
        namespaces: bool,
    },
    /// `None`: the host has no program that could try.
    Reach(Option<(u32, String)>),
}

/// The time that a host's clock shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostTime {
    pub time: SystemTime,
    /// Its `date` prints whole seconds.
    pub is_whole: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostLibc {
    /// The minor version of glibc 2.
    Glibc(u32),
    Musl,
    Unknown,
}

/// A directory in which the host may keep the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    pub path: String,
    pub fitness: Fitness,
    /// Where a file was made to try: an existing directory.
    pub tried: String,
    /// Why it is not fit, in the host's words.
    pub why: String,
    /// Users other than its owner can write to it.
    pub is_open: bool,
    pub owner: Option<u32>,
    pub room: Option<Room>,
    pub inodes: Option<Room>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fitness {
    Fit,
    /// `/run/user/UID` does not exist.
    Absent,
    Relative,
    /// A symbolic link where none may be.
    Link,
    /// Something that is no directory is in its way.
    File,
    /// It belongs to another user.
    Other,
    /// Another user can change what is in a directory on its way.
    Way,
    Unwritable,
    Full,
    NoExec,
    /// A script does not run there for another reason.
    NoRun,
}

/// Bytes or inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    pub total: u64,
    pub available: u64,
}

/// A file of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedProgram {
    pub path: String,
    /// The name of its directory, which is to be its digest.
    pub digest: String,
    pub bytes: u64,
    /// Its SHA-256, if the host can compute it.
    pub sum: Option<String>,
}

/// A program, by how the examination has found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The cached copy of this program.
    Cache,
    /// At the path of the setting `program`.
    Setting,
    /// In the user's `PATH`.
    Path,
}

impl Fact {
    /// Decodes one line of the script.
    pub fn of(line: &str) -> Result<Self, Malformed> {
        let fields: Vec<&str> = line.split('\t').collect();
        Ok(match fields[..] {
            ["at", what] => Self::At(text(what)),
            ["clock", time] => Self::Clock(host_time(time)?),
            ["account", uid, user, shell] => {
                Self::Account { uid: number(uid)?, user: text(user), shell: text(shell) }
            }
            ["system", os, machine, kernel] => {
                Self::System { os: text(os), machine: text(machine), kernel: text(kernel) }
            }
            ["libc", name] => Self::Libc(libc(name)),
            ["files", soft, hard] => Self::Files { soft: limit(soft)?, hard: limit(hard)? },
            ["unchecked"] => Self::Unchecked,
            ["directory", path, tried, ref rest @ ..] => {
                Self::Directory(directory(path, tried, rest)?)
            }
            ["program", path, digest, bytes, sum] => Self::Program(CachedProgram {
                path: text(path),
                digest: text(digest),
                bytes: number(bytes)?,
                sum: Some(text(sum)).filter(|sum| !sum.is_empty()),
            }),
            ["own", path, code, said] => run(Place::Cache, path, code, said)?,
            ["installed", path, "none"] => {
                Self::Run { place: Place::Setting, path: text(path), outcome: None }
            }
            ["installed", path, code, said] => run(Place::Setting, path, code, said)?,
            ["path", path, code, said] => run(Place::Path, path, code, said)?,
            ["sudo", "none"] => Self::Sudo(None),
            ["sudo", code, said] => Self::Sudo(Some((number(code)?, text(said)))),
            ["space", path, room] => {
                Self::Space { path: text(path), room: kibibytes(room), exists: room != "none" }
            }
            ["sshd", version] => Self::Sshd(text(version)),
            ["fuse", device, helper, namespaces] => Self::Fuse {
                device: device == "1",
                helper: helper == "1",
                namespaces: namespaces == "1",
            },
            ["reach", "none"] => Self::Reach(None),
            ["reach", code, said] => Self::Reach(Some((number(code)?, text(said)))),
            _ => return Err(Malformed),
        })
    }
}

/// A text of a host on one line, without control characters.
fn text(field: &str) -> String {
    let chars = field.chars().take(TEXT_CHARS_MAX);
    chars.map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

fn number<T: std::str::FromStr>(field: &str) -> Result<T, Malformed> {
    field.trim().parse().map_err(|_| Malformed)
}

fn run(place: Place, path: &str, code: &str, said: &str) -> Result<Fact, Malformed> {
    Ok(Fact::Run { place, path: text(path), outcome: Some((number(code)?, text(said))) })
}

fn limit(field: &str) -> Result<Option<u64>, Malformed> {
    if field == "unlimited" { Ok(None) } else { number(field).map(Some) }
}

/// `SECONDS.NANOSECONDS`; a `date` that does not know `%N` prints something else after the point.
fn host_time(field: &str) -> Result<HostTime, Malformed> {
    let (seconds, fraction) = field.split_once('.').unwrap_or((field, ""));
    let seconds: u64 = number(seconds)?;
    if seconds > SECONDS_MAX {
        return Err(Malformed);
    }
    let nanoseconds = Some(fraction).filter(|fraction| fraction.len() == 9);
    let nanoseconds = nanoseconds.and_then(|fraction| fraction.parse::<u32>().ok());
    let since = Duration::new(seconds, nanoseconds.unwrap_or(0).min(999_999_999));
    Ok(HostTime { time: UNIX_EPOCH + since, is_whole: nanoseconds.is_none() })
}

fn libc(field: &str) -> HostLibc {
    let minor = field.strip_prefix("glibc 2.").and_then(|rest| rest.split('.').next());
    match minor.and_then(|minor| minor.parse().ok()) {
        Some(minor) => HostLibc::Glibc(minor),
        None if field == "musl" => HostLibc::Musl,
        None => HostLibc::Unknown,
    }
}

fn directory(path: &str, tried: &str, rest: &[&str]) -> Result<Directory, Malformed> {
    let (fitness, rest) = rest.split_first().ok_or(Malformed)?;
    let [mode, owner, room, inodes, why] = match rest {
        [] => [""; 5],
        rest => rest.try_into().map_err(|_| Malformed)?,
    };
    let fitness = match *fitness {
        "fit" => Fitness::Fit,
        "absent" => Fitness::Absent,
        "relative" => Fitness::Relative,
        "link" => Fitness::Link,
        "file" => Fitness::File,
        "other" => Fitness::Other,
        "way" => Fitness::Way,
        "unwritable" => Fitness::Unwritable,
        "full" => Fitness::Full,
        "noexec" => Fitness::NoExec,
        "norun" => Fitness::NoRun,
        _ => return Err(Malformed),
    };
    let is_written_by = |at: usize| mode.as_bytes().get(at) == Some(&b'w');
    Ok(Directory {
        path: text(path),
        fitness,
        tried: text(tried),
        why: text(why),
        is_open: is_written_by(5) || is_written_by(8),
        owner: owner.parse().ok(),
        room: kibibytes(room),
        // A file system that makes inodes as it needs them has a total of 0.
        inodes: pair(inodes).filter(|inodes| inodes.total > 0),
    })
}

/// What `df` prints in KiB, in bytes.
fn kibibytes(field: &str) -> Option<Room> {
    let Room { total, available } = pair(field)?;
    Some(Room { total: total.checked_mul(1024)?, available: available.checked_mul(1024)? })
}

fn pair(field: &str) -> Option<Room> {
    let (total, available) = field.split_once(' ')?;
    Some(Room { total: total.parse().ok()?, available: available.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn malformed_lines_are_refused() {
        for line in [
            "",
            "clock",
            "clock\t",
            "clock\t-1",
            "clock\t99999999999999",
            "account\tx\ty\tz",
            "nonsense\t1",
            "directory\t/a\t/a\tperfect",
            "directory\t/a\t/a\tfit\tx",
            "sudo\tx\ty",
            "reach\t-1\tx",
            "files\tmany\t1",
            "program\t/a\tb\t-5\t",
            "sudo",
            "own\t/a\t0",
        ] {
            assert_eq!(Fact::of(line), Err(Malformed), "{line:?}");
        }
    }

    #[test]
    fn texts_of_hosts_are_short_and_have_no_control_characters() {
        let long = "x\u{1b}".repeat(1000);
        let Fact::At(shown) = Fact::of(&format!("at\t{long}")).unwrap() else { panic!() };
        assert!(shown.chars().count() <= TEXT_CHARS_MAX && !shown.contains('\u{1b}'));
    }

    #[test]
    fn clock_without_nanoseconds_shows_whole_seconds() {
        for (field, is_whole) in [("5.000000001", false), ("5.%N", true), ("5", true), ("5.", true)]
        {
            let Ok(Fact::Clock(time)) = Fact::of(&format!("clock\t{field}")) else {
                panic!("{field}")
            };
            assert_eq!(time.is_whole, is_whole, "{field}");
        }
    }

    proptest! {
        #[test]
        fn any_line_decodes_or_is_refused(
            key in "at|clock|account|system|libc|files|directory|program|own|sudo|space|fuse|reach",
            fields in proptest::collection::vec("[\\PC\u{0}-\u{1f}]{0,12}|[0-9]{0,24}|none|fit|[0-9]{1,22} [0-9]{1,22}", 0..9),
        ) {
            let _ = Fact::of(&format!("{key}\t{}", fields.join("\t")));
        }
    }
}
