//! Files, directories, and what each process does to each file.
use crate::report::data::{AccessData, DirectoryData, FileData, FilesBeyond, IoSums, OpClass};
use crate::report::sums::{
    AccessStep, PatternSums, SplitSums, StreamPosition, bytes_of, is_stream,
};
use crate::report::units::escaped;
use rustc_hash::{FxHashMap, FxHashSet};
use sheaf_log::{LOST_NAME, TraceNames, TraceRow};
use std::collections::HashMap;

const ENOENT: i32 = 2;
/// Of the flags with which a file is opened; `O_SYNC` has it, too.
const O_DSYNC: i64 = 0o10_000;
/// Of the kernel's flags on x86-64.
#[cfg(not(target_arch = "aarch64"))]
const O_DIRECT: i64 = 0o40_000;
#[cfg(target_arch = "aarch64")]
const O_DIRECT: i64 = 0o200_000;
const EINVAL: i32 = 22;
/// What has no path is in no directory.
const STREAMS: &[u8] = b"(pipes and sockets)";
/// Names of paths that have no file with sums of its own.
const UNSEEN: u32 = u32::MAX;
/// Threads of a process of which it is known where they are in a file: each access looks through them.
const THREADS_MAX: usize = 64;
const FOLDED: u32 = u32::MAX - 1;

/// What an operation was, as far as files are concerned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileOp {
    pub class: OpClass,
    pub is_open: bool,
    pub is_seek: bool,
    pub is_flush: bool,
    pub is_unlink: bool,
    pub is_rename: bool,
    pub layer: u8,
}

#[derive(Debug, Default)]
struct FileSums {
    path: u32,
    directory: u32,
    sums: SplitSums,
    nested: IoSums,
    metadata: IoSums,
    syncs: IoSums,
    layers: Vec<(u8, Box<[PatternSums; 2]>)>,
    opens: u64,
    sync_opens: u64,
    direct_opens: u64,
    refused: IoSums,
    removals: u64,
    renames: u64,
    missing: u64,
    seeks: u64,
    flushes: u64,
    read_to: i64,
    idle_seeks: u64,
    syncs_after_write: u64,
    reads_back: u64,
    /// The process that wrote last.
    last_writer: Option<u32>,
    processes: u64,
    hosts: u64,
    is_partial: bool,
}

/// What was done to what lies right in a directory.
#[derive(Debug, Default)]
struct DirectorySums {
    sums: SplitSums,
    metadata: IoSums,
    files: u64,
    missing: u64,
}

/// What a process does to a file.
#[derive(Debug, Default)]
struct FileStream {
    /// Of reads and writes, layer by layer; nearly always there is one.
    first: (u8, [StreamPosition; 2]),
    more: Vec<(u8, [StreamPosition; 2])>,
    /// The thread that came first, and where each thread is, once there are several.
    thread: Option<i32>,
    threads: Vec<((u8, bool, i32), StreamPosition)>,
    /// Writes since the last wait until data is stored.
    unsynced: u64,
    has_sought: bool,
    /// What was written in one go.
    run: (i64, i64),
    /// From the least to the greatest offset that was written.
    written: Option<(i64, i64)>,
    /// When: from the beginning of the first to the end of the last.
    wrote: (i64, i64),
    /// It wrote again after another one had.
    has_returned: bool,
}

impl FileStream {
    fn positions(&mut self, layer: u8) -> &mut [StreamPosition; 2] {
        if self.first.0 == layer {
            return &mut self.first.1;
        }
        let at = self.more.iter().position(|(other, _)| *other == layer);
        let at = at.unwrap_or_else(|| {
            self.more.push((layer, Default::default()));
            self.more.len() - 1
        });
        &mut self.more[at].1
    }

    /// How an access lies to the one before of its process, or to the one before of its thread, where that says more: each
    /// thread may have a part of its own to read in order.
    fn step(&mut self, layer: u8, is_write: bool, row: &TraceRow) -> Option<AccessStep> {
        let (offset, bytes) = (row.offset?, bytes_of(row));
        let position = &mut self.positions(layer)[usize::from(is_write)];
        let before = *position;
        let step = position.step(offset, bytes);
        let first = *self.thread.get_or_insert(row.thread);
        if first == row.thread && self.threads.is_empty() {
            return Some(step);
        }
        if self.threads.is_empty() {
            self.threads.push(((layer, is_write, first), before));
        }
        let key = (layer, is_write, row.thread);
        let at = self.threads.iter().position(|(known, _)| *known == key);
        if at.is_none() && self.threads.len() < THREADS_MAX {
            self.threads.push((key, StreamPosition::default()));
        }
        let at = at.or_else(|| self.threads.iter().position(|(known, _)| *known == key));
        let by_thread = at.map(|at| self.threads[at].1.step(offset, bytes));
        Some(by_thread.map_or(step, |by_thread| by_thread.min(step)))
    }

    fn wrote(&mut self, offset: i64, end: i64, row: &TraceRow) {
        let ended_ns = row.time_ns.saturating_add(row.duration_ns.max(0));
        let (begun, ended) = self.written.map_or((row.time_ns, ended_ns), |_| self.wrote);
        self.wrote = (begun.min(row.time_ns), ended.max(ended_ns));
        let (first, last) = self.written.unwrap_or((offset, end));
        self.written = Some((first.min(offset), last.max(end)));
        self.run = if offset == self.run.1 { (self.run.0, end) } else { (offset, end) };
    }
}

/// Sums of all files within limits.
#[derive(Debug)]
pub(crate) struct FileTable {
    files_max: usize,
    streams_max: usize,
    directories_max: usize,
    /// By the number of a path's name: its place in `files`.
    places: Vec<u32>,
    files: Vec<FileSums>,
    /// By file and process: the place in `streams`.
    stream_places: FxHashMap<(u32, u32), u32>,
    streams: Vec<FileStream>,
    hosts: FxHashSet<(u32, u32)>,
    directory_places: HashMap<Box<[u8]>, u32>,
    directories: Vec<DirectorySums>,
    beyond: FilesBeyond,
    /// Files of processes for which there was no room.
    pub streams_beyond: bool,
}

impl FileTable {
    pub fn new(files_max: usize, streams_max: usize, directories_max: usize) -> Self {
        Self {
            files_max: files_max.max(2),
            streams_max,
            directories_max,
            places: Vec::new(),
            files: Vec::new(),
            stream_places: FxHashMap::default(),
            streams: Vec::new(),
            hosts: FxHashSet::default(),
            directory_places: HashMap::new(),
            // The first one stands for those beyond the limit.
            directories: vec![Default::default()],
            beyond: FilesBeyond::default(),
            streams_beyond: false,
        }
    }

    /// Adds a row that has a path; `process` is `None` for one that is beyond the limit.
    pub fn add(
        &mut self,
        row: &TraceRow,
        op: FileOp,
        process: Option<u32>,
        host: u32,
        names: &TraceNames,
    ) {
        let place = self.place(row.path, names);
        let file = &mut self.files[place as usize];
        if row.is_nested {
            file.nested.add(row);
        } else {
            file.sums.add(op.class, row);
            let directory = &mut self.directories[file.directory as usize];
            directory.sums.add(op.class, row);
            match op.class {
                OpClass::Metadata => {
                    file.metadata.add(row);
                    directory.metadata.add(row);
                }
                OpClass::Sync => file.syncs.add(row),
                _ => {}
            }
            if row.errno == ENOENT {
                file.missing += 1;
                directory.missing += 1;
            }
        }
        let moves = matches!(op.class, OpClass::Read | OpClass::Write);
        if row.errno == EINVAL && moves {
            file.refused.add(row);
        }
        if row.errno != 0 {
            return;
        }
        file.direct_opens += u64::from(op.is_open && row.asked & O_DIRECT != 0);
        file.flushes += u64::from(op.is_flush);
        file.removals += u64::from(op.is_unlink && !row.is_nested);
        file.renames += u64::from(op.is_rename && !row.is_nested && row.errno == 0);
        file.sync_opens += u64::from(op.is_open && row.asked & O_DSYNC != 0);
        if !(moves || op.is_open || op.is_seek || op.class == OpClass::Sync) {
            return;
        }
        let stream = process.and_then(|process| self.stream(place, process, host));
        let file = &mut self.files[place as usize];
        let stream = stream.map(|stream| &mut self.streams[stream as usize]);
        if moves {
            file.moved(row, op, process, stream);
        } else if !row.is_nested {
            file.placed(op, stream);
        }
    }

    fn place(&mut self, path: u32, names: &TraceNames) -> u32 {
        let number = path as usize;
        if self.places.len() <= number {
            self.places.resize(names.len().max(number + 1), UNSEEN);
        }
        let place = self.places[number];
        if place < FOLDED {
            return place;
        }
        if self.files.len() >= self.files_max {
            self.fold();
        }
        let is_partial = place == FOLDED;
        // A file that returns is counted in `folded` and in its directory already.
        self.beyond.folded -= u64::from(is_partial);
        let directory = self.directory(names.text(path), !is_partial);
        let place = self.files.len() as u32;
        self.files.push(FileSums { path, directory, is_partial, ..FileSums::default() });
        self.places[number] = place;
        place
    }

    fn directory(&mut self, path: &[u8], is_new: bool) -> u32 {
        let parent: &[u8] = match path.iter().rposition(|byte| *byte == b'/') {
            Some(0) => b"/",
            Some(slash) => &path[..slash],
            None if is_stream(path, false) => STREAMS,
            None if path.starts_with(LOST_NAME) => LOST_NAME,
            None => b".",
        };
        let place = match self.directory_places.get(parent) {
            Some(&place) => place,
            None if self.directory_places.len() >= self.directories_max => 0,
            None => {
                let place = self.directories.len() as u32;
                self.directories.push(Default::default());
                self.directory_places.insert(parent.into(), place);
                place
            }
        };
        self.directories[place as usize].files += u64::from(is_new);
        place
    }

    fn stream(&mut self, file: u32, process: u32, host: u32) -> Option<u32> {
        if let Some(&place) = self.stream_places.get(&(file, process)) {
            return Some(place);
        }
        if self.stream_places.len() >= self.streams_max {
            self.streams_beyond = true;
            return None;
        }
        let place = self.streams.len() as u32;
        self.streams.push(FileStream::default());
        self.stream_places.insert((file, process), place);
        let sums = &mut self.files[file as usize];
        sums.processes += 1;
        sums.hosts += u64::from(self.hosts.insert((file, host)));
        Some(place)
    }

    /// Puts together half of the files: those with the fewest operations and the least time.
    fn fold(&mut self) {
        // A quarter by operations and a quarter by time, which may be the same files.
        let keep_max = self.files_max / 4;
        let mut keep = vec![false; self.files.len()];
        let mut order: Vec<usize> = (0..self.files.len()).collect();
        let sums: Vec<IoSums> = self.files.iter().map(|file| file.sums.all()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(sums[at].count + self.files[at].nested.count));
        order.iter().take(keep_max).for_each(|&at| keep[at] = true);
        order.sort_by_key(|&at| std::cmp::Reverse(sums[at].time_ns));
        order.iter().take(keep_max).for_each(|&at| keep[at] = true);
        let mut moved = vec![FOLDED; self.files.len()];
        let mut kept = Vec::with_capacity(self.files_max);
        for (at, file) in std::mem::take(&mut self.files).into_iter().enumerate() {
            if keep[at] {
                moved[at] = kept.len() as u32;
                kept.push(file);
            } else {
                beyond(&mut self.beyond, &file);
                self.beyond.folded += 1;
                self.places[file.path as usize] = FOLDED;
            }
        }
        for (at, file) in kept.iter().enumerate() {
            self.places[file.path as usize] = at as u32;
        }
        self.files = kept;
        let mut streams = Vec::new();
        for ((file, process), place) in std::mem::take(&mut self.stream_places) {
            let file = moved[file as usize];
            if file != FOLDED {
                self.stream_places.insert((file, process), streams.len() as u32);
                streams.push(std::mem::take(&mut self.streams[place as usize]));
            }
        }
        self.streams = streams;
        let hosts = std::mem::take(&mut self.hosts).into_iter();
        let hosts = hosts.map(|(file, host)| (moved[file as usize], host));
        self.hosts = hosts.filter(|(file, _)| *file != FOLDED).collect();
    }

    /// All files that have sums of their own, those with the most time first, and the rest.
    pub fn finish(
        &self,
        names: &TraceNames,
        layer: impl Fn(u8) -> String,
    ) -> (Vec<FileData>, FilesBeyond) {
        let mut writers: FxHashMap<u32, Vec<WriterRange>> = FxHashMap::default();
        for (&(file, _), &place) in &self.stream_places {
            let stream = &self.streams[place as usize];
            if let Some(written) = stream.written {
                let writer = (stream.wrote, written, stream.has_returned);
                writers.entry(file).or_default().push(writer);
            }
        }
        let mut files: Vec<FileData> = Vec::with_capacity(self.files.len());
        for (at, file) in self.files.iter().enumerate() {
            let ranges = writers.remove(&(at as u32)).unwrap_or_default();
            let is_stream = is_stream(names.text(file.path), false);
            files.push(FileData {
                path: escaped(names.text(file.path)),
                reads: file.sums.reads,
                writes: file.sums.writes,
                other: file.sums.other,
                nested: file.nested,
                metadata: file.metadata,
                syncs: file.syncs,
                accesses: file.accesses(&layer),
                opens: file.opens,
                sync_opens: file.sync_opens,
                direct_opens: file.direct_opens,
                refused: file.refused,
                removals: file.removals,
                renames: file.renames,
                missing: file.missing,
                seeks: file.seeks,
                flushes: file.flushes,
                read_to: u64::try_from(file.read_to).unwrap_or(0),
                idle_seeks: file.idle_seeks,
                syncs_after_write: file.syncs_after_write,
                reads_back: file.reads_back,
                processes: file.processes,
                hosts: file.hosts,
                writers: ranges.len() as u64,
                overlapping_writers: among_each_other(ranges),
                is_stream,
                is_partial: file.is_partial,
            });
        }
        files.sort_by(|a, b| {
            let key = |file: &FileData| (!file.is_stream, file.time_ns(), file.operations());
            key(b).cmp(&key(a)).then_with(|| a.path.cmp(&b.path))
        });
        (files, FilesBeyond { files: self.beyond.folded, ..self.beyond.clone() })
    }

    /// Directories, those with the most time first, and whether there are others.
    pub fn directories(&self) -> (Vec<DirectoryData>, bool) {
        let of = |path: String, of: &DirectorySums| DirectoryData {
            path,
            files: of.files,
            reads: of.sums.reads,
            writes: of.sums.writes,
            other: of.sums.other,
            metadata: of.metadata,
            missing: of.missing,
        };
        let others = &self.directories[0];
        let has_others = others.sums.all().count > 0;
        let mut directories: Vec<DirectoryData> = self
            .directory_places
            .iter()
            .map(|(path, &place)| of(escaped(path), &self.directories[place as usize]))
            .chain(has_others.then(|| of("(other directories)".to_owned(), others)))
            .collect();
        directories.sort_by(|a, b| b.time_ns().cmp(&a.time_ns()).then_with(|| a.path.cmp(&b.path)));
        (directories, has_others)
    }
}

impl FileSums {
    fn moved(
        &mut self,
        row: &TraceRow,
        op: FileOp,
        process: Option<u32>,
        mut stream: Option<&mut FileStream>,
    ) {
        let is_write = op.class == OpClass::Write;
        let at = match self.layers.iter().position(|(layer, _)| *layer == op.layer) {
            Some(at) => at,
            None => {
                self.layers.push((op.layer, Box::default()));
                self.layers.len() - 1
            }
        };
        let pattern = &mut self.layers[at].1[usize::from(is_write)];
        let step = stream.as_deref_mut().and_then(|stream| stream.step(op.layer, is_write, row));
        pattern.add(row, step);
        if let Some(offset) = row.offset.filter(|_| !is_write) {
            let bytes = i64::try_from(bytes_of(row)).unwrap_or(i64::MAX);
            self.read_to = self.read_to.max(offset.saturating_add(bytes));
        }
        let (Some(stream), false) = (stream, row.is_nested) else { return };
        if stream.has_sought && step == Some(AccessStep::Consecutive) {
            self.idle_seeks += 1;
        }
        stream.has_sought = false;
        let placed = row.offset.map(|offset| {
            (offset, offset.saturating_add(i64::try_from(bytes_of(row)).unwrap_or(i64::MAX)))
        });
        if is_write {
            stream.unsynced += 1;
            stream.has_returned |= stream.written.is_some() && self.last_writer != process;
            self.last_writer = process;
            if let Some((offset, end)) = placed {
                stream.wrote(offset, end, row);
            }
        } else if let Some((offset, end)) = placed
            && offset < end
            && stream.run.0 <= offset
            && end <= stream.run.1
        {
            self.reads_back += 1;
        }
    }

    fn placed(&mut self, op: FileOp, stream: Option<&mut FileStream>) {
        self.opens += u64::from(op.is_open);
        self.seeks += u64::from(op.is_seek);
        let Some(stream) = stream else { return };
        if op.is_open {
            // What is read again from the beginning is not random.
            stream.first.1 = Default::default();
            stream.more.clear();
            stream.threads.clear();
            stream.thread = None;
        }
        if op.is_seek {
            self.idle_seeks += u64::from(stream.has_sought);
            stream.has_sought = true;
        }
        if op.class == OpClass::Sync {
            self.syncs_after_write += u64::from(stream.unsynced == 1);
            stream.unsynced = 0;
        }
    }

    fn accesses(&self, layer: impl Fn(u8) -> String) -> Vec<AccessData> {
        let mut layers: Vec<&(u8, Box<[PatternSums; 2]>)> = self.layers.iter().collect();
        layers.sort_by_key(|(layer, _)| *layer);
        let data = layers.iter().map(|(number, patterns)| AccessData {
            layer: layer(*number),
            reads: patterns[0].finish(),
            writes: patterns[1].finish(),
        });
        data.collect()
    }
}

impl FileData {
    /// The time of its operations that are not nested, in ns.
    #[must_use]
    pub fn time_ns(&self) -> u128 {
        self.reads.time_ns + self.writes.time_ns + self.other.time_ns
    }

    /// Its operations that are not nested.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.reads.count + self.writes.count + self.other.count
    }

    /// How the layer next to the file system accessed it, as far as it was seen.
    #[must_use]
    pub fn lowest_access(&self) -> Option<&AccessData> {
        let posix =
            self.accesses.iter().find(|access| matches!(&*access.layer, "posix" | "kernel"));
        posix.or_else(|| self.accesses.first())
    }
}

impl DirectoryData {
    /// The time of the operations in it, in ns.
    #[must_use]
    pub fn time_ns(&self) -> u128 {
        self.reads.time_ns + self.writes.time_ns + self.other.time_ns
    }
}

fn beyond(into: &mut FilesBeyond, file: &FileSums) {
    into.reads.merge(&file.sums.reads);
    into.writes.merge(&file.sums.writes);
    into.other.merge(&file.sums.other);
    into.nested.merge(&file.nested);
}

impl FilesBeyond {
    pub(crate) fn add(&mut self, file: &FileData) {
        self.files += 1;
        self.reads.merge(&file.reads);
        self.writes.merge(&file.writes);
        self.other.merge(&file.other);
        self.nested.merge(&file.nested);
    }
}

/// When a process wrote to a file, where, and whether it did again after another one had.
type WriterRange = ((i64, i64), (i64, i64), bool);

/// How many of the writers write where another one does, of those that write while another one does
/// and take turns with it: who writes before and after another one, but not between, does not.
fn among_each_other(mut writers: Vec<WriterRange>) -> u64 {
    writers.sort_unstable();
    let times: Vec<_> = writers.iter().map(|(times, ..)| *times).collect();
    let together = overlapping(&times).into_iter().zip(&writers);
    let together = together.filter(|(is_one, (.., has_returned))| *is_one && *has_returned);
    let mut ranges: Vec<_> = together.map(|(_, (_, range, _))| *range).collect();
    ranges.sort_unstable();
    overlapping(&ranges).into_iter().filter(|is_one| *is_one).count() as u64
}

/// Which of the ranges, which are in order, overlap another one.
fn overlapping(ranges: &[(i64, i64)]) -> Vec<bool> {
    let mut is_overlapping = vec![false; ranges.len()];
    let mut furthest: Option<usize> = None;
    for at in 0..ranges.len() {
        if let Some(before) = furthest.filter(|&before| ranges[before].1 > ranges[at].0) {
            is_overlapping[before] = true;
            is_overlapping[at] = true;
        }
        if furthest.is_none_or(|before| ranges[before].1 < ranges[at].1) {
            furthest = Some(at);
        }
    }
    is_overlapping
}

#[cfg(test)]
mod tests {
    use super::{among_each_other, overlapping};

    #[test]
    fn ranges_that_overlap_are_found() {
        assert!(overlapping(&[]).is_empty());
        assert_eq!(overlapping(&[(0, 10), (10, 20), (20, 30)]), [false; 3]);
        assert_eq!(overlapping(&[(0, 10), (9, 20), (20, 30)]), [true, true, false]);
        let ranges = [(0, 100), (10, 20), (30, 40), (100, 101)];
        assert_eq!(overlapping(&ranges), [true, true, true, false]);
    }

    #[test]
    fn writers_one_after_the_other_are_not_among_each_other() {
        let all = (0, 1000);
        let of = |times: &[(i64, i64)], has_returned| {
            among_each_other(times.iter().map(|times| (*times, all, has_returned)).collect())
        };
        assert_eq!(of(&[(0, 10), (10, 20), (20, 30)], true), 0);
        assert_eq!(of(&[(20, 30), (0, 11), (10, 20)], true), 2);
        assert_eq!(of(&[(20, 30), (0, 11), (10, 20)], false), 0);
        let apart = vec![((0, 9), (0, 10), true), ((0, 9), (10, 20), true)];
        assert_eq!(among_each_other(apart), 0);
    }
}
