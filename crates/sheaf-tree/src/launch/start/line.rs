//! An ssh connection that is the link to the node it has started, and lives as long as that.
use crate::driver::{Death, SocketPeer};
use crate::link::wire::Channel;
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
    /// another way.
    pub fn take(self, nothing_lives_on: bool) -> Taken {
        let Self { channel, ssh, said } = self;
        let (let_go, until_let_go) = oneshot::channel();
        let (tell, told) = oneshot::channel();
        let keeper = tokio::spawn(keep(ssh, said, until_let_go, tell));
        let autopsy = move || {
            // The link is closed, and ssh has no other reason to stay.
            drop(let_go);
            let death = async move {
                let how = told.await.unwrap_or_else(|_| "its ssh connection ended".to_owned());
                // A signal that has ended the node is not told by ssh.
                Death { how, by_fault: false }
            };
            Box::pin(death) as std::pin::Pin<Box<dyn Future<Output = Death> + Send>>
        };
        let peer = SocketPeer { autopsy: Box::new(autopsy), is_leaf: nothing_lives_on, pid: None };
        Taken { channel, peer, keeper }
    }
}

/// Waits until ssh has ended, or for a while when nobody needs it any more; then says how it was.
async fn keep(
    mut ssh: Child,
    mut said: JoinHandle<Vec<u8>>,
    mut until_let_go: oneshot::Receiver<()>,
    tell: oneshot::Sender<String>,
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
    let _ = tell.send(phrase(&words, ended));
}

fn phrase(words: &[u8], ended: Option<ExitStatus>) -> String {
    let words = super::ssh::phrase(words);
    match (words.is_empty(), ended.and_then(|ended| ended.code())) {
        (false, _) => format!("its ssh connection ended: {words}"),
        (true, Some(code)) => format!("its ssh connection ended with exit code {code}"),
        (true, None) => "its ssh connection ended".to_owned(),
    }
}
