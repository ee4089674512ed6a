//! Perl's regular expressions, as PCRE reads them and the `regex` crates know them.
use super::pattern::{NEST_MAX, wrong};
use super::{ArchiveGrepError, ArchiveGrepOptions};
use regex_syntax::hir::{Class, ClassBytes, ClassBytesRange, Hir, HirKind, Look, Repetition};
use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

/// An expression of the `regex` crates' own, which is Perl's but for what looks around and back.
pub(super) fn expression(
    text: &[u8],
    options: &ArchiveGrepOptions,
) -> Result<Hir, ArchiveGrepError> {
    let text = std::str::from_utf8(text)
        .map_err(|_| ArchiveGrepError("a pattern of -P is to be UTF-8".to_owned()))?;
    let hir = regex_syntax::ParserBuilder::new()
        .utf8(false)
        .unicode(options.is_utf8)
        .multi_line(true)
        .case_insensitive(options.ignore_case)
        .nest_limit(NEST_MAX as u32)
        .build()
        .parse(&PerlReader::new(text).read()?);
    let hir = hir.map_err(|error| ArchiveGrepError(error.to_string().replace('\n', " ")))?;
    without_line_ends(hir)
}

/// The same, matching no end of a line.
fn without_line_ends(hir: Hir) -> Result<Hir, ArchiveGrepError> {
    let each =
        |all: Vec<Hir>| all.into_iter().map(without_line_ends).collect::<Result<Vec<_>, _>>();
    Ok(match hir.into_kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) if literal.0.contains(&b'\n') => {
            return Err(ArchiveGrepError("a match cannot go beyond its line".to_owned()));
        }
        HirKind::Literal(literal) => Hir::literal(literal.0),
        HirKind::Class(class) => Hir::class(no_line_end(class)),
        HirKind::Look(look) => Hir::look(match look {
            Look::Start => Look::StartLF,
            Look::End => Look::EndLF,
            look => look,
        }),
        HirKind::Repetition(of) => {
            let sub = Box::new(without_line_ends(*of.sub)?);
            Hir::repetition(Repetition { sub, ..of })
        }
        HirKind::Capture(group) => without_line_ends(*group.sub)?,
        HirKind::Concat(all) => Hir::concat(each(all)?),
        HirKind::Alternation(all) => Hir::alternation(each(all)?),
    })
}

pub(super) fn no_line_end(class: Class) -> Class {
    match class {
        Class::Bytes(mut class) => {
            class.difference(&ClassBytes::new([ClassBytesRange::new(b'\n', b'\n')]));
            Class::Bytes(class)
        }
        Class::Unicode(mut class) => {
            class.difference(&ClassUnicode::new([ClassUnicodeRange::new('\n', '\n')]));
            Class::Unicode(class)
        }
    }
}

/// Writes a pattern as the `regex` crates read it.
///
/// To them some of what is text to PCRE is more (`\<`, `[a&&b]`, `[a[b]`), or wrong (`a{`, `\_`), and some of
/// what is wrong to PCRE is a pattern (`a**`).
struct PerlReader<'a> {
    rest: std::iter::Peekable<std::str::CharIndices<'a>>,
    text: &'a str,
    out: String,
    /// Whether what was read last may be repeated.
    is_repeatable: bool,
}

impl<'a> PerlReader<'a> {
    fn new(text: &'a str) -> Self {
        let rest = text.char_indices().peekable();
        Self { rest, text, out: String::new(), is_repeatable: false }
    }

    fn read(mut self) -> Result<String, ArchiveGrepError> {
        while let Some((at, c)) = self.rest.next() {
            match c {
                '\\' => self.escaped(false)?,
                '[' => self.class(at)?,
                '*' | '+' | '?' => self.repeated(&c.to_string())?,
                '{' => match interval(&self.text[at..]) {
                    Some(text) => {
                        // The brace was taken, and `nth` takes one more than it counts.
                        self.rest.nth(text.len() - 2);
                        self.repeated(text)?;
                    }
                    None => self.literal(c),
                },
                '(' => {
                    self.out.push(c);
                    // What follows says what kind of a group it is.
                    self.out.extend(self.rest.next_if(|(_, c)| *c == '?').map(|(_, c)| c));
                    self.is_repeatable = false;
                }
                '|' | '^' | '$' => {
                    self.out.push(c);
                    self.is_repeatable = false;
                }
                '}' | ']' => self.literal(c),
                c => {
                    self.out.push(c);
                    self.is_repeatable = true;
                }
            }
        }
        Ok(self.out)
    }

    fn literal(&mut self, c: char) {
        self.out.push_str(&regex_syntax::escape(c.encode_utf8(&mut [0; 4])));
        self.is_repeatable = true;
    }

    fn repeated(&mut self, how: &str) -> Result<(), ArchiveGrepError> {
        if !self.is_repeatable {
            return Err(wrong("quantifier does not follow a repeatable item"));
        }
        self.out.push_str(how);
        self.is_repeatable = false;
        match self.rest.peek() {
            Some((_, '?')) => {
                self.rest.next();
                self.out.push('?');
            }
            Some((_, '+')) => {
                return Err(wrong("a repetition that gives nothing back (*+) is not searched for"));
            }
            _ => {}
        }
        Ok(())
    }

    /// What stands behind a backslash.
    fn escaped(&mut self, in_class: bool) -> Result<(), ArchiveGrepError> {
        let (_, c) = self.rest.next().ok_or_else(|| wrong("\\ at end of pattern"))?;
        if !c.is_ascii_alphanumeric() {
            self.literal(c);
            return Ok(());
        }
        self.is_repeatable = !"bBAzZG".contains(c);
        if in_class && c == 'b' {
            self.out.push_str(r"\x08");
            return Ok(());
        }
        self.out.extend(['\\', c]);
        // The braces of a character are no repetition.
        if matches!(c, 'x' | 'p' | 'P') && self.rest.peek().is_some_and(|(_, c)| *c == '{') {
            for (_, c) in self.rest.by_ref() {
                self.out.push(c);
                if c == '}' {
                    break;
                }
            }
        }
        Ok(())
    }

    /// What stands behind a `[`, which is at this byte.
    fn class(&mut self, from: usize) -> Result<(), ArchiveGrepError> {
        self.out.push('[');
        self.out.extend(self.rest.next_if(|(_, c)| *c == '^').map(|(_, c)| c));
        let mut is_first = true;
        while let Some((at, c)) = self.rest.next() {
            match c {
                ']' if !is_first => {
                    self.out.push(c);
                    self.is_repeatable = true;
                    let within = &self.text[from + 1..at];
                    return match within.len() > 2
                        && within.starts_with(':')
                        && within.ends_with(':')
                    {
                        true => Err(wrong("POSIX named classes are supported only within a class")),
                        false => Ok(()),
                    };
                }
                '[' if self.named(at)? => {}
                '\\' => self.escaped(true)?,
                '[' | ']' | '&' | '~' => self.literal(c),
                // The first one and the end of a range; two that follow each other are more to them.
                '-' if is_first => self.literal(c),
                '-' if self.out.ends_with('-') && !self.out.ends_with(r"\-") => self.literal(c),
                c => self.out.push(c),
            }
            is_first = false;
        }
        Err(wrong("missing terminating ] for character class"))
    }

    /// Reads `[:name:]`, which begins at this byte, if it is one.
    fn named(&mut self, at: usize) -> Result<bool, ArchiveGrepError> {
        const NAMES: [&str; 14] = [
            "alpha", "lower", "upper", "alnum", "ascii", "blank", "cntrl", "digit", "graph",
            "print", "punct", "space", "word", "xdigit",
        ];
        let Some((name, _)) = self.text[at..].strip_prefix("[:").and_then(|of| of.split_once(":]"))
        else {
            return Ok(false);
        };
        let bare = name.strip_prefix('^').unwrap_or(name);
        if !bare.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return Ok(false);
        }
        if !NAMES.contains(&bare) {
            return Err(wrong("unknown POSIX class name"));
        }
        let len = "[::]".len() + name.len();
        self.out.push_str(&self.text[at..at + len]);
        self.rest.nth(len - 2);
        Ok(true)
    }
}

/// How often something is repeated, if that is what text begins with.
fn interval(text: &str) -> Option<&str> {
    let (within, _) = text.strip_prefix('{')?.split_once('}')?;
    let (min, max) = within.split_once(',').unwrap_or((within, ""));
    let is_number = |of: &str| of.bytes().all(|byte| byte.is_ascii_digit());
    let is_whole = !min.is_empty() && is_number(min) && is_number(max);
    is_whole.then(|| &text[..within.len() + 2])
}
