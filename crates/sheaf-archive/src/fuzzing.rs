//! What the fuzz targets in `fuzz/` run. No part of the API.
#![allow(missing_docs)]
use crate::pack::delta::IndexDelta;
use crate::pack::index::PackIndex;
use crate::pack::member::PackId;
use crate::pack::scan::scan_pack;
use crate::pack::verify::verify_pack;
use sheaf_core::fuzzing::FuzzTarget;

/// The targets of this crate.
pub const TARGETS: &[FuzzTarget] = &[
    ("archive_lease", lease),
    ("archive_log", log),
    ("archive_version", version),
    ("log_snapshot", snapshot),
    ("pack", pack),
    ("pack_delta", delta),
    ("pack_index", index),
];

/// The text of a lease.
pub fn lease(data: &[u8]) {
    crate::lease::fuzz(data);
}

/// What a commit of the log says between its number and its checksum.
pub fn log(data: &[u8]) {
    crate::catalog::fuzz_log(data);
}

/// What a mark of a version says between its identity and its checksum.
pub fn version(data: &[u8]) {
    crate::version::fuzz(data);
}

/// A tar: what is found in it is written as it is there.
pub fn pack(data: &[u8]) {
    let _ = PackIndex::in_pack(data);
    if let Ok(index) = scan_pack(data, PackId::default()) {
        drop(verify_pack(data, &index));
        let again = PackIndex::decode(&index.encode()).expect("it was found, so it can be");
        assert_eq!(again, index);
    }
}

/// What an index says between its version and its checksum.
pub fn index(data: &[u8]) {
    if let Ok(index) = PackIndex::of_body(data) {
        assert_eq!(PackIndex::decode(&index.encode()).expect("it is checked"), index);
        drop(verify_pack(data, &index));
    }
}

/// What an index that is a delta says before its checksum.
pub fn delta(data: &[u8]) {
    if let Ok(delta) = IndexDelta::of_body(data) {
        assert_eq!(IndexDelta::decode(&delta.encode()).expect("it is checked"), delta);
        let first =
            PackIndex { id: delta.id, generation: 0, member_blocks: 0, members: Vec::new() };
        let bytes = first.encode();
        drop(delta.apply(first, &bytes));
    }
}

/// A piece of a snapshot of the log.
pub fn snapshot(data: &[u8]) {
    crate::catalog::check_snapshot_piece(data);
}
