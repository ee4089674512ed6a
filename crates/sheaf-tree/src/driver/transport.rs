//! What a link runs over: a socket, or at the far end of an ssh connection two pipes.
use crate::link::peer::socket_owner;
use crate::link::wire::{Channel, send_pieces};
use crate::proto::report::Via;
use rustix::net::{AddressFamily, sockopt};
use rustix::process::Pid;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use tokio::io::unix::AsyncFd;

/// A connected stream socket (TCP or unix) or a pair of pipes, non-blocking.
pub(crate) struct Socket {
    pub fd: AsyncFd<OwnedFd>,
    /// The pipe that is written to, where there are two.
    pub out: Option<OwnedFd>,
}

impl Socket {
    pub fn fd(&self) -> &OwnedFd {
        self.fd.get_ref()
    }

    /// What is written to.
    pub fn out(&self) -> &OwnedFd {
        self.out.as_ref().unwrap_or(self.fd.get_ref())
    }

    pub fn send(&self, pieces: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
        match &self.out {
            None => send_pieces(self.fd.get_ref(), pieces),
            // Only programs have pipes that ignore the signal for those which nobody reads.
            Some(out) => rustix::io::writev(out, pieces),
        }
    }
}

/// The process that has connected a unix socket, or has made a pair of them. (Who has made the pair
/// itself finds itself, and that says nothing.)
pub(super) fn process_behind(fd: &OwnedFd) -> Option<Pid> {
    let peer = is_unix(fd).then(|| socket_owner(fd).ok())??;
    peer.pid.filter(|pid| *pid != rustix::process::getpid())
}

pub(super) fn is_unix(fd: &OwnedFd) -> bool {
    sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX)
}

/// What carries a link, for reports.
pub(super) fn via(channel: &Channel) -> io::Result<Via> {
    Ok(match (channel.over_ssh, &channel.tls) {
        (true, _) => Via::Ssh,
        (false, Some(_)) => Via::Tls,
        (false, None) if sockopt::socket_domain(&channel.fd)? == AddressFamily::UNIX => Via::Unix,
        (false, None) => Via::Tcp,
    })
}
