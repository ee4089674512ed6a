//! `histogram`: how many numbers lie in each of the given bins.
use super::{NOTHING, bad, each_number, invalid};
use crate::filter::{Accumulator, Emit, Filter, FilterError, Input, Registry};
use crate::packet::{Fields, PacketValue, pack_into, unpack};
use std::sync::Arc;

/// The most edges of bins.
const EDGES_MAX: usize = 1 << 16;

pub(super) fn register(registry: &mut Registry) {
    registry.register("histogram", |params| Ok(Box::new(Histogram { edges: edges(params)? })));
}

fn edges(params: &[u8]) -> Result<Arc<[f64]>, FilterError> {
    let fields = Fields::new(params)?.collect::<Result<Vec<_>, _>>()?;
    let edges: Vec<f64> = match &fields[..] {
        [field] => field.elements().map(Iterator::collect),
        _ => None,
    }
    .ok_or_else(|| invalid("histogram takes the edges of its bins, one %alf"))?;
    let ascending = edges.windows(2).all(|pair| pair[0] < pair[1]);
    if edges.is_empty()
        || edges.len() > EDGES_MAX
        || !ascending
        || edges.iter().any(|edge| edge.is_nan())
    {
        return Err(invalid(format!("histogram takes 1 to {EDGES_MAX} edges in ascending order")));
    }
    Ok(edges.into())
}

struct Histogram {
    edges: Arc<[f64]>,
}

impl Filter for Histogram {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(Bins {
            edges: Arc::clone(&self.edges),
            counts: vec![0; self.edges.len() + 1],
            nans: 0,
        })
    }
}

struct Bins {
    edges: Arc<[f64]>,
    /// Below the first edge, between each and the next, at or above the last.
    counts: Vec<u64>,
    nans: u64,
}

impl Bins {
    fn merge(&mut self, payload: &[u8]) -> Result<(), FilterError> {
        let fields = Fields::new(payload)?.collect::<Result<Vec<_>, _>>()?;
        let parts = match &fields[..] {
            [counts, nans] => counts.elements::<u64>().zip(nans.scalar::<u64>()),
            _ => None,
        };
        let (counts, nans) = parts.ok_or_else(|| bad("a partial histogram is %auld %uld"))?;
        if counts.len() != self.counts.len() {
            return Err(bad("a partial histogram has other bins"));
        }
        // All sums first, because an error must leave the accumulator as it was.
        let sums: Option<Vec<u64>> =
            self.counts.iter().zip(counts).map(|(have, more)| have.checked_add(more)).collect();
        let too_many = || bad("a partial histogram counts more than any tree holds");
        let (sums, nans) = sums.zip(self.nans.checked_add(nans)).ok_or_else(too_many)?;
        (self.counts, self.nans) = (sums, nans);
        Ok(())
    }
}

impl Accumulator for Bins {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        if input.payload == NOTHING {
            return Ok(());
        }
        if !input.raw {
            return self.merge(input.payload);
        }
        each_number("histogram", input.payload, |number| match number {
            _ if number.is_nan() => self.nans += 1,
            _ => self.counts[self.edges.partition_point(|&edge| edge <= number)] += 1,
        })
    }

    fn finish(&mut self, _emit: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        let fresh = vec![0; self.counts.len()];
        let counts = std::mem::replace(&mut self.counts, fresh);
        pack_into(&[counts.into(), std::mem::take(&mut self.nans).into()], out)?;
        Ok(())
    }
}

/// Reads a result: the counts (below the first edge, in each bin, at or above the last edge), and
/// how many contributions were not numbers at all.
///
/// # Errors
/// `EBADMSG` when it is none.
pub fn counts(result: &[u8]) -> Result<(Vec<u64>, u64), FilterError> {
    match &unpack(result)?[..] {
        [PacketValue::Array(crate::packet::Array::U64(counts)), PacketValue::U64(nans)] => {
            Ok((counts.clone(), *nans))
        }
        _ => Err(bad("a histogram is %auld %uld")),
    }
}
