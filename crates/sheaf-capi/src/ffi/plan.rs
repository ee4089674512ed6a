//! The tree, as text.
use super::*;
use crate::plan::Plan;

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
    match unsafe { text(topology) }.and_then(Plan::parse) {
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
