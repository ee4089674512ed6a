//! Who is at the other end of a unix socket, as the kernel has it.
//!
//! It asks by itself: a process of another PID namespace has the number 0 here, for which the call
//! of rustix has no value (`UCred::pid` is never 0), so that what that returns is undefined.
use rustix::process::{Pid, Uid};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Who has connected a unix socket, listens there, or has made a pair of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOwner {
    /// Nothing where it has no number: in another PID namespace.
    pub pid: Option<Pid>,
    /// Its effective user.
    pub uid: Uid,
}

/// Who is at the other end of a unix socket.
///
/// # Errors
/// What the kernel says, and `ENOTCONN` where nobody is, or the socket is of another kind.
#[allow(unsafe_code)]
pub fn socket_owner(fd: impl AsFd) -> io::Result<SocketOwner> {
    let mut told = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let mut len = libc::socklen_t::try_from(size_of_val(&told)).map_err(io::Error::other)?;
    let at = std::ptr::from_mut(&mut told).cast();
    let socket = fd.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes to `at`, which `told` has; of its fields all
    // bits are values.
    let got =
        unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, at, &mut len) };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    // The user of nobody.
    if told.uid == libc::uid_t::MAX {
        return Err(rustix::io::Errno::NOTCONN.into());
    }
    let pid = if told.pid > 0 { Pid::from_raw(told.pid) } else { None };
    Ok(SocketOwner { pid, uid: Uid::from_raw(told.uid) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::Command;

    #[test]
    fn socket_peer_is_identified_by_pid_and_uid() {
        let (one, _other) = UnixStream::pair().unwrap();
        let own =
            SocketOwner { pid: Some(rustix::process::getpid()), uid: rustix::process::geteuid() };
        assert_eq!(socket_owner(&one).unwrap(), own);
    }

    #[test]
    fn peer_credentials_need_a_connected_unix_socket() {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let asked = std::net::TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        assert_eq!(socket_owner(&asked).unwrap_err().kind(), io::ErrorKind::NotConnected);
        let dir = tempfile::tempdir().unwrap();
        assert!(socket_owner(std::fs::File::open(dir.path()).unwrap()).is_err());
    }

    /// What this test does is done by itself, in a namespace from which it is not seen.
    #[test]
    fn process_of_another_container_has_a_user_and_no_number() {
        const INSIDE: &str = "SHEAF_TEST_INSIDE";
        const NAME: &str =
            "link::peer::tests::process_of_another_container_has_a_user_and_no_number";
        let elsewhere = SocketOwner { pid: None, uid: rustix::process::geteuid() };
        if let Some(path) = std::env::var_os(INSIDE) {
            let socket = UnixStream::connect(path).unwrap();
            assert_eq!(socket_owner(&socket).unwrap(), elsewhere);
            return;
        }
        let unshare = |args: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(["--pid", "--fork"]).args(args);
            command
        };
        if !unshare(&["true"]).output().is_ok_and(|run| run.status.success()) {
            return sheaf_testing::skipped("no PID namespace can be made here (that needs root)");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("door");
        let _listener = UnixListener::bind(&path).unwrap();
        let itself = std::env::current_exe().unwrap();
        let run = unshare(&[itself.to_str().unwrap(), "--exact", NAME])
            .env(INSIDE, &path)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && said.contains("1 passed"), "{run:?}");
    }
}
