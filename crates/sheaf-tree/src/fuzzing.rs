//! What the fuzz targets in `fuzz/` run of this crate's: decoders of what comes from outside. No
//! part of the API.
#![allow(missing_docs)]

use sheaf_core::fuzzing::FuzzTarget;

/// The targets of this crate.
pub const TARGETS: &[FuzzTarget] = &[("launch", launch)];

/// What those say that start nodes, hosts that join, and whoever connects.
pub fn launch(data: &[u8]) {
    crate::launch::decode_any(data);
}
