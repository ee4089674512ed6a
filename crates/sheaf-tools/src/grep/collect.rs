//! From what the searcher reports to entries.
use super::engine::Seen;
use super::{GrepOptions, GrepOutput, Template};
use crate::entry::{BLOCK_CONTEXT, BLOCK_SELECTED, Entry, EntryKind, Sink};
use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, SinkContext, SinkMatch};
use std::io;
use std::ops::ControlFlow;

/// Receives the lines of one file.
pub(super) struct Collect<'a> {
    options: &'a GrepOptions,
    matcher: &'a RegexMatcher,
    template: Option<&'a Template>,
    seen: &'a Seen,
    /// The block that is being built, or the line with its holes.
    buffer: &'a mut Vec<u8>,
    block_number: Option<u64>,
    sink: &'a mut dyn Sink,
    selected: u64,
    /// Context lines still to come behind the last line that `-m` allows.
    trailing_left: u32,
    /// Nothing more is wanted of this file. The searcher was told, but with `-v` it still reports
    /// the context of the last line.
    done: bool,
    flow: ControlFlow<()>,
}

impl<'a> Collect<'a> {
    pub fn new(
        options: &'a GrepOptions,
        matcher: &'a RegexMatcher,
        template: Option<&'a Template>,
        seen: &'a Seen,
        buffer: &'a mut Vec<u8>,
        sink: &'a mut dyn Sink,
    ) -> Self {
        buffer.clear();
        let flow = ControlFlow::Continue(());
        let trailing_left = if options.has_context() { options.after } else { 0 };
        Self {
            options,
            matcher,
            template,
            seen,
            buffer,
            block_number: None,
            sink,
            selected: 0,
            trailing_left,
            done: false,
            flow,
        }
    }

    /// Says what can only be said of a whole file (`read` to its end, without an error). Whether
    /// to go on with other files, and how many lines were selected.
    pub fn end(mut self, read: bool) -> (ControlFlow<()>, u64) {
        self.put_block();
        if read && self.flow.is_continue() {
            let path = Entry::new(EntryKind::Path, b"");
            match (self.options.output, self.selected) {
                (GrepOutput::Count, lines) => {
                    self.put(Entry::new(EntryKind::Count, lines.to_string().as_bytes()));
                }
                (GrepOutput::PathsWithout, 0) => self.put(path),
                (GrepOutput::PathsWith, 1..) => self.put(path),
                _ => {}
            }
        }
        if self.options.output == GrepOutput::Quiet && self.selected > 0 {
            self.put(Entry::new(EntryKind::Path, b""));
            self.flow = ControlFlow::Break(());
        }
        (self.flow, self.selected)
    }

    fn put(&mut self, entry: Entry<'_>) {
        if self.flow.is_continue() {
            self.flow = self.sink.entry(entry);
        }
    }

    /// One entry of a line or of a part of it.
    fn put_text(&mut self, kind: EntryKind, number: Option<u64>, text: &[u8]) {
        let Some(template) = self.template else {
            return self.put(Entry { kind, number, text });
        };
        self.buffer.clear();
        template.apply(text, self.buffer);
        if self.flow.is_continue() {
            self.flow = self.sink.entry(Entry { kind, number, text: self.buffer });
        }
    }

    fn put_parts(&mut self, number: Option<u64>, line: &[u8]) {
        let matcher = self.matcher;
        // The matcher's error type has no values.
        let _ = matcher.find_iter(line, |part| {
            if !part.is_empty() {
                self.put_text(EntryKind::Part, number, &line[part.start()..part.end()]);
            }
            self.flow.is_continue()
        });
    }

    fn push_block_line(&mut self, mark: u8, number: Option<u64>, line: &[u8]) {
        if self.buffer.is_empty() {
            self.block_number = number;
        } else {
            self.buffer.push(b'\n');
        }
        self.buffer.push(mark);
        match self.template {
            Some(template) => template.apply(line, self.buffer),
            None => self.buffer.extend_from_slice(line),
        }
    }

    /// A block ends; a line within it starts with its mark, so a block is never empty.
    fn put_block(&mut self) {
        if self.options.has_context() && !self.buffer.is_empty() {
            if self.flow.is_continue() {
                let (kind, number) = (EntryKind::Block, self.block_number);
                self.flow = self.sink.entry(Entry { kind, number, text: self.buffer });
            }
            self.buffer.clear();
        }
    }

    /// Whether to go on with this file.
    fn put_selected(&mut self, number: Option<u64>, line: &[u8]) -> bool {
        if self.seen.nul.get() {
            self.put_block();
            self.put(Entry::new(EntryKind::Binary, b""));
            return false;
        }
        if self.options.output == GrepOutput::Parts {
            self.put_parts(number, line);
        } else if self.options.has_context() {
            self.push_block_line(BLOCK_SELECTED, number, line);
        } else {
            self.put_text(EntryKind::Line, number, line);
        }
        self.flow.is_continue()
    }

    /// Whether to go on with this file.
    fn take_selected(&mut self, number: Option<u64>, line: &[u8]) -> bool {
        if !self.lines_are_left() {
            // Behind the last line that is wanted, further ones are but its context.
            return self.put_context(number, line);
        }
        self.selected += 1;
        let going_on = match self.options.output {
            GrepOutput::PathsWith | GrepOutput::PathsWithout | GrepOutput::Quiet => return false,
            GrepOutput::Count => true,
            GrepOutput::Lines | GrepOutput::Parts => self.put_selected(number, line),
        };
        going_on && (self.lines_are_left() || self.trailing_left > 0)
    }

    /// Whether to go on with this file.
    fn put_context(&mut self, number: Option<u64>, line: &[u8]) -> bool {
        if !self.seen.nul.get() {
            self.push_block_line(BLOCK_CONTEXT, number, line);
        }
        if self.lines_are_left() {
            return true;
        }
        self.trailing_left = self.trailing_left.saturating_sub(1);
        self.trailing_left > 0
    }

    fn lines_are_left(&self) -> bool {
        self.options.lines_max.is_none_or(|max| self.selected < max)
    }
}

impl grep_searcher::Sink for Collect<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        self.done = self.done || !self.take_selected(found.line_number(), line_of(found.bytes()));
        Ok(!self.done)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        self.done = self.done || !self.put_context(context.line_number(), line_of(context.bytes()));
        Ok(!self.done)
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        self.put_block();
        Ok(self.flow.is_continue())
    }
}

/// The line without its terminator.
fn line_of(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(b"\n").unwrap_or(bytes)
}
