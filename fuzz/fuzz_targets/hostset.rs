#![no_main]
//! Host sets: what is folded parses to the same set again.
use sheaf_core::hostset::HostSet;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(hosts) = HostSet::parse(text) else { return };
    let folded = hosts.to_string();
    let again = HostSet::parse(&folded).expect("what was folded parses");
    assert_eq!(again.to_string(), folded);
    assert_eq!(again.len(), hosts.len());
});
