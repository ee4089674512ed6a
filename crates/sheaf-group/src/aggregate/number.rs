//! One number of a text: an integer of 128 bits or a float, and nothing in between.
use super::exact::{get_integer, put_integer};
use sheaf_core::Errno;
use sheaf_core::varint::Malformed;
use std::cmp::Ordering;
use std::fmt;

/// A number as a text has it: without point and exponent an integer, else a float.
///
/// Printed, a float is the shortest text that reads back as the same float.
///
/// ```
/// use sheaf_group::aggregate::Number;
/// assert_eq!(Number::Integer(123_456_789_012_345_678_901).to_string(), "123456789012345678901");
/// assert_eq!(Number::Float(0.1 + 0.2).to_string(), "0.30000000000000004");
/// assert_eq!([1.0, 1e300, -2.5e-9].map(|float| Number::Float(float).to_string()), ["1", "1e300", "-2.5e-9"]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Number {
    /// Exactly this.
    Integer(i128),
    /// The float nearest to what was meant.
    Float(f64),
}

impl Number {
    /// The number that a whole field is; `None` for a field that is anything else, such as
    /// `17/421`, `12kB`, `0x1f`, `inf` or `1,5`.
    ///
    /// # Errors
    /// `EOVERFLOW` for an integer that needs more than 128 bits, and a float beyond the greatest.
    pub fn parse(field: &str) -> Result<Option<Self>, Errno> {
        let unsigned = field.strip_prefix(['+', '-']).unwrap_or(field);
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if is_digits(unsigned) && !unsigned.is_empty() {
            return field
                .parse()
                .map(|value| Some(Self::Integer(value)))
                .map_err(|_| Errno::OVERFLOW);
        }
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let lacks_digits = exponent.is_empty() || (whole.is_empty() && fraction.is_empty());
        if lacks_digits || ![whole, fraction, exponent].into_iter().all(is_digits) {
            return Ok(None);
        }
        match field.parse() {
            Ok(value) if f64::is_finite(value) => Ok(Some(Self::Float(value))),
            Ok(_) => Err(Errno::OVERFLOW),
            Err(_) => Ok(None),
        }
    }

    /// The float nearest to it.
    #[must_use]
    pub fn to_float(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    /// By value, exactly; of equal ones an integer comes first, and −0 before 0.
    #[must_use]
    pub fn total_cmp(&self, other: &Self) -> Ordering {
        match (*self, *other) {
            (Self::Integer(a), Self::Integer(b)) => a.cmp(&b),
            (Self::Float(a), Self::Float(b)) => a.total_cmp(&b),
            (Self::Integer(a), Self::Float(b)) => compare(a, b).then(Ordering::Less),
            (Self::Float(a), Self::Integer(b)) => compare(b, a).reverse().then(Ordering::Greater),
        }
    }

    pub(super) fn encode(self, out: &mut Vec<u8>) {
        match self {
            Self::Integer(value) => {
                out.push(0);
                put_integer(out, value);
            }
            Self::Float(value) => {
                out.push(1);
                out.extend_from_slice(&value.to_le_bytes());
            }
        }
    }

    pub(super) fn decode(input: &mut &[u8]) -> Result<Self, Malformed> {
        let (&kind, rest) = input.split_first().ok_or(Malformed)?;
        *input = rest;
        match kind {
            0 => Ok(Self::Integer(get_integer(input)?)),
            1 => {
                let (bytes, rest) = input.split_first_chunk().ok_or(Malformed)?;
                *input = rest;
                let value = f64::from_le_bytes(*bytes);
                if value.is_finite() { Ok(Self::Float(value)) } else { Err(Malformed) }
            }
            _ => Err(Malformed),
        }
    }
}

/// 2^127, the least float beyond every integer of 128 bits.
const BEYOND: f64 = (1u128 << 127) as f64;

fn compare(integer: i128, float: f64) -> Ordering {
    if float >= BEYOND {
        return Ordering::Less;
    }
    if float < -BEYOND {
        return Ordering::Greater;
    }
    // Within this range the whole part is an integer of 128 bits.
    let whole = float.trunc();
    let by_fraction = (float - whole).partial_cmp(&0.0).map_or(Ordering::Equal, Ordering::reverse);
    integer.cmp(&(whole as i128)).then(by_fraction)
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => write!(f, "{value}"),
            // This is the shortest, with an exponent where digits would be mere zeros.
            Self::Float(value) => {
                let text = format!("{value:?}");
                f.write_str(text.strip_suffix(".0").unwrap_or(&text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn field_is_a_number_as_a_whole_or_not_at_all() {
        for field in [
            "17/421", "12kB", "0x1f", "inf", "-inf", "+nan", "NaN", "1,5", "", "+", "-", ".", "e5",
            "1e", "1e+",
        ] {
            assert_eq!(Number::parse(field), Ok(None), "{field}");
        }
        for field in ["1_000", "--1", "1.2.3", "1e5.0", "٣", "1-"] {
            assert_eq!(Number::parse(field), Ok(None), "{field}");
        }
        for (field, value) in [("0", 0), ("+7", 7), ("-12", -12), ("007", 7), ("-0", 0)] {
            assert_eq!(Number::parse(field), Ok(Some(Number::Integer(value))));
        }
        for (field, value) in
            [(".5", 0.5), ("5.", 5.0), ("-1.25e2", -125.0), ("1E3", 1000.0), ("1e-999", 0.0)]
        {
            assert_eq!(Number::parse(field), Ok(Some(Number::Float(value))));
        }
    }

    #[test]
    fn number_out_of_range_is_an_overflow_error() {
        let most = i128::MAX.to_string();
        assert_eq!(Number::parse(&most), Ok(Some(Number::Integer(i128::MAX))));
        for field in [
            "170141183460469231731687303715884105728",
            "-170141183460469231731687303715884105729",
            "1e309",
        ] {
            assert_eq!(Number::parse(field), Err(Errno::OVERFLOW));
        }
    }

    #[test]
    fn integers_and_floats_are_compared_exactly() {
        let close = [
            Number::Float(f64::MIN),
            Number::Integer(i128::MIN),
            Number::Float(-BEYOND),
            Number::Integer(-2),
            Number::Float(-1.5),
            Number::Float(-0.5),
            Number::Integer(0),
            Number::Float(0.5),
            Number::Integer(1 << 53),
            Number::Float(9_007_199_254_740_992.0),
            Number::Integer((1 << 53) + 1),
            Number::Float(9_007_199_254_740_994.0),
            Number::Integer(i128::MAX),
            Number::Float(BEYOND),
        ];
        for (at, a) in close.iter().enumerate() {
            for (other, b) in close.iter().enumerate() {
                assert_eq!(a.total_cmp(b), at.cmp(&other), "{a} {b}");
            }
        }
    }

    proptest! {
        #[test]
        fn printed_numbers_parse_back_to_the_same_value(bits in any::<u64>(), integer in any::<i128>()) {
            let float = f64::from_bits(bits);
            prop_assume!(float.is_finite());
            prop_assert_eq!(Number::Float(float).to_string().parse(), Ok(float));
            prop_assert!(Number::Float(float).to_string().len() <= 24);
            prop_assert_eq!(Number::parse(&Number::Integer(integer).to_string()), Ok(Some(Number::Integer(integer))));
        }

        #[test]
        fn fields_are_numbers_when_rust_says_so(field in "[-+0-9.eE]{0,8}") {
            let is_number = field.parse::<f64>().is_ok();
            prop_assert_eq!(Number::parse(&field) != Ok(None), is_number);
        }
    }
}
