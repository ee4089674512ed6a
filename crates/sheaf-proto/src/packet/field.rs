//! Reading a packet without allocating.
use super::{
    Array, FieldKind, FieldShape, FieldType, PacketError, PacketValue, Scalar, take_count,
};
use bytes::Bytes;
use sheaf_core::varint;

/// The values of a packet, one after the other, borrowed from it.
///
/// ```
/// use sheaf_proto::packet::{Fields, PacketValue, pack};
/// let packet = pack(&[PacketValue::from(vec![3u32, 4])])?;
/// let field = Fields::new(&packet)?.next().unwrap()?;
/// assert_eq!(field.elements::<u32>().unwrap().sum::<u32>(), 7);
/// # Ok::<(), sheaf_proto::packet::PacketError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    header: &'a [u8],
    format: &'a [u8],
    values: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// Starts reading `packet`. The values are checked as they are reached.
    ///
    /// # Errors
    /// [`PacketError::Truncated`] when the format is cut off.
    pub fn new(packet: &'a [u8]) -> Result<Self, PacketError> {
        let (&len, _) = packet.split_first().ok_or(PacketError::Truncated(0))?;
        let (header, values) =
            packet.split_at_checked(usize::from(len) + 1).ok_or(PacketError::Truncated(0))?;
        // 255 marks a partial of a filter, which is not a packet.
        if usize::from(len) > super::FORMAT_BYTES_MAX {
            return Err(PacketError::FormatTooLong(len.into()));
        }
        Ok(Self { header, format: &header[1..], values, at: 0 })
    }

    /// The length byte and the format: equal in packets of equal types, for formats have one
    /// spelling only.
    #[must_use]
    pub fn header(&self) -> &'a [u8] {
        self.header
    }

    /// How many values have been read.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    fn read(&mut self) -> Option<Result<Field<'a>, PacketError>> {
        if self.at > 0 && !self.format.is_empty() {
            // Exactly one blank: another spelling would be another header for the same types.
            match self.format.split_first() {
                Some((b' ', rest)) if !rest.is_empty() => self.format = rest,
                _ => return Some(Err(self.unknown())),
            }
        }
        if self.format.is_empty() {
            // Taken out, so that the error is returned once and then the end.
            return match std::mem::take(&mut self.values).len() {
                0 => None,
                left => Some(Err(PacketError::TrailingBytes(left))),
            };
        }
        let Some(field_type) = FieldType::take(&mut self.format) else {
            return Some(Err(self.unknown()));
        };
        self.at += 1;
        Some(Field::take(field_type, &mut self.values).ok_or(PacketError::Truncated(self.at)))
    }

    fn unknown(&self) -> PacketError {
        let found = self.format.iter().take(8).map(|&byte| char::from(byte)).collect();
        PacketError::UnknownConversion { found, column: self.header.len() - self.format.len() }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, PacketError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.read();
        if matches!(item, Some(Err(_))) {
            // Nothing after an error means anything; end there.
            (self.format, self.values) = (&[], &[]);
        }
        item
    }
}

/// One value of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    field_type: FieldType,
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Field<'a> {
    fn take(field_type: FieldType, input: &mut &'a [u8]) -> Option<Self> {
        let scalar = field_type.shape == FieldShape::Scalar;
        let width = field_type.kind.width();
        let count = if scalar { 1 } else { take_count(input, width.unwrap_or(1))? };
        if field_type.shape == FieldShape::Array && u32::try_from(count).is_err() {
            return None;
        }
        let start = *input;
        let bytes = match width {
            Some(width) => {
                let (bytes, rest) = input.split_at_checked(count.checked_mul(width)?)?;
                *input = rest;
                bytes
            }
            None if scalar => varint::get_bytes(input).ok()?,
            None => {
                // Checked once here, so that `Strings` can read them without errors.
                for _ in 0..count {
                    varint::get_bytes(input).ok()?;
                }
                &start[..start.len() - input.len()]
            }
        };
        Some(Self { field_type, count, bytes })
    }

    /// Its type.
    #[must_use]
    pub fn field_type(&self) -> FieldType {
        self.field_type
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> FieldKind {
        self.field_type.kind
    }

    /// How many elements; 1 for a scalar.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Numbers: their little-endian bytes, one after the other. A string: its bytes. An array of
    /// strings: each with its length before it.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The number, when it is a scalar of type `T`.
    #[must_use]
    pub fn scalar<T: Scalar>(&self) -> Option<T> {
        let fits = self.field_type == FieldType::scalar(T::KIND);
        if fits { T::from_le(self.bytes) } else { None }
    }

    /// The numbers, when it is a scalar or an array of type `T`.
    #[must_use]
    pub fn elements<T: Scalar>(&self) -> Option<impl ExactSizeIterator<Item = T> + use<'a, T>> {
        (self.field_type.kind == T::KIND).then(|| {
            self.bytes
                .chunks_exact(T::WIDTH)
                .map(|chunk| T::from_le(chunk).expect("chunks of WIDTH bytes are read from"))
        })
    }

    /// The strings, when it is a string or an array of them.
    #[must_use]
    pub fn strings(&self) -> Option<Strings<'a>> {
        let scalar = self.field_type.shape == FieldShape::Scalar;
        (self.field_type.kind == FieldKind::Str).then_some(Strings {
            bytes: self.bytes,
            left: self.count,
            scalar,
        })
    }

    /// An owned value; `share` makes the bytes of strings.
    pub(super) fn to_value(self, share: impl Fn(&'a [u8]) -> Bytes) -> PacketValue {
        match self.field_type.shape {
            FieldShape::Scalar => self.to_scalar(share),
            FieldShape::Array => PacketValue::Array(self.to_array(share)),
            FieldShape::LargeArray => PacketValue::LargeArray(self.to_array(share)),
        }
    }

    fn to_scalar(self, share: impl Fn(&'a [u8]) -> Bytes) -> PacketValue {
        fn get<T: Scalar>(bytes: &[u8]) -> T {
            T::from_le(bytes).expect("a scalar's field has the bytes of its kind")
        }
        let bytes = self.bytes;
        match self.field_type.kind {
            FieldKind::I8 => PacketValue::I8(get(bytes)),
            FieldKind::U8 => PacketValue::U8(get(bytes)),
            FieldKind::I16 => PacketValue::I16(get(bytes)),
            FieldKind::U16 => PacketValue::U16(get(bytes)),
            FieldKind::I32 => PacketValue::I32(get(bytes)),
            FieldKind::U32 => PacketValue::U32(get(bytes)),
            FieldKind::I64 => PacketValue::I64(get(bytes)),
            FieldKind::U64 => PacketValue::U64(get(bytes)),
            FieldKind::F32 => PacketValue::F32(get(bytes)),
            FieldKind::F64 => PacketValue::F64(get(bytes)),
            FieldKind::Str => PacketValue::Str(share(bytes)),
        }
    }

    fn to_array(self, share: impl Fn(&'a [u8]) -> Bytes) -> Array {
        fn all<T: Scalar>(field: Field<'_>) -> Vec<T> {
            field.elements().map(Iterator::collect).unwrap_or_default()
        }
        match self.field_type.kind {
            FieldKind::I8 => Array::I8(all(self)),
            FieldKind::U8 => Array::U8(all(self)),
            FieldKind::I16 => Array::I16(all(self)),
            FieldKind::U16 => Array::U16(all(self)),
            FieldKind::I32 => Array::I32(all(self)),
            FieldKind::U32 => Array::U32(all(self)),
            FieldKind::I64 => Array::I64(all(self)),
            FieldKind::U64 => Array::U64(all(self)),
            FieldKind::F32 => Array::F32(all(self)),
            FieldKind::F64 => Array::F64(all(self)),
            FieldKind::Str => Array::Str(self.strings().into_iter().flatten().map(share).collect()),
        }
    }
}

/// The strings of a field.
#[derive(Debug, Clone)]
pub struct Strings<'a> {
    bytes: &'a [u8],
    left: usize,
    scalar: bool,
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        if self.scalar { Some(self.bytes) } else { varint::get_bytes(&mut self.bytes).ok() }
    }
}
