//! The built-in filters.
//!
//! All of them combine [packets](crate::packet): a leaf contributes one packet, and the root's
//! result is one packet (of `null`, a list of them). A partial is either a packet too or starts
//! with [`OPAQUE`]. Nothing at all combines to the packet without values, which every filter
//! takes for a contribution that adds nothing.
//!
//! | name | contributions | result |
//! |---|---|---|
//! | `null` | any bytes | all of them, in child order: [`null::items`] |
//! | `min` `max` `sum` `avg` | numbers and arrays of them | the same format, value by value, arrays element by element |
//! | `count` | any bytes | `%uld`: how many leaves contributed |
//!
//! Parameters of `min`, `max`, `sum` and `avg`: nothing, or the format of the contributions as
//! text. A format without floating-point values frees the sums of folding in child order.
use super::{FilterError, Registry};
use crate::packet::PacketError;
use sheaf_core::{Errno, varint::Malformed};

mod count;
pub mod null;
mod reduce;
#[cfg(test)]
mod testing;

/// First byte of a partial that is not a packet (a packet's first byte is at most 254).
pub const OPAQUE: u8 = 255;

/// The packet without values.
const NOTHING: &[u8] = &[0];

/// The most a filter that keeps every contribution gathers for one result, in bytes.
pub const GATHERED_BYTES_MAX: usize = 256 << 20;

/// Registers all of them.
pub(super) fn register(registry: &mut Registry) {
    reduce::register(registry);
    count::register(registry);
    null::register(registry);
}

impl From<PacketError> for FilterError {
    fn from(error: PacketError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<Malformed> for FilterError {
    fn from(error: Malformed) -> Self {
        bad(error.to_string())
    }
}

/// `EBADMSG`: not what this filter combines.
fn bad(message: impl Into<String>) -> FilterError {
    FilterError::new(Errno::BADMSG, message)
}

/// `EINVAL`: parameters that make no filter.
fn invalid(message: impl Into<String>) -> FilterError {
    FilterError::new(Errno::INVAL, message)
}

/// Refuses to let `have` bytes grow by `more` beyond [`GATHERED_BYTES_MAX`].
fn check_gathered(have: usize, more: usize) -> Result<(), FilterError> {
    if have.saturating_add(more) <= GATHERED_BYTES_MAX {
        return Ok(());
    }
    let message = format!("the result would exceed {GATHERED_BYTES_MAX} bytes");
    Err(FilterError::new(Errno::MSGSIZE, message))
}
