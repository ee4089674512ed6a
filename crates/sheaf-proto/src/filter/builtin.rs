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
//! | `concat` | values and arrays | arrays, in child order |
//! | `histogram` | numbers | `%auld %uld`: [`histogram::counts`] |
//! | `int-eq-class` | integers, `%aud` counts, `%aud` members | the same, by value |
//! | `bytes-eq-class` | `%ud %s` or `%ud %auc`: leaf, bytes | `%as %auc`: [`classes::bytes_classes`] |
//! | `top-k` | scores and labels: `%lf %s`, `%ald %as`, … | arrays of both, best first |
//! | `quantiles` | finite numbers | `%alf %uld`: estimates, and of how many numbers |
//! | `distinct` | any values | `%uld %lf`: how many are different, relative standard error |
//! | `clock-skew` | `%ud`: leaf | `%aud %ald %auld`: [`clock_skew::leaf_clocks`] |
//!
//! Parameters: of `min`, `max`, `sum` and `avg` nothing, or the format of the contributions as
//! text (one without floating-point values frees the sums of folding in child order). Of the
//! others a packet: of `histogram` the edges of the bins, `%alf`; of `top-k` the k, `%ud`; of
//! `quantiles` the shares, `%alf`, and if need be the relative error, `%lf`.
use super::{FilterError, Registry};
use crate::packet::{FieldKind, Fields, PacketError};
use sheaf_core::{Errno, varint::Malformed};

pub mod classes;
pub mod clock_skew;
mod concat;
mod count;
mod distinct;
pub mod histogram;
pub mod null;
mod pass;
mod quantiles;
mod reduce;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod top;

/// First byte of a partial that is not a packet (a packet's first byte is at most 254).
pub const OPAQUE: u8 = 255;

/// The packet without values.
const NOTHING: &[u8] = &[0];

/// The most a filter that keeps every contribution gathers for one result, in bytes.
pub const GATHERED_BYTES_MAX: usize = 256 << 20;

pub(super) fn register(registry: &mut Registry) {
    reduce::register(registry);
    crate::report::register(registry);
    count::register(registry);
    null::register(registry);
    pass::register(registry);
    concat::register(registry);
    histogram::register(registry);
    classes::register(registry);
    top::register(registry);
    quantiles::register(registry);
    distinct::register(registry);
    clock_skew::register(registry);
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

/// Runs `each` on every number of a packet, once the whole packet is known to hold numbers only.
fn each_number(name: &str, packet: &[u8], mut each: impl FnMut(f64)) -> Result<(), FilterError> {
    for field in Fields::new(packet)? {
        if field?.kind() == FieldKind::Str {
            return Err(bad(format!("{name} does not combine strings (%s)")));
        }
    }
    for field in Fields::new(packet)? {
        let field = field?;
        macro_rules! numbers {
            ($($type:ident),*) => {
                // Of the ten, one has elements. Beyond 2⁵³ an integer is rounded.
                $(field.elements::<$type>().into_iter().flatten().for_each(|number| each(number as f64));)*
            };
        }
        numbers!(i8, u8, i16, u16, i32, u32, i64, u64, f32, f64);
    }
    Ok(())
}
