//! Records of extended headers (POSIX pax): what a ustar header has no room for.
use crate::error::PackError;
use sheaf_core::files::Timestamp;

const XATTR_PREFIX: &[u8] = b"SCHILY.xattr.";
const NANOSECONDS: u32 = 1_000_000_000;

/// Adds a record: its own length in decimal digits, a blank, key, `=`, value, and a newline.
pub(crate) fn push(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut bytes = rest + 1;
    // The digits are counted, too.
    while bytes != rest + bytes.to_string().len() {
        bytes = rest + bytes.to_string().len();
    }
    records.extend_from_slice(format!("{bytes} ").as_bytes());
    records.extend_from_slice(key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// Adds an extended attribute. A `=` would end the key, so it is written as GNU tar does.
pub(crate) fn push_xattr(records: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let mut key = XATTR_PREFIX.to_vec();
    for &byte in name {
        match byte {
            b'=' => key.extend_from_slice(b"%3D"),
            b'%' => key.extend_from_slice(b"%25"),
            _ => key.push(byte),
        }
    }
    push(records, &key, value);
}

/// The name of the extended attribute that a key stands for.
pub(crate) fn xattr_of(key: &[u8]) -> Option<Vec<u8>> {
    let mut rest = key.strip_prefix(XATTR_PREFIX)?;
    let mut name = Vec::new();
    while let Some((&byte, after)) = rest.split_first() {
        let (plain, left) = match after.get(..2) {
            Some(b"3D") if byte == b'%' => (b'=', &after[2..]),
            Some(b"25") if byte == b'%' => (b'%', &after[2..]),
            _ => (byte, after),
        };
        name.push(plain);
        rest = left;
    }
    Some(name)
}

/// A record of its key and its value.
pub(crate) type PaxRecord<'a> = (&'a [u8], &'a [u8]);

/// The records of an extended header.
///
/// # Errors
/// When they are not as [`push`] writes them.
pub(crate) fn records(mut text: &[u8]) -> Result<Vec<PaxRecord<'_>>, PackError> {
    let wrong = || PackError::damaged("an extended header of its tar cannot be read");
    let mut records = Vec::new();
    while !text.is_empty() {
        let digits = text.iter().position(|&byte| byte == b' ').ok_or_else(wrong)?;
        let bytes: usize = number(&text[..digits]).ok_or_else(wrong)?;
        let record = text.get(digits + 1..bytes).ok_or_else(wrong)?;
        let Some((b'\n', record)) = record.split_last() else { return Err(wrong()) };
        let equals = record.iter().position(|&byte| byte == b'=').ok_or_else(wrong)?;
        records.push((&record[..equals], &record[equals + 1..]));
        text = &text[bytes..];
    }
    Ok(records)
}

/// A decimal number.
pub(crate) fn number<N: std::str::FromStr>(digits: &[u8]) -> Option<N> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A time in seconds, with as many digits behind the point as are needed: nine or none.
pub(crate) fn time_text(time: Timestamp) -> String {
    match (time.seconds, time.nanoseconds) {
        (seconds, 0) => seconds.to_string(),
        // What is counted forwards from a second before 1970 is written backwards from the next one.
        (seconds, nanoseconds) if seconds < 0 => {
            format!("-{}.{:09}", (seconds + 1).unsigned_abs(), NANOSECONDS - nanoseconds)
        }
        (seconds, nanoseconds) => format!("{seconds}.{nanoseconds:09}"),
    }
}

/// The time that a text says; digits beyond nanoseconds are cut off.
pub(crate) fn time_of(text: &[u8]) -> Option<Timestamp> {
    let negative = text.first() == Some(&b'-');
    let text = if negative { &text[1..] } else { text };
    let point = text.iter().position(|&byte| byte == b'.').unwrap_or(text.len());
    let whole: i64 = number(&text[..point])?;
    let mut nanoseconds = 0;
    let digits = text.get(point + 1..).unwrap_or_default();
    for at in 0..9 {
        let digit = match digits.get(at) {
            Some(digit @ b'0'..=b'9') => u32::from(digit - b'0'),
            Some(_) => return None,
            None => 0,
        };
        nanoseconds = nanoseconds * 10 + digit;
    }
    Some(match (negative, nanoseconds) {
        (false, _) => Timestamp { seconds: whole, nanoseconds },
        (true, 0) => Timestamp { seconds: -whole, nanoseconds },
        (true, _) => Timestamp { seconds: -whole - 1, nanoseconds: NANOSECONDS - nanoseconds },
    })
}
