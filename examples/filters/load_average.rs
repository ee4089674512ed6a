//! Mean load of all hosts, as load_average.c, in Rust.
//!
//! SPDX-License-Identifier: MIT OR Apache-2.0
mod sheaf_filter;
use sheaf_filter::{Call, Failure, Packet};

const EBADMSG: i32 = 74;
const WRONG: Failure = Failure(EBADMSG, "a load average is three numbers");

#[derive(Default)]
struct Loads {
    sum: [f64; 3],
    leaves: u64,
}

impl Loads {
    fn add(&mut self, packet: &Packet) -> Result<(), Failure> {
        let (more, leaves) = if packet.is_raw() { (scan(packet.data()), 1) } else { partial(packet.data())? };
        let more = more.ok_or(WRONG)?;
        self.sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        self.leaves += leaves;
        Ok(())
    }
}

fn scan(text: &[u8]) -> Option<[f64; 3]> {
    let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    let mut next = || words.next()?.parse().ok();
    Some([next()?, next()?, next()?])
}

fn partial(bytes: &[u8]) -> Result<(Option<[f64; 3]>, u64), Failure> {
    let words = bytes.as_chunks::<8>().0;
    let [a, b, c, leaves] = words else { return Err(WRONG) };
    Ok((Some([a, b, c].map(|word| f64::from_le_bytes(*word))), u64::from_le_bytes(*leaves)))
}

fn load_average_of(call: &mut Call) -> Result<(), Failure> {
    let mut all = Loads::default();
    call.inputs().iter().try_for_each(|packet| all.add(packet))?;
    let result = call.is_result();
    let share = if result { all.leaves as f64 } else { 1.0 };
    let mut out: Vec<u8> = all.sum.iter().flat_map(|sum| (sum / share).to_le_bytes()).collect();
    if !result {
        out.extend_from_slice(&all.leaves.to_le_bytes());
    }
    call.output(call.inputs()[0].tag, &out)
}

module!();
filter!(load_average, load_average_of);
