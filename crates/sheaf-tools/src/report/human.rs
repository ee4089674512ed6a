//! Sizes and modes as people read them.
use sheaf_file::{FileKind, Metadata};

/// The beginning of the minute of a time; the earliest minute has none.
pub fn to_the_minute(seconds: i64) -> i64 {
    seconds.checked_sub(seconds.rem_euclid(60)).unwrap_or(i64::MIN)
}

/// A size as `ls -h` and `du -h` write it: at most four characters, rounded up.
pub fn size(bytes: u64) -> String {
    const UNITS: &[u8] = b"KMGTPE";
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut unit = 1024u128;
    let bytes = u128::from(bytes);
    for (at, letter) in UNITS.iter().enumerate() {
        let letter = char::from(*letter);
        let tenths = (bytes * 10).div_ceil(unit);
        if tenths < 100 {
            return format!("{}.{}{letter}", tenths / 10, tenths % 10);
        }
        let whole = bytes.div_ceil(unit);
        if whole < 1024 || at + 1 == UNITS.len() {
            return format!("{whole}{letter}");
        }
        unit *= 1024;
    }
    unreachable!("the last unit returns")
}

/// The letter of a kind of file.
pub fn kind(kind: FileKind) -> char {
    match kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
        FileKind::Unknown => '?',
    }
}

/// Kind and permissions as `ls -l` shows them: `drwxr-xr-x`.
pub fn mode(metadata: &Metadata) -> String {
    let mut text = String::from(kind(metadata.kind));
    text.push_str(&permissions(metadata.mode));
    text
}

/// Permissions as `ls -l` shows them: `rwxr-xr-x`.
pub fn permissions(mode: u32) -> String {
    let mut text = String::new();
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// The numbers of a device.
pub fn device(dev: u64) -> (u32, u32) {
    (rustix::fs::major(dev), rustix::fs::minor(dev))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_coreutils() {
        let cases = [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10137, "9.9K"),
            (10138, "10K"),
            (10241, "11K"),
            (1 << 20, "1.0M"),
            ((1 << 20) - 1, "1.0M"),
            (1023 << 10, "1023K"),
            ((1023 << 10) + 1, "1.0M"),
            (u64::MAX, "16E"),
        ];
        for (bytes, text) in cases {
            assert_eq!(size(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn permissions_with_their_special_bits() {
        assert_eq!(permissions(0o4755), "rwsr-xr-x");
        assert_eq!(permissions(0o1777), "rwxrwxrwt");
        assert_eq!(permissions(0o7644), "rwSr-Sr-T");
    }
}
