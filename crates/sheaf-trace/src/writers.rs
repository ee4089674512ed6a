//! Who still records for a trace whose recorder is gone.
use crate::info::TraceInfo;
use crate::record::{StoreLock, lock_buffers};
use sheaf_log::TraceError;
use sheaf_log::files::check_own;
use sheaf_recorder::Reader;
use std::collections::BTreeMap;
use std::path::Path;

/// A process that records, and that nobody takes anything from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TraceWriter {
    /// Its number.
    pub pid: u32,
    /// Its program, as it was started: the first word of its command line.
    pub program: String,
}

/// The processes that go on recording for a trace, by their numbers; none where its recorder, or
/// another one, takes what they record.
///
/// # Errors
/// When the trace, or where its operations are kept, cannot be read.
pub fn writers_of(store: &Path) -> Result<Vec<TraceWriter>, TraceError> {
    check_own(store)?;
    let info = TraceInfo::read(store)?.unwrap_or_default();
    let Some(buffers) = info.buffers.filter(|buffers| buffers.exists()) else {
        return Ok(Vec::new());
    };
    if StoreLock::signed(store)?.is_some() {
        return Ok(Vec::new());
    }
    let _taken = lock_buffers(&buffers)?;
    // A process that becomes another program has a segment for each.
    let mut writers = BTreeMap::new();
    for entry in std::fs::read_dir(&buffers).map_err(TraceError::io(&buffers))? {
        let path = entry.map_err(TraceError::io(&buffers))?.path();
        if path.extension().is_none_or(|extension| extension != "segment") {
            continue;
        }
        // What cannot be read is told by whoever takes it.
        let Ok(reader) = Reader::open(&path) else { continue };
        if reader.is_written() {
            let process = reader.process();
            let word = process.command.split(|byte| *byte == 0).next().unwrap_or_default();
            writers.insert((process.pid, process.made_ns), String::from_utf8_lossy(word).into());
        }
    }
    // In the order in which segments were made, so that a process's last program stays.
    let latest: BTreeMap<u32, String> =
        writers.into_iter().map(|((pid, _), program)| (pid, program)).collect();
    Ok(latest.into_iter().map(|(pid, program)| TraceWriter { pid, program }).collect())
}
