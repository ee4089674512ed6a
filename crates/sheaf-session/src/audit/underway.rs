//! Changes that have begun on hosts, for the root: a host that is lost does not say how they ended.
use super::AuditNote;
use sheaf_core::RangeSet;
use std::collections::BTreeMap;

/// The most changes that are under way on one host, and on all, as far as the root keeps them. A
/// host says itself what has begun there.
const OF_HOST_MAX: usize = 1 << 12;
const ALL_MAX: usize = 1 << 16;

/// What has begun, by the leaf of its host and its number there.
#[derive(Default)]
pub(super) struct UnderWay(BTreeMap<(u32, u64), AuditNote>);

impl UnderWay {
    /// A change has begun on a leaf. Gives it back if there is no room for it.
    pub fn begin(&mut self, leaf: u32, note: AuditNote) -> Option<AuditNote> {
        let of_host = self.0.range((leaf, 0)..=(leaf, u64::MAX)).count();
        if of_host >= OF_HOST_MAX || self.0.len() >= ALL_MAX {
            return Some(note);
        }
        self.0.insert((leaf, note.number), note);
        None
    }

    /// The change of this number on a leaf has ended.
    pub fn end(&mut self, leaf: u32, number: u64) {
        self.0.remove(&(leaf, number));
    }

    /// These leaves are lost: what was under way on each.
    pub fn lose(&mut self, leaves: &RangeSet) -> Vec<(u32, AuditNote)> {
        let lost = self.0.extract_if(.., |(leaf, _), _| leaves.contains(*leaf));
        lost.map(|((leaf, _), note)| (leaf, note)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(number: u64) -> AuditNote {
        let (from, command, end) = ("h1".to_owned(), "rm".to_owned(), String::new());
        AuditNote { number, uid: None, from, command, paths: Vec::new(), more: 0, end }
    }

    #[test]
    fn lost_host_leaves_what_was_under_way_on_it() {
        let mut under_way = UnderWay::default();
        for (leaf, number) in [(1, 1), (1, 2), (2, 1), (3, 1)] {
            assert_eq!(under_way.begin(leaf, note(number)), None);
        }
        under_way.end(1, 2);
        under_way.end(7, 1);
        let lost: Vec<_> = under_way
            .lose(&RangeSet::from_range(1, 3))
            .into_iter()
            .map(|(leaf, note)| (leaf, note.number))
            .collect();
        assert_eq!(lost, [(1, 1), (2, 1)]);
        assert_eq!(under_way.lose(&RangeSet::from_range(1, 3)), []);
    }

    #[test]
    fn one_host_does_not_fill_what_is_kept_of_all() {
        let mut under_way = UnderWay::default();
        for number in 0..OF_HOST_MAX as u64 {
            assert_eq!(under_way.begin(1, note(number)), None);
        }
        assert_eq!(under_way.begin(1, note(u64::MAX)), Some(note(u64::MAX)));
        assert_eq!(under_way.begin(2, note(1)), None);
        under_way.end(1, 5);
        assert_eq!(under_way.begin(1, note(u64::MAX)), None);
    }
}
