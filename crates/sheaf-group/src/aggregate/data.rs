//! The data of an operation's members, on the way to one result.
use super::{ClassDigest, ClassState, Classes, Numbers};
use crate::entry::Merged;
use sheaf_core::varint::{self, Malformed};
use sheaf_core::{Errno, MemberSet, RangeSet};
use sheaf_tree::filter::FilterError;

/// Members' data side by side, for concatenation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Packed {
    /// `(leaf, local, bytes)`; sorted by leaf and local index once the wave is complete.
    pub items: Vec<(u32, u32, Vec<u8>)>,
    /// The most bytes there may be in all.
    pub bytes_max: u64,
    /// There were more, of so many bytes in all, which were dropped.
    pub exceeded: Option<u64>,
}

impl Packed {
    fn bytes(&self) -> u64 {
        self.items.iter().map(|(_, _, bytes)| bytes.len() as u64).sum()
    }

    /// One member's bytes, within the bound.
    #[must_use]
    pub fn of(leaf: u32, local: u32, bytes: Vec<u8>, bytes_max: u64) -> Self {
        let mut packed = Self { items: Vec::new(), bytes_max, exceeded: None };
        packed.merge(Self { items: vec![(leaf, local, bytes)], bytes_max, exceeded: None });
        packed
    }

    /// Takes in others', as far as there is room. What came before stays: a host that says that its
    /// own were too many drops no other's.
    fn merge(&mut self, other: Self) {
        self.bytes_max = self.bytes_max.max(other.bytes_max);
        let (have, more) = (self.bytes(), other.bytes());
        let mut dropped =
            self.exceeded.into_iter().chain(other.exceeded).reduce(u64::saturating_add);
        if have.saturating_add(more) > self.bytes_max {
            dropped = Some(dropped.unwrap_or(0).saturating_add(more));
        } else {
            self.items.extend(other.items);
        }
        self.exceeded = dropped;
    }
}

/// What an aggregation has combined so far.
#[derive(Debug, Default)]
pub(crate) enum Data {
    /// Nothing (`zero`, and operations without data).
    #[default]
    None,
    /// Contents side by side (`concatenate`, `packed`).
    Packed(Packed),
    /// Numbers by position (`sum`, `average`, `min`, `max`, `columns`).
    Numbers(Numbers),
    /// Contents by digest (`equivalence`, `equal`, `checksum`).
    Classes(Classes),
    /// Lines with the leaves that have them (`lines`).
    Lines(Box<Merged>),
}

impl PartialEq for Data {
    fn eq(&self, other: &Self) -> bool {
        let bytes = |data: &Self| {
            let mut out = Vec::new();
            data.encode(&mut out);
            out
        };
        bytes(self) == bytes(other)
    }
}

impl Data {
    /// One member's content as a class of its own.
    #[must_use]
    pub fn class(digest: ClassDigest, len: u64, members: MemberSet, body: Option<Vec<u8>>) -> Self {
        let mut classes = Classes::default();
        classes.add(digest, ClassState { len, members, body });
        Self::Classes(classes)
    }

    /// Whether it is combined with `other` into one: what has no data is with anything.
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, _) | (_, Self::None) => true,
            (Self::Lines(have), Self::Lines(more)) => have.is_like(more),
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// Whether it names no other leaves than these.
    pub fn is_of(&self, leaves: &RangeSet) -> bool {
        match self {
            Self::None => true,
            Self::Packed(packed) => packed.items.iter().all(|(leaf, ..)| leaves.contains(*leaf)),
            Self::Numbers(numbers) => numbers.is_of(leaves),
            Self::Classes(classes) => classes.is_of(leaves),
            Self::Lines(merged) => merged.is_of(leaves),
        }
    }

    /// The leaves that it names.
    pub fn leaves(&self) -> RangeSet {
        match self {
            Self::None => RangeSet::new(),
            Self::Packed(packed) => packed.items.iter().map(|(leaf, ..)| *leaf).collect(),
            Self::Numbers(numbers) => numbers.leaves(),
            Self::Classes(classes) => classes.leaves(),
            Self::Lines(merged) => merged.leaves(),
        }
    }

    /// Takes in another sub-tree's.
    ///
    /// # Errors
    /// `EPROTO` for different kinds, `EMSGSIZE` when lines or numbers exceed their bound.
    pub fn merge(&mut self, other: Self) -> Result<(), FilterError> {
        match (&mut *self, other) {
            (_, Self::None) => {}
            (Self::None, other) => *self = other,
            (Self::Packed(have), Self::Packed(more)) => have.merge(more),
            (Self::Numbers(have), Self::Numbers(more)) => have
                .merge(more)
                .map_err(|errno| FilterError::new(errno, "there are too many places of numbers"))?,
            (Self::Classes(have), Self::Classes(more)) => have.merge(more),
            (Self::Lines(have), Self::Lines(more)) => {
                let mut bytes = Vec::new();
                more.encode_partial(&mut bytes);
                have.fold_partial(&bytes)
                    .map_err(|error| FilterError::new(error.errno(), error.to_string()))?;
            }
            _ => {
                return Err(FilterError::new(
                    Errno::PROTO,
                    "members answered with different kinds of data",
                ));
            }
        }
        Ok(())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::None => out.push(0),
            Self::Packed(packed) => {
                out.push(1);
                varint::put(out, packed.bytes_max);
                varint::put(out, packed.exceeded.map_or(0, |bytes| bytes.saturating_add(1)));
                varint::put(out, packed.items.len() as u64);
                for (leaf, local, bytes) in &packed.items {
                    varint::put(out, u64::from(*leaf));
                    varint::put(out, u64::from(*local));
                    varint::put_bytes(out, bytes);
                }
            }
            Self::Numbers(numbers) => {
                out.push(2);
                numbers.encode(out);
            }
            Self::Classes(classes) => {
                out.push(3);
                classes.encode(out);
            }
            Self::Lines(merged) => {
                out.push(4);
                merged.encode_partial(out);
            }
        }
    }

    pub(super) fn decode(
        input: &mut &[u8],
        ranges_left: &mut u64,
        text_bytes_max: u64,
    ) -> Result<Self, Malformed> {
        let (&kind, rest) = input.split_first().ok_or(Malformed)?;
        *input = rest;
        Ok(match kind {
            0 => Self::None,
            1 => {
                let bytes_max = varint::get(input)?;
                let exceeded = varint::get(input)?.checked_sub(1);
                let mut items = Vec::new();
                for _ in 0..varint::get_len(input)? {
                    let (leaf, local) = (varint::get_u32(input)?, varint::get_u32(input)?);
                    items.push((leaf, local, varint::get_bytes(input)?.to_vec()));
                }
                Self::Packed(Packed { items, bytes_max, exceeded })
            }
            2 => Self::Numbers(Numbers::decode(input, ranges_left)?),
            3 => Self::Classes(Classes::decode(input, ranges_left)?),
            4 => {
                let mut merged = Merged::new().with_text_limit(text_bytes_max);
                merged.fold_partial(input).map_err(|_| Malformed)?;
                *input = &[];
                // What others have is bounded where all are folded.
                let merged = merged.with_text_limit(u64::MAX);
                Self::Lines(Box::new(merged))
            }
            _ => return Err(Malformed),
        })
    }
}
