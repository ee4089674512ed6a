//! Equivalence: members with the same content are one class, told apart by digest first.
use sheaf_core::varint::{self, Malformed};
use sheaf_core::{MemberSet, RangeSet};
use std::collections::BTreeMap;

/// A BLAKE3 digest.
pub type ClassDigest = [u8; 32];

/// The members with one content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClassState {
    /// Bytes of the content.
    pub len: u64,
    /// Who has it.
    pub members: MemberSet,
    /// The content, where it came along.
    pub body: Option<Vec<u8>>,
}

/// Whether this is the content with this digest and length.
pub(crate) fn is_of(body: &[u8], digest: &[u8], len: u64) -> bool {
    body.len() as u64 == len && blake3::hash(body).as_bytes()[..] == *digest
}

/// Classes by digest and length. A host that announces another length with the digest of others has
/// a class of its own, and spoils none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Classes {
    classes: BTreeMap<(ClassDigest, u64), ClassState>,
}

impl Classes {
    /// Takes in members with one content. One body per content is kept.
    pub fn add(&mut self, digest: ClassDigest, class: ClassState) {
        match self.classes.entry((digest, class.len)) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(class);
            }
            std::collections::btree_map::Entry::Occupied(mut have) => {
                let have = have.get_mut();
                have.members.union_with(&class.members);
                if have.body.is_none() {
                    have.body = class.body;
                }
            }
        }
    }

    /// Takes in those of another sub-tree.
    pub fn merge(&mut self, other: Self) {
        for ((digest, _), class) in other.classes {
            self.add(digest, class);
        }
    }

    /// How many contents.
    #[must_use]
    pub fn len(&self) -> usize {
        self.classes.len()
    }

    /// Whether all members are of these leaves.
    pub fn is_of(&self, leaves: &RangeSet) -> bool {
        self.classes.values().all(|class| class.members.is_of(leaves))
    }

    /// Who has a content.
    pub fn leaves(&self) -> RangeSet {
        let mut all = RangeSet::new();
        self.classes.values().for_each(|class| all.union_with(&class.members.leaves()));
        all
    }

    /// Leaves with more than one content.
    pub fn leaves_with_several(&self) -> RangeSet {
        let each = self.classes.values().map(|class| class.members.leaves());
        let mut ranges: Vec<(u32, u32)> =
            each.flat_map(|leaves| leaves.ranges().to_vec()).collect();
        ranges.sort_unstable();
        let (mut several, mut end) = (RangeSet::new(), None);
        for (first, last) in ranges {
            if let Some(end) = end.filter(|end| first <= *end) {
                several.insert_range(first, last.min(end));
            }
            end = end.max(Some(last));
        }
        several
    }

    /// Removes all members of these leaves, and the contents that nobody has then.
    pub fn remove_leaves(&mut self, leaves: &RangeSet) {
        self.classes.values_mut().for_each(|class| class.members.remove_leaves(leaves));
        self.classes.retain(|_, class| !class.members.is_empty());
    }

    /// The members of each content that is not empty.
    pub fn said(&self) -> impl Iterator<Item = &MemberSet> {
        self.classes.values().filter(|class| class.len > 0).map(|class| &class.members)
    }

    /// Whether a member has more than one content.
    fn has_member_twice(&self) -> bool {
        let members = self.classes.values().flat_map(|class| class.members.by_local());
        let mut ranges: Vec<(u32, (u32, u32))> = members
            .flat_map(|(local, leaves)| leaves.ranges().iter().map(|range| (*local, *range)))
            .collect();
        ranges.sort_unstable();
        ranges.windows(2).any(|two| two[0].0 == two[1].0 && two[1].1.0 <= two[0].1.1)
    }

    /// Takes them apart, the class with the lowest member first.
    #[must_use]
    pub fn into_sorted(self) -> Vec<(ClassDigest, ClassState)> {
        let all = self.classes.into_iter().map(|((digest, _), class)| (digest, class));
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|(digest, class)| (class.members.first(), *digest));
        all
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        varint::put(out, self.classes.len() as u64);
        for ((digest, _), class) in &self.classes {
            out.extend_from_slice(digest);
            varint::put(out, class.len);
            class.members.encode(out);
            match &class.body {
                None => out.push(0),
                Some(body) => {
                    out.push(1);
                    varint::put_bytes(out, body);
                }
            }
        }
    }

    pub(super) fn decode(input: &mut &[u8], ranges_left: &mut u64) -> Result<Self, Malformed> {
        let mut classes = Self::default();
        for _ in 0..varint::get_len(input)? {
            let (digest, rest) = input.split_first_chunk::<32>().ok_or(Malformed)?;
            *input = rest;
            let len = varint::get(input)?;
            let members = MemberSet::decode_within(input, ranges_left)?;
            let (&has_body, rest) = input.split_first().ok_or(Malformed)?;
            *input = rest;
            let body = if has_body == 1 { Some(varint::get_bytes(input)?.to_vec()) } else { None };
            // One body stands for all members with its digest: a host with another body must not
            // answer for them.
            if body.as_deref().is_some_and(|body| !is_of(body, &digest[..], len)) {
                return Err(Malformed);
            }
            classes.add(*digest, ClassState { len, members, body });
        }
        if classes.has_member_twice() { Err(Malformed) } else { Ok(classes) }
    }
}
