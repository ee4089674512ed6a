//! Traces in the forms of others: each is given rows one by one, and writes them as they come.
//!
//! Text of a trace is bytes: paths and command lines need not be UTF-8. In all forms a byte that is
//! not part of UTF-8 is written `\xHH`, and a backslash `\\`, so that no two paths become one.
//!
//! ```
//! use sheaf_trace::{TraceNames, TraceRow, export::CsvExport};
//!
//! let mut names = TraceNames::default();
//! let (empty, op) = (names.number(b""), names.number(b"read"));
//! let path = names.number(b"/data/a,b\xff");
//! let row = TraceRow { op, path, layer: empty, host: empty, command: empty, ..TraceRow::default() };
//! let mut export = CsvExport::new(Vec::new()).unwrap();
//! export.row(&row, &names).unwrap();
//! let text = String::from_utf8(export.finish().unwrap()).unwrap();
//! assert_eq!(text.lines().nth(1).unwrap(), r#"0,0,read,,,,"/data/a,b\xff",,0,0,0,,0,0,false,"#);
//! ```
mod chrome;
mod csv;
mod darshan;
mod darshan_record;

pub use chrome::ChromeExport;
pub use csv::CsvExport;
pub use darshan::{DARSHAN_RECORDS_MAX, DarshanExport};

use std::borrow::Cow;

/// The text with what is not UTF-8 and backslashes escaped.
pub(crate) fn escaped(text: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(text) {
        Ok(text) if !text.contains('\\') => Cow::Borrowed(text),
        _ => {
            let mut into = String::with_capacity(text.len() + 8);
            for part in text.utf8_chunks() {
                into.push_str(&part.valid().replace('\\', "\\\\"));
                for byte in part.invalid() {
                    into.push_str(&format!("\\x{byte:02x}"));
                }
            }
            Cow::Owned(into)
        }
    }
}

/// The symbolic name of an errno, or its number; nothing for 0.
pub(crate) fn errno_name(errno: i32) -> Cow<'static, str> {
    match (errno, sheaf_core::Errno(errno).name()) {
        (0, _) => Cow::Borrowed(""),
        (_, Some(name)) => Cow::Borrowed(name),
        (number, None) => Cow::Owned(number.to_string()),
    }
}
