//! Nodes below the root's children are forked by their parents: they are processes like those that
//! were started as programs, and have nothing of anybody else's.
use crate::recovery::quick;
use crate::tree::{DEADLINE, Tree, ask, next_sum, runtime};
use rustix::process::Signal;
use sheaf_core::hostset::HostSet;
use sheaf_testing::home::Run;
use sheaf_testing::sessions::{Process, turn, wait_until};
use sheaf_tree::launch::Carrier;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// What abstract names of places begin with.
const PLACE: &str = "@sheaf-place-";

const CARRIERS: [Carrier; 3] = [Carrier::Unix, Carrier::Tcp, Carrier::Tls];

/// What the descriptors of a process beyond the standard ones lead to.
fn descriptors(process: Process) -> Vec<String> {
    let entries = std::fs::read_dir(format!("/proc/{}/fd", process.pid)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let number = |path: &Path| path.file_name().unwrap().to_str().unwrap().parse::<u32>().unwrap();
    paths
        .filter(|path| number(path) > 2)
        .filter_map(|path| Some(std::fs::read_link(path).ok()?.to_str().unwrap().to_owned()))
        .collect()
}

/// The fields of `/proc/PID/stat` behind the name: parent and process group are the second and
/// third.
fn stat(process: Process) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap();
    text[text.rfind(')').unwrap() + 1..].split_whitespace().map(ToOwned::to_owned).collect()
}

/// The abstract names at which somebody of this machine listens, by their sockets.
fn abstract_names() -> HashMap<String, String> {
    let text = std::fs::read_to_string("/proc/net/unix").unwrap();
    let fields = |line: &str| line.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
    let named = text.lines().map(fields).filter(|line| line.len() == 8);
    named.map(|line| (format!("socket:[{}]", line[6]), line[7].clone())).collect()
}

#[test]
fn forked_node_is_a_process_as_any_other() {
    let _turn = turn();
    for carrier in CARRIERS {
        runtime().block_on(async {
            let tree = Tree::start("1x2x2x2", 8, carrier, quick()).await;
            let all = tree.everybody();
            assert_eq!(all.len(), 2 + 4 + 8);
            let (mut below, mut names) = (BTreeMap::<u32, usize>::new(), HashSet::new());
            for process in &all {
                let stat = stat(*process);
                let group: u32 = stat[2].parse().unwrap();
                assert_eq!(group, process.pid, "it has a process group of its own");
                *below.entry(stat[1].parse().unwrap()).or_default() += 1;
                names.insert(
                    std::fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap(),
                );
                assert_eq!(process.arguments()[1..], ["serve"]);
            }
            assert_eq!(names, HashSet::from(["sheaf\n".to_owned()]));
            let counts: Vec<usize> = below.into_values().collect();
            assert_eq!(counts, [2; 7], "each was made by its parent in the tree");
            tree.end().await;
        });
    }
}

#[test]
fn forked_node_has_its_own_door_and_no_descriptor_of_another() {
    let _turn = turn();
    for carrier in CARRIERS {
        runtime().block_on(async {
            let tree = Tree::start("1x2x3x3", 18, carrier, quick()).await;
            // They take their places when the start is over.
            let places_taken = || {
                let listening = abstract_names();
                let all = tree.everybody().into_iter().flat_map(descriptors);
                let names = all.filter_map(|leads_to| listening.get(&leads_to).cloned());
                names.filter(|name| name.starts_with(PLACE)).count()
            };
            wait_until("all have their places", || places_taken() == 26);
            let (mut doors, mut places) = (HashSet::new(), HashSet::new());
            let mut sockets = HashMap::new();
            let listening = abstract_names();
            for process in tree.everybody() {
                for leads_to in descriptors(process) {
                    assert!(
                        !leads_to.contains("memfd"),
                        "what a node is to be is read once: {leads_to}"
                    );
                    if let Some(name) = listening.get(&leads_to) {
                        // Names are made of random bytes, those of places of what tells them
                        // apart: the same ones would be the same name.
                        let seen = if name.starts_with(PLACE) { &mut places } else { &mut doors };
                        seen.insert(name.clone());
                    }
                    if leads_to.starts_with("socket:") {
                        let other = *sockets.entry(leads_to.clone()).or_insert(process);
                        assert_eq!(other, process, "both have {leads_to}");
                    }
                }
            }
            if carrier == Carrier::Unix {
                assert_eq!(doors.len(), 2 + 6);
            }
            assert_eq!(places.len(), 26, "each holds its own place");
            // A pair each, and the runtime's for signals.
            assert!(sockets.len() >= 26 * 3, "{}", sockets.len());
            tree.end().await;
        });
    }
}

#[test]
fn forked_parent_that_is_killed_takes_nobody_along_the_root_all() {
    let _turn = turn();
    for carrier in [Carrier::Unix, Carrier::Tls] {
        runtime().block_on(async {
            let tree = Tree::start("1x2x2x2", 8, carrier, quick()).await;
            let pids: HashSet<u32> = tree.everybody().iter().map(|process| process.pid).collect();
            let parent_of = |process: Process| stat(process)[1].parse::<u32>().unwrap();
            let started: HashSet<u32> = tree.inner().iter().map(|process| process.pid).collect();
            // A forked inner node: its parent was started as a program, and it has children.
            let forked =
                tree.everybody().into_iter().find(|process| started.contains(&parent_of(*process)));
            let forked = forked.unwrap();
            forked.signal(Signal::KILL);
            wait_until("its parent has reaped it", || {
                !tree.everybody().contains(&forked) && Process::of(forked.pid) != Some(forked)
            });
            let stream = tree.sums();
            ask(&stream).await;
            assert_eq!(
                next_sum(&stream).await,
                8,
                "its leaves were taken in: {:?}",
                tree.network.notices()
            );
            let left = tree.everybody();
            assert_eq!(left.len(), 13);
            assert!(
                left.iter().all(|process| pids.contains(&process.pid)),
                "nobody was started again"
            );
            tree.end().await;
        });
    }
}

/// A user who has no other process.
fn nobody_else() -> u32 {
    1_000_000 + std::process::id()
}

#[test]
fn hosts_above_the_process_limit_are_lost_with_the_cause() {
    let _turn = turn();
    if !rustix::process::geteuid().is_root()
        || Command::new("prlimit").arg("--version").output().is_err()
    {
        sheaf_testing::skipped("it needs root and prlimit (util-linux)");
        return;
    }
    // Where the program was built may be closed to others.
    let open = tempfile::tempdir().unwrap();
    std::fs::set_permissions(open.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = open.path().join("sheaf");
    std::fs::copy(env!("CARGO_BIN_EXE_sheaf"), &program).unwrap();
    let (home, user) = (open.path().join("home"), nobody_else());
    std::fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(user), Some(user)).unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new("prlimit");
        command.args(words).current_dir("/").env_clear().env("PATH", "/usr/bin:/bin");
        command
            .env("HOME", &home)
            .env("XDG_RUNTIME_DIR", &home)
            .env("TMPDIR", &home)
            .uid(user)
            .gid(user);
        Run::of(command.stdin(Stdio::null()).output().unwrap())
    };
    let sheaf = program.to_str().unwrap();
    for link in ["unix", "tls"] {
        // Room for the root, two inner nodes, and some of the leaves.
        let up = [
            "--nproc=12",
            sheaf,
            "--session",
            "x",
            "--processes",
            "16",
            "--tree",
            "1x2x8",
            "--link",
            link,
            "up",
        ];
        let up = run(&up);
        assert_eq!(up.code, Some(4), "{up:?}");
        let status = run(&["--nproc=100", sheaf, "--session", "x", "--timeout", "1", "status"]);
        let down = run(&["--nproc=100", sheaf, "--session", "x", "down"]);
        let cause = "its process cannot be started: Resource temporarily unavailable (os error 11)";
        let lost = status.stdout.lines().filter(|line| line.contains(" lost: "));
        let lost: Vec<&str> = lost.collect();
        assert!(lost.iter().all(|line| line.contains(cause)), "{lost:?}");
        // A line is one host's, or that of all below a node that has none.
        let hosts = lost.iter().map(|line| {
            let told = line.split(" lost: ").nth(1).unwrap().split(':').next().unwrap();
            HostSet::parse(told).unwrap().iter().count()
        });
        let missing: usize = hosts.sum();
        assert!((4..16).contains(&missing), "{up:?} {status:?}");
        let expected = format!("{} of 16 hosts", 16 - missing);
        assert!(
            up.stdout.contains(&expected) || up.stderr.contains(&expected),
            "{expected}: {up:?}"
        );
        assert_eq!(down.code, Some(0), "{down:?}");
    }
}

/// The children of an inner node that is stopped as soon as it has forked them, maybe before it has
/// let them in, find another parent: nobody but the one that was stopped is missing.
#[test]
fn children_of_a_stopped_node_find_another_parent() {
    let _turn = turn();
    for carrier in [Carrier::Tcp, Carrier::Tls, Carrier::Unix] {
        runtime().block_on(async {
            let dir = tempfile::tempdir().unwrap();
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sheaf"), dir.path().join("sheaf"))
                .unwrap();
            let tree = Tree::begin("1x2x4", 8, carrier, quick(), dir).await;
            let mut stopped = None;
            wait_until("a node has all of its children", || {
                let all = tree.everybody();
                let children = |of: &Process| {
                    let born = |child: &&Process| {
                        stat(**child).get(1).is_some_and(|pid| *pid == of.pid.to_string())
                    };
                    all.iter().filter(born).count()
                };
                stopped = all.iter().copied().find(|process| children(process) == 4);
                stopped.is_some()
            });
            stopped.unwrap().signal(Signal::STOP);
            let begun = Instant::now();
            loop {
                let stream = tree.sums();
                ask(&stream).await;
                if next_sum(&stream).await == 8 {
                    break;
                }
                assert!(begun.elapsed() < DEADLINE, "{:?}", tree.network.notices());
            }
            tree.end().await;
        });
    }
}
