//! Names of files in a directory.
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::ops::Deref;

const NAME_BYTES_MAX: usize = 255;

/// The name of a file in its directory: 1 to 255 bytes without NUL and `/`, and neither `.` nor `..`.
///
/// What a store says of a name becomes one of these where it is decoded, so no name leads out of
/// its directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct FileName(Vec<u8>);

impl FileName {
    /// These bytes, if they are a name.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Self> {
        Self::try_from(bytes.into()).ok()
    }

    /// Whether these bytes are a name.
    #[must_use]
    pub fn is_name(bytes: &[u8]) -> bool {
        !matches!(bytes, b"" | b"." | b"..")
            && bytes.len() <= NAME_BYTES_MAX
            && !bytes.iter().any(|byte| matches!(byte, b'/' | 0))
    }
}

impl TryFrom<Vec<u8>> for FileName {
    type Error = &'static str;

    fn try_from(bytes: Vec<u8>) -> Result<Self, &'static str> {
        if Self::is_name(&bytes) { Ok(Self(bytes)) } else { Err("no name of a file") }
    }
}

impl From<FileName> for Vec<u8> {
    fn from(name: FileName) -> Self {
        name.0
    }
}

impl Deref for FileName {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for FileName {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for FileName {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq<[u8]> for FileName {
    fn eq(&self, other: &[u8]) -> bool {
        self.0 == other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_lead_elsewhere_are_no_name() {
        let long = [b'n'; NAME_BYTES_MAX + 1];
        for no_name in [&b""[..], b".", b"..", b"../x", b"/etc", b"a/b", b"a\0", &long] {
            assert_eq!(FileName::new(no_name), None, "{no_name:?}");
            let encoded = postcard::to_stdvec(no_name).unwrap();
            assert!(postcard::from_bytes::<FileName>(&encoded).is_err());
        }
        for name in [&b"a"[..], b"...", b"-", b"\xff\n", &long[1..]] {
            let encoded = postcard::to_stdvec(&FileName::new(name).unwrap()).unwrap();
            // As other bytes are written.
            assert_eq!(encoded, postcard::to_stdvec(name).unwrap());
            assert_eq!(&*postcard::from_bytes::<FileName>(&encoded).unwrap(), name);
        }
    }
}
