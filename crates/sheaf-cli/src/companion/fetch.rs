//! Companions on hosts that lack them: asked for by their digest, sent down the tree once along
//! each edge, and kept in the cache of the user that serves.
//!
//! The session's own user sends programs here, which could have sent any as the server. For other
//! users of a session the service answers `EPERM`, as for all services that do not act as the caller.
use super::{COMPANIONS, Companion};
use flate2::read::{DeflateDecoder, DeflateEncoder};
use nix::unistd::{Uid, User};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sheaf_core::{Errno, RangeSet, lock};
use sheaf_tree::launch::PROGRAM_COMPRESSION;
use sheaf_tree::service::{Blocking, ServiceRequest, Worker};
use sheaf_tree::{Network, Sync};
use std::collections::HashMap;
use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// The service's name.
pub const SERVICE: &str = "companion";
/// Asks whether a host has a program: a [`WantedProgram`]; `ENOENT` if it has not.
const HAVE: i32 = 1;
/// Sends one: a [`WantedProgram`], and the file, compressed (RFC 1951).
const PUT: i32 = 2;
/// The longest program that a host keeps.
const PROGRAM_BYTES_MAX: u64 = 256 << 20;
/// How long hosts have to take a program that is sent.
const PUT_MAX: Duration = Duration::from_secs(120);
/// Pieces in which a file is read.
const PIECE_BYTES: usize = 256 << 10;

/// A program by its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedProgram {
    /// Its file's name.
    pub name: String,
    /// SHA-256 of its content.
    pub hash: [u8; 32],
    /// How many bytes it has.
    pub bytes: u64,
}

impl WantedProgram {
    /// The companion that this process runs.
    ///
    /// # Errors
    /// When its file cannot be read.
    pub fn of_this_process(companion: &Companion) -> io::Result<Self> {
        let (hash, bytes) = digest(File::open("/proc/self/exe")?)?;
        Ok(Self { name: companion.program.to_owned(), hash, bytes })
    }

    /// The companion that it names; no other file is looked for or written.
    fn companion(&self) -> Result<&'static Companion, Errno> {
        let named = COMPANIONS.iter().find(|companion| companion.program == self.name);
        named.copied().ok_or(Errno::NOSYS)
    }

    /// Where this user keeps it.
    fn cached(&self) -> Result<PathBuf, Errno> {
        let hash: String = self.hash.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(caches().ok_or(Errno::NOENT)?.join("sheaf/bin").join(hash).join(&self.name))
    }
}

/// The directory of this user's caches.
pub fn caches() -> Option<PathBuf> {
    let variable =
        |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // The XDG Base Directory Specification has programs ignore a relative path.
    variable("XDG_CACHE_HOME")
        .filter(|caches| caches.is_absolute())
        .or_else(|| Some(variable("HOME").or_else(home)?.join(".cache")))
}

/// The home of this user, where nothing says it in the environment (a unit of the system, for one).
fn home() -> Option<PathBuf> {
    User::from_uid(Uid::effective()).ok().flatten().map(|user| user.dir)
}

fn digest(mut file: impl Read) -> io::Result<FileDigest> {
    let (mut hasher, mut bytes) = (Sha256::new(), 0);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok((hasher.finalize().into(), bytes)),
            count => {
                hasher.update(&piece[..count]);
                bytes += count as u64;
            }
        }
    }
}

/// Device, inode, length, and the times of the last changes of content and of inode: a file that has these
/// has not changed. (The time of the content alone can be set.)
type FileState = [i64; 7];

/// SHA-256 of a content, and its length.
type FileDigest = ([u8; 32], u64);

fn state_of(about: &Metadata) -> FileState {
    let numbers = [about.dev(), about.ino(), about.len()].map(u64::cast_signed);
    let [device, inode, bytes] = numbers;
    let (changed, nsec) = (about.ctime(), about.ctime_nsec());
    [device, inode, bytes, about.mtime(), about.mtime_nsec(), changed, nsec]
}

/// [`digest`], read once of a file that does not change.
fn known_digest(file: &File, about: &Metadata) -> io::Result<FileDigest> {
    static KNOWN: Mutex<Option<HashMap<FileState, FileDigest>>> = Mutex::new(None);
    const KNOWN_MAX: usize = 64;
    let state = state_of(about);
    if let Some(known) = lock(&KNOWN).as_ref().and_then(|known| known.get(&state)) {
        return Ok(*known);
    }
    let found = digest(file)?;
    let mut known = lock(&KNOWN);
    let known = known.get_or_insert_default();
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known.insert(state, found);
    Ok(found)
}

/// Whether a file or directory is this user's, and no other can change it.
fn is_own(about: &Metadata) -> bool {
    about.uid() == rustix::process::geteuid().as_raw() && about.mode() & 0o022 == 0
}

/// Opens a program that may be run: a regular, executable file. One of the cache has to be this user's
/// and in a directory of this user's. What cannot be opened counts as absent, and is sent again.
fn open(path: &Path, is_cached: bool) -> Option<(File, Metadata)> {
    // Nothing is waited for that a pipe of this name would want.
    let flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
    let flags = if is_cached { flags | OFlags::NOFOLLOW } else { flags };
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let about = file.metadata().ok()?;
    let is_program = about.is_file() && about.mode() & 0o100 != 0;
    let directory = std::fs::symlink_metadata(path.parent()?).ok()?;
    let is_trusted = !is_cached || (is_own(&about) && directory.is_dir() && is_own(&directory));
    (is_program && is_trusted).then_some((file, about))
}

/// A program on this host: beside the server, or from the cache. It is the open file that is run, and not
/// whatever has its name by then.
///
/// # Errors
/// `ENOSYS` if it is not one that there is.
pub fn find(wanted: &WantedProgram) -> Result<Option<File>, Errno> {
    let beside = wanted.companion()?.installed().ok().flatten();
    let beside = beside.into_iter().map(|path| (path, false));
    let places = beside.chain(wanted.cached().ok().map(|path| (path, true)));
    let mut opened = places.filter_map(|(path, is_cached)| open(&path, is_cached));
    let found = opened.find(|(file, about)| {
        known_digest(file, about).is_ok_and(|found| found == (wanted.hash, wanted.bytes))
    });
    Ok(found.map(|(file, _)| file))
}

/// The errno of an error, which may be within another.
fn errno_of(error: &io::Error) -> Errno {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(code) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Errno(code);
        }
        source = error.source();
    }
    Errno::from_io(error)
}

/// The service, at leaves.
pub fn service() -> Blocking {
    Blocking::new(|_, _| Ok(Box::new(Keeper)))
}

struct Keeper;

impl Worker for Keeper {
    fn request(&mut self, request: &ServiceRequest) -> Result<Vec<u8>, Errno> {
        let read = postcard::take_from_bytes::<WantedProgram>(&request.payload);
        let (wanted, rest) = read.map_err(|_| Errno::BADMSG)?;
        match request.tag {
            HAVE => find(&wanted)?.map(|_| Vec::new()).ok_or(Errno::NOENT),
            PUT => keep(&wanted, rest).map(|()| Vec::new()),
            _ => Err(Errno::NOSYS),
        }
    }
}

/// Keeps a program that was sent, if it is what it should be.
fn keep(wanted: &WantedProgram, packed: &[u8]) -> Result<(), Errno> {
    wanted.companion()?;
    if wanted.bytes > PROGRAM_BYTES_MAX {
        return Err(Errno::FBIG);
    }
    write(wanted, &wanted.cached()?, DeflateDecoder::new(packed))
}

/// Writes a file of the cache, if the content is the right one.
fn write(wanted: &WantedProgram, path: &Path, content: impl Read) -> Result<(), Errno> {
    let io = |error: io::Error| errno_of(&error);
    let directory = path.parent().ok_or(Errno::INVAL)?;
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(io)?;
    let about = std::fs::symlink_metadata(directory).map_err(io)?;
    if !about.is_dir() || !is_own(&about) {
        return Err(Errno::PERM);
    }
    let mut file = tempfile::Builder::new().prefix("new.").tempfile_in(directory).map_err(io)?;
    let mut from = content.take(wanted.bytes + 1);
    let (mut hasher, mut bytes, mut piece) = (Sha256::new(), 0, vec![0; PIECE_BYTES]);
    loop {
        match from.read(&mut piece).map_err(|_| Errno::BADMSG)? {
            0 => break,
            count => {
                hasher.update(&piece[..count]);
                file.write_all(&piece[..count]).map_err(io)?;
                bytes += count as u64;
            }
        }
    }
    if bytes != wanted.bytes || <[u8; 32]>::from(hasher.finalize()) != wanted.hash {
        return Err(Errno::BADMSG);
    }
    file.as_file().set_permissions(Permissions::from_mode(0o700)).map_err(io)?;
    // No descriptor that writes is left: the file is to be run.
    file.into_temp_path().persist(path).map_err(|error| io(error.error))?;
    Ok(())
}

/// The file in this user's cache that has a content which this program contains. It is written if it is
/// absent or differs.
///
/// # Errors
/// When it cannot be written, or when another user could replace it or a directory above it (`EPERM`).
pub fn keep_contained(name: &str, content: &[u8]) -> Result<PathBuf, Errno> {
    let io = |error: io::Error| errno_of(&error);
    let (hash, bytes) = digest(content).map_err(io)?;
    let wanted = WantedProgram { name: name.to_owned(), hash, bytes };
    let path = wanted.cached()?;
    let directory = path.parent().ok_or(Errno::INVAL)?;
    // Before anything is written: root makes no directory in the cache of another user.
    let nearest = directory.ancestors().find(|above| above.exists()).ok_or(Errno::NOENT)?;
    if !nearest.canonicalize().map_err(io)?.ancestors().all(is_fixed) {
        return Err(Errno::PERM);
    }
    let is_kept = open(&path, true).is_some_and(|(file, _)| {
        let mut kept = Vec::new();
        file.take(bytes + 1).read_to_end(&mut kept).is_ok() && kept == content
    });
    if !is_kept {
        write(&wanted, &path, content)?;
    }
    let directory = directory.canonicalize().map_err(io)?;
    if !directory.ancestors().all(is_fixed) {
        return Err(Errno::PERM);
    }
    Ok(directory.join(name))
}

/// Whether only this user and root can replace the entries of a directory that are theirs.
fn is_fixed(directory: &Path) -> bool {
    std::fs::symlink_metadata(directory).is_ok_and(|about| {
        let is_trusted = about.uid() == 0 || about.uid() == rustix::process::geteuid().as_raw();
        // The sticky bit reserves entries for their owners.
        let (by_others, sticky) = (about.mode() & 0o022 != 0, about.mode() & 0o1000 != 0);
        is_trusted && (!by_others || sticky)
    })
}

/// Hosts that have no program to run.
#[derive(Default)]
pub struct WithoutProgram {
    /// They did not answer, or cannot keep programs at all.
    pub unasked: Vec<(Errno, RangeSet)>,
    /// They could not keep the one that was sent.
    pub unsent: Vec<(Errno, RangeSet)>,
}

impl WithoutProgram {
    /// Why a host has none, and whether it was sent one.
    pub fn why(&self, leaf: u32) -> Option<(Errno, bool)> {
        let find = |of: &[(Errno, RangeSet)]| {
            of.iter().find(|(_, leaves)| leaves.contains(leaf)).map(|(errno, _)| *errno)
        };
        let unasked = find(&self.unasked).map(|errno| (errno, false));
        unasked.or_else(|| find(&self.unsent).map(|errno| (errno, true)))
    }
}

/// Has each of `members` that lacks the companion of this process keep it.
///
/// # Errors
/// When this process's own file cannot be read.
pub async fn provide(
    network: &Network,
    members: &RangeSet,
    wanted: &WantedProgram,
    patience: Duration,
) -> io::Result<WithoutProgram> {
    let head = postcard::to_allocvec(wanted).map_err(io::Error::other)?;
    let (lacking, unasked): (Vec<_>, Vec<_>) = ask(network, members, HAVE, head.clone(), patience)
        .await
        .into_iter()
        .partition(|(errno, _)| *errno == Errno::NOENT);
    let mut without = WithoutProgram { unasked, unsent: Vec::new() };
    let lacking = lacking.iter().fold(RangeSet::new(), |mut all, (_, leaves)| {
        all.union_with(leaves);
        all
    });
    if !lacking.is_empty() {
        let packed = tokio::task::spawn_blocking(move || {
            let mut packed = head;
            let file = File::open("/proc/self/exe")?;
            DeflateEncoder::new(file, PROGRAM_COMPRESSION).read_to_end(&mut packed)?;
            io::Result::Ok(packed)
        });
        let packed = packed.await.map_err(io::Error::other)??;
        tracing::info!(
            "{} hosts lack {}: {} bytes are sent",
            lacking.len(),
            wanted.name,
            packed.len()
        );
        without.unsent = ask(network, &lacking, PUT, packed, PUT_MAX.max(patience)).await;
    }
    Ok(without)
}

/// Asks `members`, and returns those that failed.
async fn ask(
    network: &Network,
    members: &RangeSet,
    tag: i32,
    request: Vec<u8>,
    patience: Duration,
) -> Vec<(Errno, RangeSet)> {
    let stream = network.open(SERVICE, members.clone(), "null", b"", Sync::WaitForAll);
    let asked = match stream.request(tag, bytes::Bytes::from(request), patience).await {
        Ok(asked) => asked,
        Err(error) => return vec![(error.errno(), members.clone())],
    };
    let coverage = asked.answer().await.coverage;
    coverage.failed.into_iter().chain(coverage.silent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(content: &[u8]) -> WantedProgram {
        WantedProgram {
            name: "sheaf-archive".to_owned(),
            hash: Sha256::digest(content).into(),
            bytes: content.len() as u64,
        }
    }

    fn packed(content: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        DeflateEncoder::new(content, PROGRAM_COMPRESSION).read_to_end(&mut packed).unwrap();
        packed
    }

    #[test]
    fn program_of_another_name_is_neither_looked_for_nor_kept() {
        for name in ["sheaf", "../sheaf-archive", "", "sheaf-archive/x"] {
            let other = WantedProgram { name: name.to_owned(), ..wanted(b"x") };
            assert_eq!(find(&other).err(), Some(Errno::NOSYS), "{name}");
            assert_eq!(keep(&other, &packed(b"x")), Err(Errno::NOSYS), "{name}");
        }
    }

    #[test]
    fn program_longer_than_the_bound_is_refused_before_unpacking() {
        let long = WantedProgram { bytes: PROGRAM_BYTES_MAX + 1, ..wanted(b"x") };
        assert_eq!(keep(&long, &packed(b"x")), Err(Errno::FBIG));
    }

    /// Another user's file, one that others may write to, a link, a pipe, and one that cannot be run.
    #[test]
    fn program_writable_by_others_or_not_executable_is_absent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        std::fs::write(&path, "x").unwrap();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        set(dir.path(), 0o700);
        for (mode, is_cached) in [(0o700, true), (0o755, true), (0o777, false)] {
            set(&path, mode);
            assert!(open(&path, is_cached).is_some(), "{mode:o}");
        }
        for mode in [0o777, 0o720, 0o600] {
            set(&path, mode);
            assert!(open(&path, true).is_none(), "{mode:o}");
        }
        set(&path, 0o700);
        set(dir.path(), 0o777);
        assert!(open(&path, true).is_none(), "anybody may put another there");
        set(dir.path(), 0o700);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(open(&link, true).is_none() && open(&link, false).is_some());
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RWXU).unwrap();
        assert!(open(&pipe, true).is_none());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            assert!(open(&path, true).is_none(), "it is another user's");
        }
    }

    #[test]
    fn program_changed_in_place_with_an_old_time_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        std::fs::write(&path, "one").unwrap();
        let read = || {
            let file = File::open(&path).unwrap();
            let about = file.metadata().unwrap();
            (known_digest(&file, &about).unwrap(), about.modified().unwrap())
        };
        let (one, time) = read();
        std::thread::sleep(Duration::from_millis(20)); // The clock of inodes is coarse.
        let file = File::options().write(true).open(&path).unwrap();
        (&file).write_all(b"two").unwrap();
        file.set_modified(time).unwrap();
        assert_ne!(read().0, one);
    }

    #[test]
    fn errno_within_an_error_of_a_temporary_file_is_found() {
        let error = tempfile::tempfile_in("/proc/none").unwrap_err();
        assert_eq!(errno_of(&error), Errno::NOENT);
    }
}
