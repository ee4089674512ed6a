//! Equal findings of several hosts, as one.
use super::{Examined, Finding, Measure};
use sheaf_core::{Errno, RangeSet};
use sheaf_records::{Area, Severity};
use sheaf_tools::report::human;
use std::collections::BTreeMap;

/// A finding, and where it is.
#[derive(Debug)]
pub struct FoldedFinding {
    /// None for this machine.
    pub leaves: Option<RangeSet>,
    pub finding: Finding,
    /// The smallest and the largest value of these hosts.
    range: Option<(f64, f64)>,
}

/// What is equal in findings that are one. The order is that in which they are printed.
type Key<'a> = (Severity, Area, &'a str, Option<&'a str>, Option<Errno>, bool, Option<u64>);

/// Folds the findings of this machine and of hosts. `by_value`: those with different values are
/// different.
pub fn fold(here: &[Finding], hosts: &[(u32, &Examined)], by_value: bool) -> Vec<FoldedFinding> {
    let mut folded: BTreeMap<Key<'_>, FoldedFinding> = BTreeMap::new();
    let here = here.iter().map(|finding| (None, finding));
    let hosts = hosts
        .iter()
        .flat_map(|(leaf, host)| host.findings.iter().map(move |finding| (Some(*leaf), finding)));
    for (leaf, finding) in here.chain(hosts) {
        let Finding { severity, area, text, remedy, errno, measure } = finding;
        let value = measure.filter(|_| by_value).map(|measure| measure.value.to_bits());
        let key =
            (*severity, *area, text.as_str(), remedy.as_deref(), *errno, leaf.is_some(), value);
        let one = folded.entry(key).or_insert_with(|| FoldedFinding {
            leaves: leaf.map(|_| RangeSet::new()),
            finding: finding.clone(),
            range: measure.map(|measure| (measure.value, measure.value)),
        });
        if let (Some(leaves), Some(leaf)) = (&mut one.leaves, leaf) {
            leaves.insert(leaf);
        }
        if let (Some(range), Some(measure), Some(sum)) =
            (&mut one.range, measure, &mut one.finding.measure)
        {
            *range = (range.0.min(measure.value), range.1.max(measure.value));
            sum.uncertainty = sum.uncertainty.max(measure.uncertainty);
        }
    }
    folded.into_values().collect()
}

impl FoldedFinding {
    /// The text and the remedy with a name for `%h`.
    pub fn texts(&self, name: &str) -> (String, Option<String>) {
        let Finding { text, remedy, .. } = &self.finding;
        let named = |text: &String| text.replace("%h", name);
        (named(text), remedy.as_ref().map(named))
    }

    /// The values of these hosts, as people read them.
    pub fn values(&self) -> Option<String> {
        let ((least, most), Measure { uncertainty, .. }) = (self.range?, self.finding.measure?);
        if self.finding.area == Area::Clock {
            let range = if least == most {
                format!("{least:+.3}")
            } else {
                format!("{least:+.3} to {most:+.3}")
            };
            return Some(format!("{range} s, ± {uncertainty:.3} s"));
        }
        // A value of any other area is a number of bytes.
        let size = |bytes: f64| human::size(bytes as u64);
        let (least, most) = (size(least), size(most));
        Some(if least == most { least } else { format!("{least} to {most}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examined(text: &str, value: f64) -> Examined {
        let measure = Measure { value, uncertainty: 0.01 };
        let finding = Finding::new(Severity::Note, Area::Clock, text).with_measure(measure);
        Examined { findings: vec![finding], has_answered: true }
    }

    #[test]
    fn equal_findings_of_hosts_are_one_with_the_range_of_values() {
        let (a, b, c) = (examined("x", 2.0), examined("x", -1.5), examined("y", 0.0));
        let hosts = [(0, &a), (1, &b), (2, &c)];
        let folded = fold(&a.findings, &hosts, false);
        let told: Vec<_> = folded
            .iter()
            .map(|one| (one.leaves.as_ref().map(RangeSet::len), one.values().unwrap()))
            .collect();
        assert_eq!(
            told,
            [
                (None, "+2.000 s, ± 0.010 s".to_owned()),
                (Some(2), "-1.500 to +2.000 s, ± 0.010 s".to_owned()),
                (Some(1), "+0.000 s, ± 0.010 s".to_owned()),
            ]
        );
        assert_eq!(fold(&[], &hosts, true).len(), 3, "values are exact");
    }
}
