//! Why one member failed: the operating system's error numbers, and four of our own.
use serde::{Deserialize, Serialize};
use std::fmt;

/// An error number of the operating system, or one of Sheaf's own, for which the system has no
/// number: [`Errno::GROUP`]; [`Errno::NOMATCH`], what one host says of a pattern, which is an error
/// only where all of them say it; [`Errno::DAMAGED`] and [`Errno::TRUNCATED`] of a compressed file;
/// [`Errno::SAMEFILE`] and [`Errno::INTOSELF`] of a copy; [`Errno::VIEW`] of a mounted view below an
/// export.
///
/// ```
/// use sheaf_core::Errno;
/// assert_eq!(Errno::ACCES.to_string(), "Permission denied (EACCES)");
/// assert_eq!(Errno::from_status(-2), Some(Errno::NOENT));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident $number:literal $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Self = Self($number);)*

            /// The symbolic name, as `errno(3)` gives it.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $($number => Some(concat!("E", stringify!($name))),)* _ => None }
            }

            fn text(self) -> Option<&'static str> {
                match self.0 { $($number => Some($text),)* _ => None }
            }
        }
    };
}

errnos! {
    PERM 1 "Operation not permitted";
    NOENT 2 "No such file or directory";
    SRCH 3 "No such process";
    INTR 4 "Interrupted system call";
    IO 5 "Input/output error";
    NXIO 6 "No such device or address";
    TOOBIG 7 "Argument list too long";
    NOEXEC 8 "Exec format error";
    BADF 9 "Bad file descriptor";
    AGAIN 11 "Resource temporarily unavailable";
    NOMEM 12 "Cannot allocate memory";
    ACCES 13 "Permission denied";
    FAULT 14 "Bad address";
    BUSY 16 "Device or resource busy";
    EXIST 17 "File exists";
    XDEV 18 "Invalid cross-device link";
    NODEV 19 "No such device";
    NOTDIR 20 "Not a directory";
    ISDIR 21 "Is a directory";
    INVAL 22 "Invalid argument";
    NFILE 23 "Too many open files in system";
    MFILE 24 "Too many open files";
    NOTTY 25 "Inappropriate ioctl for device";
    TXTBSY 26 "Text file busy";
    FBIG 27 "File too large";
    NOSPC 28 "No space left on device";
    SPIPE 29 "Illegal seek";
    ROFS 30 "Read-only file system";
    MLINK 31 "Too many links";
    PIPE 32 "Broken pipe";
    RANGE 34 "Numerical result out of range";
    DEADLK 35 "Resource deadlock avoided";
    NAMETOOLONG 36 "File name too long";
    NOSYS 38 "Function not implemented";
    NOTEMPTY 39 "Directory not empty";
    LOOP 40 "Too many levels of symbolic links";
    NOMSG 42 "No message of desired type";
    NODATA 61 "No data available";
    PROTO 71 "Protocol error";
    BADMSG 74 "Bad message";
    OVERFLOW 75 "Value too large for defined data type";
    NOTUNIQ 76 "Name not unique on network";
    ILSEQ 84 "Invalid or incomplete multibyte or wide character";
    NOTSOCK 88 "Socket operation on non-socket";
    DESTADDRREQ 89 "Destination address required";
    MSGSIZE 90 "Message too long";
    PROTONOSUPPORT 93 "Protocol not supported";
    OPNOTSUPP 95 "Operation not supported";
    AFNOSUPPORT 97 "Address family not supported by protocol";
    ADDRINUSE 98 "Address already in use";
    ADDRNOTAVAIL 99 "Cannot assign requested address";
    NETDOWN 100 "Network is down";
    NETUNREACH 101 "Network is unreachable";
    CONNABORTED 103 "Software caused connection abort";
    CONNRESET 104 "Connection reset by peer";
    NOBUFS 105 "No buffer space available";
    ISCONN 106 "Transport endpoint is already connected";
    NOTCONN 107 "Transport endpoint is not connected";
    TIMEDOUT 110 "Connection timed out";
    CONNREFUSED 111 "Connection refused";
    HOSTDOWN 112 "Host is down";
    HOSTUNREACH 113 "No route to host";
    ALREADY 114 "Operation already in progress";
    INPROGRESS 115 "Operation now in progress";
    STALE 116 "Stale file handle";
    DQUOT 122 "Disk quota exceeded";
    CANCELED 125 "Operation canceled";
    NOKEY 126 "Required key not available";
    NOTRECOVERABLE 131 "State not recoverable";
    VIEW 4089 "A mounted view of Sheaf is not entered";
    INTOSELF 4090 "A directory cannot be copied into itself";
    SAMEFILE 4091 "The source and the destination are the same file";
    DAMAGED 4092 "Compressed data are damaged";
    TRUNCATED 4093 "Compressed data end too early";
    NOMATCH 4094 "No file matches the pattern";
    GROUP 4095 "Some members of the group failed";
}

impl Errno {
    /// The errno in a member's status: negative statuses are `−errno` (design: status values).
    #[must_use]
    pub fn from_status(status: i64) -> Option<Self> {
        (status < 0).then(|| Self(i32::try_from(-status).unwrap_or(Self::IO.0)))
    }

    /// This errno as a member's status.
    #[must_use]
    pub fn status(self) -> i64 {
        -i64::from(self.0)
    }

    /// The errno of an I/O error; errors without one become `EIO`.
    #[must_use]
    pub fn from_io(error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Kind;
        Self(error.raw_os_error().unwrap_or(match error.kind() {
            Kind::NotFound => Self::NOENT.0,
            Kind::PermissionDenied => Self::ACCES.0,
            Kind::AlreadyExists => Self::EXIST.0,
            Kind::InvalidInput => Self::INVAL.0,
            Kind::InvalidData => Self::ILSEQ.0,
            Kind::TimedOut => Self::TIMEDOUT.0,
            Kind::Unsupported => Self::OPNOTSUPP.0,
            _ => Self::IO.0,
        }))
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Self {
        Self(errno.raw_os_error())
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self::from_io(&error)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.text(), self.name()) {
            (Some(text), Some(name)) => write!(f, "{text} ({name})"),
            // The standard library asks the C library; cut its " (os error N)".
            _ => {
                let text = std::io::Error::from_raw_os_error(self.0).to_string();
                write!(f, "{} (errno {})", text.split(" (os error").next().unwrap_or(&text), self.0)
            }
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl std::error::Error for Errno {}
