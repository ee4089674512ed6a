//! An operation as it is stored.
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;

/// The operation of a row that stands for lost operations; [`TraceRow::bytes`] is their number.
pub const LOST: &[u8] = b"lost";

/// How the path of a file begins whose name could not be kept; a number follows, by which it is told from others.
pub const LOST_NAME: &[u8] = b"(name lost)";

/// An operation, or so many that were not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraceRow {
    /// When it began: the time of day, in ns since 1970.
    pub time_ns: i64,
    /// How long it took.
    pub duration_ns: i64,
    /// What it was ([`TraceNames`]); `lost` for operations that were not kept, `bytes` of them.
    pub op: u32,
    /// Who did it.
    pub layer: u32,
    /// On which host.
    pub host: u32,
    /// The program's command line.
    pub command: u32,
    /// On which file; the empty name for one that has none.
    pub path: u32,
    /// Where in the file.
    pub offset: Option<i64>,
    /// How many bytes it was asked for.
    pub asked: i64,
    /// How many it moved.
    pub bytes: i64,
    /// Why it failed; 0: it did not.
    pub errno: i32,
    /// The process.
    pub pid: i32,
    /// Its thread.
    pub thread: i32,
    /// Within an operation of a layer above.
    pub is_nested: bool,
    /// The new path of `rename` and `link`, and what a symbolic link says.
    pub new_path: Option<u32>,
}

/// A command line for people: its words, each of which ends with a zero byte in `words`, separated by
/// blanks.
#[must_use]
pub fn command_line(words: &[u8]) -> Vec<u8> {
    let words = words.strip_suffix(&[0]).unwrap_or(words);
    words.iter().map(|&byte| if byte == 0 { b' ' } else { byte }).collect()
}

impl TraceRow {
    /// The numbers of all its names.
    pub fn names(&self) -> impl Iterator<Item = u32> {
        [self.op, self.layer, self.host, self.command, self.path].into_iter().chain(self.new_path)
    }

    /// Mutable references to the numbers of all its names.
    pub fn names_mut(&mut self) -> impl Iterator<Item = &mut u32> {
        [&mut self.op, &mut self.layer, &mut self.host, &mut self.command, &mut self.path]
            .into_iter()
            .chain(&mut self.new_path)
    }
}

/// Texts, each kept once: rows have their numbers.
#[derive(Debug, Clone, Default)]
pub struct TraceNames {
    /// One behind the other.
    texts: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
    numbers: HashTable<u32>,
}

impl TraceNames {
    /// The number of a text.
    pub fn number(&mut self, text: &[u8]) -> u32 {
        if let Some(number) = self.find(text) {
            return number;
        }
        let number = u32::try_from(self.ends.len()).expect("fewer than 2³² names fit in memory");
        self.texts.extend_from_slice(text);
        self.ends.push(self.texts.len());
        let (texts, ends) = (&self.texts, &self.ends);
        self.numbers.insert_unique(hash(text), number, |&number| hash(of(texts, ends, number)));
        number
    }

    /// The number of a text, if it has one.
    #[must_use]
    pub fn find(&self, text: &[u8]) -> Option<u32> {
        self.numbers.find(hash(text), |&number| self.text(number) == text).copied()
    }

    /// The text of a number that this gave.
    #[must_use]
    pub fn text(&self, number: u32) -> &[u8] {
        of(&self.texts, &self.ends, number)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// What they take in memory, nearly: what finds them is counted by the piece.
    #[must_use]
    pub fn bytes(&self) -> usize {
        const EACH: usize = size_of::<usize>() + 2 * size_of::<u32>();
        self.texts.len() + self.ends.len() * EACH
    }
}

fn of<'a>(texts: &'a [u8], ends: &[usize], number: u32) -> &'a [u8] {
    let number = number as usize;
    let begin = number.checked_sub(1).map_or(0, |before| ends[before]);
    &texts[begin..ends[number]]
}

fn hash(text: &[u8]) -> u64 {
    FxBuildHasher.hash_one(text)
}
