//! One process for each place of a session on a machine.
//!
//! A host that hung for long is started anew. When it goes on, two processes have one place: each
//! would find a parent, and do what the other has done already. So a process listens at an abstract
//! socket that is named after its place. Whoever comes later, and finds it taken by the same user,
//! ends that process, also one that is stopped; the kernel says which it is.
//!
//! A node that is started with its tree takes its place when the start is over: nobody can be in it
//! yet, and the sockets were a twentieth of the start of 256 nodes on two processors. A process that
//! is stopped before that is not ended.
use super::super::start::plan::Station;
use crate::link::peer::socket_owner;
use rustix::io::Errno as SysErrno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a process may take to end that is killed.
const ENDING_TIME: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

/// How long after its start a node takes a place that nobody can have.
const START_TIME: Duration = Duration::from_millis(300);

/// Connections that nobody accepts: others only ask whose socket it is.
const WAITING_MAX: i32 = 64;

/// The place of this process. It is held until this is dropped.
pub(super) struct SolePlace(#[expect(dead_code, reason = "held, as a lock")] OwnedFd);

/// Takes the place of this process, from another that has it. Nothing where there is nothing to tell
/// the session by (nobody looks for another parent there), or the place cannot be had, which is
/// logged: then all goes on as without it.
pub(super) async fn take_place(station: &Station) -> Option<SolePlace> {
    let root = &station.ancestors.last()?.address;
    let place = postcard::to_stdvec(&(root, station.rank, &station.host)).ok()?;
    let name = format!("sheaf-place-{}", blake3::hash(&place).to_hex());
    let taken = take(&name).await;
    if let Err(error) = &taken {
        tracing::warn!(rank = station.rank, %error, "another process may have the place of this one");
    }
    taken.ok().map(SolePlace)
}

/// Holds the place of this process until it ends: the one it has taken, or one that it takes after its start.
pub(super) async fn hold_place(station: Arc<Station>, taken: Option<SolePlace>) {
    let _held = match taken {
        Some(taken) => Some(taken),
        None => {
            tokio::time::sleep(START_TIME).await;
            take_place(&station).await
        }
    };
    std::future::pending::<()>().await;
}

async fn take(name: &str) -> io::Result<OwnedFd> {
    let begun = Instant::now();
    loop {
        let socket = socket()?;
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
        match rustix::net::bind(&socket, &address) {
            Ok(()) => {
                rustix::net::listen(&socket, WAITING_MAX)?;
                return Ok(socket);
            }
            Err(SysErrno::ADDRINUSE) => {}
            Err(errno) => return Err(errno.into()),
        }
        if begun.elapsed() > ENDING_TIME {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // It may not listen yet, or have just ended.
        match rustix::net::connect(&socket, &address) {
            Ok(()) => end(&socket)?,
            Err(SysErrno::CONNREFUSED) => {}
            Err(errno) => return Err(errno.into()),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Ends the process at the other end.
fn end(socket: impl AsFd) -> io::Result<()> {
    let owner = socket_owner(socket)?;
    if owner.uid != rustix::process::geteuid() {
        let user = owner.uid.as_raw();
        return Err(io::Error::other(format!("user {user} has its socket")));
    }
    let pid = owner.pid.ok_or_else(|| io::Error::other("it cannot be seen from here"))?;
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => {
            tracing::warn!(
                pid = pid.as_raw_nonzero().get(),
                "the process before this one is ended"
            );
            pidfd_send_signal(process, Signal::KILL)?;
        }
        Err(SysErrno::SRCH) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(())
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Pid;
    use std::process::{Child, Command, Stdio};

    const HOLDS: &str = "SHEAF_TEST_HOLDS_PLACE";

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    /// Run by the test below, as a process of its own.
    #[test]
    fn as_one_that_holds_a_place() {
        let Some(name) = std::env::var_os(HOLDS) else { return };
        let _place = run(take(name.to_str().unwrap())).unwrap();
        println!("held");
        std::thread::sleep(Duration::from_secs(60));
    }

    fn holder(name: &str) -> Child {
        use std::io::{BufRead, BufReader};
        let test = "launch::join::sole::tests::as_one_that_holds_a_place";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(HOLDS, name)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("held")));
        child
    }

    #[test]
    fn whoever_comes_later_ends_a_stopped_process_in_its_place() {
        let name = format!("sheaf-test-place-{}", std::process::id());
        let mut first = holder(&name);
        let pid = Pid::from_raw(first.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        let place = run(take(&name)).unwrap();
        assert!(!first.wait().unwrap().success());
        drop(place);
        // It is free again.
        drop(run(take(&name)).unwrap());
    }
}
