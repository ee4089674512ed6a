//! Numbers in text: sums, means, minima and maxima, each at its place.
use super::exact::Exact;
use super::labels::{LabelAt, Labels, NumberChoice};
use super::number::Number;
use serde::{Deserialize, Serialize};
use sheaf_core::varint::{self, Malformed};
use sheaf_core::{Errno, MemberSet, RangeSet};
use std::cmp::Ordering;

/// The most places for numbers: of one member, and of all together.
pub const NUMBERS_MAX: usize = 1 << 16;

/// The most ranges of members that are kept to name who has no number at a place; beyond, they are
/// counted only.
const WITHOUT_RANGES_MAX: usize = 1 << 16;

/// Which numbers are wanted of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum NumberOp {
    /// Their sum.
    Sum,
    /// Their mean.
    Average,
    /// The least.
    Min,
    /// The greatest.
    Max,
}

/// A number that members gave at one place of their texts, combined.
#[derive(Debug, Clone, PartialEq)]
pub struct NumberAt {
    /// The line, counted from 1.
    pub line: u32,
    /// The field of the line, counted from 1.
    pub column: u32,
    /// What the numbers there come to. A sum of integers is an integer; where there is a float
    /// among them, it is the float nearest to the exact sum. A mean is an integer if nothing is
    /// left.
    pub number: Number,
    /// How many members have a number there.
    pub count: u64,
    /// How many of those that have numbers have none there.
    pub without: u64,
    /// Who these are; of a few when there are very many.
    pub without_members: MemberSet,
}

/// The sum at this place needs more than 128 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overflow {
    /// The line, counted from 1.
    pub line: u32,
    /// The field of the line, counted from 1.
    pub column: u32,
}

/// Where a number stands in a text: the line, and the field of it or, if columns are wanted, the
/// place of that column among them. Both are counted from 0.
pub(super) type NumberPlace = (u32, u32);

/// Place by place, what the members' numbers come to.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Numbers {
    members: MemberSet,
    /// By place.
    cells: Vec<(NumberPlace, Cell)>,
    /// The text beside them that all members share.
    labels: Labels,
}

#[derive(Debug, Clone, PartialEq)]
struct Cell {
    count: u64,
    has_floats: bool,
    sum: Exact,
    min: Number,
    max: Number,
    /// Of the members, those without a number here.
    without: MemberSet,
}

impl Cell {
    fn of(number: Number) -> Self {
        let (has_floats, sum) = match number {
            Number::Integer(value) => (false, Exact::from(value)),
            Number::Float(value) => (true, Exact::of_float(value)),
        };
        Self { count: 1, has_floats, sum, min: number, max: number, without: MemberSet::new() }
    }

    fn merge(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.has_floats |= other.has_floats;
        self.sum.add(&other.sum);
        self.min = std::cmp::min_by(self.min, other.min, Number::total_cmp);
        self.max = std::cmp::max_by(self.max, other.max, Number::total_cmp);
        self.without.union_with(&other.without);
    }

    fn value(&self, op: NumberOp) -> Option<Number> {
        Some(match op {
            NumberOp::Min => self.min,
            NumberOp::Max => self.max,
            NumberOp::Sum if self.has_floats => Number::Float(self.sum.to_float()),
            NumberOp::Sum => Number::Integer(self.sum.to_integer()?),
            NumberOp::Average => match self.sum.divided(self.count) {
                (_, Some(whole)) if !self.has_floats => Number::Integer(whole),
                (share, _) => Number::Float(share),
            },
        })
    }
}

impl Numbers {
    /// The numbers in one member's text, in the chosen lines: with columns (counted from 1) those
    /// fields of each line, else every field that is a number. Fields are separated by white space
    /// of ASCII and keep their place whatever stands before them.
    ///
    /// # Errors
    /// `EBADMSG` when there is none, `EOVERFLOW` for a number that does not fit, `EMSGSIZE` for
    /// more than [`NUMBERS_MAX`].
    pub fn of(
        leaf: u32,
        local: u32,
        text: &[u8],
        choice: &NumberChoice<'_>,
    ) -> Result<Self, Errno> {
        let mut numbers = Self::default();
        for (line, text) in (0..).zip(choice.lines_of(text)) {
            let fields = text.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
            if choice.columns.is_empty() {
                for (place, field) in (0..).zip(fields) {
                    if !numbers.push((line, place), field)? && choice.labels {
                        numbers.labels.push((line, place), field);
                    }
                }
                continue;
            }
            let fields: Vec<&[u8]> = fields.collect();
            for (place, &column) in (0..).zip(choice.columns) {
                let field = (column as usize).checked_sub(1).and_then(|at| fields.get(at));
                if let Some(field) = field {
                    numbers.push((line, place), field)?;
                }
            }
        }
        if numbers.cells.is_empty() {
            return Err(Errno::BADMSG);
        }
        numbers.members.insert(local, leaf);
        let cells = &numbers.cells;
        numbers
            .labels
            .bound(|line| cells.binary_search_by_key(&line, |((line, _), _)| *line).is_ok());
        Ok(numbers)
    }

    /// Takes in a field; returns whether it is a number.
    fn push(&mut self, place: NumberPlace, field: &[u8]) -> Result<bool, Errno> {
        let Ok(field) = std::str::from_utf8(field) else { return Ok(false) };
        let Some(number) = Number::parse(field)? else { return Ok(false) };
        if self.cells.len() == NUMBERS_MAX {
            return Err(Errno::MSGSIZE);
        }
        self.cells.push((place, Cell::of(number)));
        Ok(true)
    }

    /// Whether all members are of these leaves.
    pub fn is_of(&self, leaves: &RangeSet) -> bool {
        self.members.is_of(leaves) && self.cells.iter().all(|(_, cell)| cell.without.is_of(leaves))
    }

    /// Who has numbers.
    pub fn leaves(&self) -> RangeSet {
        self.members.leaves()
    }

    /// The text beside the numbers that all members share, in the order of lines and then of fields.
    pub fn labels(&self) -> Vec<LabelAt> {
        self.labels.values()
    }

    /// Takes in other members'.
    ///
    /// # Errors
    /// `EMSGSIZE` when there would be more than [`NUMBERS_MAX`] places; nothing has changed then.
    pub fn merge(&mut self, other: Self) -> Result<(), Errno> {
        let is_new = |(place, _): &&(NumberPlace, Cell)| {
            self.cells.binary_search_by_key(place, |cell| cell.0).is_err()
        };
        if self.cells.len() + other.cells.len() > NUMBERS_MAX
            && self.cells.len() + other.cells.iter().filter(is_new).count() > NUMBERS_MAX
        {
            return Err(Errno::MSGSIZE);
        }
        let mut cells = Vec::with_capacity(self.cells.len().max(other.cells.len()));
        let mut mine = std::mem::take(&mut self.cells).into_iter().peekable();
        let mut theirs = other.cells.into_iter().peekable();
        loop {
            let order = match (mine.peek(), theirs.peek()) {
                (Some((a, _)), Some((b, _))) => a.cmp(b),
                (Some(_), None) => Ordering::Less,
                (None, _) => Ordering::Greater,
            };
            let next = if order.is_gt() { theirs.next() } else { mine.next() };
            let Some((place, mut cell)) = next else { break };
            match order {
                Ordering::Less => cell.without.union_with(&other.members),
                Ordering::Greater => cell.without.union_with(&self.members),
                Ordering::Equal => theirs.next().into_iter().for_each(|(_, more)| cell.merge(more)),
            }
            cells.push((place, cell));
        }
        self.cells = cells;
        self.labels.intersect(&other.labels);
        self.members.union_with(&other.members);
        self.bound_names();
        Ok(())
    }

    /// Who has no number somewhere is worth some memory, but not any amount of it.
    fn bound_names(&mut self) {
        let mut ranges = 0;
        for (_, cell) in &mut self.cells {
            ranges += cell
                .without
                .by_local()
                .iter()
                .map(|(_, leaves)| leaves.ranges().len())
                .sum::<usize>();
            if ranges > WITHOUT_RANGES_MAX {
                cell.without = MemberSet::new();
            }
        }
    }

    /// The result, in the order of lines and then of fields or of the wanted `columns`.
    ///
    /// # Errors
    /// [`Overflow`] for the first sum of integers that does not fit.
    pub fn values(&self, op: NumberOp, columns: &[u32]) -> Result<Vec<NumberAt>, Overflow> {
        let members = self.members.len();
        let value = |((line, field), cell): &(NumberPlace, Cell)| {
            let column = columns.get(*field as usize).copied().unwrap_or(field.saturating_add(1));
            let line = line.saturating_add(1);
            let number = cell.value(op).ok_or(Overflow { line, column })?;
            let without = members.saturating_sub(cell.count);
            Ok(NumberAt {
                line,
                column,
                number,
                count: cell.count,
                without,
                without_members: cell.without.clone(),
            })
        };
        self.cells.iter().map(value).collect()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        self.members.encode(out);
        varint::put(out, self.cells.len() as u64);
        for ((line, field), cell) in &self.cells {
            varint::put(out, u64::from(*line));
            varint::put(out, u64::from(*field));
            varint::put(out, cell.count);
            out.push(u8::from(cell.has_floats));
            cell.sum.encode(out);
            cell.min.encode(out);
            cell.max.encode(out);
            cell.without.encode(out);
        }
        self.labels.encode(out);
    }

    pub(super) fn decode(input: &mut &[u8], ranges_left: &mut u64) -> Result<Self, Malformed> {
        let members = MemberSet::decode_within(input, ranges_left)?;
        let mut cells: Vec<(NumberPlace, Cell)> = Vec::new();
        for _ in 0..varint::get_len(input)? {
            let place = (varint::get_u32(input)?, varint::get_u32(input)?);
            let count = varint::get(input)?;
            let (&has_floats, rest) = input.split_first().ok_or(Malformed)?;
            *input = rest;
            let cell = Cell {
                count,
                has_floats: has_floats != 0,
                sum: Exact::decode(input)?,
                min: Number::decode(input)?,
                max: Number::decode(input)?,
                without: MemberSet::decode_within(input, ranges_left)?,
            };
            if cells.last().is_some_and(|(before, _)| *before >= place)
                || cells.len() == NUMBERS_MAX
                || count > members.len()
            {
                return Err(Malformed);
            }
            cells.push((place, cell));
        }
        Ok(Self { members, cells, labels: Labels::decode(input)? })
    }
}
