//! Data that are longer than what is held in memory: each file is read from its host when its turn comes, as far as it
//! was long when all were opened.
use super::contents::{by_members, errno_of};
use super::system;
use crate::message::FileAnswer;
use rustix::fs::OFlags;
use sheaf_core::{Errno, RangeSet};
use sheaf_group::flags::{O_BESTEFFORT, O_PARTIAL, O_READY};
use sheaf_group::message::{DataAggregation, OpenMessage};
use sheaf_group::{Client, Group, GroupError, Outcome, Target, Value};
use tokio::sync::Mutex;

/// What is read at once of a file that does not say how long it is (`/proc`), and the most that it may have.
const UNSIZED_BYTES_MAX: u64 = 1 << 20;

/// All files of a group behind one another.
pub(crate) struct StreamedData {
    client: Client,
    members: Vec<StreamedMember>,
    /// What stands where they would end, if they are not all.
    end: Option<Errno>,
    /// The file that was read last, and which one it is.
    open: Mutex<Option<(usize, Group)>>,
}

struct StreamedMember {
    leaf: u32,
    path: String,
    /// Device and inode, by which it is known again.
    id: (u64, u64),
    start: u64,
    size: u64,
    /// What a file that does not say how long it is had when all were opened.
    content: Option<Vec<u8>>,
}

impl StreamedData {
    /// Looks what there is, beside what is known to be missing; and who has failed.
    pub async fn open(
        client: &Client,
        targets: &[Target],
        missing: &Outcome,
    ) -> Result<(Self, Outcome), GroupError> {
        let (mut members, mut outcome) = (Vec::new(), Outcome::default());
        for (hosts, paths) in by_members(targets) {
            let group = match open(client, &hosts, paths).await {
                Ok(group) => group,
                Err(GroupError::Members(failed)) => {
                    outcome.merge(*failed);
                    continue;
                }
                Err(error) => return Err(error),
            };
            outcome.merge(group.opened().clone());
            let (names, stats) = (group.paths().await?, group.fstat().await?);
            for (index, stat) in stats {
                let place = usize::try_from(index).ok().and_then(|index| names.get(index));
                let (leaf, path) = place.ok_or(GroupError::Protocol)?;
                let path = String::from_utf8(path.clone()).map_err(|_| GroupError::Protocol)?;
                members.push(StreamedMember {
                    leaf: *leaf,
                    path: sheaf_file::literal(&path),
                    id: (stat.dev, stat.ino),
                    start: 0,
                    size: stat.size,
                    content: None,
                });
            }
            group.close().await?;
        }
        let mut start = 0;
        for member in &mut members {
            if member.size == 0 {
                let group = member.open(client).await?;
                let content = read(client, &group, 0, UNSIZED_BYTES_MAX).await?;
                group.close().await?;
                member.size = content.len() as u64;
                member.content = Some(content);
            }
            member.start = start;
            start += member.size;
        }
        let is_whole = outcome.is_ok() && missing.is_ok();
        let end = (!is_whole).then_some(Errno::IO);
        if members.is_empty() && end.is_some() {
            return Err(GroupError::Members(Box::new(outcome)));
        }
        let (client, open) = (client.clone(), Mutex::default());
        Ok((Self { client, members, end, open }, outcome))
    }

    /// Bytes of one file at most.
    pub async fn read(
        &self,
        offset: u64,
        size: u32,
        out: &mut Vec<u8>,
    ) -> Result<FileAnswer, Errno> {
        let is_before = |member: &StreamedMember| member.start + member.size <= offset;
        let at = self.members.partition_point(is_before);
        let Some(member) = self.members.get(at) else {
            return self.end.map_or(Ok(FileAnswer::Bytes), Err);
        };
        let within = offset - member.start;
        let count = (member.size - within).min(size.into());
        if let Some(content) = &member.content {
            let from = usize::try_from(within).map_err(|_| Errno::INVAL)?;
            out.extend_from_slice(&content[from..from + count as usize]);
            return Ok(FileAnswer::Bytes);
        }
        let mut open = self.open.lock().await;
        let is_open = open.as_ref().is_some_and(|(of, _)| *of == at);
        if !is_open {
            if let Some((_, group)) = open.take() {
                group.close().await.map_err(|error| errno_of_group(&error))?;
            }
            let group = member.open(&self.client).await.map_err(|error| errno_of_group(&error))?;
            *open = Some((at, group));
        }
        let Some((_, group)) = &*open else { return Err(Errno::IO) };
        let bytes = read(&self.client, group, within, count).await;
        let bytes = bytes.map_err(|error| errno_of_group(&error))?;
        // It is shorter than it was.
        if bytes.is_empty() {
            return Err(Errno::IO);
        }
        out.extend_from_slice(&bytes);
        Ok(FileAnswer::Bytes)
    }
}

impl StreamedMember {
    /// Opens it, if it is the file that it was.
    async fn open(&self, client: &Client) -> Result<Group, GroupError> {
        let group = open(client, &RangeSet::single(self.leaf), vec![self.path.clone()]).await?;
        match &group.fstat().await?[..] {
            [(_, stat)] if (stat.dev, stat.ino) == self.id => Ok(group),
            _ => Err(GroupError::UnknownMember(self.path.clone())),
        }
    }
}

async fn open(client: &Client, hosts: &RangeSet, paths: Vec<String>) -> Result<Group, GroupError> {
    let flags = OFlags::RDONLY.bits() | O_BESTEFFORT | O_PARTIAL | O_READY;
    client.gopen_with(hosts, OpenMessage::new(paths, flags, 0)).await
}

/// Bytes of the one member of a group.
async fn read(
    client: &Client,
    group: &Group,
    offset: u64,
    count: u64,
) -> Result<Vec<u8>, GroupError> {
    let data = DataAggregation::Concatenate { bytes_max: client.limits().bytes_max.max(count) };
    let reading = group.pread(count, offset, data).await?;
    if !reading.outcome.is_ok() {
        return Err(GroupError::Members(Box::new(reading.outcome)));
    }
    match reading.value {
        Value::Concatenated(mut bytes) => {
            bytes.truncate(usize::try_from(reading.status).unwrap_or(0));
            Ok(bytes)
        }
        _ => Ok(Vec::new()),
    }
}

/// What programs are told.
pub(super) fn errno_of_group(error: &GroupError) -> Errno {
    match error {
        GroupError::Members(outcome) => errno_of(outcome),
        // Another file has its name.
        GroupError::UnknownMember(_) => Errno::IO,
        error => system(error.errno()),
    }
}
