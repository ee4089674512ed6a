//! Digests at a leaf.
use crate::paths::PerPath;
use sheaf_core::Errno;
use sheaf_file::Algorithm;
use sheaf_group::entry::{Answer, Entry, EntryKind, Sink};
use sheaf_group::tool::Host;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub struct Digests {
    algorithm: Algorithm,
}

impl Digests {
    pub fn new(algorithm: Algorithm) -> Self {
        Self { algorithm }
    }
}

impl PerPath for Digests {
    fn begin(&mut self, path: &Path, answer: &mut Answer, host: &Host) -> Result<(), Errno> {
        let file = host.export.open_ready(path)?;
        let digest = sheaf_file::digest(&mut host.attentive(file), self.algorithm)?;
        answer.path(path.as_os_str().as_bytes());
        // An answer that is full ends the batch, not the report.
        let _ = answer.entry(Entry::new(EntryKind::Line, digest.to_string().as_bytes()));
        Ok(())
    }
}
