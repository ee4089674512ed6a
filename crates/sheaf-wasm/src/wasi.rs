//! The part of WASI that C and Rust libraries link to whether or not they use it. There are no
//! files, no arguments, no environment and no clock; what is printed goes nowhere.
use crate::run::{WasmHost, guest_bytes};
use wasmtime::{Caller, Error, Extern, Linker, Result};

const MODULE: &str = "wasi_snapshot_preview1";
/// WASI's numbers of errors.
const SUCCESS: i32 = 0;
const BADF: i32 = 8;
const FAULT: i32 = 21;
const SPIPE: i32 = 70;

fn put(caller: &mut Caller<'_, WasmHost>, at: u32, bytes: &[u8]) -> i32 {
    let memory = caller.get_export("memory").and_then(Extern::into_memory);
    match memory.map(|memory| memory.write(caller, at as usize, bytes)) {
        Some(Ok(())) => SUCCESS,
        _ => FAULT,
    }
}

/// How many bytes a list of pieces has.
fn length(caller: &mut Caller<'_, WasmHost>, pieces: u32, count: u32) -> Option<u32> {
    let (bytes, _) = guest_bytes(caller, pieces, count.checked_mul(8)?)?;
    let lengths = bytes
        .chunks_exact(8)
        .map(|piece| u32::from_le_bytes([piece[4], piece[5], piece[6], piece[7]]));
    Some(lengths.fold(0, u32::wrapping_add))
}

pub(crate) fn link(linker: &mut Linker<WasmHost>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "fd_write",
        |mut caller: Caller<'_, WasmHost>, fd: i32, pieces: u32, count: u32, written: u32| match fd
        {
            1 | 2 => match length(&mut caller, pieces, count) {
                Some(length) => put(&mut caller, written, &length.to_le_bytes()),
                None => FAULT,
            },
            _ => BADF,
        },
    )?;
    linker.func_wrap(MODULE, "fd_close", |_: i32| BADF)?;
    linker.func_wrap(MODULE, "fd_seek", |_: i32, _: i64, _: i32, _: u32| SPIPE)?;
    linker.func_wrap(MODULE, "fd_fdstat_get", |_: i32, _: u32| BADF)?;
    linker.func_wrap(MODULE, "fd_prestat_get", |_: i32, _: u32| BADF)?;
    for sizes in ["environ_sizes_get", "args_sizes_get"] {
        linker.func_wrap(
            MODULE,
            sizes,
            |mut caller: Caller<'_, WasmHost>, count: u32, bytes: u32| {
                put(&mut caller, count, &[0; 4]).max(put(&mut caller, bytes, &[0; 4]))
            },
        )?;
    }
    for list in ["environ_get", "args_get"] {
        linker.func_wrap(MODULE, list, |_: u32, _: u32| SUCCESS)?;
    }
    // The same at every node and every time, so that a filter's results are.
    linker.func_wrap(
        MODULE,
        "random_get",
        |mut caller: Caller<'_, WasmHost>, at: u32, len: u32| {
            const CHUNK: [u8; 256] = [0x5a; 256];
            let mut at = at;
            let end = at.saturating_add(len);
            while at < end {
                let part = (end - at).min(CHUNK.len() as u32);
                if put(&mut caller, at, &CHUNK[..part as usize]) != SUCCESS {
                    return FAULT;
                }
                at += part;
            }
            SUCCESS
        },
    )?;
    linker.func_wrap(MODULE, "proc_exit", |status: i32| -> Result<()> {
        Err(Error::msg(format!("it ended itself with status {status}")))
    })?;
    Ok(())
}
