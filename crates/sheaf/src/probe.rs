//! What `sheaf tree bench` measures with: answers that a leaf gives without looking at a file.
//!
//! Every server of this program answers these beside the group operations; a packet's tag tells
//! them apart.
use sheaf_group::Servers;
use sheaf_tree::Packet;
use sheaf_tree::packet::put_scalar;
use sheaf_tree::service::{Leaf, LeafHandle, Service, ServiceError, Services};

/// Answer each packet with the number 1.
pub const ECHO: i32 = 1001;
/// The packet is a count (8 bytes, little-endian): post so many packets with the number 1.
pub const POST: i32 = 1002;
/// Take a long packet in, and answer its last part with the bytes that came.
pub const SINK: i32 = 1003;
/// Take a long packet in, and answer its last part with 40 bits of its BLAKE3 digest.
pub const DIGEST: i32 = 1004;

/// The sum of as many as there are leaves has to fit.
const DIGEST_MASK: i64 = 0xff_ffff_ffff;

/// Servers that also answer probes.
pub struct WithProbe(pub Servers);

impl Services for WithProbe {
    fn start(
        &self,
        leaf: u32,
        host: &str,
        config: &[u8],
        handle: LeafHandle,
    ) -> Result<Box<dyn Service>, ServiceError> {
        let server = self.0.start(leaf, host, config, handle)?;
        Ok(Box::new(Probed {
            server,
            posting: None,
            sunk: 0,
            digest: blake3::Hasher::new(),
            number: Vec::new(),
        }))
    }
}

struct Probed {
    server: Box<dyn Service>,
    /// Stream, and packets still to post on it.
    posting: Option<(u32, u64)>,
    sunk: u64,
    digest: blake3::Hasher,
    number: Vec<u8>,
}

impl Probed {
    fn number(&mut self, value: i64) -> &[u8] {
        self.number.clear();
        put_scalar(value, &mut self.number);
        &self.number
    }
}

impl Service for Probed {
    fn packet(&mut self, packet: Packet, leaf: &mut Leaf<'_>) {
        let Packet { stream, wave, tag, .. } = packet;
        match tag {
            ECHO => {
                leaf.consumed(stream, packet.frame_bytes);
                leaf.reply(stream, wave, tag, self.number(1));
            }
            POST => {
                leaf.consumed(stream, packet.frame_bytes);
                let count = packet.payload.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                self.posting = Some((stream, count));
                self.resume(leaf);
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
                if packet.first {
                    self.digest.reset();
                }
                self.digest.update(&packet.payload);
                if packet.last {
                    let digest = self.digest.finalize();
                    let number =
                        digest.as_bytes().first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
                    leaf.reply(stream, wave, tag, self.number(number & DIGEST_MASK));
                }
            }
            _ => self.server.packet(packet, leaf),
        }
    }

    fn cancelled(&mut self, stream: u32, wave: u64, leaf: &mut Leaf<'_>) {
        self.server.cancelled(stream, wave, leaf);
    }

    fn closed(&mut self, stream: u32) {
        if self.posting.is_some_and(|(posting, _)| posting == stream) {
            self.posting = None;
        }
        self.server.closed(stream);
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
        self.server.resume(leaf);
    }

    fn ended(&mut self) {
        self.server.ended();
    }
}
