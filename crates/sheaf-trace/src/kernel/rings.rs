//! The kernel's rings of what happens at its tracepoints (`perf_event_open`): one for each
//! processor, in which calls of the program that is watched begin and end.
use super::calls::call_filter;
use perf_event::events::{Software, Tracepoint};
use perf_event::{Builder, Clock, Counter, ReadFormat, SampleFlag, Sampler};
use rustix::ioctl::{IntegerSetter, ioctl, opcode};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Where the kernel says what its tracepoints are.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// What the kernel allows whom.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
/// The most records that are taken of a ring before others have their turn.
const RECORDS_MAX: usize = 128 << 10;
/// The least room: what is lost for want of it is counted.
const BUFFER_BYTES_MIN: usize = 4096;

/// Why the kernel does not tell what a program does.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelRefusal {
    /// It is not said what tracepoints there are.
    #[error(
        "no tracefs is mounted at {} (as root: mount -t tracefs none {})", TRACEFS[0], TRACEFS[0]
    )]
    NoTracefs,
    /// There is no such tracepoint, or it is not for this user.
    #[error("{}: {source} (it needs a kernel with CONFIG_FTRACE_SYSCALLS, and root)", path.display())]
    NoTracepoint {
        /// The file that says what it is.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The kernel has no such events.
    #[error("the kernel has no perf_event_open (CONFIG_PERF_EVENTS)")]
    NoEvents,
    /// Not for this user.
    #[error(
        "the kernel refuses perf_event_open ({source}): it needs CAP_PERFMON, or \
         kernel.perf_event_paranoid at most 1, which is {paranoid}"
    )]
    Forbidden {
        /// What the kernel says.
        source: io::Error,
        /// The system's setting.
        paranoid: String,
    },
    /// Something else.
    #[error("{what}: {source}")]
    Other {
        /// What was tried.
        what: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
}

/// What happened, where, and when on the clock of the kernel's, in ns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelEvent {
    pub time: u64,
    pub cpu: usize,
    pub pid: i32,
    pub thread: i32,
    pub what: KernelWhat,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelWhat {
    /// A call begins.
    Enter { number: i64, arguments: [u64; 6] },
    /// A call ends.
    Exit { number: i64, result: i64 },
    /// A thread of another process, or of its own, started the one of this event.
    Fork { parent: i32 },
    /// The process runs another program from here on.
    Exec { name: Vec<u8> },
    /// The thread has ended.
    Ends,
    /// Something is missing here, of this processor.
    Lost,
}

/// The rings of all processors.
pub struct KernelRings {
    rings: Vec<CpuRing>,
    enter: u16,
    exit: u16,
}

struct CpuRing {
    /// Tells of processes; its ring has the others' records also.
    tasks: Sampler,
    enter: Counter,
    exit: Counter,
}

/// What was taken of the rings.
#[derive(Debug, Default)]
pub struct Drained {
    /// In the order of their times.
    pub events: Vec<KernelEvent>,
    /// Everything that happened up to then is here, or was before.
    pub until: u64,
}

/// What the kernel has counted itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KernelSums {
    /// Calls that have ended.
    pub done: u64,
    /// Of these, those for which there was no room.
    pub ends_lost: u64,
    /// Records of any kind for which there was no room.
    pub lost: u64,
}

impl KernelRings {
    /// Watches what this thread starts from here on, from when that becomes another program.
    /// `bytes` is the room for each processor, rounded up to a power of 2.
    ///
    /// # Errors
    /// When the kernel does not allow it, or cannot.
    pub fn open(bytes: usize) -> Result<Self, KernelRefusal> {
        // One that may not be looked into is there; who reads it says why not.
        let is_there = |path: &&Path| !matches!(path.join("events").try_exists(), Ok(false));
        let tracefs = TRACEFS.map(Path::new).into_iter().find(is_there);
        let tracefs = tracefs.ok_or(KernelRefusal::NoTracefs)?;
        let enter = number(&tracefs.join("events/raw_syscalls/sys_enter/id"))?;
        let exit = number(&tracefs.join("events/raw_syscalls/sys_exit/id"))?;
        let filter = CString::new(call_filter()).expect("a filter of digits and signs");
        let mut room = bytes.max(BUFFER_BYTES_MIN);
        let cpus = cpus().map_err(other("the list of processors"))?;
        let rings = cpus.into_iter().map(|cpu| {
            let ring = CpuRing::open(cpu, (enter, exit), &mut room);
            // One that was just taken away.
            ring.map(Some).or_else(|error| if is_gone(&error) { Ok(None) } else { Err(error) })
        });
        let rings = rings.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?;
        for ring in &rings {
            for counter in [&ring.enter, &ring.exit] {
                set_filter(counter, &filter).map_err(other("the filter of calls"))?;
                set_output(counter, ring.tasks.as_counter()).map_err(other("a ring of events"))?;
            }
        }
        Ok(Self { rings, enter: enter as u16, exit: exit as u16 })
    }

    /// What has come; what came after `now` waits for what other rings have of that time.
    pub fn drain(&mut self, now: u64) -> Drained {
        let mut drained = Drained { events: Vec::new(), until: now };
        for (cpu, ring) in self.rings.iter_mut().enumerate() {
            let mut last = 0;
            let mut count = 0;
            while count < RECORDS_MAX {
                let Some(record) = ring.tasks.next_record() else { break };
                count += 1;
                let (kind, misc) = (record.ty(), record.misc());
                let body = record.to_contiguous();
                let event = decode(kind, misc, &body, cpu, (self.enter, self.exit));
                drained.events.extend(event.inspect(|event| last = event.time));
            }
            // This ring may have more, and later events of the others must not come before it.
            if count == RECORDS_MAX {
                drained.until = drained.until.min(last);
            }
        }
        // A stable sort: events of one processor at the same time stay in their order.
        drained.events.sort_by_key(|event| event.time);
        drained
    }

    /// What the kernel has counted so far.
    ///
    /// # Errors
    /// When it does not say.
    pub fn sums(&mut self) -> io::Result<KernelSums> {
        let mut sums = KernelSums::default();
        for ring in &mut self.rings {
            let exit = ring.exit.read_full()?;
            sums.done += exit.count();
            sums.ends_lost += exit.lost().unwrap_or(0);
            sums.lost += exit.lost().unwrap_or(0);
            for counter in [&mut ring.enter, ring.tasks.as_counter_mut()] {
                sums.lost += counter.read_full()?.lost().unwrap_or(0);
            }
        }
        Ok(sums)
    }
}

impl CpuRing {
    fn open(cpu: usize, ids: (u64, u64), room: &mut usize) -> Result<Self, KernelRefusal> {
        let counter = |builder: &mut Builder<'_>| {
            // Enabled by the `exec`, because until then the child runs code of this program. All
            // records have an ID, so that those of tasks say which process and when
            // (`TRAILER_BYTES`).
            builder.one_cpu(cpu).inherit(true).enabled(false).enable_on_exec(true);
            builder.exclude_kernel(false).exclude_hv(false).sample_period(1).sample_id_all(true);
            builder.sample(SampleFlag::TID | SampleFlag::TIME | SampleFlag::RAW);
            // The clock of `TraceClock`, with whose times these are compared.
            builder.clockid(Clock::MONOTONIC_RAW);
            // Before Linux 6.0 it is not said how much was lost of which.
            let with = builder.read_format(ReadFormat::LOST).build();
            let built = match with {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    builder.read_format(ReadFormat::empty()).build()
                }
                with => with,
            };
            built.map_err(refusal)
        };
        let enter = counter(&mut Builder::new(Tracepoint::with_id(ids.0)))?;
        let exit = counter(&mut Builder::new(Tracepoint::with_id(ids.1)))?;
        loop {
            let mut tasks = Builder::new(Software::DUMMY);
            let tasks = counter(tasks.task(true).comm(true).comm_exec(true))?;
            match tasks.sampled(*room) {
                Ok(tasks) => return Ok(Self { tasks, enter, exit }),
                // As much as this user may lock.
                Err(error) if is_refused(&error) && *room > BUFFER_BYTES_MIN => *room /= 2,
                Err(error) => return Err(other("memory for the kernel's rings")(error)),
            }
        }
    }
}

fn is_refused(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM))
}

fn other(what: &'static str) -> impl FnOnce(io::Error) -> KernelRefusal {
    move |source| KernelRefusal::Other { what, source }
}

fn refusal(source: io::Error) -> KernelRefusal {
    match source.raw_os_error() {
        Some(libc::ENOSYS) => KernelRefusal::NoEvents,
        Some(libc::EPERM | libc::EACCES) => {
            let paranoid = std::fs::read_to_string(PARANOID).unwrap_or_else(|_| "hidden".into());
            KernelRefusal::Forbidden { source, paranoid: paranoid.trim().to_owned() }
        }
        _ => KernelRefusal::Other { what: "perf_event_open", source },
    }
}

fn is_gone(error: &KernelRefusal) -> bool {
    matches!(error, KernelRefusal::Other { source, .. } if source.raw_os_error() == Some(libc::ENODEV))
}

/// The number of a tracepoint.
fn number(path: &Path) -> Result<u64, KernelRefusal> {
    let error = |source| KernelRefusal::NoTracepoint { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(error)?;
    // Records have 16 bits of it.
    let number = text.trim().parse::<u16>();
    number.map(u64::from).map_err(|why| error(io::Error::new(io::ErrorKind::InvalidData, why)))
}

/// The processors that are there.
fn cpus() -> io::Result<Vec<usize>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    let bad = || io::Error::new(io::ErrorKind::InvalidData, text.clone());
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>(), last.parse::<usize>());
        cpus.extend(first.map_err(|_| bad())?..=last.map_err(|_| bad())?);
    }
    Ok(cpus)
}

/// Of `linux/perf_event.h`: `PERF_EVENT_IOC_SET_OUTPUT` and `PERF_EVENT_IOC_SET_FILTER`.
const SET_OUTPUT: u32 = opcode::none(b'$', 5);
const SET_FILTER: u32 = opcode::write::<*const u8>(b'$', 6);

fn set_filter(counter: &Counter, filter: &CString) -> io::Result<()> {
    let text = filter.as_ptr().cast_mut().cast();
    #[expect(unsafe_code, reason = "the kernel is given a text to read")]
    // SAFETY: the descriptor is the counter's and open; the text ends with a zero and lives.
    unsafe {
        let file = BorrowedFd::borrow_raw(counter.as_raw_fd());
        Ok(ioctl(file, IntegerSetter::<SET_FILTER>::new_pointer(text))?)
    }
}

fn set_output(counter: &Counter, to: &Counter) -> io::Result<()> {
    #[expect(unsafe_code, reason = "the kernel is given the number of a descriptor")]
    // SAFETY: both descriptors are counters' and open; no memory is touched.
    unsafe {
        let file = BorrowedFd::borrow_raw(counter.as_raw_fd());
        let to = usize::try_from(to.as_raw_fd()).expect("a descriptor that is open");
        Ok(ioctl(file, IntegerSetter::<SET_OUTPUT>::new_usize(to))?)
    }
}

/// Of `linux/perf_event.h`: kinds of records that are asked for.
const RECORD_LOST: u32 = 2;
const RECORD_COMM: u32 = 3;
const RECORD_EXIT: u32 = 4;
const RECORD_FORK: u32 = 7;
const RECORD_SAMPLE: u32 = 9;
const MISC_COMM_EXEC: u16 = 1 << 13;
/// Process, thread and time stand behind what is no sample.
const TRAILER_BYTES: usize = 16;

/// What a record says; `None` for what is not asked for, or not whole.
fn decode(
    kind: u32,
    misc: u16,
    body: &[u8],
    cpu: usize,
    (enter, exit): (u16, u16),
) -> Option<KernelEvent> {
    let ids = if kind == RECORD_SAMPLE { 0 } else { body.len().checked_sub(TRAILER_BYTES)? };
    let (mut pid, mut thread) = (int(body, ids)?, int(body, ids + 4)?);
    let time = long(body, ids + 8)?;
    let what = match kind {
        RECORD_SAMPLE => {
            // Before the data of the tracepoint stands their length. The data begin with 8 bytes
            // that all tracepoints have, of which the first two are the tracepoint's number.
            let raw = body.get(TRAILER_BYTES + 4..)?;
            let kind = u16::from_ne_bytes(raw.get(..2)?.try_into().ok()?);
            let number = long(raw, 8)? as i64;
            if kind == enter {
                let mut arguments = [0; 6];
                for (at, argument) in arguments.iter_mut().enumerate() {
                    *argument = long(raw, 16 + 8 * at)?;
                }
                KernelWhat::Enter { number, arguments }
            } else if kind == exit {
                KernelWhat::Exit { number, result: long(raw, 16)? as i64 }
            } else {
                return None;
            }
        }
        RECORD_LOST => KernelWhat::Lost,
        RECORD_COMM if misc & MISC_COMM_EXEC != 0 => {
            let name = body.get(8..ids)?.split(|&byte| byte == 0).next()?;
            KernelWhat::Exec { name: name.to_owned() }
        }
        RECORD_FORK | RECORD_EXIT => {
            (pid, thread) = (int(body, 0)?, int(body, 8)?);
            let parent = int(body, 4)?;
            if kind == RECORD_FORK { KernelWhat::Fork { parent } } else { KernelWhat::Ends }
        }
        _ => return None,
    };
    Some(KernelEvent { time, cpu, pid, thread, what })
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
