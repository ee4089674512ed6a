//! Snapshots: what the log adds up to at a commit, in one object, so that a machine without a catalog
//! need not read each commit since the first.
//!
//! A snapshot is a copy. The commits before it stay in the log, and a snapshot that is lost, damaged, or
//! of a commit that the log does not have costs time only: an older one is used, or the log as a whole.
use super::apply::{DIRECTORIES, OBJECTS, PACKS, encoded, run};
use super::tables::{RowValue, TablesUse};
use super::whole::as_value;
use super::{Catalog, CatalogError, Checked, DirectoryRows, log};
use crate::archive::unwritten;
use crate::path::ArchivePath;
use crate::store::{Store, StoreError, StoreKey};
use sheaf_core::Errno;
use std::io::{self, BufReader, BufWriter, Read, Write};

/// The version of snapshots that this Sheaf writes; those of version 1 say the same. An earlier Sheaf does
/// not read it, so that it comes to the commit of the log that says that there are versions.
const SNAPSHOT_VERSION: u32 = 2;
/// What the keys of snapshots begin with.
pub(crate) const SNAPSHOTS: &str = "snapshots";
const MAGIC: &[u8; 8] = b"sheafsnp";
const DIGEST_BYTES: usize = 32;
const HEADER_BYTES: usize = 8 + 4 + 8 + DIGEST_BYTES;
/// Commits behind the last snapshot from which on another one is written.
const COMMITS_MIN: u64 = 128;
/// Snapshots that stay: one that is read while another is written is not removed.
const SNAPSHOTS_KEPT: usize = 2;
/// Directories of a piece at most.
const DIRECTORIES_MAX: usize = 512;
/// Packs and objects of a piece at most; a directory with more of them is in several pieces.
const ROWS_MAX: usize = 4096;
/// Bytes of a piece at most, as all of it is in memory.
const PIECE_BYTES_MAX: u32 = 256 << 20;
const BUFFER_BYTES: usize = 256 << 10;

/// Some of a snapshot: directories by their paths. One whose path is that of the last of the piece before
/// goes on, and says packs and objects alone.
type Piece = Vec<(ArchivePath, DirectoryRows)>;

fn key(number: u64) -> StoreKey {
    StoreKey::new(&format!("{SNAPSHOTS}/{number:020}")).expect("digits are parts of a key")
}

/// The commits of which there are snapshots, the last one first.
pub(super) fn numbers(store: &dyn Store) -> Result<Vec<u64>, StoreError> {
    let mut numbers = Vec::new();
    store.list(&[SNAPSHOTS], &mut |object| {
        let digits = object.key.as_str().rsplit('/').next().unwrap_or_default();
        numbers.extend(digits.parse().ok().filter(|number| key(*number) == object.key));
        Ok(())
    })?;
    numbers.sort_unstable_by(|one, other| other.cmp(one));
    Ok(numbers)
}

impl Catalog {
    /// Writes a snapshot of what this catalog says, where there are so many commits behind the last one that
    /// a machine without a catalog would take long; whether it has.
    ///
    /// # Errors
    /// When the tables cannot be read, or the store cannot be written. What was committed stays so.
    pub fn write_snapshot(&mut self, store: &dyn Store) -> Result<bool, CatalogError> {
        self.write_snapshot_behind(store, COMMITS_MIN)
    }

    pub(super) fn write_snapshot_behind(
        &mut self,
        store: &dyn Store,
        commits_min: u64,
    ) -> Result<bool, CatalogError> {
        if self.applied()? < commits_min {
            return Ok(false);
        }
        let known = numbers(store)?;
        let last = known.first().copied().unwrap_or(0);
        if self.applied()?.saturating_sub(last) < commits_min {
            return Ok(false);
        }
        let number = self.as_one(TablesUse::Reading, || {
            let (number, digest) = self.last_applied()?;
            self.write(store, number, &digest).map(|()| number)
        })?;
        let all = std::iter::once(number).chain(known.into_iter().filter(|one| *one != number));
        for old in all.skip(SNAPSHOTS_KEPT) {
            crate::repair::removed(store.remove(&key(old)))?;
        }
        Ok(true)
    }

    /// Writes the snapshot of this commit, which is the last one of the tables.
    fn write(&self, store: &dyn Store, number: u64, digest: &[u8]) -> Result<(), CatalogError> {
        let key = key(number);
        let failed = |error: &io::Error| unwritten(&key, error);
        let mut object = match store.create(&key) {
            Err(error) if error.errno == Errno::EXIST => return Ok(()),
            object => object?,
        };
        {
            let mut to = Hashed::new(BufWriter::with_capacity(BUFFER_BYTES, &mut object));
            let header =
                [&MAGIC[..], &SNAPSHOT_VERSION.to_le_bytes(), &number.to_le_bytes(), digest];
            header
                .iter()
                .try_for_each(|part| to.write_all(part))
                .map_err(|error| failed(&error))?;
            let mut last = None;
            loop {
                let all =
                    self.rows_below_in_one(&ArchivePath::ROOT, last.as_ref(), DIRECTORIES_MAX)?;
                let Some((path, _)) = all.last() else { break };
                last = Some(path.clone());
                for piece in pieces(all) {
                    write_piece(&mut to, &piece).map_err(|error| failed(&error))?;
                }
            }
            let ended = to.write_all(&0u32.to_le_bytes()).and_then(|()| {
                let digest = to.digest.finalize();
                to.inner.write_all(digest.as_bytes())?;
                to.inner.flush()
            });
            ended.map_err(|error| failed(&error))?;
        }
        match object.commit() {
            // Another writer has written the same.
            Err(error) if error.errno == Errno::EXIST => Ok(()),
            committed => Ok(committed?),
        }
    }

    /// Fills empty tables with the latest snapshot, of a commit up to this one, that is whole and is of this
    /// log; the commit that it is of then.
    pub(super) fn take_in_snapshot(
        &self,
        store: &dyn Store,
        end: u64,
    ) -> Result<u64, CatalogError> {
        // A store that cannot be listed may have a log all the same: reading that says what is wrong.
        let numbers = numbers(store).unwrap_or_default();
        for number in numbers.into_iter().filter(|number| *number <= end) {
            match self.read_snapshot(store, number) {
                Ok(number) => return Ok(number),
                // The tables are as they were, and the next one or the log says the same.
                Err(CatalogError::Store(_) | CatalogError::Snapshot { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(0)
    }

    fn read_snapshot(&self, store: &dyn Store, number: u64) -> Result<u64, CatalogError> {
        self.as_one(TablesUse::Writing, || {
            // Another process with the same tables may have been first.
            if let applied @ 1.. = self.applied()? {
                return Ok(applied);
            }
            let digest = read(store, number, &mut |piece| self.insert(piece))?;
            if !log::has(store, number, &digest)? {
                return Err(CatalogError::Snapshot { number, why: "it is of another log" });
            }
            let values = [RowValue::Number(as_value(number)), RowValue::Bytes(&digest)];
            self.run("UPDATE applied SET number = ?1, digest = ?2", &values)?;
            Ok(number)
        })
    }

    fn insert(&self, piece: &Piece) -> Result<(), CatalogError> {
        let (mut directories, mut packs, mut objects) = (Vec::new(), Vec::new(), Vec::new());
        for (path, rows) in piece {
            let path = path.key();
            if let Some(directory) = &rows.directory {
                directories.push((path, as_value(rows.changed), encoded(directory)));
            }
            packs.extend(rows.packs.iter().map(|pack| (path, &pack.id.0[..], encoded(pack))));
            let name = |object: &super::ArchivedObject| encoded(object);
            objects.extend(rows.objects.iter().map(|of| (path, &of.attributes.name[..], name(of))));
        }
        let rows: Vec<_> = directories
            .iter()
            .map(|(path, changed, row)| {
                [RowValue::Bytes(path), RowValue::Number(*changed), RowValue::Bytes(row)]
            })
            .collect();
        run(self, &DIRECTORIES, &rows)?;
        for (many, all) in [(&PACKS, packs), (&OBJECTS, objects)] {
            let rows: Vec<_> = all
                .iter()
                .map(|(path, id, row)| {
                    [RowValue::Bytes(path), RowValue::Bytes(id), RowValue::Bytes(row)]
                })
                .collect();
            run(self, many, &rows)?;
        }
        Ok(())
    }
}

/// What is wrong with the snapshots of a log: each is read to its end.
pub(super) fn faults(
    store: &dyn Store,
    found: &mut dyn FnMut(CatalogError),
) -> Result<(), CatalogError> {
    for number in numbers(store)? {
        match read(store, number, &mut |_| Ok(())) {
            Ok(_) => {}
            // It was removed meanwhile.
            Err(CatalogError::Store(error)) if error.errno == Errno::NOENT => {}
            Err(error @ CatalogError::Snapshot { .. }) => found(error),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes snapshots of this commit and later ones; of all that are damaged without one.
pub(super) fn remove(
    store: &dyn Store,
    from: Option<u64>,
    dry_run: bool,
) -> Result<u64, CatalogError> {
    let mut count = 0;
    for number in numbers(store)? {
        let goes = match from {
            Some(from) => number >= from,
            None => match read(store, number, &mut |_| Ok(())) {
                Err(CatalogError::Snapshot { .. }) => true,
                Err(CatalogError::Store(error)) if error.errno == Errno::NOENT => false,
                read => read.map(|_| false)?,
            },
        };
        if goes {
            count += 1;
            if !dry_run {
                crate::repair::removed(store.remove(&key(number)))?;
            }
        }
    }
    Ok(count)
}

/// Reads a snapshot; the digest of its commit.
fn read(
    store: &dyn Store,
    number: u64,
    each: &mut dyn FnMut(&Piece) -> Result<(), CatalogError>,
) -> Result<[u8; DIGEST_BYTES], CatalogError> {
    let damaged = |why| CatalogError::Snapshot { number, why };
    let cut_off = |_: io::Error| damaged("it is cut off, or cannot be read");
    let object = store.open(&key(number), 0)?;
    let mut from = Hashed::new(BufReader::with_capacity(BUFFER_BYTES, object));
    let mut header = [0; HEADER_BYTES];
    from.read_exact(&mut header).map_err(cut_off)?;
    if !header.starts_with(MAGIC) || header[12..20] != number.to_le_bytes() {
        return Err(damaged("it is another object"));
    }
    let version = u32::from_le_bytes(header[8..12].try_into().expect("these are four bytes"));
    if !(1..=SNAPSHOT_VERSION).contains(&version) {
        return Err(damaged("another Sheaf has written it"));
    }
    let mut last: Option<ArchivePath> = None;
    loop {
        let mut length = [0; 4];
        from.read_exact(&mut length).map_err(cut_off)?;
        let length = u32::from_le_bytes(length);
        if length == 0 {
            break;
        }
        if length > PIECE_BYTES_MAX {
            return Err(damaged("it is longer than a snapshot"));
        }
        // As long as what is there, whatever is said of it.
        let mut bytes = Vec::new();
        (&mut from).take(u64::from(length)).read_to_end(&mut bytes).map_err(cut_off)?;
        let piece: Piece =
            postcard::from_bytes(&bytes).map_err(|_| damaged("it says what no snapshot does"))?;
        if !is_next(last.as_ref(), &piece, number) {
            return Err(damaged("it says what no snapshot does"));
        }
        last = piece.last().map(|(path, _)| path.clone()).or(last);
        each(&piece)?;
    }
    let mut digest = [0; DIGEST_BYTES];
    let expected = from.digest.finalize();
    from.inner.read_exact(&mut digest).map_err(cut_off)?;
    if expected != digest {
        return Err(damaged("it is not as it was written (checksum)"));
    }
    Ok(*header.last_chunk().expect("a header has a digest"))
}

/// Decodes a piece, whatever it is.
#[cfg(feature = "fuzzing")]
pub(crate) fn check_snapshot_piece(bytes: &[u8]) {
    if let Ok(piece) = postcard::from_bytes::<Piece>(bytes)
        && is_next(None, &piece, u64::MAX)
    {
        drop(pieces(piece));
    }
}

/// Whether a piece may come behind this directory.
fn is_next(last: Option<&ArchivePath>, piece: &Piece, number: u64) -> bool {
    let mut last = last;
    piece.iter().all(|(path, rows)| {
        let goes_on = rows.directory.is_none() && last == Some(path);
        let begins = rows.directory.is_some() && last.is_none_or(|last| last < path);
        last = Some(path);
        (goes_on || begins) && (1..=number).contains(&rows.changed) && rows.is_valid()
    })
}

/// Cuts directories into pieces of bounded length.
fn pieces(all: Piece) -> Vec<Piece> {
    let (mut pieces, mut piece, mut count) = (Vec::new(), Piece::new(), 0);
    for (path, mut rows) in all {
        loop {
            let room = ROWS_MAX - count;
            let packs: Vec<_> = rows.packs.drain(..rows.packs.len().min(room)).collect();
            let room = room - packs.len();
            let objects: Vec<_> = rows.objects.drain(..rows.objects.len().min(room)).collect();
            count += packs.len() + objects.len();
            let directory = rows.directory.take();
            piece.push((path.clone(), DirectoryRows { directory, packs, objects, ..rows }));
            if count < ROWS_MAX {
                break;
            }
            pieces.push(std::mem::take(&mut piece));
            count = 0;
            if rows.packs.is_empty() && rows.objects.is_empty() {
                break;
            }
        }
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

fn write_piece(to: &mut impl Write, piece: &Piece) -> io::Result<()> {
    let bytes = postcard::to_stdvec(piece).expect("memory takes what it is given");
    let length = u32::try_from(bytes.len()).ok().filter(|bytes| *bytes <= PIECE_BYTES_MAX);
    let length = length.ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(&bytes)
}

/// What is read or written, with the digest of it.
struct Hashed<T> {
    inner: T,
    digest: blake3::Hasher,
}

impl<T> Hashed<T> {
    fn new(inner: T) -> Self {
        Self { inner, digest: blake3::Hasher::new() }
    }
}

impl<T: Read> Read for Hashed<T> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(to)?;
        self.digest.update(&to[..count]);
        Ok(count)
    }
}

impl<T: Write> Write for Hashed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.digest.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
