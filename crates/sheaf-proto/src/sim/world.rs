//! What happens in a simulated tree: bytes arrive, nodes work, links and processes fail.
use super::wire::shred;
use super::{Fault, Leaves, Shape, Sim, SimConfig, SimHost, SimInput, SimWhat};
use crate::config::{NodeRole, Time};
use crate::control::{Machine, MachineId};
use crate::filter::Registry;
use crate::links::LinkId;
use crate::node::{Event, Node};
use crate::own;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use sheaf_core::Errno;
use std::collections::VecDeque;
use std::time::Duration;

impl SimHost {
    pub(super) fn new(shape: &Shape, rank: u32, registry: Registry, config: &SimConfig) -> Self {
        let start = Time(0);
        let mut node = Node::new(shape.config(rank, config.tuning), registry, start);
        if rank > 0 {
            node.add_parent(start);
        }
        let links = shape.children(rank).len() + usize::from(rank > 0);
        for link in (0..links).map(LinkId::new) {
            match config.heartbeats {
                true if config.near => node.attach_near(start, link),
                true => node.attach(start, link),
                false => node.attach_quiet(link),
            }
        }
        let (own, joint) = own_leaf(&mut node, start);
        Self {
            node: Some(node),
            own,
            joint,
            stopped: false,
            waking: false,
            tick: Time(u64::MAX),
            busy: start,
            sending: start,
            serving: start,
            inbox: VecDeque::new(),
            off: false,
            up: rank,
            made: Vec::new(),
            search: None,
            tried: 0,
            place: None,
            handing_over: false,
            stays: FxHashMap::default(),
        }
    }
}

/// The leaf that a node is, or that it has of its own.
fn leaf_at<'a>(shape: &Shape, hosts: &'a mut [SimHost], rank: u32) -> Option<(u32, &'a mut Node)> {
    let host = &mut hosts[rank as usize];
    match shape.leaf(rank) {
        Some(leaf) => Some((leaf, host.node.as_mut()?)),
        None => Some((own::leaf_of(rank), host.own.as_mut()?)),
    }
}

/// Says what machine a leaf is on.
pub(super) fn set_machine(node: &mut Node, leaf: u32, machine: Option<MachineId>) {
    if let Some(id) = machine {
        let rank = node.config().rank;
        node.set_machine(Machine { id, host: format!("n{leaf}"), rank });
    }
}

/// Makes the own leaf of a node, and joins the two; a leaf has none.
pub(super) fn own_leaf(node: &mut Node, now: Time) -> (Option<Node>, (LinkId, LinkId)) {
    if node.config().role == NodeRole::Leaf {
        return (None, (LinkId::new(0), LinkId::new(0)));
    }
    let down = node.add_own_leaf(now);
    let mut own = Node::new(node.config().own_leaf(), node.registry().clone(), now);
    let up = own.add_parent(now);
    node.attach_quiet(down);
    own.attach_quiet(up);
    (Some(own), (down, up))
}

impl<L: Leaves> Sim<L> {
    /// A chunk (or the end) comes out of a wire.
    pub(super) fn arrive(&mut self, wire: u32, chunk: Option<Bytes>) {
        let trouble = self.troubles.get_mut(&(wire / 2));
        if let Some(parked) = trouble.and_then(|trouble| trouble.parked.as_mut()) {
            parked[wire as usize % 2].push_back(chunk);
            return;
        }
        if self.wires[wire as usize].deaf {
            return;
        }
        let rank = self.receiver(wire).0;
        match chunk {
            Some(chunk) => self.deliver(rank, SimInput::Bytes(wire, chunk)),
            None => self.deliver(rank, SimInput::Lost(wire)),
        }
    }

    pub(super) fn deliver(&mut self, rank: u32, input: SimInput) {
        let now = self.now;
        let host = &mut self.hosts[rank as usize];
        if host.node.is_none() {
            return;
        }
        if !host.stopped && host.busy <= now && host.inbox.is_empty() {
            self.take_in(rank, input);
            self.settle(rank);
            return;
        }
        host.inbox.push_back(input);
        if !host.stopped && !host.waking {
            host.waking = true;
            let at = host.busy.max(now);
            self.push(at, SimWhat::Wake(rank));
        }
    }

    pub(super) fn wake(&mut self, rank: u32) {
        let host = &mut self.hosts[rank as usize];
        host.waking = false;
        if host.stopped || host.node.is_none() {
            return;
        }
        for input in std::mem::take(&mut host.inbox) {
            self.take_in(rank, input);
        }
        self.settle(rank);
    }

    fn take_in(&mut self, rank: u32, input: SimInput) {
        let now = self.now;
        let link = match &input {
            // The link may be another connection's by now.
            SimInput::Bytes(wire, _) | SimInput::Lost(wire) => {
                self.receiver(*wire).1.filter(|&link| self.wire(rank, link) == Some(wire ^ 1))
            }
            _ => None,
        };
        let host = &mut self.hosts[rank as usize];
        let Some(node) = host.node.as_mut() else { return };
        host.busy = host.busy.max(now);
        match input {
            SimInput::Tick => node.tick(now),
            SimInput::Lost(_) => {
                let Some(link) = link else { return };
                node.link_lost(now, link, Errno::CONNRESET, "the link has failed");
            }
            SimInput::Serve(event) => self.serve(rank, &event),
            SimInput::Knock(connection) => self.accept(rank, connection),
            SimInput::Bytes(wire, chunk) => {
                let Some(link) = link else { return };
                let before = node.counters(link).frames_in;
                let outcome = node.receive(now, link, &chunk);
                let frames = node.counters(link).frames_in - before;
                self.traffic.frames += frames;
                host.busy = host.busy
                    + self.config.physics.work(chunk.len())
                    + self.config.physics.frame * frames as u32;
                if let Err(violation) = outcome {
                    self.traffic.violations += 1;
                    node.link_lost(now, link, Errno::PROTO, &violation.to_string());
                }
                self.release(wire, chunk.len());
            }
        }
    }

    /// The receiver has read: the sender may have waited for that.
    fn release(&mut self, wire_at: u32, bytes: usize) {
        let wire = &mut self.wires[wire_at as usize];
        wire.in_flight = wire.in_flight.saturating_sub(bytes as u32);
        if std::mem::take(&mut wire.blocked)
            && let (sender, Some(link)) = self.receiver(wire_at ^ 1)
        {
            self.flush(sender, link);
        }
    }

    /// The service of a leaf has come to what it was told.
    fn serve(&mut self, rank: u32, event: &Event) {
        let Some((leaf, node)) = leaf_at(&self.shape, &mut self.hosts, rank) else { return };
        match event {
            Event::Packet(packet) => {
                self.leaves.packet(leaf, packet, node);
                node.consumed(packet.stream, packet.frame_bytes);
            }
            event => self.leaves.other(leaf, event, node),
        }
    }

    /// The service of a leaf is told something, and deals with it when it has dealt with all
    /// before.
    fn tell_service(&mut self, rank: u32, event: Event) {
        let Some((leaf, _)) = leaf_at(&self.shape, &mut self.hosts, rank) else { return };
        let is_packet = matches!(event, Event::Packet(_));
        let think = if is_packet { self.leaves.think(leaf, &mut self.rng) } else { Duration::ZERO };
        let host = &mut self.hosts[rank as usize];
        if think.is_zero() && host.serving <= self.now {
            return self.serve(rank, &event);
        }
        host.serving = host.serving.max(self.now) + think;
        let at = host.serving;
        self.push(at, SimWhat::Serve(rank, Box::new(event)));
    }

    /// Lets a node's events, output and closed links out until there are no more.
    pub(super) fn settle(&mut self, rank: u32) {
        while let Some(node) = self.hosts[rank as usize].node.as_mut() {
            if let Some(event) = node.poll_event() {
                self.event(rank, event);
            } else if let Some(link) = node.next_dirty() {
                self.flush(rank, link);
            } else if let Some(link) = node.next_dead() {
                self.close(rank, link);
            } else if !self.settle_own(rank) {
                break;
            }
        }
        let now = self.now;
        let host = &mut self.hosts[rank as usize];
        let Some(node) = host.node.as_mut() else { return };
        if cfg!(debug_assertions)
            && let Err(broken) = node.check()
        {
            panic!("node {rank} at {} ns: {broken}", now.0);
        }
        if self.config.watch_queues {
            self.queued_bytes_peak = self.queued_bytes_peak.max(node.queued_bytes());
        }
        // A tick that is due now would be due again at once, and virtual time would never pass.
        let due = node.next_timeout().map(|due| due.max(Time(now.0 + 1)));
        if let Some(due) = due.filter(|&due| due < host.tick) {
            host.tick = due;
            self.push(due, SimWhat::Tick(rank));
        }
    }

    /// Lets one thing of a node's own leaf out; whether there was any.
    fn settle_own(&mut self, rank: u32) -> bool {
        let now = self.now;
        let SimHost { node: Some(node), own, joint, .. } = &mut self.hosts[rank as usize] else {
            return false;
        };
        let Some(leaf) = own else { return false };
        if let Some(event) = leaf.poll_event() {
            match event {
                Event::ParentLost | Event::Orphaned => *own = None,
                Event::Ready(_) | Event::Notice(_) => {}
                event => self.event(rank, event),
            }
            return true;
        }
        let Some(link) = leaf.next_dirty() else { return leaf.next_dead().is_some() };
        loop {
            for piece in leaf.output(link).take() {
                leaf.wrote(now, link, piece.len());
                if let Err(violation) = node.receive(now, joint.0, &piece) {
                    panic!("node {rank}: its own leaf breaks the protocol: {violation}");
                }
            }
            if !leaf.refill(link) {
                return true;
            }
        }
    }

    /// Gives a node's own leaf what there is for it.
    fn flush_own(&mut self, rank: u32) {
        let now = self.now;
        let SimHost { node: Some(node), own: Some(own), joint, .. } =
            &mut self.hosts[rank as usize]
        else {
            return;
        };
        loop {
            for piece in node.output(joint.0).take() {
                node.wrote(now, joint.0, piece.len());
                if let Err(violation) = own.receive(now, joint.1, &piece) {
                    panic!("node {rank} breaks the protocol to its own leaf: {violation}");
                }
            }
            if !node.refill(joint.0) {
                return;
            }
        }
    }

    fn event(&mut self, rank: u32, event: Event) {
        match event {
            Event::Opened { .. } | Event::Packet(_) | Event::Closed { .. } => {
                self.tell_service(rank, event)
            }
            Event::Orphaned => self.orphaned(rank),
            Event::ParentLost => self.end(rank),
            Event::Ready(leaves) if rank == 0 => self.ready = Some(leaves),
            Event::Notice(notice) => self.notices.push(notice),
            Event::Go(to) => self.hosts[rank as usize].place = Some(to.rank),
            Event::Ready(_) | Event::Door { .. } | Event::Verdict(_) => {}
            Event::Cancelled { .. } => {
                if let Some((leaf, node)) = leaf_at(&self.shape, &mut self.hosts, rank) {
                    self.leaves.other(leaf, &event, node);
                }
            }
        }
    }

    /// Writes what waits on a link, as far as there is room between the nodes.
    fn flush(&mut self, rank: u32, link: LinkId) {
        if self.is_own(rank, link) {
            return self.flush_own(rank);
        }
        let Some(at) = self.wire(rank, link) else { return };
        let room = self.config.physics.socket_bytes;
        let mut shreds = Vec::new();
        loop {
            let host = &mut self.hosts[rank as usize];
            let Some(node) = host.node.as_mut() else { return };
            let wire = &mut self.wires[at as usize];
            let full = wire.in_flight as usize >= room || host.stopped;
            // Nothing is read from a closed wire: waiting for room there would never end.
            if full && !wire.closed {
                wire.blocked = true;
                return;
            }
            let pieces = node.output(link).take();
            let bytes: usize = pieces.iter().map(Bytes::len).sum();
            if bytes > 0 {
                node.wrote(self.now, link, bytes);
                host.busy = host.busy.max(self.now) + self.config.physics.work(bytes);
            }
            for piece in pieces {
                if !self.config.shred {
                    self.transmit(at, piece);
                    continue;
                }
                shred(&mut self.rng, piece, &mut shreds);
                for piece in shreds.drain(..) {
                    self.transmit(at, piece);
                }
            }
            let Some(node) = self.hosts[rank as usize].node.as_mut() else { return };
            if !node.refill(link) {
                return;
            }
        }
    }

    pub(super) fn transmit(&mut self, at: u32, chunk: Bytes) {
        let sender = self.receiver(at ^ 1).0;
        let physics = &self.config.physics;
        let wire = &mut self.wires[at as usize];
        if wire.closed {
            return;
        }
        self.traffic.messages += 1;
        self.traffic.bytes += chunk.len() as u64;
        wire.in_flight += chunk.len() as u32;
        let host = &mut self.hosts[sender as usize];
        host.sending = host.sending.max(host.busy).max(self.now) + physics.sending(chunk.len());
        let jitter = u64::try_from(physics.jitter.as_nanos()).unwrap_or(u64::MAX);
        let mut arrives = host.sending + physics.latency;
        arrives.0 += if jitter == 0 { 0 } else { self.rng.u64(0..jitter) };
        if let Some(trouble) = self.troubles.get(&(at / 2)) {
            arrives = arrives + trouble.extra;
        }
        wire.arrives = wire.arrives.max(arrives);
        let arrives = wire.arrives;
        self.push(arrives, SimWhat::Chunk(at, chunk));
    }

    /// A node closes its end of a link: what it has sent still arrives, then the end.
    pub(super) fn close(&mut self, rank: u32, link: LinkId) {
        if self.is_own(rank, link) {
            self.hosts[rank as usize].own = None;
            return;
        }
        let Some(out) = self.wire(rank, link) else { return };
        self.close_wire(out);
    }

    pub(super) fn close_wire(&mut self, out: u32) {
        self.wires[(out ^ 1) as usize].deaf = true;
        let wire = &mut self.wires[out as usize];
        if !std::mem::replace(&mut wire.closed, true) {
            let at = wire.arrives.max(self.now + self.config.physics.latency);
            wire.arrives = at;
            self.push(at, SimWhat::End(out));
        }
    }

    /// A process ends: it writes what it can, and all its links close.
    fn end(&mut self, rank: u32) {
        while let Some(link) = self.hosts[rank as usize].node.as_mut().and_then(Node::next_dirty) {
            self.flush(rank, link);
        }
        for out in self.outward(rank) {
            self.close_wire(out);
        }
        self.vanish(rank);
    }

    fn vanish(&mut self, rank: u32) {
        let host = &mut self.hosts[rank as usize];
        (host.node, host.own) = (None, None);
        host.inbox = VecDeque::new();
    }

    pub(super) fn suffer(&mut self, fault: Fault) {
        match fault {
            Fault::Kill { rank } if self.node(rank).is_some() => {
                for out in self.outward(rank) {
                    self.close_wire(out);
                    // What is in flight from a killed process may still arrive, or not.
                    if self.rng.bool() {
                        self.reset(out);
                    }
                }
                self.vanish(rank);
            }
            Fault::Retire { rank } => {
                let life = self.now.0;
                if self.is_running(rank) && self.shape.leaf(rank).is_none() {
                    self.with(rank, |node, _| node.retire(life));
                }
            }
            Fault::PowerOff { rank } => {
                self.hosts[rank as usize].off = true;
                self.vanish(rank);
            }
            Fault::Stop { rank } => self.hosts[rank as usize].stopped = true,
            Fault::Continue { rank } => self.resume(rank),
            Fault::Reset { rank } => {
                let up = self.hosts[rank as usize].up;
                for wire in [2 * up, 2 * up + 1] {
                    self.reset(wire);
                }
            }
            Fault::Cut { rank } => {
                let up = self.hosts[rank as usize].up;
                let upper = self.ends(up).upper;
                self.cuts.entry(rank).or_insert((upper, up));
                self.park(up);
            }
            Fault::Isolate { rank } => {
                self.isolated.insert(rank);
                self.outward(rank).into_iter().for_each(|wire| self.park(wire / 2));
            }
            Fault::Mend { rank } => {
                let mut parked: Vec<u32> =
                    self.cuts.remove(&rank).into_iter().map(|(_, up)| up).collect();
                if self.isolated.remove(&rank) {
                    parked.extend(self.outward(rank).into_iter().map(|wire| wire / 2));
                }
                // Its other end may have no cable either.
                parked.retain(|&connection| !self.is_severed(connection));
                parked.into_iter().for_each(|connection| self.unpark(connection));
            }
            Fault::Slow { rank, by } => {
                let up = self.hosts[rank as usize].up;
                self.troubles.entry(up).or_default().extra = by;
            }
            Fault::Restart { rank } => self.restart(rank, true),
            Fault::RestartInVain { rank } => self.restart(rank, false),
            Fault::Kill { .. } => {}
        }
    }

    /// What is on its way is lost; the receiver learns that the link is gone.
    fn reset(&mut self, at: u32) {
        let wire = &mut self.wires[at as usize];
        if std::mem::replace(&mut wire.deaf, true) {
            return;
        }
        wire.closed = true;
        let rank = self.receiver(at).0;
        self.deliver(rank, SimInput::Lost(at));
    }

    fn resume(&mut self, rank: u32) {
        let host = &mut self.hosts[rank as usize];
        if !std::mem::replace(&mut host.stopped, false) || host.node.is_none() {
            return;
        }
        if !host.waking {
            host.waking = true;
            let now = self.now;
            self.push(now, SimWhat::Wake(rank));
        }
        for out in self.outward(rank) {
            if std::mem::take(&mut self.wires[out as usize].blocked)
                && let (_, Some(link)) = self.receiver(out ^ 1)
            {
                self.flush(rank, link);
            }
        }
    }
}
