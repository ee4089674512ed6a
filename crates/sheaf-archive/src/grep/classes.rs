//! Which characters are of a named class, and which are the same in another case: as glibc has them.
use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};

/// White space that no line is broken at, and so none to glibc.
const SPACE: &str = r"[\t-\r \p{Z}--\u{a0}\u{2007}\u{202f}]";
/// Letters that Unicode takes for another one in another case, and glibc for themselves.
const ALONE: [char; 5] = ['\u{3f4}', '\u{1e9e}', '\u{2126}', '\u{212a}', '\u{212b}'];
/// Letters of which each has the first one as its upper case.
const I: [char; 3] = ['I', 'i', '\u{131}'];

/// The characters of a class, by its name.
pub(super) fn named(name: &[u8], is_utf8: bool) -> Option<Vec<(u32, u32)>> {
    let expression = if is_utf8 { unicode(name)? } else { ascii(name)?.to_owned() };
    let hir = regex_syntax::parse(&expression).ok()?;
    let HirKind::Class(Class::Unicode(class)) = hir.into_kind() else { return None };
    let ranges = class.ranges().iter().map(|range| (range.start().into(), range.end().into()));
    Some(ranges.collect())
}

fn ascii(name: &[u8]) -> Option<&'static str> {
    Some(match name {
        b"alpha" => r"[A-Za-z]",
        b"upper" => r"[A-Z]",
        b"lower" => r"[a-z]",
        b"digit" => r"[0-9]",
        b"xdigit" => r"[0-9A-Fa-f]",
        b"alnum" => r"[0-9A-Za-z]",
        b"space" => r"[\t-\r ]",
        b"blank" => r"[\t ]",
        b"punct" => r"[!-/:-@\[-`{-~]",
        b"print" => r"[ -~]",
        b"graph" => r"[!-~]",
        b"cntrl" => r"[\x00-\x1F\x7F]",
        _ => return None,
    })
}

fn unicode(name: &[u8]) -> Option<String> {
    const ALNUM: &str = r"[\p{Alphabetic}\p{Nd}]";
    const PRINT: &str = r"[^\p{Cc}\p{Cn}\p{Zl}\p{Zp}]";
    Some(match name {
        b"alpha" => format!("[{ALNUM}--[0-9]]"),
        // What is both begins a word, as the first letter of two.
        b"upper" => r"[\p{Uppercase}\p{Lt}]".to_owned(),
        b"lower" => r"[\p{Lowercase}\u{1c5}\u{1c8}\u{1cb}\u{1f2}]".to_owned(),
        b"alnum" => ALNUM.to_owned(),
        b"space" => SPACE.to_owned(),
        b"blank" => format!(r"[{SPACE}&&[\t\p{{Zs}}]]"),
        b"print" => PRINT.to_owned(),
        b"graph" => format!("[{PRINT}--{SPACE}]"),
        // All that leaves a trace and is no letter and no digit.
        b"punct" => format!("[{PRINT}--{SPACE}--{ALNUM}]"),
        b"cntrl" => r"[\p{Cc}\p{Zl}\p{Zp}]".to_owned(),
        name => ascii(name)?.to_owned(),
    })
}

/// Adds what is the same in another case.
pub(super) fn fold(class: &mut ClassUnicode) {
    let of = |all: &[char]| ClassUnicode::new(all.iter().map(|&c| ClassUnicodeRange::new(c, c)));
    let (alone, is) = (of(&ALONE), of(&I));
    let mut kept = class.clone();
    kept.intersect(&alone);
    class.difference(&alone);
    class.case_fold_simple();
    class.difference(&alone);
    class.union(&kept);
    let mut has = class.clone();
    has.intersect(&is);
    if !has.ranges().is_empty() {
        class.union(&is);
    }
}
