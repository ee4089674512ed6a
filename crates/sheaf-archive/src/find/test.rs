//! Tests of a file, and what is done with it.
use super::format::FindFormat;
use super::{FindAsks, FindFile, FindOutcome, FindPrint, FindTime};
use crate::walk::FileFacts;
use regex_automata::meta::Regex;
use sheaf_core::files::{FileKind, Timestamp};
use sheaf_file::TextPattern;

#[derive(Debug)]
pub(super) enum FindTest {
    All(Vec<Self>),
    Any(Vec<Self>),
    /// Each is done, and the last one counts.
    Each(Vec<Self>),
    Not(Box<Self>),
    Name(TextPattern),
    Path(TextPattern),
    Regex(Regex),
    Kinds(Vec<FileKind>),
    /// In units of so many bytes, rounded up.
    Size(Compared, u64),
    Age(AgeTest),
    Newer(FindTime, Timestamp),
    Uid(Compared),
    Gid(Compared),
    Mode(ModeTest),
    Links(Compared),
    Inode(Compared),
    Empty,
    /// Everything passes, and is printed with this byte behind it.
    Print(u8),
    Format(FindFormat),
    Prune,
    Quit,
    Delete,
}

/// How long ago something was, in units of so many seconds, rounded down.
#[derive(Clone, Copy, Debug)]
pub(super) struct AgeTest {
    pub time: FindTime,
    pub compared: Compared,
    pub unit_s: i64,
    pub now: Timestamp,
}

/// The unit of ages in minutes.
const MINUTE_S: i64 = 60;

/// `5`, `+5` or `-5`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Compared {
    Is(u64),
    More(u64),
    Less(u64),
}

/// `644`, `-644` (all of these) or `/644` (any of these): for files, and for directories, for which `X`
/// is another bit.
#[derive(Clone, Copy, Debug)]
pub(super) enum ModeTest {
    Is([u32; 2]),
    All([u32; 2]),
    Any([u32; 2]),
}

impl FindTest {
    /// Passed by everything.
    pub fn always() -> Self {
        Self::All(Vec::new())
    }

    pub fn facts(&self) -> FileFacts {
        match self {
            Self::All(tests) | Self::Any(tests) | Self::Each(tests) => {
                tests.iter().map(Self::facts).max().unwrap_or(FileFacts::Kind)
            }
            Self::Not(test) => test.facts(),
            Self::Format(format) => format.facts(),
            Self::Name(_)
            | Self::Path(_)
            | Self::Regex(_)
            | Self::Kinds(_)
            | Self::Print(_)
            | Self::Prune
            | Self::Quit
            | Self::Delete => FileFacts::Kind,
            Self::Size(..)
            | Self::Age(..)
            | Self::Newer(..)
            | Self::Uid(_)
            | Self::Gid(_)
            | Self::Mode(_)
            | Self::Links(_)
            | Self::Inode(_)
            | Self::Empty => FileFacts::Status,
        }
    }

    /// Whether a file passes. Behind a `-quit` nothing is tested, and what is said does not count.
    pub fn passes<E>(
        &self,
        file: &FindFile<'_>,
        asks: &mut dyn FindAsks<E>,
        outcome: &mut FindOutcome,
    ) -> Result<bool, E> {
        Ok(match self {
            Self::All(tests) => {
                for test in tests {
                    if !test.passes(file, asks, outcome)? || outcome.quits {
                        return Ok(false);
                    }
                }
                true
            }
            Self::Any(tests) => {
                for test in tests {
                    if test.passes(file, asks, outcome)? || outcome.quits {
                        return Ok(true);
                    }
                }
                false
            }
            Self::Each(tests) => {
                let mut last = true;
                for test in tests {
                    last = test.passes(file, asks, outcome)?;
                    if outcome.quits {
                        break;
                    }
                }
                last
            }
            Self::Not(test) => !test.passes(file, asks, outcome)?,
            Self::Name(pattern) => pattern.matches(file.name()),
            Self::Path(pattern) => pattern.matches(file.place.path),
            Self::Regex(regex) => regex.is_match(file.place.path),
            Self::Kinds(kinds) => kinds.contains(&file.kind),
            Self::Size(compared, unit) => compared.is_met(file.size.div_ceil(*unit)),
            Self::Age(age) => age.is_met(file),
            Self::Newer(which, time) => file.time(*which) > *time,
            Self::Uid(compared) => compared.is_met(file.uid.into()),
            Self::Gid(compared) => compared.is_met(file.gid.into()),
            Self::Mode(mode) => mode.is_met(file.mode, file.kind == FileKind::Directory),
            Self::Links(compared) => compared.is_met(file.fact(|status| status.nlink).into()),
            Self::Inode(compared) => compared.is_met(file.fact(|status| status.ino)),
            Self::Empty => match file.kind {
                FileKind::File => file.size == 0,
                FileKind::Directory => asks.is_empty()?,
                _ => false,
            },
            Self::Print(_) | Self::Format(_) | Self::Prune | Self::Quit | Self::Delete => {
                return self.act(file, asks, outcome);
            }
        })
    }

    fn act<E>(
        &self,
        file: &FindFile<'_>,
        asks: &mut dyn FindAsks<E>,
        outcome: &mut FindOutcome,
    ) -> Result<bool, E> {
        match self {
            Self::Print(end) => outcome.prints.push(FindPrint::Path(*end)),
            Self::Format(format) => {
                format.put(file, asks, &mut outcome.text)?;
                outcome.prints.push(FindPrint::Text(outcome.text.len()));
            }
            Self::Prune => outcome.is_pruned = true,
            Self::Delete => return Ok(asks.remove()),
            _ => outcome.quits = true,
        }
        Ok(true)
    }
}

impl AgeTest {
    fn is_met(&self, file: &FindFile<'_>) -> bool {
        let time = file.time(self.time);
        if self.unit_s == MINUTE_S {
            return self.is_met_exactly(time);
        }
        // Seconds are rounded down, as days are.
        let part = i64::from(self.now.nanoseconds < time.nanoseconds);
        let age = self.now.seconds.saturating_sub(time.seconds).saturating_sub(part);
        let age = age.div_euclid(self.unit_s);
        match self.compared {
            // A time in the future has a negative age, which is less than each number.
            Compared::Less(number) => i64::try_from(number).map_or(true, |number| age < number),
            compared => u64::try_from(age).is_ok_and(|age| compared.is_met(age)),
        }
    }
}

impl AgeTest {
    /// Minutes are not rounded: more and less than so many, and the one before they are full.
    fn is_met_exactly(&self, time: Timestamp) -> bool {
        const SECOND_NS: i128 = 1_000_000_000;
        let of =
            |time: Timestamp| i128::from(time.seconds) * SECOND_NS + i128::from(time.nanoseconds);
        let (age, unit) = (of(self.now) - of(time), i128::from(self.unit_s) * SECOND_NS);
        match self.compared {
            Compared::More(number) => age > i128::from(number) * unit,
            Compared::Less(number) => age < i128::from(number) * unit,
            Compared::Is(number) => {
                let end = i128::from(number) * unit;
                (end - unit..end).contains(&age)
            }
        }
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

impl ModeTest {
    fn is_met(self, mode: u32, is_directory: bool) -> bool {
        let of = |modes: [u32; 2]| modes[usize::from(is_directory)];
        match self {
            Self::Is(modes) => mode == of(modes),
            Self::All(modes) => mode & of(modes) == of(modes),
            // `/0` asks for no bit, and each file passes, as in GNU find.
            Self::Any(modes) => of(modes) == 0 || mode & of(modes) != 0,
        }
    }
}
