//! A tool's call on one host: its answer goes up as a digest, its body when it is asked for.
use super::attention::Attention;
use crate::aggregate::{Data, Packed, Partial};
use crate::audit::ChangeUnderWay;
use crate::entry::Merged;
use crate::message::INLINE_BYTES_MAX;
use crate::tool::{Host, Reply, Running, Step, Tool};
use bytes::Bytes;
use sheaf_core::{Errno, MemberSet, RangeSet};

/// A tool's answer is sent on once it is this long; the rest follows when it is asked for.
const ANSWER_BYTES: usize = 4 << 20;

/// What was not sent yet when nobody wants the rest comes along with the last words up to this
/// length.
const LAST_BYTES: usize = 64 << 10;

pub(super) struct ServerCall {
    running: Box<dyn Running>,
    done: bool,
    /// What has been said since the last answer, when that was given early.
    unsaid: Option<Reply>,
    /// The last answer, for those who fetch it.
    body: Vec<u8>,
    /// The record of what it changes, and how many errors it has had.
    change: Option<ChangeUnderWay>,
    errors: u64,
}

impl ServerCall {
    pub fn start(
        tool: &dyn Tool,
        params: &[u8],
        host: &Host,
        change: Option<ChangeUnderWay>,
    ) -> Result<Self, Errno> {
        let running = match tool.start(params, host) {
            Ok(running) => running,
            Err(errno) => {
                change.into_iter().for_each(|change| change.refused(errno));
                return Err(errno);
            }
        };
        Ok(Self { running, done: false, unsaid: None, body: Vec::new(), change, errors: 0 })
    }

    /// The memory that its answer takes until it is fetched.
    pub fn kept_bytes(&self) -> usize {
        self.body.len() + self.unsaid.as_ref().map_or(0, Reply::len)
    }

    pub fn feed(&mut self, data: Bytes, host: &Host) {
        self.running.feed(data, host);
    }

    /// Runs the tool until it is done, has said enough, or those who wait should hear of it.
    pub fn answer(&mut self, host: &Host, attention: &Attention) -> Result<Partial, Errno> {
        let mut reply = self.unsaid.take().unwrap_or_else(|| Reply::Bytes(Vec::new()));
        while !self.done && reply.len() < ANSWER_BYTES {
            if let Some(errno) = host.stopped() {
                self.unsaid = Some(reply);
                return Err(errno);
            }
            match self.running.step(&mut reply, host) {
                Step::More if attention.is_due() => break,
                Step::More => {}
                Step::Pause => break,
                Step::Done => self.done = true,
            }
        }
        let Some(eager) = attention.waiting() else {
            // They were told within a step that there will be more.
            self.unsaid = Some(reply);
            return Ok(Partial::default());
        };
        if !self.done {
            self.running.so_far(&mut reply, false);
        }
        self.errors += reply.errors();
        if let Some(mut change) = self.change.take_if(|_| self.done) {
            change.names(self.running.changed());
            change.ended(self.errors);
        }
        // A host at work that has nothing to say yet says no more than that.
        let says_nothing = !self.done && reply.is_empty();
        self.body = if says_nothing { Vec::new() } else { reply.into_bytes() };
        Ok(said(host.leaf, self.done, &self.body, eager))
    }

    /// Ends the tool, and says what it has done.
    pub fn last(&mut self, leaf: u32) -> Partial {
        self.done = true;
        self.leave_unfinished();
        let unsaid = self.unsaid.take().filter(|unsaid| unsaid.len() <= LAST_BYTES);
        let mut reply = unsaid.unwrap_or_else(|| Reply::Bytes(Vec::new()));
        self.running.so_far(&mut reply, true);
        self.body = reply.into_bytes();
        said(leaf, true, &self.body, leaf)
    }

    /// What was changed so far is recorded as unfinished.
    fn leave_unfinished(&mut self) {
        if let Some(mut change) = self.change.take() {
            change.names(self.running.changed());
        }
    }

    pub fn fetch(&self, leaf: u32, lines: bool, bytes_max: u64) -> Result<Partial, Errno> {
        if lines { body_lines(leaf, &self.body) } else { Ok(body(leaf, 0, &self.body, bytes_max)) }
    }
}

impl Drop for ServerCall {
    fn drop(&mut self) {
        self.leave_unfinished();
    }
}

/// A tool's answer: its digest, and its body if that is short or its leaf the `eager` one.
pub(crate) fn said(leaf: u32, done: bool, body: &[u8], eager: u32) -> Partial {
    let mut partial = Partial::default();
    partial.status.add(body.len() as u64);
    if !done {
        partial.more = RangeSet::single(leaf);
    }
    let len = body.len() as u64;
    let inline = len <= INLINE_BYTES_MAX || eager == leaf;
    let digest = *blake3::hash(body).as_bytes();
    let member = MemberSet::of_leaves(0, RangeSet::single(leaf));
    partial.data = Data::class(digest, len, member, inline.then(|| body.to_vec()));
    partial
}

/// A body on its way up.
pub(crate) fn body(leaf: u32, local: u32, bytes: &[u8], bytes_max: u64) -> Partial {
    let data = Data::Packed(Packed::of(leaf, local, bytes.to_vec(), bytes_max));
    Partial { data, ..Partial::default() }
}

/// A body on its way up line by line.
pub(crate) fn body_lines(leaf: u32, bytes: &[u8]) -> Result<Partial, Errno> {
    let mut merged = Merged::new();
    merged.fold_raw(leaf, bytes).map_err(|error| error.errno())?;
    Ok(Partial { data: Data::Lines(Box::new(merged)), ..Partial::default() })
}
