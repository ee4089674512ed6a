//! Servers under Slurm: one `srun` starts one on every host, and they come to the session's desk by
//! themselves.
//!
//! Their token comes over srun's standard input, which it gives to every task. Arguments and the
//! environment, which others can see, hold nothing secret. What srun and the servers say on
//! standard error is the cause when they do not come.
use crate::launch::door::nursery::Nursery;
use crate::launch::join::attach::Token;
use crate::launch::start::spawn::end_with_this_thread;
use crate::network::{NetworkEnd, SessionOver};
use rustix::process::{Pid, Signal, kill_process_group};
use said::{EndedJob, News, SrunSaid};
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

mod said;

#[cfg(feature = "fuzzing")]
pub(crate) use said::decode_any;

/// How long srun may take to end once the servers have ended, and how long once it has been asked
/// to.
const END_TIMEOUT: Duration = Duration::from_secs(4);
/// How long it may take to be gone once it was killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long what srun has said may take to come once it has ended.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);
/// How long what a task has said may come behind what srun says of its end.
const TASK_WORDS_TIMEOUT: Duration = Duration::from_millis(500);
/// The longest line of srun that is read as one.
const LINE_BYTES_MAX: u64 = 4 << 10;
/// How long after Slurm has said that it ends a job its hosts are given up. All have been told by
/// then, so that none looks for another way to the root.
const CANCEL_PAUSE: Duration = Duration::from_millis(100);
/// How long after that a server of the job leaves: later, so that the reason is known when it does.
pub const STEP_END_PAUSE: Duration = Duration::from_millis(400);
/// How often it is looked whether nobody is left of a job that is over.
const LEFT_LOOK: Duration = Duration::from_millis(500);

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
pub(in crate::launch) struct SlurmStep {
    /// Asks srun to end.
    stop: Arc<Notify>,
    /// How srun has ended, once it has.
    gone: watch::Receiver<Option<String>>,
    nursery: Weak<Nursery>,
}

impl SlurmStep {
    /// Starts one server on each of `hosts`; they come to `address` with `token`. Those that fail
    /// are given up in the nursery, and after `patience` those that are not there, if srun has said
    /// why. When the job is over and nobody is left, `over` is told.
    pub async fn start(
        how: &Srun,
        hosts: &[String],
        (address, token): (&str, &Token),
        (nursery, patience): (&Arc<Nursery>, Duration),
        over: Arc<SessionOver>,
    ) -> io::Result<Self> {
        let mut srun = RunningSrun(command(how, hosts, address).spawn()?);
        let (Some(mut stdin), Some(stderr)) = (srun.0.stdin.take(), srun.0.stderr.take()) else {
            unreachable!("both were asked for as pipes");
        };
        // A pipe holds more than a token. Whoever has ended by then says why on standard error.
        let _ = stdin.write_all(format!("{token}\n").as_bytes()).await;
        let (stop, (tell, gone)) = (Arc::new(Notify::new()), watch::channel(None));
        let said = Arc::new(SrunSaid::default());
        let nursery = Arc::downgrade(nursery);
        let listen = crate::task::spawn(listen(stderr, Arc::clone(&said), Weak::clone(&nursery)));
        crate::task::spawn(lose_patience(patience, Arc::clone(&said), Weak::clone(&nursery)));
        crate::task::spawn(look_after(gone.clone(), listen, said, Weak::clone(&nursery), over));
        crate::task::spawn(hold(srun, Arc::clone(&stop), tell));
        Ok(Self { stop, gone, nursery })
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
    command.arg(&how.program).args(["serve", "--step", "--join", address, "--token-file", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    // The terminal's Ctrl-C is for the root, which ends the others.
    command.process_group(0);
    // However this process ends: a job that waits would wait on without it.
    end_with_this_thread(command.as_std_mut());
    command
}

/// An srun that is asked to end when nobody holds it any more. It takes its job along then, also
/// one that waits for its hosts; killed, it would leave that in the queue.
struct RunningSrun(Child);

impl Drop for RunningSrun {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
    }
}

impl RunningSrun {
    /// For a launcher in a script of the user's as well, which may have started srun behind it.
    fn signal(&self, signal: Signal) {
        // A process that is waited for has its number until then.
        let Some(pid) = self.0.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) else {
            return;
        };
        if let Err(error) = kill_process_group(pid, signal) {
            tracing::debug!(%error, "srun could not be signalled");
        }
    }

    /// Waits for its end, which comes soon once `stop` is told.
    async fn wait(&mut self, stop: &Notify) -> io::Result<ExitStatus> {
        tokio::select! {
            status = self.0.wait() => return status,
            () = stop.notified() => self.signal(Signal::TERM),
        }
        if let Ok(status) = timeout(END_TIMEOUT, self.0.wait()).await {
            return status;
        }
        tracing::warn!("srun does not end when it is asked to, and is killed");
        self.signal(Signal::KILL);
        timeout(KILL_TIMEOUT, self.0.wait()).await.map_err(|_| io::ErrorKind::TimedOut)?
    }
}

/// Keeps srun until it has ended, and tells how that was.
async fn hold(mut srun: RunningSrun, stop: Arc<Notify>, gone: watch::Sender<Option<String>>) {
    let how =
        srun.wait(&stop).await.map_or_else(|error| error.to_string(), |status| status.to_string());
    // Nobody may want to know any more.
    let _ = gone.send(Some(how));
}

/// Reads what srun says until it says nothing more.
async fn listen(stderr: ChildStderr, said: Arc<SrunSaid>, nursery: Weak<Nursery>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut stderr).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
        match said.hear(&String::from_utf8_lossy(&line)) {
            Some(News::Ended(ended)) => {
                crate::task::spawn(give_up(ended, Arc::clone(&said), Weak::clone(&nursery)));
            }
            Some(News::Cancelled) => {
                crate::task::spawn(give_up_job(Arc::clone(&said), Weak::clone(&nursery)));
            }
            None => {}
        }
        line.clear();
    }
}

/// Gives up the hosts of tasks that have ended, once what the tasks said has had time to come.
async fn give_up(ended: EndedJob, said: Arc<SrunSaid>, nursery: Weak<Nursery>) {
    sleep(TASK_WORDS_TIMEOUT).await;
    let Some(nursery) = nursery.upgrade() else { return };
    let cause = said.cause(&ended);
    let nodes = nursery.topology().nodes();
    let there = nodes.filter(|node| ended.hosts.iter().any(|host| host == node.host().as_str()));
    there.for_each(|node| nursery.give_up(node.rank(), Errno::HOSTDOWN, &cause));
}

/// Gives up all hosts of a job that Slurm has ended.
async fn give_up_job(said: Arc<SrunSaid>, nursery: Weak<Nursery>) {
    sleep(CANCEL_PAUSE).await;
    let Some(nursery) = nursery.upgrade() else { return };
    let cause = said.cancelled().unwrap_or_default();
    nursery.give_up_all(Errno::HOSTDOWN, cause);
    if let Some(shared) = nursery.shared() {
        shared.run(|core, now| {
            core.nodes[0].all_ended(now, Errno::HOSTDOWN, cause);
            core.touch(0);
        });
    }
}

/// Says of hosts that have not come by then what srun waits for.
async fn lose_patience(patience: Duration, said: Arc<SrunSaid>, nursery: Weak<Nursery>) {
    sleep(patience).await;
    if let (Some(phrase), Some(nursery)) = (said.phrase(), nursery.upgrade()) {
        nursery.give_up_all(Errno::AGAIN, &format!("not started: {phrase}"));
    }
}

/// Waits for srun to end: whoever has not come by then does not come, and when nobody is left
/// either, the session is over.
async fn look_after(
    mut gone: watch::Receiver<Option<String>>,
    mut listen: JoinHandle<()>,
    said: Arc<SrunSaid>,
    nursery: Weak<Nursery>,
    over: Arc<SessionOver>,
) {
    let how = match gone.wait_for(Option::is_some).await {
        Ok(how) => how.clone().unwrap_or_default(),
        Err(_) => return,
    };
    let _ = timeout(LAST_WORDS_TIMEOUT, &mut listen).await;
    listen.abort();
    if nursery.upgrade().is_some_and(|nursery| nursery.expected_len() > 0) {
        // Tasks that have ended are told of first.
        sleep(TASK_WORDS_TIMEOUT * 2).await;
    }
    let phrase = said.phrase().unwrap_or_else(|| format!("srun ended ({how}) and said nothing"));
    let cause =
        said.cancelled().map_or_else(|| format!("not started: {phrase}"), ToOwned::to_owned);
    while let Some(nursery) = nursery.upgrade() {
        nursery.give_up_all(Errno::HOSTDOWN, &cause);
        if nursery.is_deserted() {
            over.tell(said.cancelled().map_or(phrase, ToOwned::to_owned));
            return;
        }
        drop(nursery);
        sleep(LEFT_LOOK).await;
    }
}

impl NetworkEnd for SlurmStep {
    fn end(mut self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            // Where no server has come, there may be none that could end.
            let has_begun = self.nursery.upgrade().is_none_or(|nursery| nursery.has_begun());
            let patience = if has_begun { END_TIMEOUT } else { Duration::ZERO };
            if timeout(patience, self.gone.wait_for(Option::is_some)).await.is_err() {
                self.stop.notify_one();
                // Whoever holds srun bounds this.
                let _ = self.gone.wait_for(Option::is_some).await;
            }
        })
    }
}
