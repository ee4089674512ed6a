//! The records of TLS 1.3 behind the handshake (RFC 8446, section 5), sealed and opened where they lie.
//!
//! rustls shakes hands and makes the keys, also later ones: that is what its `kernel` interface is for. Its own
//! records ask for memory one by one and are copied three times on their way in; here the bytes are read where
//! they stay, and sealed where the kernel takes them from.
//!
//! What has to hold: a key seals each number once ([`Half::nonce`]), and nothing of a record is looked at before
//! its tag was right.
use bytes::BytesMut;
use ring::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};
use rustls::kernel::KernelConnection;
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets};
use std::io::{self, IoSlice};

/// Content type, version, length.
const HEADER_BYTES: usize = 5;
const TAG_BYTES: usize = 16;
/// The most that one record holds, and the most that it may grow by.
const PLAIN_BYTES_MAX: usize = 1 << 14;
const SEALED_BYTES_MAX: usize = PLAIN_BYTES_MAX + 256;
/// What AES-GCM's limit allows to one key: about 2^24.5 full records.
const RECORDS_PER_KEY: u64 = 1 << 24;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION: u8 = 23;
const CLOSE_NOTIFY: [u8; 2] = [1, 0];
/// Another key from here on; the last byte asks the peer for one of its own.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// Makes the keys that follow.
trait Renew: Send {
    fn sealing(&mut self) -> io::Result<Half>;
    fn opening(&mut self) -> io::Result<Half>;
}

impl<Data: Send> Renew for KernelConnection<Data> {
    fn sealing(&mut self) -> io::Result<Half> {
        Half::new(self.update_tx_secret().map_err(io::Error::other)?)
    }

    fn opening(&mut self) -> io::Result<Half> {
        Half::new(self.update_rx_secret().map_err(io::Error::other)?)
    }
}

/// One direction: its key, and the records that have gone through it.
struct Half {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    count: u64,
}

impl Half {
    fn new((count, secrets): (u64, ConnectionTrafficSecrets)) -> io::Result<Self> {
        use ConnectionTrafficSecrets::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
        let (algorithm, key, iv) = match secrets {
            Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(io::Error::other)?;
        let iv = iv.as_ref().try_into().map_err(io::Error::other)?;
        Ok(Self { key: LessSafeKey::new(key), iv, count })
    }

    /// No two records of a key have the same: their number is in it.
    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, of_count) in nonce[NONCE_LEN - 8..].iter_mut().zip(self.count.to_be_bytes()) {
            *byte ^= of_count;
        }
        self.count += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// Makes a record of what stands in `into` from `start` on, behind room for its header.
    fn seal(&mut self, content: u8, into: &mut Vec<u8>, start: usize) -> io::Result<()> {
        into.push(content);
        let length = into.len() - start - HEADER_BYTES + TAG_BYTES;
        let header = header(length)?;
        into[start..start + HEADER_BYTES].copy_from_slice(&header);
        let (nonce, text) = (self.nonce(), &mut into[start + HEADER_BYTES..]);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(header), text);
        into.extend_from_slice(tag.map_err(io::Error::other)?.as_ref());
        Ok(())
    }
}

fn header(length: usize) -> io::Result<[u8; HEADER_BYTES]> {
    let [high, low] = u16::try_from(length).map_err(io::Error::other)?.to_be_bytes();
    Ok([APPLICATION, 3, 3, high, low])
}

/// Both directions of a connection whose ends know each other.
pub(super) struct Records {
    sealing: Half,
    opening: Half,
    renew: Box<dyn Renew>,
    records_per_key: u64,
    /// The peer asks for another key.
    is_asked: bool,
}

impl Records {
    pub fn new<Data: Send + 'static>(
        secrets: ExtractedSecrets,
        later: KernelConnection<Data>,
    ) -> io::Result<Self> {
        let (sealing, opening) = (Half::new(secrets.tx)?, Half::new(secrets.rx)?);
        let (renew, records_per_key) = (Box::new(later), RECORDS_PER_KEY);
        Ok(Self { sealing, opening, renew, records_per_key, is_asked: false })
    }

    #[cfg(test)]
    pub fn set_records_per_key(&mut self, records: u64) {
        self.records_per_key = records;
    }

    /// Appends records with what is in `pieces` to `into`, but of no more than `most` bytes; returns of
    /// how many.
    pub fn seal(&mut self, pieces: &[IoSlice<'_>], most: usize, into: &mut Vec<u8>) -> io::Result<usize> {
        let (mut taken, mut start) = (0, 0);
        let mut room = 0;
        for piece in pieces {
            let mut piece = &piece[..piece.len().min(most - taken)];
            taken += piece.len();
            while !piece.is_empty() {
                if room == 0 {
                    self.change_key(into)?;
                    start = into.len();
                    into.extend_from_slice(&[0; HEADER_BYTES]);
                    room = PLAIN_BYTES_MAX;
                }
                let (now, later) = piece.split_at(piece.len().min(room));
                into.extend_from_slice(now);
                (piece, room) = (later, room - now.len());
                if room == 0 {
                    self.sealing.seal(APPLICATION, into, start)?;
                }
            }
        }
        if room > 0 {
            self.sealing.seal(APPLICATION, into, start)?;
        }
        Ok(taken)
    }

    /// Goes over to the next key, if it is time.
    fn change_key(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        if self.sealing.count < self.records_per_key && !self.is_asked {
            return Ok(());
        }
        let start = into.len();
        into.extend_from_slice(&[0; HEADER_BYTES]);
        into.extend_from_slice(&KEY_UPDATE);
        self.sealing.seal(HANDSHAKE, into, start)?;
        self.sealing = self.renew.sealing()?;
        self.is_asked = false;
        Ok(())
    }

    /// Opens what has come of whole records among the last `sealed` of `bytes`; what they hold takes their
    /// place. Returns how many bytes at the end are still sealed. After an error none are left.
    pub fn open(&mut self, bytes: &mut BytesMut, sealed: usize) -> io::Result<usize> {
        let mut from = bytes.len() - sealed;
        let mut to = from;
        loop {
            match self.open_next(&mut bytes[to..], from - to) {
                Ok(Some((held, end))) => (to, from) = (to + held, to + end),
                Ok(None) => break,
                Err(error) => {
                    bytes.truncate(to);
                    return Err(error);
                }
            }
        }
        let rest = bytes.len() - from;
        bytes.copy_within(from.., to);
        bytes.truncate(to + rest);
        Ok(rest)
    }

    /// Opens the record at `bytes[start..]`, when all of it has come, to where `bytes` begins. Returns how
    /// much it held for the application, and where it ended.
    fn open_next(&mut self, bytes: &mut [u8], start: usize) -> io::Result<Option<(usize, usize)>> {
        let Some(header) = bytes[start..].first_chunk::<HEADER_BYTES>().copied() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if header[0] != APPLICATION || !(TAG_BYTES + 1..=SEALED_BYTES_MAX).contains(&length) {
            return Err(io::Error::other("it is no record"));
        }
        let text = start + HEADER_BYTES;
        let end = text + length;
        let Some(place) = bytes.get_mut(..end) else { return Ok(None) };
        let nonce = self.opening.nonce();
        let opened = self.opening.key.open_within(nonce, Aad::from(header), place, text..);
        let opened = opened.map_err(|_| io::Error::other("a record is not the peer's"))?;
        // Its kind stands behind what it holds, and padding behind that.
        let kind = opened.iter().rposition(|&byte| byte != 0);
        let held = match kind.map(|kind| (opened[kind], &opened[..kind])) {
            Some((APPLICATION, held)) => held.len(),
            Some((HANDSHAKE, held)) => {
                self.is_asked |= asks_for_key(held)?;
                self.opening = self.renew.opening()?;
                0
            }
            Some((ALERT, held)) if *held == CLOSE_NOTIFY => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some((ALERT, held)) => return Err(io::Error::other(format!("the peer gave up: alert {held:?}"))),
            _ => return Err(io::Error::other("a record of an unknown kind")),
        };
        Ok(Some((held, end)))
    }
}

/// Whether the peer, which goes over to its next key, wants one of this end as well.
fn asks_for_key(said: &[u8]) -> io::Result<bool> {
    match said.split_last() {
        Some((asks @ 0..=1, rest)) if *rest == KEY_UPDATE[..4] => Ok(*asks == 1),
        _ => Err(io::Error::other("it shakes hands again")),
    }
}
