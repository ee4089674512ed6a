//! One JSON object per entry, with the field names of ripgrep where it has them.
use super::Printer;
use crate::entry::{EntryKind, MergedEntry, Stats, block_lines};
use base64::Engine as _;
use serde_json::{Map, Value, json};
use std::io::{self, Write};

pub fn print(printer: &Printer<'_>, out: &mut dyn Write, found: &MergedEntry<'_>) -> io::Result<()> {
    let mut data = Map::new();
    data.insert("hosts".to_owned(), (printer.hosts)(found.leaves).into());
    data.insert("host_count".to_owned(), found.leaves.len().into());
    data.insert("path".to_owned(), bytes(found.path));
    let (number, text) = (found.entry.number, found.entry.text);
    let kind = match found.entry.kind {
        EntryKind::Line => {
            data.extend(line(printer, number, true, text));
            "match"
        }
        EntryKind::Part => {
            data.insert("line_number".to_owned(), number.into());
            data.insert("match".to_owned(), bytes(text));
            "part"
        }
        EntryKind::Block => {
            let lines = (0..).zip(block_lines(text)).map(|(at, (selected, text))| {
                let mut object = line(printer, number.map(|first| first + at), selected, text);
                object.insert("type".to_owned(), if selected { "match" } else { "context" }.into());
                Value::Object(object)
            });
            data.insert("block".to_owned(), lines.collect());
            "block"
        }
        EntryKind::Count => {
            let count = std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok());
            data.insert("count".to_owned(), count.into());
            "count"
        }
        EntryKind::Path => "path",
        EntryKind::Binary => "binary",
        EntryKind::Error => return Ok(()),
        other => return Err(super::unknown(other)),
    };
    writeln!(out, "{}", json!({ "type": kind, "data": data }))
}

pub fn print_stats(out: &mut dyn Write, stats: Stats) -> io::Result<()> {
    let stats = json!({
        "searches": stats.files,
        "searches_with_match": stats.files_matched,
        "matched_lines": stats.lines,
        "bytes_searched": stats.bytes,
    });
    writeln!(out, "{}", json!({ "type": "summary", "data": { "stats": stats } }))
}

fn line(printer: &Printer<'_>, number: Option<u64>, selected: bool, text: &[u8]) -> Map<String, Value> {
    let matches = printer.engine.filter(|_| selected).map_or_else(Vec::new, |engine| engine.matches(text));
    let matches = matches
        .into_iter()
        .map(|at| json!({ "match": bytes(&text[at.clone()]), "start": at.start, "end": at.end }));
    let mut object = Map::new();
    object.insert("line_number".to_owned(), number.into());
    object.insert("lines".to_owned(), bytes(text));
    object.insert("submatches".to_owned(), matches.collect());
    object
}

/// Text as it is, other bytes in base64.
fn bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "text": text }),
        Err(_) => json!({ "bytes": base64::engine::general_purpose::STANDARD.encode(bytes) }),
    }
}
