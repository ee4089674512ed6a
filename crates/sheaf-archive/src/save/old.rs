//! What is archived of a directory, beside the names that are found in it, in their order.
use crate::archive::{
    ArchiveError, index_in, index_in_tar, new_id, read_index_beside, write_shorter_index,
};
use crate::catalog::{ArchivedObject, ArchivedPack, DirectoryChange, MemberClass};
use crate::name::FileName;
use crate::pack::index::PackIndex;
use crate::pack::member::{MemberAttributes, PackId, PackedMember};
use crate::store::Store;
use sheaf_core::Errno;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;

/// The archived files of a directory. Indexes are read when names come to them.
pub(crate) struct OldFiles {
    objects: BTreeMap<FileName, ArchivedObject>,
    /// Packs whose first name has not come, by it.
    coming: VecDeque<ArchivedPack>,
    open: Vec<OldPack>,
    /// An index that is lost is taken from its pack.
    heals: bool,
    /// What to do where an index is lost for good.
    lost: Option<LostPacks>,
}

/// Packs of which nobody knows any more what is in them.
struct LostPacks {
    /// All packs of the directory: of their indexes one that is lost may be made again.
    all: Vec<ArchivedPack>,
    /// Packs that were found to be lost, with what is wrong.
    found: Vec<(ArchivedPack, ArchiveError)>,
}

struct OldPack {
    row: ArchivedPack,
    index: PackIndex,
    /// Names that are archived elsewhere from now on.
    retired: HashSet<Vec<u8>>,
    /// Files with several names, by where their content is.
    files: HashMap<u64, LinkedMembers>,
    /// Members that cannot be read as they were stored, with what is wrong, when that is known.
    lost: Option<LostMembers>,
}

/// Names, and what is wrong with what is archived of them.
pub(crate) type LostMembers = HashMap<Vec<u8>, &'static str>;

/// Members that are names of one file.
struct LinkedMembers {
    /// What they have in common where they leave the pack.
    link: PackId,
    names: Vec<Vec<u8>>,
}

/// What is archived of a name.
pub(crate) struct OldArchived<'a> {
    pub attributes: &'a MemberAttributes,
    pub size: u64,
    pub digest: &'a [u8; 32],
    pub extents: Option<&'a [Range<u64>]>,
    /// It is in a pack.
    pub is_member: bool,
}

impl OldFiles {
    pub fn new(mut packs: Vec<ArchivedPack>, objects: Vec<ArchivedObject>) -> Self {
        packs.sort_by(|one, other| one.first.cmp(&other.first));
        let objects =
            objects.into_iter().map(|object| (object.attributes.name.clone(), object)).collect();
        Self { objects, coming: packs.into(), open: Vec::new(), heals: false, lost: None }
    }

    /// For whoever archives what is there: a pack whose index is lost costs the files in it, which are
    /// archived again, and [`OldFiles::take_lost`] has the error. With `heals` the names of an index
    /// that can be made again are archived elsewhere, too, and a pack that is lost for good goes.
    pub fn archiving(self, heals: bool) -> Self {
        let lost =
            Some(LostPacks { all: self.coming.iter().cloned().collect(), found: Vec::new() });
        Self { heals, lost, ..self }
    }

    /// The packs that were found to be lost since this was asked last.
    pub fn take_lost(&mut self) -> Vec<(ArchivedPack, ArchiveError)> {
        self.lost.as_mut().map(|lost| std::mem::take(&mut lost.found)).unwrap_or_default()
    }

    /// The index of a pack, as far as it can be had: as what is in the pack's tar says, without what is
    /// archived elsewhere in the directory by now. Nothing where that is not what the catalog says.
    fn index_again(&self, store: &dyn Store, row: &ArchivedPack) -> Option<PackIndex> {
        if let Some(index) = index_in(store, row) {
            return Some(index);
        }
        let mut index = index_in_tar(store, row)?;
        let others = self.lost.as_ref()?.all.iter().filter(|other| other.id != row.id);
        let mut elsewhere = HashSet::new();
        for other in others {
            let other = read_index_beside(store, other).ok().or_else(|| index_in(store, other))?;
            elsewhere.extend(other.members.into_iter().map(|of| of.attributes.name));
        }
        index.members.retain(|of| {
            let name = &of.attributes.name;
            !elsewhere.contains(name) && !self.objects.contains_key(name)
        });
        index.generation = row.generation;
        let mut again = row.clone();
        again.describe(&index);
        let is_it = (again.members, again.files, again.content_bytes, &again.first, &again.last)
            == (row.members, row.files, row.content_bytes, &row.first, &row.last);
        let classes = row.classes.as_deref().unwrap_or_default();
        (is_it && MemberClass::apply(classes, &mut index)).then_some(index)
    }

    /// Looks at the packs that no name has come to, of which the lost ones go.
    pub fn drop_lost(
        &mut self,
        store: &dyn Store,
        change: &mut DirectoryChange,
    ) -> Result<(), ArchiveError> {
        let open = self.open.len();
        while let Some(row) = self.coming.pop_front() {
            self.open_pack(store, row, change)?;
            self.open.truncate(open);
        }
        Ok(())
    }

    fn open_pack(
        &mut self,
        store: &dyn Store,
        row: ArchivedPack,
        change: &mut DirectoryChange,
    ) -> Result<(), ArchiveError> {
        let error = match read_index_beside(store, &row) {
            Err(error) if error.is_lost() => error,
            index => {
                self.open.push(OldPack::new(row, index?)?);
                return Ok(());
            }
        };
        match (self.index_again(store, &row), &mut self.lost) {
            (Some(index), _) => {
                let names = index.members.iter().map(|of| of.attributes.name.to_vec());
                let lost = names.map(|name| (name, "the index of its pack is lost")).collect();
                let lost = self.heals.then_some(lost);
                self.open.push(OldPack { lost, ..OldPack::new(row, index)? });
            }
            (None, Some(lost)) => {
                // As long as the pack is there, its files may be read from the tar by hand, and
                // nothing else may have them. What cannot be read for now is not gone.
                let is_gone = store.size(&row.key()).is_err_and(|why| why.errno == Errno::NOENT);
                if self.heals && is_gone && error.errno() != Errno::IO {
                    change.packs_removed.push(row.id);
                }
                lost.found.push((row, error));
            }
            (None, None) => return Err(error),
        }
        Ok(())
    }

    /// What is archived of this name, which comes behind those before.
    pub fn find(
        &mut self,
        store: &dyn Store,
        name: &[u8],
        change: &mut DirectoryChange,
    ) -> Result<Option<OldArchived<'_>>, ArchiveError> {
        // Only packs whose range has the name: an index is read once and then held until it is
        // passed.
        while self.coming.front().is_some_and(|pack| pack.first[..] <= *name) {
            let row = self.coming.pop_front().expect("one is there");
            self.open_pack(store, row, change)?;
        }
        // No later name is in it, so its new index is final and its memory is free.
        while let Some(at) = self.open.iter().position(|pack| pack.row.last[..] < *name) {
            self.open.swap_remove(at).settle(store, change)?;
        }
        if let Some(object) = self.objects.get(name) {
            return Ok(Some(OldArchived {
                attributes: &object.attributes,
                size: object.size,
                digest: &object.digest,
                extents: object.extents.as_deref(),
                is_member: false,
            }));
        }
        let found = self.open.iter().find_map(|pack| pack.index.find(name));
        Ok(found.map(|member| OldArchived {
            attributes: &member.attributes,
            size: member.size,
            digest: &member.digest,
            extents: member.extents.as_deref(),
            is_member: true,
        }))
    }

    /// What is wrong with what is archived of a name that one has come to; nothing if it is as it was
    /// stored. `object` says it of an object, and `pack` of the members of a pack, once of each.
    pub fn lost(
        &mut self,
        name: &[u8],
        object: impl FnOnce(&ArchivedObject) -> Result<Option<&'static str>, ArchiveError>,
        pack: impl FnOnce(&ArchivedPack, &PackIndex) -> Result<LostMembers, ArchiveError>,
    ) -> Result<Option<&'static str>, ArchiveError> {
        if let Some(archived) = self.objects.get(name) {
            return object(archived);
        }
        let is_in = |old: &&mut OldPack| old.index.find(name).is_some();
        let Some(old) = self.open.iter_mut().find(is_in) else { return Ok(None) };
        let lost = match old.lost.take() {
            Some(lost) => lost,
            None => pack(&old.row, &old.index)?,
        };
        Ok(old.lost.insert(lost).get(name).copied())
    }

    /// What is archived of this name, as an object, whose content stays where it is. As
    /// [`OldFiles::find`], which tells the order.
    pub fn object(
        &mut self,
        store: &dyn Store,
        name: &[u8],
        change: &mut DirectoryChange,
    ) -> Result<Option<ArchivedObject>, ArchiveError> {
        let is_there = self.find(store, name, change)?.is_some();
        Ok(if is_there { self.open_object(name) } else { None })
    }

    /// The same of a name of those that one has come to, or of another name of such a file.
    pub fn open_object(&self, name: &[u8]) -> Option<ArchivedObject> {
        if let Some(object) = self.objects.get(name) {
            return Some(object.clone());
        }
        let member = |pack: &OldPack| {
            let member = pack.index.find(name)?;
            let link = pack.files.get(&member.content_block()).map(|file| file.link);
            Some(ArchivedObject { link, ..member.to_object(&pack.row) })
        };
        self.open.iter().find_map(member)
    }

    /// Whether a name that one has come to is in a pack.
    pub fn is_member(&self, name: &[u8]) -> bool {
        !self.objects.contains_key(name)
            && self.open.iter().any(|pack| pack.index.find(name).is_some())
    }

    /// Other members that are names of the same file: they stay that where this one leaves the pack.
    pub fn other_names(&self, name: &[u8]) -> Vec<Vec<u8>> {
        let of = |pack: &OldPack| {
            let file = pack.files.get(&pack.index.find(name)?.content_block())?;
            let is_other = |other: &&Vec<u8>| *other != name && !pack.retired.contains(*other);
            Some(file.names.iter().filter(is_other).cloned().collect())
        };
        self.open.iter().find_map(of).unwrap_or_default()
    }

    /// A name is archived elsewhere from the next change on.
    pub fn retire(&mut self, name: &[u8], change: &mut DirectoryChange) {
        if self.objects.remove(name).is_some() {
            change.objects_removed.extend(FileName::new(name));
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
    fn new(row: ArchivedPack, index: PackIndex) -> Result<Self, ArchiveError> {
        let mut files: HashMap<u64, LinkedMembers> = HashMap::new();
        for member in index.members.iter().filter(|member| member.file_block.is_some()) {
            if let Entry::Vacant(file) = files.entry(member.content_block()) {
                file.insert(LinkedMembers { link: new_id()?, names: Vec::new() });
            }
        }
        let linked = if files.is_empty() { &[] } else { &index.members[..] };
        for member in linked {
            if let Some(file) = files.get_mut(&member.content_block()) {
                file.names.push(member.attributes.name.to_vec());
            }
        }
        Ok(Self { row, index, retired: HashSet::new(), files, lost: None })
    }

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
        let is_left = |member: &PackedMember| !retired.contains(&member.attributes.name[..]);
        self.index.members.retain(is_left);
        // An earlier settlement within the same change may have put the pack's row in.
        change.packs.retain(|pack| pack.id != self.row.id);
        if self.index.members.is_empty() {
            change.packs_removed.push(self.row.id);
            return Ok(None);
        }
        // A new key: readers of an older commit still find the index that it names.
        self.index.generation = self.row.generation + 1;
        self.row.index_bytes = write_shorter_index(store, &self.row, &mut self.index)?;
        self.row.describe(&self.index);
        change.packs.push(self.row.clone());
        Ok(Some(self))
    }
}
