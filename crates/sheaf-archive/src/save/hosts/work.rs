//! What a host has in hand: directories that wait, records that go to the root, answers that come.
use super::message::{
    ContentItem, DeskAnswer, HostRecord, LinkKey, MESSAGE_BYTES, SaveItem, encoded,
};
use crate::archive::ArchiveError;
use crate::catalog::DirectoryRows;
use crate::name::FileName;
use crate::path::ArchivePath;
use crate::save::commits::ReplacingChange;
use crate::save::desk::{SaveDesk, StoredContent, Unstored};
use crate::save::links::{SavedLinks, StoredLink};
use crate::save::replace::FileStamp;
use crate::save::{SaveReport, SaveWork, SavedDirectory};
use crate::store::StoreError;
use sheaf_core::files::Metadata;
use sheaf_core::{Errno, lock};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of records that wait for the root; beyond that workers wait.
const RECORDS_BYTES_MAX: usize = 4 << 20;
/// How long a worker waits for the root.
const ROOT_WAIT_MAX: Duration = Duration::from_secs(600);
/// How long it waits for a large file that another host stores. A host that is lost does not count.
const CONTENT_WAIT_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long an answer waits for a few more records.
const GATHER: Duration = Duration::from_millis(10);

/// The desk of a host: a channel to the root.
pub(super) struct HostDesk {
    state: Mutex<HostState>,
    /// Something came of the root.
    came: Condvar,
    /// There is something for the root.
    news: Condvar,
    /// Other hosts store names of the same files.
    is_shared: bool,
    links: SavedLinks,
}

/// What a host is to do next.
pub(super) enum HostWork {
    Directory(SaveItem),
    Content(ContentItem),
}

#[derive(Default)]
struct HostState {
    waiting: VecDeque<SaveItem>,
    contents: VecDeque<ContentItem>,
    busy: u32,
    /// Directories at work, by where they go.
    items: HashMap<ArchivePath, ItemInHand>,
    records: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Somebody waits for an answer.
    is_urgent: bool,
    asked: u64,
    answers: HashMap<u64, DeskAnswer>,
    is_over: bool,
}

struct ItemInHand {
    id: u64,
    /// Until it is begun.
    rows: Option<DirectoryRows>,
    directories: Option<Vec<Vec<u8>>>,
}

impl HostDesk {
    pub fn new(is_shared: bool) -> Self {
        Self {
            state: Mutex::default(),
            came: Condvar::new(),
            news: Condvar::new(),
            is_shared,
            links: SavedLinks::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, HostState> {
        lock(&self.state)
    }

    /// Takes what the root has sent.
    pub fn take(
        &self,
        works: Vec<SaveItem>,
        answers: Vec<(u64, DeskAnswer)>,
        contents: Vec<ContentItem>,
    ) {
        let mut state = self.state();
        state.waiting.extend(works);
        state.contents.extend(contents);
        state.answers.extend(answers);
        self.came.notify_all();
    }

    /// Nobody waits for anything any more.
    pub fn end(&self) {
        self.state().is_over = true;
        self.came.notify_all();
        self.news.notify_all();
    }

    /// The next directory or large file; nothing when all is over.
    pub fn next(&self) -> Option<HostWork> {
        let mut state = self.state();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(content) = state.contents.pop_front() {
                state.busy += 1;
                return Some(HostWork::Content(content));
            }
            if let Some(mut item) = state.waiting.pop_front() {
                state.busy += 1;
                let (rows, directories) = (std::mem::take(&mut item.rows), item.directories.take());
                let hand = ItemInHand { id: item.id, rows: Some(rows), directories };
                state.items.insert(item.to.clone(), hand);
                self.news.notify_all();
                return Some(HostWork::Directory(item));
            }
            // Idle hosts wait as long as the stream is there: whoever closes it ends this.
            state = self.came.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A directory is done.
    pub fn finished(&self, to: &ArchivePath) {
        let mut state = self.state();
        if state.items.remove(to).is_some() {
            state.busy -= 1;
            self.news.notify_all();
        }
    }

    /// A large file of another host's directory is stored, or was not.
    pub fn stored(&self, id: u64, object: Option<StoredContent>) -> Result<(), ArchiveError> {
        self.push(&HostRecord::Stored { id, object: object.map(Box::new) })?;
        self.state().busy -= 1;
        self.news.notify_all();
        Ok(())
    }

    /// What goes to the root, after `patience` at the latest, and how many directories more would be
    /// taken by so many workers. It is sooner where somebody waits for an answer, or work.
    pub fn records(&self, patience: Duration, workers: u32) -> (Vec<Vec<u8>>, u32) {
        let (begun, mut state) = (Instant::now(), self.state());
        let mut first: Option<Instant> = None;
        loop {
            let idle = state.waiting.is_empty() && state.contents.is_empty() && state.busy == 0;
            if state.is_over || state.is_urgent || state.bytes >= MESSAGE_BYTES || idle {
                break;
            }
            if !state.records.is_empty() {
                first.get_or_insert_with(Instant::now);
            }
            let end = first.map_or(begun + patience, |first| first + GATHER);
            let Some(left) = end.checked_duration_since(Instant::now()).filter(|l| !l.is_zero())
            else {
                break;
            };
            state = self.news.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let mut records = Vec::new();
        let mut bytes = 0;
        while bytes < MESSAGE_BYTES
            && let Some(record) = state.records.pop_front()
        {
            bytes += record.len();
            records.push(record);
        }
        state.bytes -= bytes;
        // The question may be among the records that did not fit.
        state.is_urgent &= !state.records.is_empty();
        self.came.notify_all();
        // As many wait as are at work: no worker waits for the root between two directories.
        let waiting = state.waiting.len() + state.contents.len();
        let in_hand = state.busy + u32::try_from(waiting).unwrap_or(u32::MAX);
        (records, (2 * workers).saturating_sub(in_hand))
    }

    /// Hands a record in, once there is room for it.
    pub fn push(&self, record: &HostRecord) -> Result<(), ArchiveError> {
        let record = encoded(record);
        let mut state = self.wait(|state| state.bytes < RECORDS_BYTES_MAX)?;
        state.bytes += record.len();
        state.records.push_back(record);
        self.news.notify_all();
        Ok(())
    }

    /// Asks the root.
    fn ask(&self, question: impl FnOnce(u64) -> HostRecord) -> Result<DeskAnswer, ArchiveError> {
        self.ask_for(ROOT_WAIT_MAX, question)
    }

    /// Asks the root for what takes others so long at most.
    fn ask_for(
        &self,
        wait_max: Duration,
        question: impl FnOnce(u64) -> HostRecord,
    ) -> Result<DeskAnswer, ArchiveError> {
        let mut state = self.state();
        state.asked += 1;
        let ask = state.asked;
        let record = encoded(&question(ask));
        state.bytes += record.len();
        state.records.push_back(record);
        state.is_urgent = true;
        drop(state);
        self.news.notify_all();
        let mut state = self.wait_for(wait_max, |state| state.answers.contains_key(&ask))?;
        Ok(state.answers.remove(&ask).expect("it was seen just now"))
    }

    /// Waits until something is so.
    fn wait(
        &self,
        is_so: impl Fn(&HostState) -> bool,
    ) -> Result<MutexGuard<'_, HostState>, ArchiveError> {
        self.wait_for(ROOT_WAIT_MAX, is_so)
    }

    fn wait_for(
        &self,
        wait_max: Duration,
        is_so: impl Fn(&HostState) -> bool,
    ) -> Result<MutexGuard<'_, HostState>, ArchiveError> {
        let (begun, mut state) = (Instant::now(), self.state());
        loop {
            if state.is_over {
                return Err(no_root(Errno::CANCELED));
            }
            if is_so(&state) {
                return Ok(state);
            }
            let Some(left) = wait_max.checked_sub(begun.elapsed()) else {
                return Err(no_root(Errno::TIMEDOUT));
            };
            state = self.came.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn id_of(&self, path: &ArchivePath) -> Option<u64> {
        self.state().items.get(path).map(|item| item.id)
    }

    /// Hands a record of a directory in. What cannot be is of no use to anybody: all is over.
    fn record(&self, of: &ArchivePath, record: impl FnOnce(u64) -> HostRecord) {
        if let Some(id) = self.id_of(of)
            && self.push(&record(id)).is_err()
        {
            self.end();
        }
    }

    /// What the first name of a file comes to is for the other hosts, too.
    fn shared_link(
        &self,
        found: &Metadata,
        store: &mut dyn FnMut() -> Result<StoredLink, Unstored>,
    ) -> Result<StoredLink, Unstored> {
        let key = LinkKey::of(found);
        if let DeskAnswer::Link(Some(stored)) = self.ask(|ask| HostRecord::Link { ask, key })? {
            return Ok(*stored);
        }
        let stored = store();
        // A failure is handed in, too: another host may wait for this file, and stores it then.
        let told = stored.as_ref().ok().cloned();
        self.push(&HostRecord::Linked { key, stored: told })?;
        stored
    }
}

fn no_root(errno: Errno) -> ArchiveError {
    let place = "whoever has the catalog".to_owned();
    StoreError { place, doing: "takes nothing more", errno }.into()
}

impl SaveDesk for HostDesk {
    fn rows_of(&self, path: &ArchivePath) -> Result<DirectoryRows, ArchiveError> {
        let rows = self.state().items.get_mut(path).and_then(|item| item.rows.take());
        rows.ok_or_else(|| no_root(Errno::CANCELED))
    }

    fn is_directory(&self, path: &ArchivePath) -> Result<bool, ArchiveError> {
        if let Some((above, name)) = path.split()
            && let Some(item) = self.state().items.get(&above)
            && let Some(names) = &item.directories
        {
            return Ok(names.binary_search_by(|known| (**known).cmp(name)).is_ok());
        }
        let path = path.clone();
        match self.ask(|ask| HostRecord::IsDirectory { ask, path })? {
            DeskAnswer::IsDirectory(is) => Ok(is),
            DeskAnswer::Link(_) | DeskAnswer::Content(_) => Err(no_root(Errno::BADMSG)),
        }
    }

    fn begun(&self, of: &SavedDirectory) {
        self.record(&of.path, |id| HostRecord::Begun { id, is: of.is.clone() });
    }

    fn found(&self, work: SaveWork) -> Option<SaveWork> {
        if let Some((above, name)) = work.to.split() {
            let name = name.to_vec();
            self.record(&above, |id| HostRecord::Found { id, name });
        }
        None
    }

    fn change(
        &self,
        of: &Arc<SavedDirectory>,
        change: ReplacingChange,
        report: SaveReport,
    ) -> Result<(), ArchiveError> {
        let id = self.id_of(&of.path).ok_or_else(|| no_root(Errno::CANCELED))?;
        self.push(&HostRecord::Change { id, change, report })
    }

    fn done(&self, path: &ArchivePath, report: SaveReport) {
        self.record(path, |id| HostRecord::Done { id, report });
        self.finished(path);
    }

    fn link(
        &self,
        found: &Metadata,
        store: &mut dyn FnMut() -> Result<StoredLink, Unstored>,
    ) -> Result<StoredLink, Unstored> {
        if self.is_shared {
            self.shared_link(found, store)
        } else {
            self.links.stored(found, store)
        }
    }

    fn makes_room(&self, of: &ArchivePath, name: &[u8], was: FileStamp) -> bool {
        let name = name.to_vec();
        self.record(of, |id| HostRecord::InTheWay { id, name, was });
        true
    }

    fn offer(&self, of: &ArchivePath, name: &[u8], part: Option<u32>) {
        if self.is_shared
            && let Some(name) = FileName::new(name)
        {
            self.record(of, |id| HostRecord::Large { id, name, part });
        }
    }

    fn taken(
        &self,
        of: &ArchivePath,
        name: &[u8],
        part: Option<u32>,
    ) -> Result<Option<StoredContent>, ArchiveError> {
        let (Some(id), Some(name)) = (self.id_of(of), FileName::new(name)) else { return Ok(None) };
        if !self.is_shared {
            return Ok(None);
        }
        match self.ask_for(CONTENT_WAIT_MAX, |ask| HostRecord::Content { ask, id, name, part })? {
            DeskAnswer::Content(object) => Ok(object.map(|object| *object)),
            _ => Err(no_root(Errno::BADMSG)),
        }
    }

    fn is_same_link(&self, found: &Metadata, link: &StoredLink, counts: bool) -> bool {
        // What others have stored of it is not asked for each name that has not changed.
        self.is_shared || self.links.is_same(found, link, counts)
    }

    fn comes_again(&self, found: &Metadata) {
        self.links.comes_again(found);
    }
}
