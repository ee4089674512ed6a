//! What an observer is told of groups and tools.
use crate::client::{Outcome, Reading};
use crate::error::GroupError;
use crate::message::{Operation, Request};
use sheaf_core::Errno;
use sheaf_core::observer::{Begun, Ending, Layer};

/// An operation that begins; `input` is what is to be written.
pub(crate) fn begun(operation: &Operation, layer: Layer, input: &[u8]) -> Begun<'static> {
    macro_rules! kind {
        ($name:literal) => {
            if layer == Layer::File { concat!("file.", $name) } else { concat!("group.", $name) }
        };
    }
    let written = input.len() as u64;
    let (kind, offset, asked) = match operation {
        Operation::Read { count, .. } => (kind!("read"), None, *count),
        Operation::Pread { count, offset, .. } => (kind!("pread"), Some(*offset), *count),
        Operation::Write | Operation::WriteAll => (kind!("write"), None, written),
        Operation::Pwrite { offset } | Operation::PwriteAll { offset } => {
            (kind!("pwrite"), Some(*offset), written)
        }
        // What counts from elsewhere than the start is not known as a place.
        Operation::Lseek { .. } => (kind!("lseek"), None, 0),
        Operation::Fstat { .. } => (kind!("fstat"), None, 0),
        Operation::Ftruncate { length } => (kind!("ftruncate"), Some(*length), 0),
        Operation::Fsync => (kind!("fsync"), None, 0),
        Operation::Fdatasync => (kind!("fdatasync"), None, 0),
        Operation::Fchmod { .. } => (kind!("fchmod"), None, 0),
        Operation::Fchown { .. } => (kind!("fchown"), None, 0),
    };
    Begun { offset, asked, ..Begun::new(kind, layer) }
}

/// A question about a group.
pub(crate) fn kind_of(request: &Request) -> &'static str {
    match request {
        Request::Statuses => "group.statuses",
        Request::Names => "group.names",
        Request::Find { .. } => "group.index",
        Request::Close { .. } => "group.close",
        _ => "group.request",
    }
}

/// How many bytes a status of this operation stands for.
pub(crate) fn bytes(operation: &Operation, status: u64) -> u64 {
    match operation {
        Operation::Read { .. }
        | Operation::Pread { .. }
        | Operation::Write
        | Operation::WriteAll
        | Operation::Pwrite { .. }
        | Operation::PwriteAll { .. } => status,
        _ => 0,
    }
}

/// How an operation on a group ended. Bytes count also where other members have failed.
pub(crate) fn ending(operation: &Operation, result: &Result<Reading, GroupError>) -> Ending {
    let outcome = match result {
        Ok(reading) => &reading.outcome,
        Err(GroupError::Members(outcome)) => outcome,
        Err(error) => return Ending::failed(error.errno()),
    };
    Ending::Ended { bytes: bytes(operation, outcome.status.sum), errno: errno(outcome) }
}

/// How something ended whose errors are these.
pub(crate) fn ending_of<T>(
    result: &Result<T, GroupError>,
    outcome: impl FnOnce(&T) -> Option<Errno>,
) -> Ending {
    let errno = match result {
        Ok(value) => outcome(value),
        Err(GroupError::Members(outcome)) => errno(outcome),
        Err(error) => Some(error.errno()),
    };
    Ending::Ended { bytes: 0, errno }
}

/// Why members failed, if any did.
pub(crate) fn errno(outcome: &Outcome) -> Option<Errno> {
    common(outcome.errnos())
}

/// The reason, if all have the same; `EGROUP` where they have several.
pub(crate) fn common(mut errnos: impl Iterator<Item = Errno>) -> Option<Errno> {
    let first = errnos.next()?;
    Some(if errnos.all(|errno| errno == first) { first } else { Errno::GROUP })
}
