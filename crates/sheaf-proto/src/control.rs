//! Bodies of control frames.
use super::frame::{self, Header, Kind, Violation};
use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sheaf_core::{Errno, RangeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// Version of everything on a link; both ends must have the same.
pub const PROTOCOL_VERSION: u32 = 15;

/// How a node collects the contributions to a wave before it sends on what it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Sync {
    /// One packet from every child (MRNet's Wait For All).
    #[default]
    WaitForAll,
    /// What has come when this long has passed since the first contribution; late ones follow as
    /// further partials of the same wave (MRNet's Time Out).
    TimeOut(Duration),
    /// Each contribution at once (MRNet's Do Not Wait).
    DontWait,
}

/// On whose behalf a stream is open.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Caller {
    /// The user whose session it is.
    #[default]
    Owner,
    /// Another process of some host, which has come by way of the server there.
    User {
        /// As the kernel of that host says.
        uid: u32,
        /// The primary group.
        gid: u32,
        /// The other groups, at most [`CALLER_GROUPS_MAX`].
        gids: Vec<u32>,
        /// The host.
        host: String,
        /// It is the user as whom the server of that host runs, which is the session's there:
        /// numbers of users need not be the same on all hosts.
        is_owner: bool,
        /// The rights of clients on that host.
        rights: ClientRights,
    },
    /// The server of another host, over a peer link that the root has introduced.
    Host {
        /// The host.
        host: String,
        /// The rights of clients on that host.
        rights: ClientRights,
    },
}

/// The rights of a client that entered a session on one of its hosts. The root decides them by the
/// host; the server that is asked enforces them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClientRights {
    /// It may change files.
    pub may_write: bool,
    /// A client that is root on its host is root on the others.
    pub may_be_root: bool,
}

impl ClientRights {
    /// All rights.
    pub const FULL: Self = Self { may_write: true, may_be_root: true };
}

impl Caller {
    /// Whether it is neither the user whose session it is nor a server's: its own files are all
    /// that it may use.
    #[must_use]
    pub fn is_guest(&self) -> bool {
        matches!(self, Self::User { is_owner: false, .. })
    }

    /// The rights that the root has given it; the user of the session has all.
    #[must_use]
    pub fn rights(&self) -> ClientRights {
        match self {
            Self::Owner => ClientRights::FULL,
            Self::User { rights, .. } | Self::Host { rights, .. } => *rights,
        }
    }

    /// Whether it entered the session on one of its hosts, and not at the root. The root and the
    /// nodes run no code that such a client brings.
    #[must_use]
    pub fn is_from_host(&self) -> bool {
        !matches!(self, Self::Owner)
    }

    /// Whether it may only open and use streams: it is a guest, or may change nothing.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.is_guest() || !self.rights().may_write || matches!(self, Self::Host { .. })
    }
}

/// The most groups of a caller: as many as Linux lets a process have.
pub const CALLER_GROUPS_MAX: usize = 1 << 16;

/// The longest note of a service that wants a stream.
pub const NOTE_BYTES_MAX: usize = 256;

/// The longest name of a service.
pub const SERVICE_BYTES_MAX: usize = 64;

/// Opens a stream at the nodes that lead to its members.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Open {
    /// Which service of the members it is for.
    pub service: String,
    /// On whose behalf; the root says so for the clients that it lets in.
    pub caller: Caller,
    /// Which it is of all streams of the session, as the root counts them; its identifier is
    /// another's later.
    pub number: u64,
    /// The communicator: which leaves take part.
    pub members: RangeSet,
    /// Name of the filter on the way up.
    pub filter: String,
    /// Parameters of the filter.
    pub params: Vec<u8>,
    /// When waves are passed on.
    pub sync: Sync,
    /// Bytes that may be under way on one link, each way.
    pub window_bytes: u32,
    /// For who joins late: bytes of the stream that went before.
    pub offset: u64,
    /// For who joins late: the first wave it takes part in.
    pub wave_base: u64,
    /// For an inner node that is sent the stream from its beginning because of leaves that may
    /// have had it: so many bytes of it are from before. What is in a process that was started anew
    /// takes part from there on: its own leaf, and those below it that came earlier than this.
    pub old: u64,
}

/// First frame on a link from parent to child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assign {
    /// [`PROTOCOL_VERSION`] of the parent.
    pub version: u32,
    /// The child's depth; the root has 0.
    pub depth: u32,
    /// The child's sub-tree ([`crate::topology`], wire form).
    pub subtree: Vec<u8>,
    /// Tuning of every node of the session.
    pub tuning: super::Tuning,
    /// What a service at the leaves needs to start (for a file server: its export).
    pub service: Vec<u8>,
    /// How a node reaches the children it starts.
    pub launch: Vec<u8>,
    /// The other children of the child's parent.
    pub siblings: u32,
    /// Where the child's stream identifiers begin (clients of a session only).
    pub stream_base: u32,
    /// Where the nodes above the child listen: its parent first, the root last.
    pub ancestors: Vec<Ancestor>,
}

/// Where a node listens for others that have lost their parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ancestor {
    /// Its rank.
    pub rank: u32,
    /// How to reach it.
    pub address: DoorAddress,
}

/// How to reach a node. Only drivers look into it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DoorAddress {
    /// A unix socket of this machine, by its abstract name.
    Abstract(String),
    /// TCP, to be tried in this order.
    Tcp(Vec<SocketAddr>),
}

/// A node that has lost its parent asks an ancestor to take it: its second frame there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopt {
    /// Its rank.
    pub rank: u32,
    /// How often it has looked for a parent; a connection of an earlier time is stale.
    pub epoch: u64,
    /// The leaves below it.
    pub leaves: RangeSet,
    /// Those of them that it has given up.
    pub lost: RangeSet,
    /// Those of them whose link it has lost: whoever else has them may keep them.
    pub away: RangeSet,
    /// Those that run, once it has reported that.
    pub ready: Option<RangeSet>,
    /// Its streams.
    pub streams: Vec<AdoptStream>,
    /// Modules it has, by hash.
    pub modules: Vec<[u8; 32]>,
    /// Nodes that went, and gave it what their taps kept, as far as their parents are to hear of
    /// them.
    pub gave: RangeSet,
    /// It was started anew, perhaps in the place of one that was lost: streams up to this number
    /// ([`Open::number`]) are from before; `u64::MAX` when it has not been told yet.
    pub born: Option<u64>,
    /// The machines of the leaves below it that are to be in the session once, in order.
    pub machines: Vec<(u32, Machine)>,
}

impl Adopt {
    /// How far it has got with a stream, once its streams have been put in order.
    pub(crate) fn place(&self, id: u32) -> Option<&AdoptStream> {
        let at = self.streams.binary_search_by_key(&id, |place| place.id).ok()?;
        self.streams.get(at)
    }
}

/// How far a node has got with a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptStream {
    /// The stream.
    pub id: u32,
    /// Bytes of it that have come, since it was opened.
    pub received: u64,
    /// Of these, how many every leaf below has consumed.
    pub acked: u64,
    /// The wave it began with: nothing comes of earlier ones.
    pub since: u64,
    /// State of its filter, for the adopter's filter to absorb.
    pub state: Option<Vec<u8>>,
}

/// The answer to [`Adopt`]. Streams of the orphan's that are not named it closes; if they are open
/// at the adopter, they are opened there again behind this, and begin anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopted {
    /// Streams that go on where they were.
    pub continued: Vec<u32>,
    /// Leaves that it still speaks for.
    pub leaves: RangeSet,
    /// The last stream that the adopter has heard of ([`Open::number`]); `u64::MAX` when it was
    /// started anew itself and has not been told, 0 when nobody was there before.
    pub number: u64,
}

/// Leaves with which another node has turned up: whoever speaks for them below is asked to let go.
/// A leaf that is there keeps itself, and says so by not naming itself in [`Released`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Which.
    pub leaves: RangeSet,
    /// Rank of the node that has them now.
    pub rank: u32,
}

/// A child of the receiver's that comes to it from the sender: its place is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Take {
    /// Its rank.
    pub rank: u32,
    /// The leaves that come with it.
    pub leaves: RangeSet,
}

/// Answers of these leaves do not decode, as the client that asked for them has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Garbled {
    /// Which.
    pub leaves: RangeSet,
}

/// The root has done what it could for a child that it was asked to start ([`Notice::Stranded`]).
/// Leaves that are still held for it have failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Rank of the child.
    pub rank: u32,
    /// The leaves that it was to have.
    pub leaves: RangeSet,
    /// Why those that did not come have failed.
    pub errno: Errno,
    /// In one phrase.
    pub cause: String,
}

/// The answer to [`Release`]: from here on the sender does not speak for these leaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// Which. Leaves that were asked for and that are below the sender for certain are not among
    /// them: who asked for them does not know that they have left it.
    pub leaves: RangeSet,
    /// The rank that the question named.
    pub rank: u32,
}

/// What the root has of a stream's waves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// Waves that are over: first and last of each range.
    pub waves: Vec<(u64, u64)>,
    /// Waves that are not, with the leaves that are counted in them.
    pub partial: Vec<(u64, RangeSet)>,
}

/// A sub-tree has started, with these leaves; the others are told of by [`Notice::Lost`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Leaves that run.
    pub leaves: RangeSet,
    /// As in [`Adopt`]: a leaf's own. Of others the receiver has heard by [`Notice::Machine`].
    pub machines: Vec<(u32, Machine)>,
}

/// The machine that a leaf is on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Which.
    pub id: MachineId,
    /// The leaf's host, as the session calls it.
    pub host: String,
    /// The leaf's rank.
    pub rank: u32,
}

/// What a machine is known by, whoever its leaves run as. Two are one machine where they have one boot; where
/// one of them does not see its boot, where they have a name in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineId {
    /// A digest of the boot; `None` where it is hidden.
    pub boot: Option<[u8; 16]>,
    /// Digests of what the machine is called, which others that are copies of it may be, too.
    pub names: [[u8; 16]; 2],
}

/// The root's answer to the [`Machine`] of a leaf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// Which.
    pub leaf: u32,
    /// Why it is not to serve, in one phrase.
    pub refused: Option<String>,
}

/// Something that travels to the root unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// A child of `by` is gone and these leaves with it.
    Lost {
        /// Rank of the node that noticed.
        by: u32,
        /// Rank of the node that is gone.
        rank: u32,
        /// The leaves below it.
        leaves: RangeSet,
        /// `EHOSTDOWN` and the like.
        errno: Errno,
        /// Why, in one phrase: "its process ended with signal 9".
        cause: String,
    },
    /// Leaves that were lost take part again, from the next wave on.
    Joined {
        /// Rank of the node that took them.
        by: u32,
        /// Rank of the node that came.
        rank: u32,
        /// The leaves below it.
        leaves: RangeSet,
    },
    /// A leaf has left as planned.
    Left {
        /// Its rank.
        rank: u32,
        /// Itself.
        leaves: RangeSet,
    },
    /// A service at a leaf asks the process of the root for a stream. It may be lost with a link,
    /// and is asked again by whoever still wants it.
    Wants {
        /// The leaf.
        leaf: u32,
        /// The service.
        service: String,
        /// What the service has to say to its other half, at most [`NOTE_BYTES_MAX`].
        note: Vec<u8>,
    },
    /// A node cannot start what is at the place of a child, and asks the root to start it: the
    /// leaves come to that node, or where that cannot be to the root. [`Verdict`] says when it is
    /// done. The root says it of its own children, with the leaves that it starts itself.
    Stranded {
        /// Rank of the node that asks.
        by: u32,
        /// Rank of its child.
        rank: u32,
        /// The leaves below it.
        leaves: RangeSet,
        /// Why, in one phrase.
        cause: String,
        /// Where the node that asks listens, and those above it.
        above: Vec<Ancestor>,
    },
    /// What the tap of a service kept at a node is lost with that node.
    StateLost {
        /// Rank of the node that says so.
        by: u32,
        /// Rank of the node that is lost.
        rank: u32,
        /// The service.
        service: String,
    },
    /// An answer of these leaves does not decode.
    Garbled {
        /// Rank of the node that has the link to them.
        by: u32,
        /// Which.
        leaves: RangeSet,
    },
    /// A leaf has started, or is about to be let in. The root keeps it to itself.
    Machine {
        /// The leaf.
        leaf: u32,
        /// Where it is.
        machine: Machine,
    },
    /// A filter could not combine; the leaves are `failed` in that wave.
    FilterFailed {
        /// Rank of the node where it happened.
        by: u32,
        /// The stream.
        stream: u32,
        /// The wave.
        wave: u64,
        /// What the filter said.
        message: String,
    },
}

/// The longest text of a notice: notices are kept, and told to every client.
const NOTICE_TEXT_BYTES_MAX: usize = 1024;

/// The most ancestors in a notice: no tree is deeper.
const NOTICE_ANCESTORS_MAX: usize = 64;

/// The most addresses of a node.
const NODE_ADDRESSES_MAX: usize = 64;

/// The longest abstract name of a unix socket.
const ABSTRACT_NAME_BYTES_MAX: usize = 107;

impl DoorAddress {
    fn is_short(&self) -> bool {
        match self {
            Self::Abstract(name) => name.len() <= ABSTRACT_NAME_BYTES_MAX,
            Self::Tcp(addresses) => addresses.len() <= NODE_ADDRESSES_MAX,
        }
    }
}

impl Notice {
    /// Cuts off what is too long of its text.
    pub(crate) fn cut(&mut self) {
        if let Self::Stranded { above, .. } = self {
            above.retain(|ancestor| ancestor.address.is_short());
            above.truncate(NOTICE_ANCESTORS_MAX);
        }
        let text = match self {
            Self::Lost { cause, .. } | Self::Stranded { cause, .. } => cause,
            Self::StateLost { service, .. } => service,
            Self::FilterFailed { message, .. } => message,
            _ => return,
        };
        if text.len() > NOTICE_TEXT_BYTES_MAX {
            text.truncate(text.floor_char_boundary(NOTICE_TEXT_BYTES_MAX));
        }
    }
}

/// The frame of an assignment.
#[must_use]
pub fn assign(assign: &Assign) -> Bytes {
    control(Header::new(Kind::Assign), assign)
}

/// Encodes a control frame.
///
/// # Panics
/// When the body holds what cannot be serialised; none of this module's does.
#[must_use]
pub fn control<T: Serialize>(header: Header, body: &T) -> Bytes {
    let body =
        postcard::to_stdvec(body).expect("control bodies hold nothing that cannot be serialised");
    frame::encode(header, &body)
}

/// The body of a frame that opens a stream, and was made here or has been decoded before.
///
/// # Panics
/// When it is no such frame.
pub(crate) fn open_of(frame: &[u8]) -> Open {
    let body = decode(Kind::Open, frame::body(frame));
    body.expect("what is kept here was decoded when it came")
}

/// Decodes the body of a control frame.
///
/// # Errors
/// [`Violation::Body`] when it does not decode.
pub fn decode<T: DeserializeOwned>(kind: Kind, body: &[u8]) -> Result<T, Violation> {
    postcard::from_bytes(body).map_err(|_| Violation::Body(kind))
}
