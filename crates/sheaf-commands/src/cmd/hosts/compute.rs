//! From operands to the set they stand for.
use super::groups::Rebased;
use super::operands::Operands;
use super::set::{Op, Set};
use super::{HostsArgs, InputStreams};
use anyhow::Result;
use sheaf_cli::exit::Stop;
use std::io::{BufRead, Read};

/// The most bytes of standard input that are read.
const INPUT_BYTES_MAX: u64 = 256 << 20;

/// Reads sets from operands and from standard input.
pub(super) struct SetReader<'g> {
    groups: &'g Rebased<'g>,
}

impl<'g> SetReader<'g> {
    pub(super) fn new(groups: &'g Rebased<'g>) -> Self {
        Self { groups }
    }

    fn operand(&mut self, kind: &Set, text: &str, streams: &mut InputStreams<'_>) -> Result<Set> {
        if text == "-" {
            return self.input(kind, streams.input);
        }
        // An argument of several lines is several sets.
        let mut lines = text.lines();
        let first = kind.parse(lines.next().unwrap_or(""), self.groups)?;
        lines.try_fold(first, |set, line| {
            Ok(set.combine(Op::Union, &kind.parse(line, self.groups)?))
        })
    }

    /// The union of all sets of standard input, which stand apart by white space; `#` begins a
    /// comment.
    fn input(&mut self, kind: &Set, input: &mut dyn BufRead) -> Result<Set> {
        let mut text = String::new();
        input.take(INPUT_BYTES_MAX + 1).read_to_string(&mut text)?;
        if text.len() as u64 > INPUT_BYTES_MAX {
            return Err(
                Stop::usage(format!("standard input: more than {INPUT_BYTES_MAX} bytes")).into()
            );
        }
        let elements =
            text.lines().flat_map(|line| line.split('#').next().unwrap_or("").split_whitespace());
        // What has no other operator than the union can be read in one go.
        let (plain, others): (Vec<&str>, Vec<&str>) =
            elements.partition(|element| !element.contains(['!', '&', '^']));
        let set = kind.parse(&plain.join(","), self.groups)?;
        others.iter().try_fold(set, |set, other| {
            Ok(set.combine(Op::Union, &kind.parse(other, self.groups)?))
        })
    }
}

/// The set that the operands stand for.
pub(super) fn compute(
    args: &HostsArgs,
    operands: &Operands,
    reader: &mut SetReader<'_>,
    streams: &mut InputStreams<'_>,
) -> Result<Set> {
    let kind = Set::new(args.rangeset);
    let mut set = if args.all { Set::Hosts(reader.groups.all_hosts()?) } else { kind.clone() };
    let lists = args.list > 0 || args.list_all > 0;
    if operands.has_no_exprs() && !args.all && !lists {
        set = reader.input(&kind, streams.input)?;
    }
    if set.is_empty() && !operands.before.is_empty() {
        streams.warn("nothing to the left of the set operation")?;
    }
    for (op, text) in operands.before.iter().chain(&operands.rest) {
        let operand = reader.operand(&kind, text, streams)?;
        set = set.combine(*op, &operand);
    }
    Ok(set)
}
