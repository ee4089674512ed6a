//! Texts of others as parts of a line, which none of them is taken for more than.

/// The longest text of a path or a command in a line.
pub(super) const TEXT_CHARS_MAX: usize = 1024;

/// A path without empty parts and `.`, which only make it longer.
pub(super) fn normal(path: &str) -> String {
    let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    let parts: Vec<&str> = parts.collect();
    let root = if path.starts_with('/') { "/" } else { "" };
    match parts.is_empty() && root.is_empty() {
        true => path.to_owned(),
        false => root.to_owned() + &parts.join("/"),
    }
}

/// At most so many characters of a path: its beginning, a sign and its last name, or the ends of that
/// where it is too long itself.
pub(super) fn cut(path: &str, chars_max: usize) -> String {
    let chars: Vec<char> = path.chars().collect();
    if chars.len() <= chars_max {
        return path.to_owned();
    }
    let room = chars_max.saturating_sub(1);
    let name = chars.iter().rev().take_while(|char| **char != '/').count() + 1;
    let tail = if name <= room { name.max(room / 2) } else { room / 2 };
    let (head, tail) = (&chars[..room - tail], &chars[chars.len() - tail..]);
    head.iter().chain(&['…']).chain(tail).collect()
}

/// A path as a part of a line: in quotes where it could be taken for more than one path or for the
/// end of the line.
pub(super) fn quoted(path: &str) -> String {
    // Many characters beyond ASCII look like a blank or a colon, or like nothing.
    let is_safe = |c: char| c.is_ascii_graphic() && !",:\"\\".contains(c);
    if !path.is_empty() && path.chars().all(is_safe) {
        return path.to_owned();
    }
    let mut quoted = String::from("\"");
    for char in path.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            char if is_unprintable(char) => quoted.extend(char.escape_default()),
            char => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}

/// A text of a host as a part of a line: in quotes where it could be taken for more than that.
pub(super) fn said(text: &str) -> String {
    let is_safe = |c: char| c == ' ' || (c.is_ascii_graphic() && c != '"' && c != '\\');
    let misleads = text.contains(": ") || text.contains(" on ") || text.trim() != text;
    if text.chars().all(is_safe) && !misleads { text.to_owned() } else { quoted(text) }
}

/// Whether a character has no shape of its own: controls, and Unicode's categories Cf, Zl and Zp. They
/// split or reorder lines where these are shown.
fn is_unprintable(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}'
            | '\u{e0020}'..='\u{e007f}')
}

/// A text as a part of a line: without characters that have no shape, and not too long.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::new();
    for char in text.chars().take(TEXT_CHARS_MAX) {
        if is_unprintable(char) {
            plain.extend(char.escape_default());
        } else {
            plain.push(char);
        }
    }
    plain
}
