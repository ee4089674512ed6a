//! What an expression stands for: groups and wildcards resolved, operators applied left to right.
use super::build::Builder;
use super::scan::{Operand, Scanner};
use super::sweep::SetOp;
use super::{Groups, HOSTS_MAX, HostSet, ParseError};
use crate::rangeset::RANGES_MAX;
use std::collections::HashMap;

/// How deep groups may name groups.
const GROUP_DEPTH_MAX: usize = 64;
/// How many masks one wildcard operand may stand for.
const MASKS_MAX: u64 = 65_536;

/// Evaluates expressions and remembers the groups it has asked for.
pub(super) struct Evaluator<'g> {
    groups: &'g dyn Groups,
    /// By source and group; `None` for all hosts of the source.
    known: HashMap<(Option<String>, Option<String>), HostSet>,
    /// The groups within which we are, the outermost first.
    within: Vec<String>,
    /// Names of all hosts are not matched against all hosts again.
    wildcards: bool,
    /// How many ranges all operands have together, at most [`RANGES_MAX`].
    ranges: u64,
}

impl<'g> Evaluator<'g> {
    pub(super) fn new(groups: &'g dyn Groups) -> Self {
        Self { groups, known: HashMap::new(), within: Vec::new(), wildcards: true, ranges: 0 }
    }

    pub(super) fn expression(
        &mut self,
        text: &str,
        source: Option<&str>,
    ) -> Result<HostSet, ParseError> {
        let mut scanner = Scanner::new(text);
        let mut set = HostSet::new();
        let (mut op, mut side, mut side_at) = (SetOp::Union, Builder::default(), 0);
        while let Some(operand) = scanner.next()? {
            // `a!b!c` is `a!(b,c)`: equal operators in a row cost one operation.
            let joins = operand.op == op && matches!(op, SetOp::Union | SetOp::Difference);
            if !joins {
                set = apply(&set, op, side, side_at)?;
                (op, side, side_at) = (operand.op, Builder::default(), operand.at);
            }
            self.operand(&operand, source, &mut side)?;
        }
        apply(&set, op, side, side_at)
    }

    fn operand(
        &mut self,
        operand: &Operand<'_>,
        source: Option<&str>,
        out: &mut Builder,
    ) -> Result<(), ParseError> {
        let products = operand.products()?;
        // One of each is what the text itself is as long as.
        let axes = products.iter().flat_map(|(_, axes)| axes);
        let ranges: u64 = axes.map(|axis| axis.ranges_len().saturating_sub(1)).sum();
        self.ranges = self.ranges.saturating_add(ranges);
        if self.ranges > RANGES_MAX {
            return Err(ParseError::new(
                operand.at,
                format!("more than {RANGES_MAX} ranges apart in all"),
            ));
        }
        let is_plain = !operand.is_group() && (!self.wildcards || !operand.is_wildcard());
        if is_plain {
            for (pattern, axes) in products {
                out.family(pattern).product(&axes);
            }
            return Ok(());
        }
        let mut names = Builder::default();
        for (pattern, axes) in products {
            names.family(pattern).product(&axes);
        }
        let names = names.finish();
        if operand.is_group() {
            for name in names.iter() {
                out.set(
                    &self
                        .group(&name, source)
                        .map_err(|problem| ParseError::new(operand.at, problem))?,
                );
            }
            return Ok(());
        }
        self.wildcard(&names, source, out).map_err(|problem| ParseError::new(operand.at, problem))
    }

    /// The hosts of `@group`, `@source:group`, `@*`, `@source:*`, or the group names `@@source`.
    fn group(&mut self, name: &str, source: Option<&str>) -> Result<HostSet, String> {
        let name = name.strip_prefix('@').unwrap_or(name);
        if let Some(listed) = name.strip_prefix('@') {
            let listed = if listed.is_empty() { source } else { Some(listed) };
            return Ok(self.groups.list(listed)?.into_iter().collect());
        }
        let (source, group) = match name.split_once(':') {
            Some(("", group)) => (source, group),
            Some((source, group)) => (Some(source), group),
            None => (source, name),
        };
        if group == "*" {
            return self.all(source);
        }
        let key = (source.map(str::to_owned), Some(group.to_owned()));
        if let Some(set) = self.known.get(&key) {
            return Ok(set.clone());
        }
        let named = source.map_or(format!("@{group}"), |source| format!("@{source}:{group}"));
        let set = self.within(named, |groups| groups.resolve(source, group), source);
        let set =
            set.map_err(|problem| match self.within.is_empty() && !problem.starts_with(CYCLE) {
                true => format!("in '@{name}': {problem}"),
                false => problem,
            })?;
        self.known.insert(key, set.clone());
        Ok(set)
    }

    /// What the answer of a group source stands for; `named` is how it was asked for.
    fn within(
        &mut self,
        named: String,
        ask: impl FnOnce(&dyn Groups) -> Result<String, String>,
        source: Option<&str>,
    ) -> Result<HostSet, String> {
        if let Some(at) = self.within.iter().position(|outer| *outer == named) {
            return Err(cycle(&self.within[at..], &named));
        }
        if self.within.len() == GROUP_DEPTH_MAX {
            return Err(format!("groups name groups more than {GROUP_DEPTH_MAX} deep"));
        }
        let expr = ask(self.groups)?;
        self.within.push(named);
        let set = self.expression(&expr, source);
        self.within.pop();
        set.map_err(|error| error.problem().to_owned())
    }

    /// All hosts of a source.
    pub(super) fn all(&mut self, source: Option<&str>) -> Result<HostSet, String> {
        let key = (source.map(str::to_owned), None);
        if let Some(set) = self.known.get(&key) {
            return Ok(set.clone());
        }
        let named = source.map_or("@*".to_owned(), |source| format!("@{source}:*"));
        let wildcards = std::mem::replace(&mut self.wildcards, false);
        let set = self.within(named, |groups| groups.all(source), source);
        self.wildcards = wildcards;
        let set = set?;
        self.known.insert(key, set.clone());
        Ok(set)
    }

    fn wildcard(
        &mut self,
        masks: &HostSet,
        source: Option<&str>,
        out: &mut Builder,
    ) -> Result<(), String> {
        if masks.len() as u64 > MASKS_MAX {
            return Err(format!("more than {MASKS_MAX} wildcards"));
        }
        let all = self.all(source)?;
        let masks: Vec<Vec<char>> = masks.iter().map(|mask| mask.chars().collect()).collect();
        if masks.iter().any(|mask| mask.iter().all(|&char| char == '*')) {
            out.set(&all);
            return Ok(());
        }
        for name in all.iter() {
            let chars: Vec<char> = name.chars().collect();
            if masks.iter().any(|mask| matches(mask, &chars)) {
                out.name(&name);
            }
        }
        Ok(())
    }
}

pub(super) const CYCLE: &str = "groups name each other in a circle: ";

/// One line for a circle of groups, from the first that is met twice back to it.
fn cycle(groups: &[String], again: &str) -> String {
    const SHOWN_MAX: usize = 6;
    let shown = groups.iter().take(SHOWN_MAX).map(String::as_str);
    let more = if groups.len() > SHOWN_MAX { " → …" } else { "" };
    format!("{CYCLE}{}{more} → {again}", shown.collect::<Vec<_>>().join(" → "))
}

fn apply(set: &HostSet, op: SetOp, side: Builder, at: usize) -> Result<HostSet, ParseError> {
    if set.is_empty() && op == SetOp::Union {
        let set = side.finish();
        return checked(set, at);
    }
    if side.is_empty() && op != SetOp::Intersection {
        return Ok(set.clone());
    }
    checked(set.combine(op, &side.finish()), at)
}

fn checked(set: HostSet, at: usize) -> Result<HostSet, ParseError> {
    if set.len() as u64 > HOSTS_MAX {
        return Err(ParseError::new(at, format!("more than {HOSTS_MAX} hosts")));
    }
    Ok(set)
}

/// Whether the name fits the mask, in which `*` is any text and `?` any one character.
fn matches(mask: &[char], name: &[char]) -> bool {
    let (mut m, mut n) = (0, 0);
    // Where to go on when the text behind the last `*` does not fit.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match mask.get(m) {
            Some('*') => {
                retry = Some((m + 1, n));
                m += 1;
            }
            Some(&char) if char == '?' || char == name[n] => (m, n) = (m + 1, n + 1),
            _ => match retry {
                Some((mask_at, name_at)) => {
                    retry = Some((mask_at, name_at + 1));
                    (m, n) = (mask_at, name_at + 1);
                }
                None => return false,
            },
        }
    }
    mask[m..].iter().all(|&char| char == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_as_in_a_shell() {
        let fits = |mask: &str, name: &str| {
            matches(&mask.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>())
        };
        assert!(fits("n*", "n12") && fits("*", "") && fits("n?2", "n12") && fits("*1*2", "n1x12"));
        assert!(
            !fits("n?", "n12") && !fits("n*3", "n12") && !fits("", "n") && !fits("*1*2", "n2x1")
        );
    }
}
