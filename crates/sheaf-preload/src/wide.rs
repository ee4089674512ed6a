//! The C library's buffered files, taken as wide characters.
//!
//! Bytes are those of the encoding of the calling thread's locale, which a file has that became one
//! of wide characters in it. A file that was opened with an encoding of its own (`ccs=`), or in
//! another locale, has others; and a character that the encoding does not have counts as one byte,
//! as which the C library writes it (`?`) unless it knows a longer one for it.
use crate::ctypes::{CFile, VaList, WideChar};
use crate::stdio::{input, output};
use crate::turn::{Did, keep_errno};
use std::ffi::{c_char, c_int};

/// A text of wide characters, or a format.
type WideText = *const WideChar;

const WIDE_END: WideChar = -1;
/// What a conversion gives that fails.
const NO_BYTES: usize = usize::MAX;

/// Where a conversion is (`mbstate_t` of glibc): at its beginning, if zero.
#[repr(C)]
#[derive(Default)]
struct ConversionState {
    count: c_int,
    value: u32,
}

unsafe extern "C" {
    fn wcrtomb(into: *mut c_char, character: WideChar, state: *mut ConversionState) -> usize;
    fn wcsrtombs(
        into: *mut c_char,
        text: *mut WideText,
        room: usize,
        state: *mut ConversionState,
    ) -> usize;
}

/// How many bytes a character is.
fn character_bytes(character: WideChar) -> u64 {
    // No encoding of the C library's has more (`MB_LEN_MAX`).
    let mut bytes = [0; 16];
    let mut state = ConversionState::default();
    // SAFETY: there is room for any character.
    match unsafe { wcrtomb(bytes.as_mut_ptr(), character, &raw mut state) } {
        NO_BYTES => 1,
        bytes => bytes as u64,
    }
}

/// How many bytes a text is.
///
/// # Safety
/// It ends with a zero.
unsafe fn text_bytes(text: WideText) -> u64 {
    let (mut at, mut state) = (text, ConversionState::default());
    // SAFETY: as our caller vouches for; nothing is written.
    let whole = unsafe { wcsrtombs(std::ptr::null_mut(), &raw mut at, 0, &raw mut state) };
    if whole != NO_BYTES {
        return whole as u64;
    }
    let (mut sum, mut at) = (0_u64, text);
    // SAFETY: it is read up to its zero.
    while let character @ 1.. | character @ ..=-1 = unsafe { *at } {
        sum = sum.saturating_add(character_bytes(character));
        // SAFETY: as above.
        at = unsafe { at.add(1) };
    }
    sum
}

impl Did {
    /// One character was read, or none.
    fn wide_one(mut self, came: WideChar) -> Self {
        if came != WIDE_END {
            self.bytes = keep_errno(|| character_bytes(came));
        }
        self.asked = self.bytes.max(1);
        self
    }

    /// One character was written, or not.
    fn wrote_wide(mut self, character: WideChar, came: WideChar) -> Self {
        self.asked = keep_errno(|| character_bytes(character));
        self.has_failed = came == WIDE_END;
        self.bytes = if self.has_failed { 0 } else { self.asked };
        self
    }

    /// A line of no more than so many characters. As many bytes were asked for, or as the line has
    /// if these are more.
    ///
    /// # Safety
    /// The line is there, or null.
    unsafe fn wide_line(mut self, most: c_int, line: WideText) -> Self {
        if !line.is_null() {
            // SAFETY: as our caller vouches for.
            self.bytes = keep_errno(|| unsafe { text_bytes(line) });
        }
        self.asked = self.bytes.max(most.max(0) as u64);
        self
    }

    /// A text that was written as a whole, or not.
    ///
    /// # Safety
    /// The text is there.
    unsafe fn wide_text(mut self, text: WideText, came: c_int) -> Self {
        // SAFETY: as our caller vouches for.
        self.asked = keep_errno(|| unsafe { text_bytes(text) });
        self.has_failed = came < 0;
        self.bytes = if self.has_failed { 0 } else { self.asked };
        self
    }
}

// What `wprintf` and its like print is told in characters, as they return it: as many bytes, or more
// where some are of several. What `wscanf` and its like take is not told, as for `scanf`.
wrap! {
    fn fgetwc(file: CFile) -> WideChar = Read, |came| Did::stream(file).wide_one(came);
    fn fgetwc_unlocked(file: CFile) -> WideChar = Read, |came| Did::stream(file).wide_one(came);
    fn getwc(file: CFile) -> WideChar = Read, |came| Did::stream(file).wide_one(came);
    fn getwc_unlocked(file: CFile) -> WideChar = Read, |came| Did::stream(file).wide_one(came);
    fn getwchar() -> WideChar = Read, |came| input().wide_one(came);
    fn getwchar_unlocked() -> WideChar = Read, |came| input().wide_one(came);
    fn fgetws(into: *mut WideChar, most: c_int, file: CFile) -> *mut WideChar
        = Read, |line| Did::stream(file).wide_line(most, line);
    fn fgetws_unlocked(into: *mut WideChar, most: c_int, file: CFile) -> *mut WideChar
        = Read, |line| Did::stream(file).wide_line(most, line);
    fn __fgetws_chk(into: *mut WideChar, room: usize, most: c_int, file: CFile) -> *mut WideChar
        = Read, |line| Did::stream(file).wide_line(most, line);
    fn __fgetws_unlocked_chk(into: *mut WideChar, room: usize, most: c_int, file: CFile) -> *mut WideChar
        = Read, |line| Did::stream(file).wide_line(most, line);
    fn vfwscanf(file: CFile, format: WideText, rest: VaList) -> c_int
        = Read, |_came| Did::stream(file);
    fn vwscanf(format: WideText, rest: VaList) -> c_int = Read, |_came| input();
    fn __isoc99_vfwscanf(file: CFile, format: WideText, rest: VaList) -> c_int
        = Read, |_came| Did::stream(file);
    fn __isoc99_vwscanf(format: WideText, rest: VaList) -> c_int = Read, |_came| input();
    fn __isoc23_vfwscanf(file: CFile, format: WideText, rest: VaList) -> c_int
        = Read, |_came| Did::stream(file);
    fn __isoc23_vwscanf(format: WideText, rest: VaList) -> c_int = Read, |_came| input();

    fn fputwc(character: WideChar, file: CFile) -> WideChar
        = Write, |came| Did::stream(file).wrote_wide(character, came);
    fn fputwc_unlocked(character: WideChar, file: CFile) -> WideChar
        = Write, |came| Did::stream(file).wrote_wide(character, came);
    fn putwc(character: WideChar, file: CFile) -> WideChar
        = Write, |came| Did::stream(file).wrote_wide(character, came);
    fn putwc_unlocked(character: WideChar, file: CFile) -> WideChar
        = Write, |came| Did::stream(file).wrote_wide(character, came);
    fn putwchar(character: WideChar) -> WideChar = Write, |came| output().wrote_wide(character, came);
    fn putwchar_unlocked(character: WideChar) -> WideChar = Write, |came| output().wrote_wide(character, came);
    fn fputws(text: WideText, file: CFile) -> c_int
        = Write, |came| Did::stream(file).wide_text(text, came);
    fn fputws_unlocked(text: WideText, file: CFile) -> c_int
        = Write, |came| Did::stream(file).wide_text(text, came);
    fn vfwprintf(file: CFile, format: WideText, rest: VaList) -> c_int
        = Write, |came| Did::stream(file).printed(came);
    fn vwprintf(format: WideText, rest: VaList) -> c_int = Write, |came| output().printed(came);
    fn __vfwprintf_chk(file: CFile, flag: c_int, format: WideText, rest: VaList) -> c_int
        = Write, |came| Did::stream(file).printed(came);
    fn __vwprintf_chk(flag: c_int, format: WideText, rest: VaList) -> c_int
        = Write, |came| output().printed(came);
}
