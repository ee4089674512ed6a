//! Numbers in text: sums, means, minima and maxima of columns.
use serde::{Deserialize, Serialize};
use sheaf_core::varint::{self, Malformed};

/// The most numbers one member may contribute.
pub const NUMBERS_MAX: usize = 1 << 16;

/// Which numbers are wanted of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

/// Position by position, what the members' numbers come to.
///
/// Sums are kept as fixed sums of halves (two doubles, Neumaier's compensation), so that the
/// order in which a tree adds does not show in the digits that are printed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Numbers {
    cells: Vec<Cell>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    count: u64,
    sum: f64,
    rest: f64,
    min: f64,
    max: f64,
}

impl Cell {
    fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        let lost =
            if self.sum.abs() >= value.abs() { (self.sum - sum) + value } else { (value - sum) + self.sum };
        self.sum = sum;
        self.rest += lost;
    }
}

impl Numbers {
    /// One member's numbers.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let cell = |&value: &f64| Cell { count: 1, sum: value, rest: 0.0, min: value, max: value };
        Self { cells: values.iter().map(cell).collect() }
    }

    /// Takes in other members'. Positions that only some have are taken over those.
    pub fn merge(&mut self, other: &Self) {
        for (have, more) in self.cells.iter_mut().zip(&other.cells) {
            have.count = have.count.saturating_add(more.count);
            have.add(more.sum);
            have.rest += more.rest;
            have.min = have.min.min(more.min);
            have.max = have.max.max(more.max);
        }
        if let Some(longer) = other.cells.get(self.cells.len()..) {
            self.cells.extend_from_slice(longer);
        }
    }

    /// The result, position by position.
    #[must_use]
    pub fn values(&self, op: NumberOp) -> Vec<f64> {
        let value = |cell: &Cell| match op {
            NumberOp::Sum => cell.sum + cell.rest,
            NumberOp::Average => (cell.sum + cell.rest) / cell.count as f64,
            NumberOp::Min => cell.min,
            NumberOp::Max => cell.max,
        };
        self.cells.iter().map(value).collect()
    }

    /// How many members gave a number at each position.
    #[must_use]
    pub fn counts(&self) -> Vec<u64> {
        self.cells.iter().map(|cell| cell.count).collect()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        varint::put(out, self.cells.len() as u64);
        for cell in &self.cells {
            varint::put(out, cell.count);
            for number in [cell.sum, cell.rest, cell.min, cell.max] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
    }

    pub(super) fn decode(input: &mut &[u8]) -> Result<Self, Malformed> {
        let mut cells = Vec::new();
        for _ in 0..varint::get_len(input)? {
            let count = varint::get(input)?;
            let mut number = || {
                let (bytes, rest) = input.split_first_chunk::<8>().ok_or(Malformed)?;
                *input = rest;
                Ok(f64::from_le_bytes(*bytes))
            };
            cells.push(Cell { count, sum: number()?, rest: number()?, min: number()?, max: number()? });
        }
        Ok(Self { cells })
    }
}

/// The numbers in a text: of every line the given columns (counted from 1, separated by white
/// space), or with no columns every field that is a number, in reading order.
///
/// Returns `None` when a wanted column is missing or not a number, or there are more than
/// 65,536.
#[must_use]
pub fn parse_numbers(text: &[u8], columns: &[u32]) -> Option<Vec<f64>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut numbers = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if columns.is_empty() {
            numbers.extend(line.split_whitespace().filter_map(number));
        } else {
            let fields: Vec<&str> = line.split_whitespace().collect();
            for &column in columns {
                numbers.push(number(fields.get((column as usize).checked_sub(1)?)?)?);
            }
        }
        if numbers.len() > NUMBERS_MAX {
            return None;
        }
    }
    Some(numbers)
}

/// A finite decimal number; words like "inf" that a parser would take are not numbers here.
fn number(field: &str) -> Option<f64> {
    let starts = field.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first));
    field.parse().ok().filter(|value: &f64| starts && value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_a_load_average() {
        let text = b"0.25 0.50 1.75 1/123 4567\n";
        assert_eq!(parse_numbers(text, &[1, 3]), Some(vec![0.25, 1.75]));
        assert_eq!(parse_numbers(text, &[4]), None);
        assert_eq!(parse_numbers(text, &[9]), None);
        assert_eq!(parse_numbers(text, &[]), Some(vec![0.25, 0.5, 1.75, 4567.0]));
    }

    #[test]
    fn any_grouping_gives_the_same_mean() {
        let values: Vec<f64> = (0..1000).map(|n| f64::from(n) * 0.1 + 1e9).collect();
        let merge = |chunk: usize| {
            let mut all = Numbers::default();
            for part in values.chunks(chunk) {
                let mut sub = Numbers::default();
                part.iter().for_each(|&value| sub.merge(&Numbers::of(&[value])));
                all.merge(&sub);
            }
            all.values(NumberOp::Average)
        };
        assert_eq!(merge(1), merge(32));
        assert_eq!(merge(7), merge(1000));
    }
}
