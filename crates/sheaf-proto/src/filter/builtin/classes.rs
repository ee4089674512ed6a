//! `int-eq-class` and `bytes-eq-class`: which leaves hold the same value.
use super::{NOTHING, bad, check_gathered, invalid};
use crate::filter::{Accumulator, Emit, Filter, FilterError, Input, Registry};
use crate::packet::{Field, FieldKind, FieldType, Fields, Format};
use sheaf_core::{RangeSet, varint};
use std::collections::BTreeMap;

pub(super) fn register(registry: &mut Registry) {
    registry.register("int-eq-class", |params| match params {
        [] => Ok(Box::new(IntClasses)),
        _ => Err(invalid("int-eq-class takes no parameters")),
    });
    registry.register("bytes-eq-class", |params| match params {
        [] => Ok(Box::new(BytesClasses)),
        _ => Err(invalid("bytes-eq-class takes no parameters")),
    });
}

/// The most ranges of leaves in all classes together.
const RANGES_MAX: u64 = 1 << 22;

/// The classes in a result of `bytes-eq-class`, by value: the bytes, and the leaves that have them.
///
/// # Errors
/// `EBADMSG` when it is none.
pub fn bytes_classes(result: &[u8]) -> Result<Vec<(&[u8], RangeSet)>, FilterError> {
    if result == NOTHING {
        return Ok(Vec::new());
    }
    let fields = Fields::new(result)?.collect::<Result<Vec<_>, _>>()?;
    let [values, sets] = &fields[..] else { return Err(bad("classes of bytes are %as %auc")) };
    let (Some(values), FieldKind::U8) = (values.strings(), sets.kind()) else {
        return Err(bad("classes of bytes are %as %auc"));
    };
    let mut sets = sets.bytes();
    let mut ranges = 0;
    let classes = values
        .map(|value| {
            let leaves = RangeSet::decode(&mut sets)?;
            ranges += leaves.ranges().len() as u64;
            // The limit of one set holds for all together: they share the leaves.
            if ranges > RANGES_MAX {
                Err(bad("the sets have too many ranges"))
            } else {
                Ok((value, leaves))
            }
        })
        .collect::<Result<_, _>>();
    if sets.is_empty() { classes } else { Err(bad("there are more sets than classes")) }
}

struct IntClasses;

impl Filter for IntClasses {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(ByInt { kind: None, classes: BTreeMap::new() })
    }
}

/// MRNet's classes: values, how many members each has, and the members one class after the other.
struct ByInt {
    kind: Option<FieldKind>,
    classes: BTreeMap<i128, RangeSet>,
}

/// An integer of any kind from its bytes.
fn integer(kind: FieldKind, bytes: &[u8]) -> Option<i128> {
    let mut wide = [0; 16];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let negative = bytes.last()? & 0x80 != 0;
    match kind {
        FieldKind::U8 | FieldKind::U16 | FieldKind::U32 | FieldKind::U64 => {}
        FieldKind::I8 | FieldKind::I16 | FieldKind::I32 | FieldKind::I64 => {
            wide[bytes.len()..].fill(if negative { 0xff } else { 0 });
        }
        FieldKind::F32 | FieldKind::F64 | FieldKind::Str => return None,
    }
    Some(i128::from_le_bytes(wide))
}

/// The classes of one contribution.
fn int_classes(fields: &[Field<'_>]) -> Option<Vec<(i128, RangeSet)>> {
    let [values, counts, members] = fields else { return None };
    let (counts, mut members) = (counts.elements::<u32>()?, members.elements::<u32>()?);
    let width = values.kind().width()?;
    if values.count() != counts.len() {
        return None;
    }
    let mut classes = Vec::with_capacity(counts.len());
    for (value, count) in values.bytes().chunks_exact(width).zip(counts) {
        // `take` would return fewer members without an error.
        if count as usize > members.len() {
            return None;
        }
        classes.push((
            integer(values.kind(), value)?,
            members.by_ref().take(count as usize).collect(),
        ));
    }
    (members.len() == 0).then_some(classes)
}

impl Accumulator for ByInt {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        if input.payload == NOTHING {
            return Ok(());
        }
        let fields = Fields::new(input.payload)?.collect::<Result<Vec<_>, _>>()?;
        let classes = int_classes(&fields)
            .ok_or_else(|| bad("classes of integers are values, %aud counts and %aud members"))?;
        let kind = fields[0].kind();
        if self.kind.is_some_and(|have| have != kind) {
            return Err(bad("classes are of one type of integer only"));
        }
        self.kind = Some(kind);
        for (value, members) in classes {
            self.classes.entry(value).or_default().union_with(&members);
        }
        Ok(())
    }

    fn finish(&mut self, _emit: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        let classes = std::mem::take(&mut self.classes);
        let Some(kind) = self.kind.take() else {
            out.extend_from_slice(NOTHING);
            return Ok(());
        };
        let types = [kind, FieldKind::U32, FieldKind::U32].map(FieldType::array);
        Format::new(types.to_vec())?.encode(out);
        varint::put(out, classes.len() as u64);
        for value in classes.keys() {
            out.extend_from_slice(&value.to_le_bytes()[..kind.width().unwrap_or(0)]);
        }
        varint::put(out, classes.len() as u64);
        for members in classes.values() {
            out.extend_from_slice(&(members.len() as u32).to_le_bytes());
        }
        varint::put(out, classes.values().map(RangeSet::len).sum());
        for member in classes.values().flat_map(RangeSet::iter) {
            out.extend_from_slice(&member.to_le_bytes());
        }
        Ok(())
    }
}

struct BytesClasses;

impl Filter for BytesClasses {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::<ByBytes>::default()
    }
}

#[derive(Default)]
struct ByBytes {
    folded: bool,
    classes: BTreeMap<Box<[u8]>, RangeSet>,
    /// Bytes of all values.
    bytes: usize,
}

impl ByBytes {
    fn add(&mut self, value: &[u8], leaves: &RangeSet) {
        self.folded = true;
        if let Some(have) = self.classes.get_mut(value) {
            have.union_with(leaves);
            return;
        }
        self.bytes += value.len();
        self.classes.insert(value.into(), leaves.clone());
    }
}

/// A leaf's own contribution: its index, and the bytes.
fn of_leaf(payload: &[u8]) -> Result<(u32, &[u8]), FilterError> {
    let fields = Fields::new(payload)?.collect::<Result<Vec<_>, _>>()?;
    let is_bytes = |field: &Field<'_>| {
        field.field_type() == FieldType::scalar(FieldKind::Str)
            || field.field_type() == FieldType::array(FieldKind::U8)
    };
    match &fields[..] {
        [leaf, value] if is_bytes(value) => leaf.scalar().map(|leaf| (leaf, value.bytes())),
        _ => None,
    }
    .ok_or_else(|| bad("a leaf's class is its index and its bytes: %ud %s or %ud %auc"))
}

impl Accumulator for ByBytes {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        if input.payload == NOTHING {
            return Ok(());
        }
        check_gathered(self.bytes, input.payload.len())?;
        if input.raw {
            let (leaf, value) = of_leaf(input.payload)?;
            self.add(value, &RangeSet::single(leaf));
            return Ok(());
        }
        for (value, leaves) in bytes_classes(input.payload)? {
            self.add(value, &leaves);
        }
        Ok(())
    }

    fn finish(&mut self, _emit: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        self.bytes = 0;
        let classes = std::mem::take(&mut self.classes);
        if !std::mem::take(&mut self.folded) {
            out.extend_from_slice(NOTHING);
            return Ok(());
        }
        Format::new(vec![FieldType::array(FieldKind::Str), FieldType::array(FieldKind::U8)])?
            .encode(out);
        varint::put(out, classes.len() as u64);
        let mut sets = Vec::new();
        for (value, leaves) in &classes {
            varint::put_bytes(out, value);
            leaves.encode(&mut sets);
        }
        varint::put_bytes(out, &sets);
        Ok(())
    }
}
