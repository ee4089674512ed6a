//! A library of tapes as a store, simulated in a directory.
//!
//! An object is on a tape, behind what was written before it; a longer one than there is room goes on
//! on the next. Where it is stands in a file of the disk, which makes it there for everybody. What is
//! small and asked for all the time is on the disk as a whole: the log, and the indexes of packs.
//!
//! Who asks for an object waits until a drive has passed it. Who is going to ask for many says so
//! first ([`Store::recall`]), and they are brought to the disk in the order of the tapes.
mod library;
mod settings;

pub use settings::{TapeCounters, TapeSettings};

use super::local::{make_own_directories, read_file, unnamed_file, write_new};
use super::{LocalStore, Store, StoreError, StoreKey, StoreWriter, StoredObject};
use library::{TapeExtent, TapeLibrary};
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, lock};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

/// What the library is like, as lines; and that there is one.
const LIBRARY: &str = "library";
/// What it says is shorter.
const LIBRARY_BYTES_MAX: u64 = 64 << 10;
/// What is on the disk.
const DISK: &str = "disk";
const TAPES: &str = "tapes";
/// What a file says where an object is has not more bytes.
const PLACE_BYTES_MAX: u64 = 1 << 20;

/// A directory of this machine that stands for a library of tapes.
pub struct TapeStore {
    directory: PathBuf,
    disk: LocalStore,
    library: Arc<TapeLibrary>,
    settings: TapeSettings,
    stage: Mutex<TapeStage>,
}

/// Objects that were recalled.
#[derive(Default)]
struct TapeStage {
    files: HashMap<StoreKey, (Arc<File>, u64)>,
    /// The first goes first.
    order: VecDeque<StoreKey>,
    bytes: u64,
}

/// Where an object is.
#[derive(Serialize, Deserialize)]
struct TapePlace {
    bytes: u64,
    extents: Vec<TapeExtent>,
}

impl TapeStore {
    /// Makes a library of a directory, which is made if it is not there. One that is a library stays as
    /// it is.
    ///
    /// # Errors
    /// `ENOTEMPTY` where something else is in it; when it cannot be made.
    pub fn create(directory: &Path, settings: TapeSettings) -> Result<Self, StoreError> {
        let failed =
            |error: io::Error| failed(directory, "cannot be made a library of tapes", &error);
        match Self::open(directory) {
            Err(error) if error.errno == Errno::NOENT => {}
            opened => return opened,
        }
        let made = make_own_directories(directory).map_err(failed)?;
        // A link that has taken the place of what was made is not followed.
        let here = made.as_ref().map(|made| format!("/proc/self/fd/{}", made.as_raw_fd()));
        let here = here.as_deref().map_or(directory, Path::new);
        for entry in here.read_dir().map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if name != DISK && name != TAPES {
                return Err(StoreError {
                    place: said(directory),
                    doing: "is no library of tapes, and something is in it",
                    errno: Errno::NOTEMPTY,
                });
            }
        }
        make_own_directories(&here.join(TAPES)).map_err(failed)?;
        LocalStore::create(&here.join(DISK))
            .map_err(|error| StoreError { place: said(&directory.join(DISK)), ..error })?;
        // It is there as a whole, so that a making that was cut off is begun again.
        let text = settings.text();
        match write_new(&here.join(TAPES), &here.join(LIBRARY), text.as_bytes()) {
            // Somebody else has just made it one.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.map_err(failed)?,
        }
        Self::open(directory)
    }

    /// A library that is there, as its file says.
    ///
    /// # Errors
    /// `ENOENT` where there is none, `EINVAL` where its file says what it cannot mean.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let text = read_file(&directory.join(LIBRARY), LIBRARY_BYTES_MAX)
            .map_err(|error| failed(directory, "is no library of tapes", &error))?;
        let text = String::from_utf8(text).ok();
        let settings =
            text.and_then(|text| TapeSettings::parse(&text)).ok_or_else(|| StoreError {
                place: said(&directory.join(LIBRARY)),
                doing: "says what is not known of a library",
                errno: Errno::INVAL,
            })?;
        let library = Arc::new(TapeLibrary::new(directory.join(TAPES), settings));
        let disk = LocalStore::open(&directory.join(DISK))?;
        let stage = Mutex::default();
        Ok(Self { directory: directory.to_owned(), disk, library, settings, stage })
    }

    /// What was done since it was opened.
    #[must_use]
    pub fn counters(&self) -> TapeCounters {
        self.library.counters()
    }

    fn failed(&self, key: &StoreKey, doing: &'static str, errno: Errno) -> StoreError {
        StoreError { place: format!("{}/{key}", said(&self.directory)), doing, errno }
    }

    /// Where an object is that is on a tape.
    fn place(&self, key: &StoreKey, doing: &'static str) -> Result<TapePlace, StoreError> {
        let failed = |errno| self.failed(key, doing, errno);
        let disk = |error: StoreError| failed(error.errno);
        let bytes = self.disk.size(key).map_err(disk)?;
        if bytes > PLACE_BYTES_MAX {
            return Err(failed(Errno::BADMSG));
        }
        let text = self.disk.read(key, 0..bytes).map_err(disk)?;
        serde_json::from_slice(&text).map_err(|_| failed(Errno::BADMSG))
    }

    /// A file that has these bytes of an object, from its first on.
    fn bring(
        &self,
        key: &StoreKey,
        place: &TapePlace,
        range: Range<u64>,
    ) -> Result<Arc<File>, StoreError> {
        let failed = |errno| self.failed(key, "cannot be read", errno);
        let file = self.file().map_err(|error| failed(Errno::from_io(&error)))?;
        let file = Arc::new(file);
        let wanted = place.wanted(range, &file);
        self.library.read(wanted).map_err(failed)?;
        Ok(file)
    }

    /// A file without a name, for what is on its way.
    fn file(&self) -> io::Result<File> {
        let (file, name) = unnamed_file(&self.directory.join(TAPES))?;
        name.map_or(Ok(()), std::fs::remove_file)?;
        Ok(file)
    }

    fn staged(&self, key: &StoreKey) -> Option<(Arc<File>, u64)> {
        lock(&self.stage).files.get(key).cloned()
    }
}

impl TapePlace {
    /// What is to be read for these bytes of the object, into a file from its begin on.
    fn wanted(&self, range: Range<u64>, to: &Arc<File>) -> Vec<(TapeExtent, Arc<File>, u64)> {
        let (mut wanted, mut at) = (Vec::new(), 0);
        for extent in &self.extents {
            let (start, end) = (range.start.max(at), range.end.min(at + extent.bytes));
            if start < end {
                let from = TapeExtent {
                    start: extent.start + (start - at),
                    bytes: end - start,
                    ..*extent
                };
                wanted.push((from, to.clone(), start - range.start));
            }
            at += extent.bytes;
        }
        wanted
    }
}

impl TapeStage {
    /// Keeps an object; those that have been there longest go.
    fn keep(&mut self, key: StoreKey, file: Arc<File>, bytes: u64, bytes_max: u64) {
        if self.files.insert(key.clone(), (file, bytes)).is_none() {
            self.order.push_back(key);
            self.bytes += bytes;
        }
        while self.bytes > bytes_max
            && let Some(first) = self.order.pop_front()
        {
            self.bytes -= self.files.remove(&first).map_or(0, |(_, bytes)| bytes);
        }
    }
}

fn said(path: &Path) -> String {
    format!("tape:{}", path.display())
}

fn failed(path: &Path, doing: &'static str, error: &io::Error) -> StoreError {
    StoreError { place: said(path), doing, errno: Errno::from_io(error) }
}

/// Whether an object is on the disk as a whole.
fn is_on_disk(key: &StoreKey) -> bool {
    ["log/", "leases/", "versions/"].iter().any(|kind| key.as_str().starts_with(kind))
        || key.as_str().contains(".idx.")
}

impl Store for TapeStore {
    fn create(&self, key: &StoreKey) -> Result<Box<dyn StoreWriter>, StoreError> {
        let place = self.disk.create(key)?;
        if is_on_disk(key) {
            return Ok(place);
        }
        let file = self.file();
        let file =
            file.map_err(|error| self.failed(key, "cannot be written", Errno::from_io(&error)))?;
        let (disk, library) = (self.disk.clone(), self.library.clone());
        let said = format!("{}/{key}", said(&self.directory));
        Ok(Box::new(TapeWriter { key: key.clone(), said, file, bytes: 0, place, disk, library }))
    }

    fn open(&self, key: &StoreKey, from: u64) -> Result<Box<dyn Read + Send>, StoreError> {
        if is_on_disk(key) {
            return self.disk.open(key, from);
        }
        if let Some((file, end)) = self.staged(key) {
            return Ok(Box::new(StagedReader { file, at: from, end }));
        }
        let place = self.place(key, "cannot be read")?;
        let range = from.min(place.bytes)..place.bytes;
        let end = range.end - range.start;
        let file = self.bring(key, &place, range)?;
        Ok(Box::new(StagedReader { file, at: 0, end }))
    }

    fn read(&self, key: &StoreKey, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        if is_on_disk(key) {
            return self.disk.read(key, range);
        }
        let failed = |errno| self.failed(key, "cannot be read", errno);
        let read = |file: &File, at: u64, end: u64| {
            if range.end > end || range.start > range.end {
                return Err(failed(Errno::NODATA));
            }
            let mut bytes = vec![0; (range.end - range.start) as usize];
            let read = file.read_exact_at(&mut bytes, at);
            read.map(|()| bytes).map_err(|error| failed(Errno::from_io(&error)))
        };
        if let Some((file, end)) = self.staged(key) {
            return read(&file, range.start, end);
        }
        let place = self.place(key, "cannot be read")?;
        if range.end > place.bytes || range.start > range.end {
            return Err(failed(Errno::NODATA));
        }
        let file = self.bring(key, &place, range.clone())?;
        read(&file, 0, place.bytes)
    }

    fn size(&self, key: &StoreKey) -> Result<u64, StoreError> {
        if is_on_disk(key) {
            return self.disk.size(key);
        }
        Ok(self.place(key, "cannot be read")?.bytes)
    }

    fn list(
        &self,
        parts: &[&str],
        each: &mut dyn FnMut(StoredObject) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.disk.list(parts, &mut |object| {
            if is_on_disk(&object.key) {
                return each(object);
            }
            match self.size(&object.key) {
                Ok(bytes) => each(StoredObject { bytes, ..object }),
                // It has just been removed.
                Err(error) if error.errno == Errno::NOENT => Ok(()),
                Err(error) => Err(error),
            }
        })
    }

    /// Its bytes stay on the tape, and are nobody's.
    fn remove(&self, key: &StoreKey) -> Result<(), StoreError> {
        let mut stage = lock(&self.stage);
        if let Some((_, bytes)) = stage.files.remove(key) {
            stage.bytes -= bytes;
            stage.order.retain(|other| other != key);
        }
        drop(stage);
        let removed = self.disk.remove(key);
        removed.map_err(|error| self.failed(key, "cannot be removed", error.errno))
    }

    fn put_passing(&self, key: &StoreKey, bytes: &[u8]) -> Result<SystemTime, StoreError> {
        self.disk.put_passing(key, bytes)
    }

    fn unfinished(
        &self,
        each: &mut dyn FnMut(SystemTime, u64) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        self.disk.unfinished(each)
    }

    fn recall(&self, keys: &mut dyn Iterator<Item = StoreKey>) -> Result<(), StoreError> {
        let mut far = Vec::new();
        for key in keys {
            if is_on_disk(&key) || self.staged(&key).is_some() {
                continue;
            }
            // Where one is that cannot be found, who reads it is told.
            if let Ok(place) = self.place(&key, "cannot be recalled") {
                far.push((place, key));
            }
        }
        far.sort_by(|(one, _), (other, _)| one.extents.cmp(&other.extents));
        far.dedup_by(|(_, one), (_, other)| one == other);
        let (mut wanted, mut staged, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (place, key) in far {
            bytes += place.bytes;
            if bytes > self.settings.stage_bytes {
                // The rest is read when it is asked for.
                break;
            }
            let file = self.file();
            let file = file
                .map_err(|error| self.failed(&key, "cannot be recalled", Errno::from_io(&error)))?;
            let file = Arc::new(file);
            wanted.extend(place.wanted(0..place.bytes, &file));
            staged.push((key, file, place.bytes));
        }
        if self.library.read(wanted).is_err() {
            // One of them cannot be read. Who reads it is told, and the others are read by themselves.
            return Ok(());
        }
        let mut stage = lock(&self.stage);
        for (key, file, bytes) in staged {
            stage.keep(key, file, bytes, self.settings.stage_bytes);
        }
        Ok(())
    }

    fn calls_at_once(&self) -> usize {
        self.settings.drives * 4
    }
}

/// An object on its way to a tape.
struct TapeWriter {
    key: StoreKey,
    said: String,
    file: File,
    bytes: u64,
    place: Box<dyn StoreWriter>,
    disk: LocalStore,
    library: Arc<TapeLibrary>,
}

impl Write for TapeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl StoreWriter for TapeWriter {
    fn commit(self: Box<Self>) -> Result<(), StoreError> {
        let Self { key, said, file, bytes, mut place, disk, library } = *self;
        let failed = |errno| StoreError { place: said.clone(), doing: "cannot be written", errno };
        // No tape is written to in vain, but where somebody else does the same just now.
        match disk.size(&key) {
            Err(error) if error.errno == Errno::NOENT => {}
            Err(error) => return Err(failed(error.errno)),
            Ok(_) => return Err(failed(Errno::EXIST)),
        }
        let extents = library.write(Arc::new(file), bytes).map_err(failed)?;
        let text =
            serde_json::to_vec(&TapePlace { bytes, extents }).map_err(|_| failed(Errno::IO))?;
        place.write_all(&text).map_err(|error| failed(Errno::from_io(&error)))?;
        place.commit().map_err(|error| failed(error.errno))
    }
}

/// An object that is on the disk.
struct StagedReader {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for StagedReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_sub(self.at).min(into.len() as u64) as usize;
        let read = self.file.read_at(&mut into[..left], self.at)?;
        if read == 0 && left > 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.at += read as u64;
        Ok(read)
    }
}
