#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| sheaf_proto::fuzzing::node_inner(data));
