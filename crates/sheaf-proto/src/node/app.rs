//! What the process of a node does with it: a root opens streams and takes results, a leaf takes
//! packets and answers.
use super::{Event, Node, Outgoing, PacketContent};
use crate::config::Time;
use crate::control::{self, Caller, NOTE_BYTES_MAX, Notice, Open, SERVICE_BYTES_MAX, Sync};
use crate::coverage::Coverage;
use crate::frame::{self, CHUNK_BYTES, DownFrame, Header, Kind, flag};
use crate::links::{Link, LinkId};
use crate::stream::{Member, StreamOwner, WaveResult};
use crate::{STREAMS_MAX, STREAMS_PER_CLIENT};
use sheaf_core::{Errno, RangeSet};
use std::time::Duration;

/// Parts of this size and more of a packet that is shared are not copied into their frames.
const REFER_BYTES_MIN: usize = 16 << 10;

impl Node {
    /// The next thing the application or service should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        match self.machines.is_waiting() {
            false => self.events.pop_front(),
            true => self.event_of_no_stream(),
        }
    }

    /// Opens a stream from here to the `service` of `members`. Returns its identifier.
    pub fn open(
        &mut self,
        service: &str,
        members: RangeSet,
        filter: &str,
        params: &[u8],
        sync: Sync,
    ) -> u32 {
        let id = self.free_stream();
        let window_bytes = self.config.tuning.window_bytes;
        let (service, filter, params) = (service.to_owned(), filter.to_owned(), params.to_vec());
        self.streams_opened += 1;
        let number = self.streams_opened;
        let open = Open {
            service,
            number,
            members,
            filter,
            params,
            sync,
            window_bytes,
            ..Open::default()
        };
        let frame = control::control(Header { stream: id, ..Header::new(Kind::Open) }, &open);
        self.open_stream(id, StreamOwner::App, &open, &frame);
        id
    }

    /// An identifier for a stream that is opened here. Each is used again as late as possible: of
    /// the last stream that had it something may still be known further down.
    fn free_stream(&mut self) -> u32 {
        let base = self.config.stream_base;
        for _ in 1..STREAMS_PER_CLIENT {
            let id = self.next_stream;
            let next = id - base + 1;
            self.next_stream = base + if next == STREAMS_PER_CLIENT { 1 } else { next };
            if !self.streams.contains_key(&id) {
                return id;
            }
        }
        // More are open than any node keeps: the one that comes next ends.
        self.close_stream(self.next_stream);
        self.next_stream
    }

    /// At a root: where the identifiers of the client on `link` begin. They are not those of any
    /// other client that is here, nor, as long as there are others, of one that was.
    pub fn client_base(&mut self, link: LinkId) -> u32 {
        const CLIENTS: u32 = u32::MAX / STREAMS_PER_CLIENT;
        for _ in 0..CLIENTS {
            self.clients = self.clients % CLIENTS + 1;
            let ids = self.clients * STREAMS_PER_CLIENT
                ..=self.clients * STREAMS_PER_CLIENT + (STREAMS_PER_CLIENT - 1);
            let held = |other: &Link| other.is_alive() && other.streams_from == *ids.start();
            if !self.links.iter().any(held) && !self.streams.keys().any(|id| ids.contains(id)) {
                break;
            }
        }
        self.links[link].streams_from = self.clients * STREAMS_PER_CLIENT;
        self.links[link].streams_from
    }

    /// The client on `link`, or the host at the other end of a peer link, acts for this caller,
    /// whatever it says itself. Without this, for the user of the session.
    pub fn set_caller(&mut self, link: LinkId, caller: Caller) {
        self.links[link].caller = Some(Box::new(caller));
    }

    /// Sends a packet to every member. With `expect`, a wave of answers is collected for at most
    /// that long. Returns the number of the wave.
    pub fn send<'a>(
        &mut self,
        now: Time,
        id: u32,
        tag: i32,
        payload: impl Into<PacketContent<'a>>,
        expect: Option<Duration>,
    ) -> u64 {
        let mut outgoing = Outgoing::new(tag, payload, expect);
        while !self.send_part(now, id, &mut outgoing) {}
        outgoing.wave().unwrap_or(0)
    }

    /// Sends the next part of a packet; returns whether it was the last. No other packet of the
    /// stream may be begun in between.
    pub fn send_part(&mut self, now: Time, id: u32, outgoing: &mut Outgoing<'_>) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else { return true };
        let first = outgoing.wave.is_none();
        let wave = *outgoing.wave.get_or_insert(stream.up.next_wave);
        let (part, is_last) = outgoing.next_part(CHUNK_BYTES);
        let mut flags = frame::edges(first, is_last);
        let mut deadline = &[][..];
        let ms;
        if let Some(expect) = outgoing.expect {
            flags |= flag::down::EXPECT | if outgoing.once { flag::down::ONCE } else { 0 };
            if first {
                stream.up.next_wave += 1;
                ms = u32::try_from(expect.as_millis()).unwrap_or(u32::MAX).to_le_bytes();
                deadline = &ms;
            }
        }
        let header =
            Header { flags, stream: id, tag: outgoing.tag, wave, ..Header::new(Kind::Down) };
        // Nodes of this process want whole frames; and written to many links, what is copied once
        // is read from a cache.
        let is_for_one = stream.members().len() == 1;
        let outside = |member: &Member| !self.links[member.link].is_inside();
        let frame: DownFrame = match part {
            PacketContent::Shared(part)
                if part.len() >= REFER_BYTES_MIN
                    && is_for_one
                    && stream.members().iter().all(outside) =>
            {
                DownFrame::parted(self.rooms.head(header, deadline, part.len()), part)
            }
            // A packet that goes out whole needs memory once.
            part if first && is_last => {
                frame::encode_parts(header, &[deadline, part.as_ref()]).into()
            }
            part => self.rooms.encode(header, &[deadline, part.as_ref()]).into(),
        };
        // The application is the owner here, so what it sends counts as received from the owner.
        stream.down.received += frame.len() as u64;
        stream.forward(&mut self.links, &frame);
        let joining = stream.down.joining;
        if let Some(expect) = outgoing.expect.filter(|_| first) {
            // The wave just numbered is at most as far ahead as the application let it be.
            let opened = self.expect_wave(now, id, wave, expect, outgoing.once);
            debug_assert!(opened.is_ok(), "the application has too many waves open");
        }
        if joining {
            self.open_at_joining(id);
        }
        is_last
    }

    /// Whether any stream is open here.
    #[must_use]
    pub fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Whether any stream is open here that is not for this service.
    #[must_use]
    pub fn has_streams_except(&self, service: &str) -> bool {
        let mut streams = self.streams.values();
        streams.any(|stream| control::open_of(&stream.down.open).service != service)
    }

    /// Whether the application may send (its packets do not pile up) and start a wave on `id`.
    #[must_use]
    pub fn has_room(&self, id: u32) -> bool {
        self.streams.get(&id).is_none_or(|stream| stream.has_room() && stream.has_room_for_waves())
    }

    /// Whether a result of the stream is there to be taken.
    #[must_use]
    pub fn has_result(&self, id: u32) -> bool {
        self.streams.get(&id).is_none_or(|stream| !stream.up.inbox.is_empty())
    }

    /// Whether any member of a stream may still send something.
    #[must_use]
    pub fn has_members(&self, id: u32) -> bool {
        self.streams.get(&id).is_some_and(|stream| stream.members().any_left())
    }

    /// Takes the oldest result of a stream.
    pub fn take(&mut self, id: u32) -> Option<WaveResult> {
        let stream = self.streams.get_mut(&id)?;
        let (result, from) = stream.up.inbox.pop_front()?;
        // Only now, so that an application that does not take its results holds the senders back.
        stream.give_credit(&from, &mut self.links);
        stream.recycle(from);
        Some(result)
    }

    /// Streams that have had results since this was last asked.
    pub fn take_fresh(&mut self, into: &mut Vec<u32>) {
        for id in &self.fresh {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.up.fresh = false;
            }
        }
        into.append(&mut self.fresh);
    }

    /// Ends the wave with what there is (`u64::MAX`: every open wave of the stream).
    pub fn cancel(&mut self, now: Time, id: u32, wave: u64) {
        self.cancel_here(now, id, wave);
    }

    /// Closes a stream; results not taken are dropped.
    pub fn close(&mut self, id: u32) {
        self.close_stream(id);
        if self.streams.is_empty() {
            self.rooms.clear();
        }
    }

    /// At a leaf: answers a wave.
    pub fn reply(&mut self, id: u32, wave: u64, tag: i32, payload: &[u8]) {
        let flags = flag::up::FULL | flag::up::FINAL | flag::up::RAW;
        let header = Header { flags, stream: id, tag, wave, ..Header::new(Kind::Up) };
        self.emit(header, None, Some(payload));
    }

    fn emit(&mut self, header: Header, cover: Option<&Coverage>, payload: Option<&[u8]>) {
        if let Some(stream) = self.streams.get_mut(&header.stream) {
            stream.emit(header, cover, payload, Vec::new(), &mut self.links);
        }
    }

    /// At a leaf: answers a wave with an error.
    pub fn fail(&mut self, id: u32, wave: u64, errno: Errno) {
        let mut cover = Coverage::default();
        cover.fail(errno, &self.config.leaves);
        let header = Header { flags: flag::up::FINAL, stream: id, wave, ..Header::new(Kind::Up) };
        self.emit(header, Some(&cover), None);
    }

    /// At a leaf: sends a packet nobody asked for; the n-th of every member form a wave.
    pub fn post(&mut self, id: u32, tag: i32, payload: &[u8]) -> u64 {
        let Some(stream) = self.streams.get_mut(&id) else { return 0 };
        let wave = stream.up.next_wave;
        stream.up.next_wave += 1;
        if stream.add_to_run(wave, tag, payload) {
            // `next_dirty` seals the run, so that all packets posted before the next write share a
            // frame.
            if stream.up.run.count == 1 {
                self.runs.push(id);
                if let StreamOwner::Link(link) = stream.owner {
                    self.links.mark(link);
                }
            } else if stream.up.run.items.len() + payload.len() > CHUNK_BYTES {
                stream.seal_run(&mut self.links);
            }
            return wave;
        }
        if payload.len() > CHUNK_BYTES {
            self.reply(id, wave, tag, payload);
            return wave;
        }
        let flags =
            flag::up::FULL | flag::up::FINAL | flag::up::RAW | flag::part::FIRST | flag::part::LAST;
        let header = Header { flags, stream: id, tag, wave, ..Header::new(Kind::Up) };
        stream.send_up(header, payload, &[], &mut self.links);
        wave
    }

    /// At a leaf: [`Node::post`] of packets of `width` bytes that lie behind one another, as far as
    /// they make a run of waves; gives how many were posted.
    pub fn post_run(&mut self, id: u32, tag: i32, packets: &[u8], width: usize) -> usize {
        let Some(stream) = self.streams.get_mut(&id) else { return 0 };
        if stream.up.run.tag != tag {
            stream.seal_run(&mut self.links);
        }
        let mut count = 0;
        for packet in packets.chunks_exact(width.max(1)) {
            if !stream.add_to_run(stream.up.next_wave, tag, packet) {
                break;
            }
            stream.up.next_wave += 1;
            count += 1;
            if stream.up.run.items.len() + width > CHUNK_BYTES {
                stream.seal_run(&mut self.links);
            }
        }
        if stream.up.run.count > 0 && !self.runs.contains(&id) {
            self.runs.push(id);
            if let StreamOwner::Link(link) = stream.owner {
                self.links.mark(link);
            }
        }
        count
    }

    /// At a leaf: numbers its next unasked packet `wave`, and answers the waves in between with
    /// nothing (a filter's "adds nothing" would still be a packet to `null`).
    pub fn skip_to(&mut self, id: u32, wave: u64) {
        let Some(next) = self.streams.get(&id).map(|stream| stream.up.next_wave) else { return };
        // Each skipped wave costs a frame, and no node opens waves further ahead than this.
        for wave in next..wave.min(next + crate::WAVES_OPEN_MAX) {
            self.fail(id, wave, Errno::CANCELED);
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.up.next_wave = wave + 1;
            }
        }
    }

    /// Bytes that wait to be written to a link, for credit, or for more to travel with.
    #[must_use]
    pub fn unsent_bytes(&self) -> u64 {
        let links = self.links.iter().filter(|link| link.is_alive()).map(|link| link.out().len());
        let held = self
            .streams
            .values()
            .flat_map(|stream| &stream.up.out.held)
            .map(|held| held.frame.len());
        let runs = self.streams.values().map(|stream| stream.up.run.items.len());
        links.chain(held).chain(runs).map(|bytes| bytes as u64).sum()
    }

    /// At a leaf: takes no more part in a stream.
    pub fn leave_stream(&mut self, id: u32) {
        // Bounds the memory. A departure that is forgotten is not repeated to a later parent.
        if self.recovery.departed.len() >= STREAMS_MAX {
            self.recovery.departed.clear();
        }
        self.recovery.departed.insert(id);
        self.repeat_departure(id);
    }

    /// Tells the parent that this leaf has left a stream; each parent is told, and whenever the
    /// stream is opened here again.
    pub(super) fn repeat_departure(&mut self, id: u32) {
        if !self.recovery.departed.contains(&id) {
            return;
        }
        let header = Header { stream: id, tag: Errno::CANCELED.0, ..Header::new(Kind::Close) };
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.send_up(header, &[], &[], &mut self.links);
        }
    }

    /// At a leaf: asks the process of the root for a stream for this service, with a word for its
    /// other half there. What is longer than may be is not asked.
    pub fn want_stream(&mut self, service: &str, note: &[u8]) {
        let Some(leaf) = self.config.leaves.first() else { return };
        if service.len() <= SERVICE_BYTES_MAX && note.len() <= NOTE_BYTES_MAX {
            let wants = Notice::Wants { leaf, service: service.to_owned(), note: note.to_vec() };
            self.tell_parents(&control::control(Header::new(Kind::Notice), &wants));
        }
    }

    /// Whether the session has ended, or this node has left it, by the word of a node. A node that
    /// has ended without that has lost a session which may go on.
    #[must_use]
    pub fn is_dismissed(&self) -> bool {
        self.recovery.dismissed
    }

    /// At a leaf: ends its part in the session by itself. Nobody waits for it to come back.
    pub fn leave_session(&mut self) {
        let left = Notice::Left { rank: self.config.rank, leaves: self.config.leaves.clone() };
        self.tell_parents(&control::control(Header::new(Kind::Notice), &left));
        self.recovery.dismissed = true;
        self.events.push_back(Event::ParentLost);
    }

    /// At a leaf: whether packets towards the root are held back for want of credit.
    #[must_use]
    pub fn is_held(&self, id: u32) -> bool {
        self.streams.get(&id).is_some_and(|stream| !stream.up.out.held.is_empty())
    }

    /// At a leaf: `frame_bytes` of a packet's part have been dealt with; more may come.
    pub fn consumed(&mut self, id: u32, frame_bytes: usize) {
        if let Some(stream) = self.streams.get_mut(&id) {
            let frame_bytes = stream.consumed_replies(frame_bytes, &mut self.links);
            // Packets of a stream that was opened anew meanwhile count no more.
            let total = (stream.down.consumed.done + frame_bytes as u64).min(stream.down.received);
            stream.consumed_down(total, &mut self.links);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::{Child, NodeConfig, NodeRole, Tuning};
    use crate::control::ClientRights;
    use crate::filter::{ModuleId, Registry};
    use crate::frame::Violation;
    use bytes::Bytes;

    const NOW: Time = Time(0);

    pub(in super::super) fn root(stream_base: u32) -> Node {
        let leaves = RangeSet::single(0);
        let config = NodeConfig {
            rank: 0,
            role: NodeRole::Root,
            depth: 0,
            leaves: leaves.clone(),
            children: vec![Child { rank: 1, leaves }],
            stream_base,
            place: Default::default(),
            tuning: Tuning::default(),
        };
        Node::new(config, Registry::with_builtins(), NOW)
    }

    /// A leaf at which the root of [`root`] has opened a stream; gives its number.
    fn leaf_of(root: &mut Node) -> (Node, u32) {
        let leaves = RangeSet::single(0);
        let config = NodeConfig {
            rank: 1,
            role: NodeRole::Leaf,
            depth: 1,
            leaves,
            children: Vec::new(),
            ..root.config().clone()
        };
        let mut leaf = Node::new(config, Registry::with_builtins(), NOW);
        let up = leaf.add_parent(NOW);
        let id = root.open("", RangeSet::single(0), "sum", b"%d", Sync::WaitForAll);
        while let Some(link) = root.next_dirty() {
            for frame in root.output(link).take() {
                leaf.receive(NOW, up, &frame).unwrap();
            }
        }
        (leaf, id)
    }

    #[test]
    fn packets_that_wait_for_others_count_as_unsent() {
        let packet = crate::packet::pack(&[crate::packet::PacketValue::I32(1)]).unwrap();
        let mut root = root(0);
        let (mut leaf, id) = leaf_of(&mut root);
        while let Some(link) = leaf.next_dirty() {
            leaf.output(link).take();
        }
        assert_eq!(leaf.unsent_bytes(), 0);
        leaf.post(id, 1, &packet);
        leaf.post(id, 1, &packet);
        assert_eq!(leaf.unsent_bytes(), 2 * packet.len() as u64, "they wait for a third one");
        let many = packet.repeat(3);
        assert_eq!(leaf.post_run(id, 1, &many, packet.len()), 3);
        assert_eq!(leaf.unsent_bytes(), 5 * packet.len() as u64);
        let link = leaf.next_dirty().expect("the link has something to write");
        assert!(leaf.unsent_bytes() > 5 * packet.len() as u64, "their frame waits for the link");
        for frame in leaf.output(link).take() {
            root.receive(NOW, LinkId::new(0), &frame).unwrap();
        }
        assert_eq!(leaf.unsent_bytes(), 0);
        let sums = std::iter::from_fn(|| root.take(id)).map(|result| (result.wave, result.payload));
        let sums: Vec<_> = sums.collect();
        assert_eq!(
            sums,
            (0..5).map(|wave| (wave, Some(packet.clone().into()))).collect::<Vec<_>>()
        );
    }

    #[test]
    fn shared_long_packet_comes_whole_and_is_not_copied() {
        let content: Bytes =
            (0..3 * CHUNK_BYTES + 100).map(|at| (at % 251) as u8).collect::<Vec<_>>().into();
        let within = content.as_ptr_range();
        for expect in [None, Some(Duration::from_secs(1))] {
            let mut root = root(0);
            let (mut leaf, id) = leaf_of(&mut root);
            while leaf.poll_event().is_some() {}
            let mut outgoing = Outgoing::new(7, &content, expect);
            while !root.send_part(NOW, id, &mut outgoing) {}
            let (mut got, mut referred, up) = (Vec::new(), 0, LinkId::new(0));
            while let Some(link) = root.next_dirty() {
                for piece in root.output(link).take() {
                    referred += if within.contains(&piece.as_ptr()) { piece.len() } else { 0 };
                    leaf.receive(NOW, up, &piece).unwrap();
                }
                root.refill(link);
            }
            while let Some(event) = leaf.poll_event() {
                let Event::Packet(packet) = event else { continue };
                assert_eq!((packet.first, packet.tag), (got.is_empty(), 7));
                got.extend_from_slice(&packet.payload);
                assert_eq!(packet.last, got.len() == content.len());
                leaf.consumed(id, packet.frame_bytes);
            }
            assert_eq!(got, content);
            assert_eq!(referred, 3 * CHUNK_BYTES, "what is short is copied");
            while let Some(link) = leaf.next_dirty() {
                for piece in leaf.output(link).take() {
                    root.receive(NOW, LinkId::new(0), &piece).unwrap();
                }
            }
            assert_eq!(root.check(), Ok(()));
        }
    }

    #[test]
    fn many_packets_are_numbered_as_one_by_one() {
        let packet =
            |value| crate::packet::pack(&[crate::packet::PacketValue::I32(value)]).unwrap();
        let mut root = root(0);
        let (mut leaf, id) = leaf_of(&mut root);
        let width = packet(0).len();
        // More than one frame holds, and another tag in between.
        let count = 2 * CHUNK_BYTES / width;
        let many: Vec<u8> = (0..count).flat_map(|at| packet(at as i32)).collect();
        assert_eq!(leaf.post_run(id, 1, &many, width), count);
        assert_eq!(leaf.post(id, 2, &packet(-1)), count as u64);
        assert_eq!(leaf.post_run(id, 1, &many[..2 * width], width), 2);
        assert_eq!(leaf.post_run(id, 1, &many[..3 * width], width + 1), 0, "of another length");
        while let Some(link) = leaf.next_dirty() {
            for frame in leaf.output(link).take() {
                root.receive(NOW, LinkId::new(0), &frame).unwrap();
            }
        }
        for at in 0..count + 3 {
            let result = root.take(id).unwrap();
            let value = if at < count { at as i32 } else { [-1, 0, 1][at - count] };
            assert_eq!((result.wave, result.payload), (at as u64, Some(packet(value).into())));
            assert_eq!(result.tag, if at == count { 2 } else { 1 });
        }
        assert!(root.take(id).is_none());
    }

    #[test]
    fn identifiers_begin_again_and_leave_out_what_is_open() {
        let base = STREAMS_PER_CLIENT * (u32::MAX / STREAMS_PER_CLIENT);
        let mut root = root(base);
        let open =
            |root: &mut Node| root.open("", RangeSet::single(0), "sum", b"", Sync::WaitForAll);
        let kept = open(&mut root);
        for _ in 2..STREAMS_PER_CLIENT {
            let id = open(&mut root);
            root.close(id);
            root.output(LinkId::new(0)).take();
        }
        assert_eq!((kept, open(&mut root)), (base + 1, base + 2));
    }

    #[test]
    fn client_of_another_user_changes_its_own_streams_only() {
        let mut root = root(0);
        let guest = root.add_parent(NOW);
        let base = root.client_base(guest);
        let (uid, host) = (1001, "n1".to_owned());
        let rights = ClientRights::FULL;
        let caller = Caller::User { uid, gid: 7, gids: Vec::new(), host, is_owner: false, rights };
        root.set_caller(guest, caller.clone());
        root.attach_quiet(guest);
        let mut say = |kind: Kind, stream: u32, body: &[u8]| {
            let header = Header { stream, ..Header::new(kind) };
            root.receive(NOW, guest, &frame::encode(header, body))
        };
        for kind in [Kind::Release, Kind::Go, Kind::Take, Kind::Verdict, Kind::Farewell] {
            assert_eq!(say(kind, 0, &[]), Err(Violation::OutOfPlace(kind)));
        }
        // Code is not taken, not even looked at.
        assert_eq!(say(Kind::Module, 0, b"anything"), Ok(()));
        let open = |filter: &str| Open {
            members: RangeSet::single(0),
            filter: filter.to_owned(),
            ..Open::default()
        };
        let body = postcard::to_stdvec(&open("sum")).unwrap();
        assert_eq!(say(Kind::Open, base - 1, &body), Err(Violation::OutOfPlace(Kind::Open)));
        assert_eq!(say(Kind::Open, base + 1, &body), Ok(()));
        assert_eq!(root.streams[&(base + 1)].owner, StreamOwner::Link(guest));
        // Code that is there is not for it.
        let theirs = Open { caller, ..open(&ModuleId([7; 32]).filter("f")) };
        let refused = root.instantiate(base + 2, &theirs).map(drop).unwrap_err();
        assert_eq!(refused.errno, Errno::PERM);
    }

    #[test]
    fn client_on_a_host_brings_no_code_and_has_its_own_streams() {
        let mut root = root(0);
        for rights in [ClientRights::default(), ClientRights::FULL] {
            let client = root.add_parent(NOW);
            let base = root.client_base(client);
            let host = "n1".to_owned();
            let caller =
                Caller::User { uid: 7, gid: 7, gids: Vec::new(), host, is_owner: true, rights };
            root.set_caller(client, caller.clone());
            root.attach_quiet(client);
            let mut say = |kind: Kind, stream: u32, body: &[u8]| {
                let header = Header { stream, ..Header::new(kind) };
                root.receive(NOW, client, &frame::encode(header, body))
            };
            assert_eq!(say(Kind::Module, 0, b"anything"), Ok(()));
            // It would have hosts cut off.
            assert_eq!(say(Kind::Garbled, 0, b"anything"), Ok(()));
            let open = |filter: &str| Open {
                members: RangeSet::single(0),
                filter: filter.to_owned(),
                ..Open::default()
            };
            let body = postcard::to_stdvec(&open("sum")).unwrap();
            assert_eq!(say(Kind::Open, base - 1, &body), Err(Violation::OutOfPlace(Kind::Open)));
            assert_eq!(say(Kind::Open, base + 1, &body), Ok(()));
            let theirs = Open { caller, ..open(&ModuleId([7; 32]).filter("f")) };
            let refused = root.instantiate(base + 2, &theirs).map(drop).unwrap_err();
            assert_eq!(refused.errno, Errno::PERM);
        }
    }

    #[test]
    fn client_identifiers_are_not_given_again_soon() {
        let mut root = root(0);
        let stays = root.add_parent(NOW);
        let base = root.client_base(stays);
        let mut seen = Vec::new();
        for _ in 0..2 * (u32::MAX / STREAMS_PER_CLIENT) {
            let link = root.add_parent(NOW);
            seen.push(root.client_base(link));
            root.link_lost(NOW, link, Errno::CONNRESET, "it has left");
            while root.next_dead().is_some() {}
        }
        assert!(!seen.contains(&base));
        let rounds = seen.len() / 2 - 1;
        assert!(seen.windows(rounds).all(|few| few[1..].iter().all(|other| *other != few[0])));
    }
}
