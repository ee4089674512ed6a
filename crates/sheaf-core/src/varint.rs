//! Little-endian base-128 integers, the only variable-length number on Sheaf's wires.

/// A decoder ran out of bytes, or met a number too large for its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed variable-length integer or truncated data")]
pub struct Malformed;

/// Appends `value` in one to ten bytes.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes one integer off the front of `input`.
///
/// # Errors
/// When the input ends within the integer, or it needs more than 64 bits.
pub fn get(input: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = input.split_first().ok_or(Malformed)?;
        *input = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return Err(Malformed);
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

/// Takes one integer that must fit in 32 bits.
///
/// # Errors
/// As [`get`], and when it needs more than 32 bits.
pub fn get_u32(input: &mut &[u8]) -> Result<u32, Malformed> {
    u32::try_from(get(input)?).map_err(|_| Malformed)
}

/// Takes a length that must not exceed the bytes that are left (so a forged length cannot make
/// the reader allocate).
///
/// # Errors
/// As [`get`], and when fewer bytes are left.
pub fn get_len(input: &mut &[u8]) -> Result<usize, Malformed> {
    let len = usize::try_from(get(input)?).map_err(|_| Malformed)?;
    if len > input.len() { Err(Malformed) } else { Ok(len) }
}

/// Appends a length and the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Takes what [`put_bytes`] wrote.
///
/// # Errors
/// As [`get_len`].
pub fn get_bytes<'a>(input: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let len = get_len(input)?;
    let (head, tail) = input.split_at(len);
    *input = tail;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_at_the_edges() {
        for value in [0, 1, 127, 128, 16383, 16384, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, value);
            let mut input = &out[..];
            assert_eq!(get(&mut input), Ok(value));
            assert!(input.is_empty());
            assert_eq!(get(&mut &out[..out.len() - 1]), Err(Malformed));
        }
    }

    #[test]
    fn refuses_overlong_and_forged() {
        assert_eq!(get(&mut &[0xff; 11][..]), Err(Malformed));
        let mut forged = Vec::new();
        put(&mut forged, 1 << 40);
        assert_eq!(get_bytes(&mut &forged[..]), Err(Malformed));
    }
}
