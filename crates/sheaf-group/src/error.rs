//! Why a group operation has no result.
use crate::aggregate::Overflow;
use crate::client::Outcome;
use crate::entry::MergeError;
use sheaf_core::Errno;

/// A group operation failed as a whole. What each member said is in the [`Outcome`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// Some members failed, and the group was not opened with `O_PARTIAL`.
    #[error("{} of {} members failed: {}", .0.failed_count(), .0.member_count(), .0)]
    Members(#[source] Box<Outcome>),
    /// The combined data would be larger than the caller's bound.
    #[error(
        "the answer of all members needs more than {bytes_max} bytes; raise the bound, read less, \
         or use an aggregation"
    )]
    TooLarge {
        /// The bound.
        bytes_max: u64,
    },
    /// There is not enough memory for the combined data.
    #[error(
        "the answer of all members needs {bytes} bytes, more than there is memory; read less, or \
         use an aggregation"
    )]
    OutOfMemory {
        /// How much it takes.
        bytes: u64,
    },
    /// The lines of a host would be more than one host may answer with.
    #[error(
        "the lines of a host need more than {bytes_max} bytes, the most that one host answers \
         with; read less at a time"
    )]
    TooManyLines {
        /// The bound, [`crate::entry::ANSWER_BYTES_MAX`].
        bytes_max: u64,
    },
    /// The members' contents differ, where they have to be equal.
    #[error("the members' contents differ: {classes} different ones")]
    Differ {
        /// How many.
        classes: usize,
        /// Who has none, and why.
        outcome: Box<Outcome>,
    },
    /// A session was made with too few or too many names.
    #[error("{names} names for a tree with {leaves} leaves")]
    Names {
        /// How many names.
        names: u32,
        /// How many leaves.
        leaves: u32,
    },
    /// A session was made with one name for several leaves.
    #[error("{0:?} is the name of more than one leaf")]
    NamedTwice(String),
    /// The tree has no such leaf.
    #[error("there is no leaf {leaf} in this session: it has {leaves}, counted from 0")]
    UnknownLeaf {
        /// The leaf that was asked for.
        leaf: u32,
        /// How many leaves there are.
        leaves: u32,
    },
    /// A sum of integers needs more than 128 bits.
    #[error("the sum of column {} of line {} does not fit 128 bits", .0.column, .0.line)]
    Overflow(Overflow),
    /// The members have numbers at too many different places.
    #[error(
        "there are numbers at more than {numbers_max} places; read less of each file, or only \
         some columns"
    )]
    TooManyNumbers {
        /// The bound.
        numbers_max: usize,
    },
    /// There is no such host in the session.
    #[error("{0:?} is not a host of this session")]
    UnknownHost(String),
    /// There is no such member.
    #[error("{0:?} is not a member of the group")]
    UnknownMember(String),
    /// The session, or the stream of the group or call, has ended.
    #[error("the session has ended")]
    Ended,
    /// An earlier future of this call was dropped before its end, or failed: what the hosts said
    /// then is lost, and with it what would follow.
    #[error("part of the answer is lost: an earlier request for it was given up or failed")]
    Torn,
    /// A server answered with something that is not an answer.
    #[error("an answer does not decode")]
    Protocol,
}

impl From<MergeError> for GroupError {
    fn from(error: MergeError) -> Self {
        match error {
            MergeError::TooLarge { bytes_max } => Self::TooLarge { bytes_max: bytes_max as u64 },
            _ => Self::Protocol,
        }
    }
}

impl GroupError {
    /// The same error, with these failures in its outcome, if it has one.
    #[must_use]
    pub fn with_failures(mut self, failures: Outcome) -> Self {
        if let Self::Members(outcome) | Self::Differ { outcome, .. } = &mut self {
            outcome.merge_failures(failures);
        }
        self
    }

    /// The errno that the call sets; `E_GROUP` when the members' own are to be asked for.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Members(_) => Errno::GROUP,
            Self::TooManyLines { .. } | Self::TooLarge { .. } | Self::TooManyNumbers { .. } => {
                Errno::MSGSIZE
            }
            Self::Overflow(_) => Errno::OVERFLOW,
            Self::OutOfMemory { .. } => Errno::NOMEM,
            Self::Differ { .. } => Errno::INVAL,
            Self::Names { .. } | Self::NamedTwice(_) => Errno::INVAL,
            Self::UnknownHost(_) | Self::UnknownLeaf { .. } => Errno::HOSTUNREACH,
            Self::UnknownMember(_) => Errno::NOENT,
            Self::Ended => Errno::HOSTDOWN,
            Self::Torn => Errno::CANCELED,
            Self::Protocol => Errno::PROTO,
        }
    }

    /// Whether the members' answers are good, but cannot be combined.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::TooLarge { .. }
                | Self::OutOfMemory { .. }
                | Self::Overflow(_)
                | Self::TooManyNumbers { .. }
                | Self::TooManyLines { .. }
        )
    }
}
