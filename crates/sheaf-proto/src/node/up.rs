//! Towards the root: contributions are folded, waves are passed on.
//!
//! Nothing here waits for anything: what a contribution leads to (the wave goes on, the owner is
//! told that nobody is left, an acknowledgement) is queued before the next frame is looked at.
use super::Node;
use crate::config::{NodeRole, Time};
use crate::control::Notice;
use crate::filter::FilterError;
use crate::frame::{self, HEADER_BYTES, Header, Kind, Violation};
use crate::links::LinkId;
use crate::stream::{ChildId, Flushed, StreamOwner};
use crate::wave::{After, Arrival};
use sheaf_core::Errno;

/// The header of the whole upward frame of stream `id` at the front of `bytes`, if one is there.
#[inline]
fn next_of(id: u32, bytes: &[u8]) -> Result<Option<Header>, Violation> {
    let header = Header::parse(bytes)?;
    Ok(header.filter(|next| {
        next.kind == Kind::Up && next.stream == id && bytes.len() >= next.frame_len()
    }))
}

impl Node {
    /// Contributions of one stream that arrived behind one another, from `chunk[at..]` on: the
    /// stream is looked up once for as many as do not complete a wave. Returns where they end.
    ///
    /// May be called for a child that takes no part (it was given up, and does not know): what it
    /// sends is dropped, and its bytes are given back to it. Costs no allocation for a contribution
    /// to a wave that is open and not completed by it.
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
            // Closed here, and the child does not know it yet.
            let Some(stream) = self.streams.get_mut(&id) else {
                return Ok(at + header.frame_len());
            };
            let Some(child) = stream.child(link) else {
                return Err(Violation::OutOfPlace(Kind::Up));
            };
            let (after, complaint) = loop {
                self.links[link].counters.frames_in += 1;
                // The child has not opened the stream again yet: this belongs to the stream as it
                // was.
                if stream.up[child].stale {
                    return Ok(at + header.frame_len());
                }
                let body = &chunk[at + HEADER_BYTES..at + header.frame_len()];
                at += header.frame_len();
                if !header.has(frame::flag::part::WHOLE) || stream.up[child].is_assembling() {
                    self.on_up_part(now, child, &header, body)?;
                    return Ok(at);
                }
                let mut complaint = None;
                let after = stream.contribute(
                    header.wave,
                    &Arrival::new(child, &header, body),
                    &mut complaint,
                )?;
                if after != After::Wait || complaint.is_some() {
                    break (after, complaint);
                }
                match next_of(id, &chunk[at..])? {
                    Some(next) => header = next,
                    None => return Ok(at),
                }
                // Making room ends a wave, which may close or change the stream: it is looked up
                // again.
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

    /// Packets of waves that follow one another: folded without slots as far as they are what the
    /// waves without slots expect, one by one from there on.
    ///
    /// Its header is paid for at once and its items as their waves are passed on, like those of as
    /// many frames; so a sender cannot be further ahead with a run than with frames.
    ///
    /// May come from a child that takes no part, whose bytes are given back, or that speaks of the
    /// stream as it was, whose run is passed over. Afterwards each item is counted in its wave or
    /// was late for it. Costs one addition an item where all is steady, and what a frame costs for
    /// each item where it is not.
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
        if stream.up[child].stale {
            return Ok(());
        }
        // A run does not contain the width of its items: both ends know it from the filter.
        let width = stream.up.uniform.map(|uniform| uniform.item_bytes);
        let width = width
            .filter(|width| items.len().is_multiple_of(*width))
            .ok_or(Violation::Body(Kind::Run))?;
        stream.consumed_up(child, HEADER_BYTES, &mut self.links);
        let cost = stream.run_cost(1);
        if !stream.members()[child].takes_part() {
            let cost = stream.run_cost(items.len() / width);
            stream.consumed_up(child, cost, &mut self.links);
            return Ok(());
        }
        let mut taken = 0;
        if let Some(steady) = stream.steady() {
            taken = steady.absorb(child, header.wave, header.tag, items);
            steady.wanted |= header.has(frame::flag::up::ACK_WANTED);
            self.pass_on_steady(id);
        }
        // The first irregular item turns the open waves into slots, which the rest of the run uses.
        for (at, item) in items.chunks_exact(width).enumerate().skip(taken) {
            let one = Header { wave: header.wave + at as u64, ..*header };
            self.make_room(id, one.wave);
            let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
            let arrival =
                Arrival { child, flags: header.flags, tag: header.tag, bytes: cost, body: item };
            let mut complaint = None;
            let after = stream.contribute(one.wave, &arrival, &mut complaint)?;
            self.contributed(now, child, &one, cost, after, complaint);
        }
        Ok(())
    }

    /// Passes on the waves without slots that are complete.
    fn pass_on_steady(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some((first, count, wanted)) = stream.pass_on_steady(&mut self.links) else { return };
        if stream.owner == StreamOwner::App && !std::mem::replace(&mut stream.up.fresh, true) {
            self.fresh.push(id);
        }
        if self.config.role == NodeRole::Root {
            self.note_run_over(id, first, count, wanted);
        }
    }

    /// Ends the oldest open waves of a stream that waits for nobody, if `wave` has no place beside
    /// them: who has not contributed by now is late.
    fn make_room(&mut self, id: u32, wave: u64) {
        while let Some(stream) = self.streams.get_mut(&id)
            && stream.is_crowded(wave)
        {
            let oldest = stream.wave_base();
            // Nobody here may have begun it so far.
            if !stream.begin_wave(oldest) {
                return;
            }
            self.finish_wave(id, oldest, true, Errno::TIMEDOUT);
        }
    }

    /// A part of a long packet: parts are kept until the last has come. The bytes of all but the
    /// last are consumed at once (the packet's own bound holds them), so that a packet may be
    /// larger than the window.
    ///
    /// Assumes that a child sends one long packet at a time on a stream, as it does. Afterwards
    /// nothing is contributed yet, or the whole is, once. Costs a copy of each part.
    fn on_up_part(
        &mut self,
        now: Time,
        child: ChildId,
        header: &Header,
        part: &[u8],
    ) -> Result<(), Violation> {
        let (id, bytes_max) = (header.stream, self.config.tuning.packet_bytes_max);
        if header.has(frame::flag::part::FIRST) && self.closed_as_crowded(id) {
            return Ok(());
        }
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let Some(whole) = stream.up[child].assemble(header, part, bytes_max)? else {
            stream.consumed_up(child, header.cost(), &mut self.links);
            return Ok(());
        };
        self.make_room(id, header.wave);
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let mut complaint = None;
        let after =
            stream.contribute(header.wave, &Arrival::new(child, header, &whole), &mut complaint)?;
        self.contributed(now, child, header, header.cost(), after, complaint);
        Ok(())
    }

    /// What follows from a contribution that counts for `cost` bytes: its credit is given when what
    /// it brought has gone on, or at once if it was dropped.
    fn contributed(
        &mut self,
        now: Time,
        child: ChildId,
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
                let Some(stream) = self.streams.get_mut(&id) else { return };
                stream.pass_on_at(wave, now + delay);
                self.timers.wake_streams(now + delay);
            }
        }
    }

    /// Passes on what a wave holds; with `last` the wave is over and members that have not
    /// answered are silent because of `late`.
    ///
    /// May be called for a wave that is over: that does nothing. What has come late of earlier
    /// waves goes on before it, so that the packets of one sender stay in order.
    pub(super) fn finish_wave(&mut self, id: u32, wave: u64, last: bool, late: Errno) {
        self.pass_on_before(id, wave);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let flushed = stream.flush(wave, last, late, &mut self.scratch, &mut self.links);
        let Some(Flushed { delivered, wanted, counted, replies, complaint }) = flushed else {
            return;
        };
        if delivered && !std::mem::replace(&mut stream.up.fresh, true) {
            self.fresh.push(id);
        }
        if self.config.role == NodeRole::Root {
            self.note_over(id, wave, last, wanted, counted);
        }
        if !replies.is_empty() {
            self.send_replies(id, wave, replies);
        }
        if let Some(error) = complaint {
            self.complain(id, wave, &error);
        }
        // One long packet must not hold its memory until the session ends.
        self.scratch.shrink_to(1 << 20);
    }

    /// Ends these waves, of which nothing more is to come; members that have not answered are
    /// silent because of `late`.
    pub(super) fn finish_waves(&mut self, id: u32, waves: Vec<u64>, late: Errno) {
        for wave in waves {
            self.finish_wave(id, wave, true, late);
        }
    }

    /// Ends the waves that nobody will begin: all who take part joined later, and whoever joins
    /// from now on does so later still. To be called when somebody joins, goes on or is lost;
    /// without it the owner would wait for this node in them.
    pub(super) fn close_gaps(&mut self, id: u32) {
        while let Some(stream) = self.streams.get_mut(&id)
            && let Some(wave) = stream.gap()
            && stream.begin_wave(wave)
        {
            self.finish_wave(id, wave, true, Errno::HOSTDOWN);
        }
    }

    /// What has come late of earlier waves goes on before this one.
    fn pass_on_before(&mut self, id: u32, wave: u64) {
        while let Some(stream) = self.streams.get_mut(&id)
            && let Some(&first) = stream.up.due.first()
            && first <= wave
        {
            stream.up.due.remove(&first);
            if first < wave {
                self.finish_wave(id, first, false, Errno::TIMEDOUT);
            }
        }
    }

    pub(super) fn complain(&mut self, stream: u32, wave: u64, error: &FilterError) {
        let message = error.message.clone();
        let notice = Notice::FilterFailed { by: self.config.rank, stream, wave, message };
        self.notice(Header::new(Kind::Notice), notice);
    }

    /// A child is gone, and with it its part in every stream.
    pub(super) fn child_lost(&mut self, link: LinkId, errno: Errno) {
        let theirs =
            self.streams.iter().filter_map(|(&id, stream)| Some((id, stream.child(link)?)));
        let mut theirs: Vec<(u32, ChildId)> = theirs.collect();
        theirs.sort_unstable();
        for (id, child) in theirs {
            self.child_left(id, child, errno);
        }
    }

    /// A child takes no more part in a stream: it is given up in every open wave, and waves that
    /// waited only for it end.
    ///
    /// Assumes nothing of its link, which may live: a child leaves a stream when nobody is left
    /// below it. Afterwards no wave waits for it, what it has not consumed holds nobody up, and the
    /// owner knows if it was the last one. It takes part again only when the stream is opened at it
    /// anew ([`Node::open_at_joining`]). Costs a pass over the open waves.
    pub(super) fn child_left(&mut self, id: u32, child: ChildId, errno: Errno) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some(complete) = stream.give_up(child, errno) else { return };
        stream.acknowledge_down(&mut self.links);
        self.finish_waves(id, complete, errno);
        self.close_gaps(id);
        self.leave(id);
    }

    /// Tells the owner, once, that nobody is left here on a stream. Without that it would wait for
    /// this node in waves that nobody asked for, and so nobody here begins.
    pub(super) fn leave(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let here = self.config.role == NodeRole::Leaf
            || stream.owner == StreamOwner::App
            || stream.members().any_left();
        if here || std::mem::replace(&mut stream.left, true) {
            return;
        }
        let mut causes = stream.members().iter().map(|member| member.lost);
        let first = causes.next().unwrap_or(Errno::HOSTDOWN);
        let errno = if causes.all(|errno| errno == first) { first } else { Errno::HOSTDOWN };
        let header = Header { stream: id, tag: errno.0, ..Header::new(Kind::Close) };
        stream.send_up(header, &[], &[], &mut self.links);
    }

    /// Ends or flushes the waves whose time has come.
    pub(super) fn expire_waves(&mut self, now: Time) {
        // The end of a wave may change any stream, so all due waves are gathered first.
        let (mut due, mut given_up) = (Vec::new(), Vec::new());
        for (&id, stream) in &mut self.streams {
            if stream.up.timer.is_some_and(|timer| timer <= now) {
                stream.expired(
                    now,
                    |wave, last, late| due.push((id, wave, last, late)),
                    |child| {
                        given_up.push((id, child));
                    },
                );
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
        for stream in self.streams.values_mut() {
            if stream.up.timer.is_some_and(|timer| timer <= now) {
                stream.up.timer = stream.slots().next_timer();
            }
        }
        self.timers.streams = self.streams.values().filter_map(|stream| stream.up.timer).min();
    }
}
