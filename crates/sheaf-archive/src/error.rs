//! What can be wrong with a pack.
use crate::store::StoreError;
use sheaf_core::Errno;

/// Why a pack cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// Its bytes are not those of a pack, or not all of them.
    #[error("the pack is damaged: {why}")]
    Damaged {
        /// What is wrong.
        why: String,
    },
    /// A later Sheaf has written it.
    #[error(
        "the pack has format version {version}, and this Sheaf knows them up to {known}: use a later \
         one"
    )]
    Version {
        /// Its version.
        version: u32,
        /// The last that is known.
        known: u32,
    },
    /// A file cannot be a member of a pack; alone it can be archived.
    #[error("{}: {why}", name.escape_ascii())]
    NoMember {
        /// The file's name.
        name: Vec<u8>,
        /// Why not.
        why: &'static str,
    },
    /// It cannot be written to where it goes.
    #[error("the pack cannot be written: {}", said_of(.0))]
    Io(#[from] std::io::Error),
}

/// An error of the system by the name of its number, as everywhere; another one as it says itself.
fn said_of(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => Errno(errno).to_string(),
        None => error.to_string(),
    }
}

impl PackError {
    pub(crate) fn damaged(why: impl Into<String>) -> Self {
        Self::Damaged { why: why.into() }
    }

    /// The number of this error. A retry can help with what the system says, and with nothing else.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Damaged { .. } => Errno::BADMSG,
            Self::Version { .. } => Errno::OPNOTSUPP,
            Self::NoMember { .. } => Errno::INVAL,
            Self::Io(error) => {
                let said = error.get_ref().and_then(|inner| inner.downcast_ref::<StoreError>());
                said.map_or_else(|| Errno::from_io(error), |said| said.errno)
            }
        }
    }
}
