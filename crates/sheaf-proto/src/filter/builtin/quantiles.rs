//! `quantiles`: the value below which a given share of all numbers lies, within a relative error.
//!
//! The sketch is DDSketch: numbers are counted in buckets that grow geometrically. Partials carry
//! the counts, which add up exactly, so that the shape of the tree does not show; the bucket
//! mapping and the final estimate are those of `sketches-ddsketch`.
use super::{NOTHING, OPAQUE, bad, each_number, invalid};
use crate::filter::{Accumulator, Emit, Filter, FilterError, Input, Registry};
use crate::packet::{Fields, pack_into};
use sheaf_core::varint;
use sketches_ddsketch::{Config, DDSketch};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The relative error without a parameter.
pub const ACCURACY: f64 = 0.01;
/// The smallest relative error that can be asked for: it decides about the number of buckets.
pub const ACCURACY_MIN: f64 = 0.001;
/// Up to here a number counts as zero.
const ZERO_MAX: f64 = f64::MIN_POSITIVE;
/// The most quantiles in one result.
const QUANTILES_MAX: usize = 1024;
/// Buckets that the sketch adds beyond those that are needed.
const BUCKETS_SPARE: u32 = 256;

pub(super) fn register(registry: &mut Registry) {
    registry.register("quantiles", |params| {
        Ok(Box::new(Quantiles { plan: Arc::new(QuantilePlan::new(params)?) }))
    });
}

struct QuantilePlan {
    /// What to tell.
    shares: Vec<f64>,
    config: Config,
    /// Buckets that a finite number can fall into.
    keys: std::ops::RangeInclusive<i32>,
}

impl QuantilePlan {
    fn new(params: &[u8]) -> Result<Self, FilterError> {
        let fields = Fields::new(params)?.collect::<Result<Vec<_>, _>>()?;
        let (shares, accuracy) = match &fields[..] {
            [shares] => (shares.elements::<f64>(), Some(ACCURACY)),
            [shares, accuracy] => (shares.elements::<f64>(), accuracy.scalar::<f64>()),
            _ => (None, None),
        };
        let (shares, accuracy) = shares.zip(accuracy).ok_or_else(|| {
            invalid("quantiles takes shares from 0 to 1, %alf, and a relative error, %lf")
        })?;
        let shares: Vec<f64> = shares.take(QUANTILES_MAX + 1).collect();
        if shares.len() > QUANTILES_MAX || shares.iter().any(|share| !(0.0..=1.0).contains(share)) {
            return Err(invalid(format!(
                "quantiles takes up to {QUANTILES_MAX} shares from 0 to 1"
            )));
        }
        if !(ACCURACY_MIN..=0.5).contains(&accuracy) {
            return Err(invalid(format!(
                "the relative error of quantiles is from {ACCURACY_MIN} to 0.5"
            )));
        }
        // Keys do not depend on the number of buckets, so this mapping finds how many are needed.
        let mapping = Config::new(accuracy, BUCKETS_SPARE, ZERO_MAX);
        let keys = mapping.key(f64::MIN_POSITIVE)..=mapping.key(f64::MAX);
        let buckets = keys.end().abs_diff(*keys.start()) + BUCKETS_SPARE;
        let config = Config::new(accuracy, buckets, ZERO_MAX);
        Ok(Self { shares, config, keys })
    }
}

struct Quantiles {
    plan: Arc<QuantilePlan>,
}

impl Filter for Quantiles {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(Sketch { plan: Arc::clone(&self.plan), counts: Counts::default() })
    }
}

/// How many numbers fell into which bucket.
#[derive(Debug, Clone, PartialEq)]
struct Counts {
    total: u64,
    zeros: u64,
    min: f64,
    max: f64,
    /// Numbers above zero, and below it, by the bucket of their magnitude.
    signs: [BTreeMap<i32, u64>; 2],
}

impl Default for Counts {
    fn default() -> Self {
        let signs = [BTreeMap::new(), BTreeMap::new()];
        Self { total: 0, zeros: 0, min: f64::INFINITY, max: f64::NEG_INFINITY, signs }
    }
}

impl Counts {
    fn add(&mut self, config: &Config, number: f64) {
        self.total += 1;
        (self.min, self.max) = (self.min.min(number), self.max.max(number));
        if number.abs() <= ZERO_MAX {
            self.zeros += 1;
        } else {
            let sign = usize::from(number < 0.0);
            *self.signs[sign].entry(config.key(number.abs())).or_default() += 1;
        }
    }

    fn merge(&mut self, other: &Self) -> Result<(), FilterError> {
        let too_many = || bad("a partial sketch counts more than any tree holds");
        self.total = self.total.checked_add(other.total).ok_or_else(too_many)?;
        // No single count can overflow when their total does not.
        self.zeros += other.zeros;
        (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
        for (mine, theirs) in self.signs.iter_mut().zip(&other.signs) {
            for (&key, count) in theirs {
                *mine.entry(key).or_default() += count;
            }
        }
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(OPAQUE);
        varint::put(out, self.zeros);
        out.extend_from_slice(&self.min.to_le_bytes());
        out.extend_from_slice(&self.max.to_le_bytes());
        for sign in &self.signs {
            varint::put(out, sign.len() as u64);
            let mut last = i64::from(i32::MIN);
            for (&key, &count) in sign {
                varint::put(out, (i64::from(key) - last) as u64);
                varint::put(out, count);
                last = key.into();
            }
        }
    }

    fn decode(plan: &QuantilePlan, payload: &[u8]) -> Result<Self, FilterError> {
        let malformed = || bad("malformed partial sketch");
        let mut input = payload.strip_prefix(&[OPAQUE]).ok_or_else(malformed)?;
        let mut counts = Self { zeros: varint::get(&mut input)?, ..Self::default() };
        let (bounds, rest) = input.split_first_chunk::<16>().ok_or_else(malformed)?;
        input = rest;
        let (min, max) = bounds.split_at(8);
        let number = |bytes: &[u8]| Some(f64::from_le_bytes(bytes.try_into().ok()?));
        (counts.min, counts.max) = number(min).zip(number(max)).ok_or_else(malformed)?;
        counts.total = counts.zeros;
        for sign in 0..2 {
            let mut last = i64::from(i32::MIN);
            for at in 0..varint::get_len(&mut input)? {
                let step = i64::try_from(varint::get(&mut input)?).map_err(|_| malformed())?;
                let key = last.checked_add(step).and_then(|key| i32::try_from(key).ok());
                let key = key.filter(|key| plan.keys.contains(key)).ok_or_else(malformed)?;
                let count = varint::get(&mut input)?;
                counts.total = counts.total.checked_add(count).ok_or_else(malformed)?;
                // As `encode` writes them. A repeated key would replace the count of the earlier
                // one.
                if count == 0 || at > 0 && step == 0 {
                    return Err(malformed());
                }
                counts.signs[sign].insert(key, count);
                last = key.into();
            }
        }
        let ordered = counts.min.is_finite() && counts.max.is_finite() && counts.min <= counts.max;
        if input.is_empty() && counts.total > 0 && ordered { Ok(counts) } else { Err(malformed()) }
    }

    fn estimates(&self, plan: &QuantilePlan) -> Vec<f64> {
        let mut sketch = DDSketch::new(plan.config);
        sketch.add_with_count(0.0, self.zeros);
        for (sign, buckets) in [1.0, -1.0].into_iter().zip(&self.signs) {
            for (&key, &count) in buckets {
                // The middle of the last bucket lies beyond the largest number.
                sketch.add_with_count(sign * plan.config.value(key).min(f64::MAX), count);
            }
        }
        let estimate = |&share: &f64| match share {
            0.0 => self.min,
            1.0 => self.max,
            _ => {
                sketch.quantile(share).ok().flatten().unwrap_or(f64::NAN).clamp(self.min, self.max)
            }
        };
        plan.shares.iter().map(estimate).collect()
    }
}

struct Sketch {
    plan: Arc<QuantilePlan>,
    counts: Counts,
}

impl Accumulator for Sketch {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        if input.payload == NOTHING {
            return Ok(());
        }
        if !input.raw {
            let other = Counts::decode(&self.plan, input.payload)?;
            return self.counts.merge(&other);
        }
        let mut finite = true;
        each_number("quantiles", input.payload, |number| finite &= number.is_finite())?;
        if !finite {
            return Err(bad("quantiles are of finite numbers"));
        }
        each_number("quantiles", input.payload, |number| self.counts.add(&self.plan.config, number))
    }

    fn finish(&mut self, emit: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        let counts = std::mem::take(&mut self.counts);
        match emit {
            _ if counts.total == 0 => out.extend_from_slice(NOTHING),
            Emit::Partial => counts.encode(out),
            Emit::Result => {
                pack_into(&[counts.estimates(&self.plan).into(), counts.total.into()], out)?
            }
        }
        Ok(())
    }
}
