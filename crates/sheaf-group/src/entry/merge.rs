//! Folding the answers of many leaves.
use super::wire::{self, Decoded};
use super::{Entry, EntryKind, EntryStats};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use sheaf_core::varint::{self, Malformed};
use sheaf_core::{Errno, RangeSet};
use std::hash::BuildHasher;

/// The most memory one node spends on merging one wave.
pub const MERGED_BYTES_MAX: usize = 512 << 20;

/// Why an answer could not be folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// The bytes are not an answer, or not a partial.
    #[error("malformed answer")]
    Malformed,
    /// Answers of two different forms were sent into one wave.
    #[error("answers of different forms cannot be merged")]
    Mixed,
    /// The distinct entries do not fit.
    #[error("the distinct entries of all hosts need more than {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
}

impl MergeError {
    /// The errno for the status of the members.
    #[must_use]
    pub fn errno(self) -> Errno {
        match self {
            Self::Malformed => Errno::BADMSG,
            Self::Mixed => Errno::PROTO,
            Self::TooLarge { .. } => Errno::MSGSIZE,
        }
    }
}

impl From<Malformed> for MergeError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// Equal entries of different leaves as one, with the set of those leaves.
///
/// The result depends only on which leaf answered what: any order of folding, and any tree of
/// partials in between, gives the same bytes. Entries are sorted by path, line number, position in
/// the file (the earliest over the leaves), first leaf, and text.
///
/// ```
/// use sheaf_group::entry::{Answer, AnswerForm, Entry, EntryKind, Merged, Sink};
/// let mut merged = Merged::new();
/// for leaf in 0..4 {
///     let mut answer = Answer::new(AnswerForm::default());
///     answer.path(b"/proc/meminfo");
///     let text = if leaf == 2 { "MemTotal: 2 kB" } else { "MemTotal: 1 kB" };
///     assert!(answer.entry(Entry::new(EntryKind::Line, text.as_bytes())).is_continue());
///     merged.fold_raw(leaf, &answer.into_bytes()).unwrap();
/// }
/// let sets: Vec<_> = merged.sorted().iter().map(|entry| entry.leaves.to_string()).collect();
/// assert_eq!(sets, ["0-1,3", "2"]);
/// ```
#[derive(Debug)]
pub struct Merged {
    /// Whether the position is part of the identity; `None` until something was folded.
    ordered: Option<bool>,
    /// What [`Self::ordered`] is to be, where that is known before.
    expected: Option<bool>,
    /// The bytes of all paths and texts.
    arena: Vec<u8>,
    paths: Vec<Span>,
    path_table: HashTable<u32>,
    slots: Vec<MergeSlot>,
    slot_table: HashTable<u32>,
    /// Seeded at random: hosts choose what they answer, and could choose what collides.
    hasher: DefaultHashBuilder,
    /// Ranges in the sets of all slots, for the limit.
    ranges: usize,
    stats: Option<EntryStats>,
    /// Added to the positions of what is folded, and the first above all there are.
    order_base: u64,
    order_end: u64,
    bytes_max: usize,
    /// The most bytes of paths and texts.
    text_bytes_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    at: u32,
    len: u32,
}

impl Span {
    fn of(self, arena: &[u8]) -> &[u8] {
        &arena[self.at as usize..][..self.len as usize]
    }
}

#[derive(Debug)]
struct MergeSlot {
    hash: u64,
    path: u32,
    kind: EntryKind,
    number: Option<u64>,
    order: u64,
    text: Span,
    leaves: RangeSet,
}

/// One entry of all leaves that have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergedEntry<'a> {
    /// The path, as the leaves named it.
    pub path: &'a [u8],
    /// Kind, number and text.
    pub entry: Entry<'a>,
    /// The leaves that have it.
    pub leaves: &'a RangeSet,
}

/// A path that failed on some leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MergedError<'a> {
    /// The path, as the leaves named it.
    pub path: &'a [u8],
    /// Why.
    pub errno: Errno,
    /// The member that has failed with it; empty when it is the path itself.
    pub beneath: &'a [u8],
    /// The leaves where it failed.
    pub leaves: &'a RangeSet,
}

impl Default for Merged {
    fn default() -> Self {
        Self::new()
    }
}

impl Merged {
    /// Nothing yet, and at most [`MERGED_BYTES_MAX`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(MERGED_BYTES_MAX)
    }

    /// Nothing yet, and at most about `bytes_max` bytes of memory.
    #[must_use]
    pub fn with_limit(bytes_max: usize) -> Self {
        Self {
            ordered: None,
            expected: None,
            arena: Vec::new(),
            paths: Vec::new(),
            path_table: HashTable::new(),
            slots: Vec::new(),
            slot_table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            ranges: 0,
            stats: None,
            order_base: 0,
            order_end: 0,
            // Spans are 32 bits wide.
            bytes_max: bytes_max.min(u32::MAX as usize),
            text_bytes_max: usize::MAX,
        }
    }

    /// The same with at most `text_bytes_max` bytes of paths and texts.
    #[must_use]
    pub fn with_text_limit(self, text_bytes_max: u64) -> Self {
        Self { text_bytes_max: usize::try_from(text_bytes_max).unwrap_or(usize::MAX), ..self }
    }

    /// The same for answers in which the position of an entry is part of its identity, or is not:
    /// answers of the other form are refused, whichever comes first.
    #[must_use]
    pub fn with_order(self, ordered: bool) -> Self {
        Self { ordered: Some(ordered), expected: Some(ordered), ..self }
    }

    /// Takes in the answer of one leaf.
    ///
    /// # Errors
    /// See [`MergeError`]; nothing has changed then.
    pub fn fold_raw(&mut self, leaf: u32, answer: &[u8]) -> Result<(), MergeError> {
        self.fold_raw_set(&RangeSet::single(leaf), answer)
    }

    /// What is folded from now on comes after what is there: the leaves' answers go on.
    pub fn next_batch(&mut self) {
        self.order_base = self.order_end;
    }

    /// Takes in one answer that all of `leaves` gave; costs what one leaf's answer costs.
    ///
    /// # Errors
    /// See [`MergeError`]; nothing has changed then.
    pub fn fold_raw_set(&mut self, leaves: &RangeSet, answer: &[u8]) -> Result<(), MergeError> {
        let mut decoded = wire::decode_answer(answer)?;
        if leaves.is_empty() {
            return Ok(());
        }
        decoded.sets.push(leaves.clone());
        self.fold(decoded, leaves.len())
    }

    /// Takes in what [`encode_partial`](Self::encode_partial) of another node gave.
    ///
    /// # Errors
    /// See [`MergeError`]; nothing has changed then.
    pub fn fold_partial(&mut self, partial: &[u8]) -> Result<(), MergeError> {
        let decoded = wire::decode_partial(partial)?;
        self.fold(decoded, 1)
    }

    /// Whether the two can be folded together.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.ordered.is_none() || other.ordered.is_none() || self.ordered == other.ordered
    }

    /// Whether all entries are of these leaves.
    pub(crate) fn is_of(&self, leaves: &RangeSet) -> bool {
        self.slots.iter().all(|slot| slot.leaves.is_subset(leaves))
    }

    /// Who has any entry.
    pub(crate) fn leaves(&self) -> RangeSet {
        let mut all = RangeSet::new();
        self.slots.iter().for_each(|slot| all.union_with(&slot.leaves));
        all
    }

    /// Appends all that was folded in the form for the parent. Equal content gives equal bytes.
    pub fn encode_partial(&self, out: &mut Vec<u8>) {
        let sorted = self.sorted_slots();
        let (sets, set_of) = distinct_sets(sorted.iter().map(|slot| &slot.leaves));
        let ordered = if self.ordered == Some(true) { wire::FORM_ORDERED } else { 0 };
        out.push(wire::FORM_PARTIAL | ordered);
        varint::put(out, sets.len() as u64);
        for set in sets {
            set.encode(out);
        }
        let mut at = 0;
        for section in sorted.chunk_by(|a, b| a.path == b.path) {
            out.push(wire::PATH);
            varint::put_bytes(out, self.paths[section[0].path as usize].of(&self.arena));
            let mut last = None;
            for slot in section {
                let set = Some(set_of[at]);
                at += 1;
                wire::put_partial_entry(
                    out,
                    &self.entry(slot),
                    slot.order,
                    set.filter(|_| set != last),
                );
                last = set;
            }
            out.push(wire::END);
        }
        if let Some(stats) = self.stats {
            out.push(wire::STATS);
            stats.encode(out);
        }
    }

    /// All entries that are not errors, in their order.
    #[must_use]
    pub fn sorted(&self) -> Vec<MergedEntry<'_>> {
        let slots = self.sorted_slots().into_iter().filter(|slot| slot.kind != EntryKind::Error);
        slots.map(|slot| self.merged(slot)).collect()
    }

    /// The paths that failed, why, and on which leaves.
    #[must_use]
    pub fn errors(&self) -> Vec<MergedError<'_>> {
        let slots = self.sorted_slots().into_iter().filter(|slot| slot.kind == EntryKind::Error);
        slots
            .map(|slot| {
                let number = slot.number.and_then(|number| i32::try_from(number).ok());
                let errno = number.map_or(Errno::IO, Errno);
                let path = self.paths[slot.path as usize].of(&self.arena);
                MergedError {
                    path,
                    errno,
                    beneath: slot.text.of(&self.arena),
                    leaves: &slot.leaves,
                }
            })
            .collect()
    }

    /// Takes out entries that are none of what was asked for, and returns the leaves that have said them.
    pub fn refuse(&mut self, is_answer: &dyn Fn(&Entry<'_>) -> bool) -> RangeSet {
        let mut wrong = RangeSet::new();
        let mut slots = std::mem::take(&mut self.slots);
        slots.retain(|slot| {
            let is_good = slot.kind == EntryKind::Error || is_answer(&self.entry(slot));
            if !is_good {
                wrong.union_with(&slot.leaves);
            }
            is_good
        });
        self.slots = slots;
        if !wrong.is_empty() {
            self.slot_table.clear();
            for (at, slot) in self.slots.iter().enumerate() {
                let rehash = |&other: &u32| self.slots[other as usize].hash;
                self.slot_table.insert_unique(slot.hash, at as u32, rehash);
            }
        }
        wrong
    }

    /// Whether any leaf selected anything: an entry that is neither an error nor a count of 0.
    #[must_use]
    pub fn has_selected(&self) -> bool {
        self.slots.iter().any(|slot| match slot.kind {
            EntryKind::Error => false,
            EntryKind::Count => slot.text.of(&self.arena) != b"0",
            _ => true,
        })
    }

    /// The sums, if any leaf kept them.
    #[must_use]
    pub fn stats(&self) -> Option<EntryStats> {
        self.stats
    }

    /// About how much memory it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.arena.len()
            + self.slots.len() * size_of::<MergeSlot>()
            + self.ranges * size_of::<(u32, u32)>()
            + self.paths.len() * size_of::<Span>()
    }

    /// How many distinct entries and errors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Forgets everything, for the next wave.
    pub fn clear(&mut self) {
        *self = Self {
            ordered: self.expected,
            expected: self.expected,
            text_bytes_max: self.text_bytes_max,
            ..Self::with_limit(self.bytes_max)
        };
    }

    fn fold(&mut self, mut decoded: Decoded<'_>, leaves: u64) -> Result<(), MergeError> {
        for record in &mut decoded.records {
            record.order = record.order.saturating_add(self.order_base);
        }
        let vacuous = decoded.records.is_empty();
        if !vacuous && self.ordered.is_some_and(|ordered| ordered != decoded.ordered) {
            return Err(MergeError::Mixed);
        }
        self.check_size(&decoded)?;
        if !vacuous {
            self.ordered = Some(decoded.ordered);
        }
        if let Some(stats) = decoded.stats {
            self.stats.get_or_insert_default().add(stats, leaves);
        }
        let mut paths: Vec<Option<u32>> = vec![None; decoded.paths.len()];
        // Answers that are much alike have their entries in the same order, so the entry behind the
        // one that was found last is the likeliest, and being it costs no look-up.
        let mut likely = 0;
        for record in &decoded.records {
            let path = *paths[record.path]
                .get_or_insert_with(|| self.intern_path(decoded.paths[record.path]));
            let (entry, leaves) = (&record.entry, &decoded.sets[record.set]);
            self.order_end = self.order_end.max(record.order.saturating_add(1));
            likely = 1 + self.fold_entry(likely, path, entry, record.order, leaves);
        }
        Ok(())
    }

    /// Which slot it is in.
    fn fold_entry(
        &mut self,
        likely: usize,
        path: u32,
        entry: &Entry<'_>,
        order: u64,
        leaves: &RangeSet,
    ) -> usize {
        let guess = self.slots.get(likely).filter(|slot| self.is_same(slot, path, entry, order));
        let (found, hash) = if guess.is_some() {
            (Some(likely), 0)
        } else {
            let hash = self.hash(path, entry, order);
            (self.find(hash, path, entry, order), hash)
        };
        if let Some(at) = found {
            let slot = &mut self.slots[at];
            let before = slot.leaves.ranges().len();
            slot.leaves.union_with(leaves);
            slot.order = slot.order.min(order);
            self.ranges = self.ranges + slot.leaves.ranges().len() - before;
            return at;
        }
        let text = push_span(&mut self.arena, entry.text);
        let (kind, number, at) = (entry.kind, entry.number, self.slots.len());
        self.ranges += leaves.ranges().len();
        self.slots.push(MergeSlot {
            hash,
            path,
            kind,
            number,
            order,
            text,
            leaves: leaves.clone(),
        });
        self.slot_table.insert_unique(hash, at as u32, |&other| self.slots[other as usize].hash);
        at
    }

    fn is_same(&self, slot: &MergeSlot, path: u32, entry: &Entry<'_>, order: u64) -> bool {
        (slot.path, slot.kind, slot.number) == (path, entry.kind, entry.number)
            && (self.ordered != Some(true) || slot.order == order)
            && slot.text.of(&self.arena) == entry.text
    }

    fn find(&self, hash: u64, path: u32, entry: &Entry<'_>, order: u64) -> Option<usize> {
        let found = self.slot_table.find(hash, |&index| {
            let slot = &self.slots[index as usize];
            slot.hash == hash && self.is_same(slot, path, entry, order)
        });
        found.map(|&index| index as usize)
    }

    fn hash(&self, path: u32, entry: &Entry<'_>, order: u64) -> u64 {
        let order = if self.ordered == Some(true) { order } else { 0 };
        self.hasher.hash_one((path, entry.kind as u8, entry.number, order, entry.text))
    }

    fn find_path(&self, hash: u64, path: &[u8]) -> Option<u32> {
        self.path_table
            .find(hash, |&index| self.paths[index as usize].of(&self.arena) == path)
            .copied()
    }

    fn intern_path(&mut self, path: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(path);
        if let Some(index) = self.find_path(hash, path) {
            return index;
        }
        let index = self.paths.len() as u32;
        self.paths.push(push_span(&mut self.arena, path));
        let (arena, paths, hasher) = (&self.arena, &self.paths, &self.hasher);
        let rehash = |&other: &u32| hasher.hash_one(paths[other as usize].of(arena));
        self.path_table.insert_unique(hash, index, rehash);
        index
    }

    /// Refuses what would not fit, before anything is changed. Looks entries up only when it
    /// would not fit if all were new.
    fn check_size(&self, decoded: &Decoded<'_>) -> Result<(), MergeError> {
        let texts = decoded.records.iter().map(|record| record.entry.text.len());
        let paths = decoded.paths.iter().map(|path| path.len());
        let ranges: usize = decoded
            .records
            .iter()
            .map(|record| size_of_val(decoded.sets[record.set].ranges()))
            .sum();
        let slots = decoded.records.len() * size_of::<MergeSlot>()
            + decoded.paths.len() * size_of::<Span>();
        let all = texts.chain(paths).sum();
        if self.fits(all, slots + ranges).is_ok() {
            return Ok(());
        }
        let known = |path: &[u8]| self.find_path(self.hasher.hash_one(path), path);
        let paths: Vec<_> = decoded.paths.iter().map(|path| known(path)).collect();
        let (mut text, mut rest) = (0, ranges);
        for record in &decoded.records {
            let old = paths[record.path].and_then(|path| {
                self.find(
                    self.hash(path, &record.entry, record.order),
                    path,
                    &record.entry,
                    record.order,
                )
            });
            if old.is_none() {
                text += record.entry.text.len();
                rest += size_of::<MergeSlot>();
            }
        }
        for (path, _) in decoded.paths.iter().zip(&paths).filter(|(_, known)| known.is_none()) {
            text += path.len();
            rest += size_of::<Span>();
        }
        self.fits(text, rest)
    }

    /// Whether there is room for so many bytes of text, and of what belongs to it.
    fn fits(&self, text: usize, rest: usize) -> Result<(), MergeError> {
        if self.arena.len() + text > self.text_bytes_max {
            return Err(MergeError::TooLarge { bytes_max: self.text_bytes_max });
        }
        if self.bytes() + text + rest > self.bytes_max {
            return Err(MergeError::TooLarge { bytes_max: self.bytes_max });
        }
        Ok(())
    }

    fn sorted_slots(&self) -> Vec<&MergeSlot> {
        let mut by_name: Vec<u32> = (0..self.paths.len() as u32).collect();
        by_name.sort_unstable_by_key(|&index| self.paths[index as usize].of(&self.arena));
        let mut rank = vec![0u32; by_name.len()];
        for (place, &index) in by_name.iter().enumerate() {
            rank[index as usize] = place as u32;
        }
        let mut slots: Vec<&MergeSlot> = self.slots.iter().collect();
        slots.sort_unstable_by(|a, b| {
            let place = |slot: &MergeSlot| {
                (rank[slot.path as usize], slot.number, slot.order, slot.leaves.first())
            };
            let text = |slot: &MergeSlot| slot.text;
            place(a).cmp(&place(b)).then_with(|| {
                (text(a).of(&self.arena), a.kind).cmp(&(text(b).of(&self.arena), b.kind))
            })
        });
        slots
    }

    fn entry(&self, slot: &MergeSlot) -> Entry<'_> {
        Entry { kind: slot.kind, number: slot.number, text: slot.text.of(&self.arena) }
    }

    fn merged<'a>(&'a self, slot: &'a MergeSlot) -> MergedEntry<'a> {
        let path = self.paths[slot.path as usize].of(&self.arena);
        MergedEntry { path, entry: self.entry(slot), leaves: &slot.leaves }
    }
}

fn push_span(arena: &mut Vec<u8>, bytes: &[u8]) -> Span {
    let span = Span { at: arena.len() as u32, len: bytes.len() as u32 };
    arena.extend_from_slice(bytes);
    span
}

/// The distinct sets in order of first use, and for each given set its place among them.
fn distinct_sets<'a>(all: impl Iterator<Item = &'a RangeSet>) -> (Vec<&'a RangeSet>, Vec<usize>) {
    let (mut sets, mut set_of): (Vec<&RangeSet>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut known: HashMap<&RangeSet, usize> = HashMap::new();
    for set in all {
        // Neighbours mostly have the same set; that needs no hash.
        let index = match set_of.last() {
            Some(&last) if sets[last] == set => last,
            _ => *known.entry(set).or_insert_with(|| {
                sets.push(set);
                sets.len() - 1
            }),
        };
        set_of.push(index);
    }
    (sets, set_of)
}
