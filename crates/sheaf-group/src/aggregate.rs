//! Aggregations: how the statuses and the data of a group's members become one answer.
//!
//! A server lifts what its own members gave into a partial; every node of the tree merges
//! partials with the filter [`FILTER`]; the client reads the last one. A partial is always an
//! aggregate: raw data exists only inside a server, so a node with one child cannot mistake one
//! for the other.
//!
//! TBON-FS, sections 2.3 (aggregations of statuses and data) and 3.2 (their execution in a tree).
//! The function of Figure 4 there takes an input with one file for raw data, so it fails if a
//! partial covers only one file. Here the server lifts raw data first, and partials have a form of
//! their own.
use crate::entry::ANSWER_BYTES_MAX;
use crate::server::MEMBERS_MAX;
use sheaf_core::varint::{self, Malformed};
use sheaf_core::{Errno, RANGES_MAX, RangeSet};
use sheaf_tree::filter::{Accumulator, Emit, Filter, FilterError, Input, Registry};

mod classes;
mod data;
mod exact;
mod labels;
mod number;
mod numbers;
mod status;
#[cfg(test)]
mod tests;

pub use classes::ClassDigest;
pub(crate) use classes::{ClassState, Classes, is_of};
pub(crate) use data::{Data, Packed};
pub use labels::LabelAt;
pub(crate) use labels::NumberChoice;
pub use number::Number;
pub(crate) use numbers::Numbers;
pub use numbers::{NUMBERS_MAX, NumberAt, NumberOp, Overflow};
pub use status::{ErrorClass, StatusAggregation, StatusSum};

/// Name of the filter of every stream of group operations.
pub const FILTER: &str = "group";

/// The most distinct errors (errno and path) one partial names; members beyond it are counted
/// under the errno alone.
pub const ERROR_CLASSES_MAX: usize = 4096;

/// The most errors that one contribution has: those that are named, and one for each errno.
const ERROR_CLASSES_DECODED_MAX: usize = 2 * ERROR_CLASSES_MAX;

/// What a sub-tree has to say about one operation.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Partial {
    /// The statuses, in every form that a status aggregation needs.
    pub status: StatusSum,
    /// Members that failed, by errno and path.
    pub errors: Vec<ErrorClass>,
    /// What did not open, where the operation of `errors` comes in the same trip.
    pub unopened: Vec<ErrorClass>,
    /// How many members each leaf has, where the operation opens a group.
    pub counts: Vec<(u32, RangeSet)>,
    /// Leaves that hold more of their answer.
    pub more: RangeSet,
    /// Leaves of which at least one member did the operation.
    pub contributors: RangeSet,
    /// The data.
    pub data: Data,
    /// What came with data of other kinds. Which kind is right only the client knows; until then
    /// nobody's answer is refused because of another's.
    pub strays: Vec<Self>,
}

/// The most kinds of data in one wave.
const KINDS_MAX: usize = 8;

impl Partial {
    /// How many members failed.
    pub fn failures(&self) -> u64 {
        let errors = self.errors.iter().chain(&self.unopened);
        errors.map(ErrorClass::count).fold(0, u64::saturating_add)
    }

    /// Takes in another sub-tree's partial.
    ///
    /// # Errors
    /// `EMSGSIZE` when together they exceed the bound of the operation.
    pub fn merge(&mut self, mut other: Self) -> Result<(), FilterError> {
        for stray in std::mem::take(&mut other.strays) {
            self.merge(stray)?;
        }
        if !self.data.is_like(&other.data) {
            return match self.strays.iter_mut().find(|stray| stray.data.is_like(&other.data)) {
                Some(stray) => stray.merge(other),
                None => {
                    self.strays.push(other);
                    Ok(())
                }
            };
        }
        self.data.merge(other.data)?;
        self.status.merge(&other.status);
        for error in other.errors {
            self.add_error(error);
        }
        for error in other.unopened {
            add_error(&mut self.unopened, error);
        }
        for (count, leaves) in other.counts {
            self.add_count(count, &leaves);
        }
        self.more.union_with(&other.more);
        self.contributors.union_with(&other.contributors);
        Ok(())
    }

    /// Keeps what came with data of the kind that was asked for, or without data, and returns the
    /// leaves of the rest.
    pub fn keep(&mut self, is_wanted: impl Fn(&Data) -> bool) -> RangeSet {
        let mut rest = std::mem::take(&mut self.strays);
        let is_right =
            |partial: &Self| matches!(partial.data, Data::None) || is_wanted(&partial.data);
        if !is_right(self) {
            let right = rest.iter().position(is_right).map(|at| rest.swap_remove(at));
            rest.push(std::mem::replace(self, right.unwrap_or_default()));
        }
        let mut wrong = RangeSet::new();
        rest.iter().for_each(|partial| wrong.union_with(&partial.leaves()));
        wrong
    }

    /// Every leaf that is named.
    pub fn leaves(&self) -> RangeSet {
        let mut all = self.data.leaves();
        self.errors
            .iter()
            .chain(&self.unopened)
            .for_each(|error| all.union_with(&error.members.leaves()));
        self.counts.iter().for_each(|(_, leaves)| all.union_with(leaves));
        all.union_with(&self.more);
        all.union_with(&self.contributors);
        all
    }

    /// Whether it counts more members than these leaves can have.
    fn counts_more(&self, leaves: &RangeSet) -> bool {
        self.status.count > leaves.len().saturating_mul(MEMBERS_MAX as u64)
    }

    /// Whether it names no other leaves than these.
    fn is_of(&self, leaves: &RangeSet) -> bool {
        self.errors.iter().chain(&self.unopened).all(|error| error.members.is_of(leaves))
            && self.counts.iter().all(|(_, have)| have.is_subset(leaves))
            && self.more.is_subset(leaves)
            && self.contributors.is_subset(leaves)
            && self.data.is_of(leaves)
            && self.strays.iter().all(|stray| stray.is_of(leaves))
    }

    /// Whether it is of a single host that has more than there is room for.
    fn is_too_long(&self, leaves: &RangeSet) -> bool {
        leaves.len() == 1 && matches!(&self.data, Data::Packed(packed) if packed.exceeded.is_some())
    }

    /// Counts members as failed; each call counts others.
    pub fn add_error(&mut self, error: ErrorClass) {
        add_error(&mut self.errors, error);
    }

    /// Notes that each of `leaves` has `count` members.
    pub fn add_count(&mut self, count: u32, leaves: &RangeSet) {
        match self.counts.binary_search_by_key(&count, |(have, _)| *have) {
            Ok(at) => self.counts[at].1.union_with(leaves),
            Err(at) => self.counts.insert(at, (count, leaves.clone())),
        }
    }

    /// Appends the wire form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        // Nearly always there are none, which costs a byte.
        varint::put(out, self.strays.len() as u64);
        for stray in &self.strays {
            let mut bytes = Vec::new();
            stray.encode(&mut bytes);
            varint::put_bytes(out, &bytes);
        }
        self.status.encode(out);
        for errors in [&self.errors, &self.unopened] {
            varint::put(out, errors.len() as u64);
            errors.iter().for_each(|error| error.encode(out));
        }
        varint::put(out, self.counts.len() as u64);
        for (count, leaves) in &self.counts {
            varint::put(out, u64::from(*count));
            leaves.encode(out);
        }
        self.more.encode(out);
        self.contributors.encode(out);
        self.data.encode(out);
    }

    /// Reads the wire form.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(input: &[u8]) -> Result<Self, Malformed> {
        Self::decode_within(input, u64::MAX)
    }

    /// [`Partial::decode`] of one whose lines have at most so many bytes of paths and texts.
    fn decode_within(mut input: &[u8], text_bytes_max: u64) -> Result<Self, Malformed> {
        let (input, left) = (&mut input, &mut { RANGES_MAX });
        let strays = varint::get_len(input)?;
        if strays >= KINDS_MAX {
            return Err(Malformed);
        }
        let mut kinds = Vec::new();
        for _ in 0..strays {
            // There are none within one.
            let mut bytes = varint::get_bytes(input)?.strip_prefix(&[0]).ok_or(Malformed)?;
            kinds.push(Self::decode_one(&mut bytes, left, text_bytes_max)?);
        }
        Ok(Self { strays: kinds, ..Self::decode_one(input, left, text_bytes_max)? })
    }

    fn decode_one(
        input: &mut &[u8],
        left: &mut u64,
        text_bytes_max: u64,
    ) -> Result<Self, Malformed> {
        let status = StatusSum::decode(input)?;
        let mut partial = Self { status, ..Self::default() };
        for errors in [&mut partial.errors, &mut partial.unopened] {
            let count = varint::get_len(input)?;
            if count > ERROR_CLASSES_DECODED_MAX {
                return Err(Malformed);
            }
            for _ in 0..count {
                errors.push(ErrorClass::decode(input, left)?);
            }
        }
        let mut counted = Vec::new();
        for _ in 0..varint::get_len(input)? {
            let count = varint::get_u32(input)?;
            let leaves = RangeSet::decode_within(input, left)?;
            counted.extend_from_slice(leaves.ranges());
            let is_next = partial.counts.last().is_none_or(|(before, _)| *before < count);
            if !is_next || leaves.is_empty() || count as usize > MEMBERS_MAX {
                return Err(Malformed);
            }
            partial.counts.push((count, leaves));
        }
        counted.sort_unstable();
        if counted.windows(2).any(|two| two[1].0 <= two[0].1) {
            return Err(Malformed);
        }
        partial.more = RangeSet::decode_within(input, left)?;
        partial.contributors = RangeSet::decode_within(input, left)?;
        partial.data = Data::decode(input, left, text_bytes_max)?;
        Ok(partial)
    }
}

/// Adds to errors that are kept in order of errno and path: others each time, also where they have
/// one place between them (what does not open has the place of the next that does).
fn add_error(errors: &mut Vec<ErrorClass>, error: ErrorClass) {
    let key =
        |have: &ErrorClass| have.errno.cmp(&error.errno).then_with(|| have.path.cmp(&error.path));
    match errors.binary_search_by(key) {
        Ok(at) => errors[at].absorb(&error),
        Err(at) if errors.len() < ERROR_CLASSES_MAX => errors.insert(at, error),
        Err(at) if error.path.is_empty() => errors.insert(at, error),
        Err(_) => add_error(errors, ErrorClass { path: String::new(), ..error }),
    }
}

/// Makes [`FILTER`] known to a node. Every node of a tree that carries group operations needs it.
pub fn register(registry: &mut Registry) {
    registry.register(FILTER, |_| Ok(Box::new(GroupFilter)));
}

struct GroupFilter;

impl Filter for GroupFilter {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(GroupAccumulator::default())
    }
}

#[derive(Default)]
struct GroupAccumulator {
    merged: Option<Partial>,
    /// The wire form of `merged` while it is the only contribution: it need not be encoded again.
    only: Option<Vec<u8>>,
}

impl Accumulator for GroupAccumulator {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        // Longer lines than hosts answer with would keep this node from all others.
        let text_bytes_max = input
            .leaves
            .map_or(u64::MAX, |leaves| leaves.len().saturating_mul(ANSWER_BYTES_MAX as u64));
        // Each contribution is decoded when it comes, so that one which is malformed fails alone.
        let partial = Partial::decode_within(input.payload, text_bytes_max).map_err(|_| {
            FilterError::new(Errno::BADMSG, "a group operation's partial does not decode")
        })?;
        if input.leaves.is_some_and(|leaves| !partial.is_of(leaves) || partial.counts_more(leaves))
        {
            return Err(FilterError::new(
                Errno::BADMSG,
                "a group operation's partial names leaves of others",
            ));
        }
        // It has failed, and the others have not.
        if input.leaves.is_some_and(|leaves| partial.is_too_long(leaves)) {
            return Err(FilterError::new(Errno::MSGSIZE, "a host has more than there is room for"));
        }
        match &mut self.merged {
            Some(merged) => {
                self.only = None;
                merged.merge(partial)
            }
            None => {
                (self.merged, self.only) = (Some(partial), Some(input.payload.to_vec()));
                Ok(())
            }
        }
    }

    fn finish(&mut self, _: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        match (self.only.take(), self.merged.take()) {
            (Some(bytes), _) => out.extend_from_slice(&bytes),
            (None, Some(merged)) => merged.encode(out),
            (None, None) => {}
        }
        Ok(())
    }
}
