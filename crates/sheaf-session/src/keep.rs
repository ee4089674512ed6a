//! Sessions that stay: a name, a socket of that name, and those who come to it.
use crate::audit::{RootAudit, plain};
use crate::clients;
use crate::config::{Config, Launch, own_name};
use crate::error::SessionError;
use crate::gates;
use crate::gone::NAME_NOT_KNOWN;
use crate::log::LogPlace;
use crate::seat::{Place, Seat, Seats};
use crate::session::Session;
use crate::settings;
use crate::shut::{Lack, Shut};
use crate::wire::SessionInfo;
use sheaf_core::RangeSet;
use sheaf_tree::GateNews;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long those may take to say so that have started in time, where others have not.
const COUNT_TIME: Duration = Duration::from_millis(400);

/// How long a session waits after it could not let a client in.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The name of a session, taken: nobody else's session has it until this is dropped.
pub struct Reserved(Place);

impl Reserved {
    /// Takes the name that the configuration means, before the tree is started.
    ///
    /// # Errors
    /// When a session of that name runs, or there is no place for its sockets.
    pub fn take(config: &Config) -> Result<Self, SessionError> {
        let name = config.session_name();
        if !matches!(config.launch(), Launch::Embedded | Launch::Processes) {
            gates::check_length(name, config.hosts()?.names())?;
        }
        Place::take(&config.sessions(), config.environment(), name).map(Self)
    }

    /// Opens for those who have a token made, now that the tree is there.
    ///
    /// # Errors
    /// When a socket cannot be used.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn open(self, session: &Session) -> Result<Reachable, SessionError> {
        self.0.open(session.desk.clone()).map(|seat| Reachable(seat, None))
    }
}

/// A session that those who make tokens reach. Once this is dropped nobody connects any more.
pub struct Reachable(Seat, Option<LogPlace>);

impl Reachable {
    /// The same, of a session whose log is to go where its socket goes.
    #[must_use]
    pub fn logged(self, log: Option<LogPlace>) -> Self {
        Self(self.0, log)
    }

    /// Lets clients in, for as long as this is polled.
    ///
    /// # Errors
    /// When the hosts cannot be told.
    pub async fn serve(&self, session: &Session) -> Result<(), SessionError> {
        let about = about(&session.config)?;
        let network = session.client.network();
        let shut = Shut::new(session.client.clone());
        let mode = session.config.cluster.client_settings.audit();
        let audit = Arc::new(RootAudit::new(session.name(), mode));
        let rules = clients::rules(&session.config, &audit)?;
        let head = own_name();
        let said = |leaf| {
            let rights = rules.introduce(leaf).unwrap_or_default();
            let about = about_now(session, &about, &shut, self.now(OtherUsers::default()));
            let (read_only, no_root) = (!rights.may_write, !rights.may_be_root);
            serde_json::to_vec(&SessionInfo { read_only, no_root, ..about })
                .expect("text and numbers are JSON")
        };
        let news = |leaf, news: GateNews<'_>| shut.hear(leaf, news);
        let gates = network.keep_gates(&session.topology, &rules, said, news);
        tokio::select! {
            done = self.serve_here(session, &about, &shut, &audit) => done,
            () = gates => Ok(()),
            () = audit.keep(&session.client, &head) => Ok(()),
            () = network.keep_introductions_for(&session.topology, &rules) => Ok(()),
        }
    }

    fn now(&self, others: OtherUsers) -> Now {
        Now { others, unlogged: self.1.as_ref().and_then(LogPlace::trouble) }
    }

    /// Lets clients of this machine in.
    async fn serve_here(
        &self,
        session: &Session,
        about: &SessionInfo,
        shut: &Shut,
        audit: &RootAudit,
    ) -> Result<(), SessionError> {
        let (mut others, mut failures) = (OtherUsers::default(), 0u32);
        let mut seats = Seats::new(&self.0, self.1.as_ref());
        loop {
            let accepted = tokio::select! {
                accepted = seats.accept() => Some(accepted),
                () = seats.removed() => None,
            };
            let Some(accepted) = accepted else {
                seats.add(session).await;
                continue;
            };
            let stream = match accepted {
                Ok(stream) => stream,
                // Out of descriptors, say: those who are in go on, and may leave.
                Err(error) => {
                    failures += 1;
                    // It goes on like this until something is freed: the log has room for more.
                    if failures.is_power_of_two() {
                        let ms = ACCEPT_PAUSE.as_millis();
                        tracing::warn!(%error, "no client can be let in, try {failures}; again in {ms} ms");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            failures = 0;
            // One client that cannot be told is no reason to end the session.
            let told = stream.peer_cred().and_then(|peer| Ok((peer, stream.into_std()?)));
            let (peer, stream) = match told {
                Ok(told) => told,
                Err(error) => {
                    tracing::warn!(%error, "a client could not be let in");
                    continue;
                }
            };
            if peer.uid() != rustix::process::getuid().as_raw() {
                tracing::warn!(uid = peer.uid(), "a client of another user was refused");
                audit.write_refusal(&format!(
                    "client: user {} on {}: refused",
                    peer.uid(),
                    own_name()
                ));
                others = OtherUsers { count: others.count + 1, at: now() };
                continue;
            }
            audit.write(&client_here(peer.uid(), peer.pid()));
            let about = serde_json::to_vec(&about_now(session, about, shut, self.now(others)))
                .map_err(|source| SessionError::Protocol { what: "session".to_owned(), source })?;
            let link = OwnedFd::from(stream);
            if let Err(error) = session.client.network().admit(link, &session.topology, &about) {
                tracing::warn!(%error, "a client could not be let in");
            }
        }
    }
}

/// The audit's line of a client of this machine.
fn client_here(uid: u32, pid: Option<i32>) -> String {
    let pid = pid.unwrap_or_default();
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = words.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let (host, words) = (own_name(), plain(words.join(" ").trim_end()));
    format!("client: user {uid} on {host}, process {pid}: {words}: admitted")
}

/// How often it is looked how many hosts have come.
const COME_LOOK: Duration = Duration::from_millis(50);

/// The hosts of a session that was waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Come {
    /// How many run.
    pub count: u64,
    /// Those that do not; of hosts that come by themselves, or of those that nobody waits for,
    /// only who is known to be lost.
    pub missing: RangeSet,
}

/// Whether no host of a session runs, and none will: whoever asks it asks nobody.
#[must_use]
pub fn is_hopeless(session: &Session, come: &Come) -> bool {
    let network = session.client.network();
    let mut known = RangeSet::new();
    session.gone().iter().for_each(|gone| known.union_with(&gone.leaves));
    // What is being started still is not known to be lost.
    let is_started = network.everyone().difference(&known).is_empty();
    come.count == 0 && network.present() == 0 && is_started && to_come(session) == 0
}

/// Which hosts run once all have started or failed to, or `wait` of them have started, or the time is
/// over in which another one had to start. Hosts that come by themselves come when they come: unless
/// `wait` says how many, none is waited for.
pub async fn started(session: &Session, wait: Option<u64>) -> Come {
    let config = &session.config;
    if config.launch() == Launch::Attach && wait.is_none() {
        return Come::default();
    }
    let network = session.client.network();
    let start_timeout = Duration::from_millis(config.tuning.start_timeout_ms.value);
    let left = config.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    // Who waits for hosts that others start says for how long.
    let patience = match left {
        Some(left) if wait.is_some() => left,
        left => left.map_or(start_timeout, |left| left.min(start_timeout)),
    };
    if let Some(wait) = wait {
        let end = Instant::now() + patience;
        while network.present() < wait && Instant::now() < end {
            let is_begun = network.ready(Duration::ZERO).await.is_some();
            if is_begun && network.present().saturating_add(to_come(session)) < wait {
                break;
            }
            tokio::time::sleep(COME_LOOK).await;
        }
        let count = network.present();
        if count >= wait {
            return Come { count, missing: lost(session) };
        }
    } else if let Some(leaves) = ready(session, patience).await {
        return Come { count: leaves.len(), missing: network.everyone().difference(&leaves) };
    }
    let survey = network.survey(COUNT_TIME).await;
    let nodes = survey.reports.iter().filter_map(|report| session.topology.node(report.rank));
    let leaves: RangeSet = nodes.filter_map(|node| node.leaf_index()).collect();
    Come { count: leaves.len(), missing: network.everyone().difference(&leaves) }
}

/// Those that run, once all have started or failed to; none after `patience` without another one.
async fn ready(session: &Session, patience: Duration) -> Option<RangeSet> {
    let (network, deadline) = (session.client.network(), session.config.deadline);
    let mut most = network.present();
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let ready = network.ready(left.map_or(patience, |left| left.min(patience))).await;
        let present = network.present();
        if ready.is_some() || present <= most || left.is_some_and(|left| left.is_zero()) {
            return ready;
        }
        most = present;
    }
}

/// How many of the hosts that have not started may come yet, in a tree that has started as far as
/// it will.
fn to_come(session: &Session) -> u64 {
    let config = &session.config;
    match config.launch() {
        Launch::Embedded | Launch::Processes => 0,
        // They come by themselves, or when the job begins.
        Launch::Attach | Launch::Slurm => u64::MAX,
        Launch::Ssh if config.tuning.relaunch_ms.value == 0 => 0,
        Launch::Ssh => {
            // Who was reached and cannot be started, or whose name nobody knows, is tried again in
            // vain.
            let mut in_vain = RangeSet::new();
            let mut down = RangeSet::new();
            for gone in session.gone() {
                let may_come = gone.is_down() && !gone.cause.contains(NAME_NOT_KNOWN);
                if may_come { &mut down } else { &mut in_vain }.union_with(&gone.leaves);
            }
            down.difference(&in_vain).len()
        }
    }
}

/// Who is known to be lost of hosts that are started from here; others may come yet.
fn lost(session: &Session) -> RangeSet {
    let mut lost = RangeSet::new();
    if session.config.launch() != Launch::Attach {
        session.gone().iter().for_each(|gone| lost.union_with(&gone.leaves));
    }
    lost
}

fn about(config: &Config) -> Result<SessionInfo, SessionError> {
    let since = now();
    let cluster = &config.cluster;
    Ok(SessionInfo {
        cluster: cluster.name.value.clone(),
        hosts: config.hosts()?.everyone(),
        launch: cluster.launch.value.to_string(),
        tree: cluster.tree.value.clone(),
        export: cluster.export.value.clone(),
        settings: settings::of_start(config)?,
        kept_by: own_name(),
        pid: std::process::id(),
        since,
        refused: Vec::new(),
        refused_at: Vec::new(),
        shut: Vec::new(),
        shut_to_others: Vec::new(),
        unaudited: Vec::new(),
        unlogged: None,
        read_only: false,
        no_root: false,
        event_times: Vec::new(),
    })
}

/// What a session tells of itself, as it is now.
fn about_now(session: &Session, about: &SessionInfo, shut: &Shut, now: Now) -> SessionInfo {
    let (refused, refused_at) = refused(session, now.others);
    SessionInfo {
        refused,
        refused_at,
        shut: shut.said(Lack::Gate),
        shut_to_others: shut.said(Lack::GateOfOthers),
        unaudited: shut.said(Lack::Audit),
        unlogged: now.unlogged,
        event_times: session.client.network().notice_times(),
        ..about.clone()
    }
}

/// What a session knows of itself at its own machine.
struct Now {
    others: OtherUsers,
    unlogged: Option<String>,
}

/// Clients of other users that came to the session's own socket: how many, and when last.
#[derive(Clone, Copy, Default)]
struct OtherUsers {
    count: u64,
    at: u64,
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Who was not let in so far: why and how often, and when last.
fn refused(session: &Session, others: OtherUsers) -> (Vec<(String, u64)>, Vec<u64>) {
    let network = session.client.network();
    let at_door = network.audit().refused.into_iter().map(|(why, count)| {
        let at = network.last_refused(why);
        ((why.phrase().to_owned(), count), at)
    });
    let clients = (others.count > 0)
        .then(|| (("a client of another user".to_owned(), others.count), others.at));
    at_door.chain(clients).unzip()
}
