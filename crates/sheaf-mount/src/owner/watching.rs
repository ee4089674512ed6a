//! Files whose pages or sizes the kernels of clients keep.
//!
//! A client's kernel keeps pages of a file for `sendfile`, `splice` and `MAP_PRIVATE`, and trusts the size that it knows
//! when a program reads without waiting (`io_uring`, `libaio`). A lease of the kernel's guards pages of files that nobody
//! has open for writing (`lending.rs`). For all others, a client's change of a file waits here until every
//! client that has the file open in this way has dropped the pages, and again after the change until it
//! knows the new size and has dropped pages that were read meanwhile. A client that does not answer within
//! [`LOAN_TERM`] is not waited for any longer, until it answers again; it drops all pages itself when it hears nothing
//! for so long.
//!
//! A client's kernel also computes the file position after an append from the size that it knows. So every client
//! that appends to a file learns each new size, except the sizes that it causes itself.
use super::lending::LOAN_TERM;
use crate::message::{FileNews, NewsOf};
use rustc_hash::FxHashMap;
use sheaf_core::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Instant;
use tokio::sync::Notify;

/// News that one client has not taken; beyond that it does not take any.
const NEWS_MAX: usize = 4096;

/// What one client is to be told.
#[derive(Default)]
pub(super) struct ClientNews {
    state: Mutex<NewsState>,
    /// The client has done what it was told.
    done: Condvar,
}

#[derive(Default)]
struct NewsState {
    last: u64,
    /// What is not done yet, and when it was told.
    news: VecDeque<(FileNews, Instant)>,
    /// It has not answered in time, and not since.
    is_late: bool,
    /// Who waits for news.
    waiter: Option<Arc<Notify>>,
}

/// Device and inode.
type WatchedFile = (u64, u64);

/// An open file of a client.
struct Watch {
    client: Weak<ClientNews>,
    handle: u64,
    /// Its kernel may keep pages.
    has_pages: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct Watchers {
    count: AtomicUsize,
    files: Mutex<FxHashMap<WatchedFile, Vec<Watch>>>,
}

impl ClientNews {
    /// Whoever waits for news is woken by this.
    pub fn wakes(&self, waiter: &Arc<Notify>) {
        lock(&self.state).waiter = Some(waiter.clone());
    }

    /// What is not done yet, after the client has done news of these numbers. It may be several mounts, each with open
    /// files of its own, so one does not answer for another.
    pub fn take(&self, done: &[u64]) -> Vec<FileNews> {
        let mut state = lock(&self.state);
        state.is_late = false;
        state.news.retain(|(one, _)| !done.contains(&one.number));
        self.done.notify_all();
        state.news.iter().map(|(one, _)| *one).collect()
    }

    /// Tells it; the number, unless the client does not take any more.
    fn tell(&self, handle: u64, size: Option<u64>) -> Option<u64> {
        let mut state = lock(&self.state);
        if state.is_late {
            // Nobody waits for older sizes.
            state.news.retain(|(one, _)| !matches!(one.of, NewsOf::Size(of, _) if of == handle));
        }
        state.tell(size.map_or(NewsOf::Pages(handle), |size| NewsOf::Size(handle, size)))
    }

    /// Tells it that attributes of a node, and names in it, are about to change.
    pub fn tell_names(&self, node: u64) -> Option<u64> {
        lock(&self.state).tell(NewsOf::Names(node))
    }

    /// The client has closed a file.
    fn closed(&self, handle: u64) {
        lock(&self.state).news.retain(|(one, _)| one.of.handle() != Some(handle));
        self.done.notify_all();
    }

    /// Waits until all up to this number is done.
    pub fn wait(&self, number: u64, until: Instant) {
        let mut state = lock(&self.state);
        while !state.is_late && state.news.iter().any(|(one, _)| one.number <= number) {
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                state.is_late = true;
                // A client that hears of other news, and does not know the file of this, holds nobody up again.
                state.news.retain(|(_, at)| at.elapsed() < LOAN_TERM);
                return;
            };
            state = match self.done.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }
}

impl NewsState {
    fn tell(&mut self, of: NewsOf) -> Option<u64> {
        if self.news.len() >= NEWS_MAX {
            return None;
        }
        self.last += 1;
        let number = self.last;
        self.news.push_back((FileNews { number, of }, Instant::now()));
        self.waiter.iter().for_each(|waiter| waiter.notify_waiters());
        Some(number)
    }
}

impl Watchers {
    /// A client wants to know of changes of a file that it has open, and of pages if its kernel keeps some.
    pub fn watch(&self, file: WatchedFile, client: &Arc<ClientNews>, handle: u64, has_pages: bool) {
        let mut files = lock(&self.files);
        let watches = files.entry(file).or_default();
        let of_client = |one: &&mut Watch| {
            one.handle == handle && std::ptr::eq(one.client.as_ptr(), Arc::as_ptr(client))
        };
        match watches.iter_mut().find(of_client) {
            Some(watch) => watch.has_pages |= has_pages,
            None => watches.push(Watch { client: Arc::downgrade(client), handle, has_pages }),
        }
        self.count.store(files.len(), Ordering::SeqCst);
    }

    /// The client has closed the file.
    pub fn closed(&self, client: &Arc<ClientNews>, handle: u64) {
        if !self.is_empty() {
            let is_other = |one: &Watch| {
                one.handle != handle || !std::ptr::eq(one.client.as_ptr(), Arc::as_ptr(client))
            };
            self.retain(is_other);
        }
        // From now on nobody tells it more of this file.
        client.closed(handle);
    }

    fn retain(&self, keep: impl Fn(&Watch) -> bool) {
        let mut files = lock(&self.files);
        files.retain(|_, watches| {
            watches.retain(&keep);
            !watches.is_empty()
        });
        self.count.store(files.len(), Ordering::SeqCst);
    }

    /// Whether no client watches any file.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Waits until no client has pages of the file that it was given before, and each knows its size if it has grown,
    /// except one client that has made it grow to this size.
    pub fn tell(&self, file: WatchedFile, size: Option<u64>, grower: Option<&Arc<ClientNews>>) {
        let mut told = Vec::new();
        {
            let mut files = lock(&self.files);
            for watch in files.get_mut(&file).into_iter().flatten() {
                let Some(client) = watch.client.upgrade() else { continue };
                let mut number = None;
                if std::mem::take(&mut watch.has_pages) {
                    number = client.tell(watch.handle, None);
                }
                let is_grower = grower.is_some_and(|grower| Arc::ptr_eq(grower, &client));
                if size.is_some() && !is_grower {
                    number = client.tell(watch.handle, size).or(number);
                }
                told.extend(number.map(|number| (client, number)));
            }
        }
        let until = Instant::now() + LOAN_TERM;
        told.iter().for_each(|(client, number)| client.wait(*number, until));
        // Clients that have gone.
        if !told.is_empty() {
            self.retain(|one| one.client.strong_count() > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody would ever do it, and who waits for other news waits for it, too.
    #[test]
    fn news_of_a_closed_file_is_not_left() {
        const FILE: WatchedFile = (1, 1);
        let (watchers, client) = (Watchers::default(), Arc::<ClientNews>::default());
        watchers.watch(FILE, &client, 0, false);
        std::thread::scope(|scope| {
            let tells = || {
                for size in 0..3000 {
                    watchers.tell(FILE, Some(size), None);
                }
            };
            let teller = scope.spawn(tells);
            let mut handle = 0;
            while !teller.is_finished() {
                handle += 1;
                watchers.watch(FILE, &client, handle, false);
                watchers.closed(&client, handle - 1);
                // What it has open it does.
                let own: Vec<u64> = client
                    .take(&[])
                    .iter()
                    .filter(|one| one.of.handle() == Some(handle))
                    .map(|one| one.number)
                    .collect();
                client.take(&own);
            }
            watchers.closed(&client, handle);
        });
        assert_eq!(client.take(&[]), []);
        assert!(watchers.is_empty());
    }

    #[test]
    fn news_of_an_unknown_file_holds_up_once() {
        const FILE: WatchedFile = (1, 1);
        let (watchers, client) = (Watchers::default(), Arc::<ClientNews>::default());
        watchers.watch(FILE, &client, 7, false);
        let begun = Instant::now();
        watchers.tell(FILE, Some(1), None);
        assert!(begun.elapsed() >= LOAN_TERM);
        assert_eq!(client.take(&[]), []);
        // Of another file.
        let number = client.tell_names(3).unwrap();
        client.take(&[number]);
        client.wait(number, Instant::now() + LOAN_TERM);
        assert!(begun.elapsed() < 2 * LOAN_TERM);
    }
}
