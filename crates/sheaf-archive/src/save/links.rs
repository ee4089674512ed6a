//! Files with several names: the content is stored once, by whoever comes first.
use super::desk::Unstored;
use crate::{ArchivedObject, PackId};
use sheaf_core::files::Metadata;
use sheaf_core::lock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// What all names of one file have in common.
#[derive(Clone, Debug)]
pub(super) struct StoredLink {
    pub id: PackId,
    /// One of them, as it is archived.
    pub as_is: ArchivedObject,
}

/// What is stored of a file with several names, when it is.
type LinkSlot = Mutex<Option<StoredLink>>;

/// A slot, and how many names have come to it.
type KnownLink = (Arc<LinkSlot>, u32);

/// Those of which not all names have come.
#[derive(Default)]
pub(super) struct SavedLinks {
    slots: Mutex<HashMap<(u64, u64), KnownLink>>,
}

impl SavedLinks {
    /// What is stored of a file, by `store` when its first name comes. Who comes second waits for that.
    pub fn stored(
        &self,
        found: &Metadata,
        store: &mut dyn FnMut() -> Result<StoredLink, Unstored>,
    ) -> Result<StoredLink, Unstored> {
        let slot = self.slot(found);
        let mut slot = lock(&slot);
        match &*slot {
            Some(stored) => Ok(stored.clone()),
            None => Ok(slot.insert(store()?).clone()),
        }
    }

    fn slot(&self, found: &Metadata) -> Arc<LinkSlot> {
        let mut slots = lock(&self.slots);
        let (slot, names) = slots.entry(found.id()).or_default();
        *names += 1;
        let (slot, names) = (slot.clone(), *names);
        if names >= found.nlink {
            slots.remove(&found.id());
        }
        slot
    }
}
