//! The files that somebody knows by number.
//!
//! Each is held by a descriptor that only names it, so that it is the same file whatever becomes of its names. One
//! that is not used for a while and not open is let go, so that a file that is removed gives its room back and a file
//! system can be taken away; and of all there are so many at a time. It is found again by what the kernel calls it,
//! or, where there is no such thing, under its last name, and is gone (`ESTALE`) if another file is there.
//!
//! A mounted view never traverses another mounted view. Where a path enters another file system,
//! the owner checks whether a view is mounted there. Clients see the directory and cannot enter it.
use super::enter;
use super::handles::{HandleOpener, KernelHandle};
use super::keeping::{InodeId, Keepers};
use super::lock_table::LockTable;
use super::watching::Watchers;
use crate::message::{NodeAttributes, ROOT};
use rustc_hash::FxHashMap;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags};
use sheaf_core::files::{FileKind, Metadata, Timestamp};
use sheaf_core::{Errno, lock};
use sheaf_file::is_view;
use sheaf_tree::service::identity::as_process;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// Descriptors that a client's nodes have at a time, where the process may have many more.
pub const NODES_OPEN_MAX: usize = 8192;
/// The share of what the process may have open.
const NODES_OPEN_SHARE: u64 = 8;
/// Bits of an inode's number that are a node's, too; above them stands the file system.
const INODE_BITS: u32 = 48;
/// Directories that are looked for again, one in the other, at most.
const DEPTH_MAX: usize = 4096;

/// What there is below one export, for all who ask.
pub(super) struct Served {
    pub root: Arc<OwnedFd>,
    /// Which ranges clients have locked.
    pub locks: Arc<LockTable>,
    /// Which files clients keep pages or sizes of.
    pub watchers: Watchers,
    /// Which names and attributes clients keep.
    pub keepers: Keepers,
    /// By which files of its file system are found again.
    opener: Option<HandleOpener>,
    /// File systems, in the order in which they were met.
    devices: Mutex<Vec<u64>>,
    /// The mount of the export.
    mount: u64,
}

/// What one client knows.
pub(super) struct KnownNodes {
    pub served: Arc<Served>,
    /// The directory at the top of its mounts, and the file system of that.
    pub top: Arc<OwnedFd>,
    top_device: u64,
    open_max: usize,
    state: Mutex<NodeState>,
}

#[derive(Default)]
struct NodeState {
    nodes: FxHashMap<u64, KnownNode>,
    /// Those that have a descriptor, the one that was opened first in front.
    open: VecDeque<u64>,
    /// Files whose inode number belonged to another node when they were found, with the numbers they received. They
    /// keep these after that node is forgotten: a file has one number as long as the client knows it.
    displaced: FxHashMap<FileId, NodeNumber>,
}

/// How a file is known to a client.
#[derive(Clone, Copy)]
struct NodeNumber {
    node: u64,
    /// What programs see.
    ino: u64,
}

struct KnownNode {
    id: FileId,
    ino: u64,
    kind: FileKind,
    fd: Option<Arc<OwnedFd>>,
    /// By which it is found again without one.
    handle: Option<KernelHandle>,
    /// The text of a link, once it was read: it never changes.
    text: Option<Arc<[u8]>>,
    /// Where it is open, which names it as well.
    open: Vec<Weak<OwnedFd>>,
    /// It was not used since somebody looked last.
    is_idle: bool,
    /// Where it was found last.
    parent: u64,
    name: Box<[u8]>,
    /// How often it was given.
    lookups: u64,
    is_used: bool,
    /// A view is mounted there. What is in it is elsewhere, and in the end here again.
    is_view: bool,
}

/// Device and inode, since when that is this file's, and the mount by which it was found: what else is mounted below it,
/// and whether it may be written to, are the mount's. 0 where the system does not tell mounts.
type FileId = ((u64, u64), Option<Timestamp>, u64);

impl Served {
    pub fn new(root: OwnedFd) -> Result<Self, Errno> {
        let (((device, _), _, mount), opener) =
            (identified(root.as_fd())?.1, HandleOpener::new(&root));
        let devices = Mutex::new(vec![device]);
        let (root, locks) = (Arc::new(root), Arc::default());
        let (watchers, keepers) = (Watchers::default(), Keepers::default());
        Ok(Self { root, locks, watchers, keepers, opener, devices, mount })
    }

    /// A directory below the export; links lead to places of the export.
    fn directory(&self, path: &[u8]) -> Result<Arc<OwnedFd>, Errno> {
        if path.is_empty() {
            return Ok(self.root.clone());
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let found = rustix::fs::openat2(&*self.root, path, flags, Mode::empty(), within)?;
        // A view within a view is not entered.
        let device = device_of(found.as_fd())?;
        if device != device_of(self.root.as_fd())? && as_process(|| is_view(device))? {
            return Err(Errno::VIEW);
        }
        Ok(Arc::new(found))
    }

    /// The opener that finds a file again.
    fn opener(&self, id: FileId) -> Option<&HandleOpener> {
        self.opener.as_ref().filter(|_| self.is_own(id))
    }

    /// Whether a file is of the export's own mount.
    fn is_own(&self, id: FileId) -> bool {
        self.is_of_device(id) && id.2 == self.mount
    }

    fn is_of_device(&self, ((device, _), ..): FileId) -> bool {
        lock(&self.devices).first() == Some(&device)
    }

    /// The number by which an inode is known here and to programs: its own, where its file system is that of the
    /// export.
    pub fn number(&self, (device, inode): (u64, u64)) -> u64 {
        let mut devices = lock(&self.devices);
        let at = devices.iter().position(|known| *known == device).unwrap_or_else(|| {
            devices.push(device);
            devices.len() - 1
        });
        let is_plain = at == 0 && inode > ROOT && inode >> INODE_BITS == 0;
        if is_plain { inode } else { inode ^ (at as u64 + 1) << INODE_BITS }
    }
}

impl KnownNodes {
    /// None yet, below this directory of the export.
    pub fn new(served: Arc<Served>, top: &[u8]) -> Result<Self, Errno> {
        let top = served.directory(top)?;
        let top_device = status(top.as_fd())?.dev;
        let allowed = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let share = allowed.unwrap_or(u64::MAX) / NODES_OPEN_SHARE;
        let open_max = usize::try_from(share).unwrap_or(usize::MAX).clamp(16, NODES_OPEN_MAX);
        Ok(Self { served, top, top_device, open_max, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, NodeState> {
        lock(&self.state)
    }

    /// A file was found under this name of this directory, and is given to the client.
    pub fn found(&self, fd: OwnedFd, parent: u64, name: &[u8]) -> Result<NodeAttributes, Errno> {
        enter(device_of(fd.as_fd())?)?;
        let (found, id) = identified(fd.as_fd())?;
        let (has_list, has_xattrs) = has_xattrs(fd.as_fd(), found.kind);
        let is_other = self.device(parent) != Some(found.dev);
        let is_view = is_other && as_process(|| is_view(found.dev))?;
        let is_mounted = is_other && !is_view && found.kind == FileKind::Directory;
        let mut state = self.state();
        let known = state.number(self.served.number(found.id()), id);
        let NodeNumber { node: number, ino } = known;
        let is_new = match state.nodes.get_mut(&number) {
            Some(node) => {
                node.lookups += 1;
                (node.is_used, node.is_idle, node.is_view) = (true, false, is_view);
                if (node.parent, &*node.name) != (parent, name) {
                    (node.parent, node.name) = (parent, name.into());
                }
                let is_new = node.fd.is_none();
                node.fd.get_or_insert_with(|| Arc::new(fd));
                is_new
            }
            None => {
                let node = KnownNode {
                    id,
                    ino,
                    kind: found.kind,
                    fd: Some(Arc::new(fd)),
                    handle: None,
                    text: None,
                    open: Vec::new(),
                    is_idle: false,
                    parent,
                    name: name.into(),
                    lookups: 1,
                    is_used: true,
                    is_view,
                };
                state.nodes.insert(number, node);
                true
            }
        };
        if is_new {
            state.opened(number, self.open_max, &self.served);
        }
        Ok(NodeAttributes { is_mounted, has_list, has_xattrs, ..attributes(known, &found) })
    }

    /// What the kernel says of a node, as it is told.
    pub fn attributes(&self, node: u64, found: &Metadata) -> NodeAttributes {
        let ino = self.state().nodes.get(&node).map_or(node, |known| known.ino);
        attributes(NodeNumber { node, ino }, found)
    }

    /// This thread is about to work in the file system of a node.
    pub fn enter(&self, node: u64) -> Result<(), Errno> {
        self.device(node).map_or(Ok(()), enter)
    }

    /// The file system of a node.
    fn device(&self, node: u64) -> Option<u64> {
        if node == ROOT {
            return Some(self.top_device);
        }
        self.state().nodes.get(&node).map(|node| node.id.0.0)
    }

    /// The file system of a node, and the mount by which it is seen.
    fn mount(&self, node: u64) -> Option<(u64, u64)> {
        if node == ROOT {
            return identified(self.top.as_fd()).ok().map(|(found, id)| (found.dev, id.2));
        }
        self.state().nodes.get(&node).map(|node| (node.id.0.0, node.id.2))
    }

    /// Whether there may be another node of its file: it is of the export's file system, and seen by another mount.
    pub fn may_be_doubled(&self, node: u64) -> bool {
        let id = self.state().nodes.get(&node).map(|node| node.id);
        id.is_some_and(|id| self.served.is_of_device(id) && !self.served.is_own(id))
    }

    /// The inode of a node.
    pub fn inode(&self, node: u64) -> Option<InodeId> {
        match node {
            ROOT => status(self.top.as_fd()).ok().map(|found| found.id()),
            node => self.state().nodes.get(&node).map(|known| known.id.0),
        }
    }

    /// Where a node was found last.
    pub fn place(&self, node: u64) -> Option<(u64, Box<[u8]>)> {
        self.state().nodes.get(&node).map(|known| (known.parent, known.name.clone()))
    }

    /// What the node is known to be.
    pub fn kind(&self, node: u64) -> Result<FileKind, Errno> {
        if node == ROOT {
            return Ok(FileKind::Directory);
        }
        self.state().nodes.get(&node).map(|node| node.kind).ok_or(Errno::STALE)
    }

    /// The descriptor of a node, which is not that of a view.
    pub fn fd(&self, node: u64) -> Result<Arc<OwnedFd>, Errno> {
        let is_view = self.state().nodes.get(&node).is_some_and(|known| known.is_view);
        if is_view { Err(Errno::LOOP) } else { self.fd_to_look(node) }
    }

    /// The descriptor of a node, of which only attributes are asked for.
    pub fn fd_to_look(&self, node: u64) -> Result<Arc<OwnedFd>, Errno> {
        self.enter(node)?;
        self.fd_within(node, DEPTH_MAX)
    }

    fn fd_within(&self, node: u64, depth: usize) -> Result<Arc<OwnedFd>, Errno> {
        if node == ROOT {
            return Ok(self.top.clone());
        }
        let (id, parent, name, handle) = {
            let mut state = self.state();
            let known = state.nodes.get_mut(&node).ok_or(Errno::STALE)?;
            (known.is_used, known.is_idle) = (true, false);
            if let Some(fd) = known.fd.clone().or_else(|| known.as_open()) {
                return Ok(fd);
            }
            (known.id, known.parent, known.name.clone(), known.handle.clone())
        };
        let is_same = |found: &OwnedFd| match identified(found.as_fd())?.1 == id {
            true => Ok(()),
            false => Err(Errno::STALE),
        };
        // Who asks has been given it before.
        let found = match (&handle, self.served.opener(id)) {
            (Some(handle), Some(opener)) => as_process(|| opener.open(handle)),
            _ => {
                let depth = depth.checked_sub(1).ok_or(Errno::STALE)?;
                let named = self.fd_within(parent, depth);
                let named = named.and_then(|within| {
                    let named = as_process(|| open_name(within.as_fd(), &name))?;
                    is_same(&named).map(|()| named)
                });
                match (named, &handle) {
                    // It was renamed, and the directory that it was in may be gone.
                    (Err(_), Some(handle)) => self.by_handle(node, handle, depth),
                    (named, _) => named,
                }
            }
        };
        let found =
            found.map_err(|errno| if errno == Errno::NOENT { Errno::STALE } else { errno })?;
        is_same(&found)?;
        let (mut state, found) = (self.state(), Arc::new(found));
        let Some(known) = state.nodes.get_mut(&node) else { return Ok(found) };
        if known.fd.is_none() {
            known.fd = Some(found.clone());
            state.opened(node, self.open_max, &self.served);
        }
        Ok(found)
    }

    /// A file of a file system that is mounted below the export, by its file handle. Nothing of the file system is kept
    /// open for that, so that it can be unmounted.
    fn by_handle(&self, node: u64, handle: &KernelHandle, depth: usize) -> Result<OwnedFd, Errno> {
        let mount = self.mount(node).ok_or(Errno::STALE)?;
        for top in self.tops(mount) {
            // Another one that is known as its top may be gone.
            let Ok(top) = self.fd_within(top, depth) else { continue };
            if let Some(opener) = as_process(|| HandleOpener::new(&top)) {
                return as_process(|| opener.open(handle));
            }
        }
        Err(Errno::STALE)
    }

    /// The directories at which one was entered that is mounted below the export. The parents of a node do not lead
    /// there: they may be gone, and the node somewhere else.
    fn tops(&self, mount: (u64, u64)) -> Vec<u64> {
        if self.mount(ROOT) == Some(mount) {
            return vec![ROOT];
        }
        let state = self.state();
        let of = |node: &KnownNode| (node.id.0.0, node.id.2);
        let is_above = |node: &KnownNode| match state.nodes.get(&node.parent) {
            Some(parent) => of(parent) != mount,
            None => node.parent == ROOT,
        };
        let tops = state.nodes.iter().filter(|(_, node)| of(node) == mount && is_above(node));
        tops.map(|(number, _)| *number).collect()
    }

    /// The text of a link.
    pub fn link_text(&self, node: u64) -> Result<Arc<[u8]>, Errno> {
        if let Some(text) = self.state().nodes.get(&node).and_then(|node| node.text.clone()) {
            return Ok(text);
        }
        let text = rustix::fs::readlinkat(&*self.fd(node)?, c"", Vec::new())?;
        let text: Arc<[u8]> = text.as_bytes().into();
        if let Some(known) = self.state().nodes.get_mut(&node) {
            known.text = Some(text.clone());
        }
        Ok(text)
    }

    /// The directory in which a node was found last.
    pub fn directory(&self, node: u64) -> Result<Arc<OwnedFd>, Errno> {
        let parent = self.state().nodes.get(&node).map(|node| node.parent).ok_or(Errno::STALE)?;
        self.fd(parent)
    }

    /// It is open here.
    pub fn is_open(&self, node: u64, file: &Arc<OwnedFd>) {
        if let Some(known) = self.state().nodes.get_mut(&node) {
            known.open.retain(|open| open.strong_count() > 0);
            known.open.push(Arc::downgrade(file));
        }
    }

    /// Lets go what was not used since this was called last.
    pub fn rest(&self) {
        let mut state = self.state();
        let NodeState { nodes, open, .. } = &mut *state;
        open.retain(|number| {
            let Some(known) = nodes.get_mut(number) else { return false };
            if std::mem::replace(&mut known.is_idle, true) && known.rests(&self.served) {
                known.fd = None;
            }
            known.fd.is_some()
        });
    }

    /// The client does not need a node any more that it was given so often.
    /// The inodes that it does not know any more.
    pub fn forget(&self, nodes: &[(u64, u64)]) -> Vec<InodeId> {
        let (mut state, mut gone) = (self.state(), Vec::new());
        for (number, times) in nodes {
            let Some(node) = state.nodes.get_mut(number) else { continue };
            node.lookups = node.lookups.saturating_sub(*times);
            if node.lookups == 0
                && let Some(node) = state.nodes.remove(number)
            {
                state.displaced.remove(&node.id);
                gone.push(node.id.0);
            }
        }
        // Those that are gone would fill the queue otherwise.
        if state.open.len() > 2 * self.open_max.max(state.nodes.len()) {
            let NodeState { nodes, open, .. } = &mut *state;
            open.retain(|number| nodes.get(number).is_some_and(|node| node.fd.is_some()));
        }
        gone
    }
}

impl NodeState {
    /// The number of a file whose own number would be `own`.
    fn number(&mut self, own: u64, id: FileId) -> NodeNumber {
        if let Some(number) = self.displaced.get(&id) {
            return *number;
        }
        let (mut node, mut is_others) = (own, false);
        // Two inodes of which the numbers are the same in what is left of them here, or one that was another file's.
        while let Some(known) = self.nodes.get(&node).filter(|known| known.id != id) {
            is_others |= known.id.0 != id.0;
            node = node.wrapping_add(1 << INODE_BITS);
        }
        // What was another file's is this one's now, on all hosts.
        let number = NodeNumber { node, ino: if is_others { node } else { own } };
        if node != own {
            self.displaced.insert(id, number);
        }
        number
    }

    /// This one has a descriptor now; another gives its own back for it if there are too many.
    fn opened(&mut self, node: u64, most: usize, served: &Served) {
        self.open.push_back(node);
        // Each is passed over once if it was used since.
        let mut looks = 2 * self.open.len();
        while self.open.len() > most && looks > 0 {
            looks -= 1;
            let Some(number) = self.open.pop_front() else { return };
            let Some(known) = self.nodes.get_mut(&number) else { continue };
            if std::mem::take(&mut known.is_used) || number == node {
                self.open.push_back(number);
            } else {
                known.remember(served);
                known.fd = None;
            }
        }
    }
}

impl KnownNode {
    /// Notes by what it is found again; whether there is such a thing.
    fn remember(&mut self, served: &Served) -> bool {
        if self.handle.is_none()
            && (served.opener(self.id).is_some() || self.is_below(served))
            && let Some(fd) = &self.fd
        {
            self.handle = KernelHandle::of(fd.as_fd()).ok();
        }
        self.handle.is_some()
    }

    /// Whether it is of a file system that is mounted below the export, whose files may be found by their handles.
    fn is_below(&self, served: &Served) -> bool {
        !served.is_own(self.id) && rustix::process::geteuid().is_root()
    }

    fn as_open(&self) -> Option<Arc<OwnedFd>> {
        self.open.iter().find_map(Weak::upgrade)
    }

    /// Whether its descriptor is let go: it is found again, holds another file system, or has no name left.
    fn rests(&mut self, served: &Served) -> bool {
        // Where it is open, it may be closed and renamed before somebody asks again.
        let is_let_go = self.remember(served) || !served.is_own(self.id);
        let is_nameless =
            |fd: &Arc<OwnedFd>| status(fd.as_fd()).is_ok_and(|found| found.nlink == 0);
        is_let_go || self.fd.as_ref().is_some_and(is_nameless)
    }
}

/// A descriptor that names what is there, be it a link.
pub(super) fn open_name(directory: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    check(name)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    sheaf_file::unless_itself(opened)
}

/// One name of a directory, and no way out of it.
pub(super) fn check(name: &[u8]) -> Result<(), Errno> {
    match name {
        b"" => Err(Errno::NOENT),
        b"." | b".." => Err(Errno::INVAL),
        name if name.contains(&b'/') || name.contains(&0) => Err(Errno::INVAL),
        _ => Ok(()),
    }
}

/// The file system of an open file, which is not asked for it.
pub(super) fn device_of(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    Ok(known(file)?.0.dev)
}

/// Whether another file system begins here than the one with this device, in which it was found. It may hang, and
/// is not asked. On an overlay, files have other devices than their directory.
pub(super) fn is_apart(file: BorrowedFd<'_>, device: u64) -> Result<bool, Errno> {
    let (found, attributes) = known(file)?;
    let is_top = attributes.contains(StatxAttributes::MOUNT_ROOT);
    Ok(is_top || found.kind == FileKind::Directory && found.dev != device)
}

/// What the kernel knows of a file without asking its file system.
fn known(file: BorrowedFd<'_>) -> Result<(Metadata, StatxAttributes), Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(file, c"", flags, StatxFlags::TYPE)?;
    Ok((found.into(), found.stx_attributes))
}

/// What the kernel says of an open file.
pub(super) fn status(file: BorrowedFd<'_>) -> Result<Metadata, Errno> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    Ok(rustix::fs::statx(file, c"", flags, wanted)?.into())
}

/// The same, and which file it is.
fn identified(file: BorrowedFd<'_>) -> Result<(Metadata, FileId), Errno> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID;
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    let found = rustix::fs::statx(file, c"", flags, wanted)?;
    let is_known = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    let mount = if is_known { found.stx_mnt_id } else { 0 };
    let found: Metadata = found.into();
    let id = (found.id(), found.btime, mount);
    Ok((found, id))
}

/// The same, as it is told.
fn attributes(NodeNumber { node, ino }: NodeNumber, found: &Metadata) -> NodeAttributes {
    NodeAttributes {
        node,
        ino,
        mode: found.raw_mode(),
        nlink: found.nlink,
        uid: found.uid,
        gid: found.gid,
        rdev: found.rdev,
        size: found.size,
        blocks: found.blocks,
        block_size: found.block_size,
        atime: found.atime,
        mtime: found.mtime,
        ctime: found.ctime,
        is_mounted: false,
        has_list: true,
        has_xattrs: true,
        is_lent: false,
    }
}

/// Whether a file may have an access control list, and whether it may have extended attributes.
pub(super) fn has_xattrs(file: BorrowedFd<'_>, kind: FileKind) -> (bool, bool) {
    use rustix::io::Errno as SysErrno;
    let path = path_of(file);
    // Most files have none, and the list of their names has access control lists in it.
    let names = rustix::fs::listxattr_query(&*path);
    if names == Ok(0) {
        return (false, false);
    }
    let list = || rustix::fs::getxattr_query(&*path, "system.posix_acl_access");
    let has_list =
        kind != FileKind::Symlink && !matches!(list(), Err(SysErrno::NODATA | SysErrno::NOTSUP));
    (has_list, true)
}

/// The path by which this process reaches what a descriptor names, whatever became of its names.
pub(super) fn path_of(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::CWD;
    use std::path::Path;

    /// It may be somebody's working directory.
    #[test]
    fn renamed_directory_is_found_after_it_was_open_and_rested() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("d"), directory.path().join("e"));
        std::fs::create_dir(&from).unwrap();
        let open =
            |path: &Path| rustix::fs::openat(CWD, path, OFlags::PATH, Mode::empty()).unwrap();
        let served = Arc::new(Served::new(open(directory.path())).unwrap());
        let nodes = KnownNodes::new(served, b"").unwrap();
        let node = nodes.found(open(&from), ROOT, b"d").unwrap().node;
        let opened = Arc::new(open(&from));
        nodes.state().nodes.get_mut(&node).unwrap().open.push(Arc::downgrade(&opened));
        (0..2).for_each(|_| nodes.rest());
        drop(opened);
        std::fs::rename(&from, &to).unwrap();
        let found = status(nodes.fd(node).unwrap().as_fd()).unwrap();
        assert_eq!(found.id(), status(open(&to).as_fd()).unwrap().id());
    }

    /// A client's kernel may know a removed file whose inode is already reused for another file.
    #[test]
    fn file_keeps_its_node_when_one_before_it_is_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("f"), "").unwrap();
        let open =
            |path: &Path| rustix::fs::openat(CWD, path, OFlags::PATH, Mode::empty()).unwrap();
        let served = Arc::new(Served::new(open(directory.path())).unwrap());
        let nodes = KnownNodes::new(served, b"").unwrap();
        let file = open(&directory.path().join("f"));
        let own_number = || nodes.served.number(status(file.as_fd()).unwrap().id());
        let find = || {
            let root = nodes.fd(ROOT).unwrap();
            let found = nodes.found(open_name(root.as_fd(), b"f").unwrap(), ROOT, b"f").unwrap();
            let again = nodes.attributes(found.node, &status(root.as_fd()).unwrap());
            // Programs of all hosts see the number of the inode, whatever a client knows.
            assert_eq!((found.ino, again.ino), (own_number(), own_number()));
            found.node
        };
        let own = find();
        nodes.state().nodes.get_mut(&own).unwrap().id.1 = None;
        // The node of `own` is now that of a removed file.
        let number = find();
        assert_ne!(number, own);
        nodes.forget(&[(own, 1)]);
        assert_eq!((find(), find()), (number, number));
        nodes.forget(&[(number, 3)]);
        assert_eq!(find(), own);
        assert!(nodes.state().displaced.is_empty());
    }
}
