//! Links between processes: where nodes listen, who may connect, and what protects the bytes.
//!
//! A node that has children listens at an [`Address`] of its own choice ([`Listen`]) and tells it
//! to everybody below, so that children whose parent is lost find the next [`Ancestor`]. Whoever
//! connects proves that it belongs to the session: with the session's token, and over TLS with a
//! certificate of the session's authority that names its rank.
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

mod address;
pub mod audit;
pub mod credentials;
pub(crate) mod door;
pub mod hello;
pub mod tls;
pub(crate) mod watch;
pub(crate) mod wire;

pub use crate::proto::control::{Address, Ancestor};
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
pub fn is_sound(address: &Address) -> bool {
    match address {
        Address::Abstract(name) => !name.is_empty() && name.len() <= UNIX_NAME_BYTES_MAX,
        Address::Tcp(all) => {
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
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(())
}
