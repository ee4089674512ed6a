//! What `/proc` shows of this process, which users whom it serves must not see through it.
//!
//! The kernel asks no process for rights to what it shows of that process itself, with whatever
//! rights one of its threads works: of a server of root's that reads for another user it would show
//! the memory, the descriptors and the threads. So whatever a thread with another user's rights has
//! opened is looked at here, and refused where it is of this process. What was opened decides, and
//! no name: links, `..`, numbers of threads and other mounts of `/proc` all lead to the same files.
use crate::Result;
use crate::export::{fd_metadata, name_metadata};
use crate::views::{device_of, is_no_proc};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno as SysErrno;
use rustix::process::{Resource, geteuid, getrlimit, getuid};
use sheaf_core::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What `statfs(2)` calls a `/proc`.
const PROC_SUPER_MAGIC: u32 = 0x9fa0;

/// More directories are not above any of its files.
const DEPTH_MAX: usize = 64;

/// What a `status` of a process is not longer than, up to the line that is looked for.
const STATUS_BYTES: u64 = 4096;

/// The link of a `/proc` that names whoever reads it.
const SELF: &str = "self";

/// A directory of a `/proc`.
enum ProcLevel {
    /// The topmost, and the number by which it knows this process, if it does.
    Top(Option<u32>),
    Beneath,
}

/// What was opened, unless it shows this process to a user whom it serves, or takes a descriptor
/// of the last quarter, which such users leave to the process and its own user.
///
/// # Errors
/// `EACCES` if it does, and where that cannot be told; `EMFILE` for such a descriptor.
pub fn unless_itself(file: OwnedFd) -> Result<OwnedFd> {
    // Whoever works for another user has that user's rights, and comes from the process's.
    if getuid() == geteuid() {
        return Ok(file);
    }
    // The kernel gives the lowest number that is free.
    if file.as_raw_fd() as u64 >= getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 4 * 3 {
        return Err(Errno::MFILE);
    }
    if is_no_proc(device_of(file.as_fd())?)?
        || rustix::fs::fstatfs(&file)?.f_type as u32 != PROC_SUPER_MAGIC
    {
        return Ok(file);
    }
    match is_itself(file.as_fd()) {
        Ok(false) => Ok(file),
        Ok(true) | Err(_) => Err(Errno::ACCES),
    }
}

/// Whether this user may have one more descriptor, of which `dir` is any.
///
/// # Errors
/// `EMFILE` where it may not.
pub(crate) fn check_descriptor(dir: BorrowedFd<'_>) -> Result<()> {
    if getuid() != geteuid() {
        drop(unless_itself(rustix::io::fcntl_dupfd_cloexec(dir, 0)?)?);
    }
    Ok(())
}

/// Whether a file of a `/proc` is beneath the directory of one of this process's threads.
fn is_itself(file: BorrowedFd<'_>) -> Result<bool> {
    if let ProcLevel::Top(_) = level(file)? {
        return Ok(false);
    }
    let dev = fd_metadata(file)?.dev;
    let mut above = parent(file)?;
    let mut below: Option<OwnedFd> = None;
    for _ in 0..DEPTH_MAX {
        if fd_metadata(above.as_fd())?.dev != dev {
            // A part of it that is mounted elsewhere: whose it is cannot be told.
            return Err(Errno::XDEV);
        }
        match level(above.as_fd())? {
            ProcLevel::Top(None) => return Ok(false),
            ProcLevel::Top(Some(own)) => {
                let below = below.as_ref().map_or(file, AsFd::as_fd);
                return Ok(process_of(below)? == Some(own));
            }
            ProcLevel::Beneath => {}
        }
        let next = open_dir(above.as_fd(), Path::new(".."))?;
        below = Some(std::mem::replace(&mut above, next));
    }
    Err(Errno::LOOP)
}

fn level(dir: BorrowedFd<'_>) -> Result<ProcLevel> {
    let own = match rustix::fs::readlinkat(dir, SELF, Vec::new()) {
        Ok(own) => own,
        Err(SysErrno::NOTDIR | SysErrno::ACCESS) => return Ok(ProcLevel::Beneath),
        // It may also be that of other processes, among which this one is not.
        Err(SysErrno::NOENT) => {
            let has_link = name_metadata(dir, OsStr::new(SELF)).is_ok();
            return Ok(if has_link { ProcLevel::Top(None) } else { ProcLevel::Beneath });
        }
        // What is not a link by this name.
        Err(SysErrno::INVAL) => return Ok(ProcLevel::Beneath),
        Err(errno) => return Err(errno.into()),
    };
    let number = own.to_str().ok().and_then(|own| own.parse().ok());
    Ok(ProcLevel::Top(Some(number.ok_or(Errno::INVAL)?)))
}

/// The directory that holds a file. Its name is only asked for to find it, and must lead back.
fn parent(file: BorrowedFd<'_>) -> Result<OwnedFd> {
    let path = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
    let path = rustix::fs::readlinkat(CWD, path.as_str(), Vec::new())?;
    let path = Path::new(OsStr::from_bytes(path.as_bytes()));
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::STALE);
    };
    if !path.is_absolute() {
        return Err(Errno::STALE);
    }
    let parent = open_dir(CWD, parent)?;
    let found = name_metadata(parent.as_fd(), name)?.id();
    if found == fd_metadata(file)?.id() { Ok(parent) } else { Err(Errno::STALE) }
}

fn open_dir(dir: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, path, flags, Mode::empty())?)
}

/// Whose directory this is, by the number of the process: those of its threads, too, have one.
fn process_of(dir: BorrowedFd<'_>) -> Result<Option<u32>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let status = match rustix::fs::openat(dir, "status", flags, Mode::empty()) {
        Ok(status) => File::from(status),
        // Not one of a process, or of one that has ended.
        Err(SysErrno::NOENT | SysErrno::NOTDIR | SysErrno::SRCH) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let mut text = Vec::new();
    match status.take(STATUS_BYTES).read_to_end(&mut text) {
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.0) => return Ok(None),
        read => read.map_err(Errno::from)?,
    };
    let text = String::from_utf8_lossy(&text);
    let number = text.lines().find_map(|line| line.strip_prefix("Tgid:"));
    number.and_then(|number| number.trim().parse().ok()).map(Some).ok_or(Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Export;
    use crate::walk::{Follow, WalkOptions};
    use rustix::process::Uid;
    use rustix::thread::{gettid, set_thread_res_uid};

    const NOBODY: u32 = 65_534;

    /// Tests that use up descriptors, or look at their numbers, take turns.
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

    /// On a thread with the rights of another user, as a server of root's has them.
    fn as_nobody(act: impl FnOnce() + Send + 'static) {
        std::thread::spawn(|| {
            set_thread_res_uid(None, Uid::from_raw(NOBODY), None).unwrap();
            act();
        })
        .join()
        .unwrap();
    }

    #[test]
    fn user_who_is_served_gets_no_descriptor_of_the_last_quarter() {
        if !geteuid().is_root() {
            return sheaf_testing::skipped("it takes root's rights to have another user's");
        }
        let _turn = sheaf_core::lock(&TURN);
        let dir = tempfile::tempdir().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(dir.path(), open).unwrap();
        std::fs::write(dir.path().join("f"), "").unwrap();
        let export = Export::open(dir.path()).unwrap();
        // Other tests of this process need few.
        let before = getrlimit(Resource::Nofile);
        let few = rustix::process::Rlimit { current: Some(512), ..before };
        rustix::process::setrlimit(Resource::Nofile, few).unwrap();
        let mut own = Vec::new();
        while own.last().is_none_or(|file: &File| file.as_raw_fd() < 400) {
            own.push(export.open_read(Path::new("f")).unwrap());
        }
        let theirs = export.clone();
        as_nobody(move || {
            let create = OFlags::CREATE | OFlags::WRONLY;
            assert_eq!(theirs.open_read(Path::new("f")).err(), Some(Errno::MFILE));
            let made = theirs.open_file(Path::new("new"), create, Mode::from_raw_mode(0o600));
            assert_eq!(made.err(), Some(Errno::MFILE));
        });
        assert!(export.open_read(Path::new("f")).is_ok());
        drop(own);
        as_nobody(move || assert!(export.open_read(Path::new("f")).is_ok()));
        rustix::process::setrlimit(Resource::Nofile, before).unwrap();
        assert!(!dir.path().join("new").exists());
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one scenario")]
    fn user_who_is_served_sees_nothing_of_the_server() {
        if !geteuid().is_root() {
            return sheaf_testing::skipped("it takes root's rights to have another user's");
        }
        let _turn = sheaf_core::lock(&TURN);
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        std::os::unix::fs::symlink("/proc/self", dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink("/proc/self/maps", dir.path().join("maps")).unwrap();
        let link = dir.path().to_str().unwrap().to_owned();
        as_nobody(move || {
            let export = Export::open(Path::new("/")).unwrap();
            let (pid, tid) = (std::process::id(), gettid().as_raw_nonzero());
            let names = ["/proc/self".to_owned(), format!("{link}/link"), format!("/proc/{pid}")];
            let threads = [
                "/proc/thread-self".to_owned(),
                format!("/proc/{tid}"),
                format!("/proc/{pid}/task/{tid}"),
                format!("/proc/1/../../proc/self/task/../task/{tid}"),
            ];
            let refused = |what: &str, done: Result<()>| {
                assert_eq!(done, Err(Errno::ACCES), "{what}");
            };
            for own in names.iter().chain(&threads) {
                refused(own, export.read_dir(Path::new(own)).map(drop));
                for file in ["", "/.", "/fd", "/maps", "/status", "/comm", "/fd/0", "/exe", "/net"]
                {
                    let path = format!("{own}{file}");
                    let path = Path::new(&path);
                    if file.is_empty() {
                        refused(own, export.stat(path).map(drop));
                        continue;
                    }
                    refused(&path.display().to_string(), export.lstat(path).map(drop));
                }
                let maps = format!("{own}/maps");
                refused(&maps, export.open_read(Path::new(&maps)).map(drop));
                let comm = format!("{own}/comm");
                let open = |flags| export.open_file(Path::new(&comm), flags, Mode::empty());
                refused(&comm, open(OFlags::WRONLY | OFlags::TRUNC).map(drop));
                refused(&comm, export.place(Path::new(&comm)).map(drop));
            }
            refused("by a link", export.open_read(Path::new(&format!("{link}/maps"))).map(drop));
            let exported = Export::open(Path::new("/proc")).unwrap();
            refused("an export", exported.open_read(Path::new("self/maps")).map(drop));
            // A walk tells that the directory is there, and does not go into it.
            let walk = exported.walk(Path::new("/"), WalkOptions::default());
            let own = Path::new("/").join(pid.to_string());
            let mut is_refused = false;
            for step in walk {
                match step {
                    Err(error) if error.path == own => is_refused = error.errno == Errno::ACCES,
                    Ok(entry) => assert!(entry.path == own || !entry.path.starts_with(&own)),
                    Err(_) => {}
                }
            }
            assert!(is_refused);
            let follow = WalkOptions { follow: Follow::Always, ..WalkOptions::default() };
            let walk = export.walk(Path::new(&format!("{link}/")), follow);
            assert!(walk.flatten().all(|entry| entry.depth < 2));
            // Everything else is as it was.
            for other in ["/proc/meminfo", "/proc/sys/kernel/hostname", "/proc/1/status"] {
                let mut text = String::new();
                export.open_read(Path::new(other)).unwrap().read_to_string(&mut text).unwrap();
                assert!(!text.is_empty(), "{other}");
            }
            for other in ["/proc", "/proc/1", "/proc/1/fd", "/proc/sys/..", "/proc/1/cmdline"] {
                export.stat(Path::new(other)).unwrap_or_else(|errno| panic!("{other}: {errno}"));
            }
            assert_eq!(
                export.read_link(Path::new("/proc/self")).unwrap(),
                Path::new(&pid.to_string())
            );
            assert!(!export.read_dir(Path::new("/proc")).unwrap().is_empty());
        });
        // The process's own user is not kept from it.
        let export = Export::open(Path::new("/")).unwrap();
        assert!(export.open_read(Path::new("/proc/self/maps")).is_ok());
    }
}
