//! The service: lanes, each with a thread while it works, and one that waits without any until what is lent is
//! wanted back.
use super::client::OwnerClient;
use super::lending::system_lends;
use super::{FileOwners, OwnerLane, ViewAudit};
use crate::message::{FileAnswer, FileCall, NodeOp, decoded, encoded};
use rustc_hash::FxHashMap;
use sheaf_core::{Errno, lock};
use sheaf_tree::proto::Packet;
use sheaf_tree::service::{
    Blocking, Caller, Leaf, LeafHandle, Provider, Service, ServiceError, Site, Worker,
};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The service, at leaves, with the audit of what views change there.
pub fn service(audit: ViewAudit) -> impl Provider {
    let owners = Arc::new(FileOwners { audit, ..FileOwners::default() });
    let lanes = owners.clone();
    let open = move |site: &Site<'_>, caller: &Caller| -> Result<Box<dyn Worker>, Errno> {
        Ok(Box::new(OwnerLane::new(lanes.clone(), site, caller)?))
    };
    FilesProvider { owners, lanes: Blocking::new(open).judging_callers() }
}

struct FilesProvider {
    owners: Arc<FileOwners>,
    lanes: Blocking,
}

impl Provider for FilesProvider {
    /// Each lane keeps to the rights of its caller. A user whom the session admits has no views.
    fn check(&self, caller: &Caller) -> Result<(), Errno> {
        if caller.is_guest() { Err(Errno::PERM) } else { Ok(()) }
    }

    fn start(&self, site: &Site<'_>, handle: LeafHandle) -> Result<Box<dyn Service>, ServiceError> {
        let clients = Arc::<Mutex<FxHashMap<u32, u128>>>::default();
        let of_streams = clients.clone();
        let charges = move |stream: u32, request: &[u8]| {
            let (call, _) = decoded::<FileCall>(request).ok()?;
            share_of(&call, lock(&of_streams).get(&stream).copied())
        };
        let lanes = self.lanes.clone().charging(Arc::new(charges));
        let lanes = lanes.start(site, handle.clone())?;
        self.owners.is_leaf(site.host, &handle);
        let (owners, host) = (self.owners.clone(), site.host.to_owned());
        let runtime = Handle::try_current().ok();
        runtime.iter().for_each(|runtime| owners.audit.is_written_on(runtime.clone()));
        Ok(Box::new(FilesService { owners, host, handle, runtime, lanes, clients }))
    }
}

/// Has the kernel tell from here on that somebody wants to write to what is lent.
fn lends(owners: &Arc<FileOwners>, runtime: &Handle) -> Option<Handle> {
    if !system_lends() {
        return None;
    }
    let told = signal(SignalKind::io());
    let told = told.inspect_err(|error| tracing::warn!(%error, "nothing can be lent")).ok()?;
    runtime.spawn(look_when_told(told, Arc::downgrade(owners)));
    Some(runtime.clone())
}

async fn look_when_told(mut told: Signal, owners: Weak<FileOwners>) {
    while told.recv().await.is_some() {
        let Some(owners) = owners.upgrade() else { return };
        owners.all_clients().iter().for_each(|client| client.loans.look());
    }
}

/// What is not used for longer than this is let go, and calls that nobody waits for are interrupted.
const REST: Duration = Duration::from_secs(3);

async fn rest_now_and_then(owners: Weak<FileOwners>) {
    loop {
        tokio::time::sleep(REST).await;
        let Some(owners) = owners.upgrade() else { return };
        owners.all_clients().iter().for_each(|client| client.rest());
        owners.at_work.interrupt_those_over();
    }
}

/// Whose share of the threads a call takes: that of its user. Root's calls take that of their client, so that root of
/// one host does not take the threads of root of all others. What a client needs to go on has no share.
fn share_of(call: &FileCall, client: Option<u128>) -> Option<u64> {
    /// Above the numbers of users.
    const CLIENTS_FROM: u64 = 1 << 32;
    match call.op {
        NodeOp::Join(_)
        | NodeOp::Export
        | NodeOp::Forget(_)
        | NodeOp::MountWanted { .. }
        | NodeOp::MountsBelow { .. }
        | NodeOp::EndWait { .. }
        | NodeOp::LoseFiles => None,
        _ if call.who.uid == 0 => Some(CLIENTS_FROM | (client? as u64 >> 1)),
        _ => Some(call.who.uid.into()),
    }
}

/// What needs no thread while it waits.
async fn waited(client: &OwnerClient, op: NodeOp) -> FileAnswer {
    let wait = |ms: u32| Duration::from_millis(ms.into());
    match op {
        NodeOp::Recalls { done, told, wait_ms } => {
            let (files, news) = client.loans.recalls(&done, &told, wait(wait_ms)).await;
            FileAnswer::Recalled(client.loans.lender, files, news)
        }
        NodeOp::KeepLocks => FileAnswer::Instance(client.loans.lender),
        NodeOp::Mounts { done, wait_ms } => {
            FileAnswer::Mounts(client.mounts(&done, wait(wait_ms)).await)
        }
        _ => FileAnswer::Done,
    }
}

struct FilesService {
    owners: Arc<FileOwners>,
    host: String,
    handle: LeafHandle,
    /// Where it was started: whoever drives the node calls it, also from a thread without a runtime.
    runtime: Option<Handle>,
    lanes: Box<dyn Service>,
    /// Whose a lane is.
    clients: Arc<Mutex<FxHashMap<u32, u128>>>,
}

impl FilesService {
    /// What needs no thread, if it is that.
    fn own(&mut self, packet: &Packet) -> Option<NodeOp> {
        // Nobody's requests, which are those of a mount itself.
        if !packet.first || !packet.last || !packet.payload.starts_with(&[0; 4]) {
            return None;
        }
        match decoded::<FileCall>(&packet.payload).ok()?.0.op {
            op @ (NodeOp::Recalls { .. } | NodeOp::Mounts { .. } | NodeOp::KeepLocks) => Some(op),
            NodeOp::Join(client) => {
                lock(&self.clients).insert(packet.stream, client.number);
                None
            }
            _ => None,
        }
    }
}

impl Service for FilesService {
    fn opened(&mut self, stream: u32, caller: &Caller) {
        // Most servers never see a view, and start without this.
        self.owners.lends.get_or_init(|| {
            let runtime = self.runtime.as_ref()?;
            let _context = runtime.enter();
            runtime.spawn(rest_now_and_then(Arc::downgrade(&self.owners)));
            lends(&self.owners, runtime)
        });
        self.lanes.opened(stream, caller);
    }

    fn packet(&mut self, packet: Packet, leaf: &mut Leaf<'_>) {
        let Some(op) = self.own(&packet) else { return self.lanes.packet(packet, leaf) };
        leaf.consumed(packet.stream, packet.frame_bytes);
        let Packet { stream, wave, tag, .. } = packet;
        let number = lock(&self.clients).get(&stream).copied();
        let Some(client) = number.and_then(|number| self.owners.known(&self.host, number)) else {
            return leaf.fail(stream, wave, Errno::STALE);
        };
        let Some(runtime) = &self.runtime else { return leaf.fail(stream, wave, Errno::NOSYS) };
        let handle = self.handle.clone();
        runtime.spawn(async move {
            let answered = waited(&client, op).await;
            drop(client);
            let answer = encoded(&Ok::<_, Errno>(answered), &[]);
            handle.with(|leaf| match answer {
                Ok(bytes) => leaf.reply(stream, wave, tag, &bytes),
                Err(errno) => leaf.fail(stream, wave, errno),
            });
        });
    }

    fn cancelled(&mut self, stream: u32, wave: u64, leaf: &mut Leaf<'_>) {
        self.lanes.cancelled(stream, wave, leaf);
    }

    fn closed(&mut self, stream: u32) {
        lock(&self.clients).remove(&stream);
        self.lanes.closed(stream);
    }

    fn resume(&mut self, leaf: &mut Leaf<'_>) {
        self.lanes.resume(leaf);
    }

    fn ended(&mut self) {
        self.lanes.ended();
    }
}
