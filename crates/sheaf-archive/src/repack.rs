//! Repacking: what removed members take in packs comes back, and many small packs become one.
//!
//! Members that are left are written into new packs, which take the place of the old ones in one commit
//! of their directory. Nobody sees anything between: before it the new packs are leftovers, behind it the
//! old ones are. Those go at the end, where nothing refers to them any longer.
use crate::archive::{
    Archive, ArchiveError, data_key, index_key, new_id, pack_key, pack_zstd_key, unwritten,
    write_index,
};
use crate::catalog::{
    ArchivedPack, CatalogError, Commit, ContentPlace, DirectoryChange, DirectoryRows,
};
use crate::error::PackError;
use crate::lease::Removal;
use crate::name::FileName;
use crate::pack::index::PackIndex;
use crate::pack::member::{MemberAttributes, MemberKind, PackId, PackedMember};
use crate::pack::write::PackWriter;
use crate::pack::{BLOCK_BYTES, blocks_of};
use crate::path::ArchivePath;
use crate::reader::open_tar;
use crate::repair::{Referred, referred, referred_but};
use crate::save::output::{PackOutput, WrittenPack};
use crate::store::{StoreError, StoreKey};
use crate::version::{end_moves, move_versions, versions_now};
use sheaf_core::Errno;
use std::collections::{HashMap, HashSet};
use std::io::Read;

/// Directories that are asked of the catalog at once.
const DIRECTORIES_AT_ONCE: usize = 256;
/// How often one begins anew where others write meanwhile.
const TRIES_MAX: u32 = 8;
/// How much packs are compressed that take the place of compressed ones.
const ZSTD_LEVEL: i32 = 3;
/// Indexes of one pack that are looked for, from the newest back.
const GENERATIONS_MAX: u64 = 4096;

/// How to repack.
#[derive(Clone, Copy, Debug)]
pub struct RepackOptions {
    /// A pack is written anew if so many of a hundred of its blocks are of nothing that is left.
    pub min_dead_percent: u32,
    /// Packs of one directory that are smaller than a quarter of a new one are written into one, if
    /// there are so many.
    pub small_packs_min: usize,
    /// A new pack ends behind so many bytes.
    pub pack_bytes: u64,
    /// Whether it is only counted.
    pub dry_run: bool,
}

impl Default for RepackOptions {
    fn default() -> Self {
        Self { min_dead_percent: 25, small_packs_min: 4, pack_bytes: 64 << 20, dry_run: false }
    }
}

/// What was done, or with `dry_run` would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepackReport {
    /// Directories in which packs were written anew.
    pub directories: u64,
    /// Packs that were written anew.
    pub packs: u64,
    /// Packs that have taken their place.
    pub packs_new: u64,
    /// Members that were written.
    pub members: u64,
    /// Indexes that were not the newest of their packs, and went.
    pub indexes_old: u64,
    /// Bytes of what went from the store.
    pub bytes_removed: u64,
    /// Bytes of what was written.
    pub bytes_written: u64,
    /// Packs that stay as they are, as something else refers to them, too: to write them anew would take
    /// more room.
    pub packs_shared: u64,
    /// Directories that could not be repacked, and are as they were.
    pub failed: u64,
}

/// A pack that may be written anew.
struct OldRoom {
    row: ArchivedPack,
    index: PackIndex,
    /// Blocks of members that are left.
    live: u64,
}

/// Packs that become new ones together. One with second names of its members stays by itself.
struct RepackGroup {
    packs: Vec<OldRoom>,
    pack_bytes_max: u64,
}

/// What was taken out of use.
#[derive(Default)]
struct OutOfUse {
    packs: Vec<ArchivedPack>,
    /// Packs that stay and have older indexes.
    indexes: Vec<(PackId, u64)>,
}

/// Repacks a directory and all below it. A directory that cannot be repacked is told, and stays as it is.
///
/// # Errors
/// When there is nothing of this name, the catalog cannot be read or written, or something old cannot
/// be removed. What was committed before that is repacked.
pub fn repack(
    archive: &Archive,
    path: &ArchivePath,
    options: RepackOptions,
    told: &dyn Fn(ArchiveError),
) -> Result<RepackReport, ArchiveError> {
    if archive.catalog().directory(path)?.is_none() {
        return Err(ArchiveError::NotArchived { path: path.clone() });
    }
    let _writing = archive.writing();
    let last = archive.catalog().catch_up_whole(archive.store())?;
    let versions = versions_now(archive)?;
    let mut repacker = Repacker {
        archive,
        options,
        last,
        report: RepackReport::default(),
        old: OutOfUse::default(),
        referred: referred_but(archive, &versions)?,
        versions,
        shared: HashSet::new(),
    };
    let mut last: Option<ArchivePath> = None;
    loop {
        let catalog = archive.catalog();
        let next = catalog.rows_below(path, last.as_ref(), DIRECTORIES_AT_ONCE)?;
        drop(catalog);
        let Some((behind, _)) = next.last() else { break };
        last = Some(behind.clone());
        for (path, rows) in next {
            match repacker.directory(&path, rows) {
                Ok(()) => {}
                Err(error) if is_of_one(&error) => {
                    repacker.report.failed += 1;
                    told(error);
                }
                Err(error) => return Err(error),
            }
        }
    }
    repacker.remove_old()?;
    repacker.report.packs_shared = repacker.shared.len() as u64;
    Ok(repacker.report)
}

/// Whether something of one directory is damaged or gone; else nothing can be written.
fn is_of_one(error: &ArchiveError) -> bool {
    match error {
        ArchiveError::Pack { why: PackError::Io(_), .. } => false,
        ArchiveError::Pack { .. } | ArchiveError::Member { .. } => true,
        ArchiveError::Store(error) => matches!(error.errno, Errno::NOENT | Errno::NODATA),
        _ => false,
    }
}

/// What a pack takes in the store, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackSpace {
    /// Where its tar is.
    pub tar: StoreKey,
    /// Where its newest index is.
    pub index: StoreKey,
    /// Bytes of members that are there: headers, contents, and what fills up their blocks.
    pub live_bytes: u64,
    /// Bytes of members that are there no longer.
    pub dead_bytes: u64,
}

impl Archive {
    /// What a pack takes in the store.
    ///
    /// # Errors
    /// When its index cannot be read.
    pub fn pack_space(&self, pack: &ArchivedPack) -> Result<PackSpace, ArchiveError> {
        let index = self.index(pack)?;
        let live = live_blocks(&index);
        Ok(PackSpace {
            tar: pack.key(),
            index: index_key(pack.id, pack.generation),
            live_bytes: live * BLOCK_BYTES as u64,
            dead_bytes: index.member_blocks.saturating_sub(live) * BLOCK_BYTES as u64,
        })
    }
}

impl ContentPlace {
    /// The object of the store that has the content, and at which byte it begins there, or in the tar that
    /// is compressed there. Of several objects it is the first.
    #[must_use]
    pub fn object(&self) -> (StoreKey, u64) {
        match self {
            Self::Object(id) => (data_key(*id), 0),
            Self::Pack { id, at, zstd: false } => (pack_key(*id), *at),
            Self::Pack { id, at, zstd: true } => (pack_zstd_key(*id), *at),
            Self::Parts { ids, .. } => (data_key(ids.first().copied().unwrap_or_default()), 0),
        }
    }
}

impl ContentPlace {
    /// How many objects have the content.
    #[must_use]
    pub fn objects(&self) -> usize {
        match self {
            Self::Parts { ids, .. } => ids.len(),
            _ => 1,
        }
    }
}

struct Repacker<'a> {
    archive: &'a Archive,
    options: RepackOptions,
    report: RepackReport,
    old: OutOfUse,
    /// What is referred to, to begin with.
    referred: Referred,
    shared: HashSet<PackId>,
    /// Versions that are what is archived now: repacked, it is the same.
    versions: Vec<PackId>,
    /// The last commit, as long as nobody else has made one.
    last: u64,
}

impl Repacker<'_> {
    /// Repacks one directory, as often as somebody else has changed it meanwhile.
    fn directory(
        &mut self,
        path: &ArchivePath,
        mut rows: DirectoryRows,
    ) -> Result<(), ArchiveError> {
        for tries in 0.. {
            let groups = self.groups(&rows)?;
            if groups.is_empty() {
                break;
            }
            if self.options.dry_run {
                self.count_only(&groups);
                break;
            }
            let mut written = Vec::new();
            let change = self.written(path, &rows, &groups, &mut written);
            let committed = change.and_then(|change| {
                let commit = Commit { changes: vec![change] };
                Ok(self.archive.commit(&commit)?)
            });
            match committed {
                Ok(number) => {
                    self.last = if number == self.last + 1 { number } else { 0 };
                    self.count(&groups, &written);
                    let gone = groups.into_iter().flat_map(|group| group.packs);
                    self.old.packs.extend(gone.map(|pack| pack.row));
                    break;
                }
                Err(ArchiveError::Catalog(CatalogError::Changed { .. })) if tries < TRIES_MAX => {
                    // Nobody refers to what was written, and nobody will.
                    for row in &written {
                        self.remove_pack(row, None)?;
                    }
                    rows = self.archive.catalog().rows_of(path)?;
                }
                // It may be committed all the same: what is left over is found by a repair.
                Err(error) => return Err(error),
            }
        }
        let is_old = |id: &PackId| self.old.packs.iter().any(|old| old.id == *id);
        let stay = rows.packs.iter().filter(|row| row.generation > 0 && !is_old(&row.id));
        let stay: Vec<_> = stay.map(|row| (row.id, row.generation)).collect();
        self.old.indexes.extend(stay);
        Ok(())
    }

    /// What is to be written anew.
    fn groups(&mut self, rows: &DirectoryRows) -> Result<Vec<RepackGroup>, ArchiveError> {
        let small_bytes = self.options.pack_bytes / 4;
        let is_small = |row: &&ArchivedPack| row.tar_bytes < small_bytes;
        let has_many = rows.packs.iter().filter(is_small).count() >= self.options.small_packs_min;
        let mut together = RepackGroup { packs: vec![], pack_bytes_max: self.options.pack_bytes };
        let mut groups = Vec::new();
        for row in &rows.packs {
            let joins = has_many && is_small(&row);
            // Only a later index has fewer members than the tar.
            if !joins && row.generation == 0 {
                continue;
            }
            let index = self.archive.index(row)?;
            let live = live_blocks(&index);
            let dead = index.member_blocks.saturating_sub(live);
            let percent = u64::from(self.options.min_dead_percent);
            let is_wasteful = dead > 0 && dead * 100 >= percent * index.member_blocks;
            if !joins && !is_wasteful {
                continue;
            }
            // Other directories or files refer to bytes of this tar, so it stays as it is.
            if self.referred.is_shared(&row.id) {
                self.shared.insert(row.id);
                continue;
            }
            // The names of one file are members of one pack. Such a pack is written again by
            // itself, and not divided.
            let has_links = index.members.iter().any(is_link);
            let room = OldRoom { row: row.clone(), index, live };
            if !has_links {
                together.packs.push(room);
            } else if is_wasteful {
                groups.push(RepackGroup { packs: vec![room], pack_bytes_max: u64::MAX });
            }
        }
        // One that would only be copied stays.
        let is_copy = |group: &RepackGroup| match &group.packs[..] {
            [one] => one.live == one.index.member_blocks,
            _ => false,
        };
        if !together.packs.is_empty() && !is_copy(&together) {
            groups.push(together);
        }
        Ok(groups)
    }

    /// Writes new packs; the change that has them in place of the old ones. What was written before
    /// something went wrong is in `written`.
    fn written(
        &self,
        path: &ArchivePath,
        rows: &DirectoryRows,
        groups: &[RepackGroup],
        written: &mut Vec<ArchivedPack>,
    ) -> Result<DirectoryChange, ArchiveError> {
        for group in groups {
            self.write_group(path, group, written)?;
        }
        let old = groups.iter().flat_map(|group| &group.packs);
        Ok(DirectoryChange {
            path: path.clone(),
            since: rows.changed,
            packs_removed: old.map(|pack| pack.row.id).collect(),
            packs: written.clone(),
            ..DirectoryChange::default()
        })
    }

    fn write_group(
        &self,
        path: &ArchivePath,
        group: &RepackGroup,
        written: &mut Vec<ArchivedPack>,
    ) -> Result<(), ArchiveError> {
        let mut sources: Vec<PackSource<'_>> =
            group.packs.iter().map(|pack| PackSource::new(self.archive, pack)).collect();
        let is_zstd = group.packs.iter().any(|pack| pack.row.zstd_bytes.is_some());
        let zstd = is_zstd.then_some(ZSTD_LEVEL);
        let mut open: Option<NewPack> = None;
        let mut content = Vec::new();
        loop {
            // By name, from all packs: so the ranges of the new ones do not overlap.
            let coming = sources.iter_mut().filter(|source| source.next().is_some());
            let Some(source) = coming.min_by(|one, other| one.name().cmp(other.name())) else {
                break;
            };
            let Some((member, attributes)) = source.take(path, &mut content)? else { break };
            if let Some(pack) = &open
                && (pack.writer.bytes() >= group.pack_bytes_max || pack.writer.is_full())
            {
                written.extend(open.take().map(|pack| pack.finish(self.archive)).transpose()?);
            }
            let pack = match &mut open {
                Some(pack) => pack,
                None => open.insert(NewPack::new(self.archive, zstd)?),
            };
            let failed = |why| ArchiveError::Pack { place: pack.key.clone(), why };
            let added = match &member.extents {
                Some(extents) if attributes.kind == MemberKind::File => {
                    pack.writer.add_sparse(&attributes, member.size, extents, &content)
                }
                _ => pack.writer.add(&attributes, &content),
            };
            added.map_err(failed)?;
        }
        written.extend(open.map(|pack| pack.finish(self.archive)).transpose()?);
        Ok(())
    }

    fn count(&mut self, groups: &[RepackGroup], written: &[ArchivedPack]) {
        self.report.directories += 1;
        self.report.packs += groups.iter().map(|group| group.packs.len() as u64).sum::<u64>();
        self.report.packs_new += written.len() as u64;
        self.report.members += written.iter().map(|row| u64::from(row.members)).sum::<u64>();
        self.report.bytes_written +=
            written.iter().map(|row| row.stored_bytes() + row.index_bytes).sum::<u64>();
    }

    /// What would come of it: names and attributes take what they took.
    fn count_only(&mut self, groups: &[RepackGroup]) {
        self.report.directories += 1;
        for group in groups {
            let blocks: u64 = group.packs.iter().map(|pack| pack.live).sum();
            let bytes = blocks * BLOCK_BYTES as u64;
            let packs = bytes.div_ceil(group.pack_bytes_max.max(1)).max(u64::from(bytes > 0));
            self.report.packs_new += packs;
            self.report.bytes_written += bytes;
            for pack in &group.packs {
                self.report.packs += 1;
                self.report.members += u64::from(pack.row.members);
                self.report.bytes_removed += pack.row.stored_bytes() + pack.row.index_bytes;
                self.report.bytes_written += 2 * pack.row.index_bytes;
            }
        }
    }

    /// Removes what nothing refers to any longer.
    fn remove_old(&mut self) -> Result<(), ArchiveError> {
        let old = std::mem::take(&mut self.old);
        if self.options.dry_run || (old.packs.is_empty() && old.indexes.is_empty()) {
            return Ok(());
        }
        let removal = Removal::begin(self.archive)?;
        end_moves(self.archive.store(), &removal)?;
        // What others have committed meanwhile is of no version that was there before.
        let last = self.archive.catalog().catch_up_whole(self.archive.store())?;
        if last == self.last {
            move_versions(self.archive, &self.versions, &removal)?;
        }
        // Read once more: others may have committed since the begin.
        let referred = referred(self.archive)?;
        for row in &old.packs {
            if referred.has(&row.key()) {
                // Somebody else has come to refer to it meanwhile.
                self.shared.insert(row.id);
            } else {
                self.report.bytes_removed += self.remove_pack(row, Some(&removal))?;
            }
            self.remove_indexes(row.id, row.generation + 1, &referred, &removal)?;
        }
        for (id, generation) in old.indexes {
            self.remove_indexes(id, generation, &referred, &removal)?;
        }
        Ok(())
    }

    /// Removes indexes of a pack that are older than one, unless something refers to them.
    fn remove_indexes(
        &mut self,
        id: PackId,
        before: u64,
        referred: &Referred,
        removal: &Removal<'_>,
    ) -> Result<(), ArchiveError> {
        // A number may have been passed over, so one that is missing does not end the search.
        for generation in before.saturating_sub(GENERATIONS_MAX)..before {
            let key = index_key(id, generation);
            if referred.has(&key) {
                continue;
            }
            let bytes = self.remove_object(&key, Some(removal))?;
            self.report.indexes_old += u64::from(bytes > 0);
            self.report.bytes_removed += bytes;
        }
        Ok(())
    }

    /// Removes a pack and its newest index; how many bytes they had.
    fn remove_pack(
        &self,
        row: &ArchivedPack,
        removal: Option<&Removal<'_>>,
    ) -> Result<u64, ArchiveError> {
        // The index first: none is in the store without its pack.
        let index = self.remove_object(&index_key(row.id, row.generation), removal)?;
        Ok(index + self.remove_object(&row.key(), removal)?)
    }

    /// Removes an object, which may be gone; how many bytes it had. One of this command's own needs no
    /// right to remove.
    fn remove_object(
        &self,
        key: &StoreKey,
        removal: Option<&Removal<'_>>,
    ) -> Result<u64, ArchiveError> {
        let store = self.archive.store();
        match store.size(key) {
            Err(error) if error.errno == Errno::NOENT => Ok(0),
            size => {
                match removal {
                    Some(removal) => removal.remove(key)?,
                    None => store.remove(key)?,
                }
                Ok(size?)
            }
        }
    }
}

fn is_link(member: &PackedMember) -> bool {
    matches!(member.attributes.kind, MemberKind::HardLink { .. })
}

/// Blocks of what is left in a pack. A content may outlive the name that it came with.
fn live_blocks(index: &PackIndex) -> u64 {
    let mut contents: HashSet<u64> = HashSet::new();
    let mut live = 0;
    for member in &index.members {
        live += u64::from(member.header_blocks);
        if contents.insert(member.content_block()) {
            live += blocks_of(member.stored_bytes());
        }
    }
    live
}

/// Members of an old pack, in their order.
struct PackSource<'a> {
    archive: &'a Archive,
    row: &'a ArchivedPack,
    left: std::slice::Iter<'a, PackedMember>,
    /// The tar, and up to where it was read.
    open: Option<(Box<dyn Read + Send + 'a>, u64)>,
    /// Names of files that were taken, by the blocks of their contents.
    taken: HashMap<u64, FileName>,
}

impl<'a> PackSource<'a> {
    fn new(archive: &'a Archive, pack: &'a OldRoom) -> Self {
        let left = pack.index.members.iter();
        Self { archive, row: &pack.row, left, open: None, taken: HashMap::new() }
    }

    fn next(&self) -> Option<&'a PackedMember> {
        self.left.as_slice().first()
    }

    fn name(&self) -> &[u8] {
        self.next().map_or(&[], |member| &member.attributes.name)
    }

    /// The next member, what it is in a new pack, and its content, which is as it was stored. Of names of
    /// one file the first has it.
    fn take(
        &mut self,
        path: &ArchivePath,
        content: &mut Vec<u8>,
    ) -> Result<Option<(&'a PackedMember, MemberAttributes)>, ArchiveError> {
        let Some(member) = self.left.next() else { return Ok(None) };
        let mut attributes = member.attributes.clone();
        content.clear();
        if !matches!(attributes.kind, MemberKind::File | MemberKind::HardLink { .. }) {
            return Ok(Some((member, attributes)));
        }
        let block = member.content_block();
        if let Some(to) = self.taken.get(&block) {
            attributes.kind = MemberKind::HardLink { to: to.clone() };
            return Ok(Some((member, attributes)));
        }
        attributes.kind = MemberKind::File;
        self.taken.insert(block, attributes.name.clone());
        self.read(member, content)?;
        // The new index gets a digest of these bytes: a damage would not be seen from then on.
        if *blake3::hash(content).as_bytes() != member.digest {
            let (path, place) = (path.join(&attributes.name), self.row.key());
            return Err(ArchiveError::Member { path, place, what: "its content" });
        }
        Ok(Some((member, attributes)))
    }

    fn read(&mut self, member: &PackedMember, content: &mut Vec<u8>) -> Result<(), ArchiveError> {
        let (start, bytes) = (member.content_at(), member.stored_bytes());
        if bytes == 0 {
            return Ok(());
        }
        let key = self.row.key();
        let failed = |error: std::io::Error| match error.get_ref().and_then(|of| of.downcast_ref())
        {
            Some(said) => StoreError::clone(said),
            None => {
                let errno = Errno::from_io(&error);
                StoreError { place: key.to_string(), doing: "cannot be read", errno }
            }
        };
        let (mut object, at) = match self.open.take() {
            Some((object, at)) if at <= start => (object, at),
            _ => (open_tar(self.archive.store(), self.row, start)?, start),
        };
        std::io::copy(&mut (&mut object).take(start - at), &mut std::io::sink())
            .and_then(|_| (&mut object).take(bytes).read_to_end(content))
            .map_err(failed)?;
        self.open = Some((object, start + bytes));
        Ok(())
    }
}

/// A pack that is being written.
struct NewPack {
    key: StoreKey,
    writer: PackWriter<PackOutput>,
}

impl NewPack {
    fn new(archive: &Archive, zstd: Option<i32>) -> Result<Self, ArchiveError> {
        let id = new_id()?;
        let key = if zstd.is_some() { pack_zstd_key(id) } else { pack_key(id) };
        let to = PackOutput::new(archive.store().create(&key)?, zstd);
        let to = to.map_err(|error| unwritten(&key, &error))?;
        Ok(Self { key, writer: PackWriter::new(to, id) })
    }

    /// Ends it: the tar, then its index.
    fn finish(self, archive: &Archive) -> Result<ArchivedPack, ArchiveError> {
        let key = self.key;
        let failed = |why: PackError| ArchiveError::Pack { place: key.clone(), why };
        let (to, mut index) = self.writer.finish().map_err(failed)?;
        let written = to.finish().map_err(|error| unwritten(&key, &error))?;
        let WrittenPack { to, tar_bytes, zstd_bytes } = written;
        to.commit()?;
        let index_bytes = write_index(archive.store(), &mut index)?;
        let mut row =
            ArchivedPack { index_bytes, tar_bytes, zstd_bytes, ..ArchivedPack::default() };
        row.describe(&index);
        Ok(row)
    }
}
