#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| sheaf_archive::fuzzing::version(data));
