//! Host names in order, kept as runs, so that a million of them cost no million strings.
use super::{NODES_MAX, TopologyError};
use sheaf_core::varint;
use std::fmt;
use std::ops::Range;

/// The longest host name, in bytes (DNS allows 253).
pub const NAME_BYTES_MAX: usize = 255;

/// Digits that still count as a number; longer ones are text.
const DIGITS_MAX: usize = 18;

/// An ordered list of host names. Names that count up (`n001`, `n002`, …, or in steps) are kept
/// as one run and spelled out when asked for.
///
/// ```
/// use sheaf_proto::topology::Names;
/// let names: Names = (1..=1000).map(|n| format!("n{n:04}.lab")).collect();
/// assert_eq!(names.get(41).unwrap(), "n0042.lab");
/// assert_eq!(names.to_string(), "n[0001-1000].lab");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Names {
    runs: Vec<NameRun>,
    len: u32,
}

/// `count` names: `head`, then a number that counts up by `step`, then `tail`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct NameRun {
    /// Index of the first name of the run.
    at: u32,
    count: u32,
    /// `head` and `tail` together.
    text: Box<str>,
    head_len: u8,
    number: Option<NameNumber>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NameNumber {
    first: u64,
    step: u64,
    /// Digits, zero-padded; 0 without padding.
    width: u8,
}

impl NameNumber {
    fn nth(self, index: u32) -> u64 {
        self.first.saturating_add(self.step.saturating_mul(u64::from(index)))
    }
}

impl Names {
    /// No names.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The name at `index`.
    #[must_use]
    pub fn get(&self, index: u32) -> Option<String> {
        (index < self.len).then(|| {
            let run = &self.runs[self.runs.partition_point(|run| run.at <= index) - 1];
            run.name(index - run.at)
        })
    }

    /// All names, in order.
    pub fn iter(&self) -> impl Iterator<Item = String> + '_ {
        self.runs.iter().flat_map(|run| (0..run.count).map(|at| run.name(at)))
    }

    /// Adds a name at the end. Names beyond [`NAME_BYTES_MAX`] are cut.
    pub fn push(&mut self, name: &str) {
        let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
        let at = self.len;
        self.len = at.saturating_add(1);
        if !self.runs.last_mut().is_some_and(|run| run.extend(name)) {
            self.runs.push(NameRun::new(at, name));
        }
    }

    /// Some of the names, in order.
    #[must_use]
    pub fn slice(&self, range: Range<u32>) -> Self {
        let mut out = Self::new();
        for run in self.runs_in(range) {
            out.len += run.count;
            out.runs.push(NameRun { at: out.len - run.count, ..run });
        }
        out
    }

    /// The names at these indices, in that order.
    pub(super) fn select(&self, mut indices: &[u32]) -> Self {
        let mut out = Self::new();
        while let Some(&first) = indices.first() {
            let count = (first..).zip(indices).take_while(|(at, index)| at == *index).count();
            for run in self.runs_in(first..first + count as u32) {
                out.append(run);
            }
            indices = &indices[count..];
        }
        out
    }

    /// These names, then those.
    pub(super) fn join(mut self, other: Self) -> Self {
        other.runs.into_iter().for_each(|run| self.append(run));
        self
    }

    /// Adds a run at the end, as one with the last where it goes on.
    fn append(&mut self, run: NameRun) {
        let at = self.len;
        let goes_on = |last: &mut NameRun| {
            // On a copy: `extend` may give the run a step with which this one does not fit then.
            let (mut whole, count) = (last.clone(), run.count);
            let fits = whole.extend(&run.name(0))
                && (count == 1 || whole.number.map(|n| n.step) == run.number.map(|n| n.step));
            if fits {
                whole.count += count - 1;
                *last = whole;
            }
            fits
        };
        self.len += run.count;
        if !self.runs.last_mut().is_some_and(goes_on) {
            self.runs.push(NameRun { at, ..run });
        }
    }

    /// Some of the names, folded: `n[1-32,40],login`.
    #[must_use]
    pub fn fold(&self, range: Range<u32>) -> String {
        self.slice(range).to_string()
    }

    /// The runs within `range`, cut to it.
    fn runs_in(&self, range: Range<u32>) -> impl Iterator<Item = NameRun> + '_ {
        let range = range.start..range.end.min(self.len);
        let first = self.runs.partition_point(|run| run.at + run.count <= range.start);
        self.runs[first..].iter().take_while(move |run| run.at < range.end).map(move |run| {
            let skip = range.start.saturating_sub(run.at);
            let count = (range.end - run.at).min(run.count) - skip;
            let number = run.number.map(|number| NameNumber { first: number.nth(skip), ..number });
            NameRun { at: run.at + skip, count, number, ..run.clone() }
        })
    }

    /// Appends the wire form.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        varint::put(out, self.runs.len() as u64);
        for run in &self.runs {
            varint::put(out, run.count.into());
            varint::put_bytes(out, run.text.as_bytes());
            out.push(run.head_len);
            match run.number {
                None => out.push(u8::MAX),
                Some(number) => {
                    out.push(number.width);
                    varint::put(out, number.first);
                    varint::put(out, number.step);
                }
            }
        }
    }

    /// Takes names off the front of `input`.
    pub(super) fn decode(input: &mut &[u8]) -> Result<Self, TopologyError> {
        let runs = varint::get_len(input)?;
        let mut names = Self::new();
        for _ in 0..runs {
            let run = NameRun::decode(names.len, input)?;
            names.len = names.len.checked_add(run.count).ok_or(TopologyError::Malformed)?;
            // The count of a run costs no bytes on the wire, so the sum needs a bound of its own.
            if names.len > NODES_MAX {
                return Err(TopologyError::TooManyNodes);
            }
            names.runs.push(run);
        }
        Ok(names)
    }
}

impl NameRun {
    fn new(at: u32, name: &str) -> Self {
        let (head, digits, tail) = split(name);
        let padded = digits.len() > 1 && digits.starts_with('0');
        let number = digits.parse().ok().map(|first| NameNumber {
            first,
            step: 0,
            width: if padded { digits.len() as u8 } else { 0 },
        });
        Self {
            at,
            count: 1,
            text: [head, tail].concat().into(),
            head_len: head.len() as u8,
            number,
        }
    }

    fn name(&self, index: u32) -> String {
        let (head, tail) = self.parts();
        match self.number {
            None => self.text.to_string(),
            Some(number) => {
                format!("{head}{:0width$}{tail}", number.nth(index), width = number.width.into())
            }
        }
    }

    fn parts(&self) -> (&str, &str) {
        self.text.split_at(self.head_len.into())
    }

    /// Takes `name` in, if it goes on where the run ends.
    fn extend(&mut self, name: &str) -> bool {
        if self.count == 1
            && let Some(number) = &mut self.number
            && let Ok(second) = split(name).1.parse::<u64>()
        {
            // The second name decides by how much a run counts up.
            number.step = second.saturating_sub(number.first);
        }
        let goes_on = self.matches(self.count, name);
        self.count += u32::from(goes_on);
        goes_on
    }

    /// Whether the name at `index` is `name`, without spelling it out.
    fn matches(&self, index: u32, name: &str) -> bool {
        let Some(number) = self.number else { return *self.text == *name };
        let (head, tail) = self.parts();
        let Some(digits) = name.strip_prefix(head).and_then(|rest| rest.strip_suffix(tail)) else {
            return false;
        };
        let value = number.nth(index);
        let len = value.checked_ilog10().map_or(1, |log| log as usize + 1).max(number.width.into());
        // Of equal length and value, digits are equal.
        digits.len() == len
            && digits.bytes().all(|b| b.is_ascii_digit())
            && digits.parse() == Ok(value)
    }

    fn decode(at: u32, input: &mut &[u8]) -> Result<Self, TopologyError> {
        let count = varint::get_u32(input)?;
        let text =
            std::str::from_utf8(varint::get_bytes(input)?).map_err(|_| TopologyError::Malformed)?;
        let (&[head_len, width], rest) =
            input.split_first_chunk().ok_or(TopologyError::Malformed)?;
        *input = rest;
        let number = match width {
            u8::MAX => None,
            _ => Some(NameNumber { width, first: varint::get(input)?, step: varint::get(input)? }),
        };
        // All from a peer: `parts` splits the text at `head_len`, and `name` pads to `width`.
        let sane = count > 0
            && text.len() <= NAME_BYTES_MAX
            && text.is_char_boundary(head_len.into())
            && (width == u8::MAX || usize::from(width) <= DIGITS_MAX);
        if !sane {
            return Err(TopologyError::Malformed);
        }
        Ok(Self { at, count, text: text.into(), head_len, number })
    }

    /// Its numbers as pieces to print; two numbers that are not neighbours are two pieces.
    fn pieces(&self) -> impl Iterator<Item = NamePiece> {
        let number = self.number.unwrap_or(NameNumber { first: 0, step: 0, width: 0 });
        let (pieces, count) =
            if self.count == 2 && number.step > 1 { (2, 1) } else { (1, self.count) };
        (0..pieces).map(move |at| NamePiece {
            first: number.nth(at),
            last: number.nth(at + count - 1),
            step: number.step,
            width: number.width.into(),
        })
    }
}

/// `1-32`, `1-63/2`, `7`.
#[derive(Clone, Copy)]
struct NamePiece {
    first: u64,
    last: u64,
    step: u64,
    width: usize,
}

impl NamePiece {
    /// Takes in the piece that follows, if both are neighbours or rows of them.
    fn join(&mut self, next: Self) -> bool {
        let dense = |piece: &Self| piece.first == piece.last || piece.step == 1;
        let joins = dense(self) && dense(&next) && Some(next.first) == self.last.checked_add(1);
        if joins && self.width == next.width {
            (self.last, self.step) = (next.last, 1);
            return true;
        }
        false
    }
}

impl fmt::Display for NamePiece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.width;
        write!(f, "{:0width$}", self.first)?;
        if self.last > self.first {
            write!(f, "-{:0width$}", self.last)?;
            if self.step > 1 {
                write!(f, "/{}", self.step)?;
            }
        }
        Ok(())
    }
}

/// What stands before the last number of a name, the number, and what follows.
fn split(name: &str) -> (&str, &str, &str) {
    let end = name.rfind(|c: char| c.is_ascii_digit()).map_or(0, |at| at + 1);
    let start = name[..end]
        .rfind(|c: char| !c.is_ascii_digit())
        .map_or(0, |at| at + name[at..].chars().next().map_or(1, char::len_utf8));
    let start = if end == 0 { 0 } else { start };
    if end - start > DIGITS_MAX {
        (name, "", "")
    } else {
        (&name[..start], &name[start..end], &name[end..])
    }
}

impl<S: AsRef<str>> FromIterator<S> for Names {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        let mut out = Self::new();
        for name in names {
            out.push(name.as_ref());
        }
        out
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = &self.runs[..];
        let mut comma = "";
        while let Some(run) = rest.first() {
            let alike = |other: &&NameRun| {
                (&other.text, other.head_len) == (&run.text, run.head_len) && other.number.is_some()
            };
            let group = rest.iter().take_while(alike).count().max(1);
            let (head, tail) = run.parts();
            match run.number {
                None => write!(f, "{comma}{}", run.text)?,
                Some(_) if group == 1 && run.count == 1 => write!(f, "{comma}{}", run.name(0))?,
                Some(_) => {
                    let mut pieces: Vec<NamePiece> = Vec::new();
                    for piece in rest[..group].iter().flat_map(NameRun::pieces) {
                        if !pieces.last_mut().is_some_and(|last| last.join(piece)) {
                            pieces.push(piece);
                        }
                    }
                    let numbers: Vec<_> = pieces.iter().map(NamePiece::to_string).collect();
                    write!(f, "{comma}{head}[{}]{tail}", numbers.join(","))?;
                }
            }
            comma = ",";
            rest = &rest[group..];
        }
        Ok(())
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_are_what_was_pushed(
            names in proptest::collection::vec("(n|rack[12]-|é)?[0-9]{0,3}(\\.lab)?", 0..20),
            start in 0u32..20,
            len in 0u32..20,
        ) {
            let runs: Names = names.iter().collect();
            prop_assert_eq!(runs.iter().collect::<Vec<_>>(), names.clone());
            for (at, name) in names.iter().enumerate() {
                prop_assert_eq!(runs.get(at as u32), Some(name.clone()));
            }
            prop_assert_eq!(runs.get(names.len() as u32), None);
            let part: Vec<_> = names.iter().skip(start as usize).take(len as usize).cloned().collect();
            prop_assert_eq!(runs.slice(start..start + len).iter().collect::<Vec<_>>(), part);
            let mut wire = Vec::new();
            runs.encode(&mut wire);
            let mut input = &wire[..];
            prop_assert_eq!(Names::decode(&mut input), Ok(runs));
            prop_assert!(input.is_empty());
        }

        #[test]
        fn counting_names_are_one_run(first in 0u64..2000, step in 1u64..70, width in 0usize..5) {
            let names: Names = (0..50).map(|at| format!("n{:0width$}x", first + at * step)).collect();
            // "n9" and "n010" differ in width; one width for all is one run, or two where the
            // padding of the first number does not show.
            prop_assert!(names.runs.len() <= 2);
        }

        #[test]
        fn decoding_garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..48)) {
            if let Ok(names) = Names::decode(&mut &bytes[..]) {
                let _ = (names.get(0), names.fold(0..1 << 20), names.get(names.len().wrapping_sub(1)));
            }
        }
    }

    #[test]
    fn folding_reads_like_a_node_set() {
        let fold = |names: &[&str]| names.iter().collect::<Names>().to_string();
        assert_eq!(fold(&["n1", "n2", "n3", "n7", "login"]), "n[1-3,7],login");
        assert_eq!(fold(&["n001", "n033", "n065"]), "n[001-065/32]");
        assert_eq!(fold(&["n1", "n3", "n4", "n5", "n8"]), "n[1,3-5,8]");
        assert_eq!(fold(&["n9", "n10", "n11"]), "n[9-11]");
        assert_eq!(fold(&["n098", "n099", "n100", "n101"]), "n[098-101]");
        assert_eq!(fold(&["localhost", "localhost"]), "localhost");
        assert_eq!(fold(&["n1"]), "n1");
        assert_eq!(fold(&["a1.x", "a2.x", "b2.x"]), "a[1-2].x,b2.x");
        assert_eq!(fold(&["n99999999999999999999"]), "n99999999999999999999");
    }
}
