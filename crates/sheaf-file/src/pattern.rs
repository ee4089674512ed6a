//! Patterns of paths, with the shell's meaning.

mod brace;
mod bracket;
mod expand;
mod name;
mod whole;

pub use expand::PatternTree;
pub(crate) use name::NamePattern;
pub use whole::TextPattern;

use crate::error::PatternError;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The longest pattern, in bytes. Paths may be longer than the kernel takes at once.
const PATTERN_BYTES_MAX: usize = 64 << 10;

/// A path pattern: `*` and `?` (not across `/`), `**` (any number of directories), `[a-z]`,
/// `[!a-z]`, `[[:digit:]]`, `{one,two}`, and `\` before a character that is meant literally.
///
/// As in shells, a leading dot must be matched by a dot, `?` is one character (of UTF-8), and
/// brackets or braces that are not closed, and braces without a comma, are ordinary characters.
///
/// ```
/// use sheaf_file::Pattern;
/// let pattern = Pattern::new("/var/log/{sys,mess}*").unwrap();
/// assert!(!pattern.is_literal());
/// assert!(Pattern::new(r"/tmp/what\?").unwrap().is_literal());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// One for each way to choose from the braces, at least one.
    alternatives: Vec<Alternative>,
}

/// One pattern without braces, cut at its slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alternative {
    pub absolute: bool,
    pub parts: Vec<PatternPart>,
    /// It ended in a slash: only directories match.
    pub must_be_dir: bool,
}

/// What stands between two slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PatternPart {
    Literal(OsString),
    Name(NamePattern),
    /// `**`: no directory, or any number of them.
    Directories,
}

/// Whether `text` is a pattern rather than the name of one file. A malformed pattern is one.
#[must_use]
pub fn is_pattern(text: &str) -> bool {
    Pattern::new(text).map_or(true, |pattern| !pattern.is_literal())
}

/// The pattern that stands for the file of this name, whatever characters it has.
///
/// ```
/// assert_eq!(sheaf_file::literal("/a*b"), r"/a\*b");
/// assert!(!sheaf_file::is_pattern(&sheaf_file::literal("/{a,b}[c]?")));
/// ```
#[must_use]
pub fn literal(name: &str) -> String {
    let is_special = |char: char| matches!(char, '*' | '?' | '[' | ']' | '{' | '}' | '\\');
    let escaped = |char: char| is_special(char).then_some('\\').into_iter().chain([char]);
    name.chars().flat_map(escaped).collect()
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// See [`PatternError`].
    pub fn new(text: &str) -> Result<Self, PatternError> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::TooLong { length: text.len(), max: PATTERN_BYTES_MAX });
        }
        let expanded = brace::expand(text)?;
        let alternatives =
            expanded.iter().map(|text| Alternative::new(text)).collect::<Result<_, _>>()?;
        Ok(Self { alternatives })
    }

    /// Whether the pattern stands for exactly one path.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        self.literal().is_some()
    }

    /// The one path the pattern stands for, if it is literal.
    #[must_use]
    pub fn literal(&self) -> Option<PathBuf> {
        let [alternative] = &self.alternatives[..] else { return None };
        alternative.literal()
    }

    /// Whether the whole of a relative or absolute path matches, by its text alone; a leading dot
    /// needs no special care here.
    #[must_use]
    pub fn matches(&self, path: &Path) -> bool {
        let bytes = path.as_os_str().as_bytes();
        let absolute = bytes.first() == Some(&b'/');
        let names: Vec<&[u8]> =
            bytes.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
        self.alternatives
            .iter()
            .any(|one| one.absolute == absolute && matches_parts(&one.parts, &names))
    }

    /// Whether the pattern speaks of more than one name.
    fn has_slash(&self) -> bool {
        self.alternatives.iter().any(|one| one.absolute || one.parts.len() > 1)
    }

    /// Patterns of the directories of which this one stands for every entry that is not hidden, or
    /// for every entry of every directory in them, and so on: below these directories it has only
    /// names that are all wildcards.
    pub(crate) fn swept(&self) -> impl Iterator<Item = Self> {
        self.alternatives.iter().flat_map(|one| {
            let is_bare = |part: &PatternPart| match part {
                PatternPart::Literal(_) => false,
                PatternPart::Name(name) => name.is_bare(),
                PatternPart::Directories => true,
            };
            let mut all: Vec<PatternPart> = Vec::new();
            for part in &one.parts {
                match part {
                    // It leads nowhere else.
                    PatternPart::Literal(name) if name == "." => {}
                    // From every directory back to the one that they are in.
                    PatternPart::Literal(name)
                        if name == ".." && matches!(all.last(), Some(PatternPart::Name(name)) if name.is_bare()) =>
                    {
                        all.pop();
                    }
                    part => all.push(part.clone()),
                }
            }
            let bare = all.iter().rev().take_while(|part| is_bare(part)).count();
            (all.len() - bare..all.len()).filter_map(move |end| {
                let parts = &all[..end];
                // `**` may stand for no directory at all, which the pattern without it says.
                if let Some(PatternPart::Directories) = parts.last() {
                    return None;
                }
                let above = Alternative {
                    absolute: one.absolute,
                    parts: parts.to_vec(),
                    must_be_dir: true,
                };
                Some(Self { alternatives: vec![above] })
            })
        })
    }

    pub(crate) fn alternatives(&self) -> &[Alternative] {
        &self.alternatives
    }
}

impl Alternative {
    /// The one path it stands for, if nothing in it is special.
    pub fn literal(&self) -> Option<PathBuf> {
        let mut path = if self.absolute { b"/".to_vec() } else { Vec::new() };
        for (index, part) in self.parts.iter().enumerate() {
            let PatternPart::Literal(name) = part else { return None };
            if index > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
        }
        if self.must_be_dir && !self.parts.is_empty() {
            path.push(b'/');
        }
        Some(PathBuf::from(OsString::from_vec(path)))
    }

    fn new(text: &str) -> Result<Self, PatternError> {
        let pieces = split_at_slashes(text);
        let mut parts: Vec<PatternPart> = Vec::new();
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            let part = match piece.as_str() {
                "**" => PatternPart::Directories,
                piece => match NamePattern::new(piece)? {
                    pattern if pattern.is_literal() => {
                        PatternPart::Literal(pattern.literal().into())
                    }
                    pattern => PatternPart::Name(pattern),
                },
            };
            // Two `**` in a row mean what one means.
            if part != PatternPart::Directories || parts.last() != Some(&PatternPart::Directories) {
                parts.push(part);
            }
        }
        Ok(Self {
            absolute: text.starts_with('/') || text.starts_with("\\/"),
            must_be_dir: pieces.len() > 1 && pieces.last().is_some_and(String::is_empty),
            parts,
        })
    }
}

/// The pieces between slashes, their escapes kept; a slash separates even when it is escaped.
fn split_at_slashes(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let last = pieces.len() - 1;
        match (char, chars.peek()) {
            ('/', _) => pieces.push(String::new()),
            ('\\', Some('/')) => {}
            ('\\', Some(&next)) => {
                pieces[last].extend(['\\', next]);
                chars.next();
            }
            _ => pieces[last].push(char),
        }
    }
    pieces
}

/// Whether the names match the parts one by one, `Directories` taking any number.
fn matches_parts(parts: &[PatternPart], names: &[&[u8]]) -> bool {
    // `reached[n]`: the parts so far can match exactly the first n names.
    let mut reached = vec![false; names.len() + 1];
    reached[0] = true;
    for (index, part) in parts.iter().enumerate() {
        let mut next = vec![false; names.len() + 1];
        match part {
            PatternPart::Directories => {
                // At the end `**` stands for at least one name: what is beneath, not the start.
                let skip = usize::from(index + 1 == parts.len());
                if let Some(first) = reached.iter().position(|&yes| yes) {
                    next.iter_mut().skip(first + skip).for_each(|yes| *yes = true);
                }
            }
            PatternPart::Literal(literal) => {
                (0..names.len())
                    .for_each(|n| next[n + 1] = reached[n] && names[n] == literal.as_bytes());
            }
            PatternPart::Name(pattern) => {
                (0..names.len())
                    .for_each(|n| next[n + 1] = reached[n] && pattern.matches(names[n]));
            }
        }
        reached = next;
    }
    reached[names.len()]
}

/// A list of patterns that choose files by name, as `--include` and `--exclude` do: a pattern
/// without a slash is compared with the last name of the path, others with the whole relative path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameFilter {
    patterns: Vec<(bool, Pattern)>,
}

impl NameFilter {
    /// Reads the patterns.
    ///
    /// # Errors
    /// The first malformed pattern's.
    pub fn new(patterns: &[String]) -> Result<Self, PatternError> {
        let read = |text: &String| {
            let pattern = Pattern::new(text.trim_start_matches('/'))?;
            Ok((text.starts_with('/') || pattern.has_slash(), pattern))
        };
        Ok(Self { patterns: patterns.iter().map(read).collect::<Result<_, _>>()? })
    }

    /// Whether there are no patterns.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether any pattern matches this path, which is relative to the start of a walk.
    #[must_use]
    pub fn matches(&self, relative: &Path) -> bool {
        let name = Path::new(relative.file_name().unwrap_or(relative.as_os_str()));
        self.patterns
            .iter()
            .any(|(whole, pattern)| pattern.matches(if *whole { relative } else { name }))
    }
}
