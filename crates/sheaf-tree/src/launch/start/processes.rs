//! Real processes, each node starting its own children.
use super::brood::{Brood, Newborn};
use super::family::{Family, Kin};
use super::hosts::{self, Planned};
use super::plan::Station;
use super::push::this_program;
use super::spawn::{leaf_program, run_program};
use crate::driver::Shared;
use crate::launch::door::nursery::{Doorway, Nursery, hand_over, run_errands};
use crate::launch::door::reception::{Reception, bring_back};
use crate::launch::join::desk::Desk;
use crate::launch::join::invitation::{Invitation, Over};
use crate::launch::{Carrier, LaunchError, Options, Program, Starter, add_own_leaf, config};
use crate::link::{Ancestor, DoorAddress, loopback};
use crate::network::Network;
use crate::proto::frame::{self, HEADER_BYTES, Header};
use crate::proto::{self, LinkId};
use crate::service::{ServicePlace, Services};
use crate::topology::{NodeRef, Topology};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sheaf_core::Errno;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// A child of this machine whose process lives is waited for until none has come for this long:
/// among thousands that start and shake hands, each waits for the processor most of the time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Children that others have asked to be started, and that were not looked at; who asks in vain
/// asks again.
const ERRANDS_MAX: usize = 4096;

/// Starts every node of `topology` but the root as a process of its own; the root is here.
///
/// Returns at once: streams may be opened before everything runs. A process that cannot be
/// started counts as lost, with the cause.
///
/// # Errors
/// When not even a socket can be made.
pub async fn processes(
    topology: &Topology,
    services: &Services,
    options: &Options,
    program: &Program,
) -> Result<Network, LaunchError> {
    Ok(start_root(topology, services, options, program)?.0)
}

/// [`processes`] with a program that starts nodes over ssh; hosts that left may come back by
/// themselves, to a desk at `at`.
///
/// # Errors
/// As for [`processes`].
pub async fn over_ssh(
    topology: &Topology,
    services: &Services,
    options: &Options,
    program: &Program,
    at: SocketAddr,
) -> Result<(Network, Desk), LaunchError> {
    let (network, nursery) = start_root(topology, services, options, program)?;
    Ok((network, Desk::new(nursery, at)))
}

/// The root of a session whose nodes are other processes.
pub(in crate::launch) fn start_root(
    topology: &Topology,
    services: &Services,
    options: &Options,
    program: &Program,
) -> Result<(Network, Arc<Nursery>), LaunchError> {
    let shared = Shared::new();
    root_node(&shared, topology, services, options);
    let station = Arc::new(Station::root(topology.root(), program)?);
    let family = start_children(&shared, topology, options, &station, None)?;
    shared.with_node(0, proto::Node::tell_ready);
    let nursery = Arc::clone(&family.nursery);
    Ok((Network::new(shared, topology.leaves_len(), Some(Box::new(family))), nursery))
}

/// Makes the root of a session, which is node 0 of this process.
pub(in crate::launch) fn root_node(
    shared: &Arc<Shared>,
    topology: &Topology,
    services: &Services,
    options: &Options,
) {
    let config = config(topology.root(), options.tuning, options.depth);
    shared.run(|core, _| {
        core.add_node(config, services.filters().clone());
        core.nodes[0].set_identity(&topology.root().host(), std::process::id());
        add_own_leaf(
            shared,
            core,
            0,
            ServicePlace::of(topology.root(), &options.configs),
            services,
        );
    });
}

/// Starts the children of the root of `topology`, which is node 0 here, but for those that were
/// forked.
pub(in crate::launch) fn start_children(
    shared: &Arc<Shared>,
    topology: &Topology,
    options: &Options,
    station: &Arc<Station>,
    brood: Option<Brood>,
) -> io::Result<Family> {
    // Each level waits longer than the one below it takes.
    let patience = Duration::from_millis(500) + Duration::from_millis(250) * topology.depth();
    if topology.root().children().len() == 0 {
        let nursery = Nursery::new(shared, topology, None);
        return Ok(Family { patience, door: None, nursery, starting: None });
    }
    let (door, forked) = match brood {
        Some(Brood { door, children }) => (door, children),
        None => (station.open_door()?, Vec::new()),
    };
    let ancestors = station.ancestors_below(&door);
    let takes_newcomers =
        station.program.guests || !matches!(station.program.starter, Starter::Fork);
    let reception = takes_newcomers.then(|| Reception {
        station: Arc::clone(station),
        options: options.clone(),
        ancestors: ancestors.clone(),
    });
    let nursery = Nursery::new(shared, topology, reception);
    let mut far = Vec::new();
    // Who is started again while the tree runs finds out first which of its leaves are lost.
    if !station.late {
        far = start_each(shared, topology, options, forked, &nursery, (station, &ancestors));
    }
    let (secret, keys) = (station.secret.clone(), station.keys.clone());
    let audit = shared.peek(|core| {
        core.admission.door = Some(door.address.clone());
        Arc::clone(&core.admission.audit)
    });
    if takes_newcomers {
        shared.with_node(0, |node| node.listens_at(&door.address));
    }
    let host = Arc::new(Doorway(Arc::clone(&nursery)));
    let door = Some(door.keep(station.rank, secret, keys, audit, host)?);
    if takes_newcomers {
        let inviting = Arc::downgrade(&nursery);
        shared.peek(|core| {
            core.admission.invite = Some(Arc::new(move |leaf| invite(&inviting, leaf)))
        });
        // It ends with the session.
        crate::task::spawn(hand_over(Arc::downgrade(&nursery)));
    }
    let starting = look_after(&nursery, station, far, options.tuning.heartbeat_timeout);
    Ok(Family { patience, door, nursery, starting })
}

/// The invitation of a leaf below this node that comes by itself, as a launch channel has it.
fn invite(nursery: &Weak<Nursery>, leaf: u32) -> io::Result<Vec<u8>> {
    let nursery = nursery.upgrade().ok_or(io::ErrorKind::NotConnected)?;
    let node = nursery.topology().leaf(leaf).ok_or(io::ErrorKind::NotFound)?;
    let reception = nursery.reception().ok_or(io::ErrorKind::Unsupported)?;
    Ok(reception.invite(node)?.to_bytes())
}

/// Starts the children; gives those that are to be started on other hosts.
fn start_each(
    shared: &Arc<Shared>,
    topology: &Topology,
    options: &Options,
    forked: Vec<Option<io::Result<Newborn>>>,
    nursery: &Arc<Nursery>,
    (station, ancestors): (&Station, &[Ancestor]),
) -> Vec<Planned> {
    let own_host = topology.root().host();
    let mut far = Vec::new();
    let mut forked = forked.into_iter();
    for (place, child) in topology.root().children().enumerate() {
        if station.program.is_guest(child) {
            continue;
        }
        let link = LinkId::new(place);
        let birth = Birth { shared, nursery, station, ancestors, link, child };
        let born = match forked.next().flatten() {
            Some(newborn) => newborn.and_then(|newborn| birth.take_in(newborn)),
            None => {
                let frame = station.assignment(
                    topology,
                    child,
                    options.depth + 1,
                    options,
                    ancestors,
                    None,
                );
                frame.and_then(|frame| birth.start(frame, &own_host))
            }
        };
        match born {
            Ok(Born::Far(planned)) => far.push(*planned),
            Ok(Born::Here | Born::Coming) => {}
            Err(error) => shared.run(|core, now| {
                let cause = format!("its process cannot be started: {error}");
                core.nodes[0].child_dead(now, link, Errno::from_io(&error), &cause);
                core.touch(0);
            }),
        }
    }
    far
}

/// Waits for children as long as is right for how they are started, and starts lost ones again.
/// What is returned ends when all have been started.
fn look_after(
    nursery: &Arc<Nursery>,
    station: &Station,
    far: Vec<Planned>,
    stopped_max: Duration,
) -> Option<tokio::task::JoinHandle<()>> {
    let (weak, late) = (Arc::downgrade(nursery), station.late);
    let wait = match &station.program.starter {
        Starter::Ssh(how) => {
            if let Some(shared) = nursery.shared() {
                let (tell, errands) = tokio::sync::mpsc::channel(ERRANDS_MAX);
                shared.peek(|core| core.mailbox.errands = Some(tell));
                crate::task::spawn(run_errands(Weak::clone(&weak), how.clone(), errands));
            }
            if let Some(pause) = how.relaunch {
                // It ends with the session.
                crate::task::spawn(bring_back(Weak::clone(&weak), how.clone(), pause, late));
            }
            return Some(crate::task::spawn(hosts::start_all(weak, far, Arc::new(how.clone()))));
        }
        Starter::Come { patience, until_asked } => {
            let cause = "it has not joined";
            Wait { limit: *patience, cause, near: None, until_asked: *until_asked }
        }
        Starter::Fork => {
            let near = Some(stopped_max);
            let cause = "its process did not connect";
            Wait { limit: CONNECT_TIMEOUT, cause, near, until_asked: false }
        }
    };
    let children = nursery.expected_len();
    if children > 0 {
        crate::task::spawn(wait.for_children(weak, children));
    }
    None
}

/// How long children that have not connected are waited for.
struct Wait {
    limit: Duration,
    /// Why those are lost that have not come by then.
    cause: &'static str,
    /// For processes of this machine the time begins again whenever another one has come; one that
    /// is stopped has only so much.
    near: Option<Duration>,
    /// Children that have not come are lost as soon as a command comes, except those below which a
    /// node waits already.
    until_asked: bool,
}

/// How often it is looked which children are still missing.
const MISSING_LOOK: Duration = Duration::from_secs(1);
/// How often it is looked whether a command has come.
const ASKED_LOOK: Duration = Duration::from_millis(50);

impl Wait {
    async fn for_children(self, nursery: Weak<Nursery>, mut missing: usize) {
        let (mut since, mut stopped) = (Instant::now(), StoppedChildren::default());
        let look = if self.until_asked { ASKED_LOOK } else { MISSING_LOOK };
        while missing > 0 {
            tokio::time::sleep(look).await;
            let Some(nursery) = nursery.upgrade() else { return };
            if self.until_asked && nursery.is_asked() {
                nursery.give_up_absent(Errno::HOSTDOWN, self.cause);
            }
            match self.near {
                Some(_) if nursery.expected_len() != missing => since = Instant::now(),
                // Nobody comes any more: it is worth a look why.
                Some(stopped_max) => stopped.look(&nursery, stopped_max),
                None => {}
            }
            missing = nursery.expected_len();
            if since.elapsed() >= self.limit {
                return nursery.give_up_all(Errno::TIMEDOUT, self.cause);
            }
        }
    }
}

/// Children that have not connected, and whose processes are stopped: since when.
#[derive(Default)]
struct StoppedChildren(FxHashMap<u32, Instant>);

impl StoppedChildren {
    /// Gives up those that have been stopped for `stopped_max`.
    fn look(&mut self, nursery: &Nursery, stopped_max: Duration) {
        let stopped = nursery.stopped();
        self.0.retain(|rank, _| stopped.contains(rank));
        for rank in stopped {
            let since = self.0.entry(rank).or_insert_with(Instant::now).elapsed();
            if since >= stopped_max {
                let cause = format!("its process is stopped, for {} s by now", since.as_secs());
                nursery.give_up(rank, Errno::HOSTDOWN, &cause);
            }
        }
    }
}

/// A child that has been started, or is going to be.
enum Born {
    Here,
    Far(Box<Planned>),
    Coming,
}

/// One child that is about to be started.
struct Birth<'a> {
    shared: &'a Arc<Shared>,
    nursery: &'a Arc<Nursery>,
    station: &'a Station,
    ancestors: &'a [Ancestor],
    link: LinkId,
    child: NodeRef<'a>,
}

impl Birth<'_> {
    /// Takes over one that was forked, and knows already what it is to be.
    fn take_in(&self, Newborn { kin, link }: Newborn) -> io::Result<Born> {
        self.belongs(kin, link)?;
        Ok(Born::Here)
    }

    /// Starts it, if that is done on this host, whose name is `own_host`; what it is to be
    /// (`frame`) is the first thing it hears.
    fn start(&self, frame: Bytes, own_host: &str) -> io::Result<Born> {
        let program = &self.station.program;
        let is_leaf = self.child.leaf_index().is_some();
        let rank = self.child.rank();
        let leaf = leaf_program(program, self.child, &self.ancestors[0]);
        let is_here = self.child.host() == own_host;
        if program.carrier == Carrier::Unix || (program.carrier == Carrier::Ssh && is_here) {
            let program = &self.program_here();
            let pair =
                socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            let kin = Kin::of(&run_program(program, is_leaf, leaf.as_ref(), pair.1)?);
            self.send_first(frame);
            self.belongs(kin, Some(pair.0))?;
            return Ok(Born::Here);
        }
        if matches!(program.starter, Starter::Come { .. }) {
            self.send_first(frame);
            self.nursery.expect(rank, self.link, is_leaf, None);
            return Ok(Born::Coming);
        }
        let invitation = Invitation {
            secret: self.station.secret.clone(),
            rank,
            host: self.child.host(),
            ancestors: self.ancestors.to_vec(),
            credentials: self.station.credentials(rank)?,
            leaf: None,
            over: Over::Door,
        };
        // A door at every address is one for either family; whoever stands at one address is called
        // there.
        let open = match &self.ancestors[0].address {
            DoorAddress::Tcp(all) => all.iter().map(SocketAddr::ip).find(IpAddr::is_unspecified),
            DoorAddress::Abstract(_) => None,
        };
        let here = open.map(|open| loopback(Some(open).filter(IpAddr::is_ipv4))).transpose()?;
        let near = |invitation| hosts::seen_from(invitation, here);
        if matches!(program.starter, Starter::Fork) {
            let channel = near(&invitation)?.with_assignment(&frame)?;
            let kin = Kin::of(&run_program(program, is_leaf, leaf.as_ref(), channel)?);
            self.belongs(kin, None)?;
            return Ok(Born::Here);
        }
        self.send_first(frame);
        if !is_here {
            self.nursery.expect(rank, self.link, is_leaf, None);
            let invitation = Invitation { leaf, ..invitation };
            let (host, sudo) = (self.child.host(), program.sudo && is_leaf);
            return Ok(Born::Far(Box::new(Planned { rank, host, invitation, sudo })));
        }
        let (theirs, ours) = io::pipe()?;
        let program = self.program_here();
        let kin = Kin::of(&run_program(&program, is_leaf, leaf.as_ref(), theirs.into())?);
        // A pipe takes this much at once, whether anybody reads or not.
        near(&invitation)?.write(ours)?;
        self.belongs(kin, None)?;
        Ok(Born::Here)
    }

    /// What runs on this host: where nodes have other hosts, the root's path means nothing there.
    fn program_here(&self) -> Program {
        let program = &self.station.program;
        let is_theirs =
            matches!(program.starter, Starter::Ssh(_)) && !self.station.ancestors.is_empty();
        let path = if is_theirs { this_program() } else { program.path.clone() };
        Program { path, ..program.clone() }
    }

    fn send_first(&self, frame: Bytes) {
        self.shared.with_node(0, |node| node.send_first(self.link, frame));
    }

    /// The child is the process `kin`, over `link` or soon at the door.
    fn belongs(&self, kin: Kin, link: Option<OwnedFd>) -> io::Result<()> {
        let (rank, is_leaf) = (self.child.rank(), self.child.leaf_index().is_some());
        let Some(link) = link else {
            self.nursery.expect(rank, self.link, is_leaf, Some(kin));
            return Ok(());
        };
        self.nursery.started(rank, &kin);
        self.shared.attach(0, self.link, link, Some(kin.as_peer(is_leaf)))
    }
}

/// Reads the first frame of a link, blocking, at most `limit`.
pub(in crate::launch) fn read_first(
    link: &OwnedFd,
    limit: Duration,
) -> io::Result<(Header, Vec<u8>)> {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    set_socket_timeout(link, Timeout::Recv, Some(limit))?;
    read_frame(&mut std::fs::File::from(link.try_clone()?))
}

/// Reads one frame, and nothing behind it.
pub(in crate::launch) fn read_frame(from: &mut impl Read) -> io::Result<(Header, Vec<u8>)> {
    let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    let mut head = [0; HEADER_BYTES];
    from.read_exact(&mut head)?;
    let header = Header::parse(&head).map_err(|violation| wrong(violation.to_string()))?;
    let header = header.ok_or_else(|| wrong("no frame".to_owned()))?;
    let mut body = vec![0; header.body_len as usize];
    from.read_exact(&mut body)?;
    Ok((header, body))
}

const _: () = assert!(frame::BODY_BYTES_MAX < u32::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Names, Placement, Spec};

    /// A nursery that expects every child of a flat tree of `len`.
    fn expecting(len: u32) -> (Arc<Shared>, Arc<Nursery>) {
        let names: Names = (0..len).map(|host| format!("n{host}")).collect();
        let tree = Topology::build(&Spec::Flat, "root", names, Placement::LeafHosts).unwrap();
        let shared = Shared::new();
        let options = Options::default();
        root_node(
            &shared,
            &tree,
            &Services::new(crate::filter::Registry::with_builtins()),
            &options,
        );
        let nursery = Nursery::new(&shared, &tree, None);
        for (place, child) in tree.root().children().enumerate() {
            nursery.expect(child.rank(), LinkId::new(place), true, None);
        }
        (shared, nursery)
    }

    fn wait(is_near: bool) -> Wait {
        let near = is_near.then_some(Duration::from_secs(6));
        Wait { limit: CONNECT_TIMEOUT, cause: "it has not come", near, until_asked: false }
    }

    #[tokio::test(start_paused = true)]
    async fn children_are_waited_for_as_long_as_others_come() {
        let (_shared, nursery) = expecting(5);
        let waiting = crate::task::spawn(wait(true).for_children(Arc::downgrade(&nursery), 5));
        for rank in 1..=3 {
            tokio::time::sleep(CONNECT_TIMEOUT * 9 / 10).await;
            nursery.give_up(rank, Errno::HOSTDOWN, "stands for one that has come");
            assert_eq!(
                nursery.expected_len(),
                5 - rank as usize,
                "two have as long as others need"
            );
        }
        let silent_since = Instant::now();
        waiting.await.unwrap();
        assert_eq!(nursery.expected_len(), 0);
        assert!(
            silent_since.elapsed() >= CONNECT_TIMEOUT
                && silent_since.elapsed() <= CONNECT_TIMEOUT * 2
        );
    }

    #[tokio::test(start_paused = true)]
    async fn children_that_never_came_are_lost_at_the_first_stream() {
        let (shared, nursery) = expecting(3);
        let wait = Wait { until_asked: true, ..wait(false) };
        let waiting = crate::task::spawn(wait.for_children(Arc::downgrade(&nursery), 3));
        tokio::time::sleep(CONNECT_TIMEOUT / 2).await;
        assert_eq!(nursery.expected_len(), 3, "nothing waits for them");
        let members = sheaf_core::RangeSet::full(3);
        let sync = crate::Sync::WaitForAll;
        shared.with_node(0, |node| node.open("none", members, "sum", &[], sync));
        let asked = Instant::now();
        waiting.await.unwrap();
        assert!(nursery.expected_len() == 0 && asked.elapsed() <= ASKED_LOOK * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn self_started_children_have_the_whole_connect_timeout() {
        let (_shared, nursery) = expecting(2);
        let (begun, waiting) =
            (Instant::now(), wait(false).for_children(Arc::downgrade(&nursery), 2));
        let come = async {
            tokio::time::sleep(CONNECT_TIMEOUT / 2).await;
            nursery.give_up(1, Errno::HOSTDOWN, "stands for one that has come");
        };
        tokio::join!(waiting, come);
        assert_eq!(
            (nursery.expected_len(), begun.elapsed().as_secs()),
            (0, CONNECT_TIMEOUT.as_secs())
        );
    }
}
