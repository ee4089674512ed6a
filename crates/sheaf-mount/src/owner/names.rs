//! What is lent to a client that keeps names and attributes, and recalled from others (`keeping.rs`).
use super::client::OwnerClient;
use super::files::OwnerFile;
use super::keeping::{Changing, InodeId};
use super::nodes::{self, path_of};
use crate::message::{FileAnswer, NodeAttributes, NodeEntry, NodeName, NodeOp};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use sheaf_core::Errno;
use sheaf_core::files::Metadata;
use sheaf_tree::service::share::Holding;
use std::os::fd::{AsFd, BorrowedFd};

/// Names of a path that are looked up together.
const WALK_MAX: usize = 8;

impl OwnerClient {
    /// Does what is asked. Other clients drop what they keep of files before these change. What is answered is lent if
    /// the client keeps it.
    pub fn answer_kept(
        &self,
        op: NodeOp,
        keeps_names: bool,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<FileAnswer, Errno> {
        if !keeps_names && self.nodes.served.keepers.is_empty() {
            return self.answer(op, data, out);
        }
        let of = keeps_names.then(|| LentAnswer::of(&op));
        let of = match of {
            Some(LentAnswer::Opened(node)) => {
                self.check_name(node)?;
                None
            }
            Some(LentAnswer::Listed(handle)) if !self.lend(self.handle(handle)?.node) => None,
            Some(LentAnswer::Names(node)) if !self.lend(node) => None,
            of => of,
        };
        let changing = self.recalled(&op);
        let answer = self.answer(op, data, out);
        let changed = changing.map(|(changing, ids)| {
            drop(changing);
            ids
        });
        match of {
            Some(of) => self.lend_answer(&of, answer?, &changed.unwrap_or_default()),
            None => answer,
        }
    }

    /// The client does not need these any more.
    pub(super) fn forget(&self, nodes: &[(u64, u64)]) {
        let gone = self.nodes.forget(nodes);
        let keepers = &self.nodes.served.keepers;
        if !gone.is_empty() && !keepers.is_empty() {
            keepers.forgotten(&self.loans.told, &gone);
        }
    }

    fn lend(&self, node: u64) -> bool {
        let inode = self.nodes.inode(node).filter(|_| !self.nodes.may_be_doubled(node));
        inode.is_some_and(|id| self.nodes.served.keepers.lend(&self.loans.told, id, node))
    }

    fn lend_answer(
        &self,
        of: &LentAnswer,
        answer: FileAnswer,
        changed: &[InodeId],
    ) -> Result<FileAnswer, Errno> {
        let lent = |found: NodeAttributes, at: Option<&NodeName>, handle: Option<u64>| {
            self.lent(found, at, handle).unwrap_or(found)
        };
        let answer = match (answer, of) {
            (FileAnswer::Node(found), LentAnswer::Named(at)) => {
                FileAnswer::Node(lent(found, Some(at), None))
            }
            (FileAnswer::Node(found), LentAnswer::Node(handle)) => {
                FileAnswer::Node(lent(found, None, *handle))
            }
            (FileAnswer::Created(found, handle), LentAnswer::Named(at)) => {
                FileAnswer::Created(lent(found, Some(at), None), handle)
            }
            (FileAnswer::Entries(mut entries), _) => {
                for entry in &mut entries {
                    entry.attributes = entry.attributes.map(|found| lent(found, None, None));
                }
                FileAnswer::Entries(entries)
            }
            (answer, _) => answer,
        };
        let kept = self.nodes.served.keepers.nodes_of(&self.loans.told, changed);
        let after = |node: u64| {
            let found = self.attributes(node, None).ok()?;
            Some(lent(found, None, None))
        };
        let after: Vec<NodeAttributes> = kept.into_iter().filter_map(after).collect();
        Ok(if after.is_empty() { answer } else { FileAnswer::After(Box::new(answer), after) })
    }

    /// Attributes of a node, with the name that leads to it, that are recalled before they change.
    fn lent(
        &self,
        found: NodeAttributes,
        at: Option<&NodeName>,
        handle: Option<u64>,
    ) -> Option<NodeAttributes> {
        let is_lent = at.is_none_or(|at| self.lend(at.parent)) && self.lend(found.node);
        if !is_lent || found.is_mounted {
            return None;
        }
        if let Some(at) = at
            && self.inode_at(at) != self.nodes.inode(found.node)
        {
            return None;
        }
        let now = self.attributes(found.node, handle).ok()?;
        Some(NodeAttributes { is_lent: true, ..now })
    }

    /// Has other clients drop what they keep of what an operation changes.
    fn recalled(&self, op: &NodeOp) -> Option<(Changing<'_>, Vec<InodeId>)> {
        let keepers = &self.nodes.served.keepers;
        if keepers.is_empty() {
            return None;
        }
        let node = |node: &u64| self.nodes.inode(*node);
        let open = |handle: &u64| self.nodes.inode(self.handle(*handle).ok()?.node);
        let at = |at: &NodeName| [self.nodes.inode(at.parent), self.inode_at(at)];
        let ids: Vec<Option<InodeId>> = match op {
            NodeOp::SetAttributes { node: of, .. }
            | NodeOp::SetXattr { node: of, .. }
            | NodeOp::RemoveXattr { node: of, .. } => vec![node(of)],
            NodeOp::Open { node: of, flags } if flags & libc::O_TRUNC as u32 != 0 => vec![node(of)],
            NodeOp::Write { handle, .. }
            | NodeOp::WriteLent { handle, .. }
            | NodeOp::WriteBehind { handle, .. }
            | NodeOp::Allocate { handle, .. } => vec![open(handle)],
            NodeOp::Copy { to, .. } => vec![open(&to.0)],
            NodeOp::Make { at: of, .. }
            | NodeOp::Symlink { at: of, .. }
            | NodeOp::Remove { at: of, .. }
            | NodeOp::Create { at: of, .. } => at(of).to_vec(),
            NodeOp::Rename { from, to, .. } => [at(from), at(to)].concat(),
            NodeOp::Link { node: of, to } => vec![node(of), node(&to.parent)],
            _ => return None,
        };
        let ids: Vec<InodeId> = ids.into_iter().flatten().collect();
        Some((keepers.changing(&self.loans.told, ids.clone()), ids))
    }

    /// The inode to which a name leads.
    fn inode_at(&self, at: &NodeName) -> Option<InodeId> {
        let parent = self.parent(at).ok()?;
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let found = rustix::fs::statx(&*parent, &*at.name, flags, StatxFlags::INO).ok()?;
        Some(Metadata::from(found).id())
    }

    /// Refuses to open a file that the client found in what it keeps, if the name leads elsewhere by now. On `ESTALE`
    /// the client's kernel looks the name up again.
    fn check_name(&self, node: u64) -> Result<(), Errno> {
        let Some((parent, name)) = self.nodes.place(node) else { return Ok(()) };
        let at = NodeName { parent, name: name.into() };
        match self.inode_at(&at) == self.nodes.inode(node) {
            true => Ok(()),
            false => Err(Errno::STALE),
        }
    }

    pub(super) fn look_up(&self, at: &NodeName) -> Result<NodeAttributes, Errno> {
        let parent = self.parent(at)?;
        self.look_up_in(parent.as_fd(), at, None)
    }

    /// Looks a name up that nobody has asked for: `EXDEV` where another file system begins.
    pub(super) fn look_ahead(&self, at: &NodeName) -> Result<NodeAttributes, Errno> {
        let parent = self.parent(at)?;
        let device = nodes::device_of(parent.as_fd())?;
        self.look_up_in(parent.as_fd(), at, Some(device))
    }

    fn look_up_in(
        &self,
        parent: BorrowedFd<'_>,
        at: &NodeName,
        within: Option<u64>,
    ) -> Result<NodeAttributes, Errno> {
        let found = nodes::open_name(parent, &at.name)?;
        if let Some(device) = within
            && nodes::is_apart(found.as_fd(), device)?
        {
            return Err(Errno::XDEV);
        }
        let found = self.nodes.found(found, at.parent, &at.name)?;
        Ok(self.shows.shown(&self.nodes, found))
    }

    /// A directory, and what names lead to, as far as they do.
    pub(super) fn walk(
        &self,
        node: u64,
        names: Vec<Vec<u8>>,
    ) -> Result<Vec<NodeAttributes>, Errno> {
        let mut found = vec![self.attributes(node, None)?];
        for name in names.into_iter().take(WALK_MAX) {
            let parent = found.last().map_or(node, |last| last.node);
            // The client asks for what cannot be looked up, or may hang, and hears why.
            let Ok(next) = self.look_ahead(&NodeName { parent, name }) else { break };
            if next.is_mounted {
                self.forget(&[(next.node, 1)]);
                break;
            }
            found.push(next);
            if next.mode & libc::S_IFMT != libc::S_IFDIR {
                break;
            }
        }
        Ok(found)
    }

    /// Entries of a directory with their attributes.
    pub(super) fn names(&self, node: u64, size: u32) -> Result<Vec<NodeEntry>, Errno> {
        let fd = self.nodes.fd(node)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, path_of(&*fd), flags, Mode::empty())?;
        self.list(&OwnerFile::new(node, directory, Holding::default()), 0, size, true)
    }
}

/// What of an answer is lent.
enum LentAnswer {
    /// A name, and the attributes of what it leads to.
    Named(NodeName),
    /// The attributes of a node, which may be open.
    Node(Option<u64>),
    /// Entries of an open directory, or of one that is opened for that.
    Listed(u64),
    Names(u64),
    /// Nothing; a name that is kept leads to this node.
    Opened(u64),
    Nothing,
}

impl LentAnswer {
    fn of(op: &NodeOp) -> Self {
        match op {
            NodeOp::Lookup(at)
            | NodeOp::Make { at, .. }
            | NodeOp::Symlink { at, .. }
            | NodeOp::Create { at, .. }
            | NodeOp::Link { to: at, .. } => Self::Named(at.clone()),
            NodeOp::Attributes { handle, .. } | NodeOp::SetAttributes { handle, .. } => {
                Self::Node(*handle)
            }
            NodeOp::ReadDirectory { handle, .. } => Self::Listed(*handle),
            NodeOp::Names { node, .. } => Self::Names(*node),
            NodeOp::Open { node, .. } | NodeOp::OpenLent { node, .. } => Self::Opened(*node),
            _ => Self::Nothing,
        }
    }
}
