//! The bytes of answers and of partials.
//!
//! ```text
//! answer  := form section* [STATS stats]
//! section := PATH path entry* END
//! entry   := head [number] text            head = kind | HAS_NUMBER
//!
//! partial := form n set{n} psection* [STATS stats]
//! psection:= PATH path pentry* END
//! pentry  := head [number] order [set] text   head = kind | HAS_NUMBER | SAME_SET
//! ```
//! Numbers are variable-length integers; `path` and `text` are a length and bytes; `set` in an
//! entry is an index into the sets at the front, left out when it is that of the entry before.
//! In an answer an entry's order is its position in its section and so needs no bytes.
use super::{Entry, EntryKind, EntryStats};
use sheaf_core::varint::{self, Malformed};
use sheaf_core::{RANGES_MAX, RangeSet};

pub const END: u8 = 0;
pub const PATH: u8 = 1;
pub const STATS: u8 = 2;

pub const FORM_ANSWER: u8 = 0x10;
pub const FORM_PARTIAL: u8 = 0x20;
pub const FORM_ORDERED: u8 = 0x01;

const KIND: u8 = 0x07;
const HAS_NUMBER: u8 = 0x08;
const SAME_SET: u8 = 0x10;

/// One decoded entry, with the path and the set it refers to by position.
pub struct Record<'a> {
    pub path: usize,
    pub set: usize,
    pub order: u64,
    pub entry: Entry<'a>,
}

/// Decoded bytes, borrowed from the input and checked to the end.
pub struct Decoded<'a> {
    pub ordered: bool,
    pub paths: Vec<&'a [u8]>,
    pub sets: Vec<RangeSet>,
    pub records: Vec<Record<'a>>,
    pub stats: Option<EntryStats>,
}

pub fn put_entry(out: &mut Vec<u8>, entry: &Entry<'_>) {
    put_head(out, entry, 0);
    varint::put_bytes(out, entry.text);
}

fn put_head(out: &mut Vec<u8>, entry: &Entry<'_>, flags: u8) {
    let numbered = if entry.number.is_some() { HAS_NUMBER } else { 0 };
    out.push(entry.kind as u8 | numbered | flags);
    if let Some(number) = entry.number {
        varint::put(out, number);
    }
}

/// `set` is `None` when it is the set of the entry before.
pub fn put_partial_entry(out: &mut Vec<u8>, entry: &Entry<'_>, order: u64, set: Option<usize>) {
    put_head(out, entry, if set.is_none() { SAME_SET } else { 0 });
    varint::put(out, order);
    if let Some(set) = set {
        varint::put(out, set as u64);
    }
    varint::put_bytes(out, entry.text);
}

/// Reads a leaf's answer; every entry refers to set 0, which the caller knows.
pub fn decode_answer(input: &[u8]) -> Result<Decoded<'_>, Malformed> {
    decode(input, FORM_ANSWER)
}

/// Reads a partial.
pub fn decode_partial(input: &[u8]) -> Result<Decoded<'_>, Malformed> {
    decode(input, FORM_PARTIAL)
}

fn decode(mut input: &[u8], form: u8) -> Result<Decoded<'_>, Malformed> {
    let input = &mut input;
    let head = get_byte(input)?;
    if head & !FORM_ORDERED != form {
        return Err(Malformed);
    }
    let partial = form == FORM_PARTIAL;
    let sets = if partial { decode_sets(input)? } else { Vec::new() };
    let mut decoded = Decoded {
        ordered: head & FORM_ORDERED != 0,
        paths: Vec::new(),
        sets,
        records: Vec::new(),
        stats: None,
    };
    while !input.is_empty() {
        match get_byte(input)? {
            PATH => {
                decoded.paths.push(varint::get_bytes(input)?);
                decode_section(input, partial, &mut decoded)?;
            }
            STATS if decoded.stats.is_none() => decoded.stats = Some(EntryStats::decode(input)?),
            _ => return Err(Malformed),
        }
    }
    Ok(decoded)
}

fn decode_sets(input: &mut &[u8]) -> Result<Vec<RangeSet>, Malformed> {
    let count = varint::get_len(input)?;
    let (mut sets, mut ranges_left) = (Vec::new(), RANGES_MAX);
    for _ in 0..count {
        let set = RangeSet::decode_within(input, &mut ranges_left)?;
        if set.is_empty() {
            return Err(Malformed);
        }
        sets.push(set);
    }
    Ok(sets)
}

fn decode_section<'a>(
    input: &mut &'a [u8],
    partial: bool,
    decoded: &mut Decoded<'a>,
) -> Result<(), Malformed> {
    let (path, mut set, mut position) = (decoded.paths.len() - 1, None, 0);
    loop {
        let head = get_byte(input)?;
        if head == END {
            return Ok(());
        }
        let known = KIND | HAS_NUMBER | if partial { SAME_SET } else { 0 };
        let kind =
            EntryKind::from_bits(head & KIND).filter(|_| head & !known == 0).ok_or(Malformed)?;
        let number = if head & HAS_NUMBER != 0 { Some(varint::get(input)?) } else { None };
        let order = if partial { varint::get(input)? } else { position };
        if partial && head & SAME_SET == 0 {
            let index = varint::get(input)?;
            set = Some(
                usize::try_from(index)
                    .ok()
                    .filter(|&at| at < decoded.sets.len())
                    .ok_or(Malformed)?,
            );
        }
        let set = if partial { set.ok_or(Malformed)? } else { 0 };
        let text = varint::get_bytes(input)?;
        decoded.records.push(Record { path, set, order, entry: Entry { kind, number, text } });
        position += 1;
    }
}

fn get_byte(input: &mut &[u8]) -> Result<u8, Malformed> {
    let (&byte, rest) = input.split_first().ok_or(Malformed)?;
    *input = rest;
    Ok(byte)
}
