//! A line per operation.
use super::{errno_name, escaped};
use sheaf_log::command_line;
use sheaf_log::{TraceNames, TraceRow};
use std::io;

const HEADER: [&str; 16] = [
    "time_ns",
    "duration_ns",
    "op",
    "layer",
    "host",
    "command",
    "path",
    "offset",
    "asked",
    "bytes",
    "errno",
    "error",
    "pid",
    "thread",
    "nested",
    "new_path",
];

/// Writes comma-separated values (RFC 4180, lines end with a line feed alone): a header, then a line
/// per operation. The offset is empty where it is not known, the error where there was none; text is
/// escaped as the module says.
pub struct CsvExport<W: io::Write> {
    writer: csv::Writer<W>,
}

impl<W: io::Write> CsvExport<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn new(out: W) -> io::Result<Self> {
        let mut writer = csv::Writer::from_writer(out);
        writer.write_record(HEADER).map_err(io::Error::from)?;
        Ok(Self { writer })
    }

    /// Writes an operation; `lost` are so many that were not kept as `bytes` says.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn row(&mut self, row: &TraceRow, names: &TraceNames) -> io::Result<()> {
        let text = |number| escaped(names.text(number));
        let writer = &mut self.writer;
        writer.write_field(row.time_ns.to_string())?;
        writer.write_field(row.duration_ns.to_string())?;
        for number in [row.op, row.layer, row.host] {
            writer.write_field(&*text(number))?;
        }
        writer.write_field(&*escaped(&command_line(names.text(row.command))))?;
        writer.write_field(&*text(row.path))?;
        writer.write_field(row.offset.map(|at| at.to_string()).unwrap_or_default())?;
        writer.write_field(row.asked.to_string())?;
        writer.write_field(row.bytes.to_string())?;
        writer.write_field(row.errno.to_string())?;
        writer.write_field(&*errno_name(row.errno))?;
        writer.write_field(row.pid.to_string())?;
        writer.write_field(row.thread.to_string())?;
        writer.write_field(if row.is_nested { "true" } else { "false" })?;
        writer.write_field(&*row.new_path.map(text).unwrap_or_default())?;
        Ok(writer.write_record(None::<&[u8]>)?)
    }

    /// Writes what is left, and gives back the writer.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(self) -> io::Result<W> {
        self.writer.into_inner().map_err(csv::IntoInnerError::into_error)
    }
}
