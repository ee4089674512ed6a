//! Archives and many hosts: a service that stores where the files are, and who asks it.
pub mod ask;
mod drive;
pub mod get;
pub mod serve;
pub mod store;
mod text;
pub mod tools;
mod work;

use anyhow::Result;
use sheaf_cli::exit::Stop;
use sheaf_core::RangeSet;
use sheaf_file::Pattern;
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
    Some(sheaf_cli::output::printable(&format!(
        "with one colon it is on hosts: {name} is archived"
    )))
}

/// Places on one set of hosts: its leaves, and the absolute paths, which may be patterns.
pub fn places(
    names: &[OsString],
    config: &Config,
    purpose: Purpose,
) -> Result<(RangeSet, Vec<String>)> {
    let (mut members, mut paths) = (None, Vec::new());
    for name in names {
        let target = Address::parse(name)?.resolve(config, purpose)?;
        if members.get_or_insert_with(|| target.members.clone()) != &target.members {
            let text = "all of a command are on the same hosts: do the others by themselves";
            return Err(Stop::usage(text).into());
        }
        paths.push(target.path);
    }
    Ok((members.unwrap_or_default(), paths))
}

/// What each host has told, by its leaf in the place of its number among the members.
pub fn of_leaves<T>(members: &RangeSet, told: Vec<(usize, T)>) -> Vec<(u32, T)> {
    let leaves: Vec<u32> = members.iter().collect();
    told.into_iter().filter_map(|(host, told)| Some((*leaves.get(host)?, told))).collect()
}

/// A path that stands for itself, without the backslashes of what would else be a pattern.
pub fn one_path(path: &str) -> Result<PathBuf> {
    if !is_special(path) {
        return Ok(PathBuf::from(path));
    }
    Pattern::new(path).ok().and_then(|pattern| pattern.literal()).ok_or_else(|| {
        let text =
            format!("{path}: patterns are not expanded in this; \\ takes * ? [ {{ as they are");
        Stop::usage(sheaf_cli::output::printable(&text)).into()
    })
}

/// Whether a path may stand for anything but itself.
fn is_special(path: &str) -> bool {
    path.contains(['*', '?', '[', ']', '{', '}', '\\'])
}
