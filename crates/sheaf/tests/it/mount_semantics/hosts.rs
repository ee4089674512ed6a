//! Hosts of which each has mounted the files of all.
use crate::gates::CLIENTS;
use crate::machines::{LOGIN, Machines};
use sheaf_testing::home::Run;
use sheaf_testing::sessions::{Process, wait_until};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where each has the view.
pub const POINT: &str = "/run/view";
/// What each exports.
pub const EXPORT: &str = "/root/files";
/// A host that is silent for two seconds is lost, and started again soon.
pub const QUICK: &str = "heartbeat_ms = 200\nheartbeats_lost_max = 10\nrelaunch_ms = 500\n\
                         ssh_connect_timeout_ms = 2000\nssh_retries = 0\n";

/// `h1`, `h2`, … with a session of root's, and a view on each.
pub struct ViewHosts {
    pub machines: Machines,
    count: usize,
}

impl ViewHosts {
    /// `None`, with a line that says so, where this cannot be had.
    pub fn new(count: usize) -> Option<Self> {
        Self::with(count, "", "10")
    }

    /// Those with these settings of `[tuning]`, whose mounts wait for so many seconds.
    pub fn with(count: usize, tuning: &str, patience: &str) -> Option<Self> {
        Self::in_tree(count, "flat", tuning, patience)
    }

    /// The same in a tree of this shape.
    pub fn in_tree(count: usize, tree: &str, tuning: &str, patience: &str) -> Option<Self> {
        let hosts = Self::session(count, tree, tuning)?;
        for host in 1..=count {
            let run = hosts.mount(host, patience);
            assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "h{host}: {run:?}");
        }
        Some(hosts)
    }

    /// The session alone.
    pub fn without_views(count: usize, tuning: &str) -> Option<Self> {
        Self::session(count, "flat", tuning)
    }

    fn session(count: usize, tree: &str, tuning: &str) -> Option<Self> {
        if !crate::mount::can_mount() {
            return None;
        }
        let machines = Machines::new(count)?;
        let config = format!(
            "[cluster.views]\nhosts = \"h[1-{count}]\"\ntree = \"{tree}\"\nexport = \"{EXPORT}\"\n{CLIENTS}[tuning]\n{tuning}"
        );
        machines.write(LOGIN, "sheaf.toml", &config);
        let hosts = Self::of(machines, count);
        let up = hosts.machines.run(&["up"]);
        assert_eq!(up.code, Some(0), "{up:?}");
        Some(hosts)
    }

    /// Directories on hosts, whose session is somebody else's concern.
    pub fn of(machines: Machines, count: usize) -> Self {
        let hosts = Self { machines, count };
        for host in 1..=count {
            fs::create_dir(hosts.disk(host, "")).unwrap();
            fs::create_dir(hosts.machines.root(host).join(POINT.trim_start_matches('/'))).unwrap();
        }
        hosts
    }

    /// Mounts the view on a host.
    pub fn mount(&self, host: usize, patience: &str) -> Run {
        self.sheaf(host, &["--quiet", "--timeout", patience, "mount", POINT])
    }

    /// `sheaf` with these arguments on a host.
    pub fn sheaf(&self, host: usize, args: &[&str]) -> Run {
        Run::of(self.command(host, args).output().unwrap())
    }

    /// The same, to be run.
    pub fn command(&self, host: usize, args: &[&str]) -> Command {
        let program = self.machines.dir().join("sheaf");
        self.machines.command(host, program.to_str().unwrap(), args)
    }

    /// A script that runs on a host, in the directory of its view with all hosts.
    pub fn shell(&self, host: usize, script: &str) -> Run {
        self.shell_at(host, &format!("{POINT}/hosts"), script)
    }

    /// The same in another directory.
    pub fn shell_at(&self, host: usize, directory: &str, script: &str) -> Run {
        let script = format!("cd {directory}\n{script}");
        Run::of(self.machines.command(host, "sh", &["-euc", &script]).output().unwrap())
    }

    /// A file of `owner`, as a host sees it.
    pub fn at(&self, host: usize, owner: usize, name: &str) -> PathBuf {
        self.machines.root(host).join(inside(owner, name).trim_start_matches('/'))
    }

    /// A file of a host where it lies, with nothing of Sheaf's between.
    pub fn disk(&self, host: usize, name: &str) -> PathBuf {
        self.machines.home(host, "files").join(name)
    }

    /// The hosts' numbers.
    pub fn all(&self) -> std::ops::RangeInclusive<usize> {
        1..=self.count
    }

    /// The process that has mounted the view of a host.
    pub fn mounter(&self, host: usize) -> Process {
        self.sheaf_process(host, "mount")
    }

    /// The server of a host.
    pub fn server(&self, host: usize) -> Process {
        self.sheaf_process(host, "serve")
    }

    fn sheaf_process(&self, host: usize, word: &str) -> Process {
        let mut found = None;
        wait_until("the process is there", || {
            let has = |process: &Process| process.arguments().iter().any(|one| one == word);
            found = self.machines.processes(host).into_iter().find(has);
            found.is_some()
        });
        found.unwrap()
    }

    /// Two threads on each host do something at the same time, in each of many rounds; how often it was done in
    /// each round, and what those got who did not do it.
    pub fn race(
        &self,
        rounds: usize,
        act: impl Fn(usize, usize) -> io::Result<()> + Sync,
    ) -> Vec<(usize, Vec<i32>)> {
        let threads = 2 * self.count;
        let begin = Barrier::new(threads);
        let of_thread = |thread: usize| {
            let host = 1 + thread % self.count;
            let one = |round: usize| {
                begin.wait();
                act(host, round * threads + thread).err().map(|error| error.raw_os_error().unwrap())
            };
            (0..rounds).map(one).collect::<Vec<_>>()
        };
        let all: Vec<Vec<Option<i32>>> = std::thread::scope(|scope| {
            let started: Vec<_> =
                (0..threads).map(|thread| scope.spawn(move || of_thread(thread))).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let of_round = |round: usize| {
            let failed: Vec<i32> = all.iter().filter_map(|thread| thread[round]).collect();
            (threads - failed.len(), failed)
        };
        (0..rounds).map(of_round).collect()
    }

    /// The same, of which exactly one thread must have done it, and the others got this error.
    #[track_caller]
    pub fn one_wins(
        &self,
        rounds: usize,
        loss: rustix::io::Errno,
        act: impl Fn(usize, usize) -> io::Result<()> + Sync,
    ) {
        for (round, (won, failed)) in self.race(rounds, act).into_iter().enumerate() {
            assert_eq!(won, 1, "round {round}: {failed:?}");
            let as_lost = |error: &i32| *error == loss.raw_os_error();
            assert!(failed.iter().all(as_lost), "round {round}: {failed:?}");
        }
    }

    /// In which round a number of [`Self::race`] is.
    pub fn round(&self, number: usize) -> usize {
        number / (2 * self.count)
    }
}

/// Tells threads that it is over when this is dropped, be it by a test that fails.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The path of a file of `owner` on any host.
pub fn inside(owner: usize, name: &str) -> String {
    format!("{POINT}/hosts/h{owner}/{name}")
}

/// What an error is, as the system numbers it.
pub fn errno<T>(result: io::Result<T>) -> Option<rustix::io::Errno> {
    result.err().and_then(|error| rustix::io::Errno::from_io_error(&error))
}
