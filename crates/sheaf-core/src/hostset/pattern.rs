//! What is the same in the names of a family of hosts: `rack%sn%s`.
use super::number;
use std::sync::Arc;

/// The most numbers of one name that are treated as numbers; further digits are text.
pub const AXES_MAX: usize = 64;

/// The text around the numbers of a name. Patterns order families as `nodeset` does: by the text
/// in which `%s` stands for a number and `%%` for a percent sign.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct HostPattern {
    key: Arc<str>,
}

impl HostPattern {
    /// How many numbers a name has.
    pub(super) fn dims(&self) -> usize {
        self.pieces().len() - 1
    }

    /// The texts before, between and behind the numbers.
    pub(super) fn pieces(&self) -> Vec<String> {
        let mut pieces = vec![String::new()];
        let mut chars = self.key.chars();
        while let Some(char) = chars.next() {
            match (char, pieces.last_mut()) {
                // A percent sign is always followed by its twin or by the `s` of a number.
                ('%', _) if chars.next() == Some('s') => pieces.push(String::new()),
                (_, Some(piece)) => piece.push(char),
                (_, None) => {}
            }
        }
        pieces
    }
}

/// The text of a pattern while it is put together.
#[derive(Clone, Debug, Default)]
pub(super) struct PatternBuilder {
    key: String,
    dims: usize,
}

impl PatternBuilder {
    pub(super) fn text(&mut self, text: &str) {
        for (at, piece) in text.split('%').enumerate() {
            if at > 0 {
                self.key.push_str("%%");
            }
            self.key.push_str(piece);
        }
    }

    pub(super) fn number(&mut self) {
        self.key.push_str("%s");
        self.dims += 1;
    }

    pub(super) fn dims(&self) -> usize {
        self.dims
    }

    /// Appends text that may hold numbers, and hands these out.
    pub(super) fn scan(&mut self, text: &str, mut take: impl FnMut(i64)) {
        let mut rest = text;
        while !rest.is_empty() {
            let start = rest.bytes().position(|byte| byte.is_ascii_digit()).unwrap_or(rest.len());
            let (before, from) = rest.split_at(start);
            let end = from.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(from.len());
            let (digits, after) = from.split_at(end);
            self.text(before);
            match number::pack_digits(digits).filter(|_| self.dims < AXES_MAX) {
                Some(number) => {
                    self.number();
                    take(number);
                }
                // Longer than a number can be, or one too many: as good a name, only it does not
                // fold.
                None => self.text(digits),
            }
            rest = after;
        }
    }

    pub(super) fn finish(self) -> HostPattern {
        HostPattern { key: self.key.into() }
    }
}

/// A single name taken apart.
pub(super) fn of_name(name: &str) -> (HostPattern, Vec<i64>) {
    let (mut builder, mut point) = (PatternBuilder::default(), Vec::new());
    builder.scan(name, |number| point.push(number));
    (builder.finish(), point)
}

/// Puts a name together.
pub(super) fn name(pieces: &[String], point: &[i64]) -> String {
    let mut name =
        String::with_capacity(pieces.iter().map(String::len).sum::<usize>() + point.len() * 4);
    for (at, piece) in pieces.iter().enumerate() {
        name.push_str(piece);
        if let Some(&number) = point.get(at) {
            push_number(&mut name, number);
        }
    }
    name
}

fn push_number(name: &mut String, packed: i64) {
    use std::fmt::Write;
    // Writing into a string cannot fail.
    let _ = write!(name, "{:0width$}", number::value(packed), width = number::width(packed));
}
