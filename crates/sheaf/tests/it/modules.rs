//! Filters that users bring, on nodes that come when the module has long been sent: whoever takes
//! others in combines as those did that were lost.
use crate::tree::{DEADLINE, ECHO, Tree, next, runtime};
use rustix::process::Signal;
use sheaf_core::RangeSet;
use sheaf_group::service_config;
use sheaf_testing::sessions::{Process, Running, turn, wait_until};
use sheaf_tree::filter::{HeldUpListener, Registry, packets, tell_when_held_up};
use sheaf_tree::launch::{self, Carrier, Desk, Program};
use sheaf_tree::service::Services;
use sheaf_tree::status::ReportedLink;
use sheaf_tree::topology::{Names, Placement, Spec, Topology};
use sheaf_tree::{Network, Notice, Stream, Sync, Tuning, packet};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A module that passes packets on, as the compiler with these arguments makes it; `None`, with a
/// line that says so, where it makes none.
fn module(compiler: &str, arguments: &[&str]) -> Option<Vec<u8>> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scratch = tempfile::tempdir().unwrap();
    let into = scratch.path().join("module");
    let mut command = Command::new(compiler);
    command.args(arguments).arg("-I").arg(workspace.join("include"));
    command.arg(workspace.join("crates/sheaf-tree/tests/filters/misbehave.c")).arg("-o").arg(&into);
    let built = command.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !built {
        sheaf_testing::skipped(&format!("{compiler} makes no module of a filter here"));
        return None;
    }
    Some(std::fs::read(into).unwrap())
}

/// A session of 1x2x2x2 whose hosts come by themselves: n1 has the node 3 and its server (7), n2
/// the node 1, which is above 3, and its server (8).
struct Hosts {
    network: Network,
    _desk: Desk,
    address: String,
    token: std::path::PathBuf,
    program: std::path::PathBuf,
    running: BTreeMap<u32, Running>,
    _dir: tempfile::TempDir,
}

const LEAVES: u32 = 8;

impl Hosts {
    async fn start(path: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let names: Names = (1..=LEAVES).map(|n| format!("n{n}")).collect();
        let spec = Spec::parse("1x2x2x2").unwrap();
        let topology = Topology::build(&spec, "root", names, Placement::LeafHosts).unwrap();
        let program = Program::new(path.to_owned(), vec!["serve".to_owned()]);
        let tuning = Tuning { adoption_grace: Duration::from_millis(500), ..Tuning::default() };
        // Hosts of one machine: each serves a directory of its own.
        (1..=LEAVES).for_each(|n| std::fs::create_dir(dir.path().join(format!("n{n}"))).unwrap());
        let configs = service_config(dir.path().join("%h").to_str().unwrap(), None);
        let options = launch::Options { tuning, configs, ..Default::default() };
        let services = Services::new(Registry::with_builtins());
        let at = "127.0.0.1:0".parse().unwrap();
        let attached =
            launch::attached(&topology, &services, &options, &program, at, DEADLINE).await;
        let (network, desk) = attached.unwrap();
        let token = dir.path().join("token");
        std::fs::write(&token, desk.issue(100).unwrap().to_string()).unwrap();
        let only_own = PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&token, only_own).unwrap();
        let address = desk.address().unwrap().to_string();
        let running = BTreeMap::new();
        let program = path.to_owned();
        let mut hosts = Self { network, _desk: desk, address, token, program, running, _dir: dir };
        (1..=LEAVES).for_each(|host| hosts.join(host));
        let ready = hosts.network.ready(DEADLINE).await.expect("the tree starts");
        assert_eq!(ready.len(), u64::from(LEAVES), "{:?}", hosts.network.notices());
        hosts
    }

    fn join(&mut self, host: u32) {
        let mut command = Command::new(&self.program);
        command.args([
            "serve",
            "--join",
            &self.address,
            "--host",
            &format!("n{host}"),
            "--token-file",
        ]);
        command.arg(&self.token).stdin(Stdio::null());
        self.running.insert(host, Running::start(&mut command));
    }

    /// Each node that is up: its parent, and its process.
    async fn nodes(&self) -> BTreeMap<u32, (u32, Process)> {
        let survey = self.network.survey(Duration::from_secs(5)).await;
        let mut nodes = BTreeMap::new();
        for report in &survey.reports {
            for link in report.links.iter().filter(|link| link.state == ReportedLink::Up) {
                let Some(child) = link.child else { continue };
                if let Some(process) = survey.node(child).and_then(|node| Process::of(node.pid)) {
                    nodes.insert(child, (report.rank, process));
                }
            }
        }
        nodes
    }

    /// Waits until every node is where the plan has it.
    async fn are_in_place(&self) -> BTreeMap<u32, (u32, Process)> {
        let planned = [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2)];
        let planned = planned.into_iter().chain((7..15).map(|leaf| (leaf, 3 + (leaf - 7) / 2)));
        let planned: BTreeMap<u32, u32> = planned.collect();
        let deadline = Instant::now() + DEADLINE;
        loop {
            let nodes = self.nodes().await;
            if nodes.iter().map(|(&rank, &(parent, _))| (rank, parent)).eq(planned.clone()) {
                return nodes;
            }
            assert!(Instant::now() < deadline, "{nodes:?} {:?}", self.network.notices());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The next wave of packets of 1, one of each leaf that has answered; who that is.
    async fn wave(&self, stream: &Stream) -> RangeSet {
        let wave = next(stream).await;
        let list = wave.payload.as_deref().map(|list| packets::decode(list).unwrap());
        let packets = list.unwrap_or_default();
        assert!(packets.iter().all(|(_, one)| packet::scalar(one) == Some(1i64)), "{packets:?}");
        assert_eq!(packets.len() as u64, wave.coverage.ok.len(), "{:?}", wave.coverage);
        (*wave.coverage.ok).clone()
    }

    /// Waves until everybody is in one.
    async fn all_answer(&self, stream: &Stream) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            ask(stream).await;
            if self.wave(stream).await == self.network.everyone() {
                return;
            }
            assert!(Instant::now() < deadline, "{:?}", self.network.notices());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn ask(stream: &Stream) {
    stream.send(ECHO, b"", Some(Duration::from_secs(20))).await;
}

/// What nodes between the root and the leaves have of the engine for WebAssembly: nothing, its
/// file, or what came down the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    No,
    Installed,
    Sent,
}

/// What is mapped into a process.
fn engine_of(process: Process) -> Engine {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", process.pid)).unwrap();
    match (maps.contains("libsheaf_wasm.so"), maps.contains("/memfd:sheaf-filter")) {
        (true, _) => Engine::Installed,
        (false, true) => Engine::Sent,
        (false, false) => Engine::No,
    }
}

async fn outlive(module: Option<Vec<u8>>, program: &Path, engine: Option<Engine>) {
    let Some(module) = module else { return };
    let mut hosts = Hosts::start(program).await;
    let id = hosts.network.load_filter(module).unwrap();
    let open = |hosts: &Hosts| {
        hosts.network.open(
            "probe",
            hosts.network.everyone(),
            &id.filter("relay"),
            b"",
            Sync::WaitForAll,
        )
    };
    let stream = open(&hosts);
    ask(&stream).await;
    assert_eq!(hosts.wave(&stream).await, hosts.network.everyone());

    // A host with its inner node is lost, and comes back with none of what they had.
    let nodes = hosts.nodes().await;
    ask(&stream).await;
    [1, 8].iter().for_each(|rank| nodes[rank].1.signal(Signal::KILL));
    hosts.wave(&stream).await;
    hosts.running.remove(&2).unwrap().wait();
    ask(&stream).await;
    assert!(RangeSet::from_range(2, LEAVES).is_subset(&hosts.wave(&stream).await));
    hosts.join(2);
    hosts.all_answer(&stream).await;

    // The others go back to the inner node, which then takes in the server that came with it.
    drop(stream);
    let nodes = hosts.are_in_place().await;
    let stream = open(&hosts);
    ask(&stream).await;
    assert_eq!(hosts.wave(&stream).await, hosts.network.everyone());
    ask(&stream).await;
    nodes[&3].1.signal(Signal::KILL);
    assert_eq!(
        hosts.wave(&stream).await,
        hosts.network.everyone(),
        "{:?}",
        hosts.network.notices()
    );
    ask(&stream).await;
    assert_eq!(hosts.wave(&stream).await, hosts.network.everyone());
    let nodes = hosts.nodes().await;
    assert_eq!(nodes[&8].0, 1, "the node that came late has it");
    for (&rank, (_, process)) in nodes.iter().filter(|_| engine.is_some()) {
        let expected = engine.filter(|_| rank < 7).unwrap_or(Engine::No);
        assert_eq!(engine_of(*process), expected, "the node {rank}");
    }
    let failed = |notice: &Notice| matches!(notice, Notice::FilterFailed { .. });
    assert!(!hosts.network.notices().iter().any(failed), "{:?}", hosts.network.notices());
    drop(stream);
    hosts.network.clone().shutdown().await;
    for mut running in std::mem::take(&mut hosts.running).into_values() {
        wait_until("every host has ended", || running.has_ended());
    }
}

/// What is told of a filter that broke the process of a node: which node, how, and the filter.
async fn told_of_crash(network: &Network) -> (u32, String) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let told = network.notices().into_iter().find_map(|notice| match notice {
            Notice::FilterFailed { by, message, .. } => Some((by, message)),
            _ => None,
        });
        match told {
            Some(told) => return told,
            None => assert!(Instant::now() < deadline, "{:?}", network.notices()),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn filter_that_breaks_a_node_is_named_with_the_node_and_signal() {
    let _turn = turn();
    let Some(module) = module("cc", &["-O2", "-shared", "-fPIC"]) else { return };
    let told = |id: &sheaf_tree::filter::ModuleId| {
        let module = &id.to_string()[..12];
        format!(
            "its process ended with signal 11 (SIGSEGV), while it ran the filter \"crash_at\" of module {module}"
        )
    };
    // Of a process of this machine its parent hears how it has ended; the others answer meanwhile.
    runtime().block_on(async {
        let tree = Tree::start("1x2x2", 4, Carrier::Unix, Tuning::default()).await;
        let id = tree.network.load_filter(module.clone()).unwrap();
        let filter = id.filter("crash_at");
        let everyone = tree.network.everyone();
        let stream =
            tree.network.open("probe", everyone, &filter, &2_u32.to_le_bytes(), Sync::WaitForAll);
        ask(&stream).await;
        assert_eq!(told_of_crash(&tree.network).await, (2, told(&id)));
        assert!(next(&stream).await.coverage.is_full(), "{:?}", tree.network.notices());
        drop(stream);
        tree.network.shutdown().await;
    });
    // Of one beside the server of a host that has joined, that server does.
    runtime().block_on(async {
        let mut hosts = Hosts::start(program()).await;
        let id = hosts.network.load_filter(module).unwrap();
        let (filter, everyone) = (id.filter("crash_at"), hosts.network.everyone());
        let stream =
            hosts.network.open("probe", everyone, &filter, &3_u32.to_le_bytes(), Sync::WaitForAll);
        ask(&stream).await;
        assert_eq!(told_of_crash(&hosts.network).await, (3, told(&id)));
        drop(stream);
        hosts.network.clone().shutdown().await;
        for mut running in std::mem::take(&mut hosts.running).into_values() {
            wait_until("every host has ended", || running.has_ended());
        }
    });
}

/// What each of these filters does to the node that its stream names, as it is told.
const ENDS: [(&str, &str); 6] = [
    ("crash_at", "its process ended with signal 11 (SIGSEGV), while it ran the filter"),
    ("exit_at", "its process was ended by a call of exit, while it ran the filter"),
    ("quit_at", "its process ended with exit code 9, perhaps in the filter"),
    ("kill_at", "its process ended with signal 9, perhaps in the filter"),
    ("spin_at", "its process was stuck, and ended itself, while it ran the filter"),
    ("sleep_at", "its process was stuck, and ended itself, while it ran the filter"),
];

/// Neighbours are given up late, so that what is told comes from who has seen it.
fn patient() -> Tuning {
    Tuning { heartbeat_timeout: Duration::from_secs(4), ..Tuning::default() }
}

/// Has a filter of `module` end the node 2, and looks at what is told; the others answer.
async fn end_node(network: &Network, module: &[u8], (function, how): (&str, &str)) {
    let id = network.load_filter(module.to_vec()).unwrap();
    let (filter, everyone) = (id.filter(function), network.everyone());
    let stream = network.open("probe", everyone, &filter, &2_u32.to_le_bytes(), Sync::WaitForAll);
    ask(&stream).await;
    let told = format!("{how} {function:?} of module {}", &id.to_string()[..12]);
    assert_eq!(told_of_crash(network).await, (2, told), "{:?}", network.notices());
    assert!(next(&stream).await.coverage.ok.len() >= 2, "{:?}", network.notices());
}

#[test]
fn filter_that_ends_or_holds_up_its_node_is_named() {
    let _turn = turn();
    let Some(module) = module("cc", &["-O2", "-shared", "-fPIC"]) else { return };
    for end in ENDS {
        runtime().block_on(async {
            let tree = Tree::start("1x2x2", 4, Carrier::Unix, patient()).await;
            end_node(&tree.network, &module, end).await;
            tree.network.shutdown().await;
        });
    }
}

/// The root is a process of the user's: it is told, and goes on.
#[test]
fn filter_that_holds_up_the_root_is_named() {
    let _turn = turn();
    let Some(module) = module("cc", &["-O2", "-shared", "-fPIC"]) else { return };
    let told = Arc::new(Mutex::new(Vec::new()));
    let hear = Arc::clone(&told);
    let listener: Arc<HeldUpListener> =
        Arc::new(move |text: &str| hear.lock().unwrap().push(text.to_owned()));
    tell_when_held_up(&listener);
    runtime().block_on(async {
        let tree = Tree::start("1x2x2", 4, Carrier::Unix, Tuning::default()).await;
        let id = tree.network.load_filter(module).unwrap();
        let (filter, everyone) = (id.filter("nap_at"), tree.network.everyone());
        let root = 0_u32.to_le_bytes();
        let stream = tree.network.open("probe", everyone, &filter, &root, Sync::WaitForAll);
        ask(&stream).await;
        assert!(next(&stream).await.coverage.is_full(), "{:?}", tree.network.notices());
        tree.network.shutdown().await;
    });
    let text = "the filter \"nap_at\" at node 0 has held up this process for 4.5 s";
    assert_eq!(*told.lock().unwrap(), [text]);
}

/// A stand-in for ssh that runs what it is to on this machine.
const HERE: &str = "#!/bin/sh\nfor last; do :; done\n\
    export HOME=DIR SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22'\nexec sh -c \"$last\"\n";

#[test]
fn filter_that_ends_or_holds_up_a_node_on_another_host_is_named() {
    let _turn = turn();
    let Some(module) = module("cc", &["-O2", "-shared", "-fPIC"]) else { return };
    for (carrier, end) in [
        (Carrier::Tls, ENDS[0]),
        (Carrier::Tls, ENDS[1]),
        (Carrier::Tls, ENDS[3]),
        (Carrier::Tls, ENDS[4]),
        (Carrier::Ssh, ENDS[0]),
        (Carrier::Ssh, ENDS[2]),
        (Carrier::Ssh, ENDS[3]),
        (Carrier::Ssh, ENDS[5]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (ssh, sheaf) = (dir.path().join("ssh"), dir.path().join("sheaf"));
        std::fs::write(&ssh, HERE.replace("DIR", dir.path().to_str().unwrap())).unwrap();
        std::fs::set_permissions(&ssh, PermissionsExt::from_mode(0o755)).unwrap();
        // Symbols are most of a test build, and would be sent.
        let stripped = Command::new("strip").arg("-o").arg(&sheaf).arg(program()).status();
        if !stripped.is_ok_and(|status| status.success()) {
            std::fs::copy(program(), &sheaf).unwrap();
        }
        let mut program = Program::new(sheaf.clone(), vec!["serve".to_owned()]);
        let mut how = launch::Ssh::new(launch::ProgramContent::of_program(&sheaf).unwrap());
        how.command = vec![ssh.to_str().unwrap().to_owned()];
        (program.carrier, program.starter) = (carrier, launch::Starter::Ssh(how));
        // Hosts of one machine: each serves a directory of its own.
        let configs = service_config(dir.path().join("%h").to_str().unwrap(), None);
        let options = launch::Options { tuning: patient(), configs, ..Default::default() };
        runtime().block_on(async {
            let services = Services::new(Registry::with_builtins());
            let tree = Tree::of(("1x2x2", 4), &services, &options, &program, dir).await;
            let ready = tree.network.ready(DEADLINE).await.expect("the tree starts");
            assert_eq!(ready.len(), 4, "{carrier:?} {:?}", tree.network.notices());
            end_node(&tree.network, &module, end).await;
            tree.network.shutdown().await;
        });
    }
}

#[test]
fn native_filter_runs_at_nodes_that_came_late() {
    let _turn = turn();
    // What such a node has mapped is the module.
    runtime().block_on(outlive(module("cc", &["-O2", "-shared", "-fPIC"]), program(), None));
}

#[test]
fn webassembly_filter_runs_at_nodes_that_came_late() {
    let _turn = turn();
    runtime().block_on(outlive(module("clang", &WASI), program(), Some(Engine::Installed)));
}

/// Hosts that were given the program alone: the engine comes to the nodes that combine, those too
/// that come late, and to no leaf.
#[test]
fn webassembly_filter_runs_on_hosts_without_an_engine() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let alone = dir.path().join("sheaf");
    std::fs::copy(program(), &alone).unwrap();
    runtime().block_on(outlive(module("clang", &WASI), &alone, Some(Engine::Sent)));
}

const WASI: [&str; 3] = ["--target=wasm32-wasi", "-mexec-model=reactor", "-O2"];

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_sheaf"))
}

/// The compile lines of docs/filters.md run as they stand there, in the top directory of the
/// source, and what they make is a filter that a network takes.
#[test]
fn documented_compile_lines_make_filters() {
    let guide = include_str!("../../../../docs/filters.md");
    let (_, block) = guide.split_once("```sh\n").expect("there are compile lines");
    let (block, _) = block.split_once("```").expect("the block ends");
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scratch = tempfile::tempdir().unwrap();
    assert!(block.lines().count() > 3, "{block}");
    for line in block.lines() {
        let (command, name) = line.rsplit_once(" -o ").expect("it says where the module goes");
        let into = scratch.path().join(name);
        let command = format!("{command} -o {}", into.display());
        let built =
            Command::new("sh").args(["-c", &command]).current_dir(&workspace).output().unwrap();
        if !built.status.success() {
            let compiler = line.split(' ').next().unwrap_or_default();
            let no_compiler = built.status.code() == Some(127);
            // Without the target's libraries clang and rustc say so.
            let told = String::from_utf8_lossy(&built.stderr);
            let no_target = [
                "can't find crate for `std`",
                "may not be installed",
                "file not found",
                "cannot open",
            ];
            assert!(
                no_compiler || no_target.iter().any(|part| told.contains(part)),
                "{line}\n{told}"
            );
            sheaf_testing::skipped(&format!("{compiler} lacks what `{line}` needs"));
            continue;
        }
        runtime().block_on(async {
            let topology = Topology::build(
                &Spec::parse("flat").unwrap(),
                "root",
                Names::from_iter(["n1".to_owned()]),
                Placement::LeafHosts,
            )
            .unwrap();
            let network = launch::embedded(
                &topology,
                &Services::new(Registry::with_builtins()),
                &launch::Options::default(),
            );
            network
                .load_filter(std::fs::read(&into).unwrap())
                .unwrap_or_else(|error| panic!("{line}: {error}"));
            network.shutdown().await;
        });
    }
}
