//! File systems that are mounted at the owner below its export: each is a mount of its own in the view.
//!
//! It is mounted when it is entered first. Whoever enters it has looked up a directory, and asks for something of
//! that directory. Such a request waits until the file system is mounted there, and fails with `ESTALE` then: the
//! kernel walks the path again, and enters the mount. A mount namespace into which the mount does not spread
//! asks again at once, and is shown the directory. The kernel walks a path again once only, so whatever is mounted below
//! one that is entered is mounted with it.
use super::point::MountOptions;
use super::{Mounted, Remote, mounted_below};
use crate::message::{FileAnswer, FileCall, FileCaller, NodeOp, SubMountEnd, decoded, encoded};
use crate::owner::SUB_MOUNTS_MAX;
use rustc_hash::FxHashMap;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use sheaf_core::{Errno, lock};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a directory is waited for.
const ENTER_MAX: Duration = Duration::from_secs(5);
/// Pauses between questions.
const ENTER_PAUSE_MIN: Duration = Duration::from_millis(1);
const ENTER_PAUSE_MAX: Duration = Duration::from_millis(20);
/// A thread that comes again within this is not led on by the kernel.
const AGAIN: Duration = Duration::from_secs(1);
/// Threads that are remembered.
const THREADS_MAX: usize = 256;
/// How long the owner waits until it says that nothing is wanted.
const WANTED_WAIT_MS: u32 = 1000;
/// How long those below one that is mounted may take.
const BELOW_MAX: Duration = Duration::from_secs(2);
/// When an owner that does not answer is asked again.
const LOST_PAUSE: Duration = Duration::from_secs(1);

/// The directories at which a file system is to be mounted, and who was sent to walk the path again.
#[derive(Default)]
pub(super) struct Covered(Mutex<FxHashMap<u64, FxHashMap<u32, Instant>>>);

impl Covered {
    /// Another file system is at this node.
    pub fn found(&self, node: u64) {
        lock(&self.0).entry(node).or_default();
    }

    /// Whether a request of this node has to wait.
    pub fn is(&self, node: u64, op: &NodeOp) -> bool {
        let is_over = matches!(op, NodeOp::Release { .. } | NodeOp::Flush { .. });
        !is_over && lock(&self.0).contains_key(&node)
    }

    /// Waits until the file system is mounted.
    ///
    /// # Errors
    /// `ESTALE` when the kernel is to walk the path again.
    pub async fn enter<R: Remote>(&self, remote: &R, node: u64, thread: u32) -> Result<(), Errno> {
        let (begun, mut pause) = (Instant::now(), ENTER_PAUSE_MIN);
        while begun.elapsed() < ENTER_MAX {
            match ask(remote, NodeOp::MountWanted { node }).await? {
                FileAnswer::Count(0) => {}
                FileAnswer::Count(1) => return self.again(node, thread),
                _ => return Ok(()),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(ENTER_PAUSE_MAX);
        }
        Ok(())
    }

    fn again(&self, node: u64, thread: u32) -> Result<(), Errno> {
        let mut covered = lock(&self.0);
        let threads = covered.entry(node).or_default();
        if threads.len() >= THREADS_MAX {
            threads.retain(|_, at| at.elapsed() < AGAIN);
        }
        match threads.insert(thread, Instant::now()) {
            Some(at) if at.elapsed() < AGAIN => Ok(()),
            _ => Err(Errno::STALE),
        }
    }
}

async fn ask<R: Remote>(remote: &R, op: NodeOp) -> Result<FileAnswer, Errno> {
    let who = FileCaller::default();
    let answer =
        remote.call(encoded(&FileCall { who, pid: 0, keeps_names: false, op }, &[])?).await?;
    decoded::<Result<FileAnswer, Errno>>(&answer)?.0
}

/// Mounts what is wanted below a mount, as long as this is not dropped.
pub(super) async fn keep<R: Remote>(remote: Arc<R>, point: PathBuf, options: MountOptions) {
    let (mut mounts, mut done) = (FxHashMap::<u64, Mounted>::default(), Vec::new());
    loop {
        // The owner knows of those that are gone.
        mounts.retain(|_, mount| !mount.is_gone());
        let wanted = NodeOp::Mounts { done: done.clone(), wait_ms: WANTED_WAIT_MS };
        let Ok(FileAnswer::Mounts(wanted)) = ask(&*remote, wanted).await else {
            tokio::time::sleep(LOST_PAUSE).await;
            continue;
        };
        done.clear();
        for (node, place) in wanted {
            // A host may name any number of them.
            if mounts.len() >= SUB_MOUNTS_MAX && !mounts.contains_key(&node) {
                done.push((node, SubMountEnd::Failed));
                continue;
            }
            let (asks, options) = (Arc::clone(&remote), options.clone());
            let (above, within) = (point.clone(), place.clone());
            let (remote, point) = (Arc::clone(&remote), point.clone());
            // The path leads through the mount itself.
            let mounts_it = move || {
                let at = open(&point, &place)?;
                let path = PathBuf::from(format!("/proc/self/fd/{}", at.as_raw_fd()));
                mounted_below(remote, &path, &options, node).map_err(|_| Errno::IO)
            };
            let mounted = tokio::task::spawn_blocking(mounts_it).await.unwrap_or(Err(Errno::IO));
            match mounted {
                Ok(mount) => {
                    mounts.insert(node, mount);
                    // What is below is wanted here as well, so nobody waits for it here.
                    sheaf_tree::task::spawn(async move {
                        enter_below(&*asks, (node, above, within)).await;
                        tell(&*asks, node, SubMountEnd::Mounted).await;
                    });
                }
                Err(errno) => {
                    tracing::warn!(%errno, "a file system below an export is not a mount of its own");
                    done.push((node, SubMountEnd::Failed));
                }
            }
        }
    }
}

/// Has what is mounted at the owner below a new mount mounted as well, as far as that can be done soon.
async fn enter_below<R: Remote>(remote: &R, (node, point, place): (u64, PathBuf, Vec<u8>)) {
    let who = FileCaller::default();
    let op = NodeOp::MountsBelow { node };
    let call = encoded(&FileCall { who, pid: 0, keeps_names: false, op }, &[]);
    let Ok(call) = call else { return };
    let Ok(answer) = remote.call(call).await else { return };
    let Ok((Ok(FileAnswer::Bytes), paths)) = decoded::<Result<FileAnswer, Errno>>(&answer) else {
        return;
    };
    let paths: Vec<Vec<u8>> = paths
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty())
        .map(|path| [&place, &b"/"[..], path].concat())
        .collect();
    if paths.is_empty() {
        return;
    }
    // Whoever looks at a directory enters it.
    let look = move || {
        for path in paths {
            let ask = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
            let looked = open(&point, &path)
                .map(|at| rustix::fs::statx(&at, c"", ask, StatxFlags::BASIC_STATS).map(drop));
            tracing::debug!(?looked, "a file system below one is entered");
        }
    };
    let _ = tokio::time::timeout(BELOW_MAX, tokio::task::spawn_blocking(look)).await;
}

/// Tells the owner that a file system is not mounted any more, at once: another one may be there by now, with the same
/// number.
pub(super) async fn ended<R: Remote>(remote: &R, node: u64) {
    tell(remote, node, SubMountEnd::Gone).await;
}

/// Tells the owner what has become of one.
async fn tell<R: Remote>(remote: &R, node: u64, end: SubMountEnd) {
    let done = vec![(node, end)];
    while ask(remote, NodeOp::Mounts { done: done.clone(), wait_ms: 0 }).await.is_err() {
        tokio::time::sleep(LOST_PAUSE).await;
    }
}

/// The directory at a place below a mount; no link leads away from it.
fn open(point: &std::path::Path, place: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = rustix::fs::openat(CWD, point, flags, Mode::empty())?;
    let place = place.strip_prefix(b"/").filter(|place| !place.is_empty()).ok_or(Errno::NOENT)?;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(top, place, flags, Mode::empty(), within)?)
}
