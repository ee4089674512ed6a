//! What the owner lends: bytes for reading by many, or a file for writing by one.
//!
//! Who has been lent bytes of a file may read them again without asking. A loan is a lease of the kernel's
//! (`fcntl(2)`, `F_SETLEASE`) on the file that is open here: whoever is about to open the file for writing, a
//! program of this host as well, is kept waiting by the kernel until the loan has been called back. Where
//! somebody has it open for writing there is none. Who has been lent a file for writing need not wait for its writes
//! (`fuse/behind.rs`): whoever is about to open the file at all is kept waiting until those have come. Where somebody
//! else has the file open there is no such loan.
//!
//! A loan is over at the latest [`LOAN_TERM`] after it was confirmed, so that who cannot be told holds nobody up
//! for longer. Who was lent something asks for recalls all the time ([`OwnerLoans::recalls`]); that no recall is
//! answered confirms the others.
//!
//! Only bytes are lent here, because the kernel guards no attributes and no names (`keeping.rs` lends those, for views
//! that trust programs of this host not to change them for some time). Owner and borrower
//! count the term from the owner's last message. The borrower counts from before it asked for that
//! message (`fuse/borrowed.rs`), so it stops first. An answer that was requested before a recall is
//! not a loan. A model with an owner, a writer, and slow and lost messages checks that no stale
//! byte is read.
use super::watching::ClientNews;
use crate::message::FileNews;
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, lock};
use sheaf_tree::service::identity::as_process;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// How long bytes are lent without word from the owner.
pub const LOAN_TERM: Duration = Duration::from_secs(2);
/// Files of which bytes are lent to one client.
pub const LOANS_MAX: usize = 1024;
/// File systems whose files nobody changes but by this kernel: ext, XFS, Btrfs, tmpfs, overlay, F2FS, bcachefs.
const LOCAL_FILE_SYSTEMS: [u64; 7] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0xf2f5_2010, 0xca45_1a4e];

/// What one client has been lent.
pub(super) struct OwnerLoans {
    /// Nobody else's number.
    pub lender: u64,
    /// Where waiting is done, where files can be lent at all.
    runtime: Option<Handle>,
    shared: Arc<SharedLoans>,
    /// What else the client is told.
    pub told: Arc<ClientNews>,
}

#[derive(Default)]
struct SharedLoans {
    table: Mutex<LoanTable>,
    /// Something is wanted back, or there is other news.
    news: Arc<Notify>,
}

#[derive(Default)]
struct LoanTable {
    lent: FxHashMap<u64, OwnerLoan>,
    /// When the client was told last that what is not wanted back is its own.
    confirmed: Option<Instant>,
}

struct OwnerLoan {
    file: Arc<OwnedFd>,
    /// `F_RDLCK` or `F_WRLCK`.
    kind: i32,
    granted: Instant,
    /// It is wanted back, and over at this moment.
    due: Option<Instant>,
    /// Writes under way for which no program waits. The loan does not end before they are done.
    writes: usize,
    /// It is over, or is when these writes are done.
    is_over: bool,
}

/// A write to a file that is lent for writing, which is under way until this is dropped.
pub(super) struct LentWrite<'a>(&'a SharedLoans, u64);

impl Drop for LentWrite<'_> {
    fn drop(&mut self) {
        if let Some(loan) = lock(&self.0.table).lent.get_mut(&self.1) {
            loan.writes = loan.writes.saturating_sub(1);
            if loan.is_over && loan.writes == 0 {
                end_lease(&loan.file);
            }
        }
    }
}

/// Whether there is a loan.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lending {
    Refused,
    New,
    /// It was there before.
    Old,
}

impl OwnerLoans {
    pub fn new(runtime: Option<Handle>) -> Self {
        let lender = RandomState::new().build_hasher().finish();
        let (shared, told) = (Arc::<SharedLoans>::default(), Arc::<ClientNews>::default());
        told.wakes(&shared.news);
        Self { lender, runtime, shared, told }
    }

    /// Lends a file that is open for reading, if that can be done.
    pub fn lend(&self, handle: u64, file: &Arc<OwnedFd>) -> Lending {
        if self.runtime.is_none() {
            return Lending::Refused;
        }
        let mut table = lock(&self.shared.table);
        table.lend(handle, file, libc::F_RDLCK)
    }

    /// Lends a file that is open for writing, and was written to, to be written to by this client alone. Whether that
    /// can be done.
    pub fn lend_to_write(&self, handle: u64, file: &Arc<OwnedFd>) -> bool {
        self.runtime.is_some()
            && lock(&self.shared.table).lend(handle, file, libc::F_WRLCK) != Lending::Refused
    }

    /// A write begins that the client believes to be done.
    ///
    /// # Errors
    /// `ESTALE` when the file is not lent any more.
    pub fn write_behind(&self, handle: u64) -> Result<LentWrite<'_>, Errno> {
        let mut table = lock(&self.shared.table);
        let is_lent = |loan: &&mut OwnerLoan| loan.kind == libc::F_WRLCK && !loan.is_over;
        let loan = table.lent.get_mut(&handle).filter(is_lent).ok_or(Errno::STALE)?;
        loan.writes += 1;
        Ok(LentWrite(&self.shared, handle))
    }

    /// The client does not write to this file any more. It knows that.
    pub fn written(&self, handle: u64) {
        let is_to_write = |loan: &OwnerLoan| loan.kind == libc::F_WRLCK;
        let mut table = lock(&self.shared.table);
        if table.lent.get(&handle).is_some_and(is_to_write)
            && let Some(loan) = table.lent.remove(&handle)
        {
            end_lease(&loan.file);
        }
    }

    /// Whether what was read meanwhile, if that went well, is lent.
    pub fn stands(&self, handle: u64, file: &OwnedFd, lending: Lending, is_read: bool) -> bool {
        let stands = is_read && lease(file) == Ok(libc::F_RDLCK);
        // Nobody has been told of it.
        if !stands && lending == Lending::New {
            self.shared.take_back(handle);
        }
        stands
    }

    /// The file is about to be closed, which ends its lease.
    pub fn closed(&self, handle: u64) {
        if self.runtime.is_some() {
            lock(&self.shared.table).lent.remove(&handle);
        }
    }

    /// Looks what is wanted back.
    pub fn look(&self) {
        let Some(runtime) = &self.runtime else { return };
        let due = self.shared.look();
        if due.is_empty() {
            return;
        }
        self.shared.news.notify_waiters();
        // Whoever does not answer loses them.
        let loans = Arc::downgrade(&self.shared);
        runtime.spawn(async move {
            for (handle, at) in due {
                tokio::time::sleep_until(at.into()).await;
                let Some(loans) = loans.upgrade() else { return };
                loans.end(handle, at);
            }
        });
    }

    /// What is wanted back, which is waited for so long at most; these are given back.
    /// News of these numbers is done; what more there is to tell comes along.
    pub async fn recalls(
        &self,
        done: &[u64],
        told_before: &[u64],
        wait: Duration,
    ) -> (Vec<u64>, Vec<FileNews>) {
        self.shared.give_back(done);
        let until = Instant::now() + wait.min(LOAN_TERM / 2);
        loop {
            let told = self.shared.news.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            let begun = Instant::now();
            self.look();
            let (recalled, news) = (self.shared.confirm(begun), self.told.take(told_before));
            if !recalled.is_empty() || !news.is_empty() {
                return (recalled, news);
            }
            if tokio::time::timeout_at(until.into(), told).await.is_err() {
                let begun = Instant::now();
                self.look();
                return (self.shared.confirm(begun), self.told.take(told_before));
            }
        }
    }
}

impl Drop for OwnerLoans {
    /// A client that cannot be told reads on until its time is over.
    fn drop(&mut self) {
        let lent = std::mem::take(&mut lock(&self.shared.table).lent);
        if let (Some(runtime), false) = (&self.runtime, lent.is_empty()) {
            runtime.spawn(async move {
                tokio::time::sleep(LOAN_TERM).await;
                drop(lent);
            });
        }
    }
}

impl LoanTable {
    fn lend(&mut self, handle: u64, file: &Arc<OwnedFd>, kind: i32) -> Lending {
        if let Some(loan) = self.lent.get_mut(&handle) {
            if loan.due.is_some() || loan.kind != kind {
                return Lending::Refused;
            }
            loan.granted = Instant::now();
            return Lending::Old;
        }
        if self.lent.len() >= LOANS_MAX || is_empty(file) || !is_local(file) {
            return Lending::Refused;
        }
        // Whoever looks for recalls waits meanwhile.
        let (file, granted) = (file.clone(), Instant::now());
        if as_process(|| set_lease(&file, kind)).is_err() {
            return Lending::Refused;
        }
        let loan = OwnerLoan { file, kind, granted, due: None, writes: 0, is_over: false };
        self.lent.insert(handle, loan);
        Lending::New
    }
}

impl SharedLoans {
    /// Those that are wanted back since the last look, and when they are over.
    fn look(&self) -> Vec<(u64, Instant)> {
        let mut table = lock(&self.table);
        let (confirmed, mut due) = (table.confirmed, Vec::new());
        for (handle, loan) in &mut table.lent {
            if loan.due.is_none() && lease(&loan.file) != Ok(loan.kind) {
                let at = loan.granted.max(confirmed.unwrap_or(loan.granted)) + LOAN_TERM;
                loan.due = Some(at);
                due.push((*handle, at));
            }
        }
        drop(table);
        due.sort_by_key(|(_, at)| *at);
        due
    }

    /// All that is wanted back; the others were looked at after this moment.
    fn confirm(&self, at: Instant) -> Vec<u64> {
        let mut table = lock(&self.table);
        // Another mount of the same client may have been answered meanwhile.
        table.confirmed = table.confirmed.max(Some(at));
        let recalled = table.lent.iter().filter(|(_, loan)| loan.due.is_some());
        recalled.map(|(handle, _)| *handle).collect()
    }

    /// What was wanted back is given back. What was lent again meanwhile stays lent.
    fn give_back(&self, handles: &[u64]) {
        let mut table = lock(&self.table);
        for handle in handles {
            if table.lent.get(handle).is_some_and(|loan| loan.due.is_some())
                && let Some(loan) = table.lent.remove(handle)
            {
                end_lease(&loan.file);
            }
        }
    }

    /// Ends a loan that the client does not know of.
    fn take_back(&self, handle: u64) {
        if let Some(loan) = lock(&self.table).lent.remove(&handle) {
            end_lease(&loan.file);
        }
    }

    /// The time of a loan is over; that it was wanted back is still to be told. If it was given back in time, the same
    /// open file may have been lent again, which is another loan.
    fn end(&self, handle: u64, at: Instant) {
        if let Some(loan) = lock(&self.table).lent.get_mut(&handle)
            && loan.due == Some(at)
        {
            loan.is_over = true;
            if loan.writes == 0 {
                end_lease(&loan.file);
            }
        }
    }
}

fn end_lease(file: &OwnedFd) {
    if let Err(errno) = as_process(|| set_lease(file, libc::F_UNLCK)) {
        tracing::debug!(%errno, "a lease was over before");
    }
}

/// Whether this system tells in time who has been lent something.
pub(super) fn system_lends() -> bool {
    let number = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/fs/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    number("leases-enable") == Some(1)
        && number("lease-break-time").is_some_and(|most| most >= 2 * LOAN_TERM.as_secs())
}

/// Whether the file is empty. The process that has just created it may not have opened it yet, and a lease would
/// delay that open.
fn is_empty(file: &OwnedFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|found| found.st_size == 0)
}

fn is_local(file: &OwnedFd) -> bool {
    let kind = rustix::fs::fstatfs(file).map(|found| found.f_type as u64);
    kind.is_ok_and(|kind| LOCAL_FILE_SYSTEMS.contains(&kind))
}

/// The lease on an open file, as it is to become if somebody waits for it.
#[allow(unsafe_code)]
fn lease(file: &OwnedFd) -> Result<i32, Errno> {
    // SAFETY: the call takes no pointer.
    let kind = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) };
    if kind < 0 { Err(Errno::from_io(&std::io::Error::last_os_error())) } else { Ok(kind) }
}

#[allow(unsafe_code)]
fn set_lease(file: &OwnedFd, kind: i32) -> Result<(), Errno> {
    let (fd, process) = (file.as_raw_fd(), std::process::id().cast_signed());
    // The process is told of recalls, and not this thread, which may have ended by then.
    // SAFETY: the calls take no pointer.
    let done = unsafe {
        if kind != libc::F_UNLCK && libc::fcntl(fd, libc::F_SETOWN, process) < 0 {
            return Err(Errno::from_io(&std::io::Error::last_os_error()));
        }
        libc::fcntl(fd, libc::F_SETLEASE, kind)
    };
    if done < 0 { Err(Errno::from_io(&std::io::Error::last_os_error())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_file::{Mode, OFlags, outlasting_leases};
    use std::fs::{self, File};
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    /// Files created while other threads take leases on them.
    const FILES_MADE: u32 = 5000;

    /// What was given back in time and is lent again is not ended when the time of the first loan is over.
    #[test]
    #[allow(unsafe_code)]
    fn end_of_one_loan_does_not_end_the_next_of_the_same_file() {
        // SAFETY: nothing in this process waits for this signal.
        unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
        const HANDLE: u64 = 7;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, "content").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let loans = OwnerLoans::new(Some(runtime.handle().clone()));
        let file = Arc::new(OwnedFd::from(File::open(&path).unwrap()));
        let lend = || {
            assert!(loans.lend(HANDLE, &file) == Lending::New);
            assert!(loans.stands(HANDLE, &file, Lending::New, true));
        };
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let writes = || rustix::fs::openat(rustix::fs::CWD, &path, flags, Mode::empty());
        lend();
        assert_eq!(writes().err(), Some(rustix::io::Errno::WOULDBLOCK));
        let due = loans.shared.look();
        assert_eq!(due.len(), 1);
        loans.shared.give_back(&[HANDLE]);
        drop(writes().unwrap());
        lend();
        due.iter().for_each(|(handle, at)| loans.shared.end(*handle, *at));
        assert_eq!(lease(&file), Ok(libc::F_RDLCK));
        // Nor does a client's word that it has given the first one back.
        loans.shared.give_back(&[HANDLE]);
        assert_eq!(lease(&file), Ok(libc::F_RDLCK));
        // The end of its own time does.
        assert_eq!(writes().err(), Some(rustix::io::Errno::WOULDBLOCK));
        let due = loans.shared.look();
        due.iter().for_each(|(handle, at)| loans.shared.end(*handle, *at));
        drop(writes().unwrap());
    }

    /// The kernel creates the name before it opens the file. A lease taken in between delays the open, and no retry
    /// finds the name of the first attempt.
    #[test]
    #[allow(unsafe_code)]
    fn lease_on_a_new_file_does_not_make_its_name_taken() {
        // SAFETY: nothing in this process waits for this signal.
        unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let (is_over, leases) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            let taking = || {
                while !is_over.load(Ordering::Relaxed) {
                    let Ok(file) = File::open(&path) else { continue };
                    if set_lease(&file.into(), libc::F_RDLCK).is_ok() {
                        leases.fetch_add(1, Ordering::Relaxed);
                    }
                }
            };
            let takers = [scope.spawn(taking), scope.spawn(taking)];
            let flags =
                OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let open =
                |flags| rustix::fs::openat(rustix::fs::CWD, &path, flags, Mode::RUSR | Mode::WUSR);
            let made: Result<Vec<()>, _> = (0..FILES_MADE)
                .map(|_| {
                    let file = outlasting_leases(flags, open)?;
                    assert!(rustix::fs::fcntl_getfl(&file).unwrap().contains(OFlags::NONBLOCK));
                    fs::remove_file(&path).unwrap();
                    Ok::<_, rustix::io::Errno>(())
                })
                .collect();
            is_over.store(true, Ordering::Relaxed);
            for taker in takers {
                taker.join().unwrap();
            }
            assert_eq!(made.map(|made| made.len() as u32), Ok(FILES_MADE));
        });
        assert!(leases.into_inner() > 0);
    }
}
