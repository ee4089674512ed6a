//! Archives and many hosts: a service that stores where the files are, and who asks it.
pub mod ask;
mod drive;
pub mod get;
pub mod serve;
pub mod store;
pub mod tools;
mod work;

use crate::exit::Stop;
use anyhow::Result;
use sheaf_core::RangeSet;
use sheaf_session::Config;
use sheaf_session::address::{Address, Purpose, Side};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Whether a name is a place on hosts, and no archived name.
pub fn is_on_hosts(name: &OsStr) -> bool {
    // What has `::` is archived, also where it is not known in which store.
    let is_archived = name.as_bytes().windows(2).any(|two| two == b"::");
    !is_archived && matches!(Address::parse_place(name), Ok(Side::Hosts(_)))
}

/// Whether names are places on hosts: all of them, or none.
pub fn are_on_hosts(names: &[OsString], is_local: bool) -> Result<bool> {
    let count = names.iter().filter(|name| !is_local && is_on_hosts(name)).count();
    if count > 0
        && let Some(name) = names.iter().find_map(|name| with_one_colon(name))
    {
        return Err(Stop::usage(name).into());
    }
    if count > 0 && count < names.len() {
        let text =
            "name what is on hosts, and what is not, in two commands (./ or --local: it is not)";
        return Err(Stop::usage(text).into());
    }
    Ok(count > 0)
}

/// What to say of a name whose hosts are a store's directory: it lacks a colon.
fn with_one_colon(name: &OsStr) -> Option<String> {
    let bytes = name.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b':')?;
    let store = Path::new(OsStr::from_bytes(&bytes[..at]));
    if at == 0 || !store.join("objects").is_dir() {
        return None;
    }
    let name = name.to_string_lossy().replacen(':', "::", 1);
    Some(crate::output::printable(&format!("with one colon it is on hosts: {name} is archived")))
}

/// Places on one set of hosts: its leaves, and the absolute paths.
pub fn places(
    names: &[OsString],
    config: &Config,
    purpose: Purpose,
) -> Result<(RangeSet, Vec<PathBuf>)> {
    let (mut members, mut paths) = (None, Vec::new());
    for name in names {
        let target = Address::parse(name)?.resolve(config, purpose)?;
        if members.get_or_insert_with(|| target.members.clone()) != &target.members {
            let text = "all of a command are on the same hosts: do the others by themselves";
            return Err(Stop::usage(text).into());
        }
        if sheaf_file::is_pattern(&target.path) {
            let text = format!("{}: patterns are not expanded on hosts here", target.path);
            return Err(Stop::usage(crate::output::printable(&text)).into());
        }
        paths.push(PathBuf::from(target.path));
    }
    Ok((members.unwrap_or_default(), paths))
}
