//! A leaf to which back ends attach themselves: to the tree it is one member for all of them.
//!
//! What comes down is passed on to those of them that are members. What they send is made into
//! waves here as any node does, and goes up as this leaf's own.
use crate::attach::{self, AttachFrame, AttachHello, AttachKind, HEAD_BYTES};
use crate::down::{self, Chain};
use crate::filter::{AssignFilter, FilterWork};
use crate::meter::{self, Meter, MeterContext, MeterRecord};
use crate::plan::BackEndPlan;
use crate::wire::{
    Control, Described, Down, HUB_TAG, HubWord, OpenParams, Parcel, UpwardMessage, Waits,
};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use sheaf_core::Errno;
use sheaf_tree::Packet;
use sheaf_tree::filter::{NodeInfo, Registry};
use sheaf_tree::service::{Leaf, LeafHandle, Provider, Service, ServiceError, Site};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream, unix};
use tokio::sync::{Notify, mpsc};

/// Frames that may wait for one back end.
const FRAMES_MAX: usize = 64;
/// Packets of one back end that may wait for the others' before it has to wait itself.
const WAITING_MAX: usize = 1024;
/// How long a process may take to say who it is.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// A stream at this leaf.
struct HubStream {
    carrier: u32,
    described: Arc<Described>,
    /// Members that are attached here and have not left.
    members: Vec<u32>,
    waiting: BTreeMap<u32, VecDeque<Parcel>>,
    work: FilterWork,
    /// Filters on the way down, this leaf's own included.
    chain: Option<Chain>,
    /// Parameters that go up in front of the next packet.
    params: Vec<u8>,
    /// Of the members, and of this leaf.
    meters: BTreeMap<u32, Meter>,
    /// Told when there may be room for more, and when the stream closes.
    room: Arc<Notify>,
    /// A time-out runs.
    armed: bool,
    /// Nothing goes up any more.
    over: bool,
    /// Down to the members, in order.
    relay: mpsc::UnboundedSender<Relayed>,
}

/// A packet on its way down, and what is owed for it.
struct Relayed {
    tag: i32,
    payload: Bytes,
    bytes: usize,
}

#[derive(Default)]
struct HubState {
    streams: FxHashMap<u32, HubStream>,
    /// The application's stream, by the stream of the tree.
    carried: FxHashMap<u32, u32>,
    parts: FxHashMap<u32, Vec<u8>>,
    attached: FxHashMap<u32, mpsc::Sender<AttachFrame>>,
}

struct Hub {
    rank: u32,
    port: u16,
    plan: BackEndPlan,
    registry: Registry,
    leaf: LeafHandle,
    state: Mutex<HubState>,
}

/// Makes hubs at the leaves of sessions whose back ends attach themselves, with these filters.
pub struct Hubs(pub Registry);

impl Provider for Hubs {
    fn start(&self, site: &Site<'_>, handle: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        let refuse = |cause: String| ServiceError { errno: Errno::NOSYS, cause };
        let plan = BackEndPlan::from_session(site.config).map_err(|error| refuse(error.message))?;
        if !plan.attach() {
            return Err(refuse("an inner node was started in place of a back end".to_owned()));
        }
        let rank = site
            .leaf
            .and_then(|leaf| plan.rank_of_leaf(leaf))
            .ok_or_else(|| refuse("no such leaf".to_owned()))?;
        let listen = || {
            let (port, listener) = attach::listen()?;
            listener.set_nonblocking(true)?;
            Ok::<_, io::Error>((port, UnixListener::from_std(listener)?))
        };
        let (port, listener) = listen().map_err(|error| refuse(error.to_string()))?;
        // Filters on the way down run here.
        self.0.keep_modules_at_leaves();
        let (registry, state) = (self.0.clone(), Mutex::default());
        let hub = Arc::new(Hub { rank, port, plan, registry, leaf: handle, state });
        tokio::spawn(Arc::clone(&hub).admit(listener));
        Ok(Box::new(AtHub(hub)))
    }
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn admit(self: Arc<Self>, listener: UnixListener) {
        while let Ok((socket, _)) = listener.accept().await {
            if attach::is_ours(&socket) {
                tokio::spawn(Arc::clone(&self).serve(socket));
            }
        }
    }

    /// One back end, from its greeting to its end.
    async fn serve(self: Arc<Self>, socket: UnixStream) {
        let (mut reader, mut writer) = socket.into_split();
        let greeting = tokio::time::timeout(HELLO_TIMEOUT, read(&mut reader)).await;
        let Ok(Ok(AttachFrame { kind: AttachKind::Hello, payload, .. })) = greeting else { return };
        let Ok(AttachHello { rank, host }) = postcard::from_bytes(&payload) else { return };
        let (to, mut frames) = mpsc::channel::<AttachFrame>(FRAMES_MAX);
        if self.plan.place(rank).is_some() || self.lock().attached.contains_key(&rank) {
            // Not one of ours: closing the socket says so.
            return;
        }
        let payload = self.plan.to_session(Some((rank, self.rank, host.clone()))).into();
        if write(
            &mut writer,
            &AttachFrame { kind: AttachKind::Welcome, stream: 0, tag: 0, payload },
        )
        .await
        .is_err()
        {
            return;
        }
        self.lock().attached.insert(rank, to);
        self.say(&HubWord::Joined { rank, host });
        let send = tokio::spawn(async move {
            while let Some(frame) = frames.recv().await {
                if write(&mut writer, &frame).await.is_err() {
                    return;
                }
            }
        });
        while let Ok(frame) = read(&mut reader).await {
            match frame.kind {
                AttachKind::Packet => self.up(rank, frame).await,
                AttachKind::Close => self.leave(rank, Some(frame.stream)),
                AttachKind::Hello | AttachKind::Welcome => break,
            }
        }
        send.abort();
        self.lock().attached.remove(&rank);
        self.leave(rank, None);
        self.say(&HubWord::Left { rank });
    }

    /// Tells the front end something, on the stream of this leaf's own.
    fn say(&self, word: &HubWord) {
        let Some(carrier) = self.lock().streams.get(&self.rank).map(|stream| stream.carrier) else {
            return;
        };
        let packet = postcard::to_stdvec(word).expect("a word can be serialised");
        let mut payload = Vec::new();
        Parcel::put(&mut payload, HUB_TAG, self.rank, &packet);
        self.leaf.with(|leaf| {
            leaf.post(carrier, HUB_TAG, &payload);
        });
    }

    /// A packet of an attached back end's.
    async fn up(self: &Arc<Self>, rank: u32, frame: AttachFrame) {
        let parcel = Parcel { tag: frame.tag, source: rank, packet: frame.payload };
        let Some(carrier) = self.put(rank, frame.stream, parcel) else { return };
        loop {
            let Some(room) =
                self.lock().streams.get(&frame.stream).map(|stream| Arc::clone(&stream.room))
            else {
                return;
            };
            let changed = room.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            if self.has_room(rank, frame.stream, carrier) {
                return;
            }
            changed.await;
        }
    }

    /// Whether a back end may send more on a stream; it may on one that is closed or has moved.
    fn has_room(&self, rank: u32, id: u32, carrier: u32) -> bool {
        let mut held = false;
        self.leaf.with(|leaf| held = leaf.is_held(carrier));
        let state = self.lock();
        let stream = state.streams.get(&id).filter(|stream| stream.carrier == carrier);
        stream.is_none_or(|stream| {
            let few = stream.waiting.get(&rank).is_none_or(|queue| queue.len() < WAITING_MAX);
            stream.over || !held && few
        })
    }

    /// Takes a packet in and sends what it completes; gives the stream of the tree.
    fn put(self: &Arc<Self>, rank: u32, id: u32, parcel: Parcel) -> Option<u32> {
        let mut state = self.lock();
        let member = |stream: &&mut HubStream| !stream.over && stream.members.contains(&rank);
        let stream = state.streams.get_mut(&id).filter(member)?;
        stream.count(rank, MeterContext::Sent, parcel.packet.len());
        stream.count(self.rank, MeterContext::Received, parcel.packet.len());
        stream.waiting.entry(rank).or_default().push_back(parcel);
        if let Waits::Until(ms) = stream.described.waits
            && !std::mem::replace(&mut stream.armed, true)
        {
            let hub = Arc::clone(self);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(ms.into())).await;
                if let Some(stream) = hub.lock().streams.get_mut(&id) {
                    stream.armed = false;
                }
                hub.send(id, true);
            });
        }
        let carrier = stream.carrier;
        drop(state);
        self.send(id, false);
        Some(carrier)
    }

    /// Sends the waves of a stream that are whole, or with `late` what there is.
    fn send(&self, id: u32, late: bool) {
        let (mut posts, mut carrier) = (Vec::new(), 0);
        if let Some(stream) = self.lock().streams.get_mut(&id) {
            carrier = stream.carrier;
            while let Some(row) = stream.row(late) {
                posts.extend(stream.combine(row, self.rank));
            }
            stream.wake();
        }
        for (tag, payload) in posts {
            self.leaf.with(|leaf| {
                leaf.post(carrier, tag, &payload);
            });
        }
    }

    /// A back end leaves a stream, or all.
    fn leave(&self, rank: u32, only: Option<u32>) {
        let mut left = Vec::new();
        for (&id, stream) in &mut self.lock().streams {
            if only.is_none_or(|only| only == id) && stream.members.contains(&rank) {
                stream.members.retain(|&member| member != rank);
                left.push((id, stream.carrier, stream.members.is_empty()));
            }
        }
        for (id, carrier, last) in left {
            self.send(id, false);
            if last {
                self.leaf.with(|leaf| leaf.leave_stream(carrier));
                self.say(&HubWord::Closed { id });
            }
        }
    }

    /// Passes what comes down a stream on to its members here, one packet after the other.
    async fn relay(
        self: Arc<Self>,
        id: u32,
        carrier: u32,
        mut packets: mpsc::UnboundedReceiver<Relayed>,
    ) {
        while let Some(Relayed { tag, payload, bytes }) = packets.recv().await {
            self.spread(id, &AttachFrame { kind: AttachKind::Packet, stream: id, tag, payload })
                .await;
            self.leaf.with(|leaf| leaf.consumed(carrier, bytes));
        }
        self.spread(
            id,
            &AttachFrame { kind: AttachKind::Close, stream: id, tag: 0, payload: Bytes::new() },
        )
        .await;
        let mut state = self.lock();
        if let Some(stream) = state.streams.get(&id).filter(|stream| stream.carrier == carrier) {
            stream.wake();
            state.streams.remove(&id);
        }
    }

    /// What this leaf and its back ends have measured.
    fn records(&self, id: u32) -> Vec<MeterRecord> {
        let mut records = BTreeMap::from([(self.rank, MeterRecord::of_process(self.rank))]);
        for (have, stream) in &self.lock().streams {
            if id == meter::ALL_STREAMS || id == *have {
                for (&rank, meter) in &stream.meters {
                    let fresh = || MeterRecord { rank, ..MeterRecord::default() };
                    records.entry(rank).or_insert_with(fresh).add(meter);
                }
            }
        }
        records.into_values().collect()
    }

    async fn spread(&self, id: u32, frame: &AttachFrame) {
        let to: Vec<mpsc::Sender<AttachFrame>> = {
            let state = self.lock();
            let members = state.streams.get(&id).into_iter().flat_map(|stream| &stream.members);
            members.filter_map(|rank| state.attached.get(rank)).cloned().collect()
        };
        for one in to {
            // One that is gone needs nothing any more.
            let _ = one.send(frame.clone()).await;
        }
    }

    fn describe(self: &Arc<Self>, carrier: u32, described: Described) {
        let id = described.id;
        let info = NodeInfo { rank: self.rank, stream: carrier, ..NodeInfo::default() };
        let (builtins, filter) = (&self.registry, described.filter.clone());
        let made = match &described.up {
            Some(assign) => FilterWork::new(assign.at(self.rank), &assign.params, builtins, &info),
            None if filter.is_empty() => Ok(FilterWork::Pass),
            None => {
                let assign = AssignFilter::parse(&filter, true, &[]).ok();
                FilterWork::new(
                    assign.as_ref().and_then(|assign| assign.at(self.rank)),
                    &[],
                    builtins,
                    &info,
                )
            }
        };
        let chain = described
            .down
            .as_ref()
            .map(|down| Chain::new(down, &self.plan, self.rank, true, &self.registry, carrier));
        let (Ok(work), Ok(chain)) = (made, chain.transpose()) else {
            return self.leaf_fails(carrier);
        };
        let (relay, packets) = mpsc::unbounded_channel();
        let mut state = self.lock();
        let members: Vec<u32> = described
            .members
            .iter()
            .copied()
            .filter(|rank| state.attached.contains_key(rank))
            .collect();
        let word = Control::Describe(Box::new(Described {
            upward: UpwardMessage::Packets,
            up: None,
            down: None,
            ..described.clone()
        }));
        let _ = relay.send(Relayed { tag: 0, payload: word.encode().into(), bytes: 0 });
        let (described, waiting) = (Arc::new(described), BTreeMap::new());
        let meters =
            members.iter().chain([&self.rank]).map(|&rank| (rank, Meter::default())).collect();
        let (params, room) = (Vec::new(), Arc::default());
        let stream = HubStream {
            carrier,
            described,
            members,
            waiting,
            work,
            chain,
            params,
            meters,
            room,
            armed: false,
            over: false,
            relay,
        };
        state.carried.insert(carrier, id);
        if let Some(before) = state.streams.insert(id, stream) {
            before.wake();
        }
        drop(state);
        tokio::spawn(Arc::clone(self).relay(id, carrier, packets));
        if id == self.rank {
            let hub = Arc::clone(self);
            // Not within a call of the tree's.
            tokio::spawn(async move { hub.say(&HubWord::Open(hub.port)) });
        }
    }

    /// Without its filter this leaf can take no part.
    fn leaf_fails(self: &Arc<Self>, carrier: u32) {
        let hub = Arc::clone(self);
        tokio::spawn(async move { hub.leaf.with(|leaf| leaf.leave_stream(carrier)) });
    }

    fn down(self: &Arc<Self>, packet: &Packet, payload: Bytes, leaf: &mut Leaf<'_>) {
        match Down::decode(&payload, self.rank) {
            Ok(Down::Control(Control::Describe(described))) => {
                leaf.consumed(packet.stream, packet.frame_bytes);
                self.describe(packet.stream, *described);
            }
            Ok(Down::Control(Control::CatchUp { wave })) => {
                leaf.consumed(packet.stream, packet.frame_bytes);
                leaf.skip_to(packet.stream, wave);
            }
            Ok(Down::Control(Control::Moved)) => {
                leaf.consumed(packet.stream, packet.frame_bytes);
                leaf.leave_stream(packet.stream);
            }
            Ok(Down::Control(Control::Params { down, version, bytes })) => {
                leaf.consumed(packet.stream, packet.frame_bytes);
                if let Some(stream) = self.lock().carried_by(packet.stream) {
                    stream.set_params(down, version, &bytes);
                }
            }
            Ok(Down::Control(Control::Measure { id })) => {
                leaf.consumed(packet.stream, packet.frame_bytes);
                leaf.reply(
                    packet.stream,
                    packet.wave,
                    packet.tag,
                    &MeterRecord::encode(&self.records(id)),
                );
            }
            Ok(Down::Packet(body)) => self.relay_down(packet, &payload, body, None, leaf),
            Ok(Down::NotForUs(body, to)) => self.relay_down(packet, &payload, body, Some(to), leaf),
            Err(_) => leaf.consumed(packet.stream, packet.frame_bytes),
        }
    }

    /// A packet for members here, or some of them.
    fn relay_down(
        &self,
        packet: &Packet,
        payload: &Bytes,
        body: Bytes,
        to: Option<Vec<u32>>,
        leaf: &mut Leaf<'_>,
    ) {
        let mut state = self.lock();
        let Some(stream) = state.carried_by(packet.stream) else {
            return leaf.consumed(packet.stream, packet.frame_bytes);
        };
        for &rank in
            stream.members.iter().filter(|rank| to.as_ref().is_none_or(|to| to.contains(rank)))
        {
            stream.count(rank, MeterContext::Received, body.len());
        }
        stream.pass_down(packet, payload, body, leaf);
    }
}

impl HubState {
    fn carried_by(&mut self, carrier: u32) -> Option<&mut HubStream> {
        self.streams.get_mut(self.carried.get(&carrier)?)
    }
}

impl HubStream {
    fn count(&self, rank: u32, context: MeterContext, bytes: usize) {
        if let Some(meter) = self.meters.get(&rank) {
            meter.count(context, bytes);
        }
    }

    /// Lets everyone look again who waits for room.
    fn wake(&self) {
        self.room.notify_waiters();
    }

    /// Nothing goes up any more: who waits to send has nothing to wait for.
    fn end(&mut self) {
        self.over = true;
        self.waiting.clear();
        self.wake();
    }

    fn set_params(&mut self, down: bool, version: u32, bytes: &[u8]) {
        if down {
            self.chain.iter_mut().for_each(|chain| chain.set_params(bytes));
        } else {
            self.work.set_params(bytes);
            self.params.clear();
            OpenParams::put(version, bytes, &mut self.params);
        }
    }

    /// Hands a packet to the relay, changed by filters; `body` is the end of `payload`, before
    /// which stands whom it is for.
    fn pass_down(&mut self, packet: &Packet, payload: &Bytes, body: Bytes, leaf: &mut Leaf<'_>) {
        let to = payload.slice(..payload.len() - body.len());
        let payloads = match &mut self.chain {
            None => vec![(packet.tag, payload.clone())],
            // A packet that a filter refuses is left out, here as upwards.
            Some(chain) => {
                let passed = chain.run(down::parcel(packet.tag, body)).unwrap_or_default();
                let whole =
                    |parcel: Parcel| (parcel.tag, [&to[..], &parcel.packet[..]].concat().into());
                passed.into_iter().map(whole).collect()
            }
        };
        let mut bytes = packet.frame_bytes;
        for (tag, payload) in payloads {
            if self.relay.send(Relayed { tag, payload, bytes }).is_ok() {
                bytes = 0;
            }
        }
        if bytes > 0 {
            leaf.consumed(packet.stream, bytes);
        }
    }

    /// The packets of the next wave, if it is whole.
    fn row(&mut self, late: bool) -> Option<Vec<Parcel>> {
        let ready = match self.described.waits {
            Waits::Not => {
                return self.waiting.values_mut().find_map(|queue| Some(vec![queue.pop_front()?]));
            }
            Waits::ForAll | Waits::Until(_) => {
                let has =
                    |rank: &u32| self.waiting.get(rank).is_some_and(|queue| !queue.is_empty());
                self.members.iter().all(has)
            }
        };
        if !ready && !late {
            return None;
        }
        let row: Vec<Parcel> = self.waiting.values_mut().filter_map(VecDeque::pop_front).collect();
        (!row.is_empty()).then_some(row)
    }

    /// What goes up for them.
    fn combine(&mut self, row: Vec<Parcel>, rank: u32) -> Option<(i32, Vec<u8>)> {
        let tag = row.first().map_or(0, |parcel| parcel.tag);
        let (mut out, mut back, mut payload) = (Vec::new(), Vec::new(), Vec::new());
        if self.described.upward == UpwardMessage::Lists {
            payload = std::mem::take(&mut self.params);
        }
        // A packet that the filter refuses is this leaf's to leave out; the wave stays one.
        if self.work.run(row, rank, &mut out, &mut back).is_err()
            && self.described.upward == UpwardMessage::Packets
        {
            return Some((tag, vec![0]));
        }
        for parcel in out {
            self.count(rank, MeterContext::Sent, parcel.packet.len());
            match self.described.upward {
                UpwardMessage::Packets => payload.extend_from_slice(&parcel.packet),
                UpwardMessage::Parcels | UpwardMessage::Lists => {
                    Parcel::put(&mut payload, parcel.tag, parcel.source, &parcel.packet);
                }
            }
        }
        Some((tag, payload))
    }
}

async fn read(from: &mut unix::OwnedReadHalf) -> io::Result<AttachFrame> {
    let mut head = [0; HEAD_BYTES];
    from.read_exact(&mut head).await?;
    let (mut frame, len) = AttachFrame::parse(&head)?;
    let mut payload = Vec::new();
    from.take(len as u64).read_to_end(&mut payload).await?;
    if payload.len() < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    frame.payload = payload.into();
    Ok(frame)
}

async fn write(to: &mut unix::OwnedWriteHalf, frame: &AttachFrame) -> io::Result<()> {
    to.write_all(&frame.head()).await?;
    to.write_all(&frame.payload).await
}

/// The service of a hub's leaf.
struct AtHub(Arc<Hub>);

impl Service for AtHub {
    fn packet(&mut self, packet: Packet, leaf: &mut Leaf<'_>) {
        if packet.first && packet.last {
            let payload = packet.payload.clone();
            return self.0.down(&packet, payload, leaf);
        }
        let whole = {
            let mut state = self.0.lock();
            let parts = state.parts.entry(packet.stream).or_default();
            if packet.first {
                parts.clear();
            }
            parts.extend_from_slice(&packet.payload);
            if packet.last { state.parts.remove(&packet.stream) } else { None }
        };
        match whole {
            Some(whole) => self.0.down(&packet, whole.into(), leaf),
            // A packet may be longer than what may be under way.
            None => leaf.consumed(packet.stream, packet.frame_bytes),
        }
    }

    fn resume(&mut self, leaf: &mut Leaf<'_>) {
        let state = self.0.lock();
        for stream in state.streams.values().filter(|stream| !leaf.is_held(stream.carrier)) {
            stream.room.notify_waiters();
        }
    }

    fn closed(&mut self, carrier: u32) {
        let mut state = self.0.lock();
        state.parts.remove(&carrier);
        let Some(id) = state.carried.remove(&carrier) else { return };
        if let Some(stream) = state.streams.get_mut(&id).filter(|stream| stream.carrier == carrier)
        {
            // The relay ends once it has passed on what it has.
            stream.relay = mpsc::unbounded_channel().0;
            stream.end();
        }
    }

    fn ended(&mut self) {
        let mut state = self.0.lock();
        state.attached.clear();
        state.streams.values_mut().for_each(HubStream::end);
    }
}
