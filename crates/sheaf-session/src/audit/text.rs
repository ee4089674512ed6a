//! Texts of others as parts of a line, which none of them is taken for more than.

use sheaf_core::is_unprintable;

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
