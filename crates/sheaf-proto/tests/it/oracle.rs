//! What simulated leaves answer, and what must therefore come out at the root.
use rustc_hash::{FxHashMap, FxHashSet};
use sheaf_core::{Errno, RangeSet};
use sheaf_proto::filter::{Accumulator, Emit, Filter, FilterError, Input, Registry};
use sheaf_proto::sim::Leaves;
use sheaf_proto::{Event, Node, Packet, WaveResult};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of a record: the leaf, and a value.
const RECORD: usize = 12;
/// So many seeds may fail before the others are let be.
const FAILURES_MAX: usize = 8;
/// A value that the filters refuse.
const POISON: u64 = u64::MAX;

/// The built-in filters; `records`, which strings contributions together in child order; `bag`,
/// which does so as they come. What a leaf contributed twice is there twice.
pub fn registry() -> Registry {
    let mut registry = Registry::with_builtins();
    registry.register("records", |_| Ok(Box::new(Records { in_child_order: true })));
    registry.register("bag", |_| Ok(Box::new(Records { in_child_order: false })));
    registry
}

struct Records {
    in_child_order: bool,
}

impl Filter for Records {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(Gathered(Vec::new()))
    }
    fn in_child_order(&self) -> bool {
        self.in_child_order
    }
}

struct Gathered(Vec<u8>);

impl Accumulator for Gathered {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        let poisoned =
            input.payload.chunks(RECORD).any(|record| record.ends_with(&POISON.to_le_bytes()));
        if poisoned || !input.payload.len().is_multiple_of(RECORD) {
            return Err(FilterError::new(Errno::BADMSG, "this is poison"));
        }
        self.0.extend_from_slice(input.payload);
        Ok(())
    }
    fn finish(&mut self, _: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        out.append(&mut self.0);
        Ok(())
    }
}

/// What a leaf does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    Answer,
    /// The second answer must not count.
    AnswerTwice,
    Fail,
    Poison,
    Nothing,
}

/// How leaves behave, from a seed.
#[derive(Debug, Clone, Copy)]
pub struct Nature {
    pub seed: u64,
    /// Out of 1000 answers, how many are no good answers.
    pub odd: u64,
    /// Whether saying nothing at all is among these.
    pub silence: bool,
    /// Out of 1000 answers, how many are long.
    pub long: u64,
    pub think: Duration,
    /// A stream on which every leaf posts one packet, always the same, for each request of any
    /// other stream; 0: none.
    pub posts: u32,
}

pub fn mix(parts: &[u64]) -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for part in parts {
        state = (state ^ part).wrapping_mul(0xff51_afd7_ed55_8ccd);
        state ^= state >> 29;
    }
    state
}

impl Nature {
    pub fn deed(&self, leaf: u32, stream: u32, wave: u64) -> Deed {
        let dice = mix(&[self.seed, 1, u64::from(leaf), u64::from(stream), wave]);
        match (dice % 1000 < self.odd, dice >> 32 & 3) {
            (false, _) => Deed::Answer,
            (true, 0) => Deed::AnswerTwice,
            (true, 1) => Deed::Fail,
            (true, 2) => Deed::Poison,
            (true, _) if self.silence => Deed::Nothing,
            (true, _) => Deed::Fail,
        }
    }

    pub fn answer(&self, leaf: u32, stream: u32, wave: u64) -> Vec<u8> {
        let wave = if stream == self.posts { 0 } else { wave };
        let dice = mix(&[self.seed, 2, u64::from(leaf), u64::from(stream), wave]);
        let records = if dice % 1000 < self.long { dice >> 20 & 0x3fff } else { 1 };
        let mut answer = Vec::with_capacity(records as usize * RECORD);
        for at in 0..records {
            answer.extend_from_slice(&leaf.to_le_bytes());
            answer.extend_from_slice(&(mix(&[dice, at]) >> 1).to_le_bytes());
        }
        answer
    }

    /// What the root sends with a wave.
    pub fn request(&self, stream: u32, wave: u64) -> Vec<u8> {
        let dice = mix(&[self.seed, 3, u64::from(stream), wave]);
        let len = if dice % 1000 < self.long { dice >> 20 & 0x3ffff } else { dice >> 20 & 0xff };
        let mut request: Vec<u8> =
            (0..len.div_ceil(8)).flat_map(|at| mix(&[dice, at]).to_le_bytes()).collect();
        request.truncate(len as usize);
        request
    }
}

/// The leaves of a simulation; they check that what they receive is whole, in order and once.
pub struct Crowd {
    pub nature: Nature,
    /// By leaf and stream: the last wave, and what has come of its request.
    partial: FxHashMap<(u32, u32), (Option<u64>, Vec<u8>)>,
    pub packets: u64,
    /// Leaves for which a stream was closed: what they are sent afterwards may begin anywhere.
    closed: FxHashSet<(u32, u32)>,
    /// Every stream is opened before the first request: who has not lost it gets each of them.
    pub from_start: bool,
    /// Leaves that were not sent the first requests of such a stream, because they were lost when
    /// they were sent.
    pub late: RangeSet,
    /// Leaves whose process was started again.
    anew: FxHashSet<u32>,
    /// The last request looked at, which is the same for all leaves.
    request: (u32, u64, Vec<u8>),
}

impl Crowd {
    pub fn new(nature: Nature) -> Self {
        Self {
            nature,
            partial: FxHashMap::default(),
            packets: 0,
            closed: FxHashSet::default(),
            from_start: false,
            late: RangeSet::new(),
            anew: FxHashSet::default(),
            request: (0, 0, Vec::new()),
        }
    }
}

impl Leaves for Crowd {
    fn began_anew(&mut self, leaf: u32) {
        self.anew.insert(leaf);
    }

    fn packet(&mut self, leaf: u32, packet: &Packet, node: &mut Node) {
        let (stream, wave) = (packet.stream, packet.wave);
        let (last, request) = self.partial.entry((leaf, stream)).or_default();
        if packet.first {
            let begins = last.is_none();
            let anew = self.anew.contains(&leaf);
            if begins
                && wave > 0
                && self.from_start
                && !anew
                && !self.closed.contains(&(leaf, stream))
            {
                self.late.insert(leaf);
            }
            let next = last.map_or(0, |last| last + 1);
            // Also in the life of another process nothing was asked that is asked now.
            let ahead = wave == next || (anew && wave > next);
            assert!(begins || ahead, "leaf {leaf}: wave {wave} after {last:?}");
            assert!(packet.expect.is_some(), "an answer is expected");
            *last = Some(wave);
            request.clear();
        }
        assert_eq!(*last, Some(wave), "leaf {leaf}: parts of two packets are mixed");
        request.extend_from_slice(&packet.payload);
        if !packet.last {
            return;
        }
        if (self.request.0, self.request.1) != (stream, wave) {
            self.request = (stream, wave, self.nature.request(stream, wave));
        }
        assert!(*request == self.request.2, "leaf {leaf}: the request was changed");
        self.packets += 1;
        if self.nature.posts > 0 {
            node.post(self.nature.posts, 7, &self.nature.answer(leaf, self.nature.posts, 0));
        }
        let mut answer = self.nature.answer(leaf, stream, wave);
        match self.nature.deed(leaf, stream, wave) {
            Deed::Nothing => return,
            Deed::Fail => return node.fail(stream, wave, Errno::NOENT),
            Deed::Poison => {
                answer = leaf.to_le_bytes().to_vec();
                answer.extend_from_slice(&POISON.to_le_bytes());
            }
            Deed::AnswerTwice => node.reply(stream, wave, 7, &answer),
            Deed::Answer => {}
        }
        node.reply(stream, wave, 7, &answer);
    }

    fn think(&mut self, _leaf: u32, rng: &mut fastrand::Rng) -> Duration {
        match self.nature.think.as_nanos() as u64 {
            0 => Duration::ZERO,
            most => Duration::from_nanos(rng.u64(0..most)),
        }
    }

    fn other(&mut self, leaf: u32, event: &Event, _node: &mut Node) {
        if let Event::Closed { stream } = event {
            self.partial.remove(&(leaf, *stream));
            self.closed.insert((leaf, *stream));
        }
    }
}

/// What is known of a wave until it is complete.
#[derive(Debug, Default)]
pub struct Outcome {
    pub ok: RangeSet,
    pub failed: RangeSet,
    pub silent: RangeSet,
    pub errnos: Vec<(Errno, RangeSet)>,
    pub complete: bool,
}

impl Outcome {
    /// Takes in a (partial) result: nobody is counted twice, and the data is exactly that of
    /// the leaves that count as `ok`.
    pub fn take(&mut self, nature: &Nature, stream: u32, result: &WaveResult, in_order: bool) {
        assert!(!self.complete, "wave {} goes on after its end", result.wave);
        self.complete = result.complete;
        let cover = &result.coverage;
        let count = |into: &mut RangeSet, all: &mut RangeSet, leaves: &RangeSet| {
            assert!(all.is_disjoint(leaves), "wave {}: {leaves} counted twice", result.wave);
            all.union_with(leaves);
            into.union_with(leaves);
        };
        let mut all = self.everyone();
        count(&mut self.ok, &mut all, &cover.ok);
        for (_, leaves) in &cover.failed {
            count(&mut self.failed, &mut all, leaves);
        }
        for (errno, leaves) in &cover.silent {
            count(&mut self.silent, &mut all, leaves);
            self.errnos.push((*errno, leaves.clone()));
        }
        let mut expected = Vec::new();
        for leaf in cover.ok.iter() {
            expected.extend_from_slice(&nature.answer(leaf, stream, result.wave));
        }
        let payload = result.payload.as_deref().unwrap_or_default();
        if in_order {
            assert!(payload == expected, "wave {}: not the answers of {}", result.wave, cover.ok);
        } else {
            assert!(
                bag(payload) == bag(&expected),
                "wave {}: not those of {}",
                result.wave,
                cover.ok
            );
        }
    }

    pub fn everyone(&self) -> RangeSet {
        let mut all = self.ok.clone();
        all.union_with(&self.failed);
        all.union_with(&self.silent);
        all
    }

    /// Leaves are where they belong by their deeds; without faults, exactly.
    pub fn check(
        &self,
        nature: &Nature,
        stream: u32,
        wave: u64,
        members: &RangeSet,
        faultless: bool,
    ) {
        assert!(self.complete);
        assert_eq!(&self.everyone(), members, "wave {wave}: not everyone is accounted for");
        for leaf in members.iter() {
            let deed = nature.deed(leaf, stream, wave);
            let place = if self.ok.contains(leaf) {
                matches!(deed, Deed::Answer | Deed::AnswerTwice)
            } else if self.failed.contains(leaf) {
                matches!(deed, Deed::Fail | Deed::Poison)
            } else {
                !faultless || deed == Deed::Nothing
            };
            assert!(place, "wave {wave}: leaf {leaf} did {deed:?}: {self:?}");
        }
    }
}

/// What a payload holds, in whatever order: how many records, and the sum of their digests.
fn bag(payload: &[u8]) -> (usize, u64) {
    let (records, rest) = payload.as_chunks::<RECORD>();
    assert!(rest.is_empty(), "a payload of {} bytes is not made of records", payload.len());
    let digest = |record: &[u8; RECORD]| {
        let [a, b, c] = *record.as_chunks::<4>().0 else {
            unreachable!("twelve bytes are three words")
        };
        mix(&[
            u64::from(u32::from_le_bytes(a)),
            u64::from(u32::from_le_bytes(b)),
            u64::from(u32::from_le_bytes(c)),
        ])
    };
    (records.len(), records.iter().map(digest).fold(0, u64::wrapping_add))
}

/// A number in an environment variable.
pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is to be a number, and is {text:?}")))
}

/// Runs `check` for `count` seeds, or `SHEAF_SIM_TIMES` as many, from `SHEAF_SIM_FROM` on, on
/// `SHEAF_SIM_THREADS` threads (as many as there are cores), but for at most `SHEAF_SIM_MOST`; or for
/// the one in `SHEAF_SIM_SEED`.
/// Says of each seed that fails how it is replayed.
pub fn for_seeds(count: u64, check: impl Fn(u64) + Sync) {
    if let Some(seed) = number("SHEAF_SIM_SEED") {
        return check(seed);
    }
    let from = number("SHEAF_SIM_FROM").unwrap_or(0);
    let count = count * number("SHEAF_SIM_TIMES").unwrap_or(1);
    let count = number("SHEAF_SIM_MOST").map_or(count, |most| most.min(count));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = number("SHEAF_SIM_THREADS").map_or(threads, |threads| threads as usize);
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let (next, failed) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let work = || {
        let fails = |seed| catch_unwind(AssertUnwindSafe(|| check(seed))).is_err();
        while failed.lock().unwrap().len() < FAILURES_MAX {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                break;
            }
            let seed = from + at;
            if fails(seed) {
                let faults =
                    number("SHEAF_SIM_FAULTS").map(|faults| format!("SHEAF_SIM_FAULTS={faults} "));
                let run = "cargo test -p sheaf-proto --test it -- --exact";
                eprintln!(
                    "to replay: {}SHEAF_SIM_SEED={seed} {run} {test}",
                    faults.unwrap_or_default()
                );
                failed.lock().unwrap().push(seed);
            }
        }
    };
    std::thread::scope(|scope| {
        (0..threads).for_each(|_| {
            scope.spawn(work);
        });
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "of {count} seeds, these fail: {failed:?}");
}
