//! Traces that nobody recorded.
use sheaf_trace::{TraceNames, TraceRow};

/// A trace that is put together row by row. Each begins where the one before has ended, in ns since
/// [`Made::BEGIN_NS`], and takes 100 ns.
#[derive(Default)]
pub struct Made {
    pub rows: Vec<TraceRow>,
    pub names: TraceNames,
    now: i64,
}

impl Made {
    pub const BEGIN_NS: i64 = 1_700_000_000_123_456_789;

    /// One thread's call of the kernel on a file; the rest is changed afterwards.
    pub fn put(&mut self, op: &str, path: &str) -> &mut TraceRow {
        self.put_bytes(op, path.as_bytes())
    }

    pub fn put_bytes(&mut self, op: &str, path: &[u8]) -> &mut TraceRow {
        let row = TraceRow {
            time_ns: Self::BEGIN_NS + self.now,
            duration_ns: 100,
            op: self.names.number(op.as_bytes()),
            layer: self.names.number(b"posix"),
            host: self.names.number(b"n1"),
            command: self.names.number(b"app -x"),
            path: self.names.number(path),
            pid: 100,
            thread: 100,
            ..TraceRow::default()
        };
        self.now += 100;
        self.rows.push(row);
        self.rows.last_mut().unwrap()
    }

    /// A read or write of which all came.
    pub fn moved(&mut self, op: &str, path: &str, offset: i64, bytes: i64) -> &mut TraceRow {
        let row = self.put(op, path);
        (row.offset, row.asked, row.bytes) = (Some(offset), bytes, bytes);
        row
    }

    /// A call that failed.
    pub fn failed(&mut self, op: &str, path: &str, errno: i32) -> &mut TraceRow {
        let row = self.put(op, path);
        row.errno = errno;
        row
    }

    pub fn number(&mut self, text: &str) -> u32 {
        self.names.number(text.as_bytes())
    }
}
