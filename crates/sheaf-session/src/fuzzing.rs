//! For fuzzing: what a session is made from, out of any bytes.
use crate::address::{Address, Purpose};
use crate::choices::Choices;
use crate::config::{Config, ConfigFile, Launch};
use crate::environment::Environment;
use crate::groups::{ini, yaml};
use crate::wire::{self, SessionInfo, TokenAnswer};
use sheaf_core::fuzzing::FuzzTarget;
use sheaf_core::hostset::HostSet;
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
    host_names(text);
}

/// The most hosts that a fuzzed name is to stand for.
const HOSTS_MAX: u64 = 64;

/// Names of hosts from the command line, from a configuration and in addresses.
fn host_names(text: &str) {
    // A command would be run, and a file read.
    if text.contains('@') || !HostSet::parse(text).is_ok_and(|set| set.len() as u64 <= HOSTS_MAX) {
        return;
    }
    let file = format!("[cluster.a]\nhosts = {text:?}\nlaunch = \"embedded\"\n");
    let from_file = || ConfigFile::parse(Path::new("sheaf.toml"), &file);
    let said = Choices {
        on_hosts: vec![text.to_owned()],
        launch: Some(Launch::Embedded),
        ..Choices::default()
    };
    let some = Choices { on_hosts: vec![text.to_owned()], ..Choices::default() };
    let cases =
        [(from_file(), Choices::default()), (from_file(), some), (ConfigFile::default(), said)];
    for (file, choices) in cases {
        let Ok(config) = Config::of_file(&choices, &Environment::default(), file) else { continue };
        let _ = config.everyone_folded().map_err(|error| error.to_string());
        for hosts in [text, "@all", ""] {
            let address = OsStr::new(hosts).as_bytes().iter().chain(b":/f").copied();
            let address: Vec<u8> = address.collect();
            for purpose in [Purpose::Read, Purpose::Change("rm")] {
                let target = Address::parse(OsStr::from_bytes(&address))
                    .and_then(|address| address.resolve(&config, purpose));
                let _ = target.map_err(|error| error.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::host_names;
    use proptest::prelude::*;

    #[test]
    fn letter_beyond_ascii_before_a_number_is_no_panic() {
        for names in ["é1", "café[1-3]", "é", "1é", "日本[01-03]-é2", "n1é1,n2é2"] {
            host_names(names);
        }
    }

    proptest! {
        #[test]
        fn host_names_never_panic(text in "[né日İ0-9,.\\[\\]-]{0,12}") {
            host_names(&text);
        }
    }
}
