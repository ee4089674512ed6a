//! A call that is recorded: who may record it, and what is written down of it.
pub use crate::did::{AT_FDCWD, CallTarget, Did, FilePlace};
use crate::files;
use crate::text::Text;
use sheaf_recorder::{
    ClockKind, Full, IoEvent, IoLayer, IoOp, RingWriter, SegmentOptions, TraceClock, TraceSegment,
    flag, sys,
};
use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The directory where segments are made.
const DIRECTORY: &CStr = c"SHEAF_TRACE_DIR";
/// How many records each ring has, if not as many as usual.
const RECORDS: &CStr = c"SHEAF_TRACE_RECORDS";
/// How many threads of a process have a ring at once, if not as many as usual.
const THREADS: &CStr = c"SHEAF_TRACE_THREADS";
/// Rings are overwritten, and held once an operation takes so many ticks; 0: none does.
const FLIGHT: &CStr = c"SHEAF_TRACE_FLIGHT";
/// How long a thread waits for room in its ring, in ms; otherwise not at all.
const PATIENCE: &CStr = c"SHEAF_TRACE_PATIENCE_MS";
/// An address that is none.
const EFAULT: c_int = 14;
/// An error of a device, or of what cannot say which it is.
const EIO: c_int = 5;
/// The longest path of a segment.
const PATH_BYTES_MAX: usize = 1024;

unsafe extern "C" {
    static environ: *const *const c_char;
    fn getenv(name: *const c_char) -> *mut c_char;
    fn __errno_location() -> *mut c_int;
    fn fileno(stream: *mut c_void) -> c_int;
    fn dirfd(directory: *mut c_void) -> c_int;
    fn pthread_key_create(
        key: *mut u32,
        destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    ) -> c_int;
    fn pthread_setspecific(key: u32, value: *const c_void) -> c_int;
    fn pthread_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> c_int;
}

/// The process's segment: a program's is made when it begins, a forked child's when it first has
/// something to record, so that one that does nothing costs nothing.
struct Home {
    state: OwnState,
    segment: UnsafeCell<MaybeUninit<TraceSegment>>,
    /// What tells a thread's ring that its thread has ended.
    key: UnsafeCell<u32>,
    process: AtomicU32,
    /// The clock of all segments here is the counter, rather than the kernel's.
    has_counter: AtomicBool,
    /// Calls that found the segment being made: it is told as soon as it is there.
    unplaced: AtomicU64,
}

/// What a process has come to: alone on a page that the kernel clears in a child, as not every child is told of
/// to the C library (`_Fork`, `clone`).
#[repr(C, align(4096))]
struct OwnState(AtomicU32, [u8; sys::PAGE_BYTES - 4]);

/// Also of a child of which the C library was not told.
const NOT_YET: u32 = 0;
const BEING_MADE: u32 = 1;
const MADE: u32 = 2;
/// Nothing is recorded.
const NONE: u32 = 3;
/// A forked child that has recorded nothing: the segment is its parent's.
const INHERITED: u32 = 4;
/// A forked child whose segment could not be made: its parent's counts its calls.
const COUNTED: u32 = 5;

// SAFETY: the segment is written by the one thread that has set `BEING_MADE`, and read by others
// after `MADE` or `COUNTED`, which only a forked child leaves while it has no other threads.
unsafe impl Sync for Home {}

static HOME: Home = Home {
    state: OwnState(AtomicU32::new(NOT_YET), [0; sys::PAGE_BYTES - 4]),
    segment: UnsafeCell::new(MaybeUninit::uninit()),
    key: UnsafeCell::new(0),
    process: AtomicU32::new(0),
    has_counter: AtomicBool::new(false),
    unplaced: AtomicU64::new(0),
};

/// What a thread has of its own. Nothing here is dropped: its end is told by a key of the C
/// library, which takes no memory for that.
struct Mine {
    /// Being recorded: what is called meanwhile is part of that, or of a signal's handler.
    is_busy: Cell<bool>,
    /// Where on the stack that is.
    busy_at: Cell<usize>,
    /// A handler has jumped while it was, perhaps out of it.
    has_jumped: Cell<bool>,
    /// How often it was told that it ends.
    ends: Cell<u32>,
    /// The thread has ended, as far as recording goes.
    is_over: Cell<bool>,
    /// The child that runs on this thread's memory.
    child: Cell<ChildHere>,
    /// Within a call of MPI-IO: what is called meanwhile is part of that.
    is_within: Cell<bool>,
    writer: UnsafeCell<MaybeUninit<RingWriter<'static>>>,
    has_writer: Cell<bool>,
}

/// A child on the memory of the thread that has started it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ChildHere {
    None,
    /// By `vfork`: the thread goes on once the child is gone.
    First,
    /// By `clone`: both go on at once. Nobody is told when it is gone.
    Beside,
}

thread_local! {
    static MINE: Mine = const {
        Mine {
            is_busy: Cell::new(false),
            busy_at: Cell::new(0),
            has_jumped: Cell::new(false),
            ends: Cell::new(0),
            is_over: Cell::new(false),
            child: Cell::new(ChildHere::None),
            is_within: Cell::new(false),
            writer: UnsafeCell::new(MaybeUninit::uninit()),
            has_writer: Cell::new(false),
        }
    };
}

/// Makes the segment, if it is asked for and there is none.
pub fn begin() {
    settle();
}

/// The segment; `None` where nothing can be recorded, which is counted where something is.
#[inline]
fn home() -> Option<&'static TraceSegment> {
    if HOME.state.0.load(Ordering::Acquire) != MADE && !settle() {
        return None;
    }
    // SAFETY: it was made, and stays.
    Some(unsafe { (*HOME.segment.get()).assume_init_ref() })
}

/// Whether anything may be recorded.
#[inline]
fn is_on() -> bool {
    matches!(HOME.state.0.load(Ordering::Acquire), MADE | INHERITED) || settle_at_first()
}

/// The first call of a program may come before its beginning.
#[cold]
fn settle_at_first() -> bool {
    HOME.state.0.load(Ordering::Acquire) != NONE && settle()
}

/// Makes the segment where there is none yet; whether there is one. A call that is not recorded for
/// want of it is counted.
#[cold]
fn settle() -> bool {
    let state = &HOME.state.0;
    let (claim, ours) = (Ordering::Acquire, Ordering::Relaxed);
    if state.load(claim) == NOT_YET && !has_variables() {
        // What a sanitizer asks before the C library has begun is not the program's.
        return false;
    }
    if state.compare_exchange(NOT_YET, BEING_MADE, claim, ours).is_ok() {
        if HOME.process.load(Ordering::Relaxed) == 0 {
            let made = create();
            let after = if made.is_some() { MADE } else { NONE };
            install(made, after);
        } else {
            forget_parent();
            inherit();
        }
    } else if state.compare_exchange(INHERITED, BEING_MADE, claim, ours).is_ok() {
        inherit();
    }
    match state.load(Ordering::Acquire) {
        MADE => true,
        NONE => false,
        _ => {
            count_unplaced();
            false
        }
    }
}

/// Makes the segment of a child. Its thread alone has set `BEING_MADE`.
fn inherit() {
    // SAFETY: the parent's is there, and nobody else changes what is.
    let parent = unsafe { (*HOME.segment.get()).assume_init_ref() };
    let made = create_segment(Some(parent));
    let after = if made.is_some() { MADE } else { COUNTED };
    install(made, after);
}

fn install(made: Option<TraceSegment>, after: u32) {
    if let Some(segment) = made {
        // SAFETY: this thread alone has set `BEING_MADE`. A parent's is not dropped here: it stays
        // mapped, as others may point there.
        unsafe { (*HOME.segment.get()).write(segment) };
    }
    HOME.state.0.store(after, Ordering::Release);
    tell_unplaced();
}

/// The time on the segments' clock, where anything is recorded.
pub fn now() -> Option<u64> {
    TracedCall::begin().map(|turn| turn.now())
}

/// A call is not recorded: the segment counts it, now or when it is made.
#[cold]
pub fn count_unplaced() {
    HOME.unplaced.fetch_add(1, Ordering::SeqCst);
    tell_unplaced();
}

fn tell_unplaced() {
    if matches!(HOME.state.0.load(Ordering::SeqCst), MADE | COUNTED) {
        // SAFETY: it is this process's, or, counted there, its parent's.
        let segment = unsafe { (*HOME.segment.get()).assume_init_ref() };
        (0..HOME.unplaced.swap(0, Ordering::SeqCst)).for_each(|_| segment.unplaced());
    }
}

fn create() -> Option<TraceSegment> {
    let segment = create_segment(None)?;
    // A kernel that cannot do that has children told by the C library alone.
    let _ = sys::clear_in_children(HOME.state.0.as_ptr().cast());
    HOME.process.store(segment.process(), Ordering::Relaxed);
    HOME.has_counter.store(segment.clock().kind() == ClockKind::Counter, Ordering::Relaxed);
    // SAFETY: called before any thread of ours has a ring.
    let key = unsafe { pthread_key_create(HOME.key.get(), Some(thread_ends)) };
    // SAFETY: the functions stay where they are.
    let fork = unsafe { pthread_atfork(None, Some(after_fork), Some(in_child)) };
    (key == 0 && fork == 0).then_some(segment)
}

/// Whether the C library knows the variables of the process: it does not before it has begun, when
/// what runs first in a program may call it nevertheless.
fn has_variables() -> bool {
    // SAFETY: the C library's own, which is read as others do.
    !unsafe { environ }.is_null()
}

/// What a program cannot make is not recorded: whoever traces finds fewer segments than programs.
fn create_segment(parent: Option<&TraceSegment>) -> Option<TraceSegment> {
    // SAFETY: the name ends with a zero; what it gives is read at once.
    let directory = unsafe { getenv(DIRECTORY.as_ptr()) };
    if directory.is_null() {
        return None;
    }
    let mut path = Text::<PATH_BYTES_MAX>::new();
    // SAFETY: variables end with a zero.
    let directory = unsafe { CStr::from_ptr(directory) }.to_bytes();
    if directory.is_empty() {
        return None;
    }
    path.push(directory);
    path.push(b"/");
    path.push_number(u64::from(sys::process()));
    path.push(b".");
    // A process that becomes another program keeps its number.
    path.push_number(sys::clock_ns(sys::CLOCK_MONOTONIC_RAW));
    path.push(b".segment");
    TraceSegment::create_at(path.as_c_str()?, &options(), parent).ok()
}

/// As large as was asked for, and full as was asked for.
fn options() -> SegmentOptions {
    let usual = SegmentOptions::default();
    let sized = match number_in(RECORDS).and_then(|records| u32::try_from(records).ok()) {
        Some(records) => usual.with_records(records),
        None => usual,
    };
    let sized = match number_in(THREADS).and_then(|threads| u32::try_from(threads).ok()) {
        Some(rings) => SegmentOptions { rings, ..sized },
        None => sized,
    };
    let patience_ns = number_in(PATIENCE).unwrap_or(0).saturating_mul(1_000_000);
    let sized = SegmentOptions { patience_ns, ..sized };
    match number_in(FLIGHT) {
        Some(slow) => SegmentOptions { full: Full::Overwrite, slow, ..sized },
        None => sized,
    }
}

/// The number that a variable is.
fn number_in(variable: &CStr) -> Option<u64> {
    // SAFETY: the name ends with a zero; variables do, too, and this is read at once.
    let value = unsafe {
        let value = getenv(variable.as_ptr());
        if value.is_null() {
            return None;
        }
        CStr::from_ptr(value)
    };
    value.to_str().ok()?.parse().ok()
}

/// The thread ends: another takes its ring. What other libraries do at its end may come later, so this asks to be told
/// again until the last time (`PTHREAD_DESTRUCTOR_ITERATIONS`).
unsafe extern "C" fn thread_ends(value: *mut c_void) {
    const ENDS_MAX: u32 = 4;
    MINE.with(|mine| {
        mine.ends.set(mine.ends.get() + 1);
        // SAFETY: the key was made before any thread had a value of it.
        let asks = mine.ends.get() < ENDS_MAX
            && unsafe { pthread_setspecific(*HOME.key.get(), value) } == 0;
        if asks {
            return;
        }
        mine.is_over.set(true);
        give_back(mine);
    });
}

fn give_back(mine: &Mine) {
    if mine.has_writer.replace(false) {
        // SAFETY: there was one, and nobody uses it from here on.
        unsafe { (*mine.writer.get()).assume_init_drop() };
    }
}

/// Descriptors that two processes have are moved by both.
unsafe extern "C" fn after_fork() {
    files::forget_places();
}

/// A forked child records in a segment of its own, once it has something to record.
unsafe extern "C" fn in_child() {
    forget_parent();
    // A kernel that clears nothing leaves it as it was; then nothing is recorded where nothing was.
    if HOME.process.load(Ordering::Relaxed) != 0 && HOME.state.0.load(Ordering::Acquire) != COUNTED
    {
        HOME.state.0.store(INHERITED, Ordering::Release);
    }
}

fn forget_parent() {
    files::forget_places();
    MINE.with(|mine| {
        // Its ring is its parent's.
        mine.has_writer.set(false);
        mine.is_busy.set(false);
        mine.has_jumped.set(false);
        mine.child.set(ChildHere::None);
    });
    files::forget_names();
    // A process that may not ask for its number has one, too.
    HOME.process.store(sys::process().max(1), Ordering::Relaxed);
    // What was not counted yet the parent counts.
    HOME.unplaced.store(0, Ordering::Relaxed);
}

/// This thread is about to start a child that runs on its memory, and would make a segment there
/// for itself.
pub fn note_child(child: ChildHere) {
    if HOME.state.0.load(Ordering::Acquire) == INHERITED {
        settle();
    }
    MINE.with(|mine| mine.child.set(child));
}

/// Does something that may change `errno`, which stays as it is.
pub fn keep_errno<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: the thread's own.
    let errno = unsafe { *__errno_location() };
    let done = act();
    // SAFETY: as above.
    unsafe { *__errno_location() = errno };
    done
}

/// An answer for a function that this C library does not have.
#[cold]
pub fn missing<T: Missing>() -> T {
    const ENOSYS: c_int = 38;
    // SAFETY: the thread's own.
    unsafe { *__errno_location() = ENOSYS };
    T::missing()
}

/// How a function says that it has failed.
pub trait Missing {
    fn missing() -> Self;
}

macro_rules! missing {
    ($($kind:ty => $value:expr,)*) => {
        $(impl Missing for $kind {
            fn missing() -> Self {
                $value
            }
        })*
    };
}

missing! {
    () => (),
    c_int => -1,
    isize => -1,
    i64 => -1,
    usize => 0,
}

impl<T> Missing for *mut T {
    fn missing() -> Self {
        std::ptr::null_mut()
    }
}

/// A call that this thread records.
pub struct TracedCall {
    clock: TraceClock,
}

impl TracedCall {
    /// `None` where it is not recorded: nothing is, or the thread is within one already, or this is
    /// a child on its parent's memory.
    #[inline]
    pub fn begin() -> Option<Self> {
        if !is_on() {
            return None;
        }
        let may = MINE.with(|mine| {
            if mine.child.get() != ChildHere::None && is_child(mine) {
                return false;
            }
            if (mine.is_busy.get() && !was_left(mine)) || mine.is_over.get() {
                count_unplaced();
                return false;
            }
            true
        });
        let has_counter = HOME.has_counter.load(Ordering::Relaxed);
        let kind = if has_counter { ClockKind::Counter } else { ClockKind::Monotonic };
        may.then_some(Self { clock: TraceClock::of(kind) })
    }

    /// A call that is made of calls of other layers; `None` also within another of these.
    pub fn begin_around() -> Option<Self> {
        let turn = Self::begin()?;
        MINE.with(|mine| (!mine.is_within.replace(true)).then_some(turn))
    }

    /// It is over: what is called from here on is no part of it.
    pub fn leave(&self) {
        MINE.with(|mine| mine.is_within.set(false));
    }

    #[inline]
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Writes down what the call did. Nothing here changes `errno`.
    #[inline]
    pub fn end(self, op: IoOp, begun: u64, ended: u64, did: Did) {
        if did.is_skipped {
            return;
        }
        // SAFETY: the thread's own.
        let errno = unsafe { *__errno_location() };
        MINE.with(|mine| {
            // A handler of a signal may come between: it finds the thread busy.
            if mine.is_busy.replace(true) {
                count_unplaced();
                return;
            }
            mine.busy_at.set(stack_place());
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
            if let Some(segment) = home() {
                match writer(mine, segment) {
                    Some(writer) => {
                        let nested = if mine.is_within.get() { flag::NESTED } else { 0 };
                        record(writer, op, (begun, ended), did, nested, errno);
                    }
                    None => segment.unplaced(),
                }
            }
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
            mine.is_busy.set(false);
        });
        // SAFETY: as above. The first look for a ring may have asked the C library for something.
        unsafe { *__errno_location() = errno };
    }
}

/// Where on the stack whoever asks is.
#[inline(always)]
fn stack_place() -> usize {
    let here = 0_u8;
    &raw const here as usize
}

/// Whether what was being recorded was left by a jump out of a signal's handler, which comes back no more: what is below
/// it on the stack is gone. What it had begun to write is not counted as written, and is written over.
#[cold]
fn was_left(mine: &Mine) -> bool {
    // On a stack of its own a handler is neither above nor below.
    let is_left = mine.has_jumped.get()
        && stack_place() > mine.busy_at.get()
        && !sys::is_on_alternate_stack();
    if is_left {
        mine.has_jumped.set(false);
        mine.is_busy.set(false);
        count_unplaced();
    }
    is_left
}

/// A jump to another place of the program is about to be made.
pub fn note_jump() {
    MINE.with(|mine| mine.has_jumped.set(mine.is_busy.get()));
}

/// The system will end this thread for calls that it makes from here on, and for reading a clock: nothing of it is
/// recorded any more, but counted. Whether that was so already.
pub fn stop_thread(is_stopped: bool) -> bool {
    let _ = home();
    MINE.with(|mine| mine.is_over.replace(is_stopped))
}

/// The system may end the process for calls that only this library makes: all that is asked of it for recording is
/// asked now, and nothing later.
pub fn seal() {
    let Some(segment) = home() else { return sys::seal() };
    MINE.with(|mine| {
        if !mine.is_over.get() && !mine.is_busy.replace(true) {
            if let Some(writer) = writer(mine, segment) {
                files::look_up_all(writer);
            }
            mine.is_busy.set(false);
        }
        let ring = mine.has_writer.get().then(|| {
            // SAFETY: there is one, which is looked at.
            unsafe { (*mine.writer.get()).assume_init_ref() }
        });
        segment.prepare(ring);
    });
    sys::seal();
}

/// There is such a filter now.
pub fn is_sealed_now() {
    if !HOME.has_counter.load(Ordering::Relaxed) && home().is_some() {
        // The time is asked of the system.
        HOME.state.0.store(COUNTED, Ordering::Release);
    }
}

/// Whether this is a child on the thread's memory. When one that the thread waits for is gone the thread is its
/// parent's. What one does beside it is counted; what is done between `vfork` and `exec` is not looked at.
#[cold]
fn is_child(mine: &Mine) -> bool {
    // Where nothing is asked of the system, one that the thread waits for is not told from it.
    let is_child = if sys::is_sealed() {
        mine.child.get() == ChildHere::Beside
    } else {
        sys::process() != HOME.process.load(Ordering::Relaxed)
    };
    match mine.child.get() {
        ChildHere::Beside if is_child => count_unplaced(),
        ChildHere::First if !is_child => mine.child.set(ChildHere::None),
        _ => {}
    }
    is_child
}

#[expect(clippy::mut_from_ref, reason = "a busy thread's writer is nobody else's")]
#[inline]
fn writer<'a>(
    mine: &'a Mine,
    segment: &'static TraceSegment,
) -> Option<&'a mut RingWriter<'static>> {
    if !mine.has_writer.get() && !take_ring(mine, segment) {
        return None;
    }
    // SAFETY: there is one; the thread is busy, and so nobody else has it.
    Some(unsafe { (*mine.writer.get()).assume_init_mut() })
}

#[cold]
fn take_ring(mine: &Mine, segment: &'static TraceSegment) -> bool {
    let Some(writer) = segment.writer() else { return false };
    // SAFETY: there was none.
    unsafe { (*mine.writer.get()).write(writer) };
    mine.has_writer.set(true);
    // SAFETY: the key was made before the segment; the value only has to be none of zero.
    unsafe { pthread_setspecific(*HOME.key.get(), std::ptr::from_ref(mine).cast()) };
    true
}

/// Puts the number of the second name, if there is one, in the place of where it lies.
#[inline]
fn second_name(did: Did, errno: c_int, writer: &mut RingWriter<'_>) -> (Did, u16) {
    if let Some(fd) = did.copied_to {
        return (Did { asked: files::of(fd, writer), ..did }, flag::NAMED);
    }
    if !matches!(did.target, CallTarget::Paths(..) | CallTarget::PathAndText(..)) {
        return (did, 0);
    }
    let text = did.asked as usize as *const c_char;
    let number = match did.target {
        // What could not be read there is not read here.
        _ if did.has_failed && errno == EFAULT => 0,
        CallTarget::Paths(..) => files::named(did.bytes as c_int, text, writer),
        _ => files::text(text, writer),
    };
    (Did { asked: number, bytes: 0, ..did }, flag::NAMED)
}

#[inline]
fn record(
    writer: &mut RingWriter<'_>,
    op: IoOp,
    (begun, ended): (u64, u64),
    did: Did,
    nested: u16,
    errno: c_int,
) {
    let errno = match did.error {
        // MPI sets no errno.
        0 if did.layer == IoLayer::Mpi => EIO,
        0 => errno,
        error => error,
    };
    if let (CallTarget::Descriptor(fd), Some(new)) = (did.target, did.opened)
        && fd == new
    {
        // What it was before it was closed, perhaps by calls that are not seen.
        files::closed(fd);
    }
    let (file, place) = match did.target {
        CallTarget::Nothing => (0, None),
        CallTarget::Descriptor(fd) => (files::of(fd, writer), files::place(fd)),
        CallTarget::Stream(stream) => (stream_file(stream, writer), None),
        CallTarget::Memory(at) => (files::mapped(at), None),
        CallTarget::Known(number) => (number, None),
        // What could not be read there is not read here.
        CallTarget::Path(..) | CallTarget::Paths(..) | CallTarget::PathAndText(..)
            if did.has_failed && errno == EFAULT =>
        {
            (0, None)
        }
        CallTarget::Path(directory, path) if let Some(fd) = did.opened => {
            (files::opened_as(directory, path, fd, writer), None)
        }
        CallTarget::Path(directory, path)
        | CallTarget::Paths(directory, path)
        | CallTarget::PathAndText(directory, path) => (files::named(directory, path, writer), None),
    };
    let (did, named) = second_name(did, errno, writer);
    let moves = did.place == FilePlace::Follows;
    let offset = did.offset.or(place.filter(|_| moves));
    if let CallTarget::Descriptor(fd) = did.target
        && !did.has_failed
    {
        match did.place {
            FilePlace::Stays | FilePlace::Shared => {}
            FilePlace::Follows => files::set_place(fd, place.map(|place| place + did.bytes)),
            FilePlace::At(at) => files::set_place(fd, Some(at)),
            FilePlace::Unknown => files::set_place(fd, None),
        }
    }
    if let CallTarget::Memory(at) = did.target
        && did.place == FilePlace::Unknown
        && !did.has_failed
    {
        files::unmap(at);
    }
    if let Some(fd) = did.opened {
        files::opened(fd, file, did.place);
        if let (CallTarget::Descriptor(old), FilePlace::Shared) = (did.target, did.place) {
            files::share(old, fd);
        }
    }
    if did.mpi_file != 0 {
        crate::mpi_files::opened(did.mpi_file, file);
    }
    let failed = if did.has_failed { flag::FAILED } else { 0 } | named;
    let placed = if offset.is_some() { flag::PLACED } else { 0 };
    writer.put(&IoEvent {
        op: did.op.unwrap_or(op),
        layer: did.layer,
        flags: nested | failed | placed,
        begun,
        ended,
        file,
        offset: offset.unwrap_or(0),
        asked: did.asked,
        bytes: if did.has_failed { errno as u64 } else { did.bytes },
        span: 0,
    });
}

/// The file behind a buffered one; 0 for one in memory.
fn stream_file(stream: *mut c_void, writer: &mut RingWriter<'_>) -> u64 {
    if stream.is_null() {
        return 0;
    }
    // SAFETY: the call that was made takes it as an open one.
    files::of(unsafe { fileno(stream) }, writer)
}

/// The descriptor behind a buffered file, before it is closed.
///
/// # Safety
/// It is open.
pub unsafe fn descriptor_of(stream: *mut c_void) -> c_int {
    if stream.is_null() {
        return -1;
    }
    // SAFETY: as our caller vouches for; `errno` is the thread's own.
    unsafe {
        let errno = *__errno_location();
        let fd = fileno(stream);
        *__errno_location() = errno;
        fd
    }
}

/// The descriptor behind an open directory.
///
/// # Safety
/// It is open.
pub unsafe fn descriptor_of_directory(directory: *mut c_void) -> c_int {
    if directory.is_null() {
        return -1;
    }
    // SAFETY: as above.
    unsafe { dirfd(directory) }
}
