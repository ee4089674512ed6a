//! Owned values.
use super::{FieldKind, FieldShape, FieldType, PacketError, Scalar};
use bytes::Bytes;
use sheaf_core::varint;

/// One value of a packet.
#[derive(Debug, Clone, PartialEq)]
pub enum PacketValue {
    /// `%c`
    I8(i8),
    /// `%uc`
    U8(u8),
    /// `%hd`
    I16(i16),
    /// `%uhd`
    U16(u16),
    /// `%d`
    I32(i32),
    /// `%ud`
    U32(u32),
    /// `%ld`
    I64(i64),
    /// `%uld`
    U64(u64),
    /// `%f`
    F32(f32),
    /// `%lf`
    F64(f64),
    /// `%s`
    Str(Bytes),
    /// `%a…`
    Array(Array),
    /// `%A…`
    LargeArray(Array),
}

/// The elements of an array.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    /// `%ac`
    I8(Vec<i8>),
    /// `%auc`
    U8(Vec<u8>),
    /// `%ahd`
    I16(Vec<i16>),
    /// `%auhd`
    U16(Vec<u16>),
    /// `%ad`
    I32(Vec<i32>),
    /// `%aud`
    U32(Vec<u32>),
    /// `%ald`
    I64(Vec<i64>),
    /// `%auld`
    U64(Vec<u64>),
    /// `%af`
    F32(Vec<f32>),
    /// `%alf`
    F64(Vec<f64>),
    /// `%as`
    Str(Vec<Bytes>),
}

impl PacketValue {
    /// Its type.
    #[must_use]
    pub fn field_type(&self) -> FieldType {
        let kind = match self {
            Self::I8(_) => FieldKind::I8,
            Self::U8(_) => FieldKind::U8,
            Self::I16(_) => FieldKind::I16,
            Self::U16(_) => FieldKind::U16,
            Self::I32(_) => FieldKind::I32,
            Self::U32(_) => FieldKind::U32,
            Self::I64(_) => FieldKind::I64,
            Self::U64(_) => FieldKind::U64,
            Self::F32(_) => FieldKind::F32,
            Self::F64(_) => FieldKind::F64,
            Self::Str(_) => FieldKind::Str,
            Self::Array(array) => {
                return FieldType { kind: array.kind(), shape: FieldShape::Array };
            }
            Self::LargeArray(array) => {
                return FieldType { kind: array.kind(), shape: FieldShape::LargeArray };
            }
        };
        FieldType::scalar(kind)
    }

    /// Appends the value, without a format.
    ///
    /// # Errors
    /// [`PacketError::ArrayTooLong`].
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), PacketError> {
        match self {
            Self::I8(value) => value.put(out),
            Self::U8(value) => value.put(out),
            Self::I16(value) => value.put(out),
            Self::U16(value) => value.put(out),
            Self::I32(value) => value.put(out),
            Self::U32(value) => value.put(out),
            Self::I64(value) => value.put(out),
            Self::U64(value) => value.put(out),
            Self::F32(value) => value.put(out),
            Self::F64(value) => value.put(out),
            Self::Str(value) => varint::put_bytes(out, value),
            Self::Array(array) if array.len() as u64 > u64::from(u32::MAX) => {
                return Err(PacketError::ArrayTooLong(array.len() as u64));
            }
            Self::Array(array) | Self::LargeArray(array) => array.encode(out),
        }
        Ok(())
    }
}

impl Array {
    /// How many elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::I8(values) => values.len(),
            Self::U8(values) => values.len(),
            Self::I16(values) => values.len(),
            Self::U16(values) => values.len(),
            Self::I32(values) => values.len(),
            Self::U32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::U64(values) => values.len(),
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::Str(values) => values.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The kind of the elements.
    #[must_use]
    pub fn kind(&self) -> FieldKind {
        match self {
            Self::I8(_) => FieldKind::I8,
            Self::U8(_) => FieldKind::U8,
            Self::I16(_) => FieldKind::I16,
            Self::U16(_) => FieldKind::U16,
            Self::I32(_) => FieldKind::I32,
            Self::U32(_) => FieldKind::U32,
            Self::I64(_) => FieldKind::I64,
            Self::U64(_) => FieldKind::U64,
            Self::F32(_) => FieldKind::F32,
            Self::F64(_) => FieldKind::F64,
            Self::Str(_) => FieldKind::Str,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        fn all<T: Scalar>(values: &[T], out: &mut Vec<u8>) {
            out.reserve(values.len() * T::WIDTH);
            values.iter().for_each(|value| value.put(out));
        }
        varint::put(out, self.len() as u64);
        match self {
            Self::I8(values) => all(values, out),
            Self::U8(values) => out.extend_from_slice(values),
            Self::I16(values) => all(values, out),
            Self::U16(values) => all(values, out),
            Self::I32(values) => all(values, out),
            Self::U32(values) => all(values, out),
            Self::I64(values) => all(values, out),
            Self::U64(values) => all(values, out),
            Self::F32(values) => all(values, out),
            Self::F64(values) => all(values, out),
            Self::Str(values) => values.iter().for_each(|value| varint::put_bytes(out, value)),
        }
    }
}

macro_rules! from_numbers {
    ($($type:ident $kind:ident;)*) => {
        $(impl From<$type> for PacketValue {
            fn from(value: $type) -> Self {
                Self::$kind(value)
            }
        }

        impl From<Vec<$type>> for PacketValue {
            fn from(values: Vec<$type>) -> Self {
                Self::Array(Array::$kind(values))
            }
        })*
    };
}

from_numbers! {
    i8 I8; u8 U8; i16 I16; u16 U16; i32 I32; u32 U32; i64 I64; u64 U64; f32 F32; f64 F64;
}

impl From<&str> for PacketValue {
    fn from(text: &str) -> Self {
        Self::Str(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for PacketValue {
    fn from(text: String) -> Self {
        Self::Str(text.into())
    }
}

impl From<Bytes> for PacketValue {
    fn from(bytes: Bytes) -> Self {
        Self::Str(bytes)
    }
}

impl From<Vec<Bytes>> for PacketValue {
    fn from(strings: Vec<Bytes>) -> Self {
        Self::Array(Array::Str(strings))
    }
}
