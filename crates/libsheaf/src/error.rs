//! Why a call failed, as C callers are told.

/// What kind of failure it was: the numbers of `sheaf.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum ErrorCode {
    /// The topology does not parse or does not fit.
    Topology = 1,
    /// A process could not be started, or did not come up in time.
    Launch = 2,
    /// An argument makes no sense.
    Usage = 3,
    /// There is no such stream, node or filter.
    Unknown = 4,
    /// The session is over.
    Ended = 5,
    /// The operating system refused something.
    System = 6,
    /// A packet is not what its receiver expects.
    Packet = 7,
    /// A filter failed.
    Filter = 8,
    /// The time is over.
    TimedOut = 9,
}

/// A failure with one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// The kind.
    pub code: ErrorCode,
    /// What failed, and what to try.
    pub message: String,
}

impl Error {
    /// A failure with its kind and one sentence.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Of an argument that makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Usage, message)
    }

    /// What a program ends with that can go no further.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.code == ErrorCode::Usage { 2 } else { 1 }
    }

    /// Of a stream that is not open.
    #[must_use]
    pub fn no_stream(id: u32) -> Self {
        Self::new(ErrorCode::Unknown, format!("there is no open stream {id}"))
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::new(ErrorCode::System, error.to_string())
    }
}

/// What failed, and why, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}
