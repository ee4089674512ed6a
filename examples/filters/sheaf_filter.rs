//! `sheaf_filter.h` for filters in Rust: put this file beside yours and write `mod sheaf_filter;`.
//!
//! ```ignore
//! mod sheaf_filter;
//! use sheaf_filter::{Call, Failure};
//!
//! sheaf_filter::module!();
//! sheaf_filter::filter!(mean, |call| { call.output(0, b"…") });
//! ```
//! Build with `rustc --edition 2024 --crate-type cdylib -C panic=abort`, for the host or with
//! `--target wasm32-wasip1`. In a shared object a panic ends the whole node; in WebAssembly it ends
//! the wave.
//!
//! SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(dead_code)]

/// The version of the interface.
pub const ABI: u32 = 1;

/// A packet of the wave.
#[repr(C)]
pub struct Packet {
    data: *const u8,
    len: usize,
    pub tag: i32,
    pub child: u32,
    pub rank: u32,
    raw: u32,
    pub clock_offset_ns: i64,
    /// `u64::MAX`: not measured yet.
    pub clock_error_ns: u64,
}

impl Packet {
    pub fn data(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the node keeps `len` bytes there until the call is over.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }

    /// A leaf's own data, and not an output of this filter at a child.
    pub fn is_raw(&self) -> bool {
        self.raw != 0
    }
}

/// The node.
#[repr(C)]
pub struct Node {
    pub rank: u32,
    pub stream: u32,
    pub depth: u32,
    pub height: u32,
    pub nearest_leaf: u32,
    pub children: u32,
    pub siblings: u32,
    pub descendants: u32,
    pub leaves: u32,
}

/// One call.
#[repr(C)]
pub struct Call {
    abi: u32,
    entry: u32,
    emit: u32,
    reserved: u32,
    inputs: *const Packet,
    inputs_len: usize,
    params: *const u8,
    params_len: usize,
    node: *const Node,
    /// Kept from call to call.
    pub state: *mut u8,
    #[cfg(not(target_family = "wasm"))]
    host: *mut u8,
    #[cfg(not(target_family = "wasm"))]
    output: extern "C" fn(*mut u8, i32, *const u8, usize) -> i32,
    #[cfg(not(target_family = "wasm"))]
    reply: extern "C" fn(*mut u8, i32, *const u8, usize) -> i32,
    #[cfg(not(target_family = "wasm"))]
    fail: extern "C" fn(*mut u8, *const u8, usize),
}

/// Why a wave could not be combined: an errno and one sentence.
pub struct Failure(pub i32, pub &'static str);

#[cfg(target_family = "wasm")]
#[link(wasm_import_module = "sheaf")]
unsafe extern "C" {
    #[link_name = "output"]
    fn host_output(tag: i32, data: *const u8, len: usize) -> i32;
    #[link_name = "reply"]
    fn host_reply(tag: i32, data: *const u8, len: usize) -> i32;
    #[link_name = "fail"]
    fn host_fail(text: *const u8, len: usize);
}

impl Call {
    pub fn inputs(&self) -> &[Packet] {
        if self.inputs_len == 0 {
            return &[];
        }
        // SAFETY: the node keeps so many packets there until the call is over.
        unsafe { std::slice::from_raw_parts(self.inputs, self.inputs_len) }
    }

    pub fn params(&self) -> &[u8] {
        if self.params_len == 0 {
            return &[];
        }
        // SAFETY: as for the inputs.
        unsafe { std::slice::from_raw_parts(self.params, self.params_len) }
    }

    pub fn node(&self) -> &Node {
        // SAFETY: as for the inputs.
        unsafe { &*self.node }
    }

    /// The outputs are for the user at the root, and not for this filter at a parent.
    pub fn is_result(&self) -> bool {
        self.emit == 1
    }

    #[cfg(not(target_family = "wasm"))]
    pub fn output(&self, tag: i32, data: &[u8]) -> Result<(), Failure> {
        match (self.output)(self.host, tag, data.as_ptr(), data.len()) {
            0 => Ok(()),
            errno => Err(Failure(errno, "too much output")),
        }
    }

    #[cfg(target_family = "wasm")]
    pub fn output(&self, tag: i32, data: &[u8]) -> Result<(), Failure> {
        // SAFETY: the node reads `len` bytes.
        match unsafe { host_output(tag, data.as_ptr(), data.len()) } {
            0 => Ok(()),
            errno => Err(Failure(errno, "too much output")),
        }
    }

    #[cfg(not(target_family = "wasm"))]
    pub fn reply(&self, tag: i32, data: &[u8]) -> Result<(), Failure> {
        match (self.reply)(self.host, tag, data.as_ptr(), data.len()) {
            0 => Ok(()),
            errno => Err(Failure(errno, "too many replies")),
        }
    }

    #[cfg(target_family = "wasm")]
    pub fn reply(&self, tag: i32, data: &[u8]) -> Result<(), Failure> {
        // SAFETY: as for `output`.
        match unsafe { host_reply(tag, data.as_ptr(), data.len()) } {
            0 => Ok(()),
            errno => Err(Failure(errno, "too many replies")),
        }
    }

    /// What the function returns to the node.
    pub fn status(&self, outcome: Result<(), Failure>) -> i32 {
        let Err(Failure(errno, text)) = outcome else { return 0 };
        #[cfg(not(target_family = "wasm"))]
        (self.fail)(self.host, text.as_ptr(), text.len());
        #[cfg(target_family = "wasm")]
        // SAFETY: as for `output`.
        unsafe {
            host_fail(text.as_ptr(), text.len());
        }
        errno
    }
}

/// Once in every module.
#[macro_export]
macro_rules! module {
    () => {
        #[unsafe(no_mangle)]
        pub extern "C" fn sheaf_filter_abi() -> u32 {
            $crate::sheaf_filter::ABI
        }
        #[cfg(target_family = "wasm")]
        #[unsafe(no_mangle)]
        pub extern "C" fn sheaf_alloc(len: usize) -> *mut u8 {
            // The length stands before the bytes, for `sheaf_free`.
            let Ok(layout) = std::alloc::Layout::from_size_align(len + 8, 8) else { return std::ptr::null_mut() };
            // SAFETY: the layout is not empty.
            let at = unsafe { std::alloc::alloc(layout) };
            if at.is_null() {
                return at;
            }
            // SAFETY: there are at least 8 bytes, aligned to 8.
            unsafe {
                at.cast::<usize>().write(len);
                at.add(8)
            }
        }
        #[cfg(target_family = "wasm")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn sheaf_free(data: *mut u8) {
            // SAFETY: the node gives back what `sheaf_alloc` gave, once.
            unsafe {
                let at = data.sub(8);
                let len = at.cast::<usize>().read();
                std::alloc::dealloc(at, std::alloc::Layout::from_size_align_unchecked(len + 8, 8));
            }
        }
    };
}

/// A function that streams can name; `$body` takes `&mut Call` and gives `Result<(), Failure>`.
#[macro_export]
macro_rules! filter {
    ($name:ident, $body:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(call: *mut $crate::sheaf_filter::Call) -> i32 {
            // SAFETY: the node lends the call until the function returns.
            let call = unsafe { &mut *call };
            let body: fn(
                &mut $crate::sheaf_filter::Call,
            ) -> Result<(), $crate::sheaf_filter::Failure> = $body;
            let outcome = body(call);
            call.status(outcome)
        }
    };
}
