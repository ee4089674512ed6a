//! Patterns of a whole text, as `fnmatch` reads them.
use super::name::{CharComparison, NamePattern};

/// A pattern as those of `find -name` and `grep --include`: [`Pattern`](super::Pattern)'s language without
/// braces, where `*`, `?` and brackets stand for slashes and leading dots, too.
///
/// Characters are those of UTF-8, and a text that does not match so, or is no UTF-8, may match by its bytes.
/// What is wrong in a pattern is met by nothing. Both are as with `fnmatch` of glibc.
///
/// ```
/// use sheaf_file::TextPattern;
/// assert!(TextPattern::new("*[[:digit:]].tex", false).matches(b"a/7.tex"));
/// assert!(TextPattern::new("É?", true).matches("éé".as_bytes()));
/// assert!(TextPattern::new("??", false).matches(b"\xff\xff"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPattern {
    chars: (NamePattern, CharComparison),
    bytes: (NamePattern, CharComparison),
}

impl TextPattern {
    /// Reads a pattern.
    #[must_use]
    pub fn new(text: &str, ignores_case: bool) -> Self {
        let chars = CharComparison { ignores_case, are_bytes: false };
        let bytes = CharComparison { ignores_case, are_bytes: true };
        let as_bytes: String = text.bytes().map(char::from).collect();
        Self {
            chars: (NamePattern::lenient(text, chars), chars),
            bytes: (NamePattern::lenient(&as_bytes, bytes), bytes),
        }
    }

    /// Whether the whole of a text matches.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        let matches = |(pattern, compared): &(NamePattern, CharComparison)| {
            pattern.matches_as(text, *compared)
        };
        std::str::from_utf8(text).is_ok() && matches(&self.chars) || matches(&self.bytes)
    }
}
