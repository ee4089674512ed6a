//! An operation as it is stored.
use std::collections::HashMap;

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
}

/// Texts, each kept once: rows have their numbers.
#[derive(Debug, Clone, Default)]
pub struct TraceNames {
    texts: Vec<Vec<u8>>,
    numbers: HashMap<Vec<u8>, u32>,
}

impl TraceNames {
    /// The number of a text.
    pub fn number(&mut self, text: &[u8]) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = u32::try_from(self.texts.len()).expect("fewer than 2³² names fit in memory");
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    /// The number of a text, if it has one.
    #[must_use]
    pub fn find(&self, text: &[u8]) -> Option<u32> {
        self.numbers.get(text).copied()
    }

    /// The text of a number that this gave.
    #[must_use]
    pub fn text(&self, number: u32) -> &[u8] {
        &self.texts[number as usize]
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}
