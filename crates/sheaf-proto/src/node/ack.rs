//! What the root has need not be kept by anybody: it says so, down the tree.
use super::Node;
use crate::config::NodeRole;
use crate::control::{self, Ack};
use crate::frame::{Header, Kind, Violation};
use crate::links::LinkId;
use crate::stream::StreamOwner;
use bytes::Bytes;
use sheaf_core::{Errno, RangeSet};

/// The root acknowledges when this many waves are over.
const WAVES_PER_ACK: u32 = 64;

impl Node {
    /// At the root: a wave is over, or a part of it has come whose senders want to know. They are
    /// told now and then, and at once when they have little room left.
    #[inline]
    pub(super) fn note_over(
        &mut self,
        id: u32,
        wave: u64,
        last: bool,
        wanted: bool,
        told: Option<RangeSet>,
    ) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if last {
            stream.up.over.insert(wave, wave);
            stream.up.over_count += 1;
        }
        if wanted || stream.up.over_count >= WAVES_PER_ACK {
            self.acknowledge(id, told.map(|told| (wave, told)).into_iter().collect());
        }
    }

    /// [`Node::note_over`] for waves that follow one another and were complete at once.
    pub(super) fn note_run_over(&mut self, id: u32, first: u64, count: u64, wanted: bool) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let up = &mut stream.up;
        up.over.insert(first, first + count - 1);
        up.over_count = up.over_count.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if wanted || up.over_count >= WAVES_PER_ACK {
            self.acknowledge(id, Vec::new());
        }
    }

    /// Says which waves are over, and of which some leaves are counted.
    ///
    /// What is said may be lost with a link. That does no harm: who keeps what is over only keeps
    /// more, asks again when its window is half full, and is told all of it by whoever adopts it
    /// ([`Stream::tell_acked`](crate::stream::Stream::tell_acked)).
    #[cold]
    fn acknowledge(&mut self, id: u32, partial: Vec<(u64, RangeSet)>) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.up.over_count = 0;
        let waves = stream.up.over.take();
        if waves.is_empty() && partial.is_empty() {
            return;
        }
        waves.iter().for_each(|&(first, last)| stream.up.out.acked.insert(first, last));
        let header = Header { stream: id, ..Header::new(Kind::Ack) };
        let frame = control::control(header, &Ack { waves, partial });
        self.pass_ack_on(id, &frame);
    }

    fn pass_ack_on(&mut self, id: u32, frame: &Bytes) {
        let Some(stream) = self.streams.get(&id) else { return };
        for member in stream.members().iter().filter(|member| member.is_here()) {
            // A child in this process keeps nothing for another parent (`keeps_for`).
            if !self.links[member.link].is_inside() {
                self.links.send(member.link, frame);
            }
        }
    }

    /// At the root, now and then: acknowledges what it has not, and again what may not have
    /// arrived.
    pub(super) fn acknowledge_all(&mut self) {
        if self.config.role != NodeRole::Root {
            return;
        }
        let due = self.streams.iter().map(|(&id, stream)| (id, stream.partly_told()));
        let mut due: Vec<(u32, Vec<(u64, RangeSet)>)> = due.collect();
        due.sort_unstable_by_key(|(id, _)| *id);
        for (id, partial) in due {
            self.acknowledge(id, partial);
        }
    }

    /// The root has these waves, or these leaves' part of one.
    ///
    /// Assumes that it comes over the link that the stream belongs to: an earlier parent's word
    /// would count for what was sent to it. Afterwards nothing of them is sent again to any later
    /// parent, and what waited because too much was kept may go. Passed on as it came to those who
    /// are here; who is away hears it when it comes back.
    pub(super) fn on_ack(
        &mut self,
        link: LinkId,
        header: &Header,
        body: &[u8],
        frame: &Bytes,
    ) -> Result<(), Violation> {
        let id = header.stream;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if stream.owner != StreamOwner::Link(link) {
            return Err(Violation::OutOfPlace(Kind::Ack));
        }
        if self.config.role == NodeRole::Root {
            // A client's root keeps its own account of what this one has passed on to it.
            return Ok(());
        }
        let ack: Ack = control::decode(Kind::Ack, body)?;
        for &(first, last) in &ack.waves {
            if last < first {
                return Err(Violation::Body(Kind::Ack));
            }
            stream.up.out.acked.insert(first, last);
        }
        stream.drop_kept(&ack);
        let open = stream.open_among(&ack.waves);
        self.links[link].wait(id);
        self.pass_ack_on(id, frame);
        // The root has ended them without this node: nobody will contribute to them here either.
        self.finish_waves(id, open, Errno::HOSTDOWN);
        self.refill(link);
        Ok(())
    }
}
