//! The server: group operations and tools on one host's files.
use crate::aggregate::Partial;
use crate::audit::{Change, ChangeLog, ChangeUnderWay, Recorder, change_of};
use crate::message::Request;
use crate::tool::{AskedTool, Host, Tool, Tools};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use sheaf_core::place::{self, Worker};
use sheaf_core::{Errno, lock};
use sheaf_file::Export;
use sheaf_tree::filter::Registry;
use sheaf_tree::proto::Packet;
use sheaf_tree::service::share::Holding;
use sheaf_tree::service::{
    Caller, Configs, Leaf, LeafHandle, Provider, Service, ServiceError, Services, Site,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

mod attention;
mod call;
mod group;
mod lane;
mod operate;
mod transfer;

use attention::{Attention, AttentionKind};
use call::ServerCall;
pub(crate) use call::said;
#[cfg(test)]
pub(crate) use call::{body, body_lines};
pub(crate) use group::MEMBERS_MAX;
use group::ServerGroup;
use lane::{GroupJob, GroupLane};
use sheaf_tree::service::pool::{Pool, Work};
pub use sheaf_tree::service::pool::{THREADS_MAX, USER_THREADS_MAX};

/// The service of group operations.
pub const GROUPS: &str = "groups";
/// The service of tools.
pub const TOOLS: &str = "tools";

/// What servers are told when they start: the path of their export, in which `%h` stands for the
/// host's name, and the umask of whoever starts the session, which holds for files that they make.
/// Without one a server keeps the umask that it was started with.
#[must_use]
pub fn service_config(export: &str, umask: Option<u32>) -> Configs {
    let umask = umask.map(|umask| format!("\0{umask:o}")).unwrap_or_default();
    let config = format!("{export}{umask}").into_bytes();
    [GROUPS, TOOLS].map(|name| (name.to_owned(), config.clone())).into()
}

/// The export and the umask of a [`service_config`].
fn read_config(config: &[u8]) -> Result<(&str, Option<u32>), String> {
    let text = std::str::from_utf8(config).map_err(|_| "its export is not UTF-8".to_owned())?;
    match text.split_once('\0') {
        None => Ok((text, None)),
        Some((export, umask)) => match u32::from_str_radix(umask, 8) {
            Ok(umask @ 0..=0o777) => Ok((export, Some(umask))),
            _ => Err(format!("its umask is {umask:?}")),
        },
    }
}

/// Makes the servers of each leaf: that of group operations ([`GROUPS`]) and that of tools
/// ([`TOOLS`]), which share threads and exports. What they are told is a [`service_config`].
#[derive(Clone)]
pub struct Servers {
    tools: Tools,
    pool: Arc<Pool<ServerErrand>>,
    /// Leaves of one process with the same root share its descriptor.
    exports: Arc<Mutex<FxHashMap<PathBuf, Export>>>,
    changes: Option<Arc<dyn ChangeLog>>,
}

impl Default for Servers {
    fn default() -> Self {
        Self::new(Tools::default())
    }
}

impl Servers {
    /// Servers with these tools. At most [`THREADS_MAX`] threads work for all of them.
    #[must_use]
    pub fn new(tools: Tools) -> Self {
        Self { tools, pool: Pool::new(), exports: Arc::default(), changes: None }
    }

    /// The same, with a log of what they change.
    #[must_use]
    pub fn with_changes(self, changes: Arc<dyn ChangeLog>) -> Self {
        Self { changes: Some(changes), ..self }
    }

    /// These servers, with the filters that combine what they say.
    #[must_use]
    pub fn services(&self) -> Services {
        let mut filters = Registry::with_builtins();
        crate::aggregate::register(&mut filters);
        self.register(Services::new(filters))
    }

    /// `services` with these servers; their filters are registered by
    /// [`crate::aggregate::register`].
    #[must_use]
    pub fn register(&self, services: Services) -> Services {
        let provide = |business| ServerProvider { servers: self.clone(), business };
        services.with(GROUPS, provide(Business::Groups)).with(TOOLS, provide(Business::Tools))
    }

    /// Waits until what was asked of them is done, and what was half done undone, but for no longer
    /// than `patience`: a program does this before it ends, as that ends its threads.
    pub fn settle(&self, patience: Duration) {
        self.pool.settle(patience);
    }

    fn export(&self, config: &[u8], host: &str) -> Result<Export, ServiceError> {
        let refuse = |errno: Errno, cause: String| ServiceError { errno, cause };
        let (root, umask) = read_config(config).map_err(|cause| refuse(Errno::ILSEQ, cause))?;
        let root = PathBuf::from(root.replace("%h", host));
        let mut exports = lock(&self.exports);
        if let Some(export) = exports.get(&root) {
            return Ok(export.clone());
        }
        let export = Export::open(&root).map_err(|errno| {
            refuse(errno, format!("its export {} cannot be opened: {errno}", root.display()))
        })?;
        // Once for the process: all its servers are of one session.
        if let Some(umask) = umask.filter(|_| exports.is_empty()) {
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
        }
        exports.insert(root, export.clone());
        Ok(export)
    }
}

struct ServerProvider {
    servers: Servers,
    business: Business,
}

impl Provider for ServerProvider {
    /// Each works with the rights of whoever asks.
    fn heeds_callers(&self) -> bool {
        true
    }

    fn start(&self, site: &Site<'_>, handle: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        self.servers.start(self.business, site, handle)
    }
}

impl Servers {
    fn start(
        &self,
        business: Business,
        site: &Site<'_>,
        handle: LeafHandle,
    ) -> Result<Box<dyn Service>, ServiceError> {
        let no_leaf =
            || ServiceError { errno: Errno::NOSYS, cause: "files are served at leaves".to_owned() };
        let leaf = site.leaf.ok_or_else(no_leaf)?;
        let host = Host::new(site.host, leaf, self.export(site.config, site.host)?);
        let (tools, pool) = (self.tools.clone(), Arc::clone(&self.pool));
        let (lanes, waiting) = (FxHashMap::default(), Vec::new());
        let changes = self.changes.clone();
        Ok(Box::new(Server { business, host, tools, pool, handle, changes, lanes, waiting }))
    }
}

/// What a server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Business {
    Groups,
    Tools,
}

impl Business {
    /// Whether a request belongs to it.
    fn takes(self, request: &Request) -> bool {
        let is_tools = matches!(
            request,
            Request::Call { .. } | Request::Feed | Request::More { .. } | Request::Last { .. }
        );
        matches!(request, Request::Fetch { .. }) || is_tools == (self == Self::Tools)
    }
}

/// One leaf's server. Each stream is a lane of its own: requests of one are done in order, those
/// of different streams side by side, on threads that may block.
struct Server {
    business: Business,
    host: Host,
    tools: Tools,
    pool: Arc<Pool<ServerErrand>>,
    handle: LeafHandle,
    changes: Option<Arc<dyn ChangeLog>>,
    lanes: FxHashMap<u32, Arc<GroupLane>>,
    /// Lanes with something to do that nobody works on yet.
    waiting: Vec<Arc<GroupLane>>,
}

/// What a stream is used for.
#[derive(Default)]
struct Occupant {
    group: Option<ServerGroup>,
    /// The tool at work, or why it did not start.
    call: Option<Result<ServerCall, Errno>>,
    /// Number of the request whose bodies are kept here.
    kept: Option<u64>,
    /// The memory of the last reply and of a tool's answer.
    held: Option<Holding>,
}

impl Occupant {
    /// Counts what is kept after a request, a reply of this many bytes included.
    fn keep(&mut self, reply_bytes: usize) -> Result<(), Errno> {
        let answer = self.call.as_ref().and_then(|call| call.as_ref().ok());
        let bytes = reply_bytes + answer.map_or(0, ServerCall::kept_bytes);
        self.held.get_or_insert_with(Holding::new).set(0, bytes)
    }

    /// Whether nothing was done with it.
    fn is_unused(&self) -> bool {
        self.group.is_none() && self.call.is_none()
    }

    fn is_empty(&self) -> bool {
        self.group.is_none() && !matches!(self.call, Some(Ok(_)))
    }
}

impl Service for Server {
    fn opened(&mut self, stream: u32, caller: &Caller) {
        self.lanes.insert(stream, Arc::new(GroupLane::new(stream, caller)));
    }

    fn packet(&mut self, packet: Packet, leaf: &mut Leaf<'_>) {
        // A stream that nobody has opened is nobody's.
        let Some(lane) = self.lanes.get(&packet.stream) else {
            return leaf.consumed(packet.stream, packet.frame_bytes);
        };
        if lane.enqueue(packet, leaf) {
            self.waiting.push(Arc::clone(lane));
        }
    }

    /// Nothing is begun before all that has come was looked at: what is cancelled by then is not
    /// done. A host that was stopped finds many requests at once, and behind them that nobody waits
    /// for them any more.
    fn resume(&mut self, leaf: &mut Leaf<'_>) {
        for lane in self.waiting.drain(..) {
            let worker = GroupWorker {
                business: self.business,
                lane,
                host: self.host.clone(),
                tools: self.tools.clone(),
                handle: self.handle.clone(),
                changes: self.changes.clone(),
            };
            let is_full = self.pool.is_full_for(worker.lane.user().map(u64::from));
            let errand = ServerErrand::Serve(worker);
            let refused = if is_full { Err(errand) } else { self.pool.spawn(errand) };
            if let Err(ServerErrand::Serve(worker)) = refused {
                worker.refuse(Errno::AGAIN, leaf);
            }
        }
    }

    fn cancelled(&mut self, stream: u32, wave: u64, leaf: &mut Leaf<'_>) {
        // The request may be on its way: what is cancelled does not wait behind what is sent.
        if let Some(lane) = self.lanes.get(&stream) {
            lane.cancel(wave, leaf);
        }
    }

    fn closed(&mut self, stream: u32) {
        if let Some(lane) = self.lanes.remove(&stream) {
            end(lane, &self.pool);
        }
    }

    fn ended(&mut self) {
        for (_, lane) in self.lanes.drain() {
            end(lane, &self.pool);
        }
    }
}

/// Ends a lane. Dropping what it holds may touch the disk, so that is for a thread that may block;
/// where there is none it is better done here than not at all.
fn end(lane: Arc<GroupLane>, pool: &Arc<Pool<ServerErrand>>) {
    if lane.end() && !lock(&lane.occupant).is_unused() {
        drop(pool.spawn(ServerErrand::End(lane)));
    }
}

/// What threads do for servers.
enum ServerErrand {
    Serve(GroupWorker),
    /// Undo what is half done.
    End(Arc<GroupLane>),
}

impl Work for ServerErrand {
    fn user(&self) -> Option<u64> {
        match self {
            Self::Serve(GroupWorker { lane, .. }) | Self::End(lane) => lane.user().map(u64::from),
        }
    }

    fn run(self) {
        match self {
            Self::Serve(worker) => {
                let lane = Arc::clone(&worker.lane);
                match lane.act() {
                    Ok(_acting) => worker.run(),
                    Err(errno) => worker.handle.with(|leaf| worker.refuse(errno, leaf)),
                }
            }
            Self::End(lane) => drop(lane),
        }
    }

    fn refuse(self) -> Option<Self> {
        match self {
            Self::Serve(worker) => {
                worker.handle.with(|leaf| worker.refuse(Errno::AGAIN, leaf));
                None
            }
            Self::End(_) => Some(self),
        }
    }
}

/// Works through a lane.
struct GroupWorker {
    business: Business,
    lane: Arc<GroupLane>,
    host: Host,
    tools: Tools,
    handle: LeafHandle,
    changes: Option<Arc<dyn ChangeLog>>,
}

/// A request that shows that its thread does not hang.
struct Alive {
    attention: Arc<Attention>,
    /// The thread that works on it.
    worker: Option<Arc<dyn Worker>>,
}

impl AskedTool for Alive {
    fn stopped(&self) -> Option<Errno> {
        if let Some(worker) = &self.worker {
            worker.show_life();
        }
        self.attention.stopped()
    }

    fn is_late(&self) -> bool {
        self.attention.is_late()
    }
}

impl GroupWorker {
    fn run(&self) {
        while let Some(mut job) = self.next() {
            self.serve(&mut job);
        }
    }

    fn refuse(&self, errno: Errno, leaf: &mut Leaf<'_>) {
        // Who comes with input for a tool that was not started is told so when he asks for its
        // answer.
        self.occupant().call.get_or_insert(Err(errno));
        let stream = self.lane.stream;
        loop {
            match self.lane.next() {
                Ok(job) => {
                    leaf.consumed(stream, job.frame_bytes);
                    if job.answer {
                        leaf.fail(stream, job.wave, errno);
                    }
                }
                Err(0) => return,
                Err(consumed) => return leaf.consumed(stream, consumed),
            }
        }
    }

    fn next(&self) -> Option<GroupJob> {
        match self.lane.next() {
            Ok(job) => Some(job),
            Err(0) => None,
            Err(consumed) => {
                self.handle.with(|leaf| leaf.consumed(self.lane.stream, consumed));
                None
            }
        }
    }

    /// Refuses what changes files where the client may only read.
    fn check_write(&self, changes_files: bool) -> Result<(), Errno> {
        let may_write = self.lane.caller.rights().may_write;
        if changes_files && !may_write { Err(Errno::PERM) } else { Ok(()) }
    }

    /// Where changes are recorded, if they are.
    fn recorder(&self) -> Option<Recorder> {
        let log = Arc::clone(self.changes.as_ref()?);
        let (handle, caller) = (self.handle.clone(), Arc::clone(&self.lane.caller));
        Some(Recorder { log, handle, host: Arc::clone(&self.host.name), caller })
    }

    fn start(
        &self,
        name: &str,
        tool: &dyn Tool,
        params: &[u8],
        host: &Host,
    ) -> Result<ServerCall, Errno> {
        let recorder = self.recorder();
        let change = recorder.as_ref().and_then(|_| tool.change(params));
        let change = change.map(|change| match change.command.is_empty() {
            true => Change { command: name.to_owned(), ..change },
            false => change,
        });
        let change = ChangeUnderWay::begin(recorder.as_ref(), change);
        if let Err(errno) = self.check_write(!tool.only_reads()) {
            change.into_iter().for_each(|change| change.refused(errno));
            return Err(errno);
        }
        ServerCall::start(tool, params, host, change)
    }

    fn occupant(&self) -> MutexGuard<'_, Occupant> {
        lock(&self.lane.occupant)
    }

    fn serve(&self, job: &mut GroupJob) {
        if let Some(reply) = job.answer.then(|| self.lane.replied(job.wave)).flatten() {
            // The tree may bring a request twice after a repair; it is applied once.
            return self.reply(job, Some(job.wave), &reply);
        }
        let decoded = Request::decode(&job.packet);
        let (request, data) = match decoded {
            Ok(decoded) if self.business.takes(&decoded.0) => decoded,
            Ok(_) => {
                return self.reply(job, job.answer.then_some(job.wave), &Err(Errno::OPNOTSUPP));
            }
            Err(errno) => return self.reply(job, job.answer.then_some(job.wave), &Err(errno)),
        };
        let kind = match &request {
            Request::Call { answer, .. } | Request::More { answer, .. } => {
                AttentionKind::Answer { eager: answer.eager }
            }
            Request::Feed => AttentionKind::Feed,
            _ => AttentionKind::Whole,
        };
        if kind == AttentionKind::Feed {
            // Input that is being taken in holds nobody back: behind it there has to be room for
            // those who ask whether this host still is at it.
            let consumed = std::mem::take(&mut job.frame_bytes);
            self.handle.with(|leaf| leaf.consumed(self.lane.stream, consumed));
        }
        let attention =
            Arc::new(Attention::new(&self.lane, &self.handle, self.host.leaf, job, kind));
        let partial = || self.partial(request, data, job, &attention);
        let partial = catch_unwind(AssertUnwindSafe(partial)).unwrap_or_else(|_| {
            // A fault of this program's: nobody waits for what will not come.
            self.occupant().call = Some(Err(Errno::IO));
            Err(Errno::IO)
        });
        let reply = partial.and_then(|partial| {
            let mut bytes = Vec::new();
            partial.encode(&mut bytes);
            // It is kept until the next.
            self.occupant().keep(bytes.len())?;
            Ok(Bytes::from(bytes))
        });
        self.reply(job, attention.wave(), &reply);
    }

    fn reply(&self, job: &GroupJob, wave: Option<u64>, reply: &Result<Bytes, Errno>) {
        if let (Some(wave), Ok(bytes)) = (wave, reply) {
            self.lane.remember(wave, bytes);
        }
        self.handle.with(|leaf| {
            leaf.consumed(self.lane.stream, job.frame_bytes);
            match (wave, reply) {
                (Some(wave), Ok(bytes)) => leaf.reply(self.lane.stream, wave, 0, bytes),
                (Some(wave), Err(errno)) => leaf.fail(self.lane.stream, wave, *errno),
                (None, _) => {}
            }
        });
    }

    fn partial(
        &self,
        request: Request,
        data: Bytes,
        job: &GroupJob,
        attention: &Arc<Attention>,
    ) -> Result<Partial, Errno> {
        let mut occupant = self.occupant();
        let alive = Alive { attention: Arc::clone(attention), worker: place::worker() };
        let host = self.host.for_request(Arc::new(alive));
        // What every host was told to bring to its end is, also when nobody waits for it any more.
        let is_end = matches!(
            request,
            Request::Settle | Request::Unread { .. } | Request::Close { .. } | Request::Last { .. }
        );
        if let Some(errno) = host.stopped().filter(|_| !is_end) {
            return Err(errno);
        }
        let keeps_bodies = request.keeps_bodies();
        if keeps_bodies {
            occupant.kept = Some(job.wave);
        }
        let partial = self.answer(&mut occupant, request, data, job, (&host, attention));
        // A tool may have gone on for a later request meanwhile.
        if let Some(wave) = attention.wave().filter(|_| keeps_bodies) {
            occupant.kept = Some(wave);
        }
        partial
    }

    fn answer(
        &self,
        occupant: &mut Occupant,
        request: Request,
        data: Bytes,
        job: &GroupJob,
        (host, attention): (&Host, &Attention),
    ) -> Result<Partial, Errno> {
        Ok(match request {
            Request::Call { tool, .. } => {
                let call =
                    self.tools.get(&tool).and_then(|found| self.start(&tool, found, &data, host));
                match occupant.call.insert(call) {
                    // A tool that is fed says nothing until it has everything.
                    Ok(call) if job.answer => call.answer(host, attention)?,
                    Err(errno) if job.answer => return Err(*errno),
                    _ => Default::default(),
                }
            }
            Request::Feed => {
                if let Some(Ok(call)) = &mut occupant.call {
                    call.feed(data, host);
                }
                Default::default()
            }
            Request::More { leaves, .. } => match &mut occupant.call {
                Some(Ok(call)) if leaves.contains(host.leaf) => call.answer(host, attention)?,
                Some(Err(errno)) if leaves.contains(host.leaf) => return Err(*errno),
                Some(_) => Default::default(),
                None => return Err(Errno::STALE),
            },
            Request::Fetch { leaves, .. } if !leaves.contains(host.leaf) => Default::default(),
            Request::Fetch { of, lines, bytes_max, locals, .. } => {
                match (&occupant.call, &occupant.group) {
                    _ if occupant.kept != Some(of) => return Err(Errno::STALE),
                    (Some(Ok(call)), _) => call.fetch(host.leaf, lines, bytes_max)?,
                    (_, Some(group)) => group.fetch(host.leaf, lines, bytes_max, &locals)?,
                    _ => return Err(Errno::STALE),
                }
            }
            Request::Last { leaves } if leaves.contains(host.leaf) => match &mut occupant.call {
                Some(Ok(call)) => call.last(host.leaf),
                // It was not begun.
                Some(Err(_)) | None => said(host.leaf, true, b"", host.leaf),
            },
            Request::Last { .. } => Default::default(),
            request => {
                let recorder = self.recorder();
                let opened = occupant.group.iter().flat_map(|group| &group.members);
                let opened = opened.map(|member| member.path.as_path());
                let change = recorder.as_ref().and_then(|_| change_of(&request, host.leaf, opened));
                let change = ChangeUnderWay::begin(recorder.as_ref(), change);
                let served = self.check_write(request.changes_files()).and_then(|()| {
                    group::serve(&mut occupant.group, request, &data, job.wave, host)
                });
                match (change, &served) {
                    (Some(change), Ok(partial)) => change.ended(partial.failures()),
                    (Some(change), Err(errno)) => change.refused(*errno),
                    (None, _) => {}
                }
                served?
            }
        })
    }
}
