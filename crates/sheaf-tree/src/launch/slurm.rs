//! Leaves under Slurm: one `srun` starts a server on every host, and the servers come to the
//! root's enrolment by themselves.
//!
//! Their token comes over srun's standard input, which it gives to every task. Arguments and the
//! environment, which others can see, hold nothing secret.
use super::attach::Token;
use super::ssh::last_of;
use crate::network::End;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

/// How long srun may take to end once the servers have ended.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// How to start leaves by Slurm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Srun {
    /// The launcher and the user's options for it.
    pub command: Vec<String>,
    /// This program as the hosts have it: on a file system that they share, or sent there by
    /// srun's own `--bcast`.
    pub program: PathBuf,
}

/// The job step with the servers.
pub(super) struct Step {
    srun: Child,
    errors: JoinHandle<Vec<u8>>,
}

impl Step {
    /// Starts one server on each of `hosts`; they come to `address` with `token`.
    pub async fn start(how: &Srun, hosts: &[String], address: &str, token: &Token) -> io::Result<Self> {
        let count = hosts.len().to_string();
        let mut words = how.command.iter();
        let mut command = Command::new(words.next().map_or("srun", String::as_str));
        command.args(words).args(["--ntasks-per-node=1", "--nodes", &count, "--ntasks", &count]);
        command.arg("--nodelist").arg(hosts.join(","));
        // A host that is lost is the tree's business: the other servers go on.
        command.args(["--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--unbuffered"]);
        command.args(["--mpi=none", "--job-name=sheaf"]);
        command.arg(&how.program).args(["serve", "--join", address, "--token-file", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        // The terminal's Ctrl-C is for the root, which ends the others.
        command.process_group(0).kill_on_drop(true);
        let mut srun = command.spawn()?;
        let (Some(mut stdin), Some(stderr)) = (srun.stdin.take(), srun.stderr.take()) else {
            unreachable!("both were asked for as pipes");
        };
        // A pipe holds more than a token.
        stdin.write_all(format!("{token}\n").as_bytes()).await?;
        Ok(Self { srun, errors: tokio::spawn(last_of(stderr)) })
    }
}

impl End for Step {
    fn end(mut self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            if tokio::time::timeout(END_TIMEOUT, self.srun.wait()).await.is_err() {
                tracing::warn!("srun does not end by itself and is killed");
                let _ = self.srun.kill().await;
            }
            self.errors.abort();
        })
    }
}
