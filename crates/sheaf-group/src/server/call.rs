//! A tool's call on one host: its answer goes up as a digest, its body when it is asked for.
use crate::aggregate::{Data, Packed, Partial};
use crate::entry::Merged;
use crate::message::{Answer, INLINE_BYTES_MAX};
use crate::tool::{Host, Reply, Running, Step, Tool};
use bytes::Bytes;
use sheaf_core::{Errno, MemberSet, RangeSet};

/// A tool's answer is sent on once it is this long; the rest follows when it is asked for.
const ANSWER_BYTES: usize = 4 << 20;

pub(super) struct Call {
    running: Box<dyn Running>,
    done: bool,
    /// The last answer, for those who fetch it.
    body: Vec<u8>,
}

impl Call {
    pub fn start(tool: &dyn Tool, params: &[u8], host: &Host) -> Result<Self, Errno> {
        Ok(Self { running: tool.start(params, host)?, done: false, body: Vec::new() })
    }

    pub fn feed(&mut self, data: Bytes, host: &Host) {
        self.running.feed(data, host);
    }

    /// Runs the tool until it is done or has said enough.
    pub fn answer(&mut self, host: &Host, answer: Answer) -> Result<Partial, Errno> {
        let mut reply = Reply::Bytes(Vec::new());
        while !self.done && reply.len() < ANSWER_BYTES {
            if let Some(errno) = host.stopped() {
                return Err(errno);
            }
            match self.running.step(&mut reply, host) {
                Step::More => {}
                Step::Pause => break,
                Step::Done => self.done = true,
            }
        }
        self.body = reply.into_bytes();
        let mut partial = Partial::default();
        partial.status.add(self.body.len() as u64);
        if !self.done {
            partial.more = RangeSet::single(host.leaf);
        }
        let len = self.body.len() as u64;
        let inline = len <= INLINE_BYTES_MAX || answer.eager == host.leaf;
        let digest = *blake3::hash(&self.body).as_bytes();
        let member = MemberSet::of_leaves(0, RangeSet::single(host.leaf));
        partial.data = Data::class(digest, len, member, inline.then(|| self.body.clone()));
        Ok(partial)
    }

    pub fn fetch(&self, leaf: u32, lines: bool, bytes_max: u64, weight: u64) -> Result<Partial, Errno> {
        if lines { body_lines(leaf, weight, &self.body) } else { Ok(body(leaf, 0, &self.body, bytes_max)) }
    }
}

/// A body on its way up.
pub(super) fn body(leaf: u32, local: u32, bytes: &[u8], bytes_max: u64) -> Partial {
    let data = Data::Packed(Packed::of(leaf, local, bytes.to_vec(), bytes_max));
    Partial { data, ..Partial::default() }
}

/// A body on its way up line by line, for so many leaves.
pub(super) fn body_lines(leaf: u32, weight: u64, bytes: &[u8]) -> Result<Partial, Errno> {
    let mut merged = Merged::new();
    merged.fold_raw_weighted(leaf, weight, bytes).map_err(|error| error.errno())?;
    Ok(Partial { data: Data::Lines(Box::new(merged)), ..Partial::default() })
}
