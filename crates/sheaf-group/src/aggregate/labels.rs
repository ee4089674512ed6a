//! The text beside numbers, as far as all members share it.
use super::numbers::NumberPlace;
use regex::bytes::{Regex, RegexBuilder};
use sheaf_core::Errno;
use sheaf_core::varint::{self, Malformed};
use std::cmp::Ordering;

/// The most bytes of text that are kept beside numbers; beyond, none is.
const LABEL_BYTES_MAX: usize = 1 << 20;

/// The most memory that the program of a regular expression takes.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// A field that is the same text, and not a number, in all members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelAt {
    /// The line, counted from 1.
    pub line: u32,
    /// The field of the line, counted from 1.
    pub column: u32,
    /// The text.
    pub text: Vec<u8>,
}

/// Which numbers are taken from a text, and what beside them.
#[derive(Debug, Default)]
pub(crate) struct NumberChoice<'a> {
    /// Columns of each line, counted from 1; empty: every field that is a number.
    pub columns: &'a [u32],
    /// Only lines in which this matches; places count these lines alone.
    pub lines: Option<Regex>,
    /// Keep the text beside numbers.
    pub labels: bool,
}

impl<'a> NumberChoice<'a> {
    /// That of a request.
    ///
    /// # Errors
    /// `EINVAL` where `lines` is not a regular expression, or is too large.
    pub fn new(columns: &'a [u32], lines: Option<&str>, labels: bool) -> Result<Self, Errno> {
        let compile = |text| RegexBuilder::new(text).size_limit(REGEX_BYTES_MAX).build();
        let lines = lines.map(compile).transpose().map_err(|_| Errno::INVAL)?;
        Ok(Self { columns, lines, labels })
    }

    /// The lines of a text that are chosen.
    pub fn lines_of<'t>(&self, text: &'t [u8]) -> impl Iterator<Item = &'t [u8]> {
        let is_chosen = |line: &&[u8]| self.lines.as_ref().is_none_or(|lines| lines.is_match(line));
        text.split(|&byte| byte == b'\n').filter(is_chosen)
    }
}

/// Fields of text by their place.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Labels(Vec<(NumberPlace, Vec<u8>)>);

impl Labels {
    /// Takes in a field behind all others.
    pub fn push(&mut self, place: NumberPlace, text: &[u8]) {
        self.0.push((place, text.to_vec()));
    }

    /// Keeps the text of lines that have numbers, if it is not too long in all.
    pub fn bound(&mut self, has_numbers: impl Fn(u32) -> bool) {
        self.0.retain(|((line, _), _)| has_numbers(*line));
        if self.0.iter().map(|(_, text)| text.len()).sum::<usize>() > LABEL_BYTES_MAX
            || self.0.len() > super::NUMBERS_MAX
        {
            self.0 = Vec::new();
        }
    }

    /// Keeps what others have, too.
    pub fn intersect(&mut self, others: &Self) {
        let mut others = others.0.iter().peekable();
        self.0.retain(|own| {
            loop {
                match others.peek().map(|other| other.0.cmp(&own.0)) {
                    Some(Ordering::Less) => drop(others.next()),
                    Some(Ordering::Equal) => {
                        return others.next().is_some_and(|other| other == own);
                    }
                    _ => return false,
                }
            }
        });
    }

    /// The fields, by line and column.
    pub fn values(&self) -> Vec<LabelAt> {
        let value = |((line, field), text): &(NumberPlace, Vec<u8>)| LabelAt {
            line: line.saturating_add(1),
            column: field.saturating_add(1),
            text: text.clone(),
        };
        self.0.iter().map(value).collect()
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        varint::put(out, self.0.len() as u64);
        for ((line, field), text) in &self.0 {
            varint::put(out, u64::from(*line));
            varint::put(out, u64::from(*field));
            varint::put_bytes(out, text);
        }
    }

    pub fn decode(input: &mut &[u8]) -> Result<Self, Malformed> {
        let (mut labels, mut bytes): (Self, usize) = (Self::default(), 0);
        for _ in 0..varint::get_len(input)? {
            let place = (varint::get_u32(input)?, varint::get_u32(input)?);
            let text = varint::get_bytes(input)?;
            bytes += text.len();
            let is_sorted = labels.0.last().is_none_or(|(before, _)| *before < place);
            if !is_sorted || bytes > LABEL_BYTES_MAX || labels.0.len() == super::NUMBERS_MAX {
                return Err(Malformed);
            }
            labels.push(place, text);
        }
        Ok(labels)
    }
}
