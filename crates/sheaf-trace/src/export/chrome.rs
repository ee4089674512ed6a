//! Chrome's trace events.
use super::{errno_name, escaped};
use sheaf_log::command_line;
use sheaf_log::{TraceNames, TraceRow};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::io::{self, Write};

/// Numbers of Linux's processes and threads are below this; those that are given away here are not.
const NUMBERS_MAX: u32 = 1 << 22;
const DAY_NS: i128 = 86_400_000_000_000;

/// Writes the Trace Event Format (JSON), which ui.perfetto.dev and chrome://tracing open: a complete
/// event per operation, an instant event where operations were lost, and the names of processes.
///
/// Times are counted from the beginning of the first row's day (UTC), so that programs that take
/// numbers for doubles still have each nanosecond; `otherData.base_time_ns` is that moment in ns since
/// 1970. Rows from before that day have negative times.
///
/// A process keeps its number, and a thread its own, unless one of another host has it already: then
/// it has the next one that no process of Linux can have. The name of the process tells the recorded
/// one. What is kept in memory are the numbers of processes and threads.
pub struct ChromeExport<W: Write> {
    out: W,
    base_ns: Option<i128>,
    processes: UniqueNumbers<(u32, i32)>,
    threads: UniqueNumbers<(u32, i32, i32)>,
    /// Their command lines, as they were told last.
    commands: HashMap<u32, u32>,
}

/// Gives each key a number of its own: the wanted one, if it is free.
struct UniqueNumbers<K> {
    given: HashMap<K, u32>,
    taken: HashSet<u32>,
    next: u32,
}

impl<K: Hash + Eq> UniqueNumbers<K> {
    fn new() -> Self {
        Self { given: HashMap::new(), taken: HashSet::new(), next: NUMBERS_MAX }
    }

    fn of(&mut self, key: K, wanted: i32) -> u32 {
        if let Some(&number) = self.given.get(&key) {
            return number;
        }
        let wanted = u32::try_from(wanted).ok().filter(|wanted| *wanted < NUMBERS_MAX);
        let number = match wanted.filter(|wanted| self.taken.insert(*wanted)) {
            Some(wanted) => wanted,
            None => {
                self.next += 1;
                self.next - 1
            }
        };
        self.given.insert(key, number);
        number
    }
}

/// A time in ns as one in µs, exactly.
struct Microseconds(i128);

impl std::fmt::Display for Microseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ns = self.0.unsigned_abs();
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}.{:03}", ns / 1000, ns % 1000)
    }
}

impl<W: Write> ChromeExport<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        Ok(Self {
            out,
            base_ns: None,
            processes: UniqueNumbers::new(),
            threads: UniqueNumbers::new(),
            commands: HashMap::new(),
        })
    }

    /// Writes an operation.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn row(&mut self, row: &TraceRow, names: &TraceNames) -> io::Result<()> {
        let time = i128::from(row.time_ns);
        let is_first = self.base_ns.is_none();
        let base = *self.base_ns.get_or_insert(time.div_euclid(DAY_NS) * DAY_NS);
        if !is_first {
            self.out.write_all(b",")?;
        }
        let pid = self.processes.of((row.host, row.pid), row.pid);
        let tid = self.threads.of((row.host, row.pid, row.thread), row.thread);
        if self.commands.insert(pid, row.command) != Some(row.command) {
            self.name_process(pid, tid, row, names)?;
            self.out.write_all(b",")?;
        }
        let ts = Microseconds(time - base);
        let op = names.text(row.op);
        if op == b"lost" {
            return write!(
                self.out,
                "\n{{\"name\":\"lost\",\"ph\":\"i\",\"s\":\"p\",\"ts\":{ts},\"pid\":{pid},\
                 \"tid\":{tid},\"args\":{{\"count\":{},\"duration_ns\":{}}}}}",
                row.bytes, row.duration_ns
            );
        }
        self.out.write_all(b"\n{\"name\":")?;
        json_text(&mut self.out, op)?;
        self.out.write_all(b",\"cat\":")?;
        json_text(&mut self.out, names.text(row.layer))?;
        let dur = Microseconds(row.duration_ns.into());
        write!(
            self.out,
            ",\"ph\":\"X\",\"ts\":{ts},\"dur\":{dur},\"pid\":{pid},\"tid\":{tid},\"args\":{{"
        )?;
        self.args(row, names)?;
        self.out.write_all(b"}}")
    }

    fn args(&mut self, row: &TraceRow, names: &TraceNames) -> io::Result<()> {
        write!(self.out, "\"asked\":{},\"bytes\":{}", row.asked, row.bytes)?;
        if let Some(offset) = row.offset {
            write!(self.out, ",\"offset\":{offset}")?;
        }
        if row.errno != 0 {
            self.out.write_all(b",\"errno\":")?;
            json_text(&mut self.out, errno_name(row.errno).as_bytes())?;
        }
        if row.is_nested {
            self.out.write_all(b",\"nested\":true")?;
        }
        let path = names.text(row.path);
        if !path.is_empty() {
            self.out.write_all(b",\"path\":")?;
            json_text(&mut self.out, path)?;
        }
        if let Some(path) = row.new_path {
            self.out.write_all(b",\"new_path\":")?;
            json_text(&mut self.out, names.text(path))?;
        }
        Ok(())
    }

    fn name_process(
        &mut self,
        pid: u32,
        tid: u32,
        row: &TraceRow,
        names: &TraceNames,
    ) -> io::Result<()> {
        write!(
            self.out,
            "\n{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\
             \"name\":"
        )?;
        let mut name = names.text(row.host).to_vec();
        name.extend_from_slice(format!(":{} ", row.pid).as_bytes());
        name.extend_from_slice(&command_line(names.text(row.command)));
        json_text(&mut self.out, &name)?;
        self.out.write_all(b"}}")
    }

    /// Ends the trace, and gives back the writer.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        let base = self.base_ns.unwrap_or(0);
        writeln!(self.out, "\n],\"otherData\":{{\"base_time_ns\":\"{base}\"}}}}")?;
        self.out.flush()?;
        Ok(self.out)
    }
}

fn json_text(out: &mut impl Write, text: &[u8]) -> io::Result<()> {
    Ok(serde_json::to_writer(out, &*escaped(text))?)
}
