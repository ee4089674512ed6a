//! Printing a set of numbers as ranges, with or without steps.
use super::{NumberRun, NumberSet};
use crate::hostset::number;
use std::fmt;

/// The `autostep` that never writes `a-b/step`.
pub const AUTOSTEP_OFF: u64 = u64::MAX;

impl NumberSet {
    /// The set as ranges; equally spaced numbers become `a-b/step` when they are at least
    /// `autostep` many ([`AUTOSTEP_OFF`]: never).
    #[must_use]
    pub fn fold(&self, autostep: u64) -> String {
        let mut out = String::new();
        let pieces = if autostep == AUTOSTEP_OFF {
            self.plain_pieces()
        } else {
            self.stepped_pieces(autostep)
        };
        for piece in pieces {
            if !out.is_empty() {
                out.push(',');
            }
            piece.write(&mut out);
        }
        out
    }

    fn plain_pieces(&self) -> Vec<FoldPiece> {
        let mut pieces: Vec<FoldPiece> = Vec::new();
        let mut joiner = Joiner::default();
        for run in &self.runs {
            let last = number::value(run.last);
            match pieces.last_mut().filter(|_| joiner.joins(run)) {
                Some(piece) => piece.last = last,
                None => {
                    let pad =
                        if number::is_padded(run.first) { number::width(run.first) } else { 0 };
                    pieces.push(FoldPiece { first: number::value(run.first), last, step: 1, pad });
                }
            }
            joiner.pass(run);
        }
        pieces
    }

    fn stepped_pieces(&self, autostep: u64) -> Vec<FoldPiece> {
        let steps_min = i64::try_from(autostep).unwrap_or(i64::MAX) - 1;
        let mut numbers = self.numbers();
        let Some(first) = numbers.next() else { return Vec::new() };
        let mut stretch = Stretch::at(first, steps_min);
        let mut pieces = Vec::new();
        for number in numbers {
            stretch.take(number, &mut pieces);
        }
        stretch.end(&mut pieces);
        pieces
    }
}

/// Tells which runs are printed as one range: `8-9` and `10-12`, which differ in width only.
///
/// A padded run cannot grow wider. Nor can what follows a lone padded number: `04,99,100` stays as
/// it is, because the 99 may still become part of `04-99/95`.
#[derive(Default)]
pub(super) struct Joiner {
    previous: Option<NumberRun>,
    padded: bool,
}

impl Joiner {
    /// Whether `run` goes on counting where the one before it stops.
    pub(super) fn joins(&self, run: &NumberRun) -> bool {
        // Within one width two runs always have a gap.
        let follows = |end: NumberRun| number::value(run.first) == number::value(end.last) + 1;
        self.previous.is_some_and(follows) && !self.padded && !number::is_padded(run.first)
    }

    /// Moves behind `run`.
    pub(super) fn pass(&mut self, run: &NumberRun) {
        let lone = |end: NumberRun| {
            end.first == end.last && number::width(end.last) == number::width(run.first)
        };
        self.padded =
            number::is_padded(run.first) || (self.padded && self.previous.is_some_and(lone));
        self.previous = Some(*run);
    }
}

/// What is printed between two commas.
struct FoldPiece {
    first: i64,
    last: i64,
    step: i64,
    pad: usize,
}

impl FoldPiece {
    fn write(&self, out: &mut String) {
        use fmt::Write;
        let Self { first, last, step, pad } = *self;
        // Writing into a string cannot fail.
        let _ = match (first == last, step) {
            (true, _) => write!(out, "{first:0pad$}"),
            (false, 1) => write!(out, "{first:0pad$}-{last:0pad$}"),
            (false, step) => write!(out, "{first:0pad$}-{last:0pad$}/{step}"),
        };
    }
}

/// Equally spaced numbers seen so far and not yet printed.
struct Stretch {
    start: i64,
    last: i64,
    step: Option<i64>,
    /// Width of the number that opened the stretch, and whether it was padded.
    width: usize,
    padded: bool,
    steps_min: i64,
}

impl Stretch {
    fn at(number: i64, steps_min: i64) -> Self {
        let value = number::value(number);
        let (width, padded) = (number::width(number), number::is_padded(number));
        Self { start: value, last: value, step: None, width, padded, steps_min }
    }

    /// Extends the stretch, or prints what it has and opens the next one.
    fn take(&mut self, number: i64, out: &mut Vec<FoldPiece>) {
        let value = number::value(number);
        let gap = value - self.last;
        let width_breaks = if self.padded {
            number::width(number) != self.width
        } else {
            number::is_padded(number)
        };
        if width_breaks {
            self.end(out);
            *self = Self::at(number, self.steps_min);
            return;
        }
        if self.step.is_none_or(|step| step == gap) {
            (self.step, self.last) = (Some(gap), value);
            return;
        }
        if self.is_worth_a_range() {
            self.end(out);
            *self = Self::at(number, self.steps_min);
        } else {
            // The last number may open a stretch with another spacing.
            let step = self.step.unwrap_or(1);
            self.singles(self.last - step, step, out);
            (self.start, self.last) = (self.last, value);
        }
        // The spacing in front of a number counts, even when the number opens a stretch.
        self.step = Some(gap);
    }

    fn end(&self, out: &mut Vec<FoldPiece>) {
        let step = self.step.unwrap_or(1);
        if self.is_worth_a_range() {
            out.push(FoldPiece { first: self.start, last: self.last, step, pad: self.pad() });
        } else {
            self.singles(self.last, step, out);
        }
    }

    fn is_worth_a_range(&self) -> bool {
        match self.step {
            None | Some(1) => true,
            Some(step) => {
                i128::from(self.last - self.start) >= i128::from(self.steps_min) * i128::from(step)
            }
        }
    }

    fn singles(&self, until: i64, step: i64, out: &mut Vec<FoldPiece>) {
        let mut at = self.start;
        while at <= until {
            out.push(FoldPiece { first: at, last: at, step: 1, pad: self.pad() });
            at += step;
        }
    }

    fn pad(&self) -> usize {
        if self.padded { self.width } else { 0 }
    }
}

impl fmt::Display for NumberSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fold(AUTOSTEP_OFF))
    }
}

impl fmt::Debug for NumberSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{self}]")
    }
}
