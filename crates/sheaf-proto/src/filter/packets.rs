//! Lists of packets: what a user's filter gives for a wave, none, one or several.
//!
//! ```text
//!  count (varint) | tag (4 bytes, little-endian) | length (varint) | bytes | tag | …
//! ```
//! The result of a wave of a stream with a user's filter is such a list too.
use super::FilterError;
use sheaf_core::{Errno, varint};

/// The most packets in one list.
pub const PACKETS_MAX: usize = 1 << 16;

/// A list of packets as bytes.
#[must_use]
pub fn encode(packets: &[(i32, Vec<u8>)]) -> Vec<u8> {
    let mut out =
        Vec::with_capacity(packets.iter().map(|(_, bytes)| bytes.len() + 14).sum::<usize>() + 10);
    encode_into(packets, &mut out);
    out
}

#[doc(hidden)]
pub fn encode_into(packets: &[(i32, Vec<u8>)], out: &mut Vec<u8>) {
    varint::put(out, packets.len() as u64);
    for (tag, bytes) in packets {
        out.extend_from_slice(&tag.to_le_bytes());
        varint::put_bytes(out, bytes);
    }
}

/// The packets of a list: their tags and bytes.
///
/// ```
/// use sheaf_proto::filter::packets;
/// let list = packets::encode(&[(100, b"one".to_vec()), (101, Vec::new())]);
/// assert_eq!(packets::decode(&list)?, [(100, &b"one"[..]), (101, b"")]);
/// # Ok::<(), sheaf_proto::filter::FilterError>(())
/// ```
///
/// # Errors
/// `EBADMSG` when the bytes are none.
pub fn decode(list: &[u8]) -> Result<Vec<(i32, &[u8])>, FilterError> {
    let bad = || FilterError::new(Errno::BADMSG, "these bytes are no list of packets");
    let mut rest = list;
    let count = varint::get(&mut rest).map_err(|_| bad())?;
    // Each takes five bytes at least.
    if count > PACKETS_MAX as u64 || count > rest.len() as u64 / 5 {
        return Err(bad());
    }
    let mut packets = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let (tag, after) = rest.split_first_chunk::<4>().ok_or_else(bad)?;
        rest = after;
        packets.push((i32::from_le_bytes(*tag), varint::get_bytes(&mut rest).map_err(|_| bad())?));
    }
    if rest.is_empty() { Ok(packets) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_round_trip_and_garbage_never_panics(
            packets in proptest::collection::vec((any::<i32>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..20),
            garbage in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let list = encode(&packets);
            let back: Vec<_> = decode(&list).unwrap().into_iter().map(|(tag, bytes)| (tag, bytes.to_vec())).collect();
            prop_assert_eq!(back, packets);
            let _ = decode(&garbage);
        }
    }
}
