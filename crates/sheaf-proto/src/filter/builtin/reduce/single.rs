//! The hot path: waves of one scalar each.
use super::ReduceOp;
use crate::packet::{FieldKind, put_scalar, scalar};

/// What packets of a single scalar have been reduced to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Single {
    /// Nothing, or the wave is in the table.
    None,
    /// Integers of one kind.
    Int(FieldKind, i128),
    /// Floating-point numbers of one kind.
    Float(FieldKind, f64),
}

impl Single {
    /// Takes the first packet of a wave, if it holds a single number.
    pub(super) fn start(&mut self, packet: &[u8]) -> bool {
        for kind in FieldKind::ALL {
            if let Some(value) = int(kind, packet) {
                *self = Self::Int(kind, value);
                return true;
            }
            if let Some(value) = float(kind, packet) {
                *self = Self::Float(kind, value);
                return true;
            }
        }
        false
    }

    /// Folds another packet, if it holds a single number of the same kind.
    #[inline(always)]
    pub(super) fn fold<O: ReduceOp>(&mut self, packet: &[u8]) -> bool {
        // One branch on the kind and one comparison with a constant header: what a wave of a
        // thousand children does a thousand times.
        macro_rules! fold {
            ($(Int $int:ident $int_type:ident,)* $(Float $float:ident $float_type:ident,)*) => {
                match self {
                    $(Self::Int(FieldKind::$int, value) => match scalar::<$int_type>(packet) {
                        Some(more) => *value = O::wide(*value, more.into()),
                        None => return false,
                    })*
                    $(Self::Float(FieldKind::$float, value) => match scalar::<$float_type>(packet) {
                        Some(more) => *value = O::float(*value, more.into()),
                        None => return false,
                    })*
                    _ => return false,
                }
            };
        }
        fold! {
            Int I8 i8, Int U8 u8, Int I16 i16, Int U16 u16, Int I32 i32, Int U32 u32, Int I64 i64,
            Int U64 u64, Float F32 f32, Float F64 f64,
        }
        true
    }

    /// Appends the value as a packet, unless there is none or it does not fit into its kind.
    pub(super) fn finish(&self, out: &mut Vec<u8>) -> bool {
        match *self {
            Self::None => false,
            Self::Int(kind, value) => put_int(kind, value, out),
            Self::Float(FieldKind::F64, value) => {
                put_scalar(value, out);
                true
            }
            // Whether single precision will do is the table's business.
            Self::Float(..) => false,
        }
    }
}

#[inline]
fn int(kind: FieldKind, packet: &[u8]) -> Option<i128> {
    match kind {
        FieldKind::I8 => scalar::<i8>(packet).map(i128::from),
        FieldKind::U8 => scalar::<u8>(packet).map(i128::from),
        FieldKind::I16 => scalar::<i16>(packet).map(i128::from),
        FieldKind::U16 => scalar::<u16>(packet).map(i128::from),
        FieldKind::I32 => scalar::<i32>(packet).map(i128::from),
        FieldKind::U32 => scalar::<u32>(packet).map(i128::from),
        FieldKind::I64 => scalar::<i64>(packet).map(i128::from),
        FieldKind::U64 => scalar::<u64>(packet).map(i128::from),
        FieldKind::F32 | FieldKind::F64 | FieldKind::Str => None,
    }
}

#[inline]
fn float(kind: FieldKind, packet: &[u8]) -> Option<f64> {
    match kind {
        FieldKind::F32 => scalar::<f32>(packet).map(f64::from),
        FieldKind::F64 => scalar::<f64>(packet),
        _ => None,
    }
}

fn put_int(kind: FieldKind, value: i128, out: &mut Vec<u8>) -> bool {
    macro_rules! put {
        ($($kind:ident $type:ident),*) => {
            match kind {
                $(FieldKind::$kind => $type::try_from(value).map(|value| put_scalar(value, out)).is_ok(),)*
                FieldKind::F32 | FieldKind::F64 | FieldKind::Str => false,
            }
        };
    }
    put!(I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32, I64 i64, U64 u64)
}
