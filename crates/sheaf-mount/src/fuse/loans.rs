//! What a mount does with what its owner lends: it asks for it, answers the kernel with it, and gives it back.
use super::borrowed::{FIRST_BYTES, LoanAsked};
use super::device::WatchedDevice;
use super::reply::{ReplyAs, reply};
use super::{Remote, View};
use crate::message::{FileAnswer, FileCall, FileCaller, NodeOp, decoded, encoded};
use bytes::Bytes;
use sheaf_core::{Errno, lock};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// When a mount asks again after it was told what concerns another mount of the same client.
const OTHERS_PAUSE: Duration = Duration::from_millis(2);
/// How long the kernel keeps pages without word from the owner.
const PAGES_TERM: Duration = Duration::from_millis(1750);
/// How long an owner waits until it says that nothing is wanted back.
const RECALLS_WAIT_MS: u32 = 1000;

/// What an answer may lend, or what a loan decides about it.
pub(super) enum LoanOf {
    Opened,
    /// A file that is written to.
    Written {
        handle: u64,
    },
    Read {
        handle: u64,
        offset: u64,
        size: u32,
    },
    /// Pages of a file of which the kernel keeps them. The owner reports changes, if it was asked for pages.
    Pages {
        handle: u64,
        offset: u64,
        size: u32,
        is_reported: bool,
    },
    /// The size of such a file, for which the kernel asks before it reads pages that it has.
    Size {
        handle: u64,
    },
}

impl<R: Remote> View<R> {
    /// Answers what needs nobody because it is lent. Whether that was possible.
    pub(super) fn answers_by_loans(
        &self,
        device: &WatchedDevice,
        unique: u64,
        how: &ReplyAs,
        op: &NodeOp,
    ) -> Result<bool, Errno> {
        let now = Instant::now();
        let bytes = match *op {
            NodeOp::Read { handle, offset, size } => self.borrowed.read(handle, offset, size, now),
            NodeOp::ReadPages { handle, offset, size } if self.borrowed.is_cached(handle) => {
                self.borrowed.read(handle, offset, size, now)
            }
            NodeOp::Attributes { handle: Some(handle), .. } => {
                let Some(found) = self.borrowed.attributes(handle, now) else { return Ok(false) };
                let answer = self.remote.ids().answer(FileAnswer::Node(found));
                reply(device, unique, how, answer, &[])?;
                return Ok(true);
            }
            _ => None,
        };
        if let Some(bytes) = &bytes {
            device.send(unique, &[bytes]).map_err(|error| Errno::from_io(&error))?;
        }
        Ok(bytes.is_some())
    }

    /// The same with what may be lent, where that is so.
    pub(super) fn borrowing(
        &self,
        node: u64,
        op: NodeOp,
        lends: bool,
    ) -> (NodeOp, Option<(LoanOf, LoanAsked)>) {
        let asked = || self.borrowed.asking(Instant::now());
        match op {
            NodeOp::Open { node, flags } if self.remote.lends() && is_to_read(flags) => {
                let op = NodeOp::OpenLent { node, flags, ahead: FIRST_BYTES };
                (op, Some((LoanOf::Opened, asked())))
            }
            NodeOp::Write { handle, offset, flags } if lends => {
                let op = NodeOp::WriteLent { handle, offset, flags };
                (op, Some((LoanOf::Written { handle }, asked())))
            }
            NodeOp::Read { handle, offset, size } => {
                let now = Instant::now();
                let Some(ahead) = self.borrowed.ahead(handle, offset, size, now) else {
                    return (op, None);
                };
                let op = NodeOp::ReadLent { handle, offset, size, ahead };
                (op, Some((LoanOf::Read { handle, offset, size }, asked())))
            }
            NodeOp::ReadPages { handle, offset, size } if self.borrowed.is_cached(handle) => {
                let ahead = self.borrowed.pages_ahead(handle, offset, size, Instant::now());
                let of = LoanOf::Pages { handle, offset, size, is_reported: ahead.is_none() };
                match ahead {
                    Some(ahead) => {
                        let op = NodeOp::ReadLent { handle, offset, size, ahead };
                        (op, Some((of, asked())))
                    }
                    None => (op, Some((of, asked()))),
                }
            }
            NodeOp::ReadPages { .. } => {
                self.borrowed.gives_unlent(node);
                (op, None)
            }
            NodeOp::Attributes { handle: Some(handle), .. } if self.borrowed.is_cached(handle) => {
                (op, Some((LoanOf::Size { handle }, asked())))
            }
            NodeOp::Release { handle, .. } => {
                self.borrowed.closed(handle);
                (op, None)
            }
            op => (op, None),
        }
    }

    /// Pages of a file that was lent when it was opened. Those that are not lent any more are asked for again, so
    /// that the owner reports changes of them.
    pub(super) async fn guarded_pages(
        &self,
        node: u64,
        (handle, offset, size): (u64, u64, u32),
        all: Bytes,
    ) -> Result<Bytes, Errno> {
        let (answer, _) = decoded::<Result<FileAnswer, Errno>>(&all)?;
        if !matches!(answer, Ok(FileAnswer::Bytes)) {
            return Ok(all);
        }
        self.borrowed.gives_unlent(node);
        let (who, op) = (FileCaller::default(), NodeOp::ReadPages { handle, offset, size });
        self.remote.call(encoded(&FileCall { who, pid: 0, keeps_names: false, op }, &[])?).await
    }

    /// Keeps what was lent; what remains is the answer to what the kernel has asked.
    pub(super) fn borrow<'a>(
        self: &Arc<Self>,
        device: &Arc<WatchedDevice>,
        (node, of, asked): (u64, &LoanOf, LoanAsked),
        answer: FileAnswer,
        all: &Bytes,
        bytes: &'a [u8],
    ) -> (FileAnswer, &'a [u8]) {
        // A short part would keep the room of all that came with it.
        let kept = || match bytes.len() > FIRST_BYTES as usize {
            true => all.slice_ref(bytes),
            false => Bytes::copy_from_slice(bytes),
        };
        let first = |size: u32| &bytes[..bytes.len().min(size as usize)];
        let (is_first, answer, bytes) = match (of, answer) {
            (LoanOf::Opened, FileAnswer::OpenedLent(handle, loan, found)) => {
                let is_first = self.borrowed.opened(handle, asked, Some((loan, kept())));
                let is_cached = self.remote.maps() && self.borrowed.caches(handle, found);
                let answer = match is_cached {
                    true => {
                        self.pages.keeps(handle, found.node);
                        FileAnswer::OpenedLent(handle, loan, found)
                    }
                    false => FileAnswer::Opened(handle),
                };
                (is_first, answer, &bytes[..0])
            }
            (LoanOf::Opened, FileAnswer::Opened(handle)) => {
                (self.borrowed.opened(handle, asked, None), FileAnswer::Opened(handle), bytes)
            }
            (LoanOf::Written { handle }, FileAnswer::WrittenLent(count, lender)) => {
                let is_first = self.borrowed.lent_to_write(*handle, asked, lender);
                (is_first, FileAnswer::Count(count), bytes)
            }
            (LoanOf::Written { handle }, FileAnswer::Count(count)) => {
                self.borrowed.refused_to_write(*handle, Instant::now());
                (false, FileAnswer::Count(count), bytes)
            }
            (LoanOf::Read { handle, offset, size }, FileAnswer::Lent(loan)) => {
                let is_first = self.borrowed.lent(*handle, asked, loan, *offset, kept());
                (is_first, FileAnswer::Bytes, first(*size))
            }
            (LoanOf::Pages { handle, offset, size, .. }, FileAnswer::Lent(loan)) => {
                let is_first = self.borrowed.lent(*handle, asked, loan, *offset, kept());
                if !self.borrowed.is_lent(*handle, asked) {
                    self.borrowed.gives_unlent(node);
                }
                (is_first, FileAnswer::Bytes, first(*size))
            }
            (LoanOf::Read { handle, .. }, answer) => {
                self.borrowed.refused(*handle, Instant::now());
                (false, answer, bytes)
            }
            (LoanOf::Pages { handle, size, .. }, answer) => {
                self.borrowed.gives_unlent(node);
                self.borrowed.refused(*handle, Instant::now());
                (false, answer, first(*size))
            }
            (LoanOf::Size { handle }, FileAnswer::Node(found)) => {
                self.borrowed.keep_attributes(*handle, asked, found);
                (false, FileAnswer::Node(found), bytes)
            }
            (_, answer) => (false, answer, bytes),
        };
        if is_first {
            self.begin_heeding(device);
        }
        (answer, bytes)
    }

    /// Starts the task that answers recalls. It has the device, so it ends with the view.
    pub(super) fn begin_heeding(self: &Arc<Self>, device: &Arc<WatchedDevice>) {
        let heeds = sheaf_tree::task::spawn(self.clone().heed_recalls(device.clone()));
        // The one before has come to its end, or is at it.
        drop(lock(&self.heeds).replace(heeds));
    }

    /// Gives back what is wanted back, as long as anything is lent.
    async fn heed_recalls(self: Arc<Self>, device: Arc<WatchedDevice>) {
        let (mut done, mut told, mut is_settling) = (Vec::new(), Vec::new(), false);
        while self
            .borrowed
            .goes_on(&done, is_settling || !self.pages.is_empty() || self.names.is_used())
        {
            let begun = Instant::now();
            let (asked, wait_ms) = (self.borrowed.asking(begun), RECALLS_WAIT_MS);
            let (who, op) = (FileCaller::default(), NodeOp::Recalls { done, told, wait_ms });
            let answer = match encoded(&FileCall { who, pid: 0, keeps_names: false, op }, &[]) {
                Ok(call) => match self.pages.is_empty() {
                    true => self.remote.call(call).await,
                    // The owner does not wait longer for what the kernel keeps.
                    false => tokio::time::timeout(PAGES_TERM, self.remote.call(call))
                        .await
                        .unwrap_or(Err(Errno::TIMEDOUT)),
                },
                Err(errno) => Err(errno),
            };
            let answer = answer.and_then(|answer| {
                decoded::<Result<FileAnswer, Errno>>(&answer).and_then(|(answer, _)| answer)
            });
            match answer {
                Ok(FileAnswer::Recalled(lender, files, news)) => {
                    self.borrowed.called_back(asked, lender, &files);
                    self.heed_names(&device, (lender, begun), &news).await;
                    self.pages.heed(&device, &files, &news).await;
                    // Another mount of the same client answers for its own open files.
                    let is_own = |handle| self.borrowed.has(handle) || self.pages.has(handle);
                    let is_any = !(files.is_empty() && news.is_empty());
                    let own_news = news
                        .iter()
                        .filter(|one| one.of.handle().map_or(self.names.is_on(), is_own));
                    told = own_news.map(|one| one.number).collect();
                    let files: Vec<u64> =
                        files.into_iter().filter(|handle| is_own(*handle)).collect();
                    done = self.behind.settled(&files).await;
                    is_settling = done.len() < files.len();
                    if is_any && done.is_empty() && told.is_empty() {
                        tokio::time::sleep(OTHERS_PAUSE).await;
                    }
                    // Nobody reports what programs of the owner change of mapped pages that are not lent.
                    if !is_any {
                        for (node, came) in self.borrowed.all_unlent() {
                            self.pages.drop_node(&device, node).await;
                            self.borrowed.dropped(node, came);
                        }
                    }
                }
                _ => {
                    self.borrowed.lost();
                    self.forget_at_owner(self.names.lost());
                    return self.pages.drop_all(&device).await;
                }
            }
        }
    }
}

/// Whether a file is opened to be read alone, and not past all caches.
fn is_to_read(flags: u32) -> bool {
    let all = libc::O_ACCMODE | libc::O_DIRECTORY | libc::O_TRUNC | libc::O_DIRECT;
    flags & all as u32 == libc::O_RDONLY as u32
}
