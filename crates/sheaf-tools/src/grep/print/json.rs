//! An entry as a record: what a program needs of it, as JSON.
use super::GrepPrinter;
use crate::entry::{EntryKind, EntryStats, MergedEntry, block_lines};
use sheaf_records::{BlockLine, Entry, Match, Stats};
use std::io;

/// The record of an entry; errors have none.
pub fn record(printer: &GrepPrinter<'_>, found: &MergedEntry<'_>) -> io::Result<Option<Entry>> {
    let (number, text) = (found.entry.number, found.entry.text);
    let (kind, record) = match found.entry.kind {
        EntryKind::Line => ("match", of_line(line(printer, number, true, text))),
        EntryKind::Part => ("part", of_line(line(printer, number, false, text))),
        EntryKind::Block => {
            let lines = (0..).zip(block_lines(text)).map(|(at, (selected, text))| {
                line(printer, number.map(|first| first + at), selected, text)
            });
            ("block", Entry { lines: Some(lines.collect()), ..Entry::default() })
        }
        EntryKind::Count => {
            let count = std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok());
            ("count", Entry { selected: count, ..Entry::default() })
        }
        EntryKind::Path => ("path", Entry::default()),
        EntryKind::Binary => ("binary", Entry::default()),
        EntryKind::Error => return Ok(None),
        other => return Err(super::unknown(other)),
    };
    let (path, path_base64) = sheaf_records::text(found.path);
    Ok(Some(Entry {
        kind: Some(kind.to_owned()),
        hosts: (printer.hosts)(found.leaves),
        count: found.leaves.len(),
        path,
        path_base64,
        ..record
    }))
}

/// The record of `--stats`.
pub fn stats(stats: EntryStats) -> Stats {
    Stats {
        searches: stats.files,
        searches_with_match: stats.files_matched,
        matched_lines: stats.lines,
        bytes_searched: stats.bytes,
    }
}

fn of_line(line: BlockLine) -> Entry {
    let BlockLine { line, text, base64, matches, selected: _ } = line;
    Entry { line, text, base64, matches, ..Entry::default() }
}

fn line(printer: &GrepPrinter<'_>, number: Option<u64>, selected: bool, text: &[u8]) -> BlockLine {
    let matches = printer.engine.filter(|_| selected).map(|engine| {
        let matches = engine.matches(text).into_iter();
        matches.map(|at| Match { start: at.start as u64, end: at.end as u64 }).collect()
    });
    let (text, base64) = sheaf_records::text(text);
    BlockLine { line: number, text, base64, selected, matches }
}
