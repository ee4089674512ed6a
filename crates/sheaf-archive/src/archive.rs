//! An archive: a store, and the catalog of what is in it.
use crate::catalog::{ArchivedPack, Catalog, CatalogError, Commit, MemberClass};
use crate::error::PackError;
use crate::lease::{LeaseTimes, LeasingStore, Writing};
use crate::name::FileName;
use crate::pack::delta::IndexDelta;
use crate::pack::index::{INDEX_BYTES_MAX, PackIndex, TAR_END_BYTES};
use crate::pack::member::PackId;
use crate::path::ArchivePath;
use crate::reader::PackReader;
use crate::store::{Store, StoreError, StoreKey};
use crate::version::VersionError;
use sheaf_core::{Errno, lock};
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// Why something of an archive cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// What the store says.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What the catalog says.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// What is wrong with a version.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// What is wrong with what a version has.
    #[error("version {id}: {why}")]
    OfVersion {
        /// Which one.
        id: String,
        /// What is wrong.
        why: Box<Self>,
    },
    /// What is wrong with a pack.
    #[error("{place}: {why}")]
    Pack {
        /// The object of the store that it is in.
        place: StoreKey,
        /// What is wrong.
        why: PackError,
    },
    /// A file of this machine cannot be read or written.
    #[error("{}: {doing}: {errno}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// What was to be done.
        doing: &'static str,
        /// Why it was not.
        errno: Errno,
    },
    /// A disk has no room for what is fetched.
    #[error(
        "{}: cannot be written: {errno}: nothing more is fetched: what was is there, and the same command \
         does the rest",
        path.display()
    )]
    TargetFull {
        /// The first file that had no room.
        path: PathBuf,
        /// Why it was not written.
        errno: Errno,
    },
    /// What is not archived stays in the target, as not all that is archived is there.
    #[error(
        "{}: nothing is removed there, as not all that is archived could be fetched",
        path.display()
    )]
    NothingRemoved {
        /// The target.
        path: PathBuf,
    },
    /// Something archived is in the way of what was to be stored.
    #[error("{path}: is archived as {what}: remove it there first")]
    InTheWay {
        /// Its name in the archive.
        path: ArchivePath,
        /// What it is.
        what: &'static str,
    },
    /// A directory was to go into itself.
    #[error("{path}: cannot go to {to}, which is within it")]
    IntoItself {
        /// The directory.
        path: ArchivePath,
        /// Where it was to go.
        to: ArchivePath,
    },
    /// A store was to be stored in itself, where it would grow each time.
    #[error("{}: is the store itself, or is in it: it cannot be stored there", path.display())]
    StoreItself {
        /// What was to be stored.
        path: PathBuf,
    },
    /// No commit says what is archived, and there is something.
    #[error(
        "the archive's log has no commit, and there are packs in its store: it may be lost: bring log back \
         from a copy of the store; where nothing has ever been archived, remove the store"
    )]
    NoLog,
    /// There is nothing of this name.
    #[error("{path}: is not in the archive")]
    NotArchived {
        /// The name.
        path: ArchivePath,
    },
    /// A name is archived more than once.
    #[error("{path}: is archived twice")]
    Twice {
        /// The name.
        path: ArchivePath,
    },
    /// A member of a pack is not as it was stored.
    #[error("{path}: {what} is damaged, in {place}")]
    Member {
        /// The name of the file.
        path: ArchivePath,
        /// The pack that it is in.
        place: StoreKey,
        /// What of it.
        what: &'static str,
    },
    /// A pack cannot be read, and so none of the files that are in it.
    #[error("{why}: the files in it: {}", names_of(directory, names, *unnamed))]
    Files {
        /// What is wrong with the pack.
        why: Box<Self>,
        /// The directory that they are in.
        directory: ArchivePath,
        /// Their names, of which some are told.
        names: Vec<Vec<u8>>,
        /// How many others there are, of which the names are not known.
        unnamed: u64,
    },
    /// Another command removes objects from the store.
    #[error(
        "cannot remove anything from the store: {holder} runs repair or repack there: try again when it \
         has ended"
    )]
    Busy {
        /// Its process, as far as that is known.
        holder: String,
    },
    /// Another command writes to the archive, whose log is to be changed.
    #[error(
        "the log cannot be changed while another command writes to the archive: {holder}: try again when it \
         has ended"
    )]
    Written {
        /// Its process, as far as that is known.
        holder: String,
    },
    /// A content is not as it was stored.
    #[error("{path}: its content is damaged in the store (checksum)")]
    Content {
        /// The name of the file.
        path: ArchivePath,
    },
}

impl ArchiveError {
    /// The number of this error.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Store(error) => error.errno,
            Self::Catalog(error) => error.errno(),
            Self::Version(VersionError::Busy) => Errno::AGAIN,
            Self::Version(VersionError::Name) => Errno::INVAL,
            Self::Version(_) => Errno::BADMSG,
            Self::OfVersion { why, .. } => why.errno(),
            Self::Pack { why, .. } => why.errno(),
            Self::File { errno, .. } | Self::TargetFull { errno, .. } => *errno,
            Self::NothingRemoved { .. } => Errno::CANCELED,
            Self::InTheWay { .. } => Errno::EXIST,
            Self::IntoItself { .. } | Self::StoreItself { .. } => Errno::INVAL,
            Self::NotArchived { .. } => Errno::NOENT,
            Self::Busy { .. } | Self::Written { .. } => Errno::BUSY,
            Self::Files { why, .. } => why.errno(),
            Self::Content { .. } | Self::Member { .. } | Self::Twice { .. } | Self::NoLog => {
                Errno::BADMSG
            }
        }
    }

    /// Whether the same may be done a little later.
    #[must_use]
    pub fn retry_can_help(&self) -> bool {
        match self {
            Self::Store(error) => error.retry_can_help(),
            Self::Catalog(error) => error.retry_can_help(),
            Self::Files { why, .. } | Self::OfVersion { why, .. } => why.retry_can_help(),
            Self::Busy { .. } | Self::Written { .. } => true,
            _ => false,
        }
    }
}

/// Names of files that are told where a pack is lost; of the others it is told how many they are.
const NAMES_TOLD: usize = 3;

impl ArchiveError {
    /// An error of a pack, with the files that are in it.
    pub(crate) fn with_files<'a>(
        self,
        directory: &ArchivePath,
        all: impl Iterator<Item = &'a [u8]>,
    ) -> Self {
        let names = all.map(<[u8]>::to_vec).collect();
        Self::Files { why: Box::new(self), directory: directory.clone(), names, unnamed: 0 }
    }

    /// An error of a pack of which only the catalog says what is in it.
    pub(crate) fn of_lost_pack(self, directory: &ArchivePath, pack: &ArchivedPack) -> Self {
        let ends = [&pack.first, &pack.last];
        let names = &ends[..if pack.members > 1 { 2 } else { 1 }];
        let mut error = self.with_files(directory, names.iter().map(|name| &name[..]));
        if let Self::Files { unnamed, .. } = &mut error {
            *unnamed = u64::from(pack.members).saturating_sub(2);
        }
        error
    }

    /// Whether it is the index of a pack that cannot be read, and not its members.
    #[must_use]
    pub fn is_of_index(&self) -> bool {
        match self {
            Self::Files { why, .. } | Self::OfVersion { why, .. } => why.is_of_index(),
            Self::Store(error) => error.place.contains(".idx."),
            Self::Pack { place, .. } => place.as_str().contains(".idx."),
            _ => false,
        }
    }

    /// The archived files that it is about, as far as they are known.
    #[must_use]
    pub fn files(&self) -> Vec<ArchivePath> {
        match self {
            Self::OfVersion { why, .. } => why.files(),
            Self::Files { directory, names, .. } => names
                .iter()
                .filter(|name| FileName::is_name(name))
                .map(|name| directory.join(name))
                .collect(),
            Self::Member { path, .. } | Self::Content { path } | Self::Twice { path } => {
                vec![path.clone()]
            }
            _ => Vec::new(),
        }
    }

    /// An error of the only object that has a file's content.
    pub(crate) fn with_file(self, path: &ArchivePath) -> Self {
        match (&self, path.split()) {
            (Self::Store(_) | Self::Pack { .. }, Some((above, name))) => {
                self.with_files(&above, std::iter::once(name))
            }
            _ => self,
        }
    }

    /// Whether what cannot be read is not there, or is not what was written: it stays so.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.errno(), Errno::NOENT | Errno::NODATA | Errno::BADMSG | Errno::IO)
    }
}

fn names_of(directory: &ArchivePath, all: &[Vec<u8>], unnamed: u64) -> String {
    // What a damaged row says may be no name.
    let names = all.iter().take(NAMES_TOLD).map(|name| match FileName::is_name(name) {
        true => directory.join(name).to_string(),
        false => name.escape_ascii().to_string(),
    });
    let names: Vec<_> = names.collect();
    let (names, more) = (names.join(", "), all.len().saturating_sub(NAMES_TOLD) as u64 + unnamed);
    if more > 0 { format!("{names} and {more} more") } else { names }
}

/// What is told of single files while many are worked on.
#[derive(Debug)]
#[non_exhaustive]
pub enum ArchiveEvent {
    /// A file or directory was left out by an error.
    Failed(ArchiveError),
    /// A file was left out, as it is not one that is archived or fetched.
    Skipped {
        /// Which one.
        path: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// A file is stored, or would be.
    Stores {
        /// Which one.
        path: PathBuf,
    },
    /// What is archived of a file that has not changed cannot be read: it is stored again, or would be.
    Again {
        /// Which one.
        path: PathBuf,
        /// What is wrong with what is archived.
        why: &'static str,
    },
    /// A file would be fetched.
    Fetches {
        /// To where.
        path: PathBuf,
    },
    /// A file or directory that is not archived is removed from a target, or would be.
    Removes {
        /// Which one.
        path: PathBuf,
        /// It is only told.
        dry_run: bool,
    },
    /// An extended attribute could not be set on a file that was fetched. It is told of the first file
    /// alone.
    AttributeLeft {
        /// Which file.
        path: PathBuf,
        /// The attribute.
        name: Vec<u8>,
        /// Why not.
        errno: Errno,
    },
    /// A directory takes the place of a file of its name, or a file that of a directory with all that is
    /// archived in it; or would.
    Replaced {
        /// Which one.
        path: PathBuf,
        /// What was archived under the name.
        was: &'static str,
    },
    /// A file was written to while it was read: what is stored may be of several moments.
    Changing {
        /// Which one.
        path: PathBuf,
    },
}

/// The message about an extended attribute that could not be set on a file.
#[must_use]
pub fn attribute_left(path: &Path, name: &[u8], errno: Errno) -> String {
    let (path, name) = (path.display(), name.escape_ascii());
    format!(
        "{path}: its attribute {name} cannot be set: {errno}; of other files this is only counted"
    )
}

impl fmt::Display for ArchiveEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Skipped { path, why } => write!(f, "{}: left out: {why}", path.display()),
            Self::Again { path, why } => write!(f, "{}: {why}: stored again", path.display()),
            Self::Stores { path } | Self::Fetches { path } => path.display().fmt(f),
            Self::Removes { path, dry_run: false } => {
                write!(f, "{}: was removed: it is not archived", path.display())
            }
            Self::Removes { path, dry_run: true } => {
                write!(f, "{}: would be removed: it is not archived", path.display())
            }
            Self::AttributeLeft { path, name, errno } => {
                f.write_str(&attribute_left(path, name, *errno))
            }
            Self::Replaced { path, was } => {
                write!(f, "{}: takes the place of what was archived as {was}", path.display())
            }
            Self::Changing { path } => {
                write!(f, "{}: was written to while it was read: store it again", path.display())
            }
        }
    }
}

/// A store, and the catalog of what is in it. Any number of threads may use it at once.
pub struct Archive {
    store: Arc<LeasingStore>,
    catalog: Mutex<Catalog>,
}

impl Archive {
    /// An archive, as far as its log goes, to read and to write.
    ///
    /// # Errors
    /// When the log or the catalog cannot be read, or the log is damaged or has a gap.
    pub fn new(store: Arc<dyn Store>, mut catalog: Catalog) -> Result<Self, ArchiveError> {
        Catalog::check_restored(&*store)?;
        catalog.catch_up_whole(&*store)?;
        Ok(Self::of(store, catalog))
    }

    /// An archive to read: where its log is damaged or has a gap, what was stored before that, or what
    /// the catalog knows; and what is wrong with the log then. Nothing can be written to it.
    ///
    /// # Errors
    /// When the store or the catalog cannot be read.
    pub fn to_read(
        store: Arc<dyn Store>,
        mut catalog: Catalog,
    ) -> Result<(Self, Option<CatalogError>), ArchiveError> {
        let restored = match Catalog::check_restored(&*store) {
            Err(CatalogError::Restoring) => Some(CatalogError::Restoring),
            restored => restored.map(|()| None)?,
        };
        let error = match catalog.catch_up(&*store) {
            Err(error) if error.is_of_log() => Some(error),
            caught_up => {
                caught_up?;
                // One that has taken in all that is there does not look for a lost end by itself.
                match catalog.check_cut(&*store) {
                    Err(error) if error.is_of_log() => Some(error),
                    checked => checked.map(|()| None)?,
                }
            }
        };
        Ok((Self::of(store, catalog), restored.or(error)))
    }

    /// An archive as its catalog knows it, whatever became of the log since, to write that again; a catalog that knows
    /// nothing takes in what there is.
    ///
    /// # Errors
    /// When the store or the catalog cannot be read.
    pub fn as_known(store: Arc<dyn Store>, mut catalog: Catalog) -> Result<Self, ArchiveError> {
        if catalog.applied()? > 0 {
            return Ok(Self::of(store, catalog));
        }
        match catalog.catch_up(&*store) {
            Err(error) if !error.is_of_log() => Err(error.into()),
            _ => Ok(Self::of(store, catalog)),
        }
    }

    pub(crate) fn of(store: Arc<dyn Store>, catalog: Catalog) -> Self {
        Self { store: Arc::new(LeasingStore::new(store)), catalog: Mutex::new(catalog) }
    }

    /// The same archive, with other times of leases than [`LeaseTimes::default`]. All commands that
    /// use a store must have the same.
    #[must_use]
    pub fn with_lease_times(self, times: LeaseTimes) -> Self {
        self.store.set_times(times);
        self
    }

    /// From now on it is read as it is now, whatever others change meanwhile, and cannot be written.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn freeze(&self) -> Result<(), ArchiveError> {
        Ok(self.catalog().freeze()?)
    }

    /// That what is read is all of the log, or others have written more of it since: needed before what is not
    /// archived is removed somewhere.
    ///
    /// # Errors
    /// When the log has a gap or has lost its end, or that cannot be seen.
    pub fn check_end(&self) -> Result<(), CatalogError> {
        self.catalog().check_end(self.store())
    }

    /// Writes a snapshot of the log, if that has become long since the last one; whether it has.
    ///
    /// # Errors
    /// When the store cannot be written. All that was committed stays so.
    pub fn compact_log(&self) -> Result<bool, ArchiveError> {
        Ok(self.catalog().write_snapshot(self.store())?)
    }

    /// Where its objects are.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// What is in it. Others wait as long as this is held.
    pub fn catalog(&self) -> MutexGuard<'_, Catalog> {
        lock(&self.catalog)
    }

    /// Begins a work that may write: from its first object on the command has a lease in the store.
    pub(crate) fn writing(&self) -> Writing {
        self.store.begin()
    }

    pub(crate) fn leasing(&self) -> &LeasingStore {
        &self.store
    }

    /// Makes changes, all of them or none; see [`LeasingStore::commit`].
    pub(crate) fn commit(&self, commit: &Commit) -> Result<u64, CatalogError> {
        self.commit_in(&mut self.catalog(), commit)
    }

    /// The same, for one that has the catalog already.
    pub(crate) fn commit_in(
        &self,
        catalog: &mut Catalog,
        commit: &Commit,
    ) -> Result<u64, CatalogError> {
        self.store.commit(catalog, commit)
    }

    /// What is in a pack, with modes and owners as they are now.
    ///
    /// # Errors
    /// When its index cannot be read, or is another one's.
    pub fn index(&self, pack: &ArchivedPack) -> Result<PackIndex, ArchiveError> {
        read_index(&*self.store, pack)
    }
}

/// What is in a pack of a store, with modes and owners as they are now. Where its index is lost or damaged
/// and is the first one, it is taken from the pack.
pub(crate) fn read_index(
    store: &dyn Store,
    pack: &ArchivedPack,
) -> Result<PackIndex, ArchiveError> {
    match read_index_beside(store, pack) {
        Err(error) if error.is_lost() => index_in(store, pack).ok_or(error),
        index => index,
    }
}

/// The same, for who makes files of it: what the catalog knows of the pack is what the index says.
pub(crate) fn read_index_to_fetch(
    store: &dyn Store,
    pack: &ArchivedPack,
) -> Result<PackIndex, ArchiveError> {
    let index = read_index(store, pack)?;
    if !is_described(pack, &index) {
        let why = PackError::damaged("its index is not the one that the catalog knows");
        return Err(ArchiveError::Pack { place: pack.key(), why });
    }
    Ok(index)
}

/// Whether an index says what the catalog knows of its pack: how many members there are, of which modes and
/// owners, how long they are, and the first and the last name.
pub(crate) fn is_described(pack: &ArchivedPack, index: &PackIndex) -> bool {
    let mut said = pack.clone();
    said.describe(index);
    let counted = (said.classes.as_deref(), pack.classes.as_deref());
    let is_counted = pack.classes.is_none()
        || counted.0.map(MemberClass::all_now) == counted.1.map(MemberClass::all_now);
    said.classes.clone_from(&pack.classes);
    said == *pack && is_counted
}

/// The index that is in a pack, where that is the one which the catalog knows; nothing if it cannot be
/// had, for whatever reason.
pub(crate) fn index_in(store: &dyn Store, row: &ArchivedPack) -> Option<PackIndex> {
    let mut index = index_as_written(store, row)?;
    let is_it = row.classes.as_ref().is_none_or(|classes| MemberClass::apply(classes, &mut index));
    is_it.then_some(index)
}

/// The same, with the modes and owners that it was written with.
pub(crate) fn index_as_written(store: &dyn Store, row: &ArchivedPack) -> Option<PackIndex> {
    if IndexDelta::is_one(row.index_bytes) {
        let read = store.read(&index_key(row.id, row.generation), 0..row.index_bytes).ok()?;
        let delta = IndexDelta::decode(&read).ok()?;
        let first = index_in_tar(store, row)?;
        let bytes = first.encode();
        return delta.apply(first, &bytes).ok().filter(|index| index.generation == row.generation);
    }
    index_in_tar(store, row).filter(|index| index.generation == row.generation)
}

/// The index that is in a pack, of whatever generation.
pub(crate) fn index_in_tar(store: &dyn Store, row: &ArchivedPack) -> Option<PackIndex> {
    let mut reader = PackReader::new(store, row);
    let end = row.tar_bytes.checked_sub(TAR_END_BYTES as u64)?;
    let mut last = [0; 16];
    reader.read(end.checked_sub(last.len() as u64)?, &mut last).ok()?;
    let bytes = PackIndex::bytes_in_end(&last).filter(|bytes| *bytes as u64 <= INDEX_BYTES_MAX)?;
    let from = end.checked_sub(bytes as u64)?;
    let mut encoded = vec![0; bytes];
    reader.read(from, &mut encoded).ok()?;
    PackIndex::decode(&encoded).ok().filter(|index| index.id == row.id)
}

/// The same as [`read_index`], of the index that is beside the pack.
pub(crate) fn read_index_beside(
    store: &dyn Store,
    pack: &ArchivedPack,
) -> Result<PackIndex, ArchiveError> {
    let place = index_key(pack.id, pack.generation);
    let read = store.read(&place, 0..pack.index_bytes)?;
    let failed = |why| ArchiveError::Pack { place: place.clone(), why };
    let mut index = if IndexDelta::is_one(pack.index_bytes) {
        let delta = IndexDelta::decode(&read).map_err(failed)?;
        let (first, bytes) = first_index_beside(store, pack)?;
        delta.apply(first, &bytes).map_err(failed)?
    } else {
        PackIndex::decode(&read).map_err(failed)?
    };
    if (index.id, index.generation) != (pack.id, pack.generation) {
        return Err(failed(PackError::damaged("its index is of another pack")));
    }
    if !pack.classes.as_ref().is_none_or(|classes| MemberClass::apply(classes, &mut index)) {
        return Err(failed(PackError::damaged("its index is not the one that the catalog knows")));
    }
    Ok(index)
}

/// The first index of a pack, which is beside it, and its bytes.
pub(crate) fn first_index_beside(
    store: &dyn Store,
    pack: &ArchivedPack,
) -> Result<(PackIndex, Vec<u8>), ArchiveError> {
    let place = index_key(pack.id, 0);
    let failed = |why| ArchiveError::Pack { place: place.clone(), why };
    let bytes = store.size(&place)?;
    if bytes > INDEX_BYTES_MAX {
        return Err(failed(PackError::damaged("its index is longer than an index")));
    }
    let read = store.read(&place, 0..bytes)?;
    Ok((PackIndex::decode(&read).map_err(failed)?, read))
}

/// Writes an index of a pack from which members were removed: as what it lacks of the first one, where that
/// is shorter.
pub(crate) fn write_shorter_index(
    store: &dyn Store,
    pack: &ArchivedPack,
    index: &mut PackIndex,
) -> Result<u64, ArchiveError> {
    // Without the first index this one is written as a whole.
    let Ok((first, bytes)) = first_index_beside(store, pack) else {
        return write_index(store, index);
    };
    while let Some(delta) = IndexDelta::of(index, &first, &bytes) {
        let delta = delta.encode();
        match put(store, &index_key(index.id, index.generation), &delta) {
            Err(error) if error.errno == Errno::EXIST => index.generation += 1,
            written => return written.map(|()| delta.len() as u64).map_err(Into::into),
        }
    }
    write_index(store, index)
}

/// Writes an index of a pack under its generation, or the next that nobody has taken.
pub(crate) fn write_index(store: &dyn Store, index: &mut PackIndex) -> Result<u64, ArchiveError> {
    loop {
        let (key, bytes) = (index_key(index.id, index.generation), index.encode());
        match put(store, &key, &bytes) {
            Err(error) if error.errno == Errno::EXIST => index.generation += 1,
            written => return written.map(|()| bytes.len() as u64).map_err(Into::into),
        }
    }
}

/// Writes an object of these bytes.
pub(crate) fn put(store: &dyn Store, key: &StoreKey, bytes: &[u8]) -> Result<(), StoreError> {
    let mut object = store.create(key)?;
    object.write_all(bytes).map_err(|error| unwritten(key, &error))?;
    object.commit()
}

/// An error of an object's writer.
pub(crate) fn unwritten(key: &StoreKey, error: &std::io::Error) -> StoreError {
    // Writers of stores wrap their own errors: those know the place and the reason.
    if let Some(said) = error.get_ref().and_then(|inner| inner.downcast_ref::<StoreError>()) {
        return said.clone();
    }
    let errno = Errno(error.raw_os_error().unwrap_or(Errno::IO.0));
    StoreError { place: key.to_string(), doing: "cannot be written", errno }
}

/// A name that nothing has.
pub(crate) fn new_id() -> Result<PackId, ArchiveError> {
    Ok(random_id()?)
}

pub(crate) fn random_id() -> Result<PackId, StoreError> {
    let mut id = [0; 16];
    let got = rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty());
    match got {
        Ok(16) => Ok(PackId(id)),
        Ok(_) => Err(no_id(Errno::IO)),
        Err(errno) => Err(no_id(Errno(errno.raw_os_error()))),
    }
}

fn no_id(errno: Errno) -> StoreError {
    let place = "a name for an object".to_owned();
    StoreError { place, doing: "the system has no random numbers", errno }
}

/// Where a pack's tar is.
#[must_use]
pub(crate) fn pack_key(id: PackId) -> StoreKey {
    key("packs", id, ".tar")
}

/// Where a pack's tar is that is compressed with zstd.
#[must_use]
pub(crate) fn pack_zstd_key(id: PackId) -> StoreKey {
    key("packs", id, ".tar.zst")
}

impl ArchivedPack {
    /// The object that has its tar.
    #[must_use]
    pub fn key(&self) -> StoreKey {
        if self.zstd_bytes.is_some() { pack_zstd_key(self.id) } else { pack_key(self.id) }
    }

    /// Bytes of the object that has its tar.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.zstd_bytes.unwrap_or(self.tar_bytes)
    }
}

/// Where this index of a pack is.
#[must_use]
pub(crate) fn index_key(id: PackId, generation: u64) -> StoreKey {
    key("packs", id, &format!(".idx.{generation}"))
}

/// Where the content of one file is.
#[must_use]
pub(crate) fn data_key(id: PackId) -> StoreKey {
    key("data", id, "")
}

/// The name that these digits are.
pub(crate) fn id_of(digits: &str) -> Option<PackId> {
    let is_id =
        digits.len() == 32 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let id = u128::from_str_radix(digits, 16).ok()?;
    is_id.then(|| PackId(id.to_be_bytes()))
}

fn key(kind: &str, id: PackId, behind: &str) -> StoreKey {
    let mut digits = String::with_capacity(32);
    for byte in id.0 {
        // Texts take what is written to them.
        let _ = write!(digits, "{byte:02x}");
    }
    let text = format!("{kind}/{}/{digits}{behind}", &digits[..2]);
    StoreKey::new(&text).expect("digits are parts of a key")
}
