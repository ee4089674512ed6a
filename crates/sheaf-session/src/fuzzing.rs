//! For fuzzing: what a session is made from, out of any bytes.
use crate::address::Address;
use crate::config::ConfigFile;
use crate::groups::{ini, yaml};
use crate::wire::{self, SessionInfo, TokenAnswer};
use sheaf_core::fuzzing::FuzzTarget;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The fuzz targets of this crate, by their names.
pub const TARGETS: &[FuzzTarget] = &[("program", program)];

/// `sheaf.toml`, ClusterShell's files of groups, addresses, and what sessions say of themselves and
/// of tokens.
///
/// # Panics
/// When what was read cannot be written and read again.
pub fn program(data: &[u8]) {
    let _ = Address::parse(OsStr::from_bytes(data));
    let _ = Address::parse_place(OsStr::from_bytes(data));
    if let Ok(about) = SessionInfo::parse(data) {
        let again = serde_json::to_vec(&about).expect("texts and numbers can be written");
        assert!(SessionInfo::parse(&again).is_ok());
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let file = ConfigFile::parse(Path::new("sheaf.toml"), text);
    let _ = file.check().map_err(|error| error.to_string());
    let _ = ini::merge(&mut ini::Sections::new(), text);
    let _ = yaml::parse(text);
    let _ = (TokenAnswer::parse(text), wire::uses(text));
}
