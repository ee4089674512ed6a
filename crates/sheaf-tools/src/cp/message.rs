//! What crosses the tree: parameters, and the stream of records that a copy is.
//!
//! A packet is any number of whole records. A record is a length, that many bytes of a
//! [`CopyRecord`], and after [`CopyRecord::Data`] the raw bytes that it announces. Every packet can
//! thus be read alone, many small files share one, and contents are never copied into a message.
use super::{CopyOptions, PACKET_BYTES};
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_core::varint::{self, Malformed};
use sheaf_file::{FileIdentity, Metadata, Owner, Timestamp, Xattr};

/// The parameters of the receiving tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PutParams {
    /// The path to copy to.
    pub destination: String,
    /// It must be a directory, because several sources come into it.
    pub into: bool,
    /// How to write.
    pub options: CopyOptions,
}

/// What to set of a copy, as far as the source is to be kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Attrs {
    /// Permission bits of the source.
    pub mode: u32,
    /// Owner and group, to keep.
    pub owner: Owner,
    /// Last access, to keep.
    pub atime: Option<Timestamp>,
    /// Last change, to keep.
    pub mtime: Option<Timestamp>,
    /// Extended attributes, to keep.
    pub xattrs: Vec<Xattr>,
}

impl Attrs {
    /// What `options` keep of a source.
    pub fn of(metadata: &Metadata, xattrs: Vec<Xattr>, options: &CopyOptions) -> Self {
        let keep = options.preserve;
        Self {
            mode: metadata.mode,
            owner: match keep {
                true => Owner { uid: Some(metadata.uid), gid: Some(metadata.gid) },
                false => Owner::default(),
            },
            atime: keep.then_some(metadata.atime),
            mtime: keep.then_some(metadata.mtime),
            xattrs,
        }
    }
}

/// A step of a copy. Paths are relative to the present source and empty for the source itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum CopyRecord {
    /// A source begins.
    Source {
        /// The name it gets in a directory; empty: the directory itself.
        name: Vec<u8>,
    },
    /// Where the source is: itself, if it is a directory, or else the directory that it is in.
    SourceDir {
        /// Which machine that is.
        machine: u128,
        /// Its path there.
        path: Vec<u8>,
    },
    /// A directory; what is in it follows.
    Dir {
        path: Vec<u8>,
        attrs: Attrs,
        /// The directory itself, if it is a source: it is not copied into itself.
        source: Option<FileIdentity>,
    },
    /// A file begins.
    File {
        path: Vec<u8>,
        attrs: Attrs,
        /// Apparent size, as far as it is known. Only [`CopyRecord::FileEnd`] is exact.
        size: u64,
        /// Other records may link to it.
        linked: bool,
        /// The file itself, if files are written in place: it is not emptied to be copied.
        source: Option<FileIdentity>,
    },
    /// Bytes of the file, which follow the record.
    Data { offset: u64, len: u32 },
    /// The file is complete.
    FileEnd { size: u64, digest: [u8; 32] },
    /// The source could not be read to its end; the file is left as it was.
    FileAbort,
    /// A symbolic link.
    Symlink {
        path: Vec<u8>,
        target: Vec<u8>,
        attrs: Attrs,
        /// Other records may link to it.
        linked: bool,
    },
    /// Another name of what was sent before.
    Hardlink { path: Vec<u8>, source: u32, target: Vec<u8> },
    /// A named pipe or a device.
    Node {
        path: Vec<u8>,
        kind: Special,
        rdev: u64,
        attrs: Attrs,
        /// Other records may link to it.
        linked: bool,
    },
    /// That was all.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Special {
    Fifo,
    CharDevice,
    BlockDevice,
}

/// Writes records into packets.
#[derive(Debug, Default)]
pub(super) struct CopyPacket {
    bytes: Vec<u8>,
}

impl CopyPacket {
    /// Bytes of contents that still fit.
    pub fn room(&self) -> usize {
        /// More than the bytes of a [`CopyRecord::Data`] and its length.
        const DATA_RECORD_BYTES_MAX: usize = 32;
        PACKET_BYTES.saturating_sub(self.bytes.len() + DATA_RECORD_BYTES_MAX)
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends a record.
    pub fn put(&mut self, record: &CopyRecord) {
        let encoded =
            postcard::to_stdvec(record).expect("records hold nothing that cannot be serialised");
        varint::put_bytes(&mut self.bytes, &encoded);
    }

    /// Appends contents.
    pub fn put_data(&mut self, offset: u64, data: &[u8]) {
        if self.bytes.capacity() < PACKET_BYTES {
            self.bytes.reserve_exact(PACKET_BYTES - self.bytes.len());
        }
        self.put(&CopyRecord::Data { offset, len: data.len() as u32 });
        self.bytes.extend_from_slice(data);
    }

    /// The packet as it is sent; the next one begins.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

/// Takes the next record off a packet, with its contents.
pub(super) fn next_record<'a>(
    input: &mut &'a [u8],
) -> Result<Option<(CopyRecord, &'a [u8])>, Malformed> {
    if input.is_empty() {
        return Ok(None);
    }
    let record = postcard::from_bytes(varint::get_bytes(input)?).map_err(|_| Malformed)?;
    let len = match record {
        CopyRecord::Data { len, .. } => len as usize,
        _ => 0,
    };
    let (data, rest) = input.split_at_checked(len).ok_or(Malformed)?;
    *input = rest;
    Ok(Some((record, data)))
}

/// What one host came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Files written.
    pub files: u64,
    /// Bytes written into them.
    pub bytes: u64,
    /// Directories made.
    pub dirs: u64,
    /// Symbolic and hard links, and special files, made.
    pub links: u64,
    /// Paths that failed.
    pub failed: u64,
}

impl Totals {
    /// How much was made, to compare what one host said at different times.
    pub(super) fn made(&self) -> (u64, u64, u64) {
        (self.files.saturating_add(self.dirs).saturating_add(self.links), self.bytes, self.failed)
    }
}

/// What a packet that is not understood counts as.
pub(super) fn malformed(_: Malformed) -> Errno {
    Errno::PROTO
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn records_and_contents_come_back() {
        let mut packet = CopyPacket::default();
        packet.put(&CopyRecord::Source { name: b"a\nb".to_vec() });
        packet.put_data(7, b"contents");
        packet.put(&CopyRecord::End);
        let bytes = packet.take();
        assert!(packet.is_empty());
        let mut input = &bytes[..];
        let mut records = Vec::new();
        while let Some((record, data)) = next_record(&mut input).unwrap() {
            records.push((record, data.to_vec()));
        }
        assert_eq!(records[0].0, CopyRecord::Source { name: b"a\nb".to_vec() });
        assert_eq!(records[1], (CopyRecord::Data { offset: 7, len: 8 }, b"contents".to_vec()));
        assert_eq!(records[2].0, CopyRecord::End);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut input = &bytes[..];
            while let Ok(Some(_)) = next_record(&mut input) {}
        }
    }
}
