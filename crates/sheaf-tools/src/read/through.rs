//! Reads of which no content is kept: `checksum`, `count` and `zero`. Files are opened one after
//! the other and gone through in pieces, so neither their number nor their length matters.
use super::{Addressed, Combined, Content, FilesOfHosts, ReadOptions, Readout};
use crate::paths::{self, AtWork, PerPath};
use crate::target::ToolError;
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, RangeSet, varint};
use sheaf_group::Client;
use sheaf_group::aggregate::ClassDigest;
use sheaf_group::entry::{Answer, Entry, EntryKind, MergedEntry, Sink};
use sheaf_group::message::DataAggregation;
use sheaf_group::tool::{Host, Running, Tool, Tools};
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const NAME: &str = "read";

/// How much is read at a time.
const PIECE_BYTES: usize = 256 << 10;

/// What every leaf is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReadParams {
    /// Say the digest and length of each file; otherwise only how many there are, and how long in
    /// all.
    digests: bool,
    count: Option<u64>,
    offset: u64,
    paths: Vec<String>,
}

/// Makes the leaves' part known to servers.
pub(super) fn register(tools: &mut Tools) {
    tools.register(NAME, ThroughTool);
}

struct ThroughTool;

impl Tool for ThroughTool {
    fn only_reads(&self) -> bool {
        true
    }

    fn start(&self, params: &[u8], _: &Host) -> Result<Box<dyn Running>, Errno> {
        let ReadParams { digests, count, offset, paths } =
            postcard::from_bytes(params).map_err(|_| Errno::PROTO)?;
        let work =
            Through { digests, count, offset, files: 0, bytes: 0, buffer: vec![0; PIECE_BYTES] };
        Ok(Box::new(AtWork::new(Box::new(work), paths)))
    }
}

struct Through {
    digests: bool,
    count: Option<u64>,
    offset: u64,
    files: u64,
    bytes: u64,
    buffer: Vec<u8>,
}

impl PerPath for Through {
    fn takes_once(&self) -> bool {
        true
    }

    fn begin(&mut self, path: &Path, answer: &mut Answer, host: &Host) -> Result<(), Errno> {
        let mut file = host.export.open_ready(path)?;
        // A plain read works also where there are no offsets.
        if self.offset > 0 {
            file.seek(SeekFrom::Start(self.offset))?;
        }
        let mut source = host.attentive(file).take(self.count.unwrap_or(u64::MAX));
        let (mut hasher, mut len) = (blake3::Hasher::new(), 0);
        loop {
            match source.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(got) => {
                    len += got as u64;
                    if self.digests {
                        hasher.update(&self.buffer[..got]);
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                // A pipe or device has no more for now.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && len > 0 => break,
                Err(error) => return Err(error.into()),
            }
        }
        if self.digests {
            let mut text = hasher.finalize().as_bytes().to_vec();
            varint::put(&mut text, len);
            answer.path(path.as_os_str().as_bytes());
            // An answer that is full says so itself.
            let _ = answer.entry(Entry::new(EntryKind::Line, &text));
        }
        self.files += 1;
        self.bytes = self.bytes.saturating_add(len);
        Ok(())
    }

    fn conclude(&mut self, answer: &mut Answer, _: &Host) {
        if self.files > 0 {
            let mut text = Vec::new();
            varint::put(&mut text, self.files);
            varint::put(&mut text, self.bytes);
            answer.path(b"");
            let _ = answer.entry(Entry::new(EntryKind::Count, &text));
        }
    }
}

/// Whether a reading with this aggregation keeps no content.
pub(super) fn is_through(aggregate: &DataAggregation) -> bool {
    matches!(aggregate, DataAggregation::Checksum | DataAggregation::Count | DataAggregation::Zero)
}

/// Reads `files` with an aggregation that keeps no content.
pub(super) async fn read(
    client: &Client,
    files: &Addressed,
    options: &ReadOptions,
    aggregate: &DataAggregation,
) -> Result<Readout, ToolError> {
    let targets = files.targets();
    let digests = *aggregate == DataAggregation::Checksum;
    let params =
        |paths| ReadParams { digests, count: options.count, offset: options.offset, paths };
    let (mut sums, mut contents) = (Sums::default(), SeenContents::default());
    let mut garbled = RangeSet::new();
    let paths::SaidPath { mut outcome, .. } =
        paths::run(client, &targets, (NAME, paths::Effect::Reads), params, &mut |merged| {
            for found in merged.sorted() {
                let taken = match found.entry.kind {
                    EntryKind::Count => sums.take(&found),
                    EntryKind::Line => contents.take(&found),
                    _ => Ok(()),
                };
                if taken.is_err() {
                    garbled.union_with(found.leaves);
                }
            }
            Ok(())
        })
        .await?;
    outcome.add_failed(Errno::PROTO, &garbled);
    let data = match aggregate {
        DataAggregation::Checksum => Combined::Classes(contents.sorted()),
        DataAggregation::Count => Combined::Count(sums.files),
        _ => Combined::None,
    };
    let status = i64::try_from(sums.bytes).unwrap_or(i64::MAX);
    Ok(files.readout(sums.leaves, status, data, outcome))
}

/// How many files there were, how long in all, and who has any.
#[derive(Default)]
struct Sums {
    files: u64,
    bytes: u64,
    leaves: RangeSet,
}

impl Sums {
    fn take(&mut self, found: &MergedEntry<'_>) -> Result<(), varint::Malformed> {
        let mut text = found.entry.text;
        let times = found.leaves.len();
        let (files, bytes) = (varint::get(&mut text)?, varint::get(&mut text)?);
        self.files = self.files.saturating_add(files.saturating_mul(times));
        self.bytes = self.bytes.saturating_add(bytes.saturating_mul(times));
        self.leaves.union_with(found.leaves);
        Ok(())
    }
}

/// Who has which content, by path.
#[derive(Default)]
struct SeenContents(BTreeMap<(ClassDigest, u64), BTreeMap<String, RangeSet>>);

impl SeenContents {
    fn take(&mut self, found: &MergedEntry<'_>) -> Result<(), varint::Malformed> {
        let (digest, mut len) = found.entry.text.split_first_chunk().ok_or(varint::Malformed)?;
        let files = self.0.entry((*digest, varint::get(&mut len)?)).or_default();
        files
            .entry(String::from_utf8_lossy(found.path).into_owned())
            .or_default()
            .union_with(found.leaves);
        Ok(())
    }

    /// That of the first host first.
    fn sorted(self) -> Vec<Content> {
        let content = |((digest, len), files): (_, BTreeMap<String, RangeSet>)| {
            let files: FilesOfHosts = files.into_iter().collect();
            Content { files, digest, len, body: None }
        };
        let mut all: Vec<Content> = self.0.into_iter().map(content).collect();
        let first = |content: &Content| {
            let place = |(path, leaves): &(String, RangeSet)| (leaves.first(), path.clone());
            content.files.iter().map(place).min()
        };
        all.sort_by_cached_key(first);
        all
    }
}
