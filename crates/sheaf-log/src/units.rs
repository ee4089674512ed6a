//! Numbers and texts as people read them.
use std::fmt::Write;

/// A text that neither a terminal nor a reader takes for what it is not: a backslash is doubled,
/// what is no UTF-8 stands as `\xff`, and what controls or is not seen as `\u{1b}`.
#[must_use]
pub fn escaped(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                c if is_unsafe(c) => out.extend(c.escape_default()),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            write!(out, "\\x{byte:02x}").expect("a string takes all");
        }
    }
    out
}

/// A text that is shown as it is, but for what controls.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unsafe(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Controls a terminal, or the direction of a line, or is nothing to see.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

/// A number with its digits in groups: `1,234,567`.
#[must_use]
pub fn count(number: impl Into<u128>) -> String {
    let digits = number.into().to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number of bytes with its unit: `512 B`, `4 KiB`, `1.5 GiB`.
#[must_use]
pub fn size(bytes: impl Into<u128>) -> String {
    let bytes = bytes.into();
    scaled(bytes, 1024, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// A duration with its unit: `850 ns`, `12.5 ms`, `3 s`, `2 h 5 min`.
#[must_use]
pub fn time(ns: impl Into<u128>) -> String {
    let ns = ns.into();
    let seconds = ns / 1_000_000_000;
    match seconds {
        0..600 => scaled(ns, 1000, &["ns", "µs", "ms", "s"]),
        600..36_000 => format!("{} min {} s", count(seconds / 60), seconds % 60),
        _ => format!("{} h {} min", count(seconds / 3600), seconds / 60 % 60),
    }
}

/// Three digits that count, and a unit.
fn scaled(number: u128, step: u128, units: &[&str]) -> String {
    let mut unit = 0;
    let mut scale: u128 = 1;
    while unit + 1 < units.len() && number / scale >= step {
        scale *= step;
        unit += 1;
    }
    let whole = number / scale;
    let decimals = match whole {
        _ if number.is_multiple_of(scale) => 0,
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    };
    if decimals == 0 {
        return format!("{} {}", count(whole), units[unit]);
    }
    // Cut off, not rounded: nothing is ever said to be more than it is.
    let fraction = (number % scale) * 10u128.pow(decimals) / scale;
    let text = format!("{whole}.{fraction:0width$}", width = decimals as usize);
    format!("{} {}", text.trim_end_matches('0').trim_end_matches('.'), units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        assert_eq!([0u64, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        let sizes = [0u64, 512, 1023, 1024, 1536, 10_240, 1_048_575, 5 << 40].map(size);
        assert_eq!(
            sizes,
            ["0 B", "512 B", "1,023 B", "1 KiB", "1.5 KiB", "10 KiB", "1,023 KiB", "5 TiB"]
        );
        let times = [0u64, 850, 12_500_000, 3_000_000_000, 599_999_999_999, 3_661_000_000_000];
        assert_eq!(times.map(time), ["0 ns", "850 ns", "12.5 ms", "3 s", "599 s", "61 min 1 s"]);
        assert_eq!(time(90_000_000_000_000u64), "25 h 0 min");
    }

    #[test]
    fn texts_are_harmless() {
        assert_eq!(escaped(b"/a b\xff\\\x1b[31m\n"), "/a b\\xff\\\\\\u{1b}[31m\\n");
        assert_eq!(escaped("é\u{202e}x".as_bytes()), "é\\u{202e}x");
        assert_eq!(shown("a\u{9b}b\\"), "a\\u{9b}b\\");
    }
}
