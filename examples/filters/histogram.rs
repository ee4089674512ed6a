//! How many numbers lie in each bin. The stream's parameters are the edges; a leaf sends numbers;
//! both are doubles, little-endian. What goes up are counts of 64 bits: below the first edge,
//! between each edge and the next, from the last one on, and of what is not a number.
//!
//! SPDX-License-Identifier: MIT OR Apache-2.0
mod sheaf_filter;
use sheaf_filter::{Call, Failure};

const EBADMSG: i32 = 74;
const EINVAL: i32 = 22;

fn doubles(bytes: &[u8]) -> Option<impl Iterator<Item = f64>> {
    let (words, rest) = bytes.as_chunks::<8>();
    rest.is_empty().then(|| words.iter().map(|word| f64::from_le_bytes(*word)))
}

fn histogram_of(call: &mut Call) -> Result<(), Failure> {
    let edges: Vec<f64> =
        doubles(call.params()).ok_or(Failure(EINVAL, "the parameters are edges, doubles"))?.collect();
    let mut counts = vec![0u64; edges.len() + 2];
    let nans = edges.len() + 1;
    for packet in call.inputs() {
        if packet.is_raw() {
            let numbers = doubles(packet.data()).ok_or(Failure(EBADMSG, "a leaf sends doubles"))?;
            for number in numbers {
                let bin = if number.is_nan() { nans } else { edges.partition_point(|&edge| edge <= number) };
                counts[bin] += 1;
            }
            continue;
        }
        let more = packet.data().as_chunks::<8>().0;
        if more.len() != counts.len() {
            return Err(Failure(EBADMSG, "a partial histogram has other bins"));
        }
        for (count, more) in counts.iter_mut().zip(more) {
            *count += u64::from_le_bytes(*more);
        }
    }
    let out: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
    call.output(call.inputs()[0].tag, &out)
}

module!();
filter!(histogram, histogram_of);
