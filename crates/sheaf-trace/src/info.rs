//! What is known of a trace beside its operations.
use crate::parts::RemovedParts;
use crate::report::{REPORT_VERSION, ReportData};
use serde::{Deserialize, Serialize};
use sheaf_log::files::{open, remove};
use sheaf_log::{ServedHost, TraceError};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Its file in the directory of the trace.
pub const INFO_FILE: &str = "trace.json";
/// Far more than is known of the largest trace.
const INFO_BYTES_MAX: u64 = 256 << 20;

/// A link is not followed.
const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;

/// What the kernel has counted of processes (`/proc/PID/io`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCounts {
    /// Bytes that calls have read, from files, pipes and devices alike.
    pub bytes_read: u64,
    /// Bytes that calls have written.
    pub bytes_written: u64,
    /// Calls that read.
    pub reads: u64,
    /// Calls that write.
    pub writes: u64,
}

impl KernelCounts {
    /// Of the text of `/proc/PID/io`; `None` when something is missing there.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let of = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        Some(Self {
            bytes_read: of("rchar:")?,
            bytes_written: of("wchar:")?,
            reads: of("syscr:")?,
            writes: of("syscw:")?,
        })
    }
}

/// What the kernel may count as read more than a trace has before that is told: the loader reads the
/// heads of libraries, and the C library reads ahead.
const UNSEEN_READ_MIN: u64 = 1 << 20;
/// The same for each program.
const UNSEEN_READ_OF_PROGRAM: u64 = 16 << 10;
/// As written: the C library itself writes but a word when something fails.
const UNSEEN_WRITTEN_MAX: u64 = 4 << 10;

impl KernelCounts {
    /// Says what was read and written that the trace, of so many programs, has not: `seen` is what
    /// it has of bytes read and written. Operations that were lost have moved some of the rest.
    #[must_use]
    pub fn unseen(&self, programs: u64, seen: (u64, u64), lost: u64) -> Option<String> {
        let allowed = UNSEEN_READ_MIN + programs.saturating_mul(UNSEEN_READ_OF_PROGRAM);
        let read = self.bytes_read.saturating_sub(seen.0);
        let written = self.bytes_written.saturating_sub(seen.1);
        (read > allowed || written > UNSEEN_WRITTEN_MAX).then(|| {
            let of_lost = if lost > 0 { "by what was lost, or " } else { "" };
            format!(
                "the kernel counted {} bytes read and {} written, of which {read} and {written} \
                 are not in the trace: done {of_lost}by programs that cannot be seen into (linked \
                 statically, setuid, run as another user), that could not make their buffers (a \
                 limit, a full --buffers), by macros of stdio.h (putc_unlocked), by what its streams \
                 read ahead, or not through the C library; --kernel sees them all",
                self.bytes_read, self.bytes_written
            )
        })
    }
}

/// What is said of so many operations for which there was no ring.
#[must_use]
pub fn unplaced_words(count: u64) -> String {
    format!(
        "{count} operations were done where they could not be recorded: by a process that could not \
         make buffers of its own (it was forked and runs as another user, or has a limit), by more \
         threads of one at once than have room (--threads), while its buffers were being made, by a signal's \
         handler within another operation, or where a filter of system calls (seccomp) leaves the library none"
    )
}

/// What is known of a trace beside its operations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceInfo {
    /// The command line, as far as it is text.
    pub command: Vec<String>,
    /// The host that it ran on.
    pub host: String,
    /// When it began and ended, in ns since 1970.
    pub begun_ns: i64,
    /// See `begun_ns`.
    pub ended_ns: i64,
    /// Where operations are kept until they are stored, while it is being recorded.
    pub buffers: Option<PathBuf>,
    /// Its exit code; 128 and the signal for one that was killed.
    pub exit_code: Option<i32>,
    /// The signal that has ended it.
    pub signal: Option<i32>,
    /// Operations that are stored.
    pub operations: u64,
    /// What was stored and then removed, as was asked for.
    pub removed: RemovedParts,
    /// Operations that there was no room for when they were done.
    pub lost: u64,
    /// Of those, operations for which there was no ring.
    pub unplaced: u64,
    /// How often its threads have waited until there was room, and how long together in ns.
    pub waited: (u64, u64),
    /// Operations that later ones took the place of: of a flight recorder.
    pub overwritten: u64,
    /// Why a flight recorder's memory was kept.
    pub trigger: Option<String>,
    /// Operations that were taken, and could not be stored.
    pub unwritten: u64,
    /// Files whose names there was no room for.
    pub names_lost: u64,
    /// It was the kernel that told what was done.
    pub by_kernel: bool,
    /// Operations on files whose names are not known, of what the kernel has told.
    pub unnamed: u64,
    /// Processes that were recorded, counting each program that one became.
    pub segments: u64,
    /// Processes that went on when the trace ended.
    pub still_run: u64,
    /// What the kernel counted of the command and of all that it has waited for.
    pub kernel: Option<KernelCounts>,
    /// It is, or was, taken from hosts by their servers.
    pub is_served: bool,
    /// How hosts know whoever asks for this trace, which is the same after it was killed.
    pub collector: u64,
    /// Whose programs it is of, if somebody was named.
    pub user: Option<String>,
    /// The hosts whose programs it is of, if so.
    pub served: Vec<ServedHost>,
    /// What was to be kept alone, as it was said; all else is not in it.
    pub filter: Option<String>,
    /// Operations that this did not let through.
    pub filtered: u64,
    /// It is what its operations add up to, and has none of them.
    pub is_summary: bool,
    /// What is missing, in words.
    pub missing: Vec<String>,
}

/// The file of a trace that has what its operations add up to, and none of them.
const SUMMARY_FILE: &str = "summary.json";
/// Bytes of it at most.
const SUMMARY_BYTES_MAX: u64 = 256 << 20;

impl TraceInfo {
    /// Puts what the operations of a trace add up to into its directory.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_summary(directory: &Path, summary: &ReportData) -> Result<(), TraceError> {
        let path = directory.join(SUMMARY_FILE);
        let text =
            serde_json::to_vec(summary).map_err(|error| TraceError::damaged(&path, error))?;
        let made = File::options().write(true).create_new(true).open(&path);
        let written =
            made.and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()));
        written.map_err(TraceError::io(&path))
    }

    /// What the operations of a trace add up to, where it has none of them.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub fn read_summary(&self, directory: &Path) -> Result<Option<ReportData>, TraceError> {
        if !self.is_summary {
            return Ok(None);
        }
        let path = directory.join(SUMMARY_FILE);
        let (mut text, file) = (Vec::new(), open(&path)?);
        file.take(SUMMARY_BYTES_MAX).read_to_end(&mut text).map_err(TraceError::io(&path))?;
        let summary: ReportData =
            serde_json::from_slice(&text).map_err(|error| TraceError::damaged(&path, error))?;
        if summary.version != REPORT_VERSION {
            return Err(TraceError::damaged(&path, "another Sheaf has made it"));
        }
        Ok(Some(summary))
    }

    /// Puts it into the directory of the trace, over what was there: whoever reads it, and whenever
    /// this is killed, has either whole. Where there is no room for two it is written in place.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, directory: &Path) -> Result<(), TraceError> {
        let path = directory.join(INFO_FILE);
        let mut text =
            serde_json::to_vec_pretty(self).map_err(|error| TraceError::damaged(&path, error))?;
        text.push(b'\n');
        let part = path.with_extension("json.part");
        // A process that was killed may have left it. `create_new` follows no link.
        remove(&part)?;
        let made = File::options().write(true).create_new(true).open(&part);
        let written = made.and_then(|mut file| {
            file.write_all(&text)?;
            // Otherwise a crash of the host could leave the new name without its content.
            file.sync_all()?;
            std::fs::rename(&part, &path)
        });
        let Err(error) = written else { return Ok(()) };
        remove(&part)?;
        if error.kind() != ErrorKind::StorageFull || matches!(path.try_exists(), Ok(false)) {
            return Err(TraceError::io(&part)(error));
        }
        let over = File::options().write(true).truncate(true).custom_flags(NO_FOLLOW).open(&path);
        over.and_then(|mut file| file.write_all(&text)).map_err(TraceError::io(&path))
    }

    /// That of a directory; nothing where there is none.
    ///
    /// # Errors
    /// When it cannot be read, or is not of this kind.
    pub fn read(directory: &Path) -> Result<Option<Self>, TraceError> {
        let path = directory.join(INFO_FILE);
        if matches!(path.try_exists(), Ok(false)) {
            return Ok(None);
        }
        let mut text = Vec::new();
        let read = open(&path)?.take(INFO_BYTES_MAX + 1).read_to_end(&mut text);
        if read.map_err(TraceError::io(&path))? as u64 > INFO_BYTES_MAX {
            return Err(TraceError::damaged(&path, format!("more than {INFO_BYTES_MAX} bytes")));
        }
        serde_json::from_slice(&text).map(Some).map_err(|error| TraceError::damaged(&path, error))
    }
}
