//! What `sheaf tree bench` measures with: answers that a leaf gives without looking at a file.
//!
//! Every server of this program has this service; a packet's tag says what it is for.
//!
//! It is part of the tree and not of the command, because only the tree is optimised for speed.
use crate::network::Stream;
use crate::packet::{put_scalar, scalar};
use crate::service::{Leaf, LeafHandle, Service, ServiceError, Site};
use crate::{Packet, WaveResult};
use bytes::Bytes;
use sheaf_core::{Errno, lock};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Answer each packet with the number 1.
pub const ECHO: i32 = 1001;
/// The packet is a count (8 bytes, little-endian): post so many packets with the number 1.
pub const POST: i32 = 1002;
/// Take a long packet in, and answer its last part with the bytes that came.
pub const SINK: i32 = 1003;
/// Take a long packet in, and answer its last part with 40 bits of its BLAKE3 digest.
pub const DIGEST: i32 = 1004;

/// As [`POST`], one packet a call from a thread that has nothing to do with the links: so do
/// programs that have other work.
pub const POST_EACH: i32 = 1005;

/// Answer with the packet itself.
pub const MIRROR: i32 = 1006;
/// The packet is a leaf, a count and a length (4 bytes each, little-endian), and 1 where the tree
/// is to carry the link: so often exchange packets of this length with that leaf, over a peer link,
/// and answer with the median of the nanoseconds that took.
pub const PEER_TRIPS: i32 = 1007;
/// The packet is a leaf, a count of MiB and a count of runs, and 1 as above: send so much to that
/// leaf over a peer link, and answer with the median of the nanoseconds until it has said that all
/// came.
pub const PEER_BULK: i32 = 1008;

/// How long a peer may take for one exchange.
const PEER_TIMEOUT: Duration = Duration::from_secs(30);

/// The sum of as many as there are leaves has to fit.
const DIGEST_MASK: i64 = 0xff_ffff_ffff;

/// The service's name.
pub const PROBE: &str = "probe";

/// Makes the service of a leaf.
///
/// # Errors
/// Never.
pub fn provide(_: &Site<'_>, handle: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
    Ok(Box::new(Probe {
        handle,
        posting: None,
        room: Arc::default(),
        sunk: 0,
        digest: None,
        number: Vec::new(),
    }))
}

struct Probe {
    handle: LeafHandle,
    /// Told when packets may be posted again that a thread posts.
    room: Arc<ProbeRoom>,
    /// Stream, and packets still to post on it.
    posting: Option<(u32, u64)>,
    sunk: u64,
    /// Made when it is first asked for: finding out what the processor can do takes a while.
    digest: Option<Box<blake3::Hasher>>,
    number: Vec<u8>,
}

impl Probe {
    fn number(&mut self, value: i64) -> &[u8] {
        self.number.clear();
        put_scalar(value, &mut self.number);
        &self.number
    }

    /// Adds a part to the digest. Returns the digest's number after the last part.
    fn add_to_digest(&mut self, part: &Packet) -> Option<i64> {
        let digest = self.digest.get_or_insert_default();
        if part.first {
            digest.reset();
        }
        digest.update(&part.payload);
        let digest = part.last.then(|| digest.finalize())?;
        let number = digest.as_bytes().first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
        Some(number & DIGEST_MASK)
    }
}

/// Counts the moments at which there may be room again.
#[derive(Default)]
struct ProbeRoom {
    turns: Mutex<u64>,
    changed: Condvar,
}

impl ProbeRoom {
    fn turn(&self) {
        *lock(&self.turns) += 1;
        self.changed.notify_all();
    }

    fn seen(&self) -> u64 {
        *lock(&self.turns)
    }

    fn wait(&self, seen: u64) {
        /// A session that ends says nothing.
        const LOOK: Duration = Duration::from_millis(100);
        let turns = lock(&self.turns);
        let _ = self.changed.wait_timeout_while(turns, LOOK, |turns| *turns == seen);
    }
}

/// What [`PEER_TRIPS`] and [`PEER_BULK`] ask for, in nanoseconds.
async fn measure_peer(handle: &LeafHandle, tag: i32, asked: &[u8]) -> Result<i64, Errno> {
    let number = |at: usize| {
        let bytes = asked.get(4 * at..4 * at + 4).and_then(|bytes| bytes.first_chunk());
        bytes.map(|bytes| u32::from_le_bytes(*bytes)).ok_or(Errno::ILSEQ)
    };
    let through_tree = asked.len() > 12 && number(3)? == 1;
    let dialled = match through_tree {
        true => handle.dial_through_tree(number(0)?).await,
        false => handle.dial(number(0)?).await,
    };
    let peer = dialled.map_err(|error| {
        tracing::warn!(%error, "no peer link");
        error.errno()
    })?;
    let stream = peer.open(PROBE);
    let mut took: Vec<i64> = Vec::new();
    let nanoseconds =
        |since: Instant| i64::try_from(since.elapsed().as_nanos()).unwrap_or(i64::MAX);
    if tag == PEER_BULK {
        let bulk = Bytes::from(vec![0x5a; number(1)? as usize * (1 << 20)]);
        for _ in 0..number(2)? {
            let begun = Instant::now();
            stream.send(SINK, &bulk, Some(PEER_TIMEOUT)).await;
            if !stream.recv().await.coverage.is_full() {
                return Err(Errno::HOSTDOWN);
            }
            took.push(nanoseconds(begun));
        }
    } else {
        let packet = vec![0x5a; number(2)? as usize];
        for _ in 0..number(1)? {
            let begun = Instant::now();
            stream.send(MIRROR, &packet, Some(PEER_TIMEOUT)).await;
            if stream.recv().await.payload.as_deref() != Some(&packet[..]) {
                return Err(Errno::HOSTDOWN);
            }
            took.push(nanoseconds(begun));
        }
    }
    took.sort_unstable();
    took.get(took.len() / 2).copied().ok_or(Errno::INVAL)
}

fn post_each(handle: &LeafHandle, room: &ProbeRoom, stream: u32, count: u64, number: &[u8]) {
    let mut left = count;
    while left > 0 {
        let mut posted = None;
        handle.queue(|leaf| {
            let open = !leaf.is_held(stream);
            if open {
                leaf.post(stream, POST_EACH, number);
            }
            posted = Some(open);
        });
        match posted {
            Some(true) => left -= 1,
            Some(false) => {
                let seen = room.seen();
                let mut held = false;
                handle.with(|leaf| held = leaf.is_held(stream));
                if held {
                    room.wait(seen);
                }
            }
            // The session is over.
            None => return,
        }
    }
}

/// Ends with the wave that is wrong; `None` when none comes in time.
pub type SumsTaken<'a> =
    Pin<Box<dyn Future<Output = Result<(), Option<Box<WaveResult>>>> + Send + 'a>>;

/// Takes so many waves of a stream of [`POST`]: sums that everybody has to be in, and that have to be `sum`.
/// The future is boxed, so that it is compiled in this crate, for speed: the crate of the command that asks is
/// compiled for size.
///
/// # Errors
/// The wave that is wrong; `None` when none comes within `patience`.
pub fn take_sums(stream: &Stream, waves: u32, sum: i64, patience: Duration) -> SumsTaken<'_> {
    Box::pin(async move {
        let (mut seen, mut batch) = (0, Vec::new());
        while seen < waves {
            let got = tokio::time::timeout(patience, stream.recv_batch(&mut batch)).await;
            got.map_err(|_| None)?;
            for wave in batch.drain(..) {
                if full_sum(&wave) != Some(sum) {
                    return Err(Some(Box::new(wave)));
                }
                seen += 1;
            }
        }
        Ok(())
    })
}

/// The sum in a wave, if everybody is in it.
#[must_use]
pub fn full_sum(wave: &WaveResult) -> Option<i64> {
    wave.payload.as_deref().and_then(scalar::<i64>).filter(|_| wave.coverage.is_full())
}

/// The number at the beginning of a request; 0 in one that is too short.
fn count_in(payload: &[u8]) -> u64 {
    payload.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Measures a peer as the request says, and replies with the time in nanoseconds.
async fn reply_with_peer_time(handle: LeafHandle, request: Packet) {
    let Packet { stream, wave, tag, .. } = request;
    let measured = measure_peer(&handle, tag, &request.payload).await;
    handle.with(|leaf| match measured {
        Ok(ns) => {
            let mut number = Vec::new();
            put_scalar(ns, &mut number);
            leaf.reply(stream, wave, tag, &number);
        }
        Err(errno) => leaf.fail(stream, wave, errno),
    });
}

impl Service for Probe {
    fn packet(&mut self, packet: Packet, leaf: &mut Leaf<'_>) {
        let Packet { stream, wave, tag, .. } = packet;
        match tag {
            ECHO => {
                leaf.consumed(stream, packet.frame_bytes);
                leaf.reply(stream, wave, tag, self.number(1));
            }
            POST => {
                leaf.consumed(stream, packet.frame_bytes);
                let count = count_in(&packet.payload);
                self.posting = Some((stream, count));
                self.resume(leaf);
            }
            POST_EACH => {
                leaf.consumed(stream, packet.frame_bytes);
                let count = count_in(&packet.payload);
                let (handle, room, number) =
                    (self.handle.clone(), Arc::clone(&self.room), self.number(1).to_vec());
                let post = move || post_each(&handle, &room, stream, count, &number);
                if std::thread::Builder::new().name("sheaf-probe".to_owned()).spawn(post).is_err() {
                    // Who measures is told that this leaf has nothing to say.
                    leaf.leave_stream(stream);
                }
            }
            MIRROR => {
                leaf.consumed(stream, packet.frame_bytes);
                leaf.reply(stream, wave, tag, &packet.payload);
            }
            PEER_TRIPS | PEER_BULK => {
                leaf.consumed(stream, packet.frame_bytes);
                crate::task::spawn(reply_with_peer_time(self.handle.clone(), packet));
            }
            SINK => {
                leaf.consumed(stream, packet.frame_bytes);
                self.sunk = if packet.first { 0 } else { self.sunk } + packet.payload.len() as u64;
                if packet.last {
                    let sunk = i64::try_from(self.sunk).unwrap_or(i64::MAX);
                    leaf.reply(stream, wave, tag, self.number(sunk));
                }
            }
            DIGEST => {
                leaf.consumed(stream, packet.frame_bytes);
                if let Some(number) = self.add_to_digest(&packet) {
                    leaf.reply(stream, wave, tag, self.number(number));
                }
            }
            _ => {
                leaf.consumed(stream, packet.frame_bytes);
                if packet.expect.is_some() {
                    leaf.fail(stream, wave, Errno::OPNOTSUPP);
                }
            }
        }
    }

    fn closed(&mut self, stream: u32) {
        if self.posting.is_some_and(|(posting, _)| posting == stream) {
            self.posting = None;
        }
    }

    fn resume(&mut self, leaf: &mut Leaf<'_>) {
        if let Some((stream, mut left)) = self.posting.take() {
            self.number(1);
            while left > 0 && !leaf.is_held(stream) {
                leaf.post(stream, POST, &self.number);
                left -= 1;
            }
            self.posting = (left > 0).then_some((stream, left));
        }
        if Arc::strong_count(&self.room) > 1 {
            self.room.turn();
        }
    }
}
