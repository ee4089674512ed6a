//! Records each I/O call of the program that it is preloaded into (`LD_PRELOAD`), and behaves as
//! the C library does without it.
//!
//! The functions here have the names of the C library's, which they call; what they saw goes into
//! the process's segment ([`sheaf_recorder`]), in the directory that `SHEAF_TRACE_DIR` names, with
//! rings of `SHEAF_TRACE_RECORDS` records, which `SHEAF_TRACE_FLIGHT` has overwritten when they are
//! full. Without the first variable, or where the segment cannot be made, nothing is recorded and the
//! program runs all the same.
//!
//! What runs here runs within any call of any program: it keeps `errno`, asks nobody but the
//! kernel, is not entered again from within itself (`turn::TracedCall`), and takes no lock and no
//! memory of the program's, but for the first call of each function, which the loader looks up,
//! and the first of each thread, whose end the C library is asked to tell.
#![expect(unsafe_code, reason = "the functions are those of the C library, and take its pointers")]
// What the functions of the C library ask of their callers is said in its manual.
#![allow(clippy::missing_safety_doc)]

#[macro_use]
mod wrap;
mod ctypes;
mod did;
mod directories;
mod files;
mod filters;
mod kernel_aio;
mod mpi;
mod mpi_files;
mod posix;
mod process;
mod real;
mod sockets;
mod stdio;
mod text;
mod turn;
mod wide;

/// Runs when the program is loaded, after the C library's own beginning.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    turn::begin();
}

// The unwinder of Rust's own library: linked in, as finding and loading its shared object costs each
// program that is traced more than all that is done here at its beginning.
#[cfg(target_env = "gnu")]
#[link(name = "gcc_eh", kind = "static", modifiers = "-bundle,+whole-archive")]
unsafe extern "C" {}
