//! Rows on their way from rings to the store, in files that outlive whoever writes them.
//!
//! What was taken from rings is appended to a spool before its room there is given back. A spool is
//! a file of blocks; it begins with all that is known of the open segments, so that whoever goes on
//! after a crash needs it alone. One that is full is converted, and taken away once its rows are
//! stored. A block that was cut off was never released: it is in the rings still.
use crate::collect::SourceState;
use crate::error::TraceError;
use crate::files::{open, open_own, remove};
use crate::host::ServedHost;
use crate::row::{LOST, TraceNames, TraceRow};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// How a file of this kind begins.
const MAGIC: &[u8; 8] = b"sheafsp4";
/// The name of a spool while its first block is written.
pub const PART_FILE: &str = "spool.part";
/// The most spools of a directory.
const SPOOLS_MAX: usize = 64 << 10;
/// The longest block that is believed.
const BLOCK_BYTES_MAX: u32 = 1 << 30;
/// Of a row in a block.
pub(crate) const ROW_BYTES: usize = 78;
/// The number of no name.
const NO_NAME: u32 = u32::MAX;

/// What stands before the rows of a block.
#[derive(Debug, Default, Deserialize)]
struct BlockHead {
    /// Names that are new, by their numbers.
    names: Vec<(u32, Vec<u8>)>,
    facts: SpoolFacts,
    rows: u64,
}

/// How far everything was taken that the rows of a block come from.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SpoolFacts {
    /// How far each segment was taken; segments without new records are left out.
    pub sources: Vec<SourceState>,
    /// How far the rows of each host are stored.
    pub hosts: Vec<ServedHost>,
}

impl SpoolFacts {
    /// The facts of rows from segments of this host.
    #[must_use]
    pub fn of_sources(sources: Vec<SourceState>) -> Self {
        Self { sources, hosts: Vec::new() }
    }

    /// The facts of rows from other hosts.
    #[must_use]
    pub fn of_hosts(hosts: Vec<ServedHost>) -> Self {
        Self { sources: Vec::new(), hosts }
    }
}

/// Writes a spool, block by block.
pub struct SpoolWriter {
    path: PathBuf,
    number: u32,
    file: File,
    /// Names up to here are in it.
    named: u32,
    rows: u64,
    /// Its length as far as it is whole.
    bytes: u64,
    block: Vec<u8>,
}

/// The path of the spool of this number in `directory`.
#[must_use]
pub fn path_of(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("spool-{number:06}"))
}

/// The spools of a directory by their numbers.
///
/// # Errors
/// When it cannot be read.
pub fn spools_of(directory: &Path) -> Result<BTreeMap<u32, PathBuf>, TraceError> {
    let mut spools = BTreeMap::new();
    for entry in std::fs::read_dir(directory).map_err(TraceError::io(directory))? {
        let path = entry.map_err(TraceError::io(directory))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix("spool-")?.parse().ok());
        spools.extend(number.map(|number| (number, path)));
        if spools.len() > SPOOLS_MAX {
            let why = format!("more than {SPOOLS_MAX} spools are there");
            return Err(TraceError::damaged(directory, why));
        }
    }
    Ok(spools)
}

/// How many operations are in the spools of a directory.
///
/// # Errors
/// When one cannot be read.
pub fn rows_of(directory: &Path) -> Result<u64, TraceError> {
    let mut operations = 0;
    for path in spools_of(directory)?.values() {
        read(path, &mut TraceNames::default(), |rows, names| {
            let lost = names.find(LOST);
            operations += rows.iter().filter(|row| Some(row.op) != lost).count() as u64;
            Ok(())
        })?;
    }
    Ok(operations)
}

impl SpoolWriter {
    /// Begins a spool, with all that is known so far. Whoever is killed meanwhile leaves none: it
    /// has its name once that is there.
    ///
    /// # Errors
    /// When it is there already, or cannot be written.
    pub fn begin(
        directory: &Path,
        number: u32,
        names: &TraceNames,
        facts: SpoolFacts,
    ) -> Result<Self, TraceError> {
        let path = path_of(directory, number);
        if path.try_exists().map_err(TraceError::io(&path))? {
            return Err(TraceError::io(&path)(ErrorKind::AlreadyExists.into()));
        }
        let part = directory.join(PART_FILE);
        remove(&part)?;
        let made = File::options().write(true).create_new(true).open(&part);
        let begun = made.map_err(TraceError::io(&path)).and_then(|mut file| {
            file.write_all(MAGIC).map_err(TraceError::io(&path))?;
            let bytes = MAGIC.len() as u64;
            let path = path.clone();
            let mut spool =
                Self { path, number, file, named: 0, rows: 0, bytes, block: Vec::new() };
            spool.append(&[], names, &facts)?;
            std::fs::rename(&part, &spool.path).map_err(TraceError::io(&spool.path))?;
            Ok(spool)
        });
        if begun.is_err() {
            // It takes room, and nothing is in it.
            let _ = std::fs::remove_file(&part);
        }
        begun
    }

    /// Its number in the directory.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The number of rows appended so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a block.
    ///
    /// # Errors
    /// When it cannot be written: it is as if nothing of it had been.
    pub fn append(
        &mut self,
        rows: &[TraceRow],
        names: &TraceNames,
        facts: &SpoolFacts,
    ) -> Result<(), TraceError> {
        let fresh: Vec<(u32, &[u8])> =
            (self.named..names.len() as u32).map(|at| (at, names.text(at))).collect();
        // As a BlockHead is read.
        let head = (fresh, facts, rows.len() as u64);
        self.block.clear();
        self.block.extend_from_slice(&[0; 8]);
        let block = postcard::to_extend(&head, std::mem::take(&mut self.block));
        self.block = block.map_err(|error| TraceError::damaged(&self.path, error))?;
        self.block.reserve(rows.len() * ROW_BYTES);
        rows.iter().for_each(|row| put(row, &mut self.block));
        let len = u32::try_from(self.block.len() - 8).ok().filter(|len| *len <= BLOCK_BYTES_MAX);
        let len = len.ok_or_else(|| TraceError::damaged(&self.path, "a block is too long"))?;
        let sum = crc32fast::hash(&self.block[8..]);
        self.block[..4].copy_from_slice(&len.to_le_bytes());
        self.block[4..8].copy_from_slice(&sum.to_le_bytes());
        if let Err(error) = self.file.write_all(&self.block) {
            // What stands there of it would hide what comes behind.
            let undone = self.file.set_len(self.bytes);
            let undone = undone.and_then(|()| self.file.seek(SeekFrom::Start(self.bytes)));
            undone.map_err(TraceError::io(&self.path))?;
            return Err(TraceError::io(&self.path)(error));
        }
        self.bytes += self.block.len() as u64;
        self.named = names.len() as u32;
        self.rows += rows.len() as u64;
        Ok(())
    }
}

pub(crate) fn put(row: &TraceRow, into: &mut Vec<u8>) {
    let mut bytes = [0; ROW_BYTES];
    let mut at = 0;
    let mut add = |more: &[u8]| {
        bytes[at..at + more.len()].copy_from_slice(more);
        at += more.len();
    };
    for number in [row.time_ns, row.duration_ns, row.asked, row.bytes, row.offset.unwrap_or(0)] {
        add(&number.to_le_bytes());
    }
    for number in [row.op, row.layer, row.host, row.command, row.path] {
        add(&number.to_le_bytes());
    }
    for number in [row.errno, row.pid, row.thread] {
        add(&number.to_le_bytes());
    }
    add(&row.new_path.unwrap_or(NO_NAME).to_le_bytes());
    add(&[u8::from(row.offset.is_some()), u8::from(row.is_nested)]);
    into.extend_from_slice(&bytes);
}

/// A row as it was put, with the numbers of names there.
pub(crate) fn row_of(bytes: &[u8; ROW_BYTES]) -> TraceRow {
    let long = |at: usize| i64::from_le_bytes(bytes[at * 8..][..8].try_into().expect("8 bytes"));
    let word = |at: usize| -> [u8; 4] { bytes[40 + at * 4..][..4].try_into().expect("4 bytes") };
    let (name, number) = (|at| u32::from_le_bytes(word(at)), |at| i32::from_le_bytes(word(at)));
    TraceRow {
        time_ns: long(0),
        duration_ns: long(1),
        asked: long(2),
        bytes: long(3),
        offset: (bytes[ROW_BYTES - 2] != 0).then(|| long(4)),
        op: name(0),
        layer: name(1),
        host: name(2),
        command: name(3),
        path: name(4),
        errno: number(5),
        pid: number(6),
        thread: number(7),
        is_nested: bytes[ROW_BYTES - 1] != 0,
        new_path: Some(name(8)).filter(|name| *name != NO_NAME),
    }
}

/// What was in a spool.
#[derive(Debug, Default)]
pub struct SpoolContent {
    /// Where each segment was.
    pub sources: HashMap<String, SourceState>,
    /// How far each host was.
    pub hosts: HashMap<String, ServedHost>,
    /// What was known where it begins is there.
    pub has_begun: bool,
    /// Why it is not read to its end; the rest is in the rings still.
    pub cut: Option<String>,
    /// It is not only cut off: more may be in it.
    pub is_damaged: bool,
}

/// Reads a spool; `take` is given each block's rows, with the numbers that their names have in
/// `names`.
///
/// # Errors
/// When it is none, or cannot be read; and those of `take`.
pub fn read(
    path: &Path,
    names: &mut TraceNames,
    take: impl FnMut(&[TraceRow], &TraceNames) -> Result<(), TraceError>,
) -> Result<SpoolContent, TraceError> {
    read_from(path, BufReader::new(open(path)?), names, take)
}

/// [`read`] for a spool in a directory where a user puts what it likes: it is a regular file of this
/// user's, and has no more than so many bytes.
///
/// # Errors
/// As [`read`]; and when it is longer.
pub fn read_own(
    path: &Path,
    bytes_max: u64,
    names: &mut TraceNames,
    take: impl FnMut(&[TraceRow], &TraceNames) -> Result<(), TraceError>,
) -> Result<SpoolContent, TraceError> {
    let file = open_own(path, File::options().read(true))?;
    let bytes = file.metadata().map_err(TraceError::io(path))?.len();
    if bytes > bytes_max {
        let why = format!("it has {bytes} bytes, more than the {bytes_max} of the longest spool");
        return Err(TraceError::damaged(path, why));
    }
    // It may grow meanwhile.
    read_from(path, BufReader::new(file.take(bytes_max)), names, take)
}

fn read_from(
    path: &Path,
    mut file: impl Read,
    names: &mut TraceNames,
    mut take: impl FnMut(&[TraceRow], &TraceNames) -> Result<(), TraceError>,
) -> Result<SpoolContent, TraceError> {
    let mut content = SpoolContent::default();
    let mut magic = [0; MAGIC.len()];
    match file.read_exact(&mut magic) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            content.cut = Some("it was cut off where it begins".to_owned());
            return Ok(content);
        }
        read => read.map_err(TraceError::io(path))?,
    }
    if magic != *MAGIC {
        return Err(TraceError::damaged(path, "it is no spool of a trace, or of another version"));
    }
    let mut numbers: HashMap<u32, u32> = HashMap::new();
    loop {
        let block = match block(&mut file).map_err(TraceError::io(path))? {
            SpoolBlock::Whole(block) => block,
            SpoolBlock::Cut(why) => {
                content.cut = Some(why.to_owned());
                return Ok(content);
            }
            SpoolBlock::Damaged(why) => {
                (content.cut, content.is_damaged) = (Some(why.to_owned()), true);
                return Ok(content);
            }
            SpoolBlock::End => return Ok(content),
        };
        let damaged = |why: &str| TraceError::damaged(path, why);
        let (head, rows) = postcard::take_from_bytes::<BlockHead>(&block)
            .map_err(|error| TraceError::damaged(path, error))?;
        for (number, name) in &head.names {
            numbers.insert(*number, names.number(name));
        }
        content.has_begun = true;
        for host in head.facts.hosts {
            content.hosts.insert(host.host.clone(), host);
        }
        for mut state in head.facts.sources {
            state.renumber(|number| numbers.get(&number).copied());
            content.sources.entry(state.file().to_owned()).or_default().follow(state);
        }
        let (rows, rest) = rows.as_chunks::<ROW_BYTES>();
        if rows.len() as u64 != head.rows || !rest.is_empty() {
            return Err(damaged("a block has not the rows that it says"));
        }
        let mut taken = Vec::with_capacity(rows.len());
        for bytes in rows {
            let mut row = row_of(bytes);
            for name in row.names_mut() {
                *name =
                    *numbers.get(name).ok_or_else(|| damaged("a row has a name of no block"))?;
            }
            taken.push(row);
        }
        take(&taken, names)?;
    }
}

enum SpoolBlock {
    Whole(Vec<u8>),
    /// Why nothing more is there.
    Cut(&'static str),
    /// Why nothing more is read.
    Damaged(&'static str),
    End,
}

fn block(file: &mut impl Read) -> std::io::Result<SpoolBlock> {
    let mut head = [0; 8];
    let mut have = 0;
    while have < head.len() {
        match file.read(&mut head[have..]) {
            Ok(0) if have == 0 => return Ok(SpoolBlock::End),
            Ok(0) => return Ok(SpoolBlock::Cut("its last block was cut off")),
            Ok(read) => have += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let [len, sum] =
        [0, 4].map(|at| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes")));
    if len == 0 || len > BLOCK_BYTES_MAX {
        return Ok(SpoolBlock::Damaged("the length of a block is damaged"));
    }
    let mut block = Vec::new();
    file.by_ref().take(u64::from(len)).read_to_end(&mut block)?;
    if block.len() != len as usize {
        return Ok(SpoolBlock::Cut("its last block was cut off"));
    }
    if crc32fast::hash(&block) != sum {
        return Ok(SpoolBlock::Damaged("a block is damaged"));
    }
    Ok(SpoolBlock::Whole(block))
}

/// Keeps a spool that is damaged under another name: where.
///
/// # Errors
/// When it cannot be given one.
pub fn keep_damaged(directory: &Path, number: u32) -> Result<PathBuf, TraceError> {
    let (path, kept) = (path_of(directory, number), directory.join(format!("damaged-{number:06}")));
    std::fs::rename(&path, &kept).map_err(TraceError::io(&path))?;
    Ok(kept)
}
