//! A leaf's answer while it is written.
use super::{Entry, EntryKind, EntryStats, Sink, wire};
use hashbrown::{DefaultHashBuilder, HashTable};
use sheaf_core::{Errno, varint};
use std::hash::BuildHasher;
use std::ops::ControlFlow;

/// The most bytes one leaf may answer. What goes beyond is given up with `EMSGSIZE`.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;

/// How a leaf's answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerForm {
    /// The position of an entry in its file is part of its identity, so that a line that a file
    /// has twice stays twice (`--each`). Otherwise it is there once.
    pub ordered: bool,
    /// Keep the sums of [`Sink::stats`].
    pub stats: bool,
}

/// The answer of one leaf, as bytes that are equal exactly when the answers are.
///
/// ```
/// use sheaf_group::entry::{Answer, AnswerForm, Entry, EntryKind, Sink};
/// let mut answer = Answer::new(AnswerForm::default());
/// answer.path(b"/etc/services");
/// for text in [&b"domain 53/udp"[..], b"ntp 123/udp", b"domain 53/udp"] {
///     assert!(answer.entry(Entry::new(EntryKind::Line, text)).is_continue());
/// }
/// assert!(answer.into_bytes().len() < 50);
/// ```
#[derive(Debug)]
pub struct Answer {
    form: AnswerForm,
    out: Vec<u8>,
    path: Vec<u8>,
    section_open: bool,
    /// Where the texts without number of the open section are in `out`, to have each once.
    seen: HashTable<SeenDigests>,
    /// Seeded at random: whoever writes a file chooses its lines.
    hasher: DefaultHashBuilder,
    stats: EntryStats,
    /// What was named on this host and is being worked on; whatever fails, it has failed with it.
    member: Vec<u8>,
    failed: Vec<Vec<u8>>,
    /// How many errors were written.
    errors: u64,
    bytes_max: usize,
    overflowed: bool,
}

#[derive(Debug)]
struct SeenDigests {
    kind: EntryKind,
    at: usize,
    len: usize,
    hash: u64,
}

impl Answer {
    /// An empty answer of at most [`ANSWER_BYTES_MAX`].
    #[must_use]
    pub fn new(form: AnswerForm) -> Self {
        Self::with_limit(form, ANSWER_BYTES_MAX)
    }

    /// An empty answer of at most `bytes_max` bytes (and one error that says so).
    #[must_use]
    pub fn with_limit(form: AnswerForm, bytes_max: usize) -> Self {
        let ordered = if form.ordered { wire::FORM_ORDERED } else { 0 };
        Self {
            form,
            out: vec![wire::FORM_ANSWER | ordered],
            path: Vec::new(),
            section_open: false,
            seen: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            stats: EntryStats::default(),
            member: Vec::new(),
            failed: Vec::new(),
            errors: 0,
            bytes_max,
            overflowed: false,
        }
    }

    /// Bytes written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether there is neither an entry nor an error in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.out.len() == 1
    }

    /// Whether no sum was added to.
    pub(crate) fn has_no_stats(&self) -> bool {
        self.stats == EntryStats::default()
    }

    /// The bytes, for [`Merged::fold_raw`](super::Merged::fold_raw).
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.close_section();
        if self.form.stats {
            self.out.push(wire::STATS);
            self.stats.encode(&mut self.out);
        }
        self.out
    }

    /// What follows is about `member`, a path that was named: an error of any path beneath it makes
    /// it fail. Where it is empty, each path that fails is a member itself.
    pub fn of_member(&mut self, member: &[u8]) {
        if self.member != member {
            self.member.clear();
            self.member.extend_from_slice(member);
        }
    }

    /// The members that failed since this was asked last, each at least once.
    pub fn take_failed(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.failed)
    }

    /// How many errors were written.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors
    }

    fn close_section(&mut self) {
        if self.section_open {
            self.out.push(wire::END);
            self.section_open = false;
            self.seen.clear();
        }
    }

    fn open_section(&mut self) {
        if !self.section_open {
            self.out.push(wire::PATH);
            varint::put_bytes(&mut self.out, &self.path);
            self.section_open = true;
        }
    }

    fn overflow(&mut self) -> ControlFlow<()> {
        if !self.overflowed {
            self.overflowed = true;
            self.put_error(Errno::MSGSIZE);
        }
        ControlFlow::Break(())
    }

    /// Takes lines of a path: all, or none when they do not fit.
    ///
    /// # Errors
    /// `EMSGSIZE`.
    pub(crate) fn lines<'a>(
        &mut self,
        path: &[u8],
        lines: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), Errno> {
        self.path(path);
        let (len, section_open) = (self.out.len(), self.section_open);
        for line in lines {
            if self.entry(Entry::new(EntryKind::Line, line)).is_break() {
                self.out.truncate(len);
                self.seen.retain(|seen| seen.at < len);
                (self.section_open, self.overflowed) = (section_open, false);
                return Err(Errno::MSGSIZE);
            }
        }
        Ok(())
    }

    fn put_error(&mut self, errno: Errno) {
        self.errors += 1;
        self.open_section();
        let number = Some(u64::from(errno.0.unsigned_abs()));
        let beneath: &[u8] = if self.member == self.path { b"" } else { &self.member };
        wire::put_entry(&mut self.out, &Entry { kind: EntryKind::Error, number, text: beneath });
        let member = if beneath.is_empty() { &self.path } else { &self.member };
        if self.failed.last() != Some(member) {
            self.failed.push(member.clone());
        }
    }

    /// Whether an equal entry is in the open section already; if not, it is now taken to be.
    fn is_repeated(&mut self, entry: &Entry<'_>) -> bool {
        if self.form.ordered || entry.number.is_some() {
            return false;
        }
        let hash = self.hasher.hash_one((entry.kind as u8, entry.text));
        let out = &self.out;
        let same = |seen: &SeenDigests| {
            seen.hash == hash
                && seen.kind == entry.kind
                && out[seen.at..seen.at + seen.len] == *entry.text
        };
        if self.seen.find(hash, same).is_some() {
            return true;
        }
        // The text is written right behind the head byte and its own length.
        let at = self.out.len() + 1 + varint_len(entry.text.len());
        let seen = SeenDigests { kind: entry.kind, at, len: entry.text.len(), hash };
        self.seen.insert_unique(hash, seen, |seen| seen.hash);
        false
    }
}

fn varint_len(value: usize) -> usize {
    (value.max(1).ilog2() / 7 + 1) as usize
}

impl Sink for Answer {
    fn path(&mut self, path: &[u8]) {
        if self.path != path {
            self.close_section();
            self.path.clear();
            self.path.extend_from_slice(path);
        }
    }

    fn entry(&mut self, entry: Entry<'_>) -> ControlFlow<()> {
        /// More than the bytes of a head and two numbers.
        const OVERHEAD_BYTES_MAX: usize = 32;
        let opening = if self.section_open { 0 } else { self.path.len() };
        let wanted = entry.text.len() + opening + OVERHEAD_BYTES_MAX;
        if self.overflowed || self.bytes_max.saturating_sub(self.out.len()) < wanted {
            return self.overflow();
        }
        self.open_section();
        if !self.is_repeated(&entry) {
            wire::put_entry(&mut self.out, &entry);
        }
        ControlFlow::Continue(())
    }

    fn error(&mut self, path: &[u8], errno: Errno) {
        self.path(path);
        if self.overflowed || self.out.len() + path.len() + self.member.len() > self.bytes_max {
            // The tool hears of it with its next entry.
            let _ = self.overflow();
            return;
        }
        self.put_error(errno);
    }

    fn stats(&mut self, stats: EntryStats) {
        self.stats.add(stats, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &[u8]) -> Entry<'_> {
        Entry::new(EntryKind::Line, text)
    }

    #[test]
    fn repeated_line_is_kept_once_unless_order_counts() {
        let write = |ordered| {
            let mut answer = Answer::new(AnswerForm { ordered, stats: false });
            answer.path(b"/a");
            for text in [&b"x"[..], b"y", b"x", b""] {
                assert!(answer.entry(line(text)).is_continue());
            }
            let bytes = answer.into_bytes();
            wire::decode_answer(&bytes).unwrap().records.len()
        };
        assert_eq!((write(false), write(true)), (3, 4));
    }

    #[test]
    fn path_without_entries_leaves_no_trace() {
        let mut answer = Answer::new(AnswerForm::default());
        answer.path(b"/a");
        answer.path(b"/b");
        assert!(answer.is_empty());
    }

    #[test]
    fn beyond_the_limit_is_an_error_that_names_the_path() {
        let mut answer = Answer::with_limit(AnswerForm::default(), 200);
        answer.path(b"/big");
        let taken =
            (0..100u32).take_while(|n| answer.entry(line(&n.to_le_bytes())).is_continue()).count();
        assert!((1..100).contains(&taken));
        assert!(answer.entry(line(b"late")).is_break());
        answer.error(b"/other", Errno::NOENT);
        let bytes = answer.into_bytes();
        let decoded = wire::decode_answer(&bytes).unwrap();
        assert_eq!(decoded.records.len(), taken + 1);
        let last = decoded.records.last().unwrap();
        assert_eq!((last.entry.kind, last.entry.number), (EntryKind::Error, Some(90)));
        assert_eq!(decoded.paths, [b"/big"]);
    }

    #[test]
    fn lines_are_taken_all_or_not_at_all() {
        let mut answer = Answer::with_limit(AnswerForm::default(), 200);
        let texts = |count: u8| (0..count).map(|n| [n; 9]).collect::<Vec<_>>();
        let mut lines =
            |path: &[u8], count| answer.lines(path, texts(count).iter().map(|text| &text[..]));
        assert_eq!(lines(b"/a", 3), Ok(()));
        assert_eq!(lines(b"/a", 100), Err(Errno::MSGSIZE));
        assert_eq!(lines(b"/b", 100), Err(Errno::MSGSIZE));
        assert_eq!(lines(b"/c", 2), Ok(()));
        let bytes = answer.into_bytes();
        let decoded = wire::decode_answer(&bytes).unwrap();
        assert_eq!((decoded.paths.len(), decoded.records.len()), (2, 5));
        assert!(decoded.records.iter().all(|record| record.entry.kind == EntryKind::Line));
    }

    #[test]
    fn lengths_of_lengths() {
        for (value, len) in [(0, 1), (1, 1), (127, 1), (128, 2), (16383, 2), (16384, 3)] {
            assert_eq!(varint_len(value), len);
        }
    }
}
