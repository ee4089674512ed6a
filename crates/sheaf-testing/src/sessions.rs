//! Sessions of real processes for tests: started, watched through `/proc`, ended.
use crate::home::{Home, Run};
use rustix::process::{Pid, Signal};
use sheaf_core::{ProcessStat, lock};
use std::collections::BTreeMap;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What happens at once, or a little later on a machine that is busy, happens within this time.
pub const SOON: Duration = Duration::from_secs(40);
const POLL: Duration = Duration::from_millis(5);

/// For tests that load the machine, or whose servers must answer within a short timeout: they run
/// one after another.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    lock(&TURN)
}

/// Waits until `condition` holds; fails when it does not in time.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        std::thread::park_timeout(POLL);
    }
}

/// A process and when it started: together they name it for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    pub pid: u32,
    started: u64,
}

impl Process {
    /// The process that has this number now; `None` if there is none, or it has ended and waits
    /// to be reaped.
    pub fn of(pid: u32) -> Option<Self> {
        let (state, started) = stat(pid)?;
        (state != 'Z').then_some(Self { pid, started })
    }

    pub fn runs(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    pub fn signal(self, signal: Signal) {
        if self.runs() {
            let pid = Pid::from_raw(i32::try_from(self.pid).unwrap()).unwrap();
            rustix::process::kill_process(pid, signal).unwrap();
        }
    }

    /// A number in kilobytes of a file of `/proc/PID`, such as `VmHWM` of `status`.
    pub fn kilobytes(self, file: &str, key: &str) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/{file}", self.pid)).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// What it was started with.
    pub fn arguments(self) -> Vec<String> {
        let text =
            std::fs::read_to_string(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        text.split_terminator('\0').map(ToOwned::to_owned).collect()
    }

    pub fn threads(self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.pid)).map_or(0, Iterator::count)
    }
}

/// State and start time of a process.
fn stat(pid: u32) -> Option<(char, u64)> {
    let line = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = ProcessStat::parse(&line)?;
    Some((stat.state()?.into(), stat.start_ticks()?))
}

/// Every process that was started in `home`, and those that they started: all have it in their
/// environment, also when whoever started them is gone.
pub fn of_home(home: &Home) -> Vec<Process> {
    let mark = [b"HOME=", home.path().as_os_str().as_encoded_bytes()].concat();
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let of_it = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark)
    };
    pids.filter(of_it).filter_map(Process::of).collect()
}

/// Waits until every process of `home` has ended, and checks that its sockets are gone as well; its
/// log stays.
#[track_caller]
pub fn nothing_is_left(home: &Home) {
    wait_until("all processes have ended", || of_home(home).is_empty());
    let sheaf = home.runtime_dir().join("sheaf");
    let left: Vec<_> =
        std::fs::read_dir(sheaf).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    assert!(left.iter().all(|path| path.extension().is_some_and(|end| end == "log")), "{left:?}");
}

/// A command that runs, and is killed if the test fails on the way.
pub struct Running(Option<Child>);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(Some(command.spawn().unwrap()))
    }

    /// Its standard input, if that is a pipe.
    pub fn stdin(&mut self) -> ChildStdin {
        self.0.as_mut().unwrap().stdin.take().unwrap()
    }

    pub fn process(&self) -> Process {
        Process::of(self.0.as_ref().unwrap().id()).unwrap()
    }

    /// Whether it has ended; it can still be asked how.
    pub fn has_ended(&mut self) -> bool {
        self.0.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(self.0.as_ref().unwrap());
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub fn wait(mut self) -> Run {
        Run::of(self.0.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A session that was started with `sheaf up` in a directory of its own; ended with the test.
pub struct Up {
    pub home: Home,
    pub session: Process,
    /// The server of each host.
    pub servers: BTreeMap<String, Process>,
    /// Servers and inner nodes.
    pub nodes: Vec<Process>,
}

/// The name of the sessions of [`Up`].
pub const NAME: &str = "try";

impl Up {
    pub fn new(args: &[&str]) -> Self {
        Self::at(Home::new(), args)
    }

    pub fn at(home: Home, args: &[&str]) -> Self {
        let run = home.run(&[&["up", "--session", NAME], args].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        let status = home.run(&["status", "--json", NAME]);
        assert_eq!(status.code, Some(0), "{status:?}");
        let (mut servers, mut session) = (BTreeMap::new(), None);
        for line in status.stdout.lines() {
            let object: serde_json::Value = serde_json::from_str(line).unwrap();
            let pid = object["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
            let process = pid.and_then(Process::of);
            match object["type"].as_str() {
                Some("host") => {
                    servers.insert(object["host"].as_str().unwrap().to_owned(), process.unwrap());
                }
                Some("session") => session = process,
                _ => {}
            }
        }
        let session = session.unwrap();
        let nodes = of_home(&home).into_iter().filter(|process| *process != session).collect();
        Self { home, session, servers, nodes }
    }

    pub fn socket(&self) -> std::path::PathBuf {
        self.home.runtime_dir().join(format!("sheaf/{NAME}.sock"))
    }

    pub fn run(&self, args: &[&str]) -> Run {
        self.home.run(&[&["--session", NAME], args].concat())
    }

    pub fn down(&self) -> Run {
        self.home.run(&["down", NAME])
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        for node in &self.nodes {
            node.signal(Signal::CONT);
        }
        self.session.signal(Signal::TERM);
        let deadline = Instant::now() + SOON;
        while Instant::now() < deadline
            && (self.session.runs() || self.nodes.iter().any(|node| node.runs()))
        {
            std::thread::park_timeout(POLL);
        }
        [self.session].iter().chain(&self.nodes).for_each(|process| process.signal(Signal::KILL));
    }
}
