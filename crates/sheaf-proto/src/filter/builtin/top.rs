//! `top-k`: the labels with the greatest scores.
use super::{NOTHING, bad, check_gathered, invalid};
use crate::filter::{Accumulator, Emit, Filter, FilterError, Input, Registry};
use crate::packet::{Field, FieldKind, FieldShape, FieldType, Fields, Format, scalar};
use sheaf_core::varint;
use std::cmp::{Ordering, Reverse};

/// The largest k.
pub const K_MAX: u32 = 1 << 20;

pub(super) fn register(registry: &mut Registry) {
    registry.register("top-k", |params| match scalar::<u32>(params) {
        Some(k) if (1..=K_MAX).contains(&k) => Ok(Box::new(TopK { k: k as usize })),
        _ => Err(invalid(format!("top-k takes one %ud from 1 to {K_MAX}"))),
    });
}

struct TopK {
    k: usize,
}

impl Filter for TopK {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(Best { k: self.k, kind: None, entries: Vec::new(), bytes: 0 })
    }
}

/// A score that orders like the number it is. NaN is less than every number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Score(i64, u64);

impl Score {
    fn new(kind: FieldKind, bytes: &[u8]) -> Option<Self> {
        let mut wide = [0; 8];
        wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let raw = u64::from_le_bytes(wide);
        let signed = (raw as i64) << (64 - 8 * bytes.len()) >> (64 - 8 * bytes.len());
        Some(match kind {
            FieldKind::U8 | FieldKind::U16 | FieldKind::U32 | FieldKind::U64 => Self(0, raw),
            FieldKind::I8 | FieldKind::I16 | FieldKind::I32 | FieldKind::I64 => Self(signed, raw),
            FieldKind::F32 => Self(order(f32::from_bits(raw as u32).into()), raw),
            FieldKind::F64 => Self(order(f64::from_bits(raw)), raw),
            FieldKind::Str => return None,
        })
    }

    /// The number's bytes, of which its kind takes the first.
    fn bytes(self) -> [u8; 8] {
        self.1.to_le_bytes()
    }
}

/// An integer that orders as the number does.
fn order(number: f64) -> i64 {
    if number.is_nan() {
        return i64::MIN;
    }
    let bits = number.to_bits() as i64;
    // Negative numbers have all bits except the sign flipped: their bits order them in reverse.
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

struct Best {
    k: usize,
    kind: Option<FieldKind>,
    /// At most 2k between two contributions' ends, in no order.
    entries: Vec<(Score, Box<[u8]>)>,
    /// Bytes of all labels.
    bytes: usize,
}

impl Best {
    fn push(&mut self, score: Score, label: &[u8]) {
        self.bytes += label.len();
        self.entries.push((score, label.into()));
        // At 2k and not at each entry, so that the selection costs a constant share for each.
        if self.entries.len() >= 2 * self.k {
            self.truncate();
        }
    }

    /// Keeps the best k. Equal scores are ordered by label, so that the tree does not show.
    fn truncate(&mut self) {
        if self.entries.len() > self.k {
            self.entries.select_nth_unstable_by(self.k - 1, compare);
            self.entries.truncate(self.k);
            self.bytes = self.entries.iter().map(|(_, label)| label.len()).sum();
        }
    }
}

fn compare(a: &(Score, Box<[u8]>), b: &(Score, Box<[u8]>)) -> Ordering {
    (Reverse(a.0), &a.1).cmp(&(Reverse(b.0), &b.1))
}

impl Accumulator for Best {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        if input.payload == NOTHING {
            return Ok(());
        }
        let fields = Fields::new(input.payload)?.collect::<Result<Vec<_>, _>>()?;
        let (scores, labels) = entries(&fields).ok_or_else(|| {
            bad("top-k takes scores and as many labels: %lf %s or %alf %as, or other numbers")
        })?;
        if self.kind.is_some_and(|kind| kind != scores.kind()) {
            return Err(bad("the scores of top-k are of one type only"));
        }
        check_gathered(self.bytes, input.payload.len())?;
        self.kind = Some(scores.kind());
        let width = scores.kind().width().unwrap_or(1);
        for (score, label) in scores.bytes().chunks_exact(width).zip(labels) {
            if let Some(score) = Score::new(scores.kind(), score) {
                self.push(score, label);
            }
        }
        Ok(())
    }

    fn finish(&mut self, _emit: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        let Some(kind) = self.kind.take() else {
            out.extend_from_slice(NOTHING);
            return Ok(());
        };
        self.truncate();
        self.bytes = 0;
        self.entries.sort_unstable_by(compare);
        Format::new(vec![FieldType::array(kind), FieldType::array(FieldKind::Str)])?.encode(out);
        varint::put(out, self.entries.len() as u64);
        for (score, _) in &self.entries {
            out.extend_from_slice(&score.bytes()[..kind.width().unwrap_or(0)]);
        }
        varint::put(out, self.entries.len() as u64);
        for (_, label) in self.entries.drain(..) {
            varint::put_bytes(out, &label);
        }
        Ok(())
    }
}

fn entries<'a>(
    fields: &[Field<'a>],
) -> Option<(Field<'a>, impl Iterator<Item = &'a [u8]> + use<'a>)> {
    let [scores, labels] = fields else { return None };
    let strings = labels.strings()?;
    let alike = (scores.field_type().shape == FieldShape::Scalar)
        == (labels.field_type().shape == FieldShape::Scalar);
    (alike && scores.kind() != FieldKind::Str && scores.count() == labels.count())
        .then_some((*scores, strings))
}
