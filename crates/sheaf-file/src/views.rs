//! Mounted views of Sheaf below an export, which a server does not enter.
//!
//! A view shows the exports of all hosts. A server that entered one would read its own export again, below each
//! directory of the view, without an end. A view is known by its device: the kernel lists each mount with its
//! device and its type, and says when the list has changed.
use crate::Result;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, StatxFlags};
use sheaf_core::{Errno, lock};
use std::fs::File;
use std::io::{Read, Seek};
use std::sync::Mutex;

/// The type of the file systems that a view consists of.
pub const VIEW_TYPE: &str = "fuse.sheaf";
/// The source of the `tmpfs` at the top of root's views.
pub const VIEW_SOURCE: &str = "sheaf";

/// The list of mounts of this process's mount namespace.
const MOUNTS: &str = "/proc/self/mountinfo";

/// The type of a `/proc`.
const PROC_TYPE: &[u8] = b"proc";

static KNOWN: Mutex<Option<KnownMounts>> = Mutex::new(None);

/// What is mounted here.
struct KnownMounts {
    /// Polling it reports a change once to each process that has opened it.
    mounts: File,
    process: u32,
    devices: Devices,
}

/// The devices of what is mounted here.
#[derive(Default)]
struct Devices {
    views: Vec<u64>,
    /// Those of no `/proc`, in order.
    others: Vec<u64>,
}

/// Whether the file system with this device number belongs to a mounted view.
///
/// # Errors
/// Those of reading the list of mounts.
pub fn is_view(device: u64) -> Result<bool> {
    of_known(|devices| devices.views.contains(&device))
}

/// Whether any view is mounted here.
///
/// # Errors
/// Those of reading the list of mounts.
pub(crate) fn is_any_view() -> Result<bool> {
    of_known(|devices| !devices.views.is_empty())
}

/// Whether the file system with this device number is known to be no `/proc`. It is not asked itself, since it may
/// hang.
///
/// # Errors
/// Those of reading the list of mounts.
pub(crate) fn is_no_proc(device: u64) -> Result<bool> {
    of_known(|devices| devices.others.binary_search(&device).is_ok())
}

/// The file, unless it is within a view and `device` is not: the device of the export.
///
/// # Errors
/// [`Errno::VIEW`] if it is, and those of [`is_view`].
pub(crate) fn unless_view(file: OwnedFd, device: u64) -> Result<OwnedFd> {
    let found = device_of(file.as_fd())?;
    if found != device && is_view(found)? { Err(Errno::VIEW) } else { Ok(file) }
}

/// Asks about the devices of what is mounted.
fn of_known<R>(ask: impl FnOnce(&Devices) -> R) -> Result<R> {
    let mut known = lock(&KNOWN);
    let is_current = match &*known {
        Some(known) if known.process == std::process::id() => !known.has_changed()?,
        _ => {
            *known = match File::open(MOUNTS) {
                Ok(mounts) => Some(KnownMounts::new(mounts)),
                // No view can be mounted without this list.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                Err(error) => return Err(Errno::from_io(&error)),
            };
            false
        }
    };
    if !is_current && let Some(Err(error)) = known.as_mut().map(KnownMounts::read) {
        *known = None;
        return Err(Errno::from_io(&error));
    }
    let nothing = Devices::default();
    Ok(ask(known.as_ref().map_or(&nothing, |known| &known.devices)))
}

/// The device of an open file. The file system is not asked for it.
///
/// # Errors
/// Those of `statx(2)`.
pub(crate) fn device_of(file: BorrowedFd<'_>) -> Result<u64> {
    Ok(rustix::fs::statx(file, c"", unsynced(), StatxFlags::TYPE)
        .map(|found| rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor))?)
}

/// Whether something is mounted at an open file, which is the topmost of that file system.
pub(crate) fn is_mount_point(file: BorrowedFd<'_>) -> Result<bool> {
    let found = rustix::fs::statx(file, c"", unsynced(), StatxFlags::TYPE)?;
    let root = rustix::fs::StatxAttributes::MOUNT_ROOT;
    Ok(found.stx_attributes.contains(root))
}

fn unsynced() -> AtFlags {
    AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC
}

impl KnownMounts {
    fn new(mounts: File) -> Self {
        Self { mounts, process: std::process::id(), devices: Devices::default() }
    }

    fn has_changed(&self) -> Result<bool> {
        let mut polled = [PollFd::new(&self.mounts, PollFlags::PRI)];
        rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        Ok(polled[0].revents().intersects(PollFlags::PRI | PollFlags::ERR))
    }

    fn read(&mut self) -> std::io::Result<()> {
        let mut text = Vec::new();
        self.mounts.rewind()?;
        self.mounts.read_to_end(&mut text)?;
        let mut devices = Devices::default();
        for (device, kind) in text.split(|byte| *byte == b'\n').filter_map(mounted) {
            match kind {
                MountKind::View => devices.views.push(device),
                MountKind::Proc => continue,
                MountKind::Other => {}
            }
            devices.others.push(device);
        }
        devices.views.dedup();
        devices.others.sort_unstable();
        devices.others.dedup();
        self.devices = devices;
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MountKind {
    View,
    Proc,
    Other,
}

/// The device of a line of the list, and what it is.
fn mounted(line: &[u8]) -> Option<(u64, MountKind)> {
    let mut words = line.split(|byte| *byte == b' ');
    let (major, minor) = str::from_utf8(words.nth(2)?).ok()?.split_once(':')?;
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let (kind, source) = (words.next()?, words.next()?);
    let is_top = kind == b"tmpfs" && source == VIEW_SOURCE.as_bytes();
    let kind = match kind {
        PROC_TYPE => MountKind::Proc,
        _ if is_top || kind == VIEW_TYPE.as_bytes() => MountKind::View,
        _ => MountKind::Other,
    };
    Some((rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?), kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_is_known_by_its_type_and_its_top_by_its_source() {
        let device = |end: &str| {
            let line = format!("42 27 0:39 / /srv/a\\040b rw,nosuid shared:7 - {end}");
            mounted(line.as_bytes())
        };
        let number = Some((rustix::fs::makedev(0, 39), MountKind::View));
        assert_eq!(device("tmpfs sheaf rw,size=1024k"), number);
        assert_eq!(device("fuse.sheaf sheaf:n1 rw,user_id=0"), number);
        assert_eq!(device("fuse.sheaf n1:/var/log rw"), number);
        for other in ["tmpfs tmpfs rw", "ext4 sheaf rw", "fuse.sshfs sheaf: rw"] {
            assert_eq!(device(other).unwrap().1, MountKind::Other, "{other}");
        }
        assert_eq!(device("proc sheaf rw").unwrap().1, MountKind::Proc);
        assert_eq!((device("tmpfs"), mounted(b"")), (None, None));
    }

    #[test]
    fn proc_is_known_without_asking_a_file_system() {
        let device = |path: &str| device_of(File::open(path).unwrap().as_fd()).unwrap();
        assert_eq!(is_no_proc(device("/proc/self")), Ok(false));
        assert_eq!(is_no_proc(device("/dev")), Ok(true));
        assert_eq!(is_no_proc(u64::MAX), Ok(false));
    }
}
