//! Names of what is archived.
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Where something is in an archive: components of any bytes but NUL and `/`.
///
/// Each component is kept with a NUL behind it. So the bytewise order of paths is the serial order of
/// a tree whose names are sorted, and what is below a directory is one range of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>")]
pub struct ArchivePath(Vec<u8>);

impl TryFrom<Vec<u8>> for ArchivePath {
    type Error = &'static str;

    /// A path as it is kept.
    fn try_from(key: Vec<u8>) -> Result<Self, &'static str> {
        Self::of_key(key).ok_or("no path of an archive")
    }
}

impl ArchivePath {
    /// The directory that all others are below.
    pub const ROOT: Self = Self(Vec::new());

    /// A path as it is written: `/` between components, and as many of them as one likes. `.` is left
    /// out; nothing if there is a `..` or a NUL in it.
    #[must_use]
    pub fn new(text: &[u8]) -> Option<Self> {
        let mut path = Vec::with_capacity(text.len() + 1);
        for part in text.split(|&byte| byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return None,
                _ if part.contains(&0) => return None,
                _ => {
                    path.extend_from_slice(part);
                    path.push(0);
                }
            }
        }
        Some(Self(path))
    }

    /// The path of a name in this directory.
    ///
    /// # Panics
    /// In a debug build, if this is no name.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Self {
        debug_assert!(!name.is_empty() && !name.iter().any(|byte| matches!(byte, 0 | b'/')));
        let mut path = Vec::with_capacity(self.0.len() + name.len() + 1);
        path.extend_from_slice(&self.0);
        path.extend_from_slice(name);
        path.push(0);
        Self(path)
    }

    /// The directory it is in, and its name there; nothing of the root.
    #[must_use]
    pub fn split(&self) -> Option<(Self, &[u8])> {
        let path = self.0.strip_suffix(&[0])?;
        let from = path.iter().rposition(|&byte| byte == 0).map_or(0, |at| at + 1);
        Some((Self(path[..from].to_owned()), &path[from..]))
    }

    /// Whether this is that directory, or is below it.
    #[must_use]
    pub fn is_within(&self, directory: &Self) -> bool {
        self.0.starts_with(&directory.0)
    }

    /// Its components.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&byte| byte == 0).filter(|part| !part.is_empty())
    }

    /// What is behind a directory's own components; nothing of what is not within it.
    #[must_use]
    pub fn within(&self, directory: &Self) -> Option<Self> {
        Some(Self(self.0.strip_prefix(&directory.0[..])?.to_owned()))
    }

    /// As a path of the system's, without a slash before it.
    #[must_use]
    pub fn as_relative(&self) -> PathBuf {
        self.parts().map(OsStr::from_bytes).collect()
    }

    /// As it is written, with a slash before each component; the root is a slash.
    #[must_use]
    pub fn as_bytes(&self) -> Vec<u8> {
        let mut written = Vec::new();
        self.put(&mut written);
        written
    }

    /// Adds it as it is written.
    pub fn put(&self, to: &mut Vec<u8>) {
        to.push(b'/');
        let parts = self.0.strip_suffix(&[0]).unwrap_or_default();
        to.extend(parts.iter().map(|&byte| if byte == 0 { b'/' } else { byte }));
    }

    /// How many components it has.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.0.iter().filter(|&&byte| byte == 0).count()
    }

    /// As it is kept.
    pub(crate) fn key(&self) -> &[u8] {
        &self.0
    }

    /// What is kept, which is a path's key.
    pub(crate) fn of_key(key: Vec<u8>) -> Option<Self> {
        // A damaged catalog may have any bytes here.
        let parts = || key.split(|&byte| byte == 0);
        let is_key = key.is_empty()
            || key.ends_with(&[0])
                && !key.contains(&b'/')
                && parts()
                    .take(parts().count() - 1)
                    .all(|part| !matches!(part, b"" | b"." | b".."));
        is_key.then_some(Self(key))
    }

    /// The least key that is behind all that is below this directory; nothing for the root.
    pub(crate) fn key_behind(&self) -> Option<Vec<u8>> {
        let mut key = self.0.strip_suffix(&[0])?.to_owned();
        // What is below goes on with a NUL, and no byte is between that and this one.
        key.push(1);
        Some(key)
    }
}

impl fmt::Display for ArchivePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("/");
        }
        let path = self.0.strip_suffix(&[0]).unwrap_or(&self.0);
        for part in path.split(|&byte| byte == 0) {
            write!(f, "/{}", String::from_utf8_lossy(part))?;
        }
        Ok(())
    }
}
