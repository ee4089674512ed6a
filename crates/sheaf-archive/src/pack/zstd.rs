//! A tar that is compressed with zstd, in frames of which each is read without the others (the seekable
//! format of zstd): `zstd -d` gives the tar.
use crate::error::PackError;
use sheaf_core::lock;
use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::Mutex;
use zeekstd::{BytesWrapper, SeekTable, seek_table};
use zstd_safe::{CCtx, CParameter, DCtx};

/// The highest level of compression: what is above takes much memory, of readers too.
pub const ZSTD_LEVEL_MAX: i32 = 19;
/// Bytes of the tar that a frame has, but for the last one.
const FRAME_BYTES: u32 = 256 << 10;
/// Bytes of the tar that a frame may have at most where it is read.
const FRAME_BYTES_MAX: u64 = 4 << 20;
/// Bytes that a reader has to look back for: those of the highest level.
const WINDOW_BYTES_MAX: u64 = 8 << 20;
const WRITE_BYTES: usize = 128 << 10;
/// From this level on zstd's tables are longer than such frames need.
const LEVEL_OF_LONG_TABLES: i32 = 6;
/// At this level what cannot be made shorter is written as it is, almost as fast as it is copied.
const FAST_LEVEL: i32 = -20;
/// A frame is shorter if more than one part of so many is saved.
const SHORTER_PART: usize = 16;
/// Frames that are written fast behind one that was not made shorter, unless one of them is.
const FAST_FRAMES: u32 = 7;
/// Contexts that are kept for later packs.
const CONTEXTS_MAX: usize = 32;
/// What the table of frames ends with: how many there are, a descriptor, and a magic number.
const TABLE_END_BYTES: usize = 9;
/// A table of frames has so many bytes at most, of a pack of 1 TiB and more.
const TABLE_BYTES_MAX: u64 = 64 << 20;

/// What compresses frames of this length, and has tables for no more: those of a high level for long files take
/// a hundred times as much memory, and longer to fill with nothing than to be used.
fn context(level: i32) -> io::Result<CCtx<'static>> {
    let mut context = CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
    let log = FRAME_BYTES.ilog2();
    let mut wanted = vec![CParameter::WindowLog(log), CParameter::CompressionLevel(level)];
    if level >= LEVEL_OF_LONG_TABLES {
        wanted.extend([CParameter::HashLog(log + 1), CParameter::ChainLog(log + 1)]);
    }
    for parameter in wanted {
        context.set_parameter(parameter).map_err(failed)?;
    }
    Ok(context)
}

fn failed(code: usize) -> io::Error {
    io::Error::other(zstd_safe::get_error_name(code))
}

/// Contexts that were used, each with its level: a new one has its memory to get from the system, which takes
/// longer than to compress a small pack.
static CONTEXTS: Mutex<Vec<(i32, CCtx<'static>)>> = Mutex::new(Vec::new());

/// Compresses what is written to it.
pub(crate) struct ZstdWriter<W> {
    /// There until all is written.
    context: Option<CCtx<'static>>,
    level: i32,
    out: W,
    frame: Vec<u8>,
    room: Vec<u8>,
    table: SeekTable,
    /// Bytes that were written of what is compressed.
    written: u64,
    /// How many frames are not tried at their level, as the last one was not made shorter by it.
    fast_frames: u32,
}

impl<W: Write> ZstdWriter<W> {
    pub fn new(out: W, level: i32) -> io::Result<Self> {
        let level = level.clamp(1, ZSTD_LEVEL_MAX);
        let mut used = lock(&CONTEXTS);
        let at = used.iter().position(|(of, _)| *of == level);
        let used_before = at.map(|at| used.swap_remove(at).1);
        drop(used);
        let context = used_before.map_or_else(|| context(level), Ok)?;
        Ok(Self {
            context: Some(context),
            level,
            out,
            frame: Vec::new(),
            room: Vec::new(),
            table: SeekTable::new(),
            written: 0,
            fast_frames: 0,
        })
    }

    /// Writes what has come as a frame.
    fn end_frame(&mut self) -> io::Result<()> {
        let context = self.context.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        let is_fast = self.fast_frames > 0;
        let level = if is_fast { FAST_LEVEL } else { self.level };
        context.set_parameter(CParameter::CompressionLevel(level)).map_err(failed)?;
        self.room.clear();
        self.room.reserve(zstd_safe::compress_bound(self.frame.len()));
        let bytes = context.compress2(&mut self.room, &self.frame).map_err(failed)?;
        let is_shorter = bytes < self.frame.len() - self.frame.len() / SHORTER_PART;
        self.fast_frames = match (is_shorter, is_fast) {
            (true, _) => 0,
            (false, true) => self.fast_frames - 1,
            (false, false) => FAST_FRAMES,
        };
        let (stored, tar) = (u32::try_from(bytes), u32::try_from(self.frame.len()));
        let (Ok(stored), Ok(tar)) = (stored, tar) else {
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        self.table.log_frame(stored, tar).map_err(io::Error::other)?;
        self.frame.clear();
        self.written += bytes as u64;
        self.out.write_all(&self.room[..bytes])
    }

    /// Ends the last frame and writes the table; how many bytes all have.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        // One without anything in it has a frame, too, as a reader looks for one.
        if !self.frame.is_empty() || self.written == 0 {
            self.end_frame()?;
        }
        if let Some(context) = self.context.take() {
            let mut used = lock(&CONTEXTS);
            if used.len() < CONTEXTS_MAX {
                used.push((self.level, context));
            }
        }
        let Self { table, mut out, mut room, mut written, .. } = self;
        room.resize(WRITE_BYTES, 0);
        let mut table = table.into_serializer();
        loop {
            match table.write_into(&mut room) {
                0 => return Ok((out, written)),
                bytes => {
                    out.write_all(&room[..bytes])?;
                    written += bytes as u64;
                }
            }
        }
    }
}

impl<W: Write> Write for ZstdWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(FRAME_BYTES as usize - self.frame.len());
        self.frame.extend_from_slice(&bytes[..taken]);
        if self.frame.len() == FRAME_BYTES as usize {
            self.end_frame()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Where each frame is.
pub(crate) struct ZstdFrames {
    table: SeekTable,
}

/// A frame: which bytes of the object it is, and of the tar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ZstdFrame {
    pub stored: std::ops::Range<u64>,
    pub tar: std::ops::Range<u64>,
}

impl ZstdFrames {
    /// How many bytes a table of frames has, by the end of the object.
    pub fn table_bytes(end: &[u8]) -> Result<u64, PackError> {
        let end: &[u8; TABLE_END_BYTES] = end.last_chunk().ok_or_else(no_table)?;
        let frames = u32::from_le_bytes([end[0], end[1], end[2], end[3]]);
        let frame_bytes = if end[4] & 0x80 == 0 { 8 } else { 12 };
        let bytes = u64::from(frames) * frame_bytes + 8 + TABLE_END_BYTES as u64;
        if bytes > TABLE_BYTES_MAX { Err(no_table()) } else { Ok(bytes) }
    }

    /// The frames of an object of so many bytes, by the table that it ends with.
    pub fn of(table: &[u8], object_bytes: u64) -> Result<Self, PackError> {
        // A table says how long it is, and no more is made of it than is there.
        if Self::table_bytes(table)? != table.len() as u64 {
            return Err(no_table());
        }
        let format = seek_table::Format::Foot;
        let parsed = SeekTable::from_seekable_format(&mut BytesWrapper::new(table), format);
        let frames = Self { table: parsed.map_err(|_| no_table())? };
        let is_whole = frames.table.size_comp().checked_add(table.len() as u64)
            == Some(object_bytes)
            && frames.table.max_frame_size_decomp() <= FRAME_BYTES_MAX
            && frames.table.max_frame_size_comp() <= 2 * FRAME_BYTES_MAX;
        if is_whole { Ok(frames) } else { Err(no_table()) }
    }

    /// Bytes of the tar.
    pub fn tar_bytes(&self) -> u64 {
        self.table.size_decomp()
    }

    /// The frame that has a byte of the tar.
    pub fn at(&self, from: u64) -> Option<ZstdFrame> {
        if from >= self.tar_bytes() {
            return None;
        }
        let (table, at) = (&self.table, self.table.frame_index_decomp(from));
        let stored = table.frame_start_comp(at).ok()?..table.frame_end_comp(at).ok()?;
        let tar = table.frame_start_decomp(at).ok()?..table.frame_end_decomp(at).ok()?;
        tar.contains(&from).then_some(ZstdFrame { stored, tar })
    }
}

fn no_table() -> PackError {
    PackError::damaged("its table of zstd frames is not as it was written")
}

/// What a frame has of the tar: so many bytes, and no others.
pub(crate) fn read_frame(frame: &ZstdFrame, stored: &[u8]) -> Result<Vec<u8>, PackError> {
    let from = frame.tar.start;
    let damaged =
        || PackError::damaged(format!("its zstd frame from byte {from} on cannot be read"));
    let bytes = frame.tar.end - from;
    // Before it is decoded: a damaged header may ask for any amount of memory.
    if bytes > FRAME_BYTES_MAX
        || window_bytes(stored).is_none_or(|window| window > WINDOW_BYTES_MAX)
    {
        return Err(damaged());
    }
    let mut tar = Vec::with_capacity(bytes as usize);
    let read = DECODER.with_borrow_mut(|decoder| {
        if decoder.is_none() {
            *decoder = DCtx::try_create();
        }
        // What does not fit into the room is an error.
        decoder.as_mut().and_then(|decoder| decoder.decompress(&mut tar, stored).ok())
    });
    if read == Some(bytes as usize) && tar.len() == bytes as usize {
        Ok(tar)
    } else {
        Err(damaged())
    }
}

thread_local! {
    /// What decodes frames: made anew for each, it and its window took a sixth of the time of `grep`.
    static DECODER: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// How many bytes a reader of a frame has to keep, as its header says.
fn window_bytes(frame: &[u8]) -> Option<u64> {
    const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    let (descriptor, rest) = frame.strip_prefix(&MAGIC)?.split_first()?;
    let has_window = descriptor & 0x20 == 0;
    if has_window {
        let window = *rest.first()?;
        let base = 1u64 << (10 + (window >> 3));
        return Some(base + base / 8 * u64::from(window & 7));
    }
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let (bytes, add) = [(1, 0), (2, 256), (4, 0), (8, 0)][usize::from(descriptor >> 6)];
    let mut size = [0; 8];
    size[..bytes].copy_from_slice(rest.get(dictionary..dictionary + bytes)?);
    u64::from_le_bytes(size).checked_add(add)
}
