//! `min`, `max`, `sum` and `avg`: numbers to numbers, value by value.
//!
//! Sums are kept wider than their type, and so is a partial whose sums do not fit, so that only
//! the total decides about an overflow and the shape of the tree never does. Integer means are
//! rounded towards zero, as MRNet's are. NaN loses against every number in `min` and `max`.
use super::{NOTHING, OPAQUE, bad, invalid};
use crate::filter::{Accumulator, Emit, Filter, FilterError, Input, Registry, Uniform};
use crate::packet::{FieldKind, Fields, Format};
use single::Single;
use std::marker::PhantomData;
use table::Table;

mod single;
mod table;
mod uniform;

/// The most contributions to one wave. It makes 64 bits enough for sums of 32-bit numbers, and
/// 128 bits for those of 64-bit numbers.
const CONTRIBUTIONS_MAX: u64 = 1 << 31;

pub(super) fn register(registry: &mut Registry) {
    registry.register("min", ReduceFilter::<Min>::boxed);
    registry.register("max", ReduceFilter::<Max>::boxed);
    registry.register("sum", ReduceFilter::<Sum>::boxed);
    registry.register("avg", ReduceFilter::<Avg>::boxed);
}

/// What makes two numbers one.
trait ReduceOp: Send + Sync + 'static {
    const NAME: &'static str;
    /// Values can outgrow their type.
    const SUMS: bool = false;
    /// The result is the sum divided by the number of contributions.
    const AVERAGES: bool = false;

    fn narrow(a: i64, b: i64) -> i64;
    fn wide(a: i128, b: i128) -> i128;
    fn float(a: f64, b: f64) -> f64;
}

struct Min;
struct Max;
struct Sum;
struct Avg;

/// Orders by value with NaN last, and −0 before 0, so that the order of folding does not show.
fn before(a: f64, b: f64) -> bool {
    a.is_nan().cmp(&b.is_nan()).then(a.total_cmp(&b)).is_lt()
}

impl ReduceOp for Min {
    const NAME: &'static str = "min";

    fn narrow(a: i64, b: i64) -> i64 {
        a.min(b)
    }

    fn wide(a: i128, b: i128) -> i128 {
        a.min(b)
    }

    fn float(a: f64, b: f64) -> f64 {
        if before(b, a) { b } else { a }
    }
}

impl ReduceOp for Max {
    const NAME: &'static str = "max";

    fn narrow(a: i64, b: i64) -> i64 {
        a.max(b)
    }

    fn wide(a: i128, b: i128) -> i128 {
        a.max(b)
    }

    fn float(a: f64, b: f64) -> f64 {
        // Negation reverses the order of numbers, and NaN is still last.
        if before(-b, -a) { b } else { a }
    }
}

impl ReduceOp for Sum {
    const NAME: &'static str = "sum";
    const SUMS: bool = true;

    fn narrow(a: i64, b: i64) -> i64 {
        a + b
    }

    fn wide(a: i128, b: i128) -> i128 {
        a + b
    }

    fn float(a: f64, b: f64) -> f64 {
        a + b
    }
}

impl ReduceOp for Avg {
    const NAME: &'static str = "avg";
    const SUMS: bool = true;
    const AVERAGES: bool = true;

    fn narrow(a: i64, b: i64) -> i64 {
        a + b
    }

    fn wide(a: i128, b: i128) -> i128 {
        a + b
    }

    fn float(a: f64, b: f64) -> f64 {
        a + b
    }
}

struct ReduceFilter<O> {
    /// The header that contributions must have; empty when any will do.
    header: Vec<u8>,
    in_child_order: bool,
    uniform: Option<Uniform>,
    op: PhantomData<O>,
}

impl<O: ReduceOp> ReduceFilter<O> {
    fn boxed(params: &[u8]) -> Result<Box<dyn Filter>, FilterError> {
        let text = std::str::from_utf8(params).map_err(|_| invalid("the format is not text"))?;
        let format = Format::parse(text).map_err(|error| invalid(error.to_string()))?;
        if format.fields().iter().any(|field| field.kind == FieldKind::Str) {
            return Err(invalid(format!("{} does not combine strings", O::NAME)));
        }
        let exact = !text.is_empty() && !format.fields().iter().any(|field| field.kind.is_float());
        let mut header = Vec::new();
        if !format.fields().is_empty() {
            format.encode(&mut header);
        }
        // Where any packet will do, those of one integer are the likeliest to be many.
        let likely = if header.is_empty() { Format::parse("%d").unwrap_or(format) } else { format };
        // A partial of an average carries a count, so it has not the form of a contribution.
        let uniform = uniform::uniform::<O>(&likely).filter(|_| !O::AVERAGES);
        Ok(Box::new(Self { header, in_child_order: O::SUMS && !exact, uniform, op: PhantomData }))
    }
}

impl<O: ReduceOp> Filter for ReduceFilter<O> {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(Reduction::<O> {
            single: Single::None,
            table: Table::default(),
            folded: 0,
            header: self.header.clone(),
            op: PhantomData,
        })
    }

    fn in_child_order(&self) -> bool {
        self.in_child_order
    }

    fn uniform(&self) -> Option<Uniform> {
        self.uniform
    }
}

struct Reduction<O> {
    /// The wave so far, while it consists of packets of one scalar of one type.
    single: Single,
    /// The wave so far, otherwise.
    table: Table,
    /// Contributions that are in either of them.
    folded: u64,
    header: Vec<u8>,
    op: PhantomData<O>,
}

impl<O: ReduceOp> Reduction<O> {
    /// Whether the payload is one plain packet: always for a leaf, and for the partials of
    /// filters that divide nothing.
    fn takes_packets(input: Input<'_>) -> bool {
        input.raw || !O::AVERAGES
    }

    /// Everything but the next scalar of a wave of scalars.
    #[cold]
    fn fold_any(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        if input.payload == NOTHING {
            return Ok(());
        }
        if !input.raw && O::SUMS && input.payload.first() == Some(&OPAQUE) {
            return self.fold_wide(&input.payload[1..]);
        }
        if !Self::takes_packets(input) {
            return Err(bad(format!("a partial of {} is no plain packet", O::NAME)));
        }
        let fields = Fields::new(input.payload)?;
        self.check_header(fields.header())?;
        self.check_room(1)?;
        if self.folded == 0 && self.single.start(input.payload) {
            self.folded = 1;
            return Ok(());
        }
        self.settle();
        if self.folded == 0 {
            self.table.start(fields, O::NAME)?;
        } else {
            self.table.fold::<O>(fields)?;
        }
        self.folded += 1;
        Ok(())
    }

    fn fold_wide(&mut self, payload: &[u8]) -> Result<(), FilterError> {
        let (count, fields) = table::open_wide(payload)?;
        self.check_header(fields.header)?;
        self.check_room(count)?;
        self.settle();
        self.table.fold_wide::<O>(fields, count, self.folded == 0)?;
        self.folded += count;
        Ok(())
    }

    fn check_header(&self, header: &[u8]) -> Result<(), FilterError> {
        if self.header.is_empty() || self.header == header {
            return Ok(());
        }
        Err(table::mismatch(O::NAME, &self.header, header))
    }

    fn check_room(&self, more: u64) -> Result<(), FilterError> {
        if self.folded.saturating_add(more) <= CONTRIBUTIONS_MAX {
            return Ok(());
        }
        Err(bad(format!("more than {CONTRIBUTIONS_MAX} contributions to one {}", O::NAME)))
    }

    /// Moves a wave of single scalars into the table, where everything can be folded.
    fn settle(&mut self) {
        match std::mem::replace(&mut self.single, Single::None) {
            Single::None => {}
            Single::Int(kind, value) => self.table.start_int(kind, value),
            Single::Float(kind, value) => self.table.start_float(kind, value),
        }
    }
}

impl<O: ReduceOp> Accumulator for Reduction<O> {
    #[inline]
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        // An unsettled single scalar has fewer contributions than any limit: they are counted
        // one by one, and 2³¹ of them are checked for below.
        if Self::takes_packets(input)
            && self.folded < CONTRIBUTIONS_MAX
            && self.single.fold::<O>(input.payload)
        {
            self.folded += 1;
            return Ok(());
        }
        self.fold_any(input)
    }

    fn finish(&mut self, emit: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        let folded = std::mem::take(&mut self.folded);
        if folded == 0 {
            out.extend_from_slice(NOTHING);
            return Ok(());
        }
        if !O::AVERAGES && self.single.finish(out) {
            self.single = Single::None;
            return Ok(());
        }
        self.settle();
        match emit {
            Emit::Partial if O::AVERAGES || !self.table.fits() => self.table.put_wide(folded, out),
            Emit::Partial => self.table.put(out),
            Emit::Result => {
                if O::AVERAGES {
                    self.table.divide(folded);
                }
                self.table.check_fits(O::NAME)?;
                self.table.put(out);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
