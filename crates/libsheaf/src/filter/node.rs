//! The filter of a stream at one node: what waits for other children, and the runs.
use super::{AssignFilter, FilterWork};
use crate::meter::{Meter, MeterContext, Meters};
use crate::wire::{OpenParams, PARAMS_TAG, Parcel};
use bytes::Bytes;
use sheaf_core::{Errno, lock};
use sheaf_tree::filter::{
    Accumulator, Emit, Filter, FilterError, Input, NodeInfo, Registry, Replies,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

/// Packets of one child that may wait for the others'.
const WAITING_MAX: usize = 1 << 16;

struct FilterNode {
    work: FilterWork,
    rank: u32,
    waits_for_all: bool,
    /// By child: packets that wait for the other children's.
    waiting: BTreeMap<u32, VecDeque<Parcel>>,
    /// The newest parameters that have come up.
    params: u32,
    meter: Option<Arc<Meter>>,
}

impl FilterNode {
    /// Takes in what the children have sent for a wave and runs the filter as often as that fills.
    fn wave(
        &mut self,
        sent: BTreeMap<u32, Vec<Parcel>>,
        back: &mut Vec<Parcel>,
    ) -> Result<Vec<Parcel>, FilterError> {
        let mut out = Vec::new();
        if !self.waits_for_all || matches!(self.work, FilterWork::Pass) {
            // Without waiting each packet is a wave of its own, unless a time-out has joined them.
            let mut packets = VecDeque::new();
            for parcel in sent.into_values().flatten() {
                packets.push_back(parcel);
                self.take_params(&mut packets, true, &mut out);
            }
            if !packets.is_empty() {
                self.run(packets.into(), &mut out, back)?;
            }
            return Ok(out);
        }
        let children: Vec<u32> = sent.keys().copied().collect();
        for (child, parcels) in sent {
            let waiting = self.waiting.entry(child).or_default();
            if waiting.len() + parcels.len() > WAITING_MAX {
                return Err(FilterError::new(
                    Errno::OVERFLOW,
                    "a child sends more packets than the others",
                ));
            }
            waiting.extend(parcels);
        }
        loop {
            let mut waiting = std::mem::take(&mut self.waiting);
            waiting.values_mut().for_each(|queue| self.take_params(queue, false, &mut out));
            let full = children
                .iter()
                .all(|child| waiting.get(child).is_some_and(|queue| !queue.is_empty()));
            let row = if full {
                waiting.values_mut().filter_map(VecDeque::pop_front).collect()
            } else {
                Vec::new()
            };
            self.waiting = waiting;
            if row.is_empty() {
                return Ok(out);
            }
            self.run(row, &mut out, back)?;
        }
    }

    fn run(
        &mut self,
        row: Vec<Parcel>,
        out: &mut Vec<Parcel>,
        back: &mut Vec<Parcel>,
    ) -> Result<(), FilterError> {
        let Some(meter) = &self.meter else { return self.work.run(row, self.rank, out, back) };
        for context in [MeterContext::SyncOut, MeterContext::FilterIn] {
            meter.count_all(context, &row);
        }
        let first = out.len();
        let timer = meter.begin();
        let done = self.work.run(row, self.rank, out, back);
        meter.end(&timer);
        meter.count_all(MeterContext::FilterOut, &out[first..]);
        done
    }

    /// Takes parameters off the front (or the back) of a queue; new ones are used from here on, and
    /// go on upwards in front of what follows.
    fn take_params(&mut self, queue: &mut VecDeque<Parcel>, at_back: bool, out: &mut Vec<Parcel>) {
        loop {
            let next = if at_back { queue.back() } else { queue.front() };
            if next.is_none_or(|parcel| parcel.tag != PARAMS_TAG) {
                return;
            }
            let taken = if at_back { queue.pop_back() } else { queue.pop_front() };
            let Some(parcel) = taken else { return };
            if let Some(params) = OpenParams::decode(&parcel.packet)
                && params.version > self.params
            {
                self.params = params.version;
                self.work.set_params(&params.bytes);
                out.push(parcel);
            }
        }
    }
}

/// The filter that [`super::NAME`] names, at one node.
pub(super) struct Assigned {
    node: Arc<Mutex<FilterNode>>,
    measured: Option<(u32, Arc<Meter>, Arc<Meters>)>,
}

impl Assigned {
    pub fn new(
        assign: &AssignFilter,
        modules: &Registry,
        meters: &Arc<Meters>,
        info: &NodeInfo,
    ) -> Result<Self, FilterError> {
        let work = FilterWork::new(assign.at(info.rank), &assign.params, modules, info)?;
        let measured = assign.measured.map(|id| (id, meters.open(id), Arc::clone(meters)));
        let node = FilterNode {
            work,
            rank: info.rank,
            waits_for_all: assign.waits_for_all,
            waiting: BTreeMap::new(),
            params: 0,
            meter: measured.as_ref().map(|(_, meter, _)| Arc::clone(meter)),
        };
        Ok(Self { node: Arc::new(Mutex::new(node)), measured })
    }
}

impl Drop for Assigned {
    fn drop(&mut self) {
        if let Some((id, meter, meters)) = &self.measured {
            meters.close(*id, meter);
        }
    }
}

impl Filter for Assigned {
    fn accumulator(&self) -> Box<dyn Accumulator> {
        let node = Arc::clone(&self.node);
        let meter = self.measured.as_ref().map(|(_, meter, _)| Arc::clone(meter));
        Box::new(Wave { node, sent: BTreeMap::new(), back: Vec::new(), meter })
    }

    fn state(&mut self) -> Option<Vec<u8>> {
        lock(&self.node).work.state()
    }

    fn absorb(&mut self, state: &[u8]) -> Result<(), FilterError> {
        lock(&self.node).work.absorb(state)
    }
}

/// One wave at one node.
struct Wave {
    node: Arc<Mutex<FilterNode>>,
    sent: BTreeMap<u32, Vec<Parcel>>,
    back: Vec<Parcel>,
    meter: Option<Arc<Meter>>,
}

impl Accumulator for Wave {
    fn fold(&mut self, input: Input<'_>) -> Result<(), FilterError> {
        let parcels = Parcel::list(Bytes::copy_from_slice(input.payload))
            .map_err(|error| FilterError::new(Errno::BADMSG, error.message))?;
        if let Some(meter) = &self.meter {
            for context in [MeterContext::Received, MeterContext::SyncIn] {
                meter.count_all(context, &parcels);
            }
            meter.arrived();
        }
        self.sent.entry(input.rank).or_default().extend(parcels);
        Ok(())
    }

    fn finish(&mut self, emit: Emit, out: &mut Vec<u8>) -> Result<(), FilterError> {
        let sent = std::mem::take(&mut self.sent);
        let parcels = lock(&self.node).wave(sent, &mut self.back)?;
        // What the root gives is received there, not sent.
        if let Some(meter) = self.meter.as_ref().filter(|_| emit == Emit::Partial) {
            meter.count_all(MeterContext::Sent, &parcels);
        }
        for Parcel { tag, source, packet } in parcels {
            Parcel::put(out, tag, source, &packet);
        }
        Ok(())
    }

    fn replies(&mut self) -> Replies {
        let mut replies = Replies::default();
        for parcel in self.back.drain(..) {
            let payload = crate::wire::Down::encode(&parcel.packet, &[]);
            // What is beyond the bounds of replies is not sent.
            let _ = replies.push(parcel.tag, payload);
        }
        replies
    }
}
