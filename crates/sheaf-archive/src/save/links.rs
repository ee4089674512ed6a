//! Files with several names: the content is stored once, by whoever comes first.
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

/// A file with several names: what is stored of it, when it is, and how many names are still to come.
#[derive(Default)]
pub(super) struct LinkSlot {
    pub stored: Option<StoredLink>,
}

/// A slot, and how many names have come to it.
type KnownLink = (Arc<Mutex<LinkSlot>>, u32);

/// Those of which not all names have come.
#[derive(Default)]
pub(super) struct SavedLinks {
    slots: Mutex<HashMap<(u64, u64), KnownLink>>,
}

impl SavedLinks {
    /// The slot of a file. Who comes second waits at it until the first has stored the content.
    pub fn slot(&self, found: &Metadata) -> Arc<Mutex<LinkSlot>> {
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
