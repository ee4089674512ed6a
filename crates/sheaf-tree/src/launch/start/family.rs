//! Child processes: how they ended, and that they are gone in the end.
use crate::driver::{Autopsy, Death, OwnFault, SocketPeer, is_stopped};
use crate::filter::{CODE_EXITED, CODE_STUCK};
use crate::launch::door::nursery::Nursery;
use crate::link::door::Doorkeeper;
use crate::link::peer::socket_owner;
use crate::link::watch::register;
use crate::network::NetworkEnd;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid,
};
use sheaf_core::lock;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::pin::Pin;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One child process, shared by its link (which wants to know how it ended) and the family.
#[derive(Clone)]
pub(in crate::launch) struct Kin {
    pid: Pid,
    /// How it ended, once it is reaped; until then its number is no other process's.
    end: Arc<Mutex<Option<ExitStatus>>>,
}

impl Kin {
    pub fn new(pid: Pid) -> Self {
        Self { pid, end: Arc::default() }
    }

    pub fn of(child: &Child) -> Self {
        Self::new(Pid::from_child(child))
    }

    /// It at the other end of a link: once that has closed it can be found out how it ended.
    pub fn as_peer(&self, is_leaf: bool) -> SocketPeer {
        let (kin, pid) = (self.clone(), Some(self.pid));
        SocketPeer {
            autopsy: Box::new(move || Box::pin(async move { kin.death().await })),
            is_leaf,
            combines: !is_leaf,
            pid,
        }
    }

    /// Whether somebody has stopped it.
    pub fn is_stopped(&self) -> bool {
        is_stopped(self.pid)
    }

    /// Waits for its end; says how it was.
    pub async fn ended(&self) -> String {
        self.death().await.how
    }

    async fn death(&self) -> Death {
        match self.wait().await {
            Ok(status) => death(status),
            Err(error) => Death { how: error.to_string(), fault: OwnFault::No },
        }
    }

    /// Waits for its end without blocking the thread.
    async fn wait(&self) -> io::Result<ExitStatus> {
        if let Some(status) = self.try_wait()? {
            return Ok(status);
        }
        let pidfd = register(self.pidfd()?, tokio::io::Interest::READABLE)?;
        // Readable once the process has ended.
        let _ended = pidfd.readable().await?;
        self.try_wait()?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// How it ended, if it has.
    fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        let mut end = lock(&self.end);
        if end.is_none() {
            let ended = waitpid(Some(self.pid), WaitOptions::NOHANG)?;
            *end = ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw()));
        }
        Ok(*end)
    }

    fn pidfd(&self) -> io::Result<OwnedFd> {
        Ok(pidfd_open(self.pid, PidfdFlags::NONBLOCK)?)
    }

    fn kill(&self) {
        let pidfd = self.pidfd();
        // It is not reaped yet, so the number was not another process's either.
        if matches!(self.try_wait(), Ok(None)) {
            let killed = pidfd.and_then(|pidfd| Ok(pidfd_send_signal(pidfd, Signal::KILL)?));
            if let Err(error) = killed {
                let pid = self.pid.as_raw_pid();
                tracing::warn!(pid, %error, "a server process could not be ended");
            }
        }
    }
}

/// Signals that the system sends to a process for what it has done itself, by number.
const FAULTS: [(Signal, &str); 7] = [
    (Signal::SEGV, "SIGSEGV"),
    (Signal::ABORT, "SIGABRT"),
    (Signal::BUS, "SIGBUS"),
    (Signal::ILL, "SIGILL"),
    (Signal::FPE, "SIGFPE"),
    (Signal::TRAP, "SIGTRAP"),
    (Signal::SYS, "SIGSYS"),
];

/// How a process with this status has ended.
pub(in crate::launch) fn death(status: ExitStatus) -> Death {
    let fault = FAULTS.iter().find(|(fault, _)| Some(fault.as_raw()) == status.signal());
    let (how, fault) = match (fault, status.signal(), status.code()) {
        (Some((fault, name)), ..) => {
            let how = format!("its process ended with signal {} ({name})", fault.as_raw());
            (how, OwnFault::Yes)
        }
        // The code of users may do so to itself, or take so much memory that the system does.
        (None, Some(signal), _) if signal == Signal::KILL.as_raw() => {
            (format!("its process ended with signal {signal}"), OwnFault::Perhaps)
        }
        // Whoever is asked to ends so.
        (None, Some(signal), _) => {
            (format!("its process ended with signal {signal}"), OwnFault::No)
        }
        (None, None, Some(CODE_STUCK)) => {
            ("its process was stuck, and ended itself".to_owned(), OwnFault::Yes)
        }
        (None, None, Some(CODE_EXITED)) => {
            ("its process was ended by a call of exit".to_owned(), OwnFault::Yes)
        }
        (None, None, Some(code)) => {
            let fault = if code == 0 { OwnFault::No } else { OwnFault::Perhaps };
            (format!("its process ended with exit code {code}"), fault)
        }
        (None, None, None) => ("its process ended".to_owned(), OwnFault::No),
    };
    Death { how, fault }
}

/// The end of the process at the other end of a unix socket, which somebody else has started.
pub(in crate::launch) fn watch(socket: &OwnedFd, is_leaf: bool) -> Option<SocketPeer> {
    let pid = socket_owner(socket).ok()?.pid?;
    let pidfd = pidfd_open(pid, PidfdFlags::NONBLOCK).ok()?;
    let autopsy: Autopsy = Box::new(move || {
        Box::pin(async move {
            if let Ok(pidfd) = register(pidfd, tokio::io::Interest::READABLE) {
                let _ended = pidfd.readable().await;
            }
            Death { how: "its process ended".to_owned(), fault: OwnFault::No }
        })
    });
    Some(SocketPeer { autopsy, is_leaf, combines: !is_leaf, pid: Some(pid) })
}

/// The processes that one node has started.
pub(in crate::launch) struct Family {
    /// How long they may take to end by themselves.
    pub patience: Duration,
    /// Lets them in, and orphans from below.
    pub door: Option<Doorkeeper>,
    pub nursery: Arc<Nursery>,
    /// Done when every child on another host has joined or failed.
    pub starting: Option<tokio::task::JoinHandle<()>>,
}

/// How often it is looked whether nodes that others have started are gone.
const ADOPTED_LOOK: Duration = Duration::from_millis(5);

impl NetworkEnd for Family {
    fn end(mut self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let deadline = tokio::time::Instant::now() + self.patience;
            // Who comes now is told that nobody is here any more.
            self.door = None;
            for kin in self.nursery.take_kin() {
                if tokio::time::timeout_at(deadline, kin.wait()).await.is_err() {
                    kin.kill();
                    let reaped = tokio::time::timeout(Duration::from_secs(1), kin.wait()).await;
                    if reaped.is_err() {
                        tracing::warn!(pid = kin.pid.as_raw_pid(), "a server process does not end");
                    }
                }
            }
            self.nursery.end_lines(deadline).await;
            // Nodes that were taken in end by themselves, as everybody does.
            while self.nursery.has_adopted() && tokio::time::Instant::now() < deadline {
                tokio::time::sleep(ADOPTED_LOOK).await;
            }
        })
    }
}

impl Drop for Family {
    /// Without a proper end: their links are closed by now or will be with this process, and
    /// then they end by themselves; nothing is left to wait for here.
    fn drop(&mut self) {
        for kin in self.nursery.take_kin() {
            let _ = kin.try_wait();
        }
    }
}
