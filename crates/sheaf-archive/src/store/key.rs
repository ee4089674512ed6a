//! Names of objects.
use std::fmt;
use std::path::Path;

const KEY_BYTES_MAX: usize = 512;

/// What an object is called: parts of small letters, digits, `-`, `_` and `.`, none of which begins
/// with a dot, with `/` between them. Any store takes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreKey(String);

impl StoreKey {
    /// A key, or nothing if this is none.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let is_key = text.len() <= KEY_BYTES_MAX && text.split('/').all(is_part);
        is_key.then(|| Self(text.to_owned()))
    }

    /// As a text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As a path below a directory.
    pub(super) fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl fmt::Display for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) fn is_part(text: &str) -> bool {
    let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    !text.is_empty() && !text.starts_with('.') && text.bytes().all(is_plain)
}
