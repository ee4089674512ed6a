//! The device by which the kernel asks.
use super::{HEAD_BYTES, TRANSFER_BYTES, abi};
use rustix::fs::{CWD, Mode, OFlags};
use sheaf_core::Errno;
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use zerocopy::{FromBytes, IntoBytes};

/// What the kernel is to do itself and what it leaves to the owner.
const FLAGS: u32 = abi::FUSE_ASYNC_READ
    | abi::FUSE_POSIX_LOCKS
    | abi::FUSE_FLOCK_LOCKS
    | abi::FUSE_ATOMIC_O_TRUNC
    | abi::FUSE_BIG_WRITES
    | abi::FUSE_DONT_MASK
    | abi::FUSE_DO_READDIRPLUS
    | abi::FUSE_READDIRPLUS_AUTO
    | abi::FUSE_ASYNC_DIO
    | abi::FUSE_PARALLEL_DIROPS
    | abi::FUSE_HANDLE_KILLPRIV
    | abi::FUSE_MAX_PAGES;
/// The oldest protocol, of Linux 5.4.
const MINOR_MIN: u32 = 31;
const PAGE_BYTES: usize = 4096;
/// Requests that nobody waits for, at a time.
const BACKGROUND_MAX: u16 = 64;
/// Makes a device that was opened one of the mount of another (`linux/fuse.h`).
const FUSE_DEV_IOC_CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);
/// Requests come, and that nothing is mounted any more is an error.
const INTEREST: Interest = Interest::READABLE.add(Interest::ERROR);
/// Requests that are taken before others have their turn.
const REQUESTS_AT_ONCE: usize = 32;
/// How long the next request is waited for without sleeping, after one was answered.
const AGAIN_MAX: Duration = Duration::from_micros(40);

/// The device, of one mount.
pub(super) struct Device(OwnedFd);

/// The device, for whoever does other things meanwhile.
pub(super) struct WatchedDevice(AsyncFd<Device>);

/// What came of looking for a request.
enum DeviceTurn {
    /// So many bytes of one.
    Request(usize),
    /// There is none.
    Nothing,
    /// It was taken back.
    TakenBack,
    /// It is not mounted any more.
    End,
}

impl Device {
    pub fn open() -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::openat(CWD, "/dev/fuse", flags, Mode::empty())?))
    }

    /// One that somebody else has opened.
    pub fn of(fd: OwnedFd) -> Self {
        Self(fd)
    }

    pub fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Another one of the same mount: requests that are taken by it, and not answered when it is closed, have failed.
    #[allow(unsafe_code)]
    pub fn cloned(&self) -> io::Result<OwnedFd> {
        let Self(clone) = Self::open()?;
        // SAFETY: it reads the number of a descriptor, which is the kind of argument that this call has.
        unsafe {
            let of =
                rustix::ioctl::Setter::<FUSE_DEV_IOC_CLONE, u32>::new(self.0.as_raw_fd() as u32);
            rustix::ioctl::ioctl(&clone, of)?;
        }
        Ok(clone)
    }

    /// From here on it is waited for without a thread.
    #[allow(unsafe_code)]
    pub fn watched(self) -> io::Result<WatchedDevice> {
        rustix::io::ioctl_fionbio(&self.0, true)?;
        // SAFETY: it is of one descriptor, which is open as long as it is there.
        let watched = unsafe { AsyncFd::register_with_interest(self, INTEREST) };
        Ok(WatchedDevice(watched?))
    }

    /// Agrees with the kernel on what both can do. For several users the kernel asks for the rights to each object:
    /// a pipe, a socket and a watched directory are never opened by a request, so the owner is not asked for them.
    /// Where the kernel keeps pages that programs map, it compares the attributes of the file before each read.
    pub fn shake_hands(&self, for_all: bool, maps: bool) -> io::Result<()> {
        let mut room = vec![0; HEAD_BYTES + TRANSFER_BYTES];
        loop {
            let bytes = match self.receive(&mut room)? {
                DeviceTurn::Request(bytes) => &room[..bytes],
                DeviceTurn::Nothing | DeviceTurn::TakenBack => continue,
                DeviceTurn::End => return Err(io::ErrorKind::NotConnected.into()),
            };
            let wrong = || io::Error::from(io::ErrorKind::InvalidData);
            let (head, rest) = abi::fuse_in_header::read_from_prefix(bytes).map_err(|_| wrong())?;
            if head.opcode != abi::fuse_opcode::FUSE_INIT as u32 {
                self.refuse(head.unique, Errno::IO);
                continue;
            }
            // Older kernels say less, which is not needed.
            let mut padded = [0; size_of::<abi::fuse_init_in>()];
            let len = rest.len().min(padded.len());
            padded[..len].copy_from_slice(&rest[..len]);
            let said = abi::fuse_init_in::read_from_bytes(&padded).map_err(|_| wrong())?;
            let mut answer = abi::fuse_init_out {
                major: abi::FUSE_KERNEL_VERSION,
                minor: abi::FUSE_KERNEL_MINOR_VERSION,
                ..abi::fuse_init_out::default()
            };
            if said.major > abi::FUSE_KERNEL_VERSION {
                // It asks again, as this one wants it.
                self.send(head.unique, &[answer.as_bytes()])?;
                continue;
            }
            if said.major < abi::FUSE_KERNEL_VERSION || said.minor < MINOR_MIN {
                self.refuse(head.unique, Errno::PROTO);
                let (major, minor) = (said.major, said.minor);
                let text = format!("the kernel speaks FUSE {major}.{minor}, and not 7.{MINOR_MIN}");
                return Err(io::Error::other(text));
            }
            answer.minor = answer.minor.min(said.minor);
            answer.max_readahead = said.max_readahead;
            let rights = if for_all { abi::FUSE_POSIX_ACL } else { 0 };
            let compares = if maps { abi::FUSE_AUTO_INVAL_DATA } else { 0 };
            answer.flags = said.flags & (FLAGS | rights | compares);
            answer.max_background = BACKGROUND_MAX;
            answer.congestion_threshold = BACKGROUND_MAX / 4 * 3;
            answer.max_write = TRANSFER_BYTES as u32;
            answer.time_gran = 1;
            answer.max_pages = (TRANSFER_BYTES / PAGE_BYTES) as u16;
            return self.send(head.unique, &[answer.as_bytes()]);
        }
    }

    /// The next request.
    fn receive(&self, room: &mut [u8]) -> io::Result<DeviceTurn> {
        use rustix::io::Errno as SysErrno;
        match rustix::io::read(&self.0, room) {
            Ok(0) | Err(SysErrno::NODEV) => Ok(DeviceTurn::End),
            Ok(bytes) => Ok(DeviceTurn::Request(bytes)),
            Err(SysErrno::AGAIN) => Ok(DeviceTurn::Nothing),
            Err(SysErrno::INTR | SysErrno::NOENT) => Ok(DeviceTurn::TakenBack),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Answers a request.
    pub fn send(&self, unique: u64, parts: &[&[u8]]) -> io::Result<()> {
        self.write(unique, 0, parts)
    }

    /// Answers that it has failed.
    pub fn refuse(&self, unique: u64, errno: Errno) {
        // What the kernel keeps for itself (from 512 on) it takes from nobody.
        let errno = match errno {
            Errno::VIEW => Errno::LOOP,
            Errno(1..512) => errno,
            _ => Errno::IO,
        };
        if let Err(error) = self.write(unique, -errno.0, &[]) {
            tracing::debug!(%error, "an error was not told");
        }
    }

    /// Has the kernel drop all pages and attributes of a node.
    pub fn drop_pages(&self, node: u64) -> io::Result<()> {
        let out = abi::fuse_notify_inval_inode_out { ino: node, off: 0, len: 0 };
        self.notify(abi::fuse_notify_code::FUSE_NOTIFY_INVAL_INODE, &[out.as_bytes()])
    }

    /// Has the kernel drop the attributes of a node. Whether it knows the node.
    pub fn drop_attributes(&self, node: u64) -> bool {
        let out = abi::fuse_notify_inval_inode_out { ino: node, off: -1, len: 0 };
        let code = abi::fuse_notify_code::FUSE_NOTIFY_INVAL_INODE as i32;
        self.write_out(0, code, &[out.as_bytes()]) != Err(rustix::io::Errno::NOENT)
    }

    /// Tells the kernel the size of a node that has grown: by a byte that it stores, and drops again.
    pub fn has_grown(&self, node: u64, size: u64) -> io::Result<()> {
        let Some(offset) = size.checked_sub(1) else { return Ok(()) };
        let out = abi::fuse_notify_store_out { nodeid: node, offset, size: 1, padding: 0 };
        let stored = [out.as_bytes(), &[0]];
        self.notify(abi::fuse_notify_code::FUSE_NOTIFY_STORE, &stored)?;
        self.drop_pages(node)
    }

    fn notify(&self, code: abi::fuse_notify_code, parts: &[&[u8]]) -> io::Result<()> {
        self.write(0, code as i32, parts)
    }

    fn write(&self, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<()> {
        match self.write_out(unique, error, parts) {
            // Whoever asked was interrupted, or the mount is gone.
            Ok(()) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::NODEV) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn write_out(&self, unique: u64, error: i32, parts: &[&[u8]]) -> rustix::io::Result<()> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let len = size_of::<abi::fuse_out_header>() + bytes;
        let len = u32::try_from(len).map_err(|_| rustix::io::Errno::INVAL)?;
        let head = abi::fuse_out_header { len, error, unique };
        let mut all = [IoSlice::new(&[]), IoSlice::new(&[]), IoSlice::new(&[])];
        all[0] = IoSlice::new(head.as_bytes());
        for (to, part) in all[1..].iter_mut().zip(parts) {
            *to = IoSlice::new(part);
        }
        rustix::io::writev(&self.0, &all[..=parts.len()]).map(drop)
    }
}

impl AsRawFd for Device {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Deref for WatchedDevice {
    type Target = Device;

    fn deref(&self) -> &Device {
        self.0.get_ref()
    }
}

impl WatchedDevice {
    /// Waits for requests, and hands some to `each`, which says whether it has answered. Whether there may be more.
    pub async fn next(&self, mut each: impl FnMut(&[u8]) -> bool) -> io::Result<bool> {
        thread_local! {
            // Whoever is handed a request keeps nothing of it.
            static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        let mut ready = self.0.ready(INTEREST).await?;
        let mut room = ROOM.take();
        room.resize(HEAD_BYTES + TRANSFER_BYTES, 0);
        let (mut done, mut answered) = (Ok(true), None::<Instant>);
        for _ in 0..REQUESTS_AT_ONCE {
            let mut turn = self.receive(&mut room);
            // Whoever was answered is likely to ask again at once, and to sleep until then takes longer.
            while matches!(turn, Ok(DeviceTurn::Nothing))
                && answered.is_some_and(|at| at.elapsed() < AGAIN_MAX)
            {
                std::thread::yield_now();
                turn = self.receive(&mut room);
            }
            match turn {
                Ok(DeviceTurn::Request(bytes)) => {
                    answered = each(&room[..bytes]).then(Instant::now);
                }
                Ok(DeviceTurn::TakenBack) => {}
                Ok(DeviceTurn::Nothing) => {
                    ready.clear_ready();
                    break;
                }
                Ok(DeviceTurn::End) => {
                    done = Ok(false);
                    break;
                }
                Err(error) => {
                    done = Err(error);
                    break;
                }
            }
        }
        ROOM.set(room);
        done
    }
}
