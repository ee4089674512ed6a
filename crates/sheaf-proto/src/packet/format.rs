//! Format strings: which types a packet holds.
use super::{FORMAT_BYTES_MAX, PacketError, PacketValue};
use std::fmt;

/// The type of a scalar or of an array's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FieldKind {
    /// `%c`
    I8,
    /// `%uc`
    U8,
    /// `%hd`
    I16,
    /// `%uhd`
    U16,
    /// `%d`
    I32,
    /// `%ud`
    U32,
    /// `%ld`
    I64,
    /// `%uld`
    U64,
    /// `%f`
    F32,
    /// `%lf`
    F64,
    /// `%s`: a string of bytes, by custom UTF-8.
    Str,
}

/// One value, or an array of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FieldShape {
    /// A single value.
    Scalar,
    /// `a`: fewer than 2³² elements.
    Array,
    /// `A`: up to 2⁶⁴ − 1 elements.
    LargeArray,
}

/// The type of one value of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldType {
    /// The type of the scalar or of the elements.
    pub kind: FieldKind,
    /// One or many.
    pub shape: FieldShape,
}

impl FieldKind {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::I8,
        Self::U8,
        Self::I16,
        Self::U16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F32,
        Self::F64,
        Self::Str,
    ];

    /// Bytes of one value; `None` for strings.
    #[must_use]
    pub const fn width(self) -> Option<usize> {
        match self {
            Self::I8 | Self::U8 => Some(1),
            Self::I16 | Self::U16 => Some(2),
            Self::I32 | Self::U32 | Self::F32 => Some(4),
            Self::I64 | Self::U64 | Self::F64 => Some(8),
            Self::Str => None,
        }
    }

    /// The conversion, without `%`, `a` and `A`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::I8 => "c",
            Self::U8 => "uc",
            Self::I16 => "hd",
            Self::U16 => "uhd",
            Self::I32 => "d",
            Self::U32 => "ud",
            Self::I64 => "ld",
            Self::U64 => "uld",
            Self::F32 => "f",
            Self::F64 => "lf",
            Self::Str => "s",
        }
    }

    /// Whether it is a floating-point number.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }
}

impl FieldType {
    /// A scalar of `kind`.
    #[must_use]
    pub const fn scalar(kind: FieldKind) -> Self {
        Self { kind, shape: FieldShape::Scalar }
    }

    /// An array of `kind`.
    #[must_use]
    pub const fn array(kind: FieldKind) -> Self {
        Self { kind, shape: FieldShape::Array }
    }

    /// Takes one conversion off the front of `text`, which has no leading blanks.
    pub(crate) fn take(text: &mut &[u8]) -> Option<Self> {
        let rest = text.strip_prefix(b"%")?;
        let (shape, rest) = match rest.first()? {
            b'a' => (FieldShape::Array, &rest[1..]),
            b'A' => (FieldShape::LargeArray, &rest[1..]),
            _ => (FieldShape::Scalar, rest),
        };
        let (unsigned, rest) = match rest.strip_prefix(b"u") {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let (kind, length) = match rest {
            [b'c', ..] => (if unsigned { FieldKind::U8 } else { FieldKind::I8 }, 1),
            [b'h', b'd', ..] => (if unsigned { FieldKind::U16 } else { FieldKind::I16 }, 2),
            [b'd', ..] => (if unsigned { FieldKind::U32 } else { FieldKind::I32 }, 1),
            [b'l', b'd', ..] => (if unsigned { FieldKind::U64 } else { FieldKind::I64 }, 2),
            [b'f', ..] if !unsigned => (FieldKind::F32, 1),
            [b'l', b'f', ..] if !unsigned => (FieldKind::F64, 2),
            [b's', ..] if !unsigned => (FieldKind::Str, 1),
            _ => return None,
        };
        *text = &rest[length..];
        Some(Self { kind, shape })
    }
}

impl fmt::Display for FieldType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.shape {
            FieldShape::Scalar => "",
            FieldShape::Array => "a",
            FieldShape::LargeArray => "A",
        };
        write!(f, "%{prefix}{}", self.kind.name())
    }
}

/// A parsed format. Blanks between conversions are optional when read and single when printed.
///
/// ```
/// use sheaf_proto::packet::Format;
/// assert_eq!(Format::parse("%d%alf  %s").unwrap().to_string(), "%d %alf %s");
/// assert!(Format::parse("%d %q").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Format {
    fields: Vec<FieldType>,
}

impl Format {
    /// Reads a format.
    ///
    /// # Errors
    /// [`PacketError::UnknownConversion`] with its column, or [`PacketError::FormatTooLong`].
    pub fn parse(text: &str) -> Result<Self, PacketError> {
        let mut rest = text.as_bytes();
        let mut fields = Vec::new();
        loop {
            rest = rest.trim_ascii_start();
            if rest.is_empty() {
                return Self::new(fields);
            }
            let column = text.len() - rest.len();
            let Some(field) = FieldType::take(&mut rest) else {
                let found = text[column..].split_ascii_whitespace().next().unwrap_or_default();
                let found = found.chars().take(8).collect();
                return Err(PacketError::UnknownConversion { found, column: column + 1 });
            };
            fields.push(field);
        }
    }

    /// A format of these types.
    ///
    /// # Errors
    /// [`PacketError::FormatTooLong`].
    pub fn new(fields: Vec<FieldType>) -> Result<Self, PacketError> {
        let format = Self { fields };
        let len = format.to_string().len();
        if len > FORMAT_BYTES_MAX { Err(PacketError::FormatTooLong(len)) } else { Ok(format) }
    }

    /// The format of `values`.
    ///
    /// # Errors
    /// [`PacketError::FormatTooLong`].
    pub fn of(values: &[PacketValue]) -> Result<Self, PacketError> {
        Self::new(values.iter().map(PacketValue::field_type).collect())
    }

    /// The types, in order.
    #[must_use]
    pub fn fields(&self) -> &[FieldType] {
        &self.fields
    }

    /// Appends the length byte and the canonical text: what a packet of this format starts with.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.push(0);
        out.extend_from_slice(self.to_string().as_bytes());
        // `new` bounds the text, so its length fits in the byte.
        out[at] = (out.len() - at - 1) as u8;
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, field) in self.fields.iter().enumerate() {
            let blank = if at == 0 { "" } else { " " };
            write!(f, "{blank}{field}")?;
        }
        Ok(())
    }
}
