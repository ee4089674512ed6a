//! Waves that are all alike: packets of them travel many to a frame, and are folded without slots.
use super::{NodeStream, StreamOwner, WaveResult};
use crate::control::Sync;
use crate::coverage::Coverage;
use crate::frame::{self, Header, Kind, flag};
use crate::links::Links;
use crate::node::Passing;
use crate::wave::{Complete, Contribution, Steady, WAVES_OPEN_MAX, Waves};
use bytes::Bytes;
use std::sync::Arc;

/// Packets of waves that follow one another, all of the size that the stream's filter knows.
#[derive(Debug, Default)]
pub(crate) struct LeafRun {
    pub first: u64,
    pub count: u64,
    pub tag: i32,
    pub items: Vec<u8>,
}

impl NodeStream {
    /// What so many waves of a run count for in the window: with all of it a sender is no further
    /// ahead than its receiver can give slots to.
    pub fn run_cost(&self, waves: usize) -> usize {
        waves * self.wave_cost()
    }

    pub(super) fn wave_cost(&self) -> usize {
        let width = self.up.uniform.as_ref().map_or(1, |uniform| uniform.item_bytes);
        width.max((self.window / (WAVES_OPEN_MAX / 2)) as usize)
    }

    /// Adds a packet to the run, if it is one that a run can hold; `false`: send it by itself.
    #[inline]
    pub fn add_to_run(&mut self, wave: u64, tag: i32, payload: &[u8]) -> bool {
        let Some(uniform) = &self.up.uniform else { return false };
        if payload.len() != uniform.item_bytes || !(uniform.is_plain)(payload) {
            return false;
        }
        let run = &mut self.up.run;
        if run.count == 0 {
            (run.first, run.tag) = (wave, tag);
        }
        if tag != run.tag {
            return false;
        }
        run.count += 1;
        run.items.extend_from_slice(payload);
        true
    }

    /// Sends the run that has been gathered.
    pub fn seal_run(&mut self, links: &mut Links) {
        if self.up.run.count == 0 {
            return;
        }
        let items = std::mem::take(&mut self.up.run.items);
        let header = run_header(self.id, self.up.run.first, self.up.run.tag);
        // Before `send_up`, which would otherwise seal the same run again.
        self.up.run.count = 0;
        self.send_up(header, &items, &[], links);
        self.up.run.items = items;
        self.up.run.items.clear();
    }

    /// The waves as a run of items meets them: without slots, if nothing disturbs them.
    #[inline]
    pub fn steady(&mut self) -> Option<&mut Steady> {
        if self.up.waves.as_slots().is_some() {
            self.calm_down();
        }
        match &mut self.up.waves {
            Waves::Steady { steady, .. } => Some(steady),
            Waves::Slots(_) => None,
        }
    }

    fn calm_down(&mut self) {
        let (Some(uniform), Some(slots)) = (self.up.uniform, self.up.waves.as_slots()) else {
            return;
        };
        // A child that is away, joins later or has moved leaves needs slots, which judge each
        // contribution.
        let undisturbed = |base| {
            self.members
                .iter()
                .all(|member| member.is_here() && member.contributes_to(base) && !member.moved)
        };
        if self.up.sync == Sync::WaitForAll && slots.is_idle() && undisturbed(slots.base()) {
            let children = self.members.len();
            self.up.waves.calm(|base| Steady::new(uniform, base, children));
        }
    }

    /// Ends the waves without slots that are complete: passes them to the owner. Gives the first,
    /// how many, and whether a contribution asked for an acknowledgement.
    pub fn pass_on_steady(&mut self, links: &mut Links) -> Option<(u64, u64, bool)> {
        let Waves::Steady { steady, .. } = &mut self.up.waves else { return None };
        let complete = steady.take_complete()?;
        let wanted = complete.wanted;
        let (first, count) = (complete.first, complete.count);
        if self.up.tap.is_some() {
            let (stream, tag) = (self.id, complete.tag);
            for (wave, item) in (first..).zip(complete.items().chunks_exact(complete.width)) {
                let (ok, payload) = (&**self.members.all(), Some(item));
                self.show(&Passing { stream, wave, tag, ok, coverage: None, payload, last: true });
            }
        }
        match self.owner {
            StreamOwner::Link(_) => self.send_runs(&complete, links),
            StreamOwner::App => self.deliver_run(&complete),
        }
        if let Waves::Steady { steady, .. } = &mut self.up.waves {
            steady.retire(complete);
        }
        Some((first, count, wanted))
    }

    /// Sends complete waves to the owner; the children are given credit for them on the way.
    fn send_runs(&mut self, complete: &Complete, links: &mut Links) {
        let width = complete.width;
        // Not zero: the items of a uniform filter are a few bytes long.
        let run = frame::CHUNK_BYTES / width * width;
        for (at, items) in complete.items().chunks(run).enumerate() {
            let mut header =
                run_header(self.id, complete.first + (at * (run / width)) as u64, complete.tag);
            header.flags |= if complete.wanted { flag::up::ACK_WANTED } else { 0 };
            let from =
                vec![Contribution::of(self.run_cost(items.len() / width)); self.members.len()];
            self.send_up(header, items, &from, links);
        }
    }

    /// Puts complete waves where the application takes them; the last has the credit of all.
    fn deliver_run(&mut self, complete: &Complete) {
        let items = Bytes::copy_from_slice(complete.items());
        let coverage = Coverage { ok: Arc::clone(self.members.all()), ..Coverage::default() };
        let (width, count) = (complete.width, complete.count as usize);
        for at in 0..count {
            let payload = Some(items.slice(at * width..(at + 1) * width));
            let (wave, tag) = (complete.first + at as u64, complete.tag);
            let result =
                WaveResult { wave, tag, complete: true, coverage: coverage.clone(), payload };
            let last = at + 1 == count;
            let credit = Contribution::of(self.run_cost(count));
            let from = if last { vec![credit; self.members.len()] } else { Vec::new() };
            self.up.inbox.push_back((result, from));
        }
    }
}

/// The header of a run, which stands for every member and is the last of each of its waves.
pub(crate) fn run_header(stream: u32, wave: u64, tag: i32) -> Header {
    let flags = flag::part::WHOLE | flag::up::FULL | flag::up::FINAL;
    Header { flags, stream, tag, wave, ..Header::new(Kind::Run) }
}
