//! The sets on the command line and the operations between them, in the order they are given.
use super::set::Op;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

/// One operand with the operation it takes part in.
pub(super) type SetOperand = (Op, String);

/// All operands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Operands {
    /// Operations in front of the first expression; they apply to `--all` or standard input,
    /// intersections first, then exclusions, then symmetric differences.
    pub(super) before: Vec<SetOperand>,
    /// From the first expression on, in order.
    pub(super) rest: Vec<SetOperand>,
}

const EXPRS: &str = "exprs";
/// In the order in which they apply in front of the first expression.
const OPERATIONS: [(&str, char, Op, &str); 3] = [
    ("intersection", 'i', Op::Intersection, "Keep only the hosts that are also in SET"),
    ("exclude", 'x', Op::Exclude, "Leave out the hosts of SET"),
    ("xor", 'X', Op::Xor, "Keep the hosts that are in just one: the result so far, or SET"),
];

impl Operands {
    /// Whether no expression is given.
    pub(super) fn has_no_exprs(&self) -> bool {
        self.rest.is_empty()
    }

    /// Each expression alone, with all operations applied to it.
    pub(super) fn each(&self) -> Vec<Self> {
        let operations = || self.rest.iter().filter(|(op, _)| *op != Op::Union).cloned();
        let exprs = self.rest.iter().filter(|(op, _)| *op == Op::Union);
        let alone = |expr: &SetOperand| Self {
            before: Vec::new(),
            rest: std::iter::once(expr.clone())
                .chain(self.before.iter().cloned())
                .chain(operations())
                .collect(),
        };
        exprs.map(alone).collect()
    }
}

impl Args for Operands {
    fn augment_args(command: Command) -> Command {
        let exprs = Arg::new(EXPRS)
            .value_name("EXPR")
            .action(ArgAction::Append)
            .num_args(0..)
            .help("Host sets; - reads them from standard input");
        OPERATIONS.into_iter().fold(command.arg(exprs), |command, (name, short, _, help)| {
            command.arg(
                Arg::new(name)
                    .short(short)
                    .long(name)
                    .value_name("SET")
                    .action(ArgAction::Append)
                    .num_args(1)
                    .help(help),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Operands {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let placed = |name: &str, op: Op| {
            let values = matches.get_many::<String>(name).into_iter().flatten().cloned();
            let places = matches.indices_of(name).into_iter().flatten();
            places.zip(values).map(|(place, value)| (place, (op, value))).collect::<Vec<_>>()
        };
        let mut rest = placed(EXPRS, Op::Union);
        let first = rest.first().map_or(usize::MAX, |(place, _)| *place);
        let mut before = Vec::new();
        for (name, _, op, _) in OPERATIONS {
            let (early, late): (Vec<_>, Vec<_>) =
                placed(name, op).into_iter().partition(|(place, _)| *place < first);
            before.extend(early.into_iter().map(|(_, operand)| operand));
            rest.extend(late);
        }
        rest.sort_by_key(|(place, _)| *place);
        Ok(Self { before, rest: rest.into_iter().map(|(_, operand)| operand).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
