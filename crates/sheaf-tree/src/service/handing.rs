//! What `benches/dispatch.rs` times: a packet handed to its service, and the call alone. No part of
//! the API.
#![allow(missing_docs)]
use super::{Caller, Dispatch, Leaf, LeafHandle, Service, ServiceError, ServicePlace, Services};
use crate::driver::Works;
use crate::proto::{Node, NodeConfig, NodeRole, Packet, Time, Tuning};
use sheaf_core::RangeSet;
use std::sync::Weak;

/// A leaf with its services, and a service beside it.
pub struct Handing {
    dispatch: Box<dyn Works>,
    node: Node,
    alone: Box<dyn Service>,
}

impl Handing {
    /// Streams `0..streams` are open for `service`.
    ///
    /// # Errors
    /// When a service cannot be made.
    pub fn new(
        services: &Services,
        service: &str,
        streams: u32,
        alone: Box<dyn Service>,
    ) -> Result<Self, ServiceError> {
        let config = NodeConfig {
            rank: 1,
            role: NodeRole::Leaf,
            depth: 1,
            leaves: RangeSet::single(0),
            children: Vec::new(),
            stream_base: 0,
            place: Default::default(),
            tuning: Tuning::default(),
        };
        let node = Node::new(config, services.filters().clone(), Time(0));
        let place = ServicePlace {
            leaf: Some(0),
            rank: 1,
            host: "n1".to_owned(),
            configs: Default::default(),
        };
        let handle = LeafHandle { shared: Weak::new(), node: 0 };
        let mut dispatch = Dispatch::at_leaf(services, place, handle)?;
        (0..streams).for_each(|stream| dispatch.opened(stream, service, &Caller::Owner));
        Ok(Self { dispatch: Box::new(dispatch), node, alone })
    }

    /// As the driver hands it over.
    #[inline(never)]
    pub fn hand(&mut self, packet: Packet) {
        self.dispatch.packet(packet, &mut self.node);
    }

    /// The call alone.
    #[inline(never)]
    pub fn call(&mut self, packet: Packet) {
        self.alone.packet(packet, &mut Leaf { node: &mut self.node });
    }
}
