//! What is archived of a directory, beside the names that are found in it, in their order.
use crate::archive::{read_index, write_index};
use crate::{
    ArchiveError, ArchivedObject, ArchivedPack, DirectoryChange, MemberAttributes, PackIndex,
    PackedMember, Store,
};
use std::collections::{BTreeMap, HashSet, VecDeque};

/// The archived files of a directory. Indexes are read when names come to them.
pub(crate) struct OldFiles {
    objects: BTreeMap<Vec<u8>, ArchivedObject>,
    /// Packs whose first name has not come, by it.
    coming: VecDeque<ArchivedPack>,
    open: Vec<OldPack>,
}

struct OldPack {
    row: ArchivedPack,
    index: PackIndex,
    /// Names that are archived elsewhere from now on.
    retired: HashSet<Vec<u8>>,
}

/// What is archived of a name.
pub(crate) struct OldArchived<'a> {
    pub attributes: &'a MemberAttributes,
    pub size: u64,
}

impl OldFiles {
    pub fn new(mut packs: Vec<ArchivedPack>, objects: Vec<ArchivedObject>) -> Self {
        packs.sort_by(|one, other| one.first.cmp(&other.first));
        let objects =
            objects.into_iter().map(|object| (object.attributes.name.clone(), object)).collect();
        Self { objects, coming: packs.into(), open: Vec::new() }
    }

    /// What is archived of this name, which comes behind those before.
    pub fn find(
        &mut self,
        store: &dyn Store,
        name: &[u8],
        change: &mut DirectoryChange,
    ) -> Result<Option<OldArchived<'_>>, ArchiveError> {
        while self.coming.front().is_some_and(|pack| pack.first[..] <= *name) {
            let row = self.coming.pop_front().expect("one is there");
            let index = read_index(store, &row)?;
            self.open.push(OldPack { row, index, retired: HashSet::new() });
        }
        while let Some(at) = self.open.iter().position(|pack| pack.row.last[..] < *name) {
            self.open.swap_remove(at).settle(store, change)?;
        }
        if let Some(object) = self.objects.get(name) {
            return Ok(Some(OldArchived { attributes: &object.attributes, size: object.size }));
        }
        let found = self.open.iter().find_map(|pack| pack.index.find(name));
        Ok(found.map(|member| OldArchived { attributes: &member.attributes, size: member.size }))
    }

    /// A name is archived elsewhere from the next change on.
    pub fn retire(&mut self, name: &[u8], change: &mut DirectoryChange) {
        if self.objects.remove(name).is_some() {
            change.objects_removed.push(name.to_vec());
        }
        if let Some(pack) = self.open.iter_mut().find(|pack| pack.index.find(name).is_some()) {
            pack.retired.insert(name.to_vec());
        }
    }

    /// Has all that was retired in `change`, so that each name is archived once.
    pub fn settle(
        &mut self,
        store: &dyn Store,
        change: &mut DirectoryChange,
    ) -> Result<(), ArchiveError> {
        for pack in std::mem::take(&mut self.open) {
            self.open.extend(pack.settle(store, change)?);
        }
        Ok(())
    }
}

impl OldPack {
    /// Writes an index without what was retired, if something was; the pack with that, if something
    /// is left of it.
    fn settle(
        mut self,
        store: &dyn Store,
        change: &mut DirectoryChange,
    ) -> Result<Option<Self>, ArchiveError> {
        let retired = std::mem::take(&mut self.retired);
        if retired.is_empty() {
            return Ok(Some(self));
        }
        let is_left = |member: &PackedMember| !retired.contains(&member.attributes.name);
        self.index.members.retain(is_left);
        change.packs.retain(|pack| pack.id != self.row.id);
        if self.index.members.is_empty() {
            change.packs_removed.push(self.row.id);
            return Ok(None);
        }
        self.index.generation = self.row.generation + 1;
        self.row.index_bytes = write_index(store, &mut self.index)?;
        self.row.describe(&self.index);
        change.packs.push(self.row.clone());
        Ok(Some(self))
    }
}
