//! One operation on each of a host's members, and its answer.
use super::group::{ServerGroup, ServerMember, error};
use super::transfer;
use crate::aggregate::{Data, NumberChoice, Numbers, Packed, Partial};
use crate::entry::{Answer, AnswerForm, Entry, EntryKind, Sink};
use crate::message::{DataAggregation, INLINE_BYTES_MAX, Operation, READ_BYTES_MAX, Whence};
use crate::observed;
use crate::stat::Stat;
use crate::tool::Host;
use bytes::Bytes;
use rustix::fs::{Gid, Mode, Uid};
use sheaf_core::observer::{self, Begun, Ending, Layer};
use sheaf_core::{Errno, MemberSet, RangeSet};
use sheaf_tree::service::share::Holding;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

/// Status and content of one member.
type OperateOutcome = Result<(u64, Option<Vec<u8>>), Errno>;

/// Does `operation` on every member in turn.
pub(super) fn operate(
    group: &mut ServerGroup,
    operation: &Operation,
    input: &Bytes,
    host: &Host,
) -> Result<Partial, Errno> {
    let mut partial = Partial::default();
    let mut lift = Lift::new(data_of(operation), host.leaf);
    let work = OperationWork { operation, input, is_direct: group.is_direct };
    for (local, member) in group.members.iter_mut().enumerate() {
        member.before = None;
        let outcome = match host.stopped() {
            // Then the whole host is silent.
            Some(Errno::CANCELED) => return Err(Errno::CANCELED),
            Some(errno) => Err(errno),
            None => one(member, local as u32, &work, (&mut lift, &mut group.held)),
        };
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
    group.recount();
    Ok(partial)
}

/// The operation on one member. A read that fails, also because of what was read, leaves the offset
/// where it was.
fn one(
    member: &mut ServerMember,
    local: u32,
    work: &OperationWork<'_>,
    (lift, held): (&mut Lift<'_>, &mut Holding),
) -> Result<u64, Errno> {
    if let Operation::Read { .. } = work.operation {
        // A pipe has none.
        member.before = member.open.file.stream_position().ok();
    }
    let observed = observer::observe(|| Begun {
        name: member.path.as_os_str().as_bytes(),
        ..observed::begun(work.operation, Layer::File, work.input)
    });
    let performed = work.perform(&mut member.open.file);
    observed.end(|| match &performed {
        Ok((status, _)) => Ending::done(observed::bytes(work.operation, *status)),
        Err(errno) => Ending::failed(*errno),
    });
    let outcome = performed.and_then(|(status, content)| {
        if lift.keeps_content() {
            held.add(0, content.as_ref().map_or(0, Vec::len))?;
        }
        lift.member(local, member, content)?;
        Ok(status)
    });
    if outcome.is_err() {
        unread(member)?;
    }
    outcome
}

/// Takes back the read just before.
fn unread(member: &mut ServerMember) -> Result<(), Errno> {
    if let Some(before) = member.before.take() {
        member.open.file.seek(SeekFrom::Start(before))?;
    }
    Ok(())
}

/// Takes back the read just before on every member, because the answer of all is refused.
pub(super) fn unread_all(group: &mut ServerGroup) -> Partial {
    for member in group.members.iter_mut().filter(|member| member.before.is_some()) {
        member.status = unread(member).map_or_else(Errno::status, |()| Errno::MSGSIZE.status());
    }
    Partial::default()
}

fn data_of(operation: &Operation) -> &DataAggregation {
    match operation {
        Operation::Read { data, .. }
        | Operation::Pread { data, .. }
        | Operation::Fstat { data } => data,
        _ => &DataAggregation::Zero,
    }
}

/// What every member is to do.
struct OperationWork<'a> {
    operation: &'a Operation,
    input: &'a [u8],
    is_direct: bool,
}

impl OperationWork<'_> {
    fn perform(&self, file: &mut File) -> OperateOutcome {
        let done = |result: rustix::io::Result<()>| result.map(|()| (0, None)).map_err(Errno::from);
        match self.operation {
            Operation::Read { count, .. } => self.read(*count, |buffer, _| file.read(buffer)),
            Operation::Pread { count, offset, .. } => {
                self.read(*count, |buffer, done| file.read_at(buffer, offset.saturating_add(done)))
            }
            Operation::Write => self.write(|input| file.write(input)),
            Operation::Pwrite { offset } => self.write(|input| file.write_at(input, *offset)),
            Operation::WriteAll => self.write_all(|input, _| file.write(input)),
            Operation::PwriteAll { offset } => {
                self.write_all(|input, done| file.write_at(input, offset.saturating_add(done)))
            }
            Operation::Lseek { offset, whence } => Ok((seek(file, *offset, *whence)?, None)),
            Operation::Fstat { .. } => {
                let stat = Stat::of(&file.metadata()?);
                Ok((0, Some(stat.to_bytes())))
            }
            Operation::Ftruncate { length } => done(rustix::fs::ftruncate(&*file, *length)),
            Operation::Fsync => done(rustix::fs::fsync(&*file)),
            Operation::Fdatasync => done(rustix::fs::fdatasync(&*file)),
            Operation::Fchmod { mode } => {
                done(rustix::fs::fchmod(&*file, Mode::from_raw_mode(*mode)))
            }
            Operation::Fchown { uid, gid } => {
                let wanted = |id: u32| (id != u32::MAX).then_some(id);
                let (uid, gid) = (wanted(*uid).map(Uid::from_raw), wanted(*gid).map(Gid::from_raw));
                done(rustix::fs::fchown(&*file, uid, gid))
            }
        }
    }

    /// Reads until `count` bytes are there or the file ends, with one call at least.
    fn read(
        &self,
        count: u64,
        read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
    ) -> OperateOutcome {
        if count > READ_BYTES_MAX {
            return Err(Errno::MSGSIZE);
        }
        let content = if self.is_direct {
            transfer::read_direct(count as usize, read)
        } else {
            transfer::read_up_to(count as usize, read)
        }?;
        Ok((content.len() as u64, Some(content)))
    }

    /// One write, which may be of a part.
    fn write(&self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> OperateOutcome {
        let written = if self.is_direct {
            transfer::write_direct(self.input, write)
        } else {
            transfer::again(|| write(self.input))
        }?;
        Ok((written as u64, None))
    }

    fn write_all(&self, mut write: impl FnMut(&[u8], u64) -> io::Result<usize>) -> OperateOutcome {
        let mut done = 0;
        loop {
            let rest = &self.input[done..];
            let write = |bytes: &[u8]| write(bytes, done as u64);
            let written = OperationWork { input: rest, ..*self }.write(write)?.0 as usize;
            done += written;
            if done == self.input.len() {
                return Ok((done as u64, None));
            } else if written == 0 {
                return Err(Errno::IO);
            }
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

/// Turns the contents of one host's members into the data of its partial.
struct Lift<'a> {
    how: &'a DataAggregation,
    leaf: u32,
    data: Data,
    lines: Option<Answer>,
    /// Which numbers are wanted.
    numbers: Result<NumberChoice<'a>, Errno>,
}

impl<'a> Lift<'a> {
    fn new(how: &'a DataAggregation, leaf: u32) -> Self {
        let lines = matches!(how, DataAggregation::Lines { .. })
            .then(|| Answer::new(AnswerForm::default()));
        let numbers = match how {
            DataAggregation::Numbers { columns, lines, labels, .. } => {
                NumberChoice::new(columns, lines.as_deref(), *labels)
            }
            _ => Ok(NumberChoice::default()),
        };
        Self { how, leaf, data: Data::None, lines, numbers }
    }

    /// Whether the answer holds what was read, or it is kept to be fetched.
    fn keeps_content(&self) -> bool {
        use DataAggregation::{Checksum, Count, Numbers, Zero};
        !matches!(self.how, Zero | Count | Checksum | Numbers { .. })
    }

    fn member(
        &mut self,
        local: u32,
        member: &mut ServerMember,
        content: Option<Vec<u8>>,
    ) -> Result<(), Errno> {
        let Some(content) = content else { return Ok(()) };
        let set = || MemberSet::of_leaves(local, RangeSet::single(self.leaf));
        let (digest, len) = (|| *blake3::hash(&content).as_bytes(), content.len() as u64);
        let data = match self.how {
            DataAggregation::Zero | DataAggregation::Count => return Ok(()),
            DataAggregation::Concatenate { bytes_max } | DataAggregation::Packed { bytes_max } => {
                Data::Packed(Packed::of(self.leaf, local, content, *bytes_max))
            }
            DataAggregation::Numbers { .. } => {
                let choice = self.numbers.as_ref().map_err(|errno| *errno)?;
                Data::Numbers(Numbers::of(self.leaf, local, &content, choice)?)
            }
            DataAggregation::Checksum => Data::class(digest(), len, set(), None),
            DataAggregation::Equal => {
                let data = Data::class(
                    digest(),
                    len,
                    set(),
                    (len <= INLINE_BYTES_MAX).then(|| content.clone()),
                );
                member.body = content;
                data
            }
            DataAggregation::Contents { eager } => {
                let inline = len <= INLINE_BYTES_MAX || *eager == self.leaf;
                let data = Data::class(digest(), len, set(), inline.then(|| content.clone()));
                member.body = content;
                data
            }
            DataAggregation::Lines { digests, .. } => {
                return self.add_lines(member, &content, *digests);
            }
        };
        self.data.merge(data).map_err(|error| error.errno)
    }

    fn add_lines(
        &mut self,
        member: &ServerMember,
        content: &[u8],
        digests: bool,
    ) -> Result<(), Errno> {
        let Some(answer) = self.lines.as_mut().filter(|_| !content.is_empty()) else {
            return Ok(());
        };
        let text = content.strip_suffix(b"\n").unwrap_or(content);
        let lines = || text.split(|&byte| byte == b'\n');
        answer.lines(member.path.as_os_str().as_bytes(), lines())?;
        if digests {
            let (whole, set) = (blake3::hash(content), digest_of_set(lines().collect()));
            let both = [&whole.as_bytes()[..16], &set.as_bytes()[..16]].concat();
            // An answer that has no room for it lacks a remark alone.
            let _ = answer.entry(Entry::new(EntryKind::Path, &both));
        }
        Ok(())
    }

    /// The data; the host's lines are kept in `kept` for those who fetch them.
    fn finish(self, kept: &mut Vec<u8>) -> Data {
        let (Some(lines), &DataAggregation::Lines { eager, .. }) = (self.lines, self.how) else {
            return self.data;
        };
        *kept = lines.into_bytes();
        let len = kept.len() as u64;
        let inline = len <= INLINE_BYTES_MAX || eager == self.leaf;
        let members = MemberSet::of_leaves(0, RangeSet::single(self.leaf));
        Data::class(*blake3::hash(kept).as_bytes(), len, members, inline.then(|| kept.clone()))
    }
}

/// The digest of these lines, whatever their order and however often each occurs.
fn digest_of_set(mut lines: Vec<&[u8]>) -> blake3::Hash {
    lines.sort_unstable();
    lines.dedup();
    let mut hasher = blake3::Hasher::new();
    for line in lines {
        hasher.update(&(line.len() as u64).to_le_bytes()).update(line);
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{OpenMessage, Request};
    use crate::server::group;
    use crate::tool::AskedTool;
    use std::sync::Arc;

    /// Nobody waits any more, because of this.
    struct Stopped(Errno);

    impl AskedTool for Stopped {
        fn stopped(&self) -> Option<Errno> {
            Some(self.0)
        }

        fn is_late(&self) -> bool {
            self.0 == Errno::TIMEDOUT
        }
    }

    #[test]
    fn members_that_were_not_reached_in_time_are_late() {
        let dir = tempfile::tempdir().unwrap();
        ["a", "b"].iter().for_each(|name| std::fs::write(dir.path().join(name), name).unwrap());
        let host = Host::new("n1", 0, sheaf_file::Export::open(dir.path()).unwrap());
        let open = OpenMessage::new(vec!["/*".into()], 2, 0);
        let (mut place, nothing) = (None, Bytes::new());
        let request = Request::Open { open, then: None, close: false };
        group::serve(&mut place, request, &nothing, 0, &host).unwrap();
        let group = place.as_mut().unwrap();

        let late = host.for_request(Arc::new(Stopped(Errno::TIMEDOUT)));
        let partial =
            operate(group, &Operation::Write, &Bytes::from_static(b"new"), &late).unwrap();
        let failed: Vec<_> =
            partial.errors.iter().map(|error| (error.errno, &error.path[..])).collect();
        assert_eq!(failed, [(Errno::TIMEDOUT, "/a"), (Errno::TIMEDOUT, "/b")]);
        assert_eq!(group.members[1].status, Errno::TIMEDOUT.status());
        // A host that was interrupted says nothing.
        let interrupted = host.for_request(Arc::new(Stopped(Errno::CANCELED)));
        assert_eq!(operate(group, &Operation::Write, &nothing, &interrupted), Err(Errno::CANCELED));
        assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"a");
    }
}
