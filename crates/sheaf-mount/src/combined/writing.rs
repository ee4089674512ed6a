//! Writing to all files of a group.
use super::contents::{by_members, errno_of, told};
use super::statuses::StatusTexts;
use rustix::fs::OFlags;
use sheaf_core::{Errno, RangeSet, lock};
use sheaf_group::message::{OpenMessage, Operation};
use sheaf_group::{Client, Group, GroupError, Outcome, Reading, Target};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Mutex;

/// What most operations are called in `status`.
const WRITE: &str = "write data";
const TRUNCATE: &str = "truncate data";
/// Data show no length, so what a program reckons from it (`truncate -s +5`) would cut files that nobody wanted cut.
const NO_LENGTH: &str = "no length can be given to them; > data empties each file";

/// What there is to say of an error, and what programs are told.
type WriteFailed = (String, Errno);

/// Files of a group that are written to.
pub(crate) struct GroupWriting {
    /// Whose it is.
    session: Option<u32>,
    groups: Mutex<Vec<Group>>,
    /// How many files they have.
    members: u64,
    appends: bool,
    /// A length was refused: whoever goes on all the same would write over a part of each file.
    is_refused: AtomicBool,
    done: std::sync::Mutex<WriteDone>,
}

/// What became of all that was done with an open file.
struct WriteDone {
    /// What has failed first.
    what: &'static str,
    failures: WriteFailures,
    /// Whether there is something that `status` does not say yet.
    is_news: bool,
}

/// Who could not do it, and why.
#[derive(Default)]
struct WriteFailures {
    outcome: Outcome,
    /// Why it could not be asked for at all.
    unasked: Option<(String, Errno)>,
}

impl GroupWriting {
    /// Opens all; if one does not open none is changed.
    pub async fn open(
        client: &Client,
        targets: &[Target],
        flags: OFlags,
        session: Option<u32>,
    ) -> Result<Self, WriteFailed> {
        let appends = flags.contains(OFlags::APPEND);
        let own = OFlags::WRONLY | (flags & (OFlags::TRUNC | OFlags::APPEND | OFlags::SYNC));
        let sets = by_members(targets);
        if sets.is_empty() {
            return Err((format!("{WRITE}: the group has no files\n"), Errno::NOENT));
        }
        // Nothing is emptied as long as some may not open.
        if sets.len() > 1 && own.contains(OFlags::TRUNC) {
            for (hosts, paths) in &sets {
                let open = OpenMessage::new(paths.clone(), (own - OFlags::TRUNC).bits(), 0);
                let tried = client.gopen_with(hosts, open).await;
                let tried = tried.map_err(|error| failed(client, "open data", &error))?;
                tried.close().await.map_err(|error| failed(client, "open data", &error))?;
            }
        }
        let mut groups = Vec::new();
        for (hosts, paths) in sets {
            let opened = client.gopen_with(&hosts, OpenMessage::new(paths, own.bits(), 0)).await;
            groups.push(opened.map_err(|error| failed(client, "open data", &error))?);
        }
        let members = groups.iter().map(Group::size).sum();
        // That all were opened, and maybe emptied, is news, too.
        let done = WriteDone { what: WRITE, failures: WriteFailures::default(), is_news: true };
        let (groups, done) = (Mutex::new(groups), std::sync::Mutex::new(done));
        Ok(Self { session, groups, members, appends, is_refused: AtomicBool::new(false), done })
    }

    /// Writes the same to each, and all of it: what a member takes only a part of has failed there, by name.
    pub async fn write(
        &self,
        client: &Client,
        statuses: &StatusTexts,
        data: &[u8],
        offset: u64,
    ) -> Result<(), Errno> {
        if self.is_refused.load(Ordering::Relaxed) {
            return Err(Errno::OPNOTSUPP);
        }
        let operation = match self.appends {
            true => Operation::WriteAll,
            false => Operation::PwriteAll { offset },
        };
        self.operate(client, statuses, WRITE, &operation, data).await
    }

    pub async fn sync(&self, client: &Client, statuses: &StatusTexts) -> Result<(), Errno> {
        self.operate(client, statuses, "sync data", &Operation::Fsync, b"").await
    }

    /// `ftruncate(2)`: of one file as anywhere, of several nobody is asked for it.
    pub async fn set_length(
        &self,
        client: &Client,
        statuses: &StatusTexts,
        length: u64,
    ) -> Result<(), Errno> {
        if self.members == 1 {
            let operation = Operation::Ftruncate { length };
            return self.operate(client, statuses, TRUNCATE, &operation, b"").await;
        }
        self.is_refused.store(true, Ordering::Relaxed);
        let unasked = Some((NO_LENGTH.to_owned(), Errno::OPNOTSUPP));
        let failures = WriteFailures { unasked, ..WriteFailures::default() };
        self.note(client, statuses, TRUNCATE, failures)
    }

    async fn operate(
        &self,
        client: &Client,
        statuses: &StatusTexts,
        what: &'static str,
        operation: &Operation,
        data: &[u8],
    ) -> Result<(), Errno> {
        let mut failures = WriteFailures::default();
        for group in &*self.groups.lock().await {
            failures.add(group.operate(operation.clone(), data).await);
        }
        self.note(client, statuses, what, failures)
    }

    /// A descriptor was closed: what was done is told while whoever closes it waits, for the kernel lets nobody wait
    /// until all are.
    pub fn tell(&self, client: &Client, statuses: &StatusTexts) {
        let mut done = lock(&self.done);
        if std::mem::take(&mut done.is_news) {
            statuses.put(self.session, done.text(client, self.members));
        }
    }

    /// Closes all. Of that only a new failure is told: whoever has closed the file may have done something else since.
    pub async fn close(&self, client: &Client, statuses: &StatusTexts) -> Result<(), Errno> {
        self.tell(client, statuses);
        let mut failures = WriteFailures::default();
        for group in std::mem::take(&mut *self.groups.lock().await) {
            failures.add(group.close().await);
        }
        let Some(errno) = failures.errno() else { return Ok(()) };
        let mut done = lock(&self.done);
        let before = done.text(client, self.members);
        done.fail("close data", failures);
        let text = done.text(client, self.members);
        if text != before {
            statuses.put(self.session, text);
        }
        Err(errno)
    }

    /// Keeps what an operation came to.
    fn note(
        &self,
        client: &Client,
        statuses: &StatusTexts,
        what: &'static str,
        failures: WriteFailures,
    ) -> Result<(), Errno> {
        let mut done = lock(&self.done);
        let Some(errno) = failures.errno() else {
            done.is_news = true;
            return Ok(());
        };
        done.fail(what, failures);
        done.is_news = false;
        // Under the lock, so that whoever closes another descriptor meanwhile does not tell what was before.
        Err(statuses.fail(self.session, (done.text(client, self.members), errno)))
    }
}

impl WriteDone {
    /// What has failed once is told as long as the file is open, whatever succeeds later: what was not written is
    /// still missing.
    fn fail(&mut self, what: &'static str, failures: WriteFailures) {
        if self.failures.errno().is_none() {
            self.what = what;
        }
        self.failures.merge(failures);
    }

    fn text(&self, client: &Client, members: u64) -> String {
        let (what, WriteFailures { outcome, unasked }) = (self.what, &self.failures);
        match unasked {
            Some((why, _)) if outcome.is_ok() => format!("{what}: {why}\n"),
            unasked => {
                let mut all = outcome.clone();
                all.status.count = members.saturating_sub(all.failed_count());
                let notes: Vec<_> = unasked.iter().map(|(why, _)| why.clone()).collect();
                told(client, what, &all, &notes)
            }
        }
    }
}

impl WriteFailures {
    /// Takes in what an operation came to.
    fn add(&mut self, result: Result<Reading, GroupError>) {
        match result {
            Ok(reading) => self.outcome.merge_failures(reading.outcome),
            Err(GroupError::Members(outcome)) => self.outcome.merge_failures(*outcome),
            Err(error) => {
                self.unasked = Some((error.to_string(), super::system(error.errno())));
            }
        }
    }

    fn merge(&mut self, later: Self) {
        self.outcome.merge_failures(later.outcome);
        self.outcome.count_once();
        self.unasked = later.unasked.or(self.unasked.take());
    }

    /// What programs are told, if there is anything.
    fn errno(&self) -> Option<Errno> {
        let unasked = self.unasked.as_ref().map(|(_, errno)| *errno);
        unasked.or_else(|| (!self.outcome.is_ok()).then(|| errno_of(&self.outcome)))
    }
}

/// Refuses to write to several files for a process that has read their joined content: it would write all of that to
/// each. An editor need not empty a file before it writes to it. Who appends adds what is new.
pub(crate) fn refuse_saving(
    statuses: &StatusTexts,
    targets: &[Target],
    flags: OFlags,
    pid: u32,
) -> Result<(), WriteFailed> {
    let is_one = |(hosts, paths): &(RangeSet, Vec<String>)| {
        hosts.len() == 1 && paths.len() == 1 && !sheaf_file::is_pattern(&paths[0])
    };
    let sets = by_members(targets);
    let is_single = sets.len() <= 1 && sets.iter().all(is_one);
    if is_single || flags.contains(OFlags::APPEND) || !statuses.readers.has(pid) {
        return Ok(());
    }
    let why = "refused, because this program has read the joined content of all files, and would write it to each \
               file; write to the files themselves";
    Err((format!("open data: {why}\n"), Errno::PERM))
}

/// What `truncate(2)` is told of data that are not open.
pub(crate) fn no_length() -> (String, Errno) {
    (format!("{TRUNCATE}: {NO_LENGTH}\n"), Errno::OPNOTSUPP)
}

fn failed(client: &Client, what: &str, error: &GroupError) -> WriteFailed {
    match error {
        GroupError::Members(outcome) => (told(client, what, outcome, &[]), errno_of(outcome)),
        error => (format!("{what}: {error}\n"), super::system(error.errno())),
    }
}
