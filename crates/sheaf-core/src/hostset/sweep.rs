//! Set algebra on sorted, disjoint stretches of integers.

/// The four operations on sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetOp {
    /// In either.
    Union,
    /// In the left and not in the right.
    Difference,
    /// In both.
    Intersection,
    /// In exactly one.
    Xor,
}

impl SetOp {
    /// Whether what is in the sets told by the arguments is in the result.
    pub(super) fn keeps(self, left: bool, right: bool) -> bool {
        match self {
            Self::Union => left || right,
            Self::Difference => left && !right,
            Self::Intersection => left && right,
            Self::Xor => left != right,
        }
    }
}

/// Something that covers `first..=last`.
pub(super) trait SweepSpan {
    fn first(&self) -> i64;
    fn last(&self) -> i64;
}

/// Calls `visit(first, last, left, right)` for every maximal stretch that is covered by the same
/// elements of `a` and `b`, in order. Both must be sorted and disjoint.
pub(super) fn sweep<'s, S: SweepSpan>(
    a: &'s [S],
    b: &'s [S],
    mut visit: impl FnMut(i64, i64, Option<&'s S>, Option<&'s S>),
) {
    let (mut left, mut right) = (a.iter(), b.iter());
    let (mut x, mut y) = (left.next(), right.next());
    let mut at = i64::MIN;
    while x.is_some() || y.is_some() {
        let starts = |span: Option<&S>| span.map_or(i64::MAX, |span| span.first().max(at));
        let (from_x, from_y) = (starts(x), starts(y));
        let from = from_x.min(from_y);
        let (in_x, in_y) = (x.filter(|_| from_x == from), y.filter(|_| from_y == from));
        let ends = |span: Option<&S>, inside: bool| match span {
            Some(span) if inside => span.last(),
            Some(span) => span.first() - 1,
            None => i64::MAX,
        };
        let to = ends(x, in_x.is_some()).min(ends(y, in_y.is_some()));
        visit(from, to, in_x, in_y);
        at = to.saturating_add(1);
        if x.is_some_and(|span| span.last() <= to) {
            x = left.next();
        }
        if y.is_some_and(|span| span.last() <= to) {
            y = right.next();
        }
    }
}
