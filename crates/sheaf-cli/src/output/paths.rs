//! Paths for people: several folded into one pattern, control characters made visible.
use sheaf_core::is_unprintable;

/// Paths spelled out within one pair of braces.
const ALTERNATIVES_MAX: usize = 8;

/// One pattern for several paths: `/var/log/{a,b}.log`; beyond a few they are counted.
pub fn fold_paths(paths: &[&str]) -> String {
    let (Some(first), true) = (paths.first(), paths.len() > 1) else {
        return paths.first().map(|path| printable(path)).unwrap_or_default();
    };
    let prefix = common(paths.iter().map(|path| path.chars()), first.chars());
    let (start, _) = split_at_char(first, prefix);
    let tails: Vec<&str> = paths.iter().map(|path| split_at_char(path, prefix).1).collect();
    let suffix = common(tails.iter().map(|tail| tail.chars().rev()), tails[0].chars().rev());
    let middles = tails.iter().map(|tail| split_at_char(tail, tail.chars().count() - suffix).0);
    let shown: Vec<String> = middles.take(ALTERNATIVES_MAX).map(printable).collect();
    let more = paths.len().saturating_sub(ALTERNATIVES_MAX);
    let more = if more > 0 { format!(",… {more} more") } else { String::new() };
    let end = split_at_char(tails[0], tails[0].chars().count() - suffix).1;
    format!("{}{{{}{more}}}{}", printable(start), shown.join(","), printable(end))
}

/// How many characters all of the texts begin with.
fn common<I: Iterator<Item = char>>(texts: impl Iterator<Item = I>, first: I) -> usize {
    let first: Vec<char> = first.collect();
    texts.fold(first.len(), |most, text| {
        text.zip(&first).take(most).take_while(|(a, b)| a == *b).count()
    })
}

fn split_at_char(text: &str, count: usize) -> (&str, &str) {
    text.split_at(text.char_indices().nth(count).map_or(text.len(), |(at, _)| at))
}

/// A text on one line that no terminal takes for a command.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unprintable(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn folded_paths_have_differing_parts_in_braces() {
        assert_eq!(fold_paths(&["/var/log/a.log", "/var/log/b.log"]), "/var/log/{a,b}.log");
        assert_eq!(fold_paths(&["/a", "/a/b"]), "/a{,/b}");
        assert_eq!(fold_paths(&["/x"]), "/x");
        assert_eq!(fold_paths(&[]), "");
        assert_eq!(fold_paths(&["/é1", "/é2"]), "/é{1,2}");
        let many: Vec<String> = (10..30).map(|n| format!("/f{n}x")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(fold_paths(&many), "/f{10,11,12,13,14,15,16,17,… 12 more}x");
    }

    #[test]
    fn control_characters_are_shown() {
        assert_eq!(printable("a\n\u{1b}[31mb"), "a\\n\\u{1b}[31mb");
    }

    proptest! {
        #[test]
        fn every_alternative_is_one_of_the_paths(paths in prop::collection::btree_set("[ab/]{1,6}", 2..6)) {
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            let folded = fold_paths(&paths);
            let (start, rest) = folded.split_once('{').unwrap();
            let (middles, end) = rest.split_once('}').unwrap();
            let again: Vec<String> = middles.split(',').map(|middle| format!("{start}{middle}{end}")).collect();
            prop_assert_eq!(again, paths);
        }
    }
}
