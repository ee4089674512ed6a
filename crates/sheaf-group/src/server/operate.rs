//! One operation on each of a host's members, and its answer.
use super::group::{Group, Member, error};
use crate::aggregate::{Data, Numbers, Packed, Partial};
use crate::entry::{self, Answer, AnswerForm, EntryKind, Sink};
use crate::message::{DataAggregation, INLINE_BYTES_MAX, Operation, READ_BYTES_MAX, Whence};
use crate::stat::Stat;
use crate::tool::Host;
use bytes::Bytes;
use rustix::fs::{Gid, Mode, Uid};
use sheaf_core::{Errno, MemberSet, RangeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// Status and content of one member.
type Outcome = Result<(u64, Option<Vec<u8>>), Errno>;

/// Does `operation` on every member in turn.
pub(super) fn operate(
    group: &mut Group,
    operation: &Operation,
    input: &Bytes,
    host: &Host,
) -> Result<Partial, Errno> {
    let mut partial = Partial::default();
    let mut lift = Lift::new(data_of(operation), host.leaf);
    for (local, member) in group.members.iter_mut().enumerate() {
        let outcome =
            if host.should_stop() { Err(Errno::CANCELED) } else { perform(member, operation, input) };
        let outcome = outcome.and_then(|(status, content)| {
            lift.member(local as u32, member, content)?;
            Ok(status)
        });
        match outcome {
            Ok(status) => {
                member.status = i64::try_from(status).unwrap_or(i64::MAX);
                partial.status.add(status);
            }
            Err(errno) => {
                member.status = errno.status();
                partial.add_error(error(errno, &member.path, host.leaf, local as u32));
            }
        }
    }
    if partial.status.count > 0 {
        partial.contributors = RangeSet::single(host.leaf);
    }
    partial.data = lift.finish(&mut group.lines);
    Ok(partial)
}

fn data_of(operation: &Operation) -> &DataAggregation {
    match operation {
        Operation::Read { data, .. } | Operation::Pread { data, .. } | Operation::Fstat { data } => data,
        _ => &DataAggregation::Zero,
    }
}

fn perform(member: &mut Member, operation: &Operation, input: &[u8]) -> Outcome {
    let file = &mut member.file;
    let done = |result: rustix::io::Result<()>| result.map(|()| (0, None)).map_err(Errno::from);
    match operation {
        Operation::Read { count, .. } => read_up_to(*count, |buffer, _| file.read(buffer)),
        Operation::Pread { count, offset, .. } => {
            read_up_to(*count, |buffer, done| file.read_at(buffer, offset + done))
        }
        Operation::Write => {
            file.write_all(input)?;
            Ok((input.len() as u64, None))
        }
        Operation::Pwrite { offset } => {
            file.write_all_at(input, *offset)?;
            Ok((input.len() as u64, None))
        }
        Operation::Lseek { offset, whence } => Ok((seek(file, *offset, *whence)?, None)),
        Operation::Fstat { .. } => {
            let stat = Stat::of(&file.metadata()?);
            Ok((0, Some(stat.to_bytes())))
        }
        Operation::Ftruncate { length } => done(rustix::fs::ftruncate(&*file, *length)),
        Operation::Fsync => done(rustix::fs::fsync(&*file)),
        Operation::Fdatasync => done(rustix::fs::fdatasync(&*file)),
        Operation::Fchmod { mode } => done(rustix::fs::fchmod(&*file, Mode::from_raw_mode(*mode))),
        Operation::Fchown { uid, gid } => {
            let wanted = |id: u32| (id != u32::MAX).then_some(id);
            done(rustix::fs::fchown(&*file, wanted(*uid).map(Uid::from_raw), wanted(*gid).map(Gid::from_raw)))
        }
    }
}

fn seek(file: &mut File, offset: i64, whence: Whence) -> Result<u64, Errno> {
    let to = match whence {
        Whence::Start => SeekFrom::Start(u64::try_from(offset).map_err(|_| Errno::INVAL)?),
        Whence::Current => SeekFrom::Current(offset),
        Whence::End => SeekFrom::End(offset),
    };
    Ok(file.seek(to)?)
}

/// Reads until `count` bytes are there or the file ends. Files of /proc give a little at a time.
fn read_up_to(count: u64, mut read: impl FnMut(&mut [u8], u64) -> std::io::Result<usize>) -> Outcome {
    const STEP: usize = 64 << 10;
    if count > READ_BYTES_MAX {
        return Err(Errno::MSGSIZE);
    }
    let count = count as usize;
    let mut content = Vec::new();
    while content.len() < count {
        let have = content.len();
        content.resize((have + STEP.max(have)).min(count), 0);
        match read(&mut content[have..], have as u64) {
            Ok(0) => {
                content.truncate(have);
                break;
            }
            Ok(got) => content.truncate(have + got),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => content.truncate(have),
            // A pipe or device has no more for now.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && have > 0 => {
                content.truncate(have);
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok((content.len() as u64, Some(content)))
}

/// Turns the contents of one host's members into the data of its partial.
struct Lift<'a> {
    how: &'a DataAggregation,
    leaf: u32,
    data: Data,
    lines: Option<Answer>,
}

impl<'a> Lift<'a> {
    fn new(how: &'a DataAggregation, leaf: u32) -> Self {
        let lines = matches!(how, DataAggregation::Lines { .. }).then(|| Answer::new(AnswerForm::default()));
        Self { how, leaf, data: Data::None, lines }
    }

    fn member(&mut self, local: u32, member: &mut Member, content: Option<Vec<u8>>) -> Result<(), Errno> {
        let Some(content) = content else { return Ok(()) };
        let set = || MemberSet::of_leaves(local, RangeSet::single(self.leaf));
        let (digest, len) = (|| *blake3::hash(&content).as_bytes(), content.len() as u64);
        let data = match self.how {
            DataAggregation::Zero | DataAggregation::Count => return Ok(()),
            DataAggregation::Concatenate { bytes_max } | DataAggregation::Packed { bytes_max } => {
                Data::Packed(Packed::of(self.leaf, local, content, *bytes_max))
            }
            DataAggregation::Numbers { columns, .. } => {
                Data::Numbers(Numbers::of(self.leaf, local, &content, columns)?)
            }
            DataAggregation::Checksum => Data::class(digest(), len, set(), None),
            DataAggregation::Equal => {
                let data =
                    Data::class(digest(), len, set(), (len <= INLINE_BYTES_MAX).then(|| content.clone()));
                member.body = content;
                data
            }
            DataAggregation::Contents { eager } => {
                let inline = len <= INLINE_BYTES_MAX || *eager == self.leaf;
                let data = Data::class(digest(), len, set(), inline.then(|| content.clone()));
                member.body = content;
                data
            }
            DataAggregation::Lines { .. } => {
                self.add_lines(member, &content);
                return Ok(());
            }
        };
        self.data.merge(data).map_err(|error| error.errno)
    }

    fn add_lines(&mut self, member: &Member, content: &[u8]) {
        use std::os::unix::ffi::OsStrExt;
        let Some(answer) = &mut self.lines else { return };
        answer.path(member.path.as_os_str().as_bytes());
        let text = content.strip_suffix(b"\n").unwrap_or(content);
        if content.is_empty() {
            return;
        }
        for line in text.split(|&byte| byte == b'\n') {
            if answer.entry(entry::Entry::new(EntryKind::Line, line)).is_break() {
                return;
            }
        }
    }

    /// The data; the host's lines are kept in `kept` for those who fetch them.
    fn finish(self, kept: &mut Vec<u8>) -> Data {
        let (Some(lines), &DataAggregation::Lines { eager }) = (self.lines, self.how) else {
            return self.data;
        };
        *kept = lines.into_bytes();
        let len = kept.len() as u64;
        let inline = len <= INLINE_BYTES_MAX || eager == self.leaf;
        let members = MemberSet::of_leaves(0, RangeSet::single(self.leaf));
        Data::class(*blake3::hash(kept).as_bytes(), len, members, inline.then(|| kept.clone()))
    }
}
