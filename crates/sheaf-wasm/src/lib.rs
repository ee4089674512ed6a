//! The engine that runs WebAssembly filters, apart from the program that needs it: most nodes never
//! do, and it is larger than all the rest.
//!
//! As `libsheaf_wasm.so` it is loaded by a node when the first WebAssembly module comes; what
//! crosses the border is [`AbiEngine`]. A program that wants it inside, because it is linked
//! statically, gives [`ENGINE`] to `sheaf_tree::filter::use_engine`.
#![allow(unsafe_code)]

mod clock;
mod run;
mod wasi;

use run::{CompiledGuest, Instance};
use sheaf_core::Errno;
use sheaf_core::filter_abi::{AbiCall, AbiEngine, AbiPacket, EngineBounds};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// This engine.
// SAFETY: the three below do what `Engine` says of them.
pub static ENGINE: AbiEngine = unsafe { AbiEngine::new(compile, open, call) };

/// What a node asks the shared object for.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_wasm_engine() -> *const AbiEngine {
    &raw const ENGINE
}

/// Why something failed.
#[derive(Debug, Clone)]
struct RunFailure {
    errno: Errno,
    /// `None`: the guest has said it, if anybody has.
    message: Option<String>,
}

impl RunFailure {
    fn new(errno: Errno, message: impl Into<String>) -> Self {
        Self { errno, message: Some(message.into()) }
    }
}

unsafe extern "C" fn compile(call: *mut AbiCall) -> i32 {
    // SAFETY: what a node passes is valid for the length of the call, and its own.
    answer(unsafe { &mut *call }, |call| {
        // SAFETY: as above.
        let module = CompiledGuest::compile(unsafe { bytes(call.params, call.params_len) })?;
        call.state = Box::into_raw(Box::new(module)).cast();
        Ok(0)
    })
}

unsafe extern "C" fn open(call: *mut AbiCall) -> i32 {
    // SAFETY: as in `compile`.
    answer(unsafe { &mut *call }, |call| {
        // SAFETY: the state is what `compile` has left there; modules are never freed.
        let module = unsafe { &*call.state.cast::<CompiledGuest>() };
        // SAFETY: as in `compile`.
        let input = |at: usize| unsafe {
            inputs(call).get(at).map_or(&[][..], |one| bytes(one.data, one.len))
        };
        let bounds = EngineBounds::from_bytes(input(1));
        let bounds =
            bounds.ok_or_else(|| RunFailure::new(Errno::INVAL, "no bounds of calls are said"))?;
        let (instance, companions) =
            Instance::open(module, &String::from_utf8_lossy(input(0)), bounds, call)?;
        call.state = Box::into_raw(Box::new(instance)).cast::<c_void>();
        call.reserved = companions;
        Ok(0)
    })
}

unsafe extern "C" fn call(call: *mut AbiCall) -> i32 {
    // SAFETY: as in `compile`.
    answer(unsafe { &mut *call }, |call| {
        let instance = call.state.cast::<Instance>();
        // SAFETY: the state is what `open` has left there, and one thread at a time calls an
        // instance.
        let outcome = unsafe { &mut *instance }.call(call);
        if call.entry == sheaf_core::filter_abi::EntryPoint::Destroy as u32 {
            // SAFETY: it came out of a box, and this is the last call of it.
            drop(unsafe { Box::from_raw(instance) });
        }
        outcome
    })
}

/// What a call is answered with. A panic must not cross the border.
fn answer(call: &mut AbiCall, work: impl FnOnce(&mut AbiCall) -> Result<i32, RunFailure>) -> i32 {
    let outcome = catch_unwind(AssertUnwindSafe(|| work(&mut *call)));
    let failure = match outcome {
        Ok(Ok(status)) => return status,
        Ok(Err(failure)) => failure,
        Err(_) => RunFailure::new(Errno::FAULT, "the engine for WebAssembly broke down"),
    };
    if let Some(message) = failure.message {
        // SAFETY: `host` is what the node wants back; the text lives until it returns.
        unsafe { (call.fail)(call.host, message.as_ptr().cast(), message.len()) };
    }
    failure.errno.0
}

/// The bytes that a node points to.
///
/// # Safety
/// `len` bytes are readable at `data`, unless `len` is 0, and stay so while the result is used.
unsafe fn bytes<'a>(data: *const u8, len: usize) -> &'a [u8] {
    if len == 0 || data.is_null() {
        return &[];
    }
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts(data, len) }
}

/// The packets of a call.
///
/// # Safety
/// As [`bytes`], of what the call points to.
unsafe fn inputs<'a>(call: &AbiCall) -> &'a [AbiPacket] {
    if call.inputs_len == 0 || call.inputs.is_null() {
        return &[];
    }
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts(call.inputs, call.inputs_len) }
}
