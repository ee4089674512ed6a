//! Servers under Slurm: one `srun` starts one on every host, and they come to the session's desk by
//! themselves.
//!
//! Their token comes over srun's standard input, which it gives to every task. Arguments and the
//! environment, which others can see, hold nothing secret. What srun and the servers say on standard
//! error is the cause when they do not come.
use crate::launch::door::nursery::Nursery;
use crate::launch::join::attach::Token;
use crate::network::End;
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use sheaf_core::hostset::HostSet;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinHandle;

/// How long srun may take to end once the servers have ended.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// How long what srun has said may take to come once it has ended.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);
/// How long what a task has said may come behind what srun says of its end.
const TASK_WORDS_TIMEOUT: Duration = Duration::from_millis(500);
/// The longest line of srun that is read as one.
const LINE_BYTES_MAX: u64 = 4 << 10;
/// Lines of srun itself that are kept, and those that are shown.
const LINES_MAX: usize = 3;
/// How lines of srun itself begin.
const SRUN: &str = "srun: ";

/// How to start servers by Slurm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Srun {
    /// The launcher and the user's options for it.
    pub command: Vec<String>,
    /// This program as the hosts have it: on a file system that they share, or sent there by
    /// srun's own `--bcast`.
    pub program: PathBuf,
}

impl Srun {
    /// The launcher without its options.
    #[must_use]
    pub fn name(&self) -> &str {
        self.command.first().map_or("srun", String::as_str)
    }
}

/// The job step with the servers.
pub(in crate::launch) struct Step {
    watch: JoinHandle<Child>,
}

impl Step {
    /// Starts one server on each of `hosts`; they come to `address` with `token`. Those that fail
    /// are given up in the nursery, and after `patience` those that are not there.
    pub async fn start(
        how: &Srun,
        hosts: &[String],
        address: &str,
        token: &Token,
        (nursery, patience): (&Arc<Nursery>, Duration),
    ) -> io::Result<Self> {
        let mut srun = command(how, hosts, address).spawn()?;
        let (Some(mut stdin), Some(stderr)) = (srun.stdin.take(), srun.stderr.take()) else {
            unreachable!("both were asked for as pipes");
        };
        // A pipe holds more than a token. Whoever has ended by then says why on standard error.
        let _ = stdin.write_all(format!("{token}\n").as_bytes()).await;
        let said = Arc::new(Said::default());
        let nursery = Arc::downgrade(nursery);
        let listen = tokio::spawn(listen(stderr, Arc::clone(&said), Weak::clone(&nursery)));
        tokio::spawn(lose_patience(patience, Arc::clone(&said), Weak::clone(&nursery)));
        Ok(Self { watch: tokio::spawn(watch(srun, listen, said, nursery)) })
    }
}

fn command(how: &Srun, hosts: &[String], address: &str) -> Command {
    let count = hosts.len().to_string();
    let mut command = Command::new(how.name());
    command.args(how.command.iter().skip(1));
    command.args(["--ntasks-per-node=1", "--nodes", &count, "--ntasks", &count]);
    command.arg("--nodelist").arg(hosts.join(","));
    // A host that is lost is the tree's business: the other servers go on.
    command.args(["--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--unbuffered", "--label"]);
    command.args(["--mpi=none", "--job-name=sheaf"]);
    command.arg(&how.program).args(["serve", "--join", address, "--token-file", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    // The terminal's Ctrl-C is for the root, which ends the others.
    command.process_group(0).kill_on_drop(true);
    command
}

/// What srun and the tasks have said.
#[derive(Default)]
struct Said {
    /// Lines of srun itself, the last ones.
    srun: Mutex<VecDeque<String>>,
    /// The last line of each task.
    tasks: Mutex<BTreeMap<u32, String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Said {
    /// Takes in one line; what it says of tasks that have ended.
    fn hear(&self, line: &str) -> Option<Ended> {
        let line: String = line.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let Some(own) = line.strip_prefix(SRUN) else {
            let (task, text) = line.split_once(": ")?;
            lock(&self.tasks).insert(task.trim().parse().ok()?, text.to_owned());
            return None;
        };
        let mut lines = lock(&self.srun);
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line.clone());
        drop(lines);
        Ended::parse(own)
    }

    /// Why the hosts of these tasks do not come.
    fn cause(&self, ended: &Ended) -> String {
        let said = lock(&self.tasks).get(&ended.task).cloned();
        let said = said.map_or(String::new(), |said| format!("{said}; "));
        format!("not started: {said}srun: {}", ended.how)
    }

    /// The last lines of srun itself, as one phrase.
    fn phrase(&self) -> Option<String> {
        let lines = lock(&self.srun);
        (!lines.is_empty()).then(|| lines.iter().cloned().collect::<Vec<_>>().join("; "))
    }
}

/// What srun says when tasks have ended: `error: h[2-3]: tasks 1-2: Exited with exit code 2`.
struct Ended {
    hosts: HostSet,
    /// The first of them.
    task: u32,
    how: String,
}

impl Ended {
    fn parse(line: &str) -> Option<Self> {
        let (hosts, rest) = line.strip_prefix("error: ").unwrap_or(line).split_once(": ")?;
        let (tasks, how) = rest.strip_prefix("task")?.split_once(": ")?;
        let first = tasks.trim_start_matches('s').trim_start();
        let digits = first.find(|c: char| !c.is_ascii_digit()).unwrap_or(first.len());
        let task = first[..digits].parse().ok()?;
        Some(Self { hosts: HostSet::parse(hosts).ok()?, task, how: how.to_owned() })
    }
}

/// For fuzzing: the lines of an srun.
pub(crate) fn decode_any(data: &[u8]) {
    let said = Said::default();
    for line in String::from_utf8_lossy(data).lines() {
        if let Some(ended) = said.hear(line) {
            assert!(!said.cause(&ended).contains(|c: char| c.is_control()));
        }
    }
    assert!(lock(&said.srun).len() <= LINES_MAX);
    let _ = said.phrase();
}

/// Reads what srun says until it says nothing more.
async fn listen(stderr: ChildStderr, said: Arc<Said>, nursery: Weak<Nursery>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut stderr).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
        if let Some(ended) = said.hear(&String::from_utf8_lossy(&line)) {
            tokio::spawn(give_up(ended, Arc::clone(&said), Weak::clone(&nursery)));
        }
        line.clear();
    }
}

/// Gives up the hosts of tasks that have ended, once what the tasks said has had time to come.
async fn give_up(ended: Ended, said: Arc<Said>, nursery: Weak<Nursery>) {
    tokio::time::sleep(TASK_WORDS_TIMEOUT).await;
    let Some(nursery) = nursery.upgrade() else { return };
    let cause = said.cause(&ended);
    let nodes = nursery.topology().nodes();
    let there = nodes.filter(|node| ended.hosts.iter().any(|host| host == node.host().as_str()));
    there.for_each(|node| nursery.give_up(node.rank(), Errno::HOSTDOWN, &cause));
}

/// Says of hosts that have not come by then what srun has said last.
async fn lose_patience(patience: Duration, said: Arc<Said>, nursery: Weak<Nursery>) {
    tokio::time::sleep(patience).await;
    if let (Some(phrase), Some(nursery)) = (said.phrase(), nursery.upgrade()) {
        nursery.give_up_all(Errno::TIMEDOUT, &format!("it has not joined; {phrase}"));
    }
}

/// Waits for srun to end: whoever has not come by then does not come.
async fn watch(
    mut srun: Child,
    mut listen: JoinHandle<()>,
    said: Arc<Said>,
    nursery: Weak<Nursery>,
) -> Child {
    let status = srun.wait().await;
    let _ = tokio::time::timeout(LAST_WORDS_TIMEOUT, &mut listen).await;
    listen.abort();
    let waited_for = nursery.upgrade().is_some_and(|nursery| nursery.expected_len() > 0);
    if waited_for {
        // Tasks that have ended are told of first.
        tokio::time::sleep(TASK_WORDS_TIMEOUT * 2).await;
    }
    if let Some(nursery) = nursery.upgrade() {
        let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let phrase = said.phrase().unwrap_or_else(|| format!("srun ended ({how}) and said nothing"));
        nursery.give_up_all(Errno::HOSTDOWN, &format!("not started: {phrase}"));
    }
    srun
}

impl End for Step {
    fn end(mut self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            if tokio::time::timeout(END_TIMEOUT, &mut self.watch).await.is_err() {
                tracing::warn!("srun does not end by itself and is killed");
                // It goes with the task that waits for it.
                self.watch.abort();
                let _ = (&mut self.watch).await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_ends_is_told_of_with_what_it_said_last() {
        let said = Said::default();
        assert!(said.hear("1: sheaf: first\n").is_none());
        assert!(said.hear("1: sheaf: no enrolment at login:9\r\n").is_none());
        let ended = said.hear("srun: error: h[2-3]: tasks 1-2: Exited with exit code 1\n").unwrap();
        let cause = said.cause(&ended);
        assert_eq!(ended.hosts.to_string(), "h[2-3]");
        let told = "not started: sheaf: no enrolment at login:9; srun: Exited with exit code 1";
        assert_eq!(cause, told);
        let ended = said.hear("srun: error: h4: task 3: Killed").unwrap();
        let told = ("h4".to_owned(), "not started: srun: Killed".to_owned());
        assert_eq!((ended.hosts.to_string(), said.cause(&ended)), told);
    }

    #[test]
    fn other_lines_of_srun_are_its_phrase_and_few_are_kept() {
        let said = Said::default();
        assert_eq!(said.phrase(), None);
        for line in ["srun: a", "srun: job 5 queued and waiting for resources", "srun: b", "srun: c", "", "x"]
        {
            assert!(said.hear(line).is_none(), "{line}");
        }
        let told = "srun: job 5 queued and waiting for resources; srun: b; srun: c";
        assert_eq!(said.phrase().as_deref(), Some(told));
    }
}
