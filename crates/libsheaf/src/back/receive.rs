//! What comes down the tree to a back end, on the thread of its link.
use super::Common;
use crate::attach::AttachHello;
use crate::down::{self, Chain};
use crate::error::Error;
use crate::event;
use crate::inbox::Message;
use crate::meter::{self, MeterRecord};
use crate::plan::BackEndPlan;
use crate::wire::{Control, Described, Down, OpenParams, Parcel};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use sheaf_core::lock;
use sheaf_tree::Packet;
use sheaf_tree::filter::Registry;
use sheaf_tree::launch::DETACH_VARIABLE;
use sheaf_tree::service::{Leaf, LeafHandle, Provider, Service, ServiceError, Site};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc;

pub(super) type StartedBack = Result<(Arc<Common>, LeafHandle, BackEndPlan), Error>;

/// Makes the service of the one leaf of this process.
pub(super) struct StartBack {
    pub tell: mpsc::UnboundedSender<StartedBack>,
    pub registry: Registry,
    /// Who this back end is, if it has attached itself.
    pub own: Option<AttachHello>,
}

impl Provider for StartBack {
    fn start(&self, site: &Site<'_>, handle: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        let refuse = |cause: String| ServiceError { errno: sheaf_core::Errno::PROTO, cause };
        let mut plan =
            BackEndPlan::from_session(site.config).map_err(|error| refuse(error.message))?;
        if let (Some(leaf), Some(AttachHello { rank, host })) = (site.leaf, &self.own) {
            plan.add(*rank, leaf, host);
        }
        let rank = site
            .leaf
            .and_then(|leaf| plan.rank_of_leaf(leaf))
            .ok_or_else(|| refuse("a leaf that is not in the tree".to_owned()))?;
        if std::env::var_os(DETACH_VARIABLE).is_some()
            && let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null")
        {
            // Until here it told the host above why this back end could not start.
            let _ = rustix::stdio::dup2_stderr(&null);
        }
        let common = Arc::new(Common::new(rank, site.rank));
        let _ = self.tell.send(Ok((Arc::clone(&common), handle, plan.clone())));
        let registry = self.registry.clone();
        let (carried, parts) = (FxHashMap::default(), FxHashMap::default());
        Ok(Box::new(BackReceiver { common, registry, plan, carried, parts }))
    }
}

/// Takes what comes down the tree.
struct BackReceiver {
    common: Arc<Common>,
    registry: Registry,
    plan: BackEndPlan,
    /// By the stream of the tree.
    carried: FxHashMap<u32, Carried>,
    /// Long packets that are being put together.
    parts: FxHashMap<u32, Vec<u8>>,
}

/// A stream of the tree, and which one of the application's it carries.
struct Carried {
    id: u32,
    chain: Option<Chain>,
    /// It has brought its last packet; another one goes on.
    moved: bool,
    /// Until its predecessor has: how it was described, and what it has brought.
    held: Option<(Described, Vec<(Packet, Bytes)>)>,
}

impl BackReceiver {
    fn whole(&mut self, packet: Packet, payload: Bytes, leaf: &mut Leaf<'_>) {
        if let Some(Carried { held: Some((_, held)), .. }) = self.carried.get_mut(&packet.stream) {
            held.push((packet, payload));
            return;
        }
        match Down::decode(&payload, self.common.node) {
            Ok(Down::Packet(body)) => self.deliver(&packet, body, leaf),
            Ok(Down::NotForUs(body, ranks)) => {
                leaf.consumed(packet.stream, packet.frame_bytes);
                let carried = self.carried.get_mut(&packet.stream);
                if let Some(chain) = carried.and_then(|carried| carried.chain.as_mut()) {
                    chain.overhear(down::parcel(packet.tag, body), &ranks, &self.plan);
                }
            }
            Ok(Down::Control(control)) => {
                leaf.consumed(packet.stream, packet.frame_bytes);
                self.control(&packet, control, leaf);
            }
            Err(error) => {
                leaf.consumed(packet.stream, packet.frame_bytes);
                self.common.event(
                    event::CLASS_ERROR,
                    event::error::INTERNAL,
                    u32::MAX,
                    error.message,
                );
            }
        }
    }

    /// A packet for the application, which filters may change.
    fn deliver(&mut self, packet: &Packet, body: Bytes, leaf: &mut Leaf<'_>) {
        let Some(carried) = self.carried.get_mut(&packet.stream) else {
            return leaf.consumed(packet.stream, packet.frame_bytes);
        };
        let stream = carried.id;
        let owed = Some((packet.stream, packet.frame_bytes));
        let Some(chain) = &mut carried.chain else {
            return self.push(Message { stream, tag: packet.tag, source: 0, packet: body, owed });
        };
        let mut left = match chain.run(down::parcel(packet.tag, body)) {
            Ok(packets) => packets.into_iter().peekable(),
            Err(error) => {
                leaf.consumed(packet.stream, packet.frame_bytes);
                let text = format!("a filter failed on the way down: {}", error.message);
                return self.common.event(event::CLASS_ERROR, event::error::USAGE, stream, text);
            }
        };
        if left.peek().is_none() {
            leaf.consumed(packet.stream, packet.frame_bytes);
        }
        // What is owed is paid with the last of them.
        while let Some(Parcel { tag, packet, .. }) = left.next() {
            let owed = owed.filter(|_| left.peek().is_none());
            self.push(Message { stream, tag, source: 0, packet, owed });
        }
    }

    fn push(&self, message: Message) {
        let stream = message.stream;
        self.common.count_received(stream, message.packet.len());
        self.common.inbox.push(message);
        if self.common.events.wants_data() {
            self.common.event(event::CLASS_DATA, 0, stream, String::new());
        }
    }

    fn control(&mut self, packet: &Packet, control: Control, leaf: &mut Leaf<'_>) {
        let carrier = packet.stream;
        match control {
            Control::Describe(described) => self.describe(carrier, *described, leaf),
            Control::Moved => {
                let Some(carried) = self.carried.get_mut(&carrier) else { return };
                carried.moved = true;
                let id = carried.id;
                self.go_on(id, leaf);
            }
            Control::Params { down, version, bytes } => {
                let Some(carried) = self.carried.get_mut(&carrier) else { return };
                if let Some(chain) = carried.chain.as_mut().filter(|_| down) {
                    chain.set_params(&bytes);
                } else if let Some(known) =
                    lock(&self.common.streams).known.get_mut(&carried.id).filter(|_| !down)
                {
                    known.params.clear();
                    OpenParams::put(version, &bytes, &mut known.params);
                }
            }
            Control::Measure { id } => {
                let mut record = MeterRecord::of_process(self.common.rank);
                for (have, known) in &lock(&self.common.streams).known {
                    if id == meter::ALL_STREAMS || id == *have {
                        record.add(&known.meter);
                    }
                }
                leaf.reply(carrier, packet.wave, packet.tag, &MeterRecord::encode(&[record]));
            }
            Control::CatchUp { wave } => {
                leaf.skip_to(carrier, wave);
                let id = self.carried.get(&carrier).map(|carried| carried.id);
                let streams = lock(&self.common.streams);
                if let Some(known) = id.and_then(|id| streams.known.get(&id)) {
                    known.progress.sent.fetch_max(wave, Ordering::Relaxed);
                    known.progress.known.fetch_max(wave, Ordering::Relaxed);
                }
                drop(streams);
                self.common.turn();
            }
        }
    }

    fn describe(&mut self, carrier: u32, described: Described, leaf: &mut Leaf<'_>) {
        let id = described.id;
        let chain = described
            .down
            .as_ref()
            .map(|down| Chain::new(down, &self.plan, self.common.node, &self.registry, carrier));
        let chain = chain.transpose().unwrap_or_else(|error| {
            let text = format!("a filter cannot run on the way down: {}", error.message);
            self.common.event(event::CLASS_ERROR, event::error::USAGE, id, text);
            None
        });
        let held = Some((described, Vec::new()));
        self.carried.insert(carrier, Carried { id, chain, moved: false, held });
        self.go_on(id, leaf);
    }

    /// Lets the stream of the tree that was opened last carry `id`, if its predecessor is done.
    fn go_on(&mut self, id: u32, leaf: &mut Leaf<'_>) {
        let ours = |carried: &Carried| carried.id == id;
        if self
            .carried
            .values()
            .any(|carried| ours(carried) && !carried.moved && carried.held.is_none())
        {
            return;
        }
        let next =
            self.carried.iter().filter(|(_, carried)| ours(carried) && carried.held.is_some());
        let Some(next) = next.map(|(&carrier, _)| carrier).min() else { return };
        let before: Vec<u32> = self
            .carried
            .iter()
            .filter(|(_, carried)| ours(carried) && carried.moved)
            .map(|(&at, _)| at)
            .collect();
        let Some((described, packets)) =
            self.carried.get_mut(&next).and_then(|next| next.held.take())
        else {
            return;
        };
        self.common.know(next, described);
        for carrier in before {
            self.carried.remove(&carrier);
            leaf.leave_stream(carrier);
        }
        for (packet, payload) in packets {
            self.whole(packet, payload, leaf);
        }
    }
}

impl Service for BackReceiver {
    fn packet(&mut self, packet: Packet, leaf: &mut Leaf<'_>) {
        if packet.first && packet.last {
            let payload = packet.payload.clone();
            return self.whole(packet, payload, leaf);
        }
        if packet.first {
            self.parts.insert(packet.stream, Vec::new());
        }
        let parts = self.parts.entry(packet.stream).or_default();
        parts.extend_from_slice(&packet.payload);
        if packet.last {
            let payload = Bytes::from(self.parts.remove(&packet.stream).unwrap_or_default());
            return self.whole(packet, payload, leaf);
        }
        // A packet may be longer than what may be under way.
        leaf.consumed(packet.stream, packet.frame_bytes);
    }

    fn closed(&mut self, carrier: u32) {
        self.parts.remove(&carrier);
        let Some(Carried { id, .. }) = self.carried.remove(&carrier) else { return };
        let mut streams = lock(&self.common.streams);
        // Another stream of the tree may carry it by now.
        if streams.known.get(&id).is_some_and(|known| known.carrier == carrier) {
            streams.known.remove(&id);
            drop(streams);
            self.common.inbox.close(id);
        }
        self.common.turn();
    }

    fn resume(&mut self, leaf: &mut Leaf<'_>) {
        self.common.hand_over(leaf);
        self.common.look_for_room(leaf);
    }

    fn ended(&mut self) {
        self.common.inbox.end();
        self.common.turn();
    }
}
