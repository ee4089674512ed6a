//! What the kernel asks for.
use super::abi;
use super::calls::said_of;
use super::reply::ReplyAs;
use crate::ids::ShownIds;
use crate::message::{
    FileCaller, FileLock, FileLockKind, NodeMaking, NodeName, NodeOp, ROOT, SetNodeAttributes,
    SetNodeTime,
};
use abi::fuse_opcode as code;
use sheaf_core::Errno;
use sheaf_core::files::Timestamp;
use zerocopy::FromBytes;

/// What a request's last part is of a kernel without its newest extensions: size and flags.
const SETXATTR_BYTES: usize = 8;
/// The kinds of files that a directory's is of.
const DIRECTORY: u32 = 0o040_000;

/// A request, as it came.
pub(super) struct KernelRequest<'a> {
    bytes: &'a [u8],
    head: abi::fuse_in_header,
    rest: &'a [u8],
    root: u64,
}

/// What it asks for.
pub(super) enum KernelAsks<'a> {
    /// Something that the owner does, with these bytes.
    Op { op: NodeOp, data: &'a [u8], how: ReplyAs },
    /// These nodes are not needed any more, so many times each; nobody waits for an answer.
    Forget(Vec<(u64, u64)>),
    /// Whoever waits for an answer to this request is to be let go.
    Interrupt(u64),
    /// It needs neither work nor answer.
    Nothing,
}

/// Takes what is asked for apart.
struct RequestParts<'a>(&'a [u8]);

impl<'a> RequestParts<'a> {
    fn take<T: FromBytes>(&mut self) -> Result<T, Errno> {
        let (part, rest) = T::read_from_prefix(self.0).map_err(|_| Errno::INVAL)?;
        self.0 = rest;
        Ok(part)
    }

    /// What stands before the next NUL.
    fn text(&mut self) -> Result<Vec<u8>, Errno> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
        let text = self.0[..end].to_vec();
        self.0 = &self.0[end + 1..];
        Ok(text)
    }

    fn name(&mut self, parent: u64) -> Result<NodeName, Errno> {
        Ok(NodeName { parent, name: self.text()? })
    }
}

impl<'a> KernelRequest<'a> {
    /// One to a mount whose top directory is this node.
    pub fn parse(bytes: &'a [u8], root: u64) -> Option<Self> {
        let (mut head, rest) = abi::fuse_in_header::read_from_prefix(bytes).ok()?;
        if head.nodeid == ROOT {
            head.nodeid = root;
        }
        Some(Self { bytes, head, rest, root })
    }

    /// The node of a number of the kernel's.
    fn known(&self, node: u64) -> u64 {
        if node == ROOT { self.root } else { node }
    }

    /// All of it.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub fn unique(&self) -> u64 {
        self.head.unique
    }

    pub fn node(&self) -> u64 {
        self.head.nodeid
    }

    pub fn opcode(&self) -> u32 {
        self.head.opcode
    }

    pub fn user(&self) -> u32 {
        self.head.uid
    }

    /// The user and its first group.
    pub fn user_and_group(&self) -> (u32, u32) {
        (self.head.uid, self.head.gid)
    }

    pub fn pid(&self) -> u32 {
        self.head.pid
    }

    /// On whose behalf something is done. What the kernel does not say stands in the list of processes.
    pub fn who(&self, op: &NodeOp, ids: &ShownIds) -> FileCaller {
        let abi::fuse_in_header { uid, gid, pid, .. } = self.head;
        // Root needs no groups to look at what it likes, if it is root there.
        let needs_none = uid == 0 && !op.changes_files() && ids.is_plain();
        let gids = if needs_none { Vec::new() } else { groups_of(pid) };
        ids.caller(FileCaller { uid, gid, gids })
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    pub fn decode(&self) -> Result<KernelAsks<'a>, Errno> {
        let Ok(asked) = code::try_from(self.head.opcode) else { return Err(Errno::NOSYS) };
        let (node, mut parts) = (self.head.nodeid, RequestParts(self.rest));
        let op = match asked {
            code::FUSE_FORGET => {
                let forget: abi::fuse_forget_in = parts.take()?;
                return Ok(KernelAsks::Forget(vec![(node, forget.nlookup)]));
            }
            code::FUSE_BATCH_FORGET => {
                let many: abi::fuse_batch_forget_in = parts.take()?;
                let one = |_| parts.take::<abi::fuse_forget_one>();
                let all =
                    (0..many.count).map(one).map(|one| one.map(|one| (one.nodeid, one.nlookup)));
                return Ok(KernelAsks::Forget(all.collect::<Result<_, _>>()?));
            }
            code::FUSE_INTERRUPT => {
                let of: abi::fuse_interrupt_in = parts.take()?;
                return Ok(KernelAsks::Interrupt(of.unique));
            }
            code::FUSE_DESTROY => return Ok(KernelAsks::Nothing),
            code::FUSE_LOOKUP => (NodeOp::Lookup(parts.name(node)?), ReplyAs::Entry),
            code::FUSE_GETATTR => {
                let wanted: abi::fuse_getattr_in = parts.take()?;
                let handle =
                    (wanted.getattr_flags & abi::FUSE_GETATTR_FH != 0).then_some(wanted.fh);
                (NodeOp::Attributes { node, handle }, ReplyAs::Attributes)
            }
            code::FUSE_SETATTR => (set_attributes(node, &parts.take()?), ReplyAs::Attributes),
            code::FUSE_READLINK => (NodeOp::ReadLink { node }, ReplyAs::Bytes),
            code::FUSE_SYMLINK => {
                let at = parts.name(node)?;
                (NodeOp::Symlink { at, target: parts.text()? }, ReplyAs::Entry)
            }
            code::FUSE_MKNOD => {
                let wanted: abi::fuse_mknod_in = parts.take()?;
                let with = NodeMaking { mode: wanted.mode, umask: wanted.umask };
                let rdev = device_of(wanted.rdev);
                (NodeOp::Make { at: parts.name(node)?, with, rdev }, ReplyAs::Entry)
            }
            code::FUSE_MKDIR => {
                let wanted: abi::fuse_mkdir_in = parts.take()?;
                let with = NodeMaking { mode: wanted.mode | DIRECTORY, umask: wanted.umask };
                (NodeOp::Make { at: parts.name(node)?, with, rdev: 0 }, ReplyAs::Entry)
            }
            code::FUSE_UNLINK => {
                (NodeOp::Remove { at: parts.name(node)?, is_directory: false }, ReplyAs::Done)
            }
            code::FUSE_RMDIR => {
                (NodeOp::Remove { at: parts.name(node)?, is_directory: true }, ReplyAs::Done)
            }
            code::FUSE_RENAME => {
                let wanted: abi::fuse_rename_in = parts.take()?;
                let (from, to) = (parts.name(node)?, parts.name(self.known(wanted.newdir))?);
                (NodeOp::Rename { from, to, flags: 0 }, ReplyAs::Done)
            }
            code::FUSE_RENAME2 => {
                let wanted: abi::fuse_rename2_in = parts.take()?;
                let (from, to) = (parts.name(node)?, parts.name(self.known(wanted.newdir))?);
                (NodeOp::Rename { from, to, flags: wanted.flags }, ReplyAs::Done)
            }
            code::FUSE_LINK => {
                let wanted: abi::fuse_link_in = parts.take()?;
                (NodeOp::Link { node: wanted.oldnodeid, to: parts.name(node)? }, ReplyAs::Entry)
            }
            code::FUSE_OPEN => {
                let wanted: abi::fuse_open_in = parts.take()?;
                (
                    NodeOp::Open { node, flags: wanted.flags },
                    ReplyAs::Opened { is_directory: false },
                )
            }
            code::FUSE_OPENDIR => {
                let wanted: abi::fuse_open_in = parts.take()?;
                let flags = wanted.flags | libc::O_DIRECTORY as u32;
                (NodeOp::Open { node, flags }, ReplyAs::Opened { is_directory: true })
            }
            code::FUSE_CREATE | code::FUSE_TMPFILE => {
                let wanted: abi::fuse_create_in = parts.take()?;
                let with = NodeMaking { mode: wanted.mode, umask: wanted.umask };
                let (flags, parent) = (wanted.flags, node);
                let op = match asked {
                    code::FUSE_CREATE => NodeOp::Create { at: parts.name(node)?, with, flags },
                    _ => NodeOp::Temporary { parent, with, flags },
                };
                (op, ReplyAs::Created)
            }
            code::FUSE_READ => {
                let abi::fuse_read_in { fh, offset, size, read_flags, .. } = parts.take()?;
                // A program's own read names the owner of its locks, and the page cache has none.
                let op = match read_flags & abi::FUSE_READ_LOCKOWNER {
                    0 => NodeOp::ReadPages { handle: fh, offset, size },
                    _ => NodeOp::Read { handle: fh, offset, size },
                };
                (op, ReplyAs::Bytes)
            }
            code::FUSE_WRITE => {
                let abi::fuse_write_in { fh, offset, size, flags, .. } = parts.take()?;
                let data = parts.0.get(..size as usize).ok_or(Errno::INVAL)?;
                let op = NodeOp::Write { handle: fh, offset, flags };
                return Ok(KernelAsks::Op { op, data, how: ReplyAs::Written });
            }
            code::FUSE_FLUSH => {
                let wanted: abi::fuse_flush_in = parts.take()?;
                (NodeOp::Flush { node, handle: wanted.fh, owner: wanted.lock_owner }, ReplyAs::Done)
            }
            code::FUSE_RELEASE | code::FUSE_RELEASEDIR => {
                let wanted: abi::fuse_release_in = parts.take()?;
                let is_locked = wanted.release_flags & abi::FUSE_RELEASE_FLOCK_UNLOCK != 0;
                let owner = is_locked.then_some(wanted.lock_owner);
                (NodeOp::Release { node, handle: wanted.fh, owner }, ReplyAs::Done)
            }
            code::FUSE_FSYNC | code::FUSE_FSYNCDIR => {
                let wanted: abi::fuse_fsync_in = parts.take()?;
                let data_only = wanted.fsync_flags & abi::FUSE_FSYNC_FDATASYNC != 0;
                (NodeOp::Sync { handle: wanted.fh, data_only }, ReplyAs::Done)
            }
            code::FUSE_READDIR | code::FUSE_READDIRPLUS => {
                let abi::fuse_read_in { fh, offset, size, .. } = parts.take()?;
                let with_attributes = asked == code::FUSE_READDIRPLUS;
                let op = NodeOp::ReadDirectory { handle: fh, offset, size, with_attributes };
                (op, ReplyAs::Entries { with_attributes, size: size as usize })
            }
            code::FUSE_STATFS => (NodeOp::FileSystem { node }, ReplyAs::Usage),
            code::FUSE_SETXATTR => {
                let (size, flags): (u32, u32) = (parts.take()?, parts.take()?);
                const { assert!(SETXATTR_BYTES == 2 * size_of::<u32>()) };
                let name = parts.text()?;
                let value = parts.0.get(..size as usize).ok_or(Errno::INVAL)?.to_vec();
                (NodeOp::SetXattr { node, name, value, flags }, ReplyAs::Done)
            }
            code::FUSE_GETXATTR => {
                let abi::fuse_getxattr_in { size, .. } = parts.take()?;
                (NodeOp::GetXattr { node, name: parts.text()?, size }, ReplyAs::Xattr)
            }
            code::FUSE_LISTXATTR => {
                let abi::fuse_getxattr_in { size, .. } = parts.take()?;
                (NodeOp::ListXattr { node, size }, ReplyAs::Xattr)
            }
            code::FUSE_REMOVEXATTR => {
                (NodeOp::RemoveXattr { node, name: parts.text()? }, ReplyAs::Done)
            }
            code::FUSE_ACCESS => {
                let wanted: abi::fuse_access_in = parts.take()?;
                (NodeOp::Access { node, mask: wanted.mask }, ReplyAs::Done)
            }
            code::FUSE_GETLK => {
                let (handle, lock) = lock_of(&parts.take()?)?;
                (NodeOp::TestLock { handle, lock }, ReplyAs::Lock)
            }
            code::FUSE_SETLK | code::FUSE_SETLKW => {
                let (handle, lock) = lock_of(&parts.take()?)?;
                let waits = asked == code::FUSE_SETLKW;
                (NodeOp::SetLock { node, handle, lock, waits, wants_file: false }, ReplyAs::Done)
            }
            code::FUSE_FALLOCATE => {
                let abi::fuse_fallocate_in { fh, offset, length, mode, .. } = parts.take()?;
                (NodeOp::Allocate { handle: fh, mode, offset, length }, ReplyAs::Done)
            }
            code::FUSE_LSEEK => {
                let abi::fuse_lseek_in { fh, offset, whence, .. } = parts.take()?;
                (NodeOp::Seek { handle: fh, offset, whence }, ReplyAs::Offset)
            }
            code::FUSE_COPY_FILE_RANGE => {
                let wanted: abi::fuse_copy_file_range_in = parts.take()?;
                let from = (wanted.fh_in, wanted.off_in);
                let to = (wanted.fh_out, wanted.off_out);
                (NodeOp::Copy { from, to, length: wanted.len }, ReplyAs::Written)
            }
            code::FUSE_IOCTL => return Err(Errno::NOTTY),
            _ => return Err(Errno::NOSYS),
        };
        Ok(KernelAsks::Op { op: op.0, data: &[], how: op.1 })
    }
}

fn set_attributes(node: u64, wanted: &abi::fuse_setattr_in) -> NodeOp {
    let has = |what: u32| wanted.valid & what != 0;
    let time = |is_set: u32, is_now: u32, seconds: u64, nanoseconds: u32| {
        let at = Timestamp { seconds: seconds.cast_signed(), nanoseconds };
        match () {
            () if has(is_now) => Some(SetNodeTime::Now),
            () => has(is_set).then_some(SetNodeTime::At(at)),
        }
    };
    let (atime, mtime) = (
        time(abi::FATTR_ATIME, abi::FATTR_ATIME_NOW, wanted.atime, wanted.atimensec),
        time(abi::FATTR_MTIME, abi::FATTR_MTIME_NOW, wanted.mtime, wanted.mtimensec),
    );
    let set = SetNodeAttributes {
        mode: has(abi::FATTR_MODE).then_some(wanted.mode),
        uid: has(abi::FATTR_UID).then_some(wanted.uid),
        gid: has(abi::FATTR_GID).then_some(wanted.gid),
        size: has(abi::FATTR_SIZE).then_some(wanted.size),
        atime,
        mtime,
    };
    NodeOp::SetAttributes { node, handle: has(abi::FATTR_FH).then_some(wanted.fh), set }
}

fn lock_of(wanted: &abi::fuse_lk_in) -> Result<(u64, FileLock), Errno> {
    let abi::fuse_file_lock { start, end, type_, pid } = wanted.lk;
    let is_whole = wanted.lk_flags & abi::FUSE_LK_FLOCK != 0;
    let (owner, kind) = (wanted.owner, lock_kind(type_)?);
    Ok((wanted.fh, FileLock { owner, range: (start, end), kind, pid, is_whole }))
}

/// The groups of a process beside its first; none where the system does not show it.
fn groups_of(pid: u32) -> Vec<u32> {
    let status = said_of(pid, "status");
    // Whoever has none gets less.
    status.map(|status| groups_in(&status)).unwrap_or_default()
}

/// The groups in a process's status, in which the name of the process may be any bytes but a line's end.
fn groups_in(status: &[u8]) -> Vec<u32> {
    let mut lines = status.split(|byte| *byte == b'\n');
    let groups = lines.find_map(|line| line.strip_prefix(b"Groups:")).unwrap_or_default();
    let groups = str::from_utf8(groups).unwrap_or_default();
    groups.split_ascii_whitespace().filter_map(|group| group.parse().ok()).collect()
}

/// A lock of the protocol's.
fn lock_kind(kind: u32) -> Result<FileLockKind, Errno> {
    match i32::try_from(kind) {
        Ok(libc::F_RDLCK) => Ok(FileLockKind::Shared),
        Ok(libc::F_WRLCK) => Ok(FileLockKind::Exclusive),
        Ok(libc::F_UNLCK) => Ok(FileLockKind::None),
        _ => Err(Errno::INVAL),
    }
}

/// A device by what the protocol has for its numbers.
fn device_of(number: u32) -> u64 {
    rustix::fs::makedev((number >> 8) & 0xfff, (number & 0xff) | ((number >> 12) & 0xf_ff00))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_of_processes_of_any_name() {
        let status = b"Name:\tGroups: 7 \xff\\n\nUmask:\t0022\nGroups:\t4 24 1000 \nNSpid:\t9\n";
        assert_eq!(groups_in(status), [4, 24, 1000]);
        assert!(groups_in(b"Groups:\t \n").is_empty());
        assert!(groups_in(b"").is_empty());
    }
}
