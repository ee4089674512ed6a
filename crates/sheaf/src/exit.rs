//! How the program ends: exit codes, and the two kinds of error that choose one.
use std::path::Path;
use std::process::ExitCode;

/// What a command's run comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Every member succeeded.
    Success = 0,
    /// Nothing matched, or some members failed or stayed silent.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// No session could be had, or no host answered.
    Unreachable = 3,
    /// Ended by Ctrl-C.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error that says how the program ends. Errors that are none of these exit 1.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// The user asked for something that cannot be meant: exit 2.
    #[error("{0}")]
    Usage(String),
    /// There is no tree to ask: exit 3.
    #[error("{0}")]
    Unreachable(String),
}

impl Stop {
    /// A usage error with this one-line text.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    /// An error that leaves no host to ask.
    pub fn unreachable(text: impl Into<String>) -> Self {
        Self::Unreachable(text.into())
    }

    fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Unreachable(_) => Exit::Unreachable,
        }
    }
}

/// The exit code an error leads to.
pub fn of_error(error: &anyhow::Error) -> Exit {
    error.chain().find_map(|cause| cause.downcast_ref::<Stop>()).map_or(Exit::Failed, Stop::exit)
}

/// An error and its causes on one line. A cause that the text before it tells already is not
/// repeated.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// A file and what went wrong with it, in the words that failures of members use.
pub fn io_text(path: &Path, error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => format!("{}: {}", path.display(), sheaf_core::Errno(errno)),
        None => format!("{}: {error}", path.display()),
    }
}

/// Whether the reader of our output went away (`sheaf … | head`), which is no error.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn context_keeps_the_exit_code() {
        let error = Err::<(), _>(Stop::usage("bad")).context("while reading").unwrap_err();
        assert_eq!(of_error(&error), Exit::Usage);
        assert_eq!(of_error(&anyhow::anyhow!("other")), Exit::Failed);
    }

    #[test]
    fn no_cause_is_told_twice() {
        let error = anyhow::anyhow!("no link").context("no parent: no link").context("cannot serve");
        assert_eq!(one_line(&error), "cannot serve: no parent: no link");
    }

    #[test]
    fn a_broken_pipe_is_found_below_other_causes() {
        let io = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&anyhow::Error::new(io).context("writing the answer")));
        assert!(!is_broken_pipe(&anyhow::anyhow!("broken pipe")));
    }
}
