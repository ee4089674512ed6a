//! A server or inner node: a process that was started by its parent.
use super::invitation::{ChannelKind, Invitation, Patient};
use super::invited::LinkedNode;
use super::machine::machine_of;
use super::peer::{Introductions, PEERS};
use super::place::{ASSIGN_TIMEOUT, SaidPlace, find_place, hear, said};
use super::search::{Arrival, ParentIs, Search, arrive_near, attach_parent, find_parent};
use super::sole::{hold_place, take_place};
use crate::driver::Shared;
use crate::filter::end_when_held_up;
use crate::launch::join::invited;
use crate::launch::start::brood::{Brood, bear};
use crate::launch::start::plan::Station;
use crate::launch::start::processes::{read_first, read_frame, start_children};
use crate::launch::start::push::take_name;
use crate::launch::start::slurm::STEP_END_PAUSE;
use crate::launch::{Options, add_own_leaf, config};
use crate::link::tls::Keys;
use crate::link::wire::{Channel, peer_user};
use crate::link::{Ancestor, DoorAddress};
use crate::network::NetworkEnd;
use crate::proto::control::{Assign, PROTOCOL_VERSION};
use crate::proto::{LinkId, Node, NodeRole};
use crate::service::{Dispatch, LeafHandle, ServicePlace, Services};
use crate::topology::{NodeRef, Topology};
use rustix::net::AddressFamily;
use rustix::process::Uid;
use sheaf_core::Errno;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// How long the launcher may take to hand over an invitation.
const INVITATION_TIMEOUT: Duration = Duration::from_secs(20);
/// A node could not begin to serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// No parent, or a link that fails.
    #[error("no link to a parent")]
    Link(#[from] io::Error),
    /// Nobody answers where the parent is to be, and there is another way to it.
    #[error("no link to a parent")]
    Unreached(#[source] io::Error),
    /// The parent is another version of the program.
    #[error("the parent speaks protocol {theirs}, this program {PROTOCOL_VERSION}")]
    Version {
        /// The parent's.
        theirs: u32,
    },
    /// The place is another host's.
    #[error("this node was started for {own}, and its parent takes it for {theirs}")]
    Name {
        /// What it was started for.
        own: String,
        /// The host at that place in the tree.
        theirs: String,
    },
    /// The assignment makes no sense.
    #[error("the parent sent a malformed assignment")]
    Assignment,
    /// The root admits no such client on this host, for this reason.
    #[error("{0}")]
    Refused(String),
    /// This program can only be a leaf, and is to have children.
    #[error("this program was started as an inner node, and can only be a leaf")]
    NotALeaf,
    /// It was called where a runtime is: it blocks, and has one of its own.
    #[error("a node has an async runtime of its own, and is to be started outside of any other")]
    Runtime,
}

/// What this process was started with on its standard input, for [`serve`]; `/dev/null` takes its
/// place, so that nobody else reads it, and it is closed when the node's link is.
///
/// # Errors
/// When there is none, or no descriptor is left.
pub fn take_stdin() -> io::Result<OwnedFd> {
    let link = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(link)
}

/// Runs a node until its parent is gone: blocks, outside of any async runtime. `stdin` is what its
/// parent started it with ([`take_stdin`]).
///
/// # Errors
/// See [`ServeError`]; once the node runs it ends without one.
pub fn serve(stdin: OwnedFd, services: &Services) -> Result<(), ServeError> {
    take_name();
    serve_as(stdin, How::Started, services)
}

/// [`serve`], for a node whose parent is on another host and has started it by
/// [`crate::launch::invited`].
///
/// # Errors
/// As [`serve`]; until the node has joined, errors are seen by whoever started it.
pub fn serve_invited(stdin: OwnedFd, services: &Services) -> Result<(), ServeError> {
    take_name();
    match serve_as(stdin, How::Invited, services) {
        Err(ServeError::Unreached(error)) => {
            tracing::info!(%error, "the node above is not reached");
            invited::say_unreached();
            Ok(())
        }
        served => served,
    }
}

/// Runs a node over the channel that it was invited over, until its parent is gone.
///
/// # Errors
/// As [`serve`].
pub fn serve_here(linked: Box<LinkedNode>, services: &Services) -> Result<(), ServeError> {
    let LinkedNode { invitation, from, to, own } = *linked;
    let deadline = Instant::now() + ASSIGN_TIMEOUT;
    let (header, body) = read_frame(&mut Patient { fd: from.as_fd(), deadline })?;
    let SaidPlace::Assign(assign) = said(&header, &body)? else {
        return Err(ServeError::Assignment);
    };
    let link = Channel { out: to, over_ssh: true, ..Channel::from(from) };
    let bidden = Bidden::of(invitation)?;
    let mut placed = Placed::new(Uplink::Open(link), &assign, Some(bidden))?;
    placed.station.uplink = own;
    serve_told(Told::Place(Box::new(placed)), How::Linked, services)
}

/// [`serve`], for a server that has come by itself. `node` is what it runs, as soon as it does. If
/// it is of a job, its root is told of the end of that by whoever runs the job.
pub(super) fn serve_joined(
    stdin: OwnedFd,
    in_job: bool,
    node: &OnceLock<Weak<Shared>>,
    services: &Services,
) -> Result<(), ServeError> {
    serve_as(stdin, How::Joined { in_job, node }, services)
}

/// How a process has come to serve.
#[derive(Clone, Copy)]
enum How<'a> {
    /// Its parent has started it.
    Started,
    /// Its parent has started it over a channel that it has to let go of.
    Invited,
    /// It has come by itself; see [`serve_joined`].
    Joined { in_job: bool, node: &'a OnceLock<Weak<Shared>> },
    /// Its parent has started it over a channel that is its link.
    Linked,
    /// It is somebody else's program, which can start no other.
    OnlyALeaf,
}

/// Runs a leaf inside a program that has other things to do as well, until its parent is gone, on
/// the runtime that polls this. `link` is the descriptor that [`crate::launch::LINK_VARIABLE`]
/// names.
///
/// # Errors
/// See [`ServeError`]; [`ServeError::NotALeaf`] when this place in the tree is for a program that
/// can start others.
pub async fn leaf_over(link: OwnedFd, services: &Services) -> Result<(), ServeError> {
    // It was left open for this program only, not for those that it starts.
    rustix::io::fcntl_setfd(&link, rustix::io::FdFlags::CLOEXEC).map_err(io::Error::from)?;
    let told = match ChannelKind::of(&link)? {
        Some(ChannelKind::Both) => told(link)?,
        // A program that has other things to do does not wait for it in a blocking way.
        _ => Told::Unread(link),
    };
    arrive_as(told, How::OnlyALeaf, services).await
}

fn serve_as(channel: OwnedFd, how: How<'_>, services: &Services) -> Result<(), ServeError> {
    outside_of_runtimes()?;
    serve_told(told(channel)?, how, services)
}

fn outside_of_runtimes() -> Result<(), ServeError> {
    match tokio::runtime::Handle::try_current() {
        Ok(_) => Err(ServeError::Runtime),
        Err(_) => Ok(()),
    }
}

fn serve_told(told: Told, how: How<'_>, services: &Services) -> Result<(), ServeError> {
    outside_of_runtimes()?;
    // Children are forked before there is a runtime, which they would share.
    let told = match told {
        Told::Place(placed) => Told::Place(Box::new(bear(*placed)?)),
        unread @ Told::Unread(_) => unread,
    };
    // How many threads may block is for the services to say, which know what each of them is at.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(Duration::from_secs(2))
        .build()?;
    let done = runtime.block_on(arrive_as(told, how, services));
    // A file operation that hangs must not keep the process.
    runtime.shutdown_timeout(Duration::from_millis(200));
    done
}

async fn arrive_as(told: Told, how: How<'_>, services: &Services) -> Result<(), ServeError> {
    let mut placed = match told {
        Told::Place(placed) => *placed,
        Told::Unread(channel) => Placed::arrive(channel).await?,
    };
    let arrival = match std::mem::replace(&mut placed.link, Uplink::Door) {
        Uplink::Open(channel) => {
            let at = ParentIs::of(&placed.station.ancestors);
            Arrival { channel, at, as_orphan: false }
        }
        // A little earlier than the one above gives up who is stopped, and those below it.
        Uplink::Door => {
            arrive_near(&placed.station, placed.options.tuning.heartbeat_timeout / 2).await?
        }
    };
    if matches!(how, How::Invited | How::Linked) {
        invited::say_joined(placed.topology.root().leaf_index().is_some());
    }
    if matches!(how, How::OnlyALeaf) && placed.topology.root().leaf_index().is_none() {
        return Err(ServeError::NotALeaf);
    }
    run(placed, arrival, how, services).await
}

/// What a process knows before it has a runtime.
enum Told {
    /// Who it is.
    Place(Box<Placed>),
    /// That it can learn by way of this.
    Unread(OwnedFd),
}

/// Reads what `channel` has for a process that may block, as far as nobody has to be called for it.
fn told(channel: OwnedFd) -> Result<Told, ServeError> {
    Ok(Told::Place(Box::new(match ChannelKind::of(&channel)? {
        Some(ChannelKind::Link) => {
            let (header, body) = read_first(&channel, ASSIGN_TIMEOUT)?;
            let SaidPlace::Assign(assign) = said(&header, &body)? else {
                return Err(ServeError::Assignment);
            };
            Placed::new(Uplink::Open(channel.into()), &assign, None)?
        }
        Some(ChannelKind::Both) => {
            let mut memory = File::from(channel);
            let invitation = Invitation::read(&memory, INVITATION_TIMEOUT)?;
            let (header, body) = read_frame(&mut memory)?;
            let SaidPlace::Assign(assign) = said(&header, &body)? else {
                return Err(ServeError::Assignment);
            };
            Placed::new(Uplink::Door, &assign, Some(Bidden::of(invitation)?))?
        }
        _ => return Ok(Told::Unread(channel)),
    })))
}

/// A node that has been told who it is and does nothing yet.
pub(in crate::launch) struct Placed {
    pub link: Uplink,
    pub topology: Topology,
    pub station: Station,
    pub options: Options,
    pub siblings: u32,
    /// Its children, if they are there already.
    pub brood: Option<Brood>,
}

/// The way to a parent.
pub(in crate::launch) enum Uplink {
    Open(Channel),
    /// It is to be called at its door.
    Door,
}

/// What a node knows from its invitation.
struct Bidden {
    /// For whom it was started.
    host: String,
    keys: Option<Keys>,
    /// As this host can reach them.
    ancestors: Vec<Ancestor>,
}

impl Bidden {
    fn of(invitation: Invitation) -> io::Result<Self> {
        let keys = invitation.credentials.as_ref().map(Keys::new).transpose()?;
        let Invitation { host, ancestors, .. } = invitation;
        Ok(Self { host, keys, ancestors })
    }
}

impl Placed {
    /// Follows `channel`, which is the link to the parent or has an invitation to it.
    async fn arrive(channel: OwnedFd) -> Result<Self, ServeError> {
        if ChannelKind::of(&channel)? == Some(ChannelKind::Link) {
            let (link, said) = hear(Channel::from(channel)).await?;
            let SaidPlace::Assign(assign) = said else { return Err(ServeError::Assignment) };
            return Self::new(Uplink::Open(link), &assign, None);
        }
        let invitation = Invitation::read(&channel, INVITATION_TIMEOUT)?;
        let keys = invitation.credentials.as_ref().map(Keys::new).transpose()?;
        let (link, assign, ancestors) = find_place(&invitation, keys.as_ref()).await?;
        let bidden = Bidden { host: invitation.host, keys, ancestors };
        Self::new(Uplink::Open(link), &assign, Some(bidden))
    }

    /// The node of that assignment.
    fn new(link: Uplink, assign: &Assign, bidden: Option<Bidden>) -> Result<Self, ServeError> {
        let topology =
            Topology::decode(&mut &assign.subtree[..]).map_err(|_| ServeError::Assignment)?;
        let theirs = topology.root().host();
        let (own, keys, ancestors) = match bidden {
            Some(Bidden { host, keys, ancestors }) => (host, keys, ancestors),
            None => (theirs.clone(), None, assign.ancestors.clone()),
        };
        if own != theirs {
            return Err(ServeError::Name { own, theirs });
        }
        let station = Station::assigned(topology.root(), assign, keys, ancestors);
        let mut station = station.ok_or(ServeError::Assignment)?;
        match &link {
            Uplink::Open(link) if link.over_ssh => station.is_over_ssh = true,
            Uplink::Open(link) => {
                station.uplink = local_ip(&link.fd);
                station.user = maker_of(&link.fd).unwrap_or(station.user);
            }
            // From one address of this machine to another, which is the same then.
            Uplink::Door => station.uplink = station.ancestors.first().and_then(ip_of),
        }
        let siblings = assign.siblings;
        let configs = postcard::from_bytes(&assign.service).map_err(|_| ServeError::Assignment)?;
        let options = Options { tuning: assign.tuning, configs, depth: assign.depth };
        Ok(Self { link, topology, station, options, siblings, brood: None })
    }
}

/// A number that no other process has.
fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(bytes))
}

/// Who has made a pair of unix sockets.
fn maker_of(fd: &OwnedFd) -> Option<Uid> {
    let is_unix = rustix::net::sockopt::socket_domain(fd).ok()? == AddressFamily::UNIX;
    is_unix.then(|| peer_user(fd).ok())?
}

/// Where an ancestor is on TCP.
fn ip_of(ancestor: &Ancestor) -> Option<IpAddr> {
    let DoorAddress::Tcp(all) = &ancestor.address else { return None };
    all.first().map(SocketAddr::ip)
}

/// The address of our end of a TCP connection.
fn local_ip(fd: &OwnedFd) -> Option<IpAddr> {
    SocketAddr::try_from(rustix::net::getsockname(fd).ok()?).ok().map(|at| at.ip())
}

/// Makes the node that this process is. Gives the link to its parent; `as_orphan`, to one that does
/// not wait for it.
fn begin(shared: &Arc<Shared>, placed: &Placed, as_orphan: bool, services: &Services) -> LinkId {
    let Placed { topology, station, options, siblings, .. } = placed;
    let root = topology.root();
    let mut config = config(root, options.tuning, options.depth);
    config.place.siblings = *siblings;
    let role = config.role;
    let guests = station.program.guests_of(root);
    shared.run(|core, now| {
        core.membership.may_search = !station.ancestors.is_empty();
        core.add_node(config, services.filters().clone());
        if !guests.is_empty() {
            core.nodes[0].begin_without(&guests);
        }
        core.nodes[0].set_identity(&root.host(), std::process::id());
        if role == NodeRole::Leaf
            && let Some(machine) = machine_of(station, &options.configs)
        {
            core.nodes[0].set_machine(machine);
        }
        if station.late {
            core.nodes[0].count_on(station.epoch);
            match role {
                NodeRole::Leaf => core.nodes[0].begin_late(),
                _ => core.nodes[0].begin_empty(),
            }
        }
        if role != NodeRole::Leaf {
            add_own_leaf(shared, core, 0, ServicePlace::of(root, &options.configs), services);
        }
        // Who comes late has to say what it stands for, as an orphan does.
        if !station.late && !as_orphan {
            return core.nodes[0].add_parent(now);
        }
        core.nodes[0].resume_parent(now)
    })
}

async fn run(
    placed: Placed,
    Arrival { channel, at, as_orphan }: Arrival,
    how: How<'_>,
    services: &Services,
) -> Result<(), ServeError> {
    // A process that hangs may have the place of one that is started anew.
    let place = match placed.station.late || as_orphan {
        true => take_place(&placed.station).await,
        false => None,
    };
    let shared = Shared::new();
    let parent = begin(&shared, &placed, as_orphan, services);
    if let How::Joined { node, .. } = how {
        // There is one node in this process.
        let _ = node.set(Arc::downgrade(&shared));
    }
    let Placed { topology, station, options, brood, .. } = placed;
    let (station, root, mut family) = (Arc::new(station), topology.root(), None);
    crate::task::spawn(hold_place(Arc::clone(&station), place));
    let role = shared.peek(|core| core.nodes[0].config().role);
    if role != NodeRole::Leaf {
        // A little earlier than those beside it give it up, who could not say why.
        end_when_held_up(options.tuning.heartbeat_timeout * 3 / 4);
    }
    if role == NodeRole::Leaf {
        begin_services(&shared, root, &station, &options, services);
        attach_parent(&shared, parent, channel, at)?;
    } else {
        // Streams may have come right behind the assignment; the children's assignments go first.
        match start_children(&shared, &topology, &options, &station, brood) {
            Ok(started) => family = Some(started),
            // No port is free, say: nobody comes here, and the root hears why.
            Err(error) => {
                let cause = format!("it cannot have nodes below it: {error}");
                shared.with_node(0, |node| node.give_up(Errno::from_io(&error), &cause));
            }
        }
        attach_parent(&shared, parent, channel, at)?;
        if family.is_some() {
            shared.with_node(0, Node::tell_ready);
        }
    }
    if matches!(how, How::Invited) {
        crate::task::spawn(invited::let_go_after(
            family.as_mut().and_then(|family| family.starting.take()),
        ));
    }
    let time = crate::task::spawn(Arc::clone(&shared).keep_time());
    let live = async {
        let mut search = Search::new(station.ancestors.clone());
        while shared.orphaned().await {
            find_parent(&shared, &station, &mut search).await;
        }
    };
    tokio::select! {
        () = live => {}
        asked = asked_to_end(how) => {
            asked?;
            leave(&shared, role, how).await?;
        }
    }
    time.abort();
    let refusal = shared.peek(|core| core.nodes[0].refusal().map(ToOwned::to_owned));
    if let (Some(why), How::Joined { .. }) = (refusal, how) {
        return Err(ServeError::Refused(why));
    }
    // Children that look for parents of their own need this process no more.
    let alone = shared.peek(|core| core.nodes[0].has_disbanded());
    if let Some(family) = family.filter(|_| !alone) {
        Box::new(family).end().await;
    }
    Ok(())
}

/// Begins the services of a leaf, and reports to the parent whether they run.
fn begin_services(
    shared: &Arc<Shared>,
    leaf: NodeRef<'_>,
    station: &Arc<Station>,
    options: &Options,
    services: &Services,
) {
    let handle = LeafHandle { shared: Arc::downgrade(shared), node: 0 };
    let introductions = Introductions {
        station: Arc::clone(station),
        services: services.clone(),
        configs: options.configs.clone(),
        tuning: options.tuning,
    };
    let services = &services.clone().with(PEERS, introductions);
    match Dispatch::at_leaf(services, ServicePlace::of(leaf, &options.configs), handle) {
        Ok(dispatch) => shared.run(|core, _| {
            core.set_works(0, dispatch);
            core.nodes[0].tell_ready();
        }),
        Err(error) => shared.with_node(0, |node| node.give_up(error.errno, &error.cause)),
    }
}

/// Leaves the session, as this process was asked to end.
async fn leave(shared: &Shared, role: NodeRole, how: How<'_>) -> io::Result<()> {
    if matches!(how, How::Joined { in_job: true, .. }) {
        // The root hears why from Slurm, meanwhile.
        tokio::time::sleep(STEP_END_PAUSE).await;
    }
    if role == NodeRole::Leaf {
        shared.with_node(0, Node::leave_session);
    } else {
        let life = random()?;
        shared.with_node(0, |node| node.retire(life));
    }
    Ok(())
}

/// Waits until this process is asked to end. What somebody else's program does then is its own
/// affair: its signals are left alone.
async fn asked_to_end(how: How<'_>) -> io::Result<()> {
    if matches!(how, How::OnlyALeaf) {
        return std::future::pending().await;
    }
    signal(SignalKind::terminate())?.recv().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::invitation::Over;
    use crate::link::door::{Door, DoorHost};
    use crate::link::{Audit, Hello, Refusal, Secret};
    use crate::proto::control;
    use crate::topology::{Names, Placement, Spec};

    /// A parent that takes whoever comes for its only child, whose name is another.
    struct Mistaken(Topology);

    impl DoorHost for Mistaken {
        fn expects(&self, _: &Hello) -> Result<(), Refusal> {
            Ok(())
        }

        fn admit(&self, hello: &Hello, channel: Channel) -> io::Result<()> {
            let mut subtree = Vec::new();
            self.0.subtree(hello.rank).ok_or(io::ErrorKind::NotFound)?.encode(&mut subtree);
            let frame = control::assign(&Assign {
                version: PROTOCOL_VERSION,
                depth: 1,
                subtree,
                tuning: Default::default(),
                service: postcard::to_stdvec(&crate::service::Configs::new())
                    .map_err(io::Error::other)?,
                launch: Vec::new(),
                siblings: 0,
                stream_base: 0,
                ancestors: Vec::new(),
            });
            assert_eq!(rustix::io::write(&channel.fd, &frame)?, frame.len());
            Ok(())
        }
    }

    #[tokio::test]
    async fn server_serves_as_no_other_host_than_it_was_started_for() {
        let names: Names = ["n3"].into_iter().collect();
        let tree = Topology::build(&Spec::Flat, "root", names, Placement::LeafHosts).unwrap();
        let (door, secret) = (Door::open_abstract().unwrap(), Secret::random().unwrap());
        let ancestors = vec![Ancestor { rank: 0, address: door.address.clone() }];
        let audit = Arc::new(Audit::default());
        let _keeper = door.keep(0, secret.clone(), None, audit, Arc::new(Mistaken(tree))).unwrap();
        let (theirs, ours) = io::pipe().unwrap();
        let host = "n1".to_owned();
        let invitation = Invitation {
            secret,
            rank: 1,
            host,
            ancestors,
            credentials: None,
            leaf: None,
            over: Over::Door,
        };
        invitation.write(ours).unwrap();
        let Err(error) = Placed::arrive(theirs.into()).await else { panic!("it serves") };
        assert_eq!(
            error.to_string(),
            "this node was started for n1, and its parent takes it for n3"
        );
    }
}
