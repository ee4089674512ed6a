//! One link of a node: whether the peer lives, and what is still to be written to it.
use super::heartbeat::Pulse;
use super::queue::OutQueue;
use crate::config::Time;
use crate::control::{Adopt, Caller};
use crate::report::Via;
use sheaf_core::{Errno, RangeSet};
use std::collections::VecDeque;

/// Which way a link leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkWay {
    /// To a child.
    Down,
    /// To a parent: the tree's, or a client of a running session.
    Up,
}

/// Where a link stands between its first byte and its end.
#[derive(Debug)]
pub(crate) enum LinkState {
    /// A node has connected, and has said nothing so far.
    Knocking,
    /// Its node waits until other children have let go of its leaves.
    Pending(Box<Adopt>),
    /// Upward: an ancestor has been asked, and has not answered.
    Asking,
    /// The peer is child or parent.
    Member,
    /// It is lost, and its leaves may come back until then.
    Awaited(Box<Awaited>),
    /// It is lost for good.
    Lost,
}

/// What carries the bytes of a link, and so who tells that the peer has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkCarrier {
    /// Nothing yet: the queue only fills.
    Nothing,
    /// A connection: only heartbeats tell that the peer lives.
    Connection,
    /// A connection to a process of this machine: the kernel tells when it ends.
    Near,
    /// This process: it ends with its peer, and needs no heartbeats.
    Inside,
}

/// A lost link whose leaves may come back.
#[derive(Debug)]
pub(crate) struct Awaited {
    pub until: Time,
    pub errno: Errno,
    pub cause: String,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub way: LinkWay,
    pub state: LinkState,
    pub carrier: LinkCarrier,
    /// The same for people.
    pub via: Via,
    /// The leaves below it (all of the node's own for an upward link).
    pub(super) leaves: RangeSet,
    /// Of a link to a child: the leaves that its node may speak for, wherever they are now.
    pub claim: RangeSet,
    pub rank: u32,
    /// When the driver last saw that the peer lives, though nothing was heard of it.
    pub vouched: Time,
    /// However long the peer says nothing, there is no other to go to.
    pub is_sole: bool,
    /// Written to by [`super::Links::send`] and [`super::Links::send_down`] alone.
    pub(super) out: OutQueue,
    /// On the list of links with something to write.
    pub(super) dirty: bool,
    /// The part of a frame that has arrived.
    pub carry: Vec<u8>,
    pub heard: Time,
    pub spoke: Time,
    /// Streams with data waiting for room on this link, each once, served in turn.
    pub waiting: VecDeque<u32>,
    /// The sub-tree below has reported that it runs.
    pub ready: bool,
    /// The node there wants no engine for WebAssembly: it has one, or no use for it.
    pub has_engine: bool,
    /// Of a link to a client: where the identifiers of its streams begin.
    pub streams_from: u32,
    /// The nodes whose taps' states have come over it: that at its other end, which goes, and
    /// those that it had taken in.
    pub gave: RangeSet,
    /// Of a link to a client: on whose behalf it is, unless it is the session's user.
    pub caller: Option<Box<Caller>>,
    /// How often its node had looked for a parent when it came.
    pub epoch: u64,
    /// Its node was started anew: streams up to this number are from before.
    pub born: Option<u64>,
    pub counters: Counters,
    /// What heartbeats have measured; nothing on a link that needs none.
    pub pulse: Option<Box<Pulse>>,
    /// When it was attached, or lost.
    pub since: Time,
    /// How often a transport was attached after the first.
    pub reconnects: u32,
    /// Answers of the leaf at its other end that did not decode.
    pub garbled: u32,
}

/// Traffic of one link.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Frames read.
    pub frames_in: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes handed to the transport.
    pub bytes_out: u64,
}

impl Link {
    pub fn new(way: LinkWay, rank: u32, leaves: RangeSet, now: Time) -> Self {
        Self {
            way,
            state: LinkState::Member,
            carrier: LinkCarrier::Nothing,
            via: Via::default(),
            claim: if way == LinkWay::Down { leaves.clone() } else { RangeSet::new() },
            leaves,
            rank,
            vouched: now,
            is_sole: false,
            out: OutQueue::default(),
            dirty: false,
            carry: Vec::new(),
            heard: now,
            spoke: now,
            waiting: VecDeque::new(),
            ready: false,
            has_engine: false,
            streams_from: 0,
            gave: RangeSet::new(),
            caller: None,
            epoch: 0,
            born: None,
            counters: Counters::default(),
            pulse: None,
            since: now,
            reconnects: 0,
            garbled: 0,
        }
    }

    pub fn in_state(self, state: LinkState) -> Self {
        Self { state, ..self }
    }

    pub fn carried_by(self, carrier: LinkCarrier) -> Self {
        Self { carrier, ..self }
    }

    /// Whether the peer is counted as there.
    #[inline]
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, LinkState::Awaited(_) | LinkState::Lost)
    }

    /// Whether it leads to a child whose node is counted as there.
    pub fn is_live_child(&self) -> bool {
        self.way == LinkWay::Down && self.is_alive()
    }

    pub fn is_member(&self) -> bool {
        matches!(self.state, LinkState::Member)
    }

    pub fn is_attached(&self) -> bool {
        self.carrier != LinkCarrier::Nothing
    }

    pub fn is_inside(&self) -> bool {
        self.carrier == LinkCarrier::Inside
    }

    pub fn is_near(&self) -> bool {
        self.carrier == LinkCarrier::Near
    }

    /// Whether the peer must show signs of life.
    pub fn is_watched(&self) -> bool {
        self.is_alive() && matches!(self.carrier, LinkCarrier::Connection | LinkCarrier::Near)
    }

    /// The leaves below it (all of the node's own for an upward link).
    #[inline]
    pub fn leaves(&self) -> &RangeSet {
        &self.leaves
    }

    /// Of a link to a client: on whose behalf it is.
    pub fn caller(&self) -> &Caller {
        self.caller.as_deref().unwrap_or(&Caller::Owner)
    }

    /// What waits to be written.
    #[inline]
    pub fn out(&self) -> &OutQueue {
        &self.out
    }

    /// Notes that a stream has data waiting for this link.
    pub fn wait(&mut self, stream: u32) {
        if !self.waiting.contains(&stream) {
            self.waiting.push_back(stream);
        }
    }
}
