//! What the fuzz targets in `fuzz/` run. No part of the API.
#![allow(missing_docs)]
use crate::hostset::HostSet;
use crate::memberset::MemberSet;
use crate::rangeset::RangeSet;
use crate::varint;

/// A fuzz target: its name, and what it runs.
pub type FuzzTarget = (&'static str, fn(&[u8]));

/// The targets of this crate.
pub const TARGETS: &[FuzzTarget] = &[("sets", sets), ("hostset", hostset)];

/// Sets of leaves and of members, and the integers they are made of.
pub fn sets(data: &[u8]) {
    let mut bytes = Vec::new();
    let mut input = data;
    if let Ok(number) = varint::get(&mut input) {
        varint::put(&mut bytes, number);
        assert_eq!(varint::get(&mut &bytes[..]), Ok(number));
    }
    let _ = varint::get_bytes(&mut &data[..]);
    bytes.clear();
    if let Ok(leaves) = RangeSet::decode(&mut &data[..]) {
        leaves.encode(&mut bytes);
        assert_eq!(RangeSet::decode(&mut &bytes[..]), Ok(leaves));
    }
    bytes.clear();
    if let Ok(members) = MemberSet::decode(&mut &data[..]) {
        members.encode(&mut bytes);
        assert_eq!(MemberSet::decode(&mut &bytes[..]), Ok(members));
    }
}

/// Host sets: what is folded parses to the same set again.
pub fn hostset(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(hosts) = HostSet::parse(text) else { return };
    // Three copies of the millions that a set may have are more than a fuzzer gives to one input.
    if hosts.len() > 1 << 17 {
        return;
    }
    let folded = hosts.to_string();
    let again = HostSet::parse(&folded).expect("what was folded parses");
    assert_eq!(again.to_string(), folded);
    assert_eq!(again.len(), hosts.len());
}
