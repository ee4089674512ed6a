//! Who contributed to a wave, and who did not and why.
use crate::frame::{Kind, Violation};
use sheaf_core::varint::{self, Malformed};
use sheaf_core::{Errno, RangeSet};
use std::sync::Arc;

/// Of a contribution that names a leaf which is counted already.
pub(crate) const COUNTED_TWICE: Violation = Violation::Bound("a contribution counts a leaf twice");

/// Who contributed to what a wave holds, and who did not and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Leaves whose answer is in the payload.
    pub ok: Arc<RangeSet>,
    /// Leaves that answered with an error, or whose answer a filter could not combine.
    pub failed: Vec<(Errno, RangeSet)>,
    /// Leaves that gave no answer: lost, too late, cancelled.
    pub silent: Vec<(Errno, RangeSet)>,
}

impl Coverage {
    /// Whether every leaf contributed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.failed.is_empty() && self.silent.is_empty()
    }

    /// Every leaf that failed or stayed silent.
    #[must_use]
    pub fn missing(&self) -> RangeSet {
        let mut all = RangeSet::new();
        for (_, leaves) in self.failed.iter().chain(&self.silent) {
            all.union_with(leaves);
        }
        all
    }

    pub(crate) fn everyone(&self) -> RangeSet {
        let mut all = self.missing();
        all.union_with(&self.ok);
        all
    }

    fn add(list: &mut Vec<(Errno, RangeSet)>, errno: Errno, leaves: &RangeSet) {
        if leaves.is_empty() {
            return;
        }
        match list.binary_search_by_key(&errno, |(have, _)| *have) {
            Ok(at) => list[at].1.union_with(leaves),
            Err(at) => list.insert(at, (errno, leaves.clone())),
        }
    }

    /// Counts `leaves` as failed with `errno`.
    pub fn fail(&mut self, errno: Errno, leaves: &RangeSet) {
        Self::add(&mut self.failed, errno, leaves);
    }

    /// Counts `leaves` as silent because of `errno`.
    pub fn silence(&mut self, errno: Errno, leaves: &RangeSet) {
        Self::add(&mut self.silent, errno, leaves);
    }

    /// Takes in what `other` covers.
    pub fn merge(&mut self, other: &Self) {
        if !other.ok.is_empty() {
            Arc::make_mut(&mut self.ok).union_with(&other.ok);
        }
        for (errno, leaves) in &other.failed {
            self.fail(*errno, leaves);
        }
        for (errno, leaves) in &other.silent {
            self.silence(*errno, leaves);
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.ok.encode(out);
        for list in [&self.failed, &self.silent] {
            varint::put(out, list.len() as u64);
            for (errno, leaves) in list {
                varint::put(out, u64::from(errno.0.unsigned_abs()));
                leaves.encode(out);
            }
        }
    }

    /// Takes a coverage off the front of `input`; each of its leaves must be one of `within`, and
    /// counted once. (That also bounds what a few forged bytes can make this allocate.)
    pub(crate) fn decode(input: &mut &[u8], within: &RangeSet) -> Result<Self, Violation> {
        let body = |_: Malformed| Violation::Body(Kind::Up);
        let ok = Self::decode_set(input, within)?;
        let mut seen = ok.clone();
        let mut cover = Self { ok: Arc::new(ok), ..Self::default() };
        for list in [&mut cover.failed, &mut cover.silent] {
            for _ in 0..varint::get_len(input).map_err(body)? {
                let number = varint::get(input).map_err(body)?;
                let errno = Errno(i32::try_from(number).map_err(|_| Violation::Body(Kind::Up))?);
                let leaves = Self::decode_set(input, within)?;
                if !seen.is_disjoint(&leaves) {
                    return Err(COUNTED_TWICE);
                }
                seen.union_with(&leaves);
                Self::add(list, errno, &leaves);
            }
        }
        Ok(cover)
    }

    fn decode_set(input: &mut &[u8], within: &RangeSet) -> Result<RangeSet, Violation> {
        let leaves = RangeSet::decode(input).map_err(|_| Violation::Body(Kind::Up))?;
        if !leaves.is_subset(within) {
            return Err(Violation::Bound(
                "a contribution names leaves that are not below its sender",
            ));
        }
        Ok(leaves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn coverage_round_trips_and_garbage_never_panics(
            ok in proptest::collection::btree_set(0u32..50, 0..20),
            silent in proptest::collection::btree_set(50u32..90, 0..20),
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let mut cover = Coverage { ok: Arc::new(ok.into_iter().collect()), ..Coverage::default() };
            cover.silence(Errno::HOSTDOWN, &silent.into_iter().collect());
            let mut wire = Vec::new();
            cover.encode(&mut wire);
            prop_assert_eq!(Coverage::decode(&mut &wire[..], &RangeSet::full(90)), Ok(cover.clone()));
            if !cover.ok.is_empty() {
                prop_assert!(Coverage::decode(&mut &wire[..], &RangeSet::from_range(50, 90)).is_err());
            }
            let _ = Coverage::decode(&mut &bytes[..], &RangeSet::full(90));
        }
    }
}
