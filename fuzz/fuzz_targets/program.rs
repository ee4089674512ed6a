#![no_main]
#![allow(dead_code)]
//! What the binary reads: `sheaf.toml`, ClusterShell's group files, addresses, and what sessions say of
//! themselves and of tokens. The files of the binary are taken in as they are.
use program::{address, config, exit, groups, trust};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The options the configuration asks for.
#[path = "../../crates/sheaf/src/cli/global.rs"]
mod global;

#[path = "../../crates/sheaf/src/cli/named.rs"]
mod named;
use named::Named;

mod cli {
    pub use super::global::{GlobalArgs, Link};
}

#[path = "../../crates/sheaf/src"]
mod program {
    pub mod address;
    pub mod config;
    pub mod exit;
    pub mod groups;
    pub mod trust;
}

#[path = "../../crates/sheaf/src/groups"]
mod shell {
    pub mod ini;
    pub mod yaml;
}

#[path = "../../crates/sheaf/src/session"]
mod session {
    pub mod wire;

    /// No session runs where addresses are only read.
    #[path = "."]
    pub mod daemon {
        pub fn running() -> anyhow::Result<Vec<String>> {
            Ok(Vec::new())
        }
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = address::Address::parse(OsStr::from_bytes(data));
    let _ = address::Address::parse_place(OsStr::from_bytes(data));
    if let Ok(about) = session::wire::About::parse(data) {
        let again = serde_json::to_vec(&about).expect("it can be serialised");
        assert!(session::wire::About::parse(&again).is_ok());
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let file = config::File::parse(Path::new("sheaf.toml"), text);
    let _ = file.check().map_err(|stop| stop.to_string());
    let mut sections = shell::ini::Sections::new();
    let _ = shell::ini::merge(&mut sections, text);
    let _ = shell::yaml::parse(text);
    let _ = (session::wire::Answer::parse(text), session::wire::uses(text));
});
