//! Sessions whose servers come by themselves, or are sent by Slurm.
use super::desk::Desk;
use crate::launch::start::processes::start_root;
use crate::launch::start::slurm::{SlurmStep, Srun};
use crate::launch::{Carrier, LaunchError, Options, Program, Starter};
use crate::network::Network;
use crate::service::Services;
use crate::topology::{Role, Topology};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Starts the root of a session whose hosts come to a desk at `at`. Each is sent to its place in
/// the tree; a host of an inner node runs that as well. A host that has not come after `patience`, or
/// when the first command comes, counts as lost, and may still come later.
///
/// # Errors
/// When the desk cannot be opened.
pub async fn attached(
    topology: &Topology,
    services: &Services,
    options: &Options,
    program: &Program,
    at: SocketAddr,
    patience: Duration,
) -> Result<(Network, Desk), LaunchError> {
    let starter = Starter::Come { patience, until_asked: true };
    let program = Program { carrier: Carrier::Tls, starter, ..program.clone() };
    let (network, nursery) = start_root(topology, services, options, &program)?;
    let desk = Desk::new(nursery, at);
    desk.address()?;
    Ok((network, desk))
}

/// How much longer than what srun waits for is told, hosts are waited for of which it says nothing.
const UNTOLD: Duration = Duration::from_secs(1);

/// [`attached`], with one `srun` that starts a server on every host. They come to `name`, which is
/// how hosts call this one, or an address of it.
///
/// # Errors
/// As for [`attached`], and when `srun` cannot be started.
pub async fn slurm(
    topology: &Topology,
    services: &Services,
    options: &Options,
    (program, srun): (&Program, &Srun),
    (at, name): (SocketAddr, &str),
    patience: Duration,
) -> Result<(Network, Desk), LaunchError> {
    let starter = Starter::Come { patience: patience + UNTOLD, until_asked: false };
    let program = Program { carrier: Carrier::Tls, starter, ..program.clone() };
    let (network, nursery) = start_root(topology, services, options, &program)?;
    let desk = Desk::new(Arc::clone(&nursery), at);
    let mut hosts: Vec<String> = Vec::new();
    for node in topology.nodes().filter(|node| node.role() != Role::Root) {
        hosts.push(node.host());
    }
    hosts.sort_unstable();
    hosts.dedup();
    let token = desk.issue(u32::try_from(hosts.len()).unwrap_or(u32::MAX))?;
    let address = format!("{name}:{}", desk.address()?.port());
    let coming = (&nursery, patience);
    let step = SlurmStep::start(srun, &hosts, (&address, &token), coming, network.over()).await;
    network.also_end(Box::new(
        step.map_err(|error| LaunchError::Srun(srun.name().to_owned(), error))?,
    ));
    Ok((network, desk))
}
