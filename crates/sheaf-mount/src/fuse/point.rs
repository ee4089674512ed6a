//! Mounting, and taking away again.
use super::TRANSFER_BYTES;
use super::device::Device;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use sheaf_core::Errno;
use std::ffi::{CString, OsString};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The program by which somebody who is not root mounts.
const FUSERMOUNT: &str = "fusermount3";
/// What helps if it is not there, or has no device.
const NO_FUSERMOUNT: &str =
    "it is not installed; it is in the package fuse3 (or root mounts the view)";
const NOT_FOR_ALL: &str = ": users can mount if its mode is 666";
const NO_DEVICE: &str = ": modprobe fuse loads the module, and a container needs this device";
/// Where that finds the socket by which it hands over the device.
const COMMFD: &str = "_FUSE_COMMFD";

/// Where the kernel shows the connections of FUSE file systems.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// How long requests of a view that was taken away may take, and how often they are looked at.
const HANG_MAX: Duration = Duration::from_secs(3);
const HANG_PAUSE: Duration = Duration::from_millis(20);

/// How files are mounted.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// What `mount(8)` shows as its source.
    pub source: String,
    /// Other users than this process's may use it, with their own rights; that is for root.
    pub for_all: bool,
    /// What is not done there by anybody.
    pub forbids: ViewForbids,
}

/// What is not done in a view, whoever asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewForbids {
    /// Nothing is written.
    pub writes: bool,
    /// No program in it is run.
    pub programs: bool,
}

impl ViewForbids {
    /// As the kernel has it.
    pub(crate) fn flags(self) -> MountFlags {
        let flag = |is_set: bool, flag| if is_set { flag } else { MountFlags::empty() };
        flag(self.writes, MountFlags::RDONLY) | flag(self.programs, MountFlags::NOEXEC)
    }
}

/// Why something is not mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// There is no device.
    #[error(
        "/dev/fuse cannot be opened: {0}: modprobe fuse loads the module, and a container needs this device"
    )]
    Device(Errno),
    /// The kernel refuses.
    #[error("{}: cannot be mounted: {error}", point.display())]
    Refused {
        /// Where.
        point: PathBuf,
        /// What it says.
        error: Errno,
    },
    /// The program for users who are not root.
    #[error("{}: {FUSERMOUNT} does not mount it: {why}", point.display())]
    Fusermount {
        /// Where.
        point: PathBuf,
        /// What it says.
        why: String,
    },
    /// The kernel speaks another language.
    #[error("{}: the kernel does not serve it: {error}", point.display())]
    Protocol {
        /// Where.
        point: PathBuf,
        /// What it says.
        error: io::Error,
    },
}

/// Mounts, and gives the device by which the kernel asks.
pub(super) fn mount(point: &Path, options: &MountOptions) -> Result<Device, MountError> {
    if !rustix::process::geteuid().is_root() {
        return by_fusermount(point, options);
    }
    let device = Device::open().map_err(|error| MountError::Device(Errno::from_io(&error)))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | options.forbids.flags();
    let mut data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,max_read={TRANSFER_BYTES}",
        device.number()
    );
    if options.for_all {
        data += ",allow_other";
    }
    let data = CString::new(data).unwrap_or_default();
    rustix::mount::mount(&*options.source, point, sheaf_file::VIEW_TYPE, flags, &*data)
        .map_err(|errno| MountError::Refused { point: point.to_owned(), error: errno.into() })?;
    Ok(device)
}

fn by_fusermount(point: &Path, options: &MountOptions) -> Result<Device, MountError> {
    let failed = |why: String| MountError::Fusermount { point: point.to_owned(), why };
    let (ours, theirs) = UnixStream::pair().map_err(|error| failed(error.to_string()))?;
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())
        .map_err(|error| failed(error.to_string()))?;
    let source: String =
        options.source.chars().map(|c| if c == ',' || c == '\\' { '_' } else { c }).collect();
    let mut words = format!("nosuid,nodev,subtype=sheaf,fsname={source}");
    if options.forbids.writes {
        words += ",ro";
    }
    if options.forbids.programs {
        words += ",noexec";
    }
    let mut command = Command::new(FUSERMOUNT);
    command.args(["-o", &words, "--"]).arg(point).env(COMMFD, theirs.as_raw_fd().to_string());
    let output = command.stdin(Stdio::null()).output();
    drop(theirs);
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => failed(NO_FUSERMOUNT.to_owned()),
        _ => failed(error.to_string()),
    })?;
    if !output.status.success() {
        let mut said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if said.contains("/dev/fuse") {
            let is_there = Path::new("/dev/fuse").exists();
            said += if is_there { NOT_FOR_ALL } else { NO_DEVICE };
        }
        return Err(failed(said));
    }
    let received = receive(&ours, &mut [0]).and_then(|(_, device)| {
        device.map(Device::of).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    });
    received.map_err(|error| failed(error.to_string()))
}

/// Takes some bytes, and the descriptor that somebody has sent with them.
pub(crate) fn receive(from: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut told = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(bytes)];
    let got = rustix::net::recvmsg(from, &mut parts, &mut told, RecvFlags::CMSG_CLOEXEC)?;
    let mut all = told.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((got.bytes, all.next()))
}

/// Takes away what is mounted at a directory; who is in it stays there.
///
/// # Errors
/// What the kernel or `fusermount3` says.
pub fn unmount(point: &Path) -> io::Result<()> {
    take_off(point, UnmountFlags::DETACH)
}

/// The same, and what is asked meanwhile fails, also where who has it in hand stands still.
pub(super) fn end(point: &Path) -> io::Result<()> {
    take_off(point, UnmountFlags::DETACH | UnmountFlags::FORCE)
}

/// Ends the connections of file systems that were taken away, of these device numbers, if requests of programs in them
/// hang.
pub(crate) fn end_hanging(devices: &[u64]) {
    let connections = match connections() {
        Ok(connections) => connections,
        Err(error) => return tracing::debug!(%error, "connections are not shown"),
    };
    let connection = |device: &u64| {
        let name = rustix::fs::minor(*device);
        PathBuf::from(format!("/proc/self/fd/{}/{name}", connections.as_raw_fd()))
    };
    // One that has ended is not there any more.
    let hangs = |connection: &PathBuf| {
        let waiting = std::fs::read_to_string(connection.join("waiting"));
        waiting.is_ok_and(|waiting| waiting.trim() != "0")
    };
    let begun = Instant::now();
    let mut left: Vec<PathBuf> = devices.iter().map(connection).collect();
    loop {
        left.retain(hangs);
        if left.is_empty() || begun.elapsed() >= HANG_MAX {
            break;
        }
        std::thread::sleep(HANG_PAUSE);
    }
    for connection in left {
        if let Err(error) = std::fs::write(connection.join("abort"), "1") {
            tracing::warn!(connection = %connection.display(), %error, "requests still hang");
        }
    }
}

/// The directory of connections, which need not be mounted anywhere for root.
fn connections() -> io::Result<OwnedFd> {
    if rustix::process::geteuid().is_root() {
        let context = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(context.as_fd())?;
        let (flags, attributes) = (FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty());
        return Ok(rustix::mount::fsmount(context.as_fd(), flags, attributes)?);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, CONNECTIONS, flags, Mode::empty())?)
}

fn take_off(point: &Path, flags: UnmountFlags) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(rustix::mount::unmount(point, flags)?);
    }
    let output = Command::new(FUSERMOUNT).args(["-u", "-z", "--"]).arg(point).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = OsString::from(String::from_utf8_lossy(&output.stderr).trim());
    Err(io::Error::other(said.to_string_lossy().into_owned()))
}
