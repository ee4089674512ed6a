//! Towards the root: contributions are folded, waves are passed on.
use super::Node;
use crate::control::Notice;
use crate::filter::{Emit, FilterError, Replies};
use crate::frame::{CHUNK_BYTES, HEADER_BYTES, Header, Kind, Violation, flag};
use crate::links::LinkId;
use crate::stream::{Owner, WaveResult};
use crate::wave::{After, Arrival, Contribution, Coverage};
use crate::{Role, Time};
use bytes::Bytes;
use sheaf_core::Errno;
use std::sync::Arc;

/// The header of the whole upward frame of stream `id` at the front of `bytes`, if one is there.
#[inline]
fn next_of(id: u32, bytes: &[u8]) -> Result<Option<Header>, Violation> {
    let header = Header::parse(bytes)?;
    Ok(header.filter(|next| next.kind == Kind::Up && next.stream == id && bytes.len() >= next.frame_len()))
}

impl Node {
    /// Contributions of one stream that arrived behind one another, from `chunk[at..]` on: the
    /// stream is looked up once for as many as do not complete a wave. Returns where they end.
    pub(super) fn on_up_run(
        &mut self,
        now: Time,
        link: LinkId,
        first: Header,
        chunk: &[u8],
        mut at: usize,
    ) -> Result<usize, Violation> {
        let (id, mut header) = (first.stream, first);
        'found: loop {
            self.make_room(id, header.wave);
            let Some(stream) = self.streams.get_mut(&id) else { return Ok(at + header.frame_len()) };
            let Some(child) = stream.child(link) else { return Err(Violation::OutOfPlace(Kind::Up)) };
            let (after, complaint) = loop {
                self.links[link].counters.frames_in += 1;
                if stream.lanes[child].stale {
                    return Ok(at + header.frame_len());
                }
                let body = &chunk[at + HEADER_BYTES..at + header.frame_len()];
                at += header.frame_len();
                if !header.has(flag::part::FIRST | flag::part::LAST)
                    || stream.lanes[child].assembling.is_some()
                {
                    self.on_up_part(now, child, &header, body)?;
                    return Ok(at);
                }
                let mut complaint = None;
                let after =
                    stream.contribute(header.wave, &Arrival::new(child, &header, body), &mut complaint)?;
                if after != After::Wait || complaint.is_some() {
                    break (after, complaint);
                }
                match next_of(id, &chunk[at..])? {
                    Some(next) => header = next,
                    None => return Ok(at),
                }
                if stream.is_crowded(header.wave) {
                    continue 'found;
                }
            };
            self.contributed(now, child, &header, header.cost(), after, complaint);
            match next_of(id, &chunk[at..])? {
                Some(next) => header = next,
                None => return Ok(at),
            }
        }
    }

    /// Packets of waves that follow one another.
    pub(super) fn on_run(
        &mut self,
        now: Time,
        link: LinkId,
        header: &Header,
        items: &[u8],
    ) -> Result<(), Violation> {
        let id = header.stream;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let Some(child) = stream.child(link) else { return Err(Violation::OutOfPlace(Kind::Run)) };
        if stream.lanes[child].stale {
            return Ok(());
        }
        let width = stream.uniform.map(|uniform| uniform.item_bytes);
        let width =
            width.filter(|width| items.len().is_multiple_of(*width)).ok_or(Violation::Body(Kind::Run))?;
        stream.consumed_up(child, HEADER_BYTES, &mut self.links);
        let cost = stream.run_cost(1);
        if !stream.children[child].live {
            let cost = stream.run_cost(items.len() / width);
            stream.consumed_up(child, cost, &mut self.links);
            return Ok(());
        }
        let mut taken = 0;
        if let Some(steady) = stream.steady() {
            taken = steady.absorb(child, header.wave, header.tag, items);
            steady.wanted |= header.has(flag::up::ACK_WANTED);
            self.pass_on_steady(id);
        }
        for (at, item) in items.chunks_exact(width).enumerate().skip(taken) {
            let one = Header { wave: header.wave + at as u64, ..*header };
            self.make_room(id, one.wave);
            let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
            stream.unsteady();
            let arrival = Arrival { child, flags: header.flags, tag: header.tag, bytes: cost, body: item };
            let mut complaint = None;
            let after = stream.contribute(one.wave, &arrival, &mut complaint)?;
            self.contributed(now, child, &one, cost, after, complaint);
        }
        Ok(())
    }

    /// Passes on the waves without slots that are complete.
    fn pass_on_steady(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some(mut steady) = stream.steady.take() else { return };
        if let Some(complete) = steady.complete() {
            let (first, count) = (complete.first, (complete.items.len() / steady.item_bytes()) as u64);
            match stream.owner {
                Owner::Link(_) => {
                    stream.send_runs(&complete, &steady, &mut self.links);
                }
                Owner::App => {
                    stream.deliver_run(&complete, steady.item_bytes());
                    if !std::mem::replace(&mut stream.fresh, true) {
                        self.fresh.push(id);
                    }
                }
            }
            steady.retire(count);
            let wanted = std::mem::take(&mut steady.wanted);
            stream.steady = Some(steady);
            if self.config.role == Role::Root {
                self.note_run_over(id, first, count, wanted);
            }
            return;
        }
        stream.steady = Some(steady);
    }

    /// Ends the oldest open waves of a stream that waits for nobody, if `wave` has no place beside them:
    /// who has not contributed by now is late.
    fn make_room(&mut self, id: u32, wave: u64) {
        while let Some(stream) = self.streams.get_mut(&id)
            && stream.is_crowded(wave)
        {
            let oldest = stream.waves.base();
            // Nobody here may have begun it so far.
            if stream.waves.open(oldest, &stream.children).is_err() {
                return;
            }
            self.finish_wave(id, oldest, true, Errno::TIMEDOUT);
        }
    }

    /// The tree changes: waves that had no slots are given some.
    pub(super) fn unsettle(&mut self) {
        self.streams.values_mut().for_each(|stream| stream.unsteady());
    }

    /// A part of a long packet: parts are kept until the last has come. The bytes of all but the
    /// last are consumed at once (the packet's own bound holds them), so that a packet may be
    /// larger than the window.
    fn on_up_part(&mut self, now: Time, child: usize, header: &Header, body: &[u8]) -> Result<(), Violation> {
        let bound = self.config.tuning.packet_bytes_max;
        let Some(stream) = self.streams.get_mut(&header.stream) else { return Ok(()) };
        let lane = &mut stream.lanes[child];
        if header.has(flag::part::FIRST) {
            lane.assembly.clear();
            lane.assembling = Some(header.wave);
        }
        if lane.assembling != Some(header.wave) {
            return Err(Violation::Bound("a part of a packet that did not begin"));
        }
        let assembly = &mut lane.assembly;
        if (assembly.len() + body.len()) as u64 > bound {
            return Err(Violation::Bound("a packet is longer than the session's bound"));
        }
        assembly.extend_from_slice(body);
        if header.has(flag::part::LAST) {
            let whole = std::mem::take(assembly);
            lane.assembling = None;
            self.make_room(header.stream, header.wave);
            let Some(stream) = self.streams.get_mut(&header.stream) else { return Ok(()) };
            let mut complaint = None;
            let arrival = Arrival::new(child, header, &whole);
            let after = stream.contribute(header.wave, &arrival, &mut complaint)?;
            self.contributed(now, child, header, header.cost(), after, complaint);
            return Ok(());
        }
        stream.consumed_up(child, header.cost(), &mut self.links);
        Ok(())
    }

    /// What follows from a contribution.
    fn contributed(
        &mut self,
        now: Time,
        child: usize,
        header: &Header,
        cost: usize,
        after: After,
        complaint: Option<FilterError>,
    ) {
        let (id, wave) = (header.stream, header.wave);
        if let Some(error) = complaint {
            self.complain(id, wave, &error);
        }
        match after {
            After::Wait => {}
            After::Complete => self.finish_wave(id, wave, true, Errno::CANCELED),
            After::PassOn => self.finish_wave(id, wave, false, Errno::CANCELED),
            After::Drop => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.consumed_up(child, cost, &mut self.links);
                }
            }
            After::Later(delay) => {
                let at = now + delay;
                let Some(stream) = self.streams.get_mut(&id) else { return };
                if let Some(slot) = stream.waves.get(wave) {
                    slot.flush_at = Some(at);
                    stream.due.insert(wave);
                }
                stream.timer = Some(stream.timer.map_or(at, |timer| timer.min(at)));
                self.stream_timer = Some(self.stream_timer.map_or(at, |timer| timer.min(at)));
            }
        }
    }

    /// Passes on what a wave holds; with `last` the wave is over and members that have not
    /// answered are silent because of `late`.
    pub(super) fn finish_wave(&mut self, id: u32, wave: u64, last: bool, late: Errno) {
        self.pass_on_before(id, wave);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some(slot) = stream.waves.get(wave) else { return };
        if !last && !slot.has_news() {
            return;
        }
        let emit = if stream.owner == Owner::App { Emit::Result } else { Emit::Partial };
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let mut replies = Replies::default();
        let (cover, loaded, complaint) =
            slot.flush(&stream.children, last, late, emit, &mut scratch, &mut replies);
        let tag = slot.tag;
        let wanted = std::mem::take(&mut slot.wanted);
        let counted = (wanted != 0 && !last && self.config.role == Role::Root).then(|| slot.told.clone());
        slot.flush_at = None;
        let mut from = Vec::new();
        if last {
            from = std::mem::take(&mut slot.from);
            stream.waves.retire(wave);
        } else {
            slot.take_credit(&mut from);
        }
        let payload = loaded.then_some(&scratch[..]);
        match stream.owner {
            Owner::App => {
                let coverage = cover
                    .unwrap_or_else(|| Coverage { ok: Arc::clone(&stream.members), ..Coverage::default() });
                let payload = payload.map(Bytes::copy_from_slice);
                stream.inbox.push_back((WaveResult { wave, tag, complete: last, coverage, payload }, from));
                if !std::mem::replace(&mut stream.fresh, true) {
                    self.fresh.push(id);
                }
            }
            Owner::Link(_) => {
                let mut flags = wanted | if last { flag::up::FINAL } else { 0 };
                if cover.is_none() {
                    flags |= flag::up::FULL;
                }
                let header = Header { flags, stream: id, tag, wave, ..Header::new(Kind::Up) };
                self.emit(header, cover.as_ref(), payload, from);
            }
        }
        if self.config.role == Role::Root {
            self.note_over(id, wave, last, wanted != 0, counted);
        }
        if !replies.is_empty() {
            self.send_replies(id, wave, replies);
        }
        if let Some(error) = complaint {
            self.complain(id, wave, &error);
        }
        self.scratch = scratch;
        self.scratch.shrink_to(1 << 20);
    }

    /// Ends the waves that nobody will begin: all who take part joined later, and whoever joins from now on
    /// does so later still. To be called when somebody joins, goes on or is lost; without it the owner
    /// would wait for this node in them.
    pub(super) fn close_gaps(&mut self, id: u32) {
        while let Some(stream) = self.streams.get_mut(&id)
            && let Some(wave) = stream.gap()
            && let Ok(Some(_)) = stream.waves.open(wave, &stream.children)
        {
            self.finish_wave(id, wave, true, Errno::HOSTDOWN);
        }
    }

    /// What has come late of earlier waves goes on before this one: packets of one sender stay in order.
    fn pass_on_before(&mut self, id: u32, wave: u64) {
        while let Some(stream) = self.streams.get_mut(&id)
            && let Some(&first) = stream.due.first()
            && first <= wave
        {
            stream.due.remove(&first);
            if first < wave {
                self.finish_wave(id, first, false, Errno::TIMEDOUT);
            }
        }
    }

    /// Frames a contribution for the owner, in parts if it is long.
    pub(super) fn emit(
        &mut self,
        header: Header,
        cover: Option<&Coverage>,
        payload: Option<&[u8]>,
        from: Vec<Contribution>,
    ) {
        let id = header.stream;
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let mut header = header;
        if payload.is_none() {
            header.flags |= flag::up::EMPTY;
        }
        let payload = payload.unwrap_or_default();
        let joined;
        let body = match cover {
            None => payload,
            Some(cover) => {
                let mut bytes = Vec::with_capacity(payload.len() + 16);
                cover.encode(&mut bytes);
                bytes.extend_from_slice(payload);
                joined = bytes;
                &joined[..]
            }
        };
        if body.len() <= CHUNK_BYTES {
            header.flags |= flag::part::FIRST | flag::part::LAST;
            stream.send_up(header, body, &from, &mut self.links);
        } else {
            let parts = body.chunks(CHUNK_BYTES);
            let count = parts.len();
            for (at, part) in parts.enumerate() {
                let edges = if at == 0 { flag::part::FIRST } else { 0 }
                    | if at + 1 == count { flag::part::LAST } else { 0 };
                let part_header = Header { flags: header.flags | edges, ..header };
                let credit = if at + 1 == count { &from[..] } else { &[] };
                stream.send_up(part_header, part, credit, &mut self.links);
            }
        }
        // The list of contributions goes back to the pool with the next wave's slot.
        stream.waves.recycle(from);
    }

    pub(super) fn complain(&mut self, stream: u32, wave: u64, error: &FilterError) {
        let message = error.message.clone();
        let notice = Notice::FilterFailed { by: self.config.rank, stream, wave, message };
        self.notice(Header::new(Kind::Notice), notice);
    }

    /// A child is gone, and with it its part in every stream.
    pub(super) fn child_lost(&mut self, link: LinkId, errno: Errno) {
        let theirs = self.streams.iter().filter_map(|(&id, stream)| Some((id, stream.child(link)?)));
        let mut theirs: Vec<(u32, usize)> = theirs.collect();
        theirs.sort_unstable();
        for (id, child) in theirs {
            self.child_left(id, child, errno);
        }
    }

    /// A child takes no more part in a stream: it is given up in every open wave, and waves that
    /// waited only for it end.
    pub(super) fn child_left(&mut self, id: u32, child: usize, errno: Errno) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.unsteady();
        if !std::mem::replace(&mut stream.children[child].live, false) {
            return;
        }
        stream.children[child].lost = errno;
        stream.drop_child(child);
        stream.acknowledge_down(&mut self.links);
        let numbers: Vec<u64> = stream.waves.numbers().collect();
        let given_up = |wave: &u64| stream.waves.get(*wave).is_some_and(|slot| slot.give_up_on(child));
        let complete: Vec<u64> = numbers.into_iter().filter(given_up).collect();
        for wave in complete {
            self.finish_wave(id, wave, true, errno);
        }
        self.close_gaps(id);
        self.leave(id);
    }

    /// Tells the owner, once, that nobody is left here on a stream. Without that it would wait for
    /// this node in waves that nobody asked for, and so nobody here begins.
    pub(super) fn leave(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let here = self.config.role == Role::Leaf || stream.owner == Owner::App || stream.has_members();
        if here || std::mem::replace(&mut stream.left, true) {
            return;
        }
        let mut causes = stream.children.iter().map(|member| member.lost);
        let first = causes.next().unwrap_or(Errno::HOSTDOWN);
        let errno = if causes.all(|errno| errno == first) { first } else { Errno::HOSTDOWN };
        let header = Header { stream: id, tag: errno.0, ..Header::new(Kind::Close) };
        stream.send_up(header, &[], &[], &mut self.links);
    }

    /// Ends or flushes the waves whose time has come.
    pub(super) fn expire_waves(&mut self, now: Time) {
        let (mut due, mut given_up) = (Vec::new(), Vec::new());
        for (&id, stream) in &mut self.streams {
            if stream.timer.is_none_or(|timer| timer > now) {
                continue;
            }
            let numbers: Vec<u64> = stream.waves.numbers().collect();
            for wave in numbers {
                let Some(slot) = stream.waves.get(wave) else { continue };
                if slot.deadline.is_some_and(|deadline| deadline <= now) {
                    if slot.once && !slot.cancelled {
                        given_up.extend(slot.late().into_iter().map(|child| (id, child)));
                    }
                    let late = if slot.cancelled { Errno::CANCELED } else { Errno::TIMEDOUT };
                    due.push((id, wave, true, late));
                } else if slot.flush_at.is_some_and(|at| at <= now) && slot.has_news() {
                    due.push((id, wave, false, Errno::TIMEDOUT));
                }
            }
        }
        due.sort_unstable_by_key(|&(id, wave, ..)| (id, wave));
        for (id, wave, last, late) in due {
            self.finish_wave(id, wave, last, late);
        }
        given_up.sort_unstable();
        for (id, child) in given_up {
            self.child_left(id, child, Errno::TIMEDOUT);
        }
        for stream in
            self.streams.values_mut().filter(|stream| stream.timer.is_some_and(|timer| timer <= now))
        {
            stream.timer = stream.waves.next_timer();
        }
        self.stream_timer = self.streams.values().filter_map(|stream| stream.timer).min();
    }
}
