//! Why there is no session, or not the hosts that were meant. Each text is one line for people; it
//! says what to try next, where there is something.
use sheaf_core::Errno;
use sheaf_group::GroupError;
use sheaf_tree::launch::LaunchError;
use std::io;
use std::path::Path;

/// A configuration, an address or a session that cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// Choices that do not go together, or that cannot be heeded here.
    #[error("{0}")]
    Choice(String),
    /// A file of configuration that cannot be read, is not to be trusted, or is wrong.
    #[error("{0}")]
    Configuration(String),
    /// No such cluster, or several and none is chosen.
    #[error("{0}")]
    Cluster(String),
    /// A host set that is malformed or empty, or a source of hosts that fails.
    #[error("{0}")]
    Hosts(String),
    /// Hosts that are not among those of the cluster or session.
    #[error("{0}")]
    UnknownHosts(String),
    /// A tree that cannot be planned.
    #[error("{0}")]
    Tree(String),
    /// An address that cannot be meant.
    #[error("{0}")]
    Address(String),
    /// What no session can be called.
    #[error("{0}")]
    Name(String),
    /// A file or process of somebody else in the place of a session's.
    #[error("{0}")]
    Foreign(String),
    /// A session whose process has no number here, so that it cannot be told whose it is.
    #[error("{0}")]
    OtherNamespace(String),
    /// A session of that name runs, or begins to.
    #[error("{0}")]
    Taken(String),
    /// A session has refused what was asked of it.
    #[error("{0}")]
    Refused(String),
    /// No session of that name runs.
    #[error("{0}")]
    Absent(String),
    /// A session that is ending, is stopped, or hangs.
    #[error("{0}")]
    Unresponsive(String),
    /// A session that was told to end and has not.
    #[error("session {name} did not end within {seconds} s")]
    StillThere {
        /// Which.
        name: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// There is no place for a session's socket.
    #[error("{0}")]
    NoPlace(String),
    /// A session says something that is none of what sessions say.
    #[error("{what}")]
    Protocol {
        /// Of what.
        what: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A file, a socket or a process could not be used.
    #[error("{what}")]
    Io {
        /// Which, or what was to be done.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// The tree could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The tree is not one for group operations.
    #[error(transparent)]
    Group(#[from] GroupError),
}

impl SessionError {
    /// Whether what there is belongs to another container.
    pub(crate) fn is_elsewhere(&self) -> bool {
        matches!(self, Self::OtherNamespace(_))
    }

    /// Something of the system's that failed.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |source| Self::Io { what, source }
    }

    /// A file that failed.
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Self::Io { what: path.display().to_string(), source }
    }

    /// The errno that a call of the same meaning would set.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Choice(_)
            | Self::Configuration(_)
            | Self::Hosts(_)
            | Self::Tree(_)
            | Self::Address(_)
            | Self::Name(_) => Errno::INVAL,
            Self::Cluster(_) | Self::Absent(_) => Errno::NOENT,
            Self::UnknownHosts(_) => Errno::HOSTUNREACH,
            Self::Foreign(_) | Self::Refused(_) | Self::OtherNamespace(_) => Errno::ACCES,
            Self::Taken(_) => Errno::BUSY,
            Self::Unresponsive(_) | Self::StillThere { .. } => Errno::TIMEDOUT,
            Self::NoPlace(_) => Errno::NOTDIR,
            Self::Protocol { .. } => Errno::PROTO,
            Self::Io { source, .. } => Errno::from_io(source),
            Self::Launch(LaunchError::Io(source) | LaunchError::Srun(_, source)) => {
                Errno::from_io(source)
            }
            Self::Launch(_) => Errno::IO,
            Self::Group(error) => error.errno(),
        }
    }

    /// Whether what was asked for cannot be meant: asking differently can help, and nothing else.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Choice(_)
                | Self::Configuration(_)
                | Self::Cluster(_)
                | Self::Hosts(_)
                | Self::UnknownHosts(_)
                | Self::Tree(_)
                | Self::Address(_)
                | Self::Name(_)
                | Self::Foreign(_)
                | Self::Taken(_)
                | Self::Refused(_)
        )
    }

    /// Whether no session could be had: there is none, or what it takes is not to be had here.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::Absent(_)
                | Self::Unresponsive(_)
                | Self::NoPlace(_)
                | Self::Protocol { .. }
                | Self::Io { .. }
                | Self::Launch(_)
                | Self::OtherNamespace(_)
        )
    }
}

/// A file and what went wrong with it, in the words that failures of members use.
#[must_use]
pub fn io_text(path: &Path, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => format!("{}: {}", path.display(), Errno(errno)),
        None => format!("{}: {error}", path.display()),
    }
}

/// An error and its causes on one line. A cause that the text before it tells already is not
/// repeated.
#[must_use]
pub fn one_line(error: &(dyn std::error::Error + 'static)) -> String {
    let mut line = String::new();
    for cause in std::iter::successors(Some(error), |error| error.source()) {
        let (raw, text) = (cause.to_string(), cause_text(cause));
        if line.is_empty() {
            line = text;
        } else if !line.contains(&raw) && !line.contains(&text) {
            line = format!("{line}: {text}");
        }
    }
    line
}

/// A cause in the words that failures of members use, where it is the system's.
fn cause_text(cause: &(dyn std::error::Error + 'static)) -> String {
    match cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
        Some(errno) => Errno(errno).to_string(),
        None => cause.to_string(),
    }
}
