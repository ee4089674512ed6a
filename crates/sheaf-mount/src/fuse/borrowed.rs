//! Bytes that owners have lent: they are read again here without asking.
//!
//! The kernel keeps none of them, so that when one is called back it is enough to drop it here.
//!
//! Where files can be mapped (`MAP_SHARED`), a file that is lent when it is opened is the exception: the kernel keeps
//! pages of it. Before each `read(2)` of such a file the kernel asks for its attributes (`FUSE_AUTO_INVAL_DATA`). As long as
//! the file is lent, that is answered here, and the pages are as the file. When the loan is called back the pages
//! are dropped before it is given back. After that the owner is asked, and the kernel drops the pages if size or time of
//! change differ. Such a read can combine pages of two moments, so files are not opened in this way by default.
//! `FUSE_NOTIFY_INVAL_INODE` cannot replace that comparison: after it the kernel ignores the answer that it waits for.
use crate::message::{Loan, NodeAttributes};
use crate::owner::LOAN_TERM;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use sheaf_core::lock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Bytes that are kept of the files of one host, at most, and of those of all hosts by one process.
const BORROWED_BYTES_MAX: usize = 64 << 20;
const BORROWED_BYTES_ALL_MAX: usize = 256 << 20;
/// Those that this process keeps.
static BORROWED_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Bytes that come along when a file is opened.
pub(super) const FIRST_BYTES: u32 = 16 << 10;
/// Bytes that are read ahead: at first, and at most, with those that are asked for.
const AHEAD_BYTES_MIN: u32 = 64 << 10;
const AHEAD_BYTES_MAX: u32 = 1 << 20;
/// How long other requests for pages of a file ask for nothing more while one is under way that does.
const AHEAD_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long a file that was called back, or could not be lent, is read without loan.
const LOAN_PAUSE: Duration = Duration::from_secs(1);
/// Clocks may go at rates that differ by this part.
const CLOCK_SLACK: u32 = 8;

/// What is lent by one host.
#[derive(Default)]
pub(super) struct Borrowed(Mutex<BorrowedState>);

#[derive(Default)]
struct BorrowedState {
    files: FxHashMap<u64, BorrowedFile>,
    /// Nodes of which the kernel keeps pages.
    pages: FxHashMap<u64, CachedPages>,
    /// Bytes that are kept.
    bytes: usize,
    /// How often something was called back.
    recalls: u64,
    /// Somebody asks for recalls.
    is_heeded: bool,
}

/// Pages that the kernel keeps of a node.
#[derive(Default)]
struct CachedPages {
    /// Open files by which it keeps some.
    files: usize,
    /// How often pages came that are not lent, or are not any more, and how many of these are dropped.
    came: u64,
    dropped: u64,
}

/// An open file, of which a stretch may be here.
#[derive(Default)]
struct BorrowedFile {
    from: u64,
    bytes: Bytes,
    /// What is kept for them.
    kept: usize,
    /// The file ends behind them.
    ends: bool,
    /// Since when it is lent, and until when they are as the file's.
    since: Option<Instant>,
    until: Option<Instant>,
    /// Who believes that something is lent.
    lender: Option<u64>,
    not_before: Option<Instant>,
    /// It is lent for writing, and not its bytes.
    is_to_write: bool,
    /// The node, if the kernel keeps pages of it.
    cached: Option<u64>,
    /// Its attributes, as long as it is lent.
    attributes: Option<NodeAttributes>,
    /// Where who reads on goes on, and how much was read ahead.
    next: u64,
    ahead: u32,
    /// Since when pages are read ahead.
    ahead_since: Option<Instant>,
}

/// When something was asked for that may be lent.
#[derive(Clone, Copy)]
pub(super) struct LoanAsked {
    at: Instant,
    recalls: u64,
}

impl Borrowed {
    fn state(&self) -> MutexGuard<'_, BorrowedState> {
        lock(&self.0)
    }

    /// Something is about to be asked for.
    pub fn asking(&self, now: Instant) -> LoanAsked {
        LoanAsked { at: now, recalls: self.state().recalls }
    }

    /// What a read gets, if that is known here.
    pub fn read(&self, handle: u64, offset: u64, size: u32, now: Instant) -> Option<Bytes> {
        let mut state = self.state();
        let file = state.files.get_mut(&handle)?;
        if file.until? <= now {
            return None;
        }
        let at = usize::try_from(offset.checked_sub(file.from)?).ok()?;
        let there = file.bytes.len();
        let found = match at.checked_add(size as usize) {
            Some(end) if end <= there => file.bytes.slice(at..end),
            _ if file.ends => file.bytes.slice(at.min(there)..),
            _ => return None,
        };
        file.next = offset + found.len() as u64;
        Some(found)
    }

    /// The files of which bytes are here that are as the file's, and these bytes.
    pub fn size(&self, now: Instant) -> (u64, u64) {
        let state = self.state();
        let lent = state.files.values().filter(|file| file.until.is_some_and(|until| now < until));
        lent.fold((0, 0), |(files, bytes), file| (files + 1, bytes + file.bytes.len() as u64))
    }

    /// How much more is asked for with this read; nothing if it cannot be lent.
    pub fn ahead(&self, handle: u64, offset: u64, size: u32, now: Instant) -> Option<u32> {
        let mut state = self.state();
        let file = state.files.get_mut(&handle)?;
        if file.not_before.is_some_and(|at| now < at) {
            return None;
        }
        file.ahead = match offset == file.next {
            true => (file.ahead * 2).max(AHEAD_BYTES_MIN),
            false => 0,
        };
        file.ahead = file.ahead.min(AHEAD_BYTES_MAX.saturating_sub(size));
        file.next = offset + u64::from(size);
        Some(file.ahead)
    }

    /// As [`Self::ahead`], for pages. The kernel asks for several stretches at a time, and the first one brings the others.
    pub fn pages_ahead(&self, handle: u64, offset: u64, size: u32, now: Instant) -> Option<u32> {
        let ahead = self.ahead(handle, offset, size, now)?;
        let mut state = self.state();
        let file = state.files.get_mut(&handle)?;
        if ahead > 0 && file.ahead_since.is_some_and(|at| now < at + AHEAD_WAIT_MAX) {
            return Some(0);
        }
        file.ahead_since = (ahead > 0).then_some(now);
        Some(ahead)
    }

    /// A file was opened, of which the kernel keeps pages if it is lent now. Whether that is so.
    pub fn caches(&self, handle: u64, found: NodeAttributes) -> bool {
        let mut state = self.state();
        let Some(file) = state.files.get_mut(&handle) else { return false };
        if file.until.is_some() {
            (file.cached, file.attributes) = (Some(found.node), Some(found));
            state.pages.entry(found.node).or_default().files += 1;
        }
        state.files.get(&handle).is_some_and(|file| file.cached.is_some())
    }

    /// Whether the kernel keeps pages of an open file.
    pub fn is_cached(&self, handle: u64) -> bool {
        self.state().files.get(&handle).is_some_and(|file| file.cached.is_some())
    }

    /// The attributes of an open file whose pages are as the file.
    pub fn attributes(&self, handle: u64, now: Instant) -> Option<NodeAttributes> {
        let state = self.state();
        let file = state.files.get(&handle)?;
        let pages = state.pages.get(&file.cached?)?;
        let is_lent = file.until? > now && pages.came == pages.dropped;
        file.attributes.filter(|_| is_lent)
    }

    /// Attributes that the owner has said of an open file are kept, if it is lent all the time since it was asked.
    pub fn keep_attributes(&self, handle: u64, asked: LoanAsked, found: NodeAttributes) {
        let mut state = self.state();
        let is_called_back = state.recalls != asked.recalls;
        if let Some(file) = state.files.get_mut(&handle)
            && file.cached.is_some()
            && !is_called_back
            && file.since.is_some_and(|since| since <= asked.at)
            && file.until.is_some_and(|until| until > asked.at)
        {
            file.attributes = Some(found);
        }
    }

    /// Whether bytes that were asked for at this moment are lent.
    pub fn is_lent(&self, handle: u64, asked: LoanAsked) -> bool {
        let state = self.state();
        let file = state.files.get(&handle).filter(|_| state.recalls == asked.recalls);
        file.is_some_and(|file| file.until.is_some_and(|until| until > asked.at))
    }

    /// The kernel gets pages of a node that are not lent.
    pub fn gives_unlent(&self, node: u64) {
        if let Some(pages) = self.state().pages.get_mut(&node) {
            pages.came += 1;
        }
    }

    /// The kernel has dropped pages that are not lent up to this number.
    pub fn dropped(&self, node: u64, came: u64) {
        if let Some(pages) = self.state().pages.get_mut(&node) {
            pages.dropped = pages.dropped.max(came);
        }
    }

    /// Nodes of which the kernel may have pages that are not lent.
    pub fn all_unlent(&self) -> Vec<(u64, u64)> {
        let state = self.state();
        let unlent = state.pages.iter().filter(|(_, pages)| pages.came != pages.dropped);
        unlent.map(|(node, pages)| (*node, pages.came)).collect()
    }

    /// A file was opened that may be lent. Whether somebody has to ask for recalls from now on.
    pub fn opened(&self, handle: u64, asked: LoanAsked, lent: Option<(Loan, Bytes)>) -> bool {
        self.closed(handle);
        self.state().files.insert(handle, BorrowedFile::default());
        match lent {
            Some((loan, bytes)) => self.lent(handle, asked, loan, 0, bytes),
            None => {
                self.refused(handle, asked.at);
                false
            }
        }
    }

    /// Bytes were lent. Whether somebody has to ask for recalls from now on.
    pub fn lent(&self, handle: u64, asked: LoanAsked, loan: Loan, from: u64, bytes: Bytes) -> bool {
        let mut state = self.state();
        let is_called_back = state.recalls != asked.recalls;
        let is_over = |file: &BorrowedFile| file.until.is_some_and(|until| until <= asked.at);
        if state.files.get(&handle).is_some_and(is_over) {
            state.drop_bytes(handle);
        }
        let Some(file) = state.files.get_mut(&handle) else { return false };
        file.lender = Some(loan.lender);
        // If it was among what was called back meanwhile is not known.
        if !is_called_back {
            let until = asked.at + LOAN_TERM - LOAN_TERM / CLOCK_SLACK;
            let kept = bytes.len();
            (file.from, file.bytes, file.ends) = (from, bytes, loan.ends);
            file.ahead_since = None;
            if file.until.is_none() {
                // What was asked for with this is of this moment or later.
                file.since = Some(Instant::now().max(asked.at));
            }
            file.until = file.until.max(Some(until));
            let before = std::mem::replace(&mut file.kept, kept);
            state.bytes = state.bytes - before + kept;
            BORROWED_BYTES.fetch_sub(before, Ordering::Relaxed);
            let all = BORROWED_BYTES.fetch_add(kept, Ordering::Relaxed) + kept;
            if state.bytes > BORROWED_BYTES_MAX || all > BORROWED_BYTES_ALL_MAX {
                state.drop_bytes(handle);
            }
        }
        !std::mem::replace(&mut state.is_heeded, true)
    }

    /// A file is lent for writing. Whether somebody has to ask for recalls from now on.
    pub fn lent_to_write(&self, handle: u64, asked: LoanAsked, lender: u64) -> bool {
        self.state().files.entry(handle).or_default().is_to_write = true;
        self.lent(handle, asked, Loan { lender, ends: false }, 0, Bytes::new())
    }

    /// Whether a file is lent for writing.
    pub fn is_lent_to_write(&self, handle: u64, now: Instant) -> bool {
        let state = self.state();
        let file = state.files.get(&handle).filter(|file| file.is_to_write);
        file.is_some_and(|file| file.until.is_some_and(|until| now < until))
    }

    /// A file is not lent for writing any more, or cannot be.
    pub fn refused_to_write(&self, handle: u64, now: Instant) {
        let mut state = self.state();
        state.files.entry(handle).or_default().not_before = Some(now + LOAN_PAUSE);
    }

    /// This mount does not write to a file any more without waiting.
    pub fn writes_no_more(&self, handle: u64) {
        if let Some(file) = self.state().files.get_mut(&handle).filter(|file| file.is_to_write) {
            (file.is_to_write, file.lender, file.until) = (false, None, None);
        }
    }

    /// Whether the owner may be asked to lend a file for writing.
    pub fn may_ask_to_write(&self, handle: u64, now: Instant) -> bool {
        let state = self.state();
        let not_before = state.files.get(&handle).and_then(|file| file.not_before);
        not_before.is_none_or(|at| at <= now)
    }

    /// The owner does not lend it.
    pub fn refused(&self, handle: u64, now: Instant) {
        if let Some(file) = self.state().files.get_mut(&handle) {
            file.not_before = Some(now + LOAN_PAUSE);
        }
    }

    pub fn closed(&self, handle: u64) {
        let mut state = self.state();
        state.drop_bytes(handle);
        let closed = state.files.remove(&handle);
        if let Some(node) = closed.and_then(|file| file.cached)
            && let Some(pages) = state.pages.get_mut(&node)
        {
            pages.files -= 1;
            if pages.files == 0 {
                state.pages.remove(&node);
            }
        }
    }

    /// Whether somebody has to ask for recalls from now on, as something is kept.
    pub fn must_heed(&self) -> bool {
        !std::mem::replace(&mut self.state().is_heeded, true)
    }

    /// Whether this is an open file of this mount.
    pub fn has(&self, handle: u64) -> bool {
        self.state().files.contains_key(&handle)
    }

    /// Whether there is something that can be called back, or is to be given back.
    pub fn goes_on(&self, done: &[u64], is_kept: bool) -> bool {
        let mut state = self.state();
        state.is_heeded =
            is_kept || !done.is_empty() || state.files.values().any(|file| file.lender.is_some());
        state.is_heeded
    }

    /// Of all that this lender had lent before it was asked, these are called back.
    pub fn called_back(&self, asked: LoanAsked, lender: u64, handles: &[u64]) {
        let mut state = self.state();
        if !handles.is_empty() {
            state.recalls += 1;
        }
        for handle in handles {
            state.drop_bytes(*handle);
            if let Some(file) = state.files.get_mut(handle) {
                file.lender = None;
                file.not_before = Some(asked.at + LOAN_PAUSE);
            }
        }
        let until = asked.at + LOAN_TERM - LOAN_TERM / CLOCK_SLACK;
        for file in state.files.values_mut() {
            match file.lender {
                Some(one) if one == lender => file.until = file.until.map(|at| at.max(until)),
                // Of one that is not there any more: it is over when its time is.
                Some(_) => file.lender = None,
                None => {}
            }
        }
    }

    /// The owner says nothing any more.
    pub fn lost(&self) {
        let mut state = self.state();
        let all: Vec<_> = state.files.keys().copied().collect();
        for handle in all {
            state.drop_bytes(handle);
        }
        state.recalls += 1;
        state.files.values_mut().for_each(|file| file.lender = None);
        state.is_heeded = false;
    }

    /// What always holds.
    #[cfg(test)]
    fn check(&self) {
        let state = self.state();
        let kept: usize = state.files.values().map(|file| file.kept).sum();
        assert_eq!(kept, state.bytes);
        assert!(state.bytes <= BORROWED_BYTES_MAX);
        assert!(BORROWED_BYTES.load(Ordering::Relaxed) <= BORROWED_BYTES_ALL_MAX + (1 << 20));
        for file in state.files.values() {
            assert!(file.until.is_none() || file.kept >= file.bytes.len());
        }
    }

    /// There is no mount any more.
    pub fn ended(&self) {
        self.state().end();
    }
}

impl Drop for BorrowedState {
    fn drop(&mut self) {
        self.end();
    }
}

impl BorrowedState {
    fn drop_bytes(&mut self, handle: u64) {
        let Some(file) = self.files.get_mut(&handle) else { return };
        if let (Some(node), Some(_)) = (file.cached, file.until)
            && let Some(pages) = self.pages.get_mut(&node)
        {
            pages.came += 1;
        }
        (file.bytes, file.until, file.ends) = (Bytes::new(), None, false);
        (file.since, file.attributes) = (None, None);
        let kept = std::mem::take(&mut file.kept);
        self.bytes -= kept;
        BORROWED_BYTES.fetch_sub(kept, Ordering::Relaxed);
    }

    fn end(&mut self) {
        self.files.clear();
        self.pages.clear();
        BORROWED_BYTES.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u32 = 8;

    /// An owner as the kernel and `owner/lending.rs` make one, with a file whose content is a number.
    #[derive(Default)]
    struct ModelOwner {
        content: u64,
        lender: u64,
        /// Handle, when it was granted, and until when it holds a writer up once it is wanted back.
        lent: Vec<(u64, Instant, Option<Instant>)>,
        /// Those of a client that is gone.
        left: Vec<Instant>,
        confirmed: Option<Instant>,
        is_wanted: bool,
    }

    enum ModelMessage {
        Read { handle: u64, opens: bool, asked: LoanAsked },
        Recalls { lender: u64, done: Vec<u64>, asked: LoanAsked },
        ReadAnswer { handle: u64, opens: bool, asked: LoanAsked, content: u64, lender: Option<u64> },
        Recalled { lender: u64, files: Vec<u64>, asked: LoanAsked },
    }

    impl ModelOwner {
        fn look(&mut self) {
            let (wanted, confirmed) = (self.is_wanted, self.confirmed);
            for (_, granted, due) in self.lent.iter_mut().filter(|(_, _, due)| due.is_none()) {
                let due_at = (*granted).max(confirmed.unwrap_or(*granted)) + LOAN_TERM;
                *due = wanted.then_some(due_at);
            }
        }

        /// Whether somebody who waits to write may do so now.
        fn writes(&mut self, now: Instant) -> bool {
            self.look();
            self.left.retain(|until| now < *until);
            self.lent.iter().all(|(_, _, due)| due.is_some_and(|at| at <= now))
                && self.left.is_empty()
        }

        fn answer(&mut self, message: ModelMessage, now: Instant) -> Option<ModelMessage> {
            match message {
                ModelMessage::Read { handle, opens, asked } => {
                    let old = self.lent.iter_mut().find(|(one, ..)| *one == handle);
                    let lends = match old {
                        Some((_, granted, None)) => {
                            *granted = now;
                            true
                        }
                        Some(_) => false,
                        None if self.is_wanted => false,
                        None => {
                            self.lent.push((handle, now, None));
                            true
                        }
                    };
                    let (content, lender) = (self.content, lends.then_some(self.lender));
                    Some(ModelMessage::ReadAnswer { handle, opens, asked, content, lender })
                }
                ModelMessage::Recalls { lender, done, asked } => {
                    // Those of a client before this one are not its own.
                    if lender == self.lender {
                        self.lent.retain(|(handle, ..)| !done.contains(handle));
                    }
                    self.look();
                    self.confirmed = Some(now);
                    let due = self.lent.iter().filter(|(_, _, due)| due.is_some());
                    let files = due.map(|(handle, ..)| *handle).collect();
                    Some(ModelMessage::Recalled { lender: self.lender, files, asked })
                }
                _ => None,
            }
        }
    }

    /// Whatever messages do on their way, nobody reads what was before a write that is done.
    #[test]
    fn leased_content_is_never_stale() {
        let mut hits = 0;
        for seed in 0..3000 {
            hits += one_model_run(seed);
        }
        assert!(hits > 10_000, "{hits}");
    }

    #[expect(clippy::too_many_lines, reason = "one scenario")]
    fn one_model_run(seed: u64) -> u32 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut now, borrowed) = (Instant::now(), Borrowed::default());
        let mut owner = ModelOwner { lender: 1, ..ModelOwner::default() };
        // When each arrives, and where.
        let mut under_way: Vec<(Instant, ModelMessage)> = Vec::new();
        let (mut done, mut asks, mut hits) = (Vec::new(), None::<Instant>, 0);
        let slow = random.u64(1..400);
        for _ in 0..600 {
            now += Duration::from_millis(random.u64(..30));
            let delay = Duration::from_millis(random.u64(..slow));
            match random.u32(..20) {
                0 => owner.is_wanted = true,
                // The link is cut: its other end makes a new client of who comes by another.
                1 if random.u32(..8) == 0 => {
                    let left = owner.lent.drain(..).map(|_| now + LOAN_TERM);
                    owner.left.extend(left);
                    owner.lender += 1;
                    under_way.retain(|_| random.bool());
                }
                2 => borrowed.closed(random.u64(..3)),
                3 => {
                    let (handle, asked) = (random.u64(..3), borrowed.asking(now));
                    let opens = !borrowed.state().files.contains_key(&handle);
                    under_way.push((now + delay, ModelMessage::Read { handle, opens, asked }));
                }
                _ => {
                    let handle = random.u64(..3);
                    if let Some(found) = borrowed.read(handle, 0, SIZE, now) {
                        hits += 1;
                        assert_eq!(found, owner.content.to_le_bytes()[..], "seed {seed}");
                    }
                }
            }
            if owner.is_wanted && owner.writes(now) {
                owner.content += 1;
                owner.is_wanted = false;
                // Whose time is over stays wanted back until that is told.
            }
            if asks.is_none() && borrowed.goes_on(&done, false) {
                let (done, asked) = (std::mem::take(&mut done), borrowed.asking(now));
                let lender = owner.lender;
                under_way.push((now + delay, ModelMessage::Recalls { lender, done, asked }));
                asks = Some(now);
            }
            // Nothing has come back for long.
            if asks.is_some_and(|at| now > at + Duration::from_secs(5)) {
                borrowed.lost();
                asks = None;
                under_way.retain(|(_, message)| !matches!(message, ModelMessage::Recalled { .. }));
            }
            let (arrived, later): (Vec<_>, Vec<_>) =
                under_way.into_iter().partition(|(at, _)| *at <= now);
            under_way = later;
            for (_, message) in arrived {
                match message {
                    ModelMessage::ReadAnswer { handle, opens, asked, content, lender } => {
                        let bytes = Bytes::copy_from_slice(&content.to_le_bytes());
                        let lent = lender.map(|lender| (Loan { lender, ends: true }, bytes));
                        match (opens, lent) {
                            (true, lent) => drop(borrowed.opened(handle, asked, lent)),
                            (false, Some((loan, bytes))) => {
                                borrowed.lent(handle, asked, loan, 0, bytes);
                            }
                            (false, None) => borrowed.refused(handle, now),
                        }
                    }
                    ModelMessage::Recalled { lender, files, asked } => {
                        borrowed.called_back(asked, lender, &files);
                        (done, asks) = (files, None);
                    }
                    message => {
                        let answer = owner.answer(message, now);
                        under_way.extend(answer.map(|answer| (now + delay, answer)));
                    }
                }
            }
            borrowed.check();
        }
        hits
    }

    #[test]
    fn leased_bytes_of_all_hosts_are_bounded() {
        let (now, bytes) = (Instant::now(), Bytes::from(vec![7; 1 << 20]));
        let hosts: Vec<Borrowed> = (0..6).map(|_| Borrowed::default()).collect();
        let mut kept = 0;
        for (host, handle) in
            hosts.iter().flat_map(|host| (0..80).map(move |handle| (host, handle)))
        {
            let asked = host.asking(now);
            host.opened(handle, asked, Some((Loan { lender: 1, ends: true }, bytes.clone())));
            kept += usize::from(host.read(handle, 0, 1, now).is_some());
            host.check();
        }
        // Other tests keep some, too.
        assert!((250..=256).contains(&kept), "{kept}");
        hosts[0].closed(0);
        drop(hosts);
        assert!(BORROWED_BYTES.load(Ordering::Relaxed) < 6 << 20);
    }
}
