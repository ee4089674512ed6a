//! Modes and owners of what is archived: a pack's row has them, so a tree is changed without a look at
//! its members.
//!
//! PSI, sections 6.3 and 8.2: a change applies to a whole aggregate instead of its members, and
//! only if it changes something.
use crate::archive::{Archive, ArchiveError, new_id, read_index, write_index};
use crate::catalog::{
    ArchivedObject, ArchivedPack, CatalogError, Commit, DirectoryChange, DirectoryRows, FileRights,
    MemberClass, rebind_xattrs,
};
use crate::lease::Writing;
use crate::local::modes::ModesTold;
use crate::pack::index::PackIndex;
use crate::pack::member::{MemberAttributes, PackId, PackedMember};
use crate::path::ArchivePath;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound;

/// Directories that are changed by one commit.
const DIRECTORIES_AT_ONCE: usize = 4096;
/// Directories that are changed by one commit where names are told, which wait for it.
const DIRECTORIES_TOLD_AT_ONCE: usize = 64;
/// How often one begins anew where others write meanwhile.
const TRIES_MAX: u32 = 8;

/// What becomes of modes or owners.
pub enum RightsChange<'a> {
    /// What a mode becomes, `0o7777` both, of a directory or of something else. Symbolic links keep theirs.
    Mode(&'a dyn Fn(u32, bool) -> u32),
    /// Numeric owner and group, each if it is another one. As the system does, a file that gets them
    /// loses its set-id bits and capabilities.
    Owner {
        /// The owner.
        uid: Option<u32>,
        /// The group.
        gid: Option<u32>,
    },
}

/// How to change them.
#[derive(Clone, Copy, Debug, Default)]
pub struct RightsOptions {
    /// Directories with all that is in them.
    pub recursive: bool,
    /// Only say what would change.
    pub dry_run: bool,
}

/// What was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RightsReport {
    /// Files and directories that have others now.
    pub changed: u64,
    /// Files and directories that had these.
    pub unchanged: u64,
}

impl std::ops::AddAssign for RightsReport {
    fn add_assign(&mut self, other: Self) {
        self.changed += other.changed;
        self.unchanged += other.unchanged;
    }
}

/// A file or directory, and what it has become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RightsStep {
    /// Its path.
    pub path: ArchivePath,
    /// What it was.
    pub old: FileRights,
    /// What it is, or would be; the same if it had that.
    pub new: FileRights,
    /// A symbolic link.
    pub is_link: bool,
}

/// Who is told of each file, and of which.
pub struct RightsTold<'a> {
    /// Which.
    pub tells: ModesTold,
    /// Is told when it is done.
    pub each: &'a mut dyn FnMut(RightsStep),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FileClass {
    Directory,
    Link,
    Other,
}

impl RightsChange<'_> {
    fn of(&self, old: FileRights, what: FileClass) -> FileRights {
        match self {
            Self::Mode(_) if what == FileClass::Link => old,
            Self::Mode(change) => {
                FileRights { mode: change(old.mode, what == FileClass::Directory) & 0o7777, ..old }
            }
            Self::Owner { uid, gid } => {
                let (uid, gid) = (uid.unwrap_or(old.uid), gid.unwrap_or(old.gid));
                let mut mode = old.mode;
                if (uid, gid) != (old.uid, old.gid) && what == FileClass::Other {
                    mode &= !0o4000;
                    // Without the group's `x` the bit is of no group, and the system leaves it
                    // there, too.
                    if mode & 0o010 != 0 {
                        mode &= !0o2000;
                    }
                }
                FileRights { mode, uid, gid }
            }
        }
    }

    /// Gives a file what it becomes; whether that is something else.
    fn apply(&self, to: &mut MemberAttributes) -> bool {
        let old = to.rights();
        let new = self.of(old, if to.is_link() { FileClass::Link } else { FileClass::Other });
        if new == old {
            return false;
        }
        rebind_xattrs(&mut to.xattrs, (old, new));
        to.set_rights(new);
        true
    }
}

/// Changes modes or owners where they differ: of a file, of a directory, or of all that is in it, too. All
/// names of a file have the same.
///
/// # Errors
/// When there is nothing of this name, or the catalog or an index cannot be read or written. Of a tree,
/// what was committed before that is changed.
pub fn change_rights(
    archive: &Archive,
    path: &ArchivePath,
    change: &RightsChange<'_>,
    options: RightsOptions,
) -> Result<RightsReport, ArchiveError> {
    change_rights_told(archive, path, change, options, None)
}

/// As [`change_rights`], and somebody is told of each file: for that indexes of packs are read.
///
/// # Errors
/// As [`change_rights`].
pub fn change_rights_told(
    archive: &Archive,
    path: &ArchivePath,
    change: &RightsChange<'_>,
    options: RightsOptions,
    told: Option<RightsTold<'_>>,
) -> Result<RightsReport, ArchiveError> {
    if archive.catalog().directory(path)?.is_some() {
        let mut run = RightsRun::new(archive, change, options, told);
        let report = run.tree(path)?;
        run.other_names(Some(path))?;
        return Ok(report);
    }
    let missing = || ArchiveError::NotArchived { path: path.clone() };
    let (above, name) = path.split().ok_or_else(missing)?;
    let names = [name.to_vec()];
    let (report, none) =
        change_rights_of_files_told(archive, &above, &names, change, options, told)?;
    if none.is_empty() { Ok(report) } else { Err(missing()) }
}

/// Changes modes or owners of files of one directory by one commit, as [`change_rights`] does. With what
/// was changed, those of the names that are not there; directories are none.
///
/// # Errors
/// When the catalog or an index cannot be read or written.
pub fn change_rights_of_files(
    archive: &Archive,
    directory: &ArchivePath,
    names: &[Vec<u8>],
    change: &RightsChange<'_>,
    options: RightsOptions,
) -> Result<(RightsReport, Vec<Vec<u8>>), ArchiveError> {
    change_rights_of_files_told(archive, directory, names, change, options, None)
}

/// As [`change_rights_of_files`], and somebody is told of each file.
///
/// # Errors
/// As [`change_rights_of_files`].
pub fn change_rights_of_files_told(
    archive: &Archive,
    directory: &ArchivePath,
    names: &[Vec<u8>],
    change: &RightsChange<'_>,
    options: RightsOptions,
    told: Option<RightsTold<'_>>,
) -> Result<(RightsReport, Vec<Vec<u8>>), ArchiveError> {
    let mut run = RightsRun::new(archive, change, options, told);
    let names: BTreeSet<&[u8]> = names.iter().map(|name| &name[..]).collect();
    let mut tries = 0;
    let changed = loop {
        match run.try_files(directory, &names) {
            Err(ArchiveError::Catalog(CatalogError::Changed { .. })) if tries < TRIES_MAX => {
                tries += 1;
            }
            changed => break changed?,
        }
    };
    run.other_names(None)?;
    Ok(changed)
}

struct RightsRun<'a, 'b> {
    archive: &'a Archive,
    _writing: Writing,
    change: &'a RightsChange<'a>,
    options: RightsOptions,
    /// Files with several names that were changed, and what they have become.
    links: HashMap<PackId, MemberAttributes>,
    told: Option<RightsTold<'b>>,
    /// What is told when it is committed.
    waiting: Vec<RightsStep>,
}

impl<'a, 'b> RightsRun<'a, 'b> {
    fn new(
        archive: &'a Archive,
        change: &'a RightsChange<'a>,
        options: RightsOptions,
        told: Option<RightsTold<'b>>,
    ) -> Self {
        let told = told.filter(|told| told.tells != ModesTold::Nothing);
        let (links, waiting, _writing) = (HashMap::new(), Vec::new(), archive.writing());
        Self { archive, _writing, change, options, links, told, waiting }
    }

    /// Has somebody told of a file, when it is committed.
    fn wait(&mut self, path: impl FnOnce() -> ArchivePath, rights: [FileRights; 2], is_link: bool) {
        let [old, new] = rights;
        let least = if old == new { ModesTold::All } else { ModesTold::Changes };
        if self.told.as_ref().is_some_and(|told| told.tells >= least) {
            self.waiting.push(RightsStep { path: path(), old, new, is_link });
        }
    }

    /// Tells of what is committed.
    fn tell(&mut self) {
        let Some(told) = &mut self.told else { return };
        self.waiting.drain(..).for_each(|step| (told.each)(step));
    }

    fn tree(&mut self, path: &ArchivePath) -> Result<RightsReport, ArchiveError> {
        let directories_max = match self.options.recursive {
            false => 1,
            true if self.told.is_some() => DIRECTORIES_TOLD_AT_ONCE,
            true => DIRECTORIES_AT_ONCE,
        };
        let (mut all, mut last) = (RightsReport::default(), None);
        let mut tries = 0;
        loop {
            let next = self.archive.catalog().rows_below(path, last.as_ref(), directories_max)?;
            let Some((behind, _)) = next.last() else { return Ok(all) };
            let behind = behind.clone();
            let (mut commit, mut report) = (Commit::default(), RightsReport::default());
            // Of a commit that was refused, nothing is reported.
            self.waiting.clear();
            for (path, rows) in next {
                let change = self.directory(path, rows, &mut report)?;
                commit.changes.extend(change);
            }
            match self.commit(&commit) {
                Err(CatalogError::Changed { .. }) if tries < TRIES_MAX => {
                    tries += 1;
                    continue;
                }
                committed => committed?,
            }
            self.tell();
            all += report;
            if !self.options.recursive {
                return Ok(all);
            }
            last = Some(behind);
        }
    }

    fn commit(&self, commit: &Commit) -> Result<(), CatalogError> {
        if commit.changes.is_empty() || self.options.dry_run {
            return Ok(());
        }
        self.archive.commit(commit).map(drop)
    }

    /// What becomes of a directory, and of what is in it; nothing if all stays as it is.
    fn directory(
        &mut self,
        path: ArchivePath,
        rows: DirectoryRows,
        report: &mut RightsReport,
    ) -> Result<Option<DirectoryChange>, ArchiveError> {
        let mut into = DirectoryChange { path, since: rows.changed, ..Default::default() };
        let mut changes = false;
        if let Some(mut is) = rows.directory {
            let old = FileRights { mode: is.mode, uid: is.uid, gid: is.gid };
            let new = self.change.of(old, FileClass::Directory);
            changes |= report.count(1, new != old);
            self.wait(|| into.path.clone(), [old, new], false);
            if new != old {
                rebind_xattrs(&mut is.xattrs, (old, new));
                (is.mode, is.uid, is.gid) = (new.mode, new.uid, new.gid);
                into.directory = Some(is);
            }
        }
        if self.options.recursive {
            for pack in rows.packs {
                changes |= self.pack(pack, &mut into, report)?;
            }
            for object in rows.objects {
                changes |= self.object(object, &mut into, report);
            }
        }
        Ok(changes.then_some(into))
    }

    fn object(
        &mut self,
        mut object: ArchivedObject,
        into: &mut DirectoryChange,
        report: &mut RightsReport,
    ) -> bool {
        let old = object.attributes.rights();
        let changed = report.count(1, self.change.apply(&mut object.attributes));
        let (new, is_link) = (object.attributes.rights(), object.attributes.is_link());
        self.wait(|| into.path.join(&object.attributes.name), [old, new], is_link);
        if changed {
            if let Some(link) = object.link {
                self.links.insert(link, object.attributes.clone());
            }
            into.objects.push(object);
        }
        changed
    }

    /// All members of a pack: by its row, if that has them.
    fn pack(
        &mut self,
        mut row: ArchivedPack,
        into: &mut DirectoryChange,
        report: &mut RightsReport,
    ) -> Result<bool, ArchiveError> {
        let of_class = |class: &MemberClass| {
            let what = if class.are_links { FileClass::Link } else { FileClass::Other };
            self.change.of(class.now, what)
        };
        let is_rebound = |class: &MemberClass| class.are_bound && of_class(class) != class.now;
        let Some(classes) = &row.classes else {
            return self.members(row, None, into, report);
        };
        // Extended attributes change with these, and a row does not have them.
        if classes.iter().any(is_rebound) {
            return self.members(row, None, into, report);
        }
        let differs = |class: &MemberClass| of_class(class) != class.now;
        let told = match self.told.as_ref().map(|told| told.tells) {
            Some(tells) if tells == ModesTold::All || classes.iter().any(differs) => {
                Some(read_index(self.archive.store(), &row)?)
            }
            _ => None,
        };
        let mut changed = false;
        for class in row.classes.iter_mut().flatten() {
            let new = of_class(class);
            changed |= report.count(class.members.into(), new != class.now);
            class.now = new;
        }
        if let Some(index) = told {
            // Its members have the modes that the row had.
            self.wait_for(&index, &into.path);
        }
        if changed {
            into.packs.push(row);
        }
        Ok(changed)
    }

    /// Has somebody told of all members of a pack.
    fn wait_for(&mut self, index: &PackIndex, path: &ArchivePath) {
        for member in &index.members {
            let mut attributes = member.attributes.clone();
            self.change.apply(&mut attributes);
            let rights = [member.attributes.rights(), attributes.rights()];
            self.wait(|| path.join(&attributes.name), rights, attributes.is_link());
        }
    }

    /// Some members of a pack, or all, by another index. Whose extended attributes change with that is an
    /// object from then on, as the tar says something else. Of the names those are left that it has.
    fn members(
        &mut self,
        mut row: ArchivedPack,
        mut only: Option<&mut BTreeSet<&[u8]>>,
        into: &mut DirectoryChange,
        report: &mut RightsReport,
    ) -> Result<bool, ArchiveError> {
        let mut index = read_index(self.archive.store(), &row)?;
        let mut of_files = HashSet::new();
        if let Some(names) = &mut only {
            names.retain(|name| {
                let block = index.find(name).map(PackedMember::content_block);
                of_files.extend(block);
                block.is_some()
            });
        }
        let (mut changed, mut objects) = (false, Vec::new());
        for member in &mut index.members {
            if only.is_some() && !of_files.contains(&member.content_block()) {
                continue;
            }
            let mut attributes = member.attributes.clone();
            // Other names of the file change with it, and are neither counted nor reported.
            let is_named = only.as_ref().is_none_or(|names| names.contains(&attributes.name[..]));
            let differs = self.change.apply(&mut attributes);
            changed |= differs;
            if is_named {
                report.count(1, differs);
                let rights = [member.attributes.rights(), attributes.rights()];
                self.wait(|| into.path.join(&attributes.name), rights, attributes.is_link());
            }
            if attributes.xattrs == member.attributes.xattrs {
                member.set_rights(attributes.rights());
            } else {
                let object = member.to_object(&row);
                let attributes =
                    MemberAttributes { kind: object.attributes.kind.clone(), ..attributes };
                objects.push((member.content_block(), ArchivedObject { attributes, ..object }));
            }
        }
        if !changed || self.options.dry_run {
            return Ok(changed);
        }
        let going: HashSet<&[u8]> =
            objects.iter().map(|(_, object)| &object.attributes.name[..]).collect();
        index.members.retain(|member| !going.contains(&member.attributes.name[..]));
        into.objects.extend(linked(objects)?);
        if index.members.is_empty() {
            into.packs_removed.push(row.id);
            return Ok(true);
        }
        // Another object: commands that read an earlier commit still need the old index.
        index.generation = row.generation + 1;
        row.index_bytes = write_index(self.archive.store(), &mut index)?;
        row.describe(&index);
        into.packs.push(row);
        Ok(true)
    }

    fn try_files(
        &mut self,
        directory: &ArchivePath,
        names: &BTreeSet<&[u8]>,
    ) -> Result<(RightsReport, Vec<Vec<u8>>), ArchiveError> {
        let rows = self.archive.catalog().rows_of(directory)?;
        let (path, since) = (directory.clone(), rows.changed);
        let mut into = DirectoryChange { path, since, ..Default::default() };
        let mut report = RightsReport::default();
        self.waiting.clear();
        let (mut changed, mut missing) = (false, names.clone());
        for object in rows.objects {
            if missing.remove(&object.attributes.name[..]) {
                changed |= self.object(object, &mut into, &mut report);
            }
        }
        for row in rows.packs {
            let (first, last) = (row.first.clone(), row.last.clone());
            let here =
                missing.range::<[u8], _>((Bound::Included(&*first), Bound::Included(&*last)));
            if here.clone().next().is_none() {
                continue;
            }
            let mut here: BTreeSet<&[u8]> = here.copied().collect();
            changed |= self.members(row, Some(&mut here), &mut into, &mut report)?;
            missing.retain(|name| !here.contains(name));
        }
        if changed {
            self.commit(&Commit { changes: vec![into] })?;
        }
        self.tell();
        Ok((report, missing.into_iter().map(<[u8]>::to_vec).collect()))
    }

    /// Names outside of a directory of files that were changed by other names.
    fn other_names(&mut self, but: Option<&ArchivePath>) -> Result<(), ArchiveError> {
        if self.links.is_empty() || self.options.dry_run {
            return Ok(());
        }
        // In a tree that was changed as a whole, all names have it already.
        let but = but.filter(|_| self.options.recursive);
        let (mut last, mut tries) = (None, 0);
        loop {
            let catalog = self.archive.catalog();
            let next =
                catalog.rows_below(&ArchivePath::ROOT, last.as_ref(), DIRECTORIES_AT_ONCE)?;
            drop(catalog);
            let Some((behind, _)) = next.last() else { return Ok(()) };
            let behind = behind.clone();
            let others =
                next.into_iter().filter(|(path, _)| !but.is_some_and(|but| path.is_within(but)));
            let changes = others.filter_map(|(path, rows)| self.linked_names(path, rows));
            let commit = Commit { changes: changes.collect() };
            match self.commit(&commit) {
                Err(CatalogError::Changed { .. }) if tries < TRIES_MAX => {
                    tries += 1;
                    continue;
                }
                committed => committed?,
            }
            last = Some(behind);
        }
    }

    fn linked_names(&self, path: ArchivePath, rows: DirectoryRows) -> Option<DirectoryChange> {
        let mut into = DirectoryChange { path, since: rows.changed, ..Default::default() };
        for object in rows.objects {
            let Some(new) = object.link.and_then(|link| self.links.get(&link)) else { continue };
            let name = object.attributes.name.clone();
            let attributes = MemberAttributes { name, ..new.clone() };
            if object.attributes != attributes {
                into.objects.push(ArchivedObject { attributes, ..object });
            }
        }
        (!into.objects.is_empty()).then_some(into)
    }
}

impl RightsReport {
    /// Counts files that change or not; whether they do.
    fn count(&mut self, files: u64, change: bool) -> bool {
        if change {
            self.changed += files;
        } else {
            self.unchanged += files;
        }
        change
    }
}

/// Objects, of which those of one block are names of one file: these have something in common.
fn linked(objects: Vec<(u64, ArchivedObject)>) -> Result<Vec<ArchivedObject>, ArchiveError> {
    let mut files: HashMap<u64, Vec<ArchivedObject>> = HashMap::new();
    for (block, object) in objects {
        files.entry(block).or_default().push(object);
    }
    let mut all = Vec::new();
    for mut names in files.into_values() {
        if names.len() > 1 {
            let link = Some(new_id()?);
            names.iter_mut().for_each(|object| object.link = link);
        }
        all.append(&mut names);
    }
    Ok(all)
}
