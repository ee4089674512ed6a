//! Packets that filters send down, to the members below their node.
//!
//! They are outside of the stream's own order and are not repeated after a failure. What is under
//! way to a child is bounded; a reply beyond that is dropped, and the root is told.
use super::{Event, Node, Packet};
use crate::Role;
use crate::filter::{FilterError, REPLY_BYTES_MAX, Replies};
use crate::frame::{self, HEADER_BYTES, Header, Kind, Violation, flag};
use crate::links::LinkId;
use crate::stream::Owner;
use bytes::Bytes;
use sheaf_core::Errno;

/// Bytes of one stream's replies that may be under way to one child.
const REPLIES_BYTES_MAX: usize = 256 << 10;

impl Node {
    /// Sends what a filter here said in answer to `wave`.
    pub(super) fn send_replies(&mut self, id: u32, wave: u64, replies: Replies) {
        let mut dropped = 0;
        for reply in replies {
            let flags = flag::part::FIRST | flag::part::LAST;
            let header = Header { flags, stream: id, tag: reply.tag, wave, ..Header::new(Kind::Reply) };
            dropped += self.forward_reply(id, &frame::encode(header, &reply.payload));
        }
        self.complain_of_dropped(id, wave, dropped);
    }

    /// Queues a reply for every child on the stream; returns how many had no room for it.
    fn forward_reply(&mut self, id: u32, frame: &Bytes) -> usize {
        let Some(stream) = self.streams.get_mut(&id) else { return 0 };
        stream.send_reply(frame, REPLIES_BYTES_MAX, &mut self.links)
    }

    fn complain_of_dropped(&mut self, id: u32, wave: u64, dropped: usize) {
        if dropped > 0 {
            let message =
                format!("{dropped} replies of a filter were dropped: earlier ones are not taken yet");
            self.complain(id, wave, &FilterError::new(Errno::MSGSIZE, message));
        }
    }

    /// A reply of a filter above. It is outside of the stream's window, and so has a bound of its own.
    pub(super) fn on_reply(&mut self, link: LinkId, header: &Header, frame: &Bytes) -> Result<(), Violation> {
        if header.body_len as usize > REPLY_BYTES_MAX {
            return Err(Violation::Bound("a reply of a filter is too long"));
        }
        let (id, role) = (header.stream, self.config.role);
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if stream.owner != Owner::Link(link) {
            return Err(Violation::OutOfPlace(Kind::Reply));
        }
        if role == Role::Leaf {
            if stream.down.replies_due_bytes + frame.len() > REPLIES_BYTES_MAX {
                // A new parent does not know how much of the old one's still waits here.
                self.credit_replies(id, frame.len());
                self.complain_of_dropped(id, header.wave, 1);
                return Ok(());
            }
            stream.down.replies_due_bytes += frame.len();
            self.events.push_back(Event::Packet(Packet {
                stream: id,
                wave: header.wave,
                tag: header.tag,
                first: true,
                last: true,
                expect: None,
                frame_bytes: frame.len(),
                payload: frame.slice(HEADER_BYTES..),
            }));
            return Ok(());
        }
        let dropped = self.forward_reply(id, frame);
        self.complain_of_dropped(id, header.wave, dropped);
        self.credit_replies(id, frame.len());
        Ok(())
    }

    /// At a leaf: of `frame_bytes` that its service has dealt with, those of replies are told to
    /// the parent; returns the rest. Which of the two the bytes were is not known: counting
    /// replies first never gives more credit for packets than they have earned.
    pub(super) fn consumed_replies(&mut self, id: u32, frame_bytes: usize) -> usize {
        let Some(stream) = self.streams.get_mut(&id) else { return frame_bytes };
        let replies = stream.down.replies_due_bytes.min(frame_bytes);
        if replies > 0 {
            stream.down.replies_due_bytes -= replies;
            self.credit_replies(id, replies);
        }
        frame_bytes - replies
    }

    fn credit_replies(&mut self, id: u32, bytes: usize) {
        let Some(Owner::Link(owner)) = self.streams.get(&id).map(|stream| stream.owner) else { return };
        if self.links[owner].is_alive() {
            let wave = bytes as u64;
            let header = Header { flags: flag::credit::REPLY, stream: id, wave, ..Header::new(Kind::Credit) };
            self.links.send(owner, &header.to_bytes());
        }
    }

    /// A child has dealt with replies: so many bytes more (and not in all, as other credit says: what an earlier
    /// parent sent it may be acknowledged here).
    pub(super) fn on_reply_credit(&mut self, link: LinkId, header: &Header) -> Result<(), Violation> {
        let Some(stream) = self.streams.get_mut(&header.stream) else { return Ok(()) };
        let Some(child) = stream.child(link) else { return Err(Violation::OutOfPlace(Kind::Credit)) };
        // A child that came here from a lost parent may still acknowledge what that one sent.
        if stream.up[child].stale {
            return Ok(());
        }
        let lane = &mut stream.down[child];
        lane.replies_bytes =
            lane.replies_bytes.saturating_sub(usize::try_from(header.wave).unwrap_or(usize::MAX));
        Ok(())
    }
}
