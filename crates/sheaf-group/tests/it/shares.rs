//! What one user may take of a server that works for many.
use crate::cluster::{Cluster, run};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sheaf_core::{Errno, RangeSet};
use sheaf_group::tool::{Host, Reply, Running, Step, Tool, Tools};
use sheaf_group::{Client, GroupError, Limits, USER_THREADS_MAX, service_config};
use sheaf_tree::Network;
use sheaf_tree::launch::{self, join};
use sheaf_tree::service::{Caller, ClientRights, Services};
use sheaf_tree::topology::{Names, Placement, Spec, Topology};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);

/// A tool that hangs until it is let go.
#[derive(Clone, Default)]
struct Hang(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    hang: usize,
    is_over: bool,
}

impl Hang {
    fn at_work(&self) -> usize {
        self.0.0.lock().unwrap().hang
    }

    fn let_go(&self) {
        self.0.0.lock().unwrap().is_over = true;
        self.0.1.notify_all();
    }
}

impl Tool for Hang {
    fn start(&self, _: &[u8], _: &Host) -> Result<Box<dyn Running>, Errno> {
        Ok(Box::new(self.clone()))
    }

    fn only_reads(&self) -> bool {
        true
    }
}

impl Running for Hang {
    fn step(&mut self, _: &mut Reply, _: &Host) -> Step {
        let mut state = self.0.0.lock().unwrap();
        state.hang += 1;
        drop(self.0.1.wait_while(state, |state| !state.is_over).unwrap());
        Step::Done
    }
}

/// A session of one host, to which users come as they do on a host.
struct Session {
    root: Network,
    tree: Topology,
    services: Services,
    names: Names,
}

impl Session {
    fn start(cluster: &Cluster, tools: Tools) -> Self {
        let names: Names = (1..=cluster.hosts).map(|n| format!("n{n}")).collect();
        let spec = Spec::parse("flat").unwrap();
        let tree = Topology::build(&spec, "root", names.clone(), Placement::LeafHosts).unwrap();
        let configs = service_config(cluster.dir.path().join("%h").to_str().unwrap(), None);
        let options = launch::Options { configs, depth: 1, ..Default::default() };
        let services = sheaf_group::Servers::new(tools).services();
        let root = launch::embedded(&tree, &services, &options);
        Self { root, tree, services, names }
    }

    /// A client of this user; of the session's for none.
    async fn client(&self, user: Option<u32>) -> Client {
        let limits = Limits::default().with_timeout(SOON);
        let Some(uid) = user else {
            return Client::new(self.root.clone(), self.names.clone(), limits).unwrap();
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let (host, rights) = ("n1".to_owned(), ClientRights::FULL);
        let caller =
            Caller::User { uid, gid: uid, gids: Vec::new(), host, is_owner: false, rights };
        self.root.admit_for(caller, theirs, &self.tree, b"").unwrap();
        let ours = std::os::unix::net::UnixStream::from(ours);
        ours.set_nonblocking(false).unwrap();
        let filters = self.services.filters().clone();
        let joined = tokio::task::spawn_blocking(move || join(ours.into(), &filters));
        let joined = joined.await.unwrap().unwrap();
        Client::new(joined.network, self.names.clone(), limits).unwrap()
    }
}

/// The errno of the one host, or that it has served.
async fn opened(client: &Client) -> Result<u64, Errno> {
    match client.gopenat(&RangeSet::single(0), "/f", 0, 0).await {
        Ok(group) => Ok(group.size()),
        Err(GroupError::Members(outcome)) => Err(outcome.failed[0].0),
        Err(error) => panic!("{error}"),
    }
}

fn shared_cluster() -> Option<Cluster> {
    if !rustix::process::geteuid().is_root() {
        sheaf_testing::skipped("only root serves other users");
        return None;
    }
    let cluster = Cluster::new(1);
    cluster.write_all("f", "text");
    std::fs::set_permissions(cluster.dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    Some(cluster)
}

#[test]
fn user_whose_requests_hang_keeps_no_other_from_a_thread() {
    const ALICE: u32 = 4_000_001;
    const BOB: u32 = 4_000_002;
    let Some(cluster) = shared_cluster() else { return };
    run(async {
        let (mut tools, hang) = (Tools::default(), Hang::default());
        tools.register("hang", hang.clone());
        let session = Session::start(&cluster, tools);
        let alice = session.client(Some(ALICE)).await;
        let bob = session.client(Some(BOB)).await;
        let own = session.client(None).await;
        let calls: Vec<_> = (0..USER_THREADS_MAX * 5)
            .map(|_| {
                let mut call = alice.call(&RangeSet::single(0), "hang", b"").unwrap();
                tokio::spawn(async move {
                    call.next_bodies().await.unwrap();
                    call.finish().failed
                })
            })
            .collect();
        let begun = Instant::now();
        while hang.at_work() < USER_THREADS_MAX {
            assert!(begun.elapsed() < SOON, "{} hang", hang.at_work());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(opened(&alice).await, Err(Errno::AGAIN), "its share hangs");
        assert_eq!((opened(&bob).await, opened(&own).await), (Ok(1), Ok(1)));
        assert_eq!(hang.at_work(), USER_THREADS_MAX);
        hang.let_go();
        let mut refused = 0;
        for call in calls {
            let failed = call.await.unwrap();
            refused += usize::from(!failed.is_empty());
            assert!(failed.iter().all(|(errno, _)| *errno == Errno::AGAIN), "{failed:?}");
        }
        assert_eq!(refused, USER_THREADS_MAX * 4);
        assert_eq!(opened(&alice).await, Ok(1));
        session.root.shutdown().await;
    });
}

#[test]
fn user_with_many_streams_is_refused_more_and_others_are_not() {
    const CAROL: u32 = 4_000_003;
    const DAVE: u32 = 4_000_004;
    /// The most of one client, and of one user at one host.
    const CLIENT: usize = 256;
    const USER: usize = 1024;
    let Some(cluster) = shared_cluster() else { return };
    run(async {
        let session = Session::start(&cluster, Tools::default());
        let (mut clients, mut groups, mut refused) = (Vec::new(), Vec::new(), None);
        for _ in 0..=USER / CLIENT {
            let client = session.client(Some(CAROL)).await;
            for _ in 0..CLIENT - 8 {
                match client.gopenat(&RangeSet::single(0), "/f", 0, 0).await {
                    Ok(group) => groups.push(group),
                    Err(GroupError::Members(outcome)) => {
                        refused = Some(outcome.failed[0].0);
                        break;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            clients.push(client);
        }
        assert_eq!((groups.len(), refused), (USER, Some(Errno::AGAIN)));
        assert_eq!(opened(&session.client(Some(DAVE)).await).await, Ok(1));
        assert_eq!(opened(&session.client(None).await).await, Ok(1));
        drop(groups);
        session.root.shutdown().await;
    });
}
