//! Leases that are in a store.
use super::holder::Holder;
use super::{LEASES, LeaseKind, LeaseTimes, lease_key};
use crate::archive::id_of;
use crate::pack::member::PackId;
use crate::repair::removed;
use crate::store::{Store, StoreError, StoreKey};
use std::collections::BTreeMap;
use std::time::SystemTime;

/// The text of a lease is not longer.
const TEXT_BYTES_MAX: u64 = 4096;

/// A lease that is in a store.
pub(super) struct FoundLease {
    pub id: PackId,
    /// Of a lease of another kind than is known here, what it writes is respected.
    pub kind: LeaseKind,
    /// When it was taken; nothing where number 0 is gone.
    pub since: Option<SystemTime>,
    newest: (u64, SystemTime),
    /// Its objects, by their numbers.
    keys: BTreeMap<u64, StoreKey>,
}

/// A key for an object that tells the time.
pub(super) fn clock_key(id: PackId) -> StoreKey {
    lease_key(LeaseKind::Clock, id, 0)
}

/// All leases that are in a store, whether they have ended or not.
pub(super) fn leases(store: &dyn Store) -> Result<Vec<FoundLease>, StoreError> {
    let mut all: BTreeMap<(String, [u8; 16]), FoundLease> = BTreeMap::new();
    store.list(&[LEASES], &mut |object| {
        let Some((word, id, number)) = parts_of(&object.key) else { return Ok(()) };
        let kind = [LeaseKind::Remover, LeaseKind::Clock]
            .into_iter()
            .find(|kind| kind.word() == word)
            .unwrap_or(LeaseKind::Writer);
        let lease = all.entry((word.to_owned(), id.0)).or_insert_with(|| {
            let newest = (number, object.written);
            FoundLease { id, kind, since: None, newest, keys: BTreeMap::new() }
        });
        lease.keys.insert(number, object.key.clone());
        if number == 0 {
            lease.since = Some(object.written);
        }
        if number >= lease.newest.0 {
            lease.newest = (number, object.written);
        }
        Ok(())
    })?;
    Ok(all.into_values().collect())
}

fn parts_of(key: &StoreKey) -> Option<(&str, PackId, u64)> {
    let mut parts = key.as_str().strip_prefix(LEASES)?.strip_prefix('/')?.split('-');
    let (word, id, number) = (parts.next()?, id_of(parts.next()?)?, parts.next()?.parse().ok()?);
    parts.next().is_none().then_some((word, id, number))
}

impl FoundLease {
    /// Whether it has ended: it was not renewed for its term, or its process has ended.
    pub fn has_ended(&self, store: &dyn Store, now: SystemTime, times: LeaseTimes) -> bool {
        // One of a store whose clock was set back has just been renewed.
        let age = now.duration_since(self.newest.1).unwrap_or_default();
        age > times.term || self.holder(store).is_some_and(|holder| holder.has_ended(self.id))
    }

    pub fn holder(&self, store: &dyn Store) -> Option<Holder> {
        let key = self.keys.get(&self.newest.0)?;
        let bytes = store.size(key).ok().filter(|bytes| *bytes <= TEXT_BYTES_MAX)?;
        Holder::of(&store.read(key, 0..bytes).ok()?)
    }

    /// Removes it from the store, its first object before others: its holder looks for that.
    pub fn remove(&self, store: &dyn Store) -> Result<(), StoreError> {
        for key in self.keys.values() {
            removed(store.remove(key))?;
        }
        Ok(())
    }
}
