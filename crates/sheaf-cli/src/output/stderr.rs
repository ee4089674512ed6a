//! Standard error, for what is said beside an answer.
use std::fmt::Display;
use std::io::{self, IsTerminal, Stderr, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// A line stands there that is to go.
static PASSING: AtomicBool = AtomicBool::new(false);

/// Standard error, where no line stands that is to go.
pub fn stderr() -> Stderr {
    wipe();
    io::stderr()
}

/// Writes a line that goes when anything else is written, or is to be read: see [`wipe`]. Where a
/// line cannot be taken back it stays.
pub fn tell_for_now(line: impl Display) {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    let size = rustix::termios::tcgetwinsize(io::stderr());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if is_dumb || columns < 2 || !io::stderr().is_terminal() {
        return tell(line);
    }
    let mut text = format!("{line}");
    // Of a line that the terminal breaks only the end could be wiped.
    if let Some((at, _)) = text.char_indices().nth(columns - 1) {
        let end = text[..at].char_indices().last().map_or(0, |(last, _)| last);
        text.truncate(end);
        text.push('…');
    }
    let _ = stderr().write_all(text.as_bytes());
    PASSING.store(true, Ordering::Relaxed);
}

/// Takes back the line of [`tell_for_now`], if it stands there.
pub fn wipe() {
    if PASSING.swap(false, Ordering::Relaxed) {
        let _ = io::stderr().write_all(b"\r\x1b[K");
    }
}

/// Writes a line. What cannot be said there still shows in the exit code.
pub fn tell(line: impl Display) {
    // At once, so that lines of others do not come between.
    let _ = stderr().write_all(format!("{line}\n").as_bytes());
}
