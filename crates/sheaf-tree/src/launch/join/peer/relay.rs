//! Links of hosts that do not reach each other: the root carries their bytes, over a stream to
//! either end.
//!
//! ```text
//! A ── socket pair ── stream of `peers` ── root ── stream of `peers` ── socket pair ── B
//! ```
//! B takes the root's word for it that this is A, and for A's name and rights: no token is needed.
use super::{PEERS, PEERS_MAX, PeerFound, PeerHost, Peers};
use crate::gate::{BYTES, GateLine};
use crate::network::{Network, Stream};
use crate::proto::{self, Packet};
use crate::service::Leaf;
use rustc_hash::FxHashMap;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sheaf_core::{Errno, RangeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;

/// To A: the number of its question. To B: that somebody is to be served.
const CALLS: i32 = 13;
const IS_CALLED: i32 = 14;

/// How often the root looks whether the hosts of a link are still there.
const HOST_LOOK: Duration = Duration::from_millis(500);

/// What goes through the tree, by the numbers of the streams.
#[derive(Default)]
pub(super) struct RelayedPeers(FxHashMap<u32, GateLine>);

impl RelayedPeers {
    pub fn closed(&mut self, stream: u32) {
        self.0.remove(&stream);
    }

    pub fn resume(&self, leaf: &Leaf<'_>) {
        self.0.iter().for_each(|(&stream, line)| line.resume(stream, leaf));
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Deals with what belongs to a link that goes through the tree; other packets come back.
pub(super) fn packet(peers: &Arc<Peers>, packet: Packet, leaf: &mut Leaf<'_>) -> Option<Packet> {
    let stream = packet.stream;
    if packet.tag == BYTES {
        let mut state = peers.state();
        match state.relayed.0.get_mut(&stream) {
            Some(line) => line.take(packet, leaf),
            None => leaf.consumed(stream, packet.frame_bytes),
        }
        return None;
    }
    if ![CALLS, IS_CALLED].contains(&packet.tag) {
        return Some(packet);
    }
    leaf.consumed(stream, packet.frame_bytes);
    let begun = match packet.tag {
        CALLS => called(peers, &packet.payload),
        _ => is_called(peers, &packet.payload),
    };
    match begun {
        Some(ours) => {
            let line = GateLine::begin(&peers.handle, stream, ours);
            peers.state().relayed.0.insert(stream, line);
        }
        None => leaf.leave_stream(stream),
    }
    None
}

/// The end of a link that was asked for.
fn called(peers: &Arc<Peers>, number: &[u8]) -> Option<UnixStream> {
    let number = u64::from_le_bytes(number.try_into().ok()?);
    // Whoever asked may have given up.
    let asked = peers.state().asked.remove(&number)?;
    let (ours, theirs) = pair()?;
    asked.send(Ok(PeerFound::Through(theirs))).ok().map(|()| ours)
}

/// The end of a link that somebody else has asked for.
fn is_called(peers: &Arc<Peers>, who: &[u8]) -> Option<UnixStream> {
    let who: PeerHost = postcard::from_bytes(who).ok()?;
    let state = peers.state();
    if state.expected.len() + state.taken >= PEERS_MAX {
        return None;
    }
    drop(state);
    let (ours, theirs) = pair()?;
    let peers = Arc::clone(peers);
    crate::task::spawn(async move {
        if let Err(error) = peers.serve(theirs.into(), who).await {
            tracing::debug!(%error, "a peer link through the tree did not begin");
        }
    });
    Some(ours)
}

fn pair() -> Option<(UnixStream, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let made = pair
        .map_err(std::io::Error::from)
        .and_then(|(ours, theirs)| Ok((UnixStream::from_std(ours.into())?, theirs)));
    made.inspect_err(|error| tracing::warn!(%error, "no peer link through the tree")).ok()
}

impl Network {
    /// At the root: carries the bytes of a link both ways, until one of the ends is gone.
    ///
    /// # Errors
    /// When one end is not there; nothing was begun then.
    pub(super) async fn carry_peers(
        &self,
        (from, who): (u32, &PeerHost),
        number: u64,
        to: u32,
    ) -> Result<(), Errno> {
        let open =
            |leaf| self.open(PEERS, RangeSet::single(leaf), "pass", &[], proto::Sync::WaitForAll);
        let (caller, called) = (open(from), open(to));
        if !called.has_members() {
            return Err(Errno::HOSTDOWN);
        }
        let who = postcard::to_stdvec(who).map_err(|_| Errno::ILSEQ)?;
        called.send(IS_CALLED, &who, None).await;
        caller.send(CALLS, &number.to_le_bytes(), None).await;
        tokio::select! {
            () = carry(&caller, &called) => {}
            () = carry(&called, &caller) => {}
        }
        Ok(())
    }
}

/// Carries what comes on one stream on to the other, until there is no more.
async fn carry(from: &Stream, to: &Stream) {
    loop {
        match tokio::time::timeout(HOST_LOOK, from.recv()).await {
            Ok(result) if result.tag == BYTES && result.payload.is_some() => {
                to.send(BYTES, result.payload.unwrap_or_default(), None).await;
            }
            // It has left, or its host is lost.
            Ok(_) => return,
            Err(_) if !from.has_members() => return,
            Err(_) => {}
        }
    }
}
