//! Sessions that have run: what they left, and what their logs say of how they ended.
use crate::error::SessionError;
use crate::log::GOES_ON;
use crate::seat;
use crate::sessions::Sessions;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The end of a log has its last line within so many bytes.
const LINE_BYTES_MAX: u64 = 4096;

/// In how many places the log of a session is looked for.
const PLACES_MAX: usize = 16;

/// The longest reason for the end of a session that is told.
const WHY_CHARS_MAX: usize = 300;

/// The last line of a session's log.
#[derive(Debug, PartialEq, Eq)]
struct LastLine {
    time: String,
    process: u32,
    text: String,
}

impl Sessions {
    /// Where a session of this name keeps its log.
    #[must_use]
    pub fn log(&self, name: &str) -> PathBuf {
        self.directory().join(format!("{name}.log"))
    }

    /// That a session of this name has run, and how it ended; `None` when nothing is known of any,
    /// or its process runs yet.
    pub(crate) fn past(&self, name: &str) -> Option<String> {
        if self.is_foreign() {
            return None;
        }
        let (path, last) = last_of_all(self.log(name))?;
        let log = path.display();
        let ends = format!("session {name} ends");
        let Some((_, why)) = last.text.split_once(&ends) else {
            let process = last.process;
            // It begins, or ends just now.
            if seat::is_held(&self.socket(name).ok()?) {
                return None;
            }
            return Some(format!(
                "session {name} (process {process}) has ended without saying why; its log: {log}"
            ));
        };
        let why: String = why.chars().filter(|c| !c.is_control()).take(WHY_CHARS_MAX).collect();
        Some(format!("session {name} has ended ({}{why}); its log: {log}", last.time))
    }

    /// How sessions ended that were killed, and whose sockets are still there.
    ///
    /// # Errors
    /// When the directory is not to be trusted, or cannot be read.
    pub fn killed(&self) -> Result<Vec<String>, SessionError> {
        let files = self.files("sock")?;
        let names = files.iter().filter(|path| !seat::is_held(path));
        let names = names.filter_map(|path| path.file_stem()?.to_str());
        Ok(names
            .filter(|name| !self.is_running(name))
            .map(|name| self.how_it_ended(name))
            .collect())
    }

    /// Whether a session of this name was killed, and nobody has forgotten it since.
    pub(crate) fn was_killed(&self, name: &str) -> bool {
        if self.is_foreign() {
            return false;
        }
        let is_left = |socket: &PathBuf| std::fs::symlink_metadata(socket).is_ok();
        let left = self.socket(name).ok().filter(is_left);
        left.is_some_and(|socket| !seat::is_held(&socket)) && !self.is_running(name)
    }

    pub(crate) fn how_it_ended(&self, name: &str) -> String {
        self.past(name).unwrap_or_else(|| format!("session {name} has ended without saying why"))
    }

    /// Removes what sessions have left here that were killed, of the names that are meant, once it is told how
    /// they ended.
    ///
    /// # Errors
    /// When the directory is not to be trusted, or cannot be read.
    pub(crate) fn sweep(
        &self,
        is_meant: impl Fn(&str) -> bool,
        mut tell: impl FnMut(String) -> bool,
    ) -> Result<(), SessionError> {
        for path in self.files("sock")? {
            let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
            if !is_meant(name) || self.is_running(name) {
                continue;
            }
            let ended = self.how_it_ended(name);
            seat::clear_if(&path, || tell(ended));
        }
        Ok(())
    }
}

/// The last line of a log, or of the one in which it goes on, and its path.
fn last_of_all(mut path: PathBuf) -> Option<(PathBuf, LastLine)> {
    for _ in 0..PLACES_MAX {
        let last = last_line(&path)?;
        let next = last.text.strip_prefix(GOES_ON).map(PathBuf::from);
        match next.filter(|next| next.is_absolute() && is_own(next)) {
            Some(next) => path = next,
            None => return Some((path, last)),
        }
    }
    None
}

/// Whether a file is this user's.
fn is_own(path: &Path) -> bool {
    let about = std::fs::symlink_metadata(path);
    about.is_ok_and(|about| about.is_file() && about.uid() == rustix::process::getuid().as_raw())
}

/// The last line of a log; `None` when there is none, or it is none of a log.
fn last_line(path: &Path) -> Option<LastLine> {
    let mut file = File::open(path).ok()?;
    let start = file.metadata().ok()?.len().saturating_sub(LINE_BYTES_MAX);
    file.seek(SeekFrom::Start(start)).ok()?;
    let mut end = Vec::new();
    file.take(LINE_BYTES_MAX).read_to_end(&mut end).ok()?;
    parse(String::from_utf8_lossy(&end).lines().next_back()?)
}

/// `2026-03-01T10:00:00.123Z [4711] session lab ends`, without the fraction of the second.
fn parse(line: &str) -> Option<LastLine> {
    let (time, rest) = line.split_once(" [")?;
    let (process, text) = rest.split_once("] ")?;
    let second =
        time.split_once('.').map_or_else(|| time.to_owned(), |(time, _)| format!("{time}Z"));
    let is_time = second.chars().all(|c| c.is_ascii_digit() || "-:TZ".contains(c));
    is_time.then_some(())?;
    Some(LastLine { time: second, process: process.parse().ok()?, text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_logs_have_a_time_and_a_process() {
        let line = parse("2026-03-01T10:00:00.123Z [4711] session lab ends").unwrap();
        let text = "session lab ends".to_owned();
        let time = "2026-03-01T10:00:00Z".to_owned();
        assert_eq!(line, LastLine { time, process: 4711, text });
        for bad in ["", "x", "x [1] y", "2026-03-01T10:00:00Z [x] y", "2026 [1]"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
