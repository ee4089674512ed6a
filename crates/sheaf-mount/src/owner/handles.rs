//! Files as the kernel numbers them for file servers (`open_by_handle_at(2)`): whatever becomes of their names, they
//! are found again, and a file that is gone is not taken for another one with its inode. Nothing is held by that.
#![allow(unsafe_code)]
use rustix::fs::{Mode, OFlags};
use sheaf_core::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The longest handle of any file system (`MAX_HANDLE_SZ`).
const HANDLE_BYTES_MAX: usize = 128;

/// Its length and kind stand before the handle (`struct file_handle`).
const HEAD_BYTES: usize = 8;

/// What the kernel calls one file of a file system.
#[derive(Clone)]
pub(super) struct KernelHandle(Box<[u8]>);

/// A file system whose files can be opened by their handles.
pub(super) struct HandleOpener(OwnedFd);

impl KernelHandle {
    /// That of an open file.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the file system has none.
    pub fn of(file: BorrowedFd<'_>) -> Result<Self, Errno> {
        let (mut room, mut mount) = ([0; HEAD_BYTES + HANDLE_BYTES_MAX], 0);
        room[..4].copy_from_slice(&(HANDLE_BYTES_MAX as u32).to_ne_bytes());
        let (path, flags) = (c"", libc::AT_EMPTY_PATH);
        let (to, at): (*mut u8, *mut libc::c_int) = (room.as_mut_ptr(), &mut mount);
        // SAFETY: the kernel writes at most as many bytes as the length says, and a number.
        let done = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                file.as_raw_fd(),
                path.as_ptr(),
                to,
                at,
                flags,
            )
        };
        if done < 0 {
            return Err(Errno::from_io(&std::io::Error::last_os_error()));
        }
        let length = u32::from_ne_bytes([room[0], room[1], room[2], room[3]]) as usize;
        let all = room.get(..HEAD_BYTES + length).ok_or(Errno::OVERFLOW)?;
        Ok(Self(all.into()))
    }
}

impl HandleOpener {
    /// One for the file system of a directory; none where it has no handles, or this user may not use them.
    pub fn new(directory: &OwnedFd) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let own = rustix::fs::openat(directory, c".", flags, Mode::empty()).ok()?;
        let handle = KernelHandle::of(own.as_fd()).ok()?;
        let opener = Self(own);
        opener.open(&handle).is_ok().then_some(opener)
    }

    /// A descriptor that names the file.
    ///
    /// # Errors
    /// `ESTALE` when it is gone.
    pub fn open(&self, handle: &KernelHandle) -> Result<OwnedFd, Errno> {
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let (own, handle) = (self.0.as_raw_fd(), handle.0.as_ptr());
        // SAFETY: the kernel reads as many bytes as the length says; what it gives is nobody else's.
        unsafe {
            let fd = libc::syscall(libc::SYS_open_by_handle_at, own, handle, flags);
            match i32::try_from(fd) {
                Ok(fd) if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
                _ => Err(Errno::from_io(&std::io::Error::last_os_error())),
            }
        }
    }
}
