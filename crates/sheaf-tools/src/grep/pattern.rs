//! From patterns to a matcher.
use super::{GrepError, GrepOptions};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use regex_syntax::ast::{Span, parse};
use std::borrow::Cow;

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
    let patterns: Vec<&str> =
        options.patterns.iter().flat_map(|pattern| pattern.split('\n')).collect();
    let none = patterns.is_empty();
    // The builder joins them as text, where a parenthesis of one could close the group of another,
    // or its own: each has to be a pattern by itself.
    let parts = if options.fixed {
        patterns.iter().map(|&pattern| Cow::Borrowed(pattern)).collect()
    } else {
        patterns.iter().map(|pattern| part(pattern)).collect::<Result<Vec<_>, _>>()?
    };
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
    let built = if none { builder.build(MATCHES_NOTHING) } else { builder.build_many(&parts) };
    built.map_err(|error| {
        let found =
            if options.fixed { None } else { patterns.iter().find_map(|pattern| locate(pattern)) };
        found.unwrap_or_else(|| GrepError::Unsearchable(error.to_string().replace('\n', " ")))
    })
}

/// A pattern as it may stand between others.
fn part(pattern: &str) -> Result<Cow<'_, str>, GrepError> {
    if !pattern.chars().any(regex_syntax::is_meta_character) {
        return Ok(Cow::Borrowed(pattern));
    }
    if let Some(error) = syntax_error(pattern) {
        return Err(error);
    }
    let parsed =
        parse::ParserBuilder::new().nest_limit(NEST_DEPTH_MAX).build().parse_with_comments(pattern);
    // A comment (under `(?x)`) goes on to the end of its line, and so over what stands behind it.
    let has_comment = parsed.is_ok_and(|parsed| !parsed.comments.is_empty());
    Ok(if has_comment { Cow::Owned(format!("{pattern}\n")) } else { Cow::Borrowed(pattern) })
}

/// What is wrong with one pattern, and where.
fn locate(pattern: &str) -> Option<GrepError> {
    syntax_error(pattern).or_else(|| newline_in(pattern))
}

fn syntax_error(pattern: &str) -> Option<GrepError> {
    let parsed = regex_syntax::ParserBuilder::new()
        .utf8(false)
        .multi_line(true)
        .nest_limit(NEST_DEPTH_MAX)
        .build()
        .parse(pattern);
    let (message, span): (String, Span) = match parsed {
        Ok(_) => return None,
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

    fn finds(patterns: &[&str], change: impl Fn(&mut GrepOptions), line: &str) -> bool {
        use grep_matcher::Matcher;
        let patterns = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        let mut options = GrepOptions { patterns, ..GrepOptions::default() };
        change(&mut options);
        matcher(&options).unwrap().is_match(line.as_bytes()).unwrap()
    }

    #[test]
    fn each_pattern_is_one_by_itself() {
        for pattern in ["zzz)|(", ")", "a)(?:b", "(?x)a)|(# b", "x{2", "[a", "a|(?i", "b)\nc"] {
            for others in [&[][..], &["ok"], &["(", "ok"]] {
                let patterns =
                    others.iter().chain([&pattern]).map(|&pattern| pattern.to_owned()).collect();
                for (word, line) in [(false, false), (true, false), (false, true)] {
                    let patterns: Vec<String> = Clone::clone(&patterns);
                    let options = GrepOptions { patterns, word, line, ..GrepOptions::default() };
                    let error = matcher(&options).unwrap_err();
                    assert!(matches!(error, GrepError::Pattern { .. }), "{pattern}: {error}");
                }
            }
        }
    }

    #[test]
    fn pattern_options_do_not_affect_other_patterns() {
        let plain = |_: &mut GrepOptions| {};
        assert!(finds(&["(?x) a b # (", "c d"], plain, "c d"));
        assert!(finds(&["(?x) a b # (", "c d"], plain, "ab"));
        assert!(!finds(&["(?x) a b # (", "c d"], plain, "cd"));
        assert!(!finds(&["(?i)a", "b"], plain, "B"));
        assert!(finds(&["zzz)|("], |options| options.fixed = true, "a zzz)|( b"));
        assert!(!finds(&["zzz)|("], |options| options.fixed = true, "zzz"));
        assert!(!finds(&["a|b", "c"], |options| options.word = true, "ab xc"));
        assert!(!finds(&["a|b", "c"], |options| options.line = true, "ax"));
        assert!(finds(&["a|b", "c"], |options| options.line = true, "b"));
    }

    fn error_of(pattern: &str) -> GrepError {
        let options = GrepOptions { patterns: vec![pattern.to_owned()], ..GrepOptions::default() };
        matcher(&options).unwrap_err()
    }

    #[test]
    fn error_shows_its_place() {
        let error = error_of("é(b");
        assert_eq!(error.to_string(), "pattern 'é(b': unclosed group, at character 2");
        assert_eq!(error.caret().unwrap(), "é(b\n ^");
        let error = error_of(r"a\nb");
        assert_eq!(error.caret().unwrap(), "a\\nb\n ^^");
        assert!(
            error_of("a{4000}{4000}")
                .to_string()
                .starts_with("the patterns cannot be searched for")
        );
    }
}
