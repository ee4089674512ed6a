//! What the fuzz targets in `fuzz/` run. No part of the API.
#![allow(missing_docs)]
use crate::aggregate::Partial;
use crate::entry::Merged;
use crate::message::Request;
use crate::stat::Stat;
use bytes::Bytes;
use sheaf_core::RangeSet;
use sheaf_core::fuzzing::FuzzTarget;

/// The targets of this crate.
pub const TARGETS: &[FuzzTarget] =
    &[("request", request), ("partial", partial), ("entries", entries)];

/// Answers are merged up to this many bytes, so that the bound is met now and then.
const MERGED_BYTES_MAX: usize = 1 << 20;

pub fn request(data: &[u8]) {
    let Ok((request, rest)) = Request::decode(&Bytes::copy_from_slice(data)) else { return };
    let back = Request::decode(&Bytes::from(request.encode(&rest)));
    assert_eq!(back, Ok((request, rest)));
}

pub fn partial(data: &[u8]) {
    let _ = Stat::from_bytes(data);
    let Ok(partial) = Partial::decode(data) else { return };
    let mut bytes = Vec::new();
    partial.encode(&mut bytes);
    let back = Partial::decode(&bytes).expect("what was encoded decodes");
    // Two of a kind fit together, whatever they hold; or the bound is met.
    let mut merged = Partial::default();
    for part in [partial, back] {
        let _ = merged.merge(part);
    }
    merged.encode(&mut bytes);
}

/// Answers of leaves and partials of nodes, merged: what the merge says of itself can be read.
pub fn entries(data: &[u8]) {
    let mut merged = Merged::with_limit(MERGED_BYTES_MAX);
    let (first, second) = data.split_at(data.len() / 2);
    for (leaf, part) in (0..).zip([data, first, second]) {
        let _ = merged.fold_raw(leaf, part);
        let _ = merged.fold_partial(part);
        let _ = merged.fold_raw_set(&RangeSet::full(leaf + 2), part);
    }
    for entry in merged.sorted() {
        for line in crate::entry::block_lines(entry.entry.text) {
            let _ = line;
        }
    }
    let _ = (merged.errors(), merged.stats(), merged.has_selected());
    let mut bytes = Vec::new();
    merged.encode_partial(&mut bytes);
    let mut again = Merged::new();
    again.fold_partial(&bytes).expect("a merge reads what a merge wrote");
    assert_eq!(again.len(), merged.len());
}
