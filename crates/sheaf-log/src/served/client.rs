//! The log clients of a host: threads that take what programs record, for whoever asks.
//!
//! A user has a share of them: whoever asks for more directories, or more at once, than that is
//! refused, and nobody else is. A client ends when nobody has asked for a while. The lock over all
//! clients is never held while a file is worked on.
use super::batch::CollectRequest;
use super::live::{LiveAnswer, LiveFilter, LiveRequest};
use super::slot::{HeldClient, LogClient};
use super::state::{COLLECTOR_GONE, ClientState};
use super::user::as_user;
use super::{BatchFilter, TRACE_LIVE, TRACE_MERGE, now_ns, shared_segments};
use crate::collect::{CollectLimits, OpenShare};
use crate::error::TraceError;
use rustix::process::{Resource, Uid, getrlimit};
use sheaf_core::{Errno, lock};
use sheaf_tree::filter::Registry;
use sheaf_tree::service::{Blocking, Caller, ServiceRequest, Services, Site, Worker};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What log clients are asked, by the tags of requests: a [`CollectRequest`].
pub const COLLECT: i32 = 0;
/// A [`LiveRequest`].
pub const LIVE: i32 = 1;
/// The service of log clients.
pub const TRACE_SERVICE: &str = "trace";

/// Nobody has asked for so long: rings are left to fill until somebody does.
const ASKED_MAX: Duration = Duration::from_secs(60);
/// Looks that found nothing are followed by longer and longer pauses.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// How long a request waits for what another one, or a look, does in the same directory.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// How long an ended client stays before another look for its place.
const END_PAUSE: Duration = Duration::from_millis(2);
/// The directories of one user of which one host takes anything at the same time.
const DIRECTORIES_MAX: usize = 4;
/// The requests of one user that one host works on at the same time.
const REQUESTS_MAX: usize = 8;
/// The part of all descriptors that segments of one user, and of all users, keep open.
const USER_OPEN_PART: usize = 16;
const ALL_OPEN_PART: usize = 4;
/// For one directory: see [`CollectLimits`].
const FILES_MAX: usize = 64 << 10;
const SEGMENTS_MAX: usize = 4 << 10;
const RINGS_MAX: usize = 64 << 10;
const RECORDS_MAX: usize = 256 << 10;
const NAMES_BYTES_MAX: usize = 32 << 20;
const LOOK_MAX: Duration = Duration::from_secs(2);

/// What is added to a host's clock, for tests of what clocks do: in ns, by the host's name.
type HostSkew = fn(&str) -> i64;

/// By the user, and the host: in tests, several hosts are of one process.
type ClientMap = HashMap<(Uid, String), UserClients>;

/// What one user has at one host.
struct UserClients {
    /// Requests that are worked on.
    requests: usize,
    directories: HashMap<PathBuf, Arc<LogClient>>,
    open: OpenShare,
}

impl UserClients {
    fn is_idle(&self) -> bool {
        self.requests == 0 && self.directories.is_empty()
    }
}

/// The log clients of a process: one for each directory in which programs record.
#[derive(Clone)]
pub struct LogClients {
    clients: Arc<Mutex<ClientMap>>,
    skew: HostSkew,
    asked_max: Duration,
    /// Of no user: from which those of users are made.
    open: OpenShare,
}

impl Default for LogClients {
    fn default() -> Self {
        let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let allowed = usize::try_from(allowed).unwrap_or(usize::MAX);
        let open = OpenShare::new(allowed / USER_OPEN_PART, allowed / ALL_OPEN_PART);
        Self { clients: Arc::default(), skew: |_| 0, asked_max: ASKED_MAX, open }
    }
}

impl LogClients {
    /// With clocks that are wrong by what `skew` says of a host, in ns.
    #[must_use]
    pub fn with_clocks(self, skew: fn(&str) -> i64) -> Self {
        Self { skew, ..self }
    }

    /// With clients that end when nobody has asked for so long.
    #[must_use]
    pub fn ending_after(self, asked_max: Duration) -> Self {
        Self { asked_max, ..self }
    }

    /// How many directories are taken from just now.
    #[must_use]
    pub fn at_work(&self) -> usize {
        lock(&self.clients).values().map(|user| user.directories.len()).sum()
    }

    /// The filters that combine what these answer: whoever asks in a session that is there has to
    /// have them, too.
    #[must_use]
    pub fn filters(mut registry: Registry) -> Registry {
        registry.register(TRACE_MERGE, |_| Ok(Box::new(BatchFilter)));
        registry.register(TRACE_LIVE, |_| Ok(Box::new(LiveFilter)));
        registry
    }

    /// `services` with these, which have their [`LogClients::filters`].
    #[must_use]
    pub fn register(&self, services: Services) -> Services {
        let clients = self.clone();
        let open = move |site: &Site<'_>, caller: &Caller| -> Result<Box<dyn Worker>, Errno> {
            check(site.config, caller)?;
            let leaf = site.leaf.ok_or(Errno::NOSYS)?;
            let (clients, host) = (clients.clone(), site.host.to_owned());
            Ok(Box::new(ClientWorker { clients, host, leaf }))
        };
        services.with(TRACE_SERVICE, Blocking::new(open).as_callers())
    }

    /// Counts a request of this thread's user.
    fn admit(&self, host: &str) -> Result<Admitted<'_>, Errno> {
        let key = (rustix::process::geteuid(), host.to_owned());
        let mut clients = lock(&self.clients);
        let user = clients.entry(key.clone()).or_insert_with(|| UserClients {
            requests: 0,
            directories: HashMap::new(),
            open: self.open.of_another(),
        });
        if user.requests >= REQUESTS_MAX {
            tracing::warn!(
                host,
                user = key.0.as_raw(),
                "more than {REQUESTS_MAX} requests at once"
            );
            return Err(Errno::MFILE);
        }
        user.requests += 1;
        Ok(Admitted { clients: self, key })
    }

    /// Takes from a directory until nobody asks any more.
    fn work(&self, key: &(Uid, String), directory: &Path, client: &Arc<LogClient>) {
        let mut pause = PAUSE_MIN;
        while let Ok(Some(mut held)) = client.take(None) {
            let Some(state) = &mut held.state else { break };
            if client.is_to_end() || client.idle() >= self.asked_max {
                held.state = None;
                break;
            }
            let turned = catch_unwind(AssertUnwindSafe(|| state.turn(false)));
            let Ok(came) = turned else {
                tracing::error!(host = key.1, "taking what programs record has panicked");
                held.state = None;
                break;
            };
            drop(held);
            pause = if came { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
            std::thread::sleep(pause);
        }
        self.forget(key, directory, client);
    }

    /// Forgets a client that has ended.
    fn forget(&self, key: &(Uid, String), directory: &Path, client: &Arc<LogClient>) {
        let mut clients = lock(&self.clients);
        let Some(user) = clients.get_mut(key) else { return };
        if user.directories.get(directory).is_some_and(|known| Arc::ptr_eq(known, client)) {
            user.directories.remove(directory);
        }
        if user.is_idle() {
            clients.remove(key);
        }
    }
}

/// Whether a caller may use the clients of a server with this export.
fn check(export: &[u8], caller: &Caller) -> Result<(), Errno> {
    // Rows that are collected are gone here.
    let may_collect = caller.rights().may_write;
    // Directories of recordings are named by their paths on the host, which lead out of an export.
    let is_confined = caller.is_from_host() && !matches!(export, b"" | b"/");
    if may_collect && !is_confined { Ok(()) } else { Err(Errno::PERM) }
}

/// A request of a user's that is worked on.
struct Admitted<'a> {
    clients: &'a LogClients,
    key: (Uid, String),
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let mut clients = lock(&self.clients.clients);
        let Some(user) = clients.get_mut(&self.key) else { return };
        user.requests -= 1;
        if user.is_idle() {
            clients.remove(&self.key);
        }
    }
}

impl Admitted<'_> {
    /// Does something with the client of a directory, which is begun if there is none.
    fn with<T>(
        &self,
        directory: &Path,
        act: impl FnOnce(&mut ClientState) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let until = Instant::now() + WAIT_MAX;
        loop {
            if let Some(client) = self.client(directory)? {
                client.ask();
                if let Some(mut held) = client.take(Some(until))? {
                    let done = self.begun(directory, &client, &mut held).and_then(act);
                    let has_ended = held.state.is_none();
                    drop(held);
                    if has_ended {
                        self.clients.forget(&self.key, directory, &client);
                    }
                    return done;
                }
            }
            // One that ends is about to be forgotten.
            if Instant::now() >= until {
                return Err(Errno::TIMEDOUT);
            }
            std::thread::sleep(END_PAUSE);
        }
    }

    /// The client of a directory. `None` where the user has as many as there may be, and one of them is
    /// about to end because nobody has asked for it for a while.
    fn client(&self, directory: &Path) -> Result<Option<Arc<LogClient>>, Errno> {
        let mut clients = lock(&self.clients.clients);
        let user = clients.get_mut(&self.key).expect("it has a request");
        user.directories.retain(|_, client| !client.has_ended());
        if let Some(client) = user.directories.get(directory) {
            return Ok(Some(Arc::clone(client)));
        }
        if user.directories.len() >= DIRECTORIES_MAX {
            let idlest = user.directories.values().max_by_key(|client| client.idle());
            return match idlest.filter(|client| client.idle() >= COLLECTOR_GONE) {
                Some(client) => {
                    client.end();
                    Ok(None)
                }
                None => {
                    let (user, host) = (self.key.0.as_raw(), &self.key.1);
                    tracing::warn!(host, user, "more than {DIRECTORIES_MAX} directories at once");
                    Err(Errno::MFILE)
                }
            };
        }
        // Another host of the same machine's.
        let is_same = |(key, user): (&(Uid, String), &UserClients)| {
            key.0 == self.key.0 && user.directories.contains_key(directory)
        };
        if clients.iter().any(is_same) {
            return Err(Errno::BUSY);
        }
        let user = clients.get_mut(&self.key).expect("it has a request");
        let client = LogClient::new();
        user.directories.insert(directory.to_owned(), Arc::clone(&client));
        Ok(Some(client))
    }

    /// The state of a client, opened where it is not yet.
    fn begun<'a>(
        &self,
        directory: &Path,
        client: &Arc<LogClient>,
        held: &'a mut HeldClient<'_>,
    ) -> Result<&'a mut ClientState, Errno> {
        if held.state.is_none() {
            let host = &self.key.1;
            let limits = self.limits();
            let state = ClientState::open(directory, host, (self.clients.skew)(host), limits);
            let state = state.map_err(|error| {
                tracing::warn!(host, %error, "what programs record here cannot be taken");
                errno_of(&error)
            })?;
            let (clients, key) = (self.clients.clone(), self.key.clone());
            let (directory, client) = (directory.to_owned(), Arc::clone(client));
            std::thread::Builder::new()
                .name("sheaf-trace-take".to_owned())
                .spawn(move || clients.work(&key, &directory, &client))
                .map_err(|error| Errno::from_io(&error))?;
            held.state = Some(Box::new(state));
        }
        Ok(held.state.as_mut().expect("it is opened above"))
    }

    fn limits(&self) -> CollectLimits {
        let clients = lock(&self.clients.clients);
        CollectLimits {
            files: FILES_MAX,
            segments: SEGMENTS_MAX,
            rings: RINGS_MAX,
            records: RECORDS_MAX,
            names_bytes: NAMES_BYTES_MAX,
            look: LOOK_MAX,
            open: clients.get(&self.key).expect("it has a request").open.clone(),
        }
    }
}

/// One stream at one host.
struct ClientWorker {
    clients: LogClients,
    host: String,
    leaf: u32,
}

impl Worker for ClientWorker {
    fn request(&mut self, request: &ServiceRequest) -> Result<Vec<u8>, Errno> {
        match request.tag {
            COLLECT => self.collect(&request.payload),
            LIVE => self.live(&request.payload),
            _ => Err(Errno::OPNOTSUPP),
        }
    }
}

impl ClientWorker {
    /// Where programs of this user record for this host.
    fn segments(&self, buffers: &str) -> PathBuf {
        shared_segments(Path::new(&buffers.replace("%h", &self.host)))
    }

    /// What follows on what is stored.
    fn collect(&self, payload: &[u8]) -> Result<Vec<u8>, Errno> {
        let heard_ns = now_ns() + (self.clients.skew)(&self.host);
        let asked: CollectRequest = postcard::from_bytes(payload).map_err(|_| Errno::BADMSG)?;
        as_user(asked.user.as_deref(), || self.collect_as_user(&asked, heard_ns))
    }

    fn collect_as_user(&self, asked: &CollectRequest, heard_ns: i64) -> Result<Vec<u8>, Errno> {
        let admitted = self.clients.admit(&self.host)?;
        admitted.with(&self.segments(&asked.buffers), |state| {
            // Another trace: each row is stored once.
            if !state.is_for(asked.collector) {
                return Err(Errno::BUSY);
            }
            let mut batch = state.answer(asked, self.leaf).map_err(|error| {
                let host = &self.host;
                tracing::warn!(host, %error, "what programs have recorded cannot be given");
                errno_of(&error)
            })?;
            for part in &mut batch.parts {
                (part.heard_ns, part.answered_ns) = (heard_ns, now_ns() + state.skew);
            }
            batch.encode()
        })
    }

    /// What is done just now.
    fn live(&self, payload: &[u8]) -> Result<Vec<u8>, Errno> {
        let asked: LiveRequest = postcard::from_bytes(payload).map_err(|_| Errno::BADMSG)?;
        as_user(asked.user.as_deref(), || {
            let admitted = self.clients.admit(&self.host)?;
            // Nothing is made for a look: where no program records, nothing is left behind.
            let segments = self.segments(&asked.buffers);
            if segments.parent().is_some_and(Path::exists) && !segments.exists() {
                return Ok(LiveAnswer::default().encode());
            }
            admitted.with(&segments, |state| Ok(state.live_answer(&asked).encode()))
        })
    }
}

fn errno_of(error: &TraceError) -> Errno {
    match error {
        TraceError::Io { source, .. } => Errno::from_io(source),
        TraceError::Damaged { .. } | TraceError::Removed { .. } => Errno::PERM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_tree::service::ClientRights;

    #[test]
    fn caller_on_a_host_does_not_leave_the_export() {
        let user = |may_write| Caller::User {
            uid: 1001,
            gid: 1001,
            gids: vec![],
            host: "h1".to_owned(),
            is_owner: false,
            rights: ClientRights { may_write, may_be_root: false },
        };
        for (export, caller, expected) in [
            ("/", user(true), Ok(())),
            ("", user(true), Ok(())),
            ("/srv/files", user(true), Err(Errno::PERM)),
            ("/", user(false), Err(Errno::PERM)),
            ("/srv/files", Caller::Owner, Ok(())),
        ] {
            assert_eq!(check(export.as_bytes(), &caller), expected, "{export} {caller:?}");
        }
    }
}
