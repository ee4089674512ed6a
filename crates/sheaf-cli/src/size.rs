//! Sizes as coreutils write them: numbers with units, and truncate's changes of a size.

use sheaf_tools::edit::SizeChange;

/// Parses `10M`, `+4K`, `<1G`, `%512` and so on.
pub fn change(text: &str) -> Result<SizeChange, String> {
    let (make, number): (fn(u64) -> SizeChange, _) = match text.as_bytes().first() {
        Some(b'+') => (SizeChange::Grow, &text[1..]),
        Some(b'-') => (SizeChange::Shrink, &text[1..]),
        Some(b'<') => (SizeChange::AtMost, &text[1..]),
        Some(b'>') => (SizeChange::AtLeast, &text[1..]),
        Some(b'/') => (SizeChange::DownTo, &text[1..]),
        Some(b'%') => (SizeChange::UpTo, &text[1..]),
        _ => (SizeChange::To, text),
    };
    match make(bytes(number)?) {
        SizeChange::DownTo(0) | SizeChange::UpTo(0) => Err("a multiple of 0 bytes".to_owned()),
        change => Ok(change),
    }
}

/// Parses a number of bytes: `K`, `M`, `G`, `T`, `P`, `E` (or `KiB` …) are powers of 1024, `KB` …
/// powers of 1000.
pub fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| "not a number of bytes".to_owned())?;
    let unit = &text[digits..];
    let power = match unit.chars().next().map(|letter| letter.to_ascii_uppercase()) {
        None => 0,
        Some(letter) => match "KMGTPE".find(letter) {
            Some(at) => at as u32 + 1,
            None => return Err(format!("no such unit as {unit}; there are K M G T P E")),
        },
    };
    let base: u64 = match unit.get(1..) {
        None | Some("" | "iB") => 1024,
        Some("B") => 1000,
        Some(_) => return Err(format!("no such unit as {unit}; write 4K, 4KiB or 4KB")),
    };
    base.checked_pow(power)
        .and_then(|unit| number.checked_mul(unit))
        .filter(|size| i64::try_from(*size).is_ok())
        .ok_or_else(|| "more bytes than a file can have".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_coreutils() {
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("4K"), Ok(4096));
        assert_eq!(bytes("4k"), Ok(4096));
        assert_eq!(bytes("4KB"), Ok(4000));
        assert_eq!(bytes("2MiB"), Ok(2 << 20));
        for text in ["", "K", "4Q", "4Kb", "-1", "8E", "99999999999999999999", "4é"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn changes_are_those_of_truncate() {
        let apply = |text: &str, old| change(text).unwrap().apply(old);
        assert_eq!(apply("10", 3), Some(10));
        assert_eq!(apply("+10", 3), Some(13));
        assert_eq!(apply("-10", 3), Some(0));
        assert_eq!(apply("<10", 30), Some(10));
        assert_eq!(apply(">10", 3), Some(10));
        assert_eq!(apply("/512", 1000), Some(512));
        assert_eq!(apply("%512", 513), Some(1024));
        assert_eq!(apply("+1", i64::MAX as u64), None);
        assert!(change("%0").is_err());
        assert!(change("").is_err());
    }
}
