//! A group's members on one host.
use super::call::{body, body_lines};
use super::operate;
use crate::aggregate::{Data, ErrorClass, Packed, Partial};
use crate::flags::{GROUP_FLAGS, O_BESTEFFORT, O_READY, O_UNIQUE};
use crate::message::{OpenMessage, Operation, Request};
use crate::tool::Host;
use bytes::Bytes;
use rustc_hash::FxHashSet;
use sheaf_core::{Errno, MemberSet, RangeSet};
use sheaf_file::{DirEntry, Export, FileKind, Globbed, Mode, OFlags, Tentative};
use sheaf_tree::service::share::Holding;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most members one host may have in one group.
pub const MEMBERS_MAX: usize = 1 << 16;

/// One open file.
pub(super) struct ServerMember {
    pub path: PathBuf,
    pub open: Tentative,
    /// Where the read just before began, as long as it can be taken back.
    pub before: Option<u64>,
    /// Result of the last operation: ≥ 0, or −errno.
    pub status: i64,
    /// Content of the last read, while others may fetch it.
    pub body: Vec<u8>,
}

/// The members of a group on this host, in order of their paths.
#[derive(Default)]
pub(super) struct ServerGroup {
    pub members: Vec<ServerMember>,
    /// Reads and writes go around the page cache.
    pub is_direct: bool,
    /// The number of the last operation.
    operated: Option<u64>,
    /// The lines of the last read, while others may fetch them.
    pub lines: Vec<u8>,
    /// After a compound trip, which closes the members: what they gave.
    bodies: Vec<Vec<u8>>,
    /// Files were made, and nobody has said yet that the group has opened everywhere.
    unsettled: Option<Export>,
    /// What all this takes of its user's share.
    pub held: Holding,
}

/// Serves a request about a group.
pub(super) fn serve(
    place: &mut Option<ServerGroup>,
    request: Request,
    data: &Bytes,
    wave: u64,
    host: &Host,
) -> Result<Partial, Errno> {
    match request {
        Request::Open { open, then: Some(then), .. }
            if open.changes_files() || then.changes_files() =>
        {
            Err(Errno::INVAL)
        }
        Request::Open { open, then, close } => {
            let (mut group, mut partial) = ServerGroup::open(&open, host)?;
            if let Some(operation) = then {
                partial = group.compound(partial, &operation, data, host)?;
            }
            if !close {
                *place = Some(group);
            } else if matches!(partial.data, Data::Classes(_)) {
                // Bodies may still be fetched; the descriptors are not needed for that.
                *place = Some(group.without_files());
            }
            Ok(partial)
        }
        Request::Settle => place.as_mut().ok_or(Errno::BADF)?.settle(host),
        Request::Unread { of } => {
            let group = place.as_mut().ok_or(Errno::BADF)?;
            Ok(if group.operated == Some(of) {
                operate::unread_all(group)
            } else {
                Partial::default()
            })
        }
        Request::Operate(operation) => {
            let group = place.as_mut().ok_or(Errno::BADF)?;
            group.operated = Some(wave);
            operate::operate(group, &operation, data, host)
        }
        Request::Statuses => {
            let group = place.as_ref().ok_or(Errno::BADF)?;
            Ok(group.packed(host.leaf, |member| member.status.to_le_bytes().to_vec()))
        }
        Request::Names => {
            let group = place.as_ref().ok_or(Errno::BADF)?;
            Ok(group.packed(host.leaf, |member| member.path.as_os_str().as_bytes().to_vec()))
        }
        Request::Find { leaf, path } => {
            let group = place.as_ref().ok_or(Errno::BADF)?;
            let local =
                group.members.iter().position(|member| member.path.as_os_str().as_bytes() == path);
            let items = match local.filter(|_| leaf == host.leaf) {
                Some(local) => vec![(host.leaf, local as u32, Vec::new())],
                None => Vec::new(),
            };
            let data = Data::Packed(Packed { items, bytes_max: u64::MAX, exceeded: None });
            Ok(Partial { data, ..Partial::default() })
        }
        Request::Close { undo } => {
            let group = place.take().ok_or(Errno::BADF)?;
            Ok(group.close(undo, host))
        }
        _ => Err(Errno::PROTO),
    }
}

impl ServerGroup {
    /// Opens what the request names here. Files that do not open are errors of the partial and
    /// have no place in the group.
    fn open(open: &OpenMessage, host: &Host) -> Result<(Self, Partial), Errno> {
        let (mut group, mut partial) = (Self::default(), Partial::default());
        group.held = Holding::new();
        let flags = OFlags::from_bits_retain(open.flags & !GROUP_FLAGS);
        group.is_direct = flags.contains(OFlags::DIRECT);
        // Until it is known that the group has opened, what is made here goes with it.
        group.unsettled = flags.contains(OFlags::CREATE).then(|| host.export.clone());
        let mut seen = FxHashSet::default();
        let (paths, unreadable) = candidates(open, host);
        for (path, errno) in unreadable {
            partial.add_error(error(errno, &path, host.leaf, 0));
        }
        for path in paths {
            if let Some(errno) = host.stopped() {
                return Err(errno);
            }
            let opened = group.hold_member(&path, flags);
            let opened = opened.and_then(|()| open_member(&path, open, host)).and_then(|member| {
                let is_duplicate =
                    open.flags & O_UNIQUE != 0 && !seen.insert(identity(&member.open.file)?);
                Ok((!is_duplicate).then_some(member))
            });
            match opened {
                Ok(member) => group.members.extend(member),
                Err(errno) => {
                    partial.add_error(error(errno, &path, host.leaf, group.members.len() as u32))
                }
            }
        }
        group.recount();
        group.members.iter().for_each(|_| partial.status.add(0));
        partial.add_count(group.members.len() as u32, &RangeSet::single(host.leaf));
        Ok((group, partial))
    }

    /// Counts one more member before it is opened.
    fn hold_member(&mut self, path: &Path, flags: OFlags) -> Result<(), Errno> {
        // A file that is not open for writing is emptied through a second descriptor.
        let descriptors = 1 + usize::from(flags.contains(OFlags::TRUNC));
        self.held.add(descriptors, size_of::<ServerMember>() + path.as_os_str().len())
    }

    /// Counts what there is, which is no more than was counted while it came.
    pub fn recount(&mut self) {
        let (mut descriptors, mut bytes) = (0, self.lines.len());
        for member in &self.members {
            descriptors += member.open.descriptors();
            let path_bytes = member.path.as_os_str().len();
            bytes += size_of::<ServerMember>() + path_bytes + member.body.len();
        }
        bytes += self.bodies.iter().map(Vec::len).sum::<usize>();
        // The lines of an answer may be a little longer than the text, and are bounded.
        let _ = self.held.set(descriptors, bytes);
    }

    /// The operation of a compound trip, whose answer also says what did not open.
    fn compound(
        &mut self,
        mut opened: Partial,
        operation: &Operation,
        data: &Bytes,
        host: &Host,
    ) -> Result<Partial, Errno> {
        if self.members.iter().any(|member| !is_stored(&member.open.file)) {
            // What is read from a pipe or a device is gone: not before everybody has opened.
            opened.more = RangeSet::single(host.leaf);
            return Ok(opened);
        }
        let mut partial = operate::operate(self, operation, data, host)?;
        (partial.counts, partial.unopened) = (opened.counts, opened.errors);
        Ok(partial)
    }

    /// The group has opened everywhere: what was made stays, and with `O_TRUNC` files are emptied.
    fn settle(&mut self, host: &Host) -> Result<Partial, Errno> {
        if host.is_late() {
            return Err(Errno::TIMEDOUT);
        }
        let mut partial = Partial::default();
        for (local, member) in self.members.iter_mut().enumerate() {
            match member.open.settle() {
                Ok(()) => partial.status.add(0),
                Err(errno) => {
                    partial.add_error(error(errno, &member.path, host.leaf, local as u32))
                }
            }
        }
        if partial.errors.is_empty() {
            self.unsettled = None;
        }
        Ok(partial)
    }

    fn without_files(mut self) -> Self {
        self.bodies = self.members.drain(..).map(|member| member.body).collect();
        self.recount();
        self
    }

    fn packed(&self, leaf: u32, item: impl Fn(&ServerMember) -> Vec<u8>) -> Partial {
        let items = self
            .members
            .iter()
            .enumerate()
            .map(|(local, member)| (leaf, local as u32, item(member)));
        let packed = Packed { items: items.collect(), bytes_max: u64::MAX, exceeded: None };
        Partial { data: Data::Packed(packed), ..Partial::default() }
    }

    fn close(mut self, undo: bool, host: &Host) -> Partial {
        let mut partial = Partial::default();
        self.unsettled = None;
        for (local, member) in self.members.drain(..).enumerate() {
            let undone = if undo { member.open.undo(&host.export) } else { Ok(()) };
            // What was written may fail to arrive only now, on file systems of other machines.
            let closed = sheaf_file::close(member.open.file);
            match undone.and(closed) {
                Ok(()) => partial.status.add(0),
                Err(errno) => {
                    partial.add_error(error(errno, &member.path, host.leaf, local as u32))
                }
            }
        }
        partial
    }

    /// Content of the last read of these members, or the lines of all.
    pub fn fetch(
        &self,
        leaf: u32,
        lines: bool,
        bytes_max: u64,
        locals: &RangeSet,
    ) -> Result<Partial, Errno> {
        if lines {
            return body_lines(leaf, &self.lines);
        }
        if locals.is_empty() {
            return Ok(body(leaf, 0, &self.lines, bytes_max));
        }
        let mut all = Partial::default();
        for local in locals.iter() {
            let open = self.members.get(local as usize).map(|member| &member.body);
            let content = open.or_else(|| self.bodies.get(local as usize)).ok_or(Errno::STALE)?;
            let one = body(leaf, local, content, bytes_max);
            all.merge(one).map_err(|error| error.errno)?;
        }
        Ok(all)
    }
}

impl Drop for ServerGroup {
    /// Whoever was opening the group has gone without a word.
    fn drop(&mut self) {
        let Some(export) = self.unsettled.take() else { return };
        for member in &self.members {
            // There is nobody left to be told of a failure.
            let _ = member.open.undo(&export);
        }
    }
}

/// The paths to open, sorted bytewise within each pattern, and what could not be looked at for
/// them.
fn candidates(open: &OpenMessage, host: &Host) -> (Vec<PathBuf>, Vec<(PathBuf, Errno)>) {
    let (mut paths, mut errors) = (Vec::new(), Vec::new());
    let own = open.of_hosts.iter().filter(|(hosts, _)| hosts.contains(host.leaf));
    for text in open.paths.iter().chain(own.map(|(_, path)| path)) {
        let found = if open.entries {
            // A directory is meant by its name.
            Globbed { paths: vec![PathBuf::from(text)], errors: Vec::new() }
        } else {
            host.expand(text)
        };
        errors.extend(found.errors.into_iter().map(|error| (error.path, error.errno)));
        for path in found.paths {
            if !open.entries {
                paths.push(path);
                continue;
            }
            match host.export.read_dir(&path) {
                Ok(entries) => {
                    let mut files = entries;
                    files.retain(|entry| !is_directory(&host.export, &path, entry));
                    paths.extend(files.into_iter().map(|entry| path.join(entry.name)));
                }
                Err(errno) => errors.push((path, errno)),
            }
        }
    }
    if !open.of_hosts.is_empty() {
        let mut seen = FxHashSet::default();
        paths.retain(|path| seen.insert(path.clone()));
    }
    if paths.len() > MEMBERS_MAX {
        errors.extend(paths.drain(MEMBERS_MAX..).map(|path| (path, Errno::MFILE)));
    }
    (paths, errors)
}

/// Whether an entry is a directory or a link to one. One that cannot be looked at is left to be
/// opened, which fails then.
fn is_directory(export: &Export, dir: &Path, entry: &DirEntry) -> bool {
    match entry.kind {
        FileKind::Directory => true,
        FileKind::Symlink | FileKind::Unknown => {
            export.stat(&dir.join(&entry.name)).is_ok_and(|stat| stat.is_dir())
        }
        _ => false,
    }
}

fn open_member(path: &Path, open: &OpenMessage, host: &Host) -> Result<ServerMember, Errno> {
    // A pipe that nobody has at its other end must not hold up the host's other members.
    let flags = OFlags::from_bits_retain(open.flags & !GROUP_FLAGS) | OFlags::NONBLOCK;
    let mode = Mode::from_raw_mode(open.mode & 0o7777);
    let mut open_file = host.export.open_tentative(path, flags, mode)?;
    if open.flags & O_READY != 0 && sheaf_file::is_empty_pipe(&open_file.file)? {
        return Err(Errno::AGAIN);
    }
    if open.flags & O_BESTEFFORT != 0 {
        // One member is enough for the group to open.
        open_file.settle()?;
    }
    Ok(ServerMember {
        path: path.to_owned(),
        open: open_file,
        before: None,
        status: 0,
        body: Vec::new(),
    })
}

fn identity(file: &File) -> Result<(u64, u64), Errno> {
    use std::os::unix::fs::MetadataExt;
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Whether what is read can be read again.
fn is_stored(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file() || metadata.is_dir())
}

/// An error of one member.
pub(super) fn error(errno: Errno, path: &Path, leaf: u32, local: u32) -> ErrorClass {
    let members = MemberSet::of_leaves(local, RangeSet::single(leaf));
    ErrorClass::new(errno, path.to_string_lossy(), members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use sheaf_tree::service::identity::Identity;
    use sheaf_tree::service::share::USER_BYTES_MAX;
    use std::os::unix::fs::PermissionsExt;

    /// Lowers the number of descriptors, which holds for the process, until it is dropped.
    struct Few(Rlimit);

    impl Few {
        fn new(most: u64) -> Self {
            let before = getrlimit(Resource::Nofile);
            setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..before }).unwrap();
            Self(before)
        }
    }

    impl Drop for Few {
        fn drop(&mut self) {
            setrlimit(Resource::Nofile, self.0).unwrap();
        }
    }

    fn open(pattern: &str, host: &Host) -> (ServerGroup, Vec<Errno>) {
        let message = OpenMessage::new(vec![pattern.into()], O_BESTEFFORT, 0);
        let (group, partial) = ServerGroup::open(&message, host).unwrap();
        (group, partial.errors.iter().map(|error| error.errno).collect())
    }

    /// As a user that a server of root's serves.
    fn acting<T>(uid: u32, act: impl FnOnce() -> T) -> T {
        let identity = Identity::of_user(uid, uid, &[]).unwrap().unwrap();
        let _acting = identity.assume().unwrap();
        act()
    }

    #[test]
    fn user_holds_at_most_half_of_the_descriptors() {
        if !rustix::process::geteuid().is_root() {
            return sheaf_testing::skipped("only root serves other users");
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        (100..300).for_each(|at| std::fs::write(dir.path().join(at.to_string()), "x").unwrap());
        let host = Host::new("n1", 0, Export::open(dir.path()).unwrap());
        let _few = Few::new(256);
        let (first, errors) = acting(4_000_011, || open("/*", &host));
        assert!(first.members.len() <= 128 && first.members.len() > 64, "{}", first.members.len());
        assert!(errors.iter().all(|errno| *errno == Errno::MFILE) && !errors.is_empty());
        // Others go on, all users up to three quarters, and the process's own beyond that.
        let (second, _) = acting(4_000_012, || open("/*", &host));
        assert!(second.members.len() > 16, "{}", second.members.len());
        let (third, errors) = acting(4_000_013, || open("/1*", &host));
        assert!(third.members.is_empty() && errors.iter().all(|errno| *errno == Errno::MFILE));
        let (own, errors) = open("/11*", &host);
        assert_eq!((own.members.len(), errors), (10, Vec::new()));
        drop((first, second));
        let (first, _) = acting(4_000_011, || open("/1*", &host));
        assert_eq!(first.members.len(), 100);
    }

    #[test]
    fn user_keeps_at_most_its_share_of_memory() {
        if !rustix::process::geteuid().is_root() {
            return sheaf_testing::skipped("only root serves other users");
        }
        const COUNT: u64 = 64 << 20;
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        for name in ["a", "b", "c", "d", "e"] {
            File::create(dir.path().join(name)).unwrap().set_len(COUNT).unwrap();
        }
        let host = Host::new("n1", 0, Export::open(dir.path()).unwrap());
        acting(4_000_014, || {
            let (mut group, _) = open("/*", &host);
            let data = crate::message::DataAggregation::Equal;
            let read = Operation::Pread { count: COUNT, offset: 0, data };
            let nothing = Bytes::new();
            let partial = operate::operate(&mut group, &read, &nothing, &host).unwrap();
            // What the files themselves take leaves no room for four.
            assert_eq!(partial.status.count, 3);
            assert!(partial.errors.iter().all(|error| error.errno == Errno::NOMEM));
            assert!(
                group.members.iter().map(|member| member.body.len()).sum::<usize>()
                    <= USER_BYTES_MAX
            );
        });
    }
}
