//! Which calls of the kernel are recorded, and what their arguments mean.
use libc::c_long;
use sheaf_recorder::IoOp;
use std::collections::HashMap;

/// What a call works on. Numbers are those of arguments, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOn {
    /// No file.
    Nothing,
    /// A descriptor.
    Descriptor(usize),
    /// A path, which is in the program's memory.
    Path,
    /// A path below a directory; with `AT_EMPTY_PATH` in these flags the descriptor itself.
    PathAt(Option<usize>),
    /// The file that it opens.
    Opened,
}

/// Where in the file it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallPlace {
    /// Nowhere, or where is not known.
    None,
    /// Where the descriptor is.
    Turn,
    /// At this argument.
    At(usize),
    /// At this argument, and where the descriptor is if it is -1.
    AtOrTurn(usize),
    /// Where the descriptor is if this pointer is null; else at what is there in memory.
    TurnIfNull(usize),
}

/// What it does to descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEffect {
    None,
    /// Gives one, with a place.
    Opens(OpenPlace),
    /// Gives one for the same open file, in place of this argument if there is one.
    Dups(Option<usize>),
    /// As its command says.
    Fcntl,
    Closes,
    ClosesRange,
    /// Sets the place.
    Seeks,
    /// Moves another descriptor on also, if that pointer is null.
    Moves(usize, Option<usize>),
    /// Begins what the kernel then does without calls.
    Unseen(&'static str),
}

/// Where in its file a descriptor is that was just opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenPlace {
    /// At its beginning.
    Begins,
    /// At its beginning, but for `O_APPEND` in these flags.
    Flags(usize),
    Unknown,
}

/// A call that is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallSpec {
    pub op: IoOp,
    pub on: CallOn,
    /// The argument that says how many bytes are asked for.
    pub asked: Option<usize>,
    /// What it gives is how many bytes it moved.
    pub moves: bool,
    pub place: CallPlace,
    pub effect: CallEffect,
}

const fn on(op: IoOp, on: CallOn) -> CallSpec {
    CallSpec { op, on, asked: None, moves: false, place: CallPlace::None, effect: CallEffect::None }
}

/// On the descriptor that is the first argument.
const fn fd(op: IoOp) -> CallSpec {
    on(op, CallOn::Descriptor(0))
}

const fn open(place: OpenPlace) -> CallSpec {
    let mut spec = on(IoOp::Open, CallOn::Opened).effect(CallEffect::Opens(place));
    if let OpenPlace::Flags(argument) = place {
        spec.asked = Some(argument);
    }
    spec
}

const fn path(op: IoOp) -> CallSpec {
    on(op, CallOn::Path)
}

const fn path_at(op: IoOp) -> CallSpec {
    on(op, CallOn::PathAt(None))
}

impl CallSpec {
    const fn asks(mut self, argument: usize) -> Self {
        self.asked = Some(argument);
        self
    }

    const fn moves(mut self) -> Self {
        self.moves = true;
        self
    }

    const fn place(mut self, place: CallPlace) -> Self {
        self.place = place;
        self
    }

    const fn effect(mut self, effect: CallEffect) -> Self {
        self.effect = effect;
        self
    }

    const fn flags(mut self, argument: usize) -> Self {
        self.on = CallOn::PathAt(Some(argument));
        self
    }

    /// Its result is the number of bytes, this argument asks for them.
    const fn moving(self, asked: usize, place: CallPlace) -> Self {
        self.asks(asked).moves().place(place)
    }

    /// Its result is the number of bytes; how many were asked for is in the program's memory.
    const fn in_pieces(self, place: CallPlace) -> Self {
        self.moves().place(place)
    }
}

use CallPlace::{At, AtOrTurn, Turn, TurnIfNull};

/// Calls of all architectures.
const CALLS: &[(c_long, CallSpec)] = &[
    (libc::SYS_openat, open(OpenPlace::Flags(2))),
    // Its flags are in the program's memory.
    (libc::SYS_openat2, open(OpenPlace::Unknown)),
    (libc::SYS_open_by_handle_at, open(OpenPlace::Flags(2))),
    (libc::SYS_memfd_create, open(OpenPlace::Begins)),
    (libc::SYS_close, fd(IoOp::Close).effect(CallEffect::Closes)),
    (libc::SYS_close_range, on(IoOp::CloseRange, CallOn::Nothing).effect(CallEffect::ClosesRange)),
    (libc::SYS_dup, fd(IoOp::Dup).effect(CallEffect::Dups(None))),
    (libc::SYS_dup3, fd(IoOp::Dup).effect(CallEffect::Dups(Some(1)))),
    (libc::SYS_fcntl, fd(IoOp::Fcntl).effect(CallEffect::Fcntl)),
    (libc::SYS_flock, fd(IoOp::Lock)),
    (libc::SYS_pipe2, on(IoOp::Pipe, CallOn::Nothing)),
    (
        libc::SYS_socket,
        on(IoOp::Socket, CallOn::Opened).effect(CallEffect::Opens(OpenPlace::Unknown)),
    ),
    (libc::SYS_socketpair, on(IoOp::Socket, CallOn::Nothing)),
    (libc::SYS_connect, fd(IoOp::Connect)),
    (
        libc::SYS_accept,
        on(IoOp::Accept, CallOn::Opened).effect(CallEffect::Opens(OpenPlace::Unknown)),
    ),
    (
        libc::SYS_accept4,
        on(IoOp::Accept, CallOn::Opened).effect(CallEffect::Opens(OpenPlace::Unknown)),
    ),
    (libc::SYS_sendto, fd(IoOp::Send).asks(2).moves()),
    (libc::SYS_sendmsg, fd(IoOp::Send).moves()),
    // How many bytes their messages have is in the program's memory.
    (libc::SYS_sendmmsg, fd(IoOp::Send)),
    (libc::SYS_recvfrom, fd(IoOp::Receive).asks(2).moves()),
    (libc::SYS_recvmsg, fd(IoOp::Receive).moves()),
    (libc::SYS_recvmmsg, fd(IoOp::Receive)),
    (libc::SYS_read, fd(IoOp::Read).moving(2, Turn)),
    (libc::SYS_write, fd(IoOp::Write).moving(2, Turn)),
    (libc::SYS_pread64, fd(IoOp::Read).moving(2, At(3))),
    (libc::SYS_pwrite64, fd(IoOp::Write).moving(2, At(3))),
    (libc::SYS_readv, fd(IoOp::Read).in_pieces(Turn)),
    (libc::SYS_writev, fd(IoOp::Write).in_pieces(Turn)),
    (libc::SYS_preadv, fd(IoOp::Read).in_pieces(At(3))),
    (libc::SYS_pwritev, fd(IoOp::Write).in_pieces(At(3))),
    (libc::SYS_preadv2, fd(IoOp::Read).in_pieces(AtOrTurn(3))),
    (libc::SYS_pwritev2, fd(IoOp::Write).in_pieces(AtOrTurn(3))),
    (libc::SYS_lseek, fd(IoOp::Seek).effect(CallEffect::Seeks)),
    (
        libc::SYS_copy_file_range,
        fd(IoOp::Copy).moving(4, TurnIfNull(1)).effect(CallEffect::Moves(2, Some(3))),
    ),
    (
        libc::SYS_sendfile,
        on(IoOp::Sendfile, CallOn::Descriptor(1))
            .moving(3, TurnIfNull(2))
            .effect(CallEffect::Moves(0, None)),
    ),
    (
        libc::SYS_splice,
        fd(IoOp::Splice).moving(4, TurnIfNull(1)).effect(CallEffect::Moves(2, Some(3))),
    ),
    (libc::SYS_tee, fd(IoOp::Splice).asks(2).moves()),
    (libc::SYS_vmsplice, fd(IoOp::Splice).moves()),
    (libc::SYS_truncate, path(IoOp::Truncate).asks(1)),
    (libc::SYS_ftruncate, fd(IoOp::Truncate).asks(1)),
    (libc::SYS_fallocate, fd(IoOp::Allocate).asks(3).place(At(2))),
    (libc::SYS_fadvise64, fd(IoOp::Advise).asks(2).place(At(1))),
    (libc::SYS_readahead, fd(IoOp::Advise).asks(2).place(At(1))),
    (libc::SYS_fsync, fd(IoOp::Sync)),
    (libc::SYS_fdatasync, fd(IoOp::Sync)),
    (libc::SYS_syncfs, fd(IoOp::Sync)),
    (libc::SYS_sync_file_range, fd(IoOp::Sync).asks(2).place(At(1))),
    (libc::SYS_sync, on(IoOp::Sync, CallOn::Nothing)),
    (libc::SYS_fstat, fd(IoOp::Stat)),
    (STAT_AT, path_at(IoOp::Stat).flags(3)),
    (libc::SYS_statx, path_at(IoOp::Stat).flags(2)),
    (libc::SYS_statfs, path(IoOp::Stat)),
    (libc::SYS_fstatfs, fd(IoOp::Stat)),
    // The kernel's call has no flags: those of the C library's function are its own.
    (libc::SYS_faccessat, path_at(IoOp::Access)),
    (libc::SYS_faccessat2, path_at(IoOp::Access).flags(3)),
    (libc::SYS_readlinkat, path_at(IoOp::ReadLink).asks(3).moves()),
    (libc::SYS_fchmod, fd(IoOp::SetAttributes)),
    (libc::SYS_fchmodat, path_at(IoOp::SetAttributes)),
    (libc::SYS_fchown, fd(IoOp::SetAttributes)),
    (libc::SYS_fchownat, path_at(IoOp::SetAttributes).flags(4)),
    (libc::SYS_utimensat, path_at(IoOp::SetAttributes).flags(3)),
    (libc::SYS_getxattr, path(IoOp::Xattr).asks(3).moves()),
    (libc::SYS_lgetxattr, path(IoOp::Xattr).asks(3).moves()),
    (libc::SYS_fgetxattr, fd(IoOp::Xattr).asks(3).moves()),
    (libc::SYS_listxattr, path(IoOp::Xattr).asks(2).moves()),
    (libc::SYS_llistxattr, path(IoOp::Xattr).asks(2).moves()),
    (libc::SYS_flistxattr, fd(IoOp::Xattr).asks(2).moves()),
    (libc::SYS_setxattr, path(IoOp::Xattr).asks(3)),
    (libc::SYS_lsetxattr, path(IoOp::Xattr).asks(3)),
    (libc::SYS_fsetxattr, fd(IoOp::Xattr).asks(3)),
    (libc::SYS_removexattr, path(IoOp::Xattr)),
    (libc::SYS_lremovexattr, path(IoOp::Xattr)),
    (libc::SYS_fremovexattr, fd(IoOp::Xattr)),
    (libc::SYS_getdents64, fd(IoOp::ReadDirectory).asks(2).moves()),
    (libc::SYS_mkdirat, path_at(IoOp::MakeDirectory)),
    (libc::SYS_mknodat, path_at(IoOp::MakeNode)),
    (libc::SYS_unlinkat, path_at(IoOp::Unlink)),
    (libc::SYS_renameat2, path_at(IoOp::Rename)),
    (libc::SYS_linkat, path_at(IoOp::Link)),
    (libc::SYS_symlinkat, path(IoOp::SymLink)),
    (libc::SYS_chdir, path(IoOp::ChangeDirectory)),
    (libc::SYS_fchdir, fd(IoOp::ChangeDirectory)),
    (libc::SYS_io_uring_setup, unseen("io_uring")),
    (libc::SYS_io_setup, unseen("io_submit")),
];

const fn unseen(how: &'static str) -> CallSpec {
    on(IoOp::Mark, CallOn::Nothing).effect(CallEffect::Unseen(how))
}

#[cfg(target_arch = "x86_64")]
const STAT_AT: c_long = libc::SYS_newfstatat;
#[cfg(not(target_arch = "x86_64"))]
const STAT_AT: c_long = libc::SYS_fstatat;

/// Calls that only older architectures have.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[(c_long, CallSpec)] = &[
    (libc::SYS_open, open(OpenPlace::Flags(1))),
    (libc::SYS_creat, open(OpenPlace::Begins)),
    (libc::SYS_dup2, fd(IoOp::Dup).effect(CallEffect::Dups(Some(1)))),
    (libc::SYS_pipe, on(IoOp::Pipe, CallOn::Nothing)),
    (libc::SYS_stat, path(IoOp::Stat)),
    (libc::SYS_lstat, path(IoOp::Stat)),
    (libc::SYS_access, path(IoOp::Access)),
    (libc::SYS_readlink, path(IoOp::ReadLink).asks(2).moves()),
    (libc::SYS_chmod, path(IoOp::SetAttributes)),
    (libc::SYS_chown, path(IoOp::SetAttributes)),
    (libc::SYS_lchown, path(IoOp::SetAttributes)),
    (libc::SYS_utime, path(IoOp::SetAttributes)),
    (libc::SYS_utimes, path(IoOp::SetAttributes)),
    (libc::SYS_futimesat, path_at(IoOp::SetAttributes)),
    (libc::SYS_getdents, fd(IoOp::ReadDirectory).asks(2).moves()),
    (libc::SYS_mkdir, path(IoOp::MakeDirectory)),
    (libc::SYS_mknod, path(IoOp::MakeNode)),
    (libc::SYS_rmdir, path(IoOp::RemoveDirectory)),
    (libc::SYS_unlink, path(IoOp::Unlink)),
    (libc::SYS_rename, path(IoOp::Rename)),
    (libc::SYS_renameat, path_at(IoOp::Rename)),
    (libc::SYS_link, path(IoOp::Link)),
    (libc::SYS_symlink, path(IoOp::SymLink)),
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[(c_long, CallSpec)] = &[];

/// All calls that are recorded, by their numbers.
pub fn call_specs() -> HashMap<i64, CallSpec> {
    CALLS.iter().chain(OLD_CALLS).map(|&(number, spec)| (number, spec)).collect()
}

/// What the kernel is told to pass on of the calls of a program.
pub fn call_filter() -> String {
    let mut numbers: Vec<i64> = call_specs().into_keys().collect();
    numbers.sort_unstable();
    let terms: Vec<String> = numbers.iter().map(|number| format!("id=={number}")).collect();
    terms.join("||")
}

#[cfg(test)]
mod tests {
    use super::{CALLS, OLD_CALLS, call_filter, call_specs};

    #[test]
    fn each_call_stands_once_and_the_filter_is_one_the_kernel_takes() {
        assert_eq!(call_specs().len(), CALLS.len() + OLD_CALLS.len());
        // The kernel takes a page.
        assert!(call_filter().len() < 4000, "{}", call_filter().len());
    }
}
