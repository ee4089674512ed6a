//! Calls that only sockets have: what others do to them (`read`, `writev`) is with the other files.
use crate::posix::{IoPiece, long, piped};
use crate::turn::Did;
use std::ffi::{c_int, c_uint, c_void};

/// Looked at, and still there for whoever takes it.
const MSG_PEEK: c_int = 2;

/// `struct msghdr`, as far as it is looked at.
#[repr(C)]
pub struct SocketMessage {
    name: *mut c_void,
    name_len: c_uint,
    pieces: *const IoPiece,
    pieces_count: usize,
    control: *mut c_void,
    control_len: usize,
    flags: c_int,
}

/// `struct mmsghdr`: a message, and how many of its bytes were moved.
#[repr(C)]
pub struct MovedMessage {
    message: SocketMessage,
    moved: c_uint,
}

/// A part of a message that has no room may be told as moved (`MSG_TRUNC`): it was not.
fn received(fd: c_int, room: usize, flags: c_int, done: isize) -> Did {
    let done = if flags & MSG_PEEK != 0 { done.min(0) } else { done.min(room as isize) };
    Did::fd(fd).moved(room, done)
}

/// # Safety
/// The message is there, unless the call has failed.
unsafe fn room(message: *const SocketMessage, result: isize) -> usize {
    if result < 0 || message.is_null() {
        return 0;
    }
    // SAFETY: the kernel has just read it, and the pieces.
    unsafe {
        let count = c_int::try_from((*message).pieces_count).unwrap_or(c_int::MAX);
        long((*message).pieces, count, result)
    }
}

/// # Safety
/// So many messages are there, unless the call has failed.
unsafe fn several(fd: c_int, messages: *const MovedMessage, flags: c_int, done: c_int) -> Did {
    if done < 0 || messages.is_null() {
        return Did::fd(fd).came(done);
    }
    // SAFETY: as our caller vouches for: the kernel has just said how long each is.
    let messages = unsafe { std::slice::from_raw_parts(messages, done as usize) };
    let moved: usize = messages.iter().map(|message| message.moved as usize).sum();
    // SAFETY: each has moved something, or been asked to.
    let asked = messages.iter().map(|one| unsafe { room(&raw const one.message, 0) }).sum();
    received(fd, asked, flags, moved as isize)
}

/// A connection that was waited for: the new socket, or the one that had none.
fn accepted(listener: c_int, new: c_int) -> Did {
    if new < 0 { Did::fd(listener).came(new) } else { Did::fd(new).opens(new) }
}

wrap! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int
        = Socket, |fd| Did::fd(fd).opens(fd);
    fn __socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int
        = Socket, |fd| Did::fd(fd).opens(fd);
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int
        = Socket, |came| piped(ends, came);
    fn connect(fd: c_int, address: *const c_void, len: c_uint) -> c_int
        = Connect, |came| Did::fd(fd).came(came);
    fn __connect(fd: c_int, address: *const c_void, len: c_uint) -> c_int
        = Connect, |came| Did::fd(fd).came(came);
    fn accept(fd: c_int, address: *mut c_void, len: *mut c_uint) -> c_int
        = Accept, |new| accepted(fd, new);
    fn accept4(fd: c_int, address: *mut c_void, len: *mut c_uint, flags: c_int) -> c_int
        = Accept, |new| accepted(fd, new);

    fn send(fd: c_int, buffer: *const c_void, len: usize, flags: c_int) -> isize
        = Send, |done| Did::fd(fd).moved(len, done);
    fn __send(fd: c_int, buffer: *const c_void, len: usize, flags: c_int) -> isize
        = Send, |done| Did::fd(fd).moved(len, done);
    fn sendto(fd: c_int, buffer: *const c_void, len: usize, flags: c_int, to: *const c_void, to_len: c_uint)
        -> isize = Send, |done| Did::fd(fd).moved(len, done);
    fn sendmsg(fd: c_int, message: *const SocketMessage, flags: c_int) -> isize
        = Send, |done| Did::fd(fd).moved(room(message, done), done);
    fn sendmmsg(fd: c_int, messages: *mut MovedMessage, count: c_uint, flags: c_int) -> c_int
        = Send, |done| several(fd, messages, 0, done);
    fn __sendmmsg(fd: c_int, messages: *mut MovedMessage, count: c_uint, flags: c_int) -> c_int
        = Send, |done| several(fd, messages, 0, done);

    fn recv(fd: c_int, buffer: *mut c_void, len: usize, flags: c_int) -> isize
        = Receive, |done| received(fd, len, flags, done);
    fn __recv_chk(fd: c_int, buffer: *mut c_void, len: usize, room: usize, flags: c_int) -> isize
        = Receive, |done| received(fd, len, flags, done);
    fn __recv(fd: c_int, buffer: *mut c_void, len: usize, flags: c_int) -> isize
        = Receive, |done| received(fd, len, flags, done);
    fn recvfrom(fd: c_int, buffer: *mut c_void, len: usize, flags: c_int, from: *mut c_void, from_len: *mut c_uint)
        -> isize = Receive, |done| received(fd, len, flags, done);
    fn __recvfrom_chk(fd: c_int, buffer: *mut c_void, len: usize, room: usize, flags: c_int,
        from: *mut c_void, from_len: *mut c_uint) -> isize
        = Receive, |done| received(fd, len, flags, done);
    fn recvmsg(fd: c_int, message: *mut SocketMessage, flags: c_int) -> isize
        = Receive, |done| received(fd, room(message, done), flags, done);
    fn recvmmsg(fd: c_int, messages: *mut MovedMessage, count: c_uint, flags: c_int, patience: *mut c_void)
        -> c_int = Receive, |done| several(fd, messages, flags, done);
}
