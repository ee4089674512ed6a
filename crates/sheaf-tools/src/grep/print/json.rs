//! An entry as a record: what a program needs of it, as JSON.
use super::GrepPrinter;
use crate::entry::{EntryKind, EntryStats, MergedEntry, block_lines};
use base64::Engine as _;
use serde_json::{Map, Value, json};
use std::io;

/// The record of an entry; errors have none.
pub fn record(printer: &GrepPrinter<'_>, found: &MergedEntry<'_>) -> io::Result<Option<Value>> {
    let (number, text) = (found.entry.number, found.entry.text);
    let (kind, mut record) = match found.entry.kind {
        EntryKind::Line => ("match", line(printer, number, true, text)),
        EntryKind::Part => ("part", line(printer, number, false, text)),
        EntryKind::Block => {
            let lines = (0..).zip(block_lines(text)).map(|(at, (selected, text))| {
                let mut object = line(printer, number.map(|first| first + at), selected, text);
                object.insert("selected".to_owned(), selected.into());
                Value::Object(object)
            });
            ("block", Map::from_iter([("lines".to_owned(), lines.collect())]))
        }
        EntryKind::Count => {
            let count = std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok());
            ("count", Map::from_iter([("selected".to_owned(), count.into())]))
        }
        EntryKind::Path => ("path", Map::new()),
        EntryKind::Binary => ("binary", Map::new()),
        EntryKind::Error => return Ok(None),
        other => return Err(super::unknown(other)),
    };
    record.insert("type".to_owned(), "entry".into());
    record.insert("kind".to_owned(), kind.into());
    record.insert("hosts".to_owned(), (printer.hosts)(found.leaves).into());
    record.insert("count".to_owned(), found.leaves.len().into());
    put(&mut record, "path", "path_base64", found.path);
    Ok(Some(Value::Object(record)))
}

/// The record of `--stats`.
pub fn stats(stats: EntryStats) -> Value {
    json!({
        "type": "stats",
        "searches": stats.files,
        "searches_with_match": stats.files_matched,
        "matched_lines": stats.lines,
        "bytes_searched": stats.bytes,
    })
}

fn line(
    printer: &GrepPrinter<'_>,
    number: Option<u64>,
    selected: bool,
    text: &[u8],
) -> Map<String, Value> {
    let mut object = Map::new();
    if let Some(number) = number {
        object.insert("line".to_owned(), number.into());
    }
    put(&mut object, "text", "base64", text);
    if let Some(engine) = printer.engine.filter(|_| selected) {
        let matches = engine.matches(text).into_iter();
        let matches = matches.map(|at| json!({ "start": at.start, "end": at.end }));
        object.insert("matches".to_owned(), matches.collect());
    }
    object
}

/// Text as it is, other bytes in base64.
fn put(object: &mut Map<String, Value>, key: &str, key_of_bytes: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(key.to_owned(), text.into()),
        Err(_) => {
            let bytes = base64::engine::general_purpose::STANDARD.encode(bytes);
            object.insert(key_of_bytes.to_owned(), bytes.into())
        }
    };
}
