//! One name for each machine of a session.
//!
//! A machine that is among the hosts under two names would be written to twice, and counted twice.
//! So a server that was started over ssh binds two abstract sockets: one is named after the session
//! and the host, and one after the session, which one server of a machine has. Containers that share a
//! network are told apart by their mount namespaces and root directories.
use super::super::start::plan::Station;
use crate::link::peer::socket_owner;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The kernel's list of unix sockets.
const SOCKETS: &str = "/proc/net/unix";
/// As much of it is read.
const SOCKETS_BYTES_MAX: u64 = 64 << 20;
/// In the place of a host: no host has this name.
const MACHINE: &str = "@";
/// The longest abstract name.
const NAME_MAX: usize = 107;
/// How often a socket is called that does not listen yet, and the pause between.
const CONNECTS_MAX: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);
/// Connections that nobody accepts: others only ask whose socket it is.
const WAITING_MAX: i32 = 64;

/// The name of this machine in a session. It is held until this is dropped.
pub(super) struct HeldName(#[expect(dead_code, reason = "held, as a lock")] [OwnedFd; 2]);

/// Another name of this machine in the session.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OtherName(pub String);

/// Takes the name of this node's host for this machine, unless it has another one. Nothing where
/// the name cannot be taken, which is logged: then all goes on as without it.
pub(super) fn take_name(station: &Station) -> Result<Option<HeldName>, OtherName> {
    let prefix = match session_here(&station.secret.session) {
        Ok(prefix) => prefix,
        Err(error) => return Ok(unseen(station, &error)),
    };
    take(&prefix, &station.host).unwrap_or_else(|error| Ok(unseen(station, &error)))
}

fn unseen(station: &Station, error: &io::Error) -> Option<HeldName> {
    tracing::warn!(host = station.host, %error, "this machine may be in the session under two names");
    None
}

/// What names begin with that are of this session, and of this machine or container.
fn session_here(session: &[u8; 16]) -> io::Result<String> {
    let session: String = session.iter().map(|byte| format!("{byte:02x}")).collect();
    let (root, mounts) = (rustix::fs::stat("/")?, rustix::fs::stat("/proc/self/ns/mnt")?);
    Ok(format!("sheaf-host-{session}-{:x}.{:x}.{:x}-", root.st_dev, root.st_ino, mounts.st_ino))
}

fn take(prefix: &str, host: &str) -> io::Result<Result<Option<HeldName>, OtherName>> {
    let name = format!("{prefix}{host}");
    let Some(own) = bound(&name.as_bytes()[..name.len().min(NAME_MAX)])? else {
        // The process before this one has it, which ends.
        return Ok(Ok(None));
    };
    let machine = format!("{prefix}{MACHINE}");
    match bound(machine.as_bytes())? {
        Some(machine) => Ok(Ok(Some(HeldName([own, machine])))),
        None if is_own(&machine)? => {
            let other = other(prefix, host)?.unwrap_or_else(|| "another host".to_owned());
            Ok(Err(OtherName(other)))
        }
        None => Err(io::Error::other("another user has the name of its socket")),
    }
}

/// A socket of this abstract name, if no other has it. It listens, so that others learn whose it is.
fn bound(name: &[u8]) -> io::Result<Option<OwnedFd>> {
    let socket = socket()?;
    match rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name)?) {
        Ok(()) => {
            rustix::net::listen(&socket, WAITING_MAX)?;
            Ok(Some(socket))
        }
        Err(rustix::io::Errno::ADDRINUSE) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Whether a process of this user has the socket: another user may bind any name.
fn is_own(name: &str) -> io::Result<bool> {
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    for _ in 0..CONNECTS_MAX {
        let socket = socket()?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket_owner(&socket)?.uid == rustix::process::geteuid()),
            // It does not listen yet.
            Err(rustix::io::Errno::CONNREFUSED) => std::thread::sleep(PAUSE),
            Err(_) => return Ok(false),
        }
    }
    Ok(false)
}

/// Another name of this machine, as far as the list has it: it may lack some that is there.
fn other(prefix: &str, host: &str) -> io::Result<Option<String>> {
    let mut list = BufReader::new(File::open(SOCKETS)?.take(SOCKETS_BYTES_MAX));
    let mut line = Vec::new();
    while list.read_until(b'\n', &mut line)? > 0 {
        // Num RefCount Protocol Flags Type St Inode Path
        let text = String::from_utf8_lossy(&line);
        let path = text.trim_end().split_ascii_whitespace().nth(7);
        let path = path.and_then(|path| path.strip_prefix('@'));
        if let Some((path, name)) = path.and_then(|path| Some((path, path.strip_prefix(prefix)?)))
            && name != MACHINE
            && !is_same(prefix, host, name)
            && is_own(path)?
        {
            return Ok(Some(name.to_owned()));
        }
        line.clear();
    }
    Ok(None)
}

/// Whether a name that was seen is that host's: long ones are cut.
fn is_same(prefix: &str, host: &str, seen: &str) -> bool {
    let room = NAME_MAX - prefix.len().min(NAME_MAX);
    host.as_bytes()[..host.len().min(room)] == *seen.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(prefix: &str, host: &str) -> Result<Option<HeldName>, OtherName> {
        take(prefix, host).unwrap()
    }

    #[test]
    fn machine_has_one_name_in_a_session() {
        let prefix = format!("sheaf-test-host-{}-", std::process::id());
        let first = named(&prefix, "h1").unwrap();
        assert!(first.is_some());
        for other in ["h0", "h2", "192.0.2.1"] {
            assert!(named(&prefix, other).is_err(), "{other}");
        }
        // Its own is taken, by the one before.
        assert!(named(&prefix, "h1").unwrap().is_none());
        assert!(named("sheaf-test-other-", "h2").unwrap().is_some());
        drop(first);
        assert!(named(&prefix, "h2").unwrap().is_some());
    }

    #[test]
    fn long_names_are_told_apart_as_far_as_they_go() {
        let prefix = format!("sheaf-test-long-{}-", std::process::id());
        let (long, longer) = ("h".repeat(200), format!("{}x", "h".repeat(200)));
        let _first = named(&prefix, &long).unwrap();
        assert!(named(&prefix, &longer).unwrap().is_none());
        assert!(named(&prefix, "h1").is_err());
    }

    #[test]
    fn of_two_that_come_at_once_one_stays() {
        let prefix = format!("sheaf-test-both-{}-", std::process::id());
        for _ in 0..200 {
            let hosts = ["h1", "h2", "h3"];
            let taken: Vec<_> = std::thread::scope(|scope| {
                let all = hosts.map(|host| scope.spawn(|| named(&prefix, host)));
                all.into_iter().map(|one| one.join().unwrap()).collect()
            });
            let stay = taken.iter().filter(|one| one.is_ok()).count();
            assert_eq!(
                stay,
                1,
                "{:?}",
                taken.iter().map(|one| one.as_ref().err()).collect::<Vec<_>>()
            );
        }
    }
}
