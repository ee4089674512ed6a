//! What the C library's functions take.
use std::ffi::{c_char, c_void};

/// Something that is only passed on.
pub type AnyPointer = *mut c_void;
pub type CPath = *const c_char;
/// Words of a command line, or variables of an environment.
pub type CWords = *const *const c_char;
/// A buffered file.
pub type CFile = *mut c_void;
pub type CFormat = *const c_char;
/// The rest of a call's arguments, where a function takes them from.
pub type VaList = *mut c_void;
pub type WideChar = i32;
