//! The merge of the files of all hosts: a name is the group of the hosts that have it, a directory has the names of
//! all. Nothing can be changed here but by a file of a group, `NAME@data`.
mod leaf;
mod name;

use crate::combined::{
    GroupAsked, GroupBinding, GroupFile, GroupReading, GroupWriting, StatusTexts, asking_session,
    errno_of, no_length, refuse_saving, system, take, told,
};
use crate::message::{
    FileAnswer, FileCall, NodeAttributes, NodeName, NodeOp, ROOT, SetNodeAttributes,
};
use crate::own::{NamesSnapshot, OpenTable, OwnFiles, Snapshot, attributes, now, usage};
use leaf::{HostHas, ViewParams};
use rustc_hash::FxHashMap;
use rustix::fs::OFlags;
use sheaf_core::files::FileKind;
use sheaf_core::{Errno, RangeSet, lock};
use sheaf_group::entry::Merged;
use sheaf_group::{Client, Outcome, Target};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

pub use leaf::register;

/// The merge of all hosts.
pub struct AllView {
    client: Client,
    nodes: Mutex<FxHashMap<u64, KnownPath>>,
    open: OpenTable<AllOpen>,
    statuses: StatusTexts,
}

/// A path that the kernel knows by number, so many times.
struct KnownPath {
    place: AllPlace,
    times: u64,
}

/// A path beneath the exports, or a file of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AllPlace {
    path: Arc<[u8]>,
    file: Option<GroupFile>,
}

enum AllOpen {
    Names(NamesSnapshot),
    Reading(GroupReading),
    Writing(Box<GroupWriting>),
}

/// What hosts have of a path, in the order of hosts, and who does not say.
struct AllFound {
    by_host: Vec<(HostHas, RangeSet)>,
    outcome: Outcome,
}

/// The longest name that the kernel takes, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Whether a directory can have this name. One that it cannot have would hide all others.
fn is_name(name: &[u8]) -> bool {
    let is_one = !matches!(name, b"" | b"." | b"..") && name.len() <= NAME_BYTES_MAX;
    is_one && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

impl AllPlace {
    fn root() -> Self {
        Self { path: Arc::from(&b""[..]), file: None }
    }

    /// The number of its node, the same each time.
    fn node(&self) -> u64 {
        if self.path.is_empty() && self.file.is_none() {
            return ROOT;
        }
        let mut hash = blake3::Hasher::new();
        hash.update(&self.path).update(&[0, self.file.map_or(0, |file| file as u8 + 1)]);
        let mut number = [0; 8];
        hash.finalize_xof().fill(&mut number);
        (u64::from_le_bytes(number) >> 1) | 2
    }

    fn child(&self, name: &[u8]) -> Result<Self, Errno> {
        let (own, file) = name::parse(name).ok_or(Errno::NOENT)?;
        let path = match (self.path.is_empty(), own.is_empty()) {
            // `@data` of a directory is its own.
            (_, true) => self.path.to_vec(),
            (true, false) => own,
            (false, false) => [&self.path, &b"/"[..], &own].concat(),
        };
        Ok(Self { path: path.into(), file })
    }

    /// Beneath an export.
    fn absolute(&self) -> Vec<u8> {
        [b"/", &*self.path].concat()
    }

    /// As group operations name it, where no character means others.
    fn literal(&self) -> Result<String, Errno> {
        let path = String::from_utf8(self.absolute()).map_err(|_| Errno::ILSEQ)?;
        Ok(sheaf_file::literal(&path))
    }
}

impl AllView {
    /// That of all hosts of a session.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        Self {
            client: client.clone(),
            nodes: Mutex::default(),
            open: OpenTable::default(),
            statuses: StatusTexts::default(),
        }
    }

    fn place(&self, node: u64) -> Result<AllPlace, Errno> {
        if node == ROOT {
            return Ok(AllPlace::root());
        }
        lock(&self.nodes).get(&node).map(|known| known.place.clone()).ok_or(Errno::STALE)
    }

    fn know(&self, place: AllPlace) -> Result<u64, Errno> {
        let node = place.node();
        let mut nodes = lock(&self.nodes);
        let known =
            nodes.entry(node).or_insert_with(|| KnownPath { place: place.clone(), times: 0 });
        // Two paths with one number would be one file.
        if known.place != place {
            return Err(Errno::IO);
        }
        known.times += 1;
        Ok(node)
    }

    fn forget(&self, forgotten: &[(u64, u64)]) {
        let mut nodes = lock(&self.nodes);
        for (node, times) in forgotten {
            if let Some(known) = nodes.get_mut(node) {
                known.times = known.times.saturating_sub(*times);
                if known.times == 0 {
                    nodes.remove(node);
                }
            }
        }
    }

    /// Has all hosts say what they have; entries are handed on with the hosts that have them. Those of which one is no
    /// answer (`None`) have failed.
    async fn ask(
        &self,
        place: &AllPlace,
        names: bool,
        mut each: impl FnMut(&[u8], &RangeSet) -> Option<()>,
    ) -> Result<Outcome, Errno> {
        let params = ViewParams { path: place.absolute(), names };
        let params = postcard::to_stdvec(&params).map_err(|_| Errno::NOMEM)?;
        let members = self.client.network().everyone();
        let mut call = self
            .client
            .call(&members, leaf::NAME, &params)
            .map_err(|error| system(error.errno()))?;
        let mut merged = Merged::default();
        let mut errors = Outcome::default();
        loop {
            let more = call.next_entries(&mut merged).await;
            let more = more.map_err(|error| system(error.errno()))?;
            for entry in merged.sorted() {
                if each(entry.entry.text, entry.leaves).is_none() {
                    errors.add_failed(Errno::PROTO, entry.leaves);
                }
            }
            errors.add_errors(&merged);
            merged.clear();
            if !more {
                break;
            }
        }
        let mut outcome = call.finish();
        outcome.merge_failures(errors);
        Ok(outcome)
    }

    async fn find(&self, place: &AllPlace) -> Result<AllFound, Errno> {
        let mut by_host = Vec::new();
        let outcome = self
            .ask(place, false, |text, leaves| {
                by_host.push((postcard::from_bytes(text).ok()?, leaves.clone()));
                Some(())
            })
            .await?;
        by_host.sort_by_key(|(_, leaves): &(HostHas, RangeSet)| leaves.first());
        if by_host.is_empty() {
            let is_known = outcome.is_ok();
            return Err(if is_known { Errno::NOENT } else { errno_of(&outcome) });
        }
        Ok(AllFound { by_host, outcome })
    }

    async fn attributes(&self, place: &AllPlace) -> Result<NodeAttributes, Errno> {
        if *place == AllPlace::root() {
            return Ok(attributes(ROOT, libc::S_IFDIR | 0o500, 0, now()));
        }
        let found = self.find(place).await?;
        match place.file {
            None => Ok(found.attributes(place.node())),
            Some(file) => {
                let changed = found.attributes(0).mtime;
                Ok(attributes(place.node(), file.mode(), 0, changed))
            }
        }
    }

    /// Times of data are taken and kept nowhere; all else is as it is.
    async fn set_attributes(
        &self,
        node: u64,
        handle: Option<u64>,
        set: &SetNodeAttributes,
        pid: u32,
    ) -> Result<NodeAttributes, Errno> {
        let place = self.place(node)?;
        let is_data = place.file == Some(GroupFile::Data);
        if !is_data || set.mode.is_some() || set.uid.is_some() || set.gid.is_some() {
            return Err(Errno::ROFS);
        }
        if let Some(length) = set.size {
            self.set_length(handle, length, pid).await?;
        }
        self.attributes(&place).await
    }

    async fn set_length(&self, handle: Option<u64>, length: u64, pid: u32) -> Result<(), Errno> {
        let open = handle.map(|handle| self.open.get(handle)).transpose()?;
        match open.as_deref() {
            Some(AllOpen::Writing(writing)) => {
                writing.set_length(&self.client, &self.statuses, length).await
            }
            _ => Err(self.statuses.fail(asking_session(pid), no_length())),
        }
    }

    async fn look_up(&self, at: &NodeName) -> Result<NodeAttributes, Errno> {
        let parent = self.place(at.parent)?;
        if parent.file.is_some() {
            return Err(Errno::NOTDIR);
        }
        let place = parent.child(&at.name)?;
        let found = self.attributes(&place).await?;
        self.know(place)?;
        Ok(found)
    }

    async fn list(&self, place: &AllPlace) -> Result<NamesSnapshot, Errno> {
        let mut names: BTreeMap<Vec<u8>, FileKind> = BTreeMap::new();
        let outcome = self
            .ask(place, true, |text, _| {
                let (kind, name) = leaf::entry_of(text).filter(|(_, name)| is_name(name))?;
                let known = names.entry(name.to_vec()).or_insert(kind);
                if kind == FileKind::Directory {
                    *known = kind;
                }
                Some(())
            })
            .await?;
        let entries = names.into_iter().map(|(own, kind)| {
            let node = AllPlace { path: self.below(place, &own), file: None }.node();
            (name::shown(&own), node, kind)
        });
        let entries: Vec<_> = entries.collect();
        let end = (!outcome.is_ok()).then(|| errno_of(&outcome));
        self.tell(None, "list", &outcome);
        match end {
            Some(errno) if entries.is_empty() => Err(errno),
            end => Ok(NamesSnapshot { entries, own: (place.node(), ROOT), end }),
        }
    }

    fn below(&self, place: &AllPlace, name: &[u8]) -> Arc<[u8]> {
        let slash: &[u8] = if place.path.is_empty() { b"" } else { b"/" };
        [&place.path, slash, name].concat().into()
    }

    fn tell(&self, session: Option<u32>, what: &str, outcome: &Outcome) {
        if !outcome.is_ok() {
            self.statuses.put(session, told(&self.client, what, outcome, &[]));
        }
    }

    async fn open(&self, node: u64, flags: u32, pid: u32) -> Result<FileAnswer, Errno> {
        let (place, session) = (self.place(node)?, asking_session(pid));
        let flags = OFlags::from_bits_retain(flags);
        let is_read = flags & OFlags::ACCMODE == OFlags::RDONLY;
        if flags.contains(OFlags::DIRECTORY) {
            return Ok(self.opened(AllOpen::Names(self.list(&place).await?)));
        }
        match place.file {
            Some(GroupFile::Status) if is_read => {
                let bytes = self.statuses.get(session).into_bytes();
                let whole = Snapshot { bytes, end: None };
                return Ok(self.opened(AllOpen::Reading(GroupReading::Whole(whole))));
            }
            None if !is_read => return Err(Errno::ROFS),
            Some(file) if !is_read && file != GroupFile::Data => return Err(Errno::ACCES),
            _ => {}
        }
        let found = self.find(&place).await?;
        let members = found.files()?;
        let targets = [Target { members, path: place.literal()? }];
        if !is_read {
            if flags & OFlags::ACCMODE != OFlags::WRONLY {
                return Err(Errno::OPNOTSUPP);
            }
            if !found.outcome.is_ok() {
                self.tell(session, "open data", &found.outcome);
                return Err(errno_of(&found.outcome));
            }
            refuse_saving(&self.statuses, &targets, flags, pid)
                .map_err(|failed| self.statuses.fail(session, failed))?;
            let opened = GroupWriting::open(&self.client, &targets, flags, session).await;
            let writing = opened.map_err(|failed| self.statuses.fail(session, failed))?;
            return Ok(self.opened(AllOpen::Writing(Box::new(writing))));
        }
        let file = place.file.unwrap_or(GroupFile::Data);
        let (missing, binding) = (Some(found.outcome), &GroupBinding::default());
        let asked = GroupAsked { file, targets: &targets, binding, missing, session, pid };
        let read = take(&self.client, &self.statuses, asked).await?;
        Ok(self.opened(AllOpen::Reading(read)))
    }

    fn opened(&self, what: AllOpen) -> FileAnswer {
        FileAnswer::Opened(self.open.keep(what))
    }

    async fn read_link(&self, place: &AllPlace) -> Result<Vec<u8>, Errno> {
        let found = self.find(place).await?;
        let mut texts = found.by_host.iter().filter_map(|(has, _)| has.link.as_deref());
        let first = texts.next().ok_or(Errno::INVAL)?;
        // A link leads to one place.
        if texts.any(|other| other != first) {
            self.statuses.put(None, "readlink: hosts have different links there\n".to_owned());
            return Err(Errno::IO);
        }
        Ok(inside(&place.path, first))
    }

    async fn write(&self, handle: u64, offset: u64, data: &[u8]) -> Result<FileAnswer, Errno> {
        match &*self.open.get(handle)? {
            AllOpen::Writing(writing) => {
                writing.write(&self.client, &self.statuses, data, offset).await?;
                Ok(FileAnswer::Count(data.len() as u64))
            }
            _ => Err(Errno::BADF),
        }
    }

    fn flush(&self, handle: u64) -> Result<FileAnswer, Errno> {
        if let AllOpen::Writing(writing) = &*self.open.get(handle)? {
            writing.tell(&self.client, &self.statuses);
        }
        Ok(FileAnswer::Done)
    }

    async fn sync(&self, handle: u64) -> Result<FileAnswer, Errno> {
        if let AllOpen::Writing(writing) = &*self.open.get(handle)? {
            writing.sync(&self.client, &self.statuses).await?;
        }
        Ok(FileAnswer::Done)
    }

    async fn release(&self, handle: u64) -> Result<FileAnswer, Errno> {
        if let AllOpen::Writing(writing) = &*self.open.remove(handle)? {
            writing.close(&self.client, &self.statuses).await?;
        }
        Ok(FileAnswer::Done)
    }
}

impl AllFound {
    /// Directories are in front of all else; what is merged is as long as all together, and may be done by who
    /// may do it on each.
    fn attributes(&self, node: u64) -> NodeAttributes {
        let kind = |has: &HostHas| has.mode & libc::S_IFMT;
        let all = || self.by_host.iter();
        let directory = all().find(|(has, _)| kind(has) == libc::S_IFDIR);
        let (first, _) = directory.unwrap_or(&self.by_host[0]);
        let alike = || all().filter(|(has, _)| kind(has) == kind(first));
        let is_file = kind(first) == libc::S_IFREG;
        let total = |one: fn(&HostHas) -> u64| match is_file {
            // Hosts have said these numbers, and no file is longer than that.
            true => alike()
                .map(|(has, leaves)| one(has).saturating_mul(leaves.len()))
                .fold(0, u64::saturating_add)
                .min(i64::MAX as u64),
            false => one(first).min(i64::MAX as u64),
        };
        let mode = alike().fold(first.mode, |mode, (has, _)| mode & (has.mode | libc::S_IFMT));
        let times = |one: fn(&HostHas) -> sheaf_core::files::Timestamp| {
            alike().map(|(has, _)| one(has)).max().unwrap_or_default()
        };
        NodeAttributes {
            mode,
            uid: first.uid,
            gid: first.gid,
            rdev: first.rdev,
            size: total(|has| has.size),
            blocks: total(|has| has.blocks),
            mtime: times(|has| has.mtime),
            ctime: times(|has| has.ctime),
            atime: times(|has| has.mtime),
            ..attributes(node, 0, 0, first.mtime)
        }
    }

    /// The hosts that have a file there.
    fn files(&self) -> Result<RangeSet, Errno> {
        let mut members = RangeSet::new();
        for (has, leaves) in &self.by_host {
            if has.mode & libc::S_IFMT != libc::S_IFDIR {
                members.union_with(leaves);
            }
        }
        if members.is_empty() { Err(Errno::ISDIR) } else { Ok(members) }
    }
}

/// The text of a link in the merge: what begins at the root of the host begins at that of the merge, and nothing
/// leads out of it.
fn inside(link: &[u8], text: &[u8]) -> Vec<u8> {
    let above = link.iter().filter(|byte| **byte == b'/').count();
    let is_absolute = text.starts_with(b"/");
    let mut depth = if is_absolute { 0 } else { above };
    let mut parts: Vec<&[u8]> = if is_absolute { vec![b".."; above] } else { Vec::new() };
    for part in text.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if depth == 0 => {}
            b".." => {
                depth -= 1;
                parts.push(part);
            }
            _ => {
                depth += 1;
                parts.push(part);
            }
        }
    }
    if parts.is_empty() { b".".to_vec() } else { parts.join(&b'/') }
}

impl OwnFiles for AllView {
    async fn answer(
        &self,
        call: FileCall,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<FileAnswer, Errno> {
        match call.op {
            NodeOp::Lookup(at) => self.look_up(&at).await.map(FileAnswer::Node),
            NodeOp::Forget(nodes) => {
                self.forget(&nodes);
                Ok(FileAnswer::Done)
            }
            NodeOp::Attributes { node, .. } => {
                self.attributes(&self.place(node)?).await.map(FileAnswer::Node)
            }
            NodeOp::SetAttributes { node, handle, set } => {
                self.set_attributes(node, handle, &set, call.pid).await.map(FileAnswer::Node)
            }
            NodeOp::ReadLink { node } => {
                out.extend(self.read_link(&self.place(node)?).await?);
                Ok(FileAnswer::Bytes)
            }
            NodeOp::Open { node, flags } => self.open(node, flags, call.pid).await,
            NodeOp::Read { handle, offset, size } => match &*self.open.get(handle)? {
                AllOpen::Reading(reading) => reading.read(offset, size, out).await,
                _ => Err(Errno::BADF),
            },
            NodeOp::Write { handle, offset, .. } => self.write(handle, offset, data).await,
            NodeOp::Flush { handle, .. } => self.flush(handle),
            NodeOp::Sync { handle, .. } => self.sync(handle).await,
            NodeOp::Release { handle, .. } => self.release(handle).await,
            NodeOp::ReadDirectory { handle, offset, size, .. } => match &*self.open.get(handle)? {
                AllOpen::Names(listing) => listing.read(offset, size),
                _ => Err(Errno::NOTDIR),
            },
            NodeOp::FileSystem { .. } => Ok(FileAnswer::Usage(usage())),
            NodeOp::Access { node, mask } => {
                let place = self.place(node)?;
                let is_written = mask & libc::W_OK.cast_unsigned() != 0;
                match is_written && place.file != Some(GroupFile::Data) {
                    true => Err(Errno::ROFS),
                    false => Ok(FileAnswer::Done),
                }
            }
            NodeOp::GetXattr { .. } => Err(Errno::NODATA),
            NodeOp::ListXattr { size: 0, .. } => Ok(FileAnswer::Count(0)),
            NodeOp::ListXattr { .. } => Ok(FileAnswer::Bytes),
            NodeOp::Create { .. }
            | NodeOp::Make { .. }
            | NodeOp::Symlink { .. }
            | NodeOp::Link { .. }
            | NodeOp::Rename { .. }
            | NodeOp::Remove { .. }
            | NodeOp::Temporary { .. }
            | NodeOp::SetXattr { .. }
            | NodeOp::RemoveXattr { .. } => Err(Errno::ROFS),
            _ => Err(Errno::OPNOTSUPP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_directory_has_are_none() {
        let long = vec![b'x'; NAME_BYTES_MAX + 1];
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0b", &long] {
            assert!(!is_name(name), "{name:?}");
        }
        for name in [&b"a"[..], b"...", b".a", b"a\nb", b"\xff", &long[1..]] {
            assert!(is_name(name), "{name:?}");
        }
    }

    #[test]
    fn links_stay_inside() {
        let of = |link: &str, text: &str| {
            String::from_utf8(inside(link.as_bytes(), text.as_bytes())).unwrap()
        };
        assert_eq!(of("etc/localtime", "/usr/share/zone"), "../usr/share/zone");
        assert_eq!(of("a/b/c", "../x"), "../x");
        assert_eq!(of("a/b/c", "../../../../x"), "../../x");
        assert_eq!(of("c", "../x"), "x");
        assert_eq!(of("c", "/"), ".");
        assert_eq!(of("a/c", "/../etc"), "../etc");
    }

    #[test]
    fn numbers_of_nodes_tell_paths_apart() {
        let place = |path: &[u8], file| AllPlace { path: path.into(), file };
        let all = [
            place(b"a", None),
            place(b"a", Some(GroupFile::Data)),
            place(b"a", Some(GroupFile::Lines)),
            place(b"b", None),
        ];
        let numbers: std::collections::BTreeSet<u64> = all.iter().map(AllPlace::node).collect();
        assert_eq!(numbers.len(), all.len());
        assert!(numbers.iter().all(|number| *number > ROOT));
        assert_eq!(AllPlace::root().node(), ROOT);
        let literal = place(b"a*b\\", None).literal().unwrap();
        assert_eq!(literal, r"/a\*b\\");
    }
}
