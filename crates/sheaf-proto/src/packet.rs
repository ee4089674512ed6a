//! Packets: typed values by format string, as in MRNet (section 2.1).
//!
//! The wire form describes itself: one byte with the length of the format, the format in its
//! canonical spelling, then the values, little-endian. Scalars have their natural width; strings
//! and arrays start with a variable-length count. No value is aligned, so readers copy scalars
//! out and borrow everything else.
//!
//! ```
//! use sheaf_proto::packet::{PacketValue, pack, unpack};
//! let values =
//!     [PacketValue::from(7i32), PacketValue::from("n17"), PacketValue::from(vec![1.5f64, 2.5])];
//! let packet = pack(&values)?;
//! assert_eq!(&packet[1..12], b"%d %s %alf\x07");
//! assert_eq!(unpack(&packet)?[0], PacketValue::from(7i32));
//! # Ok::<(), sheaf_proto::packet::PacketError>(())
//! ```
use bytes::Bytes;
use sheaf_core::{Errno, varint};

mod field;
mod format;
mod scalar;
mod value;

pub use field::{Field, Fields, Strings};
pub use format::{FieldKind, FieldShape, FieldType, Format};
pub(crate) use scalar::scalar_header;
pub use scalar::{Scalar, put_scalar, scalar};
pub use value::{Array, PacketValue};

/// The longest format a packet can carry, in bytes. The length byte 255 never starts a packet,
/// so filters can mark partials of their own with it.
pub const FORMAT_BYTES_MAX: usize = 254;

/// Why bytes are not a packet, or values cannot become one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The format has an unknown conversion.
    #[error("the format has no conversion like {found:?} (column {column})")]
    UnknownConversion {
        /// What stands there.
        found: String,
        /// Where it starts, counted from 1.
        column: usize,
    },
    /// The format is longer than [`FORMAT_BYTES_MAX`].
    #[error("the format has {0} bytes; a packet holds at most {FORMAT_BYTES_MAX}")]
    FormatTooLong(usize),
    /// A value runs past the end of the bytes, or its count does.
    #[error("the packet ends inside value {0}")]
    Truncated(usize),
    /// Bytes are left after the last value.
    #[error("{0} bytes follow the last value of the packet")]
    TrailingBytes(usize),
    /// A small array with more elements than 32 bits can count.
    #[error("an array of {0} elements needs the large-array conversion (A)")]
    ArrayTooLong(u64),
}

impl PacketError {
    /// What it is to a member. No retry can help: the same bytes fail again.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::FormatTooLong(_) | Self::ArrayTooLong(_) => Errno::MSGSIZE,
            _ => Errno::BADMSG,
        }
    }
}

/// Packs values, the format being that of the values.
///
/// # Errors
/// [`PacketError::FormatTooLong`] and [`PacketError::ArrayTooLong`].
pub fn pack(values: &[PacketValue]) -> Result<Vec<u8>, PacketError> {
    let mut out = Vec::with_capacity(16 * values.len() + 8);
    pack_into(values, &mut out)?;
    Ok(out)
}

/// Appends what [`pack`] gives to `out`; nothing on an error.
///
/// # Errors
/// As [`pack`].
pub fn pack_into(values: &[PacketValue], out: &mut Vec<u8>) -> Result<(), PacketError> {
    let start = out.len();
    let result = Format::of(values).and_then(|format| {
        format.encode(out);
        values.iter().try_for_each(|value| value.encode(out))
    });
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Unpacks all values; strings are copied.
///
/// # Errors
/// When the bytes are not exactly one packet.
pub fn unpack(packet: &[u8]) -> Result<Vec<PacketValue>, PacketError> {
    Fields::new(packet)?.map(|field| Ok(field?.to_value(Bytes::copy_from_slice))).collect()
}

/// Unpacks all values; strings share the packet's memory.
///
/// # Errors
/// As [`unpack`].
pub fn unpack_shared(packet: &Bytes) -> Result<Vec<PacketValue>, PacketError> {
    Fields::new(packet)?.map(|field| Ok(field?.to_value(|bytes| packet.slice_ref(bytes)))).collect()
}

/// Takes a count of elements of at least `element_bytes_min` bytes each, refusing one that the
/// bytes left cannot hold, so that a forged count makes no reader allocate.
fn take_count(input: &mut &[u8], element_bytes_min: usize) -> Option<usize> {
    let count = usize::try_from(varint::get(input).ok()?).ok()?;
    (count.checked_mul(element_bytes_min)? <= input.len()).then_some(count)
}

#[cfg(test)]
mod tests;
