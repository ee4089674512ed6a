//! `count`: how many leaves contributed.
use super::{bad, invalid};
use crate::filter::{Accumulator, Emit, Filter, FilterError, Input, Registry};
use crate::packet::{put_scalar, scalar};

pub(super) fn register(registry: &mut Registry) {
    registry.register("count", |params| {
        if params.is_empty() {
            Ok(Box::new(Count))
        } else {
            Err(invalid("count takes no parameters"))
        }
    });
}

struct Count;

impl Filter for Count {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(Counter(0))
    }
}

struct Counter(u64);

impl Accumulator for Counter {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        let leaves = if input.raw {
            1
        } else {
            scalar::<u64>(input.payload).ok_or_else(|| bad("a partial count is one %uld"))?
        };
        self.0 =
            self.0.checked_add(leaves).ok_or_else(|| bad("a partial count is beyond any tree"))?;
        Ok(())
    }

    fn finish(&mut self, _emit: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        put_scalar(std::mem::take(&mut self.0), out);
        Ok(())
    }
}
