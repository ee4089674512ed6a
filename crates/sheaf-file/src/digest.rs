//! Digests of contents.

use crate::Result;
use sha2::Digest as _;
use sheaf_core::Errno;
use std::fmt;
use std::io::{ErrorKind, Read};
use std::str::FromStr;

/// Bytes read at once.
const READ_BUFFER_BYTES: usize = 128 << 10;

/// A digest algorithm.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum Algorithm {
    /// BLAKE3, 256 bits: what Sheaf itself compares contents by.
    #[default]
    Blake3,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// How many hexadecimal digits a digest has.
    #[must_use]
    pub fn digits(self) -> usize {
        match self {
            Self::Blake3 | Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

impl FromStr for Algorithm {
    type Err = Errno;

    /// Reads `blake3`, `sha256` or `sha512`; anything else is `EINVAL`.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "blake3" => Ok(Self::Blake3),
            "sha256" => Ok(Self::Sha256),
            "sha512" => Ok(Self::Sha512),
            _ => Err(Errno::INVAL),
        }
    }
}

/// The digest of some contents: 32 bytes, or 64 of SHA-512. Displays as hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Digest(pub Vec<u8>);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A digest in the making.
///
/// ```
/// use sheaf_file::{Algorithm, Digester};
/// let mut digester = Digester::new(Algorithm::Sha256);
/// digester.update(b"ab");
/// digester.update(b"c");
/// assert!(digester.finish().to_string().starts_with("ba7816bf"));
/// ```
#[derive(Clone, Debug)]
pub struct Digester(Hashing);

#[derive(Clone, Debug)]
enum Hashing {
    Blake3(Box<blake3::Hasher>),
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
}

impl Digester {
    /// The digest of nothing yet.
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Blake3 => Hashing::Blake3(Box::default()),
            Algorithm::Sha256 => Hashing::Sha256(sha2::Sha256::new()),
            Algorithm::Sha512 => Hashing::Sha512(sha2::Sha512::new()),
        })
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Hashing::Blake3(hasher) => drop(hasher.update(bytes)),
            Hashing::Sha256(hasher) => hasher.update(bytes),
            Hashing::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// The digest of all bytes added.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(match self.0 {
            Hashing::Blake3(hasher) => hasher.finalize().as_bytes().to_vec(),
            Hashing::Sha256(hasher) => hasher.finalize().to_vec(),
            Hashing::Sha512(hasher) => hasher.finalize().to_vec(),
        })
    }
}

/// The digest of everything a reader gives, in constant memory. A caller that wants to stop early
/// lets its reader fail.
///
/// # Errors
/// The reader's.
pub fn digest(reader: &mut dyn Read, algorithm: Algorithm) -> Result<Digest> {
    let mut digester = Digester::new(algorithm);
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(digester.finish()),
            Ok(length) => digester.update(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}
