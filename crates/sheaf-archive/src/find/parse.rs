//! Reading expressions.
use super::format::FindFormat;
use super::regex::RegexType;
use super::test::{AgeTest, Compared, FindTest, ModeTest};
use super::{FindError, FindExpression, FindHas, FindSettings, FindTime};
use sheaf_core::files::FileKind;
use sheaf_file::{ModeChange, TextPattern};

const DAY_S: i64 = 24 * 3600;
/// How deep `(` and `!` may be within each other.
const NEST_MAX: usize = 250;

/// Words that have a value behind them.
const WITH_VALUE: &[&str] = &[
    "-name",
    "-iname",
    "-path",
    "-wholename",
    "-ipath",
    "-iwholename",
    "-regex",
    "-iregex",
    "-regextype",
    "-type",
    "-size",
    "-mtime",
    "-mmin",
    "-ctime",
    "-cmin",
    "-atime",
    "-amin",
    "-newer",
    "-anewer",
    "-cnewer",
    "-uid",
    "-gid",
    "-user",
    "-group",
    "-perm",
    "-links",
    "-inum",
    "-maxdepth",
    "-mindepth",
    "-printf",
];

pub(super) fn expression(
    words: &[String],
    settings: &FindSettings<'_>,
) -> Result<FindExpression, FindError> {
    let mut reader = FindReader {
        words,
        at: 0,
        within: 0,
        settings,
        regex_type: RegexType::Unsaid,
        depths: (0, usize::MAX),
        prints: true,
        contents_first: false,
        one_file_system: false,
        has: FindHas::default(),
    };
    let test = if words.is_empty() { FindTest::always() } else { reader.each()? };
    // Only a `)` ends the reading before the last word.
    if let Some(word) = reader.words.get(reader.at) {
        return Err(FindError(format!("{word}: there is no ( before it")));
    }
    let FindReader { depths, prints, contents_first, one_file_system, has, .. } = reader;
    if has.deletes && has.prunes && !contents_first {
        let text = "-delete takes what is in a directory first, where -prune does nothing: \
                    say -depth as well if that is meant";
        return Err(FindError(text.to_owned()));
    }
    // A directory can be removed only when what is in it is gone.
    let contents_first = contents_first || has.deletes;
    let facts = test.facts();
    Ok(FindExpression { test, facts, depths, prints, contents_first, one_file_system, has })
}

/// Reads words from the left to the right.
struct FindReader<'a> {
    words: &'a [String],
    at: usize,
    /// How many `(` and `!` it is in.
    within: usize,
    settings: &'a FindSettings<'a>,
    regex_type: RegexType,
    depths: (usize, usize),
    prints: bool,
    contents_first: bool,
    one_file_system: bool,
    has: FindHas,
}

impl<'a> FindReader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(String::as_str)
    }

    /// Tests of which the last one counts.
    fn each(&mut self) -> Result<FindTest, FindError> {
        let mut tests = vec![self.any()?];
        while self.peek() == Some(",") {
            self.at += 1;
            tests.push(self.any()?);
        }
        Ok(if tests.len() == 1 { tests.remove(0) } else { FindTest::Each(tests) })
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
                None | Some("-o" | "-or" | ")" | ",") => return Ok(FindTest::All(tests)),
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
            "!" | "-not" | "(" => {
                self.within += 1;
                // Reading and testing call themselves for each, and the stack has an end.
                if self.within > NEST_MAX {
                    return Err(FindError(format!(
                        "more than {NEST_MAX} of ( and ! in each other"
                    )));
                }
                let within = if word == "(" { self.group() } else { self.not() };
                self.within -= 1;
                within
            }
            "-o" | "-or" | "-a" | "-and" | ")" | "," => {
                Err(FindError(format!("{word}: a test is missing before it")))
            }
            _ => match self.alone(word)? {
                Some(test) => Ok(test),
                None => self.with_value(word),
            },
        }
    }

    fn not(&mut self) -> Result<FindTest, FindError> {
        Ok(FindTest::Not(Box::new(self.one()?)))
    }

    fn group(&mut self) -> Result<FindTest, FindError> {
        let within = self.each()?;
        if self.peek() != Some(")") {
            return Err(FindError("a ( has no )".to_owned()));
        }
        self.at += 1;
        Ok(within)
    }

    /// A word without a value.
    fn alone(&mut self, word: &str) -> Result<Option<FindTest>, FindError> {
        Ok(Some(match word {
            "-empty" => {
                self.has.empty = true;
                FindTest::Empty
            }
            "-true" => FindTest::always(),
            "-false" => FindTest::Any(Vec::new()),
            "-depth" => {
                self.contents_first = true;
                FindTest::always()
            }
            "-xdev" | "-mount" => {
                self.one_file_system = true;
                FindTest::always()
            }
            "-prune" => {
                self.has.prunes = true;
                FindTest::Prune
            }
            "-quit" => {
                self.has.quits = true;
                FindTest::Quit
            }
            "-print" | "-print0" => {
                self.prints = false;
                FindTest::Print(if word == "-print" { b'\n' } else { b'\0' })
            }
            "-ls" => {
                self.prints = false;
                self.unarchived(word);
                self.has.formats.get_or_insert_with(|| word.to_owned());
                FindTest::Format(FindFormat::list(self.settings.words.clone()))
            }
            "-delete" => {
                self.prints = false;
                self.has.deletes = true;
                FindTest::Delete
            }
            "-exec" | "-execdir" | "-ok" | "-okdir" => {
                let text = format!("{word}: find runs no programs here; -print0 | xargs -0 does");
                return Err(FindError(text));
            }
            _ => return Ok(None),
        }))
    }

    /// Of files of this machine alone something is known.
    fn unarchived(&mut self, word: &str) {
        self.has.unarchived.get_or_insert_with(|| word.to_owned());
    }

    fn with_value(&mut self, word: &str) -> Result<FindTest, FindError> {
        let times = newer(word);
        if times.is_none() && !WITH_VALUE.contains(&word) {
            let hint = match word.strip_prefix("--") {
                Some(_) => "options stand before the names",
                None => "sheaf archive find --help lists them",
            };
            return Err(FindError(format!("{word}: no such test; {hint}")));
        }
        let value =
            self.peek().ok_or_else(|| FindError(format!("{word}: its value is missing")))?;
        self.at += 1;
        let test = match (word, times) {
            (_, Some((own, other))) => {
                self.know_time(own, word);
                self.reference(value, other).map(|time| FindTest::Newer(own, time))
            }
            ("-regex" | "-iregex", _) => {
                let regex = self.regex_type.regex(value, word == "-iregex");
                let wrong = |FindError(why)| FindError(format!("{word} {value}: {why}"));
                Some(FindTest::Regex(regex.map_err(wrong)?))
            }
            ("-printf", _) => {
                let (format, unarchived) = FindFormat::new(value, self.settings.words.clone())?;
                if let Some(directive) = unarchived {
                    self.unarchived(&format!("-printf {directive}"));
                }
                self.prints = false;
                self.has.formats.get_or_insert_with(|| word.to_owned());
                Some(FindTest::Format(format))
            }
            _ => self.value(word, value),
        };
        test.ok_or_else(|| FindError(format!("{word} {value}: {}", what_it_takes(word))))
    }

    fn know_time(&mut self, time: FindTime, word: &str) {
        if time != FindTime::Modified {
            self.unarchived(word);
        }
    }

    /// What `-newerXY` compares with.
    fn reference(
        &self,
        value: &str,
        other: Option<FindTime>,
    ) -> Option<sheaf_core::files::Timestamp> {
        match other {
            Some(which) => self.settings.names.time_of(value, which),
            None => self.settings.names.time(value),
        }
    }

    fn value(&mut self, word: &str, value: &str) -> Option<FindTest> {
        let names = self.settings.names;
        Some(match word {
            "-name" => FindTest::Name(TextPattern::new(value, false)),
            "-iname" => FindTest::Name(TextPattern::new(value, true)),
            "-path" | "-wholename" => FindTest::Path(TextPattern::new(value, false)),
            "-ipath" | "-iwholename" => FindTest::Path(TextPattern::new(value, true)),
            "-regextype" => {
                self.regex_type = RegexType::named(value)?;
                FindTest::always()
            }
            "-type" => {
                let kinds: Option<_> = value.split(',').map(kind).collect();
                FindTest::Kinds(kinds?)
            }
            "-size" => size(value)?,
            "-mtime" => self.age(FindTime::Modified, word, value, DAY_S)?,
            "-mmin" => self.age(FindTime::Modified, word, value, 60)?,
            "-ctime" => self.age(FindTime::Changed, word, value, DAY_S)?,
            "-cmin" => self.age(FindTime::Changed, word, value, 60)?,
            "-atime" => self.age(FindTime::Accessed, word, value, DAY_S)?,
            "-amin" => self.age(FindTime::Accessed, word, value, 60)?,
            "-uid" => FindTest::Uid(compared(value)?),
            "-gid" => FindTest::Gid(compared(value)?),
            "-user" => {
                // A name may be digits: only what is no name is taken for a number, as POSIX says.
                let user = names.uid(value).map(u64::from).or_else(|| value.parse().ok())?;
                FindTest::Uid(Compared::Is(user))
            }
            "-group" => {
                let group = names.gid(value).map(u64::from).or_else(|| value.parse().ok())?;
                FindTest::Gid(Compared::Is(group))
            }
            "-perm" => FindTest::Mode(match value.as_bytes().first()? {
                b'-' => ModeTest::All(modes(&value[1..])?),
                b'/' => ModeTest::Any(modes(&value[1..])?),
                _ => ModeTest::Is(modes(value)?),
            }),
            "-links" => {
                self.unarchived(word);
                FindTest::Links(compared(value)?)
            }
            "-inum" => {
                self.unarchived(word);
                FindTest::Inode(compared(value)?)
            }
            "-maxdepth" => {
                self.depths.1 = value.parse().ok()?;
                FindTest::always()
            }
            _ => {
                self.depths.0 = value.parse().ok()?;
                FindTest::always()
            }
        })
    }

    fn age(&mut self, time: FindTime, word: &str, value: &str, unit_s: i64) -> Option<FindTest> {
        self.know_time(time, word);
        let (compared, now) = (compared(value)?, self.settings.now);
        Some(FindTest::Age(AgeTest { time, compared, unit_s, now }))
    }
}

/// What a word that compares times compares: one of the file's with one of another's, or with one that
/// is said.
fn newer(word: &str) -> Option<(FindTime, Option<FindTime>)> {
    let time = |letter| {
        Some(match letter {
            b'a' => FindTime::Accessed,
            b'c' => FindTime::Changed,
            b'm' => FindTime::Modified,
            _ => return None,
        })
    };
    match word {
        "-newer" => Some((FindTime::Modified, Some(FindTime::Modified))),
        "-anewer" => Some((FindTime::Accessed, Some(FindTime::Modified))),
        "-cnewer" => Some((FindTime::Changed, Some(FindTime::Modified))),
        _ => match *word.strip_prefix("-newer")?.as_bytes() {
            [own, b't'] => Some((time(own)?, None)),
            [own, other] => Some((time(own)?, Some(time(other)?))),
            _ => None,
        },
    }
}

fn what_it_takes(word: &str) -> &'static str {
    match word {
        "-type" => "it takes letters of f d l p s c b, with commas between them",
        "-size" => "it takes a number with c w b k M G behind it, and + or - before it",
        "-mtime" | "-mmin" | "-ctime" | "-cmin" | "-atime" | "-amin" | "-uid" | "-gid"
        | "-links" | "-inum" => "it takes a number, with + or - before it",
        "-regextype" => {
            "it takes posix-extended or posix-basic, ed and sed; others are not known here"
        }
        "-user" => "there is no such user",
        "-group" => "there is no such group",
        "-perm" => "it takes octal digits or clauses as u+x,g=r, with - or / before them",
        "-maxdepth" | "-mindepth" => "it takes a number",
        _ if word.starts_with("-newer") && word.ends_with('t') => {
            "it takes a time, as 2026-01-31 or 2026-01-31T18:04"
        }
        _ => "it takes a file that is there",
    }
}

fn compared(text: &str) -> Option<Compared> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    // `parse` would take another sign.
    if !digits.starts_with(|digit: char| digit.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse().ok()?;
    Some(match text.as_bytes().first()? {
        b'+' => Compared::More(number),
        b'-' => Compared::Less(number),
        _ => Compared::Is(number),
    })
}

fn size(value: &str) -> Option<FindTest> {
    let unit = match value.as_bytes().last()? {
        b'c' => Some(1),
        b'w' => Some(2),
        b'b' => Some(512),
        b'k' => Some(1 << 10),
        b'M' => Some(1 << 20),
        b'G' => Some(1 << 30),
        _ => None,
    };
    let digits = &value[..value.len() - usize::from(unit.is_some())];
    Some(FindTest::Size(compared(digits)?, unit.unwrap_or(512)))
}

/// The bits that files and directories would have that had none before.
fn modes(text: &str) -> Option<[u32; 2]> {
    let change = ModeChange::parse(text, 0).ok()?;
    Some([change.apply(0, false), change.apply(0, true)])
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
