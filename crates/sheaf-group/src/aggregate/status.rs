//! Statuses: one number for the group, and who failed with what.
use serde::{Deserialize, Serialize};
use sheaf_core::varint::{self, Malformed};
use sheaf_core::{Errno, MemberSet};

/// One more than the greatest error number: pointers and statuses of the system have room for no
/// other.
const ERRNO_END: i32 = 4096;

/// The most members of one error that are counted and not named: more than all hosts can have.
const MORE_MAX: u64 = 1 << 52;

/// How the statuses of the members become the status of the group (paper, Table 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum StatusAggregation {
    /// 0 when every member succeeded.
    Zero,
    /// The sum: bytes read or written by all.
    Sum,
    /// The common value when all are equal, otherwise −1 (an invalid offset).
    Equal,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The mean, rounded towards zero.
    Average,
    /// How many succeeded.
    Count,
}

/// The statuses of members that succeeded, summed up for every [`StatusAggregation`] at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatusSum {
    /// How many succeeded.
    pub count: u64,
    /// Sum of their statuses, at most `i64::MAX`.
    pub sum: u64,
    /// The least.
    pub min: u64,
    /// The greatest.
    pub max: u64,
}

impl StatusSum {
    /// Takes in one member's status; negative ones are errors and belong elsewhere.
    pub fn add(&mut self, status: u64) {
        self.merge(&Self { count: 1, sum: status, min: status, max: status });
    }

    /// Takes in those of other members.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// The group's status, when no member failed.
    #[must_use]
    pub fn value(&self, how: StatusAggregation) -> i64 {
        let value = match how {
            StatusAggregation::Zero => 0,
            StatusAggregation::Sum => self.sum,
            StatusAggregation::Equal if self.count > 0 && self.min == self.max => self.min,
            StatusAggregation::Equal => return -1,
            StatusAggregation::Min => self.min,
            StatusAggregation::Max => self.max,
            StatusAggregation::Average => self.sum / self.count.max(1),
            StatusAggregation::Count => self.count,
        };
        i64::try_from(value).unwrap_or(i64::MAX)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.count, self.sum, self.min, self.max] {
            varint::put(out, number);
        }
    }

    pub(super) fn decode(input: &mut &[u8]) -> Result<Self, Malformed> {
        let mut next = || varint::get(input);
        Ok(Self { count: next()?, sum: next()?, min: next()?, max: next()? })
    }
}

/// Members that failed alike.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorClass {
    /// Why.
    pub errno: Errno,
    /// Which path, as the host sees it; empty when it concerns no path.
    pub path: String,
    /// The path that was named, where this one lies beneath it: that is the member that failed.
    /// Empty when the path itself is. Inner nodes know none.
    pub beneath: String,
    /// Who.
    pub members: MemberSet,
    /// So many more, of whom no place is known that would tell them apart.
    pub more: u64,
}

impl ErrorClass {
    /// Members that failed alike.
    #[must_use]
    pub fn new(errno: Errno, path: impl Into<String>, members: MemberSet) -> Self {
        Self { errno, path: path.into(), beneath: String::new(), members, more: 0 }
    }

    /// The same, as a failure of the member `named`, which may be the path itself.
    #[must_use]
    pub fn beneath(self, named: impl Into<String>) -> Self {
        let named = named.into();
        Self { beneath: if named == self.path { String::new() } else { named }, ..self }
    }

    /// The path that was named.
    #[must_use]
    pub fn named(&self) -> &str {
        if self.beneath.is_empty() { &self.path } else { &self.beneath }
    }

    /// The same for another reason.
    #[must_use]
    pub fn with_errno(self, errno: Errno) -> Self {
        Self { errno, ..self }
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.members.len().saturating_add(self.more)
    }

    /// Takes in others that failed alike. Who has a place that is taken is counted.
    pub(super) fn absorb(&mut self, other: &Self) {
        let known = other.members.len() - self.members.union_counted(&other.members);
        self.more = self.more.saturating_add(other.more).saturating_add(known);
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        varint::put(out, u64::from(self.errno.0.unsigned_abs()));
        varint::put_bytes(out, self.path.as_bytes());
        self.members.encode(out);
        varint::put(out, self.more);
    }

    pub(super) fn decode(input: &mut &[u8], ranges_left: &mut u64) -> Result<Self, Malformed> {
        let errno = i32::try_from(varint::get(input)?).map_err(|_| Malformed)?;
        let errno = (1..ERRNO_END).contains(&errno).then_some(Errno(errno)).ok_or(Malformed)?;
        let path = String::from_utf8_lossy(varint::get_bytes(input)?).into_owned();
        let members = MemberSet::decode_within(input, ranges_left)?;
        let more = varint::get(input)?;
        if more > MORE_MAX {
            return Err(Malformed);
        }
        Ok(Self { errno, path, beneath: String::new(), members, more })
    }
}
