//! What is asked of the kernel, without the C library between: its functions may be the ones that
//! are recorded, set `errno` of the program, or take locks that it holds.
#![expect(unsafe_code, reason = "calls of the kernel are made by an instruction")]
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

/// The least that is set aside at once.
pub const PAGE_BYTES: usize = 4096;
/// The time of day.
pub const CLOCK_REALTIME: i32 = 0;
/// Time that passes, at the rate of the machine's own clock.
pub const CLOCK_MONOTONIC_RAW: i32 = 4;

/// An error of the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelError(
    /// Its number.
    pub i32,
);

#[cfg(target_arch = "x86_64")]
mod number {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const PREAD: usize = 17;
    pub const PWRITE: usize = 18;
    pub const MMAP: usize = 9;
    pub const MUNMAP: usize = 11;
    pub const MADVISE: usize = 28;
    pub const NANOSLEEP: usize = 35;
    pub const GETPID: usize = 39;
    pub const FCNTL: usize = 72;
    pub const GETUID: usize = 102;
    pub const SIGALTSTACK: usize = 131;
    pub const GETPPID: usize = 110;
    pub const FTRUNCATE: usize = 77;
    pub const FALLOCATE: usize = 285;
    pub const GETCWD: usize = 79;
    pub const GETTID: usize = 186;
    pub const TGKILL: usize = 234;
    pub const OPENAT: usize = 257;
    pub const UNLINKAT: usize = 263;
    pub const READLINKAT: usize = 267;
    pub const PRLIMIT: usize = 302;
    pub const STATX: usize = 332;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub const GETCWD: usize = 17;
    pub const FCNTL: usize = 25;
    pub const UNLINKAT: usize = 35;
    pub const FTRUNCATE: usize = 46;
    pub const FALLOCATE: usize = 47;
    pub const OPENAT: usize = 56;
    pub const CLOSE: usize = 57;
    pub const READ: usize = 63;
    pub const WRITE: usize = 64;
    pub const PREAD: usize = 67;
    pub const PWRITE: usize = 68;
    pub const READLINKAT: usize = 78;
    pub const NANOSLEEP: usize = 101;
    pub const TGKILL: usize = 131;
    pub const SIGALTSTACK: usize = 132;
    pub const GETPID: usize = 172;
    pub const GETPPID: usize = 173;
    pub const GETUID: usize = 174;
    pub const GETTID: usize = 178;
    pub const MUNMAP: usize = 215;
    pub const MMAP: usize = 222;
    pub const MADVISE: usize = 233;
    pub const PRLIMIT: usize = 261;
    pub const STATX: usize = 291;
}

/// What a process is refused that asks the kernel for nothing more.
const EPERM: KernelError = KernelError(1);

static IS_SEALED: AtomicBool = AtomicBool::new(false);

/// From here on the kernel is asked for nothing here: each call fails with `EPERM` and is not made.
pub fn seal() {
    IS_SEALED.store(true, Ordering::Relaxed);
}

/// The kernel is asked again.
pub fn unseal() {
    IS_SEALED.store(false, Ordering::Relaxed);
}

/// Whether the kernel is asked for nothing.
#[must_use]
pub fn is_sealed() -> bool {
    IS_SEALED.load(Ordering::Relaxed)
}

/// Makes a call of the kernel, unless it is asked for nothing more.
///
/// # Safety
/// As the call asks for.
#[inline]
unsafe fn call(number: usize, args: [usize; 6]) -> Result<usize, KernelError> {
    if is_sealed() {
        return Err(EPERM);
    }
    // SAFETY: as our caller vouches for.
    unsafe { enter(number, args) }
}

/// Makes a call of the kernel.
///
/// # Safety
/// As the call asks for.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn enter(number: usize, args: [usize; 6]) -> Result<usize, KernelError> {
    let result: isize;
    // SAFETY: the kernel keeps all registers but these three.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    done(result)
}

/// Makes a call of the kernel.
///
/// # Safety
/// As the call asks for.
#[cfg(target_arch = "aarch64")]
#[inline]
unsafe fn enter(number: usize, args: [usize; 6]) -> Result<usize, KernelError> {
    let result: isize;
    // SAFETY: the kernel keeps all registers but the first.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] as isize => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    done(result)
}

fn done(result: isize) -> Result<usize, KernelError> {
    const ERRNO_MAX: isize = 4095;
    if (-ERRNO_MAX..0).contains(&result) {
        Err(KernelError(-result as i32))
    } else {
        Ok(result as usize)
    }
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenHow {
    /// To read.
    Read,
    /// To read and write; it must be there.
    Update,
    /// To read and write; it must not be there. Only its owner may open it.
    CreateNew,
}

const AT_FDCWD: usize = -100isize as usize;
const O_RDWR: usize = 2;
const O_CREAT: usize = 0o100;
const O_EXCL: usize = 0o200;
const O_NONBLOCK: usize = 0o4_000;
const O_CLOEXEC: usize = 0o2_000_000;
#[cfg(target_arch = "x86_64")]
const O_NOFOLLOW: usize = 0o400_000;
#[cfg(target_arch = "aarch64")]
const O_NOFOLLOW: usize = 0o100_000;

/// Opens a file. The last part of its path must be no link. Neither a pipe without another end nor
/// a lease of another process blocks the call.
///
/// # Errors
/// As the kernel says.
pub fn open(path: &CStr, how: OpenHow) -> Result<Descriptor, KernelError> {
    let flags = match how {
        OpenHow::Read => 0,
        OpenHow::Update => O_RDWR,
        OpenHow::CreateNew => O_RDWR | O_CREAT | O_EXCL,
    } | O_CLOEXEC
        | O_NONBLOCK
        | O_NOFOLLOW;
    let path = path.as_ptr() as usize;
    // SAFETY: the path ends with a zero and outlives the call.
    let opened = unsafe { call(number::OPENAT, [AT_FDCWD, path, flags, 0o600, 0, 0]) };
    opened.map(|number| Descriptor(number as i32))
}

/// Takes a name away.
///
/// # Errors
/// As the kernel says.
pub fn unlink(path: &CStr) -> Result<(), KernelError> {
    // SAFETY: the path ends with a zero and outlives the call.
    let done = unsafe { call(number::UNLINKAT, [AT_FDCWD, path.as_ptr() as usize, 0, 0, 0, 0]) };
    done.map(drop)
}

/// An open file, closed with this.
#[derive(Debug)]
pub struct Descriptor(i32);

impl Descriptor {
    /// Gives the file so many bytes.
    ///
    /// # Errors
    /// As the kernel says; `EFBIG` where the process may not have files of that size, which would
    /// end it by a signal.
    pub fn set_len(&self, bytes: u64) -> Result<(), KernelError> {
        const RLIMIT_FSIZE: usize = 1;
        const EFBIG: KernelError = KernelError(27);
        let mut limits = [0_u64; 2];
        let at = limits.as_mut_ptr() as usize;
        // SAFETY: the limits are written there, two of 64 bits.
        unsafe { call(number::PRLIMIT, [0, RLIMIT_FSIZE, 0, at, 0, 0]) }?;
        if limits[0] < bytes {
            return Err(EFBIG);
        }
        // SAFETY: acts on a file of ours.
        unsafe { call(number::FTRUNCATE, [self.0 as usize, bytes as usize, 0, 0, 0, 0]) }.map(drop)
    }

    /// Has memory, or disk, set aside for a part of the file.
    ///
    /// # Errors
    /// As the kernel says; `ENOSPC` where there is none.
    pub fn allocate(&self, at: u64, bytes: u64) -> Result<(), KernelError> {
        let args = [self.0 as usize, 0, at as usize, bytes as usize, 0, 0];
        // SAFETY: acts on a file of ours.
        unsafe { call(number::FALLOCATE, args) }.map(drop)
    }

    /// Reads from where it is.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn read(&self, into: &mut [u8]) -> Result<usize, KernelError> {
        let args = [self.0 as usize, into.as_mut_ptr() as usize, into.len(), 0, 0, 0];
        // SAFETY: no more is written there than there is room.
        unsafe { call(number::READ, args) }
    }
}

impl Descriptor {
    /// Reads from `at` bytes into the file; 0 at its end and beyond.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize, KernelError> {
        let args = [self.0 as usize, into.as_mut_ptr() as usize, into.len(), at as usize, 0, 0];
        // SAFETY: no more is written there than there is room.
        unsafe { call(number::PREAD, args) }
    }

    /// Writes from `at` bytes into the file.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn write_at(&self, bytes: &[u8], at: u64) -> Result<usize, KernelError> {
        let args = [self.0 as usize, bytes.as_ptr() as usize, bytes.len(), at as usize, 0, 0];
        // SAFETY: no more is read there than there is.
        unsafe { call(number::PWRITE, args) }
    }

    /// Whether any process has the file open or mapped besides through this descriptor, which was opened to
    /// write: the kernel gives no lease on such a file (fcntl(2), `F_SETLEASE`). Processes of other
    /// namespaces count as any.
    ///
    /// # Errors
    /// As the kernel says, where files have no leases, or none for this user.
    pub fn is_used_by_others(&self) -> Result<bool, KernelError> {
        const EAGAIN: KernelError = KernelError(11);
        const SET_SIGNAL: usize = 10;
        const SET_LEASE: usize = 1024;
        const WRITE_LEASE: usize = 1;
        const NO_LEASE: usize = 2;
        /// Whoever opens the file during the lease has the kernel send a signal, which would be `SIGIO` and end
        /// the process; this one is ignored where nobody has asked for it.
        const SIGURG: usize = 23;
        let fcntl = |command, value| {
            // SAFETY: acts on a file of ours.
            unsafe { call(number::FCNTL, [self.0 as usize, command, value, 0, 0, 0]) }
        };
        fcntl(SET_SIGNAL, SIGURG)?;
        match fcntl(SET_LEASE, WRITE_LEASE) {
            Ok(_) => {
                fcntl(SET_LEASE, NO_LEASE)?;
                Ok(false)
            }
            Err(EAGAIN) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Its kind, owner and length.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn status(&self) -> Result<FileStatus, KernelError> {
        status_of(self.0 as usize, 0)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // There is nothing to be done about an error; nothing was written through it.
        // SAFETY: it is ours, and nobody has it after this.
        let _ = unsafe { call(number::CLOSE, [self.0 as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Writes to a descriptor of the program, such as its standard error.
///
/// # Errors
/// As the kernel says.
pub fn write(descriptor: i32, bytes: &[u8]) -> Result<usize, KernelError> {
    let args = [descriptor as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0];
    // SAFETY: no more is read there than there is.
    unsafe { call(number::WRITE, args) }
}

/// A file in memory, as others see it too; taken away with this.
#[derive(Debug)]
pub struct Mapping {
    start: *mut u8,
    len: usize,
}

// SAFETY: it is bytes of a file, which others change at any time; who reads them reads atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a file, to read and write.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn of(file: &Descriptor, len: usize) -> Result<Self, KernelError> {
        const READ_WRITE: usize = 3;
        const SHARED: usize = 1;
        const NORESERVE: usize = 0x4000;
        let args = [0, len, READ_WRITE, SHARED | NORESERVE, file.0 as usize, 0];
        // SAFETY: the kernel chooses a place where nothing is.
        let start = unsafe { call(number::MMAP, args) }?;
        Ok(Self { start: start as *mut u8, len })
    }

    /// Where it begins.
    #[must_use]
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Has memory set aside for a part of it: from then on writing there does not end the process
    /// by a signal because there is none.
    ///
    /// # Errors
    /// As the kernel says: `EFAULT` where there is no memory, `EINVAL` before Linux 5.14.
    pub fn populate(&self, at: usize, bytes: usize) -> Result<(), KernelError> {
        const POPULATE_WRITE: usize = 23;
        let first = at & !(PAGE_BYTES - 1);
        let end = (at + bytes).min(self.len);
        let args = [self.start as usize + first, end - first, POPULATE_WRITE, 0, 0, 0];
        // SAFETY: within the mapping.
        unsafe { call(number::MADVISE, args) }.map(drop)
    }

    /// How long it is.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is ours, and whoever points there borrows this.
        let _ = unsafe { call(number::MUNMAP, [self.start as usize, self.len, 0, 0, 0, 0]) };
    }
}

/// Has the kernel clear the page that begins here in each child that is forked, whoever forks it. It is memory
/// of this process alone, and no file's.
///
/// # Errors
/// As the kernel says: `EINVAL` where its pages are larger, and before Linux 4.14.
pub fn clear_in_children(page: *mut u8) -> Result<(), KernelError> {
    const WIPE_ON_FORK: usize = 18;
    // SAFETY: nothing changes in this process.
    unsafe { call(number::MADVISE, [page as usize, PAGE_BYTES, WIPE_ON_FORK, 0, 0, 0]) }.map(drop)
}

fn number_of(which: usize) -> u32 {
    // SAFETY: calls without arguments that cannot fail.
    unsafe { call(which, [0; 6]) }.map_or(0, |number| number as u32)
}

/// This process.
#[must_use]
pub fn process() -> u32 {
    number_of(number::GETPID)
}

/// Who started it.
#[must_use]
pub fn parent() -> u32 {
    number_of(number::GETPPID)
}

/// This thread.
#[must_use]
pub fn thread() -> u32 {
    number_of(number::GETTID)
}

/// Whether this thread runs on the stack that it has for signals, as far as the kernel says.
#[must_use]
pub fn is_on_alternate_stack() -> bool {
    const ON_STACK: i32 = 1;
    /// `stack_t`.
    #[repr(C)]
    struct SignalStack {
        start: usize,
        flags: i32,
        len: usize,
    }
    let mut told = SignalStack { start: 0, flags: ON_STACK, len: 0 };
    let into = &raw mut told as usize;
    // SAFETY: what is written has room there.
    let asked = unsafe { call(number::SIGALTSTACK, [0, into, 0, 0, 0, 0]) };
    asked.is_err() || told.flags & ON_STACK != 0
}

/// Whether a thread of this process is there, as far as the kernel says.
#[must_use]
pub fn has_thread(thread: u32) -> bool {
    const ESRCH: KernelError = KernelError(3);
    let args = [process() as usize, thread as usize, 0, 0, 0, 0];
    // SAFETY: no signal is sent.
    let told = unsafe { call(number::TGKILL, args) };
    told != Err(ESRCH)
}

/// For whom it runs.
#[must_use]
pub fn user() -> u32 {
    number_of(number::GETUID)
}

/// Where a link leads; as much of it as there is room for.
///
/// # Errors
/// As the kernel says.
pub fn read_link<'a>(path: &CStr, into: &'a mut [u8]) -> Result<&'a [u8], KernelError> {
    let args = [AT_FDCWD, path.as_ptr() as usize, into.as_mut_ptr() as usize, into.len(), 0, 0];
    // SAFETY: the path ends with a zero; no more is written than there is room.
    let len = unsafe { call(number::READLINKAT, args) }?;
    Ok(&into[..len])
}

/// An open file: what it is, whose, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStatus {
    /// Whether it is a regular file.
    pub is_regular: bool,
    /// The number of its owner.
    pub owner: u32,
    /// Its length in bytes.
    pub length: u64,
    /// Its device, by two numbers, and its inode.
    pub inode: ([u32; 2], u64),
}

fn status_of(descriptor: usize, how: usize) -> Result<FileStatus, KernelError> {
    const EMPTY_PATH: usize = 0x1000;
    const TYPE_OWNER_INODE_SIZE: usize = 0x309;
    const TYPE_BITS: u16 = 0o170_000;
    const REGULAR: u16 = 0o100_000;
    /// `struct statx`, as far as it is looked at.
    #[repr(C)]
    #[derive(Default)]
    struct KernelFileStat {
        before: [u32; 5],
        owner: u32,
        group: u32,
        mode: u16,
        spare: u16,
        inode: u64,
        size: u64,
        between: [u64; 11],
        device: [u32; 2],
        behind: [u64; 14],
    }
    const _: () = assert!(size_of::<KernelFileStat>() == 256);
    let mut told = KernelFileStat::default();
    let into = &raw mut told;
    let (path, flags) = (c"".as_ptr() as usize, EMPTY_PATH | how);
    let args = [descriptor, path, flags, TYPE_OWNER_INODE_SIZE, into as usize, 0];
    // SAFETY: the path ends with a zero; what is written has 256 bytes, for which there is room.
    unsafe { call(number::STATX, args) }?;
    Ok(FileStatus {
        is_regular: told.mode & TYPE_BITS == REGULAR,
        owner: told.owner,
        length: told.size,
        inode: (told.device, told.inode),
    })
}

/// How long an open file is, in bytes, as far as this machine knows without asking a server; `None`
/// for what is no ordinary file, or cannot be asked.
#[must_use]
pub fn file_length(descriptor: i32) -> Option<u64> {
    const DONT_SYNC: usize = 0x4000;
    let status = status_of(usize::try_from(descriptor).ok()?, DONT_SYNC).ok()?;
    status.is_regular.then_some(status.length)
}

/// The working directory.
///
/// # Errors
/// As the kernel says; `ERANGE` where it is longer than the room.
pub fn working_directory(into: &mut [u8]) -> Result<&[u8], KernelError> {
    // SAFETY: no more is written than there is room.
    let len =
        unsafe { call(number::GETCWD, [into.as_mut_ptr() as usize, into.len(), 0, 0, 0, 0]) }?;
    // With the zero at its end.
    Ok(&into[..len.saturating_sub(1)])
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanos: i64,
}

unsafe extern "C" {
    // Of the C library, which asks no kernel.
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

/// What a clock of the kernel's shows, in ns.
#[must_use]
pub fn clock_ns(clock: i32) -> u64 {
    let mut time = Timespec { seconds: 0, nanos: 0 };
    // SAFETY: the time is written there; the clocks named here are in every kernel.
    unsafe { clock_gettime(clock, &mut time) };
    time.seconds as u64 * 1_000_000_000 + time.nanos as u64
}

/// Waits for less than a second, or until a signal comes.
///
/// # Errors
/// As the kernel says.
pub fn sleep(nanos: u64) -> Result<(), KernelError> {
    const EINTR: KernelError = KernelError(4);
    let time = Timespec { seconds: 0, nanos: nanos.min(999_999_999) as i64 };
    let at = &raw const time as usize;
    // SAFETY: the time is read there.
    match unsafe { call(number::NANOSLEEP, [at, 0, 0, 0, 0, 0]) } {
        Err(EINTR) => Ok(()),
        slept => slept.map(drop),
    }
}

/// The beginning of a file, as far as there is room: of the small ones in /proc.
///
/// # Errors
/// As the kernel says.
pub fn read_file<'a>(path: &CStr, into: &'a mut [u8]) -> Result<&'a [u8], KernelError> {
    let file = open(path, OpenHow::Read)?;
    let mut len = 0;
    while len < into.len() {
        match file.read(&mut into[len..])? {
            0 => break,
            more => len += more,
        }
    }
    Ok(&into[..len])
}
