//! What an operation was.

/// Declares the operations with their numbers in records, which stay as they are for ever, and
/// their names.
macro_rules! ops {
    ($($name:ident = $number:literal $word:literal,)*) => {
        /// An operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum IoOp {
            $(
                #[doc = concat!("`", $word, "`")]
                $name = $number,
            )*
        }

        impl IoOp {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The operation with this number, if this version knows it.
            #[must_use]
            pub fn of(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Its name, which is that of the call it stands for without its variants.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }
        }
    };
}

ops! {
    Lost = 1 "lost",
    Mark = 2 "mark",
    Open = 10 "open",
    Close = 11 "close",
    Dup = 12 "dup",
    Fcntl = 13 "fcntl",
    CloseRange = 14 "close_range",
    Lock = 15 "lock",
    Read = 20 "read",
    Write = 21 "write",
    Seek = 22 "seek",
    Copy = 23 "copy_file_range",
    Sendfile = 24 "sendfile",
    Splice = 25 "splice",
    Truncate = 30 "truncate",
    Allocate = 31 "fallocate",
    Sync = 32 "fsync",
    Advise = 33 "fadvise",
    Map = 40 "mmap",
    SyncMap = 41 "msync",
    Unmap = 42 "munmap",
    Stat = 50 "stat",
    Access = 51 "access",
    ReadLink = 52 "readlink",
    SetAttributes = 53 "setattr",
    Xattr = 54 "xattr",
    OpenDirectory = 60 "opendir",
    ReadDirectory = 61 "readdir",
    CloseDirectory = 62 "closedir",
    MakeDirectory = 63 "mkdir",
    RemoveDirectory = 64 "rmdir",
    Rename = 65 "rename",
    Link = 66 "link",
    SymLink = 67 "symlink",
    Unlink = 68 "unlink",
    MakeNode = 69 "mknod",
    ChangeDirectory = 70 "chdir",
    AsyncRead = 80 "aio_read",
    AsyncWrite = 81 "aio_write",
    AsyncWait = 82 "aio_wait",
    AsyncSync = 83 "aio_fsync",
    AsyncSubmit = 84 "aio_submit",
    KernelRead = 85 "kaio_read",
    KernelWrite = 86 "kaio_write",
    Uring = 87 "io_uring",
    Flush = 90 "flush",
    Pipe = 100 "pipe",
    Fork = 110 "fork",
    Exec = 111 "exec",
    Exit = 112 "exit",
    SetView = 120 "set_view",
    Wait = 121 "wait",
    Socket = 130 "socket",
    Connect = 131 "connect",
    Accept = 132 "accept",
    Send = 133 "send",
    Receive = 134 "recv",
    Own = 200 "own",
}

/// Whether a command of `fcntl` is on locks of the file (`F_GETLK`, `F_SETLK`, `F_SETLKW`, and those
/// of `F_OFD_…`).
#[must_use]
pub const fn is_lock(command: i32) -> bool {
    matches!(command, 5..=7 | 36..=38)
}

impl IoOp {
    /// Whether it moves data to or from a file.
    #[must_use]
    pub fn moves_data(self) -> bool {
        self.reads() || self.writes() || self.copies()
    }

    /// Whether it takes data from a file.
    #[must_use]
    pub fn reads(self) -> bool {
        matches!(self, Self::Read | Self::AsyncRead | Self::KernelRead)
    }

    /// Whether it takes data from one file and gives it to another.
    #[must_use]
    pub fn copies(self) -> bool {
        matches!(self, Self::Copy | Self::Sendfile | Self::Splice)
    }

    /// Whether it gives data to a file.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::AsyncWrite | Self::KernelWrite)
    }
}
