//! Who still records for a trace whose recorder is gone, and what recorders have left.
use crate::info::TraceInfo;
use crate::record::{BUFFERS_PREFIX, StoreLock, TRACE_PATH_FILE, check_buffers, lock_buffers};
use rustix::fs::{Mode, OFlags};
use sheaf_log::TraceError;
use sheaf_log::files::check_own;
use sheaf_log::served::{LeftSegments, left_segments};
use sheaf_recorder::Reader;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
    writers_in(&buffers)
}

/// The processes that record into a directory, by their numbers.
fn writers_in(buffers: &Path) -> Result<Vec<TraceWriter>, TraceError> {
    // A process that becomes another program has a segment for each.
    let mut writers = BTreeMap::new();
    for entry in std::fs::read_dir(buffers).map_err(TraceError::io(buffers))? {
        let path = entry.map_err(TraceError::io(buffers))?.path();
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

/// Where a recording keeps operations that are not stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftRecording {
    /// The directory.
    pub buffers: PathBuf,
    /// The trace that the operations are for, if it is there and they are.
    pub trace: Option<PathBuf>,
    /// Memory that it takes, in bytes.
    pub bytes: u64,
    /// Who has it.
    pub state: LeftState,
}

/// Who has what a recording keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeftState {
    /// Its recorder, or a server, takes it.
    Taken,
    /// Nobody takes it, and these processes go on recording.
    Written(Vec<TraceWriter>),
    /// Nobody has it: so many operations are stored nowhere else.
    Left(u64),
}

/// Looks at what recordings of this user keep in a directory (`--buffers`), and changes nothing there. What cannot be
/// looked at is given with the reason.
///
/// # Errors
/// When the directory cannot be read.
pub fn left_recordings(place: &Path) -> Result<(Vec<LeftRecording>, Vec<TraceError>), TraceError> {
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    // Recordings know their directory by its whole path.
    let place = &std::fs::canonicalize(place).map_err(TraceError::io(place))?;
    let user = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(place).map_err(TraceError::io(place))? {
        let entry = entry.map_err(TraceError::io(place))?;
        // Others record in the same place, and a directory may go at any time.
        let Ok(about) = entry.metadata() else { continue };
        let is_ours = about.is_dir()
            && about.uid() == user
            && entry.file_name().as_bytes().starts_with(BUFFERS_PREFIX.as_bytes());
        if !is_ours {
            continue;
        }
        match left_recording(entry.path()) {
            Ok(recording) => found.push(recording),
            Err(_) if matches!(entry.path().try_exists(), Ok(false)) => {}
            Err(error) => failed.push(error),
        }
    }
    found.sort_by(|one, other| one.buffers.cmp(&other.buffers));
    Ok((found, failed))
}

fn left_recording(buffers: PathBuf) -> Result<LeftRecording, TraceError> {
    check_buffers(&buffers)?;
    let mut bytes = 0;
    for entry in std::fs::read_dir(&buffers).map_err(TraceError::io(&buffers))? {
        let about = entry.and_then(|entry| entry.metadata()).map_err(TraceError::io(&buffers))?;
        bytes += about.blocks() * 512;
    }
    let trace = trace_of(&buffers).filter(|trace| {
        let info = TraceInfo::read(trace).ok().flatten();
        info.and_then(|info| info.buffers).as_deref() == Some(&*buffers)
    });
    let state = match lock_buffers(&buffers) {
        Err(TraceError::Io { source, path }) => return Err(TraceError::Io { source, path }),
        Err(_) => LeftState::Taken,
        Ok(_taken) => match writers_in(&buffers)? {
            writers if !writers.is_empty() => LeftState::Written(writers),
            _ => match left_segments(&buffers)? {
                LeftSegments::Used(_) => LeftState::Taken,
                LeftSegments::Left(count) => LeftState::Left(count),
            },
        },
    };
    Ok(LeftRecording { buffers, trace, bytes, state })
}

/// Writes down which trace operations are for, for [`left_recordings`].
///
/// # Errors
/// When it cannot be written.
pub fn note_trace(buffers: &Path, trace: &Path) -> Result<(), TraceError> {
    let path = buffers.join(TRACE_PATH_FILE);
    let written = std::path::absolute(trace).and_then(|trace| {
        let mut file = File::options().write(true).create_new(true).open(&path)?;
        std::io::Write::write_all(&mut file, trace.as_os_str().as_bytes())
    });
    written.map_err(TraceError::io(&path))
}

fn trace_of(buffers: &Path) -> Option<PathBuf> {
    const PATH_BYTES_MAX: u64 = 4096;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(buffers.join(TRACE_PATH_FILE), flags, Mode::empty()).ok()?;
    let (mut file, mut path) = (File::from(file), Vec::new());
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    file.by_ref().take(PATH_BYTES_MAX).read_to_end(&mut path).ok()?;
    let path = PathBuf::from(OsStr::from_bytes(&path));
    path.is_absolute().then_some(path)
}
