//! Searching one file after the other, and writing what is found as GNU grep writes it.
//!
//! A file is searched in pieces of whole lines. Between two pieces the engine knows how many lines have
//! gone by, how many are yet to be shown behind the last one that was selected, and how many more may be.
use super::literal;
use super::pattern;
use super::words::{WordSearch, WordStates};
use super::{ArchiveGrepError, ArchiveGrepOptions, ArchiveGrepOutput, GrepBinary, GrepSyntax};
use memchr::{memchr, memchr_iter, memrchr};
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson;
use regex_automata::util::prefilter::Prefilter;
use regex_automata::{Anchored, Input, MatchKind, Span, meta};
use regex_syntax::hir::Hir;
use std::ops::Range;

/// The most memory a compiled pattern may take.
const COMPILED_BYTES_MAX: usize = 64 << 20;
/// The most memory that is used to know the states of a search.
const STATES_BYTES_MAX: usize = 32 << 20;
/// A file is read in pieces of so many bytes; as GNU's are, so that what is binary only behind the first
/// piece is shown up to there.
pub(super) const PIECE_BYTES: usize = 96 << 10;

const NAME_COLOR: &[u8] = b"\x1b[35m\x1b[K";
const NUMBER_COLOR: &[u8] = b"\x1b[32m\x1b[K";
const BETWEEN_COLOR: &[u8] = b"\x1b[36m\x1b[K";
const MATCH_COLOR: &[u8] = b"\x1b[01;31m\x1b[K";
const NO_COLOR: &[u8] = b"\x1b[m\x1b[K";

/// What is looked for.
#[derive(Clone, Debug)]
pub(super) struct GrepMatcher {
    regex: meta::Regex,
    /// Finds the longest match at a place: the first one need not be.
    longest: DFA,
    /// Finds a text that each line which matches has.
    pub required: Option<Prefilter>,
    /// Searches lines that are no text, for patterns that ask for words.
    words: Option<WordSearch>,
}

impl GrepMatcher {
    pub fn new(options: &ArchiveGrepOptions) -> Result<Self, ArchiveGrepError> {
        let hir = pattern::expression(options)?;
        let failed = |error: &dyn std::fmt::Display| {
            ArchiveGrepError(format!("the patterns cannot be searched for: {error}"))
        };
        let config = meta::Config::new()
            .utf8_empty(false)
            .nfa_size_limit(Some(COMPILED_BYTES_MAX))
            .hybrid_cache_capacity(STATES_BYTES_MAX);
        let regex = meta::Builder::new().configure(config).build_from_hir(&hir);
        let regex = regex.map_err(|error| failed(&error))?;
        Ok(Self {
            regex,
            longest: longest_of(&hir).map_err(|error| failed(&error))?,
            required: required(&hir),
            words: WordSearch::new(&hir, options, COMPILED_BYTES_MAX)
                .map_err(|error| failed(&error))?,
        })
    }
}

fn longest_of(hir: &Hir) -> Result<DFA, Box<dyn std::error::Error>> {
    let config = thompson::Config::new().utf8(false).nfa_size_limit(Some(COMPILED_BYTES_MAX));
    let nfa = thompson::Compiler::new().configure(config).build_from_hir(hir)?;
    let config = DFA::config()
        .match_kind(MatchKind::All)
        .unicode_word_boundary(true)
        .skip_cache_capacity_check(true)
        .cache_capacity(STATES_BYTES_MAX);
    Ok(DFA::builder().configure(config).build_from_nfa(nfa)?)
}

fn required(hir: &Hir) -> Option<Prefilter> {
    let literals = literal::required(hir)?;
    Prefilter::new(MatchKind::LeftmostFirst, &literals)
}

/// Searches, one file after the other.
pub(super) struct GrepEngine<'a> {
    options: &'a ArchiveGrepOptions,
    pub matcher: GrepMatcher,
    cache: Cache,
    states: Option<WordStates>,
    /// What was found, in the words of grep.
    pub out: Vec<u8>,
    name: Vec<u8>,
    piece: PieceState,
    /// What of a binary file has lines for NUL.
    zapped: Vec<u8>,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FileSearched {
    /// Lines that were selected.
    pub lines: u64,
    /// It is to be said that it is binary and matches.
    pub is_binary: bool,
    /// It was given up, as too much was found.
    pub is_too_much: bool,
}

/// What is known of a file between two of its pieces.
#[derive(Default)]
struct PieceState {
    /// Behind what was shown last in this piece.
    shown: Option<usize>,
    /// Where lines were counted up to.
    counted: usize,
    line: u64,
    /// Up to this line the piece is text, as far as that is asked for.
    text_end: usize,
    left: u64,
    /// Lines to show behind the last selected one.
    pending: u64,
    quiet: bool,
    first_only: bool,
    is_wrong_text: bool,
    /// Lines that were selected before the first NUL.
    before_nul: Option<u64>,
    selected: u64,
    out_max: usize,
    is_over: bool,
    is_too_much: bool,
}

impl<'a> GrepEngine<'a> {
    pub fn new(options: &'a ArchiveGrepOptions, matcher: GrepMatcher) -> Self {
        let cache = matcher.longest.create_cache();
        let states = matcher.words.as_ref().map(WordSearch::states);
        let (out, name, zapped) = (Vec::new(), Vec::new(), Vec::new());
        Self { options, matcher, cache, states, out, name, piece: PieceState::default(), zapped }
    }

    /// Begins a file of this name, as it is shown.
    pub fn begin(&mut self, name: &[u8], out_max: usize) {
        let is_quick = matches!(
            self.options.output,
            ArchiveGrepOutput::PathsWith
                | ArchiveGrepOutput::PathsWithout
                | ArchiveGrepOutput::Quiet
        );
        let is_quiet = is_quick || self.options.output == ArchiveGrepOutput::Count;
        self.name.clear();
        self.name.extend_from_slice(name);
        self.piece = PieceState {
            left: self.options.lines_max.unwrap_or(u64::MAX),
            quiet: is_quiet,
            first_only: is_quick,
            out_max,
            is_over: self.options.lines_max == Some(0),
            ..PieceState::default()
        };
    }

    /// Searches a file that is in memory as a whole. Behind it is room for one byte more.
    pub fn whole(&mut self, buffer: &mut [u8], content: Range<usize>) {
        let Range { start, end } = content;
        if start == end {
            return;
        }
        let nul = if self.options.binary == GrepBinary::Text {
            None
        } else {
            memchr(0, &buffer[start..end])
        };
        // The next member may begin there, so the byte is put back at the end.
        let kept = buffer[end];
        buffer[end] = b'\n';
        // A line ends where there is a NUL, too.
        let has_end = buffer[end - 1] == b'\n' || (nul.is_some() && buffer[end - 1] == 0);
        let behind = if has_end { end } else { end + 1 };
        if let Some(nul) = nul {
            // What comes before the piece with the NUL is text.
            let piece = start + nul / PIECE_BYTES * PIECE_BYTES;
            let text = memrchr(b'\n', &buffer[start..piece]).map_or(start, |at| start + at + 1);
            let mut is_on = true;
            if text > start {
                is_on = self.piece(&buffer[start..text], 0);
            }
            if is_on && self.found_nul() {
                let mut zapped = std::mem::take(&mut self.zapped);
                zapped.clear();
                zapped.extend_from_slice(&buffer[text..behind]);
                zap(&mut zapped);
                self.piece(&zapped, 0);
                self.zapped = zapped;
            }
        } else {
            self.piece(&buffer[start..behind], 0);
        }
        buffer[end] = kept;
    }

    /// A NUL was met; whether the file is searched all the same.
    pub fn found_nul(&mut self) -> bool {
        if self.piece.before_nul.is_some() {
            return true;
        }
        if self.options.binary == GrepBinary::Without {
            self.piece.selected = 0;
            return false;
        }
        if self.options.output != ArchiveGrepOutput::Count {
            (self.piece.quiet, self.piece.first_only) = (true, true);
        }
        self.piece.before_nul = Some(self.piece.selected);
        true
    }

    pub fn has_nul(&self) -> bool {
        self.piece.before_nul.is_some()
    }

    /// Searches a piece of whole lines from a byte on; what is before it may be shown. Whether more of
    /// the file is looked at.
    pub fn piece(&mut self, buffer: &[u8], from: usize) -> bool {
        if self.piece.is_over {
            return false;
        }
        self.piece.shown = self.piece.shown.map(|_| 0);
        self.piece.counted = 0;
        self.piece.text_end = 0;
        if self.piece.left > 0 {
            let before = self.piece.left;
            self.lines(buffer, from);
            self.piece.selected += before - self.piece.left;
        }
        if self.piece.pending > 0 {
            self.show_pending(buffer, buffer.len());
        }
        let is_enough =
            self.piece.first_only && self.piece.before_nul.unwrap_or(0) < self.piece.selected;
        self.piece.is_over = (self.piece.left == 0 && self.piece.pending == 0)
            || is_enough
            || self.piece.is_too_much;
        !self.piece.is_over
    }

    /// How much of a piece that was searched is needed with the next one, which begins behind it: lines
    /// that may be shown before the next selected one. Those before are counted.
    pub fn keep(&mut self, buffer: &[u8]) -> usize {
        if self.options.number {
            self.count_lines(buffer, buffer.len());
        }
        let mut from = buffer.len();
        let least = self.piece.shown.unwrap_or(0);
        for _ in 0..self.options.before.unwrap_or(0) {
            if from <= least {
                break;
            }
            from = memrchr(b'\n', &buffer[..from - 1]).map_or(0, |at| at + 1);
        }
        // What is kept is counted again.
        if self.options.number {
            self.piece.line -= memchr_iter(b'\n', &buffer[from..]).count() as u64;
        }
        self.piece.shown = self.piece.shown.filter(|&shown| shown >= from);
        from
    }

    /// Ends the file, and adds what is said of it as a whole.
    pub fn end(&mut self) -> FileSearched {
        let lines = self.piece.selected;
        let is_used = !matches!(
            self.options.output,
            ArchiveGrepOutput::PathsWith
                | ArchiveGrepOutput::PathsWithout
                | ArchiveGrepOutput::Quiet
                | ArchiveGrepOutput::Count
        );
        let is_binary = is_used
            && self.options.binary == GrepBinary::Said
            && (self.piece.is_wrong_text
                || self.piece.before_nul.is_some_and(|before| before < lines));
        self.say_whole(lines);
        FileSearched { lines, is_binary, is_too_much: self.piece.is_too_much }
    }

    /// What is said of a file as a whole: its name, or how many lines were selected.
    fn say_whole(&mut self, lines: u64) {
        let is_listed = match self.options.output {
            ArchiveGrepOutput::PathsWith => lines > 0,
            ArchiveGrepOutput::PathsWithout => lines == 0,
            ArchiveGrepOutput::Count => {
                if self.options.names {
                    self.write_name();
                    if self.options.nul {
                        self.out.push(0);
                    } else {
                        self.colored(BETWEEN_COLOR, b":");
                    }
                }
                self.out.extend_from_slice(lines.to_string().as_bytes());
                self.out.push(b'\n');
                false
            }
            _ => false,
        };
        if is_listed {
            self.write_name();
            self.out.push(if self.options.nul { 0 } else { b'\n' });
        }
    }

    /// Says what is said of a file in which nothing can be found.
    pub fn nothing_in(&mut self, name: &[u8]) {
        self.name.clear();
        self.name.extend_from_slice(name);
        self.say_whole(0);
    }

    /// Whether lines are selected that have nothing in them.
    pub fn selects_empty_lines(&self) -> bool {
        self.next_text_line(b"\n", 0).is_some() != self.options.invert
    }

    /// The line from `from` on that matches next.
    fn next_line(&mut self, buffer: &[u8], from: usize) -> Option<Range<usize>> {
        if self.matcher.words.is_none() {
            return self.next_text_line(buffer, from);
        }
        let mut at = from;
        while at < buffer.len() {
            if self.piece.text_end <= at {
                self.piece.text_end = text_end(buffer, at);
            }
            let text_end = self.piece.text_end;
            if let Some(line) = self.next_text_line(&buffer[..text_end], at) {
                return Some(line);
            }
            if text_end == buffer.len() {
                return None;
            }
            let line = text_end..line_end(buffer, text_end);
            if self.is_in_other(&buffer[line.start..line.end - 1]) {
                return Some(line);
            }
            at = line.end;
        }
        None
    }

    /// The same among lines that are text, or where that is of no matter.
    fn next_text_line(&self, buffer: &[u8], from: usize) -> Option<Range<usize>> {
        let input = Input::new(buffer).span(from..buffer.len()).earliest(true);
        let end = self.matcher.regex.search_half(&input)?.offset();
        let start = memrchr(b'\n', &buffer[from..end]).map_or(from, |at| from + at + 1);
        // Behind the last line there is none.
        let len = memchr(b'\n', &buffer[end..])?;
        Some(start..end + len + 1)
    }

    /// Whether a line matches that is not text, without its end.
    fn is_in_other(&mut self, line: &[u8]) -> bool {
        let (Some(words), Some(states)) = (&self.matcher.words, &mut self.states) else {
            return false;
        };
        let span = Span { start: 0, end: line.len() };
        let required = self.matcher.required.as_ref();
        required.is_none_or(|required| required.find(line, span).is_some())
            && words.is_in(states, line)
    }

    fn lines(&mut self, buffer: &[u8], from: usize) {
        let mut at = from;
        while at < buffer.len() {
            let found = self.next_line(buffer, at);
            let (selected, next) = match (found, self.options.invert) {
                (Some(line), false) => (line.clone(), line.end),
                (None, false) => return,
                (Some(line), true) => (at..line.start, line.end),
                (None, true) => (at..buffer.len(), buffer.len()),
            };
            if !selected.is_empty() {
                self.show_selected(buffer, selected);
                if self.piece.left == 0 || self.piece.first_only || self.piece.is_too_much {
                    return;
                }
            }
            at = next;
        }
    }

    /// Shows selected lines, with those before them.
    fn show_selected(&mut self, buffer: &[u8], lines: Range<usize>) {
        if !self.piece.quiet && self.piece.pending > 0 {
            self.show_pending(buffer, lines.start);
        }
        if !self.piece.quiet {
            let least = self.piece.shown.unwrap_or(0);
            let mut at = lines.start;
            for _ in 0..self.options.before.unwrap_or(0) {
                if at > least {
                    at = memrchr(b'\n', &buffer[..at - 1]).map_or(0, |at| at + 1);
                }
            }
            let has_context = self.options.before.is_some() || self.options.after.is_some();
            if has_context && self.piece.shown != Some(at) {
                self.out.extend_from_slice(&separator(self.options));
            }
            while at < lines.start {
                let end = line_end(buffer, at);
                self.show(buffer, at..end, b'-');
                at = end;
            }
        }
        let (mut at, mut count) = (lines.start, 0);
        while at < lines.end && count < self.piece.left {
            let end = if self.options.invert { line_end(buffer, at) } else { lines.end };
            if !self.piece.quiet {
                self.show(buffer, at..end, b':');
            }
            at = end;
            count += 1;
            if self.piece.is_too_much || (self.piece.first_only && self.piece.quiet) {
                break;
            }
        }
        self.piece.pending =
            if self.piece.quiet { 0 } else { self.options.after.unwrap_or(0).into() };
        self.piece.left -= count;
    }

    fn show_pending(&mut self, buffer: &[u8], end: usize) {
        let mut at = *self.piece.shown.get_or_insert(0);
        while self.piece.pending > 0 && at < end {
            let line = at..line_end(buffer, at);
            at = line.end;
            self.show(buffer, line, b'-');
            self.piece.pending -= 1;
            if self.piece.shown != Some(at) {
                // One that is no text is not passed by.
                self.piece.pending = 0;
            }
        }
    }

    /// Shows a line: a selected one (`:`), or one beside it (`-`).
    fn show(&mut self, buffer: &[u8], line: Range<usize>, mark: u8) {
        let only_parts = self.options.output == ArchiveGrepOutput::Parts;
        if !only_parts && !self.head(buffer, line.clone(), line.end, mark) {
            return;
        }
        let has_matches = (mark == b':') != self.options.invert;
        let mut at = line.start;
        if has_matches && (only_parts || self.options.color) {
            let Some(shown) = self.parts(buffer, line.clone(), mark) else { return };
            at = shown;
        }
        if !only_parts {
            self.out.extend_from_slice(&buffer[at..line.end]);
        }
        self.piece.shown = Some(line.end);
        if self.out.len() > self.piece.out_max {
            self.piece.is_too_much = true;
        }
    }

    /// Shows the parts of a line that match, and without `-o` what is between them; where the rest
    /// begins.
    fn parts(&mut self, buffer: &[u8], line: Range<usize>, mark: u8) -> Option<usize> {
        let only_parts = self.options.output == ArchiveGrepOutput::Parts;
        let text = &buffer[line.start..line.end - 1];
        let (mut at, mut shown) = (0, 0);
        let is_text = self.matcher.words.is_none() || std::str::from_utf8(text).is_ok();
        while let Some(found) = self.longest(text, at, is_text) {
            if found.is_empty() {
                if found.start >= text.len() {
                    break;
                }
                at = found.start + 1;
                continue;
            }
            if only_parts {
                let part = line.start + found.start..line.start + found.end;
                if !self.head(buffer, part, line.end, mark) {
                    return None;
                }
            } else {
                self.out.extend_from_slice(&text[shown..found.start]);
            }
            self.colored(MATCH_COLOR, &text[found.start..found.end]);
            if only_parts {
                self.out.push(b'\n');
            }
            (at, shown) = (found.end, found.end);
        }
        Some(line.start + shown)
    }

    /// The first match in a line from a byte on, and of those that begin there the longest.
    fn longest(&mut self, text: &[u8], from: usize, is_text: bool) -> Option<Span> {
        if let (Some(words), Some(states), false) = (&self.matcher.words, &mut self.states, is_text)
        {
            return words.longest(states, text, from);
        }
        let input = Input::new(text).span(from..text.len());
        let found = self.matcher.regex.find(input.clone())?;
        if self.options.syntax == GrepSyntax::Perl {
            return Some(found.span());
        }
        let there = input.span(found.start()..text.len()).anchored(Anchored::Yes);
        let end = match (
            self.matcher.longest.try_search_fwd(&mut self.cache, &there),
            &mut self.states,
        ) {
            (Ok(Some(longest)), _) => longest.offset(),
            // It knows no words among characters that are not ASCII.
            (Err(_), Some(states)) => self
                .matcher
                .words
                .as_ref()
                .and_then(|words| words.longest_from(states, text, found.start()))
                .unwrap_or(found.end()),
            // One that needs more than it may is the first, not the longest.
            _ => found.end(),
        };
        Some(Span { start: found.start(), end })
    }

    /// What stands before a line. Nothing of a line that is no text, which makes the file binary.
    fn head(&mut self, buffer: &[u8], line: Range<usize>, end: usize, mark: u8) -> bool {
        if self.options.is_utf8
            && self.options.binary != GrepBinary::Text
            && std::str::from_utf8(&buffer[line.clone()]).is_err()
        {
            self.piece.is_wrong_text = true;
            return false;
        }
        if self.options.names {
            self.write_name();
            if self.options.nul {
                self.out.push(0);
            } else {
                self.colored(BETWEEN_COLOR, &[mark]);
            }
        }
        if self.options.number {
            if self.piece.counted < end {
                self.count_lines(buffer, line.start);
                self.piece.line += 1;
                self.piece.counted = end;
            }
            let number = self.piece.line.to_string();
            self.colored(NUMBER_COLOR, number.as_bytes());
            self.colored(BETWEEN_COLOR, &[mark]);
        }
        true
    }

    fn count_lines(&mut self, buffer: &[u8], up_to: usize) {
        let from = self.piece.counted.min(up_to);
        self.piece.line += memchr_iter(b'\n', &buffer[from..up_to]).count() as u64;
        self.piece.counted = self.piece.counted.max(up_to);
    }

    fn write_name(&mut self) {
        let name = std::mem::take(&mut self.name);
        // With a NUL behind them, names are for programs.
        if self.options.escape_names && !self.options.nul {
            let escaped = escaped(&name);
            self.colored(NAME_COLOR, escaped.as_bytes());
        } else {
            self.colored(NAME_COLOR, &name);
        }
        self.name = name;
    }

    fn colored(&mut self, color: &[u8], text: &[u8]) {
        if self.options.color {
            self.out.extend_from_slice(color);
            self.out.extend_from_slice(text);
            self.out.extend_from_slice(NO_COLOR);
        } else {
            self.out.extend_from_slice(text);
        }
    }
}

/// A name on one line that no terminal takes for a command.
fn escaped(name: &[u8]) -> String {
    let mut escaped = String::with_capacity(name.len());
    for c in String::from_utf8_lossy(name).chars() {
        if c.is_control() { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    escaped
}

/// What stands between groups of lines; also before the first of a file, where it is of use only if
/// something was shown before.
pub(super) fn separator(options: &ArchiveGrepOptions) -> Vec<u8> {
    if options.color { [BETWEEN_COLOR, b"--", NO_COLOR, b"\n"].concat() } else { b"--\n".to_vec() }
}

/// Has lines end where there is a NUL, lest a binary file be one endless line.
pub(super) fn zap(bytes: &mut [u8]) {
    let mut rest = bytes;
    while let Some(at) = memchr(0, rest) {
        rest[at] = b'\n';
        rest = &mut rest[at + 1..];
    }
}

/// Where the first line from a byte on begins that is not UTF-8.
fn text_end(buffer: &[u8], from: usize) -> usize {
    match std::str::from_utf8(&buffer[from..]) {
        Ok(_) => buffer.len(),
        Err(error) => {
            let end = from + error.valid_up_to();
            memrchr(b'\n', &buffer[from..end]).map_or(from, |at| from + at + 1)
        }
    }
}

fn line_end(buffer: &[u8], from: usize) -> usize {
    memchr(b'\n', &buffer[from..]).map_or(buffer.len(), |len| from + len + 1)
}
