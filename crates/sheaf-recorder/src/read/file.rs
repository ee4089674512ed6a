//! The file of a segment at its reader.
//!
//! A segment's owner can truncate it at any moment. A reader that had mapped it would then be ended
//! by `SIGBUS`, and servers read segments of other users. Calls of the kernel return an error
//! instead, which is kept as the file's [`Damage`]: from then on, all of it reads as zeros.
//!
//! Calls copy what the writer changes meanwhile. Each word is aligned, so the kernel copies it as a
//! whole. Words of one call have no order; a fence between two calls orders those of the first
//! before those of the second.
use super::Damage;
use crate::layout::{
    HEADER_BYTES, RECORD_BYTES, RING_HEADER_BYTES, ReaderLine, RingHeader, SegmentHeader,
    WriterLine,
};
use crate::segment::SegmentOptions;
use crate::sys::{self, Descriptor, FileStatus, KernelError, OpenHow};
use std::ffi::{CStr, CString};
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::fence;

const EBADF: i32 = 9;

fn opened(path: &CStr) -> Result<(Descriptor, FileStatus), Damage> {
    let kernel = |error: KernelError| Damage::Kernel(error.0);
    let file = sys::open(path, OpenHow::Update).map_err(kernel)?;
    let status = file.status().map_err(kernel)?;
    if status.is_regular { Ok((file, status)) } else { Err(Damage::NoSegment) }
}

/// Words of a part of the file, as the machine has them.
#[derive(Clone, Copy)]
pub(super) struct Words<'a>(pub &'a [u8]);

impl Words<'_> {
    pub fn u32(self, at: usize) -> u32 {
        let (bytes, _) = self.0[at..].split_first_chunk().expect("a word lies within its part");
        u32::from_ne_bytes(*bytes)
    }

    pub fn u64(self, at: usize) -> u64 {
        let (bytes, _) = self.0[at..].split_first_chunk().expect("a word lies within its part");
        u64::from_ne_bytes(*bytes)
    }
}

/// What changes in the header of a segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentState {
    pub unplaced: u64,
    pub waits: u64,
    pub waited_ns: u64,
    pub has_ended: bool,
    pub used: u32,
}

/// The header of a ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct RingState {
    pub head: u64,
    pub lost: u64,
    pub untold: u64,
    pub untold_from: u64,
    pub untold_to: u64,
    pub names_head: u64,
    pub names_lost: u64,
    pub thread: u32,
    pub records_there: u32,
    pub tail: u64,
    pub names_tail: u64,
}

/// The offset of a word of a ring in the file.
pub(super) enum RingWord {
    Head,
    Untold,
    NamesHead,
    Tail,
    NamesTail,
}

/// A call has failed, and why is kept as the file's damage.
struct Failed;

#[derive(Debug)]
pub(super) struct SegmentFile {
    path: CString,
    /// Nothing while it is closed.
    file: Option<Descriptor>,
    status: FileStatus,
    damage: OnceLock<Damage>,
}

impl SegmentFile {
    /// Opens a regular file.
    pub fn open(path: &Path) -> Result<Self, Damage> {
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Damage::Kernel(22))?;
        let (file, status) = opened(&path)?;
        Ok(Self { path, file: Some(file), status, damage: OnceLock::new() })
    }

    /// Closes it until it is opened again: it takes no descriptor.
    pub fn close(&mut self) {
        self.file = None;
    }

    pub fn open_again(&mut self) {
        if self.file.is_some() || self.is_damaged() {
            return;
        }
        match opened(&self.path) {
            Ok((file, status)) if status.inode == self.status.inode => self.file = Some(file),
            Ok(_) => self.note(Damage::NoSegment),
            Err(damage) => self.note(damage),
        }
    }

    /// What it was when it was opened first.
    pub fn status(&self) -> &FileStatus {
        &self.status
    }

    /// Whether a process has it in memory or open, besides this reader; `None` where the kernel does not say.
    pub fn is_used_by_others(&self) -> Option<bool> {
        self.file.as_ref()?.is_used_by_others().ok()
    }

    /// Why it is not read any more.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.get()
    }

    pub fn is_damaged(&self) -> bool {
        self.damage.get().is_some()
    }

    /// Reads a part that was there when the file was opened; with zeros where it is damaged. Whether
    /// it is not. Calls before this one have read what was there before.
    pub fn read(&self, at: u64, into: &mut [u8]) -> bool {
        fence(Acquire);
        if !self.is_damaged() && self.fill(at, into).is_ok() {
            fence(Acquire);
            return true;
        }
        into.fill(0);
        false
    }

    fn fill(&self, at: u64, into: &mut [u8]) -> Result<(), Failed> {
        let file = self.file.as_ref().ok_or_else(|| self.fail(Damage::Kernel(EBADF)))?;
        let mut done = 0;
        while done < into.len() {
            let end = at + done as u64;
            match file.read_at(&mut into[done..], end) {
                Ok(0) => return Err(self.fail(Damage::Short(end, self.status.length))),
                Ok(read) => done += read,
                Err(error) => self.go_on(error)?,
            }
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let Some(file) = &self.file else { return self.note(Damage::Kernel(EBADF)) };
        let mut done = 0;
        while done < bytes.len() && !self.is_damaged() {
            let written = file.write_at(&bytes[done..], at + done as u64);
            match written.map_or_else(|error| self.go_on(error).map(|()| 0), Ok) {
                Ok(written) => done += written,
                Err(Failed) => return,
            }
        }
    }

    fn go_on(&self, error: KernelError) -> Result<(), Failed> {
        const EINTR: i32 = 4;
        if error.0 == EINTR { Ok(()) } else { Err(self.fail(Damage::Kernel(error.0))) }
    }

    fn fail(&self, damage: Damage) -> Failed {
        self.note(damage);
        Failed
    }

    fn note(&self, damage: Damage) {
        // The first one counts.
        let _ = self.damage.set(damage);
    }

    pub fn state(&self) -> SegmentState {
        const FIRST: usize = offset_of!(SegmentHeader, unplaced);
        const BYTES: usize = offset_of!(SegmentHeader, command) - FIRST;
        let mut bytes = [0; BYTES];
        self.read(FIRST as u64, &mut bytes);
        let mut waits = [0; 16];
        self.read(offset_of!(SegmentHeader, waits) as u64, &mut waits);
        let (words, waits) = (Words(&bytes), Words(&waits));
        SegmentState {
            unplaced: words.u64(0),
            waits: waits.u64(0),
            waited_ns: waits.u64(8),
            has_ended: words.u32(offset_of!(SegmentHeader, ended) - FIRST) != 0,
            used: words.u32(offset_of!(SegmentHeader, used) - FIRST),
        }
    }

    pub fn is_held(&self) -> bool {
        let mut bytes = [0; 4];
        self.read(offset_of!(SegmentHeader, held) as u64, &mut bytes);
        u32::from_ne_bytes(bytes) != 0
    }

    /// Says that nobody takes anything any more.
    pub fn abandon(&self) {
        self.write(offset_of!(SegmentHeader, abandoned) as u64, &1_u32.to_ne_bytes());
    }

    pub fn set_held(&self, is_held: bool) {
        let held = u32::from(is_held).to_ne_bytes();
        self.write(offset_of!(SegmentHeader, held) as u64, &held);
    }

    /// Where a ring begins.
    fn ring(&self, options: &SegmentOptions, ring: u32) -> u64 {
        HEADER_BYTES as u64 + u64::from(ring) * options.stride() as u64
    }

    /// Where a record of a ring is.
    pub fn slot(&self, options: &SegmentOptions, ring: u32, place: u64) -> u64 {
        let first = self.ring(options, ring) + RING_HEADER_BYTES as u64;
        first + place * RECORD_BYTES as u64
    }

    /// Where the names of a ring begin: behind its records.
    pub fn names(&self, options: &SegmentOptions, ring: u32) -> u64 {
        self.slot(options, ring, options.records.into())
    }

    pub fn ring_state(&self, options: &SegmentOptions, ring: u32) -> RingState {
        const READER: usize = offset_of!(RingHeader, by_reader);
        const BYTES: usize = READER + offset_of!(ReaderLine, names_tail) + 8;
        let mut bytes = [0; BYTES];
        self.read(self.ring(options, ring), &mut bytes);
        let words = Words(&bytes);
        RingState {
            head: words.u64(offset_of!(WriterLine, head)),
            lost: words.u64(offset_of!(WriterLine, lost)),
            untold: words.u64(offset_of!(WriterLine, untold)),
            untold_from: words.u64(offset_of!(WriterLine, untold_from)),
            untold_to: words.u64(offset_of!(WriterLine, untold_to)),
            names_head: words.u64(offset_of!(WriterLine, names_head)),
            names_lost: words.u64(offset_of!(WriterLine, names_lost)),
            thread: words.u32(offset_of!(WriterLine, thread)),
            records_there: words.u32(offset_of!(WriterLine, records_there)),
            tail: words.u64(READER + offset_of!(ReaderLine, tail)),
            names_tail: words.u64(READER + offset_of!(ReaderLine, names_tail)),
        }
    }

    fn place(&self, options: &SegmentOptions, ring: u32, word: RingWord) -> u64 {
        let within = match word {
            RingWord::Head => offset_of!(WriterLine, head),
            RingWord::Untold => offset_of!(WriterLine, untold),
            RingWord::NamesHead => offset_of!(WriterLine, names_head),
            RingWord::Tail => offset_of!(RingHeader, by_reader) + offset_of!(ReaderLine, tail),
            RingWord::NamesTail => {
                offset_of!(RingHeader, by_reader) + offset_of!(ReaderLine, names_tail)
            }
        };
        self.ring(options, ring) + within as u64
    }

    pub fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes);
        u64::from_ne_bytes(bytes)
    }

    pub fn ring_word(&self, options: &SegmentOptions, ring: u32, word: RingWord) -> u64 {
        self.word(self.place(options, ring, word))
    }

    pub fn set_ring_word(&self, options: &SegmentOptions, ring: u32, word: RingWord, value: u64) {
        self.write(self.place(options, ring, word), &value.to_ne_bytes());
    }
}
