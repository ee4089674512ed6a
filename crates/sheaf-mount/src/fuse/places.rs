//! Where the directories are that the kernel knows, so that a working directory is found again when the owner's server
//! is restarted.
//!
//! A server that was restarted knows no node. The kernel looks names up again when a program uses an absolute path. A
//! program that only uses paths in its working directory would get `ESTALE` for each. Therefore the view looks the
//! names of such a directory up itself, as the same user, and then repeats the request. A directory that has another
//! number by now, or that was renamed, is not found.
use super::{Remote, View};
use crate::message::{
    FileAnswer, FileCall, FileCaller, NodeAttributes, NodeName, NodeOp, decoded, encoded,
};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, lock};
use std::sync::Mutex;

/// Directories that are remembered, at most.
const PLACES_MAX: usize = 1 << 18;
/// Directories that are looked up, one in the other, at most.
const DEPTH_MAX: usize = 4096;

/// The directory above each directory, and its name there.
#[derive(Default)]
pub(super) struct KnownPlaces(Mutex<FxHashMap<u64, Place>>);

/// The node of the directory above, and the name there.
type Place = (u64, Box<[u8]>);

/// What a request has to do with places.
pub(super) struct OfPlaces {
    /// It names files by a directory, which may have to be found again.
    pub has_directory: bool,
    /// The name that it looks up or makes.
    pub name: Option<NodeName>,
}

impl OfPlaces {
    pub fn of(op: &NodeOp) -> Self {
        let name = match op {
            NodeOp::Lookup(at) | NodeOp::Make { at, .. } => Some(at.clone()),
            _ => None,
        };
        Self { has_directory: directories(op)[0].is_some(), name }
    }
}

impl KnownPlaces {
    /// The owner has found a file under this name.
    pub fn found(&self, found: &NodeAttributes, at: NodeName) {
        if found.mode & libc::S_IFMT != libc::S_IFDIR || found.node == at.parent {
            return;
        }
        let mut places = lock(&self.0);
        if places.len() < PLACES_MAX || places.contains_key(&found.node) {
            places.insert(found.node, (at.parent, at.name.into()));
        }
    }

    /// The kernel does not know these nodes any more.
    pub fn forget(&self, nodes: &[(u64, u64)]) {
        let mut places = lock(&self.0);
        for (node, _) in nodes {
            places.remove(node);
        }
    }

    /// The nodes and names from below the top down to a directory.
    fn path(&self, mut node: u64, top: u64) -> Option<Vec<(u64, NodeName)>> {
        let places = lock(&self.0);
        let mut path = Vec::new();
        while node != top {
            let (parent, name) = places.get(&node)?;
            path.push((node, NodeName { parent: *parent, name: name.to_vec() }));
            node = *parent;
            if path.len() > DEPTH_MAX {
                return None;
            }
        }
        path.reverse();
        Some(path)
    }
}

/// The directories by whose numbers an operation names files; none if it is about an open file.
fn directories(op: &NodeOp) -> [Option<u64>; 2] {
    match op {
        NodeOp::Lookup(at)
        | NodeOp::Make { at, .. }
        | NodeOp::Symlink { at, .. }
        | NodeOp::Remove { at, .. }
        | NodeOp::Create { at, .. }
        | NodeOp::Link { to: at, .. } => [Some(at.parent), None],
        NodeOp::Rename { from, to, .. } => [Some(from.parent), Some(to.parent)],
        NodeOp::Temporary { parent: node, .. }
        | NodeOp::Attributes { node, handle: None }
        | NodeOp::SetAttributes { node, handle: None, .. }
        | NodeOp::Walk { node, .. }
        | NodeOp::Open { node, .. }
        | NodeOp::FileSystem { node }
        | NodeOp::Access { node, .. }
        | NodeOp::GetXattr { node, .. }
        | NodeOp::ListXattr { node, .. }
        | NodeOp::SetXattr { node, .. }
        | NodeOp::RemoveXattr { node, .. } => [Some(*node), None],
        _ => [None, None],
    }
}

impl<R: Remote> View<R> {
    /// Has the owner do what is asked. If it does not know a directory of the request, it finds that first.
    pub(super) async fn ask_again(&self, call: Vec<u8>) -> Result<Bytes, Errno> {
        let all = self.remote.call(call.clone()).await?;
        let (answer, _) = decoded::<Result<FileAnswer, Errno>>(&all)?;
        if !matches!(answer, Err(Errno::STALE)) {
            return Ok(all);
        }
        let (FileCall { who, pid, op, .. }, _) = decoded(&call)?;
        for node in directories(&op).into_iter().flatten() {
            if self.find_again(node, &who, pid).await.is_err() {
                return Ok(all);
            }
        }
        self.remote.call(call).await
    }

    /// Looks the names up that lead to a directory.
    async fn find_again(&self, node: u64, who: &FileCaller, pid: u32) -> Result<(), Errno> {
        let path = self.places.path(node, self.root).ok_or(Errno::STALE)?;
        for (node, at) in path {
            let call =
                FileCall { who: who.clone(), pid, keeps_names: false, op: NodeOp::Lookup(at) };
            let all = self.remote.call(encoded(&call, &[])?).await?;
            match decoded::<Result<FileAnswer, Errno>>(&all)?.0? {
                FileAnswer::Node(found) if found.node == node => {}
                _ => return Err(Errno::STALE),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_a_directory_begins_below_the_top() {
        let places = KnownPlaces::default();
        let found = |node, mode| crate::own::attributes(node, mode, 0, crate::own::now());
        let at = |parent, name: &str| NodeName { parent, name: name.into() };
        let directory = |node, parent, name| {
            places.found(&found(node, libc::S_IFDIR | 0o755), at(parent, name));
        };
        directory(5, 1, "a");
        directory(6, 5, "b");
        places.found(&found(7, libc::S_IFREG | 0o644), at(6, "file"));
        let all = Some(vec![(5, at(1, "a")), (6, at(5, "b"))]);
        assert_eq!(places.path(6, 1), all);
        assert_eq!(places.path(6, 5), Some(vec![(6, at(5, "b"))]));
        assert_eq!((places.path(1, 1), places.path(7, 1)), (Some(Vec::new()), None));
        // It was renamed; its directory was forgotten.
        directory(6, 1, "c");
        assert_eq!(places.path(6, 1), Some(vec![(6, at(1, "c"))]));
        directory(6, 5, "b");
        places.forget(&[(5, 3)]);
        assert_eq!(places.path(6, 1), None);
        // No path without an end.
        directory(5, 6, "loop");
        assert_eq!(places.path(6, 1), None);
    }
}
