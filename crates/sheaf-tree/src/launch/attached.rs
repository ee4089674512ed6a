//! Sessions whose leaves come by themselves, or are sent by Slurm.
use super::attach::{Enrolment, Tokens};
use super::hosts::seen_from;
use super::nursery::Nursery;
use super::plan::Station;
use super::processes::root_node;
use super::reception::Reception;
use super::slurm::{Srun, Step};
use super::{Carrier, LaunchError, Options, Program};
use crate::driver::Shared;
use crate::filter::Registry;
use crate::link::Ancestor;
use crate::network::{End, Network};
use crate::proto;
use crate::topology::Topology;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Who may come, and where to.
#[derive(Debug)]
pub struct Attached {
    /// Makes tokens.
    pub tokens: Arc<Tokens>,
    /// Where the enrolment listens.
    pub address: SocketAddr,
}

/// Starts the root of a session whose leaves come to an enrolment at `at`. The tree is flat: every
/// leaf is a child of the root. Who has not come after `patience` counts as lost, and may still
/// come later.
///
/// # Errors
/// When the tree is not flat, or the enrolment cannot listen.
pub async fn attached(
    topology: &Topology,
    registry: &Registry,
    options: &Options,
    program: &Program,
    at: SocketAddr,
    patience: Duration,
) -> Result<(Network, Attached), LaunchError> {
    if topology.depth() > 1 {
        return Err(io::Error::other("leaves that come by themselves need a flat tree").into());
    }
    let listener = TcpListener::bind(at)?;
    let address = listener.local_addr()?;
    let program = Program { carrier: Carrier::Tls, ..program.clone() };
    let shared = Shared::new();
    let station = Arc::new(Station::root(topology.root().rank(), &program)?);
    root_node(&shared, topology, registry, options);
    let nursery = Nursery::new(&shared, topology);
    let door = station.open_door()?;
    let ancestors = vec![Ancestor { rank: station.rank, address: door.address.clone() }];
    for (link, child) in topology.root().children().enumerate() {
        let frame = station.assignment(topology, child, options.depth + 1, options, &ancestors, false)?;
        shared.with_node(0, |node| node.send_first(link, frame));
        nursery.expect(child.rank(), link, true, None);
    }
    let authority = station.authority().ok_or_else(|| io::Error::other("no authority"))?;
    let tokens = Arc::new(Tokens::new(authority));
    let (topology, options) = (topology.clone(), options.clone());
    let leaves = topology.leaves_len();
    let reception = Reception {
        station: Arc::clone(&station),
        topology,
        options,
        nursery: Arc::clone(&nursery),
        ancestors,
    };
    let admit = move |host: &str, here: IpAddr| admit(&reception, host, here);
    let enrolment = Enrolment::start(listener, authority, Arc::clone(&tokens), Box::new(admit))?;
    let audit = shared.peek(|core| Arc::clone(&core.audit));
    let host = Arc::clone(&nursery) as Arc<_>;
    let keeper = door.keep(station.rank, station.secret.clone(), station.keys.clone(), audit, host)?;
    tokio::spawn(async move {
        tokio::time::sleep(patience).await;
        nursery.give_up_all("it has not joined");
    });
    shared.with_node(0, proto::Node::tell_ready);
    let guests = Guests { _enrolment: enrolment, _door: keeper };
    Ok((Network::new(shared, leaves, Some(Box::new(guests))), Attached { tokens, address }))
}

/// [`attached`], with one `srun` that starts a server on every host. They come to `name`, which is how
/// hosts call this one, or an address of it.
///
/// # Errors
/// As for [`attached`], and when `srun` cannot be started.
pub async fn slurm(
    topology: &Topology,
    registry: &Registry,
    options: &Options,
    (program, srun): (&Program, &Srun),
    (at, name): (SocketAddr, &str),
    patience: Duration,
) -> Result<Network, LaunchError> {
    let (network, attached) = attached(topology, registry, options, program, at, patience).await?;
    let leaves = topology.nodes().filter(|node| node.leaf_index().is_some());
    let hosts: Vec<String> = leaves.map(|leaf| leaf.host()).collect();
    let token = attached.tokens.issue(topology.leaves_len())?;
    let step = Step::start(srun, &hosts, &format!("{name}:{}", attached.address.port()), &token).await?;
    network.also_end(Box::new(step));
    Ok(network)
}

/// Gives a host that has shown its token the place of its name.
fn admit(reception: &Reception, host: &str, here: IpAddr) -> Result<super::Invitation, String> {
    let rank = reception.rank_of(host).ok_or_else(|| format!("{host} is not one of its hosts"))?;
    if reception.nursery.has(rank) {
        return Err(format!("{host} is there already"));
    }
    let invitation = reception.invite(rank).and_then(|invitation| seen_from(&invitation, Some(here)));
    invitation.map_err(|error| error.to_string())
}

/// What lets leaves in, for as long as the session lasts.
struct Guests {
    _enrolment: Arc<Enrolment>,
    _door: crate::link::door::Doorkeeper,
}

impl End for Guests {
    /// Nobody else comes in; who is there ends by itself.
    fn end(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async {})
    }
}
