//! What a file was written as: the Parquet library has no checksums of its own, and a bit that is
//! another one gives other numbers.
use crc32fast::Hasher;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// In a file's footer: how many bytes are before it, and their CRC-32.
pub(crate) const CHECKSUM_KEY: &str = "sheaf.crc32";
const CHUNK_BYTES: usize = 64 << 10;

/// A file of which all that is written is summed up.
#[derive(Debug)]
pub(crate) struct SummedFile {
    file: File,
    sum: Hasher,
    bytes: u64,
}

impl SummedFile {
    pub fn new(file: File) -> Self {
        Self { file, sum: Hasher::new(), bytes: 0 }
    }

    /// What is said of all that was written so far.
    pub fn said(&self) -> String {
        said(self.bytes, &self.sum)
    }

    /// # Errors
    /// As the kernel says.
    pub fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

impl Write for SummedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sum.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn said(bytes: u64, sum: &Hasher) -> String {
    format!("{bytes} {:08x}", sum.clone().finalize())
}

/// Whether a file is as its footer says that it was written.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn is_as_written(path: &Path, footer: &str) -> io::Result<bool> {
    let Some(bytes) = footer.split(' ').next().and_then(|bytes| bytes.parse::<u64>().ok()) else {
        return Ok(false);
    };
    let (mut file, mut sum) = (File::open(path)?.take(bytes), Hasher::new());
    let (mut room, mut all) = (vec![0; CHUNK_BYTES], 0);
    loop {
        let read = file.read(&mut room)?;
        if read == 0 {
            return Ok(said(all, &sum) == footer);
        }
        sum.update(&room[..read]);
        all += read as u64;
    }
}
