//! What programs do just now: sums of the last seconds, by file, program or operation.
use crate::op_class::{OpClass, class_of};
use crate::row::{TraceNames, TraceRow, command_line};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_tree::filter::{Accumulator, Emit, Filter, FilterError, Input};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The longest time that is looked back.
pub const LIVE_SECONDS_MAX: u32 = 60;
/// How long one of the parts is that time has.
const SLICE: Duration = Duration::from_millis(250);
/// Sums of one slice; what has none is among the others.
const SUMS_MAX: usize = 16 << 10;
/// Sums of all slices; likewise.
const ALL_SUMS_MAX: usize = 256 << 10;
/// What names may take; then all is forgotten.
const NAME_BYTES_MAX: usize = 16 << 20;
/// Sums of one answer; the rest is one of them.
const ANSWER_SUMS_MAX: usize = 512;

/// What is summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveBy {
    /// Files, by their paths.
    File,
    /// Programs, by their command lines.
    Program,
    /// Operations.
    Operation,
    /// Hosts.
    Host,
}

/// What hosts are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveRequest {
    /// See [`super::CollectRequest::buffers`].
    pub buffers: String,
    /// See [`super::CollectRequest::user`].
    pub user: Option<String>,
    /// What is summed up.
    pub by: LiveBy,
    /// Over how many ms until now.
    pub last_ms: u32,
}

impl LiveRequest {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("numbers and texts have a form")
    }
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveSums {
    /// Operations, but those within others of a layer above.
    pub operations: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// Operations that there was no room for, of which nothing else is known.
    pub lost: u64,
    /// Bytes that were read.
    pub bytes_read: u128,
    /// Bytes that were written.
    pub bytes_written: u128,
    /// The time that they took, of all threads together, in ns.
    pub time_ns: u128,
    /// That of them which was neither read nor written: opened, closed, looked up, waited for, in
    /// ns.
    pub metadata_ns: u128,
    /// The longest, in ns.
    pub longest_ns: u64,
}

impl LiveSums {
    pub(super) fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.failed += other.failed;
        // What a damaged segment says is any number.
        self.lost = self.lost.saturating_add(other.lost);
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.time_ns += other.time_ns;
        self.metadata_ns += other.metadata_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

/// What hosts answer, and what nodes make of answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveAnswer {
    /// Sums by name, those with the most time first.
    pub sums: Vec<(Vec<u8>, LiveSums)>,
    /// Those of names for which there was no room.
    pub others: LiveSums,
    /// Programs that are being recorded.
    pub programs: u64,
    /// The longest time that an answer is of, in ms.
    pub span_ms: u64,
}

impl LiveAnswer {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("numbers and texts have a form")
    }

    /// Of bytes; `None` where they are none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }

    /// All there is.
    #[must_use]
    pub fn total(&self) -> LiveSums {
        let mut total = self.others;
        self.sums.iter().for_each(|(_, sums)| total.add(sums));
        total
    }

    /// Of sums by name.
    fn of(by_name: FxHashMap<Vec<u8>, LiveSums>, others: LiveSums) -> Self {
        let mut sums: Vec<(Vec<u8>, LiveSums)> = by_name.into_iter().collect();
        sums.sort_by(|(a, one), (b, two)| {
            (two.time_ns, two.operations).cmp(&(one.time_ns, one.operations)).then(a.cmp(b))
        });
        let mut answer = Self { others, ..Self::default() };
        for (_, rest) in sums.drain(sums.len().min(ANSWER_SUMS_MAX)..) {
            answer.others.add(&rest);
        }
        answer.sums = sums;
        answer
    }
}

/// Names of a row that sums are by: file, program, operation.
type LiveKey = (u32, u32, u32);

/// Sums of a short time.
struct LiveSlice {
    begun: Instant,
    sums: FxHashMap<LiveKey, LiveSums>,
    others: LiveSums,
}

/// Sums of the last minute.
#[derive(Default)]
pub(super) struct LiveWindow {
    names: TraceNames,
    slices: VecDeque<LiveSlice>,
}

impl LiveWindow {
    /// Takes rows in, with the numbers that their names have in `names`.
    pub fn add(&mut self, rows: &[TraceRow], names: &TraceNames, now: Instant) {
        if rows.is_empty() {
            return;
        }
        if self.names.bytes() > NAME_BYTES_MAX {
            *self = Self::default();
        }
        let span = Duration::from_secs(LIVE_SECONDS_MAX.into()) + SLICE;
        while self.slices.front().is_some_and(|first| now.duration_since(first.begun) > span) {
            self.slices.pop_front();
        }
        if self.slices.back().is_none_or(|last| now.duration_since(last.begun) >= SLICE) {
            let (sums, others) = (FxHashMap::default(), LiveSums::default());
            self.slices.push_back(LiveSlice { begun: now, sums, others });
        }
        let all: usize = self.slices.iter().map(|slice| slice.sums.len()).sum();
        let Some(slice) = self.slices.back_mut() else { return };
        let sums_max = SUMS_MAX.min(slice.sums.len() + ALL_SUMS_MAX.saturating_sub(all));
        let lost = names.find(crate::row::LOST);
        let mut classes: FxHashMap<u32, OpClass> = FxHashMap::default();
        let mut known: FxHashMap<u32, u32> = FxHashMap::default();
        let mut own =
            |name: u32| *known.entry(name).or_insert_with(|| self.names.number(names.text(name)));
        for row in rows.iter().filter(|row| !row.is_nested) {
            let class = classes.entry(row.op).or_insert_with(|| class_of(names.text(row.op)));
            let key = (own(row.path), own(row.command), own(row.op));
            let sums = if slice.sums.len() < sums_max || slice.sums.contains_key(&key) {
                slice.sums.entry(key).or_default()
            } else {
                &mut slice.others
            };
            sums.add(&sums_of(row, *class, Some(row.op) == lost));
        }
    }

    /// What was done since then.
    pub fn answer(&self, by: LiveBy, host: &str, last: Duration, now: Instant) -> LiveAnswer {
        let mut by_name: FxHashMap<Vec<u8>, LiveSums> = FxHashMap::default();
        let (mut others, mut span) = (LiveSums::default(), Duration::ZERO);
        for slice in self.slices.iter().rev() {
            let age = now.duration_since(slice.begun);
            if age > last {
                break;
            }
            span = age;
            others.add(&slice.others);
            for (&(path, command, op), sums) in &slice.sums {
                let name = match by {
                    LiveBy::File => self.names.text(path),
                    LiveBy::Program => self.names.text(command),
                    LiveBy::Operation => self.names.text(op),
                    LiveBy::Host => host.as_bytes(),
                };
                match by_name.get_mut(name) {
                    Some(known) => known.add(sums),
                    None => drop(by_name.insert(name.to_owned(), *sums)),
                }
            }
        }
        let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        if by == LiveBy::Program {
            let lines = by_name.into_iter().map(|(words, sums)| (command_line(&words), sums));
            by_name = lines.collect();
        }
        LiveAnswer { span_ms, ..LiveAnswer::of(by_name, others) }
    }
}

fn sums_of(row: &TraceRow, class: OpClass, is_lost: bool) -> LiveSums {
    let bytes = u128::from(row.bytes.max(0).unsigned_abs());
    if is_lost {
        return LiveSums { lost: row.bytes.max(0).unsigned_abs(), ..LiveSums::default() };
    }
    let took = row.duration_ns.max(0).unsigned_abs();
    let mut sums = LiveSums {
        operations: 1,
        failed: u64::from(row.errno != 0),
        time_ns: took.into(),
        longest_ns: took,
        ..LiveSums::default()
    };
    match class {
        OpClass::Read => sums.bytes_read = bytes,
        OpClass::Write => sums.bytes_written = bytes,
        OpClass::Copy => (sums.bytes_read, sums.bytes_written) = (bytes, bytes),
        _ => sums.metadata_ns = took.into(),
    }
    sums
}

/// Adds up the sums of hosts ([`super::TRACE_LIVE`]).
#[derive(Debug, Clone, Copy, Default)]
pub struct LiveFilter;

impl Filter for LiveFilter {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(LiveAdder::default())
    }
}

#[derive(Default)]
struct LiveAdder {
    by_name: FxHashMap<Vec<u8>, LiveSums>,
    others: LiveSums,
    programs: u64,
    span_ms: u64,
    any: bool,
}

impl Accumulator for LiveAdder {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        let answer = LiveAnswer::decode(input.payload);
        let answer = answer.ok_or_else(|| FilterError::new(Errno::BADMSG, "these are no sums"))?;
        for (name, sums) in answer.sums {
            self.by_name.entry(name).or_default().add(&sums);
        }
        self.others.add(&answer.others);
        self.programs += answer.programs;
        self.span_ms = self.span_ms.max(answer.span_ms);
        self.any = true;
        Ok(())
    }

    fn finish(&mut self, _: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        let Self { by_name, others, programs, span_ms, any } = std::mem::take(self);
        if any {
            let answer = LiveAnswer { programs, span_ms, ..LiveAnswer::of(by_name, others) };
            out.extend_from_slice(&answer.encode());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many rows: reads of a kilobyte each, 10 ns long, of as many files as `files`.
    fn rows(names: &mut TraceNames, count: usize, files: usize) -> Vec<TraceRow> {
        let (op, command) = (names.number(b"read"), names.number(b"prog"));
        let row = |number: usize| {
            let path = names.number(format!("/f{}", number % files).as_bytes());
            TraceRow { op, command, path, bytes: 1024, duration_ns: 10, ..TraceRow::default() }
        };
        (0..count).map(row).collect()
    }

    #[test]
    fn sums_are_of_the_last_time_alone_and_nothing_is_left_out() {
        let (mut window, mut names) = (LiveWindow::default(), TraceNames::default());
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let all = rows(&mut names, 40_000, 20_000);
        window.add(&all, &names, at(0));
        let nested = TraceRow { is_nested: true, ..all[0] };
        window.add(&[nested], &names, at(1));
        let by = |by, last_ms, now_ms| {
            window.answer(by, "n1", Duration::from_millis(last_ms), at(now_ms))
        };
        let files = by(LiveBy::File, 1000, 1000);
        assert_eq!(files.sums.len(), ANSWER_SUMS_MAX);
        let total = files.total();
        assert_eq!(
            (total.operations, total.bytes_read, total.time_ns),
            (40_000, 40_960_000, 400_000)
        );
        let programs = by(LiveBy::Program, 1000, 1000);
        assert_eq!(programs.sums[0].0, b"prog");
        assert_eq!(programs.total(), total);
        assert_eq!(by(LiveBy::Host, 1000, 1000).sums[0].0, b"n1");
        assert_eq!(by(LiveBy::File, 1000, 2000).total(), LiveSums::default());
        let lost = TraceRow { op: names.number(b"lost"), bytes: 7, ..all[0] };
        window.add(&[lost], &names, at(3000));
        let now = window.answer(LiveBy::File, "n1", Duration::from_secs(1), at(3000)).total();
        assert_eq!((now.lost, now.operations), (7, 0));
        window.add(&[lost], &names, at(120_000));
        assert_eq!(window.slices.len(), 1, "what is too old goes");
    }

    #[test]
    fn hosts_are_added_up() {
        let mut adder = LiveFilter.accumulator();
        let (mut window, mut names) = (LiveWindow::default(), TraceNames::default());
        let now = Instant::now();
        window.add(&rows(&mut names, 4, 2), &names, now);
        for host in ["n1", "n2"] {
            let answer = window.answer(LiveBy::File, host, Duration::from_secs(1), now);
            let payload = &LiveAnswer { programs: 3, ..answer }.encode();
            adder.fold(Input { raw: true, payload, ..Input::default() }).unwrap();
        }
        let mut out = Vec::new();
        adder.finish(Emit::Result, &mut out).unwrap();
        let answer = LiveAnswer::decode(&out).unwrap();
        let told: Vec<(&[u8], u64)> =
            answer.sums.iter().map(|(name, sums)| (&name[..], sums.operations)).collect();
        assert_eq!(told, [(&b"/f0"[..], 4), (b"/f1", 4)]);
        assert_eq!(answer.programs, 6);
    }
}
