//! Which addresses of this machine others can reach, where nobody has said.
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Every address of this machine, so that hosts can come whichever family they have. Without any of
/// IPv6 that others can reach, or where a socket has one family only, it is the address of IPv4, if
/// the machine has one.
#[must_use]
pub fn anywhere() -> IpAddr {
    let read = |file| std::fs::read_to_string(file).unwrap_or_default();
    let one_family = read("/proc/sys/net/ipv6/bindv6only").trim() == "1";
    let by_6 = has_ipv6(&read("/proc/net/if_inet6"));
    if by_6 && !(one_family && has_ipv4(&read("/proc/net/fib_trie"))) {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    }
}

/// Whether the kernel's table has an address of this machine that is none of the loopback's. An
/// address stands on the line before what it is: `|-- 10.0.0.5`, `/32 host LOCAL`.
fn has_ipv4(table: &str) -> bool {
    let mut at = None;
    table.lines().map(str::trim_start).any(|line| {
        if let Some(address) = line.strip_prefix("|-- ") {
            at = address.trim().parse::<Ipv4Addr>().ok();
        }
        line.starts_with("/32 host LOCAL") && at.is_some_and(|at| !at.is_loopback())
    })
}

/// Whether a line of the kernel's list of addresses is one that other hosts can reach: neither the
/// loopback's nor one of a single link, which says nothing without the name of an interface.
fn has_ipv6(list: &str) -> bool {
    let addresses = list
        .lines()
        .filter_map(|line| u128::from_str_radix(line.split_whitespace().next()?, 16).ok());
    addresses.map(Ipv6Addr::from).any(|at| !at.is_loopback() && !at.is_unicast_link_local())
}

/// The address at which processes of this machine reach each other, of the family of `like` if that
/// is said.
///
/// # Errors
/// When the machine has none that works; the text says which it is.
pub(crate) fn loopback(like: Option<IpAddr>) -> io::Result<IpAddr> {
    let all = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
    let mut failed = None;
    for at in all.into_iter().filter(|at| like.is_none_or(|like| like.is_ipv4() == at.is_ipv4())) {
        match is_reached(at) {
            Ok(()) => return Ok(at),
            Err(error) => failed = failed.or(Some((at, error))),
        }
    }
    let Some((at, error)) = failed else { return Err(io::ErrorKind::AddrNotAvailable.into()) };
    let text = format!(
        "{at} cannot be reached from this machine itself ({error}): is the loopback interface up? \
         Links that are TCP are made there"
    );
    Err(io::Error::new(error.kind(), text))
}

/// How long a connection within this machine may take, which the kernel makes by itself.
const REACH_TIMEOUT: Duration = Duration::from_secs(1);

/// Tries it out: where the interface is down, the kernel throws away what is sent there.
fn is_reached(at: IpAddr) -> io::Result<()> {
    let listener = TcpListener::bind(SocketAddr::new(at, 0))?;
    TcpStream::connect_timeout(&listener.local_addr()?, REACH_TIMEOUT).map(drop)
}

/// Says where nobody could listen.
pub(crate) fn unheard(at: SocketAddr, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen at {at}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_kernel_say_which_addresses_there_are() {
        let loopback = "Local:\n  +-- 127.0.0.0/8 2 0 2\n     +-- 127.0.0.0/31 1 0 0\n        |-- \
                        127.0.0.0\n\x20          /8 host LOCAL\n        |-- 127.0.0.1\n           \
                        /32 host LOCAL\n";
        assert!(!has_ipv4(loopback));
        assert!(has_ipv4(&format!("{loopback}     |-- 10.0.0.5\n        /32 host LOCAL\n")));
        assert!(!has_ipv4("     |-- 10.0.0.255\n        /32 link BROADCAST\n"));
        let lo = "00000000000000000000000000000001 01 80 10 80       lo\n";
        let link = "fe800000000000000050b6fffe5c1d4a 02 40 20 80     eth0\n";
        assert!(!has_ipv6(&format!("{lo}{link}")));
        assert!(has_ipv6(&format!(
            "{lo}{link}fd000000000000000000000000000001 02 40 00 80     eth0\n"
        )));
    }
}
