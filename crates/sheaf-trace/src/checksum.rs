//! What a file was written as: the Parquet library has no checksums of its own, and a bit that is
//! another one gives other numbers.
//!
//! What is said of a file stands in its footer, and covers the footer, too: there the digits of the
//! footer's own sum count as zeros.
use crc32fast::Hasher;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// In a file's footer: how many bytes are before it, their CRC-32, and that of what comes after them.
pub(crate) const CHECKSUM_KEY: &str = "sheaf.crc32";
const NOT_SUMMED_YET: &str = "00000000";
const CHUNK_BYTES: usize = 64 << 10;

/// A file of which all that is written is summed up.
#[derive(Debug)]
pub(crate) struct SummedFile {
    file: File,
    sum: Hasher,
    bytes: u64,
    footer: Option<Footer>,
}

/// What is written behind the rows, and what is said in it of them.
#[derive(Debug)]
struct Footer {
    said: String,
    bytes: Vec<u8>,
}

impl SummedFile {
    pub fn new(file: File) -> Self {
        Self { file, sum: Hasher::new(), bytes: 0, footer: None }
    }

    /// What the footer is to say of the rows, which end here: all that is written from now on is
    /// written when the file is ended, with the footer's own sum in it.
    pub fn begin_footer(&mut self) -> String {
        let rows = said(self.bytes, &self.sum);
        let said = format!("{rows} {NOT_SUMMED_YET}");
        self.footer = Some(Footer { said: said.clone(), bytes: Vec::new() });
        said
    }

    /// Writes the footer; all is on the disk then.
    ///
    /// # Errors
    /// As the kernel says, and where the footer does not say what it was to.
    pub fn end(mut self) -> io::Result<()> {
        if let Some(Footer { said, mut bytes }) = self.footer.take() {
            let sum = format!("{:08x}", crc32fast::hash(&bytes));
            let digits = digits_in(&bytes, &said).ok_or(io::ErrorKind::InvalidData)?;
            bytes[digits..digits + sum.len()].copy_from_slice(sum.as_bytes());
            self.file.write_all(&bytes)?;
        }
        self.file.sync_all()
    }
}

impl Write for SummedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(footer) = &mut self.footer {
            return footer.bytes.write(bytes);
        }
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

/// Where the digits of a footer's own sum begin.
fn digits_in(footer: &[u8], said: &str) -> Option<usize> {
    let at = footer.windows(said.len()).position(|bytes| bytes == said.as_bytes())?;
    Some(at + said.len() - NOT_SUMMED_YET.len())
}

/// Whether a file is as its footer says that it was written.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn is_as_written(path: &Path, said_of_it: &str) -> io::Result<bool> {
    let (Some((rows, footer_sum)), mut file) = (said_of_it.rsplit_once(' '), opened(path)?) else {
        return Ok(false);
    };
    let Some(bytes) = rows.split(' ').next().and_then(|bytes| bytes.parse::<u64>().ok()) else {
        return Ok(false);
    };
    if said(bytes, &sum_of(&mut file, bytes)?) != rows {
        return Ok(false);
    }
    file.seek(SeekFrom::Start(bytes))?;
    let mut footer = Vec::new();
    file.read_to_end(&mut footer)?;
    let Some(digits) = digits_in(&footer, said_of_it) else { return Ok(false) };
    footer[digits..][..NOT_SUMMED_YET.len()].copy_from_slice(NOT_SUMMED_YET.as_bytes());
    Ok(format!("{:08x}", crc32fast::hash(&footer)) == footer_sum)
}

/// Whether a file's footer holds any of these names, also where it cannot be taken apart any more.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn footer_names(path: &Path, names: &[&str]) -> io::Result<bool> {
    let mut file = opened(path)?;
    // The footer's length and four letters end each file of this kind.
    let mut end = [0; 8];
    let footer_end = file.seek(SeekFrom::End(-(end.len() as i64)))?;
    file.read_exact(&mut end)?;
    let [a, b, c, d, ..] = end;
    // The file may be damaged here too, so the length is bounded by what is there.
    let length = u64::from(u32::from_le_bytes([a, b, c, d])).min(footer_end);
    file.seek(SeekFrom::Start(footer_end - length))?;
    let mut footer = Vec::new();
    file.take(length).read_to_end(&mut footer)?;
    let holds = |name: &&str| footer.windows(name.len()).any(|bytes| bytes == name.as_bytes());
    Ok(names.iter().any(holds))
}

/// A regular file, opened without waiting for the other end of a pipe.
fn opened(path: &Path) -> io::Result<File> {
    sheaf_log::files::open(path).map_err(|error| match error {
        sheaf_log::TraceError::Io { source, .. } => source,
        error => io::Error::other(error),
    })
}

/// The sum of so many bytes, or of all where there are fewer.
fn sum_of(file: &mut File, bytes: u64) -> io::Result<Hasher> {
    let (mut file, mut sum, mut room) = (file.take(bytes), Hasher::new(), vec![0; CHUNK_BYTES]);
    loop {
        match file.read(&mut room)? {
            0 => return Ok(sum),
            read => sum.update(&room[..read]),
        }
    }
}
