//! Text without memory of the program's.
use std::ffi::{CStr, c_char};

/// Text that is put together without memory of the program's.
pub struct Text<const MAX: usize> {
    bytes: [u8; MAX],
    len: usize,
    is_cut: bool,
}

impl<const MAX: usize> Text<MAX> {
    pub const fn new() -> Self {
        Self { bytes: [0; MAX], len: 0, is_cut: false }
    }

    pub fn clear(&mut self) {
        (self.len, self.is_cut) = (0, false);
    }

    /// Begins with what `write` puts there, of which it gives the length; whether that is any.
    pub fn fill(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        self.clear();
        self.len = write(&mut self.bytes[..MAX - 1]).min(MAX - 1);
        self.len > 0
    }

    pub fn push(&mut self, more: &[u8]) {
        // The last byte stays zero.
        let room = MAX - 1 - self.len;
        self.is_cut |= more.len() > room;
        let more = &more[..more.len().min(room)];
        self.bytes[self.len..self.len + more.len()].copy_from_slice(more);
        self.len += more.len();
    }

    pub fn push_number(&mut self, number: u64) {
        let mut digits = [0; 20];
        let (mut at, mut left) = (digits.len(), number);
        loop {
            at -= 1;
            digits[at] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        self.push(&digits[at..]);
    }

    /// All of it; `None` if some had no room.
    pub fn as_c_str(&self) -> Option<&CStr> {
        if self.is_cut {
            return None;
        }
        CStr::from_bytes_until_nul(&self.bytes[..=self.len]).ok()
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// As much of it as there was room for, with a zero behind.
    pub fn as_ptr(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }
}
