//! The side of the host that has the files: it does what a mounted view elsewhere asks, as the user on whose
//! behalf it asks, with this host's system calls. So its page cache is the one cache that there is.
//!
//! A FUSE request is one call here (`client.rs`), with the rights of the user who made it. It acts
//! on descriptors that name files (`O_PATH`), so an inode stays the same file whatever happens to
//! its names. Open files and locks of a mount are released with its last lane.
mod changes;
mod claims;
mod client;
mod files;
mod grace;
mod handles;
mod interrupt;
mod keeping;
mod lending;
mod links;
mod lock_table;
mod locks;
mod names;
mod nodes;
mod serving;
mod submounts;
mod watching;
mod writing;

use crate::message::{FileAnswer, FileCall, FileCaller, FileClient, NodeOp, decoded, encoded};
use changes::{ChangePlace, ViewChange};
use client::OwnerClient;
use interrupt::AtWork;
use nodes::Served;
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, lock};
use sheaf_file::{Export, Mode, OFlags};
use sheaf_tree::service::identity::Identity;
use sheaf_tree::service::{Caller, ClientRights, LeafHandle, ServiceRequest, Site, Worker};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Instant;
use tokio::runtime::Handle;

pub use changes::ViewAudit;
#[cfg(test)]
pub(crate) use grace::GRACE;
pub(crate) use grace::Grace;
pub use lending::LOAN_TERM;
pub(crate) use lock_table::{LockOwner, RangeLock, set as set_range};
pub use serving::service;
pub(crate) use submounts::SUB_MOUNTS_MAX;

/// Too many threads hang in the file system of a file: nothing was done.
const NO_PLACE: Errno = Errno(libc::EXFULL);

/// This thread is about to work in a file system.
///
/// # Errors
/// [`NO_PLACE`].
fn enter(device: u64) -> Result<(), Errno> {
    sheaf_core::place::enter_now(device).map_err(|_| NO_PLACE)
}

/// The service's name. It is told which directory is exported, in which `%h` is the host's name.
pub const FILES: &str = "files";

/// The hosts of this process, of which there may be many, and who asks them for files.
#[derive(Default)]
pub struct FileOwners {
    hosts: Mutex<FxHashMap<String, OwnerHost>>,
    /// Where it is heard that what is lent is wanted back; nothing where nothing can be lent.
    lends: OnceLock<Option<Handle>>,
    /// Calls that threads do.
    at_work: AtWork,
    /// The leaves of the session's tree that are hosts of this process.
    leaves: Mutex<FxHashMap<String, LeafHandle>>,
    /// Another process served the hosts before.
    is_successor: bool,
    audit: ViewAudit,
}

struct OwnerHost {
    export: PathBuf,
    served: Arc<Served>,
    clients: FxHashMap<u128, Weak<OwnerClient>>,
    grace: Arc<Mutex<Grace>>,
}

/// What one lane of a client asks for, one after the other.
pub struct OwnerLane {
    owners: Arc<FileOwners>,
    host: String,
    client: Option<Arc<OwnerClient>>,
    /// The host that asks, and its rights.
    caller: Caller,
    rights: ClientRights,
    /// As whom it was asked last.
    last: Option<(FileCaller, Option<Arc<Identity>>)>,
}

impl FileOwners {
    /// The hosts of a process before which another one served them, so that clients may claim locks.
    #[must_use]
    pub fn after_another() -> Self {
        Self { is_successor: true, ..Self::default() }
    }

    /// This host is a leaf of the tree. Later ones of the same name are those of links between hosts.
    fn is_leaf(&self, host: &str, leaf: &LeafHandle) {
        lock(&self.leaves).entry(host.to_owned()).or_insert_with(|| leaf.clone());
    }

    /// Whether another process served this host before.
    fn is_successor(&self, host: &str) -> bool {
        let leaf = lock(&self.leaves).get(host).cloned();
        self.is_successor || leaf.is_some_and(|leaf| leaf.is_successor())
    }

    /// What there is of a client.
    fn client(&self, host: &str, joins: FileClient) -> Result<Arc<OwnerClient>, Errno> {
        let number = joins.number;
        let is_successor = self.is_successor(host);
        let mut hosts = lock(&self.hosts);
        let host = hosts.get_mut(host).ok_or(Errno::STALE)?;
        if let Some(client) = host.clients.get(&number).and_then(Weak::upgrade) {
            // Nothing of one is shown to another.
            return if client.joined == joins { Ok(client) } else { Err(Errno::INVAL) };
        }
        host.clients.retain(|_, client| client.strong_count() > 0);
        lock(&host.grace).client_came(|| is_successor, Instant::now());
        let lends = self.lends.get().cloned().flatten();
        let client = OwnerClient::new(host.served.clone(), lends, joins, host.grace.clone())?;
        let client = Arc::new(client);
        host.clients.insert(number, Arc::downgrade(&client));
        Ok(client)
    }

    /// Who has joined with this number.
    fn known(&self, host: &str, number: u128) -> Option<Arc<OwnerClient>> {
        lock(&self.hosts).get(host)?.clients.get(&number)?.upgrade()
    }

    fn all_clients(&self) -> Vec<Arc<OwnerClient>> {
        let hosts = lock(&self.hosts);
        let all = hosts.values().flat_map(|host| host.clients.values());
        all.filter_map(Weak::upgrade).collect()
    }
}

impl OwnerLane {
    fn new(owners: Arc<FileOwners>, site: &Site<'_>, caller: &Caller) -> Result<Self, Errno> {
        // A session of another program says nothing of it.
        let export = str::from_utf8(site.config).ok().filter(|export| !export.is_empty());
        let export = export.ok_or(Errno::NOSYS)?.replace("%h", site.host);
        let lane = Self::serving(owners, site.host, Path::new(&export))?;
        Ok(Self { caller: caller.clone(), ..lane.with_rights(caller.rights()) })
    }

    /// One for this directory of this host, by whatever way its requests come.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn serving(owners: Arc<FileOwners>, host: &str, export: &Path) -> Result<Self, Errno> {
        let mut hosts = lock(&owners.hosts);
        if !hosts.contains_key(host) {
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let root = Export::open(export)?.open_file(Path::new("."), flags, Mode::empty())?;
            let served = Arc::new(Served::new(root.into())?);
            let (export, clients) = (export.to_owned(), FxHashMap::default());
            let grace = Arc::default();
            hosts.insert(host.to_owned(), OwnerHost { export, served, clients, grace });
        }
        drop(hosts);
        let (host, caller, rights) = (host.to_owned(), Caller::Owner, ClientRights::FULL);
        Ok(Self { owners, host, client: None, caller, rights, last: None })
    }

    /// The same for a caller with these rights.
    #[must_use]
    pub fn with_rights(self, rights: ClientRights) -> Self {
        Self { rights, ..self }
    }

    /// Answers an encoded [`FileCall`].
    ///
    /// # Errors
    /// `EBADMSG` when it is none, `ESTALE` when nobody has joined, `EAGAIN` when too many threads hang in the file
    /// system; then nothing was done. What the operation has
    /// failed with stands in the answer.
    pub fn answer(&mut self, request: &[u8]) -> Result<Vec<u8>, Errno> {
        let (FileCall { who, op, keeps_names, .. }, data) = decoded(request)?;
        // A lane that was open before this server was started in the place of another.
        if self.client.is_none() && !matches!(op, NodeOp::Join(_) | NodeOp::Export) {
            return Err(Errno::STALE);
        }
        let mut bytes = Vec::new();
        let answer = self.answer_as(who, (op, keeps_names), data, &mut bytes);
        if answer == Err(NO_PLACE) {
            return Err(Errno::AGAIN);
        }
        if answer.is_err() {
            bytes.clear();
        }
        encoded(&answer, &bytes)
    }

    fn answer_as(
        &mut self,
        who: FileCaller,
        (op, keeps_names): (NodeOp, bool),
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<FileAnswer, Errno> {
        if let NodeOp::Join(client) = op {
            // The way to the top of a view takes the rights of whoever may be no more than that on it.
            let is_limited = !self.rights.may_be_root && rustix::process::geteuid().is_root();
            let identity = if is_limited { self.identity(who)? } else { None };
            let acting = identity.map(|identity| identity.assume()).transpose()?;
            let client = self.owners.client(&self.host, client);
            drop(acting);
            self.client = Some(client?);
            return Ok(FileAnswer::Done);
        }
        if op == NodeOp::Export {
            let hosts = lock(&self.owners.hosts);
            let host = hosts.get(&self.host).ok_or(Errno::STALE)?;
            out.extend_from_slice(host.export.as_os_str().as_bytes());
            return Ok(FileAnswer::Bytes);
        }
        let client = self.client.clone().ok_or(Errno::STALE)?;
        let change = self.owners.audit.of(&client.nodes, &op);
        if !self.rights.may_write && op.changes_files() {
            self.record(&who, change, Some(Errno::ROFS));
            return Err(Errno::ROFS);
        }
        // Whoever asked may be gone.
        let is_over = matches!(
            op,
            NodeOp::Forget(_)
                | NodeOp::Release { .. }
                | NodeOp::Flush { .. }
                | NodeOp::EndWait { .. }
                | NodeOp::LoseFiles
                | NodeOp::MountWanted { .. }
                | NodeOp::MountsBelow { .. }
        );
        if is_over {
            return client.answer(op, data, out);
        }
        let acting = self.identity(who.clone())?.map(|identity| identity.assume()).transpose()?;
        let answer = client.answer_kept(op, keeps_names, data, out);
        drop(acting);
        self.record(&who, change, answer.as_ref().err().copied());
        answer
    }

    /// A view has changed something, or was refused to.
    fn record(&self, who: &FileCaller, change: Option<ViewChange>, failed: Option<Errno>) {
        let Some(change) = change else { return };
        let leaf = lock(&self.owners.leaves).get(&self.host).cloned();
        if let Some(leaf) = &leaf {
            let at = ChangePlace { host: &self.host, leaf, lane: &self.caller, who };
            self.owners.audit.add(change, &at, failed);
        }
    }

    /// As whom something is done; a server that is not root's does nothing for other users than its own.
    fn identity(&mut self, who: FileCaller) -> Result<Option<Arc<Identity>>, Errno> {
        match &self.last {
            Some((last, identity)) if *last == who => Ok(identity.clone()),
            _ => {
                let served = self.squashed(&who);
                let identity = Identity::of_process(served.uid, served.gid, &served.gids);
                let identity = identity.map_err(|_| Errno::ACCES)?;
                self.last = Some((who, identity.clone()));
                Ok(identity)
            }
        }
    }
}

/// The user and the group that root of another host is here, where it may not be root: `nobody`.
const NOBODY: u32 = 65_534;

impl OwnerLane {
    /// The user as whom a request is served: root of a host that may not be root here is nobody, as
    /// on an NFS server that squashes root.
    fn squashed(&self, who: &FileCaller) -> FileCaller {
        if self.rights.may_be_root || !rustix::process::geteuid().is_root() {
            return who.clone();
        }
        let squash = |id: u32| if id == 0 { NOBODY } else { id };
        let gids = if who.uid == 0 { Vec::new() } else { who.gids.clone() };
        let gids = gids.into_iter().filter(|gid| *gid != 0).collect();
        FileCaller { uid: squash(who.uid), gid: squash(who.gid), gids }
    }
}

impl Worker for OwnerLane {
    fn request(&mut self, request: &ServiceRequest) -> Result<Vec<u8>, Errno> {
        let owners = self.owners.clone();
        let _at_work = owners.at_work.begin(request.over());
        self.answer(&request.payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A view of one directory would show all that the host serves, if it took the place of one that
    /// has the top.
    #[test]
    fn client_that_comes_again_with_another_top_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        let owners = Arc::new(FileOwners::default());
        let _lane = OwnerLane::serving(Arc::clone(&owners), "h1", dir.path()).unwrap();
        let client =
            |number, top: &[u8]| FileClient { number, top: top.to_vec(), ..FileClient::default() };
        let all = owners.client("h1", client(1, b"")).unwrap();
        let again = owners.client("h1", client(1, b"")).unwrap();
        assert!(Arc::ptr_eq(&all, &again));
        assert_eq!(owners.client("h1", client(1, b"d")).err(), Some(Errno::INVAL));
        assert!(!Arc::ptr_eq(&all, &owners.client("h1", client(2, b"d")).unwrap()));
    }
}
