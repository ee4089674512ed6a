//! What a client may ask of a node that has let it in, and how much may wait for it.
//!
//! A client chooses its windows, and decides when it reads. So the root gives a client from a host
//! no larger window than the session's, holds every client to its window and to the length of a
//! packet, and lets a bounded number of bytes wait for one guest.
use super::Node;
use crate::STREAMS_PER_CLIENT;
use crate::config::{NodeRole, Tuning};
use crate::control::Caller;
use crate::frame::{BODY_BYTES_MAX, HEADER_BYTES, Header, Kind, Violation};
use crate::links::LinkId;
use crate::stream::{NodeStream, StreamOwner};
use sheaf_core::Errno;

impl Node {
    /// Whether a client that entered on a host may open this stream: one of its own numbers, and not
    /// too many if its user is not the session's.
    pub(super) fn check_client(&mut self, link: LinkId, id: u32) -> Result<(), Violation> {
        let link = &self.links[link];
        if !link.caller().is_from_host() {
            return Ok(());
        }
        let from = link.streams_from;
        if !(from..=from + (STREAMS_PER_CLIENT - 1)).contains(&id) {
            return Err(Violation::OutOfPlace(Kind::Open));
        }
        self.guests.open(id, from, link.caller())
    }

    /// The window of a stream that a client opens with a window of `asked` bytes.
    pub(super) fn window_of_client(&self, link: LinkId, asked: u32) -> u32 {
        if self.links[link].caller().is_from_host() {
            asked.min(self.config.tuning.window_bytes)
        } else {
            asked
        }
    }

    /// Closes a stream of a guest for which too much waits here: one more long answer has begun to
    /// come, and what is here for this user, on all its streams, is as long as a packet may be.
    /// The client is told `ENOMEM`. Returns whether the stream was closed.
    ///
    /// A guest that does not read would otherwise decide how much memory the root uses. Costs a
    /// look at all streams.
    pub(super) fn closed_as_crowded(&mut self, id: u32) -> bool {
        let guest_of = |node: &Self, owner: StreamOwner| match owner {
            StreamOwner::Link(link) if node.config.role == NodeRole::Root => {
                match node.links[link].caller() {
                    Caller::User { uid, is_owner: false, .. } => Some((link, *uid)),
                    _ => None,
                }
            }
            _ => None,
        };
        let owner = self.streams.get(&id).map(|stream| stream.owner);
        let Some((link, guest)) = owner.and_then(|owner| guest_of(self, owner)) else {
            return false;
        };
        let theirs = self
            .streams
            .values()
            .filter(|stream| guest_of(self, stream.owner).is_some_and(|(_, uid)| uid == guest));
        let waiting: u64 = theirs.map(|stream| stream.queued_bytes() as u64).sum();
        if waiting < self.config.tuning.packet_bytes_max {
            return false;
        }
        let close = Header { stream: id, tag: Errno::NOMEM.0, ..Header::new(Kind::Close) };
        self.links.send(link, &close.to_bytes());
        self.close_stream(id);
        true
    }
}

impl NodeStream {
    /// Whether the owner, a client, keeps to the stream's window and to the longest packet, now
    /// that a part of `body_bytes` has come, which `received` counts already.
    ///
    /// A sender compares before it adds a frame, so it may be ahead by one.
    pub(super) fn check_sender(
        &mut self,
        begins: bool,
        body_bytes: u64,
        tuning: &Tuning,
    ) -> Result<(), Violation> {
        const FRAME_BYTES_MAX: u64 = (HEADER_BYTES + BODY_BYTES_MAX) as u64;
        let down = &mut self.down;
        down.packet_bytes = body_bytes + if begins { 0 } else { down.packet_bytes };
        if down.packet_bytes > tuning.packet_bytes_max {
            return Err(Violation::Bound("a packet is longer than the session's bound"));
        }
        if down.received - down.consumed.acked > self.window + FRAME_BYTES_MAX {
            return Err(Violation::Bound("more has come than the window lets through"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::app::tests::root;
    use super::*;
    use crate::config::Time;
    use crate::control::{ClientRights, Open, Sync};
    use crate::frame::{self, flag};
    use sheaf_core::RangeSet;

    const NOW: Time = Time(0);
    const PART_BYTES: usize = 1 << 20;

    /// A client of user `uid` from a host; gives its link, and the first of its streams.
    fn guest(root: &mut Node, uid: u32) -> (LinkId, u32) {
        let link = root.add_parent(NOW);
        let base = root.client_base(link);
        let (host, rights) = ("n1".to_owned(), ClientRights::FULL);
        let caller =
            Caller::User { uid, gid: uid, gids: Vec::new(), host, is_owner: false, rights };
        root.set_caller(link, caller);
        root.attach_quiet(link);
        (link, base + 1)
    }

    fn say(root: &mut Node, link: LinkId, header: Header, body: &[u8]) -> Result<(), Violation> {
        root.receive(NOW, link, &frame::encode(header, body))
    }

    fn open(root: &mut Node, link: LinkId, stream: u32, window_bytes: u32) {
        let (members, filter) = (RangeSet::single(0), "null".to_owned());
        let open = Open { members, filter, sync: Sync::DontWait, window_bytes, ..Open::default() };
        let body = postcard::to_stdvec(&open).unwrap();
        say(root, link, Header { stream, ..Header::new(Kind::Open) }, &body).unwrap();
    }

    #[test]
    fn client_is_held_to_its_window_and_gets_no_larger_one() {
        let mut root = root(0);
        let (link, stream) = guest(&mut root, 7);
        open(&mut root, link, stream, u32::MAX);
        let window = u64::from(root.config.tuning.window_bytes);
        assert_eq!(root.streams[&stream].window, window);
        // The leaf is here and consumes nothing, so no credit is given.
        let child = root.links.of_rank(1)[0];
        root.attach(NOW, child);
        let flags = flag::part::FIRST | flag::part::LAST;
        let down = Header { flags, stream, ..Header::new(Kind::Down) };
        let most = window as usize + BODY_BYTES_MAX;
        let mut sent = 0;
        let violation = loop {
            match say(&mut root, link, down, &[0; PART_BYTES]) {
                Ok(()) => sent += PART_BYTES,
                Err(violation) => break violation,
            }
            assert!(sent <= most, "{sent} bytes have come");
        };
        assert_eq!(violation, Violation::Bound("more has come than the window lets through"));
        assert!(sent + 2 * PART_BYTES > most, "only {sent} bytes were let through");
    }

    #[test]
    fn packet_of_a_client_without_an_end_breaks_the_protocol() {
        let mut root = root(0);
        let (link, stream) = guest(&mut root, 7);
        open(&mut root, link, stream, 4096);
        // Whatever comes counts as consumed: credit is given for all of it.
        let child = root.links.of_rank(1)[0];
        root.link_lost(NOW, child, Errno::HOSTDOWN, "it is gone");
        root.tick(NOW + root.config.tuning.adoption_grace * 2);
        let most = root.config.tuning.packet_bytes_max as usize / PART_BYTES;
        for at in 0..=most {
            let flags = if at == 0 { flag::part::FIRST } else { 0 };
            let down = Header { flags, stream, ..Header::new(Kind::Down) };
            let bound = Violation::Bound("a packet is longer than the session's bound");
            let expected = if at < most { Ok(()) } else { Err(bound) };
            assert_eq!(say(&mut root, link, down, &[0; PART_BYTES]), expected, "part {at}");
        }
    }

    #[test]
    fn unread_answers_of_a_guest_end_its_stream_and_no_other() {
        let mut root = root(0);
        root.config.tuning.packet_bytes_max = 4 << 20;
        let child = root.links.of_rank(1)[0];
        root.attach(NOW, child);
        let (link, first) = guest(&mut root, 7);
        let (other_link, other) = guest(&mut root, 8);
        (0..3).for_each(|at| open(&mut root, link, first + at, 4096));
        open(&mut root, other_link, other, 4096);
        let answer = |root: &mut Node, stream: u32| {
            for flags in [flag::part::FIRST, 0, 0, flag::part::LAST] {
                let up = Header { flags, stream, ..Header::new(Kind::Up) };
                say(root, child, up, &[0; PART_BYTES]).unwrap();
            }
        };
        (0..3).for_each(|at| answer(&mut root, first + at));
        answer(&mut root, other);
        let open: Vec<u32> =
            (first..first + 3).chain([other]).filter(|id| root.streams.contains_key(id)).collect();
        // The first window of the first answer is on the link, and waits there.
        assert_eq!(open, [first, first + 1, other]);
        let said: Vec<u8> =
            root.output(link).take().iter().flat_map(|piece| piece.to_vec()).collect();
        let close = Header { stream: first + 2, tag: Errno::NOMEM.0, ..Header::new(Kind::Close) };
        assert!(said.windows(HEADER_BYTES).any(|bytes| bytes == close.to_bytes()));
        root.check().unwrap();
    }
}
