//! Whether a program or library of the cache is used.
//!
//! Two ways are needed. A lease tells of any process, also of one in another PID namespace or of another user,
//! and works on local file systems. The list of processes names the process, and works on all file systems.
use super::directory::OpenDirectory;
use nix::libc;
use rustix::fs::{FileType, Stat};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `F_SETSIG` of `linux/fcntl.h`, which the crate libc lacks.
const F_SETSIG: libc::c_int = 10;

/// The library that `sheaf trace record` loads into programs.
const PRELOAD: &[u8] = b"/libsheaf_trace.so";

/// The programs and preload libraries of the processes that this user can see, by device and inode.
pub struct UsedFiles {
    files: HashMap<(u64, u64), u32>,
    /// The program of this process, if it does not count as used.
    own: Option<(u64, u64)>,
}

impl UsedFiles {
    /// Those of every process, or of every one but this server.
    ///
    /// # Errors
    /// Where the list of processes cannot be read.
    pub fn find(but_own: bool) -> io::Result<Self> {
        let (mut files, mut has_itself) = (HashMap::new(), false);
        for entry in std::fs::read_dir("/proc")? {
            let entry = entry?;
            let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            else {
                continue;
            };
            has_itself |= process == std::process::id();
            if but_own && (process == std::process::id() || starts_a_server(&entry.path())) {
                continue;
            }
            let maps = std::fs::read(entry.path().join("maps")).unwrap_or_default();
            // A program that is recorded loads the library again in each program that it starts.
            files.extend(
                maps.split(|&byte| byte == b'\n').filter_map(mapped).map(|id| (id, process)),
            );
            if let Ok(about) = std::fs::metadata(entry.path().join("exe")) {
                files.insert((about.dev(), about.ino()), process);
            }
        }
        if !has_itself {
            return Err(io::Error::other("it does not list the processes of this PID namespace"));
        }
        let own = std::fs::metadata("/proc/self/exe").ok().filter(|_| but_own);
        Ok(Self { files, own: own.map(|about| (about.dev(), about.ino())) })
    }

    /// Why a file of a directory stays: a process uses it, or it cannot be examined.
    pub fn why(&self, directory: &OpenDirectory, name: &OsStr, stat: &Stat) -> Option<String> {
        let id = (stat.st_dev, stat.st_ino);
        if let Some(process) = self.files.get(&id) {
            return Some(format!("process {process} uses it"));
        }
        if self.own == Some(id) || FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return None;
        }
        let file = match directory.open_file(name) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => return Some(format!("it cannot be examined: {error}")),
        };
        is_open_elsewhere(&file)
            .then(|| "a process of another user or namespace uses it".to_owned())
    }
}

/// Whether a process only starts a server: it ends as soon as the server runs.
fn starts_a_server(process: &Path) -> bool {
    let words = std::fs::read(process.join("cmdline")).unwrap_or_default();
    let mut words = words.split(|&byte| byte == 0).skip(1);
    words.next() == Some(b"serve") && words.next() == Some(b"--invited")
}

/// The device and inode of a line of `/proc/PID/maps` that is of the library.
fn mapped(line: &[u8]) -> Option<(u64, u64)> {
    if !line.ends_with(PRELOAD) {
        return None;
    }
    let mut fields = line.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let (major, minor) = (text().and(text()).and(text()).and(text())?).split_once(':')?;
    let number = |hex| u32::from_str_radix(hex, 16).ok();
    let device = rustix::fs::makedev(number(major)?, number(minor)?);
    Some((device, text()?.parse().ok()?))
}

/// Whether another process has a file open, runs it, or has it mapped: the kernel gives a write lease on a
/// file that is open once only. `false` where the file system knows no leases.
#[allow(unsafe_code)]
fn is_open_elsewhere(file: &File) -> bool {
    let fd = file.as_raw_fd();
    // SAFETY: the calls take no pointer, and the descriptor is open.
    unsafe {
        // A process that opens the file now waits until the lease is given back, just below. The signal
        // that tells of it is one that is ignored.
        if libc::fcntl(fd, F_SETSIG, libc::SIGURG) < 0 {
            return false;
        }
        if libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK) < 0 {
            return io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN);
        }
        libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_in_a_line_of_maps_is_known_by_device_and_inode() {
        let line =
            b"7f00-7f01 r-xp 00001000 fe:01 4711                    /a b/\\012/libsheaf_trace.so";
        assert_eq!(mapped(line), Some((rustix::fs::makedev(0xfe, 1), 4711)));
        assert_eq!(mapped(b"7f00-7f01 r-xp 00001000 fe:01 4711   /lib/libc.so"), None);
        assert_eq!(mapped(b"/libsheaf_trace.so"), None);
    }

    #[test]
    fn file_that_is_open_elsewhere_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        std::fs::copy("/bin/sleep", &path).unwrap();
        let file = File::open(&path).unwrap();
        let mut program = std::process::Command::new(&path).arg("1000").spawn().unwrap();
        let used = is_open_elsewhere(&file);
        program.kill().unwrap();
        program.wait().unwrap();
        let left = is_open_elsewhere(&file);
        // What a file system without leases says is known from its other answer.
        assert!((used, left) == (true, false) || (used, left) == (false, false), "{used} {left}");
        if rustix::fs::fstatfs(&file).unwrap().f_type as u32 == 0xef53 {
            assert!(used, "ext4 knows leases");
        }
    }
}
