//! Cartridges and drives: who asks for something on a tape waits until a drive has passed it.
//!
//! There are no threads of its own. Of those who wait one runs a free drive over one cartridge: it
//! takes all that is asked of that, by whomever, in the order of the tape, and what is asked meanwhile
//! of what is still ahead. The next cartridge is that of the caller for whom the fewest were loaded;
//! of several, the one that is in a drive already, then the one that was asked for first.
use super::settings::{TapeCounters, TapeSettings};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, lock};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

const COPY_BYTES: usize = 1 << 20;
/// How long it is waited for another process that has the drives.
const DRIVES_WAIT: Duration = Duration::from_secs(10);
const DRIVES_LOOK: Duration = Duration::from_millis(20);

/// Bytes that are together on a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct TapeExtent {
    pub cartridge: u32,
    pub start: u64,
    pub bytes: u64,
}

/// The cartridges of a directory, and their drives.
pub(super) struct TapeLibrary {
    directory: PathBuf,
    settings: TapeSettings,
    state: Mutex<LibraryState>,
    changed: Condvar,
    counters: Mutex<TapeCounters>,
}

#[derive(Default)]
struct LibraryState {
    /// Held as long as this process has the drives: while somebody waits for them.
    held: Option<File>,
    callers: usize,
    drives: Vec<TapeDrive>,
    reads: Vec<TapeRead>,
    writes: VecDeque<TapeWrite>,
    /// The cartridge that is written to.
    current: u32,
    calls: u64,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct TapeDrive {
    cartridge: Option<u32>,
    at: u64,
    is_busy: bool,
    /// The cartridge that it has soon.
    wanted: u32,
}

/// All that one caller waits for.
#[derive(Default)]
struct TapeCall {
    number: u64,
    /// How many cartridges were passed for it.
    passes: AtomicU64,
    left: AtomicUsize,
    failed: Mutex<Option<Errno>>,
    written: Mutex<Vec<TapeExtent>>,
}

/// A part of a call. Dropped, it has failed if nothing else was said.
struct TapeTicket {
    call: Arc<TapeCall>,
    result: Result<(), Errno>,
}

struct TapeRead {
    from: TapeExtent,
    to: Arc<File>,
    at: u64,
    ticket: TapeTicket,
}

struct TapeWrite {
    from: Arc<File>,
    at: u64,
    end: u64,
    ticket: TapeTicket,
}

/// A drive's work on one cartridge.
struct TapePass<'a> {
    library: &'a TapeLibrary,
    number: usize,
    cartridge: u32,
}

impl TapeTicket {
    fn new(call: &Arc<TapeCall>) -> Self {
        Self { call: call.clone(), result: Err(Errno::IO) }
    }

    fn done(mut self, result: Result<(), Errno>) {
        self.result = result;
    }
}

impl Drop for TapeTicket {
    fn drop(&mut self) {
        if let Err(errno) = self.result {
            lock(&self.call.failed).get_or_insert(errno);
        }
        // After the failure is set, which the caller reads when nothing is left.
        self.call.left.fetch_sub(1, Ordering::AcqRel);
    }
}

impl TapeLibrary {
    pub fn new(directory: PathBuf, settings: TapeSettings) -> Self {
        let (state, counters) = (Mutex::default(), Mutex::default());
        Self { directory, settings, state, changed: Condvar::new(), counters }
    }

    pub fn counters(&self) -> TapeCounters {
        *lock(&self.counters)
    }

    /// Reads extents into files, each from a byte on, in the order of the tapes.
    pub fn read(&self, wanted: Vec<(TapeExtent, Arc<File>, u64)>) -> Result<(), Errno> {
        self.call(wanted.len(), |state, call| {
            let reads = wanted.into_iter().map(|(from, to, at)| {
                let ticket = TapeTicket::new(call);
                TapeRead { from, to, at, ticket }
            });
            state.reads.extend(reads);
        })
        .map(drop)
    }

    /// Writes a file behind what was written last; where it is then.
    pub fn write(&self, from: Arc<File>, bytes: u64) -> Result<Vec<TapeExtent>, Errno> {
        self.call(1, |state, call| {
            let ticket = TapeTicket::new(call);
            state.writes.push_back(TapeWrite { from, at: 0, end: bytes, ticket });
        })
    }

    fn call(
        &self,
        parts: usize,
        ask: impl FnOnce(&mut LibraryState, &Arc<TapeCall>),
    ) -> Result<Vec<TapeExtent>, Errno> {
        let mut state = lock(&self.state);
        self.have_drives(&mut state)?;
        state.callers += 1;
        state.calls += 1;
        // It begins with those who wait, so that none of them is passed over for ever.
        let passes = state.waiting().map(|(_, call)| call.passes.load(Ordering::Relaxed)).min();
        let call = Arc::new(TapeCall {
            number: state.calls,
            passes: AtomicU64::new(passes.unwrap_or(0)),
            left: AtomicUsize::new(parts),
            ..TapeCall::default()
        });
        ask(&mut state, &call);
        while call.left.load(Ordering::Acquire) > 0 {
            if let Some((number, drive)) = state.begin() {
                drop(state);
                let pass = TapePass { library: self, number, cartridge: drive.wanted };
                pass.run(drive);
                state = lock(&self.state);
            } else {
                // Who has the drives ends each pass with a word.
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        state.callers -= 1;
        let left = if state.callers == 0 { self.leave_drives(&mut state) } else { Ok(()) };
        drop(state);
        if let Some(errno) = *lock(&call.failed) {
            return Err(errno);
        }
        left.map_err(|error| Errno::from_io(&error))?;
        Ok(std::mem::take(&mut *lock(&call.written)))
    }

    /// Takes the drives for this process.
    fn have_drives(&self, state: &mut LibraryState) -> Result<(), Errno> {
        if state.held.is_some() {
            return Ok(());
        }
        let open = || {
            let mut options = File::options();
            options.create(true).truncate(false).read(true).write(true).mode(0o600);
            options.open(self.directory.join("drives"))
        };
        let failed = |error: io::Error| Errno::from_io(&error);
        let held = open().map_err(failed)?;
        let deadline = Instant::now() + DRIVES_WAIT;
        while let Err(errno) = rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive) {
            if errno != rustix::io::Errno::AGAIN || Instant::now() > deadline {
                let errno = if errno == rustix::io::Errno::AGAIN { Errno::BUSY } else { Errno::IO };
                return Err(errno);
            }
            std::thread::sleep(DRIVES_LOOK);
        }
        // Another process may have begun a cartridge since.
        state.current = self.last_cartridge().map_err(failed)?;
        let mut text = Vec::new();
        (&held).read_to_end(&mut text).map_err(failed)?;
        // A library whose drives nobody has used, or of which that was cut off, has empty ones.
        state.drives = serde_json::from_slice(&text).unwrap_or_default();
        state.drives.resize(self.settings.drives, TapeDrive::default());
        state.held = Some(held);
        Ok(())
    }

    /// Leaves the drives to other processes, with what is in them.
    fn leave_drives(&self, state: &mut LibraryState) -> io::Result<()> {
        let Some(held) = state.held.take() else { return Ok(()) };
        let text = serde_json::to_vec(&state.drives)?;
        held.set_len(0)?;
        held.write_all_at(&text, 0)
    }

    fn last_cartridge(&self) -> io::Result<u32> {
        let mut last = 1;
        for entry in self.directory.read_dir()? {
            let name = entry?.file_name().into_string().unwrap_or_default();
            let number = name.strip_prefix("cartridge-").and_then(|number| number.parse().ok());
            last = last.max(number.unwrap_or(1));
        }
        Ok(last)
    }

    fn cartridge(&self, number: u32) -> io::Result<File> {
        let path = self.directory.join(format!("cartridge-{number:05}"));
        let mut options = File::options();
        options.create(true).truncate(false).read(true).write(true).mode(0o600).open(path)
    }

    /// A drive is busy for so long.
    fn spend(&self, time: Duration) {
        lock(&self.counters).busy += time;
        if self.settings.time_scale > 0.0 {
            std::thread::sleep(time.mul_f64(self.settings.time_scale));
        }
    }

    fn count(&self, change: impl FnOnce(&mut TapeCounters)) {
        change(&mut lock(&self.counters));
    }
}

impl LibraryState {
    /// Who waits, and for which cartridge.
    fn waiting(&self) -> impl Iterator<Item = (u32, &TapeCall)> {
        let reads = self.reads.iter().map(|read| (read.from.cartridge, &*read.ticket.call));
        reads.chain(self.writes.iter().map(|write| (self.current, &*write.ticket.call)))
    }

    /// The drive that passes a cartridge next, as it was; it is busy from now on.
    fn begin(&mut self) -> Option<(usize, TapeDrive)> {
        let find = |is: &dyn Fn(&TapeDrive) -> bool| self.drives.iter().position(is);
        let empty = find(&|drive| !drive.is_busy && drive.cartridge.is_none());
        // An empty drive first, because another one has to be unloaded.
        let free = empty.or_else(|| find(&|drive| !drive.is_busy));
        let best = self.waiting().filter_map(|(cartridge, call)| {
            let loaded = find(&|drive| drive.cartridge == Some(cartridge));
            let number = loaded.or(free)?;
            let passes = call.passes.load(Ordering::Relaxed);
            let order = (passes, loaded.is_none(), call.number, cartridge);
            (!self.drives[number].is_busy).then_some((order, number))
        });
        let ((_, _, _, cartridge), number) = best.min()?;
        let drive = &mut self.drives[number];
        let was = TapeDrive { wanted: cartridge, ..*drive };
        // Nobody else loads it meanwhile.
        *drive = TapeDrive { cartridge: Some(cartridge), is_busy: true, ..*drive };
        Some((number, was))
    }

    /// Takes what is to be read of a cartridge from a byte on, in its order.
    fn take_reads(&mut self, cartridge: u32, from: u64) -> Vec<TapeRead> {
        let is_ahead =
            |read: &mut TapeRead| read.from.cartridge == cartridge && read.from.start >= from;
        let mut taken: Vec<_> = self.reads.extract_if(.., is_ahead).collect();
        // The last is the next.
        taken.sort_by_key(|read| std::cmp::Reverse(read.from));
        taken
    }
}

impl TapePass<'_> {
    fn run(self, mut drive: TapeDrive) {
        let library = self.library;
        self.load(&mut drive);
        let is_asked = |read: &TapeRead| read.from.cartridge == self.cartridge;
        let is_read = lock(&library.state).reads.iter().any(is_asked);
        if is_read && !library.settings.gather.is_zero() {
            // Requests that come in this time are served by the same pass.
            std::thread::sleep(library.settings.gather);
        }
        let done = library.cartridge(self.cartridge).and_then(|file| {
            self.read(&file, &mut drive);
            self.write(&file, &mut drive)
        });
        let mut state = lock(&library.state);
        if let Err(error) = done {
            // All who wait for this cartridge are told.
            let errno = Errno::from_io(&error);
            let reads = state.take_reads(self.cartridge, 0);
            reads.into_iter().for_each(|read| read.ticket.done(Err(errno)));
            if state.current == self.cartridge {
                let writes = std::mem::take(&mut state.writes);
                writes.into_iter().for_each(|write| write.ticket.done(Err(errno)));
            }
        }
        // Still busy: `drop` frees it once the state is no longer locked.
        state.drives[self.number] = TapeDrive { is_busy: true, ..drive };
    }

    fn load(&self, drive: &mut TapeDrive) {
        let (library, settings) = (self.library, &self.library.settings);
        if drive.cartridge == Some(self.cartridge) {
            return;
        }
        if drive.cartridge.is_some() {
            library.count(|counters| counters.rewinds += 1);
            library.spend(settings.moving(drive.at) + settings.unload);
        }
        library.count(|counters| counters.mounts += 1);
        library.spend(settings.load);
        drive.cartridge = Some(self.cartridge);
        drive.at = 0;
    }

    fn seek(&self, drive: &mut TapeDrive, to: u64) {
        if drive.at != to {
            let is_back = to < drive.at;
            self.library.count(|counters| {
                counters.seeks += 1;
                counters.rewinds += u64::from(is_back);
            });
            self.library.spend(self.library.settings.moving(drive.at.abs_diff(to)));
            drive.at = to;
        }
    }

    fn read(&self, tape: &File, drive: &mut TapeDrive) {
        let library = self.library;
        let mut reads = lock(&library.state).take_reads(self.cartridge, 0);
        let mut callers: Vec<Arc<TapeCall>> = Vec::new();
        while let Some(read) = reads.pop() {
            if !callers.iter().any(|known| Arc::ptr_eq(known, &read.ticket.call)) {
                read.ticket.call.passes.fetch_add(1, Ordering::Relaxed);
                callers.push(read.ticket.call.clone());
            }
            self.seek(drive, read.from.start);
            let copied = copy(tape, read.from.start, &read.to, read.at, read.from.bytes);
            library.count(|counters| counters.read_bytes += read.from.bytes);
            library.spend(library.settings.streaming(read.from.bytes));
            drive.at += read.from.bytes;
            read.ticket.done(copied.map_err(|error| Errno::from_io(&error)));
            library.changed.notify_all();
            // What has come meanwhile and is ahead goes with it, if nobody waits for this drive.
            let mut state = lock(&library.state);
            if state.reads.iter().all(|other| other.from.cartridge == self.cartridge) {
                reads.extend(state.take_reads(self.cartridge, drive.at));
                drop(state);
                reads.sort_by_key(|read| std::cmp::Reverse(read.from));
            }
        }
    }

    /// Writes what waits for it, as long as there is room; durable at the end.
    fn write(&self, tape: &File, drive: &mut TapeDrive) -> io::Result<()> {
        let (library, mut done) = (self.library, Vec::new());
        let mut end = tape.metadata()?.len();
        loop {
            let mut state = lock(&library.state);
            if state.current != self.cartridge {
                break;
            }
            let Some(mut write) = state.writes.pop_front() else { break };
            let room = library.settings.cartridge_bytes.saturating_sub(end);
            let bytes = room.min(write.end - write.at);
            if bytes < write.end - write.at {
                // The rest is on the next.
                state.current += 1;
            }
            drop(state);
            if bytes > 0 {
                self.seek(drive, end);
            }
            let copied = copy(&write.from, write.at, tape, end, bytes);
            if let Err(error) = copied {
                write.ticket.done(Err(Errno::from_io(&error)));
                // What is half written stays, and is nobody's.
                end = tape.metadata()?.len();
                continue;
            }
            library.count(|counters| counters.written_bytes += bytes);
            library.spend(library.settings.streaming(bytes));
            if bytes > 0 {
                let extent = TapeExtent { cartridge: self.cartridge, start: end, bytes };
                lock(&write.ticket.call.written).push(extent);
            }
            end += bytes;
            drive.at = end;
            write.at += bytes;
            done.push(write);
        }
        if done.is_empty() {
            return Ok(());
        }
        let synced = tape.sync_data().map_err(|error| Errno::from_io(&error));
        let mut state = lock(&library.state);
        // From the last to the first, so that the rest is in its order at the front of the queue.
        for write in done.into_iter().rev() {
            if synced.is_ok() && write.at < write.end {
                state.writes.push_front(write);
            } else {
                write.ticket.done(synced);
            }
        }
        Ok(())
    }
}

impl Drop for TapePass<'_> {
    fn drop(&mut self) {
        lock(&self.library.state).drives[self.number].is_busy = false;
        self.library.changed.notify_all();
    }
}

fn copy(from: &File, mut at: u64, to: &File, mut to_at: u64, mut bytes: u64) -> io::Result<()> {
    let mut room = vec![0; COPY_BYTES.min(usize::try_from(bytes).unwrap_or(COPY_BYTES))];
    while bytes > 0 {
        let some = bytes.min(COPY_BYTES as u64) as usize;
        from.read_exact_at(&mut room[..some], at)?;
        to.write_all_at(&room[..some], to_at)?;
        (at, to_at, bytes) = (at + some as u64, to_at + some as u64, bytes - some as u64);
    }
    Ok(())
}
