//! The expressions of `find`: tests of a file, and how they are joined.
//!
//! What is not said of a test is as in GNU find: sizes and ages are rounded up or down as there, `+5` is
//! more than five, `-5` less, and tests that stand together are joined by `and`.
use crate::{ArchivedFile, FileFacts, MemberAttributes, MemberKind};
use sheaf_core::files::{FileKind, Metadata, Timestamp};
use sheaf_file::TextPattern;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A file as tests see it.
#[derive(Clone, Copy, Debug)]
pub struct FindFile<'a> {
    /// Its path, as it is printed.
    pub path: &'a Path,
    /// How many levels it is below where the search began.
    pub depth: usize,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, `0o7777`.
    pub mode: u32,
    /// Numeric owner.
    pub uid: u32,
    /// Numeric group.
    pub gid: u32,
    /// Bytes of its content.
    pub size: u64,
    /// Last change of its content.
    pub mtime: Timestamp,
}

impl<'a> FindFile<'a> {
    /// An archived file. A directory has no size there.
    #[must_use]
    pub fn archived(path: &'a Path, depth: usize, file: &ArchivedFile) -> Self {
        let of = |of: &MemberAttributes, size| {
            let (kind, size) = match &of.kind {
                MemberKind::File | MemberKind::HardLink { .. } => (FileKind::File, size),
                MemberKind::Symlink { target } => (FileKind::Symlink, target.len() as u64),
                MemberKind::Fifo => (FileKind::Fifo, 0),
                MemberKind::CharDevice { .. } => (FileKind::CharDevice, 0),
                MemberKind::BlockDevice { .. } => (FileKind::BlockDevice, 0),
            };
            let (mode, uid, gid, mtime) = (of.mode, of.uid, of.gid, of.mtime);
            FindFile { path, depth, kind, mode, uid, gid, size, mtime }
        };
        match file {
            ArchivedFile::Member { member, .. } => of(&member.attributes, member.size),
            ArchivedFile::Object(object) => of(&object.attributes, object.size),
            ArchivedFile::Directory(is) => FindFile {
                path,
                depth,
                kind: FileKind::Directory,
                mode: is.mode,
                uid: is.uid,
                gid: is.gid,
                size: 0,
                mtime: Timestamp { seconds: is.mtime_s, nanoseconds: is.mtime_ns },
            },
        }
    }
}

impl<'a> FindFile<'a> {
    /// A file of this machine, of which `lstat` is asked where [`FindExpression::facts`] says so.
    #[must_use]
    pub fn local(path: &'a Path, depth: usize, kind: FileKind, status: Option<&Metadata>) -> Self {
        let of = |of: fn(&Metadata) -> u32| status.map_or(0, of);
        let mtime = status.map_or(Timestamp::default(), |status| status.mtime);
        Self {
            path,
            depth,
            kind,
            mode: of(|status| status.mode),
            uid: of(|status| status.uid),
            gid: of(|status| status.gid),
            size: status.map_or(0, |status| status.size),
            mtime,
        }
    }
}

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FindError(String);

/// An expression.
#[derive(Debug)]
pub struct FindExpression {
    test: FindTest,
    /// Levels that are told at least.
    pub depth_min: usize,
    /// Levels that are gone into at most.
    pub depth_max: usize,
    /// Whether a file that passes is printed, as nothing else is said to be done with it.
    prints: bool,
}

#[derive(Debug)]
enum FindTest {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    Name(TextPattern),
    Path(TextPattern),
    Kinds(Vec<FileKind>),
    /// In units of so many bytes, rounded up.
    Size(Compared, u64),
    /// In units of so many seconds before now, rounded down.
    Age(Compared, i64),
    Newer(Timestamp),
    Uid(Compared),
    Gid(Compared),
    Mode(ModeTest),
    Empty,
    /// Everything passes, and is printed with this byte behind it.
    Print(u8),
}

/// `5`, `+5` or `-5`.
#[derive(Clone, Copy, Debug)]
enum Compared {
    Is(u64),
    More(u64),
    Less(u64),
}

/// `644`, `-644` (all of these) or `/644` (any of these).
#[derive(Clone, Copy, Debug)]
enum ModeTest {
    Is(u32),
    All(u32),
    Any(u32),
}

/// Who knows numbers of owners, and times.
pub trait FindNames {
    /// The number of a user's name.
    fn uid(&self, name: &str) -> Option<u32>;
    /// The number of a group's name.
    fn gid(&self, name: &str) -> Option<u32>;
    /// The time that a text says.
    fn time(&self, text: &str) -> Option<Timestamp>;
    /// When the file that a path leads to was changed.
    fn mtime(&self, path: &str) -> Option<Timestamp>;
}

impl FindExpression {
    /// Reads the words of an expression; none are one that every file passes.
    ///
    /// # Errors
    /// When it is none: what is wrong, in words.
    pub fn new(words: &[String], names: &dyn FindNames) -> Result<Self, FindError> {
        let mut reader = FindReader { words, at: 0, names, depth: (0, usize::MAX), prints: true };
        let test = if words.is_empty() { FindTest::All(Vec::new()) } else { reader.any()? };
        if let Some(word) = reader.words.get(reader.at) {
            return Err(FindError(format!("{word}: there is no ( before it")));
        }
        let ((depth_min, depth_max), prints) = (reader.depth, reader.prints);
        Ok(Self { test, depth_min, depth_max, prints })
    }

    /// What it has to know of files.
    #[must_use]
    pub fn facts(&self) -> FileFacts {
        self.test.facts()
    }

    /// Tests a file. As often as it is to be printed, the byte that ends its name, a newline or a NUL, is
    /// put behind `ends`. `is_empty` is asked of directories alone, and only where it counts.
    ///
    /// # Errors
    /// Those of `is_empty`. What the file is to be printed for until then is in `ends`.
    pub fn test<E>(
        &self,
        file: &FindFile<'_>,
        now: Timestamp,
        is_empty: &mut dyn FnMut() -> Result<bool, E>,
        ends: &mut Vec<u8>,
    ) -> Result<(), E> {
        let is_deep = (self.depth_min..=self.depth_max).contains(&file.depth);
        if is_deep && self.test.passes(file, now, is_empty, ends)? && self.prints {
            ends.push(b'\n');
        }
        Ok(())
    }
}

impl FindTest {
    fn facts(&self) -> FileFacts {
        match self {
            Self::All(tests) | Self::Any(tests) => {
                tests.iter().map(Self::facts).max().unwrap_or(FileFacts::Kind)
            }
            Self::Not(test) => test.facts(),
            Self::Name(_) | Self::Path(_) | Self::Kinds(_) | Self::Print(_) => FileFacts::Kind,
            Self::Size(..)
            | Self::Age(..)
            | Self::Newer(_)
            | Self::Uid(_)
            | Self::Gid(_)
            | Self::Mode(_)
            | Self::Empty => FileFacts::Status,
        }
    }

    fn passes<E>(
        &self,
        file: &FindFile<'_>,
        now: Timestamp,
        is_empty: &mut dyn FnMut() -> Result<bool, E>,
        ends: &mut Vec<u8>,
    ) -> Result<bool, E> {
        Ok(match self {
            Self::All(tests) => {
                for test in tests {
                    if !test.passes(file, now, is_empty, ends)? {
                        return Ok(false);
                    }
                }
                true
            }
            Self::Any(tests) => {
                for test in tests {
                    if test.passes(file, now, is_empty, ends)? {
                        return Ok(true);
                    }
                }
                false
            }
            Self::Not(test) => !test.passes(file, now, is_empty, ends)?,
            Self::Name(pattern) => {
                let name = file.path.file_name().unwrap_or(file.path.as_os_str());
                pattern.matches(name.as_bytes())
            }
            Self::Path(pattern) => pattern.matches(file.path.as_os_str().as_bytes()),
            Self::Kinds(kinds) => kinds.contains(&file.kind),
            Self::Size(compared, unit) => compared.is_met(file.size.div_ceil(*unit)),
            Self::Age(compared, unit) => {
                let nanoseconds = now.nanoseconds < file.mtime.nanoseconds;
                let age = now.seconds - file.mtime.seconds - i64::from(nanoseconds);
                let age = age.div_euclid(*unit);
                match compared {
                    Compared::Less(number) => age < number.cast_signed(),
                    compared => u64::try_from(age).is_ok_and(|age| compared.is_met(age)),
                }
            }
            Self::Newer(time) => file.mtime > *time,
            Self::Uid(compared) => compared.is_met(file.uid.into()),
            Self::Gid(compared) => compared.is_met(file.gid.into()),
            Self::Mode(ModeTest::Is(mode)) => file.mode == *mode,
            Self::Mode(ModeTest::All(mode)) => file.mode & mode == *mode,
            Self::Mode(ModeTest::Any(mode)) => *mode == 0 || file.mode & mode != 0,
            Self::Empty => match file.kind {
                FileKind::File => file.size == 0,
                FileKind::Directory => is_empty()?,
                _ => false,
            },
            Self::Print(end) => {
                ends.push(*end);
                true
            }
        })
    }
}

impl Compared {
    fn is_met(self, number: u64) -> bool {
        match self {
            Self::Is(this) => number == this,
            Self::More(this) => number > this,
            Self::Less(this) => number < this,
        }
    }
}

/// Reads words from the left to the right.
struct FindReader<'a> {
    words: &'a [String],
    at: usize,
    names: &'a dyn FindNames,
    depth: (usize, usize),
    prints: bool,
}

impl<'a> FindReader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(String::as_str)
    }

    /// Tests of which one is to be passed.
    fn any(&mut self) -> Result<FindTest, FindError> {
        let mut tests = vec![self.all()?];
        while matches!(self.peek(), Some("-o" | "-or")) {
            self.at += 1;
            tests.push(self.all()?);
        }
        Ok(if tests.len() == 1 { tests.remove(0) } else { FindTest::Any(tests) })
    }

    /// Tests that are all to be passed.
    fn all(&mut self) -> Result<FindTest, FindError> {
        let mut tests = vec![self.one()?];
        loop {
            match self.peek() {
                None | Some("-o" | "-or" | ")") => return Ok(FindTest::All(tests)),
                Some("-a" | "-and") => self.at += 1,
                Some(_) => {}
            }
            tests.push(self.one()?);
        }
    }

    fn one(&mut self) -> Result<FindTest, FindError> {
        let word = self.peek().ok_or_else(|| FindError("a test is missing at the end".into()))?;
        self.at += 1;
        match word {
            "!" | "-not" => return Ok(FindTest::Not(Box::new(self.one()?))),
            "(" => {
                let within = self.any()?;
                if self.peek() != Some(")") {
                    return Err(FindError("a ( has no )".to_owned()));
                }
                self.at += 1;
                return Ok(within);
            }
            "-empty" => return Ok(FindTest::Empty),
            "-true" => return Ok(FindTest::All(Vec::new())),
            "-false" => return Ok(FindTest::Any(Vec::new())),
            "-print" | "-print0" => {
                self.prints = false;
                return Ok(FindTest::Print(if word == "-print" { b'\n' } else { b'\0' }));
            }
            "-o" | "-or" | "-a" | "-and" | ")" => {
                return Err(FindError(format!("{word}: a test is missing before it")));
            }
            _ => {}
        }
        const WITH_VALUE: &[&str] = &[
            "-name",
            "-iname",
            "-path",
            "-wholename",
            "-ipath",
            "-type",
            "-size",
            "-mtime",
            "-mmin",
            "-newer",
            "-newermt",
            "-uid",
            "-gid",
            "-user",
            "-group",
            "-perm",
            "-maxdepth",
            "-mindepth",
        ];
        if !WITH_VALUE.contains(&word) {
            return Err(FindError(format!(
                "{word}: no such test; sheaf archive find --help lists them"
            )));
        }
        let value =
            self.peek().ok_or_else(|| FindError(format!("{word}: its value is missing")))?;
        self.at += 1;
        let wrong = || FindError(format!("{word} {value}: {}", what_it_takes(word)));
        self.with_value(word, value).ok_or_else(wrong)
    }

    fn with_value(&mut self, word: &str, value: &str) -> Option<FindTest> {
        const DAY: i64 = 24 * 3600;
        let number = |text: &str| text.parse().ok();
        Some(match word {
            "-name" => FindTest::Name(TextPattern::new(value, false)),
            "-iname" => FindTest::Name(TextPattern::new(value, true)),
            "-path" | "-wholename" => FindTest::Path(TextPattern::new(value, false)),
            "-ipath" => FindTest::Path(TextPattern::new(value, true)),
            "-type" => {
                let kinds: Option<_> = value.split(',').map(kind).collect();
                FindTest::Kinds(kinds?)
            }
            "-size" => {
                let (digits, unit) = match value.as_bytes().last()? {
                    b'c' => (&value[..value.len() - 1], 1),
                    b'w' => (&value[..value.len() - 1], 2),
                    b'b' => (&value[..value.len() - 1], 512),
                    b'k' => (&value[..value.len() - 1], 1 << 10),
                    b'M' => (&value[..value.len() - 1], 1 << 20),
                    b'G' => (&value[..value.len() - 1], 1 << 30),
                    _ => (value, 512),
                };
                FindTest::Size(compared(digits, number)?, unit)
            }
            "-mtime" => FindTest::Age(compared(value, number)?, DAY),
            "-mmin" => FindTest::Age(compared(value, number)?, 60),
            "-newer" => FindTest::Newer(self.names.mtime(value)?),
            "-newermt" => FindTest::Newer(self.names.time(value)?),
            "-uid" => FindTest::Uid(compared(value, number)?),
            "-gid" => FindTest::Gid(compared(value, number)?),
            "-user" => {
                let user = self.names.uid(value).map(u64::from).or_else(|| number(value))?;
                FindTest::Uid(Compared::Is(user))
            }
            "-group" => {
                let group = self.names.gid(value).map(u64::from).or_else(|| number(value))?;
                FindTest::Gid(Compared::Is(group))
            }
            "-perm" => {
                let mode = |text| u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
                FindTest::Mode(match value.as_bytes().first()? {
                    b'-' => ModeTest::All(mode(&value[1..])?),
                    b'/' => ModeTest::Any(mode(&value[1..])?),
                    _ => ModeTest::Is(mode(value)?),
                })
            }
            "-maxdepth" => {
                self.depth.1 = value.parse().ok()?;
                FindTest::All(Vec::new())
            }
            _ => {
                self.depth.0 = value.parse().ok()?;
                FindTest::All(Vec::new())
            }
        })
    }
}

fn what_it_takes(word: &str) -> &'static str {
    match word {
        "-type" => "it takes letters of f d l p s c b, with commas between them",
        "-size" => "it takes a number with c w b k M G behind it, and + or - before it",
        "-mtime" | "-mmin" | "-uid" | "-gid" => "it takes a number, with + or - before it",
        "-newer" => "it takes a file of this machine",
        "-newermt" => "it takes a time, as 2026-01-31 or 2026-01-31T18:04",
        "-user" => "there is no such user",
        "-group" => "there is no such group",
        "-perm" => "it takes octal digits, with - or / before them",
        "-maxdepth" | "-mindepth" => "it takes a number",
        _ => "it takes something else",
    }
}

fn compared(text: &str, number: impl Fn(&str) -> Option<u64>) -> Option<Compared> {
    let digits = text.trim_start_matches(['+', '-']);
    if text.len() - digits.len() > 1 {
        return None;
    }
    let number = number(digits)?;
    Some(match text.as_bytes().first()? {
        b'+' => Compared::More(number),
        b'-' => Compared::Less(number),
        _ => Compared::Is(number),
    })
}

fn kind(letter: &str) -> Option<FileKind> {
    Some(match letter {
        "f" => FileKind::File,
        "d" => FileKind::Directory,
        "l" => FileKind::Symlink,
        "p" => FileKind::Fifo,
        "s" => FileKind::Socket,
        "c" => FileKind::CharDevice,
        "b" => FileKind::BlockDevice,
        _ => return None,
    })
}
