//! The C library's buffered files: what they read and write of the kernel's they do within it,
//! where no other library sees it.
use crate::ctypes::{AnyPointer, CFile, CFormat, VaList};
use crate::files;
use crate::posix::length_before;
use crate::turn::{Did, FilePlace, descriptor_of};
use std::ffi::{c_char, c_int, c_long, c_void};

const END: c_int = -1;

unsafe extern "C" {
    #[link_name = "stdin"]
    static INPUT: CFile;
    #[link_name = "stdout"]
    static OUTPUT: CFile;
    fn strnlen(text: *const c_char, most: usize) -> usize;
    fn ftello64(file: CFile) -> i64;
    fn feof_unlocked(file: CFile) -> c_int;
    fn ferror_unlocked(file: CFile) -> c_int;
    fn __errno_location() -> *mut c_int;
}

/// Where a file is in what it has read ahead.
#[derive(Clone, Copy)]
struct StreamPlace {
    at: usize,
    end: usize,
}

/// The beginning of glibc's `FILE` (its `bits/types/struct_FILE.h`).
#[cfg(target_env = "gnu")]
#[repr(C)]
struct StreamHead {
    flags: c_int,
    at: usize,
    end: usize,
    start: usize,
    write: [usize; 3],
    room: usize,
    room_end: usize,
}

impl StreamPlace {
    /// # Safety
    /// The file is open, or null.
    #[cfg(target_env = "gnu")]
    unsafe fn of(file: CFile) -> Self {
        let head = file.cast::<StreamHead>();
        if head.is_null() {
            return Self { at: 0, end: 0 };
        }
        // SAFETY: as our caller vouches for; another thread may change it meanwhile.
        unsafe {
            let (at, end) = (&raw const (*head).at, &raw const (*head).end);
            Self { at: at.read_volatile(), end: end.read_volatile() }
        }
    }

    #[cfg(not(target_env = "gnu"))]
    unsafe fn of(_file: CFile) -> Self {
        Self { at: 0, end: 0 }
    }

    /// How many bytes it reads ahead at most.
    ///
    /// # Safety
    /// The file is open.
    #[cfg(target_env = "gnu")]
    unsafe fn room(file: CFile) -> usize {
        // SAFETY: as our caller vouches for; the room lies between these two.
        let head = unsafe { &*file.cast::<StreamHead>() };
        head.room_end.saturating_sub(head.room)
    }

    #[cfg(not(target_env = "gnu"))]
    unsafe fn room(_file: CFile) -> usize {
        usize::MAX
    }

    /// How many bytes were taken since: if it has read no further, and if it has, once.
    ///
    /// # Safety
    /// The file is open.
    #[cfg(target_env = "gnu")]
    unsafe fn passed(self, file: CFile) -> [usize; 2] {
        // SAFETY: as our caller vouches for.
        let (now, start) = unsafe {
            (Self::of(file), (&raw const (*file.cast::<StreamHead>()).start).read_volatile())
        };
        let next = self.end.saturating_sub(self.at) + now.at.saturating_sub(start);
        [now.at.saturating_sub(self.at), next]
    }

    #[cfg(not(target_env = "gnu"))]
    unsafe fn passed(self, _file: CFile) -> [usize; 2] {
        [0; 2]
    }
}

/// # Safety
/// The C library has begun.
pub unsafe fn input() -> Did {
    // SAFETY: as our caller vouches for.
    Did::stream(unsafe { INPUT })
}

/// # Safety
/// As above.
pub unsafe fn output() -> Did {
    // SAFETY: as above.
    Did::stream(unsafe { OUTPUT })
}

impl Did {
    /// So many of `count` items of a size were moved. Fewer are the end of the file, or a failure:
    /// the file says which, and the next call.
    fn items(mut self, size: usize, count: usize, done: usize) -> Self {
        self.asked = size.saturating_mul(count) as u64;
        self.bytes = size.saturating_mul(done) as u64;
        self
    }

    /// One character, or none.
    fn one(mut self, came: c_int) -> Self {
        (self.asked, self.bytes) = (1, u64::from(came != END));
        self
    }

    /// So much was printed, or nothing for a failure.
    pub fn printed(mut self, came: c_int) -> Self {
        self.has_failed = came < 0;
        self.bytes = came.max(0) as u64;
        self.asked = self.bytes;
        self
    }

    /// A line of less than so many characters. A zero ends it, and may be in it: then what the file has read ahead says
    /// how long it is.
    ///
    /// # Safety
    /// The line is there, or null; the file is open.
    unsafe fn line(
        mut self,
        most: usize,
        line: *const c_char,
        before: StreamPlace,
        file: CFile,
    ) -> Self {
        self.asked = most as u64;
        if line.is_null() {
            return self;
        }
        // SAFETY: as our caller vouches for.
        let text = unsafe { std::slice::from_raw_parts(line.cast::<u8>(), most) };
        let is_zero = |at: usize| text.get(at) == Some(&0);
        let is_end = |bytes: usize| bytes + 1 == most || bytes > 0 && text[bytes - 1] == b'\n';
        // SAFETY: as above.
        let mut bytes = unsafe { strnlen(line, most) };
        if bytes < most && !is_end(bytes) {
            // SAFETY: as above.
            let (passed, is_over) = unsafe { (before.passed(file), feof_unlocked(file) != 0) };
            // SAFETY: as above.
            let room = unsafe { StreamPlace::room(file) }.max(1);
            // What it has read ahead may have been used up several times.
            let again = (1..).map(|times| passed[1].saturating_add(room.saturating_mul(times)));
            let again = again.take_while(|&passed| passed < most);
            let mut longer =
                passed.into_iter().chain(again).filter(|&passed| passed > bytes && is_zero(passed));
            bytes = longer.find(|&passed| is_over || is_end(passed)).unwrap_or(bytes);
        }
        self.bytes = bytes as u64;
        self
    }

    /// What was scanned, as far as the file says where it is.
    ///
    /// # Safety
    /// The file is open.
    unsafe fn scanned(mut self, before: StreamPlace, file: CFile) -> Self {
        // SAFETY: as our caller vouches for.
        let ([same, next], now) = unsafe { (before.passed(file), StreamPlace::of(file)) };
        let is_same = now.end == before.end && now.at >= before.at;
        self.bytes = if is_same { same } else { next } as u64;
        self.asked = self.bytes;
        self
    }

    /// A word, or none: what says so may be one, too.
    ///
    /// # Safety
    /// The file is open.
    unsafe fn word(self, came: c_int, file: CFile) -> Self {
        // SAFETY: as our caller vouches for.
        let has_ended =
            came == END && unsafe { feof_unlocked(file) != 0 || ferror_unlocked(file) != 0 };
        self.items(4, 1, usize::from(!has_ended))
    }

    /// A text that was written as a whole, or not.
    ///
    /// # Safety
    /// The text is there.
    unsafe fn text(mut self, text: *const c_char, more: u64, came: c_int) -> Self {
        // SAFETY: as our caller vouches for.
        self.asked = unsafe { strnlen(text, usize::MAX >> 1) } as u64 + more;
        self.has_failed = came == END;
        self.bytes = if self.has_failed { 0 } else { self.asked };
        self
    }
}

/// What a mode of `fopen` is as the flags of `open`.
///
/// # Safety
/// It is a text, as whoever has opened a file by it has found.
unsafe fn flags_of(mode: *const c_char) -> c_int {
    const RDWR: c_int = 0o2;
    // SAFETY: as our caller vouches for.
    let text = unsafe { std::ffi::CStr::from_ptr(mode) }.to_bytes();
    // What follows on a comma is an encoding.
    let text = text.split(|byte| *byte == b',').next().unwrap_or_default();
    let flags = match text.first() {
        Some(b'w') => 0o1101,
        Some(b'a') => 0o2101,
        _ => 0,
    };
    let flags = if text.contains(&b'+') { flags & !1 | RDWR } else { flags };
    if text.contains(&b'x') { flags | 0o200 } else { flags }
}

/// A descriptor that is open becomes a stream, where the descriptor is: of the flags, that it appends
/// is left to be said.
///
/// # Safety
/// The stream is open by this mode, or null.
unsafe fn reopened(file: CFile, mode: *const c_char) -> Did {
    const APPEND: c_int = 0o2000;
    if file.is_null() {
        return Did::stream(file).failed_if(true);
    }
    // SAFETY: as our caller vouches for.
    let did = unsafe { moved_to(file, 0) };
    // SAFETY: as above.
    did.of((unsafe { flags_of(mode) } & APPEND).into())
}

/// Placed anew: where is its offset.
///
/// # Safety
/// The stream is open.
unsafe fn moved_to(file: CFile, came: c_int) -> Did {
    let did = Did::stream(file).came(came);
    if came < 0 {
        return did;
    }
    // What has no places stays without one, and so does `errno`.
    // SAFETY: the thread's own, and as our caller vouches for.
    let place = unsafe {
        let errno = __errno_location();
        let before = *errno;
        let place = ftello64(file);
        *errno = before;
        place
    };
    did.at(place)
}

/// Without a path it is the file that it was, opened in another way.
fn again(path: *const c_char, file: CFile) -> Did {
    if path.is_null() { Did::stream(file) } else { Did::path(path) }
}

/// Opened, or not; the flags are what was asked for.
///
/// # Safety
/// The file is open by this mode, or null.
unsafe fn opened(mut did: Did, file: CFile, mode: *const c_char) -> Did {
    if !file.is_null() {
        // SAFETY: as our caller vouches for.
        let (flags, fd) = unsafe { (flags_of(mode), descriptor_of(file)) };
        did = did.of(flags.into()).at(length_before(flags, fd));
    }
    // SAFETY: as our caller vouches for.
    let fd = unsafe { descriptor_of(file) };
    did.layer = sheaf_recorder::IoLayer::Stdio;
    did.has_failed = file.is_null();
    did.opened = (fd >= 0).then_some(fd);
    did.place = FilePlace::Unknown;
    did
}

wrap! {
    fn fopen(path: *const c_char, mode: *const c_char) -> CFile = Open, |file| opened(Did::path(path), file, mode);
    fn fopen64(path: *const c_char, mode: *const c_char) -> CFile
        = Open, |file| opened(Did::path(path), file, mode);
    fn fdopen(fd: c_int, mode: *const c_char) -> CFile
        = Open, |file| reopened(file, mode);
    fn freopen(path: *const c_char, mode: *const c_char, old: CFile) -> CFile
        = Open, |file| opened(again(path, file), file, mode);
    fn freopen64(path: *const c_char, mode: *const c_char, old: CFile) -> CFile
        = Open, |file| opened(again(path, file), file, mode);
    fn tmpfile() -> CFile = Open, |file| Did::stream(file).failed_if(file.is_null());
    fn tmpfile64() -> CFile = Open, |file| Did::stream(file).failed_if(file.is_null());
    fn popen(command: *const c_char, mode: *const c_char) -> CFile
        = Open, |file| Did::stream(file).failed_if(file.is_null());
    fn pclose(file: CFile) -> c_int
        = Close, before number = files::left(descriptor_of(file)), |came| closed(number, came < 0);
    fn fclose(file: CFile) -> c_int
        = Close, before number = files::left(descriptor_of(file)), |came| closed(number, came == END);

    fn fread(into: AnyPointer, size: usize, count: usize, file: CFile) -> usize
        = Read, |done| Did::stream(file).items(size, count, done);
    fn fread_unlocked(into: AnyPointer, size: usize, count: usize, file: CFile) -> usize
        = Read, |done| Did::stream(file).items(size, count, done);
    fn __fread_chk(into: AnyPointer, room: usize, size: usize, count: usize, file: CFile) -> usize
        = Read, |done| Did::stream(file).items(size, count, done);
    fn __fread_unlocked_chk(into: AnyPointer, room: usize, size: usize, count: usize, file: CFile) -> usize
        = Read, |done| Did::stream(file).items(size, count, done);
    fn fgets(into: *mut c_char, most: c_int, file: CFile) -> *mut c_char
        = Read, before before = StreamPlace::of(file),
          |line| Did::stream(file).line(most.max(0) as usize, line, before, file);
    fn fgets_unlocked(into: *mut c_char, most: c_int, file: CFile) -> *mut c_char
        = Read, before before = StreamPlace::of(file),
          |line| Did::stream(file).line(most.max(0) as usize, line, before, file);
    fn __fgets_chk(into: *mut c_char, room: usize, most: c_int, file: CFile) -> *mut c_char
        = Read, before before = StreamPlace::of(file),
          |line| Did::stream(file).line(most.max(0) as usize, line, before, file);
    fn __fgets_unlocked_chk(into: *mut c_char, room: usize, most: c_int, file: CFile) -> *mut c_char
        = Read, before before = StreamPlace::of(file),
          |line| Did::stream(file).line(most.max(0) as usize, line, before, file);
    fn fgetc(file: CFile) -> c_int = Read, |came| Did::stream(file).one(came);
    fn fgetc_unlocked(file: CFile) -> c_int = Read, |came| Did::stream(file).one(came);
    fn getc(file: CFile) -> c_int = Read, |came| Did::stream(file).one(came);
    fn getc_unlocked(file: CFile) -> c_int = Read, |came| Did::stream(file).one(came);
    fn getchar() -> c_int = Read, |came| input().one(came);
    fn getchar_unlocked() -> c_int = Read, |came| input().one(came);
    fn getw(file: CFile) -> c_int = Read, |came| Did::stream(file).word(came, file);
    fn getline(into: *mut *mut c_char, room: *mut usize, file: CFile) -> isize
        = Read, |done| Did::stream(file).moved(done.max(0) as usize, done.max(0));
    fn getdelim(into: *mut *mut c_char, room: *mut usize, end: c_int, file: CFile) -> isize
        = Read, |done| Did::stream(file).moved(done.max(0) as usize, done.max(0));
    fn __getdelim(into: *mut *mut c_char, room: *mut usize, end: c_int, file: CFile) -> isize
        = Read, |done| Did::stream(file).moved(done.max(0) as usize, done.max(0));
    // What they take the C library says nowhere but by what it has read ahead.
    fn vfscanf(file: CFile, format: CFormat, rest: VaList) -> c_int
        = Read, before before = StreamPlace::of(file), |_came| Did::stream(file).scanned(before, file);
    fn vscanf(format: CFormat, rest: VaList) -> c_int
        = Read, before before = StreamPlace::of(INPUT), |_came| input().scanned(before, INPUT);
    fn __isoc99_vfscanf(file: CFile, format: CFormat, rest: VaList) -> c_int
        = Read, before before = StreamPlace::of(file), |_came| Did::stream(file).scanned(before, file);
    fn __isoc99_vscanf(format: CFormat, rest: VaList) -> c_int
        = Read, before before = StreamPlace::of(INPUT), |_came| input().scanned(before, INPUT);
    fn __isoc23_vfscanf(file: CFile, format: CFormat, rest: VaList) -> c_int
        = Read, before before = StreamPlace::of(file), |_came| Did::stream(file).scanned(before, file);
    fn __isoc23_vscanf(format: CFormat, rest: VaList) -> c_int
        = Read, before before = StreamPlace::of(INPUT), |_came| input().scanned(before, INPUT);

    fn fwrite(from: *const c_void, size: usize, count: usize, file: CFile) -> usize
        = Write, |done| Did::stream(file).items(size, count, done).failed_if(done < count && size > 0);
    fn fwrite_unlocked(from: *const c_void, size: usize, count: usize, file: CFile) -> usize
        = Write, |done| Did::stream(file).items(size, count, done).failed_if(done < count && size > 0);
    fn fputs(text: *const c_char, file: CFile) -> c_int
        = Write, |came| Did::stream(file).text(text, 0, came);
    fn fputs_unlocked(text: *const c_char, file: CFile) -> c_int
        = Write, |came| Did::stream(file).text(text, 0, came);
    fn puts(text: *const c_char) -> c_int = Write, |came| output().text(text, 1, came);
    fn fputc(character: c_int, file: CFile) -> c_int = Write, |came| wrote_one(Did::stream(file), came);
    fn fputc_unlocked(character: c_int, file: CFile) -> c_int
        = Write, |came| wrote_one(Did::stream(file), came);
    fn putc(character: c_int, file: CFile) -> c_int = Write, |came| wrote_one(Did::stream(file), came);
    fn putc_unlocked(character: c_int, file: CFile) -> c_int
        = Write, |came| wrote_one(Did::stream(file), came);
    fn putchar(character: c_int) -> c_int = Write, |came| wrote_one(output(), came);
    fn putchar_unlocked(character: c_int) -> c_int = Write, |came| wrote_one(output(), came);
    fn putw(word: c_int, file: CFile) -> c_int
        = Write, |came| Did::stream(file).items(4, 1, usize::from(came == 0)).failed_if(came != 0);
    fn vfprintf(file: CFile, format: CFormat, rest: VaList) -> c_int
        = Write, |came| Did::stream(file).printed(came);
    fn vprintf(format: CFormat, rest: VaList) -> c_int = Write, |came| output().printed(came);
    fn vdprintf(fd: c_int, format: CFormat, rest: VaList) -> c_int
        = Write, |came| Did::fd(fd).printed(came).in_turn();
    fn __vfprintf_chk(file: CFile, flag: c_int, format: CFormat, rest: VaList) -> c_int
        = Write, |came| Did::stream(file).printed(came);
    fn __vprintf_chk(flag: c_int, format: CFormat, rest: VaList) -> c_int
        = Write, |came| output().printed(came);
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: CFormat, rest: VaList) -> c_int
        = Write, |came| Did::fd(fd).printed(came).in_turn();

    fn fseek(file: CFile, offset: c_long, from: c_int) -> c_int = Seek, |came| moved_to(file, came);
    fn fseeko(file: CFile, offset: i64, from: c_int) -> c_int = Seek, |came| moved_to(file, came);
    fn fseeko64(file: CFile, offset: i64, from: c_int) -> c_int
        = Seek, |came| moved_to(file, came);
    fn rewind(file: CFile) -> () = Seek, |_nothing| moved_to(file, 0);
    fn fsetpos(file: CFile, place: AnyPointer) -> c_int = Seek, |came| moved_to(file, came);
    fn fsetpos64(file: CFile, place: AnyPointer) -> c_int = Seek, |came| moved_to(file, came);
    fn fflush(file: CFile) -> c_int = Flush, |came| Did::stream(file).came(came);
    fn fflush_unlocked(file: CFile) -> c_int = Flush, |came| Did::stream(file).came(came);
}

/// A buffered file is closed, whatever came of it.
fn closed(number: u64, has_failed: bool) -> Did {
    let mut did = Did::known(number).failed_if(has_failed);
    did.layer = sheaf_recorder::IoLayer::Stdio;
    did
}

fn wrote_one(did: Did, came: c_int) -> Did {
    did.one(came).failed_if(came == END)
}

/// Functions with a variable number of arguments: their arguments are put where a list of them is
/// taken from (System V ABI for AMD64, 3.5.7), and the function that takes such a list is called.
/// So many named ones come first; the list is the argument behind them.
#[cfg(target_arch = "x86_64")]
macro_rules! listed {
    ($($name:ident $named:literal $argument:literal $target:path;)*) => {
        $(
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() {
                std::arch::naked_asm!(
            ".cfi_startproc",
            "sub rsp, 0xd8",
            ".cfi_adjust_cfa_offset 0xd8",
            "mov [rsp + 0x20], rdi",
            "mov [rsp + 0x28], rsi",
            "mov [rsp + 0x30], rdx",
            "mov [rsp + 0x38], rcx",
            "mov [rsp + 0x40], r8",
            "mov [rsp + 0x48], r9",
            "test al, al",
            "je 2f",
            "movaps [rsp + 0x50], xmm0",
            "movaps [rsp + 0x60], xmm1",
            "movaps [rsp + 0x70], xmm2",
            "movaps [rsp + 0x80], xmm3",
            "movaps [rsp + 0x90], xmm4",
            "movaps [rsp + 0xa0], xmm5",
            "movaps [rsp + 0xb0], xmm6",
            "movaps [rsp + 0xc0], xmm7",
            "2:",
            concat!("mov dword ptr [rsp + 0x8], 8 * ", $named),
            "mov dword ptr [rsp + 0xc], 48",
            "lea rax, [rsp + 0xe0]",
            "mov [rsp + 0x10], rax",
            "lea rax, [rsp + 0x20]",
            "mov [rsp + 0x18], rax",
            concat!("lea ", $argument, ", [rsp + 0x8]"),
            "call {target}",
            "add rsp, 0xd8",
            ".cfi_adjust_cfa_offset -0xd8",
            "ret",
            ".cfi_endproc",
            target = sym $target,
                )
            }
        )*

        /// The names of these functions.
        #[used]
        pub static LISTED: &[&str] = &[$(stringify!($name),)*];
    };
}

#[cfg(target_arch = "x86_64")]
listed! {
    fprintf 2 "rdx" vfprintf;
    printf 1 "rsi" vprintf;
    dprintf 2 "rdx" vdprintf;
    __fprintf_chk 3 "rcx" __vfprintf_chk;
    __printf_chk 2 "rdx" __vprintf_chk;
    __dprintf_chk 3 "rcx" __vdprintf_chk;
    fscanf 2 "rdx" vfscanf;
    scanf 1 "rsi" vscanf;
    __isoc99_fscanf 2 "rdx" __isoc99_vfscanf;
    __isoc99_scanf 1 "rsi" __isoc99_vscanf;
    __isoc23_fscanf 2 "rdx" __isoc23_vfscanf;
    __isoc23_scanf 1 "rsi" __isoc23_vscanf;
    fwprintf 2 "rdx" crate::wide::vfwprintf;
    wprintf 1 "rsi" crate::wide::vwprintf;
    __fwprintf_chk 3 "rcx" crate::wide::__vfwprintf_chk;
    __wprintf_chk 2 "rdx" crate::wide::__vwprintf_chk;
    fwscanf 2 "rdx" crate::wide::vfwscanf;
    wscanf 1 "rsi" crate::wide::vwscanf;
    __isoc99_fwscanf 2 "rdx" crate::wide::__isoc99_vfwscanf;
    __isoc99_wscanf 1 "rsi" crate::wide::__isoc99_vwscanf;
    __isoc23_fwscanf 2 "rdx" crate::wide::__isoc23_vfwscanf;
    __isoc23_wscanf 1 "rsi" crate::wide::__isoc23_vwscanf;
}
