//! What was fetched outlasts a loss of power once a command has said that it is there.
//!
//! Each file system that was written to is synced once, at the end: a sync of each file costs many times as
//! much. A file that a loss of power has cut off before that is fetched again, as its length is another one.
use super::target::of;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use sheaf_core::{Errno, lock};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

/// File systems by their devices; a target has no more than are mounted below it.
#[derive(Default)]
pub(super) struct WrittenFileSystems(Mutex<BTreeMap<(u32, u32), OwnedFd>>);

impl WrittenFileSystems {
    /// Something is written to this directory.
    pub fn add(&self, directory: &OwnedFd) -> Result<(), Errno> {
        let found = rustix::fs::statx(directory, c"", AtFlags::EMPTY_PATH, StatxFlags::empty());
        let found = found.map_err(of)?;
        if let Entry::Vacant(new) = lock(&self.0).entry((found.stx_dev_major, found.stx_dev_minor))
        {
            // What is open as a mere path cannot be synced.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            new.insert(rustix::fs::openat(directory, c".", flags, Mode::empty()).map_err(of)?);
        }
        Ok(())
    }

    /// Makes all that was written durable.
    pub fn sync(&self) -> Result<(), Errno> {
        let all = std::mem::take(&mut *lock(&self.0));
        all.into_values().try_for_each(|open| rustix::fs::syncfs(open.as_fd()).map_err(of))
    }
}
