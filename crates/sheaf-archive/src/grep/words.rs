//! Words in lines that are not all characters.
//!
//! The `regex` crates find no place that is none of a word's beside a byte that is no UTF-8. GNU grep does:
//! with `-w` such a byte is no part of a word, and for `\b` and its like it is what it is in Latin-1. Lines
//! with such bytes are searched here, if the pattern asks for words: all states at once, byte by byte.
use super::ArchiveGrepOptions;
use super::GrepSyntax;
use regex_automata::Span;
use regex_automata::nfa::thompson::{BuildError, Compiler, Config, NFA, State, WhichCaptures};
use regex_automata::util::look::{Look, LookMatcher};
use regex_automata::util::primitives::StateID;
use regex_syntax::hir::Hir;

/// Searches one line.
#[derive(Clone, Debug)]
pub(super) struct WordSearch {
    nfa: NFA,
    looks: LookMatcher,
    is_perl: bool,
}

/// The states of a search.
#[derive(Clone, Debug)]
pub(super) struct WordStates {
    now: StateSet,
    next: StateSet,
    stack: Vec<StateID>,
}

/// Some states, in the order in which they came.
#[derive(Clone, Debug)]
struct StateSet {
    ids: Vec<StateID>,
    has: Vec<bool>,
}

impl StateSet {
    fn new(len: usize) -> Self {
        Self { ids: Vec::new(), has: vec![false; len] }
    }

    fn clear(&mut self) {
        for id in self.ids.drain(..) {
            self.has[id.as_usize()] = false;
        }
    }

    /// Whether it is new.
    fn insert(&mut self, id: StateID) -> bool {
        let is_new = !std::mem::replace(&mut self.has[id.as_usize()], true);
        if is_new {
            self.ids.push(id);
        }
        is_new
    }
}

impl WordSearch {
    /// Nothing for patterns that ask for no words, or for bytes.
    pub fn new(
        hir: &Hir,
        options: &ArchiveGrepOptions,
        size_max: usize,
    ) -> Result<Option<Self>, Box<BuildError>> {
        if !hir.properties().look_set().contains_word_unicode() {
            return Ok(None);
        }
        let config = Config::new()
            .utf8(false)
            .nfa_size_limit(Some(size_max))
            .which_captures(WhichCaptures::None);
        let nfa = Compiler::new().configure(config).build_from_hir(hir)?;
        let is_perl = options.syntax == GrepSyntax::Perl;
        Ok(Some(Self { nfa, looks: LookMatcher::new(), is_perl }))
    }

    pub fn states(&self) -> WordStates {
        let len = self.nfa.states().len();
        WordStates { now: StateSet::new(len), next: StateSet::new(len), stack: Vec::new() }
    }

    /// Whether anything in a line matches.
    pub fn is_in(&self, states: &mut WordStates, line: &[u8]) -> bool {
        self.first_end(states, line, 0).is_some()
    }

    /// The first match in a line from a byte on, and of those that begin there the longest.
    pub fn longest(&self, states: &mut WordStates, line: &[u8], from: usize) -> Option<Span> {
        let last = self.first_end(states, line, from)?;
        let mut starts = (from..=last).filter(|&at| is_between(line, at));
        starts.find_map(|start| {
            let end = self.longest_from(states, line, start)?;
            Some(Span { start, end })
        })
    }

    /// Where a match ends first that begins from a byte on.
    fn first_end(&self, states: &mut WordStates, line: &[u8], from: usize) -> Option<usize> {
        states.now.clear();
        for at in from..=line.len() {
            let has_match = is_between(line, at)
                && add(
                    self,
                    &mut states.now,
                    &mut states.stack,
                    self.nfa.start_anchored(),
                    line,
                    at,
                );
            if has_match || (at < line.len() && self.step(states, line, at)) {
                return Some(if has_match { at } else { at + 1 });
            }
        }
        None
    }

    /// Where the longest match ends that begins at a byte.
    pub fn longest_from(&self, states: &mut WordStates, line: &[u8], from: usize) -> Option<usize> {
        states.now.clear();
        let start = self.nfa.start_anchored();
        let is_empty = add(self, &mut states.now, &mut states.stack, start, line, from);
        let mut longest = is_empty.then_some(from);
        for at in from..line.len() {
            if states.now.ids.is_empty() {
                break;
            }
            if self.step(states, line, at) {
                longest = Some(at + 1);
            }
        }
        longest
    }

    /// Goes on by a byte. Whether something matches up to behind it.
    fn step(&self, states: &mut WordStates, line: &[u8], at: usize) -> bool {
        let WordStates { now, next, stack } = states;
        next.clear();
        let mut has_match = false;
        for &id in &now.ids {
            let to = match self.nfa.state(id) {
                State::ByteRange { trans } => {
                    Some(trans.next).filter(|_| trans.matches_byte(line[at]))
                }
                State::Sparse(sparse) => sparse.matches_byte(line[at]),
                State::Dense(dense) => dense.matches_byte(line[at]),
                _ => None,
            };
            if let Some(to) = to {
                has_match |= add(self, next, stack, to, line, at + 1);
            }
        }
        std::mem::swap(now, next);
        has_match
    }

    /// Whether a place is what a pattern asks for.
    fn holds(&self, look: Look, line: &[u8], at: usize) -> bool {
        let before = |of_bytes| {
            let byte = at.checked_sub(1).and_then(|at| line.get(at).copied());
            is_word(char_before(line, at), byte.filter(|_| of_bytes))
        };
        let after =
            |of_bytes| is_word(first_char(&line[at..]), line.get(at).copied().filter(|_| of_bytes));
        let of_bytes = !self.is_perl;
        match look {
            Look::WordUnicode => before(of_bytes) != after(of_bytes),
            Look::WordUnicodeNegate => before(of_bytes) == after(of_bytes),
            Look::WordStartUnicode => !before(of_bytes) && after(of_bytes),
            Look::WordEndUnicode => before(of_bytes) && !after(of_bytes),
            // Those of `-w`.
            Look::WordStartHalfUnicode => !before(false),
            Look::WordEndHalfUnicode => !after(false),
            look => self.looks.matches(look, line, at),
        }
    }
}

/// Adds a state, and all that follow it without a byte. Whether one of them is the end of a match.
fn add(
    search: &WordSearch,
    to: &mut StateSet,
    stack: &mut Vec<StateID>,
    state: StateID,
    line: &[u8],
    at: usize,
) -> bool {
    let mut has_match = false;
    stack.push(state);
    while let Some(id) = stack.pop() {
        if !to.insert(id) {
            continue;
        }
        match search.nfa.state(id) {
            State::Look { look, next } if search.holds(*look, line, at) => stack.push(*next),
            State::Union { alternates } => stack.extend(alternates.iter()),
            State::BinaryUnion { alt1, alt2 } => stack.extend([*alt1, *alt2]),
            State::Capture { next, .. } => stack.push(*next),
            State::Match { .. } => has_match = true,
            _ => {}
        }
    }
    has_match
}

/// The character that bytes begin with, if it is one.
pub(super) fn first_char(bytes: &[u8]) -> Option<char> {
    let most = &bytes[..bytes.len().min(4)];
    let text = match std::str::from_utf8(most) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&most[..error.valid_up_to()]).ok()?,
    };
    text.chars().next()
}

/// The character that ends before a byte, if it is one.
fn char_before(line: &[u8], at: usize) -> Option<char> {
    let starts = (at.saturating_sub(4)..at).rev();
    let mut all = starts
        .filter_map(|start| first_char(&line[start..at]).filter(|c| start + c.len_utf8() == at));
    all.next()
}

/// Whether a byte is not within a character.
fn is_between(line: &[u8], at: usize) -> bool {
    let is_behind = line.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    !is_behind
        || !(at.saturating_sub(3)..at)
            .any(|start| first_char(&line[start..]).is_some_and(|c| start + c.len_utf8() > at))
}

/// Whether a character is of a word, or the byte that there is where there is none, in Latin-1.
fn is_word(c: Option<char>, byte: Option<u8>) -> bool {
    c.or(byte.map(char::from)).is_some_and(regex_syntax::is_word_character)
}
