//! What servers are asked, what they answer, and how answers are combined.
use super::clock::ClockSample;
use super::columns;
use crate::host::ServedHost;
use crate::row::{TraceNames, TraceRow};
use flate2::write::DeflateEncoder;
use flate2::{Compression, Decompress, FlushDecompress, Status};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_recorder::{IO_LAYERS, IoLayer, IoOp};
use sheaf_tree::filter::{Accumulator, Emit, Filter, FilterError, Input};
use std::fmt;
use std::io::Write;

/// The most bytes of a batch before it is compressed.
const BATCH_BYTES_MAX: usize = 1 << 30;
/// The level of compression (DEFLATE): the fastest, because rows come at full speed. Higher levels
/// take at least twice as long for about a twentieth fewer bytes.
const LEVEL: Compression = Compression::new(1);
/// The most bytes that one byte of DEFLATE unpacks to.
const UNPACKED_RATIO_MAX: usize = 1032;

/// Which operations are kept: those that all of these let through. Lost ones always are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowFilter {
    /// Of files whose paths match one of these patterns; of all, if there are none.
    pub paths: Vec<String>,
    /// These operations; all, if there are none.
    pub ops: Vec<String>,
    /// Of these layers; of all, if there are none.
    pub layers: Vec<String>,
    /// Those that took at least so long.
    pub duration_ns: i64,
    /// One of so many of these, at random; all, if it is 0.
    pub sample: u32,
}

/// As options say it.
impl fmt::Display for RowFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |option: &str, words: &[String]| -> Vec<String> {
            words.iter().map(|word| format!("{option} {word}")).collect()
        };
        let mut told =
            [of("--path", &self.paths), of("--op", &self.ops), of("--layer", &self.layers)]
                .concat();
        if self.duration_ns > 0 {
            told.push(format!("--min-us {}", self.duration_ns / 1000));
        }
        if self.sample > 1 {
            told.push(format!("--sample 1/{}", self.sample));
        }
        f.write_str(&told.join(" "))
    }
}

/// A [`RowFilter`] with its patterns compiled, and which names of one [`TraceNames`] pass.
#[derive(Debug, Clone, Default)]
pub struct ReadyFilter {
    paths: Option<GlobSet>,
    ops: Vec<Vec<u8>>,
    layers: Vec<Vec<u8>>,
    duration_ns: i64,
    sample: u32,
    /// Whether names pass, by their numbers; ready for as many.
    paths_known: Vec<bool>,
    ops_known: Vec<bool>,
    layers_known: Vec<bool>,
    /// The number of the name of lost operations.
    lost: Option<u32>,
}

impl RowFilter {
    /// Whether all passes.
    #[must_use]
    pub fn is_open(&self) -> bool {
        *self == Self::default()
    }

    /// Makes it ready.
    ///
    /// # Errors
    /// When a pattern is none.
    pub fn check(&self) -> Result<(), String> {
        let known: Vec<&str> =
            (0..=u8::MAX).filter_map(|at| IoOp::of(at.into())).map(IoOp::word).collect();
        if let Some(op) = self.ops.iter().find(|op| !known.contains(&op.as_str())) {
            return Err(format!("--op: there is no operation {op:?}, but {}", known.join(", ")));
        }
        let known = IO_LAYERS.map(IoLayer::word);
        if let Some(layer) = self.layers.iter().find(|layer| !known.contains(&layer.as_str())) {
            return Err(format!("--layer: there is no layer {layer:?}, but {}", known.join(", ")));
        }
        self.ready().map(drop).map_err(|why| format!("--path: {why}"))
    }

    /// Compiles the patterns.
    ///
    /// # Errors
    /// When a pattern is not valid.
    pub fn ready(&self) -> Result<ReadyFilter, String> {
        let mut set = GlobSetBuilder::new();
        for pattern in &self.paths {
            let glob = GlobBuilder::new(pattern).literal_separator(true).build();
            set.add(glob.map_err(|error| error.to_string())?);
        }
        let paths = set.build().map_err(|error| error.to_string())?;
        let words =
            |words: &[String]| words.iter().map(|word| word.as_bytes().to_owned()).collect();
        Ok(ReadyFilter {
            paths: (!self.paths.is_empty()).then_some(paths),
            ops: words(&self.ops),
            layers: words(&self.layers),
            duration_ns: self.duration_ns,
            sample: self.sample,
            ..ReadyFilter::default()
        })
    }
}

impl ReadyFilter {
    /// Forgets which names pass: the next call of [`ReadyFilter::apply`] has other names.
    pub fn forget(&mut self) {
        self.paths_known.clear();
        self.ops_known.clear();
        self.layers_known.clear();
        self.lost = None;
    }

    /// Removes the rows that do not pass. Until [`ReadyFilter::forget`] all calls have the same
    /// `names`, which may grow.
    pub fn apply(&mut self, rows: &mut Vec<TraceRow>, names: &TraceNames) {
        let lets_names = self.paths.is_none() && self.ops.is_empty() && self.layers.is_empty();
        if lets_names && self.duration_ns == 0 && self.sample < 2 {
            return;
        }
        rows.retain(|row| self.lets(row, names));
    }

    /// Whether a row passes; of `names` as above.
    pub fn lets(&mut self, row: &TraceRow, names: &TraceNames) -> bool {
        use std::os::unix::ffi::OsStrExt;
        for number in self.paths_known.len()..names.len() {
            let name = names.text(number as u32);
            let path = std::path::Path::new(std::ffi::OsStr::from_bytes(name));
            self.paths_known.push(self.paths.as_ref().is_none_or(|set| set.is_match(path)));
            let is_one =
                |words: &[Vec<u8>]| words.is_empty() || words.iter().any(|word| word == name);
            self.ops_known.push(is_one(&self.ops));
            self.layers_known.push(is_one(&self.layers));
            self.lost = self.lost.or_else(|| (name == crate::row::LOST).then_some(number as u32));
        }
        let is_on_path = |path: u32| self.paths_known[path as usize];
        Some(row.op) == self.lost
            || (row.duration_ns >= self.duration_ns
                && self.ops_known[row.op as usize]
                && self.layers_known[row.layer as usize]
                && is_sampled(row, self.sample)
                && [Some(row.path), row.new_path].into_iter().flatten().any(is_on_path))
    }
}

/// Whether a row is one of so many: at random, by what tells it from others.
fn is_sampled(row: &TraceRow, sample: u32) -> bool {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    if sample < 2 {
        return true;
    }
    let hash = (row.time_ns as u64 ^ (row.thread as u64).rotate_left(40)).wrapping_mul(ODD);
    (hash ^ hash >> 29).wrapping_mul(ODD) >> 32 < (1 << 32) / u64::from(sample)
}

/// How far somebody has what a host has recorded, who asks for what follows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPlace {
    /// The host's leaf.
    pub leaf: u32,
    /// See [`ServedHost::life`].
    pub life: u64,
    /// See [`ServedHost::spool`].
    pub spool: u32,
    /// See [`ServedHost::rows`].
    pub rows: u64,
}

/// What servers are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectRequest {
    /// Who asks: what a host keeps is for one.
    pub collector: u64,
    /// Below which directory programs record ([`super::shared_segments`]); `%h` is the host's name.
    pub buffers: String,
    /// Whose programs, by name or number; nobody named: those of whoever asks.
    pub user: Option<String>,
    /// The most rows that are wanted of each host at once; 0: what its clock says is all that is.
    pub rows_max: u32,
    /// The most bytes that a host keeps of what is not stored yet; beyond, rings fill.
    pub spool_bytes_max: u64,
    /// What is kept.
    pub filter: RowFilter,
    /// What is stored, and need not be kept.
    pub places: Vec<HostPlace>,
}

impl CollectRequest {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("numbers and texts have a form")
    }
}

/// What one host says beside its rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchPart {
    /// The host.
    pub host: String,
    /// Its leaf.
    pub leaf: u32,
    /// Where its rows here begin: see [`ServedHost::life`] and what follows there.
    pub life: u64,
    /// See `life`.
    pub spool: u32,
    /// See `life`.
    pub rows: u64,
    /// How many are here.
    pub count: u64,
    /// More is there.
    pub more: bool,
    /// Programs that are being recorded.
    pub open: u64,
    /// Files without names since then.
    pub names_lost: u64,
    /// What it keeps has reached its limit.
    pub is_full: bool,
    /// What could not be read there, or written, since then.
    pub damaged: Vec<String>,
    /// When it was asked and when it answered, by its own clock.
    pub heard_ns: i64,
    /// See `heard_ns`.
    pub answered_ns: i64,
}

impl BatchPart {
    /// Where its rows end.
    #[must_use]
    pub fn end(&self) -> (u64, u32, u64) {
        (self.life, self.spool, self.rows + self.count)
    }

    /// What it says of its clock, asked and heard at these times.
    #[must_use]
    pub fn clock(&self, sent_ns: i64, came_ns: i64) -> ClockSample {
        let (heard_ns, answered_ns) = (self.heard_ns, self.answered_ns);
        ClockSample { sent_ns, heard_ns, answered_ns, came_ns }
    }

    /// Updates how far `host` is stored, after the rows of this part are stored.
    pub fn note(&self, host: &mut ServedHost) {
        host.host.clone_from(&self.host);
        (host.life, host.spool, host.rows) = self.end();
        host.names_lost = host.names_lost.max(self.names_lost);
    }
}

/// Rows of some hosts, in the order of their times.
#[derive(Debug, Clone, Default)]
pub struct TraceBatch {
    /// Of which hosts, in the order of their leaves.
    pub parts: Vec<BatchPart>,
    /// Their names.
    pub names: TraceNames,
    /// Their rows.
    pub rows: Vec<TraceRow>,
}

#[derive(Serialize, Deserialize)]
struct BatchHead {
    parts: Vec<BatchPart>,
    names: Vec<Vec<u8>>,
    rows: u64,
}

impl TraceBatch {
    /// Adds rows with the numbers that their names have in `names`.
    pub fn add(&mut self, rows: &[TraceRow], names: &TraceNames) {
        const UNKNOWN: u32 = u32::MAX;
        let mut numbers = vec![UNKNOWN; names.len()];
        let mut of = |number: u32| {
            let known = &mut numbers[number as usize];
            if *known == UNKNOWN {
                *known = self.names.number(names.text(number));
            }
            *known
        };
        self.rows.reserve(rows.len());
        for &(mut row) in rows {
            row.names_mut().for_each(|name| *name = of(*name));
            self.rows.push(row);
        }
    }

    /// Takes another one in.
    fn merge(&mut self, other: Self) {
        if self.parts.is_empty() {
            *self = other;
            return;
        }
        self.add(&other.rows, &other.names);
        self.parts.extend(other.parts);
    }

    /// As bytes.
    ///
    /// # Errors
    /// `EMSGSIZE` for one that is too long.
    pub fn encode(&self) -> Result<Vec<u8>, Errno> {
        let names = (0..self.names.len() as u32).map(|at| self.names.text(at).to_owned());
        let (parts, rows) = (self.parts.clone(), self.rows.len() as u64);
        let head = BatchHead { parts, names: names.collect(), rows };
        let mut plain = postcard::to_stdvec(&head).map_err(|_| Errno::MSGSIZE)?;
        columns::append(&self.rows, &mut plain);
        if plain.len() > BATCH_BYTES_MAX {
            return Err(Errno::MSGSIZE);
        }
        let len = (plain.len() as u32).to_le_bytes().to_vec();
        let mut packer = DeflateEncoder::new(len, LEVEL);
        packer.write_all(&plain).map_err(|error| Errno::from_io(&error))?;
        packer.finish().map_err(|error| Errno::from_io(&error))
    }

    /// Of bytes.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let (len, packed) = bytes.split_first_chunk::<4>().ok_or("it is cut off")?;
        let len = u32::from_le_bytes(*len) as usize;
        if len > BATCH_BYTES_MAX {
            return Err("it is too long");
        }
        let plain = unpacked(packed, len).ok_or("it cannot be unpacked")?;
        let (head, columns) =
            postcard::take_from_bytes::<BatchHead>(&plain).map_err(|_| "its head is damaged")?;
        let rows = columns::rows(columns).ok_or("it has not the rows that it says")?;
        let counted: u64 = head.parts.iter().map(|part| part.count).fold(0, u64::saturating_add);
        if rows.len() as u64 != head.rows || counted != head.rows {
            return Err("it has not the rows that it says");
        }
        let mut names = TraceNames::default();
        for (at, name) in head.names.iter().enumerate() {
            if names.number(name) as usize != at {
                return Err("a name is there twice");
            }
        }
        if rows.iter().flat_map(TraceRow::names).any(|name| name as usize >= names.len()) {
            return Err("a row has a name that is not there");
        }
        Ok(Self { parts: head.parts, names, rows })
    }
}

/// Unpacks `packed` to exactly `len` bytes; `None` if it is damaged or has another length. Memory is
/// allocated only as far as `packed` can fill it.
fn unpacked(packed: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(len.min(packed.len().saturating_mul(UNPACKED_RATIO_MAX)));
    let mut unpacker = Decompress::new(false);
    let status = unpacker.decompress_vec(packed, &mut plain, FlushDecompress::Finish).ok()?;
    let is_all = status == Status::StreamEnd && unpacker.total_in() == packed.len() as u64;
    (is_all && plain.len() == len).then_some(plain)
}

/// Merges the batches of servers ([`super::TRACE_MERGE`]).
#[derive(Debug, Clone, Copy, Default)]
pub struct BatchFilter;

impl Filter for BatchFilter {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(BatchMerger::default())
    }
}

#[derive(Default)]
struct BatchMerger {
    batch: TraceBatch,
    /// A single one goes on as it is.
    single: Option<Vec<u8>>,
    inputs: u64,
}

impl Accumulator for BatchMerger {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        let bad = |why: &str| FilterError::new(Errno::BADMSG, why);
        let batch = TraceBatch::decode(input.payload).map_err(bad)?;
        self.inputs += 1;
        // A batch that is merged with no other is passed on without being packed again.
        self.single = (self.inputs == 1).then(|| input.payload.to_owned());
        self.batch.merge(batch);
        Ok(())
    }

    fn finish(&mut self, _: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        // The next wave is another.
        let Self { mut batch, single, inputs } = std::mem::take(self);
        if let Some(single) = single {
            out.extend_from_slice(&single);
            return Ok(());
        }
        if inputs == 0 {
            return Ok(());
        }
        batch.rows.sort_by_key(|row| row.time_ns);
        batch.parts.sort_by_key(|part| part.leaf);
        let bytes = batch.encode();
        out.extend_from_slice(&bytes.map_err(|errno| {
            FilterError::new(errno, "what hosts have recorded is too long for one answer")
        })?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(leaf: u32, times: &[i64]) -> TraceBatch {
        let mut names = TraceNames::default();
        let host = format!("n{leaf}");
        let number = names.number(host.as_bytes());
        let (op, path) = (names.number(b"read"), names.number(format!("/f{leaf}").as_bytes()));
        let row = |&time_ns: &i64| TraceRow {
            time_ns,
            host: number,
            op,
            layer: op,
            command: path,
            path,
            offset: (leaf == 2).then_some(-1),
            ..TraceRow::default()
        };
        let part = BatchPart { host, leaf, count: times.len() as u64, ..BatchPart::default() };
        let rows = times.iter().map(row).collect();
        TraceBatch { parts: vec![part], names, rows }
    }

    #[test]
    fn batches_are_merged_by_time_and_each_row_keeps_its_host() {
        let mut merger = BatchFilter.accumulator();
        for input in [batch(1, &[1, 4, 9]), batch(2, &[2, 3]), batch(3, &[])] {
            let payload = &input.encode().unwrap();
            merger.fold(Input { raw: true, payload, ..Input::default() }).unwrap();
        }
        let mut out = Vec::new();
        merger.finish(Emit::Result, &mut out).unwrap();
        let mut next = Vec::new();
        merger.finish(Emit::Result, &mut next).unwrap();
        assert!(next.is_empty(), "nothing goes into two waves");
        let merged = TraceBatch::decode(&out).unwrap();
        let said: Vec<String> = merged
            .rows
            .iter()
            .map(|row| {
                let text = |name| String::from_utf8_lossy(merged.names.text(name)).into_owned();
                let (host, path) = (text(row.host), text(row.path));
                format!("{} {host} {path} {:?}", row.time_ns, row.offset)
            })
            .collect();
        let wanted = [
            "1 n1 /f1 None",
            "2 n2 /f2 Some(-1)",
            "3 n2 /f2 Some(-1)",
            "4 n1 /f1 None",
            "9 n1 /f1 None",
        ];
        assert_eq!(said, wanted);
        let counts: Vec<(&str, u64)> =
            merged.parts.iter().map(|part| (part.host.as_str(), part.count)).collect();
        assert_eq!(counts, [("n1", 3), ("n2", 2), ("n3", 0)]);
    }

    #[test]
    fn what_is_no_batch_is_told() {
        let whole = batch(1, &[1, 2, 3]).encode().unwrap();
        for len in 0..whole.len() {
            assert!(TraceBatch::decode(&whole[..len]).is_err(), "{len} bytes");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            // Whatever it makes of it, it comes back.
            let _ = TraceBatch::decode(&damaged);
        }
    }

    #[test]
    fn batch_with_another_unpacked_length_than_it_states_is_refused() {
        let packed = |plain: &[u8]| {
            let mut packer = DeflateEncoder::new(Vec::new(), Compression::best());
            packer.write_all(plain).unwrap();
            packer.finish().unwrap()
        };
        for plain in [vec![0; 16 << 20], (0..=255).collect::<Vec<u8>>()] {
            let bytes = packed(&plain);
            assert_eq!(unpacked(&bytes, plain.len()).as_deref(), Some(&plain[..]));
            for other in [0, 1, plain.len() - 1, plain.len() + 1, BATCH_BYTES_MAX] {
                assert_eq!(unpacked(&bytes, other), None, "{other}");
            }
            let more = [&bytes[..], b"x"].concat();
            assert_eq!(unpacked(&more, plain.len()), None);
        }
        let with_length = |len: u32, packed: &[u8]| [&len.to_le_bytes()[..], packed].concat();
        let whole = batch(1, &[1, 2, 3]).encode().unwrap();
        let (len, rest) = whole.split_first_chunk::<4>().unwrap();
        let len = u32::from_le_bytes(*len);
        assert!(TraceBatch::decode(&with_length(len, rest)).is_ok());
        for other in [0, len - 1, len + 1, BATCH_BYTES_MAX as u32, u32::MAX] {
            assert!(TraceBatch::decode(&with_length(other, rest)).is_err(), "{other}");
        }
    }

    #[test]
    fn log_filters_keep_what_all_let_through_and_all_that_is_lost() {
        let mut names = TraceNames::default();
        let [read, write, lost, log, data, deep] =
            [&b"read"[..], b"write", b"lost", b"/var/log/a", b"/data/x", b"/data/a/b"]
                .map(|name| names.number(name));
        let row = |op, path, duration_ns| TraceRow { op, path, duration_ns, ..TraceRow::default() };
        let all = [
            row(read, log, 5),
            row(write, data, 50),
            row(write, deep, 50),
            row(write, data, 4),
            row(lost, log, 0),
            row(read, data, 50),
        ];
        let kept = |filter: RowFilter| {
            let mut rows = all.to_vec();
            filter.ready().unwrap().apply(&mut rows, &names);
            rows
        };
        assert_eq!(kept(RowFilter::default()), all);
        let data_only = RowFilter { paths: vec!["/data/*".to_owned()], ..RowFilter::default() };
        assert_eq!(kept(data_only.clone()), [all[1], all[3], all[4], all[5]]);
        let slow_writes = RowFilter { ops: vec!["write".to_owned()], duration_ns: 5, ..data_only };
        assert_eq!(kept(slow_writes), [all[1], all[4]]);
        assert!(RowFilter { paths: vec!["[".to_owned()], ..RowFilter::default() }.check().is_err());
    }
}
