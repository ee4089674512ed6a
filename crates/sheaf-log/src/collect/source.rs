//! A segment that is read: what comes from it, and the rows that this becomes.
use super::limits::{NUMBER_BYTES, OpenPermit};
use super::{
    CollectLimits, Collected, DroppedSums, LOOK_TIME, RECORDS_MAX, SourceState, UNPLACED_ERRNO,
    file_of,
};
use crate::row::{LOST_NAME, TraceNames, TraceRow};
use sheaf_recorder::{
    ClockKind, Full, Gap, IoOp, NamePart, Read, Reader, RingPlace, RingRecord, TakeLimits, flag,
};
use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

/// Names that wait for those of their directories. These come with the same look, or the next one.
const PARTS_MAX: usize = 1 << 16;

/// Files of a process whose names were lost that are told apart.
const LOST_NAMES_MAX: usize = 1 << 12;

/// How often directories are looked for in other rings: a thread may open what is in a directory that another one
/// has just opened, and so on.
const JOINS_MAX: usize = 64;

/// A segment, and how much of its losses is told.
#[derive(Debug)]
pub(super) struct TraceSource {
    pub reader: Reader,
    /// Its file stays open.
    pub permit: Option<OpenPermit>,
    /// Whether its process ran when that was looked at last, and when.
    pub runs: (bool, Instant),
    /// Nothing had come at the last look.
    pub was_quiet: bool,
    /// Its process has ended, and what it has recorded is kept.
    pub is_buried: bool,
    pub names: HashMap<u64, u32>,
    /// What is there in the place of names that did not come.
    lost_names: HashMap<u64, u32>,
    /// Names whose directories have none yet.
    parts: Vec<NamePart>,
    /// It was told that its counts cannot be.
    is_doubtful: bool,
    /// Names that were not taken for want of memory.
    pub names_passed: u64,
    pub command: u32,
    pub lost: u64,
    pub overwritten: u64,
    pub names_lost: u64,
    pub unplaced: u64,
    waited: (u64, u64),
    /// Something was taken since the last release.
    pub is_taken: bool,
    /// What was taken since the last release.
    pub unreleased: DroppedSums,
}

/// What there is room for in a look.
pub(super) struct LookRoom {
    pub records: usize,
    pub rings: usize,
    pub names_bytes: usize,
    /// Numbers of names in records.
    pub numbers: usize,
    pub until: Option<Instant>,
    pub unread_rings: u64,
}

impl LookRoom {
    pub fn of<'a>(
        limits: &CollectLimits,
        until: Option<Instant>,
        sources: impl Iterator<Item = &'a TraceSource>,
    ) -> Self {
        let (mut rings, mut numbers) = (limits.rings, limits.names_bytes / NUMBER_BYTES);
        for source in sources {
            rings = rings.saturating_sub(source.reader.places().len());
            numbers = numbers.saturating_sub(source.names.len());
        }
        let (records, names_bytes) = (limits.records, limits.names_bytes);
        Self { records, rings, names_bytes, numbers, until, unread_rings: 0 }
    }

    /// For names alone, so many bytes of them.
    pub fn of_names(names_bytes: usize) -> Self {
        let all = usize::MAX;
        Self { records: all, rings: all, names_bytes, numbers: all, until: None, unread_rings: 0 }
    }

    pub fn is_over(&self, collected: &Collected) -> bool {
        collected.rows.len() >= self.records
            || self.until.is_some_and(|until| Instant::now() > until)
    }

    /// What one segment may take of it, which has so many rings so far.
    fn limits(&self, rings: usize, collected: &Collected) -> TakeLimits {
        TakeLimits {
            ring_records: RECORDS_MAX,
            records: self.records.saturating_sub(collected.rows.len()),
            names_bytes: self.names_bytes,
            rings: self.rings.saturating_add(rings),
            until: self.until,
        }
    }
}

impl TraceSource {
    /// A segment at its beginning, or where another collector was with it.
    pub fn new(
        mut reader: Reader,
        permit: Option<OpenPermit>,
        command: u32,
        state: SourceState,
    ) -> Self {
        let place =
            |&(records, names, untold): &(u64, u64, u64)| RingPlace { records, names, untold };
        reader.resume(&state.places.iter().map(place).collect::<Vec<_>>());
        let mut source = Self {
            runs: (reader.is_written(), Instant::now()),
            was_quiet: false,
            is_buried: false,
            reader,
            permit,
            names: state.names.into_iter().collect(),
            parts: Vec::new(),
            lost_names: HashMap::new(),
            is_doubtful: false,
            command,
            names_passed: 0,
            lost: state.lost,
            overwritten: 0,
            is_taken: false,
            unreleased: DroppedSums::default(),
            names_lost: state.names_lost,
            unplaced: state.unplaced,
            waited: (0, 0),
        };
        source.close();
        source
    }

    /// Opens its file, if it does not stay open.
    pub fn open(&mut self) {
        if self.permit.is_none() {
            self.reader.open_again();
        }
    }

    pub fn close(&mut self) {
        if self.permit.is_none() {
            self.reader.close();
        }
    }

    /// Its process: its number, and when it was started.
    pub fn process(&self) -> (u32, u64) {
        let process = self.reader.process();
        (process.pid, process.started)
    }

    /// Whether its process ran lately; just now, if this is asked for the last time. One that has
    /// something to tell runs, or did.
    pub fn is_written(&mut self, is_last: bool) -> bool {
        let (runs, since) = self.runs;
        if !runs || self.reader.has_ended() {
            return false;
        }
        if is_last || (self.was_quiet && since.elapsed() >= LOOK_TIME) {
            self.runs = (self.reader.is_written(), Instant::now());
        }
        self.runs.0
    }

    /// Takes what has come; of rings that are overwritten, `held` is when something may have been
    /// lost. Whether more is there.
    pub fn take(
        &mut self,
        path: &Path,
        host: u32,
        (was_written, ns_per_tick, held): (bool, f64, (u64, u64)),
        (names, room): (&mut TraceNames, &mut LookRoom),
        into: &mut Collected,
    ) -> bool {
        let rings = self.reader.places().len();
        let mut read = self.reader.take_within(&room.limits(rings, into), was_written);
        room.rings = room.rings.saturating_sub(self.reader.places().len() - rings);
        room.unread_rings += u64::from(read.unread_rings);
        if read.is_doubtful && !std::mem::replace(&mut self.is_doubtful, true) {
            let why =
                "its counts are none that a process can have: how much it has lost is not known";
            into.damaged.push((path.to_owned(), why.to_owned()));
        }
        let has_names = !read.names.is_empty() || !read.parts.is_empty();
        let parts = std::mem::take(&mut read.parts);
        let fresh = self.name((&read.names, parts), names, room);
        let process = self.reader.process();
        let (made, made_ns, pid) = (process.made, process.made_ns, process.pid);
        let is_counter = process.clock == ClockKind::Counter;
        let ns = |ticks: i64| if is_counter { (ticks as f64 * ns_per_tick) as i64 } else { ticks };
        let day = |at: u64| (made_ns as i64).saturating_add(ns(at.wrapping_sub(made) as i64));
        let unnamed = names.number(b"");
        let command = self.command;
        let row = |time: u64, ticks: u64| TraceRow {
            time_ns: day(time),
            duration_ns: ns(i64::try_from(ticks).unwrap_or(i64::MAX)),
            host,
            command,
            path: unnamed,
            pid: pid as i32,
            ..TraceRow::default()
        };
        let mut ops = OpNumbers::new(names);
        for record in &read.records {
            let path = self.name_of(record.file, ops.names, room).unwrap_or(unnamed);
            let is_named = record.flags & flag::NAMED != 0;
            let new_path =
                if is_named { self.name_of(record.asked, ops.names, room) } else { None };
            let row = TraceRow { path, new_path, ..row(record.begun, record.ticks) };
            into.rows.push(of_record(record, row, &mut ops));
        }
        for gap in &read.gaps {
            into.rows.push(of_gap(gap, row(gap.from, gap.to.saturating_sub(gap.from)), &mut ops));
        }
        let is_quiet = read.records.is_empty() && read.gaps.is_empty() && !has_names;
        let is_as_before = (self.lost, self.names_lost, self.unplaced)
            == (read.lost, read.names_lost, read.unplaced);
        let (lost, unplaced) = self.add_losses(&read, into);
        // A ring that is overwritten has no record of a loss. The time for which it was held stands
        // for it.
        if lost > 0 && self.reader.full() == Full::Overwrite {
            let gap = Gap { ring: 0, count: lost, from: held.0, to: held.1 };
            into.rows.push(of_gap(&gap, row(held.0, held.1 - held.0), &mut ops));
        }
        if unplaced > 0 {
            // Only their number is known, not their times.
            let gap = Gap { ring: 0, count: unplaced, from: made, to: made };
            let row = TraceRow { errno: UNPLACED_ERRNO, ..row(made, 0) };
            into.rows.push(of_gap(&gap, row, &mut ops));
        }
        self.was_quiet = is_quiet && is_as_before;
        if !self.was_quiet {
            self.is_taken = true;
            into.sources.push(self.state(path, fresh));
        }
        read.more
    }

    /// Counts what was lost since the last look: operations for want of room, and for want of a ring.
    fn add_losses(&mut self, read: &Read, into: &mut Collected) -> (u64, u64) {
        let lost = read.lost.saturating_sub(self.lost);
        let unplaced = read.unplaced.saturating_sub(self.unplaced);
        into.lost = into.lost.saturating_add(lost.saturating_add(unplaced));
        self.unreleased.unwritten += read.records.len() as u64;
        self.unreleased.lost = self.unreleased.lost.saturating_add(lost.saturating_add(unplaced));
        into.unplaced = into.unplaced.saturating_add(unplaced);
        // Whoever goes on where another was does not tell it again, nor what that had not told.
        into.waited.0 = into.waited.0.saturating_add(read.waited.0.saturating_sub(self.waited.0));
        into.waited.1 = into.waited.1.saturating_add(read.waited.1.saturating_sub(self.waited.1));
        self.waited = read.waited;
        let overwritten = read.overwritten.saturating_sub(self.overwritten);
        into.overwritten = into.overwritten.saturating_add(overwritten);
        self.overwritten = read.overwritten;
        into.names_lost += std::mem::take(&mut self.names_passed);
        let names_lost = read.names_lost.saturating_sub(self.names_lost);
        into.names_lost = into.names_lost.saturating_add(names_lost);
        (self.lost, self.names_lost, self.unplaced) = (read.lost, read.names_lost, read.unplaced);
        (lost, unplaced)
    }

    /// Takes in names, as far as there is room for them.
    pub fn name(
        &mut self,
        (whole, parts): (&HashMap<u64, Vec<u8>>, Vec<NamePart>),
        names: &mut TraceNames,
        room: &mut LookRoom,
    ) -> Vec<(u64, u32)> {
        let mut fresh = Vec::with_capacity(whole.len() + parts.len());
        for (number, name) in whole {
            self.name_one(*number, name, (names, room), &mut fresh);
        }
        self.parts.extend(parts);
        // A directory may be told of in another ring, which comes later.
        for _ in 0..JOINS_MAX {
            let before = self.parts.len();
            for part in std::mem::take(&mut self.parts) {
                let Some(&directory) = self.names.get(&part.directory) else {
                    self.parts.push(part);
                    continue;
                };
                match part.name(names.text(directory)) {
                    Some(name) => self.name_one(part.number, &name, (names, room), &mut fresh),
                    None => self.names_passed += 1,
                }
            }
            if self.parts.len() == before {
                break;
            }
        }
        if self.parts.len() > PARTS_MAX {
            self.names_passed += self.parts.len() as u64;
            self.parts.clear();
        }
        fresh
    }

    /// What a number in a record names, if it does. One that was lost has another name in its place: files are told
    /// apart by its number, as far as they are not too many.
    fn name_of(&mut self, number: u64, names: &mut TraceNames, room: &LookRoom) -> Option<u32> {
        let known = self.names.get(&number).or_else(|| self.lost_names.get(&number));
        if number == 0 || known.is_some() {
            return known.copied();
        }
        if self.lost_names.len() >= LOST_NAMES_MAX || names.bytes() >= room.names_bytes {
            return Some(names.number(LOST_NAME));
        }
        let path = names.number(&[LOST_NAME, format!(" {number:016x}").as_bytes()].concat());
        self.lost_names.insert(number, path);
        Some(path)
    }

    fn name_one(
        &mut self,
        number: u64,
        name: &[u8],
        (names, room): (&mut TraceNames, &mut LookRoom),
        fresh: &mut Vec<(u64, u32)>,
    ) {
        let is_known = self.names.contains_key(&number);
        let has_room = is_known || room.numbers > 0;
        if !has_room || (names.bytes() >= room.names_bytes && names.find(name).is_none()) {
            self.names_passed += 1;
            return;
        }
        room.numbers = room.numbers.saturating_sub(usize::from(!is_known));
        let name = names.number(name);
        self.names.insert(number, name);
        fresh.push((number, name));
    }

    pub fn state(&self, path: &Path, names: Vec<(u64, u32)>) -> SourceState {
        let place = |place: &RingPlace| (place.records, place.names, place.untold);
        SourceState {
            file: file_of(path),
            places: self.reader.places().iter().map(place).collect(),
            names,
            lost: self.lost,
            names_lost: self.names_lost,
            unplaced: self.unplaced,
        }
    }
}

/// TraceNames of operations and layers, by their numbers in records.
struct OpNumbers<'a> {
    names: &'a mut TraceNames,
    ops: HashMap<u16, u32>,
}

impl<'a> OpNumbers<'a> {
    fn new(names: &'a mut TraceNames) -> Self {
        Self { names, ops: HashMap::new() }
    }

    fn op(&mut self, number: u16) -> u32 {
        *self.ops.entry(number).or_insert_with(|| match IoOp::of(number) {
            Some(op) => self.names.number(op.word().as_bytes()),
            None => self.names.number(format!("op {number}").as_bytes()),
        })
    }
}

fn of_record(record: &RingRecord, row: TraceRow, ops: &mut OpNumbers<'_>) -> TraceRow {
    let has_failed = record.flags & flag::FAILED != 0;
    let amount = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    TraceRow {
        op: ops.op(record.op_number),
        layer: ops.names.number(record.layer.word().as_bytes()),
        offset: (record.flags & flag::PLACED != 0).then_some(record.offset as i64),
        asked: if record.flags & flag::NAMED != 0 { 0 } else { amount(record.asked) },
        bytes: if has_failed { 0 } else { amount(record.bytes) },
        errno: if has_failed { record.bytes as i32 } else { 0 },
        thread: record.thread as i32,
        is_nested: record.flags & flag::NESTED != 0,
        ..row
    }
}

fn of_gap(gap: &Gap, row: TraceRow, ops: &mut OpNumbers<'_>) -> TraceRow {
    TraceRow {
        op: ops.op(IoOp::Lost as u16),
        layer: ops.names.number(b"posix"),
        bytes: i64::try_from(gap.count).unwrap_or(i64::MAX),
        ..row
    }
}
