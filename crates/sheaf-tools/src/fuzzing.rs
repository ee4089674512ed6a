//! What the fuzz targets in `fuzz/` run. No part of the API.
#![allow(missing_docs)]
use crate::{about, cp, edit, grep, read, report};
use sheaf_core::fuzzing::FuzzTarget;

/// The targets of this crate.
pub const TARGETS: &[FuzzTarget] = &[("tools", wire)];

/// What servers are told, and what they answer.
pub fn wire(data: &[u8]) {
    let Some((which, rest)) = data.split_first() else { return };
    match which % 6 {
        0 => cp::decode_any(rest),
        1 => edit::decode_any(rest),
        2 => grep::decode_any(rest),
        3 => report::decode_any(rest),
        5 => read::decode_any(rest),
        _ => drop(postcard::from_bytes::<about::About>(rest)),
    }
}
