//! What one client has asked for: its nodes, open files and locks, and all that can be done with them.
use super::files::{OwnerFile, one_more};
use super::grace::Grace;
use super::interrupt;
use super::lending::{Lending, OwnerLoans};
use super::links::{ShowRule, place};
use super::locks::Locks;
use super::nodes::{self, KnownNodes, Served, path_of, status};
use super::submounts::{SubMounts, mounts_below};
use crate::message::{
    FileAnswer, FileClient, FileSystemUsage, Loan, NodeAttributes, NodeEntry, NodeMaking, NodeName,
    NodeOp, SetNodeAttributes, SetNodeTime, SubMountEnd, relies_on_size,
};
use rustc_hash::FxHashMap;
use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RawDir, RenameFlags,
    SeekFrom, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use sheaf_core::files::{FileKind, Timestamp};
use sheaf_core::{Errno, lock};
use sheaf_file::{outlasting_leases, unless_itself};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;

/// Bytes that are read, or of a directory's entries, at once at most.
pub(super) const READ_BYTES_MAX: u32 = 1 << 20;
/// Bytes of one look into a directory.
const LIST_BYTES: usize = 32 << 10;
/// What an entry takes beside its name, as a kernel counts it, and with its attributes.
const ENTRY_BYTES: usize = 24;
const ENTRY_PLUS_BYTES: usize = 152;
/// The set-user-ID and the set-group-ID bit.
const SET_ID_BITS: u32 = 0o6000;
/// What a program that opens a file to run it says in its flags.
const OPENED_TO_RUN: u32 = 0x20;

/// One mount somewhere.
pub(super) struct OwnerClient {
    /// What it has said when it came.
    pub(super) joined: FileClient,
    pub(super) nodes: KnownNodes,
    pub(super) shows: ShowRule,
    pub(super) locks: Locks,
    /// When locks are claimed.
    pub(super) grace: Arc<Mutex<Grace>>,
    pub loans: OwnerLoans,
    pub sub_mounts: SubMounts,
    pub(super) handles: Mutex<FxHashMap<u64, Arc<OwnerFile>>>,
    last: AtomicU64,
}

impl OwnerClient {
    /// Whose files are lent, if that can be done.
    ///
    /// # Errors
    /// Those of `open(2)` of the directory at the top of its mounts.
    pub fn new(
        served: Arc<Served>,
        lends: Option<Handle>,
        client: FileClient,
        grace: Arc<Mutex<Grace>>,
    ) -> Result<Self, Errno> {
        let joined = client.clone();
        let FileClient { links_within, top, has_devices, .. } = client;
        let (locks, handles) = (Locks::new(served.locks.clone()), Mutex::default());
        // Numbers that were given before, by a server that is gone, are those of no other file here.
        let last = AtomicU64::new(RandomState::new().build_hasher().finish());
        let loans = OwnerLoans::new(lends);
        let nodes = KnownNodes::new(served, &top)?;
        let shows = ShowRule { links_within, has_devices };
        let sub_mounts = SubMounts::default();
        Ok(Self { joined, nodes, shows, locks, grace, loans, sub_mounts, handles, last })
    }

    /// File systems that are to be mounted in the view, and where.
    pub async fn mounts(&self, done: &[(u64, SubMountEnd)], wait: Duration) -> Vec<(u64, Vec<u8>)> {
        let wanted = self.sub_mounts.take(done, wait).await;
        wanted
            .into_iter()
            .map(|node| (node, place(&self.nodes, node).unwrap_or_default()))
            .collect()
    }

    /// Looks what is wanted back, and lets go what nobody uses: now and then.
    pub fn rest(&self) {
        self.loans.look();
        self.nodes.rest();
    }

    /// Does what is asked, as whoever this thread works for. What is read is put behind `out`.
    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    pub fn answer(&self, op: NodeOp, data: &[u8], out: &mut Vec<u8>) -> Result<FileAnswer, Errno> {
        match op {
            NodeOp::Join(_) => Ok(FileAnswer::Done),
            NodeOp::Lookup(at) => self.look_up(&at).map(FileAnswer::Node),
            NodeOp::Walk { node, names } => self.walk(node, names).map(FileAnswer::Walked),
            NodeOp::Forget(nodes) => {
                self.forget(&nodes);
                Ok(FileAnswer::Done)
            }
            NodeOp::Attributes { node, handle } => {
                self.attributes(node, handle).map(FileAnswer::Node)
            }
            NodeOp::SetAttributes { node, handle, set } => {
                self.set_attributes(node, handle, &set)?;
                self.attributes(node, handle).map(FileAnswer::Node)
            }
            NodeOp::ReadLink { node } => {
                out.extend(self.shows.read(&self.nodes, node)?);
                Ok(FileAnswer::Bytes)
            }
            NodeOp::Make { at, with, rdev } => self.make(&at, with, rdev).map(FileAnswer::Node),
            NodeOp::Symlink { at, target } => {
                let parent = self.parent(&at)?;
                rustix::fs::symlinkat(&*target, &*parent, &*at.name)?;
                self.look_up(&at).map(FileAnswer::Node)
            }
            NodeOp::Remove { at, is_directory } => {
                let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                let parent = self.parent(&at)?;
                done(rustix::fs::unlinkat(&*parent, &*at.name, flags))
            }
            NodeOp::Rename { from, to, flags } => {
                let (old, new) = (self.parent(&from)?, self.parent(&to)?);
                let flags = RenameFlags::from_bits_retain(flags);
                done(rustix::fs::renameat_with(&*old, &*from.name, &*new, &*to.name, flags))
            }
            NodeOp::Link { node, to } => {
                let (fd, parent) = (self.nodes.fd(node)?, self.parent(&to)?);
                let follow = AtFlags::SYMLINK_FOLLOW;
                rustix::fs::linkat(CWD, path_of(&*fd), &*parent, &*to.name, follow)?;
                // The name may be gone again, or another file's: what was linked is known without it.
                let again = rustix::io::fcntl_dupfd_cloexec(&*fd, 0)?;
                let found = self.nodes.found(again, to.parent, &to.name)?;
                Ok(FileAnswer::Node(self.shows.shown(&self.nodes, found)))
            }
            NodeOp::Open { node, flags } => {
                let handle = self.open(node, flags)?;
                let open = self.handle(handle)?;
                Ok(match open.closes_when_flushed() {
                    true => FileAnswer::OpenedRunnable(handle),
                    false if relies_on_size(flags) => {
                        FileAnswer::OpenedSized(handle, status(open.file().as_fd())?.size)
                    }
                    false => FileAnswer::Opened(handle),
                })
            }
            NodeOp::OpenLent { node, flags, ahead } => {
                let handle = self.open(node, flags)?;
                let lent = self.read_lent(handle, 0, 0, ahead, out);
                match (lent, self.attributes(node, Some(handle))) {
                    // Whoever would change its content since waits for the loan.
                    (Ok(FileAnswer::Lent(loan)), Ok(found)) => {
                        Ok(FileAnswer::OpenedLent(handle, loan, found))
                    }
                    // It is open all the same; why it cannot be read hears who reads it.
                    _ => Ok(FileAnswer::Opened(handle)),
                }
            }
            NodeOp::ReadLent { handle, offset, size, ahead } => {
                self.read_lent(handle, offset, size, ahead, out)
            }
            NodeOp::Create { at, with, flags } => self.create(&at, with, flags),
            NodeOp::Temporary { parent, with, flags } => self.temporary(parent, with, flags),
            NodeOp::Read { handle, offset, size } => self.read(handle, offset, size, out),
            NodeOp::ReadPages { handle, offset, size } => {
                self.read_pages(handle, offset, size, out)
            }
            NodeOp::Write { handle, offset, flags } => {
                self.write((handle, offset, flags), data).map(FileAnswer::Count)
            }
            NodeOp::WriteLent { handle, offset, flags } => {
                self.write_lent((handle, offset, flags), data)
            }
            NodeOp::WriteBehind { handle, offset, flags } => {
                self.write_behind((handle, offset, flags), data)
            }
            NodeOp::Flush { node, handle, owner } => {
                self.locks.free(node, owner, false);
                self.loans.written(handle);
                done(self.handle(handle)?.flushed(&self.nodes))
            }
            NodeOp::Release { node, handle, owner } => self.release((node, handle), owner),
            NodeOp::Sync { handle, data_only } => {
                let handle = self.handle(handle)?;
                done(match data_only {
                    true => rustix::fs::fdatasync(&*handle.file()),
                    false => rustix::fs::fsync(&*handle.file()),
                })
            }
            NodeOp::ReadDirectory { handle, offset, size, with_attributes } => {
                let handle = self.handle(handle)?;
                self.list(&handle, offset, size, with_attributes).map(FileAnswer::Entries)
            }
            NodeOp::Names { node, size } => self.names(node, size).map(FileAnswer::Entries),
            NodeOp::FileSystem { node } => self.usage(node).map(FileAnswer::Usage),
            NodeOp::Access { node, mask } => {
                let (fd, flags) = (self.nodes.fd_to_look(node)?, AtFlags::EACCESS);
                let mask = Access::from_bits_retain(mask);
                done(rustix::fs::accessat(CWD, path_of(&*fd), mask, flags))
            }
            op @ (NodeOp::TestLock { .. }
            | NodeOp::SetLock { .. }
            | NodeOp::ReclaimLock { .. }
            | NodeOp::KeepLocks
            | NodeOp::LoseFiles) => self.answer_of_locks(op),
            NodeOp::MountsBelow { node } => {
                out.extend(mounts_below(&self.nodes, node)?);
                Ok(FileAnswer::Bytes)
            }
            NodeOp::MountWanted { node } => Ok(FileAnswer::Count(self.sub_mounts.want(node))),
            NodeOp::EndWait { owner } => {
                self.locks.end_wait(owner);
                Ok(FileAnswer::Done)
            }
            NodeOp::Allocate { handle, mode, offset, length } => {
                let (handle, mode) = (self.handle(handle)?, FallocateFlags::from_bits_retain(mode));
                let file = self.to_write(&handle)?;
                done(
                    self.changing(&*file, None, || {
                        rustix::fs::fallocate(&*file, mode, offset, length)
                    }),
                )
            }
            NodeOp::Seek { handle, offset, whence } => {
                let handle = self.handle(handle)?;
                let to = match i32::try_from(whence) {
                    Ok(libc::SEEK_DATA) => SeekFrom::Data(offset),
                    Ok(libc::SEEK_HOLE) => SeekFrom::Hole(offset),
                    _ => return Err(Errno::INVAL),
                };
                Ok(FileAnswer::Count(rustix::fs::seek(&*handle.file(), to)?))
            }
            NodeOp::Copy { from, to, length } => {
                let (source, target) = (self.handle(from.0)?, self.handle(to.0)?);
                let (mut at, mut there) = (from.1, to.1);
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let (source, target) = (source.file(), self.to_write(&target)?);
                let (at, there) = (Some(&mut at), Some(&mut there));
                count(self.changing(&*target, None, || {
                    rustix::fs::copy_file_range(&*source, at, &*target, there, length)
                }))
            }
            op => self.xattr(op, out),
        }
    }

    pub(super) fn parent(&self, at: &NodeName) -> Result<Arc<OwnedFd>, Errno> {
        nodes::check(&at.name)?;
        self.nodes.fd(at.parent)
    }

    pub(super) fn handle(&self, handle: u64) -> Result<Arc<OwnerFile>, Errno> {
        // One of a server that is not there any more.
        let handle = lock(&self.handles).get(&handle).cloned().ok_or(Errno::IO)?;
        self.nodes.enter(handle.node)?;
        Ok(handle)
    }

    /// An open file, for a change of its content.
    pub(super) fn to_write(&self, open: &OwnerFile) -> Result<Arc<OwnedFd>, Errno> {
        open.to_write(&self.nodes)
    }

    /// Keeps an open file.
    fn keep(&self, open: OwnerFile) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.nodes.is_open(open.node, &open.file());
        lock(&self.handles).insert(number, Arc::new(open));
        number
    }

    /// The same, and the client is told of its size if its kernel relies on it.
    fn keep_watched(&self, open: OwnerFile, flags: u32) -> Result<u64, Errno> {
        let handle = self.keep(open);
        if relies_on_size(flags) {
            self.watch(handle, &self.handle(handle)?.file(), false)?;
        }
        Ok(handle)
    }

    pub(super) fn attributes(
        &self,
        node: u64,
        handle: Option<u64>,
    ) -> Result<NodeAttributes, Errno> {
        let file = match handle.map(|handle| self.handle(handle)).transpose()? {
            Some(handle) => handle.file(),
            None => self.nodes.fd_to_look(node)?,
        };
        let found = status(file.as_fd())?;
        let (has_list, has_xattrs) = nodes::has_xattrs(file.as_fd(), found.kind);
        let found = self.nodes.attributes(node, &found);
        let found = NodeAttributes { has_list, has_xattrs, ..found };
        Ok(self.shows.shown(&self.nodes, found))
    }

    fn set_attributes(
        &self,
        node: u64,
        handle: Option<u64>,
        set: &SetNodeAttributes,
    ) -> Result<(), Errno> {
        let handle = handle.map(|handle| self.handle(handle)).transpose()?;
        let fd = match &handle {
            Some(_) => None,
            None => Some(self.nodes.fd(node)?),
        };
        let path = match (&handle, &fd) {
            (Some(handle), _) => path_of(&*handle.file()),
            (_, Some(fd)) => path_of(&**fd),
            _ => return Err(Errno::BADF),
        };
        if let Some(mode) = set.mode {
            if self.nodes.kind(node)? == FileKind::Symlink {
                return Err(Errno::OPNOTSUPP);
            }
            rustix::fs::chmod(&*path, Mode::from_raw_mode(mode & 0o7777))?;
        }
        if *set == SetNodeAttributes::default() {
            return self.set_nothing(node, &path);
        }
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
            rustix::fs::chown(&*path, uid, gid)?;
        }
        match (set.size, &handle) {
            (Some(size), Some(handle)) => {
                let file = self.to_write(handle)?;
                self.changing(&*file, None, || rustix::fs::ftruncate(&*file, size))?;
            }
            (Some(size), None) => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
                let file = rustix::fs::openat(CWD, &*path, flags, Mode::empty())?;
                self.changing(&file, None, || rustix::fs::ftruncate(&file, size))?;
            }
            (None, _) => {}
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let times = Timestamps {
                last_access: timespec(set.atime),
                last_modification: timespec(set.mtime),
            };
            rustix::fs::utimensat(CWD, &*path, &times, AtFlags::empty())?;
        }
        Ok(())
    }

    /// A `chown(2)` that keeps owner and group changes the time of change. The kernel also asks for this before a change of
    /// content by which set-ID bits end; they end with that change here, too.
    fn set_nothing(&self, node: u64, path: &str) -> Result<(), Errno> {
        let found = status(self.nodes.fd(node)?.as_fd())?;
        if found.raw_mode() & SET_ID_BITS == 0 {
            rustix::fs::chown(path, None, None)?;
        }
        Ok(())
    }

    fn make(&self, at: &NodeName, with: NodeMaking, rdev: u64) -> Result<NodeAttributes, Errno> {
        let (parent, mode) = (self.parent(at)?, Mode::from_raw_mode(with.mode & 0o7777));
        heed_umask(with.umask)?;
        match FileType::from_raw_mode(with.mode) {
            FileType::Directory => rustix::fs::mkdirat(&*parent, &*at.name, mode)?,
            kind => rustix::fs::mknodat(&*parent, &*at.name, kind, mode, rdev)?,
        }
        self.look_up(at)
    }

    fn open(&self, node: u64, flags: u32) -> Result<u64, Errno> {
        // What else there is opens the kernel of whoever asks.
        match self.shows.shown_kind(self.nodes.kind(node)?) {
            FileKind::File | FileKind::Directory => {}
            _ => return Err(Errno::NXIO),
        }
        let is_device = self.nodes.kind(node)? == FileKind::BlockDevice;
        if is_device && open_flags(flags).intersects(OFlags::ACCMODE | OFlags::TRUNC) {
            return Err(Errno::ACCES);
        }
        let (fd, held) = (self.nodes.fd(node)?, one_more()?);
        let open = |flags| rustix::fs::openat(CWD, path_of(&*fd), flags, Mode::empty());
        // The FUSE client checks only that some user may execute the file.
        // A directory is no program, and would be listed.
        let runs = flags & OPENED_TO_RUN != 0 && self.nodes.kind(node)? == FileKind::File;
        let writes = open_flags(flags).intersects(OFlags::ACCMODE | OFlags::TRUNC);
        if runs {
            rustix::fs::accessat(CWD, path_of(&*fd), Access::EXEC_OK, AtFlags::EACCESS)?;
        }
        if flags & libc::O_TRUNC as u32 != 0 && !self.nodes.served.watchers.is_empty() {
            self.nodes.served.watchers.tell(status(fd.as_fd())?.id(), None, None);
        }
        let opened = match open(open_flags(flags)) {
            // A file to which nothing is done but appending.
            Err(rustix::io::Errno::PERM) if flags & libc::O_APPEND as u32 != 0 => {
                open(open_flags(flags) | OFlags::APPEND)
            }
            // Who may only run a file has it read by the kernel, which writes to none that it runs.
            Err(rustix::io::Errno::ACCESS) if runs && !writes => {
                sheaf_tree::service::identity::as_process(|| open(open_flags(flags)))
            }
            opened => opened,
        };
        let file = unless_itself(opened?)?;
        self.keep_watched(OwnerFile::new(node, file, held), flags)
    }

    fn create(&self, at: &NodeName, with: NodeMaking, flags: u32) -> Result<FileAnswer, Errno> {
        let (parent, held) = (self.parent(at)?, one_more()?);
        heed_umask(with.umask)?;
        let mode = Mode::from_raw_mode(with.mode & 0o7777);
        let (asked, flags) = (flags, open_flags(flags));
        let open = |flags| rustix::fs::openat(&*parent, &*at.name, flags, mode);
        let making = flags | OFlags::CREATE | OFlags::NOFOLLOW;
        let file = match outlasting_leases(making | OFlags::EXCL, open) {
            Err(rustix::io::Errno::EXIST) if !flags.contains(OFlags::EXCL) => {
                self.open_made(&parent, at, flags, mode)?
            }
            made => made?,
        };
        let file = unless_itself(file)?;
        let node = self.nodes.found(name_of(&file)?, at.parent, &at.name)?;
        let open = OwnerFile::new(node.node, file, held);
        Ok(FileAnswer::Created(node, self.keep_watched(open, asked)?))
    }

    /// Opens a file that another process has created under the name that was to be created. For a pipe or a symbolic
    /// link the answer is `ESTALE`, on which the client's kernel looks the name up again and handles it itself.
    fn open_made(
        &self,
        parent: &OwnedFd,
        at: &NodeName,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, Errno> {
        let is_file = |file: &OwnedFd| match status(file.as_fd())?.kind {
            FileKind::File => Ok(()),
            _ => Err(Errno::STALE),
        };
        match nodes::open_name(parent.as_fd(), &at.name) {
            // Removed again: the open below creates it.
            Err(Errno::NOENT) => {}
            found => is_file(&found?)?,
        }
        // A pipe may have replaced the file. `O_NONBLOCK` keeps the open from waiting.
        let all = flags | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let open = |flags| rustix::fs::openat(parent, &*at.name, flags, mode);
        let file = match outlasting_leases(all, open) {
            Err(rustix::io::Errno::LOOP) => return Err(Errno::STALE),
            opened => opened?,
        };
        is_file(&file)?;
        if !flags.contains(OFlags::NONBLOCK) {
            rustix::fs::fcntl_setfl(&file, flags & OFlags::NOATIME)?;
        }
        Ok(file)
    }

    fn temporary(&self, parent: u64, with: NodeMaking, flags: u32) -> Result<FileAnswer, Errno> {
        let (directory, held) = (self.nodes.fd(parent)?, one_more()?);
        heed_umask(with.umask)?;
        let flags = (open_flags(flags) - OFlags::DIRECTORY) | OFlags::TMPFILE;
        let mode = Mode::from_raw_mode(with.mode & 0o7777);
        let file = rustix::fs::openat(&*directory, c".", flags, mode)?;
        let node = self.nodes.found(name_of(&file)?, parent, b"")?;
        Ok(FileAnswer::Created(node, self.keep(OwnerFile::new(node.node, file, held))))
    }

    fn read(
        &self,
        handle: u64,
        offset: u64,
        size: u32,
        out: &mut Vec<u8>,
    ) -> Result<FileAnswer, Errno> {
        let handle = self.handle(handle)?;
        read_at_once(&handle.file(), offset, size.min(READ_BYTES_MAX), out)?;
        Ok(FileAnswer::Bytes)
    }

    /// What the page cache of the client's kernel asks for.
    fn read_pages(
        &self,
        handle: u64,
        offset: u64,
        size: u32,
        out: &mut Vec<u8>,
    ) -> Result<FileAnswer, Errno> {
        let file = self.handle(handle)?.file();
        let lending = self.loans.lend(handle, &file);
        // Before it is read, so that whatever changes it from now on is told.
        self.watch(handle, &file, true)?;
        let read = read_at_once(&file, offset, size.min(READ_BYTES_MAX), out);
        let is_lent = lending != Lending::Refused;
        if is_lent && self.loans.stands(handle, &file, lending, read.is_ok()) {
            return Ok(FileAnswer::Lent(Loan { lender: self.loans.lender, ends: false }));
        }
        read.map(|_| FileAnswer::Bytes)
    }

    /// The client is told of changes of a file from now on.
    pub(super) fn watch(&self, handle: u64, file: &OwnedFd, has_pages: bool) -> Result<(), Errno> {
        let found = rustix::fs::fstat(file)?;
        let id = (found.st_dev, found.st_ino);
        self.nodes.served.watchers.watch(id, &self.loans.told, handle, has_pages);
        self.handle(handle)?.watched();
        Ok(())
    }

    /// What is asked for, and more if it can be lent.
    fn read_lent(
        &self,
        handle: u64,
        offset: u64,
        size: u32,
        ahead: u32,
        out: &mut Vec<u8>,
    ) -> Result<FileAnswer, Errno> {
        let file = &self.handle(handle)?.file();
        let all = size.saturating_add(ahead).min(READ_BYTES_MAX);
        let from = out.len();
        let lending = self.loans.lend(handle, file);
        if let Lending::Refused = lending {
            if size > 0 {
                read_at_once(file, offset, size.min(READ_BYTES_MAX), out)?;
            }
            return Ok(FileAnswer::Bytes);
        }
        let read = read_at_once(file, offset, all, out);
        let stands = self.loans.stands(handle, file, lending, read.is_ok());
        let read = read?;
        if stands {
            let lender = self.loans.lender;
            return Ok(FileAnswer::Lent(Loan { lender, ends: read < all }));
        }
        out.truncate(from + read.min(size) as usize);
        Ok(FileAnswer::Bytes)
    }

    fn release(&self, (node, handle): (u64, u64), owner: Option<u64>) -> Result<FileAnswer, Errno> {
        let released = lock(&self.handles).remove(&handle);
        self.loans.closed(handle);
        self.nodes.served.watchers.closed(&self.loans.told, handle);
        self.locks.released(handle);
        if let Some(owner) = owner {
            self.locks.free(node, owner, true);
        }
        let released = released.ok_or(Errno::BADF)?;
        let written = self.watched_writer(&released.file());
        // Some file systems say only now that what was written has not arrived.
        let closed = match Arc::into_inner(released).and_then(OwnerFile::into_inner) {
            Some(file) => done(sheaf_file::close(file.into())),
            None => Ok(FileAnswer::Done),
        };
        // From now on a lease can guard the pages that kernels keep.
        if let Some(file) = written {
            self.nodes.served.watchers.tell(file, None, None);
        }
        closed
    }

    /// The file, if it is open for writing and somebody watches files.
    fn watched_writer(&self, file: &OwnedFd) -> Option<(u64, u64)> {
        if self.nodes.served.watchers.is_empty() {
            return None;
        }
        let flags = rustix::fs::fcntl_getfl(file).ok()?;
        let is_written = flags & OFlags::ACCMODE != OFlags::RDONLY;
        is_written.then(|| status(file.as_fd()).ok().map(|found| found.id())).flatten()
    }

    pub(super) fn list(
        &self,
        handle: &OwnerFile,
        offset: u64,
        size: u32,
        with_attributes: bool,
    ) -> Result<Vec<NodeEntry>, Errno> {
        let _one_at_a_time = lock(&handle.listing);
        let file = handle.file();
        rustix::fs::seek(&*file, SeekFrom::Start(offset))?;
        let device = status(file.as_fd())?.dev;
        let mut room = vec![MaybeUninit::uninit(); LIST_BYTES];
        let mut listing = RawDir::new(&*file, &mut room);
        let (mut entries, mut left) = (Vec::new(), size.min(READ_BYTES_MAX) as usize);
        let beside = if with_attributes { ENTRY_PLUS_BYTES } else { ENTRY_BYTES };
        while let Some(entry) = listing.next() {
            let entry = match entry {
                Ok(entry) => entry,
                // What was read before is told first.
                Err(_) if !entries.is_empty() => break,
                Err(errno) => return Err(errno.into()),
            };
            let name = entry.file_name().to_bytes();
            let bytes = (beside + name.len()).next_multiple_of(8);
            let Some(rest) = left.checked_sub(bytes) else { break };
            left = rest;
            let is_own = matches!(name, b"." | b"..");
            let attributes = match with_attributes && !is_own {
                true => self.entry(handle, device, name),
                false => None,
            };
            entries.push(NodeEntry {
                name: name.to_vec(),
                ino: self.nodes.served.number((device, entry.ino())),
                kind: self.shows.shown_kind(entry.file_type().into()),
                next: entry.next_entry_cookie(),
                attributes,
            });
        }
        Ok(entries)
    }

    /// The attributes of an entry; none if it cannot be looked up, which who wants them hears when asking again.
    fn entry(&self, directory: &OwnerFile, device: u64, name: &[u8]) -> Option<NodeAttributes> {
        let found = nodes::open_name(directory.file().as_fd(), name).ok()?;
        if nodes::is_apart(found.as_fd(), device).ok()? {
            return None;
        }
        let found = self.nodes.found(found, directory.node, name).ok()?;
        // It is looked up when it is entered.
        if found.is_mounted {
            self.forget(&[(found.node, 1)]);
            return None;
        }
        Some(self.shows.shown(&self.nodes, found))
    }

    fn usage(&self, node: u64) -> Result<FileSystemUsage, Errno> {
        let found = rustix::fs::fstatvfs(&*self.nodes.fd(node)?)?;
        let size = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        Ok(FileSystemUsage {
            blocks: (found.f_blocks, found.f_bfree, found.f_bavail),
            files: (found.f_files, found.f_ffree),
            block_size: (size(found.f_bsize), size(found.f_frsize)),
            name_max: size(found.f_namemax),
        })
    }

    fn xattr(&self, op: NodeOp, out: &mut Vec<u8>) -> Result<FileAnswer, Errno> {
        match op {
            NodeOp::GetXattr { node, name, size } => {
                let path = path_of(&*self.nodes.fd_to_look(node)?);
                let got = match size {
                    0 => count(rustix::fs::getxattr_query(&*path, &*name)),
                    _ => with_room(size, out, |room| rustix::fs::getxattr(&*path, &*name, room)),
                };
                // A kernel that asks for access lists takes any other error for one of the path.
                let is_list = name.starts_with(b"system.posix_acl_");
                match got {
                    Err(Errno::OPNOTSUPP) if is_list => Err(Errno::NODATA),
                    got => got,
                }
            }
            NodeOp::ListXattr { node, size } => {
                let path = path_of(&*self.nodes.fd_to_look(node)?);
                match size {
                    0 => count(rustix::fs::listxattr_query(&*path)),
                    _ => with_room(size, out, |room| rustix::fs::listxattr(&*path, room)),
                }
            }
            NodeOp::SetXattr { node, name, value, flags } => {
                let (path, flags) =
                    (path_of(&*self.nodes.fd(node)?), XattrFlags::from_bits_retain(flags));
                done(rustix::fs::setxattr(&*path, &*name, &value, flags))
            }
            NodeOp::RemoveXattr { node, name } => {
                let path = path_of(&*self.nodes.fd(node)?);
                match rustix::fs::removexattr(&*path, &*name) {
                    // The kernel of a view asks for this in the name of whoever truncates the file or gives
                    // it away, and that change ends it here, too. It refuses users who ask themselves.
                    Err(rustix::io::Errno::PERM) if name == b"security.capability" => {
                        Ok(FileAnswer::Done)
                    }
                    removed => done(removed),
                }
            }
            _ => Err(Errno::NOSYS),
        }
    }
}

/// Reads so many bytes behind `out`, at once: in parts they would be of several moments.
fn read_at_once(file: &OwnedFd, offset: u64, size: u32, out: &mut Vec<u8>) -> Result<u32, Errno> {
    let from = out.len();
    out.resize(from + size as usize, 0);
    let read = loop {
        match rustix::io::pread(file, &mut out[from..], offset) {
            Err(rustix::io::Errno::INTR) => interrupt::go_on()?,
            Err(errno) => {
                out.truncate(from);
                return Err(errno.into());
            }
            Ok(read) => break read,
        }
    };
    out.truncate(from + read);
    Ok(read as u32)
}

fn done<E: Into<Errno>>(result: Result<(), E>) -> Result<FileAnswer, Errno> {
    result.map(|()| FileAnswer::Done).map_err(Into::into)
}

fn count(result: rustix::io::Result<usize>) -> Result<FileAnswer, Errno> {
    Ok(FileAnswer::Count(result? as u64))
}

/// Has the kernel write up to so many bytes behind `out`.
fn with_room(
    size: u32,
    out: &mut Vec<u8>,
    ask: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>,
) -> Result<FileAnswer, Errno> {
    let from = out.len();
    out.resize(from + size.min(READ_BYTES_MAX) as usize, 0);
    let written = ask(&mut out[from..])?;
    out.truncate(from + written);
    Ok(FileAnswer::Bytes)
}

/// The flags of whoever asks, as far as they are for the owner: what direct means is between who asks and its
/// kernel, each write says whether it appends, and no terminal is taken over.
fn open_flags(flags: u32) -> OFlags {
    let own = OFlags::ACCMODE
        | OFlags::TRUNC
        | OFlags::EXCL
        | OFlags::NONBLOCK
        | OFlags::SYNC
        | OFlags::DSYNC
        | OFlags::NOATIME
        | OFlags::DIRECTORY;
    (OFlags::from_bits_retain(flags) & own) | OFlags::CLOEXEC | OFlags::NOCTTY
}

/// A descriptor that only names an open file: one that could be written to would keep it from being run.
fn name_of(file: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path_of(file), flags, Mode::empty())?)
}

/// From here on this thread makes files with this umask, and no other thread does.
fn heed_umask(umask: u32) -> Result<(), Errno> {
    thread_local! {
        static HAS_OWN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    if !HAS_OWN.get() {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS)
            .map_err(|errno| Errno(errno as i32))?;
        HAS_OWN.set(true);
    }
    rustix::process::umask(Mode::from_raw_mode(umask & 0o777));
    Ok(())
}

fn timespec(set: Option<SetNodeTime>) -> Timespec {
    match set {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetNodeTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetNodeTime::At(Timestamp { seconds, nanoseconds })) => {
            Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() }
        }
    }
}
