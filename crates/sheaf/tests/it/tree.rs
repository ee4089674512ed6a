//! Trees of real processes whose root is the test, and their processes.
use sheaf_group::{Client, Limits, Servers, service_config};
use sheaf_testing::sessions::Process;
use sheaf_tree::launch::{self, Carrier, Program};
use sheaf_tree::service::Services;
use sheaf_tree::topology::{Names, Placement, Spec, Topology};
use sheaf_tree::{Network, Stream, Sync, Tuning, WaveResult, packet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Tags that a server answers: with the number 1, and with the digest of the packet.
pub const ECHO: i32 = 1001;
pub const DIGEST: i32 = 1004;
/// Anything takes less than this, on any machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

pub struct Tree {
    pub network: Network,
    pub topology: Topology,
    pub dir: tempfile::TempDir,
    /// The binary under a name that only this tree has.
    path: PathBuf,
}

impl Tree {
    /// Starts it and waits until every leaf runs. The export of the host n1 is the directory n1.
    pub async fn start(shape: &str, leaves: u32, carrier: Carrier, tuning: Tuning) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sheaf"), dir.path().join("sheaf")).unwrap();
        let tree = Self::begin(shape, leaves, carrier, tuning, dir).await;
        let ready = tree.network.ready(DEADLINE).await.expect("the tree starts");
        assert_eq!(ready.len(), u64::from(leaves), "{:?}", tree.network.notices());
        tree
    }

    /// [`Tree::start`] without waiting for anybody; every node runs the program `sheaf` in `dir`.
    pub async fn begin(
        shape: &str,
        leaves: u32,
        carrier: Carrier,
        tuning: Tuning,
        dir: tempfile::TempDir,
    ) -> Self {
        let configs = service_config(dir.path().join("%h").to_str().unwrap(), None);
        let options = launch::Options { configs, tuning, ..Default::default() };
        let mut program = Program::new(dir.path().join("sheaf"), vec!["serve".to_owned()]);
        program.carrier = carrier;
        Self::of((shape, leaves), &Servers::default().services(), &options, &program, dir).await
    }

    /// [`Tree::begin`] with other services; what the nodes run is in `dir`.
    pub async fn of(
        (shape, leaves): (&str, u32),
        services: &Services,
        options: &launch::Options,
        program: &Program,
        dir: tempfile::TempDir,
    ) -> Self {
        let names: Names = (1..=leaves).map(|n| format!("n{n}")).collect();
        for leaf in 1..=leaves {
            std::fs::create_dir(dir.path().join(format!("n{leaf}"))).unwrap();
        }
        let spec = Spec::parse(shape).unwrap();
        let topology = Topology::build(&spec, "root", names, Placement::LeafHosts).unwrap();
        let network = launch::processes(&topology, services, options, program).await.unwrap();
        Self { network, topology, dir, path: program.path.clone() }
    }

    pub fn leaves(&self) -> u64 {
        u64::from(self.topology.leaves_len())
    }

    /// A stream of sums over all leaves.
    pub fn sums(&self) -> Stream {
        self.network.open("probe", self.network.everyone(), "sum", b"%ld", Sync::WaitForAll)
    }

    pub fn session(&self, timeout: Duration) -> Client {
        let limits = Limits::default().with_timeout(timeout);
        Client::new(self.network.clone(), self.topology.leaf_hosts(), limits).unwrap()
    }

    /// Every process of the tree, and whether this process has started it (at depth 1).
    fn processes(&self) -> Vec<(Process, bool)> {
        let own = std::process::id();
        let mark = self.path.as_os_str().as_encoded_bytes();
        let pids = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u32>().ok());
        let of_tree = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).next() == Some(mark)
        };
        let process = |pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let parent =
                stat[stat.rfind(')')? + 1..].split_whitespace().nth(1)?.parse::<u32>().ok()?;
            Some((Process::of(pid)?, parent == own))
        };
        pids.filter(of_tree).filter_map(process).collect()
    }

    /// In a tree of three levels: the inner nodes.
    pub fn inner(&self) -> Vec<Process> {
        self.processes().into_iter().filter(|(_, ours)| *ours).map(|(process, _)| process).collect()
    }

    pub fn everybody(&self) -> Vec<Process> {
        self.processes().into_iter().map(|(process, _)| process).collect()
    }

    /// Ends it; nothing of it is left.
    pub async fn end(self) {
        self.network.clone().shutdown().await;
        let deadline = Instant::now() + DEADLINE;
        while !self.processes().is_empty() {
            assert!(Instant::now() < deadline, "{:?} are left", self.processes());
            tokio::task::yield_now().await;
        }
    }
}

/// Sends one packet that everybody answers with 1.
pub async fn ask(stream: &Stream) {
    let sent = tokio::time::timeout(DEADLINE, stream.send(ECHO, b"", Some(DEADLINE))).await;
    sent.expect("there is room");
}

/// The next wave, which counts each leaf at most once and says which; how many it counts.
pub async fn next_sum(stream: &Stream) -> u64 {
    let wave = next(stream).await;
    let sum = wave.payload.as_deref().and_then(packet::scalar::<i64>).unwrap_or(0);
    assert_eq!(u64::try_from(sum).unwrap(), wave.coverage.ok.len(), "{:?}", wave.coverage);
    wave.coverage.ok.len()
}

pub async fn next(stream: &Stream) -> WaveResult {
    stream.recv_until(Instant::now() + DEADLINE).await.expect("every wave ends")
}
