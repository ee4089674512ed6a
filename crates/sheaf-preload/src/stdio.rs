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
    fn __errno_location() -> *mut c_int;
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

    /// A line of no more than so many characters.
    ///
    /// # Safety
    /// The line is there, or null.
    unsafe fn line(mut self, most: usize, line: *const c_char) -> Self {
        self.asked = most as u64;
        if !line.is_null() {
            // SAFETY: as our caller vouches for.
            self.bytes = unsafe { strnlen(line, most) } as u64;
        }
        self
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
        = Read, |line| Did::stream(file).line(most.max(0) as usize, line);
    fn fgets_unlocked(into: *mut c_char, most: c_int, file: CFile) -> *mut c_char
        = Read, |line| Did::stream(file).line(most.max(0) as usize, line);
    fn __fgets_chk(into: *mut c_char, room: usize, most: c_int, file: CFile) -> *mut c_char
        = Read, |line| Did::stream(file).line(most.max(0) as usize, line);
    fn __fgets_unlocked_chk(into: *mut c_char, room: usize, most: c_int, file: CFile) -> *mut c_char
        = Read, |line| Did::stream(file).line(most.max(0) as usize, line);
    fn fgetc(file: CFile) -> c_int = Read, |came| Did::stream(file).one(came);
    fn fgetc_unlocked(file: CFile) -> c_int = Read, |came| Did::stream(file).one(came);
    fn getc(file: CFile) -> c_int = Read, |came| Did::stream(file).one(came);
    fn getc_unlocked(file: CFile) -> c_int = Read, |came| Did::stream(file).one(came);
    fn getchar() -> c_int = Read, |came| input().one(came);
    fn getchar_unlocked() -> c_int = Read, |came| input().one(came);
    fn getw(file: CFile) -> c_int = Read, |came| Did::stream(file).items(4, 1, 1);
    fn getline(into: *mut *mut c_char, room: *mut usize, file: CFile) -> isize
        = Read, |done| Did::stream(file).moved(done.max(0) as usize, done.max(0));
    fn getdelim(into: *mut *mut c_char, room: *mut usize, end: c_int, file: CFile) -> isize
        = Read, |done| Did::stream(file).moved(done.max(0) as usize, done.max(0));
    fn __getdelim(into: *mut *mut c_char, room: *mut usize, end: c_int, file: CFile) -> isize
        = Read, |done| Did::stream(file).moved(done.max(0) as usize, done.max(0));
    // What they take is not told, and counts as no bytes: the C library says it nowhere but by
    // where the file is, for which it asks the kernel, and which a pipe does not have.
    fn vfscanf(file: CFile, format: CFormat, rest: VaList) -> c_int = Read, |_came| Did::stream(file);
    fn vscanf(format: CFormat, rest: VaList) -> c_int = Read, |_came| input();
    fn __isoc99_vfscanf(file: CFile, format: CFormat, rest: VaList) -> c_int
        = Read, |_came| Did::stream(file);
    fn __isoc99_vscanf(format: CFormat, rest: VaList) -> c_int = Read, |_came| input();
    fn __isoc23_vfscanf(file: CFile, format: CFormat, rest: VaList) -> c_int
        = Read, |_came| Did::stream(file);
    fn __isoc23_vscanf(format: CFormat, rest: VaList) -> c_int = Read, |_came| input();

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
