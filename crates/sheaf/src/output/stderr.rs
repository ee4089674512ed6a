//! Standard error, for what is said beside an answer.
use std::fmt::Display;
use std::io::{Write, stderr};

/// Writes a line. What cannot be said there still shows in the exit code.
pub fn tell(line: impl Display) {
    // At once, so that lines of others do not come between.
    let _ = stderr().write_all(format!("{line}\n").as_bytes());
}
