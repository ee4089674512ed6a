//! Arguments that commands on hosts and commands on archives take in the same form.
use crate::exit::{self, Stop};
use anyhow::Result;
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::path::Path;

/// The most bytes `-f` takes from one file.
const PATTERN_FILE_BYTES_MAX: u64 = 16 << 20;

/// All patterns of a file, which `-` is standard input for.
pub fn read_patterns(path: &Path) -> Result<String> {
    let mut text = String::new();
    let file =
        if path == Path::new("-") { Ok(crate::stdio::input()?) } else { std::fs::File::open(path) };
    let read =
        file.and_then(|file| file.take(PATTERN_FILE_BYTES_MAX + 1).read_to_string(&mut text));
    let len =
        read.map_err(|error| Stop::usage(format!("patterns: {}", exit::io_text(path, &error))))?;
    if len as u64 > PATTERN_FILE_BYTES_MAX {
        let message =
            format!("{}: more than {PATTERN_FILE_BYTES_MAX} bytes of patterns", path.display());
        return Err(Stop::usage(message).into());
    }
    Ok(text)
}

/// Checks the form of `user`, `user:group`, `user:` or `:group`. Names are looked up on each host,
/// where the same name may be another number.
pub fn owner(text: &str) -> Result<String, String> {
    match text.split_once(':') {
        None if text.is_empty() => Err("names no owner".to_owned()),
        Some(("", "")) => Err("names neither an owner nor a group".to_owned()),
        Some((_, group)) if group.contains(':') => Err("has more than one colon".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// The addresses, after the mode or owner if there is one.
pub fn addresses(first: &OsStr, rest: &[OsString], reference: Option<&OsString>) -> Vec<OsString> {
    reference.map(|_| first.to_owned()).into_iter().chain(rest.iter().cloned()).collect()
}
