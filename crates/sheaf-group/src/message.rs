//! What a client says to the servers of a group.
//!
//! A stream carries one group, or one call of a tool; its number names either. A request is one
//! packet: a variable-length count, that many bytes that say what is to be done, and raw data to
//! the end (what a write writes), which is never copied into a message.
use crate::aggregate::NumberOp;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, RangeSet, varint};
use sheaf_file::OFlags;

/// Answers up to this size come along with their digest; of larger ones only the first member's
/// does, and other bodies are fetched once per class.
pub const INLINE_BYTES_MAX: u64 = 256;

/// The most bytes one read takes from one member; longer contents are read piece by piece.
pub const READ_BYTES_MAX: u64 = 64 << 20;

/// A request to every server of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Opens the group of this stream, does `then` in the same trip, and closes it if `close`.
    Open {
        /// What to open.
        open: OpenMessage,
        /// An operation on what was opened, for which opening and operation must change nothing: a
        /// host with pipes or devices among its members does not do it, and answers that there is
        /// more.
        then: Option<Operation>,
        /// Whether the group is over with that.
        close: bool,
    },
    /// The group has opened everywhere: files that opening it made stay, and with `O_TRUNC` those
    /// that were there are emptied.
    Settle,
    /// One operation on every member.
    Operate(Operation),
    /// The answer of the read just before is refused: offsets go back to where they were.
    Unread {
        /// The number of that read; after any other operation offsets stay.
        of: u64,
    },
    /// Each member's status of the last operation.
    Statuses,
    /// Each member's path.
    Names,
    /// The place of the member with this path on this leaf; the others answer nothing.
    Find {
        /// Who is asked.
        leaf: u32,
        /// Its path, as it answers to [`Request::Names`].
        path: Vec<u8>,
    },
    /// Closes the group; with `undo`, files that opening it created are removed.
    Close {
        /// The opening failed elsewhere.
        undo: bool,
    },
    /// Starts a tool; the data is its parameters.
    Call {
        /// Its name.
        tool: String,
        /// How its answers are told apart and combined.
        answer: AnswerMessage,
    },
    /// More input for the tool; nothing is answered.
    Feed,
    /// The next part of the tool's answer, from these leaves.
    More {
        /// Who is asked; the others answer nothing.
        leaves: RangeSet,
        /// How it is combined.
        answer: AnswerMessage,
    },
    /// The bodies of an earlier answer, from these leaves: one of each class.
    Fetch {
        /// Which answer: the number of its request. A server keeps the bodies of the last that
        /// has any; of another one it has nothing (`ESTALE`).
        of: u64,
        /// Who is asked; the others answer nothing.
        leaves: RangeSet,
        /// Combine them line by line on the way instead of packing them.
        lines: bool,
        /// The most bytes all bodies may have together.
        bytes_max: u64,
        /// Members by local index; empty for the answer of a tool, and for the lines of a group.
        locals: RangeSet,
    },
    /// Nobody wants the rest of what the tool was to do: it ends, and these leaves say what it has
    /// done. Input that was not taken in yet is thrown away.
    Last {
        /// Who is asked; the others answer nothing.
        leaves: RangeSet,
    },
}

/// How the answers of a tool come up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnswerMessage {
    /// The leaf that sends its body at once, so that equal answers need no second trip.
    pub eager: u32,
}

/// What a group is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenMessage {
    /// Paths or patterns, beneath each server's export.
    pub paths: Vec<String>,
    /// Paths or patterns, each of these hosts only. A path of a host that several stand for is one
    /// member.
    pub of_hosts: Vec<(RangeSet, String)>,
    /// Take the entries of the directories named by `paths`, which are no patterns then.
    pub entries: bool,
    /// `open(2)` flags, with those of [`crate::flags`].
    pub flags: u32,
    /// Mode of files that are created.
    pub mode: u32,
}

impl OpenMessage {
    /// These paths or patterns.
    #[must_use]
    pub fn new(paths: Vec<String>, flags: u32, mode: u32) -> Self {
        Self { paths, of_hosts: Vec::new(), entries: false, flags, mode }
    }

    /// These paths or patterns, each of some hosts.
    #[must_use]
    pub fn of_hosts(of_hosts: Vec<(RangeSet, String)>, flags: u32, mode: u32) -> Self {
        Self { paths: Vec::new(), of_hosts, entries: false, flags, mode }
    }

    /// The entries of these directories.
    #[must_use]
    pub fn entries_of(dirs: Vec<String>, flags: u32, mode: u32) -> Self {
        Self { paths: dirs, of_hosts: Vec::new(), entries: true, flags, mode }
    }
}

/// An operation on every member of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Operation {
    /// `read(2)`: at the member's offset, which moves.
    Read {
        /// Most bytes of each member.
        count: u64,
        /// What becomes of the data.
        data: DataAggregation,
    },
    /// `pread(2)`.
    Pread {
        /// Most bytes of each member.
        count: u64,
        /// Where.
        offset: u64,
        /// What becomes of the data.
        data: DataAggregation,
    },
    /// `write(2)` of the request's data; a member may write a part of it.
    Write,
    /// `pwrite(2)` of the request's data; a member may write a part of it.
    Pwrite {
        /// Where.
        offset: u64,
    },
    /// Writes all of the request's data; a member that takes only a part fails.
    WriteAll,
    /// Writes all of the request's data at an offset; a member that takes only a part fails.
    PwriteAll {
        /// Where.
        offset: u64,
    },
    /// `lseek(2)`.
    Lseek {
        /// Distance.
        offset: i64,
        /// From where.
        whence: Whence,
    },
    /// `fstat(2)`; the data are [`crate::Stat`]s.
    Fstat {
        /// What becomes of them.
        data: DataAggregation,
    },
    /// `ftruncate(2)`.
    Ftruncate {
        /// New length.
        length: u64,
    },
    /// `fsync(2)`.
    Fsync,
    /// `fdatasync(2)`.
    Fdatasync,
    /// `fchmod(2)`.
    Fchmod {
        /// New mode.
        mode: u32,
    },
    /// `fchown(2)`; `u32::MAX` leaves one as it is.
    Fchown {
        /// New owner.
        uid: u32,
        /// New group.
        gid: u32,
    },
}

impl OpenMessage {
    /// Whether opening makes or empties files.
    pub(crate) fn changes_files(&self) -> bool {
        OFlags::from_bits_retain(self.flags).intersects(OFlags::CREATE | OFlags::TRUNC)
    }
}

impl Request {
    /// Whether a client that may only read cannot ask for it; of tools, each says that itself.
    pub(crate) fn changes_files(&self) -> bool {
        match self {
            Self::Open { open, then, .. } => {
                let writes = OFlags::WRONLY | OFlags::RDWR;
                open.changes_files()
                    || OFlags::from_bits_retain(open.flags).intersects(writes)
                    || then.as_ref().is_some_and(Operation::changes_files)
            }
            Self::Operate(operation) => operation.changes_files(),
            _ => false,
        }
    }
}

impl Operation {
    /// Whether it changes files, or what `stat` tells of them, beyond the time of the last access.
    pub(crate) fn changes_files(&self) -> bool {
        match self {
            Self::Read { .. }
            | Self::Pread { .. }
            | Self::Lseek { .. }
            | Self::Fstat { .. }
            | Self::Fsync
            | Self::Fdatasync => false,
            Self::Write
            | Self::Pwrite { .. }
            | Self::WriteAll
            | Self::PwriteAll { .. }
            | Self::Ftruncate { .. }
            | Self::Fchmod { .. }
            | Self::Fchown { .. } => true,
        }
    }
}

/// From where an offset counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Whence {
    /// The beginning.
    Start,
    /// The member's offset.
    Current,
    /// The end of the member.
    End,
}

/// What becomes of the members' data (design: group file operations, data aggregations).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DataAggregation {
    /// Element *i* at *i* × `count`, zero-filled after a short read.
    Concatenate {
        /// The most bytes in all.
        bytes_max: u64,
    },
    /// Side by side with an offset table.
    Packed {
        /// The most bytes in all.
        bytes_max: u64,
    },
    /// Numbers in text, each at its place.
    Numbers {
        /// What is wanted.
        op: NumberOp,
        /// Columns of each line, counted from 1; empty: every field that is a number.
        columns: Vec<u32>,
        /// A regular expression: only lines in which it matches, which alone are counted.
        lines: Option<String>,
        /// Keep the text beside the numbers that all members share, where no columns are wanted.
        labels: bool,
    },
    /// The content, when all are equal; an error otherwise.
    Equal,
    /// Nothing: only the status matters.
    Zero,
    /// How many members have data.
    Count,
    /// Members by content.
    Contents {
        /// The leaf that sends its body at once.
        eager: u32,
    },
    /// Lines, with the members that have them.
    Lines {
        /// The leaf that sends its body at once.
        eager: u32,
        /// With an entry of kind [`EntryKind::Path`](crate::entry::EntryKind::Path) for each
        /// member: 16 bytes of the digest of its content, and 16 of the digest of the set of its
        /// lines.
        digests: bool,
    },
    /// Digests only.
    Checksum,
}

impl Operation {
    /// Whether servers keep what they answer for a [`Request::Fetch`], in place of what they kept.
    pub(crate) fn keeps_bodies(&self) -> bool {
        let (Self::Read { data, .. } | Self::Pread { data, .. } | Self::Fstat { data }) = self
        else {
            return false;
        };
        matches!(
            data,
            DataAggregation::Equal
                | DataAggregation::Contents { .. }
                | DataAggregation::Lines { .. }
        )
    }
}

impl Request {
    /// What it is, in a word for logs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Open { .. } => "open",
            Self::Settle => "settle",
            Self::Operate(_) => "operate",
            Self::Unread { .. } => "unread",
            Self::Statuses => "statuses",
            Self::Names => "names",
            Self::Find { .. } => "find",
            Self::Close { .. } => "close",
            Self::Call { .. } => "call",
            Self::Feed => "feed",
            Self::More { .. } => "more",
            Self::Fetch { .. } => "fetch",
            Self::Last { .. } => "last",
        }
    }

    /// [`Operation::keeps_bodies`] of this request's operation; tools keep every answer.
    pub(crate) fn keeps_bodies(&self) -> bool {
        match self {
            Self::Open { then: Some(operation), .. } | Self::Operate(operation) => {
                operation.keeps_bodies()
            }
            Self::Call { .. } | Self::More { .. } => true,
            _ => false,
        }
    }

    /// The packet: this request, then `data`.
    #[must_use]
    pub fn encode(&self, data: &[u8]) -> Vec<u8> {
        let head =
            postcard::to_stdvec(self).expect("requests hold nothing that cannot be serialised");
        let mut packet = Vec::with_capacity(head.len() + data.len() + 5);
        varint::put_bytes(&mut packet, &head);
        packet.extend_from_slice(data);
        packet
    }

    /// Reads a packet: the request, and the data behind it.
    ///
    /// # Errors
    /// `EPROTO` when it is not a request.
    pub fn decode(packet: &Bytes) -> Result<(Self, Bytes), Errno> {
        let mut input = &packet[..];
        let head = varint::get_bytes(&mut input).map_err(|_| Errno::PROTO)?;
        let request = postcard::from_bytes(head).map_err(|_| Errno::PROTO)?;
        Ok((request, packet.slice(packet.len() - input.len()..)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn data_travels_behind_the_request() {
        let request = Request::Operate(Operation::Pwrite { offset: 7 });
        let packet = Bytes::from(request.encode(b"payload"));
        let (back, data) = Request::decode(&packet).unwrap();
        assert_eq!((back, &data[..]), (request, &b"payload"[..]));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Request::decode(&Bytes::from(bytes));
        }
    }
}
