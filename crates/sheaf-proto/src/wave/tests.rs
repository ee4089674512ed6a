//! Waves by themselves.
use super::*;
use crate::control::Sync;
use crate::coverage::Coverage;
use crate::filter::{Accumulator, Emit, FilterError, Input};
use crate::frame::flag;
use crate::links::LinkId;
use crate::stream::{ChildState, Member};
use sheaf_core::RangeSet;
use std::sync::Arc;

struct Nothing;

impl Filter for Nothing {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(Self)
    }
}

impl Accumulator for Nothing {
    fn fold(&mut self, _: Input<'_>) -> Result<(), FilterError> {
        Ok(())
    }
    fn finish(&mut self, _: Emit, _: &mut Vec<u8>) -> Result<(), FilterError> {
        Ok(())
    }
}

fn member(place: usize, leaves: RangeSet, moved: bool, since: u64) -> Member {
    Member { moved, since, ..Member::new(LinkId::new(place), 1, ChildState::Here, leaves) }
}

fn members<const N: usize>(all: u32, children: [Member; N]) -> Members {
    Members::new(RangeSet::full(all), children.into())
}

/// What a child sends of leaves that were its own once counts, and so these do not count again when
/// they come with another child, which has begun the stream anew.
#[test]
fn leaf_that_went_to_another_child_counts_once() {
    let children =
        [member(0, RangeSet::from_range(0, 2), true, 0), member(1, RangeSet::single(2), true, 0)];
    let members = members(3, children);
    let mut named = Vec::new();
    Coverage { ok: Arc::new(RangeSet::from_range(1, 3)), ..Coverage::default() }.encode(&mut named);
    let contribute = |slot: &mut Slot, child, flags, body: &[u8]| {
        let arrival = Arrival { child: ChildId::new(child), flags, tag: 0, bytes: 0, body };
        slot.contribute(&arrival, &members, &Nothing, Sync::WaitForAll, &mut None)
    };
    let mut waves = Slots::default();
    let slot = waves.open(0, &members).unwrap().unwrap();
    assert_eq!(contribute(slot, 0, 0, &named), Ok(After::Wait));
    assert_eq!(contribute(slot, 1, flag::up::FULL | flag::up::FINAL, b"again"), Ok(After::Wait));
    assert!(!slot.from[1].full(), "leaf 2 is counted already");
    assert_eq!(slot.counted(&members), RangeSet::from_range(1, 3));
    assert!(slot.late() == [ChildId::new(0)]);
}

#[test]
fn wave_is_not_expected_of_who_joined_later() {
    let children =
        [member(0, RangeSet::single(0), false, 0), member(1, RangeSet::single(1), false, 2)];
    let members = members(2, children);
    let mut waves = Slots::default();
    assert_eq!(waves.open(1, &members).unwrap().unwrap().late(), [ChildId::new(0)]);
    assert_eq!(waves.open(2, &members).unwrap().unwrap().late(), [0, 1].map(ChildId::new));
    assert_eq!(waves.unbegun_before(2), Some(0));
    assert_eq!(Slots::starting_at(5).unbegun_before(7), Some(5));
    assert_eq!(Slots::starting_at(5).unbegun_before(5), None);
}
