//! Printing merged entries. Pure functions from entries to bytes.
//!
//! Flat, for pipes (`-n` adds the number; a context line has `-` where a selected one has `:`):
//! ```text
//! n[1-1024]:/etc/services:domain 53/udp
//! n[1-4]:/var/log/{a,b}.log:12:disk full
//! n[1-4]:/var/log/{a,b}.log-13-retrying
//! ```
//! Entries at several paths are one line exactly when kind, number, text and the set of hosts are
//! all equal, so that every host of the line has it at every path of the line. Paths with `{`, `}`,
//! `,` or `\` are never folded, and at most [`FOLDED_PATHS_MAX`] are.
use super::Engine;
use crate::entry::{EntryKind, EntryStats, MergedEntry, block_lines};
use rustc_hash::FxHashMap;
use sheaf_core::RangeSet;
use sheaf_records::Entry;
use std::borrow::Cow;
use std::io::{self, Write};

mod index;
mod json;
mod paths;
mod style;

pub use index::strided;
pub use json::stats as stats_record;
pub use paths::{FOLDED_PATHS_MAX, fold_paths};

use paths::{Folded, fold_entries};
use style::Styles;

/// The most host sets whose printed form is remembered.
const NAMES_MAX: usize = 4096;

/// The general form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrepLayout {
    /// One line per distinct line, each with its host set and path.
    #[default]
    Flat,
    /// The host set and path once, as a heading, its lines below; for people.
    Heading,
    /// One line per line and host.
    Each,
}

/// How entries are printed.
pub struct GrepPrinter<'a> {
    /// The general form.
    pub layout: GrepLayout,
    /// Whether host set and path stand in front of a line (`-h` takes both away).
    pub prefix: bool,
    /// Whether to use colours.
    pub color: bool,
    /// Whether control characters of paths are written as escapes, as for a terminal.
    pub escapes: bool,
    /// Shows matches in colour and gives their places in JSON; the engine of the same options.
    pub engine: Option<&'a Engine>,
    /// The printed form of a set of leaves: a folded host set, or [`strided`] for `--index`.
    pub hosts: &'a dyn Fn(&RangeSet) -> String,
}

impl GrepPrinter<'_> {
    /// Prints `entries` in their order.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn print(&self, out: &mut dyn Write, entries: &[MergedEntry<'_>]) -> io::Result<()> {
        let mut run = LineRun {
            printer: self,
            styles: Styles::new(self.color),
            names: FxHashMap::default(),
            out,
        };
        match self.layout {
            GrepLayout::Flat => run.flat(&fold_entries(entries)),
            GrepLayout::Heading => run.headings(&fold_entries(entries)),
            GrepLayout::Each => run.each(entries),
        }
    }

    /// An entry as JSON; errors have no record.
    ///
    /// # Errors
    /// `Unsupported` for an entry of a kind that is not known.
    pub fn record(&self, entry: &MergedEntry<'_>) -> io::Result<Option<Entry>> {
        json::record(self, entry)
    }

    /// Prints the sums of `--stats`.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn print_stats(&self, out: &mut dyn Write, stats: EntryStats) -> io::Result<()> {
        let EntryStats { files, files_matched, lines, bytes, .. } = stats;
        writeln!(
            out,
            "{lines} lines in {files_matched} of {files} files selected, {bytes} bytes read"
        )
    }
}

/// One call of [`GrepPrinter::print`].
struct LineRun<'a> {
    printer: &'a GrepPrinter<'a>,
    styles: Styles,
    names: FxHashMap<RangeSet, String>,
    out: &'a mut dyn Write,
}

impl LineRun<'_> {
    fn flat(&mut self, entries: &[Folded<'_>]) -> io::Result<()> {
        let mut after_block = false;
        for entry in entries {
            let is_block = entry.entry.kind == EntryKind::Block;
            if is_block && after_block {
                self.block_break()?;
            }
            after_block = is_block;
            let hosts = self.name(entry.leaves);
            self.entry(&hosts, &entry.path(), entry)?;
        }
        Ok(())
    }

    fn each(&mut self, entries: &[MergedEntry<'_>]) -> io::Result<()> {
        let mut leaves = RangeSet::new();
        for entry in entries {
            leaves.union_with(entry.leaves);
        }
        let mut after_block = false;
        for leaf in leaves.iter() {
            let host = (self.printer.hosts)(&RangeSet::single(leaf));
            for entry in entries.iter().filter(|entry| entry.leaves.contains(leaf)) {
                let is_block = entry.entry.kind == EntryKind::Block;
                if is_block && after_block {
                    self.block_break()?;
                }
                after_block = is_block;
                self.entry(&host, entry.path, &Folded::alone(entry))?;
            }
        }
        Ok(())
    }

    fn headings(&mut self, entries: &[Folded<'_>]) -> io::Result<()> {
        let mut order: Vec<Vec<&Folded<'_>>> = Vec::new();
        let mut group_of: FxHashMap<(&RangeSet, &[&[u8]]), usize> = FxHashMap::default();
        for entry in entries {
            let group = *group_of.entry((entry.leaves, &entry.paths)).or_insert_with(|| {
                order.push(Vec::new());
                order.len() - 1
            });
            order[group].push(entry);
        }
        let mut after_lines = false;
        for group in order {
            let (hosts, path) = (self.name(group[0].leaves), group[0].path());
            let (lines, whole): (Vec<&Folded<'_>>, _) =
                group.into_iter().partition(|entry| has_lines(entry));
            for entry in whole {
                self.entry(&hosts, &path, entry)?;
            }
            if lines.is_empty() {
                continue;
            }
            if after_lines {
                writeln!(self.out)?;
            }
            after_lines = true;
            if self.printer.prefix {
                self.heading(&hosts, &path)?;
            }
            self.lines_below(&lines)?;
        }
        Ok(())
    }

    fn lines_below(&mut self, lines: &[&Folded<'_>]) -> io::Result<()> {
        for (at, entry) in lines.iter().enumerate() {
            if entry.entry.kind == EntryKind::Block && at > 0 {
                self.block_break()?;
            }
            for (number, selected, text) in entry_lines(entry) {
                self.line(selected, number, text)?;
            }
        }
        Ok(())
    }

    /// One entry with all that belongs on its lines.
    fn entry(&mut self, hosts: &str, path: &[u8], entry: &Folded<'_>) -> io::Result<()> {
        match entry.entry.kind {
            EntryKind::Line | EntryKind::Part | EntryKind::Block => {
                for (number, selected, text) in entry_lines(entry) {
                    if self.printer.prefix {
                        self.prefix(hosts, path)?;
                        self.mark(selected)?;
                    }
                    self.line(selected, number, text)?;
                }
                Ok(())
            }
            EntryKind::Count => {
                if self.printer.prefix {
                    self.prefix(hosts, path)?;
                    self.mark(true)?;
                }
                self.out.write_all(entry.entry.text)?;
                writeln!(self.out)
            }
            EntryKind::Path => {
                if self.printer.prefix {
                    return self.heading(hosts, path);
                }
                self.out.write_all(&self.shown(path))?;
                writeln!(self.out)
            }
            EntryKind::Binary => {
                self.prefix(hosts, path)?;
                writeln!(self.out, ": binary file matches")
            }
            EntryKind::Error => Ok(()),
            other => Err(unknown(other)),
        }
    }

    fn heading(&mut self, hosts: &str, path: &[u8]) -> io::Result<()> {
        self.prefix(hosts, path)?;
        writeln!(self.out)
    }

    fn prefix(&mut self, hosts: &str, path: &[u8]) -> io::Result<()> {
        self.styles.hosts.write(self.out, hosts.as_bytes())?;
        self.mark(true)?;
        let path = self.shown(path);
        self.styles.path.write(self.out, &path)
    }

    /// A path as it is written: no terminal is to take a part of it for a command.
    fn shown<'p>(&self, path: &'p [u8]) -> Cow<'p, [u8]> {
        let is_safe = |c: char| !c.is_control();
        if !self.printer.escapes
            || path
                .utf8_chunks()
                .all(|part| part.valid().chars().all(is_safe) && part.invalid().is_empty())
        {
            return Cow::Borrowed(path);
        }
        let mut shown = String::new();
        for part in path.utf8_chunks() {
            for c in part.valid().chars() {
                if is_safe(c) { shown.push(c) } else { shown.extend(c.escape_default()) }
            }
            part.invalid().iter().for_each(|byte| shown += &format!("\\x{byte:02x}"));
        }
        Cow::Owned(shown.into_bytes())
    }

    fn mark(&mut self, selected: bool) -> io::Result<()> {
        self.styles.mark.write(self.out, if selected { b":" } else { b"-" })
    }

    fn line(&mut self, selected: bool, number: Option<u64>, text: &[u8]) -> io::Result<()> {
        if let Some(number) = number {
            self.styles.number.write(self.out, number.to_string().as_bytes())?;
            self.mark(selected)?;
        }
        match self.printer.engine.filter(|_| selected && self.printer.color) {
            None => self.out.write_all(text)?,
            Some(engine) => {
                let mut done = 0;
                for part in engine.matches(text) {
                    self.out.write_all(&text[done..part.start])?;
                    self.styles.matched.write(self.out, &text[part.clone()])?;
                    done = part.end;
                }
                self.out.write_all(&text[done..])?;
            }
        }
        self.out.write_all(b"\n")
    }

    fn block_break(&mut self) -> io::Result<()> {
        self.styles.mark.write(self.out, b"--")?;
        writeln!(self.out)
    }

    /// The printed form of a set; folding one may cost more than printing a line.
    fn name(&mut self, leaves: &RangeSet) -> String {
        if let Some(name) = self.names.get(leaves) {
            return name.clone();
        }
        let name = (self.printer.hosts)(leaves);
        if self.names.len() < NAMES_MAX {
            self.names.insert(leaves.clone(), name.clone());
        }
        name
    }
}

fn has_lines(entry: &Folded<'_>) -> bool {
    matches!(entry.entry.kind, EntryKind::Line | EntryKind::Part | EntryKind::Block)
}

/// The lines of an entry: number, whether selected, text.
fn entry_lines<'a>(
    entry: &Folded<'a>,
) -> impl Iterator<Item = (Option<u64>, bool, &'a [u8])> + use<'a> {
    let (kind, first, text) = (entry.entry.kind, entry.entry.number, entry.entry.text);
    let (one, several) = if kind == EntryKind::Block {
        (None, Some(block_lines(text)))
    } else {
        (Some((true, text)), None)
    };
    let lines = one.into_iter().chain(several.into_iter().flatten());
    lines
        .zip(0..)
        .map(move |((selected, text), at)| (first.map(|first| first + at), selected, text))
}

/// Of what is not known nothing is left out in silence.
fn unknown(kind: EntryKind) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!("an entry of a kind that cannot be printed: {kind:?}"),
    )
}
