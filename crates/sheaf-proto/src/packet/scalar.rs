//! Numbers as packets hold them, and the shortest way to a packet of one number.
use super::FieldKind;

/// A number that a packet can hold.
pub trait Scalar: Copy + PartialEq + Send + Sync + 'static {
    /// Its kind.
    const KIND: FieldKind;
    /// Its bytes.
    const WIDTH: usize;
    /// What a packet of a single such scalar starts with.
    const HEADER: &'static [u8];

    /// Reads it from exactly [`Self::WIDTH`] bytes; `None` when there are more or fewer.
    fn from_le(bytes: &[u8]) -> Option<Self>;

    /// Appends its bytes.
    fn put(self, out: &mut Vec<u8>);

    /// Overwrites exactly [`Self::WIDTH`] bytes with it.
    fn write_le(self, out: &mut [u8]);
}

macro_rules! scalars {
    ($($type:ident $kind:ident $width:literal $header:literal;)*) => {
        $(impl Scalar for $type {
            const KIND: FieldKind = FieldKind::$kind;
            const WIDTH: usize = $width;
            const HEADER: &'static [u8] = $header;

            #[inline]
            fn from_le(bytes: &[u8]) -> Option<Self> {
                Some($type::from_le_bytes(bytes.try_into().ok()?))
            }

            #[inline]
            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn write_le(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }
        })*

        /// What a packet of one number of `kind` starts with; `None` for strings.
        pub(crate) fn scalar_header(kind: FieldKind) -> Option<&'static [u8]> {
            match kind {
                $(FieldKind::$kind => Some($type::HEADER),)*
                FieldKind::Str => None,
            }
        }
    };
}

scalars! {
    i8 I8 1 b"\x02%c";
    u8 U8 1 b"\x03%uc";
    i16 I16 2 b"\x03%hd";
    u16 U16 2 b"\x04%uhd";
    i32 I32 4 b"\x02%d";
    u32 U32 4 b"\x03%ud";
    i64 I64 8 b"\x03%ld";
    u64 U64 8 b"\x04%uld";
    f32 F32 4 b"\x02%f";
    f64 F64 8 b"\x03%lf";
}

/// The value of a packet that holds exactly one `T`; `None` when it holds anything else.
///
/// ```
/// use sheaf_proto::packet::{put_scalar, scalar};
/// let mut packet = Vec::new();
/// put_scalar(42i64, &mut packet);
/// assert_eq!(scalar::<i64>(&packet), Some(42));
/// assert_eq!(scalar::<u64>(&packet), None);
/// ```
#[inline]
#[must_use]
pub fn scalar<T: Scalar>(packet: &[u8]) -> Option<T> {
    T::from_le(packet.strip_prefix(T::HEADER)?)
}

/// Appends a packet of one scalar.
#[inline]
pub fn put_scalar<T: Scalar>(value: T, out: &mut Vec<u8>) {
    out.extend_from_slice(T::HEADER);
    value.put(out);
}
