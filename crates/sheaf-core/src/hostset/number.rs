//! One number of a host's name, with the zeros it is written with, packed into an `i64`.
//!
//! `7`, `07` and `007` are three different hosts. A number is packed so that the order of the
//! integers is the order of host sets: negative numbers, then fewer digits before more digits,
//! then by value. Numbers of one width that follow each other are adjacent integers, so ranges
//! of hosts are ranges of integers.

/// The most digits of one number; longer digit strings are kept as part of the name's text.
pub const DIGITS_MAX: usize = 17;

const VALUE_BITS: u32 = 58;
const VALUE_MASK: i64 = (1 << VALUE_BITS) - 1;

/// Packs `value` written with `width` digits.
pub(super) fn pack(width: usize, value: i64) -> i64 {
    debug_assert!((1..=DIGITS_MAX).contains(&width) && (0..ten_to(width)).contains(&value));
    ((width as i64) << VALUE_BITS) | value
}

/// Packs a string of ASCII digits; `None` when it is empty or longer than [`DIGITS_MAX`].
pub(super) fn pack_digits(digits: &str) -> Option<i64> {
    let fits = (1..=DIGITS_MAX).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !fits {
        return None;
    }
    digits.parse().ok().map(|value| pack(digits.len(), value))
}

/// Packs `value` without leading zeros.
pub(super) fn pack_plain(value: i64) -> i64 {
    if value < 0 { value } else { pack(digits_of(value), value) }
}

/// The number's value.
pub(super) fn value(number: i64) -> i64 {
    if number < 0 { number } else { number & VALUE_MASK }
}

/// How many digits it is written with (of a negative number: none are fixed).
pub(super) fn width(number: i64) -> usize {
    if number < 0 { 0 } else { (number >> VALUE_BITS) as usize }
}

/// Whether it starts with a zero that is not its only digit.
pub(super) fn is_padded(number: i64) -> bool {
    let width = width(number);
    width > 1 && value(number) < ten_to(width - 1)
}

/// As it is written in a name.
pub(super) fn text(number: i64) -> String {
    format!("{:0width$}", value(number), width = width(number))
}

/// A key that orders numbers as strings: `1`, `10`, `2`.
pub(super) fn string_key(number: i64) -> i64 {
    let width = width(number);
    (value(number) * ten_to(DIGITS_MAX - width)) << 5 | width as i64
}

/// How many digits `value` has without leading zeros.
pub(super) fn digits_of(value: i64) -> usize {
    value.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Ten to the power of `digits`, which is at most [`DIGITS_MAX`].
pub(super) fn ten_to(digits: usize) -> i64 {
    10i64.pow(digits as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_width_then_value() {
        let mut numbers: Vec<i64> = ["10", "007", "7", "0", "00", "07", "9"]
            .iter()
            .map(|text| pack_digits(text).unwrap())
            .collect();
        numbers.push(pack_plain(-3));
        numbers.sort_unstable();
        let texts: Vec<String> = numbers.into_iter().map(text).collect();
        assert_eq!(texts, ["-3", "0", "7", "9", "00", "07", "10", "007"]);
    }

    #[test]
    fn string_keys_order_as_strings() {
        let mut texts =
            vec!["2", "10", "1", "01", "99999999999999999", "100", "00000000000000000", "0"];
        texts.sort_by_key(|text| string_key(pack_digits(text).unwrap()));
        let mut sorted = texts.clone();
        sorted.sort_unstable();
        assert_eq!(texts, sorted);
    }

    #[test]
    fn too_long_is_not_a_number() {
        assert_eq!(pack_digits("123456789012345678"), None);
        assert_eq!(pack_digits(""), None);
    }
}
