//! What a node says of itself when it is asked, and how such reports travel: a [`Bundle`] of them,
//! which the filter [`FILTER`] puts together.
use crate::filter::{Accumulator, Emit, Filter, FilterError, Input, Registry};
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, RangeSet};

/// The most links that one report tells of; [`NodeReport::links_more`] counts the others.
pub const LINKS_REPORTED_MAX: usize = 1024;
/// The most streams that one report tells of; [`NodeReport::streams_more`] counts the others.
pub const STREAMS_REPORTED_MAX: usize = 64;
/// The longest text in a report (a host name, the last error), in bytes.
pub const TEXT_BYTES_MAX: usize = 256;
/// The most bytes of the reports that a node passes on together; it counts those that it drops.
pub const REPORTS_BYTES_MAX: usize = 64 << 20;

/// The filter that gathers reports.
pub const FILTER: &str = "reports";

/// One node's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its rank; `u32::MAX` is a client of the session.
    pub rank: u32,
    /// Its place in the tree.
    pub place: NodePlace,
    /// Links between it and the root.
    pub depth: u32,
    /// Its host; empty where nobody told the node.
    pub host: String,
    /// Its process; 0 where nobody told the node.
    pub pid: u32,
    /// For how long its process has run.
    pub uptime_ms: u64,
    /// Its links, to children first.
    pub links: Vec<LinkReport>,
    /// Links beyond [`LINKS_REPORTED_MAX`].
    pub links_more: u32,
    /// Its open streams, by number.
    pub streams: Vec<StreamReport>,
    /// Streams beyond [`STREAMS_REPORTED_MAX`].
    pub streams_more: u32,
    /// Bytes that wait in the node.
    pub queued_bytes: u64,
    /// What went wrong here last.
    pub last_error: Option<LastError>,
    /// Counts of the node's doors by name: strangers who were turned away, and why.
    pub doors: Vec<(String, u64)>,
    /// At a server: links to other hosts that it has begun.
    pub peers: Vec<PeerLinkReport>,
    /// How many others have begun with it.
    pub peers_taken: u32,
}

/// A link from host to host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerLinkReport {
    /// The other host's leaf.
    pub leaf: u32,
    /// Why it goes through the tree, where the other could not be reached directly.
    pub through_tree: Option<String>,
}

/// A node's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodePlace {
    /// The session's root, or a client.
    Root,
    /// An inner node.
    Inner,
    /// A server.
    Leaf,
}

/// What went wrong last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastError {
    /// So long ago.
    pub ago_ms: u64,
    /// `EHOSTDOWN` and the like.
    pub errno: Errno,
    /// In one sentence.
    pub text: String,
}

/// One link of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkReport {
    /// The child at its other end; `None`: a parent or a client.
    pub child: Option<u32>,
    /// The leaves below that child.
    pub leaves: RangeSet,
    /// How it is.
    pub state: ReportedLink,
    /// It has been so, or has run, for so long.
    pub since_ms: u64,
    /// The peer was heard so long ago.
    pub heard_ms: u64,
    /// Both ends are in one process.
    pub local: bool,
    /// What carries it, or carried it last.
    pub via: Via,
    /// Round trip, once it has been measured.
    pub round_trip: Option<RoundTrip>,
    /// The peer's clock, once it has been measured.
    pub clock: Option<PeerClock>,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes handed to the transport.
    pub bytes_out: u64,
    /// Frames read.
    pub frames_in: u64,
    /// Bytes that wait to be written.
    pub queued_bytes: u64,
    /// Streams with data that waits for this link.
    pub streams_waiting: u32,
    /// How often a transport was attached after the first.
    pub reconnects: u32,
}

/// What carries a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Via {
    /// Nobody has said so: nothing, or both ends are in one process.
    #[default]
    Inside,
    /// A unix socket.
    Unix,
    /// TCP as it is.
    Tcp,
    /// TCP with TLS.
    Tls,
    /// An ssh connection.
    Ssh,
}

impl Via {
    /// As it is printed.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::Unix => "unix",
            Self::Tcp => "tcp",
            Self::Tls => "tcp+tls",
            Self::Ssh => "ssh",
        }
    }
}

/// How a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportedLink {
    /// Nothing carries it yet.
    Waiting,
    /// The peer is there.
    Up,
    /// The peer has missed heartbeats, and is not given up yet.
    Late,
    /// What waits for the peer has not moved for as long as heartbeats take to be missed.
    Stuck,
    /// The peer is gone.
    Lost,
}

impl ReportedLink {
    /// Whether the peer is slow to the point of being suspicious.
    #[must_use]
    pub fn is_torpid(self) -> bool {
        matches!(self, Self::Late | Self::Stuck)
    }

    /// In one word, as it is printed.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Up => "up",
            Self::Late => "late",
            Self::Stuck => "stuck",
            Self::Lost => "lost",
        }
    }
}

/// What heartbeats take to the peer and back, less the time it held them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundTrip {
    /// Smoothed over the last eight or so.
    pub smoothed_ns: u64,
    /// The least there was.
    pub least_ns: u64,
}

/// A peer's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerClock {
    /// The peer's less the node's own.
    pub offset_ns: i64,
    /// The offset is off by at most so much.
    pub error_ns: u64,
}

/// One stream at a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamReport {
    /// Its number.
    pub id: u32,
    /// Members below the node.
    pub members: u64,
    /// Bytes that may be under way on one link, each way.
    pub window_bytes: u64,
    /// Of these, what may still be sent towards the root.
    pub credit_up_bytes: u64,
    /// Of these, what may still be sent to the child that has least.
    pub credit_down_bytes: u64,
    /// Waves that are not over.
    pub waves_open: u32,
    /// Bytes that wait or are kept here.
    pub kept_bytes: u64,
}

/// Cuts a text to [`TEXT_BYTES_MAX`].
pub(crate) fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}

impl NodeReport {
    /// Whether it tells of more than it may.
    fn is_within_bounds(&self) -> bool {
        self.links.len() <= LINKS_REPORTED_MAX && self.streams.len() <= STREAMS_REPORTED_MAX
    }
}

/// Reports of several nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bundle {
    /// Each encoded, behind its length.
    bytes: Vec<u8>,
    /// Reports that were dropped on the way for want of room.
    pub dropped: u32,
}

impl Bundle {
    /// One report.
    ///
    /// # Panics
    /// Never: a report has nothing that cannot be encoded.
    #[must_use]
    pub fn of(report: &NodeReport) -> Self {
        let encoded =
            postcard::to_stdvec(report).expect("a report has nothing that cannot be encoded");
        let mut bytes = (encoded.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&encoded);
        Self { bytes, dropped: 0 }
    }

    /// As bytes: how many were dropped, then the reports.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.dropped.to_le_bytes().to_vec();
        out.extend_from_slice(&self.bytes);
        out
    }

    /// The reports that these bytes hold, and how many were dropped. Those that cannot be read
    /// count as dropped.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> (Vec<NodeReport>, u32) {
        let Some((dropped, mut rest)) = bytes.split_first_chunk() else { return (Vec::new(), 0) };
        let (mut reports, mut dropped) = (Vec::new(), u32::from_le_bytes(*dropped));
        while let Some((len, tail)) = rest.split_first_chunk() {
            let len = u32::from_le_bytes(*len) as usize;
            let Some((encoded, tail)) = tail.split_at_checked(len) else {
                // Nothing after this length can be located: the rest counts as one report.
                dropped = dropped.saturating_add(1);
                break;
            };
            match postcard::from_bytes::<NodeReport>(encoded)
                .ok()
                .filter(NodeReport::is_within_bounds)
            {
                Some(report) => reports.push(report),
                None => dropped = dropped.saturating_add(1),
            }
            rest = tail;
        }
        (reports, dropped)
    }

    /// How many there are, counted by their lengths.
    fn count(mut bytes: &[u8]) -> u32 {
        let mut count = 0u32;
        while let Some((len, tail)) = bytes.split_first_chunk() {
            count = count.saturating_add(1);
            bytes = tail.get(u32::from_le_bytes(*len) as usize..).unwrap_or_default();
        }
        count
    }
}

/// Gathers bundles, as many as there is room for.
struct Gather {
    bytes_max: usize,
}

pub(crate) fn register(registry: &mut Registry) {
    registry.register(FILTER, |_| Ok(Box::new(Gather { bytes_max: REPORTS_BYTES_MAX })));
}

impl Filter for Gather {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(Gathered { bundle: Bundle::default(), bytes_max: self.bytes_max })
    }
}

struct Gathered {
    bundle: Bundle,
    bytes_max: usize,
}

impl Accumulator for Gathered {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        let Some((dropped, reports)) = input.payload.split_first_chunk() else {
            return Err(FilterError::new(Errno::BADMSG, "this is no report of a node"));
        };
        let mut dropped = u32::from_le_bytes(*dropped);
        if self.bundle.bytes.len() + reports.len() > self.bytes_max {
            dropped = dropped.saturating_add(Bundle::count(reports));
        } else {
            self.bundle.bytes.extend_from_slice(reports);
        }
        self.bundle.dropped = self.bundle.dropped.saturating_add(dropped);
        Ok(())
    }

    fn finish(&mut self, _: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        out.append(&mut std::mem::take(&mut self.bundle).encode());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rank: u32) -> NodeReport {
        NodeReport {
            rank,
            place: NodePlace::Leaf,
            depth: 1,
            host: format!("n{rank}"),
            pid: 1,
            uptime_ms: 2,
            links: Vec::new(),
            links_more: 0,
            streams: Vec::new(),
            streams_more: 0,
            queued_bytes: 0,
            last_error: None,
            doors: Vec::new(),
            peers: Vec::new(),
            peers_taken: 0,
        }
    }

    fn gathered(bytes_max: usize, bundles: &[Vec<u8>]) -> Vec<u8> {
        let mut accumulator = Gather { bytes_max }.accumulator();
        for bundle in bundles {
            let payload = &bundle[..];
            accumulator.fold(Input { payload, ..Input::default() }).unwrap();
        }
        let mut out = Vec::new();
        accumulator.finish(Emit::Partial, &mut out).unwrap();
        out
    }

    #[test]
    fn reports_without_room_are_counted_as_dropped() {
        let one: Vec<Vec<u8>> = (0..4).map(|rank| Bundle::of(&report(rank)).encode()).collect();
        let room = one[0].len() * 2;
        let left = gathered(room, &one);
        let (reports, dropped) = Bundle::decode(&left);
        assert_eq!((reports.len(), dropped), (2, 2));
        // Two full bundles: of the second all are dropped, and what was dropped before counts on.
        let both = gathered(room, &[left.clone(), left]);
        let (reports, dropped) = Bundle::decode(&both);
        assert_eq!((reports.len(), dropped), (2, 6));
    }

    #[test]
    fn undecodable_reports_are_counted_as_dropped() {
        let mut bytes = Bundle::of(&report(7)).encode();
        bytes.extend_from_slice(&[3, 0, 0, 0, 255, 255, 255]);
        bytes.extend_from_slice(&[200, 0, 0, 0, 1]);
        let (reports, dropped) = Bundle::decode(&bytes);
        assert_eq!((reports, dropped), (vec![report(7)], 2));
        assert_eq!(Bundle::decode(b"ab"), (Vec::new(), 0));
    }
}
