//! Classes of operations.
use serde::{Deserialize, Serialize};
use sheaf_recorder::IoOp;

/// What an operation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpClass {
    /// Takes data from a file.
    Read,
    /// Gives data to a file.
    Write,
    /// Takes data from one file and gives it to another.
    Copy,
    /// Names, attributes and directories; opening and closing.
    Metadata,
    /// Waits until data is stored.
    Sync,
    /// Places, maps, descriptors, waits.
    Other,
    /// Processes begin and end; marks.
    Process,
    /// Takes data from a pipe, a socket or a terminal, or gives it there: what it takes is mostly
    /// the time of whoever is at the other end.
    Stream,
}

/// The class of the operation of this name ([`IoOp::word`]); [`OpClass::Other`] for unknown names.
#[must_use]
pub fn class_of(word: &[u8]) -> OpClass {
    let Some(op) = IoOp::ALL.iter().copied().find(|op| op.word().as_bytes() == word) else {
        return OpClass::Other;
    };
    match op {
        _ if op.reads() => OpClass::Read,
        _ if op.writes() => OpClass::Write,
        _ if op.copies() => OpClass::Copy,
        IoOp::Send => OpClass::Write,
        IoOp::Receive => OpClass::Read,
        IoOp::Connect | IoOp::Accept => OpClass::Stream,
        IoOp::Sync | IoOp::SyncMap | IoOp::AsyncSync => OpClass::Sync,
        IoOp::Lost | IoOp::Mark | IoOp::Fork | IoOp::Exec | IoOp::Exit => OpClass::Process,
        IoOp::Open
        | IoOp::Close
        | IoOp::Truncate
        | IoOp::Allocate
        | IoOp::Stat
        | IoOp::Access
        | IoOp::ReadLink
        | IoOp::SetAttributes
        | IoOp::Xattr
        | IoOp::OpenDirectory
        | IoOp::ReadDirectory
        | IoOp::CloseDirectory
        | IoOp::MakeDirectory
        | IoOp::RemoveDirectory
        | IoOp::Rename
        | IoOp::Link
        | IoOp::SymLink
        | IoOp::Unlink
        | IoOp::MakeNode
        | IoOp::ChangeDirectory => OpClass::Metadata,
        _ => OpClass::Other,
    }
}
