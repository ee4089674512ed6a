//! What front and back ends say to each other inside the packets of the tree.
//!
//! Down: one byte that says what follows, then [`Control`] or a packet. Up: a packet as it is on
//! streams whose filter combines packets, otherwise each with its tag and sender ([`Parcel`]).
use crate::error::{Error, ErrorCode};
use crate::filter::AssignFilter;
use bytes::{Buf, Bytes};
use serde::{Deserialize, Serialize};
use sheaf_core::varint;

/// Waves of a loose stream that a back end may send beyond those the front end has spoken of.
pub const WAVES_AHEAD_MAX: u64 = 1 << 14;
/// How many of them a front end lets come before it speaks of them.
pub const WAVES_STEP: u64 = WAVES_AHEAD_MAX / 4;

/// A packet for every member follows.
const TO_ALL: u8 = 0;
/// A list of nodes, by their ranks in the tree, and a packet for them follow.
const TO_SOME: u8 = 1;
/// A [`Control`] follows.
const CONTROL: u8 = 2;

/// How the upward packets of a stream look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpwardMessage {
    /// Packets, which a filter of the tree combines.
    Packets,
    /// [`Parcel`]s, in the list of the filter `null`.
    Parcels,
    /// [`Parcel`]s behind one another, which a filter of the user's takes and gives.
    Lists,
}

/// How the waves of a stream are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waits {
    /// One packet of each member.
    ForAll,
    /// Of those who have sent this many milliseconds after the first.
    Until(u32),
    /// Each packet by itself.
    Not,
}

/// The tag of a word of a back end's that it has closed a stream, by the application's number.
pub const CLOSED_TAG: i32 = i32::MIN;

/// The tag of a parcel of [`OpenParams`]. Such parcels go up in front of the packets that were sent
/// after the parameters had reached their sender.
pub const PARAMS_TAG: i32 = i32::MIN + 1;

/// Parameters of the user's upward filters, on their way through the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenParams {
    /// Counts what the front end has set; 0 is what the stream was opened with.
    pub version: u32,
    /// A packet.
    pub bytes: Bytes,
}

impl OpenParams {
    /// Appends them to a list of parcels.
    pub fn put(version: u32, bytes: &[u8], out: &mut Vec<u8>) {
        let mut packet = version.to_le_bytes().to_vec();
        packet.extend_from_slice(bytes);
        Parcel::put(out, PARAMS_TAG, crate::NO_RANK, &packet);
    }

    /// From such a parcel's packet.
    #[must_use]
    pub fn decode(packet: &Bytes) -> Option<Self> {
        let (&version, _) = packet.split_first_chunk::<4>()?;
        Some(Self { version: u32::from_le_bytes(version), bytes: packet.slice(4..) })
    }
}

/// A stream, as its members are told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// The number by which the application knows it.
    pub id: u32,
    /// Ranks of its members.
    pub members: Vec<u32>,
    /// What goes up.
    pub upward: UpwardMessage,
    /// Which node has which filter, where that is not one of the tree's for all.
    pub up: Option<AssignFilter>,
    /// Which node has which filter on the way down, where one is the user's.
    pub down: Option<AssignFilter>,
    /// How waves are made.
    pub waits: Waits,
    /// The filter of the tree that combines the packets, on a stream of packets.
    pub filter: String,
    /// What the headers want to know of it at the back end.
    pub about: Vec<u8>,
}

/// What a front end tells back ends about a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// The stream on which this comes carries this one from now on.
    Describe(Box<Described>),
    /// Nothing more comes on the stream of the tree that brings this: another one carries the
    /// application's stream from here on.
    Moved,
    /// From here on filters have these parameters.
    Params {
        /// Those on the way down, or up.
        down: bool,
        /// Counts them, upwards.
        version: u32,
        /// A packet.
        bytes: Vec<u8>,
    },
    /// Say what you have measured of this stream, or of all.
    Measure {
        /// It.
        id: u32,
    },
    /// Give up the waves of the tree before this one that you have no packet for, because others
    /// are ahead. Up to [`WAVES_AHEAD_MAX`] waves may be sent from here on without another such
    /// word: nobody's waves may get so far ahead of the oldest open one that the tree refuses them.
    CatchUp {
        /// The wave.
        wave: u64,
    },
}

/// What comes down on a stream.
#[derive(Debug)]
pub enum Down {
    /// A packet for the application.
    Packet(Bytes),
    /// A packet for others, and who they are.
    NotForUs(Bytes, Vec<u32>),
    /// A word of the front end's.
    Control(Control),
}

impl Down {
    /// The payload of a packet for everyone, or for `destinations` if there are any.
    #[must_use]
    pub fn encode(packet: &[u8], destinations: &[u32]) -> Vec<u8> {
        let mut out = Vec::with_capacity(packet.len() + 1 + 5 * destinations.len());
        if destinations.is_empty() {
            out.push(TO_ALL);
        } else {
            out.push(TO_SOME);
            varint::put(&mut out, destinations.len() as u64);
            destinations.iter().for_each(|&rank| varint::put(&mut out, rank.into()));
        }
        out.extend_from_slice(packet);
        out
    }

    /// Reads a payload at the back end that is the node `node`.
    ///
    /// # Errors
    /// [`ErrorCode::Packet`] when it is none.
    pub fn decode(payload: &Bytes, node: u32) -> Result<Self, Error> {
        let malformed = || Error::new(ErrorCode::Packet, "a malformed packet came down the tree");
        let mut rest = payload.clone();
        if rest.is_empty() {
            return Err(malformed());
        }
        match rest.get_u8() {
            TO_ALL => Ok(Self::Packet(rest)),
            TO_SOME => {
                let mut input = &rest[..];
                let mut ranks = Vec::new();
                for _ in 0..varint::get_len(&mut input).map_err(|_| malformed())? {
                    ranks.push(varint::get_u32(&mut input).map_err(|_| malformed())?);
                }
                let packet = rest.slice_ref(input);
                Ok(if ranks.contains(&node) {
                    Self::Packet(packet)
                } else {
                    Self::NotForUs(packet, ranks)
                })
            }
            CONTROL => postcard::from_bytes(&rest).map(Self::Control).map_err(|_| malformed()),
            _ => Err(malformed()),
        }
    }
}

impl Described {
    /// Whether waves of the tree may stay unfinished for ever: see [`Control::CatchUp`].
    #[must_use]
    pub fn is_loose(&self) -> bool {
        self.waits != Waits::ForAll
    }
}

impl Control {
    /// The payload that carries it down.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let body = postcard::to_stdvec(self).expect("a control word can be serialised");
        let mut out = Vec::with_capacity(body.len() + 1);
        out.push(CONTROL);
        out.extend_from_slice(&body);
        out
    }
}

/// A packet with what a combined wave would lose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    /// Its tag.
    pub tag: i32,
    /// Its sender.
    pub source: u32,
    /// The packet.
    pub packet: Bytes,
}

/// Bytes before the packet of a parcel: tag, sender, length.
const PARCEL_HEAD_BYTES: usize = 12;

impl Parcel {
    /// Appends a parcel to a list of them.
    pub fn put(out: &mut Vec<u8>, tag: i32, source: u32, packet: &[u8]) {
        out.reserve(PARCEL_HEAD_BYTES + packet.len());
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&source.to_le_bytes());
        out.extend_from_slice(&(packet.len() as u32).to_le_bytes());
        out.extend_from_slice(packet);
    }

    /// The parcels of a list.
    ///
    /// # Errors
    /// [`ErrorCode::Packet`] when it is none.
    pub fn list(mut bytes: Bytes) -> Result<Vec<Self>, Error> {
        let mut parcels = Vec::new();
        while !bytes.is_empty() {
            let malformed =
                || Error::new(ErrorCode::Packet, "a malformed list of packets came up the tree");
            if bytes.len() < PARCEL_HEAD_BYTES {
                return Err(malformed());
            }
            let (tag, source) = (bytes.get_i32_le(), bytes.get_u32_le());
            let len = bytes.get_u32_le() as usize;
            if len > bytes.len() {
                return Err(malformed());
            }
            parcels.push(Self { tag, source, packet: bytes.split_to(len) });
        }
        Ok(parcels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_reach_those_they_are_for() {
        let all = Bytes::from(Down::encode(b"one", &[]));
        let some = Bytes::from(Down::encode(b"two", &[3, 300]));
        assert!(matches!(Down::decode(&all, 7), Ok(Down::Packet(packet)) if packet == "one"[..]));
        assert!(
            matches!(Down::decode(&some, 300), Ok(Down::Packet(packet)) if packet == "two"[..])
        );
        assert!(
            matches!(Down::decode(&some, 7), Ok(Down::NotForUs(_, ranks)) if ranks == [3, 300])
        );
        for forged in [&b""[..], b"\x01\xff\xff\xff", b"\x02\xff", b"\x09"] {
            assert!(Down::decode(&Bytes::copy_from_slice(forged), 7).is_err());
        }
    }

    #[test]
    fn parcels_come_out_as_they_went_in() {
        let mut bytes = Vec::new();
        Parcel::put(&mut bytes, 100, 3, b"one");
        Parcel::put(&mut bytes, -1, 4, b"");
        let parcels = Parcel::list(Bytes::from(bytes.clone())).unwrap();
        assert_eq!(parcels[0], Parcel { tag: 100, source: 3, packet: Bytes::from_static(b"one") });
        assert_eq!((parcels[1].tag, parcels.len()), (-1, 2));
        assert!(Parcel::list(Bytes::from(bytes[..bytes.len() - 1].to_vec())).is_err());
    }
}
