//! Equal findings of several hosts, as one.
use super::{Examined, Finding, Measure};
use sheaf_core::RangeSet;
use sheaf_records::Area;
use sheaf_tools::report::human;

/// A finding, and where it is.
#[derive(Debug)]
pub struct FoldedFinding {
    /// None for this machine.
    pub leaves: Option<RangeSet>,
    pub finding: Finding,
    /// The smallest and the largest value of these hosts.
    range: Option<(f64, f64)>,
}

/// Folds the findings of this machine and of hosts: problems first, and within them by area.
/// `by_value`: those with different values are different.
pub fn fold(here: &[Finding], hosts: &[(u32, &Examined)], by_value: bool) -> Vec<FoldedFinding> {
    let mut all: Vec<FoldedFinding> = Vec::new();
    let here = here.iter().map(|finding| (None, finding));
    let hosts = hosts
        .iter()
        .flat_map(|(leaf, host)| host.findings.iter().map(move |finding| (Some(*leaf), finding)));
    for (leaf, finding) in here.chain(hosts) {
        match all.iter_mut().find(|one| one.is_equal(leaf, finding, by_value)) {
            Some(one) => one.add(leaf, finding),
            None => all.push(FoldedFinding {
                leaves: leaf.map(RangeSet::single),
                finding: finding.clone(),
                range: finding.measure.map(|measure| (measure.value, measure.value)),
            }),
        }
    }
    all.sort_by_key(|one| (one.finding.severity, one.finding.area));
    all
}

impl FoldedFinding {
    /// Whether a finding is this one, of another host.
    fn is_equal(&self, leaf: Option<u32>, finding: &Finding, by_value: bool) -> bool {
        let own = &self.finding;
        let value = |finding: &Finding| finding.measure.map(|measure| measure.value.to_bits());
        own.text == finding.text
            && (own.severity, own.area, own.errno)
                == (finding.severity, finding.area, finding.errno)
            && own.remedy == finding.remedy
            && self.leaves.is_some() == leaf.is_some()
            && (!by_value || value(own) == value(finding))
    }

    fn add(&mut self, leaf: Option<u32>, finding: &Finding) {
        if let (Some(leaves), Some(leaf)) = (&mut self.leaves, leaf) {
            leaves.insert(leaf);
        }
        if let (Some((least, most)), Some(measure), Some(sum)) =
            (&mut self.range, finding.measure, &mut self.finding.measure)
        {
            (*least, *most) = (least.min(measure.value), most.max(measure.value));
            sum.uncertainty = sum.uncertainty.max(measure.uncertainty);
        }
    }

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
    use sheaf_records::Severity;

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
