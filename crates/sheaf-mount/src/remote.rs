//! The owner of files on another host: by the server of this one and its links, or by the root of the session.
use crate::fuse::{NearerDevice, Remote};
use crate::ids::ShownIds;
use crate::lanes::{HostLanes, Way};
use crate::message::{
    FileAnswer, FileCall, FileCaller, FileClient, NodeOp, ROOT, decoded, encoded,
};
use crate::near::{FILES_NEAR, Near};
use crate::owner::FILES;
use bytes::Bytes;
use sheaf_core::{Errno, RangeSet};
use sheaf_tree::proto::filter::builtin::null;
use sheaf_tree::{Network, Stream, Sync};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The files of all hosts, for one mount.
pub struct HostRemotes {
    network: Network,
    /// Which client asks.
    client: FileClient,
    patience: Duration,
    near: Option<Arc<Near>>,
    lends: bool,
    maps: bool,
    ids: ShownIds,
}

/// The files of one host.
pub struct HostRemote {
    leaf: u32,
    /// The number of the client at this owner.
    client: u128,
    lends: bool,
    maps: bool,
    names_kept: Duration,
    writes_behind: bool,
    ids: ShownIds,
    /// The server of this host, as long as it gets there.
    near: Option<Arc<Near>>,
    is_near: AtomicBool,
    far: HostLanes<TreeWay>,
}

/// By the root.
struct TreeWay {
    network: Network,
    leaf: u32,
}

impl Way for TreeWay {
    type Link = ();

    async fn open(&self) -> Result<(Stream, ()), Errno> {
        let only = RangeSet::single(self.leaf);
        Ok((self.network.open(FILES, only, "null", b"", Sync::WaitForAll), ()))
    }

    /// The root sends to the server that is there.
    fn is_gone(&self, (): &()) -> bool {
        false
    }

    fn only(&self, payload: Bytes) -> Result<Bytes, Errno> {
        let items = null::items(&payload).map_err(|_| Errno::BADMSG)?;
        let item = items.first().ok_or(Errno::BADMSG)?;
        Ok(payload.slice_ref(item))
    }
}

impl HostRemotes {
    /// By the root. Each host has to answer within `patience`.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new(network: &Network, patience: Duration) -> Result<Self, Errno> {
        let client = FileClient { number: random()?, ..FileClient::default() };
        let (network, ids) = (network.clone(), ShownIds::default());
        Ok(Self { network, client, patience, near: None, lends: true, maps: false, ids })
    }

    /// Nothing that is read is lent by its owner.
    #[must_use]
    pub fn without_loans(self) -> Self {
        Self { lends: false, ..self }
    }

    /// Absolute links resolve within the export of their host, except those into the view at this mount point.
    #[must_use]
    pub fn with_links_within(self, point: &Path) -> Self {
        let links_within = Some(point.as_os_str().as_bytes().to_vec());
        Self { client: FileClient { links_within, ..self.client }, ..self }
    }

    /// Of each host this directory below its export is the top. To an owner this is another client: one that
    /// it has been asked by before may be there yet, and has another top.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn with_top(self, top: &Path) -> Result<Self, Errno> {
        let (number, top) = (random()?, top.as_os_str().as_bytes().to_vec());
        Ok(Self { client: FileClient { number, top, ..self.client }, ..self })
    }

    /// Block devices are files that can be read, by users who can read them on their host.
    #[must_use]
    pub fn with_devices(self) -> Self {
        Self { client: FileClient { has_devices: true, ..self.client }, ..self }
    }

    /// Names and attributes are kept for so long, if no other view changes them.
    #[must_use]
    pub fn with_names_kept(self, time: Duration) -> Self {
        let keeps_names_ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        Self { client: FileClient { keeps_names_ms, ..self.client }, ..self }
    }

    /// Programs do not wait for each write to a file that is lent for writing.
    #[must_use]
    pub fn with_writes_behind(self) -> Self {
        Self { client: FileClient { writes_behind: true, ..self.client }, ..self }
    }

    /// Files that are lent when they are opened can be mapped for reading.
    #[must_use]
    pub fn with_maps(self) -> Self {
        Self { maps: true, ..self }
    }

    /// Owners and permission bits are shown in this way.
    #[must_use]
    pub fn with_ids(self, ids: ShownIds) -> Self {
        Self { ids, ..self }
    }

    /// From here on by the server of this host, whose leaf is `own`.
    ///
    /// # Errors
    /// When that does not let anybody in; then they go by the root.
    pub async fn by_own_server(&mut self, own: u32) -> io::Result<()> {
        let only = RangeSet::single(own);
        let stream = self.network.open(FILES_NEAR, only, "null", b"", Sync::WaitForAll);
        let asked = stream.request(0, &b""[..], self.patience).await;
        let answer = asked.map_err(|error| error.errno()).map_err(errno)?.answer().await;
        let failed = answer.coverage.failed.iter().chain(&answer.coverage.silent).next();
        if let Some((why, _)) = failed {
            return Err(errno(*why));
        }
        let payload = answer.payload.unwrap_or_default();
        let names = null::items(&payload).map_err(|_| errno(Errno::BADMSG))?;
        let name = names.first().ok_or_else(|| errno(Errno::BADMSG))?;
        self.near = Some(Arc::new(Near::connect(name, self.client.clone(), self.patience).await?));
        Ok(())
    }

    /// Those of a leaf.
    #[must_use]
    pub fn host(&self, leaf: u32) -> HostRemote {
        let way = TreeWay { network: self.network.clone(), leaf };
        let client = self.client.at(leaf);
        HostRemote {
            leaf,
            client: client.number,
            lends: self.lends,
            maps: self.maps,
            ids: self.ids.clone(),
            near: self.near.clone(),
            is_near: AtomicBool::new(true),
            names_kept: Duration::from_millis(self.client.keeps_names_ms.into()),
            writes_behind: self.client.writes_behind,
            far: HostLanes::new(way, client, self.patience),
        }
    }
}

/// A number that no other client has.
fn random() -> Result<u128, Errno> {
    let mut number = [0; 16];
    rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())?;
    Ok(u128::from_ne_bytes(number))
}

fn errno(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.0)
}

impl HostRemote {
    /// The path of what it exports, on its host, which may be this one.
    ///
    /// # Errors
    /// Those of [`Remote::call`].
    pub async fn export(&self) -> Result<PathBuf, Errno> {
        let (who, op) = (FileCaller::default(), NodeOp::Export);
        let call = FileCall { who, pid: 0, keeps_names: false, op };
        let answer = self.far.call(encoded(&call, &[])?.into()).await?;
        let (answer, path) = decoded::<Result<FileAnswer, Errno>>(&answer)?;
        answer.map(|_| PathBuf::from(OsStr::from_bytes(path)))
    }
}

impl HostRemote {
    /// Whether the directory at the top is there, and may be looked at.
    ///
    /// # Errors
    /// Those of `open(2)` and of [`Remote::call`].
    pub async fn check(&self) -> Result<(), Errno> {
        let (who, op) = (FileCaller::default(), NodeOp::Attributes { node: ROOT, handle: None });
        let answer = self
            .far
            .call(encoded(&FileCall { who, pid: 0, keeps_names: false, op }, &[])?.into())
            .await?;
        decoded::<Result<FileAnswer, Errno>>(&answer)?.0.map(drop)
    }
}

impl Remote for HostRemote {
    async fn call(&self, call: Vec<u8>) -> Result<Bytes, Errno> {
        let call = Bytes::from(call);
        if let Some(near) = &self.near
            && self.is_near.load(Ordering::Relaxed)
        {
            match near.call(self.leaf, call.clone()).await {
                // This session has no such links.
                Some(Err(Errno::OPNOTSUPP)) => self.is_near.store(false, Ordering::Relaxed),
                Some(answer) => return answer,
                None => return Err(Errno::HOSTDOWN),
            }
        }
        self.far.call(call).await
    }

    fn flush_is_of_locks(&self) -> bool {
        true
    }

    fn has_sub_mounts(&self) -> bool {
        true
    }

    fn guards_pages(&self) -> bool {
        true
    }

    fn lends(&self) -> bool {
        self.lends
    }

    fn maps(&self) -> bool {
        self.maps
    }

    fn writes_behind(&self) -> bool {
        self.writes_behind
    }

    fn keeps_names(&self) -> Duration {
        self.names_kept
    }

    fn client(&self) -> u128 {
        self.client
    }

    fn ids(&self) -> &ShownIds {
        &self.ids
    }

    async fn answered_nearer(&self, root: u64, device: NearerDevice<'_>) {
        // Others than root have no part of their view taken away with what is asked meanwhile.
        let is_root = rustix::process::geteuid().is_root();
        let Some(near) = self.near.as_ref().filter(|_| is_root) else { return };
        let answered = match device() {
            Ok(device) => {
                near.answers((self.leaf, root), (self.lends, self.maps, &self.ids), device).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = answered {
            tracing::debug!(%error, leaf = self.leaf, "the server of this host does not answer the kernel");
        }
    }
}
