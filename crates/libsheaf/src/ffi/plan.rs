//! The tree, as text.
use super::*;
use crate::plan::BackEndPlan;
use crate::topgen;

/// This node's number.
///
/// # Safety
/// `net` is a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_net_rank(net: *const Net) -> u32 {
    // SAFETY: the caller's promise.
    match unsafe { net.as_ref() } {
        Some(Net::Back(back)) => back.rank(),
        _ => 0,
    }
}

/// Counts the changes of the tree.
///
/// # Safety
/// `net` is a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_net_version(net: *const Net) -> u64 {
    // SAFETY: the caller's promise.
    match unsafe { net.as_ref() } {
        Some(Net::Front(front)) => front.plan().version,
        Some(Net::Back(back)) => back.plan().version,
        None => 0,
    }
}

/// Writes the host of a node, with a zero byte at the end, cut to `len` bytes.
///
/// # Safety
/// `net` is a handle that was not freed; `len` bytes can be written at `into`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_net_host(
    net: *const Net,
    rank: u32,
    into: *mut c_char,
    len: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let host = match unsafe { net.as_ref() } {
        Some(Net::Front(front)) => front.plan().place(rank).map(|place| place.host.clone()),
        Some(Net::Back(back)) => back.plan().place(rank).map(|place| place.host.clone()),
        None => None,
    };
    let Some(host) = host.filter(|_| !into.is_null() && len > 0) else {
        return failed(&Error::new(ErrorCode::Unknown, format!("there is no node of rank {rank}")));
    };
    let kept = host.len().min(len - 1);
    // SAFETY: `kept` and a zero byte fit into the `len` bytes that the caller gives.
    unsafe {
        std::ptr::copy_nonoverlapping(host.as_ptr(), into.cast::<u8>(), kept);
        *into.add(kept) = 0;
    }
    0
}

/// The tree as a table, to be freed with [`sheaf_text_free`].
///
/// # Safety
/// `net` is a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_net_table(net: *const Net) -> *mut c_char {
    // SAFETY: the caller's promise.
    match unsafe { net.as_ref() } {
        Some(Net::Front(front)) => own(front.plan().table()),
        Some(Net::Back(back)) => own(back.plan().table()),
        None => std::ptr::null_mut(),
    }
}

/// The tree of a topology file as a table, without starting it; null when it has an error.
///
/// # Safety
/// `topology` is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_topology_table(topology: *const c_char) -> *mut c_char {
    // SAFETY: the caller's promise.
    match unsafe { text(topology) }.and_then(|text| BackEndPlan::parse(text, false)) {
        Ok(plan) => own(plan.table()),
        Err(error) => {
            failed(&error);
            std::ptr::null_mut()
        }
    }
}

fn own(text: String) -> *mut c_char {
    CString::new(text.replace('\0', "?")).unwrap_or_default().into_raw()
}

/// Frees a text that the library gave.
///
/// # Safety
/// `text` came from this library and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: it came from `CString::into_raw`, and the caller gives it up.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// Makes the text of a topology file: a shape, the front end's host, hosts of back ends (or of all
/// nodes, when `inner` is null) and of inner nodes. Null on failure.
///
/// # Safety
/// The pointers are texts; `inner` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sheaf_topology_make(
    shape: *const c_char,
    front: *const c_char,
    hosts: *const c_char,
    inner: *const c_char,
) -> *mut c_char {
    // SAFETY: the caller's promise.
    let made =
        unsafe { request(shape, front, hosts, inner) }.and_then(|request| topgen::make(&request));
    match made {
        Ok(text) => own(text),
        Err(error) => {
            failed(&error);
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// As [`sheaf_topology_make`].
unsafe fn request(
    shape: *const c_char,
    front: *const c_char,
    hosts: *const c_char,
    inner: *const c_char,
) -> Result<topgen::TopologyRequest, Error> {
    // SAFETY: this function's own condition.
    let (shape, front, hosts, inner) = unsafe {
        (text(shape)?, text(front)?, text(hosts)?, arg::option(inner)?.unwrap_or_default())
    };
    let (hosts, inner) = (topgen::hosts(hosts, 1)?, topgen::hosts(inner, 1)?);
    Ok(topgen::TopologyRequest { shape: shape.to_owned(), front: front.to_owned(), hosts, inner })
}
