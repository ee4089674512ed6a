//! Multicast down, reduction up, over a tree of nodes that is never silently wrong.
//!
//! A [`topology::Topology`] says who is whose child; [`launch`] starts its nodes, in this process
//! or as processes; the [`Network`] is the root's side of what runs. A [`Stream`] sends packets
//! to a set of leaves and gives back waves, combined on the way up by a [`filter`]; each
//! [`WaveResult`] says which leaves it counts, which failed and which were silent.
//!
//! ```
//! use sheaf_tree::{Sync, filter::Registry, launch, packet, service, topology};
//! use std::time::Duration;
//! # struct One;
//! # impl service::Service for One {
//! #     fn packet(&mut self, p: sheaf_tree::Packet, leaf: &mut service::Leaf<'_>) {
//! #         leaf.consumed(p.stream, p.frame_bytes);
//! #         let one = packet::pack(&[packet::PacketValue::I32(1)]).unwrap();
//! #         leaf.reply(p.stream, p.wave, 0, &one);
//! #     }
//! # }
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let hosts: topology::Names = (1..=64).map(|n| format!("n{n}")).collect();
//! let spec = topology::Spec::parse("1x8x8")?;
//! let tree = topology::Topology::build(&spec, "root", hosts, topology::Placement::LeafHosts)?;
//! // `One` is a service that answers every packet with the number 1.
//! let services = service::Services::new(Registry::with_builtins())
//!     .with("ones", |_: &service::Site<'_>, _| Ok(Box::new(One) as Box<dyn service::Service>));
//! let network = launch::embedded(&tree, &services, &launch::Options::default());
//! let stream = network.open("ones", network.everyone(), "sum", &[], Sync::WaitForAll);
//! stream.send(100, b"", Some(Duration::from_secs(5))).await;
//! let result = stream.recv().await;
//! assert!(result.coverage.is_full());
//! assert_eq!(packet::unpack(&result.payload.unwrap())?, [packet::PacketValue::I32(64)]);
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod driver;
pub mod filter;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
pub mod launch;
pub mod link;
mod network;
pub mod probe;
pub mod seldom;
pub mod service;
pub mod status;
pub mod task;

pub use driver::{NOTICES_MAX, Want};
pub use gate::LOST as GATE_LOST;
pub use gate::{
    Admits, CLIENTS_MAX, ClientRules, EveryHost, GATE, GUESTS_MAX, Gate, GateNews, HostClient,
    HostGates, Listener, SHUT_FRESH,
};
pub use network::{Network, Pending, Stream, StreamError};
pub use proto::{Counters, Coverage, Notice, Packet, PacketContent, Sync, Tuning, WaveResult};
pub use sheaf_proto as proto;
pub use sheaf_proto::{packet, sim, topology};
