//! Archived files that are named, by their directories: those of one are changed by one commit.
use super::place;
use anyhow::Result;
use sheaf_archive::{Archive, ArchivePath};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Names of files that are to be changed, by their directory.
pub type NamesTogether = BTreeMap<ArchivePath, Vec<Vec<u8>>>;

/// Files of one archive that wait to be changed.
pub struct FilesTogether {
    store: PathBuf,
    pub archive: Archive,
    names: NamesTogether,
}

impl FilesTogether {
    /// Those of a store, of which none is named yet.
    pub fn new(store: &Path) -> Result<Self> {
        let archive = place::open(store, false)?;
        Ok(Self { store: store.to_owned(), archive, names: NamesTogether::new() })
    }

    /// Whether they are of this store.
    pub fn is_of(&self, store: &Path) -> bool {
        self.store == store
    }

    /// Another file. Whether it is one: the root is none.
    pub fn push(&mut self, path: &ArchivePath) -> bool {
        let Some((directory, name)) = path.split() else { return false };
        self.names.entry(directory).or_default().push(name.to_vec());
        true
    }

    /// Whether one of them is in a directory, or below it.
    pub fn has_within(&self, directory: &ArchivePath) -> bool {
        self.names.keys().any(|path| path.is_within(directory))
    }

    /// Those that were named until now, which wait no longer.
    pub fn take(&mut self) -> NamesTogether {
        std::mem::take(&mut self.names)
    }
}
