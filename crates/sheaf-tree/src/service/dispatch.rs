//! The services of one node, and which stream is whose.
use super::{Audience, Caller, Configs, Leaf, LeafHandle, Service, ServiceError, Services, Site};
use crate::driver::Works;
use crate::proto::{Node, Packet};
use crate::topology::NodeRef;
use rustc_hash::FxHashMap;
use sheaf_core::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The most streams of one user that is not the process's at one node.
const USER_STREAMS_MAX: usize = 1024;

/// The services at one node.
pub(crate) struct Dispatch {
    services: Services,
    place: ServicePlace,
    handle: LeafHandle,
    /// By their place among the services.
    running: Vec<Option<Box<dyn Service>>>,
    streams: FxHashMap<u32, ServiceLine>,
    /// How many of them each user has that is not the process's.
    guests: FxHashMap<u32, usize>,
}

/// Where a node is, as services are told.
pub(crate) struct ServicePlace {
    pub leaf: Option<u32>,
    pub rank: u32,
    pub host: String,
    pub configs: Configs,
}

impl ServicePlace {
    /// Of a node of the tree.
    pub fn of(node: NodeRef<'_>, configs: &Configs) -> Self {
        Self {
            leaf: node.leaf_index(),
            rank: node.rank(),
            host: node.host(),
            configs: configs.clone(),
        }
    }
}

/// A stream.
struct ServiceLine {
    desk: DispatchDesk,
    /// The user among whose streams it counts.
    guest: Option<u32>,
    /// The packet whose parts are coming wants an answer.
    asks: bool,
}

/// Who deals with a stream.
#[derive(Debug, Clone, Copy)]
enum DispatchDesk {
    Service(usize),
    /// Nobody, and why.
    Closed(Errno),
}

impl Dispatch {
    /// The services of a leaf, all of them made.
    ///
    /// # Errors
    /// When one of them cannot be.
    pub fn at_leaf(
        services: &Services,
        place: ServicePlace,
        handle: LeafHandle,
    ) -> Result<Self, ServiceError> {
        let mut dispatch = Self::new(services, place, handle);
        for at in 0..dispatch.running.len() {
            if dispatch.is_here(at) {
                dispatch.start(at)?;
            }
        }
        Ok(dispatch)
    }

    /// The services of a node that is no leaf, none of them made yet.
    pub fn new(services: &Services, place: ServicePlace, handle: LeafHandle) -> Self {
        let running = services.providers.iter().map(|_| None).collect();
        let (streams, guests) = (FxHashMap::default(), FxHashMap::default());
        Self { services: services.clone(), place, handle, running, streams, guests }
    }

    fn is_here(&self, at: usize) -> bool {
        match self.services.providers[at].1.audience() {
            Audience::Leaves => self.place.leaf.is_some(),
            Audience::Inner => self.place.leaf.is_none(),
            Audience::Everyone => true,
        }
    }

    fn start(&mut self, at: usize) -> Result<(), ServiceError> {
        let (name, provider) = &self.services.providers[at];
        let ServicePlace { leaf, rank, host, configs } = &self.place;
        let config = configs.get(name).map_or(&[][..], |config| config);
        let site = Site { leaf: *leaf, rank: *rank, host, config };
        self.running[at] = Some(provider.start(&site, self.handle.clone())?);
        Ok(())
    }

    /// Whether a user may have one more stream.
    fn has_room(&self, guest: Option<u32>) -> bool {
        guest
            .is_none_or(|guest| self.guests.get(&guest).is_none_or(|open| *open < USER_STREAMS_MAX))
    }

    /// A user has one stream less.
    fn count_less(&mut self, guest: Option<u32>) {
        let Some(guest) = guest else { return };
        if let Some(open) = self.guests.get_mut(&guest) {
            *open -= 1;
            if *open == 0 {
                self.guests.remove(&guest);
            }
        }
    }

    /// Finds out whose a stream is.
    fn assign(&mut self, name: &str, caller: &Caller) -> DispatchDesk {
        let Some(at) = self.services.position(name).filter(|&at| self.is_here(at)) else {
            return DispatchDesk::Closed(Errno::NOSYS);
        };
        if let Err(errno) = self.services.providers[at].1.check(caller) {
            return DispatchDesk::Closed(errno);
        }
        if self.running[at].is_none()
            && let Err(error) = self.start(at)
        {
            tracing::warn!(service = name, cause = error.cause, "a service could not start");
            return DispatchDesk::Closed(error.errno);
        }
        DispatchDesk::Service(at)
    }

    /// Calls a service, if it runs. One that panics is dropped, and whatever was open for it is
    /// open no more; returns whether it did not.
    #[inline]
    fn call(&mut self, at: usize, act: impl FnOnce(&mut dyn Service)) -> bool {
        let Some(service) = &mut self.running[at] else { return true };
        let well = catch_unwind(AssertUnwindSafe(|| act(&mut **service))).is_ok();
        if !well {
            self.drop_broken(at);
        }
        well
    }

    #[cold]
    fn drop_broken(&mut self, at: usize) {
        let name = &*self.services.providers[at].0;
        tracing::error!(
            service = name,
            host = self.place.host,
            "a service has panicked, and is dropped"
        );
        drop_carefully(name, self.running[at].take());
        for ServiceLine { desk, .. } in self.streams.values_mut() {
            if matches!(desk, DispatchDesk::Service(other) if *other == at) {
                *desk = DispatchDesk::Closed(Errno::NOTRECOVERABLE);
            }
        }
    }
}

impl Works for Dispatch {
    fn opened(&mut self, stream: u32, name: &str, caller: &Caller) {
        let guest = match caller {
            Caller::User { uid, is_owner: false, .. } => Some(*uid),
            _ => None,
        };
        let desk = match self.has_room(guest) {
            true => self.assign(name, caller),
            false => DispatchDesk::Closed(Errno::AGAIN),
        };
        // One that is refused takes nothing.
        let guest = guest.filter(|_| matches!(desk, DispatchDesk::Service(_)));
        if let Some(guest) = guest {
            *self.guests.entry(guest).or_default() += 1;
        }
        // It may have been open as it was before the node above was another.
        if let Some(old) = self.streams.insert(stream, ServiceLine { desk, guest, asks: false }) {
            self.count_less(old.guest);
        }
        if let DispatchDesk::Service(at) = desk {
            self.call(at, |service| service.opened(stream, caller));
        }
    }

    #[inline]
    fn packet(&mut self, packet: Packet, leaf: &mut Node) {
        let leaf = &mut Leaf { node: leaf };
        let (stream, wave, first) = (packet.stream, packet.wave, packet.first);
        let Some(line) = self.streams.get_mut(&stream) else {
            return refuse(&packet, Errno::NOSYS, leaf);
        };
        if first {
            line.asks = packet.expect.is_some();
        }
        let asks = line.asks;
        match line.desk {
            DispatchDesk::Service(at) => {
                if !self.call(at, |service| service.packet(packet, leaf)) && asks {
                    leaf.fail(stream, wave, Errno::NOTRECOVERABLE);
                }
            }
            DispatchDesk::Closed(errno) => refuse(&packet, errno, leaf),
        }
    }

    fn cancelled(&mut self, stream: u32, wave: u64, leaf: &mut Node) {
        let leaf = &mut Leaf { node: leaf };
        if let Some(&ServiceLine { desk: DispatchDesk::Service(at), .. }) =
            self.streams.get(&stream)
        {
            self.call(at, |service| service.cancelled(stream, wave, leaf));
        }
    }

    fn closed(&mut self, stream: u32) {
        let Some(ServiceLine { desk, guest, .. }) = self.streams.remove(&stream) else { return };
        self.count_less(guest);
        if let DispatchDesk::Service(at) = desk {
            self.call(at, |service| service.closed(stream));
        }
    }

    fn resume(&mut self, leaf: &mut Node) {
        let leaf = &mut Leaf { node: leaf };
        for at in 0..self.running.len() {
            self.call(at, |service| service.resume(leaf));
        }
    }

    fn cut_off(&mut self) {
        for at in 0..self.running.len() {
            self.call(at, |service| service.cut_off());
        }
    }

    fn ended(&mut self) {
        self.streams.clear();
        self.guests.clear();
        for at in 0..self.running.len() {
            self.call(at, |service| service.ended());
        }
    }
}

impl Drop for Dispatch {
    fn drop(&mut self) {
        for (service, (name, _)) in self.running.iter_mut().zip(self.services.providers.iter()) {
            drop_carefully(name, service.take());
        }
    }
}

/// Takes a packet that nobody deals with.
fn refuse(packet: &Packet, errno: Errno, leaf: &mut Leaf<'_>) {
    leaf.consumed(packet.stream, packet.frame_bytes);
    // Its first part says whether somebody waits.
    if packet.expect.is_some() {
        leaf.fail(packet.stream, packet.wave, errno);
    }
}

fn drop_carefully(name: &str, service: Option<Box<dyn Service>>) {
    if catch_unwind(AssertUnwindSafe(|| drop(service))).is_err() {
        tracing::error!(service = name, "a service has panicked while it was dropped");
    }
}
