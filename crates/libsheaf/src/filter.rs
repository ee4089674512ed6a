//! Streams with a filter for each node, by assignment, built in or the user's own.
//!
//! On such streams lists of packets go up, so that a filter may give none or several for a wave.
//! A filter that waits for all sees one packet of each child at a time; what a child
//! has sent beyond that waits for the others.
use crate::error::Error;
use crate::meter::{Meters, Perf};
use crate::wire::Parcel;
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_tree::filter::{Accumulator, Emit, FilterError, Input, NodeInfo, Registry};
use std::sync::Arc;

mod module;
mod node;

use module::FilterModule;
use node::Assigned;

/// The name of this filter in the tree.
pub const NAME: &str = "assigned";

/// The name of the filter that gathers what nodes have measured.
pub const PERF_NAME: &str = "measured";

/// What one node does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Choice {
    /// A filter of the tree.
    BuiltIn(String),
    /// A function of the user's, in a module that the tree has been sent: `module:HASH:FUNCTION`.
    Module(String),
}

/// Which node does what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignFilter {
    choices: Vec<Choice>,
    /// Rank and number of its choice, by rank.
    by_rank: Vec<(u32, u16)>,
    /// Of all other nodes.
    default: Option<u16>,
    /// Waves are whole: what comes is grouped by child.
    pub waits_for_all: bool,
    /// What the user's filters are told: a packet, or nothing.
    pub params: Vec<u8>,
    /// The stream as the application knows it, if the nodes are to measure.
    pub measured: Option<u32>,
}

impl AssignFilter {
    /// From a text: `sum`, or `sum => 0; module:HASH:best => *;`.
    ///
    /// # Errors
    /// [`crate::error::ErrorCode::Usage`].
    pub fn parse(text: &str, waits_for_all: bool, params: &[u8]) -> Result<Self, Error> {
        let mut assign = Self {
            choices: Vec::new(),
            by_rank: Vec::new(),
            default: None,
            waits_for_all,
            params: params.to_vec(),
            measured: None,
        };
        for statement in text.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
            let (filter, rank) = statement.split_once("=>").unwrap_or((statement, "*"));
            let number = assign.number_of(filter.trim())?;
            match rank.trim() {
                "*" => assign.default = Some(number),
                rank => {
                    let wrong = || Error::usage(format!("{rank:?} is neither a rank nor *"));
                    assign.by_rank.push((rank.parse().map_err(|_| wrong())?, number));
                }
            }
        }
        assign.by_rank.sort_unstable();
        Ok(assign)
    }

    fn number_of(&mut self, filter: &str) -> Result<u16, Error> {
        let choice = match filter.split_once(':') {
            Some(("module", _)) => Choice::Module(filter.to_owned()),
            Some(_) => {
                return Err(Error::usage(
                    "a shared object is loaded first, with sheaf_filter_load",
                ));
            }
            None => Choice::BuiltIn(filter.to_owned()),
        };
        let at = self.choices.iter().position(|have| *have == choice).unwrap_or_else(|| {
            self.choices.push(choice);
            self.choices.len() - 1
        });
        u16::try_from(at).map_err(|_| Error::usage("too many different filters on one stream"))
    }

    /// The one filter of the tree that every node has, if that is so.
    #[must_use]
    pub fn simple(&self) -> Option<&str> {
        if self.measured.is_some() {
            return None;
        }
        match (&self.choices[..], self.by_rank.is_empty(), self.default) {
            ([], ..) => Some("null"),
            ([Choice::BuiltIn(name)], true, Some(_)) => Some(name),
            _ => None,
        }
    }

    /// What the node of this rank was given by name.
    #[must_use]
    pub fn named(&self, rank: u32) -> Option<&Choice> {
        let at = self.by_rank.binary_search_by_key(&rank, |&(rank, _)| rank).ok()?;
        self.choices.get(usize::from(self.by_rank[at].1))
    }

    /// What the node of this rank does, if it does something.
    #[must_use]
    pub fn at(&self, rank: u32) -> Option<&Choice> {
        self.named(rank).or_else(|| self.choices.get(usize::from(self.default?)))
    }

    /// Whether some node has a filter of the user's.
    #[must_use]
    pub fn has_modules(&self) -> bool {
        self.choices.iter().any(|choice| matches!(choice, Choice::Module(_)))
    }

    /// The parameters of the filter in the tree.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("an assignment can be serialised")
    }
}

/// The filters that the nodes of a session know; `meters` is what is measured in this process.
#[must_use]
pub fn registry(meters: &Arc<Meters>) -> Registry {
    let builtins = Registry::with_builtins();
    let mut registry = builtins.clone();
    let own = Arc::clone(meters);
    registry.register_at(NAME, move |params, info| {
        let malformed = |_| FilterError::new(Errno::INVAL, "a malformed assignment of filters");
        let assign: AssignFilter = postcard::from_bytes(params).map_err(malformed)?;
        Ok(Box::new(Assigned::new(&assign, &builtins, &own, info)?))
    });
    let own = Arc::clone(meters);
    registry
        .register_at(PERF_NAME, move |params, info| Ok(Box::new(Perf::new(params, &own, info)?)));
    registry
}

/// What the filter of one node is made of.
pub enum FilterWork {
    /// Everything passes.
    Pass,
    /// A filter of the tree, used for one wave after the other.
    BuiltIn(Box<dyn Accumulator>),
    /// A function of the user's.
    Module(FilterModule),
}

impl FilterWork {
    /// Makes the filter of a node.
    ///
    /// # Errors
    /// Why there is none.
    pub fn new(
        choice: Option<&Choice>,
        params: &[u8],
        builtins: &Registry,
        info: &NodeInfo,
    ) -> Result<Self, FilterError> {
        match choice {
            None => Ok(Self::Pass),
            Some(Choice::BuiltIn(name)) if name == "null" => Ok(Self::Pass),
            Some(Choice::BuiltIn(name)) => {
                Ok(Self::BuiltIn(builtins.instantiate(name, &[], info)?.accumulator()))
            }
            Some(Choice::Module(name)) => {
                FilterModule::new(name, params, builtins, info).map(Self::Module)
            }
        }
    }

    /// Runs it once, on one packet of each child or so; adds to `out` and `back`.
    ///
    /// # Errors
    /// What the filter says.
    pub fn run(
        &mut self,
        packets: Vec<Parcel>,
        rank: u32,
        out: &mut Vec<Parcel>,
        back: &mut Vec<Parcel>,
    ) -> Result<(), FilterError> {
        match self {
            Self::Pass => out.extend(packets),
            Self::BuiltIn(accumulator) => {
                let tag = packets.first().map_or(0, |parcel| parcel.tag);
                for (child, parcel) in (0..).zip(&packets) {
                    let payload = &parcel.packet[..];
                    accumulator.fold(Input {
                        child,
                        rank: parcel.source,
                        tag,
                        raw: true,
                        leaves: None,
                        payload,
                    })?;
                }
                let mut packet = Vec::new();
                accumulator.finish(Emit::Result, &mut packet)?;
                out.push(Parcel { tag, source: rank, packet: packet.into() });
            }
            Self::Module(module) => module.run(&packets, out, back)?,
        }
        Ok(())
    }

    /// Gives a filter of the user's other parameters; it keeps its state.
    pub fn set_params(&mut self, params: &[u8]) {
        if let Self::Module(module) = self {
            module.set_params(params);
        }
    }

    /// What a filter of the user's has kept.
    pub fn state(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Module(module) => module.state(),
            Self::Pass | Self::BuiltIn(_) => None,
        }
    }

    /// Takes in what another node's has kept.
    ///
    /// # Errors
    /// What the filter says.
    pub fn absorb(&mut self, state: &[u8]) -> Result<(), FilterError> {
        match self {
            Self::Module(module) => module.absorb(state),
            Self::Pass | Self::BuiltIn(_) => Ok(()),
        }
    }
}
