//! Which path below the target a recorded path is.
use super::ReplaySkip;
use super::target::MARK;
use sheaf_log::{TraceError, TraceNames};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Where nothing is a file.
const KERNELS: [&[u8]; 3] = [b"dev", b"proc", b"sys"];
/// What is below `/dev` and made of files all the same.
const SHARED_MEMORY: &[u8] = b"dev/shm";

/// Recorded paths by their numbers, as paths below the target: without a slash in front, without
/// `.` and `..`; the target itself is `.`.
#[derive(Debug)]
pub(super) struct PathMap {
    prefix: Vec<u8>,
    known: HashMap<u32, Result<Arc<[u8]>, ReplaySkip>>,
}

impl PathMap {
    pub fn new(prefix: Option<&Path>) -> Result<Self, TraceError> {
        let prefix = match prefix {
            None => Vec::new(),
            Some(path) => normal(path.as_os_str().as_bytes()).map_err(|why| {
                TraceError::damaged(path, format!("the prefix is of no use: {why}"))
            })?,
        };
        Ok(Self { prefix, known: HashMap::new() })
    }

    /// The same, without the numbers that it knows.
    pub fn again(self) -> Self {
        Self { known: HashMap::new(), ..self }
    }

    pub fn of(&mut self, number: u32, names: &TraceNames) -> Result<Arc<[u8]>, ReplaySkip> {
        let prefix = &self.prefix;
        self.known.entry(number).or_insert_with(|| mapped(names.text(number), prefix)).clone()
    }
}

fn mapped(path: &[u8], prefix: &[u8]) -> Result<Arc<[u8]>, ReplaySkip> {
    let path = normal(path)?;
    let is_below = |above: &[u8]| {
        path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    if KERNELS.into_iter().any(is_below) && !is_below(SHARED_MEMORY) {
        return Err(ReplaySkip::Device);
    }
    let rest = match prefix {
        b"" => &path[..],
        _ if !is_below(prefix) => return Err(ReplaySkip::OutsidePrefix),
        _ => path[prefix.len()..].strip_prefix(b"/").unwrap_or_default(),
    };
    match rest {
        b"" => Ok(Arc::from(&b"."[..])),
        // That name is taken.
        rest if rest.split(|byte| *byte == b'/').next() == Some(MARK.as_bytes()) => {
            Err(ReplaySkip::NoPath)
        }
        rest => Ok(Arc::from(rest)),
    }
}

/// A path from the root, without the slash in front, `.`, `..` and doubled slashes. There are no
/// symbolic links below the target, so that `..` is always the directory before.
fn normal(path: &[u8]) -> Result<Vec<u8>, ReplaySkip> {
    if path.first() != Some(&b'/') || path.contains(&0) {
        return Err(ReplaySkip::NoPath);
    }
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop().ok_or(ReplaySkip::LeadsOutside)?),
            name => names.push(name),
        }
    }
    Ok(names.join(&b'/'))
}
