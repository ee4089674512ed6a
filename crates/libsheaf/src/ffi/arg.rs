//! What callers pass, as Rust knows it.
use crate::error::Error;
use std::ffi::{CStr, c_char};

/// A text.
///
/// # Safety
/// `text` is null or ends in a zero byte, and does not change while the result is used.
pub unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Error> {
    if text.is_null() {
        return Err(Error::usage("a text is missing"));
    }
    // SAFETY: not null, and the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Error::usage("a text is not UTF-8"))
}

/// A text that may be missing.
///
/// # Safety
/// As [`text`].
pub unsafe fn option<'a>(maybe: *const c_char) -> Result<Option<&'a str>, Error> {
    if maybe.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { text(maybe) }.map(Some)
}

/// A list of texts that ends in a null pointer; none for a null list.
///
/// # Safety
/// As [`text`], of the list and of each text in it.
pub unsafe fn texts(list: *const *const c_char) -> Result<Vec<String>, Error> {
    let mut texts = Vec::new();
    if list.is_null() {
        return Ok(texts);
    }
    loop {
        // SAFETY: the list has not ended before this place.
        let next = unsafe { *list.add(texts.len()) };
        if next.is_null() {
            return Ok(texts);
        }
        // SAFETY: the caller's promise.
        texts.push(unsafe { text(next) }?.to_owned());
    }
}

/// `len` bytes, or numbers; none for a null pointer.
///
/// # Safety
/// `data` is null, or `len` values can be read there that do not change while the result is used.
pub unsafe fn bytes<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if data.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: not null, and the caller's promise.
    unsafe { std::slice::from_raw_parts(data, len) }
}
