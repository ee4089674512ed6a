//! Packets that filters send down, to the members below their node.
//!
//! They are outside of the stream's own order and are not repeated after a failure. What is under
//! way to a child is bounded; a reply beyond that is dropped, and the root is told.
use super::{ChildId, NodeStream, StreamOwner};
use crate::frame::{Header, Kind, flag};
use crate::links::Links;
use bytes::Bytes;

/// Bytes of one stream's replies that may be under way to one child.
const REPLIES_BYTES_MAX: usize = 256 << 10;

impl NodeStream {
    /// Queues a reply for every child that is here; returns how many had no room for it.
    pub fn send_reply(&mut self, frame: &Bytes, links: &mut Links) -> usize {
        let mut dropped = 0;
        let lanes = self.down.lanes.iter_mut().zip(self.members.iter());
        for (lane, member) in lanes.filter(|(_, member)| member.is_here()) {
            if lane.replies_bytes + frame.len() > REPLIES_BYTES_MAX {
                dropped += 1;
                continue;
            }
            lane.replies_bytes += frame.len();
            links.send(member.link, frame);
        }
        dropped
    }

    /// A child has dealt with `bytes` of replies more (and not in all, as other credit says: what
    /// an earlier parent sent it may be acknowledged here).
    pub fn replies_dealt_with(&mut self, child: ChildId, bytes: u64) {
        // A child that came here from a lost parent may still acknowledge what that one sent.
        if self.up[child].stale {
            return;
        }
        let lane = &mut self.down[child];
        lane.replies_bytes =
            lane.replies_bytes.saturating_sub(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    /// At a leaf: takes in a reply of `frame_bytes`. Whether there was room; a new parent does not
    /// know how much of the old one's still waits here.
    pub fn take_reply(&mut self, frame_bytes: usize) -> bool {
        let has_room = self.down.replies_due_bytes + frame_bytes <= REPLIES_BYTES_MAX;
        if has_room {
            self.down.replies_due_bytes += frame_bytes;
        }
        has_room
    }

    /// At a leaf: of `frame_bytes` that its service has dealt with, those of replies are told to
    /// the parent; returns the rest. Which of the two the bytes were is not known: counting
    /// replies first never gives more credit for packets than they have earned.
    pub fn consumed_replies(&mut self, frame_bytes: usize, links: &mut Links) -> usize {
        let replies = self.down.replies_due_bytes.min(frame_bytes);
        if replies > 0 {
            self.down.replies_due_bytes -= replies;
            self.credit_replies(replies, links);
        }
        frame_bytes - replies
    }

    /// Tells the parent that `bytes` of replies were dealt with.
    pub fn credit_replies(&self, bytes: usize, links: &mut Links) {
        let StreamOwner::Link(owner) = self.owner else { return };
        if links[owner].is_alive() {
            let (stream, wave) = (self.id, bytes as u64);
            let header =
                Header { flags: flag::credit::REPLY, stream, wave, ..Header::new(Kind::Credit) };
            links.send(owner, &header.to_bytes());
        }
    }
}
