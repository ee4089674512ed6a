//! The object of a version.
use super::VersionError;
use crate::archive::id_of;
use crate::pack::member::PackId;
use crate::store::{Store, StoreError, StoreKey};
use serde::{Deserialize, Serialize};
use sheaf_core::Errno;
use std::fmt;

impl fmt::Display for PackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What the keys of versions begin with.
pub(crate) const VERSIONS: &str = "versions";
const MAGIC: &[u8; 8] = b"sheafver";
/// The version of the format of marks.
const MARK_VERSION: u32 = 1;
const DIGEST_BYTES: usize = 32;
const HEADER_BYTES: usize = 8 + 4 + 8 + 16;
/// Bytes of a mark at most.
const MARK_BYTES_MAX: u64 = 4096;
/// Bytes of a name at most.
const NAME_BYTES_MAX: usize = 200;
const NANOSECONDS: u32 = 1_000_000_000;
/// Years are written with four digits, as many before 1970 as behind it.
const SECONDS_MAX: u64 = 253_402_207_200;

/// What a version says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// BLAKE3 of its commit.
    pub digest: [u8; DIGEST_BYTES],
    /// What its user calls it.
    pub name: Option<String>,
    /// When it was made, by the clock of the machine that made it: seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds to add.
    pub nanoseconds: u32,
    /// The machine that made it.
    pub host: String,
    /// What its command did.
    pub sums: VersionSums,
}

/// What the command of a version did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionSums {
    /// Files that were stored, as they are new or have changed.
    pub stored: u64,
    /// Bytes of their contents.
    pub stored_bytes: u64,
    /// Files that were archived as they were.
    pub unchanged: u64,
    /// Files and directories that were left out by errors.
    pub failed: u64,
}

/// Where a version is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub number: u64,
    pub id: PackId,
}

impl Version {
    /// Whether no value is one that cannot be.
    pub(super) fn is_valid(&self) -> bool {
        self.nanoseconds < NANOSECONDS
            && self.seconds.unsigned_abs() <= SECONDS_MAX
            && is_name(&self.host)
            && self.name.as_deref().is_none_or(is_name)
    }

    pub(super) fn encode(&self, mark: Mark) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&MARK_VERSION.to_le_bytes());
        bytes.extend_from_slice(&mark.number.to_le_bytes());
        bytes.extend_from_slice(&mark.id.0);
        let mut bytes = postcard::to_extend(self, bytes).expect("memory takes what it is given");
        let digest = blake3::hash(&bytes);
        bytes.extend_from_slice(digest.as_bytes());
        bytes
    }
}

/// Whether a version or a host may be called so.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.contains(char::is_control)
}

impl Mark {
    pub fn key(&self) -> StoreKey {
        StoreKey::new(&format!("{VERSIONS}/{:020}-{}", self.number, self.id))
            .expect("digits are parts of a key")
    }

    /// The mark of this key, if it is one.
    pub fn of(key: &StoreKey) -> Option<Self> {
        let (number, id) = key.as_str().rsplit('/').next()?.split_once('-')?;
        let mark = Self { number: number.parse().ok()?, id: id_of(id)? };
        // Numbers of commits are those of tables, too.
        (mark.key() == *key && mark.number > 0 && i64::try_from(mark.number).is_ok())
            .then_some(mark)
    }

    /// What it says; nothing where it was forgotten meanwhile.
    pub fn read(
        self,
        store: &dyn Store,
    ) -> Result<Option<Result<Version, VersionError>>, StoreError> {
        let key = self.key();
        let damaged = |why| Some(Err(VersionError::Damaged { id: self.id.to_string(), why }));
        let read = store.size(&key).and_then(|bytes| match bytes {
            ..=MARK_BYTES_MAX => store.read(&key, 0..bytes).map(Some),
            _ => Ok(None),
        });
        match read {
            Ok(Some(bytes)) => Ok(match self.decode(&bytes) {
                Ok(version) => Some(Ok(version)),
                Err(why) => damaged(why),
            }),
            Ok(None) => Ok(damaged("it is longer than a version")),
            Err(error) if error.errno == Errno::NOENT => Ok(None),
            Err(error) if matches!(error.errno, Errno::NODATA | Errno::BADMSG | Errno::IO) => {
                Ok(damaged("it cannot be read"))
            }
            Err(error) => Err(error),
        }
    }

    pub fn decode(self, bytes: &[u8]) -> Result<Version, &'static str> {
        if bytes.len() < HEADER_BYTES + DIGEST_BYTES || !bytes.starts_with(MAGIC) {
            return Err("it is no version");
        }
        if bytes[8..12] != MARK_VERSION.to_le_bytes() {
            return Err("a later Sheaf has written it");
        }
        let (body, digest) = bytes.split_at(bytes.len() - DIGEST_BYTES);
        if blake3::hash(body) != *digest {
            return Err("it is not as it was written (checksum)");
        }
        let (header, version) = body.split_at(HEADER_BYTES);
        if header[12..20] != self.number.to_le_bytes() || header[20..] != self.id.0 {
            return Err("it is another one");
        }
        let version: Option<Version> = postcard::from_bytes(version).ok();
        version.filter(Version::is_valid).ok_or("it says what no version does")
    }
}

/// What a fuzz target says in the place of a version, with a right header and checksum: what is taken for one
/// is written as it was read, and leads no terminal astray.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(data: &[u8]) {
    let mark = Mark { number: 1, id: PackId([1; 16]) };
    let mut bytes = Version::default().encode(mark);
    bytes.truncate(HEADER_BYTES);
    bytes.extend_from_slice(data);
    let digest = blake3::hash(&bytes);
    bytes.extend_from_slice(digest.as_bytes());
    if let Ok(version) = mark.decode(&bytes) {
        assert!(version.is_valid());
        assert_eq!(mark.decode(&version.encode(mark)), Ok(version));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written now is read for ever: else it is of another version.
    #[test]
    fn format_of_marks_is_as_it_was() {
        let sums = VersionSums { stored: 1, stored_bytes: 300, unchanged: 3, failed: 4 };
        let version = Version {
            digest: [9; 32],
            name: Some("one".to_owned()),
            seconds: 5,
            nanoseconds: 7,
            host: "n7".to_owned(),
            sums,
        };
        let parts: [&[u8]; 11] = [
            b"sheafver",
            &1u32.to_le_bytes(),
            &7u64.to_le_bytes(),
            &[3; 16],
            &[9; 32],
            b"\x01\x03one",
            &[10],
            &[7],
            b"\x02n7",
            &[1, 0xac, 2],
            &[3, 4],
        ];
        let mut expected = parts.concat();
        let digest = blake3::hash(&expected);
        expected.extend_from_slice(digest.as_bytes());
        let mark = Mark { number: 7, id: PackId([3; 16]) };
        assert_eq!(version.encode(mark), expected);
        assert_eq!(mark.decode(&expected), Ok(version));
    }

    #[test]
    fn marks_are_read_as_written_and_no_other_bytes_are() {
        let mark = Mark { number: 7, id: PackId([3; 16]) };
        let version = Version { host: "n7".to_owned(), seconds: 5, ..Version::default() };
        let bytes = version.encode(mark);
        assert_eq!(mark.decode(&bytes), Ok(version.clone()));
        assert_eq!(Mark::of(&mark.key()), Some(mark));
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(mark.decode(&other).is_err(), "{at}");
            assert!(mark.decode(&bytes[..at]).is_err(), "{at}");
        }
        assert!(Mark { number: 8, ..mark }.decode(&bytes).is_err());
        for (host, nanoseconds) in [("", 0), ("a\x1b[2J", 0), ("n7", NANOSECONDS)] {
            let hostile = Version { host: host.to_owned(), nanoseconds, ..version.clone() };
            assert!(mark.decode(&hostile.encode(mark)).is_err());
        }
        for seconds in [i64::MIN, i64::MAX] {
            let hostile = Version { seconds, ..version.clone() };
            assert!(mark.decode(&hostile.encode(mark)).is_err());
        }
        let key = |text: &str| StoreKey::new(text).and_then(|key| Mark::of(&key));
        assert_eq!(key("versions/7-03030303030303030303030303030303"), None);
        assert_eq!(key(&format!("versions/{:020}-{}", u64::MAX, mark.id)), None);
        assert_eq!(key(&format!("versions/{:020}-{}", 0, mark.id)), None);
    }
}
