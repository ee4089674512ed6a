//! The functions of `sheaf.h`. Only here do pointers of the caller's become references, and only
//! by way of the functions in [`arg`]; what they promise is what the header asks of callers.
#![allow(unsafe_code)]
use crate::back::Back;
use crate::error::{Error, ErrorCode};
use crate::event::{EventDescriptor, Events};
use crate::find;
use crate::front::{self, Create, Front};
use crate::inbox::{Inbox, InboxEnd, Message};
use crate::reactor;
use sheaf_tree::Sync;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

mod arg;
mod plan;
pub(crate) mod signal;
mod stream;
pub(crate) mod usage;

use arg::{bytes, text};

/// One end of a tree.
pub enum Net {
    /// The root.
    Front(Arc<Front>),
    /// A leaf.
    Back(Box<Back>),
}

impl Net {
    fn inbox(&self) -> &Inbox {
        match self {
            Self::Front(front) => &front.inbox,
            Self::Back(back) => back.inbox(),
        }
    }

    fn events(&self) -> &Arc<Events> {
        match self {
            Self::Front(front) => &front.events,
            Self::Back(back) => back.events(),
        }
    }

    fn front(&self) -> Result<&Front, Error> {
        match self {
            Self::Front(front) => Ok(front),
            Self::Back(_) => Err(Error::usage("only a front end can do that")),
        }
    }
}

thread_local! {
    static LAST: RefCell<(c_int, CString)> = RefCell::default();
}

/// Keeps the error for [`sheaf_error`] and gives what a failing call returns.
fn failed(error: &Error) -> c_int {
    let message = CString::new(error.message.replace('\0', "?")).unwrap_or_default();
    LAST.with_borrow_mut(|last| *last = (error.code as c_int, message));
    -1
}

fn status(result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => failed(&error),
    }
}

/// The code of the last call that failed on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_error() -> c_int {
    LAST.with_borrow(|last| last.0)
}

/// Its message; valid until the next failure on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_error_message() -> *const c_char {
    LAST.with_borrow(|last| last.1.as_ptr())
}

/// The version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// `struct sheaf_create` of the header.
#[repr(C)]
pub struct CreateArgs {
    topology: *const c_char,
    back_end: *const c_char,
    args: *const *const c_char,
    inner: *const c_char,
    remote_shell: *const c_char,
    remote_shell_args: *const c_char,
    startup_timeout_ms: i64,
}

/// Starts a session.
///
/// # Safety
/// As `sheaf.h` says: `create` and what it points to are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_net_create(create: *const CreateArgs) -> *mut Net {
    // SAFETY: the caller's promise.
    let created =
        unsafe { create.as_ref() }.ok_or_else(|| Error::usage("no options")).and_then(|create| {
            // SAFETY: the caller's promise covers what the structure points to.
            let (topology, back_end, args, inner) = unsafe {
                (
                    text(create.topology)?,
                    arg::option(create.back_end)?,
                    arg::texts(create.args)?,
                    arg::option(create.inner)?,
                )
            };
            let startup_timeout =
                Duration::from_millis(u64::try_from(create.startup_timeout_ms).unwrap_or(60_000));
            let (topology, back_end, inner) =
                (topology.to_owned(), back_end.map(Into::into), find::inner(inner)?);
            // SAFETY: as above.
            let shell = unsafe {
                (arg::option(create.remote_shell)?, arg::option(create.remote_shell_args)?)
            };
            let words = shell.1.unwrap_or_default().split_whitespace();
            let remote_shell =
                std::iter::once(shell.0.unwrap_or("ssh")).chain(words).map(str::to_owned).collect();
            Front::create(&Create {
                topology,
                back_end,
                args,
                inner,
                remote_shell,
                startup_timeout,
            })
        });
    give(created.map(Net::Front))
}

/// Joins the tree that started this process.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_net_join() -> *mut Net {
    give(Back::join().map(Box::new).map(Net::Back))
}

/// Joins the tree that started this process, or the one that the last five arguments name: host,
/// port and rank of an inner node, own host, own rank.
///
/// # Safety
/// `argv` has `argc` texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_net_join_args(argc: c_int, argv: *const *const c_char) -> *mut Net {
    if Back::is_started_by_tree() {
        return give(Back::join().map(Box::new).map(Net::Back));
    }
    let count = usize::try_from(argc).unwrap_or(0);
    // SAFETY: the caller's promise.
    let words: Result<Vec<&str>, Error> =
        unsafe { bytes(argv, count) }.iter().map(|&word| unsafe { text(word) }).collect();
    give(words.and_then(|words| Back::attach(&words)).map(Box::new).map(Net::Back))
}

fn give(net: Result<Net, Error>) -> *mut Net {
    match net {
        Ok(net) => Box::into_raw(Box::new(net)),
        Err(error) => {
            failed(&error);
            std::ptr::null_mut()
        }
    }
}

/// Ends the session (front end) or leaves it (back end); the handle stays valid.
///
/// # Safety
/// `net` is a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_net_shut_down(net: *const Net) {
    // SAFETY: the caller's promise.
    match unsafe { net.as_ref() } {
        Some(Net::Front(front)) => front.shut_down(),
        Some(Net::Back(back)) => back.leave(),
        None => {}
    }
}

/// Frees the handle, after [`sheaf_net_shut_down`].
///
/// # Safety
/// `net` is a handle that was not freed, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_net_free(net: *mut Net) {
    if !net.is_null() {
        // SAFETY: the handle came from `Box::into_raw`, and the caller gives it up.
        drop(unsafe { Box::from_raw(net) });
    }
}

/// Whether the session is over.
///
/// # Safety
/// `net` is a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_net_is_over(net: *const Net) -> c_int {
    reactor::keep();
    // SAFETY: the caller's promise.
    unsafe { net.as_ref() }.is_none_or(|net| net.inbox().is_ended()).into()
}

/// Waits until the session is over; 0 when the time is.
///
/// # Safety
/// `net` is a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_net_wait_over(net: *const Net, timeout_ms: i64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { net.as_ref() }
        .is_none_or(|net| net.inbox().wait_end(front::deadline(timeout_ms)))
        .into()
}

/// Waits until what was sent has left this process.
///
/// # Safety
/// `net` is a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_net_flush(net: *const Net) -> c_int {
    // SAFETY: the caller's promise.
    status(match unsafe { net.as_ref() } {
        Some(Net::Back(back)) => back.flush(),
        // A front end's send returns when the packet is on its way.
        _ => Ok(()),
    })
}
