//! Sums without rounding: one fixed-point number wide enough for every integer of 128 bits and
//! every float, so that neither the order of adding nor the tree's shape can show in a digit. The
//! result is rounded once.
use sheaf_core::varint::{self, Malformed};

/// Bits behind the binary point; the least float is 2^−1074.
const FRACTION_LIMBS: i32 = 17;

/// Limbs from the least float to 2^64 times the greatest, and one for the sign.
const LIMBS_MAX: usize = 36;

/// A sum of integers and floats, exactly: `Σ limbs[i] · 2^(64 · (low + i − 17))`, in two's
/// complement. Only the limbs between the lowest and the highest that matter are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Exact {
    low: i32,
    limbs: Vec<u64>,
}

impl From<i128> for Exact {
    fn from(value: i128) -> Self {
        Self { low: FRACTION_LIMBS, limbs: vec![value as u64, (value >> 64) as u64] }.trimmed()
    }
}

impl Exact {
    /// A finite float.
    pub fn of_float(value: f64) -> Self {
        let bits = value.to_bits();
        let (fraction, exponent) = (bits & ((1 << 52) - 1), (bits >> 52) as i32 & 0x7ff);
        // The mantissa is a whole number of 2^-1074 times 2^shift.
        let (mantissa, shift) =
            if exponent == 0 { (fraction, 0) } else { (fraction | 1 << 52, exponent - 1) };
        let place = shift + FRACTION_LIMBS * 64 - 1074;
        let wide = u128::from(mantissa) << (place % 64);
        let magnitude = Self { low: place / 64, limbs: vec![wide as u64, (wide >> 64) as u64, 0] };
        if value.is_sign_negative() { magnitude.negated() } else { magnitude.trimmed() }
    }

    pub fn add(&mut self, other: &Self) {
        if other.limbs.is_empty() {
            return;
        }
        if self.limbs.is_empty() {
            self.clone_from(other);
            return;
        }
        let low = self.low.min(other.low);
        let end = (self.end().max(other.end()) + 1).min(LIMBS_MAX as i32);
        let mut carry = false;
        let add = |at| {
            let (sum, over) = self.limb(at).overflowing_add(other.limb(at));
            let (sum, again) = sum.overflowing_add(u64::from(std::mem::replace(&mut carry, over)));
            carry |= again;
            sum
        };
        *self = Self { low, limbs: (low..end).map(add).collect() }.trimmed();
    }

    /// The whole number it is, if it is one and fits.
    pub fn to_integer(&self) -> Option<i128> {
        let whole = self.limbs.is_empty() || self.low >= FRACTION_LIMBS;
        let fits = self.end() <= FRACTION_LIMBS + 2;
        let [low, high] = [FRACTION_LIMBS, FRACTION_LIMBS + 1].map(|at| self.limb(at));
        (whole && fits).then_some(i128::from(high as i64) << 64 | i128::from(low))
    }

    /// The nearest float, of two as near the even one; infinite beyond the greatest.
    pub fn to_float(&self) -> f64 {
        self.divided(1).0
    }

    /// The nearest float to its share among `count`, and the share itself if it is whole and fits.
    pub fn divided(&self, count: u64) -> (f64, Option<i128>) {
        let count = u128::from(count.max(1));
        let magnitude = if self.is_negative() { self.negated() } else { self.clone() };
        // Two limbs more give a quotient of at least 64 bits, whatever the divisor.
        let low = magnitude.low - 2;
        let mut quotient = vec![0; magnitude.limbs.len() + 2];
        let mut rest = 0;
        for (at, place) in quotient.iter_mut().enumerate().rev() {
            let limb = at.checked_sub(2).map_or(0, |at| magnitude.limbs[at]);
            let dividend = rest << 64 | u128::from(limb);
            *place = (dividend / count) as u64;
            rest = dividend % count;
        }
        let rounded = round(&quotient, low, rest != 0);
        quotient.push(0);
        let share = Self { low, limbs: quotient }.trimmed();
        let share = if self.is_negative() { share.negated() } else { share };
        let float = if self.is_negative() { -rounded } else { rounded };
        (float, share.to_integer().filter(|_| rest == 0))
    }

    fn end(&self) -> i32 {
        self.low + self.limbs.len() as i32
    }

    fn is_negative(&self) -> bool {
        self.limbs.last().is_some_and(|limb| limb >> 63 == 1)
    }

    /// A limb, also where none is kept.
    fn limb(&self, at: i32) -> u64 {
        let beyond = if at >= self.low && self.is_negative() { u64::MAX } else { 0 };
        usize::try_from(at - self.low)
            .ok()
            .and_then(|at| self.limbs.get(at))
            .copied()
            .unwrap_or(beyond)
    }

    fn negated(&self) -> Self {
        let mut carry = true;
        let mut limbs: Vec<u64> = Vec::with_capacity(self.limbs.len() + 1);
        for at in self.low..=self.end() {
            let (limb, over) = (!self.limb(at)).overflowing_add(u64::from(carry));
            limbs.push(limb);
            carry = over;
        }
        Self { low: self.low, limbs }.trimmed()
    }

    /// Without the limbs that say nothing; the same number is always the same limbs.
    fn trimmed(mut self) -> Self {
        while let [.., below, top] = self.limbs[..]
            && top == if below >> 63 == 1 { u64::MAX } else { 0 }
        {
            self.limbs.pop();
        }
        if self.limbs.iter().all(|&limb| limb == 0) {
            return Self::default();
        }
        let zeros = self.limbs.iter().take_while(|&&limb| limb == 0).count();
        self.limbs.drain(..zeros);
        self.low += zeros as i32;
        self
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.low as u8, self.limbs.len() as u8]);
        self.limbs.iter().for_each(|limb| out.extend_from_slice(&limb.to_le_bytes()));
    }

    pub fn decode(input: &mut &[u8]) -> Result<Self, Malformed> {
        let (&[low, count], rest) = input.split_first_chunk().ok_or(Malformed)?;
        *input = rest;
        if usize::from(low) + usize::from(count) > LIMBS_MAX {
            return Err(Malformed);
        }
        let mut limbs = Vec::with_capacity(count.into());
        for _ in 0..count {
            let (limb, rest) = input.split_first_chunk().ok_or(Malformed)?;
            *input = rest;
            limbs.push(u64::from_le_bytes(*limb));
        }
        Ok(Self { low: i32::from(low), limbs }.trimmed())
    }
}

/// Rounds a magnitude, of which there is a little more if `more`, to the nearest float.
fn round(limbs: &[u64], low: i32, more: bool) -> f64 {
    let Some(top) = limbs.iter().rposition(|&limb| limb != 0) else { return 0.0 };
    let origin = (low - FRACTION_LIMBS) * 64;
    // The exponents of the highest bit, and of the last one that a float keeps.
    let highest = origin + top as i32 * 64 + 63 - limbs[top].leading_zeros() as i32;
    if highest > 1023 {
        return f64::INFINITY;
    }
    let last = (highest - 52).max(-1074);
    let bit = |exponent: i32| {
        let place = usize::try_from(exponent - origin).unwrap_or(usize::MAX);
        limbs.get(place / 64).is_some_and(|limb| limb >> (place % 64) & 1 == 1)
    };
    let kept =
        (last..=highest).rev().fold(0u64, |kept, exponent| kept << 1 | u64::from(bit(exponent)));
    let below = (origin..last - 1).any(bit) || more;
    let up = bit(last - 1) && (below || kept & 1 == 1);
    // The highest bit that is kept adds to the exponent, and so does a carry into the next.
    f64::from_bits((((last + 1074) as u64) << 52) + kept + u64::from(up))
}

/// Appends an integer; small ones take few bytes.
pub(super) fn put_integer(out: &mut Vec<u8>, value: i128) {
    let folded = (value << 1 ^ value >> 127) as u128;
    varint::put(out, folded as u64);
    varint::put(out, (folded >> 64) as u64);
}

/// Takes what [`put_integer`] wrote.
pub(super) fn get_integer(input: &mut &[u8]) -> Result<i128, Malformed> {
    let low = varint::get(input)?;
    let folded = u128::from(varint::get(input)?) << 64 | u128::from(low);
    Ok((folded >> 1) as i128 ^ -((folded & 1) as i128))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn float() -> impl Strategy<Value = f64> {
        let any =
            any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |value| value.is_finite());
        prop_oneof![
            any,
            -1e3f64..1e3,
            Just(0.0),
            Just(5e-324),
            Just(f64::MAX),
            Just(-f64::MAX),
            Just(0.1)
        ]
    }

    fn integer() -> impl Strategy<Value = i128> {
        prop_oneof![any::<i128>(), any::<i64>().prop_map(i128::from), -3i128..3]
    }

    /// Shewchuk's sum, rounded once, as Python's `math.fsum` has it: another way to the same.
    fn fsum(values: &[f64]) -> f64 {
        let mut parts: Vec<f64> = Vec::new();
        for &value in values {
            let (mut x, mut kept) = (value, Vec::new());
            for mut y in parts {
                if x.abs() < y.abs() {
                    (x, y) = (y, x);
                }
                let high = x + y;
                let low = y - (high - x);
                if low != 0.0 {
                    kept.push(low);
                }
                x = high;
            }
            kept.push(x);
            parts = kept;
        }
        let mut rest = parts.into_iter().rev();
        let (mut high, mut low) = (rest.next().unwrap_or(0.0), 0.0);
        for y in rest.by_ref() {
            let x = high;
            high = x + y;
            low = y - (high - x);
            if low != 0.0 {
                break;
            }
        }
        // Half-way cases look at what is left.
        if rest.next().is_some_and(|next| (low < 0.0) == (next < 0.0) && low != 0.0) {
            let (twice, sum) = (low * 2.0, high + low * 2.0);
            if twice == sum - high {
                high = sum;
            }
        }
        high
    }

    fn sum(values: impl IntoIterator<Item = Exact>) -> Exact {
        values.into_iter().fold(Exact::default(), |mut all, one| {
            all.add(&one);
            all
        })
    }

    #[test]
    fn edges() {
        let floats = |values: &[f64]| sum(values.iter().map(|&value| Exact::of_float(value)));
        assert_eq!(floats(&[1e308; 4]).to_float(), f64::INFINITY);
        assert_eq!(floats(&[1e308; 4]).divided(4).0, 1e308);
        assert_eq!(floats(&[1e308, 1e308, -1e308]).to_float(), 1e308);
        assert_eq!(floats(&[-f64::MAX, -f64::MAX]).to_float(), f64::NEG_INFINITY);
        assert_eq!(floats(&[5e-324, 5e-324]).divided(4).0, 0.0);
        assert_eq!(floats(&[5e-324; 3]).divided(2).0, 1e-323);
        let integers = |values: &[i128]| sum(values.iter().map(|&value| Exact::from(value)));
        assert_eq!(integers(&[i128::MAX, 1]).to_integer(), None);
        assert_eq!(integers(&[i128::MAX, 1, -1]).to_integer(), Some(i128::MAX));
        assert_eq!(integers(&[i128::MIN, i128::MIN, i128::MAX, 1]).to_integer(), Some(i128::MIN));
        assert_eq!(integers(&[i128::MAX, i128::MAX]).divided(2).1, Some(i128::MAX));
        assert_eq!(integers(&[-3, -4]).divided(2), (-3.5, None));
    }

    proptest! {
        #[test]
        fn floats_come_back(value in float()) {
            prop_assert_eq!(Exact::of_float(value).to_float(), value);
        }

        #[test]
        fn floats_are_summed_as_fsum_does(values in prop::collection::vec(-1e300f64..1e300, 0..20), small in prop::collection::vec(-1e3f64..1e3, 0..20)) {
            let values: Vec<f64> = values.into_iter().chain(small).collect();
            let exact = sum(values.iter().map(|&value| Exact::of_float(value)));
            prop_assert_eq!(exact.to_float(), fsum(&values));
        }

        #[test]
        fn integers_are_summed_as_integers_are(values in prop::collection::vec(integer(), 0..9)) {
            let exact = sum(values.iter().map(|&value| Exact::from(value)));
            // Checked in steps that cannot overflow while there is an order that does not.
            let (mut up, mut down): (Vec<i128>, Vec<i128>) = values.iter().copied().partition(|value| *value >= 0);
            let mut total = Some(0i128);
            while let Some(so_far) = total.filter(|_| !up.is_empty() || !down.is_empty()) {
                let next = if so_far < 0 { up.pop().or_else(|| down.pop()) } else { down.pop().or_else(|| up.pop()) };
                total = so_far.checked_add(next.unwrap());
            }
            prop_assert_eq!(exact.to_integer(), total);
        }

        #[test]
        fn shares_are_the_nearest(values in prop::collection::vec(any::<i64>(), 1..9), count in 1u64..1000) {
            let exact = sum(values.iter().map(|&value| Exact::from(i128::from(value))));
            let total: i128 = values.iter().map(|&value| i128::from(value)).sum();
            let (float, whole) = exact.divided(count);
            prop_assert_eq!(whole, (total % i128::from(count) == 0).then(|| total / i128::from(count)));
            // Of all floats none is nearer: twice the distance is at most that between neighbours.
            let scaled = sum(std::iter::repeat_n(Exact::of_float(-float), usize::try_from(count).unwrap()).chain([exact]));
            let gap = f64::from_bits(float.abs().to_bits() + 1) - float.abs();
            prop_assert!(scaled.to_float().abs() * 2.0 <= gap * count as f64);
        }

        #[test]
        fn any_order_gives_the_same_limbs(floats in prop::collection::vec(float(), 0..9), integers in prop::collection::vec(integer(), 0..9)) {
            let all: Vec<Exact> = floats.into_iter().map(Exact::of_float).chain(integers.into_iter().map(Exact::from)).collect();
            let forth = sum(all.iter().cloned());
            let halves = all.split_at(all.len() / 3);
            let back = sum([sum(halves.1.iter().rev().cloned()), sum(halves.0.iter().cloned())]);
            prop_assert_eq!(&forth, &back);
            let mut wire = Vec::new();
            forth.encode(&mut wire);
            prop_assert_eq!(Exact::decode(&mut &wire[..]).unwrap(), forth);
        }

        #[test]
        fn integers_round_trip(value in integer()) {
            let mut wire = Vec::new();
            put_integer(&mut wire, value);
            prop_assert_eq!(get_integer(&mut &wire[..]), Ok(value));
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400), more in prop::collection::vec(any::<u8>(), 0..400)) {
            for bytes in [&bytes, &more] {
                if let Ok(mut exact) = Exact::decode(&mut &bytes[..]) {
                    let twin = exact.clone();
                    exact.add(&twin);
                    exact.add(&Exact::from(i128::MIN));
                    let _ = (exact.to_float(), exact.to_integer(), exact.divided(3));
                }
            }
        }
    }
}
