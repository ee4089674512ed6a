//! A group's members on one host.
use super::call::{body, body_lines};
use super::operate;
use crate::aggregate::{Data, ErrorClass, Packed, Partial};
use crate::flags::{GROUP_FLAGS, O_UNIQUE};
use crate::message::{Open, Operation, Request};
use crate::tool::Host;
use bytes::Bytes;
use rustc_hash::FxHashSet;
use sheaf_core::{Errno, MemberSet, RangeSet};
use sheaf_file::{FileKind, Mode, OFlags, RemoveOptions};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most members one host may have in one group.
pub const MEMBERS_MAX: usize = 1 << 16;

/// One open file.
pub(super) struct Member {
    pub path: PathBuf,
    pub file: File,
    created: bool,
    /// Result of the last operation: ≥ 0, or −errno.
    pub status: i64,
    /// Content of the last read, while others may fetch it.
    pub body: Vec<u8>,
}

/// The members of a group on this host, in order of their paths.
#[derive(Default)]
pub(super) struct Group {
    pub members: Vec<Member>,
    /// The lines of the last read, while others may fetch them.
    pub lines: Vec<u8>,
    /// After a compound trip, which closes the members: what they gave.
    bodies: Vec<Vec<u8>>,
}

/// Serves a request about a group.
pub(super) fn serve(
    place: &mut Option<Group>,
    request: Request,
    data: &Bytes,
    host: &Host,
) -> Result<Partial, Errno> {
    match request {
        Request::Open { open, then, close } => {
            let (mut group, mut partial) = Group::open(&open, host);
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
        Request::Operate(operation) => {
            let group = place.as_mut().ok_or(Errno::BADF)?;
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
            let local = group.members.iter().position(|member| member.path.as_os_str().as_bytes() == path);
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

impl Group {
    /// Opens what the request names here. Files that do not open are errors of the partial and
    /// have no place in the group.
    fn open(open: &Open, host: &Host) -> (Self, Partial) {
        let (mut group, mut partial) = (Self::default(), Partial::default());
        let mut seen = FxHashSet::default();
        let (paths, unreadable) = candidates(open, host);
        for (path, errno) in unreadable {
            partial.add_error(error(errno, &path, host.leaf, 0));
        }
        for path in paths {
            match open_member(&path, open, host) {
                Ok(member) => {
                    let duplicate = open.flags & O_UNIQUE != 0 && !seen.insert(identity(&member.file));
                    if !duplicate {
                        partial.status.add(0);
                        group.members.push(member);
                    }
                }
                Err(errno) => partial.add_error(error(errno, &path, host.leaf, group.members.len() as u32)),
            }
        }
        partial.add_count(group.members.len() as u32, &RangeSet::single(host.leaf));
        (group, partial)
    }

    /// The operation of a compound trip; the errors of opening stay in its answer.
    fn compound(
        &mut self,
        opened: Partial,
        operation: &Operation,
        data: &Bytes,
        host: &Host,
    ) -> Result<Partial, Errno> {
        let mut partial = operate::operate(self, operation, data, host)?;
        partial.counts = opened.counts;
        for error in opened.errors {
            partial.add_error(error);
        }
        Ok(partial)
    }

    fn without_files(self) -> Self {
        let bodies = self.members.into_iter().map(|member| member.body).collect();
        Self { members: Vec::new(), lines: self.lines, bodies }
    }

    fn packed(&self, leaf: u32, item: impl Fn(&Member) -> Vec<u8>) -> Partial {
        let items = self.members.iter().enumerate().map(|(local, member)| (leaf, local as u32, item(member)));
        let packed = Packed { items: items.collect(), bytes_max: u64::MAX, exceeded: None };
        Partial { data: Data::Packed(packed), ..Partial::default() }
    }

    fn close(self, undo: bool, host: &Host) -> Partial {
        let mut partial = Partial::default();
        for (local, Member { path, file, created, .. }) in self.members.into_iter().enumerate() {
            drop(file);
            let undone = if undo && created {
                host.export.remove(&path, RemoveOptions::default()).err()
            } else {
                None
            };
            match undone {
                Some(errno) => partial.add_error(error(errno, &path, host.leaf, local as u32)),
                None => partial.status.add(0),
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
        weight: u64,
    ) -> Result<Partial, Errno> {
        if lines {
            return body_lines(leaf, weight, &self.lines);
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

/// The paths to open, sorted bytewise within each pattern, and what could not be looked at for them.
fn candidates(open: &Open, host: &Host) -> (Vec<PathBuf>, Vec<(PathBuf, Errno)>) {
    let (mut paths, mut errors) = (Vec::new(), Vec::new());
    for text in &open.paths {
        let found = host.export.expand(text);
        errors.extend(found.errors.into_iter().map(|error| (error.path, error.errno)));
        for path in found.paths {
            if !open.entries {
                paths.push(path);
                continue;
            }
            match host.export.read_dir(&path) {
                Ok(entries) => {
                    let files = entries.into_iter().filter(|entry| entry.kind != FileKind::Directory);
                    paths.extend(files.map(|entry| path.join(entry.name)));
                }
                Err(errno) => errors.push((path, errno)),
            }
        }
    }
    if paths.len() > MEMBERS_MAX {
        errors.push((PathBuf::new(), Errno::MFILE));
        paths.truncate(MEMBERS_MAX);
    }
    (paths, errors)
}

fn open_member(path: &Path, open: &Open, host: &Host) -> Result<Member, Errno> {
    let mut flags = OFlags::from_bits_retain(open.flags & !GROUP_FLAGS) | OFlags::CLOEXEC | OFlags::NOCTTY;
    if !flags.contains(OFlags::PATH) {
        // A pipe that nobody has at its other end must not hold up the host's other members.
        flags |= OFlags::NONBLOCK;
    }
    let mode = Mode::from_raw_mode(open.mode & 0o7777);
    let creates = flags.contains(OFlags::CREATE);
    // Only what this opening made may be undone: try first without, then insist on making it.
    let existing = if creates && !flags.contains(OFlags::EXCL) {
        match host.export.open_file(path, flags - OFlags::CREATE, mode) {
            Err(Errno::NOENT) => None,
            other => Some(other?),
        }
    } else {
        None
    };
    let (file, created) = match existing {
        Some(file) => (file, false),
        None if creates => match host.export.open_file(path, flags | OFlags::EXCL, mode) {
            Ok(file) => (file, true),
            // Somebody else made it in between, or it is a dangling link.
            Err(Errno::EXIST) if !flags.contains(OFlags::EXCL) => {
                (host.export.open_file(path, flags, mode)?, false)
            }
            Err(errno) => return Err(errno),
        },
        None => (host.export.open_file(path, flags, mode)?, false),
    };
    Ok(Member { path: path.to_owned(), file, created, status: 0, body: Vec::new() })
}

fn identity(file: &File) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    file.metadata().map_or((0, 0), |metadata| (metadata.dev(), metadata.ino()))
}

/// An error of one member.
pub(super) fn error(errno: Errno, path: &Path, leaf: u32, local: u32) -> ErrorClass {
    let members = MemberSet::of_leaves(local, RangeSet::single(leaf));
    ErrorClass { errno, path: path.to_string_lossy().into_owned(), members }
}
