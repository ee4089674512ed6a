//! Searching one file after the other.
//!
//! Files are read through the searcher's reused buffer and never mapped: a server that maps a file
//! dies of `SIGBUS` when somebody truncates it, which happens to logs every day, and mapping gains
//! nothing (`benches/grep.rs`: a 559 KB file costs a fraction of a millisecond either way).
use super::collect::Collect;
use super::{GrepError, GrepOptions, Output, Template, decompress, pattern};
use crate::entry::{Sink, Stats};
use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use sheaf_core::Errno;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::ops::{ControlFlow, Range};

/// The longest line, with its context, that is searched. A longer one fails with `EMSGSIZE`.
const LINE_BYTES_MAX: usize = 32 << 20;

/// Compiled [`GrepOptions`] and the buffers of a search. One per thread.
#[derive(Debug)]
pub struct Engine {
    matcher: RegexMatcher,
    searcher: Searcher,
    options: GrepOptions,
    template: Option<Template>,
    buffer: Vec<u8>,
}

impl Engine {
    pub(super) fn new(options: &GrepOptions) -> Result<Self, GrepError> {
        let mut options = options.clone();
        if options.is_silent() {
            options.output = Output::Quiet;
        }
        let matcher = pattern::matcher(&options)?;
        let context = |lines: u32| if options.has_context() { lines as usize } else { 0 };
        let searcher = SearcherBuilder::new()
            .invert_match(options.invert)
            .line_number(options.number)
            .before_context(context(options.before))
            .after_context(context(options.after))
            .max_matches(options.lines_max)
            .binary_detection(BinaryDetection::none())
            .bom_sniffing(false)
            .heap_limit(Some(LINE_BYTES_MAX))
            .build();
        let template = options.template.then(|| Template::new(&[]));
        Ok(Self { matcher, searcher, options, template, buffer: Vec::new() })
    }

    /// Says what this host is called, so that `--template` makes `{host}` of it.
    #[must_use]
    pub fn on_host(mut self, names: &[&str]) -> Self {
        self.template = self.template.map(|_| Template::new(names));
        self
    }

    /// Searches `file` from where it stands; what is found is of `path`. A failure to read it is
    /// an error entry. [`ControlFlow::Break`]: nothing more is to be searched on this host.
    pub fn search(&mut self, file: &File, path: &[u8], sink: &mut dyn Sink) -> ControlFlow<()> {
        self.search_reader(file, path, sink)
    }

    /// As [`search`](Self::search), for anything that can be read.
    pub fn search_reader(
        &mut self,
        source: impl Read,
        path: &[u8],
        sink: &mut dyn Sink,
    ) -> ControlFlow<()> {
        if self.options.lines_max == Some(0) {
            return ControlFlow::Continue(());
        }
        if !self.options.decompress {
            return self.run(source, path, sink);
        }
        match decompress::reader(source) {
            Ok(reader) => self.run(reader, path, sink),
            Err(error) => {
                sink.error(path, errno_of(&error));
                ControlFlow::Continue(())
            }
        }
    }

    /// Where `line` matches, for showing it in colour.
    #[must_use]
    pub fn matches(&self, line: &[u8]) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        // The matcher's error type has no values.
        let _ = self.matcher.find_iter(line, |at| {
            found.push(at.start()..at.end());
            true
        });
        found.retain(|range| !range.is_empty());
        found
    }

    fn run(&mut self, source: impl Read, path: &[u8], sink: &mut dyn Sink) -> ControlFlow<()> {
        sink.path(path);
        let seen = Seen::default();
        let watch = Watch { source, seen: &seen, binary_matters: !self.options.text };
        let mut collect = Collect::new(
            &self.options,
            &self.matcher,
            self.template.as_ref(),
            &seen,
            &mut self.buffer,
            &mut *sink,
        );
        let result = self.searcher.search_reader(&self.matcher, watch, &mut collect);
        let (flow, lines) = collect.end(result.is_ok());
        if let Err(error) = result {
            sink.error(path, errno_of(&error));
        }
        if self.options.stats {
            let files_matched = u64::from(lines > 0);
            sink.stats(Stats { files: 1, files_matched, lines, bytes: seen.bytes.get() });
        }
        flow
    }
}

/// The searcher's own error is that a line does not fit; all others come from reading.
fn errno_of(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::Other if error.raw_os_error().is_none() => Errno::MSGSIZE,
        _ => Errno::from_io(error),
    }
}

/// What reading has met so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub nul: Cell<bool>,
    bytes: Cell<u64>,
}

/// Looks out for NUL bytes while a file is read.
struct Watch<'a, R> {
    source: R,
    seen: &'a Seen,
    binary_matters: bool,
}

impl<R: Read> Read for Watch<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.source.read(out)?;
        self.seen.bytes.set(self.seen.bytes.get() + len as u64);
        if self.binary_matters && !self.seen.nul.get() {
            self.seen.nul.set(memchr::memchr(0, &out[..len]).is_some());
        }
        Ok(len)
    }
}
