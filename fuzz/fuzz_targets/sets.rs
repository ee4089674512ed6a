#![no_main]
//! Sets of leaves and of members, and the integers they are made of.
use sheaf_core::{MemberSet, RangeSet, varint};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
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
});
