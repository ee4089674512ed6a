//! `distinct`: how many different values all contributions hold together.
//!
//! Up to [`EXACT_MAX`] values are counted exactly, by their hashes. Beyond, it is HyperLogLog++
//! with 2¹⁴ registers; its estimator is that of `hyperloglogplus`. Which of the two is used
//! follows from the values alone, so that the shape of the tree does not show.
use super::{NOTHING, OPAQUE, bad, invalid};
use crate::filter::{Accumulator, Emit, Filter, FilterError, Input, Registry};
use crate::packet::{Field, Fields, pack_into};
use hyperloglogplus::{HyperLogLog, HyperLogLogPlus};
use sheaf_core::Errno;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};

/// So many distinct values are counted exactly.
pub const EXACT_MAX: usize = 1024;
/// Bits of a hash that choose the register.
const PRECISION: u8 = 14;
const REGISTERS: usize = 1 << PRECISION;
/// The largest value of a register: all bits that do not choose it are zero.
const REGISTER_MAX: u8 = 64 - PRECISION + 1;
/// Standard error of an estimate: 1.04 / √registers.
const STANDARD_ERROR: f64 = 1.04 / 128.0;
/// Below this estimate, counting empty registers is better than the harmonic mean (from the
/// paper's table for this precision).
const LINEAR_MAX: f64 = 11_500.0;

/// Forms of a partial, after [`OPAQUE`].
const FORM_EXACT: u8 = 0;
const FORM_REGISTERS: u8 = 1;

pub(super) fn register(registry: &mut Registry) {
    registry.register("distinct", |params| {
        if params.is_empty() {
            Ok(Box::new(Distinct))
        } else {
            Err(invalid("distinct takes no parameters"))
        }
    });
}

struct Distinct;

impl Filter for Distinct {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(SeenValues::Exact(BTreeSet::new()))
    }
}

enum SeenValues {
    Exact(BTreeSet<u64>),
    Registers(Box<[u8; REGISTERS]>),
}

impl SeenValues {
    fn add(&mut self, hash: u64) {
        match self {
            Self::Exact(hashes) => {
                hashes.insert(hash);
                if hashes.len() > EXACT_MAX {
                    let hashes = std::mem::take(hashes);
                    *self = Self::Registers(Box::new([0; REGISTERS]));
                    hashes.into_iter().for_each(|hash| self.add(hash));
                }
            }
            Self::Registers(registers) => {
                let register = &mut registers[(hash >> (64 - PRECISION)) as usize];
                // The bit that is set bounds the leading zeros, so that a register is at most
                // `REGISTER_MAX`.
                let rest = (hash << PRECISION) | (1 << (PRECISION - 1));
                *register = (*register).max(rest.leading_zeros() as u8 + 1);
            }
        }
    }

    fn merge(&mut self, payload: &[u8]) -> Result<(), FilterError> {
        match payload {
            [OPAQUE, FORM_EXACT, hashes @ ..]
                if hashes.len() % 8 == 0 && hashes.len() <= 8 * EXACT_MAX =>
            {
                hashes.as_chunks().0.iter().for_each(|&hash| self.add(u64::from_le_bytes(hash)));
                Ok(())
            }
            // A larger register than the maximum would make `estimate` shift by a negative count.
            [OPAQUE, FORM_REGISTERS, theirs @ ..]
                if theirs.len() == REGISTERS
                    && theirs.iter().all(|&register| register <= REGISTER_MAX) =>
            {
                if let Self::Exact(hashes) = self {
                    let hashes = std::mem::take(hashes);
                    *self = Self::Registers(Box::new([0; REGISTERS]));
                    hashes.into_iter().for_each(|hash| self.add(hash));
                }
                if let Self::Registers(registers) = self {
                    registers
                        .iter_mut()
                        .zip(theirs)
                        .for_each(|(mine, &theirs)| *mine = (*mine).max(theirs));
                }
                Ok(())
            }
            _ => Err(bad("malformed partial of distinct")),
        }
    }

    /// The number, and the standard error relative to it.
    fn estimate(&self) -> Result<(u64, f64), FilterError> {
        let registers = match self {
            Self::Exact(hashes) => return Ok((hashes.len() as u64, 0.0)),
            Self::Registers(registers) => registers,
        };
        let empty = registers.iter().filter(|&&register| register == 0).count();
        let linear = REGISTERS as f64 * (REGISTERS as f64 / empty.max(1) as f64).ln();
        if empty > 0 && linear <= LINEAR_MAX {
            return Ok((linear.round() as u64, STANDARD_ERROR));
        }
        let internal =
            |error| FilterError::new(Errno::INVAL, format!("the estimator refused: {error}"));
        let mut sketch = HyperLogLogPlus::<u64, _>::new(PRECISION, AsIs).map_err(internal)?;
        for (index, &register) in
            registers.iter().enumerate().filter(|&(_, &register)| register > 0)
        {
            // A hash that makes exactly this register.
            let rest = if register == REGISTER_MAX { 0 } else { 1 << (64 - PRECISION - register) };
            sketch.insert(&((index as u64) << (64 - PRECISION) | rest));
        }
        Ok((sketch.count().round() as u64, STANDARD_ERROR))
    }
}

/// Hashes of hashes are themselves.
struct AsIs;

#[derive(Default)]
struct AsIsHasher(u64);

impl BuildHasher for AsIs {
    type Hasher = AsIsHasher;

    fn build_hasher(&self) -> AsIsHasher {
        AsIsHasher::default()
    }
}

impl Hasher for AsIsHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0 << 8 | u64::from(byte));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// The same on every host and in every release: partials of different hosts are merged.
fn hash(kind: u8, bytes: &[u8]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[kind]).update(bytes);
    let digest = hasher.finalize();
    let [a, b, c, d, e, f, g, h, ..] = *digest.as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

fn add_field(seen: &mut SeenValues, field: &Field<'_>) {
    let kind = field.kind() as u8;
    match (field.kind().width(), field.strings()) {
        (Some(width), _) => {
            field.bytes().chunks_exact(width).for_each(|item| seen.add(hash(kind, item)))
        }
        (None, Some(strings)) => strings.for_each(|item| seen.add(hash(kind, item))),
        (None, None) => {}
    }
}

impl Accumulator for SeenValues {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        if input.payload == NOTHING {
            return Ok(());
        }
        if !input.raw {
            return self.merge(input.payload);
        }
        let fields = Fields::new(input.payload)?.collect::<Result<Vec<_>, _>>()?;
        fields.iter().for_each(|field| add_field(self, field));
        Ok(())
    }

    fn finish(&mut self, emit: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        let seen = std::mem::replace(self, Self::Exact(BTreeSet::new()));
        match (emit, &seen) {
            (Emit::Result, _) => {
                let (count, error) = seen.estimate()?;
                pack_into(&[count.into(), error.into()], out)?;
            }
            (Emit::Partial, Self::Exact(hashes)) => {
                out.extend_from_slice(&[OPAQUE, FORM_EXACT]);
                hashes.iter().for_each(|hash| out.extend_from_slice(&hash.to_le_bytes()));
            }
            (Emit::Partial, Self::Registers(registers)) => {
                out.extend_from_slice(&[OPAQUE, FORM_REGISTERS]);
                out.extend_from_slice(&registers[..]);
            }
        }
        Ok(())
    }
}
