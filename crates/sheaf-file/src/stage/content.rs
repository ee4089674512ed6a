//! Writing the contents, with their digest.

use crate::Result;
use crate::digest::{Algorithm, Digest, Digester};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno as SysErrno;
use sheaf_core::Errno;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;

/// Holes are left in multiples of this, the block of most file systems.
const HOLE_BYTES: usize = 4096;

/// The most bytes of holes of which the zeros are written into a pipe or device.
const STREAM_HOLE_BYTES_MAX: u64 = 64 << 30;

/// How long a pipe or device may take no byte before writing to it is given up.
const STALL_SECONDS_MAX: i64 = 10;

static ZEROS: [u8; HOLE_BYTES] = [0; HOLE_BYTES];

/// The file that is written.
#[derive(Debug)]
pub(super) struct StagedContent {
    file: File,
    is_stream: bool,
    sparse: bool,
    /// Length of the contents.
    size: u64,
    /// Where the file ends on disk: less than `size` after a hole.
    end: u64,
    /// Bytes of holes of a stream.
    holes: u64,
}

impl StagedContent {
    /// An empty file.
    pub fn file(file: File, sparse: bool) -> Self {
        Self { file, is_stream: false, sparse, size: 0, end: 0, holes: 0 }
    }

    /// A pipe or device, opened without blocking.
    pub fn stream(file: File) -> Self {
        Self { file, is_stream: true, sparse: false, size: 0, end: 0, holes: 0 }
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn raw(&self) -> &File {
        &self.file
    }

    pub fn seekable(&self) -> Option<&File> {
        (!self.is_stream).then_some(&self.file)
    }

    pub fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::FBIG)?;
        if self.is_stream {
            if offset < self.size {
                return Err(Errno::SPIPE);
            }
            self.extend(offset)?;
            write_stream(&self.file, data)?;
        } else if self.sparse {
            self.write_sparse(offset, data)?;
        } else {
            self.put(offset, data)?;
        }
        if !data.is_empty() {
            self.size = self.size.max(end);
        }
        Ok(())
    }

    pub fn extend(&mut self, size: u64) -> Result<()> {
        // A hole is zeros there.
        if self.is_stream {
            self.holes = self.holes.saturating_add(size.saturating_sub(self.size));
            if self.holes > STREAM_HOLE_BYTES_MAX {
                return Err(Errno::SPIPE);
            }
        }
        while self.is_stream && self.size < size {
            let step = (size - self.size).min(HOLE_BYTES as u64);
            write_stream(&self.file, &ZEROS[..step as usize])?;
            self.size += step;
        }
        self.size = self.size.max(size);
        Ok(())
    }

    /// Makes the file as long as its contents, which may end in a hole.
    pub fn set_length(&mut self) -> Result<()> {
        if self.end < self.size && !self.is_stream {
            rustix::fs::ftruncate(&self.file, self.size)?;
            self.end = self.size;
        }
        Ok(())
    }

    /// Writes what is not a whole block of zeros. Where something was written before, zeros are
    /// written as well.
    fn write_sparse(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let first = (HOLE_BYTES - offset as usize % HOLE_BYTES).min(data.len());
        let (head, blocks) = data.split_at(first);
        // Neighbouring blocks that are written go out together.
        let (mut start, mut at) = (offset, offset);
        let mut pending: &[u8] = &[];
        for block in std::iter::once(head).chain(blocks.chunks(HOLE_BYTES)) {
            let is_hole = at >= self.end && *block == ZEROS[..block.len()];
            if is_hole {
                self.put(start, pending)?;
                start = at + block.len() as u64;
                pending = &[];
            } else {
                let from = (start - offset) as usize;
                pending = &data[from..from + pending.len() + block.len()];
            }
            at += block.len() as u64;
        }
        self.put(start, pending)
    }

    /// Writes all of it. What was written before an error counts: it is there.
    fn put(&mut self, mut offset: u64, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            match self.file.write_at(data, offset) {
                Ok(0) => return Err(Errno::IO),
                Ok(length) => {
                    (offset, data) = (offset + length as u64, &data[length..]);
                    self.end = self.end.max(offset);
                    self.size = self.size.max(offset);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn write_stream(mut file: &File, mut data: &[u8]) -> Result<()> {
    while !data.is_empty() {
        match file.write(data) {
            Ok(0) => return Err(Errno::IO),
            Ok(length) => data = &data[length..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait_writable(file)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn wait_writable(file: &File) -> Result<()> {
    let limit = Timespec { tv_sec: STALL_SECONDS_MAX, tv_nsec: 0 };
    match poll(&mut [PollFd::new(file, PollFlags::OUT)], Some(&limit)) {
        Ok(0) => Err(Errno::TIMEDOUT),
        Ok(_) | Err(SysErrno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// A digest of contents that come in order; holes between them count as zeros.
#[derive(Debug)]
pub(super) struct HashInOrder {
    /// Nothing once contents came out of order.
    digester: Option<Digester>,
    /// How many bytes are in the digest.
    length: u64,
}

impl HashInOrder {
    pub fn new() -> Self {
        Self { digester: Some(Digester::new(Algorithm::Blake3)), length: 0 }
    }

    pub fn write_at(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        if offset < self.length {
            self.digester = None;
        }
        self.pad(offset);
        if let Some(digester) = &mut self.digester {
            digester.update(data);
            self.length += data.len() as u64;
        }
    }

    /// The digest of `size` bytes, if everything came in order.
    pub fn finish(&mut self, size: u64) -> Option<Digest> {
        self.pad(size);
        self.digester.clone().map(Digester::finish)
    }

    fn pad(&mut self, to: u64) {
        let Some(digester) = &mut self.digester else { return };
        while self.length < to {
            let step = (to - self.length).min(HOLE_BYTES as u64);
            digester.update(&ZEROS[..step as usize]);
            self.length += step;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a disk that is full in the middle of a piece that much is told which is there.
    #[test]
    fn staged_size_counts_bytes_written_before_an_error() {
        use std::os::fd::OwnedFd;
        let made = rustix::fs::memfd_create("content", rustix::fs::MemfdFlags::ALLOW_SEALING);
        let file: OwnedFd = made.unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::GROW).unwrap();
        let mut content = StagedContent::file(File::from(file), false);
        assert!(content.write_at(0, &[1; 10_000]).is_err());
        assert_eq!(content.size(), 4096);
    }
}
