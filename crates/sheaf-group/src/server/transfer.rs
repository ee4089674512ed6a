//! Bytes between a file and memory, as `read(2)` and `write(2)` move them.
use std::io::{self, ErrorKind};

/// What direct I/O asks of addresses in memory, at most.
const ALIGNMENT: usize = 4096;

/// Calls again as long as a signal came in between.
pub(super) fn again(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Reads until `count` bytes are there or the file ends: files of /proc give a little at a time.
/// There is one call at least, so that one of nothing has the kernel's errors.
pub(super) fn read_up_to(
    count: usize,
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<Vec<u8>> {
    const STEP: usize = 64 << 10;
    let mut content = Vec::new();
    loop {
        let have = content.len();
        content.resize((have + STEP.max(have)).min(count), 0);
        let got = match again(|| read(&mut content[have..], have as u64)) {
            // A pipe or device has no more for now.
            Err(error) if error.kind() == ErrorKind::WouldBlock && have > 0 => 0,
            got => got?,
        };
        content.truncate(have + got);
        if got == 0 || content.len() == count {
            return Ok(content);
        }
    }
}

/// One read around the page cache: the kernel wants its buffer aligned, and no second read behind
/// an end that is not.
pub(super) fn read_direct(
    count: usize,
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<Vec<u8>> {
    let (mut buffer, start) = aligned(count);
    let got = again(|| read(&mut buffer[start..start + count], 0))?;
    buffer.copy_within(start..start + got, 0);
    buffer.truncate(got);
    Ok(buffer)
}

/// One write around the page cache.
pub(super) fn write_direct(
    input: &[u8],
    mut write: impl FnMut(&[u8]) -> io::Result<usize>,
) -> io::Result<usize> {
    let (mut buffer, start) = aligned(input.len());
    let bytes = &mut buffer[start..start + input.len()];
    bytes.copy_from_slice(input);
    again(|| write(bytes))
}

/// A buffer, and where `len` bytes in it begin at an address that direct I/O takes.
fn aligned(len: usize) -> (Vec<u8>, usize) {
    let buffer = vec![0; len + ALIGNMENT];
    let start = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    (buffer, start)
}
