//! Where hosts that come by themselves are taken in: their enrolment, and the tokens for it.
use super::attach::{Enrolment, No, Token, Tokens};
use crate::launch::Invitation;
use crate::launch::door::nursery::{Nursery, leaves_of};
use crate::launch::start::hosts::seen_from;
use crate::link::{Ports, Refusal, unheard};
use crate::proto::Tuning;
use crate::topology::{NodeRef, Role};
use rustc_hash::FxHashMap;
use sheaf_core::lock;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A session's desk. Hosts are taken in for as long as it lives.
pub struct Desk {
    nursery: Arc<Nursery>,
    at: SocketAddr,
    open: Mutex<Option<OpenDesk>>,
}

struct OpenDesk {
    tokens: Arc<Tokens>,
    address: SocketAddr,
    _enrolment: Arc<Enrolment>,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Desk {
    /// A desk at `at`, which nobody can reach before it is opened.
    pub(in crate::launch) fn new(nursery: Arc<Nursery>, at: SocketAddr) -> Self {
        Self { nursery, at, open: Mutex::default() }
    }

    /// Makes a token that can be used `uses` times. The first one opens the desk.
    ///
    /// # Errors
    /// When the desk's address cannot be had, or the system has no random bytes.
    pub fn issue(&self, uses: u32) -> io::Result<Token> {
        self.opened(|open| open.tokens.issue(uses))?
    }

    /// Where hosts come to; opens the desk.
    ///
    /// # Errors
    /// When the desk's address cannot be had.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.opened(|open| open.address)
    }

    fn opened<T>(&self, act: impl FnOnce(&OpenDesk) -> T) -> io::Result<T> {
        let mut open = lock(&self.open);
        if open.is_none() {
            *open = Some(self.start()?);
        }
        open.as_ref().map(act).ok_or_else(|| io::Error::other("the desk is closed"))
    }

    fn start(&self) -> io::Result<OpenDesk> {
        let reception = self.nursery.reception();
        let authority = reception.and_then(|reception| reception.station.authority());
        let authority =
            authority.ok_or_else(|| io::Error::other("this session takes in no other hosts"))?;
        let ports = reception.and_then(|reception| reception.station.program.ports);
        let listener = bind(self.at, ports)?;
        let address = listener.local_addr()?;
        let tokens = Arc::new(Tokens::new(authority));
        let nursery = Arc::downgrade(&self.nursery);
        let invited = Mutex::default();
        let admit = move |host: &str, here: IpAddr| match nursery.upgrade() {
            Some(nursery) => admit(&nursery, &invited, host, here),
            None => Err(No::Over),
        };
        let shared = self.nursery.shared().ok_or(io::ErrorKind::NotConnected)?;
        let audit = shared.peek(|core| Arc::clone(&core.admission.audit));
        let enrolment =
            Enrolment::start(listener, authority, Arc::clone(&tokens), audit, Box::new(admit))?;
        Ok(OpenDesk { tokens, address, _enrolment: enrolment })
    }
}

/// How long somebody who is there is listened to at most, before a host of the same name is let in.
const LISTEN_MAX: Duration = Duration::from_secs(4);
/// A node that has said nothing for so many heartbeats is not there any more when its host comes
/// again.
const HEARTBEATS: u32 = 3;
const LOOK: Duration = Duration::from_millis(20);
/// Whoever has been invited comes within this time; until then nobody else is, as the same host.
const COMES_WITHIN: Duration = Duration::from_secs(3);

/// When hosts were invited that have not been seen to come.
type InvitedHosts = Mutex<FxHashMap<String, Instant>>;

/// Listens at an address; at one of `ports`, if these are said and no other port is.
fn bind(at: SocketAddr, ports: Option<Ports>) -> io::Result<TcpListener> {
    let Some(ports) = ports.filter(|_| at.port() == 0) else {
        return TcpListener::bind(at).map_err(|error| unheard(at, error));
    };
    for port in ports.iter() {
        match TcpListener::bind(SocketAddr::new(at.ip(), port)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            bound => return bound.map_err(|error| unheard(at, error)),
        }
    }
    Err(ports.none_free(at.ip()))
}

/// Gives a host that has shown its token the places of its name: those of inner nodes first, its
/// server's last.
fn admit(
    nursery: &Nursery,
    invited: &InvitedHosts,
    host: &str,
    here: IpAddr,
) -> Result<Vec<Invitation>, No> {
    let reception = nursery.reception().ok_or(No::Over)?;
    let nodes = nursery.topology().nodes();
    let mut places: Vec<NodeRef<'_>> =
        nodes.filter(|node| node.role() != Role::Root && node.host() == host).collect();
    if places.is_empty() {
        return Err(No::Never(Refusal::ForeignHost, format!("{host} is not one of its hosts")));
    }
    let tuning = &reception.options.tuning;
    let mut taken = Vec::new();
    places.retain(|place| match holder(nursery, *place, tuning) {
        Holder::Nobody => true,
        holder => {
            taken.push(holder);
            false
        }
    });
    // One process has one name; a second one of that name would only start what is there.
    if !places.iter().any(|place| place.role() == Role::Leaf) && hosts_a_leaf(nursery, host) {
        places.clear();
    }
    if places.is_empty() {
        let why = format!("{host} is there already");
        // Its node is given up by then, if it is one that has ended.
        let patience =
            tuning.heartbeat_timeout + tuning.adoption_grace + tuning.heartbeat_interval * 2;
        let is_far = taken.iter().any(|holder| matches!(holder, Holder::Far));
        return Err(if is_far {
            No::NotYet(why, patience)
        } else {
            No::Never(Refusal::There, why)
        });
    }
    comes_alone(nursery, invited, host, &places)?;
    let invite = |place: &NodeRef<'_>| seen_from(&reception.invite(*place)?, Some(here));
    let failed = |error: io::Error| No::Never(Refusal::NoPlace, error.to_string());
    places.iter().map(|place| invite(place).map_err(failed)).collect()
}

/// Notes that a host is invited. Of two that ask at once as the same host, the second is to ask
/// again, when the first has come, or has had the time to.
fn comes_alone(
    nursery: &Nursery,
    invited: &InvitedHosts,
    host: &str,
    places: &[NodeRef<'_>],
) -> Result<(), No> {
    let (mut invited, now) = (lock(invited), Instant::now());
    invited.retain(|_, since| now.duration_since(*since) < COMES_WITHIN);
    if let Some(since) = invited.get(host) {
        // One that has come in the meantime and has gone again is in nobody's way.
        let came = places.iter().filter_map(|place| nursery.came(place.rank())).max();
        let is_here = places.iter().any(|place| nursery.has(place.rank()));
        if is_here || came.is_none_or(|came| came < *since) {
            return Err(No::NotYet(format!("{host} is there already"), COMES_WITHIN * 2));
        }
    }
    invited.insert(host.to_owned(), now);
    Ok(())
}

fn hosts_a_leaf(nursery: &Nursery, host: &str) -> bool {
    nursery.topology().nodes().any(|node| node.role() == Role::Leaf && node.host() == host)
}

/// Who has a place, as far as the root can tell.
enum Holder {
    Nobody,
    /// A node that is connected here, and lives.
    Here,
    /// A node below another, which may not know yet that it has ended.
    Far,
}

fn holder(nursery: &Nursery, place: NodeRef<'_>, tuning: &Tuning) -> Holder {
    let (rank, leaves) = (place.rank(), leaves_of(place));
    if nursery.has(rank) {
        if lives(nursery, rank, tuning) {
            return Holder::Here;
        }
        nursery.supersede(rank);
    }
    let runs = |shared: Arc<crate::driver::Shared>| {
        shared.peek(|core| core.nodes[0].runs_elsewhere(rank, &leaves))
    };
    let far = place.role() == Role::Leaf && nursery.shared().is_some_and(runs);
    if far { Holder::Far } else { Holder::Nobody }
}

/// Whether a node that is connected here says anything. One that has ended, whose connection was
/// not closed because its host went down with it, does not.
fn lives(nursery: &Nursery, rank: u32, tuning: &Tuning) -> bool {
    let patience = tuning.heartbeat_interval * HEARTBEATS;
    let Some(before) = nursery.heard(rank) else { return false };
    if patience > LISTEN_MAX {
        return true;
    }
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        std::thread::sleep(LOOK);
        match nursery.heard(rank) {
            Some(at) if at == before => {}
            Some(_) => return true,
            None => return false,
        }
    }
    false
}
