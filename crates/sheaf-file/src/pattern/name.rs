//! The pattern of one name, between two slashes.

use crate::error::PatternError;
use std::iter::Peekable;
use std::str::Chars;

/// A pattern of one name, with the shell's meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamePattern {
    tokens: Vec<NameToken>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NameToken {
    Literal(char),
    /// `?`: one character.
    One,
    /// `*`: any number of characters.
    Many,
    /// `[…]`: one character of these ranges and classes, or none of them.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
        /// Places in [`CLASSES`].
        named: Vec<usize>,
    },
    /// What has no meaning, and is met by nothing.
    Nothing,
}

/// How characters are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CharComparison {
    /// Capital letters are as small ones.
    pub ignores_case: bool,
    /// Each character is a byte, of which only those of ASCII are letters.
    pub are_bytes: bool,
}

impl CharComparison {
    pub fn fold(self, char: char) -> char {
        if !self.ignores_case {
            return char;
        }
        if self.are_bytes || char.is_ascii() {
            return char.to_ascii_lowercase();
        }
        let mut small = char.to_lowercase();
        if small.len() == 1 { small.next().unwrap_or(char) } else { char }
    }
}

/// Whether a character is in a class.
type IsInClass = fn(char) -> bool;

/// The character classes of POSIX, as a locale with Unicode has them.
const CLASSES: [(&str, IsInClass); 12] = [
    ("alnum", char::is_alphanumeric),
    ("alpha", |char| char.is_alphabetic() || !char.is_ascii() && char.is_numeric()),
    ("blank", |char| char == '\t' || is_space(char) && !is_control(char)),
    ("cntrl", is_control),
    ("digit", |char| char.is_ascii_digit()),
    ("graph", |char| !is_control(char) && !is_space(char)),
    ("lower", char::is_lowercase),
    ("print", |char| !is_control(char)),
    ("punct", |char| !is_control(char) && !is_space(char) && !char.is_alphanumeric()),
    ("space", is_space),
    ("upper", char::is_uppercase),
    ("xdigit", |char| char.is_ascii_hexdigit()),
];

fn is_control(char: char) -> bool {
    char.is_control() || matches!(char, '\u{2028}' | '\u{2029}')
}

/// Spaces at which no line is broken are none.
fn is_space(char: char) -> bool {
    char.is_whitespace() && !matches!(char, '\u{85}' | '\u{a0}' | '\u{2007}' | '\u{202f}')
}

impl NamePattern {
    pub fn new(text: &str) -> Result<Self, PatternError> {
        let mut tokens = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(char) = chars.next() {
            let token = match char {
                '?' => NameToken::One,
                '*' if tokens.last() == Some(&NameToken::Many) => continue,
                '*' => NameToken::Many,
                // Without the closing bracket, `[` is an ordinary character.
                '[' => match read_class(&mut chars)? {
                    Some(class) => class,
                    None => NameToken::Literal('['),
                },
                '\\' => NameToken::Literal(chars.next().unwrap_or('\\')),
                char => NameToken::Literal(char),
            };
            tokens.push(token);
        }
        Ok(Self { tokens })
    }

    /// Reads a pattern as `fnmatch` does: what is wrong in it is met by nothing.
    pub(super) fn lenient(text: &str, compared: CharComparison) -> Self {
        let mut tokens = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(char) = chars.next() {
            tokens.push(match char {
                '?' => NameToken::One,
                '*' if tokens.last() == Some(&NameToken::Many) => continue,
                '*' => NameToken::Many,
                '[' => super::bracket::read(&mut chars, compared),
                '\\' => chars
                    .next()
                    .map_or(NameToken::Nothing, |char| NameToken::Literal(compared.fold(char))),
                char => NameToken::Literal(compared.fold(char)),
            });
        }
        Self { tokens }
    }

    pub fn is_literal(&self) -> bool {
        self.tokens.iter().all(|token| matches!(token, NameToken::Literal(_)))
    }

    /// Whether it has no character that is meant literally.
    pub fn is_bare(&self) -> bool {
        !self.tokens.iter().any(|token| matches!(token, NameToken::Literal(_)))
    }

    /// The literal characters; for a literal pattern, its name.
    pub fn literal(&self) -> String {
        let char = |token: &NameToken| {
            if let NameToken::Literal(char) = token { Some(*char) } else { None }
        };
        self.tokens.iter().filter_map(char).collect()
    }

    /// Whether the name matches and, if it begins with a dot, the pattern asks for the dot.
    pub fn matches_visible(&self, name: &[u8]) -> bool {
        (name.first() != Some(&b'.') || self.tokens.first() == Some(&NameToken::Literal('.')))
            && self.matches(name)
    }

    /// Whether the whole name matches.
    ///
    /// Only the last `*` is ever reconsidered, so the time is bounded by the product of the
    /// lengths.
    pub fn matches(&self, name: &[u8]) -> bool {
        self.matches_as(name, CharComparison::default())
    }

    /// The same, with characters compared as the pattern was read for.
    pub(super) fn matches_as(&self, name: &[u8], compared: CharComparison) -> bool {
        let decode = |name: &[u8]| {
            if compared.are_bytes { (Some(char::from(name[0])), 1) } else { decode(name) }
        };
        let (mut token, mut at) = (0, 0);
        let mut last_many: Option<(usize, usize)> = None;
        while at < name.len() {
            let (char, width) = decode(&name[at..]);
            match self.tokens.get(token) {
                Some(NameToken::Many) => {
                    last_many = Some((token, at));
                    token += 1;
                }
                Some(one) if one.takes(char, compared) => {
                    token += 1;
                    at += width;
                }
                _ => {
                    let Some((many, from)) = last_many else { return false };
                    let resume = from + decode(&name[from..]).1;
                    last_many = Some((many, resume));
                    (token, at) = (many + 1, resume);
                }
            }
        }
        self.tokens[token..].iter().all(|token| *token == NameToken::Many)
    }
}

impl NameToken {
    /// Whether this token takes one character; `None` is a byte that is not UTF-8.
    fn takes(&self, char: Option<char>, compared: CharComparison) -> bool {
        match self {
            Self::Literal(literal) => char.map(|char| compared.fold(char)) == Some(*literal),
            Self::One => true,
            Self::Many | Self::Nothing => false,
            Self::Class { negated, ranges, named } => {
                let is_in = |char| {
                    let folded = compared.fold(char);
                    let is_known = char.is_ascii() || !compared.are_bytes;
                    ranges.iter().any(|&(from, to)| from <= folded && folded <= to)
                        || is_known && named.iter().any(|&class| CLASSES[class].1(char))
                };
                char.is_some_and(is_in) != *negated
            }
        }
    }
}

/// Reads a class after its `[`, or nothing (and takes nothing) if it is not closed.
fn read_class(chars: &mut Peekable<Chars<'_>>) -> Result<Option<NameToken>, PatternError> {
    let mut rest = chars.clone();
    let negated = rest.next_if(|char| matches!(char, '!' | '^')).is_some();
    let (mut ranges, mut classes) = (Vec::new(), Vec::new());
    let mut first = true;
    loop {
        let Some(char) = rest.next() else { return Ok(None) };
        match char {
            ']' if !first => break,
            '[' if rest.peek() == Some(&':') => match read_class_name(&mut rest)? {
                Some(class) => classes.push(class),
                None => ranges.push(('[', '[')),
            },
            char => {
                let Some(from) = unescape(char, &mut rest) else { return Ok(None) };
                let mut ahead = rest.clone();
                let is_range =
                    ahead.next() == Some('-') && ahead.peek().is_some_and(|&next| next != ']');
                let mut to = from;
                if is_range {
                    rest = ahead;
                    let Some(end) = rest.next().and_then(|char| unescape(char, &mut rest)) else {
                        return Ok(None);
                    };
                    to = end;
                }
                ranges.push((from, to));
            }
        }
        first = false;
    }
    // An unclosed bracket is no class at all, so the ranges are judged only now.
    if let Some(&(from, to)) = ranges.iter().find(|(from, to)| from > to) {
        return Err(PatternError::BackwardRange { from, to });
    }
    *chars = rest;
    Ok(Some(NameToken::Class { negated, ranges, named: classes }))
}

/// Reads `:name:]` of `[:name:]`, or nothing (and takes nothing) if it does not have this form.
pub(super) fn read_class_name(
    chars: &mut Peekable<Chars<'_>>,
) -> Result<Option<usize>, PatternError> {
    let mut rest = chars.clone();
    rest.next();
    let mut name = String::new();
    while let Some(letter) = rest.next_if(char::is_ascii_lowercase) {
        name.push(letter);
    }
    if rest.next() != Some(':') || rest.next() != Some(']') {
        return Ok(None);
    }
    *chars = rest;
    match CLASSES.iter().position(|(known, _)| *known == name) {
        Some(class) => Ok(Some(class)),
        None => Err(PatternError::UnknownClass { name }),
    }
}

fn unescape(char: char, rest: &mut Peekable<Chars<'_>>) -> Option<char> {
    if char == '\\' { rest.next() } else { Some(char) }
}

/// The first character of a non-empty name and its bytes; one byte where it is not UTF-8.
fn decode(name: &[u8]) -> (Option<char>, usize) {
    let width = match name[0] {
        0..0x80 => return (Some(char::from(name[0])), 1),
        0xC0..0xE0 => 2,
        0xE0..0xF0 => 3,
        0xF0..=0xFF => 4,
        _ => return (None, 1),
    };
    let char = name.get(..width).and_then(|bytes| std::str::from_utf8(bytes).ok());
    char.and_then(|text| text.chars().next()).map_or((None, 1), |char| (Some(char), width))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        NamePattern::new(pattern).unwrap().matches(name.as_bytes())
    }

    #[test]
    fn classes_ranges_and_escapes() {
        for (pattern, yes, no) in [
            ("[a-c]x", &["ax", "cx"][..], &["dx", "x", "axx"][..]),
            ("[!a-c]", &["d", "é"], &["a", "dd"]),
            ("[^a]", &["b"], &["a"]),
            ("[]]", &["]"], &["["]),
            ("[!]]", &["a"], &["]"]),
            ("[a-]", &["a", "-"], &["b"]),
            ("[[:digit:]_]", &["7", "_"], &["a", ":"]),
            ("[é-ü]", &["ö"], &["a"]),
            ("[", &["["], &[""]),
            ("[a", &["[a"], &["a"]),
            ("[z-a", &["[z-a"], &["z"]),
            (r"[\]]", &["]"], &["\\"]),
            (r"\*", &["*"], &["a"]),
            (r"a\", &["a\\"], &["a"]),
            ("a*b*c", &["abc", "axbxc", "abbc"], &["ab", "abcd"]),
            ("?", &["a", "é"], &["", "ab"]),
            ("*", &["", "a"], &[]),
        ] {
            yes.iter().for_each(|name| assert!(matches(pattern, name), "{pattern} {name}"));
            no.iter().for_each(|name| assert!(!matches(pattern, name), "{pattern} {name}"));
        }
        assert!(NamePattern::new("?x").unwrap().matches(b"\xffx"));
        assert!(NamePattern::new("[z-a]").is_err());
        assert!(NamePattern::new("[[:letter:]]").is_err());
    }

    #[test]
    fn leading_dot_must_be_explicit() {
        for (pattern, expected) in
            [("*", false), (".*", true), ("[.]x", false), ("?x", false), (".x", true)]
        {
            assert_eq!(
                NamePattern::new(pattern).unwrap().matches_visible(b".x"),
                expected,
                "{pattern}"
            );
        }
    }
}
