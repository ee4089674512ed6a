//! Sets as the strided ranges of the published `pgrep`.
use sheaf_core::RangeSet;
use std::fmt::Write;

/// The set as `start:stride:count` ranges, separated by commas.
///
/// ```
/// use sheaf_core::RangeSet;
/// use sheaf_tools::grep::print::strided;
/// assert_eq!(strided(&RangeSet::full(1024)), "0:1:1024");
/// let odd: RangeSet = [1, 3, 5, 7, 20, 21, 22].into_iter().collect();
/// assert_eq!(strided(&odd), "1:2:4,20:1:3");
/// ```
#[must_use]
pub fn strided(leaves: &RangeSet) -> String {
    let mut runs: Vec<(u32, u32, u32)> = Vec::new();
    for &(first, last) in leaves.ranges() {
        if first != last {
            // The whole range of 32 bits has one member more than fits.
            runs.push((first, 1, (last - first).saturating_add(1)));
            continue;
        }
        match runs.last_mut() {
            Some((start, stride, count @ 1)) => (*stride, *count) = (first - *start, 2),
            Some((start, stride, count)) if *stride > 1 && *start + *stride * *count == first => {
                *count += 1
            }
            _ => runs.push((first, 1, 1)),
        }
    }
    let mut out = String::new();
    for (start, stride, count) in runs {
        let comma = if out.is_empty() { "" } else { "," };
        let _ = write!(out, "{comma}{start}:{stride}:{count}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_hold_exactly_the_set(values in proptest::collection::btree_set(0u32..60, 0..40)) {
            let printed = strided(&values.iter().copied().collect());
            let mut got = Vec::new();
            for run in printed.split(',').filter(|run| !run.is_empty()) {
                let numbers: Vec<u32> = run.split(':').map(|number| number.parse().unwrap()).collect();
                got.extend((0..numbers[2]).map(|step| numbers[0] + step * numbers[1]));
            }
            prop_assert!(got.iter().eq(values.iter()));
        }
    }
}
