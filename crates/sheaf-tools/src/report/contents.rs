//! `cat`: contents folded by equal content.
//!
//! Small files come along with the answer. Of large ones the digest comes first, and then each
//! distinct content is read piece by piece from one host that has it, so that memory is bounded
//! however large files are. Its digest is checked at the end.
use super::{ReportChoice, report};
use crate::paths::PerPath;
use crate::target::{ArgumentOrder, Target, ToolError};
use serde::{Deserialize, Serialize};
use sheaf_core::{Errno, RangeSet};
use sheaf_file::{Algorithm, Digest, Digester};
use sheaf_group::entry::{Answer, Entry, EntryKind, Merged, Sink};
use sheaf_group::message::DataAggregation;
use sheaf_group::tool::Host;
use sheaf_group::{Client, Group, Outcome, Value};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Files up to this size come along with the answer.
const INLINE_BYTES_MAX: u64 = 64 << 10;

/// How much of a large file one trip brings.
const PIECE_BYTES: u64 = 4 << 20;

/// Hosts that are asked for a content, one after the other.
const CANDIDATES_MAX: usize = 4;

/// Part of a content.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// The file, as the hosts name it.
    pub path: &'a [u8],
    /// The hosts that have this content.
    pub leaves: &'a RangeSet,
    /// Where in the content it is; 0 begins a content.
    pub at: u64,
    /// The bytes.
    pub bytes: &'a [u8],
    /// The content is complete with this piece.
    pub is_last: bool,
    /// Whatever is printed, of every path, is of the same hosts.
    pub same_hosts: bool,
}

/// Large contents are answered with this.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub digest: Digest,
    pub len: u64,
}

pub(super) struct Contents;

impl PerPath for Contents {
    fn begin(&mut self, path: &Path, answer: &mut Answer, host: &Host) -> Result<(), Errno> {
        let mut file = host.attentive(host.export.open_ready(path)?);
        let mut head = Vec::new();
        // One byte more shows that it is too long.
        (&mut file).take(INLINE_BYTES_MAX + 1).read_to_end(&mut head)?;
        answer.path(path.as_os_str().as_bytes());
        if head.len() as u64 <= INLINE_BYTES_MAX {
            let _ = answer.entry(Entry::new(EntryKind::Line, &head));
            return Ok(());
        }
        let mut counted = CountedRows { inner: head.chain(file), len: 0 };
        let digest = sheaf_file::digest(&mut counted, Algorithm::Blake3)?;
        let summary =
            postcard::to_stdvec(&Summary { digest, len: counted.len }).map_err(|_| Errno::INVAL)?;
        let _ = answer.entry(Entry::new(EntryKind::Path, &summary));
        Ok(())
    }
}

struct CountedRows<R> {
    inner: R,
    len: u64,
}

impl<R: Read> Read for CountedRows<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buffer)?;
        self.len += got as u64;
        Ok(got)
    }
}

/// Gives every distinct content of every path to `sink`, in the order of `targets` and then by
/// first host; with `each`, every host's by itself, in host order.
///
/// A `sink` that returns [`ErrorKind::BrokenPipe`] has had enough, and ends it well: nothing more
/// is fetched, and what hosts came to until then is returned.
///
/// # Errors
/// What else `sink` returns, and answers that do not decode or fit.
pub async fn cat(
    client: &Client,
    targets: &[Target],
    each: bool,
    sink: &mut dyn FnMut(Piece<'_>) -> io::Result<()>,
) -> Result<Outcome, ToolError> {
    let mut all: Vec<CountedContent> = Vec::new();
    let order = ArgumentOrder::new(targets);
    let mut outcome = report(client, targets, &ReportChoice::Contents, &mut |merged| {
        all.extend(contents(merged, &order)?);
        Ok(())
    })
    .await?;
    if each {
        let one = |content: CountedContent| {
            let leaves: Vec<u32> = content.leaves.iter().collect();
            leaves.into_iter().map(move |leaf| CountedContent {
                leaves: RangeSet::single(leaf),
                ..content.clone()
            })
        };
        all = all.into_iter().flat_map(one).collect();
        all.sort_by_key(|content| content.leaves.first());
    }
    let same_hosts = all.windows(2).all(|pair| pair[0].leaves == pair[1].leaves);
    for content in all {
        let piece = |at, bytes, is_last| Piece {
            path: &content.path,
            leaves: &content.leaves,
            at,
            bytes,
            is_last,
            same_hosts,
        };
        let fetched = match &content.body {
            Ok(bytes) => sink(piece(0, bytes, true)).map(Ok).map_err(ToolError::Sink),
            Err(summary) => fetch(client, piece(0, b"", false), summary, sink).await,
        };
        match fetched {
            Err(ToolError::Sink(error)) if error.kind() == ErrorKind::BrokenPipe => break,
            fetched => {
                if let Err(errno) = fetched? {
                    let path = String::from_utf8_lossy(&content.path);
                    outcome.status.count =
                        outcome.status.count.saturating_sub(content.leaves.len());
                    outcome.add_path_error(errno, &path, content.leaves.clone());
                }
            }
        }
    }
    Ok(outcome)
}

/// A content, or what has to be fetched.
#[derive(Clone)]
struct CountedContent {
    path: Vec<u8>,
    leaves: RangeSet,
    body: Result<Vec<u8>, std::sync::Arc<Summary>>,
}

fn contents(merged: &Merged, order: &ArgumentOrder) -> io::Result<Vec<CountedContent>> {
    let content = |entry: sheaf_group::entry::MergedEntry<'_>| {
        let body = match entry.entry.kind {
            EntryKind::Line => Ok(entry.entry.text.to_vec()),
            EntryKind::Path => match postcard::from_bytes(entry.entry.text) {
                Ok(summary) => Err(std::sync::Arc::new(summary)),
                Err(error) => return Some(Err(io::Error::new(ErrorKind::InvalidData, error))),
            },
            _ => return None,
        };
        Some(Ok(CountedContent { path: entry.path.to_vec(), leaves: entry.leaves.clone(), body }))
    };
    let mut entries = merged.sorted();
    order.sort(&mut entries);
    entries.into_iter().filter_map(content).collect()
}

/// Reads a large content from one of the hosts that have it. Once a piece was handed on, another
/// host may go on where the first was lost: the digest says whether it was the same.
pub(crate) async fn fetch(
    client: &Client,
    content: Piece<'_>,
    summary: &Summary,
    sink: &mut dyn FnMut(Piece<'_>) -> io::Result<()>,
) -> Result<Result<(), Errno>, ToolError> {
    let (mut at, mut digester) = (0, Digester::new(Algorithm::Blake3));
    let mut candidates = content.leaves.iter().take(CANDIDATES_MAX);
    let mut source: Option<Group> = None;
    let mut errno = Errno::HOSTDOWN;
    while at < summary.len {
        if let Some(errno) = client.is_over() {
            return Ok(Err(errno));
        }
        let group = match source.take() {
            Some(group) => group,
            None => {
                let Some(leaf) = candidates.next() else { return Ok(Err(errno)) };
                match open(client, leaf, content.path).await {
                    Ok(group) => group,
                    Err(failed) => {
                        errno = failed;
                        continue;
                    }
                }
            }
        };
        let count = PIECE_BYTES.min(summary.len - at);
        let bytes = match group
            .pread(count, at, DataAggregation::Packed { bytes_max: PIECE_BYTES })
            .await
        {
            Ok(reading) => match reading.value {
                Value::Packed(mut items) => items.pop().map(|(_, bytes)| bytes).unwrap_or_default(),
                _ => Vec::new(),
            },
            Err(failed) => {
                errno = failed.errno();
                continue;
            }
        };
        // The file is shorter than when it was listed.
        if bytes.len() as u64 != count {
            return Ok(Err(Errno::STALE));
        }
        digester.update(&bytes);
        let is_last = at + count == summary.len;
        sink(Piece { at, bytes: &bytes, is_last, ..content }).map_err(ToolError::Sink)?;
        at += count;
        // Only a host that has answered is asked once more.
        source = Some(group);
    }
    Ok(if digester.finish() == summary.digest { Ok(()) } else { Err(Errno::STALE) })
}

async fn open(client: &Client, leaf: u32, path: &[u8]) -> Result<Group, Errno> {
    // The path is a name, not a pattern.
    let literal: String = String::from_utf8(path.to_vec()).map_err(|_| Errno::ILSEQ)?;
    let escaped: String = literal
        .chars()
        .flat_map(|c| "*?[]{}\\,".contains(c).then_some('\\').into_iter().chain([c]))
        .collect();
    client.gopenat(&RangeSet::single(leaf), &escaped, 0, 0).await.map_err(|error| error.errno())
}
