//! A directory as a store: an object is a file, by its key.
//!
//! A file is written without a name and gets one when it is durable (`O_TMPFILE`, `linkat`): a crash
//! leaves nothing, and who comes second finds the name taken. Where the file system has no files
//! without names, one of `tmp/` has a name of nobody's until then.
use super::key::is_part;
use super::{Store, StoreError, StoreKey, StoreWriter, StoredObject};
use crate::version::VERSIONS;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_NOW};
use sheaf_core::Errno;
use sheaf_file::FoundFile;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Says that a directory is a store, and of which version.
const MARK: &str = "sheaf-archive";
pub(super) const MARK_TEXT: &str = "sheaf archive, version 1\n";
/// The mark of a store is shorter.
pub(super) const MARK_BYTES_MAX: u64 = 256;
/// A directory of objects that each store has from the beginning.
const LOG: &str = "log";
/// Files that have no object's name yet.
const UNNAMED: &str = "tmp";
const OBJECTS: &str = "objects";

/// A directory of this machine that has an archive in it.
#[derive(Clone, Debug)]
pub struct LocalStore {
    directory: PathBuf,
    /// Its owner could not read what is written to it.
    is_foreign: bool,
}

impl LocalStore {
    /// Makes a store of a directory, which is made if it is not there. One that is a store stays as
    /// it is.
    ///
    /// # Errors
    /// `ENOTEMPTY` where something else is in it; when it cannot be made.
    pub fn create(directory: &Path) -> Result<Self, StoreError> {
        let doing = "cannot be made a store";
        let failed = |error: io::Error| failed(directory, doing, &error);
        let made = make_own_directories(directory).map_err(failed)?;
        match Self::open(directory) {
            Err(error) if error.errno == Errno::NOENT => {}
            opened => return opened,
        }
        // A link that has taken the place of what was made is not followed.
        let here = made.as_ref().map(|made| format!("/proc/self/fd/{}", made.as_raw_fd()));
        let here = here.as_deref().map_or(directory, Path::new);
        if !is_as_if_empty(here).map_err(failed)? {
            // Somebody else may have just made it one.
            match Self::open(directory) {
                Err(error) if error.errno == Errno::NOENT => {}
                opened => return opened,
            }
            return Err(StoreError {
                place: directory.display().to_string(),
                doing: "is no store, and something is in it",
                errno: Errno::NOTEMPTY,
            });
        }
        check_own_rights(here)?;
        for part in [OBJECTS, UNNAMED] {
            make_directories(&here.join(part), mode_below(here, Mode::RWXU)).map_err(failed)?;
        }
        let objects = here.join(OBJECTS);
        make_directories(&objects.join(LOG), mode_below(&objects, Mode::RWXU)).map_err(failed)?;
        // It is there as a whole, so that a making that was cut off is begun again.
        let made = write_new(&here.join(UNNAMED), &here.join(MARK), MARK_TEXT.as_bytes());
        match made {
            // Somebody else has just made it one.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.map_err(failed)?,
        }
        Self::open(directory)
    }

    /// A store that is there.
    ///
    /// # Errors
    /// `ENOENT` where there is none, `EOPNOTSUPP` for one of a later version.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let mark = read_file(&directory.join(MARK), MARK_BYTES_MAX).map_err(|error| {
            if error.kind() == ErrorKind::NotFound && has_log(directory) {
                let doing = "its file sheaf-archive is lost, which says that it is a store: write the \
                             line \"sheaf archive, version 1\" to it";
                return StoreError { place: directory.display().to_string(), doing, errno: Errno::NODATA };
            }
            let is_other = error.raw_os_error() == no_object().raw_os_error();
            let place = if is_other { directory.join(MARK) } else { directory.to_owned() };
            failed(&place, "is no store", &error)
        })?;
        // A copy of a store in a bucket has what that one is called behind it.
        if !mark.strip_prefix(MARK_TEXT.as_bytes()).is_some_and(is_store_id) {
            return Err(StoreError {
                place: directory.display().to_string(),
                doing: "a later Sheaf has made this store, or its mark is damaged",
                errno: Errno::OPNOTSUPP,
            });
        }
        let no_store = |error: io::Error| failed(directory, "is no store", &error);
        if directory.join(OBJECTS).read_dir().map_err(no_store)?.next().is_none() {
            return Err(StoreError {
                place: directory.join(OBJECTS).display().to_string(),
                doing: "has nothing in it: is a file system to be mounted there? (of a store in which nothing \
                        was stored yet: make the directory log in it)",
                errno: Errno::NODATA,
            });
        }
        let is_foreign = is_foreign(directory).map_err(no_store)?;
        Ok(Self { directory: directory.to_owned(), is_foreign })
    }

    fn path(&self, key: &StoreKey) -> PathBuf {
        self.directory.join(OBJECTS).join(key.as_path())
    }

    /// A directory of the store, and none that a link in it leads to: what is removed is the store's.
    fn within(&self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, &self.directory, flags, Mode::empty())?;
        let within = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
        Ok(rustix::fs::openat2(root, path, flags, Mode::empty(), within)?)
    }

    /// A file for an object, until that has its name. A copy of a store in a bucket has no directory for such.
    fn unnamed_file(&self) -> io::Result<(File, Option<PathBuf>)> {
        let unnamed = self.directory.join(UNNAMED);
        match unnamed_file(&unnamed) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                make_directories(&unnamed, mode_below(&self.directory, Mode::RWXU))?;
                unnamed_file(&unnamed)
            }
            file => file,
        }
    }

    /// The same, made if it is not there, with those above it; their names are durable.
    fn made_within(&self, path: &Path) -> io::Result<OwnedFd> {
        let Some((above, name)) = path.parent().zip(path.file_name()) else {
            return Err(ErrorKind::NotFound.into());
        };
        let above = match self.within(above) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.made_within(above),
            there => there,
        }?;
        let list = rustix::fs::fgetxattr_query(&above, DEFAULT_LIST);
        match rustix::fs::mkdirat(&above, name, mode_within(list, Mode::RWXU)) {
            // Another process has made it; `within` refuses it if it is a link.
            Err(rustix::io::Errno::EXIST) => {}
            made => made?,
        }
        rustix::fs::fsync(above)?;
        self.within(path)
    }

    /// Nobody writes into a store what its owner could not read.
    fn refuse_foreign_object(&self, path: &Path) -> Result<(), StoreError> {
        if !self.is_foreign {
            return Ok(());
        }
        let doing = "is not written, as its files would lock the owner of this store out: write to it as its \
                     owner, or have the default access control list of its directories give that user rwx";
        Err(StoreError { place: path.display().to_string(), doing, errno: Errno::PERM })
    }

    /// Nor does anybody change it.
    fn refuse_foreign(&self, path: &Path) -> Result<(), StoreError> {
        if !self.is_foreign {
            return Ok(());
        }
        let doing = "is not changed, as it is of a store of another user: do it as its owner";
        Err(StoreError { place: path.display().to_string(), doing, errno: Errno::PERM })
    }
}

fn failed(path: &Path, doing: &'static str, error: &io::Error) -> StoreError {
    let doing = match error.raw_os_error().map(Errno) {
        Some(Errno::BADMSG) => "is no regular file",
        Some(Errno::LOOP) => "is not used, as a link leads to it: a store has none",
        _ => doing,
    };
    let errno = match (error.raw_os_error(), error.kind()) {
        (Some(errno), _) => Errno(errno),
        (None, ErrorKind::UnexpectedEof) => Errno::NODATA,
        (None, _) => Errno::IO,
    };
    StoreError { place: path.display().to_string(), doing, errno }
}

/// Whether something was ever stored in a directory.
fn has_log(directory: &Path) -> bool {
    let log = directory.join(OBJECTS).join(LOG).read_dir();
    log.is_ok_and(|mut log| log.next().is_some())
}

/// The beginning of a regular file.
pub(super) fn read_file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_object(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What may be behind the first line of a store's mark: nothing, or what a store in a bucket is called.
pub(super) fn is_store_id(rest: &[u8]) -> bool {
    let id = rest.strip_prefix(b"store ").and_then(|rest| rest.strip_suffix(b"\n"));
    rest.is_empty() || id.is_some_and(|id| id.len() == 32 && id.iter().all(u8::is_ascii_hexdigit))
}

/// Whether a store is of a user who could not use what this one writes there.
fn is_foreign(directory: &Path) -> io::Result<bool> {
    let objects = directory.join(OBJECTS);
    let (owner, own) = (objects.symlink_metadata()?.uid(), rustix::process::geteuid());
    if owner == own.as_raw() {
        return Ok(false);
    }
    let mut list = [0; LIST_BYTES_MAX];
    let bytes = match rustix::fs::getxattr(&objects, DEFAULT_LIST, &mut list[..]) {
        Ok(bytes) => bytes,
        // It is there, and longer.
        Err(rustix::io::Errno::RANGE) => return Ok(false),
        Err(_) => 0,
    };
    if bytes == 0 {
        // What others than root write is theirs alone, and they may be one user of several names (NFS).
        return Ok(own.is_root());
    }
    Ok(!lets_use(&list[..bytes], owner))
}

/// The access control list that what is made in a directory gets.
const DEFAULT_LIST: &str = "system.posix_acl_default";
const LIST_BYTES_MAX: usize = 1024;

/// What an access control list says, by the tags of its entries (`linux/posix_acl_xattr.h`).
struct AccessEntry {
    tag: u16,
    rights: u16,
    id: u32,
}

impl AccessEntry {
    const OWNER: u16 = 0x01;
    const USER: u16 = 0x02;
    const GROUP: u16 = 0x08;
    const MASK: u16 = 0x10;
    /// To read, to write, and to enter directories.
    const ALL: u16 = 7;

    fn all(list: &[u8]) -> Vec<Self> {
        let number = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
        let entries = list.get(4..).unwrap_or_default().chunks_exact(8);
        let entry = |entry: &[u8]| Self {
            tag: number(entry),
            rights: number(&entry[2..]),
            id: entry[4..].first_chunk().map_or(u32::MAX, |id| u32::from_le_bytes(*id)),
        };
        entries.map(entry).collect()
    }
}

/// Whether an access control list lets a user read and write what others make, directories included: an entry of the
/// user's own decides. Where there is none, a group that is named does which the user is in.
fn lets_use(list: &[u8], user: u32) -> bool {
    let entries = AccessEntry::all(list);
    let of = |tag| entries.iter().filter(move |entry| entry.tag == tag);
    let mask = of(AccessEntry::MASK).next().map_or(AccessEntry::ALL, |entry| entry.rights);
    let has_all = |entry: &AccessEntry| entry.rights & mask & AccessEntry::ALL == AccessEntry::ALL;
    match of(AccessEntry::USER).find(|entry| entry.id == user) {
        Some(entry) => has_all(entry),
        None => {
            let groups = groups_of(user);
            let is_own = |id| groups.as_ref().is_none_or(|groups| groups.contains(&id));
            // One group has to give all: the kernel puts nothing together.
            of(AccessEntry::GROUP).any(|entry| is_own(entry.id) && has_all(entry))
        }
    }
}

/// That whoever makes something in a directory may use it.
fn check_own_rights(directory: &Path) -> Result<(), StoreError> {
    let mut list = [0; LIST_BYTES_MAX];
    // Where there is none, or it cannot be read, what is made says more.
    let bytes = rustix::fs::getxattr(directory, DEFAULT_LIST, &mut list[..]).unwrap_or(0);
    let own = AccessEntry::all(&list[..bytes]);
    let is_kept_out = |entry: &AccessEntry| {
        entry.tag == AccessEntry::OWNER && entry.rights & AccessEntry::ALL != AccessEntry::ALL
    };
    if !own.iter().any(is_kept_out) {
        return Ok(());
    }
    let doing = "is not made a store, as its default access control list (getfacl) gives the owner of what is \
                 made there too little: rwx are needed (setfacl -m d:u::rwx)";
    Err(StoreError { place: directory.display().to_string(), doing, errno: Errno::ACCES })
}

/// The groups of a user; nothing where this machine does not know that user.
fn groups_of(user: u32) -> Option<Vec<u32>> {
    use nix::unistd::{Uid, User, getgrouplist};
    let user = User::from_uid(Uid::from_raw(user)).ok()??;
    let groups = getgrouplist(&CString::new(user.name).ok()?, user.gid).ok()?;
    Some(groups.into_iter().map(nix::unistd::Gid::as_raw).collect())
}

/// The mode of what is made in a directory. It is its owner's alone: what was nobody's to read is not in a file that
/// anybody may read. But where the directory has a default list, that says who else may, and the mode must not
/// take it back.
fn mode_within(list: rustix::io::Result<usize>, own: Mode) -> Mode {
    let of_group = Mode::from_raw_mode(own.as_raw_mode() >> 3);
    match list {
        Ok(1..) => own | of_group,
        _ => own,
    }
}

/// The same of a directory that is called by its path.
fn mode_below(directory: &Path, own: Mode) -> Mode {
    mode_within(rustix::fs::getxattr_query(directory, DEFAULT_LIST), own)
}

/// Whether nothing is in a directory, or what a making that was cut off has left.
fn is_as_if_empty(directory: &Path) -> io::Result<bool> {
    for entry in directory.read_dir()? {
        let entry = entry?;
        // A file system has this from the beginning.
        if entry.file_name() == "lost+found" {
            continue;
        }
        let is_ours = [OBJECTS, UNNAMED].iter().any(|part| entry.file_name() == *part);
        if !is_ours {
            return Ok(false);
        }
        for file in entry.path().read_dir()? {
            let file = file?;
            let is_made = match entry.file_name() == OBJECTS {
                true => file.file_name() == LOG && file.path().read_dir()?.next().is_none(),
                false => is_unnamed(&file.file_name()),
            };
            if !is_made {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Whether [`unnamed_file`] may have called a file so.
fn is_unnamed(name: &OsStr) -> bool {
    let numbers = name.to_str().and_then(|name| name.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(process, count)| is_number(process) && is_number(count))
}

/// Makes a file that is there as a whole or not at all, by one of `unnamed` on the same file system.
pub(super) fn write_new(unnamed: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (mut file, name) = unnamed_file(unnamed)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let linked = written.and_then(|()| link(&file, name.as_deref(), (CWD, path.as_os_str())));
    if let Some(name) = name {
        // What stays is found by who looks for leftovers.
        let _ = std::fs::remove_file(name);
    }
    linked.and_then(|()| synced(path.parent().expect("it is below the store")))
}

/// Gives a file of [`unnamed_file`] its name in a directory.
fn link(
    file: &File,
    unnamed: Option<&Path>,
    (directory, name): (impl AsFd, &OsStr),
) -> io::Result<()> {
    let by_link = || PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let (from, flags) = match unnamed {
        Some(unnamed) => (unnamed.to_owned(), AtFlags::empty()),
        // `AT_EMPTY_PATH` would need a capability, which the link in `/proc` does not.
        None => (by_link(), AtFlags::SYMLINK_FOLLOW),
    };
    Ok(rustix::fs::linkat(CWD, from, directory, name, flags)?)
}

/// Makes directories that are their owner's alone; the last one, if it was not there.
pub(super) fn make_own_directories(directory: &Path) -> io::Result<Option<OwnedFd>> {
    make_directories(directory, Mode::RWXU)
}

fn make_directories(directory: &Path, mode: Mode) -> io::Result<Option<OwnedFd>> {
    let made = sheaf_file::make_directories(directory, (mode, mode));
    Ok(made.map_err(|errno| io::Error::from_raw_os_error(errno.0))?.map(FoundFile::into_descriptor))
}

/// Opens an object. A link is not followed, and a pipe does not make the reader wait.
fn open_object(path: &Path) -> io::Result<File> {
    const FLAGS: i32 = OFlags::NONBLOCK.union(OFlags::NOFOLLOW).bits().cast_signed();
    let opened = File::options().read(true).custom_flags(FLAGS).open(path);
    // A link, and a socket.
    let is_no_object = |errno: i32| [Errno::LOOP.0, Errno::NXIO.0].contains(&errno);
    match opened {
        Err(error) if error.raw_os_error().is_some_and(is_no_object) => Err(no_object()),
        opened => opened.and_then(|file| match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(no_object()),
        }),
    }
}

/// Something else has the name of an object: what was written there is lost.
fn no_object() -> io::Error {
    rustix::io::Errno::BADMSG.into()
}

/// Makes the names in a directory durable.
fn synced(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

impl Store for LocalStore {
    fn create(&self, key: &StoreKey) -> Result<Box<dyn StoreWriter>, StoreError> {
        let path = self.path(key);
        self.refuse_foreign_object(&path)?;
        let (file, name) =
            self.unnamed_file().map_err(|error| failed(&path, "cannot be written", &error))?;
        Ok(Box::new(LocalWriter { file, name, path, store: self.clone() }))
    }

    fn open(&self, key: &StoreKey, from: u64) -> Result<Box<dyn Read + Send>, StoreError> {
        let path = self.path(key);
        let open = || {
            let mut file = open_object(&path)?;
            file.seek(SeekFrom::Start(from))?;
            Ok(file)
        };
        Ok(Box::new(open().map_err(|error| failed(&path, "cannot be read", &error))?))
    }

    fn read(&self, key: &StoreKey, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let path = self.path(key);
        let read = || {
            let file = open_object(&path)?;
            let length = file.metadata()?.len();
            if range.end > length || range.start > range.end {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            // It is not longer than the file, so there may be memory for it.
            let mut bytes = vec![0; (range.end - range.start) as usize];
            file.read_exact_at(&mut bytes, range.start)?;
            Ok(bytes)
        };
        read().map_err(|error| failed(&path, "cannot be read", &error))
    }

    fn size(&self, key: &StoreKey) -> Result<u64, StoreError> {
        let path = self.path(key);
        let size = || {
            let metadata = path.symlink_metadata()?;
            if metadata.is_file() { Ok(metadata.len()) } else { Err(no_object()) }
        };
        size().map_err(|error| failed(&path, "cannot be read", &error))
    }

    fn list(
        &self,
        parts: &[&str],
        each: &mut dyn FnMut(StoredObject) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let directory = self.directory.join(OBJECTS).join(parts.join("/"));
        let kinds = if parts == [VERSIONS] { Listed::Everything } else { Listed::Files };
        list_below(&directory, &parts.join("/"), kinds, each)
    }

    fn remove(&self, key: &StoreKey) -> Result<(), StoreError> {
        let path = self.path(key);
        self.refuse_foreign(&path)?;
        let remove = || {
            let above = Path::new(OBJECTS).join(key.as_path());
            let name = above.file_name().expect("a key has a name");
            let directory = self.within(above.parent().expect("it is below the store"))?;
            match rustix::fs::unlinkat(&directory, name, AtFlags::empty()) {
                // Nothing of ours is one: it is in the place of an object.
                Err(rustix::io::Errno::ISDIR) => {
                    rustix::fs::unlinkat(&directory, name, AtFlags::REMOVEDIR)?;
                }
                removed => removed?,
            }
            Ok(rustix::fs::fsync(directory)?)
        };
        remove().map_err(|error| failed(&path, "cannot be removed", &error))
    }

    fn put_passing(&self, key: &StoreKey, bytes: &[u8]) -> Result<SystemTime, StoreError> {
        let path = self.path(key);
        self.refuse_foreign_object(&path)?;
        let put = || {
            let (mut file, name) = self.unnamed_file()?;
            file.write_all(bytes)?;
            // A file system of a server takes the time of its server, and not that of this machine.
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            let now = Timestamps { last_access: now, last_modification: now };
            rustix::fs::futimens(&file, &now)?;
            LocalWriter { file, name, path: path.clone(), store: self.clone() }.link()?;
            path.symlink_metadata()?.modified()
        };
        put().map_err(|error| failed(&path, "cannot be written", &error))
    }

    fn unfinished(
        &self,
        each: &mut dyn FnMut(SystemTime, u64) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let unnamed = self.directory.join(UNNAMED);
        let cannot = |error: io::Error| failed(&unnamed, "cannot be listed", &error);
        let directory = match self.within(Path::new(UNNAMED)) {
            // A copy of a store in a bucket has none.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            directory => directory.map_err(cannot)?,
        };
        for entry in unnamed.read_dir().map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            if !is_unnamed(&entry.file_name()) {
                continue;
            }
            let metadata = match entry.metadata() {
                // It has its name now, or is given up.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                metadata => metadata.map_err(cannot)?,
            };
            if each(metadata.modified().map_err(cannot)?, metadata.len())? {
                self.refuse_foreign(&entry.path())?;
                match rustix::fs::unlinkat(&directory, entry.file_name(), AtFlags::empty()) {
                    Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                    Err(errno) => {
                        return Err(failed(&entry.path(), "cannot be removed", &errno.into()));
                    }
                }
            }
        }
        Ok(())
    }
}

/// A file without a name, or with one that nobody looks for.
pub(super) fn unnamed_file(directory: &Path) -> io::Result<(File, Option<PathBuf>)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mode = mode_below(directory, Mode::RUSR | Mode::WUSR);
    match rustix::fs::openat(CWD, directory, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode)
    {
        Ok(file) => return Ok((file.into(), None)),
        // `EISDIR` comes from kernels that do not know the flag.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {}
        Err(errno) => return Err(errno.into()),
    }
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = directory.join(format!("{}-{count}", std::process::id()));
        match File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(mode.as_raw_mode())
            .open(&name)
        {
            // Another machine's, or one of a process that was killed.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            opened => return Ok((opened?, Some(name))),
        }
    }
}

/// An object of a directory that is being written.
struct LocalWriter {
    file: File,
    /// Its name meanwhile, if it needs one.
    name: Option<PathBuf>,
    path: PathBuf,
    store: LocalStore,
}

impl Write for LocalWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl StoreWriter for LocalWriter {
    fn commit(self: Box<Self>) -> Result<(), StoreError> {
        let commit = || {
            self.file.sync_data()?;
            Ok(rustix::fs::fsync(self.link()?)?)
        };
        commit().map_err(|error| failed(&self.path, "cannot be written", &error))
    }
}

impl LocalWriter {
    /// Gives the file its name, in a directory of the store that is made for its first object; that directory.
    fn link(&self) -> io::Result<OwnedFd> {
        let below = self.path.strip_prefix(&self.store.directory).expect("it is below the store");
        let name = below.file_name().expect("a key has a name");
        let above = below.parent().expect("it is below objects");
        let directory = match self.store.within(above) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.store.made_within(above),
            there => there,
        }?;
        link(&self.file, self.name.as_deref(), (&directory, name))?;
        Ok(directory)
    }
}

impl Drop for LocalWriter {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // What stays is no object, and is found by who looks for leftovers.
            let _ = std::fs::remove_file(name);
        }
    }
}

/// What is listed of a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Listed {
    /// Objects, and those of directories in it.
    Files,
    /// Also what is none, and directories themselves: something that has taken the place of a version's mark is
    /// not that there is none.
    Everything,
}

fn list_below(
    directory: &Path,
    key: &str,
    kinds: Listed,
    each: &mut dyn FnMut(StoredObject) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let cannot = |error: io::Error| failed(directory, "cannot be listed", &error);
    let entries = match directory.read_dir() {
        // Nothing is there, or it has just been taken away.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(cannot)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(cannot)?;
        let name = entry.file_name().into_string().ok().filter(|name| is_part(name));
        // Whoever puts other files there has not put objects there.
        let Some(name) = name else { continue };
        let is_directory = kinds == Listed::Files && entry.file_type().map_err(cannot)?.is_dir();
        // In the order of whole keys: a directory is where its name ends with a slash.
        found.push((if is_directory { name + "/" } else { name }, entry.path()));
    }
    found.sort();
    for (name, path) in found {
        let whole = if key.is_empty() { name } else { format!("{key}/{name}") };
        if let Some(below) = whole.strip_suffix('/') {
            list_below(&path, below, kinds, each)?;
            continue;
        }
        let metadata = match path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            metadata => metadata.map_err(cannot)?,
        };
        if kinds == Listed::Files && !metadata.is_file() {
            continue;
        }
        let (bytes, written) = (metadata.len(), metadata.modified().map_err(cannot)?);
        if let Some(key) = StoreKey::new(&whole) {
            each(StoredObject { key, bytes, written })?;
        }
    }
    Ok(())
}
