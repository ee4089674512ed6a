//! Links between processes: where nodes listen, who may connect, and what protects the bytes.
//!
//! A node that has children listens at an [`DoorAddress`] of its own choice ([`Listen`]) and tells
//! it to everybody below, so that children whose parent is lost find the next [`Ancestor`]. Whoever
//! connects proves that it belongs to the session: with the session's token, and over TLS with a
//! certificate of the session's authority that names its rank.
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

mod address;
pub mod audit;
pub mod credentials;
pub(crate) mod door;
pub mod hello;
pub mod peer;
pub mod tls;
pub mod watch;
pub(crate) mod wire;

pub use crate::proto::control::{Ancestor, DoorAddress};
pub use address::anywhere;
pub(crate) use address::{loopback, unheard};
pub use audit::{Audit, AuditCounts, Refusal};
pub use credentials::{Authority, Credentials};
pub use hello::Hello;

/// The longest name of a unix socket.
const UNIX_NAME_BYTES_MAX: usize = 100;
/// The most addresses of one node.
const TCP_ADDRESSES_MAX: usize = 16;

/// Whether a socket can have this address at all.
#[must_use]
pub fn is_sound(address: &DoorAddress) -> bool {
    match address {
        DoorAddress::Abstract(name) => !name.is_empty() && name.len() <= UNIX_NAME_BYTES_MAX,
        DoorAddress::Tcp(all) => {
            let sound = |at: &SocketAddr| at.port() != 0 && !at.ip().is_unspecified();
            (1..=TCP_ADDRESSES_MAX).contains(&all.len()) && all.iter().all(sound)
        }
    }
}

/// At which addresses nodes on TCP listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Listen {
    /// Nobody outside this machine can connect.
    #[default]
    Loopback,
    /// The root listens at this address, every other node at the one from which it reaches its
    /// parent.
    Address(IpAddr),
}

/// The ports at which nodes on TCP listen, when it is not for the system to choose them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = u16> {
        self.first..=self.last
    }

    /// What the error says when none of them is free at `at`.
    pub(crate) fn none_free(self, at: IpAddr) -> std::io::Error {
        let text = format!("none of the ports {self} (setting ports) is free at {at}");
        std::io::Error::new(std::io::ErrorKind::AddrInUse, text)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

/// These are no ports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ports are two numbers from 1 to 65535 with a dash between them, or one")]
pub struct PortsError;

impl FromStr for Ports {
    type Err = PortsError;

    fn from_str(text: &str) -> Result<Self, PortsError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port =
            |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0).ok_or(PortsError);
        let ports = Self { first: port(first)?, last: port(last)? };
        if ports.first <= ports.last { Ok(ports) } else { Err(PortsError) }
    }
}

/// What every process of a session knows, and nobody else.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    /// Names the session; not secret by itself.
    pub session: [u8; 16],
    /// Proves that a process belongs to it.
    pub token: [u8; 32],
}

impl Secret {
    /// A new session's.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn random() -> std::io::Result<Self> {
        let mut secret = Self { session: [0; 16], token: [0; 32] };
        fill_random(&mut secret.session)?;
        fill_random(&mut secret.token)?;
        Ok(secret)
    }

    /// Whether `token` is this session's; takes the same time wherever they differ.
    #[must_use]
    pub fn is_token(&self, token: &[u8; 32]) -> bool {
        // Comparing these does not depend on the bytes.
        blake3::Hash::from_bytes(self.token) == blake3::Hash::from_bytes(*token)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}

/// Fills `bytes` from the system's source of random bytes.
pub(crate) fn fill_random(bytes: &mut [u8]) -> std::io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        filled +=
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_a_range_or_one() {
        let ports = |text: &str| text.parse::<Ports>().ok();
        assert_eq!(
            ports("7440-7442").map(|ports| ports.iter().collect()),
            Some(vec![7440, 7441, 7442])
        );
        for text in ["7440", "1-65535", "7440-7460"] {
            assert_eq!(ports(text).map(|ports| ports.to_string()).as_deref(), Some(text));
        }
        for text in ["", "-", "0", "0-5", "5-4", "65536", "7440-", "a-b", "1-2-3"] {
            assert_eq!(ports(text), None, "{text}");
        }
    }
}
