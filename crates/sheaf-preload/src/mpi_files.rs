//! Which file an open one of MPI's is.
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Files that are known at once; those beyond have no name in records.
const FILES_MAX: usize = 1 << 10;
/// How far from its place a file is looked for.
const REACH: usize = 16;

struct OpenMpiFile {
    /// As C has it; 0: none.
    handle: AtomicUsize,
    number: AtomicU64,
    /// What was asked for by the one call that is begun and not ended.
    begun: AtomicU64,
}

static FILES: [OpenMpiFile; FILES_MAX] = [const {
    OpenMpiFile { handle: AtomicUsize::new(0), number: AtomicU64::new(0), begun: AtomicU64::new(0) }
}; FILES_MAX];

/// The places of a file: its own, and those behind.
fn places(handle: usize) -> impl Iterator<Item = &'static OpenMpiFile> {
    let first = (handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (0..REACH).map(move |step| &FILES[(first as usize + step) % FILES_MAX])
}

fn find(handle: usize) -> Option<&'static OpenMpiFile> {
    if handle == 0 {
        return None;
    }
    places(handle).find(|file| file.handle.load(Ordering::Acquire) == handle)
}

/// It is open on the file with this number.
pub fn opened(handle: usize, number: u64) {
    if let Some(file) = find(handle) {
        // One that was closed by calls that are not seen.
        return file.number.store(number, Ordering::Relaxed);
    }
    let free = |file: &&OpenMpiFile| {
        let taken = file.handle.compare_exchange(0, handle, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok()
    };
    if let Some(file) = places(handle).find(free) {
        file.number.store(number, Ordering::Relaxed);
        file.begun.store(0, Ordering::Relaxed);
    }
}

/// The number of its file; 0 where it is not known.
pub fn number_of(handle: usize) -> u64 {
    find(handle).map_or(0, |file| file.number.load(Ordering::Relaxed))
}

pub fn closed(handle: usize) {
    if let Some(file) = find(handle) {
        file.handle.store(0, Ordering::Release);
    }
}

/// So many bytes are asked for by a call that another ends.
pub fn set_begun(handle: usize, asked: u64) {
    if let Some(file) = find(handle) {
        file.begun.store(asked, Ordering::Relaxed);
    }
}

pub fn take_begun(handle: usize) -> u64 {
    find(handle).map_or(0, |file| file.begun.swap(0, Ordering::Relaxed))
}
