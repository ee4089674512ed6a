//! Searching one file after the other.
//!
//! Files are read through reused buffers and never mapped: a server that maps a file dies of
//! `SIGBUS` when somebody truncates it, which happens to logs every day. There is little to gain by
//! it: reading 559 KB costs less than a tenth of a millisecond (`benches/grep.rs`, a pattern that
//! is absent), and finding thousands of lines in them several times that.
use super::collect::Collect;
use super::{
    GrepError, GrepOptions, GrepOutput, LINE_BYTES_MAX, Template, damage, decompress, pattern,
};
use crate::entry::{Entry, EntryKind, EntryStats, Sink};
use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use sheaf_core::Errno;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::ops::{ControlFlow, Range};

/// So much of a file decides whether it is text, if later parts do not say otherwise.
const HEAD_BYTES: usize = 32 << 10;

/// Compiled [`GrepOptions`] and the buffers of a search. One per thread.
#[derive(Debug)]
pub struct Engine {
    matcher: RegexMatcher,
    searcher: Searcher,
    options: GrepOptions,
    template: Option<Template>,
    buffer: Vec<u8>,
    head: Vec<u8>,
}

impl Engine {
    pub(super) fn new(options: &GrepOptions) -> Result<Self, GrepError> {
        let mut options = options.clone();
        if options.is_silent() && options.output != GrepOutput::Quiet {
            // Nothing of it is printed, but unlike -q it goes on with the next file, which may
            // fail.
            options.output = GrepOutput::PathsWith;
        }
        let matcher = pattern::matcher(&options)?;
        let line_bytes_max = options.line_bytes_max.unwrap_or(LINE_BYTES_MAX);
        let context = |lines: u32| if options.has_context() { lines as usize } else { 0 };
        let searcher = SearcherBuilder::new()
            .invert_match(options.invert)
            .line_number(options.number)
            .before_context(context(options.before))
            .after_context(context(options.after))
            .binary_detection(BinaryDetection::none())
            .bom_sniffing(false)
            .heap_limit(Some(usize::try_from(line_bytes_max).unwrap_or(usize::MAX)))
            .build();
        let template = options.template.then(|| Template::new(&[]));
        Ok(Self {
            matcher,
            searcher,
            options,
            template,
            buffer: Vec::new(),
            head: vec![0; HEAD_BYTES],
        })
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
            return self.select_nothing(path, sink);
        }
        if !self.options.decompress {
            return self.run(source, path, sink);
        }
        match decompress::reader(source, path) {
            Ok(reader) => self.run(damage::Decoded(reader), path, sink),
            Err(error) => {
                sink.error(path, errno_of(&damage::named(error)));
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

    /// Without a line to look for, no file is read.
    fn select_nothing(&self, path: &[u8], sink: &mut dyn Sink) -> ControlFlow<()> {
        sink.stats(EntryStats { files: 1, ..EntryStats::default() });
        if self.options.output != GrepOutput::PathsWithout {
            return ControlFlow::Continue(());
        }
        sink.path(path);
        sink.entry(Entry::new(EntryKind::Path, b""))
    }

    fn run(&mut self, source: impl Read, path: &[u8], sink: &mut dyn Sink) -> ControlFlow<()> {
        sink.path(path);
        let seen = Seen::default();
        let watch = match Watch::new(source, &seen, !self.options.text, &mut self.head) {
            Ok(watch) => watch,
            Err(error) => {
                sink.error(path, errno_of(&error));
                return ControlFlow::Continue(());
            }
        };
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
        let mut stats = EntryStats::default();
        match result {
            Ok(()) => stats.files = 1,
            Err(error) => sink.error(path, errno_of(&error)),
        }
        // What is listed, or left of empty matches, does not tell whether any line was selected.
        if self.options.stats
            || matches!(self.options.output, GrepOutput::PathsWithout | GrepOutput::Parts)
        {
            stats.files_matched = u64::from(lines > 0);
        }
        // These tell hosts apart whose answers are equal otherwise.
        if self.options.stats {
            stats.lines = lines;
            stats.bytes = seen.bytes.get();
            // One that could not be read to its end, and has lines, was searched.
            stats.files = stats.files.max(stats.files_matched);
        }
        sink.stats(stats);
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

impl Seen {
    fn look_at(&self, read: &mut [u8], binary_matters: bool) {
        self.bytes.set(self.bytes.get() + read.len() as u64);
        let mut rest = read;
        while let Some(at) = memchr::memchr(0, rest).filter(|_| binary_matters) {
            self.nul.set(true);
            rest[at] = b'\n';
            rest = &mut rest[at + 1..];
        }
    }
}

/// Looks out for NUL bytes while a file is read. From the first on a NUL ends a line, as it does
/// for GNU grep, lest a binary file be one endless line.
struct Watch<'a, R> {
    source: R,
    seen: &'a Seen,
    binary_matters: bool,
    /// The front of the file, read at once: the searcher first asks for three bytes, and what a
    /// file is must be known before its first line is.
    head: &'a mut [u8],
    head_len: usize,
    head_done: usize,
}

impl<'a, R: Read> Watch<'a, R> {
    fn new(
        mut source: R,
        seen: &'a Seen,
        binary_matters: bool,
        head: &'a mut [u8],
    ) -> io::Result<Self> {
        let head_len = loop {
            match source.read(head) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        let watch = Self { source, seen, binary_matters, head, head_len, head_done: 0 };
        seen.look_at(&mut watch.head[..head_len], binary_matters);
        Ok(watch)
    }
}

impl<R: Read> Read for Watch<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.head_done < self.head_len {
            let len = (&self.head[self.head_done..self.head_len]).read(out)?;
            self.head_done += len;
            return Ok(len);
        }
        if self.head_len == 0 {
            return Ok(0);
        }
        let len = self.source.read(out)?;
        self.seen.look_at(&mut out[..len], self.binary_matters);
        Ok(len)
    }
}
