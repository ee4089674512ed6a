//! An ssh connection that is the link to the node it has started, and lives as long as that.
use super::family::death;
use super::ssh::SSH_FAILED;
use crate::driver::{Death, OwnFault, SocketPeer};
use crate::link::wire::Channel;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::process::Child;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long ssh may take to end by itself once its link has.
const LINGER: Duration = Duration::from_secs(2);
/// How long what it has said may take to come once it has ended.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_millis(200);

/// A shell says of a process that was ended by a signal this much more than its number.
const SHELL_SIGNALS: i32 = 128;

/// The near end of such a connection.
pub(in crate::launch) struct SshLine {
    channel: Channel,
    ssh: Child,
    /// What it says on standard error.
    said: JoinHandle<Vec<u8>>,
}

/// A line in use.
pub(in crate::launch) struct Taken {
    pub channel: Channel,
    pub peer: SocketPeer,
    /// Done when ssh has ended.
    pub keeper: JoinHandle<()>,
}

impl SshLine {
    pub fn new(channel: Channel, ssh: Child, said: JoinHandle<Vec<u8>>) -> Self {
        Self { channel, ssh, said }
    }

    /// `nothing_lives_on`: when the connection has ended, nobody from below it can come back
    /// another way. `combines`: the node runs filters.
    pub fn take(self, nothing_lives_on: bool, combines: bool) -> Taken {
        let Self { channel, ssh, said } = self;
        let (let_go, until_let_go) = oneshot::channel();
        let (tell, told) = oneshot::channel();
        let keeper = crate::task::spawn(keep(ssh, said, until_let_go, tell));
        let autopsy = move || {
            // The link is closed, and ssh has no other reason to stay.
            drop(let_go);
            let untold = || ended_by_itself("its ssh connection ended".to_owned());
            let death = async move { told.await.unwrap_or_else(|_| untold()) };
            Box::pin(death) as std::pin::Pin<Box<dyn Future<Output = Death> + Send>>
        };
        let autopsy = Box::new(autopsy);
        let peer = SocketPeer { autopsy, is_leaf: nothing_lives_on, combines, pid: None };
        Taken { channel, peer, keeper }
    }
}

/// Waits until ssh has ended, or for a while when nobody needs it any more; then says how it was.
async fn keep(
    mut ssh: Child,
    mut said: JoinHandle<Vec<u8>>,
    mut until_let_go: oneshot::Receiver<()>,
    tell: oneshot::Sender<Death>,
) {
    let ended = tokio::select! {
        ended = ssh.wait() => ended.ok(),
        _ = &mut until_let_go => timeout(LINGER, ssh.wait()).await.ok().and_then(Result::ok),
    };
    if ended.is_none() {
        // A network that is gone keeps it for longer than anybody waits.
        let _ = ssh.kill().await;
    }
    let words =
        timeout(LAST_WORDS_TIMEOUT, &mut said).await.ok().and_then(Result::ok).unwrap_or_default();
    // A master connection of the user's may keep the pipe.
    said.abort();
    // Nobody listens where the link was given up before.
    let _ = tell.send(how(&words, ended));
}

/// How the node has ended, if the shell that waits for it says so, or else its connection.
fn how(words: &[u8], ended: Option<ExitStatus>) -> Death {
    let words = super::ssh::phrase(words);
    let code = ended.and_then(|ended| ended.code());
    if let Some(status) = code.and_then(status_of)
        && let death = death(status)
        && death.fault != OwnFault::No
    {
        return death;
    }
    ended_by_itself(match (words.is_empty(), code) {
        (false, _) => format!("its ssh connection ended: {words}"),
        (true, Some(code)) => format!("its ssh connection ended with exit code {code}"),
        (true, None) => "its ssh connection ended".to_owned(),
    })
}

fn ended_by_itself(how: String) -> Death {
    Death { how, fault: OwnFault::No }
}

/// What a process has ended with of which a shell says this code; `None` where it is ssh's own.
fn status_of(code: i32) -> Option<ExitStatus> {
    match code {
        SSH_FAILED => None,
        code if code > SHELL_SIGNALS => Some(ExitStatus::from_raw(code - SHELL_SIGNALS)),
        code => Some(ExitStatus::from_raw(code << 8)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_tells_how_a_node_has_ended() {
        let how = |words: &str, code: i32| {
            let death = how(words.as_bytes(), Some(ExitStatus::from_raw(code << 8)));
            (death.how, death.fault)
        };
        let crashed = "its process ended with signal 11 (SIGSEGV)".to_owned();
        assert_eq!(how("Segmentation fault\n", 139), (crashed, OwnFault::Yes));
        let killed = "its process ended with signal 9".to_owned();
        assert_eq!(how("Killed", 137), (killed, OwnFault::Perhaps));
        let asked = "its ssh connection ended: Terminated".to_owned();
        assert_eq!(how("Terminated", 143), (asked, OwnFault::No));
        let left = "its ssh connection ended with exit code 0".to_owned();
        assert_eq!(how("", 0), (left, OwnFault::No));
        let lost = "its ssh connection ended: Connection reset".to_owned();
        assert_eq!(how("Connection reset", 255), (lost, OwnFault::No));
        assert_eq!(how("", 3).1, OwnFault::Perhaps);
    }
}
