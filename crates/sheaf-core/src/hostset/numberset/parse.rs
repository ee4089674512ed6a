//! Reading `1-5,08-12/2`.
use super::NumberSet;
use crate::hostset::number::{self, DIGITS_MAX};
use crate::hostset::{HOSTS_MAX, ParseError};
use crate::rangeset::RANGES_MAX;

impl NumberSet {
    /// Reads comma-separated `N`, `N-M` and `N-M/STEP`; a leading zero fixes the number of digits.
    ///
    /// # Errors
    /// [`ParseError`] when an element is no range, its ends have different widths though one is
    /// padded, or all together exceed [`HOSTS_MAX`] numbers or [`RANGES_MAX`] ranges apart.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let (mut ranges, mut total, mut at) = (Vec::new(), 0u64, 0);
        for element in text.split(',') {
            let problem = |message: String| ParseError::new(at, message);
            total = total.saturating_add(one(element.trim(), &mut ranges).map_err(problem)?);
            if total > HOSTS_MAX {
                return Err(problem(format!("more than {HOSTS_MAX} hosts")));
            }
            at += element.len() + 1;
        }
        Ok(Self::of_ranges(ranges))
    }
}

/// Appends one element's ranges and returns how many numbers they hold.
fn one(element: &str, out: &mut Vec<(i64, i64)>) -> Result<u64, String> {
    if element.is_empty() {
        return Err("empty range".into());
    }
    let (base, step) = match element.split_once('/') {
        Some((base, step)) => (base.trim(), Some(step.trim())),
        None => (element, None),
    };
    let step = step.map_or(Ok(1), |step| digits(step, element))?;
    let (first, rest) = bound(base, element)?;
    let rest = rest.trim_start();
    let last = match rest.strip_prefix('-') {
        Some(rest) => match bound(rest, element)? {
            (last, "") => last,
            _ => return Err(malformed(element)),
        },
        None if rest.is_empty() && (step == 1 || first.negative) => first,
        None if rest.is_empty() => {
            return Err(format!("a step needs a range: '{}'", shown(element)));
        }
        None => return Err(malformed(element)),
    };
    let width = common_width(first, last, element)?;
    let (from, to) = (first.value(), last.value());
    if from > to || step < 1 {
        return Err(format!("range goes backwards or has no step: '{}'", shown(element)));
    }
    let count = (to - from) as u64 / step as u64 + 1;
    if count > HOSTS_MAX {
        return Err(format!("more than {HOSTS_MAX} hosts: '{}'", shown(element)));
    }
    if step == 1 && width == 0 {
        plain_ranges(from, to, out);
    } else if step == 1 {
        out.push((number::pack(width, from), number::pack(width, to)));
    } else {
        if count + out.len() as u64 > RANGES_MAX {
            return Err(format!("more than {RANGES_MAX} ranges apart: '{}'", shown(element)));
        }
        out.extend((from..=to).step_by(step as usize).map(|value| {
            let packed =
                if width == 0 { number::pack_plain(value) } else { number::pack(width, value) };
            (packed, packed)
        }));
    }
    Ok(count)
}

/// Appends `from..=to` without leading zeros, one range per sign and number of digits.
pub(super) fn plain_ranges(from: i64, to: i64, out: &mut Vec<(i64, i64)>) {
    let mut at = from;
    if at < 0 {
        out.push((at, to.min(-1)));
        at = 0;
    }
    while at <= to {
        let width = number::digits_of(at);
        let end = to.min(number::ten_to(width) - 1);
        out.push((number::pack(width, at), number::pack(width, end)));
        at = end + 1;
    }
}

/// One end of a range as it is written.
#[derive(Clone, Copy)]
struct Bound<'t> {
    digits: &'t str,
    magnitude: i64,
    negative: bool,
}

impl Bound<'_> {
    fn value(&self) -> i64 {
        if self.negative { -self.magnitude } else { self.magnitude }
    }
}

/// The width that leading zeros ask for, 0 for none.
fn common_width(first: Bound<'_>, last: Bound<'_>, element: &str) -> Result<usize, String> {
    let first_padded = first.digits.len() > 1 && first.digits.starts_with('0');
    // A last bound of zero asks for nothing: `0-00` is the one number 0.
    let last_padded = last.magnitude != 0 && last.digits.starts_with('0');
    if !first_padded && !last_padded {
        return Ok(0);
    }
    if first.digits.len() != last.digits.len() {
        return Err(format!(
            "both ends of a padded range need the same width: '{}'",
            shown(element)
        ));
    }
    if first.negative {
        return Err(format!("negative numbers cannot be padded: '{}'", shown(element)));
    }
    Ok(if first_padded { first.digits.len() } else { 0 })
}

fn bound<'t>(text: &'t str, element: &str) -> Result<(Bound<'t>, &'t str), String> {
    let text = text.trim_start();
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, text),
    };
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (found, rest) = text.split_at(end);
    let magnitude = digits(found, element)?;
    Ok((Bound { digits: found, magnitude, negative }, rest))
}

fn digits(text: &str, element: &str) -> Result<i64, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed(element));
    }
    if text.len() > DIGITS_MAX {
        return Err(format!("more than {DIGITS_MAX} digits: '{}'", shown(element)));
    }
    text.parse().map_err(|_| malformed(element))
}

fn malformed(element: &str) -> String {
    format!("not a number or a range: '{}'", shown(element))
}

/// As much of a text as fits an error line.
fn shown(text: &str) -> String {
    super::super::shown(text)
}
