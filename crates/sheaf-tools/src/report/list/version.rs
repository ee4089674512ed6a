//! The order of names with numbers in them, as `ls -v` has it.
use std::cmp::Ordering;

/// Compares two names: `a2` is before `a10`, and `.x` before `a`. What comes behind the first dot
/// of a suffix of letters counts only where all before it is equal.
pub fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let class = |name: &[u8]| match name {
        b"" => 0,
        b"." => 1,
        b".." => 2,
        [b'.', ..] => 3,
        _ => 4,
    };
    let stem = |name: &[u8]| without_suffixes(name);
    let by_class = class(a).cmp(&class(b));
    by_class
        .then_with(|| parts(&a[..stem(a)], &b[..stem(b)]))
        .then_with(|| parts(a, b))
        .then_with(|| a.cmp(b))
}

/// How long a name is without the suffixes at its end, each a dot, a letter, and letters and
/// digits.
fn without_suffixes(name: &[u8]) -> usize {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'~';
    let (mut at, mut stem) = (0, 0);
    loop {
        while at + 1 < name.len() && name[at] == b'.' && is_letter(name[at + 1]) {
            at += 2;
            while at < name.len() && (is_letter(name[at]) || name[at].is_ascii_digit()) {
                at += 1;
            }
        }
        if at >= name.len() {
            return stem;
        }
        at += 1;
        stem = at;
    }
}

/// Compares what is no number byte by byte and numbers by their value, in turns.
fn parts(mut a: &[u8], mut b: &[u8]) -> Ordering {
    while !a.is_empty() || !b.is_empty() {
        while starts_with_text(a) || starts_with_text(b) {
            let order = rank(a).cmp(&rank(b));
            if order != Ordering::Equal {
                return order;
            }
            (a, b) = (&a[1..], &b[1..]);
        }
        let (digits_a, digits_b) = (number(&mut a), number(&mut b));
        let order = digits_a.len().cmp(&digits_b.len()).then(digits_a.cmp(digits_b));
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

fn starts_with_text(name: &[u8]) -> bool {
    name.first().is_some_and(|byte| !byte.is_ascii_digit())
}

/// `~` is before the end, that before a digit, then come letters and then the rest.
fn rank(name: &[u8]) -> i32 {
    match name.first() {
        Some(b'~') => -2,
        None => -1,
        Some(byte) if byte.is_ascii_digit() => 0,
        Some(byte) if byte.is_ascii_alphabetic() => i32::from(*byte),
        Some(byte) => i32::from(*byte) + 256,
    }
}

/// Takes the digits in front, and gives them without zeros in front.
fn number<'a>(name: &mut &'a [u8]) -> &'a [u8] {
    let len = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = name.split_at(len);
    *name = rest;
    let zeros = digits.iter().take_while(|byte| **byte == b'0').count();
    &digits[zeros..]
}
