//! Waves of one integer each, by the run: every packet has the same few bytes.
use super::ReduceOp;
use crate::filter::Uniform;
use crate::packet::{FieldKind, Format, Scalar, scalar};

/// How packets of `format` are reduced behind one another, if they are of a single integer.
pub(super) fn uniform<O: ReduceOp>(format: &Format) -> Option<Uniform> {
    macro_rules! of {
        ($kind:expr, $($name:ident $type:ident),*) => {
            match $kind {
                $(FieldKind::$name => Some(Uniform {
                    item_bytes: <$type>::HEADER.len() + <$type>::WIDTH,
                    fold: fold::<O, $type>,
                    is_plain: |packet| scalar::<$type>(packet).is_some(),
                }),)*
                FieldKind::F32 | FieldKind::F64 | FieldKind::Str => None,
            }
        };
    }
    let [field] = format.fields() else { return None };
    if *field != crate::packet::FieldType::scalar(field.kind) {
        return None;
    }
    of!(field.kind, I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32, I64 i64, U64 u64)
}

/// Folds packets into those before them, until one is something else or its result does not fit.
fn fold<O: ReduceOp, T: Scalar + Into<i128> + TryFrom<i128>>(
    into: &mut [u8],
    packets: &[u8],
) -> usize {
    let width = T::HEADER.len() + T::WIDTH;
    let mut count = 0;
    for (into, packet) in into.chunks_exact_mut(width).zip(packets.chunks_exact(width)) {
        let (Some(sum), Some(more)) = (scalar::<T>(into), scalar::<T>(packet)) else { break };
        let Ok(total) = T::try_from(O::wide(sum.into(), more.into())) else { break };
        total.write_le(&mut into[T::HEADER.len()..]);
        count += 1;
    }
    count
}
