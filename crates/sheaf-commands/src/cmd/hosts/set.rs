//! What `hosts` works on: a set of hosts, or with `--rangeset` a set of numbers.
use anyhow::Result;
use sheaf_cli::exit::Stop;
use sheaf_core::RangeSet;
use sheaf_core::hostset::{FoldOptions, Groups, HostSet, NumberSet};
use std::hash::{BuildHasher, RandomState};

/// A set of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Set {
    /// Of hosts.
    Hosts(HostSet),
    /// Of numbers.
    Numbers(NumberSet),
}

/// An operation on two sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// In either.
    Union,
    /// In the left and not in the right.
    Exclude,
    /// In both.
    Intersection,
    /// In exactly one.
    Xor,
}

impl Set {
    /// The empty set of a kind.
    pub fn new(numbers: bool) -> Self {
        if numbers { Self::Numbers(NumberSet::new()) } else { Self::Hosts(HostSet::new()) }
    }

    /// The set an expression stands for, of the same kind as `self`.
    pub fn parse(&self, expr: &str, groups: &dyn Groups) -> Result<Self> {
        let parsed = match self {
            Self::Hosts(_) => HostSet::parse_with(expr, groups).map(Self::Hosts),
            Self::Numbers(_) if expr.trim().is_empty() => Ok(Self::new(true)),
            Self::Numbers(_) => NumberSet::parse(expr).map(Self::Numbers),
        };
        parsed.map_err(|error| {
            let place = format!("'{}'", expr.escape_debug());
            Stop::usage(if place.len() <= 80 {
                format!("{error}: {place}")
            } else {
                error.to_string()
            })
            .into()
        })
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Hosts(set) => set.len(),
            Self::Numbers(set) => set.len() as usize,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Both sets must be of one kind.
    pub fn combine(&self, op: Op, other: &Self) -> Self {
        match (self, other) {
            (Self::Hosts(a), Self::Hosts(b)) => Self::Hosts(match op {
                Op::Union => a.union(b),
                Op::Exclude => a.difference(b),
                Op::Intersection => a.intersection(b),
                Op::Xor => a.symmetric_difference(b),
            }),
            (Self::Numbers(a), Self::Numbers(b)) => Self::Numbers(match op {
                Op::Union => a.union(b),
                Op::Exclude => a.difference(b),
                Op::Intersection => a.intersection(b),
                Op::Xor => a.symmetric_difference(b),
            }),
            _ => unreachable!("one run of the command makes sets of one kind"),
        }
    }

    pub fn names(&self) -> Box<dyn Iterator<Item = String> + '_> {
        match self {
            Self::Hosts(set) => Box::new(set.iter()),
            Self::Numbers(set) => Box::new(set.iter()),
        }
    }

    pub fn fold(&self, options: &FoldOptions) -> String {
        match self {
            Self::Hosts(set) => set.fold(options),
            Self::Numbers(set) => set.fold(options.autostep),
        }
    }

    pub fn split(&self, count: usize) -> Vec<Self> {
        match self {
            Self::Hosts(set) => set.split(count).into_iter().map(Self::Hosts).collect(),
            Self::Numbers(set) => {
                let len = set.len();
                let parts = (count as u64).min(len);
                let mut from = 0;
                let part = |at: u64| {
                    let to = from + len / parts + u64::from(at < len % parts);
                    let part = set.slice(from, to);
                    from = to;
                    Self::Numbers(part)
                };
                (0..parts).map(part).collect()
            }
        }
    }

    pub fn contiguous(&self) -> Vec<Self> {
        match self {
            Self::Hosts(set) => set.contiguous().into_iter().map(Self::Hosts).collect(),
            Self::Numbers(set) => set.contiguous().into_iter().map(Self::Numbers).collect(),
        }
    }

    /// What stands at the positions `wanted`. A negative bound counts from the end, as in Python:
    /// the number behind a range's last one is its end, so a range must not end at -1.
    pub fn slice(&self, wanted: &NumberSet) -> Self {
        let len = self.len() as i64;
        let from_start = |bound: i64| if bound < 0 { (len + bound).max(0) } else { bound.min(len) };
        let mut indices = RangeSet::new();
        for part in wanted.contiguous() {
            let (first, last) = (part.value_ranges().next(), part.value_ranges().last());
            if let (Some((first, _)), Some((_, last))) = (first, last) {
                let (from, to) = (from_start(first), from_start(last + 1));
                indices.union_with(&RangeSet::from_range(from as u32, to as u32));
            }
        }
        self.select(&indices)
    }

    /// `count` of its elements, taken at random.
    pub fn pick(&self, count: usize) -> Self {
        let len = self.len();
        if count >= len {
            return self.clone();
        }
        let mut places: Vec<u32> = (0..len as u32).collect();
        let random = RandomState::new();
        for at in 0..count {
            let other = at + (random.hash_one(at) % (len - at) as u64) as usize;
            places.swap(at, other);
        }
        self.select(&places[..count].iter().copied().collect())
    }

    fn select(&self, indices: &RangeSet) -> Self {
        match self {
            Self::Hosts(set) => Self::Hosts(set.select(indices)),
            Self::Numbers(set) => {
                let parts = indices.ranges().iter();
                let parts =
                    parts.map(|&(first, last)| set.slice(u64::from(first), u64::from(last) + 1));
                Self::Numbers(parts.fold(NumberSet::new(), |all, part| all.union(&part)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_core::hostset::NoGroups;

    fn hosts(expr: &str) -> Set {
        Set::new(false).parse(expr, &NoGroups).unwrap()
    }

    #[test]
    fn slices_count_from_either_end() {
        let slice = |wanted: &str| {
            hosts("n[1-20]").slice(&NumberSet::parse(wanted).unwrap()).fold(&FoldOptions::default())
        };
        assert_eq!(
            ["0", "1-2,7", "8-12", "-2", "-5--3", "-1", "18-99"].map(slice),
            ["n1", "n[2-3,8]", "n[9-13]", "n19", "n[16-18]", "", "n[19-20]"]
        );
    }

    #[test]
    fn picks_are_subsets() {
        let all = hosts("n[1-20],m[1-3]a[1-2]");
        let some = all.pick(7);
        assert_eq!(some.len(), 7);
        assert!(some.combine(Op::Exclude, &all).is_empty());
        assert_eq!(all.pick(99), all);
    }

    #[test]
    fn numbers_split_as_hosts_do() {
        let numbers = Set::new(true).parse("1-10", &NoGroups).unwrap();
        let parts: Vec<String> =
            numbers.split(3).iter().map(|part| part.fold(&FoldOptions::default())).collect();
        assert_eq!(parts, ["1-4", "5-7", "8-10"]);
        assert_eq!(Set::new(true).split(3), []);
    }
}
