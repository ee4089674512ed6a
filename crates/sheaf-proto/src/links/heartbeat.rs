//! Heartbeats: signs of life that also measure. Each carries when it was sent, by its sender's
//! monotonic and wall clocks, and gives the peer's last one back with the time it was held, so that
//! both ends learn the round trip, and how far the peer's clock is from their own.
//!
//! ```text
//! header: wave = the sender's epoch of this link; flags: PING asks for an answer at once
//! body:   sent | wall | echoed epoch | echoed sent | held        (u64 little-endian each)
//! ```
//! `sent` and `held` are nanoseconds of the node's [`Time`]; `wall` is nanoseconds since 1970, 0
//! when nobody told the node. An echo of 0 is none. Without a body it is a sign of life and no
//! more.
//!
//! Of a *near* peer, a process of the same machine, the kernel tells when it ends. Only one that is
//! stopped or hangs has to be found out, and so it is asked seldom, by the upper end: the lower one
//! answers, and speaks by itself only when it was not asked.
use super::{Link, LinkCarrier, LinkId, LinkWay, Links};
use crate::config::{Time, Tuning};
use crate::filter::{LinkClock, LinkClocks};
use crate::frame::{self, Header, Kind, Violation, flag::heartbeat::PING};
use crate::report::{PeerClock, RoundTrip};
use std::time::Duration;

const BODY_BYTES: usize = 40;
/// Two clocks may drift apart by this many nanoseconds per second; what was measured ages so.
const DRIFT_NS_PER_S: u64 = 200_000;

/// Near peers are asked once in so many intervals, if they can still miss so many in time.
const NEAR_INTERVALS: u32 = 4;
const NEAR_BEATS_MIN: u32 = 3;
/// A peer that nothing was heard of is given up after so many timeouts, whoever vouches for it.
const VOUCHED_TIMEOUTS: u32 = 10;

/// What heartbeats say of one link.
#[derive(Debug, Default, Clone)]
pub(crate) struct Pulse {
    /// Counts the transports that have carried the link, so that an echo over an earlier one
    /// measures nothing.
    epoch: u64,
    /// The peer's last heartbeat: its epoch, when it was sent by its clock, and came by ours.
    theirs: Option<(u64, u64, Time)>,
    round_trip: Option<RoundTrip>,
    clock: Option<(PeerClock, Time)>,
}

impl Pulse {
    /// Another transport carries the link.
    pub fn restart(&mut self) {
        *self = Self { epoch: self.epoch + 1, ..Self::default() };
    }

    pub fn round_trip(&self) -> Option<RoundTrip> {
        self.round_trip
    }

    /// The peer's clock, with the error as it has grown since it was measured.
    pub fn clock(&self, now: Time) -> Option<PeerClock> {
        let (clock, at) = self.clock?;
        let drift = (now - at).as_millis() as u64 * DRIFT_NS_PER_S / 1000;
        Some(PeerClock { error_ns: clock.error_ns.saturating_add(drift), ..clock })
    }

    fn encode(&self, now: Time, wall_ns: u64, flags: u8) -> [u8; frame::HEADER_BYTES + BODY_BYTES] {
        let (epoch, sent, held) = match self.theirs {
            Some((epoch, sent, came)) => (epoch, sent, (now - came).as_nanos() as u64),
            None => (0, 0, 0),
        };
        let header = Header {
            flags,
            wave: self.epoch,
            body_len: BODY_BYTES as u32,
            ..Header::new(Kind::Heartbeat)
        };
        let mut bytes = [0; frame::HEADER_BYTES + BODY_BYTES];
        bytes[..frame::HEADER_BYTES].copy_from_slice(&header.to_bytes());
        let fields = [now.0, wall_ns, epoch, sent, held];
        for (place, field) in bytes[frame::HEADER_BYTES..].chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// Takes in a heartbeat; `own_wall_ns` is this node's clock.
    fn take(&mut self, now: Time, own_wall_ns: u64, epoch: u64, body: &[u8; BODY_BYTES]) {
        let field = |at: usize| {
            let bytes = body[at * 8..].first_chunk::<8>().expect("five fields of eight bytes");
            u64::from_le_bytes(*bytes)
        };
        let (sent, wall_ns, echo_epoch, echo, held) =
            (field(0), field(1), field(2), field(3), field(4));
        self.theirs = Some((epoch, sent, now));
        if echo == 0 || echo_epoch != self.epoch {
            return;
        }
        // Both times are numbers of the peer, and forged ones must measure nothing.
        let Some(took_ns) = now.0.checked_sub(echo).and_then(|ns| ns.checked_sub(held)) else {
            return;
        };
        self.measured(took_ns);
        if wall_ns > 0 && own_wall_ns > 0 {
            // Assumes that both ways take equally long, which is wrong by at most half of the round
            // trip.
            let theirs = i128::from(wall_ns) + i128::from(took_ns / 2);
            let offset_ns = i64::try_from(theirs - i128::from(own_wall_ns)).unwrap_or(i64::MAX);
            let clock = PeerClock { offset_ns, error_ns: took_ns.div_ceil(2) };
            // `error_ns` of the old measurement has grown by the drift since then, so it is
            // replaced in time.
            if self.clock(now).is_none_or(|best| clock.error_ns <= best.error_ns) {
                self.clock = Some((clock, now));
            }
        }
    }

    fn measured(&mut self, took_ns: u64) {
        self.round_trip = Some(match self.round_trip {
            None => RoundTrip { smoothed_ns: took_ns, least_ns: took_ns },
            Some(old) => RoundTrip {
                smoothed_ns: (old.smoothed_ns / 8).saturating_mul(7).saturating_add(took_ns / 8),
                least_ns: old.least_ns.min(took_ns),
            },
        });
    }
}

/// When heartbeats are due, and how clocks are told.
pub(crate) struct Heart {
    interval: Duration,
    timeout: Duration,
    pub beat_at: Time,
    near_beat_at: Time,
    /// The wall clock when the driver's was zero; 0: not known.
    wall_at_zero_ns: u64,
}

impl Heart {
    pub fn new(tuning: &Tuning, now: Time) -> Self {
        Self {
            interval: tuning.heartbeat_interval,
            timeout: tuning.heartbeat_timeout,
            beat_at: now + tuning.heartbeat_interval,
            near_beat_at: now,
            wall_at_zero_ns: 0,
        }
    }

    pub fn set_wall_clock(&mut self, now: Time, wall_ns: u64) {
        self.wall_at_zero_ns = wall_ns.saturating_sub(now.0);
    }

    fn wall_ns(&self, now: Time) -> u64 {
        match self.wall_at_zero_ns {
            0 => 0,
            at_zero => at_zero.saturating_add(now.0),
        }
    }

    /// When the peer has been silent for too long.
    fn silent_until(&self, link: &Link) -> Time {
        if link.is_sole {
            return Time(u64::MAX);
        }
        (link.heard.max(link.vouched) + self.timeout)
            .min(link.heard + self.timeout * VOUCHED_TIMEOUTS)
    }

    /// How long a near peer may be silent before it is asked.
    fn near_pause(&self) -> Duration {
        near_pause(self.interval, self.timeout)
    }
}

impl Links {
    /// Something carries the link from now on; its peer must show signs of life, unless it is in
    /// here.
    pub fn attach(&mut self, now: Time, at: LinkId, carrier: LinkCarrier) {
        let interval = self.heart.interval;
        let link = &mut self[at];
        link.reconnects += u32::from(link.is_attached() && link.counters.bytes_in > 0);
        link.carrier = carrier;
        link.vouched = now;
        link.is_sole = false;
        link.heard = now;
        link.spoke = now;
        link.since = now;
        if let Some(pulse) = &mut link.pulse {
            pulse.restart();
        }
        // A node with only near peers may not be due for several intervals.
        self.heart.beat_at = self.heart.beat_at.min(now + interval);
    }

    /// Measures the links to children whose round trip is not known yet.
    pub fn ping_children(&mut self, now: Time) {
        for at in self.ids() {
            let link = &self[at];
            let unmeasured = link.pulse.as_ref().is_none_or(|pulse| pulse.round_trip.is_none());
            if link.way == LinkWay::Down && link.is_watched() && unmeasured {
                self.put_heartbeat(now, at, PING);
            }
        }
    }

    fn put_heartbeat(&mut self, now: Time, at: LinkId, flags: u8) {
        let wall_ns = self.heart.wall_ns(now);
        let bytes = self[at].pulse.get_or_insert_default().encode(now, wall_ns, flags);
        self.send(at, &bytes[..]);
    }

    /// A heartbeat for a link, if everything before it is on its way.
    fn beat_one(&mut self, now: Time, at: LinkId, flags: u8) {
        if self[at].out().is_empty() {
            self.put_heartbeat(now, at, flags);
        }
    }

    /// A sign of life, or with five words a measurement.
    ///
    /// That the peer lives is known before this (whatever comes says so). May come from whoever is
    /// let in, also before it is taken. Afterwards the link's round trip and clock are those of the
    /// latest pair of heartbeats, and one that asks for it is answered, unless something else waits
    /// to be written: that is a sign of life too, and what waited in a queue measures nothing.
    /// Costs no allocation after the first.
    pub fn on_heartbeat(
        &mut self,
        now: Time,
        at: LinkId,
        header: &Header,
        body: &[u8],
        clocks: &LinkClocks,
    ) -> Result<(), Violation> {
        if body.is_empty() {
            return Ok(());
        }
        let body = body.try_into().map_err(|_| Violation::Body(Kind::Heartbeat))?;
        let wall_ns = self.heart.wall_ns(now);
        let link = &mut self[at];
        let pulse = link.pulse.get_or_insert_default();
        pulse.take(now, wall_ns, header.wave, body);
        if let Some(PeerClock { offset_ns, error_ns }) = pulse.clock(now)
            && link.way == LinkWay::Down
        {
            clocks.set(link.rank, Some(LinkClock { offset_ns, error_ns }));
        }
        if header.has(PING) {
            self.beat_one(now, at, 0);
        }
        Ok(())
    }

    /// Links whose peers are given up by the next beat, unless somebody vouches for them.
    pub fn overdue(&self, now: Time) -> Vec<LinkId> {
        let silent =
            |at: &LinkId| self[*at].is_watched() && self.heart.silent_until(&self[*at]) <= now;
        self.ids().filter(silent).collect()
    }

    /// Heartbeats that are due. Gives the links whose peers have been quiet for too long.
    pub fn beat(&mut self, now: Time, often: bool) -> Vec<LinkId> {
        let mut silent = Vec::new();
        // A node that slept (stopped, suspended, starved) cannot judge how quiet others were.
        let slept = now - self.heart.beat_at > self.heart.interval * 2;
        let near_pause = self.heart.near_pause();
        let near_is_due = self.heart.near_beat_at <= now;
        let asks = self
            .iter()
            .any(|link| link.is_watched() && link.is_near() && link.way == LinkWay::Down);
        for at in self.ids() {
            if !self[at].is_watched() {
                continue;
            }
            if slept {
                self[at].heard = now;
            }
            let link = &self[at];
            if self.heart.silent_until(link) <= now {
                silent.push(at);
                continue;
            }
            // Who asks children tells its parent at the same moment: when it is stopped, both
            // notice at about the same time.
            let beats = if link.is_near() {
                near_is_due && (asks || now - link.spoke >= near_pause)
            } else {
                true
            };
            if beats {
                let unmeasured = link.pulse.as_ref().is_none_or(|pulse| pulse.round_trip.is_none());
                let pings = unmeasured || link.is_near() && link.way == LinkWay::Down;
                self.beat_one(now, at, if pings { PING } else { 0 });
            }
        }
        if near_is_due {
            // A node without near children waits longer, so that its parent asks first and it only
            // answers.
            self.heart.near_beat_at = now + if asks { near_pause } else { near_pause * 3 / 2 };
        }
        self.heart.beat_at = self.next_beat(now, often, &silent);
        silent
    }

    fn next_beat(&self, now: Time, often: bool, silent: &[LinkId]) -> Time {
        let is_watched = |at: &LinkId| self[*at].is_watched() && !silent.contains(at);
        let watched = || self.ids().filter(is_watched).map(|at| &self[at]);
        let often = often || watched().any(|link| !link.is_near());
        let beat = if often { now + self.heart.interval } else { self.heart.near_beat_at };
        // Not later than the first moment at which a peer has been silent for too long.
        watched().map(|link| self.heart.silent_until(link)).fold(beat, Time::min)
    }
}

fn near_pause(interval: Duration, timeout: Duration) -> Duration {
    (interval * NEAR_INTERVALS).min(timeout / NEAR_BEATS_MIN).max(interval)
}

/// A peer that has not been heard for this long has missed heartbeats.
pub(crate) fn late_after(link: &Link, tuning: &Tuning) -> Duration {
    let (interval, timeout) = (tuning.heartbeat_interval, tuning.heartbeat_timeout);
    let pause = if link.is_near() { near_pause(interval, timeout) } else { interval };
    // One is due each pause, as each end counts it, and may be on its way.
    pause * 5 / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ends whose clocks are apart, and a network that takes its time.
    struct Pair {
        ends: [Pulse; 2],
        now: u64,
        /// Of the second end's wall clock before the first's.
        ahead_ns: u64,
    }

    const WALL: u64 = 1_700_000_000_000_000_000;

    impl Pair {
        fn beat(&mut self, from: usize, takes_ns: u64) {
            // Monotonic clocks of two hosts have nothing to do with each other.
            let mono = |end: usize, at: u64| Time(at + [0, 77_000_000_000][end]);
            let wall = |end: usize, at: u64| WALL + at + [0, self.ahead_ns][end];
            let bytes = self.ends[from].encode(mono(from, self.now), wall(from, self.now), 0);
            self.now += takes_ns;
            let to = 1 - from;
            let header = Header::parse(&bytes).unwrap().unwrap();
            let body = bytes[frame::HEADER_BYTES..].try_into().unwrap();
            self.ends[to].take(mono(to, self.now), wall(to, self.now), header.wave, body);
        }
    }

    #[test]
    fn both_ends_learn_round_trip_and_offset() {
        let mut pair = Pair {
            ends: [Pulse::default(), Pulse::default()],
            now: 1_000,
            ahead_ns: 5_000_000_000,
        };
        pair.ends.iter_mut().for_each(Pulse::restart);
        for (there, back) in [(400_000, 600_000), (40_000, 60_000), (900_000, 100_000)] {
            pair.beat(0, there);
            pair.now += 300_000_000;
            pair.beat(1, back);
            pair.now += 700_000_000;
        }
        pair.beat(0, 50_000);
        let now = Time(pair.now);
        let first = pair.ends[0].round_trip().unwrap();
        assert_eq!(first.least_ns, 100_000);
        assert!((100_001..1_000_000).contains(&first.smoothed_ns), "{first:?}");
        for (end, ahead) in [(0, 5_000_000_000i64), (1, -5_000_000_000)] {
            let clock = pair.ends[end].clock(Time(now.0 + [0, 77_000_000_000][end])).unwrap();
            let off = clock.offset_ns.abs_diff(ahead);
            assert!(off <= clock.error_ns, "end {end}: {clock:?} is off by {off}");
        }
    }

    #[test]
    fn echo_over_an_earlier_transport_measures_nothing() {
        let mut pair = Pair { ends: [Pulse::default(), Pulse::default()], now: 1_000, ahead_ns: 0 };
        pair.ends.iter_mut().for_each(Pulse::restart);
        pair.beat(0, 10_000);
        pair.ends[0].restart();
        pair.beat(1, 10_000);
        assert_eq!(pair.ends[0].round_trip(), None);
    }

    #[test]
    fn forged_times_measure_nothing_absurd() {
        let mut pulse = Pulse::default();
        pulse.restart();
        for body in [[0xff; BODY_BYTES], [0; BODY_BYTES], [0x80; BODY_BYTES]] {
            pulse.take(Time(5), u64::MAX, 1, &body);
            let _ = pulse.encode(Time(0), u64::MAX, PING);
            let _ = pulse.clock(Time(u64::MAX));
        }
        assert_eq!(pulse.round_trip(), None);
    }
}
