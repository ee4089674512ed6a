//! An owner of a temporary directory, asked by calls or mounted.
use bytes::Bytes;
use sheaf_core::Errno;
use sheaf_mount::{
    FileAnswer, FileCall, FileCaller, FileClient, FileOwners, MountOptions, Mounted,
    NodeAttributes, NodeName, NodeOp, OwnerLane, ROOT, Remote, ViewForbids,
};
use sheaf_tree::service::ClientRights;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::oneshot::Sender;

/// A directory that is served, by one host of this process.
pub struct Served {
    pub directory: TempDir,
    owners: Arc<FileOwners>,
}

/// Somebody who asks for its files.
pub struct Asker {
    lane: OwnerLane,
    pub who: FileCaller,
}

impl Served {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), owners: Arc::default() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Another process serves the directory from now on.
    pub fn restart(&mut self) {
        self.owners = Arc::new(FileOwners::after_another());
    }

    /// Waits until the owner no longer answers that clients claim their locks.
    pub fn wait_for_grace(&self, mut ask: impl FnMut() -> Result<FileAnswer, Errno>) {
        let begun = Instant::now();
        while ask() == Ok(FileAnswer::InGrace) {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn lane(&self) -> OwnerLane {
        OwnerLane::serving(self.owners.clone(), "n1", self.directory.path()).unwrap()
    }

    /// One of this number.
    pub fn asker(&self, number: u128) -> Asker {
        let mut asker = Asker { lane: self.lane(), who: own() };
        asker.ask(NodeOp::Join(client(number))).unwrap();
        asker
    }

    /// The same of a host with these rights.
    pub fn asker_with(&self, number: u128, rights: ClientRights) -> Asker {
        let mut asker = Asker { lane: self.lane().with_rights(rights), who: own() };
        asker.ask(NodeOp::Join(client(number))).unwrap();
        asker
    }

    /// Its files at another directory, which is gone with what is returned; nothing where this machine or user
    /// cannot mount.
    pub fn mounted(&self) -> Option<MountedHere> {
        if !can_mount() {
            return None;
        }
        let point = tempfile::tempdir().unwrap();
        let number = u128::from(fastrand::u64(..));
        let lanes = || {
            let mut lane = self.lane();
            let join = FileCall {
                who: own(),
                pid: 0,
                keeps_names: false,
                op: NodeOp::Join(client(number)),
            };
            lane.answer(&postcard::to_stdvec(&join).unwrap()).unwrap();
            lane
        };
        let remote = Arc::new(Here { lanes: (0..8).map(|_| Mutex::new(lanes()).into()).collect() });
        let options = MountOptions {
            source: "sheaf:test".to_owned(),
            for_all: rustix::process::geteuid().is_root(),
            forbids: ViewForbids::default(),
        };
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let at = point.path().to_owned();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mounted = Mounted::new(remote, &at, &options).unwrap();
                tell.send(()).unwrap();
                // Whoever drops the other end has no more use for it.
                drop(ended.await);
                drop(mounted);
            });
        });
        told.recv().unwrap();
        Some(MountedHere { point, end: Some(end), thread: Some(thread) })
    }
}

/// Whether this test may mount; if not it is said.
pub fn can_mount() -> bool {
    let is_there = Path::new("/dev/fuse").exists();
    let may = rustix::process::geteuid().is_root() || sheaf_testing::program::have("fusermount3");
    if !is_there {
        sheaf_testing::skipped("there is no /dev/fuse");
    } else if !may {
        sheaf_testing::skipped("who is not root needs fusermount3 to mount");
    }
    is_there && may
}

/// A client whose links keep their text.
fn client(number: u128) -> FileClient {
    FileClient { number, ..FileClient::default() }
}

fn own() -> FileCaller {
    FileCaller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        gids: Vec::new(),
    }
}

/// A mount of this test.
pub struct MountedHere {
    pub point: TempDir,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MountedHere {
    pub fn path(&self, name: &str) -> PathBuf {
        self.point.path().join(name)
    }
}

impl Drop for MountedHere {
    fn drop(&mut self) {
        drop(self.end.take());
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

/// An owner in this process.
struct Here {
    lanes: Vec<Arc<Mutex<OwnerLane>>>,
}

impl Remote for Here {
    async fn call(&self, call: Vec<u8>) -> Result<Bytes, Errno> {
        let lane = self.lanes[fastrand::usize(..self.lanes.len())].clone();
        let answer = move || lane.lock().unwrap_or_else(|lane| lane.into_inner()).answer(&call);
        let answered = tokio::task::spawn_blocking(answer).await;
        answered.map_err(|_| Errno::IO)?.map(Bytes::from)
    }
}

impl Asker {
    /// Asks, with bytes behind the request; the answer, and the bytes behind it.
    pub fn ask_with(&mut self, op: NodeOp, data: &[u8]) -> Result<(FileAnswer, Vec<u8>), Errno> {
        let mut request = postcard::to_stdvec(&FileCall {
            who: self.who.clone(),
            pid: 0,
            keeps_names: false,
            op,
        })
        .unwrap();
        request.extend_from_slice(data);
        let answer = self.lane.answer(&request)?;
        let (answer, bytes) =
            postcard::take_from_bytes::<Result<FileAnswer, Errno>>(&answer).unwrap();
        answer.map(|answer| (answer, bytes.to_vec()))
    }

    pub fn ask(&mut self, op: NodeOp) -> Result<FileAnswer, Errno> {
        self.ask_with(op, &[]).map(|(answer, _)| answer)
    }

    /// The node of a path.
    pub fn node(&mut self, path: &str) -> Result<NodeAttributes, Errno> {
        let mut found = None;
        for name in path.split('/') {
            let parent = found.as_ref().map_or(ROOT, |found: &NodeAttributes| found.node);
            let at = NodeName { parent, name: name.as_bytes().to_vec() };
            match self.ask(NodeOp::Lookup(at))? {
                FileAnswer::Node(node) => found = Some(node),
                other => panic!("{other:?}"),
            }
        }
        Ok(found.unwrap())
    }

    pub fn open(&mut self, path: &str, flags: i32) -> Result<u64, Errno> {
        let node = self.node(path)?.node;
        match self.ask(NodeOp::Open { node, flags: flags as u32 })? {
            FileAnswer::Opened(handle) | FileAnswer::OpenedRunnable(handle) => Ok(handle),
            other => panic!("{other:?}"),
        }
    }
}
