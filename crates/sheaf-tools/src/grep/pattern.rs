//! From patterns to a matcher.
use super::{GrepError, GrepOptions};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use regex_syntax::ast::Span;

/// The most memory a compiled pattern may take.
const COMPILED_BYTES_MAX: usize = 64 << 20;
/// The most memory the lazily built automaton of a search may take.
const AUTOMATON_BYTES_MAX: usize = 64 << 20;
/// How deep a pattern may be nested.
const NEST_DEPTH_MAX: u32 = 250;
/// A pattern that matches nothing, for no patterns at all (`-f` with an empty file).
const MATCHES_NOTHING: &str = r"[a&&b]";

/// The matcher for all patterns of `options`.
pub fn matcher(options: &GrepOptions) -> Result<RegexMatcher, GrepError> {
    let patterns: Vec<&str> = options.patterns.iter().flat_map(|pattern| pattern.split('\n')).collect();
    let none = patterns.is_empty();
    let mut builder = RegexMatcherBuilder::new();
    builder
        .multi_line(true)
        .line_terminator(Some(b'\n'))
        .case_insensitive(options.ignore_case)
        .case_smart(options.smart_case && !options.ignore_case)
        .word(options.word)
        .whole_line(options.line)
        .fixed_strings(options.fixed && !none)
        .nest_limit(NEST_DEPTH_MAX)
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(AUTOMATON_BYTES_MAX);
    let built = if none { builder.build(MATCHES_NOTHING) } else { builder.build_many(&patterns) };
    built.map_err(|error| {
        let found = if options.fixed { None } else { patterns.iter().find_map(|pattern| locate(pattern)) };
        found.unwrap_or_else(|| GrepError::Unsearchable(error.to_string().replace('\n', " ")))
    })
}

/// What is wrong with one pattern, and where.
fn locate(pattern: &str) -> Option<GrepError> {
    let parsed = regex_syntax::ParserBuilder::new()
        .utf8(false)
        .multi_line(true)
        .nest_limit(NEST_DEPTH_MAX)
        .build()
        .parse(pattern);
    let (message, span): (String, Span) = match parsed {
        Ok(_) => return newline_in(pattern),
        Err(regex_syntax::Error::Parse(error)) => (error.kind().to_string(), *error.span()),
        Err(regex_syntax::Error::Translate(error)) => (error.kind().to_string(), *error.span()),
        Err(other) => return Some(GrepError::Unsearchable(other.to_string().replace('\n', " "))),
    };
    let characters = |bytes: &str| bytes.chars().count();
    Some(GrepError::Pattern {
        pattern: pattern.to_owned(),
        message,
        position: characters(&pattern[..span.start.offset]),
        width: characters(&pattern[span.start.offset..span.end.offset]).max(1),
    })
}

/// A search is by line, so a pattern cannot ask for the end of one.
fn newline_in(pattern: &str) -> Option<GrepError> {
    let at = pattern.find(r"\n")?;
    Some(GrepError::Pattern {
        pattern: pattern.to_owned(),
        message: "a match cannot go beyond its line".to_owned(),
        position: pattern[..at].chars().count(),
        width: 2,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(pattern: &str) -> GrepError {
        let options = GrepOptions { patterns: vec![pattern.to_owned()], ..GrepOptions::default() };
        matcher(&options).unwrap_err()
    }

    #[test]
    fn an_error_shows_its_place() {
        let error = error_of("é(b");
        assert_eq!(error.to_string(), "pattern 'é(b': unclosed group, at character 2");
        assert_eq!(error.caret().unwrap(), "é(b\n ^");
        let error = error_of(r"a\nb");
        assert_eq!(error.caret().unwrap(), "a\\nb\n ^^");
        assert!(error_of("a{4000}{4000}").to_string().starts_with("the patterns cannot be searched for"));
    }
}
