//! Clients that entered on a host: the servers keep to the rights that the root has given.
use crate::cluster::{Cluster, run};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sheaf_core::{Errno, RangeSet};
use sheaf_file::OFlags;
use sheaf_group::tool::{Host, Reply, Running, Step, Tool, Tools};
use sheaf_group::{Client, GroupError, Limits, service_config};
use sheaf_tree::launch::{self, join};
use sheaf_tree::service::{Caller, ClientRights};
use sheaf_tree::topology::{Names, Placement, Spec, Topology};

/// A tool that only reads, or may change files.
struct Nothing {
    only_reads: bool,
}

struct NothingAtWork;

impl Tool for Nothing {
    fn start(&self, _: &[u8], _: &Host) -> Result<Box<dyn Running>, Errno> {
        Ok(Box::new(NothingAtWork))
    }

    fn only_reads(&self) -> bool {
        self.only_reads
    }
}

impl Running for NothingAtWork {
    fn step(&mut self, answer: &mut Reply, _: &Host) -> Step {
        answer.bytes().extend_from_slice(b"done");
        Step::Done
    }
}

/// A client on `n1` of a session with these hosts, where the root has given it these rights; what
/// it claims to be itself is of no matter. The root goes with what is returned.
async fn on_host(cluster: &Cluster, rights: ClientRights) -> (Client, sheaf_tree::Network) {
    let names: Names = (1..=cluster.hosts).map(|n| format!("n{n}")).collect();
    let spec = Spec::parse("k-ary:2").unwrap();
    let tree = Topology::build(&spec, "root", names.clone(), Placement::LeafHosts).unwrap();
    let configs = service_config(cluster.dir.path().join("%h").to_str().unwrap(), None);
    let options = launch::Options { configs, depth: 1, ..Default::default() };
    let mut tools = Tools::default();
    tools.register("reads", Nothing { only_reads: true });
    tools.register("changes", Nothing { only_reads: false });
    let services = sheaf_group::Servers::new(tools).services();
    let root = launch::embedded(&tree, &services, &options);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let (uid, host) = (rustix::process::geteuid().as_raw(), "n1".to_owned());
    let caller = Caller::User { uid, gid: uid, gids: Vec::new(), host, is_owner: true, rights };
    root.admit_for(caller, theirs, &tree, b"").unwrap();
    let ours = std::os::unix::net::UnixStream::from(ours);
    ours.set_nonblocking(false).unwrap();
    let filters = services.filters().clone();
    let joined = tokio::task::spawn_blocking(move || join(ours.into(), &filters));
    let joined = joined.await.unwrap().unwrap();
    (Client::new(joined.network, names, Limits::default()).unwrap(), root)
}

const READS: ClientRights = ClientRights { may_write: false, may_be_root: true };

/// The errnos of the hosts that have failed.
fn failed(error: &GroupError) -> Vec<Errno> {
    match error {
        GroupError::Members(outcome) => outcome.failed.iter().map(|(errno, _)| *errno).collect(),
        other => panic!("{other}"),
    }
}

#[test]
fn client_that_may_read_changes_no_file() {
    let cluster = Cluster::new(3);
    cluster.write_all("/f", "kept");
    run(async {
        let (client, root) = on_host(&cluster, READS).await;
        let everyone = cluster.everyone();
        let read = client.gopenat(&everyone, "/f", 0, 0).await.unwrap();
        assert_eq!(read.size(), 3);
        // What is open to be read cannot be written to either.
        let chmod = read.fchmod(0o777).await.map(drop).unwrap_err();
        assert_eq!(failed(&chmod), [Errno::PERM], "{chmod}");
        let flags = [OFlags::WRONLY, OFlags::RDWR, OFlags::TRUNC, OFlags::CREATE];
        for flags in flags.map(|flags| flags.bits()) {
            let opened = client.gopenat(&everyone, "/f", flags, 0o600).await;
            let error = opened.map(drop).unwrap_err();
            assert_eq!(failed(&error), [Errno::PERM], "{flags:o}: {error}");
        }
        let makes = (OFlags::WRONLY | OFlags::CREATE).bits();
        let new = client.gopenat(&everyone, "/new", makes, 0o600).await;
        assert_eq!(failed(&new.map(drop).unwrap_err()), [Errno::PERM]);
        for (tool, count) in [("reads", 3), ("changes", 0)] {
            let mut call = client.call(&everyone, tool, b"").unwrap();
            call.next_bodies().await.unwrap();
            let outcome = call.finish();
            assert_eq!(outcome.status.count, count, "{tool}: {outcome:?}");
        }
        root.shutdown().await;
    });
    for leaf in 0..3 {
        assert_eq!(cluster.read(leaf, "/f"), b"kept");
        assert!(!cluster.path(leaf, "/new").exists());
    }
}

#[test]
fn root_of_one_host_is_not_root_on_others() {
    let cluster = Cluster::new(3);
    cluster.write_all("/f", "kept");
    let is_root = rustix::process::geteuid().is_root();
    run(async {
        let rights = ClientRights { may_write: true, may_be_root: false };
        let (client, root) = on_host(&cluster, rights).await;
        let opened = client.gopenat(&RangeSet::full(3), "/f", 0, 0).await;
        match opened.map(|group| group.size()) {
            Err(error) if is_root => assert_eq!(failed(&error), [Errno::PERM]),
            opened => assert_eq!((opened.unwrap(), is_root), (3, false)),
        }
        root.shutdown().await;
    });
}
