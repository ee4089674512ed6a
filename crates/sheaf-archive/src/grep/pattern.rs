//! GNU grep's regular expressions, as the `regex` crates know them.
//!
//! A pattern is read the way GNU's own reader does (`*` at the beginning of a basic expression is a star,
//! `a{x` is text, `\<` is a word's beginning), and becomes the expression's tree without a text between.
//! No part of a match is the end of a line.
use super::perl::{self, no_line_end};
use super::words::first_char;
use super::{ArchiveGrepError, ArchiveGrepOptions, GrepSyntax, classes};
use regex_syntax::hir::{Class, ClassBytes, ClassBytesRange, Hir, Look, Repetition};
use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

/// How deep groups may be within each other.
pub(super) const NEST_MAX: usize = 250;
/// The most that a repetition counts, as in GNU grep.
const REPEAT_MAX: u32 = 32_767;

/// All patterns of the options as one expression; one that nothing matches if there are none.
pub(super) fn expression(options: &ArchiveGrepOptions) -> Result<Hir, ArchiveGrepError> {
    let patterns = options.patterns.iter().flat_map(|text| text.split(|&byte| byte == b'\n'));
    let all: Result<Vec<Hir>, _> = patterns.map(|text| one(text, options)).collect();
    let all = Hir::alternation(all?);
    Ok(if options.line {
        Hir::concat(vec![Hir::look(Look::StartLF), all, Hir::look(Look::EndLF)])
    } else if options.word {
        let (start, end) = if options.is_utf8 {
            (Look::WordStartHalfUnicode, Look::WordEndHalfUnicode)
        } else {
            (Look::WordStartHalfAscii, Look::WordEndHalfAscii)
        };
        Hir::concat(vec![Hir::look(start), all, Hir::look(end)])
    } else {
        all
    })
}

/// A basic or extended expression of UTF-8 that all of a text is to match, ends of lines and all.
pub(crate) fn whole(
    text: &[u8],
    syntax: GrepSyntax,
    ignore_case: bool,
) -> Result<Hir, ArchiveGrepError> {
    let options = ArchiveGrepOptions { syntax, ignore_case, is_utf8: true, ..Default::default() };
    let mut reader = PatternReader::new(text, &options);
    reader.has_lines = true;
    Ok(Hir::concat(vec![Hir::look(Look::Start), reader.read()?, Hir::look(Look::End)]))
}

fn one(text: &[u8], options: &ArchiveGrepOptions) -> Result<Hir, ArchiveGrepError> {
    let mut reader = PatternReader::new(text, options);
    match options.syntax {
        GrepSyntax::Fixed => {
            let mut all = Vec::new();
            while let Some(unit) = reader.unit() {
                all.push(reader.literal(unit));
            }
            Ok(Hir::concat(all))
        }
        GrepSyntax::Perl => perl::expression(text, options),
        GrepSyntax::Basic | GrepSyntax::Extended => reader.read(),
    }
}

/// A character, or where there is none a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatternUnit {
    Char(char),
    Byte(u8),
}

impl PatternUnit {
    fn is(self, c: u8) -> bool {
        self == Self::Char(char::from(c))
    }
}

#[derive(Clone, Debug)]
enum PatternToken {
    End,
    /// What is matched by itself, or a place.
    Atom(Hir),
    Repeat(u32, Option<u32>),
    Open,
    Close,
    Or,
}

struct PatternReader<'a> {
    text: &'a [u8],
    at: usize,
    is_extended: bool,
    is_utf8: bool,
    ignores_case: bool,
    /// Ends of lines are characters as others.
    has_lines: bool,
    /// Nothing but places was read since the beginning, a `(` or a `|`.
    is_start: bool,
    /// Groups that are open.
    open: usize,
    /// The last token was none, a `(` or a `|`.
    after_open: bool,
    token: PatternToken,
}

impl<'a> PatternReader<'a> {
    fn new(text: &'a [u8], options: &ArchiveGrepOptions) -> Self {
        Self {
            text,
            at: 0,
            is_extended: options.syntax == GrepSyntax::Extended,
            is_utf8: options.is_utf8,
            ignores_case: options.ignore_case,
            has_lines: false,
            is_start: true,
            open: 0,
            after_open: true,
            token: PatternToken::End,
        }
    }

    fn read(mut self) -> Result<Hir, ArchiveGrepError> {
        self.next()?;
        let hir = self.any(0)?;
        match self.token {
            PatternToken::End => Ok(hir),
            _ => Err(wrong("Unmatched ) or \\)")),
        }
    }

    fn any(&mut self, depth: usize) -> Result<Hir, ArchiveGrepError> {
        if depth > NEST_MAX {
            return Err(wrong("the pattern's groups are too deep"));
        }
        let mut all = vec![self.all(depth)?];
        while matches!(self.token, PatternToken::Or) {
            self.next()?;
            all.push(self.all(depth)?);
        }
        Ok(Hir::alternation(all))
    }

    fn all(&mut self, depth: usize) -> Result<Hir, ArchiveGrepError> {
        let mut all = Vec::new();
        while !matches!(self.token, PatternToken::End | PatternToken::Or | PatternToken::Close) {
            let mut hir = match std::mem::replace(&mut self.token, PatternToken::End) {
                PatternToken::Atom(hir) => {
                    self.next()?;
                    hir
                }
                PatternToken::Open => {
                    self.next()?;
                    let within = self.any(depth + 1)?;
                    if !matches!(self.token, PatternToken::Close) {
                        return Err(wrong("Unmatched ( or \\("));
                    }
                    self.next()?;
                    within
                }
                // A repetition of nothing.
                other => {
                    self.token = other;
                    Hir::empty()
                }
            };
            while let PatternToken::Repeat(min, max) = self.token {
                let sub = Box::new(hir);
                hir = Hir::repetition(Repetition { min, max, greedy: true, sub });
                self.next()?;
            }
            all.push(hir);
        }
        Ok(Hir::concat(all))
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// The next character.
    fn unit(&mut self) -> Option<PatternUnit> {
        let rest = &self.text[self.at..];
        let first = *rest.first()?;
        if first.is_ascii() || !self.is_utf8 {
            self.at += 1;
            let is_ascii = first.is_ascii();
            return Some(if is_ascii {
                PatternUnit::Char(first.into())
            } else {
                PatternUnit::Byte(first)
            });
        }
        let Some(c) = first_char(rest) else {
            self.at += 1;
            return Some(PatternUnit::Byte(first));
        };
        self.at += c.len_utf8();
        Some(PatternUnit::Char(c))
    }

    fn next(&mut self) -> Result<(), ArchiveGrepError> {
        self.token = self.read_token()?;
        self.after_open = matches!(self.token, PatternToken::Open | PatternToken::Or);
        Ok(())
    }

    /// Places leave it a start.
    fn place(look: Look) -> Result<PatternToken, ArchiveGrepError> {
        Ok(PatternToken::Atom(Hir::look(look)))
    }

    fn read_token(&mut self) -> Result<PatternToken, ArchiveGrepError> {
        let from = self.at;
        let Some(unit) = self.unit() else { return Ok(PatternToken::End) };
        let (unit, escaped) = if unit.is(b'\\') {
            (self.unit().ok_or_else(|| wrong("Trailing backslash"))?, true)
        } else {
            (unit, false)
        };
        let PatternUnit::Char(c) = unit else { return Ok(self.text_token(unit)) };
        // In a basic expression operators have a backslash, in an extended one they have none.
        let is_operator = escaped != self.is_extended;
        match c {
            '^' if !escaped && (self.is_extended || self.after_open || from == 0) => {
                return Self::place(Look::StartLF);
            }
            '$' if !escaped && (self.is_extended || self.is_end()) => {
                return Self::place(Look::EndLF);
            }
            '(' if is_operator => {
                self.open += 1;
                self.is_start = true;
                return Ok(PatternToken::Open);
            }
            ')' if is_operator && (self.open > 0 || !self.is_extended) => {
                if self.open == 0 {
                    return Err(wrong("Unmatched ) or \\)"));
                }
                self.open -= 1;
                self.is_start = false;
                return Ok(PatternToken::Close);
            }
            '|' if is_operator => {
                self.is_start = true;
                return Ok(PatternToken::Or);
            }
            '*' if !escaped && (self.is_extended || !self.is_start) => {
                return Ok(PatternToken::Repeat(0, None));
            }
            '+' if is_operator && (self.is_extended || !self.is_start) => {
                return Ok(PatternToken::Repeat(1, None));
            }
            '?' if is_operator && (self.is_extended || !self.is_start) => {
                return Ok(PatternToken::Repeat(0, Some(1)));
            }
            '{' if is_operator && (self.is_extended || !self.is_start) => {
                if let Some(token) = self.interval()? {
                    return Ok(token);
                }
            }
            '.' if !escaped => {
                self.is_start = false;
                return Ok(PatternToken::Atom(self.class(&[], true)));
            }
            '[' if !escaped => {
                self.is_start = false;
                return Ok(PatternToken::Atom(self.bracket()?));
            }
            _ if escaped => return self.escape(c),
            _ => {}
        }
        Ok(self.text_token(unit))
    }

    fn text_token(&mut self, unit: PatternUnit) -> PatternToken {
        self.is_start = false;
        PatternToken::Atom(self.literal(unit))
    }

    fn escape(&mut self, c: char) -> Result<PatternToken, ArchiveGrepError> {
        let of = |utf8: Look, ascii: Look| Self::place(if self.is_utf8 { utf8 } else { ascii });
        match c {
            '<' => return of(Look::WordStartUnicode, Look::WordStartAscii),
            '>' => return of(Look::WordEndUnicode, Look::WordEndAscii),
            'b' => return of(Look::WordUnicode, Look::WordAscii),
            'B' => return of(Look::WordUnicodeNegate, Look::WordAsciiNegate),
            '`' if self.has_lines => return Self::place(Look::Start),
            '\'' if self.has_lines => return Self::place(Look::End),
            '`' => return Self::place(Look::StartLF),
            '\'' => return Self::place(Look::EndLF),
            '1'..='9' => {
                return Err(wrong("a pattern that looks back (\\1) is not searched for here"));
            }
            _ => {}
        }
        self.is_start = false;
        Ok(match c {
            'w' | 'W' => {
                let mut set = self.named(b"alnum").unwrap_or_default();
                set.push((u32::from('_'), u32::from('_')));
                PatternToken::Atom(self.class(&set, c == 'W'))
            }
            's' | 'S' => {
                let set = self.named(b"space").unwrap_or_default();
                PatternToken::Atom(self.class(&set, c == 'S'))
            }
            _ => self.text_token(PatternUnit::Char(c)),
        })
    }

    /// Whether a basic expression or a group of it is over here.
    fn is_end(&self) -> bool {
        let rest = &self.text[self.at..];
        let next = rest.strip_prefix(b"\\").unwrap_or(rest);
        rest.is_empty() || (next.len() < rest.len() && matches!(next.first(), Some(b')' | b'|')))
    }

    /// What stands behind a `{`, if that is how often something is repeated.
    fn interval(&mut self) -> Result<Option<PatternToken>, ArchiveGrepError> {
        let from = self.at;
        let min = self.number();
        let (min, max) = if self.peek() == Some(b',') {
            self.at += 1;
            let max = self.number();
            // `{,}` is `*`.
            (Some(min.unwrap_or(0)), max)
        } else {
            (min, min)
        };
        let end: &[u8] = if self.is_extended { b"}" } else { b"\\}" };
        let is_whole = self.text[self.at..].starts_with(end);
        let Some(min) = min.filter(|&min| is_whole && max.is_none_or(|max| min <= max)) else {
            self.at = from;
            // An extended expression has it as text.
            return if self.is_extended {
                Ok(None)
            } else if self.text[self.at..].windows(2).any(|two| two == b"\\}") {
                Err(wrong("Invalid content of \\{\\}"))
            } else {
                Err(wrong("Unmatched \\{"))
            };
        };
        self.at += end.len();
        if min.max(max.unwrap_or(0)) > REPEAT_MAX {
            return Err(wrong("Regular expression too big"));
        }
        Ok(Some(PatternToken::Repeat(min, max)))
    }

    fn number(&mut self) -> Option<u32> {
        let from = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        let digits = std::str::from_utf8(&self.text[from..self.at]).ok()?;
        // What does not fit is more than the most.
        (!digits.is_empty()).then(|| digits.parse().unwrap_or(u32::MAX))
    }

    /// What stands behind a `[`.
    fn bracket(&mut self) -> Result<Hir, ArchiveGrepError> {
        let unmatched = || wrong("Unmatched [, [^, [:, [., or [=");
        let from = self.at;
        let is_negated = self.peek() == Some(b'^');
        self.at += usize::from(is_negated);
        let (mut set, mut is_first) = (Vec::new(), true);
        loop {
            let unit = self.unit().ok_or_else(unmatched)?;
            if unit.is(b']') && !is_first {
                break;
            }
            is_first = false;
            if unit.is(b'[') && self.peek() == Some(b':') {
                let name = self.until(b":]").ok_or_else(unmatched)?;
                let class =
                    self.named(name).ok_or_else(|| wrong("Invalid character class name"))?;
                set.extend(class);
                continue;
            }
            let low = self.end_of_range(unit).ok_or_else(unmatched)?;
            let behind = self.text.get(self.at + 1).copied();
            if self.peek() != Some(b'-') || behind == Some(b']') {
                set.push((low, low));
                continue;
            }
            self.at += 1;
            let unit = self.unit().ok_or_else(unmatched)?;
            let high = self.end_of_range(unit).ok_or_else(unmatched)?;
            if low > high {
                return Err(wrong("Invalid range end"));
            }
            set.push((low, high));
        }
        let written = &self.text[from..self.at - 1];
        if written.len() > 2 && written.starts_with(b":") && written.ends_with(b":") {
            return Err(wrong("character class syntax is [[:space:]], not [:space:]"));
        }
        Ok(self.class(&set, is_negated))
    }

    /// A character of a bracket, by itself or as `[.x.]` or `[=x=]`.
    fn end_of_range(&mut self, unit: PatternUnit) -> Option<u32> {
        let of = |unit: PatternUnit| match unit {
            PatternUnit::Char(c) => u32::from(c),
            PatternUnit::Byte(byte) => u32::from(byte),
        };
        let (Some(kind @ (b'.' | b'=')), true) = (self.peek(), unit.is(b'[')) else {
            return Some(of(unit));
        };
        let text = self.until(&[kind, b']'])?;
        match (std::str::from_utf8(text), text) {
            (_, &[byte]) => Some(byte.into()),
            (Ok(text), _) if self.is_utf8 && text.chars().count() == 1 => {
                text.chars().next().map(u32::from)
            }
            _ => None,
        }
    }

    /// What stands between the next byte and this.
    fn until(&mut self, end: &[u8; 2]) -> Option<&'a [u8]> {
        let from = self.at + 1;
        let len = self.text.get(from..)?.windows(2).position(|two| two == end)?;
        self.at = from + len + 2;
        Some(&self.text[from..from + len])
    }

    /// A class of characters, by its name. In both cases upper and lower are letters of any kind.
    fn named(&self, name: &[u8]) -> Option<Vec<(u32, u32)>> {
        let is_case = self.ignores_case && matches!(name, b"upper" | b"lower");
        classes::named(if is_case { b"alpha" } else { name }, self.is_utf8)
    }

    /// What these match, or all else.
    fn class(&self, set: &[(u32, u32)], is_negated: bool) -> Hir {
        if !self.is_utf8 {
            let byte = |of: u32| u8::try_from(of).unwrap_or(u8::MAX);
            let ranges = set.iter().map(|&(low, high)| ClassBytesRange::new(byte(low), byte(high)));
            let mut class = ClassBytes::new(ranges);
            if self.ignores_case {
                class.case_fold_simple();
            }
            if is_negated {
                class.negate();
            }
            return self.class_of(Class::Bytes(class));
        }
        let c = |of: u32| char::from_u32(of).unwrap_or(char::REPLACEMENT_CHARACTER);
        let ranges = set.iter().map(|&(low, high)| ClassUnicodeRange::new(c(low), c(high)));
        let mut class = ClassUnicode::new(ranges);
        if self.ignores_case {
            classes::fold(&mut class);
        }
        if is_negated {
            class.negate();
        }
        self.class_of(Class::Unicode(class))
    }

    fn class_of(&self, class: Class) -> Hir {
        Hir::class(if self.has_lines { class } else { no_line_end(class) })
    }

    fn literal(&self, unit: PatternUnit) -> Hir {
        match unit {
            PatternUnit::Byte(byte) => Hir::literal([byte]),
            PatternUnit::Char(c) if self.ignores_case => {
                self.class(&[(u32::from(c), u32::from(c))], false)
            }
            PatternUnit::Char(c) => Hir::literal(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

pub(super) fn wrong(text: &str) -> ArchiveGrepError {
    ArchiveGrepError(text.to_owned())
}
