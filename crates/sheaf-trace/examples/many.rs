//! Writes a trace of so many operations, for measuring what reads traces: `many DIRECTORY OPERATIONS`.
//!
//! 64 processes on 4,000 files: reads and writes of 4 KiB in order, at random places, an `open` and a `stat` for
//! each hundred of them.
use sheaf_trace::{TraceNames, TraceRow, TraceStore};
use std::path::Path;

const PROCESSES: u64 = 64;
const FILES: u64 = 4000;
const BATCH: u64 = 1 << 16;
/// As a recording has it.
const FILE_ROWS_MAX: u64 = 1 << 20;

struct Numbers {
    host: u32,
    layer: u32,
    commands: Vec<u32>,
    paths: Vec<u32>,
    ops: [u32; 4],
}

fn row(number: u64, time_ns: &mut i64, seed: &mut u64, of: &Numbers) -> TraceRow {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    let random = *seed;
    *time_ns += 200 + (random & 1023) as i64;
    let process = number % PROCESSES;
    // A process stays with a file for a thousand operations.
    let file = (process * 61 + number / PROCESSES / 1000) % FILES;
    let step = number / PROCESSES % 1000;
    let (op, len, offset) = match step % 100 {
        0 => (of.ops[2], 0, None),
        1 => (of.ops[3], 0, None),
        _ if file.is_multiple_of(2) => (of.ops[0], 4096, Some(step as i64 * 4096)),
        _ => (of.ops[1], 4096, Some((random >> 20) as i64 % 262_144 * 4096)),
    };
    TraceRow {
        time_ns: *time_ns,
        duration_ns: 400 + (random >> 40) as i64 % 2000,
        op,
        layer: of.layer,
        host: of.host,
        command: of.commands[process as usize],
        path: of.paths[file as usize],
        offset,
        asked: len,
        bytes: len,
        errno: 0,
        pid: 1000 + process as i32,
        thread: 1000 + process as i32,
        is_nested: false,
        new_path: None,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(directory), Some(count)) = (words.next(), words.next()) else {
        return Err("many DIRECTORY OPERATIONS".into());
    };
    let count: u64 = count.parse()?;
    let mut names = TraceNames::default();
    let mut number = |text: String| names.number(text.as_bytes());
    let of = Numbers {
        host: number("n1".into()),
        layer: number("posix".into()),
        commands: (0..PROCESSES).map(|at| number(format!("solve\0--rank\0{at}\0"))).collect(),
        paths: (0..FILES)
            .map(|at| number(format!("/data/run/part-{}/{at:05}.bin", at % 40)))
            .collect(),
        ops: ["read", "write", "open", "stat"].map(|word| number(word.into())),
    };
    let mut store = TraceStore::open(Path::new(&directory), FILE_ROWS_MAX)?;
    let (mut time_ns, mut seed) = (1_790_000_000_000_000_000, 88_172_645_463_325_252);
    let mut at = 0;
    while at < count {
        let end = (at + BATCH).min(count);
        let rows: Vec<TraceRow> =
            (at..end).map(|number| row(number, &mut time_ns, &mut seed, &of)).collect();
        store.push(&rows, &names)?;
        at = end;
    }
    store.finish(&names)?;
    Ok(())
}
