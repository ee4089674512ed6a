//! Directories for segments that processes have left: whether a process uses one, and whether it
//! holds operations that are stored nowhere else.
use super::is_collected;
use super::state::stored_of;
use crate::error::TraceError;
use crate::spool;
use sheaf_recorder::Reader;
use std::path::Path;

/// How the name of a spool begins that is kept because it is damaged.
const DAMAGED_PREFIX: &str = "damaged-";

/// The state of a directory for segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftSegments {
    /// A process uses it: which one, and for what.
    Used(String),
    /// No process uses it. The number of operations in it that are stored nowhere else; a file that
    /// cannot be read counts as one.
    Left(u64),
}

/// Looks at a directory for segments and changes nothing there.
///
/// # Errors
/// When the directory cannot be read.
pub fn left_segments(directory: &Path) -> Result<LeftSegments, TraceError> {
    if is_collected(directory).map_err(TraceError::io(directory))? {
        return Ok(LeftSegments::Used("a server collects what is recorded there".to_owned()));
    }
    let (mut unstored, stored) = (0u64, stored_of(directory)?);
    for entry in std::fs::read_dir(directory).map_err(TraceError::io(directory))? {
        let path = entry.map_err(TraceError::io(directory))?.path();
        let is_segment = path.extension().is_some_and(|extension| extension == "segment");
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if is_segment {
            let Ok(mut reader) = Reader::open(&path) else {
                unstored += 1;
                continue;
            };
            if reader.is_written() {
                let process = reader.process().pid;
                return Ok(LeftSegments::Used(format!("process {process} records there")));
            }
            // It takes nothing, and finds how far the last reader was.
            reader.take_some(0);
            unstored += reader.waiting();
        } else if name.starts_with(DAMAGED_PREFIX) {
            unstored += 1;
        }
    }
    for (number, path) in spool::spools_of(directory)?.range(stored.0..) {
        let mut rows = 0;
        let read = spool::read(path, &mut crate::TraceNames::default(), |more, _| {
            rows += more.len() as u64;
            Ok(())
        });
        let before = if *number == stored.0 { stored.1 } else { 0 };
        unstored += if read.is_ok() { rows.saturating_sub(before) } else { 1 };
    }
    Ok(LeftSegments::Left(unstored))
}
