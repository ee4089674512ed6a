//! Pieces of files, from the hosts that were asked for them.
use super::super::PIECE_BYTES;
use serde::{Deserialize, Serialize};
use sheaf_core::varint::{self, Malformed};
use sheaf_core::{Errno, RangeSet};
use sheaf_file::FileIdentity;
use sheaf_group::tool::{Host, Reply, Running, Step, Tool};
use sheaf_group::{Client, GroupError, Outcome};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Name of the tool at the leaves.
pub(super) const TOOL: &str = "cp.pieces";

/// The most pieces one wave asks for.
pub(super) const PIECES_MAX: usize = 4096;

/// The most bytes that come with a piece.
const AROUND_BYTES_MAX: u64 = 32;

/// A piece of one file of one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CopyPiece {
    pub leaf: u32,
    pub path: Vec<u8>,
    pub offset: u64,
    pub len: u32,
    /// Files that are to be written in place with it: the host does not send it to replace itself.
    pub apart: Vec<FileIdentity>,
}

/// Why there is no piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    /// The host does not answer.
    Silent(Errno),
    /// The host cannot read it, or has something else by now.
    Failed(Errno),
}

pub(super) struct PiecesTool;

impl Tool for PiecesTool {
    fn only_reads(&self) -> bool {
        true
    }

    fn start(&self, params: &[u8], host: &Host) -> Result<Box<dyn Running>, Errno> {
        let mut pieces: Vec<CopyPiece> = postcard::from_bytes(params).map_err(|_| Errno::PROTO)?;
        // The tree sends one request to all hosts, with the pieces of each.
        pieces.retain(|piece| piece.leaf == host.leaf);
        Ok(Box::new(PieceReading { pieces: pieces.into_iter() }))
    }
}

struct PieceReading {
    pieces: std::vec::IntoIter<CopyPiece>,
}

impl Running for PieceReading {
    fn step(&mut self, answer: &mut Reply, host: &Host) -> Step {
        let Some(piece) = self.pieces.next() else { return Step::Done };
        let out = answer.bytes();
        match read(&piece, host) {
            Ok(content) => {
                varint::put(out, 0);
                varint::put_bytes(out, &content);
            }
            Err(errno) => varint::put(out, u64::from(errno.0.unsigned_abs())),
        }
        Step::More
    }
}

/// The piece, or as much of it as the file still has.
fn read(piece: &CopyPiece, host: &Host) -> Result<Vec<u8>, Errno> {
    let file = host.export.open_read(Path::new(OsStr::from_bytes(&piece.path)))?;
    for identity in &piece.apart {
        if identity.is(&file)? {
            return Err(Errno::SAMEFILE);
        }
    }
    // A request may ask for any length.
    let mut content = vec![0; (piece.len as usize).min(PIECE_BYTES as usize)];
    let mut have = 0;
    while have < content.len() {
        match file.read_at(&mut content[have..], piece.offset + have as u64) {
            Ok(0) => break,
            Ok(length) => have += length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    content.truncate(have);
    Ok(content)
}

/// Fetches pieces of at most [`PIECE_BYTES`] together, each content or why there is none, in the
/// order they were asked for.
pub(super) async fn fetch(
    client: &Client,
    pieces: &[CopyPiece],
) -> Result<Vec<Result<Vec<u8>, Lack>>, GroupError> {
    let members: RangeSet = pieces.iter().map(|piece| piece.leaf).collect();
    let params = postcard::to_stdvec(pieces).map_err(|_| GroupError::Protocol)?;
    // Each piece with a little around it.
    let bytes_max = PIECE_BYTES + AROUND_BYTES_MAX * PIECES_MAX as u64;
    let client = client.with_limits(client.limits().with_bytes_max(bytes_max));
    let mut call = client.call(&members, TOOL, &params)?;
    // What each host may say at most: its pieces, and the length and outcome of each.
    let mut most: HashMap<u32, u64> = HashMap::new();
    for piece in pieces {
        *most.entry(piece.leaf).or_default() += u64::from(piece.len) + AROUND_BYTES_MAX;
    }
    let mut bodies: HashMap<u32, Vec<u8>> = HashMap::new();
    loop {
        for class in call.next_bodies_within(&most).await? {
            let Some(body) = class.body else { continue };
            for leaf in class.members.leaves().iter() {
                bodies.entry(leaf).or_default().extend_from_slice(&body);
                most.entry(leaf).and_modify(|left| *left -= (body.len() as u64).min(*left));
            }
        }
        if !call.has_more() {
            break;
        }
    }
    let outcome = call.finish();
    let mut inputs: HashMap<u32, &[u8]> =
        bodies.iter().map(|(leaf, body)| (*leaf, &body[..])).collect();
    let take = |piece: &CopyPiece| match inputs.get_mut(&piece.leaf) {
        Some(input) => next_content(input).unwrap_or(Err(Errno::PROTO)).map_err(Lack::Failed),
        None => Err(why_missing(&outcome, piece.leaf)),
    };
    Ok(pieces.iter().map(take).collect())
}

fn next_content(input: &mut &[u8]) -> Result<Result<Vec<u8>, Errno>, Malformed> {
    Ok(match varint::get(input)? {
        0 => Ok(varint::get_bytes(input)?.to_vec()),
        errno => Err(Errno(i32::try_from(errno).map_err(|_| Malformed)?)),
    })
}

fn why_missing(outcome: &Outcome, leaf: u32) -> Lack {
    let find = |list: &[(Errno, RangeSet)]| {
        list.iter().find(|(_, leaves)| leaves.contains(leaf)).map(|(errno, _)| *errno)
    };
    match find(&outcome.failed) {
        Some(errno) => Lack::Failed(errno),
        None => Lack::Silent(find(&outcome.silent).unwrap_or(Errno::HOSTDOWN)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut input = &bytes[..];
            while !input.is_empty() && next_content(&mut input).is_ok() {}
        }
    }
}
