//! Where a pack that is being written goes: an object, compressed or not.
use crate::pack::zstd::ZstdWriter;
use crate::store::StoreWriter;
use std::io::{self, BufWriter, IntoInnerError, Write};

const WRITE_BYTES: usize = 1 << 20;

type ObjectWriter = BufWriter<Box<dyn StoreWriter>>;

pub(crate) enum PackOutput {
    Plain { to: ObjectWriter, tar_bytes: u64 },
    Zstd { to: Box<ZstdWriter<ObjectWriter>>, tar_bytes: u64 },
}

/// A pack that is written, but for its commit.
pub(crate) struct WrittenPack {
    pub to: Box<dyn StoreWriter>,
    pub tar_bytes: u64,
    /// Bytes of the object, where it is compressed.
    pub zstd_bytes: Option<u64>,
}

impl PackOutput {
    pub fn new(to: Box<dyn StoreWriter>, zstd: Option<i32>) -> io::Result<Self> {
        // A pack is written in small pieces, such as headers: the store gets them in large ones.
        let to = BufWriter::with_capacity(WRITE_BYTES, to);
        Ok(match zstd {
            Some(level) => Self::Zstd { to: Box::new(ZstdWriter::new(to, level)?), tar_bytes: 0 },
            None => Self::Plain { to, tar_bytes: 0 },
        })
    }

    pub fn finish(self) -> io::Result<WrittenPack> {
        let (to, tar_bytes, zstd_bytes) = match self {
            Self::Plain { to, tar_bytes } => (to, tar_bytes, None),
            Self::Zstd { to, tar_bytes } => {
                let (to, bytes) = to.finish()?;
                (to, tar_bytes, Some(bytes))
            }
        };
        let to = to.into_inner().map_err(IntoInnerError::into_error)?;
        Ok(WrittenPack { to, tar_bytes, zstd_bytes })
    }
}

impl Write for PackOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (written, tar_bytes) = match self {
            Self::Plain { to, tar_bytes } => (to.write(bytes)?, tar_bytes),
            Self::Zstd { to, tar_bytes } => (to.write(bytes)?, tar_bytes),
        };
        *tar_bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain { to, .. } => to.flush(),
            Self::Zstd { to, .. } => to.flush(),
        }
    }
}
