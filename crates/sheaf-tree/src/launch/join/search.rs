//! The ways to a parent: the first one, and another one when that is lost.
//!
//! A session ends from the top. An orphan calls its ancestors, and if the root is gone too it ends
//! after its own children. When its time is over, it ends without its children.
use crate::driver::{Shared, is_stopped};
use crate::launch::start::plan::Station;
use crate::link::wire::{Channel, WireCaller, call, connect, greet, is_of_this_machine};
use crate::link::{Ancestor, DoorAddress};
use crate::proto::{LinkId, Node, Time};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long a new child tries to reach its parent.
const ARRIVE_TIMEOUT: Duration = Duration::from_secs(8);
/// How long one attempt to reach an ancestor may take. One that is stopped accepts connections
/// (its kernel does) and says nothing.
const CALL_TIMEOUT: Duration = Duration::from_millis(700);
/// The last one, the root, may be busy with others that call: each round it has twice the time, so
/// many times.
const CALL_DOUBLINGS_MAX: u32 = 2;
/// The same where there is another one to try: whoever was lost is tried first, and others wait.
const NEAR_CALL_TIMEOUT: Duration = Duration::from_millis(300);
/// The same for the one below which the parent has said that this node's place is: it is there, and
/// may be busy with all that were sent to it.
const PLACE_CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the first attempts of a new child may take; its parent may be busy with many.
const ARRIVE_CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The same where the parent is a process of this machine, maybe among thousands that wait for the
/// processor, and calls a parent of its own first. When it ends, its door is closed at once.
const NEAR_ARRIVE_TIMEOUT: Duration = Duration::from_secs(300);
/// When the root's host says for this long that nobody listens there, its process has ended, or
/// whatever is between the two lets nobody through.
const REFUSED_MAX: Duration = Duration::from_secs(1);
/// Between two rounds; doubled each time, up to the second.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// Between rounds: longer each time, and not the same for all orphans of one parent.
struct Pause(Duration);

impl Pause {
    fn next(&mut self) -> Duration {
        let pause = self.0.mul_f64(0.5 + fastrand::f64());
        self.0 = (self.0 * 2).min(PAUSE_MAX);
        pause
    }
}

/// Connects a new child to its parent, the first of `ancestors`.
pub(in crate::launch) async fn arrive(
    caller: &WireCaller<'_>,
    ancestors: &[Ancestor],
) -> io::Result<Channel> {
    reach(caller, ancestors, ARRIVE_TIMEOUT, ARRIVE_CALL_TIMEOUT).await
}

/// [`arrive`] for a child that has another way to its parent when this one is not open: what takes
/// longer than `limit` to connect is none.
pub(in crate::launch) async fn arrive_within(
    caller: &WireCaller<'_>,
    ancestors: &[Ancestor],
    limit: Duration,
) -> io::Result<Channel> {
    let parent = ancestors.first().ok_or(io::ErrorKind::InvalidData)?;
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let fd = timeout(limit, connect(&parent.address, caller.user)).await.map_err(late)??;
    timeout(ARRIVE_CALL_TIMEOUT, greet(fd, parent, caller, false)).await.map_err(late)?
}

/// The first link of a node.
pub(in crate::launch) struct Arrival {
    pub channel: Channel,
    pub at: ParentIs,
    /// Its parent lets nobody in: it has gone to one above that, as an orphan does.
    pub as_orphan: bool,
}

/// [`arrive`] for a child that its parent has started on this machine, and looks whether it comes.
/// When the parent is stopped for as long as `stopped_max`, those above it are called.
pub(in crate::launch) async fn arrive_near(
    station: &Station,
    stopped_max: Duration,
) -> io::Result<Arrival> {
    let (caller, ancestors) = (station.caller(), &station.ancestors);
    let at = ParentIs::of(ancestors);
    if at == ParentIs::TheRoot {
        let channel = reach(&caller, ancestors, NEAR_ARRIVE_TIMEOUT, NEAR_ARRIVE_TIMEOUT).await?;
        return Ok(Arrival { channel, at, as_orphan: false });
    }
    tokio::select! {
        reached = reach(&caller, ancestors, NEAR_ARRIVE_TIMEOUT, NEAR_ARRIVE_TIMEOUT) => {
            Ok(Arrival { channel: reached?, at, as_orphan: false })
        }
        () = parent_is_stopped(stopped_max) => {
            let mut search = Search::new(ancestors[1..].to_vec());
            match call_ancestors(station, &mut search).await {
                FoundPlace::Ancestor(channel, at) => Ok(Arrival { channel, at, as_orphan: true }),
                FoundPlace::Nobody | FoundPlace::End => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        }
    }
}

/// Waits until the process that has started this one has been stopped for so long, or for half of
/// it.
async fn parent_is_stopped(stopped_max: Duration) {
    let Some(parent) = rustix::process::getppid() else { return std::future::pending().await };
    let mut since = None;
    // Among thousands that start nobody has time for more than a look now and then.
    loop {
        tokio::time::sleep(stopped_max / 2).await;
        since = is_stopped(parent).then(|| since.unwrap_or_else(Instant::now));
        if since.is_some_and(|since| since.elapsed() >= stopped_max / 2) {
            return;
        }
    }
}

async fn reach(
    caller: &WireCaller<'_>,
    ancestors: &[Ancestor],
    limit: Duration,
    call_limit: Duration,
) -> io::Result<Channel> {
    let parent = ancestors.first().ok_or(io::ErrorKind::InvalidData)?;
    let deadline = Instant::now() + limit;
    let mut pause = Pause(PAUSE_MIN);
    for tried in 1u32.. {
        let attempt = timeout(call_limit, call(parent, caller, false)).await;
        let error = match attempt {
            Ok(Ok(channel)) => return Ok(channel),
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
        if is_gone(parent, &error) || Instant::now() >= deadline {
            return Err(unreached(parent, error));
        }
        let pause = pause.next();
        let (rank, ms) = (parent.rank, pause.as_millis());
        tracing::debug!(rank, %error, "the node above is not reached, try {tried}; again in {ms} ms");
        tokio::time::sleep(pause).await;
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// How far an orphan has got among its ancestors.
pub(in crate::launch) struct Search {
    /// Nearest first.
    ancestors: Vec<Ancestor>,
    /// When it lost its parent: there a search begins.
    since: Option<Time>,
    /// The ancestor that is tried first.
    next: usize,
    /// The first one is known to be there.
    is_sent: bool,
    /// How often the root was called since then.
    root_calls: u32,
}

impl Search {
    pub fn new(ancestors: Vec<Ancestor>) -> Self {
        Self { ancestors, since: None, next: 0, is_sent: false, root_calls: 0 }
    }

    /// Its parent has said below whom its place is.
    fn begin_with(&mut self, place: Ancestor) {
        self.ancestors.retain(|ancestor| ancestor.rank != place.rank);
        self.ancestors.insert(0, place);
        self.is_sent = true;
    }

    /// How long to call the ancestor `at`.
    fn limit(&mut self, at: usize) -> Duration {
        if at == 0 && std::mem::take(&mut self.is_sent) {
            PLACE_CALL_TIMEOUT
        } else if at + 1 == self.ancestors.len() {
            self.root_calls += 1;
            CALL_TIMEOUT * (1 << (self.root_calls - 1).min(CALL_DOUBLINGS_MAX))
        } else {
            NEAR_CALL_TIMEOUT
        }
    }
}

/// Finds an orphan another parent among its ancestors, until its node does not want one any more.
/// An ancestor that takes the call may still turn out to be no parent (its leaves have gone
/// elsewhere): then the next one is tried.
pub(in crate::launch) async fn find_parent(
    shared: &Arc<Shared>,
    station: &Station,
    search: &mut Search,
) {
    let (since, place) =
        shared.peek(|core| (core.nodes[0].orphaned_since(), core.membership.place.take()));
    if let Some(place) = place {
        search.begin_with(place);
    }
    if search.since != since {
        (search.since, search.next, search.root_calls) = (since, 0, 0);
    } else {
        tokio::time::sleep(PAUSE_MIN).await;
    }
    let found = tokio::select! {
        () = shared.ended() => return,
        found = call_ancestors(station, search) => found,
    };
    let (channel, place) = match found {
        FoundPlace::Ancestor(channel, place) => (channel, place),
        FoundPlace::Nobody => return shared.with_node(0, Node::disband),
        FoundPlace::End => return shared.with_node(0, Node::abandon),
    };
    let link = shared.run(|core, now| {
        core.touch(0);
        (!core.membership.ended).then(|| core.nodes[0].resume_parent(now))
    });
    let attached = link.map_or(Ok(()), |link| attach_parent(shared, link, channel, place));
    if attached.is_err() {
        shared.with_node(0, Node::disband);
    }
}

/// Who a parent is to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::launch) enum ParentIs {
    /// Above it are others, which take its children when it says nothing.
    OneOfMany,
    TheRoot,
}

impl ParentIs {
    /// The first of `ancestors`, of which the last is the root.
    pub fn of(ancestors: &[Ancestor]) -> Self {
        if ancestors.len() == 1 { Self::TheRoot } else { Self::OneOfMany }
    }
}

/// Lets `link`, to the parent, run over `channel`. The root is not replaced by anybody: on this
/// machine, where the kernel tells its end, it may be stopped and go on.
pub(in crate::launch) fn attach_parent(
    shared: &Arc<Shared>,
    link: LinkId,
    channel: Channel,
    parent: ParentIs,
) -> io::Result<()> {
    let is_near = !channel.over_ssh && is_of_this_machine(&channel.fd)?;
    let holds = parent == ParentIs::TheRoot && is_near;
    shared.attach(0, link, channel, None)?;
    if holds {
        shared.with_node(0, |node| node.hold_to(link));
    }
    Ok(())
}

/// What comes of a search.
enum FoundPlace {
    /// One has taken the call.
    Ancestor(Channel, ParentIs),
    /// From here there is no way to the root.
    Nobody,
    /// The session is over for certain.
    End,
}

/// Tries ancestor after ancestor.
async fn call_ancestors(station: &Station, search: &mut Search) -> FoundPlace {
    let caller = station.caller();
    let mut pause = Pause(PAUSE_MIN);
    let (begun, mut calls) = (Instant::now(), 0);
    let mut refused: Option<Instant> = None;
    while !search.ancestors.is_empty() {
        let at = search.next;
        let is_root = at + 1 == search.ancestors.len();
        search.next = if is_root { 0 } else { at + 1 };
        let limit = search.limit(at);
        let ancestor = &search.ancestors[at];
        let called = timeout(limit, call(ancestor, &caller, true)).await;
        calls += 1;
        let rank = ancestor.rank;
        if is_root {
            let refuses = matches!(&called, Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused);
            refused = refuses.then(|| refused.unwrap_or_else(Instant::now));
        }
        match called {
            Ok(Ok(channel)) => {
                let parent = if is_root { ParentIs::TheRoot } else { ParentIs::OneOfMany };
                let ms = begun.elapsed().as_millis();
                tracing::info!(rank, "a new parent has taken call {calls}, after {ms} ms");
                return FoundPlace::Ancestor(channel, parent);
            }
            // The root never comes back.
            Ok(Err(error)) if is_root && is_gone(ancestor, &error) => return FoundPlace::End,
            _ if refused.is_some_and(|since| since.elapsed() >= REFUSED_MAX) => {
                return FoundPlace::Nobody;
            }
            Ok(Err(error)) => tracing::debug!(rank, %error, "no new parent, call {calls}"),
            Err(_) => {
                let ms = limit.as_millis();
                tracing::debug!(rank, "an ancestor does not answer within {ms} ms, call {calls}");
            }
        }
        if is_root {
            let pause = pause.next();
            tracing::debug!("all ancestors were called; again in {} ms", pause.as_millis());
            tokio::time::sleep(pause).await;
        }
    }
    FoundPlace::End
}

/// Says which address was tried, and what can be done about it.
fn unreached(parent: &Ancestor, error: io::Error) -> io::Error {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
    let DoorAddress::Tcp(all) = &parent.address else { return error };
    if !matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable | TimedOut)
    {
        return error;
    }
    let at: Vec<String> = all.iter().map(ToString::to_string).collect();
    let text = format!(
        "{} at {}: {error}; nodes wait at ports that the system chooses, the root at the address \
         of the setting listen",
        UNREACHED,
        at.join(" or ")
    );
    io::Error::new(error.kind(), text)
}

/// How the phrase of [`unreached`] begins.
pub(in crate::launch) const UNREACHED: &str = "cannot reach the node above";

/// Whether the node has certainly ended: on this machine nothing but the end of its process
/// closes the socket at which it listens.
fn is_gone(ancestor: &Ancestor, error: &io::Error) -> bool {
    let is_local = match &ancestor.address {
        DoorAddress::Abstract(_) => true,
        DoorAddress::Tcp(all) => all.iter().all(|address| address.ip().is_loopback()),
    };
    is_local && error.kind() == io::ErrorKind::ConnectionRefused
}
