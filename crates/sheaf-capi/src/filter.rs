//! Streams with MRNet's filters: one for each node, by assignment, built in or the user's own.
//!
//! On such streams lists of packets go up, so that a filter may give none or several for a wave.
//! As in MRNet a filter that waits for all sees one packet of each child at a time; what a child
//! has sent beyond that waits for the others.
use crate::error::Error;
use crate::wire::Parcel;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_tree::filter::{Accumulator, Emit, Filter, FilterError, Input, NodeInfo, Registry, Replies};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

mod native;

pub use native::Native;

/// The name of this filter in the tree.
pub const NAME: &str = "mrnet";

/// Packets of one child that may wait for the others'.
const WAITING_MAX: usize = 1 << 16;

/// What one node does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Choice {
    /// A filter of the tree.
    BuiltIn(String),
    /// A function of the user's, in a shared object.
    Native {
        /// Where that is.
        path: String,
        /// Its name.
        function: String,
    },
}

/// Which node does what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assign {
    choices: Vec<Choice>,
    /// Rank and number of its choice, by rank.
    by_rank: Vec<(u32, u16)>,
    /// Of all other nodes.
    default: Option<u16>,
    /// Waves are whole: what comes is grouped by child.
    pub waits_for_all: bool,
    /// What the user's filters are told: a packet, or nothing.
    pub params: Vec<u8>,
}

impl Assign {
    /// From a text: `sum`, or `sum => 0; /lib/mine.so:best => *;`.
    ///
    /// # Errors
    /// [`crate::error::Code::Usage`].
    pub fn parse(text: &str, waits_for_all: bool, params: &[u8]) -> Result<Self, Error> {
        let mut assign = Self {
            choices: Vec::new(),
            by_rank: Vec::new(),
            default: None,
            waits_for_all,
            params: params.to_vec(),
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
        let choice = match filter.rsplit_once(':') {
            Some((path, function)) => Choice::Native { path: path.to_owned(), function: function.to_owned() },
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

    /// The parameters of the filter in the tree.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("an assignment can be serialised")
    }
}

/// The filters that the nodes of a session know.
#[must_use]
pub fn registry() -> Registry {
    let builtins = Registry::with_builtins();
    let mut registry = builtins.clone();
    registry.register_at(NAME, move |params, info| {
        let malformed = |_| FilterError::new(Errno::INVAL, "a malformed assignment of filters");
        let assign: Assign = postcard::from_bytes(params).map_err(malformed)?;
        let work = Work::new(assign.at(info.rank), &assign.params, &builtins, info)?;
        let (waiting, owed) = (BTreeMap::new(), Vec::new());
        let node = Node { work, rank: info.rank, waits_for_all: assign.waits_for_all, waiting, owed };
        Ok(Box::new(Assigned { node: Arc::new(Mutex::new(node)) }))
    });
    registry
}

/// What the filter of one node is made of.
pub enum Work {
    /// Everything passes.
    Pass,
    /// A filter of the tree, used for one wave after the other.
    BuiltIn(Box<dyn Accumulator>),
    /// A function of the user's.
    Native(Native),
}

impl Work {
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
            Some(Choice::Native { path, function }) => {
                Native::load(path, function, params, info).map(Self::Native)
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
                    accumulator.fold(Input { child, rank: parcel.source, tag, raw: true, payload })?;
                }
                let mut packet = Vec::new();
                accumulator.finish(Emit::Result, &mut packet)?;
                out.push(Parcel { tag, source: rank, packet: packet.into() });
            }
            Self::Native(native) => native.run(&packets, out, back)?,
        }
        Ok(())
    }
}

struct Node {
    work: Work,
    rank: u32,
    waits_for_all: bool,
    /// By child: packets that wait for the other children's.
    waiting: BTreeMap<u32, VecDeque<Parcel>>,
    /// What came of another node's state, for the next wave.
    owed: Vec<Parcel>,
}

impl Node {
    /// Takes in what the children have sent for a wave and runs the filter as often as that fills.
    fn wave(
        &mut self,
        sent: BTreeMap<u32, Vec<Parcel>>,
        back: &mut Vec<Parcel>,
    ) -> Result<Vec<Parcel>, FilterError> {
        let mut out = std::mem::take(&mut self.owed);
        if !self.waits_for_all || matches!(self.work, Work::Pass) {
            let packets: Vec<Parcel> = sent.into_values().flatten().collect();
            match &self.work {
                // Without waiting each packet is a wave of its own, unless a time-out has joined them.
                _ if packets.is_empty() => {}
                _ => self.work.run(packets, self.rank, &mut out, back)?,
            }
            return Ok(out);
        }
        let children: Vec<u32> = sent.keys().copied().collect();
        for (child, parcels) in sent {
            let waiting = self.waiting.entry(child).or_default();
            if waiting.len() + parcels.len() > WAITING_MAX {
                return Err(FilterError::new(Errno::OVERFLOW, "a child sends more packets than the others"));
            }
            waiting.extend(parcels);
        }
        let full = |waiting: &BTreeMap<u32, VecDeque<Parcel>>| {
            children.iter().all(|child| waiting.get(child).is_some_and(|queue| !queue.is_empty()))
        };
        while full(&self.waiting) {
            let row = self.waiting.values_mut().filter_map(VecDeque::pop_front).collect();
            self.work.run(row, self.rank, &mut out, back)?;
        }
        Ok(out)
    }
}

struct Assigned {
    node: Arc<Mutex<Node>>,
}

fn lock(node: &Mutex<Node>) -> MutexGuard<'_, Node> {
    node.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Filter for Assigned {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(Wave { node: Arc::clone(&self.node), sent: BTreeMap::new(), back: Vec::new() })
    }

    fn state(&mut self) -> Option<Vec<u8>> {
        match &mut lock(&self.node).work {
            Work::Native(native) => native.state(),
            _ => None,
        }
    }

    fn absorb(&mut self, state: &[u8]) -> Result<(), FilterError> {
        let node = &mut *lock(&self.node);
        let parcel = Parcel { tag: 0, source: crate::NO_RANK, packet: Bytes::copy_from_slice(state) };
        // There is nobody below who could be answered for this.
        node.work.run(vec![parcel], node.rank, &mut node.owed, &mut Vec::new())
    }
}

/// One wave at one node.
struct Wave {
    node: Arc<Mutex<Node>>,
    sent: BTreeMap<u32, Vec<Parcel>>,
    back: Vec<Parcel>,
}

impl Accumulator for Wave {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        let parcels = Parcel::list(Bytes::copy_from_slice(input.payload))
            .map_err(|error| FilterError::new(Errno::BADMSG, error.message))?;
        self.sent.entry(input.rank).or_default().extend(parcels);
        Ok(())
    }

    fn finish(&mut self, _: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        let sent = std::mem::take(&mut self.sent);
        let parcels = lock(&self.node).wave(sent, &mut self.back)?;
        for Parcel { tag, source, packet } in parcels {
            Parcel::put(out, tag, source, &packet);
        }
        Ok(())
    }

    fn replies(&mut self) -> Replies {
        let mut replies = Replies::default();
        for parcel in self.back.drain(..) {
            let payload = crate::wire::Down::encode(&parcel.packet, &[]);
            // What is beyond the bounds of replies is not sent.
            let _ = replies.push(parcel.tag, payload);
        }
        replies
    }
}
