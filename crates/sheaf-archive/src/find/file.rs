//! A file as an expression sees it.
use super::FindTime;
use crate::list::ArchivedFile;
use crate::pack::member::{MemberAttributes, MemberKind};
use sheaf_core::files::{FileKind, Metadata, Timestamp};

/// Where a file was found.
#[derive(Clone, Copy, Debug)]
pub struct FindPlace<'a> {
    /// What stands before its path where that is printed: a store or a host.
    pub before: &'a [u8],
    /// Where the search began.
    pub start: &'a [u8],
    /// Its path, which begins with that.
    pub path: &'a [u8],
    /// How many levels it is below where the search began.
    pub depth: usize,
}

/// A file as tests see it.
#[derive(Clone, Copy, Debug)]
pub struct FindFile<'a> {
    pub(super) place: FindPlace<'a>,
    pub(super) depth: usize,
    pub(super) kind: FileKind,
    /// Permission bits, `0o7777`.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Bytes of its content.
    pub(super) size: u64,
    /// Last change of its content.
    pub(super) mtime: Timestamp,
    /// All that is known of a file of this machine.
    status: Option<&'a Metadata>,
}

impl<'a> FindFile<'a> {
    /// An archived file. A directory has no size there.
    #[must_use]
    pub fn archived(place: FindPlace<'a>, file: &ArchivedFile) -> Self {
        let (depth, status) = (place.depth, None);
        let of = |of: &MemberAttributes, size| {
            let (kind, size) = match &of.kind {
                MemberKind::File | MemberKind::HardLink { .. } => (FileKind::File, size),
                MemberKind::Symlink { target } => (FileKind::Symlink, target.len() as u64),
                MemberKind::Fifo => (FileKind::Fifo, 0),
                MemberKind::CharDevice { .. } => (FileKind::CharDevice, 0),
                MemberKind::BlockDevice { .. } => (FileKind::BlockDevice, 0),
            };
            let (mode, uid, gid, mtime) = (of.mode, of.uid, of.gid, of.mtime);
            FindFile { place, depth, kind, mode, uid, gid, size, mtime, status }
        };
        match file {
            ArchivedFile::Member { member, .. } => of(&member.attributes, member.size),
            ArchivedFile::Object(object) => of(&object.attributes, object.size),
            ArchivedFile::Directory(is) => FindFile {
                place,
                depth,
                kind: FileKind::Directory,
                mode: is.mode,
                uid: is.uid,
                gid: is.gid,
                size: 0,
                mtime: Timestamp { seconds: is.mtime_s, nanoseconds: is.mtime_ns },
                status,
            },
        }
    }

    /// A file of this machine, of which `lstat` is asked where [`FindExpression::facts`] says so.
    ///
    /// [`FindExpression::facts`]: super::FindExpression::facts
    #[must_use]
    pub fn local(place: FindPlace<'a>, kind: FileKind, status: Option<&'a Metadata>) -> Self {
        let of = |of: fn(&Metadata) -> u32| status.map_or(0, of);
        let mtime = status.map_or(Timestamp::default(), |status| status.mtime);
        Self {
            place,
            depth: place.depth,
            kind,
            mode: of(|status| status.mode),
            uid: of(|status| status.uid),
            gid: of(|status| status.gid),
            size: status.map_or(0, |status| status.size),
            mtime,
            status,
        }
    }

    /// The letter of a kind, as `-type` takes it and `%y` prints it.
    #[must_use]
    pub fn letter(kind: FileKind) -> char {
        match kind {
            FileKind::File => 'f',
            FileKind::Directory => 'd',
            FileKind::Symlink => 'l',
            FileKind::Fifo => 'p',
            FileKind::Socket => 's',
            FileKind::CharDevice => 'c',
            FileKind::BlockDevice => 'b',
            FileKind::Unknown => 'U',
        }
    }

    /// A fact of a file of this machine alone; the least there is where it is not known, which
    /// [`FindExpression::check_archived`] prevents.
    ///
    /// [`FindExpression::check_archived`]: super::FindExpression::check_archived
    pub(super) fn fact<T: Default>(&self, of: impl Fn(&Metadata) -> T) -> T {
        self.status.map(of).unwrap_or_default()
    }

    pub(super) fn time(&self, which: FindTime) -> Timestamp {
        match which {
            FindTime::Modified => self.mtime,
            FindTime::Accessed => self.fact(|status| status.atime),
            FindTime::Changed => self.fact(|status| status.ctime),
        }
    }

    /// The last part of its path, with a slash at its end if one was written.
    pub(super) fn base(&self) -> &'a [u8] {
        let path = self.place.path;
        let end = path.len().min(self.bare().len() + 1);
        &path[base_at(self.bare())..end]
    }

    /// The same without one.
    pub(super) fn name(&self) -> &'a [u8] {
        let bare = self.bare();
        &bare[base_at(bare)..]
    }

    /// What stands before the last part, or `.`.
    pub(super) fn above(&self) -> &'a [u8] {
        let bare = self.bare();
        match memchr::memrchr(b'/', bare) {
            Some(at) => &bare[..at],
            None => b".",
        }
    }

    /// What stands behind where the search began.
    pub(super) fn below(&self) -> &'a [u8] {
        let below = &self.place.path[self.place.start.len().min(self.place.path.len())..];
        below.strip_prefix(b"/").unwrap_or(below)
    }

    /// Its path without slashes at the end.
    fn bare(&self) -> &'a [u8] {
        let mut path = self.place.path;
        while let [_, .., b'/'] = path {
            path = &path[..path.len() - 1];
        }
        path
    }
}

/// Where the last part of a path begins; all of it if there is but a slash.
fn base_at(bare: &[u8]) -> usize {
    if bare == b"/" { 0 } else { memchr::memrchr(b'/', bare).map_or(0, |at| at + 1) }
}
