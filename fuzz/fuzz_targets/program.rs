#![no_main]
//! What a session is made from: `sheaf.toml`, ClusterShell's group files, addresses, and what sessions say of
//! themselves and of tokens.
use sheaf_session::config::File;
use sheaf_session::wire::{self, About};
use sheaf_session::{Address, fuzzing};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = Address::parse(OsStr::from_bytes(data));
    let _ = Address::parse_place(OsStr::from_bytes(data));
    if let Ok(about) = About::parse(data) {
        let again = serde_json::to_vec(&about).expect("it can be serialised");
        assert!(About::parse(&again).is_ok());
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let file = File::parse(Path::new("sheaf.toml"), text);
    let _ = file.check().map_err(|error| error.to_string());
    fuzzing::groups(text);
    let _ = (wire::Answer::parse(text), wire::uses(text));
});
