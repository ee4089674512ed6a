//! Asynchronous I/O of the kernel's: by `libaio`, or by calls of it; and `io_uring`, of which only the beginning is
//! seen.
//!
//! A request is remembered when it is submitted, and recorded when its program is told that it is completed: its
//! time is from the one to the other.
use crate::ctypes::AnyPointer;
use crate::files;
use crate::turn::{Did, TracedCall, count_unplaced};
use sheaf_recorder::{IoEvent, IoOp};
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

wrap! {
    fn io_submit(context: AnyPointer, count: c_long, requests: *const *const KernelRequest) -> c_int
        = AsyncSubmit, before begun = crate::turn::now(),
          |came| submitted(count, requests, came.into(), begun);
    fn io_getevents(context: AnyPointer, least: c_long, most: c_long, events: *const KernelEvent, time: AnyPointer)
        -> c_int = AsyncWait, |came| completed(events, came.into());
    fn io_pgetevents(context: AnyPointer, least: c_long, most: c_long, events: *const KernelEvent, time: AnyPointer, signals: AnyPointer)
        -> c_int = AsyncWait, |came| completed(events, came.into());
    fn io_uring_setup(entries: c_uint, how: AnyPointer) -> c_int = Uring, |came| Did::nothing().came(came);
    fn io_uring_queue_init(entries: c_uint, ring: AnyPointer, flags: c_uint) -> c_int
        = Uring, |came| Did::nothing().came(came);
    fn io_uring_queue_init_params(entries: c_uint, ring: AnyPointer, how: AnyPointer) -> c_int
        = Uring, |came| Did::nothing().came(came);
    fn io_uring_queue_init_mem(entries: c_uint, ring: AnyPointer, how: AnyPointer, at: AnyPointer, len: usize)
        -> c_int = Uring, |came| Did::nothing().came(came);
}

/// `struct iocb` of the kernel, on machines of 64 bits.
#[repr(C)]
pub struct KernelRequest {
    data: u64,
    key: u32,
    flags: u32,
    what: u16,
    priority: i16,
    fd: c_int,
    buffer: u64,
    len: u64,
    offset: i64,
}

/// `struct io_event`.
#[repr(C)]
pub struct KernelEvent {
    data: u64,
    request: u64,
    result: i64,
    more: i64,
}

/// A request under way, or the end of one that its thread has not noted yet ([`EARLY`]). Its place is free while its
/// address is 0, and being filled while it is 1.
struct UnderWay {
    request: AtomicU64,
    op: AtomicU64,
    file: AtomicU64,
    offset: AtomicU64,
    /// Of an early end, what came of it.
    asked: AtomicU64,
    /// Of an early end, when that was.
    begun: AtomicU64,
}

/// What is added to the address of a request whose end was told before it was noted.
const EARLY: u64 = 1 << 63;
const BEING_FILLED: u64 = 1;
const PLACES: usize = 1 << 13;
/// Places that are looked at for a request.
const PROBES: usize = 32;

static UNDER_WAY: [UnderWay; PLACES] = [const {
    UnderWay {
        request: AtomicU64::new(0),
        op: AtomicU64::new(0),
        file: AtomicU64::new(0),
        offset: AtomicU64::new(0),
        asked: AtomicU64::new(0),
        begun: AtomicU64::new(0),
    }
}; PLACES];

fn places(request: u64) -> impl Iterator<Item = &'static UnderWay> {
    let first = (request >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (0..PROBES).map(move |at| &UNDER_WAY[(first as usize + at) % PLACES])
}

/// Notes something at a free place near that of its address; whether there was one.
fn note(request: u64, event: &IoEvent) -> bool {
    // One of this address that nobody was told of is over.
    let _ = taken(request);
    let free = |place: &&UnderWay| {
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        place.request.compare_exchange(0, BEING_FILLED, acquire, relaxed).is_ok()
    };
    let Some(place) = places(request).find(free) else { return false };
    place.op.store(event.op as u64, Ordering::Relaxed);
    place.file.store(event.file, Ordering::Relaxed);
    place.offset.store(event.offset, Ordering::Relaxed);
    place.asked.store(event.asked, Ordering::Relaxed);
    place.begun.store(event.begun, Ordering::Relaxed);
    place.request.store(request, Ordering::Release);
    fence(Ordering::SeqCst);
    true
}

/// Takes a request that was remembered.
fn taken(request: u64) -> Option<IoEvent> {
    let is_it = |place: &&UnderWay| {
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        place.request.compare_exchange(request, BEING_FILLED, acquire, relaxed).is_ok()
    };
    let place = places(request).find(is_it).filter(|_| request > BEING_FILLED)?;
    let op = IoOp::of(place.op.load(Ordering::Relaxed) as u16).unwrap_or(IoOp::AsyncWait);
    let event = IoEvent {
        file: place.file.load(Ordering::Relaxed),
        offset: place.offset.load(Ordering::Relaxed),
        asked: place.asked.load(Ordering::Relaxed),
        begun: place.begun.load(Ordering::Relaxed),
        ..IoEvent::new(op)
    };
    place.request.store(0, Ordering::Release);
    Some(event)
}

/// Notes requests that were submitted: what the kernel has not taken is not looked at, as it may not even be there.
///
/// # Safety
/// The kernel has just read so many requests as it says.
unsafe fn submitted(
    count: c_long,
    requests: *const *const KernelRequest,
    came: c_long,
    begun: Option<u64>,
) -> Did {
    for number in 0..came.max(0) as usize {
        // SAFETY: as our caller vouches for.
        let request = unsafe { *requests.add(number) };
        // SAFETY: as above.
        let is = unsafe { &*request };
        let op = match is.what {
            0 | 7 => IoOp::KernelRead,
            1 | 8 => IoOp::KernelWrite,
            2 | 3 => IoOp::AsyncSync,
            // To be told of something, and nothing of a file.
            _ => IoOp::AsyncWait,
        };
        let event = IoEvent {
            file: files::remembered(is.fd),
            offset: is.offset as u64,
            asked: if matches!(is.what, 0 | 1) { is.len } else { 0 },
            begun: begun.unwrap_or(0),
            ..IoEvent::new(op)
        };
        let request = request as u64;
        // Each side notes its own and then looks for the other's: who takes the request records it.
        let is_noted = note(request, &event);
        if let Some(end) = taken(request | EARLY)
            && (!is_noted || taken(request).is_some())
        {
            record(&event, end.asked as i64, end.begun);
        } else if !is_noted {
            count_unplaced();
        }
    }
    failed_by(Did::nothing().of(count), came)
}

/// Records a request that has ended.
fn record(request: &IoEvent, result: i64, ended: u64) {
    if request.op == IoOp::AsyncWait {
        return;
    }
    let Some(turn) = TracedCall::begin() else { return };
    let mut did = Did::known(request.file).moved(request.asked as usize, result as isize);
    if request.op.moves_data() {
        did = did.at(request.offset as i64);
    }
    did.error = if result < 0 { -result as c_int } else { 0 };
    turn.end(request.op, request.begun, ended, did);
}

/// A result below -1 is an error, as functions of `libaio` give it; -1 sets `errno`.
fn failed_by(did: Did, came: c_long) -> Did {
    let did = did.came(came);
    if came < -1 { did.returned(-came as c_int) } else { did }
}

/// Records requests that were completed.
///
/// # Safety
/// So many events are there.
unsafe fn completed(events: *const KernelEvent, came: c_long) -> Did {
    for number in 0..came.max(0) as usize {
        // SAFETY: as our caller vouches for.
        let event = unsafe { &*events.add(number) };
        let ended = crate::turn::now().unwrap_or(0);
        match taken(event.request) {
            Some(request) => record(&request, event.result, ended),
            None => {
                let end = IoEvent {
                    asked: event.result as u64,
                    begun: ended,
                    ..IoEvent::new(IoOp::AsyncWait)
                };
                // One that finds no place was counted, or was submitted unseen.
                let _ = note(event.request | EARLY, &end);
                if let Some(request) = taken(event.request) {
                    let _ = taken(event.request | EARLY);
                    record(&request, event.result, ended);
                }
            }
        }
    }
    failed_by(Did::nothing(), came)
}

/// Where `syscall` of the C library is.
static REAL_SYSCALL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

pub extern "C" fn find_syscall() -> *mut c_void {
    static REAL: crate::real::Real = crate::real::Real::of(c"syscall");
    let found = REAL.find();
    REAL_SYSCALL.store(found, Ordering::Relaxed);
    found
}

// Calls of the kernel that are no I/O go on as they came: a child may come back from one, too.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() -> c_long {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "cmp rdi, 425",
        "je 3f",
        "cmp rdi, 333",
        "je 3f",
        "cmp rdi, 208",
        "je 3f",
        "cmp rdi, 209",
        "je 3f",
        "cmp rdi, 157",
        "je 4f",
        "cmp rdi, 317",
        "je 4f",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 56",
        "call {find}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        ".cfi_adjust_cfa_offset -56",
        "jmp rax",
        "3:",
        "jmp {io}",
        "4:",
        "jmp {filter}",
        ".cfi_endproc",
        real = sym REAL_SYSCALL,
        find = sym find_syscall,
        io = sym io_call,
        filter = sym crate::filters::filter_call,
    )
}

/// Calls of the kernel on asynchronous I/O.
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn io_call(
    number: c_long,
    one: usize,
    two: usize,
    three: usize,
    four: usize,
    five: usize,
    six: usize,
) -> c_long {
    const SUBMIT: c_long = 209;
    const URING_SETUP: c_long = 425;
    type Call = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;
    // SAFETY: the C library's function of this name.
    let real: Call = unsafe { std::mem::transmute(find_syscall()) };
    let Some(turn) = TracedCall::begin() else {
        // SAFETY: as our caller vouches for.
        return unsafe { real(number, one, two, three, four, five, six) };
    };
    let begun = turn.now();
    let requests = three as *const *const KernelRequest;
    // SAFETY: as above.
    let came = unsafe { real(number, one, two, three, four, five, six) };
    let ended = turn.now();
    let (op, did) = match number {
        // SAFETY: as above.
        SUBMIT => {
            // SAFETY: as above; the kernel has just read what it took.
            let did = unsafe { submitted(two as c_long, requests, came, Some(begun)) };
            (IoOp::AsyncSubmit, did)
        }
        URING_SETUP => (IoOp::Uring, Did::nothing().came(came)),
        // SAFETY: as above; the kernel has just written the events.
        _ => (IoOp::AsyncWait, unsafe { completed(four as *const KernelEvent, came) }),
    };
    turn.end(op, begun, ended, did);
    came
}
