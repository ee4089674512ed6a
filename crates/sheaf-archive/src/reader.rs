//! What is in the objects of a store, from one place to a later one: of packs the bytes of the tar,
//! whether it is compressed or not.
use crate::archive::{ArchiveError, data_key, pack_key, pack_zstd_key};
use crate::catalog::{ArchivedPack, ContentPlace};
use crate::error::PackError;
use crate::pack::member::PackId;
use crate::pack::zstd::{ZstdFrame, ZstdFrames, read_frame};
use crate::store::{Store, StoreError, StoreKey};
use sheaf_core::Errno;
use std::io::{BufReader, Cursor, Read};

/// What is skipped rather than opened anew, and read at once.
const READ_BYTES: usize = 1 << 20;
/// Bytes of the end of an object in which its table of frames mostly is.
const TABLE_BYTES: u64 = 16 << 10;

/// A tar that is read at once is in memory as a whole.
const TAR_BYTES_MAX: u64 = 2 << 30;

/// The bytes of a pack's tar, where the store may have it compressed. Reading forwards is cheap, and
/// no more than a frame is kept.
///
/// ```no_run
/// # fn member(
/// #     archive: &sheaf_archive::Archive, pack: &sheaf_archive::ArchivedPack,
/// # ) -> Result<Vec<u8>, sheaf_archive::ArchiveError> {
/// let index = archive.index(pack)?;
/// let Some(member) = index.find(b"hosts") else { return Ok(Vec::new()) };
/// let mut content = vec![0; member.stored_bytes() as usize];
/// sheaf_archive::PackReader::new(archive.store(), pack).read(member.content_at(), &mut content)?;
/// # Ok(content)
/// # }
/// ```
pub struct PackReader<'a> {
    object: ObjectReader<'a>,
    zstd: Option<ZstdReader>,
    tar_bytes: Option<u64>,
    /// Nothing of the tar behind this is wanted.
    end: Option<u64>,
    /// Of a content in several objects their names, the bytes of each, and which is read.
    parts: Option<(Vec<PackId>, u64, usize)>,
}

#[derive(Default)]
struct ZstdReader {
    /// Known when something is read.
    frames: Option<ZstdFrames>,
    object_bytes: Option<u64>,
    last: Option<(ZstdFrame, Vec<u8>)>,
}

/// An object that is read from one place to a later one.
struct ObjectReader<'a> {
    store: &'a dyn Store,
    key: StoreKey,
    open: Option<BufReader<Box<dyn Read + Send>>>,
    at: u64,
    /// Nothing behind this is wanted.
    end: Option<u64>,
}

impl<'a> PackReader<'a> {
    /// The tar of a pack. Nothing is read yet.
    #[must_use]
    pub fn new(store: &'a dyn Store, pack: &ArchivedPack) -> Self {
        let zstd =
            |object_bytes| ZstdReader { object_bytes: Some(object_bytes), ..Default::default() };
        let object = ObjectReader::new(store, pack.key());
        let (zstd, tar_bytes) = (pack.zstd_bytes.map(zstd), Some(pack.tar_bytes));
        Self { object, zstd, tar_bytes, end: None, parts: None }
    }

    /// Where a content is, and at which byte it begins there.
    pub(crate) fn of(store: &'a dyn Store, place: &ContentPlace) -> (Self, u64) {
        let (key, zstd, at) = match place {
            ContentPlace::Object(id) => (data_key(*id), None, 0),
            ContentPlace::Pack { id, at, zstd } => {
                let key = if *zstd { pack_zstd_key(*id) } else { pack_key(*id) };
                (key, zstd.then(ZstdReader::default), *at)
            }
            ContentPlace::Parts { ids, .. } => {
                // A row without a part is damaged, and has none of this name.
                (data_key(ids.first().copied().unwrap_or_default()), None, 0)
            }
        };
        let object = ObjectReader::new(store, key);
        let parts = match place {
            ContentPlace::Parts { ids, bytes } => Some((ids.clone(), (*bytes).max(1), 0)),
            _ => None,
        };
        (Self { object, zstd, tar_bytes: None, end: None, parts }, at)
    }

    /// Says that nothing behind this byte is wanted, so that the store is not asked for it.
    #[must_use]
    pub fn up_to(mut self, end: u64) -> Self {
        self.end = Some(end);
        self
    }

    /// How many bytes there are.
    ///
    /// # Errors
    /// When the store does not say so, or the table of a compressed one is damaged.
    pub fn bytes(&mut self) -> Result<u64, ArchiveError> {
        if let Some((ids, part_bytes, _)) = &self.parts {
            let mut all: u64 = 0;
            for (number, id) in ids.iter().enumerate() {
                let bytes = self.object.store.size(&data_key(*id))?;
                // A part that is too short or too long would move what is behind it.
                if number + 1 < ids.len() && bytes != *part_bytes {
                    let place = data_key(*id).to_string();
                    let doing = "is not as long as it was written";
                    return Err(StoreError { place, doing, errno: Errno::BADMSG }.into());
                }
                all = all.saturating_add(bytes);
            }
            return Ok(all);
        }
        match (&mut self.zstd, self.tar_bytes) {
            (_, Some(bytes)) => Ok(bytes),
            (None, None) => Ok(self.object.store.size(&self.object.key)?),
            (Some(zstd), None) => Ok(zstd.frames(&self.object, None)?.tar_bytes()),
        }
    }

    /// Fills `into` with what is there from a byte on.
    ///
    /// # Errors
    /// When the store cannot be read, there is less (`ENODATA`), or a frame is damaged.
    pub fn read(&mut self, from: u64, into: &mut [u8]) -> Result<(), ArchiveError> {
        if self.parts.is_some() {
            return self.read_parts(from, into);
        }
        match &mut self.zstd {
            None => {
                self.object.end = self.end;
                self.object.read(from, into)
            }
            Some(zstd) => {
                // The object's bytes are other ones than the tar's: the last is in the frame that
                // has that one.
                if self.object.end.is_none()
                    && let Some(last) = self.end.and_then(|end| end.checked_sub(1))
                {
                    let frame = zstd.frames(&self.object, self.tar_bytes)?.at(last);
                    self.object.end = frame.map(|frame| frame.stored.end);
                }
                zstd.read(&mut self.object, self.tar_bytes, from, into)
            }
        }
    }

    fn read_parts(&mut self, mut from: u64, mut into: &mut [u8]) -> Result<(), ArchiveError> {
        let Some((ids, part_bytes, current)) = &mut self.parts else { return Ok(()) };
        while !into.is_empty() {
            let number = usize::try_from(from / *part_bytes).unwrap_or(usize::MAX);
            let Some(id) = ids.get(number) else { return Err(self.object.failed(Errno::NODATA)) };
            if number != *current {
                self.object = ObjectReader::new(self.object.store, data_key(*id));
                *current = number;
            }
            let at = from % *part_bytes;
            let bytes = into.len().min(usize::try_from(*part_bytes - at).unwrap_or(usize::MAX));
            let (now, rest) = into.split_at_mut(bytes);
            let begins = number as u64 * *part_bytes;
            self.object.end = self.end.map(|end| end.saturating_sub(begins).min(*part_bytes));
            self.object.read(at, now)?;
            (into, from) = (rest, from + bytes as u64);
        }
        Ok(())
    }

    /// The whole tar.
    ///
    /// # Errors
    /// As [`PackReader::read`].
    pub fn read_all(&mut self) -> Result<Vec<u8>, ArchiveError> {
        let bytes = self.bytes()?;
        // A row may say anything; the store has at least this much.
        let is_there = self.zstd.is_some() || bytes <= self.object.store.size(&self.object.key)?;
        if !is_there {
            return Err(self.object.failed(Errno::NODATA));
        }
        if bytes > TAR_BYTES_MAX {
            return Err(self.object.failed(Errno::FBIG));
        }
        let mut tar = vec![0; bytes as usize];
        self.read(0, &mut tar)?;
        Ok(tar)
    }
}

/// A pack's tar from a byte on, to its end.
pub(crate) fn open_tar<'a>(
    store: &'a dyn Store,
    pack: &ArchivedPack,
    from: u64,
) -> Result<Box<dyn Read + Send + 'a>, ArchiveError> {
    if pack.zstd_bytes.is_none() {
        return Ok(store.open(&pack.key(), from)?);
    }
    let reader = PackReader::new(store, pack);
    Ok(Box::new(TarStream { reader, at: from, end: pack.tar_bytes }))
}

/// What is in a place, and may be behind it.
pub(crate) fn open_place<'a>(
    store: &'a dyn Store,
    place: &ContentPlace,
) -> Result<Box<dyn Read + Send + 'a>, ArchiveError> {
    let (mut reader, at) = PackReader::of(store, place);
    if reader.zstd.is_none() && reader.parts.is_none() {
        return Ok(store.open(&reader.object.key, at)?);
    }
    let end = reader.bytes()?;
    Ok(Box::new(TarStream { reader, at, end }))
}

struct TarStream<'a> {
    reader: PackReader<'a>,
    at: u64,
    end: u64,
}

impl Read for TarStream<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let left = self.end.saturating_sub(self.at).min(READ_BYTES as u64) as usize;
        let bytes = into.len().min(left);
        match self.reader.read(self.at, &mut into[..bytes]) {
            Ok(()) => {
                self.at += bytes as u64;
                Ok(bytes)
            }
            Err(ArchiveError::Store(error)) => Err(std::io::Error::other(error)),
            Err(error) => Err(std::io::Error::other(StoreError {
                place: self.reader.object.key.to_string(),
                doing: "cannot be read, as its zstd frames are damaged",
                errno: error.errno(),
            })),
        }
    }
}

impl ZstdReader {
    fn frames(
        &mut self,
        object: &ObjectReader<'_>,
        tar_bytes: Option<u64>,
    ) -> Result<&ZstdFrames, ArchiveError> {
        let (store, key) = (object.store, &object.key);
        let damaged = |why| ArchiveError::Pack { place: key.clone(), why };
        let frames = match self.frames.take() {
            Some(frames) => frames,
            None => {
                let bytes = match self.object_bytes {
                    Some(bytes) => bytes,
                    None => store.size(key)?,
                };
                let mut end = store.read(key, bytes.saturating_sub(TABLE_BYTES)..bytes)?;
                let table = ZstdFrames::table_bytes(&end).map_err(damaged)?;
                let from = bytes.checked_sub(table).ok_or_else(|| {
                    damaged(PackError::damaged("it is too short for its zstd frames"))
                })?;
                if table > end.len() as u64 {
                    end = store.read(key, from..bytes)?;
                }
                let table = &end[end.len() - table as usize..];
                ZstdFrames::of(table, bytes).map_err(damaged)?
            }
        };
        if tar_bytes.is_some_and(|bytes| bytes != frames.tar_bytes()) {
            return Err(damaged(PackError::damaged("its zstd frames are not those of its tar")));
        }
        Ok(self.frames.insert(frames))
    }

    fn read(
        &mut self,
        object: &mut ObjectReader<'_>,
        tar_bytes: Option<u64>,
        mut from: u64,
        mut into: &mut [u8],
    ) -> Result<(), ArchiveError> {
        while !into.is_empty() {
            if !self.last.as_ref().is_some_and(|(frame, _)| frame.tar.contains(&from)) {
                let frame = self.frames(object, tar_bytes)?.at(from);
                let frame = frame.ok_or_else(|| object.failed(Errno::NODATA))?;
                let mut stored = vec![0; (frame.stored.end - frame.stored.start) as usize];
                object.read(frame.stored.start, &mut stored)?;
                let tar = read_frame(&frame, &stored);
                let damaged = |why| ArchiveError::Pack { place: object.key.clone(), why };
                self.last = Some((frame, tar.map_err(damaged)?));
            }
            let (frame, tar) = self.last.as_ref().expect("it was read above");
            let there = &tar[(from - frame.tar.start) as usize..];
            let bytes = there.len().min(into.len());
            let (now, rest) = into.split_at_mut(bytes);
            now.copy_from_slice(&there[..bytes]);
            (into, from) = (rest, from + bytes as u64);
        }
        Ok(())
    }
}

impl<'a> ObjectReader<'a> {
    fn new(store: &'a dyn Store, key: StoreKey) -> Self {
        Self { store, key, open: None, at: 0, end: None }
    }

    fn failed(&self, errno: Errno) -> ArchiveError {
        StoreError { place: self.key.to_string(), doing: "cannot be read", errno }.into()
    }

    /// Fills `into` with what is there from a byte on. What is not far behind what was read last is
    /// read on.
    fn read(&mut self, from: u64, into: &mut [u8]) -> Result<(), ArchiveError> {
        if into.is_empty() {
            return Ok(());
        }
        let is_near = from >= self.at && from - self.at <= READ_BYTES as u64;
        if self.open.is_none() || !is_near {
            let open: Box<dyn Read + Send> = match self.end.and_then(|end| end.checked_sub(from)) {
                // A little is asked for as such: what a server sends beyond is in vain.
                Some(bytes) if bytes >= into.len() as u64 && bytes <= READ_BYTES as u64 => {
                    Box::new(Cursor::new(self.store.read(&self.key, from..from + bytes)?))
                }
                _ => self.store.open(&self.key, from)?,
            };
            self.open = Some(BufReader::with_capacity(READ_BYTES, open));
            self.at = from;
        }
        let open = self.open.as_mut().expect("it was opened above");
        let between = from - self.at;
        let read = std::io::copy(&mut open.take(between), &mut std::io::sink())
            .and_then(|_| open.read_exact(into));
        if let Err(error) = read {
            // How far it was read is not known after an error.
            self.open = None;
            if let Some(said) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
                return Err(StoreError::clone(said).into());
            }
            return Err(self.failed(match error.kind() {
                std::io::ErrorKind::UnexpectedEof => Errno::NODATA,
                _ => Errno::from_io(&error),
            }));
        }
        self.at = from + into.len() as u64;
        Ok(())
    }
}
