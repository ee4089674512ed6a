//! Peer links: what one host has to say to another goes there, and not by way of the root.
//!
//! ```text
//! A ── wants a stream of `peers` ──> root          leaf and number of the question
//!        root ── expect ──> B                      token and rank of A; B answers where it listens
//!        root ── introduce ──> A                   token, rank and address of B, or why not
//! A ── greeting, TLS, token ──> B                  which counts once, for A alone, and not for long
//! ```
//! From there on A is the root of a tree with one leaf, which is B: the same frames, credits and
//! services. Each end has the link's node to itself, apart from its node in the tree. Where A does
//! not get through to B, the root carries the bytes of the link (`peer/relay.rs`).
use super::search::arrive_within;
use crate::driver::{PeerLinks, Shared};
use crate::launch::start::plan::Station;
use crate::link::door::{DoorHost, Doorkeeper};
use crate::link::wire::{Channel, Wire};
use crate::link::{Ancestor, Audit, DoorAddress, Hello, Refusal, hello, is_sound};
use crate::network::{Network, Stream};
use crate::proto::report::PeerLinkReport;
use crate::proto::{self, Child, LinkId, NodeConfig, NodeRole, Notice, Packet, Tuning};
use crate::service::{
    Caller, ClientRights, Configs, Dispatch, Leaf, LeafHandle, Provider, Service, ServiceError,
    ServicePlace, Services, Site,
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, RangeSet, lock};
use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

mod introduce;
mod relay;

use relay::RelayedPeers;

/// The name of the service.
pub(crate) const PEERS: &str = "peers";

/// The most links that a host begins, or takes, at a time; of those that it has begun the one goes
/// that was not used for longest.
pub const PEERS_MAX: usize = 64;
/// A link that no stream has used for so long ends.
pub const PEER_IDLE: Duration = Duration::from_secs(60);
/// How often it is looked for those.
const IDLE_LOOK: Duration = Duration::from_secs(10);
/// How long a token counts.
const TOKEN_TIME: Duration = Duration::from_secs(10);
/// How long the root may take to introduce, and how often it is asked meanwhile.
const INTRODUCTION_TIMEOUT: Duration = Duration::from_secs(5);
const ASK_PAUSE: Duration = Duration::from_secs(1);
/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// For how long a host that was not reached is not tried again.
const UNREACHED_TIME: Duration = Duration::from_secs(300);

/// What a packet says, by its tag; those of the bytes of a link are [`relay`]'s.
const EXPECT: i32 = 11;
const INTRODUCE: i32 = 12;

type PeerToken = [u8; 32];

/// To B: whom to expect.
#[derive(Debug, Serialize, Deserialize)]
struct Expect {
    token: PeerToken,
    rank: u32,
    who: PeerHost,
}

/// A host as the root names it to another, with its rights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PeerHost {
    host: String,
    rights: ClientRights,
}

/// To A: the answer to its question of this number.
#[derive(Debug, Serialize, Deserialize)]
struct Introduction {
    number: u64,
    to: Result<Whereabouts, Errno>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Whereabouts {
    token: PeerToken,
    rank: u32,
    address: DoorAddress,
}

/// What the root has for who asked for another host.
enum PeerFound {
    There(Whereabouts),
    /// It carries the link, at whose end this is.
    Through(OwnedFd),
}

/// What is asked for: number of the question, the other's leaf, and whether the root is to carry
/// the link.
#[derive(Debug, Serialize, Deserialize)]
struct PeerQuestion {
    number: u64,
    leaf: u32,
    relay: bool,
}

/// Another host could not be reached directly. Streams of the session's root reach it all the same.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The session is over, or has no links of this kind.
    #[error("this session has no peer links")]
    None,
    /// The root introduces nobody, or not to that host.
    #[error("the root gives no introduction: {0}")]
    Introduction(Errno),
    /// The host does not answer, or does not believe it.
    #[error("the host cannot be reached directly: {0}")]
    Unreached(Arc<io::Error>),
}

impl PeerError {
    /// What it is to a caller of file operations.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::None => Errno::OPNOTSUPP,
            Self::Introduction(errno) => *errno,
            Self::Unreached(error) => Errno::from_io(error),
        }
    }
}

/// A link to another host. Cheap to clone; it ends some time after nobody uses it.
#[derive(Clone)]
pub struct Peer {
    link: Arc<PeerConnection>,
}

struct PeerConnection {
    network: Network,
    leaf: u32,
    /// Why it goes through the tree.
    through_tree: Option<String>,
    used: Mutex<Instant>,
}

impl PeerConnection {
    async fn ended(&self) {
        let mut seen = 0;
        loop {
            let notices = self.network.notices_from(&mut seen).await;
            if notices.iter().any(ends_link) {
                return;
            }
        }
    }
}

fn ends_link(notice: &Notice) -> bool {
    matches!(notice, Notice::Lost { .. } | Notice::Left { .. })
}

impl Peer {
    /// The host's leaf in the session.
    #[must_use]
    pub fn leaf(&self) -> u32 {
        self.link.leaf
    }

    /// Opens a stream to a service of that host.
    #[must_use]
    pub fn open(&self, service: &str) -> Stream {
        *lock(&self.link.used) = Instant::now();
        let only = RangeSet::single(self.link.leaf);
        self.link.network.open(service, only, "pass", &[], proto::Sync::WaitForAll)
    }

    /// Why it goes through the tree, where the host could not be reached directly.
    #[must_use]
    pub fn through_tree(&self) -> Option<&str> {
        self.link.through_tree.as_deref()
    }

    /// Whether the link is gone: nothing that is sent now gets there.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.link.network.notices().iter().any(ends_link)
    }

    /// Waits until the link is gone.
    pub async fn ended(&self) {
        self.link.ended().await;
    }
}

/// The peer links of one server.
pub(crate) struct Peers {
    station: Arc<Station>,
    services: Services,
    configs: Configs,
    leaf: u32,
    tuning: Tuning,
    handle: LeafHandle,
    /// Who was let in at this process's doors, and who was not.
    audit: Arc<Audit>,
    state: Mutex<PeerState>,
}

#[derive(Default)]
struct PeerState {
    last: u64,
    asked: FxHashMap<u64, oneshot::Sender<Result<PeerFound, Errno>>>,
    /// What goes through the tree, by streams.
    relayed: RelayedPeers,
    /// Hosts that could not be reached directly, why, and when.
    unreached: FxHashMap<u32, (String, Instant)>,
    expected: ExpectedPeers,
    door: Option<(Doorkeeper, DoorAddress)>,
    /// Links that were begun here.
    begun: FxHashMap<u32, Peer>,
    /// How many were taken.
    taken: usize,
}

/// Whom to let in: what the root has said, and until when.
#[derive(Default)]
struct ExpectedPeers(Vec<(Expect, Instant)>);

impl ExpectedPeers {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn add(&mut self, expect: Expect, now: Instant) {
        self.0.retain(|(_, until)| *until > now);
        self.0.push((expect, now + TOKEN_TIME));
    }

    /// Whether anybody of this rank is expected.
    fn is_any(&self, rank: u32) -> bool {
        self.0.iter().any(|(expected, _)| expected.rank == rank)
    }

    /// [`Self::redeem`] of what a greeting says; a refusal is counted.
    fn admit(
        &mut self,
        token: Option<&PeerToken>,
        rank: u32,
        now: Instant,
        audit: &Audit,
    ) -> Option<PeerHost> {
        let admitted = token.and_then(|token| self.redeem(token, rank, now));
        if admitted.is_none() {
            audit.refuse(&format!("node {rank}"), Refusal::Introduction);
        }
        admitted
    }

    /// The host with this rank, if the token is for it and was not tried before; it
    /// was from now on.
    fn redeem(&mut self, token: &PeerToken, rank: u32, now: Instant) -> Option<PeerHost> {
        let at = self.0.iter().position(|(expected, _)| expected.token == *token)?;
        let (expected, until) = self.0.swap_remove(at);
        (expected.rank == rank && until > now).then_some(expected.who)
    }
}

impl Peers {
    fn state(&self) -> MutexGuard<'_, PeerState> {
        lock(&self.state)
    }

    /// A link to that host: one that is there, or a new one.
    pub async fn dial(self: &Arc<Self>, leaf: u32) -> Result<Peer, PeerError> {
        if let Some(peer) = self.state().begun.get(&leaf).filter(|peer| !peer.is_gone()) {
            return Ok(peer.clone());
        }
        let peer = match self.direct(leaf).await {
            Err(PeerError::Unreached(error)) => self.relayed(leaf, &error).await?,
            direct => direct?,
        };
        let mut state = self.state();
        if state.begun.len() >= PEERS_MAX {
            let used = |peer: &Peer| *lock(&peer.link.used);
            let oldest =
                state.begun.iter().min_by_key(|(_, peer)| used(peer)).map(|(leaf, _)| *leaf);
            oldest.and_then(|oldest| state.begun.remove(&oldest));
        }
        state.begun.insert(leaf, peer.clone());
        crate::task::spawn(look_after(Arc::downgrade(self), leaf, Arc::downgrade(&peer.link)));
        Ok(peer)
    }

    async fn direct(&self, leaf: u32) -> Result<Peer, PeerError> {
        let unreached = |error| PeerError::Unreached(Arc::new(error));
        let known = self.state().unreached.get(&leaf).cloned();
        if let Some((cause, since)) = known
            && since.elapsed() < UNREACHED_TIME
        {
            return Err(unreached(io::Error::other(cause)));
        }
        match self.find(leaf, false).await? {
            PeerFound::There(to) => self.connect(leaf, to).await.map_err(unreached),
            PeerFound::Through(_) => Err(PeerError::Introduction(Errno::PROTO)),
        }
    }

    /// The same by way of the root.
    async fn relayed(&self, leaf: u32, why: &Arc<io::Error>) -> Result<Peer, PeerError> {
        let cause = why.to_string();
        // It may not be there at all.
        let peer = self.carried(leaf, &cause).await;
        let peer = peer.map_err(|_| PeerError::Unreached(Arc::clone(why)))?;
        tracing::warn!(leaf, cause, "a host is not reached directly, but through the tree");
        let mut state = self.state();
        state.unreached.retain(|_, (_, since)| since.elapsed() < UNREACHED_TIME);
        state.unreached.entry(leaf).or_insert_with(|| (cause, Instant::now()));
        Ok(peer)
    }

    /// A link that the root carries, for this reason.
    pub async fn carried(&self, leaf: u32, cause: &str) -> Result<Peer, PeerError> {
        let PeerFound::Through(end) = self.find(leaf, true).await? else {
            return Err(PeerError::Introduction(Errno::PROTO));
        };
        self.begin(leaf, end.into(), None, Some(cause.to_owned()))
            .map_err(|error| PeerError::Unreached(Arc::new(error)))
    }

    /// Asks the root who that is, and where; or to carry a link there.
    async fn find(&self, leaf: u32, relay: bool) -> Result<PeerFound, PeerError> {
        let (tell, mut told) = oneshot::channel();
        let number = {
            let mut state = self.state();
            state.last += 1;
            let number = state.last;
            state.asked.insert(number, tell);
            number
        };
        let note = postcard::to_stdvec(&PeerQuestion { number, leaf, relay })
            .expect("numbers can be encoded");
        let deadline = Instant::now() + INTRODUCTION_TIMEOUT;
        let mut asked = 0;
        while Instant::now() < deadline {
            self.handle.with(|own| own.want_stream(PEERS, &note));
            asked += 1;
            match tokio::time::timeout(ASK_PAUSE, &mut told).await {
                Ok(Ok(answer)) => return answer.map_err(PeerError::Introduction),
                Ok(Err(_)) => return Err(PeerError::None),
                // What is asked for may be lost.
                Err(_) => {
                    tracing::debug!(
                        leaf,
                        "the root has not introduced a host, asked {asked} times"
                    );
                }
            }
        }
        self.state().asked.remove(&number);
        Err(PeerError::Introduction(Errno::TIMEDOUT))
    }

    async fn connect(&self, leaf: u32, to: Whereabouts) -> io::Result<Peer> {
        if !is_sound(&to.address) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let there = [Ancestor { rank: to.rank, address: to.address }];
        let channel = arrive_within(&self.station.caller(), &there, CONNECT_TIMEOUT).await?;
        self.begin(leaf, channel, Some((to.rank, to.token)), None)
    }

    /// Has a link over `channel`; whoever is to prove that it may says so by the token.
    fn begin(
        &self,
        leaf: u32,
        channel: Channel,
        to: Option<(u32, PeerToken)>,
        through_tree: Option<String>,
    ) -> io::Result<Peer> {
        // Of the other one's rank only the door there takes notice.
        let (rank, token) = to.map_or((leaf, None), |(rank, token)| (rank, Some(token)));
        let leaves = RangeSet::single(leaf);
        let config = NodeConfig {
            rank: u32::MAX,
            role: NodeRole::Root,
            depth: 0,
            leaves: leaves.clone(),
            children: vec![Child { rank, leaves }],
            stream_base: 0,
            place: Default::default(),
            // There is no other way to that host from here.
            tuning: Tuning { adoption_grace: Duration::ZERO, ..self.tuning },
        };
        let shared = Shared::new();
        let Station { secret, rank: own, host, .. } = &*self.station;
        let hello = token.map(|token| Hello { token, ..Hello::new(secret, *own, host, false) });
        shared.run(|core, _| {
            core.looks_out = true;
            let at = core.add_node(config, self.services.filters().clone());
            if let Some(hello) = hello {
                core.nodes[at].send_first(LinkId::new(0), hello.frame());
            }
        });
        shared.attach(0, LinkId::new(0), channel, None)?;
        let network = Network::new(shared, leaf.saturating_add(1), None);
        let used = Mutex::new(Instant::now());
        Ok(Peer { link: Arc::new(PeerConnection { network, leaf, through_tree, used }) })
    }

    /// Where this host listens for others; the door is opened when it is asked for first.
    fn expect(self: &Arc<Self>, expect: Expect) -> io::Result<DoorAddress> {
        let mut state = self.state();
        if state.expected.len() + state.taken >= PEERS_MAX {
            return Err(io::Error::from_raw_os_error(Errno::AGAIN.0));
        }
        if state.door.is_none() {
            let door = self.station.open_door()?;
            let address = door.address.clone();
            let Station { rank, secret, keys, .. } = &*self.station;
            let audit = Arc::clone(&self.audit);
            let host = Arc::new(PeerGuests(Arc::downgrade(self)));
            let keeper = door.keep(*rank, secret.clone(), keys.clone(), audit, host)?;
            state.door = Some((keeper, address));
        }
        state.expected.add(expect, Instant::now());
        state
            .door
            .as_ref()
            .map(|(_, address)| address.clone())
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// A host that was let in and says its token becomes the root above a leaf of its own here.
    async fn take(self: Arc<Self>, rank: u32, channel: Channel) -> io::Result<()> {
        let mut wire = Wire::from_channel(channel)?;
        let heard = tokio::time::timeout(CONNECT_TIMEOUT, wire.read_greeting()).await;
        let frame = heard.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let hello: Hello = hello::decode(&frame).map_err(|_| io::ErrorKind::InvalidData)?;
        let token = (hello.rank == rank).then_some(&hello.token);
        let admitted = self.state().expected.admit(token, rank, Instant::now(), &self.audit);
        match admitted {
            Some(who) => self.serve(wire.into_channel(), who).await,
            None => Ok(()),
        }
    }

    /// Serves the host which is the root above this one over `channel`, as long as it is there.
    async fn serve(&self, channel: Channel, who: PeerHost) -> io::Result<()> {
        self.state().taken += 1;
        let served = self.serve_counted(channel, who).await;
        self.state().taken -= 1;
        served
    }

    async fn serve_counted(&self, channel: Channel, who: PeerHost) -> io::Result<()> {
        let shared = Shared::new();
        let config = NodeConfig {
            rank: self.station.rank,
            role: NodeRole::Leaf,
            depth: 1,
            leaves: RangeSet::single(self.leaf),
            children: Vec::new(),
            stream_base: 0,
            place: Default::default(),
            // Nobody else comes to be the root above it.
            tuning: Tuning { orphan_timeout: Duration::ZERO, ..self.tuning },
        };
        let place = ServicePlace {
            leaf: Some(self.leaf),
            rank: self.station.rank,
            host: self.station.host.clone(),
            configs: self.configs.clone(),
        };
        let handle = LeafHandle { shared: Arc::downgrade(&shared), node: 0 };
        let up = shared.run(|core, now| {
            core.looks_out = true;
            core.add_node(config, self.services.filters().clone());
            core.set_works(0, Dispatch::new(&self.services, place, handle));
            let up = core.nodes[0].add_parent(now);
            // It is a host, and not the session's root, whatever it says.
            let PeerHost { host, rights } = who;
            core.nodes[0].set_caller(up, Caller::Host { host, rights });
            up
        });
        shared.attach(0, up, channel, None)?;
        let time = crate::task::spawn(Arc::clone(&shared).keep_time());
        shared.ended().await;
        time.abort();
        Ok(())
    }
}

impl PeerLinks for Peers {
    fn report(&self) -> (Vec<PeerLinkReport>, u32) {
        let state = self.state();
        let told = |(leaf, peer): (&u32, &Peer)| PeerLinkReport {
            leaf: *leaf,
            through_tree: peer.link.through_tree.clone(),
        };
        (state.begun.iter().map(told).collect(), state.taken as u32)
    }
}

/// Ends a link that nobody uses, and forgets one that is gone.
async fn look_after(peers: Weak<Peers>, leaf: u32, link: Weak<PeerConnection>) {
    loop {
        let Some(here) = link.upgrade() else { return };
        let gone = tokio::time::timeout(IDLE_LOOK, here.ended()).await.is_ok();
        let idle = lock(&here.used).elapsed() > PEER_IDLE;
        // Its own, this one's, and the list's.
        let unused = idle && Arc::strong_count(&here) <= 2 && here.network.is_idle();
        if gone || unused {
            let Some(peers) = peers.upgrade() else { return };
            let mut state = peers.state();
            if state.begun.get(&leaf).is_some_and(|peer| Arc::ptr_eq(&peer.link, &here)) {
                state.begun.remove(&leaf);
            }
            return;
        }
    }
}

/// Who comes to the door of a server.
struct PeerGuests(Weak<Peers>);

impl DoorHost for PeerGuests {
    fn expects(&self, hello: &Hello) -> Result<(), Refusal> {
        let expected = |peers: Arc<Peers>| peers.state().expected.is_any(hello.rank);
        if self.0.upgrade().is_some_and(expected) { Ok(()) } else { Err(Refusal::Unexpected) }
    }

    fn admit(&self, hello: &Hello, channel: Channel) -> io::Result<()> {
        let peers = self.0.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        let rank = hello.rank;
        crate::task::spawn(async move {
            if let Err(error) = peers.take(rank, channel).await {
                tracing::debug!(rank, %error, "a peer link did not begin");
            }
        });
        Ok(())
    }
}

/// The service by which servers are introduced to each other.
pub(in crate::launch) struct Introductions {
    pub station: Arc<Station>,
    /// What there is for peers.
    pub services: Services,
    pub configs: Configs,
    pub tuning: Tuning,
}

impl Provider for Introductions {
    /// The root alone introduces.
    fn check(&self, caller: &Caller) -> Result<(), Errno> {
        if caller.is_from_host() { Err(Errno::PERM) } else { Ok(()) }
    }

    fn start(&self, site: &Site<'_>, handle: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        let Some(leaf) = site.leaf else {
            return Err(ServiceError { errno: Errno::NOSYS, cause: "peers are leaves".to_owned() });
        };
        let peers = Arc::new(Peers {
            station: Arc::clone(&self.station),
            services: self.services.clone(),
            configs: self.configs.clone(),
            leaf,
            tuning: self.tuning,
            audit: handle.audit().unwrap_or_default(),
            handle: handle.clone(),
            state: Mutex::default(),
        });
        handle.set_peer_links(Arc::downgrade(&peers) as Weak<dyn PeerLinks>);
        Ok(Box::new(Introduced(peers)))
    }
}

struct Introduced(Arc<Peers>);

impl Service for Introduced {
    fn packet(&mut self, packet: Packet, leaf: &mut Leaf<'_>) {
        let Some(packet) = relay::packet(&self.0, packet, leaf) else { return };
        leaf.consumed(packet.stream, packet.frame_bytes);
        let answer = match packet.tag {
            EXPECT => postcard::from_bytes::<Expect>(&packet.payload)
                .map_err(|_| Errno::ILSEQ)
                .and_then(|expect| self.0.expect(expect).map_err(|error| Errno::from_io(&error)))
                .and_then(|address| postcard::to_stdvec(&address).map_err(|_| Errno::ILSEQ)),
            INTRODUCE => postcard::from_bytes::<Introduction>(&packet.payload)
                .map_err(|_| Errno::ILSEQ)
                .map(|Introduction { number, to }| {
                    // Whoever asked may have given up.
                    let asked = self.0.state().asked.remove(&number);
                    drop(asked.map(|asked| asked.send(to.map(PeerFound::There))));
                    Vec::new()
                }),
            _ => Err(Errno::OPNOTSUPP),
        };
        match answer {
            Ok(bytes) => leaf.reply(packet.stream, packet.wave, packet.tag, &bytes),
            Err(errno) => leaf.fail(packet.stream, packet.wave, errno),
        }
    }

    fn closed(&mut self, stream: u32) {
        self.0.state().relayed.closed(stream);
    }

    fn resume(&mut self, leaf: &mut Leaf<'_>) {
        self.0.state().relayed.resume(leaf);
    }

    fn ended(&mut self) {
        let mut state = self.0.state();
        (state.door, state.asked) = (None, FxHashMap::default());
        state.relayed.clear();
        state.begun.clear();
    }
}

impl LeafHandle {
    fn peers(&self) -> Option<Arc<Peers>> {
        let links: Arc<dyn Any + Send + Sync> = self.peer_links()?;
        links.downcast().ok()
    }

    /// Whether this session has such links at all.
    #[must_use]
    pub fn has_peer_links(&self) -> bool {
        self.peers().is_some()
    }

    /// A link from this server straight to that of another leaf, for what need not pass the root.
    /// Where that host cannot be reached, the root carries the link ([`Peer::through_tree`]).
    ///
    /// # Errors
    /// [`PeerError`] says why.
    pub async fn dial(&self, leaf: u32) -> Result<Peer, PeerError> {
        let peers = self.peers().ok_or(PeerError::None)?;
        peers.dial(leaf).await
    }

    /// A link of its own to that leaf through the tree, though the host may be reached directly: to
    /// compare the two.
    ///
    /// # Errors
    /// [`PeerError`] says why.
    pub async fn dial_through_tree(&self, leaf: u32) -> Result<Peer, PeerError> {
        let peers = self.peers().ok_or(PeerError::None)?;
        peers.carried(leaf, "it was asked for").await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A token counts once, for the rank that it was made for, and not for long.
    #[test]
    fn token_counts_once_for_one_and_not_for_long() {
        let mut expected = ExpectedPeers::default();
        let audit = Audit::default();
        let now = Instant::now();
        let rights = ClientRights { may_write: true, may_be_root: false };
        let who = PeerHost { host: "n7".to_owned(), rights };
        let [one, two, three] = [[1; 32], [2; 32], [3; 32]];
        for token in [one, two, three] {
            expected.add(Expect { token, rank: 7, who: who.clone() }, now);
        }
        assert!(expected.is_any(7) && !expected.is_any(8));
        let mut admits =
            |token: &PeerToken, rank, now| expected.admit(Some(token), rank, now, &audit);
        assert_eq!(admits(&[4; 32], 7, now), None, "nobody was told of it");
        assert_eq!(admits(&one, 7, now), Some(who.clone()));
        assert_eq!(admits(&one, 7, now), None, "it was used");
        assert_eq!(admits(&two, 8, now), None, "it is another's");
        assert_eq!(admits(&two, 7, now), None, "who has tried it has used it up");
        assert_eq!(admits(&three, 7, now + TOKEN_TIME), None, "it is late");
        assert!(expected.admit(None, 7, now, &audit).is_none(), "the greeting is another's");
        assert_eq!(audit.counts().refused, [(Refusal::Introduction, 6)]);
        expected.add(Expect { token: one, rank: 9, who }, now + TOKEN_TIME);
        assert!(!expected.is_any(7), "what is late is forgotten");
    }
}
